//! Starts all workers, carries out signals, and shuts down.

use core::time::Duration;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::SystemTime;

use ring::{Choice, Ring, Silences, Waker};
use rustix::io::fcntl_dupfd_cloexec;
use sendfile::{Devices, PageCache};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator::Signals;

use crate::config::file::Loaded;
use crate::config::{Config, Log, LogTarget, Server};
use crate::control::{Inbox, Order, Workers};
use crate::crowd::Crowd;
use crate::follow::{Root, Roots};
use crate::interface::{self, Interfaces, Owners};
use crate::listen::{SocketFile, SocketFiles};
use crate::log::files::{self, OpenLogs};
use crate::metrics::Metrics;
use crate::network::{Listeners, Network};
use crate::reload::{Reloader, Reply, Room, Source, summary};
use crate::say::{say, set_format};
use crate::serving::Snapshot;
use crate::session::Http1;
use crate::shell::kind;
use crate::worker::{Parts, Worker};
use crate::{control_socket, descriptors, listen, memory};

/// The time for responses that have begun, after the signal to stop.
const RESPONSES_MAX: Duration = Duration::from_secs(30);
/// The time for the logs to be written after that.
const LOGS_MAX: Duration = Duration::from_secs(2);
/// The size of the kernel's descriptor table from the start, or twice the maximum number of connections
/// if that is more: 512 KiB of kernel memory.
const DESCRIPTORS_AT_ONCE: usize = 1 << 16;
/// Descriptors at least for directories and listeners of configurations that replace the first one.
const ROOM_MIN: usize = 32;
/// This part of the process's descriptors is for them, if that is more.
const ROOM_PART: usize = 8;
/// Requests for a reload that wait at once. All that wait are answered by one reload.
const RELOADS_MAX: usize = 16;
/// The time for removing the names of Unix sockets at the end: their file system may not respond.
const REMOVE_MAX: Duration = Duration::from_secs(1);

/// Memory of a worker that has answered a few requests (measured).
const WORKER_MEMORY_MIB: f64 = 1.1;
/// Memory that a worker may fill: finished responses (64 MiB) and buffers of its disk (16 MiB).
const WORKER_MEMORY_MAX_MIB: usize = 80;
/// Threads that may sleep for a worker, its own and the kernel's (DESIGN.md §7).
const WORKER_THREADS_MAX: usize = 320;
/// With more workers per core than this, the operator is told their cost.
const WORKERS_PER_CORE: usize = 4;

/// Serves until a signal stops it. The configuration cannot be replaced.
///
/// # Errors
///
/// A message for the operator.
pub fn run(config: &Config) -> Result<(), String> {
    set_format(config.server.error_format);
    serve(config.server.clone(), Snapshot::new(config)?, None)
}

/// Serves a configuration until a signal stops it, and the one that the source reads at each reload.
///
/// # Errors
///
/// A message for the operator.
pub fn run_reloadable(loaded: Loaded, source: Source) -> Result<(), String> {
    set_format(loaded.config.server.error_format);
    let server = loaded.config.server.clone();
    serve(server, Snapshot::new(&loaded.config)?, Some((source, loaded)))
}

fn serve(
    server: Server,
    snapshot: Snapshot,
    source: Option<(Source, Loaded)>,
) -> Result<(), String> {
    let snapshot = Arc::new(snapshot);
    let Prepared { shares, roots, logs, ways, texts, socket_files, control, owners, reserved } =
        prepare(&server, &snapshot, source.is_some())?;
    // Before any thread starts, so that no signal meets its default action.
    let signals = Signals::new([SIGTERM, SIGINT, SIGHUP, SIGUSR1])
        .map_err(|error| format!("cannot catch signals: {error}"))?;
    end_on_panic();
    snapshot.resolve_names()?;

    let shared = Shared::new(&server, &snapshot, &roots, shares);
    let loaded = source.as_ref().map(|(_, loaded)| loaded);
    let digest = loaded.and_then(|loaded| loaded.digest.as_deref());
    let metrics = Arc::clone(&shared.metrics);
    metrics.note_load(digest, SystemTime::now());
    let Started { workers, driver, ends } = start_workers(shared, ways, logs)?;
    texts.iter().for_each(|text| say(text));
    announce(&snapshot, loaded, shares, server.tuning.connections_max, &driver);

    let workers = Arc::new(workers);
    let roots = Roots::new(roots, Arc::clone(&workers));
    let logs = Arc::new(OpenLogs::new(snapshot.logs()));
    let reopen = start_reopener(Arc::clone(&logs), Arc::clone(&workers))?;
    let (reload, reloads) = mpsc::sync_channel(RELOADS_MAX);
    let wishes = Wishes { reopen, reload: source.is_some().then(|| reload.clone()) };
    match source {
        Some((source, loaded)) => {
            let reloader = Reloader {
                source,
                served: snapshot,
                server,
                workers: Arc::clone(&workers),
                roots,
                socket_files: Arc::clone(&socket_files),
                logs,
                room: shares.room,
                owners,
                count: shares.workers,
                waiting_max: shares.waiting_max(),
                metrics,
                before: Vec::new(),
            };
            start_reloader(reloader, loaded, reloads)?;
        }
        // Without a source nothing receives.
        None => drop(reloads),
    }
    if let Some((listener, file)) = control {
        socket_files.add([(u32::MAX, file)]);
        let workers = Arc::clone(&workers);
        spawn("control", move || control_socket::serve(&listener, &reload, &workers))?;
    }
    let watcher = signals.handle();
    let waiting =
        spawn("signals", move || obey_signals(signals, &workers, &wishes, &socket_files))?;

    let result = join(&ends, shares.workers);
    watcher.close();
    // The thread ends because the signals are closed; it has no result.
    let _ = waiting.join();
    drop(reserved);
    result
}

/// The things that the server has before any thread starts.
struct Prepared {
    shares: Shares,
    /// The open directories of [`Snapshot::roots`].
    roots: Vec<Root>,
    /// The open files of [`Snapshot::logs`].
    logs: Vec<(Log, OwnedFd)>,
    /// The ways of the connections, one for each worker.
    ways: Vec<Way>,
    /// The places where the server listens, for the operator.
    texts: Vec<String>,
    socket_files: Arc<SocketFiles>,
    control: Option<(UnixListener, SocketFile)>,
    owners: Owners,
    /// Sockets that keep addresses of interfaces from other programs, until the server ends.
    reserved: Vec<OwnedFd>,
}

/// The numbers of workers, and their shares in the resources of the process.
#[derive(Clone, Copy)]
struct Shares {
    cores: usize,
    workers: usize,
    room: Room,
    /// Descriptors of the process.
    limit: usize,
    /// Descriptors of each worker for connections and files.
    descriptors: usize,
    /// Connections of all workers.
    connections: usize,
}

impl Shares {
    /// The maximum number of connections of one worker that wait to be accepted.
    const fn waiting_max(self) -> usize {
        self.descriptors / descriptors::PARTS
    }
}

/// Opens what is served and where, and gives up the rights that only this needs.
fn prepare(server: &Server, snapshot: &Snapshot, is_replaceable: bool) -> Result<Prepared, String> {
    // Where it fails, programs (CGI) get what the server itself has inherited.
    let _ = ring::keep_descriptors_from_programs();
    let limit = descriptors::raise();
    let Interfaces { kernel, seeds, said, reserved, owners } =
        Interfaces::open(server, snapshot.addresses())?;
    let has_interfaces = !server.interfaces.is_empty();
    let has_sockets = !has_interfaces || !kernel.is_empty();
    let room = room(limit, server.threads, snapshot, is_replaceable)?;
    let shares = share(server, limit, room, server.threads + seeds.len(), has_sockets)?;
    let roots: Vec<_> =
        snapshot.roots().iter().map(|path| Root::open(path)).collect::<Result<_, _>>()?;
    let connections = server.tuning.connections_max;
    grow_descriptor_table(limit.min(DESCRIPTORS_AT_ONCE.max(connections.saturating_mul(2))));
    let logs = open_logs(snapshot)?;
    let mut sockets: Vec<Vec<OwnedFd>> = (0..server.threads).map(|_| Vec::new()).collect();
    let mut texts = Vec::new();
    let socket_files = Arc::new(SocketFiles::default());
    let backlog = listen::backlog(shares.waiting_max(), snapshot.addresses().len());
    for (number, address) in &kernel {
        let (opened, file) = listen::open(address, server.threads, backlog)?;
        texts.push(format!("listening on {}", listen::name(&opened[0], address)));
        socket_files.add(file.map(|file| (*number, file)));
        for (worker, socket) in sockets.iter_mut().zip(opened) {
            worker.push(socket);
        }
    }
    texts.extend(said);
    let control = open_control_socket(server.control.as_deref(), is_replaceable || has_interfaces)?;
    if has_interfaces {
        // Before any thread starts: each has the rights of the thread that starts it.
        let dropped = netdev::drop_rights();
        dropped.map_err(|error| format!("cannot drop the rights of interfaces: {error}"))?;
    }
    let ways = sockets.into_iter().map(Way::Listeners);
    let ways = ways.chain(seeds.into_iter().map(|seed| Way::Interface(Box::new(seed)))).collect();
    Ok(Prepared { shares, roots, logs, ways, texts, socket_files, control, owners, reserved })
}

/// Divides the descriptors that `limit` allows, but for `room`, among the workers.
fn share(
    server: &Server,
    limit: usize,
    room: Room,
    workers: usize,
    has_sockets: bool,
) -> Result<Shares, String> {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    // One directory and one listener of each worker are among `descriptors::OF_WORKER`.
    let beyond = room.max.saturating_sub(Room::needed(1, 1, server.threads));
    let descriptors = descriptors::of_worker(limit.saturating_sub(beyond), workers, cores)?;
    // A connection of a stack has no descriptor.
    let places_max =
        if has_sockets { descriptors::places(descriptors, workers) } else { usize::MAX };
    let connections = server.tuning.connections_max.min(places_max);
    Ok(Shares { cores, workers, room, limit, descriptors, connections })
}

/// The workers that have started.
struct Started {
    workers: Workers,
    /// The name of their driver.
    driver: String,
    /// Gives the result of each worker when it ends.
    // Not by `join`: a thread whose calls on a dead disk are under way in the kernel's workers does not
    // end before they do.
    ends: Receiver<Result<(), String>>,
}

/// Starts a worker for each way, and waits until all have started.
fn start_workers(
    shared: Shared,
    ways: Vec<Way>,
    logs: Vec<(Log, OwnedFd)>,
) -> Result<Started, String> {
    let count = ways.len();
    let (mut workers, inboxes) = Workers::new(count);
    let (started, starts) = mpsc::channel();
    let (ended, ends) = mpsc::channel();
    for ((number, way), inbox) in ways.into_iter().enumerate().zip(inboxes) {
        let logs = logs.iter().map(|(log, file)| Ok((log.clone(), duplicate(file)?)));
        let logs = logs.collect::<Result<_, String>>()?;
        let seed = Seed { number, way, logs, shared: shared.clone() };
        let started = started.clone();
        let ended = ended.clone();
        let body = move || {
            let result = seed.run(inbox, &started);
            // It fails if the main thread has given up.
            let _ = ended.send(result);
        };
        let spawned = thread::Builder::new().name(format!("worker-{number}")).spawn(body);
        spawned.map_err(|error| format!("cannot start a worker: {error}"))?;
    }
    drop((started, ended));
    // The workers have duplicates of all of it. What is kept here would stay when they have replaced theirs: the
    // old file of a log that is reopened, the old directory of a root, the old configuration.
    drop((logs, shared));
    let mut driver = String::new();
    for _ in 0..count {
        let said = starts.recv().map_err(|_| "a worker ended before it had started".to_owned())?;
        let (waker, name) = said?;
        workers.add_waker(waker);
        driver = name;
    }
    Ok(Started { workers, driver, ends })
}

/// Tells the operator what is served, and what may be unwanted about that.
fn announce(
    snapshot: &Snapshot,
    loaded: Option<&Loaded>,
    shares: Shares,
    wanted: usize,
    driver: &str,
) {
    let Shares { workers, cores, limit, connections, .. } = shares;
    let plural = if workers == 1 { "" } else { "s" };
    let what = match loaded {
        Some(loaded) => {
            let digest = loaded.digest.as_deref().unwrap_or_default();
            format!("the configuration {digest} ({})", summary(snapshot))
        }
        None => {
            let roots = snapshot.roots().iter().map(|path| path.display().to_string());
            roots.collect::<Vec<_>>().join(", ")
        }
    };
    say(&format!("serving {what} with {workers} worker{plural} on {driver}"));
    if rustix::process::geteuid().is_root() {
        say(
            "running as root: every file that root can read there is served; a separate user is safer",
        );
    }
    if let Some(text) = descriptors::shortage(connections, wanted, limit) {
        say(&text);
    }
    if let Some(text) = cost_of_workers(workers, cores) {
        say(&text);
    }
}

/// Starts the thread that reopens the logs. It does so for each message: true if there should be some.
fn start_reopener(logs: Arc<OpenLogs>, workers: Arc<Workers>) -> Result<SyncSender<bool>, String> {
    let (reopen, requests) = mpsc::sync_channel(1);
    spawn("log", move || {
        requests.iter().for_each(|is_wanted| reopen_logs(&logs.list(), &workers, is_wanted));
    })?;
    Ok(reopen)
}

/// Starts the thread that replaces the configuration, the first of which is `loaded`.
fn start_reloader(
    reloader: Reloader,
    loaded: Loaded,
    reloads: Receiver<Option<Reply>>,
) -> Result<(), String> {
    spawn("reload", move || {
        // With 100,000 routes it has much memory, which takes a while to be freed.
        drop(loaded);
        reloader.run(&reloads);
    })?;
    Ok(())
}

/// Waits until all workers have ended. Returns the first error.
fn join(ends: &Receiver<Result<(), String>>, workers: usize) -> Result<(), String> {
    let mut result = Ok(());
    for _ in 0..workers {
        // Without a result it has panicked.
        let ended = ends.recv().unwrap_or_else(|_| Err("a worker panicked".to_owned()));
        result = result.and(ended);
    }
    result
}

/// The descriptors for directories and listeners: those of the configuration, and some for others if they may
/// replace it.
fn room(
    limit: usize,
    threads: usize,
    snapshot: &Snapshot,
    is_replaceable: bool,
) -> Result<Room, String> {
    let (roots, listeners) = (snapshot.roots().len(), snapshot.addresses().len());
    let needed = Room::needed(roots, listeners, threads);
    let reserved = descriptors::reserved(limit);
    let rest = limit.saturating_sub(reserved);
    // A single worker with one directory starts with any number.
    if needed > rest && roots > 1 {
        return Err(format!(
            "{roots} directories and {listeners} listeners of {threads} workers need {needed} \
             descriptors beside {reserved} others, and `ulimit -Hn` allows {limit}: raise it"
        ));
    }
    let growth = if is_replaceable { ROOM_MIN.max(limit / ROOM_PART).min(rest / 4) } else { 0 };
    Ok(Room { threads, max: needed.saturating_add(growth).min(rest.max(needed)) })
}

/// Opens the control socket, if the server has one: where the configuration says, or at the default path if
/// it can be reloaded. Without the default one the server runs all the same, for there are signals.
fn open_control_socket(
    path: Option<&Path>,
    is_replaceable: bool,
) -> Result<Option<(UnixListener, SocketFile)>, String> {
    if let Some(path) = path {
        return control_socket::open(path).map(Some);
    }
    if !is_replaceable {
        return Ok(None);
    }
    let opened = control_socket::open(&control_socket::default_path());
    if let Err(error) = &opened {
        say(&format!("there is no control socket for `samum reload`: {error}; SIGHUP reloads"));
    }
    Ok(opened.ok())
}

/// The things that signals ask for, which threads of their own do.
struct Wishes {
    /// The logs are to be reopened; true if there should be some.
    reopen: SyncSender<bool>,
    /// The configuration is to be loaded again, if it can be.
    reload: Option<SyncSender<Option<Reply>>>,
}

/// Carries out signals until the workers have ended.
fn obey_signals(
    mut signals: Signals,
    workers: &Workers,
    wishes: &Wishes,
    socket_files: &Arc<SocketFiles>,
) {
    let mut is_stopping = false;
    for signal in signals.forever() {
        if [SIGHUP, SIGUSR1].contains(&signal) {
            // If the queue is full, the log is about to be reopened already.
            let _ = wishes.reopen.try_send(signal == SIGUSR1 || wishes.reload.is_none());
            if signal == SIGHUP
                && let Some(reload) = &wishes.reload
            {
                // If the queue is full, a reload is about to begin already.
                let _ = reload.try_send(None);
            }
        } else if is_stopping {
            #[expect(clippy::exit, reason = "the second signal asks for it")]
            std::process::exit(0);
        } else {
            is_stopping = true;
            // Before the sockets are closed, so that no successor takes the names for stale.
            let files = Arc::clone(socket_files);
            within(REMOVE_MAX, move || files.close());
            workers.stop();
            say("shutting down after the responses that have begun; a second signal exits at once");
        }
    }
}

/// Reopens the access logs for all workers: the files may have been renamed.
fn reopen_logs(logs: &[Log], workers: &Workers, is_wanted: bool) {
    let files = logs.iter().filter_map(|log| match &log.target {
        LogTarget::File(path) => Some((log, path)),
        LogTarget::None | LogTarget::Stdout => None,
    });
    let mut count = 0;
    for (log, path) in files {
        count += 1;
        let told = files::open(&log.target).and_then(|file| {
            let order = |file| Order::Log(log.clone(), file);
            workers.tell(order, &file).map_err(|error| format!("cannot tell a worker: {error}"))
        });
        match told {
            Ok(()) => say(&format!("reopened {}", path.display())),
            Err(error) => say(&format!("{error}; logging continues to the old file")),
        }
    }
    if count == 0 && is_wanted {
        say("there is no log file to reopen");
    }
}

/// Does something that may sleep for ever on a thread of its own, and waits for it at most `limit`.
fn within(limit: Duration, act: impl FnOnce() + Send + 'static) {
    let (done, ended) = mpsc::channel();
    let acting = move || {
        act();
        // It fails if the wait is over.
        let _ = done.send(());
    };
    if spawn("cleanup", acting).is_ok() {
        // After the limit the server goes on without it.
        let _ = ended.recv_timeout(limit);
    }
}

fn spawn(
    name: &str,
    body: impl FnOnce() + Send + 'static,
) -> Result<thread::JoinHandle<()>, String> {
    let thread = thread::Builder::new().name(name.to_owned()).spawn(body);
    thread.map_err(|error| format!("cannot start a thread: {error}"))
}

/// A message about the cost of many workers, for operators that take workers for connections.
fn cost_of_workers(workers: usize, cores: usize) -> Option<String> {
    (workers > cores.saturating_mul(WORKERS_PER_CORE)).then(|| {
        #[expect(clippy::cast_precision_loss, reason = "a rounded figure for a person")]
        let least = workers as f64 * WORKER_MEMORY_MIB;
        let most = workers.saturating_mul(WORKER_MEMORY_MAX_MIB);
        let threads = workers.saturating_mul(WORKER_THREADS_MAX + 1);
        format!(
            "{workers} workers for {cores} cores cost {least:.0} to {most} MiB of memory, {} descriptors and \
             up to {threads} threads, and are no faster than {cores}: one worker serves thousands of clients",
            workers.saturating_mul(descriptors::OF_WORKER),
        )
    })
}

/// The way of a worker's connections.
enum Way {
    /// Listening sockets of the kernel.
    Listeners(Vec<OwnedFd>),
    /// A receive queue of an interface.
    Interface(Box<interface::Seed>),
}

/// The values from which a worker's thread makes its worker.
struct Seed {
    /// The number of the worker.
    number: usize,
    way: Way,
    /// The open files of [`Snapshot::logs`].
    logs: Vec<(Log, OwnedFd)>,
    shared: Shared,
}

/// The values that all workers have.
#[derive(Clone)]
struct Shared {
    snapshot: Arc<Snapshot>,
    /// The open directories of [`Snapshot::roots`].
    roots: Vec<Arc<OwnedFd>>,
    metrics: Arc<Metrics>,
    driver: Choice,
    crowd: Arc<Crowd>,
    page_cache: Arc<PageCache>,
    devices: Arc<Devices>,
    silences: Arc<Silences<String>>,
    /// Descriptors of each worker for connections and files.
    descriptors: usize,
}

impl Shared {
    fn new(server: &Server, snapshot: &Arc<Snapshot>, roots: &[Root], shares: Shares) -> Self {
        Self {
            snapshot: Arc::clone(snapshot),
            roots: roots.iter().map(|root| Arc::clone(&root.directory)).collect(),
            metrics: Metrics::new(shares.workers),
            driver: server.driver,
            crowd: Crowd::new(shares.connections),
            // The rest is for buffers, sockets, and what else runs here.
            page_cache: Arc::new(PageCache::new(memory::limit() / 4 * 3)),
            devices: Arc::new(Devices::default()),
            silences: Arc::new(Silences::default()),
            descriptors: shares.descriptors,
        }
    }
}

/// Reports the start of a worker: its waker and the name of its driver, or an error.
type StartReport = mpsc::Sender<Result<(Waker, String), String>>;

impl Seed {
    fn run(mut self, inbox: Inbox, started: &StartReport) -> Result<(), String> {
        match core::mem::replace(&mut self.way, Way::Listeners(Vec::new())) {
            Way::Listeners(sockets) => self.serve(inbox, started, |ring| {
                let adopted = sockets.into_iter().map(|fd| ring.adopt_socket(fd));
                Ok(Listeners::new(adopted.collect()))
            }),
            Way::Interface(seed) => self.serve(inbox, started, |ring| seed.start(ring)),
        }
    }

    fn serve<N: Network>(
        self,
        mut inbox: Inbox,
        started: &StartReport,
        network: impl FnOnce(&mut Ring) -> Result<N, String>,
    ) -> Result<(), String> {
        let (mut worker, waker, driver) = match self.worker(network) {
            Ok(worker) => worker,
            Err(error) => {
                // The main thread reports it.
                let _ = started.send(Err(error));
                return Ok(());
            }
        };
        // It fails if the main thread has already given up.
        let _ = started.send(Ok((waker, driver)));
        while !inbox.is_stopped() {
            worker.turn(None).unwrap_or_else(|error| end_at_once(&error));
            inbox.obey(&mut worker);
        }
        worker.shut_down();
        let until = worker.ring().now() + RESPONSES_MAX;
        while !worker.has_shut_down() && worker.ring().now() < until {
            worker.turn(Some(until)).unwrap_or_else(|error| end_at_once(&error));
            inbox.obey(&mut worker);
        }
        worker.end();
        let until = worker.ring().now() + LOGS_MAX;
        let lost = worker.write_logs(until);
        if lost > 0 {
            say(&format!("{lost} lines of the access log are lost"));
        }
        // Dropping the ring waits for its calls, and a call may sleep for ever on a dead network file
        // system. The process exits next, which frees everything.
        core::mem::forget(worker);
        Ok(())
    }

    fn worker<N: Network>(
        self,
        network: impl FnOnce(&mut Ring) -> Result<N, String>,
    ) -> Result<(Worker<Http1, N>, Waker, String), String> {
        let Self { number, logs, shared, .. } = self;
        let choice = shared.driver;
        let mut ring = Ring::new(choice).map_err(|error| no_ring(choice, &error))?;
        let driver = ring.to_string();
        let waker =
            ring.waker(kind::WAKE).map_err(|error| format!("cannot make a waker: {error}"))?;
        shared.crowd.join(waker.clone());
        let notes = io::stderr().as_fd().try_clone_to_owned().ok();
        let network = network(&mut ring)?;
        let parts = Parts {
            listeners: Vec::new(),
            snapshot: shared.snapshot,
            roots: shared.roots.into_iter().map(|fd| ring.share_file(fd)).collect(),
            crowd: shared.crowd,
            page_cache: shared.page_cache,
            devices: shared.devices,
            silences: shared.silences,
            descriptors_max: descriptors::files(shared.descriptors),
            logs: logs.into_iter().map(|(log, file)| (log, ring.adopt_file(file))).collect(),
            metrics: (shared.metrics, number),
            notes: notes.map(|fd| ring.adopt_file(fd)),
            ring,
        };
        let worker =
            Worker::over(parts, network).map_err(|error| format!("cannot get memory: {error}"))?;
        Ok((worker, waker, driver))
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

/// Opens the logs of all sites.
fn open_logs(snapshot: &Snapshot) -> Result<Vec<(Log, OwnedFd)>, String> {
    let open = |log: Log| files::open(&log.target).map(|file| (log, file));
    snapshot.logs().into_iter().map(open).collect()
}

/// Makes the kernel's table of descriptors grow now, while there is one thread. The table doubles when
/// it is full, and in a process with several threads the kernel then waits until no CPU can use the old
/// table (`expand_fdtable` in fs/file.c): the worker that accepts would sleep for milliseconds.
fn grow_descriptor_table(count: usize) {
    let last = i32::try_from(count).unwrap_or(i32::MAX) - 1;
    // If it fails, the table grows later.
    let _ = fcntl_dupfd_cloexec(io::stderr(), last);
}

/// Ends the process because a worker cannot wait for events. If it went on, the listeners of that worker
/// would stay open, and their clients would hang.
fn end_at_once(error: &io::Error) -> ! {
    say(&format!("a worker cannot wait for events: {error}; the server ends"));
    #[expect(clippy::exit, reason = "nothing else may run")]
    std::process::exit(1);
}

/// Makes a panic of any thread end the process, so that it never goes on without a worker.
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn many_workers_give_a_message_about_their_cost() {
        assert_eq!(cost_of_workers(8, 2), None);
        let text = cost_of_workers(300, 2).unwrap();
        assert!(
            text.starts_with("300 workers for 2 cores cost 330 to 24000 MiB of memory, 2400 "),
            "{text}"
        );
    }

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
