//! Real servers with the library, and a real disk: nginx, lighttpd, Apache httpd, webfsd.

use core::net::SocketAddr;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use core::time::Duration;
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Instant;

use rustix::process::{Pid, Signal, kill_process};
use testkit::{Address, Client, Content, Disk, Throttle, Tree, kill_at};

use crate::common::{count_in, cpu, descriptors, family, preloaded, tree, until};

const MIB: u64 = 1024 * 1024;
const SMALL: u64 = 1000;
const LARGE: u64 = 3;
const HUGE_BYTES: u64 = 64 * MIB;
const CLIENTS: u64 = 64;

/// Sizes around the limits of the library, and others.
fn size_of_small(number: u64) -> u64 {
    match number % 8 {
        0 => number % 3,
        1 => 4095 + number % 3,
        2 => 16 * 1024 - 1 + number % 3,
        3 => number * 37,
        4 => number * 211 % 100_000,
        5 => 65_535 + number % 3,
        6 if number.is_multiple_of(64) => 256 * 1024 + number % 3,
        _ => 1 + number * 7,
    }
}

fn content(name: &str) -> Content {
    let number: u64 = name[1..].parse().unwrap();
    match &name[..1] {
        "s" => Content::pseudo_random(number, size_of_small(number)),
        "m" => Content::pseudo_random(number, MIB + number * 300_001),
        _ => Content::pseudo_random(number, HUGE_BYTES),
    }
}

/// The names of all files: small ones, some of a few MiB, one of 64 MiB.
fn names() -> Vec<String> {
    let small = (0..SMALL).map(|number| format!("s{number}"));
    let large = (0..LARGE).map(|number| format!("m{number}"));
    small.chain(large).chain(["h0".to_owned()]).collect()
}

fn site() -> Tree {
    names().iter().fold(tree(), |tree, name| tree.file(format!("site/{name}"), content(name)))
}

fn evict(tree: &Tree) {
    for name in names() {
        tree.evict(format!("site/{name}"));
    }
}

/// A server, as a process group that ends when this is dropped.
pub(crate) struct Running {
    child: Child,
    address: Address,
}

impl Running {
    pub(crate) fn start(command: &mut Command, port: u16) -> Self {
        let command = command.stdin(Stdio::null()).process_group(0);
        let child = command.spawn().unwrap();
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let mut running = Self { child, address: Address::Tcp(address) };
        let limit = Instant::now() + Duration::from_secs(10);
        while TcpStream::connect(address).is_err() {
            assert!(running.child.try_wait().unwrap().is_none(), "the server has ended");
            assert!(Instant::now() < limit, "the server does not listen");
            thread::sleep(Duration::from_millis(20));
        }
        running
    }

    pub(crate) fn client(&self) -> Client {
        let mut client = Client::connect(&self.address).unwrap();
        client.set_limit(Duration::from_secs(60));
        client
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Ends the server by SIGTERM, and checks that it obeys.
    #[track_caller]
    pub(crate) fn terminate(mut self) {
        self.signal(Signal::TERM);
        let limit = Instant::now() + Duration::from_secs(10);
        while self.child.try_wait().unwrap().is_none() {
            assert!(Instant::now() < limit, "it does not end");
            thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        for pid in family(self.child.id()).into_iter().rev() {
            // A process that has ended needs no signal. Its number is not used again so soon.
            if let Some(pid) = Pid::from_raw(pid.cast_signed()) {
                let _ = kill_process(pid, Signal::KILL);
            }
        }
        let _ = self.child.wait();
    }
}

pub(crate) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// The path of a program, or the reason to skip a test.
pub(crate) fn program(name: &str) -> Result<PathBuf, String> {
    installed(name).ok_or_else(|| format!("{name} is not installed"))
}

fn installed(program: &str) -> Option<PathBuf> {
    ["/usr/sbin", "/usr/bin"]
        .map(|place| Path::new(place).join(program))
        .into_iter()
        .find(|it| it.exists())
}

/// Asks for a file, or a range of it, and compares every byte.
#[track_caller]
fn get(client: &mut Client, name: &str, range: Option<(u64, u64)>) {
    let wanted = content(name);
    let field =
        range.map_or(String::new(), |(first, last)| format!("Range: bytes={first}-{last}\r\n"));
    client.send(format!("GET /{name} HTTP/1.1\r\nHost: test\r\n{field}\r\n")).unwrap();
    let response = client.response().unwrap_or_else(|error| panic!("{name}: {error}"));
    match range {
        None => {
            assert_eq!(response.status, 200, "{name}");
            wanted.assert_is(&response.body);
        }
        Some((first, last)) => {
            assert_eq!(response.status, 206, "{name}");
            assert_eq!(response.body.len() as u64, last - first + 1, "{name}");
            wanted.assert_at(first, &response.body);
        }
    }
}

/// Asks for all files, cold and then hot, with many clients at the same time: in whole and in ranges, on connections
/// that stay open; some clients leave in the middle of a response.
fn download_everything(server: &Running, tree: &Tree) {
    let names = names();
    for cold in [true, false] {
        if cold {
            evict(tree);
        }
        thread::scope(|scope| {
            for number in 0..CLIENTS {
                let names = &names;
                scope.spawn(move || one_client(server, number, names));
            }
        });
    }
}

fn one_client(server: &Running, number: u64, names: &[String]) {
    let mut client = server.client();
    for name in names.iter().skip(usize::try_from(number).unwrap()).step_by(64) {
        get(&mut client, name, None);
        let len = content(name).len();
        if len > 10 {
            let first = (number * 7919) % (len / 2);
            get(&mut client, name, Some((first, len - 1 - number % 3)));
        }
    }
    if number.is_multiple_of(8) {
        let mut leaving = server.client();
        leaving.send("GET /h0 HTTP/1.1\r\nHost: test\r\n\r\n").unwrap();
        leaving.read_exactly(100_000).unwrap();
    }
}

/// Fetches cold files from a slow disk, and a hot one meanwhile, which must not wait; no process may spin.
fn waits_without_stalling(server: &Running, tree: &Tree, throttle: &Throttle, hot: &str) {
    let mut client = server.client();
    get(&mut client, hot, None);
    tree.evict("site/m0");
    let before = cpu(server.child.id());
    throttle.limit(Some(MIB / 2));
    let began = Instant::now();
    let mut slowest = Duration::ZERO;
    thread::scope(|scope| {
        let cold = scope.spawn(|| get(&mut server.client(), "m0", None));
        while !cold.is_finished() {
            let asked = Instant::now();
            get(&mut client, hot, None);
            slowest = slowest.max(asked.elapsed());
            thread::sleep(Duration::from_millis(20));
        }
    });
    throttle.limit(None);
    let (took, used) = (began.elapsed(), cpu(server.child.id()) - before);
    assert!(took > Duration::from_secs(1), "the disk was not slow: {took:?}");
    assert!(slowest < took / 4, "the hot file took {slowest:?} of {took:?}");
    // One that spins uses all of it.
    assert!(used < took / 10, "{used:?} of processor in {took:?}");
}

pub(crate) fn nginx(tree: &Tree, port: u16, workers: u8, main: &str) -> PathBuf {
    let sendfile = if main.contains("sendfile off") { "" } else { "sendfile on;" };
    // The first line may name the user of the workers.
    let (user, main) = main
        .split_once('\n')
        .filter(|(first, _)| first.starts_with("user "))
        .unwrap_or(("user root;", main));
    let root = tree.path().display();
    let path = tree.path().join("nginx.conf");
    fs::write(
        &path,
        format!(
            "worker_processes {workers}; daemon off; pid {root}/pid; error_log {root}/error.log warn; {user}
             events {{ worker_connections 4000; }}
             http {{ access_log off; {sendfile} tcp_nopush on; server_tokens off; keepalive_requests 100000;
               {main}
               server {{ listen 127.0.0.1:{port} backlog=4096; root {root}/site; }} }}"
        ),
    )
    .unwrap();
    path
}

fn start_nginx(
    tree: &Tree,
    throttle: &Throttle,
    program: &Path,
    workers: u8,
    main: &str,
) -> Running {
    let port = free_port();
    let conf = nginx(tree, port, workers, main);
    let mut command = throttle.command(program);
    command.arg("-c").arg(conf);
    Running::start(helped(&mut command, tree), port)
}

/// Adds the library to a command, with its counts beside the site.
pub(crate) fn helped<'a>(command: &'a mut Command, tree: &Tree) -> &'a mut Command {
    preloaded(command).env("SAMUM_PRELOAD_STATS", tree.path().join("stats"))
}

/// The files with the counts of processes that have ended, one for each.
pub(crate) fn statistics(tree: &Tree) -> Vec<PathBuf> {
    let files = fs::read_dir(tree.path()).unwrap().map(|entry| entry.unwrap().path());
    files.filter(|path| path.file_stem().is_some_and(|stem| stem == "stats")).collect()
}

/// The sum of a count over all processes that have ended.
fn counted(tree: &Tree, name: &str) -> u64 {
    statistics(tree).iter().map(|file| count_in(file, name)).sum()
}

/// Checks that all processes have ended, and that some sockets were deferred. Otherwise nothing was tested.
#[track_caller]
fn assert_helped(tree: &Tree) {
    assert!(counted(tree, "rearmed") > 0, "no socket ever waited");
}

#[test]
fn nginx_in_many_shapes_sends_every_byte() {
    let program = testkit::or_skip!(program("nginx"));
    let tree = site();
    let throttle = testkit::or_skip!(Throttle::new(tree.path()));
    for (workers, main) in [
        (1, "sendfile_max_chunk 0;"),
        (4, "sendfile_max_chunk 2m; open_file_cache max=2000; open_file_cache_valid 60s;"),
        (1, "aio threads; open_file_cache max=2000;"),
        (2, "limit_rate 48m; limit_rate_after 1m;"),
        (1, "sendfile off;"),
    ] {
        statistics(&tree).into_iter().for_each(|path| fs::remove_file(path).unwrap());
        let server = start_nginx(&tree, &throttle, &program, workers, main);
        throttle.limit(Some(256 * MIB));
        download_everything(&server, &tree);
        throttle.limit(None);
        server.terminate();
        if !main.contains("aio") && !main.contains("sendfile off") {
            assert_helped(&tree);
        }
        let errors = fs::read_to_string(tree.path().join("error.log")).unwrap_or_default();
        assert!(!errors.contains("[alert]") && !errors.contains("[emerg]"), "{main}: {errors}");
    }
}

#[test]
fn nginx_as_a_cache_sends_every_byte() {
    let program = testkit::or_skip!(program("nginx"));
    let tree = site().directory("cache");
    let throttle = testkit::or_skip!(Throttle::new(tree.path()));
    let (origin, cache) = (free_port(), tree.path().join("cache"));
    let main = format!(
        "proxy_cache_path {} keys_zone=z:1m; server {{ listen 127.0.0.1:{origin}; root {}/site; }}
         proxy_cache z; proxy_cache_valid 1h; proxy_cache_key $uri; proxy_set_header Range '';
         proxy_temp_path {}/temp;
         upstream o {{ server 127.0.0.1:{origin}; }}",
        cache.display(),
        tree.path().display(),
        tree.path().display()
    );
    let port = free_port();
    let conf = nginx(&tree, port, 1, &main);
    let text = fs::read_to_string(&conf).unwrap();
    let from = format!("backlog=4096; root {}/site;", tree.path().display());
    let to = "backlog=4096; location / { proxy_pass http://o; }";
    fs::write(&conf, text.replace(&from, to)).unwrap();
    let mut command = throttle.command(&program);
    let server = Running::start(helped(command.arg("-c").arg(conf), &tree), port);
    let mut client = server.client();
    for round in 0..2 {
        for name in ["s3", "s11", "m1", "m2", "s700"] {
            get(&mut client, name, None);
        }
        if round == 0 {
            for file in files(&cache) {
                tree.evict(file.strip_prefix(tree.path()).unwrap());
            }
            throttle.limit(Some(16 * MIB));
        }
    }
    throttle.limit(None);
    server.terminate();
    assert_helped(&tree);
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

#[test]
fn nginx_does_not_stall_and_does_not_spin() {
    let program = testkit::or_skip!(program("nginx"));
    let tree = site();
    let throttle = testkit::or_skip!(Throttle::new(tree.path()));
    let server = start_nginx(&tree, &throttle, &program, 1, "open_file_cache max=2000;");
    waits_without_stalling(&server, &tree, &throttle, "s9");
    server.terminate();
    assert_helped(&tree);
}

/// Since Linux 6.16 only the owner of a file and processes that may write to it may call `cachestat(2)`. The
/// workers of most servers are neither.
#[test]
fn nginx_as_another_user_brings_cold_files_as_quickly_as_root() {
    const FILES: u64 = 8;
    const BYTES: u64 = 32 * MIB;
    const WINDOW: Duration = Duration::from_secs(4);
    let program = testkit::or_skip!(program("nginx"));
    let names = (0..FILES).map(|number| format!("f{number}"));
    let tree = names.clone().fold(tree(), |tree, name| {
        tree.file(format!("site/{name}"), Content::pseudo_random(1, BYTES))
    });
    open_to_all(tree.path());
    let throttle = testkit::or_skip!(Throttle::new(tree.path()));
    let measure = |user: &str| {
        let main = format!("{user}client_body_temp_path {}/body;", tree.path().display());
        let server = start_nginx(&tree, &throttle, &program, 1, &main);
        names.clone().for_each(|name| tree.evict(format!("site/{name}")));
        throttle.limit(Some(16 * MIB));
        let received = AtomicU64::new(0);
        let end = Instant::now() + WINDOW;
        thread::scope(|scope| {
            for name in names.clone() {
                let (mut client, received) = (server.client(), &received);
                scope.spawn(move || {
                    client.send(format!("GET /{name} HTTP/1.0\r\n\r\n")).unwrap();
                    while Instant::now() < end && client.read_exactly(64 * 1024).is_ok() {
                        received.fetch_add(64 * 1024, Ordering::Relaxed);
                    }
                });
            }
        });
        throttle.limit(None);
        server.terminate();
        received.into_inner() / 1000 / WINDOW.as_secs()
    };
    // Programs beside it may take a window from one of them, but not each.
    let mut last = [0; 2];
    let is_as_quick = (0..3).any(|_| {
        last = ["user root;\n", "user daemon daemon;\n"].map(measure);
        last[1] * 100 >= last[0] * 80
    });
    assert_helped(&tree);
    // Measured: as fast. With the kernel's readahead for the others it was 41 to 97 %.
    assert!(is_as_quick, "{} KB/s as root, {} KB/s as another", last[0], last[1]);
}

/// The filter of a unit with `SystemCallFilter=@system-service` and a systemd older than the call.
#[test]
fn nginx_beneath_a_filter_that_kills_at_cachestat_is_helped_without_it() {
    const CACHESTAT: i64 = 451;
    let program = testkit::or_skip!(program("nginx"));
    let tree = site();
    let throttle = testkit::or_skip!(Throttle::new(tree.path()));
    let port = free_port();
    let conf = nginx(&tree, port, 1, "");
    let mut command = throttle.command(program);
    command.arg("-c").arg(conf);
    let server = Running::start(kill_at(helped(&mut command, &tree), &[CACHESTAT]), port);
    waits_without_stalling(&server, &tree, &throttle, "s9");
    server.terminate();
    assert_helped(&tree);
    let errors = fs::read_to_string(tree.path().join("error.log")).unwrap_or_default();
    assert!(!errors.contains("exited on signal"), "{errors}");
}

#[test]
fn nginx_keeps_no_descriptors_reloads_and_ends() {
    let program = testkit::or_skip!(program("nginx"));
    let tree = site();
    let throttle = testkit::or_skip!(Throttle::new(tree.path()));
    let server = start_nginx(&tree, &throttle, &program, 2, "");
    let pid = server.child.id();
    get(&mut server.client(), "s9", None);
    // One worker may answer before the other has opened its descriptors.
    until("both workers are there", || family(pid).len() == 3);
    thread::sleep(Duration::from_millis(300));
    let before = descriptors(pid);
    let mut cold = 0..LARGE;
    for round in 0..10_000 {
        if round % 2000 == 0 {
            tree.evict(format!("site/m{}", cold.next().unwrap_or(0)));
        }
        let name = if round % 100 == 0 { "m0" } else { "s9" };
        let mut client = server.client();
        client.send(format!("GET /{name} HTTP/1.0\r\n\r\n")).unwrap();
        if round % 3 > 0 {
            client.response().unwrap();
        }
    }
    // Each worker has /dev/null open for its readers, and keeps it open.
    until("descriptors are closed", || descriptors(pid) <= before + 2);
    // With a new configuration there are new workers, while old ones serve their last requests.
    tree.evict("site/m1");
    throttle.limit(Some(MIB));
    let workers = family(pid);
    thread::scope(|scope| {
        let cold = scope.spawn(|| get(&mut server.client(), "m1", None));
        thread::sleep(Duration::from_millis(100));
        server.signal(Signal::HUP);
        until("workers are new", || family(pid).iter().any(|pid| !workers.contains(pid)));
        get(&mut server.client(), "s9", None);
        assert!(!cold.is_finished(), "the disk was not slow");
        throttle.limit(Some(16 * MIB));
    });
    throttle.limit(None);
    until("old workers have ended", || {
        let now = family(pid);
        workers.iter().filter(|&&worker| worker != pid).all(|worker| !now.contains(worker))
    });
    server.terminate();
}

/// A program that leaves its first process, such as nginx with `daemon on`, by the files with its number.
struct Daemon {
    pid_files: [PathBuf; 2],
}

impl Daemon {
    /// The process whose number the first file has.
    fn pid(&self) -> Option<u32> {
        fs::read_to_string(&self.pid_files[0]).ok()?.trim().parse().ok()
    }

    fn signal(&self, signal: Signal) {
        signal_pid(self.pid().unwrap(), signal);
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let pids = self.pid_files.iter().filter_map(|file| fs::read_to_string(file).ok());
        let pids = pids.filter_map(|text| text.trim().parse().ok()).collect::<Vec<u32>>();
        pids.into_iter().flat_map(family).for_each(|pid| signal_pid(pid, Signal::KILL));
    }
}

/// A process that has ended needs no signal. Its number is not used again so soon.
fn signal_pid(pid: u32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid.cast_signed()) {
        let _ = kill_process(pid, signal);
    }
}

/// Each request has a connection of its own, which a server may not refuse or cut off at any of these.
#[test]
fn nginx_with_four_workers_of_another_user_reloads_rotates_logs_and_upgrades_under_load() {
    let program = testkit::or_skip!(program("nginx"));
    let tree = site();
    open_to_all(tree.path());
    let throttle = testkit::or_skip!(Throttle::new(tree.path()));
    let (port, root) = (free_port(), tree.path());
    let main = format!(
        "user daemon daemon;\nclient_body_temp_path {0}/body; open_file_cache max=2000; access_log {0}/access.log;",
        root.display()
    );
    let conf = nginx(&tree, port, 4, &main);
    let text = fs::read_to_string(&conf).unwrap();
    let text = text.replace("daemon off;", "daemon on; env LD_PRELOAD; env SAMUM_PRELOAD_STATS;");
    fs::write(&conf, text.replace("access_log off;", "")).unwrap();
    let mut command = throttle.command(program);
    let started = helped(command.arg("-c").arg(conf), &tree).stdin(Stdio::null()).status().unwrap();
    assert!(started.success());
    let daemon = Daemon { pid_files: ["pid", "pid.oldbin"].map(|name| root.join(name)) };
    let address = Address::Tcp(SocketAddr::from(([127, 0, 0, 1], port)));
    let connect = || {
        let mut client = Client::connect(&address).unwrap();
        client.set_limit(Duration::from_secs(60));
        client
    };
    until("all workers are there", || daemon.pid().is_some_and(|pid| family(pid).len() == 5));
    throttle.limit(Some(64 * MIB));
    let (is_over, served) = (AtomicU32::new(0), AtomicU32::new(0));
    let waited = |pid| {
        let file = PathBuf::from(format!("{}/stats.{pid}", root.display()));
        count_in(&file, "rearmed") > 0
    };
    thread::scope(|scope| {
        for number in 0..8_u64 {
            let (is_over, served, connect) = (&is_over, &served, &connect);
            scope.spawn(move || {
                let mut at = number;
                while is_over.load(Ordering::Relaxed) == 0 {
                    let name = if at % 4 == 0 {
                        format!("m{}", at / 4 % LARGE)
                    } else {
                        format!("s{}", at % SMALL)
                    };
                    get(&mut connect(), &name, None);
                    served.fetch_add(1, Ordering::Relaxed);
                    at += 7;
                }
            });
        }
        let (tree, is_over) = (&tree, &is_over);
        scope.spawn(move || {
            while is_over.load(Ordering::Relaxed) == 0 {
                (0..LARGE).for_each(|number| {
                    testkit::evict_unused(tree.path().join(format!("site/m{number}")))
                });
                thread::sleep(Duration::from_millis(200));
            }
        });
        let _end = End(is_over);
        let some_more = || {
            let before = served.load(Ordering::Relaxed);
            until("requests are served", || served.load(Ordering::Relaxed) > before + 50);
        };
        some_more();
        let master = daemon.pid().unwrap();
        let workers = family(master);
        daemon.signal(Signal::HUP);
        until("workers are new", || {
            family(master).iter().filter(|pid| !workers.contains(pid)).count() >= 4
        });
        some_more();
        fs::rename(root.join("access.log"), root.join("access.log.1")).unwrap();
        daemon.signal(Signal::USR1);
        until("there is a new log", || root.join("access.log").exists());
        some_more();
        let lines = |name| fs::read_to_string(root.join(name)).unwrap().lines().count();
        until("it has lines", || lines("access.log") > 0);
        daemon.signal(Signal::USR2);
        until("there is a new master", || {
            daemon.pid().is_some_and(|pid| pid != master && family(pid).len() == 5)
        });
        some_more();
        signal_pid(master, Signal::QUIT);
        let successor = daemon.pid().unwrap();
        some_more();
        until("new workers have waited", || family(successor).into_iter().any(waited));
    });
    throttle.limit(None);
    daemon.signal(Signal::TERM);
    until("it ends", || daemon.pid().is_none());
    let errors = fs::read_to_string(root.join("error.log")).unwrap_or_default();
    assert!(!errors.contains("[alert]") && !errors.contains("[emerg]"), "{errors}");
    assert_helped(&tree);
}

/// Ends a load when this is dropped, also by a failure.
struct End<'a>(&'a AtomicU32);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(1, Ordering::Relaxed);
    }
}

/// A file of counts is new and its owner's alone, also where another user has put a link.
#[test]
fn counts_are_the_owners_alone_and_follow_no_link() {
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    let program = testkit::or_skip!(program("nginx"));
    let tree = site().file("precious", "precious");
    let throttle = testkit::or_skip!(Throttle::new(tree.path()));
    let server = start_nginx(&tree, &throttle, &program, 1, "");
    let pid = server.child.id();
    let worker = family(pid).into_iter().find(|&it| it != pid).unwrap();
    for name in [format!("stats.{worker}"), format!("stats.{worker}.new")] {
        symlink(tree.path().join("precious"), tree.path().join(name)).unwrap();
    }
    for name in ["m0", "m1"] {
        tree.evict(format!("site/{name}"));
        get(&mut server.client(), name, None);
    }
    server.terminate();
    let file = tree.path().join(format!("stats.{worker}"));
    let found = fs::symlink_metadata(&file).unwrap();
    assert_eq!((found.is_file(), found.permissions().mode() & 0o777), (true, 0o600));
    assert_eq!(fs::read_to_string(tree.path().join("precious")).unwrap(), "precious");
    // The counts of the disk are those of all, because there is one.
    let text = fs::read_to_string(&file).unwrap();
    let disk: Vec<_> = text.lines().filter(|line| line.starts_with("disk ")).collect();
    assert_eq!(disk.len(), 1, "{text}");
    let words: Vec<_> = disk[0].split(' ').collect();
    let (deferred, bytes) = (count_in(&file, "deferred"), count_in(&file, "read_bytes"));
    assert!(deferred > 0 && bytes >= content("m0").len() + content("m1").len(), "{text}");
    assert_eq!((words[3], words[7]), (&*deferred.to_string(), &*bytes.to_string()), "{text}");
}

#[test]
fn nginx_sends_files_that_are_replaced_and_truncated() {
    let program = testkit::or_skip!(program("nginx"));
    let tree = tree().file("site/r0", vec![200; 600_000]);
    let throttle = testkit::or_skip!(Throttle::new(tree.path()));
    let server = start_nginx(&tree, &throttle, &program, 1, "");
    throttle.limit(Some(16 * MIB));
    let (whole, ended) = (AtomicU32::new(0), AtomicU32::new(0));
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let mut client = server.client();
                // The last file stays whole, so each client has whole responses in the end.
                let mut left = 15;
                while left > 0 {
                    left -= ended.load(Ordering::Relaxed);
                    client.send("GET /r0 HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
                    // The response was cut when the file was truncated. The client makes a new connection.
                    let Ok(response) = client.response() else {
                        client = server.client();
                        continue;
                    };
                    assert_eq!(response.status, 200);
                    // The file is whole: it is replaced by rename, and each byte names its generation.
                    if response.body.len() == 600_000 && response.body[0] < 250 {
                        assert!(response.body.iter().all(|&byte| byte == response.body[0]));
                        whole.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
        let _end = End(&ended);
        for generation in 0..=20u8 {
            tree.write("site/new", vec![generation; 600_000]);
            tree.evict("site/new");
            fs::rename(tree.path().join("site/new"), tree.path().join("site/r0")).unwrap();
            thread::sleep(Duration::from_millis(20));
            if generation % 5 == 4 {
                fs::write(tree.path().join("site/cut"), vec![255; 500_000]).unwrap();
                tree.evict("site/cut");
                fs::rename(tree.path().join("site/cut"), tree.path().join("site/r0")).unwrap();
                thread::sleep(Duration::from_millis(10));
                let cut =
                    fs::File::options().write(true).open(tree.path().join("site/r0")).unwrap();
                cut.set_len(1000).unwrap();
            }
        }
    });
    throttle.limit(None);
    assert!(whole.into_inner() > 100, "not only what was cut");
    tree.write("site/s9", content("s9"));
    get(&mut server.client(), "s9", None);
    server.terminate();
}

#[test]
fn nginx_is_told_what_the_disk_says_when_it_fails() {
    const TORN: u64 = MIB;
    let program = testkit::or_skip!(program("nginx"));
    let disk = testkit::or_skip!(Disk::new());
    let [good, bad] = [1, 2].map(|seed| Content::pseudo_random(seed, 4 * MIB));
    let files = disk.tree().file("good", good.clone()).file("bad", bad.clone());
    let tree = tree().directory("site").symlink("site/disk", files.path());
    let throttle = testkit::or_skip!(Throttle::new(tree.path()));
    let server = start_nginx(&tree, &throttle, &program, 1, "");
    files.evict("good");
    disk.tear(&files, "bad", &bad, TORN);
    for _ in 0..3 {
        let mut client = server.client();
        client.send("GET /disk/bad HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        assert_eq!(client.head().unwrap().status, 200);
        let body = client.read_to_end().unwrap();
        assert_eq!(body.len() as u64, TORN);
        bad.assert_at(0, &body);
        let mut client = server.client();
        client.send("GET /disk/good HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        good.assert_is(&client.response().unwrap().body);
    }
    server.terminate();
    assert_helped(&tree);
    // The library has to report this: the kernel would report the same, but sleep.
    assert!(counted(&tree, "failed") >= 3);
    assert_eq!(counted(&tree, "left_no_progress"), 0);
    let said = fs::read_to_string(tree.path().join("error.log")).unwrap();
    assert_eq!(said.matches("sendfile() failed (5: Input/output error)").count(), 3, "{said}");
}

fn sends_and_does_not_stall(command: &mut Command, port: u16, tree: &Tree, throttle: &Throttle) {
    let server = Running::start(helped(command, tree), port);
    waits_without_stalling(&server, tree, throttle, "s5");
    throttle.limit(Some(256 * MIB));
    download_everything(&server, tree);
    throttle.limit(None);
    server.terminate();
    assert_helped(tree);
}

#[test]
fn lighttpd_sends_every_byte_and_does_not_stall() {
    let program = testkit::or_skip!(program("lighttpd"));
    let tree = site();
    let throttle = testkit::or_skip!(Throttle::new(tree.path()));
    let (port, root) = (free_port(), tree.path().display());
    let conf = tree.path().join("lighttpd.conf");
    let text = format!(
        "server.document-root = \"{root}/site\"\nserver.port = {port}\nserver.bind = \"127.0.0.1\"\n\
         server.network-backend = \"sendfile\"\nserver.max-keep-alive-requests = 100000\n\
         server.errorlog = \"{root}/error.log\"\n"
    );
    fs::write(&conf, text).unwrap();
    let mut command = throttle.command(program);
    sends_and_does_not_stall(command.arg("-D").arg("-f").arg(conf), port, &tree, &throttle);
}

/// A small server with a loop around select(2). It closes the connection after an empty file, also without the
/// library.
#[test]
fn webfsd_sends_every_byte_and_does_not_stall() {
    let program = testkit::or_skip!(program("webfsd"));
    let tree = site();
    let throttle = testkit::or_skip!(Throttle::new(tree.path()));
    let port = free_port();
    let mut command = throttle.command(program);
    command.args(["-F", "-i", "127.0.0.1", "-c", "1000", "-p"]).arg(port.to_string());
    command.arg("-r").arg(tree.path().join("site"));
    let server = Running::start(helped(&mut command, &tree), port);
    waits_without_stalling(&server, &tree, &throttle, "s5");
    evict(&tree);
    throttle.limit(Some(256 * MIB));
    thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                let mut client = server.client();
                for name in ["m0", "s1", "m1", "s4", "m2"] {
                    get(&mut client, name, None);
                }
                get(&mut client, "h0", Some((10 * MIB + 5, 20 * MIB + 7)));
            });
        }
    });
    throttle.limit(None);
    server.terminate();
    assert_helped(&tree);
}

#[test]
fn apache_sends_every_byte_and_does_not_stall() {
    // A process whose threads are all busy closes idle connections. A process with more spare threads than
    // MaxSpareThreads has to end.
    let threads = "StartServers 4\nServerLimit 4\nThreadLimit 100\nThreadsPerChild 100\nMaxRequestWorkers 400\n\
                   MaxSpareThreads 500\n";
    apache_with("event", threads);
}

/// Each process has one connection.
#[test]
fn apache_with_a_process_for_each_connection_sends_every_byte() {
    apache_with(
        "prefork",
        "StartServers 80\nServerLimit 100\nMaxRequestWorkers 100\nMaxSpareServers 100\n",
    );
}

fn apache_with(model: &str, processes: &str) {
    let program = testkit::or_skip!(program("apache2"));
    let tree = site();
    let throttle = testkit::or_skip!(Throttle::new(tree.path()));
    let (port, root) = (free_port(), tree.path().display());
    let conf = tree.path().join("apache.conf");
    let modules = "/usr/lib/apache2/modules";
    let text = format!(
        "ServerRoot {root}\nServerName localhost\nListen 127.0.0.1:{port}\nPidFile {root}/pid\n\
         LoadModule mpm_{model}_module {modules}/mod_mpm_{model}.so\n\
         LoadModule authz_core_module {modules}/mod_authz_core.so\n\
         ErrorLog {root}/error.log\nDefaultRuntimeDir {root}\nDocumentRoot {root}/site\n\
         EnableSendfile On\nEnableMMAP Off\nMaxKeepAliveRequests 0\nKeepAliveTimeout 60\n\
         {processes}\
         User daemon\nGroup daemon\n<Directory {root}/site>\nRequire all granted\n</Directory>\n"
    );
    fs::write(&conf, text).unwrap();
    open_to_all(tree.path());
    let mut command = throttle.command(program);
    command.args(["-D", "FOREGROUND", "-f"]).arg(conf);
    sends_and_does_not_stall(&mut command, port, &tree, &throttle);
}

/// Lets workers that are not root look into the tree, and write their counts there.
pub(crate) fn open_to_all(path: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
}
