//! Upgrades and reloads of a busy server, which take a minute: `cargo test -p samum --test server -- --ignored --nocapture upgrade::load`.

use core::net::SocketAddr;
use core::sync::atomic::{AtomicUsize, Ordering};
use std::process::{Child, Stdio};
use std::time::Instant;

use rustix::process::{Resource, getrlimit};

use super::*;
use crate::tls::Authority;

const UPGRADES: usize = 5;
const RELOADS: usize = 20;
const DOWNLOADS: usize = 100;
/// Connections that do nothing, if the descriptors of this process allow them.
const IDLE: usize = 8000;
/// The size of a piece that a slow download takes, and the pause after it.
const PIECE: usize = 1 << 20;

/// Starts wrk. Clients keep their connections, or make one for each request.
fn wrk(url: &str, is_kept: bool, seconds: u64) -> Result<Child, String> {
    let mut command = Command::new("wrk");
    command.args(["-t", "1", "-c", "32", "-d", &format!("{seconds}s"), "--timeout", "20s"]);
    if !is_kept {
        command.args(["-H", "Connection: close"]);
    }
    let command = command.arg(url).stdout(Stdio::piped());
    testkit::tether(command).spawn().map_err(|error| format!("wrk: {error}"))
}

/// The lines of wrk that count requests and errors.
#[track_caller]
fn assert_without_errors(what: &str, wrk: Child) {
    let output = wrk.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let requests = text.lines().find(|line| line.contains(" requests in ")).unwrap_or_default();
    eprintln!("{what}:{requests}");
    assert!(!requests.is_empty(), "{text}");
    assert!(!text.contains("errors") && !text.contains("Non-2xx"), "{what}: {text}");
}

/// Takes the big file slowly over the kernel's TCP.
fn download(address: &Address, seconds: f64) {
    let mut client = begin_download(address);
    client.set_limit(Duration::from_secs(120));
    client.head().expect("a head");
    take_slowly(seconds, || client.read_exactly(PIECE).expect("every byte"));
}

/// Takes the big file slowly over TLS.
fn download_by_tls(authority: &Authority, address: SocketAddr, seconds: f64) {
    let mut client = authority.connect(address, "localhost").expect("a handshake");
    let head = client.head("localhost", "/big.bin").expect("a head");
    assert!(head.starts_with("http/1.1 200 "), "{head}");
    take_slowly(seconds, || {
        let mut bytes = vec![0; PIECE];
        client.read_exactly(&mut bytes).expect("every byte");
        bytes
    });
}

/// Takes the pieces of the big file, and checks each byte.
fn take_slowly(seconds: f64, mut next: impl FnMut() -> Vec<u8>) {
    let content = Content::pseudo_random(1, BIG);
    let pieces = usize::try_from(BIG).unwrap() / PIECE;
    for piece in 0..pieces {
        let bytes = next();
        content.assert_at((piece * PIECE) as u64, &bytes);
        thread::sleep(Duration::from_secs_f64(seconds / 48.0));
    }
}

fn busy(driver: &str, has_tls: bool) -> Result<(), String> {
    let begin = Instant::now();
    let authority = Authority::new();
    let tree = tree();
    authority.issue(&["localhost"]).put(&tree, "a");
    let [certificate, key] = ["a.pem", "a.key"].map(|name| tree.path().join(name));
    let listen = "\"127.0.0.1:0\", { address = \"127.0.0.2:0\", tls = true }";
    let site = site(&tree, listen).replace(
        "[[site.route]]",
        &format!("tls = {{ certificate = {certificate:?}, key = {key:?} }}\n[[site.route]]"),
    );
    let family = Family::start(driver, &tree, "timeout-idle = 15", &site);
    assert!(wait_until(SOON, || family.server.addresses().len() >= 2));
    let addresses = family.server.addresses();
    let urls: Vec<String> = (family.server.stderr().iter())
        .filter_map(|line| Some(line.split_once("listening on ")?.1.to_owned() + "a.txt"))
        .collect();
    let url = urls.iter().find(|url| url.starts_with("https") == has_tls).expect("a listener");
    let plain = &addresses[0];
    let secured = has_tls.then(|| {
        url["https://".len()..]
            .split('/')
            .next()
            .expect("an address")
            .parse()
            .expect("an IP address")
    });
    let files = |pid: u32| fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count();
    assert_eq!(testkit::get(plain, "/a.txt").unwrap().status, 200);
    let at_start = files(family.pid());
    let resident = |pid: u32| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        status
            .lines()
            .find_map(|line| Some(line.strip_prefix("VmRSS:")?.trim().to_owned()))
            .unwrap()
    };
    let memory_at_start = resident(family.pid());

    let room = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX).saturating_sub(1000);
    let idle_count = IDLE.min(usize::try_from(room).unwrap());
    let idle: Vec<_> =
        (0..idle_count).map(|_| Client::connect(plain).expect("the server accepts")).collect();
    let seconds = 30;
    let (kept, new) = (wrk(url, true, seconds)?, wrk(url, false, seconds)?);
    let (done, reloads) = (AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        for _ in 0..DOWNLOADS {
            scope.spawn(|| {
                match &secured {
                    Some(address) => download_by_tls(&authority, *address, 20.0),
                    None => download(plain, 20.0),
                }
                done.fetch_add(1, Ordering::Relaxed);
            });
        }
        scope.spawn(|| {
            for _ in 0..RELOADS {
                let mut reload = Command::new(SAMUM);
                let output = reload.arg("reload").arg("--control").arg(&family.control).output();
                let output = output.unwrap();
                assert!(output.status.success(), "{output:?}");
                reloads.fetch_add(1, Ordering::Relaxed);
                thread::sleep(Duration::from_secs(1));
            }
        });
        for _ in 0..UPGRADES {
            thread::sleep(Duration::from_secs(3));
            family.upgrade();
        }
    });
    assert_without_errors("kept connections", kept);
    assert_without_errors("a connection for each request", new);
    drop(idle);
    let (done, reloads) = (done.into_inner(), reloads.into_inner());
    assert_eq!((done, reloads), (DOWNLOADS, RELOADS));
    // The earlier processes end, and the last one has as many descriptors as the first had.
    assert!(wait_until(3 * SOON, || family.processes() == 2), "{} are left", family.processes());
    assert!(
        wait_until(3 * SOON, || files(family.pid()) <= at_start + 8),
        "{}",
        files(family.pid())
    );
    eprintln!(
        "{driver}, {}: {UPGRADES} upgrades, {reloads} reloads, {done} downloads of {BIG} bytes, {idle_count} idle \
         connections; descriptors {at_start}, {} at the end; memory {memory_at_start}, {} at the end; {:.0} s",
        if has_tls { "TLS" } else { "plain" },
        files(family.pid()),
        resident(family.pid()),
        begin.elapsed().as_secs_f64(),
    );
    family.stop();
    family.assert_ends();
    Ok(())
}

#[test]
#[ignore = "takes minutes, and loads both processors"]
fn nothing_is_lost_under_load() {
    for driver in ["uring", "epoll"] {
        for has_tls in [false, true] {
            or_skip!(busy(driver, has_tls));
        }
    }
}
