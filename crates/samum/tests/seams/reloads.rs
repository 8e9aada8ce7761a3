//! Configurations that are replaced in the midst of requests: each response is of one configuration, what
//! both have stays as it is, and nothing is left of those that were replaced.

use core::time::Duration;
use std::collections::{BTreeMap, HashMap};
use std::ffi::CString;
use std::rc::Rc;
use std::sync::Arc;

use config::{Action, Address, Config, FileRules, Files, Route, Server, Tuning};
use handler::router::Router;
use handler::serving::Snapshot;
use ring::sim::{Peer, World};
use ring::{Event, Fd, Op, OpenHow, Ring};
use samum::crowd::Crowd;
use samum::network::Listeners;
use samum::worker::{Replacement, Worker};
use session::Http1;
use testkit::Random;

use crate::seams::stage::{Response, content, parse, parse_whole};
use crate::seams::world::{Client, Plain, config, for_seeds, parts, pass, run_until};

const DIRECTORIES: [&str; 4] = ["d0", "d1", "d2", "d3"];
const INDICES: [&str; 2] = ["index.html", "other.html"];
/// The names of large files, which are longer than a socket buffer.
const LARGE: [&str; 2] = ["large", "huge"];
const LENGTHS: [usize; 4] = [900, 40_000, 300_000, 700_000];
const PORT: u16 = 8080;

/// A choice of directories and listeners.
#[derive(Clone, Debug, PartialEq)]
struct Choice {
    /// For the paths `/`, `/a/` and `/b/`: the directory, and the index of its index file.
    routes: Vec<(usize, usize)>,
    /// The ports in addition to [`PORT`].
    ports: Vec<u16>,
}

const PATHS: [&str; 3] = ["/", "/a/", "/b/"];

impl Choice {
    fn first() -> Self {
        Self { routes: vec![(0, 0)], ports: Vec::new() }
    }

    fn random(chance: &mut Random) -> Self {
        let mut routes = Vec::new();
        for _ in 0..=chance.below(3) {
            routes.push((chance.below(4), chance.below(2)));
        }
        let ports = (1..4).filter(|_| chance.one_in(2)).map(|more| PORT + more).collect();
        Self { routes, ports }
    }

    fn config(&self, tuning: Tuning) -> Config {
        let mut config =
            Config { server: Server { tuning, ..Server::default() }, ..Config::default() };
        let site = &mut config.sites[0];
        let ports = self.ports.iter().chain([&PORT]);
        site.listen =
            ports.map(|port| Address::Ip(([127, 0, 0, 1], *port).into()).into()).collect();
        let routes = PATHS.into_iter().zip(&self.routes);
        site.routes = routes
            .map(|(path, (directory, index))| {
                let rules =
                    FileRules { index: vec![INDICES[*index].to_owned()], ..FileRules::default() };
                let files = Files { root: DIRECTORIES[*directory].into(), rules };
                Route { path: path.to_owned(), action: Action::Files(files), ..Route::default() }
            })
            .collect();
        config
    }

    /// The bytes of a path.
    fn bytes(&self, path: &str) -> Option<Vec<u8>> {
        let (place, _) = PATHS
            .iter()
            .take(self.routes.len())
            .enumerate()
            .rev()
            .find(|(_, prefix)| path.starts_with(**prefix))?;
        let (directory, index) = self.routes[place];
        match &path[PATHS[place].len()..] {
            "" => Some(bytes(directory, index)),
            name => {
                let file = LARGE.iter().position(|large| *large == name)?;
                Some(bytes(directory, 2 + file))
            }
        }
    }
}

/// The bytes of a file of a directory.
fn bytes(directory: usize, file: usize) -> Vec<u8> {
    content((1 + directory * 10 + file) as u64, LENGTHS[file])
}

/// Opens a directory of a simulated world.
pub(crate) fn open(ring: &mut Ring, root: &Fd, name: &str) -> Fd {
    let path = CString::new(name).expect("no NUL");
    ring.submit(Op::Open { dir: Some(root.clone()), path, how: OpenHow::BENEATH }, 0);
    let mut completions = Vec::new();
    ring.wait(None, &mut completions).expect("a ring that waits");
    match completions.pop().map(|completion| completion.result) {
        Some(Ok(Event::Opened(directory))) => directory,
        other => panic!("{name}: {other:?}"),
    }
}

struct Stage {
    world: World,
    worker: Worker<Http1, Listeners, Router>,
    devices: [u64; 4],
    directories: Vec<Fd>,
    served: Arc<Snapshot>,
    choice: Choice,
    /// The numbers of the listeners and their sockets, by port.
    sockets: BTreeMap<u16, (u32, i32)>,
}

impl Stage {
    fn new(seed: u64, places: usize) -> Self {
        let world = World::new(config(seed));
        let devices = DIRECTORIES.map(|name| world.make_device(name));
        for (directory, name) in DIRECTORIES.iter().enumerate() {
            for (file, path) in INDICES.iter().chain(&LARGE).enumerate() {
                world.write_file(&format!("{name}/{path}"), &bytes(directory, file));
            }
        }
        world.evict_all();
        let mut parts = parts(&world, Tuning::default());
        let root = parts.roots.remove(0);
        let directories = DIRECTORIES.map(|name| open(&mut parts.ring, &root, name)).to_vec();
        let choice = Choice::first();
        let served = Arc::new(Snapshot::new(&choice.config(Tuning::default())).expect("valid"));
        parts.roots = vec![directories[0].clone()];
        parts.snapshot = Arc::clone(&served);
        parts.crowd = Crowd::new(places);
        let sockets = BTreeMap::from([(PORT, (0, parts.listeners[0].raw()))]);
        let network = Listeners::new(parts.listeners.clone());
        let worker = Worker::over(parts, network).expect("memory");
        Self { world, worker, devices, directories, served, choice, sockets }
    }

    fn replace(&mut self, choice: Choice, tuning: Tuning) {
        let next = Arc::new(self.served.successor(&choice.config(tuning)).expect("valid"));
        let same =
            |root: usize| self.served.roots().iter().position(|old| *old == next.roots()[root]);
        let succession = Arc::new(self.served.succession(&next, same));
        let directory = |path: &std::path::PathBuf| {
            let place = DIRECTORIES.iter().position(|name| path.as_os_str() == *name);
            self.directories[place.expect("one of them")].clone()
        };
        let roots: HashMap<usize, Fd> = (0..).zip(next.roots().iter().map(directory)).collect();
        let mut sockets = BTreeMap::new();
        let mut listeners = Vec::new();
        for (number, listen) in next.listeners() {
            let port = listen.address.port().expect("TCP");
            if let Some(socket) = self.sockets.get(&port) {
                sockets.insert(port, *socket);
            } else {
                let socket = self.worker.ring().sim_listener(&self.world);
                sockets.insert(port, (*number, socket.raw()));
                listeners.push((*number, socket));
            }
        }
        let snapshot = Arc::clone(&next);
        let logs = Vec::new();
        let replacement = Replacement { snapshot, succession, roots, listeners, logs };
        self.worker.replace_configuration(replacement);
        (self.served, self.choice, self.sockets) = (next, choice, sockets);
    }

    fn check_nothing_is_left(mut self) {
        self.replace(Choice::first(), Tuning::default());
        self.directories.clear();
        pass(&mut self.worker, Duration::from_secs(300));
        assert_eq!(self.worker.connections(), 0);
        let open = self.world.open_descriptors() - self.world.open_pipes();
        assert_eq!(open, 2, "a root and a listener");
        assert_eq!(Arc::strong_count(&self.served), 2, "the worker has one configuration");
        assert_eq!(self.worker.held(), (0, 0));
        assert_eq!(self.world.stalls(), [], "a sendfile would have slept");
    }
}

/// A client that asks for one thing after the other.
struct Asker {
    port: u16,
    /// The number of its listener.
    listener: u32,
    client: Plain,
    at: usize,
    /// The last choice that has its listener.
    last: Choice,
    /// The path that it waits for, and the choices since it asked.
    asked: Option<(String, Vec<Choice>)>,
    /// Responses on this connection.
    answered: usize,
    /// The number of looks so far.
    age: usize,
    /// True if the listener was removed before the connection may have reached it.
    may_be_refused: bool,
}

/// Looks after which a connection has reached its listener.
const AGE: usize = 3;

impl Asker {
    fn new(stage: &Stage, seed: u64, chance: &mut Random) -> Self {
        let ports: Vec<_> = stage.sockets.iter().collect();
        let (port, (listener, socket)) = ports[chance.below(ports.len())];
        let peer: Peer = stage.world.connect_to(*socket);
        if chance.one_in(4) {
            peer.set_read_rate(Some(1_000_000 + chance.bits() % 1_000_000));
        }
        let client = Plain::new(Rc::new(peer), seed);
        Self {
            port: *port,
            listener: *listener,
            client,
            at: 0,
            last: stage.choice.clone(),
            asked: None,
            answered: 0,
            age: 0,
            may_be_refused: false,
        }
    }

    fn has_listener(&self, stage: &Stage) -> bool {
        stage.sockets.get(&self.port).is_some_and(|(listener, _)| *listener == self.listener)
    }

    /// The configuration was replaced.
    fn replaced(&mut self, stage: &Stage) {
        if self.has_listener(stage) {
            self.last = stage.choice.clone();
            if let Some((_, choices)) = &mut self.asked {
                choices.push(self.last.clone());
            }
        } else if self.age < AGE {
            self.may_be_refused = true;
        }
    }

    fn ask(&mut self, chance: &mut Random) {
        let mut path = PATHS[chance.below(3)].to_owned();
        if chance.one_in(2) {
            path += LARGE[chance.below(2)];
        }
        self.client.send(format!("GET {path} HTTP/1.1\r\nHost: sim\r\n\r\n").as_bytes());
        self.asked = Some((path, vec![self.last.clone()]));
    }

    /// Takes what has come. Returns whether the connection can be used further.
    fn look(&mut self, stage: &Stage) -> bool {
        self.client.look();
        self.age += 1;
        let is_removed = !self.has_listener(stage);
        let Some((path, choices)) = &self.asked else { return self.client.end().is_none() };
        let response = parse_whole(&self.client.received()[self.at..]);
        let Some(Response { status, head, body, len, .. }) = response else {
            let is_lost = self.client.end().is_some();
            // The last response of a connection may have begun before its listener was removed.
            let may_be_lost = is_removed && (self.answered > 0 || self.may_be_refused);
            assert!(!is_lost || may_be_lost, "{path} is lost");
            return !is_lost;
        };
        let fits = choices.iter().any(|choice| match choice.bytes(path) {
            Some(bytes) => status == 200 && bytes == body,
            None => status == 404,
        });
        assert!(fits, "{path} is of none of {choices:?}: {head}");
        self.at += len;
        self.asked = None;
        self.answered += 1;
        !head.contains("Connection: close")
    }
}

#[test]
fn each_response_is_of_one_configuration() {
    for_seeds(12, |seed| {
        let mut stage = Stage::new(seed, 1000);
        let mut chance = Random::new(seed);
        let mut askers: Vec<Asker> = Vec::new();
        let (mut answered, mut retired) = (0, 0);
        for _ in 0..600 {
            if askers.len() < 8 {
                askers.push(Asker::new(&stage, seed, &mut chance));
            }
            for index in (0..askers.len()).rev() {
                let before = askers[index].answered;
                let goes_on = askers[index].look(&stage);
                answered += askers[index].answered - before;
                if !goes_on {
                    retired += 1;
                    askers.swap_remove(index).client.shut_down();
                } else if askers[index].asked.is_none() && chance.one_in(20) {
                    askers.swap_remove(index).client.shut_down();
                } else if askers[index].asked.is_none() && chance.one_in(3) {
                    askers[index].ask(&mut chance);
                }
            }
            if chance.one_in(12) {
                stage.replace(Choice::random(&mut chance), Tuning::default());
                askers.iter_mut().for_each(|asker| asker.replaced(&stage));
            }
            if chance.one_in(50) {
                stage.world.evict_all();
            }
            pass(&mut stage.worker, Duration::from_millis(3));
        }
        for mut asker in askers {
            run_until(&mut stage.worker, || {
                asker.client.look();
                asker.asked.is_none() || asker.client.end().is_some() || {
                    let all = &asker.client.received()[asker.at..];
                    parse(all).is_some_and(|response| response.whole)
                }
            });
            asker.look(&stage);
            asker.client.shut_down();
        }
        assert!(answered > 100 && retired > 0, "{answered} answers, {retired} retired");
        stage.check_nothing_is_left();
    });
}

/// Waits for the next response of a client.
fn response(stage: &mut Stage, client: &mut Plain, at: &mut usize) -> Response {
    let mut response = None;
    run_until(&mut stage.worker, || {
        client.look();
        response = parse_whole(&client.received()[*at..]);
        response.is_some()
    });
    let response = response.expect("a response");
    *at += response.len;
    response
}

#[test]
fn connections_that_wait_at_a_removed_listener_are_served() {
    for_seeds(20, |seed| {
        let mut stage = Stage::new(seed, 1000);
        let with = Choice { ports: vec![PORT + 1], ..Choice::first() };
        stage.replace(with, Tuning::default());
        let (_, socket) = stage.sockets[&(PORT + 1)];
        let mut clients: Vec<_> =
            (0..12).map(|_| Plain::new(Rc::new(stage.world.connect_to(socket)), seed)).collect();
        for client in &mut clients {
            client.send(b"GET /huge HTTP/1.1\r\nHost: sim\r\n\r\n");
        }
        // The worker does nothing meanwhile.
        let mut beside = Ring::simulated(&stage.world);
        let until = beside.now() + Duration::from_millis(20);
        beside.wait(Some(until), &mut Vec::new()).expect("a ring that waits");
        drop(beside);
        let other = Choice { routes: vec![(3, 1)], ports: Vec::new() };
        stage.replace(other, Tuning::default());
        let mut answers = 0;
        while !clients.is_empty() {
            // Any of them may be the next.
            let mut whole = None;
            run_until(&mut stage.worker, || {
                whole = clients.iter_mut().position(|client| {
                    client.look();
                    parse(client.received()).is_some_and(|response| response.whole)
                });
                whole.is_some()
            });
            let mut client = clients.swap_remove(whole.expect("all are served"));
            let body = parse(client.received()).expect("whole").body;
            // They have begun with the listener, whose configuration it was.
            assert!(body == bytes(0, 3), "client {answers}");
            client.shut_down();
            answers += 1;
        }
        stage.check_nothing_is_left();
    });
}

#[test]
fn what_both_configurations_have_stays_cached() {
    for_seeds(20, |seed| {
        let mut stage = Stage::new(seed, 100);
        let first = Choice { routes: vec![(0, 0), (1, 0), (2, 0)], ports: Vec::new() };
        stage.replace(first, Tuning::default());
        let (mut client, mut at) = (Plain::new(Rc::new(stage.world.connect()), seed), 0);
        for (path, directory) in [("/", 0), ("/a/", 1), ("/b/large", 2)] {
            client.send(format!("GET {path} HTTP/1.1\r\nHost: sim\r\n\r\n").as_bytes());
            let file = if path == "/b/large" { 2 } else { 0 };
            assert!(response(&mut stage, &mut client, &mut at).body == bytes(directory, file));
        }
        // From now on no open, stat or read of two of the directories would end.
        stage.devices[..2].iter().for_each(|device| stage.world.hang(*device));
        let second = Choice { routes: vec![(1, 0), (0, 0), (2, 1)], ports: vec![PORT + 1] };
        stage.replace(second, Tuning::default());
        for (path, directory, file) in [("/", 1, 0), ("/a/", 0, 0), ("/b/", 2, 1)] {
            client.send(format!("GET {path} HTTP/1.1\r\nHost: sim\r\n\r\n").as_bytes());
            assert!(response(&mut stage, &mut client, &mut at).body == bytes(directory, file));
        }
        assert_eq!(stage.world.counts().hangs, 0, "a cached file was read again");
        stage.devices.iter().for_each(|device| stage.world.release(*device));
        client.shut_down();
        stage.check_nothing_is_left();
    });
}

#[test]
fn other_timeouts_hold_at_once() {
    for_seeds(5, |seed| {
        let mut stage = Stage::new(seed, 100);
        let mut idle = Plain::new(Rc::new(stage.world.connect()), seed);
        pass(&mut stage.worker, Duration::from_secs(5));
        let tuning = Tuning { timeout_idle: Duration::from_secs(6), ..Tuning::default() };
        stage.replace(Choice::first(), tuning);
        pass(&mut stage.worker, Duration::from_millis(500));
        idle.look();
        assert_eq!(idle.end(), None);
        pass(&mut stage.worker, Duration::from_secs(2));
        assert_eq!(stage.worker.connections(), 0);
        stage.check_nothing_is_left();
    });
}

#[test]
fn a_directory_that_is_lost_is_unavailable_until_it_is_there_again() {
    for_seeds(10, |seed| {
        let mut stage = Stage::new(seed, 100);
        let (mut client, mut at) = (Plain::new(Rc::new(stage.world.connect()), seed), 0);
        // A response that has begun is completed.
        let peer = Rc::new(stage.world.connect());
        let (mut slow, mut slow_at) = (Plain::new(Rc::clone(&peer), seed), 0);
        peer.stop_reading();
        slow.send(b"GET /huge HTTP/1.1\r\nHost: sim\r\n\r\n");
        pass(&mut stage.worker, Duration::from_millis(100));
        for round in 0..3 {
            for path in ["/", "/huge", "/missing"] {
                let is_lost = round == 1;
                client.send(format!("GET {path} HTTP/1.1\r\nHost: sim\r\n\r\n").as_bytes());
                let response = response(&mut stage, &mut client, &mut at);
                let expected = if path == "/missing" { 404 } else { 200 };
                let expected = if is_lost { 503 } else { expected };
                assert_eq!(response.status, expected, "{round} {path}");
                assert_eq!(response.head.contains("Retry-After"), is_lost);
            }
            let directory = stage.directories[0].clone();
            stage.worker.replace_root(0, (round == 1).then_some(&directory));
        }
        stage.worker.replace_root(0, Some(&stage.directories[0].clone()));
        peer.set_read_rate(None);
        assert!(response(&mut stage, &mut slow, &mut slow_at).body == bytes(0, 3));
        client.shut_down();
        slow.shut_down();
        stage.check_nothing_is_left();
    });
}
