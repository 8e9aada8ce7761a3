//! `samum upgrade` and SIGUSR2: a new process takes the place of the running one, and no client notices.

mod failures;
mod listeners;
mod load;
mod manager;
mod requests;

use core::time::Duration;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Mutex;
use std::thread;

use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use testkit::{Address, Client, Content, Server, Tree, or_skip, request};

use crate::common::{
    SAMUM, SOON, ask_on, on_both_drivers, on_both_drivers_at_once, python, text, wait_until,
};

/// The bytes of a download that takes a while: more than the buffers of both sides.
const BIG: u64 = 48 << 20;

/// The processes of one server, of which each replaces the one before. All are killed at the end.
pub(crate) struct Family {
    server: Server,
    /// The program file, whose path another file can take.
    program: PathBuf,
    control: PathBuf,
    /// The process IDs of all processes but the first.
    later: Mutex<Vec<u32>>,
}

impl Family {
    /// Starts a server by a configuration, with two workers unless `server` has other keys of `[server]`.
    pub(crate) fn start(driver: &str, tree: &Tree, server: &str, sites: &str) -> Self {
        Self::start_with(driver, tree, server, sites, &[])
    }

    /// The same, with variables of the environment.
    fn start_with(
        driver: &str,
        tree: &Tree,
        server: &str,
        sites: &str,
        environment: &[(&str, &str)],
    ) -> Self {
        let program = tree.path().join("program");
        symlink(SAMUM, &program).unwrap();
        let control = tree.path().join("control.sock");
        configure(tree, driver, server, sites);
        let mut command = Command::new(&program);
        command.args(["serve", "--config"]).arg(tree.path().join("samum.toml"));
        command.envs(environment.iter().copied());
        let server = Server::spawn(&mut command).expect("the server starts");
        // The control socket is served after that.
        assert!(server.wait_for_stderr(" on ", SOON).is_some());
        Self { server, program, control, later: Mutex::default() }
    }

    /// Runs `samum upgrade`.
    pub(crate) fn ask(&self) -> Output {
        Command::new(SAMUM).arg("upgrade").arg("--control").arg(&self.control).output().unwrap()
    }

    /// Upgrades it; returns the process ID of the new process.
    #[track_caller]
    pub(crate) fn upgrade(&self) -> u32 {
        let output = self.ask();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{output:?}");
        let pid = said.split(' ').nth(1).and_then(|pid| pid.parse().ok()).expect("its number");
        self.note(pid);
        pid
    }

    /// Records a process that serves now.
    fn note(&self, pid: u32) {
        self.later.lock().unwrap().push(pid);
    }

    /// The error of an upgrade, which leaves everything as it was.
    #[track_caller]
    fn refused(&self) -> String {
        let output = self.ask();
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        let serves = format!("no upgrade; process {} serves as before\n", self.pid());
        assert!(error.ends_with(&serves), "{error}");
        error
    }

    /// Puts another file in the place of the program.
    fn replace_program(&self, by: impl FnOnce(&Path)) {
        let next = self.program.with_extension("next");
        by(&next);
        fs::rename(&next, &self.program).unwrap();
    }

    /// The process that serves.
    fn pid(&self) -> u32 {
        self.later.lock().unwrap().last().copied().unwrap_or_else(|| self.server.pid())
    }

    /// Stops the process that serves.
    fn stop(&self) {
        kill(self.pid(), Signal::TERM);
    }

    /// Processes with the program of the server, the starter among them.
    fn pids(&self) -> Vec<u32> {
        let file = text(&self.program).as_bytes();
        let all = fs::read_dir("/proc").unwrap().flatten();
        let mut all: Vec<u32> = all
            .filter_map(|process| {
                let arguments = fs::read(process.path().join("cmdline")).ok()?;
                arguments.starts_with(file).then_some(())?;
                process.file_name().to_str()?.parse().ok()
            })
            .collect();
        all.sort_unstable();
        all
    }

    /// The number of these processes.
    fn processes(&self) -> usize {
        self.pids().len()
    }

    /// Waits until no process is left, not even the starter.
    #[track_caller]
    pub(crate) fn assert_ends(&self) {
        assert!(wait_until(SOON, || self.processes() == 0), "{} are left", self.processes());
    }
}

impl Drop for Family {
    fn drop(&mut self) {
        for pid in self.later.lock().unwrap().iter() {
            // One that has ended and was waited for has no arguments, or another process has its number.
            let arguments = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            if arguments.starts_with(text(&self.program).as_bytes()) {
                kill(*pid, Signal::KILL);
            }
        }
    }
}

/// Writes the configuration of a server with a control socket.
fn configure(tree: &Tree, driver: &str, server: &str, sites: &str) {
    let control = tree.path().join("control.sock");
    let threads = if server.contains("threads") { "" } else { "threads = 2\n" };
    tree.write(
        "samum.toml",
        format!(
            "[server]\ncontrol = {control:?}\ndriver = \"{driver}\"\n{threads}{server}\n{sites}"
        )
        .into_bytes(),
    );
}

/// A site of the files below `www` of a tree, at an address.
pub(crate) fn site(tree: &Tree, listen: &str) -> String {
    let root = tree.path().join("www");
    format!("[[site]]\nlisten = [{listen}]\n[[site.route]]\nfiles = {root:?}\n")
}

/// A tree with a small file and a big one.
fn tree() -> Tree {
    Tree::new().file("www/a.txt", "hello").file("www/big.bin", Content::pseudo_random(1, BIG))
}

fn kill(pid: u32, signal: Signal) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).unwrap();
    // It may have ended.
    let _ = kill_process(pid, signal);
}

fn runs(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).unwrap();
    test_kill_process(pid).is_ok()
}

/// A download of the big file that has begun.
fn begin_download(address: &Address) -> Client {
    let mut client = Client::connect(address).unwrap();
    client.set_limit(Duration::from_secs(60));
    client.send(request("GET /big.bin")).unwrap();
    client
}

#[track_caller]
fn finish_download(mut client: Client) {
    let response = client.response().unwrap();
    assert_eq!(response.status, 200);
    Content::pseudo_random(1, BIG).assert_at(0, &response.body);
    assert_eq!(response.body.len() as u64, BIG);
}

#[test]
fn a_download_goes_on_while_the_new_process_serves() {
    on_both_drivers(|driver| {
        let tree = tree();
        let mut family = Family::start(driver, &tree, "", &site(&tree, "\"127.0.0.1:0\""));
        let address = family.server.address();
        let downloads: Vec<_> = (0..3).map(|_| begin_download(&address)).collect();
        let mut kept = Client::connect(&address).unwrap();
        assert_eq!(ask_on(&mut kept, "GET /a.txt").body, b"hello");
        let next = family.upgrade();
        assert_eq!(testkit::get(&address, "/a.txt").unwrap().body, b"hello");
        // A connection that was idle gets one more response, which says that it is the last; or another one before it, if
        // its worker has not learned of the upgrade yet.
        let mut is_last = || {
            let response = ask_on(&mut kept, "GET /a.txt");
            assert_eq!(response.body, b"hello");
            response.header("connection") == Some("close")
        };
        assert!(is_last() || wait_until(SOON, is_last));
        assert!(runs(family.server.pid()), "it has downloads");
        downloads.into_iter().for_each(finish_download);
        assert_eq!(family.server.wait(SOON).unwrap().code(), Some(0));
        assert_eq!(testkit::get(&address, "/a.txt").unwrap().body, b"hello");
        assert!(runs(next));
        family.stop();
        family.assert_ends();
        assert!(!family.control.exists(), "the last process removes the names");
    });
}

#[test]
fn the_signal_does_the_same_and_the_starter_serves_all_generations() {
    on_both_drivers(|driver| {
        let tree = tree();
        let mut family = Family::start(driver, &tree, "", &site(&tree, "\"127.0.0.1:0\""));
        let address = family.server.address();
        family.server.signal(Signal::USR2).unwrap();
        let said = family.server.wait_for_stderr("serves now", SOON).expect("an upgrade");
        let pid = said.split(' ').nth(2).unwrap().parse().unwrap();
        family.note(pid);
        for _ in 0..5 {
            let before = family.pid();
            let next = family.upgrade();
            assert_ne!(before, next);
            assert_eq!(testkit::get(&address, "/a.txt").unwrap().body, b"hello");
            assert!(wait_until(SOON, || !runs(before)));
        }
        assert_eq!(family.processes(), 2, "the one that serves and the starter");
        family.stop();
        family.assert_ends();
    });
}

#[test]
fn a_confined_server_of_another_user_is_replaced_twenty_times_and_keeps_its_low_port() {
    const NOBODY: u32 = 65_534;
    or_skip!(rustix::process::geteuid().is_root().then_some(()).ok_or("another user: needs root"));
    on_both_drivers_at_once(|driver| {
        let tree = tree();
        chown(tree.path(), Some(NOBODY), Some(NOBODY)).unwrap();
        fs::set_permissions(tree.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let last = if driver == "uring" { 86 } else { 87 };
        let address = Address::Tcp(([127, 0, 0, last], 80).into());
        let site = site(&tree, &format!("\"127.0.0.{last}:80\""));
        let family = Family::start(driver, &tree, "user = \"nobody\"", &site);
        for _ in 0..20 {
            family.upgrade();
            assert_eq!(testkit::get(&address, "/a.txt").unwrap().body, b"hello");
            let status = fs::read_to_string(format!("/proc/{}/status", family.pid())).unwrap();
            let is_nobody =
                |line: &str| line.starts_with("Uid:") && line.matches("65534").count() == 4;
            assert!(status.lines().any(is_nobody), "{status}");
        }
        assert!(wait_until(SOON, || family.processes() == 2));
        family.stop();
        family.assert_ends();
    });
}

#[test]
fn without_a_configuration_the_signal_upgrades_too() {
    let tree = tree();
    let program = tree.path().join("program");
    symlink(SAMUM, &program).unwrap();
    let www = tree.path().join("www");
    let args = ["serve", text(&www), "--listen", "127.0.0.1:0", "--threads", "1"];
    let mut server = Server::start(&program, args).unwrap();
    let address = server.address();
    server.signal(Signal::USR2).unwrap();
    let said = server.wait_for_stderr("serves now", SOON).expect("an upgrade");
    let pid = said.split(' ').nth(2).unwrap().parse().unwrap();
    let control = tree.path().join("none");
    let family = Family { server, program, control, later: Mutex::new(vec![pid]) };
    assert_eq!(testkit::get(&address, "/a.txt").unwrap().body, b"hello");
    family.stop();
    family.assert_ends();
}

#[test]
fn a_stop_of_the_new_process_ends_the_earlier_ones() {
    on_both_drivers_at_once(|driver| {
        let tree = tree();
        let server = "timeout-drain = 5";
        let mut family = Family::start(driver, &tree, server, &site(&tree, "\"127.0.0.1:0\""));
        let address = family.server.address();
        // They take nothing, so their processes wait for `timeout-drain`.
        let mut first = begin_download(&address);
        first.head().unwrap();
        let second = family.upgrade();
        let mut other = begin_download(&address);
        other.head().unwrap();
        let third = family.upgrade();
        assert!(runs(second) && runs(third));
        family.stop();
        family.assert_ends();
        assert!(family.server.wait(SOON).unwrap().success());
        // The earlier process may still accept a connection while the later one does, so one may have had both.
        let cut_off = |line: &String| {
            let (count, _) =
                line.strip_prefix("samum: ")?.split_once(" cut off by the shutdown")?;
            count.split(' ').next()?.parse::<usize>().ok()
        };
        let all = || family.server.stderr().iter().filter_map(cut_off).sum::<usize>();
        assert!(wait_until(SOON, || all() == 2), "{:?}", family.server.stderr());
        drop((first, other));
    });
}

#[test]
fn a_viewer_of_the_status_page_keeps_no_earlier_process() {
    on_both_drivers(|driver| {
        let tree = tree();
        let route =
            "[[site.route]]\npath = \"/status\"\nstatus-page = true\nallow = [\"127.0.0.1\"]\n";
        let sites = site(&tree, "\"127.0.0.1:0\"") + route;
        let mut family = Family::start(driver, &tree, "", &sites);
        let address = family.server.address();
        let mut viewer = Client::connect(&address).unwrap();
        viewer.send("GET /status?events HTTP/1.0\r\nHost: test\r\n\r\n").unwrap();
        assert_eq!(viewer.head().unwrap().status, 200);
        family.upgrade();
        assert!(viewer.read_to_end().unwrap().ends_with(b"}\n\n"));
        assert!(family.server.wait(SOON).unwrap().success());
        assert_eq!(testkit::get(&address, "/status?json").unwrap().status, 200);
        family.stop();
        family.assert_ends();
    });
}

#[test]
fn connections_have_the_time_for_an_upgrade_and_are_counted_then() {
    on_both_drivers_at_once(|driver| {
        let tree = tree();
        let server = "timeout-drain = 1";
        let mut family = Family::start(driver, &tree, server, &site(&tree, "\"127.0.0.1:0\""));
        let mut download = begin_download(&family.server.address());
        download.head().unwrap();
        family.upgrade();
        assert!(family.server.wait(SOON).unwrap().success());
        assert!(family.server.wait_for_stderr("1 connection was cut off", SOON).is_some());
        assert!(download.read_to_end().unwrap().len() < usize::try_from(BIG).unwrap());
    });
}

/// Starts a server that opens a tunnel for one request, and sends back what comes through it. Returns its address.
fn echo_once() -> core::net::SocketAddr {
    use std::io::{Read as _, Write as _};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let (mut head, mut byte) = (Vec::new(), [0]);
        while !head.ends_with(b"\r\n\r\n") {
            stream.read_exact(&mut byte).unwrap();
            head.extend(byte);
        }
        let switch =
            "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n";
        stream.write_all(switch.as_bytes()).unwrap();
        let mut copy = stream.try_clone().unwrap();
        // The end of the tunnel ends it, too.
        let _ = std::io::copy(&mut stream, &mut copy);
    });
    address
}

#[test]
fn a_tunnel_goes_on_during_an_upgrade_until_its_time_is_over() {
    on_both_drivers_at_once(|driver| {
        let tree = tree();
        let upstream = echo_once();
        let sites = site(&tree, "\"127.0.0.1:0\"")
            + &format!("[[site.route]]\npath = \"/ws\"\nproxy = \"http://{upstream}\"\n");
        let mut family = Family::start(driver, &tree, "timeout-drain = 3", &sites);
        let mut tunnel = Client::connect(&family.server.address()).unwrap();
        tunnel.send(request("GET /ws\nConnection: upgrade\nUpgrade: websocket")).unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.extend(tunnel.read_exactly(1).unwrap());
        }
        assert!(head.starts_with(b"HTTP/1.1 101 "), "{}", String::from_utf8_lossy(&head));
        let mut echo = |text: &str| {
            tunnel.send(text.as_bytes()).unwrap();
            assert_eq!(tunnel.read_exactly(text.len()).unwrap(), text.as_bytes());
        };
        echo("before");
        family.upgrade();
        echo("after");
        assert!(runs(family.server.pid()));
        assert_eq!(testkit::get(&family.server.address(), "/a.txt").unwrap().body, b"hello");
        assert!(family.server.wait(SOON).unwrap().success());
        let said = "1 connection was cut off by the shutdown, still in use after `timeout-drain`, 1 of them a tunnel";
        assert!(
            family.server.wait_for_stderr(said, SOON).is_some(),
            "{:?}",
            family.server.stderr()
        );
        assert_eq!(tunnel.read_to_end().unwrap_or_default(), b"");
        family.stop();
        family.assert_ends();
    });
}

#[test]
fn sessions_of_tls_are_resumed_by_the_new_process() {
    use crate::tls::Authority;
    on_both_drivers(|driver| {
        let authority = Authority::new();
        let tree = tree();
        authority.issue(&["a.test"]).put(&tree, "a");
        let [certificate, key] = ["a.pem", "a.key"].map(|name| tree.path().join(name));
        let site = site(&tree, "{ address = \"127.0.0.1:0\", tls = true }").replace(
            "[[site.route]]",
            &format!("tls = {{ certificate = {certificate:?}, key = {key:?} }}\n[[site.route]]"),
        );
        let family = Family::start(driver, &tree, "", &site);
        let address = crate::common::tcp_address(&family.server);
        let client = authority.resuming();
        let handshakes = |count: usize| -> Vec<bool> {
            (0..count).map(|_| client.is_resumed(address, "a.test")).collect()
        };
        assert_eq!(handshakes(2), [false, true]);
        family.upgrade();
        assert_eq!(handshakes(3), [true; 3]);
        family.upgrade();
        assert_eq!(handshakes(3), [true; 3]);
        family.stop();
        family.assert_ends();
    });
}

#[test]
fn reloads_and_health_work_after_an_upgrade() {
    let tree = tree();
    let sites = site(&tree, "\"127.0.0.1:0\"");
    let family = Family::start("auto", &tree, "", &sites);
    let command = |word: &str| {
        let output = Command::new(SAMUM).arg(word).arg("--control").arg(&family.control).output();
        output.unwrap().status.code()
    };
    family.upgrade();
    assert_eq!((command("health"), command("reload")), (Some(0), Some(0)));
    configure(&tree, "auto", "", "listn = 1");
    assert_eq!(command("reload"), Some(1));
    assert!(family.refused().contains("listn"));
    configure(&tree, "auto", "", &sites);
    // A reload during an upgrade is answered by the process that serves then.
    thread::scope(|scope| {
        let upgrade = scope.spawn(|| family.ask());
        let reloads: Vec<_> = (0..5)
            .map(|_| {
                thread::sleep(Duration::from_millis(200));
                command("reload")
            })
            .collect();
        assert_eq!(reloads, [Some(0); 5]);
        let said = String::from_utf8(upgrade.join().unwrap().stdout).unwrap();
        family.note(said.split(' ').nth(1).unwrap().parse().unwrap());
    });
    family.stop();
    family.assert_ends();
}
