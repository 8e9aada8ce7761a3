//! Resolves the names of servers, on a thread of its own, because `getaddrinfo(3)` sleeps without a limit.
//!
//! One thread resolves the names of all routes, one after the other, for all workers; it exists as long as
//! there are names. Workers read a counter to learn whether the addresses of a name have changed. Found
//! addresses stay until others are found, so a failed name server loses no servers. A name that was never
//! resolved has no servers, and its requests get an error until then.

use core::fmt;
use core::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;
use std::collections::BTreeMap;
use std::io;
use std::net::ToSocketAddrs as _;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::Instant;

/// A name is resolved again after this time: `getaddrinfo(3)` does not return how long its result is valid.
const FRESH: Duration = Duration::from_secs(30);

/// A name that was not resolved is tried again after this, and after twice as long each time, up to
/// [`FRESH`].
const AGAIN_MIN: Duration = Duration::from_secs(1);

/// The maximum number of addresses of one name. Further ones are left out.
pub(crate) const ADDRESSES_MAX: usize = 16;

/// A host and a port.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Name {
    pub(crate) host: Box<str>,
    pub(crate) port: u16,
}

/// The names of all routes. Dropping this ends the thread as soon as it is not resolving a name.
#[derive(Debug)]
pub struct Names(Arc<Shared>);

/// The addresses of a name. As long as this value exists, the name is resolved again and again.
#[derive(Debug, Default)]
pub(crate) struct Resolved {
    /// The number of changes of the addresses; 0 before they are first found. It is written under the lock,
    /// so relaxed order is enough: a worker may see a change a little later.
    version: AtomicU64,
    addresses: Mutex<Arc<[SocketAddr]>>,
}

/// Resolves a name, and may sleep.
type Resolve = dyn Fn(&Name) -> io::Result<Vec<SocketAddr>> + Send + Sync;

struct Shared {
    resolve: Box<Resolve>,
    /// Tells the operator.
    tell: fn(&str),
    state: Mutex<NamesState>,
    /// Notified when there is a new name, when one was tried, and at the end.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct NamesState {
    table: Table,
    has_thread: bool,
    has_ended: bool,
}

/// The times at which names are resolved.
#[derive(Debug, Default)]
struct Table(BTreeMap<Name, Entry>);

#[derive(Debug)]
struct Entry {
    resolved: Weak<Resolved>,
    /// The time at which it is resolved next.
    due: Instant,
    /// The result of the last try; `None` before the first.
    last: Option<Last>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Last {
    Found,
    /// The name is tried again after this time.
    Failed(Duration),
}

impl Names {
    /// Makes an object without names and without a thread. The thread will call `tell` with messages to the
    /// operator.
    pub fn new(tell: fn(&str)) -> Self {
        Self::with(Box::new(resolve), tell)
    }

    fn with(resolve: Box<Resolve>, tell: fn(&str)) -> Self {
        Self(Arc::new(Shared { resolve, tell, state: Mutex::default(), changed: Condvar::new() }))
    }

    /// Begins to resolve a name, if that is not done already.
    ///
    /// # Errors
    ///
    /// The errors of starting a thread.
    pub(crate) fn resolve(&self, name: Name) -> io::Result<Arc<Resolved>> {
        let mut state = self.0.lock();
        if !state.has_thread {
            let shared = Arc::clone(&self.0);
            let builder = thread::Builder::new().name("names".to_owned());
            builder.spawn(move || shared.work())?;
            state.has_thread = true;
        }
        let resolved = state.table.add(name, Instant::now());
        drop(state);
        self.0.changed.notify_all();
        Ok(resolved)
    }

    /// Waits until each name was tried once, but not longer than this.
    pub fn wait(&self, patience: Duration) {
        let is_untried = |state: &mut NamesState| state.table.has_untried();
        let waited = self.0.changed.wait_timeout_while(self.0.lock(), patience, is_untried);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }
}

impl Drop for Names {
    fn drop(&mut self) {
        self.0.lock().has_ended = true;
        self.0.changed.notify_all();
    }
}

impl Shared {
    /// Resolves names as they fall due.
    fn work(&self) {
        let mut state = self.lock();
        while !state.has_ended {
            let Some((name, due)) = state.table.next() else { break };
            let pause = due.saturating_duration_since(Instant::now());
            if !pause.is_zero() {
                let waited = self.changed.wait_timeout(state, pause);
                state = waited.unwrap_or_else(PoisonError::into_inner).0;
                continue;
            }
            drop(state);
            let found = (self.resolve)(&name);
            state = self.lock();
            let message = state.table.handle(&name, found, Instant::now());
            self.changed.notify_all();
            if let Some(message) = message {
                drop(state);
                (self.tell)(&message);
                state = self.lock();
            }
        }
        state.has_thread = false;
    }

    fn lock(&self) -> MutexGuard<'_, NamesState> {
        lock(&self.state)
    }
}

impl Table {
    /// Adds a name, which is due at once, unless it is there.
    fn add(&mut self, name: Name, now: Instant) -> Arc<Resolved> {
        if let Some(resolved) = self.0.get(&name).and_then(|entry| entry.resolved.upgrade()) {
            return resolved;
        }
        let resolved = Arc::<Resolved>::default();
        let entry = Entry { resolved: Arc::downgrade(&resolved), due: now, last: None };
        self.0.insert(name, entry);
        resolved
    }

    /// The name that is due first, and when. Names that nothing refers to any more are removed.
    fn next(&mut self) -> Option<(Name, Instant)> {
        self.0.retain(|_, entry| entry.resolved.strong_count() > 0);
        let first = self.0.iter().min_by_key(|(_, entry)| entry.due);
        first.map(|(name, entry)| (name.clone(), entry.due))
    }

    fn has_untried(&self) -> bool {
        self.0.values().any(|entry| entry.last.is_none() && entry.resolved.strong_count() > 0)
    }

    /// A name was tried. Returns a sentence for the operator if that changes something.
    fn handle(
        &mut self,
        name: &Name,
        found: io::Result<Vec<SocketAddr>>,
        now: Instant,
    ) -> Option<String> {
        let entry = self.0.get_mut(name)?;
        let resolved = entry.resolved.upgrade()?;
        let last = entry.last;
        let error = match found {
            Ok(addresses) if !addresses.is_empty() => {
                resolved.set(addresses);
                entry.last = Some(Last::Found);
                entry.due = now + FRESH;
                let was_failing = matches!(last, Some(Last::Failed(_)));
                return was_failing.then(|| format!("{name} is resolved again"));
            }
            Ok(_) => "it has no addresses".to_owned(),
            Err(error) => error.to_string(),
        };
        let again = match last {
            Some(Last::Failed(again)) => (again * 2).min(FRESH),
            Some(Last::Found) | None => AGAIN_MIN,
        };
        entry.last = Some(Last::Failed(again));
        entry.due = now + again;
        let effect = match resolved.version() {
            0 => "requests for it are answered with 502 until it is resolved",
            _ => "the addresses that were found before are used",
        };
        let is_new = !matches!(last, Some(Last::Failed(_)));
        is_new.then(|| format!("{name} cannot be resolved: {error}; {effect}"))
    }
}

impl Resolved {
    /// The number of times that the addresses have changed; 0 before they are first found.
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Relaxed)
    }

    /// The addresses, sorted; none before they are first found.
    pub(crate) fn addresses(&self) -> Arc<[SocketAddr]> {
        Arc::clone(&lock(&self.addresses))
    }

    /// The name has these addresses from now on, [`ADDRESSES_MAX`] at most.
    pub(super) fn set(&self, mut found: Vec<SocketAddr>) {
        // Name servers send them in another order each time.
        found.sort_unstable();
        found.dedup();
        found.truncate(ADDRESSES_MAX);
        let mut addresses = lock(&self.addresses);
        if **addresses != *found {
            *addresses = found.into();
            self.version.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// No code under a lock can panic and leave a half-changed value.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Shared").field(&self.lock()).finish()
    }
}

/// Asks the system. If the system does not know `localhost`, as in a container without `/etc/hosts`, the
/// name still means this machine (RFC 6761, 6.3).
fn resolve(name: &Name) -> io::Result<Vec<SocketAddr>> {
    match (&*name.host, name.port).to_socket_addrs() {
        Ok(addresses) => Ok(addresses.collect()),
        Err(_) if name.host.eq_ignore_ascii_case("localhost") => Ok(vec![
            (Ipv6Addr::LOCALHOST, name.port).into(),
            (Ipv4Addr::LOCALHOST, name.port).into(),
        ]),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    fn name(host: &str) -> Name {
        Name { host: host.into(), port: 80 }
    }

    fn addresses(hosts: &[u8]) -> Vec<SocketAddr> {
        hosts.iter().map(|host| SocketAddr::from(([192, 0, 2, *host], 80))).collect()
    }

    fn failure() -> io::Result<Vec<SocketAddr>> {
        Err(io::Error::other("no such name"))
    }

    /// A table with one name, which is due, and the time.
    fn table() -> (Table, Arc<Resolved>, Instant) {
        let (mut table, now) = (Table::default(), Instant::now());
        let resolved = table.add(name("a"), now);
        assert_eq!(table.next(), Some((name("a"), now)));
        (table, resolved, now)
    }

    fn due(table: &mut Table) -> Instant {
        table.next().unwrap().1
    }

    #[test]
    fn addresses_that_were_found_stay_until_others_are_found() {
        let (mut table, resolved, now) = table();
        assert_eq!((resolved.version(), resolved.addresses().len()), (0, 0));
        assert_eq!(table.handle(&name("a"), Ok(addresses(&[2, 1, 2])), now), None);
        assert_eq!(*resolved.addresses(), addresses(&[1, 2]));
        // In another order: no change.
        assert_eq!(table.handle(&name("a"), Ok(addresses(&[1, 2])), now), None);
        assert_eq!(resolved.version(), 1);
        let told = table.handle(&name("a"), failure(), now).unwrap();
        assert!(told.contains("a:80") && told.contains("before"), "{told}");
        assert_eq!(table.handle(&name("a"), Ok(Vec::new()), now), None, "it was told");
        assert_eq!(*resolved.addresses(), addresses(&[1, 2]));
        let told = table.handle(&name("a"), Ok(addresses(&[3])), now).unwrap();
        assert!(told.contains("again"), "{told}");
        assert_eq!((resolved.version(), &*resolved.addresses()), (2, &addresses(&[3])[..]));
        let many: Vec<_> = (0..=u8::MAX).collect();
        table.handle(&name("a"), Ok(addresses(&many)), now);
        assert_eq!(resolved.addresses().len(), ADDRESSES_MAX);
    }

    #[test]
    fn a_name_is_resolved_again_later_and_sooner_if_it_failed() {
        let (mut table, _resolved, now) = table();
        table.handle(&name("a"), Ok(addresses(&[1])), now);
        assert_eq!(due(&mut table), now + FRESH);
        let mut pauses = Vec::new();
        for _ in 0..7 {
            let _ = table.handle(&name("a"), failure(), now);
            pauses.push((due(&mut table) - now).as_secs());
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 30, 30]);
        table.handle(&name("a"), Ok(addresses(&[1])), now);
        table.handle(&name("a"), failure(), now);
        assert_eq!(due(&mut table), now + AGAIN_MIN);
    }

    #[test]
    fn routes_share_a_name_and_one_that_no_route_has_is_not_resolved() {
        let (mut table, first, now) = table();
        let later = now + Duration::from_secs(1);
        assert!(Arc::ptr_eq(&first, &table.add(name("a"), later)));
        let other = table.add(name("b"), later);
        assert!(table.has_untried());
        table.handle(&name("a"), Ok(addresses(&[1])), later);
        assert_eq!(table.next(), Some((name("b"), later)));
        drop(other);
        assert!(!table.has_untried());
        assert_eq!(table.handle(&name("b"), Ok(addresses(&[1])), later), None);
        assert_eq!(table.next(), Some((name("a"), later + FRESH)));
        drop(first);
        assert_eq!(table.next(), None);
    }

    #[test]
    fn a_thread_resolves_names_and_ends() {
        let (asked, asks) = mpsc::channel();
        let resolve = move |name: &Name| {
            asked.send(name.clone()).unwrap();
            if &*name.host == "bad" { failure() } else { Ok(addresses(&[7])) }
        };
        let names = Names::with(Box::new(resolve), |_| ());
        let good = names.resolve(name("good")).unwrap();
        let bad = names.resolve(name("bad")).unwrap();
        names.wait(Duration::from_secs(60));
        assert_eq!((&*good.addresses(), good.version()), (&addresses(&[7])[..], 1));
        assert_eq!(bad.version(), 0);
        assert_eq!(
            [asks.recv().unwrap(), asks.recv().unwrap()].map(|name| name.host.len()),
            [4, 3]
        );
        drop(names);
        // The thread drops its function when it ends.
        while asks.recv().is_ok() {}
    }

    #[test]
    fn the_system_resolves_the_name_of_this_machine_and_addresses() {
        let names = Names::new(|_| ());
        let local = names.resolve(name("localhost")).unwrap();
        let literal = names.resolve(name("192.0.2.1")).unwrap();
        names.wait(Duration::from_secs(60));
        assert!(local.addresses().iter().all(|address| address.ip().is_loopback()));
        assert_ne!(local.version(), 0);
        assert_eq!(*literal.addresses(), addresses(&[1]));
    }
}
