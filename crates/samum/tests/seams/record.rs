//! A transport of records, in the shape of TLS without its secrets: a handshake, payloads that are
//! changed as they leave, a change of keys in the middle, an end that the peer can tell from a cut.
//!
//! A record is a kind, the length of its body, a byte of its number, and the body, each byte of
//! which is changed by the key.

mod tests;

use outq::OutQ;
use sendfile::{Failure, Piece};

use crate::seams::below::{Below, Layer, bounds};
pub(crate) use tests::RecordClient;

const HEAD_BYTES: usize = 5;
const BODY_BYTES_MAX: usize = 16 * 1024;
/// The key changes after this many records.
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

    /// Word by word: tests without optimisation seal gigabytes.
    fn change(&mut self, kind: u8, body: &mut [u8]) {
        let mask = self.generation.wrapping_mul(31) ^ self.records.to_le_bytes()[0];
        let mut key = u64::from_le_bytes([mask; 8]);
        let (words, rest) = body.as_chunks_mut::<8>();
        for word in words {
            *word = (u64::from_le_bytes(*word) ^ key).to_le_bytes();
            key = key.wrapping_add(0x9e37_79b9_7f4a_7c15);
        }
        rest.iter_mut().for_each(|byte| *byte ^= mask);
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
        let mut body = input[HEAD_BYTES..end].to_vec();
        input.drain(..end);
        self.change(kind, &mut body);
        Ok(Some((kind, body)))
    }
}

/// The server's end.
#[derive(Debug)]
pub(crate) struct Records {
    seals: Key,
    opens: Key,
    /// Whether the handshake is complete, and the stream may leave.
    greeted: bool,
}

impl Records {
    /// The server's end of a connection whose keys are made of a secret that the client knows.
    pub(crate) const fn new(secret: u8) -> Self {
        Self { seals: Key::first(secret), opens: Key::first(secret), greeted: false }
    }
}

impl Layer for Records {
    fn is_open(&self) -> bool {
        self.greeted
    }

    fn make(&mut self, below: &mut Below, queue: &mut OutQ<Piece>, most: u64) -> u64 {
        let room = usize::try_from(most).map_or(BODY_BYTES_MAX, |room| room.min(BODY_BYTES_MAX));
        let mut body = Vec::new();
        for chunk in queue.next_ready() {
            let bytes = &chunk.payload.bytes()[bounds(&chunk.range)];
            body.extend_from_slice(&bytes[..bytes.len().min(room - body.len())]);
        }
        if self.seals.records.is_multiple_of(RECORDS_PER_KEY) {
            below.push(self.seals.seal(NEW_KEY, b""));
        }
        below.push(self.seals.seal(DATA, &body));
        let count = body.len() as u64;
        queue.mark_sent(count);
        queue.mark_released(count);
        count
    }

    fn undo(
        &mut self,
        below: &mut Below,
        _queue: &mut OutQ<Piece>,
        input: &mut Vec<u8>,
        plain: &mut Vec<u8>,
    ) -> Result<bool, Failure> {
        let mut has_ended = false;
        while let Some((kind, body)) = self.opens.open(input)? {
            match kind {
                HELLO => below.push(self.seals.seal(HELLO, b"a server")),
                FINISHED => {
                    below.push(self.seals.seal(FINISHED, b""));
                    self.greeted = true;
                }
                DATA if self.greeted => plain.extend(body),
                NEW_KEY => {}
                CLOSE => has_ended = true,
                _ => return Err(Failure::Gone),
            }
        }
        Ok(has_ended)
    }

    fn end(&mut self) -> Vec<u8> {
        self.seals.seal(CLOSE, b"")
    }
}
