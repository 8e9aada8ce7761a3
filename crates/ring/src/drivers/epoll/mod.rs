//! The driver for kernels and containers that forbid io_uring: edge-triggered `epoll(7)` for sockets, helper threads
//! for files.

mod socket;

use core::time::Duration;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::time::Instant;

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::common::{Common, Slot};
use crate::fd::{Handle, Unused};
use crate::recv::{self, RecvPool, Round};
use crate::slab::Key;
use crate::timers::Time;
use socket::{Interest, index};

/// Events taken from the kernel in one call.
const EVENTS_MAX: usize = 256;
/// Event data of the helpers' eventfd; descriptors are 31 bits.
const HELPERS: u64 = u64::MAX;
const INOTIFY: u64 = u64::MAX - 1;
const WAKER: u64 = u64::MAX - 2;

pub(crate) struct Epoll {
    epoll: OwnedFd,
    /// The small buffers: for requests.
    recv: Rc<RecvPool>,
    /// The wide buffers: for responses, and for long bodies of clients.
    wide: Rc<RecvPool>,
    /// By descriptor number.
    interests: Vec<Interest>,
    /// Accepts whose listener another accept waits for, at most [`SPARE_ACCEPTS_MAX`](crate::SPARE_ACCEPTS_MAX). When
    /// the waiting accept ends, the first spare accept of its listener replaces it.
    spare_accepts: Vec<Key>,
    /// Operations to try at the next turn without waiting for an edge.
    again: Vec<Key>,
    /// Receives of connected sockets that may bring more, or found no free buffer. They wait until the caller has given
    /// back the buffers: it may want no more, and has looked at none of the buffers if it had no time.
    more: Vec<Key>,
    /// The same of accepted sockets, which [take turns](Round). The socket that has waited for longest is the
    /// first.
    waiting: VecDeque<Key>,
    events: Vec<epoll::Event>,
    inotify_added: bool,
    woken: bool,
}

impl Epoll {
    pub(crate) fn new(common: &Common) -> io::Result<Self> {
        let this = Self {
            epoll: epoll::create(CreateFlags::CLOEXEC)?,
            recv: RecvPool::with_list(recv::SMALL)?,
            wide: RecvPool::with_list(recv::WIDE)?,
            interests: Vec::new(),
            spare_accepts: Vec::new(),
            again: Vec::new(),
            more: Vec::new(),
            waiting: VecDeque::new(),
            events: Vec::with_capacity(EVENTS_MAX),
            inotify_added: false,
            woken: false,
        };
        this.add_own(common.helpers.wake_fd(), HELPERS)?;
        Ok(this)
    }

    fn add_own(&self, fd: BorrowedFd<'_>, data: u64) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, fd, EventData::new_u64(data), EventFlags::IN)?)
    }

    pub(crate) fn arm_waker(&mut self, fd: BorrowedFd<'_>) -> io::Result<()> {
        self.add_own(fd, WAKER)
    }

    pub(crate) fn take_woken(&mut self) -> bool {
        core::mem::take(&mut self.woken)
    }

    pub(crate) fn submit(&mut self, common: &mut Common, key: Key) {
        let slot = common.table.get(key).expect("just inserted");
        match slot.socket() {
            Some((wait, fd)) => {
                let fd = fd.clone();
                self.submit_socket(common, key, wait, &fd);
            }
            None => self.submit_to_helper(common, key),
        }
    }

    fn submit_to_helper(&mut self, common: &mut Common, key: Key) {
        let is_watch = common.table.get(key).is_some_and(|slot| slot.op.is_watch());
        if is_watch && !self.inotify_added {
            match common.inotify().and_then(|fd| self.add_own(fd.as_fd(), INOTIFY)) {
                Ok(()) => self.inotify_added = true,
                Err(error) => {
                    common.end(key, Err(error));
                    return;
                }
            }
        }
        common.submit_job(key);
    }

    pub(crate) fn cancel(&mut self, common: &mut Common, key: Key) {
        let Some(slot) = common.table.get(key) else { return };
        match slot.socket() {
            Some((wait, fd)) => {
                let fd = fd.clone();
                self.cancel_socket(common, key, wait, &fd);
            }
            None if common.helpers.cancel(key) => {}
            // A helper works at the operation, which ends by itself.
            None => return,
        }
        common.end_cancelled(key);
    }

    pub(crate) fn wait(
        &mut self,
        common: &mut Common,
        now: Time,
        until: Option<Time>,
    ) -> io::Result<()> {
        self.close_unused(common, now);
        if !self.waiting.is_empty() {
            let mut round = Round::new(&self.recv, &self.wide);
            let admits = |key: &&Key| {
                let socket = common.table.get(**key).and_then(Slot::socket);
                socket.is_none_or(|(_, fd)| round.admits(fd))
            };
            let count = self.waiting.iter().take_while(admits).count();
            self.again.extend(self.waiting.drain(..count));
        }
        if !self.more.is_empty() && self.wide.is_all_free() {
            self.again.append(&mut self.more);
        }
        for key in core::mem::take(&mut self.again) {
            self.attempt(common, key);
        }
        let may_receive = !self.waiting.is_empty() && self.recv.has_free();
        let idle = self.again.is_empty() && common.ready.is_empty() && !may_receive;
        let left = match until {
            _ if !idle => Some(Duration::ZERO),
            Some(until) => Some(until.since(now)),
            None => None,
        };
        let left = left.map(|left| {
            Timespec::try_from(left).unwrap_or(Timespec { tv_sec: i64::MAX, tv_nsec: 0 })
        });
        self.events.clear();
        match epoll::wait(&self.epoll, spare_capacity(&mut self.events), left.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let mut has_changes = false;
        for at in 0..self.events.len() {
            let event = self.events[at];
            let flags = event.flags;
            match event.data.u64() {
                HELPERS => common.reap_helpers(),
                INOTIFY => has_changes = true,
                WAKER => self.woken = true,
                fd => {
                    let at = usize::try_from(fd).expect("was an index when it was added");
                    self.handle_edge(common, at, flags);
                }
            }
        }
        if has_changes {
            common.reap_inotify();
        }
        Ok(())
    }

    fn close_unused(&mut self, common: &mut Common, now: Time) {
        if !common.has_unused() {
            return;
        }
        for (handle, device) in common.closing.take() {
            match handle {
                Handle::Socket(fd) => self.lose_interest(&fd),
                Handle::Lingering(fd) => {
                    self.lose_interest(&fd);
                    common.closes.line_up(device, Unused { fd, device });
                }
                Handle::File(fd) => common.closes.line_up(device, Unused { fd, device }),
                Handle::Shared(_) => unreachable!("taken as a file"),
                Handle::Sim(_) => unreachable!("another driver's descriptor"),
            }
        }
        while let Some(unused) = common.next_unused(now) {
            common.submit_close(unused);
        }
    }

    /// Removes a descriptor that will be closed from the epoll set. Another process may share the socket, which would
    /// then go on to report events here, with a number that soon belongs to another socket.
    fn lose_interest(&mut self, fd: &OwnedFd) {
        if let Some(interest) = self.interests.get_mut(index(fd.as_raw_fd())) {
            if interest.is_added() {
                // An error leaves it as it was before.
                let _ = epoll::delete(&self.epoll, fd);
            }
            *interest = Interest::default();
        }
    }

    /// Waits for all operations, which were cancelled before, so that no helper refers to memory of
    /// this ring. Returns false if some had not ended at `end`.
    pub(crate) fn join(&mut self, common: &mut Common, end: Option<Instant>) -> bool {
        // The operations that are left sleep in helpers.
        while !common.table.is_empty() {
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                // A helper still uses the memory and the descriptors of an operation in flight.
                core::mem::forget(core::mem::take(&mut common.table));
                common.ready.clear();
                return false;
            }
            let limit = left.and_then(|left| Timespec::try_from(left).ok());
            let mut wake = [PollFd::from_borrowed_fd(common.helpers.wake_fd(), PollFlags::IN)];
            // EINTR, ENOMEM: look and try again.
            let _ = poll(&mut wake, limit.as_ref());
            common.reap_helpers();
        }
        common.ready.clear();
        true
    }
}

impl core::fmt::Debug for Epoll {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "epoll {}", self.epoll.as_raw_fd())
    }
}
