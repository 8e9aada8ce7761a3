//! The figures of a load: rates, percentiles, failures by kind, and whether the load generator limited
//! them. Pure.

use core::fmt;
use core::time::Duration;

use hdrhistogram::Histogram;

use super::failure::Failure;
use super::schedule::{Nanos, nanos};
use super::trace::Trace;
use crate::spread::Value;

/// A part of the window: the number of responses in it, and the longest wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slice {
    /// The requests that got their responses.
    pub answered: u64,
    /// The longest of their latencies, or the time in the window that the oldest open request had waited at
    /// the end of the slice. A stalled server sends no response, and must be visible.
    pub latency_max: Nanos,
}

/// The figures of one load. Latencies are in nanoseconds. They include [`Failure::Timeout`] and
/// [`Failure::Unfinished`] with the time that these had waited, a lower bound: otherwise a server would
/// look better if it did not answer. Other failures are only counted.
#[derive(Clone, Debug)]
pub struct Account {
    /// The times from when a request was meant to leave to the last byte of its response. They are of
    /// requests meant to leave in the window, and of requests that still waited when it opened. Without the
    /// latter a server that stalls from the warm-up on would not be noticed. Requests count with their
    /// whole wait: counted from the window's start, most would look faster.
    pub latency: Histogram<u64>,
    /// The shortest wait in [`Self::latency`] that was cut off: by a time limit, or because the load had
    /// ended. Percentiles from here on are unknown; they may be greater than they look.
    pub cut_off: Option<Nanos>,
    /// The time to connect, of each new connection, in the window or not.
    pub connect: Histogram<u64>,
    /// From when a request was meant to leave to the first byte of its response, in the window or not.
    pub first_byte: Histogram<u64>,
    /// By [`SLICE`], from the window's start.
    pub slices: Vec<Slice>,
    /// Answered at any time, warm-up and end included: to divide a server's CPU by.
    pub answered_ever: u64,
    /// Answered within the window.
    pub answered: u64,
    /// The bytes of bodies received within the window.
    pub bytes: u64,
    /// The length of the window.
    pub window: Duration,
    /// CPU time of the generator's thread within the window.
    pub own_cpu: Duration,
    /// The time within the window for which that thread was runnable while others ran on its CPU.
    pub own_wait: Duration,
    /// Requests that left in the window.
    pub sent: u64,
    /// Of the requests that left, the number that left more than [`LATE`] after they could have, though a
    /// connection was free. The generator is at fault then, not the server.
    pub sent_late: u64,
    /// Each exchange of a load that is [traced](super::Plan::is_traced), in the window or not.
    pub trace: Option<Trace>,
    failures: [u64; Failure::ALL.len()],
}

impl Account {
    /// An empty account. Latencies up to `latency_max` are exact; longer ones count as that long.
    ///
    /// # Panics
    /// Never: hdrhistogram accepts all such bounds.
    #[must_use]
    pub fn new(latency_max: Duration) -> Self {
        let histogram = || {
            Histogram::new_with_bounds(1, nanos(latency_max).max(2), SIGNIFICANT_DIGITS)
                .expect("1, at least 2, and three digits")
        };
        Self {
            latency: histogram(),
            cut_off: None,
            connect: histogram(),
            first_byte: histogram(),
            slices: Vec::new(),
            answered_ever: 0,
            answered: 0,
            bytes: 0,
            window: Duration::ZERO,
            own_cpu: Duration::ZERO,
            own_wait: Duration::ZERO,
            sent: 0,
            sent_late: 0,
            trace: None,
            failures: Default::default(),
        }
    }

    /// Counts a response that came at `at`, counted from the window's start.
    pub fn answer(&mut self, at: Nanos, latency: Nanos) {
        self.answered += 1;
        let slice = self.slice(at);
        slice.answered += 1;
        slice.latency_max = slice.latency_max.max(latency);
    }

    /// A request that was meant to leave at `from` and waited until `to`, both counted from the
    /// window's start; at the window's end it may wait `still`.
    pub fn waited(&mut self, from: Nanos, to: Nanos, still: bool) {
        let length = nanos(SLICE);
        let ends = (from / length + 1..=to / length).map(|nth| nth * length).take(SLICES_MAX);
        for end in ends.chain(still.then_some(to)) {
            // The end of a slice belongs to the slice.
            let slice = self.slice(end.saturating_sub(1));
            slice.latency_max = slice.latency_max.max(end - from);
        }
    }

    fn slice(&mut self, at: Nanos) -> &mut Slice {
        let slice = usize::try_from(at / nanos(SLICE)).unwrap_or(SLICES_MAX).min(SLICES_MAX - 1);
        if self.slices.len() <= slice {
            self.slices.resize(slice + 1, Slice::default());
        }
        &mut self.slices[slice]
    }

    /// Counts the latency of a response.
    pub fn took(&mut self, latency: Nanos) {
        self.latency.saturating_record(latency.max(1));
    }

    /// Counts the wait of a request that was given up.
    pub fn gave_up(&mut self, wait: Nanos) {
        self.took(wait);
        let wait = wait.max(1);
        self.cut_off = Some(self.cut_off.map_or(wait, |least| least.min(wait)));
    }

    /// Counts a request that failed.
    pub fn fail(&mut self, failure: Failure) {
        self.failures[failure as usize] += 1;
    }

    /// The number of requests that failed for this reason.
    #[must_use]
    pub fn failed(&self, failure: Failure) -> u64 {
        self.failures[failure as usize]
    }

    /// The number of requests that failed for any reason.
    #[must_use]
    pub fn failed_ever(&self) -> u64 {
        self.failures.iter().sum()
    }

    /// The failures, `3 timed out, 1 malformed`; empty without any.
    #[must_use]
    pub fn failures(&self) -> String {
        let counts = Failure::ALL.map(|failure| (failure, self.failed(failure)));
        let words = counts.iter().filter(|(_, n)| *n > 0).map(|(f, n)| format!("{n} {f}"));
        words.collect::<Vec<_>>().join(", ")
    }

    /// Answers per second.
    #[must_use]
    pub fn rate(&self) -> f64 {
        per_second(self.answered, self.window)
    }

    /// The bytes of bodies per second.
    #[must_use]
    pub fn bytes_rate(&self) -> f64 {
        per_second(self.bytes, self.window)
    }

    /// The latency that a part `q` (0 to 1) of all requests had at most, in seconds; NaN without
    /// requests.
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "exact up to 104 days")]
    pub fn quantile(&self, q: f64) -> f64 {
        if self.latency.is_empty() {
            return f64::NAN;
        }
        self.latency.value_at_quantile(q) as f64 / 1e9
    }

    /// As [`Self::quantile`], in nanoseconds, and whether it is a lower bound: the true one may be greater.
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "exact up to 104 days")]
    pub fn percentile(&self, q: f64) -> Value {
        let number = 1e9 * self.quantile(q);
        Value { number, at_least: self.cut_off.is_some_and(|least| number >= least as f64) }
    }

    /// The generator's CPU time as a part of the window.
    #[must_use]
    pub fn own_cpu_share(&self) -> f64 {
        self.own_cpu.as_secs_f64() / self.window.as_secs_f64()
    }

    /// The reason why the generator, and not the server, may have limited the figures; `None` without one.
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "counts of requests")]
    pub fn bottleneck(&self) -> Option<Bottleneck> {
        let late = self.sent_late as f64 / self.sent.max(1) as f64;
        let used = self.own_cpu_share();
        let waited = self.own_wait.as_secs_f64() / self.window.as_secs_f64();
        if used > OWN_CPU_MAX {
            Some(Bottleneck::OwnCpu(used))
        } else if used + waited > OWN_CPU_MAX {
            Some(Bottleneck::Waited { used, waited })
        } else if late > SENT_LATE_MAX {
            Some(Bottleneck::SentLate(late))
        } else {
            None
        }
    }
}

/// The resource that the load generator lacked.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub enum Bottleneck {
    /// The generator used a part of its CPU, and waited for it while other threads ran.
    Waited {
        /// The part of the window in which it ran.
        used: f64,
        /// The part of the window in which it waited.
        waited: f64,
    },
    /// The generator used this part of its CPU.
    OwnCpu(f64),
    /// This part of the generator's requests left [late](Account::sent_late).
    SentLate(f64),
}

impl fmt::Display for Bottleneck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Waited { used, waited } => write!(
                f,
                "the load generator used {:.0} % of its CPU and waited for it {:.0} % of the time",
                100.0 * used,
                100.0 * waited
            ),
            Self::OwnCpu(part) => {
                write!(f, "the load generator used {:.0} % of its CPU", 100.0 * part)
            }
            Self::SentLate(part) => {
                write!(f, "the load generator sent {:.1} % of its requests late", 100.0 * part)
            }
        }
    }
}

#[allow(clippy::cast_precision_loss, reason = "counts of requests and bytes")]
fn per_second(count: u64, window: Duration) -> f64 {
    if window.is_zero() { f64::NAN } else { count as f64 / window.as_secs_f64() }
}

/// The precision of latencies: 0.1 %, which is finer than their repeatability.
const SIGNIFICANT_DIGITS: u8 = 3;

/// The part of its CPU, used or waited for, beyond which the generator counts as the bottleneck.
pub const OWN_CPU_MAX: f64 = 0.9;

/// Beyond this part of requests sent [late](Account::sent_late), too.
pub const SENT_LATE_MAX: f64 = 0.01;

/// A request that leaves later than this is late.
pub const LATE: Duration = Duration::from_millis(1);

/// The distance of [`Account::slices`].
pub const SLICE: Duration = Duration::from_millis(100);

/// The slices of an hour; the last one counts all later responses.
const SLICES_MAX: usize = 36_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn account() -> Account {
        let mut account = Account::new(Duration::from_secs(10));
        account.window = Duration::from_secs(2);
        account
    }

    #[test]
    fn rates_and_slices() {
        let mut account = account();
        for (at, latency) in [(0, 5), (99_999_999, 7), (350_000_000, 3)] {
            account.answer(at, latency);
        }
        assert!((account.rate() - 1.5).abs() < 1e-9);
        let slice = |answered, latency_max| Slice { answered, latency_max };
        assert_eq!(account.slices, [slice(2, 7), slice(0, 0), slice(0, 0), slice(1, 3)]);
        account.answer(u64::MAX, 1);
        assert_eq!(account.slices.len(), SLICES_MAX, "bounded");
    }

    #[test]
    fn who_waits_shows_in_each_slice() {
        let mut account = account();
        let millis = |n: u64| n * 1_000_000;
        account.waited(millis(50), millis(60), false);
        assert_eq!(account.slices, [], "an answer says it all");
        account.waited(millis(50), millis(320), false);
        account.waited(millis(150), millis(320), true);
        let waited = [50, 150, 250, 170].map(|n| Slice { answered: 0, latency_max: millis(n) });
        assert_eq!(account.slices, waited);
    }

    #[test]
    fn quantiles_are_within_a_thousandth() {
        let mut account = account();
        assert!(account.quantile(0.5).is_nan());
        for i in 1..=1000 {
            account.latency.saturating_record(i * 1_000_000);
        }
        for (q, seconds) in [(0.5, 0.5), (0.99, 0.99), (1.0, 1.0)] {
            assert!((account.quantile(q) / seconds - 1.0).abs() < 0.001, "{q}");
        }
        account.latency.saturating_record(u64::MAX);
        assert!((account.quantile(1.0) / 10.0 - 1.0).abs() < 0.5, "counts as the longest");
    }

    #[test]
    fn percentiles_from_the_shortest_cut_off_wait_on_are_lower_bounds() {
        let mut account = account();
        for millis in 1..=90 {
            account.took(millis * 1_000_000);
        }
        assert!(!account.percentile(1.0).at_least, "all were answered");
        for millis in [3000, 2000, 2500] {
            account.gave_up(millis * 1_000_000);
        }
        account.took(4_000_000_000);
        let shown = |q| (account.percentile(q).number / 1e6, account.percentile(q).at_least);
        for (q, millis, at_least) in
            [(0.5, 47.0, false), (0.95, 90.0, false), (0.97, 2500.0, true), (1.0, 4000.0, true)]
        {
            let (number, is_bound) = shown(q);
            assert!((number / millis - 1.0).abs() < 0.01, "{q}: {number}");
            assert_eq!(is_bound, at_least, "{q}");
        }
    }

    #[test]
    fn failures_are_told_apart() {
        let mut account = account();
        assert_eq!(account.failures(), "");
        for failure in [Failure::Timeout, Failure::Status, Failure::Timeout] {
            account.fail(failure);
        }
        assert_eq!(account.failures(), "2 timed out, 1 status not 200");
        assert_eq!((account.failed(Failure::Timeout), account.failed_ever()), (2, 3));
        for (i, failure) in Failure::ALL.into_iter().enumerate() {
            assert_eq!(failure as usize, i, "ALL is in order");
        }
    }

    #[test]
    fn a_generator_that_was_the_bottleneck_says_so() {
        let mut account = account();
        account.own_cpu = Duration::from_millis(1700);
        account.sent = 1000;
        account.sent_late = 10;
        assert_eq!(account.bottleneck(), None);
        account.sent_late = 11;
        let says = |account: &Account| account.bottleneck().unwrap().to_string();
        assert!(says(&account).contains("sent 1.1 %"));
        account.own_cpu = Duration::from_millis(1200);
        account.own_wait = Duration::from_millis(700);
        let words = "the load generator used 60 % of its CPU and waited for it 35 % of the time";
        assert_eq!(says(&account), words);
        account.own_cpu = Duration::from_millis(1900);
        assert!(says(&account).contains("95 %"));
    }
}
