//! The starter: a process that starts all later processes of the server.
//!
//! The starter is a copy of the first process, made before any thread is started and before any right is given up. So
//! its processes have the rights, the working directory and the environment of the first process. Each new process has
//! the program file and the arguments of the first process. A process that has given up rights, or that is confined,
//! cannot start such processes, because its children would lack the same rights.
//!
//! Each process of the server has a *line* to the starter. A packet on a line has a word, and perhaps a text or a
//! descriptor:
//!
//! | from | word | meaning |
//! |---|---|---|
//! | server | `start` | start a process; the server cannot choose its program or arguments |
//! | starter | `channel` | a pair of sockets: one end for the new process, and one end for the process that has asked |
//! | starter | `refused` | no process is started, for the reason that follows |
//! | new process | `process` | its process ID; the program is executed next |
//! | new process | `failed` | the program cannot be executed, for the reason that follows |
//! | new process | `settled` | the process is ready, and the starter no longer kills it |
//!
//! The line of a new process is its standard input, so the process knows that it replaces another process. The parent
//! of the new process is the parent of the starter: systemd, if there is a unit. The starter ends when no process has a
//! line.

use core::time::Duration;
use std::env;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{self, Command, Stdio};
use std::time::Instant;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH};

use super::machine::READY_MAX;
use super::packet;

pub(super) const START: &[u8] = b"start";
pub(super) const CHANNEL: &[u8] = b"channel";
pub(super) const REFUSED: &[u8] = b"refused ";
pub(super) const SETTLED: &[u8] = b"settled";
const PROCESS: &[u8] = b"process ";
const FAILED: &[u8] = b"failed ";

/// The most processes of one server: the process that serves, and the processes that finish their connections. A
/// process has ten minutes to finish, so an upgrade each 20 seconds reaches this limit.
const PROCESSES_MAX: usize = 32;
/// The time for a new process to become ready. The replaced process gives up before this time.
const SETTLE_MAX: Duration = Duration::from_secs(READY_MAX.as_secs() + 1);
/// The signals that operators send to all processes with the name of the server, or by a terminal. The starter blocks
/// these signals, and ends when the server ends.
const NOT_FOR_US: [i32; 7] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH];
/// The exit code if the program cannot be executed, as in shells.
const CANNOT_EXECUTE: i32 = 126;

/// The program that is always started, and its arguments.
#[derive(Clone, Debug)]
struct Program {
    path: PathBuf,
    /// The arguments, and in front of them the name by which the program was called.
    arguments: Vec<OsString>,
}

impl Program {
    /// The program of this process, by the path at which its next version will be.
    fn of_process() -> io::Result<Self> {
        let arguments: Vec<_> = env::args_os().collect();
        let running = env::current_exe()?;
        let name = arguments.first().map(PathBuf::from).unwrap_or_default();
        let path = if name.as_os_str().as_bytes().contains(&b'/') {
            std::path::absolute(&name)?
        } else {
            // A symbolic link in `PATH` may lead to another file after the next deploy, so it is not resolved.
            find_in_path(&name, &running).unwrap_or(running)
        };
        Ok(Self { path, arguments })
    }

    /// Executes the program. Returns the reason if the call fails.
    fn execute(&self, line: OwnedFd) -> String {
        // If the kernel does not know a kind of file, execvp(3) lets a shell execute the file.
        if let (Ok(running), Ok(next)) = (head(Path::new("/proc/self/exe")), head(&self.path))
            && !next.starts_with(b"#!")
            && next != running
        {
            let path = self.path.display();
            return format!("cannot execute {path}: it is no program for this machine");
        }
        let mut arguments = self.arguments.iter();
        let mut command = Command::new(&self.path);
        if let Some(name) = arguments.next() {
            command.arg0(name);
        }
        let error = command.args(arguments).stdin(Stdio::from(line)).exec();
        let path = self.path.display();
        let advice = match error.kind() {
            io::ErrorKind::PermissionDenied => " (it must be an executable file)",
            io::ErrorKind::NotFound => " (the file, or the loader that it names, does not exist)",
            io::ErrorKind::ExecutableFileBusy => " (another process writes to it)",
            _ => "",
        };
        format!("cannot execute {path}: {error}{advice}")
    }
}

/// The part of a program's head that describes the machine (elf(5)): the size and the order of words, and the
/// processor. For a file of another kind it is the beginning of the file.
fn head(path: &Path) -> io::Result<Vec<u8>> {
    let mut head = [0; 20];
    File::open(path)?.read_exact(&mut head)?;
    Ok(if head.starts_with(b"\x7fELF") {
        [&head[..6], &head[18..]].concat()
    } else {
        head.to_vec()
    })
}

/// The first file of this name in the directories of `PATH` that is the running program.
fn find_in_path(name: &Path, running: &Path) -> Option<PathBuf> {
    let identity = |path: &Path| fs::metadata(path).map(|file| (file.dev(), file.ino())).ok();
    let running = identity(running)?;
    let directories = env::var_os("PATH")?;
    let mut found = env::split_paths(&directories).map(|directory| directory.join(name));
    found.find(|path| path.is_absolute() && identity(path) == Some(running))
}

/// Makes the starter. Returns the line to it.
///
/// # Errors
///
/// A sentence for the operator about the reason.
pub(super) fn make() -> Result<OwnedFd, String> {
    if process::id() == 1 {
        return Err("the server is process 1, whose end is the end of its container".to_owned());
    }
    let cannot = |error: io::Error| format!("no process for later starts could be made: {error}");
    let program = Program::of_process().map_err(cannot)?;
    let (ours, theirs) = packet::pair().map_err(|error| cannot(error.into()))?;
    ring::start_orphan(theirs, program, |line, program| {
        run(line, &program);
        0
    })
    .map_err(cannot)?;
    Ok(ours)
}

/// The line to a process.
struct Line {
    line: OwnedFd,
    /// `Some` while the process is not ready.
    start: Option<Start>,
}

/// A process that is being started.
struct Start {
    /// The time at which the process is killed.
    until: Instant,
    /// A descriptor of the process, once the process is known.
    process: Option<OwnedFd>,
    /// The end of the channel for the process that has asked. The end is sent once the process is known.
    channel: Option<OwnedFd>,
}

/// Serves until no process has a line.
fn run(first: OwnedFd, program: &Program) {
    // If the call fails, a signal for all processes of the server ends the starter, and the next upgrade says so.
    let _ = ring::block_signals(&NOT_FOR_US);
    // Lists of processes show the starter by this name. A program that it executes has its own name again.
    let _ = rustix::thread::set_name(c"samum-starter");
    let mut lines = vec![Line { line: first, start: None }];
    // At most one start is under way. The line of the process that has asked comes before the line of the new process.
    let mut asking: Option<OwnedFd> = None;
    while !lines.is_empty() {
        let due = lines.iter().filter_map(|line| Some(line.start.as_ref()?.until)).min();
        let limit = due.map(|due| due.saturating_duration_since(Instant::now()));
        let all: Vec<BorrowedFd<'_>> = lines.iter().map(|line| line.line.as_fd()).collect();
        let ready = packet::wait(&all, limit);
        let mut gone = Vec::new();
        for (index, _) in ready.iter().enumerate().filter(|(_, is_ready)| **is_ready) {
            match packet::take(&lines[index].line) {
                Ok(Some(packet)) => {
                    if packet.bytes == START {
                        begin(&mut lines, index, &mut asking, program);
                    } else {
                        handle(&mut lines[index], &packet.bytes, &mut asking);
                    }
                }
                Ok(None) => gone.push(index),
                // There was no packet, or a packet that no server sends.
                Err(_) => {}
            }
        }
        // A line that `begin` has added comes after the lines in `gone`.
        for index in gone.into_iter().rev() {
            if lines.remove(index).start.is_some() {
                asking = None;
            }
        }
        let now = Instant::now();
        for line in &mut lines {
            if let Some(start) = line.start.take_if(|start| start.until <= now) {
                asking = None;
                kill(start);
            }
        }
    }
}

/// Kills a process that is being started, and is not ready.
fn kill(start: Start) {
    if let Some(process) = start.process {
        // The call fails if the process has just ended.
        let _ = pidfd_send_signal(process, Signal::KILL);
    }
}

/// Starts a process for the process of a line.
fn begin(lines: &mut Vec<Line>, by: usize, asking: &mut Option<OwnedFd>, program: &Program) {
    // A process asks again after it has given up an earlier new process, which may not have ended yet.
    for start in lines.iter_mut().filter_map(|line| line.start.take()) {
        kill(start);
    }
    *asking = None;
    let started = if lines.len() >= PROCESSES_MAX {
        Err(format!(
            "{} earlier processes finish their connections, as many as there may be: wait for some of them",
            PROCESSES_MAX - 1
        ))
    } else {
        start(program).and_then(|line| {
            let line_of_asking = lines[by].line.try_clone().map_err(|error| error.to_string())?;
            Ok((line, line_of_asking))
        })
    };
    match started {
        Ok((line, line_of_asking)) => {
            lines.push(line);
            *asking = Some(line_of_asking);
        }
        // If the call fails, the process has gone.
        Err(why) => {
            let _ = packet::send(&lines[by].line, &[REFUSED, why.as_bytes()].concat(), &[]);
        }
    }
}

/// Starts the program with a new line.
fn start(program: &Program) -> Result<Line, String> {
    let cannot = |error: io::Error| format!("cannot start a process: {error}");
    let (line, its_line) = packet::pair().map_err(|error| cannot(error.into()))?;
    let (channel, its_channel) = packet::pair().map_err(|error| cannot(error.into()))?;
    packet::send(&line, CHANNEL, &[its_channel.as_fd()]).map_err(|error| cannot(error.into()))?;
    ring::start_orphan(its_line, program.clone(), |line, program| {
        execute(line, &program);
        CANNOT_EXECUTE
    })
    .map_err(cannot)?;
    let until = Instant::now() + SETTLE_MAX;
    let start = Start { until, process: None, channel: Some(channel) };
    Ok(Line { line, start: Some(start) })
}

/// Becomes the program. Returns only if the program cannot be executed, after the starter has got the reason.
fn execute(line: OwnedFd, program: &Program) {
    let _ = ring::unblock_signals(&NOT_FOR_US);
    let told = line.try_clone();
    let pid = process::id().to_string();
    if packet::send(&line, &[PROCESS, pid.as_bytes()].concat(), &[]).is_err() {
        return;
    }
    let why = program.execute(line);
    if let Ok(line) = told {
        let _ = packet::send(&line, &[FAILED, why.as_bytes()].concat(), &[]);
        // The starter closes the line after it has passed the reason on. Until then the channel stays open, because the
        // end of the channel gives no reason.
        let mut kept = Vec::new();
        while let Ok(Some(packet)) = packet::receive(&line, Duration::from_secs(1)) {
            kept.push(packet);
        }
    }
}

/// Handles a packet of a process that is being started.
fn handle(line: &mut Line, bytes: &[u8], asking: &mut Option<OwnedFd>) {
    let Some(start) = &mut line.start else { return };
    if let Some(pid) = bytes.strip_prefix(PROCESS) {
        let pid = core::str::from_utf8(pid).ok().and_then(|pid| pid.parse().ok());
        let pid = pid.and_then(Pid::from_raw);
        start.process = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        if let (Some(channel), Some(asking)) = (start.channel.take(), &asking) {
            // The call fails if the process that has asked has gone. The new process notices this by the end of its
            // channel.
            let _ = packet::send(asking, CHANNEL, &[channel.as_fd()]);
        }
    } else if let Some(why) = bytes.strip_prefix(FAILED) {
        if let Some(asking) = asking.take() {
            let _ = packet::send(asking, &[REFUSED, why].concat(), &[]);
        }
        // The process waits for the end of its line.
        line.start = None;
        let _ = rustix::net::shutdown(&line.line, rustix::net::Shutdown::Both);
    } else if bytes == SETTLED {
        line.start = None;
        *asking = None;
    }
}
