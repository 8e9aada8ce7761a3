//! The parts that the drivers share: operations in flight, finished operations, timers, helper threads for files, and
//! watches.

mod file;
mod socket;
mod watch;

use core::mem::MaybeUninit;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Instant;

use crate::fd::{Closing, Fd, Handle, Unused};
use crate::gate::{Call, Device, Gate};
use crate::helpers::job::Job;
use crate::helpers::{Helpers, THREADS_MAX};
use crate::op::{Completion, Event, Op, Token};
use crate::slab::{Key, Slab};
use crate::timers::{Time, Timers};
use watch::{FileWatch, Watches};

/// One operation in flight.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) token: Token,
    pub(crate) op: Op,
    /// Memory at an address the kernel knows.
    pub(crate) pinned: Pinned,
    /// True once the caller has cancelled the operation.
    pub(crate) cancelled: bool,
    pub(crate) place: OpStage,
}

/// The stage of an operation that may sleep on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OpStage {
    /// It needs no slot, or has given it back.
    None,
    /// In the queue of the device.
    InLine(Device),
    /// Among the calls of its device.
    Taken(Call),
}

/// Memory and descriptors that the kernel uses while an operation is in flight, besides the
/// operation's own. Memory is boxed because the table moves its slots.
#[derive(Debug)]
pub(crate) enum Pinned {
    None,
    How {
        #[expect(dead_code, reason = "kept for the kernel to read")]
        how: Box<io_uring::types::OpenHow>,
        /// The number of times that the path was tried, this time included.
        tries: u32,
    },
    Statx(Box<MaybeUninit<libc::statx>>),
    /// A descriptor that the ring made for the operation: the socket that is being connected, a
    /// signalfd or a pidfd.
    Own(Fd),
    /// The watch descriptor of the directory.
    Watch(i32),
    WatchFile(FileWatch),
    /// The socket was found to be writable; the poll is being cancelled.
    Writable,
    /// A listener accepts no more, for this reason; the poll is being cancelled.
    Refused(Option<io::Error>),
    /// The buffers that were received in a turn of the io_uring driver, and that turn.
    Received {
        turn: u64,
        count: u32,
    },
}

/// The slots for operations on files that may sleep; others wait, each in the queue of its device.
const PLACES: usize = 120;
/// The slots for `close(2)` of files. They are separate, because most of these calls end at once even on a device that
/// does not answer, so their ends do not show that it answers.
const CLOSES: usize = 32;
// Logs are written by these threads, too.
const _: () = assert!(PLACES + CLOSES < THREADS_MAX);

pub(crate) struct Common {
    pub(crate) table: Slab<Slot>,
    /// Completions that the next `wait` hands out.
    pub(crate) ready: Vec<Completion>,
    pub(crate) timers: Timers,
    pub(crate) closing: Rc<Closing>,
    pub(crate) helpers: Helpers,
    pub(crate) watches: Watches,
    /// Places for operations on files.
    pub(crate) gate: Gate<Key>,
    /// Operations with slots that have ended since the last turn.
    pub(crate) left: Vec<Call>,
    /// Places for `close(2)` of files, and the files that wait for one.
    pub(crate) closes: Gate<Unused>,
    /// Devices of files that have been closed since the last turn.
    pub(crate) closed: Vec<Device>,
}

/// The error of an operation that was [cancelled](crate::Ring::cancel): `ECANCELED`.
#[must_use]
pub fn cancelled() -> io::Error {
    io::Error::from_raw_os_error(libc::ECANCELED)
}

impl Common {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            table: Slab::new(),
            ready: Vec::new(),
            timers: Timers::default(),
            closing: Rc::default(),
            helpers: Helpers::new()?,
            watches: Watches::default(),
            gate: Gate::new(PLACES),
            left: Vec::new(),
            closes: Gate::new(CLOSES),
            closed: Vec::new(),
        })
    }

    /// Returns whether files wait to be closed. A file that waits for a slot gets one when others have been closed.
    pub(crate) fn has_unused(&self) -> bool {
        !self.closing.is_empty() || !self.closed.is_empty()
    }

    /// The next file that may be closed now. The driver closes it, and says so by [`Self::closed`].
    pub(crate) fn next_unused(&mut self, now: Time) -> Option<Unused> {
        for device in self.closed.drain(..) {
            self.closes.leave(device, now);
        }
        self.closes.next(now)
    }

    pub(crate) fn insert(&mut self, token: Token, op: Op) -> Key {
        if let Op::Extents(fd) = &op {
            fd.set_unmapped(true);
        }
        self.table.insert(Slot {
            token,
            op,
            pinned: Pinned::None,
            cancelled: false,
            place: OpStage::None,
        })
    }

    pub(crate) fn fd(&self, handle: Handle) -> Fd {
        Fd::new(handle, &self.closing)
    }

    /// Reports a completion of an operation that will have more.
    pub(crate) fn emit(&mut self, key: Key, event: Event) {
        if let Some(slot) = self.table.get_mut(key) {
            // A watch that has begun waits for no device any more.
            if let OpStage::Taken(call) = slot.place {
                slot.place = OpStage::None;
                self.left.push(call);
            }
            let token = slot.token;
            self.ready.push(Completion { key, token, result: Ok(event), more: true });
        }
    }

    /// Ends an operation with its last completion; returns it with the buffers and descriptors that it
    /// owned.
    pub(crate) fn end(&mut self, key: Key, result: io::Result<Event>) -> Option<Op> {
        let slot = self.remove(key)?;
        match (&result, &slot.op, slot.place) {
            (Ok(Event::Opened(fd)), _, OpStage::Taken(call)) => fd.set_device(call.device),
            (Ok(Event::Stat(stat)), Op::Stat(fd), _) => fd.set_device(stat.device),
            _ => {}
        }
        self.ready.push(Completion { key, token: slot.token, result, more: false });
        Some(slot.op)
    }

    /// Takes an operation out of the table just before its last completion is ready.
    fn remove(&mut self, key: Key) -> Option<Slot> {
        let slot = self.table.remove(key)?;
        if let Op::Acknowledgements(fd) = &slot.op
            && let Some(acknowledged) = fd.acknowledged()
        {
            acknowledged.borrow_mut().reporter = None;
        }
        if let Op::Extents(fd) = &slot.op {
            fd.set_unmapped(false);
        }
        if let OpStage::Taken(call) = slot.place {
            self.left.push(call);
        }
        Some(slot)
    }

    /// Ends the ring: helpers close the files that no operation uses, because `close(2)` may sleep, too. The files of
    /// one device have one thread, so a device that does not answer occupies no thread of others. Waits for all helpers
    /// until `end`, and then no longer.
    pub(crate) fn close_until(&mut self, end: Instant) {
        let mut files: BTreeMap<Device, Vec<OwnedFd>> = BTreeMap::new();
        for (handle, device) in self.closing.take() {
            match handle {
                Handle::File(fd) | Handle::Lingering(fd) => {
                    files.entry(device).or_default().push(fd);
                }
                other => drop(other),
            }
        }
        for Unused { fd, device } in self.closes.take_waiting() {
            files.entry(device).or_default().push(fd);
        }
        for (device, files) in files {
            // Without a thread the files are closed right here, because no other way is left.
            let _ = self.helpers.submit(Key::NONE, Job::CloseAll { device, files });
        }
        self.helpers.finish_until(end);
    }

    pub(crate) fn end_cancelled(&mut self, key: Key) {
        self.end(key, Err(cancelled()));
    }

    pub(crate) fn cancel_timer(&mut self, key: Key) {
        self.end_cancelled(key);
        let table = &mut self.table;
        self.timers.forget_one(|key| table.get_mut(key).is_some());
    }

    #[inline]
    pub(crate) fn run_timers(&mut self, now: Time) {
        while let Some(key) = self.timers.pop(now) {
            self.end(key, Ok(Event::Timer));
        }
    }
}

impl core::fmt::Debug for Common {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{} operations in flight", self.table.len())
    }
}
