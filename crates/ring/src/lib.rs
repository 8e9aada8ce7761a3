//! One completion queue for every kind of event: sockets, files, inodes, timers, wake-ups.
//!
//! `submit` an operation, `wait` for completions, and never sleep anywhere else. Three drivers do
//! the same in three ways and pass one test suite (`tests/contract.rs`):
//!
//! | driver | sockets | files |
//! |---|---|---|
//! | io_uring (Linux 6.1) | multishot accept and receive into provided buffers | asynchronous reads; what has no operation goes to helper threads |
//! | epoll | edge-triggered `epoll(7)` | helper threads |
//! | simulation ([`sim`]) | simulated peers | a simulated disk; one seed, one run |
//!
//! The idea is Polyakov's kevent (2006): one queue for everything that can happen. Before changing
//! a driver read `io_uring(7)`, `io_uring_enter(2)`, `epoll(7)`, `inotify(7)`.
//!
//! # Ownership
//!
//! An operation owns its buffers and descriptors until its last completion
//! ([`Completion::more`] is false), also after [`Ring::cancel`]. Keys carry a generation, so a late
//! completion is never mistaken for one of a newer operation. Dropping a ring cancels everything,
//! takes it back, and only then frees: on a slow file system that may take as long as the slowest
//! call under way.
//!
//! # What may be called when
//!
//! Only [`Ring::wait`] sleeps. The direct calls ([`Ring::send`], [`Ring::sendfile`],
//! [`Ring::probe`]...) answer at once; `sendfile` does so only for ranges that are resident, which
//! is the caller's to know (the crate `sendfile` does).
//!
//! # Limits
//!
//! A ring takes any number of operations: its caller owns what they work on, and bounds that. At
//! most 64 calls sleep in helper threads at once, and as many in the kernel's; more wait in line.
//!
//! ```no_run
//! use ring::{Choice, Event, Op, Ring};
//!
//! let mut ring = Ring::new(Choice::Auto)?;
//! let listener = ring.adopt_socket(std::net::TcpListener::bind("127.0.0.1:0")?.into());
//! ring.submit(Op::Accept(listener), 0);
//! let mut completions = Vec::new();
//! ring.wait(None, &mut completions)?;
//! for completion in completions.drain(..) {
//!     if let Ok(Event::Accepted(socket)) = completion.result {
//!         ring.send(&socket, &[std::io::IoSlice::new(b"hello\n")], false)?;
//!     }
//! }
//! # std::io::Result::Ok(())
//! ```

#![deny(unsafe_code)]

#[allow(unsafe_code, reason = "memory that the kernel writes to")]
mod buffer;
mod drivers;
mod fault;
mod fd;
#[allow(unsafe_code, reason = "system calls on lent descriptors and memory")]
mod helpers;
#[allow(unsafe_code, reason = "preadv2 into shared scratch memory, cachestat, mincore")]
mod now;
mod op;
mod pipe;
#[allow(unsafe_code, reason = "memory that the kernel writes to, and the ring of its descriptors")]
mod recv;
pub mod sim;
mod slab;
mod timers;

use core::fmt;
use core::sync::atomic::Ordering;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;

use rustix::event::{EventfdFlags, eventfd};
use rustix::time::{ClockId, clock_gettime};

pub use buffer::{Buffer, BufferPool};
pub use fault::Fault;
pub use fd::Fd;
pub use now::Mapping;
pub use op::{
    Caching, Change, Completion, DriverKind, Entry, Event, FileKind, Listing, Op, OpenHow, Stat,
    Token,
};
pub use pipe::{Pipe, PipePool};
pub use recv::RecvBuf;
pub use slab::{Key, Slab};
pub use timers::Time;

use drivers::common::Common;
use drivers::epoll::Epoll;
use drivers::uring::Uring;
use fd::Handle;
use sim::Sim;

/// The most that one [`Ring::probe`] looks at, bytes.
pub const PROBE_BYTES_MAX: usize = now::PROBE_BYTES_MAX;

/// The key of [`Event::Woken`], which no operation has.
const WAKER_KEY: Key = Key::NONE;

/// Where reads end: no file system goes further, and no sum with a length overflows.
const OFFSET_MAX: u64 = 1 << 62;

/// Which driver to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// io_uring if the kernel has it and allows it, else epoll.
    #[default]
    Auto,
    /// io_uring or an error.
    Uring,
    /// epoll and threads.
    Epoll,
}

/// A completion queue. It belongs to the thread that made it.
#[derive(Debug)]
pub struct Ring {
    common: Common,
    driver: Driver,
    reason: String,
    waker: Option<(Waker, Token)>,
}

#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one in each worker")]
enum Driver {
    Uring(Uring),
    Epoll(Epoll),
    Sim(Sim),
}

/// Wakes a ring's [`wait`](Ring::wait) from another thread.
#[derive(Clone, Debug)]
pub struct Waker(Wakes);

#[derive(Clone, Debug)]
enum Wakes {
    Os(Arc<OwnedFd>),
    Sim(sim::Flag),
}

impl Waker {
    /// Make the ring deliver [`Event::Woken`]; several calls may make one event.
    pub fn wake(&self) {
        match &self.0 {
            // EAGAIN: the counter is full, so the ring is being woken already.
            Wakes::Os(fd) => drop(rustix::io::write(fd, &1_u64.to_ne_bytes())),
            // Release pairs with the acquire in `Sim::take_woken`.
            Wakes::Sim(flag) => flag.store(true, Ordering::Release),
        }
    }
}

impl Ring {
    /// Make a ring for the calling thread.
    ///
    /// # Errors
    ///
    /// Those of `io_uring_setup(2)` (with [`Choice::Uring`]; typically `EPERM` in a container or
    /// with `kernel.io_uring_disabled`, `EINVAL` before Linux 6.1), `epoll_create1(2)`,
    /// `eventfd(2)` and `mmap(2)`.
    pub fn new(choice: Choice) -> io::Result<Self> {
        let common = Common::new()?;
        // Found out now, for it may take a child, and the first look must not wait for that.
        now::may_cachestat();
        let (driver, reason) = match choice {
            Choice::Epoll => (Driver::Epoll(Epoll::new(&common)?), "as asked".to_owned()),
            Choice::Uring => (Driver::Uring(Uring::new(&common)?), "as asked".to_owned()),
            Choice::Auto => match Uring::new(&common) {
                Ok(uring) => (Driver::Uring(uring), "the kernel has it and allows it".to_owned()),
                Err(error) => {
                    let reason = format!("io_uring cannot be used here: {error}");
                    (Driver::Epoll(Epoll::new(&common)?), reason)
                }
            },
        };
        Ok(Self { common, driver, reason, waker: None })
    }

    /// Which driver runs.
    #[must_use]
    pub const fn kind(&self) -> DriverKind {
        match self.driver {
            Driver::Uring(_) => DriverKind::Uring,
            Driver::Epoll(_) => DriverKind::Epoll,
            Driver::Sim(_) => DriverKind::Sim,
        }
    }

    /// Why that driver runs: part of a sentence.
    #[must_use]
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// Take a socket, pipe or eventfd, whose `close(2)` does not sleep.
    #[must_use]
    pub fn adopt_socket(&self, fd: OwnedFd) -> Fd {
        self.common.fd(Handle::Socket(fd))
    }

    /// Take a file or directory.
    #[must_use]
    pub fn adopt_file(&self, fd: OwnedFd) -> Fd {
        self.common.fd(Handle::File(fd))
    }

    /// Begin an operation. Its completions carry `token`.
    pub fn submit(&mut self, op: Op, token: Token) -> Key {
        // To io_uring the last of them would mean "where the file's own offset is".
        let refused = matches!(op, Op::Read { offset, .. } | Op::Splice { offset, .. } if offset >= OFFSET_MAX);
        let timer = if let Op::Timer(at) = op { Some(at) } else { None };
        let key = self.common.insert(token, op);
        if let Some(at) = timer {
            self.common.timers.insert(at, key);
            return key;
        }
        if refused {
            self.common.finish(key, Err(io::Error::from_raw_os_error(libc::EINVAL)));
            return key;
        }
        match &mut self.driver {
            Driver::Uring(uring) => uring.submit(&mut self.common, key),
            Driver::Epoll(epoll) => epoll.submit(&mut self.common, key),
            Driver::Sim(sim) => sim.submit(&mut self.common, key),
        }
        key
    }

    /// Ask for an operation's end. Its last completion comes all the same, with `ECANCELED` or
    /// with what had happened before. A key that is not in flight is passed over.
    pub fn cancel(&mut self, key: Key) {
        let Some(slot) = self.common.table.get_mut(key) else { return };
        if core::mem::replace(&mut slot.cancelled, true) {
            return;
        }
        match (&slot.op, &mut self.driver) {
            (Op::Timer(_), _) => self.common.cancel_timer(key),
            (_, Driver::Sim(sim)) => sim.cancel(&mut self.common, key),
            (Op::Watch { .. }, _) => self.common.end_watch(key),
            (_, Driver::Uring(uring)) => uring.cancel(&mut self.common, key),
            (_, Driver::Epoll(epoll)) => epoll.cancel(&mut self.common, key),
        }
    }

    /// Sleep until something has happened or the clock has reached `until`; `None` is no limit, a
    /// time that has passed means "only look". Replaces the contents of `completions`.
    ///
    /// # Errors
    ///
    /// When the kernel refuses to wait for good, which is not expected: each later call fails with
    /// the same errno, and nothing more completes. Give up the ring: dropping it does not wait, and
    /// leaks the operations in flight with their buffers and descriptors, to which the kernel may
    /// still write.
    pub fn wait(
        &mut self,
        until: Option<Time>,
        completions: &mut Vec<Completion>,
    ) -> io::Result<()> {
        completions.clear();
        let now = self.now();
        self.common.run_timers(now);
        let until = match (until, self.common.timers.next()) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        let woken = match &mut self.driver {
            Driver::Uring(uring) => {
                uring.wait(&mut self.common, now, until)?;
                if let (true, Some((Waker(Wakes::Os(fd)), _))) = (uring.waker_lost(), &self.waker) {
                    uring.arm_waker(fd.as_raw_fd());
                }
                uring.take_woken()
            }
            Driver::Epoll(epoll) => {
                epoll.wait(&mut self.common, now, until)?;
                epoll.take_woken()
            }
            Driver::Sim(sim) => {
                sim.wait(&mut self.common, until)?;
                sim.take_woken()
            }
        };
        if woken {
            self.woken();
        }
        if self.common.timers.next().is_some() {
            let now = self.now();
            self.common.run_timers(now);
        }
        core::mem::swap(&mut self.common.ready, completions);
        Ok(())
    }

    fn woken(&mut self) {
        let Some((waker, token)) = &self.waker else { return };
        if let Wakes::Os(fd) = &waker.0 {
            // EAGAIN: read before; the event is delivered once more, which it may be.
            let _ = rustix::io::read(fd, &mut [0; 8]);
        }
        let (key, token) = (WAKER_KEY, *token);
        self.common.ready.push(Completion { key, token, result: Ok(Event::Woken), more: true });
    }

    /// What wakes this ring; its [`Event::Woken`] carry the `token` of the first call.
    ///
    /// # Errors
    ///
    /// Those of `eventfd(2)` and `epoll_ctl(2)`.
    pub fn waker(&mut self, token: Token) -> io::Result<Waker> {
        if let Some((waker, _)) = &self.waker {
            return Ok(waker.clone());
        }
        let wakes = match &mut self.driver {
            Driver::Uring(uring) => {
                let fd = waker_fd()?;
                uring.arm_waker(fd.as_raw_fd());
                Wakes::Os(fd)
            }
            Driver::Epoll(epoll) => {
                let fd = waker_fd()?;
                epoll.arm_waker(fd.as_fd())?;
                Wakes::Os(fd)
            }
            Driver::Sim(sim) => Wakes::Sim(Arc::clone(&sim.woken)),
        };
        let (waker, _) = self.waker.insert((Waker(wakes), token));
        Ok(waker.clone())
    }

    /// The ring's clock: monotonic time.
    #[must_use]
    pub fn now(&self) -> Time {
        if let Driver::Sim(sim) = &self.driver {
            return sim.world.now();
        }
        let time = clock_gettime(ClockId::Monotonic);
        let nanos = time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned();
        Time::from_nanos(nanos)
    }

    /// Seconds since 1970, a few milliseconds coarse.
    #[must_use]
    pub fn unix_time(&self) -> i64 {
        match &self.driver {
            Driver::Sim(sim) => sim.world.unix_time(),
            _ => clock_gettime(ClockId::RealtimeCoarse).tv_sec,
        }
    }

    /// Operations in flight.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.common.table.len()
    }

    /// `send(2)` what the socket can take now. `more` says that the rest of a message follows at
    /// once (`MSG_MORE`).
    ///
    /// # Errors
    ///
    /// `WouldBlock` when the socket is full (then [`Op::Writable`]); of others [`Fault`] says what
    /// they mean.
    pub fn send(&self, socket: &Fd, pieces: &[IoSlice<'_>], more: bool) -> io::Result<usize> {
        match &self.driver {
            Driver::Sim(sim) => sim.world.send(socket.raw(), pieces),
            _ => now::send(socket.os(), pieces, more),
        }
    }

    /// `sendfile(2)` what the socket can take now. Sleeps on the disk unless the range is
    /// resident: ask [`probe`](Self::probe) first.
    ///
    /// # Errors
    ///
    /// `WouldBlock` when the socket is full (then [`Op::Writable`]); [`Fault`] says whether another
    /// is of the socket or of the file.
    pub fn sendfile(&self, socket: &Fd, file: &Fd, offset: u64, len: usize) -> io::Result<usize> {
        match &self.driver {
            Driver::Sim(sim) => sim.world.sendfile(socket.raw(), file.raw(), offset, len),
            _ => now::sendfile(socket.os(), file.os(), offset, len),
        }
    }

    /// `splice(2)` to the socket what it can take now of at most `count` bytes in the pipe.
    ///
    /// # Errors
    ///
    /// As for [`send`](Self::send).
    pub fn drain(
        &self,
        socket: &Fd,
        pipe: &mut Pipe,
        count: usize,
        more: bool,
    ) -> io::Result<usize> {
        pipe.drain_to(socket.os(), count, more)
    }

    /// How many bytes of the file from `offset` on, at most `len` and [`PROBE_BYTES_MAX`], can be
    /// read without the disk; exact. 0 is the end of the file. Costs as much as reading them. The
    /// kernel may begin to read what is missing, so ask [`cached_pages`](Self::cached_pages) first.
    ///
    /// # Errors
    ///
    /// `WouldBlock` when not even the first byte is there, `EOPNOTSUPP` where the file system
    /// cannot tell, else what `preadv2(2)` says.
    pub fn probe(&self, file: &Fd, offset: u64, len: usize) -> io::Result<usize> {
        match &self.driver {
            Driver::Sim(sim) => sim.world.probe(file.raw(), offset, len.min(PROBE_BYTES_MAX)),
            _ => now::probe(file.os(), offset, len),
        }
    }

    /// Pages of the range that are in the page cache *or on their way*: fewer than the range has
    /// means that it is not resident; all of them means nothing. `len` must not be 0.
    ///
    /// # Errors
    ///
    /// `ENOSYS` before Linux 6.5, `EPERM` for a file that is neither ours nor writable,
    /// `EOPNOTSUPP` for hugetlbfs.
    pub fn cached_pages(&self, file: &Fd, offset: u64, len: u64) -> io::Result<u64> {
        match &self.driver {
            Driver::Sim(sim) => sim.world.cached_pages(file.raw(), offset, len),
            _ => now::cached_pages(file.os(), offset, len),
        }
    }

    /// Map a file of `size` bytes to learn what of it is resident where [`probe`](Self::probe) cannot
    /// tell. A ring keeps 1,024 of them.
    ///
    /// # Errors
    ///
    /// Those of `mmap(2)`, `OutOfMemory` when there are as many as may be, `Unsupported` in the
    /// simulation.
    pub fn map(&self, file: &Fd, size: u64) -> io::Result<Mapping> {
        if matches!(self.driver, Driver::Sim(_)) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        Mapping::new(file.os(), size)
    }

    /// Whether pages of memory file systems can be swapped out on this machine.
    #[must_use]
    pub fn has_swap(&self) -> bool {
        now::has_swap()
    }

    /// Bytes that have been sent and that the peer has not acknowledged (`SIOCOUTQ`, tcp(7)); for
    /// Unix sockets about that, in memory that they occupy (unix(7)). 0 for a dead socket.
    #[must_use]
    pub fn queued(&self, socket: &Fd) -> u64 {
        match &self.driver {
            Driver::Sim(sim) => sim.world.queued(socket.raw()),
            _ => now::queued(socket.os()),
        }
    }

    /// Hold back packets that are not full, for 200 ms at most; or no longer (`TCP_CORK`, tcp(7)).
    pub fn cork(&self, socket: &Fd, corked: bool) {
        match &self.driver {
            Driver::Sim(_) => {}
            // Not for Unix sockets, which have no packets to fill.
            _ => drop(rustix::net::sockopt::set_tcp_cork(socket.os(), corked)),
        }
    }

    /// `shutdown(2)` for sending: the peer sees the end of the stream.
    pub fn shutdown(&self, socket: &Fd) {
        match &self.driver {
            Driver::Sim(sim) => sim.world.shutdown(socket.raw()),
            // ENOTCONN: the peer was faster.
            _ => drop(rustix::net::shutdown(socket.os(), rustix::net::Shutdown::Write)),
        }
    }

    /// Switch off the kernel's readahead on a file (`POSIX_FADV_RANDOM`): what it starts, a later
    /// `sendfile(2)` would sleep on. Answers at once: the flag is on the descriptor.
    pub fn no_readahead(&self, file: &Fd) {
        match &self.driver {
            Driver::Sim(sim) => sim.world.no_readahead(file.raw()),
            // Fails only for pipes and the like.
            _ => drop(rustix::fs::fadvise(file.os(), 0, None, rustix::fs::Advice::Random)),
        }
    }

    /// Have the kernel read twice as far ahead on a file as it is set up to
    /// (`POSIX_FADV_SEQUENTIAL`). Answers at once: it is on the descriptor.
    pub fn far_readahead(&self, file: &Fd) {
        if matches!(self.driver, Driver::Sim(_)) {
            return;
        }
        // Fails only for pipes and the like.
        let _ = rustix::fs::fadvise(file.os(), 0, None, rustix::fs::Advice::Sequential);
    }
}

fn waker_fd() -> io::Result<Arc<OwnedFd>> {
    Ok(Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
}

impl Drop for Ring {
    fn drop(&mut self) {
        let all: Vec<Key> = self.common.table.keys().collect();
        for key in all {
            self.cancel(key);
        }
        match &mut self.driver {
            Driver::Uring(uring) => uring.drain(&mut self.common),
            Driver::Epoll(epoll) => epoll.drain(&mut self.common),
            Driver::Sim(sim) => sim.drain(&mut self.common),
        }
        self.common.closing.orphan();
    }
}

impl fmt::Display for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.kind(), self.reason)
    }
}
