//! The state of receiving a response: the way of its bytes, the bytes that were not parsed yet, and the rest of the
//! quantum of this worker turn.

use sendfile::Cyclic;

/// Bytes of one response that are handled in a worker turn; then other exchanges come first.
const TURN_BYTES_MAX: u64 = 1024 * 1024;
/// Each part of a response, and each line for the operator, uses this many bytes of the quantum in addition to its own
/// length. To parse a chunk of one byte takes about as long as to receive 1 KiB.
const PART_BYTES: u64 = 1024;

/// The state of receiving a response.
#[derive(Debug)]
pub(super) struct Reception {
    pub(super) method: ReceiveMethod,
    /// Bytes that the ring has received and that were not parsed yet.
    pub(super) unread: Vec<u8>,
    /// True if the exchange is *lean*: the worker's memory is short, so little is received at a time.
    pub(super) is_lean: bool,
    /// Bytes of memory of an incomplete head for which the client's connection is charged.
    pub(super) charged: usize,
    /// The rest of the exchange's quantum of this worker turn.
    pub(super) share: Share,
    /// True while the exchange waits for another quantum.
    pub(super) is_queued: bool,
}

/// The way of an upstream's bytes.
#[derive(Debug)]
pub(super) enum ReceiveMethod {
    /// The ring receives the bytes.
    Ring,
    /// The bytes are pulled into pipes, or into memory if a pipe cannot be used.
    Pipes,
    /// The bytes are pulled into this memory.
    Memory {
        buffer: Cyclic,
        /// True if the quantum was used up before all bytes in the buffer were parsed.
        is_interrupted: bool,
    },
}

/// The rest of the quantum of one exchange in a worker turn.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Share {
    turn: u64,
    left: u64,
}

impl Reception {
    pub(super) fn new() -> Self {
        Self {
            method: ReceiveMethod::Ring,
            unread: Vec::new(),
            is_lean: false,
            charged: 0,
            share: Share::default(),
            is_queued: false,
        }
    }

    /// Begins anew with another link. The used part of the quantum and the client's charge stay.
    pub(super) fn begin(&mut self, is_pulled: bool) {
        self.method = if is_pulled { ReceiveMethod::Pipes } else { ReceiveMethod::Ring };
        self.unread.clear();
    }
}

impl ReceiveMethod {
    /// Returns true if the bytes bypass the ring.
    pub(super) const fn is_pulled(&self) -> bool {
        !matches!(self, Self::Ring)
    }

    /// Returns true if the bytes are pulled into memory.
    pub(super) const fn is_memory(&self) -> bool {
        matches!(self, Self::Memory { .. })
    }

    /// Returns true if the quantum was used up before all bytes that were pulled into memory were parsed.
    pub(super) const fn is_interrupted(&self) -> bool {
        matches!(self, Self::Memory { is_interrupted: true, .. })
    }

    /// The memory into which the bytes are pulled.
    pub(super) const fn buffer(&mut self) -> Option<&mut Cyclic> {
        match self {
            Self::Ring | Self::Pipes => None,
            Self::Memory { buffer, .. } => Some(buffer),
        }
    }

    /// Takes the memory out while its bytes are parsed. Nothing is pulled meanwhile.
    pub(super) fn take_buffer(&mut self) -> Option<Cyclic> {
        match core::mem::replace(self, Self::Pipes) {
            Self::Memory { buffer, .. } => Some(buffer),
            other => {
                *self = other;
                None
            }
        }
    }
}

impl Share {
    /// Returns true if some of this worker turn's quantum is left.
    pub(super) const fn is_left(&mut self, turn: u64) -> bool {
        if self.turn != turn {
            *self = Self { turn, left: TURN_BYTES_MAX };
        }
        self.left > 0
    }

    /// Counts a part of a response of `bytes` bytes, framing or content. The last part may exceed the rest of the
    /// quantum.
    pub(super) const fn spend(&mut self, bytes: u64) {
        self.left = self.left.saturating_sub(bytes + PART_BYTES);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_used_up_by_bytes_or_by_parts_and_is_new_in_each_turn() {
        let mut share = Share::default();
        for (turn, bytes, expected) in [
            (1, 0, 1024),
            (2, 2, 1023),
            (3, PART_BYTES, 512),
            (4, TURN_BYTES_MAX - PART_BYTES, 1),
            // The last part may exceed the rest of the quantum.
            (5, TURN_BYTES_MAX - PART_BYTES - 1, 2),
            (6, 2 * TURN_BYTES_MAX, 1),
        ] {
            let mut parts = 0;
            while share.is_left(turn) {
                share.spend(bytes);
                parts += 1;
            }
            assert_eq!(parts, expected, "{bytes}");
        }
    }
}
