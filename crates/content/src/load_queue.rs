//! Decides which loads may run now.
//!
//! A load has descriptors open while it runs. Only a limited number of loads run at the same time, and the others wait
//! in a queue, so a load never fails for lack of descriptors. The descriptor of a large file stays open as long as the
//! response. So a load that finds a large file is *parked* until there is room for it. Loads of small files need their
//! descriptors only for a moment, and overtake it.

use core::time::Duration;
use std::collections::VecDeque;

use ring::{Device, Gate, Key, Time};

/// The maximum number of loads that wait for a slot: 1,024 connections with 64 requests each. A further request gets a
/// 503.
const WAITING_MAX: usize = 64 * 1024;
/// The maximum for one device, so that a device which does not answer leaves room in the queue to
/// others: one load for each of 16,384 connections.
const WAITING_OF_DEVICE_MAX: usize = WAITING_MAX / 4;
/// The maximum memory of all loads, in bytes; beyond it a request gets a 503. A load goes on even after the connection
/// that asked for it was closed.
const BYTES_MAX: usize = 16 * 1024 * 1024;
/// The time between two looks at parked loads. They are polled because the end of a response makes
/// no event here.
const PARKED_LOOK: Duration = Duration::from_millis(10);
/// The time after which a parked load continues without room for its files; only one load does so
/// in this time. Otherwise a deadlock is possible: earlier answers on the same connection may hold the descriptors and
/// wait for this load.
const PARKED_MAX: Duration = Duration::from_millis(100);

/// The running loads and the waiting loads.
#[derive(Debug)]
pub(super) struct LoadQueue {
    /// The loads that run, and the loads that wait for a slot, by device.
    gate: Gate<Key>,
    /// Loads that wait for room for their large files, the oldest first.
    parked: VecDeque<Parked>,
    /// The time at which the last load went on without room.
    last_overdue: Time,
    /// Memory of all loads, in bytes.
    bytes: usize,
}

/// A load that waits for room.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parked {
    pub(super) load: Key,
    /// The number of large files that the load will keep open.
    pub(super) files: usize,
    pub(super) since: Time,
}

impl LoadQueue {
    pub(super) const fn new(slots: usize) -> Self {
        Self {
            gate: Gate::new(slots),
            parked: VecDeque::new(),
            last_overdue: Time::from_nanos(0),
            bytes: 0,
        }
    }

    /// Returns true if no further load of a device may begin.
    pub(super) fn is_full(&self, device: Device) -> bool {
        self.gate.waiting() + self.parked.len() >= WAITING_MAX
            || self.gate.waiting_for(device) >= WAITING_OF_DEVICE_MAX
            || self.bytes >= BYTES_MAX
    }

    /// Counts the memory of a new load.
    pub(super) const fn charge(&mut self, bytes: usize) {
        self.bytes += bytes;
    }

    /// Subtracts the memory of a load that has ended.
    pub(super) const fn refund(&mut self, bytes: usize) {
        self.bytes -= bytes;
    }

    /// Takes a slot for a load of a device. If none is free, puts the load into the queue and
    /// returns false.
    pub(super) fn enter(&mut self, device: Device, load: Key, now: Time) -> bool {
        self.gate.enter(device, load, now)
    }

    /// Gives the slot of a load back. Call [`next`](Self::next) afterwards.
    pub(super) fn leave(&mut self, device: Device, now: Time) {
        self.gate.leave(device, now);
    }

    /// The next load that has a slot from now on.
    pub(super) fn next(&mut self, now: Time) -> Option<Key> {
        self.gate.next(now)
    }

    /// Takes a load out of the queue; returns true if it was there.
    pub(super) fn withdraw(&mut self, device: Device, load: Key) -> bool {
        self.gate.withdraw(device, &load)
    }

    pub(super) fn park(&mut self, parked: Parked) {
        self.parked.push_back(parked);
    }

    pub(super) fn first_parked(&self) -> Option<Parked> {
        self.parked.front().copied()
    }

    /// Returns true if a load may continue without room.
    pub(super) fn is_overdue(&self, parked: Parked, now: Time) -> bool {
        now.since(parked.since.max(self.last_overdue)) >= PARKED_MAX
    }

    /// Records that the first parked load continues without room.
    pub(super) const fn let_overdue_go(&mut self, now: Time) {
        self.last_overdue = now;
    }

    /// Removes the first parked load, which continues.
    pub(super) fn unpark(&mut self) {
        self.parked.pop_front();
    }

    /// The time of the next look at parked loads.
    pub(super) fn next_look(&self, now: Time) -> Option<Time> {
        (!self.parked.is_empty()).then(|| now + PARKED_LOOK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ring::Slab;

    #[test]
    fn places_pass_from_load_to_load_in_order() {
        let mut keys = Slab::new();
        let [a, b, c, d, other] = [(); 5].map(|()| keys.insert(()));
        let (disk, now) = (Device::of(1), Time::default());
        let mut queue = LoadQueue::new(4);
        let mut enter = |key| queue.enter(disk, key, now);
        assert_eq!([a, b, c, d].map(&mut enter), [true, false, false, false]);
        assert!(queue.enter(Device::of(2), other, now), "another device");
        assert!(queue.withdraw(disk, d) && !queue.withdraw(disk, d) && !queue.withdraw(disk, a));
        assert!(!queue.enter(disk, d, now));
        queue.leave(disk, now);
        assert_eq!([(); 3].map(|()| queue.next(now)), [Some(b), Some(c), None]);
        queue.leave(disk, now);
        assert_eq!([(); 2].map(|()| queue.next(now)), [Some(d), None]);
        [(); 2].iter().for_each(|()| queue.leave(disk, now));
        assert_eq!(queue.next(now), None);
        assert!(queue.enter(disk, a, now), "a slot is free again");
    }
}
