//! A ring that the kernel no longer serves: it returns an errno, never hangs, and frees nothing
//! early.

use core::time::Duration;
use std::io::IoSlice;
use std::os::unix::net::UnixStream;
use std::sync::mpsc;
use std::thread;
use std::time::Instant;

use ring::{BufferPool, Caching, Choice, Op, Ring};
use seccompiler::{SeccompAction, SeccompFilter, apply_filter};

const EAGAIN: i32 = 11;
const ENOMEM: i32 = 12;
const EBUSY: i32 = 16;
/// Long enough for a loaded machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// From now on each `io_uring_enter` of this thread fails with `errno`.
fn refuse(errno: i32) {
    const IO_URING_ENTER: i64 = 426;
    let arch = std::env::consts::ARCH.try_into().unwrap();
    let action = SeccompAction::Errno(errno.unsigned_abs());
    let rules = [(IO_URING_ENTER, Vec::new())].into();
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, action, arch).unwrap();
    let program: seccompiler::BpfProgram = filter.try_into().unwrap();
    apply_filter(&program).unwrap();
}

/// In a thread of its own, which must end in time.
fn within_patience(test: impl FnOnce() + Send + 'static) {
    let (done, ended) = mpsc::channel();
    let thread = thread::spawn(move || {
        test();
        done.send(()).unwrap();
    });
    let result = ended.recv_timeout(PATIENCE);
    assert_ne!(result, Err(mpsc::RecvTimeoutError::Timeout), "it hangs");
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

fn with_operations_in_flight(errno: i32) -> (Ring, UnixStream) {
    let mut ring = Ring::new(Choice::Uring).unwrap();
    let (ours, theirs) = UnixStream::pair().unwrap();
    let socket = ring.adopt_socket(ours.into());
    ring.submit(Op::Recv(socket.clone()), 0);
    let until = Some(ring.now());
    ring.wait(until, &mut Vec::new()).unwrap();
    let file = ring.adopt_file(std::fs::File::open("/proc/self/exe").unwrap().into());
    let pool = BufferPool::new(4096, 4).unwrap();
    refuse(errno);
    let buf = pool.take(4096).unwrap();
    ring.submit(Op::Read { file, offset: 0, buf, caching: Caching::Keep }, 1);
    assert_eq!(ring.send(&socket, &[IoSlice::new(b"x")], false).unwrap(), 1);
    (ring, theirs)
}

#[test]
fn a_ring_that_is_refused_for_good_says_so_each_time() {
    within_patience(|| {
        let (mut ring, ..) = with_operations_in_flight(ENOMEM);
        for _ in 0..3 {
            let error = ring.wait(None, &mut Vec::new()).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(ENOMEM));
        }
        // Dropping it does not wait for what will never be said.
    });
}

#[test]
fn a_refusal_that_does_not_pass_ends_the_ring() {
    for errno in [EAGAIN, EBUSY] {
        within_patience(move || {
            let (mut ring, ..) = with_operations_in_flight(errno);
            let began = Instant::now();
            let error = loop {
                if let Err(error) = ring.wait(None, &mut Vec::new()) {
                    break error;
                }
            };
            assert_eq!(error.raw_os_error(), Some(errno));
            assert!(began.elapsed() > Duration::from_millis(900), "it may pass");
        });
    }
}

/// More than the queue of submissions holds: submitting does not wait for the kernel.
#[test]
fn submitting_does_not_wait_for_a_kernel_that_refuses() {
    within_patience(|| {
        let mut ring = Ring::new(Choice::Uring).unwrap();
        let file = ring.adopt_file(std::fs::File::open("/proc/self/exe").unwrap().into());
        refuse(EAGAIN);
        for _ in 0..5000 {
            ring.submit(Op::Stat(file.clone()), 0);
        }
        assert_eq!(ring.in_flight(), 5000);
    });
}
