//! More operations at the same time than any queue has room for.

use std::collections::HashMap;

use ring::{Event, Op};

use super::stage::{Stage, pattern};

on_every_driver!(
    thousands_of_operations_in_flight,
    more_completions_than_the_queue_holds,
    a_flood_of_small_messages,
);

fn thousands_of_operations_in_flight(s: &mut Stage) {
    let bytes = pattern(1 << 20);
    s.write_file("file", &bytes);
    let file = s.open("file");
    for _ in 0..3 {
        let mut keys = HashMap::new();
        for index in 0..1000_usize {
            let at = (index * 4099) % (bytes.len() - 64);
            let op = s.read_op(&file, at as u64, 64);
            keys.insert(s.ring.submit(op, 0), at);
            s.ring.submit(Op::Stat(file.clone()), 1);
            s.ring.submit(Op::Timer(s.ring.now()), 1);
        }
        let mut others = 0;
        while !keys.is_empty() || others < 2000 {
            for completion in s.some() {
                match completion.result.unwrap() {
                    Event::Read(buf) => {
                        let at = keys.remove(&completion.key).expect("each completes once");
                        assert_eq!(buf[..], bytes[at..at + 64]);
                    }
                    Event::Stat(_) | Event::Timer => others += 1,
                    other => panic!("{other:?}"),
                }
            }
        }
        assert_eq!(s.ring.in_flight(), 0);
    }
}

/// The io_uring driver's queue holds 16 Ki; the kernel keeps the rest until there is room.
fn more_completions_than_the_queue_holds(s: &mut Stage) {
    const COUNT: u64 = 40_000;
    let root = s.root();
    for token in 0..COUNT {
        s.ring.submit(Op::Stat(root.clone()), token);
    }
    let mut seen = vec![false; usize::try_from(COUNT).unwrap()];
    let mut left = seen.len();
    while left > 0 {
        for completion in s.some() {
            let at = usize::try_from(completion.token).unwrap();
            assert!(matches!(completion.result, Ok(Event::Stat(_))));
            assert!(!core::mem::replace(&mut seen[at], true), "each completes once");
            left -= 1;
        }
    }
    assert!(s.rest().is_empty());
}

mod receive_buffers {
    //! The simulation receives what has come in any order.
    use super::*;
    on_real_drivers!(
        a_few_that_send_without_a_pause_leave_buffers_to_others,
        a_caller_without_time_hears_of_a_new_byte_soon,
        long_bodies_come_in_large_pieces_and_leave_others_their_turn,
        a_socket_that_expects_little_again_receives_small_pieces,
    );
}

/// Twenty connections have more to receive than there are buffers. Once they have shown it, a turn
/// brings little of each, and the bytes of another sender come with them.
fn a_few_that_send_without_a_pause_leave_buffers_to_others(s: &mut Stage) {
    const BYTES: usize = 100 * 1024;
    let (mut peers, mut receives) = (Vec::new(), Vec::new());
    for _ in 0..20 {
        let (socket, mut peer) = s.pair();
        peer.send(&pattern(BYTES));
        receives.push(s.ring.submit(Op::Recv(socket), 0));
        peers.push(peer);
    }
    let (socket, mut victim) = s.pair();
    let victims = s.ring.submit(Op::Recv(socket), 0);
    // At first each of them may be the one that takes all buffers.
    let mut streams = vec![Vec::new(); receives.len()];
    let (mut turn, mut sent, mut served, mut waited) = (0, false, 0, 0);
    while streams.iter().any(|stream| stream.len() < BYTES) {
        turn += 1;
        if turn > 4 && !sent {
            victim.send(b"x");
            (sent, waited) = (true, 0);
        }
        let mut counts = vec![0; receives.len()];
        waited += 1;
        for completion in s.some() {
            let Ok(Event::Received(buf)) = completion.result else { panic!("{completion:?}") };
            if completion.key == victims {
                assert!(waited <= 2, "{waited} turns");
                (sent, served) = (false, served + 1);
                continue;
            }
            let at = receives.iter().position(|key| *key == completion.key).unwrap();
            streams[at].extend_from_slice(&buf);
            counts[at] += 1;
        }
        let most = counts.into_iter().max().unwrap();
        assert!(turn <= 4 || most <= 2, "{most} buffers of one connection in turn {turn}");
    }
    assert!(served > 5, "served {served} times in {turn} turns");
    for stream in streams {
        assert!(stream == pattern(BYTES));
    }
}

/// Forty connections have more to receive than there are buffers, and the caller looks at four of them in a turn. The
/// byte of another connection waits behind one buffer of each at most.
fn a_caller_without_time_hears_of_a_new_byte_soon(s: &mut Stage) {
    const LOOKED_AT: usize = 4;
    let (sockets, mut peers): (Vec<_>, Vec<_>) = (0..40).map(|_| s.pair()).unzip();
    let (socket, mut victim) = s.pair();
    let victims = s.ring.submit(Op::Recv(socket), 0);
    for peer in &mut peers {
        peer.send(&pattern(150 * 1024));
    }
    for socket in sockets {
        s.ring.submit(Op::Recv(socket), 0);
    }
    let mut completions = Vec::new();
    let mut turn = |s: &mut Stage| {
        s.ring.wait(None, &mut completions).unwrap();
        completions.reverse();
        let mut has_come = false;
        for _ in 0..LOOKED_AT {
            has_come |= completions.pop().is_some_and(|one| one.key == victims);
        }
        completions.reverse();
        s.ring.put_back(&mut completions);
        has_come
    };
    // At first all buffers may be full.
    for _ in 0..250 {
        assert!(!turn(s), "nothing was sent");
    }
    for _ in 0..10 {
        victim.send(b"x");
        let turns = (1..).find(|_| turn(s)).expect("it comes");
        assert!(turns <= 40, "the byte has come after {turns} turns");
    }
}

/// Twenty connections send long bodies. A turn brings few of their large pieces, and the byte of another sender waits for
/// few turns.
fn long_bodies_come_in_large_pieces_and_leave_others_their_turn(s: &mut Stage) {
    const BYTES: usize = 100 * 1024;
    let (mut peers, mut receives) = (Vec::new(), Vec::new());
    for _ in 0..20 {
        let (socket, mut peer) = s.pair();
        peer.send(&pattern(BYTES));
        socket.expect_much(true);
        receives.push(s.ring.submit(Op::Recv(socket), 0));
        peers.push(peer);
    }
    let (socket, mut victim) = s.pair();
    let victims = s.ring.submit(Op::Recv(socket), 0);
    let mut streams = vec![Vec::new(); receives.len()];
    // With io_uring, a socket shows first that it has much.
    let (mut turn, mut sent, mut waited, mut pieces) = (0, false, 0, 0);
    while streams.iter().any(|stream| stream.len() < BYTES) {
        turn += 1;
        if turn > 4 && !sent {
            victim.send(b"x");
            (sent, waited) = (true, 0);
        }
        waited += 1;
        let mut bytes = 0;
        for completion in s.some() {
            let Ok(Event::Received(buf)) = completion.result else { panic!("{completion:?}") };
            if completion.key == victims {
                assert!(waited <= 2, "{waited} turns");
                sent = false;
                continue;
            }
            let at = receives.iter().position(|key| *key == completion.key).unwrap();
            streams[at].extend_from_slice(&buf);
            bytes += buf.len();
            pieces += usize::from(turn > 4);
        }
        assert!(turn <= 4 || bytes <= 300 * 1024, "{bytes} bytes in turn {turn}");
    }
    for stream in streams {
        assert!(stream == pattern(BYTES));
    }
    assert!(pieces <= 20 * BYTES / (15 * 1024), "{pieces} pieces");
}

fn a_socket_that_expects_little_again_receives_small_pieces(s: &mut Stage) {
    let (socket, mut peer) = s.pair();
    let recv = s.ring.submit(Op::Recv(socket.clone()), 0);
    for much in [false, true, false, true, false] {
        socket.expect_much(much);
        peer.send(&pattern(120 * 1024));
        let (mut bytes, mut largest) = (Vec::new(), 0);
        while bytes.len() < 120 * 1024 {
            let buf = s.received(recv);
            // The receive under way may still be of the other kind.
            if bytes.len() > 60 * 1024 {
                largest = largest.max(buf.len());
            }
            bytes.extend_from_slice(&buf);
        }
        assert!(bytes == pattern(120 * 1024));
        assert_eq!(largest > 2 * 1024, much, "{largest} bytes at a time");
    }
}

fn a_flood_of_small_messages(s: &mut Stage) {
    let (listener, address) = s.listener();
    let accept = s.ring.submit(Op::Accept(listener), 0);
    let mut conns = Vec::new();
    for _ in 0..50 {
        let peer = s.connect(address);
        let socket = s.accepted(accept);
        let recv = s.ring.submit(Op::Recv(socket), 0);
        conns.push((peer, recv));
    }
    let (mut peers, receives): (Vec<_>, Vec<_>) = conns.into_iter().unzip();
    for round in 0..200_u8 {
        for peer in &mut peers {
            peer.send(&[round]);
        }
    }
    drop(peers);
    for stream in s.gather(&receives) {
        assert!(stream.into_iter().eq(0..200));
    }
}
