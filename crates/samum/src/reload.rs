//! Replaces the configuration while the server runs: all of it, or nothing.
//!
//! A thread of its own reads the configuration, and opens the parts that are new in it. It may sleep, and no worker
//! waits for it. The workers get their orders only when everything has succeeded. Requests for a reload that come while
//! one is under way are all answered by the next one.
//!
//! Trees whose directory and rules are the same keep their cache. Numbers of listeners are never used again. The accept
//! queue of a removed listener is emptied before the listener is closed. Each of its connections ends after the
//! response under way, or else after its next one, by the configuration that had the listener. Handshakes that are not
//! complete are still reset. Old snapshots are dropped by this thread, because to free 100,000 routes takes
//! milliseconds.

use core::time::Duration;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use crate::certificates::{Certificates, system_roots};
use crate::confine::Confinement;
use crate::control::{CONFIGURE_MAX, Configuration, Workers};
use crate::keeper::{self, Keeper};
use crate::listen::{self, Former, Rights, SocketFile, SocketFiles};
use crate::roots::{Root, Roots};
use crate::shares::Room;
use crate::{descriptor_store, notify};
use config::file::{Errors, Loaded};
use config::{Address, Listen, Log, Server, Thing};
use handler::serving::Snapshot;
use interface::Owners;
use logs::files::{self, OpenLogs};
use logs::say::say;
use metrics::Metrics;

/// The time between two looks at configurations that were replaced and are still in use.
const LOOK_PAUSE: Duration = Duration::from_secs(1);

/// Reads the configuration.
pub type Source = Box<dyn FnMut() -> Result<Loaded, Errors> + Send>;

/// The receiver of a reload's result: the hash of the loaded configuration, or an error for the operator.
pub(crate) type Reply = Sender<Result<String, String>>;

/// The configuration that is served, as an upgrade sees it. It is locked while it is replaced, and while a new process
/// gets its listeners.
#[derive(Debug)]
pub(crate) struct Current {
    /// The listeners with their numbers.
    pub(crate) listeners: Vec<(u32, Listen)>,
    /// True once another process has replaced this one.
    pub(crate) is_replaced: bool,
}

/// The sentence after the errors of a configuration that is refused.
const KEPT: &str = "the configuration is not loaded; the one before is still served";
/// The error of a reload in a process that was replaced.
pub(crate) const REPLACED: &str =
    "another process has replaced this one, and loads configurations now";

/// The thread's state for replacing configurations.
pub(crate) struct Reloader {
    pub(crate) source: Source,
    /// The configuration that is served.
    pub(crate) served: Arc<Snapshot>,
    pub(crate) current: Arc<Mutex<Current>>,
    /// The settings with which the process was started.
    pub(crate) server: Server,
    pub(crate) workers: Arc<Workers>,
    pub(crate) roots: Arc<Roots>,
    pub(crate) socket_files: Arc<SocketFiles>,
    pub(crate) logs: Arc<OpenLogs>,
    pub(crate) room: Room,
    /// The interfaces, and the listeners that only they serve.
    pub(crate) owners: Owners,
    /// The number of all workers, those of interfaces included.
    pub(crate) count: usize,
    /// The number of connections that may wait at all listeners of a worker.
    pub(crate) waiting_max: usize,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) certificates: Arc<Certificates>,
    pub(crate) keeper: Arc<Keeper>,
    pub(crate) confinement: Confinement,
    /// Earlier configurations that some requests may still use. The last reference is dropped here: to free 100,000
    /// routes takes milliseconds, for which no worker may stop.
    pub(crate) before: Vec<Arc<Snapshot>>,
    /// The number of a worker that has not begun to serve the last configuration in time.
    pub(crate) late: Option<usize>,
}

/// A directory of the next configuration.
enum RootSource {
    /// The directory is served already, with this index.
    Served(usize),
    New(Root),
}

/// A listener that is new.
struct Opened {
    number: u32,
    name: String,
    /// `Some` if the kernel has chosen it.
    port: Option<u16>,
    /// A socket for each worker; none if an interface has the port.
    sockets: Vec<OwnedFd>,
    file: Option<SocketFile>,
}

impl Reloader {
    /// Carries out reloads as long as the process runs. A reload for a signal has no reply.
    pub(crate) fn run(mut self, requests: &Receiver<Option<Reply>>) {
        loop {
            let first = if self.before.is_empty() {
                requests.recv().map_err(|_| RecvTimeoutError::Disconnected)
            } else {
                requests.recv_timeout(LOOK_PAUSE)
            };
            match first {
                Ok(first) => {
                    let mut replies: Vec<Reply> = first.into_iter().collect();
                    replies.extend(requests.try_iter().flatten());
                    let result = self.reload();
                    for reply in replies {
                        // The call fails if the client has gone.
                        let _ = reply.send(result.clone());
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            self.before.retain(|snapshot| Arc::strong_count(snapshot) > 1);
            if self.before.is_empty() {
                // A worker keeps the configuration of a removed listener as long as connections may wait there.
                self.certificates.forget_removed();
            }
        }
    }

    /// Loads the configuration again, and returns what the operator is told: the hash of what was loaded, and lines
    /// of warnings. If that fails, the one before is still served.
    fn reload(&mut self) -> Result<String, String> {
        let current = Arc::clone(&self.current);
        self.late = None;
        let mut current = current.lock().unwrap_or_else(PoisonError::into_inner);
        if current.is_replaced {
            say(REPLACED);
            return Err(REPLACED.to_owned());
        }
        notify::tell_reload();
        let result = self.load().map_err(|error| match self.confinement.advice(&error) {
            Some(advice) => format!("{error}\n{advice}"),
            None => error,
        });
        notify::tell("READY=1");
        current.listeners = self.served.listeners().to_vec();
        let files = &self.socket_files;
        descriptor_store::update(&current.listeners, files, || self.workers.sockets());
        drop(current);
        match &result {
            Ok((digest, _)) => self.metrics.note_load(Some(digest), SystemTime::now()),
            Err(error) => {
                // An error in a file has several lines of text. Those with the text of the file are for the log only.
                let lines = error.lines().filter(|line| !line.starts_with(' '));
                let shown: Vec<_> = lines.collect();
                self.metrics.note_failed_load(&shown.join("\n"), SystemTime::now());
                error.lines().for_each(say);
                say(KEPT);
            }
        }
        let (digest, notes) = result.map_err(|error| format!("{error}\n{KEPT}"))?;
        match self.late {
            None => Ok([vec![digest], notes].concat().join("\n")),
            Some(number) => {
                let text = format!(
                    "loaded the configuration {digest}, but worker-{number} has not begun to serve it within {} s: its \
                     clients get the one before (`samum health` says whether all workers turn; if that one does not go \
                     on, restart the server)",
                    CONFIGURE_MAX.as_secs()
                );
                say(&text);
                Err(text)
            }
        }
    }

    /// Returns the hash of the loaded configuration, and sentences about it for the operator.
    fn load(&mut self) -> Result<(String, Vec<String>), String> {
        let loaded = (self.source)().map_err(text_of)?;
        self.confinement.check(&loaded)?;
        keeper::make_storage(&loaded, None)?;
        let mut reading = self.certificates.read(&loaded).map_err(text_of)?;
        let next = Arc::new(
            self.served
                .successor_with_tls(&loaded.config, |upstream| reading.upstreams.of(upstream))?,
        );
        self.room.check(&self.served, &next)?;
        let roots = self.open_roots(&next, &loaded)?;
        let logs = self.open_logs(&next, &loaded)?;
        let said = core::mem::take(&mut reading.said);
        let doubts = core::mem::take(&mut reading.warnings);
        let listeners = self.open_listeners(&next)?;
        let rights = self.look_up_rights(&next)?;
        next.resolve_names()?;
        let ports = listeners.iter().filter_map(|opened| Some((opened.number, opened.port?)));
        let ports = ports.collect();
        let certificates = Arc::clone(&self.certificates);
        let shown = certificates.replace(reading, next.listeners(), &ports)?;
        let before = listen::change_rights(&rights)?;
        let replaced = self.replace(&next, roots, logs, listeners);
        replaced.inspect_err(|_| before.iter().for_each(Former::restore))?;
        shown.complete();
        self.keeper.keep(&loaded.config, &system_roots());
        said.iter().for_each(|text| say(text));
        let Loaded { config, digest, warnings, .. } = loaded;
        let warnings = warnings.iter().chain(&doubts).map(ToString::to_string);
        let notes = warnings.chain(self.needs_restart(&config.server));
        let notes: Vec<_> = notes.chain(self.confinement.losses()).collect();
        // A warning has a line of text, and perhaps two of the file.
        notes.iter().flat_map(|text| text.lines()).for_each(say);
        let digest = digest.unwrap_or_default();
        say(&format!("loaded the configuration {digest}: {}", summary(&next)));
        Ok((digest, notes))
    }

    /// Opens the directories. A directory that is served already is not kept open twice.
    fn open_roots(&self, next: &Snapshot, loaded: &Loaded) -> Result<Vec<RootSource>, String> {
        let served = self.roots.list();
        let by_path: HashMap<&PathBuf, usize> = self.served.roots().iter().zip(0..).collect();
        let find = |path: &PathBuf| {
            let root = Root::open(path)
                .map_err(|why| loaded.error(&Thing::Directory(path.clone()), &why).to_string())?;
            let same = by_path.get(path).copied();
            let same = same.filter(|index| served[*index].is_same(&root));
            Ok(same.map_or(RootSource::New(root), RootSource::Served))
        };
        next.roots().iter().map(find).collect()
    }

    /// Opens the logs that are not open yet, for each worker.
    fn open_logs(
        &self,
        next: &Snapshot,
        loaded: &Loaded,
    ) -> Result<Vec<Vec<(Log, OwnedFd)>>, String> {
        let served: HashSet<Log> = self.served.logs().into_iter().collect();
        let mut all: Vec<_> = (0..self.count).map(|_| Vec::new()).collect();
        for log in next.logs().into_iter().filter(|log| !served.contains(log)) {
            let file = files::open(&log.target).map_err(|why| match log.target.path() {
                Some(path) => loaded.error(&Thing::Log(path.to_owned()), &why).to_string(),
                None => why,
            })?;
            for logs in &mut all {
                let file = file.try_clone();
                let file =
                    file.map_err(|error| format!("cannot duplicate a descriptor: {error}"))?;
                logs.push((log.clone(), file));
            }
        }
        Ok(all)
    }

    /// Opens the listeners that are not open yet.
    fn open_listeners(&self, next: &Snapshot) -> Result<Vec<Opened>, String> {
        let numbers: HashSet<u32> =
            self.served.listeners().iter().map(|(number, _)| *number).collect();
        let backlog = listen::backlog(self.waiting_max, next.listeners().len());
        let mut all = Vec::new();
        for (number, listen) in next.listeners() {
            if numbers.contains(number) {
                continue;
            }
            let (number, address) = (*number, &listen.address);
            if let Some(local) = self.owners.taken(address) {
                let name = config::url(local, listen.tls);
                all.push(Opened { number, name, port: None, sockets: Vec::new(), file: None });
                continue;
            }
            if let Some(interface) = self.owners.owner(address) {
                return Err(format!(
                    "cannot listen on {address}: it is an address of the interface {interface}, which takes new \
                     listeners at a restart only"
                ));
            }
            let opened = listen::open(address, self.room.threads, backlog);
            let (sockets, file) = opened.map_err(|error| self.explain(address, error))?;
            let name = listen::name(&sockets[0], listen);
            let port = listen::chosen_port(&sockets[0], address);
            all.push(Opened { number, name, port, sockets, file });
        }
        Ok(all)
    }

    /// Adds to an error that a listener of this server is the cause, if so.
    fn explain(&self, address: &Address, error: String) -> String {
        let port = address.port();
        let mut served = self.served.listeners().iter().map(|(_, listen)| &listen.address);
        match served.find(|other| port.is_some() && other.port() == port) {
            Some(other) => format!(
                "{error}; this server listens on {other}: if that is in the way, leave out both, reload, \
                 and add {address} then, or restart the server"
            ),
            None => error,
        }
    }

    /// Finds the Unix sockets whose rights differ in the next configuration.
    fn look_up_rights<'s>(&self, next: &'s Snapshot) -> Result<Vec<Rights<'s>>, String> {
        let served: BTreeMap<u32, &Address> = (self.served.listeners().iter())
            .map(|(number, listen)| (*number, &listen.address))
            .collect();
        let others = next.listeners().iter().filter_map(|(number, listen)| {
            match (&listen.address, served.get(number)?) {
                (Address::Unix(socket), Address::Unix(before)) if socket != before => {
                    let identity = self.socket_files.identity(*number);
                    Some(Rights::look_up(socket, before, identity))
                }
                _ => None,
            }
        });
        others.collect()
    }

    /// Gives the workers the next configuration. This is the last step that can fail.
    fn replace(
        &mut self,
        next: &Arc<Snapshot>,
        found: Vec<RootSource>,
        mut logs: Vec<Vec<(Log, OwnedFd)>>,
        listeners: Vec<Opened>,
    ) -> Result<(), String> {
        let mut removed = Vec::new();
        let mut names = Vec::new();
        let mut files = Vec::new();
        let roots = Arc::clone(&self.roots);
        roots.replace(|served| {
            let mut same = Vec::new();
            let mut roots = Vec::new();
            for found in found {
                let (index, root) = match found {
                    // By now the directory may have been replaced or lost; a loss is reported.
                    RootSource::Served(index) => (Some(index), served[index].clone()),
                    RootSource::New(root) => (None, root),
                };
                same.push(index);
                roots.push(root);
            }
            let succession = Arc::new(self.served.succession(next, |root| same[root]));
            let new: BTreeMap<usize, _> = next
                .new_roots(&succession)
                .map(|root| (root, Arc::clone(&roots[root].directory)))
                .collect();
            let mut orders: Vec<_> = (0..self.count)
                .map(|_| Configuration {
                    snapshot: Arc::clone(next),
                    succession: Arc::clone(&succession),
                    roots: new.iter().map(|(root, fd)| (*root, Arc::clone(fd))).collect(),
                    listeners: Vec::new(),
                    logs: logs.pop().unwrap_or_default(),
                })
                .collect();
            for Opened { number, name, sockets, file, .. } in listeners {
                for (order, socket) in orders.iter_mut().zip(sockets) {
                    order.listeners.push((number, socket));
                }
                names.push(name);
                files.extend(file.map(|file| (number, file)));
            }
            removed.extend_from_slice(succession.removed());
            // The names are removed before the sockets are closed, so that no successor mistakes the names for stale
            // ones.
            self.socket_files.remove(&removed);
            let given = self.workers.configure(orders);
            self.late = given.map_err(|error| format!("a worker takes no orders: {error}"))?;
            Ok(roots)
        })?;
        self.socket_files.add(files);
        self.logs.replace(next.logs());
        let gone = self.served.listeners().iter().filter(|(number, _)| removed.contains(number));
        for (_, Listen { address, .. }) in gone {
            let still = self.owners.owner(address).map(|interface| {
                format!("; the interface {interface} keeps the port until a restart")
            });
            say(&format!("no longer listening on {address}{}", still.unwrap_or_default()));
        }
        names.iter().for_each(|name| say(&format!("listening on {name}")));
        self.say_changes_of_tls(next);
        self.before.push(core::mem::replace(&mut self.served, Arc::clone(next)));
        Ok(())
    }

    /// Reports listeners that stay, and speak TLS now, or do no more.
    fn say_changes_of_tls(&self, next: &Snapshot) {
        let before = self.served.listeners().iter();
        let before: HashMap<u32, bool> =
            before.map(|(number, listen)| (*number, listen.tls)).collect();
        for (number, Listen { address, tls, .. }) in next.listeners() {
            match before.get(number) {
                Some(false) if *tls => say(&format!("{address} speaks TLS now")),
                Some(true) if !*tls => say(&format!("{address} speaks no TLS any more")),
                _ => {}
            }
        }
    }

    /// Sentences about settings that cannot change while the server runs.
    fn needs_restart(&self, next: &Server) -> Vec<String> {
        let now = &self.server;
        let all = [
            ("threads", now.threads != next.threads),
            ("driver", now.driver != next.driver),
            ("interface", now.interfaces != next.interfaces),
            ("frames", now.frames != next.frames),
            ("congestion", now.congestion != next.congestion),
            ("pcap", now.capture != next.capture),
            ("control", now.control != next.control),
            ("error-format", now.error_format != next.error_format),
            ("user", now.user != next.user),
            ("confine", now.confine() != next.confine()),
            ("max-connections", now.tuning.connections_max != next.tuning.connections_max),
        ];
        let changed = all.into_iter().filter(|(_, is_other)| *is_other);
        // The stack of an interface ends with its process.
        let how = if now.interfaces.is_empty() && next.interfaces.is_empty() {
            " or `samum upgrade`"
        } else {
            ""
        };
        changed.map(|(name, _)| format!("`{name}`: takes effect after a restart{how}")).collect()
    }
}

fn text_of(errors: Errors) -> String {
    let all: Vec<_> = errors.0.iter().map(ToString::to_string).collect();
    all.join("\n")
}

/// The size of a configuration.
pub(crate) fn summary(snapshot: &Snapshot) -> String {
    let plural = |count: usize, one: &str, many: &str| {
        if count == 1 { format!("1 {one}") } else { format!("{count} {many}") }
    };
    [
        plural(snapshot.sites_len(), "site", "sites"),
        plural(snapshot.routes_len(), "route", "routes"),
        plural(snapshot.roots().len(), "directory", "directories"),
        plural(snapshot.listeners().len(), "listener", "listeners"),
    ]
    .join(", ")
}
