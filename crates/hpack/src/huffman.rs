//! The Huffman code of strings (RFC 7541 §5.2, appendix B).
//!
//! The code is canonical: codes of one length are consecutive numbers, in the order of their symbols. So the lengths
//! of the codes are enough to compute all tables.

use alloc::vec::Vec;

use crate::fault::Fault;

/// The number of symbols: all bytes, and the end of the string.
const SYMBOLS: usize = 257;
/// The symbol for the end of the string. It is never sent.
const EOS: u16 = 256;
/// The length of the longest codes, in bits.
const BITS_MAX: usize = 30;

/// The length of each symbol's code, in bits.
const LENGTHS: [u8; SYMBOLS] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, //
    28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, //
    10, 10, 8, 11, 8, 6, 6, 6, 5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, //
    15, 6, 12, 10, 13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, //
    7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6, 15, 5, 6, 5, //
    6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7, //
    7, 7, 7, 15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, //
    23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, //
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, //
    23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23, 26, 26, 20, 19, 22, 23, 22, 25, //
    26, 26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, //
    28, 27, 27, 27, 20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23, //
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26, 30,
];

/// The tables that follow from the lengths.
struct Tables {
    /// The code of each symbol.
    codes: [u32; SYMBOLS],
    /// All symbols, in the order of their codes.
    symbols: [u16; SYMBOLS],
    /// Each entry describes the codes of one length: the first code, the first code that is too large, and the place of the
    /// first symbol in `symbols`.
    ranges: [(u64, u64, u16); BITS_MAX + 1],
    /// The index is the next eight bits. Each entry has the symbol and the length of its code; zero stands for longer codes.
    short: [(u8, u8); 256],
}

static TABLES: Tables = tables();

#[expect(
    clippy::cast_possible_truncation,
    reason = "symbols are below 257, and there are as many places"
)]
const fn tables() -> Tables {
    let mut tables = Tables {
        codes: [0; SYMBOLS],
        symbols: [0; SYMBOLS],
        ranges: [(0, 0, 0); BITS_MAX + 1],
        short: [(0, 0); 256],
    };
    let (mut code, mut place, mut length) = (0u32, 0, 1);
    while length <= BITS_MAX {
        code <<= 1;
        let (first, first_place) = (code, place);
        let mut symbol = 0;
        while symbol < SYMBOLS {
            if LENGTHS[symbol] as usize == length {
                tables.codes[symbol] = code;
                tables.symbols[place] = symbol as u16;
                if length <= 8 {
                    let mut at = (code << (8 - length)) as usize;
                    let end = ((code + 1) << (8 - length)) as usize;
                    while at < end {
                        tables.short[at] = (symbol as u8, length as u8);
                        at += 1;
                    }
                }
                code += 1;
                place += 1;
            }
            symbol += 1;
        }
        tables.ranges[length] = (first as u64, code as u64, first_place as u16);
        length += 1;
    }
    tables
}

/// Appends the string that is encoded.
///
/// The string has at most eight fifths of the bytes of `encoded`, because the shortest code has five bits.
///
/// # Errors
///
/// [`Fault::Huffman`] if there is an end of the string among the codes, or if the bits after the last code are more
/// than seven or not all set. `out` may have a part of the string then.
pub fn decode(encoded: &[u8], out: &mut Vec<u8>) -> Result<(), Fault> {
    out.reserve(encoded.len() * 8 / 5);
    let mut input = encoded.iter();
    // The low `count` bits of `bits` have not been decoded.
    let (mut bits, mut count) = (0u64, 0usize);
    loop {
        while count <= 56
            && let Some(&byte) = input.next()
        {
            bits = bits << 8 | u64::from(byte);
            count += 8;
        }
        // After the end stand set bits. Eight of them are no whole code.
        let next =
            if count >= 8 { bits >> (count - 8) } else { bits << (8 - count) | 0xff >> count };
        let (symbol, length) = TABLES.short[(next & 0xff) as usize];
        let length = usize::from(length);
        if length > 0 && length <= count {
            out.push(symbol);
            count -= length;
        } else if length == 0 && count > 8 {
            match long(bits, count)? {
                Some((symbol, length)) => {
                    out.push(symbol);
                    count -= length;
                }
                None => return padding(bits, count),
            }
        } else {
            return padding(bits, count);
        }
    }
}

/// The symbol of a code with more than eight bits, and its length; `None` if the code goes on after the end.
fn long(bits: u64, count: usize) -> Result<Option<(u8, usize)>, Fault> {
    for length in 9..=BITS_MAX.min(count) {
        let code = bits >> (count - length) & ((1 << length) - 1);
        let (first, end, place) = TABLES.ranges[length];
        if code < end {
            let behind = usize::try_from(code - first).unwrap_or_default();
            let symbol = TABLES.symbols[usize::from(place) + behind];
            return match u8::try_from(symbol) {
                Ok(symbol) => Ok(Some((symbol, length))),
                Err(_) => Err(Fault::Huffman),
            };
        }
    }
    Ok(None)
}

/// Checks the bits after the last code.
const fn padding(bits: u64, count: usize) -> Result<(), Fault> {
    let ones = (1u64 << count) - 1;
    if count < 8 && bits & ones == ones { Ok(()) } else { Err(Fault::Huffman) }
}

/// The number of bytes that [`encode`] appends.
#[must_use]
pub fn encoded_len(string: &[u8]) -> usize {
    let bits: usize = string.iter().map(|&byte| usize::from(LENGTHS[usize::from(byte)])).sum();
    bits.div_ceil(8)
}

/// Appends the code of a string.
#[expect(clippy::cast_possible_truncation, reason = "the low byte is meant")]
pub fn encode(string: &[u8], out: &mut Vec<u8>) {
    let (mut bits, mut count) = (0u64, 0u32);
    for &byte in string {
        let (code, length) = (TABLES.codes[usize::from(byte)], LENGTHS[usize::from(byte)]);
        bits = bits << length | u64::from(code);
        count += u32::from(length);
        while count >= 8 {
            count -= 8;
            out.push((bits >> count) as u8);
        }
    }
    if count > 0 {
        out.push((bits << (8 - count)) as u8 | 0xff >> count);
    }
}

const _: () = assert!(LENGTHS[EOS as usize] as usize == BITS_MAX);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn rfc7541_appendix_b_codes() {
        for (symbol, code, length) in [
            (0, 0x1ff8, 13),
            (b'0', 0x0, 5),
            (b' ', 0x14, 6),
            (b'Z', 0xfd, 8),
            (b'{', 0x7ffe, 15),
            (128, 0xfffe6, 20),
            (255, 0x3ff_ffee, 26),
        ] {
            assert_eq!(TABLES.codes[usize::from(symbol)], code);
            assert_eq!(LENGTHS[usize::from(symbol)], length);
        }
        assert_eq!(TABLES.codes[usize::from(EOS)], 0x3fff_ffff);
    }

    #[test]
    fn the_code_is_complete() {
        let parts = LENGTHS.iter().map(|&length| 1u64 << (BITS_MAX - usize::from(length)));
        assert_eq!(parts.sum::<u64>(), 1 << BITS_MAX);
    }

    #[test]
    fn rfc7541_5_2_faults() {
        for (encoded, what) in [
            (&[0xff][..], "eight bits of padding"),
            (&[0x07, 0xff], "more than seven bits of padding"),
            (&[0x00], "padding of zeros"),
            (&[0xff, 0xff, 0xff, 0xff], "the end of the string"),
            (&[0xff, 0xff, 0xff, 0xfc], "the end of the string, with zeros behind it"),
            (&[0xff, 0xff], "a part of a code"),
        ] {
            assert_eq!(decode(encoded, &mut Vec::new()), Err(Fault::Huffman), "{what}");
        }
        let mut out = Vec::new();
        assert_eq!(decode(&[0x07], &mut out), Ok(()));
        assert_eq!(decode(&[], &mut out), Ok(()));
        assert_eq!(out, b"0");
    }

    proptest! {
        #[test]
        fn strings_come_back(string: Vec<u8>) {
            let (mut encoded, mut decoded) = (Vec::new(), Vec::new());
            encode(&string, &mut encoded);
            prop_assert_eq!(encoded.len(), encoded_len(&string));
            prop_assert_eq!(decode(&encoded, &mut decoded), Ok(()));
            prop_assert_eq!(decoded, string);
        }

        #[test]
        fn each_string_has_one_code(encoded: Vec<u8>) {
            let (mut decoded, mut again) = (Vec::new(), Vec::new());
            if decode(&encoded, &mut decoded).is_ok() {
                encode(&decoded, &mut again);
                prop_assert_eq!(again, encoded.clone());
            }
            prop_assert!(decoded.len() <= encoded.len() * 8 / 5);
        }
    }
}
