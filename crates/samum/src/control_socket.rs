//! The control socket: serves commands of the operator, and sends them (`samum reload`, `samum upgrade`, `samum health`,
//! `samum stack`, `samum explain`).
//!
//! A command is a line, and so is its reply: `ok` and a text, or `error` and a text. The text for `reload` has the hash
//! of the loaded configuration, and a line for each warning. The text for `upgrade` is a sentence. The text for
//! `health` has the number of workers that go on with their turns. The text for `stack` and `stack connections` has the
//! state of the interfaces' stacks. In a text a line feed is `\n`, and a backslash is `\\`.

use core::time::Duration;
use std::ffi::OsString;
use std::io::{self, PipeReader, Read as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, SyncSender, TrySendError};
use std::thread;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::sockopt::{Timeout, set_socket_timeout, socket_peercred};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};
use rustix::process::{Uid, geteuid};

use crate::attached::AUTHORIZES;
use crate::control::Workers;
use crate::explain::{QUESTION_MAX, Question};
use crate::listen::{self, Probe, SocketFile};
use crate::reload::{REPLACED, Reply};
use crate::upgrade::{Inheritance, Upgrader};
use config::errno::words;
use config::{Address, UnixSocket};
use handler::router::explain::explain;
use rights::User;

/// The permissions of the socket: only its owner may use it.
const MODE: u32 = 0o600;
/// The directory of the socket, unless systemd has given the server another one.
const DIRECTORY: &str = "/run/samum";
const NAME: &str = "control.sock";
/// Clients that may wait to be accepted.
const BACKLOG: i32 = 16;
/// Clients that are served at the same time: a reload may wait for a disk, and meanwhile the health of the server can
/// be asked. Further clients get an error.
const CLIENTS_MAX: usize = 16;
/// The most bytes of a command: a question of `samum explain` is the longest. Escapes may double its bytes.
const COMMAND_MAX: usize = 64 + 2 * QUESTION_MAX;
/// The most bytes of a reply. A longer text is cut.
const ANSWER_MAX: usize = 64 * 1024;
/// The time for a client to send its command, or to receive its reply.
const CLIENT_MAX: Duration = Duration::from_secs(5);
/// The time for a reload. The reload goes on after that, but its client gets an error.
const RELOAD_MAX: Duration = Duration::from_secs(60);
/// The time for the reply to `health`. A server that was stopped (SIGSTOP) or hangs as a whole never replies.
const HEALTH_MAX: Duration = Duration::from_secs(5);
/// The time for the reply to `upgrade`: those of the starter, of the new process and of a reload before it.
const UPGRADE_MAX: Duration = Duration::from_secs(60);
/// The time for the reply to `explain`, which may wait for a disk at each step.
const EXPLANATION_MAX: Duration = Duration::from_secs(45);
/// The time for the reply to `reload`: that of the reload, and of its way.
const RELOAD_REPLY_MAX: Duration = Duration::from_secs(RELOAD_MAX.as_secs() + CLIENT_MAX.as_secs());
/// The time for the reply to `stack`. Workers that do not report in 2 s are left out.
const STACK_MAX: Duration = Duration::from_secs(5);

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
    check_directory(path, None)?;
    if SocketAddrUnix::new(path).is_ok_and(|address| listen::answers(&address)) {
        return Ok(());
    }
    let socket = UnixSocket { path: path.to_owned(), ..UnixSocket::default() };
    match listen::probe(&Address::Unix(socket))? {
        Probe::Free(_) => Ok(()),
        Probe::InUse { why, .. } => Err(why),
    }
}

/// Makes the default directory of the socket if it is missing. It belongs to the user that the server becomes.
pub(crate) fn make_directory(path: &Path, user: Option<&User>) {
    if path.parent() != Some(Path::new(DIRECTORY)) {
        return;
    }
    // If a call fails, the socket cannot be made, and that error is reported.
    let is_new = std::fs::create_dir(DIRECTORY).is_ok();
    if let Some(user) = user.filter(|_| is_new) {
        let _ = std::os::unix::fs::lchown(DIRECTORY, Some(user.uid), Some(user.gid));
    }
}

/// Opens the control socket, or gets it from the process before.
pub(crate) fn open(
    path: &Path,
    inheritance: Option<&mut Inheritance>,
) -> Result<(UnixListener, SocketFile), String> {
    let socket = UnixSocket { path: path.to_owned(), mode: Some(MODE), user: None, group: None };
    let handed_over = inheritance.and_then(|all| all.take_control(path, listen::CONTROL));
    let (socket, file) = match handed_over {
        Some((file, handed_over)) => listen::adopt_one(&socket, handed_over, file)?,
        None => {
            check_directory(path, Some(geteuid()))?;
            listen::open_one(&socket, BACKLOG)?
        }
    };
    Ok((UnixListener::from(socket), file))
}

/// Checks that only the user of the server and root can put another socket in the place of the control socket. If the
/// user is not known yet, the directory may have any owner.
fn check_directory(path: &Path, server: Option<Uid>) -> Result<(), String> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let directory = directory.unwrap_or_else(|| Path::new("."));
    // The error of one that cannot be looked at is that of the socket.
    let Ok(found) = std::fs::metadata(directory) else { return Ok(()) };
    let others = if found.mode() & 0o002 != 0 {
        "every user can write to its directory".to_owned()
    } else if server.is_some_and(|server| found.uid() != server.as_raw() && found.uid() != 0) {
        format!("its directory belongs to another user ({})", found.uid())
    } else {
        return Ok(());
    };
    Err(format!(
        "cannot use the control socket {}: {others}, who could put another socket there (choose a directory of the \
         server's user, such as {DIRECTORY})",
        path.display()
    ))
}

/// The parts of the server that commands use.
pub(crate) struct Commands {
    pub(crate) reloads: SyncSender<Option<Reply>>,
    pub(crate) workers: Arc<Workers>,
    /// `None` in a server whose process cannot be replaced for lack of parts, as in tests.
    pub(crate) upgrader: Option<Arc<Upgrader>>,
    /// The path of the socket.
    pub(crate) path: PathBuf,
}

/// Serves clients, each on a thread of its own, until the writer of `end` is closed. The socket is only closed then: another
/// process may serve it.
pub(crate) fn serve(listener: &UnixListener, end: &PipeReader, commands: &Commands) {
    // Two processes may accept, and one of them gets the client.
    let _ = listener.set_nonblocking(true);
    // Each client that is served has a reference.
    let served = Arc::new(());
    thread::scope(|scope| {
        loop {
            let mut ready = [PollFd::new(listener, PollFlags::IN), PollFd::new(end, PollFlags::IN)];
            // A signal ends the wait early.
            let _ = poll(&mut ready, None);
            if !ready[1].revents().is_empty() {
                return;
            }
            let client = match listener.accept() {
                Ok((client, _)) => client,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                Err(_) => {
                    // Without free descriptors a client waits until others are closed.
                    thread::sleep(Duration::from_millis(100));
                    continue;
                }
            };
            let _ = client.set_nonblocking(false);
            if Arc::strong_count(&served) > CLIENTS_MAX {
                // The call fails if the client has gone.
                let _ = answer(&client, Err("too many commands at once; try again later"));
                continue;
            }
            let place = Arc::clone(&served);
            let serve = move || {
                let _ = serve_one(&client, commands);
                drop(place);
            };
            // Without a thread the connection is closed, and the client says that there was no answer.
            let _ = thread::Builder::new().name("command".to_owned()).spawn_scoped(scope, serve);
        }
    });
}

fn serve_one(client: &UnixStream, commands: &Commands) -> io::Result<()> {
    let Commands { reloads, workers, upgrader, path } = commands;
    let peer = socket_peercred(client)?;
    if !may_command(peer.uid, geteuid()) {
        let why = "permission denied: only the user of the server and root may command it";
        return answer(client, Err(why));
    }
    match read_line(client, COMMAND_MAX, CLIENT_MAX)?.as_deref() {
        Some(b"reload") => {
            let result = match reload(reloads) {
                // The process that has replaced this one accepts at the same socket.
                Err(why) if why == REPLACED => ask(path, "reload", RELOAD_MAX),
                result => result,
            };
            answer(client, result.as_deref().map_err(|error| &error[..]))
        }
        Some(b"upgrade") => {
            let Some(upgrader) = upgrader else {
                return answer(client, Err("this server cannot be replaced: restart it"));
            };
            let result = upgrader.run();
            // This process may end as soon as it accepts no more.
            let answered = answer(client, result.as_deref().map_err(|error| &error[..]));
            upgrader.leave();
            answered
        }
        Some(b"health") => match workers.check_health() {
            Ok(1) => answer(client, Ok("1 worker turns\n")),
            Ok(count) => answer(client, Ok(&format!("{count} workers turn\n"))),
            Err(why) => answer(client, Err(&why)),
        },
        Some([b'e', b'x', b'p', b'l', b'a', b'i', b'n', b' ', question @ ..]) => {
            let result = explain_one(workers, question);
            answer(client, result.as_deref().map_err(|error| &error[..]))
        }
        Some(b"stack") => answer(client, Ok(&reports(workers, false))),
        Some(b"stack connections") => answer(client, Ok(&reports(workers, true))),
        Some(_) => answer(
            client,
            Err("unknown command; there are `reload`, `upgrade`, `health`, `stack` and `explain`"),
        ),
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

/// Explains what the workers would do.
fn explain_one(workers: &Workers, question: &[u8]) -> Result<String, String> {
    let question = str::from_utf8(question).map_err(|_| "it is not UTF-8")?;
    let question = Question::from_text(&unescape(question))?;
    let snapshot = workers.served().ok_or("the server has not started yet")?;
    explain(snapshot, &question.parts()?, AUTHORIZES)
}

/// Orders a reload of the configuration.
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
    let mut line = format!("{word} {}", escape(text)).into_bytes();
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

/// Tells the server at a control socket to load its configuration again (`samum reload`). Returns the hash of the
/// loaded configuration, and a line for each warning. The reply comes within 65 s, or there is an error.
///
/// # Errors
///
/// A message for the operator.
pub fn ask_for_reload(path: &Path) -> Result<String, String> {
    ask_long(path, "reload", RELOAD_REPLY_MAX)
}

/// Tells the server at a control socket to be replaced by a new process, which executes its program file again (`samum
/// upgrade`). Returns a sentence.
///
/// # Errors
///
/// A message for the operator. The server goes on as before.
pub fn ask_for_upgrade(path: &Path) -> Result<String, String> {
    ask_long(path, "upgrade", UPGRADE_MAX)
}

/// Asks the server at a control socket for its health (`samum health`): whether all workers turn, and it does not shut
/// down. Returns a line that says so. The answer comes within 5 s, or there is an error.
///
/// # Errors
///
/// A message for the operator, also if the server is not healthy.
pub fn ask_for_health(path: &Path) -> Result<String, String> {
    ask(path, "health", HEALTH_MAX)
}

/// Asks the server at a control socket what it would do with a request (`samum explain`).
///
/// # Errors
///
/// A message for the operator.
pub fn ask_for_explanation(path: &Path, question: &Question) -> Result<String, String> {
    let command = format!("explain {}", escape(&question.to_text()));
    ask_long(path, &command, EXPLANATION_MAX)
}

/// Asks the server at a control socket for the state of its own TCP/IP stacks (`samum stack`), with their
/// connections or without.
///
/// # Errors
///
/// A message for the operator.
pub fn ask_for_stacks(path: &Path, has_connections: bool) -> Result<String, String> {
    ask(path, if has_connections { "stack connections" } else { "stack" }, STACK_MAX)
}

/// The reason why a command has not succeeded, as a message for the operator.
#[derive(Debug)]
enum Failure {
    /// The server has not answered in time.
    Silent(String),
    /// The server refuses the command, or there is no server.
    Other(String),
}

impl From<Failure> for String {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Silent(text) | Failure::Other(text) => text,
        }
    }
}

/// Sends a command whose execution may take long. A server that hangs as a whole answers nothing, which the question
/// for its health shows soon. A server that answers gets the command, also if it is not healthy.
fn ask_long(path: &Path, command: &str, patience: Duration) -> Result<String, String> {
    match converse(path, "health", HEALTH_MAX) {
        Err(Failure::Silent(text)) => Err(text),
        Ok(_) | Err(Failure::Other(_)) => ask(path, command, patience),
    }
}

fn ask(path: &Path, command: &str, patience: Duration) -> Result<String, String> {
    Ok(converse(path, command, patience)?)
}

fn converse(path: &Path, command: &str, patience: Duration) -> Result<String, Failure> {
    let shown = path.display();
    let silent = || {
        Failure::Silent(format!(
            "the server at {shown} has not answered within {} s: its process is stopped, hangs, or waits for a disk (look \
             at its messages and at the state of the process; if it does not go on, restart it)",
            patience.as_secs()
        ))
    };
    let stream = connect(path, patience).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => Failure::Other(format!(
            "no server listens at the control socket {shown} (`--control PATH` names another; a server \
             without a configuration file has none)"
        )),
        io::ErrorKind::PermissionDenied => Failure::Other(format!(
            "cannot connect to the control socket {shown}: permission denied (only the user of the server \
             and root may)"
        )),
        io::ErrorKind::WouldBlock => silent(),
        _ => Failure::Other(format!(
            "cannot connect to the control socket {shown}: {}",
            words(&error)
        )),
    })?;
    let lost = |error: io::Error| match error.kind() {
        // A time that is over has either kind (read(2), `read_line`).
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => silent(),
        _ => Failure::Other(format!("no answer at the control socket {shown}: {error}")),
    };
    let ended = || lost(io::ErrorKind::UnexpectedEof.into());
    let line = exchange(&stream, command, patience).map_err(lost)?.ok_or_else(ended)?;
    let line = String::from_utf8_lossy(&line);
    match line.split_once(' ') {
        Some(("ok", text)) => Ok(unescape(text)),
        Some(("error", text)) => Err(Failure::Other(unescape(text))),
        _ => {
            let word = command.split(' ').next().unwrap_or_default();
            let text = format!("no samum that understands `{word}` listens at {shown}");
            Err(Failure::Other(text))
        }
    }
}

/// Sends a command, and reads the line of its answer.
fn exchange(
    mut stream: &UnixStream,
    command: &str,
    patience: Duration,
) -> io::Result<Option<Vec<u8>>> {
    match stream.write_all(format!("{command}\n").as_bytes()) {
        // A server that refuses a client answers and closes at once. Its answer can still be read.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
        sent => sent?,
    }
    read_line(stream, ANSWER_MAX, patience)
}

/// Connects to a control socket, and waits at most `patience` for a place in its queue.
fn connect(path: &Path, patience: Duration) -> io::Result<UnixStream> {
    let address = SocketAddrUnix::new(path)?;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    // Linux uses the time for sends in connect(2), too (`unix_stream_connect` in net/unix/af_unix.c).
    set_socket_timeout(&socket, Timeout::Send, Some(patience))?;
    rustix::net::connect(&socket, &address)?;
    Ok(socket.into())
}

fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('\n', "\\n")
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

    fn commands(reloads: SyncSender<Option<Reply>>, path: &Path) -> Commands {
        let workers = Arc::new(Workers::new(0).0);
        Commands { reloads, workers, upgrader: None, path: path.to_owned() }
    }

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
        let commands = commands(reloads, Path::new("/nonexistent"));
        let _ = serve_one(&server, &commands);
        drop((server, commands));
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
    fn an_answer_that_comes_before_the_command_is_read() {
        let (client, server) = UnixStream::pair().unwrap();
        answer(&server, Err("permission denied")).unwrap();
        drop(server);
        let line = exchange(&client, "upgrade", HEALTH_MAX).unwrap();
        assert_eq!(line.as_deref(), Some(&b"error permission denied"[..]));
    }

    #[test]
    fn without_interfaces_there_is_no_stack() {
        let answer = ask(b"stack connections\n", Ok(""));
        assert_eq!(answer, "ok no interface is served (--interface)\\n\n");
    }

    #[test]
    fn a_server_that_takes_no_clients_is_not_healthy() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(NAME);
        let (_listener, _file) = open(&path, None).unwrap();
        let patience = Duration::from_millis(50);
        // First the clients wait for an answer; later there is no place in the queue.
        for count in 0..BACKLOG + 4 {
            let started = Instant::now();
            // A client that has gone keeps its place.
            let error = super::ask(&path, "health", patience).unwrap_err();
            assert!(error.contains("has not answered within"), "{count}: {error}");
            assert!(started.elapsed() < HEALTH_MAX, "{:?}", started.elapsed());
        }
    }

    #[test]
    fn a_command_that_waits_does_not_keep_others_from_being_served() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(NAME);
        let (listener, _file) = open(&path, None).unwrap();
        // No thread handles the requests for reloads.
        let (reloads, _requests) = mpsc::sync_channel(CLIENTS_MAX);
        let reload = || {
            let client = UnixStream::connect(&path).unwrap();
            (&client).write_all(b"reload\n").unwrap();
            client
        };
        let commands = commands(reloads, &path);
        let (end, closes) = io::pipe().unwrap();
        // It serves until the process of the test ends.
        thread::spawn(move || serve(&listener, &end, &commands));
        let _waiting: Vec<_> = (1..CLIENTS_MAX).map(|_| reload()).collect();
        assert_eq!(ask_for_health(&path).unwrap(), "0 workers turn\n");
        drop(closes);
    }

    #[test]
    fn a_process_that_was_replaced_accepts_no_more_commands() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(NAME);
        let (listener, _file) = open(&path, None).unwrap();
        let (reloads, _requests) = mpsc::sync_channel(1);
        let commands = commands(reloads, &path);
        let (end, closes) = io::pipe().unwrap();
        let serving = thread::spawn(move || {
            serve(&listener, &end, &commands);
            // It is not closed: another process may have it.
            listener
        });
        assert!(ask_for_health(&path).is_ok());
        drop(closes);
        let _listener = serving.join().unwrap();
        let error = super::ask(&path, "health", Duration::from_millis(50)).unwrap_err();
        assert!(error.contains("has not answered"), "{error}");
    }

    #[test]
    fn others_must_not_be_able_to_replace_the_control_socket() {
        use std::os::unix::fs::PermissionsExt as _;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(NAME);
        for (mode, is_right) in [(0o755, true), (0o775, true), (0o777, false), (0o1777, false)] {
            let mode = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(directory.path(), mode).unwrap();
            let checked = check_directory(&path, Some(geteuid()));
            assert_eq!(checked.is_ok(), is_right, "{checked:?}");
            assert_eq!(probe(&path).is_ok(), is_right, "a check says so, too");
        }
        let other = Uid::from_raw(geteuid().as_raw() + 1);
        std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        // Root may replace everything anyway.
        assert_eq!(check_directory(&path, Some(other)).is_ok(), geteuid().is_root());
        assert!(check_directory(Path::new("/nonexistent/control.sock"), Some(other)).is_ok());
    }

    #[test]
    fn garbage_is_refused() {
        let many = [b'x'; COMMAND_MAX + 5000];
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
