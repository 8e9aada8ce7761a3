//! The same figure measured several times: its print form, and the condition for ranking two such figures. Pure.
//!
//! The median of several rounds is shown with the least and the greatest. Two systems are ranked only if each has
//! [`ROUNDS_MIN`] rounds and a [permutation test](crate::permutation) says that their rounds are not of one kind.

use crate::unit::NOTHING;
use crate::{permutation, stats};

/// A figure of one round.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Value {
    /// The number; not finite if there is none, such as a latency without any response.
    pub number: f64,
    /// The true value may be greater: the measurement was cut off.
    pub at_least: bool,
}

impl From<f64> for Value {
    fn from(number: f64) -> Self {
        Self { number, at_least: false }
    }
}

impl Value {
    /// `3.76 s`, or `≥ 3.76 s` if it was cut off, or `none`.
    fn show(self, show: impl Fn(f64) -> String) -> String {
        match self {
            Self { number, .. } if !number.is_finite() => "none".to_owned(),
            Self { number, at_least: false } => show(number),
            Self { number, at_least: true } => format!("≥ {}", show(number)),
        }
    }
}

/// Median, least and greatest of several rounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The least.
    pub least: Value,
    /// The median.
    pub median: Value,
    /// The greatest.
    pub greatest: Value,
    /// The number of rounds.
    pub rounds: usize,
}

impl Spread {
    /// The spread of one value for each round, in any order; `None` without any.
    #[must_use]
    pub fn of(values: &[Value]) -> Option<Self> {
        let sorted = stats::sorted(values.iter().map(|value| value.number));
        let cut_off = values.iter().filter(|value| value.at_least).map(|value| value.number);
        let cut_off = cut_off.fold(f64::INFINITY, f64::min);
        // A round that was cut off may belong anywhere above, so all from the first such one on are bounds.
        let value =
            |number: f64| Value { number, at_least: number >= cut_off && number.is_finite() };
        Some(Self {
            least: value(*sorted.first()?),
            median: value(stats::quantile(&sorted, 0.5)),
            greatest: value(*sorted.last()?),
            rounds: sorted.len(),
        })
    }

    /// `142 (139–150)`; `142` alone for one round; a dash if no round has a number.
    #[must_use]
    pub fn show(&self, show: impl Fn(f64) -> String) -> String {
        let Self { least, median, greatest, rounds } = self;
        if ![least, median, greatest].iter().any(|value| value.number.is_finite()) {
            return NOTHING.to_owned();
        }
        let median = median.show(&show);
        if *rounds == 1 {
            return median;
        }
        format!("{median} ({}–{})", least.show(&show), greatest.show(&show))
    }
}

/// Returns whether the rounds of two systems show which of them is greater. They do if there are at least
/// [`ROUNDS_MIN`] of each, and if chance alone would order them so clearly with a probability of [`CHANCE_MAX`] at most.
#[must_use]
pub fn are_ranked(a: &[Value], b: &[Value]) -> bool {
    let (Some(of_a), Some(of_b)) = (Spread::of(a), Spread::of(b)) else { return false };
    let (low, high) = if of_a.median.number < of_b.median.number { (a, b) } else { (b, a) };
    // A value that is not a number compares with nothing.
    let is_nan = |value: &Value| value.number.is_nan();
    if a.len().min(b.len()) < ROUNDS_MIN || a.iter().chain(b).any(is_nan) {
        return false;
    }
    // A value that was cut off may be anything above, so among the lower ones it counts as the greatest of all.
    let at_most = |value: &Value| if value.at_least { f64::INFINITY } else { value.number };
    let low: Vec<f64> = low.iter().map(at_most).collect();
    let high: Vec<f64> = high.iter().map(|value| value.number).collect();
    permutation::probability_of_less(&low, &high) <= CHANCE_MAX / 2.0
}

/// The minimum of rounds for a ranking. With ten, a few rounds that others on the machine disturbed do not decide.
pub const ROUNDS_MIN: usize = 10;

/// The greatest probability that two equal systems are ranked. A table has tens of cells, so one in twenty would be too
/// many.
pub const CHANCE_MAX: f64 = 0.01;

#[cfg(test)]
mod tests {
    use super::*;

    fn spread(numbers: &[f64]) -> Spread {
        Spread::of(&numbers.iter().map(|&number| number.into()).collect::<Vec<_>>()).unwrap()
    }

    fn cut_off(number: f64) -> Value {
        Value { number, at_least: true }
    }

    fn whole(number: f64) -> String {
        format!("{number:.0}")
    }

    #[test]
    fn a_median_is_shown_with_least_and_greatest() {
        assert_eq!(Spread::of(&[]), None);
        for (numbers, shown) in [
            (&[3.0, 1.0, 2.0][..], "2 (1–3)"),
            (&[5.0], "5"),
            (&[5.0, 7.0], "6 (5–7)"),
            (&[f64::NAN, f64::INFINITY], "–"),
            (&[5.0, 6.0, f64::NAN], "6 (5–none)"),
        ] {
            assert_eq!(spread(numbers).show(whole), shown);
        }
    }

    #[test]
    fn what_was_cut_off_is_a_lower_bound() {
        let shown = |values: &[Value]| Spread::of(values).unwrap().show(whole);
        assert_eq!(shown(&[cut_off(4.0)]), "≥ 4");
        assert_eq!(shown(&[1.0.into(), 2.0.into(), cut_off(4.0)]), "2 (1–≥ 4)");
        assert_eq!(shown(&[1.0.into(), cut_off(2.0), cut_off(4.0)]), "≥ 2 (1–≥ 4)");
        assert_eq!(shown(&[cut_off(1.0), 2.0.into(), 4.0.into()]), "≥ 2 (≥ 1–≥ 4)");
    }

    /// Ten rounds from `from` on, in steps of `step`.
    fn rounds(from: f64, step: f64) -> Vec<Value> {
        (0..10).map(|nth| (from + step * f64::from(nth)).into()).collect()
    }

    #[test]
    fn ranks_need_ten_rounds_and_a_difference_beyond_chance() {
        let cases = [
            ("apart", rounds(1.0, 0.1), rounds(2.0, 0.1), true),
            ("equal", rounds(1.0, 0.0), rounds(1.0, 0.0), false),
            ("overlapping a little", rounds(1.0, 0.1), rounds(1.75, 0.1), true),
            ("overlapping much", rounds(1.0, 0.1), rounds(1.2, 0.1), false),
            ("varying much, and apart", rounds(1.0, 10.0), rounds(101.0, 10.0), true),
            ("nine rounds", rounds(1.0, 0.1)[..9].to_vec(), rounds(2.0, 0.1), false),
            (
                "without a number",
                [&rounds(1.0, 0.1)[..], &[f64::NAN.into()]].concat(),
                rounds(2.0, 0.1),
                false,
            ),
            ("nothing", Vec::new(), rounds(2.0, 0.1), false),
        ];
        for (name, a, b, want) in cases {
            assert_eq!(are_ranked(&a, &b), want, "{name}");
            assert_eq!(are_ranked(&b, &a), want, "{name}, the other way round");
        }
        // A round that others have disturbed does not hide a difference.
        let disturbed = [&rounds(1.0, 0.1)[..9], &[9.0.into()]].concat();
        assert!(are_ranked(&disturbed, &rounds(2.0, 0.1)));
    }

    #[test]
    fn what_was_cut_off_is_never_the_lesser() {
        let stalled = vec![cut_off(2.0); 10];
        assert!(are_ranked(&stalled, &rounds(0.1, 0.01)));
        assert!(!are_ranked(&stalled, &rounds(8.0, 0.1)));
    }

    #[test]
    fn equal_systems_are_seldom_ranked() {
        let mut random = fastrand::Rng::with_seed(1);
        let mut draw = || -> Vec<Value> { (0..10).map(|_| random.f64().into()).collect() };
        let ranked = (0..2000).filter(|_| are_ranked(&draw(), &draw())).count();
        // Expected are 20 at most, and six standard deviations are 27.
        assert!(ranked < 47, "{ranked} of 2000");
    }
}
