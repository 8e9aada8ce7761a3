//! The control socket: serves commands of the operator, and sends them (`samum reload`, `samum stack`).
//!
//! A command is a line, and so is its reply: `ok` and a text, or `error` and a text. The text for `reload` has the hash
//! of the loaded configuration, and a line for each warning. The text for `stack` and `stack connections` has the state
//! of the interfaces' stacks. In a text a line feed is `\n`, and a backslash is `\\`.

use core::time::Duration;
use std::ffi::OsString;
use std::io::{self, Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError, SyncSender, TrySendError};
use std::time::Instant;

use rustix::net::SocketAddrUnix;
use rustix::net::sockopt::socket_peercred;
use rustix::process::{Uid, geteuid};

use crate::control::Workers;
use crate::listen::{self, Probe, SocketFile};
use crate::reload::Reply;
use config::errno::words;
use config::{Address, UnixSocket};

/// The permissions of the socket: only its owner may use it.
const MODE: u32 = 0o600;
/// The directory of the socket, unless systemd has given the server another one.
const DIRECTORY: &str = "/run/samum";
const NAME: &str = "control.sock";
/// Clients that may wait, because they are served one after the other.
const BACKLOG: i32 = 16;
/// The most bytes of a command.
const COMMAND_MAX: usize = 64;
/// The most bytes of a reply. A longer text is cut.
const ANSWER_MAX: usize = 64 * 1024;
/// The time for a client to send its command, or to take its reply.
const CLIENT_MAX: Duration = Duration::from_secs(5);
/// The time for a reload. The reload goes on after that, but the next client is served.
const RELOAD_MAX: Duration = Duration::from_secs(60);

/// The path of the control socket, unless the configuration has another.
#[must_use]
pub fn default_path() -> PathBuf {
    let given = std::env::var_os("RUNTIME_DIRECTORY").and_then(|given| {
        // If there are several, systemd separates them by colons.
        let given = given.into_string().ok()?;
        given.split(':').next().filter(|first| !first.is_empty()).map(OsString::from)
    });
    PathBuf::from(given.unwrap_or_else(|| DIRECTORY.into())).join(NAME)
}

/// Checks if a server could open the control socket, or has it, because a server answers there.
pub(crate) fn probe(path: &Path) -> Result<(), String> {
    let directory = Path::new(DIRECTORY);
    if path.parent() == Some(directory) && !directory.exists() {
        // The server makes this directory.
        return Ok(());
    }
    if SocketAddrUnix::new(path).is_ok_and(|address| listen::answers(&address)) {
        return Ok(());
    }
    let socket = UnixSocket { path: path.to_owned(), ..UnixSocket::default() };
    match listen::probe(&Address::Unix(socket))? {
        Probe::Free(_) => Ok(()),
        Probe::InUse { why, .. } => Err(why),
    }
}

/// Opens the control socket.
pub(crate) fn open(path: &Path) -> Result<(UnixListener, SocketFile), String> {
    if path.parent() == Some(Path::new(DIRECTORY)) {
        // If the call fails, the socket cannot be made, and that error is reported.
        let _ = std::fs::create_dir(DIRECTORY);
    }
    let socket = UnixSocket { path: path.to_owned(), mode: Some(MODE), user: None, group: None };
    let (socket, file) = listen::open_one(&socket, BACKLOG)?;
    let listener = UnixListener::from(socket);
    listener
        .set_nonblocking(false)
        .map_err(|error| format!("cannot use the control socket: {error}"))?;
    Ok((listener, file))
}

/// Serves one client after the other as long as the process runs.
pub(crate) fn serve(
    listener: &UnixListener,
    reloads: &SyncSender<Option<Reply>>,
    workers: &Workers,
) {
    for client in listener.incoming() {
        match client {
            Ok(client) => {
                // The call fails if the client has gone.
                let _ = serve_one(&client, reloads, workers);
            }
            // Without free descriptors a client waits until others are closed.
            Err(_) => std::thread::sleep(Duration::from_millis(100)),
        }
    }
}

fn serve_one(
    client: &UnixStream,
    reloads: &SyncSender<Option<Reply>>,
    workers: &Workers,
) -> io::Result<()> {
    let peer = socket_peercred(client)?;
    if !may_command(peer.uid, geteuid()) {
        return answer(client, Err("permission denied"));
    }
    match read_line(client, COMMAND_MAX, CLIENT_MAX)?.as_deref() {
        Some(b"reload") => {
            let result = reload(reloads);
            answer(client, result.as_deref().map_err(|error| &error[..]))
        }
        Some(b"stack") => answer(client, Ok(&reports(workers, false))),
        Some(b"stack connections") => answer(client, Ok(&reports(workers, true))),
        Some(_) => answer(client, Err("unknown command; there are `reload` and `stack`")),
        None => Ok(()),
    }
}

/// Returns true if a user may command a server: the server's own user, and root.
fn may_command(client: Uid, server: Uid) -> bool {
    client == server || client.is_root()
}

/// The states of all stacks.
fn reports(workers: &Workers, has_connections: bool) -> String {
    let all = workers.reports(has_connections);
    if all.is_empty() { "no interface is served (--interface)\n".to_owned() } else { all.concat() }
}

/// Has the configuration loaded again.
fn reload(reloads: &SyncSender<Option<Reply>>) -> Result<String, String> {
    let (reply, result) = mpsc::channel();
    match reloads.try_send(Some(reply)) {
        Ok(()) => {}
        Err(TrySendError::Full(_)) => return Err("other reloads wait already".to_owned()),
        Err(TrySendError::Disconnected(_)) => {
            return Err(
                "the server was started without a configuration file: there is nothing to reload"
                    .to_owned(),
            );
        }
    }
    result.recv_timeout(RELOAD_MAX).unwrap_or_else(|error| match error {
        RecvTimeoutError::Timeout => Err(format!(
            "the reload has not ended after {} s: a file or a directory does not answer; it goes on",
            RELOAD_MAX.as_secs()
        )),
        RecvTimeoutError::Disconnected => Err("the server is shutting down".to_owned()),
    })
}

fn answer(mut client: &UnixStream, result: Result<&str, &str>) -> io::Result<()> {
    let (word, text) = match result {
        Ok(text) => ("ok", text),
        Err(text) => ("error", text),
    };
    let text = text.replace('\\', "\\\\").replace('\n', "\\n");
    let mut line = format!("{word} {text}").into_bytes();
    line.truncate(ANSWER_MAX - 1);
    line.push(b'\n');
    client.set_write_timeout(Some(CLIENT_MAX))?;
    client.write_all(&line)
}

/// Reads a line of at most `most` bytes, and returns it without its end. `None` if the peer has closed the connection
/// before the line's end.
fn read_line(
    mut stream: &UnixStream,
    most: usize,
    patience: Duration,
) -> io::Result<Option<Vec<u8>>> {
    let deadline = Instant::now() + patience;
    let mut line = Vec::new();
    let mut room = [0; 1024];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        let count = match stream.read(&mut room) {
            Ok(0) => return Ok(None),
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        if let Some(end) = room[..count].iter().position(|byte| *byte == b'\n') {
            line.extend_from_slice(&room[..end]);
            return Ok(Some(line));
        }
        line.extend_from_slice(&room[..count]);
        if line.len() > most {
            // No command has as many bytes.
            return Ok(Some(line));
        }
    }
}

/// Has the server at a control socket load its configuration again (`samum reload`). Returns the hash of the loaded
/// configuration, and a line for each warning.
///
/// # Errors
///
/// A message for the operator.
pub fn ask_for_reload(path: &Path) -> Result<String, String> {
    ask(path, "reload")
}

/// Asks the server at a control socket for the state of its own TCP/IP stacks (`samum stack`), with their
/// connections or without.
///
/// # Errors
///
/// A message for the operator.
pub fn ask_for_stacks(path: &Path, has_connections: bool) -> Result<String, String> {
    ask(path, if has_connections { "stack connections" } else { "stack" })
}

fn ask(path: &Path, command: &str) -> Result<String, String> {
    let shown = path.display();
    let stream = UnixStream::connect(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => format!(
            "no server listens at the control socket {shown} (`--control PATH` names another; a server \
             without a configuration file has none)"
        ),
        io::ErrorKind::PermissionDenied => format!(
            "cannot connect to the control socket {shown}: permission denied (only the user of the server \
             and root may)"
        ),
        _ => format!("cannot connect to the control socket {shown}: {}", words(&error)),
    })?;
    let lost = |error: io::Error| format!("no answer at the control socket {shown}: {error}");
    let ended = || lost(io::ErrorKind::UnexpectedEof.into());
    (&stream).write_all(format!("{command}\n").as_bytes()).map_err(lost)?;
    // An earlier client may take as long.
    let line = read_line(&stream, ANSWER_MAX, 2 * RELOAD_MAX).map_err(lost)?.ok_or_else(ended)?;
    let line = String::from_utf8_lossy(&line);
    match line.split_once(' ') {
        Some(("ok", text)) => Ok(unescape(text)),
        Some(("error", text)) => Err(unescape(text)),
        _ => Err(format!("no samum that understands `{command}` listens at {shown}")),
    }
}

fn unescape(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text.chars();
    while let Some(next) = rest.next() {
        match next {
            '\\' => plain.push(if rest.next() == Some('n') { '\n' } else { '\\' }),
            other => plain.push(other),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    /// Sends bytes to the control socket of a server whose next reload has this result.
    fn ask(bytes: &[u8], result: Result<&str, &str>) -> String {
        let (client, server) = UnixStream::pair().unwrap();
        let (reloads, requests) = mpsc::sync_channel::<Option<Reply>>(1);
        let result = result.map(str::to_owned).map_err(str::to_owned);
        let reloader = thread::spawn(move || {
            if let Ok(Some(reply)) = requests.recv() {
                reply.send(result).unwrap();
            }
        });
        (&client).write_all(bytes).unwrap();
        client.shutdown(std::net::Shutdown::Write).unwrap();
        // An error is one of the client.
        let _ = serve_one(&server, &reloads, &Workers::new(0).0);
        drop((server, reloads));
        reloader.join().unwrap();
        let mut answer = Vec::new();
        let _ = (&client).read_to_end(&mut answer);
        String::from_utf8(answer).unwrap()
    }

    #[test]
    fn a_command_has_one_line_and_so_has_its_answer() {
        assert_eq!(ask(b"reload\n", Ok("abc")), "ok abc\n");
        assert_eq!(ask(b"reload\nreload\n", Ok("abc")), "ok abc\n");
        let text = "samum.toml: C:\\n\n  |\n";
        let answer = ask(b"reload\n", Err(text));
        assert_eq!(answer, "error samum.toml: C:\\\\n\\n  |\\n\n");
        assert_eq!(unescape(answer.strip_prefix("error ").unwrap().trim_end()), text);
    }

    #[test]
    fn without_interfaces_there_is_no_stack() {
        let answer = ask(b"stack connections\n", Ok(""));
        assert_eq!(answer, "ok no interface is served (--interface)\\n\n");
    }

    #[test]
    fn garbage_is_refused() {
        let many = [b'x'; 5000];
        for bytes in [&b"\n"[..], b"RELOAD\n", b"reload \n", b"\xff\xfe\0\n", b"stop\n", &many] {
            let answer = ask(bytes, Ok("abc"));
            assert!(answer.starts_with("error unknown command"), "{answer:?}");
        }
        // Not a whole line.
        assert_eq!(ask(b"reload", Ok("abc")), "");
        assert_eq!(ask(b"", Ok("abc")), "");
    }

    #[test]
    fn a_client_that_sends_nothing_is_not_waited_for() {
        let (_client, server) = UnixStream::pair().unwrap();
        let error = read_line(&server, 10, Duration::from_millis(20)).unwrap_err();
        assert!([io::ErrorKind::WouldBlock, io::ErrorKind::TimedOut].contains(&error.kind()));
    }

    #[test]
    fn only_the_user_of_the_server_and_root_may_command_it() {
        let [root, one, other] = [0, 1000, 1001].map(Uid::from_raw);
        assert!(may_command(one, one) && may_command(root, one) && may_command(root, root));
        assert!(!may_command(other, one) && !may_command(one, root));
    }

    #[test]
    fn without_a_server_the_error_says_so() {
        let error = ask_for_reload(Path::new("/nonexistent/control.sock")).unwrap_err();
        assert!(error.contains("no server listens") && error.contains("--control"), "{error}");
    }
}
