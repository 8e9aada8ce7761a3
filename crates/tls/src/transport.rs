//! TLS between a stream and a transport that carries its records.
//!
//! ```text
//!   OutQ of plain bytes ──seal──► OutQ of records ──drain──► the transport below
//!   plain bytes ◄──open── records ◄──receive── the transport below
//! ```
//!
//! Until the handshake is complete no byte of the stream is sealed. Records are copies, so the stream's memory is released at
//! once; the records stay until the transport below has released them. They are written to memory of the worker. A connection
//! has memory of its own only for records that could not leave, so an idle one has little more than its keys.
//!
//! Each send wakes the peer, so records leave together: session tickets with the first response, and our end (close_notify)
//! with the last one. Our end is said when the stream has been sent completely. A connection that is closed earlier never says
//! it, so a peer can tell a response that was cut off.

use core::net::IpAddr;
use core::num::NonZeroU64;
use std::rc::Rc;

use outq::{OutQ, Weight};
use ring::Ring;
use sendfile::{Drained, Failure, Handshake as Facts, Piece, Takes, Transport};
use tls_record::{Alert, Assembly, Fault};

use crate::acceptors::Listening;
use crate::buffers::{BATCH_BYTES, bounds, keep_few};
use crate::handshake::{Failed, Handshake};
use crate::open::Open;
use crate::steps::{Asker, Steps};

/// Memory of a connection during its handshake in addition to its buffers, about.
const HANDSHAKE_BYTES: usize = 8 * 1024;
/// The most bytes that a client may send while a step of its handshake waits. An honest one waits for the answer.
const HELD_BYTES_MAX: usize = 16 * 1024;

/// TLS over a transport.
#[derive(Debug)]
pub struct Tls<T> {
    below: T,
    layer: Layer,
    /// True if nothing will follow the stream's promised bytes.
    is_finished: bool,
    /// True once our end follows the records.
    shuts_down: bool,
}

/// The layer between plain bytes and the transport below.
#[derive(Debug)]
struct Layer {
    /// Records that have to leave, and those that the transport below may have to send again.
    records: OutQ<Piece>,
    /// Records of the handshake that no client waits for, with the tickets of TLS 1.3. They leave in front of the next record.
    tickets: Vec<u8>,
    state: State,
    /// The record that has not come completely.
    assembly: Assembly,
    /// Plain bytes of the last receive, until the next drain.
    plain: Vec<u8>,
    /// True once our end has been said. What comes from then on is dropped: a session only waits for the peer's end.
    has_said_end: bool,
    has_ended: bool,
}

#[derive(Debug)]
enum State {
    /// The handshake is not complete.
    Shaking(Box<Handshake>),
    /// Plain bytes can be exchanged.
    Open(Box<Open>),
    /// The handshake has failed, or the peer has broken the protocol.
    Broken,
}

impl<T: Transport> Tls<T> {
    /// The server's end of a connection that has been accepted.
    pub fn new(below: T, listening: Rc<Listening>) -> Self {
        Self::with(below, State::Shaking(Box::new(Handshake::new(listening))))
    }

    /// Leaves the steps of the handshake to the network, which knows the connection by `id`. It tells the transport of a
    /// result by an empty [`receive`](Transport::receive).
    pub fn ask(&mut self, steps: Rc<Steps>, id: u64, client: Option<IpAddr>) {
        if let State::Shaking(handshake) = &mut self.layer.state {
            handshake.set_asker(Asker::new(steps, id, client));
        }
    }

    /// Notes the address to which the client has connected. The function is called only if a site may be chosen by it.
    pub fn set_local_address(&mut self, address: impl FnOnce() -> Option<IpAddr>) {
        if let State::Shaking(handshake) = &mut self.layer.state {
            handshake.set_local_address(address);
        }
    }

    /// A connection that ends with the first bytes of its client.
    pub(crate) fn refused(below: T) -> Self {
        Self::with(below, State::Broken)
    }

    fn with(below: T, state: State) -> Self {
        let layer = Layer {
            records: OutQ::new(),
            tickets: Vec::new(),
            state,
            assembly: Assembly::default(),
            plain: Vec::new(),
            has_said_end: false,
            has_ended: false,
        };
        Self { below, layer, is_finished: false, shuts_down: false }
    }

    /// Sends records: [`Drained::Empty`] only if all of them have left.
    fn flush(&mut self, ring: &mut Ring) -> Drained {
        let drained = self.below.drain(ring, &mut self.layer.records, &mut { u64::MAX });
        if self.layer.is_released() && core::mem::take(&mut self.shuts_down) {
            self.below.shutdown(ring);
        }
        drained
    }

    /// Seals and sends, batch by batch.
    fn send(&mut self, ring: &mut Ring, queue: &mut OutQ<Piece>, budget: &mut u64) -> Drained {
        loop {
            let drained = self.flush(ring);
            if drained != Drained::Empty {
                return drained;
            }
            let owes_update = self.layer.owes_update();
            if !self.is_open() || (queue.unsent_ready() == 0 && !owes_update) {
                // Records that are not acknowledged may have to be sent again. Nobody else has them.
                return if self.layer.is_released() { Drained::Empty } else { Drained::Blocked };
            }
            if *budget == 0 && !owes_update {
                return Drained::TurnOver;
            }
            match self.layer.seal(queue, *budget) {
                // The keys have sealed as many records as they may.
                0 if !owes_update => return Drained::Failed(Failure::Gone),
                sealed => *budget -= sealed,
            }
            if self.is_finished && queue.is_drained() {
                self.layer.say_end();
                self.below.finish();
            }
        }
    }
}

impl Layer {
    /// Returns true if the transport below needs no record any more, not even to send it again.
    const fn is_released(&self) -> bool {
        self.records.released() == self.records.promised()
    }

    fn push(&mut self, records: Vec<u8>) {
        if !records.is_empty() {
            self.push_piece(Piece::Bytes(records));
        }
    }

    fn push_piece(&mut self, records: Piece) {
        if !self.tickets.is_empty() {
            self.records.push(Piece::Bytes(core::mem::take(&mut self.tickets)));
        }
        self.records.push(records);
    }

    /// Handles bytes of records. Plain bytes go to `plain`.
    fn handle(&mut self, mut input: &[u8]) -> Result<(), Failure> {
        if self.assembly.weight() == 0
            && let State::Shaking(handshake) = &self.state
            && let Some(answer) = handshake.answer_to_plain(input)
        {
            self.push(answer);
            return Err(self.break_off());
        }
        loop {
            if let State::Shaking(handshake) = &mut self.state
                && handshake.is_waiting()
            {
                handshake.held.extend_from_slice(input);
                return if handshake.held.len() > HELD_BYTES_MAX {
                    Err(self.break_off())
                } else {
                    Ok(())
                };
            }
            let next = self.assembly.next(&mut input);
            match (next, &mut self.state) {
                (Ok(None), _) => return Ok(()),
                (Ok(Some(record)), State::Open(open)) => {
                    let records = open.records();
                    if let Err(fault) = records.open(record, &mut self.plain) {
                        return Err(self.break_off_with(fault));
                    }
                    self.has_ended |= records.has_ended();
                }
                (Err(fault), State::Open(_)) => return Err(self.break_off_with(fault)),
                (next, State::Shaking(handshake)) => {
                    let mut answer = Vec::new();
                    // Of a record that is too long the handshake gets the head, and says so.
                    let handled =
                        handshake.handle(next.ok().flatten().unwrap_or(input), &mut answer);
                    let is_too_long = next.is_err();
                    if is_too_long {
                        self.push(answer);
                        return Err(self.break_off());
                    }
                    self.follow(handled, answer)?;
                }
                (_, State::Broken) => return Err(Failure::Gone),
            }
        }
    }

    /// Goes on after a step of the handshake, if one was taken.
    fn go_on(&mut self) -> Result<(), Failure> {
        let State::Shaking(handshake) = &mut self.state else { return Ok(()) };
        if !handshake.is_waiting() {
            return Ok(());
        }
        let held = core::mem::take(&mut handshake.held);
        let mut answer = Vec::new();
        let handled = handshake.go_on(&mut answer);
        self.follow(handled, answer)?;
        self.handle(&held)
    }

    /// Goes on after a message of the handshake, which has this answer.
    fn follow(
        &mut self,
        handled: Result<Option<Box<Open>>, Failed>,
        answer: Vec<u8>,
    ) -> Result<(), Failure> {
        match handled {
            Ok(Some(open)) => {
                // The last message of a handshake of TLS 1.3 is the client's, and only tickets answer it.
                if open.established.is_tls13() {
                    self.tickets = answer;
                } else {
                    self.push(answer);
                }
                self.state = State::Open(open);
            }
            Ok(None) => self.push(answer),
            Err(Failed) => {
                self.push(answer);
                return Err(self.break_off());
            }
        }
        Ok(())
    }

    /// Ends the connection, with an alert for the peer.
    fn break_off_with(&mut self, fault: Fault) -> Failure {
        if let State::Open(open) = &mut self.state
            && let Some(alert) = fault.alert()
        {
            let record = open.records().say(alert);
            self.push(record);
        }
        self.break_off()
    }

    fn break_off(&mut self) -> Failure {
        self.state = State::Broken;
        Failure::Gone
    }

    /// Returns whether the peer waits for new keys of ours.
    fn owes_update(&self) -> bool {
        matches!(&self.state, State::Open(open) if open.seen().owes_update() && !self.has_said_end)
    }

    /// Seals the next ready bytes of the stream, at most `most`. Returns their number.
    fn seal(&mut self, queue: &mut OutQ<Piece>, most: u64) -> u64 {
        let State::Open(open) = &mut self.state else { return 0 };
        let buffers = Rc::clone(&open.established.listening().buffers);
        let records = open.records();
        let most = usize::try_from(most).map_or(BATCH_BYTES, |most| most.min(BATCH_BYTES));
        let mut plain = 0;
        let batch = buffers.batch(|out| {
            let ready = queue.next_ready();
            let pieces = ready.map(|chunk| &chunk.payload.bytes()[bounds(&chunk.range)]);
            let sealed = records.seal(pieces, most, out);
            plain = sealed.plain as u64;
            sealed.written
        });
        if let Some(batch) = batch {
            self.push_piece(batch);
        }
        queue.mark_sent(plain);
        queue.mark_released(plain);
        plain
    }

    /// Says our end, if the handshake is complete.
    fn say_end(&mut self) {
        if let State::Open(open) = &mut self.state
            && !core::mem::replace(&mut self.has_said_end, true)
        {
            let record = open.records().say(Alert::CloseNotify);
            self.push(record);
        }
    }

    /// Gives the memory of received bytes back.
    fn release_plain(&mut self) {
        let plain = core::mem::take(&mut self.plain);
        if let State::Open(open) = &self.state {
            open.established.listening().buffers.put_plain(plain);
        }
    }

    /// Frees what is of no use while there is nothing to do.
    fn rest(&mut self) {
        self.records.shrink();
        if let State::Open(open) = &mut self.state {
            open.rest();
        }
    }

    fn weight(&self) -> Weight {
        let state = match &self.state {
            State::Shaking(handshake) => HANDSHAKE_BYTES + handshake.held.capacity(),
            State::Open(open) => size_of::<Open>() + open.established.weight(),
            State::Broken => 0,
        };
        let buffers = self.plain.capacity() + self.assembly.weight() + self.tickets.capacity();
        let mut weight = self.records.weight();
        weight.own += (state + buffers) as u64;
        weight
    }
}

impl<T: Transport> Transport for Tls<T> {
    fn takes(&self) -> Takes {
        Takes::Memory
    }

    fn is_open(&self) -> bool {
        matches!(self.layer.state, State::Open(_))
    }

    fn handshake(&self) -> Option<Rc<dyn Facts>> {
        let State::Open(open) = &self.layer.state else { return None };
        Some(open.established.clone())
    }

    fn weight(&self) -> Weight {
        let (own, below) = (self.layer.weight(), self.below.weight());
        Weight { own: own.own + below.own, shared: own.shared + below.shared }
    }

    fn drain(&mut self, ring: &mut Ring, queue: &mut OutQ<Piece>, budget: &mut u64) -> Drained {
        self.layer.release_plain();
        let drained = self.send(ring, queue, budget);
        match drained {
            Drained::Empty => self.layer.rest(),
            Drained::Blocked => keep_few(&mut self.layer.records),
            _ => {}
        }
        drained
    }

    fn window(&self) -> u64 {
        self.below.window()
    }

    fn receive<'a>(
        &'a mut self,
        bytes: &'a [u8],
        _queue: &mut OutQ<Piece>,
    ) -> Result<&'a [u8], Failure> {
        self.layer.release_plain();
        if self.layer.has_said_end {
            return Ok(&[]);
        }
        let bytes = self.below.receive(bytes, &mut self.layer.records)?;
        match &self.layer.state {
            State::Shaking(_) => {}
            State::Open(open) => {
                self.layer.plain = open.established.listening().buffers.take_plain();
            }
            State::Broken => return Err(Failure::Gone),
        }
        self.layer.go_on()?;
        self.layer.handle(bytes)?;
        Ok(&self.layer.plain)
    }

    fn set_client(&mut self, client: IpAddr) {
        if let State::Shaking(handshake) = &self.layer.state
            && let Some(asker) = handshake.asker()
        {
            asker.set_client(client);
        }
        self.below.set_client(client);
    }

    fn handle_writable(&mut self) {
        self.below.handle_writable();
    }

    fn is_blocked(&self) -> bool {
        self.below.is_blocked()
    }

    fn acknowledged(&self, ring: &Ring, _queue: &OutQ<Piece>) -> i64 {
        self.below.acknowledged(ring, &self.layer.records)
    }

    fn set_rate(&mut self, ring: &Ring, bytes_per_second: Option<NonZeroU64>) {
        self.below.set_rate(ring, bytes_per_second);
    }

    fn bound_unsent(&mut self, ring: &Ring, is_bound: bool) {
        self.below.bound_unsent(ring, is_bound);
    }

    fn set_receiving(&mut self, ring: &mut Ring, on: bool) {
        self.below.set_receiving(ring, on);
    }

    fn expect_much(&mut self, much: bool) {
        self.below.expect_much(much);
    }

    fn handle_receive_stopped(&mut self) {
        self.below.handle_receive_stopped();
    }

    fn handle_end(&mut self) {
        self.below.handle_end();
        self.layer.has_ended = true;
    }

    fn has_ended(&self) -> bool {
        self.layer.has_ended
    }

    fn finish(&mut self) {
        self.is_finished = true;
    }

    fn shutdown(&mut self, ring: &mut Ring) {
        self.layer.say_end();
        self.shuts_down = true;
        self.below.finish();
        self.flush(ring);
    }

    fn reset(&mut self, ring: &mut Ring) {
        self.below.reset(ring);
    }

    fn close(&mut self, ring: &mut Ring) {
        // An alert leaves if there is room for it. Nothing waits for more.
        self.flush(ring);
        self.below.close(ring);
    }

    fn close_idle(&mut self, ring: &mut Ring) {
        self.layer.say_end();
        self.flush(ring);
        if self.layer.is_released() {
            self.below.close_idle(ring);
        } else {
            self.below.close_after(ring, core::mem::take(&mut self.layer.records));
        }
    }
}
