//! Heads as they are written, and values that try to be more than values.

use alloc::string::String;

use proptest::prelude::*;

use super::*;
use http::range::Range;

fn head(status: Status) -> ResponseHead<'static> {
    ResponseHead::new(status, date::format(784_111_777))
}

fn text(head: &ResponseHead<'_>) -> String {
    let mut out = Vec::new();
    head.write_to(&mut out);
    String::from_utf8(out).expect("ASCII")
}

#[test]
fn every_field_is_written() {
    let full = ResponseHead {
        server: Some("samum"),
        content_type: Some(b"text/html"),
        content_length: Some(10),
        content_range: Some(ContentRange::Part { range: Range { start: 5, end: 15 }, size: 20 }),
        content_encoding: Some(b"br"),
        last_modified: Some(784_111_000),
        etag: Some(b"\"x\""),
        cache_control: Some(b"max-age=60"),
        vary: Some(b"Accept-Encoding"),
        accept_ranges: true,
        location: Some(b"/a/"),
        allow: Some(b"GET, HEAD"),
        nosniff: true,
        connection: ConnectionOption::Close,
        extra: &[(b"X-A", b"1"), (b"X-B", b"")],
        ..head(Status::PartialContent)
    };
    let expected = "HTTP/1.1 206 Partial Content\r\n\
        Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n\
        Server: samum\r\n\
        Content-Type: text/html\r\n\
        Content-Length: 10\r\n\
        Content-Range: bytes 5-14/20\r\n\
        Content-Encoding: br\r\n\
        Last-Modified: Sun, 06 Nov 1994 08:36:40 GMT\r\n\
        ETag: \"x\"\r\n\
        Cache-Control: max-age=60\r\n\
        Vary: Accept-Encoding\r\n\
        Accept-Ranges: bytes\r\n\
        Location: /a/\r\n\
        Allow: GET, HEAD\r\n\
        X-Content-Type-Options: nosniff\r\n\
        Connection: close\r\n\
        X-A: 1\r\n\
        X-B: \r\n\
        \r\n";
    assert_eq!(text(&full), expected);
}

#[test]
fn keep_alive_is_said_to_http_1_0() {
    let response = ResponseHead { connection: ConnectionOption::KeepAlive, ..head(Status::Ok) };
    assert!(text(&response).ends_with("\r\nConnection: keep-alive\r\n\r\n"));
}

#[test]
fn rfc9110_8_6_content_length_is_left_out_where_it_is_forbidden() {
    for &status in Status::ALL {
        let response = ResponseHead { content_length: Some(0), ..head(status) };
        let forbidden = status.code() < 200 || status == Status::NoContent;
        assert_eq!(text(&response).contains("Content-Length: 0\r\n"), !forbidden, "{status}");
    }
}

#[test]
fn the_date_can_be_replaced_in_place() {
    for &status in Status::ALL {
        let mut out = b"another response".to_vec();
        let start = out.len();
        let date_at = start + head(status).write_to(&mut out);
        assert_eq!(out[date_at..date_at + DATE_LEN], date::format(784_111_777));
        out[date_at..date_at + DATE_LEN].copy_from_slice(&date::format(0));
        let mut expected = Vec::new();
        ResponseHead::new(status, date::format(0)).write_to(&mut expected);
        assert_eq!(out[start..], expected);
    }
}

#[test]
#[cfg_attr(debug_assertions, should_panic(expected = "field value"))]
fn rfc9112_11_1_a_value_cannot_end_its_line() {
    let response = ResponseHead { location: Some(b"/a\r\nSet-Cookie: x"), ..head(Status::Found) };
    assert!(text(&response).contains("Location: /aSet-Cookie: x\r\n"));
}

#[test]
#[cfg_attr(debug_assertions, should_panic(expected = "field name"))]
fn rfc9112_11_1_a_name_cannot_end_its_line() {
    let response = ResponseHead { extra: &[(b"A\r\nB", b"x"), (b"", b"x")], ..head(Status::Ok) };
    assert!(!text(&response).contains('x'));
}

proptest! {
    #[test]
    fn rfc9112_11_1_what_is_left_of_a_value_is_a_value(value: Vec<u8>) {
        let mut out = Vec::new();
        push_without_controls(&mut out, &value);
        prop_assert!(out.iter().all(|&byte| byte == b'\t' || (byte >= b' ' && byte != 0x7f)));
        if out.len() == value.len() {
            prop_assert_eq!(out, value);
        }
    }
}
