//! The bytes of the files in which bodies of requests wait. All workers share these bytes, and clients get shares of
//! them.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::env;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use session::limits::ClientKey;

/// The maximum number of files, and this maximum if there are few descriptors. Each file counts at least for its part
/// of all bytes.
const FILES_MAX: usize = 1024;
const FILES_MIN: usize = 16;
/// The part of the descriptors of the process that files of bodies may have.
const DESCRIPTORS_PART: usize = 16;

/// A client that holds bytes; all clients on Unix sockets count as one.
pub(crate) type Holder = Option<ClientKey>;

/// The limit of the files of all bodies.
///
/// A client may use all bytes while no other client needs any. Otherwise the client that uses most bytes gives way: it
/// loses its largest file whose body is still coming. No client has to give way to a client that would then use more
/// bytes.
#[derive(Debug)]
pub struct Quota {
    bytes_max: AtomicU64,
    files_max: u64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    files: BTreeMap<u64, Entry>,
    next: u64,
    /// Bytes of all files.
    used: u64,
}

#[derive(Debug)]
struct Entry {
    client: Holder,
    bytes: u64,
    /// True while the body of the file comes.
    may_give_way: bool,
    gives_way: Arc<AtomicBool>,
}

/// A file of the quota. The file counts until this value is dropped.
#[derive(Debug)]
pub(crate) struct Reservation {
    quota: Arc<Quota>,
    number: u64,
    gives_way: Arc<AtomicBool>,
}

/// The answer to a file that has to grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    Granted,
    /// Other files give way; the caller asks again later.
    Soon,
    /// No file gives way.
    None,
}

/// The directory for files of a route with this `buffer-dir`. A route without `buffer-dir` uses the system's directory
/// for temporary files.
pub fn directory(buffer_dir: Option<&Path>) -> Cow<'_, Path> {
    buffer_dir.map_or_else(|| Cow::Owned(env::temp_dir()), Cow::Borrowed)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No code here panics while it holds the lock.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Quota {
    /// Creates the quota. `descriptors` is the number of descriptors that the process may have.
    pub fn new(bytes_max: u64, descriptors: usize) -> Arc<Self> {
        let files_max = (descriptors / DESCRIPTORS_PART).clamp(FILES_MIN, FILES_MAX) as u64;
        let bytes_max = AtomicU64::new(bytes_max);
        Arc::new(Self { bytes_max, files_max, state: Mutex::default() })
    }

    /// The number of bytes that all files together may have.
    pub fn bytes_max(&self) -> u64 {
        self.bytes_max.load(Ordering::Relaxed)
    }

    /// Changes the limit. Existing files stay.
    pub fn set_bytes_max(&self, bytes_max: u64) {
        self.bytes_max.store(bytes_max, Ordering::Relaxed);
    }

    /// Counts a new file. It is empty.
    pub(crate) fn add(self: &Arc<Self>, client: Holder) -> Reservation {
        let gives_way = Arc::new(AtomicBool::new(false));
        let entry =
            Entry { client, bytes: 0, may_give_way: true, gives_way: Arc::clone(&gives_way) };
        let mut state = lock(&self.state);
        let number = state.next;
        state.next += 1;
        state.files.insert(number, entry);
        drop(state);
        Reservation { quota: Arc::clone(self), number, gives_way }
    }

    /// The number of bytes that are counted now.
    #[cfg(test)]
    pub(crate) fn used(&self) -> u64 {
        lock(&self.state).used
    }
}

impl Reservation {
    /// Asks for room for a file of `bytes` bytes.
    pub(crate) fn reserve(&self, bytes: u64) -> Room {
        let bytes_max = self.quota.bytes_max();
        let bytes = bytes.max(bytes_max / self.quota.files_max);
        lock(&self.quota.state).reserve(self.number, bytes, bytes_max)
    }

    /// Returns true if the file has to make room for another client.
    pub(crate) fn gives_way(&self) -> bool {
        self.gives_way.load(Ordering::Relaxed)
    }

    /// Records that the whole body has come. From now on its file does not give way.
    pub(crate) fn stay(&self) {
        if let Some(entry) = lock(&self.quota.state).files.get_mut(&self.number) {
            entry.may_give_way = false;
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut state = lock(&self.quota.state);
        if let Some(entry) = state.files.remove(&self.number) {
            state.used -= entry.bytes;
        }
    }
}

impl State {
    fn reserve(&mut self, number: u64, bytes: u64, bytes_max: u64) -> Room {
        let Some(entry) = self.files.get_mut(&number) else { return Room::None };
        let more = bytes.saturating_sub(entry.bytes);
        let (client, all) = (entry.client, self.used.saturating_add(more));
        if more == 0 || all <= bytes_max {
            entry.bytes += more;
            self.used += more;
            return Room::Granted;
        }
        // The client's bytes with the new ones are compared with the bytes of others.
        let mut held = HashMap::<Holder, u64>::new();
        let mut missing = all - bytes_max;
        for entry in self.files.values() {
            if entry.gives_way.load(Ordering::Relaxed) {
                missing = missing.saturating_sub(entry.bytes);
            } else {
                *held.entry(entry.client).or_default() += entry.bytes;
            }
        }
        let wanted = held.get(&client).copied().unwrap_or_default().saturating_add(more);
        let mut others: Vec<&Entry> = self.files.values().collect();
        others.retain(|entry| {
            let gives_way = entry.gives_way.load(Ordering::Relaxed);
            entry.may_give_way && !gives_way && entry.client != client && entry.bytes > 0
        });
        let mut chosen = Vec::new();
        while missing > 0 {
            let held_by = |entry: &Entry| held.get(&entry.client).copied().unwrap_or_default();
            let most = others
                .iter()
                .enumerate()
                .filter(|(_, entry)| held_by(entry) > wanted)
                .max_by_key(|(_, entry)| (held_by(entry), entry.bytes));
            let Some((at, _)) = most else { return Room::None };
            let entry = others.swap_remove(at);
            missing = missing.saturating_sub(entry.bytes);
            *held.entry(entry.client).or_default() -= entry.bytes;
            chosen.push(entry);
        }
        chosen.iter().for_each(|entry| entry.gives_way.store(true, Ordering::Relaxed));
        Room::Soon
    }
}

#[cfg(test)]
mod tests {
    use core::net::Ipv4Addr;

    use proptest::prelude::*;
    use proptest::sample::Index;

    use super::*;

    const MAX: u64 = 1024 * 1000;

    fn client(number: u8) -> Holder {
        Some(ClientKey::new(Ipv4Addr::new(192, 0, 2, number).into()))
    }

    #[test]
    fn a_client_has_all_unless_another_one_needs_it() {
        let quota = Quota::new(MAX, 1 << 20);
        let (first, second) = (quota.add(client(1)), quota.add(client(1)));
        assert_eq!(first.reserve(MAX / 2), Room::Granted);
        assert_eq!(second.reserve(MAX / 2), Room::Granted);
        assert_eq!(second.reserve(MAX / 2 + 1), Room::None, "it is the one that has most");
        let other = quota.add(client(2));
        assert_eq!(other.reserve(1000), Room::Soon);
        assert_eq!((first.gives_way(), second.gives_way()), (false, true));
        assert_eq!(other.reserve(1000), Room::Soon, "no further one has to give way meanwhile");
        assert!(!first.gives_way());
        drop(second);
        assert_eq!(other.reserve(1000), Room::Granted);
        // Each of the two clients gets half of all bytes.
        assert_eq!(other.reserve(MAX / 2), Room::Granted);
        assert_eq!(other.reserve(MAX / 2 + 1), Room::None);
        drop((first, other));
        assert_eq!(quota.used(), 0);
    }

    #[test]
    fn a_body_that_has_come_does_not_give_way() {
        let quota = Quota::new(MAX, 1 << 20);
        let (first, other) = (quota.add(client(1)), quota.add(client(2)));
        assert_eq!(first.reserve(MAX), Room::Granted);
        first.stay();
        assert_eq!(other.reserve(1), Room::None);
        assert!(!first.gives_way());
        // A larger limit is for files that come after the change.
        quota.set_bytes_max(2 * MAX);
        assert_eq!(other.reserve(1), Room::Granted);
    }

    #[test]
    fn there_are_so_many_files_at_most() {
        for (descriptors, expected) in [(1 << 20, FILES_MAX), (1024, 64), (10, FILES_MIN)] {
            let quota = Quota::new(MAX, descriptors);
            let reservations: Vec<_> = (0..=expected).map(|_| quota.add(client(1))).collect();
            let granted = reservations
                .iter()
                .filter(|reservation| reservation.reserve(1) == Room::Granted)
                .count();
            assert_eq!(granted, expected, "{descriptors} descriptors");
        }
    }

    proptest! {
        /// The limit holds whatever happens. The client that needs the fewest bytes gets what it needs, as long as the
        /// files of complete bodies leave this many bytes.
        #[test]
        fn the_bound_holds_and_a_small_client_is_served(
            events in proptest::collection::vec((0_u8..4, any::<Index>(), 1_u64..MAX, 0_u8..8), 0..80),
        ) {
            let quota = Quota::new(MAX, 1 << 20);
            let mut reservations = Vec::<Reservation>::new();
            for (number, at, bytes, what) in events {
                match what {
                    0 => reservations.push(quota.add(client(number))),
                    _ if reservations.is_empty() => {}
                    1 => drop(reservations.remove(at.index(reservations.len()))),
                    _ => {
                        at.get(&reservations).reserve(bytes);
                    }
                }
                reservations.retain(|reservation| what % 2 == 0 || !reservation.gives_way());
                prop_assert!(quota.used() <= MAX);
            }
            let small = quota.add(client(9));
            if small.reserve(MAX / 5) != Room::Granted {
                let count = reservations.len();
                reservations.retain(|reservation| !reservation.gives_way());
                prop_assert!(reservations.len() < count, "the client that holds most gives way");
                prop_assert_eq!(small.reserve(MAX / 5), Room::Granted);
            }
            drop((small, reservations));
            prop_assert_eq!(quota.used(), 0);
        }
    }
}
