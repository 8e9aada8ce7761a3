//! Streams that go through a file without a name to slow peers: every byte arrives, and the file stays
//! within its limit.

use core::time::Duration;
use std::ffi::CString;
use std::io::{ErrorKind, Read as _};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd as _;
use std::sync::mpsc;
use std::thread;

use ring::sim::{Config, World};
use ring::{Choice, Completion, Event, Fd, FileKind, Op, OpenHow, Ring, Stat};
use sendfile::{
    Caching, CyclicFile, Disk, DiskConfig, KernelTcp, Owner, Policy, Progress, Stream,
    Transport as _, Window,
};

const DISK: u64 = 1 << 40;
const RECV: u64 = 1;
const WRITABLE: u64 = 2;
const FILE: u64 = 3;
const SIZE: u64 = 512 * 1024;
const POLICY: Policy = Policy { caching: Caching::Always, window: Window::of(1 << 20) };

fn value(at: u64) -> u8 {
    at.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()[0]
}

fn wait(ring: &mut Ring, at_most: Duration) -> Vec<Completion> {
    let mut completions = Vec::new();
    let until = ring.now() + at_most;
    ring.wait(Some(until), &mut completions).unwrap();
    completions
}

fn done(ring: &mut Ring, op: Op) -> std::io::Result<Event> {
    ring.submit(op, 0);
    loop {
        if let Some(one) = wait(ring, Duration::from_secs(20)).pop() {
            return one.result;
        }
    }
}

/// Opens a file without a name, as a program would.
fn open(ring: &mut Ring, dir: Fd, path: &str, flags: i32) -> (Fd, Stat) {
    let path = CString::new(path).unwrap();
    let how = OpenHow { flags, mode: 0o600, resolve: 0 };
    let opened = done(ring, Op::Open { dir: Some(dir), path, how });
    let Ok(Event::Opened(file)) = opened else { panic!("{opened:?}") };
    let Ok(Event::Stat(stat)) = done(ring, Op::Stat(file.clone())) else { panic!("its size") };
    assert_eq!((stat.kind, stat.size), (FileKind::Regular, 0));
    (file, *stat)
}

struct Flow {
    ring: Ring,
    disk: Disk,
    stream: Stream,
    transport: KernelTcp,
    file: CyclicFile,
    /// The maximum of bytes that were on the disk.
    used_max: u64,
}

impl Flow {
    fn new(ring: Ring, socket: Fd, file: CyclicFile) -> Self {
        let disk = Disk::new(DiskConfig { token_base: DISK, ..DiskConfig::default() }).unwrap();
        let transport = KernelTcp::new(socket, RECV, WRITABLE);
        Self { ring, disk, stream: Stream::new(), transport, file, used_max: 0 }
    }

    fn wait(&mut self, at_most: Duration) {
        let Self { ring, disk, stream, transport, file, .. } = self;
        for completion in wait(ring, at_most) {
            if disk.owns(completion.token) {
                if let Some(read) = disk.handle(ring, completion) {
                    stream.handle_read(read);
                }
            } else if completion.token == FILE {
                if let Some((file, range)) = file.handle(ring, completion).unwrap() {
                    stream.push_file(&file, range, POLICY);
                }
            } else if completion.token == WRITABLE {
                transport.handle_writable();
            }
        }
    }

    /// Sends `total` bytes; says when the file is full for the first time. `look` sees each step.
    fn send(&mut self, total: u64, write_max: u64, mut full: impl FnMut(), look: impl Fn(u64)) {
        let mut given = 0;
        while self.stream.sent() < total || !self.stream.is_drained() || self.file.is_busy() {
            self.file.reclaim(&mut self.ring);
            let n = self.file.room().min(total - given).min(write_max);
            if n > 0 {
                self.file.write(&mut self.ring, (given..given + n).map(value).collect());
                given += n;
            }
            let Self { ring, disk, stream, transport, .. } = self;
            let progress = stream.pump(ring, disk, transport, Owner::of(0));
            assert!(!matches!(progress, Progress::Failed(_)), "{progress:?}");
            self.used_max = self.used_max.max(self.file.used());
            look(self.file.used());
            let is_full = self.file.used() + write_max > SIZE && progress == Progress::Blocked;
            if is_full {
                full();
            }
            let goes_on = progress == Progress::More;
            self.wait(if goes_on { Duration::ZERO } else { Duration::from_millis(20) });
        }
        self.file.reclaim(&mut self.ring);
        while self.file.is_busy() {
            self.wait(Duration::from_secs(1));
        }
        assert!(self.file.used() < 4096, "only a part of a block is left");
    }
}

#[test]
fn a_slow_peer_gets_every_byte_from_a_file_that_stays_small() {
    const TOTAL: u64 = 24 << 20;
    for choice in [Choice::Uring, Choice::Epoll] {
        let mut ring = Ring::new(choice).unwrap();
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let root = ring.adopt_file(std::fs::File::open(dir.path()).unwrap().into());
        let flags =
            rustix::fs::OFlags::TMPFILE | rustix::fs::OFlags::RDWR | rustix::fs::OFlags::APPEND;
        let flags = flags.bits().cast_signed();
        let (fd, stat) = open(&mut ring, root, ".", flags);
        let blocks = fd.os().as_fd().try_clone_to_owned().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (socket, _) = listener.accept().unwrap();
        socket.set_nonblocking(true).unwrap();
        let socket = ring.adopt_socket(socket.into());
        let (go, gone) = mpsc::channel();
        let reader = thread::spawn(move || {
            // Slow at first, so that all buffers on the way are full.
            gone.recv().unwrap();
            let mut received = vec![0; usize::try_from(TOTAL).unwrap()];
            peer.read_exact(&mut received).unwrap();
            received
        });
        let mut flow = Flow::new(ring, socket, CyclicFile::new(fd, stat, SIZE, FILE));
        let full = || {
            let _ = go.send(());
        };
        flow.send(TOTAL, 64 * 1024, full, |used| {
            assert!(used <= SIZE);
            // A write or a hole in flight changes it at any time; a file system may keep some blocks of
            // its own for the file.
            let on_disk = rustix::fs::fstat(&blocks).unwrap().st_blocks * 512;
            assert!(on_disk <= i64::try_from(SIZE).unwrap() + 64 * 1024, "{on_disk}");
        });
        assert!(flow.used_max > SIZE - 64 * 1024, "{} were enough", flow.used_max);
        let received = reader.join().unwrap();
        let wrong = received.iter().zip(0..).find(|(byte, at)| **byte != value(*at));
        assert_eq!(wrong, None);
    }
}

#[test]
fn a_full_disk_is_an_error_for_the_owner() {
    for choice in [Choice::Uring, Choice::Epoll] {
        let mut ring = Ring::new(choice).unwrap();
        let full = std::fs::File::options().append(true).open("/dev/full").unwrap();
        let full = ring.adopt_file(full.into());
        let Ok(Event::Stat(stat)) = done(&mut ring, Op::Stat(full.clone())) else { panic!() };
        let mut file = CyclicFile::new(full, *stat, SIZE, FILE);
        file.write(&mut ring, vec![0; 1000]);
        assert_eq!((file.room(), file.used()), (0, 1000));
        let completion = loop {
            if let Some(one) = wait(&mut ring, Duration::from_secs(20)).pop() {
                break one;
            }
        };
        let error = file.handle(&mut ring, completion).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::StorageFull);
        assert!(!file.is_busy() && file.room() == 0, "nothing more is written");
    }
}

#[test]
fn every_byte_arrives_whatever_is_written_and_read() {
    for seed in 0..60 {
        let mut config = Config::new(seed);
        config.send_buffer = 20_000 + usize::try_from(seed * 7919 % 400_000).unwrap();
        config.faults.short_write = 0.3;
        config.faults.short_send = 0.2;
        let world = World::new(config);
        world.write_file("buffer", b"");
        let mut ring = Ring::simulated(&world);
        let root = ring.sim_root(&world);
        let flags = (rustix::fs::OFlags::RDWR | rustix::fs::OFlags::APPEND).bits().cast_signed();
        let (fd, stat) = open(&mut ring, root, "buffer", flags);
        let listener = ring.sim_listener(&world);
        let accept = ring.submit(Op::Accept(listener), 0);
        let peer = world.connect();
        let socket = loop {
            let first = wait(&mut ring, Duration::from_secs(1)).pop();
            if let Some(Ok(Event::Accepted(socket))) = first.map(|one| one.result) {
                break socket;
            }
        };
        ring.cancel(accept);
        wait(&mut ring, Duration::from_secs(1));
        peer.set_read_rate(Some(1_000_000 + seed * 1_000_000));
        let mut flow = Flow::new(ring, socket, CyclicFile::new(fd, stat, SIZE, FILE));
        flow.send(
            2_000_000,
            3000 + seed * 1003,
            || (),
            |used| assert!(used <= SIZE, "seed {seed}"),
        );
        while peer.received_bytes() < 2_000_000 {
            flow.wait(Duration::from_secs(1));
        }
        let expected: Vec<u8> = (0..2_000_000).map(value).collect();
        assert!(peer.received() == expected, "seed {seed}");
        assert!(world.stalls().is_empty(), "seed {seed}: {:?}", world.stalls());
    }
}
