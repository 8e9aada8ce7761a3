//! A decoder of chunked bodies that is as plain as can be, and sees all bytes together.

use http1::Limits;

#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The body ends after this many bytes.
    Complete(usize),
    /// It may still become one.
    Partial,
    Rejected,
}

/// The bytes that `body_bytes_max` is about.
#[derive(Clone, Copy)]
#[allow(dead_code, reason = "each target has one of them")]
pub enum Counted {
    Wire,
    Content,
}

/// Decodes `body`; appends its content as far as it is well-formed, and within `limits`.
pub fn decode(body: &[u8], counted: Counted, limits: &Limits, content: &mut Vec<u8>) -> Verdict {
    let mut at = 0;
    let mut total = 0u64;
    loop {
        let line = match line(&body[at..], limits.chunk_line_bytes_max) {
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
            return trailers(body, at, limits);
        }
        let overhead = match counted {
            Counted::Wire => line.len() as u64 + 4,
            Counted::Content => 0,
        };
        total = match total.checked_add(overhead).and_then(|sum| sum.checked_add(size)) {
            Some(sum) if sum <= limits.body_bytes_max => sum,
            _ => return Verdict::Rejected,
        };
        let data = &body[at..];
        let size = usize::try_from(size).expect("at most body_bytes_max");
        content.extend_from_slice(&data[..data.len().min(size)]);
        at += size;
        match body.get(at..).unwrap_or_default() {
            [] | [b'\r'] => return Verdict::Partial,
            [b'\r', b'\n', ..] => at += 2,
            _ => return Verdict::Rejected,
        }
    }
}

fn trailers(body: &[u8], start: usize, limits: &Limits) -> Verdict {
    let mut at = start;
    loop {
        let left = limits.trailer_bytes_max - (at - start);
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
    let is_end = extension.is_empty() || extension.starts_with(b";");
    if significant(&line[..digits]) > 16 || !is_end || !is_value(rest) {
        return None;
    }
    u64::from_str_radix(str::from_utf8(&line[..digits]).ok()?, 16).ok()
}

/// The number of digits from the first that is not zero on.
fn significant(digits: &[u8]) -> usize {
    digits.iter().skip_while(|&&digit| digit == b'0').count()
}

fn may_become_size_line(rest: &[u8]) -> bool {
    let start = rest.strip_suffix(b"\r").unwrap_or(rest);
    let ended = start.len() < rest.len();
    let digits = start.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    let rest = &start[digits..];
    let spaces = rest.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
    let extension = &rest[spaces..];
    let is_too_long = significant(&start[..digits]) > 16;
    if is_too_long || (digits == 0 && (ended || !rest.is_empty())) || !is_value(rest) {
        return false;
    }
    extension.starts_with(b";") || extension.is_empty()
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
