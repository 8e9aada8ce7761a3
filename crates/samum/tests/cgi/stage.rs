//! A server in this process, with programs at `/tool/` and files at `/`.

use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use ring::{Choice, Ring};
use samum::Stats;
use samum::config::{Action, Address, Cgi, Config, Files, Log, Route, Server, Tuning};
use samum::crowd::Crowd;
use samum::serving::Snapshot;
use samum::session::Http1;
use samum::worker::{Parts, Worker};
use testkit::{Client, Response, Tree, request};

use crate::common::{SOON, wait_until};

/// Runs a test on both drivers.
pub(crate) fn on_both_drivers(test: impl Fn(Choice)) {
    for driver in [Choice::Uring, Choice::Epoll] {
        eprintln!("driver: {driver:?}");
        test(driver);
    }
}

/// A directory with programs in `cgi` and files in `www`.
pub(crate) fn tree() -> Tree {
    Tree::new().directory("cgi").file("www/a.txt", "a file")
}

/// Writes a shell script.
pub(crate) fn script(tree: &Tree, name: &str, text: &str) {
    let path = format!("cgi/{name}");
    tree.write(&path, format!("#!/bin/sh\n{text}\n").as_str());
    fs::set_permissions(tree.path().join(path), fs::Permissions::from_mode(0o755)).unwrap();
}

/// The server.
pub(crate) struct Stage {
    pub(crate) address: testkit::Address,
    stop: Arc<AtomicBool>,
    log: Arc<Mutex<Vec<String>>>,
    worker: Option<JoinHandle<()>>,
    stats: Receiver<Stats>,
}

impl Stage {
    /// Serves the tree.
    pub(crate) fn new(driver: Choice, tree: &Tree) -> Self {
        Self::with(driver, tree, Cgi::new(PathBuf::new()))
    }

    /// The same with these limits.
    pub(crate) fn with(driver: Choice, tree: &Tree, limits: Cgi) -> Self {
        Self::start(driver, tree, limits, Tuning::default())
    }

    /// The same for clients that leave: one that has closed its side may still want its response, but not
    /// for long.
    pub(crate) fn impatient(driver: Choice, tree: &Tree, limits: Cgi) -> Self {
        let tuning = Tuning { timeout_send: Duration::from_secs(1), ..Tuning::default() };
        Self::start(driver, tree, limits, tuning)
    }

    fn start(driver: Choice, tree: &Tree, limits: Cgi, tuning: Tuning) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let files = Files { root: tree.path().join("www"), rules: Default::default() };
        let listen = vec![Address::Ip(address)];
        let server = Server { tuning, ..Server::default() };
        let mut config = Config::of_directory(files, listen, Log::default(), server);
        let cgi = Cgi { root: tree.path().join("cgi"), ..limits };
        let route =
            Route { path: "/tool/".to_owned(), action: Action::Cgi(cgi), ..Route::default() };
        config.sites[0].routes.push(route);
        let snapshot = Arc::new(Snapshot::new(&config).unwrap());
        let (reader, writer) = std::io::pipe().unwrap();
        let log = Arc::new(Mutex::new(Vec::new()));
        let lines = Arc::clone(&log);
        thread::spawn(move || {
            for line in BufReader::new(reader).split(b'\n') {
                let Ok(line) = line else { return };
                let line = String::from_utf8_lossy(&line).into_owned();
                eprintln!("{line}");
                lines.lock().unwrap_or_else(PoisonError::into_inner).push(line);
            }
        });
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let (tell, stats) = channel();
        let worker = thread::spawn(move || {
            let ring = Ring::new(driver).unwrap();
            let open =
                |path: &std::path::PathBuf| ring.adopt_file(fs::File::open(path).unwrap().into());
            let parts = Parts {
                listeners: vec![ring.adopt_socket(listener.into())],
                roots: snapshot.roots().iter().map(open).collect(),
                snapshot,
                crowd: Crowd::new(1000),
                page_cache: Arc::default(),
                descriptors_max: 100,
                access: None,
                notes: Some(ring.adopt_file(writer.into())),
                ring,
            };
            let mut worker = Worker::<Http1>::new(parts).unwrap();
            let step = Duration::from_millis(20);
            while !stopped.load(Ordering::Relaxed) {
                let until = worker.ring().now() + step;
                worker.turn(Some(until)).unwrap();
            }
            worker.shut_down();
            let until = worker.ring().now() + Duration::from_secs(2);
            while !worker.has_shut_down() && worker.ring().now() < until {
                worker.turn(Some(until)).unwrap();
            }
            worker.end();
            let _ = tell.send(worker.stats());
            let until = worker.ring().now() + Duration::from_secs(1);
            worker.write_logs(until);
        });
        let address = testkit::Address::Tcp(address);
        Self { address, stop, log, worker: Some(worker), stats }
    }

    /// A connection.
    pub(crate) fn connect(&self) -> Client {
        let mut client = Client::connect(&self.address).unwrap();
        client.set_limit(Duration::from_secs(30));
        client
    }

    /// The response to a request on a connection of its own.
    #[track_caller]
    pub(crate) fn ask(&self, head: &str) -> Response {
        let mut client = self.connect();
        client.send(request(head)).unwrap();
        let response = if head.starts_with("HEAD ") { client.head() } else { client.response() };
        response.unwrap_or_else(|error| panic!("no response to {head:?}: {error}"))
    }

    /// The response to a request with a body.
    #[track_caller]
    pub(crate) fn post(&self, head: &str, body: &[u8]) -> Response {
        let mut client = self.connect();
        client.send(request(&format!("{head}\nContent-Length: {}", body.len()))).unwrap();
        client.send(body).unwrap();
        client.response().unwrap_or_else(|error| panic!("no response to {head:?}: {error}"))
    }

    /// The lines for the operator so far.
    pub(crate) fn log(&self) -> Vec<String> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits for a line for the operator that contains `text`.
    #[track_caller]
    pub(crate) fn wait_for_log(&self, text: &str) {
        let is_there = wait_until(SOON, || self.log().iter().any(|line| line.contains(text)));
        assert!(is_there, "no {text:?} in {:?}", self.log());
    }

    /// Shuts the server down, and returns its counters.
    pub(crate) fn stop(mut self) -> Stats {
        self.shut_down();
        self.stats.recv_timeout(SOON).expect("the worker has ended")
    }

    fn shut_down(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(worker) = self.worker.take() {
            let result = worker.join();
            assert!(thread::panicking() || result.is_ok(), "the worker has panicked");
        }
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.shut_down();
    }
}

/// The text of a body.
pub(crate) fn text(response: &Response) -> &str {
    core::str::from_utf8(&response.body).unwrap()
}

/// The number that a program has written to a file, once it has.
#[track_caller]
pub(crate) fn pid_in(tree: &Tree, file: &str) -> u32 {
    let path = tree.path().join(file);
    let mut pid = None;
    let is_there = wait_until(SOON, || {
        let text = fs::read_to_string(&path).unwrap_or_default();
        pid = text.strip_suffix('\n').and_then(|text| text.parse().ok());
        pid.is_some()
    });
    assert!(is_there, "{file} is not written");
    pid.unwrap()
}

/// Waits until nothing is left of a process, not even a zombie.
#[track_caller]
pub(crate) fn wait_for_end(pid: u32) {
    let path = format!("/proc/{pid}");
    let has_ended = wait_until(SOON, || !fs::exists(&path).unwrap());
    let state = fs::read_to_string(format!("{path}/status")).unwrap_or_default();
    assert!(has_ended, "{pid} is left: {state}");
}
