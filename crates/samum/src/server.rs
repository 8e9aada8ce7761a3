//! Starts all workers, carries out signals, and shuts down.

mod reach;
mod signals;
mod start;

use core::net::SocketAddr;
use core::time::Duration;
use std::collections::HashMap;
use std::io::{self, PipeReader};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::SystemTime;

use sendfile::PageCache;
use signal_hook::iterator::Signals;
use tls::{Acceptors, TicketKeys};

use crate::activation::Activation;
use crate::certificates::{self, Certificates, Reading};
use crate::confine::{self, Confinement};
use crate::control::Workers;
use crate::control_socket::Commands;
use crate::exit::{self, let_go};
use crate::keeper::{self, Keeper};
use crate::listen::{SocketFile, SocketFiles};
use crate::reload::{Current, Reloader, Reply, Source, summary};
use crate::roots::{Root, Roots};
use crate::shares::{
    DESCRIPTORS_AT_ONCE, Shares, cost_of_workers, grow_descriptor_table, room, share,
};
use crate::upgrade::{self, Elders, Inheritance, Origin, Reporter, Upgrader};
use crate::worker::Remainder;
use crate::{
    account, control_socket, descriptor_store, descriptors, listen, memory, notify, watchdog,
};
use config::file::{Errors, Loaded};
use config::{Config, Log, Server};
use gateways::programs::supervisor;
use handler::serving::Snapshot;
use interface::{Interfaces, Owners};
use logs::files::{self, OpenLogs};
use logs::say::{say, say_about, set_format};
use metrics::Metrics;
use signals::{SIGNALS, Wishes, obey_signals, reopen_logs};
use start::{ConnectionSource, Shared, Started, start_workers};

/// The time for commands that are under way when another process has replaced this one, and all connections have ended.
const COMMANDS_MAX: Duration = Duration::from_secs(60);
/// The time for the process before to say, after this one was stopped, which of the two serves.
const DECISION_MAX: Duration = Duration::from_secs(5);
/// Requests for a reload that may wait at the same time. One reload answers all that wait.
const RELOADS_MAX: usize = 16;

/// Serves until a signal stops it. The configuration cannot be replaced.
///
/// The server has the process for itself. It handles the signals of the process, ends it when a thread panics, and
/// shuts down all sockets that were opened since its origin was found.
///
/// # Errors
///
/// A message for the operator.
pub fn run(config: &Config, origin: Origin) -> Result<(), String> {
    serve(Loaded::of(config.clone()), None, origin)
}

/// Serves a configuration until a signal stops it. At each reload it is replaced by the one that the source reads.
///
/// # Errors
///
/// A message for the operator.
pub fn run_reloadable(loaded: Loaded, source: Source, origin: Origin) -> Result<(), String> {
    serve(loaded, Some(source), origin)
}

fn serve(loaded: Loaded, source: Option<Source>, origin: Origin) -> Result<(), String> {
    set_format(loaded.config.server.error_format);
    let reporter = origin.reporter();
    run_workers(loaded, source, origin).inspect_err(|why| reporter.fail(why))
}

fn run_workers(loaded: Loaded, source: Option<Source>, mut origin: Origin) -> Result<(), String> {
    let snapshot = Arc::new(Snapshot::new(&loaded.config)?);
    end_on_panic();
    let reporter = origin.reporter();
    let (drain_at_stop, _) = loaded.config.server.tuning.drain_times();
    let mut inheritance = take_inheritance(&loaded.config.server, &mut origin)?;
    let mut activation = core::mem::take(&mut origin.activation);
    let is_replaceable = source.is_some();
    let prepared =
        prepare(&loaded, &snapshot, is_replaceable, inheritance.as_mut(), &mut activation)?;
    let running =
        Running::start(&loaded, is_replaceable, snapshot, prepared, inheritance.as_ref())?;
    let supervised =
        running.supervise(loaded, source, origin.line, reporter, inheritance.is_some())?;
    supervised.take_over(inheritance)?.wait(drain_at_stop)
}

/// Takes the sockets and keys of the process before, if there is one.
fn take_inheritance(server: &Server, origin: &mut Origin) -> Result<Option<Inheritance>, String> {
    let inheritance = origin.take_inheritance();
    if !server.interfaces.is_empty() {
        origin.line = Err("the TCP/IP stack of an interface ends with its process".to_owned());
        if inheritance.is_some() {
            return Err("a server with an `interface` cannot replace another process: restart it"
                .to_owned());
        }
    }
    Ok(inheritance)
}

/// The server once its workers run. Nothing replaces its configuration yet, and its signals wait.
struct Running {
    snapshot: Arc<Snapshot>,
    shares: Shares,
    signals: Signals,
    workers: Arc<Workers>,
    ends: Receiver<Result<Remainder, String>>,
    roots: Arc<Roots>,
    acceptors: Arc<Acceptors>,
    certificates: Arc<Certificates>,
    metrics: Arc<Metrics>,
    socket_files: Arc<SocketFiles>,
    control: Option<Control>,
    owners: Owners,
    reserved: HashMap<SocketAddr, OwnedFd>,
    confinement: Confinement,
}

impl Running {
    /// Starts the workers, and reports what they serve.
    fn start(
        loaded: &Loaded,
        is_replaceable: bool,
        snapshot: Arc<Snapshot>,
        prepared: Prepared,
        inheritance: Option<&Inheritance>,
    ) -> Result<Self, String> {
        let Prepared { shares, roots, logs, sources, texts, ports, reading, page_cache, .. } =
            prepared;
        let Prepared { socket_files, control, owners, reserved, confinement, .. } = prepared;
        let server = &loaded.config.server;
        snapshot.set_upstream_tls(|upstream| reading.upstreams.of(upstream));
        // The signals are taken before any thread starts, so that no signal meets its default action.
        let signals =
            Signals::new(SIGNALS).map_err(|error| format!("cannot catch signals: {error}"))?;
        supervisor::adopt_orphans();
        snapshot.resolve_names()?;

        let acceptors = Acceptors::new();
        let shared = Shared::new(server, &snapshot, &roots, shares, page_cache, &acceptors);
        let metrics = Arc::clone(&shared.metrics);
        metrics.note_load(loaded.digest.as_deref(), SystemTime::now());
        let tickets = inheritance.and_then(|all| TicketKeys::from_bytes(&all.tickets));
        let tickets = tickets.unwrap_or_default();
        let certificates = Certificates::new(Arc::clone(&acceptors), tickets, Arc::clone(&metrics));
        let (said, warnings) = (reading.said.clone(), reading.warnings.clone());
        certificates.replace(reading, snapshot.listeners(), &ports)?.complete();
        certificates.forget_handed_over();
        let Started { workers, driver, ends } = start_workers(shared, sources, logs)?;
        texts.iter().chain(&said).for_each(|text| say(text));
        warnings.iter().for_each(say_about);
        if let Some(place) = reach::RunsIn::of_process() {
            say(&reach::describe(place, snapshot.listeners(), &ports));
        }
        let from_files = is_replaceable.then_some(loaded);
        announce(&snapshot, from_files, shares, server.tuning.connections_max, &driver);

        workers.set_served(Arc::clone(&snapshot));
        let workers = Arc::new(workers);
        let roots = Roots::new(roots, Arc::clone(&workers));
        Ok(Self {
            snapshot,
            shares,
            signals,
            workers,
            ends,
            roots,
            acceptors,
            certificates,
            metrics,
            socket_files,
            control,
            owners,
            reserved,
            confinement,
        })
    }

    /// Starts the threads that act for operators: those that reopen logs, get certificates, and replace the configuration.
    fn supervise(
        self,
        loaded: Loaded,
        source: Option<Source>,
        line: Result<OwnedFd, String>,
        reporter: Reporter,
        is_successor: bool,
    ) -> Result<Supervised, String> {
        let logs = Arc::new(OpenLogs::new(self.snapshot.logs()));
        let reopen = start_reopener(Arc::clone(&logs), Arc::clone(&self.workers))?;
        let (reload, reloads) = mpsc::sync_channel(RELOADS_MAX);
        let listeners = self.snapshot.listeners().to_vec();
        let current = Arc::new(Mutex::new(Current { listeners, is_replaced: false }));
        let keeper = self.keeper(&current);
        keeper.keep(&loaded.config, &certificates::system_roots());
        let elders = Arc::new(Elders::default());
        let (commands_end, commands) =
            io::pipe().map_err(|error| format!("cannot make a pipe: {error}"))?;
        let parts = self.upgrade_parts(line, &current, &elders);
        let upgrader = Arc::new(Upgrader::new(parts, commands, is_successor));
        let wishes = Wishes {
            reopen,
            reload: source.is_some().then(|| reload.clone()),
            upgrader: Arc::clone(&upgrader),
            elders: Arc::clone(&elders),
            reporter,
        };
        let Self { signals, workers, ends, socket_files, control, reserved, shares, .. } = self;
        if let Some(source) = source {
            let reloader = Reloader {
                source,
                served: self.snapshot,
                current: Arc::clone(&current),
                server: loaded.config.server.clone(),
                workers: Arc::clone(&workers),
                roots: self.roots,
                socket_files: Arc::clone(&socket_files),
                logs,
                room: shares.room,
                owners: self.owners,
                count: shares.workers,
                waiting_max: shares.waiting_max(),
                metrics: self.metrics,
                certificates: self.certificates,
                keeper,
                confinement: self.confinement,
                before: Vec::new(),
                late: None,
            };
            start_reloader(reloader, loaded, reloads)?;
        }
        let control = control.map(|(path, (listener, file))| {
            socket_files.add([(listen::CONTROL, file)]);
            let (workers, upgrader) = (Arc::clone(&workers), Some(Arc::clone(&upgrader)));
            (listener, Commands { reloads: reload, workers, upgrader, path })
        });
        let count = shares.workers;
        Ok(Supervised {
            signals,
            wishes,
            workers,
            count,
            ends,
            current,
            socket_files,
            control,
            commands_end,
            upgrader,
            elders,
            reserved,
        })
    }

    /// The thread that gets certificates by ACME, before it has any to get.
    fn keeper(&self, current: &Arc<Mutex<Current>>) -> Arc<Keeper> {
        let current = Arc::clone(current);
        let is_replaced =
            move || current.lock().unwrap_or_else(PoisonError::into_inner).is_replaced;
        Keeper::new(self.snapshot.challenges(), Arc::clone(&self.acceptors), is_replaced)
    }

    /// The parts of the server that an upgrade hands over.
    fn upgrade_parts(
        &self,
        line: Result<OwnedFd, String>,
        current: &Arc<Mutex<Current>>,
        elders: &Arc<Elders>,
    ) -> upgrade::Parts {
        let duplicate = |(path, (listener, _)): &Control| {
            Some((path.clone(), listener.as_fd().try_clone_to_owned().ok()?))
        };
        upgrade::Parts {
            line,
            workers: Arc::clone(&self.workers),
            socket_files: Arc::clone(&self.socket_files),
            certificates: Arc::clone(&self.certificates),
            current: Arc::clone(current),
            control: self.control.as_ref().and_then(duplicate),
            elders: Arc::clone(elders),
        }
    }
}

/// The server once all threads run that act for operators. It obeys no signals and no commands yet.
struct Supervised {
    signals: Signals,
    wishes: Wishes,
    workers: Arc<Workers>,
    /// The number of workers.
    count: usize,
    ends: Receiver<Result<Remainder, String>>,
    current: Arc<Mutex<Current>>,
    socket_files: Arc<SocketFiles>,
    control: Option<(UnixListener, Commands)>,
    /// Ends the thread of the control socket.
    commands_end: PipeReader,
    upgrader: Arc<Upgrader>,
    elders: Arc<Elders>,
    reserved: HashMap<SocketAddr, OwnedFd>,
}

impl Supervised {
    /// Obeys signals and commands from now on: at once, or when the process before has let go.
    fn take_over(self, inheritance: Option<Inheritance>) -> Result<Ending, String> {
        let Self { signals, wishes, workers, socket_files, control, commands_end, .. } = self;
        let (served, commands_served) = mpsc::channel();
        let watcher = signals.handle();
        let (names, files) = (Arc::clone(&socket_files), Arc::clone(&socket_files));
        let made = Arc::clone(&socket_files);
        let watched = Arc::clone(&workers);
        let signals =
            spawn("signals", move || obey_signals(signals, &workers, &wishes, &socket_files))?;
        let (is_first, current) = (inheritance.is_none(), self.current);
        // The parts of which a server has one, and not each of its processes.
        let become_main = move || {
            if let Some((listener, commands)) = control {
                spawn("control", move || {
                    control_socket::serve(&listener, &commands_end, &commands);
                    // The call fails if the server stops, and waits for no command.
                    let _ = served.send(());
                })?;
            }
            let listeners =
                current.lock().unwrap_or_else(PoisonError::into_inner).listeners.clone();
            descriptor_store::update(&listeners, &files, || watched.sockets());
            watchdog::start(watched, is_first)
        };
        let decision = match inheritance {
            None => {
                // Sockets that the service manager has kept have files that no process removes.
                names.take_over();
                notify::begin();
                become_main()?;
                None
            }
            Some(inheritance) => {
                let upgrader = Arc::clone(&self.upgrader);
                let line = Arc::clone(&upgrader);
                let settled =
                    inheritance.settle(line.line(), Arc::clone(&self.elders), move || {
                        names.take_over();
                        if exit::is_stopping() {
                            return;
                        }
                        notify::succeed();
                        upgrader.settle();
                        if let Err(error) = become_main() {
                            say(&error);
                        }
                    });
                Some(settled.inspect_err(|_| made.close())?)
            }
        };
        let Self { count, ends, upgrader, elders, reserved, .. } = self;
        Ok(Ending {
            count,
            ends,
            watcher,
            signals,
            decision,
            commands_served,
            upgrader,
            elders,
            reserved,
        })
    }
}

/// What the end of the server waits for.
struct Ending {
    /// The number of workers.
    count: usize,
    ends: Receiver<Result<Remainder, String>>,
    watcher: signal_hook::iterator::Handle,
    /// The thread that obeys signals.
    signals: thread::JoinHandle<()>,
    /// Disconnected when it is decided whether this process replaces the process before; `None` without one.
    decision: Option<Receiver<()>>,
    /// Brings a message when the control socket is served no more.
    commands_served: Receiver<()>,
    upgrader: Arc<Upgrader>,
    elders: Arc<Elders>,
    reserved: HashMap<SocketAddr, OwnedFd>,
}

impl Ending {
    /// Waits until all workers have ended, and ends the rest.
    fn wait(self, drain_at_stop: Duration) -> Result<(), String> {
        let result = join(&self.ends, self.count);
        self.watcher.close();
        // The thread ends because the signals are closed; it has no result.
        let _ = self.signals.join();
        drop(self.reserved);
        supervisor::kill_all();
        // The process before may have let this one take over just before the stop. Then the names of its sockets have to be
        // removed, and the earlier processes to be told.
        if let Some(decision) = self.decision {
            let _ = decision.recv_timeout(DECISION_MAX);
        }
        if self.upgrader.is_replaced() {
            // A command may have been passed on to the process that has replaced this one.
            let _ = self.commands_served.recv_timeout(COMMANDS_MAX);
        }
        // Earlier processes have been told to end soon, unless a later one has them now.
        self.elders.wait(drain_at_stop);
        let_go();
        if let Some(text) = text_of(result?) {
            say(&text);
        }
        Ok(())
    }
}

/// A message about the connections that were closed although they were in use, if there are any.
fn text_of(Remainder { connections, tunnels }: Remainder) -> Option<String> {
    let were = match connections {
        0 => return None,
        1 => "1 connection was".to_owned(),
        count => format!("{count} connections were"),
    };
    let of_them = match tunnels {
        0 => String::new(),
        1 => ", 1 of them a tunnel".to_owned(),
        count => format!(", {count} of them tunnels"),
    };
    Some(format!("{were} cut off by the shutdown, still in use after `timeout-drain`{of_them}"))
}

/// The path of the control socket, the socket, and its file.
type Control = (PathBuf, (UnixListener, SocketFile));

/// The resources that the server opens before any thread starts.
struct Prepared {
    shares: Shares,
    /// The open directories of [`Snapshot::roots`].
    roots: Vec<Root>,
    /// The open files of [`Snapshot::logs`].
    logs: Vec<(Log, OwnedFd)>,
    /// The sources of connections, one for each worker.
    sources: Vec<ConnectionSource>,
    /// The addresses at which the server listens, for the operator.
    texts: Vec<String>,
    /// The ports that the kernel has chosen, by the numbers of listeners.
    ports: HashMap<u32, u16>,
    socket_files: Arc<SocketFiles>,
    /// The control socket and its path, if there is one.
    control: Option<Control>,
    owners: Owners,
    /// Sockets that keep addresses of interfaces from other programs until the server ends.
    reserved: HashMap<SocketAddr, OwnedFd>,
    /// The certificates and keys.
    reading: Reading,
    page_cache: PageCache,
    confinement: Confinement,
}

/// Opens the listeners, gives up the rights that only this needs, opens the directories and logs, and reads the keys.
fn prepare(
    loaded: &Loaded,
    snapshot: &Snapshot,
    is_replaceable: bool,
    mut inheritance: Option<&mut Inheritance>,
    activation: &mut Activation,
) -> Result<Prepared, String> {
    let server = &loaded.config.server;
    let user = server.user.as_ref().map(account::find_user).transpose()?;
    // If the call fails, programs (CGI) get the descriptors that the server itself has inherited.
    let _ = ring::keep_descriptors_from_programs();
    let limit = rights::descriptors::raise();
    let Interfaces { kernel, seeds, said, reserved, owners } =
        Interfaces::open(server, snapshot.listeners(), listen::reserve)?;
    activation.check(kernel.iter().map(|(_, listen)| &listen.address))?;
    let has_interfaces = !server.interfaces.is_empty();
    let has_sockets = !has_interfaces || !kernel.is_empty();
    let room = room(limit, server.threads, snapshot, is_replaceable)?;
    let shares = share(server, limit, room, server.threads + seeds.len(), has_sockets)?;
    let connections = server.tuning.connections_max;
    grow_descriptor_table(limit.min(DESCRIPTORS_AT_ONCE.max(connections.saturating_mul(2))));
    // The rest is for buffers, sockets, and other programs.
    let page_cache = PageCache::new(memory::limit() / 4 * 3);
    let mut sockets: Vec<Vec<(u32, OwnedFd)>> = (0..server.threads).map(|_| Vec::new()).collect();
    let (mut texts, mut ports) = (Vec::new(), HashMap::new());
    let socket_files = Arc::new(SocketFiles::default());
    let backlog = listen::backlog(shares.waiting_max(), snapshot.listeners().len());
    for (number, listen) in &kernel {
        let address = &listen::owned_by(&listen.address, user.as_ref());
        let handed_over = match &mut inheritance {
            Some(inheritance) => inheritance.take(address),
            None => Some(activation.take(address)).filter(|(sockets, _)| !sockets.is_empty()),
        };
        let (opened, file) = match handed_over {
            Some((sockets, file)) => listen::adopt(address, sockets, file, server.threads)?,
            None => {
                let (opened, file) = listen::open(address, server.threads, backlog)?;
                (opened.into_iter().map(|socket| vec![socket]).collect(), file)
            }
        };
        let first: &OwnedFd = &opened[0][0];
        texts.push(format!("listening on {}", listen::name(first, listen)));
        ports.extend(listen::chosen_port(first, address).map(|port| (*number, port)));
        socket_files.add(file.map(|file| (*number, file)));
        for (worker, opened) in sockets.iter_mut().zip(opened) {
            worker.extend(opened.into_iter().map(|socket| (*number, socket)));
        }
    }
    activation.close_rest();
    texts.extend(said);
    let control = control_path(server.control.as_deref(), is_replaceable || has_interfaces);
    control.as_ref().inspect(|(path, _)| control_socket::make_directory(path, user.as_ref()));

    keeper::make_storage(loaded, user.as_ref())?;

    // Before this line the server has the rights of the start, after it those of `user`, within `confine`. No thread and
    // no ring may exist yet: a thread inherits both from the thread that starts it.
    let control_at = control.as_ref().map(|(path, _)| path.as_path());
    let (confinement, said) = confine::enter(loaded, user.as_ref(), control_at)?;

    texts.extend(said);
    let roots: Vec<_> =
        snapshot.roots().iter().map(|path| Root::open(path)).collect::<Result<_, _>>()?;
    let logs = open_logs(snapshot)?;
    let reading = Reading::first(loaded, certificates::now());
    let reading = reading.map_err(|Errors(errors)| {
        errors.iter().for_each(say_about);
        "the server does not start, because of errors in its certificates".to_owned()
    })?;
    let has_handed_over = inheritance.is_some() || activation.is_given();
    let control = open_control_socket(control, inheritance)?;
    if has_handed_over {
        // This is the last step, because clients connect from now on, and would wait in vain after an error.
        sockets.iter().flatten().for_each(|(_, socket)| listen::begin(socket, backlog));
    }
    let sources = sockets.into_iter().map(ConnectionSource::Listeners);
    let sources = sources
        .chain(seeds.into_iter().map(|seed| ConnectionSource::Interface(Box::new(seed))))
        .collect();
    Ok(Prepared {
        shares,
        roots,
        logs,
        sources,
        texts,
        ports,
        socket_files,
        control,
        owners,
        reserved,
        reading,
        page_cache,
        confinement,
    })
}

/// Reports what is served, and what may be unwanted about it.
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
            "running as root: every file that root can read there is served; `user = \"samum\"` in [server] (`--user samum`) \
             makes the server that user when its sockets are open",
        );
    }
    if let Some(text) = descriptors::shortage(connections, wanted, limit) {
        say(&text);
    }
    if let Some(text) = cost_of_workers(workers, cores) {
        say(&text);
    }
}

/// Starts the thread that reopens the logs, once for each message: true if there should be some.
fn start_reopener(logs: Arc<OpenLogs>, workers: Arc<Workers>) -> Result<SyncSender<bool>, String> {
    let (reopen, requests) = mpsc::sync_channel(1);
    spawn("log", move || {
        requests.iter().for_each(|is_wanted| reopen_logs(&logs.list(), &workers, is_wanted));
    })?;
    Ok(reopen)
}

/// Starts the thread that replaces the configuration; the first one is `loaded`.
fn start_reloader(
    reloader: Reloader,
    loaded: Loaded,
    reloads: Receiver<Option<Reply>>,
) -> Result<(), String> {
    spawn("reload", move || {
        // With 100,000 routes it has much memory, and to free it takes a while.
        drop(loaded);
        reloader.run(&reloads);
    })?;
    Ok(())
}

/// Waits until all workers have ended. Returns the connections that they have cut off, or the first error.
fn join(ends: &Receiver<Result<Remainder, String>>, workers: usize) -> Result<Remainder, String> {
    let mut result = Ok(Remainder::default());
    for _ in 0..workers {
        // A worker without a result has panicked.
        let ended = ends.recv().unwrap_or_else(|_| Err("a worker panicked".to_owned()));
        result = result.and_then(|cut| {
            let Remainder { connections, tunnels } = ended?;
            Ok(Remainder {
                connections: cut.connections + connections,
                tunnels: cut.tunnels + tunnels,
            })
        });
    }
    result
}

/// The path of the control socket, if the server has one: that of the configuration, or the default path if the server can
/// be reloaded. True for the default path.
fn control_path(path: Option<&Path>, is_replaceable: bool) -> Option<(PathBuf, bool)> {
    match path {
        Some(path) => Some((path.to_owned(), false)),
        None => is_replaceable.then(|| (control_socket::default_path(), true)),
    }
}

/// Opens the control socket, if the server has one. Without the socket at the default path the server still runs, because
/// there are signals.
fn open_control_socket(
    path: Option<(PathBuf, bool)>,
    inheritance: Option<&mut Inheritance>,
) -> Result<Option<Control>, String> {
    let Some((path, is_default)) = path else { return Ok(None) };
    match control_socket::open(&path, inheritance) {
        Err(error) if is_default => {
            say(&format!(
                "there is no control socket for `samum reload` and `samum upgrade`: {error}; SIGHUP reloads, SIGUSR2 upgrades"
            ));
            Ok(None)
        }
        opened => opened.map(|opened| Some((path, opened))),
    }
}

fn spawn(
    name: &str,
    body: impl FnOnce() + Send + 'static,
) -> Result<thread::JoinHandle<()>, String> {
    let thread = thread::Builder::new().name(name.to_owned()).spawn(body);
    thread.map_err(|error| format!("cannot start a thread: {error}"))
}

/// Opens the logs of all sites.
fn open_logs(snapshot: &Snapshot) -> Result<Vec<(Log, OwnedFd)>, String> {
    let open = |log: Log| files::open(&log.target).map(|file| (log, file));
    snapshot.logs().into_iter().map(open).collect()
}

/// Makes a panic of any thread end the process, so that the server never goes on without a worker.
fn end_on_panic() {
    let default = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        default(info);
        say("a thread has panicked, which is a bug; the server ends");
        exit::exit(1);
    }));
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

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
