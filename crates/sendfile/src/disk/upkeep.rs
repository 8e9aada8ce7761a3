//! The operations of a disk that no stream waits for: timers, pages that are dropped from the page cache, second
//! descriptors of files, and the names of file systems.

use core::time::Duration;
use std::io;
use std::rc::Rc;
use std::sync::Arc;

use ring::{Completion, Event, Fd, Key, Op, Ring, Time};

use super::{Disk, Operation};
use crate::direct::DescriptorSlot;
use crate::file::File;
use crate::page_cache::{Dropping, PageCache};
use crate::policy::Caching;
use crate::trail::{self, Left, Trails};
use crate::way::Unusual;

/// An operation that no stream waits for.
#[derive(Debug)]
pub(super) enum Upkeep {
    /// Reads that take too long are looked for at this time.
    Look(Time),
    /// The pause of a device ends at this time.
    Pause(Time),
    /// Pages that a read left in the page cache are dropped from it.
    Discard { _dropping: Option<Dropping> },
    /// Ranges that streams have left in the page cache are discarded.
    Sweep,
    /// Pages of such a range are dropped.
    Leave { left: Left, _dropping: Vec<Dropping> },
    /// A file is opened for reads that bypass the page cache.
    Direct { file: Rc<File>, place: DescriptorSlot },
    /// A file system is asked for its name.
    Name { dev: u64, file: Fd },
    /// The places of a file's blocks are brought into memory.
    Extents,
}

/// The ranges that streams leave in the page cache and that are not to stay there.
#[derive(Debug)]
pub(super) struct Sweeps {
    pub(super) trails: Rc<Trails>,
    /// True if a timer is set for them.
    is_due: bool,
    /// True once the disk is about to go: no discard is tried again.
    is_last: bool,
}

/// The longest time for which the end of a disk waits for its last discards. A discard asks the device for nothing, and
/// takes 0.2 ms for each MiB at most; the reads that it waits for take as long as the device does.
const LAST_DISCARDS_MAX: Duration = Duration::from_secs(1);

impl Sweeps {
    pub(super) fn new(files: usize, page_cache: &Arc<PageCache>) -> Self {
        let trails = Rc::new(Trails::new(files, Arc::clone(page_cache)));
        Self { trails, is_due: false, is_last: false }
    }
}

impl Disk {
    pub(super) fn keep_up(&mut self, ring: &mut Ring, op: Op, upkeep: Upkeep) {
        self.submit(ring, op, Operation::Upkeep(upkeep));
    }

    /// Handles the result of an operation that no stream waits for.
    pub(super) fn handle_upkeep(
        &mut self,
        ring: &mut Ring,
        upkeep: Upkeep,
        result: io::Result<Event>,
    ) {
        match upkeep {
            Upkeep::Discard { .. } | Upkeep::Extents => {}
            Upkeep::Sweep => {
                self.now = ring.now();
                self.sweep(ring);
            }
            Upkeep::Leave { left, .. } => {
                if !self.sweeps.is_last && left.file.known_pages(ring, &left.range) > 0 {
                    self.now = ring.now();
                    self.sweeps.trails.try_again(left, self.now);
                    self.begin_sweeps(ring);
                }
            }
            Upkeep::Look(at) => {
                // Another time is that of a timer in whose place an earlier one was set.
                if self.late.look_at == Some(at) {
                    self.now = ring.now();
                    self.look(ring);
                }
            }
            Upkeep::Pause(at) => {
                self.now = ring.now();
                if self.opens_at == Some(at) {
                    self.opens_at = None;
                    self.await_pauses(ring);
                }
            }
            Upkeep::Direct { file, place } => {
                let fd = match result {
                    Ok(Event::Opened(fd)) => Some(fd),
                    _ => None,
                };
                file.direct().opened(fd, place);
            }
            Upkeep::Name { dev, file } => {
                let magic = match result {
                    Ok(Event::FileSystem(magic)) => Some(magic),
                    _ => None,
                };
                let unusual = magic.and_then(|magic| Unusual::find(ring, &file, magic));
                let unusual = unusual.filter(|one| self.devices.tells(one));
                self.file_systems.learn(dev, magic, unusual);
            }
        }
    }

    /// Sees to it that what streams leave in the page cache is dropped from it.
    pub(super) fn begin_sweeps(&mut self, ring: &mut Ring) {
        if !core::mem::replace(&mut self.sweeps.is_due, true) {
            self.keep_up(ring, Op::Timer(self.now + trail::PAUSE), Upkeep::Sweep);
        }
    }

    fn sweep(&mut self, ring: &mut Ring) {
        let due = self.sweeps.trails.due(self.now);
        self.discard(ring, due);
        self.sweeps.is_due = false;
        if self.sweeps.trails.are_any() {
            self.begin_sweeps(ring);
        }
    }

    /// Discards once all that streams have left in the page cache and that is not to stay, and waits for that and for
    /// the reads in flight whose pages are not to stay: a second at most, and not beyond `until`. It is for the end of a
    /// disk, and comes when its streams have been dropped. Pages that a packet refers to stay, because there is no
    /// later try. Other completions of the ring are dropped.
    pub fn discard_last(&mut self, ring: &mut Ring, until: Option<Time>) {
        self.now = ring.now();
        let latest = self.now + LAST_DISCARDS_MAX;
        let until = until.map_or(latest, |until| until.min(latest));
        let mut completions = Vec::new();
        // Discards that were begun before may have found pages that the peer had not received then, so they are not the
        // last try.
        while self.wait_for_discards(ring, until, &mut completions) {}
        self.sweeps.is_last = true;
        loop {
            let ranges = self.sweeps.trails.take_all();
            self.discard(ring, ranges);
            if !self.wait_for_discards(ring, until, &mut completions) {
                return;
            }
        }
    }

    /// Waits for an operation that discards, or whose pages are not to stay; false if there is none, or no more time.
    fn wait_for_discards(
        &mut self,
        ring: &mut Ring,
        until: Time,
        completions: &mut Vec<Completion>,
    ) -> bool {
        let waits = self.operations.iter().any(|(_, operation)| operation.is_to_leave());
        // If the ring cannot wait, nothing more can be done.
        if !waits || ring.now() >= until || ring.wait(Some(until), completions).is_err() {
            return false;
        }
        for completion in completions.drain(..) {
            if completion.key != Key::NONE && self.owns(completion.token) {
                drop(self.handle(ring, completion));
            }
        }
        true
    }

    pub(super) fn discard(&mut self, ring: &mut Ring, ranges: Vec<Left>) {
        for left in ranges {
            // When the stream began, the name of the file system may not have been known.
            self.introduce(ring, &left.file);
            if !left.file.counts_pages() {
                continue;
            }
            let (offset, len) = (left.range.start, left.range.end - left.range.start);
            let op = Op::Discard { file: left.file.fd().clone(), offset, len };
            let _dropping = left.file.begin_drops(&left.range);
            self.keep_up(ring, op, Upkeep::Leave { left, _dropping });
        }
    }
}

impl Operation {
    /// Returns whether the end of the operation removes pages from the page cache, leaves pages there that are not to
    /// stay, or says whether a file system has pages to remove.
    fn is_to_leave(&self) -> bool {
        match self {
            Self::Read(read) => read.policy.caching == Caching::Never,
            Self::Upkeep(upkeep) => {
                matches!(
                    upkeep,
                    Upkeep::Discard { .. } | Upkeep::Leave { .. } | Upkeep::Name { .. }
                )
            }
            Self::Late(_) => false,
        }
    }
}
