//! Reports of the bytes that the peer has acknowledged.

use std::io::IoSlice;

use ring::{Completion, Event, Fd, Key, Op};

use super::stage::{Family, Stage, pattern};

on_every_driver!(
    acknowledgements_are_reported,
    acknowledgements_of_a_slow_peer_come_one_after_the_other,
    only_what_is_sent_from_then_on_is_reported,
    nothing_is_reported_unasked,
    a_socket_is_not_writable_because_of_an_acknowledgement,
    receives_go_on_beside_acknowledgements,
    a_report_comes_once,
);

mod unix_sockets {
    //! The simulation's sockets are TCP.
    use super::*;
    on_real_drivers!(a_unix_socket_tells_nothing);
}

/// The number of bytes that a completion reports.
#[track_caller]
fn bytes_of(completion: Completion) -> u64 {
    assert!(completion.more);
    match completion.result.unwrap() {
        Event::Acknowledged(bytes) => bytes,
        other => panic!("{other:?}"),
    }
}

/// Waits until this many bytes have been acknowledged; `last` were before.
#[track_caller]
fn acknowledged(s: &mut Stage, key: Key, mut last: u64, bytes: u64) {
    while last < bytes {
        let acknowledged = bytes_of(s.next(key));
        assert!(acknowledged > last && acknowledged <= bytes, "{acknowledged} after {last}");
        last = acknowledged;
    }
}

fn send(s: &Stage, socket: &Fd, bytes: &[u8]) {
    assert_eq!(s.ring.send(socket, &[IoSlice::new(bytes)], false).unwrap(), bytes.len());
}

fn acknowledgements_are_reported(s: &mut Stage) {
    let (socket, mut peer) = s.pair();
    s.ring.report_acknowledgements(&socket).unwrap();
    let reports = s.ring.submit(Op::Acknowledgements(socket.clone()), 7);
    assert!(s.rest().is_empty(), "nothing was sent");
    send(s, &socket, b"hello");
    s.peer_gets(&mut peer, 5);
    acknowledged(s, reports, 0, 5);
    send(s, &socket, &pattern(3000));
    s.peer_gets(&mut peer, 3000);
    acknowledged(s, reports, 5, 3005);
    assert_eq!(s.ring.queued(&socket), 0);
    s.ring.cancel(reports);
    s.error(reports);
    assert!(s.rest().is_empty());
}

fn acknowledgements_of_a_slow_peer_come_one_after_the_other(s: &mut Stage) {
    let (socket, mut peer) = s.pair();
    s.ring.report_acknowledgements(&socket).unwrap();
    let reports = s.ring.submit(Op::Acknowledgements(socket.clone()), 0);
    peer.stop_reading();
    let total = s.fill(&socket);
    let before = s.rest().into_iter().map(bytes_of).last().unwrap_or(0);
    assert!(before < total as u64, "the peer has no room for all");
    s.peer_gets(&mut peer, total);
    acknowledged(s, reports, before, total as u64);
}

fn only_what_is_sent_from_then_on_is_reported(s: &mut Stage) {
    let (socket, mut peer) = s.pair();
    peer.stop_reading();
    send(s, &socket, b"before");
    s.ring.report_acknowledgements(&socket).unwrap();
    send(s, &socket, b"from then on");
    let reports = s.ring.submit(Op::Acknowledgements(socket), 0);
    s.peer_gets(&mut peer, 18);
    acknowledged(s, reports, 0, 12);
}

fn nothing_is_reported_unasked(s: &mut Stage) {
    let (socket, mut peer) = s.pair();
    let error = s.done(Op::Acknowledgements(socket.clone())).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
    send(s, &socket, b"hello");
    s.peer_gets(&mut peer, 5);
    assert!(s.rest().is_empty());
}

fn a_socket_is_not_writable_because_of_an_acknowledgement(s: &mut Stage) {
    let (socket, mut peer) = s.pair();
    s.ring.report_acknowledgements(&socket).unwrap();
    peer.stop_reading();
    s.fill(&socket);
    // The acknowledgement waits in the error queue.
    s.pause();
    let writable = s.ring.submit(Op::Writable(socket.clone()), 0);
    let reports = s.ring.submit(Op::Acknowledgements(socket), 0);
    let came = s.rest();
    assert!(came.iter().all(|one| one.key == reports), "{came:?}");
    while s.rest_now().iter().all(|one| one.key != writable) {
        peer.take();
    }
}

fn receives_go_on_beside_acknowledgements(s: &mut Stage) {
    let (socket, mut peer) = s.pair();
    s.ring.report_acknowledgements(&socket).unwrap();
    let recv = s.ring.submit(Op::Recv(socket.clone()), 0);
    let reports = s.ring.submit(Op::Acknowledgements(socket.clone()), 0);
    for round in 1..=20 {
        send(s, &socket, b"ping");
        s.peer_gets(&mut peer, 4);
        peer.send(b"pong");
        assert_eq!(s.received_bytes(recv, 4), b"pong");
        acknowledged(s, reports, 4 * (round - 1), 4 * round);
    }
}

fn a_report_comes_once(s: &mut Stage) {
    let (socket, mut peer) = s.pair();
    s.ring.report_acknowledgements(&socket).unwrap();
    send(s, &socket, b"hello");
    s.peer_gets(&mut peer, 5);
    s.pause();
    // News from before the operation.
    let reports = s.ring.submit(Op::Acknowledgements(socket.clone()), 0);
    acknowledged(s, reports, 0, 5);
    assert!(s.rest().is_empty());
    s.ring.cancel(reports);
    s.error(reports);
    let again = s.ring.submit(Op::Acknowledgements(socket.clone()), 0);
    assert!(s.rest().is_empty());
    send(s, &socket, b"again");
    s.peer_gets(&mut peer, 5);
    acknowledged(s, again, 5, 10);
}

fn a_unix_socket_tells_nothing(s: &mut Stage) {
    let (listener, address) = s.far_listener(Family::Unix);
    let Event::Connected(socket) = s.done(Op::Connect(address)).unwrap() else { unreachable!() };
    let refused = s.ring.report_acknowledgements(&socket).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(libc::EOPNOTSUPP));
    drop(listener);
}
