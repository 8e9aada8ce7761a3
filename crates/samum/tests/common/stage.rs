//! A server behind which programs or applications run, and what tests ask it.

use core::time::Duration;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use rustix::process::Signal;
use testkit::metrics::Metrics;
use testkit::{Client, Response, Server, Tree, request};

use super::{SOON, serve_config};

/// The server.
pub(crate) struct Stage {
    pub(crate) server: Server,
}

impl Stage {
    /// Serves by this configuration, whose route `/metrics` shows the metrics.
    #[track_caller]
    pub(crate) fn new(tree: &Tree, config: &str) -> Self {
        Self { server: serve_config(tree, config) }
    }

    /// A connection.
    #[track_caller]
    pub(crate) fn connect(&self) -> Client {
        let mut client = Client::connect(&self.server.address()).expect("the server accepts");
        client.set_limit(Duration::from_secs(30));
        client
    }

    /// The response to a request on a connection of its own.
    #[track_caller]
    pub(crate) fn ask(&self, head: &str) -> Response {
        let mut client = self.connect();
        client.send(request(head)).expect("the server takes the request");
        let response = if head.starts_with("HEAD ") { client.head() } else { client.response() };
        response.unwrap_or_else(|error| panic!("no response to {head:?}: {error}"))
    }

    /// The response to a request with a body.
    #[track_caller]
    pub(crate) fn post(&self, head: &str, body: &[u8]) -> Response {
        let mut client = self.connect();
        let head = format!("{head}\nContent-Length: {}", body.len());
        client.send(request(&head)).expect("the server takes the request");
        client.send(body).expect("the server takes the body");
        client.response().unwrap_or_else(|error| panic!("no response to {head:?}: {error}"))
    }

    /// The text of a page.
    #[track_caller]
    pub(crate) fn page(&self, path: &str) -> String {
        let response = self.ask(&format!("GET {path}"));
        assert_eq!(response.status, 200, "{path}");
        String::from_utf8(response.body).expect("text")
    }

    /// One of the numbers of the server.
    #[track_caller]
    pub(crate) fn count(&self, name: &str, labels: &[(&str, &str)]) -> u64 {
        let metrics = Metrics::parse(&self.page("/metrics")).expect("metrics");
        assert!(metrics.all(name, labels).next().is_some(), "no {name} {labels:?}");
        metrics.sum(name, labels).to_string().parse().expect("a whole number")
    }

    /// Waits for a line for the operator that contains `text`.
    #[track_caller]
    pub(crate) fn wait_for_log(&self, text: &str) {
        let line = self.server.wait_for_stderr(text, SOON);
        assert!(line.is_some(), "no {text:?} in {:#?}", self.server.stderr());
    }

    /// Shuts the server down: what runs has the time of responses.
    #[track_caller]
    pub(crate) fn terminate(&mut self) {
        self.server.signal(Signal::TERM).expect("it runs");
        let status = self.server.wait(Duration::from_secs(60)).expect("it ends");
        assert!(status.success(), "{status}");
    }
}

/// The text of a body.
#[track_caller]
pub(crate) fn text(response: &Response) -> &str {
    core::str::from_utf8(&response.body).expect("text")
}

/// Writes a shell script to the directory `cgi`.
pub(crate) fn script(tree: &Tree, name: &str, text: &str) {
    let path = format!("cgi/{name}");
    tree.write(&path, format!("#!/bin/sh\n{text}\n").as_str());
    let executable = fs::Permissions::from_mode(0o755);
    fs::set_permissions(tree.path().join(path), executable).expect("its own file");
}
