//! The io_uring driver. Needs Linux 6.1: multishot accept and receive, provided buffers
//! (`IORING_REGISTER_PBUF_RING`), `IORING_SETUP_DEFER_TASKRUN`.

use core::mem::MaybeUninit;
use core::time::Duration;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
use std::rc::Rc;

use io_uring::squeue::{Entry, Flags};
use io_uring::types::{Fd as RawTarget, OpenHow as RawHow, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode};

use crate::drivers::common::{Common, Pinned};
use crate::fd::Handle;
use crate::helpers::{Job, OPEN_TRIES_MAX, RWF_DONTCACHE, STATX_MASK, settle_flags};
use crate::op::{Caching, Event, Op};
use crate::recv::{self, RecvPool};
use crate::slab::Key;
use crate::timers::Time;

/// Submissions that fit before one `io_uring_enter` is forced.
const SUBMISSIONS: u32 = 1024;
/// Completions that fit before the kernel keeps them in its own overflow list.
const COMPLETIONS: u32 = 16 * 1024;
/// Threads that the kernel may start for operations that sleep (`IORING_REGISTER_IOWQ_MAX_WORKERS`):
/// on slow file systems as many opens and stats as this run side by side.
const KERNEL_WORKERS_MAX: u32 = 64;
/// How often in a row the kernel may refuse submissions (`EBUSY`, `EAGAIN`: it is short of memory or
/// of room for completions), with a pause from the second time on: a second. Then the ring is beyond
/// use.
const REFUSALS_MAX: u32 = 1000;
const REFUSAL_PAUSE: Duration = Duration::from_millis(1);
/// Receive buffers that one connection may fill in one turn: a request head of 16 KiB. As long as it
/// stays within them the kernel receives without being asked again (multishot). One that fills more
/// could take all buffers of the ring, and the turn of all others with them; from then on it is
/// asked for one in each turn, as with epoll.
const RECEIVES_MAX: u32 = 8;
/// The group of the provided receive buffers.
const RECV_GROUP: u16 = 0;

/// `user_data` of requests whose completions mean nothing to us.
const IGNORED: u64 = u64::MAX;
/// Added to the key in the `user_data` of a cancel; keys leave the bit free.
const CANCEL: u64 = 1 << 63;
/// `user_data` of the poll on the helpers' eventfd.
const HELPERS: u64 = u64::MAX - 1;
/// `user_data` of the poll on the inotify descriptor.
const INOTIFY: u64 = u64::MAX - 2;
/// `user_data` of the poll on the waker's eventfd.
const WAKER: u64 = u64::MAX - 3;
/// `user_data` of closes in the kernel's threads.
const CLOSED: u64 = u64::MAX - 4;

pub(crate) struct Uring {
    ring: IoUring,
    recv: Rc<RecvPool>,
    /// Receives that ended because the buffers ran out; armed again at the next turn, when the
    /// caller has given some back.
    starved: Vec<Key>,
    /// Operations that a cancel has not found.
    missed: Vec<Key>,
    /// Closes in the kernel's threads. A ring that goes away would drop those that have not begun,
    /// and leave the descriptors open.
    closing: usize,
    /// How often `wait` was called.
    turn: u64,
    /// Entries that the queue of submissions had no room for, in order; as many as there are
    /// operations in flight and cancels of them.
    backlog: VecDeque<Entry>,
    /// How often in a row the kernel refused to take submissions.
    refusals: u32,
    /// Some once the ring is beyond use: the errno that `wait` fails with from then on.
    broken: Option<i32>,
    inotify_armed: bool,
    /// Whether there have been inode events since they were last read.
    inotify_ready: bool,
    woken: bool,
    waker_armed: bool,
}

impl Uring {
    pub(crate) fn new(common: &Common) -> io::Result<Self> {
        let ring: IoUring = IoUring::builder()
            .setup_cqsize(COMPLETIONS)
            .setup_submit_all()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_taskrun_flag()
            .build(SUBMISSIONS)?;
        let recv = RecvPool::with_kernel()?;
        // SAFETY: the descriptors stay mapped as long as `recv` lives; `drain` below unregisters
        // them before it lets go of `recv`.
        unsafe {
            ring.submitter().register_buf_ring_with_flags(
                recv.descriptors() as u64,
                recv::COUNT,
                RECV_GROUP,
                0,
            )
        }?;
        // Bounded workers are those of files; 0 leaves the unbounded (socket) limit as it is.
        ring.submitter().register_iowq_max_workers(&mut [KERNEL_WORKERS_MAX, 0])?;
        let mut this = Self {
            ring,
            recv,
            starved: Vec::new(),
            closing: 0,
            turn: 0,
            missed: Vec::new(),
            backlog: VecDeque::new(),
            refusals: 0,
            broken: None,
            inotify_armed: false,
            inotify_ready: false,
            woken: false,
            waker_armed: true,
        };
        this.arm_poll(common.helpers.wake_fd().as_raw_fd(), HELPERS);
        Ok(this)
    }

    fn arm_poll(&mut self, fd: i32, user_data: u64) {
        let poll =
            opcode::PollAdd::new(RawTarget(fd), libc::POLLIN.cast_unsigned().into()).multi(true);
        self.push(poll.build().user_data(user_data));
    }

    pub(crate) fn arm_waker(&mut self, fd: i32) {
        self.arm_poll(fd, WAKER);
    }

    /// Whether [`Waker::wake`](crate::Waker::wake) has been called since the last time.
    pub(crate) fn take_woken(&mut self) -> bool {
        core::mem::take(&mut self.woken)
    }

    /// Whether the poll on the waker has to be armed anew.
    pub(crate) fn waker_lost(&mut self) -> bool {
        !core::mem::replace(&mut self.waker_armed, true)
    }

    /// Give an entry to the kernel, or to the line of those that wait for room.
    fn push(&mut self, entry: Entry) {
        self.backlog.push_back(entry);
        if !self.push_backlog() && self.broken.is_none() {
            // The queue is full: have the kernel take it. If it refuses, that is the matter of the
            // next `enter`.
            let _ = self.ring.submit();
            self.push_backlog();
        }
    }

    /// Move what waits for room into the queue of submissions; whether all of it fits.
    fn push_backlog(&mut self) -> bool {
        while let Some(entry) = self.backlog.pop_front() {
            // SAFETY: what an entry points to is owned by the table's slot (or is a descriptor of
            // this ring) until the entry's last completion is taken in `reap`.
            if unsafe { self.ring.submission().push(&entry) }.is_err() {
                self.backlog.push_front(entry);
                return false;
            }
        }
        true
    }

    /// Submit what is queued, and wait for `want` completions, for at most `left` where that is
    /// said. An error means that the ring is beyond use.
    fn enter(&mut self, want: usize, left: Option<&Timespec>) -> io::Result<()> {
        if let Some(errno) = self.broken {
            return Err(io::Error::from_raw_os_error(errno));
        }
        // More than the queue holds goes with the next call, which comes at once.
        let want = if self.push_backlog() { want } else { 0 };
        let result = match left {
            Some(left) if want > 0 => {
                self.ring.submitter().submit_with_args(want, &SubmitArgs::new().timespec(left))
            }
            _ => self.ring.submit_and_wait(want),
        };
        let Err(error) = result else {
            self.refusals = 0;
            return Ok(());
        };
        let errno = error.raw_os_error().unwrap_or(libc::EINVAL);
        match errno {
            // The time is up, or a signal came: there may be completions all the same.
            libc::ETIME | libc::EINTR => {
                self.refusals = 0;
                return Ok(());
            }
            // The completion queue overflowed, or memory is short: reaping is what helps, and time.
            libc::EBUSY | libc::EAGAIN if self.refusals < REFUSALS_MAX => {
                if self.refusals > 0 {
                    std::thread::sleep(REFUSAL_PAUSE);
                }
                self.refusals += 1;
                return Ok(());
            }
            _ => {}
        }
        self.broken = Some(errno);
        Err(error)
    }

    pub(crate) fn submit(&mut self, common: &mut Common, key: Key) {
        let slot = common.table.get_mut(key).expect("just inserted");
        let id = key.to_bits();
        let entry = match &mut slot.op {
            Op::Accept(fd) => opcode::AcceptMulti::new(RawTarget(fd.raw()))
                .flags(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC)
                .build(),
            Op::Recv(fd) if fd.is_greedy() => {
                // The kernel names the buffer, and says how long it is.
                opcode::Recv::new(RawTarget(fd.raw()), core::ptr::null_mut(), 0)
                    .buf_group(RECV_GROUP)
                    .build()
                    .flags(Flags::BUFFER_SELECT)
            }
            Op::Recv(fd) => opcode::RecvMulti::new(RawTarget(fd.raw()), RECV_GROUP).build(),
            Op::Writable(fd) => {
                opcode::PollAdd::new(RawTarget(fd.raw()), libc::POLLOUT.cast_unsigned().into())
                    .build()
            }
            Op::Readable(fd) => {
                opcode::PollAdd::new(RawTarget(fd.raw()), libc::POLLIN.cast_unsigned().into())
                    .build()
            }
            Op::Open { dir, path, how } => {
                let raw = RawHow::new()
                    .flags(u64::from((how.flags | libc::O_CLOEXEC).cast_unsigned()))
                    .mode(how.mode.into())
                    .resolve(how.resolve);
                let raw = Box::new(raw);
                let dir = RawTarget(dir.as_ref().map_or(libc::AT_FDCWD, crate::Fd::raw));
                let entry = opcode::OpenAt2::new(dir, path.as_ptr(), &raw const *raw).build();
                let before = if let Pinned::How { tries, .. } = slot.pinned { tries } else { 0 };
                slot.pinned = Pinned::How { how: raw, tries: before + 1 };
                entry
            }
            Op::Stat(fd) => {
                let mut out = Box::new(MaybeUninit::<libc::statx>::zeroed());
                let entry =
                    opcode::Statx::new(RawTarget(fd.raw()), c"".as_ptr(), out.as_mut_ptr().cast())
                        .flags(libc::AT_EMPTY_PATH)
                        .mask(STATX_MASK)
                        .build();
                slot.pinned = Pinned::Statx(out);
                entry
            }
            Op::Read { file, offset, buf, caching } => {
                let len = u32::try_from(buf.want()).expect("buffers are below 2^31 bytes");
                let flags = match caching {
                    Caching::Keep => 0,
                    Caching::Drop => RWF_DONTCACHE,
                };
                opcode::Read::new(RawTarget(file.raw()), buf.as_mut_ptr(), len)
                    .offset(*offset)
                    .rw_flags(flags)
                    .build()
            }
            Op::Splice { file, offset, pipe } => {
                let len = u32::try_from(pipe.want()).expect("pipes hold a megabyte");
                let offset = i64::try_from(*offset).unwrap_or(i64::MAX);
                opcode::Splice::new(
                    RawTarget(file.raw()),
                    offset,
                    RawTarget(pipe.write_end()),
                    -1,
                    len,
                )
                .flags(libc::SPLICE_F_MOVE)
                .build()
            }
            Op::Write { file, bytes } => {
                let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
                opcode::Write::new(RawTarget(file.raw()), bytes.as_ptr(), len)
                    .offset(u64::MAX)
                    .build()
            }
            Op::Watch { .. } => {
                match common.inotify() {
                    Ok(fd) => {
                        if !self.inotify_armed {
                            self.inotify_armed = true;
                            self.arm_poll(fd.as_raw_fd(), INOTIFY);
                        }
                        common.submit_job(key);
                    }
                    Err(error) => {
                        common.finish(key, Err(error));
                    }
                }
                return;
            }
            Op::List { .. } | Op::Discard { .. } | Op::FileSystem(_) => {
                common.submit_job(key);
                return;
            }
            Op::Timer(_) => unreachable!("kept by the ring itself"),
        };
        self.push(entry.user_data(id));
    }

    pub(crate) fn cancel(&mut self, common: &mut Common, key: Key) {
        if let Some(at) = self.starved.iter().position(|starved| *starved == key) {
            self.starved.swap_remove(at);
            common.finish_cancelled(key);
        } else if common.helpers.cancel(key) {
            common.finish_cancelled(key);
        } else {
            self.cancel_in_kernel(key);
        }
    }

    fn cancel_in_kernel(&mut self, key: Key) {
        let cancel = opcode::AsyncCancel::new(key.to_bits()).build();
        self.push(cancel.flags(Flags::SKIP_SUCCESS).user_data(CANCEL | key.to_bits()));
    }

    /// A cancel does not find an accept or a receive that the kernel is about to begin anew, in a
    /// worker thread or at its next event. One that is still there has to be cancelled once more.
    fn cancel_again(&mut self, common: &mut Common) {
        for key in core::mem::take(&mut self.missed) {
            let op = common.table.get_mut(key).map(|slot| &slot.op);
            if matches!(op, Some(Op::Accept(_) | Op::Recv(_))) {
                self.cancel_in_kernel(key);
            }
        }
    }

    pub(crate) fn wait(
        &mut self,
        common: &mut Common,
        now: Time,
        until: Option<Time>,
    ) -> io::Result<()> {
        self.turn += 1;
        self.close_unused(common);
        self.cancel_again(common);
        if self.recv.has_free() {
            for key in core::mem::take(&mut self.starved) {
                self.submit(common, key);
            }
        }
        let idle = common.ready.is_empty() && !common.inotify_left;
        let want = usize::from(idle && until.is_none_or(|until| until > now));
        let left = until.map(|until| Timespec::from(until.since(now)));
        self.enter(want, left.as_ref())?;
        self.reap(common);
        // Its poll tells of new events only, not of those that were left.
        if core::mem::take(&mut self.inotify_ready) || common.inotify_left {
            common.reap_inotify();
        }
        Ok(())
    }

    fn close_unused(&mut self, common: &mut Common) {
        if common.closing.is_empty() {
            return;
        }
        for handle in common.closing.take() {
            let (fd, flags, user_data) = match handle {
                Handle::Socket(fd) => (fd, Flags::SKIP_SUCCESS, IGNORED),
                // In the kernel's worker thread: the last reference may have to truncate.
                Handle::File(fd) => {
                    self.closing += 1;
                    (fd, Flags::ASYNC, CLOSED)
                }
                Handle::Sim(_) => unreachable!("another driver's descriptor"),
            };
            let close = opcode::Close::new(RawTarget(fd.into_raw_fd())).build();
            self.push(close.flags(flags).user_data(user_data));
        }
    }

    fn reap(&mut self, common: &mut Common) {
        loop {
            let Some(entry) = self.ring.completion().next() else { return };
            let (result, flags) = (entry.result(), entry.flags());
            let more = cqueue::more(flags);
            match entry.user_data() {
                IGNORED => {}
                CLOSED => self.closing -= 1,
                HELPERS => {
                    common.reap_helpers();
                    if !more {
                        self.arm_poll(common.helpers.wake_fd().as_raw_fd(), HELPERS);
                    }
                }
                INOTIFY => {
                    self.inotify_ready = true;
                    if let (false, Some(fd)) = (more, &common.inotify) {
                        self.arm_poll(fd.as_raw_fd(), INOTIFY);
                    }
                }
                WAKER => {
                    self.woken = true;
                    self.waker_armed = more;
                }
                // What has ended meanwhile is not found either.
                id if id & CANCEL != 0 => {
                    if result == -libc::ENOENT {
                        self.missed.push(Key::from_bits(id & !CANCEL));
                    }
                }
                id => self.complete(common, Key::from_bits(id), result, flags),
            }
        }
    }

    fn complete(&mut self, common: &mut Common, key: Key, result: i32, flags: u32) {
        let more = cqueue::more(flags);
        let Some(slot) = common.table.get_mut(key) else {
            debug_assert!(false, "completion of {key:?}, which is not in flight");
            return;
        };
        let cancelled = slot.cancelled;
        let outcome = match u32::try_from(result) {
            Ok(value) => Ok(value),
            Err(_) => Err(io::Error::from_raw_os_error(-result)),
        };
        match (&mut slot.op, outcome) {
            (Op::Accept(_), Ok(fd)) => {
                // SAFETY: accept(2) has just made it, for us alone.
                let fd = unsafe { OwnedFd::from_raw_fd(fd.cast_signed()) };
                let fd = common.fd(Handle::Socket(fd));
                common.emit(key, Event::Accepted(fd));
                if !more {
                    self.again(common, key, cancelled);
                }
            }
            (Op::Accept(_), Err(error)) => match error.raw_os_error() {
                // The peer left the queue again: not our trouble.
                Some(libc::ECONNABORTED | libc::EINTR) => self.again(common, key, cancelled),
                _ => drop(common.finish(key, Err(error))),
            },
            (Op::Recv(_), Ok(0)) => {
                if let Some(id) = cqueue::buffer_select(flags) {
                    drop(self.recv.received(id, 0));
                }
                common.finish(key, Ok(Event::Eof));
            }
            (Op::Recv(fd), Ok(len)) => {
                let count = match slot.pinned {
                    Pinned::Received { turn, count } if turn == self.turn => count + 1,
                    _ => 1,
                };
                slot.pinned = Pinned::Received { turn: self.turn, count };
                let too_much = count == RECEIVES_MAX + 1;
                if too_much {
                    fd.mark_greedy();
                }
                let id =
                    cqueue::buffer_select(flags).expect("a receive with bytes names its buffer");
                let buf = self.recv.received(id, len as usize);
                common.emit(key, Event::Received(buf));
                if more && too_much {
                    // Where it is not found because it is just running, the next turn tries again.
                    self.cancel_in_kernel(key);
                }
                if !more {
                    self.again(common, key, cancelled);
                }
            }
            (Op::Recv(_), Err(error)) => match error.raw_os_error() {
                Some(libc::ENOBUFS) if !cancelled => self.starved.push(key),
                // ECANCELED: to go on one by one.
                Some(libc::EINTR | libc::ECANCELED) => self.again(common, key, cancelled),
                Some(libc::ENOBUFS) => common.finish_cancelled(key),
                _ => drop(common.finish(key, Err(error))),
            },
            (Op::Writable(_), result) => drop(common.finish(key, result.map(|_| Event::Writable))),
            (Op::Readable(_), result) => drop(common.finish(key, result.map(|_| Event::Readable))),
            (Op::Open { how, .. }, Ok(fd)) => {
                // SAFETY: openat2(2) has just made it, for us alone.
                let fd = unsafe { OwnedFd::from_raw_fd(fd.cast_signed()) };
                settle_flags(&fd, *how);
                let fd = common.fd(Handle::File(fd));
                common.finish(key, Ok(Event::Opened(fd)));
            }
            (Op::Open { .. }, Err(error)) => match slot.pinned {
                Pinned::How { tries, .. }
                    if error.raw_os_error() == Some(libc::EAGAIN) && tries < OPEN_TRIES_MAX =>
                {
                    self.again(common, key, cancelled);
                }
                _ => drop(common.finish(key, Err(error))),
            },
            (Op::Stat(_), Ok(_)) => {
                let Pinned::Statx(raw) = &slot.pinned else { unreachable!("set by submit") };
                // SAFETY: zeroed is a valid `statx`, and the kernel has filled it by now.
                let stat = unsafe { raw.assume_init_ref() }.into();
                common.finish(key, Ok(Event::Stat(Box::new(stat))));
            }
            (Op::Read { .. }, Ok(len)) => common.finish_read(key, len as usize),
            (Op::Splice { .. }, Ok(len)) => common.finish_splice(key, len as usize),
            (Op::Write { bytes, .. }, Ok(len)) => {
                let bytes = core::mem::take(bytes);
                common.finish(key, Ok(Event::Written(bytes, len as usize)));
            }
            (_, Err(error)) => drop(common.finish(key, Err(error))),
            (op, Ok(_)) => unreachable!("{op:?} is not submitted to the kernel"),
        }
    }

    /// A multishot operation has ended by itself, or another has to be tried again: start it anew
    /// unless it was cancelled.
    fn again(&mut self, common: &mut Common, key: Key, cancelled: bool) {
        if cancelled {
            common.finish_cancelled(key);
        } else {
            self.submit(common, key);
        }
    }

    /// Take back what was cancelled, so that the kernel refers to no memory of ours.
    pub(crate) fn drain(&mut self, common: &mut Common) {
        // Everything cancellable ends at once; reads end when the disk answers; watches that are
        // being set end in their helper.
        while !common.table.is_empty() || self.closing > 0 {
            if self.enter(1, None).is_err() {
                // Nobody will say when the kernel no longer writes: the operations in flight, with
                // their buffers and descriptors, and the receive buffers are leaked.
                core::mem::forget(core::mem::take(&mut common.table));
                core::mem::forget(Rc::clone(&self.recv));
                self.closing = 0;
            } else {
                self.reap(common);
            }
            common.ready.clear();
        }
        for handle in common.closing.take() {
            if let Handle::File(fd) = handle {
                common.detach_job(Job::Close(fd));
            }
        }
        if self.ring.submitter().unregister_buf_ring(RECV_GROUP).is_err() {
            // The kernel still has their address.
            core::mem::forget(Rc::clone(&self.recv));
        }
    }
}

impl core::fmt::Debug for Uring {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "io_uring {}", self.ring.as_raw_fd())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, apply_filter};

    use super::*;
    use crate::{BufferPool, Choice, Driver, Ring};

    fn is_mapped(address: usize) -> bool {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        maps.lines().any(|line| {
            let (start, rest) = line.split_once('-').unwrap();
            let (end, _) = rest.split_once(' ').unwrap();
            let number = |text| usize::from_str_radix(text, 16).unwrap();
            (number(start)..number(end)).contains(&address)
        })
    }

    fn ring_in_use() -> (Ring, usize, UnixStream, BufferPool) {
        let mut ring = Ring::new(Choice::Uring).unwrap();
        let Driver::Uring(uring) = &ring.driver else { unreachable!("as asked") };
        let address = uring.recv.descriptors() as usize;
        let (ours, theirs) = UnixStream::pair().unwrap();
        let socket = ring.adopt_socket(ours.into());
        ring.submit(Op::Recv(socket), 0);
        let file = ring.adopt_file(std::fs::File::open("/proc/self/exe").unwrap().into());
        let pool = BufferPool::new(4096, 2).unwrap();
        let buf = pool.take(4096).unwrap();
        ring.submit(Op::Read { file, offset: 0, buf, caching: Caching::Keep }, 1);
        (ring, address, theirs, pool)
    }

    /// The thread is its own, because it loses a system call.
    #[test]
    fn a_broken_ring_leaks_the_memory_that_the_kernel_may_write_to() {
        let test = || {
            let (ring, address, _theirs, pool) = ring_in_use();
            let rules = [(libc::SYS_io_uring_enter, Vec::new())].into();
            let (pass, fail) =
                (SeccompAction::Allow, SeccompAction::Errno(libc::ENOMEM.unsigned_abs()));
            let arch = std::env::consts::ARCH.try_into().unwrap();
            let filter: BpfProgram =
                SeccompFilter::new(rules, pass, fail, arch).unwrap().try_into().unwrap();
            apply_filter(&filter).unwrap();
            drop(ring);
            assert!(is_mapped(address));
            assert_eq!(pool.available(), 1, "the buffer of the read is not lent again");
        };
        std::thread::spawn(test).join().unwrap();
    }

    #[test]
    fn a_ring_that_works_gives_its_memory_back() {
        let (ring, _, _theirs, pool) = ring_in_use();
        drop(ring);
        assert_eq!(pool.available(), 2);
    }
}
