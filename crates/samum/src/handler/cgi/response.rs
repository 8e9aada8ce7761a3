//! The header of a program's output: a parser that takes the output in any pieces.
//!
//! Reading list: RFC 3875 §6. The header ends with an empty line, and its lines end in LF or CR LF. It has
//! one of four meanings:
//!
//! | `Location` | `Status` | `Content-Type` | meaning |
//! |---|---|---|---|
//! | – | any or none (200) | any or none | a document |
//! | a path | none, or 200 | – | a local redirect: the server answers as if it had been asked for that path |
//! | anything else | any or none (302) | – | a redirect of the client, without a document |
//! | anything else | any or none (302) | yes | a redirect of the client, with a document |
//!
//! RFC 3875 §6.3.1 demands a type of each document with a body. Some scripts name none, because they hand the request
//! over to a file, which has one, or have no body; others are passed on without one, as other servers do (RFC 9110
//! §8.3). A header without any field is not taken for one.
//!
//! A header that breaks a rule is a [`Fault`], never a guess: the client gets a 502, and the log names the
//! rule.

use http::bytes::{self, QUERY, TOKEN, VALUE};
use http::{FieldSection, Status, path};

/// The most bytes that a header may have, unless the configuration says otherwise.
pub(crate) const HEADER_BYTES_MAX: usize = 32 * 1024;
/// The most fields that a header may have, unless the configuration says otherwise.
pub(crate) const FIELDS_MAX: usize = 4096;

/// Contents have fewer bytes: `BODY_BYTES_END` of the handlers.
pub(crate) const CONTENT_BYTES_END: u64 = 1 << 62;
/// The fault of a response that announces as many.
pub(crate) const TOO_LONG: &str = "a Content-Length of 2^62 bytes or more";

/// 426, the only final status with an `Upgrade`, which it must have (RFC 9110 §15.5.22).
pub(crate) const UPGRADE_REQUIRED: u16 = 426;

/// Fields that the server writes itself.
const OWN_FIELDS: [&[u8]; 2] = [b"Date", b"Server"];
/// Fields from a program to the server begin with this. samum knows none (RFC 3875 §6.3.5).
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
    /// The beginning of a line whose end has not come.
    line: Vec<u8>,
    /// Bytes of the header so far, `line` included.
    bytes: usize,
    count: usize,
    fields: FieldSection<'static>,
    status: Option<Status>,
    content_type: Option<Vec<u8>>,
    content_length: Option<u64>,
    location: Option<Vec<u8>>,
}

/// The meaning of a header.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// A response for the client.
    Document(Document),
    /// A path, perhaps with a query, on which the server answers instead.
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
    /// Returns whether the output behind the header is content. A redirect has some only with a type of it.
    pub(crate) fn has_content(&self) -> bool {
        (self.content_type.is_some() || self.location.is_none()) && !self.status.is_bodiless()
    }
}

impl Parser {
    /// Bytes of the header that are kept.
    pub(crate) const fn len(&self) -> usize {
        self.bytes
    }

    /// A parser of a header that has no more than the head of a response may have.
    pub(crate) fn within(limits: &http1::Limits) -> Self {
        Self::with(HeaderLimits { bytes: limits.head_bytes_max, fields: limits.fields_max })
    }

    /// The same with these limits.
    pub(crate) fn with(limits: HeaderLimits) -> Self {
        Self { limits, ..Self::default() }
    }

    pub(crate) const fn limits(&self) -> HeaderLimits {
        self.limits
    }

    /// Takes the next bytes of the output. Returns how many of them belong to the header, and its meaning
    /// once it is complete; what follows is the content. Takes nothing more after that.
    ///
    /// # Errors
    ///
    /// A [`Fault`] as soon as a line breaks a rule; what lines say together is judged at the end.
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
        let name_end = bytes::skip(line, 0, TOKEN);
        let (name, rest) = line.split_at(name_end);
        let [b':', value @ ..] = rest else {
            return Err(fault("a line in its header that is no field"));
        };
        if name.is_empty() {
            return Err(fault("a field without a name"));
        }
        if value.iter().any(|&byte| !bytes::is(byte, VALUE)) {
            return Err(fault("a control character in a field"));
        }
        self.count += 1;
        if self.count > self.limits.fields {
            return Err(fault("too many fields"));
        }
        let value = bytes::trim(value);
        if name.eq_ignore_ascii_case(b"Status") {
            set(&mut self.status, parse_status(value)?, "two Status fields")
        } else if name.eq_ignore_ascii_case(b"Content-Type") {
            if value.is_empty() {
                return Err(fault("an empty Content-Type"));
            }
            set(&mut self.content_type, value.to_vec(), "two Content-Type fields")
        } else if name.eq_ignore_ascii_case(b"Content-Length") {
            let length =
                bytes::decimal(value).ok_or(fault("a Content-Length that is no number"))?;
            if length >= CONTENT_BYTES_END {
                return Err(fault(TOO_LONG));
            }
            set(&mut self.content_length, length, "two Content-Length fields")
        } else if name.eq_ignore_ascii_case(b"Transfer-Encoding") {
            // The content may be in chunks then, and a script must not send any (RFC 3875 §6.3.4).
            Err(fault("a Transfer-Encoding, which is not for scripts"))
        } else if name.eq_ignore_ascii_case(b"Location") {
            if value.is_empty() {
                return Err(fault("an empty Location"));
            }
            set(&mut self.location, value.to_vec(), "two Location fields")
        } else {
            self.fields.push(name, value);
            Ok(())
        }
    }

    /// The header is complete.
    fn finish(&mut self) -> Result<Reply, Fault> {
        if self.count == 0 {
            return Err(fault("a header without fields"));
        }
        let location = self.location.take();
        let content_type = self.content_type.take();
        let local = location.as_deref().filter(|target| target.starts_with(b"/"));
        if let (Some(path), None | Some(Status::Ok)) = (local, self.status) {
            let path = path::escape(path);
            if bytes::skip(&path, 0, QUERY) < path.len() {
                return Err(fault("a Location that is no path"));
            }
            return Ok(Reply::LocalRedirect(path));
        }
        let usual = if location.is_some() { Status::Found } else { Status::Ok };
        let status = self.status.unwrap_or(usual);
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
        let content_length = self.content_length;
        Ok(Reply::Document(Document { status, content_type, content_length, location, fields }))
    }
}

/// `Status: 404 Not Found`: three digits, and text for people.
fn parse_status(value: &[u8]) -> Result<Status, Fault> {
    const WRONG: Fault = fault("a Status that is no status");
    let (digits, rest) = value.split_at_checked(3).ok_or(WRONG)?;
    if !matches!(rest, [] | [b' ' | b'\t', ..]) {
        return Err(WRONG);
    }
    let code = bytes::decimal(digits).and_then(|code| u16::try_from(code).ok()).ok_or(WRONG)?;
    // An interim response is the server's to send.
    Status::from_code(code).filter(|status| status.code() >= 200).ok_or(WRONG)
}

/// Sets what may be set once.
fn set<T>(place: &mut Option<T>, value: T, twice: &'static str) -> Result<(), Fault> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(fault(twice)),
    }
}

const fn fault(reason: &'static str) -> Fault {
    Fault { reason }
}

#[cfg(test)]
// Said for the target of the fuzzer, which is another crate with this module.
#[path = "response/tests.rs"]
mod tests;
