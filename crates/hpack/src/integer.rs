//! Integers with a prefix (RFC 7541 §5.1).

use alloc::vec::Vec;

use crate::fault::Fault;

/// The bits after the prefix that an integer may have: lengths and indices need fewer.
const BITS_MAX: u32 = 28;

/// Reads the integer whose prefix is the low `prefix` bits of the first byte of `bytes`. Returns it and its length in
/// bytes.
#[inline]
pub(crate) fn decode(bytes: &[u8], prefix: u32) -> Result<(usize, usize), Fault> {
    let mask = (1u8 << prefix) - 1;
    let first = bytes.first().ok_or(Fault::Truncated)? & mask;
    if first < mask { Ok((usize::from(first), 1)) } else { decode_rest(bytes, mask) }
}

fn decode_rest(bytes: &[u8], mask: u8) -> Result<(usize, usize), Fault> {
    let mut value = usize::from(mask);
    let mut shift = 0;
    for (place, &byte) in bytes.iter().enumerate().skip(1) {
        if shift >= BITS_MAX {
            return Err(Fault::Integer);
        }
        value += usize::from(byte & 0x7f) << shift;
        shift += 7;
        if byte & 0x80 == 0 {
            return Ok((value, place + 1));
        }
    }
    Err(if shift >= BITS_MAX { Fault::Integer } else { Fault::Truncated })
}

/// Appends an integer whose first byte has `flags` above a prefix of `prefix` bits.
#[inline]
pub(crate) fn encode(value: usize, prefix: u32, flags: u8, out: &mut Vec<u8>) {
    let mask = (1u8 << prefix) - 1;
    match u8::try_from(value) {
        Ok(value) if value < mask => out.push(flags | value),
        _ => {
            out.push(flags | mask);
            let mut rest = value - usize::from(mask);
            while rest >= 0x80 {
                out.push(0x80 | low_bits(rest));
                rest >>= 7;
            }
            out.push(low_bits(rest));
        }
    }
}

fn low_bits(value: usize) -> u8 {
    u8::try_from(value & 0x7f).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec;

    #[test]
    fn rfc7541_c1_examples() {
        for (value, prefix, bytes) in
            [(10, 5, vec![0x0a]), (1337, 5, vec![0x1f, 0x9a, 0x0a]), (42, 8 - 1, vec![42])]
        {
            let mut out = Vec::new();
            encode(value, prefix, 0, &mut out);
            assert_eq!(out, bytes);
            assert_eq!(decode(&bytes, prefix), Ok((value, bytes.len())));
        }
    }

    #[test]
    fn long_integers_are_refused_before_their_end() {
        assert_eq!(decode(&[0x1f, 0xff, 0xff, 0xff], 5), Err(Fault::Truncated));
        assert_eq!(decode(&[0x1f, 0xff, 0xff, 0xff, 0xff], 5), Err(Fault::Integer));
        assert_eq!(decode(&[0x1f, 0x80, 0x80, 0x80, 0x80, 0x00], 5), Err(Fault::Integer));
        assert_eq!(decode(&[0x1f, 0xff, 0xff, 0xff, 0x7f], 5), Ok((31 + (1 << 28) - 1, 5)));
        assert_eq!(decode(&[], 5), Err(Fault::Truncated));
    }

    proptest! {
        #[test]
        fn integers_come_back(value in 0usize..1 << 28, prefix in 4u32..=7, flags: u8) {
            let flags = flags & !((1u8 << prefix) - 1);
            let mut out = Vec::new();
            encode(value, prefix, flags, &mut out);
            prop_assert_eq!(out[0] & flags, flags);
            prop_assert_eq!(decode(&out, prefix), Ok((value, out.len())));
            for end in 0..out.len() {
                prop_assert_eq!(decode(&out[..end], prefix), Err(Fault::Truncated));
            }
        }
    }
}
