//! The threads that sleep for the worker.

#[allow(unsafe_code, reason = "system calls on lent descriptors and memory")]
pub(crate) mod job;
pub(crate) mod open;
pub(crate) mod watch;

use core::time::Duration;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Instant;

use rustix::event::{EventfdFlags, eventfd};

use crate::now::process::without_signals;
use crate::slab::Key;
use job::{Job, Outcome};

/// Threads per ring: the maximum of sleeping system calls under way at the same time. More calls wait in a queue.
pub(crate) const THREADS_MAX: usize = 160;
/// A thread with nothing to do ends after this.
const IDLE: Duration = Duration::from_secs(10);
/// The interval at which a wait for all threads looks at them.
const STEP: Duration = Duration::from_millis(1);
/// Small: the calls of a job need little, and there may be [`THREADS_MAX`] of these per worker.
const STACK_BYTES: usize = 128 * 1024;

/// The threads of one ring. Dropping it waits for the calls that are under way, unless they were detached.
#[derive(Debug)]
pub(crate) struct Helpers {
    shared: Arc<Shared>,
    threads: Vec<thread::JoinHandle<()>>,
    /// True if the threads do the jobs that are left by themselves, and then end.
    is_detached: bool,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<HelperState>,
    work: Condvar,
    done: Mutex<Vec<(Key, io::Result<Outcome>)>>,
    /// Readable when `done` is not empty.
    wake: OwnedFd,
}

#[derive(Debug, Default)]
struct HelperState {
    jobs: VecDeque<(Key, Job)>,
    idle: usize,
    running: usize,
    stop: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No code here panics while it holds a lock, and a queue is consistent after each statement.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Helpers {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            shared: Arc::new(Shared {
                state: Mutex::default(),
                work: Condvar::new(),
                done: Mutex::default(),
                wake: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            }),
            threads: Vec::new(),
            is_detached: false,
        })
    }

    /// Readable when [`take_done`](Self::take_done) has something.
    pub(crate) fn wake_fd(&self) -> BorrowedFd<'_> {
        self.shared.wake.as_fd()
    }

    /// Queue a job, and start a thread for it unless there are enough.
    pub(crate) fn submit(&mut self, key: Key, job: Job) -> io::Result<()> {
        let mut state = lock(&self.shared.state);
        state.jobs.push_back((key, job));
        let short = state.jobs.len() > state.idle && state.running < THREADS_MAX;
        if short {
            state.running += 1;
        }
        let alone = state.running <= 1 && short;
        drop(state);
        if short {
            let shared = Arc::clone(&self.shared);
            let builder = thread::Builder::new().name("ring-helper".into()).stack_size(STACK_BYTES);
            let spawned = without_signals(|| builder.spawn(move || shared.run()));
            match spawned {
                Ok(handle) => {
                    self.threads.retain(|thread| !thread.is_finished());
                    self.threads.push(handle);
                }
                Err(error) => {
                    let mut state = lock(&self.shared.state);
                    state.running -= 1;
                    if alone {
                        state.jobs.retain(|(queued, _)| *queued != key);
                        return Err(error);
                    }
                }
            }
        }
        self.shared.work.notify_one();
        Ok(())
    }

    /// Take back a job that no thread has begun.
    pub(crate) fn cancel(&self, key: Key) -> bool {
        let mut state = lock(&self.shared.state);
        let before = state.jobs.len();
        state.jobs.retain(|(queued, _)| *queued != key);
        state.jobs.len() < before
    }

    /// Waits until the submitted jobs are done. Jobs that are not done by `end` are left to their threads, and the drop
    /// of this does not wait for them.
    pub(crate) fn finish_until(&mut self, end: Instant) {
        while self.is_busy() && !self.is_detached {
            self.is_detached = Instant::now() >= end;
            thread::sleep(STEP);
        }
    }

    fn is_busy(&self) -> bool {
        let state = lock(&self.shared.state);
        !state.jobs.is_empty() || state.idle < state.running
    }

    /// Takes the results since the last call.
    pub(crate) fn take_done(&self) -> Vec<(Key, io::Result<Outcome>)> {
        let mut count = [0; 8];
        // EAGAIN means that the wake-up was taken before; `done` is right in both cases.
        let _ = rustix::io::read(&self.shared.wake, &mut count);
        core::mem::take(&mut *lock(&self.shared.done))
    }
}

impl Drop for Helpers {
    fn drop(&mut self) {
        let mut state = lock(&self.shared.state);
        state.stop = true;
        if !self.is_detached {
            state.jobs.clear();
        }
        drop(state);
        self.shared.work.notify_all();
        if self.is_detached {
            return;
        }
        for thread in self.threads.drain(..) {
            // The panic hook has already reported a helper's panic.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn run(&self) {
        let mut state = lock(&self.state);
        loop {
            if let Some((key, job)) = state.jobs.pop_front() {
                drop(state);
                let result = job.run();
                lock(&self.done).push((key, result));
                // EAGAIN: the counter is full, so the worker is being woken anyway.
                let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
                state = lock(&self.state);
                continue;
            }
            if state.stop {
                break;
            }
            state.idle += 1;
            let (guard, timeout) =
                self.work.wait_timeout(state, IDLE).unwrap_or_else(PoisonError::into_inner);
            state = guard;
            state.idle -= 1;
            if timeout.timed_out() && state.jobs.is_empty() {
                break;
            }
        }
        state.running -= 1;
    }
}
