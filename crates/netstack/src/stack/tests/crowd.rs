//! Many connections, and many handshakes that never complete.

use super::opening::{Server, peer, segment};
use super::*;
use crate::sim::{Segment, flag};

/// Peers in 10.0.0.0/8, 50,000 ports of each.
fn member(n: u32) -> SocketAddr {
    let [_, a, b, c] = (1 + n / 50_000).to_be_bytes();
    SocketAddr::from(([10, a, b, c], u16::try_from(1024 + n % 50_000).expect("a port")))
}

/// A request and its answer on a connection whose next numbers are these.
fn ask(server: &mut Server, from: SocketAddr, seq: u32, ack: u32) {
    let mut request = segment(from, flag::ACK | flag::PSH, seq, ack);
    request.payload = b"GET".to_vec();
    assert_eq!(server.answers(&request).len(), 1, "an acknowledgement");
    let (id, received) = server.end.notes.received.pop_first().expect("a request");
    assert_eq!(received, b"GET");
    server.end.send(server.now, id, b"response".to_vec());
    let response = &server.end.device.take()[0];
    let response = Segment::from_frame(response).expect("a segment");
    assert_eq!((response.destination, &response.payload[..]), (from, &b"response"[..]));
    let got = segment(from, flag::ACK, seq + 3, ack.wrapping_add(8));
    assert_eq!(server.answers(&got), []);
    // The queue is given back while the connection is idle.
    server.end.queues.remove(&id);
}

/// Opens this many connections, asks one question on each, and returns the memory for each while they are idle.
fn memory_of(count: u32) -> usize {
    let mut server = Server::new(|_| {});
    let firsts: Vec<u32> = (0..count)
        .map(|n| {
            let first = server.open(member(n), 5);
            server.end.notes.accepted.clear();
            first
        })
        .collect();
    // The entries of the handshakes come up in the wheel.
    server.now = server.now + Duration::from_secs(2);
    server.end.handle(server.now, &[]);
    assert_eq!(server.end.stack.next_timer(), None, "an idle connection has no timer");
    assert_eq!(server.end.stack.census().connections, count as usize);
    for (n, first) in (0..count).zip(firsts) {
        ask(&mut server, member(n), 6, first);
    }
    server.now = server.now + Duration::from_secs(10);
    server.end.handle(server.now, &[]);
    let memory = server.end.stack.memory();
    let Borrowed { flights, held_bytes, next_hops } = server.end.stack.borrowed();
    assert_eq!((flights, held_bytes, next_hops), (0, 0, count as usize));
    let each = memory / count as usize;
    // All leave at once.
    let ids: Vec<_> = server.end.stack.connections().map(|(id, _)| id).collect();
    for (n, id) in (0..count).zip(ids) {
        server.end.stack.close(server.now, id, &mut server.end.device);
        if n % 500 == 0 {
            server.end.device.take();
        }
    }
    let empty = server.end.stack.memory();
    assert!(empty < 400_000, "{empty} bytes are kept without a connection");
    each
}

#[test]
fn an_idle_connection_takes_160_bytes() {
    let each = memory_of(100_000);
    assert!(each <= 160, "{each}");
}

/// `cargo test --release -p samum-netstack --lib -- --ignored --nocapture million`
#[test]
#[ignore = "takes half a minute without optimisation"]
fn a_million_connections_are_held_and_answer() {
    let each = memory_of(1_000_000);
    std::eprintln!("{each} bytes for each of a million idle connections");
    assert!(each <= 160, "{each}");
}

/// Forged SYNs while good clients open connections and ask.
fn flood(count: u32) {
    const GOOD: u32 = 100;
    let mut server = Server::new(|_| {});
    let mut asked = 0;
    for n in 0..count {
        server.now = server.now + Duration::from_micros(1);
        assert_eq!(server.answers(&segment(member(n), flag::SYN, n, 0)).len(), 1);
        if n % (count / GOOD) == count / GOOD - 1 {
            let good = peer(u16::try_from(asked).expect("small") + 1);
            let first = server.open(good, 5);
            ask(&mut server, good, 6, first);
            asked += 1;
        }
    }
    assert_eq!(asked, GOOD);
    let census = server.end.stack.census();
    assert_eq!(census.connections, GOOD as usize);
    assert!(census.half_open <= 4096);
    let memory = server.end.stack.memory();
    assert!(memory < 2 << 20, "{memory}");
    let handshakes = server.end.stack.counters().handshakes;
    assert!(handshakes.cookies_sent > u64::from(count) / 2, "{handshakes:?}");
    assert!(handshakes.cookies_accepted > 0, "{handshakes:?}");
    // The flood ends: its handshakes are given up.
    for _ in 0..70 {
        server.now = server.now + Duration::from_secs(1);
        server.end.handle(server.now, &[]);
        server.end.device.take();
    }
    assert_eq!(
        server.end.stack.census(),
        Census { connections: GOOD as usize, ..Census::default() }
    );
}

#[test]
fn forged_syns_keep_no_good_client_out() {
    flood(100_000);
}

/// `cargo test --release -p samum-netstack --lib -- --ignored million`
#[test]
#[ignore = "takes half a minute without optimisation"]
fn a_million_forged_syns_keep_no_good_client_out() {
    flood(1_000_000);
}
