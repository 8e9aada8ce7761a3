//! `samum health`: the server says whether it is healthy, also one that cannot say it any more; and from where it can be
//! reached.

use core::time::Duration;
use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use testkit::{Server, Signal, Tree, or_skip, tether};

use super::outcome;
use crate::common::{
    SAMUM, SOON, connect, on_both_drivers, on_both_drivers_at_once, request, serve_config,
    wait_until,
};

/// Asks for the health of the server with this control socket. Returns the exit code, the line on standard output and
/// the one on standard error.
fn health(control: &Path) -> (Option<i32>, String, String) {
    outcome(Command::new(SAMUM).arg("health").arg("--control").arg(control))
}

/// A server with two workers, and its control socket.
fn serve(driver: &str, tree: &Tree) -> (Server, PathBuf) {
    let control = tree.path().join("control");
    let mut command = crate::common::command(driver, tree.path(), &["--threads", "2"]);
    let server = Server::spawn(command.arg("--control").arg(&control)).expect("the server starts");
    // The control socket is served after the first announcement.
    assert!(server.wait_for_stderr("with 2 workers", SOON).is_some());
    (server, control)
}

#[test]
fn a_server_is_healthy_until_it_shuts_down() {
    on_both_drivers(|driver| {
        let tree = Tree::new().file("big.bin", vec![b'x'; 64 << 20]);
        let (mut server, control) = serve(driver, &tree);
        let healthy = (Some(0), "2 workers turn\n".to_owned(), String::new());
        for _ in 0..3 {
            assert_eq!(health(&control), healthy);
        }
        // Its client receives nothing, so the shutdown waits for it.
        let mut client = connect(&server);
        client.send(request("GET /big.bin")).unwrap();
        client.head().unwrap();
        server.signal(Signal::TERM).unwrap();
        assert!(server.wait_for_stderr("shutting down", SOON).is_some());
        let (code, stdout, stderr) = health(&control);
        assert_eq!((code, &stdout[..]), (Some(1), ""), "{stderr}");
        assert!(stderr.contains("no server listens"), "{stderr}");
    });
}

#[test]
fn a_server_that_was_stopped_is_not_healthy() {
    let tree = Tree::new();
    let (mut server, control) = serve("auto", &tree);
    server.signal(Signal::STOP).unwrap();
    let started = Instant::now();
    let (code, _, stderr) = health(&control);
    assert_eq!(code, Some(1), "{stderr}");
    assert!(stderr.contains("has not answered within 5 s"), "{stderr}");
    assert!(started.elapsed() < SOON, "{:?}", started.elapsed());
    // The other commands find that out as soon.
    let started = Instant::now();
    std::thread::scope(|scope| {
        for command in [
            &["reload"][..],
            &["upgrade"],
            &["stack"],
            &["stack", "--connections"],
            &["explain", "http://localhost/"],
        ] {
            let control = &control;
            scope.spawn(move || {
                let mut asked = Command::new(SAMUM);
                let (code, stdout, stderr) =
                    outcome(asked.args(command).arg("--control").arg(control));
                assert_eq!((code, &stdout[..]), (Some(1), ""), "{command:?}: {stderr}");
                let says = ["has not answered within 5 s", "stopped", "restart it"];
                assert!(says.iter().all(|text| stderr.contains(text)), "{command:?}: {stderr}");
            });
        }
    });
    assert!(started.elapsed() < SOON, "{:?}", started.elapsed());
    server.signal(Signal::CONT).unwrap();
    assert_eq!(health(&control).0, Some(0));
}

#[test]
fn a_reload_that_a_worker_does_not_take_says_so() {
    on_both_drivers_at_once(|driver| {
        let tree = Tree::new().file("a.txt", "hello");
        let control = tree.path().join("control");
        let keys = format!(
            "[server]\ndriver = '{driver}'\nthreads = 2\ncontrol = 'control'\n\
             [[site]]\nlisten = ['127.0.0.1:0']\n[[site.route]]\nfiles = '.'\n",
        );
        let server = serve_config(&tree, &keys);
        let reload = || outcome(Command::new(SAMUM).arg("reload").arg("--control").arg(&control));
        assert!(wait_until(SOON, || reload().0 == Some(0)));
        let frozen = or_skip!(Frozen::worker(&server, 1));
        let clients: Vec<_> = (0..64)
            .map(|_| {
                let mut client = connect(&server);
                client.send(request("GET /a.txt")).unwrap();
                client
            })
            .collect();
        assert!(wait_until(SOON, || frozen.is_stopped()), "{driver}");
        let (code, stdout, stderr) = reload();
        assert_eq!((code, &stdout[..]), (Some(1), ""), "{driver}: {stderr}");
        let says = ["loaded the configuration", "worker-1 has not begun to serve it", "restart"];
        assert!(says.iter().all(|text| stderr.contains(text)), "{driver}: {stderr}");
        drop((frozen, clients));
        assert!(wait_until(SOON, || reload().0 == Some(0)), "{driver}");
    });
}

#[test]
fn a_server_with_a_worker_that_does_not_turn_is_not_healthy() {
    for driver in ["uring", "epoll"] {
        let tree = Tree::new().file("a.txt", "hello");
        let (server, control) = serve(driver, &tree);
        let frozen = or_skip!(Frozen::worker(&server, 1));
        // There are enough connections that this worker gets one, and begins its next system call.
        let clients: Vec<_> = (0..64)
            .map(|_| {
                let mut client = connect(&server);
                client.send(request("GET /a.txt")).unwrap();
                client
            })
            .collect();
        assert!(wait_until(SOON, || frozen.is_stopped()), "{driver}");
        let (code, _, stderr) = health(&control);
        assert_eq!(code, Some(1), "{driver}: {stderr}");
        assert!(stderr.contains("worker-1 does not turn"), "{driver}: {stderr}");
        drop(frozen);
        assert!(wait_until(SOON, || health(&control).0 == Some(0)), "{driver}");
        drop(clients);
    }
}

/// A worker whose system calls are held up, by a tracer that runs until this is dropped.
struct Frozen {
    strace: Child,
    /// Its directory in `/proc`.
    task: PathBuf,
}

impl Frozen {
    fn worker(server: &Server, number: usize) -> Result<Self, String> {
        let name = format!("worker-{number}\n");
        let tasks = fs::read_dir(format!("/proc/{}/task", server.pid())).expect("it runs");
        let task = tasks
            .map(|task| task.expect("a directory").path())
            .find(|task| fs::read_to_string(task.join("comm")).is_ok_and(|comm| comm == name))
            .expect("it has this worker");
        let mut command = Command::new("strace");
        command.args(["-e", "inject=all:delay_enter=60000000", "-o", "/dev/null", "-p"]);
        command.arg(task.file_name().expect("a task has a number")).stderr(Stdio::null());
        let strace = tether(&mut command).spawn().map_err(|error| format!("strace: {error}"))?;
        let frozen = Self { strace, task };
        let is_traced = || frozen.status("TracerPid:").is_some_and(|pid| pid != "0");
        if wait_until(SOON, is_traced) {
            Ok(frozen)
        } else {
            Err("the worker cannot be traced (ptrace is not permitted?)".to_owned())
        }
    }

    /// A field of its status (proc(5)).
    fn status(&self, name: &str) -> Option<String> {
        let status = fs::read_to_string(self.task.join("status")).ok()?;
        Some(status.lines().find_map(|line| line.strip_prefix(name))?.trim().to_owned())
    }

    fn is_stopped(&self) -> bool {
        self.status("State:").is_some_and(|state| state.starts_with('t'))
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        // The kernel lets the worker run on when its tracer has ended.
        let _ = self.strace.kill();
        let _ = self.strace.wait();
    }
}

#[test]
fn without_a_server_nothing_is_healthy_and_wrong_arguments_are_errors_of_their_own() {
    let tree = Tree::new();
    let (code, _, stderr) = health(&tree.path().join("none"));
    assert_eq!(code, Some(1), "{stderr}");
    assert!(stderr.contains("no server listens at the control socket"), "{stderr}");
    let (code, _, stderr) = outcome(Command::new(SAMUM).args(["health", "now"]));
    assert_eq!(code, Some(2), "{stderr}");
}

#[test]
fn a_unit_and_a_container_say_from_where_they_can_be_reached() {
    let tree = Tree::new();
    let arguments = ["serve", "--threads", "1", "--listen"];
    for (listen, expected) in [
        // The test itself may run in a container.
        ("127.0.0.1:0", "not reachable from outside th"),
        ("0.0.0.0:0", "reachable from outside, unless a firewall forbids it: http://0.0.0.0:"),
    ] {
        let mut unit = Command::new(SAMUM);
        unit.args(arguments).arg(listen).arg(tree.path()).env("INVOCATION_ID", "0123456789abcdef");
        let server = Server::spawn(&mut unit).expect("the server starts");
        let line = server.wait_for_stderr("reachable from outside", SOON).expect("it is said");
        assert!(line.contains(expected), "{line}");
    }
    let is_pid_1 =
        crate::common::run("unshare", &["--fork".as_ref(), "--pid".as_ref(), "true".as_ref()]);
    or_skip!(is_pid_1);
    let mut container = Command::new("unshare");
    container.args(["--fork", "--pid", "--kill-child", SAMUM]).args(arguments).arg("127.0.0.1:0");
    let server = Server::spawn(container.arg(tree.path())).expect("the server starts");
    let line = server.wait_for_stderr("reachable from outside", SOON).expect("it is said");
    assert!(line.contains("not reachable from outside the container"), "{line}");
}

#[test]
fn the_service_manager_gets_no_sign_of_life_while_a_worker_hangs() {
    for driver in ["uring", "epoll"] {
        let tree = Tree::new().file("a.txt", "hello");
        let path = tree.path().join("notify.sock");
        let manager = UnixDatagram::bind(&path).unwrap();
        manager.set_read_timeout(Some(SOON)).unwrap();
        let mut command = crate::common::command(driver, tree.path(), &["--threads", "2"]);
        command.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "300000");
        let server = Server::spawn(&mut command).expect("the server starts");
        let next = || {
            let mut text = [0; 64];
            manager.recv(&mut text).map(|count| text[..count].to_vec())
        };
        assert_eq!(next().unwrap(), b"READY=1");
        assert_eq!(next().unwrap(), b"WATCHDOG=1");
        let frozen = or_skip!(Frozen::worker(&server, 1));
        let clients: Vec<_> = (0..64)
            .map(|_| {
                let mut client = connect(&server);
                client.send(request("GET /a.txt")).unwrap();
                client
            })
            .collect();
        assert!(wait_until(SOON, || frozen.is_stopped()), "{driver}");
        let limit = 3 * SOON;
        assert!(server.wait_for_stderr("worker-1 has not turned for 10 s", limit).is_some());
        manager.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        // Those of before.
        while next().is_ok() {}
        manager.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
        assert!(next().is_err(), "{driver}");
        drop((frozen, clients));
        manager.set_read_timeout(Some(limit)).unwrap();
        assert_eq!(next().unwrap(), b"WATCHDOG=1");
    }
}
