//! A server with scripts, and php-fpm.

use core::time::Duration;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use testkit::metrics::Metrics;
use testkit::{Client, Response, Server, Tree, request, tether};

pub(crate) use crate::common::on_both_drivers;
use crate::common::{SAMUM, SOON, wait_until};

/// The names by which php-fpm is installed.
const PHP_FPM: [&str; 5] = [
    "/usr/sbin/php-fpm8.2",
    "/usr/sbin/php-fpm8.4",
    "/usr/sbin/php-fpm8.3",
    "/usr/sbin/php-fpm",
    "/usr/bin/php-fpm",
];

/// A directory with files in `www`.
pub(crate) fn tree() -> Tree {
    Tree::new().file("www/a.txt", "a file")
}

/// php-fpm with two processes, at the socket `php.sock` of a tree.
pub(crate) struct Php(Child);

impl Php {
    /// Starts it; `Err` says why there is none.
    pub(crate) fn start(tree: &Tree) -> Result<Self, String> {
        let program = PHP_FPM.into_iter().find(|program| Path::new(program).exists());
        let program = program.ok_or("no php-fpm")?;
        let root = tree.path().display();
        let config = format!(
            "[global]\nerror_log = {root}/php.log\ndaemonize = no\n\
             [www]\nuser = root\ngroup = root\nlisten = {root}/php.sock\npm = static\n\
             pm.max_children = 2\nphp_admin_value[post_max_size] = 64M\n\
             php_admin_flag[log_errors] = on\nphp_admin_flag[display_errors] = off\n"
        );
        tree.write("php.conf", config.as_str());
        let mut command = Command::new(program);
        command.args(["-R", "-F", "-n", "-y"]).arg(tree.path().join("php.conf"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child =
            tether(&mut command).spawn().map_err(|error| format!("{program}: {error}"))?;
        let socket = tree.path().join("php.sock");
        if wait_until(SOON, || socket.exists() || !matches!(child.try_wait(), Ok(None)))
            && socket.exists()
        {
            return Ok(Self(child));
        }
        let log = fs::read_to_string(tree.path().join("php.log")).unwrap_or_default();
        let _ = child.kill();
        let _ = child.wait();
        panic!("{program} does not start: {log}");
    }
}

impl Drop for Php {
    fn drop(&mut self) {
        // Its processes end with it.
        let _ = Command::new("kill").arg(self.0.id().to_string()).status();
        let _ = self.0.wait();
    }
}

/// The server.
pub(crate) struct Stage {
    pub(crate) server: Server,
}

impl Stage {
    /// Runs the scripts in `www` by the application at `php.sock`.
    pub(crate) fn new(driver: &str, tree: &Tree) -> Self {
        Self::with(driver, tree, "", "")
    }

    /// The same with these keys of the table `fastcgi`, and of the route.
    pub(crate) fn with(driver: &str, tree: &Tree, keys: &str, of_route: &str) -> Self {
        let root = tree.path().display();
        let route = format!(
            "files = '{root}/www'\nindex = 'index.php'\nfallback = '/index.php'\n\
             fastcgi = {{ server = 'unix:{root}/php.sock'{keys} }}\n{of_route}"
        );
        Self::of_route(driver, tree, &route)
    }

    /// A server with this route for all paths.
    pub(crate) fn of_route(driver: &str, tree: &Tree, route: &str) -> Self {
        Self::in_server(driver, tree, "", route)
    }

    /// The same with these keys of the table `server`.
    pub(crate) fn in_server(driver: &str, tree: &Tree, keys: &str, route: &str) -> Self {
        let root = tree.path().display();
        let config = format!(
            "[server]\nthreads = 1\ndriver = '{driver}'\n{keys}\n\
             [[site]]\nlisten = ['127.0.0.1:0']\n\
             log = {{ file = '{root}/access.log', format = 'json' }}\n\
             [[site.route]]\n{route}\n\
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

    /// One of the numbers of the server.
    #[track_caller]
    pub(crate) fn count(&self, name: &str, labels: &[(&str, &str)]) -> u64 {
        let metrics = Metrics::parse(text(&self.ask("GET /metrics"))).unwrap();
        assert!(metrics.all(name, labels).next().is_some(), "no {name} {labels:?}");
        metrics.sum(name, labels).to_string().parse().expect("a whole number")
    }

    /// Waits for a line for the operator that contains `text`.
    #[track_caller]
    pub(crate) fn wait_for_log(&self, text: &str) {
        let line = self.server.wait_for_stderr(text, SOON);
        assert!(line.is_some(), "no {text:?} in {:#?}", self.server.stderr());
    }
}

/// The text of a body.
#[track_caller]
pub(crate) fn text(response: &Response) -> &str {
    core::str::from_utf8(&response.body).unwrap()
}
