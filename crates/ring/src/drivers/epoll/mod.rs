//! The driver for where io_uring is forbidden: `epoll(7)`, edge-triggered, for sockets; helper
//! threads for files.

use core::time::Duration;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::rc::Rc;

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SocketFlags};

use crate::drivers::common::Common;
use crate::fd::{Fd, Handle};
use crate::helpers::Job;
use crate::op::{Event, Op};
use crate::recv::{self, RecvPool};
use crate::slab::Key;
use crate::timers::Time;

/// Events taken from the kernel at once.
const EVENTS_MAX: usize = 256;
/// Connections accepted in one turn, so that a flood of them does not stop those that are open.
const ACCEPTS_MAX: usize = 64;

/// Event data of the helpers' eventfd; descriptors are 31 bits.
const HELPERS: u64 = u64::MAX;
const INOTIFY: u64 = u64::MAX - 1;
const WAKER: u64 = u64::MAX - 2;

const SOCKET_EVENTS: EventFlags =
    EventFlags::IN.union(EventFlags::OUT).union(EventFlags::RDHUP).union(EventFlags::ET);
const DEAD: EventFlags = EventFlags::RDHUP.union(EventFlags::HUP).union(EventFlags::ERR);

pub(crate) struct Epoll {
    epoll: OwnedFd,
    recv: Rc<RecvPool>,
    /// By descriptor number.
    interests: Vec<Interest>,
    /// Operations to try at the next turn without waiting for an edge.
    again: Vec<Key>,
    /// Receives that found no free buffer; tried again when the caller has given some back.
    starved: Vec<Key>,
    events: Vec<epoll::Event>,
    inotify_added: bool,
    woken: bool,
}

/// Who waits for a descriptor. It is added to the epoll set once, for both directions; an edge
/// that nobody waits for is passed over, because every operation looks for itself first.
#[derive(Clone, Copy, Debug, Default)]
struct Interest {
    added: bool,
    /// The peer has closed its side or the socket is broken; there will be no further edge of it.
    dead: bool,
    /// Whether `input` is in `again` or `starved` already.
    queued: bool,
    input: Option<Key>,
    output: Option<Key>,
}

fn index(fd: i32) -> usize {
    usize::try_from(fd).expect("descriptors in use are not negative")
}

impl Epoll {
    pub(crate) fn new(common: &Common) -> io::Result<Self> {
        let this = Self {
            epoll: epoll::create(CreateFlags::CLOEXEC)?,
            recv: RecvPool::with_list()?,
            interests: Vec::new(),
            again: Vec::new(),
            starved: Vec::new(),
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

    fn interest(&mut self, fd: BorrowedFd<'_>) -> io::Result<&mut Interest> {
        let at = index(fd.as_raw_fd());
        if at >= self.interests.len() {
            self.interests.resize(at + 1, Interest::default());
        }
        let interest = &mut self.interests[at];
        if !interest.added {
            let data = EventData::new_u64(at as u64);
            match epoll::add(&self.epoll, fd, data, SOCKET_EVENTS) {
                // A regular file is always ready, which the caller finds when it tries.
                Ok(()) | Err(Errno::PERM) => interest.added = true,
                // The number was used for the same open file before, which lives on elsewhere.
                Err(Errno::EXIST) => {
                    epoll::modify(&self.epoll, fd, data, SOCKET_EVENTS)?;
                    interest.added = true;
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(interest)
    }

    pub(crate) fn submit(&mut self, common: &mut Common, key: Key) {
        let slot = common.table.get_mut(key).expect("just inserted");
        let waits = match &slot.op {
            Op::Accept(fd) | Op::Recv(fd) | Op::Readable(fd) => Some((fd.clone(), true)),
            Op::Writable(fd) => Some((fd.clone(), false)),
            _ => None,
        };
        if let Some((fd, input)) = waits {
            if matches!(slot.op, Op::Accept(_)) {
                // accept4(2) has no flag for it. ENOTTY and the like: accept4 will say.
                let _ = rustix::io::ioctl_fionbio(fd.os(), true);
            }
            match self.interest(fd.os()) {
                Ok(interest) => {
                    let side = if input { &mut interest.input } else { &mut interest.output };
                    debug_assert!(side.is_none(), "one operation for each direction of {fd:?}");
                    *side = Some(key);
                    if input {
                        interest.queued = true;
                    }
                    self.again.push(key);
                }
                Err(error) => drop(common.finish(key, Err(error))),
            }
            return;
        }
        if matches!(slot.op, Op::Watch { .. }) && !self.inotify_added {
            match common.inotify().and_then(|fd| self.add_own(fd.as_fd(), INOTIFY)) {
                Ok(()) => self.inotify_added = true,
                Err(error) => {
                    common.finish(key, Err(error));
                    return;
                }
            }
        }
        common.submit_job(key);
    }

    pub(crate) fn cancel(&mut self, common: &mut Common, key: Key) {
        let Some(slot) = common.table.get_mut(key) else { return };
        match &slot.op {
            Op::Accept(fd) => {
                let fd = fd.clone();
                self.forget(&fd);
            }
            Op::Recv(fd) | Op::Readable(fd) => {
                let interest = &mut self.interests[index(fd.raw())];
                (interest.input, interest.queued) = (None, false);
            }
            Op::Writable(fd) => self.interests[index(fd.raw())].output = None,
            _ => {
                if common.helpers.cancel(key) {
                    common.finish_cancelled(key);
                }
                return;
            }
        }
        common.finish_cancelled(key);
    }

    pub(crate) fn wait(
        &mut self,
        common: &mut Common,
        now: Time,
        until: Option<Time>,
    ) -> io::Result<()> {
        self.close_unused(common);
        if self.recv.has_free() {
            self.again.append(&mut self.starved);
        }
        for key in core::mem::take(&mut self.again) {
            self.attempt(common, key);
        }
        let idle = self.again.is_empty() && common.ready.is_empty();
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
        for at in 0..self.events.len() {
            let event = self.events[at];
            let flags = event.flags;
            match event.data.u64() {
                HELPERS => common.reap_helpers(),
                INOTIFY => common.reap_inotify(),
                WAKER => self.woken = true,
                fd => {
                    let fd = usize::try_from(fd).expect("was an index when it was added");
                    self.interests[fd].dead |= flags.intersects(DEAD);
                    let Interest { input, output, queued, .. } = self.interests[fd];
                    if let (Some(key), false, true) =
                        (input, queued, flags.intersects(EventFlags::IN | DEAD))
                    {
                        self.attempt(common, key);
                    }
                    if let (Some(key), true) = (output, flags.intersects(EventFlags::OUT | DEAD)) {
                        self.interests[fd].output = None;
                        common.finish(key, Ok(Event::Writable));
                    }
                }
            }
        }
        Ok(())
    }

    fn close_unused(&mut self, common: &mut Common) {
        if common.closing.is_empty() {
            return;
        }
        for handle in common.closing.take() {
            match handle {
                Handle::Socket(fd) => {
                    if let Some(interest) = self.interests.get_mut(index(fd.as_raw_fd())) {
                        *interest = Interest::default();
                    }
                }
                Handle::File(fd) => common.detach_job(Job::Close(fd)),
                Handle::Sim(_) => unreachable!("another driver's descriptor"),
            }
        }
    }

    /// Do what `key` waits for if it can be done now.
    fn attempt(&mut self, common: &mut Common, key: Key) {
        let Some(slot) = common.table.get_mut(key) else { return };
        match &slot.op {
            Op::Recv(fd) => {
                let fd = fd.clone();
                self.interests[index(fd.raw())].queued = false;
                self.receive(common, key, &fd);
            }
            Op::Accept(fd) => {
                let fd = fd.clone();
                self.interests[index(fd.raw())].queued = false;
                self.accept(common, key, &fd);
            }
            Op::Readable(fd) => {
                let fd = fd.clone();
                self.interests[index(fd.raw())].queued = false;
                if polls(fd.os(), PollFlags::IN) {
                    self.interests[index(fd.raw())].input = None;
                    common.finish(key, Ok(Event::Readable));
                }
            }
            Op::Writable(fd) => {
                let fd = fd.clone();
                if polls(fd.os(), PollFlags::OUT) {
                    self.interests[index(fd.raw())].output = None;
                    common.finish(key, Ok(Event::Writable));
                }
            }
            _ => unreachable!("only what waits for a descriptor is tried"),
        }
    }

    fn receive(&mut self, common: &mut Common, key: Key, fd: &Fd) {
        let interest = &mut self.interests[index(fd.raw())];
        let received = self.recv.receive(|space| {
            let (len, _) = rustix::net::recv(fd.os(), space, RecvFlags::DONTWAIT)?;
            Ok(len)
        });
        let end = match received {
            None => {
                interest.queued = true;
                return self.starved.push(key);
            }
            Some(Ok(buf)) if buf.is_empty() => Ok(Event::Eof),
            Some(Ok(buf)) => {
                // A short receive has emptied the socket (epoll(7), "Questions and answers"),
                // unless the end of the stream is what comes next.
                if interest.dead || buf.len() == recv::SIZE {
                    interest.queued = true;
                    self.again.push(key);
                }
                common.emit(key, Event::Received(buf));
                return;
            }
            Some(Err(error)) => match error.kind() {
                io::ErrorKind::WouldBlock => return,
                io::ErrorKind::Interrupted => {
                    interest.queued = true;
                    return self.again.push(key);
                }
                _ => Err(error),
            },
        };
        interest.input = None;
        common.finish(key, end);
    }

    fn accept(&mut self, common: &mut Common, key: Key, fd: &Fd) {
        for _ in 0..ACCEPTS_MAX {
            match rustix::net::accept_with(fd.os(), SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
                Ok(socket) => {
                    let socket = common.fd(Handle::Socket(socket));
                    common.emit(key, Event::Accepted(socket));
                }
                Err(Errno::AGAIN) => return,
                // The peer left the queue again: not our trouble.
                Err(Errno::CONNABORTED | Errno::INTR) => {}
                Err(error) => {
                    self.forget(fd);
                    common.finish(key, Err(error.into()));
                    return;
                }
            }
        }
        self.interests[index(fd.raw())].queued = true;
        self.again.push(key);
    }

    /// Nobody accepts any more. A listener may be shared with other workers by dup(2), and would
    /// go on to report events here after this descriptor of it is closed.
    fn forget(&mut self, listener: &Fd) {
        // ENOENT: it was never added.
        let _ = epoll::delete(&self.epoll, listener.os());
        self.interests[index(listener.raw())] = Interest::default();
    }

    /// Take back what was cancelled, so that no helper refers to memory of ours.
    pub(crate) fn drain(&mut self, common: &mut Common) {
        // What is left sleeps in helpers.
        while !common.table.is_empty() {
            let mut wake = [PollFd::from_borrowed_fd(common.helpers.wake_fd(), PollFlags::IN)];
            // EINTR, ENOMEM: look and try again.
            let _ = poll(&mut wake, None);
            common.reap_helpers();
        }
        common.ready.clear();
    }
}

fn polls(fd: BorrowedFd<'_>, what: PollFlags) -> bool {
    let mut one = [PollFd::from_borrowed_fd(fd, what)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    // An error says nothing about the descriptor; the caller's own call will.
    poll(&mut one, Some(&now)).is_ok_and(|count| count > 0)
}

impl core::fmt::Debug for Epoll {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "epoll {}", self.epoll.as_raw_fd())
    }
}
