//! The part that each download got of its fair share. Pure.
//!
//! At each moment the fair share of a download is an equal part of the bytes that all downloads get. A download that
//! gets less than others stays longer, and then its fair share of the time that it stayed is more than its size.

use crate::load::schedule::Nanos;
use crate::stats::float;

/// A download: from its planned request to its last byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stay {
    pub(super) from: Nanos,
    pub(super) to: Nanos,
    /// The bytes that came.
    pub(super) bytes: u64,
}

/// Returns the least part of its fair share that a download got which stayed for [`LONG`] or longer; `None` if none
/// stayed so long. `slices` has the bytes that all these downloads got, in slices of `length`.
pub(super) fn least_share(downloads: &[Stay], slices: &[u64], length: Nanos) -> Option<f64> {
    let fair = Fair::new(downloads, slices, length);
    let long = downloads.iter().filter(|stay| stay.to - stay.from >= LONG);
    // If no download got a byte meanwhile, none got less than another.
    let part = |stay: &Stay| match fair.share(stay) {
        share if share > 0.0 => float(stay.bytes) / share,
        _ => 1.0,
    };
    long.map(part).min_by(f64::total_cmp)
}

/// The number of downloads that were present in each slice, on average.
pub(super) fn present(downloads: &[Stay], slices: usize, length: Nanos) -> Vec<f64> {
    let mut present = vec![0.0; slices];
    for stay in downloads {
        let first = usize::try_from(stay.from / length).unwrap_or(slices);
        let last = usize::try_from(stay.to / length).unwrap_or(slices);
        let touched = present.iter_mut().enumerate().take(last.saturating_add(1)).skip(first);
        for (slice, present) in touched {
            let start = slice as u64 * length;
            let part = stay.to.min(start + length) - stay.from.max(start);
            *present += float(part) / float(length);
        }
    }
    present
}

/// The bytes that a download would have got that had been present from the start, with a fair share of each slice.
struct Fair {
    /// At the start of each slice, and at the end of the last.
    until: Vec<f64>,
    length: Nanos,
}

impl Fair {
    fn new(downloads: &[Stay], slices: &[u64], length: Nanos) -> Self {
        let present = present(downloads, slices.len(), length);
        let mut until = vec![0.0];
        for (&bytes, present) in slices.iter().zip(present) {
            let share = if present > 0.0 { float(bytes) / present } else { 0.0 };
            until.push(until[until.len() - 1] + share);
        }
        Self { until, length }
    }

    fn share(&self, stay: &Stay) -> f64 {
        self.at(stay.to) - self.at(stay.from)
    }

    /// Within a slice bytes come evenly.
    fn at(&self, time: Nanos) -> f64 {
        let slice = usize::try_from(time / self.length).unwrap_or(usize::MAX);
        let end = self.until[self.until.len() - 1];
        match (self.until.get(slice), self.until.get(slice.saturating_add(1))) {
            (Some(start), Some(next)) => {
                start + (next - start) * float(time % self.length) / float(self.length)
            }
            _ => end,
        }
    }
}

/// The shortest stay that is judged. A shorter one harms nobody, and a disk that is slowed down gives bytes in
/// portions, of which a short one may miss the next.
pub(super) const LONG: Nanos = 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: Nanos = 1_000_000_000;

    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bytes of a slice")]
    fn whole(bytes: f64) -> u64 {
        bytes.round() as u64
    }

    fn stay(from: Nanos, to: Nanos, bytes: u64) -> Stay {
        Stay { from: from * SECOND, to: to * SECOND, bytes }
    }

    #[test]
    fn shares_of_two() {
        let both = |a, b| [stay(0, 10, a), stay(0, 10, b)];
        let slices = [100; 10];
        for (downloads, least) in [
            (&both(500, 500)[..], Some(1.0)),
            (&both(700, 300), Some(0.6)),
            (&both(1000, 0), Some(0.0)),
            // One leaves in the middle, and the other has all of the second half.
            (&[stay(0, 5, 250), stay(0, 10, 750)], Some(1.0)),
            (&[stay(0, 5, 400), stay(0, 10, 600)], Some(0.8)),
            (&[], None),
        ] {
            let got = least_share(downloads, &slices, SECOND);
            assert!(
                got.is_some() == least.is_some()
                    && (got.unwrap_or(0.0) - least.unwrap_or(0.0)).abs() < 1e-9,
                "{downloads:?}: {got:?}"
            );
        }
        let short = Stay { from: 0, to: SECOND - 1, bytes: 0 };
        assert_eq!(
            least_share(&[short], &slices, SECOND),
            None,
            "it stayed for less than a second"
        );
        assert_eq!(least_share(&both(0, 0), &[0; 10], SECOND), Some(1.0), "nothing for anybody");
    }

    #[test]
    fn downloads_are_counted_with_the_parts_of_slices_in_which_they_are_present() {
        let half = SECOND / 2;
        let of = |from, to| Stay { from, to, bytes: 0 };
        let stays = [of(half, SECOND + half), of(0, SECOND), of(5 * SECOND, 6 * SECOND)];
        assert_eq!(present(&stays, 3, SECOND), [1.5, 0.5, 0.0]);
    }

    proptest! {
        /// A disk that serves all present downloads equally gives each its share, whenever they come.
        #[test]
        fn equal_service_is_fair(
            arrivals in prop::collection::vec((0..200_u64, 1..400_u64), 1..40),
            rate in 20..400_u64,
        ) {
            // In steps of a tenth of a slice, so that slices hide little.
            let (step, length) = (SECOND / 100, SECOND / 10);
            let mut left: Vec<(u64, f64, Option<u64>)> =
                arrivals.iter().map(|&(at, size)| (at, size as f64 * 10.0, None)).collect();
            let mut slices = vec![0.0; 100_000];
            let mut now = 0;
            while left.iter().any(|(_, _, end)| end.is_none()) && now < 900_000 {
                let present = left.iter().filter(|(at, _, end)| *at <= now && end.is_none()).count();
                let each = rate as f64 / present.max(1) as f64;
                for (at, bytes, end) in &mut left {
                    if *at <= now && end.is_none() {
                        let got = each.min(*bytes);
                        *bytes -= got;
                        slices[usize::try_from(now / 10).unwrap()] += got;
                        *end = (*bytes <= 0.0).then_some(now + 1);
                    }
                }
                now += 1;
            }
            let stays: Vec<Stay> = arrivals
                .iter()
                .zip(&left)
                .map(|(&(at, size), (_, _, end))| Stay {
                    from: at * step,
                    to: end.unwrap_or(now) * step,
                    bytes: size * 10,
                })
                .collect();
            let slices: Vec<u64> = slices.into_iter().map(whole).collect();
            let least = least_share(&stays, &slices, length);
            prop_assert!(least.is_none_or(|least| least > 0.6), "{least:?}");
        }
    }
}
