//! Classes of bytes, and the few loops over bytes that the parsers of every version need.
//!
//! One table answers "may this byte stand here?" for every grammar rule. Its rows are built at
//! compile time from the rules as the RFCs write them, so the table cannot differ from its
//! documentation.

use alloc::vec::Vec;

/// `tchar` (RFC 9110 §5.6.2): methods, field names, codings.
pub const TOKEN: u8 = 1 << 0;
/// A request-target before its `?`: every visible ASCII character except `?` and `#`.
///
/// RFC 3986 allows fewer, but browsers send `|`, `^`, `{` and `"` unescaped (WHATWG URL), and none
/// of them means anything to the framing. A fragment (`#`) is never sent by a client that follows
/// RFC 9112 §3.2.
pub const PATH: u8 = 1 << 1;
/// A query: [`PATH`] and `?`.
pub const QUERY: u8 = 1 << 2;
/// `reg-name` without its percent-encoding rule (RFC 3986 §3.2.2): unreserved, sub-delims, `%`.
pub const HOST: u8 = 1 << 3;
/// `HEXDIG`, either case.
pub const HEX: u8 = 1 << 4;
/// `etagc` (RFC 9110 §8.8.3): visible ASCII without the double quote, and obs-text.
pub const ETAG: u8 = 1 << 5;
/// A field value or a chunk extension: HTAB, SP, visible ASCII, obs-text (RFC 9110
/// §5.5).
pub const VALUE: u8 = 1 << 6;
/// The bytes that [`path::encode`](crate::path::encode) writes unencoded.
pub const PLAIN: u8 = 1 << 7;

static CLASSES: [u8; 256] = classes();

/// Returns whether `byte` is in one of the classes of `class`.
#[inline(always)]
pub fn is(byte: u8, class: u8) -> bool {
    CLASSES[usize::from(byte)] & class != 0
}

/// The first position from `at` on whose byte is not in `class`, or the length of `bytes`.
#[inline(always)]
pub fn skip(bytes: &[u8], mut at: usize, class: u8) -> usize {
    // Eight bytes at a time need not be compared with the end one by one.
    while let Some(eight) = bytes.get(at..).and_then(<[u8]>::first_chunk::<8>) {
        match eight.iter().position(|&byte| !is(byte, class)) {
            Some(place) => return at + place,
            None => at += 8,
        }
    }
    while let Some(&byte) = bytes.get(at) {
        if !is(byte, class) {
            break;
        }
        at += 1;
    }
    at
}

/// The first position from `at` on whose byte is a control character other than HTAB, or the length
/// of `bytes`.
///
/// As `skip(bytes, at, VALUE)`, eight bytes a step: values are most of a head.
#[inline(always)]
pub fn skip_value(bytes: &[u8], mut at: usize) -> usize {
    while let Some(word) = bytes.get(at..).and_then(<[u8]>::first_chunk::<8>) {
        let marks = marks_of_controls(u64::from_le_bytes(*word));
        if marks == 0 {
            at += 8;
            continue;
        }
        at += (marks.trailing_zeros() / 8) as usize;
        if bytes.get(at).is_none_or(|&byte| !is(byte, VALUE)) {
            return at;
        }
        at += 1;
    }
    skip(bytes, at, VALUE)
}

/// Marks the high bit of bytes of `word` below 0x20 or equal to 0x7f.
///
/// A byte may be marked that is neither, above one that is, or above 0xff: the sums carry. The lowest of those that are
/// is always marked.
#[inline(always)]
const fn marks_of_controls(word: u64) -> u64 {
    (word.wrapping_sub(ONES * 0x20) | word.wrapping_add(ONES)) & !word & HIGHS
}

/// The first position from `at` on whose byte is not printable ASCII or is `"` or `\`, or the length of `bytes`. Quoted
/// text has these bytes only in an escaped form, in JSON as in logs.
pub fn skip_unescaped(bytes: &[u8], mut at: usize) -> usize {
    let (words, rest) = bytes.get(at..).unwrap_or_default().as_chunks();
    for word in words {
        let marks = marks_of_escaped(u64::from_le_bytes(*word));
        if marks != 0 {
            return at + (marks.trailing_zeros() / 8) as usize;
        }
        at += 8;
    }
    let is_escaped = |byte: &u8| !matches!(byte, b' '..=b'~') || matches!(byte, b'"' | b'\\');
    at + rest.iter().position(is_escaped).unwrap_or(rest.len())
}

/// Marks the high bit of bytes of `word` that are not printable ASCII, or are `"` or `\`.
///
/// Other bytes may be marked above one of those: the sums carry. The lowest of those is always marked.
#[inline(always)]
const fn marks_of_escaped(word: u64) -> u64 {
    let controls = word.wrapping_sub(ONES * 0x20);
    let quotes = (word ^ (ONES * b'"' as u64)).wrapping_sub(ONES);
    let backslashes = (word ^ (ONES * b'\\' as u64)).wrapping_sub(ONES);
    // Bytes from 0x80 on are marked by themselves, and 0x7f by the sum.
    (controls | quotes | backslashes | word.wrapping_add(ONES) | word) & HIGHS
}

/// The first position of a byte, or the length of `bytes`.
#[inline(always)]
pub fn find(bytes: &[u8], byte: u8) -> usize {
    let mut at = 0;
    while let Some(word) = bytes.get(at..).and_then(<[u8]>::first_chunk::<8>) {
        // The lowest mark is at the first byte that is zero here.
        let others = u64::from_le_bytes(*word) ^ (ONES * byte as u64);
        let marks = others.wrapping_sub(ONES) & !others & HIGHS;
        if marks != 0 {
            return at + (marks.trailing_zeros() / 8) as usize;
        }
        at += 8;
    }
    let rest = &bytes[at..];
    at + rest.iter().position(|&other| other == byte).unwrap_or(rest.len())
}

/// Returns whether a value is `uri-host [ ":" port ]` (RFC 9110 §4.2, RFC 3986 §3.2), or nothing. User information is not
/// allowed (RFC 9113 §8.3.1).
#[inline(always)]
pub fn is_authority(value: &[u8]) -> bool {
    let host_end = match value.first() {
        Some(b'[') => match value.iter().position(|&byte| byte == b']') {
            Some(end) if is_ip_literal(&value[1..end]) => end + 1,
            _ => return false,
        },
        _ => skip(value, 0, HOST),
    };
    match &value[host_end..] {
        [] => true,
        // Five digits hold every port. Numbers from 65,536 are let through, because the port is not
        // used here.
        [b':', port @ ..] => port.len() <= 5 && port.iter().all(u8::is_ascii_digit),
        _ => false,
    }
}

/// Returns whether `inside` may stand between the brackets of an IPv6 address or of a future address format. It
/// looks at the characters only.
#[cold]
fn is_ip_literal(inside: &[u8]) -> bool {
    !inside.is_empty() && inside.iter().all(|&byte| is(byte, HOST) || byte == b':')
}

/// A word of eight bytes, each of which is 1, and one of those that have their high bit only.
const ONES: u64 = 0x0101_0101_0101_0101;
const HIGHS: u64 = 0x8080_8080_8080_8080;

/// `value` without the optional whitespace (SP, HTAB) at both ends.
#[inline]
pub fn trim(mut value: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] = value {
        value = rest;
    }
    while let [rest @ .., b' ' | b'\t'] = value {
        value = rest;
    }
    value
}

/// The elements of a comma-separated list (RFC 9110 §5.6.1), trimmed, without the empty ones.
///
/// It does not know quoted strings; use it only where elements are tokens with simple parameters.
#[inline]
pub fn list(value: &[u8]) -> impl Iterator<Item = &[u8]> + Clone {
    value.split(|&byte| byte == b',').map(trim).filter(|element| !element.is_empty())
}

/// A number of decimal digits only; `None` for any other byte, for no digits, and for more than a
/// `u64` holds.
#[inline]
pub fn decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |value, &byte| {
        let digit = digit(byte)?;
        value.checked_mul(10)?.checked_add(u64::from(digit))
    })
}

/// The value of an ASCII decimal digit.
#[inline]
pub fn digit(byte: u8) -> Option<u8> {
    byte.is_ascii_digit().then(|| byte - b'0')
}

/// The value of an ASCII hexadecimal digit of either case.
#[inline]
pub fn hex_digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        b'A'..=b'F' => Some(byte - b'A' + 10),
        _ => None,
    }
}

/// The numbers up to 99 as two digits: a division for each pair of digits is enough.
const PAIRS: [[u8; 2]; 100] = {
    let mut pairs = [[0; 2]; 100];
    let mut number = 0u8;
    while number < 100 {
        pairs[number as usize] = [b'0' + number / 10, b'0' + number % 10];
        number += 1;
    }
    pairs
};

/// Appends `number` in decimal.
#[inline]
pub fn push_decimal(out: &mut Vec<u8>, mut number: u64) {
    // u64::MAX has 20 digits, which are ten pairs.
    let mut digits = [[0u8; 2]; 10];
    let mut at = digits.len();
    while let Some(before) = at.checked_sub(1) {
        at = before;
        digits[at] = PAIRS[(number % 100) as usize];
        number /= 100;
        if number == 0 {
            break;
        }
    }
    let digits = digits[at..].as_flattened();
    // The first pair may be one digit.
    out.extend_from_slice(digits.strip_prefix(b"0").unwrap_or(digits));
}

/// Appends a field value. A value with a line end in it could add lines, even a whole response (RFC
/// 9112 §11.1), so control characters other than HTAB are left out.
///
/// # Panics
///
/// In debug builds, if there are such control characters.
#[inline]
pub fn push_value(out: &mut Vec<u8>, value: &[u8]) {
    let is_clean = skip_value(value, 0) == value.len();
    debug_assert!(is_clean, "field value {}", value.escape_ascii());
    if is_clean {
        out.extend_from_slice(value);
    } else {
        push_without_controls(out, value);
    }
}

#[cold]
fn push_without_controls(out: &mut Vec<u8>, value: &[u8]) {
    out.extend(value.iter().copied().filter(|&byte| is(byte, VALUE)));
}

/// The number of bytes that [`push_decimal`] appends.
pub fn decimal_len(number: u64) -> u64 {
    1 + u64::from(number.checked_ilog10().unwrap_or(0))
}

/// A quality value `0`..`1` with up to three decimals (RFC 9110 §12.4.2) in thousandths; `None` if
/// malformed.
pub fn quality(value: &[u8]) -> Option<u16> {
    let (whole, decimals) = match value {
        [whole @ (b'0' | b'1')] => (whole, &[][..]),
        [whole @ (b'0' | b'1'), b'.', decimals @ ..] if decimals.len() <= 3 => (whole, decimals),
        _ => return None,
    };
    let mut thousandths = u16::from(whole - b'0');
    for place in 0..3 {
        let digit = decimals.get(place).map_or(Some(0), |&byte| digit(byte))?;
        thousandths = thousandths * 10 + u16::from(digit);
    }
    (thousandths <= 1000).then_some(thousandths)
}

/// Splits a list element `name *( ";" parameter )` into its name and its quality in thousandths,
/// 1000 if none is given.
///
/// `None` if the quality is malformed; parameters other than `q` are skipped.
pub fn weighted(element: &[u8]) -> Option<(&[u8], u16)> {
    let mut parts = element.split(|&byte| byte == b';');
    let name = trim(parts.next().unwrap_or_default());
    let mut weight = 1000;
    for parameter in parts {
        if let [b'q' | b'Q', b'=', value @ ..] = trim(parameter) {
            weight = quality(value)?;
        }
    }
    Some((name, weight))
}

const fn classes() -> [u8; 256] {
    let mut table = [0; 256];
    let mut byte = 0u8;
    loop {
        table[byte as usize] = class_of(byte);
        if byte == u8::MAX {
            return table;
        }
        byte += 1;
    }
}

const fn class_of(byte: u8) -> u8 {
    let visible = matches!(byte, 0x21..=0x7e);
    let obs_text = byte >= 0x80;
    let alphanumeric = byte.is_ascii_alphanumeric();
    let unreserved = alphanumeric || matches!(byte, b'-' | b'.' | b'_' | b'~');
    let sub_delim =
        matches!(byte, b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'*' | b'+' | b',' | b';' | b'=');
    let tchar = alphanumeric
        || matches!(
            byte,
            b'!' | b'#'
                | b'$'
                | b'%'
                | b'&'
                | b'\''
                | b'*'
                | b'+'
                | b'-'
                | b'.'
                | b'^'
                | b'_'
                | b'`'
                | b'|'
                | b'~'
        );

    let mut class = 0;
    if tchar {
        class |= TOKEN;
    }
    if visible && byte != b'?' && byte != b'#' {
        class |= PATH;
    }
    if visible && byte != b'#' {
        class |= QUERY;
    }
    if unreserved || sub_delim || byte == b'%' {
        class |= HOST;
    }
    if byte.is_ascii_hexdigit() {
        class |= HEX;
    }
    if (visible && byte != b'"') || obs_text {
        class |= ETAG;
    }
    if visible || obs_text || byte == b' ' || byte == b'\t' {
        class |= VALUE;
    }
    // `&` and `'` are sub-delims but end attributes and entities in HTML, where listings put these
    // paths; `:` would make a scheme of the first segment of a relative reference.
    if (unreserved || sub_delim || byte == b'@' || byte == b'/') && byte != b'&' && byte != b'\'' {
        class |= PLAIN;
    }
    class
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;
    use proptest::prelude::*;

    #[test]
    fn quality_values_follow_their_grammar() {
        for (text, expected) in [
            ("0", Some(0)),
            ("1", Some(1000)),
            ("0.", Some(0)),
            ("0.5", Some(500)),
            ("0.001", Some(1)),
            ("1.000", Some(1000)),
            ("1.001", None),
            ("0.0001", None),
            ("2", None),
            (".5", None),
            ("", None),
            ("0,5", None),
            ("0.x", None),
            ("-0", None),
        ] {
            assert_eq!(quality(text.as_bytes()), expected, "{text}");
        }
    }

    #[test]
    fn decimal_rejects_what_a_u64_cannot_hold() {
        assert_eq!(decimal(b"18446744073709551615"), Some(u64::MAX));
        assert_eq!(decimal(b"18446744073709551616"), None);
        assert_eq!(decimal(b""), None);
        assert_eq!(decimal(b"+1"), None);
        assert_eq!(decimal(b" 1"), None);
    }

    #[test]
    fn bytes_are_escaped_wherever_they_stand() {
        for len in 0..20 {
            for at in 0..len {
                for byte in 0..=u8::MAX {
                    let mut text = vec![b'~'; len];
                    text[at] = byte;
                    let is_escaped = !matches!(byte, b' '..=b'~') || matches!(byte, b'"' | b'\\');
                    let expected = if is_escaped { at } else { len };
                    assert_eq!(skip_unescaped(&text, 0), expected, "{}", text.escape_ascii());
                }
            }
        }
        assert_eq!(skip_unescaped(b"\"abc\"", 1), 4);
    }

    proptest! {
        #[test]
        fn skipping_by_words_is_skipping_by_bytes(
            bytes in proptest::collection::vec(
                prop_oneof![Just(b'\t'), Just(0x7e), Just(0x7f), Just(b'a'), Just(0x80), Just(0xff), any::<u8>()],
                0..40),
            at in 0usize..40,
        ) {
            let at = at.min(bytes.len());
            prop_assert_eq!(skip_value(&bytes, at), skip(&bytes, at, VALUE));
        }

        #[test]
        fn finding_by_words_is_finding_by_bytes(
            bytes in proptest::collection::vec(
                prop_oneof![Just(b':'), Just(b';'), Just(0xba), Just(0xff), any::<u8>()], 0..40),
        ) {
            for byte in [b':', 0, 0xff] {
                let first = bytes.iter().position(|&other| other == byte);
                prop_assert_eq!(find(&bytes, byte), first.unwrap_or(bytes.len()));
            }
        }

        #[test]
        fn skipping_is_looking_for_the_first_byte_of_another_class(
            bytes in "[a-zA-Z0-9.-]{0,20}[!-~]{0,3}[a-z]{0,9}(\\PC|[ -~]){0,20}",
            at in 0usize..20,
        ) {
            let (bytes, at) = (bytes.as_bytes(), at.min(bytes.len()));
            for class in [TOKEN, PATH, QUERY, HOST, HEX, ETAG, VALUE, PLAIN] {
                let first = bytes[at..].iter().position(|&byte| !is(byte, class));
                prop_assert_eq!(skip(bytes, at, class), first.map_or(bytes.len(), |n| at + n));
            }
        }

        #[test]
        fn rfc9112_11_1_what_is_left_of_a_value_is_a_value(value: Vec<u8>) {
            let mut out = Vec::new();
            push_without_controls(&mut out, &value);
            prop_assert!(out.iter().all(|&byte| byte == b'\t' || (byte >= b' ' && byte != 0x7f)));
            if out.len() == value.len() {
                prop_assert_eq!(out, value);
            }
        }

        #[test]
        fn decimal_reads_what_push_decimal_writes(number: u64, bits in 0u32..=64) {
            let number = number.checked_shr(64 - bits).unwrap_or_default();
            let mut out = Vec::new();
            push_decimal(&mut out, number);
            prop_assert_eq!(&out, &std::format!("{number}").into_bytes());
            prop_assert_eq!(decimal(&out), Some(number));
            prop_assert_eq!(decimal_len(number), out.len() as u64);
        }
    }
}
