//! Frames: their heads, and the payloads of short ones.
//!
//! Reading list: RFC 9113 §4, §6; RFC 9218 §7.1 (PRIORITY_UPDATE).
//!
//! ```text
//!   length: 24 bits | type: 8 | flags: 8 | reserved: 1 | stream: 31 | payload: length bytes
//! ```

use alloc::vec::Vec;

use crate::fault::ErrorCode;

/// The bytes of the head of a frame.
pub const HEAD_LEN: usize = 9;

/// The bytes with which a client begins (RFC 9113 §3.4).
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The flags that have a meaning.
pub mod flag {
    /// SETTINGS, PING: it acknowledges one of the other side.
    pub const ACK: u8 = 0x1;
    /// DATA, HEADERS: the sender's last of the stream.
    pub const END_STREAM: u8 = 0x1;
    /// HEADERS, CONTINUATION: the last of its header block.
    pub const END_HEADERS: u8 = 0x4;
    /// DATA, HEADERS: the payload begins with the length of padding, and ends with padding.
    pub const PADDED: u8 = 0x8;
    /// HEADERS: a priority of RFC 7540 is in front of the block.
    pub const PRIORITY: u8 = 0x20;
}

/// The type of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// DATA
    Data,
    /// HEADERS
    Headers,
    /// PRIORITY, which has no effect (RFC 9113 §5.3.2)
    Priority,
    /// RST_STREAM
    ResetStream,
    /// SETTINGS
    Settings,
    /// PUSH_PROMISE, which no client may send
    PushPromise,
    /// PING
    Ping,
    /// GOAWAY
    GoAway,
    /// WINDOW_UPDATE
    WindowUpdate,
    /// CONTINUATION
    Continuation,
    /// PRIORITY_UPDATE (RFC 9218)
    PriorityUpdate,
    /// Any other type, which is ignored (RFC 9113 §5.5).
    Unknown(u8),
}

impl Kind {
    /// The type with this number.
    #[must_use]
    pub const fn of_number(number: u8) -> Self {
        match number {
            0x0 => Self::Data,
            0x1 => Self::Headers,
            0x2 => Self::Priority,
            0x3 => Self::ResetStream,
            0x4 => Self::Settings,
            0x5 => Self::PushPromise,
            0x6 => Self::Ping,
            0x7 => Self::GoAway,
            0x8 => Self::WindowUpdate,
            0x9 => Self::Continuation,
            0x10 => Self::PriorityUpdate,
            other => Self::Unknown(other),
        }
    }

    /// The number of the type.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::Data => 0x0,
            Self::Headers => 0x1,
            Self::Priority => 0x2,
            Self::ResetStream => 0x3,
            Self::Settings => 0x4,
            Self::PushPromise => 0x5,
            Self::Ping => 0x6,
            Self::GoAway => 0x7,
            Self::WindowUpdate => 0x8,
            Self::Continuation => 0x9,
            Self::PriorityUpdate => 0x10,
            Self::Unknown(other) => other,
        }
    }
}

/// The head of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHead {
    /// The bytes of the payload, below 2^24.
    pub length: u32,
    /// The type.
    pub kind: Kind,
    /// The flags: see [`flag`].
    pub flags: u8,
    /// The stream, below 2^31; zero is the connection.
    pub stream: u32,
}

impl FrameHead {
    /// Reads the head at the beginning of `bytes`; `None` if there are too few.
    #[inline]
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let &[a, b, c, kind, flags, d, e, f, g] = bytes.first_chunk::<HEAD_LEN>()?;
        Some(Self {
            length: u32::from_be_bytes([0, a, b, c]),
            kind: Kind::of_number(kind),
            flags,
            stream: u31([d, e, f, g]),
        })
    }

    /// The head as it is sent.
    #[inline]
    #[must_use]
    pub const fn to_bytes(self) -> [u8; HEAD_LEN] {
        let [_, a, b, c] = self.length.to_be_bytes();
        let [d, e, f, g] = self.stream.to_be_bytes();
        [a, b, c, self.kind.number(), self.flags, d, e, f, g]
    }

    /// Returns whether a flag is set.
    #[must_use]
    pub const fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// The lower 31 bits of a number; the highest has no meaning.
pub(crate) const fn u31(bytes: [u8; 4]) -> u32 {
    u32::from_be_bytes(bytes) & 0x7fff_ffff
}

/// Appends a frame with a short payload.
pub(crate) fn push(kind: Kind, flags: u8, stream: u32, payload: &[u8], out: &mut Vec<u8>) {
    let length = u32::try_from(payload.len()).unwrap_or_default();
    out.extend_from_slice(&FrameHead { length, kind, flags, stream }.to_bytes());
    out.extend_from_slice(payload);
}

/// Appends a RST_STREAM.
pub(crate) fn push_reset(stream: u32, code: ErrorCode, out: &mut Vec<u8>) {
    push(Kind::ResetStream, 0, stream, &code.number().to_be_bytes(), out);
}

/// Appends a WINDOW_UPDATE.
pub(crate) fn push_window(stream: u32, increment: u32, out: &mut Vec<u8>) {
    push(Kind::WindowUpdate, 0, stream, &increment.to_be_bytes(), out);
}

/// Appends a GOAWAY with a text for the reader of traces.
pub(crate) fn push_goaway(last: u32, code: ErrorCode, text: &str, out: &mut Vec<u8>) {
    let mut payload = Vec::with_capacity(8 + text.len());
    payload.extend_from_slice(&last.to_be_bytes());
    payload.extend_from_slice(&code.number().to_be_bytes());
    payload.extend_from_slice(text.as_bytes());
    push(Kind::GoAway, 0, 0, &payload, out);
}

/// Appends a header block in frames whose payloads have at most `frame_bytes_max` bytes.
pub(crate) fn push_block(
    stream: u32,
    block: &[u8],
    end_stream: bool,
    frame_bytes_max: u32,
    out: &mut Vec<u8>,
) {
    let end_stream = if end_stream { flag::END_STREAM } else { 0 };
    let (mut kind, mut rest) = (Kind::Headers, block);
    loop {
        let len = rest.len().min(frame_bytes_max as usize);
        let (payload, behind) = rest.split_at(len);
        let end_headers = if behind.is_empty() { flag::END_HEADERS } else { 0 };
        let flags = if kind == Kind::Headers { end_stream | end_headers } else { end_headers };
        push(kind, flags, stream, payload, out);
        if behind.is_empty() {
            return;
        }
        (kind, rest) = (Kind::Continuation, behind);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use proptest::prelude::*;

    #[test]
    fn numbers_name_their_kinds() {
        for number in 0..=u8::MAX {
            assert_eq!(Kind::of_number(number).number(), number);
        }
    }

    #[test]
    fn long_blocks_are_continued() {
        for (len, kinds) in [
            (0, vec![(Kind::Headers, 0, 0x5)]),
            (10, vec![(Kind::Headers, 10, 0x5)]),
            (
                25,
                vec![
                    (Kind::Headers, 10, 0x1),
                    (Kind::Continuation, 10, 0),
                    (Kind::Continuation, 5, 0x4),
                ],
            ),
        ] {
            let mut out = Vec::new();
            push_block(3, &vec![7; len], true, 10, &mut out);
            let mut rest = &out[..];
            for (kind, length, flags) in kinds {
                let head = FrameHead::parse(rest).unwrap();
                assert_eq!(head, FrameHead { length, kind, flags, stream: 3 });
                rest = &rest[HEAD_LEN + length as usize..];
            }
            assert_eq!(rest, b"");
        }
    }

    proptest! {
        #[test]
        fn heads_come_back(length in 0u32..1 << 24, kind: u8, flags: u8, stream in 0u32..1 << 31) {
            let head = FrameHead { length, kind: Kind::of_number(kind), flags, stream };
            let mut bytes = head.to_bytes();
            prop_assert_eq!(FrameHead::parse(&bytes), Some(head));
            bytes[5] |= 0x80;
            prop_assert_eq!(FrameHead::parse(&bytes), Some(head));
            prop_assert_eq!(FrameHead::parse(&bytes[..8]), None);
        }
    }
}
