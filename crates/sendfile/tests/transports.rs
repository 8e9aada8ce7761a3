//! Streams over transports that take any bytes at any time, in a simulated world. The peer always
//! gets every byte in its place. No buffer is given back while a transport may still send it again,
//! and none is kept afterwards.

use core::num::NonZeroU64;
use core::time::Duration;
use std::collections::HashMap;
use std::rc::Rc;

use outq::OutQ;
use ring::sim::{Config, Peer, World};
use ring::{Event, Fd, Op, OpenHow, Ring};
use rustix::io::Errno;
use sendfile::{
    Account, Allowance, Caching, Disk, DiskConfig, Drained, Failure, File, KernelTcp, Owner, Piece,
    Policy, Progress, Shared, Stream, Takes, Transport, Window,
};
use testkit::Random;

const DISK: u64 = 1 << 40;
const RECV: u64 = 1;
const WRITABLE: u64 = 2;
const SEEDS: u64 = 60;
/// Buffers of 256 KiB: as few as a disk may have.
const BUFFERS: u64 = 4;
const BUFFER_BYTES: u64 = 256 * 1024;
/// Windows are smaller.
const WINDOW_MAX: u64 = 3 << 20;
const OVERLAYFS: u64 = 0x794c_7630;
const STATIC: &[u8] = b"bytes of the program";

fn index(n: u64) -> usize {
    usize::try_from(n).unwrap()
}

/// A transport that sends only from memory, keeps referring to sent bytes, and may send them again.
struct Toy {
    random: Random,
    /// Everything sent, from position 0 on.
    wire: Vec<u8>,
    blocked: bool,
    /// The maximum of bytes that it has on their way.
    window: u64,
}

impl Toy {
    fn new(seed: u64) -> Self {
        Self { random: Random::new(seed), wire: Vec::new(), blocked: false, window: u64::MAX }
    }

    /// Reads again the bytes that were sent and are not acknowledged: they must be unchanged.
    fn send_again(&mut self, queue: &OutQ<Piece>) {
        let from = queue.released() + self.random.below(queue.sent() - queue.released() + 1);
        let mut at = from;
        for chunk in queue.in_flight(from) {
            assert_eq!(chunk.at, at);
            let bytes = &chunk.payload.bytes()[index(chunk.range.start)..index(chunk.range.end)];
            assert!(
                self.wire[index(at)..][..bytes.len()] == *bytes,
                "other bytes at {at} than were sent: the buffer was given back too early"
            );
            at += chunk.len();
        }
        assert_eq!(at, queue.sent());
    }

    /// Lets the peer acknowledge some of its bytes.
    fn acknowledge(&mut self, queue: &mut OutQ<Piece>) {
        let n = self.random.below(queue.sent() - queue.released() + 1);
        queue.mark_released(n);
    }
}

impl Transport for Toy {
    fn takes(&self) -> Takes {
        Takes::Memory
    }

    fn drain(&mut self, _ring: &mut Ring, queue: &mut OutQ<Piece>, budget: &mut u64) -> Drained {
        loop {
            let Some(first) = queue.next_ready().next() else { return Drained::Empty };
            let room = self.window.saturating_sub(queue.sent() - queue.released());
            if room == 0 || self.random.one_in(6) {
                self.blocked = true;
                return Drained::Blocked;
            }
            if *budget == 0 {
                return Drained::TurnOver;
            }
            assert_eq!(first.at, self.wire.len() as u64);
            let n = 1 + self.random.below(first.len().min(*budget).min(room));
            let bytes = &first.payload.bytes()[index(first.range.start)..][..index(n)];
            self.wire.extend_from_slice(bytes);
            *budget -= n;
            queue.mark_sent(n);
        }
    }

    fn window(&self) -> u64 {
        self.window
    }

    fn receive<'a>(
        &'a mut self,
        bytes: &'a [u8],
        queue: &mut OutQ<Piece>,
    ) -> Result<&'a [u8], Failure> {
        self.acknowledge(queue);
        Ok(bytes)
    }

    fn handle_writable(&mut self) {
        self.blocked = false;
    }

    fn is_blocked(&self) -> bool {
        self.blocked
    }

    fn acknowledged(&self, _ring: &Ring, queue: &OutQ<Piece>) -> i64 {
        queue.released().cast_signed()
    }

    fn set_receiving(&mut self, _ring: &mut Ring, _on: bool) {}
    fn handle_receive_stopped(&mut self) {}
    fn handle_end(&mut self) {}
    fn has_ended(&self) -> bool {
        false
    }
    fn shutdown(&mut self, _ring: &mut Ring) {}
    fn close(&mut self, _ring: &mut Ring) {}
}

/// A simulated world with some files in it.
struct Setup {
    random: Random,
    world: World,
    ring: Ring,
    disk: Disk,
    files: Vec<(Rc<File>, Vec<u8>)>,
    shared: Shared,
}

impl Setup {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let mut config = Config::new(seed);
        config.send_buffer = 1000 + index(random.below(400_000));
        config.can_drop = random.one_in(2);
        config.faults.short_read = 0.1;
        config.faults.short_send = 0.2;
        config.faults.eviction = 0.2;
        config.faults.probe_denial = 0.05;
        let world = World::new(config);
        let mut ring = Ring::simulated(&world);
        let mut files = Vec::new();
        for name in ["a", "b", "c"] {
            let len = 1 + random.below(900_000);
            let bytes: Vec<u8> = (0..len).map(|_| random.bits().to_be_bytes()[0]).collect();
            world.write_file(name, &bytes);
            if random.one_in(2) {
                world.evict(name);
            }
            files.push((open(&world, &mut ring, name), bytes));
        }
        let memory_bytes = index(BUFFERS * BUFFER_BYTES);
        let config =
            DiskConfig { memory_bytes, pipes: 0, token_base: DISK, ..DiskConfig::default() };
        let disk = Disk::new(config).unwrap();
        let shared: Vec<u8> = (0..10_000).map(|_| random.bits().to_be_bytes()[0]).collect();
        let shared = Shared::new(shared, &Account::default());
        Self { random, world, ring, disk, files, shared }
    }

    /// Promises a random piece, and adds it to the bytes that the peer must get.
    fn promise(&mut self, stream: &mut Stream, expected: &mut Vec<u8>) {
        let Self { random, files, shared, .. } = self;
        let range = |random: &mut Random, len: usize| {
            let start = random.below(len as u64 + 1);
            start..start + random.below(len as u64 - start + 1)
        };
        match random.below(6) {
            0 => {
                stream.push(Piece::Static(STATIC));
                expected.extend(STATIC);
            }
            1 => {
                let bytes: Vec<u8> =
                    (0..random.below(3000_u64)).map(|at| at.to_be_bytes()[7]).collect();
                expected.extend(&bytes);
                stream.push(Piece::Bytes(bytes));
            }
            2 => {
                let range = range(random, shared.len());
                let range = index(range.start)..index(range.end);
                expected.extend(&shared[range.clone()]);
                stream.push(Piece::Shared(shared.clone(), range));
            }
            _ => {
                let (file, bytes) = &files[index(random.below(files.len() as u64))];
                let range = range(random, bytes.len());
                expected.extend(&bytes[index(range.start)..index(range.end)]);
                let caching = [Caching::Popular, Caching::Never][index(random.below(2))];
                let window = Window::of(random.below(WINDOW_MAX));
                stream.push_file(file, range, Policy { caching, window });
            }
        }
    }

    fn evict(&mut self) {
        let name = ["a", "b", "c"][index(self.random.below(3))];
        self.world.evict(name);
    }

    /// Returns whether no stream and no read holds a buffer.
    fn all_buffers_are_free(&self) -> bool {
        self.disk.buffers_lent() == 0
    }
}

/// The bytes in buffers of the disk that have not been released, up to the first gap.
fn read_bytes(queue: &OutQ<Piece>) -> u64 {
    let chunks = queue.in_flight(queue.released()).chain(queue.next_ready());
    let read = chunks.filter(|chunk| matches!(chunk.payload, Piece::Disk(..)));
    read.map(|chunk| chunk.len()).sum()
}

fn next(ring: &mut Ring) -> Event {
    let mut completions = Vec::new();
    while completions.is_empty() {
        ring.wait(None, &mut completions).unwrap();
    }
    completions.remove(0).result.unwrap()
}

fn open(world: &World, ring: &mut Ring, name: &str) -> Rc<File> {
    let dir = Some(ring.sim_root(world));
    let path = std::ffi::CString::new(name).unwrap();
    ring.submit(Op::Open { dir, path, how: OpenHow::BENEATH }, 0);
    let Event::Opened(fd) = next(ring) else { panic!("a file") };
    ring.submit(Op::Stat(fd.clone()), 0);
    let Event::Stat(stat) = next(ring) else { panic!("its size") };
    Rc::new(File::new(fd, &stat))
}

fn connect(world: &World, ring: &mut Ring) -> (Fd, Peer) {
    let listener = ring.sim_listener(world);
    let accept = ring.submit(Op::Accept(listener), 0);
    let peer = world.connect();
    let Event::Accepted(socket) = next(ring) else { panic!("a connection") };
    ring.cancel(accept);
    let mut completions = Vec::new();
    ring.wait(Some(ring.now() + Duration::from_secs(1)), &mut completions).unwrap();
    (socket, peer)
}

/// Reads that have ended by now, or soon.
fn wait(setup: &mut Setup, mut handle: impl FnMut(&mut Ring, sendfile::ReadDone)) {
    let mut completions = Vec::new();
    let until = setup.ring.now() + Duration::from_millis(1);
    setup.ring.wait(Some(until), &mut completions).unwrap();
    for completion in completions {
        if setup.disk.owns(completion.token)
            && let Some(done) = setup.disk.handle(&mut setup.ring, completion)
        {
            handle(&mut setup.ring, done);
        }
    }
}

/// One of several connections that share a disk.
struct Connection {
    stream: Stream,
    toy: Toy,
    expected: Vec<u8>,
}

#[test]
fn what_is_sent_can_be_sent_again_until_it_is_released() {
    let (mut copies, mut reads) = (0, 0);
    for seed in 0..SEEDS {
        let mut setup = Setup::new(seed);
        // In half of the worlds many bytes stay resident and are copied, in the others most are read.
        let is_warm = seed % 2 == 0;
        if is_warm {
            setup.world.configure(|config| config.faults.eviction = 0.01);
        }
        if seed % 4 == 0 {
            // As overlayfs: a mapping tells what is resident.
            setup.world.configure(|config| {
                config.file_system = OVERLAYFS;
                config.probe_errno = Some(Errno::OPNOTSUPP.raw_os_error());
            });
        }
        let mut all = HashMap::new();
        for name in 0..3 {
            let mut stream = Stream::new();
            let mut expected = Vec::new();
            for _ in 0..5 {
                setup.promise(&mut stream, &mut expected);
            }
            all.insert(name, Connection { stream, toy: Toy::new(seed * 10 + name), expected });
        }
        for step in 0.. {
            assert!(step < 100_000, "seed {seed}: it goes on for ever");
            let name = match setup.disk.next_waiting() {
                Some(owner) => owner.connection,
                None => setup.random.below(3),
            };
            if setup.disk.is_starved()
                && let Some(holder) = setup.disk.next_holder(setup.ring.now())
            {
                all.get_mut(&holder.connection).unwrap().stream.reclaim(setup.ring.now());
            }
            let Connection { stream, toy, .. } = all.get_mut(&name).unwrap();
            match setup.random.below(6) {
                0 => toy.handle_writable(),
                1 => drop(toy.receive(b"", stream.queue()).unwrap()),
                2 if !is_warm => setup.evict(),
                2 | 3 => wait(&mut setup, |_, done| {
                    let owner = all.get_mut(&done.owner.connection).unwrap();
                    owner.stream.handle_read(done);
                }),
                _ => {
                    let owner = Owner::of(name);
                    let (ring, disk) = (&mut setup.ring, &mut setup.disk);
                    let progress = stream.pump(ring, disk, toy, owner);
                    assert!(!matches!(progress, Progress::Failed(_)), "seed {seed}: {progress:?}");
                    stream.queue().check();
                    assert!(stream.held() >= read_bytes(stream.queue()), "seed {seed}");
                    assert!(
                        stream.held() + stream.reading() <= WINDOW_MAX + BUFFER_BYTES,
                        "seed {seed}"
                    );
                }
            }
            for Connection { stream, toy, .. } in all.values_mut() {
                toy.send_again(stream.queue());
            }
            if all.values().all(|connection| connection.stream.is_drained()) {
                break;
            }
        }
        for (name, Connection { stream, toy, expected }) in &mut all {
            assert!(toy.wire == *expected, "seed {seed}: other bytes for {name}");
            stream.settle(&mut setup.disk, Owner::of(*name), false);
            assert_eq!(stream.held(), 0, "seed {seed}");
            stream.restart();
        }
        assert!(setup.all_buffers_are_free(), "seed {seed}");
        copies += setup.disk.stats().hits;
        reads += setup.disk.stats().misses;
    }
    assert!(copies > 4 * SEEDS && reads > 4 * SEEDS, "{copies} copies, {reads} reads");
}

/// A session that merges streams: their pieces move into the queue of the connection, cut to any
/// size.
#[test]
fn streams_merge_into_one_transport() {
    for seed in 0..SEEDS {
        let mut setup = Setup::new(seed);
        let mut streams = Vec::new();
        let mut expected = vec![Vec::new(); 3];
        for expected in &mut expected {
            let mut stream = Stream::new();
            for _ in 0..4 {
                setup.promise(&mut stream, expected);
            }
            streams.push(stream);
        }
        let owner = |lane: usize| Owner { connection: 7, lane: u32::try_from(lane).unwrap() };
        let mut toy = Toy::new(seed);
        let mut queue = OutQ::new();
        // Which stream the bytes of the connection are of, and how many.
        let mut moved = Vec::new();
        for step in 0.. {
            assert!(step < 100_000, "seed {seed}: it goes on for ever");
            let lane = match setup.disk.next_waiting() {
                Some(owner) => usize::try_from(owner.lane).unwrap(),
                None => index(setup.random.below(3)),
            };
            let stream = &mut streams[lane];
            let budget = setup.random.below(100_000);
            let (ring, disk) = (&mut setup.ring, &mut setup.disk);
            stream.fill(ring, disk, owner(lane), Allowance::ALL, budget);
            if queue.unsent_ready() < 100_000
                && let Some(piece) = stream.queue().take_ready(budget)
            {
                moved.push((lane, outq::Payload::len(&piece)));
                queue.push(piece);
            }
            stream.settle(disk, owner(lane), toy.is_blocked());
            toy.drain(ring, &mut queue, &mut setup.random.below(100_000));
            toy.handle_writable();
            toy.send_again(&queue);
            toy.acknowledge(&mut queue);
            queue.check();
            wait(&mut setup, |_, done| {
                let lane = usize::try_from(done.owner.lane).unwrap();
                streams[lane].handle_read(done);
            });
            let is_released = queue.released() == queue.promised();
            if is_released && streams.iter().all(Stream::is_drained) {
                break;
            }
        }
        let mut at = 0;
        let mut received = vec![Vec::<u8>::new(); 3];
        for (lane, n) in moved {
            received[lane].extend(&toy.wire[at..at + index(n)]);
            at += index(n);
        }
        assert_eq!(at, toy.wire.len());
        assert!(received == expected, "seed {seed}: other bytes");
        assert!(setup.all_buffers_are_free(), "seed {seed}");
    }
}

/// A kernel socket that is drained in small turns: most lent bytes come back.
struct Choppy {
    socket: KernelTcp,
    random: Random,
}

impl Transport for Choppy {
    fn takes(&self) -> Takes {
        self.socket.takes()
    }

    fn drain(&mut self, ring: &mut Ring, queue: &mut OutQ<Piece>, budget: &mut u64) -> Drained {
        let most = self.random.below(300_000).min(*budget);
        let mut left = most;
        let drained = self.socket.drain(ring, queue, &mut left);
        *budget -= most - left;
        drained
    }

    fn receive<'a>(
        &'a mut self,
        bytes: &'a [u8],
        queue: &mut OutQ<Piece>,
    ) -> Result<&'a [u8], Failure> {
        self.socket.receive(bytes, queue)
    }

    fn handle_writable(&mut self) {
        self.socket.handle_writable();
    }

    fn is_blocked(&self) -> bool {
        self.socket.is_blocked()
    }

    fn acknowledged(&self, ring: &Ring, queue: &OutQ<Piece>) -> i64 {
        self.socket.acknowledged(ring, queue)
    }

    fn set_receiving(&mut self, ring: &mut Ring, on: bool) {
        self.socket.set_receiving(ring, on);
    }

    fn handle_receive_stopped(&mut self) {
        self.socket.handle_receive_stopped();
    }

    fn handle_end(&mut self) {
        self.socket.handle_end();
    }

    fn has_ended(&self) -> bool {
        self.socket.has_ended()
    }

    fn shutdown(&mut self, ring: &mut Ring) {
        self.socket.shutdown(ring);
    }

    fn close(&mut self, ring: &mut Ring) {
        self.socket.close(ring);
    }
}

#[test]
fn what_is_lent_and_not_taken_comes_back_and_no_sendfile_sleeps() {
    for seed in 0..SEEDS {
        let mut setup = Setup::new(seed);
        // The remaining case of file.rs: a page evicted from the middle of a block just looked at.
        setup.world.configure(|config| config.faults.eviction = 0.0);
        let (socket, peer) = connect(&setup.world, &mut setup.ring);
        let mut transport =
            Choppy { socket: KernelTcp::new(socket, RECV, WRITABLE), random: Random::new(seed) };
        let mut stream = Stream::new();
        let mut expected = Vec::new();
        for _ in 0..6 {
            setup.promise(&mut stream, &mut expected);
        }
        for step in 0.. {
            assert!(step < 100_000, "seed {seed}: it goes on for ever");
            let (ring, disk) = (&mut setup.ring, &mut setup.disk);
            let progress = stream.pump(ring, disk, &mut transport, Owner::of(7));
            stream.queue().check();
            let mut ready = stream.queue().next_ready();
            let is_lent = ready.any(|chunk| matches!(chunk.payload, Piece::File(_)));
            assert!(!is_lent, "seed {seed}: what was lent outlived its turn");
            drop(ready);
            match progress {
                Progress::Drained => break,
                Progress::Failed(failure) => panic!("seed {seed}: {failure:?}"),
                Progress::More => {}
                Progress::Blocked | Progress::Waiting => {
                    let mut completions = Vec::new();
                    let until = ring.now() + Duration::from_secs(10);
                    ring.wait(Some(until), &mut completions).unwrap();
                    assert!(!completions.is_empty(), "seed {seed}: nothing happens");
                    for completion in completions {
                        if completion.token == WRITABLE {
                            transport.handle_writable();
                        } else if let Some(done) = disk.handle(ring, completion) {
                            stream.handle_read(done);
                        }
                    }
                }
            }
            if setup.random.one_in(4) {
                setup.evict();
            }
        }
        assert_eq!(setup.world.stalls(), [], "seed {seed}: a sendfile would have slept");
        assert_eq!(stream.held(), 0, "seed {seed}");
        transport.shutdown(&mut setup.ring);
        let mut completions = Vec::new();
        let until = setup.ring.now() + Duration::from_secs(10);
        while setup.ring.now() < until {
            setup.ring.wait(Some(until), &mut completions).unwrap();
        }
        assert!(peer.received() == expected, "seed {seed}: other bytes");
        assert!(setup.all_buffers_are_free(), "seed {seed}");
    }
}

#[test]
fn a_stream_waits_for_its_peer_while_sent_bytes_are_not_released() {
    let mut setup = Setup::new(3);
    let (owner, window) = (Owner::of(1), Window::of(BUFFER_BYTES));
    let mut toy = Toy::new(3);
    let mut stream = Stream::new();
    let file = setup.files.iter().map(|(file, _)| file).max_by_key(|file| file.size()).unwrap();
    assert!(file.size() > window.bytes());
    stream.push_file(&Rc::clone(file), 0..file.size(), Policy { window, ..Policy::default() });
    let mut pump = |toy: &mut Toy, stream: &mut Stream| loop {
        toy.handle_writable();
        let progress = stream.pump(&mut setup.ring, &mut setup.disk, toy, owner);
        if progress == Progress::Waiting {
            assert!(stream.is_reading(), "it waits for a disk that reads nothing");
            wait(&mut setup, |_, done| stream.handle_read(done));
        } else if progress != Progress::More && !toy.is_blocked() {
            return progress;
        }
    };
    // Sent bytes fill the window, so nothing more is read.
    assert_eq!(pump(&mut toy, &mut stream), Progress::Blocked);
    assert!(stream.sent() < stream.promised() && !stream.is_reading());
    while stream.sent() < stream.promised() {
        let in_flight = stream.sent() - stream.queue().released();
        stream.queue().mark_released(in_flight);
        assert_eq!(pump(&mut toy, &mut stream), Progress::Blocked);
    }
    assert!(!stream.is_drained(), "the transport may send the last bytes again");
    let in_flight = stream.sent() - stream.queue().released();
    stream.queue().mark_released(in_flight);
    assert_eq!(pump(&mut toy, &mut stream), Progress::Drained);
    assert!(stream.is_drained());
    stream.restart();
}

#[test]
fn a_stream_holds_two_windows_of_its_transport_at_most() {
    let mut reached = 0;
    for seed in 0..SEEDS {
        let mut setup = Setup::new(seed);
        let config = DiskConfig { pipes: 0, token_base: DISK, ..DiskConfig::default() };
        setup.disk = Disk::new(config).unwrap();
        let (owner, mut toy, mut stream) = (Owner::of(1), Toy::new(seed), Stream::new());
        for _ in 0..10 {
            let (file, bytes) = &setup.files[index(setup.random.below(3))];
            let policy = Policy { caching: Caching::Never, ..Policy::default() };
            stream.push_file(file, 0..bytes.len() as u64, policy);
        }
        // The window grows and shrinks; bytes read for a larger one are still held.
        let mut window_max = BUFFER_BYTES;
        for step in 0.. {
            assert!(step < 100_000, "seed {seed}: it goes on for ever");
            toy.window = 1 + setup.random.below(800_000);
            window_max = window_max.max(toy.window);
            toy.handle_writable();
            if stream.pump(&mut setup.ring, &mut setup.disk, &mut toy, owner) == Progress::Drained {
                break;
            }
            let used = stream.held() + stream.reading();
            assert!(used <= 2 * window_max, "seed {seed}: {used} bytes, windows to {window_max}");
            reached = reached.max(used);
            toy.acknowledge(stream.queue());
            wait(&mut setup, |_, done| stream.handle_read(done));
        }
        assert_eq!(toy.wire.len() as u64, stream.promised(), "seed {seed}");
    }
    assert!(reached > 3 * BUFFER_BYTES, "windows are used: {reached}");
}

/// The bytes that the peer gets in this many seconds of the simulated clock.
fn send_for(
    setup: &mut Setup,
    transport: &mut KernelTcp,
    stream: &mut Stream,
    peer: &Peer,
    seconds: u64,
) -> u64 {
    let _ = peer.take();
    let until = setup.ring.now() + Duration::from_secs(seconds);
    while setup.ring.now() < until {
        let (ring, disk) = (&mut setup.ring, &mut setup.disk);
        let progress = stream.pump(ring, disk, transport, Owner::of(7));
        let mut completions = Vec::new();
        let until = if progress == Progress::More { ring.now() } else { until };
        ring.wait(Some(until), &mut completions).unwrap();
        for completion in completions {
            if completion.token == WRITABLE {
                transport.handle_writable();
            } else if let Some(done) = disk.handle(ring, completion) {
                stream.handle_read(done);
            }
        }
    }
    peer.take().len() as u64
}

#[test]
fn a_rate_is_kept_by_the_socket_or_by_slices() {
    for (seed, paces) in (0..4).zip([true, false].into_iter().cycle()) {
        let mut setup = Setup::new(seed);
        setup.world.configure(|config| {
            config.paces = paces;
            config.faults = Default::default();
        });
        let (socket, peer) = connect(&setup.world, &mut setup.ring);
        let mut transport = KernelTcp::new(socket, RECV, WRITABLE);
        let mut stream = Stream::new();
        for _ in 0..60 {
            stream.push(Piece::Bytes(vec![7; 1 << 20]));
        }
        for rate in [1 << 20, 5_000_000, 20_000, 1 << 20] {
            transport.set_rate(&setup.ring, NonZeroU64::new(rate));
            // The bytes that were sent ahead at the last rate.
            send_for(&mut setup, &mut transport, &mut stream, &peer, 1);
            let bytes = send_for(&mut setup, &mut transport, &mut stream, &peer, 4);
            let exact = rate * 4;
            assert!(
                bytes.abs_diff(exact) <= exact / 20,
                "seed {seed}, paces: {paces}: {bytes} instead of {exact}"
            );
        }
        transport.set_rate(&setup.ring, None);
        let bytes = send_for(&mut setup, &mut transport, &mut stream, &peer, 1);
        assert!(bytes > 10 << 20, "seed {seed}, paces: {paces}: {bytes} without a limit");
        transport.close(&mut setup.ring);
    }
}
