//! Heads as they are written, and values that contain more than a value.

use alloc::string::String;

use http::{ContentRange, FieldSection, Range};

use super::*;

const DATE: &[u8; DATE_LEN] = b"Sun, 06 Nov 1994 08:49:37 GMT";

fn head(status: Status) -> ResponseHead<'static> {
    ResponseHead::new(status)
}

fn text(head: &ResponseHead<'_>) -> String {
    text_with(head, Wire::default())
}

fn text_with(head: &ResponseHead<'_>, wire: Wire) -> String {
    let mut out = Vec::new();
    response_head(head, DATE, wire, &mut out);
    String::from_utf8(out).expect("ASCII")
}

#[test]
fn every_field_is_written() {
    let mut extra = FieldSection::EMPTY;
    extra.push(b"X-A", b"1");
    extra.push(b"X-B", b"");
    let full = ResponseHead {
        server: Some("samum".into()),
        content_type: Some(b"text/html".into()),
        content_length: Some(10),
        content_range: Some(ContentRange::Part { range: Range { start: 5, end: 15 }, size: 20 }),
        content_encoding: Some(b"br".into()),
        last_modified: Some(784_111_000),
        etag: Some(b"\"x\"".into()),
        cache_control: Some(b"max-age=60".into()),
        vary: Some(b"Accept-Encoding".into()),
        accept_ranges: true,
        location: Some(b"/a/".into()),
        allow: Some(b"GET, HEAD".into()),
        nosniff: true,
        extra,
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
    let wire = Wire { connection: ConnectionOption::Close, chunked: false };
    assert_eq!(text_with(&full, wire), expected);
    assert_eq!(text_with(&full.into_owned(), wire), expected);
}

#[test]
fn keep_alive_is_said_to_http_1_0() {
    let wire = Wire { connection: ConnectionOption::KeepAlive, chunked: false };
    assert!(text_with(&head(Status::Ok), wire).ends_with("\r\nConnection: keep-alive\r\n\r\n"));
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
fn rfc9112_6_1_chunks_take_the_place_of_a_length_where_there_is_content() {
    for &status in Status::ALL {
        let response = ResponseHead { content_length: Some(1), ..head(status) };
        let text = text_with(&response, Wire { chunked: true, ..Wire::default() });
        assert_eq!(
            text.contains("\r\nTransfer-Encoding: chunked\r\n"),
            !status.is_bodiless(),
            "{status}"
        );
        assert!(!text.contains("Content-Length"), "{status}");
    }
}

#[test]
fn the_date_can_be_replaced_in_place() {
    for &status in Status::ALL {
        let mut out = b"another response".to_vec();
        let start = out.len();
        let date_at = start + response_head(&head(status), DATE, Wire::default(), &mut out);
        assert_eq!(&out[date_at..date_at + DATE_LEN], DATE);
        out[date_at..date_at + DATE_LEN].copy_from_slice(&date::format(0));
        let mut expected = Vec::new();
        response_head(&head(status), &date::format(0), Wire::default(), &mut expected);
        assert_eq!(out[start..], expected);
    }
}

#[test]
#[cfg_attr(debug_assertions, should_panic(expected = "field value"))]
fn rfc9112_11_1_a_value_cannot_end_its_line() {
    let response =
        ResponseHead { location: Some(b"/a\r\nSet-Cookie: x".into()), ..head(Status::Found) };
    assert!(text(&response).contains("Location: /aSet-Cookie: x\r\n"));
}

#[test]
fn a_response_of_another_server_keeps_its_date() {
    let text = text(&ResponseHead { date: Some(0), ..head(Status::Ok) });
    assert_eq!(text, "HTTP/1.1 200 OK\r\nDate: Thu, 01 Jan 1970 00:00:00 GMT\r\n\r\n");
}

fn request_text(head: &RequestStart<'_>, connection: ConnectionOption) -> String {
    let mut out = Vec::new();
    request_start(head, &mut out);
    request_end(connection, &mut out);
    String::from_utf8(out).expect("ASCII")
}

fn request(method: Method<'static>) -> RequestStart<'static> {
    let target = Target::Origin { path: b"/a", query: None };
    RequestStart { method, target, host: b"h", framing: Framing::None }
}

#[test]
fn requests_are_written() {
    use ConnectionOption::{Close, Unsaid};
    for (head, connection, expected) in [
        (request(Method::Get), Unsaid, "GET /a HTTP/1.1\r\nHost: h\r\n\r\n"),
        (request(Method::Post), Unsaid, "POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n"),
        (
            RequestStart { framing: Framing::Length(7), ..request(Method::Put) },
            Unsaid,
            "PUT /a HTTP/1.1\r\nHost: h\r\nContent-Length: 7\r\n\r\n",
        ),
        (
            RequestStart { framing: Framing::Unknown, ..request(Method::Post) },
            Close,
            "POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n",
        ),
        (
            RequestStart { target: Target::Asterisk, ..request(Method::Options) },
            Unsaid,
            "OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n",
        ),
        (
            RequestStart { target: Target::Authority, ..request(Method::Connect) },
            Unsaid,
            "CONNECT h HTTP/1.1\r\nHost: h\r\n\r\n",
        ),
    ] {
        assert_eq!(request_text(&head, connection), expected);
    }
}

#[test]
#[cfg_attr(debug_assertions, should_panic(expected = "part of a request"))]
fn rfc9112_11_2_a_target_cannot_end_its_line() {
    let target = Target::Origin { path: b"/a HTTP/1.1\r\nX: y", query: None };
    let start = RequestStart { target, ..request(Method::Get) };
    let text = request_text(&start, ConnectionOption::Unsaid);
    assert!(text.starts_with("GET /aHTTP/1.1X:y HTTP/1.1\r\nHost: h\r\n"));
}

#[test]
fn chunk_sizes_are_hexadecimal_without_leading_zeros() {
    for len in [1, 9, 10, 15, 16, 255, 256, 0xdead_beef, u64::MAX] {
        let mut out = Vec::new();
        chunk_head(len, &mut out);
        assert_eq!(out, alloc::format!("{len:x}\r\n").into_bytes());
    }
}

#[test]
#[should_panic(expected = "an empty chunk ends the body")]
fn an_empty_chunk_is_not_written_by_mistake() {
    chunk_head(0, &mut Vec::new());
}
