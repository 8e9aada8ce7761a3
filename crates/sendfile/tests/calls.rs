//! Calls on real files and sockets, on both drivers.

use core::time::Duration;
use std::ffi::CString;
use std::fs::File as StdFile;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::thread::JoinHandle;

use ring::sim::{Config, World};
use ring::{Address, Choice, Event, Fd, Op, Ring, Signal};
use sendfile::{
    Caching, Calls, DiskConfig, Done, Failure, File, Outcome, Part, Policy, Room, Socket, Stop,
    Window,
};
use testkit::evict;

const DRIVERS: [Choice; 2] = [Choice::Uring, Choice::Epoll];
const POLICY: Policy = Policy { caching: Caching::Popular, window: Window::of(1 << 20) };

fn content(len: usize) -> Vec<u8> {
    (0..len).map(|at| u8::try_from((at * 31 + at / 4096) % 251).unwrap()).collect()
}

struct Setup {
    calls: Calls,
    root: Fd,
    dir: tempfile::TempDir,
}

impl Setup {
    fn new(choice: Choice) -> Self {
        let calls = Calls::new(Ring::new(choice).unwrap(), DiskConfig::default()).unwrap();
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let root = calls.ring().adopt_file(StdFile::open(dir.path()).unwrap().into());
        Self { calls, root, dir }
    }

    /// A connection: our end, blocking or not, and the peer's.
    fn pair(&mut self, is_blocking: bool) -> (Socket, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(!is_blocking).unwrap();
        let ours = self.calls.ring().adopt_socket(ours.into());
        (self.calls.adopt(ours), theirs)
    }

    fn file(&mut self, name: &str, bytes: &[u8]) -> Rc<File> {
        let path = self.dir.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        evict(&path);
        self.open(name)
    }

    fn open(&mut self, name: &str) -> Rc<File> {
        self.calls.open(&self.root, CString::new(name).unwrap(), 99).unwrap();
        let Outcome::Opened(opened) = self.next().outcome else { panic!("something else") };
        let (file, stat) = opened.unwrap();
        assert_eq!(file.size(), stat.size);
        file
    }

    /// The next completion; there must not be another at the same time.
    fn next(&mut self) -> Done {
        let mut done = Vec::new();
        let until = self.calls.ring().now() + Duration::from_secs(20);
        self.calls.wait(Some(until), &mut done).unwrap();
        assert_eq!(done.len(), 1, "{done:?}");
        done.remove(0)
    }

    fn sent(&mut self) -> (u64, u64, Result<(), Stop>) {
        let Done { token, outcome: Outcome::Sent { bytes, end }, more: false, .. } = self.next()
        else {
            panic!("something else")
        };
        (token, bytes, end)
    }

    /// Goes on until so much has left and the peer receives no more.
    fn pause(&mut self) {
        let until = self.calls.ring().now() + Duration::from_millis(100);
        let mut done = Vec::new();
        self.calls.wait(Some(until), &mut done).unwrap();
        assert!(done.is_empty(), "{done:?}");
    }
}

fn whole(file: &Rc<File>) -> Part {
    Part::File(Rc::clone(file), 0..file.size(), POLICY)
}

fn reader(mut socket: UnixStream) -> JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut all = Vec::new();
        socket.read_to_end(&mut all).unwrap();
        all
    })
}

#[test]
fn memory_and_cold_files_leave_in_order_on_any_socket() {
    let bytes = content(3_000_001);
    for choice in DRIVERS {
        for is_blocking in [false, true] {
            let mut setup = Setup::new(choice);
            let file = setup.file("file", &bytes);
            let (socket, theirs) = setup.pair(is_blocking);
            let all = reader(theirs);
            let first = vec![Part::Static(b"head"), whole(&file), Part::Bytes(b"tail".to_vec())];
            setup.calls.send(socket, first, 1).unwrap();
            let second = vec![Part::File(Rc::clone(&file), 4095..700_000, POLICY)];
            setup.calls.send(socket, second, 2).unwrap();
            let mut done = Vec::new();
            while done.len() < 2 {
                let mut some = Vec::new();
                setup.calls.wait(None, &mut some).unwrap();
                done.extend(some);
            }
            let tokens: Vec<_> = done.iter().map(|one| one.token).collect();
            assert_eq!(tokens, [1, 2]);
            for (one, expected) in done.iter().zip([3_000_009, 695_905]) {
                let Outcome::Sent { bytes, end: Ok(()) } = one.outcome else { panic!("{one:?}") };
                assert_eq!(bytes, expected);
            }
            setup.calls.close(socket);
            drop(setup);
            let expected = [b"head", &bytes[..], b"tail", &bytes[4095..700_000]].concat();
            assert!(all.join().unwrap() == expected, "{choice:?} {is_blocking}: other bytes");
        }
    }
}

#[test]
fn a_peer_that_takes_nothing_holds_up_no_other_socket() {
    let bytes = content(8 << 20);
    for choice in DRIVERS {
        for is_blocking in [false, true] {
            let mut setup = Setup::new(choice);
            let file = setup.file("file", &bytes);
            let (slow, slow_peer) = setup.pair(is_blocking);
            let (fast, fast_peer) = setup.pair(is_blocking);
            setup.calls.send(slow, vec![whole(&file)], 1).unwrap();
            let all = reader(fast_peer);
            setup.calls.send(fast, vec![whole(&file)], 2).unwrap();
            assert_eq!(setup.sent(), (2, 8 << 20, Ok(())), "{choice:?} {is_blocking}");
            setup.calls.close(fast);
            let slow_bytes = reader(slow_peer);
            assert_eq!(setup.sent(), (1, 8 << 20, Ok(())), "{choice:?} {is_blocking}");
            drop(setup);
            assert!(all.join().unwrap() == bytes && slow_bytes.join().unwrap() == bytes);
        }
    }
}

#[test]
fn a_cancelled_send_says_how_much_has_left_and_breaks_its_socket() {
    let bytes = content(8 << 20);
    for choice in DRIVERS {
        let mut setup = Setup::new(choice);
        let file = setup.file("file", &bytes);
        let (socket, peer) = setup.pair(false);
        let first = setup.calls.send(socket, vec![whole(&file)], 1).unwrap();
        let second = setup.calls.send(socket, vec![Part::Static(b"second")], 2).unwrap();
        setup.calls.send(socket, vec![Part::Static(b"third")], 3).unwrap();
        setup.pause();
        setup.calls.cancel(second);
        assert_eq!(setup.sent(), (2, 0, Err(Stop::Cancelled)));
        setup.calls.cancel(first);
        setup.calls.cancel(first);
        let mut done = Vec::new();
        setup.calls.wait(None, &mut done).unwrap();
        let [
            Done {
                token: 1,
                outcome: Outcome::Sent { bytes: left, end: Err(Stop::Cancelled) },
                ..
            },
            Done { token: 3, outcome: Outcome::Sent { bytes: 0, end: Err(Stop::Broken) }, .. },
        ] = done[..]
        else {
            panic!("{done:?}")
        };
        assert!(left > 0);
        setup.calls.send(socket, vec![Part::Static(b"fourth")], 4).unwrap();
        assert_eq!(setup.sent(), (4, 0, Err(Stop::Broken)));
        setup.calls.close(socket);
        drop(setup);
        let got = reader(peer).join().unwrap();
        assert!(got == bytes[..usize::try_from(left).unwrap()], "{choice:?}: other bytes");
    }
}

#[test]
fn a_file_that_becomes_shorter_stops_its_send_alone_if_nothing_has_left() {
    for choice in DRIVERS {
        let mut setup = Setup::new(choice);
        let file = setup.file("file", &content(100_000));
        StdFile::create(setup.dir.path().join("file")).unwrap();
        let (socket, peer) = setup.pair(false);
        setup.calls.send(socket, vec![whole(&file)], 1).unwrap();
        assert_eq!(setup.sent(), (1, 0, Err(Stop::Failed(Failure::Truncated))));
        setup.calls.send(socket, vec![Part::Static(b"sorry")], 2).unwrap();
        assert_eq!(setup.sent(), (2, 5, Ok(())));
        drop(setup);
        assert_eq!(reader(peer).join().unwrap(), b"sorry");
    }
}

#[test]
fn receives_are_filled_in_order_and_give_their_memory_back() {
    for choice in DRIVERS {
        for is_blocking in [false, true] {
            let mut setup = Setup::new(choice);
            let (socket, mut peer) = setup.pair(is_blocking);
            let cancelled = setup.calls.receive_into(socket, Room::Owned(vec![0; 9]), 0).unwrap();
            setup.calls.receive_into(socket, Room::Owned(vec![0; 3]), 1).unwrap();
            let room: &'static mut [u8] = Box::leak(Box::new([b'.'; 5]));
            setup.calls.receive_into(socket, Room::Static(room), 2).unwrap();
            setup.calls.cancel(cancelled);
            let Outcome::Received { end: Err(Stop::Cancelled), .. } = setup.next().outcome else {
                panic!("not cancelled")
            };
            peer.write_all(b"one").unwrap();
            let mut received = |token| {
                let Done { outcome: Outcome::Received { room, end }, token: its, .. } =
                    setup.next()
                else {
                    panic!("something else")
                };
                assert_eq!(its, token);
                (room.bytes().to_vec(), end)
            };
            assert_eq!(received(1), (b"one".to_vec(), Ok(3)));
            peer.write_all(b"two").unwrap();
            assert_eq!(received(2), (b"two..".to_vec(), Ok(3)), "the rest is as it was");
            drop(peer);
            setup.calls.receive_into(socket, Room::Owned(vec![0; 3]), 3).unwrap();
            let Outcome::Received { end: Ok(0), .. } = setup.next().outcome else {
                panic!("no end")
            };
            setup.calls.receive_into(socket, Room::Owned(vec![0; 3]), 4).unwrap();
            assert!(matches!(setup.next().outcome, Outcome::Received { end: Ok(0), .. }));
            setup.calls.close(socket);
            setup.calls.receive_into(socket, Room::Owned(vec![0; 3]), 5).unwrap();
            let last = setup.next().outcome;
            assert!(matches!(last, Outcome::Received { end: Err(Stop::Closed), .. }));
        }
    }
}

#[test]
fn a_file_that_is_not_to_be_cached_leaves_nothing_in_the_page_cache() {
    let bytes = content(4 << 20);
    for choice in DRIVERS {
        for (caching, is_cached) in [(Caching::Popular, true), (Caching::Never, false)] {
            let mut setup = Setup::new(choice);
            let file = setup.file("file", &bytes);
            let (socket, peer) = setup.pair(false);
            let all = reader(peer);
            let part = Part::File(Rc::clone(&file), 0..4 << 20, Policy { caching, ..POLICY });
            setup.calls.send(socket, vec![part], 1).unwrap();
            assert_eq!(setup.sent(), (1, 4 << 20, Ok(())));
            // The bytes leave when the peer has taken them, not at once.
            let until = setup.calls.ring().now() + Duration::from_secs(2);
            while !is_cached && setup.calls.ring().now() < until {
                let soon = setup.calls.ring().now() + Duration::from_millis(50);
                setup.calls.wait(Some(soon), &mut Vec::new()).unwrap();
            }
            let pages = setup.calls.ring().cached_pages(file.fd(), 0, 4 << 20);
            drop(setup);
            assert!(all.join().unwrap() == bytes);
            let Ok(pages) = pages else { continue };
            assert!((pages > 900) == is_cached, "{choice:?} {caching:?}: {pages} of 1024 pages");
        }
    }
}

#[test]
fn a_peer_that_has_gone_stops_its_sends() {
    for choice in DRIVERS {
        let mut setup = Setup::new(choice);
        let (socket, peer) = setup.pair(false);
        drop(peer);
        setup.calls.send(socket, vec![Part::Static(b"hello?")], 1).unwrap();
        assert_eq!(setup.sent(), (1, 0, Err(Stop::Failed(Failure::Gone))));
    }
}

#[test]
fn only_regular_files_beneath_the_directory_are_opened() {
    for choice in DRIVERS {
        let mut setup = Setup::new(choice);
        std::fs::create_dir(setup.dir.path().join("directory")).unwrap();
        let mut open = |path: &str| {
            setup.calls.open(&setup.root, CString::new(path).unwrap(), 7).unwrap();
            let Outcome::Opened(file) = setup.next().outcome else { panic!("something else") };
            file.unwrap_err().kind()
        };
        assert_eq!(open("directory"), ErrorKind::IsADirectory);
        assert_eq!(open("nothing"), ErrorKind::NotFound);
        assert_eq!(open("../x"), ErrorKind::CrossesDevices);
        assert_eq!(open("/etc/passwd"), ErrorKind::CrossesDevices);
    }
}

#[test]
fn a_connection_is_made_as_a_call() {
    for choice in DRIVERS {
        let mut setup = Setup::new(choice);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = Address::from(listener.local_addr().unwrap());
        let call = setup.calls.connect(address.clone(), 5).unwrap();
        let done = setup.next();
        assert!(done.call == call && done.token == 5 && !done.more);
        let Outcome::Connected(Ok(socket)) = done.outcome else { panic!("{:?}", done.outcome) };
        setup.calls.send(socket, vec![Part::Static(b"hello")], 6).unwrap();
        assert!(matches!(setup.next().outcome, Outcome::Sent { bytes: 5, end: Ok(()) }));
        let mut bytes = [0; 5];
        listener.accept().unwrap().0.read_exact(&mut bytes).unwrap();
        assert_eq!(&bytes, b"hello");
        drop(listener);
        setup.calls.connect(address, 7).unwrap();
        let Outcome::Connected(Err(error)) = setup.next().outcome else { panic!("something else") };
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
        assert_eq!(setup.calls.in_flight(), 0);
    }
}

#[test]
fn a_timer_comes_or_is_cancelled() {
    for choice in DRIVERS {
        let mut setup = Setup::new(choice);
        let soon = setup.calls.ring().now() + Duration::from_millis(1);
        let timer = setup.calls.timer(soon, 5).unwrap();
        let done = setup.next();
        assert!(done.call == timer && done.token == 5 && setup.calls.ring().now() >= soon);
        assert!(matches!(done.outcome, Outcome::Timer(Ok(()))));
        let late = setup.calls.ring().now() + Duration::from_secs(1000);
        let timer = setup.calls.timer(late, 6).unwrap();
        setup.calls.cancel(timer);
        assert!(matches!(setup.next().outcome, Outcome::Timer(Err(_))));
        assert_eq!(setup.calls.in_flight(), 0);
    }
}

#[test]
fn signals_come_until_they_are_cancelled() {
    let world = World::new(Config::new(1));
    let mut calls = Calls::new(Ring::simulated(&world), DiskConfig::default()).unwrap();
    let mut done = Vec::new();
    let call = calls.signal(15, 5).unwrap();
    for _ in 0..3 {
        world.signal(15, Some(7));
        calls.wait(None, &mut done).unwrap();
        let one = done.pop().unwrap();
        assert!(one.call == call && one.token == 5 && one.more);
        let expected = Signal { number: 15, sender: Some(7) };
        assert!(matches!(one.outcome, Outcome::Signal(Ok(signal)) if signal == expected));
    }
    calls.cancel(call);
    calls.wait(None, &mut done).unwrap();
    assert!(matches!(done.pop().unwrap().outcome, Outcome::Signal(Err(_))));
    calls.signal(9, 6).unwrap();
    calls.wait(None, &mut done).unwrap();
    let Outcome::Signal(Err(error)) = done.pop().unwrap().outcome else { panic!("something else") };
    assert_eq!(error.raw_os_error(), Some(22), "EINVAL: nothing can block it");
    assert_eq!(calls.in_flight(), 0);
}

#[test]
fn the_end_of_a_child_comes_once() {
    for choice in DRIVERS {
        let mut setup = Setup::new(choice);
        let spawn = || Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let mut child = spawn();
        let call = setup.calls.child(child.id(), 5).unwrap();
        setup.pause();
        drop(child.stdin.take());
        let done = setup.next();
        assert!(done.call == call && done.token == 5 && !done.more);
        assert!(matches!(done.outcome, Outcome::Exited(Ok(status)) if status.success()));
        assert!(child.wait().is_err(), "it was waited for");
        // A child that is no longer waited for can be waited for by others.
        let mut child = spawn();
        let call = setup.calls.child(child.id(), 6).unwrap();
        setup.calls.cancel(call);
        assert!(matches!(setup.next().outcome, Outcome::Exited(Err(_))));
        drop(child.stdin.take());
        assert!(child.wait().unwrap().success());
        setup.calls.child(std::process::id(), 7).unwrap();
        let Outcome::Exited(Err(error)) = setup.next().outcome else { panic!("no child") };
        assert_eq!(error.raw_os_error(), Some(10), "ECHILD");
        assert_eq!(setup.calls.in_flight(), 0);
    }
}

#[test]
fn a_file_is_watched_until_that_is_cancelled() {
    for choice in DRIVERS {
        let mut setup = Setup::new(choice);
        let path = setup.dir.path().join("file");
        let call = setup.calls.watch_file(&setup.root, c"file".into(), 5).unwrap();
        let done = setup.next();
        assert!(done.call == call && done.token == 5 && done.more);
        assert!(matches!(done.outcome, Outcome::Watching));
        for bytes in ["created", "changed"] {
            std::fs::write(&path, bytes).unwrap();
            let done = setup.next();
            assert!(done.call == call && done.more);
            assert!(matches!(done.outcome, Outcome::Changed(Ok(()))));
            // Its remaining events.
            let soon = setup.calls.ring().now() + Duration::from_millis(100);
            setup.calls.wait(Some(soon), &mut Vec::new()).unwrap();
        }
        setup.calls.cancel(call);
        let done = setup.next();
        assert!(matches!(done.outcome, Outcome::Changed(Err(_))) && !done.more);
        setup.calls.watch_file(&setup.root, c"no directory/file".into(), 6).unwrap();
        let Outcome::Changed(Err(error)) = setup.next().outcome else { panic!("something else") };
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert_eq!(setup.calls.in_flight(), 0);
    }
}

#[test]
fn a_directory_is_listed_as_a_call() {
    for choice in DRIVERS {
        let mut setup = Setup::new(choice);
        std::fs::create_dir(setup.dir.path().join("directory")).unwrap();
        for (name, bytes) in [("b", "bb"), ("a", "")] {
            std::fs::write(setup.dir.path().join("directory").join(name), bytes).unwrap();
        }
        std::fs::write(setup.dir.path().join("a file"), "").unwrap();
        let mut list = |path: &str, entries_max| {
            setup.calls.list(&setup.root, CString::new(path).unwrap(), entries_max, 7).unwrap();
            let Done { outcome: Outcome::Listed(listing), token: 7, more: false, .. } =
                setup.next()
            else {
                panic!("something else")
            };
            listing.map(|listing| {
                let name = |entry: &ring::Entry| String::from_utf8(entry.name.clone()).unwrap();
                let entries = listing.entries.iter().map(|entry| (name(entry), entry.size));
                (entries.collect::<Vec<_>>(), listing.truncated)
            })
        };
        let both = vec![("a".to_owned(), 0), ("b".to_owned(), 2)];
        assert_eq!(list("directory", 2).unwrap(), (both, false));
        let (few, truncated) = list("directory", 1).unwrap();
        assert!(few.len() == 1 && truncated);
        let (all, _) = list(".", 100).unwrap();
        assert_eq!(all.iter().map(|(name, _)| name).collect::<Vec<_>>(), ["directory", "a file"]);
        assert_eq!(list("nothing", 1).unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(list("a file", 1).unwrap_err().kind(), ErrorKind::NotADirectory);
        assert_eq!(list("..", 1).unwrap_err().kind(), ErrorKind::CrossesDevices);
        // A listing that is cancelled at once has ended in one way or the other, and once.
        let call = setup.calls.list(&setup.root, c".".into(), 9, 8).unwrap();
        setup.calls.cancel(call);
        let last = setup.next();
        assert!(last.token == 8 && matches!(last.outcome, Outcome::Listed(_)));
        assert_eq!(setup.calls.in_flight(), 0);
    }
}

#[test]
fn other_operations_and_wakes_complete_in_the_same_queue() {
    for choice in DRIVERS {
        let mut setup = Setup::new(choice);
        let dir = setup.root.clone();
        let watch = setup.calls.submit(Op::Watch { root: dir, path: c"".into() }, 6).unwrap();
        assert!(matches!(setup.next().outcome, Outcome::Event(Ok(Event::Watching { .. }))));
        setup.calls.cancel(watch);
        assert!(matches!(setup.next().outcome, Outcome::Event(Err(_))));
        setup.calls.waker(8).unwrap().wake();
        let woken = setup.next();
        assert!(woken.token == 8 && matches!(woken.outcome, Outcome::Event(Ok(Event::Woken))));
        assert_eq!(setup.calls.in_flight(), 0);
    }
}

/// A TCP connection over loopback: our end and the peer's.
fn tcp_pair(calls: &mut Calls) -> (Socket, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let theirs = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (ours, _) = listener.accept().unwrap();
    ours.set_nonblocking(true).unwrap();
    let ours = calls.ring().adopt_socket(ours.into());
    (calls.adopt(ours), theirs)
}

#[test]
fn an_acknowledgement_comes_when_the_peer_has_so_many_bytes() {
    const BYTES: usize = 8 << 20;
    for choice in DRIVERS {
        let mut setup = Setup::new(choice);
        let (socket, mut peer) = tcp_pair(&mut setup.calls);
        setup.calls.acknowledgement(socket, 0, 1).unwrap();
        assert!(matches!(setup.next().outcome, Outcome::Acknowledged(Ok(0))));
        setup.calls.send(socket, vec![Part::Bytes(content(BYTES))], 2).unwrap();
        setup.calls.acknowledgement(socket, BYTES as u64, 3).unwrap();
        let half = setup.calls.acknowledgement(socket, BYTES as u64 / 2, 4).unwrap();
        let cancelled = setup.calls.acknowledgement(socket, BYTES as u64 + 1, 5).unwrap();
        setup.pause();
        let early = setup.calls.acknowledged(socket);
        assert!(early < BYTES as u64, "{early}: the peer has no room for all");
        setup.calls.cancel(cancelled);
        let cancelled = setup.next();
        assert!(matches!(cancelled.outcome, Outcome::Acknowledged(Err(Stop::Cancelled))));
        let reader = std::thread::spawn(move || {
            let mut all = vec![0; BYTES];
            peer.read_exact(&mut all).unwrap();
            (all, peer)
        });
        let mut order = Vec::new();
        while order.len() < 3 {
            let mut done = Vec::new();
            setup.calls.wait(None, &mut done).unwrap();
            for one in done {
                match one.outcome {
                    Outcome::Acknowledged(Ok(bytes)) if one.call == half => {
                        assert!(bytes >= BYTES as u64 / 2);
                    }
                    Outcome::Acknowledged(Ok(bytes)) => assert_eq!(bytes, BYTES as u64),
                    Outcome::Sent { bytes, end } => {
                        assert_eq!((bytes, end), (BYTES as u64, Ok(())))
                    }
                    other => panic!("{other:?}"),
                }
                order.push(one.token);
            }
        }
        order.sort_unstable();
        assert_eq!(order, [2, 3, 4]);
        assert_eq!(setup.calls.acknowledged(socket), BYTES as u64);
        let (all, peer) = reader.join().unwrap();
        assert!(all == content(BYTES));
        // A connection that is gone acknowledges nothing more.
        setup.calls.acknowledgement(socket, BYTES as u64 + 1, 6).unwrap();
        rustix::net::sockopt::set_socket_linger(&peer, Some(Duration::ZERO)).unwrap();
        drop(peer);
        let gone = setup.next();
        let expected = Err(Stop::Failed(Failure::Gone));
        assert!(matches!(gone.outcome, Outcome::Acknowledged(end) if end == expected), "{gone:?}");
        setup.calls.acknowledgement(socket, BYTES as u64 + 1, 7).unwrap();
        setup.next();
        setup.calls.close(socket);
        setup.calls.acknowledgement(socket, 0, 8).unwrap();
        assert!(matches!(setup.next().outcome, Outcome::Acknowledged(Err(Stop::Closed))));
    }
}

#[test]
fn an_acknowledgement_comes_although_the_connection_has_ended_meanwhile() {
    const COUNT: usize = 200_000;
    for choice in DRIVERS {
        let mut setup = Setup::new(choice);
        let (socket, mut peer) = tcp_pair(&mut setup.calls);
        setup.calls.send(socket, vec![Part::Bytes(content(COUNT))], 1).unwrap();
        setup.calls.acknowledgement(socket, COUNT as u64, 2).unwrap();
        assert_eq!(setup.sent(), (1, COUNT as u64, Ok(())));
        setup.calls.shutdown(socket);
        let mut all = Vec::new();
        peer.read_to_end(&mut all).unwrap();
        drop(peer);
        let end = setup.next().outcome;
        assert!(
            matches!(end, Outcome::Acknowledged(Ok(bytes)) if bytes == COUNT as u64),
            "{end:?}"
        );
        // More bytes than were sent will certainly never be acknowledged.
        setup.calls.acknowledgement(socket, COUNT as u64 + 1, 3).unwrap();
        let end = setup.next().outcome;
        let expected = Err(Stop::Failed(Failure::Gone));
        assert!(matches!(end, Outcome::Acknowledged(end) if end == expected));
    }
}

#[test]
fn a_connection_that_was_reset_has_acknowledged_what_came_before() {
    const COUNT: u64 = 64 << 20;
    for choice in DRIVERS {
        let mut setup = Setup::new(choice);
        let (socket, peer) = tcp_pair(&mut setup.calls);
        setup.calls.send(socket, vec![Part::Bytes(vec![0; 64 << 20])], 1).unwrap();
        setup.pause();
        let came = setup.calls.acknowledged(socket);
        assert!(0 < came && came < COUNT, "{came}");
        drop(peer);
        assert!(matches!(setup.sent(), (1, 1.., Err(Stop::Failed(Failure::Gone)))));
        for (bytes, is_there) in [(came, true), (COUNT, false)] {
            setup.calls.acknowledgement(socket, bytes, 2).unwrap();
            let end = setup.next().outcome;
            let Outcome::Acknowledged(end) = end else { panic!("{end:?}") };
            assert_eq!(end.is_ok(), is_there, "{bytes}: {end:?}");
        }
    }
}

#[test]
fn a_unix_socket_is_asked_what_its_peer_has() {
    for choice in DRIVERS {
        let mut setup = Setup::new(choice);
        let (socket, mut peer) = setup.pair(false);
        setup.calls.send(socket, vec![Part::Static(b"hello")], 1).unwrap();
        assert_eq!(setup.sent(), (1, 5, Ok(())));
        setup.calls.acknowledgement(socket, 5, 2).unwrap();
        setup.pause();
        peer.read_exact(&mut [0; 5]).unwrap();
        assert!(matches!(setup.next().outcome, Outcome::Acknowledged(Ok(5))));
        setup.calls.acknowledgement(socket, 6, 3).unwrap();
        setup.calls.close(socket);
        assert!(matches!(setup.next().outcome, Outcome::Acknowledged(Err(Stop::Closed))));
    }
}

#[test]
fn an_acknowledgement_of_a_unix_socket_ends_when_the_peer_has_read_or_left() {
    const COUNT: usize = 1000;
    const BYTES: u64 = COUNT as u64;
    let is_gone = |outcome: Outcome| {
        matches!(outcome, Outcome::Acknowledged(Err(Stop::Failed(Failure::Gone))))
    };
    for choice in DRIVERS {
        let mut setup = Setup::new(choice);
        for reads in [false, true] {
            let (ours, mut theirs) = UnixStream::pair().unwrap();
            let ours = setup.calls.ring().adopt_socket(ours.into());
            let socket = setup.calls.adopt(ours);
            setup.calls.send(socket, vec![Part::Bytes(content(COUNT))], 1).unwrap();
            assert!(matches!(setup.next().outcome, Outcome::Sent { bytes: BYTES, end: Ok(()) }));
            // Both have ended their sides, which looks as if the peer had left.
            theirs.shutdown(Shutdown::Write).unwrap();
            setup.calls.shutdown(socket);
            setup.calls.acknowledgement(socket, BYTES, 2).unwrap();
            setup.pause();
            assert_eq!(setup.calls.acknowledged(socket), 0);
            if reads {
                theirs.read_exact(&mut [0; COUNT]).unwrap();
                let outcome = setup.next().outcome;
                assert!(matches!(outcome, Outcome::Acknowledged(Ok(BYTES))), "{outcome:?}");
            } else {
                drop(theirs);
                let outcome = setup.next().outcome;
                assert!(is_gone(outcome), "what was left unread");
            }
            // No more will be acknowledged.
            setup.calls.acknowledgement(socket, BYTES + 1, 3).unwrap();
            assert!(is_gone(setup.next().outcome));
            setup.calls.close(socket);
        }
    }
}

#[test]
fn a_peer_can_still_acknowledge_what_has_left_of_a_broken_send() {
    for choice in DRIVERS {
        let mut setup = Setup::new(choice);
        let (socket, mut peer) = setup.pair(false);
        let send = setup.calls.send(socket, vec![Part::Bytes(content(4 << 20))], 1).unwrap();
        setup.calls.cancel(send);
        let (_, count, end) = setup.sent();
        assert!(count > 0 && end == Err(Stop::Cancelled));
        setup.calls.acknowledgement(socket, count, 2).unwrap();
        setup.pause();
        peer.read_exact(&mut vec![0; usize::try_from(count).unwrap()]).unwrap();
        let end = setup.next().outcome;
        assert!(matches!(end, Outcome::Acknowledged(Ok(bytes)) if bytes == count), "{end:?}");
    }
}

#[test]
fn what_the_peer_of_a_unix_socket_leaves_unread_is_not_acknowledged() {
    const COUNT: usize = 100_000;
    for choice in DRIVERS {
        for receives in [false, true] {
            let mut setup = Setup::new(choice);
            let (socket, mut peer) = setup.pair(false);
            setup.calls.send(socket, vec![Part::Bytes(content(COUNT))], 1).unwrap();
            assert_eq!(setup.sent(), (1, COUNT as u64, Ok(())));
            peer.read_exact(&mut vec![0; COUNT / 2]).unwrap();
            let read = setup.calls.acknowledged(socket);
            assert!(read < COUNT as u64);
            drop(peer);
            assert_eq!(setup.calls.acknowledged(socket), read);
            if receives {
                // The kernel reports the reset, and then no more.
                setup.calls.receive_into(socket, Room::Owned(vec![0; 10]), 2).unwrap();
                let end = setup.next().outcome;
                let Outcome::Received { end, .. } = end else { panic!("{end:?}") };
                assert_eq!(end, Err(Stop::Failed(Failure::Gone)));
                assert_eq!(setup.calls.acknowledged(socket), read);
            }
            for (bytes, is_there) in [(read, true), (COUNT as u64, false)] {
                setup.calls.acknowledgement(socket, bytes, 3).unwrap();
                let end = setup.next().outcome;
                let Outcome::Acknowledged(end) = end else { panic!("{end:?}") };
                assert_eq!(end.is_ok(), is_there, "{bytes}: {end:?}");
            }
        }
    }
}

#[test]
fn sends_end_when_our_side_is_ended() {
    for choice in DRIVERS {
        let mut setup = Setup::new(choice);
        let (unix, _peer) = setup.pair(false);
        let (tcp, _other) = tcp_pair(&mut setup.calls);
        for socket in [unix, tcp] {
            setup.calls.send(socket, vec![Part::Bytes(content(32 << 20))], 1).unwrap();
            setup.pause();
            setup.calls.shutdown(socket);
            assert!(matches!(setup.sent(), (1, 1.., Err(Stop::Failed(Failure::Gone)))));
            setup.calls.send(socket, vec![Part::Static(b"late")], 2).unwrap();
            assert_eq!(setup.sent(), (2, 0, Err(Stop::Broken)));
        }
    }
}
