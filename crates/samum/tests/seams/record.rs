//! A transport of records, in the shape of TLS without its secrets: a handshake, payloads that are
//! changed as they leave, a change of keys in the middle, an end that the peer can tell from a cut.
//!
//! A record is a kind, the length of its body, a byte of its number, and the body, each byte of
//! which is changed by the key.

mod tests;

use outq::OutQ;
use ring::Ring;
use sendfile::{Drained, Failure, KernelTcp, Piece, Takes, Transport, Weight};

use crate::below::Below;
pub(crate) use tests::RecordClient;

const HEAD_BYTES: usize = 5;
const BODY_BYTES_MAX: usize = 16 * 1024;
/// The key changes after so many records.
const RECORDS_PER_KEY: u64 = 7;

/// The secret of a server that has only one.
pub(crate) const SECRET: u8 = 3;

const HELLO: u8 = 1;
const FINISHED: u8 = 2;
const DATA: u8 = 3;
const NEW_KEY: u8 = 4;
const CLOSE: u8 = 5;

/// One direction: makes records, or undoes them.
#[derive(Debug)]
struct Key {
    records: u64,
    generation: u8,
}

impl Key {
    /// The first of a connection.
    const fn first(secret: u8) -> Self {
        Self { records: 0, generation: secret }
    }

    fn change(&mut self, kind: u8, body: &mut [u8]) {
        for (at, byte) in (0_u8..=255).cycle().zip(body) {
            *byte ^= at ^ self.generation.wrapping_mul(31) ^ self.records.to_le_bytes()[0];
        }
        self.records += 1;
        self.generation = self.generation.wrapping_add(u8::from(kind == NEW_KEY));
    }

    fn seal(&mut self, kind: u8, body: &[u8]) -> Vec<u8> {
        let len = u16::try_from(body.len()).expect("at most 16 KiB").to_be_bytes();
        let mut record = vec![kind, len[0], len[1], self.records.to_le_bytes()[0], self.generation];
        record.extend_from_slice(body);
        self.change(kind, &mut record[HEAD_BYTES..]);
        record
    }

    /// Takes the first record off `input`, if all of it is there.
    fn open(&mut self, input: &mut Vec<u8>) -> Result<Option<(u8, Vec<u8>)>, Failure> {
        let Some(&[kind, high, low, number, generation]) = input.first_chunk() else {
            return Ok(None);
        };
        let end = HEAD_BYTES + usize::from(u16::from_be_bytes([high, low]));
        if number != self.records.to_le_bytes()[0] || generation != self.generation {
            return Err(Failure::Gone);
        }
        if input.len() < end {
            return Ok(None);
        }
        let mut body: Vec<u8> = input.drain(..end).skip(HEAD_BYTES).collect();
        self.change(kind, &mut body);
        Ok(Some((kind, body)))
    }
}

/// The server's end.
#[derive(Debug)]
pub(crate) struct Records {
    below: Below,
    seals: Key,
    opens: Key,
    /// Received bytes of a record that is not complete.
    input: Vec<u8>,
    /// Plain bytes of the last receive.
    plain: Vec<u8>,
    /// Whether the handshake is complete, and the stream may leave.
    greeted: bool,
    has_ended: bool,
}

impl Records {
    /// The server's end of a connection whose keys are made of a secret that the client knows.
    pub(crate) const fn new(tcp: KernelTcp, secret: u8) -> Self {
        Self {
            below: Below::new(tcp),
            seals: Key::first(secret),
            opens: Key::first(secret),
            input: Vec::new(),
            plain: Vec::new(),
            greeted: false,
            has_ended: false,
        }
    }

    fn seal(&mut self, kind: u8, body: &[u8]) {
        let record = self.seals.seal(kind, body);
        self.below.push(record);
    }
}

impl Transport for Records {
    fn takes(&self) -> Takes {
        Takes::Memory
    }

    fn is_open(&self) -> bool {
        self.greeted
    }

    fn weight(&self) -> Weight {
        self.below.weight([&self.input, &self.plain])
    }

    fn drain(&mut self, ring: &mut Ring, queue: &mut OutQ<Piece>, budget: &mut u64) -> Drained {
        loop {
            let drained = self.below.flush(ring);
            if drained != Drained::Empty || queue.unsent_ready() == 0 || !self.greeted {
                return drained;
            }
            if *budget == 0 {
                return Drained::TurnOver;
            }
            let room =
                usize::try_from(*budget).map_or(BODY_BYTES_MAX, |room| room.min(BODY_BYTES_MAX));
            let mut body = Vec::new();
            for chunk in queue.next_ready() {
                let bytes = &chunk.payload.bytes()[bounds(&chunk.range)];
                body.extend_from_slice(&bytes[..bytes.len().min(room - body.len())]);
            }
            if self.seals.records.is_multiple_of(RECORDS_PER_KEY) {
                self.seal(NEW_KEY, b"");
            }
            self.seal(DATA, &body);
            *budget -= body.len() as u64;
            queue.mark_sent(body.len() as u64);
            queue.mark_released(body.len() as u64);
        }
    }

    fn receive<'a>(
        &'a mut self,
        bytes: &'a [u8],
        _queue: &mut OutQ<Piece>,
    ) -> Result<&'a [u8], Failure> {
        self.input.extend_from_slice(bytes);
        self.plain.clear();
        while let Some((kind, body)) = self.opens.open(&mut self.input)? {
            match kind {
                HELLO => self.seal(HELLO, b"a server"),
                FINISHED => {
                    self.seal(FINISHED, b"");
                    self.greeted = true;
                }
                DATA if self.greeted => self.plain.extend(body),
                NEW_KEY => {}
                CLOSE => self.has_ended = true,
                _ => return Err(Failure::Gone),
            }
        }
        Ok(&self.plain)
    }

    fn handle_writable(&mut self) {
        self.below.tcp.handle_writable();
    }

    fn is_blocked(&self) -> bool {
        self.below.tcp.is_blocked()
    }

    fn acknowledged(&self, ring: &Ring, _queue: &OutQ<Piece>) -> i64 {
        self.below.acknowledged(ring)
    }

    fn set_receiving(&mut self, ring: &mut Ring, on: bool) {
        self.below.tcp.set_receiving(ring, on);
    }

    fn handle_receive_stopped(&mut self) {
        self.below.tcp.handle_receive_stopped();
    }

    fn handle_end(&mut self) {
        self.below.tcp.handle_end();
        self.has_ended = true;
    }

    fn has_ended(&self) -> bool {
        self.has_ended
    }

    fn shutdown(&mut self, ring: &mut Ring) {
        self.seal(CLOSE, b"");
        self.below.shut_down(ring);
    }

    fn close(&mut self, ring: &mut Ring) {
        // The end is said if there is room for it. Nothing waits for more.
        self.seal(CLOSE, b"");
        self.below.flush(ring);
        self.below.tcp.close(ring);
    }
}

/// Where a chunk is in its payload.
pub(crate) fn bounds(range: &core::ops::Range<u64>) -> core::ops::Range<usize> {
    let index = |at| usize::try_from(at).expect("within a slice");
    index(range.start)..index(range.end)
}
