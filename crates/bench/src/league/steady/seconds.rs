//! A load second by second: traffic, latency of hot files, downloads under way, errors. Pure.

use crate::load::schedule::Nanos;
use crate::load::schedule::nanos;
use crate::load::trace::{self, Trace};
use crate::stats::float;

use super::files::Group;
use super::judge::stays;
use super::shares::present;

/// The figures of one second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Second {
    /// The bytes of bodies that came in it.
    pub(super) bytes: u64,
    /// The p99 of the hot requests that were meant to leave in it, nanoseconds; `None` without any.
    pub(super) p99: Option<Nanos>,
    /// Downloads under way, on average.
    pub(super) downloads: f64,
    /// Requests meant to leave in it that failed.
    pub(super) errors: u64,
}

/// The seconds of a load, as many as it was meant to last.
pub(super) fn seconds(trace: &Trace, count: usize, group: impl Fn(usize) -> Group) -> Vec<Second> {
    let mut seconds = vec![Second::default(); count];
    let mut hot = vec![Vec::new(); count];
    for exchange in &trace.exchanges {
        let at = usize::try_from(exchange.intended / SECOND).unwrap_or(usize::MAX);
        let Some(second) = seconds.get_mut(at) else { continue };
        second.errors += u64::from(exchange.failure.is_some());
        if group(exchange.target) == Group::Hot {
            hot[at].push(exchange.ended.saturating_sub(exchange.intended));
        }
    }
    let slice = nanos(trace::SLICE);
    let in_second = usize::try_from(SECOND / slice).unwrap_or(1);
    let present = present(&stays(trace, group), count * in_second, slice);
    for (nth, (second, mut hot)) in seconds.iter_mut().zip(hot).enumerate() {
        let slices = nth * in_second..(nth + 1) * in_second;
        let bytes = slices.clone().filter_map(|at| trace.slices.get(at)).flatten();
        second.bytes = bytes.sum();
        second.downloads = present[slices].iter().sum::<f64>() / float(in_second);
        hot.sort_unstable();
        second.p99 = hot.len().checked_sub(1).map(|last| hot[last - last / 100]);
    }
    seconds
}

/// The most traffic of [`PEAK`] seconds on end, in bytes per second; of all seconds if they are fewer.
pub(super) fn peak(seconds: &[Second]) -> f64 {
    let length = PEAK.min(seconds.len()).max(1);
    let sums = seconds.windows(length).map(|window| window.iter().map(|it| it.bytes).sum::<u64>());
    float(sums.max().unwrap_or(0)) / float(length)
}

const SECOND: Nanos = 1_000_000_000;

/// The seconds of a peak: one second alone may have what others lacked.
const PEAK: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::failure::Failure;
    use crate::load::trace::Exchange;

    #[test]
    fn figures_belong_to_their_second() {
        let groups = [Group::Hot, Group::Download];
        let millis = |n: u64| n * 1_000_000;
        let mut trace = Trace::new(0);
        trace.slices = vec![[1, 2, 3]; 15];
        let mut keep = |target, from, to, failure| {
            trace.keep(Exchange {
                target,
                intended: millis(from),
                ended: millis(to),
                bytes: 5,
                failure,
            });
        };
        keep(0, 100, 101, None);
        keep(0, 999, 1009, None);
        keep(0, 1500, 1502, Some(Failure::Status));
        keep(1, 500, 2000, None);
        keep(0, 9000, 9001, None);
        let [first, second, third] = seconds(&trace, 3, |target| groups[target])[..] else {
            panic!("three seconds")
        };
        assert_eq!(first, Second { bytes: 60, p99: Some(millis(10)), downloads: 0.5, errors: 0 });
        assert_eq!(second, Second { bytes: 30, p99: Some(millis(2)), downloads: 1.0, errors: 1 });
        assert_eq!(third, Second::default());
    }

    #[test]
    fn a_peak_takes_several_seconds() {
        let of = |bytes: &[u64]| {
            let seconds = bytes.iter().map(|&bytes| Second { bytes, ..Second::default() });
            peak(&seconds.collect::<Vec<_>>())
        };
        assert_eq!(of(&[0, 100, 0, 0, 0, 0, 10]), 20.0);
        assert_eq!(of(&[0, 10, 20, 30, 40, 50, 60]), 40.0);
        assert_eq!((of(&[7, 9]), of(&[])), (8.0, 0.0));
    }
}
