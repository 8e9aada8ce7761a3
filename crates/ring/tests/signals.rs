//! Signals to a process with several threads: the rings' own threads ignore them, and each signal goes to
//! one ring. This test is a program of its own because it blocks signals before a second thread exists.

use core::time::Duration;
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;

use ring::{Choice, Completion, Entry, Event, Key, Op, Ring, Signal};

const PATIENCE: Duration = Duration::from_secs(20);

/// Lets another process send a signal to this one; returns that process.
fn send(signal: i32) -> u32 {
    let mut command = Command::new("sh");
    // The shell itself sends it.
    command.arg("-c").arg(format!("kill -{signal} {}", std::process::id()));
    let mut shell = command.stdin(Stdio::null()).spawn().unwrap();
    let pid = shell.id();
    assert!(shell.wait().unwrap().success());
    pid
}

fn next(ring: &mut Ring, key: Key) -> Option<Completion> {
    let end = ring.now() + PATIENCE;
    let mut completions = Vec::new();
    while ring.now() < end {
        ring.wait(Some(end), &mut completions).unwrap();
        if let Some(at) = completions.iter().position(|one| one.key == key) {
            return Some(completions.swap_remove(at));
        }
    }
    None
}

/// A helper thread that was started before the signals were blocked would run their default action.
fn helper_threads_leave_signals_alone(choice: Choice, signal: i32) {
    let mut ring = Ring::new(choice).unwrap();
    let dir = ring.adopt_file(OwnedFd::from(std::fs::File::open("/").unwrap()));
    let order = |a: &Entry, b: &Entry| a.name.cmp(&b.name);
    let list = ring.submit(Op::List { dir, entries_max: 10, order, targets: None }, 0);
    assert!(next(&mut ring, list).unwrap().result.is_ok());
    ring::block_signals(&[signal]).unwrap();
    let key = ring.submit(Op::Signal(signal), 0);
    for _ in 0..10 {
        let sender = send(signal);
        let completion = next(&mut ring, key).expect("the signal comes");
        let expected = Signal { number: signal, sender: Some(sender) };
        assert!(matches!(completion.result, Ok(Event::Signal(signal)) if signal == expected));
    }
}

fn each_signal_goes_to_one_ring(choice: Choice) {
    const SIGNALS: usize = 20;
    let (ready, is_ready) = mpsc::channel();
    let (seen, signals) = mpsc::channel();
    let mut wakers = Vec::new();
    let threads: Vec<_> = (0..3)
        .map(|_| {
            let (ready, seen) = (ready.clone(), seen.clone());
            let thread = thread::spawn(move || {
                let mut ring = Ring::new(choice).unwrap();
                let waker = ring.waker(0).unwrap();
                ring.submit(Op::Signal(libc::SIGHUP), 1);
                let mut completions = Vec::new();
                ring.wait(Some(ring.now()), &mut completions).unwrap();
                ready.send(waker).unwrap();
                loop {
                    ring.wait(None, &mut completions).unwrap();
                    for completion in completions.drain(..) {
                        match completion.result.unwrap() {
                            Event::Signal(signal) => seen.send(signal).unwrap(),
                            _ => return,
                        }
                    }
                }
            });
            wakers.push(is_ready.recv().unwrap());
            thread
        })
        .collect();
    for _ in 0..SIGNALS {
        let sender = send(libc::SIGHUP);
        let signal = signals.recv_timeout(PATIENCE).expect("one ring reports it");
        assert_eq!(signal, Signal { number: libc::SIGHUP, sender: Some(sender) });
    }
    wakers.iter().for_each(ring::Waker::wake);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert!(signals.try_recv().is_err(), "no ring reports it again");
}

fn main() {
    for (choice, signal) in [(Choice::Uring, libc::SIGTERM), (Choice::Epoll, libc::SIGUSR1)] {
        helper_threads_leave_signals_alone(choice, signal);
    }
    ring::block_signals(&[libc::SIGHUP]).unwrap();
    each_signal_goes_to_one_ring(Choice::Uring);
    each_signal_goes_to_one_ring(Choice::Epoll);
}
