//! The files of the site: their sizes and their popularity, by published distributions. Pure and seeded.
//!
//! Sizes are those of SURGE (Barford and Crovella, "Generating Representative Web Workloads for Network and Server
//! Performance Evaluation", SIGMETRICS 1998): a lognormal body, and a tail by Pareto's law. Popularity follows Zipf's
//! law with the exponent of [`mixed`](super::super::mixed), and is independent of the size.

use core::f64::consts::TAU;

use super::super::mixed::{ZIPF, hot_files};
use crate::stats::float;

/// The part that a file has in the judgement of a load. The number is the group of [`Target`](crate::load::Target).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Group {
    /// A small file in memory: its latency must not grow.
    Hot = 0,
    /// A large file on the disk: it must get its share.
    Download = 1,
    /// A large file in memory, or a small one on the disk. Like all others it must come without an error.
    Other = 2,
}

/// A file of the site. Its index is its rank: the first one is the most popular.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct SiteFile {
    pub(super) name: String,
    pub(super) len: u64,
    pub(super) is_in_memory: bool,
}

impl SiteFile {
    pub(super) fn group(&self) -> Group {
        match (self.is_in_memory, self.len < TAIL_FROM) {
            (true, true) => Group::Hot,
            (false, false) => Group::Download,
            _ => Group::Other,
        }
    }
}

/// The files of a site with this many files.
pub(super) fn files(count: usize) -> Vec<SiteFile> {
    let hot = hot_files(count, HOT).max(1);
    let file = |rank: usize| SiteFile {
        name: format!("{}/{rank}", rank % DIRECTORIES),
        len: size(rank as u64),
        is_in_memory: rank < hot,
    };
    (0..count).map(file).collect()
}

/// The bytes that one client needs from the disk, on average.
pub(super) fn bytes_from_disk(files: &[SiteFile]) -> f64 {
    let weight = |rank: usize| float(rank + 1).powf(-ZIPF);
    let total: f64 = (0..files.len()).map(weight).sum();
    let from_disk = |(rank, file): (usize, &SiteFile)| {
        if file.is_in_memory { 0.0 } else { weight(rank) * float(file.len) }
    };
    files.iter().enumerate().map(from_disk).sum::<f64>() / total
}

/// The bytes of one file.
fn size(seed: u64) -> u64 {
    let mut random = fastrand::Rng::with_seed(seed);
    // 1 - [0, 1) is never 0, whose logarithm is infinite.
    let mut part = || 1.0 - random.f64();
    let size = if part() <= BODY {
        let mut lognormal = || {
            // Box and Muller (1958): a normal number of two even ones.
            let normal = (-2.0 * part().ln()).sqrt() * (TAU * part()).cos();
            (BODY_MU + BODY_SIGMA * normal).exp()
        };
        // One in 30 is drawn again, because it belongs to the tail.
        core::iter::repeat_with(&mut lognormal).find(|&size| size < float(TAIL_FROM)).unwrap_or(1.0)
    } else {
        (float(TAIL_FROM) * part().powf(-1.0 / TAIL_ALPHA)).min(float(SIZE_MAX))
    };
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "1 to 4 MiB")]
    let bytes = size.max(1.0) as u64;
    bytes
}

/// The part of all requests that are for files in memory. With less, a slow disk could serve no number of clients at
/// which percentiles of a second mean something.
pub(super) const HOT: f64 = 0.5;

/// The part of all files that are of the body.
const BODY: f64 = 0.93;
/// The body: mean and standard deviation of the logarithm of the size.
const BODY_MU: f64 = 9.357;
const BODY_SIGMA: f64 = 1.318;
/// If a file has at least this size, it belongs to the tail.
pub(super) const TAIL_FROM: u64 = 133_000;
const TAIL_ALPHA: f64 = 1.1;

/// The size of larger files. Without a limit, one file of gigabytes could decide what a minute shows.
pub(super) const SIZE_MAX: u64 = 4 << 20;

const DIRECTORIES: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_the_paper() {
        let sizes: Vec<u64> = (0..50_000).map(size).collect();
        let part = |is: &dyn Fn(u64) -> bool| {
            sizes.iter().filter(|&&size| is(size)).count() as f64 / sizes.len() as f64
        };
        assert!((part(&|size| size < TAIL_FROM) - BODY).abs() < 0.005);
        // The median of a lognormal distribution is e^µ; without its last 3 % it is a little less.
        let body = sizes.iter().filter(|&&size| size < TAIL_FROM).map(|&size| size as f64);
        let median = crate::stats::median(body);
        assert!((0.9..1.01).contains(&(median / BODY_MU.exp())), "{median}");
        // Of the tail, twice the size is 2^-1.1 times as likely.
        let beyond = |times: u64| part(&|size| size >= times * TAIL_FROM);
        let ratio = beyond(4) / beyond(2);
        assert!((ratio - 2_f64.powf(-TAIL_ALPHA)).abs() < 0.05, "{ratio}");
        assert!(sizes.iter().all(|size| (1..=SIZE_MAX).contains(size)));
    }

    #[test]
    fn the_popular_half_is_in_memory() {
        let files = files(2000);
        let weight = |rank: usize| float(rank + 1).powf(-ZIPF);
        let total: f64 = (0..2000).map(weight).sum();
        let hot: f64 = (0..2000).filter(|&rank| files[rank].is_in_memory).map(weight).sum();
        assert!((hot / total - HOT).abs() < 0.01, "{}", hot / total);
        let count = |group| files.iter().filter(|file| file.group() == group).count();
        let [hot, downloads, others] = [Group::Hot, Group::Download, Group::Other].map(count);
        assert!(hot > 50 && downloads > 80 && others > hot && hot + downloads + others == 2000);
        let bytes = bytes_from_disk(&files);
        assert!((10_000.0..60_000.0).contains(&bytes), "{bytes}");
    }
}
