//! A server with programs at `/tool/`, the same at `/closed/` for other clients and at `/short/` for short bodies, and
//! files at `/`.

use core::fmt::Write as _;
use core::time::Duration;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use rustix::process::Signal;
use testkit::{Client, Response, Server, Tree, request};

use crate::common::{SAMUM, SOON, wait_until};
pub(crate) use crate::common::{on_both_drivers, on_both_drivers_at_once};

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
    pub(crate) server: Server,
}

/// The numbers of programs that the server has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) started: u64,
    pub(crate) failed: u64,
    pub(crate) killed: u64,
    pub(crate) refused: u64,
}

impl Stage {
    /// Serves the tree.
    pub(crate) fn new(driver: &str, tree: &Tree) -> Self {
        Self::with(driver, tree, "")
    }

    /// The same with these keys of `cgi`.
    pub(crate) fn with(driver: &str, tree: &Tree, keys: &str) -> Self {
        Self::start(driver, tree, keys, 30)
    }

    /// The same for clients that leave: one that has closed its side may still want its response, but not
    /// for long.
    pub(crate) fn impatient(driver: &str, tree: &Tree, keys: &str) -> Self {
        Self::start(driver, tree, keys, 1)
    }

    fn start(driver: &str, tree: &Tree, keys: &str, timeout_send: u64) -> Self {
        let root = tree.path().display();
        let mut cgi = format!("directory = '{root}/cgi'");
        if !keys.is_empty() {
            write!(cgi, ", {keys}").unwrap();
        }
        let config = format!(
            "[server]\nthreads = 1\ndriver = '{driver}'\ntimeout-send = {timeout_send}\n\
             [[site]]\nlisten = ['127.0.0.1:0']\n\
             [[site.route]]\nfiles = '{root}/www'\n\
             [[site.route]]\npath = '/tool/'\ncgi = {{ {cgi} }}\n\
             [[site.route]]\npath = '/closed/'\ncgi = '{root}/cgi'\nallow = ['192.0.2.1']\n\
             [[site.route]]\npath = '/short/'\ncgi = '{root}/cgi'\nmax-body = 5\n\
             [[site.route]]\npath = '/metrics'\nmetrics = true\n"
        );
        tree.write("samum.toml", config.as_str());
        let mut command = Command::new(SAMUM);
        command.args(["serve", "--config"]).arg(tree.path().join("samum.toml"));
        Self { server: Server::spawn(&mut command).expect("the server starts") }
    }

    /// A connection.
    pub(crate) fn connect(&self) -> Client {
        let mut client = Client::connect(&self.server.address()).unwrap();
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

    /// Waits for a line for the operator that contains `text`.
    #[track_caller]
    pub(crate) fn wait_for_log(&self, text: &str) {
        let line = self.server.wait_for_stderr(text, SOON);
        assert!(line.is_some(), "no {text:?} in {:#?}", self.server.stderr());
    }

    /// The numbers of programs so far.
    pub(crate) fn counts(&self) -> Counts {
        let response = self.ask("GET /metrics");
        let number = |event: &str| {
            let name = format!("samum_cgi_programs_total{{event=\"{event}\"}} ");
            let value = text(&response).lines().find_map(|line| line.strip_prefix(&name[..]));
            value.expect("it is shown").parse().expect("a number")
        };
        let (started, failed) = (number("started"), number("failed"));
        Counts { started, failed, killed: number("killed"), refused: number("refused") }
    }

    /// Waits until these are the numbers of programs.
    #[track_caller]
    pub(crate) fn expect(&self, expected: Counts) {
        let is_so = wait_until(SOON, || self.counts() == expected);
        assert!(is_so, "{:?} and not {expected:?}", self.counts());
    }

    /// Shuts the server down: running programs have the time of responses.
    pub(crate) fn terminate(&mut self) {
        self.server.signal(Signal::TERM).unwrap();
        assert!(self.server.wait(Duration::from_secs(60)).unwrap().success());
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
