//! The ring itself: it passes operations on to its driver, which has two halves, sockets and files.
//!
//! Code above the ring asks for the name of the driver only to print it. The kernel or the simulated world is chosen in
//! three places: `socket.rs` and `file.rs` for direct calls, and here for clocks and threads.
//!
//! If the kernel refuses a ring for good, or for a second (`EAGAIN`, `EBUSY`), each wait fails from then on. The drop
//! of such a ring leaks the memory that the kernel may still write to. A drop waits for operations on files under way,
//! at most for the limit that was set. The memory of operations that are left then is leaked, and helper threads go on
//! alone.
//!
//! The last clone of an `Fd` hands its number to the ring, which closes it on a thread where closing may sleep. So a
//! number cannot be used again while an operation still means the old file.
//!
//! The program blocks the signals that it waits for, and the ring's own threads block all signals. A child is waited
//! for by its pidfd, so no other child is reaped. A watched file is a name in a directory and the inode that has the
//! name.

mod file;
mod simulated;
mod socket;

use core::fmt;
use core::sync::atomic::Ordering;
use core::time::Duration;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use rustix::event::{EventfdFlags, eventfd};
use rustix::time::{ClockId, clock_gettime};

use crate::beside::{Beside, Detached, Job};
use crate::common::{Common, OpStage};
use crate::drivers::epoll::Epoll;
use crate::drivers::uring::Uring;
use crate::fd::{Fd, Handle};
use crate::gate::{Call, Device};
use crate::mounts::device_of;
use crate::now::{file as kernel, may_cachestat};
use crate::op::{Completion, DriverKind, Event, Op, Token};
use crate::sim::{self, Sim, World};
use crate::slab::Key;
use crate::timers::Time;
use crate::wall::Wall;

pub use file::Mapping;

/// The key of [`Event::Woken`], which no operation has.
const WAKER_KEY: Key = Key::NONE;

/// The offset at which reads end: no file system has larger files, and no sum with a length overflows.
const OFFSET_MAX: u64 = 1 << 62;

/// The driver of a new ring.
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
    /// Devices that have answered since they were reported.
    answered: Vec<Device>,
    /// When the last wait ended.
    woke_at: Time,
    wall: Wall,
    /// The maximum time for dropping it; `None` is no limit.
    drop_limit: Option<Duration>,
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
    /// The errors of `io_uring_setup(2)` and `io_uring_enter(2)` (with [`Choice::Uring`]; typically `EPERM` in a
    /// container or with `kernel.io_uring_disabled`, `EINVAL` before Linux 6.1), `epoll_create1(2)`, `eventfd(2)` and
    /// `mmap(2)`.
    pub fn new(choice: Choice) -> io::Result<Self> {
        let common = Common::new()?;
        // Asked now, because it may start a child, and the first look must not wait for it.
        may_cachestat();
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
        let (answered, woke_at, wall) = (Vec::new(), Time::default(), Wall::default());
        let (waker, drop_limit) = (None, None);
        let mut ring = Self { common, driver, reason, waker, answered, woke_at, wall, drop_limit };
        ring.woke_at = ring.now();
        Ok(ring)
    }

    /// Lets the drop of this ring wait at most `limit` for operations under way; by default there is no limit.
    /// Operations that a disk does not end within the limit are leaked, with their buffers and descriptors, to which
    /// the kernel may still write. Files are closed in threads of their own. The end of the thread may still wait for
    /// the disk, because the kernel does not end a thread that has such operations on io_uring.
    pub const fn set_drop_limit(&mut self, limit: Option<Duration>) {
        self.drop_limit = limit;
    }

    /// The limit that [`set_drop_limit`](Self::set_drop_limit) has set.
    #[must_use]
    pub const fn drop_limit(&self) -> Option<Duration> {
        self.drop_limit
    }

    /// The driver that this ring runs on.
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

    /// Make a descriptor of a socket, pipe or eventfd. Its `close(2)` does not sleep, unless it is a socket that waits
    /// for its peer then (`SO_LINGER`, set before this): it is closed where a file would be.
    #[must_use]
    pub fn adopt_socket(&self, fd: OwnedFd) -> Fd {
        let lingers = rustix::net::sockopt::socket_linger(&fd);
        let sleeps = matches!(lingers, Ok(Some(time)) if !time.is_zero());
        self.common.fd(if sleeps { Handle::Lingering(fd) } else { Handle::Socket(fd) })
    }

    /// Make a descriptor of a file or directory.
    #[must_use]
    pub fn adopt_file(&self, fd: OwnedFd) -> Fd {
        let device = device_of(&fd);
        let fd = self.common.fd(Handle::File(fd));
        fd.set_device(device);
        fd
    }

    /// Make a descriptor of a file or directory that other rings use, too. The last ring to drop it closes it.
    #[must_use]
    pub fn share_file(&self, fd: Arc<OwnedFd>) -> Fd {
        let device = device_of(&fd);
        let fd = self.common.fd(Handle::Shared(fd));
        fd.set_device(device);
        fd
    }

    /// The number of unused descriptors that wait to be closed. The ring closes 32 files at a time, so a program that
    /// opens more files in each turn would run out of descriptors.
    #[must_use]
    pub fn unclosed(&self) -> usize {
        self.common.closing.len() + self.common.closes.waiting()
    }

    /// Begin an operation. Its completions carry `token`. If the operation may have to wait for a disk, it is counted
    /// against the device of its file or directory, and begins when the device has a slot for it.
    pub fn submit(&mut self, op: Op, token: Token) -> Key {
        let device = op.device();
        self.submit_counted(op, device, token)
    }

    /// As [`submit`](Self::submit), for a path that may lead to another device than its start directory: the operation
    /// is counted against the given device.
    pub fn submit_to(&mut self, device: Device, op: Op, token: Token) -> Key {
        self.submit_counted(op, Some(device), token)
    }

    fn submit_counted(&mut self, op: Op, device: Option<Device>, token: Token) -> Key {
        let refused = match &op {
            // To io_uring the largest offset would mean "at the file's own offset".
            Op::Read { offset, .. }
            | Op::Splice { offset, .. }
            | Op::Write { at: Some(offset), .. } => *offset >= OFFSET_MAX,
            Op::Acknowledgements(fd) => fd.acknowledged().is_none(),
            _ => false,
        };
        let timer = if let Op::Timer(at) = op { Some(at) } else { None };
        let has_own = op.has_own_descriptor() && self.world().is_none();
        let key = self.common.insert(token, op);
        if let Some(at) = timer {
            self.common.timers.insert(at, key);
            return key;
        }
        if refused {
            self.common.end(key, Err(io::Error::from_raw_os_error(libc::EINVAL)));
            return key;
        }
        if has_own && let Err(error) = self.common.open_own(key) {
            self.common.end(key, Err(error));
            return key;
        }
        if let Some(device) = device {
            let enters = self.common.gate.enter(device, key, self.woke_at);
            if !enters {
                let slot = self.common.table.get_mut(key).expect("just inserted");
                slot.place = OpStage::InLine(device);
                return key;
            }
            self.take_place(key, device);
        }
        self.start(key);
        key
    }

    /// Notes that an operation has a slot among the calls of a device.
    fn take_place(&mut self, key: Key, device: Device) {
        let is_doubted = self.common.gate.shares().is_doubted(device);
        let slot = self.common.table.get_mut(key).expect("it begins");
        let mut call = Call::new(device, self.woke_at);
        if is_doubted && !matches!(self.driver, Driver::Sim(_)) && kernel::asks_disk(&slot.op) {
            // A network file system asks its server for names that the kernel lacks, so the end is an answer. On a disk
            // the blocks of the directory may be in memory, so a look for a name shows an answer only if it took as
            // long as a read.
            let has_blocks = device.numbers().is_none_or(|(major, _)| major != 0);
            let is_look = matches!(slot.op, Op::Open { .. });
            call.waits_from = if is_look && has_blocks { SEEN_ANSWER } else { Duration::ZERO };
        }
        slot.place = OpStage::Taken(call);
    }

    /// Gives an operation to the driver.
    fn start(&mut self, key: Key) {
        match &mut self.driver {
            Driver::Uring(uring) => uring.submit(&mut self.common, key),
            Driver::Epoll(epoll) => epoll.submit(&mut self.common, key),
            Driver::Sim(sim) => sim.submit(&mut self.common, key),
        }
    }

    /// Gives the slots of ended operations to operations that wait for one.
    fn pass_places(&mut self) {
        let now = self.woke_at;
        // Some operations may end as they begin, and leave their slots to others.
        while !self.common.left.is_empty() {
            let Common { left, gate, .. } = &mut self.common;
            let ended = left.drain(..).filter(|call| gate.leave_call(call, now));
            self.answered.extend(ended.map(|call| call.device));
            while let Some(key) = self.common.gate.next(now) {
                let slot = self.common.table.get(key).expect("withdrawn before it ends");
                if let OpStage::InLine(device) = slot.place {
                    self.take_place(key, device);
                }
                self.start(key);
            }
        }
    }

    /// Returns how long a device has had operations under way without an answer, as of the end of the last
    /// [`wait`](Self::wait): see [`Shares::silence`](crate::Shares::silence).
    #[must_use]
    pub fn silence(&self, device: Device) -> Duration {
        self.common.gate.shares().silence(device, self.woke_at)
    }

    /// Returns whether an operation should not even be tried, as of the end of the last
    /// [`wait`](Self::wait): see [`Shares::refuses`](crate::Shares::refuses).
    #[must_use]
    pub fn refuses(&self, device: Device, patience: Duration) -> bool {
        self.common.gate.shares().refuses(device, self.woke_at, patience)
    }

    /// Notes that an operation of a device is late, although later ones may have ended. Until the next answer it
    /// matters whether an ended operation has asked the device, or was answered from memory. In the second case the
    /// [`silence`](Self::silence) goes on.
    pub fn doubt(&mut self, device: Device) {
        self.common.gate.shares_mut().doubt(device);
    }

    /// Notes that this worker or another found that a device does not answer; returns its operations under way.
    /// [`next_answered`](Self::next_answered) reports its next answer.
    pub fn report(&mut self, device: Device) -> usize {
        self.common.gate.shares_mut().report(device, self.woke_at)
    }

    /// The devices that have answered nothing for `patience`, as of the end of the last [`wait`](Self::wait), and the
    /// operations of each that are under way.
    pub fn silent(&self, patience: Duration) -> impl Iterator<Item = (Device, usize)> {
        self.common.gate.shares().silent(self.woke_at, patience)
    }

    /// The next device that has answered since it was [reported](Self::report).
    pub fn next_answered(&mut self) -> Option<Device> {
        self.answered.pop()
    }

    /// Ask for an operation's end. Its last completion still comes, with `ECANCELED` or with an earlier result. A key
    /// that is not in flight is passed over.
    pub fn cancel(&mut self, key: Key) {
        let Some(slot) = self.common.table.get_mut(key) else { return };
        if core::mem::replace(&mut slot.cancelled, true) {
            return;
        }
        if let OpStage::InLine(device) = slot.place {
            self.common.gate.withdraw(device, &key);
            return self.common.end_cancelled(key);
        }
        match (&slot.op, &mut self.driver) {
            (Op::Timer(_), _) => self.common.cancel_timer(key),
            (_, Driver::Sim(sim)) => sim.cancel(&mut self.common, key),
            (Op::Watch { .. } | Op::WatchFile { .. }, _) => self.common.end_watch(key),
            (_, Driver::Uring(uring)) => uring.cancel(&mut self.common, key),
            (_, Driver::Epoll(epoll)) => epoll.cancel(&mut self.common, key),
        }
    }

    /// Sleep until an event comes or the clock has reached `until`. `None` is no limit, and a time in the past means
    /// "only look". Replaces the contents of `completions`.
    ///
    /// # Errors
    ///
    /// If the kernel refuses to wait for good, which is not expected: each later call fails with the same errno, and
    /// nothing more completes. Give up the ring then. Its drop waits only for the system calls of its helper threads,
    /// not for operations of the kernel. It leaks the operations in flight with their buffers and descriptors, to which
    /// the kernel may still write.
    pub fn wait(
        &mut self,
        until: Option<Time>,
        completions: &mut Vec<Completion>,
    ) -> io::Result<()> {
        self.wait_since(self.now(), until, completions)
    }

    /// If the next wait sleeps, have it bring this many completions, 16 at most, or the completions of 20 µs. If there
    /// are none by then, it goes on as usual. This is for peers that send piece by piece: each piece that finds the
    /// ring asleep costs them an interrupt of its CPU, and this worker a turn. Only io_uring does it, from Linux 6.12
    /// on (`min_wait_usec`, io_uring_enter(2)).
    pub fn gather(&mut self, completions: usize) {
        if let Driver::Uring(uring) = &mut self.driver {
            uring.gather(completions);
        }
    }

    /// Does what [`wait`](Self::wait) does, for a caller that knows a time not long ago, say when the last wait ended.
    /// The clock is read beforehand only if the wait is for less than 10 ms from then on. A longer one may end later
    /// than it should: by the time from then to this call.
    ///
    /// # Errors
    ///
    /// The errors of [`wait`](Self::wait).
    pub fn wait_since(
        &mut self,
        past: Time,
        until: Option<Time>,
        completions: &mut Vec<Completion>,
    ) -> io::Result<()> {
        completions.clear();
        let until = Time::earliest([until, self.common.timers.next()]);
        let is_soon = until.is_some_and(|until| until > past && until.since(past) < EXACT);
        // A timer that is due ends the wait at once.
        let now = if is_soon { self.now() } else { past };
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
        self.woke_at = self.now();
        if !self.common.left.is_empty() {
            self.pass_places();
        }
        self.common.run_timers(self.woke_at);
        core::mem::swap(&mut self.common.ready, completions);
        Ok(())
    }

    /// Gives unhandled completions back, in their order, and leaves `completions` empty. The next wait does not sleep,
    /// and hands them out before others.
    pub fn put_back(&mut self, completions: &mut Vec<Completion>) {
        // Operations that were submitted since the last wait may have ended at once.
        completions.append(&mut self.common.ready);
        core::mem::swap(&mut self.common.ready, completions);
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

    /// Makes a waker of this ring; its [`Event::Woken`] carry the `token` of the first call.
    ///
    /// # Errors
    ///
    /// The errors of `eventfd(2)` and `epoll_ctl(2)`.
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

    /// Starts a thread beside this ring, which it wakes after each job. The drop of the [`Beside`] does not wait: the
    /// thread ends after its present job.
    ///
    /// # Errors
    ///
    /// The errors of [`waker`](Self::waker) and of `pthread_create(3)`.
    pub fn beside<J: Job>(&mut self, name: &str, token: Token) -> io::Result<Beside<J>> {
        let waker = self.waker(token)?;
        match &self.driver {
            Driver::Sim(sim) => Ok(Beside::simulated(sim.world.clone(), sim.ring)),
            Driver::Uring(_) | Driver::Epoll(_) => Beside::start(name, move || waker.wake()),
        }
    }

    /// Makes an open file usable on a thread beside this ring.
    ///
    /// # Errors
    ///
    /// The errors of `dup(2)`.
    pub fn detach(&self, file: &Fd) -> io::Result<Detached> {
        match self.world() {
            Some(world) => {
                let (bytes, stat) = world.contents(file.raw())?;
                Ok(Detached::simulated(bytes, stat))
            }
            None => file.os().try_clone_to_owned().map(Detached::new),
        }
    }

    /// The simulated world, if that is where the descriptors are.
    const fn world(&self) -> Option<&World> {
        match &self.driver {
            Driver::Sim(sim) => Some(&sim.world),
            Driver::Uring(_) | Driver::Epoll(_) => None,
        }
    }

    /// The ring's clock: monotonic time.
    #[must_use]
    pub fn now(&self) -> Time {
        if let Some(world) = self.world() {
            return world.now();
        }
        Time::from_nanos(nanos_of(ClockId::Monotonic))
    }

    /// The time at which the last [`wait`](Self::wait) ended.
    #[must_use]
    pub const fn woke_at(&self) -> Time {
        self.woke_at
    }

    /// Seconds since 1970: see [`unix_clock`](Self::unix_clock).
    #[must_use]
    pub fn unix_time(&self) -> i64 {
        self.unix_clock().0
    }

    /// Seconds since 1970 when the last [`wait`](Self::wait) ended, and the nanoseconds since that second began. A
    /// clock that is set is noticed a second later.
    #[must_use]
    pub fn unix_clock(&self) -> (i64, u32) {
        match self.world() {
            Some(world) => world.unix_clock(),
            None => self.wall.clock(self.woke_at, || nanos_of(ClockId::Realtime)),
        }
    }

    /// Operations in flight.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.common.table.len()
    }

    /// The number of watches that helpers are setting up, or for which they look again which inode has a name. The
    /// results of these are still to be reported.
    #[must_use]
    pub const fn watches_settling(&self) -> usize {
        self.common.watches.settling()
    }
}

/// The time after which a look for a name that the kernel does not know must have read from the disk.
const SEEN_ANSWER: Duration = Duration::from_millis(1);
/// Waits that are longer need not be exact.
const EXACT: Duration = Duration::from_millis(10);

/// The nanoseconds that a clock shows; 0 if it was set to a time before it began.
fn nanos_of(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    let nanos = time.tv_sec.saturating_mul(1_000_000_000).saturating_add(time.tv_nsec);
    u64::try_from(nanos).unwrap_or(0)
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
        let end = self.drop_limit.and_then(|limit| Instant::now().checked_add(limit));
        let have_ended = match &mut self.driver {
            Driver::Uring(uring) => uring.join(&mut self.common, end),
            Driver::Epoll(epoll) => epoll.join(&mut self.common, end),
            Driver::Sim(sim) => {
                sim.join(&mut self.common);
                true
            }
        };
        if !have_ended {
            self.common.watches.leak();
        }
        if (end.is_some() || !have_ended) && !matches!(self.driver, Driver::Sim(_)) {
            self.common.close_until(end.unwrap_or_else(Instant::now));
        }
        self.common.closing.orphan();
    }
}

impl fmt::Display for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.kind(), self.reason)
    }
}
