//! A server whose site has pages with directives, programs and internal files.

use core::time::Duration;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use testkit::{Client, Response, Server, Tree, request};

pub(crate) use crate::common::on_both_drivers;
use crate::common::{SAMUM, SOON};

/// The error message of pages.
pub(crate) const ERRMSG: &str = "[an error occurred while processing the directive]";

/// A directory with pages in `www`, internal files in `inner` and programs in `cgi`.
pub(crate) fn tree() -> Tree {
    Tree::new().directory("www").directory("inner").directory("cgi")
}

/// Writes a shell script that puts out a response.
pub(crate) fn script(tree: &Tree, name: &str, text: &str) {
    let path = format!("cgi/{name}");
    tree.write(&path, format!("#!/bin/sh\n{text}\n").as_str());
    fs::set_permissions(tree.path().join(path), fs::Permissions::from_mode(0o755)).unwrap();
}

/// The server.
pub(crate) struct Stage {
    pub(crate) server: Server,
}

impl Stage {
    /// Serves the tree.
    pub(crate) fn new(driver: &str, tree: &Tree) -> Self {
        Self::with(driver, tree, &tree.path().join("www"), "")
    }

    /// The same with another directory at `/slow/`, and these keys of `[server]`.
    pub(crate) fn with(driver: &str, tree: &Tree, slow: &Path, keys: &str) -> Self {
        let (root, slow) = (tree.path().display(), slow.display());
        let config = format!(
            "[server]\nthreads = 1\ndriver = '{driver}'\n{keys}\n\
             [[site]]\nlisten = ['127.0.0.1:0']\nincludes = true\n\
             [[site.route]]\nfiles = '{root}/www'\n\
             [[site.route]]\npath = '/slow/'\nfiles = '{slow}'\n\
             [[site.route]]\npath = '/as-it-is/'\nfiles = '{root}/www'\nincludes = false\n\
             [[site.route]]\npath = '/clean/'\nfiles = '{root}/www'\nclean-urls = true\n\
             [[site.route]]\npath = '/inner/'\nfiles = '{root}/inner'\ninternal = true\n\
             [[site.route]]\npath = '/closed/'\nfiles = '{root}/www'\nallow = ['192.0.2.1']\n\
             [[site.route]]\npath = '/tool/'\ncgi = '{root}/cgi'\n\
             [[site.route]]\npath = '/server/'\nproxy = 'unix:{root}/app.sock'\n\
             [[site.route]]\npath = '/script/'\n\
             fastcgi = {{ server = 'unix:{root}/php.sock', root = '/srv' }}\n\
             [[site.route]]\npath = '/mixed/'\nfiles = '{root}/www'\n\
             fastcgi = {{ server = 'unix:{root}/php.sock' }}\n\
             [[site.route]]\npath = '/back/'\nfiles = '{root}/inner'\nincludes = false\n\
             fallback = '/mixed/page.html'\n\
             [[site.route]]\npath = '/old'\nredirect = '/a'\n\
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

    /// The text of a page.
    #[track_caller]
    pub(crate) fn page(&self, path: &str) -> String {
        let response = self.ask(&format!("GET {path}"));
        assert_eq!(response.status, 200, "{path}");
        String::from_utf8(response.body).unwrap()
    }

    /// One of the numbers about includes.
    pub(crate) fn count(&self, name: &str) -> u64 {
        let metrics = self.page("/metrics");
        let value = metrics.lines().find_map(|line| line.strip_prefix(name));
        value.expect("it is shown").trim().parse().expect("a number")
    }

    /// Waits for a line for the operator that contains `text`.
    #[track_caller]
    pub(crate) fn wait_for_log(&self, text: &str) {
        let line = self.server.wait_for_stderr(text, SOON);
        assert!(line.is_some(), "no {text:?} in {:#?}", self.server.stderr());
    }
}
