//! Two network namespaces and a cable between them.

use core::sync::atomic::{AtomicU32, Ordering};
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use std::process::Command;
use std::{env, process, thread};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// The number of queues with which frames of different connections come by different queues. With an XDP program in
/// generic mode, a frame that leaves veth by queue n comes by queue n − 1 of the other end (0 for the first).
pub(crate) const SEVERAL: u32 = 4;

/// Two namespaces, `server` and `client`, with one end of a cable each: `srv` with 10.9.0.1/24 and
/// fd09::1/64, `cli` with 10.9.0.2/24 and fd09::2/64. They are removed on drop.
#[derive(Debug)]
pub(crate) struct Net {
    pub(crate) server: Namespace,
    pub(crate) client: Namespace,
}

/// A network namespace.
#[derive(Debug)]
pub(crate) struct Namespace {
    name: String,
}

impl Net {
    /// Makes the namespaces and a cable as `ip` makes it by default; `None`, with the reason printed, if this
    /// process may not.
    pub(crate) fn new() -> Option<Self> {
        Self::with("type veth", "")
    }

    /// The same with several queues in use at each end.
    pub(crate) fn with_queues(queues: u32) -> Option<Self> {
        let queues = format!("numtxqueues {queues} numrxqueues {queues}");
        Self::with(&format!("{queues} type veth"), &format!(" {queues}"))
    }

    fn with(server_end: &str, client_end: &str) -> Option<Self> {
        let server = Namespace::new("srv")?;
        let client = Namespace::new("cli")?;
        let (srv, cli) = (&server.name, &client.name);
        ip(&format!("link add srv netns {srv} {server_end} peer name cli netns {cli}{client_end}"));
        for (namespace, device, host) in [(&server, "srv", 1), (&client, "cli", 2)] {
            namespace.ip("link set lo up");
            namespace.ip(&format!("addr add 10.9.0.{host}/24 dev {device}"));
            namespace.ip(&format!("addr add fd09::{host}/64 dev {device} nodad"));
            namespace.ip(&format!("link set {device} up"));
        }
        Some(Self { server, client })
    }
}

impl Namespace {
    fn new(kind: &str) -> Option<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("netdev-{}-{number}-{kind}", process::id());
        let made = Command::new("ip").args(["netns", "add", &name]).output();
        let reason = match &made {
            Ok(output) if output.status.success() => return Some(Self { name }),
            Ok(output) => String::from_utf8_lossy(&output.stderr).trim().to_owned(),
            Err(error) => format!("ip: {error}"),
        };
        skip(&format!("no network namespace: {reason}"));
        None
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Runs `ip` in the namespace.
    pub(crate) fn ip(&self, arguments: &str) {
        ip(&format!("-n {} {arguments}", self.name));
    }

    /// Runs a command in the namespace; returns its output, or `None` if there is no such command.
    pub(crate) fn run(&self, command: &str) -> Option<String> {
        let mut words = command.split(' ');
        let mut command = Command::new(words.next().unwrap());
        command.args(words);
        match self.enter(move || command.output()) {
            Ok(output) => {
                assert!(output.status.success(), "{output:?}");
                Some(String::from_utf8(output.stdout).unwrap())
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => panic!("{error}"),
        }
    }

    /// Runs something on a thread in the namespace.
    pub(crate) fn enter<T: Send>(&self, run: impl FnOnce() -> T + Send) -> T {
        thread::scope(|scope| {
            let entered = scope.spawn(|| {
                enter(&self.name);
                run()
            });
            entered.join().unwrap()
        })
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.name]).status();
    }
}

/// Moves the calling thread into a namespace.
pub(crate) fn enter(name: &str) {
    let file = File::open(format!("/run/netns/{name}")).unwrap();
    move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
    // The kernel's view for this thread is the namespace.
    assert!(fs::exists("/proc/thread-self/net/dev").unwrap());
}

fn ip(arguments: &str) {
    let output = Command::new("ip").args(arguments.split(' ')).output().unwrap();
    assert!(output.status.success(), "ip {arguments}: {output:?}");
}

/// Prints the reason why a test cannot run here. In CI that is a failure.
pub(crate) fn skip(reason: &str) {
    let is_ci = env::var_os("CI").is_some_and(|ci| ci == "true");
    assert!(!is_ci, "this test may not be skipped in CI: {reason}");
    // Not eprintln!, because the test harness hides its output unless the test fails.
    let mut stderr = io::stderr();
    writeln!(stderr, "skipped: {reason}").unwrap();
}
