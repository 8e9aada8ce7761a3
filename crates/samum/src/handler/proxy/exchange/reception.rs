//! The state of receiving a response: the way that its bytes come, those that are not understood yet, and the work that
//! is left for them in a turn of the worker.

use sendfile::Cyclic;

/// Bytes that are taken of one response in a turn of the worker; the others' turns come first then.
const TURN_BYTES_MAX: u64 = 1024 * 1024;
/// Bytes that each part of a response counts for beside its own, and each line for the operator: to understand a chunk of
/// one byte takes about as long as to receive 1 KiB.
const PART_BYTES: u64 = 1024;

/// The state of receiving a response.
#[derive(Debug)]
pub(super) struct Reception {
    pub(super) way: Way,
    /// Bytes that the ring has received and that are not understood yet.
    pub(super) unread: Vec<u8>,
    /// True if the worker's memory is short: little is received at a time.
    pub(super) is_lean: bool,
    /// Bytes of memory of the beginning of a head that the client's connection is charged for.
    pub(super) charged: usize,
    /// The work that is left for it in this turn of the worker.
    pub(super) share: Share,
    /// True while it waits for another turn.
    pub(super) is_queued: bool,
}

/// The way that the bytes of a server come.
#[derive(Debug)]
pub(super) enum Way {
    /// The ring receives them.
    Ring,
    /// They are pulled into pipes, or into memory once there is a reason for that.
    Pipes,
    /// They are pulled into this memory.
    Memory {
        buffer: Cyclic,
        /// True if the turn was over before all was understood that is in the buffer.
        is_interrupted: bool,
    },
}

/// The work that a turn of the worker has left for one exchange.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Share {
    turn: u64,
    left: u64,
}

impl Reception {
    pub(super) fn new() -> Self {
        Self {
            way: Way::Ring,
            unread: Vec::new(),
            is_lean: false,
            charged: 0,
            share: Share::default(),
            is_queued: false,
        }
    }

    /// Begins anew, with another link. The share of the turn stays used, and the client stays charged.
    pub(super) fn begin(&mut self, is_pulled: bool) {
        self.way = if is_pulled { Way::Pipes } else { Way::Ring };
        self.unread.clear();
    }
}

impl Way {
    /// Returns whether the bytes are pulled past the ring.
    pub(super) const fn is_pulled(&self) -> bool {
        !matches!(self, Self::Ring)
    }

    /// Returns whether they are pulled into memory.
    pub(super) const fn is_memory(&self) -> bool {
        matches!(self, Self::Memory { .. })
    }

    /// Returns whether the turn was over before all was understood that was pulled into memory.
    pub(super) const fn is_interrupted(&self) -> bool {
        matches!(self, Self::Memory { is_interrupted: true, .. })
    }

    /// The memory into which they are pulled.
    pub(super) const fn buffer(&mut self) -> Option<&mut Cyclic> {
        match self {
            Self::Ring | Self::Pipes => None,
            Self::Memory { buffer, .. } => Some(buffer),
        }
    }

    /// Takes the memory out for as long as its bytes are understood. Nothing is pulled meanwhile.
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
    /// Returns whether something is left of the share of this turn.
    pub(super) const fn is_left(&mut self, turn: u64) -> bool {
        if self.turn != turn {
            *self = Self { turn, left: TURN_BYTES_MAX };
        }
        self.left > 0
    }

    /// A part of a response was taken that has so many bytes, framing or content. The last one may have more than
    /// what is left.
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
            // The last part may have more than what is left.
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
