//! Accept, receive, send, readiness.

use core::num::NonZeroU64;
use core::time::Duration;
use std::io::{ErrorKind, IoSlice};
use std::os::fd::OwnedFd;

use ring::{Event, Op};

use super::stage::{Stage, pattern};

on_every_driver!(
    accepts_several_connections,
    a_direct_accept_takes_what_waits,
    receives_in_order_then_eof,
    finds_an_end_that_came_before_the_receive,
    receives_more_than_a_buffer,
    a_reset_is_an_error,
    two_hundred_sockets_at_once,
    sockets_wait_for_lent_buffers,
    ends_do_not_use_up_buffers,
    a_full_socket_goes_on_when_writable,
    a_writable_socket_is_writable_at_once,
    a_dead_socket_is_writable,
    a_socket_is_not_writable_because_its_peer_sends_no_more,
    sends_pieces_in_order,
    the_peer_sees_the_end_after_shutdown,
    a_connection_is_broken_at_once,
    sends_a_file,
    a_receive_follows_a_readable,
    a_direct_receive_takes_what_has_come,
    a_direct_receive_finds_a_reset,
    a_pipe_takes_what_has_come,
    a_pipe_finds_a_reset,
    sends_more_pieces_than_the_kernel_takes,
    names_the_peer,
    a_rate_holds_nothing_back_for_good,
);

mod floods {
    //! The simulation has a few completions at a time anyway.
    use super::*;
    on_real_drivers!(a_flood_is_accepted_in_turns);
}

mod os_descriptors {
    //! The simulation has no pipes that wait and no eventfds.
    use super::*;
    on_real_drivers!(
        pipes_and_eventfds_become_readable,
        a_full_pipe_becomes_writable,
        a_unix_socket_has_no_rate,
    );
}

fn accepts_several_connections(s: &mut Stage) {
    let (listener, address) = s.listener();
    let accept = s.ring.submit(Op::Accept(listener), 5);
    let peers: Vec<_> = (0..5).map(|_| s.connect(address)).collect();
    let mut sockets = Vec::new();
    for _ in &peers {
        let completion = s.next(accept);
        assert!(completion.more && completion.token == 5);
        match completion.result.unwrap() {
            Event::Accepted(fd) => sockets.push(fd),
            other => panic!("{other:?}"),
        }
    }
    let mut numbers: Vec<i32> = sockets.iter().map(|fd| fd.raw()).collect();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), 5);
    assert!(s.rest().is_empty());
}

/// The connections of a flood, and one more.
const FLOOD: usize = 200;

fn a_flood_is_accepted_in_turns(s: &mut Stage) {
    let (listener, address) = s.listener();
    let peers: Vec<_> = (0..FLOOD).map(|_| s.connect(address)).collect();
    let accept = s.ring.submit(Op::Accept(listener), 5);
    let (mut completions, mut count) = (Vec::new(), 0);
    while count < peers.len() {
        let until = s.ring.now() + Duration::from_secs(10);
        s.ring.wait(Some(until), &mut completions).unwrap();
        assert!(!completions.is_empty(), "{count} of {FLOOD} were accepted");
        assert!(completions.len() <= 64, "{} in one turn", completions.len());
        assert!(completions.iter().all(|one| one.key == accept && one.more));
        count += completions.len();
    }
    s.ring.cancel(accept);
    assert!(s.next(accept).result.is_err());
}

fn a_direct_accept_takes_what_waits(s: &mut Stage) {
    let (listener, address) = s.listener();
    let accept = s.ring.submit(Op::Accept(listener.clone()), 0);
    s.pause();
    s.ring.cancel(accept);
    assert!(s.next(accept).result.is_err());
    assert_eq!(s.ring.accept(&listener).unwrap_err().kind(), ErrorKind::WouldBlock);
    let mut peer = s.connect(address);
    s.pause();
    let socket = s.ring.accept(&listener).unwrap();
    assert_eq!(s.ring.accept(&listener).unwrap_err().kind(), ErrorKind::WouldBlock);
    assert!(!s.ring.is_blocking(&socket));
    let recv = s.ring.submit(Op::Recv(socket), 0);
    peer.send(b"hello");
    assert_eq!(s.received_bytes(recv, 5), b"hello");
}

fn receives_in_order_then_eof(s: &mut Stage) {
    let (socket, mut peer) = s.pair();
    let recv = s.ring.submit(Op::Recv(socket), 1);
    peer.send(b"one,");
    assert_eq!(s.received_bytes(recv, 4), b"one,");
    peer.send(b"two,");
    peer.send(b"three");
    peer.shutdown_write();
    assert_eq!(s.received_bytes(recv, 9), b"two,three");
    s.eof(recv);
}

/// An edge that came while nothing received must not be waited for again.
fn finds_an_end_that_came_before_the_receive(s: &mut Stage) {
    let (socket, mut peer) = s.pair();
    assert!(matches!(s.done(Op::Writable(socket.clone())).unwrap(), Event::Writable));
    peer.send(b"last words");
    peer.shutdown_write();
    s.pause();
    let recv = s.ring.submit(Op::Recv(socket), 1);
    assert_eq!(s.received_bytes(recv, 10), b"last words");
    s.eof(recv);
}

fn receives_more_than_a_buffer(s: &mut Stage) {
    let (socket, mut peer) = s.pair();
    let recv = s.ring.submit(Op::Recv(socket), 1);
    let bytes = pattern(100_000);
    peer.send(&bytes);
    assert!(s.received_bytes(recv, bytes.len()) == bytes);
    peer.close();
    s.eof(recv);
}

fn a_reset_is_an_error(s: &mut Stage) {
    let (socket, mut peer) = s.pair();
    let recv = s.ring.submit(Op::Recv(socket.clone()), 1);
    s.pause();
    peer.reset();
    assert_eq!(s.error(recv).kind(), ErrorKind::ConnectionReset);
    assert!(s.ring.send(&socket, &[IoSlice::new(b"x")], false).is_err());
}

fn two_hundred_sockets_at_once(s: &mut Stage) {
    let (listener, address) = s.listener();
    let accept = s.ring.submit(Op::Accept(listener), 0);
    let mut peers = Vec::new();
    let mut receives = Vec::new();
    for _ in 0..200 {
        peers.push(s.connect(address));
    }
    for _ in 0..200 {
        let socket = s.accepted(accept);
        receives.push(s.ring.submit(Op::Recv(socket), 0));
    }
    for peer in &mut peers {
        peer.send(&pattern(5000));
        peer.close();
    }
    for stream in s.gather(&receives) {
        assert!(stream == pattern(5000));
    }
}

fn sockets_wait_for_lent_buffers(s: &mut Stage) {
    let (listener, address) = s.listener();
    let accept = s.ring.submit(Op::Accept(listener), 0);
    let mut conns = Vec::new();
    for _ in 0..4 {
        let mut peer = s.connect(address);
        let socket = s.accepted(accept);
        let recv = s.ring.submit(Op::Recv(socket), 0);
        peer.send(&pattern(600 * 1024));
        peer.shutdown_write();
        conns.push((peer, recv, Vec::new()));
    }
    // Keep every buffer until there are no more; then the other bytes must wait and not be lost.
    let mut held = s.rest();
    assert!(held.len() >= 512, "all buffers are lent, each of 2 KiB at most: {}", held.len());
    for _ in 0..10_000 {
        for completion in held.drain(..) {
            let conn = conns.iter_mut().find(|(_, key, _)| *key == completion.key).unwrap();
            match completion.result.unwrap() {
                Event::Received(buf) => conn.2.extend_from_slice(&buf),
                Event::Eof => assert!(!completion.more),
                other => panic!("{other:?}"),
            }
        }
        if s.ring.in_flight() == 1 {
            break;
        }
        held = s.rest_now();
    }
    for (_, _, bytes) in conns {
        assert!(bytes == pattern(600 * 1024));
    }
}

/// More ends than there are buffers; each must leave its buffer where it was.
fn ends_do_not_use_up_buffers(s: &mut Stage) {
    let (listener, address) = s.listener();
    let accept = s.ring.submit(Op::Accept(listener), 0);
    for _ in 0..600 {
        s.connect(address).close();
        let socket = s.accepted(accept);
        let recv = s.ring.submit(Op::Recv(socket), 0);
        s.eof(recv);
    }
    let mut peer = s.connect(address);
    let socket = s.accepted(accept);
    let recv = s.ring.submit(Op::Recv(socket), 0);
    peer.send(&pattern(200_000));
    assert!(s.received_bytes(recv, 200_000) == pattern(200_000));
}

fn a_full_socket_goes_on_when_writable(s: &mut Stage) {
    let (socket, mut peer) = s.pair();
    peer.stop_reading();
    let sent = s.fill(&socket);
    assert!(sent > 0);
    let writable = s.ring.submit(Op::Writable(socket.clone()), 0);
    assert!(s.rest().is_empty(), "the socket is full");
    let got = s.peer_gets(&mut peer, sent);
    assert_eq!(got.len(), sent);
    let completion = s.next(writable);
    assert!(matches!(completion.result, Ok(Event::Writable)) && !completion.more);
    let more = s.ring.send(&socket, &[IoSlice::new(b"and on")], false).unwrap();
    assert!(more > 0);
    assert_eq!(s.peer_gets(&mut peer, more), b"and on"[..more]);
}

fn a_writable_socket_is_writable_at_once(s: &mut Stage) {
    let (socket, _peer) = s.pair();
    for _ in 0..3 {
        assert!(matches!(s.done(Op::Writable(socket.clone())).unwrap(), Event::Writable));
    }
}

fn a_dead_socket_is_writable(s: &mut Stage) {
    let (socket, mut peer) = s.pair();
    peer.stop_reading();
    s.fill(&socket);
    let writable = s.ring.submit(Op::Writable(socket.clone()), 0);
    s.pause();
    peer.reset();
    // "Or is dead": an event, or the error itself.
    assert!(!s.next(writable).more);
    assert!(s.ring.send(&socket, &[IoSlice::new(b"x")], false).is_err());
}

fn a_socket_is_not_writable_because_its_peer_sends_no_more(s: &mut Stage) {
    let (socket, mut peer) = s.pair();
    peer.stop_reading();
    s.fill(&socket);
    peer.shutdown_write();
    s.pause();
    let mut count = 0;
    for _ in 0..20 {
        let writable = s.ring.submit(Op::Writable(socket.clone()), 0);
        let came = s.rest_now();
        count += came.len();
        if came.is_empty() {
            s.ring.cancel(writable);
            while s.next(writable).more {}
        }
    }
    assert!(count <= 1, "{count} times");
    let writable = s.ring.submit(Op::Writable(socket), 0);
    while s.rest_now().iter().all(|one| one.key != writable) {
        peer.take();
    }
}

fn sends_pieces_in_order(s: &mut Stage) {
    let (socket, mut peer) = s.pair();
    let pieces = [IoSlice::new(b"head "), IoSlice::new(b""), IoSlice::new(b"body")];
    assert_eq!(s.ring.send(&socket, &pieces, true).unwrap(), 9);
    assert_eq!(s.ring.send(&socket, &[IoSlice::new(b" end")], false).unwrap(), 4);
    assert_eq!(s.peer_gets(&mut peer, 13), b"head body end");
}

fn sends_more_pieces_than_the_kernel_takes(s: &mut Stage) {
    let (socket, mut peer) = s.pair();
    let pieces: Vec<_> = (0..3000).map(|_| IoSlice::new(b"ab")).collect();
    let sent = s.ring.send(&socket, &pieces, false).unwrap();
    assert!(sent > 0);
    assert_eq!(s.peer_gets(&mut peer, sent).len(), sent);
}

fn the_peer_sees_the_end_after_shutdown(s: &mut Stage) {
    let (socket, mut peer) = s.pair();
    let recv = s.ring.submit(Op::Recv(socket.clone()), 0);
    s.ring.send(&socket, &[IoSlice::new(b"bye")], false).unwrap();
    s.ring.shutdown(&socket);
    assert_eq!(s.peer_gets(&mut peer, 3), b"bye");
    assert!(s.ring.send(&socket, &[IoSlice::new(b"x")], false).is_err());
    peer.send(b"thanks");
    peer.close();
    assert_eq!(s.received_bytes(recv, 6), b"thanks");
    s.eof(recv);
}

fn a_connection_is_broken_at_once(s: &mut Stage) {
    let (socket, mut peer) = s.pair();
    let recv = s.ring.submit(Op::Recv(socket.clone()), 0);
    peer.stop_reading();
    s.fill(&socket);
    s.ring.reset(&socket);
    assert!(s.ring.send(&socket, &[IoSlice::new(b"x")], false).is_err());
    assert!(!s.next(recv).more);
}

fn sends_a_file(s: &mut Stage) {
    s.write_file("file", &pattern(30_000));
    let file = s.open("file");
    s.ring.no_readahead(&file);
    let (socket, mut peer) = s.pair();
    let sent = s.ring.sendfile(&socket, &file, 100, 20_000).unwrap();
    assert!(sent > 0 && sent <= 20_000);
    assert_eq!(s.peer_gets(&mut peer, sent), pattern(30_000)[100..100 + sent]);
    assert_eq!(s.ring.sendfile(&socket, &file, 30_000, 100).unwrap(), 0);
    peer.stop_reading();
    s.fill(&socket);
    let error = s.ring.sendfile(&socket, &file, 0, 100).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
}

fn a_receive_follows_a_readable(s: &mut Stage) {
    let (socket, mut peer) = s.pair();
    let readable = s.ring.submit(Op::Readable(socket.clone()), 0);
    assert!(s.rest().is_empty());
    peer.send(b"x");
    let completion = s.next(readable);
    assert!(matches!(completion.result, Ok(Event::Readable)) && !completion.more);
    assert!(matches!(s.done(Op::Readable(socket.clone())).unwrap(), Event::Readable));
    let recv = s.ring.submit(Op::Recv(socket), 0);
    assert_eq!(s.received_bytes(recv, 1), b"x");
}

fn a_direct_receive_takes_what_has_come(s: &mut Stage) {
    let (socket, mut peer) = s.pair();
    let mut room = [0; 4];
    let none = s.ring.receive(&socket, &mut room).unwrap_err();
    assert_eq!(none.kind(), ErrorKind::WouldBlock);
    let mut got = Vec::new();
    peer.send(b"hello, socket");
    while got.len() < 13 {
        assert!(matches!(s.done(Op::Readable(socket.clone())).unwrap(), Event::Readable));
        let count = s.ring.receive(&socket, &mut room).unwrap();
        got.extend_from_slice(&room[..count]);
    }
    assert_eq!(got, b"hello, socket");
    peer.shutdown_write();
    assert!(matches!(s.done(Op::Readable(socket.clone())).unwrap(), Event::Readable));
    assert_eq!(s.ring.receive(&socket, &mut room).unwrap(), 0);
}

fn a_pipe_takes_what_has_come(s: &mut Stage) {
    let ((from, mut origin), (to, mut peer)) = (s.pair(), s.pair());
    let pipes = ring::PipePool::new(1);
    let mut pipe = s.ring.take_pipe(&pipes, 0, 3000).unwrap();
    let none = s.ring.receive_to_pipe(&from, &mut pipe).unwrap_err();
    assert_eq!((none.kind(), pipe.len()), (ErrorKind::WouldBlock, 0));
    let bytes = pattern(10_000);
    origin.send(&bytes);
    let mut at = 0;
    while at < bytes.len() {
        assert!(matches!(s.done(Op::Readable(from.clone())).unwrap(), Event::Readable));
        let before = pipe.len();
        let came = s.ring.receive_to_pipe(&from, &mut pipe).unwrap();
        assert!(came > 0 && pipe.len() == before + came && pipe.len() <= 3000);
        while pipe.len() == 3000 || at + pipe.len() == bytes.len() && !pipe.is_empty() {
            let left = pipe.len();
            let sent = s.ring.drain(&to, &mut pipe, left, false).unwrap_or(0);
            assert!(s.peer_gets(&mut peer, sent) == bytes[at..at + sent]);
            at += sent;
        }
    }
    origin.shutdown_write();
    assert!(matches!(s.done(Op::Readable(from.clone())).unwrap(), Event::Readable));
    assert_eq!(s.ring.receive_to_pipe(&from, &mut pipe).unwrap(), 0);
}

fn a_pipe_finds_a_reset(s: &mut Stage) {
    let (socket, mut peer) = s.pair();
    peer.reset();
    assert!(matches!(s.done(Op::Readable(socket.clone())).unwrap(), Event::Readable));
    let mut pipe = s.ring.take_pipe(&ring::PipePool::new(1), 0, 100).unwrap();
    let error = s.ring.receive_to_pipe(&socket, &mut pipe).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

fn a_direct_receive_finds_a_reset(s: &mut Stage) {
    let (socket, mut peer) = s.pair();
    peer.reset();
    assert!(matches!(s.done(Op::Readable(socket.clone())).unwrap(), Event::Readable));
    let error = s.ring.receive(&socket, &mut [0; 4]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

fn pipes_and_eventfds_become_readable(s: &mut Stage) {
    use rustix::event::{EventfdFlags, eventfd};
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    let reader = s.ring.adopt_socket(reader);
    let key = s.ring.submit(Op::Readable(reader), 0);
    assert!(s.rest().is_empty());
    rustix::io::write(&writer, b"x").unwrap();
    assert!(matches!(s.event(key), Event::Readable));

    let counter: OwnedFd = eventfd(1, EventfdFlags::NONBLOCK).unwrap();
    let counter = s.ring.adopt_socket(counter);
    assert!(matches!(s.done(Op::Readable(counter)).unwrap(), Event::Readable));
}

fn a_full_pipe_becomes_writable(s: &mut Stage) {
    let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::NONBLOCK).unwrap();
    while rustix::io::write(&writer, &[0; 4096]).is_ok() {}
    let writer = s.ring.adopt_socket(writer);
    let key = s.ring.submit(Op::Writable(writer.clone()), 0);
    assert!(s.rest().is_empty());
    rustix::io::read(&reader, &mut [0; 65536]).unwrap();
    assert!(matches!(s.event(key), Event::Writable));
    match s.done(Op::Write { file: writer, at: None, bytes: b"log line\n".to_vec() }).unwrap() {
        Event::Written(bytes, count) => assert_eq!((&bytes[..], count), (&b"log line\n"[..], 9)),
        other => panic!("{other:?}"),
    }
}

fn names_the_peer(s: &mut Stage) {
    let (one, _peer) = s.pair();
    let (other, _peer) = s.pair();
    let names = [&one, &other].map(|socket| s.ring.peer_name(socket).unwrap());
    assert_ne!(names[0], names[1]);
}

fn a_rate_holds_nothing_back_for_good(s: &mut Stage) {
    let (socket, mut peer) = s.pair();
    let rate = NonZeroU64::new(50 * 1024 * 1024);
    assert!(s.ring.set_rate(&socket, rate));
    let bytes = pattern(100_000);
    assert_eq!(s.ring.send(&socket, &[IoSlice::new(&bytes)], false).unwrap(), bytes.len());
    assert!(s.peer_gets(&mut peer, bytes.len()) == bytes);
    assert!(s.ring.set_rate(&socket, None));
    assert_eq!(s.ring.send(&socket, &[IoSlice::new(&bytes)], false).unwrap(), bytes.len());
    assert!(s.peer_gets(&mut peer, bytes.len()) == bytes);
}

fn a_unix_socket_has_no_rate(s: &mut Stage) {
    let (one, _other) = std::os::unix::net::UnixStream::pair().unwrap();
    let socket = s.ring.adopt_socket(one.into());
    assert!(!s.ring.set_rate(&socket, NonZeroU64::new(1000)));
    assert!(!s.ring.set_rate(&socket, None));
}
