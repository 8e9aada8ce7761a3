//! The turns of the streams that wait for a read.

use pace::Pace;
use ring::{Device, Op, Ring};

use super::{Disk, Operation};
use crate::devices::since_start;
use crate::file::File;
use crate::line::{Owner, Wait};

impl Disk {
    /// The next stream in line, if there is room for a read of it. Pump it; if it wants more it
    /// goes to the end of the line.
    #[inline]
    pub fn next_waiting(&mut self) -> Option<Owner> {
        if self.line.is_empty() || !self.has_room() {
            return None;
        }
        let owner = self.first_waiting()?;
        self.line.leave(owner);
        self.turn = Some(owner);
        Some(owner)
    }

    /// The first stream in line whose device may be read from. One whose reads do not end has used up its
    /// share; the streams of others pass its own.
    pub(super) fn first_waiting(&self) -> Option<Owner> {
        self.line.first(|device, wait| self.may_begin(device, wait) || self.refuses(device))
    }

    /// Returns whether a stream comes before all others that wait for a read and could begin one now, so that one
    /// which goes on does not keep its place until its end.
    pub(super) fn has_turn_now(&mut self, owner: Owner, wait: Wait) -> bool {
        self.line.is_empty()
            || self.turn.take_if(|turn| *turn == owner).is_some()
            || self.line.lets(owner, wait, |device, wait| {
                self.may_begin(device, wait) || self.refuses(device)
            })
    }

    /// Returns whether a read may begin on a device. Its pace is for streams that go on.
    pub(super) fn may_begin(&self, device: Device, wait: Wait) -> bool {
        self.reads.may_begin(device, self.now) && (wait == Wait::First || self.may_go_on(device))
    }

    pub(super) fn may_go_on(&self, device: Device) -> bool {
        let has_room = |pace: &Pace| pace.has_room(since_start(self.now));
        self.paces.get(&device).is_none_or(has_room)
            && self.devices.opens_at(device, self.now).is_none()
    }

    /// Bytes of the next read of a stream that goes on.
    pub(crate) fn chunk(&self, file: &File) -> u64 {
        let pace = self.paces.get(&file.device());
        pace.map_or(pace::CHUNK_MIN, Pace::chunk)
    }

    /// Returns whether a stream stands in line and there is room for a read of it.
    #[must_use]
    pub fn has_turn(&self) -> bool {
        !self.line.is_empty() && self.has_room() && self.first_waiting().is_some()
    }

    /// Takes the streams of a connection out of the line: it is closed.
    pub fn leave_line(&mut self, connection: u64) {
        self.line.leave_all(connection);
    }

    pub(crate) fn wait_in_line(&mut self, ring: &mut Ring, owner: Owner, file: &File, wait: Wait) {
        self.line.enter(owner, file.device(), wait);
        self.await_pauses(ring);
    }

    /// Sees to it that streams in line are asked again when the pauses of their devices end.
    pub(super) fn await_pauses(&mut self, ring: &mut Ring) {
        let opens_at = |device| self.devices.opens_at(device, self.now);
        let Some(at) = self.line.going_on().filter_map(opens_at).min() else { return };
        if self.opens_at.is_none_or(|earlier| at < earlier) {
            self.opens_at = Some(at);
            self.submit(ring, Op::Timer(at), Operation::Pause(at));
        }
    }
}
