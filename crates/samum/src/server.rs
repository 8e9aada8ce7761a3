//! All workers together: start, stop, and what is said on the way.

use core::sync::atomic::{AtomicU8, Ordering};
use core::time::Duration;
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;

use ring::{Choice, Ring, Waker};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::config::{Config, LogTarget};
use crate::crowd::Crowd;
use crate::listen::{self, SocketFile};
use crate::shell::kind;
use crate::worker::{Parts, Worker};

/// How long responses under way may take after the signal to stop.
const DRAIN_MAX: Duration = Duration::from_secs(30);
/// How long logs may take after that.
const LOGS_MAX: Duration = Duration::from_secs(2);
/// Descriptors kept for what is neither a connection nor a cached file.
const DESCRIPTORS_RESERVED: usize = 64;
/// Descriptors that the kernel's table has room for from the start, or twice as many as connections
/// are allowed: 512 KiB of its memory.
const DESCRIPTORS_AT_ONCE: usize = 1 << 16;
/// A worker's descriptors are divided into so many parts: five for connections, one for those that
/// are accepted in one go with the last of them, one for files that stay open, and one for pipes and
/// what is being looked for.
const DESCRIPTOR_PARTS: usize = 8;
/// Connections that wait to be accepted at one listener.
const BACKLOG_MAX: i32 = 4096;

/// What the main thread wants of the workers.
const RUN: u8 = 0;
const DRAIN: u8 = 1;

/// Serve until a signal says stop.
///
/// # Errors
///
/// A sentence for the operator.
pub fn run(config: &Config) -> Result<(), String> {
    let limit = raise_descriptor_limit();
    let descriptors = limit.saturating_sub(DESCRIPTORS_RESERVED) / config.threads;
    let root = open_root(&config.root)?;
    let connections = config.tuning.connections_max;
    grow_descriptor_table(&root, limit.min(DESCRIPTORS_AT_ONCE.max(connections.saturating_mul(2))));
    let log = open_log(&config.log)?;
    let mut sockets: Vec<Vec<OwnedFd>> = (0..config.threads).map(|_| Vec::new()).collect();
    let mut names = Vec::new();
    let mut socket_files = Vec::new();
    let share = descriptors / DESCRIPTOR_PARTS / config.listen.len().max(1);
    let backlog = i32::try_from(share).map_or(BACKLOG_MAX, |share| share.clamp(8, BACKLOG_MAX));
    for address in &config.listen {
        let (opened, file) = listen::open(address, config.threads, backlog)?;
        names.push(listen::name(&opened[0], address));
        socket_files.extend(file);
        for (worker, socket) in sockets.iter_mut().zip(opened) {
            worker.push(socket);
        }
    }
    // Before any thread starts, so that no signal finds the default action.
    let mut signals = Signals::new([SIGTERM, SIGINT])
        .map_err(|error| format!("cannot catch signals: {error}"))?;
    end_on_panic();

    let stop = Arc::new(AtomicU8::new(RUN));
    let wakers = Arc::new(Mutex::new(Vec::new()));
    let descriptors_for_connections = descriptors * config.threads / DESCRIPTOR_PARTS * 5;
    let crowd = Crowd::new(connections.min(descriptors_for_connections));
    let (started, starts) = mpsc::channel();
    let mut threads = Vec::new();
    for (number, listeners) in sockets.into_iter().enumerate() {
        let seed = Seed {
            listeners,
            root: duplicate(&root)?,
            log: log.as_ref().map(duplicate).transpose()?,
            config: config.clone(),
            crowd: Arc::clone(&crowd),
            descriptors,
        };
        let (stop, wakers, started) = (Arc::clone(&stop), Arc::clone(&wakers), started.clone());
        let body = move || seed.run(&stop, &wakers, &started);
        let spawned = thread::Builder::new().name(format!("worker-{number}")).spawn(body);
        threads.push(spawned.map_err(|error| format!("cannot start a worker: {error}"))?);
    }
    drop(started);
    let mut driver = None;
    for _ in &threads {
        let said = starts.recv().map_err(|_| "a worker ended before it began".to_owned())?;
        driver = Some(said?);
    }
    for name in &names {
        say(&format!("listening on {name}"));
    }
    if let Some(driver) = driver {
        let (count, plural) = (config.threads, if config.threads == 1 { "" } else { "s" });
        say(&format!("serving {} with {count} worker{plural} on {driver}", config.root.display()));
    }

    let watcher = signals.handle();
    let waiting = thread::spawn(move || {
        let mut signals = signals.forever();
        if signals.next().is_some() {
            // Before the sockets are closed, so that no successor takes the names for left behind.
            socket_files.iter().for_each(SocketFile::remove);
            stop.store(DRAIN, Ordering::Release);
            for waker in wakers.lock().unwrap_or_else(PoisonError::into_inner).iter() {
                Waker::wake(waker);
            }
            say("finishing what is under way; a second signal ends it at once");
        }
        if signals.next().is_some() {
            #[expect(clippy::exit, reason = "the second signal asks for exactly that")]
            std::process::exit(0);
        }
    });
    let mut result = Ok(());
    for thread in threads {
        match thread.join() {
            Ok(ended) => result = result.and(ended),
            Err(_) => result = Err("a worker panicked".to_owned()),
        }
    }
    watcher.close();
    // Ends now that its signals have; it has nothing to report.
    let _ = waiting.join();
    result
}

/// What a worker's thread starts from.
struct Seed {
    listeners: Vec<OwnedFd>,
    root: OwnedFd,
    log: Option<OwnedFd>,
    config: Config,
    crowd: Arc<Crowd>,
    /// Descriptors for connections and files.
    descriptors: usize,
}

type Started = mpsc::Sender<Result<String, String>>;

impl Seed {
    fn run(
        self,
        stop: &AtomicU8,
        wakers: &Mutex<Vec<Waker>>,
        started: &Started,
    ) -> Result<(), String> {
        let (mut worker, driver) = match self.worker(wakers) {
            Ok(worker) => worker,
            Err(error) => {
                // The main thread reports it.
                let _ = started.send(Err(error));
                return Ok(());
            }
        };
        // Nobody listens only if the main thread has given up already.
        let _ = started.send(Ok(driver));
        let failed = |error: io::Error| format!("a worker cannot wait for events: {error}");
        // Pairs with the release store of the signal thread, which then wakes us.
        while stop.load(Ordering::Acquire) == RUN {
            worker.turn(None).map_err(failed)?;
        }
        worker.drain();
        let until = worker.ring().now() + DRAIN_MAX;
        while !worker.is_drained() && worker.ring().now() < until {
            worker.turn(Some(until)).map_err(failed)?;
        }
        let until = worker.ring().now() + LOGS_MAX;
        let lost = worker.finish_logs(until);
        if lost > 0 {
            say(&format!("{lost} lines of the access log are lost"));
        }
        // A call that sleeps on a dead network file system would hold up the ring's drop, and with
        // it the exit: the process ends next, and takes everything along.
        core::mem::forget(worker);
        Ok(())
    }

    fn worker(self, wakers: &Mutex<Vec<Waker>>) -> Result<(Worker, String), String> {
        let mut ring =
            Ring::new(self.config.driver).map_err(|error| no_ring(self.config.driver, &error))?;
        let driver = ring.to_string();
        let waker =
            ring.waker(kind::WAKE).map_err(|error| format!("cannot make a waker: {error}"))?;
        self.crowd.join(waker.clone());
        wakers.lock().unwrap_or_else(PoisonError::into_inner).push(waker);
        let is_file = matches!(self.config.log, LogTarget::File(_));
        let log_name = match &self.config.log {
            LogTarget::File(path) => path.display().to_string(),
            _ => "standard output".to_owned(),
        };
        let notes = io::stderr().as_fd().try_clone_to_owned().ok();
        let parts = Parts {
            listeners: self.listeners.into_iter().map(|fd| ring.adopt_socket(fd)).collect(),
            root: ring.adopt_file(self.root),
            crowd: self.crowd,
            descriptors_max: (self.descriptors / DESCRIPTOR_PARTS).max(16),
            tuning: self.config.tuning,
            access: self
                .log
                .map(|fd| (ring.adopt_file(fd), self.config.log_format, log_name, is_file)),
            notes: notes.map(|fd| ring.adopt_file(fd)),
            ring,
        };
        let worker = Worker::new(parts).map_err(|error| format!("cannot get memory: {error}"))?;
        Ok((worker, driver))
    }
}

fn no_ring(choice: Choice, error: &io::Error) -> String {
    match choice {
        Choice::Epoll => format!("cannot use epoll: {error}"),
        _ => format!(
            "cannot use io_uring: {error} (it needs Linux 6.1, and containers often forbid it; \
             --driver auto falls back to epoll)"
        ),
    }
}

fn duplicate(fd: &OwnedFd) -> Result<OwnedFd, String> {
    fd.try_clone().map_err(|error| format!("cannot duplicate a descriptor: {error}"))
}

fn open_root(path: &Path) -> Result<OwnedFd, String> {
    let shown = path.display();
    // O_NONBLOCK: a FIFO shall not make us wait for who writes to it.
    let flags = OFlags::NONBLOCK | OFlags::DIRECTORY;
    let flags = i32::try_from(flags.bits()).expect("bits far below the sign");
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path);
    let file = file.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => format!("cannot serve {shown}: there is no such directory"),
        io::ErrorKind::PermissionDenied => {
            format!("cannot serve {shown}: permission denied (this user must be able to read and enter it)")
        }
        io::ErrorKind::NotADirectory => {
            format!("cannot serve {shown}: it is not a directory (serve the one that it is in)")
        }
        _ => format!("cannot serve {shown}: {error}"),
    })?;
    Ok(file.into())
}

fn open_log(target: &LogTarget) -> Result<Option<OwnedFd>, String> {
    match target {
        LogTarget::None => Ok(None),
        LogTarget::Stdout => {
            let stdout = io::stdout().as_fd().try_clone_to_owned();
            stdout.map(Some).map_err(|error| format!("cannot log to standard output: {error}"))
        }
        LogTarget::File(path) => {
            // A FIFO without a reader must not stop the start: opened for both ends it never waits.
            let is_fifo = std::fs::metadata(path).is_ok_and(|data| data.file_type().is_fifo());
            let file =
                OpenOptions::new().append(true).read(is_fifo).create(true).mode(0o640).open(path);
            file.map(|file| Some(file.into()))
                .map_err(|error| format!("cannot log to {}: {error}", path.display()))
        }
    }
}

/// As many descriptors as the hard limit allows; returns how many that are.
fn raise_descriptor_limit() -> usize {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    let now =
        if setrlimit(Resource::Nofile, raised).is_ok() { limit.maximum } else { limit.current };
    now.and_then(|now| usize::try_from(now).ok()).unwrap_or(1 << 20)
}

/// Has the kernel's table of descriptors grow now, while there is one thread. It doubles when it is
/// full, and with several threads each time waits until no CPU can be looking at the old one
/// (`expand_fdtable` in fs/file.c): the worker that accepts would sleep for milliseconds.
fn grow_descriptor_table(any: &OwnedFd, count: usize) {
    let last = i32::try_from(count).unwrap_or(i32::MAX) - 1;
    // Refused, it grows later.
    let _ = fcntl_dupfd_cloexec(any, last);
}

/// A worker that panics ends the process: nothing is half alive.
fn end_on_panic() {
    let default = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        default(info);
        say("a thread has panicked, which is a bug; the server ends");
        #[expect(
            clippy::exit,
            reason = "the panic message has been printed; nothing else may run"
        )]
        std::process::exit(1);
    }));
}

/// Tell the operator, who may have closed the terminal.
fn say(text: &str) {
    // Nor may who no longer reads our messages hold us up: a line fits where poll(2) says so.
    let mut stderr = io::stderr();
    let mut ready = [PollFd::from_borrowed_fd(rustix::stdio::stderr(), PollFlags::OUT)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    if poll(&mut ready, Some(&now)) != Ok(1) {
        return;
    }
    let _ = writeln!(stderr, "{}: {}", crate::NAME, crate::text::plain(text));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    const IN_CHILD: &str = "SAMUM_PANIC_CHILD";

    /// Runs itself again as a child, in which a thread panics.
    #[test]
    fn a_panic_ends_the_process_with_a_message_and_exit_code_1() {
        if std::env::var_os(IN_CHILD).is_some() {
            end_on_panic();
            let worker = thread::spawn(|| panic!("out of sand"));
            let _ = worker.join();
            thread::sleep(Duration::from_secs(10));
            return;
        }
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args([
            "--exact",
            "--nocapture",
            "server::tests::a_panic_ends_the_process_with_a_message_and_exit_code_1",
        ]);
        let output = command.env(IN_CHILD, "1").output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{stderr}");
        assert!(stderr.contains("out of sand"), "{stderr}");
        assert!(
            stderr.contains("a thread has panicked, which is a bug; the server ends"),
            "{stderr}"
        );
    }
}
