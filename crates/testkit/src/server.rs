//! A server under test, as a process.

use core::net::SocketAddr;
use core::time::Duration;
use std::ffi::OsStr;
use std::io::{self, BufRead as _, BufReader, Error, ErrorKind, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Instant;

use rustix::process::{Pid, Signal, kill_process};

use crate::{Address, tether};

/// A running server. It announces its address on standard error, by a line that ends in
/// `listening on http://HOST:PORT/`, `listening on https://HOST:PORT/` or `listening on unix:PATH`.
///
/// The server is killed when this is dropped, or when the thread that started it ends in any way. So a killed
/// test leaves no server behind.
///
/// ```no_run
/// # fn main() -> std::io::Result<()> {
/// # let samum = "target/debug/samum"; // In a test of its package: env!("CARGO_BIN_EXE_samum")
/// use testkit::{Server, Tree, get};
///
/// let tree = Tree::new().file("index.html", "hello");
/// let directory = tree.path().to_str().unwrap();
/// let mut server = Server::start(samum, ["serve", directory, "--listen", "127.0.0.1:0"])?;
/// assert_eq!(get(&server.address(), "/index.html")?.body, b"hello");
/// assert!(server.terminate()?.success());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Server {
    child: Child,
    stdout: Capture,
    stderr: Capture,
}

impl Server {
    /// Starts `binary` with these arguments and waits until it announces an address.
    ///
    /// # Errors
    /// If the server cannot be started, ends, or announces nothing for 10 s. The error has its standard error.
    pub fn start(
        binary: impl AsRef<OsStr>,
        args: impl IntoIterator<Item = impl AsRef<OsStr>>,
    ) -> io::Result<Self> {
        Self::spawn(Command::new(binary).args(args))
    }

    /// Does the same as [`Server::start`], for a command with an environment, a seccomp filter and so on.
    ///
    /// # Errors
    /// Those of [`Server::start`].
    pub fn spawn(command: &mut Command) -> io::Result<Self> {
        let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = tether(command).spawn()?;
        let stdout = Capture::new(child.stdout.take().expect("piped above"));
        let stderr = Capture::new(child.stderr.take().expect("piped above"));
        // From here on, an early return kills the child.
        let server = Self { child, stdout, stderr };
        match server.stderr.wait_for(START_LIMIT, |line| announced(line).is_some()) {
            Some(_) => Ok(server),
            None => Err(Error::other(format!("no announcement:\n{}", server.stderr().join("\n")))),
        }
    }

    /// The first address announced.
    ///
    /// # Panics
    /// Never: there is one.
    #[must_use]
    pub fn address(&self) -> Address {
        self.addresses().into_iter().next().expect("spawn() has seen one")
    }

    /// The addresses announced so far. A server with several may announce the others a little later
    /// than the first.
    #[must_use]
    pub fn addresses(&self) -> Vec<Address> {
        self.stderr().iter().filter_map(|line| announced(line)).collect()
    }

    /// Its process ID.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The lines on standard error so far.
    #[must_use]
    pub fn stderr(&self) -> Vec<String> {
        self.stderr.lines()
    }

    /// The lines on standard output so far.
    #[must_use]
    pub fn stdout(&self) -> Vec<String> {
        self.stdout.lines()
    }

    /// Waits for a line on standard error that contains `text`, and may have come already. `None` if no such line
    /// comes within `limit`, or the server closes standard error.
    #[must_use]
    pub fn wait_for_stderr(&self, text: &str, limit: Duration) -> Option<String> {
        self.stderr.wait_for(limit, |line| line.contains(text))
    }

    /// Does the same as [`Server::wait_for_stderr`], for standard output.
    #[must_use]
    pub fn wait_for_stdout(&self, text: &str, limit: Duration) -> Option<String> {
        self.stdout.wait_for(limit, |line| line.contains(text))
    }

    /// Sends a signal.
    ///
    /// # Errors
    /// Those of kill(2), for instance if the server has ended.
    pub fn signal(&mut self, signal: Signal) -> io::Result<()> {
        // After the wait, the number may belong to another process.
        if self.child.try_wait()?.is_some() {
            return Err(Error::new(ErrorKind::NotFound, "the server has ended"));
        }
        Ok(kill_process(Pid::from_child(&self.child), signal)?)
    }

    /// Sends SIGTERM and waits for the end; [`Server::stderr`] is complete then.
    ///
    /// # Errors
    /// [`ErrorKind::TimedOut`] if it does not end within 10 s; it is killed then.
    pub fn terminate(&mut self) -> io::Result<ExitStatus> {
        self.signal(Signal::TERM)?;
        self.wait(TERMINATE_LIMIT)
    }

    /// Waits until it ends by itself.
    ///
    /// # Errors
    /// [`ErrorKind::TimedOut`] if it does not end within `limit`; it is killed then.
    pub fn wait(&mut self, limit: Duration) -> io::Result<ExitStatus> {
        let Some(status) = self.poll_exit(limit)? else {
            self.child.kill()?;
            let message = format!("still running after {limit:?}:\n{}", self.stderr().join("\n"));
            return Err(Error::new(ErrorKind::TimedOut, message));
        };
        // The pipes are closed right after that, unless a grandchild holds them open.
        for capture in [&self.stdout, &self.stderr] {
            let _ = capture.wait_for(CLEANUP_LIMIT, |_| false);
        }
        Ok(status)
    }

    fn poll_exit(&mut self, limit: Duration) -> io::Result<Option<ExitStatus>> {
        let deadline = Instant::now() + limit;
        loop {
            let status = self.child.try_wait()?;
            if status.is_some() || Instant::now() >= deadline {
                return Ok(status);
            }
            thread::sleep(POLL_PERIOD);
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // An error means that the server has ended already. A killed server still waits for reads that a SlowFs
        // delays, perhaps forever. So the drop waits a while for its end, so that tests do not overlap.
        let _ = self.child.kill();
        let _ = self.poll_exit(CLEANUP_LIMIT);
    }
}

/// Parses the address in a line like `samum: listening on http://127.0.0.1:8080/`.
fn announced(line: &str) -> Option<Address> {
    let (_, place) = line.split_once("listening on ")?;
    match place.strip_prefix("unix:") {
        Some(path) => Some(Address::Unix(path.into())),
        None => {
            let rest = place.strip_prefix("http")?;
            let rest = rest.strip_prefix('s').unwrap_or(rest);
            let address = rest.strip_prefix("://")?.split('/').next()?;
            address.parse::<SocketAddr>().ok().map(Address::Tcp)
        }
    }
}

/// The lines from a pipe, which a thread collects until the pipe is closed.
#[derive(Clone, Debug, Default)]
struct Capture(Arc<(Mutex<Captured>, Condvar)>);

#[derive(Debug, Default)]
struct Captured {
    lines: Vec<String>,
    closed: bool,
}

impl Capture {
    fn new(pipe: impl Read + Send + 'static) -> Self {
        let capture = Self::default();
        let theirs = capture.clone();
        thread::spawn(move || {
            for line in BufReader::new(pipe).split(b'\n') {
                // A pipe that cannot be read ends like one that has been closed.
                let Ok(line) = line else { break };
                let line = String::from_utf8_lossy(&line).into_owned();
                // The test harness shows this if the test fails.
                eprintln!("server: {line}");
                theirs.change(|captured| captured.lines.push(line));
            }
            theirs.change(|captured| captured.closed = true);
        });
        capture
    }

    fn lines(&self) -> Vec<String> {
        let (captured, _) = &*self.0;
        captured.lock().expect(NOT_POISONED).lines.clone()
    }

    fn change(&self, change: impl FnOnce(&mut Captured)) {
        let (captured, changed) = &*self.0;
        change(&mut captured.lock().expect(NOT_POISONED));
        changed.notify_all();
    }

    /// Waits for the first wanted line; `None` at the limit or the end of the pipe.
    fn wait_for(&self, limit: Duration, wanted: impl Fn(&str) -> bool) -> Option<String> {
        let (captured, changed) = &*self.0;
        let find = |captured: &Captured| captured.lines.iter().find(|line| wanted(line)).cloned();
        let captured = captured.lock().expect(NOT_POISONED);
        let undecided = |captured: &mut Captured| !captured.closed && find(captured).is_none();
        let waited = changed.wait_timeout_while(captured, limit, undecided);
        find(&waited.expect(NOT_POISONED).0)
    }
}

const START_LIMIT: Duration = Duration::from_secs(10);
const TERMINATE_LIMIT: Duration = Duration::from_secs(10);
const CLEANUP_LIMIT: Duration = Duration::from_secs(2);
const POLL_PERIOD: Duration = Duration::from_millis(2);

const NOT_POISONED: &str = "nothing panics while it holds this lock";

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> io::Result<Server> {
        Server::start("/bin/sh", ["-c", script])
    }

    #[test]
    fn announcements() {
        let tcp = |address: &str| Some(Address::Tcp(address.parse().unwrap()));
        assert_eq!(announced("samum: listening on http://127.0.0.1:80/"), tcp("127.0.0.1:80"));
        assert_eq!(announced("listening on http://[::1]:8080/"), tcp("[::1]:8080"));
        assert_eq!(announced("listening on https://127.0.0.1:443/"), tcp("127.0.0.1:443"));
        assert_eq!(announced("listening on unix:/a b"), Some(Address::Unix("/a b".into())));
        assert_eq!(announced("listening on http://example/"), None);
        assert_eq!(announced("not yet listening"), None);
    }

    #[test]
    fn a_server_is_started_watched_and_terminated() {
        let mut server = shell(
            "trap 'echo bye >&2; exit 7' TERM; trap 'echo reloaded' USR1; echo hello >&2
             echo 'x: listening on http://127.0.0.1:1234/' >&2
             echo 'x: listening on unix:/tmp/x' >&2
             while :; do sleep 0.05; done",
        )
        .unwrap();
        assert_eq!(server.address(), Address::Tcp(([127, 0, 0, 1], 1234).into()));
        assert!(server.wait_for_stderr("unix:", START_LIMIT).is_some());
        assert_eq!(server.addresses().len(), 2);
        server.signal(Signal::USR1).unwrap();
        assert_eq!(server.wait_for_stdout("re", START_LIMIT).as_deref(), Some("reloaded"));
        assert_eq!(server.terminate().unwrap().code(), Some(7));
        assert_eq!(server.stderr().last().unwrap(), "bye");
        assert!(server.signal(Signal::TERM).is_err());
    }

    #[test]
    fn a_server_that_ends_early_tells_why() {
        let error = shell("echo 'no such directory' >&2; exit 1").unwrap_err();
        assert!(error.to_string().contains("no such directory"), "{error}");
    }

    #[test]
    fn a_dropped_server_is_gone() {
        let server = shell("echo listening on http://127.0.0.1:1/ >&2; exec sleep 600").unwrap();
        let process = format!("/proc/{}", server.pid());
        assert!(std::fs::exists(&process).unwrap());
        drop(server);
        assert!(!std::fs::exists(&process).unwrap());
    }

    #[test]
    fn a_server_that_ignores_sigterm_is_killed() {
        let mut server = shell(
            "trap '' TERM; echo listening on http://127.0.0.1:1/ >&2; while :; do sleep 0.05; done",
        )
        .unwrap();
        server.signal(Signal::TERM).unwrap();
        let error = server.wait(Duration::from_millis(100)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
    }
}
