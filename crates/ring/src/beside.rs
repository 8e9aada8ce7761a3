//! A thread beside a ring, which does long jobs one after the other and wakes the ring after each. In
//! the simulation a job ends when its result is due, so the seed determines its end.

use core::fmt;
use core::time::Duration;
use std::collections::VecDeque;
use std::fs;
use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use rustix::fs::Advice;
use rustix::io::{ReadWriteFlags, preadv2};
use rustix::process::setpriority_process;

use crate::helpers::job;
use crate::now::file::Mapping;
use crate::now::process::without_signals;
use crate::op::{Caching, Stat};
use crate::sim::World;
use crate::timers::Time;

/// A job for a thread beside a ring.
pub trait Job: Send + 'static {
    /// The result.
    type Output: Send + 'static;

    /// The niceness of the thread, 0 to 19: with more of it, other threads come first (`sched(7)`). By default it is that of
    /// the process.
    const NICENESS: i32 = 0;

    /// Does the job. `sleep` lets time pass, for a job that keeps to a rate.
    fn run(self, sleep: &dyn Fn(Duration)) -> Self::Output;
}

/// The thread, as [`Ring::beside`](crate::Ring::beside) starts it. Dropping this ends the thread after
/// its job.
pub struct Beside<J: Job>(Executor<J>);

enum Executor<J: Job> {
    Thread { jobs: Sender<J>, results: Receiver<J::Output> },
    Sim { world: World, ring: usize, jobs: VecDeque<(Time, J)> },
}

impl<J: Job> Beside<J> {
    pub(crate) fn start(name: &str, wake: impl Fn() + Send + 'static) -> io::Result<Self> {
        let (jobs, todo) = channel::<J>();
        let (done, results) = channel();
        let work = move || {
            if J::NICENESS != 0 {
                // For this thread alone. It only lowers, which the system always allows.
                let _ = setpriority_process(None, J::NICENESS);
            }
            while let Ok(job) = todo.recv() {
                if done.send(job.run(&thread::sleep)).is_err() {
                    return;
                }
                wake();
            }
        };
        let builder = thread::Builder::new().name(name.to_owned());
        without_signals(|| builder.spawn(work))?;
        Ok(Self(Executor::Thread { jobs, results }))
    }

    pub(crate) const fn simulated(world: World, ring: usize) -> Self {
        Self(Executor::Sim { world, ring, jobs: VecDeque::new() })
    }

    /// Gives the thread a job. Returns false if the thread has gone, because a job panicked.
    pub fn submit(&mut self, job: J) -> bool {
        match &mut self.0 {
            Executor::Thread { jobs, .. } => jobs.send(job).is_ok(),
            Executor::Sim { world, ring, jobs } => {
                jobs.push_back((world.wake_later(*ring), job));
                true
            }
        }
    }

    /// The next result, in the order of the jobs, if a job has ended. After each
    /// [`Event::Woken`](crate::Event::Woken) ask until there is none.
    pub fn take(&mut self) -> Option<J::Output> {
        match &mut self.0 {
            Executor::Thread { results, .. } => results.try_recv().ok(),
            Executor::Sim { world, jobs, .. } => {
                if jobs.front()?.0 > world.now() {
                    return None;
                }
                Some(jobs.pop_front()?.1.run(&|_| {}))
            }
        }
    }
}

impl<J: Job> fmt::Debug for Beside<J> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Beside")
    }
}

/// An open file for a [`Job`]. A simulated one is as it was when it was detached.
#[derive(Debug)]
pub struct Detached(File);

#[derive(Debug)]
enum File {
    Os(fs::File),
    Sim { bytes: Vec<u8>, stat: Stat },
}

impl Detached {
    pub(crate) fn new(fd: OwnedFd) -> Self {
        Self(File::Os(fd.into()))
    }

    pub(crate) const fn simulated(bytes: Vec<u8>, stat: Stat) -> Self {
        Self(File::Sim { bytes, stat })
    }

    /// The same file, opened once more if `/proc` is there: the kernel's readahead follows one reader of
    /// an open file.
    #[must_use]
    pub fn reopened(self) -> Self {
        match self.0 {
            File::Os(file) => {
                let again = fs::File::open(format!("/proc/self/fd/{}", file.as_raw_fd()));
                Self(File::Os(again.unwrap_or(file)))
            }
            sim @ File::Sim { .. } => Self(sim),
        }
    }

    /// Reads at an offset, and sleeps if it has to.
    ///
    /// # Errors
    ///
    /// The errors of `preadv2(2)`; `Unsupported` if the file system does not know [`Caching::Drop`].
    pub fn read_at(&self, space: &mut [u8], offset: u64, caching: Caching) -> io::Result<usize> {
        match &self.0 {
            File::Os(file) => {
                let flags =
                    ReadWriteFlags::from_bits_retain(job::read_flags(caching).cast_unsigned());
                let count = preadv2(file, &mut [IoSliceMut::new(space)], offset, flags)?;
                Ok(count)
            }
            File::Sim { bytes, .. } => {
                let start = usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
                let count = space.len().min(bytes.len() - start);
                space[..count].copy_from_slice(&bytes[start..start + count]);
                Ok(count)
            }
        }
    }

    /// Looks at the file, and sleeps if it has to.
    ///
    /// # Errors
    ///
    /// The errors of `statx(2)`.
    pub fn stat(&self) -> io::Result<Stat> {
        match &self.0 {
            File::Os(file) => job::stat(file.as_fd()),
            File::Sim { stat, .. } => Ok(*stat),
        }
    }

    /// Returns whether pages of the file are in the page cache, or whether that cannot be known.
    #[must_use]
    pub fn is_cached(&self) -> bool {
        match &self.0 {
            File::Os(file) => file
                .metadata()
                .and_then(|stat| Mapping::new(file.as_fd(), stat.len())?.has_any(0, stat.len()))
                .unwrap_or(true),
            File::Sim { .. } => true,
        }
    }

    /// Advises the kernel to drop the file from the page cache.
    pub fn discard(&self) {
        if let File::Os(file) = &self.0 {
            // Only advice.
            let _ = rustix::fs::fadvise(file, 0, None, Advice::DontNeed);
        }
    }
}
