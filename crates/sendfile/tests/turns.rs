//! Many streams of files that one worker splices from a slow disk, in a simulated world: each has its turn.
//!
//! A stream reads on for 30 ms after its turn at the disk has begun. Then it waits in the queue behind the streams
//! that are there. So while a stream waits, each other stream has at most one turn. Streams wait only if the disk has
//! no room for another read, so in a turn one read begins for each that ends.

use core::time::Duration;
use std::ffi::CString;
use std::rc::Rc;

use ring::sim::{Config, Peer, World};
use ring::{Completion, Event, Op, OpenHow, Ring, Token};
use sendfile::{
    Disk, DiskConfig, File, KernelTcp, Owner, Policy, Progress, Stream, Transport as _, Window,
};

const DISK: Token = 1 << 40;
const RECV: Token = 1 << 20;
const WRITABLE: Token = 2 << 20;
const STREAMS: usize = 50;
const SEEDS: u64 = 8;
const MIB: u64 = 1 << 20;
const FILE_BYTES: u64 = 2 * MIB + 77;
/// The bytes of each read of a slow disk.
const READ_BYTES: u64 = MIB / 4;
const WINDOW: Window = Window::of(2 * MIB);
const DISK_RATE: u64 = 20 * MIB;
/// The time for which a stream reads on.
const TURN: Duration = Duration::from_millis(30);

/// The reads of one turn: the first one, and those that begin when one has ended.
fn turn_reads() -> u64 {
    let ended = u64::try_from(TURN.as_millis()).unwrap() * DISK_RATE / 1000 / READ_BYTES;
    1 + ended
}

/// A connection with one response.
struct Sending {
    stream: Stream,
    transport: KernelTcp,
    peer: Peer,
    has_ended: bool,
    /// `Some` while the stream waits: the reads that each other stream has begun since.
    passed: Option<Vec<u64>>,
}

struct Worker {
    ring: Ring,
    disk: Disk,
    all: Vec<Sending>,
    /// The streams that are to have another turn at the processor.
    again: Vec<usize>,
    /// The maximum of times that a waiting stream was passed by another.
    passed_max: u64,
    /// The maximum of streams that waited at the same time.
    waiting_max: usize,
}

fn wait(ring: &mut Ring, most: Duration) -> Vec<Completion> {
    let mut completions = Vec::new();
    ring.wait(Some(ring.now() + most), &mut completions).unwrap();
    completions
}

fn next(ring: &mut Ring) -> Event {
    wait(ring, Duration::from_secs(1)).remove(0).result.unwrap()
}

fn open(world: &World, ring: &mut Ring, name: &str) -> Rc<File> {
    let dir = Some(ring.sim_root(world));
    let path = CString::new(name).unwrap();
    ring.submit(Op::Open { dir, path, how: OpenHow::BENEATH }, 0);
    let Event::Opened(fd) = next(ring) else { panic!("a file") };
    ring.submit(Op::Stat(fd.clone()), 0);
    let Event::Stat(stat) = next(ring) else { panic!("its size") };
    Rc::new(File::new(fd, &stat))
}

/// The number of a stream in a token.
fn number(token: Token) -> usize {
    usize::try_from(token % RECV).unwrap()
}

impl Worker {
    fn new(seed: u64) -> Self {
        let latency = Duration::from_micros(100)..=Duration::from_millis(3);
        let world =
            World::new(Config { disk: latency, disk_rate: Some(DISK_RATE), ..Config::new(seed) });
        let mut ring = Ring::simulated(&world);
        let listener = ring.sim_listener(&world);
        let accept = ring.submit(Op::Accept(listener), 0);
        let bytes = vec![7; usize::try_from(FILE_BYTES).unwrap()];
        let mut all = Vec::new();
        for at in 0..STREAMS {
            let peer = world.connect();
            let Event::Accepted(socket) = next(&mut ring) else { panic!("a connection") };
            let token = Token::try_from(at).unwrap();
            let transport = KernelTcp::new(socket, RECV + token, WRITABLE + token);
            all.push((peer, transport));
        }
        ring.cancel(accept);
        wait(&mut ring, Duration::from_secs(1));
        let policy = Policy { window: WINDOW, ..Policy::default() };
        let all = all.into_iter().enumerate().map(|(at, (peer, transport))| {
            let name = format!("f{at}");
            world.write_file(&name, &bytes);
            world.evict(&name);
            let file = open(&world, &mut ring, &name);
            let mut stream = Stream::new();
            stream.push_file(&file, 0..FILE_BYTES, policy);
            Sending { stream, transport, peer, has_ended: false, passed: None }
        });
        let all = all.collect();
        let config = DiskConfig { token_base: DISK, ..DiskConfig::default() };
        let disk = Disk::new(config).unwrap();
        let again = (0..STREAMS).collect();
        Self { ring, disk, all, again, passed_max: 0, waiting_max: 0 }
    }

    fn pump(&mut self, at: usize) {
        let one = &mut self.all[at];
        if one.has_ended {
            return;
        }
        let before = self.disk.stats().misses;
        let owner = Owner::of(at as u64);
        let progress = one.stream.pump(&mut self.ring, &mut self.disk, &mut one.transport, owner);
        match progress {
            Progress::Drained => one.has_ended = true,
            Progress::More => self.again.push(at),
            Progress::Failed(failure) => panic!("{failure:?}"),
            Progress::Blocked | Progress::Waiting => {}
        }
        let is_in_line = progress == Progress::Waiting && !one.stream.is_reading();
        let begun = self.disk.stats().misses - before;
        if begun > 0 || !is_in_line {
            one.passed = None;
        } else if one.passed.is_none() {
            one.passed = Some(vec![0; STREAMS]);
        }
        for passed in self.all.iter_mut().filter_map(|one| one.passed.as_mut()) {
            passed[at] += begun;
            self.passed_max = self.passed_max.max(passed[at]);
        }
        let waiting = self.all.iter().filter(|one| one.passed.is_some()).count();
        self.waiting_max = self.waiting_max.max(waiting);
    }

    fn turn(&mut self) {
        let most = if self.again.is_empty() { Duration::from_secs(1) } else { Duration::ZERO };
        for completion in wait(&mut self.ring, most) {
            let token = completion.token;
            if self.disk.owns(token) {
                if let Some(done) = self.disk.handle(&mut self.ring, completion) {
                    let at = usize::try_from(done.owner.connection).unwrap();
                    self.all[at].stream.handle_read(done);
                    self.again.push(at);
                }
            } else if token >= WRITABLE {
                self.all[number(token)].transport.handle_writable();
                self.again.push(number(token));
            }
        }
        for at in core::mem::take(&mut self.again) {
            self.pump(at);
        }
        while let Some(owner) = self.disk.next_waiting() {
            self.pump(usize::try_from(owner.connection).unwrap());
        }
        assert!(!self.disk.is_starved(), "pipes are enough for all");
    }
}

#[test]
fn no_stream_waits_longer_than_one_turn_of_each_other() {
    for seed in 0..SEEDS {
        eprintln!("seed {seed}");
        let mut worker = Worker::new(seed);
        let begun = worker.ring.now();
        while worker.all.iter().any(|one| !one.has_ended) {
            worker.turn();
            let time = worker.ring.now().since(begun);
            assert!(time < Duration::from_secs(100), "it goes on for ever");
        }
        for one in &worker.all {
            while (one.peer.received_bytes() as u64) < FILE_BYTES {
                worker.ring.wait(Some(worker.ring.now() + TURN), &mut Vec::new()).unwrap();
            }
        }
        let Worker { passed_max, waiting_max, .. } = worker;
        eprintln!("passed {passed_max} times at most, {waiting_max} in line");
        assert!(waiting_max > STREAMS / 2, "only {waiting_max} streams stood in line");
        assert!(passed_max <= turn_reads(), "one was passed {passed_max} times by another");
    }
}
