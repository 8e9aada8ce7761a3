//! Lanes share the room for bytes of files (`room.rs`): which lanes may copy and read, and how much, and which lanes
//! have to give memory back.

use http2::server::Connection;
use ring::{Ring, Time};
use sendfile::{Allowance, Disk, Owner};

use super::lane::{Lane, Pause};
use super::room::{COPIED_BYTES_MAX, READ_BYTES_MAX, Reading, room_of_device};
use super::work::{BATCH_BYTES, FRAME_BYTES_MAX, HELD_BYTES_MAX, Work};

/// The use of the bytes of files that a lane needs.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fill {
    /// It can send nothing; it frames at most `frame` bytes then.
    Next { frame: u64 },
    /// The same, and the bytes were not resident before.
    Read,
    /// It has framed something, and reads on meanwhile.
    Ahead,
}

impl Work {
    /// Makes lanes ready that wait for room, if there is room. Otherwise lanes that cannot send now give back the bytes
    /// that they have read. Returns true if a lane is ready now.
    pub(super) fn share_room(&mut self, connection: &Connection, now: Time) -> bool {
        if !self.wants_room() {
            return false;
        }
        if self.wake_for_room(connection) {
            return true;
        }
        for place in 0..self.lanes.len() {
            let lane = &mut self.lanes[place];
            // A lane that waits for room may have what is after the missing bytes.
            if matches!(lane.pause, Pause::Window | Pause::Rate | Pause::Memory) {
                lane.stream.reclaim(now);
                self.recount_at(place);
            }
        }
        self.wake_for_room(connection)
    }

    /// Makes the lanes ready that wait for room, if one of them would find some. The scheduler says which one is the first.
    fn wake_for_room(&mut self, connection: &Connection) -> bool {
        let waiting = || self.lanes.iter().filter(|lane| lane.pause == Pause::Memory);
        let room = |lane: &Lane| self.reads(lane, connection.window(lane.id).into()).0;
        if !waiting().any(|lane| room(lane) >= Allowance::READ_MIN) {
            return false;
        }
        for id in waiting().map(|lane| lane.id) {
            self.scheduler.set_ready(id, true);
        }
        true
    }

    /// Brings bytes of files into memory for a lane. Returns true if it can send nothing, and has to wait for room.
    pub(super) fn fill(
        &mut self,
        connection: &Connection,
        ring: &mut Ring,
        disk: &mut Disk,
        owner: Owner,
        fill: Fill,
    ) -> bool {
        let Ok(place) = self.find(owner.lane) else { return false };
        let (mut copies, budget) = match fill {
            Fill::Next { frame } => (self.copies(frame), 1),
            Fill::Read => (0, 1),
            Fill::Ahead => (0, 0),
        };
        let stream = &mut self.lanes[place].stream;
        // Most files are resident, and then the reads of others do not matter.
        if copies > 0 && !stream.reads_ahead() {
            let resident = Allowance { copies, reads: 0 };
            if !stream.fill(ring, disk, owner, resident, budget) {
                return false;
            }
            copies = 0;
        }
        self.recount_at(place);
        let window = connection.window(owner.lane).into();
        let (reads, reading) = self.reads(&self.lanes[place], window);
        let lane = &mut self.lanes[place];
        let before = lane.stream.reading();
        let lacks = lane.stream.fill(ring, disk, owner, Allowance { copies, reads }, budget);
        if lane.stream.reading() > before {
            lane.reading = reading;
        }
        let waits = lacks && !lane.stream.is_reading();
        self.recount_at(place);
        waits
    }

    /// The resident bytes that a lane may copy in its turn, if its next frame has `frame` bytes: whole frames, because the
    /// rest of a copy would be a short frame.
    fn copies(&self, frame: u64) -> u64 {
        let left = COPIED_BYTES_MAX.saturating_sub(self.counted.files.copied).min(BATCH_BYTES);
        (left - left % FRAME_BYTES_MAX).max(frame)
    }

    /// The bytes that a lane may read now, and where they count. The windows of the client let it get `window` bytes.
    fn reads(&self, lane: &Lane, window: u64) -> (u64, Reading) {
        let device = lane.stream.device();
        let flight = lane.counted.flight;
        if self.gone.is_empty() && self.counted.with_files <= usize::from(lane.counted.has_files) {
            // As with HTTP/1.
            return (u64::MAX, Reading { is_ahead: true, device });
        }
        if flight.bytes == 0 && !self.counted.flights.admit(device) {
            return (0, Reading { is_ahead: false, device });
        }
        let (own, all) = (lane.counted.files.reads(), self.counted.files);
        // Bytes that were read for a lane are taken back if need be, but reads in flight of a device have to end.
        let in_flight = |is_ahead: bool| {
            let here = Reading { is_ahead, device };
            let own = if flight.reading == here { flight.bytes } else { 0 };
            self.counted.flights.bytes(here) - own
        };
        let room = |most: u64, of_all: u64, of_lane: u64, is_ahead| {
            if of_all - of_lane + own + Allowance::READ_MIN > most {
                return 0;
            }
            let here = in_flight(is_ahead);
            room_of_device(most, (of_all - of_lane).saturating_sub(here), here + own)
        };
        let read = room(READ_BYTES_MAX, all.read, lane.counted.files.read, false);
        let most = HELD_BYTES_MAX.saturating_sub(self.counted.held);
        let ahead = match window.saturating_sub(own) {
            ..Allowance::READ_MIN => 0,
            takes => room(most, all.ahead, lane.counted.files.ahead, true).min(takes),
        };
        let is_ahead = ahead > read;
        (ahead.max(read), Reading { is_ahead, device })
    }

    /// Returns true if a lane waits for room.
    pub(super) fn wants_room(&self) -> bool {
        self.lanes.iter().any(|lane| lane.pause == Pause::Memory)
    }
}
