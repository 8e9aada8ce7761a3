//! Requests that are passed on to several servers, of which some refuse connections, say nothing, break
//! connections or come back: the share of each, what is sent again, and how often.

use core::time::Duration;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use config::{
    Action, Balance, Config, GatewayRules, HashBy, HealthRules, Protocol, Route, ServerAddress,
    ServerUrl, Upstream,
};
use handler::router::Router;
use handler::serving::Snapshot;
use ring::sim::{Peer, PeerListener, World};
use samum::network::Listeners;
use samum::worker::Worker;
use session::Http1;
use testkit::Random;

use crate::options::Options;
use crate::seams::stage::parse_whole;
use crate::seams::world::{Client as _, Plain, config, for_seeds, parts, pass};

const STEP: Duration = Duration::from_millis(20);
const SERVERS: u8 = 3;

/// What a server does with requests.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Mood {
    /// Answers each.
    Well,
    /// No connection is made or refused.
    Hanging,
    /// Connections are refused.
    Refusing,
    /// Requests are read, and never answered.
    Silent,
    /// A connection is reset when a request has come.
    Resetting,
    /// A request is answered, and the connection is closed without saying so.
    Closing,
}

/// A server behind the proxy.
struct Origin {
    number: u8,
    mood: Mood,
    listener: Option<PeerListener>,
    links: Vec<(Peer, Vec<u8>)>,
    /// The requests that came: their methods and paths.
    seen: Vec<String>,
}

impl Origin {
    fn new(number: u8) -> Self {
        Self { number, mood: Mood::Well, listener: None, links: Vec::new(), seen: Vec::new() }
    }

    fn address(number: u8) -> core::net::SocketAddr {
        ([192, 0, 2, number], 80).into()
    }

    fn set(&mut self, world: &World, mood: Mood) {
        if matches!(mood, Mood::Refusing | Mood::Hanging) {
            for (link, _) in self.links.drain(..) {
                link.reset();
            }
        }
        match mood {
            Mood::Refusing => self.listener = None,
            Mood::Hanging => {
                self.listener = None;
                let listener = world.listen(Self::address(self.number));
                listener.stop_answering();
                self.listener = Some(listener);
            }
            _ if matches!(self.mood, Mood::Refusing | Mood::Hanging) || self.listener.is_none() => {
                self.listener = None;
                self.listener = Some(world.listen(Self::address(self.number)));
            }
            _ => {}
        }
        self.mood = mood;
    }

    /// Reads what has come, and answers as its mood is.
    fn act(&mut self) {
        while let Some(link) = self.listener.as_ref().and_then(PeerListener::accept) {
            self.links.push((link, Vec::new()));
        }
        let (mood, number) = (self.mood, self.number);
        let seen = &mut self.seen;
        self.links.retain_mut(|(link, bytes)| {
            bytes.extend(link.take());
            while let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
                let head = String::from_utf8(bytes.drain(..end + 4).collect()).unwrap();
                let body = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
                let body: usize = body.map_or(0, |length| length.parse().unwrap());
                bytes.drain(..body.min(bytes.len()));
                seen.push(head.split(" HTTP/").next().unwrap().to_owned());
                let text = format!("server {number}");
                let len = text.len();
                match mood {
                    Mood::Well | Mood::Closing => link.send(
                        format!("HTTP/1.1 200 OK\r\nContent-Length: {len}\r\n\r\n{text}")
                            .as_bytes(),
                    ),
                    Mood::Silent => {}
                    Mood::Resetting | Mood::Hanging | Mood::Refusing => {
                        link.reset();
                        return false;
                    }
                }
                if mood == Mood::Closing {
                    link.close();
                    return false;
                }
            }
            link.end().is_none()
        });
    }
}

struct Stage {
    world: World,
    worker: Worker<Http1, Listeners, Router>,
    origins: Vec<Origin>,
    clients: Vec<(Plain, u64)>,
    /// The statuses and bodies of the answers, by the number of the request.
    answers: BTreeMap<u64, (u16, String)>,
    asked: u64,
}

fn rules() -> GatewayRules {
    GatewayRules {
        timeout_connect: Duration::from_secs(1),
        timeout_upstream: Duration::from_secs(2),
        ..GatewayRules::default()
    }
}

impl Stage {
    fn new(seed: u64, rules: GatewayRules) -> Self {
        Self::with_paths(seed, rules, &[None; SERVERS as usize])
    }

    /// The servers have these paths in their URLs.
    fn with_paths(seed: u64, rules: GatewayRules, paths: &[Option<&str>]) -> Self {
        let world = World::new(config(seed));
        let mut parts = parts(&world, Options::default());
        let url = |(number, path): (u8, &Option<&str>)| ServerUrl {
            protocol: Protocol::Http,
            address: ServerAddress::Ip(Origin::address(number)),
            path: path.map(str::to_owned),
        };
        let upstream = Upstream { servers: (1..=SERVERS).zip(paths).map(url).collect(), rules };
        let route =
            Route { path: "/".to_owned(), action: Action::Proxy(upstream), ..Route::default() };
        let mut config = Config::default();
        config.sites[0].routes = vec![route];
        parts.snapshot = Arc::new(Snapshot::new(&config).expect("valid"));
        parts.roots = Vec::new();
        let network = Listeners::new(parts.listeners.clone());
        let worker = Worker::over(parts, network).expect("memory");
        let mut origins: Vec<_> = (1..=SERVERS).map(Origin::new).collect();
        for origin in &mut origins {
            origin.set(&world, Mood::Well);
        }
        let (clients, answers) = (Vec::new(), BTreeMap::new());
        Self { world, worker, origins, clients, answers, asked: 0 }
    }

    fn set(&mut self, server: usize, mood: Mood) {
        self.origins[server - 1].set(&self.world, mood);
    }

    /// A client asks for a path of its own. The number of the request.
    fn ask(&mut self, method: &str) -> u64 {
        let number = self.asked;
        self.ask_for(method, &format!("/{number}"))
    }

    fn ask_for(&mut self, method: &str, path: &str) -> u64 {
        let number = self.asked;
        self.asked += 1;
        let mut client = Plain::new(Rc::new(self.world.connect()), number);
        let body = if method == "GET" { "" } else { "Content-Length: 3\r\n\r\nabc" };
        let end = if body.is_empty() { "\r\n" } else { body };
        client.send(format!("{method} {path} HTTP/1.1\r\nHost: a\r\n{end}").as_bytes());
        self.clients.push((client, number));
        number
    }

    /// Lets so much time pass.
    fn pass(&mut self, time: Duration) {
        let until = self.worker.ring().now() + time;
        while self.worker.ring().now() < until {
            let next = self.worker.ring().now() + STEP;
            self.worker.turn(Some(next.min(until))).expect("a ring that waits");
            self.origins.iter_mut().for_each(Origin::act);
            let answers = &mut self.answers;
            self.clients.retain_mut(|(client, number)| {
                client.look();
                let response = parse_whole(client.received());
                if let Some(response) = &response {
                    let body = String::from_utf8(response.body.clone()).unwrap();
                    answers.insert(*number, (response.status, body));
                }
                assert!(
                    response.is_some() || client.end().is_none(),
                    "request {number} is cut off"
                );
                response.is_none()
            });
        }
    }

    /// Asks, and waits for the answer: the status, and the number of the server.
    fn answer(&mut self, method: &str) -> (u16, Option<usize>) {
        let number = self.ask(method);
        self.wait_for(number)
    }

    fn wait_for(&mut self, number: u64) -> (u16, Option<usize>) {
        for _ in 0..1000 {
            if let Some((status, body)) = self.answers.get(&number) {
                let server = body.strip_prefix("server ").map(|server| server.parse().unwrap());
                return (*status, server);
            }
            self.pass(STEP);
        }
        panic!("request {number} was not answered");
    }

    /// The requests that each server has seen since the last time.
    fn seen(&mut self) -> Vec<usize> {
        self.origins.iter_mut().map(|origin| core::mem::take(&mut origin.seen).len()).collect()
    }

    /// Nothing is left once all clients have gone and kept links are too old.
    fn check_nothing_is_left(mut self) {
        self.clients.clear();
        self.origins.iter_mut().for_each(|origin| origin.set(&self.world, Mood::Well));
        self.pass(Duration::from_secs(10));
        pass(&mut self.worker, Duration::from_secs(120));
        assert_eq!(self.worker.connections(), 0, "connections are left");
        assert_eq!(self.world.open_descriptors(), 1, "the listener");
    }
}

#[test]
fn each_server_has_its_share() {
    for_seeds(10, |seed| {
        for balance in [Balance::RoundRobin, Balance::Least] {
            let mut stage = Stage::new(seed, GatewayRules { balance, ..rules() });
            for _ in 0..30 {
                assert_eq!(stage.answer("GET").0, 200);
            }
            assert_eq!(stage.seen(), [10, 10, 10], "{balance:?}");
            stage.check_nothing_is_left();
        }
    });
}

/// A request that is sent again has the path of the server that gets it then.
#[test]
fn each_server_has_its_own_path() {
    for_seeds(5, |seed| {
        let mut stage = Stage::with_paths(seed, rules(), &[None, Some("/v1/"), Some("/")]);
        stage.set(2, Mood::Resetting);
        for _ in 0..6 {
            assert_eq!(stage.answer("GET").0, 200);
        }
        for origin in &stage.origins {
            assert!(!origin.seen.is_empty());
            for seen in &origin.seen {
                let is_below = seen.starts_with("GET /v1/");
                assert_eq!(is_below, origin.number == 2, "{seen} at {}", origin.number);
            }
        }
        stage.check_nothing_is_left();
    });
}

#[test]
fn a_path_has_its_server() {
    for_seeds(5, |seed| {
        let rules = GatewayRules { balance: Balance::Hash, hash_by: HashBy::Path, ..rules() };
        let mut stage = Stage::new(seed, rules);
        let mut servers = BTreeMap::new();
        for round in 0..3 {
            for path in 0..20 {
                let number = stage.ask_for("GET", &format!("/{path}"));
                let (status, server) = stage.wait_for(number);
                assert_eq!(status, 200);
                let before = *servers.entry(path).or_insert(server);
                assert_eq!(server, before, "path {path} in round {round}");
            }
        }
        assert!(stage.seen().iter().all(|count| *count > 0));
        // Those of a server that is down go elsewhere; the others stay.
        stage.set(2, Mood::Refusing);
        for path in 0..20 {
            let number = stage.ask_for("GET", &format!("/{path}"));
            let (status, server) = stage.wait_for(number);
            let before = servers[&path];
            assert_eq!(status, 200);
            assert!(if before == Some(2) { server != Some(2) } else { server == before });
        }
        stage.check_nothing_is_left();
    });
}

#[test]
fn a_server_that_fails_costs_its_clients_little_and_comes_back() {
    for_seeds(20, |seed| {
        for mood in [Mood::Refusing, Mood::Hanging, Mood::Silent, Mood::Resetting] {
            let mut stage = Stage::new(seed, rules());
            stage.set(2, mood);
            for _ in 0..12 {
                let (status, server) = stage.answer("GET");
                assert_eq!(status, 200, "{mood:?}");
                assert_ne!(server, Some(2));
            }
            // Three requests have found out.
            let most = if mood == Mood::Refusing || mood == Mood::Hanging { 0 } else { 3 };
            assert_eq!(stage.seen()[1], most, "{mood:?}");
            stage.set(2, Mood::Well);
            stage.pass(Duration::from_secs(20));
            for _ in 0..12 {
                assert_eq!(stage.answer("GET").0, 200);
            }
            let seen = stage.seen();
            assert!(seen.iter().all(|count| (3..=5).contains(count)), "{mood:?}: {seen:?}");
            stage.check_nothing_is_left();
        }
    });
}

#[test]
fn a_server_that_was_down_gets_one_request_to_try() {
    for_seeds(10, |seed| {
        let health = HealthRules { max_fails: 1, ..HealthRules::default() };
        let mut stage = Stage::new(seed, GatewayRules { health, ..rules() });
        stage.set(1, Mood::Silent);
        while stage.seen()[0] == 0 {
            stage.ask("GET");
            stage.pass(STEP);
        }
        stage.pass(Duration::from_secs(3));
        let _ = stage.seen();
        // Ten seconds after the failure, of the many requests one asks again.
        for _ in 0..200 {
            stage.ask("GET");
            stage.pass(STEP * 3);
        }
        assert_eq!(stage.seen()[0], 1);
        stage.pass(Duration::from_secs(3));
        assert!(stage.answers.values().all(|(status, _)| *status == 200), "{:?}", stage.answers);
        stage.check_nothing_is_left();
    });
}

#[test]
fn nothing_that_changes_something_is_sent_twice() {
    for_seeds(40, |seed| {
        let mut stage = Stage::new(seed, rules());
        let mut chance = Random::new(seed);
        let moods = [
            Mood::Well,
            Mood::Closing,
            Mood::Resetting,
            Mood::Silent,
            Mood::Refusing,
            Mood::Hanging,
        ];
        let mut counts: BTreeMap<String, u32> = BTreeMap::new();
        for _ in 0..60 {
            if chance.one_in(4) {
                stage.set(1 + chance.below(3), moods[chance.below(moods.len())]);
            }
            let method = ["GET", "POST", "PUT"][chance.below(3)];
            stage.ask(method);
            stage.pass(Duration::from_millis(1 + chance.below(200_u64)));
            for origin in &mut stage.origins {
                for request in core::mem::take(&mut origin.seen) {
                    *counts.entry(request).or_default() += 1;
                }
            }
        }
        stage.pass(Duration::from_secs(15));
        for origin in &mut stage.origins {
            for request in core::mem::take(&mut origin.seen) {
                *counts.entry(request).or_default() += 1;
            }
        }
        for (request, count) in &counts {
            let most = if request.starts_with("POST ") { 1 } else { 3 };
            assert!(*count <= most, "{request} was seen {count} times");
        }
        assert_eq!(stage.answers.len() as u64, stage.asked, "each is answered");
        let is_known = |status: u16| [200, 502, 504].contains(&status);
        assert!(stage.answers.values().all(|(status, _)| is_known(*status)), "{:?}", stage.answers);
        stage.check_nothing_is_left();
    });
}

#[test]
fn a_request_that_was_not_sent_goes_to_another_server_whatever_its_method() {
    for_seeds(10, |seed| {
        for mood in [Mood::Refusing, Mood::Hanging] {
            let mut stage = Stage::new(seed, rules());
            stage.set(1, mood);
            stage.set(3, mood);
            for _ in 0..5 {
                assert_eq!(stage.answer("POST"), (200, Some(2)), "{mood:?}");
            }
            assert_eq!(stage.seen(), [0, 5, 0]);
            stage.check_nothing_is_left();
        }
    });
}

#[test]
fn total_failure_makes_no_storm() {
    for_seeds(5, |seed| {
        let health = HealthRules { max_fails: 0, ..HealthRules::default() };
        let mut stage = Stage::new(seed, GatewayRules { health, ..rules() });
        for server in 1..=3 {
            stage.set(server, Mood::Resetting);
        }
        for _ in 0..2000 {
            stage.ask("GET");
            if stage.asked.is_multiple_of(4) {
                stage.pass(STEP);
            }
        }
        stage.pass(Duration::from_secs(1));
        assert!(stage.answers.values().all(|(status, _)| *status == 502));
        let sent: usize = stage.seen().iter().sum();
        // A fifth more, and ten per second: without a budget there would be 6,000.
        assert!((2000..=2000 + 400 + 200).contains(&sent), "{sent}");
        stage.check_nothing_is_left();
    });
}

#[test]
fn one_is_asked_when_all_are_down() {
    for_seeds(5, |seed| {
        let mut stage = Stage::new(seed, rules());
        for server in 1..=3 {
            stage.set(server, Mood::Resetting);
        }
        while stage.answers.len() < 9 {
            assert_eq!(stage.answer("GET").0, 502);
        }
        let _ = stage.seen();
        for _ in 0..4 {
            assert_eq!(stage.answer("GET").0, 502);
        }
        assert_eq!(stage.seen().iter().sum::<usize>(), 4, "each was sent once");
        for server in 1..=3 {
            stage.set(server, Mood::Well);
        }
        assert_eq!(stage.answer("POST").0, 200, "at once, not after ten seconds");
        stage.check_nothing_is_left();
    });
}

#[test]
fn checks_find_out_without_requests() {
    for_seeds(10, |seed| {
        let health = HealthRules {
            check: Some("/health".to_owned()),
            check_interval: Duration::from_secs(1),
            ..HealthRules::default()
        };
        let mut stage = Stage::new(seed, GatewayRules { health, ..rules() });
        stage.pass(Duration::from_millis(5500));
        for origin in &mut stage.origins {
            let seen = core::mem::take(&mut origin.seen);
            assert!(seen.iter().all(|request| request == "GET /health"), "{seen:?}");
            assert!((5..=6).contains(&seen.len()), "{seen:?}");
        }
        for mood in [Mood::Refusing, Mood::Hanging, Mood::Silent, Mood::Resetting] {
            stage.set(3, mood);
            stage.pass(Duration::from_secs(6));
            let _ = stage.seen();
            for _ in 0..6 {
                let (status, server) = stage.answer("POST");
                assert_eq!(status, 200, "{mood:?}");
                assert_ne!(server, Some(3), "{mood:?}");
            }
            stage.set(3, Mood::Well);
            stage.pass(Duration::from_secs(4));
            let servers: Vec<_> = (0..6).filter_map(|_| stage.answer("POST").1).collect();
            assert_eq!(servers.iter().filter(|server| **server == 3).count(), 2, "{mood:?}");
        }
    });
}
