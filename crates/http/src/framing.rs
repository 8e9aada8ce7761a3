//! The length of the content after the head of a message, as far as the head gives it.
//!
//! Reading list: RFC 9110 §6.4, §8.6, §9.3.6.

/// The bytes of a request's content that a server drops if nothing uses them, so that the client reads the response. After
/// them the connection ends with HTTP/1, and the stream with HTTP/2.
pub const DISCARDED_BYTES_MAX: u32 = 1024 * 1024;

/// The content that follows the head of a request.
///
/// The parser of each version of HTTP sets it: HTTP/1 by `Content-Length` and `Transfer-Encoding`, HTTP/2 also by
/// the end of the stream. So no other code has to know the fields by which a version frames its messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Framing {
    /// No content; also with `Content-Length: 0`.
    #[default]
    None,
    /// Content of this many bytes, at least one.
    Length(u64),
    /// Content whose length is known only at its end.
    Unknown,
    /// No content, and bytes of another protocol after the head if the server agrees to it.
    Tunnel,
}

impl Framing {
    /// The framing of a message with this many bytes of content.
    #[must_use]
    pub const fn of_length(length: u64) -> Self {
        match length {
            0 => Self::None,
            length => Self::Length(length),
        }
    }

    /// Returns whether content follows the head.
    #[must_use]
    #[inline]
    pub const fn has_content(self) -> bool {
        matches!(self, Self::Length(_) | Self::Unknown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_follows_if_it_has_a_length_or_an_unknown_one() {
        for (framing, has_content) in [
            (Framing::default(), false),
            (Framing::of_length(0), false),
            (Framing::of_length(1), true),
            (Framing::of_length(u64::MAX), true),
            (Framing::Unknown, true),
            (Framing::Tunnel, false),
        ] {
            assert_eq!(framing.has_content(), has_content, "{framing:?}");
        }
        assert_eq!(Framing::of_length(5), Framing::Length(5));
    }
}
