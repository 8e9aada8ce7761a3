//! The lines between the pieces of a chunked body.
//!
//! Reading list: RFC 9112 §7.1.
//!
//! As in [`request`](crate::request), the cuts between the received pieces do not change the verdict.
//! The verdict comes as early as possible.

use http::bytes::{self, HEX};
use http::{Reject, Status};

use crate::limits::{Limits, within};
use crate::line::{self, Line};

/// A chunk-size of `u64`, in hexadecimal digits; leading zeros do not count.
const SIZE_DIGITS_MAX: usize = 16;

/// `chunk-size [ chunk-ext ] CRLF`: the size, and the length of the line. `None` if more bytes are
/// needed.
#[inline(always)]
pub(crate) fn size_line(input: &[u8], limits: &Limits) -> Result<Option<(u64, usize)>, Reject> {
    let too_long = Reject::bad("a chunk-size line that is too long");
    within(input, limits.chunk_line_bytes_max, too_long, size_line_view)
}

#[inline(always)]
fn size_line_view(view: &[u8]) -> Result<Option<(u64, usize)>, Reject> {
    let digits_end = bytes::skip(view, 0, HEX);
    let excess = digits_end.saturating_sub(SIZE_DIGITS_MAX);
    if view[..excess].iter().any(|&digit| digit != b'0') {
        return Err(Reject::bad("a chunk-size with too many digits"));
    }
    let size = view[..digits_end]
        .iter()
        .filter_map(|&byte| bytes::hex_digit(byte))
        .fold(0, |size, digit| size << 4 | u64::from(digit));

    let line_end = match view.get(digits_end) {
        None => return Ok(None),
        Some(_) if digits_end == 0 => return Err(Reject::bad("a chunk without a size")),
        Some(b'\r') => digits_end,
        Some(b';' | b' ' | b'\t') => match extensions_end(view, digits_end)? {
            Some(end) => end,
            None => return Ok(None),
        },
        Some(_) => return Err(Reject::bad("a malformed chunk-size")),
    };
    match view.get(line_end + 1) {
        Some(b'\n') => Ok(Some((size, line_end + 2))),
        Some(_) => Err(Reject::bad("a CR without LF in a chunk-size line")),
        None => Ok(None),
    }
}

/// The position of the CR that ends the extensions beginning at `at`. They are not interpreted (RFC
/// 9112 §7.1.1). Whitespace without an extension after it has no meaning: some senders fill up their sizes
/// with it, and nginx, Apache httpd and Caddy accept it, too. Other text after whitespace is refused, because
/// other readers stop there.
fn extensions_end(view: &[u8], mut at: usize) -> Result<Option<usize>, Reject> {
    while let Some(b' ' | b'\t') = view.get(at) {
        at += 1;
    }
    match view.get(at) {
        Some(b';') => {}
        Some(b'\r') => return Ok(Some(at)),
        Some(_) => return Err(Reject::bad("whitespace within a chunk-size")),
        None => return Ok(None),
    }
    let end = bytes::skip_value(view, at);
    match view.get(end) {
        Some(b'\r') => Ok(Some(end)),
        Some(_) => Err(Reject::bad("a control character in a chunk extension")),
        None => Ok(None),
    }
}

/// The length of the CRLF after the data of a chunk. `None` if more bytes are needed.
#[inline]
pub(crate) fn data_end(input: &[u8]) -> Result<Option<usize>, Reject> {
    match input {
        [b'\r', b'\n', ..] => Ok(Some(2)),
        [] | [b'\r'] => Ok(None),
        _ => Err(Reject::bad("a chunk longer than its size")),
    }
}

/// The next line of a trailer section that may have `bytes_left` more bytes. `None` if more bytes are
/// needed. No field that is used here may be a trailer.
pub(crate) fn trailer(input: &[u8], bytes_left: usize) -> Result<Option<Line>, Reject> {
    let too_long = Reject::new(Status::HeaderFieldsTooLarge, "a trailer section that is too long");
    within(input, bytes_left, too_long, |view| line::line(view, 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(line: &str) -> Result<Option<(u64, usize)>, Reject> {
        size_line(line.as_bytes(), &Limits::DEFAULT)
    }

    #[test]
    fn rfc9112_7_1_sizes_are_hexadecimal() {
        assert_eq!(size("0\r\n"), Ok(Some((0, 3))));
        assert_eq!(size("1aF\r\nrest"), Ok(Some((0x1af, 5))));
        assert_eq!(size("ffffffffffffffff\r\n"), Ok(Some((u64::MAX, 18))));
        assert_eq!(size("000000000000000a\r\n"), Ok(Some((10, 18))));
        for line in ["00000000000000000000\r\n", "00000000000000000000a\r\n", "a \r\n", "a\t  \r\n"]
        {
            let number = if line.contains('a') { 10 } else { 0 };
            assert_eq!(size(line), Ok(Some((number, line.len()))), "{line:?}");
        }
    }

    #[test]
    fn rfc9112_7_1_1_extensions_are_passed_over() {
        for line in
            ["5;\r\n", "5;a\r\n", "5;a=b;c=\"d e\"\r\n", "5 ; a = b\r\n", "5\t;a=\u{e4}\r\n"]
        {
            assert_eq!(size(line), Ok(Some((5, line.len()))), "{line:?}");
        }
    }

    #[test]
    fn every_prefix_of_a_size_line_is_partial() {
        let line = "1a \t;name=\"value\"\r\n";
        for end in 0..line.len() {
            assert_eq!(size(&line[..end]), Ok(None), "{:?}", &line[..end]);
        }
    }

    #[test]
    fn malformed_size_lines_are_refused() {
        for line in [
            "\r\n",
            ";a\r\n",
            " 5\r\n",
            "-1\r\n",
            "+1\r\n",
            "0x5\r\n",
            "5\n",
            "5\rx",
            "5 5\r\n",
            "5 x;a\r\n",
            "5 \n",
            "5 \rx",
            "5,5\r\n",
            "5;a\n",
            "5;\0\r\n",
            "5;a\rb\r\n",
            "00000000000000010000000000000000\r\n",
            "10000000000000000\r\n",
            "G",
        ] {
            let status = size(line).map_err(|reject| reject.status);
            assert_eq!(status, Err(Status::BadRequest), "{line:?}");
        }
    }

    #[test]
    fn long_extensions_are_refused_before_their_end() {
        let limits = Limits { chunk_line_bytes_max: 8, ..Limits::DEFAULT };
        assert_eq!(size_line(b"5;abcd\r\n", &limits), Ok(Some((5, 8))));
        assert_eq!(size_line(b"5;abcd\r", &limits), Ok(None));
        assert!(size_line(b"5;abcde\r\n", &limits).is_err());
        assert!(size_line(b"5;abcdef", &limits).is_err());
    }

    #[test]
    fn trailers_are_bounded_together() {
        let field = Line::Field { name_end: 1, value: 3..4, next: 6 };
        assert_eq!(trailer(b"a: b\r\n", 6), Ok(Some(field)));
        assert_eq!(trailer(b"a: b\r", 6), Ok(None));
        assert_eq!(trailer(b"\r\n", 2), Ok(Some(Line::End { next: 2 })));
        assert!(trailer(b"a: b\r\n", 5).is_err());
        assert!(trailer(b"\r\n", 1).is_err());
        assert!(trailer(b"", 0).is_err());
        assert!(trailer(b"a : b\r\n", 100).is_err());
    }
}
