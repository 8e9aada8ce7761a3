//! A ring, and a world around it that tests act on in the same way with every driver.

use core::net::SocketAddr;
use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;
use std::collections::VecDeque;
use std::fs;
use std::io::{self, ErrorKind, IoSlice, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::os::unix::process::ExitStatusExt as _;
use std::panic::catch_unwind;
use std::path::PathBuf;
use std::process::{self, Command, ExitStatus, Stdio};

use ring::sim::{self, World};
use ring::{
    BufferPool, Choice, Completion, DriverKind, Event, Fd, Key, Op, OpenHow, RecvBuf, Ring,
};

/// Give each behaviour a test on the io_uring and the epoll driver, which runs it [`once`] or as another function does.
macro_rules! on_real_drivers {
    ($run:ident: $($name:ident),* $(,)?) => {
        mod io_uring {
            $(#[test]
            fn $name() {
                $crate::contract::stage::$run(ring::DriverKind::Uring, super::$name);
            })*
        }
        mod epoll {
            $(#[test]
            fn $name() {
                $crate::contract::stage::$run(ring::DriverKind::Epoll, super::$name);
            })*
        }
    };
    ($($name:ident),* $(,)?) => {
        on_real_drivers!(once: $($name),*);
    };
}

/// Give each behaviour a test on the simulation, with many seeds.
macro_rules! on_simulation {
    ($($name:ident),* $(,)?) => {
        mod simulation {
            $(#[test]
            fn $name() {
                $crate::contract::stage::for_seeds(super::$name);
            })*
        }
    };
}

macro_rules! on_every_driver {
    ($run:ident: $($name:ident),* $(,)?) => {
        on_real_drivers!($run: $($name),*);
        on_simulation!($($name),*);
    };
    ($($name:ident),* $(,)?) => {
        on_every_driver!(once: $($name),*);
    };
}

/// Long enough for a loaded machine; a test that waits longer has failed.
const PATIENCE: Duration = Duration::from_secs(20);
/// The time without an event after which no event is expected any more.
const QUIET: Duration = Duration::from_millis(60);
/// Runs of each behaviour on the simulation.
const SEEDS: u64 = 40;

pub(crate) fn for_seeds(behaviour: fn(&mut Stage)) {
    for seed in 0..SEEDS {
        let shown = Seed(seed);
        behaviour(&mut Stage::simulated(seed));
        drop(shown);
    }
}

pub(crate) fn once(driver: DriverKind, behaviour: fn(&mut Stage)) {
    behaviour(&mut Stage::new(driver));
}

/// Tries of a behaviour that says which pages are in memory.
const TRIES: usize = 3;

/// The kernel may reclaim any page at any time, and does so where DAMON searches for cold pages.
pub(crate) fn until_pages_stay(driver: DriverKind, behaviour: fn(&mut Stage)) {
    let is_met = |_| catch_unwind(|| once(driver, behaviour)).is_ok();
    assert!((0..TRIES).any(is_met), "failed {TRIES} times");
}

/// Says which seed failed.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("failed with simulation seed {}", self.0);
        }
    }
}

pub(crate) struct Stage {
    pub(crate) ring: Ring,
    pub(crate) pool: BufferPool,
    world: Around,
    /// Completions taken from the ring and not yet by the test.
    got: VecDeque<Completion>,
    batch: Vec<Completion>,
}

enum Around {
    Os(Directory),
    Sim(World),
}

/// A directory that goes when the test ends.
struct Directory(PathBuf);

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The address that peers connect to.
#[derive(Clone, Copy)]
pub(crate) enum Address {
    Os(SocketAddr),
    /// The listener's number.
    Sim(i32),
}

/// The kind of address that a ring connects to.
#[derive(Clone, Copy)]
pub(crate) enum Family {
    Ipv4,
    Ipv6,
    Unix,
}

/// A peer that listens.
pub(crate) enum FarListener {
    Tcp(TcpListener),
    Unix(UnixListener),
    Sim(sim::PeerListener),
}

/// A child process.
pub(crate) enum Child {
    Os(process::Child),
    Sim(World, u32),
}

/// The other end of a connection.
pub(crate) enum Peer {
    Os(Option<TcpStream>),
    Sim(sim::Peer),
}

impl Stage {
    pub(crate) fn new(kind: DriverKind) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("ring-contract-{}-{number}", process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        let choice = if kind == DriverKind::Uring { Choice::Uring } else { Choice::Epoll };
        let ring = Ring::new(choice).unwrap();
        assert_eq!(ring.kind(), kind);
        Self::with(ring, Around::Os(Directory(path)))
    }

    pub(crate) fn simulated(seed: u64) -> Self {
        let world = World::new(sim::Config::new(seed));
        Self::with(Ring::simulated(&world), Around::Sim(world))
    }

    fn with(ring: Ring, world: Around) -> Self {
        let pool = BufferPool::new(64 * 1024, 1024).unwrap();
        Self { ring, pool, world, got: VecDeque::new(), batch: Vec::new() }
    }

    fn turn(&mut self, at_most: Duration) {
        let until = self.ring.now() + at_most;
        self.ring.wait(Some(until), &mut self.batch).unwrap();
        self.got.extend(self.batch.drain(..));
    }

    /// The next completion of `key`.
    #[track_caller]
    pub(crate) fn next(&mut self, key: Key) -> Completion {
        let end = self.ring.now() + PATIENCE;
        loop {
            if let Some(at) = self.got.iter().position(|one| one.key == key) {
                return self.got.remove(at).unwrap();
            }
            assert!(self.ring.now() < end, "no completion of {key:?} but {}", self.got.len());
            self.turn(PATIENCE);
        }
    }

    /// The next event of `key`.
    #[track_caller]
    pub(crate) fn event(&mut self, key: Key) -> Event {
        self.next(key).result.unwrap()
    }

    /// The error that `key` ends with.
    #[track_caller]
    pub(crate) fn error(&mut self, key: Key) -> io::Error {
        let completion = self.next(key);
        assert!(!completion.more, "an error is the last completion");
        completion.result.expect_err("an error")
    }

    /// Submit, and wait for the only completion.
    #[track_caller]
    pub(crate) fn done(&mut self, op: Op) -> io::Result<Event> {
        let key = self.ring.submit(op, 0);
        let completion = self.next(key);
        assert!(!completion.more);
        completion.result
    }

    /// All completions until none comes for some time. While a helper sets up a watch, quiet alone is no end: a file
    /// that takes the name of another is reported for the links of the old one, and again after the look.
    pub(crate) fn rest(&mut self) -> Vec<Completion> {
        let mut end = self.ring.now() + QUIET;
        while self.ring.now() < end || self.ring.watches_settling() > 0 {
            let before = self.got.len();
            self.turn(end.since(self.ring.now()).max(QUIET));
            if self.got.len() > before {
                end = self.ring.now() + QUIET;
            }
        }
        self.got.drain(..).collect()
    }

    /// Let the others act for a moment: what completes is kept for later.
    pub(crate) fn pause(&mut self) {
        let end = self.ring.now() + QUIET;
        while self.ring.now() < end {
            self.turn(end.since(self.ring.now()));
        }
    }

    /// The completions that come by just looking, or after a moment.
    pub(crate) fn rest_now(&mut self) -> Vec<Completion> {
        self.turn(Duration::from_millis(2));
        self.got.drain(..).collect()
    }

    /// The next completions, of any kind.
    #[track_caller]
    pub(crate) fn some(&mut self) -> Vec<Completion> {
        let end = self.ring.now() + PATIENCE;
        while self.got.is_empty() {
            assert!(self.ring.now() < end, "nothing came");
            self.turn(PATIENCE);
        }
        self.got.drain(..).collect()
    }

    /// Drop the ring with all that is in flight, and make another of the same kind.
    pub(crate) fn replace_ring(&mut self) {
        self.got.clear();
        self.ring = match &self.world {
            Around::Sim(world) => Ring::simulated(world),
            Around::Os(_) if self.ring.kind() == DriverKind::Uring => {
                Ring::new(Choice::Uring).unwrap()
            }
            Around::Os(_) => Ring::new(Choice::Epoll).unwrap(),
        };
    }

    // Signals

    /// Block a signal in this thread.
    pub(crate) fn block_signal(&self, signal: i32) {
        if let Around::Os(_) = self.world {
            ring::block_signals(&[signal]).unwrap();
        }
    }

    /// Send a signal to this thread, of which the simulation has one.
    pub(crate) fn signal(&self, signal: i32) {
        match &self.world {
            Around::Os(_) => signal_hook::low_level::raise(signal).unwrap(),
            Around::Sim(world) => world.signal(signal, Some(process::id())),
        }
    }

    // Children

    /// A child that lives until the test ends it.
    pub(crate) fn child(&self) -> Child {
        match &self.world {
            Around::Os(_) => {
                let mut shell = Command::new("sh");
                shell.arg("-c").arg("read code && exit $code").stdin(Stdio::piped());
                Child::Os(shell.spawn().unwrap())
            }
            Around::Sim(world) => Child::Sim(world.clone(), world.start_child()),
        }
    }

    // Sockets

    pub(crate) fn listener(&mut self) -> (Fd, Address) {
        match &self.world {
            Around::Os(_) => {
                let listener = TcpListener::bind("127.0.0.1:0").unwrap();
                listener.set_nonblocking(true).unwrap();
                let address = listener.local_addr().unwrap();
                // A second listen(2) makes the backlog longer.
                rustix::net::listen(&listener, 4096).unwrap();
                (self.ring.adopt_socket(listener.into()), Address::Os(address))
            }
            Around::Sim(world) => {
                let listener = self.ring.sim_listener(world);
                let address = Address::Sim(listener.raw());
                (listener, address)
            }
        }
    }

    pub(crate) fn connect(&self, address: Address) -> Peer {
        match (&self.world, address) {
            (_, Address::Os(address)) => Peer::Os(Some(TcpStream::connect(address).unwrap())),
            (Around::Sim(world), Address::Sim(to)) => Peer::Sim(world.connect_to(to)),
            (Around::Os(_), Address::Sim(_)) => unreachable!("an address of another stage"),
        }
    }

    /// A peer that listens, and where.
    pub(crate) fn far_listener(&mut self, family: Family) -> (FarListener, ring::Address) {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let directory = match &self.world {
            Around::Os(directory) => &directory.0,
            Around::Sim(world) => {
                let address = match family {
                    Family::Ipv4 | Family::Ipv6 => {
                        let port = u16::try_from(number % 60_000).unwrap();
                        SocketAddr::from(([192, 0, 2, 1], port)).into()
                    }
                    Family::Unix => ring::Address::unix(format!("/run/{number}")).unwrap(),
                };
                return (FarListener::Sim(world.listen(address.clone())), address);
            }
        };
        let host = match family {
            Family::Ipv4 => "127.0.0.1:0",
            Family::Ipv6 => "[::1]:0",
            Family::Unix => {
                let path = directory.join(format!("socket-{number}"));
                let listener = UnixListener::bind(&path).unwrap();
                return (FarListener::Unix(listener), ring::Address::unix(path).unwrap());
            }
        };
        let listener = TcpListener::bind(host).unwrap();
        let address = listener.local_addr().unwrap();
        (FarListener::Tcp(listener), address.into())
    }

    #[track_caller]
    pub(crate) fn accepted(&mut self, accept: Key) -> Fd {
        match self.event(accept) {
            Event::Accepted(fd) => fd,
            other => panic!("{other:?}"),
        }
    }

    /// A connection: the ring's end and the peer.
    #[track_caller]
    pub(crate) fn pair(&mut self) -> (Fd, Peer) {
        let (listener, address) = self.listener();
        let accept = self.ring.submit(Op::Accept(listener), 0);
        let peer = self.connect(address);
        let socket = self.accepted(accept);
        self.ring.cancel(accept);
        while self.next(accept).more {}
        (socket, peer)
    }

    #[track_caller]
    pub(crate) fn received(&mut self, recv: Key) -> RecvBuf {
        match self.event(recv) {
            Event::Received(buf) => buf,
            other => panic!("{other:?}"),
        }
    }

    /// This many bytes, in any pieces.
    #[track_caller]
    pub(crate) fn received_bytes(&mut self, recv: Key, count: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        while bytes.len() < count {
            bytes.extend_from_slice(&self.received(recv));
        }
        bytes
    }

    #[track_caller]
    pub(crate) fn eof(&mut self, recv: Key) {
        let completion = self.next(recv);
        assert!(matches!(completion.result, Ok(Event::Eof)), "{completion:?}");
        assert!(!completion.more);
    }

    /// Send until the socket is full; how many bytes it took.
    #[track_caller]
    pub(crate) fn fill(&mut self, socket: &Fd) -> usize {
        let bytes = [7; 16 * 1024];
        let mut total = 0;
        loop {
            match self.ring.send(socket, &[IoSlice::new(&bytes)], false) {
                Ok(count) => total += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return total,
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// The bytes that the peer gets, once it has `count` of them.
    #[track_caller]
    pub(crate) fn peer_gets(&mut self, peer: &mut Peer, count: usize) -> Vec<u8> {
        let end = self.ring.now() + PATIENCE;
        let mut bytes = Vec::new();
        while bytes.len() < count {
            assert!(self.ring.now() < end, "{} of {count} bytes", bytes.len());
            bytes.extend(peer.take());
            self.turn(Duration::from_millis(1));
        }
        bytes
    }

    /// All bytes that these receives bring until their ends. No piece is kept meanwhile, because kept pieces keep the
    /// ring's buffers.
    #[track_caller]
    pub(crate) fn gather(&mut self, receives: &[Key]) -> Vec<Vec<u8>> {
        let mut streams = vec![Vec::new(); receives.len()];
        let mut left = receives.len();
        while left > 0 {
            for completion in self.some() {
                let Some(at) = receives.iter().position(|key| *key == completion.key) else {
                    continue;
                };
                match completion.result.unwrap() {
                    Event::Received(buf) => streams[at].extend_from_slice(&buf),
                    Event::Eof => left -= 1,
                    other => panic!("{other:?}"),
                }
            }
        }
        streams
    }

    // Files

    /// The directory that the files below are in.
    pub(crate) fn root(&mut self) -> Fd {
        match &self.world {
            Around::Os(directory) => {
                let file = fs::File::open(&directory.0).unwrap();
                self.ring.adopt_file(OwnedFd::from(file))
            }
            Around::Sim(world) => self.ring.sim_root(world),
        }
    }

    /// The absolute path of an entry of the directory.
    pub(crate) fn absolute(&self, path: &str) -> String {
        match &self.world {
            Around::Os(directory) => {
                let root = directory.0.canonicalize().unwrap();
                root.join(path).into_os_string().into_string().unwrap()
            }
            Around::Sim(_) => format!("/{path}"),
        }
    }

    pub(crate) fn write_file(&self, path: &str, bytes: &[u8]) {
        match &self.world {
            Around::Os(directory) => fs::write(directory.0.join(path), bytes).unwrap(),
            Around::Sim(world) => world.write_file(path, bytes),
        }
    }

    /// Write at the end, without any event of a new file.
    pub(crate) fn append(&self, path: &str, bytes: &[u8]) {
        match &self.world {
            Around::Os(directory) => {
                let mut file = fs::OpenOptions::new().append(true).open(directory.0.join(path));
                file.as_mut().unwrap().write_all(bytes).unwrap();
            }
            Around::Sim(world) => world.append(path, bytes),
        }
    }

    /// Change when a file was modified.
    pub(crate) fn touch(&self, path: &str) {
        match &self.world {
            Around::Os(directory) => {
                let file = fs::File::open(directory.0.join(path)).unwrap();
                file.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
            }
            Around::Sim(world) => world.set_mtime(path, self.ring.unix_time() + 1),
        }
    }

    /// Another name of a file.
    pub(crate) fn link(&self, path: &str, other: &str) {
        match &self.world {
            Around::Os(directory) => {
                fs::hard_link(directory.0.join(path), directory.0.join(other)).unwrap();
            }
            Around::Sim(_) => unreachable!("the simulation has no hard links"),
        }
    }

    pub(crate) fn make_dir(&self, path: &str) {
        match &self.world {
            Around::Os(directory) => fs::create_dir(directory.0.join(path)).unwrap(),
            Around::Sim(world) => world.make_dir(path),
        }
    }

    pub(crate) fn symlink(&self, target: &str, path: &str) {
        match &self.world {
            Around::Os(directory) => {
                std::os::unix::fs::symlink(target, directory.0.join(path)).unwrap();
            }
            Around::Sim(world) => world.symlink(target, path),
        }
    }

    pub(crate) fn rename(&self, from: &str, to: &str) {
        match &self.world {
            Around::Os(directory) => {
                fs::rename(directory.0.join(from), directory.0.join(to)).unwrap();
            }
            Around::Sim(world) => world.rename(from, to),
        }
    }

    pub(crate) fn remove_file(&self, path: &str) {
        match &self.world {
            Around::Os(directory) => fs::remove_file(directory.0.join(path)).unwrap(),
            Around::Sim(world) => world.remove(path),
        }
    }

    pub(crate) fn remove_dir(&self, path: &str) {
        match &self.world {
            Around::Os(directory) => fs::remove_dir(directory.0.join(path)).unwrap(),
            Around::Sim(world) => world.remove(path),
        }
    }

    /// Drop a file from the page cache.
    pub(crate) fn evict(&self, path: &str) {
        match &self.world {
            Around::Os(directory) => testkit::evict(directory.0.join(path)),
            Around::Sim(world) => world.evict(path),
        }
    }

    pub(crate) fn open_with(&mut self, path: &str, how: OpenHow) -> io::Result<Fd> {
        let dir = Some(self.root());
        let path = std::ffi::CString::new(path).unwrap();
        match self.done(Op::Open { dir, path, how })? {
            Event::Opened(fd) => Ok(fd),
            other => panic!("{other:?}"),
        }
    }

    #[track_caller]
    pub(crate) fn open(&mut self, path: &str) -> Fd {
        self.open_with(path, OpenHow::BENEATH).unwrap()
    }

    pub(crate) fn read_op(&self, file: &Fd, offset: u64, want: usize) -> Op {
        Op::Read {
            file: file.clone(),
            offset,
            buf: self.pool.take(want).unwrap(),
            caching: ring::Caching::Keep,
        }
    }

    #[track_caller]
    pub(crate) fn read(&mut self, file: &Fd, offset: u64, want: usize) -> Vec<u8> {
        let op = self.read_op(file, offset, want);
        match self.done(op).unwrap() {
            Event::Read(buf) => buf.to_vec(),
            other => panic!("{other:?}"),
        }
    }
}

impl Child {
    pub(crate) fn id(&self) -> u32 {
        match self {
            Self::Os(child) => child.id(),
            Self::Sim(_, pid) => *pid,
        }
    }

    /// Lets the child end with this code, perhaps in a moment.
    pub(crate) fn exit(&mut self, code: u8) {
        match self {
            Self::Os(child) => writeln!(child.stdin.take().unwrap(), "{code}").unwrap(),
            Self::Sim(world, pid) => {
                world.end_child(*pid, ExitStatus::from_raw(i32::from(code) << 8));
            }
        }
    }

    /// Ends the child by `SIGKILL`, perhaps in a moment.
    pub(crate) fn kill(&mut self) {
        match self {
            Self::Os(child) => child.kill().unwrap(),
            Self::Sim(world, pid) => world.end_child(*pid, ExitStatus::from_raw(libc::SIGKILL)),
        }
    }

    /// Wait for the child without the ring.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        match self {
            Self::Os(child) => child.wait().unwrap(),
            Self::Sim(world, pid) => world.wait_for_child(*pid),
        }
    }
}

impl FarListener {
    /// The next connection, which has been made.
    pub(crate) fn accept(&self) -> Peer {
        match self {
            Self::Tcp(listener) => Peer::Os(Some(listener.accept().unwrap().0)),
            // A Unix stream is sent and received in the same way.
            Self::Unix(listener) => {
                Peer::Os(Some(OwnedFd::from(listener.accept().unwrap().0).into()))
            }
            Self::Sim(listener) => Peer::Sim(listener.accept().expect("a connection")),
        }
    }

    /// Lets further connections hang: returns connections that fill the backlog.
    pub(crate) fn stop_answering(&self) -> Vec<TcpStream> {
        self.set_backlog(0);
        match self {
            Self::Tcp(listener) => {
                let address = listener.local_addr().unwrap();
                let connect = || TcpStream::connect_timeout(&address, QUIET).ok();
                core::iter::from_fn(connect).collect()
            }
            Self::Unix(_) => unreachable!("a full backlog of a Unix socket is an error"),
            Self::Sim(listener) => {
                listener.stop_answering();
                Vec::new()
            }
        }
    }

    /// A second listen(2) changes the backlog.
    pub(crate) fn set_backlog(&self, backlog: i32) {
        match self {
            Self::Tcp(listener) => rustix::net::listen(listener, backlog).unwrap(),
            Self::Unix(listener) => rustix::net::listen(listener, backlog).unwrap(),
            Self::Sim(_) => {}
        }
    }
}

impl Peer {
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        match self {
            Self::Os(stream) => stream.as_mut().unwrap().write_all(bytes).unwrap(),
            Self::Sim(peer) => peer.send(bytes),
        }
    }

    /// The bytes that have come since the last time.
    pub(crate) fn take(&mut self) -> Vec<u8> {
        match self {
            Self::Os(stream) => {
                let stream = stream.as_mut().unwrap();
                stream.set_nonblocking(true).unwrap();
                let mut bytes = vec![0; 1 << 20];
                let count = match stream.read(&mut bytes) {
                    Ok(count) => count,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
                    Err(error) => panic!("{error}"),
                };
                stream.set_nonblocking(false).unwrap();
                bytes.truncate(count);
                bytes
            }
            Self::Sim(peer) => {
                peer.set_read_rate(None);
                peer.take()
            }
        }
    }

    /// Take nothing until the next [`take`](Self::take).
    pub(crate) fn stop_reading(&mut self) {
        if let Self::Sim(peer) = self {
            peer.stop_reading();
        }
    }

    pub(crate) fn shutdown_write(&mut self) {
        match self {
            Self::Os(stream) => stream.as_ref().unwrap().shutdown(Shutdown::Write).unwrap(),
            Self::Sim(peer) => peer.shutdown_write(),
        }
    }

    pub(crate) fn close(&mut self) {
        match self {
            Self::Os(stream) => *stream = None,
            Self::Sim(peer) => peer.close(),
        }
    }

    pub(crate) fn reset(&mut self) {
        match self {
            Self::Os(stream) => {
                let stream = stream.take().unwrap();
                rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).unwrap();
            }
            Self::Sim(peer) => peer.reset(),
        }
    }
}

/// Bytes that show their position.
pub(crate) fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| u8::try_from(at * 7 % 251).unwrap()).collect()
}
