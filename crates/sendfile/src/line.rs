//! The streams that wait for the disk, in order, each in the line of its device.

use std::collections::BTreeMap;

use ring::Device;

/// The name of a stream. Its reads and its place in line carry it.
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

/// Streams that wait, each at most once.
#[derive(Debug, Default)]
pub(crate) struct Line {
    /// By place, for each device for which streams wait.
    devices: BTreeMap<Device, BTreeMap<u64, Owner>>,
    places: BTreeMap<Owner, (Device, u64)>,
    /// The place of the next stream.
    next_place: u64,
}

impl Line {
    pub(crate) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Puts a stream at the end of the line, unless it stands in it.
    pub(crate) fn enter(&mut self, owner: Owner, device: Device) {
        if self.places.contains_key(&owner) {
            return;
        }
        self.places.insert(owner, (device, self.next_place));
        self.devices.entry(device).or_default().insert(self.next_place, owner);
        self.next_place += 1;
    }

    /// The stream that has waited for longest among those whose devices `may` serve one.
    pub(crate) fn first(&self, may: impl Fn(Device) -> bool) -> Option<Owner> {
        if self.is_empty() {
            return None;
        }
        let served = self.devices.iter().filter(|(device, _)| may(**device));
        let firsts = served.filter_map(|(_, streams)| streams.first_key_value());
        firsts.min_by_key(|(place, _)| **place).map(|(_, owner)| *owner)
    }

    /// Takes a stream out of the line.
    pub(crate) fn leave(&mut self, owner: Owner) {
        let Some((device, place)) = self.places.remove(&owner) else { return };
        let streams = self.devices.get_mut(&device).expect("it stands in both or in none");
        streams.remove(&place);
        if streams.is_empty() {
            self.devices.remove(&device);
        }
    }

    /// Takes the streams of a connection out of the line.
    pub(crate) fn leave_all(&mut self, connection: u64) {
        let all = Owner { connection, lane: 0 }..=Owner { connection, lane: u32::MAX };
        while let Some((&owner, _)) = self.places.range(all.clone()).next() {
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
    fn a_stream_stands_in_line_once_and_passes_those_whose_device_has_no_room() {
        let mut line = Line::default();
        let owner = |connection, lane| Owner { connection, lane };
        let order = [(owner(2, 0), A), (owner(1, 3), B), (owner(2, 0), B), (owner(3, 0), A)];
        for (waiting, device) in order {
            line.enter(waiting, device);
        }
        assert_eq!(line.first(|_| true), Some(owner(2, 0)));
        assert_eq!(line.first(|device| device == B), Some(owner(1, 3)));
        assert_eq!(line.first(|_| false), None);
        line.leave(owner(2, 0));
        line.leave_all(1);
        line.leave_all(9);
        assert_eq!(
            (line.first(|_| true), line.first(|device| device == B)),
            (Some(owner(3, 0)), None)
        );
        line.leave(owner(3, 0));
        line.leave(owner(3, 0));
        assert!(line.is_empty() && line.devices.is_empty());
    }
}
