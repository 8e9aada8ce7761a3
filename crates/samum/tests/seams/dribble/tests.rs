//! Bodies that dribble in addition to files, in random worlds.

use core::time::Duration;
use std::collections::{HashMap, VecDeque};

use config::Tuning;
use ring::sim::{Config, End, World};
use testkit::Random;

use super::{Asked, Dribble, Kind};
use crate::seams::stage::{Stage, content, for_seeds, parse};

/// A request of a client: a body that dribbles, or a file.
type Request = Option<Asked>;

const FILE: &[u8] = &[b'f'; 70_000];

fn bytes_of(request: Request, version: &str, last: bool) -> Vec<u8> {
    let path = request.map_or_else(|| "/file".to_owned(), Asked::path);
    let close = if last { "Connection: close\r\n" } else { "" };
    format!("GET {path} HTTP/{version}\r\nHost: a\r\n{close}\r\n").into_bytes()
}

/// Compares what a client has with what it asked for. The connection has ended.
fn check(all: &[u8], end: End, requests: &[Request], is_http10: bool) {
    let mut at = 0;
    for request in requests {
        if let Some(asked) = request.filter(|asked| is_http10 && asked.kind == Kind::Fails) {
            // Only the end of the connection could tell that it is whole. A reset may take bytes with it.
            assert_eq!(end, End::Reset, "{asked:?}");
            let body = parse(&all[at..]).map_or_else(Vec::new, |response| response.body);
            assert!(content(asked.seed, asked.length).starts_with(&body), "{asked:?}");
            return;
        }
        let response = parse(&all[at..]).expect("a head");
        assert_eq!(response.status, 200, "{request:?}");
        at += response.len;
        let Some(asked) = *request else {
            assert_eq!(response.body, FILE);
            continue;
        };
        let expected = content(asked.seed, asked.length);
        assert_eq!(response.body.len(), expected.len(), "{asked:?}");
        assert!(response.body == expected, "{asked:?}");
        if !asked.is_right() {
            // A length that was kept to is a whole response to the client, whatever was after it.
            assert_eq!(response.whole, asked.kind == Kind::Long, "{asked:?}");
            break;
        }
        assert!(response.whole, "{asked:?}");
    }
    assert_eq!(at, all.len(), "nothing follows; {end:?}");
}

fn run(seed: u64) {
    let mut chance = Random::new(seed ^ 0xd21b);
    let config = if chance.one_in(2) {
        Config::new(seed)
    } else {
        let mut config = Config::nasty(seed);
        config.faults.read_error = 0.0;
        config.faults.accept_error = 0.0;
        // Reclaim takes no pages out of the middle of what has just been used.
        config.faults.eviction = 0.0;
        config
    };
    let world = World::new(config);
    world.write_file("file", FILE);
    world.evict_all();
    let mut stage = Stage::new(world, Tuning::default(), |files, _| Dribble {
        files,
        springs: HashMap::new(),
        next: 0,
        woken: VecDeque::new(),
    });
    let mut clients = Vec::new();
    for _ in 0..6 {
        let is_http10 = chance.one_in(4);
        let count = if is_http10 { 1 } else { 1 + chance.below(8) };
        let requests: Vec<Request> =
            (0..count).map(|_| (!chance.one_in(3)).then(|| Asked::random(&mut chance))).collect();
        let peer = stage.world.connect();
        if chance.one_in(3) {
            peer.set_read_rate(Some(100_000 + chance.bits() % 1_000_000));
        }
        for (place, request) in requests.iter().enumerate() {
            let version = if is_http10 { "1.0" } else { "1.1" };
            peer.send(&bytes_of(*request, version, place + 1 == count));
        }
        clients.push((peer, requests, is_http10, chance.one_in(8)));
    }
    for round in 0.. {
        stage.turn(Duration::from_millis(20));
        for (peer, _, _, leaves) in &clients {
            if *leaves && round == 20 {
                peer.reset();
            }
        }
        if round > 20 && clients.iter().all(|(peer, .., leaves)| *leaves || peer.end().is_some()) {
            break;
        }
        assert!(round < 20_000, "a client waits for ever: {:?}", stage.worker);
    }
    for (peer, requests, is_http10, leaves) in &clients {
        if !leaves {
            check(&peer.received(), peer.end().unwrap(), requests, *is_http10);
        }
        peer.close();
    }
    stage.check_nothing_is_left();
}

#[test]
fn bodies_that_dribble_are_right_to_the_byte() {
    for_seeds(200, run);
}
