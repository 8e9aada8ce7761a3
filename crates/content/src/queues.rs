//! Queues of background work on files, one for each device.
//!
//! Nothing waits for such work: the hash of a file, the layout of a film. A device that does not answer delays only the
//! work of its own queue, and may have at most a part of the room in the queues. The devices take turns.

use core::ops::Bound;
use std::collections::{BTreeMap, VecDeque};

use ring::Device;

/// Waiting work, in a queue for each device.
#[derive(Debug)]
pub(super) struct Queues<T> {
    /// No queue is empty.
    queues: BTreeMap<Device, VecDeque<T>>,
    /// The number of entries in all queues.
    len: usize,
    max: usize,
    of_device_max: usize,
    /// The device that last had its turn.
    last: Device,
}

impl<T> Queues<T> {
    /// Empty queues, with room for `max` entries in all of them and for `of_device_max` in that of one device.
    pub(super) fn new(max: usize, of_device_max: usize) -> Self {
        Self { queues: BTreeMap::new(), len: 0, max, of_device_max, last: Device::default() }
    }

    /// Returns true if there is room for more work on a device.
    fn has_room(&self, device: Device) -> bool {
        let of_device = self.queues.get(&device).map_or(0, VecDeque::len);
        self.len < self.max && of_device < self.of_device_max
    }

    /// Adds work to the queue of a device; returns false if there is no room.
    pub(super) fn push(&mut self, device: Device, work: T) -> bool {
        let has_room = self.has_room(device);
        if has_room {
            self.queues.entry(device).or_default().push_back(work);
            self.len += 1;
        }
        has_room
    }

    /// The next device in turn that has work, and of which more may begin now.
    pub(super) fn next_device(&self, may_begin: impl Fn(Device) -> bool) -> Option<Device> {
        let behind = self.queues.range((Bound::Excluded(self.last), Bound::Unbounded));
        let before = self.queues.range(..=self.last);
        let mut devices = behind.chain(before).map(|(device, _)| *device);
        devices.find(|device| may_begin(*device))
    }

    /// Gives a device its turn: the next time, others come before it.
    pub(super) const fn begin_turn(&mut self, device: Device) {
        self.last = device;
    }

    /// The first work in the queue of a device.
    pub(super) fn first(&self, device: Device) -> Option<&T> {
        self.queues.get(&device)?.front()
    }

    /// Takes the first work out of the queue of a device.
    pub(super) fn pop(&mut self, device: Device) -> Option<T> {
        let queue = self.queues.get_mut(&device)?;
        let first = queue.pop_front();
        self.len -= usize::from(first.is_some());
        if queue.is_empty() {
            self.queues.remove(&device);
        }
        first
    }

    /// Takes all work out of the queue of a device.
    pub(super) fn take_all(&mut self, device: Device) -> VecDeque<T> {
        let queue = self.queues.remove(&device).unwrap_or_default();
        self.len -= queue.len();
        queue
    }

    /// Takes all work out of all queues.
    pub(super) fn clear(&mut self) {
        self.queues.clear();
        self.len = 0;
    }

    #[cfg(test)]
    fn check(&self) {
        assert!(self.queues.values().all(|queue| !queue.is_empty()));
        assert!(self.queues.values().all(|queue| queue.len() <= self.of_device_max));
        assert_eq!(self.queues.values().map(VecDeque::len).sum::<usize>(), self.len);
        assert!(self.len <= self.max);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const A: Device = Device::of(1);
    const B: Device = Device::of(2);
    const C: Device = Device::of(3);

    #[test]
    fn devices_take_turns_and_each_queue_is_in_order() {
        let mut queues = Queues::new(10, 10);
        for (device, work) in [(A, 1), (A, 2), (B, 3), (C, 4), (A, 5)] {
            assert!(queues.push(device, work));
        }
        let mut taken = Vec::new();
        while let Some(device) = queues.next_device(|_| true) {
            queues.begin_turn(device);
            assert!(queues.first(device).is_some());
            taken.push(queues.pop(device).unwrap());
            queues.check();
        }
        assert_eq!(taken, [1, 3, 4, 2, 5]);
        assert_eq!(queues.first(A), None);
        assert_eq!(queues.pop(A), None);
    }

    #[test]
    fn a_device_that_may_not_begin_is_passed_over() {
        let mut queues = Queues::new(10, 10);
        assert!([A, B].into_iter().all(|device| queues.push(device, ())));
        assert_eq!(queues.next_device(|device| device != A), Some(B));
        queues.begin_turn(B);
        assert_eq!(queues.next_device(|device| device != A), Some(B), "it is alone");
        assert_eq!(queues.next_device(|_| false), None);
        assert_eq!(queues.next_device(|_| true), Some(A), "it is behind the last");
    }

    #[test]
    fn one_device_leaves_room_to_others() {
        let mut queues = Queues::new(3, 2);
        assert_eq!([(); 3].map(|()| queues.push(A, 0)), [true, true, false]);
        assert!(!queues.has_room(A) && queues.has_room(B));
        assert_eq!([(); 2].map(|()| queues.push(B, 0)), [true, false]);
        assert!(!queues.has_room(C));
        assert_eq!(queues.take_all(A).len(), 2);
        assert!(queues.has_room(A) && queues.push(C, 0));
        queues.check();
        queues.clear();
        queues.check();
        assert_eq!(queues.next_device(|_| true), None);
        assert!(queues.take_all(C).is_empty());
    }

    proptest! {
        #[test]
        fn nothing_is_lost_or_taken_twice(steps in proptest::collection::vec((0..4_u8, 1..4_u64), 0..60)) {
            let mut queues = Queues::new(8, 4);
            let (mut waiting, mut number) = (Vec::new(), 0);
            for (step, device) in steps {
                let device = Device::of(device);
                match step {
                    0 | 1 => {
                        number += 1;
                        if queues.push(device, number) {
                            waiting.push((device, number));
                        }
                    }
                    2 => {
                        let next = queues.next_device(|_| true);
                        prop_assert_eq!(next.is_some(), !waiting.is_empty());
                        if let Some(next) = next {
                            queues.begin_turn(next);
                            let place = waiting.iter().position(|(of, _)| *of == next).unwrap();
                            prop_assert_eq!(queues.pop(next), Some(waiting.remove(place).1));
                        }
                    }
                    _ => {
                        let mut all = queues.take_all(device);
                        waiting.retain(|(of, number)| {
                            *of != device || all.pop_front() != Some(*number)
                        });
                        prop_assert!(all.is_empty());
                    }
                }
                queues.check();
            }
        }
    }
}
