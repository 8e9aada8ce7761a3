//! The limits of the messages that a peer may send, in one place.

use http::Head;

/// The limits of the messages of a peer; beyond them it is refused.
///
/// Every limit also holds for incomplete input: a part that is already too long is refused before its
/// end arrives. `Limits` is small and meant to be made once and passed by reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The bytes of a head: empty lines before it, request line, fields, and the empty line that ends
    /// it. A longer head is a 431.
    ///
    /// Values above [`HEAD_BYTES_CEILING`](Self::HEAD_BYTES_CEILING) mean that ceiling.
    pub head_bytes_max: usize,
    /// The bytes of the request-target. A longer one is a 414. RFC 9112 §3 recommends at least 8,000.
    pub target_bytes_max: usize,
    /// Field lines in a head. More is a 431.
    pub fields_max: usize,
    /// Server: the bytes of a body that is skipped to keep the connection; chunk lines count as well. A
    /// request that announces more is delivered, and then the connection is closed. A chunked body that
    /// turns out to be longer is a 413. A decoded body has a limit of its own
    /// ([`decode_body`](crate::server::Connection::decode_body)).
    ///
    /// Client: the bytes of the content of a response.
    pub body_bytes_max: u64,
    /// The bytes of one chunk-size line with its extensions and line end. A longer line is a 400.
    pub chunk_line_bytes_max: usize,
    /// The bytes of the trailer section with the empty line that ends it. A longer section is a 431. If the
    /// section of a response is longer, its fields are left out.
    pub trailer_bytes_max: usize,
}

impl Limits {
    /// The longest head that can be allowed.
    pub const HEAD_BYTES_CEILING: usize = Head::LINES_BYTES_MAX;

    /// Room for the 8,000 bytes of target that RFC 9112 §3 recommends, and as much again for fields.
    /// The other numbers are many times what browsers and download tools send.
    pub const DEFAULT: Self = Self {
        head_bytes_max: 16 * 1024,
        target_bytes_max: 8 * 1024,
        fields_max: 100,
        body_bytes_max: http::DISCARDED_BYTES_MAX as u64,
        chunk_line_bytes_max: 256,
        trailer_bytes_max: 4 * 1024,
    };
}

const _: () = assert!(Limits::DEFAULT.head_bytes_max <= Limits::HEAD_BYTES_CEILING);
const _: () = assert!(Limits::DEFAULT.target_bytes_max < Limits::DEFAULT.head_bytes_max);

impl Default for Limits {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// Parses the beginning of `input`, which may have at most `bytes_max` bytes.
///
/// `parse` returns `None` if it needs more bytes. It never sees bytes beyond the limit, so the verdict
/// does not depend on the number of bytes that have arrived. If it needs bytes beyond the limit, the
/// result is `too_long`.
#[inline(always)]
pub(crate) fn within<'a, T, E>(
    input: &'a [u8],
    bytes_max: usize,
    too_long: E,
    parse: impl Fn(&'a [u8]) -> Result<Option<T>, E>,
) -> Result<Option<T>, E> {
    // The result is long, and is written once: where the caller wants it.
    if input.len() < bytes_max {
        return parse(input);
    }
    parse(&input[..bytes_max])?.map(Some).ok_or(too_long)
}
