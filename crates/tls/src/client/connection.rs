//! One connection to a server, without its socket.
//!
//! ```text
//!   OutQ of plain bytes ──seal──► records() ──► the socket
//!   take_plain() ◄──open── handle_received() ◄── bytes that were received
//!   room of the caller ◄──open── receive() ◄── bytes that are received for it
//! ```
//!
//! While the handshake lasts, received bytes only wait: [`step`](ClientConnection::step) handles them, because it makes keys
//! and verifies signatures, and the caller may let it wait for its turn.
//!
//! A connection holds opened bytes until the caller fetches them: at most those of one receive (64 KiB), and the record
//! that has not come completely. They are charged to the account of the worker.

use core::cell::RefCell;
use core::ops::Deref;
use std::io;
use std::rc::Rc;

use outq::OutQ;
use sendfile::{Account, Charge, Piece};
use tls_record::{Alert, Assembly, RECORD_BYTES_MAX};

use super::fault::ClientFault;
use super::settings::{ClientSettings, ServerName};
use super::shaking::{Open, Shaking};
use crate::buffers::{BATCH_BYTES, Buffers, bounds, keep_few};

/// The most bytes that a server may send while a step of the handshake waits for its turn: two messages of the longest
/// kind that rustls accepts. One receive more is held.
const HELD_BYTES_MAX: usize = 128 * 1024;
/// The most bytes of records that are received in one call into the memory of the worker.
const RECEIVED_BYTES_MAX: usize = 64 * 1024;
/// The types of records (RFC 8446 §5.1). No response of HTTP begins with such a byte.
const RECORD_TYPES: core::ops::RangeInclusive<u8> = 20..=23;

/// A connection to a server, without its socket.
#[derive(Debug)]
pub struct ClientConnection {
    state: State,
    /// Records that have to leave.
    records: OutQ<Piece>,
    /// The record that has not come completely.
    assembly: Assembly,
    /// Bytes that have come and wait for a step of the handshake.
    held: Vec<u8>,
    /// Plain bytes that were not taken yet, from `taken` on.
    plain: Vec<u8>,
    taken: usize,
    end: End,
    /// True once our end was said.
    has_said_end: bool,
    /// The records that were made before the handshake was complete, in bytes.
    handshake_bytes: u64,
    /// The memory of `held`, `plain` and `assembly`.
    charge: Charge,
    buffers: Rc<ClientBuffers>,
}

#[derive(Debug)]
enum State {
    /// The handshake has not begun.
    Fresh(ClientSettings, ServerName),
    Shaking(Box<Shaking>),
    Open(Box<Open>),
    Broken,
}

/// The end of the bytes that a server sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// More may come.
    Open,
    /// The server has said that nothing follows.
    Ended,
    /// Nothing that follows can be used, for this reason.
    Failed(ClientFault),
}

/// The memory that the connections of a worker share, so that an idle one has none.
#[derive(Debug, Default)]
pub struct ClientBuffers {
    buffers: Buffers,
    /// For records that are received for a caller.
    received: RefCell<Vec<u8>>,
    /// The account to which the memory of single connections is charged.
    account: Account,
}

/// Plain bytes that a server has sent. Their memory is used again when this is dropped.
#[derive(Debug)]
pub struct Plain {
    bytes: Vec<u8>,
    begin: usize,
    buffers: Rc<ClientBuffers>,
}

impl Deref for Plain {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[self.begin..]
    }
}

impl Drop for Plain {
    fn drop(&mut self) {
        self.buffers.buffers.put_plain(core::mem::take(&mut self.bytes));
    }
}

impl ClientBuffers {
    /// No memory yet. What single connections hold is charged to `account`.
    #[must_use]
    pub fn charged_to(account: &Account) -> Rc<Self> {
        Rc::new(Self { account: account.clone(), ..Self::default() })
    }
}

impl ClientConnection {
    /// A connection to a server whose certificate must have this name.
    #[must_use]
    pub fn new(settings: &ClientSettings, name: &ServerName, buffers: &Rc<ClientBuffers>) -> Self {
        Self {
            state: State::Fresh(settings.clone(), name.clone()),
            records: OutQ::new(),
            assembly: Assembly::default(),
            held: Vec::new(),
            plain: Vec::new(),
            taken: 0,
            end: End::Open,
            has_said_end: false,
            handshake_bytes: 0,
            charge: buffers.account.charge(0),
            buffers: Rc::clone(buffers),
        }
    }

    /// Returns true once the handshake is complete, unless the connection has failed since.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        matches!(self.state, State::Open(_))
    }

    /// Returns true if the handshake has resumed an earlier session.
    #[must_use]
    pub const fn is_resumed(&self) -> bool {
        matches!(&self.state, State::Open(open) if open.is_resumed)
    }

    /// The records that have to leave.
    pub const fn records(&mut self) -> &mut OutQ<Piece> {
        &mut self.records
    }

    /// The bytes of records that have not left.
    #[must_use]
    pub const fn unsent(&self) -> u64 {
        self.records.promised() - self.records.sent()
    }

    /// The bytes of records with data that have left. None have left before the handshake is complete.
    #[must_use]
    pub const fn sent(&self) -> u64 {
        let sent = self.records.sent();
        if self.is_open() && sent > self.handshake_bytes { sent - self.handshake_bytes } else { 0 }
    }

    /// Returns the end of the bytes of the server, which comes after those that were not taken.
    #[must_use]
    pub const fn end(&self) -> &End {
        &self.end
    }

    /// Returns true if there are plain bytes that were not taken, or their end.
    #[must_use]
    pub const fn has_news(&self) -> bool {
        self.taken < self.plain.len() || !matches!(self.end, End::Open)
    }

    /// Makes a step of the handshake: begins it, or handles what has come. Returns true once the handshake is complete.
    /// Then, and after an error, too, there may be [records](Self::records) that have to leave.
    ///
    /// # Errors
    ///
    /// If the handshake has failed.
    pub fn step(&mut self) -> Result<bool, ClientFault> {
        let mut answer = Vec::new();
        let stepped = self.take_step(&mut answer);
        if !answer.is_empty() {
            self.records.push(Piece::Bytes(answer));
        }
        match &stepped {
            Ok(true) => self.handshake_bytes = self.records.promised(),
            Ok(false) => {}
            Err(_) => self.state = State::Broken,
        }
        let rest = core::mem::take(&mut self.held);
        if matches!(stepped, Ok(true)) {
            self.handle_received(&rest);
        }
        self.recharge();
        stepped
    }

    /// Charges the memory that the connection holds now.
    fn recharge(&mut self) {
        let bytes = self.held.capacity() + self.plain.capacity() + self.assembly.weight();
        self.charge.set(bytes as u64);
    }

    fn take_step(&mut self, answer: &mut Vec<u8>) -> Result<bool, ClientFault> {
        if self.held.len() > HELD_BYTES_MAX {
            return Err(ClientFault::Handshake("it sends too much".to_owned()));
        }
        if let State::Fresh(settings, name) = &self.state {
            let shaking = Shaking::begin(settings.config.clone(), name.0.clone(), answer)?;
            self.state = State::Shaking(Box::new(shaking));
        }
        let State::Shaking(shaking) = &mut self.state else { return Ok(false) };
        let mut input = &self.held[..];
        let is_first = self.assembly.weight() == 0;
        if is_first && input.first().is_some_and(|first| !RECORD_TYPES.contains(first)) {
            return Err(ClientFault::NotTls);
        }
        let mut is_complete = false;
        while !is_complete && let Some(record) = self.assembly.next(&mut input)? {
            is_complete = shaking.handle(record, answer)?;
        }
        if is_complete {
            let rest = input.to_vec();
            self.held = rest;
            let State::Shaking(shaking) = core::mem::replace(&mut self.state, State::Broken) else {
                unreachable!("the handshake was complete");
            };
            self.state = State::Open(Box::new(shaking.complete()?));
        } else {
            self.held.clear();
        }
        Ok(is_complete)
    }

    /// Handles bytes that were received. While the handshake lasts they wait for a [step](Self::step). Otherwise there may be
    /// [news](Self::has_news) then.
    pub fn handle_received(&mut self, mut input: &[u8]) {
        let State::Open(open) = &mut self.state else {
            // If there are more, the next step fails.
            if !matches!(self.state, State::Broken) && self.held.len() <= HELD_BYTES_MAX {
                self.held.extend_from_slice(input);
                self.recharge();
            }
            return;
        };
        if self.end != End::Open {
            return;
        }
        if self.plain.capacity() == 0 {
            self.plain = self.buffers.buffers.take_plain();
        }
        let opened = loop {
            match self.assembly.next(&mut input) {
                Ok(None) => break Ok(()),
                Ok(Some(record)) => {
                    if let Err(fault) = open.records.open(record, &mut self.plain) {
                        break Err(fault);
                    }
                }
                Err(fault) => break Err(fault),
            }
        };
        self.note(opened);
        self.release_plain();
        self.recharge();
    }

    /// Records that the server has closed its side.
    pub fn handle_end(&mut self) {
        if self.end == End::Open {
            let fault = if self.is_open() { ClientFault::Truncated } else { ClientFault::Ended };
            self.end = End::Failed(fault);
        }
    }

    /// Takes the plain bytes that have come, if there are some.
    pub fn take_plain(&mut self) -> Option<Plain> {
        if self.taken == self.plain.len() {
            return None;
        }
        let bytes = core::mem::take(&mut self.plain);
        let begin = core::mem::take(&mut self.taken);
        self.recharge();
        Some(Plain { bytes, begin, buffers: Rc::clone(&self.buffers) })
    }

    /// Receives plain bytes into `room`, by calls of `receive`, which returns the number of received bytes, or 0 at the end.
    /// Returns the number of plain bytes, at least one, or 0 after the end that the server has said.
    ///
    /// # Errors
    ///
    /// Those of `receive`, such as [`WouldBlock`](io::ErrorKind::WouldBlock), and a [`ClientFault`] as the source of an
    /// error of the kind [`InvalidData`](io::ErrorKind::InvalidData).
    pub fn receive(
        &mut self,
        room: &mut [u8],
        mut receive: impl FnMut(&mut [u8]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let buffers = Rc::clone(&self.buffers);
        loop {
            let held = self.plain.len() - self.taken;
            if held > 0 {
                let count = held.min(room.len());
                room[..count].copy_from_slice(&self.plain[self.taken..self.taken + count]);
                self.taken += count;
                self.release_plain();
                self.recharge();
                return Ok(count);
            }
            match &self.end {
                End::Open => {}
                End::Ended => return Ok(0),
                End::Failed(fault) => return Err(fault.clone().into()),
            }
            let mut received = buffers.received.borrow_mut();
            if received.is_empty() {
                received.resize(RECEIVED_BYTES_MAX, 0);
            }
            // Bytes without room are copied later: little more is received than there is room for.
            let most = RECEIVED_BYTES_MAX.min(room.len() + RECORD_BYTES_MAX);
            let count = receive(&mut received[..most])?;
            if count == 0 {
                self.handle_end();
                continue;
            }
            let opened = self.open_into(&received[..count], room);
            self.recharge();
            if opened > 0 {
                return Ok(opened);
            }
        }
    }

    /// Opens records into `room`, as far as they have room there. Returns the number of plain bytes there.
    fn open_into(&mut self, mut input: &[u8], room: &mut [u8]) -> usize {
        let State::Open(open) = &mut self.state else { return 0 };
        let mut at = 0;
        let opened = loop {
            match self.assembly.next(&mut input) {
                Ok(None) => break Ok(()),
                Ok(Some(record)) => {
                    // Their order must stay the same.
                    let fits = self.plain.is_empty() && room.len() - at >= record.len();
                    let opened = if fits {
                        open.records.open_into(record, &mut room[at..]).map(|len| at += len)
                    } else {
                        open.records.open(record, &mut self.plain)
                    };
                    if let Err(fault) = opened {
                        break Err(fault);
                    }
                }
                Err(fault) => break Err(fault),
            }
        };
        self.note(opened);
        at
    }

    /// Records what records without data have said.
    fn note(&mut self, opened: Result<(), tls_record::Fault>) {
        let State::Open(open) = &mut self.state else { return };
        open.keep_tickets();
        if let Err(fault) = opened {
            if let Some(alert) = fault.alert() {
                self.records.push(Piece::Bytes(open.records.say(alert)));
            }
            self.end = End::Failed(fault.into());
            self.has_said_end = true;
        } else if open.records.has_ended() && self.end == End::Open {
            self.end = End::Ended;
        }
    }

    /// Gives the memory of plain bytes back if all were taken.
    fn release_plain(&mut self) {
        if self.taken == self.plain.len() {
            self.taken = 0;
            self.buffers.buffers.put_plain(core::mem::take(&mut self.plain));
        }
    }

    /// Returns true if the server waits for new keys of ours: then [seal](Self::seal), even if there is nothing to be sent.
    #[must_use]
    pub fn owes_update(&self) -> bool {
        matches!(&self.state, State::Open(open) if open.records.owes_update() && !self.has_said_end)
    }

    /// Seals the next ready bytes of a stream, at most a batch of 64 KiB. Returns false if there was nothing to be sealed:
    /// the handshake is not complete, the stream has nothing, or the connection accepts nothing more.
    pub fn seal(&mut self, queue: &mut OutQ<Piece>) -> bool {
        let owes_update = self.owes_update();
        let State::Open(open) = &mut self.state else { return false };
        if self.has_said_end || queue.unsent_ready() == 0 && !owes_update {
            return false;
        }
        let mut plain = 0;
        let batch = self.buffers.buffers.batch(|out| {
            let ready = queue.next_ready();
            let pieces = ready.map(|chunk| &chunk.payload.bytes()[bounds(&chunk.range)]);
            let sealed = open.records.seal(pieces, BATCH_BYTES, out);
            plain = sealed.plain as u64;
            sealed.written
        });
        let has_sealed = batch.is_some();
        if let Some(batch) = batch {
            self.records.push(batch);
        }
        queue.mark_sent(plain);
        queue.mark_released(plain);
        has_sealed
    }

    /// Returns true if no more can be sealed, because a key of TLS 1.2 has sealed as much as it may.
    #[must_use]
    pub fn is_used_up(&self, queue: &OutQ<Piece>) -> bool {
        self.is_open() && !self.has_said_end && queue.unsent_ready() > 0
    }

    /// Copies records that could not leave, if they are few, so that the next batch of the worker has the memory.
    pub fn keep_few(&mut self) {
        keep_few(&mut self.records);
    }

    /// Says our end, if the handshake is complete.
    pub fn say_end(&mut self) {
        if let State::Open(open) = &mut self.state
            && !core::mem::replace(&mut self.has_said_end, true)
        {
            self.records.push(Piece::Bytes(open.records.say(Alert::CloseNotify)));
        }
    }

    /// Frees what is of no use while there is nothing to do.
    pub fn rest(&mut self) {
        self.records.shrink();
        if let State::Open(open) = &mut self.state {
            open.records.rest();
        }
    }
}

impl From<ClientFault> for io::Error {
    fn from(fault: ClientFault) -> Self {
        Self::new(io::ErrorKind::InvalidData, fault)
    }
}
