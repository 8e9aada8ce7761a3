//! The entries of a directory. They are freed where it takes no time from requests.

use core::cmp::Ordering;
use core::ops::Deref;
use std::thread;

use ring::{Entry, FileKind, Listing};

/// The most entries that are freed in one step, which takes 0.3 ms. More of them are freed by a thread of their
/// own, because 100,000 take 6 ms. Each such listing has one thread, for about that time.
const FREED_MAX: usize = 4096;
/// The size of the stack of such a thread, which calls only the allocator.
const STACK_BYTES: usize = 64 * 1024;

/// The order in which a listing shows its entries: directories first, then the others, both by name.
pub(crate) fn directories_first(a: &Entry, b: &Entry) -> Ordering {
    let key = |entry: &Entry| entry.kind != FileKind::Directory;
    key(a).cmp(&key(b)).then_with(|| a.name.cmp(&b.name))
}

/// The sorted entries of a directory.
#[derive(Debug)]
pub struct Entries(Listing);

impl From<Listing> for Entries {
    fn from(listing: Listing) -> Self {
        Self(listing)
    }
}

impl Deref for Entries {
    type Target = Listing;

    fn deref(&self) -> &Listing {
        &self.0
    }
}

impl Drop for Entries {
    fn drop(&mut self) {
        free(core::mem::take(&mut self.0.entries));
    }
}

fn free<T: Send + 'static>(all: Vec<T>) {
    if all.len() > FREED_MAX {
        let builder = thread::Builder::new().name("free".to_owned()).stack_size(STACK_BYTES);
        // If the thread cannot be started, the closure is dropped here.
        let _ = builder.spawn(move || drop(all));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Sender, channel};
    use std::thread::ThreadId;

    struct Freed(Sender<ThreadId>);

    impl Drop for Freed {
        fn drop(&mut self) {
            self.0.send(thread::current().id()).unwrap();
        }
    }

    #[test]
    fn many_entries_are_freed_by_a_thread_of_their_own() {
        for (count, is_here) in [(FREED_MAX, true), (FREED_MAX + 1, false)] {
            let (sender, freed) = channel();
            free((0..count).map(|_| Freed(sender.clone())).collect());
            drop(sender);
            let threads: Vec<_> = freed.iter().collect();
            assert_eq!(threads.len(), count);
            assert!(threads.iter().all(|id| (*id == thread::current().id()) == is_here));
        }
    }
}
