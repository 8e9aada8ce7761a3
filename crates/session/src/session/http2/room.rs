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
//!
//! Reads go on until they end, also those of streams that the client has reset. They count until then, and so do their lanes
//! ([`READING_MAX`]).

use std::collections::BTreeMap;

use ring::Device;
use sendfile::{Allowance, Stream};

/// Bytes of copies that lanes have not framed: twice the bytes that a stream copies in one step.
pub(super) const COPIED_BYTES_MAX: u64 = 128 * 1024;
/// Bytes that lanes read, or have read and not framed, whatever windows their client gives them.
pub(super) const READ_BYTES_MAX: u64 = 64 * 1024;
/// Lanes with reads in flight, with those that have ended: a client that resets its streams has no more of them than another
/// one. A device has three quarters of what other devices leave, as of the bytes. At this limit a lane that reads nothing
/// waits as if there were no room.
pub(super) const READING_MAX: u64 = http2::limits::STREAMS_MAX as u64;
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Reading {
    /// True if they count as bytes that are read ahead.
    pub(super) is_ahead: bool,
    /// The device of those in flight.
    pub(super) device: Option<Device>,
}

/// The reads in flight of one lane; it has some if there are bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Flight {
    /// Bytes of reads in flight.
    pub(super) bytes: u64,
    pub(super) reading: Reading,
}

/// The reads in flight of all lanes, by the bounds for which they count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Flights {
    /// Their bytes, and the number of their lanes, which is not 0.
    all: BTreeMap<Reading, (u64, u64)>,
    lanes: u64,
}

impl Flights {
    /// Adds the reads of a lane.
    pub(super) fn add(&mut self, flight: Flight) {
        if flight.bytes == 0 {
            return;
        }
        let (bytes, lanes) = self.all.entry(flight.reading).or_default();
        *bytes += flight.bytes;
        *lanes += 1;
        self.lanes += 1;
    }

    /// Subtracts the reads of a lane, which were added.
    pub(super) fn subtract(&mut self, flight: Flight) {
        if flight.bytes == 0 {
            return;
        }
        let (bytes, lanes) = self.all.get_mut(&flight.reading).expect("they were added");
        *bytes -= flight.bytes;
        *lanes -= 1;
        if *lanes == 0 {
            self.all.remove(&flight.reading);
        }
        self.lanes -= 1;
    }

    /// The bytes of all reads that count for a bound.
    pub(super) fn bytes(&self, reading: Reading) -> u64 {
        self.all.get(&reading).map_or(0, |(bytes, _)| *bytes)
    }

    /// The number of lanes that have reads in flight.
    pub(super) const fn lanes(&self) -> u64 {
        self.lanes
    }

    /// Returns true if a lane that has no read in flight may begin one of this device.
    pub(super) fn admit(&self, device: Option<Device>) -> bool {
        let of =
            |is_ahead| self.all.get(&Reading { is_ahead, device }).map_or(0, |(_, lanes)| *lanes);
        let here = of(false) + of(true);
        room_of_device(READING_MAX, self.lanes - here, here) > 0
    }
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
/// device and the lane that asks have used `own`. The same holds for numbers of lanes.
pub(super) const fn room_of_device(all: u64, others: u64, own: u64) -> u64 {
    // A bound that has become smaller may be exceeded by what was read before.
    (all.saturating_sub(others) / 4 * 3).saturating_sub(own)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_that_read_from_a_device_leave_some_to_others() {
        let of = |device, is_ahead| Flight {
            bytes: 1,
            reading: Reading { is_ahead, device: Some(Device::of(device)) },
        };
        let (mut flights, mut lanes) = (Flights::default(), Vec::new());
        for device in 1..=3 {
            let mut begun = 0;
            while flights.admit(Some(Device::of(device))) {
                flights.add(of(device, begun % 2 == 0));
                begun += 1;
            }
            lanes.push(begun);
        }
        assert_eq!(lanes, [75, 18, 3]);
        assert!(flights.lanes() <= READING_MAX);
    }

    #[test]
    fn reads_in_flight_are_summed_by_their_bounds() {
        let of = |bytes, is_ahead| Flight { bytes, reading: Reading { is_ahead, device: None } };
        let mut flights = Flights::default();
        for flight in [of(1, true), of(2, true), of(4, false), of(0, false)] {
            flights.add(flight);
        }
        let sums = |flights: &Flights| {
            let [ahead, others] = [true, false].map(|it| flights.bytes(of(0, it).reading));
            (ahead, others, flights.lanes())
        };
        assert_eq!(sums(&flights), (3, 4, 3));
        flights.subtract(of(1, true));
        flights.subtract(of(4, false));
        assert_eq!(sums(&flights), (2, 0, 1));
        flights.subtract(of(0, true));
        flights.subtract(of(2, true));
        assert_eq!(flights, Flights::default());
    }

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
