//! The same figures of several rounds: medians with their spread, and which vary too much to rank
//! by. Pure.

use std::collections::BTreeMap;

use crate::run::NOTHING;
use crate::{Recorder, Unit, stats};

/// Values by server and by what they are.
#[derive(Clone, Debug, Default)]
pub struct Rounds {
    values: BTreeMap<(String, String), Vec<f64>>,
}

impl Rounds {
    /// Adds a round's value.
    pub fn add(&mut self, server: &str, what: &str, value: f64) {
        self.values.entry((server.to_owned(), what.to_owned())).or_default().push(value);
    }

    /// Adds a round's value, and records it for the plots at `x`.
    pub fn record(
        &mut self,
        recorder: &mut Recorder<'_>,
        server: &str,
        what: &str,
        unit: Unit,
        x: f64,
        value: f64,
    ) {
        self.add(server, what, value);
        recorder.record(server, what, unit, x, value);
    }

    /// The median of all rounds; NaN without any.
    #[must_use]
    pub fn median(&self, server: &str, what: &str) -> f64 {
        stats::median(self.of(server, what).iter().copied())
    }

    /// The median, and least and greatest behind it if there were several: `142 (139–150)`. Where a
    /// round has no value, as a latency when nothing was answered, it says `none`.
    #[must_use]
    pub fn cell(&self, server: &str, what: &str, show: impl Fn(f64) -> String) -> String {
        let values = stats::sorted(self.of(server, what).iter().copied());
        let (Some(&least), Some(&greatest)) = (values.first(), values.last()) else {
            return NOTHING.to_owned();
        };
        if values.iter().all(|value| !value.is_finite()) {
            return NOTHING.to_owned();
        }
        let show = |value: f64| if value.is_finite() { show(value) } else { "none".to_owned() };
        let median = show(stats::quantile(&values, 0.5));
        if values.len() == 1 {
            return median;
        }
        format!("{median} ({}–{})", show(least), show(greatest))
    }

    /// What varied by more than [`SPREAD_MAX`] between rounds, as a sentence; None if nothing did.
    #[must_use]
    pub fn too_noisy(&self, what: &[&str]) -> Option<String> {
        let noisy: Vec<String> = self
            .values
            .iter()
            .filter(|((_, name), _)| what.iter().any(|what| name.starts_with(what)))
            .filter_map(|((server, name), values)| {
                let values = stats::sorted(values.iter().copied());
                let (least, greatest) = (values.first()?, values.last()?);
                let spread = (greatest - least) / stats::quantile(&values, 0.5);
                (spread > SPREAD_MAX).then(|| format!("{server}, {name}: {:.0} %", 100.0 * spread))
            })
            .collect();
        let limit = 100.0 * SPREAD_MAX;
        (!noisy.is_empty()).then(|| {
            format!(
                "too noisy to rank by: rounds differ by more than {limit:.0} % ({})",
                noisy.join("; ")
            )
        })
    }

    /// In how many rounds it was above so much, and how many there were.
    #[must_use]
    pub fn above(&self, server: &str, what: &str, limit: f64) -> (usize, usize) {
        let values = self.of(server, what);
        (values.iter().filter(|&&value| value > limit).count(), values.len())
    }

    fn of(&self, server: &str, what: &str) -> &[f64] {
        let key = (server.to_owned(), what.to_owned());
        self.values.get(&key).map_or(&[], Vec::as_slice)
    }
}

/// Part of the median by which rounds may differ from each other.
pub const SPREAD_MAX: f64 = 0.2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_show_their_spread() {
        let mut rounds = Rounds::default();
        for value in [3.0, 1.0, 2.0] {
            rounds.add("a", "x", value);
        }
        rounds.add("b", "x", 5.0);
        let show = |value| format!("{value:.0}");
        assert_eq!(rounds.cell("a", "x", show), "2 (1–3)");
        assert_eq!(rounds.cell("b", "x", show), "5");
        assert_eq!(rounds.cell("c", "x", show), "–");
        rounds.add("d", "x", f64::NAN);
        rounds.add("d", "x", f64::INFINITY);
        assert_eq!(rounds.cell("d", "x", show), "–");
        rounds.add("b", "x", 6.0);
        rounds.add("b", "x", f64::NAN);
        assert_eq!(rounds.cell("b", "x", show), "6 (5–none)");
        assert!(rounds.median("c", "x").is_nan());
        assert_eq!(rounds.above("a", "x", 2.0), (1, 3));
        assert_eq!(rounds.above("c", "x", 2.0), (0, 0));
    }

    #[test]
    fn noise_is_named() {
        let mut rounds = Rounds::default();
        for (quiet, noisy) in [(100.0, 10.0), (110.0, 11.0), (90.0, 15.0)] {
            rounds.add("a", "CPU, 128 B", quiet);
            rounds.add("b", "CPU, 128 B", noisy);
            rounds.add("b", "p99", noisy);
        }
        let sentence = rounds.too_noisy(&["CPU"]).unwrap();
        assert!(sentence.ends_with("(b, CPU, 128 B: 45 %)"), "{sentence}");
        assert_eq!(rounds.too_noisy(&["rate"]), None);
    }
}
