//! The turns of the streams that wait for a read.

use pace::Pace;
use ring::{Device, Op, Ring};

use super::Disk;
use super::upkeep::Upkeep;
use crate::devices::since_start;
use crate::file::File;
use crate::stream_queue::{Owner, Wait};

impl Disk {
    /// Takes the next stream out of the queue, if there is room for a read of it. Pump it; if it wants more it
    /// goes to the end of the queue.
    #[inline]
    pub fn next_waiting(&mut self) -> Option<Owner> {
        if self.queue.is_empty() || !self.has_room() {
            return None;
        }
        let owner = self.first_waiting()?;
        self.queue.leave(owner);
        self.turn = Some(owner);
        Some(owner)
    }

    /// The first stream in the queue whose device may be read from. A device whose reads do not end has used up
    /// its share; the streams of other devices pass its streams.
    pub(super) fn first_waiting(&self) -> Option<Owner> {
        self.queue.first(|device, wait| self.may_begin(device, wait) || self.refuses(device))
    }

    /// Returns whether a stream comes before all waiting streams that could begin a read now. So a stream that
    /// goes on does not keep its turn until its end.
    pub(super) fn has_turn_now(&mut self, owner: Owner, wait: Wait) -> bool {
        self.queue.is_empty()
            || self.turn.take_if(|turn| *turn == owner).is_some()
            || self.queue.lets(owner, wait, |device, wait| {
                self.may_begin(device, wait) || self.refuses(device)
            })
    }

    /// Returns whether a read may begin on a device. Only streams that go on wait for its pace.
    pub(super) fn may_begin(&self, device: Device, wait: Wait) -> bool {
        self.reads.may_begin(device, self.now) && (wait == Wait::First || self.may_go_on(device))
    }

    pub(super) fn may_go_on(&self, device: Device) -> bool {
        let has_room = |pace: &Pace| pace.has_room(since_start(self.now));
        self.paces.get(&device).is_none_or(has_room)
            && self.devices.opens_at(device, self.now).is_none()
    }

    /// The bytes of the next read of a stream that goes on.
    pub(crate) fn chunk(&self, file: &File) -> u64 {
        let pace = self.paces.get(&file.device());
        pace.map_or(pace::CHUNK_MIN, Pace::chunk)
    }

    /// Returns true if [`next_waiting`](Self::next_waiting) has a stream: one waits, and there is room for a read of it.
    #[must_use]
    #[inline]
    pub fn has_next_waiting(&self) -> bool {
        !self.queue.is_empty() && self.has_room() && self.first_waiting().is_some()
    }

    /// Takes the streams of a closed connection out of the queue.
    pub fn leave_line(&mut self, connection: u64) {
        self.queue.leave_all(connection);
    }

    pub(crate) fn wait_in_line(&mut self, ring: &mut Ring, owner: Owner, file: &File, wait: Wait) {
        self.queue.enter(owner, file.device(), wait);
        self.await_pauses(ring);
    }

    /// Sets a timer for the end of a device's pause, so that waiting streams are asked again.
    pub(super) fn await_pauses(&mut self, ring: &mut Ring) {
        let opens_at = |device| self.devices.opens_at(device, self.now);
        let Some(at) = self.queue.going_on().filter_map(opens_at).min() else { return };
        if self.opens_at.is_none_or(|earlier| at < earlier) {
            self.opens_at = Some(at);
            self.keep_up(ring, Op::Timer(at), Upkeep::Pause(at));
        }
    }
}
