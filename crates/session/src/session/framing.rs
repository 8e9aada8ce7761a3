//! The bytes of a body on their way into a stream, with the framing of their version of HTTP.

use core::ops::Range;
use std::rc::Rc;

use http1::write;
use outq::Payload as _;
use sendfile::{File, Piece, Policy, Stream, Takes};

use crate::handler::{BodySink, Produced};

/// The way in which the end of a body is marked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyFraming {
    /// The length of the body marks its end. The number is how many bytes are missing.
    Length(u64),
    /// The last chunk marks the end.
    Chunked,
    /// No bytes of the body mark its end: the head has said the length, or the end is that of the connection, of a tunnel or of a
    /// stream of HTTP/2.
    Unframed,
}

impl BodyFraming {
    /// Begins a piece of `length` bytes.
    #[inline]
    pub(super) fn begin(&mut self, length: u64, stream: &mut Stream) {
        match self {
            Self::Length(left) => *left = left.wrapping_sub(length),
            Self::Chunked => {
                let mut head = Vec::with_capacity(18);
                write::chunk_head(length, &mut head);
                stream.push(Piece::Bytes(head));
            }
            Self::Unframed => {}
        }
    }

    /// Bytes that the body may still have.
    pub(super) const fn room(self) -> u64 {
        match self {
            Self::Length(left) if left > 1 << 63 => 0,
            Self::Length(left) => left,
            Self::Chunked | Self::Unframed => u64::MAX,
        }
    }

    /// Ends a piece, which is in the stream.
    #[inline]
    pub(super) fn end(self, stream: &mut Stream) {
        if self == Self::Chunked {
            stream.push(Piece::Static(write::CHUNK_END));
        }
    }

    /// Returns true if a producer has broken its promise about the length.
    pub(super) const fn is_broken(self, produced: Produced) -> bool {
        match self {
            Self::Length(left) => {
                left > 1 << 63 || (left > 0 && matches!(produced, Produced::Ended))
            }
            Self::Chunked | Self::Unframed => false,
        }
    }
}

/// The stream, as a producer sees it.
pub(super) struct Sink<'a> {
    pub(super) stream: &'a mut Stream,
    pub(super) framing: &'a mut BodyFraming,
    /// True if the connection has other requests at the same time, or receives little.
    pub(super) is_shared: bool,
}

impl BodySink for Sink<'_> {
    fn takes(&self) -> Takes {
        self.stream.takes()
    }

    fn is_shared(&self) -> bool {
        self.is_shared
    }

    fn push(&mut self, mut piece: Piece) {
        let length = piece.len();
        if length == 0 {
            return;
        }
        // The client would mistake further bytes for the next response.
        let room = self.framing.room();
        self.framing.begin(length, self.stream);
        if room >= length {
            self.stream.push(piece);
        } else if room > 0 {
            self.stream.push(piece.split_to(room));
        }
        self.framing.end(self.stream);
    }

    fn push_file(&mut self, file: &Rc<File>, range: Range<u64>, policy: Policy) {
        let length = range.end - range.start;
        if length == 0 {
            return;
        }
        let room = self.framing.room().min(length);
        self.framing.begin(length, self.stream);
        if room > 0 {
            self.stream.push_file(file, range.start..range.start + room, policy);
        }
        self.framing.end(self.stream);
    }
}
