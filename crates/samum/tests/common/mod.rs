//! Functions that the tests of the binary share.

#![allow(dead_code, reason = "each test file uses what it needs")]

pub(crate) mod browser;
pub(crate) mod nginx;
pub(crate) mod silent;
pub(crate) mod stage;

use core::net::{Ipv4Addr, SocketAddr};
use core::time::Duration;
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::net::TcpStream;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Instant, SystemTime};

use ring::{Choice, Ring};
pub(crate) use testkit::request;
use testkit::{Address, Client, Response, Server, Tree};

/// The binary under test.
pub(crate) const SAMUM: &str = env!("CARGO_BIN_EXE_samum");

/// A time in which whatever should happen at once happens even on a busy machine.
pub(crate) const SOON: Duration = Duration::from_secs(10);

/// Debian's Python, or the reason why a test that needs it is skipped.
pub(crate) fn python() -> Result<&'static str, String> {
    const PYTHON: &str = "/usr/bin/python3";
    Path::new(PYTHON).exists().then_some(PYTHON).ok_or_else(|| format!("{PYTHON} is missing"))
}

/// Runs a test on both drivers, which behave the same.
pub(crate) fn on_both_drivers(test: impl Fn(&'static str)) {
    for driver in ["uring", "epoll"] {
        eprintln!("driver: {driver}");
        test(driver);
    }
}

/// Runs a test on both drivers at the same time. For tests that wait most of the time.
pub(crate) fn on_both_drivers_at_once(test: impl Fn(&'static str) + Sync) {
    thread::scope(|scope| {
        for driver in ["uring", "epoll"] {
            let test = &test;
            scope.spawn(move || {
                eprintln!("driver: {driver}");
                test(driver);
            });
        }
    });
}

/// The command that serves `dir` at an address that the kernel chooses, with one worker unless
/// `options` say otherwise.
pub(crate) fn command(driver: &str, dir: impl AsRef<OsStr>, options: &[&str]) -> Command {
    let mut command = Command::new(SAMUM);
    command.arg("serve").arg(dir).args(["--driver", driver]).args(options);
    for (option, default) in [("--listen", "127.0.0.1:0"), ("--threads", "1")] {
        if !options.contains(&option) {
            command.args([option, default]);
        }
    }
    command
}

/// Serves `dir`.
#[track_caller]
pub(crate) fn serve(driver: &str, dir: impl AsRef<OsStr>, options: &[&str]) -> Server {
    Server::spawn(&mut command(driver, dir, options)).expect("the server starts")
}

/// Serves by this configuration, which becomes the file `samum.toml` of the tree.
#[track_caller]
pub(crate) fn serve_config(tree: &Tree, config: &str) -> Server {
    tree.write("samum.toml", config);
    let mut command = Command::new(SAMUM);
    command.args(["serve", "--config"]).arg(tree.path().join("samum.toml"));
    Server::spawn(&mut command).expect("the server starts")
}

/// A connection to the server.
#[track_caller]
pub(crate) fn connect(server: &Server) -> Client {
    Client::connect(&server.address()).expect("the server accepts")
}

/// The response to a request on a connection of its own; `head` is the request line without its
/// version, and perhaps fields, one a line.
#[track_caller]
pub(crate) fn ask(server: &Server, head: &str) -> Response {
    ask_on(&mut connect(server), head)
}

/// The same on a connection, which stays open.
#[track_caller]
pub(crate) fn ask_on(client: &mut Client, head: &str) -> Response {
    client.send(request(head)).expect("the server takes the request");
    let response = if head.starts_with("HEAD ") { client.head() } else { client.response() };
    response.unwrap_or_else(|error| panic!("no response to {head:?}: {error}"))
}

/// Sends bytes on a connection of their own, and returns everything up to the server's close.
#[track_caller]
pub(crate) fn ask_raw(server: &Server, bytes: impl AsRef<[u8]>) -> Vec<u8> {
    let mut client = connect(server);
    client.send(bytes).expect("the server takes the bytes");
    client.read_to_end().expect("the server closes the connection")
}

/// The number of pages of a file that are cached.
pub(crate) fn cached_pages(path: &Path, bytes: u64) -> std::io::Result<u64> {
    let ring = Ring::new(Choice::Epoll)?;
    let file = ring.adopt_file(File::open(path)?.into());
    ring.cached_pages(&file, 0, bytes)
}

/// Waits until a condition holds. Returns false if it does not hold within `limit`.
pub(crate) fn wait_until(limit: Duration, mut is_so: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + limit;
    loop {
        if is_so() {
            return true;
        }
        if Instant::now() >= deadline {
            return false;
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// Descriptors that a server has open.
pub(crate) fn descriptors(server: &Server) -> usize {
    std::fs::read_dir(format!("/proc/{}/fd", server.pid())).expect("it runs").count()
}

/// Bytes of memory that a server has in use.
pub(crate) fn resident_bytes(server: &Server) -> u64 {
    // The one in /proc/PID/status may be wrong by 32 pages for each CPU, which count for themselves.
    let path = format!("/proc/{}/smaps_rollup", server.pid());
    let rollup = std::fs::read_to_string(path).expect("it runs");
    let line = rollup.lines().find_map(|line| line.strip_prefix("Rss:")).expect("proc(5)");
    let kilobytes: u64 = line.trim().trim_end_matches(" kB").parse().expect("proc(5)");
    kilobytes * 1024
}

/// Bytes in the pipes of a server. They are in no map of its memory.
pub(crate) fn pipe_bytes(server: &Server) -> u64 {
    let descriptors = std::fs::read_dir(format!("/proc/{}/fd", server.pid())).expect("it runs");
    let (mut seen, mut bytes) = (BTreeSet::new(), 0);
    for descriptor in descriptors {
        let path = descriptor.expect("a directory").path();
        // One that is closed meanwhile is no pipe any more. Both ends have the same name.
        let Ok(name) = std::fs::read_link(&path) else { continue };
        if name.to_string_lossy().starts_with("pipe:")
            && let Ok(pipe) = File::open(path)
            && seen.insert(name)
        {
            bytes += rustix::io::ioctl_fionread(pipe).expect("a pipe (pipe(7))");
        }
    }
    bytes
}

/// Runs a command of the system; `Err` says why it failed.
pub(crate) fn run(program: &str, args: &[&OsStr]) -> Result<(), String> {
    let output = Command::new(program).args(args).output();
    let output = output.map_err(|error| format!("{program}: {error}"))?;
    if output.status.success() { Ok(()) } else { Err(format!("{program} {args:?}: {output:?}")) }
}

/// The address of a server that listens on TCP.
pub(crate) fn tcp_address(server: &Server) -> SocketAddr {
    let Address::Tcp(address) = server.address() else { unreachable!("it listens on TCP") };
    address
}

/// A connection from another address of this machine. A read waits at most 30 s.
pub(crate) fn connect_from(server: &Server, from: Ipv4Addr) -> TcpStream {
    use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&socket, &SocketAddr::new(from.into(), 0)).unwrap();
    connect(&socket, &tcp_address(server)).unwrap();
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    stream
}

/// Sets the modification time of a file.
#[track_caller]
pub(crate) fn set_modified(path: &Path, time: SystemTime) {
    let file = File::options().write(true).open(path).expect("a file");
    file.set_modified(time).expect("its own file");
}

/// Makes a FIFO.
#[track_caller]
pub(crate) fn make_fifo(path: &Path) {
    run("mkfifo", &[path.as_os_str()]).expect("coreutils");
}

/// A path's text as an argument.
pub(crate) fn text(path: &Path) -> &str {
    path.to_str().expect("temporary directories have plain names")
}

/// The concatenation of a path as one argument, such as `unix:` and a path.
pub(crate) fn joined(prefix: &str, path: &Path) -> String {
    OsString::from(prefix).into_string().expect("plain") + text(path)
}

/// Makes a command run without privileges if this process is root, because root may read every file.
pub(crate) fn as_nobody(command: &mut Command) -> &mut Command {
    let is_root = std::fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0);
    if is_root { command.uid(NOBODY).gid(NOBODY) } else { command }
}

/// The user `nobody` of Debian and most other systems.
const NOBODY: u32 = 65_534;
