//! The requests of one connection that are not answered to their ends, and the frames on their way.

use std::collections::VecDeque;

use http2::priority::{Scheduler, Wish};
use outq::OutQ;
use outq::Payload as _;
use ring::Time;
use sendfile::{Failure, Piece, ReadDone, Weight};

use super::lane::{Counted, Lane, Lookup, Stage};
use super::pace::Pace;
use super::room::{FILE_BYTES_MAX, FileBytes, Flight, Flights, READING_MAX};
use crate::session::ends::{End, Ends};
use crate::session::refusal::ConnectionFacts;
use crate::session::times::Times;
use crate::session::{Broken, Outgoing};

/// Requests of one connection that begin in one worker turn; later requests wait for the next turn.
pub(super) const TURN_REQUESTS_MAX: u32 = 64;
/// Bytes of frames that are made before the transport is asked to send them.
pub(super) const BATCH_BYTES: u64 = 64 * 1024;
/// The bytes of content in one frame: with its head it is one record of TLS.
pub(super) const FRAME_BYTES_MAX: u64 = 16 * 1024 - http2::frame::HEAD_LEN as u64;
/// Bytes of frames that the transport has not taken. At this limit no more requests are read. Heads of responses and
/// small responses are put into frames immediately.
pub(super) const UNSENT_MAX: u64 = 2 * BATCH_BYTES;
/// Bytes of heads of requests that wait. At this limit nothing more is read until some have been answered.
const HEAD_BYTES_MAX: u64 = 512 * 1024;
/// Bytes of requests that wait: heads, and bodies for which their consumers have no room or that these keep. At this limit
/// further streams are refused.
pub(super) const HELD_BYTES_MAX: u64 = 704 * 1024;
/// Bytes of a body that are dropped before its request is answered, if nothing uses the body: half of the window that a
/// stream has in the beginning.
pub(super) const DROPPED_BYTES_MAX: u64 = 32 * 1024;
/// Streams of one connection that occupy gateways at the same time: as many as connections that a browser opens to one
/// host with HTTP/1, several times over.
pub(super) const GATEWAYS_MAX: usize = 32;

/// Bytes of memory that are made at once for the next frames. More grows with the frames.
const FIRST_BYTES_MAX: usize = 16 * 1024;

const _: () = assert!(HEAD_BYTES_MAX < HELD_BYTES_MAX);
const _: () = assert!(HELD_BYTES_MAX + FILE_BYTES_MAX + UNSENT_MAX <= 1024 * 1024);

/// Lanes, and the queue of the connection.
#[derive(Debug, Default)]
pub(in crate::session) struct Work {
    /// The place where the connection comes from.
    pub(in crate::session) place: ConnectionFacts,
    /// Frames that the transport sends.
    pub(super) queue: OutQ<Piece>,
    /// Frames that come after those.
    pub(super) out: Vec<u8>,
    /// The length of the last of these that moved into the queue.
    pub(super) flushed: usize,
    /// The lanes are sorted by id, in ascending order.
    #[expect(clippy::vec_box, reason = "a lane is large, and lanes end out of order")]
    pub(super) lanes: Vec<Box<Lane>>,
    pub(super) scheduler: Scheduler,
    /// Requests whose responses can begin. True if the connection keeps their answers.
    pub(super) turns: VecDeque<(u32, bool)>,
    /// Requests that wait until this connection occupies fewer gateways.
    pub(super) postponed: VecDeque<u32>,
    /// The request that was just read.
    pub(super) current: (u32, Times, Wish),
    /// The positions in the queue at which responses end.
    pub(super) ends: Ends,
    pub(super) failures: Vec<Failure>,
    pub(super) broken: Vec<Broken>,
    /// The sums over all lanes, with the reads of those that have ended.
    pub(super) counted: Sums,
    /// Reads in flight of lanes that have ended, at most [`READING_MAX`]. The bounds of `room.rs` hold for them, too, and the
    /// slots of the disk.
    pub(super) gone: Vec<Gone>,
    /// The worker turn in which requests were last begun, and their number.
    pub(super) begun: (u64, u32),
    /// Bytes of both directions since the last judgement.
    pub(super) moved: u64,
    /// True if a response has ended since the last judgement.
    pub(super) has_answered: bool,
    pub(super) pace: Option<Pace>,
    /// Requests whose body no consumer takes wait until this time for the end of the body. `None` if there are no such
    /// requests.
    pub(super) skips_until: Option<Time>,
}

/// The reads in flight of a lane that has ended.
#[derive(Debug)]
pub(super) struct Gone {
    pub(super) id: u32,
    pub(super) flight: Flight,
}

/// Sums over lanes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Sums {
    /// Bytes of the heads and of the bodies of requests.
    pub(super) held: u64,
    /// Bytes of files.
    pub(super) files: FileBytes,
    /// Reads in flight.
    pub(super) flights: Flights,
    /// Lanes that have files.
    pub(super) with_files: usize,
}

impl Sums {
    fn add(&mut self, lane: &Counted) {
        self.held += lane.held;
        self.files.add(lane.files);
        self.flights.add(lane.flight);
        self.with_files += usize::from(lane.has_files);
    }

    fn subtract(&mut self, lane: &Counted) {
        self.held -= lane.held;
        self.files.subtract(lane.files);
        self.flights.subtract(lane.flight);
        self.with_files -= usize::from(lane.has_files);
    }

    fn add_gone(&mut self, Gone { flight, .. }: &Gone) {
        self.files.add(flight.reading.count(flight.bytes));
        self.flights.add(*flight);
    }

    fn subtract_gone(&mut self, Gone { flight, .. }: &Gone) {
        self.files.subtract(flight.reading.count(flight.bytes));
        self.flights.subtract(*flight);
    }
}

impl Outgoing for Work {
    fn handle_read(&mut self, done: ReadDone) {
        let id = done.owner.lane;
        if let Some(lane) = self.lane(id) {
            lane.stream.handle_read(done);
            self.scheduler.set_ready(id, true);
            self.recount(id);
        } else if let Some(place) = self.gone.iter().position(|gone| gone.id == id) {
            // The read of a lane that has ended gives its buffer back here.
            let mut gone = self.gone.swap_remove(place);
            self.counted.subtract_gone(&gone);
            gone.flight.bytes -= done.asked();
            if gone.flight.bytes > 0 {
                self.counted.add_gone(&gone);
                self.gone.push(gone);
            }
        }
    }

    fn reclaim(&mut self, now: Time) -> bool {
        let mut is_stuck = false;
        for place in 0..self.lanes.len() {
            is_stuck |= self.lanes[place].stream.reclaim(now);
            self.recount_at(place);
        }
        is_stuck
    }

    fn queue(&mut self) -> &mut OutQ<Piece> {
        &mut self.queue
    }

    fn weight(&self) -> Weight {
        let mut weight = self.queue.weight();
        weight.own += self.out.capacity() as u64 + self.counted.held;
        weight += self.ends.weight();
        for lane in &self.lanes {
            weight += lane.stream.weight();
            match &lane.stage {
                Stage::Asked { lookup: Lookup::Pending(Some(search)), .. } => {
                    weight += search.weight();
                }
                Stage::Sending(sending) => {
                    weight.shared += sending.producer.as_ref().map_or(0, |it| it.weight());
                }
                Stage::Asked { .. } | Stage::Turning => {}
            }
        }
        weight
    }

    fn is_idle(&self) -> bool {
        self.lanes.is_empty() && self.gone.is_empty() && self.is_sent()
    }

    fn active_requests(&self) -> usize {
        self.lanes.len() + self.ends.len()
    }

    fn restart(&mut self) {
        debug_assert!(self.is_idle() && self.ends.is_empty() && self.scheduler.is_empty());
        self.queue.restart();
        self.turns.clear();
        self.postponed.clear();
        (self.pace, self.skips_until) = (None, None);
        (self.begun, self.moved, self.has_answered) = ((0, 0), 0, false);
    }
}

impl Work {
    /// Returns true if all frames were sent, and released.
    pub(super) fn is_sent(&self) -> bool {
        self.out.is_empty()
            && self.queue.is_drained()
            && self.queue.released() == self.queue.promised()
    }

    /// Bytes of frames that were not sent.
    pub(super) const fn unsent(&self) -> u64 {
        self.queue.promised() - self.queue.sent() + self.out.len() as u64
    }

    /// Returns true if no more bytes of the client are taken for now. While a body of a request is to come, the bytes of the
    /// client have to be taken; then further streams are refused at [`HELD_BYTES_MAX`].
    pub(super) fn is_full(&self) -> bool {
        self.unsent() >= UNSENT_MAX
            || (self.counted.held >= HEAD_BYTES_MAX
                && !self.lanes.iter().any(|lane| lane.waits_for_body()))
    }

    /// Counts a request that begins in this worker turn.
    pub(super) const fn begins(&mut self, turn: u64) {
        let (last, count) = self.begun;
        self.begun = (turn, if last == turn { count + 1 } else { 1 });
    }

    /// Returns true if the connection begins no further request in this worker turn.
    pub(super) const fn had_its_quantum(&self, turn: u64) -> bool {
        self.begun.0 == turn && self.begun.1 >= TURN_REQUESTS_MAX
    }

    /// The place of a lane, or where it would be.
    pub(super) fn find(&self, id: u32) -> Result<usize, usize> {
        match self.lanes.last() {
            None => Err(0),
            Some(last) if last.id < id => Err(self.lanes.len()),
            Some(_) => self.lanes.binary_search_by_key(&id, |lane| lane.id),
        }
    }

    pub(super) fn lane(&mut self, id: u32) -> Option<&mut Lane> {
        let place = self.find(id).ok()?;
        Some(&mut self.lanes[place])
    }

    /// The lane of a request; a new one if it has none.
    pub(super) fn lane_of_current(&mut self, id: u32) -> &mut Lane {
        let place = match self.find(id) {
            Ok(place) => place,
            Err(place) => {
                let (current, times, wish) = self.current;
                debug_assert_eq!(current, id, "only new requests have no lane");
                self.lanes.insert(place, Box::new(Lane::new(id, times, wish)));
                place
            }
        };
        &mut self.lanes[place]
    }

    /// Counts the memory of a lane again.
    pub(super) fn recount(&mut self, id: u32) {
        if let Ok(place) = self.find(id) {
            self.recount_at(place);
        }
    }

    /// Counts the memory of the lane at a place again.
    pub(super) fn recount_at(&mut self, place: usize) {
        let lane = &mut self.lanes[place];
        let now = lane.memory();
        if now != lane.counted {
            self.counted.subtract(&lane.counted);
            self.counted.add(&now);
            lane.counted = now;
        }
    }

    /// Takes out a lane.
    pub(super) fn remove(&mut self, id: u32) -> Option<Box<Lane>> {
        let place = self.find(id).ok()?;
        let lane = self.lanes.remove(place);
        self.counted.subtract(&lane.counted);
        if lane.stream.is_reading() {
            let gone = Gone { id, flight: lane.memory().flight };
            self.counted.add_gone(&gone);
            self.gone.push(gone);
        }
        self.scheduler.remove(id);
        if self.lanes.is_empty() {
            self.pace = None;
        }
        Some(lane)
    }

    /// Asks the handler about a request whose body was waited for.
    pub(super) fn stop_waiting_for_body(&mut self, id: u32) -> bool {
        let Some(lane) = self.lane(id) else { return false };
        let Stage::Asked { lookup, .. } = &mut lane.stage else { return false };
        let waits = matches!(lookup, Lookup::Body(_));
        if waits {
            *lookup = Lookup::Queued;
            self.turns.push_back((id, false));
        }
        waits
    }

    /// Returns true if [`next_turn`](Self::next_turn) has a request: its response can begin.
    pub(super) fn has_next_turn(&self) -> bool {
        !self.turns.is_empty() || (!self.postponed.is_empty() && self.has_gateway_room())
    }

    /// Returns true if another stream may occupy a gateway.
    pub(super) fn has_gateway_room(&self) -> bool {
        self.lanes.len() < GATEWAYS_MAX
            || self.lanes.iter().filter(|lane| lane.has_gateway()).count() < GATEWAYS_MAX
    }

    /// The next request whose response can begin, and whether the connection keeps its answer.
    pub(super) fn next_turn(&mut self) -> Option<(u32, bool)> {
        loop {
            let (id, found) = match self.turns.pop_front() {
                Some(turn) => turn,
                None if !self.postponed.is_empty() && self.has_gateway_room() => {
                    (self.postponed.pop_front()?, false)
                }
                None => return None,
            };
            // Its stream may have been reset, or its body may have been refused.
            let lane = self.lane(id);
            if lane.is_some_and(|lane| matches!(lane.stage, Stage::Asked { .. })) {
                return Some((id, found));
            }
        }
    }

    /// Returns true if no lane goes on if the client sends nothing more.
    pub(super) fn is_lost_without_client(&self) -> bool {
        self.lanes.iter().all(|lane| lane.is_lost_without_client())
    }

    /// Ends a response at the current end of the frames.
    pub(super) fn end_response(&mut self, record: Option<Box<crate::record::Record>>) {
        let at = self.queue.promised() + self.out.len() as u64;
        self.ends.push(End { at, record });
        self.has_answered = true;
    }

    /// Makes memory for the next frames, if there are none: for as many as the last time, because most clients send requests
    /// like the ones before. Memory that grows would be copied.
    #[inline]
    pub(super) fn begin_frames(&mut self) {
        if self.out.is_empty() {
            self.out.reserve(self.flushed.min(FIRST_BYTES_MAX));
        }
    }

    /// Moves the frames that were written into the queue.
    pub(super) fn flush(&mut self) {
        if !self.out.is_empty() {
            self.flushed = self.out.len();
            self.queue.push(Piece::Bytes(core::mem::take(&mut self.out)));
        }
    }

    /// Copies the bytes that the peer does not receive out of the disk's buffers. The lanes have given these
    /// bytes away, so they cannot be read again when others need the buffers.
    pub(super) fn free_buffers(&mut self) {
        let is_read = |piece: &Piece| matches!(piece, Piece::Disk(..));
        let index = |at| usize::try_from(at).expect("a position in memory");
        let unsent = self.queue.next_ready().filter(|chunk| is_read(chunk.payload)).map(|chunk| {
            let range = index(chunk.range.start)..index(chunk.range.end);
            (chunk.at, chunk.payload.bytes()[range].to_vec())
        });
        for (at, bytes) in unsent.collect::<Vec<_>>() {
            self.queue.retract(at);
            self.queue.fill(at, Piece::Bytes(bytes));
        }
    }

    /// Panics unless the lanes are in order and counted.
    pub(super) fn check(&self) {
        assert!(self.lanes.len() <= http2::limits::STREAMS_MAX as usize, "lanes are bounded");
        assert!(self.lanes.is_sorted_by_key(|lane| lane.id), "lanes are in order");
        let (mut sums, mut largest) = (Sums::default(), 0);
        for lane in &self.lanes {
            assert!(!matches!(lane.stage, Stage::Turning), "a response is made at once: {lane:?}");
            let now = Counted { held: lane.counted.held, ..lane.memory() };
            assert_eq!(lane.counted, now, "bytes and reads of files are counted: {lane:?}");
            sums.add(&now);
            largest = largest.max(now.files.ahead);
        }
        for gone in &self.gone {
            assert!(gone.flight.bytes > 0, "it has reads in flight: {gone:?}");
            sums.add_gone(gone);
            let Flight { bytes, reading } = gone.flight;
            largest = largest.max(reading.count(bytes).ahead);
        }
        assert_eq!(self.counted, sums);
        sums.files.check(largest, HELD_BYTES_MAX);
        assert!(sums.flights.lanes() <= READING_MAX, "lanes that read are bounded: {sums:?}");
        self.queue.check();
    }
}

/// The largest piece that is copied after its frame's head: the copy costs less than a piece of its own.
pub(super) const INLINED_BYTES_MAX: u64 = 4 * 1024;

/// Appends the next bytes of a body, `count` of them, which are ready.
pub(super) fn push_ready(
    from: &mut OutQ<Piece>,
    mut count: u64,
    out: &mut Vec<u8>,
    queue: &mut OutQ<Piece>,
) {
    while let Some(piece) = from.take_ready(count) {
        count -= piece.len();
        if piece.len() <= INLINED_BYTES_MAX {
            out.extend_from_slice(piece.bytes());
        } else {
            if !out.is_empty() {
                queue.push(Piece::Bytes(core::mem::take(out)));
            }
            queue.push(piece);
        }
    }
}
