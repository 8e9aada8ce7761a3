//! The state of receiving a response: the work that is left for it in a turn of the worker.

/// Bytes that are taken of one response in a turn of the worker; the others' turns come first then.
const TURN_BYTES_MAX: u64 = 1024 * 1024;
/// Bytes that each part of a response counts for beside its own: to understand a chunk of one byte takes about as long
/// as to receive 1 KiB.
const PART_BYTES: u64 = 1024;

/// The work that a turn of the worker has left for one exchange.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Share {
    turn: u64,
    left: u64,
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
