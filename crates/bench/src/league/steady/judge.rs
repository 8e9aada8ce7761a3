//! The judgement of a load: safe or not, and why. Pure.

use crate::load::account::Bottleneck;
use crate::load::failure::Failure;
use crate::load::schedule::Nanos;
use crate::load::schedule::nanos;
use crate::load::trace::{self, Trace};
use crate::spread::Value;
use crate::stats::float;
use crate::unit::Unit;

use super::files::Group;
use super::shares::{Stay, least_share};

/// The figures of a load that decide.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Figures {
    /// The p99 of hot files, nanoseconds; no number without any request.
    pub(super) p99: Value,
    /// The number of requests without a complete response.
    pub(super) errors: u64,
    /// The least part of its fair share that a download got; `None` if no download took long.
    pub(super) share: Option<f64>,
}

impl Figures {
    /// The figures of the exchanges that were meant to leave from `from` on. `group` is the group of a target.
    pub(super) fn of(trace: &Trace, from: Nanos, group: impl Fn(usize) -> Group) -> Self {
        let hot: Vec<Nanos> = trace
            .exchanges
            .iter()
            .filter(|it| it.intended >= from && group(it.target) == Group::Hot)
            .map(|it| it.ended.saturating_sub(it.intended))
            .collect();
        let failures = trace.exchanges.iter().filter(|it| it.failure.is_some());
        let of_downloads: Vec<u64> =
            trace.slices.iter().map(|slice| slice[Group::Download as usize]).collect();
        Self {
            p99: p99(trace, from, &group, hot),
            errors: failures.count() as u64 + trace.lost,
            share: least_share(&stays(trace, group), &of_downloads, nanos(trace::SLICE)),
        }
    }
}

/// The downloads of a load, without those that never began or failed. Failures are counted.
pub(super) fn stays(trace: &Trace, group: impl Fn(usize) -> Group) -> Vec<Stay> {
    let is_download = |it: &&trace::Exchange| group(it.target) == Group::Download && it.bytes > 0;
    let stay = |it: &trace::Exchange| Stay { from: it.intended, to: it.ended, bytes: it.bytes };
    trace.exchanges.iter().filter(is_download).map(stay).collect()
}

/// The p99 of latencies in any order. Waits that were cut off count as long as they were, and make it a lower bound.
fn p99(trace: &Trace, from: Nanos, group: &impl Fn(usize) -> Group, mut hot: Vec<Nanos>) -> Value {
    hot.sort_unstable();
    let Some(last) = hot.len().checked_sub(1) else { return f64::NAN.into() };
    let number = float(hot[last - last / 100]);
    let cut_off = trace.exchanges.iter().any(|it| {
        let was_cut_off = matches!(it.failure, Some(Failure::Timeout | Failure::Unfinished));
        let wait = it.ended.saturating_sub(it.intended);
        was_cut_off
            && it.intended >= from
            && group(it.target) == Group::Hot
            && float(wait) <= number
    });
    Value { number, at_least: cut_off }
}

/// The result of a load.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Judgement {
    /// The server bears it.
    Safe,
    /// The server does not bear it, for these reasons.
    Unsafe(String),
    /// The load generator was at its limit, so nobody knows.
    Unknown(String),
}

/// Judges a load by its figures. `alone` is the p99 of hot files without any other request, in nanoseconds.
pub(super) fn judge(figures: &Figures, alone: f64, bottleneck: Option<Bottleneck>) -> Judgement {
    let Figures { p99, errors, share } = figures;
    let mut reasons = Vec::new();
    // A p99 that is not a number is no p99 within the limit.
    if p99.number.is_nan() || p99.number > LATENCY_MAX * alone {
        let [p99, alone] = [p99.number, alone].map(|ns| Unit::Nanoseconds.show(ns));
        reasons.push(format!("p99 of hot files {p99}, alone {alone}"));
    }
    if *errors > 0 {
        reasons.push(format!("{errors} errors"));
    }
    if let Some(share) = share.filter(|share| *share < SHARE_MIN) {
        reasons.push(format!("a download got {share:.2} of its fair share"));
    }
    match (reasons.is_empty(), bottleneck) {
        // If the generator is late and the figures are good all the same, they are good.
        (true, _) => Judgement::Safe,
        (false, None) => Judgement::Unsafe(reasons.join("; ")),
        (false, Some(bottleneck)) => Judgement::Unknown(bottleneck.to_string()),
    }
}

/// The p99 of hot files may be at most this many times the p99 without other requests.
pub(super) const LATENCY_MAX: f64 = 2.0;

/// The least part of its fair share that each download must get.
pub(super) const SHARE_MIN: f64 = 0.5;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::trace::Exchange;

    #[test]
    fn a_load_is_safe_if_all_three_are_met() {
        let good = Figures { p99: 199e3.into(), errors: 0, share: Some(0.5) };
        let own_cpu = Some(Bottleneck::OwnCpu(0.95));
        let of = |figures: &Figures, bottleneck| judge(figures, 100e3, bottleneck);
        for figures in [
            good.clone(),
            Figures { share: None, ..good.clone() },
            Figures { p99: 200e3.into(), ..good.clone() },
        ] {
            assert_eq!(of(&figures, None), Judgement::Safe, "{figures:?}");
            assert_eq!(
                of(&figures, own_cpu),
                Judgement::Safe,
                "a late generator makes figures worse"
            );
        }
        for (figures, why) in [
            (
                Figures { p99: 201e3.into(), ..good.clone() },
                "p99 of hot files 201 µs, alone 100 µs",
            ),
            (Figures { p99: f64::NAN.into(), ..good.clone() }, "p99 of hot files –, alone 100 µs"),
            (Figures { errors: 1, ..good.clone() }, "1 errors"),
            (
                Figures { share: Some(0.49), ..good.clone() },
                "a download got 0.49 of its fair share",
            ),
            (
                Figures { errors: 2, share: Some(0.0), ..good },
                "2 errors; a download got 0.00 of its fair share",
            ),
        ] {
            assert_eq!(of(&figures, None), Judgement::Unsafe(why.to_owned()));
            let generator = "the load generator used 95 % of its CPU".to_owned();
            assert_eq!(of(&figures, own_cpu), Judgement::Unknown(generator));
        }
    }

    #[test]
    fn figures_are_of_the_exchanges_of_their_groups() {
        let millis = |n: u64| n * 1_000_000;
        let groups = [Group::Hot, Group::Download, Group::Other];
        let exchange = |target, from, to, failure| Exchange {
            target,
            intended: millis(from),
            ended: millis(to),
            bytes: 1000,
            failure,
        };
        let mut trace = Trace::new(0);
        trace.slices = vec![[7, 500, 7]; 40];
        // One before the window, which would be the slowest; 150 of 1 ms, and one of 9 ms.
        trace.keep(exchange(0, 0, 900, None));
        (0..150).for_each(|at| trace.keep(exchange(0, 1000 + at, 1001 + at, None)));
        trace.keep(exchange(0, 1200, 1209, None));
        trace.keep(exchange(2, 1000, 3000, None));
        let of = |trace: &Trace| Figures::of(trace, millis(1000), |target| groups[target]);
        let figures = Figures { p99: 1e6.into(), errors: 0, share: None };
        assert_eq!(of(&trace), figures);
        trace.keep(exchange(1, 0, 2000, None));
        trace.keep(exchange(1, 0, 2000, None));
        // Both got 1000 bytes of 10,000: all the same, and less than half of an equal part.
        let share = of(&trace).share.unwrap();
        assert!((share - 0.2).abs() < 1e-9, "{share}");
        trace.keep(exchange(0, 1300, 1301, Some(Failure::Status)));
        assert_eq!((of(&trace).errors, of(&trace).p99.at_least), (1, false));
        (0..3).for_each(|_| trace.keep(exchange(0, 1400, 1450, Some(Failure::Unfinished))));
        assert_eq!(of(&trace).p99, Value { number: 50e6, at_least: true });
    }
}
