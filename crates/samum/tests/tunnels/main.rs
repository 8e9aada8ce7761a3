//! WebSockets through samum: a real server behind it and real clients in front of it.

#[path = "../common/mod.rs"]
#[allow(unused, reason = "the other tests use the rest")]
mod common;

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use testkit::{Address, Server, Tree, or_skip, tether};

use common::{SAMUM, on_both_drivers};

const ECHO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/tunnels/echo.py");

/// A server that sends back what it gets. It is killed at the end.
struct Echo {
    port: u16,
    process: Child,
}

impl Echo {
    /// Starts it, or says what is missing.
    fn start() -> Result<Self, String> {
        let has_library = python().args(["-c", "import websockets"]).stderr(Stdio::null()).status();
        if !has_library.is_ok_and(|status| status.success()) {
            return Err("no websockets for Python".to_owned());
        }
        let mut command = python();
        tether(command.args([ECHO, "serve"]).stdout(Stdio::piped()));
        let mut process = command.spawn().map_err(|error| format!("Python: {error}"))?;
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

/// Debian's Python, which has Debian's libraries.
fn python() -> Command {
    Command::new("/usr/bin/python3")
}

#[test]
fn messages_of_all_sizes_come_back() {
    on_both_drivers(|driver| {
        let echo = or_skip!(Echo::start());
        let tree = Tree::new();
        let config = format!(
            "[server]\nthreads = 1\ndriver = '{driver}'\n[[site]]\nlisten = ['127.0.0.1:0']\n\
             [[site.route]]\npath = '/'\nproxy = 'http://127.0.0.1:{}'\n",
            echo.port
        );
        tree.write("samum.toml", config.as_str());
        let mut command = Command::new(SAMUM);
        command.args(["serve", "--config"]).arg(tree.path().join("samum.toml"));
        let server = Server::spawn(&mut command).expect("samum starts");
        let Address::Tcp(address) = server.address() else { panic!("not TCP") };
        let mut clients = python();
        let clients = clients.args([ECHO, "ask", &address.port().to_string()]);
        let output = tether(clients).output().expect("Python runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    });
}
