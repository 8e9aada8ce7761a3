//! Resident bytes for a transport that sends only from memory: they are copied without a read, on both drivers.

use std::fs::{self, File as StdFile, OpenOptions};
use std::io::Read as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::rc::Rc;

use ring::{Choice, Event, Op, Ring, Token};
use sendfile::{
    Caching, Disk, DiskConfig, DiskStats, Failure, File, KernelTcp, Owner, Piece, Policy, Progress,
    Stream, Transport as _,
};

const RECV: Token = 1;
const WRITABLE: Token = 2;
const DISK: Token = 1 << 40;
const DRIVERS: [Choice; 2] = [Choice::Uring, Choice::Epoll];
const HEAD: &[u8] = b"what comes first";
const SIZE: usize = 3_000_001;

fn content() -> Vec<u8> {
    (0..SIZE).map(|at| u8::try_from((at * 31 + at / 4096) % 251).unwrap()).collect()
}

/// A stream to a peer over a socket that sends only from memory.
struct Setup {
    ring: Ring,
    disk: Disk,
    stream: Stream,
    transport: KernelTcp,
    file: Rc<File>,
}

impl Setup {
    fn new(choice: Choice, path: &Path) -> (Self, UnixStream) {
        let mut ring = Ring::new(choice).unwrap();
        let fd = ring.adopt_file(StdFile::open(path).unwrap().into());
        ring.submit(Op::Stat(fd.clone()), 1);
        let mut completions = Vec::new();
        while completions.is_empty() {
            ring.wait(None, &mut completions).unwrap();
        }
        let Ok(Event::Stat(stat)) = completions.remove(0).result else { panic!("no stat") };
        let disk = Disk::new(DiskConfig { token_base: DISK, ..DiskConfig::default() }).unwrap();
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let transport = KernelTcp::new(ring.adopt_socket(ours.into()), RECV, WRITABLE).of_memory();
        let file = Rc::new(File::new(fd, &stat));
        (Self { ring, disk, stream: Stream::new(), transport, file }, theirs)
    }

    fn push(&mut self, caching: Caching) {
        let policy = Policy { caching, ..Policy::default() };
        self.stream.push(Piece::Static(HEAD));
        self.stream.push_file(&self.file, 0..self.file.size(), policy);
    }

    fn pump(&mut self) -> Progress {
        let Self { ring, disk, stream, transport, .. } = self;
        stream.pump(ring, disk, transport, Owner::of(7))
    }

    fn wait(&mut self) {
        let mut completions = Vec::new();
        while completions.is_empty() {
            self.ring.wait(None, &mut completions).unwrap();
        }
        for completion in completions {
            if !self.disk.owns(completion.token) {
                self.transport.handle_writable();
            } else if let Some(done) = self.disk.handle(&mut self.ring, completion) {
                self.stream.handle_read(done);
            }
        }
    }

    /// Sends until the stream ends.
    fn finish(&mut self) -> Progress {
        loop {
            let before = self.stream.sent();
            let progress = self.pump();
            let sent = self.stream.sent() - before;
            assert!(sent <= 320 * 1024, "{sent} bytes in a turn");
            match progress {
                Progress::More => {}
                Progress::Blocked | Progress::Waiting => self.wait(),
                end => {
                    self.transport.shutdown(&mut self.ring);
                    return end;
                }
            }
        }
    }
}

/// A peer that reads everything.
fn reader(mut socket: UnixStream) -> impl FnOnce() -> Vec<u8> {
    let thread = std::thread::spawn(move || {
        let mut all = Vec::new();
        socket.read_to_end(&mut all).unwrap();
        all
    });
    move || thread.join().unwrap()
}

/// A file that has been written just now, so it is resident.
fn file() -> (tempfile::TempDir, std::path::PathBuf) {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = dir.path().join("file");
    fs::write(&path, content()).unwrap();
    (dir, path)
}

#[test]
fn what_is_resident_is_copied_and_not_read() {
    for choice in DRIVERS {
        for caching in [Caching::Always, Caching::Popular, Caching::Never] {
            let (_dir, path) = file();
            let (mut setup, theirs) = Setup::new(choice, &path);
            // It takes more than the bytes of a turn in one call.
            let socket = setup.transport.socket().os();
            rustix::net::sockopt::set_socket_send_buffer_size(socket, 4 << 20).unwrap();
            let all = reader(theirs);
            setup.push(caching);
            assert_eq!(setup.finish(), Progress::Drained);
            assert!(all() == [HEAD, &content()].concat(), "{choice:?} {caching:?}: other bytes");
            let DiskStats { hits, hit_bytes, misses, .. } = setup.disk.stats();
            assert_eq!((hit_bytes, misses), (SIZE as u64, 0), "{choice:?} {caching:?}");
            assert!(hits < 60, "{choice:?} {caching:?}: {hits} copies");
            assert_eq!(setup.disk.buffers_lent(), 0);
        }
    }
}

#[test]
fn what_is_missing_is_read_behind_what_is_resident() {
    for choice in DRIVERS {
        let (_dir, path) = file();
        testkit::evict(&path);
        let mut resident = StdFile::open(&path).unwrap();
        rustix::fs::fadvise(&resident, 0, None, rustix::fs::Advice::Random).unwrap();
        resident.read_exact(&mut vec![0; 500_000]).unwrap();
        let (mut setup, theirs) = Setup::new(choice, &path);
        let all = reader(theirs);
        setup.push(Caching::Always);
        assert_eq!(setup.finish(), Progress::Drained);
        assert!(all() == [HEAD, &content()].concat(), "{choice:?}: other bytes");
        let DiskStats { hit_bytes, misses, miss_bytes, .. } = setup.disk.stats();
        assert_eq!(hit_bytes + miss_bytes, SIZE as u64);
        assert!(hit_bytes > 0 && misses > 0, "{choice:?}: {hit_bytes} bytes, {misses} reads");
    }
}

#[test]
fn a_file_that_becomes_shorter_fails_the_stream_behind_its_true_bytes() {
    for choice in DRIVERS {
        let (_dir, path) = file();
        let (mut setup, mut theirs) = Setup::new(choice, &path);
        setup.push(Caching::Always);
        setup.stream.push(Piece::Static(b"what follows"));
        assert_eq!(setup.pump(), Progress::Blocked);
        OpenOptions::new().write(true).open(&path).unwrap().set_len(1_000_001).unwrap();
        let mut all = Vec::new();
        theirs.set_nonblocking(true).unwrap();
        let end = loop {
            match setup.pump() {
                Progress::Blocked => {
                    // It takes everything that is there.
                    let _ = theirs.read_to_end(&mut all);
                    setup.wait();
                }
                Progress::Waiting => setup.wait(),
                Progress::More => {}
                end => break end,
            }
        };
        assert_eq!(end, Progress::Failed(Failure::Truncated), "{choice:?}");
        drop(setup);
        // The kernel ends a ring in the background, so the socket may be closed a moment later.
        theirs.set_nonblocking(false).unwrap();
        theirs.read_to_end(&mut all).unwrap();
        let expected = [HEAD, &content()].concat();
        assert!(all.len() <= HEAD.len() + 1_000_001 && expected.starts_with(&all), "{choice:?}");
    }
}

#[test]
fn a_peer_that_takes_nothing_holds_few_bytes_and_gives_them_back() {
    for choice in DRIVERS {
        let (_dir, path) = file();
        let (mut setup, theirs) = Setup::new(choice, &path);
        setup.push(Caching::Always);
        assert_eq!(setup.pump(), Progress::Blocked);
        assert!(setup.stream.held() <= 64 * 1024, "{choice:?}: {} bytes", setup.stream.held());
        setup.stream.reclaim(setup.ring.now());
        assert_eq!((setup.stream.held(), setup.disk.buffers_lent()), (0, 0), "{choice:?}");
        let all = reader(theirs);
        assert_eq!(setup.finish(), Progress::Drained);
        assert!(all() == [HEAD, &content()].concat(), "{choice:?}: other bytes");
        assert_eq!(setup.disk.stats().misses, 0, "{choice:?}: it is copied again");
    }
}
