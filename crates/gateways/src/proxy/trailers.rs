//! The trailer fields of bodies in chunks that pass between clients and upstreams.
//!
//! Reading list: RFC 9110 §6.5.

use http::{ConnectionOptions, FieldSection};

use crate::names::is_plain;
use config::RequestHeader;

/// The trailers of a request that are passed on. `own` are the fields that the route sets in the head of the request: a
/// client's trailer cannot replace them.
pub(super) fn passed_on(fields: &FieldSection<'_>, own: &[RequestHeader]) -> FieldSection<'static> {
    let mut section = FieldSection::EMPTY;
    let is_own = |name: &[u8]| own.iter().any(|field| field.is_named(name));
    let passed = fields.fields().filter(|(name, _)| passes(name) && !is_own(name));
    passed.for_each(|(name, value)| section.push_checked(name, value));
    section
}

/// Returns true if a field may be passed on in a trailer section. Such a field frames no message, routes and modifies
/// no request, and authenticates nothing. It says nothing about the content that had to be known before (RFC 9110
/// §6.5.1). Some programs merge trailers into the head.
pub(super) fn passes(name: &[u8]) -> bool {
    const HEAD_ONLY: [&[u8]; 33] = [
        b"Accept",
        b"Accept-Encoding",
        b"Age",
        b"Authorization",
        b"Cache-Control",
        b"Content-Disposition",
        b"Content-Encoding",
        b"Content-Length",
        b"Content-Location",
        b"Content-Range",
        b"Content-Security-Policy",
        b"Content-Type",
        b"Cookie",
        b"Date",
        b"Expect",
        b"Expires",
        b"Forwarded",
        b"Host",
        b"If-Match",
        b"If-Modified-Since",
        b"If-None-Match",
        b"If-Range",
        b"If-Unmodified-Since",
        b"Location",
        b"Max-Forwards",
        b"Proxy",
        b"Range",
        b"Retry-After",
        b"Set-Cookie",
        b"Strict-Transport-Security",
        b"Vary",
        b"Via",
        b"WWW-Authenticate",
    ];
    const HEAD_ONLY_STARTS: [&[u8]; 5] =
        [b"X-Accel-", b"X-Forwarded-", b"X-Real-IP", b"X-Sendfile", b"Access-Control-"];
    let is = |other: &&[u8]| other.eq_ignore_ascii_case(name);
    let begins = |start: &&[u8]| {
        name.get(..start.len()).is_some_and(|found| found.eq_ignore_ascii_case(start))
    };
    is_plain(name)
        && ConnectionOptions::NONE.is_end_to_end(name)
        && !HEAD_ONLY.iter().any(is)
        && !HEAD_ONLY_STARTS.iter().any(begins)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rfc9110_6_5_1_fields_that_belong_into_a_head_are_dropped() {
        let mut fields = FieldSection::EMPTY;
        let passed = ["Server-Timing", "Digest", "grpc-status", "ETag", "X-Checksum"];
        let dropped = [
            "Transfer-Encoding",
            "content-length",
            "Host",
            "Trailer",
            "TE",
            "Connection",
            "Upgrade",
            "Authorization",
            "Set-Cookie",
            "Cookie",
            "Cache-Control",
            "Content-Type",
            "CONTENT-ENCODING",
            "Content-Range",
            "If-None-Match",
            "X-Accel-Redirect",
            "X-Sendfile",
            "X-Forwarded-For",
            "X_Forwarded_For",
            "Forwarded",
            "Via",
            "Proxy",
            "Access-Control-Allow-Origin",
        ];
        for name in passed.into_iter().chain(dropped) {
            fields.push(name.as_bytes(), b"x");
        }
        let expected = passed.map(|name| format!("{name}: x\r\n")).concat();
        assert_eq!(passed_on(&fields, &[]).as_bytes(), expected.as_bytes());
        // The route has set the field in the head.
        let own = passed.map(|name| RequestHeader::new(name, "y").expect("a field"));
        assert_eq!(passed_on(&fields, &own[1..]).as_bytes(), b"Server-Timing: x\r\n");
    }
}
