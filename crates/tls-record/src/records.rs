//! Both directions of a connection, and what a peer may say within records: data, alerts, KeyUpdate.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

use crate::aead::{Aead, AwsLc};
use crate::direction::Direction;
use crate::fault::{Alert, Fault, Level};
use crate::frame::{Content, PLAIN_BYTES_MAX, RECORD_OVERHEAD_MAX};
use crate::keys::Keys;

/// The most records that are sealed with one key: half of what is safe for AES-GCM (RFC 8446 §5.5). TLS 1.3 goes on with the
/// next key; in TLS 1.2 nothing more can be sealed then.
pub const RECORDS_MAX: u64 = 1 << 24;
/// The most records in a row without data that a peer may send: empty ones, alerts that end nothing, KeyUpdates.
pub const NO_DATA_RECORDS_MAX: u8 = 32;
/// The most alerts of a connection that end nothing, as in BoringSSL.
pub const WARNINGS_MAX: u8 = 4;

/// If a piece has at least this many bytes, it is sealed where it is. Smaller pieces are copied together, and the next
/// large piece with them if all of it fits into their record: many peers need two system calls for each record. Of a
/// longer piece up to this many bytes are copied, so that a head and the beginning of its content share a record.
const COPIED_BYTES_MAX: usize = 4096;

/// The type of the message KeyUpdate, and its length (RFC 8446 §4.6.3).
const KEY_UPDATE: [u8; 4] = [24, 0, 0, 1];
/// The type of the message with which a client begins a handshake.
const CLIENT_HELLO: u8 = 1;
/// The type of the message with which a server of TLS 1.2 asks for a second handshake.
const HELLO_REQUEST: u8 = 0;
/// The type of the message with a ticket (RFC 8446 §4.6.1).
const NEW_SESSION_TICKET: u8 = 4;
/// The most bytes of a message with a ticket. Tickets that have certificates of clients in them have a few KiB.
pub const TICKET_BYTES_MAX: usize = 16 * 1024;
/// The most tickets of a connection that are given out. Servers send two; further ones are dropped.
pub const TICKETS_MAX: u8 = 8;
/// In place of the length of a message: a ticket has come in part.
const TICKET_BEGUN: u8 = u8::MAX;
/// The alert of TLS 1.3 that ends nothing (RFC 8446 §6.1).
const USER_CANCELED: u8 = 90;

/// The records of a connection after its handshake, as the server or [as the client](Self::of_client) sees them.
///
/// A context of the cipher is made when there is something to do, and is there until [`rest`](Self::rest): so an idle
/// connection has only its keys.
pub struct Records<A = AwsLc> {
    read: Direction<A>,
    write: Direction<A>,
    /// The beginning of a message KeyUpdate that came in parts.
    message: [u8; 5],
    message_len: u8,
    /// The tickets that a client gets; `None` for a server.
    tickets: Option<Box<Tickets>>,
    /// The records in a row without data.
    without_data: u8,
    /// The alerts that ended nothing.
    warnings: u8,
    /// True if the peer has asked for new keys of ours.
    owes_update: bool,
    /// True once the peer has said that nothing follows.
    has_ended: bool,
}

/// The contexts of the ciphers of a connection. They have its keys, and are wiped when they are dropped.
#[derive(Debug)]
pub struct Contexts<A = AwsLc> {
    read: Option<A>,
    write: Option<A>,
}

/// The tickets of a client.
#[derive(Default)]
struct Tickets {
    /// The message that has not come completely, with its head.
    message: Vec<u8>,
    /// The contents of whole messages that were not taken yet.
    whole: Vec<Vec<u8>>,
    /// The number of tickets that have come.
    count: u8,
}

/// The bytes that a call of [`Records::seal`] has taken and made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sealed {
    /// The plain bytes that were taken.
    pub plain: usize,
    /// The bytes of records that were written.
    pub written: usize,
}

impl Records {
    /// The records that are opened with the keys `read`, and sealed with the keys `write`.
    ///
    /// # Panics
    ///
    /// If one of them is of TLS 1.2 and the other of TLS 1.3.
    #[must_use]
    pub fn new(read: Keys, write: Keys) -> Self {
        Self::with_aead(read, write)
    }

    /// As [`new`](Self::new), as the client sees them: its server may send tickets.
    ///
    /// # Panics
    ///
    /// If one of them is of TLS 1.2 and the other of TLS 1.3.
    #[must_use]
    pub fn of_client(read: Keys, write: Keys) -> Self {
        Self { tickets: Some(Box::default()), ..Self::with_aead(read, write) }
    }
}

impl<A: Aead> Records<A> {
    /// As [`new`](Records::new), with another implementation of the ciphers.
    ///
    /// # Panics
    ///
    /// If one of them is of TLS 1.2 and the other of TLS 1.3.
    #[must_use]
    pub fn with_aead(read: Keys, write: Keys) -> Self {
        assert_eq!(read.is_tls13(), write.is_tls13(), "one version");
        let (read, write) = (Direction::new(read), Direction::new(write));
        Self {
            read,
            write,
            message: [0; 5],
            message_len: 0,
            tickets: None,
            without_data: 0,
            warnings: 0,
            owes_update: false,
            has_ended: false,
        }
    }

    /// Opens a whole record, such as [`Assembly::next`](crate::Assembly::next) returns, and appends its data to `plain`.
    /// Nothing is appended if it has none, or after an error. What follows the peer's end is not looked at.
    ///
    /// # Errors
    ///
    /// If the peer breaks the protocol, or has ended the connection. Nothing more can be opened then.
    pub fn open(&mut self, record: &[u8], plain: &mut Vec<u8>) -> Result<(), Fault> {
        if self.has_ended {
            return Ok(());
        }
        let begin = plain.len();
        let content = self.read.open(record, plain)?;
        if content == Content::DATA && plain.len() > begin && self.message_len == 0 {
            self.without_data = 0;
            return Ok(());
        }
        let handled = self.handle(content, &plain[begin..]);
        plain.truncate(begin);
        handled
    }

    /// As [`open`](Self::open), into the beginning of `out`, which has at least as many bytes as the record has. Returns the
    /// number of bytes of its data. The rest of `out` has nothing of use.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open) says.
    ///
    /// # Panics
    ///
    /// If `out` has no room for as many bytes as the record has.
    pub fn open_into(&mut self, record: &[u8], out: &mut [u8]) -> Result<usize, Fault> {
        assert!(out.len() >= record.len(), "room for the record");
        if self.has_ended {
            return Ok(0);
        }
        let (content, len) = self.read.open_into(record, out)?;
        if content == Content::DATA && len > 0 && self.message_len == 0 {
            self.without_data = 0;
            return Ok(len);
        }
        self.handle(content, &out[..len]).map(|()| 0)
    }

    /// Handles a record without data, or one at the wrong place.
    fn handle(&mut self, content: u8, bytes: &[u8]) -> Result<(), Fault> {
        if self.without_data == NO_DATA_RECORDS_MAX {
            return Err(Fault::Flood);
        }
        self.without_data += 1;
        // A message that came in part must be continued first (RFC 8446 §5.1).
        match content {
            Content::HANDSHAKE => self.handle_message(bytes),
            Content::ALERT if self.message_len == 0 => self.handle_alert(bytes),
            Content::DATA if self.message_len == 0 => Ok(()),
            _ => Err(Fault::Unexpected),
        }
    }

    fn handle_alert(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        let [level, number] = *bytes else { return Err(Fault::Decode) };
        // TLS 1.3 tells by the number alone what an alert means.
        let is_tls13 = self.read.keys().is_tls13();
        let is_warning = match level {
            _ if is_tls13 => number == USER_CANCELED,
            Level::WARNING => true,
            Level::FATAL => false,
            _ => return Err(Fault::Illegal),
        };
        if number == Alert::CloseNotify as u8 {
            self.has_ended = true;
        } else if !is_warning {
            return Err(Fault::Alerted(number));
        } else if self.warnings == WARNINGS_MAX {
            return Err(Fault::Flood);
        } else {
            self.warnings += 1;
        }
        Ok(())
    }

    /// Handles a part of a message of the handshake. In TLS 1.3 a client may send KeyUpdate, and a server tickets, too. In
    /// TLS 1.2 there is none.
    fn handle_message(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        if !self.read.keys().is_tls13() {
            let hello = if self.tickets.is_some() { HELLO_REQUEST } else { CLIENT_HELLO };
            let is_hello = bytes.first() == Some(&hello);
            return Err(if is_hello { Fault::Renegotiation } else { Fault::Unexpected });
        }
        if bytes.is_empty() {
            return Err(Fault::Unexpected);
        }
        for byte in self.take_tickets(bytes)? {
            let at = usize::from(self.message_len);
            // The bytes after it in the same record were sealed with keys that are gone (RFC 8446 §5.1).
            let place = self.message.get_mut(at).ok_or(Fault::Unexpected)?;
            *place = *byte;
            self.message_len += 1;
            if KEY_UPDATE.get(at).is_some_and(|expected| expected != byte) {
                return Err(if at == 0 { Fault::Unexpected } else { Fault::Decode });
            }
        }
        if usize::from(self.message_len) == self.message.len() {
            self.owes_update |= match self.message[4] {
                0 => false,
                1 => true,
                _ => return Err(Fault::Illegal),
            };
            self.message_len = 0;
            self.read.update();
        }
        Ok(())
    }

    /// Handles the tickets at the beginning of messages of the handshake. Returns the rest.
    fn take_tickets<'a>(&mut self, mut bytes: &'a [u8]) -> Result<&'a [u8], Fault> {
        let Some(tickets) = &mut self.tickets else { return Ok(bytes) };
        loop {
            let begins = self.message_len == 0 && bytes.first() == Some(&NEW_SESSION_TICKET);
            if !begins && self.message_len != TICKET_BEGUN {
                return Ok(bytes);
            }
            self.message_len = TICKET_BEGUN;
            let message = &mut tickets.message;
            let missing = |length: usize, message: &Vec<u8>| length.saturating_sub(message.len());
            let (head, rest) = bytes.split_at(missing(4, message).min(bytes.len()));
            message.extend_from_slice(head);
            let [_, high, middle, low, ..] = message[..] else { return Ok(rest) };
            let length = 4 + u32::from_be_bytes([0, high, middle, low]) as usize;
            if length > TICKET_BYTES_MAX {
                return Err(Fault::Overflow);
            }
            let (body, rest) = rest.split_at(missing(length, message).min(rest.len()));
            message.extend_from_slice(body);
            bytes = rest;
            if message.len() < length {
                return Ok(bytes);
            }
            self.message_len = 0;
            let whole = core::mem::take(message);
            if tickets.count < TICKETS_MAX {
                tickets.count += 1;
                tickets.whole.push(whole[4..].to_vec());
            }
        }
    }

    /// Handles the content of a message NewSessionTicket that a client has got (RFC 8446 §4.6.1), without its head.
    pub fn take_ticket(&mut self) -> Option<Vec<u8>> {
        self.tickets.as_mut()?.whole.pop()
    }

    /// Returns whether the peer has said that nothing follows (close_notify). If its bytes end before that, they were cut.
    #[must_use]
    pub const fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Returns whether the peer waits for new keys: then seal, even if there is nothing to be sent. However often it asks
    /// until then, it gets one answer (RFC 8446 §4.6.3).
    #[must_use]
    pub const fn owes_update(&self) -> bool {
        self.owes_update
    }

    /// Seals the bytes of `pieces`, in order, at most `most` of them, and as far as `out` has room. No record has more than
    /// [`PLAIN_BYTES_MAX`] bytes. A KeyUpdate comes before them if one is due. Nothing is taken if `out` has no room for a
    /// record, or if a key of TLS 1.2 has sealed [`RECORDS_MAX`] records.
    pub fn seal<'a>(
        &mut self,
        pieces: impl IntoIterator<Item = &'a [u8]>,
        most: usize,
        out: &mut [u8],
    ) -> Sealed {
        let mut pieces = Pieces { rest: &[], next: pieces.into_iter() };
        let mut sealed = Sealed { plain: 0, written: 0 };
        loop {
            let begin = self.write.begin();
            let out = &mut out[sealed.written..];
            let room = out.len().saturating_sub(self.write.overhead());
            if room >= UPDATE.len() && self.is_update_due() {
                sealed.written += self.write.seal(Content::HANDSHAKE, &UPDATE, out);
                self.write.update();
                self.owes_update = false;
                continue;
            }
            let room = room.min(PLAIN_BYTES_MAX).min(most - sealed.plain);
            let is_used_up = self.write.keys().sequence() >= RECORDS_MAX - 1 || self.owes_update;
            if room == 0 || is_used_up {
                return sealed;
            }
            let large = pieces.take_large(room);
            let (taken, written) = if let Some(bytes) = large {
                (bytes.len(), self.write.seal(Content::DATA, bytes, out))
            } else {
                match pieces.copy(&mut out[begin..begin + room]) {
                    0 => return sealed,
                    len => (len, self.write.seal_in_place(Content::DATA, len, out)),
                }
            };
            sealed.plain += taken;
            sealed.written += written;
        }
    }

    /// Returns whether a KeyUpdate must come before the next data.
    fn is_update_due(&self) -> bool {
        let keys = self.write.keys();
        keys.is_tls13() && (self.owes_update || keys.sequence() >= RECORDS_MAX - 1)
    }

    /// Seals an alert.
    #[must_use]
    pub fn say(&mut self, alert: Alert) -> Vec<u8> {
        let mut out = vec![0; RECORD_OVERHEAD_MAX + 2];
        let len = self.write.seal(Content::ALERT, &alert.bytes(), &mut out);
        out.truncate(len);
        out
    }

    /// Takes the contexts of the ciphers out: there is nothing to do for now.
    pub const fn rest(&mut self) -> Contexts<A> {
        Contexts { read: self.read.rest(), write: self.write.rest() }
    }

    /// Takes the contexts back that the last [`rest`](Self::rest) has returned. Without them, they are made again. Nothing may
    /// have been opened or sealed since then.
    pub fn wake(&mut self, contexts: Contexts<A>) {
        self.read.wake(contexts.read);
        self.write.wake(contexts.write);
    }
}

/// A KeyUpdate that asks for nothing.
const UPDATE: [u8; 5] = [KEY_UPDATE[0], KEY_UPDATE[1], KEY_UPDATE[2], KEY_UPDATE[3], 0];

/// The pieces that have not been sealed.
struct Pieces<'a, I> {
    /// Of the piece that was begun.
    rest: &'a [u8],
    next: I,
}

impl<'a, I: Iterator<Item = &'a [u8]>> Pieces<'a, I> {
    /// The bytes of the next piece that is not empty; empty at the end.
    fn rest(&mut self) -> &'a [u8] {
        while self.rest.is_empty()
            && let Some(piece) = self.next.next()
        {
            self.rest = piece;
        }
        self.rest
    }

    fn advance(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.rest.split_at(count);
        self.rest = rest;
        taken
    }

    /// Takes at most `most` bytes of the next piece, if they need not be copied.
    fn take_large(&mut self, most: usize) -> Option<&'a [u8]> {
        let rest = self.rest();
        (rest.len() >= COPIED_BYTES_MAX).then(|| self.advance(rest.len().min(most)))
    }

    /// Copies pieces to `out`, as many as are worth a copy. Returns the number of their bytes.
    fn copy(&mut self, out: &mut [u8]) -> usize {
        let mut copied = 0;
        while copied < out.len() {
            let rest = self.rest();
            let room = out.len() - copied;
            let is_long = rest.len() >= COPIED_BYTES_MAX && rest.len() > room;
            let worth = if is_long { COPIED_BYTES_MAX.saturating_sub(copied) } else { rest.len() };
            let taken = self.advance(worth.min(room));
            if taken.is_empty() {
                break;
            }
            out[copied..copied + taken.len()].copy_from_slice(taken);
            copied += taken.len();
        }
        copied
    }
}

impl<A> fmt::Debug for Records<A> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut all = out.debug_struct("Records");
        all.field("read", &self.read).field("write", &self.write).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
