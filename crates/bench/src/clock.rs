//! The clock: the cost of a reading, and the present speed of the machine.

use core::hint::black_box;
use std::time::Instant;

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::stats::{self, Spread};
use crate::unit::Unit;

/// Nanoseconds of `work`.
pub fn time<T>(work: impl FnOnce() -> T) -> (f64, T) {
    let start = Instant::now();
    let result = work();
    (nanoseconds(start), result)
}

/// Nanoseconds since `start`.
#[must_use]
#[allow(clippy::cast_precision_loss, reason = "exact up to 104 days")]
pub fn nanoseconds(start: Instant) -> f64 {
    start.elapsed().as_nanos() as f64
}

/// Nanoseconds of CPU that this thread has used.
#[must_use]
#[allow(clippy::cast_precision_loss, reason = "exact up to 104 days")]
pub fn thread_cpu() -> f64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as f64 * 1e9 + now.tv_nsec as f64
}

/// The cost of reading a clock. Each measured time contains it once, for the clock that was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// Median nanoseconds between two readings of the monotonic clock, one right after the other.
    pub monotonic: f64,
    /// Median nanoseconds between two readings of the CPU clock of the thread.
    pub thread_cpu: f64,
}

/// Pairs of readings for [`Cost`].
const READINGS: usize = 2000;

impl Cost {
    /// A sentence for the reader of the figures.
    #[must_use]
    pub fn words(&self) -> String {
        let [monotonic, thread_cpu] =
            [self.monotonic, self.thread_cpu].map(|cost| Unit::Nanoseconds.show(cost));
        format!(
            "Reading the clock costs {monotonic}, which every time holds once; reading a thread's CPU clock \
             {thread_cpu}, which CPU times of a thread hold."
        )
    }

    /// Measured now; a millisecond or so.
    #[must_use]
    pub fn measure() -> Self {
        Self {
            monotonic: stats::median((0..READINGS).map(|_| time(|| ()).0)),
            thread_cpu: stats::median((0..READINGS).map(|_| {
                let start = thread_cpu();
                thread_cpu() - start
            })),
        }
    }
}

/// Rounds of the calibration loop.
const ROUNDS: usize = 21;
/// Dependent multiplications in a round: some milliseconds.
const MULTIPLICATIONS: u64 = 2_000_000;

/// A loop that always does the same work, timed 21 times after one to warm up: what differs is the machine.
#[must_use]
pub fn calibrate() -> Spread {
    let round = |_| {
        time(|| {
            // Knuth's MMIX generator: each step needs the one before.
            (0..MULTIPLICATIONS).fold(black_box(1_u64), |x, _| {
                black_box(x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1))
            })
        })
        .0
    };
    // The first round is the warm-up.
    let rounds: [f64; ROUNDS + 1] = core::array::from_fn(round);
    Spread::of(rounds[1..].iter().copied()).unwrap_or_else(|| unreachable!("there are rounds"))
}
