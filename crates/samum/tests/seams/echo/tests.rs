//! Uploads, bodies that are sent back, and tunnels.

use core::cell::Cell;
use core::time::Duration;
use std::collections::HashMap;
use std::rc::Rc;

use config::Tuning;
use ring::sim::{Config, End, Peer, World};
use testkit::Random;

use super::{EARLY, Echo, ROOM, STOP};
use crate::seams::stage::{Stage, content, for_seeds, parse};

/// Memory of one connection, whatever is sent: what is kept, what waits for the socket, and the input,
/// most of which is in flight when receiving is stopped.
const HELD_BYTES_MAX: u64 = 1024 * 1024;
/// Bytes that a client sends before the server takes some: the simulation has no limit of its own on what
/// a socket receives.
const WINDOW: usize = 256 * 1024;

fn stage(config: Config) -> (Stage<Echo>, Rc<Cell<usize>>) {
    let world = World::new(config);
    world.write_file("file", FILE);
    world.evict_all();
    let taken = Rc::new(Cell::new(0));
    let counter = Rc::clone(&taken);
    let stage = Stage::new(world, Tuning::default(), |files, _| Echo {
        files,
        loops: HashMap::new(),
        news: Rc::default(),
        taken: counter,
    });
    (stage, taken)
}

const FILE: &[u8] = &[b'f'; 40_000];

/// A request with a body, in chunks if `chunk` says how long they are.
fn upload(path: &str, body: &[u8], chunk: Option<usize>, more: &str) -> Vec<u8> {
    let framing = match chunk {
        Some(_) => "Transfer-Encoding: chunked".to_owned(),
        None => format!("Content-Length: {}", body.len()),
    };
    let mut bytes =
        format!("POST {path} HTTP/1.1\r\nHost: a\r\n{framing}\r\n{more}\r\n").into_bytes();
    let Some(chunk) = chunk else { return [bytes, body.to_vec()].concat() };
    for part in body.chunks(chunk) {
        bytes.extend(format!("{:x}\r\n", part.len()).into_bytes());
        bytes.extend_from_slice(part);
        bytes.extend(b"\r\n");
    }
    bytes.extend(b"0\r\n\r\n");
    bytes
}

/// Sends pieces of random sizes until `done`; the connection never holds more than it may.
fn exchange(
    stage: &mut Stage<Echo>,
    peer: &Peer,
    mut bytes: &[u8],
    chance: &mut Random,
    taken: &Cell<usize>,
    mut done: impl FnMut() -> bool,
) {
    let (before, mut sent) = (taken.get(), 0);
    for _ in 0..200_000 {
        let window = (WINDOW + taken.get() - before).saturating_sub(sent);
        let (piece, rest) = bytes.split_at(bytes.len().min(chance.below(60_000)).min(window));
        bytes = rest;
        sent += piece.len();
        peer.send(piece);
        stage.turn(Duration::from_millis(1));
        let held = stage.worker.held().0;
        assert!(held < HELD_BYTES_MAX, "{held} bytes are held");
        if done() {
            return;
        }
    }
    panic!("waits for ever: {:?}", stage.worker);
}

#[test]
fn bodies_larger_than_all_buffers_come_back() {
    for (seed, path) in [(1, "/echo"), (2, "/slow")] {
        for chunk in [None, Some(100_000), Some(7000)] {
            let (mut stage, taken) = stage(Config::new(seed));
            let body = content(seed, 10 * 1024 * 1024);
            let peer = stage.world.connect();
            let bytes = upload(path, &body, chunk, "Connection: close\r\n");
            exchange(&mut stage, &peer, &bytes, &mut Random::new(seed), &taken, || {
                peer.end().is_some()
            });
            let response = parse(&peer.received()).unwrap();
            assert!(response.whole && response.body == body, "{path} {chunk:?}");
            assert_eq!(taken.get(), body.len());
            drop(peer);
            stage.check_nothing_is_left();
        }
    }
}

#[test]
fn a_client_that_reads_slowly_is_received_from_slowly() {
    let (mut stage, taken) = stage(Config::new(3));
    let body = content(3, 4 * 1024 * 1024);
    let peer = stage.world.connect();
    peer.set_read_rate(Some(200_000));
    peer.send(&upload("/echo", &body, None, "Connection: close\r\n"));
    while peer.end().is_none() {
        stage.turn(Duration::from_millis(20));
        let ahead = taken.get().saturating_sub(peer.received_bytes());
        assert!(ahead < 600 * 1024, "{ahead} bytes are taken before their time");
        assert!(stage.worker.held().0 < HELD_BYTES_MAX);
    }
    let response = parse(&peer.received()).unwrap();
    assert!(response.whole && response.body == body);
}

#[test]
fn a_client_that_stops_sending_is_left() {
    let tuning = Tuning::default();
    for (path, status) in [("/late", 408), ("/echo", 200)] {
        let (mut stage, _) = stage(Config::new(4));
        let bytes = upload(path, &content(4, 50_000), None, "");
        let peer = stage.world.connect();
        // It goes on while bytes come.
        let (most, rest) = bytes.split_at(bytes.len() - 100);
        for piece in most.chunks(10_000) {
            peer.send(piece);
            stage.pass(tuning.timeout_header - Duration::from_secs(1));
            assert_eq!(peer.end(), None);
        }
        // A byte every second is not enough.
        for byte in rest[..60].chunks(1) {
            peer.send(byte);
            stage.pass(Duration::from_secs(1));
        }
        assert!(peer.end().is_some(), "{path}");
        let response = parse(&peer.received()).unwrap();
        assert_eq!(response.status, status);
        assert_eq!(response.whole, status == 408, "what is missing can be seen");
        drop(peer);
        stage.check_nothing_is_left();
    }
}

#[test]
fn a_client_that_ends_in_the_middle_is_left() {
    for path in ["/late", "/echo", "/slow"] {
        let (mut stage, _) = stage(Config::new(5));
        let bytes = upload(path, &content(5, 50_000), Some(1000), "");
        let peer = stage.world.connect();
        peer.send(&bytes[..bytes.len() - 10]);
        peer.shutdown_write();
        stage.pass(Duration::from_secs(2));
        assert!(peer.end().is_some(), "{path}");
        assert!(parse(&peer.received()).is_none_or(|response| !response.whole), "{path}");
        drop(peer);
        stage.check_nothing_is_left();
    }
}

#[test]
fn bodies_that_are_wanted_are_invited() {
    for (path, chunk) in [("/echo", None), ("/late", None), ("/slow", Some(100))] {
        let (mut stage, _) = stage(Config::new(6));
        let body = content(6, 2_000_000);
        let bytes = upload(path, &body[..ROOM / 2], chunk, "Expect: 100-continue\r\n");
        let head = bytes.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
        let peer = stage.world.connect();
        peer.send(&bytes[..head]);
        stage.pass(Duration::from_millis(100));
        let invitation = parse(&peer.received()).unwrap();
        assert_eq!(invitation.status, 100, "{path}");
        peer.send(&bytes[head..]);
        peer.send(b"GET /file HTTP/1.1\r\nHost: a\r\n\r\n");
        stage.pass(Duration::from_secs(3));
        let all = peer.received();
        let response = parse(&all[invitation.len..]).unwrap();
        assert!(response.status == 200 && response.whole, "{path}");
        assert!(response.body == body[..ROOM / 2], "{path}");
        let file = parse(&all[invitation.len + response.len..]).unwrap();
        assert!(file.whole && file.body == FILE, "{path}");
    }
}

#[test]
fn a_body_that_is_too_long_is_refused() {
    let (mut stage, _) = stage(Config::new(7));
    let peer = stage.world.connect();
    peer.send(b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999\r\n\r\nabc");
    stage.pass(Duration::from_secs(5));
    let response = parse(&peer.received()).unwrap();
    assert_eq!((response.status, response.whole), (413, true));
    assert_eq!(peer.end(), Some(End::Eof));
}

#[test]
fn a_body_is_skipped_behind_its_response_unless_it_is_long() {
    for (chunk, len, goes_on) in
        [(None, 500_000, true), (Some(10), 10_000, true), (None, 2_000_000, false)]
    {
        let (mut stage, taken) = stage(Config::new(11));
        let peer = stage.world.connect();
        peer.send(&upload("/early", &content(11, len), chunk, ""));
        peer.send(b"GET /file HTTP/1.1\r\nHost: a\r\n\r\n");
        stage.pass(Duration::from_secs(1));
        let all = peer.received();
        let response = parse(&all).unwrap();
        assert!(response.status == 200 && response.body == EARLY && taken.get() < len);
        let next = parse(&all[response.len..]);
        assert_eq!(next.is_some_and(|file| file.whole && file.body == FILE), goes_on, "{len}");
        assert_eq!(peer.end().is_none(), goes_on);
        drop(peer);
        stage.check_nothing_is_left();
    }
}

#[test]
fn the_body_of_the_last_request_is_read_to_its_end() {
    // The connection of HTTP/1.0 ends with the body, and that of 1.1 with the server.
    for stops in [false, true] {
        let (mut stage, _) = stage(Config::new(12));
        let body = content(12, 1_000_000);
        let mut bytes = upload("/slow", &body, None, "Connection: keep-alive\r\n");
        if !stops {
            let version = bytes.windows(3).position(|three| three == b"1.1").unwrap();
            bytes[version + 2] = b'0';
        }
        let peer = stage.world.connect();
        peer.send(&bytes[..500_000]);
        stage.pass(Duration::from_millis(100));
        if stops {
            stage.worker.shut_down();
        }
        peer.send(&bytes[500_000..]);
        stage.pass(Duration::from_secs(5));
        let response = parse(&peer.received()).unwrap();
        assert!(response.whole && response.body == body, "{stops}");
        assert_eq!(peer.end(), Some(End::Eof));
    }
}

const UPGRADE: &[u8] =
    b"GET /tunnel HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n";

#[test]
fn a_tunnel_takes_bytes_both_ways_until_the_client_ends_it() {
    let (mut stage, taken) = stage(Config::new(8));
    let mut body = content(8, 5_000_000);
    body.retain(|byte| *byte != STOP);
    let peer = stage.world.connect();
    peer.send(&[UPGRADE, b"first"].concat());
    stage.pass(Duration::from_millis(100));
    let head = parse(&peer.received()).unwrap();
    assert_eq!(head.status, 101);
    assert!(head.head.contains("\r\nConnection: upgrade\r\nUpgrade: echo\r\n"), "{}", head.head);
    assert_eq!(peer.received()[head.len..], *b"first");
    // It may be quiet for as long as its ends like.
    stage.pass(Duration::from_secs(1000));
    let (len, all) = (head.len, [b"first", &body[..]].concat());
    exchange(&mut stage, &peer, &body, &mut Random::new(8), &taken, || {
        peer.received_bytes() == len + all.len()
    });
    peer.shutdown_write();
    stage.pass(Duration::from_millis(100));
    assert!(peer.received()[head.len..] == all);
    assert_eq!(peer.end(), Some(End::Eof));
    stage.check_nothing_is_left();
}

#[test]
fn a_tunnel_whose_end_is_the_servers_goes_on_in_the_other_direction() {
    let (mut stage, taken) = stage(Config::new(9));
    let timeout = Tuning::default().timeout_header;
    for ends in [true, false] {
        let peer = stage.world.connect();
        let before = taken.get();
        peer.send(&[UPGRADE, b"ab", &[STOP]].concat());
        stage.pass(Duration::from_secs(1));
        assert_eq!(peer.end(), Some(End::Eof), "the server has ended its direction");
        for _ in 0..5 {
            stage.pass(timeout / 2);
            peer.send(b"more");
        }
        stage.pass(Duration::from_secs(1));
        assert_eq!(taken.get() - before, 3 + 5 * 4);
        assert_eq!(stage.worker.connections(), 1);
        if ends {
            peer.shutdown_write();
        }
        stage.pass(if ends { Duration::from_secs(1) } else { timeout * 2 });
        assert_eq!(stage.worker.connections(), 0);
    }
    stage.check_nothing_is_left();
}

#[test]
fn what_follows_a_refused_upgrade_is_a_request() {
    let (mut stage, _) = stage(Config::new(10));
    let peer = stage.world.connect();
    let file = b"GET /file HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n";
    peer.send(&[&file[..], &file[..]].concat());
    stage.pass(Duration::from_secs(1));
    let all = peer.received();
    let first = parse(&all).unwrap();
    let second = parse(&all[first.len..]).unwrap();
    assert!(first.body == FILE && second.body == FILE && second.whole);
}

struct Client {
    peer: Peer,
    input: Vec<u8>,
    expected: Vec<Vec<u8>>,
    /// It sends no more once this many bytes are left.
    stalls_at: usize,
    resets: bool,
}

impl Client {
    fn random(peer: Peer, chance: &mut Random) -> Self {
        let (mut input, mut expected) = (Vec::new(), Vec::new());
        let count = 1 + chance.below(6);
        for number in 0..count {
            let last = if number + 1 == count { "Connection: close\r\n" } else { "" };
            let path = ["/echo", "/early", "/late", "/slow", "/file"][chance.below(5)];
            if path == "/file" {
                let get = format!("GET /file HTTP/1.1\r\nHost: a\r\n{last}\r\n");
                input.extend(get.into_bytes());
                expected.push(FILE.to_vec());
                continue;
            }
            // What is answered late has to fit.
            let most = if path == "/late" { ROOM - 4096 } else { 300_000 };
            let most = [10, 5000, most][chance.below(3)];
            let body = content(chance.bits(), 1 + chance.below(most));
            let chunk = chance.one_in(2).then(|| 1 + chance.below(body.len()));
            // A response without the body of a client that waits to be invited would be the last.
            let expects = chance.one_in(5) && path != "/early";
            let expect = if expects { "Expect: 100-continue\r\n" } else { "" };
            input.extend(upload(path, &body, chunk, &format!("{expect}{last}")));
            expected.push(if path == "/early" { EARLY.to_vec() } else { body });
        }
        if chance.one_in(3) {
            peer.set_read_rate(Some(200_000 + chance.bits() % 1_000_000));
        }
        let stalls_at = if chance.one_in(4) { 1 + chance.below(input.len()) } else { 0 };
        let resets = stalls_at > 0 && chance.one_in(2);
        Self { peer, input, expected, stalls_at, resets }
    }

    fn poke(&mut self, chance: &mut Random) {
        let most = if chance.one_in(3) { 1 + chance.below(50) } else { 1 + chance.below(30_000) };
        let count = most.min(self.input.len() - self.stalls_at.min(self.input.len()));
        let piece: Vec<u8> = self.input.drain(..count).collect();
        self.peer.send(&piece);
        if self.resets && self.input.len() <= self.stalls_at {
            self.peer.reset();
        }
    }

    /// Compares what came with what was sent, up to where the client was silent.
    fn check(&self) {
        let all = self.peer.received();
        let mut at = 0;
        let mut expected = self.expected.iter();
        while let Some(response) = parse(&all[at..]) {
            at += response.len;
            match response.status {
                100 => continue,
                408 if self.stalls_at > 0 => break,
                status => assert_eq!(status, 200),
            }
            let body = expected.next().expect("no more responses than requests");
            assert!(body.starts_with(&response.body), "{} bytes differ", response.body.len());
            if !response.whole {
                assert!(self.stalls_at > 0, "{} of {} bytes", response.body.len(), body.len());
                return;
            }
            assert_eq!(response.body.len(), body.len());
        }
        assert!(self.stalls_at > 0 || expected.next().is_none(), "a response is missing");
    }
}

fn run(seed: u64) {
    let mut chance = Random::new(seed ^ 0xec40);
    let mut config = if chance.one_in(2) { Config::new(seed) } else { Config::nasty(seed) };
    config.faults.read_error = 0.0;
    config.faults.accept_error = 0.0;
    // Reclaim takes no pages out of the middle of what has just been used.
    config.faults.eviction = 0.0;
    let (mut stage, _) = stage(config);
    let mut clients: Vec<_> =
        (0..4).map(|_| Client::random(stage.world.connect(), &mut chance)).collect();
    for round in 0.. {
        for client in &mut clients {
            if chance.one_in(2) {
                client.poke(&mut chance);
            }
        }
        stage.turn(Duration::from_millis(10));
        assert!(stage.worker.held().0 < 4 * HELD_BYTES_MAX);
        if clients.iter().all(|client| client.resets || client.peer.end().is_some()) {
            break;
        }
        assert!(round < 100_000, "a client waits for ever: {:?}", stage.worker);
    }
    clients.iter().for_each(Client::check);
    drop(clients);
    stage.check_nothing_is_left();
}

#[test]
fn what_is_sent_back_is_right_to_the_byte() {
    for_seeds(200, run);
}
