//! The exact permutation test of rank sums (Wilcoxon 1945; Mann and Whitney 1947), with ties. Pure.
//!
//! If two systems were equal, each way to deal their rounds out to them would be as likely as the one that was measured.
//! The test counts the ways in which the lower system would have ranks as low as those measured. It uses ranks, not
//! values, so a round that took ten times as long counts as the longest, and no more.

/// The probability that chance alone gives the values of `low` ranks as low among all as they have. 1 without values.
/// Infinite values are the greatest.
#[must_use]
pub fn probability_of_less(low: &[f64], high: &[f64]) -> f64 {
    let ranks = doubled_ranks(low, high);
    let measured: usize = ranks[..low.len()].iter().sum();
    // The number of ways to choose `count` of the ranks so far with the sum `sum`. Numbers up to 2^53 are exact, and
    // greater ones near enough for a ratio.
    let total: usize = ranks.iter().sum();
    let mut ways = vec![vec![0.0; total + 1]; low.len() + 1];
    ways[0][0] = 1.0;
    for &rank in &ranks {
        for count in (1..=low.len()).rev() {
            let [fewer, these] = &mut ways[count - 1..=count] else { unreachable!("two rows") };
            for sum in (rank..=total).rev() {
                these[sum] += fewer[sum - rank];
            }
        }
    }
    let all = &ways[low.len()];
    all[..=measured].iter().sum::<f64>() / all.iter().sum::<f64>()
}

/// Twice the rank of each value, of `low` and then of `high`. Equal values share the mean of their ranks, which may be a
/// half.
fn doubled_ranks(low: &[f64], high: &[f64]) -> Vec<usize> {
    let all: Vec<f64> = low.iter().chain(high).copied().collect();
    let rank = |value: &f64| {
        let less = all.iter().filter(|other| *other < value).count();
        let equal = all.iter().filter(|other| *other == value).count();
        2 * less + equal + 1
    };
    all.iter().map(rank).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn probabilities_are_those_of_the_tables() {
        // The number of ways to choose 3 of 6 is 20, and 10 of 20 is 184,756.
        let apart = |n: u32| {
            let low: Vec<f64> = (0..n).map(f64::from).collect();
            let high: Vec<f64> = (n..2 * n).map(f64::from).collect();
            (probability_of_less(&low, &high), probability_of_less(&high, &low))
        };
        assert_eq!(apart(3), (1.0 / 20.0, 1.0));
        assert_eq!(apart(10), (1.0 / 184_756.0, 1.0));
        // Mann and Whitney's table for 3 and 4: U = 2 has 0.114.
        let p = probability_of_less(&[1.0, 2.0, 5.0], &[3.0, 4.0, 6.0, 7.0]);
        assert!((p - 4.0 / 35.0).abs() < 1e-12, "{p}");
        assert_eq!(probability_of_less(&[1.0; 5], &[1.0; 5]), 1.0, "ties");
        assert_eq!(probability_of_less(&[], &[1.0]), 1.0);
        let (one, infinite) = (&[1.0, 2.0][..], &[f64::INFINITY; 2][..]);
        assert_eq!(probability_of_less(one, infinite), 1.0 / 6.0);
    }

    /// All ways to choose `count` of the indices from `from` on.
    fn choices(from: usize, of: usize, count: usize) -> Vec<Vec<usize>> {
        if count == 0 {
            return vec![Vec::new()];
        }
        let first = from..of;
        let with = |first: usize| {
            choices(first + 1, of, count - 1)
                .into_iter()
                .map(move |rest| [vec![first], rest].concat())
        };
        first.flat_map(with).collect()
    }

    proptest! {
        #[test]
        fn the_count_is_that_of_all_ways(
            low in prop::collection::vec(0..6_u8, 1..6),
            high in prop::collection::vec(0..6_u8, 1..6),
        ) {
            let (low, high): (Vec<f64>, Vec<f64>) =
                (low.into_iter().map(f64::from).collect(), high.into_iter().map(f64::from).collect());
            let ranks = doubled_ranks(&low, &high);
            let sum = |chosen: &[usize]| chosen.iter().map(|&at| ranks[at]).sum::<usize>();
            let measured = sum(&(0..low.len()).collect::<Vec<_>>());
            let all = choices(0, ranks.len(), low.len());
            let as_low = all.iter().filter(|chosen| sum(chosen) <= measured).count();
            let p = probability_of_less(&low, &high);
            prop_assert!((p - as_low as f64 / all.len() as f64).abs() < 1e-9, "{p}");
        }
    }
}
