//! The pauses between the reads of streams, on a device with a rate limit in time slices.
//!
//! Control groups and some clouds limit a disk in slices of time. With any window, two concurrent reads use up a slice.
//! After that, even a small read waits for the next slice. A device with such a limit is recognised because most of its
//! reads take much less time than the mean. The rate is measured between two reads that had to wait for a slice. While
//! other reads come, streams ask for 31/32 of this rate.
//!
//! While the kernel reads ahead, any device may look as if it had such a limit. So a limit is measured only 10 s after
//! the last readahead.

use core::time::Duration;

use crate::Constants;

/// The spacing of streams on one device, for all its readers in a process.
///
/// Some devices have a rate limit in time slices (`throtl_slice` in block/blk-throttle.c, the credits of a cloud disk).
/// Such a device serves quickly until a slice is used up. From this moment on the device serves no read, not even a
/// small read, until the next slice begins. No window prevents this stop, because two concurrent reads are enough to
/// use up a slice. Only streams that ask for a little less than the limit leave a part of each slice to other reads.
///
/// **What is measured.** The reads of a device *come in bursts* if most reads take much less time than the mean. On
/// such a device, a read that takes more than twice the mean has waited for a slice, unless the read took less than 5
/// ms ([`Constants::wait`]). Shorter reads prove nothing: if the kernel has read ahead, shorter reads come in bursts
/// from any device. A measurement lasts from the end of one read that waited for a slice to the end of another. If a
/// stream was queued during the whole measurement, all slices were used up. In this case the rate left for streams is
/// the bytes that streams have asked for, divided by the time of the measurement.
///
/// **What is inferred.** While other reads come, streams are limited to this rate, less a small part. The rate expires
/// after [`Constants::memory`]. Afterwards the rate is measured again without the limit, so that a measured limit is
/// never the result of an earlier limit.
///
/// Report each read to [`begin`](Self::begin), [`begin_ahead`](Self::begin_ahead) or
/// [`begin_other`](Self::begin_other), and to [`end`](Self::end). Call [`note_idle`](Self::note_idle) if a read has
/// ended and no stream is queued.
#[derive(Clone, Copy, Debug)]
pub struct Spacing {
    constants: Constants,
    sums: Sums,
    /// The mean latency of a byte, from the last sums of reads that were not spaced.
    mean: Duration,
    comes_in_bursts: bool,
    /// The time at which the last read that waited for a slice ended.
    since: Duration,
    /// Bytes that streams have asked for since `since`.
    asked: u64,
    /// True if at some time after `since` streams asked for less than they could: no stream was queued, or streams were
    /// spaced.
    was_idle: bool,
    /// Other reads count as coming until this time.
    others_until: Duration,
    /// The last moment at which the kernel may have read ahead, plus `memory`.
    ahead_until: Duration,
    /// The rate of streams, bytes per second, and the time at which it expires.
    rate: u64,
    until: Duration,
    /// The time at which the next read of a stream may begin.
    next: Duration,
}

/// The reads that have ended since the time `since`.
#[derive(Clone, Copy, Debug)]
struct Sums {
    since: Duration,
    reads: u64,
    quick: u64,
    bytes: u128,
    /// The sum of the latencies, each multiplied by the bytes of its read.
    latency: u128,
}

impl Sums {
    const fn new(since: Duration) -> Self {
        Self { since, reads: 0, quick: 0, bytes: 0, latency: 0 }
    }

    fn mean(&self) -> Duration {
        let nanos = self.latency / self.bytes.max(1);
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

impl Spacing {
    /// The spacing of an unknown device: no pauses.
    #[must_use]
    pub const fn new() -> Self {
        Self::with(Constants::DEFAULT)
    }

    /// The spacing of an unknown device, with other constants.
    #[must_use]
    pub const fn with(constants: Constants) -> Self {
        Self {
            constants,
            sums: Sums::new(Duration::ZERO),
            mean: Duration::ZERO,
            comes_in_bursts: false,
            since: Duration::ZERO,
            asked: 0,
            was_idle: false,
            others_until: Duration::ZERO,
            ahead_until: Duration::ZERO,
            rate: 0,
            until: Duration::ZERO,
            next: Duration::ZERO,
        }
    }

    /// True if streams are spaced now.
    #[must_use]
    pub const fn is_on(&self, now: Duration) -> bool {
        let now = now.as_nanos();
        now < self.until.as_nanos() && now < self.others_until.as_nanos()
    }

    /// The time at which a stream may begin a read; `None` if it may begin now.
    #[must_use]
    pub fn opens_at(&self, now: Duration) -> Option<Duration> {
        (self.is_on(now) && now < self.next).then_some(self.next)
    }

    /// Records that a stream continues with a read of `bytes`.
    pub fn begin(&mut self, bytes: u64, now: Duration) {
        self.asked = self.asked.saturating_add(bytes);
        if self.is_on(now) {
            let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(self.rate.max(1));
            let pause = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
            // A stream that reads late may catch up by at most `wait`.
            let from = self.next.max(now.saturating_sub(self.constants.wait));
            self.next = from.saturating_add(pause);
        }
    }

    /// Records the begin of another read: a first read of a file, or a small read.
    pub fn begin_other(&mut self, now: Duration) {
        self.others_until = now.saturating_add(self.constants.memory);
    }

    /// Records that a stream continues while the kernel may read ahead. Reads of pages that the kernel has read ahead
    /// end at once, and other reads wait for the kernel's readahead of other streams. Such reads look like slices, so
    /// no limit is measured for the next [`Constants::memory`].
    pub fn begin_ahead(&mut self, now: Duration) {
        self.ahead_until = now.saturating_add(self.constants.memory);
    }

    /// Records that no stream is queued, so streams ask for less than the device could deliver.
    pub const fn note_idle(&mut self) {
        self.was_idle = true;
    }

    /// Records the end of a read of any kind: its bytes and its time.
    pub fn end(&mut self, bytes: u64, took: Duration, now: Duration) {
        self.judge(now);
        let Constants { wait, quick, slices, memory, spare, .. } = self.constants;
        self.sums.reads += 1;
        self.sums.quick += u64::from(took.saturating_mul(quick) < self.mean);
        self.sums.bytes += u128::from(bytes);
        self.sums.latency += u128::from(bytes) * took.as_nanos();

        let passed = now.saturating_sub(self.since);
        let has_waited = self.comes_in_bursts && took > self.mean * 2 && took > wait;
        if !has_waited || passed < slices {
            return;
        }
        let is_exact = passed < slices.saturating_mul(4) && !self.was_idle && !self.is_on(now);
        let is_of_streams = self.asked > 0;
        if is_exact && is_of_streams && (self.ahead_until..self.others_until).contains(&now) {
            let rate = u128::from(self.asked) * 1_000_000_000 / passed.as_nanos();
            let rate = u64::try_from(rate).unwrap_or(u64::MAX);
            self.rate = rate - rate / spare;
            (self.until, self.next) = (now + memory, now);
        }
        // A measurement that begins while streams are spaced does not show the rate that streams could have.
        (self.since, self.asked, self.was_idle) = (now, 0, self.is_on(now));
    }

    /// Judges the reads since the last judgement. Spaced reads are left out, because they do not show whether a device
    /// serves in bursts.
    fn judge(&mut self, now: Duration) {
        if self.is_on(now) {
            self.sums = Sums::new(now);
        } else if now.saturating_sub(self.sums.since) >= self.constants.slices {
            self.comes_in_bursts = 2 * self.sums.quick > self.sums.reads;
            self.mean = self.sums.mean();
            self.sums = Sums::new(now);
        }
    }
}

impl Default for Spacing {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const CHUNK: u64 = 256 * 1024;

    /// Lets a device serve 10 chunks at the beginning of each slice of 100 ms, two at a time, for `slices` slices.
    fn serve(spacing: &mut Spacing, now: &mut Duration, slices: u32, others: bool) {
        for _ in 0..slices {
            if others {
                spacing.begin_other(*now);
            }
            for read in 0..10 {
                spacing.begin(CHUNK, *now);
                *now += MS / 4;
                let took = if read < 2 { 90 * MS } else { MS / 2 };
                spacing.end(CHUNK, took, *now);
            }
            *now += 100 * MS - 10 * (MS / 4);
        }
    }

    #[test]
    fn streams_are_spaced_where_a_limit_comes_in_slices_and_others_read() {
        let (mut spacing, mut now) = (Spacing::new(), Duration::from_secs(1));
        serve(&mut spacing, &mut now, 20, false);
        assert!(!spacing.is_on(now), "nothing else reads");
        serve(&mut spacing, &mut now, 20, true);
        assert!(spacing.is_on(now));
        let limit = 100 * CHUNK;
        assert!((limit * 9 / 10..limit).contains(&spacing.rate), "{} of {limit}", spacing.rate);

        let mut begun = 0;
        let end = now + Duration::from_secs(1);
        while now < end {
            spacing.begin_other(now);
            if spacing.opens_at(now).is_none() {
                spacing.begin(CHUNK, now);
                begun += 1;
            }
            now += MS;
        }
        assert!((90..100).contains(&begun), "{begun}");
        now += Constants::DEFAULT.memory;
        spacing.begin_other(now);
        assert!(!spacing.is_on(now), "a limit is forgotten");
    }

    #[test]
    fn a_limit_is_measured_only_while_streams_ask_for_all_they_can_get() {
        let (mut spacing, mut now) = (Spacing::new(), Duration::from_secs(1));
        for _ in 0..100 {
            spacing.note_idle();
            serve(&mut spacing, &mut now, 1, true);
            assert!(!spacing.is_on(now));
        }
        // Reads that wait although streams are spaced do not lower the limit.
        serve(&mut spacing, &mut now, 10, true);
        let (rate, until) = (spacing.rate, spacing.until);
        serve(&mut spacing, &mut now, 50, true);
        assert!(spacing.is_on(now) && (spacing.rate, spacing.until) == (rate, until));
    }

    #[test]
    fn no_limit_is_measured_while_a_device_is_believed_to_be_fast() {
        let (mut spacing, mut now) = (Spacing::new(), Duration::from_secs(1));
        spacing.begin_ahead(now);
        let until = now + Constants::DEFAULT.memory;
        while now < until - MS * 100 {
            serve(&mut spacing, &mut now, 1, true);
            assert!(!spacing.is_on(now));
        }
        serve(&mut spacing, &mut now, 20, true);
        assert!(spacing.is_on(now));
    }

    #[test]
    fn small_reads_alone_say_nothing_about_streams() {
        let (mut spacing, mut now) = (Spacing::new(), Duration::from_secs(1));
        for read in 0..4000 {
            spacing.begin_other(now);
            now += MS;
            let took = if read % 100 == 0 { 90 * MS } else { MS / 20 };
            spacing.end(16 * 1024, took, now);
            assert!(!spacing.is_on(now), "no stream has asked for anything");
        }
    }

    #[test]
    fn a_quick_device_of_which_the_kernel_reads_ahead_is_not_spaced() {
        let (mut spacing, mut now) = (Spacing::new(), Duration::ZERO);
        for read in 0..10_000 {
            spacing.begin_other(now);
            spacing.begin(CHUNK, now);
            // Reads end at once if the kernel has read their bytes ahead. Every sixteenth read waits for the next 4
            // MiB.
            let took = if read % 16 == 0 { 2 * MS } else { MS / 100 };
            now += took;
            spacing.end(CHUNK, took, now);
            assert_eq!(spacing.opens_at(now), None);
        }
    }

    #[test]
    fn a_device_that_serves_evenly_is_not_spaced() {
        let (mut spacing, mut now) = (Spacing::new(), Duration::ZERO);
        for read in 0..10_000 {
            spacing.begin_other(now);
            spacing.begin(CHUNK, now);
            now += 8 * MS;
            // A hard disk: a read takes 2 to 41 ms, with its seek and its wait for other reads.
            spacing.end(CHUNK, (2 + read % 40) * MS, now);
            assert_eq!(spacing.opens_at(now), None);
        }
    }
}
