//! Arbitrary bytes as a chunked body, against a decoder that is as plain as can be and sees all
//! bytes at once.

#![no_main]

use http1::Limits;
use http1::server::{Connection, Event};
use libfuzzer_sys::fuzz_target;

const HEAD: &[u8] = b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n";
const LIMITS: Limits = Limits {
    body_bytes_max: 256,
    chunk_line_bytes_max: 24,
    trailer_bytes_max: 48,
    ..Limits::DEFAULT
};

#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    /// The body ends behind so many bytes.
    Complete(usize),
    /// It may still become one.
    Partial,
    Rejected,
}

fuzz_target!(|input: (usize, &[u8])| {
    let (piece, body) = input;
    let expected = decode(body);
    assert_eq!(skip_in_pieces(body, body.len().max(1)), expected);
    assert_eq!(skip_in_pieces(body, piece % 16 + 1), expected);
});

/// What the connection makes of the body when it arrives in pieces of `piece` bytes.
fn skip_in_pieces(body: &[u8], piece: usize) -> Verdict {
    let mut connection = Connection::new();
    let (len, event) = connection.handle_input(HEAD, &LIMITS);
    assert!(len == HEAD.len() && matches!(event, Event::Request(_)));

    let (mut consumed, mut arrived) = (0, 0);
    loop {
        let (len, event) = connection.handle_input(&body[consumed..arrived], &LIMITS);
        consumed += len;
        assert!(consumed <= arrived);
        match event {
            Event::Partial if arrived == body.len() => return Verdict::Partial,
            Event::Partial => arrived = body.len().min(arrived + piece),
            Event::BodyEnd => return Verdict::Complete(consumed),
            Event::Rejected(_) => {
                assert!(connection.is_closed());
                return Verdict::Rejected;
            }
            other => panic!("{other:?} within a body"),
        }
    }
}

fn decode(body: &[u8]) -> Verdict {
    let mut at = 0;
    let mut on_wire = 0u64;
    loop {
        let line = match line(&body[at..], LIMITS.chunk_line_bytes_max) {
            Ok(line) => line,
            // A partial line must at least be the beginning of a good one.
            Err(Verdict::Partial) if !may_become_size_line(&body[at..]) => {
                return Verdict::Rejected;
            }
            Err(verdict) => return verdict,
        };
        let Some(size) = size_of_line(line) else {
            return Verdict::Rejected;
        };
        at += line.len() + 2;
        if size == 0 {
            return trailers(body, at);
        }
        on_wire = match on_wire.checked_add(line.len() as u64 + 4).and_then(|n| n.checked_add(size))
        {
            Some(sum) if sum <= LIMITS.body_bytes_max => sum,
            _ => return Verdict::Rejected,
        };
        at += usize::try_from(size).expect("at most body_bytes_max");
        match body.get(at..).unwrap_or_default() {
            [] | [b'\r'] => return Verdict::Partial,
            [b'\r', b'\n', ..] => at += 2,
            _ => return Verdict::Rejected,
        }
    }
}

fn trailers(body: &[u8], start: usize) -> Verdict {
    let mut at = start;
    loop {
        let left = LIMITS.trailer_bytes_max - (at - start);
        let line = match line(&body[at..], left) {
            Ok(line) => line,
            Err(Verdict::Partial) if !may_become_field_line(&body[at..]) => {
                return Verdict::Rejected;
            }
            Err(verdict) => return verdict,
        };
        at += line.len() + 2;
        if line.is_empty() {
            return Verdict::Complete(at);
        }
        if !is_field_line(line) {
            return Verdict::Rejected;
        }
    }
}

/// The line at the start of `rest`, without its CRLF, all within `bytes_max`.
fn line(rest: &[u8], bytes_max: usize) -> Result<&[u8], Verdict> {
    let view = &rest[..rest.len().min(bytes_max)];
    match view.iter().position(|&byte| byte == b'\r') {
        Some(end) if end + 1 < view.len() => {
            if view[end + 1] == b'\n' {
                Ok(&view[..end])
            } else {
                Err(Verdict::Rejected)
            }
        }
        _ if view.len() == bytes_max => Err(Verdict::Rejected),
        _ => Err(Verdict::Partial),
    }
}

fn is_value(bytes: &[u8]) -> bool {
    bytes.iter().all(|&byte| byte == b'\t' || (byte >= b' ' && byte != 0x7f))
}

fn size_of_line(line: &[u8]) -> Option<u64> {
    let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    let rest = &line[digits..];
    let extension = rest.trim_ascii_start();
    if digits > 16 || !(rest.is_empty() || extension.starts_with(b";")) || !is_value(rest) {
        return None;
    }
    u64::from_str_radix(str::from_utf8(&line[..digits]).ok()?, 16).ok()
}

fn may_become_size_line(rest: &[u8]) -> bool {
    let start = rest.strip_suffix(b"\r").unwrap_or(rest);
    let ended = start.len() < rest.len();
    let digits = start.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    let rest = &start[digits..];
    let spaces = rest.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
    let extension = &rest[spaces..];
    if digits > 16 || (digits == 0 && (ended || !rest.is_empty())) || !is_value(rest) {
        return false;
    }
    extension.starts_with(b";") || (extension.is_empty() && !(ended && spaces > 0))
}

fn is_name(bytes: &[u8]) -> bool {
    bytes.iter().all(|&byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}

fn is_field_line(line: &[u8]) -> bool {
    let Some(colon) = line.iter().position(|&byte| byte == b':') else {
        return false;
    };
    colon > 0 && is_name(&line[..colon]) && is_value(&line[colon + 1..])
}

fn may_become_field_line(rest: &[u8]) -> bool {
    let start = rest.strip_suffix(b"\r").unwrap_or(rest);
    let ended = start.len() < rest.len();
    is_field_line(start) || (is_name(start) && (start.is_empty() || !ended))
}
