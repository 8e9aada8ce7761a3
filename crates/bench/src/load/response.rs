//! Responses as a client of HTTP/1.1 sees them (RFC 9112, sections 4, 6, 7 and 9.3). Pure: bytes
//! in, one response at a time out. Nothing is pipelined, so bytes after a response are an error.

use core::fmt;

/// The parser of the responses on one connection, one after the other.
#[derive(Debug, Default)]
pub struct Parser {
    state: ParserState,
    /// The bytes of a head that came in several pieces.
    head: Vec<u8>,
    status: u16,
    body_len: u64,
    keep_alive: bool,
}

/// The position of the parser within a response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ParserState {
    #[default]
    Head,
    /// This many bytes of the body are still to come.
    Length(u64),
    Chunked(Chunked),
    /// The body ends with the connection.
    UntilClose,
    Done,
}

/// The position of the parser within a chunked body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Chunked {
    /// In the hexadecimal digits, with their value so far and their number.
    Size(u64, u8),
    /// After the digits, up to the line's end.
    SizeLine(u64),
    Data(u64),
    /// The CRLF after data.
    DataEnd,
    /// A line of the trailer section with this many bytes; an empty one is the end.
    Trailer(u16),
}

/// The reasons why a response is malformed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// The head is not one, or is longer than [`HEAD_MAX`].
    Head,
    /// `Content-Length` or `Transfer-Encoding` that says nothing or too much.
    Framing,
    /// A chunk's size or end.
    Chunk,
    /// Unexpected bytes follow the response.
    Surplus,
    /// The connection ended within the response.
    Short,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Head => "not a response head of HTTP/1.x",
            Self::Framing => "no usable Content-Length or Transfer-Encoding",
            Self::Chunk => "broken chunk",
            Self::Surplus => "more bytes than the response has",
            Self::Short => "the connection ended within the response",
        })
    }
}

impl Parser {
    /// Parses bytes as they come; `body` gets the bytes of the body. Returns true when the response is complete.
    ///
    /// # Errors
    /// If the bytes are no response. The connection is then of no use.
    pub fn feed(
        &mut self,
        mut bytes: &[u8],
        mut body: impl FnMut(&[u8]),
    ) -> Result<bool, Malformed> {
        while !bytes.is_empty() {
            let used = match self.state {
                ParserState::Head => self.head(bytes)?,
                ParserState::Length(left) => {
                    let part = prefix(bytes, left);
                    body(part);
                    self.pass(part.len());
                    part.len()
                }
                ParserState::UntilClose => {
                    body(bytes);
                    self.body_len += bytes.len() as u64;
                    bytes.len()
                }
                ParserState::Chunked(chunked) => self.chunk(chunked, bytes, &mut body)?,
                ParserState::Done => return Err(Malformed::Surplus),
            };
            bytes = &bytes[used..];
        }
        Ok(self.state == ParserState::Done)
    }

    /// The number of next bytes that certainly belong to the body: they need no parsing, and are only
    /// [passed](Self::pass).
    #[must_use]
    pub fn passable(&self) -> u64 {
        match self.state {
            ParserState::Length(left) => left,
            _ => 0,
        }
    }

    /// Counts bytes of the body that were not looked at. True when the response is complete.
    pub fn pass(&mut self, n: usize) -> bool {
        if let ParserState::Length(left) = self.state {
            debug_assert!(n as u64 <= left, "{n} of {left}");
            self.body_len += n as u64;
            self.state = length(left.saturating_sub(n as u64));
        }
        self.state == ParserState::Done
    }

    /// The peer has closed.
    ///
    /// # Errors
    /// When the response is not complete by that.
    pub fn end(&mut self) -> Result<(), Malformed> {
        match self.state {
            ParserState::UntilClose | ParserState::Done => {
                self.state = ParserState::Done;
                Ok(())
            }
            _ => Err(Malformed::Short),
        }
    }

    /// The status code, once the head has come.
    #[must_use]
    pub fn status(&self) -> u16 {
        self.status
    }

    /// The bytes of the body so far.
    #[must_use]
    pub fn body_len(&self) -> u64 {
        self.body_len
    }

    /// Returns whether the connection may be used for another request after this response.
    #[must_use]
    pub fn keep_alive(&self) -> bool {
        self.keep_alive
    }

    /// Begins with the next response.
    pub fn reset(&mut self) {
        self.state = ParserState::Head;
        self.head.clear();
        self.body_len = 0;
    }

    /// Parses a head, in one step if `bytes` has all of it. Returns the number of its bytes in `bytes`.
    fn head(&mut self, bytes: &[u8]) -> Result<usize, Malformed> {
        if self.head.is_empty()
            && let Some(len) = self.parse_head(bytes)?
        {
            return Ok(len);
        }
        let before = self.head.len();
        let mut head = core::mem::take(&mut self.head);
        head.extend_from_slice(bytes);
        let used = match self.parse_head(&head)? {
            Some(len) => len - before,
            None if head.len() > HEAD_MAX => return Err(Malformed::Head),
            None => {
                self.head = head;
                return Ok(bytes.len());
            }
        };
        head.clear();
        self.head = head;
        Ok(used)
    }

    /// Parses the head and returns its length; `None` while it is incomplete.
    fn parse_head(&mut self, bytes: &[u8]) -> Result<Option<usize>, Malformed> {
        let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
        let mut response = httparse::Response::new(&mut fields);
        let len = match response.parse(bytes) {
            Ok(httparse::Status::Complete(len)) if len <= HEAD_MAX => len,
            Ok(httparse::Status::Partial) => return Ok(None),
            Ok(_) | Err(_) => return Err(Malformed::Head),
        };
        let status = response.code.ok_or(Malformed::Head)?;
        let mut keep_alive = response.version == Some(1);
        let (mut content_length, mut chunked) = (None, false);
        for field in &*response.headers {
            let is = |name: &str| field.name.eq_ignore_ascii_case(name);
            if is("content-length") {
                let text = core::str::from_utf8(field.value).ok();
                let n = text.and_then(|text| text.trim().parse().ok()).ok_or(Malformed::Framing)?;
                if content_length.replace(n).is_some_and(|other: u64| other != n) {
                    return Err(Malformed::Framing);
                }
            } else if is("transfer-encoding") {
                chunked = field.value.trim_ascii().eq_ignore_ascii_case(b"chunked");
                if !chunked {
                    return Err(Malformed::Framing);
                }
            } else if is("connection") {
                for option in field.value.split(|&b| b == b',').map(<[u8]>::trim_ascii) {
                    if option.eq_ignore_ascii_case(b"close") {
                        keep_alive = false;
                    } else if option.eq_ignore_ascii_case(b"keep-alive") {
                        keep_alive = true;
                    }
                }
            }
        }
        self.state = match (status, chunked, content_length) {
            // Interim responses precede the one that counts.
            (100..=199, ..) => ParserState::Head,
            (204 | 304, ..) => ParserState::Done,
            (_, true, _) => ParserState::Chunked(Chunked::Size(0, 0)),
            (_, false, Some(n)) => length(n),
            (_, false, None) => ParserState::UntilClose,
        };
        self.status = status;
        self.keep_alive = keep_alive && self.state != ParserState::UntilClose;
        Ok(Some(len))
    }

    fn chunk(
        &mut self,
        chunked: Chunked,
        bytes: &[u8],
        body: &mut impl FnMut(&[u8]),
    ) -> Result<usize, Malformed> {
        let byte = bytes[0];
        let (used, next) = match chunked {
            Chunked::Size(size, digits) => match char::from(byte).to_digit(16) {
                Some(_) if digits == 15 => return Err(Malformed::Chunk),
                Some(digit) => (1, Chunked::Size(size << 4 | u64::from(digit), digits + 1)),
                None if digits == 0 => return Err(Malformed::Chunk),
                None => (0, Chunked::SizeLine(size)),
            },
            Chunked::SizeLine(0) if byte == b'\n' => (1, Chunked::Trailer(0)),
            Chunked::SizeLine(size) if byte == b'\n' => (1, Chunked::Data(size)),
            Chunked::SizeLine(size) => (1, Chunked::SizeLine(size)),
            Chunked::Data(left) => {
                let part = prefix(bytes, left);
                body(part);
                self.body_len += part.len() as u64;
                match left - part.len() as u64 {
                    0 => (part.len(), Chunked::DataEnd),
                    left => (part.len(), Chunked::Data(left)),
                }
            }
            Chunked::DataEnd if byte == b'\n' => (1, Chunked::Size(0, 0)),
            Chunked::DataEnd if byte == b'\r' => (1, Chunked::DataEnd),
            Chunked::DataEnd => return Err(Malformed::Chunk),
            Chunked::Trailer(0) if byte == b'\n' => {
                self.state = ParserState::Done;
                return Ok(1);
            }
            Chunked::Trailer(_) if byte == b'\n' => (1, Chunked::Trailer(0)),
            Chunked::Trailer(len) if byte == b'\r' => (1, Chunked::Trailer(len)),
            Chunked::Trailer(len) => (1, Chunked::Trailer(len.saturating_add(1))),
        };
        self.state = ParserState::Chunked(next);
        Ok(used)
    }
}

fn length(left: u64) -> ParserState {
    if left == 0 { ParserState::Done } else { ParserState::Length(left) }
}

/// As much of `bytes` as `limit` allows.
fn prefix(bytes: &[u8], limit: u64) -> &[u8] {
    &bytes[..usize::try_from(limit).unwrap_or(usize::MAX).min(bytes.len())]
}

/// The maximum of bytes of a response head; a longer one is malformed.
pub const HEAD_MAX: usize = 64 << 10;

/// Fields of a response head; beyond, it is malformed.
pub const FIELDS_MAX: usize = 100;

#[cfg(test)]
mod tests;
