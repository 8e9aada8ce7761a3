//! Learns the layouts of films by a few reads of each, for a few films at a time. The parts of a film's index that
//! these reads leave out are read afterwards, so that the page cache has all of the index before players ask.
//!
//! Nothing waits for a layout. Until it is known, a film is sent with the smallest paced window. Reads of a device that
//! does not answer never end, and meanwhile films of other devices are learned.
//!
//! If an index (`moov`) has more than 1 MiB, which is 40 minutes, only its position and the duration are read. Such a
//! film has its mean rate throughout. The index is read after the layout, up to 8 MiB of it, and stays in the page
//! cache, because no player can seek without it. A segment of HLS or DASH (`.ts`, `.m4s`) is no film: a player receives
//! all of its few seconds as fast as it can, so a limit would save nothing.

use core::ops::Range;
use std::collections::VecDeque;
use std::io;
use std::rc::{Rc, Weak};

use media::{Layout, Probe, TABLE_BYTES_MAX};
use ring::{BufferPool, Caching, Completion, Event, Fd, Key, Op, Shares, Slab, Time};

use super::queues::Queues;
use super::resource::{Kind, Resource};
use session::files::Data;
use session::kind::{self, id_of};
use session::shell::Shell;

/// Bytes of one read. The index of most films is smaller; that of a long one takes some reads.
const READ_BYTES: usize = 64 * 1024;
/// The maximum number of films whose layouts are learned at a time, per worker. Each takes a buffer and up to 1 MiB.
/// One device has at most half of them, and a quarter while it has not answered for a second ([`Shares`]).
const FILMS: usize = 4;
/// The maximum number of films that wait, and of films of one device among them. At the limit no further layout is
/// learned, and the film is sent with the smallest paced window until it is found anew.
const QUEUE_MAX: usize = 16 * 1024;
const QUEUE_OF_DEVICE_MAX: usize = QUEUE_MAX / 4;

/// The most bytes of the index that are read after the layout is known. They suffice for the index of a film of 5 hours
/// with one `moov`. Of a longer index the rest is read when a player asks for it.
const INDEX_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// The films whose layouts are being learned, and those that wait.
#[derive(Debug)]
pub(super) struct Layouts {
    learning: Slab<Learning>,
    /// The shares of the devices in `learning`.
    shares: Shares,
    queues: Queues<(Weak<Resource>, Caching)>,
    pool: BufferPool,
}

/// A film that is being read. One read of it is in flight.
#[derive(Debug)]
struct Learning {
    film: Weak<Resource>,
    file: Fd,
    step: Step,
    caching: Caching,
}

/// The part of a film that is read.
#[derive(Debug)]
enum Step {
    /// The bytes that have its layout.
    Probe(Box<Probe>),
    /// Parts of the index that the probe has left out.
    Index(Unread),
}

/// Ranges of a film that are still to be read.
#[derive(Debug)]
struct Unread(VecDeque<Range<u64>>);

impl Unread {
    /// The tables that a probe does not read because they are large; [`INDEX_BYTES_MAX`] at most.
    fn of(layout: &Layout) -> Self {
        let mut room = INDEX_BYTES_MAX;
        let is_large = |range: &&Range<u64>| range.end - range.start > TABLE_BYTES_MAX;
        let within = |range: &Range<u64>| {
            let len = (range.end - range.start).min(room);
            room -= len;
            range.start..range.start + len
        };
        let ranges = layout.index().iter().filter(is_large).map(within);
        Self(ranges.filter(|range| !range.is_empty()).collect())
    }

    /// The next bytes to read.
    fn wants(&self) -> Option<Range<u64>> {
        self.0.front().cloned()
    }

    /// Counts bytes that were read; no bytes at all end the reading.
    fn advance(&mut self, bytes: usize) {
        if bytes == 0 {
            self.0.clear();
        } else if let Some(range) = self.0.front_mut() {
            range.start += bytes as u64;
            if range.is_empty() {
                self.0.pop_front();
            }
        }
    }
}

impl Step {
    fn wants(&self) -> Option<Range<u64>> {
        match self {
            Self::Probe(probe) => probe.wants(),
            Self::Index(unread) => unread.wants(),
        }
    }

    /// Handles the bytes that were read; no bytes mean that they cannot be read.
    fn handle(&mut self, bytes: &[u8]) {
        match self {
            Self::Probe(probe) => probe.handle_bytes(bytes),
            Self::Index(unread) => unread.advance(bytes.len()),
        }
    }
}

impl Learning {
    /// Takes the layout when the probe has ended. The index follows if the page cache keeps it.
    fn end_step(&mut self, film: &Resource) {
        let unread = Step::Index(Unread(VecDeque::new()));
        let Step::Probe(probe) = core::mem::replace(&mut self.step, unread) else { return };
        let layout = probe.into_layout();
        if self.caching == Caching::Keep
            && let Some(layout) = &layout
        {
            self.step = Step::Index(Unread::of(layout));
        }
        if let Kind::File(files) = &film.kind
            && let Some(cell) = &files.layout
        {
            // No other load can have set the layout of the same resource, because each load makes a new resource.
            let _ = cell.set(layout.filter(has_rate));
        }
    }
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
        let queues = Queues::new(QUEUE_MAX, QUEUE_OF_DEVICE_MAX);
        Ok(Self { learning: Slab::new(), shares, queues, pool })
    }

    /// Learns the layout of a resource, if it is a film. `keep`: the page cache keeps the bytes that are read, for
    /// which players will ask.
    pub(super) fn want(&mut self, shell: &mut Shell, resource: &Rc<Resource>, keep: bool) {
        let Some((file, _)) = film(resource) else { return };
        let caching = if keep { Caching::Keep } else { Caching::Drop };
        if self.queues.push(file.device(), (Rc::downgrade(resource), caching)) {
            self.begin_next(shell);
        }
    }

    /// Takes the next film out of the queue of a device that has a free slot.
    fn next(&mut self, now: Time) -> Option<(Weak<Resource>, Caching)> {
        let device = self.queues.next_device(|device| self.shares.may_begin(device, now))?;
        self.queues.begin_turn(device);
        self.queues.pop(device)
    }

    /// Begins with the next films in the queues, while there are free slots.
    fn begin_next(&mut self, shell: &mut Shell) {
        while let Some((weak, caching)) = self.next(shell.cx.now) {
            let Some(resource) = weak.upgrade() else { continue };
            let Some((file, size)) = film(&resource) else { continue };
            let step = Step::Probe(Box::new(Probe::new(size)));
            let learning = Learning { film: weak, file: file.clone(), step, caching };
            self.shares.begin(file.device(), shell.cx.now);
            let key = self.learning.insert(learning);
            self.go_on(shell, key);
        }
    }

    /// Reads the bytes that a film still needs, or ends its entry.
    fn go_on(&mut self, shell: &mut Shell, key: Key) {
        let learning = self.learning.get_mut(key).expect("kept until it ends");
        let film = learning.film.upgrade();
        if let Some(film) = &film
            && learning.step.wants().is_none()
        {
            learning.end_step(film);
        }
        if let Some(range) = learning.step.wants().filter(|_| film.is_some()) {
            let len = usize::try_from(range.end - range.start).unwrap_or(READ_BYTES);
            let buf = self.pool.take(len.min(READ_BYTES)).expect("each film has one at a time");
            let Learning { ref file, caching, .. } = *learning;
            let (device, file) = (file.device(), file.clone());
            let read = Op::Read { file, offset: range.start, buf, caching };
            shell.ring.submit_to(device, read, kind::LAYOUT | key.to_bits());
            return;
        }
        let Learning { file, .. } = self.learning.remove(key).expect("ends once");
        self.shares.end(file.device(), shell.cx.now);
    }

    /// Handles the completion of a read.
    pub(super) fn handle(&mut self, shell: &mut Shell, completion: Completion) {
        let key = Key::from_bits(id_of(completion.token));
        let learning = self.learning.get_mut(key).expect("kept until its last completion");
        match completion.result {
            Ok(Event::Read(buffer)) => learning.step.handle(&buffer),
            Ok(event) => unreachable!("no probe asks for {event:?}"),
            // The response will fail for the same reason, which is reported to its client.
            Err(_) => learning.step.handle(&[]),
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
