//! A ring that is dropped while a slow disk has not answered. `libsamum` (`tests/hung.c`) tests a disk that never
//! answers. There the file system must belong to another process, because a leaked file stays open until its process
//! ends.

use core::time::Duration;
use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::time::Instant;

use ring::{BufferPool, Caching, Choice, Fd, Op, OpenHow, Ring};
use testkit::{Op as Slow, SlowFs, or_skip};

const LIMIT: Duration = Duration::from_millis(300);
/// The limit of the drop: long enough for a loaded machine.
const PATIENCE: Duration = Duration::from_secs(10);

fn ring(choice: Choice, limit: Duration) -> Ring {
    let mut ring = Ring::new(choice).unwrap();
    ring.set_drop_limit(Some(limit));
    ring
}

/// Submits a read, an open and a listing, and goes on for a moment.
fn begin(ring: &mut Ring, root: &Fd, file: &Fd, pool: &BufferPool) {
    let buf = pool.take(4096).unwrap();
    ring.submit(Op::Read { file: file.clone(), offset: 0, buf, caching: Caching::Keep }, 1);
    ring.submit(
        Op::Open { dir: Some(root.clone()), path: c"late".into(), how: OpenHow::BENEATH },
        2,
    );
    ring.submit(
        Op::List {
            dir: root.clone(),
            entries_max: 10,
            order: |a, b| a.name.cmp(&b.name),
            targets: None,
        },
        3,
    );
    let (until, mut completions) = (ring.now() + LIMIT, Vec::new());
    while ring.now() < until {
        ring.wait(Some(until), &mut completions).unwrap();
        assert!(completions.is_empty(), "{completions:?}");
    }
}

#[test]
fn a_drop_with_a_limit_waits_for_a_disk_that_answers() {
    for choice in [Choice::Uring, Choice::Epoll] {
        let slow = or_skip!(SlowFs::builder().file("data", "data").file("late", "late").mount());
        slow.set_delay(Slow::Read, LIMIT * 2);
        slow.set_delay_of("late", Slow::Open, LIMIT * 2);
        slow.set_delay(Slow::Readdir, LIMIT * 2);
        let mut ring = ring(choice, PATIENCE);
        let root = ring.adopt_file(File::open(slow.path()).unwrap().into());
        let file = ring.adopt_file(File::open(slow.path().join("data")).unwrap().into());
        let pool = BufferPool::new(4096, 2).unwrap();
        begin(&mut ring, &root, &file, &pool);
        drop((root, file, ring));
        assert_eq!(pool.available(), 2, "{choice:?}: nothing refers to the buffer");
    }
}

/// More files than one device may have closed at a time.
#[test]
fn a_drop_with_a_limit_does_not_wait_for_files_that_are_closed_late() {
    for choice in [Choice::Uring, Choice::Epoll] {
        let slow = or_skip!(SlowFs::builder().file("data", "data").mount());
        let mut ring = ring(choice, LIMIT);
        let open = || File::open(slow.path().join("data")).unwrap();
        let files: Vec<Fd> = (0..20).map(|_| ring.adopt_file(open().into())).collect();
        slow.set_delay(Slow::Flush, PATIENCE * 3);
        drop(files);
        let until = ring.now() + LIMIT;
        ring.wait(Some(until), &mut Vec::new()).unwrap();
        let begun = Instant::now();
        drop(ring);
        assert!(begun.elapsed() < PATIENCE, "{choice:?}: {:?}", begun.elapsed());
        slow.set_delay(Slow::Flush, Duration::ZERO);
    }
}

#[test]
fn a_drop_with_a_limit_waits_for_files_that_are_closed_within_it() {
    for choice in [Choice::Uring, Choice::Epoll] {
        let slow = or_skip!(SlowFs::builder().file("data", "data").mount());
        let ring = ring(choice, PATIENCE);
        let file = File::open(slow.path().join("data")).unwrap();
        let fd = file.as_raw_fd();
        let file = ring.adopt_file(file.into());
        slow.set_delay(Slow::Flush, LIMIT);
        drop((file, ring));
        let open = std::fs::read_link(format!("/proc/self/fd/{fd}"));
        assert!(!open.is_ok_and(|path| path.starts_with(slow.path())), "{choice:?}");
        slow.set_delay(Slow::Flush, Duration::ZERO);
    }
}
