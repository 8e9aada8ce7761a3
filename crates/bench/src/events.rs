//! Ways to wait for events: N idle descriptors, k active ones, and what a wake-up costs.
//!
//! Two figures for each way and each N. *Wake-up*: a thread sleeps in the call, another one writes to one
//! descriptor; nanoseconds from before the write until the sleeper has the event. *CPU per event*: k
//! descriptors are made ready, and then asked for; CPU nanoseconds of one thread for asking, over k.

mod overflow;
mod ways;

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use core::time::Duration;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::mpsc;
use std::thread;
use std::time::Instant;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with, socketpair};

use crate::clock;
use crate::run::{Figure, Unit};
use crate::stats::float;
use crate::suite::{Fault, Recorder, Test};
use ways::{WAYS, Way};

/// Active descriptors of "CPU per event".
const ACTIVE: usize = 16;
/// Samples of each figure for each N.
const SAMPLES: usize = 100;
/// The same in quick mode.
const SAMPLES_QUICK: usize = 5;

/// All of them.
#[must_use]
pub fn tests() -> Vec<Test> {
    let scales = "an event costs as much beside many idle descriptors as beside few";
    vec![
        Test::new(
            "wakeup",
            "How long until a sleeper has its event beside N idle descriptors?",
            wakeup,
        )
        .scales(scales)
        .x("idle descriptors")
        .warm_up("ten wake-ups for each N")
        .figure(Figure::of(Unit::Nanoseconds).log_x().log_y(true))
        .steps(20_000, 256),
        Test::new("cpu", "How much CPU does an event cost beside N idle descriptors?", cpu)
            .scales(scales)
            .x("idle descriptors")
            .warm_up("two rounds for each N; 16 descriptors are active")
            .figure(Figure::of(Unit::Nanoseconds).log_x().log_y(true))
            .steps(20_000, 256),
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
        // The active ones come last, for whoever asks in order.
        Ok(Self {
            idle: (0..idle)
                .map(|_| Ok(socket_with(AddressFamily::INET, SocketType::DGRAM, flags, None)?))
                .collect::<io::Result<_>>()?,
            active: (0..active).map(|_| pair()).collect::<io::Result<_>>()?,
        })
    }
}

/// Numbers of idle descriptors: powers of two up to the steps asked for or the limit, and that one.
fn numbers(recorder: &mut Recorder<'_>) -> Vec<usize> {
    /// What the active ones, a ring and the like need.
    const OTHERS: usize = 4 * ACTIVE;
    let most = recorder.steps_within_descriptors(1).saturating_sub(OTHERS).max(1);
    let mut numbers: Vec<_> =
        (0..usize::BITS).map(|bit| 1 << bit).take_while(|n| *n < most).collect();
    numbers.push(most);
    numbers
}

fn samples(recorder: &Recorder<'_>) -> usize {
    if recorder.is_quick() { SAMPLES_QUICK } else { SAMPLES }
}

/// Calls `measure` for each way and each N; what it cannot do is a row that says why.
fn each(
    recorder: &mut Recorder<'_>,
    mut measure: impl FnMut(&mut Recorder<'_>, Way, usize) -> io::Result<()>,
) {
    let numbers = numbers(recorder);
    let all = float(WAYS.len() * numbers.len());
    for (nth, way) in WAYS.into_iter().enumerate() {
        for (at, idle) in numbers.iter().copied().enumerate() {
            if recorder.is_stopped() {
                return;
            }
            recorder.progress(float(nth * numbers.len() + at) / all);
            if let Err(error) = measure(recorder, way, idle) {
                if at == 0 {
                    recorder.skip(way.name, format!("cannot be used here: {error}"));
                } else {
                    recorder.note(format!("{} ended at {idle} descriptors: {error}", way.name));
                }
                break;
            }
        }
    }
}

fn cpu(recorder: &mut Recorder<'_>) -> Result<(), Fault> {
    /// Rounds that are not recorded.
    const WARM_UP: usize = 2;
    let samples = samples(recorder);
    each(recorder, |recorder, way, idle| {
        let Descriptors { idle: others, active } = Descriptors::new(idle, ACTIVE)?;
        let (watched, writers): (Vec<_>, Vec<_>) = active.into_iter().unzip();
        let mut waiter = (way.make)(others, watched)?;
        for sample in 0..samples + WARM_UP {
            for writer in &writers {
                rustix::io::write(writer, &[1])?;
            }
            let start = clock::thread_cpu();
            let mut seen = 0;
            while seen < ACTIVE && !recorder.is_stopped() {
                seen += waiter.wait()?;
            }
            let took = clock::thread_cpu() - start;
            if sample >= WARM_UP && !recorder.is_stopped() {
                let each = took / float(ACTIVE);
                recorder.record(way.name, "CPU per event", Unit::Nanoseconds, float(idle), each);
            }
        }
        Ok(())
    });
    recorder.note(format!(
        "{ACTIVE} of the descriptors are ready at once. The CPU time is that of asking and of taking one \
         byte from each; what the writer pays (for SIGIO, poll's wake-ups) is not in it."
    ));
    Ok(())
}

fn wakeup(recorder: &mut Recorder<'_>) -> Result<(), Fault> {
    /// Wake-ups that are not recorded.
    const WARM_UP: usize = 10;
    /// Until the other thread sleeps again: much longer than the way there takes.
    const REST: Duration = Duration::from_micros(300);
    /// An event that takes longer is lost, and says so.
    const LOST: Duration = Duration::from_secs(10);
    let samples = samples(recorder);
    let epoch = Instant::now();
    let now = move || u64::try_from(epoch.elapsed().as_nanos()).unwrap_or(u64::MAX);
    each(recorder, |recorder, way, idle| {
        let Descriptors { idle: others, active } = Descriptors::new(idle, 1)?;
        let (watched, writers): (Vec<_>, Vec<_>) = active.into_iter().unzip();
        let (written, given_up) = (AtomicU64::new(0), AtomicBool::new(false));
        let (sender, receiver) = mpsc::channel();
        thread::scope(|scope| -> io::Result<()> {
            let sleeper = scope.spawn(|| -> io::Result<()> {
                // Made here: signals and rings belong to the thread that uses them.
                let mut waiter = (way.make)(others, watched)?;
                // Only now may something be written: SIGIO tells of changes, not of what is there.
                let _ = sender.send(0);
                for _ in 0..samples + WARM_UP {
                    while waiter.wait()? == 0 && !given_up.load(Ordering::Relaxed) {
                        // Interrupted, or woken for nothing: back to sleep.
                        core::hint::spin_loop();
                    }
                    let woken = now();
                    // Pairs with the store before the write; the socket orders them as well.
                    let took = woken.saturating_sub(written.load(Ordering::Acquire));
                    if sender.send(took).is_err() {
                        break;
                    }
                }
                drop(sender);
                Ok(())
            });
            // An error here is the sleeper's, and its join tells it.
            let _ = receiver.recv();
            for sample in 0..samples + WARM_UP {
                thread::sleep(REST);
                written.store(now(), Ordering::Release);
                // A datagram into an empty queue; should it fail, nothing comes back in time.
                let _ = rustix::io::write(&writers[0], &[1]);
                let took = match receiver.recv_timeout(LOST) {
                    Ok(took) => took,
                    Err(mpsc::RecvTimeoutError::Disconnected) => break,
                    Err(mpsc::RecvTimeoutError::Timeout) => {
                        given_up.store(true, Ordering::Relaxed);
                        let _ = rustix::io::write(&writers[0], &[1]);
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
            drop(receiver);
            sleeper.join().unwrap_or_else(|_| Err(io::Error::other("the sleeping thread died")))
        })
    });
    Ok(())
}
