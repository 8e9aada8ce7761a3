//! TLS between a stream and a transport that carries its records.
//!
//! ```text
//!   OutQ of plain bytes ──seal──► OutQ of records ──drain──► the transport below
//!   plain bytes ◄──open── records ◄──receive── the transport below
//! ```
//!
//! The first message of the client names a server. The [`Acceptor`] chooses the settings by it, and the handshake goes on with
//! them. Until the handshake is complete no byte of the stream is sealed. Records are copies, so the stream's memory is
//! released at once; the records stay until the transport below has released them.
//!
//! Our end is said (close_notify) when the stream has been sent completely. A connection that is closed earlier never says it,
//! so a peer can tell a response that was cut off.

use core::fmt;
use core::num::NonZeroU64;
use core::ops::Range;
use std::io::{Read as _, Write as _};
use std::rc::Rc;

use outq::{OutQ, Weight};
use ring::{Notice, Ring};
use rustls::server::{Accepted, Acceptor as Hello, ServerConnection};
use sendfile::{Drained, Failure, Handshake, Piece, Takes, Transport};

use crate::acceptors::Listening;
use crate::established::Established;

/// The most plain bytes that are sealed before they are sent.
const BATCH_BYTES: usize = 64 * 1024;
/// Bytes that a record adds to its plain bytes, at most (RFC 8446 §5.2, RFC 5246 §6.2.3.3).
const RECORD_OVERHEAD: usize = 5 + 8 + 1 + 16;
/// The most memory for received plain bytes that is kept for the next receive.
const PLAIN_BYTES_KEPT: usize = 1024;
/// The most plain bytes of a record.
const RECORD_BYTES: usize = 16 * 1024;
/// The most bytes that a client may send before its first message is complete. The message of a browser has 2 KiB.
const HELLO_BYTES_MAX: usize = 16 * 1024;
/// Memory of a connection beside its buffers, about: keys, the state of the handshake.
const STATE_BYTES: u64 = 8 * 1024;
/// The type of a record with a handshake (RFC 8446 §5.1). No request of HTTP begins with it.
const HANDSHAKE: u8 = 22;

/// TLS over a transport.
pub struct Tls<T> {
    below: T,
    /// Records that have to leave, and those that the transport below may have to send again.
    records: OutQ<Piece>,
    state: State,
    /// Plain bytes of the last receive.
    plain: Vec<u8>,
    /// The bytes of a record that has not come completely, which the state of the handshake keeps.
    partial: Partial,
    /// True once our end has been said. What comes from then on is dropped: a session only waits for the peer's end.
    has_said_end: bool,
    /// True once our end follows the records.
    shuts_down: bool,
    has_ended: bool,
}

/// The state of the handshake.
enum State {
    /// The first message of the client has not come completely.
    Hello { hello: Box<Hello>, listening: Rc<Listening>, received: usize },
    /// The handshake goes on.
    Shaking(Box<ServerConnection>, Rc<Listening>, usize),
    /// Plain bytes can be exchanged.
    Open(Box<ServerConnection>, Rc<Established>),
    /// The handshake has failed, or the peer has broken the protocol.
    Broken,
}

impl<T: Transport> Tls<T> {
    /// The server's end of a connection that has been accepted.
    pub fn new(below: T, listening: Rc<Listening>) -> Self {
        listening.counters.begin();
        Self::with(below, State::Hello { hello: Box::default(), listening, received: 0 })
    }

    /// A connection that ends with the first bytes of its client.
    pub(crate) fn refused(below: T) -> Self {
        Self::with(below, State::Broken)
    }

    fn with(below: T, state: State) -> Self {
        let (records, plain) = (OutQ::new(), Vec::new());
        let partial = Partial::default();
        Self {
            below,
            records,
            state,
            plain,
            partial,
            has_said_end: false,
            shuts_down: false,
            has_ended: false,
        }
    }

    /// Sends records: [`Drained::Empty`] only if all of them have left.
    fn flush(&mut self, ring: &mut Ring) -> Drained {
        let drained = self.below.drain(ring, &mut self.records, &mut { u64::MAX });
        if self.is_released() && core::mem::take(&mut self.shuts_down) {
            self.below.shutdown(ring);
        }
        drained
    }

    /// Returns true if the transport below needs no record any more, not even to send it again.
    const fn is_released(&self) -> bool {
        self.records.released() == self.records.promised()
    }

    fn push(&mut self, records: Vec<u8>) {
        if !records.is_empty() {
            self.records.push(Piece::Bytes(records));
        }
    }

    /// Ends the handshake, or the connection, with an alert for the peer.
    fn break_off(&mut self, alert: Vec<u8>) -> Failure {
        if let State::Hello { listening, .. } | State::Shaking(_, listening, _) = &self.state {
            listening.counters.fail();
        }
        self.push(alert);
        self.state = State::Broken;
        Failure::Gone
    }

    /// Takes bytes of the client's first message. Returns how many were taken.
    fn handle_hello(&mut self, bytes: &[u8]) -> Result<usize, Failure> {
        let State::Hello { hello, listening, received } = &mut self.state else { return Ok(0) };
        if *received == 0 && bytes.first().is_some_and(|first| *first != HANDSHAKE) {
            let answer = listening.answer_to_plain(bytes);
            return Err(self.break_off(answer));
        }
        let mut input = bytes;
        // The buffer of the handshake is bounded, too; it does not take all at once.
        let taken = hello.read_tls(&mut input).unwrap_or(0);
        *received += taken;
        let is_too_long = *received > HELLO_BYTES_MAX;
        match hello.accept() {
            Ok(Some(accepted)) => self.begin(accepted)?,
            Ok(None) if is_too_long || taken == 0 => return Err(self.break_off(Vec::new())),
            Ok(None) => {}
            Err((_, mut alert)) => {
                let mut text = Vec::new();
                // Writing to a vector cannot fail.
                let _ = alert.write_all(&mut text);
                return Err(self.break_off(text));
            }
        }
        Ok(taken)
    }

    /// Goes on with the settings of the site that the client names.
    fn begin(&mut self, accepted: Accepted) -> Result<(), Failure> {
        let State::Hello { listening, .. } = &self.state else { return Ok(()) };
        let chosen = listening.acceptor.choose(&accepted.client_hello());
        match accepted.into_connection(chosen.config) {
            Ok(mut connection) => {
                connection.set_buffer_limit(None);
                let listening = Rc::clone(listening);
                self.state = State::Shaking(Box::new(connection), listening, chosen.site);
                Ok(())
            }
            Err((_, mut alert)) => {
                let mut text = Vec::new();
                let _ = alert.write_all(&mut text);
                Err(self.break_off(text))
            }
        }
    }

    /// Takes records, whole or in parts. Plain bytes go to `plain`, and what the handshake answers to the records.
    fn handle_records(&mut self, mut input: &[u8]) -> Result<(), Failure> {
        loop {
            let (State::Shaking(connection, ..) | State::Open(connection, _)) = &mut self.state
            else {
                return Ok(());
            };
            // An error says that plain bytes have to be taken first.
            let taken = connection.read_tls(&mut input).unwrap_or_default();
            let progress = connection.process_new_packets();
            let made = take_records(connection);
            let Ok(state) = progress else { return Err(self.break_off(made)) };
            let begin = self.plain.len();
            self.plain.resize(begin + state.plaintext_bytes_to_read(), 0);
            let is_read = connection.reader().read_exact(&mut self.plain[begin..]).is_ok();
            self.has_ended |= state.peer_has_closed();
            self.push(made);
            self.note_open();
            // The peer has ended its side if nothing is taken although nothing waits.
            let goes_on = taken > 0 || self.plain.len() > begin;
            if !is_read || input.is_empty() || !goes_on {
                return Ok(());
            }
        }
    }

    /// Notes that the handshake is complete, if it is.
    fn note_open(&mut self) {
        if matches!(&self.state, State::Shaking(connection, ..) if !connection.is_handshaking())
            && let State::Shaking(connection, listening, site) =
                core::mem::replace(&mut self.state, State::Broken)
        {
            let established = Established::new(&connection, &listening.acceptor, site);
            listening
                .counters
                .complete(established.version() == "TLSv1.3", established.is_resumed());
            self.state = State::Open(connection, Rc::new(established));
        }
    }

    /// Seals the next ready bytes of the stream, at most `most`. Returns their number.
    fn seal(&mut self, queue: &mut OutQ<Piece>, most: u64) -> u64 {
        let State::Open(connection, _) = &mut self.state else { return 0 };
        let room = usize::try_from(most).map_or(BATCH_BYTES, |room| room.min(BATCH_BYTES));
        let mut sealed = 0;
        for chunk in queue.next_ready() {
            let bytes = &chunk.payload.bytes()[bounds(&chunk.range)];
            let bytes = &bytes[..bytes.len().min(room - sealed)];
            // The buffer of the connection has no limit, and it cannot be closed here.
            if connection.writer().write_all(bytes).is_err() {
                break;
            }
            sealed += bytes.len();
            if sealed == room {
                break;
            }
        }
        let records = take_records_of(connection, sealed);
        self.push(records);
        let sealed = sealed as u64;
        queue.mark_sent(sealed);
        queue.mark_released(sealed);
        sealed
    }

    /// Says our end, if the handshake is complete.
    fn say_end(&mut self) {
        if let State::Open(connection, _) = &mut self.state {
            self.has_said_end = true;
            connection.send_close_notify();
            let made = take_records(connection);
            self.push(made);
        }
    }
}

/// Takes the records that a connection has made.
fn take_records(connection: &mut ServerConnection) -> Vec<u8> {
    take_records_of(connection, 0)
}

/// Takes the records that a connection has made of so many plain bytes.
fn take_records_of(connection: &mut ServerConnection, plain: usize) -> Vec<u8> {
    let records = plain.div_ceil(RECORD_BYTES) * RECORD_OVERHEAD;
    let mut made = Vec::with_capacity(plain + records);
    while connection.wants_write() {
        // Writing to a vector cannot fail.
        if connection.write_tls(&mut made).unwrap_or(0) == 0 {
            break;
        }
    }
    made
}

/// The bytes that have come of the last record, counted by the heads of records (RFC 8446 §5.1).
#[derive(Debug, Default)]
struct Partial {
    head: [u8; 5],
    /// The bytes of the record that have come, its head included.
    came: usize,
}

impl Partial {
    fn note(&mut self, mut bytes: &[u8]) {
        while let Some(first) = bytes.first() {
            if self.came < self.head.len() {
                self.head[self.came] = *first;
                (self.came, bytes) = (self.came + 1, &bytes[1..]);
                continue;
            }
            let whole =
                self.head.len() + usize::from(u16::from_be_bytes([self.head[3], self.head[4]]));
            let next = bytes.len().min(whole - self.came);
            (self.came, bytes) = (self.came + next, &bytes[next..]);
            if self.came == whole {
                self.came = 0;
            }
        }
    }

    const fn bytes(&self) -> usize {
        self.came
    }
}

/// The place of a chunk in its payload.
fn bounds(range: &Range<u64>) -> Range<usize> {
    let index = |at| usize::try_from(at).expect("within a slice");
    index(range.start)..index(range.end)
}

impl<T: Transport> Transport for Tls<T> {
    fn takes(&self) -> Takes {
        Takes::Memory
    }

    fn is_open(&self) -> bool {
        matches!(self.state, State::Open(..))
    }

    fn handshake(&self) -> Option<Rc<dyn Handshake>> {
        let State::Open(_, established) = &self.state else { return None };
        Some(Rc::<Established>::clone(established))
    }

    fn weight(&self) -> Weight {
        let records = self.records.weight();
        let below = self.below.weight();
        let buffers = (self.plain.capacity() + self.partial.bytes()) as u64;
        let own = records.own + below.own + STATE_BYTES + buffers;
        Weight { own, shared: records.shared + below.shared }
    }

    fn drain(&mut self, ring: &mut Ring, queue: &mut OutQ<Piece>, budget: &mut u64) -> Drained {
        loop {
            let drained = self.flush(ring);
            if drained != Drained::Empty {
                return drained;
            }
            if queue.unsent_ready() == 0 || !self.is_open() {
                // Records that are not acknowledged may have to be sent again. Nobody else has them.
                return if self.is_released() { Drained::Empty } else { Drained::Blocked };
            }
            if *budget == 0 {
                return Drained::TurnOver;
            }
            match self.seal(queue, *budget) {
                0 => return Drained::Failed(Failure::Gone),
                sealed => *budget -= sealed,
            }
        }
    }

    fn window(&self) -> u64 {
        self.below.window()
    }

    fn receive<'a>(
        &'a mut self,
        bytes: &'a [u8],
        _queue: &mut OutQ<Piece>,
    ) -> Result<&'a [u8], Failure> {
        self.plain.clear();
        // A burst takes its memory along: a connection may be idle for long.
        self.plain.shrink_to(PLAIN_BYTES_KEPT);
        if self.has_said_end {
            return Ok(&self.plain);
        }
        if matches!(self.state, State::Broken) {
            return Err(Failure::Gone);
        }
        let bytes = self.below.receive(bytes, &mut self.records)?.to_vec();
        let mut input = &bytes[..];
        self.partial.note(input);
        while matches!(self.state, State::Hello { .. }) && !input.is_empty() {
            input = &input[self.handle_hello(input)?..];
        }
        self.handle_records(input)?;
        Ok(&self.plain)
    }

    fn handle_writable(&mut self) {
        self.below.handle_writable();
    }

    fn handle_notice(&mut self, _queue: &mut OutQ<Piece>, notice: Notice) {
        self.below.handle_notice(&mut self.records, notice);
    }

    fn is_blocked(&self) -> bool {
        self.below.is_blocked()
    }

    fn acknowledged(&self, ring: &Ring, _queue: &OutQ<Piece>) -> i64 {
        self.below.acknowledged(ring, &self.records)
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

    fn handle_receive_stopped(&mut self) {
        self.below.handle_receive_stopped();
    }

    fn handle_end(&mut self) {
        self.below.handle_end();
        self.has_ended = true;
    }

    fn has_ended(&self) -> bool {
        self.has_ended
    }

    fn shutdown(&mut self, ring: &mut Ring) {
        self.say_end();
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
        self.say_end();
        self.flush(ring);
        if self.is_released() {
            self.below.close_idle(ring);
        } else {
            self.below.close_after(ring, core::mem::take(&mut self.records));
        }
    }
}

impl<T> Drop for Tls<T> {
    fn drop(&mut self) {
        if let State::Hello { listening, .. } | State::Shaking(_, listening, _) = &self.state {
            listening.counters.fail();
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for Tls<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match &self.state {
            State::Hello { .. } => "Hello",
            State::Shaking(..) => "Shaking",
            State::Open(..) => "Open",
            State::Broken => "Broken",
        };
        let mut all = out.debug_struct("Tls");
        all.field("state", &state).field("below", &self.below).finish_non_exhaustive()
    }
}
