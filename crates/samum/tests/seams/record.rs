//! A transport of records, in the shape of TLS without its secrets: a handshake, payloads that are
//! changed as they leave, a change of keys in the middle, an end that the peer can tell from a cut.
//!
//! A record is a kind, the length of its body, a byte of its number, and the body, each byte of
//! which is changed by the key.

use core::time::Duration;
use std::rc::Rc;

use outq::OutQ;
use ring::Ring;
use ring::sim::{End, Peer, World};
use samum::network::Listeners;
use samum::session::Http1;
use samum::worker::Worker;
use sendfile::{Drained, Failure, KernelTcp, Piece, Takes, Transport, Weight};

use crate::below::{Below, assert_a_part_is_counted};
use crate::cases::Site;
use crate::world::{
    Client, Make, assert_nothing_is_left, config, make, parts, pass, run_until, serve_over, tuning,
};

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

/// The client's end.
pub(crate) struct RecordClient {
    peer: Rc<Peer>,
    seals: Key,
    opens: Key,
    input: Vec<u8>,
    received: Vec<u8>,
    /// Plain bytes that wait for the end of the handshake, and whether the end follows them.
    waiting: Option<(Vec<u8>, bool)>,
    has_closed: bool,
}

impl RecordClient {
    pub(crate) fn new(peer: Rc<Peer>, _seed: u64) -> Self {
        Self::with(peer, SECRET)
    }

    fn with(peer: Rc<Peer>, secret: u8) -> Self {
        let mut client = Self {
            peer,
            seals: Key::first(secret),
            opens: Key::first(secret),
            input: Vec::new(),
            received: Vec::new(),
            waiting: Some((Vec::new(), false)),
            has_closed: false,
        };
        client.seal(HELLO, b"a client");
        client
    }

    fn seal(&mut self, kind: u8, body: &[u8]) {
        let record = self.seals.seal(kind, body);
        self.peer.send(&record);
    }
}

impl Client for RecordClient {
    fn send(&mut self, bytes: &[u8]) {
        match &mut self.waiting {
            Some((waiting, _)) => waiting.extend_from_slice(bytes),
            None => bytes.chunks(BODY_BYTES_MAX).for_each(|body| self.seal(DATA, body)),
        }
    }

    fn shut_down(&mut self) {
        match &mut self.waiting {
            Some((_, ends)) => *ends = true,
            None => self.seal(CLOSE, b""),
        }
    }

    fn look(&mut self) {
        self.input.extend(self.peer.take());
        while let Some((kind, body)) = self.opens.open(&mut self.input).expect("a record in order")
        {
            assert!(!self.has_closed, "a record behind the end");
            match kind {
                HELLO => self.seal(FINISHED, b""),
                FINISHED => {
                    let (bytes, ends) = self.waiting.take().expect("one handshake");
                    self.seal(NEW_KEY, b"");
                    self.send(&bytes);
                    if ends {
                        self.shut_down();
                    }
                }
                DATA => self.received.extend(body),
                NEW_KEY => {}
                CLOSE => self.has_closed = true,
                _ => panic!("a record of kind {kind}"),
            }
        }
    }

    fn received(&self) -> &[u8] {
        &self.received
    }

    /// An end that was not said is a cut.
    fn end(&self) -> Option<End> {
        let end = self.peer.end()?;
        Some(if self.has_closed { end } else { End::Reset })
    }
}

#[test]
fn each_listener_has_a_secret_of_its_own() {
    let site = Site::new("secrets").file("f", "hello");
    let world = make(config(1), &site);
    let mut parts = parts(&world, tuning(&site));
    parts.listeners.push(parts.ring.sim_listener(&world));
    let numbers: Vec<i32> = parts.listeners.iter().map(ring::Fd::raw).collect();
    let secrets = vec![10, 20];
    let secret_of = secrets.clone();
    let network = Listeners::with(parts.listeners.clone(), move |tcp, listener: usize| {
        Records::new(tcp, secret_of[listener])
    });
    let mut worker = Worker::<Http1, _>::over(parts, network).expect("memory");
    for (number, right) in numbers.iter().zip(&secrets) {
        for secret in &secrets {
            let peer = Rc::new(world.connect_to(*number));
            let mut client = RecordClient::with(Rc::clone(&peer), *secret);
            client.send(b"GET /f HTTP/1.0\r\n\r\n");
            let ended = run_until(&mut worker, || {
                // The answers to a client that has another secret cannot be read.
                if secret == right {
                    client.look();
                }
                peer.end().is_some()
            });
            assert!(ended, "a client waits for ever");
            assert_eq!(client.received().ends_with(b"hello"), secret == right);
        }
    }
}

#[test]
fn a_part_of_a_record_is_counted() {
    assert_a_part_is_counted(|tcp, _| Records::new(tcp, SECRET), &[HELLO, 0x3f, 0xff, 0, SECRET]);
}

#[test]
fn a_handshake_has_the_time_of_a_request_head() {
    let (world, mut worker) = serve_one_file();
    let peer = world.connect();
    let hello = Key::first(SECRET).seal(HELLO, &[0; 100]);
    for (second, byte) in hello[..19].iter().enumerate() {
        peer.send(&[*byte]);
        pass(&mut worker, Duration::from_secs(1));
        assert_eq!(peer.end(), None, "after {second} s");
    }
    // The deadline is 20 s; those of all connections are looked at four times in a second.
    peer.send(&[hello[19]]);
    pass(&mut worker, Duration::from_millis(1500));
    assert!(peer.end().is_some());
    assert_eq!((worker.connections(), worker.stats().timeouts), (0, 1));
    drop(peer);
    assert_nothing_is_left(&world, &mut worker);
}

#[test]
fn records_without_plain_bytes_do_not_keep_a_connection() {
    let (world, mut worker) = serve_one_file();
    let mut client = RecordClient::new(Rc::new(world.connect()), 0);
    client.send(b"GET /f HTTP/1.1\r\nHost: test\r\n\r\n");
    assert!(run_until(&mut worker, || {
        client.look();
        client.received().ends_with(b"hello")
    }));
    for second in (0..70).step_by(10) {
        assert_eq!(client.end(), None, "after {second} s");
        client.seal(NEW_KEY, b"");
        pass(&mut worker, Duration::from_secs(10));
        client.look();
    }
    // An idle connection has 75 s.
    pass(&mut worker, Duration::from_secs(7));
    client.look();
    assert_eq!((client.end(), worker.stats().timeouts), (Some(End::Eof), 1));
    drop(client);
    assert_nothing_is_left(&world, &mut worker);
}

fn serve_one_file() -> (World, Worker<Http1, Listeners<Make<Records>>>) {
    let site = Site::new("one file").file("f", "hello");
    let world = make(config(1), &site);
    let worker = serve_over(&world, tuning(&site), |tcp, _| Records::new(tcp, SECRET));
    (world, worker)
}
