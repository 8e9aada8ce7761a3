//! Worlds in which everything goes wrong now and then, over each transport: short sends and receives,
//! small socket buffers, slow disks, and clients that stop reading,
//! go on, or break the connection in the middle. What a client has is right to the last byte; the
//! others get all.

use core::time::Duration;
use std::rc::Rc;

use ring::sim::{Config, End, Faults, Peer};
use sendfile::Transport;
use session::Http1;
use testkit::{Content, Random, Response};

use crate::cases::Site;
use crate::seams::below::Layered;
use crate::seams::lossy::{Lossy, LossyClient};
use crate::seams::record::{RecordClient, Records, SECRET};
use crate::seams::tls::{self, TlsClient};
use crate::seams::world::{
    self, Client, Dial, Make, Plain, assert_nothing_is_left, config, for_seeds, options, serve_over,
};

const SEEDS: u64 = 200;
const CLIENTS: usize = 4;
const REQUESTS: usize = 5;
/// Sizes around every boundary: empty, in memory, at its limit, blocks, several blocks.
const SIZES: [u64; 7] = [0, 1, 5000, 32_769, 65_537, 300_001, 1_000_000];
/// Turns of at most 20 ms after which a client that does nothing odd has waited for too long.
const ROUNDS_MAX: usize = 50_000;

#[test]
fn over_the_kernels_tcp() {
    for_seeds(SEEDS, |seed| run(seed, |tcp, _| tcp, Plain::new));
}

#[test]
fn over_records() {
    for_seeds(SEEDS, |seed| {
        run(seed, |tcp, _| Layered::new(tcp, Records::new(SECRET)), RecordClient::new)
    });
}

#[test]
fn over_tls() {
    for_seeds(SEEDS, |seed| run(seed, tls::make, TlsClient::new));
}

#[test]
fn over_a_lossy_network() {
    for_seeds(SEEDS, |seed| {
        run(seed, |tcp, _| Layered::new(tcp, Lossy::default()), LossyClient::new)
    });
}

fn faulty(seed: u64, chance: &mut Random) -> Config {
    Config {
        send_buffer: 1000 + chance.below(60_000),
        disk: Duration::from_micros(100)..=Duration::from_millis(1 + chance.bits() % 200),
        faults: Faults {
            short_read: 0.1,
            short_send: 0.3,
            short_receive: 0.3,
            probe_denial: 0.05,
            ..Faults::default()
        },
        ..config(seed)
    }
}

fn content(size: u64) -> Content {
    Content::pseudo_random(size, size)
}

/// One client: what it has asked for, and how far its answers have come.
struct Asker<C> {
    /// The client's socket, to be unkind to it.
    peer: Rc<Peer>,
    client: C,
    /// Sizes of the files that it asks for, in order.
    sizes: Vec<u64>,
    answered: usize,
    /// Plain bytes of the responses so far.
    at: usize,
    breaks: bool,
    broken: bool,
}

impl<C: Client> Asker<C> {
    fn new(peer: Rc<Peer>, dial: Dial<C>, chance: &mut Random) -> Self {
        let client = dial(Rc::clone(&peer), chance.bits());
        let sizes: Vec<_> = (0..REQUESTS).map(|_| SIZES[chance.below(SIZES.len())]).collect();
        let breaks = chance.one_in(4);
        let mut asker = Self { peer, client, sizes, answered: 0, at: 0, breaks, broken: false };
        for (number, size) in asker.sizes.iter().enumerate() {
            let last = number + 1 == REQUESTS;
            let close = if last { "Connection: close\r\n" } else { "" };
            let request = format!("GET /f{size} HTTP/1.1\r\nHost: test\r\n{close}\r\n");
            asker.client.send(request.as_bytes());
        }
        asker
    }

    /// Looks at what has come; panics at a byte that is wrong.
    fn look(&mut self) {
        self.client.look();
        while let Some(size) = self.sizes.get(self.answered) {
            let rest = &self.client.received()[self.at..];
            if (rest.len() as u64) < *size {
                return;
            }
            let Ok(Some((response, len))) = Response::parse(rest, false, false) else { return };
            assert_eq!(response.status, 200);
            content(*size).assert_is(&response.body);
            self.at += len;
            self.answered += 1;
        }
        assert_eq!(self.client.received().len(), self.at, "bytes behind the last response");
    }

    /// Checks what has come of the response that has not come to its end.
    fn check_rest(&self) {
        let rest = &self.client.received()[self.at..];
        let head = rest.windows(4).position(|four| four == b"\r\n\r\n");
        if let (Some(size), Some(head)) = (self.sizes.get(self.answered), head) {
            content(*size).assert_at(0, &rest[head + 4..]);
        }
    }

    fn is_done(&self) -> bool {
        self.broken || self.client.end().is_some()
    }
}

fn run<T: Transport, C: Client>(seed: u64, make: Make<T>, dial: Dial<C>) {
    let mut chance = Random::new(seed);
    let names = SIZES.map(|size| (format!("f{size}"), content(size)));
    let site = names
        .into_iter()
        .fold(Site::new("faults"), |site, (name, content)| site.file(name, content));
    let world = world::make(faulty(seed, &mut chance), &site);
    let mut worker = serve_over::<Http1, T>(&world, options(&site), make);
    let mut askers: Vec<_> =
        (0..CLIENTS).map(|_| Asker::new(Rc::new(world.connect()), dial, &mut chance)).collect();
    let mut rounds = 0;
    while !askers.iter().all(Asker::is_done) {
        rounds += 1;
        assert!(rounds < ROUNDS_MAX, "clients wait for ever: {worker:?}");
        let until = worker.ring().now() + Duration::from_millis(1 + chance.bits() % 20);
        worker.turn(Some(until)).expect("a ring that waits");
        for asker in &mut askers {
            let peer = &asker.peer;
            match chance.below(40) {
                0 => peer.stop_reading(),
                1..10 => peer.set_read_rate(None),
                10 => peer.set_read_rate(Some(100_000 + chance.bits() % 2_000_000)),
                11 if asker.breaks && chance.one_in(10) => {
                    // In the middle of a record, or of a request.
                    peer.send(&[3, 1]);
                    peer.reset();
                    asker.broken = true;
                }
                _ => {}
            }
            asker.look();
        }
    }
    for asker in &askers {
        asker.check_rest();
        if !asker.broken {
            let all = (asker.answered, asker.client.end());
            assert_eq!(all, (REQUESTS, Some(End::Eof)), "a client has not got everything");
        }
    }
    drop(askers);
    assert_nothing_is_left(&world, &mut worker);
}
