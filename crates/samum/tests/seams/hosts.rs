//! Three sites in one worker, with the same paths and different bytes: each request gets the bytes of
//! its own site, and what happens to one site does not cost the others anything.

use core::time::Duration;
use std::ffi::CString;
use std::rc::Rc;
use std::sync::Arc;

use config::{Action, Config, FileRules, Files, Route, Site, Tuning};
use handler::router::Router;
use handler::serving::Snapshot;
use ring::sim::World;
use ring::{Event, Fd, Op, OpenHow, Ring};
use samum::network::Listeners;
use samum::worker::Worker;
use session::Http1;

use crate::seams::stage::{content, parse_whole};
use crate::seams::world::{Client, Plain, config, for_seeds, parts, pass, run_until};

/// The directories of the sites, and the one that takes the place of the first.
const DIRECTORIES: [&str; 4] = ["one", "two", "three", "new"];
/// Paths that all sites have: a directory with an index, a small file, and a large one, which is longer
/// than the socket buffer.
const PATHS: [(&str, &str, usize); 3] =
    [("/", "index.html", 900), ("/sub/small", "sub/small", 5000), ("/large", "large", 700_000)];
/// Hosts, and the site of each.
const HOSTS: [(&str, usize); 8] = [
    ("one.example", 0),
    ("two.example", 1),
    ("a.three.example:8080", 2),
    ("TWO.example.", 1),
    ("b.c.three.example", 2),
    ("three.example", 0),
    ("unknown.example", 0),
    ("", 0),
];

struct Stage {
    world: World,
    worker: Worker<Http1, Listeners, Router>,
    /// The devices of the directories.
    devices: [u64; 4],
    /// The last of [`DIRECTORIES`].
    new: Fd,
}

/// The sites, each with a directory of its own.
fn sites() -> Config {
    let mut config = Config::default();
    let site = config.sites.remove(0);
    for (root, host) in
        ["one", "two", "three"].into_iter().zip(["one.example", "two.example", "*.three.example"])
    {
        let files = Files { root: root.into(), rules: FileRules::default() };
        let route = Route { action: Action::Files(files), ..Route::default() };
        config.sites.push(Site {
            hosts: vec![host.to_owned()],
            routes: vec![route],
            is_default: root == "one",
            ..site.clone()
        });
    }
    config
}

/// The bytes of a file.
fn bytes(directory: usize, len: usize) -> Vec<u8> {
    content((directory * 1_000_000 + len) as u64, len)
}

fn open(ring: &mut Ring, root: &Fd, name: &str) -> Fd {
    let path = CString::new(name).expect("no NUL");
    ring.submit(Op::Open { dir: Some(root.clone()), path, how: OpenHow::BENEATH }, 0);
    let mut completions = Vec::new();
    ring.wait(None, &mut completions).expect("a ring that waits");
    match completions.pop().map(|completion| completion.result) {
        Some(Ok(Event::Opened(directory))) => directory,
        other => panic!("{name}: {other:?}"),
    }
}

impl Stage {
    fn new(seed: u64) -> Self {
        let world = World::new(config(seed));
        let devices = DIRECTORIES.map(|name| world.make_device(name));
        for (directory, name) in DIRECTORIES.iter().enumerate() {
            world.make_dir(&format!("{name}/sub"));
            for (_, file, len) in PATHS {
                world.write_file(&format!("{name}/{file}"), &bytes(directory, len));
            }
        }
        world.evict_all();
        let mut parts = parts(&world, Tuning::default());
        let root = parts.roots.remove(0);
        let [one, two, three, new] = DIRECTORIES.map(|name| open(&mut parts.ring, &root, name));
        parts.roots = vec![one, two, three];
        parts.snapshot = Arc::new(Snapshot::new(&sites()).expect("valid hosts"));
        let network = Listeners::new(parts.listeners.clone());
        let worker = Worker::over(parts, network).expect("memory");
        Self { world, worker, devices, new }
    }

    /// Asks for a path of a host, and checks that the response has the bytes of a directory.
    fn check(&mut self, client: &mut Plain, at: &mut usize, host: &str, directory: usize) {
        for (path, _, len) in PATHS {
            client.send(request(host, path).as_bytes());
            self.expect(client, at, &bytes(directory, len));
        }
    }

    /// Waits for the next response of a client, which must have these bytes.
    fn expect(&mut self, client: &mut Plain, at: &mut usize, body: &[u8]) {
        let mut response = None;
        run_until(&mut self.worker, || {
            client.look();
            response = parse_whole(&client.received()[*at..]);
            response.is_some()
        });
        let response = response.expect("a response");
        assert_eq!(response.status, 200);
        assert!(response.body == body, "the bytes of another site: {}", response.head);
        *at += response.len;
    }

    fn check_nothing_is_left(self) {
        let Self { world, mut worker, new, .. } = self;
        drop(new);
        // A file that no request asks for is closed after half a minute.
        pass(&mut worker, Duration::from_secs(300));
        assert_eq!(worker.connections(), 0);
        let open = world.open_descriptors() - world.open_pipes();
        assert_eq!(open, 4, "three roots and the listener");
        assert_eq!(world.stalls(), [], "a sendfile would have slept");
    }
}

fn request(host: &str, path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n")
}

#[test]
fn each_request_on_a_connection_gets_the_bytes_of_its_own_site() {
    for_seeds(20, |seed| {
        let mut stage = Stage::new(seed);
        let (mut client, mut at) = (Plain::new(Rc::new(stage.world.connect()), seed), 0);
        // Cold at first, then from the cache.
        for _ in 0..2 {
            for (host, directory) in HOSTS {
                stage.check(&mut client, &mut at, host, directory);
            }
        }
        stage.world.evict_all();
        let mut pipelined = String::new();
        for (host, _) in HOSTS {
            PATHS.iter().for_each(|(path, ..)| pipelined += &request(host, path));
        }
        client.send(pipelined.as_bytes());
        for (_, directory) in HOSTS {
            for (_, _, len) in PATHS {
                stage.expect(&mut client, &mut at, &bytes(directory, len));
            }
        }
        // An absolute target counts, and Host does not.
        client.send(b"GET http://two.example:80/ HTTP/1.1\r\nHost: a.three.example\r\n\r\n");
        stage.expect(&mut client, &mut at, &bytes(1, PATHS[0].2));
        // HTTP/1.0 needs no Host.
        client.send(b"GET / HTTP/1.0\r\n\r\n");
        stage.expect(&mut client, &mut at, &bytes(0, PATHS[0].2));
        client.shut_down();
        stage.check_nothing_is_left();
    });
}

#[test]
fn another_root_for_one_site_leaves_the_files_of_the_others_cached() {
    for_seeds(20, |seed| {
        let mut stage = Stage::new(seed);
        let (mut client, mut at) = (Plain::new(Rc::new(stage.world.connect()), seed), 0);
        for (host, directory) in &HOSTS[..3] {
            stage.check(&mut client, &mut at, host, *directory);
        }
        // A response of the first site is under way.
        let socket = Rc::new(stage.world.connect());
        let (mut slow, mut slow_at) = (Plain::new(Rc::clone(&socket), seed), 0);
        socket.stop_reading();
        slow.send(request("one.example", "/large").as_bytes());
        pass(&mut stage.worker, Duration::from_millis(50));

        // From now on no open, stat or read of the other sites would end. The bytes of their large
        // files are in the page cache.
        stage.devices[1..3].iter().for_each(|device| stage.world.hang(*device));
        stage.worker.replace_root(0, Some(&stage.new));
        for (host, directory) in &HOSTS[..3] {
            let directory = if *directory == 0 { 3 } else { *directory };
            stage.check(&mut client, &mut at, host, directory);
        }
        assert_eq!(stage.world.counts().hangs, 0, "a cached file was read again");

        socket.set_read_rate(None);
        stage.expect(&mut slow, &mut slow_at, &bytes(0, PATHS[2].2));
        stage.devices.iter().for_each(|device| stage.world.release(*device));
        client.shut_down();
        slow.shut_down();
        stage.check_nothing_is_left();
    });
}
