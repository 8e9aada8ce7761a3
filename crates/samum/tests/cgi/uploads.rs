//! Bodies of unknown length, which wait in memory and in files until all of them has come, and then reach programs.

use core::net::Ipv4Addr;
use core::time::Duration;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

use rustix::process::Signal;
use testkit::metrics::Metrics;
use testkit::{Address, Client, Content, Disk, Op, Server, SlowFs, Tree, or_skip, request};

use crate::cgi::stage::{on_both_drivers, on_both_drivers_at_once, script, text, tree};
use crate::common::{SAMUM, SOON, connect_from, wait_until};

const MIB: usize = 1024 * 1024;
const CHUNKED: &str = "POST /cat\nTransfer-Encoding: chunked";

/// A server whose program sends each body back, after its length.
struct Stage {
    server: Server,
    tree: Tree,
}

impl Stage {
    /// With these keys of the server and of the route.
    fn new(driver: &str, of_server: &str, of_route: &str) -> Self {
        Self::on(tree(), driver, of_server, of_route)
    }

    fn on(tree: Tree, driver: &str, of_server: &str, of_route: &str) -> Self {
        script(&tree, "cat", "printf 'Content-Type: a/b\\n\\n%s:' \"$CONTENT_LENGTH\"; exec cat");
        script(&tree, "sum", "printf 'Content-Type: a/b\\n\\n'; exec md5sum");
        script(&tree, "slow", "printf 'Content-Type: a/b\\n\\n'; sleep 1; exec md5sum");
        let stage = Self::write(&tree, driver, of_server, of_route);
        let mut command = Command::new(SAMUM);
        command.args(["serve", "--config"]).arg(stage);
        Self { server: Server::spawn(&mut command).expect("the server starts"), tree }
    }

    fn write(tree: &Tree, driver: &str, of_server: &str, of_route: &str) -> std::path::PathBuf {
        let root = tree.path().display();
        let config = format!(
            "[server]\nthreads = 1\ndriver = '{driver}'\ncontrol = '{root}/control'\n{of_server}\n\
             [[site]]\nlisten = ['127.0.0.1:0']\n\
             [[site.route]]\ncgi = '{root}/cgi'\n{of_route}\n\
             [[site.route]]\npath = '/metrics'\nmetrics = true\n"
        );
        tree.write("samum.toml", config.as_str());
        tree.path().join("samum.toml")
    }

    fn connect(&self) -> Client {
        let mut client = Client::connect(&self.server.address()).unwrap();
        client.set_limit(Duration::from_secs(30));
        client
    }

    /// The number of bodies that went to files, or of those that were refused.
    fn count(&self, event: &str) -> u64 {
        let response = testkit::get(&self.server.address(), "/metrics").unwrap();
        let metrics = Metrics::parse(text(&response)).unwrap();
        let sum = metrics.sum("samum_body_files_total", &[("event", event)]);
        sum.to_string().parse().expect("a whole number")
    }

    /// Files without names that the server has open in a directory.
    fn files_in(&self, dir: &Path) -> usize {
        let all = fs::read_dir(format!("/proc/{}/fd", self.server.pid())).expect("it runs");
        let links = all.flatten().filter_map(|entry| fs::read_link(entry.path()).ok());
        links.filter(|link| link.starts_with(dir) && link.ends_with_deleted()).count()
    }
}

trait Deleted {
    fn ends_with_deleted(&self) -> bool;
}

impl Deleted for std::path::PathBuf {
    fn ends_with_deleted(&self) -> bool {
        self.to_string_lossy().ends_with(" (deleted)")
    }
}

fn bytes(seed: u64, length: usize) -> Vec<u8> {
    Content::pseudo_random(seed, length as u64).read(0, length)
}

/// A body in chunks of this size, without its end.
fn chunks(body: &[u8], size: usize) -> Vec<u8> {
    let chunk =
        |bytes: &[u8]| [format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat();
    body.chunks(size).flat_map(chunk).collect()
}

#[track_caller]
fn assert_echo(client: &mut Client, body: &[u8]) {
    let response = client.response().unwrap();
    assert_eq!(response.status, 200);
    let head = format!("{}:", body.len());
    assert!(response.body.starts_with(head.as_bytes()), "{}", response.body.len());
    assert!(response.body[head.len()..] == *body, "other bytes");
}

#[test]
fn a_long_body_in_chunks_waits_in_a_file_and_reaches_the_program_with_its_length() {
    on_both_drivers(|driver| {
        let dir = Tree::new();
        let stage = Stage::new(driver, "", &format!("buffer-dir = '{}'", dir.path().display()));
        for (at, (length, size)) in
            [(MIB, 70_000), (MIB + 1, 70_000), (5 * MIB, 9), (20 * MIB + 3, 1 << 20)]
                .into_iter()
                .enumerate()
        {
            let body = bytes(length as u64, length.min(if size == 9 { 2 * MIB } else { length }));
            let mut client = stage.connect();
            client.send(request(&format!("{CHUNKED}\nExpect: 100-continue"))).unwrap();
            assert_eq!(client.response().unwrap().status, 100);
            client.send(chunks(&body, size)).unwrap();
            client.send("0\r\nX-Sum: 1\r\n\r\n").unwrap();
            assert_echo(&mut client, &body);
            assert_eq!(stage.count("begun"), at as u64);
            // Another request after it, on the same connection.
            client.send(request(CHUNKED) + "5\r\nhello\r\n0\r\n\r\n").unwrap();
            assert_echo(&mut client, b"hello");
        }
        assert!(wait_until(SOON, || stage.files_in(dir.path()) == 0), "a file is left");
        // Pipelined, all in one piece.
        let body = bytes(7, 3 * MIB);
        let one = [request(CHUNKED).as_bytes(), &chunks(&body, 65_536), b"0\r\n\r\n"].concat();
        let mut client = stage.connect();
        let mut sender = stage.connect();
        let all = one.repeat(3);
        thread::scope(|scope| {
            scope.spawn(|| assert_pipelined(&mut client, &all, &body));
            sender.send(request("POST /cat\nContent-Length: 3") + "abc").unwrap();
            assert_echo(&mut sender, b"abc");
        });
        assert_eq!(stage.count("failed"), 0);
    });
}

fn assert_pipelined(client: &mut Client, all: &[u8], body: &[u8]) {
    client.send(all).unwrap();
    for _ in 0..3 {
        assert_echo(client, body);
    }
}

#[test]
fn the_memory_of_a_route_is_its_buffer() {
    on_both_drivers(|driver| {
        let stage = Stage::new(driver, "", "buffer = '16k'");
        for (length, files) in [(16 * 1024, 0), (16 * 1024 + 1, 1), (300_000, 2)] {
            let body = bytes(1, length);
            let mut client = stage.connect();
            client.send(request(CHUNKED)).unwrap();
            client.send(chunks(&body, 1000)).unwrap();
            client.send("0\r\n\r\n").unwrap();
            assert_echo(&mut client, &body);
            assert_eq!(stage.count("begun"), files, "{length}");
        }
    });
}

#[test]
fn a_body_that_grows_longer_than_its_route_allows_is_refused_though_it_is_in_a_file() {
    on_both_drivers(|driver| {
        let dir = Tree::new();
        let keys = format!("buffer-dir = '{}'\nmax-body = '3m'", dir.path().display());
        let stage = Stage::new(driver, "", &keys);
        let mut client = stage.connect();
        client.send(request(CHUNKED)).unwrap();
        let _ = client.send(chunks(&bytes(1, 3 * MIB + 1), 65_536));
        assert_eq!(client.response().unwrap().status, 413);
        let body = bytes(1, 3 * MIB);
        let mut client = stage.connect();
        client.send(request(CHUNKED)).unwrap();
        client.send(chunks(&body, 65_536)).unwrap();
        client.send("0\r\n\r\n").unwrap();
        assert_echo(&mut client, &body);
        // One that leaves midway gives its file back.
        let mut client = stage.connect();
        client.send(request(CHUNKED)).unwrap();
        client.send(chunks(&body, 65_536)).unwrap();
        assert!(wait_until(SOON, || stage.files_in(dir.path()) == 1));
        drop(client);
        assert!(wait_until(SOON, || stage.files_in(dir.path()) == 0), "its file is left");
    });
}

#[test]
fn the_client_that_has_most_gives_way_when_all_files_are_full() {
    on_both_drivers(|driver| {
        let dir = Tree::new();
        let keys = format!("buffer-dir = '{}'", dir.path().display());
        let stage = Stage::new(driver, "max-body-files = '16m'", &keys);
        // A body alone cannot be longer.
        let mut client = stage.connect();
        client.send(request(CHUNKED)).unwrap();
        let _ = client.send(chunks(&bytes(1, 16 * MIB + 1), 65_536));
        assert_eq!(client.response().unwrap().status, 413);
        assert!(wait_until(SOON, || stage.files_in(dir.path()) == 0));
        // One client has all of it, until another one comes.
        let body = bytes(2, 5 * MIB);
        let mut many: Vec<_> = (0..3).map(|_| stage.connect()).collect();
        for client in &mut many {
            client.send(request(CHUNKED)).unwrap();
            client.send(chunks(&body, 65_536)).unwrap();
        }
        assert!(wait_until(SOON, || stage.files_in(dir.path()) == 3));
        let mut other = connect_from(&stage.server, Ipv4Addr::new(127, 0, 0, 2));
        let all = [request(CHUNKED).as_bytes(), &chunks(&body, 65_536), b"0\r\n\r\n"].concat();
        std::io::Write::write_all(&mut other, &all).unwrap();
        assert_echo(&mut Client::from(other), &body);
        let mut failed = 0;
        for client in &mut many {
            let is_sent = client.send("0\r\n\r\n").is_ok();
            failed += usize::from(!is_sent || client.response().is_ok_and(|it| it.status == 503));
        }
        assert_eq!((failed, stage.count("failed")), (1, 1));
        let line = "samum: bodies of requests in ";
        assert!(stage.server.wait_for_stderr(line, SOON).is_some(), "{:?}", stage.server.stderr());
    });
}

/// Uploads of many clients at the same time, each of nearly as much as fits into memory, and one that is slow.
#[test]
fn an_honest_slow_upload_gets_through_while_others_fill_the_memory() {
    on_both_drivers_at_once(|driver| {
        for clients in [1_u8, 60] {
            let stage = Stage::new(driver, "", "");
            let body = bytes(3, 800_000);
            let mut honest = stage.connect();
            honest.send(request(CHUNKED)).unwrap();
            honest.send(chunks(&body[..100_000], 10_000)).unwrap();
            let attack = chunks(&vec![b'x'; MIB - 1], 65_536);
            let attackers: Vec<_> = (0..60)
                .map(|number| {
                    let from = Ipv4Addr::new(127, 0, 1, 1 + number % clients);
                    let mut stream = connect_from(&stage.server, from);
                    std::io::Write::write_all(&mut stream, request(CHUNKED).as_bytes()).unwrap();
                    stream.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
                    let _ = std::io::Write::write_all(&mut stream, &attack);
                    stream
                })
                .collect();
            for part in body[100_000..].chunks(175_000) {
                thread::sleep(Duration::from_millis(500));
                honest.send(chunks(part, 10_000)).unwrap();
            }
            honest.send("0\r\n\r\n").unwrap();
            assert_echo(&mut honest, &body);
            assert_eq!(stage.count("failed"), 0, "{clients}");
            // Theirs get through, too.
            for mut stream in attackers {
                std::io::Write::write_all(&mut stream, b"0\r\n\r\n").unwrap();
                let mut line = [0; 12];
                std::io::Read::read_exact(&mut stream, &mut line).unwrap();
                assert_eq!(line, *b"HTTP/1.1 200");
            }
        }
    });
}

#[test]
fn a_full_disk_is_a_503_for_the_request_that_needs_it() {
    on_both_drivers(|driver| {
        let place = Tree::new();
        let tmpfs = or_skip!(Tmpfs::mount(place.path(), "4m"));
        let keys = format!("buffer-dir = '{}'", place.path().display());
        let stage = Stage::new(driver, "", &keys);
        let mut small = stage.connect();
        small.send(request(CHUNKED)).unwrap();
        let body = bytes(4, 2 * MIB);
        small.send(chunks(&body, 65_536)).unwrap();
        let mut large = stage.connect();
        large.send(request(CHUNKED)).unwrap();
        let _ = large.send(chunks(&bytes(5, 8 * MIB), 65_536));
        assert_eq!(large.response().unwrap().status, 503);
        small.send("0\r\n\r\n").unwrap();
        assert_echo(&mut small, &body);
        let line = "no space left on device; its client gets a 503";
        assert!(stage.server.wait_for_stderr(line, SOON).is_some(), "{:?}", stage.server.stderr());
        // There is room again.
        let mut again = stage.connect();
        again.send(request(CHUNKED)).unwrap();
        again.send(chunks(&body, 65_536)).unwrap();
        again.send("0\r\n\r\n").unwrap();
        assert_echo(&mut again, &body);
        drop((stage, tmpfs));
    });
}

#[test]
fn a_disk_that_does_not_answer_is_a_503_and_harms_nobody_else() {
    on_both_drivers_at_once(|driver| {
        let slow = or_skip!(SlowFs::builder().file("a/b", "x").mount());
        let disk = or_skip!(Disk::new());
        let frozen = disk.tree();
        // One where no file can be made, and one that takes nothing once it is frozen.
        for (dir, is_frozen) in [(slow.path().join("a"), false), (frozen.path().to_owned(), true)] {
            let stage = Stage::new(driver, "", &format!("buffer-dir = '{}'", dir.display()));
            let body = bytes(6, 3 * MIB);
            if is_frozen {
                freeze(&dir, true);
            } else {
                slow.set_delay(Op::Lookup, Duration::MAX);
                slow.set_delay(Op::Getattr, Duration::MAX);
            }
            let mut client = stage.connect();
            client.send(request(CHUNKED)).unwrap();
            let mut other = stage.connect();
            thread::scope(|scope| {
                scope.spawn(|| {
                    let _ = client.send(chunks(&body, 65_536));
                });
                for _ in 0..20 {
                    other.send(request(CHUNKED) + "5\r\nhello\r\n0\r\n\r\n").unwrap();
                    assert_echo(&mut other, b"hello");
                    thread::sleep(Duration::from_millis(50));
                }
            });
            let status = client.response().unwrap().status;
            if is_frozen {
                freeze(&dir, false);
            } else {
                slow.set_delay(Op::Lookup, Duration::ZERO);
                slow.set_delay(Op::Getattr, Duration::ZERO);
            }
            assert_eq!(status, 503, "{is_frozen}");
            let line = "; its client gets a 503 (`buffer-dir` names another directory)";
            assert!(stage.server.wait_for_stderr(line, SOON).is_some());
        }
    });
}

#[test]
fn a_reload_changes_nothing_about_a_body_that_is_in_a_file() {
    on_both_drivers(|driver| {
        let (one, two) = (Tree::new(), Tree::new());
        let keys = |dir: &Tree| format!("buffer-dir = '{}'", dir.path().display());
        let mut stage = Stage::new(driver, "", &keys(&one));
        let body = bytes(8, 6 * MIB);
        let mut client = stage.connect();
        client.send(request(CHUNKED)).unwrap();
        client.send(chunks(&body[..3 * MIB], 65_536)).unwrap();
        assert!(wait_until(SOON, || stage.files_in(one.path()) == 1));
        Stage::write(&stage.tree, driver, "max-body-files = '64m'", &keys(&two));
        stage.server.signal(Signal::HUP).unwrap();
        assert!(stage.server.wait_for_stderr("loaded the configuration", SOON).is_some());
        client.send(chunks(&body[3 * MIB..], 65_536)).unwrap();
        let mut next = stage.connect();
        next.send(request(CHUNKED)).unwrap();
        next.send(chunks(&body, 65_536)).unwrap();
        assert!(wait_until(SOON, || stage.files_in(two.path()) == 1));
        for client in [&mut client, &mut next] {
            client.send("0\r\n\r\n").unwrap();
            assert_echo(client, &body);
        }
    });
}

#[test]
fn files_in_memory_are_a_warning() {
    let place = Tree::new();
    let tmpfs = or_skip!(Tmpfs::mount(place.path(), "4m"));
    let tree = tree();
    let check = |of_route: &str| {
        let file = Stage::write(&tree, "auto", "", of_route);
        let mut command = Command::new(SAMUM);
        command.arg("check").arg(file).env("TMPDIR", place.path());
        let output = command.output().unwrap();
        assert!(output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    let warning = format!("go to files in {}, and they take memory", place.path().display());
    assert!(check("").contains(&warning), "{}", check(""));
    let elsewhere = format!("buffer-dir = '{}'", tree.path().display());
    assert!(!check(&elsewhere).contains("go to files"));
    drop(tmpfs);
}

/// Clients that were not written for this test.
#[test]
fn curl_uploads_of_unknown_length_reach_the_program() {
    on_both_drivers(|driver| {
        let stage = Stage::new(driver, "", "");
        let Address::Tcp(address) = stage.server.address() else { unreachable!() };
        let body = bytes(9, 7 * MIB);
        stage.tree.write("body", Content::pseudo_random(9, 7 * MIB as u64));
        let expected = Command::new("md5sum").arg(stage.tree.path().join("body")).output().unwrap();
        for path in ["sum", "slow"] {
            let mut curl = Command::new("curl");
            curl.args(["-sS", "-T", "-"]).arg(format!("http://{address}/{path}"));
            let mut curl = curl
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .expect("curl is installed");
            let mut stdin = curl.stdin.take().unwrap();
            let mut halves = body.chunks(body.len() / 2 + 1);
            std::io::Write::write_all(&mut stdin, halves.next().unwrap()).unwrap();
            thread::sleep(Duration::from_millis(100));
            std::io::Write::write_all(&mut stdin, halves.next().unwrap()).unwrap();
            drop(stdin);
            let output = curl.wait_with_output().unwrap();
            assert_eq!(output.stdout[..32], expected.stdout[..32], "{path}");
        }
        // HTTP/1.0 has lengths only.
        let mut client = stage.connect();
        client.send("POST /cat HTTP/1.0\r\nContent-Length: 5\r\n\r\nhello").unwrap();
        assert_echo(&mut client, b"hello");
    });
}

/// Freezes the file system of a directory, or thaws it: what is written waits meanwhile.
fn freeze(dir: &Path, is_frozen: bool) {
    let flag = if is_frozen { "-f" } else { "-u" };
    let mount = dir.ancestors().find(|dir| dir.ends_with("mounted")).expect("a disk");
    let status = Command::new("fsfreeze").arg(flag).arg(mount).status().expect("fsfreeze");
    assert!(status.success(), "fsfreeze {flag}");
}

/// A file system in memory.
struct Tmpfs(std::path::PathBuf);

impl Tmpfs {
    fn mount(place: &Path, size: &str) -> Result<Self, String> {
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={size}"), "none"]).arg(place);
        let status = mount.stderr(Stdio::null()).status().map_err(|error| error.to_string())?;
        if status.success() { Ok(Self(place.to_owned())) } else { Err("no tmpfs".to_owned()) }
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}
