//! Files and cyclic buffers that are overwritten while the peer has not received the bytes sent from them. A write to a
//! file changes what the peer gets. A hole in a file does not, and a cyclic buffer is written to after the copy.

use core::time::Duration;
use std::io::Read as _;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::FileExt as _;
use std::sync::mpsc;
use std::thread;

use ring::sim::{Config, World};
use ring::{Choice, Completion, Event, Fd, Op, Ring};
use sendfile::{
    CyclicPool, Disk, DiskConfig, KernelTcp, Owner, Piece, Progress, Stream, Transport as _,
};

const RECV: u64 = 1;
const WRITABLE: u64 = 2;
const SEEDS: u64 = 60;

/// The byte at a position of a stream. The bytes of two passes through a buffer differ.
fn value(at: u64) -> u8 {
    at.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()[0]
}

fn bytes(range: core::ops::Range<u64>) -> Vec<u8> {
    range.map(value).collect()
}

/// A connection over loopback.
fn pair(ring: &Ring) -> (Fd, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (socket, _) = listener.accept().unwrap();
    socket.set_nonblocking(true).unwrap();
    (ring.adopt_socket(socket.into()), peer)
}

fn on_both_drivers(test: impl Fn(Ring)) {
    for choice in [Choice::Uring, Choice::Epoll] {
        test(Ring::new(choice).unwrap());
    }
}

fn receive(peer: &mut TcpStream, count: usize) -> Vec<u8> {
    let mut received = vec![0; count];
    peer.read_exact(&mut received).unwrap();
    received
}

#[test]
fn a_file_that_is_written_after_sendfile_changes_what_the_peer_gets() {
    on_both_drivers(|ring| {
        const BYTES: usize = 16 * 1024;
        let (socket, mut peer) = pair(&ring);
        let file = tempfile::tempfile().unwrap();
        let sent = bytes(0..BYTES as u64);
        file.write_all_at(&sent, 0).unwrap();
        let source = ring.adopt_file(file.try_clone().unwrap().into());
        assert_eq!(ring.sendfile(&socket, &source, 0, BYTES).unwrap(), BYTES);
        file.write_all_at(&[0; BYTES], 0).unwrap();
        let received = receive(&mut peer, BYTES);
        assert_eq!(ring.queued(&socket), 0, "the peer has acknowledged all");
        assert_ne!(received, sent, "the receiver shares the pages of the file");
    });
}

#[test]
fn a_hole_in_a_file_does_not_change_what_the_peer_gets() {
    on_both_drivers(|mut ring| {
        const BYTES: usize = 16 * 1024;
        let (socket, mut peer) = pair(&ring);
        let file = tempfile::tempfile().unwrap();
        let sent = bytes(0..BYTES as u64);
        file.write_all_at(&sent, 0).unwrap();
        let source = ring.adopt_file(file.try_clone().unwrap().into());
        assert_eq!(ring.sendfile(&socket, &source, 0, BYTES).unwrap(), BYTES);
        ring.submit(Op::Punch { file: source, offset: 0, len: BYTES as u64 }, 0);
        let mut came = Vec::new();
        while came.is_empty() {
            came = wait(&mut ring, Duration::from_secs(20));
        }
        assert!(matches!(came[0].result, Ok(Event::Punched)));
        let mut now = [1; BYTES];
        file.read_exact_at(&mut now, 0).unwrap();
        assert_eq!(now, [0; BYTES]);
        file.write_all_at(&[2; BYTES], 0).unwrap();
        assert_eq!(receive(&mut peer, BYTES), sent, "its pages have left the file");
    });
}

fn wait(ring: &mut Ring, at_most: Duration) -> Vec<Completion> {
    let mut completions = Vec::new();
    let until = ring.now() + at_most;
    ring.wait(Some(until), &mut completions).unwrap();
    completions
}

/// A stream that goes through a cyclic buffer to a peer.
struct Flow {
    ring: Ring,
    disk: Disk,
    stream: Stream,
    transport: KernelTcp,
}

impl Flow {
    fn new(ring: Ring, socket: Fd) -> Self {
        let transport = KernelTcp::new(socket, RECV, WRITABLE);
        let disk = Disk::new(DiskConfig { token_base: 1 << 40, ..DiskConfig::default() }).unwrap();
        Self { ring, disk, stream: Stream::new(), transport }
    }

    fn pump(&mut self) -> Progress {
        let Self { ring, disk, stream, transport } = self;
        let progress = stream.pump(ring, disk, transport, Owner::of(0));
        let queue = stream.queue();
        queue.check();
        assert_eq!(queue.sent(), queue.released(), "a copy is released at once");
        progress
    }

    fn wait(&mut self, at_most: Duration) {
        for completion in wait(&mut self.ring, at_most) {
            match (completion.token, completion.result) {
                (WRITABLE, _) => self.transport.handle_writable(),
                (_, Err(error)) => assert_eq!(error.raw_os_error(), Some(125), "cancelled"),
                other => panic!("{other:?}"),
            }
        }
    }

    /// Sends `total` bytes through a buffer of `size`; calls `blocked` when it is blocked for the
    /// first time.
    fn send(&mut self, total: u64, size: usize, receive_max: usize, mut blocked: impl FnMut()) {
        let pool = CyclicPool::new(size as u64, 0);
        let mut buffer = pool.take(size).unwrap();
        let mut filled = 0;
        loop {
            while filled < total {
                let left = usize::try_from(total - filled).unwrap();
                let room = buffer.room();
                let n = room.len().min(receive_max).min(left);
                if n == 0 {
                    break;
                }
                for (at, byte) in (filled..).zip(&mut room[..n]) {
                    *byte = value(at);
                }
                filled += n as u64;
                buffer.received(n);
                self.stream.push(Piece::Cyclic(buffer.take(n)));
                buffer.check();
            }
            let progress = self.pump();
            match progress {
                Progress::Drained if filled == total => break,
                Progress::Drained | Progress::More => self.wait(Duration::ZERO),
                Progress::Blocked => {
                    blocked();
                    self.wait(Duration::from_secs(20));
                }
                Progress::Waiting | Progress::Failed(_) => panic!("{progress:?}"),
            }
        }
        assert_eq!(buffer.free(), size as u64);
        assert!(pool.mapped() <= size as u64);
    }
}

#[test]
fn a_cyclic_buffer_is_written_again_only_when_the_kernel_has_copied_it() {
    const TOTAL: u64 = 24 << 20;
    on_both_drivers(|ring| {
        let (socket, mut peer) = pair(&ring);
        let (go, gone) = mpsc::channel();
        let reader = thread::spawn(move || {
            // Slow at first, so that all buffers on the way are full.
            gone.recv().unwrap();
            receive(&mut peer, usize::try_from(TOTAL).unwrap())
        });
        let mut flow = Flow::new(ring, socket);
        flow.send(TOTAL, 256 * 1024, 64 * 1024, || {
            let _ = go.send(());
        });
        let received = reader.join().unwrap();
        let wrong = received.iter().zip(0..).find(|(byte, at)| **byte != value(*at));
        assert_eq!(wrong, None);
    });
}

#[test]
fn a_cyclic_buffer_goes_on_whatever_the_peer_does() {
    for seed in 0..SEEDS {
        let mut config = Config::new(seed);
        config.send_buffer = 20_000 + usize::try_from(seed * 7919 % 400_000).unwrap();
        config.faults.short_send = 0.2;
        let world = World::new(config);
        let mut ring = Ring::simulated(&world);
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
        let mut flow = Flow::new(ring, socket);
        flow.send(3_000_000, 200_000, 2000 + usize::try_from(seed * 1003).unwrap(), || ());
        while peer.received_bytes() < 3_000_000 {
            flow.wait(Duration::from_secs(1));
        }
        assert_eq!(peer.received(), bytes(0..3_000_000), "seed {seed}");
    }
}
