//! Learns the layouts of films: a few reads of each, a few films at a time.
//!
//! Nothing waits for a layout. Until it is known, a film is sent with the smallest paced window. Reads of a device that
//! does not answer never end, and films of others are learned meanwhile.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::rc::{Rc, Weak};

use media::{Layout, Probe};
use ring::{BufferPool, Caching, Completion, Device, Event, Fd, Key, Op, Shares, Slab, Time};

use super::resource::{Data, Kind, Resource};
use crate::shell::{Shell, id_of, kind};

/// Bytes of one read. The index of most films is smaller; that of a long one takes some reads.
const READ_BYTES: usize = 64 * 1024;
/// The maximum number of films whose layouts are learned at a time, per worker. Each takes a buffer and
/// up to 1 MiB. One device has a half of them at most, and a quarter while it has not answered for a second
/// ([`Shares`]).
const FILMS: usize = 4;
/// The maximum number of films of a device that wait. The layout of a further one is not learned; it is sent with
/// the smallest paced window until it is found anew.
const QUEUE_MAX: usize = 4096;

/// The films whose layouts are being learned, and those that wait.
#[derive(Debug)]
pub(super) struct Layouts {
    learning: Slab<Learning>,
    /// Those among `learning`, by device.
    shares: Shares,
    /// By device; none is empty.
    queues: BTreeMap<Device, VecDeque<(Weak<Resource>, Caching)>>,
    pool: BufferPool,
}

/// A film that is being read. One read of it is in flight.
#[derive(Debug)]
struct Learning {
    film: Weak<Resource>,
    file: Fd,
    probe: Probe,
    caching: Caching,
}

impl Layouts {
    /// Makes an empty queue.
    ///
    /// # Errors
    ///
    /// Those of `mmap(2)`.
    pub(super) fn new() -> io::Result<Self> {
        let pool = BufferPool::new(READ_BYTES, FILMS)?;
        let shares = Shares::new(FILMS);
        Ok(Self { learning: Slab::new(), shares, queues: BTreeMap::new(), pool })
    }

    /// Learns the layout of a resource, if it is a film. `keep`: the page cache keeps the bytes that are
    /// read, which players will ask for.
    pub(super) fn want(&mut self, shell: &mut Shell, resource: &Rc<Resource>, keep: bool) {
        let Some((file, _)) = film(resource) else { return };
        let queue = self.queues.entry(file.device()).or_default();
        if queue.len() < QUEUE_MAX {
            let caching = if keep { Caching::Keep } else { Caching::Drop };
            queue.push_back((Rc::downgrade(resource), caching));
            self.begin_next(shell);
        }
    }

    /// Takes the next film out of the queue of a device that has a place.
    fn next(&mut self, now: Time) -> Option<(Weak<Resource>, Caching)> {
        let has_place = |device: &&Device| self.shares.may_begin(**device, now);
        let device = *self.queues.keys().find(has_place)?;
        let queue = self.queues.get_mut(&device)?;
        let next = queue.pop_front();
        if queue.is_empty() {
            self.queues.remove(&device);
        }
        next
    }

    /// Begins with the next films in the queues, as far as there are places.
    fn begin_next(&mut self, shell: &mut Shell) {
        while let Some((weak, caching)) = self.next(shell.cx.now) {
            let Some(resource) = weak.upgrade() else { continue };
            let Some((file, size)) = film(&resource) else { continue };
            let learning =
                Learning { film: weak, file: file.clone(), probe: Probe::new(size), caching };
            self.shares.begin(file.device(), shell.cx.now);
            let key = self.learning.insert(learning);
            self.go_on(shell, key);
        }
    }

    /// Reads what the probe of a film wants, or takes its layout.
    fn go_on(&mut self, shell: &mut Shell, key: Key) {
        let learning = self.learning.get_mut(key).expect("kept until it ends");
        let is_wanted = learning.film.strong_count() > 0;
        if let Some(range) = learning.probe.wants().filter(|_| is_wanted) {
            let len = usize::try_from(range.end - range.start).unwrap_or(READ_BYTES);
            let buf = self.pool.take(len.min(READ_BYTES)).expect("each film has one at a time");
            let Learning { ref file, caching, .. } = *learning;
            let (device, file) = (file.device(), file.clone());
            let read = Op::Read { file, offset: range.start, buf, caching };
            shell.ring.submit_to(device, read, kind::LAYOUT | key.to_bits());
            return;
        }
        let Learning { film, file, probe, .. } = self.learning.remove(key).expect("ends once");
        self.shares.end(file.device(), shell.cx.now);
        if let Some(film) = film.upgrade()
            && let Kind::File(files) = &film.kind
            && let Some(layout) = &files.layout
        {
            // Another load of the same resource cannot have set it: each load makes a new one.
            let _ = layout.set(probe.into_layout().filter(has_rate));
        }
    }

    /// Takes the completion of a read.
    pub(super) fn handle(&mut self, shell: &mut Shell, completion: Completion) {
        let key = Key::from_bits(id_of(completion.token));
        let learning = self.learning.get_mut(key).expect("kept until its last completion");
        match completion.result {
            Ok(Event::Read(buffer)) => learning.probe.handle_bytes(&buffer),
            Ok(event) => unreachable!("no probe asks for {event:?}"),
            // The response will fail for the same reason, and its client is told.
            Err(_) => learning.probe.handle_bytes(&[]),
        }
        self.go_on(shell, key);
        self.begin_next(shell);
    }
}

fn has_rate(layout: &Layout) -> bool {
    layout.bytes_per_second().is_some()
}

/// The open file of a film whose layout is not known, and its size.
fn film(resource: &Resource) -> Option<(&Fd, u64)> {
    let Kind::File(files) = &resource.kind else { return None };
    files.layout.as_ref().filter(|layout| layout.get().is_none())?;
    match &files.plain.data {
        Data::File(file) => Some((file.fd(), file.size())),
        Data::Memory => None,
    }
}
