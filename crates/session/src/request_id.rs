//! The ids of requests, and the traces of which they are a part.
//!
//! A trusted proxy may give a request its id in `X-Request-Id`. Any other request has an id that is made of its number,
//! the number of its connection and random bits of the worker. So the id is made anew wherever it is needed, and needs
//! no memory before.

use core::fmt;

use http::{Field, Head};

use crate::ticket::Ticket;

/// The field with the id of a request.
pub const REQUEST_ID: &[u8] = b"X-Request-Id";
/// The most bytes of an id that a proxy gives.
const GIVEN_BYTES_MAX: usize = 64;
/// The bytes of an id that is made.
pub const MADE_BYTES: usize = 32;
/// The bytes of a trace of the version 00.
const TRACE_BYTES: usize = 55;

/// The random bits of a worker, of which ids are made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seed(pub [u64; 2]);

/// The id of a request.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct RequestId {
    bytes: [u8; GIVEN_BYTES_MAX],
    len: usize,
}

impl RequestId {
    /// The id of a request. A given one counts if the peer is believed.
    pub fn of(head: &Head<'_>, is_trusted: bool, seed: Seed, ticket: Ticket) -> Self {
        match given(head).filter(|_| is_trusted) {
            Some(given) => Self::copy(given),
            None => Self::copy(&made(seed, ticket)),
        }
    }

    fn copy(given: &[u8]) -> Self {
        let mut bytes = [0; GIVEN_BYTES_MAX];
        bytes[..given.len()].copy_from_slice(given);
        Self { bytes, len: given.len() }
    }

    /// The id: 1 to 64 letters, digits, dots, underscores and hyphens.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// The same as text.
    pub fn as_str(&self) -> &str {
        str::from_utf8(self.as_bytes()).unwrap_or_default()
    }
}

/// Makes the id of a request that was given none.
#[inline]
pub fn made(Seed([first, second]): Seed, ticket: Ticket) -> [u8; MADE_BYTES] {
    let high = mixed(first ^ ticket.connection);
    let low = mixed(second ^ high ^ u64::from(ticket.request));
    let number = (u128::from(high) << 64 | u128::from(low)).to_be_bytes();
    let mut digits = [0; MADE_BYTES];
    for (pair, byte) in digits.chunks_exact_mut(2).zip(number) {
        pair.copy_from_slice(&PAIRS[usize::from(byte)]);
    }
    digits
}

impl fmt::Debug for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The two hexadecimal digits of each byte.
static PAIRS: [[u8; 2]; 256] = {
    let digits = b"0123456789abcdef";
    let mut pairs = [[0; 2]; 256];
    let mut byte = 0;
    while byte < 256 {
        pairs[byte] = [digits[byte >> 4], digits[byte & 15]];
        byte += 1;
    }
    pairs
};

/// The finalizer of SplitMix64 (Steele, Lea, Flood 2014): different numbers give different ones.
const fn mixed(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

/// The id that a request gives, if it gives one that is an id.
pub fn given<'a>(head: &Head<'a>) -> Option<&'a [u8]> {
    let is_of_id = |byte: &u8| byte.is_ascii_alphanumeric() || b"._-".contains(byte);
    let value = head.field(Field::XRequestId)?;
    ((1..=GIVEN_BYTES_MAX).contains(&value.len()) && value.iter().all(is_of_id)).then_some(value)
}

/// The trace of which a request is a part, if it names one (W3C Trace Context).
pub fn trace<'a>(head: &Head<'a>) -> Option<&'a [u8]> {
    let value = head.field(Field::Traceparent)?;
    let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    let is_right = |(at, byte): (usize, &u8)| match at {
        2 | 35 | 52 => *byte == b'-',
        _ => is_digit(byte),
    };
    let is_trace = value.len() == TRACE_BYTES && value.iter().enumerate().all(is_right);
    (is_trace && !value.starts_with(b"ff")).then_some(value)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use http1::Limits;

    use super::*;

    const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn with<T>(fields: &str, act: impl FnOnce(&Head<'_>) -> T) -> T {
        let text = format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
        let parsed = http1::parse(text.as_bytes(), &Limits::DEFAULT);
        act(&parsed.expect("a request").expect("whole").0.head)
    }

    fn id(fields: &str, is_trusted: bool) -> String {
        let ticket = Ticket { connection: 7, request: 1 };
        with(fields, |head| {
            RequestId::of(head, is_trusted, Seed([1, 2]), ticket).as_str().to_owned()
        })
    }

    #[test]
    fn an_id_is_that_of_a_trusted_proxy_or_made() {
        let made = id("", true);
        assert!(made.len() == 32 && made.bytes().all(|byte| byte.is_ascii_hexdigit()), "{made}");
        assert_eq!(id("X-Request-Id: a.B_c-9\r\n", true), "a.B_c-9");
        assert_eq!(id(&format!("x-request-id: {}\r\n", "x".repeat(64)), true), "x".repeat(64));
        for fields in [
            "X-Request-Id: a b\r\n",
            "X-Request-Id: <script>\r\n",
            "X-Request-Id: a\"b\r\n",
            "X-Request-Id: \u{e4}\r\n",
            "X-Request-Id:\r\n",
            "X-Request-Id: a\r\nX-Request-Id: b\r\n",
            &format!("X-Request-Id: {}\r\n", "x".repeat(65)),
        ] {
            assert_eq!(id(fields, true), made, "{fields:?}");
        }
        assert_eq!(id("X-Request-Id: a.B_c-9\r\n", false), made);
    }

    #[test]
    fn no_two_requests_of_a_worker_have_the_same_id() {
        let of = |connection, request| made(Seed([3, 4]), Ticket { connection, request });
        let all =
            (0..100).flat_map(|connection| (0..100).map(move |request| of(connection, request)));
        assert_eq!(all.collect::<HashSet<_>>().len(), 10_000);
    }

    #[test]
    fn a_trace_has_its_form() {
        let of = |value: &str| {
            with(&format!("traceparent: {value}\r\n"), |head| trace(head).map(<[u8]>::len))
        };
        assert_eq!(of(TRACE), Some(55));
        for wrong in [
            "",
            "x",
            &TRACE.to_uppercase(),
            &TRACE.replace("00-", "ff-"),
            &TRACE.replace("-01", "_01"),
            &format!("{TRACE}-x"),
        ] {
            assert_eq!(of(wrong), None, "{wrong}");
        }
    }
}
