//! Chooses the target of the next request. Pure and seeded.

/// The order in which targets are requested.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Order {
    /// All targets, one after the other, again and again.
    Cycle,
    /// Each one time; then the load ends.
    Once,
    /// The k-th target with a probability proportional to 1/k^s, as for the files of a site
    /// (Breslau et al., "Web Caching and Zipf-like Distributions", 1999: s from 0.64 to 0.83).
    Zipf(f64),
}

/// Draws targets in some [`Order`].
#[derive(Debug)]
pub struct Popularity {
    order: Order,
    len: usize,
    drawn: usize,
    /// For Zipf: the probability of one of the first k + 1 targets.
    cumulative: Vec<f64>,
    random: fastrand::Rng,
}

impl Popularity {
    /// Draws from `0..len`.
    ///
    /// # Panics
    /// When there is nothing to draw from.
    #[must_use]
    pub fn new(order: Order, len: usize, seed: u64) -> Self {
        assert!(len > 0, "no targets");
        let cumulative = match order {
            Order::Zipf(s) => cumulative(s, len),
            Order::Cycle | Order::Once => Vec::new(),
        };
        Self { order, len, drawn: 0, cumulative, random: fastrand::Rng::with_seed(seed) }
    }

    /// The next target; `None` after the last one of [`Order::Once`].
    pub fn draw(&mut self) -> Option<usize> {
        let turn = self.drawn;
        self.drawn += 1;
        match self.order {
            Order::Cycle => Some(turn % self.len),
            Order::Once => (turn < self.len).then_some(turn),
            Order::Zipf(_) => {
                let x = self.random.f64();
                Some(self.cumulative.partition_point(|&sum| sum <= x).min(self.len - 1))
            }
        }
    }
}

#[allow(clippy::cast_precision_loss, reason = "targets are few")]
fn cumulative(s: f64, len: usize) -> Vec<f64> {
    let weights = (1..=len).map(|k| (k as f64).powf(-s));
    let mut sums: Vec<f64> = weights
        .scan(0.0, |sum, weight| {
            *sum += weight;
            Some(*sum)
        })
        .collect();
    let total = sums[len - 1];
    sums.iter_mut().for_each(|sum| *sum /= total);
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_without_chance() {
        let draw = |order| {
            let mut popularity = Popularity::new(order, 3, 0);
            [(); 5].map(|()| popularity.draw())
        };
        assert_eq!(draw(Order::Cycle), [0, 1, 2, 0, 1].map(Some));
        assert_eq!(draw(Order::Once), [Some(0), Some(1), Some(2), None, None]);
    }

    #[test]
    fn zipf_is_as_popular_as_it_should_be() {
        let (len, draws) = (100, 200_000);
        let mut popularity = Popularity::new(Order::Zipf(1.0), len, 42);
        let mut counts = vec![0u32; len];
        for _ in 0..draws {
            counts[popularity.draw().unwrap()] += 1;
        }
        let harmonic: f64 = (1..=len).map(|k| 1.0 / k as f64).sum();
        for (i, &count) in counts.iter().enumerate() {
            let expected = draws as f64 / harmonic / (i + 1) as f64;
            let off = (f64::from(count) - expected).abs() / expected.sqrt();
            assert!(off < 6.0, "target {i}: {count}, expected {expected:.0}");
        }
    }
}
