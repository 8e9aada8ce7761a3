//! Ending operations, and rings, before they are done.

use std::ffi::CString;
use std::io::IoSlice;

use ring::{DriverKind, Event, Fd, Key, Op, OpenHow, SPARE_ACCEPTS_MAX};

use super::files::BY_NAME;
use super::stage::{Stage, pattern};

on_every_driver!(
    waiting_operations_end_once,
    a_cancelled_receive_can_be_followed_by_another,
    an_accept_can_follow_a_cancelled_one,
    two_accepts_share_a_listener_until_one_is_cancelled,
    spare_accepts_are_limited,
    cancelling_what_is_done_does_nothing,
    a_late_end_is_not_taken_for_another_operation,
    file_operations_end_once_when_cancelled,
    a_cancelled_starved_receive_ends,
    a_ring_dropped_with_everything_in_flight,
    what_was_received_outlives_the_ring,
);

#[track_caller]
fn ends_cancelled(s: &mut Stage, key: Key) {
    s.ring.cancel(key);
    assert_eq!(s.error(key).raw_os_error(), Some(libc::ECANCELED));
    s.ring.cancel(key);
    assert!(s.rest().is_empty(), "the last completion comes once");
}

fn waiting_operations_end_once(s: &mut Stage) {
    let (socket, mut peer) = s.pair();
    peer.stop_reading();
    s.fill(&socket);
    let (listener, _) = s.listener();
    let recv = s.ring.submit(Op::Recv(socket.clone()), 0);
    let writable = s.ring.submit(Op::Writable(socket.clone()), 0);
    let accept = s.ring.submit(Op::Accept(listener), 0);
    s.pause();
    ends_cancelled(s, recv);
    ends_cancelled(s, writable);
    ends_cancelled(s, accept);
    let readable = s.ring.submit(Op::Readable(socket), 0);
    ends_cancelled(s, readable);
    assert_eq!(s.ring.in_flight(), 0);
}

fn a_cancelled_receive_can_be_followed_by_another(s: &mut Stage) {
    let (socket, mut peer) = s.pair();
    for _ in 0..20 {
        let recv = s.ring.submit(Op::Recv(socket.clone()), 0);
        s.ring.cancel(recv);
        while s.next(recv).more {}
    }
    peer.send(b"still there");
    peer.shutdown_write();
    s.pause();
    let recv = s.ring.submit(Op::Recv(socket), 0);
    assert_eq!(s.received_bytes(recv, 11), b"still there");
    s.eof(recv);
}

fn an_accept_can_follow_a_cancelled_one(s: &mut Stage) {
    let (listener, address) = s.listener();
    let first = s.ring.submit(Op::Accept(listener.clone()), 0);
    let _peer = s.connect(address);
    s.accepted(first);
    ends_cancelled(s, first);
    let _other = s.connect(address);
    assert!(s.rest().is_empty(), "nobody accepts");
    let second = s.ring.submit(Op::Accept(listener), 0);
    s.accepted(second);
}

fn two_accepts_share_a_listener_until_one_is_cancelled(s: &mut Stage) {
    for cancelled in 0..2 {
        let (listener, address) = s.listener();
        let (_other_listener, other) = {
            let (fd, address) = s.listener();
            (s.ring.submit(Op::Accept(fd), 0), address)
        };
        let accepts = [0, 1].map(|_| s.ring.submit(Op::Accept(listener.clone()), 0));
        for round in 0..4 {
            let _peers = [s.connect(address), s.connect(other)];
            let accepted = s.rest();
            let ours = accepted.iter().filter(|one| accepts.contains(&one.key)).count();
            assert_eq!((ours, accepted.len()), (1, 2), "round {round}");
        }
        ends_cancelled(s, accepts[cancelled]);
        for _ in 0..4 {
            let _peer = s.connect(address);
            s.accepted(accepts[1 - cancelled]);
        }
        ends_cancelled(s, accepts[1 - cancelled]);
        let _peer = s.connect(address);
        assert!(s.rest().is_empty(), "nothing accepts");
        // The listener can be accepted from again.
        let again = s.ring.submit(Op::Accept(listener), 0);
        s.accepted(again);
    }
}

/// A listener's first accept counts for no limit.
fn spare_accepts_are_limited(s: &mut Stage) {
    let (listener, address) = s.listener();
    let (other, other_address) = s.listener();
    let accept = |s: &mut Stage, listener: &Fd| s.ring.submit(Op::Accept(listener.clone()), 0);
    let accepts: Vec<_> = (0..=SPARE_ACCEPTS_MAX).map(|_| accept(s, &listener)).collect();
    let first_of_other = accept(s, &other);
    if s.ring.kind() != DriverKind::Uring {
        for listener in [&listener, &other] {
            let further = accept(s, listener);
            assert_eq!(s.error(further).raw_os_error(), Some(libc::ENOBUFS));
        }
    }
    let _peer = s.connect(other_address);
    s.accepted(first_of_other);
    // A spare accept replaces the first, and leaves its own slot to another.
    ends_cancelled(s, accepts[0]);
    let last = accept(s, &other);
    ends_cancelled(s, first_of_other);
    let _peers = [s.connect(address), s.connect(other_address)];
    s.accepted(last);
    let accepted = s.rest();
    assert!(accepted.len() == 1 && accepts[1..].contains(&accepted[0].key), "{accepted:?}");
}

fn cancelling_what_is_done_does_nothing(s: &mut Stage) {
    let (socket, _peer) = s.pair();
    let first = s.ring.submit(Op::Writable(socket.clone()), 0);
    s.next(first);
    s.ring.cancel(first);
    // The slot is used again, and a cancel of the old key must not reach it.
    let second = s.ring.submit(Op::Recv(socket), 0);
    assert_ne!(first, second);
    s.ring.cancel(first);
    assert!(s.rest().is_empty());
    assert_eq!(s.ring.in_flight(), 1);
}

fn a_late_end_is_not_taken_for_another_operation(s: &mut Stage) {
    let (socket, mut peer) = s.pair();
    let mut ended = 0;
    let mut bytes = Vec::new();
    let mut keys = Vec::new();
    for round in 0..50_u64 {
        let key = s.ring.submit(Op::Recv(socket.clone()), round);
        assert!(!keys.contains(&key));
        keys.push(key);
        peer.send(&[u8::try_from(round).unwrap()]);
        if round % 3 == 0 {
            s.pause();
        }
        s.ring.cancel(key);
        loop {
            let completion = s.next(key);
            assert_eq!(completion.token, round);
            match completion.result {
                Ok(Event::Received(buf)) => bytes.extend_from_slice(&buf),
                Ok(other) => panic!("{other:?}"),
                Err(error) => assert_eq!(error.raw_os_error(), Some(libc::ECANCELED)),
            }
            if !completion.more {
                ended += 1;
                break;
            }
        }
    }
    assert_eq!(ended, 50);
    let recv = s.ring.submit(Op::Recv(socket), 99);
    let left = 50 - bytes.len();
    bytes.extend(s.received_bytes(recv, left));
    assert!(bytes.into_iter().eq(0..50), "nothing lost, nothing twice");
}

fn file_operations_end_once_when_cancelled(s: &mut Stage) {
    s.write_file("file", &pattern(1 << 20));
    let file = s.open("file");
    for _ in 0..5 {
        s.evict("file");
        let dir = s.root();
        let path = CString::new("file").unwrap();
        let mut keys = Vec::new();
        for at in 0..40 {
            let op = s.read_op(&file, at * 16_384, 16_384);
            keys.push(s.ring.submit(op, 0));
            keys.push(s.ring.submit(Op::Stat(file.clone()), 0));
            keys.push(s.ring.submit(
                Op::List { dir: dir.clone(), entries_max: 9, order: BY_NAME, targets: None },
                0,
            ));
            let (dir, path, how) = (Some(dir.clone()), path.clone(), OpenHow::BENEATH);
            keys.push(s.ring.submit(Op::Open { dir, path, how }, 0));
        }
        for key in &keys {
            s.ring.cancel(*key);
        }
        for key in keys {
            let completion = s.next(key);
            assert!(!completion.more);
            match completion.result {
                Ok(Event::Read(buf)) => assert!(!buf.is_empty()),
                Ok(Event::Stat(_) | Event::Listed(_) | Event::Opened(_)) => {}
                Ok(other) => panic!("{other:?}"),
                Err(error) => assert_eq!(error.raw_os_error(), Some(libc::ECANCELED)),
            }
        }
        assert!(s.rest().is_empty());
    }
    assert_eq!(s.ring.in_flight(), 0);
    assert_eq!(s.pool.available(), s.pool.count());
}

fn a_cancelled_starved_receive_ends(s: &mut Stage) {
    let (socket, mut peer) = s.pair();
    let recv = s.ring.submit(Op::Recv(socket), 0);
    peer.send(&pattern(2 << 20));
    let held = s.rest();
    s.ring.cancel(recv);
    loop {
        let completion = s.next(recv);
        if !completion.more {
            assert_eq!(completion.result.unwrap_err().raw_os_error(), Some(libc::ECANCELED));
            break;
        }
    }
    drop(held);
    assert!(s.rest().is_empty());
}

/// Submit one of everything that waits or takes time.
fn one_of_each(s: &mut Stage) -> Fd {
    s.write_file("file", &pattern(1 << 20));
    s.evict("file");
    let file = s.open("file");
    let (listener, address) = s.listener();
    s.ring.submit(Op::Accept(listener), 0);
    let (socket, mut peer) = s.pair();
    peer.stop_reading();
    s.fill(&socket);
    s.ring.submit(Op::Recv(socket.clone()), 0);
    s.ring.submit(Op::Writable(socket), 0);
    s.block_signal(libc::SIGUSR1);
    s.ring.submit(Op::Signal(libc::SIGUSR1), 0);
    let mut child = s.child();
    s.ring.submit(Op::Child(child.id()), 0);
    child.kill();
    let dir = s.root();
    for at in 0..16 {
        let op = s.read_op(&file, at * 65_536, 65_536);
        s.ring.submit(op, 0);
        s.ring.submit(Op::Watch { root: dir.clone(), path: c"".into() }, 0);
        s.ring.submit(Op::WatchFile { root: dir.clone(), path: c"file".into() }, 0);
        s.ring.submit(Op::Stat(file.clone()), 0);
        s.ring.submit(
            Op::List { dir: dir.clone(), entries_max: 10, order: BY_NAME, targets: None },
            0,
        );
        s.ring.submit(Op::FileSystem(file.clone()), 0);
        s.ring.submit(Op::Extents(file.clone()), 0);
        s.ring.submit(Op::Discard { file: file.clone(), offset: 0, len: 4096 }, 0);
        let (dir, how) = (Some(dir.clone()), OpenHow::BENEATH);
        s.ring.submit(Op::Open { dir, path: c"file".into(), how }, 0);
        s.ring.submit(Op::Timer(s.ring.now() + core::time::Duration::from_secs(100)), 0);
    }
    s.ring.waker(0).unwrap().wake();
    peer.send(b"unread");
    drop(s.connect(address));
    file
}

fn a_ring_dropped_with_everything_in_flight(s: &mut Stage) {
    for turns in 0..4 {
        let file = one_of_each(s);
        for _ in 0..turns {
            let mut completions = Vec::new();
            s.ring.wait(Some(s.ring.now()), &mut completions).unwrap();
        }
        s.replace_ring();
        assert_eq!(s.pool.available(), s.pool.count(), "all buffers came back");
        drop(file);
        s.remove_file("file");
    }
}

fn what_was_received_outlives_the_ring(s: &mut Stage) {
    let (socket, mut peer) = s.pair();
    let recv = s.ring.submit(Op::Recv(socket.clone()), 0);
    peer.send(b"keep me");
    let buf = s.received(recv);
    s.ring.send(&socket, &[IoSlice::new(b"x")], false).unwrap();
    s.replace_ring();
    assert!(b"keep me".starts_with(&buf) && !buf.is_empty());
}
