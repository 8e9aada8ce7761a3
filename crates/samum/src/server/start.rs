//! The threads of workers: the values that they get, and their steps from start to end.

use core::time::Duration;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, mpsc};
use std::thread;

use ring::{Choice, Ring, Silences, Waker};
use rustix::io::Errno;
use sendfile::{Devices, PageCache};
use tls::{Acceptors, WorkerAcceptors};

use crate::attached;
use crate::control::{Inbox, Workers};
use crate::crowd::Crowd;
use crate::descriptors;
use crate::exit::exit;
use crate::network::{Listeners, Network};
use crate::roots::Root;
use crate::secure::Secure;
use crate::shares::Shares;
use crate::worker::{Parts, Remainder, Worker};
use config::{Log, Server};
use handler::serving::Snapshot;
use handler::status_page::Board;
use logs::say::say;
use metrics::Metrics;
use session::Http;
use session::kind;
use session::other_protocol::Reported;

/// The time after that of responses for writing the logs, and then for writing recorded frames.
const LOGS_MAX: Duration = Duration::from_secs(2);

/// The worker of a server over a network. Only this type decides which protocol connections speak.
type ServerWorker<N> = Worker<Http, N>;

/// The workers that have started.
pub(super) struct Started {
    pub(super) workers: Workers,
    /// The name of their driver.
    pub(super) driver: String,
    /// Gives the result of each worker when it ends: the connections that it has cut off.
    // Not by `join`: a thread whose calls on a dead disk are under way in the kernel's workers does not
    // end before they do.
    pub(super) ends: Receiver<Result<Remainder, String>>,
}

/// The source of a worker's connections.
pub(super) enum ConnectionSource {
    /// Listening sockets of the kernel, with the numbers of their listeners.
    Listeners(Vec<(u32, OwnedFd)>),
    /// A receive queue of an interface.
    Interface(Box<interface::Seed>),
}

/// The values that all workers share.
#[derive(Clone)]
pub(super) struct Shared {
    snapshot: Arc<Snapshot>,
    /// The open directories of [`Snapshot::roots`].
    roots: Vec<Arc<OwnedFd>>,
    pub(super) metrics: Arc<Metrics>,
    driver: Choice,
    crowd: Arc<Crowd>,
    page_cache: Arc<PageCache>,
    devices: Arc<Devices>,
    silences: Arc<Silences<String>>,
    reported: Arc<Reported>,
    board: Arc<Board>,
    acceptors: Arc<Acceptors>,
    /// Descriptors of each worker for connections and files.
    descriptors: usize,
}

impl Shared {
    pub(super) fn new(
        server: &Server,
        snapshot: &Arc<Snapshot>,
        roots: &[Root],
        shares: Shares,
        page_cache: PageCache,
        acceptors: &Arc<Acceptors>,
    ) -> Self {
        Self {
            snapshot: Arc::clone(snapshot),
            roots: roots.iter().map(|root| Arc::clone(&root.directory)).collect(),
            metrics: Metrics::new(shares.workers),
            driver: server.driver,
            crowd: Crowd::new(shares.connections),
            page_cache: Arc::new(page_cache),
            devices: Arc::new(Devices::default()),
            silences: Arc::new(Silences::default()),
            reported: Arc::default(),
            board: Arc::default(),
            acceptors: Arc::clone(acceptors),
            descriptors: shares.descriptors,
        }
    }
}

/// Starts a worker for each source of connections, and waits until all have started.
pub(super) fn start_workers(
    shared: Shared,
    sources: Vec<ConnectionSource>,
    logs: Vec<(Log, OwnedFd)>,
) -> Result<Started, String> {
    let count = sources.len();
    let (mut workers, inboxes) = Workers::new(count);
    let (started, starts) = mpsc::channel();
    let (ended, ends) = mpsc::channel();
    for ((number, source), inbox) in sources.into_iter().enumerate().zip(inboxes) {
        let logs = logs.iter().map(|(log, file)| Ok((log.clone(), duplicate(file)?)));
        let logs = logs.collect::<Result<_, String>>()?;
        let seed = Seed { number, source, logs, shared: shared.clone() };
        let started = started.clone();
        let ended = ended.clone();
        let body = move || {
            let result = seed.run(inbox, &started);
            // The call fails if the main thread has given up.
            let _ = ended.send(result);
        };
        let spawned = thread::Builder::new().name(format!("worker-{number}")).spawn(body);
        spawned.map_err(|error| format!("cannot start a worker: {error}"))?;
    }
    drop((started, ended));
    // The workers have duplicates of all this. A copy here would outlive theirs after a replacement: the old file of a
    // reopened log, the old directory of a root, the old configuration.
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

/// The values from which a worker's thread makes its worker.
struct Seed {
    /// The number of the worker.
    number: usize,
    source: ConnectionSource,
    /// The open files of [`Snapshot::logs`].
    logs: Vec<(Log, OwnedFd)>,
    shared: Shared,
}

/// Reports the start of a worker: its waker and the name of its driver, or an error.
type StartReport = mpsc::Sender<Result<(Waker, String), String>>;

impl Seed {
    fn run(mut self, inbox: Inbox, started: &StartReport) -> Result<Remainder, String> {
        match core::mem::replace(&mut self.source, ConnectionSource::Listeners(Vec::new())) {
            ConnectionSource::Listeners(sockets) => self.serve(inbox, started, |ring| {
                let sockets = sockets.into_iter();
                Ok(Listeners::numbered(sockets.map(|(number, fd)| (number, ring.adopt_socket(fd)))))
            }),
            ConnectionSource::Interface(seed) => {
                self.serve(inbox, started, |ring| seed.start(ring))
            }
        }
    }

    fn serve<N: Network>(
        self,
        mut inbox: Inbox,
        started: &StartReport,
        network: impl FnOnce(&mut Ring) -> Result<N, String>,
    ) -> Result<Remainder, String> {
        let (mut worker, waker, driver) = match self.worker(network) {
            Ok(worker) => worker,
            Err(error) => {
                // The main thread reports the error.
                let _ = started.send(Err(error));
                return Ok(Remainder::default());
            }
        };
        // The call fails if the main thread has already given up.
        let _ = started.send(Ok((waker, driver)));
        while !inbox.is_stopped() && !worker.is_ending() {
            worker.turn(None).unwrap_or_else(|error| end_at_once(&error));
            inbox.obey(&mut worker);
        }
        let (at_stop, at_upgrade) = worker.timeout_drain();
        let mut until = worker.ring().now() + at_upgrade;
        let mut is_stopping = false;
        loop {
            if !is_stopping && inbox.is_stopped() {
                is_stopping = true;
                worker.shut_down();
                until = until.min(worker.ring().now() + at_stop);
            }
            if worker.has_shut_down() || worker.ring().now() >= until {
                break;
            }
            worker.turn(Some(until)).unwrap_or_else(|error| end_at_once(&error));
            inbox.obey(&mut worker);
        }
        worker.end();
        let until = worker.ring().now() + LOGS_MAX;
        let cut = worker.cut_off(until);
        let lost = worker.write_logs(until);
        if lost > 0 {
            let lines = if lost == 1 {
                "1 line of the access log is"
            } else {
                &format!("{lost} lines of the access log are")
            };
            say(&format!("{lines} lost"));
        }
        worker.end_network(LOGS_MAX);
        // A drop of the ring waits for its calls, and a call may sleep for ever on a dead network file system. The
        // process exits next, which frees everything.
        core::mem::forget(worker);
        Ok(cut)
    }

    fn worker<N: Network>(
        self,
        network: impl FnOnce(&mut Ring) -> Result<N, String>,
    ) -> Result<(ServerWorker<Secure<N>>, Waker, String), String> {
        let Self { number, logs, shared, .. } = self;
        let choice = shared.driver;
        let mut ring = Ring::new(choice).map_err(|error| no_ring(choice, &error))?;
        let driver = ring.to_string();
        let waker =
            ring.waker(kind::WAKE).map_err(|error| format!("cannot make a waker: {error}"))?;
        shared.crowd.join(waker.clone());
        let notes = io::stderr().as_fd().try_clone_to_owned().ok();
        let acceptors = WorkerAcceptors::new(shared.acceptors);
        let network = Secure::new(network(&mut ring)?, acceptors, shared.snapshot.listeners());
        let parts = Parts {
            listeners: Vec::new(),
            snapshot: shared.snapshot,
            roots: shared.roots.into_iter().map(|fd| ring.share_file(fd)).collect(),
            crowd: shared.crowd,
            page_cache: shared.page_cache,
            devices: shared.devices,
            silences: shared.silences,
            reported: shared.reported,
            board: shared.board,
            descriptors_max: descriptors::files(shared.descriptors),
            logs: logs.into_iter().map(|(log, file)| (log, ring.adopt_file(file))).collect(),
            metrics: (shared.metrics, number),
            notes: notes.map(|fd| ring.adopt_file(fd)),
            attachments: attached::attachments(),
            ring,
        };
        let worker = ServerWorker::over(parts, network)
            .map_err(|error| format!("cannot get memory: {error}"))?;
        Ok((worker, waker, driver))
    }
}

fn no_ring(choice: Choice, error: &io::Error) -> String {
    let name = match choice {
        Choice::Epoll => "epoll",
        Choice::Uring => "io_uring",
        Choice::Auto => "io_uring or epoll",
    };
    // Other errors do not come from the driver.
    let is_missing =
        matches!(Errno::from_io_error(error), Some(Errno::PERM | Errno::NOSYS | Errno::INVAL));
    let advice = if choice == Choice::Uring && is_missing {
        " (it needs Linux 6.1, and containers often forbid it; --driver auto falls back to epoll)"
    } else {
        ""
    };
    format!("cannot use {name}: {error}{advice}")
}

fn duplicate(fd: &OwnedFd) -> Result<OwnedFd, String> {
    fd.try_clone().map_err(|error| format!("cannot duplicate a descriptor: {error}"))
}

/// Ends the process because a worker cannot wait for events. Otherwise the listeners of that worker would stay open,
/// and their clients would hang.
fn end_at_once(error: &io::Error) -> ! {
    say(&format!("a worker cannot wait for events: {error}; the server ends"));
    exit(1);
}
