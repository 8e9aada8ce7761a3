//! The fields that frame a message, of requests and of responses: the length of its body, and whether
//! another message may follow it.
//!
//! Reading list: RFC 9112 §6, §9.3.

use http::{Reject, Status, Version, bytes};

/// The value of a `Content-Length` field, of which `is_first` is the first line.
///
/// Refused, because two readers may understand different lengths from it (RFC 9112 §6.3 items 3 to 5): a second
/// line, even with the same value, and anything but a number.
pub(crate) fn content_length(is_first: bool, value: &[u8]) -> Result<u64, Reject> {
    if !is_first {
        return Err(Reject::bad("two Content-Length fields"));
    }
    bytes::decimal(value).ok_or(Reject::bad("an invalid Content-Length"))
}

/// Checks the lines of a `Transfer-Encoding` field, which has at least one.
///
/// The only coding may be `chunked`, once (RFC 9112 §6.1 and §6.3 item 4). HTTP/1.0 has no codings, and a
/// message with a `Content-Length` too has two lengths (§6.3 item 3).
pub(crate) fn check_transfer_encoding<'a>(
    version: Version,
    has_length: bool,
    lines: impl Iterator<Item = &'a [u8]>,
) -> Result<(), Reject> {
    if version == Version::Http10 {
        return Err(Reject::bad("Transfer-Encoding in HTTP/1.0"));
    }
    if has_length {
        return Err(Reject::bad("both Transfer-Encoding and Content-Length"));
    }
    let mut unknown = false;
    let mut chunked = false;
    for coding in lines.flat_map(bytes::list) {
        if chunked {
            return Err(Reject::bad("chunked is not the last transfer coding, or not the only"));
        }
        if coding.eq_ignore_ascii_case(b"chunked") {
            chunked = true;
        } else {
            unknown = true;
        }
    }
    if !chunked {
        // Not 501 even if the coding is unknown: the end of the body cannot be found (§6.3).
        return Err(Reject::bad("a Transfer-Encoding that does not end in chunked"));
    }
    if unknown {
        return Err(Reject::new(Status::NotImplemented, "an unknown transfer coding"));
    }
    Ok(())
}

/// The body that the fields of a response announce.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Announced {
    /// The length, if a field has one and the body is not in chunks.
    pub(crate) length: Option<u64>,
    /// True if the body is in chunks.
    pub(crate) is_chunked: bool,
    /// True if the length is given in a way that servers seldom use.
    pub(crate) is_odd: bool,
}

impl Announced {
    /// Reads the lines of `Content-Length` and of `Transfer-Encoding`.
    ///
    /// A length may come several times if it is the same (RFC 9112 §6.3 item 5). A field without a value has no
    /// meaning, and `identity` is no coding (RFC 2616 §3.6). A line of `Transfer-Encoding` that repeats the first line
    /// says nothing more: no body is in chunks twice (RFC 9112 §6.1), and some applications copy the field.
    pub(crate) fn of<'a>(
        version: Version,
        lengths: impl Iterator<Item = &'a [u8]> + Clone,
        codings: impl Iterator<Item = &'a [u8]> + Clone,
    ) -> Result<Self, Reject> {
        let mut announced = Self::default();
        let mut lines = lengths.clone();
        match (lines.next(), lines.next()) {
            (None, _) => {}
            (Some(line), None) if bytes::decimal(line).is_some() => {
                announced.length = bytes::decimal(line);
            }
            _ => {
                announced.is_odd = true;
                for length in lengths.flat_map(bytes::list) {
                    let length = content_length(true, length)?;
                    if announced.length.is_some_and(|other| other != length) {
                        return Err(Reject::bad("two Content-Length fields that differ"));
                    }
                    announced.length = Some(length);
                }
            }
        }
        let Some(first) = codings.clone().next() else { return Ok(announced) };
        let is_coding = |coding: &&[u8]| !coding.eq_ignore_ascii_case(b"identity");
        let is_new = |line: &&[u8]| !line.eq_ignore_ascii_case(first);
        announced.is_odd |= codings.clone().nth(1).is_some();
        let codings = codings.clone().take(1).chain(codings.skip(1).filter(is_new));
        let named = codings.flat_map(bytes::list);
        let real = named.clone().filter(is_coding);
        announced.is_odd |= named.count() != 1 || real.clone().next().is_none();
        if real.clone().next().is_some() {
            check_transfer_encoding(version, announced.length.is_some(), real)?;
            announced.is_chunked = true;
        }
        Ok(announced)
    }

    /// Returns whether the fields announce content.
    pub(crate) fn has_body(&self) -> bool {
        self.is_chunked || self.length.is_some_and(|length| length > 0)
    }
}

/// Returns whether a message of this version with these lines of `Connection` lets the connection
/// persist (RFC 9112 §9.3).
pub(crate) fn keeps_alive<'a>(version: Version, lines: impl Iterator<Item = &'a [u8]>) -> bool {
    let mut keep_alive = version == Version::Http11;
    for option in lines.flat_map(bytes::list) {
        if option.eq_ignore_ascii_case(b"close") {
            return false;
        }
        keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
    }
    keep_alive
}
