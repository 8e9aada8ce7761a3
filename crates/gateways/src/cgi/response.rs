//! The header of a program's output: a parser that accepts the output in any pieces.
//!
//! Reading list: RFC 3875 §6. The header ends with an empty line, and its lines end in LF or CR LF. It has
//! one of five meanings:
//!
//! | `Location` | `Status` | `Content-Type` | meaning |
//! |---|---|---|---|
//! | – | any or none (200) | any or none | a document |
//! | a path, without a fragment | none, or 200 | – | a local redirect: the server answers as if it had been asked for that path |
//! | anything else | 3xx, or none (302) | – | a redirect of the client, without a document |
//! | anything else | 3xx, or none (302) | yes | a redirect of the client, with a document |
//! | any | any other | any or none | a document: `Location` names something that was made (RFC 9110 §10.2.2) |
//!
//! A local redirect has no other fields (§6.2.2), and those of most scripts would say nothing about the new response. But
//! a header that sets a cookie is a redirect of the client, as with nginx, because the client must get the cookie.
//!
//! RFC 3875 §6.3.1 demands a type of each document with a body. Some scripts name none. Some of them hand the request
//! over to a file, which has a type, or have no body. A document with a body and no type is passed on without one, as
//! by other servers (RFC 9110 §8.3). For the same reason an output may begin with the empty line. A header whose lines
//! are all left out is a fault.
//!
//! A header that breaks a rule is a [`Fault`], never a guess: the client gets a 502, and the log names the rule. But
//! the rules are no stricter than for the head of an upstream:
//!
//! - Fields that are the gateway's own business are ignored: `Transfer-Encoding`, because the output has an end of its
//!   own, and the fields of the connection.
//! - A field of the table without a value is ignored. A field may occur twice if both values are the same. Of several
//!   types the last counts.
//! - A `Content-Length` that is no number is ignored, because the output has an end of its own.
//! - Continued lines, whitespace before a colon and control characters are accepted, and a line whose name is no token,
//!   or empty, is left out. A line without a colon is a fault, because the output of a script without a header begins
//!   with such a line.
//! - The limits are the same.

use http::bytes::{self, TOKEN, VALUE};
use http::{FieldSection, Status, path};

/// The most bytes that a header may have, unless the configuration says otherwise; as many as the head of an upstream.
pub(crate) const HEADER_BYTES_MAX: usize = 32 * 1024;
/// The most lines that a header may have, unless the configuration says otherwise.
pub(crate) const FIELDS_MAX: usize = 4096;

/// Every content has fewer bytes: `BODY_BYTES_END` of the handlers.
pub(crate) const CONTENT_BYTES_END: u64 = 1 << 62;
/// The fault of a response that announces this many bytes or more.
pub(crate) const TOO_LONG: &str = "a Content-Length of 2^62 bytes or more";

/// 426, the only final status with an `Upgrade`, which it must have (RFC 9110 §15.5.22).
pub(crate) const UPGRADE_REQUIRED: u16 = 426;

/// Fields that the server writes itself.
const OWN_FIELDS: [&[u8]; 2] = [b"Date", b"Server"];
/// The prefix of fields from a program to the server. samum knows no such field (RFC 3875 §6.3.5).
const EXTENSION: &[u8] = b"X-CGI-";

/// The most bytes and fields that a header may have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeaderLimits {
    bytes: usize,
    fields: usize,
}

impl Default for HeaderLimits {
    fn default() -> Self {
        Self { bytes: HEADER_BYTES_MAX, fields: FIELDS_MAX }
    }
}

/// A parser of one header.
#[derive(Debug, Default)]
pub(crate) struct Parser {
    limits: HeaderLimits,
    /// The beginning of the line that is not complete.
    line: Vec<u8>,
    /// Bytes of the header so far, `line` included.
    bytes: usize,
    /// Lines so far.
    lines: usize,
    /// Fields so far.
    count: usize,
    /// The last line, if it may be continued: the name of a field, and its value.
    open: Option<(Vec<u8>, Vec<u8>)>,
    fields: FieldSection<'static>,
    status: Option<Status>,
    content_type: Option<Vec<u8>>,
    content_length: Length,
    location: Option<Vec<u8>>,
}

/// The length of the content, according to the fields so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Length {
    #[default]
    Unsaid,
    Said(u64),
    /// A value is no number, so the length is the one that the output turns out to have.
    Unclear,
    /// The fields make no sense, which matters only if there is content.
    Wrong(&'static str),
}

/// The meaning of a header.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// A response for the client.
    Document(Document),
    /// A path, perhaps with a query, that is answered in place of the request.
    LocalRedirect(Vec<u8>),
}

/// A response for the client.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Document {
    /// The status; never an interim one.
    pub(crate) status: Status,
    /// `Content-Type`
    pub(crate) content_type: Option<Vec<u8>>,
    /// `Content-Length`
    pub(crate) content_length: Option<u64>,
    /// `Location`
    pub(crate) location: Option<Vec<u8>>,
    /// All other fields that are passed on.
    pub(crate) fields: FieldSection<'static>,
}

/// A header that breaks a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    /// A fragment of an English sentence for the log, such as "two Status fields".
    pub(crate) reason: &'static str,
}

impl Document {
    /// Returns true if the output after the header is content. A redirect has content only if it has a type.
    pub(crate) fn has_content(&self) -> bool {
        let is_redirect = self.location.is_some() && matches!(self.status.code(), 300..400);
        (self.content_type.is_some() || !is_redirect) && !self.status.is_bodiless()
    }
}

impl Parser {
    /// Bytes of the header that are kept.
    pub(crate) const fn len(&self) -> usize {
        self.bytes
    }

    /// A parser with the limits of the head of a response.
    pub(crate) fn within(limits: &http1::Limits) -> Self {
        Self::with(HeaderLimits { bytes: limits.head_bytes_max, fields: limits.fields_max })
    }

    /// A parser with these limits.
    pub(crate) fn with(limits: HeaderLimits) -> Self {
        Self { limits, ..Self::default() }
    }

    pub(crate) const fn limits(&self) -> HeaderLimits {
        self.limits
    }

    /// Parses the next bytes of the output. Returns the number of them that belong to the header, and the header's
    /// meaning once it is complete; the rest is content. The parser parses nothing after that.
    ///
    /// # Errors
    ///
    /// A [`Fault`] as soon as a line breaks a rule; rules about several lines are checked at the end.
    pub(crate) fn handle_output(&mut self, output: &[u8]) -> Result<(usize, Option<Reply>), Fault> {
        let mut at = 0;
        while let Some(length) = output[at..].iter().position(|&byte| byte == b'\n') {
            let end = at + length;
            self.extend(&output[at..end])?;
            self.bytes += 1;
            at = end + 1;
            let line = core::mem::take(&mut self.line);
            let line = line.strip_suffix(b"\r").unwrap_or(&line);
            if line.is_empty() {
                self.close()?;
                return Ok((at, Some(self.finish()?)));
            }
            self.handle_line(line)?;
        }
        self.extend(&output[at..])?;
        Ok((output.len(), None))
    }

    /// Appends to the line.
    fn extend(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        self.bytes += bytes.len();
        if self.bytes >= self.limits.bytes {
            return Err(fault("a header that is too long"));
        }
        self.line.extend_from_slice(bytes);
        Ok(())
    }

    fn handle_line(&mut self, line: &[u8]) -> Result<(), Fault> {
        self.lines += 1;
        if self.lines > self.limits.fields {
            return Err(fault("too many fields"));
        }
        if line.iter().any(|byte| matches!(byte, b'\r' | 0)) {
            return Err(fault("a CR or a NUL in a field"));
        }
        if let [b' ' | b'\t', ..] = line
            && self.lines > 1
        {
            if let Some((_, value)) = &mut self.open {
                value.push(b' ');
                value.extend_from_slice(bytes::trim(line));
            }
            return Ok(());
        }
        self.close()?;
        let Some(colon) = line.iter().position(|&byte| byte == b':') else {
            return match self.lines {
                1 if line.starts_with(b"HTTP/") => self.handle_field(b"Status", line),
                _ => Err(fault("a line in its header that is no field")),
            };
        };
        let name = line[..colon].trim_ascii_end();
        if !name.is_empty() && bytes::skip(name, 0, TOKEN) == name.len() {
            self.open = Some((name.to_vec(), bytes::trim(&line[colon + 1..]).to_vec()));
        }
        Ok(())
    }

    /// Ends the last line, which is not continued.
    fn close(&mut self) -> Result<(), Fault> {
        let Some((name, mut value)) = self.open.take() else { return Ok(()) };
        for byte in &mut value {
            if !bytes::is(*byte, VALUE) {
                *byte = b' ';
            }
        }
        self.handle_field(&name, bytes::trim(&value))
    }

    fn handle_field(&mut self, name: &[u8], value: &[u8]) -> Result<(), Fault> {
        self.count += 1;
        let is = |own: &[u8]| name.eq_ignore_ascii_case(own);
        if is(b"Content-Length") {
            for length in bytes::list(value) {
                self.content_length = self.content_length.and(length);
            }
            return Ok(());
        }
        if is(b"Transfer-Encoding") {
            return Ok(());
        }
        let is_meant = !value.is_empty();
        if is(b"Status") {
            return match is_meant {
                true => set(&mut self.status, parse_status(value)?, "two Status fields"),
                false => Ok(()),
            };
        }
        if is(b"Content-Type") {
            if is_meant {
                self.content_type = Some(value.to_vec());
            }
            return Ok(());
        }
        if is(b"Location") {
            return match is_meant {
                true => set(&mut self.location, value.to_vec(), "two Location fields"),
                false => Ok(()),
            };
        }
        self.fields.push(name, value);
        Ok(())
    }

    /// Completes the header.
    fn finish(&mut self) -> Result<Reply, Fault> {
        if self.count == 0 && self.lines > 0 {
            return Err(fault("a header without fields"));
        }
        let location = self.location.take();
        let content_type = self.content_type.take();
        // A fragment is of use only to the client.
        let is_local = |target: &&[u8]| target.starts_with(b"/") && !target.contains(&b'#');
        let local = location.as_deref().filter(is_local);
        let is_cookie = |(name, _): (&[u8], &[u8])| name.eq_ignore_ascii_case(b"Set-Cookie");
        let has_cookie = local.is_some() && self.fields.fields().any(is_cookie);
        if let (Some(path), None | Some(Status::Ok), false) = (local, self.status, has_cookie) {
            return Ok(Reply::LocalRedirect(path::encode_query(path)));
        }
        let usual = if location.is_some() { Status::Found } else { Status::Ok };
        let status = self.status.filter(|_| !has_cookie).unwrap_or(usual);
        let mut fields = FieldSection::EMPTY;
        for (name, value) in self.fields.fields().end_to_end() {
            let is_own = OWN_FIELDS.iter().any(|own| own.eq_ignore_ascii_case(name));
            let is_extension = name
                .get(..EXTENSION.len())
                .is_some_and(|start| start.eq_ignore_ascii_case(EXTENSION));
            if !is_own && !is_extension {
                fields.push(name, value);
            }
        }
        if status.code() == UPGRADE_REQUIRED {
            let is_upgrade = |(name, _): &(&[u8], &[u8])| name.eq_ignore_ascii_case(b"Upgrade");
            for (name, value) in self.fields.fields().filter(is_upgrade) {
                fields.push(name, value);
                fields.push(b"Connection", b"upgrade");
            }
        }
        let content_length = match self.content_length {
            Length::Unsaid | Length::Unclear => None,
            Length::Wrong(_) if status.is_bodiless() => None,
            Length::Said(length) => Some(length),
            Length::Wrong(reason) => return Err(fault(reason)),
        };
        Ok(Reply::Document(Document { status, content_type, content_length, location, fields }))
    }
}

impl Length {
    /// The length after a further value of the field.
    fn and(self, value: &[u8]) -> Self {
        match (self, bytes::decimal(value)) {
            (Self::Wrong(_), _) => self,
            (_, None) if value.iter().all(u8::is_ascii_digit) => Self::Wrong(TOO_LONG),
            (_, Some(CONTENT_BYTES_END..)) => Self::Wrong(TOO_LONG),
            (Self::Unclear, _) | (_, None) => Self::Unclear,
            (Self::Said(said), Some(length)) if said != length => {
                Self::Wrong("two Content-Length fields that differ")
            }
            (_, Some(length)) => Self::Said(length),
        }
    }
}

/// Parses `Status: 404 Not Found`: three digits and a text. Some programs write the whole status line of a response.
fn parse_status(value: &[u8]) -> Result<Status, Fault> {
    const WRONG: Fault = fault("a Status that is no status");
    let value = match value.strip_prefix(b"HTTP/") {
        None => value,
        Some([b'0'..=b'9', b'.', b'0'..=b'9', rest @ ..] | [b'2'..=b'9', rest @ ..])
            if rest.starts_with(b" ") =>
        {
            bytes::trim(rest)
        }
        Some(_) => return Err(WRONG),
    };
    let (digits, rest) = value.split_at_checked(3).ok_or(WRONG)?;
    if !matches!(rest, [] | [b' ' | b'\t', ..]) {
        return Err(WRONG);
    }
    let code = bytes::decimal(digits).and_then(|code| u16::try_from(code).ok()).ok_or(WRONG)?;
    // Interim responses are sent by the server alone.
    Status::from_code(code).filter(|status| status.code() >= 200).ok_or(WRONG)
}

/// Sets a value that may occur once, or twice with the same content.
fn set<T: PartialEq>(place: &mut Option<T>, value: T, twice: &'static str) -> Result<(), Fault> {
    if place.as_ref().is_some_and(|before| *before != value) {
        return Err(fault(twice));
    }
    *place = Some(value);
    Ok(())
}

const fn fault(reason: &'static str) -> Fault {
    Fault { reason }
}

#[cfg(test)]
// The path is needed for the fuzz target, which is another crate with this module.
#[path = "response/tests.rs"]
mod tests;
