//! The ways to wait, behind one trait. Each owns its descriptors, waits for one or more events, takes
//! their bytes, and is ready to wait again.

use core::time::Duration;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd, RawFd};

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use crate::sys::select::ReadSet;
use crate::sys::signal::{Event, Signals};
use crate::sys::uring::{Ask, Ring};

/// A way to wait, with its descriptors.
pub(super) trait Wait {
    /// Waits until there are events, and takes a byte from each of their descriptors. Returns the
    /// number of events; 0 after an interruption.
    fn wait(&mut self) -> io::Result<usize>;
}

/// Makes one from idle and active descriptors.
type Make = fn(Vec<OwnedFd>, Vec<OwnedFd>) -> io::Result<Box<dyn Wait>>;

/// A way to wait.
#[derive(Clone, Copy)]
pub(super) struct WaitMethod {
    /// As in the legend.
    pub(super) name: &'static str,
    /// The constructor of the way.
    pub(super) make: Make,
}

/// All ways to wait.
pub(super) const WAYS: [WaitMethod; 8] = [
    WaitMethod { name: "select", make: |idle, active| Ok(Box::new(Select::new(idle, active))) },
    WaitMethod {
        name: "poll",
        make: |idle, active| Ok(Box::new(Poll { fds: join(idle, active) })),
    },
    WaitMethod { name: "SIGIO", make: |idle, active| Ok(Box::new(Sigio::new(idle, active)?)) },
    WaitMethod {
        name: "epoll level",
        make: |idle, active| Epoll::boxed(idle, active, EventFlags::empty()),
    },
    WaitMethod {
        name: "epoll edge",
        make: |idle, active| Epoll::boxed(idle, active, EventFlags::ET),
    },
    WaitMethod {
        name: "epoll one-shot",
        make: |idle, active| Epoll::boxed(idle, active, EventFlags::ONESHOT),
    },
    WaitMethod {
        name: "io_uring poll",
        make: |idle, active| Uring::boxed(idle, active, Ask::Poll),
    },
    WaitMethod {
        name: "io_uring multishot poll",
        make: |idle, active| Uring::boxed(idle, active, Ask::PollAll),
    },
];

fn join(mut idle: Vec<OwnedFd>, active: Vec<OwnedFd>) -> Vec<OwnedFd> {
    idle.extend(active);
    idle
}

/// Takes one byte; false if there was none.
pub(super) fn take(fd: BorrowedFd<'_>) -> io::Result<bool> {
    match rustix::io::read(fd, &mut [0; 1]) {
        Ok(read) => Ok(read == 1),
        Err(Errno::AGAIN | Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// select(2), with sets larger than the C library's.
struct Select {
    set: ReadSet,
}

impl Select {
    fn new(idle: Vec<OwnedFd>, active: Vec<OwnedFd>) -> Self {
        let mut set = ReadSet::default();
        join(idle, active).into_iter().for_each(|fd| set.add(fd));
        Self { set }
    }
}

impl Wait for Select {
    fn wait(&mut self) -> io::Result<usize> {
        let mut taken = 0;
        for fd in self.set.wait()? {
            taken += usize::from(take(fd)?);
        }
        Ok(taken)
    }
}

/// poll(2).
struct Poll {
    fds: Vec<OwnedFd>,
}

impl Wait for Poll {
    fn wait(&mut self) -> io::Result<usize> {
        // A program that keeps its array pays less than this copy, by some nanoseconds each.
        let mut fds: Vec<_> = self.fds.iter().map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
        match poll(&mut fds, None) {
            Ok(_) => {}
            Err(Errno::INTR) => return Ok(0),
            Err(error) => return Err(error.into()),
        }
        let mut taken = 0;
        for (polled, fd) in fds.iter().zip(&self.fds) {
            if !polled.revents().is_empty() {
                taken += usize::from(take(fd.as_fd())?);
            }
        }
        Ok(taken)
    }
}

/// A realtime signal for each event, fetched with sigtimedwait(2); a poll(2) of all after an overflow.
pub(super) struct Sigio {
    fds: Vec<OwnedFd>,
    /// Index in `fds` by number.
    by_number: Vec<Option<usize>>,
    signals: Signals,
    /// Times that the queue was full.
    pub(super) overflows: usize,
    /// Events that poll(2) found then.
    pub(super) recovered: usize,
}

impl Sigio {
    pub(super) fn new(idle: Vec<OwnedFd>, active: Vec<OwnedFd>) -> io::Result<Self> {
        let (fds, signals) = (join(idle, active), Signals::block()?);
        let mut by_number = Vec::new();
        for (index, fd) in fds.iter().enumerate() {
            let number = usize::try_from(fd.as_raw_fd()).map_err(io::Error::other)?;
            if by_number.len() <= number {
                by_number.resize(number + 1, None);
            }
            by_number[number] = Some(index);
            signals.watch(fd.as_fd())?;
        }
        Ok(Self { fds, by_number, signals, overflows: 0, recovered: 0 })
    }

    /// The descriptor of a number, if it is one of ours.
    fn find(&self, number: RawFd) -> Option<&OwnedFd> {
        let index = self.by_number.get(usize::try_from(number).ok()?).copied()??;
        Some(&self.fds[index])
    }

    /// Asks every descriptor, for signals were lost.
    fn recover(&mut self) -> io::Result<usize> {
        let mut fds: Vec<_> = self.fds.iter().map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
        let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut fds, Some(&now))?;
        let mut taken = 0;
        for (polled, fd) in fds.iter().zip(&self.fds) {
            if !polled.revents().is_empty() {
                taken += usize::from(take(fd.as_fd())?);
            }
        }
        self.overflows += 1;
        self.recovered += taken;
        Ok(taken)
    }
}

impl Wait for Sigio {
    fn wait(&mut self) -> io::Result<usize> {
        /// The longest time for which ctrl-C may go unnoticed.
        const GLANCE: Duration = Duration::from_millis(100);
        match self.signals.wait(GLANCE)? {
            Event::Ready(number) => match self.find(number) {
                // A signal may be left of an event that poll found before: nothing is there then.
                Some(fd) => Ok(usize::from(take(fd.as_fd())?)),
                None => Ok(0),
            },
            Event::Overflow => self.recover(),
            Event::Timeout => Ok(0),
        }
    }
}

/// epoll(7) in one of its modes.
struct Epoll {
    set: OwnedFd,
    fds: Vec<OwnedFd>,
    mode: EventFlags,
    events: Vec<epoll::Event>,
    /// For one-shot interest: the events that have gone off since the last wait.
    disarmed: Vec<EventData>,
}

/// Events that one call returns at most.
const BATCH: usize = 64;

impl Epoll {
    fn boxed(
        idle: Vec<OwnedFd>,
        active: Vec<OwnedFd>,
        mode: EventFlags,
    ) -> io::Result<Box<dyn Wait>> {
        let (set, fds) = (epoll::create(CreateFlags::CLOEXEC)?, join(idle, active));
        for (index, fd) in fds.iter().enumerate() {
            epoll::add(&set, fd, EventData::new_u64(index as u64), EventFlags::IN | mode)?;
        }
        let (events, disarmed) = (Vec::with_capacity(BATCH), Vec::with_capacity(BATCH));
        Ok(Box::new(Self { set, fds, mode, events, disarmed }))
    }
}

impl Wait for Epoll {
    fn wait(&mut self) -> io::Result<usize> {
        // Before waiting, like a program that handles an event first; it is no part of the wake-up.
        for data in self.disarmed.drain(..) {
            let index = usize::try_from(data.u64()).map_err(io::Error::other)?;
            epoll::modify(&self.set, &self.fds[index], data, EventFlags::IN | self.mode)?;
        }
        self.events.clear();
        match epoll::wait(&self.set, rustix::buffer::spare_capacity(&mut self.events), None) {
            Ok(_) => {}
            Err(Errno::INTR) => return Ok(0),
            Err(error) => return Err(error.into()),
        }
        let mut taken = 0;
        for event in &self.events {
            let index = usize::try_from(event.data.u64()).map_err(io::Error::other)?;
            taken += usize::from(take(self.fds[index].as_fd())?);
            if self.mode.contains(EventFlags::ONESHOT) {
                self.disarmed.push(event.data);
            }
        }
        Ok(taken)
    }
}

/// Polls of io_uring, armed one by one or once for ever.
struct Uring {
    // Before the descriptors, so that no poll outlives its own.
    ring: Ring,
    fds: Vec<OwnedFd>,
    ask: fn(RawFd) -> Ask,
}

impl Uring {
    fn boxed(
        idle: Vec<OwnedFd>,
        active: Vec<OwnedFd>,
        ask: fn(RawFd) -> Ask,
    ) -> io::Result<Box<dyn Wait>> {
        let mut ring = Ring::new(256, 1024)?;
        let fds = join(idle, active);
        for (index, fd) in fds.iter().enumerate() {
            ring.push(ask(fd.as_raw_fd()), index as u64)?;
        }
        ring.submit()?;
        Ok(Box::new(Self { ring, fds, ask }))
    }
}

impl Wait for Uring {
    fn wait(&mut self) -> io::Result<usize> {
        self.ring.wait()?;
        let mut taken = 0;
        while let Some(answer) = self.ring.next() {
            if answer.result < 0 {
                return Err(io::Error::from_raw_os_error(-answer.result));
            }
            let index = usize::try_from(answer.token).map_err(io::Error::other)?;
            let fd = &self.fds[index];
            taken += usize::from(take(fd.as_fd())?);
            if !answer.more {
                // Goes to the kernel with the next wait.
                self.ring.push((self.ask)(fd.as_raw_fd()), answer.token)?;
            }
        }
        Ok(taken)
    }
}
