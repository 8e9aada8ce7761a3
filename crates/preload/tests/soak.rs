//! nginx with the library for as long as one likes: its counts add up; and downloads get their shares of the disk.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use core::time::Duration;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::thread;
use std::time::Instant;

use rustix::process::Signal;
use testkit::{Content, Throttle, Tree};

use crate::common::{count_in, family, tree, until};
use crate::servers::{Running, free_port, helped, nginx, program, statistics};

const MIB: u64 = 1 << 20;
/// The clients of cold files. Each has files of its own, so that each byte is read from the disk once for each download.
const CLIENTS: u64 = 8;
const FILES: u64 = 4;
/// The clients of a file in memory.
const HOT_CLIENTS: u64 = 3;

fn name(client: u64, file: u64) -> String {
    format!("c{client}-{file}")
}

fn content(client: u64, file: u64) -> Content {
    Content::pseudo_random(client * FILES + file, 3 * MIB + (client * FILES + file) * 123_457)
}

/// The sums of all clients: responses that were compared byte by byte, and their bytes.
#[derive(Default)]
struct Got {
    responses: AtomicU64,
    bytes: AtomicU64,
    cold_bytes: AtomicU64,
}

/// The bytes that a process, its living children and those that have ended had read from disks (`proc_pid_io(5)`).
fn read_from_disks(pid: u32) -> Option<u64> {
    let of = |pid| {
        let text = fs::read_to_string(format!("/proc/{pid}/io")).ok()?;
        text.lines().find_map(|line| line.strip_prefix("read_bytes: "))?.parse::<u64>().ok()
    };
    family(pid).into_iter().map(of).sum()
}

/// Responses and bytes of bodies in a log of the form `$status $body_bytes_sent`.
fn logged(root: &Path) -> (u64, u64) {
    let logs = fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path());
    let logs =
        logs.filter(|path| path.file_name().unwrap().to_string_lossy().starts_with("access"));
    let lines: Vec<String> = logs
        .flat_map(|path| {
            fs::read_to_string(path).unwrap().lines().map(str::to_owned).collect::<Vec<_>>()
        })
        .collect();
    let bytes = lines.iter().map(|line| line.strip_prefix("200 ").unwrap().parse::<u64>().unwrap());
    (lines.len() as u64, bytes.sum())
}

/// The sums of a word's number over the lines of disks (`disk 254:0 deferred 3 reads 5 read_bytes 7`).
fn of_disks(file: &Path, word: &str) -> BTreeMap<String, u64> {
    let text = fs::read_to_string(file).unwrap();
    let lines = text.lines().filter_map(|line| line.strip_prefix("disk "));
    let disks = lines.map(|line| {
        let mut words = line.split(' ');
        let disk = words.next().unwrap().to_owned();
        let number = words.skip_while(|it| *it != word).nth(1).unwrap();
        (disk, number.parse().unwrap())
    });
    disks.collect()
}

#[test]
#[ignore = "it takes SAMUM_SOAK_SECONDS, or half an hour"]
fn counts_of_a_long_run_add_up() {
    let seconds = std::env::var("SAMUM_SOAK_SECONDS").map_or(1800, |text| text.parse().unwrap());
    let program = testkit::or_skip!(program("nginx"));
    let hot = Content::pseudo_random(1000, 1000);
    let mut tree = tree().file("site/hot", hot.clone());
    for client in 0..CLIENTS {
        for file in 0..FILES {
            tree = tree.file(format!("site/{}", name(client, file)), content(client, file));
        }
    }
    let root = tree.path().to_owned();
    let port = free_port();
    let main = format!(
        "log_format two '$status $body_bytes_sent'; access_log {}/access two;",
        root.display()
    );
    let conf = nginx(&tree, port, 2, &main);
    // The tests above switch the log off.
    let text = fs::read_to_string(&conf).unwrap().replace("access_log off;", "");
    fs::write(&conf, text).unwrap();
    let throttle = testkit::or_skip!(Throttle::new(tree.path()));
    let mut command = throttle.command(program);
    let server = Running::start(helped(command.arg("-c").arg(conf), &tree), port);
    let read_before = testkit::or_skip!(read_from_disks(server.pid()).ok_or("no /proc/PID/io"));
    let end = Instant::now() + Duration::from_secs(seconds);
    let got = Got::default();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let (got, is_over, server, tree, hot) = (&got, &is_over, &server, &tree, &hot);
        for client in 0..CLIENTS {
            scope.spawn(move || {
                let contents: Vec<_> = (0..FILES).map(|file| content(client, file)).collect();
                for file in (0..FILES).cycle().take_while(|_| !is_over.load(Ordering::Relaxed)) {
                    tree.evict(format!("site/{}", name(client, file)));
                    let wanted = &contents[usize::try_from(file).unwrap()];
                    get(server, &name(client, file), wanted, got);
                    got.cold_bytes.fetch_add(wanted.len(), Ordering::Relaxed);
                }
            });
        }
        for _ in 0..HOT_CLIENTS {
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    get(server, "hot", hot, got);
                    thread::sleep(Duration::from_millis(5));
                }
            });
        }
        // A failure of this thread ends the others, too.
        let _over = Over(is_over);
        let mut turn = 0;
        while Instant::now() < end {
            throttle.limit([Some(256 * MIB), Some(64 * MIB), None][turn % 3]);
            thread::sleep(Duration::from_secs(seconds).min(Duration::from_secs(60)) / 6);
            if turn % 2 == 0 {
                server.signal(Signal::HUP);
            } else {
                fs::rename(root.join("access"), root.join(format!("access.{turn}"))).unwrap();
                server.signal(Signal::USR1);
                until("there is a new log", || root.join("access").exists());
            }
            turn += 1;
        }
    });
    throttle.limit(None);
    until("old workers have ended", || family(server.pid()).len() == 3);
    let read = read_from_disks(server.pid()).unwrap() - read_before;
    server.terminate();
    let (responses, bytes) = (got.responses.into_inner(), got.bytes.into_inner());
    let cold = got.cold_bytes.into_inner();
    let files = statistics(&tree);
    let sum = |word: &str| files.iter().map(|file| count_in(file, word)).sum::<u64>();
    let [deferred, rearmed, brought] = ["deferred", "rearmed", "read_bytes"].map(sum);
    eprintln!(
        "{responses} responses, {bytes} bytes, {cold} of cold files; disk {read}; the library: {deferred} waits, \
         {rearmed} ended, {brought} bytes"
    );
    for file in &files {
        for word in ["deferred", "read_bytes"] {
            let disks = of_disks(file, word).into_values().sum::<u64>();
            assert_eq!(disks, count_in(file, word), "{word} of all disks");
        }
        assert!(count_in(file, "rearmed") <= count_in(file, "deferred"), "a wait ends once");
    }
    // The other waits end with their connections.
    assert!(
        deferred > 0 && rearmed * 100 >= deferred * 99,
        "{rearmed} of {deferred} waits have ended"
    );
    for reason in
        ["untold", "blocking", "unseen_loop", "watchers", "no_progress", "locked", "no_room"]
    {
        assert_eq!(sum(&format!("left_{reason}")), 0, "{reason}: the kernel had to wait");
    }
    assert_eq!(sum("failed"), 0);
    assert_eq!(logged(&root), (responses, bytes), "the log of all responses");
    // Each cold byte comes from the disk once, and a reader passes it at most once.
    assert!(
        read >= cold / 10 * 9 && read <= cold / 10 * 11,
        "{read} read from the disk, {cold} cold"
    );
    assert!(brought <= cold / 10 * 11, "{brought} brought, {cold} cold");
}

/// Ends a load when this is dropped, also by a failure.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn get(server: &Running, name: &str, wanted: &Content, got: &Got) {
    let mut client = server.client();
    client.send(format!("GET /{name} HTTP/1.0\r\n\r\n")).unwrap();
    let response = client.response().unwrap_or_else(|error| panic!("{name}: {error}"));
    assert_eq!(response.status, 200, "{name}");
    wanted.assert_is(&response.body);
    // nginx logs a response when it has ended, so the client waits for the end.
    assert_eq!(client.read_to_end().unwrap(), []);
    got.responses.fetch_add(1, Ordering::Relaxed);
    got.bytes.fetch_add(wanted.len(), Ordering::Relaxed);
}

const CROWD: u64 = 256;
const EACH: u64 = MIB;

fn crowd_content(number: u64) -> Content {
    Content::pseudo_random(number, EACH)
}

fn crowd_site() -> Tree {
    (0..CROWD)
        .fold(tree(), |tree, number| tree.file(format!("site/f{number}"), crowd_content(number)))
}

fn evict(tree: &Tree, number: u64) {
    tree.evict(format!("site/f{number}"));
}

#[test]
fn downloads_of_cold_files_alone_and_256_at_once_get_their_bytes_and_none_waits_for_all() {
    /// Three quarters of all bytes come at this rate. They come in blocks of 256 KiB, three for each client on average.
    const RATE: u64 = 32 * MIB;
    const PIECE: usize = 16 * 1024;
    let program = testkit::or_skip!(program("nginx"));
    let tree = crowd_site();
    let throttle = testkit::or_skip!(Throttle::new(tree.path()));
    let port = free_port();
    let conf = nginx(&tree, port, 1, "");
    let mut command = throttle.command(program);
    let server = Running::start(helped(command.arg("-c").arg(conf), &tree), port);
    (0..CROWD).for_each(|number| evict(&tree, number));
    for number in 0..4 {
        get(&server, &format!("f{number}"), &crowd_content(number), &Got::default());
        evict(&tree, number);
    }
    throttle.limit(Some(RATE));
    let received: Vec<AtomicU64> = (0..CROWD).map(|_| AtomicU64::new(0)).collect();
    let shares = thread::scope(|scope| {
        let clients: Vec<_> = received
            .iter()
            .zip(0..)
            .map(|(received, number)| {
                let mut client = server.client();
                scope.spawn(move || {
                    client.send(format!("GET /f{number} HTTP/1.0\r\n\r\n")).unwrap();
                    assert_eq!(client.head().unwrap().status, 200);
                    let mut body = Vec::new();
                    while body.len() as u64 != EACH {
                        body.extend(client.read_exactly(PIECE).unwrap());
                        received.store(body.len() as u64, Ordering::Relaxed);
                    }
                    crowd_content(number).assert_is(&body);
                })
            })
            .collect();
        let most = || {
            received.iter().map(|it| it.load(Ordering::Relaxed)).sum::<u64>()
                >= CROWD * EACH / 4 * 3
        };
        while !most() && !clients.iter().all(|client| client.is_finished()) {
            thread::sleep(Duration::from_millis(5));
        }
        let shares: Vec<u64> = received.iter().map(|it| it.load(Ordering::Relaxed)).collect();
        throttle.limit(None);
        shares
    });
    server.terminate();
    // Other programs make the shares uneven, but each client has some bytes.
    assert!(shares.iter().all(|&share| share > 0), "{shares:?}");
}
