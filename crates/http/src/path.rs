//! From the path of a URL to the name of a file, and back.
//!
//! Reading list: RFC 3986 §2, §3.3, §5.2.4, §6.2.2.
//!
//! Names are bytes, as in Linux: any but NUL and the slash. A backslash is an ordinary byte and no separator, in both
//! directions. This module accesses no file system: the code that opens a file must keep symbolic links beneath the
//! root (`openat2(2)`, `RESOLVE_BENEATH`).

use alloc::borrow::Cow;
use alloc::vec::Vec;
use core::error::Error;
use core::fmt;

use crate::bytes::{self, HEX, HOST, PLAIN};
use crate::status::Status;

/// The longest name of a file, `NAME_MAX` of Linux.
pub const NAME_BYTES_MAX: usize = 255;

/// The longest path, `PATH_MAX` of Linux without the NUL that it counts.
pub const PATH_BYTES_MAX: usize = 4095;

/// The facts that [`normalize`] finds in addition to the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Normal {
    /// True if the URL names a directory: it ends in a slash or in a dot segment.
    pub directory: bool,
}

/// The reason for which a path of a URL is not the name of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathError {
    /// The path does not begin with a slash. A 400.
    NotAbsolute,
    /// The path climbs above the root by `..`. A 400.
    AboveRoot,
    /// A `%` is not followed by two hexadecimal digits. A 400.
    BadPercent,
    /// The path holds `%00`. A 400.
    Nul,
    /// The path holds `%2F`: a slash within a name, which no file can have. A 404.
    EncodedSlash,
    /// A segment is longer than [`NAME_BYTES_MAX`]: no file can be called so. A 404.
    NameTooLong,
    /// The path is longer than [`PATH_BYTES_MAX`]. A 414.
    PathTooLong,
}

impl PathError {
    /// The status of the response.
    pub const fn status(self) -> Status {
        match self {
            Self::NotAbsolute | Self::AboveRoot | Self::BadPercent | Self::Nul => {
                Status::BadRequest
            }
            Self::EncodedSlash | Self::NameTooLong => Status::NotFound,
            Self::PathTooLong => Status::UriTooLong,
        }
    }
}

impl fmt::Display for PathError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotAbsolute => "a path that does not begin with a slash",
            Self::AboveRoot => "a path that climbs above the root",
            Self::BadPercent => "a path with an invalid percent-encoding",
            Self::Nul => "a path with a NUL",
            Self::EncodedSlash => "a path with an encoded slash",
            Self::NameTooLong => "a path with a name that is too long",
            Self::PathTooLong => "a path that is too long",
        })
    }
}

impl Error for PathError {}

/// Returns whether [`normalize`] would only strip the first slash and a last one, and could not fail.
///
/// It returns false for some normal paths too, such as paths beyond 255 bytes or names that begin with a dot, so that
/// it is quick for the paths of nearly all requests.
#[inline]
pub fn is_normal(path: &[u8]) -> bool {
    if path.first() != Some(&b'/') || path.len() > NAME_BYTES_MAX {
        return false;
    }
    let word_at = |at: usize| path[at..].first_chunk().map(|&word| u64::from_le_bytes(word));
    let mut at = 0;
    while let Some(word) = word_at(at) {
        if !is_normal_word(word, at > 0 && path[at - 1] == b'/') {
            return false;
        }
        at += 8;
    }
    // The rest is looked at together with bytes before it; a short path is filled up with bytes that
    // are always normal.
    if at > 0 {
        at = path.len() - 8;
        return word_at(at)
            .is_some_and(|word| is_normal_word(word, at > 0 && path[at - 1] == b'/'));
    }
    let mut word = *b"xxxxxxxx";
    word[..path.len()].copy_from_slice(path);
    is_normal_word(u64::from_le_bytes(word), false)
}

/// Returns whether eight bytes of a path are visible ASCII other than `%`, without a slash or a dot after
/// a slash.
///
/// Eight bytes together, the first of them lowest. Each mask has the high bit of a byte set where the byte has the
/// property. The additions cannot carry from one byte into the next, because a byte is at most 0x7f before them.
#[inline(always)]
fn is_normal_word(word: u64, after_slash: bool) -> bool {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGHS: u64 = ONES * 0x80;
    let ascii = word & !HIGHS;
    let not_equal = |bytes: u64, byte: u8| (bytes ^ (ONES * u64::from(byte))) + ONES * 0x7f;
    let visible = (ascii + ONES * (0x80 - 0x21)) & !(ascii + ONES);
    let normal = visible & not_equal(ascii, b'%') & !word & HIGHS;
    let slash = !not_equal(ascii, b'/') & HIGHS;
    // `.` and `/` differ in the lowest bit only.
    let slash_or_dot = !not_equal(ascii | ONES, b'/') & HIGHS;
    let behind_slash = slash << 8 | u64::from(after_slash) << 7;
    normal == HIGHS && behind_slash & slash_or_dot == 0
}

/// Turns the path of a URL into the name of a file relative to the root, in `out`, whose former
/// content is dropped.
///
/// The name has no slash at either end, no empty, `.` or `..` segment, and no NUL; the root itself
/// is the empty name. Percent-encodings are decoded exactly once, before dot segments are removed,
/// so that `%2e%2e` is `..` (RFC 3986 §6.2.2.2). Empty segments vanish, as they do in a file
/// system, so `/a//../b` is `b`.
///
/// # Errors
///
/// See [`PathError`]; `out` is then unspecified.
pub fn normalize(path: &[u8], out: &mut Vec<u8>) -> Result<Normal, PathError> {
    walk(path, out, Kind::File)
}

/// Like [`normalize`], for a resource that may be no file: names may have any length, and an encoded slash is a byte of
/// its segment. In `out` it becomes an [`ENCODED_SLASH`], which no other path has. [`resolve`] and [`encode`] leave it
/// encoded. [`check_file`] says whether a file can have the name.
///
/// # Errors
///
/// See [`PathError`]. It is never [`EncodedSlash`](PathError::EncodedSlash), and no length is too long.
pub fn normalize_opaque(path: &[u8], out: &mut Vec<u8>) -> Result<Normal, PathError> {
    walk(path, out, Kind::Opaque)
}

/// Like [`normalize_opaque`], but `out` begins with a slash, and ends with one if the path names a directory.
///
/// # Errors
///
/// See [`normalize_opaque`].
pub fn normalize_rooted(path: &[u8], out: &mut Vec<u8>) -> Result<(), PathError> {
    let normal = normalize_opaque(path, out)?;
    out.insert(0, b'/');
    if normal.directory && out.len() > 1 {
        out.push(b'/');
    }
    Ok(())
}

/// The kind of resource that a path names.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    File,
    Opaque,
}

fn walk(path: &[u8], out: &mut Vec<u8>, kind: Kind) -> Result<Normal, PathError> {
    out.clear();
    let Some(path) = path.strip_prefix(b"/") else {
        return Err(PathError::NotAbsolute);
    };
    let mut directory = true;
    for segment in path.split(|&byte| byte == b'/') {
        // The name so far, with a slash unless it is the root; the segment is decoded after it.
        let parent_len = out.len();
        if parent_len > 0 {
            out.push(b'/');
        }
        let start = out.len();
        decode_segment(segment, out, kind)?;
        directory = matches!(&out[start..], b"" | b"." | b"..");
        match &out[start..] {
            b"" | b"." => out.truncate(parent_len),
            b".." => {
                out.truncate(parent_len);
                remove_last(out)?;
            }
            _ if kind == Kind::Opaque => {}
            name if name.len() > NAME_BYTES_MAX => return Err(PathError::NameTooLong),
            _ if out.len() > PATH_BYTES_MAX => return Err(PathError::PathTooLong),
            _ => {}
        }
    }
    Ok(Normal { directory })
}

/// An encoded slash in the form of [`normalize_opaque`].
pub const ENCODED_SLASH: u8 = 0;

/// Returns whether a path from [`normalize_opaque`] has dot segments for servers that decode encoded slashes before
/// they remove dot segments.
pub fn hides_dots(name: &[u8]) -> bool {
    let mut segments =
        name.split(|&byte| byte == b'/').filter(|part| part.contains(&ENCODED_SLASH));
    segments.any(|part| part.split(|&byte| byte == ENCODED_SLASH).any(is_dots))
}

/// A path from [`normalize_opaque`], with this text instead of each encoded slash.
pub fn with_slashes<'a>(name: &'a [u8], slash: &[u8]) -> Cow<'a, [u8]> {
    if !name.contains(&ENCODED_SLASH) {
        return Cow::Borrowed(name);
    }
    let parts: Vec<_> = name.split(|&byte| byte == ENCODED_SLASH).collect();
    Cow::Owned(parts.join(slash))
}

/// Checks that a file can have a path from [`normalize_opaque`], or the end of one.
///
/// # Errors
///
/// [`EncodedSlash`](PathError::EncodedSlash), [`NameTooLong`](PathError::NameTooLong) or
/// [`PathTooLong`](PathError::PathTooLong).
pub fn check_file(name: &[u8]) -> Result<(), PathError> {
    let mut names = name.split(|&byte| byte == b'/');
    if name.contains(&ENCODED_SLASH) {
        Err(PathError::EncodedSlash)
    } else if name.len() <= NAME_BYTES_MAX {
        Ok(())
    } else if names.any(|name| name.len() > NAME_BYTES_MAX) {
        Err(PathError::NameTooLong)
    } else if name.len() > PATH_BYTES_MAX {
        Err(PathError::PathTooLong)
    } else {
        Ok(())
    }
}

/// Returns whether a name is a dot segment, or would be one for servers that cut segments at a semicolon.
fn is_dots(name: &[u8]) -> bool {
    let name = name.split(|&byte| byte == b';').next().unwrap_or_default();
    matches!(name, b"." | b"..")
}

/// Appends a segment without its percent-encoding.
fn decode_segment(segment: &[u8], out: &mut Vec<u8>, kind: Kind) -> Result<(), PathError> {
    let mut rest = segment;
    while let [byte, after @ ..] = rest {
        rest = after;
        let byte = match (*byte, after) {
            (b'%', [high, low, after @ ..]) => {
                rest = after;
                let high = bytes::hex_digit(*high).ok_or(PathError::BadPercent)?;
                let low = bytes::hex_digit(*low).ok_or(PathError::BadPercent)?;
                high << 4 | low
            }
            (b'%', _) => return Err(PathError::BadPercent),
            (byte, _) => byte,
        };
        match byte {
            0 => return Err(PathError::Nul),
            b'/' if kind == Kind::File => return Err(PathError::EncodedSlash),
            b'/' => out.push(ENCODED_SLASH),
            byte => out.push(byte),
        }
    }
    Ok(())
}

/// Appends the path of a URL in the form in which it is sent on: without empty and dot segments, and with one spelling
/// for each meaning (RFC 3986 §6.2.2). [`normalize`] makes the same name of both paths.
///
/// Encoded letters, digits and `-._~` are decoded, and bytes that RFC 3986 allows in no path are encoded. All other
/// encodings stay, because `%2B` and `+` are not the same for every server. Some servers cut segments at a semicolon,
/// and mistake `..;a` for `..`: there the semicolon is encoded.
///
/// It never fails: `..` of the root is the root, and a `%` without two digits is encoded.
pub fn resolve(path: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    let mut directory = true;
    for segment in path.split(|&byte| byte == b'/') {
        let parent_end = out.len();
        out.push(b'/');
        resolve_segment(segment, out);
        let name = &out[parent_end + 1..];
        directory = matches!(name, b"" | b"." | b"..");
        if name == b".." {
            let parent = out[start..parent_end].iter().rposition(|&byte| byte == b'/');
            out.truncate(start + parent.unwrap_or(0));
        } else if directory {
            out.truncate(parent_end);
        }
    }
    if directory {
        out.push(b'/');
    }
}

/// The path of a URL as it is sent on to a server that may distinguish spellings. It is unchanged, except that bytes
/// which RFC 3986 allows in no URL are encoded. A path with a dot segment, or with a segment that some servers mistake
/// for one, is [resolved](resolve) as a whole. A semicolon at the start of a segment is encoded if others follow it:
/// servers that cut segments there, and then leave out empty ones, would find another path.
pub fn forwarded(path: &[u8]) -> Cow<'_, [u8]> {
    // Nearly all paths are so. A semicolon may be encoded.
    let is_plain = |byte| bytes::is(byte, PLAIN) && byte != b';';
    if is_normal(path) && path.iter().all(|&byte| is_plain(byte)) {
        return Cow::Borrowed(path);
    }
    let mut out = Vec::with_capacity(path.len());
    let mut meaning = Vec::new();
    let mut segments =
        path.strip_prefix(b"/").unwrap_or(path).split(|&byte| byte == b'/').peekable();
    while let Some(segment) = segments.next() {
        meaning.clear();
        resolve_segment(segment, &mut meaning);
        let name = meaning.split(|&byte| byte == b'%').next().unwrap_or_default();
        if matches!(name, b"." | b"..") {
            out.clear();
            resolve(path, &mut out);
            break;
        }
        out.push(b'/');
        match segment {
            [b';', rest @ ..] if segments.peek().is_some() => {
                push_encoded(b';', &mut out);
                push_segment(rest, &mut out);
            }
            segment => push_segment(segment, &mut out),
        }
    }
    Cow::Owned(out)
}

/// The part of a [forwarded] path after as many segments as `segments` has, which begins and ends with a slash. Empty
/// segments do not count. The part begins with a slash unless it is empty.
pub fn behind<'a>(path: &'a [u8], segments: &[u8]) -> &'a [u8] {
    let is_end = |at: usize| at > 0 && path[at - 1] != b'/';
    let depth = segments.iter().filter(|&&byte| byte == b'/').count() - 1;
    let ends = (0..path.len()).filter(|&at| path[at] == b'/' && is_end(at));
    let at = if depth == 0 { Some(0) } else { ends.into_iter().nth(depth - 1) };
    &path[at.unwrap_or(path.len())..]
}

/// Appends a segment with its spelling unchanged.
fn push_segment(segment: &[u8], out: &mut Vec<u8>) {
    let mut rest = segment;
    while let [byte, after @ ..] = rest {
        match (*byte, after) {
            (b'%', [high, low, ..]) if bytes::is(*high, HEX) && bytes::is(*low, HEX) => {
                out.push(b'%');
            }
            // RFC 3986 has brackets in hosts only, but no server mistakes them for anything else.
            (byte, _) if byte != b'%' && (bytes::is(byte, HOST) || b":@[]".contains(&byte)) => {
                out.push(byte);
            }
            (byte, _) => push_encoded(byte, out),
        }
        rest = after;
    }
}

/// Appends a segment with one spelling for each meaning.
fn resolve_segment(segment: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    let mut rest = segment;
    while let [byte, after @ ..] = rest {
        rest = after;
        match (*byte, after) {
            (b'%', [high, low, after @ ..]) if bytes::is(*high, HEX) && bytes::is(*low, HEX) => {
                rest = after;
                let digit = |digit| bytes::hex_digit(digit).unwrap_or_default();
                let byte = digit(*high) << 4 | digit(*low);
                if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
                    out.push(byte);
                } else {
                    push_encoded(byte, out);
                }
            }
            (b';', _) if matches!(&out[start..], b"" | b"." | b"..") => push_encoded(b';', out),
            (byte, _) if byte != b'%' && (bytes::is(byte, HOST) || b":@".contains(&byte)) => {
                out.push(byte);
            }
            (byte, _) => push_encoded(byte, out),
        }
    }
}

/// Appends a byte in its percent-encoded form.
fn push_encoded(byte: u8, out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let (high, low) = (usize::from(byte >> 4), usize::from(byte & 0xf));
    out.extend_from_slice(&[b'%', DIGITS[high], DIGITS[low]]);
}

/// Removes the last name of a path, and the slash before it.
fn remove_last(out: &mut Vec<u8>) -> Result<(), PathError> {
    if out.is_empty() {
        return Err(PathError::AboveRoot);
    }
    let parent_len = out.iter().rposition(|&byte| byte == b'/').unwrap_or(0);
    out.truncate(parent_len);
    Ok(())
}

/// Appends the name of a file, or a path, percent-encoded for `href` and the like.
///
/// Only letters, digits, `-._~!$()*+,;=@` and the slash stay unencoded. So the result never ends a line, a quoted
/// attribute or a string in HTML, and its first segment is never taken for a scheme. A run of slashes becomes one
/// slash, also together with the end of `out`: nothing that begins with `//`, which a browser mistakes for another
/// host, can arise. An [`ENCODED_SLASH`] stays encoded.
pub fn encode(path: &[u8], out: &mut Vec<u8>) {
    encode_path(|byte| bytes::is(byte, PLAIN), path, out);
}

/// Like [`encode`], for a `Location` whose path begins with a slash: all characters that a segment may have stay
/// unencoded (`pchar`, RFC 3986 §3.3), so also `&`, `'` and `:`. The result ends neither the path nor the line.
pub fn encode_location(path: &[u8], out: &mut Vec<u8>) {
    let is_kept = |byte| bytes::is(byte, PLAIN) || matches!(byte, b'&' | b'\'' | b':');
    encode_path(is_kept, path, out);
}

/// Appends a path with runs of slashes as one. Bytes for which `is_kept` is true stay as they are.
#[inline(always)]
fn encode_path(is_kept: impl Fn(u8) -> bool, path: &[u8], out: &mut Vec<u8>) {
    for &byte in path {
        match byte {
            b'/' if out.last() == Some(&b'/') => {}
            ENCODED_SLASH => push_encoded(b'/', out),
            byte if is_kept(byte) => out.push(byte),
            byte => push_encoded(byte, out),
        }
    }
}

/// A path and a query, with percent-encoding where a URL needs it; a program may have written them without.
pub fn encode_query(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    encode_unless(|byte| bytes::is(byte, bytes::QUERY), text, &mut out);
    out
}

/// A path or a query with its bytes outside ASCII percent-encoded. Other bytes stay as they are.
pub fn escape(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(3 * text.len());
    encode_unless(|byte| byte.is_ascii(), text, &mut out);
    out
}

/// Appends a text as a part of a URL: bytes for which `is_kept` is true as they are, the others percent-encoded.
pub fn encode_unless(is_kept: impl Fn(u8) -> bool, text: &[u8], out: &mut Vec<u8>) {
    for &byte in text {
        if is_kept(byte) {
            out.push(byte);
        } else {
            push_encoded(byte, out);
        }
    }
}

#[cfg(test)]
mod tests;
