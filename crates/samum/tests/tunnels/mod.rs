//! WebSockets through samum: a real server behind it and real clients in front of it.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use testkit::{Address, Tree, or_skip, tether};

use crate::common::{on_both_drivers, serve_config};

/// A language with a library for WebSockets.
#[derive(Clone, Copy)]
pub(crate) struct Language {
    program: &'static str,
    /// Arguments with which the program succeeds if the library is there.
    probe: [&'static str; 2],
    /// A script that serves and asks.
    script: &'static str,
}

/// Debian's Python, which has Debian's libraries.
pub(crate) const PYTHON: Language = Language {
    program: "/usr/bin/python3",
    probe: ["-c", "import websockets"],
    script: concat!(env!("CARGO_MANIFEST_DIR"), "/tests/tunnels/echo.py"),
};

/// Node.js.
const NODE: Language = Language {
    program: "/usr/bin/node",
    probe: ["-e", "require('ws').WebSocketServer.name"],
    script: concat!(env!("CARGO_MANIFEST_DIR"), "/tests/tunnels/echo.js"),
};

impl Language {
    fn command(self) -> Command {
        let mut command = Command::new(self.program);
        // Where Debian has libraries for Node.js, of which other builds of it do not know.
        command.env("NODE_PATH", "/usr/share/nodejs");
        command
    }
}

/// A server that sends back what it gets. It is killed at the end.
pub(crate) struct Echo {
    pub(crate) port: u16,
    process: Child,
}

impl Echo {
    /// Starts it, or says what is missing.
    pub(crate) fn start(language: Language) -> Result<Self, String> {
        let Language { program, probe, script } = language;
        let has_library = language.command().args(probe).stderr(Stdio::null()).status();
        if !has_library.is_ok_and(|status| status.success()) {
            return Err(format!("{program} with a library for WebSockets is missing"));
        }
        let mut command = language.command();
        tether(command.args([script, "serve"]).stdout(Stdio::piped()));
        let mut process = command.spawn().map_err(|error| format!("{program}: {error}"))?;
        let mut line = String::new();
        let output = process.stdout.take().expect("it is a pipe");
        BufReader::new(output).read_line(&mut line).map_err(|error| error.to_string())?;
        let port = line.trim().parse().map_err(|_| format!("no port, but {line:?}"))?;
        Ok(Self { port, process })
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn messages_of_pythons_websockets_come_back() {
    check(PYTHON);
}

#[test]
fn messages_of_ws_for_node_come_back() {
    check(NODE);
}

/// Clients send messages of all sizes through samum, and get them back.
fn check(language: Language) {
    on_both_drivers(|driver| {
        let echo = or_skip!(Echo::start(language));
        let tree = Tree::new();
        let config = format!(
            "[server]\nthreads = 1\ndriver = '{driver}'\n[[site]]\nlisten = ['127.0.0.1:0']\n\
             [[site.route]]\npath = '/'\nproxy = 'http://127.0.0.1:{}'\n",
            echo.port
        );
        let server = serve_config(&tree, &config);
        let Address::Tcp(address) = server.address() else { panic!("not TCP") };
        let mut clients = language.command();
        let clients = clients.args([language.script, "ask", &address.port().to_string()]);
        let output = tether(clients).output().expect("it has served");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    });
}
