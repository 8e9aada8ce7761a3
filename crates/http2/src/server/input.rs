//! The bytes of a client: frames are checked one after the other, and become events.

use alloc::vec::Vec;
use core::time::Duration;

use http::{Fields, Framing, Reject};

use super::{Connection, DRAIN_PING, Draining, Event};
use crate::fault::{Attack, ErrorCode, Fault};
use crate::flow::{ReceiveWindow, SendWindow};
use crate::frame::{self, FrameHead, HEAD_LEN, Kind, PREFACE, flag};
use crate::head::{self, Collector, Verdict};
use crate::limits::{
    BLOCK_BYTES_MAX, BLOCK_FIELDS_MAX, CONTINUATIONS_MAX, CONTROL_BYTES_MAX, EARLY_PRIORITIES_MAX,
    FRAME_BYTES_MAX, IDLE_FRAMES_PER_REQUEST, LIST_BYTES_MAX, Limits, STREAMS_MAX, TINY_DATA,
};
use crate::priority::Wish;
use crate::streams::{Standing, State, Stream};

/// The limits of the decoder.
const BLOCK_LIMITS: hpack::Limits =
    hpack::Limits { list_bytes_max: LIST_BYTES_MAX as usize, fields_max: BLOCK_FIELDS_MAX };

/// The next bytes of the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Input {
    /// The preface.
    Preface,
    /// The settings with which a client begins.
    FirstSettings,
    /// A frame.
    Frames,
    /// A CONTINUATION.
    Block(Headers),
    /// The rest of the payload of a DATA frame.
    Data(Data),
    /// Nothing: the connection has failed.
    Closed,
}

/// The frames of one header block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Headers {
    stream: u32,
    has_ended: bool,
    continuations: u32,
}

/// The rest of a DATA frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Data {
    stream: u32,
    left: u32,
    padding: u32,
    has_ended: bool,
}

/// The result of a step, with the number of bytes that it took.
#[expect(clippy::large_enum_variant, reason = "it is looked at where it was made, and not moved")]
enum Step {
    /// More bytes are needed.
    Partial,
    /// Nothing is to be said.
    Go(usize),
    Say(usize, Said),
}

/// An event without its bytes.
enum Said {
    /// One that borrows nothing.
    Plain(Event<'static>),
    /// The request is in the text.
    Request(u32, head::Found),
    /// The parts of the request that are known are in the text.
    Rejected(u32, Reject, head::Outline),
    /// The bytes are those that the step took.
    Body(u32),
    /// The trailers are in the text.
    Trailers(u32),
}

impl Connection {
    /// Parses `input`, all bytes received and not consumed; returns how many are consumed, and an event.
    ///
    /// Heads are written to `text`, which is overwritten. It may be shared by many connections, and needs up to
    /// [`LIST_BYTES_MAX`] and the text of one field.
    ///
    /// Every call consumes bytes, or reports something other than [`Event::Partial`], or needs more bytes than `input`
    /// has. It needs at most those of one frame, [`INPUT_BYTES_MAX`](crate::INPUT_BYTES_MAX). The same bytes yield the
    /// same events for any cuts into calls, except for the pieces of content. `limits` must be the same in every call.
    pub fn handle_input<'a>(
        &mut self,
        input: &'a [u8],
        text: &'a mut Vec<u8>,
        now: Duration,
        limits: &Limits,
    ) -> (usize, Event<'a>) {
        if self.input == Input::Closed {
            return (input.len(), Event::Closed);
        }
        let mut at = 0;
        loop {
            let step = self.step(&input[at..], text, now, limits).and_then(|step| {
                let is_full = self.control.len() > CONTROL_BYTES_MAX;
                let reason = "a client that does not take answers to its frames";
                if is_full { Err(Fault::attack(Attack::Control, reason)) } else { Ok(step) }
            });
            let (len, said) = match step {
                Ok(Step::Partial) => return (at, Event::Partial),
                Ok(Step::Go(len)) => {
                    at += len;
                    continue;
                }
                Ok(Step::Say(len, said)) => (len, said),
                Err(fault) => {
                    self.fail(fault);
                    return (input.len(), Event::Failed(fault));
                }
            };
            let bytes = &input[at..at + len];
            let event = match said {
                Said::Plain(event) => event,
                Said::Body(stream) => Event::Body { stream, bytes },
                Said::Rejected(stream, reject, head::Outline { method, path }) => {
                    Event::Rejected { stream, reject, method: &text[method], path: &text[path] }
                }
                Said::Trailers(stream) => Event::End { stream, trailers: Fields::new(text) },
                Said::Request(stream, found) => {
                    let wish = self.take_early(stream).unwrap_or(found.wish);
                    Event::Request(found.request(stream, text, wish))
                }
            };
            return (at + len, event);
        }
    }

    /// Goes on by one frame, or by a part of one.
    fn step(
        &mut self,
        rest: &[u8],
        text: &mut Vec<u8>,
        now: Duration,
        limits: &Limits,
    ) -> Result<Step, Fault> {
        match self.input {
            Input::Preface => return self.preface(rest),
            Input::Data(data) => return Ok(self.data_piece(data, rest, now)),
            Input::FirstSettings | Input::Frames | Input::Block(_) | Input::Closed => {}
        }
        let Some(head) = FrameHead::parse(rest) else { return Ok(Step::Partial) };
        if head.length > FRAME_BYTES_MAX {
            return Err(Fault::new(ErrorCode::FrameSize, "a frame that is too large"));
        }
        match self.input {
            Input::FirstSettings if head.kind != Kind::Settings || head.has(flag::ACK) => {
                return Err(Fault::protocol("a connection that does not begin with settings"));
            }
            Input::Block(Headers { stream, .. })
                if head.kind != Kind::Continuation || head.stream != stream =>
            {
                return Err(Fault::protocol("another frame within a header block"));
            }
            _ => {}
        }
        if head.kind == Kind::Data {
            return self.data(head, rest, now);
        }
        let len = HEAD_LEN + head.length as usize;
        let Some(payload) = rest.get(HEAD_LEN..len) else { return Ok(Step::Partial) };
        let said = match head.kind {
            Kind::Headers => self.headers(head, payload, text, now, limits)?,
            Kind::Continuation => self.continuation(head, payload, text, now, limits)?,
            _ => self.short_frame(head, payload, now)?.map(Said::Plain),
        };
        Ok(said.map_or(Step::Go(len), |said| Step::Say(len, said)))
    }

    fn preface(&mut self, rest: &[u8]) -> Result<Step, Fault> {
        let len = rest.len().min(PREFACE.len());
        if rest[..len] != PREFACE[..len] {
            return Err(Fault::protocol("a connection that does not begin with HTTP/2's preface"));
        }
        if len < PREFACE.len() {
            return Ok(Step::Partial);
        }
        self.input = Input::FirstSettings;
        Ok(Step::Go(len))
    }

    /// Counts a frame that carries nothing.
    fn count_idle(&mut self, now: Duration) -> Result<(), Fault> {
        if self.idle_frames.take(now) {
            return Ok(());
        }
        Err(Fault::attack(Attack::IdleFrames, "too many frames that carry nothing"))
    }

    /// Counts a stream that is reset, by either side.
    fn count_reset(&mut self, now: Duration) -> Result<(), Fault> {
        if self.resets.take(now) {
            return Ok(());
        }
        Err(Fault::attack(Attack::Resets, "too many streams that are reset"))
    }

    /// Resets a stream because of a fault of the client.
    fn reset_for(
        &mut self,
        stream: u32,
        code: ErrorCode,
        reason: &'static str,
        now: Duration,
    ) -> Result<Event<'static>, Fault> {
        self.count_reset(now)?;
        frame::push_reset(stream, code, &mut self.control);
        self.streams.close(stream, true);
        Ok(Event::Reset { stream, code, fault: Some(reason) })
    }

    /// HEADERS (RFC 9113 §6.2).
    fn headers(
        &mut self,
        head: FrameHead,
        payload: &[u8],
        text: &mut Vec<u8>,
        now: Duration,
        limits: &Limits,
    ) -> Result<Option<Said>, Fault> {
        if head.stream.is_multiple_of(2) {
            return Err(Fault::protocol("a request on a stream that is not a client's"));
        }
        let parts = padding(head, payload)?.ok_or(SHORT_FRAME)?;
        let mut block = &payload[parts.before..payload.len() - parts.behind as usize];
        if head.has(flag::PRIORITY) {
            let (priority, rest) = block.split_first_chunk::<5>().ok_or(SHORT_FRAME)?;
            check_dependency(head.stream, *priority)?;
            block = rest;
        }
        let headers = Headers {
            stream: head.stream,
            has_ended: head.has(flag::END_STREAM),
            continuations: 0,
        };
        if head.has(flag::END_HEADERS) {
            return self.block(headers, block, text, now, limits);
        }
        self.block.extend_from_slice(block);
        self.input = Input::Block(headers);
        Ok(None)
    }

    /// CONTINUATION (RFC 9113 §6.10).
    fn continuation(
        &mut self,
        head: FrameHead,
        payload: &[u8],
        text: &mut Vec<u8>,
        now: Duration,
        limits: &Limits,
    ) -> Result<Option<Said>, Fault> {
        let Input::Block(mut headers) = self.input else {
            return Err(Fault::protocol("a CONTINUATION behind no header block"));
        };
        self.count_idle(now)?;
        headers.continuations += 1;
        if headers.continuations > CONTINUATIONS_MAX {
            return Err(Fault::attack(
                Attack::Continuations,
                "too many frames of one header block",
            ));
        }
        if self.block.len() + payload.len() > BLOCK_BYTES_MAX {
            return Err(Fault::attack(Attack::Block, "a header block that is too long"));
        }
        self.block.extend_from_slice(payload);
        if !head.has(flag::END_HEADERS) {
            self.input = Input::Block(headers);
            return Ok(None);
        }
        self.input = Input::Frames;
        let block = core::mem::take(&mut self.block);
        self.block(headers, &block, text, now, limits)
    }

    /// Handles a whole header block: a request, or trailers.
    fn block(
        &mut self,
        headers: Headers,
        block: &[u8],
        text: &mut Vec<u8>,
        now: Duration,
        limits: &Limits,
    ) -> Result<Option<Said>, Fault> {
        let stream = headers.stream;
        let standing = self.streams.standing(stream);
        match standing {
            Standing::Unknown => return Err(Fault::protocol("a stream with too small a number")),
            Standing::Ended => {
                return Err(Fault::new(
                    ErrorCode::StreamClosed,
                    "HEADERS behind the end of a stream",
                ));
            }
            Standing::Active(_) | Standing::Idle | Standing::Reset => {}
        }
        text.clear();
        if standing == Standing::Idle
            && let Some(found) = self.last.repeat(block, headers.has_ended, limits, text)
        {
            return self.request(headers, Verdict::Request(found), now);
        }
        let mut collector = Collector::new(limits, standing != Standing::Idle);
        let decoded = self.decoder.decode(block, &BLOCK_LIMITS, text, |text, line| {
            collector.handle_line(text, &line);
        })?;
        if decoded.changes_table {
            self.last.forget();
        }
        let Standing::Idle = standing else {
            let result = if headers.has_ended {
                collector.finish_trailers(text, decoded.is_cut)
            } else {
                Err("a second head of a request")
            };
            return self.trailers(stream, result, now);
        };
        let verdict = collector.finish(text, decoded.is_cut, headers.has_ended);
        if let Verdict::Request(found) = &verdict
            && !decoded.changes_table
        {
            self.last.keep(block, limits, text, found);
        }
        self.request(headers, verdict, now)
    }

    /// Handles the head of a request that was decoded with this result.
    fn request(
        &mut self,
        headers: Headers,
        verdict: Verdict,
        now: Duration,
    ) -> Result<Option<Said>, Fault> {
        let Headers { stream, has_ended, .. } = headers;
        self.streams.use_id(stream);
        if matches!(self.draining, Draining::Last(last) if stream > last) {
            self.count_idle(now)?;
            self.streams.close(stream, true);
            return Ok(None);
        }
        self.idle_frames.forgive(IDLE_FRAMES_PER_REQUEST);
        if self.streams.is_full() {
            self.reset_for(stream, ErrorCode::RefusedStream, "a stream beyond the limit", now)?;
            return Ok(Some(Said::Plain(Event::Refused { stream })));
        }
        let said = match verdict {
            Verdict::Malformed(reason) => {
                self.reset_for(stream, ErrorCode::Protocol, reason, now)?;
                return Ok(Some(Said::Plain(Event::Malformed { stream, reason })));
            }
            Verdict::Rejected(reject, outline) => {
                self.open(stream, has_ended, None);
                Said::Rejected(stream, reject, outline)
            }
            Verdict::Request(found) => {
                let announced = match found.framing {
                    Framing::Length(length) => Some(length),
                    Framing::None => Some(0),
                    Framing::Unknown | Framing::Tunnel => None,
                };
                self.open(stream, has_ended, announced);
                Said::Request(stream, found)
            }
        };
        Ok(Some(said))
    }

    fn open(&mut self, id: u32, has_ended: bool, announced: Option<u64>) {
        self.streams.open(Stream {
            id,
            state: if has_ended { State::HalfClosedRemote } else { State::Open },
            send_window: SendWindow::new(self.peer.initial_window),
            receive_window: ReceiveWindow::NEW,
            announced,
        });
    }

    /// Handles the trailers of a request, which were decoded with this result.
    fn trailers(
        &mut self,
        id: u32,
        mut result: Result<(), &'static str>,
        now: Duration,
    ) -> Result<Option<Said>, Fault> {
        // A block that nobody needs is decoded all the same.
        if !self.streams.is_awaiting(id) {
            self.count_idle(now)?;
        }
        let Some(stream) = self.streams.get_mut(id) else { return Ok(None) };
        if stream.announced.is_some_and(|left| left > 0) {
            result = result.and(Err("less content than announced"));
        }
        let (code, reason) = match (stream.state, result) {
            (State::HalfClosedRemote, _) => {
                (ErrorCode::StreamClosed, "HEADERS behind the end of a stream")
            }
            (_, Err(reason)) => (ErrorCode::Protocol, reason),
            (_, Ok(())) => {
                return Ok(self.end_request(id).then_some(Said::Trailers(id)));
            }
        };
        self.reset_for(id, code, reason, now).map(|event| Some(Said::Plain(event)))
    }

    /// The beginning of a DATA frame (RFC 9113 §6.1).
    fn data(&mut self, head: FrameHead, rest: &[u8], now: Duration) -> Result<Step, Fault> {
        if head.stream == 0 {
            return Err(Fault::protocol("DATA on no stream"));
        }
        let come = rest.get(HEAD_LEN..).unwrap_or_default();
        let Some(Padding { before, behind: padding }) = padding(head, come)? else {
            return Ok(Step::Partial);
        };
        let overhead = u32::from(before > 0) + padding;
        let left = head.length - overhead;
        let has_ended = head.has(flag::END_STREAM);
        if left < TINY_DATA && !has_ended {
            self.count_idle(now)?;
        }
        let standing = self.streams.standing(head.stream);
        match standing {
            Standing::Idle => return Err(Fault::protocol("DATA on a stream without a request")),
            Standing::Ended | Standing::Unknown => {
                return Err(Fault::new(ErrorCode::StreamClosed, "DATA behind the end of a stream"));
            }
            Standing::Active(_) | Standing::Reset => {}
        }
        if !self.receive_window.receive(head.length) {
            return Err(Fault::attack(Attack::Window, "data beyond the window of the connection"));
        }
        self.take(overhead, now);
        let head_len = HEAD_LEN + before;
        self.input = Input::Data(Data { stream: head.stream, left, padding, has_ended });
        let Standing::Active(place) = standing else { return Ok(Step::Go(head_len)) };
        let stream = self.streams.at(place);
        let fault = match stream.state {
            State::HalfClosedRemote => {
                Some((ErrorCode::StreamClosed, "DATA behind the end of a stream"))
            }
            State::Open | State::HalfClosedLocal | State::Discarding { .. } => {
                if !stream.receive_window.receive(head.length) {
                    return Err(Fault::attack(
                        Attack::Window,
                        "data beyond the window of a stream",
                    ));
                }
                if overhead > 0 {
                    stream.receive_window.give_back(overhead);
                    frame::push_window(head.stream, overhead, &mut self.control);
                }
                let after = stream.announced.map(|announced| announced.checked_sub(left.into()));
                match after {
                    Some(None) => Some((ErrorCode::Protocol, "more content than announced")),
                    Some(Some(1..)) if has_ended => {
                        Some((ErrorCode::Protocol, "less content than announced"))
                    }
                    _ => {
                        stream.announced = after.flatten();
                        None
                    }
                }
            }
        };
        let Some((code, reason)) = fault else { return Ok(Step::Go(head_len)) };
        let event = self.reset_for(head.stream, code, reason, now)?;
        Ok(Step::Say(head_len, Said::Plain(event)))
    }

    /// A piece of the payload of a DATA frame, or its end.
    fn data_piece(&mut self, mut data: Data, rest: &[u8], now: Duration) -> Step {
        let (part, is_padding) =
            if data.left > 0 { (&mut data.left, false) } else { (&mut data.padding, true) };
        let len = rest.len().min(*part as usize);
        let size = u32::try_from(len).unwrap_or_default();
        if *part > 0 && len == 0 {
            return Step::Partial;
        }
        *part -= size;
        if len > 0 {
            self.input = Input::Data(data);
            if is_padding {
                return Step::Go(len);
            }
            if self.streams.is_awaiting(data.stream) {
                return Step::Say(len, Said::Body(data.stream));
            }
            self.take(size, now);
            self.handle_discarded(data.stream, size);
            return Step::Go(len);
        }
        self.input = Input::Frames;
        if data.has_ended && self.end_request(data.stream) {
            let (stream, trailers) = (data.stream, Fields::new(b""));
            return Step::Say(0, Said::Plain(Event::End { stream, trailers }));
        }
        Step::Go(0)
    }

    /// Records the end of a request; returns whether it was awaited.
    fn end_request(&mut self, id: u32) -> bool {
        let Some(stream) = self.streams.get_mut(id) else { return false };
        let is_awaiting = stream.state.is_awaiting();
        match stream.state {
            State::Open => stream.state = State::HalfClosedRemote,
            State::HalfClosedLocal | State::Discarding { .. } => self.streams.close(id, false),
            State::HalfClosedRemote => {}
        }
        is_awaiting
    }

    /// A frame of any other type.
    fn short_frame(
        &mut self,
        head: FrameHead,
        payload: &[u8],
        now: Duration,
    ) -> Result<Option<Event<'static>>, Fault> {
        let id = head.stream;
        match head.kind {
            Kind::Priority | Kind::ResetStream if id == 0 => {
                return Err(Fault::protocol("a frame of a stream on no stream"));
            }
            Kind::Settings | Kind::Ping | Kind::GoAway | Kind::PriorityUpdate if id != 0 => {
                return Err(Fault::protocol("a frame of the connection on a stream"));
            }
            Kind::PushPromise => return Err(Fault::protocol("a push of a client")),
            // It is counted as a reset, unless the stream has ended before.
            Kind::ResetStream => {}
            _ => self.count_idle(now)?,
        }
        match head.kind {
            Kind::Priority => {
                check_dependency(id, *exactly::<5>(payload)?)?;
                Ok(None)
            }
            Kind::ResetStream => {
                let code = ErrorCode::of_number(u32::from_be_bytes(*exactly::<4>(payload)?));
                self.reset_by_client(id, code, now)
            }
            Kind::Settings => self.settings(head, payload),
            Kind::Ping => {
                let payload = exactly::<8>(payload)?;
                if !head.has(flag::ACK) {
                    frame::push(Kind::Ping, flag::ACK, 0, payload, &mut self.control);
                } else if self.draining == Draining::Announced && payload == DRAIN_PING {
                    self.end(ErrorCode::NoError, "");
                }
                Ok(None)
            }
            Kind::GoAway => {
                let &[_, _, _, _, a, b, c, d] = payload.first_chunk::<8>().ok_or(SHORT_FRAME)?;
                self.peer_has_left = true;
                let code = ErrorCode::of_number(u32::from_be_bytes([a, b, c, d]));
                Ok(Some(Event::GoAway { code }))
            }
            Kind::WindowUpdate => self.window_update(id, frame::u31(*exactly::<4>(payload)?), now),
            Kind::PriorityUpdate => {
                let (stream, value) = payload.split_first_chunk::<4>().ok_or(SHORT_FRAME)?;
                self.priority_update(frame::u31(*stream), value)
            }
            // Unknown types are ignored (RFC 9113 §5.5).
            _ => Ok(None),
        }
    }

    fn reset_by_client(
        &mut self,
        stream: u32,
        code: ErrorCode,
        now: Duration,
    ) -> Result<Option<Event<'static>>, Fault> {
        match self.streams.standing(stream) {
            Standing::Idle => Err(Fault::protocol("a reset of a stream without a request")),
            Standing::Active(_) => {
                self.count_reset(now)?;
                self.streams.close(stream, false);
                Ok(Some(Event::Reset { stream, code, fault: None }))
            }
            Standing::Reset | Standing::Ended | Standing::Unknown => {
                self.count_idle(now)?;
                Ok(None)
            }
        }
    }

    /// SETTINGS (RFC 9113 §6.5).
    fn settings(
        &mut self,
        head: FrameHead,
        payload: &[u8],
    ) -> Result<Option<Event<'static>>, Fault> {
        if head.has(flag::ACK) {
            exactly::<0>(payload)?;
            return Ok(None);
        }
        let before = self.peer.initial_window;
        let encoder = &mut self.encoder;
        self.peer.update(payload, |size| encoder.set_table_size(size))?;
        let change = i64::from(self.peer.initial_window) - i64::from(before);
        for stream in self.streams.iter_mut() {
            if !stream.send_window.change(change) {
                return Err(Fault::attack(Attack::Window, "a window that is too large"));
            }
        }
        if self.input == Input::FirstSettings {
            self.input = Input::Frames;
        }
        frame::push(Kind::Settings, flag::ACK, 0, b"", &mut self.control);
        Ok((change > 0 && self.streams.len() > 0).then_some(Event::Room { stream: 0 }))
    }

    /// WINDOW_UPDATE (RFC 9113 §6.9).
    fn window_update(
        &mut self,
        id: u32,
        increment: u32,
        now: Duration,
    ) -> Result<Option<Event<'static>>, Fault> {
        const NOTHING: &str = "a WINDOW_UPDATE of nothing";
        const TOO_LARGE: &str = "a window that is too large";
        if id == 0 {
            if increment == 0 {
                return Err(Fault::protocol(NOTHING));
            }
            if !self.send_window.change(increment.into()) {
                return Err(Fault::attack(Attack::Window, TOO_LARGE));
            }
            return Ok(Some(Event::Room { stream: 0 }));
        }
        match self.streams.standing(id) {
            Standing::Idle => Err(Fault::protocol("a window of a stream without a request")),
            Standing::Active(_) if increment == 0 => {
                self.reset_for(id, ErrorCode::Protocol, NOTHING, now).map(Some)
            }
            Standing::Active(place) => {
                if self.streams.at(place).send_window.change(increment.into()) {
                    return Ok(Some(Event::Room { stream: id }));
                }
                self.reset_for(id, ErrorCode::FlowControl, TOO_LARGE, now).map(Some)
            }
            Standing::Reset | Standing::Ended | Standing::Unknown => Ok(None),
        }
    }

    /// PRIORITY_UPDATE (RFC 9218 §7.1).
    fn priority_update(
        &mut self,
        stream: u32,
        value: &[u8],
    ) -> Result<Option<Event<'static>>, Fault> {
        if stream.is_multiple_of(2) {
            return Err(Fault::protocol("a priority of a stream that is not a client's"));
        }
        let wish = Wish::parse(value);
        match self.streams.standing(stream) {
            Standing::Active(_) => return Ok(Some(Event::Priority { stream, wish })),
            Standing::Idle if stream <= self.streams.newest() + 2 * STREAMS_MAX => {
                self.take_early(stream);
                if self.early.len() == EARLY_PRIORITIES_MAX {
                    self.early.remove(0);
                }
                self.early.push((stream, wish));
            }
            _ => {}
        }
        Ok(None)
    }

    /// Removes the wish for a stream that was not open when it came.
    fn take_early(&mut self, stream: u32) -> Option<Wish> {
        let place = self.early.iter().position(|early| early.0 == stream)?;
        Some(self.early.remove(place).1)
    }
}

const SHORT_FRAME: Fault = Fault::new(ErrorCode::FrameSize, "a frame that is too short");
const LONG_PADDING: Fault = Fault::protocol("padding that is longer than its frame");

/// The bytes of a payload that are not its content (RFC 9113 §6.1, §6.2).
struct Padding {
    /// The bytes of the length of the padding: one or none.
    before: usize,
    /// The bytes of the padding.
    behind: u32,
}

/// Finds the padding of a frame. `payload` is the part of the payload that has come; `None` if more is needed.
fn padding(head: FrameHead, payload: &[u8]) -> Result<Option<Padding>, Fault> {
    if !head.has(flag::PADDED) {
        return Ok(Some(Padding { before: 0, behind: 0 }));
    }
    let room = head.length.checked_sub(1).ok_or(SHORT_FRAME)?;
    let Some(&behind) = payload.first() else { return Ok(None) };
    let behind = u32::from(behind);
    if behind > room { Err(LONG_PADDING) } else { Ok(Some(Padding { before: 1, behind })) }
}

/// The payload, if it has this length.
fn exactly<const LEN: usize>(payload: &[u8]) -> Result<&[u8; LEN], Fault> {
    let wrong = Fault::new(ErrorCode::FrameSize, "a frame with a wrong length");
    payload.try_into().map_err(|_| wrong)
}

/// Priorities of RFC 7540 have no effect, but none may be of a stream that depends on itself (RFC 7540 §5.3.1).
fn check_dependency(stream: u32, [a, b, c, d, _weight]: [u8; 5]) -> Result<(), Fault> {
    if frame::u31([a, b, c, d]) == stream {
        return Err(Fault::protocol("a stream that depends on itself"));
    }
    Ok(())
}
