//! Clients that try to make the server hold memory: each sends many requests and takes no response.

use core::sync::atomic::Ordering;
use core::time::Duration;
use std::fs::File;
use std::thread;

use testkit::{Client, Content, Server, Tree, skip};

use crate::common::silent::{LONG, long_origin, offer, silent};
use crate::common::{
    SOON, ask, ask_on, connect, on_both_drivers, request, resident_bytes, serve, serve_config,
    text, wait_until,
};

const MIB: u64 = 1 << 20;

/// More bytes than the kernel buffers for a client that receives nothing, so that later responses wait.
fn big() -> Content {
    Content::pseudo_random(1, 20 << 20)
}

/// The memory of the server in bytes, once it has not changed for a while.
fn settled(server: &Server) -> u64 {
    let mut last = 0;
    wait_until(SOON, || {
        thread::sleep(Duration::from_millis(300));
        let now = resident_bytes(server);
        let is_settled = now.abs_diff(last) < 64 * 1024;
        last = now;
        is_settled
    });
    last
}

/// The growth of the server's memory by `attack`. The clients that it returns stay connected until the
/// end.
fn growth<T>(server: &Server, attack: impl FnOnce() -> T) -> u64 {
    let before = settled(server);
    let clients = attack();
    let after = settled(server);
    drop(clients);
    after.saturating_sub(before)
}

/// Asserts that other clients are served.
#[track_caller]
fn assert_serves(server: &Server, path: &str) {
    assert_eq!(ask(server, &format!("GET {path}")).status, 200);
}

#[test]
fn three_hundred_clients_that_take_nothing_hold_at_most_64_mib() {
    on_both_drivers(|driver| {
        let tree = Tree::new().file("a.txt", "hello").file("big.bin", big());
        let (count, size) = (2400, 60_000);
        for number in 0..count {
            let file = File::create(tree.path().join(format!("{number}.bin"))).unwrap();
            file.set_len(size).unwrap();
        }
        let server = serve(driver, tree.path(), &[]);
        // The cache is full.
        let mut client = connect(&server);
        for number in 0..count {
            ask_on(&mut client, &format!("GET /{number}.bin"));
        }
        let grown = growth(&server, || {
            let attack = |number: usize| {
                let socket = silent(&server);
                let get = |at: usize| request(&format!("GET /{}.bin", (number * 64 + at) % 2400));
                let all: String = (0..63).map(get).collect();
                offer(&socket, (request("GET /big.bin") + &all).as_bytes());
                socket
            };
            (0..300).map(attack).collect::<Vec<_>>()
        });
        eprintln!("300 silent readers: {} KiB", grown / 1024);
        assert!(grown <= 64 * MIB, "{} MiB for 300 clients", grown / MIB);
        assert_serves(&server, "/a.txt");
    });
}

/// Asserts that the server holds at most `most` bytes for each client that sends `requests` after a
/// download.
#[track_caller]
fn assert_held_for_each(options: &[&str], what: &str, requests: &str, most: u64) {
    on_both_drivers(|driver| {
        let tree = Tree::new()
            .file("a.txt", "hello")
            .file("some.bin", Content::pseudo_random(1, 60_000))
            .file("big.bin", big());
        let server = serve(driver, tree.path(), options);
        ask(&server, "GET /big.bin");
        ask(&server, "GET /some.bin");
        let count = 100;
        let all = request("GET /big.bin") + requests;
        let grown = growth(&server, || {
            let attack = |_| {
                let socket = silent(&server);
                offer(&socket, all.as_bytes());
                socket
            };
            (0..count).map(attack).collect::<Vec<_>>()
        });
        eprintln!("{what}: {} KiB for each client", grown / count / 1024);
        assert!(grown / count <= most, "{} KiB for each client", grown / count / 1024);
        assert_serves(&server, "/a.txt");
    });
}

#[test]
fn responses_of_many_ranges_hold_at_most_256_kib_per_connection() {
    let ranges: Vec<String> = (0..32).map(|at| format!("{0}-{0}", at * 1000)).collect();
    let one = request(&format!("GET /some.bin\nRange: bytes={}", ranges.join(",")));
    assert_held_for_each(&[], "answers of 32 ranges", &one.repeat(63), 256 * 1024);
}

#[test]
fn responses_that_wait_to_be_logged_hold_at_most_256_kib_per_connection() {
    let log = tempfile::NamedTempFile::new().unwrap();
    let one = request(&format!("GET /a.txt\nUser-Agent: {}", "x".repeat(15_000)));
    let options = ["--log", text(log.path())];
    assert_held_for_each(&options, "long user agents", &one.repeat(63), 256 * 1024);
}

#[test]
fn listings_that_no_client_takes_hold_at_most_32_mib() {
    on_both_drivers(|driver| {
        let tree = Tree::new().file("a.txt", "hello").directory("many");
        for number in 0..50_000 {
            File::create(tree.path().join(format!("many/a file with number {number}"))).unwrap();
        }
        let server = serve(driver, tree.path(), &["--listing"]);
        let grown = growth(&server, || {
            let socket = silent(&server);
            // Concurrent requests would share one lookup; one after the other, each has its own.
            for _ in 0..64 {
                offer(&socket, request("GET /many/").as_bytes());
                thread::sleep(Duration::from_millis(60));
            }
            socket
        });
        eprintln!("64 listings of 50,000 entries: {} KiB", grown / 1024);
        assert!(grown <= 32 * MIB, "{} MiB", grown / MIB);
        assert_serves(&server, "/a.txt");
        let whole = ask(&server, "GET /many/\nAccept: application/json");
        assert_eq!(String::from_utf8(whole.body).unwrap().matches("\"name\":").count(), 50_000);
    });
}

/// Sums of such sizes do not fit into stream positions, and the kernel cannot read at such offsets.
#[test]
fn a_file_of_eight_exbibytes_fails_only_its_request() {
    let Ok(dir) = tempfile::tempdir_in("/dev/shm") else { skip!("no /dev/shm") };
    let file = File::create(dir.path().join("huge.bin")).unwrap();
    if let Err(error) = file.set_len(i64::MAX.cast_unsigned()) {
        skip!("no file of 2^63-1 bytes on /dev/shm: {error}");
    }
    let file = File::create(dir.path().join("large.bin")).unwrap();
    file.set_len(1 << 62).unwrap();
    File::create(dir.path().join("a.txt")).unwrap();
    on_both_drivers(|driver| {
        let server = serve(driver, dir.path(), &[]);
        for fields in ["", "Range: bytes=4611686018427387904-4611686018427387913"] {
            let mut client = connect(&server);
            client.send(request(&format!("GET /huge.bin\n{fields}")).repeat(3)).unwrap();
            for _ in 0..3 {
                assert_eq!(client.response().unwrap().status, 501, "{fields}");
            }
        }
        // The largest file that is served; its end can be requested any number of times.
        let mut client = connect(&server);
        client.send(request("GET /large.bin").repeat(64)).unwrap();
        let mut other: Client = connect(&server);
        let last = ask_on(&mut other, "GET /large.bin\nRange: bytes=4611686018427387894-");
        assert_eq!((last.status, last.body), (206, vec![0; 10]));
        assert_eq!(
            ask_on(&mut other, "HEAD /large.bin").header("Content-Length"),
            Some("4611686018427387904")
        );
        assert_serves(&server, "/a.txt");
    });
}

/// The buffer of the route.
const BUFFER: u64 = 64 * 1024;

/// A request is charged for its response before that comes: what waits of all the responses that clients ask for and do not
/// take is a buffer for each connection, and little for each other request that was begun. A client that receives its
/// responses gets each of them meanwhile, and the memory is free again afterwards.
#[test]
fn requests_that_are_sent_ahead_to_a_server_hold_little_more_than_one_buffer() {
    const COUNT: u64 = 30;
    on_both_drivers(|driver| {
        for path in ["/long", "/endless"] {
            let (origin, begun) = long_origin();
            let tree = Tree::new();
            let config = format!(
                "[server]\nthreads = 1\ndriver = '{driver}'\n\
                 [[site]]\nlisten = ['127.0.0.1:0']\n\
                 [[site.route]]\npath = '/'\nproxy = 'http://{origin}'\nbuffer = {BUFFER}\nsplice = false\n"
            );
            let server = serve_config(&tree, &config);
            let mut victim = connect(&server);
            let mut ask_long = || assert_eq!(ask_on(&mut victim, "GET /long").body.len(), LONG);
            ask_long();
            let before = settled(&server);
            let before_attack = begun.load(Ordering::Relaxed);
            let one = request(&format!("GET {path}\nX-Long: {}", "x".repeat(1900)));
            let attack = |_| {
                let socket = silent(&server);
                offer(&socket, one.repeat(64).as_bytes());
                socket
            };
            let clients: Vec<_> = (0..COUNT).map(attack).collect();
            (0..20).for_each(|_| ask_long());
            let grown = settled(&server).saturating_sub(before);
            let others = begun.load(Ordering::Relaxed) - before_attack - COUNT - 20;
            let most = (COUNT + others) * BUFFER / 20 * 21;
            eprintln!("{path}: {} KiB for {COUNT} clients, {others} other requests", grown / 1024);
            assert!(path == "/endless" || grown <= most, "{} of {} KiB", grown / 1024, most / 1024);
            assert!(grown <= COUNT * 768 * 1024, "{} KiB for each", grown / COUNT / 1024);
            drop(clients);
            let is_free = || resident_bytes(&server).saturating_sub(before) <= 16 * MIB;
            assert!(wait_until(Duration::from_secs(5), is_free), "the memory is not free again");
            ask_long();
        }
    });
}
