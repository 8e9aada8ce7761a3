//! Starts all workers, carries out signals, and shuts down.

mod exit;
mod reach;
mod signals;
mod start;

use core::net::SocketAddr;
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::SystemTime;

use sendfile::PageCache;
use signal_hook::iterator::Signals;
use tls::Acceptors;

use crate::certificates::{self, Certificates, Reading};
use crate::confine::{self, Confinement};
use crate::control::Workers;
use crate::follow::{Root, Roots};
use crate::listen::{SocketFile, SocketFiles};
use crate::reload::{Reloader, Reply, Source, summary};
use crate::serving::Snapshot;
use crate::shares::{
    DESCRIPTORS_AT_ONCE, Shares, cost_of_workers, grow_descriptor_table, room, share,
};
use crate::{account, control_socket, descriptors, listen, memory};
use config::file::{Errors, Loaded};
use config::{Config, Log};
use exit::{exit, let_go, note_inherited_sockets};
use gateways::programs::supervisor;
use interface::{Interfaces, Owners};
use logs::files::{self, OpenLogs};
use logs::say::{say, say_about, set_format};
use signals::{SIGNALS, Wishes, obey_signals, reopen_logs};
use start::{ConnectionSource, RESPONSES_MAX, Shared, Started, start_workers};

/// Requests for a reload that may wait at once. One reload answers all that wait.
const RELOADS_MAX: usize = 16;

/// Serves until a signal stops it. The configuration cannot be replaced.
///
/// The server has the process for itself. It takes the signals of the process, ends it when a thread panics, and shuts
/// down all sockets that were opened since the first server began.
///
/// # Errors
///
/// A message for the operator.
pub fn run(config: &Config) -> Result<(), String> {
    set_format(config.server.error_format);
    serve(Loaded::of(config.clone()), None)
}

/// Serves a configuration until a signal stops it. At each reload it is replaced by the one that the source reads.
///
/// # Errors
///
/// A message for the operator.
pub fn run_reloadable(loaded: Loaded, source: Source) -> Result<(), String> {
    set_format(loaded.config.server.error_format);
    serve(loaded, Some(source))
}

fn serve(loaded: Loaded, source: Option<Source>) -> Result<(), String> {
    let server = loaded.config.server.clone();
    let snapshot = Arc::new(Snapshot::new(&loaded.config)?);
    note_inherited_sockets();
    end_on_panic();
    let Prepared {
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
    } = prepare(&loaded, &snapshot, source.is_some())?;
    // The signals are taken before any thread starts, so that no signal meets its default action.
    let signals =
        Signals::new(SIGNALS).map_err(|error| format!("cannot catch signals: {error}"))?;
    supervisor::adopt_orphans();
    snapshot.resolve_names()?;

    let acceptors = Acceptors::new();
    let shared = Shared::new(&server, &snapshot, &roots, shares, page_cache, &acceptors);
    let metrics = Arc::clone(&shared.metrics);
    metrics.note_load(loaded.digest.as_deref(), SystemTime::now());
    let certificates = Certificates::new(acceptors, Arc::clone(&metrics));
    let Reading { said, warnings, .. } = &reading;
    let (said, warnings) = (said.clone(), warnings.clone());
    certificates.replace(reading, snapshot.listeners(), &ports)?.complete();
    let Started { workers, driver, ends } = start_workers(shared, sources, logs)?;
    texts.iter().chain(&said).for_each(|text| say(text));
    warnings.iter().for_each(say_about);
    if let Some(place) = reach::Place::of_process() {
        say(&reach::describe(place, snapshot.listeners(), &ports));
    }
    let from_files = source.is_some().then_some(&loaded);
    announce(&snapshot, from_files, shares, server.tuning.connections_max, &driver);

    let workers = Arc::new(workers);
    let roots = Roots::new(roots, Arc::clone(&workers));
    let logs = Arc::new(OpenLogs::new(snapshot.logs()));
    let reopen = start_reopener(Arc::clone(&logs), Arc::clone(&workers))?;
    let (reload, reloads) = mpsc::sync_channel(RELOADS_MAX);
    let wishes = Wishes { reopen, reload: source.is_some().then(|| reload.clone()) };
    match source {
        Some(source) => {
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
                certificates,
                confinement,
                before: Vec::new(),
            };
            start_reloader(reloader, loaded, reloads)?;
        }
        // Without a source no request for a reload is received.
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
    supervisor::kill_all();
    let_go();
    let cut = result?;
    if cut > 0 {
        let were = if cut == 1 { " was" } else { "s were" };
        let after = RESPONSES_MAX.as_secs();
        say(&format!(
            "{cut} connection{were} cut off by the shutdown, still in use after {after} s"
        ));
    }
    Ok(())
}

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
    control: Option<(UnixListener, SocketFile)>,
    owners: Owners,
    /// Sockets that keep addresses of interfaces from other programs until the server ends.
    reserved: HashMap<SocketAddr, OwnedFd>,
    /// The certificates and keys.
    reading: Reading,
    page_cache: PageCache,
    confinement: Confinement,
}

/// Opens the listeners, gives up the rights that only this needs, opens the directories and logs, and reads the keys.
fn prepare(loaded: &Loaded, snapshot: &Snapshot, is_replaceable: bool) -> Result<Prepared, String> {
    let server = &loaded.config.server;
    let user = server.user.as_ref().map(account::find_user).transpose()?;
    // If the call fails, programs (CGI) get the descriptors that the server itself has inherited.
    let _ = ring::keep_descriptors_from_programs();
    let limit = descriptors::raise();
    let Interfaces { kernel, seeds, said, reserved, owners } =
        Interfaces::open(server, snapshot.listeners(), listen::reserve)?;
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
        let address = listen::owned_by(&listen.address, user.as_ref());
        let (opened, file) = listen::open(&address, server.threads, backlog)?;
        texts.push(format!("listening on {}", listen::name(&opened[0], listen)));
        ports.extend(listen::chosen_port(&opened[0], &listen.address).map(|port| (*number, port)));
        socket_files.add(file.map(|file| (*number, file)));
        for (worker, socket) in sockets.iter_mut().zip(opened) {
            worker.push((*number, socket));
        }
    }
    texts.extend(said);
    let control = control_path(server.control.as_deref(), is_replaceable || has_interfaces);
    control.as_ref().inspect(|(path, _)| control_socket::make_directory(path, user.as_ref()));

    // Before this line the server has the rights of the start, after it those of `user`, within `confine`. No thread and
    // no ring may exist yet: a thread inherits both from the thread that starts it.
    let control_at = control.as_ref().map(|(path, _)| path.as_path());
    let (confinement, said) = confine::enter(loaded, user.as_ref(), control_at)?;

    texts.extend(said);
    let roots: Vec<_> =
        snapshot.roots().iter().map(|path| Root::open(path)).collect::<Result<_, _>>()?;
    let logs = open_logs(snapshot)?;
    let reading = Reading::new(loaded, &HashMap::new(), certificates::now());
    let reading = reading.map_err(|Errors(errors)| {
        errors.iter().for_each(say_about);
        "the server does not start, because of errors in its certificates".to_owned()
    })?;
    let control = open_control_socket(control)?;
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

/// Waits until all workers have ended. Returns the number of connections that they have cut off, or the first error.
fn join(ends: &Receiver<Result<usize, String>>, workers: usize) -> Result<usize, String> {
    let mut result = Ok(0);
    for _ in 0..workers {
        // A worker without a result has panicked.
        let ended = ends.recv().unwrap_or_else(|_| Err("a worker panicked".to_owned()));
        result = result.and_then(|cut| Ok(cut + ended?));
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
) -> Result<Option<(UnixListener, SocketFile)>, String> {
    let Some((path, is_default)) = path else { return Ok(None) };
    match control_socket::open(&path) {
        Err(error) if is_default => {
            say(&format!("there is no control socket for `samum reload`: {error}; SIGHUP reloads"));
            Ok(None)
        }
        opened => opened.map(Some),
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
        exit(1);
    }));
}

#[cfg(test)]
mod tests {
    use core::time::Duration;
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
