//! The bytes of files that the lanes of one connection may have in memory. Reads count from the moment when they begin.
//!
//! There are three bounds, so that no lane waits for another one that cannot go on:
//!
//! - *Copies* of resident bytes. Beyond the bound a lane in its turn copies only the bytes of its next frame, so it can
//!   always go on.
//! - *Reads* of lanes, whatever windows their client gives. A device has three quarters of what other devices leave, so
//!   that a device that does not answer leaves room for others. A lane that finds no room waits, and lanes that wait
//!   for their client give back what they have read.
//! - Reads *ahead*, of lanes for which the windows of the client have room for all that they read. The lanes share what heads
//!   and bodies of requests leave. A lane that is the only one with a file may use its whole window.

use ring::Device;
use sendfile::{Allowance, Stream};

/// Bytes of copies that lanes have not framed: twice the bytes that a stream copies in one step.
pub(super) const COPIED_BYTES_MAX: u64 = 128 * 1024;
/// Bytes that lanes read, or have read and not framed, whatever windows their client gives them.
pub(super) const READ_BYTES_MAX: u64 = 64 * 1024;
/// Bytes of both kinds.
pub(super) const FILE_BYTES_MAX: u64 = COPIED_BYTES_MAX + READ_BYTES_MAX;

const _: () = assert!(room_of_device(READ_BYTES_MAX, 0, 0) >= Allowance::READ_MIN);

/// Bytes of files in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct FileBytes {
    /// Resident bytes that were copied, and not framed.
    pub(super) copied: u64,
    /// Bytes of reads in flight, and bytes that were read and not framed.
    pub(super) read: u64,
    /// The same, of lanes that read ahead.
    pub(super) ahead: u64,
}

/// The limit against which the reads of a lane count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Reading {
    /// True if they count as bytes that are read ahead.
    pub(super) is_ahead: bool,
    /// The device of those in flight.
    pub(super) device: Option<Device>,
}

impl Reading {
    /// The count of `bytes` of reads.
    pub(super) const fn count(self, bytes: u64) -> FileBytes {
        let (read, ahead) = if self.is_ahead { (0, bytes) } else { (bytes, 0) };
        FileBytes { copied: 0, read, ahead }
    }
}

impl FileBytes {
    /// The bytes of one lane.
    pub(super) fn of(stream: &Stream, reading: Reading) -> Self {
        let copied = stream.copied();
        Self { copied, ..reading.count(stream.reading() + stream.held() - copied) }
    }

    /// All bytes that are read or were read.
    pub(super) const fn reads(self) -> u64 {
        self.read + self.ahead
    }

    pub(super) const fn add(&mut self, other: Self) {
        self.copied += other.copied;
        self.read += other.read;
        self.ahead += other.ahead;
    }

    pub(super) const fn subtract(&mut self, other: Self) {
        self.copied -= other.copied;
        self.read -= other.read;
        self.ahead -= other.ahead;
    }

    /// Panics unless the sum of all lanes is within its bounds, `ahead_max` bytes that are read ahead. The one lane that
    /// reads most ahead has read `largest` bytes.
    pub(super) fn check(self, largest: u64, ahead_max: u64) {
        assert!(self.copied <= COPIED_BYTES_MAX, "copies are bounded: {self:?}");
        assert!(self.read <= READ_BYTES_MAX, "reads are bounded: {self:?}");
        assert!(self.ahead - largest <= ahead_max, "reads ahead are bounded: {self:?}");
    }
}

/// The bytes that further reads of a device may bring, if all reads may bring `all`. Others have used `others`, and the
/// device and the lane that asks have used `own`.
pub(super) const fn room_of_device(all: u64, others: u64, own: u64) -> u64 {
    // A bound that has become smaller may be exceeded by what was read before.
    (all.saturating_sub(others) / 4 * 3).saturating_sub(own)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_leaves_room_for_others() {
        for (all, others, own, expected) in [
            (64, 0, 0, 48),
            (64, 0, 20, 28),
            (64, 0, 48, 0),
            (64, 0, 60, 0),
            (64, 48, 0, 12),
            (64, 60, 0, 3),
            (64, 64, 0, 0),
            (64, 80, 0, 0),
        ] {
            assert_eq!(room_of_device(all, others, own), expected, "{others} and {own} of {all}");
        }
    }
}
