//! Random calls in a simulated world: several sockets, memory and cold files, peers that read slowly or reset, reads
//! that fail, calls that are cancelled. Every byte is compared with the completions.

use core::time::Duration;
use std::collections::HashMap;
use std::ffi::CString;
use std::rc::Rc;

use ring::OpenHow;
use ring::sim::{Config, Peer, World};

use super::*;
use crate::file::File;
use crate::policy::{Caching, Policy, Window};
use testkit::{Random, Seed};

const SEEDS: u64 = 200;
const UPLOADS: &str = "uploads";
/// The maximum of bytes of a receive into a file.
const UPLOAD_BYTES: usize = 8000;
const NAMES: [&str; 3] = ["a", "b", "c"];
const STATIC: &[u8] = b"bytes of the program";
const WINDOW: Window = Window::of(512 * 1024);

/// A connection, as the test knows it.
struct TestConnection {
    socket: Socket,
    peer: Peer,
    /// The sends on it, in order, with their bytes.
    sends: Vec<(Call, Vec<u8>)>,
    /// The bytes that the peer has sent.
    incoming: Vec<u8>,
    /// The bytes that were received, into memory or files.
    received: Vec<u8>,
    /// True if a receive into a file has lost some.
    has_lost: bool,
    is_reset: bool,
    is_closed: bool,
}

impl TestConnection {
    /// Returns whether bytes of the peer have not been received.
    fn has_more(&self) -> bool {
        !self.is_closed
            && !self.is_reset
            && !self.has_lost
            && self.received.len() < self.incoming.len()
    }
}

struct Test {
    random: Random,
    world: World,
    files: Vec<(Rc<File>, Vec<u8>)>,
    uploads: Fd,
    /// Its ring closes the descriptors of the others.
    calls: Calls,
    connections: Vec<TestConnection>,
    /// Calls in flight, and their sockets.
    open: Vec<(Call, usize)>,
    sent: HashMap<Call, (u64, Result<(), Stop>)>,
    /// The bytes that reads in flight are to bring.
    reads: HashMap<Call, Vec<u8>>,
    /// The positions in [`UPLOADS`] of receives in flight.
    stores: HashMap<Call, usize>,
    /// The position after the receives into the file so far.
    stored: usize,
    /// Reads, and receives into files, that have ended without an error.
    done: [usize; 2],
}

impl Test {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let mut config = Config::new(seed);
        config.send_buffer = 1000 + random.below(300_000);
        config.can_drop = random.one_in(2);
        config.faults.short_read = 0.1;
        config.faults.short_send = 0.2;
        config.faults.short_receive = 0.3;
        config.faults.probe_denial = 0.05;
        let world = World::new(config);
        let ring = Ring::simulated(&world);
        let listener = ring.sim_listener(&world);
        let root = ring.sim_root(&world);
        // As few buffers and pipes as possible, so that sends have to wait in queues.
        let (memory_bytes, pipes) = (1 << 20, [0, 2, 64][random.below(3)]);
        let config = DiskConfig { memory_bytes, pipes, ..DiskConfig::default() };
        let mut calls = Calls::new(ring, config).unwrap();

        let mut contents = HashMap::new();
        for (token, name) in (0..).zip(NAMES) {
            let len = 1 + random.below(900_000);
            let bytes = random.bytes(len);
            world.write_file(name, &bytes);
            if random.one_in(2) {
                world.evict(name);
            }
            contents.insert(token, bytes);
            calls.open(&root, CString::new(name).unwrap(), token).unwrap();
        }
        world.write_file(UPLOADS, b"");
        let flags = OpenHow::BENEATH.with_flags(O_RDWR);
        let open = Op::Open { dir: Some(root), path: CString::new(UPLOADS).unwrap(), how: flags };
        calls.submit(open, 200).unwrap();
        let mut uploads = None;
        calls.accept(&listener, 100).unwrap();
        let count = 1 + random.below(5);
        let mut peers: Vec<_> = (0..count).map(|_| world.connect()).collect();
        let (mut files, mut connections) = (Vec::new(), Vec::new());
        let mut done = Vec::new();
        while files.len() < NAMES.len() || connections.len() < count || uploads.is_none() {
            calls.wait(None, &mut done).unwrap();
            for one in done.drain(..) {
                match one.outcome {
                    Outcome::Opened(file) => {
                        files.push((file.unwrap().0, contents.remove(&one.token).unwrap()));
                    }
                    Outcome::Accepted(socket) => {
                        let (socket, peer) = (socket.unwrap(), peers.remove(0));
                        let (sends, incoming, received) = Default::default();
                        let (is_reset, is_closed) = (false, false);
                        connections.push(TestConnection {
                            socket,
                            peer,
                            sends,
                            incoming,
                            received,
                            has_lost: false,
                            is_reset,
                            is_closed,
                        });
                    }
                    Outcome::Event(Ok(ring::Event::Opened(fd))) => uploads = Some(fd),
                    other => panic!("{other:?}"),
                }
            }
        }
        // Connections may come in another order than they were made: each is found by its first byte.
        let (open, sent) = (Vec::new(), HashMap::new());
        let (reads, stores, uploads, done) =
            (HashMap::new(), HashMap::new(), uploads.unwrap(), [0; 2]);
        let mut test = Self {
            random,
            world,
            calls,
            files,
            connections,
            open,
            sent,
            reads,
            stores,
            uploads,
            stored: 0,
            done,
        };
        test.match_peers();
        test.world.configure(|config| config.faults.read_error = 0.02);
        test
    }

    fn match_peers(&mut self) {
        for (number, connection) in (0..).zip(&self.connections) {
            self.calls.send(connection.socket, vec![Part::Bytes(vec![number])], 0).unwrap();
        }
        let mut done = Vec::new();
        while self.connections.iter().any(|connection| connection.peer.received_bytes() == 0) {
            let until = self.calls.ring().now() + Duration::from_millis(1);
            self.calls.wait(Some(until), &mut done).unwrap();
        }
        let sockets: Vec<_> = self.connections.iter().map(|connection| connection.socket).collect();
        for connection in &mut self.connections {
            connection.socket = sockets[usize::from(connection.peer.take()[0])];
        }
    }

    fn step(&mut self) {
        let at = self.random.below(self.connections.len());
        match self.random.below(20) {
            0..=4 => self.send(at),
            5..=7 => self.receive(at),
            16 | 17 => self.read(),
            18 | 19 => self.store(at),
            8 if !self.open.is_empty() => {
                let (call, _) = self.open[self.random.below(self.open.len())];
                self.calls.cancel(call);
            }
            9 => self.connections[at].peer.stop_reading(),
            10 => {
                let rate = 1000 + self.random.below(10_000_000_u64);
                self.connections[at].peer.set_read_rate(Some(rate));
            }
            11 => self.world.evict(NAMES[self.random.below(NAMES.len())]),
            12 if self.random.one_in(10) => {
                self.connections[at].peer.reset();
                self.connections[at].is_reset = true;
            }
            13 if self.random.one_in(10) => {
                self.calls.close(self.connections[at].socket);
                self.connections[at].is_closed = true;
            }
            14 => {
                let len = 1 + self.random.below(5000);
                let bytes = self.random.bytes(len);
                self.connections[at].peer.send(&bytes);
                if !self.connections[at].is_reset {
                    self.connections[at].incoming.extend(bytes);
                }
            }
            _ => {
                let pause = Duration::from_micros(self.random.below(20_000));
                self.wait(Some(self.calls.ring().now() + pause));
            }
        }
    }

    fn send(&mut self, at: usize) {
        let (mut parts, mut expected) = (Vec::new(), Vec::new());
        for _ in 0..self.random.below(5) {
            match self.random.below(5) {
                0 => {
                    parts.push(Part::Static(STATIC));
                    expected.extend(STATIC);
                }
                1 => {
                    let len = self.random.below(3000);
                    let bytes = self.random.bytes(len);
                    expected.extend(&bytes);
                    parts.push(Part::Bytes(bytes));
                }
                _ => {
                    let (file, bytes) = &self.files[self.random.below(NAMES.len())];
                    let start = self.random.below(bytes.len() + 1);
                    let end = start + self.random.below(bytes.len() - start + 1);
                    expected.extend(&bytes[start..end]);
                    let caching = [Caching::Popular, Caching::Never, Caching::Always];
                    let policy = Policy { caching: caching[self.random.below(3)], window: WINDOW };
                    parts.push(Part::File(Rc::clone(file), start as u64..end as u64, policy));
                }
            }
        }
        let call = self.calls.send(self.connections[at].socket, parts, at as u64).unwrap();
        self.connections[at].sends.push((call, expected));
        self.open.push((call, at));
    }

    fn receive(&mut self, at: usize) {
        let room = Room::Owned(vec![0; 1 + self.random.below(3000)]);
        let call = self.calls.receive_into(self.connections[at].socket, room, at as u64).unwrap();
        self.open.push((call, at));
    }

    /// Reads a part of a file.
    fn read(&mut self) {
        let (file, bytes) = &self.files[self.random.below(NAMES.len())];
        let start = self.random.below(bytes.len() + 1);
        let end = start + self.random.below(bytes.len() - start + 1);
        let expected = bytes[start..end].to_vec();
        let caching = [Caching::Popular, Caching::Never, Caching::Always][self.random.below(3)];
        let room = Room::Owned(vec![0; expected.len() + self.random.below(10)]);
        let (range, policy) = (start as u64..end as u64, Policy { caching, window: WINDOW });
        let call = self.calls.read_into(file, range, policy, room, 0).unwrap();
        self.reads.insert(call, expected);
        self.open.push((call, 0));
    }

    /// Receives into a place of a file that no other call writes to.
    fn store(&mut self, at: usize) {
        let offset = self.stored;
        self.stored += UPLOAD_BYTES;
        let (socket, len) = (self.connections[at].socket, 1 + self.random.below(UPLOAD_BYTES));
        let (from, len) = (offset as u64, len as u64);
        let call = self.calls.receive_to_file(socket, &self.uploads, from, len, at as u64).unwrap();
        self.stores.insert(call, offset);
        self.open.push((call, at));
    }

    fn wait(&mut self, until: Option<Time>) {
        let mut done = Vec::new();
        self.calls.wait(until, &mut done).unwrap();
        for one in done {
            let place = self.open.iter().position(|(call, _)| *call == one.call);
            let (_, at) = self.open.remove(place.expect("a call completes once"));
            assert!(one.token == at as u64 && !one.more);
            match one.outcome {
                Outcome::Sent { bytes, end } => drop(self.sent.insert(one.call, (bytes, end))),
                Outcome::Received { room, end } => match end {
                    Ok(count) => self.connections[at].received.extend(&room.bytes()[..count]),
                    Err(Stop::Cancelled | Stop::Closed) => {}
                    Err(Stop::Failed(Failure::Gone)) => assert!(self.connections[at].is_reset),
                    Err(Stop::Broken) => assert!(self.connections[at].has_lost),
                    Err(stop) => panic!("{stop:?}"),
                },
                Outcome::Read { room, bytes, end } => {
                    let expected = self.reads.remove(&one.call).unwrap();
                    assert!(room.bytes()[..bytes] == expected[..bytes], "other bytes were read");
                    assert_eq!(end.is_ok(), bytes == expected.len(), "{end:?}");
                    self.done[0] += usize::from(end.is_ok());
                }
                Outcome::Stored { bytes, end } => {
                    let (offset, len) =
                        (self.stores.remove(&one.call).unwrap(), usize::try_from(bytes).unwrap());
                    let connection = &mut self.connections[at];
                    match end {
                        Ok(()) => {}
                        // It may have lost bytes, or none.
                        Err(Stop::Cancelled | Stop::Closed) => connection.has_lost = true,
                        Err(Stop::Failed(Failure::Gone)) => assert!(connection.is_reset),
                        Err(Stop::Broken) => assert!(connection.has_lost),
                        Err(stop) => panic!("{stop:?}"),
                    }
                    if len > 0 {
                        let all = self.world.read_file(UPLOADS);
                        connection.received.extend(&all[offset..offset + len]);
                    }
                    self.done[1] += usize::from(end.is_ok() && len > 0);
                }
                other => panic!("{other:?}"),
            }
        }
    }

    /// Lets all peers read all and send no more, and waits for every call.
    fn finish(&mut self) {
        for at in 0..self.connections.len() {
            self.connections[at].peer.set_read_rate(None);
            self.connections[at].peer.shutdown_write();
        }
        while !self.open.is_empty() {
            self.wait(None);
        }
        for at in 0..self.connections.len() {
            while self.connections[at].has_more() {
                self.receive(at);
                while !self.open.is_empty() {
                    self.wait(None);
                }
            }
        }
        // The bytes that have left take a while to arrive; a packet that is not full is held back 200 ms.
        let until = self.calls.ring().now() + Duration::from_secs(5);
        while self.calls.ring().now() < until {
            self.wait(Some(until));
        }
    }

    fn check(&mut self) {
        for connection in &self.connections {
            let (mut expected, mut broken) = (Vec::new(), false);
            for (call, bytes) in &connection.sends {
                let (count, end) = self.sent[call];
                let count = usize::try_from(count).unwrap();
                assert!(end.is_ok() == (count == bytes.len()) || count == 0, "{end:?} {count}");
                assert!(!broken || count == 0, "nothing follows a part");
                assert!(end != Err(Stop::Broken) || broken);
                assert!(end != Err(Stop::Failed(Failure::Gone)) || connection.is_reset);
                expected.extend(&bytes[..count]);
                broken |= end.is_err() && count > 0;
            }
            let got = connection.peer.received();
            assert!(expected.starts_with(&got), "other bytes than were sent");
            assert!(
                connection.is_reset || connection.is_closed || got.len() == expected.len(),
                "bytes are missing"
            );
            assert!(connection.incoming.starts_with(&connection.received), "other bytes than came");
            assert!(
                connection.is_reset
                    || connection.is_closed
                    || connection.has_lost
                    || connection.received.len() == connection.incoming.len()
            );
        }
        assert!(self.world.stalls().is_empty(), "{:?}", self.world.stalls());
        assert_eq!((self.calls.memory, self.calls.disk.in_flight()), (0, 0));
        assert_eq!((self.calls.pieces, self.reads.len(), self.stores.len()), (0, 0, 0));
        assert_eq!((self.calls.disk.buffers_lent(), self.world.pipe_bytes()), (0, 0));
        assert!(
            !self.calls.disk.has_next_waiting()
                && self.calls.disk.next_holder(self.calls.ring.now()).is_none()
        );
        assert_eq!(self.calls.in_flight(), 1, "only the accept goes on");
    }
}

#[test]
fn every_byte_arrives_in_its_place_whatever_happens() {
    let (mut broken, mut whole, mut cancelled, mut done) = (0, 0, 0, [0; 2]);
    let mut counts = ring::sim::Counts::default();
    for seed in 0..SEEDS {
        let shown = Seed::new(seed);
        let mut test = Test::new(seed);
        for _ in 0..20 + test.random.below(120) {
            test.step();
        }
        test.finish();
        test.check();
        for (_, end) in test.sent.values() {
            match end {
                Ok(()) => whole += 1,
                Err(Stop::Broken) => broken += 1,
                Err(Stop::Cancelled) => cancelled += 1,
                Err(_) => {}
            }
        }
        done = [done[0] + test.done[0], done[1] + test.done[1]];
        let world = test.world.clone();
        counts += world.counts();
        drop((test, shown));
        assert_eq!(world.open_descriptors(), 0, "seed {seed}");
    }
    assert!(whole > 1000 && broken > 50 && cancelled > 50, "{whole} {broken} {cancelled}");
    assert!(done[0] > 500 && done[1] > 100, "{done:?}");
    assert!(counts.splices > 0 && counts.sendfiles > 0 && counts.failures > 0, "{counts:?}");
}

#[test]
fn a_queue_that_is_full_gives_back_what_it_was_given() {
    let world = World::new(Config::new(1));
    let ring = Ring::simulated(&world);
    let mut calls = Calls::new(ring, DiskConfig::default()).unwrap();
    let nothing = Socket::from_bits(Key::NONE.to_bits());
    for token in 0..CALLS_MAX as u64 {
        calls.receive_into(nothing, Room::Owned(Vec::new()), token).unwrap();
    }
    let Err(Full(Room::Owned(room))) = calls.receive_into(nothing, Room::Owned(vec![7]), 0) else {
        panic!("a call too many")
    };
    assert_eq!(room, [7]);
    assert_eq!(calls.send(nothing, vec![Part::Static(b"x")], 0).unwrap_err().0.len(), 1);
    let mut done = Vec::new();
    calls.wait(None, &mut done).unwrap();
    assert_eq!(done.len(), CALLS_MAX);
    assert!(
        done.iter()
            .all(|one| matches!(one.outcome, Outcome::Received { end: Err(Stop::Closed), .. }))
    );
    calls.send(nothing, Vec::new(), 0).unwrap();
}

#[test]
fn memory_in_flight_is_bounded() {
    let world = World::new(Config::new(2));
    let ring = Ring::simulated(&world);
    let listener = ring.sim_listener(&world);
    let mut calls = Calls::new(ring, DiskConfig::default()).unwrap();
    calls.accept(&listener, 0).unwrap();
    let peer = world.connect();
    peer.stop_reading();
    let mut done = Vec::new();
    calls.wait(None, &mut done).unwrap();
    let Outcome::Accepted(Ok(socket)) = done[0].outcome else { panic!("{done:?}") };
    let large = || vec![Part::Bytes(vec![1; 16 << 20])];
    let first = calls.send(socket, large(), 1).unwrap();
    for token in 2..5 {
        calls.send(socket, large(), token).unwrap();
    }
    assert!(calls.send(socket, large(), 5).is_err());
    calls.cancel(first);
    calls.wait(None, &mut done).unwrap();
    assert_eq!(done.len(), 4, "the first has left in part, so the others are broken");
    assert_eq!(calls.memory, 0);
}

#[test]
fn uploads_wait_for_memory_and_those_to_a_disk_that_does_not_answer_end() {
    const MORE: usize = 10;
    let world = World::new(Config::new(3));
    let device = world.make_device("slow");
    world.write_file("slow/a", b"");
    let ring = Ring::simulated(&world);
    let (listener, root) = (ring.sim_listener(&world), ring.sim_root(&world));
    let mut calls = Calls::new(ring, DiskConfig::default()).unwrap();
    calls.set_patience(Some(PATIENCE));
    calls.accept(&listener, 0).unwrap();
    let how = OpenHow::BENEATH.with_flags(O_RDWR);
    let open = calls.submit(Op::Open { dir: Some(root), path: c"slow/a".into(), how }, 0).unwrap();
    let Outcome::Event(Ok(ring::Event::Opened(file))) = only(&mut calls, open) else {
        panic!("no file")
    };
    let peers: Vec<_> = (0..stores::PIECES_MAX + MORE).map(|_| world.connect()).collect();
    let (mut sockets, mut done) = (Vec::new(), Vec::new());
    while sockets.len() < peers.len() {
        calls.wait(None, &mut done).unwrap();
        sockets.extend(done.drain(..).map(|one| match one.outcome {
            Outcome::Accepted(socket) => socket.unwrap(),
            other => panic!("{other:?}"),
        }));
    }
    world.hang(device);
    for peer in &peers {
        peer.send(b"hello");
    }
    let begin = |calls: &mut Calls| {
        for (at, socket) in (0..).step_by(5).zip(&sockets) {
            calls.receive_to_file(*socket, &file, at, 5, 1).unwrap();
        }
    };
    begin(&mut calls);
    let until = calls.ring().now() + PATIENCE / 2;
    calls.wait(Some(until), &mut done).unwrap();
    assert!(done.is_empty(), "{done:?}");
    assert_eq!(calls.pieces, stores::PIECES_MAX);
    world.release(device);
    let mut count = 0;
    while count < sockets.len() {
        calls.wait(None, &mut done).unwrap();
        for one in done.drain(..) {
            assert!(
                matches!(one.outcome, Outcome::Stored { bytes: 5, end: Ok(()) }),
                "{:?}",
                one.outcome
            );
            count += 1;
        }
    }
    assert!(world.read_file("slow/a") == b"hello".repeat(sockets.len()));
    // A disk that does not answer ends them, also those in line, one patience after the other.
    world.hang(device);
    for peer in &peers {
        peer.send(b"hello");
    }
    begin(&mut calls);
    let (mut count, begun) = (0, calls.ring().now());
    while count < sockets.len() {
        calls.wait(None, &mut done).unwrap();
        for one in done.drain(..) {
            let Outcome::Stored { bytes: 0, end } = one.outcome else { panic!("{one:?}") };
            assert_eq!(end, Err(Stop::Failed(Failure::Late)));
            count += 1;
        }
    }
    assert!(calls.ring().now().since(begun) < PATIENCE * 3);
    assert_eq!(calls.pieces, 0);
    // Their sockets have lost bytes.
    calls.receive_into(sockets[0], Room::Owned(vec![0; 9]), 2).unwrap();
    calls.wait(None, &mut done).unwrap();
    assert!(matches!(done[0].outcome, Outcome::Received { end: Err(Stop::Broken), .. }));
    world.release(device);
}

/// A simulated disk that hangs, with the files `slow/a` and `slow/b`, and one that does not.
struct Hung {
    world: World,
    device: u64,
    root: Fd,
    socket: Socket,
    peer: Peer,
    files: Vec<Rc<File>>,
    /// Dropped last: its ring closes the descriptors of the others.
    calls: Calls,
}

const PATIENCE: Duration = Duration::from_secs(30);
const ECANCELED: i32 = 125;
const O_RDWR: i32 = 2;

impl Hung {
    /// A queue with two open files, `slow/a` and `fast`, of which nothing is resident, and the disk of the first hangs.
    fn new(seed: u64) -> Self {
        let world = World::new(Config::new(seed));
        let device = world.make_device("slow");
        for name in ["slow/a", "slow/b", "fast"] {
            world.write_file(name, &[1; 300_000]);
        }
        let ring = Ring::simulated(&world);
        let listener = ring.sim_listener(&world);
        let root = ring.sim_root(&world);
        let mut calls = Calls::new(ring, DiskConfig::default()).unwrap();
        calls.set_patience(Some(PATIENCE));
        let accept = calls.accept(&listener, 0).unwrap();
        let peer = world.connect();
        let Outcome::Accepted(Ok(socket)) = only(&mut calls, accept) else { panic!("no socket") };
        calls.cancel(accept);
        assert!(matches!(only(&mut calls, accept), Outcome::Accepted(Err(_))));
        let mut files = Vec::new();
        for name in [c"slow/a", c"fast"] {
            let open = calls.open(&root, name.into(), 0).unwrap();
            let Outcome::Opened(Ok((file, _))) = only(&mut calls, open) else { panic!("no file") };
            files.push(file);
        }
        world.evict("slow/a");
        world.evict("fast");
        world.hang(device);
        Self { world, device, calls, root, socket, peer, files }
    }

    fn send(&mut self, file: usize) -> Call {
        let file = Rc::clone(&self.files[file]);
        let range = 0..file.size();
        let part = Part::File(file, range, Policy::default());
        self.calls.send(self.socket, vec![part], 0).unwrap()
    }

    /// An open and a listing on the disk that hangs.
    fn begin(&mut self) -> [Call; 2] {
        [
            self.calls.open(&self.root, c"slow/b".into(), 0).unwrap(),
            self.calls.list(&self.root, c"slow".into(), 10, 0).unwrap(),
        ]
    }
}

/// The next completion, which is of this call.
fn only(calls: &mut Calls, call: Call) -> Outcome {
    let mut done = Vec::new();
    calls.wait(None, &mut done).unwrap();
    assert_eq!((done.len(), done[0].call), (1, call), "{done:?}");
    done.remove(0).outcome
}

/// The error of a call that is no send.
fn error_of(outcome: Outcome) -> io::Error {
    match outcome {
        Outcome::Opened(Err(error))
        | Outcome::Listed(Err(error))
        | Outcome::Changed(Err(error)) => error,
        other => panic!("{other:?}"),
    }
}

#[test]
fn calls_on_a_disk_that_hangs_end_when_their_time_is_over() {
    for seed in 0..20 {
        let _shown = Seed::new(seed);
        let mut hung = Hung::new(seed);
        let begun = hung.calls.ring().now();
        let late = hung.send(0);
        let fast = hung.send(1);
        let others = hung.begin();
        let (mut done, mut ends) = (Vec::new(), HashMap::new());
        while ends.len() < 4 {
            hung.calls.wait(Some(begun + PATIENCE * 2), &mut done).unwrap();
            assert!(!done.is_empty(), "{ends:?}");
            let after = hung.calls.ring().now().since(begun);
            ends.extend(done.drain(..).map(|one| (one.call, (after, one.outcome))));
        }
        let (after, outcome) = ends.remove(&late).unwrap();
        let Outcome::Sent { bytes: 0, end } = outcome else { panic!("{outcome:?}") };
        assert_eq!(end, Err(Stop::Failed(Failure::Late)));
        assert!((PATIENCE..PATIENCE + Duration::from_secs(2)).contains(&after), "{after:?}");
        // This send waits behind the other on its socket, and nothing of it has left.
        let (_, outcome) = ends.remove(&fast).unwrap();
        assert!(matches!(outcome, Outcome::Sent { bytes: 300_000, end: Ok(()) }), "{outcome:?}");
        for call in others {
            let (after, outcome) = ends.remove(&call).unwrap();
            assert_eq!(error_of(outcome).kind(), io::ErrorKind::TimedOut);
            assert!((PATIENCE..PATIENCE + Duration::from_secs(1)).contains(&after), "{after:?}");
        }
        // The disk answers: late results are given back, and everything goes on.
        hung.world.release(hung.device);
        hung.calls.wait(Some(hung.calls.ring().now() + Duration::from_secs(1)), &mut done).unwrap();
        assert!(done.is_empty(), "{done:?}");
        assert_eq!((hung.calls.disk.in_flight(), hung.calls.in_flight()), (0, 0));
        let again = hung.send(0);
        let outcome = only(&mut hung.calls, again);
        assert!(matches!(outcome, Outcome::Sent { bytes: 300_000, end: Ok(()) }), "{outcome:?}");
        let world = hung.world.clone();
        drop(hung);
        assert_eq!(world.open_descriptors(), 0, "seed {seed}");
    }
}

#[test]
fn a_call_on_a_disk_that_hangs_is_cancelled_at_once() {
    for seed in 0..20 {
        let _shown = Seed::new(seed);
        let mut hung = Hung::new(seed);
        hung.calls.set_patience(None);
        let send = hung.send(0);
        let others = hung.begin();
        let mut done = Vec::new();
        hung.calls.wait(Some(hung.calls.ring().now() + PATIENCE * 2), &mut done).unwrap();
        assert!(done.is_empty(), "without a limit they wait: {done:?}");
        for call in others.into_iter().chain([send]) {
            hung.calls.cancel(call);
        }
        assert_eq!(hung.calls.in_flight(), 0);
        hung.calls.wait(Some(hung.calls.ring().now()), &mut done).unwrap();
        assert_eq!(done.len(), 3);
        for (one, call) in done.drain(..).zip(others) {
            assert!(one.call == call && !one.more);
            assert_eq!(error_of(one.outcome).raw_os_error(), Some(ECANCELED));
        }
        // A patience that is set again holds for reads as well.
        hung.calls.set_patience(Some(PATIENCE));
        let late = hung.send(0);
        let outcome = only(&mut hung.calls, late);
        assert!(matches!(outcome, Outcome::Sent { end: Err(Stop::Failed(Failure::Late)), .. }));
        hung.world.release(hung.device);
        assert_eq!(hung.peer.received_bytes(), 0);
        let world = hung.world.clone();
        drop(hung);
        assert_eq!(world.open_descriptors(), 0, "seed {seed}");
    }
}

#[test]
fn a_watch_goes_on_although_its_time_to_begin_is_over() {
    let mut hung = Hung::new(1);
    let watch = hung.calls.watch_file(&hung.root, c"fast".into(), 0).unwrap();
    assert!(matches!(only(&mut hung.calls, watch), Outcome::Watching));
    let mut done = Vec::new();
    hung.calls.wait(Some(hung.calls.ring().now() + PATIENCE * 2), &mut done).unwrap();
    assert!(done.is_empty(), "{done:?}");
    hung.world.write_file("fast", b"changed");
    assert!(matches!(only(&mut hung.calls, watch), Outcome::Changed(Ok(()))));
    hung.calls.cancel(watch);
    assert_eq!(error_of(only(&mut hung.calls, watch)).raw_os_error(), Some(ECANCELED));
}

#[test]
fn one_call_is_waited_for_and_the_completions_of_others_stay() {
    let mut hung = Hung::new(1);
    let soon = hung.calls.timer(hung.calls.ring().now(), 7).unwrap();
    let fast = hung.send(1);
    let done = hung.calls.wait_for(fast, None).unwrap().expect("it completes");
    assert!(matches!(done.outcome, Outcome::Sent { bytes: 300_000, end: Ok(()) }), "{done:?}");
    assert!(hung.calls.is_pending(soon) && !hung.calls.is_pending(fast));
    assert!(hung.calls.wait_for(fast, None).unwrap().is_none(), "it has completed");
    // The other has come meanwhile, and does not keep a wait for a third from sleeping.
    let late = hung.send(0);
    let begun = hung.calls.ring().now();
    assert!(hung.calls.wait_for(late, Some(begun + PATIENCE / 2)).unwrap().is_none());
    assert!(hung.calls.ring().now().since(begun) >= PATIENCE / 2);
    let done = hung.calls.wait_for(late, None).unwrap().expect("it fails");
    assert!(matches!(done.outcome, Outcome::Sent { end: Err(Stop::Failed(Failure::Late)), .. }));
    assert!(matches!(only(&mut hung.calls, soon), Outcome::Timer(Ok(()))));
    assert_eq!(hung.calls.pending(), 0);
}
