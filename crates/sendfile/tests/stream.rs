//! Streams on real files and sockets, on every driver: ranges that are resident, cold, or evicted
//! on the way.

use core::ops::Range;
use core::time::Duration;
use std::fs::{File as StdFile, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::rc::Rc;
use std::thread::JoinHandle;

use ring::{Choice, Event, Op, Ring, Token};
use sendfile::{
    Account, Caching, Disk, DiskConfig, Failure, File, KernelTcp, Owner, Piece, Policy, Progress,
    Shared, Stream, Transport as _, Window,
};
use testkit::{evict, evict_unused};

const DISK: Token = 1 << 40;
const STAT: Token = 1;
const WRITABLE: Token = 2;
const RECV: Token = 3;
const OWNER: Owner = Owner::of(7);
const OTHER: Owner = Owner::of(8);
const DRIVERS: [Choice; 2] = [Choice::Uring, Choice::Epoll];

fn content(len: usize) -> Vec<u8> {
    (0..len).map(|at| u8::try_from((at * 31 + at / 4096) % 251).unwrap()).collect()
}

/// One stream, and everything around it.
struct Setup {
    ring: Ring,
    disk: Disk,
    transport: KernelTcp,
    stream: Stream,
    policy: Policy,
}

impl Setup {
    fn new(choice: Choice, caching: Caching) -> (Self, UnixStream) {
        Self::with(choice, Policy { caching, ..Policy::default() }, DiskConfig::default())
    }

    fn with(choice: Choice, policy: Policy, config: DiskConfig) -> (Self, UnixStream) {
        let ring = Ring::new(choice).unwrap();
        let disk = Disk::new(DiskConfig { token_base: DISK, ..config }).unwrap();
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let socket = ring.adopt_socket(ours.into());
        let transport = KernelTcp::new(socket, RECV, WRITABLE);
        (Self { ring, disk, transport, stream: Stream::new(), policy }, theirs)
    }

    fn open(&mut self, path: &Path) -> Rc<File> {
        let fd = self.ring.adopt_file(StdFile::open(path).unwrap().into());
        self.ring.submit(Op::Stat(fd.clone()), STAT);
        let mut completions = Vec::new();
        while completions.is_empty() {
            self.ring.wait(None, &mut completions).unwrap();
        }
        let Ok(Event::Stat(stat)) = completions.remove(0).result else { panic!("no stat") };
        Rc::new(File::new(fd, &stat))
    }

    fn push(&mut self, file: &Rc<File>, range: Range<u64>) {
        self.stream.push_file(file, range, self.policy);
    }

    fn pump(&mut self) -> Progress {
        let Self { ring, disk, transport, stream, .. } = self;
        stream.pump(ring, disk, transport, OWNER)
    }

    fn wait(&mut self) {
        let mut completions = Vec::new();
        let until = self.ring.now() + Duration::from_secs(10);
        while completions.is_empty() && self.ring.now() < until {
            self.ring.wait(Some(until), &mut completions).unwrap();
        }
        assert!(!completions.is_empty(), "nothing happens");
        for completion in completions {
            if completion.token == WRITABLE {
                self.transport.handle_writable();
            } else if self.disk.owns(completion.token)
                && let Some(done) = self.disk.handle(&mut self.ring, completion)
            {
                assert_eq!(done.owner, OWNER);
                self.stream.handle_read(done);
            }
        }
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
}

fn reader(mut socket: UnixStream) -> JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut all = Vec::new();
        socket.read_to_end(&mut all).unwrap();
        all
    })
}

/// A file on a disk (not on a memory file system) that is not in memory.
fn cold_file(dir: &tempfile::TempDir, bytes: &[u8]) -> std::path::PathBuf {
    let path = dir.path().join("file");
    StdFile::create(&path).unwrap().write_all(bytes).unwrap();
    evict(&path);
    path
}

/// The transport of a second stream.
fn second_transport(setup: &Setup, socket: UnixStream) -> KernelTcp {
    KernelTcp::new(setup.ring.adopt_socket(socket.into()), RECV, WRITABLE)
}

fn temp_dir() -> tempfile::TempDir {
    tempfile::tempdir_in("/var/tmp").unwrap()
}

#[test]
fn cold_and_warm_ranges_arrive_whole_and_in_order() {
    let bytes = content(3_000_001);
    for choice in DRIVERS {
        for caching in [Caching::Popular, Caching::Always, Caching::Never] {
            let dir = temp_dir();
            let path = cold_file(&dir, &bytes);
            let (mut setup, theirs) = Setup::new(choice, caching);
            let all = reader(theirs);
            let file = setup.open(&path);
            let mut expected = b"head".to_vec();
            setup.stream.push(Piece::Static(b"head"));
            for range in [0..3_000_001, 5..5, 1_000_003..1_000_010, 4095..700_000] {
                setup.push(&file, range.clone());
                expected.extend(
                    &bytes[usize::try_from(range.start).unwrap()
                        ..usize::try_from(range.end).unwrap()],
                );
                setup.stream.push(Piece::Bytes(b"--".to_vec()));
                expected.extend(b"--");
            }
            assert_eq!(setup.finish(), Progress::Drained);
            assert_eq!(setup.stream.sent(), expected.len() as u64);
            setup.transport.shutdown(&mut setup.ring);
            assert!(all.join().unwrap() == expected, "{choice:?} {caching:?}: other bytes");
        }
    }
}

#[test]
fn without_caching_nothing_stays_in_memory() {
    let bytes = content(4 << 20);
    for choice in DRIVERS {
        let dir = temp_dir();
        let path = cold_file(&dir, &bytes);
        let (mut setup, theirs) = Setup::new(choice, Caching::Never);
        let all = reader(theirs);
        let file = setup.open(&path);
        setup.push(&file, 0..bytes.len() as u64);
        assert_eq!(setup.finish(), Progress::Drained);
        setup.transport.shutdown(&mut setup.ring);
        assert!(all.join().unwrap() == bytes);
        // Pages that packets may have referred to leave a little later.
        while setup.ring.in_flight() > 0 {
            setup.wait();
        }
        let Ok(pages) = setup.ring.cached_pages(file.fd(), 0, bytes.len() as u64) else { continue };
        assert!(pages < 64, "{choice:?}: {pages} of 1024 pages stayed");
    }
}

#[test]
fn residency_follows_the_page_cache() {
    let bytes = content(1_000_000);
    let dir = temp_dir();
    let path = cold_file(&dir, &bytes);
    let (mut setup, _theirs) = Setup::new(Choice::Epoll, Caching::Popular);
    let file = setup.open(&path);
    let now = setup.ring.now();
    let all = bytes.len() as u64;
    assert_eq!(file.resident(&setup.ring, 0, all, now, true), 0);
    assert_eq!(std::fs::read(&path).unwrap().len(), bytes.len());
    assert_eq!(file.resident(&setup.ring, 0, all, now, true), all);
    assert_eq!(file.resident(&setup.ring, 999_999, 1, now, true), 1);
    // Within the time that a look is believed: the touch of its ends finds it. The touch makes the kernel read ahead, and
    // a quick disk may bring the first pages before the next look.
    evict(&path);
    let found = file.resident(&setup.ring, 0, all, now, true);
    let Ok(pages) = setup.ring.cached_pages(file.fd(), 0, all) else { return };
    assert!(found <= pages * 4096 && found < all, "{found} bytes, {pages} pages");
}

#[test]
fn what_was_resident_and_what_was_read_is_counted() {
    let bytes = content(1 << 20);
    for choice in DRIVERS {
        let dir = temp_dir();
        let path = cold_file(&dir, &bytes);
        let (mut setup, theirs) = Setup::new(choice, Caching::Popular);
        let all = reader(theirs);
        let file = setup.open(&path);
        let len = bytes.len() as u64;
        setup.push(&file, 0..len);
        assert_eq!(setup.finish(), Progress::Drained);
        let cold = setup.disk.stats();
        let (device, reads) = setup.disk.devices().next().expect("it was read from");
        assert!(device.numbers().is_some());
        assert_eq!((reads.begun, reads.ended), (cold.misses, cold.misses));
        assert!(cold.misses > 0 && !reads.time.is_zero(), "{cold:?} {reads:?}");
        // The kernel reads ahead, so a part may have been resident when its turn came.
        assert_eq!(cold.hit_bytes + cold.miss_bytes, len, "{choice:?}: {cold:?}");
        setup.push(&file, 0..len);
        assert_eq!(setup.finish(), Progress::Drained);
        let hot = setup.disk.stats();
        assert_eq!((hot.misses, hot.miss_bytes), (cold.misses, cold.miss_bytes), "{choice:?}");
        assert_eq!(hot.hit_bytes - cold.hit_bytes, len);
        assert!(hot.hits > cold.hits);
        setup.transport.shutdown(&mut setup.ring);
        assert_eq!(all.join().unwrap().len(), 2 * bytes.len());
    }
}

#[test]
fn a_file_that_becomes_shorter_fails_the_stream_behind_its_true_bytes() {
    let bytes = content(8 << 20);
    for choice in DRIVERS {
        let dir = temp_dir();
        let path = cold_file(&dir, &bytes);
        let (mut setup, mut theirs) = Setup::new(choice, Caching::Popular);
        let file = setup.open(&path);
        setup.push(&file, 0..bytes.len() as u64);
        setup.stream.push(Piece::Static(b"what follows"));
        while setup.pump() != Progress::Blocked {
            setup.wait();
        }
        OpenOptions::new().write(true).open(&path).unwrap().set_len(1 << 20).unwrap();
        let all = std::thread::spawn(move || {
            let mut all = Vec::new();
            theirs.read_to_end(&mut all).unwrap();
            all
        });
        assert_eq!(setup.finish(), Progress::Failed(Failure::Truncated));
        drop(setup);
        let all = all.join().unwrap();
        assert!(
            all.len() < bytes.len() && bytes.starts_with(&all),
            "{choice:?}: other bytes than the file's"
        );
    }
}

#[test]
fn a_file_that_grows_sends_what_was_promised() {
    let bytes = content(500_000);
    let dir = temp_dir();
    let path = cold_file(&dir, &bytes);
    let (mut setup, theirs) = Setup::new(Choice::Uring, Caching::Popular);
    let all = reader(theirs);
    let file = setup.open(&path);
    setup.push(&file, 0..file.size());
    OpenOptions::new().append(true).open(&path).unwrap().write_all(b"more").unwrap();
    assert_eq!(setup.finish(), Progress::Drained);
    setup.transport.shutdown(&mut setup.ring);
    assert!(all.join().unwrap() == bytes);
}

#[test]
fn buffers_that_a_peer_does_not_take_are_given_back_and_read_again() {
    let bytes = content(4 << 20);
    for choice in DRIVERS {
        for caching in [Caching::Always, Caching::Never] {
            let dir = temp_dir();
            let path = cold_file(&dir, &bytes);
            let (mut setup, theirs) = Setup::new(choice, caching);
            let file = setup.open(&path);
            setup.push(&file, 0..bytes.len() as u64);
            while setup.pump() != Progress::Blocked {
                setup.wait();
            }
            while setup.stream.is_reading() {
                setup.wait();
            }
            assert!(setup.stream.held() > 0);
            setup.stream.reclaim(setup.ring.now());
            assert_eq!(setup.stream.held(), 0);
            // The socket keeps some pages.
            evict_unused(&path);
            let all = reader(theirs);
            assert_eq!(setup.finish(), Progress::Drained);
            setup.transport.shutdown(&mut setup.ring);
            assert!(all.join().unwrap() == bytes, "{choice:?} {caching:?}: other bytes");
        }
    }
}

/// A socket that takes megabytes at once: what ends a turn is the turn.
fn roomy(setup: &Setup) {
    const MEGABYTES: usize = 8 << 20;
    rustix::net::sockopt::set_socket_send_buffer_size(setup.transport.socket().os(), MEGABYTES)
        .unwrap();
}

#[test]
fn a_turn_is_bounded_whatever_the_bytes_come_from() {
    let bytes = content(8 << 20);
    let shared = Shared::new(bytes[..2 << 20].to_vec(), &Account::default());
    for choice in DRIVERS {
        for (warm, caching) in
            [(true, Caching::Popular), (false, Caching::Popular), (false, Caching::Never)]
        {
            let dir = temp_dir();
            let path = cold_file(&dir, &bytes);
            if warm {
                std::fs::read(&path).unwrap();
            }
            let (mut setup, theirs) = Setup::new(choice, caching);
            roomy(&setup);
            let all = reader(theirs);
            let file = setup.open(&path);
            setup.stream.push(Piece::Shared(shared.clone(), 0..shared.len()));
            setup.push(&file, 0..bytes.len() as u64);
            let mut most = 0;
            let end = loop {
                let before = setup.stream.sent();
                let progress = setup.pump();
                most = most.max(setup.stream.sent() - before);
                match progress {
                    Progress::Blocked | Progress::Waiting => setup.wait(),
                    Progress::More => {}
                    end => break end,
                }
            };
            assert_eq!(end, Progress::Drained);
            assert!(
                most <= (1 << 20) + (64 << 10),
                "{choice:?} {warm} {caching:?}: {most} in a turn"
            );
            setup.transport.shutdown(&mut setup.ring);
            assert!(all.join().unwrap() == [&shared[..], &bytes[..]].concat());
        }
    }
}

#[test]
fn what_is_read_ahead_never_exceeds_the_window() {
    let bytes = content(16 << 20);
    for choice in DRIVERS {
        for window in [0, 700_000, 1 << 20, 2 << 20, 4 << 20] {
            let dir = temp_dir();
            let path = cold_file(&dir, &bytes);
            let policy = Policy { window: Window::of(window), ..Policy::default() };
            let (mut setup, theirs) = Setup::with(choice, policy, DiskConfig::default());
            roomy(&setup);
            let all = reader(theirs);
            let file = setup.open(&path);
            setup.push(&file, 0..bytes.len() as u64);
            let end = loop {
                let progress = setup.pump();
                let ahead = setup.stream.reading() + setup.stream.held();
                assert!(ahead <= window.max(256 << 10), "{choice:?}: {ahead} of {window}");
                match progress {
                    Progress::Blocked | Progress::Waiting => setup.wait(),
                    Progress::More => {}
                    end => break end,
                }
            };
            assert_eq!(end, Progress::Drained);
            setup.transport.shutdown(&mut setup.ring);
            assert!(all.join().unwrap() == bytes);
        }
    }
}

#[test]
fn a_paced_window_opens_for_a_peer_that_is_faster_than_expected() {
    for choice in DRIVERS {
        // The bytes in flight at a moment depend on the disk, too.
        let opens = (0..50).any(|_| most_ahead_of_a_fast_peer(choice) > PACED_MAX);
        assert!(opens, "{choice:?}");
    }
}

/// The smallest window and a block at the head of the queue.
const PACED_MAX: u64 = 768 << 10;

/// The maximum of bytes that are read ahead for a peer that waits at first, and then takes all.
fn most_ahead_of_a_fast_peer(choice: Choice) -> u64 {
    let bytes = content(16 << 20);
    let dir = temp_dir();
    let path = cold_file(&dir, &bytes);
    let policy = Policy { window: Window::default().paced(0), ..Policy::default() };
    let (mut setup, theirs) = Setup::with(choice, policy, DiskConfig::default());
    let file = setup.open(&path);
    setup.push(&file, 0..bytes.len() as u64);
    let ahead = |setup: &Setup| setup.stream.reading() + setup.stream.held();
    while setup.pump() != Progress::Blocked || setup.stream.is_reading() {
        assert!(ahead(&setup) <= PACED_MAX, "{choice:?}: {} for one that waits", ahead(&setup));
        setup.wait();
    }
    let (all, mut greatest) = (reader(theirs), 0);
    let end = loop {
        let progress = setup.pump();
        greatest = greatest.max(ahead(&setup));
        match progress {
            Progress::Blocked | Progress::Waiting => setup.wait(),
            Progress::More => {}
            end => break end,
        }
    };
    assert_eq!(end, Progress::Drained);
    assert!(greatest <= 2 << 20, "{choice:?}: {greatest}");
    setup.transport.shutdown(&mut setup.ring);
    assert!(all.join().unwrap() == bytes);
    greatest
}

#[test]
fn a_stream_whose_peer_takes_bytes_is_no_holder_and_keeps_them() {
    let bytes = content(4 << 20);
    let dir = temp_dir();
    let path = cold_file(&dir, &bytes);
    let (mut setup, mut theirs) = Setup::new(Choice::Uring, Caching::Popular);
    let file = setup.open(&path);
    setup.push(&file, 0..bytes.len() as u64);
    while setup.pump() != Progress::Blocked {
        setup.wait();
    }
    while setup.stream.is_reading() {
        setup.wait();
        assert_eq!(setup.pump(), Progress::Blocked);
    }
    // Writable again.
    let sent = usize::try_from(setup.stream.sent()).unwrap();
    theirs.read_exact(&mut vec![0; sent]).unwrap();
    while setup.transport.is_blocked() {
        setup.wait();
    }
    setup.stream.settle(&mut setup.disk, OWNER, setup.transport.is_blocked());
    let held = setup.stream.held();
    assert!(held > 0);
    assert_eq!(setup.disk.next_holder(setup.ring.now()), None);
    setup.stream.reclaim(setup.ring.now());
    assert_eq!(setup.stream.held(), held);
    // Full again.
    while setup.pump() == Progress::More {}
    assert!(setup.transport.is_blocked());
    assert_eq!(setup.disk.next_holder(setup.ring.now()), Some(OWNER));
    assert_eq!(setup.disk.next_holder(setup.ring.now()), None, "named once");
    setup.stream.reclaim(setup.ring.now());
    assert_eq!(setup.stream.held(), 0);
}

#[test]
fn a_stream_that_is_dropped_holds_nothing() {
    let bytes = content(4 << 20);
    let dir = temp_dir();
    let path = cold_file(&dir, &bytes);
    let (mut setup, _theirs) = Setup::new(Choice::Epoll, Caching::Popular);
    let file = setup.open(&path);
    setup.push(&file, 0..bytes.len() as u64);
    while setup.pump() != Progress::Blocked {
        setup.wait();
    }
    assert!(setup.stream.held() > 0);
    setup.stream = Stream::new();
    assert_eq!(setup.disk.next_holder(setup.ring.now()), None);
}

#[test]
fn a_disk_whose_depth_alone_is_used_up_is_not_starved() {
    let bytes = content(2 << 20);
    let dir = temp_dir();
    let path = cold_file(&dir, &bytes);
    let config = DiskConfig { depth: 1, ..DiskConfig::default() };
    let (mut setup, _theirs) = Setup::with(Choice::Uring, Policy::default(), config);
    let file = setup.open(&path);
    setup.push(&file, 0..bytes.len() as u64);
    assert_eq!(setup.pump(), Progress::Waiting);
    let (ours, _peer) = UnixStream::pair().unwrap();
    let mut transport = second_transport(&setup, ours);
    let mut second = Stream::new();
    second.push_file(&file, 0..bytes.len() as u64, setup.policy);
    second.pump(&mut setup.ring, &mut setup.disk, &mut transport, OTHER);
    assert!(!setup.disk.has_room() && !setup.disk.is_starved());

    // One buffer less than streams: the second waits for memory.
    let config = DiskConfig { pipes: 1, ..DiskConfig::default() };
    let (mut setup, _theirs) = Setup::with(Choice::Uring, Policy::default(), config);
    let file = setup.open(&path);
    setup.push(&file, 0..bytes.len() as u64);
    assert_eq!(setup.pump(), Progress::Waiting);
    second = Stream::new();
    let (ours, _peer) = UnixStream::pair().unwrap();
    let mut transport = second_transport(&setup, ours);
    second.push_file(&file, 0..bytes.len() as u64, setup.policy);
    second.pump(&mut setup.ring, &mut setup.disk, &mut transport, OTHER);
    assert!(setup.disk.is_starved());
}

#[test]
fn a_stream_that_finds_no_buffer_stands_in_line_once() {
    let bytes = content(2 << 20);
    let dir = temp_dir();
    let path = cold_file(&dir, &bytes);
    let config = DiskConfig { depth: 1, ..DiskConfig::default() };
    let (mut setup, _theirs) = Setup::with(Choice::Uring, Policy::default(), config);
    let file = setup.open(&path);
    setup.push(&file, 0..bytes.len() as u64);
    assert_eq!(setup.pump(), Progress::Waiting);
    assert!(!setup.disk.has_room());
    let (ours, _peer) = UnixStream::pair().unwrap();
    let mut transport = second_transport(&setup, ours);
    let mut second = Stream::new();
    second.push_file(&file, 0..bytes.len() as u64, setup.policy);
    for _ in 0..3 {
        let progress = second.pump(&mut setup.ring, &mut setup.disk, &mut transport, OTHER);
        assert_eq!(progress, Progress::Waiting);
    }
    assert_eq!(setup.disk.next_waiting(), None, "there is still no room");
    while !setup.disk.has_room() {
        setup.wait();
    }
    assert_eq!(setup.disk.next_waiting(), Some(OTHER));
    assert_eq!(setup.disk.next_waiting(), None);
}
