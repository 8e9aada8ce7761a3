//! Parses arbitrary bytes as the head of a request. Checked: the verdict on a prefix is never taken
//! back, and what is accepted keeps what the documentation promises.

#![no_main]

use http::{Field, Framing, Head, Method, Target, Version};
use http1::{Limits, Request, parse, sketch};
use libfuzzer_sys::fuzz_target;

const LIMITS: Limits =
    Limits { head_bytes_max: 512, target_bytes_max: 64, fields_max: 8, ..Limits::DEFAULT };

fuzz_target!(|input: &[u8]| {
    let whole = parse(input, &LIMITS);
    for end in 0..input.len().min(LIMITS.head_bytes_max + 1) {
        let verdict = parse(&input[..end], &LIMITS);
        if verdict != Ok(None) {
            assert_eq!(verdict, whole, "after {end} bytes");
            break;
        }
    }
    let known = sketch(input, &LIMITS);
    if let Some(known) = &known {
        assert!(!known.method.is_empty() && known.target.len() <= LIMITS.target_bytes_max);
        let is_blank = |byte: &u8| matches!(byte, b' ' | b'\r' | b'\n');
        assert!(!known.target.iter().any(is_blank));
    }
    match whole {
        Ok(Some((request, len))) => {
            let known = known.expect("a request has a method");
            assert_eq!(known.method, request.head.method.as_bytes());
            assert!(len <= input.len() && len <= LIMITS.head_bytes_max);
            assert!(input[..len].ends_with(b"\r\n"));
            check_request(&request);
        }
        Ok(None) => assert!(input.len() < LIMITS.head_bytes_max),
        Err(reject) => {
            assert!(reject.status.code() >= 400);
            assert!(!reject.reason.is_empty());
        }
    }
});

fn check_request(request: &Request<'_>) {
    let head = &request.head;
    assert_eq!(head.to_owned().as_head(), *head);
    check_target(head);
    check_fields(head);

    let lengths = head.lines(Field::ContentLength).count();
    assert!(lengths <= 1);
    assert!(lengths == 0 || !head.has(Field::TransferEncoding));
    match head.framing {
        Framing::Tunnel => {
            assert!(head.has(Field::Connection) && !head.has(Field::TransferEncoding));
        }
        Framing::None => assert!(!request.expect_continue && !head.has(Field::TransferEncoding)),
        Framing::Length(length) => assert!(length > 0 && lengths == 1),
        Framing::Unknown => assert!(head.has(Field::TransferEncoding)),
    }
    if head.version == Version::Http10 {
        assert!(!request.expect_continue && !matches!(head.framing, Framing::Unknown | Framing::Tunnel));
        assert!(!request.keep_alive || head.has(Field::Connection));
    } else {
        assert_eq!(head.lines(Field::Host).count(), 1);
        assert!(head.host().is_some());
    }
}

fn check_target(head: &Head<'_>) {
    let visible = |bytes: &[u8]| bytes.iter().all(u8::is_ascii_graphic);
    assert!(!head.method.as_bytes().is_empty() && visible(head.method.as_bytes()));
    match head.target {
        Target::Origin { path, query } => {
            let fits = |bytes: &[u8]| visible(&http::path::escape(bytes));
            assert!(path.starts_with(b"/") && fits(path) && !path.contains(&b'?'));
            assert!(query.is_none_or(fits));
            assert!(path.len() + query.map_or(0, |q| q.len() + 1) <= LIMITS.target_bytes_max);
            assert_ne!(head.method, Method::Connect);
        }
        Target::Asterisk => assert_eq!(head.method, Method::Options),
        Target::Authority => assert_eq!(head.method, Method::Connect),
    }
    if let Some(host) = head.host() {
        assert!(visible(host));
        assert!(!host.iter().any(|byte| b"/@?#\\\"<>".contains(byte)));
    }
}

fn check_fields(head: &Head<'_>) {
    assert!(head.fields().count() <= LIMITS.fields_max);
    for (name, value) in head.fields() {
        assert!(!name.is_empty() && name.iter().all(u8::is_ascii_graphic));
        assert!(!value.iter().any(|&byte| byte != b'\t' && byte.is_ascii_control()));
        assert_eq!(value, value.trim_ascii());
    }
    for &field in Field::ALL {
        let lines: Vec<_> = head.lines(field).collect();
        let found: Vec<_> = head
            .fields()
            .filter(|(name, _)| name.eq_ignore_ascii_case(field.name().as_bytes()))
            .map(|(_, value)| value)
            .collect();
        assert_eq!(lines, found);
        assert_eq!(head.has(field), !lines.is_empty());
        assert_eq!(head.field(field), if lines.len() == 1 { Some(lines[0]) } else { None });
    }
}
