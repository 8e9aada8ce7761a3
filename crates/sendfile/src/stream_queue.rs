//! The streams that wait for the disk, in order: one queue per device.

use std::collections::BTreeMap;

use ring::Device;

/// The name of a stream. Its reads and its entry in the queue carry it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner {
    /// The connection's name.
    pub connection: u64,
    /// The number of the stream within the connection; 0 if there is only one.
    pub lane: u32,
}

impl Owner {
    /// Names the only stream of a connection.
    #[must_use]
    pub const fn of(connection: u64) -> Self {
        Self { connection, lane: 0 }
    }
}

/// The read that a stream waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Wait {
    /// The first read of a file. It passes streams that go on: they are large, and an index page is not.
    First,
    /// The next read of a file that is read in order.
    Next,
}

impl Wait {
    /// The rank of a stream that got this number when it entered the queue.
    const fn rank(self, position: u64) -> u64 {
        match self {
            Self::First => position,
            Self::Next => position + PASSED_MAX,
        }
    }
}

/// The maximum of reads of streams that go on which a first read passes: the slots of a device. So requests that
/// come faster than the disk can answer do not stop all downloads.
const PASSED_MAX: u64 = 64;

/// Streams that wait, each at most once.
#[derive(Debug, Default)]
pub(crate) struct StreamQueue {
    /// By the number of entry, for each device and each kind of read.
    devices: BTreeMap<(Device, Wait), BTreeMap<u64, Owner>>,
    positions: BTreeMap<Owner, ((Device, Wait), u64)>,
    /// The number of entry of the next stream.
    next_position: u64,
}

impl StreamQueue {
    pub(crate) fn is_empty(&self) -> bool {
        self.positions.is_empty()
    }

    /// The number of streams.
    pub(crate) fn len(&self) -> usize {
        self.positions.len()
    }

    /// The number of streams that wait for a device.
    pub(crate) fn waiting(&self, device: Device) -> usize {
        let of = |wait| self.devices.get(&(device, wait)).map_or(0, BTreeMap::len);
        of(Wait::First) + of(Wait::Next)
    }

    /// Puts a stream at the end of the queue, unless it is in the queue.
    pub(crate) fn enter(&mut self, owner: Owner, device: Device, wait: Wait) {
        if self.positions.contains_key(&owner) {
            return;
        }
        let kind = (device, wait);
        self.positions.insert(owner, (kind, self.next_position));
        self.devices.entry(kind).or_default().insert(self.next_position, owner);
        self.next_position += 1;
    }

    /// The stream that has waited for longest among those whose devices `may` serve one; first reads count as
    /// if they had waited longer.
    pub(crate) fn first(&self, may: impl Fn(Device, Wait) -> bool) -> Option<Owner> {
        self.first_ranked(may).map(|(_, owner)| owner)
    }

    /// Returns whether a stream may read now before all waiting streams whose devices `may` serve one.
    pub(crate) fn lets(
        &self,
        owner: Owner,
        wait: Wait,
        may: impl Fn(Device, Wait) -> bool,
    ) -> bool {
        self.first_ranked(may)
            .is_none_or(|(rank, first)| first == owner || wait.rank(self.next_position) < rank)
    }

    fn first_ranked(&self, may: impl Fn(Device, Wait) -> bool) -> Option<(u64, Owner)> {
        if self.is_empty() {
            return None;
        }
        let served = self.devices.iter().filter(|((device, wait), _)| may(*device, *wait));
        let firsts = served.filter_map(|((_, wait), streams)| {
            let (position, owner) = streams.first_key_value()?;
            Some((wait.rank(*position), *owner))
        });
        firsts.min()
    }

    /// The devices for which streams wait that go on.
    pub(crate) fn going_on(&self) -> impl Iterator<Item = Device> {
        self.devices.keys().filter(|(_, wait)| *wait == Wait::Next).map(|(device, _)| *device)
    }

    /// Takes a stream out of the queue.
    pub(crate) fn leave(&mut self, owner: Owner) {
        let Some((kind, position)) = self.positions.remove(&owner) else { return };
        let streams = self.devices.get_mut(&kind).expect("it stands in both or in none");
        streams.remove(&position);
        if streams.is_empty() {
            self.devices.remove(&kind);
        }
    }

    /// Takes the streams of a connection out of the queue.
    pub(crate) fn leave_all(&mut self, connection: u64) {
        let all = Owner { connection, lane: 0 }..=Owner { connection, lane: u32::MAX };
        while let Some((&owner, _)) = self.positions.range(all.clone()).next() {
            self.leave(owner);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Device = Device::of(1);
    const B: Device = Device::of(2);

    #[test]
    fn a_stream_is_queued_once_and_passes_those_whose_device_has_no_room() {
        let mut queue = StreamQueue::default();
        let owner = |connection, lane| Owner { connection, lane };
        let order = [(owner(2, 0), A), (owner(1, 3), B), (owner(2, 0), B), (owner(3, 0), A)];
        for (waiting, device) in order {
            queue.enter(waiting, device, Wait::Next);
        }
        assert_eq!(queue.first(|_, _| true), Some(owner(2, 0)));
        assert_eq!(queue.first(|device, _| device == B), Some(owner(1, 3)));
        assert_eq!(queue.first(|_, _| false), None);
        queue.leave(owner(2, 0));
        queue.leave_all(1);
        queue.leave_all(9);
        assert_eq!(
            (queue.first(|_, _| true), queue.first(|device, _| device == B)),
            (Some(owner(3, 0)), None)
        );
        queue.leave(owner(3, 0));
        queue.leave(owner(3, 0));
        assert!(queue.is_empty() && queue.devices.is_empty());
    }

    #[test]
    fn first_reads_pass_streams_that_go_on_but_not_for_ever() {
        let mut queue = StreamQueue::default();
        (0..4).for_each(|name| queue.enter(Owner::of(name), A, Wait::Next));
        // Requests that come as fast as they are served.
        let mut served = Vec::new();
        for name in 1000..1200 {
            queue.enter(Owner::of(name), A, Wait::First);
            let owner = queue.first(|_, _| true).unwrap();
            served.push(owner.connection);
            queue.leave(owner);
        }
        let large: Vec<_> = (0..200).filter(|turn| served[*turn] < 4).collect();
        assert_eq!(large.len(), 4);
        assert!((60..70).contains(&large[0]), "{large:?}");
        // First reads do not wait for streams that go on and have no room.
        queue.enter(Owner::of(1), A, Wait::Next);
        let first = queue.first(|_, wait| wait == Wait::First).unwrap();
        assert!(first.connection >= 1000);
    }
}
