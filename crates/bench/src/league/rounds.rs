//! The same figures of several rounds: their medians and spread, and the figures that vary much. Pure.

use std::collections::BTreeMap;

use crate::run::Run;
use crate::spread::{Spread, Value, are_ranked};
use crate::unit::NOTHING;
use crate::{Recorder, Unit, stats};

/// The values of each server and figure.
#[derive(Clone, Debug, Default)]
pub struct Rounds {
    values: BTreeMap<(String, String), Vec<Value>>,
}

impl Rounds {
    /// The rounds of a test that a run has kept; at each x a server has one value.
    #[must_use]
    pub fn of_run(run: &Run, test: &str) -> Self {
        let mut rounds = Self::default();
        for series in run.of(test).filter(|series| !series.series.ends_with(AT_LEAST)) {
            let mark = format!("{}{AT_LEAST}", series.series);
            let is_its =
                |other: &&crate::run::Series| other.system == series.system && other.series == mark;
            let marks = run.of(test).find(is_its).map_or(&[][..], |marks| &marks.points);
            for &(x, number) in &series.points {
                let at_least = marks.iter().any(|mark| mark.0 == x);
                rounds.add(&series.system, &series.series, Value { number, at_least });
            }
        }
        rounds
    }

    /// Adds a round's value.
    pub fn add(&mut self, server: &str, what: &str, value: impl Into<Value>) {
        self.values.entry((server.to_owned(), what.to_owned())).or_default().push(value.into());
    }

    /// Adds a round's value, and records it for the plots at `x`; a lower bound once more, under a name
    /// that says so.
    pub fn record(
        &mut self,
        recorder: &mut Recorder<'_>,
        server: &str,
        what: &str,
        unit: Unit,
        x: f64,
        value: impl Into<Value>,
    ) {
        let value = value.into();
        self.add(server, what, value);
        recorder.record(server, what, unit, x, value.number);
        if value.at_least {
            recorder.record(server, &format!("{what}{AT_LEAST}"), unit, x, value.number);
        }
    }

    /// The servers that have a value, by name.
    #[must_use]
    pub fn servers(&self) -> Vec<&str> {
        let mut servers: Vec<&str> = self.values.keys().map(|(server, _)| &server[..]).collect();
        servers.dedup();
        servers
    }

    /// Median, least and greatest; `None` without values.
    #[must_use]
    pub fn spread(&self, server: &str, what: &str) -> Option<Spread> {
        Spread::of(self.of(server, what))
    }

    /// The median of all rounds; NaN without any.
    #[must_use]
    pub fn median(&self, server: &str, what: &str) -> f64 {
        stats::median(self.numbers(server, what))
    }

    /// [`Spread::show`]: `142 (139–150)`; a dash without values.
    #[must_use]
    pub fn cell(&self, server: &str, what: &str, show: impl Fn(f64) -> String) -> String {
        self.spread(server, what).map_or_else(|| NOTHING.to_owned(), |spread| spread.show(show))
    }

    /// Returns whether the rounds show which of two servers has the greater figure ([`are_ranked`]).
    #[must_use]
    pub fn are_ranked(&self, a: &str, b: &str, what: &str) -> bool {
        are_ranked(self.of(a, what), self.of(b, what))
    }

    /// The ratio of a server's median to another one's; in parentheses if the rounds do not rank them.
    #[must_use]
    pub fn ratio(&self, server: &str, other: &str, what: &str) -> String {
        let ratio = self.median(server, what) / self.median(other, what);
        match ratio.is_finite() {
            true if server == other || self.are_ranked(server, other, what) => {
                format!("{ratio:.2}")
            }
            true => format!("({ratio:.2})"),
            false => NOTHING.to_owned(),
        }
    }

    /// A sentence about the figures that varied by more than [`SPREAD_MAX`] between rounds; `None` if
    /// there are none.
    #[must_use]
    pub fn too_noisy(&self, what: &[&str]) -> Option<String> {
        let noisy: Vec<String> = self
            .values
            .iter()
            .filter(|((_, name), _)| what.iter().any(|what| name.starts_with(what)))
            .filter_map(|((server, name), values)| {
                let values = stats::sorted(values.iter().map(|value| value.number));
                let (least, greatest) = (values.first()?, values.last()?);
                let spread = (greatest - least) / stats::quantile(&values, 0.5);
                (spread > SPREAD_MAX).then(|| format!("{server}, {name}: {:.0} %", 100.0 * spread))
            })
            .collect();
        let limit = 100.0 * SPREAD_MAX;
        (!noisy.is_empty())
            .then(|| format!("rounds differ by more than {limit:.0} % ({})", noisy.join("; ")))
    }

    /// The figures of each round, divided by those of another server in the same round.
    #[must_use]
    pub fn ratios(&self, server: &str, reference: &str, what: &str) -> Vec<f64> {
        self.numbers(server, what).zip(self.numbers(reference, what)).map(|(a, b)| a / b).collect()
    }

    /// In how many rounds it was above so much, and how many there were.
    #[must_use]
    pub fn above(&self, server: &str, what: &str, limit: f64) -> (usize, usize) {
        let values = self.of(server, what);
        (values.iter().filter(|value| value.number > limit).count(), values.len())
    }

    fn numbers(&self, server: &str, what: &str) -> impl Iterator<Item = f64> {
        self.of(server, what).iter().map(|value| value.number)
    }

    /// The values of all rounds; empty without any.
    #[must_use]
    pub fn of(&self, server: &str, what: &str) -> &[Value] {
        let key = (server.to_owned(), what.to_owned());
        self.values.get(&key).map_or(&[], Vec::as_slice)
    }
}

/// The name of a figure in windows of a kind, such as `alone`.
pub fn in_windows(what: &str, kind: &str) -> String {
    format!("{what}, {kind}")
}

/// After the name of a series: its values at these rounds are lower bounds.
pub const AT_LEAST: &str = ", at least";

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
        assert_eq!(rounds.cell("c", "x", show), "–");
        assert_eq!(rounds.servers(), ["a", "b"]);
        assert_eq!(rounds.ratios("b", "a", "x"), [5.0 / 3.0], "of the rounds that both have");
        assert_eq!(rounds.ratios("a", "c", "x"), [0.0; 0]);
        assert!(rounds.median("c", "x").is_nan());
        assert_eq!(rounds.above("a", "x", 2.0), (1, 3));
        assert_eq!(rounds.above("c", "x", 2.0), (0, 0));
    }

    #[test]
    fn ratios_say_if_they_rank() {
        let mut rounds = Rounds::default();
        for value in (0..10).map(|nth| 10.0 + 0.2 * f64::from(nth)) {
            rounds.add("a", "x", value);
            rounds.add("b", "x", 2.0 * value);
            rounds.add("c", "x", value + 0.1);
        }
        assert_eq!(rounds.ratio("a", "b", "x"), "0.50");
        assert_eq!(rounds.ratio("c", "a", "x"), "(1.01)");
        assert_eq!(rounds.ratio("a", "a", "x"), "1.00");
        assert_eq!(rounds.ratio("a", "d", "x"), "–");
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
