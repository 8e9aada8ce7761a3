//! Ways to wait for events: N idle descriptors, k active ones, and what a wake-up costs.
//!
//! Each way has two figures for each N. *Wake-up*: a thread sleeps in the call, another one writes to one
//! descriptor. The figure is the nanoseconds from before the write until the sleeper has the event. *CPU
//! per event*: k descriptors are made ready, and one thread asks for them. The figure is its CPU
//! nanoseconds, divided by k: for each N with k = 16, and for each k at one N.

mod overflow;
mod ways;

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use core::time::Duration;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with, socketpair};

use crate::run::Figure;
use crate::stats::float;
use crate::suite::{Fault, Recorder, Test};
use crate::unit::Unit;
use crate::{clock, machine};
use ways::{WAYS, WaitMethod};

/// Active descriptors of "CPU per event" beside N idle ones.
const ACTIVE: usize = 16;
/// Active descriptors beside one N.
const ACTIVES: [usize; 5] = [1, 4, 16, 64, 256];
/// Samples of each figure for each N.
const SAMPLES: usize = 100;
/// The same in quick mode.
const SAMPLES_QUICK: usize = 5;

/// All tests of this module.
#[must_use]
pub fn tests() -> Vec<Test> {
    let scales = "an event costs as much beside many idle descriptors as beside few";
    vec![
        Test::new("wakeup", "Wake-up latency with N idle descriptors", wakeup)
            .scales(scales)
            .x("idle descriptors")
            .warm_up("ten wake-ups for each N")
            .figure(Figure::of(Unit::Nanoseconds).log_x().log_y(true))
            .steps(20_000, 256),
        Test::new("cpu", "CPU per event with N idle descriptors", cpu)
            .scales(scales)
            .x("idle descriptors")
            .warm_up("two rounds for each N; 16 descriptors are active")
            .figure(Figure::of(Unit::Nanoseconds).log_x().log_y(true))
            .steps(20_000, 256),
        Test::new("active", "CPU per event when k events come at once", active)
            .scales("an event costs less if many are fetched by one call")
            .x("active descriptors, beside as many idle ones as fit, 1,000 at most")
            .warm_up("two rounds for each k")
            .figure(Figure::of(Unit::Nanoseconds).log_x().log_y(true))
            .steps(1000, 100),
        overflow::test(),
    ]
}

/// Idle and active descriptors.
struct Descriptors {
    idle: Vec<OwnedFd>,
    /// The end that is waited for, and the end that is written to.
    active: Vec<(OwnedFd, OwnedFd)>,
}

impl Descriptors {
    fn new(idle: usize, active: usize) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let pair =
            || Ok::<_, io::Error>(socketpair(AddressFamily::UNIX, SocketType::DGRAM, flags, None)?);
        // The active ones come last, the worst case for a way that asks in order.
        Ok(Self {
            idle: (0..idle)
                .map(|_| Ok(socket_with(AddressFamily::INET, SocketType::DGRAM, flags, None)?))
                .collect::<io::Result<_>>()?,
            active: (0..active).map(|_| pair()).collect::<io::Result<_>>()?,
        })
    }
}

/// Numbers of idle descriptors: powers of two up to the requested steps or the limit, and the maximum
/// itself.
fn numbers(recorder: &mut Recorder<'_>) -> Vec<usize> {
    let most = most(recorder, ACTIVE);
    let mut numbers: Vec<_> =
        (0..usize::BITS).map(|bit| 1 << bit).take_while(|n| *n < most).collect();
    numbers.push(most);
    numbers
}

/// The number of idle descriptors that fit in addition to `active` ones.
fn most(recorder: &mut Recorder<'_>, active: usize) -> usize {
    // Both ends of the active ones, a ring and the like.
    let others = 64 + 2 * active;
    let fit = recorder.descriptors().saturating_sub(others);
    recorder.steps_within_descriptors(1).min(fit).max(1)
}

fn samples(recorder: &Recorder<'_>) -> usize {
    if recorder.is_quick() { SAMPLES_QUICK } else { SAMPLES }
}

/// Calls `measure` for each way and each of these numbers; if it fails, a row says why.
fn each(
    recorder: &mut Recorder<'_>,
    numbers: &[usize],
    mut measure: impl FnMut(&mut Recorder<'_>, WaitMethod, usize) -> io::Result<()>,
) {
    let all = float(WAYS.len() * numbers.len());
    for (nth, way) in WAYS.into_iter().enumerate() {
        for (at, number) in numbers.iter().copied().enumerate() {
            if recorder.is_stopped() {
                return;
            }
            recorder.progress(float(nth * numbers.len() + at) / all);
            if let Err(error) = measure(recorder, way, number) {
                if at == 0 {
                    recorder.skip(way.name, format!("cannot be used here: {error}"));
                } else {
                    recorder.note(format!("{} ended at {number} descriptors: {error}", way.name));
                }
                break;
            }
        }
    }
}

fn cpu(recorder: &mut Recorder<'_>) -> Result<(), Fault> {
    let numbers = numbers(recorder);
    each(recorder, &numbers, |recorder, way, idle| {
        cpu_per_event(recorder, way, idle, ACTIVE, float(idle))
    });
    recorder.note(format!("{ACTIVE} of the descriptors are ready at once. {WHOSE_CPU}"));
    recorder.note(format!("{CLOCK} k, which is {ACTIVE}."));
    Ok(())
}

fn active(recorder: &mut Recorder<'_>) -> Result<(), Fault> {
    let idle = most(recorder, ACTIVES[ACTIVES.len() - 1]);
    each(recorder, &ACTIVES, |recorder, way, active| {
        cpu_per_event(recorder, way, idle, active, float(active))
    });
    recorder.note(format!("{idle} idle descriptors beside the active ones. {WHOSE_CPU}"));
    recorder.note(format!(
        "{CLOCK} k, the number of active descriptors: a part of what falls with k is the clock's."
    ));
    Ok(())
}

const WHOSE_CPU: &str = "The CPU time is that of asking and of taking one byte from each; what the writer pays \
                         (for SIGIO, poll's wake-ups) is not in it.";

const CLOCK: &str = "Each value holds the cost of reading the thread's CPU clock once, divided by";

/// Records at `x` what each of `active` events costs beside `idle` descriptors.
fn cpu_per_event(
    recorder: &mut Recorder<'_>,
    way: WaitMethod,
    idle: usize,
    active: usize,
    x: f64,
) -> io::Result<()> {
    /// Rounds that are not recorded.
    const WARM_UP: usize = 2;
    let Descriptors { idle, active } = Descriptors::new(idle, active)?;
    let (watched, writers): (Vec<_>, Vec<_>) = active.into_iter().unzip();
    let mut waiter = (way.make)(idle, watched)?;
    for sample in 0..samples(recorder) + WARM_UP {
        for writer in &writers {
            rustix::io::write(writer, &[1])?;
        }
        let start = clock::thread_cpu();
        let mut seen = 0;
        while seen < writers.len() && !recorder.is_stopped() {
            seen += waiter.wait()?;
        }
        let took = clock::thread_cpu() - start;
        if sample >= WARM_UP && !recorder.is_stopped() {
            let each = took / float(writers.len());
            recorder.record(way.name, "CPU per event", Unit::Nanoseconds, x, each);
        }
    }
    Ok(())
}

fn wakeup(recorder: &mut Recorder<'_>) -> Result<(), Fault> {
    /// Wake-ups that are not recorded.
    const WARM_UP: usize = 10;
    /// A pause, so that each wake-up finds the CPU equally idle.
    const REST: Duration = Duration::from_micros(300);
    /// An event that takes longer is lost, and says so.
    const LOST: Duration = Duration::from_secs(10);
    let (samples, numbers) = (samples(recorder), numbers(recorder));
    each(recorder, &numbers, |recorder, way, idle| {
        let Descriptors { idle: others, active } = Descriptors::new(idle, 1)?;
        let (watched, writers): (Vec<_>, Vec<_>) = active.into_iter().unzip();
        let sleeper = Sleeper::start(way, others, watched);
        // Only now may something be written: SIGIO reports changes, not the present state.
        let Ok(tid) = sleeper.told.recv() else { return sleeper.end() };
        let stat = format!("/proc/self/task/{tid}/stat");
        let mut result = Ok(());
        for sample in 0..samples + WARM_UP {
            if recorder.is_stopped() {
                break;
            }
            thread::sleep(REST);
            // Among thousands poll(2) takes longer than that to go to sleep.
            result = machine::wait_until_asleep(&stat);
            if result.is_err() {
                break;
            }
            sleeper.shared.written.store(sleeper.shared.now(), Ordering::Release);
            // A datagram into an empty queue; if it fails, no event comes in time.
            let _ = rustix::io::write(&writers[0], &[1]);
            let took = match sleeper.told.recv_timeout(LOST) {
                Ok(took) => took,
                Err(mpsc::RecvTimeoutError::Disconnected) => break,
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    recorder.note(format!(
                        "{} lost an event among {idle} descriptors: none for {LOST:?}",
                        way.name
                    ));
                    break;
                }
            };
            if sample >= WARM_UP {
                #[allow(clippy::cast_precision_loss, reason = "below 2^52")]
                let took = took as f64;
                recorder.record(way.name, "wake-up", Unit::Nanoseconds, float(idle), took);
            }
        }
        sleeper.shared.is_over.store(true, Ordering::Relaxed);
        // The last event, which the sleeper need not report.
        let _ = rustix::io::write(&writers[0], &[1]);
        // An error of its own says more than that it does not sleep.
        sleeper.end().and(result)
    });
    Ok(())
}

/// A thread that waits. It reports its number first, and then how long each event took to reach it.
struct Sleeper {
    shared: Arc<Shared>,
    told: mpsc::Receiver<u64>,
    thread: JoinHandle<io::Result<()>>,
}

/// The state that it shares with the writer.
struct Shared {
    epoch: Instant,
    /// When the last write began.
    written: AtomicU64,
    is_over: AtomicBool,
}

impl Shared {
    /// Nanoseconds since the epoch.
    fn now(&self) -> u64 {
        u64::try_from(self.epoch.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

impl Sleeper {
    fn start(way: WaitMethod, idle: Vec<OwnedFd>, watched: Vec<OwnedFd>) -> Self {
        let shared = Shared {
            epoch: Instant::now(),
            written: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
        };
        let shared = Arc::new(shared);
        let (theirs, (tell, told)) = (Arc::clone(&shared), mpsc::channel());
        let thread = thread::spawn(move || {
            // Made in this thread: signals and rings belong to the thread that uses them.
            let mut waiter = (way.make)(idle, watched)?;
            let tid = rustix::thread::gettid().as_raw_nonzero().get();
            let _ = tell.send(u64::from(tid.unsigned_abs()));
            while !theirs.is_over.load(Ordering::Relaxed) {
                if waiter.wait()? == 0 {
                    // Interrupted, or woken for nothing: back to sleep.
                    continue;
                }
                let woken = theirs.now();
                // Pairs with the store before the write; the socket orders them as well.
                let took = woken.saturating_sub(theirs.written.load(Ordering::Acquire));
                if tell.send(took).is_err() {
                    break;
                }
            }
            Ok(())
        });
        Self { shared, told, thread }
    }

    /// Waits for its end. A thread that has lost events may sleep forever, and is left behind.
    fn end(self) -> io::Result<()> {
        /// The thread has been woken, and need only return.
        const LIMIT: Duration = Duration::from_secs(2);
        let end = Instant::now() + LIMIT;
        while !self.thread.is_finished() {
            if Instant::now() > end {
                return Err(io::Error::other("the sleeper cannot be woken any more"));
            }
            thread::sleep(Duration::from_millis(1));
        }
        self.thread.join().unwrap_or_else(|_| Err(io::Error::other("the sleeping thread died")))
    }
}
