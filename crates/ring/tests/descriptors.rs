//! The effects of rings on the process: descriptors are neither lost nor closed too early.
//!
//! These tests look at the whole process, so they take turns (`alone`) and are not in
//! `contract`. The simulation has no descriptors, and counts its own (the last test).

use core::net::SocketAddr;
use core::time::Duration;
use std::fs;
use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ring::sim::{Config, End, World};
use ring::{BufferPool, Caching, Choice, Completion, Event, Fd, Key, Op, OpenHow, Ring};
use rustix::net::sockopt::{set_socket_linger, tcp_nodelay};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

static TURN: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn open_descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Helper threads close descriptors too, so give them a moment.
#[track_caller]
fn assert_open(expected: usize, mut turn: impl FnMut()) {
    for _ in 0..500 {
        turn();
        if open_descriptors() == expected {
            return;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    let all: Vec<_> = fs::read_dir("/proc/self/fd")
        .unwrap()
        .filter_map(|entry| fs::read_link(entry.unwrap().path()).ok())
        .collect();
    panic!("{} descriptors, not {expected}: {all:?}", all.len());
}

const CHOICES: [Choice; 2] = [Choice::Uring, Choice::Epoll];

/// A ring and its completions that no test has taken yet.
struct Bench {
    ring: Ring,
    got: Vec<Completion>,
}

impl Bench {
    fn new(ring: Ring) -> Self {
        Self { ring, got: Vec::new() }
    }

    fn turn(&mut self) {
        let mut completions = Vec::new();
        let until = self.ring.now() + Duration::from_millis(5);
        self.ring.wait(Some(until), &mut completions).unwrap();
        self.got.append(&mut completions);
    }

    #[track_caller]
    fn next(&mut self, key: Key) -> Completion {
        for _ in 0..2000 {
            if let Some(at) = self.got.iter().position(|one| one.key == key) {
                return self.got.remove(at);
            }
            self.turn();
        }
        panic!("nothing came");
    }

    #[track_caller]
    fn accepted(&mut self, accept: Key) -> Fd {
        match self.next(accept).result.unwrap() {
            Event::Accepted(fd) => fd,
            other => panic!("{other:?}"),
        }
    }

    #[track_caller]
    fn end(&mut self, key: Key) {
        self.ring.cancel(key);
        while self.next(key).more {}
    }
}

fn listener(ring: &Ring) -> (Fd, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    (ring.adopt_socket(listener.into()), address)
}

fn temp_file(name: &str, len: usize) -> std::path::PathBuf {
    let path = std::env::temp_dir().join(format!("ring-{name}-{}", std::process::id()));
    fs::write(&path, vec![b'x'; len]).unwrap();
    path
}

#[test]
fn a_descriptor_in_use_stays_open_until_the_last_completion() {
    let _alone = alone();
    for choice in CHOICES {
        let mut bench = Bench::new(Ring::new(choice).unwrap());
        let (listener, address) = listener(&bench.ring);
        let accept = bench.ring.submit(Op::Accept(listener.clone()), 0);
        let mut peer = TcpStream::connect(address).unwrap();
        let socket = bench.accepted(accept);
        let before = open_descriptors();
        let recv = bench.ring.submit(Op::Recv(socket.clone()), 0);
        drop((socket, listener));
        bench.turn();
        assert_eq!(open_descriptors(), before, "operations hold both");
        peer.write_all(b"x").unwrap();
        assert!(matches!(bench.next(recv).result, Ok(Event::Received(_))));
        bench.end(recv);
        assert_open(before - 1, || bench.turn());
        bench.end(accept);
        assert_open(before - 2, || bench.turn());
        assert!(TcpStream::connect(address).is_err(), "nobody listens any more");
    }
}

#[test]
fn signals_and_children_leave_nothing_behind() {
    let _alone = alone();
    ring::block_signals(&[libc::SIGUSR1]).unwrap();
    for choice in CHOICES {
        let outside = open_descriptors();
        let mut bench = Bench::new(Ring::new(choice).unwrap());
        bench.turn();
        let before = open_descriptors();
        for _ in 0..10 {
            let signal = bench.ring.submit(Op::Signal(libc::SIGUSR1), 0);
            let mut sleeper = Command::new("sleep").arg("1000").spawn().unwrap();
            let waits = bench.ring.submit(Op::Child(sleeper.id()), 0);
            let ends = bench.ring.submit(Op::Child(sleeper.id()), 0);
            bench.turn();
            assert_eq!(open_descriptors(), before + 3);
            bench.end(signal);
            bench.end(waits);
            sleeper.kill().unwrap();
            assert!(matches!(bench.next(ends).result, Ok(Event::Exited(_))));
            assert!(sleeper.wait().is_err(), "it was waited for");
            assert_open(before, || bench.turn());
        }
        bench.ring.submit(Op::Signal(libc::SIGUSR1), 0);
        drop(bench);
        assert_open(outside, || {});
    }
}

#[test]
fn a_thousand_connections_leave_nothing_behind() {
    let _alone = alone();
    for choice in CHOICES {
        let outside = open_descriptors();
        let mut bench = Bench::new(Ring::new(choice).unwrap());
        let (listener, address) = listener(&bench.ring);
        let accept = bench.ring.submit(Op::Accept(listener.clone()), 0);
        bench.turn();
        let before = open_descriptors();
        for round in 0..1000 {
            let mut peer = TcpStream::connect(address).unwrap();
            let socket = bench.accepted(accept);
            let recv = bench.ring.submit(Op::Recv(socket.clone()), 0);
            peer.write_all(b"hello").unwrap();
            if round % 2 == 0 {
                drop(peer);
                while bench.next(recv).more {}
            } else {
                assert!(matches!(bench.next(recv).result, Ok(Event::Received(_))));
                bench.end(recv);
                drop(peer);
            }
        }
        assert_open(before, || bench.turn());
        drop((listener, bench));
        assert_open(outside, || {});
    }
}

#[test]
fn files_are_closed() {
    let _alone = alone();
    let path = temp_file("closed", 10);
    let name = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
    let how = OpenHow { resolve: 0, ..OpenHow::BENEATH };
    for choice in CHOICES {
        let outside = open_descriptors();
        let mut bench = Bench::new(Ring::new(choice).unwrap());
        let before = open_descriptors();
        let keys: Vec<Key> = (0..300)
            .map(|_| bench.ring.submit(Op::Open { dir: None, path: name.clone(), how }, 0))
            .collect();
        let mut files = Vec::new();
        while files.len() < keys.len() {
            bench.turn();
            for completion in bench.got.drain(..) {
                match completion.result.unwrap() {
                    Event::Opened(fd) => files.push(fd),
                    other => panic!("{other:?}"),
                }
            }
        }
        assert_eq!(open_descriptors(), before + 300);
        files.truncate(150);
        assert_open(before + 150, || bench.turn());
        // Closed by the ring in its last turn, or by its drop: none may be forgotten.
        drop(files);
        let mut completions = Vec::new();
        let now = bench.ring.now();
        bench.ring.wait(Some(now), &mut completions).unwrap();
        drop(bench);
        assert_open(outside, || {});
    }
    fs::remove_file(path).unwrap();
}

#[test]
fn a_shared_file_is_closed_by_the_last_ring() {
    let _alone = alone();
    for choice in CHOICES {
        let path = temp_file("shared", 10);
        let mut benches = [0; 2].map(|_| Bench::new(Ring::new(choice).unwrap()));
        let before = open_descriptors();
        let file = Arc::new(OwnedFd::from(fs::File::open(&path).unwrap()));
        let shared = benches.each_ref().map(|bench| bench.ring.share_file(Arc::clone(&file)));
        drop(file);
        for (bench, fd) in benches.iter_mut().zip(&shared) {
            let stat = bench.ring.submit(Op::Stat(fd.clone()), 0);
            assert!(matches!(bench.next(stat).result, Ok(Event::Stat(stat)) if stat.size == 10));
        }
        let [first, second] = shared;
        drop(first);
        benches[0].turn();
        assert_eq!(open_descriptors(), before + 1, "the other ring has it");
        drop(second);
        assert_open(before, || benches[1].turn());
        fs::remove_file(&path).unwrap();
    }
}

#[test]
fn a_ring_dropped_in_the_middle_of_everything_leaves_nothing_behind() {
    let _alone = alone();
    let path = temp_file("dropped", 1 << 20);
    let pool = BufferPool::new(65_536, 16).unwrap();
    for choice in CHOICES {
        for turns in 0..5 {
            let outside = open_descriptors();
            let mut bench = Bench::new(Ring::new(choice).unwrap());
            let (listener, address) = listener(&bench.ring);
            bench.ring.submit(Op::Accept(listener.clone()), 0);
            let peers: Vec<_> = (0..20).map(|_| TcpStream::connect(address).unwrap()).collect();
            testkit::evict(&path);
            let file: OwnedFd = fs::File::open(&path).unwrap().into();
            let file = bench.ring.adopt_file(file);
            for offset in 0..16 {
                let buf = pool.take(65_536).unwrap();
                let (file, offset) = (file.clone(), offset * 65_536);
                bench.ring.submit(Op::Read { file, offset, buf, caching: Caching::Keep }, 0);
                let dir = fs::File::open(std::env::temp_dir()).unwrap();
                let root = bench.ring.adopt_file(dir.into());
                bench.ring.submit(Op::Watch { root, path: c"".into() }, 0);
                let path = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
                let how = OpenHow { resolve: 0, ..OpenHow::BENEATH };
                bench.ring.submit(Op::Open { dir: None, path, how }, 0);
            }
            let waker = bench.ring.waker(0).unwrap();
            let mut sockets = Vec::new();
            for _ in 0..turns {
                bench.turn();
                for completion in bench.got.drain(..) {
                    if let Ok(Event::Accepted(socket)) = completion.result {
                        bench.ring.submit(Op::Recv(socket.clone()), 0);
                        bench.ring.submit(Op::Writable(socket.clone()), 0);
                        sockets.push(socket);
                    }
                }
            }
            drop(bench);
            assert_eq!(pool.available(), pool.count());
            waker.wake();
            drop((waker, sockets, listener, file, peers));
            assert_open(outside, || {});
        }
    }
    fs::remove_file(path).unwrap();
}

#[test]
fn an_accept_without_descriptors_fails_and_can_be_repeated() {
    let _alone = alone();
    let old = getrlimit(Resource::Nofile);
    for choice in CHOICES {
        let mut bench = Bench::new(Ring::new(choice).unwrap());
        let (listener, address) = listener(&bench.ring);
        let peer = TcpStream::connect(address).unwrap();
        // io_uring takes the limit of the moment of submission.
        let limit = Rlimit { current: Some(3), maximum: old.maximum };
        setrlimit(Resource::Nofile, limit).unwrap();
        let accept = bench.ring.submit(Op::Accept(listener.clone()), 0);
        let completion = bench.next(accept);
        setrlimit(Resource::Nofile, old).unwrap();
        assert!(!completion.more);
        assert_eq!(completion.result.unwrap_err().raw_os_error(), Some(libc::EMFILE));
        let accept = bench.ring.submit(Op::Accept(listener), 0);
        bench.accepted(accept);
        drop(peer);
    }
}

#[test]
fn operations_in_line_begin_although_those_before_them_failed_at_once() {
    let _alone = alone();
    let old = getrlimit(Resource::Nofile);
    for choice in CHOICES {
        let mut ring = Ring::new(choice).unwrap();
        let root = ring.adopt_file(fs::File::open(std::env::temp_dir()).unwrap().into());
        let limit = Rlimit { current: Some(3), maximum: old.maximum };
        setrlimit(Resource::Nofile, limit).unwrap();
        // More than there are slots. Without a descriptor for inotify each ends as it begins.
        let watches = 500;
        for token in 0..watches {
            ring.submit(Op::Watch { root: root.clone(), path: c"".into() }, token);
        }
        let (mut ended, mut completions) = (0, Vec::new());
        let mut waits = 0;
        while ended < watches && waits < watches {
            waits += 1;
            // A wait that slept for nothing would sleep that long.
            let until = ring.now() + Duration::from_secs(20);
            ring.wait(Some(until), &mut completions).unwrap();
            assert!(ring.now() < until, "{ended} have ended, and then nothing");
            ended += completions.drain(..).filter(|one| one.result.is_err()).count() as u64;
        }
        setrlimit(Resource::Nofile, old).unwrap();
        assert_eq!(ended, watches);
    }
}

#[test]
fn a_socket_that_lingers_is_closed_without_a_wait() {
    let _alone = alone();
    for choice in CHOICES {
        let mut bench = Bench::new(Ring::new(choice).unwrap());
        let (listener, address) = listener(&bench.ring);
        let accept = bench.ring.submit(Op::Accept(listener), 0);
        let socket = TcpStream::connect(address).unwrap();
        let peer = bench.accepted(accept);
        set_socket_linger(&socket, Some(Duration::from_secs(10))).unwrap();
        socket.set_nonblocking(true).unwrap();
        while (&socket).write(&[0; 65536]).is_ok() {}
        let before = open_descriptors();
        let socket = bench.ring.adopt_socket(socket.into());
        let began = bench.ring.now();
        drop(socket);
        bench.turn();
        assert!(bench.ring.now().since(began) < Duration::from_secs(5), "the close slept");
        // The peer goes, and the close need not wait any longer.
        drop(peer);
        assert_open(before - 2, || bench.turn());
    }
}

#[test]
fn a_closed_socket_that_lives_on_elsewhere_is_not_taken_for_the_next_one() {
    let _alone = alone();
    for choice in CHOICES {
        let mut bench = Bench::new(Ring::new(choice).unwrap());
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        // As a child has it that was forked.
        let _elsewhere = ours.try_clone().unwrap();
        let number = ours.as_raw_fd();
        let ours = bench.ring.adopt_socket(ours.into());
        let receive = bench.ring.submit(Op::Recv(ours.clone()), 0);
        bench.turn();
        bench.end(receive);
        drop(ours);
        bench.turn();
        let (next, _peer) = UnixStream::pair().unwrap();
        assert_eq!(next.as_raw_fd(), number, "the lowest number that is free");
        next.set_nonblocking(true).unwrap();
        while (&next).write(&[0; 65536]).is_ok() {}
        let next = bench.ring.adopt_socket(next.into());
        let writable = bench.ring.submit(Op::Writable(next), 0);
        bench.turn();
        theirs.write_all(b"x").unwrap();
        bench.turn();
        assert!(bench.got.is_empty(), "{:?}", bench.got);
        bench.end(writable);
    }
}

#[test]
fn a_connect_keeps_no_socket_but_a_connected_one() {
    let _alone = alone();
    let old = getrlimit(Resource::Nofile);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    rustix::net::listen(&listener, 0).unwrap();
    let hangs = listener.local_addr().unwrap();
    let connect = || TcpStream::connect_timeout(&hangs, Duration::from_millis(50)).ok();
    let fillers: Vec<_> = core::iter::from_fn(connect).collect();
    let refuses = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let open = TcpListener::bind("127.0.0.1:0").unwrap();
    let outside = open_descriptors();
    for choice in CHOICES {
        let mut bench = Bench::new(Ring::new(choice).unwrap());
        let before = open_descriptors();
        let key = bench.ring.submit(Op::Connect(hangs.into()), 0);
        bench.turn();
        assert_eq!(open_descriptors(), before + 1);
        bench.end(key);
        let key = bench.ring.submit(Op::Connect(refuses.into()), 0);
        assert!(bench.next(key).result.is_err());
        assert_open(before, || bench.turn());

        let limit = Rlimit { current: Some(3), maximum: old.maximum };
        setrlimit(Resource::Nofile, limit).unwrap();
        let key = bench.ring.submit(Op::Connect(hangs.into()), 0);
        let result = bench.next(key).result;
        setrlimit(Resource::Nofile, old).unwrap();
        assert_eq!(result.unwrap_err().raw_os_error(), Some(libc::EMFILE));

        let key = bench.ring.submit(Op::Connect(open.local_addr().unwrap().into()), 0);
        let event = bench.next(key).result.unwrap();
        let Event::Connected(socket) = &event else { panic!("{event:?}") };
        assert!(tcp_nodelay(socket.os()).unwrap(), "the last piece of a request must not wait");
        assert_eq!(open_descriptors(), before + 1);
        drop(event);
        assert_open(before, || bench.turn());

        bench.ring.submit(Op::Connect(hangs.into()), 0);
        bench.turn();
        drop(bench);
        assert_open(outside, || {});
    }
    drop(fillers);
}

#[test]
fn the_simulation_counts_its_own() {
    let _alone = alone();
    let world = World::new(Config::new(7));
    world.configure(|config| config.descriptors = 6);
    let mut bench = Bench::new(Ring::simulated(&world));
    let listener = bench.ring.sim_listener(&world);
    let accept = bench.ring.submit(Op::Accept(listener.clone()), 0);
    let peers = [world.connect(), world.connect(), world.connect()];
    let sockets = [bench.accepted(accept), bench.accepted(accept)];
    let error = bench.next(accept).result.unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EMFILE), "0 to 2, the listener, and two");
    let address = SocketAddr::from(([192, 0, 2, 1], 80));
    let far = world.listen(address);
    let connect = bench.ring.submit(Op::Connect(address.into()), 0);
    let error = bench.next(connect).result.unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EMFILE));
    let peer = far.accept().expect("the peer was asked");
    drop(sockets);
    bench.turn();
    assert_eq!(peer.end(), Some(End::Reset));
    let connect = bench.ring.submit(Op::Connect(address.into()), 0);
    assert!(matches!(bench.next(connect).result, Ok(Event::Connected(_))));
    bench.turn();
    let accept = bench.ring.submit(Op::Accept(listener.clone()), 0);
    drop(bench.accepted(accept));
    bench.end(accept);
    drop(listener);
    bench.turn();
    assert_eq!(world.open_descriptors(), 0);
    drop(peers);
}
