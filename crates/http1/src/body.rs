//! The body of a message without its framing.
//!
//! Reading list: RFC 9112 §6.3, §7.1, §8.

use http::{Reject, Status};

use crate::chunk;
use crate::limits::Limits;
use crate::line::Line;
use crate::tolerant;

/// The reader of one body. It keeps no bytes, only its position in them.
///
/// ```text
///   Length ──────────────────────────────► end
///
///   ChunkSize ── 0 ──► Trailer ── empty line ──► end
///      │  ▲
///    n ▼  │ CR LF
///     Chunk
///
///   UntilClose: its end is the end of the connection
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Decoder {
    state: State,
    /// The bytes that the chunks still to come may have. A body with a length is judged before it begins, a body
    /// until the end of the connection while it arrives.
    allowed: u64,
}

/// The purpose of reading a body, on which it depends what counts for a limit.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// All bytes of chunks count, with their lines. Otherwise a body of one-byte chunks with long extensions would
    /// be a hundred times longer than it seems.
    Skip,
    /// Only content counts, so that a body has the same limit however it is framed.
    Decode,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Length {
        /// The bytes that have not been consumed.
        remaining: u64,
    },
    ChunkSize,
    Chunk {
        /// The bytes of data that have not been consumed; at zero, the CRLF after them is next.
        remaining: u64,
    },
    Trailer {
        /// The bytes that the trailer section may still have.
        bytes_left: usize,
    },
    UntilClose,
}

/// A finding of [`Decoder::decode`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decoded<'a> {
    /// More bytes are needed.
    Partial,
    /// Content, at least one byte.
    Data(&'a [u8]),
    /// A field of the trailer section: name and value.
    Trailer(&'a [u8], &'a [u8]),
    /// The trailer section of a response is too long, and its fields are to be left out. The end follows.
    NoTrailers,
    /// The end of the body.
    End,
}

impl Decoder {
    /// A body of `length` bytes.
    ///
    /// # Errors
    ///
    /// 413 for more than `bytes_max` bytes.
    pub(crate) fn length(length: u64, bytes_max: u64) -> Result<Self, Reject> {
        if length > bytes_max {
            return Err(TOO_LONG);
        }
        Ok(Self { state: State::Length { remaining: length }, allowed: 0 })
    }

    /// A body of chunks with at most `bytes_max` bytes.
    pub(crate) const fn chunked(bytes_max: u64) -> Self {
        Self { state: State::ChunkSize, allowed: bytes_max }
    }

    /// A body of at most `bytes_max` bytes that ends with the connection.
    pub(crate) const fn until_close(bytes_max: u64) -> Self {
        Self { state: State::UntilClose, allowed: bytes_max }
    }

    /// Returns whether the end of the connection is the end of the body.
    pub(crate) fn ends_with_connection(&self) -> bool {
        self.state == State::UntilClose
    }

    /// The number of bytes of content still to come, if only content follows and its length is known.
    pub(crate) const fn content_left(&self) -> Option<u64> {
        match self.state {
            State::Length { remaining } => Some(remaining),
            _ => None,
        }
    }

    /// Counts `n` bytes of [`content_left`](Self::content_left) as consumed.
    pub(crate) fn pass(&mut self, n: u64) {
        let State::Length { remaining } = &mut self.state else {
            panic!("content of unknown length was passed over");
        };
        *remaining = remaining.checked_sub(n).expect("no more content than is to come");
    }

    /// Passes over content and lines, which both count, up to the end of `input` or of the body.
    /// Returns how many bytes are consumed, and whether the body has ended.
    pub(crate) fn skip(&mut self, input: &[u8], limits: &Limits) -> Result<(usize, bool), Reject> {
        let (len, found) = self.read_on(input, limits, Purpose::Skip, None)?;
        Ok((len, found == Decoded::End))
    }

    /// Reads on, up to the next piece of content or the next trailer. Returns how many bytes are consumed, content
    /// included. Only content counts.
    pub(crate) fn decode<'a>(
        &mut self,
        input: &'a [u8],
        limits: &Limits,
    ) -> Result<(usize, Decoded<'a>), Reject> {
        self.read_on(input, limits, Purpose::Decode, None)
    }

    /// As `decode`, for the body of a response, between whose pieces there may be malformed lines with only one
    /// meaning. `is_odd` becomes true if there was one.
    pub(crate) fn decode_response<'a>(
        &mut self,
        input: &'a [u8],
        limits: &Limits,
        is_odd: &mut bool,
    ) -> Result<(usize, Decoded<'a>), Reject> {
        self.read_on(input, limits, Purpose::Decode, Some(is_odd))
    }

    /// Inlined into its callers, so that skipping, which stops at no piece, costs as little as possible. Lines are
    /// read tolerantly if `is_odd` is given.
    #[inline(always)]
    fn read_on<'a>(
        &mut self,
        input: &'a [u8],
        limits: &Limits,
        purpose: Purpose,
        mut is_odd: Option<&mut bool>,
    ) -> Result<(usize, Decoded<'a>), Reject> {
        let mut at = 0;
        loop {
            let rest = &input[at..];
            match &mut self.state {
                State::Length { remaining: 0 } => return Ok((at, Decoded::End)),
                State::Chunk { remaining: 0 } => {
                    let end = chunk::data_end(rest)
                        .or_else(|error| tolerate(error, &mut is_odd, || tolerant::data_end(rest)));
                    let Some(len) = end? else {
                        return Ok((at, Decoded::Partial));
                    };
                    self.state = State::ChunkSize;
                    at += len;
                }
                State::Length { remaining } | State::Chunk { remaining } => {
                    let data = &rest[..clamp(*remaining, rest.len())];
                    *remaining -= data.len() as u64;
                    at += data.len();
                    if purpose == Purpose::Decode || data.is_empty() {
                        return Ok((at, found(data)));
                    }
                }
                State::ChunkSize => {
                    let line = chunk::size_line(rest, limits).or_else(|error| {
                        tolerate(error, &mut is_odd, || tolerant::size_line(rest, limits))
                    });
                    let Some((size, len)) = line? else {
                        return Ok((at, Decoded::Partial));
                    };
                    self.state = if size == 0 {
                        State::Trailer { bytes_left: limits.trailer_bytes_max }
                    } else {
                        self.count(size, len, purpose)?;
                        State::Chunk { remaining: size }
                    };
                    at += len;
                }
                State::Trailer { bytes_left } => {
                    let line = chunk::trailer(rest, *bytes_left);
                    let (next, field) = match line {
                        Ok(None) => return Ok((at, Decoded::Partial)),
                        Ok(Some(Line::Field { name_end, value, next })) => {
                            let field = Decoded::Trailer(&rest[..name_end], &rest[value]);
                            match rest.get(next) {
                                // The next line may be a continuation of this one, and then both are left out.
                                None if is_odd.is_some() => return Ok((at, Decoded::Partial)),
                                Some(b' ' | b'\t') if is_odd.is_some() => (next, None),
                                _ => (next, Some(field)),
                            }
                        }
                        Ok(Some(Line::End { next })) => (next, Some(Decoded::End)),
                        Err(error) => {
                            let read = || tolerant::trailer(rest, *bytes_left);
                            let line = tolerate(error, &mut is_odd, read);
                            // The content is whole. No further response is read after the section.
                            if matches!(&line, Err(error) if error.status == TRAILERS_TOO_LONG)
                                && is_odd.is_some()
                            {
                                self.state = State::Length { remaining: 0 };
                                return Ok((input.len(), Decoded::NoTrailers));
                            }
                            match line? {
                                None => return Ok((at, Decoded::Partial)),
                                Some((next, is_end)) => (next, is_end.then_some(Decoded::End)),
                            }
                        }
                    };
                    *bytes_left -= next;
                    at += next;
                    match field {
                        Some(Decoded::End) => self.state = State::Length { remaining: 0 },
                        Some(field) if purpose == Purpose::Decode => return Ok((at, field)),
                        _ => {}
                    }
                }
                State::UntilClose => {
                    if self.allowed == 0 && !rest.is_empty() {
                        return Err(TOO_LONG);
                    }
                    let data = &rest[..clamp(self.allowed, rest.len())];
                    self.allowed -= data.len() as u64;
                    return Ok((at + data.len(), found(data)));
                }
            }
        }
    }

    /// Counts a chunk of `size` bytes after a line of `line_len` bytes.
    fn count(&mut self, size: u64, line_len: usize, purpose: Purpose) -> Result<(), Reject> {
        let line_ends = 2;
        let counted = match purpose {
            Purpose::Skip => size.checked_add(line_len as u64 + line_ends),
            Purpose::Decode => Some(size),
        };
        let left = counted.and_then(|counted| self.allowed.checked_sub(counted));
        self.allowed = left.ok_or(TOO_LONG)?;
        Ok(())
    }
}

/// The result of `read` for a line that was refused for this reason, if `is_odd` is given to note it.
#[cold]
fn tolerate<T>(
    error: Reject,
    is_odd: &mut Option<&mut bool>,
    read: impl FnOnce() -> Result<T, Reject>,
) -> Result<T, Reject> {
    let Some(is_odd) = is_odd else { return Err(error) };
    **is_odd = true;
    read()
}

/// The status of the [fault](chunk::trailer) of a trailer section that is too long.
const TRAILERS_TOO_LONG: Status = Status::HeaderFieldsTooLarge;
const TOO_LONG: Reject = Reject::new(Status::ContentTooLarge, "a body that is too long");

fn found(data: &[u8]) -> Decoded<'_> {
    if data.is_empty() { Decoded::Partial } else { Decoded::Data(data) }
}

/// The smaller of `remaining` and `available`.
fn clamp(remaining: u64, available: usize) -> usize {
    usize::try_from(remaining).map_or(available, |remaining| remaining.min(available))
}
