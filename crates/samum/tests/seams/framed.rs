//! A session with several requests at once on one connection, as HTTP/2 has them: each response is
//! a stream of its own (a *lane*), whose ready bytes move into the connection's queue in frames.
//!
//! ```text
//! request   id: 4 | length: 4 |           head as HTTP/1 writes it; none withdraws the request
//! response  id: 4 | length: 4 | kind: 1 | a head, data, or nothing
//! ```
//!
//! Ids grow. A lane that waits for the disk is passed over, and one that fails ends alone.

use core::ops::Range;
use core::time::Duration;
use std::collections::VecDeque;
use std::rc::Rc;

use http::{Head, HeadBuf, Method};
use http1::Limits;
use http1::write::{self, Wire};
use outq::{OutQ, Payload as _, State};
use ring::{Ring, Time};
use samum::handler::{
    AnswerSize, BodySink, Found, Part, Parts, Produced, Producer, Response, Search,
};
use sendfile::{
    Disk, Drained, Failure, File, Owner, Piece, Policy, Progress, ReadDone, Stream, Takes,
    Transport, Weight, Window,
};
use session::context::Context;
use session::{Left, Moved, Next, Outgoing, Requests, Session, Turn, Why};

mod tests;

/// Requests of one connection that are answered at once; more are not read.
const LANES_MAX: usize = 8;
const REQUEST_BYTES_MAX: usize = 16 * 1024;
/// Received bytes that wait to be taken: more than one frame.
const INPUT_BYTES_MAX: usize = 32 * 1024;
const FRAME_BYTES_MAX: u64 = 16 * 1024;
/// Bytes that are framed before the transport is asked to take them.
const BATCH_BYTES: u64 = 64 * 1024;
const TURN_BYTES: u64 = 1024 * 1024;
const PRODUCED_BYTES: u64 = 64 * 1024;
/// The time that a peer has to ask, to take something, or to close.
const PATIENCE: Duration = Duration::from_secs(30);

/// What the bytes of a response frame are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Head,
    Data,
    End,
    Error,
}

/// The session.
#[derive(Debug)]
pub(crate) struct Framed {
    wait: Wait,
    /// The greatest id so far.
    newest: u32,
    /// Whether no further request is taken.
    last: bool,
    /// Whether the peer is still to be told so, by the end of a request with the id 0.
    says_bye: bool,
    ended: bool,
    /// The turn of the worker in which waiting bytes were last asked for.
    read_turn: u64,
}

/// What the connection waits for, and since when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    /// A request.
    Idle(Time),
    /// The rest of a request.
    Request(Time),
    /// The disk, the handler, or another turn.
    Server,
    /// The peer, which had acknowledged so many bytes then.
    Peer(Time, i64),
    /// The end of the peer's side, after that of ours.
    Lingering(Time),
}

/// Responses that are sought or sent.
#[derive(Debug, Default)]
pub(crate) struct Work {
    queue: OutQ<Piece>,
    /// The next one to be framed is at the front.
    lanes: VecDeque<Lane>,
    /// Of lanes that have ended so.
    failures: Vec<Failure>,
}

/// One request and its response.
#[derive(Debug)]
struct Lane {
    id: u32,
    /// Some until the response begins.
    request: Option<HeadBuf>,
    /// Whether the answer to that request has been found.
    found: bool,
    search: Option<Rc<dyn Search>>,
    stream: Stream,
    producer: Option<Box<dyn Producer>>,
    parts: Option<Parts>,
}

impl Session for Framed {
    type Work = Work;

    fn new(now: Time) -> Self {
        let wait = Wait::Idle(now);
        Self { wait, newest: 0, last: false, says_bye: false, ended: false, read_turn: 0 }
    }

    fn handle_bytes(
        &mut self,
        work: &mut Work,
        requests: &mut impl Requests,
        bytes: &[u8],
    ) -> usize {
        let mut at = 0;
        while !self.last && !work.is_full() {
            let Some((id, length, text)) = frame_of(&bytes[at..]) else { return at };
            if length == 0 {
                work.lanes.retain(|lane| lane.id != id);
                at += 8;
                continue;
            }
            if id <= self.newest || length > REQUEST_BYTES_MAX {
                work.lanes.clear();
                self.last = true;
                break;
            }
            let Some(text) = text.get(..length) else { return at };
            at += 8 + length;
            self.newest = id;
            match http1::parse(text, &Limits::DEFAULT) {
                Ok(Some((request, len))) if len == length => {
                    requests.handle_request(self, work, id, &request.head, true);
                }
                _ => work.push_frame(id, Kind::Error, 0),
            }
        }
        if self.last { bytes.len() } else { at }
    }

    fn handle_eof(&mut self, work: Option<&mut Work>) -> Next {
        self.ended = true;
        if work.is_some() { Next::Pump } else { Next::Close(Why::Done) }
    }

    fn defer(
        &mut self,
        work: &mut Work,
        request: u32,
        head: &Head<'_>,
        found: Found<AnswerSize>,
    ) -> bool {
        let Found::Later(search) = found else {
            panic!("a response begins as soon as its answer is found")
        };
        let request = Lane { search, ..Lane::new(request, Some(head.to_owned())) };
        work.lanes.push_back(request);
        false
    }

    fn handle_answer(
        &mut self,
        work: &mut Work,
        _cx: &Context,
        request: u32,
        _size: AnswerSize,
    ) -> bool {
        work.lane(request).map(|lane| (lane.found, lane.search) = (true, None)).is_some()
    }

    fn next_turn(&mut self, work: &mut Work, _cx: &mut Context) -> Option<Turn> {
        let lane = work.lanes.iter_mut().find(|lane| lane.found)?;
        lane.found = false;
        Some(Turn { request: lane.id, head: lane.request.take()?, found: true })
    }

    fn put_back(&mut self, work: &mut Work, turn: Turn, search: Option<Rc<dyn Search>>) {
        if let Some(lane) = work.lane(turn.request) {
            (lane.request, lane.search) = (Some(turn.head), search);
        }
    }

    fn respond(
        &mut self,
        work: &mut Work,
        cx: &mut Context,
        id: u32,
        head: &Head<'_>,
        mut response: Response<'_>,
    ) {
        cx.stats.responses += 1;
        let made = response.made();
        made.head.last_modified = made.head.last_modified.map(|time| time.min(cx.unix));
        let mut text = Vec::new();
        write::response_head(&made.head, &cx.date, Wire::default(), &mut text);
        work.push_frame(id, Kind::Head, text.len() as u64);
        work.queue.push(Piece::Bytes(text));
        if work.lane(id).is_none() {
            work.lanes.push_back(Lane::new(id, None));
        }
        if let Some(lane) = work.lane(id).filter(|_| head.method != Method::Head) {
            lane.parts = Some(core::mem::take(&mut made.body).into_iter());
        }
    }

    fn handle_progress(&mut self, work: &mut Work, cx: &mut Context, moved: &Moved) -> Next {
        match moved.progress {
            Progress::Failed(failure) => return Next::Close(Why::Failed(failure)),
            Progress::More => {
                self.wait = Wait::Server;
                return Next::TurnOver;
            }
            Progress::Blocked => {
                if !matches!(self.wait, Wait::Peer(..)) {
                    self.wait = Wait::Peer(cx.now, moved.acknowledged);
                }
                return Next::Wait;
            }
            Progress::Waiting | Progress::Drained => {}
        }
        if core::mem::take(&mut self.says_bye) {
            work.push_frame(0, Kind::End, 0);
            return Next::Pump;
        }
        if moved.unread > 0 && !moved.stuck && !self.last && !work.is_full() {
            self.wait = Wait::Server;
            let before = core::mem::replace(&mut self.read_turn, cx.turn);
            return if before == cx.turn { Next::TurnOver } else { Next::Read };
        }
        self.wait = match self.wait {
            _ if !work.lanes.is_empty() => Wait::Server,
            _ if self.ended => return Next::Close(Why::Done),
            Wait::Lingering(since) => Wait::Lingering(since),
            _ if self.last => {
                self.wait = Wait::Lingering(cx.now);
                return Next::ShutDown;
            }
            Wait::Request(since) if moved.unread > 0 => Wait::Request(since),
            _ if moved.unread > 0 => Wait::Request(cx.now),
            _ => Wait::Idle(cx.now),
        };
        Next::Wait
    }

    fn next_left(&mut self, _work: &mut Work) -> Option<Left> {
        None
    }

    fn next_cut(&mut self, _work: &mut Work, _now: Time) -> Option<Left> {
        None
    }

    fn next_failure(&mut self, work: &mut Work) -> Option<Failure> {
        work.failures.pop()
    }

    fn wants_bytes(&self, _work: &Work, _cx: &Context, unread: usize) -> bool {
        self.last || unread < INPUT_BYTES_MAX
    }

    fn deadline(&self, _cx: &Context) -> Option<Time> {
        match self.wait {
            Wait::Server => None,
            Wait::Idle(since)
            | Wait::Request(since)
            | Wait::Peer(since, _)
            | Wait::Lingering(since) => Some(since + PATIENCE),
        }
    }

    fn handle_deadline(
        &mut self,
        _work: Option<&mut Work>,
        cx: &mut Context,
        acknowledged: i64,
    ) -> Next {
        match self.wait {
            Wait::Server => Next::Wait,
            Wait::Peer(_, before) if acknowledged > before => {
                self.wait = Wait::Peer(cx.now, acknowledged);
                Next::Wait
            }
            _ => {
                cx.stats.timeouts += 1;
                Next::Close(Why::TimedOut)
            }
        }
    }

    fn handle_shutdown(&mut self, _work: Option<&mut Work>) -> Next {
        (self.last, self.says_bye) = (true, true);
        Next::Pump
    }

    fn idle_since(&self) -> Option<Time> {
        match self.wait {
            Wait::Idle(since) | Wait::Lingering(since) => Some(since),
            _ => None,
        }
    }

    fn check(&self, work: Option<&Work>) {
        let Some(work) = work else { return };
        assert!(work.lanes.len() <= LANES_MAX, "lanes are bounded");
        assert!(work.lanes.iter().all(|lane| lane.id <= self.newest));
        assert!(work.lanes.iter().all(|lane| lane.request.is_some() || !lane.found));
        assert!(self.idle_since().is_none() || work.is_idle(), "{self:?} is idle with {work:?}");
        work.queue.check();
    }
}

impl Outgoing for Work {
    fn pump(
        &mut self,
        ring: &mut Ring,
        disk: &mut Disk,
        transport: &mut impl Transport,
        connection: u64,
    ) -> Progress {
        let mut budget = TURN_BYTES;
        let progress = loop {
            if transport.is_blocked() {
                break Progress::Blocked;
            }
            self.fill(ring, disk, connection, false);
            while self.queue.unsent_ready() < BATCH_BYTES && self.next_frame() {}
            let before = budget;
            match transport.drain(ring, &mut self.queue, &mut budget) {
                Drained::Empty if budget < before && budget > 0 => {}
                Drained::Empty if budget < before => break Progress::More,
                Drained::Empty if self.lanes.is_empty() => break Progress::Drained,
                Drained::Empty => break Progress::Waiting,
                Drained::Blocked => break Progress::Blocked,
                Drained::TurnOver => break Progress::More,
                Drained::Refused => {}
                Drained::Failed(failure) => return Progress::Failed(failure),
            }
        };
        if progress == Progress::Blocked {
            self.free_buffers();
            self.fill(ring, disk, connection, true);
        }
        progress
    }

    fn handle_read(&mut self, done: ReadDone) {
        // The read of a lane that has ended gives its buffer back here.
        if let Some(lane) = self.lane(done.owner.lane) {
            lane.stream.handle_read(done);
        }
    }

    fn reclaim(&mut self, now: Time) -> bool {
        let lanes = self.lanes.iter_mut();
        lanes.fold(false, |is_stuck, lane| is_stuck | lane.stream.reclaim(now))
    }

    fn queue(&mut self) -> &mut OutQ<Piece> {
        &mut self.queue
    }

    fn weight(&self) -> Weight {
        let mut weight = self.queue.weight();
        for lane in &self.lanes {
            weight += lane.stream.weight();
            weight.own += lane.request.as_ref().map_or(0, HeadBuf::memory) as u64;
            weight += lane.search.as_ref().map_or_else(Weight::default, |search| search.weight());
            weight.shared += lane.producer.as_ref().map_or(0, |producer| producer.weight());
        }
        weight
    }

    fn is_idle(&self) -> bool {
        self.queue.is_drained() && self.lanes.is_empty()
    }

    fn restart(&mut self) {
        self.queue.restart();
    }
}

impl Work {
    /// Whether no more requests are read. Heads and errors are promised at once, so a peer that
    /// withdraws its requests and takes nothing must not go on asking.
    fn is_full(&self) -> bool {
        let unsent = self.queue.promised() - self.queue.sent();
        self.lanes.len() >= LANES_MAX || unsent >= 2 * BATCH_BYTES
    }

    fn lane(&mut self, id: u32) -> Option<&mut Lane> {
        self.lanes.iter_mut().find(|lane| lane.id == id)
    }

    /// Fills the lanes. A lane that has nothing ready gets something before the others have sent all of theirs, if it is
    /// resident.
    fn fill(&mut self, ring: &mut Ring, disk: &mut Disk, connection: u64, blocked: bool) {
        for lane in &mut self.lanes {
            let owner = Owner { connection, lane: lane.id };
            lane.stream.settle(disk, owner, blocked);
            lane.stream.fill(ring, disk, owner, Takes::Memory, u64::from(!blocked));
        }
    }

    fn push_frame(&mut self, id: u32, kind: Kind, length: u64) {
        let length = u32::try_from(length).expect("at most a frame or a head");
        let head = [&id.to_be_bytes()[..], &length.to_be_bytes(), &[kind as u8]].concat();
        self.queue.push(Piece::Bytes(head));
    }

    /// Frames something of the next lane that has something; returns whether one had.
    fn next_frame(&mut self) -> bool {
        for _ in 0..self.lanes.len() {
            let Some(mut lane) = self.lanes.pop_front() else { break };
            lane.produce();
            let ready = lane.stream.queue().unsent_ready().min(FRAME_BYTES_MAX);
            match lane.stream.queue().state() {
                State::Ready => {
                    self.push_frame(lane.id, Kind::Data, ready);
                    let mut left = ready;
                    while let Some(piece) = lane.stream.queue().take_ready(left) {
                        left -= piece.len();
                        self.queue.push(piece);
                    }
                }
                State::Failed => {
                    self.push_frame(lane.id, Kind::Error, 0);
                    self.failures.extend(lane.stream.failure());
                    return true;
                }
                State::Drained if lane.is_complete() => {
                    self.push_frame(lane.id, Kind::End, 0);
                    return true;
                }
                State::Drained | State::Waiting => {}
            }
            self.lanes.push_back(lane);
            if ready > 0 {
                return true;
            }
        }
        false
    }

    /// Copies what the peer does not take out of the disk's buffers. The lanes have given these
    /// bytes away, so they cannot be read again when others need the buffers.
    fn free_buffers(&mut self) {
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
}

impl Lane {
    const fn new(id: u32, request: Option<HeadBuf>) -> Self {
        let stream = Stream::new();
        Self { id, request, found: false, search: None, stream, producer: None, parts: None }
    }

    /// Whether the response has begun and all of its body is in the stream.
    const fn is_complete(&self) -> bool {
        self.request.is_none() && self.producer.is_none() && self.parts.is_none()
    }

    /// Promises the next parts of the body, if all before has been framed.
    fn produce(&mut self) {
        while self.stream.is_drained() {
            if let Some(mut producer) = self.producer.take() {
                match producer.poll(PRODUCED_BYTES, &mut Sink(&mut self.stream)) {
                    Produced::Ended => {}
                    Produced::Failed => self.stream.abort(Failure::Unfinished),
                    Produced::More | Produced::Waiting => {
                        self.producer = Some(producer);
                        return;
                    }
                }
            }
            match self.parts.as_mut().and_then(Iterator::next) {
                Some(Part::Piece(piece)) => self.stream.push(piece),
                Some(Part::File(file, range, policy)) => {
                    // The lanes share what one connection may prefetch.
                    let window = Window::of(policy.window.bytes() / LANES_MAX as u64);
                    self.stream.push_file(&file, range, Policy { window, ..policy });
                }
                Some(Part::Producer(producer)) => self.producer = Some(producer),
                None => {
                    self.parts = None;
                    return;
                }
            }
        }
    }
}

struct Sink<'a>(&'a mut Stream);

impl BodySink for Sink<'_> {
    fn takes(&self) -> Takes {
        Takes::Memory
    }

    fn push(&mut self, piece: Piece) {
        self.0.push(piece);
    }

    fn push_file(&mut self, file: &Rc<File>, range: Range<u64>, policy: Policy) {
        self.0.push_file(file, range, policy);
    }
}

/// The id, the length and what follows them.
fn frame_of(bytes: &[u8]) -> Option<(u32, usize, &[u8])> {
    let (id, rest) = bytes.split_first_chunk()?;
    let (length, rest) = rest.split_first_chunk()?;
    let length = u32::from_be_bytes(*length).try_into().ok()?;
    Some((u32::from_be_bytes(*id), length, rest))
}
