//! The conditions for clients, in a worker that serves files: access rules, limits on requests and
//! connections, rates, and what proxies say of their clients.

use core::time::Duration;
use std::rc::Rc;
use std::sync::Arc;

use config::{Config, Rate, Route, Tuning};
use handler::serving::Snapshot;
use ring::sim::{End, Peer, World};
use samum::worker::Worker;
use session::Http1;
use testkit::Response;

use crate::seams::stage::content;
use crate::seams::world::{assert_nothing_is_left, config, for_seeds, parts, pass, run_until};

const GET: &str = "GET /small HTTP/1.1\r\nHost: a\r\n\r\n";
const SMALL: usize = 900;
const LARGE: usize = 12_000_000;

/// All listeners expect headers of the PROXY protocol.
fn expect_headers(config: &mut Config) {
    config.sites[0].listen.iter_mut().for_each(|listen| listen.proxy_protocol = true);
}

struct Stage {
    world: World,
    worker: Worker<Http1>,
}

impl Stage {
    /// A site whose configuration has been changed so.
    fn new(seed: u64, change: impl FnOnce(&mut Config)) -> Self {
        let world = World::new(config(seed));
        world.write_file("small", &content(1, SMALL));
        world.write_file("large", &content(2, LARGE));
        let mut config = Config::default();
        change(&mut config);
        let mut parts = parts(&world, Tuning::default());
        parts.snapshot = Arc::new(Snapshot::new(&config).expect("a valid configuration"));
        Self { world, worker: Worker::new(parts).expect("memory") }
    }

    /// The only route of the site.
    fn with_route(seed: u64, change: impl FnOnce(&mut Route)) -> Self {
        Self::new(seed, |config| change(&mut config.sites[0].routes[0]))
    }

    /// Behind proxies, which send headers of the PROXY protocol. All peers are some.
    fn behind_proxies(seed: u64, change: impl FnOnce(&mut Route)) -> Self {
        Self::new(seed, |config| {
            config.server.trusted_proxies = vec!["10.0.0.0/8".parse().expect("a range")];
            expect_headers(config);
            change(&mut config.sites[0].routes[0]);
        })
    }

    /// A connection of a client, by a proxy.
    fn connect_for(&self, client: &str) -> Peer {
        let peer = self.world.connect();
        peer.send(format!("PROXY TCP4 {client} 192.0.2.200 1 80\r\n").as_bytes());
        peer
    }

    /// Waits for the next response; `None` if the connection ends before.
    fn response(&mut self, peer: &Peer) -> Option<Response> {
        let mut found = None;
        run_until(&mut self.worker, || {
            found = Response::parse(&peer.received(), false, false).expect("a response");
            found.is_some() || peer.end().is_some()
        });
        let (response, len) = found?;
        let rest = peer.take().split_off(len);
        assert!(rest.is_empty(), "one response at a time");
        Some(response)
    }

    /// Sends a request; returns the status of its response and its `Retry-After`.
    fn ask(&mut self, peer: &Peer, request: &str) -> (u16, Option<u64>) {
        peer.send(request.as_bytes());
        let response = self.response(peer).expect("a response");
        let retry_after =
            response.header("Retry-After").map(|value| value.parse().expect("seconds"));
        assert!(response.status != 200 || response.body == content(1, SMALL));
        (response.status, retry_after)
    }

    /// Lets the server close the connection of a peer.
    fn wait_for_end(&mut self, peer: &Peer) -> Option<End> {
        run_until(&mut self.worker, || peer.end().is_some());
        peer.end()
    }

    fn check_nothing_is_left(mut self, peers: Vec<Peer>) {
        drop(peers);
        assert_nothing_is_left(&self.world, &mut self.worker);
    }
}

#[test]
fn only_permitted_clients_are_answered() {
    for_seeds(10, |seed| {
        // The simulation numbers its peers: 10.0.0.1, 10.0.0.2.
        let mut stage = Stage::with_route(seed, |route| {
            route.access.allow = vec!["10.0.0.2".parse().expect("an address")];
        });
        let (one, other) = (stage.world.connect(), stage.world.connect());
        assert_eq!(stage.ask(&one, GET), (403, None));
        assert_eq!(stage.ask(&other, GET), (200, None));
        assert_eq!(stage.ask(&one, GET), (403, None), "the connection stays open");
        assert_eq!(stage.worker.stats().forbidden, 2);
        stage.check_nothing_is_left(vec![one, other]);
    });
}

#[test]
fn each_request_takes_a_token_once_also_if_its_answer_is_found_again() {
    for_seeds(20, |seed| {
        let requests = Some(Rate { per_second: 0.5, burst: 6 });
        let mut stage = Stage::with_route(seed, |route| route.limits.requests = requests);
        let peer = stage.world.connect();
        // The large file holds open files, so the answers after the first are found again in their turns.
        let large = "GET /large HTTP/1.1\r\nHost: a\r\nRange: bytes=0-99999\r\n\r\n";
        peer.send(format!("{large}{large}{large}{large}").as_bytes());
        let mut received = Vec::new();
        for _ in 0..4 {
            let mut found = None;
            assert!(run_until(&mut stage.worker, || {
                received.extend(peer.take());
                found = Response::parse(&received, false, false).expect("a response");
                found.is_some()
            }));
            let (response, len) = found.expect("it came");
            assert_eq!(response.status, 206);
            received.drain(..len);
        }
        assert_eq!(stage.ask(&peer, GET), (200, None));
        assert_eq!(stage.ask(&peer, GET), (200, None));
        let (status, retry_after) = stage.ask(&peer, GET);
        assert_eq!(status, 429);
        let seconds = retry_after.expect("Retry-After");
        assert!((1..=2).contains(&seconds), "{seconds}");
        pass(&mut stage.worker, Duration::from_secs(seconds));
        assert_eq!(stage.ask(&peer, GET), (200, None));
        assert_eq!(stage.worker.stats().limited_requests, 1);
        stage.check_nothing_is_left(vec![peer]);
    });
}

#[test]
fn the_last_connections_of_a_client_that_has_too_many_are_refused_and_closed() {
    for_seeds(10, |seed| {
        let limit = |route: &mut Route| route.limits.connections = Some(2);
        let mut stage = Stage::behind_proxies(seed, limit);
        let mut peers: Vec<Peer> = (0..3).map(|_| stage.connect_for("192.0.2.1")).collect();
        let other = stage.connect_for("192.0.2.2");
        pass(&mut stage.worker, Duration::from_millis(10));
        let mut refused = Vec::new();
        for (number, peer) in peers.iter().enumerate() {
            match stage.ask(peer, GET) {
                (200, None) => {}
                (429, Some(1)) => refused.push(number),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(refused.len(), 1, "the one that was accepted last");
        assert_eq!(stage.wait_for_end(&peers[refused[0]]), Some(End::Eof));
        assert_eq!(stage.ask(&other, GET), (200, None));
        drop(peers.remove(refused[0]));
        drop(peers.remove(0));
        pass(&mut stage.worker, Duration::from_secs(5));
        // A place is free again.
        let peer = stage.connect_for("192.0.2.1");
        assert_eq!(stage.ask(&peer, GET), (200, None));
        // Twice as many as are answered may wait to be told so.
        let more: Vec<Peer> = (0..4).map(|_| stage.connect_for("192.0.2.1")).collect();
        pass(&mut stage.worker, Duration::from_millis(10));
        let closed = more.iter().filter(|peer| peer.end().is_some()).count();
        assert_eq!(closed, 2, "others are closed at once");
        assert_eq!(stage.worker.stats().limited_connections, 3);
        peers.extend(more);
        peers.extend([peer, other]);
        stage.check_nothing_is_left(peers);
    });
}

#[test]
fn fields_of_trusted_proxies_alone_are_believed() {
    let from = |field: &str| format!("GET /small HTTP/1.1\r\nHost: a\r\n{field}\r\n\r\n");
    for_seeds(5, |seed| {
        // The first peer is trusted.
        let mut stage = Stage::new(seed, |config| {
            config.server.trusted_proxies = vec!["10.0.0.1".parse().expect("an address")];
            config.sites[0].routes[0].access.allow = vec!["192.0.2.1".parse().expect("an address")];
            let requests = Some(Rate { per_second: 0.01, burst: 4 });
            config.sites[0].routes[0].limits.requests = requests;
        });
        let (proxy, liar) = (stage.world.connect(), stage.world.connect());
        for (field, status) in [
            ("X-Forwarded-For: 192.0.2.1", 200),
            ("X-Forwarded-For: 192.0.2.1, 192.0.2.2", 403),
            ("X-Forwarded-For: 192.0.2.1, 10.0.0.1", 200),
            ("Forwarded: for=\"192.0.2.1:80\"", 200),
            ("Forwarded: for=192.0.2.1\r\nX-Forwarded-For: 192.0.2.2", 400),
            ("Forwarded: for=192.0.2.1\r\nX-Forwarded-For: 192.0.2.1", 200),
            ("X-Forwarded-For: garbage", 403),
            ("Accept: */*", 403),
            ("X-Forwarded-For: 192.0.2.1", 429),
        ] {
            assert_eq!(stage.ask(&proxy, &from(field)).0, status, "{field}");
        }
        assert_eq!(stage.ask(&liar, &from("X-Forwarded-For: 192.0.2.1")).0, 403);
        assert_eq!(stage.worker.stats().forged_clients, 1);
        stage.check_nothing_is_left(vec![proxy, liar]);
    });
}

#[test]
fn headers_of_the_proxy_protocol_come_in_any_pieces_and_in_time() {
    for_seeds(10, |seed| {
        let mut stage = Stage::behind_proxies(seed, |route| {
            route.access.allow = vec!["192.0.2.1".parse().expect("an address")];
        });
        let header = "PROXY TCP4 192.0.2.1 192.0.2.200 1 80\r\n";
        let whole = stage.world.connect();
        assert_eq!(stage.ask(&whole, &format!("{header}{GET}")), (200, None));
        assert_eq!(stage.ask(&whole, GET), (200, None));
        let bytewise = stage.world.connect();
        for byte in format!("{header}{GET}").bytes() {
            bytewise.send(&[byte]);
            pass(&mut stage.worker, Duration::from_micros(300));
        }
        assert_eq!(stage.response(&bytewise).expect("a response").status, 200);
        let refused = stage.connect_for("192.0.2.2");
        assert_eq!(stage.ask(&refused, GET), (403, None));
        // Its own connection, such as a health check: the address is the proxy's.
        let local = stage.world.connect();
        let header = [&b"\r\n\r\n\0\r\nQUIT\n\x20\x00\x00\x00"[..], GET.as_bytes()].concat();
        local.send(&header);
        assert_eq!(stage.response(&local).expect("a response").status, 403);
        let garbage = stage.world.connect();
        garbage.send(GET.as_bytes());
        assert!(stage.wait_for_end(&garbage).is_some());
        assert_eq!(garbage.received_bytes(), 0, "no answer");
        assert_eq!(stage.worker.stats().proxy_header_errors, 1);
        let silent = stage.world.connect();
        silent.send(b"PROXY TCP4 ");
        pass(&mut stage.worker, Duration::from_secs(19));
        assert_eq!(silent.end(), None);
        pass(&mut stage.worker, Duration::from_secs(2));
        assert!(silent.end().is_some(), "as a head that does not come");
        let peers = vec![whole, bytewise, refused, local, garbage, silent];
        stage.check_nothing_is_left(peers);
    });
}

#[test]
fn others_than_proxies_may_send_no_header() {
    let mut stage = Stage::new(1, expect_headers);
    let (plain, liar) = (stage.world.connect(), stage.world.connect());
    assert_eq!(stage.ask(&plain, GET), (200, None));
    liar.send(format!("PROXY TCP4 192.0.2.1 192.0.2.200 1 80\r\n{GET}").as_bytes());
    assert!(stage.wait_for_end(&liar).is_some());
    assert_eq!(liar.received_bytes(), 0);
    assert_eq!(stage.worker.stats().proxy_header_errors, 1);
    stage.check_nothing_is_left(vec![plain, liar]);
}

#[test]
fn a_response_is_sent_at_the_rate_of_its_route() {
    const RATE: u64 = 1_000_000;
    for (seed, paces) in [(1, true), (2, false)] {
        let mut stage = Stage::new(seed, |config| {
            let limited = &mut config.sites[0].routes[0];
            limited.limits.bytes_per_second = Some(RATE);
            let mut free = limited.clone();
            free.path = "/free/".to_owned();
            free.limits.bytes_per_second = None;
            config.sites[0].routes.push(free);
        });
        // Unix sockets are not paced by the kernel.
        stage.world.configure(|config| config.paces = paces);
        let peer = Rc::new(stage.world.connect());
        peer.send(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n");
        pass(&mut stage.worker, Duration::from_secs(1));
        let before = peer.received_bytes() as u64;
        pass(&mut stage.worker, Duration::from_secs(8));
        let bytes = peer.received_bytes() as u64 - before;
        assert!(bytes.abs_diff(8 * RATE) <= 8 * RATE / 20, "paces: {paces}: {bytes} in 8 s");
        assert!(run_until(&mut stage.worker, || peer.received_bytes() > LARGE));
        let _ = peer.take();
        peer.send(b"GET /free/large HTTP/1.1\r\nHost: a\r\n\r\n");
        pass(&mut stage.worker, Duration::from_secs(2));
        assert!(peer.received_bytes() > LARGE, "a route without a rate: {}", peer.received_bytes());
        drop(peer);
        assert_nothing_is_left(&stage.world, &mut stage.worker);
    }
}

#[test]
fn rates_that_would_make_clients_slow_are_refused() {
    let error = |change: &dyn Fn(&mut Config)| {
        let mut config = Config::default();
        change(&mut config);
        Snapshot::new(&config).err()
    };
    let rate =
        |config: &mut Config, rate| config.sites[0].routes[0].limits.bytes_per_second = Some(rate);
    assert_eq!(error(&|config| rate(config, 1024)), None);
    assert!(error(&|config| rate(config, 1023)).is_some());
    assert!(error(&|config| rate(config, 0)).is_some());
    let slow = |config: &mut Config| {
        config.server.tuning.rate_min = 4000;
        rate(config, 7999);
    };
    let text = error(&slow).expect("an error");
    assert!(text.contains("8000/s"), "{text}");
}
