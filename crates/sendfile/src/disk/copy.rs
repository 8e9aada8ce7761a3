//! Copies of resident bytes into buffers, for transports that send only from memory.

use core::ops::Range;

use ring::{Buffer, Ring, Time};

use super::{Disk, Owner, STREAM_TURN_MAX, URGENT_SHARE};
use crate::file::File;
use crate::stream_queue::Wait;

/// A copy that a stream asks for.
#[derive(Debug)]
pub(crate) struct CopyRequest<'a> {
    pub(crate) owner: Owner,
    pub(crate) file: &'a File,
    /// The range of the file; the copy may have fewer bytes.
    pub(crate) range: Range<u64>,
    /// Whether unknown blocks are looked at: see [`File::resident`].
    pub(crate) look: bool,
    /// The time at which the stream's turn to read began. The copy may begin a new one.
    pub(crate) turn: &'a mut Time,
    /// True if the stream can send nothing until it has this copy: see [`ReadRequest`](super::ReadRequest).
    pub(crate) is_urgent: bool,
}

impl Disk {
    /// Copies resident bytes from the start of a range on, with the worker's thread and without a wait. `None` if no byte
    /// is resident, or if memory is short or other streams wait; the caller then reads. An urgent copy whose turn has come
    /// does not give way.
    pub(crate) fn copy(&mut self, ring: &Ring, request: CopyRequest<'_>) -> Option<Buffer> {
        let CopyRequest { owner, file, range, look, turn, is_urgent } = request;
        let now = ring.now();
        let is_short = self.pool.available() <= self.pool.count().div_ceil(URGENT_SHARE);
        if (is_short || !self.queue.is_empty()) && !(is_urgent && self.may_copy(owner, turn, now)) {
            return None;
        }
        let found = file.copyable(ring, range.start, range.end - range.start, now, look);
        if found == 0 {
            return None;
        }
        let mut buffer = self.take_buffer(found)?;
        let copied = file.copy(ring, range.start, &mut buffer);
        if copied == 0 {
            return None;
        }
        self.note_hit(copied);
        Some(buffer)
    }

    /// Returns true if the stream may use a buffer now. As for reads, other streams come first after `STREAM_TURN_MAX`.
    fn may_copy(&mut self, owner: Owner, turn: &mut Time, now: Time) -> bool {
        if !self.pool.has_part() {
            return false;
        }
        if now.since(*turn) >= STREAM_TURN_MAX {
            if !self.has_turn_now(owner, Wait::First) {
                return false;
            }
            *turn = now;
        }
        true
    }
}
