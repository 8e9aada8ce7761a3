//! The certificates of the server: read at the start and at each reload, and read again when their files change.
//!
//! A configuration names files. A [`Reading`] has all of them, read and matched; one that has an error is not used.
//! [`Certificates`] makes acceptors of it, one for each listener with TLS, and gives them to the workers. A thread looks at
//! the files, and renews the pairs whose files have changed. A pair that cannot be used leaves the one before.
//!
//! Workers are never waited for: they use new acceptors from the next connection on. A reload holds the state from the
//! moment in which workers can see the acceptors of new listeners. It holds the state until it is complete or given up,
//! so that no renewal comes between. Acceptors of removed listeners stay as long as connections may wait there.
//!
//! Files for connections to upstreams are read at the same times, and again when they change. The workers share the settings
//! that are made of them; a renewal replaces these in place. The file of the system's authorities is read by a reload only.
//!
//! A file may be on a disk that does not answer. So files are read by the thread of a reload or by that of the renewals,
//! and never while the state is held.

mod files;
mod item;
mod plan;
mod reading;
mod renewal;
mod text;
mod upstreams;
mod watch;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use tls::{Acceptor, Acceptors, Fault, ListenerTls, SiteTls, TicketKeys};
use zeroize::Zeroizing;

use config::Listen;
use config::file::{Errors, Loaded};
use config::site::{Hosts, SiteId};
pub(crate) use item::servers::system_roots;
use logs::say::say;
use metrics::{CertificateNumbers, Metrics};
use plan::Listener;
pub(crate) use reading::Reading;
pub(crate) use upstreams::needs_system_roots;

/// The certificates that the workers show, and the thread that renews them.
#[derive(Debug)]
pub(crate) struct Certificates {
    acceptors: Arc<Acceptors>,
    /// One value for the process, so that a reload or a renewal does not make tickets of clients useless.
    tickets: TicketKeys,
    metrics: Arc<Metrics>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    shown: Shown,
    /// The acceptors of listeners that were removed, while connections may wait there.
    removed: HashMap<u32, ListenerTls>,
    /// True while a thread looks at the files.
    has_thread: bool,
}

/// A configuration, as its certificates are shown.
#[derive(Debug, Default)]
struct Shown {
    /// The number of the configuration. A renewal that began under another one is not shown.
    generation: u64,
    reading: Reading,
    listeners: Vec<Listener>,
    /// The acceptors of the listeners.
    acceptors: HashMap<u32, ListenerTls>,
    /// The ports of all listeners for which the kernel has chosen one, and that were not removed.
    ports: HashMap<u32, u16>,
}

/// A configuration whose acceptors the workers see in addition to those of the one before. If this is dropped before it
/// is [complete](Self::complete), the one before counts again.
#[derive(Debug)]
pub(crate) struct Replacement<'a> {
    certificates: &'a Arc<Certificates>,
    state: MutexGuard<'a, State>,
    /// The configuration; `None` when it is complete.
    next: Option<Shown>,
    /// The numbers of all its listeners.
    numbers: Vec<u32>,
}

impl Certificates {
    /// No listener has TLS yet.
    pub(crate) fn new(
        acceptors: Arc<Acceptors>,
        tickets: TicketKeys,
        metrics: Arc<Metrics>,
    ) -> Arc<Self> {
        Arc::new(Self { acceptors, tickets, metrics, state: Mutex::default() })
    }

    /// The keys of tickets, for the process that replaces this one.
    pub(crate) fn ticket_keys(&self) -> Zeroizing<Vec<u8>> {
        self.tickets.to_bytes()
    }

    /// Drops keys of the process before that the first configuration does not need.
    pub(crate) fn forget_handed_over(&self) {
        self.tickets.forget_handed_over();
    }

    /// Reads the files of a configuration.
    ///
    /// # Errors
    ///
    /// All errors of the files, with their lines.
    pub(crate) fn read(&self, loaded: &Loaded) -> Result<Reading, Errors> {
        let before = self.lock().shown.reading.before();
        Reading::new(loaded, &before, now())
    }

    /// Gives the workers the acceptors of another configuration. Those of the one before stay until the replacement is
    /// complete. `opened` has the ports of new listeners for which the kernel has chosen one.
    ///
    /// # Errors
    ///
    /// A sentence for the operator, if no acceptor can be made. Then nothing has changed.
    pub(crate) fn replace(
        self: &Arc<Self>,
        reading: Reading,
        listeners: &[(u32, Listen)],
        opened: &HashMap<u32, u16>,
    ) -> Result<Replacement<'_>, String> {
        let state = self.lock();
        let numbers: Vec<u32> = listeners.iter().map(|(number, _)| *number).collect();
        let mut ports = state.shown.ports.clone();
        ports.extend(opened);
        ports.retain(|number, _| numbers.contains(number));
        let listeners = plan::listeners(&reading.sites, listeners, &ports);
        let acceptors =
            self.acceptors_of(&reading, &listeners).map_err(|fault| fault.to_string())?;
        let generation = state.shown.generation + 1;
        let next = Shown { generation, reading, listeners, acceptors, ports };
        self.publish([&state.removed, &state.shown.acceptors, &next.acceptors]);
        Ok(Replacement { certificates: self, state, next: Some(next), numbers })
    }

    /// Drops the acceptors of listeners that were removed: no connection waits there any more.
    pub(crate) fn forget_removed(&self) {
        let mut state = self.lock();
        if !state.removed.is_empty() {
            state.removed.clear();
            self.publish([&state.shown.acceptors]);
        }
    }

    fn acceptors_of<'l>(
        &self,
        reading: &Reading,
        listeners: impl IntoIterator<Item = &'l Listener>,
    ) -> Result<HashMap<u32, ListenerTls>, Fault> {
        let acceptor = |listener: &Listener| {
            let site =
                |shown: &plan::Shown| SiteTls { http2: listener.http2, ..reading.site_tls(*shown) };
            let sites = listener.sites.iter().map(site).collect();
            let hosts = hosts_of(reading, listener);
            let site_of = move |host: Option<&str>| hosts.site_of(host.map(str::as_bytes)).index();
            let acceptor = Acceptor::new(sites, Box::new(site_of), &self.tickets)?;
            let urls = Arc::new(listener.urls.clone());
            Ok((listener.number, ListenerTls { acceptor, urls }))
        };
        listeners.into_iter().map(acceptor).collect()
    }

    /// Gives the workers acceptors; of several for one listener, the last.
    fn publish<const N: usize>(&self, all: [&HashMap<u32, ListenerTls>; N]) {
        let all = all.into_iter().flatten();
        self.acceptors.replace(all.map(|(number, tls)| (*number, tls.clone())).collect());
    }

    /// Shows in the metrics when the certificates expire.
    fn count(&self, reading: &Reading) {
        let certificates = reading.sites.iter().flat_map(|site| {
            reading.pairs(site).into_iter().map(|pair| CertificateNumbers {
                site: site.name.clone(),
                file: pair.path().map(|path| path.display().to_string()).unwrap_or_default(),
                expires_at: pair.not_after(),
            })
        });
        self.metrics.set_certificates(certificates.collect());
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Replacement<'_> {
    /// The configuration is served from now on. The acceptors of removed listeners stay until
    /// [`forget_removed`](Certificates::forget_removed).
    pub(crate) fn complete(mut self) {
        let Some(next) = self.next.take() else { return };
        let before = core::mem::replace(&mut self.state.shown, next);
        let numbers = &self.numbers;
        let removed = before.acceptors.into_iter().filter(|(number, _)| !numbers.contains(number));
        self.state.removed.extend(removed);
        self.certificates.publish([&self.state.removed, &self.state.shown.acceptors]);
        let reading = &self.state.shown.reading;
        (0..reading.kept).for_each(|_| self.certificates.metrics.note_failed_renewal());
        self.certificates.count(reading);
        if !self.state.has_thread && !self.state.shown.reading.items.is_empty() {
            let certificates = Arc::clone(self.certificates);
            let thread = thread::Builder::new().name("certificates".to_owned());
            match thread.spawn(move || renewal::renew(&certificates)) {
                Ok(_) => self.state.has_thread = true,
                Err(error) => say(&format!(
                    "cannot start a thread that notices renewed certificates: {error}; a reload reads them again"
                )),
            }
        }
    }
}

impl Drop for Replacement<'_> {
    fn drop(&mut self) {
        if self.next.is_some() {
            self.certificates.publish([&self.state.removed, &self.state.shown.acceptors]);
        }
    }
}

/// The hosts of the sites of a listener, by their indexes among these.
fn hosts_of(reading: &Reading, listener: &Listener) -> Hosts {
    let mut hosts = Hosts::new(SiteId::new(listener.default));
    for (index, shown) in listener.sites.iter().enumerate() {
        for host in &reading.sites[shown.site].hosts {
            // A host that is not valid or listed twice is an error of the configuration, and has no certificate.
            let added = hosts.add(host, SiteId::new(index), None);
            debug_assert!(added.is_ok(), "{added:?}");
        }
    }
    hosts
}

/// The time in seconds since 1970. A clock before that was not set, and counts as 0.
pub(crate) fn now() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_secs()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
