//! The end of a stream whose call fails, on the simulation: only the errors of a peer that has gone
//! are taken for one.

use core::time::Duration;
use std::rc::Rc;

use ring::sim::{Config, Peer, World};
use ring::{Event, Op, OpenHow, Ring};
use sendfile::{
    Disk, DiskConfig, Failure, File, KernelTcp, Owner, Piece, Policy, Progress, Stream,
    Transport as _, Window,
};

const DISK: u64 = 1 << 40;
const RECV: u64 = 1;
const WRITABLE: u64 = 2;
const OWNER: Owner = Owner::of(7);
const EPIPE: i32 = 32;
const EIO: i32 = 5;
const ENOMEM: i32 = 12;
const EINVAL: i32 = 22;
const EOVERFLOW: i32 = 75;
const EOPNOTSUPP: i32 = 95;
const EBADF: i32 = 9;
const ECANCELED: i32 = 125;

struct Setup {
    world: World,
    ring: Ring,
    disk: Disk,
    transport: KernelTcp,
    peer: Peer,
    file: Rc<File>,
    stream: Stream,
}

fn bytes() -> Vec<u8> {
    (0..1_000_000).map(|at| u8::try_from(at * 31 % 251).unwrap()).collect()
}

fn next(ring: &mut Ring) -> Event {
    let mut completions = Vec::new();
    while completions.is_empty() {
        ring.wait(None, &mut completions).unwrap();
    }
    completions.remove(0).result.unwrap()
}

impl Setup {
    fn new(seed: u64) -> Self {
        let world = World::new(Config::new(seed));
        world.write_file("file", &bytes());
        let mut ring = Ring::simulated(&world);
        let listener = ring.sim_listener(&world);
        let accept = ring.submit(Op::Accept(listener), 0);
        let peer = world.connect();
        let Event::Accepted(socket) = next(&mut ring) else { panic!("a connection") };
        ring.cancel(accept);
        let dir = Some(ring.sim_root(&world));
        let mut completions = Vec::new();
        ring.wait(Some(ring.now() + Duration::from_secs(1)), &mut completions).unwrap();
        ring.submit(Op::Open { dir, path: c"file".into(), how: OpenHow::BENEATH }, 0);
        let Event::Opened(fd) = next(&mut ring) else { panic!("a file") };
        ring.submit(Op::Stat(fd.clone()), 0);
        let Event::Stat(stat) = next(&mut ring) else { panic!("its size") };
        let config = DiskConfig { pipes: 0, token_base: DISK, ..DiskConfig::default() };
        let disk = Disk::new(config).unwrap();
        let file = Rc::new(File::new(fd, &stat));
        let mut stream = Stream::new();
        let policy = Policy { window: Window::of(u64::MAX), ..Policy::default() };
        stream.push_file(&file, 0..file.size(), policy);
        let transport = KernelTcp::new(socket, RECV, WRITABLE);
        Self { world, ring, disk, transport, peer, file, stream }
    }

    fn pump(&mut self) -> Progress {
        let Self { ring, disk, transport, stream, .. } = self;
        stream.pump(ring, disk, transport, OWNER)
    }

    /// Send everything; how it ended.
    fn finish(&mut self) -> Progress {
        loop {
            match self.pump() {
                Progress::Blocked | Progress::Waiting => self.wait(),
                Progress::More => {}
                end => return end,
            }
        }
    }

    fn wait(&mut self) {
        let mut completions = Vec::new();
        self.ring.wait(None, &mut completions).unwrap();
        for completion in completions {
            if completion.token == WRITABLE {
                self.transport.handle_writable();
            } else if let Some(done) = self.disk.handle(&mut self.ring, completion) {
                self.stream.handle_read(done);
            }
        }
    }
}

#[test]
fn each_errno_of_sendfile_is_reported_as_what_it_is() {
    for (errno, failure) in [
        (EPIPE, Failure::Gone),
        (EIO, Failure::Unreadable(EIO)),
        (EOVERFLOW, Failure::Unreadable(EOVERFLOW)),
        (ENOMEM, Failure::NoMemory(ENOMEM)),
        (EBADF, Failure::Unexpected(EBADF)),
    ] {
        let mut setup = Setup::new(7);
        setup.world.configure(|config| config.sendfile_errno = Some(errno));
        assert_eq!(setup.finish(), Progress::Failed(failure));
        assert_eq!(setup.stream.sent(), 0);
    }
}

/// The memory of reads after a failure is free at once, and does not count as memory that can be
/// given back.
#[test]
fn what_a_failure_drops_is_not_held() {
    for seed in 0..40 {
        let mut setup = Setup::new(seed);
        setup.world.evict("file");
        setup.world.configure(|config| {
            config.send_buffer = 1000;
            config.faults.read_error = 0.2;
        });
        setup.peer.stop_reading();
        loop {
            let progress = setup.pump();
            if let Progress::Failed(failure) = progress {
                assert_eq!(failure, Failure::Unreadable(EIO));
                break;
            }
            if !setup.stream.is_reading() && progress == Progress::Blocked {
                break;
            }
            if progress != Progress::More {
                setup.wait();
            }
        }
        while setup.stream.is_reading() {
            setup.wait();
        }
        setup.stream.reclaim(setup.ring.now());
        assert_eq!(setup.stream.held(), 0, "seed {seed}");
    }
}

#[test]
fn a_file_that_sendfile_does_not_take_is_read() {
    for errno in [EINVAL, EOPNOTSUPP] {
        let mut setup = Setup::new(7);
        setup.world.configure(|config| config.sendfile_errno = Some(errno));
        assert_eq!(setup.finish(), Progress::Drained);
        setup.transport.shutdown(&mut setup.ring);
        let mut completions = Vec::new();
        let until = setup.ring.now() + Duration::from_secs(10);
        while setup.ring.now() < until {
            setup.ring.wait(Some(until), &mut completions).unwrap();
        }
        assert!(setup.peer.received() == bytes(), "other bytes than the file's");
        // The call is not tried again for each block.
        assert_eq!(setup.file.resident(&setup.ring, 0, 1, setup.ring.now(), true), 0);
    }
}

/// A gap is never filled after an abort. If there is none, the promised bytes leave first.
#[test]
fn an_aborted_stream_fails_behind_what_was_promised() {
    let mut setup = Setup::new(7);
    setup.stream.abort(Failure::Gone);
    setup.stream.push(Piece::Static(b"what follows"));
    assert_eq!(setup.stream.promised(), 1_000_000, "nothing can follow");
    assert_eq!(setup.finish(), Progress::Failed(Failure::Gone));
    assert_eq!(setup.stream.sent(), 0);

    let mut setup = Setup::new(7);
    setup.stream = Stream::new();
    setup.stream.push(Piece::Static(b"head"));
    setup.stream.abort(Failure::Unexpected(1));
    assert!(!setup.stream.is_drained());
    assert_eq!(setup.finish(), Progress::Failed(Failure::Unexpected(1)));
    assert_eq!(setup.stream.sent(), 4);
}

#[test]
fn reads_that_end_behind_an_abort_hold_nothing() {
    for seed in 0..20 {
        let mut setup = Setup::new(seed);
        setup.world.evict("file");
        assert_eq!(setup.pump(), Progress::Waiting);
        assert!(setup.stream.is_reading());
        setup.stream.abort(Failure::Gone);
        while setup.stream.is_reading() {
            setup.wait();
            setup.stream.queue().check();
        }
        assert_eq!((setup.stream.held(), setup.stream.sent()), (0, 0), "seed {seed}");
        assert_eq!(setup.finish(), Progress::Failed(Failure::Gone));
    }
}

#[test]
fn receiving_stops_and_begins_as_often_as_it_is_told() {
    let mut setup = Setup::new(7);
    let mut received: Vec<u8> = Vec::new();
    for round in 0..3 {
        // Twice is once.
        setup.transport.set_receiving(&mut setup.ring, true);
        setup.transport.set_receiving(&mut setup.ring, true);
        setup.peer.send(&[round]);
        while received.len() <= usize::from(round) {
            let Event::Received(bytes) = next(&mut setup.ring) else { panic!("bytes") };
            received.extend(&*bytes);
        }
        setup.transport.set_receiving(&mut setup.ring, false);
        setup.transport.set_receiving(&mut setup.ring, false);
        let mut completions = Vec::new();
        while completions.is_empty() {
            setup.ring.wait(None, &mut completions).unwrap();
        }
        let error = completions.remove(0).result.unwrap_err();
        assert_eq!((error.raw_os_error(), completions.len()), (Some(ECANCELED), 0));
        setup.transport.handle_receive_stopped();
    }
    assert_eq!(received, [0, 1, 2]);
    setup.transport.handle_end();
    setup.transport.set_receiving(&mut setup.ring, true);
    assert!(setup.transport.has_ended());
    assert_eq!(setup.ring.in_flight(), 0, "there is nothing more to receive");
}
