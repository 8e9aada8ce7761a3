//! The io_uring driver. Needs Linux 6.1: multishot receives, provided buffers
//! (`IORING_REGISTER_PBUF_RING`), `IORING_SETUP_DEFER_TASKRUN`.

mod file;
mod fixed;
mod socket;

use core::time::Duration;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd};
use std::rc::Rc;
use std::time::Instant;

use io_uring::squeue::{Entry, Flags};
use io_uring::types::{Fd as RawTarget, SubmitArgs, Timespec};
use io_uring::{EnterFlags, IoUring, cqueue, opcode};

use crate::common::{Common, Slot};
use crate::fd::{Handle, Unused};
use crate::gate::Device;
use crate::helpers::THREADS_MAX;
use crate::op::{Op, Wait};
use crate::recv::{self, RecvPool, Round};
use crate::slab::{Key, Slab};
use crate::timers::Time;

use fixed::Fixed;

/// Submissions that fit before one `io_uring_enter` is forced.
const SUBMISSIONS: u32 = 1024;
/// Completions that fit before the kernel keeps them in its own overflow list.
const COMPLETIONS: u32 = 16 * 1024;
/// The maximum of threads that the kernel may start for operations that sleep (`IORING_REGISTER_IOWQ_MAX_WORKERS`): as
/// many as helper threads, so that all operations with a slot run side by side.
const KERNEL_WORKERS_MAX: u32 = 160;
const _: () = assert!(KERNEL_WORKERS_MAX as usize == THREADS_MAX);
/// The number of times in a row that the kernel may refuse submissions (`EBUSY`, `EAGAIN`: it is short of memory or of
/// room for completions). From the second time on there is a pause, in sum a second. After that the ring cannot be
/// used.
const REFUSALS_MAX: u32 = 1000;
const REFUSAL_PAUSE: Duration = Duration::from_millis(1);
/// The maximum number of completions that a wait [gathers](Uring::gather).
const GATHERED_MAX: usize = 16;
/// The time for which a wait gathers completions. With 10 µs it gains less, with 40 no more (docs/linux.md).
const GATHERING_MICROS: u32 = 20;
/// The group of the small receive buffers: for requests.
const RECV_GROUP: u16 = 0;
/// The group of the wide receive buffers: for responses, and for long bodies of clients.
const WIDE_GROUP: u16 = 1;

/// `user_data` of requests whose completions mean nothing to us.
const IGNORED: u64 = u64::MAX;
/// Added to the key in the `user_data` of a cancel; keys leave the bit free.
const CANCEL: u64 = 1 << 63;
/// A bit in the `user_data` of entries in front of a splice, in addition to the key; keys leave the bit free.
const ARRIVAL: u64 = 1 << 62;
/// Added to the key of a close in its `user_data`; keys leave the bit free.
const CLOSE: u64 = 1 << 61;
/// `user_data` of the poll on the helpers' eventfd.
const HELPERS: u64 = u64::MAX - 1;
/// `user_data` of the poll on the inotify descriptor.
const INOTIFY: u64 = u64::MAX - 2;
/// `user_data` of the poll on the waker's eventfd.
const WAKER: u64 = u64::MAX - 3;

pub(crate) struct Uring {
    ring: IoUring,
    /// The buffers of [`RECV_GROUP`].
    recv: Rc<RecvPool>,
    /// The buffers of [`WIDE_GROUP`].
    wide: Rc<RecvPool>,
    /// Buffers of reads that bypass the page cache.
    fixed: Fixed,
    /// The number of completions that the next wait shall bring.
    gathers: usize,
    /// Receives of connected sockets that ended because the buffers ran out, or with bytes. They are armed again at the
    /// next turn, when the caller has given buffers back, unless it has cancelled them.
    starved: VecDeque<Key>,
    /// The same of accepted sockets, if they ended because the buffers ran out, or are to go on one by one. The socket
    /// that has waited for longest is the first.
    waiting: VecDeque<Key>,
    /// Accepts for which connections may wait.
    accepting: Vec<Key>,
    /// Operations that the kernel did not find when they were cancelled.
    missed: Vec<Key>,
    /// The devices of closes in the kernel's threads. The drop of a ring would drop closes that have not begun, and
    /// leave their descriptors open.
    closing: Slab<Device>,
    /// The number of calls of `wait` before which the caller had looked at all bytes that were received for accepted
    /// sockets.
    turn: u64,
    /// Entries that the submission queue had no room for, in order. There are at most as many as operations in flight
    /// and their cancels.
    backlog: VecDeque<Entry>,
    /// The number of times in a row that the kernel has refused submissions.
    refusals: u32,
    /// `Some` once the ring cannot be used any more: the errno that each `wait` then fails with.
    broken: Option<i32>,
    inotify_armed: bool,
    /// True if inode events have come since they were last read.
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
        let recv = RecvPool::with_kernel(recv::SMALL)?;
        let wide = RecvPool::with_kernel(recv::WIDE)?;
        for (pool, group) in [(&recv, RECV_GROUP), (&wide, WIDE_GROUP)] {
            // SAFETY: the descriptors stay mapped as long as the pool lives; `join` below unregisters
            // them before it lets go of the pool.
            unsafe {
                ring.submitter().register_buf_ring_with_flags(
                    pool.descriptors() as u64,
                    pool.shape().count,
                    group,
                    0,
                )
            }?;
        }
        // Bounded workers are for files; 0 leaves the unbounded (socket) limit unchanged.
        ring.submitter().register_iowq_max_workers(&mut [KERNEL_WORKERS_MAX, 0])?;
        let mut this = Self {
            ring,
            recv,
            wide,
            fixed: Fixed::default(),
            gathers: 1,
            starved: VecDeque::new(),
            waiting: VecDeque::new(),
            accepting: Vec::new(),
            closing: Slab::new(),
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
        // Some filters of system calls allow to make a ring, and forbid to use it.
        this.enter(0, None)?;
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

    /// Returns whether [`Waker::wake`](crate::Waker::wake) was called since the last time, and resets that.
    pub(crate) fn take_woken(&mut self) -> bool {
        core::mem::take(&mut self.woken)
    }

    /// Returns whether the poll on the waker has ended, so that it has to be armed again.
    pub(crate) fn waker_lost(&mut self) -> bool {
        !core::mem::replace(&mut self.waker_armed, true)
    }

    /// Give an entry to the kernel, or to the queue of entries that wait for room.
    fn push(&mut self, entry: Entry) {
        self.backlog.push_back(entry);
        if !self.push_backlog() && self.broken.is_none() {
            // The queue is full: let the kernel empty it. If it refuses, that is the matter of the next `enter`.
            let _ = self.ring.submit();
            self.push_backlog();
        }
    }

    /// Returns whether the submission queue has room for `count` entries together.
    fn has_room(&mut self, count: usize) -> bool {
        let queue = self.ring.submission();
        self.backlog.is_empty() && queue.capacity() - queue.len() >= count
    }

    /// Move waiting entries into the submission queue; returns whether all of them fit.
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

    /// Submit the queued entries, and wait for `want` completions, for at most `left` if it is given. An error means
    /// that the ring cannot be used any more.
    fn enter(&mut self, want: usize, left: Option<&Timespec>) -> io::Result<()> {
        if let Some(errno) = self.broken {
            return Err(io::Error::from_raw_os_error(errno));
        }
        // Entries beyond the queue go with the next call, which comes at once.
        let want = if self.push_backlog() { want } else { 0 };
        let result = if want > 0 { self.submit_and_wait(want, left) } else { self.ring.submit() };
        let Err(error) = result else {
            self.refusals = 0;
            return Ok(());
        };
        let errno = error.raw_os_error().unwrap_or(libc::EINVAL);
        match errno {
            // The time is up, or a signal came: there may still be completions.
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

    /// As the function of the crate `io_uring`, but the wait counts as idle time, where the kernel can do that
    /// (`IORING_ENTER_NO_IOWAIT`, Linux 6.15). Otherwise every wait counts as a wait for a disk. A server without
    /// requests would show a CPU with 100 % of `iowait`, and its worker would seem to sleep for the disk all the time
    /// (`delayacct_blkio_ticks`, proc_pid_stat(5)).
    ///
    /// A wait for several completions is satisfied with one after [`GATHERING_MICROS`].
    fn submit_and_wait(&mut self, want: usize, left: Option<&Timespec>) -> io::Result<usize> {
        let mut flags = EnterFlags::GETEVENTS;
        flags.set(EnterFlags::NO_IOWAIT, self.ring.params().is_feature_no_iowait());
        let mut limit = left.map(|left| SubmitArgs::new().timespec(left));
        if want > 1 {
            let args = match limit {
                Some(limit) => limit,
                None => SubmitArgs::new(),
            };
            limit = Some(args.min_wait_usec(GATHERING_MICROS));
        }
        flags.set(EnterFlags::EXT_ARG, limit.is_some());
        let queued = self.ring.submission().len();
        let [queued, want] = [queued, want].map(|count| u32::try_from(count).unwrap_or(u32::MAX));
        // SAFETY: the argument is what `EXT_ARG` says it is, none without it, and lives until the call returns.
        unsafe { self.ring.submitter().enter(queued, want, flags.bits(), limit.as_ref()) }
    }

    pub(crate) fn submit(&mut self, common: &mut Common, key: Key) {
        if let Some(Op::Accept(listener)) = common.table.get(key).map(|slot| &slot.op) {
            // accept4(2) has no flag for nonblocking listeners. The kernel reports ENOTTY and similar faults.
            let _ = rustix::io::ioctl_fionbio(listener.os(), true);
        }
        self.begin(common, key);
    }

    /// Gives an operation to the kernel or to a helper, for the first time or again.
    fn begin(&mut self, common: &mut Common, key: Key) {
        let slot = common.table.get_mut(key).expect("just inserted");
        if let Op::Acknowledgements(fd) = &slot.op {
            let fd = fd.clone();
            common.begin_acknowledgements(key, &fd);
        }
        let slot = common.table.get_mut(key).expect("just inserted");
        let entry = socket::entry(slot)
            .or_else(|| self.fixed.entry(&self.ring, &mut slot.op))
            .or_else(|| file::entry(slot));
        let Some(entry) = entry else {
            return self.submit_to_helper(common, key);
        };
        let entry = entry.user_data(key.to_bits());
        if file::may_sleep_inline(&slot.op) {
            self.push(entry.flags(Flags::ASYNC));
        } else {
            self.submit_arrivals(&slot.op, key);
            self.push(entry);
        }
    }

    /// Arms receives of connected sockets again, once the caller has given back all of their buffers: a buffer that has
    /// not been looked at yet may already complete the response.
    fn arm_starved(&mut self, common: &mut Common) {
        if !self.wide.is_all_free() {
            return;
        }
        for _ in 0..self.starved.len() {
            let Some(key) = self.starved.pop_front() else { return };
            self.begin(common, key);
        }
    }

    /// Arms receives of accepted sockets again, in the order in which they ended.
    fn arm_waiting(&mut self, common: &mut Common) {
        let mut round = Round::new(&self.recv, &self.wide);
        while let Some(&key) = self.waiting.front() {
            let socket = common.table.get(key).and_then(Slot::socket);
            if socket.is_some_and(|(_, fd)| !round.admits(fd)) {
                break;
            }
            self.waiting.pop_front();
            self.begin(common, key);
        }
    }

    pub(crate) fn cancel(&mut self, common: &mut Common, key: Key) {
        if let Some(at) = self.starved.iter().position(|starved| *starved == key) {
            self.starved.swap_remove_back(at);
            common.end_cancelled(key);
        } else if let Some(at) = self.waiting.iter().position(|waiting| *waiting == key) {
            self.waiting.remove(at);
            common.end_cancelled(key);
        } else if common.helpers.cancel(key) {
            common.end_cancelled(key);
        } else {
            self.cancel_in_kernel(key);
        }
    }

    fn cancel_in_kernel(&mut self, key: Key) {
        let cancel = opcode::AsyncCancel::new(key.to_bits()).build();
        self.push(cancel.flags(Flags::SKIP_SUCCESS).user_data(CANCEL | key.to_bits()));
    }

    /// Repeats cancels. A cancel does not find an accept, a connect or a receive that the kernel is about to begin
    /// anew, in a worker thread or at its next event. An operation that is still there has to be cancelled once more.
    fn cancel_again(&mut self, common: &mut Common) {
        for key in core::mem::take(&mut self.missed) {
            let wait = common.table.get(key).and_then(|slot| slot.socket());
            if matches!(wait, Some((Wait::Accept | Wait::Connect | Wait::Recv, _))) {
                self.cancel_in_kernel(key);
            }
        }
    }

    /// Lets the next wait gather up to this many completions in one sleep, if the kernel can do that (Linux 6.12).
    pub(crate) fn gather(&mut self, completions: usize) {
        if self.ring.params().is_feature_min_timeout() {
            self.gathers = completions.clamp(1, GATHERED_MAX);
        }
    }

    pub(crate) fn wait(
        &mut self,
        common: &mut Common,
        now: Time,
        until: Option<Time>,
    ) -> io::Result<()> {
        self.turn += u64::from(self.recv.is_all_free());
        self.close_unused(common, now);
        // Mostly these are empty, and to take them out would cost more than a look.
        if !self.missed.is_empty() {
            self.cancel_again(common);
        }
        if !self.starved.is_empty() {
            self.arm_starved(common);
        }
        if !self.waiting.is_empty() {
            self.arm_waiting(common);
        }
        // A socket that was armed may have no bytes, so those that wait behind it have to come in another turn.
        let may_receive = !self.waiting.is_empty() && self.recv.has_free();
        let idle = common.ready.is_empty()
            && !common.watches.has_more()
            && self.accepting.is_empty()
            && !may_receive;
        let gathers = core::mem::replace(&mut self.gathers, 1);
        let want = if idle && until.is_none_or(|until| until > now) { gathers } else { 0 };
        let left = until.map(|until| Timespec::from(until.since(now)));
        self.enter(want, left.as_ref())?;
        self.reap(common);
        for key in core::mem::take(&mut self.accepting) {
            self.accept(common, key);
        }
        // The poll on inotify reports new events only, not those that were left.
        if core::mem::take(&mut self.inotify_ready) || common.watches.has_more() {
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
                Handle::Socket(fd) => self.close(fd, Flags::SKIP_SUCCESS, IGNORED),
                Handle::File(fd) | Handle::Lingering(fd) => {
                    common.closes.line_up(device, Unused { fd, device });
                }
                Handle::Shared(_) => unreachable!("taken as a file"),
                Handle::Sim(_) => unreachable!("another driver's descriptor"),
            }
        }
        while let Some(Unused { fd, device }) = common.next_unused(now) {
            let key = self.closing.insert(device);
            // In the kernel's worker thread: the last reference may have to truncate.
            self.close(fd, Flags::ASYNC, CLOSE | key.to_bits());
        }
    }

    fn close(&mut self, fd: OwnedFd, flags: Flags, user_data: u64) {
        let close = opcode::Close::new(RawTarget(fd.into_raw_fd())).build();
        self.push(close.flags(flags).user_data(user_data));
    }

    fn reap(&mut self, common: &mut Common) {
        loop {
            let Some(entry) = self.ring.completion().next() else { return };
            let (result, flags) = (entry.result(), entry.flags());
            let more = cqueue::more(flags);
            match entry.user_data() {
                IGNORED => {}
                HELPERS => {
                    common.reap_helpers();
                    if !more {
                        self.arm_poll(common.helpers.wake_fd().as_raw_fd(), HELPERS);
                    }
                }
                INOTIFY => {
                    self.inotify_ready = true;
                    if let (false, Some(fd)) = (more, common.watches.inotify()) {
                        self.arm_poll(fd.as_raw_fd(), INOTIFY);
                    }
                }
                WAKER => {
                    self.woken = true;
                    self.waker_armed = more;
                }
                // An operation that has ended meanwhile is not found either.
                id if id & CANCEL != 0 => {
                    if result == -libc::ENOENT {
                        self.missed.push(Key::from_bits(id & !CANCEL));
                    }
                }
                // A successful entry reports nothing.
                id if id & ARRIVAL != 0 => {
                    self.complete_arrival(common, Key::from_bits(id & !ARRIVAL));
                }
                id if id & CLOSE != 0 => {
                    common.closed.extend(self.closing.remove(Key::from_bits(id & !CLOSE)));
                }
                id => self.complete(common, Key::from_bits(id), result, flags),
            }
        }
    }

    fn complete(&mut self, common: &mut Common, key: Key, result: i32, flags: u32) {
        let Some(slot) = common.table.get_mut(key) else {
            debug_assert!(false, "completion of {key:?}, which is not in flight");
            return;
        };
        let outcome = match u32::try_from(result) {
            Ok(value) => Ok(value),
            Err(_) => Err(io::Error::from_raw_os_error(-result)),
        };
        if let Some((wait, _)) = slot.socket() {
            self.complete_socket(common, key, wait, outcome, flags);
        } else {
            self.complete_file(common, key, outcome);
        }
    }

    /// Starts a multishot operation anew that has ended by itself, or another operation that has to be tried again,
    /// unless it was cancelled.
    fn again(&mut self, common: &mut Common, key: Key, cancelled: bool) {
        if cancelled {
            common.end_cancelled(key);
        } else {
            self.begin(common, key);
        }
    }

    /// Waits for all operations, which were cancelled before, so that the kernel refers to no memory
    /// of this ring. Returns false if some had not ended at `end`.
    pub(crate) fn join(&mut self, common: &mut Common, end: Option<Instant>) -> bool {
        let mut have_ended = true;
        // Cancellable operations end at once, reads end when the disk answers, and watches that are being set end in
        // their helper.
        while !common.table.is_empty() || !self.closing.is_empty() {
            self.cancel_again(common);
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            have_ended = left.is_none_or(|left| !left.is_zero());
            let limit = left.map(Timespec::from);
            have_ended = have_ended && self.enter(1, limit.as_ref()).is_ok();
            if !have_ended {
                // The kernel will not say when it no longer writes: the operations in flight, with
                // their buffers and descriptors, and the receive buffers are leaked.
                core::mem::forget(core::mem::take(&mut common.table));
                core::mem::forget(Rc::clone(&self.recv));
                core::mem::forget(Rc::clone(&self.wide));
                self.closing = Slab::new();
            } else {
                self.reap(common);
            }
            common.ready.clear();
        }
        for (pool, group) in [(&self.recv, RECV_GROUP), (&self.wide, WIDE_GROUP)] {
            if self.ring.submitter().unregister_buf_ring(group).is_err() {
                // The kernel still has their address.
                core::mem::forget(Rc::clone(pool));
            }
        }
        have_ended
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
    use crate::buffer::BufferPool;
    use crate::op::Caching;

    fn is_mapped(address: usize) -> bool {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        maps.lines().any(|line| {
            let (start, rest) = line.split_once('-').unwrap();
            let (end, _) = rest.split_once(' ').unwrap();
            let number = |text| usize::from_str_radix(text, 16).unwrap();
            (number(start)..number(end)).contains(&address)
        })
    }

    struct InUse {
        common: Common,
        uring: Uring,
        pool: BufferPool,
        _peer: UnixStream,
    }

    impl InUse {
        fn new() -> Self {
            let mut common = Common::new().unwrap();
            let mut uring = Uring::new(&common).unwrap();
            let (ours, theirs) = UnixStream::pair().unwrap();
            let socket = common.fd(Handle::Socket(ours.into()));
            let key = common.insert(0, Op::Recv(socket));
            uring.submit(&mut common, key);
            let file = std::fs::File::open("/proc/self/exe").unwrap();
            let file = common.fd(Handle::File(file.into()));
            let pool = BufferPool::new(4096, 2).unwrap();
            let buf = pool.take(4096).unwrap();
            let key = common.insert(1, Op::Read { file, offset: 0, buf, caching: Caching::Keep });
            uring.submit(&mut common, key);
            Self { common, uring, pool, _peer: theirs }
        }

        /// Does what dropping a ring does.
        fn take_back(&mut self) {
            let all: Vec<Key> = self.common.table.keys().collect();
            for key in all {
                self.common.table.get_mut(key).unwrap().cancelled = true;
                self.uring.cancel(&mut self.common, key);
            }
            self.uring.join(&mut self.common, None);
        }
    }

    /// The thread is its own, because it loses a system call.
    #[test]
    fn a_broken_ring_leaks_the_memory_that_the_kernel_may_write_to() {
        let test = || {
            let mut ring = InUse::new();
            let address = ring.uring.recv.descriptors() as usize;
            let rules = [(libc::SYS_io_uring_enter, Vec::new())].into();
            let (pass, fail) =
                (SeccompAction::Allow, SeccompAction::Errno(libc::ENOMEM.unsigned_abs()));
            let arch = std::env::consts::ARCH.try_into().unwrap();
            let filter: BpfProgram =
                SeccompFilter::new(rules, pass, fail, arch).unwrap().try_into().unwrap();
            apply_filter(&filter).unwrap();
            ring.take_back();
            let pool = ring.pool.clone();
            drop(ring);
            assert!(is_mapped(address));
            assert_eq!(pool.available(), 1, "the buffer of the read is not lent again");
        };
        std::thread::spawn(test).join().unwrap();
    }

    #[test]
    fn a_ring_that_works_gives_its_memory_back() {
        let mut ring = InUse::new();
        ring.take_back();
        assert_eq!(ring.pool.available(), 2);
    }
}
