//! A ring that waits is idle: the kernel does not count its thread as one that sleeps for a disk.

use core::time::Duration;
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::thread;

use ring::{Choice, Op, Ring};

/// Without root, or before Linux 6.15, the test cannot see it.
#[test]
fn a_wait_for_a_peer_is_no_wait_for_a_disk() {
    const SETTING: &str = "/proc/sys/kernel/task_delayacct";
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers =
        release.split(|c: char| !c.is_ascii_digit()).map(|text| text.parse().unwrap_or(0));
    let version = [(); 2].map(|()| numbers.next().unwrap_or(0));
    if version < [6, 15] {
        eprintln!("skipped: Linux {} counts waits of io_uring as waits for a disk", release.trim());
        return;
    }
    let before = fs::read_to_string(SETTING).unwrap_or_default();
    // The setting is for threads that are made from now on.
    if let Err(error) = fs::write(SETTING, "1") {
        eprintln!("skipped: {SETTING}: {error}");
        return;
    }
    let ticks = thread::spawn(|| {
        let mut ring = Ring::new(Choice::Uring).unwrap();
        let (socket, _peer) = UnixStream::pair().unwrap();
        let socket = ring.adopt_socket(OwnedFd::from(socket));
        ring.submit(Op::Recv(socket), 0);
        for _ in 0..3 {
            let until = ring.now() + Duration::from_millis(100);
            ring.wait(Some(until), &mut Vec::new()).unwrap();
        }
        ticks_for_disks()
    });
    let ticks = ticks.join().unwrap();
    fs::write(SETTING, before.trim()).unwrap();
    assert_eq!(ticks, 0, "of 300 ms");
}

/// The time that this thread has slept for disks, in ticks of 10 ms (`delayacct_blkio_ticks`, proc_pid_stat(5)).
fn ticks_for_disks() -> u64 {
    let stat = fs::read_to_string("/proc/thread-self/stat").unwrap();
    // The name, in parentheses, may contain anything; the state after it is field 3.
    let (_, fields) = stat.rsplit_once(") ").unwrap();
    fields.split_whitespace().nth(42 - 3).unwrap().parse().unwrap()
}
