//! What the drivers share: operations in flight, finished ones, timers, helper threads, watches.

use core::mem::MaybeUninit;
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader};

use crate::fd::{Closing, Fd, Handle};
use crate::helpers::{Helpers, Job, Lent, Outcome};
use crate::op::{Change, Completion, Event, Op, Token};
use crate::slab::{Key, Slab};
use crate::timers::{Time, Timers};

/// One operation in flight.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) token: Token,
    pub(crate) op: Op,
    /// Memory at an address the kernel knows.
    pub(crate) pinned: Pinned,
    /// Whether the caller has asked for its end.
    pub(crate) cancelled: bool,
}

/// What the kernel reads or writes while an operation is in flight, besides the operation's own
/// buffers; boxed because the table moves its slots.
#[derive(Debug)]
pub(crate) enum Pinned {
    None,
    How {
        #[expect(dead_code, reason = "kept for the kernel to read")]
        how: Box<io_uring::types::OpenHow>,
        /// How often the path was tried, this time included.
        tries: u32,
    },
    Statx(Box<MaybeUninit<libc::statx>>),
    Watch(i32),
    /// Buffers received in which turn of the io_uring driver.
    Received {
        turn: u64,
        count: u32,
    },
}

pub(crate) struct Common {
    pub(crate) table: Slab<Slot>,
    /// Completions that the next `wait` hands out.
    pub(crate) ready: Vec<Completion>,
    pub(crate) timers: Timers,
    pub(crate) closing: Rc<Closing>,
    pub(crate) helpers: Helpers,
    /// Some from the first `Op::Watch` on.
    pub(crate) inotify: Option<Arc<OwnedFd>>,
    /// Who watches, by watch descriptor: several for one directory share one.
    watches: HashMap<i32, Vec<Key>>,
    /// Watches that helpers are setting up.
    watches_settling: usize,
    /// Whether a turn ended before the inotify descriptor was empty: it is read on in the next,
    /// which must not sleep before.
    pub(crate) inotify_left: bool,
}

/// Inode events in one turn, so that a directory in which much happens does not stop those who only
/// want to be served: what is done about an event is some microseconds. Others wait in the kernel,
/// whose queue is bounded (`max_queued_events`, inotify(7)).
const INOTIFY_EVENTS_MAX: usize = 256;
/// Bytes of one read of inode events. What it brought is delivered in any case: without names that
/// is another 256.
const INOTIFY_BYTES: usize = 4 * 1024;

impl Common {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            table: Slab::new(),
            ready: Vec::new(),
            timers: Timers::default(),
            closing: Rc::default(),
            helpers: Helpers::new()?,
            inotify: None,
            watches: HashMap::new(),
            watches_settling: 0,
            inotify_left: false,
        })
    }

    pub(crate) fn insert(&mut self, token: Token, op: Op) -> Key {
        self.table.insert(Slot { token, op, pinned: Pinned::None, cancelled: false })
    }

    pub(crate) fn fd(&self, handle: Handle) -> Fd {
        Fd::new(handle, &self.closing)
    }

    /// One of several completions.
    pub(crate) fn emit(&mut self, key: Key, event: Event) {
        if let Some(slot) = self.table.get_mut(key) {
            let token = slot.token;
            self.ready.push(Completion { key, token, result: Ok(event), more: true });
        }
    }

    /// The last completion; gives back what the operation owned.
    pub(crate) fn finish(&mut self, key: Key, result: io::Result<Event>) -> Option<Op> {
        let slot = self.table.remove(key)?;
        self.ready.push(Completion { key, token: slot.token, result, more: false });
        Some(slot.op)
    }

    pub(crate) fn finish_cancelled(&mut self, key: Key) {
        self.finish(key, Err(io::Error::from_raw_os_error(libc::ECANCELED)));
    }

    pub(crate) fn cancel_timer(&mut self, key: Key) {
        self.finish_cancelled(key);
        let table = &mut self.table;
        self.timers.forget_one(|key| table.get_mut(key).is_some());
    }

    pub(crate) fn run_timers(&mut self, now: Time) {
        while let Some(key) = self.timers.pop(now) {
            self.finish(key, Ok(Event::Timer));
        }
    }

    /// Have a helper thread do the operation `key`.
    pub(crate) fn submit_job(&mut self, key: Key) {
        let watch = matches!(self.table.get_mut(key), Some(Slot { op: Op::Watch { .. }, .. }));
        let job = match self.job(key) {
            Ok(job) => job,
            Err(error) => {
                self.finish(key, Err(error));
                return;
            }
        };
        match self.helpers.submit(key, job) {
            Ok(()) => self.watches_settling += usize::from(watch),
            Err(error) => drop(self.finish(key, Err(error))),
        }
    }

    /// Have a helper thread do what nobody waits for.
    pub(crate) fn detach_job(&mut self, job: Job) {
        // Without a thread the descriptor is closed here and now, which is what is left.
        let _ = self.helpers.submit(Key::NONE, job);
    }

    fn job(&mut self, key: Key) -> io::Result<Job> {
        let inotify = self.inotify.as_ref().map(|fd| fd.as_raw_fd());
        let slot = self.table.get_mut(key).expect("just inserted by the driver");
        Ok(match &mut slot.op {
            Op::Open { dir, path, how } => {
                Job::Open { dir: dir.as_ref().map(Fd::raw), path: path.clone(), how: *how }
            }
            Op::Stat(fd) => Job::Stat { fd: fd.raw() },
            Op::Read { file, offset, buf, caching } => Job::Read {
                fd: file.raw(),
                offset: *offset,
                memory: Lent { start: buf.as_mut_ptr(), len: buf.want() },
                caching: *caching,
            },
            Op::Splice { file, offset, pipe } => Job::Splice {
                fd: file.raw(),
                offset: *offset,
                pipe: pipe.write_end(),
                len: pipe.want(),
            },
            Op::Write { file, bytes } => {
                Job::Write { fd: file.raw(), bytes: core::mem::take(bytes) }
            }
            Op::List { dir, entries_max } => Job::List { fd: dir.raw(), entries_max: *entries_max },
            Op::Watch { root, path } => Job::Watch {
                root: root.raw(),
                path: path.clone(),
                inotify: inotify.ok_or(io::ErrorKind::Unsupported)?,
            },
            Op::Discard { file, offset, len } => {
                Job::Discard { fd: file.raw(), offset: *offset, len: *len }
            }
            Op::FileSystem(fd) => Job::FileSystem { fd: fd.raw() },
            Op::Accept(_) | Op::Recv(_) | Op::Writable(_) | Op::Readable(_) | Op::Timer(_) => {
                unreachable!("never sleeps, so no driver gives it to a helper")
            }
        })
    }

    /// Deliver what the helper threads have done.
    pub(crate) fn reap_helpers(&mut self) {
        for (key, result) in self.helpers.take_done() {
            let event = match result {
                Ok(Outcome::Opened(fd)) => Ok(Event::Opened(self.fd(Handle::File(fd)))),
                Ok(Outcome::Stat(stat)) => Ok(Event::Stat(stat)),
                Ok(Outcome::Read(len)) => {
                    self.finish_read(key, len);
                    continue;
                }
                Ok(Outcome::Spliced(len)) => {
                    self.finish_splice(key, len);
                    continue;
                }
                Ok(Outcome::Written(bytes, count)) => Ok(Event::Written(bytes, count)),
                Ok(Outcome::Listed(listing)) => Ok(Event::Listed(listing)),
                Ok(Outcome::Watching(watch)) => {
                    self.watching(key, watch);
                    continue;
                }
                Ok(Outcome::Discarded) => Ok(Event::Discarded),
                Ok(Outcome::FileSystem(magic)) => Ok(Event::FileSystem(magic)),
                Ok(Outcome::Nothing) => continue,
                Err(error) => Err(error),
            };
            if let Some(Op::Watch { .. }) = self.finish(key, event) {
                self.watch_settled();
            }
        }
    }

    /// The read `key` brought `len` bytes.
    pub(crate) fn finish_read(&mut self, key: Key, len: usize) {
        let Some(slot) = self.table.remove(key) else { return };
        let Op::Read { mut buf, .. } = slot.op else {
            unreachable!("only reads end with a count of bytes read")
        };
        buf.set_len(len);
        let result = Ok(Event::Read(buf));
        self.ready.push(Completion { key, token: slot.token, result, more: false });
    }

    /// The splice `key` brought `len` bytes.
    pub(crate) fn finish_splice(&mut self, key: Key, len: usize) {
        let Some(slot) = self.table.remove(key) else { return };
        let Op::Splice { mut pipe, .. } = slot.op else {
            unreachable!("only splices end with a count of bytes spliced")
        };
        pipe.set_len(len);
        let result = Ok(Event::Spliced(pipe));
        self.ready.push(Completion { key, token: slot.token, result, more: false });
    }

    /// The inotify descriptor, made when it is first needed.
    pub(crate) fn inotify(&mut self) -> io::Result<Arc<OwnedFd>> {
        if let Some(fd) = &self.inotify {
            return Ok(Arc::clone(fd));
        }
        let fd = Arc::new(inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?);
        self.inotify = Some(Arc::clone(&fd));
        Ok(fd)
    }

    fn watching(&mut self, key: Key, watch: i32) {
        let slot = self.table.get_mut(key).expect("a watch that is being set up stays until it is");
        slot.pinned = Pinned::Watch(watch);
        self.watches.entry(watch).or_default().push(key);
        if slot.cancelled {
            self.end_watch(key);
        } else {
            self.emit(key, Event::Watching);
        }
        self.watch_settled();
    }

    fn watch_settled(&mut self) {
        self.watches_settling -= 1;
        self.sweep_watches();
    }

    /// Cancel a watch; its last completion is ready at once.
    pub(crate) fn end_watch(&mut self, key: Key) {
        if let Some(Slot { pinned: Pinned::Watch(watch), .. }) = self.table.get_mut(key) {
            let watch = *watch;
            if let Some(keys) = self.watches.get_mut(&watch) {
                keys.retain(|other| *other != key);
            }
            self.finish_cancelled(key);
            self.sweep_watches();
        }
    }

    /// Remove the kernel's watches that nobody has any more, unless a helper is just setting one
    /// up: inotify gives all watches of one directory one descriptor, so that one may be the same.
    fn sweep_watches(&mut self) {
        let Some(inotify) = &self.inotify else { return };
        if self.watches_settling > 0 {
            return;
        }
        self.watches.retain(|watch, keys| {
            if keys.is_empty() {
                // EINVAL: the kernel has removed it, because the directory went away. That is also
                // why this does not sleep: what loses a reference here is a directory with a name.
                let _ = inotify::remove_watch(inotify, *watch);
            }
            !keys.is_empty()
        });
    }

    /// Deliver inode events, at most about [`INOTIFY_EVENTS_MAX`]; call once in a turn when the
    /// inotify descriptor is readable or [`inotify_left`](Self::inotify_left). Equal changes in a
    /// row are one: a write is three events.
    pub(crate) fn reap_inotify(&mut self) {
        let Some(inotify) = self.inotify.clone() else { return };
        let mut space = [MaybeUninit::uninit(); INOTIFY_BYTES];
        let mut events = Reader::new(&inotify, &mut space);
        let mut last = None;
        let mut count = 0;
        self.inotify_left = true;
        while count < INOTIFY_EVENTS_MAX || !events.is_buffer_empty() {
            count += 1;
            let Ok(event) = events.next() else {
                // EAGAIN: the queue is empty.
                self.inotify_left = false;
                return;
            };
            let flags = event.events();
            if flags.contains(ReadFlags::QUEUE_OVERFLOW) {
                let all: Vec<Key> = self.watches.values().flatten().copied().collect();
                for key in all {
                    self.emit(key, Event::Changed(Change { name: None, directory: true }));
                }
                continue;
            }
            let gone = flags.intersects(
                ReadFlags::DELETE_SELF
                    | ReadFlags::MOVE_SELF
                    | ReadFlags::UNMOUNT
                    | ReadFlags::IGNORED,
            );
            let name = event.file_name().map(|name| name.to_bytes().to_vec());
            if name.is_none() && !gone {
                // Attributes of the directory itself: its entries are what they were.
                continue;
            }
            let watch = event.wd();
            let change = Change { name, directory: flags.contains(ReadFlags::ISDIR) };
            if last.as_ref() != Some(&(watch, change.clone())) {
                for key in self.watches.get(&watch).cloned().unwrap_or_default() {
                    self.emit(key, Event::Changed(change.clone()));
                }
                last = Some((watch, change));
            }
            if flags.contains(ReadFlags::IGNORED) {
                self.watches.remove(&watch);
            }
        }
    }
}

impl core::fmt::Debug for Common {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{} operations in flight", self.table.len())
    }
}
