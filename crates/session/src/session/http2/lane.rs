//! One request and its response.

use std::rc::Rc;

use http::{FieldSection, HeadBuf};
use http2::priority::{Priority, Wish};
use ring::Time;
use sendfile::{Failure, Policy, Stream, Window};

use super::room::{FileBytes, Flight, Reading};
use super::websocket::Tunnel;
use crate::handler::{Consumer, Part, Parts, Produced, Producer, Search};
use crate::record::Record;
use crate::session::framing::{BodyFraming, Sink};
use crate::session::times::Times;
use crate::session::{BrokenEnd, Left, Unanswered};
use crate::standing::Standing;

/// While a connection has at most this many lanes, each lane may read as far ahead as its file allows (its window). If
/// there are more lanes, they divide this window.
const WHOLE_WINDOW_LANES: usize = 2;
/// A producer keeps much memory only for a client whose flow-control window once had room for a whole frame (this many
/// bytes). A client with smaller windows may have stopped reading, and would have the memory for nothing.
const LARGE_WINDOW: u64 = http2::limits::FRAME_BYTES_MAX as u64;
/// The window of a file is divided into at most this many parts. Beyond this number, more lanes do not make reads
/// smaller.
const WINDOW_PARTS_MAX: usize = 8;

/// One request that is not answered to its end.
#[derive(Debug)]
pub(super) struct Lane {
    /// The number of its stream, and of the request.
    pub(super) id: u32,
    pub(super) stage: Stage,
    /// The decision of the handler's conditions about the request so far. If no consumer takes the body, the handler is
    /// asked for the answer only when the whole body has come.
    pub(super) standing: Standing,
    pub(super) times: Times,
    /// The priority that the client wishes.
    pub(super) wish: Wish,
    /// The priority of a response about which the client says nothing.
    pub(super) default: Priority,
    /// True if the client waits for `100 Continue`.
    pub(super) expect_continue: bool,
    pub(super) incoming: Option<Incoming>,
    /// The body of the response, as far as it was promised and not framed.
    pub(super) stream: Stream,
    pub(super) pause: Pause,
    /// Bytes of the request body and of the response body that were moved since the last check of deadlines (`judge`).
    pub(super) moved: u64,
    /// True if the lane waited for the client at the last check of deadlines.
    pub(super) was_late: bool,
    /// Memory of the lane and bytes of files that are counted for the connection.
    pub(super) counted: Counted,
    /// The limit against which its reads count.
    pub(super) reading: Reading,
    /// True if a rate limits how fast the response is sent.
    pub(super) is_paced: bool,
    pub(super) tunnel: Tunnel,
}

/// The progress of a request.
#[derive(Debug)]
pub(super) enum Stage {
    /// The response has not begun.
    Asked { head: HeadBuf, lookup: Lookup },
    /// The response is being made.
    Turning,
    /// The head of the response was framed.
    Sending(Sending),
}

/// The progress of the search for an answer.
#[derive(Debug)]
pub(super) enum Lookup {
    /// The handler will deliver the answer.
    Pending(Option<Rc<dyn Search>>),
    /// The request is in one of the queues of the [`Work`](super::work::Work): for its turn, with an answer or to be asked
    /// about, or for a free gateway of this connection.
    Queued,
    /// No consumer takes the body. The handler is asked when the body has come, so a fault of the body is noticed, and a
    /// client can send a short body to its end. The number is how many bytes of the body were dropped.
    Body(u64),
}

/// The reason why a lane is not ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pause {
    /// It is ready, or its response has not begun.
    No,
    /// A disk has to bring bytes, since this time.
    Disk(Time),
    /// The handler has to make bytes.
    Producer,
    /// The client has to widen a window.
    Window,
    /// Other lanes have the memory that a read needs.
    Memory,
    /// The rate of the response allows nothing more now.
    Rate,
}

/// A body on its way into the stream.
#[derive(Debug)]
pub(super) struct Sending {
    /// The parts that are not in the stream.
    pub(super) parts: Option<Parts>,
    pub(super) producer: Option<Box<dyn Producer>>,
    /// True if a producer makes a part of the body while it is sent, even if the producer is still in `parts`.
    pub(super) is_made: bool,
    pub(super) framing: BodyFraming,
    /// True if the client has had a [large](LARGE_WINDOW) window.
    pub(super) takes_much: bool,
    pub(super) trailers: FieldSection<'static>,
    pub(super) record: Option<Box<Record>>,
    /// Bytes of the body that were framed.
    pub(super) framed: u64,
}

/// The body of a request on its way to a consumer.
#[derive(Debug)]
pub(super) struct Incoming {
    pub(super) consumer: Box<dyn Consumer>,
    /// Bytes for which the consumer had no room. They are never more than the first window of a stream.
    pub(super) waiting: Vec<u8>,
    /// Bytes that have come.
    pub(super) received: u64,
    pub(super) form: Form,
    /// The trailers. `Some` once the whole body has come, even if some bytes still wait.
    pub(super) end: Option<FieldSection<'static>>,
}

/// The form of the bytes for a consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// A body whose length its head announces.
    Announced,
    /// A body of any length, which is counted for the log.
    Counted,
    /// A tunnel was asked for; the response decides what the bytes are.
    Offered,
    /// A tunnel.
    Tunnel,
}

/// Memory that a lane has, as last counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counted {
    /// Bytes of the head and of the body of the request.
    pub(super) held: u64,
    /// Bytes of files.
    pub(super) files: FileBytes,
    /// Reads in flight.
    pub(super) flight: Flight,
    /// True if ranges of files were promised that have not been framed.
    pub(super) has_files: bool,
}

impl Sending {
    /// Returns true if nothing more will be promised.
    pub(super) const fn is_promised(&self) -> bool {
        self.parts.is_none() && self.producer.is_none()
    }

    /// Promises the next part of the body; returns whether there was one. A producer is asked for about `room` bytes.
    /// `lanes` is the number of lanes that share the connection, and `window` are the bytes for which the client has
    /// room now.
    pub(super) fn promise(
        &mut self,
        stream: &mut Stream,
        room: u64,
        window: u64,
        lanes: usize,
    ) -> bool {
        if let Some(mut producer) = self.producer.take() {
            self.takes_much |= window >= LARGE_WINDOW;
            let is_shared = lanes > 1 || !self.takes_much;
            let mut sink = Sink { stream, framing: &mut self.framing, is_shared };
            let mut produced = producer.poll(room, &mut sink);
            if self.framing.is_broken(produced) {
                produced = Produced::Failed;
            }
            match produced {
                Produced::More | Produced::Waiting => {
                    self.producer = Some(producer);
                    return !stream.queue().is_drained();
                }
                Produced::Ended => self.trailers = producer.trailers(),
                Produced::Failed => {
                    self.parts = None;
                    stream.abort(Failure::Unfinished);
                    return true;
                }
            }
            return true;
        }
        let Some(parts) = &mut self.parts else { return false };
        match parts.next() {
            Some(Part::Piece(piece)) => stream.push(piece),
            Some(Part::File(file, range, policy)) => {
                stream.push_file(&file, range, shared(policy, lanes));
            }
            Some(Part::Producer(producer)) => self.producer = Some(producer),
            None => self.parts = None,
        }
        if self.parts.as_ref().is_some_and(|parts| parts.size_hint().1 == Some(0)) {
            self.parts = None;
        }
        true
    }
}

/// The policy of a range whose lane shares the connection with others.
fn shared(policy: Policy, lanes: usize) -> Policy {
    if lanes <= WHOLE_WINDOW_LANES {
        return policy;
    }
    let window = Window::of(policy.window.bytes() / lanes.min(WINDOW_PARTS_MAX) as u64);
    Policy { window, ..policy }
}

impl Incoming {
    pub(super) const fn new(consumer: Box<dyn Consumer>, form: Form) -> Self {
        Self { consumer, waiting: Vec::new(), received: 0, form, end: None }
    }

    /// Returns true if the bytes are more than the consumer takes.
    pub(super) fn is_too_long(&self) -> bool {
        let is_body = matches!(self.form, Form::Announced | Form::Counted);
        is_body && self.received > self.consumer.bytes_max()
    }

    /// The bytes that the consumer takes now.
    fn own_room(&self) -> u64 {
        if self.form == Form::Offered { 0 } else { self.consumer.room() }
    }

    /// Takes the next bytes of the body; returns how many the consumer got.
    pub(super) fn push(&mut self, bytes: &[u8]) -> usize {
        let room = if self.waiting.is_empty() { self.own_room() } else { 0 };
        let count = usize::try_from(room).unwrap_or(usize::MAX).min(bytes.len());
        if count > 0 {
            self.consumer.push(&bytes[..count]);
        }
        self.waiting.extend_from_slice(&bytes[count..]);
        count
    }

    /// Gives the consumer as many of the waiting bytes as it has room for; returns their number.
    pub(super) fn feed(&mut self) -> usize {
        let room = usize::try_from(self.own_room()).unwrap_or(usize::MAX);
        let count = room.min(self.waiting.len());
        if count > 0 {
            self.consumer.push(&self.waiting[..count]);
            self.waiting.drain(..count);
            if self.waiting.is_empty() {
                self.waiting = Vec::new();
            }
        }
        count
    }

    /// The bytes that the consumer takes, beyond those that wait for it.
    pub(super) fn room(&self) -> u64 {
        self.own_room().saturating_sub(self.waiting.len() as u64)
    }

    /// Takes the end out, if all bytes were given to the consumer.
    pub(super) fn take_end(&mut self) -> Option<FieldSection<'static>> {
        let is_next = self.waiting.is_empty() && self.form != Form::Offered;
        if is_next { self.end.take() } else { None }
    }
}

impl Lane {
    pub(super) fn new(id: u32, times: Times, wish: Wish) -> Self {
        Self {
            id,
            stage: Stage::Turning,
            standing: Standing::New,
            times,
            wish,
            default: Priority::DEFAULT,
            expect_continue: false,
            incoming: None,
            stream: Stream::new(),
            pause: Pause::No,
            moved: 0,
            was_late: false,
            counted: Counted::default(),
            reading: Reading::default(),
            is_paced: false,
            tunnel: Tunnel::No,
        }
    }

    /// Notes that the handler was asked for the answer, so the limits have counted the request.
    pub(super) const fn note_asked(&mut self) {
        if self.standing.is_new() {
            self.standing = Standing::Counted;
        }
    }

    /// The memory that the lane has now.
    pub(super) fn memory(&self) -> Counted {
        let head = match &self.stage {
            Stage::Asked { head, .. } => head.memory(),
            Stage::Turning | Stage::Sending(_) => 0,
        };
        let body = self
            .incoming
            .as_ref()
            .map_or(0, |incoming| incoming.waiting.capacity() as u64 + incoming.consumer.weight());
        let files = FileBytes::of(&self.stream, self.reading);
        let held = (size_of::<Self>() + head) as u64 + body;
        let flight = Flight { bytes: self.stream.reading(), reading: self.reading };
        Counted { held, files, flight, has_files: self.stream.has_files() }
    }

    /// Returns true if a body of its request is to come.
    pub(super) fn waits_for_body(&self) -> bool {
        let is_dropped = matches!(self.stage, Stage::Asked { lookup: Lookup::Body(_), .. });
        is_dropped || self.incoming.as_ref().is_some_and(|incoming| incoming.end.is_none())
    }

    /// Returns true if it carries the bytes of another protocol.
    pub(super) fn is_tunnel(&self) -> bool {
        self.tunnel == Tunnel::Open
    }

    /// Returns true if it occupies a gateway, or may do so. Tunnels have a limit of their own.
    pub(super) fn has_gateway(&self) -> bool {
        match &self.stage {
            Stage::Asked { lookup, .. } => matches!(lookup, Lookup::Pending(Some(_))),
            Stage::Turning => false,
            Stage::Sending(sending) => {
                sending.is_made && !sending.is_promised() && !self.is_tunnel()
            }
        }
    }

    /// Returns true if the client has to do something before the lane can go on.
    pub(super) fn waits_for_client(&self) -> bool {
        let takes = self
            .incoming
            .as_ref()
            .is_some_and(|incoming| incoming.end.is_none() && incoming.room() > 0);
        match &self.stage {
            Stage::Asked { lookup: Lookup::Pending(_), .. } => takes,
            Stage::Asked { lookup: Lookup::Body(_), .. } => true,
            Stage::Asked { .. } | Stage::Turning => false,
            Stage::Sending(_) => {
                // Either end of a tunnel may be silent.
                let sends = takes && !self.is_tunnel();
                self.pause == Pause::Window || (sends && self.pause == Pause::Producer)
            }
        }
    }

    /// Returns true if the request gets no complete response unless the client does something more.
    pub(super) fn is_lost_without_client(&self) -> bool {
        match &self.stage {
            Stage::Asked { lookup: Lookup::Pending(Some(search)), .. }
                if search.ends_with_client() =>
            {
                true
            }
            _ => self.is_tunnel() || self.waits_for_client(),
        }
    }

    /// Takes out the log record of a response that has begun.
    pub(super) fn take_left(&mut self) -> Option<Left> {
        let Stage::Sending(sending) = &mut self.stage else { return None };
        let mut record = sending.record.take()?;
        if let Pause::Disk(_) = self.pause {
            self.pause = Pause::No;
        }
        record.body_bytes = u64::MAX;
        Some(Left { bytes: sending.framed, record })
    }

    /// The request, if its response has not begun.
    pub(super) fn into_unanswered(self) -> Option<Unanswered> {
        let Times { at, body_bytes, .. } = self.times;
        match self.stage {
            Stage::Asked { head, .. } => {
                Some(Unanswered { request: Some(self.id), head, at, body_bytes })
            }
            Stage::Turning | Stage::Sending(_) => None,
        }
    }

    /// The record of a lane that ends too early: the part of the response that was sent, or the request if no response
    /// has begun.
    pub(super) fn into_end(mut self) -> BrokenEnd {
        match self.take_left() {
            Some(left) => BrokenEnd::Left(left),
            None => self.into_unanswered().map_or(BrokenEnd::Unrecorded, BrokenEnd::Unanswered),
        }
    }
}
