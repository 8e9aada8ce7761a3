//! The heads of responses as header blocks.
//!
//! Reading list: RFC 9113 §8.2.2 (no fields of a connection), §8.3.2 (`:status`), §8.1 (interim responses).
//!
//! Names are written in lower case. Fields of an HTTP/1 connection, which the head of another server may have, are left
//! out.

use alloc::vec::Vec;

use hpack::{Block, DATE_LEN, Encoder};
use http::{Field, Fields, ResponseHead, Status, bytes, date};

const _: () = assert!(DATE_LEN == date::DATE_LEN);

/// Appends the header block of a response. `now` is the time of sending, for a response that has no date of its own.
pub(crate) fn push_block(
    head: &ResponseHead<'_>,
    now: &[u8; DATE_LEN],
    encoder: &mut Encoder,
    out: &mut Vec<u8>,
) {
    encoder.begin(out);
    fields(head, |name, value| match value {
        Value::Date(own) => encoder.field(name, &own.unwrap_or(*now), out),
        Value::Bytes(value) => encoder.field(name, value, out),
    });
}

/// The header block of a response that is sent often, for all connections. Its date can be changed with
/// [`Block::set_date`], unless the response has a date of its own.
///
/// ```
/// use http::{ResponseHead, Status, date};
///
/// let head = ResponseHead { content_length: Some(5), ..ResponseHead::new(Status::Ok) };
/// let mut block = http2::prepare(&head, &date::format(784_111_777));
/// block.set_date(&date::format(784_111_778));
/// ```
#[must_use]
pub fn prepare(head: &ResponseHead<'_>, now: &[u8; DATE_LEN]) -> Block {
    let mut block = Block::new();
    fields(head, |name, value| match value {
        Value::Date(None) => block.push_date(now),
        Value::Date(Some(own)) => block.push(name, &own),
        Value::Bytes(value) => block.push(name, value),
    });
    block.shrink();
    block
}

/// Appends the header block of an interim response.
pub(crate) fn push_interim(
    status: Status,
    fields: Fields<'_>,
    encoder: &mut Encoder,
    out: &mut Vec<u8>,
) {
    encoder.begin(out);
    encoder.field(b":status", &digits(status), out);
    push_lines(fields, |name, value| encoder.field(name, value, out));
}

/// Appends the header block of trailers.
pub(crate) fn push_trailers(fields: Fields<'_>, encoder: &mut Encoder, out: &mut Vec<u8>) {
    encoder.begin(out);
    push_lines(fields, |name, value| encoder.field(name, value, out));
}

/// Appends more fields to a block that was begun.
pub(crate) fn push_more(fields: Fields<'_>, encoder: &mut Encoder, out: &mut Vec<u8>) {
    push_lines(fields, |name, value| encoder.field(name, value, out));
}

/// The value of a field of a response.
enum Value<'a> {
    /// The date of the response, or that of sending.
    Date(Option<[u8; DATE_LEN]>),
    Bytes(&'a [u8]),
}

/// Passes on the fields of a head, in the order of HTTP/1.
fn fields(head: &ResponseHead<'_>, mut add: impl FnMut(&[u8], Value<'_>)) {
    add(b":status", Value::Bytes(&digits(head.status)));
    add(b"date", Value::Date(head.date.map(date::format)));
    let mut value = Vec::new();
    let mut add_bytes = |name: &[u8], value: &[u8]| add(name, Value::Bytes(value));
    if let Some(server) = &head.server {
        add_bytes(b"server", server.as_bytes());
    }
    if let Some(content_type) = &head.content_type {
        add_bytes(b"content-type", content_type);
    }
    if let Some(length) = head.content_length
        && (!head.status.is_bodiless() || head.status == Status::NotModified)
    {
        bytes::push_decimal(&mut value, length);
        add_bytes(b"content-length", &value);
    }
    if let Some(content_range) = &head.content_range {
        value.clear();
        content_range.write_to(&mut value);
        add_bytes(b"content-range", &value);
    }
    if let Some(encoding) = &head.content_encoding {
        add_bytes(b"content-encoding", encoding);
    }
    if let Some(time) = head.last_modified {
        add_bytes(b"last-modified", &date::format(time));
    }
    for (name, value) in
        [(&b"etag"[..], &head.etag), (b"cache-control", &head.cache_control), (b"vary", &head.vary)]
    {
        if let Some(value) = value {
            add_bytes(name, value);
        }
    }
    if head.accept_ranges {
        add_bytes(b"accept-ranges", b"bytes");
    }
    for (name, value) in [(&b"location"[..], &head.location), (b"allow", &head.allow)] {
        if let Some(value) = value {
            add_bytes(name, value);
        }
    }
    if head.nosniff {
        add_bytes(b"x-content-type-options", b"nosniff");
    }
    push_lines(head.extra.fields(), add_bytes);
}

/// Passes on field lines, without those of a connection.
fn push_lines(lines: Fields<'_>, mut add: impl FnMut(&[u8], &[u8])) {
    let is_connection = |name: &[u8]| {
        matches!(Field::of_name(name), Some(Field::Connection | Field::TransferEncoding))
            || [&b"keep-alive"[..], b"proxy-connection", b"upgrade"]
                .iter()
                .any(|other| name.eq_ignore_ascii_case(other))
    };
    for (name, value) in lines.filter(|(name, _)| !is_connection(name)) {
        add(name, value);
    }
}

/// The three digits of a status.
fn digits(status: Status) -> [u8; 3] {
    let code = status.code();
    [100, 10, 1].map(|place| b'0' + u8::try_from(code / place % 10).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::String;
    use hpack::{Decoder, Limits};
    use http::{ContentRange, FieldSection, Range};

    fn text(block: &[u8]) -> String {
        let mut text = Vec::new();
        Decoder::new().decode(block, &Limits::DEFAULT, &mut text, |_, _| ()).unwrap();
        String::from_utf8(text).unwrap().replace("\r\n", "|")
    }

    fn full() -> ResponseHead<'static> {
        let mut extra = FieldSection::EMPTY;
        for (name, value) in [
            (&b"X-Frame-Options"[..], &b"DENY"[..]),
            (b"Connection", b"close"),
            (b"Keep-Alive", b"1"),
            (b"upgrade", b"x"),
            (b"Transfer-Encoding", b"chunked"),
            (b"Proxy-Connection", b"close"),
        ] {
            extra.push(name, value);
        }
        ResponseHead {
            server: Some("samum".into()),
            content_type: Some(b"text/plain".into()),
            content_length: Some(10),
            content_range: Some(ContentRange::Part {
                range: Range { start: 0, end: 10 },
                size: 20,
            }),
            content_encoding: Some(b"br".into()),
            last_modified: Some(0),
            etag: Some(b"\"1\"".into()),
            cache_control: Some(b"no-cache".into()),
            vary: Some(b"Accept".into()),
            accept_ranges: true,
            location: Some(b"/x".into()),
            allow: Some(b"GET".into()),
            nosniff: true,
            extra,
            ..ResponseHead::new(Status::PartialContent)
        }
    }

    #[test]
    fn all_fields_are_written_and_prepared_alike() {
        let now = date::format(784_111_777);
        let (mut encoder, mut block) = (Encoder::new(), Vec::new());
        push_block(&full(), &now, &mut encoder, &mut block);
        let expected = ":status: 206|date: Sun, 06 Nov 1994 08:49:37 GMT|server: samum|\
            content-type: text/plain|content-length: 10|content-range: bytes 0-9/20|\
            content-encoding: br|last-modified: Thu, 01 Jan 1970 00:00:00 GMT|etag: \"1\"|\
            cache-control: no-cache|vary: Accept|accept-ranges: bytes|location: /x|allow: GET|\
            x-content-type-options: nosniff|x-frame-options: DENY|";
        assert_eq!(text(&block), expected);
        let mut prepared = prepare(&full(), &now);
        assert_eq!(text(prepared.as_bytes()), expected);
        prepared.set_date(&date::format(784_111_778));
        assert_eq!(text(prepared.as_bytes()), expected.replace("08:49:37", "08:49:38"));
    }

    #[test]
    fn a_date_of_its_own_stays() {
        let head = ResponseHead { date: Some(0), ..ResponseHead::new(Status::NoContent) };
        let mut prepared =
            prepare(&ResponseHead { content_length: Some(0), ..head }, &date::format(1));
        prepared.set_date(&date::format(2));
        let expected = ":status: 204|date: Thu, 01 Jan 1970 00:00:00 GMT|";
        assert_eq!(text(prepared.as_bytes()), expected);
    }
}
