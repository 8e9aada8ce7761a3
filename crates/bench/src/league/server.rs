//! A peer as a process: started on its CPU, checked, asked for its CPU time and memory, ended.

use core::net::{Ipv4Addr, SocketAddr};
use core::time::Duration;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, ErrorKind, Read as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Instant;

use rustix::fs::{Advice, fadvise};
use rustix::process::{
    Pid, Signal, WaitOptions, getpid, kill_process_group, set_child_subreaper, waitpgid,
};
use rustix::thread::{sched_getaffinity, sched_setaffinity};

use super::network::{self, Network};
use super::peers::{FILES_KEY, FLOOR_KEY, FLOOR_SOURCE, Launch, Peer, find};
use super::throttle::Throttle;
use crate::interrupt;
use crate::load::{fetch, pin};
use crate::machine::{field, read};
use crate::processes::{CpuTimes, family, user_time};
use crate::sys::process::die_with_us;

/// A running peer. Dropping it ends it and all its processes.
#[derive(Debug)]
pub struct Server {
    name: String,
    address: SocketAddr,
    child: Child,
    times: CpuTimes,
    /// Its own directory: configuration, logs, temporary files.
    dir: tempfile::TempDir,
}

/// The reason why a server takes no part: a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Absent {
    /// The server runs, and sent nothing until a time limit: another try would take as long.
    Silent(String),
    /// The server is missing, has ended, or sent something else. On another machine it may work.
    Failed(String),
}

impl Absent {
    /// The sentence.
    #[must_use]
    pub fn why(self) -> String {
        let (Self::Silent(why) | Self::Failed(why)) = self;
        why
    }
}

impl From<String> for Absent {
    fn from(why: String) -> Self {
        Self::Failed(why)
    }
}

/// The place and the parameters of a server.
#[derive(Clone, Copy, Debug)]
pub struct Host<'a> {
    /// Directory that it serves.
    pub root: &'a Path,
    /// The files in it, for a server that needs their names.
    pub files: &'a [String],
    /// Its CPU.
    pub cpu: Option<usize>,
    /// The control group that limits its reads from the disk, or its memory.
    pub throttle: Option<&'a Throttle>,
    /// The upstream, if the server is a proxy.
    pub origin: Option<SocketAddr>,
    /// The network whose servers it belongs to, if it is not reached over loopback. Its clients are where
    /// the thread is that starts it.
    pub network: Option<&'a Network>,
}

impl Server {
    /// Starts a peer and waits until it accepts connections.
    ///
    /// # Errors
    /// If it does not: it is not installed, or its own error message.
    pub fn start(peer: &Peer, host: Host<'_>) -> Result<Self, Absent> {
        Self::start_within(peer, host, START_LIMIT)
    }

    /// As [`start`](Self::start), with a time limit for the first connection.
    fn start_within(peer: &Peer, host: Host<'_>, limit: Duration) -> Result<Self, Absent> {
        let program = peer.program()?;
        let failed = |error: std::io::Error| format!("{} did not start: {error}", peer.name);
        let dir = tempfile::Builder::new().prefix("samum-bench-").tempdir().map_err(failed)?;
        // A server that gives up its rights must get through.
        fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755))
            .map_err(failed)?;
        let end = if peer.has_own_stack() { network::OWN } else { network::KERNEL };
        let address = match host.network {
            Some(network) => network.servers().enter().and_then(|_inside| free_address(end.ip)),
            None if peer.has_own_stack() => {
                return Err("needs an interface of its own, as wire has".to_owned().into());
            }
            None => free_address(Ipv4Addr::LOCALHOST),
        };
        let address = address.map_err(failed)?;
        let (interface, origin) = (end.interface, host.origin);
        let place = Launch { root: host.root, address, interface, dir: dir.path(), origin };
        fs::write(dir.path().join("conf"), peer.fill(&peer.configuration, place))
            .map_err(failed)?;
        let program = if peer.command[0] == FLOOR_KEY {
            compile_floor(&program, dir.path())?
        } else {
            program
        };
        let mut words = Vec::new();
        if let Some(network) = host.network {
            words.extend(network.servers().prefix()?.map(OsString::from));
        }
        if let Some(throttle) = host.throttle {
            words.extend(joining(throttle));
        }
        words.push(program.into());
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]);
        for word in &peer.command[1..] {
            if word == FILES_KEY {
                command.args(host.files);
            } else {
                command.arg(peer.fill(word, place));
            }
        }
        for (name, value) in &peer.environment {
            command.env(name, peer.fill(value, place));
        }
        let log = dir.path().join("log");
        let file = File::create(&log).map_err(failed)?;
        let copy = file.try_clone().map_err(failed)?;
        command.stdin(Stdio::null()).stdout(file).stderr(copy).process_group(0);
        let child = spawn_on(command, host.cpu).map_err(failed)?;
        let name = peer.name.clone();
        let mut server = Self { name, address, child, times: CpuTimes::default(), dir };
        if server.is_ready(limit) {
            return Ok(server);
        }
        let said = fs::read_to_string(&log).unwrap_or_default();
        let said = said.trim().lines().last().unwrap_or("it said nothing").to_owned();
        let (name, runs) = (&peer.name, matches!(server.child.try_wait(), Ok(None)));
        Err(if runs && !interrupt::is_set() {
            let limit = limit.as_secs_f64();
            Absent::Silent(format!("{name} accepts no connection within {limit} s: {said}"))
        } else {
            Absent::Failed(format!("{name} did not start: {said}"))
        })
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The address at which it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Compares its response with the file.
    ///
    /// # Errors
    /// When it cannot be had or differs.
    pub fn check(&self, root: &Path, file: &str) -> Result<(), Absent> {
        self.check_path(&format!("/{file}"), &root.join(file))
    }

    /// As [`check`](Self::check), for a path whose response has the bytes of a file.
    ///
    /// # Errors
    /// The same.
    pub fn check_path(&self, path: &str, file: &Path) -> Result<(), Absent> {
        let failed = |error: std::io::Error| format!("{path}: {error}");
        let want = File::open(file).map_err(failed)?;
        // This reads only the bytes that the server has sent, so its cold files stay cold.
        fadvise(&want, 0, None, Advice::Random).map_err(|error| failed(error.into()))?;
        let mut want = BufReader::new(want);
        let (mut part, mut same) = (Vec::new(), true);
        // Piece by piece: a file may be larger than memory.
        let compare = |got: &[u8]| {
            part.resize(got.len(), 0);
            same &= want.read_exact(&mut part).is_ok() && part == got;
        };
        fetch::each_part(self.address, &self.address.to_string(), path, FETCH_LIMIT, compare)
            .map_err(|error| {
                let why = format!("{} does not serve {path}: {error}", self.name);
                let is_silent = error.kind() == ErrorKind::TimedOut;
                if is_silent { Absent::Silent(why) } else { Absent::Failed(why) }
            })?;
        if same && want.fill_buf().map_err(failed)?.is_empty() {
            Ok(())
        } else {
            Err(format!("{} serves other bytes at {path} than the file has", self.name).into())
        }
    }

    /// CPU time of all its processes so far ([`CpuTimes::so_far`]).
    pub fn cpu(&mut self) -> Duration {
        self.times.so_far(&family(self.child.id()))
    }

    /// CPU time in user space of all its processes that have not ended.
    #[must_use]
    pub fn user_time(&self) -> Duration {
        family(self.child.id()).into_iter().map(user_time).sum()
    }

    /// The bytes that its processes have had read from the disk (proc(5), `/proc/PID/io`).
    #[must_use]
    pub fn read_bytes(&self) -> u64 {
        let of = |pid| field(&read(&format!("/proc/{pid}/io")), "read_bytes:").unwrap_or(0);
        family(self.pid()).into_iter().map(of).sum()
    }

    /// The bytes of memory of all its processes; a page shared by n of them counts as an n-th (PSS).
    #[must_use]
    pub fn memory(&self) -> u64 {
        Self::memory_of(self.child.id())
    }

    /// The memory of the server with this process.
    pub(super) fn memory_of(pid: u32) -> u64 {
        let pss = |pid| field(&read(&format!("/proc/{pid}/smaps_rollup")), "Pss:");
        family(pid).into_iter().filter_map(pss).sum::<u64>() * 1024
    }

    /// The bytes on the disk of its temporary files: open files without a name, or files in its own directory.
    #[must_use]
    pub fn temporary_files(&self) -> u64 {
        let family = family(self.child.id());
        let open = family.iter().flat_map(|pid| fs::read_dir(format!("/proc/{pid}/fd"))).flatten();
        let paths = open.flatten().map(|entry| entry.path());
        let is_temporary = |fd: &std::path::PathBuf| {
            let file = fs::read_link(fd).unwrap_or_default();
            file.as_os_str().as_encoded_bytes().ends_with(UNLINKED) || file.starts_with(&self.dir)
        };
        // A link in /proc/PID/fd leads to the open file itself (proc(5)).
        let files = paths.filter(is_temporary).filter_map(|fd| fs::metadata(fd).ok());
        let files =
            files.filter(fs::Metadata::is_file).map(|it| ((it.dev(), it.ino()), it.blocks()));
        // Processes may share one.
        files.collect::<BTreeMap<_, _>>().into_values().sum::<u64>() * BLOCK
    }

    fn is_ready(&mut self, limit: Duration) -> bool {
        let end = Instant::now() + limit;
        let goes_on = || Instant::now() < end && !interrupt::is_set();
        while goes_on() && matches!(self.child.try_wait(), Ok(None)) {
            if TcpStream::connect_timeout(&self.address, POLL).is_ok() {
                return true;
            }
            thread::sleep(POLL);
        }
        false
    }

    fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        // The group is gone when all of its processes have ended.
        let _ = pid.map(|pid| kill_process_group(pid, signal));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.signal(Signal::TERM);
        let end = Instant::now() + STOP_LIMIT;
        while Instant::now() < end && matches!(self.child.try_wait(), Ok(None)) {
            thread::sleep(POLL);
        }
        self.signal(Signal::KILL);
        let _ = self.child.wait();
        // Its orphaned processes are our children now (`spawn_on`).
        let group = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        let end = Instant::now() + STOP_LIMIT;
        while Instant::now() < end {
            match group.map(|group| waitpgid(group, WaitOptions::NOHANG)) {
                Some(Ok(Some(_))) => {}
                Some(Ok(None)) => thread::sleep(POLL),
                // There is none any more.
                None | Some(Err(_)) => break,
            }
        }
    }
}

/// The first line in which a peer's program shows its version.
#[must_use]
pub fn version(peer: &Peer) -> Option<String> {
    let program = peer.program().ok().filter(|_| !peer.version.is_empty())?;
    let output = Command::new(program).args(peer.version).stdin(Stdio::null()).output().ok()?;
    let said = [output.stdout, output.stderr].concat();
    String::from_utf8_lossy(&said)
        .lines()
        .map(str::trim)
        .find(|line| line.contains(|c: char| c.is_ascii_digit()) && !line.starts_with('['))
        .map(|line| line.split(" h1:").next().unwrap_or(line).to_owned())
}

/// Finds a port on which no socket listens now.
fn free_address(ip: Ipv4Addr) -> std::io::Result<SocketAddr> {
    TcpListener::bind((ip, 0))?.local_addr()
}

/// Compiles [`FLOOR_SOURCE`] with the C compiler `cc`.
fn compile_floor(cc: &Path, dir: &Path) -> Result<std::path::PathBuf, String> {
    let (source, program) = (dir.join("floor.c"), dir.join("floor"));
    let failed = |error: &dyn core::fmt::Display| format!("the floor cannot be compiled: {error}");
    fs::write(&source, FLOOR_SOURCE).map_err(|error| failed(&error))?;
    let output = Command::new(cc).args(["-O2", "-o"]).arg(&program).arg(&source).output();
    let output = output.map_err(|error| failed(&error))?;
    if !output.status.success() {
        return Err(failed(&String::from_utf8_lossy(&output.stderr).trim()));
    }
    Ok(program)
}

/// The words in front of a command that joins the cgroup before it becomes its program. So all its threads are in
/// the cgroup.
fn joining(throttle: &Throttle) -> [OsString; 5] {
    let shell = find("sh").unwrap_or_else(|| "/bin/sh".into());
    let script = "echo $$ >\"$1\" && shift && exec \"$@\"";
    [shell.into(), "-c".into(), script.into(), "sh".into(), throttle.processes().into()]
}

/// Spawns a command on that CPU: children inherit it (sched_setaffinity(2)). If we are killed, the command gets
/// SIGTERM, not SIGKILL, because only it can end its own processes. (A command that later gives up root's rights, as
/// h2o does, gets no signal: prctl(2).) A process whose parent has ended becomes our child, so that its CPU time
/// counts for the run.
fn spawn_on(mut command: Command, cpu: Option<usize>) -> std::io::Result<Child> {
    set_child_subreaper(Some(getpid()))?;
    die_with_us(&mut command, Signal::TERM);
    let before = sched_getaffinity(None)?;
    let child = pin(cpu).and_then(|()| command.spawn());
    // Not on a thread of its own, with whose end the child would end.
    sched_setaffinity(None, &before)?;
    child
}

/// After the path of a file without a name (proc(5), `/proc/PID/fd`).
const UNLINKED: &[u8] = b" (deleted)";

/// The unit of a file's blocks (stat(2)).
const BLOCK: u64 = 512;

/// A server that does not accept connections by then has not started.
const START_LIMIT: Duration = Duration::from_secs(10);

/// A server that has not ended by then is killed.
const STOP_LIMIT: Duration = Duration::from_secs(5);

/// The interval of checks for either.
const POLL: Duration = Duration::from_millis(20);

/// For each receive of a file that is compared.
const FETCH_LIMIT: Duration = Duration::from_secs(20);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_is_told_from_failure() {
        let dir = tempfile::tempdir().unwrap();
        let start = |command: &str| {
            let peer = Peer::added(&format!("it={command}")).unwrap();
            let host = Host {
                root: dir.path(),
                files: &[],
                cpu: None,
                throttle: None,
                origin: None,
                network: None,
            };
            Server::start_within(&peer, host, Duration::from_millis(300)).unwrap_err()
        };
        assert_eq!(
            start("sh -c 'echo soon; exec sleep 60' {port}"),
            Absent::Silent("it accepts no connection within 0.3 s: soon".into())
        );
        assert_eq!(
            start("sh -c 'echo no; exit 1' {port}"),
            Absent::Failed("it did not start: no".into())
        );
        assert_eq!(
            start("no-such-program {port}"),
            Absent::Failed("no-such-program is not installed".into())
        );
    }
}
