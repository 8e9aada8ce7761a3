//! The counters of a disk: hits, and reads by device.

use core::time::Duration;
use std::collections::HashMap;

use ring::Device;

/// The number of ranges that streams have sent from the page cache, and that had to be read, since the
/// [`Disk`](super::Disk) was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskStats {
    /// Ranges that were resident when they were sent: each is at most the rest of a turn.
    pub hits: u64,
    /// Their bytes.
    pub hit_bytes: u64,
    /// Reads that have begun.
    pub misses: u64,
    /// Bytes that reads have brought.
    pub miss_bytes: u64,
    /// Reads that have ended.
    pub ended: u64,
}

/// A device as one [`Disk`](super::Disk) uses it. The numbers of reads count since the disk was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceStats {
    /// Reads that have begun.
    pub begun: u64,
    /// Reads that have ended.
    pub ended: u64,
    /// The time from the beginning to the end of each of these, added up.
    pub time: Duration,
    /// Bytes that these have brought.
    pub bytes: u64,
    /// Streams that wait until they may read.
    pub waiting: u64,
    /// The bytes per second that the device was last seen to deliver, if it was read from for long enough.
    pub rate: Option<u64>,
}

/// The reads of a device.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reads {
    pub(super) begun: u64,
    pub(super) ended: u64,
    pub(super) time: Duration,
    pub(super) bytes: u64,
}

/// The counts of a disk.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) all: DiskStats,
    pub(super) by_device: HashMap<Device, Reads>,
}

impl Counts {
    /// A read has begun.
    pub(super) fn begin(&mut self, device: Device) {
        self.all.misses += 1;
        self.by_device.entry(device).or_default().begun += 1;
    }

    /// Counts a read that has ended: the bytes that it has brought, and the time that it took.
    pub(super) fn end(&mut self, device: Device, brought: u64, took: Duration) {
        self.all.miss_bytes += brought;
        self.all.ended += 1;
        let device = self.by_device.entry(device).or_default();
        device.ended += 1;
        device.time += took;
        device.bytes += brought;
    }
}
