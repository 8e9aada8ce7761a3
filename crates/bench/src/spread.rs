//! The same figure measured several times: its print form, and the condition for ranking two such figures. Pure.
//!
//! The median of several rounds is shown with the least and the greatest. Two systems are ranked only if their rounds
//! do not overlap and the medians differ by more than the rounds of either.

use crate::stats;
use crate::unit::NOTHING;

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

    /// Returns whether the rounds show which of the two is greater. They do if there are at least [`ROUNDS_MIN`] of
    /// each, and no round of the one reaches a round of the other. The medians must also be further apart than the
    /// least and the greatest round of either.
    #[must_use]
    pub fn is_ranked_against(&self, other: &Self) -> bool {
        let (low, high) =
            if self.median.number < other.median.number { (self, other) } else { (other, self) };
        let extent = |spread: &Self| spread.greatest.number - spread.least.number;
        let difference = high.median.number - low.median.number;
        // A value that is not a number compares with nothing. A value that was cut off may be anything above.
        low.rounds.min(high.rounds) >= ROUNDS_MIN
            && !low.greatest.at_least
            && low.greatest.number < high.least.number
            && difference > extent(low)
            && difference > extent(high)
    }
}

/// The minimum of rounds for a ranking: two rounds of each differ in one order or the other by chance.
pub const ROUNDS_MIN: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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

    #[test]
    fn ranks_need_a_difference_greater_than_the_spread() {
        let cases = [
            ("apart", [1.0, 1.1, 1.2], [2.0, 2.1, 2.2], true),
            ("equal", [1.0, 1.0, 1.0], [1.0, 1.0, 1.0], false),
            ("overlapping", [1.0, 1.1, 2.0], [1.9, 2.1, 2.2], false),
            ("touching", [1.0, 1.1, 2.0], [2.0, 5.0, 5.1], false),
            (
                "the lower one varies by more than they differ",
                [1.0, 9.0, 10.0],
                [11.0, 12.0, 13.0],
                false,
            ),
            ("the higher one does", [1.0, 1.1, 1.2], [2.0, 2.1, 9.0], false),
            ("without a number", [1.0, 1.1, f64::NAN], [2.0, 2.1, 2.2], false),
        ];
        for (name, a, b, want) in cases {
            assert_eq!(spread(&a).is_ranked_against(&spread(&b)), want, "{name}");
        }
        assert!(!spread(&[1.0, 1.1]).is_ranked_against(&spread(&[2.0, 2.1, 2.2])), "two rounds");
        // A hot file beside cold downloads, in the league of 2026-11-21.
        let (samum, epoll) = ([144_537.0, 152_535.0, 161_155.0], [102_334.0, 124_448.0, 170_622.0]);
        assert!(!spread(&samum).is_ranked_against(&spread(&epoll)));
    }

    #[test]
    fn what_was_cut_off_is_never_the_lesser() {
        let stalled = Spread::of(&[cut_off(2.0), cut_off(2.1), cut_off(2.2)]).unwrap();
        assert!(stalled.is_ranked_against(&spread(&[0.1, 0.2, 0.3])));
        assert!(!stalled.is_ranked_against(&spread(&[8.0, 8.1, 8.2])));
    }

    proptest! {
        #[test]
        fn ranks_do_not_depend_on_order_and_need_more_than_the_spread(
            a in prop::collection::vec(0.0..100.0f64, 1..6),
            b in prop::collection::vec(0.0..100.0f64, 1..6),
        ) {
            let (a, b) = (spread(&a), spread(&b));
            prop_assert_eq!(a.is_ranked_against(&b), b.is_ranked_against(&a));
            prop_assert!(!a.is_ranked_against(&a));
            if a.is_ranked_against(&b) {
                let difference = (a.median.number - b.median.number).abs();
                for one in [a, b] {
                    prop_assert!(difference > one.greatest.number - one.least.number);
                }
            }
        }
    }
}
