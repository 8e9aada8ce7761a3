//! The print forms of the figures of a load: percentile curves, times with a unit, failures.

use hdrhistogram::Histogram;

use crate::load::account::{Account, Bottleneck};
use crate::load::failure::Failure;
use crate::spread::Spread;
use crate::{Recorder, Unit};

/// The remarks about measurements in addition to their figures: the failures of all, and the worst bottleneck of the
/// load generator.
pub(crate) fn remarks(accounts: &[&Account]) -> String {
    let failures = Failure::ALL.map(|failure| {
        let count: u64 = accounts.iter().map(|account| account.failed(failure)).sum();
        (count > 0).then(|| format!("{count} {failure}"))
    });
    let bottlenecks = accounts.iter().filter_map(|account| account.bottleneck());
    let (late, cpu): (Vec<_>, Vec<_>) =
        bottlenecks.partition(|lacked| matches!(lacked, Bottleneck::SentLate(_)));
    let worst = [cpu, late].map(|lacked| {
        lacked.into_iter().max_by(|a, b| a.partial_cmp(b).unwrap_or(core::cmp::Ordering::Equal))
    });
    let worst = worst.into_iter().flatten().map(|lacked| lacked.to_string());
    failures.into_iter().flatten().chain(worst).collect::<Vec<_>>().join("; ")
}

/// Points of a percentile curve: one request in x is slower than y nanoseconds.
#[allow(clippy::cast_precision_loss, reason = "for a plot")]
pub(crate) fn curve(
    recorder: &mut Recorder<'_>,
    server: &str,
    series: &str,
    latency: &Histogram<u64>,
) {
    recorder.is_curve(series);
    let requests = latency.len() as f64;
    for step in 0..=PER_DECADE * DECADES {
        let one_in = 10_f64.powf(f64::from(step) / f64::from(PER_DECADE));
        if one_in > requests {
            break;
        }
        let value = latency.value_at_quantile(1.0 - 1.0 / one_in) as f64;
        recorder.record(server, series, Unit::Nanoseconds, one_in, value);
    }
}

/// A percentile of the latencies, with a unit; `≥ 3.76 s` where requests were cut off.
pub(crate) fn show_percentile(account: &Account, q: f64) -> String {
    let shown = Spread::of(&[account.percentile(q)]);
    shown.map_or_else(String::new, |value| value.show(|ns| Unit::Nanoseconds.show(ns)))
}

/// Requests per second: whole ones from 100 on, and three digits of fewer, so that few are not shown as none.
pub(crate) fn show_rate(rate: f64) -> String {
    rounded(rate).to_string()
}

/// A rate without digits that say nothing.
pub(crate) fn rounded(rate: f64) -> f64 {
    /// Digits that are kept, at least.
    const DIGITS: i32 = 3;
    if rate <= 0.0 || !rate.is_finite() {
        return rate;
    }
    #[allow(clippy::cast_possible_truncation, reason = "of a number below 1e308")]
    let digits_in_front = rate.log10().floor() as i32 + 1;
    let scale = 10_f64.powi((DIGITS - digits_in_front).max(0));
    (rate * scale).round() / scale
}

/// The x axis of percentile curves.
pub(crate) const ONE_IN: &str = "one request in so many is slower";

/// A [`curve`] has this many points per factor of ten, and this many factors of ten.
const PER_DECADE: u32 = 10;
const DECADES: u32 = 6;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_rates_are_not_shown_as_none() {
        for (rate, shown) in [
            (0.0, "0"),
            (0.1, "0.1"),
            (0.001_234_9, "0.00123"),
            (1.0 / 3.0, "0.333"),
            (2.0, "2"),
            (49.96, "50"),
            (12.34, "12.3"),
            (99.96, "100"),
            (1234.5678, "1235"),
            (1e6, "1000000"),
        ] {
            assert_eq!(show_rate(rate), shown, "{rate}");
        }
    }
}
