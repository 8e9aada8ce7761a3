//! Reads that bypass the page cache, for transports that send only from memory, on the file system of the build
//! directory.

use std::fs::{self, File as StdFile};
use std::io::Write as _;
use std::path::Path;
use std::rc::Rc;

use outq::OutQ;
use ring::{Choice, Completion, Event, Op, Ring};
use rustix::fs::OFlags;
use sendfile::{
    Caching, Disk, DiskConfig, Drained, Failure, File, Owner, Piece, Policy, Progress, Stream,
    Takes, Transport,
};

const DISK: u64 = 1 << 40;
/// No multiple of a block of any disk, and more than one read.
const SIZE: usize = 3_000_001;

/// A peer that receives everything at once.
#[derive(Default)]
struct Sink(Vec<u8>);

impl Transport for Sink {
    fn takes(&self) -> Takes {
        Takes::Memory
    }

    fn drain(&mut self, _ring: &mut Ring, queue: &mut OutQ<Piece>, budget: &mut u64) -> Drained {
        loop {
            let Some(chunk) = queue.next_ready().next() else { return Drained::Empty };
            let [start, end] =
                [chunk.range.start, chunk.range.end].map(|at| usize::try_from(at).unwrap());
            self.0.extend_from_slice(&chunk.payload.bytes()[start..end]);
            let len = chunk.len();
            *budget = budget.saturating_sub(len);
            queue.mark_sent(len);
            queue.mark_released(len);
        }
    }

    fn receive<'a>(
        &'a mut self,
        bytes: &'a [u8],
        _queue: &mut OutQ<Piece>,
    ) -> Result<&'a [u8], Failure> {
        Ok(bytes)
    }

    fn handle_writable(&mut self) {}
    fn is_blocked(&self) -> bool {
        false
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

fn wait(ring: &mut Ring) -> Vec<Completion> {
    let mut completions = Vec::new();
    while completions.is_empty() {
        ring.wait(None, &mut completions).unwrap();
    }
    completions
}

/// Returns whether a descriptor of this process reads a file with `O_DIRECT` (proc_pid_fdinfo(5)).
fn is_direct(path: &Path) -> bool {
    let all = fs::read_dir("/proc/self/fd").unwrap().flatten();
    all.filter(|entry| fs::read_link(entry.path()).is_ok_and(|target| target == path)).any(
        |entry| {
            let info = Path::new("/proc/self/fdinfo").join(entry.file_name());
            let info = fs::read_to_string(info).unwrap_or_default();
            let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
            let flags = flags.and_then(|flags| u32::from_str_radix(flags.trim(), 8).ok());
            flags.is_some_and(|flags| flags & OFlags::DIRECT.bits() != 0)
        },
    )
}

/// Sends ranges of a cold file; returns whether the reads bypassed the page cache. `None` where there are no such
/// reads.
fn send(choice: Choice, caching: Caching) -> Option<bool> {
    let content: Vec<u8> =
        (0..SIZE).map(|at| u8::try_from((at * 31 + at / 4096) % 251).unwrap()).collect();
    let mut file = tempfile::NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    file.write_all(&content).unwrap();
    testkit::evict(file.path());
    let mut ring = Ring::new(choice).unwrap();
    let fd = ring.adopt_file(StdFile::open(file.path()).unwrap().into());
    ring.submit(Op::Stat(fd.clone()), 1);
    let Ok(Event::Stat(stat)) = wait(&mut ring).remove(0).result else { panic!("no stat") };
    if stat.direct_align == 0 {
        return None;
    }
    let config = DiskConfig { token_base: DISK, ..DiskConfig::default() };
    let mut disk = Disk::new(config).unwrap();
    let opened = Rc::new(File::new(fd, &stat));
    let (mut stream, mut sink, mut expected) = (Stream::new(), Sink::default(), Vec::new());
    for range in [0..SIZE, 1..SIZE, 4096..1_000_000, SIZE - 1..SIZE] {
        let policy = Policy { caching, ..Policy::default() };
        stream.push_file(&opened, range.start as u64..range.end as u64, policy);
        expected.extend_from_slice(&content[range]);
    }
    let mut was_direct = false;
    loop {
        match stream.pump(&mut ring, &mut disk, &mut sink, Owner::of(1)) {
            Progress::Drained => break,
            Progress::More => continue,
            Progress::Waiting => {}
            progress => panic!("{progress:?}"),
        }
        for completion in wait(&mut ring) {
            assert!(disk.owns(completion.token));
            if let Some(done) = disk.handle(&mut ring, completion) {
                stream.handle_read(done);
            }
        }
        was_direct |= is_direct(file.path());
    }
    assert!(sink.0 == expected, "other bytes than the file has");
    assert_eq!(disk.buffers_lent(), 0);
    Some(was_direct)
}

#[test]
fn what_is_not_to_stay_in_the_page_cache_is_read_past_it() {
    for choice in [Choice::Uring, Choice::Epoll] {
        let Some(was_direct) = send(choice, Caching::Never) else {
            return eprintln!("not tested: this file system has no reads past the page cache");
        };
        assert!(was_direct, "{choice:?}");
        assert_eq!(send(choice, Caching::Always), Some(false), "{choice:?}");
    }
}
