//! Connecting to peers that listen.

use std::io::{ErrorKind, IoSlice};

use ring::{Address, Event, Fd, Op};

use super::stage::{Family, Stage, pattern};

on_every_driver!(
    connects_and_exchanges_bytes,
    connects_to_a_unix_socket,
    makes_many_connections_at_once,
    a_refused_connection_is_an_error,
    a_unix_socket_that_does_not_exist_is_an_error,
    a_connection_that_hangs_can_be_cancelled,
    a_ring_dropped_while_it_connects,
);

mod os_sockets {
    //! The simulation has no flags of descriptors, no IPv6 and no backlogs.
    use super::*;
    on_real_drivers!(
        connects_over_ipv6,
        the_socket_is_nonblocking_and_close_on_exec,
        a_unix_socket_with_a_full_backlog_is_an_error,
        a_response_that_has_come_whole_is_received_at_once,
        a_caller_without_time_gets_no_more_of_a_response,
    );
}

#[track_caller]
fn connected(s: &mut Stage, address: Address) -> Fd {
    match s.done(Op::Connect(address)).unwrap() {
        Event::Connected(socket) => socket,
        other => panic!("{other:?}"),
    }
}

/// Connects, and sends bytes in both directions.
fn check_connection(s: &mut Stage, family: Family) {
    let (listener, address) = s.far_listener(family);
    let socket = connected(s, address);
    let mut peer = listener.accept();
    // As many as fit into any socket.
    let there = pattern(5000);
    assert_eq!(s.ring.send(&socket, &[IoSlice::new(&there)], false).unwrap(), there.len());
    assert_eq!(s.peer_gets(&mut peer, there.len()), there);
    let recv = s.ring.submit(Op::Recv(socket.clone()), 0);
    peer.send(b"and back");
    assert_eq!(s.received_bytes(recv, 8), b"and back");
    assert!(matches!(s.done(Op::Writable(socket)).unwrap(), Event::Writable));
    peer.close();
    s.eof(recv);
}

fn connects_and_exchanges_bytes(s: &mut Stage) {
    check_connection(s, Family::Ipv4);
}

/// Responses are longer than requests: each further receive, and each write that passes on its bytes, costs as much
/// as the first.
fn a_response_that_has_come_whole_is_received_at_once(s: &mut Stage) {
    let (listener, address) = s.far_listener(Family::Unix);
    let socket = connected(s, address);
    let mut peer = listener.accept();
    let response = pattern(20_000);
    peer.send(&response);
    s.pause();
    let recv = s.ring.submit(Op::Recv(socket), 0);
    assert!(*s.received(recv) == response);
    peer.close();
    s.eof(recv);
}

/// The receiver may want no more after the first bytes, and it has had no time to look at these.
fn a_caller_without_time_gets_no_more_of_a_response(s: &mut Stage) {
    let (listener, address) = s.far_listener(Family::Unix);
    let socket = connected(s, address);
    let mut peer = listener.accept();
    let response = pattern(100_000);
    peer.send(&response);
    s.pause();
    let recv = s.ring.submit(Op::Recv(socket), 0);
    let (mut completions, mut seen) = (Vec::new(), 0);
    for _ in 0..5 {
        s.ring.wait(None, &mut completions).unwrap();
        seen = completions.iter().filter(|one| one.key == recv).count();
        s.ring.put_back(&mut completions);
    }
    assert_eq!(seen, 1, "buffers wait for a caller that may not want them");
    s.ring.wait(None, &mut completions).unwrap();
    let mut received = Vec::new();
    while let Some(completion) = completions.pop() {
        if let Ok(Event::Received(bytes)) = completion.result {
            received.extend_from_slice(&bytes);
        }
    }
    received.extend(s.received_bytes(recv, response.len() - received.len()));
    assert!(received == response);
    peer.close();
    s.eof(recv);
}

fn connects_over_ipv6(s: &mut Stage) {
    // A machine may be without it.
    if std::net::TcpListener::bind("[::1]:0").is_ok() {
        check_connection(s, Family::Ipv6);
    }
}

fn connects_to_a_unix_socket(s: &mut Stage) {
    check_connection(s, Family::Unix);
}

fn makes_many_connections_at_once(s: &mut Stage) {
    let (listener, address) = s.far_listener(Family::Ipv4);
    let keys: Vec<_> =
        (0..50).map(|token| s.ring.submit(Op::Connect(address.clone()), token)).collect();
    let mut sockets = Vec::new();
    for (token, key) in (0..).zip(keys) {
        let completion = s.next(key);
        assert_eq!((completion.token, completion.more), (token, false));
        match completion.result.unwrap() {
            Event::Connected(socket) => sockets.push(socket),
            other => panic!("{other:?}"),
        }
    }
    let mut peers: Vec<_> = sockets.iter().map(|_| listener.accept()).collect();
    let receives: Vec<_> =
        sockets.into_iter().map(|socket| s.ring.submit(Op::Recv(socket), 0)).collect();
    for (number, peer) in (0..).zip(&mut peers) {
        peer.send(&[number]);
        peer.close();
    }
    let mut streams = s.gather(&receives);
    streams.sort();
    assert!(streams.into_iter().eq((0..50).map(|number| vec![number])));
}

fn a_refused_connection_is_an_error(s: &mut Stage) {
    let (listener, address) = s.far_listener(Family::Ipv4);
    drop(listener);
    let error = s.done(Op::Connect(address)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    assert!(s.rest().is_empty());
}

fn a_unix_socket_that_does_not_exist_is_an_error(s: &mut Stage) {
    let address = Address::unix("/nowhere/at/all").unwrap();
    assert_eq!(s.done(Op::Connect(address)).unwrap_err().kind(), ErrorKind::NotFound);
}

fn a_connection_that_hangs_can_be_cancelled(s: &mut Stage) {
    let (listener, address) = s.far_listener(Family::Ipv4);
    let _fillers = listener.stop_answering();
    for _ in 0..3 {
        let key = s.ring.submit(Op::Connect(address.clone()), 0);
        assert!(s.rest().is_empty(), "the listener does not answer");
        s.ring.cancel(key);
        assert_eq!(s.error(key).raw_os_error(), Some(libc::ECANCELED));
        s.ring.cancel(key);
    }
    // A connect that the kernel has not got yet.
    let key = s.ring.submit(Op::Connect(address), 0);
    s.ring.cancel(key);
    assert_eq!(s.error(key).raw_os_error(), Some(libc::ECANCELED));
    assert!(s.rest().is_empty(), "the last completion comes once");
    assert_eq!(s.ring.in_flight(), 0);
}

fn a_ring_dropped_while_it_connects(s: &mut Stage) {
    let (silent, hangs) = s.far_listener(Family::Ipv4);
    let _fillers = silent.stop_answering();
    let (listener, answers) = s.far_listener(Family::Ipv4);
    for turns in 0..3 {
        s.ring.submit(Op::Connect(hangs.clone()), 0);
        s.ring.submit(Op::Connect(answers.clone()), 0);
        for _ in 0..turns {
            let mut completions = Vec::new();
            s.ring.wait(Some(s.ring.now()), &mut completions).unwrap();
        }
        s.replace_ring();
    }
    let _socket = connected(s, answers);
    drop((silent, listener));
}

fn the_socket_is_nonblocking_and_close_on_exec(s: &mut Stage) {
    let (_listener, address) = s.far_listener(Family::Ipv4);
    let socket = connected(s, address);
    let flags = rustix::fs::fcntl_getfl(socket.os()).unwrap();
    assert!(flags.contains(rustix::fs::OFlags::NONBLOCK));
    let flags = rustix::io::fcntl_getfd(socket.os()).unwrap();
    assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
}

fn a_unix_socket_with_a_full_backlog_is_an_error(s: &mut Stage) {
    let (listener, address) = s.far_listener(Family::Unix);
    listener.set_backlog(0);
    let _first = connected(s, address.clone());
    let error = s.done(Op::Connect(address)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
}
