//! The pace of one device.

use core::time::Duration;

/// The minimum bytes of a read that continues a stream: the size of the blocks whose residency is remembered. A copy of
/// this size costs as much as an exact residency check, and also shows which bytes are resident.
pub const CHUNK_MIN: u64 = 256 * 1024;
/// The maximum bytes of a read that continues a stream: the size of a pipe (`/proc/sys/fs/pipe-max-size`).
pub const CHUNK_MAX: u64 = 1024 * 1024;

/// The constants of the model. All values of this type except [`Constants::DEFAULT`] are for experiments.
#[derive(Clone, Copy, Debug)]
pub struct Constants {
    /// The time in which the *harmless* window drains at the measured rate. The harmless window is used without a
    /// trial, because this window delays other reads by at most `wait`. The time is half of one access of a hard disk:
    /// a client that waits for a disk does not notice it. A client does not notice either that a device serves nothing
    /// for so short a time. So [`Spacing`](crate::Spacing) is for longer pauses of a device.
    pub wait: Duration,
    /// A round is one measurement of the device. A round ends only after reads were in flight for at least this time. A
    /// rate limit of the kernel first lets the bytes for 100 ms through without a pause (`throtl_slice` in
    /// block/blk-throttle.c). So the first round of 50 ms has the bytes for 150 ms, and the device seems three times as
    /// fast as it is. In a much shorter round the device would seem as fast as memory.
    pub round: Duration,
    /// The minimum number of reads in a round. This minimum makes rounds longer on devices that need more time than
    /// `round` for so many reads.
    pub reads: u64,
    /// The time for which two results are used before they are measured again. One is the window of the most *power*
    /// (rate divided by latency). The other is the rate of a device that is limited in slices of time
    /// ([`Spacing`](crate::Spacing)). The filters of BBR have the same length.
    pub memory: Duration,
    /// The smallest window: two of the smallest reads, so that one read is under way while the end of the other read is
    /// handled.
    pub window_min: u64,
    /// The window of an unknown device. With half of this window, one cold file right after the start is a sixth slower
    /// than with this window. The reason is that the first rounds do not show that the device is fast. With twice this
    /// window, other reads wait 1.5 times as long (`tests/disks.txt`).
    pub window_first: u64,
    /// The largest window: a read of [`CHUNK_MAX`] in each of the 32 slots that a worker or a process has for one
    /// device.
    pub window_max: u64,
    /// The kernel may read ahead if the harmless window has at least this many bytes.
    pub readahead: u64,
    /// A round is *fast* if it lets the kernel read ahead. After one fast round, the next round counts as fast if its
    /// harmless window has at least `readahead` divided by this factor. After two fast rounds in a row, at least
    /// `readahead` divided by the square of this factor is enough. When `memory` has passed since the best window was
    /// found, the rule for one round applies again. There are two reasons for this factor. Bytes that the kernel has
    /// read ahead need no reads later and are not counted, so the device looks slower than it is. A device that other
    /// processes use looks slower, too. One round does not permit the square, because a rate limit first lets a burst
    /// through.
    ///
    /// Measurements and simulations:
    ///
    /// - On a disk of 1.3 GB/s, a repeated download of 200 cold files used 230 ms of CPU time per GiB without this
    ///   factor. With this factor, the download used 194 ms (medians of 6 alternating runs, not kept).
    /// - On a disk of 1.7 GB/s, the round after the first fast round had a rate of 265 to 561 MB/s in 4 of 9 starts.
    ///   The first fast round needs 629 MB/s. With this factor, the round after it needs 315 MB/s.
    /// - If the second round needed 629 MB/s, too, the p99 of small reads in the first second would be shorter
    ///   (simulated, not kept). At a limit of 320 MiB/s, the p99 would be 30 ms, and is 143 ms now. At a limit of 400
    ///   MiB/s, the p99 would be 20 ms, and is 78 ms now.
    /// - When this factor was chosen, the first downloads from a shared device after the start were simulated twice:
    ///   with this model, and with 32 threads that send files. In the slowest case, the model had 0.96 of the rate of
    ///   the threads. If the second round had needed 629 MB/s, too, the model would have had 0.42 (not kept).
    pub steady: u64,
    /// If the first round has this many bytes, it may show a fast device before it ends. These are 64 reads of
    /// [`CHUNK_MIN`], one in each slot that a worker has for all devices together. A rate limit of 160 MiB/s lets this
    /// many bytes through in 100 ms.
    pub proof: u64,
    /// While the kernel may read ahead, a round ends only after reads of at least this many bytes, the same number as
    /// `proof`. With readahead the first reads of 200 files have 4 KiB each. Without this minimum, a round of so short
    /// reads would make a fast device look slow (`tests/shared.txt`: "no ahead").
    pub ahead: u64,
    /// The smallest window after a round that lets the kernel read ahead. If a process asks a shared device for fewer
    /// bytes, it gets fewer bytes. So without this minimum the harmless window and the rate would make each other
    /// smaller (`tests/shared.txt`: "no window_ahead").
    pub window_ahead: u64,
    /// [`Spacing`](crate::Spacing): a read is quick if its time is shorter than the mean by this factor. The times of
    /// reads on a hard disk differ by a smaller factor. The times of reads under a limit in slices differ by a factor
    /// of hundreds.
    pub quick: u32,
    /// [`Spacing`](crate::Spacing): a limit in slices is measured for this time, which is several slices of 100 ms.
    pub slices: Duration,
    /// [`Spacing`](crate::Spacing): out of each `spare` bytes, streams leave one byte to other reads.
    pub spare: u64,
}

/// If no read of a device begins or ends for this time, the reads in flight may never end. `Shares` of the crate `ring`
/// regards a device as silent after the same time.
const STALLED: Duration = Duration::from_secs(1);

impl Constants {
    /// The constants in use.
    pub const DEFAULT: Self = Self {
        wait: Duration::from_millis(5),
        round: Duration::from_millis(50),
        reads: 8,
        memory: Duration::from_secs(10),
        window_min: 2 * CHUNK_MIN,
        window_first: CHUNK_MAX,
        window_max: 32 * CHUNK_MAX,
        readahead: 4 * CHUNK_MAX,
        steady: 2,
        proof: 16 * CHUNK_MAX,
        ahead: 16 * CHUNK_MAX,
        window_ahead: 32 * CHUNK_MAX,
        quick: 8,
        slices: Duration::from_millis(250),
        spare: 32,
    };
}

/// The model of one device. Times are counted from any fixed moment, by a clock that does not go back.
///
/// Report each read to [`begin`](Self::begin) and [`end`](Self::end); call the other methods whenever a read could
/// begin.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    constants: Constants,
    /// Bytes that may be in flight; a power of two.
    window: u64,
    /// The harmless window in bytes. When a round has been judged, `window` is at least as large.
    harmless: u64,
    /// The number of rounds in a row that have shown a fast device, at most 2. The kernel may read ahead if this number
    /// is not 0.
    fast: u8,
    /// Bytes in flight.
    in_flight: u64,
    /// The time at which a read last began or ended.
    now: Duration,
    round: Round,
    best: Best,
    /// The number of trials left (of windows next to the best window), and the direction of the last trial.
    trials: u8,
    upwards: bool,
    /// True while the reads of streams are spread in time, because the device is limited in slices of time
    /// ([`Spacing`](crate::Spacing)).
    is_spaced: bool,
    /// The rate of the last round that was judged, in bytes per second.
    rate: u64,
}

/// The sums of the current round, which began when the last round was judged.
#[derive(Clone, Copy, Debug)]
struct Round {
    /// The time in which reads were in flight.
    busy: Duration,
    /// The integral of the bytes in flight over the time: a sum of bytes times nanoseconds.
    filled: u128,
    reads: u64,
    /// The bytes that these reads asked for.
    asked: u64,
    /// The bytes that the device has delivered.
    bytes: u64,
}

impl Round {
    const EMPTY: Self = Self { busy: Duration::ZERO, filled: 0, reads: 0, asked: 0, bytes: 0 };

    fn nanos(&self) -> u128 {
        self.busy.as_nanos().max(1)
    }

    /// Bytes per second.
    fn rate(&self) -> u128 {
        u128::from(self.bytes) * 1_000_000_000 / self.nanos()
    }

    /// The mean of the bytes in flight.
    fn in_flight(&self) -> u128 {
        self.filled / self.nanos()
    }
}

/// The window with the most power so far.
#[derive(Clone, Copy, Debug)]
struct Best {
    power: u128,
    window: u64,
    until: Duration,
}

impl Pace {
    /// The pace of an unknown device.
    #[must_use]
    pub const fn new() -> Self {
        Self::with(Constants::DEFAULT)
    }

    /// The pace of an unknown device, with other constants.
    #[must_use]
    pub const fn with(constants: Constants) -> Self {
        let window = constants.window_first;
        Self {
            constants,
            window,
            harmless: constants.window_min,
            fast: 0,
            in_flight: 0,
            now: Duration::ZERO,
            round: Round::EMPTY,
            best: Best { power: 0, window, until: Duration::ZERO },
            trials: 0,
            upwards: false,
            is_spaced: false,
            rate: 0,
        }
    }

    /// The rate of the last round that was judged, in bytes per second; `None` before the first round was judged.
    #[must_use]
    pub fn rate(&self) -> Option<u64> {
        (!self.best.until.is_zero()).then_some(self.rate)
    }

    /// Sets whether streams are [spaced](crate::Spacing::is_on) now. While streams are spaced, reads do not change the
    /// window: a device answers sooner while streams pause, but is no faster.
    pub const fn set_spaced(&mut self, is_spaced: bool) {
        self.is_spaced = is_spaced;
    }

    /// The bytes of the next read of a stream.
    #[must_use]
    pub fn chunk(&self) -> u64 {
        (self.window / 2).clamp(CHUNK_MIN, CHUNK_MAX)
    }

    /// The number of reads that streams may have in flight.
    #[must_use]
    pub fn depth(&self) -> u64 {
        self.window / self.chunk()
    }

    /// True if one more chunk may be in flight. If no read has begun or ended for a second, the reads in flight may
    /// never end, and are ignored.
    #[must_use]
    pub fn has_room(&self, now: Duration) -> bool {
        self.in_flight.saturating_add(self.chunk()) <= self.window
            || now.saturating_sub(self.now) >= STALLED
    }

    /// The number of further bytes that may be in flight now.
    #[must_use]
    pub const fn room(&self) -> u64 {
        self.window.saturating_sub(self.in_flight)
    }

    /// True if the kernel may read ahead for streams.
    #[must_use]
    pub const fn lets_kernel_read_ahead(&self) -> bool {
        self.fast > 0
    }

    /// Records the begin of a read of `bytes`.
    pub fn begin(&mut self, bytes: u64, now: Duration) {
        self.pass(now);
        self.in_flight += bytes;
    }

    /// Records the end of a read of `bytes`. The device has delivered `brought` bytes: fewer at the end of a file,
    /// none if the bytes were in memory.
    pub fn end(&mut self, bytes: u64, brought: u64, now: Duration) {
        self.pass(now);
        self.in_flight = self.in_flight.saturating_sub(bytes);
        self.round.reads += 1;
        self.round.asked += bytes;
        self.round.bytes += brought.min(bytes);
        if self.is_spaced {
            self.round = Round::EMPTY;
        } else if self.ends_round() {
            self.judge();
            self.round = Round::EMPTY;
        } else if self.is_proof() {
            self.harmless = self.harmless_at(self.round.rate());
            self.fast = 1;
            // The window does not rise to `window_ahead` yet: these bytes may be only the burst that a rate limit lets
            // through without a pause.
            self.window = self.window.max(self.harmless);
        }
    }

    /// True if the round is complete.
    fn ends_round(&self) -> bool {
        let Constants { round, reads, ahead, .. } = self.constants;
        let is_enough = if self.lets_kernel_read_ahead() {
            self.round.asked >= ahead
        } else {
            // A round has at least as many reads as may be in flight, so reads that end together are in one round.
            self.round.reads >= reads.max(self.depth())
        };
        self.round.busy >= round && is_enough
    }

    /// True if the first round has already shown that the kernel may read ahead.
    fn is_proof(&self) -> bool {
        let is_first = self.best.until.is_zero();
        let Constants { proof, readahead, .. } = self.constants;
        is_first && self.round.bytes >= proof && self.harmless_at(self.round.rate()) >= readahead
    }

    /// The window that drains in [`Constants::wait`] at a rate in bytes per second.
    fn harmless_at(&self, rate: u128) -> u64 {
        self.window_near(rate * self.constants.wait.as_nanos() / 1_000_000_000)
    }

    fn pass(&mut self, now: Duration) {
        let passed = now.saturating_sub(self.now);
        self.now += passed;
        if self.in_flight > 0 {
            self.round.busy += passed;
            self.round.filled += passed.as_nanos() * u128::from(self.in_flight);
        }
    }

    fn judge(&mut self) {
        let (rate, in_flight) = (self.round.rate(), self.round.in_flight());
        self.rate = u64::try_from(rate).unwrap_or(u64::MAX);
        self.harmless = self.harmless_at(rate);
        let Constants { readahead, steady, window_ahead, .. } = self.constants;
        let is_over = self.now >= self.best.until;
        let fast = if is_over { self.fast.min(1) } else { self.fast };
        let is_fast = self.harmless >= readahead / steady.pow(fast.into());
        self.fast = if is_fast { 2.min(fast + 1) } else { 0 };

        // The rate divided by the latency, which is `in_flight / rate`.
        let power = rate.saturating_mul(rate) / in_flight.max(1);
        let window = self.window_near(in_flight);
        if is_over || (power > self.best.power && window != self.best.window) {
            self.best = Best { power, window, until: self.now + self.constants.memory };
            // When a better window is found in one direction, the windows in the opposite direction are known to be
            // worse.
            self.trials = if is_over { 2 } else { 1 };
        } else {
            self.best.power = self.best.power.max(power);
            self.upwards = !self.upwards;
        }
        self.window = self.next_window().max(self.harmless);
        if self.lets_kernel_read_ahead() {
            self.window = self.window.max(window_ahead);
        }
    }

    /// The best window. While trials are left, a window next to the best window.
    fn next_window(&mut self) -> u64 {
        if self.trials == 0 {
            return self.best.window;
        }
        self.trials -= 1;
        if self.beside(self.upwards).is_none() {
            self.upwards = !self.upwards;
        }
        self.beside(self.upwards).unwrap_or(self.best.window)
    }

    /// Twice or half the best window; `None` at the limit of windows.
    fn beside(&self, upwards: bool) -> Option<u64> {
        let best = self.best.window;
        let window = if upwards { best * 2 } else { best / 2 };
        let least = self.constants.window_min.max(self.harmless);
        (least..=self.constants.window_max).contains(&window).then_some(window)
    }

    /// The window (a power of two) that is nearest to `bytes`.
    fn window_near(&self, bytes: u128) -> u64 {
        let Constants { window_min, window_max, .. } = self.constants;
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX).clamp(window_min, window_max);
        // From 3/2 of a power of two on, the next power of two is nearer.
        (1 << (bytes + bytes / 3).ilog2()).min(window_max)
    }
}

impl Default for Pace {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1024 * 1024;

    /// Lets a device serve as many reads as may be in flight, for the given time. The device has a limit (bytes per
    /// second), or only a latency.
    fn serve(
        pace: &mut Pace,
        now: &mut Duration,
        limit: Option<u64>,
        latency: Duration,
        time: Duration,
    ) {
        let end = *now + time;
        while *now < end {
            let (chunk, depth) = (pace.chunk(), pace.depth());
            (0..depth).for_each(|_| pace.begin(chunk, *now));
            *now += latency;
            for _ in 0..depth {
                *now += limit.map_or(Duration::ZERO, |limit| {
                    Duration::from_nanos(chunk * 1_000_000_000 / limit)
                });
                pace.end(chunk, chunk, *now);
            }
        }
    }

    const MS: Duration = Duration::from_millis(1);
    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_window_is_as_large_as_pays() {
        for (limit, latency, least, most) in [
            (Some(MIB), MS, 1, 2),
            (Some(64 * MIB), MS, 1, 2),
            (None, 20 * MS, 16, 32),
            (None, 500 * MS, 16, 32),
        ] {
            let (mut pace, mut now) = (Pace::new(), Duration::ZERO);
            serve(&mut pace, &mut now, limit, latency, 60 * SECOND);
            let depth = pace.depth();
            assert!((least..=most).contains(&depth), "{limit:?} {latency:?}: {depth}");
        }
    }

    #[test]
    fn a_device_that_changes_is_learned_again() {
        let (mut pace, mut now) = (Pace::new(), Duration::ZERO);
        for _ in 0..3 {
            serve(&mut pace, &mut now, Some(8 * MIB), MS, 30 * SECOND);
            assert!(pace.window <= 2 * MIB && !pace.lets_kernel_read_ahead(), "{pace:?}");
            serve(&mut pace, &mut now, None, 20 * MS, 30 * SECOND);
            assert!(pace.window >= 8 * MIB, "{pace:?}");
        }
    }

    #[test]
    fn reads_that_hang_keep_the_others_waiting_for_a_second_each() {
        let mut pace = Pace::new();
        let mut now = MS;
        for begun in 0..pace.depth() {
            assert!(pace.has_room(now));
            assert_eq!(pace.room(), (pace.depth() - begun) * pace.chunk());
            pace.begin(pace.chunk(), now);
        }
        assert_eq!(pace.room(), 0);
        for _ in 0..3 {
            assert!(!pace.has_room(now + 999 * MS));
            now += 1000 * MS;
            assert!(pace.has_room(now));
            pace.begin(pace.chunk(), now);
        }
    }

    #[test]
    fn a_device_that_idles_is_not_slow() {
        let (mut pace, mut now) = (Pace::new(), Duration::ZERO);
        for _ in 0..500 {
            pace.begin(MIB, now);
            now += MS;
            pace.end(MIB, MIB, now);
            now += 1000 * MS;
        }
        assert!(pace.lets_kernel_read_ahead());
    }

    #[test]
    fn bytes_from_memory_do_not_make_a_device_fast() {
        let (mut pace, mut now) = (Pace::new(), Duration::ZERO);
        for read in 0..5000 {
            pace.begin(CHUNK_MIN, now);
            let brought = if read % 10 == 0 { CHUNK_MIN } else { 0 };
            now += if brought == 0 { MS / 50 } else { 4 * MS };
            pace.end(CHUNK_MIN, brought, now);
        }
        assert!(!pace.lets_kernel_read_ahead() && pace.depth() == 2);
    }

    #[test]
    fn any_order_of_events_leaves_a_window_within_its_bounds() {
        for seed in 1..200u64 {
            let (mut pace, mut now, mut random) = (Pace::new(), Duration::ZERO, seed);
            let mut in_flight = [0; 8];
            for _ in 0..2000 {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(seed);
                let draw = random >> 33;
                now += Duration::from_micros(draw % (1 << (draw % 20)));
                let read = &mut in_flight[usize::try_from(draw % 8).unwrap()];
                if *read == 0 {
                    *read = 1 + draw % MIB;
                    pace.begin(*read, now);
                } else {
                    // The test includes a clock that goes back, and bytes that no read asked for.
                    pace.end(core::mem::take(read), draw * draw, now / 2);
                }
                let (chunk, window) = (pace.chunk(), pace.window);
                let is_valid = window.is_power_of_two()
                    && (CHUNK_MIN..=CHUNK_MAX).contains(&chunk)
                    && (2..=32).contains(&pace.depth());
                assert!(is_valid, "seed {seed}: {pace:?}");
            }
        }
    }

    #[test]
    fn after_a_proof_and_a_fast_round_a_quarter_is_enough() {
        for (mib, expected) in [(200, true), (100, false)] {
            let (mut pace, mut now) = (Pace::new(), Duration::ZERO);
            let mut serve_round = |mib| {
                let time = Constants::DEFAULT.round + MS;
                serve(&mut pace, &mut now, Some(mib * MIB), Duration::ZERO, time);
                pace.lets_kernel_read_ahead()
            };
            assert!(serve_round(1000));
            assert_eq!(serve_round(mib), expected, "{mib} MiB/s");
        }
    }

    #[test]
    fn the_largest_window_follows_a_round_and_not_the_proof_alone() {
        let (mut pace, mut now) = (Pace::new(), Duration::ZERO);
        serve(&mut pace, &mut now, Some(1000 * MIB), Duration::ZERO, Constants::DEFAULT.round / 2);
        assert!(pace.lets_kernel_read_ahead() && pace.window < Constants::DEFAULT.window_ahead);
        serve(&mut pace, &mut now, Some(300 * MIB), Duration::ZERO, Constants::DEFAULT.round);
        assert!(pace.lets_kernel_read_ahead() && pace.window == Constants::DEFAULT.window_ahead);
        serve(&mut pace, &mut now, Some(50 * MIB), Duration::ZERO, SECOND);
        assert!(!pace.lets_kernel_read_ahead() && pace.window <= 2 * MIB, "{pace:?}");
    }

    #[test]
    fn the_kernel_goes_on_reading_ahead_until_the_device_is_four_times_as_slow() {
        let (mut pace, mut now) = (Pace::new(), Duration::ZERO);
        for (mib, secs, expected) in [
            (500, 1, false),
            (1000, 1, true),
            (500, 1, true),
            (200, 1, true),
            (100, 1, false),
            (500, 1, false),
            (1000, 1, true),
            (500, 12, true),
            (250, 12, false),
        ] {
            serve(&mut pace, &mut now, Some(mib * MIB), Duration::ZERO, secs * SECOND);
            assert_eq!(pace.lets_kernel_read_ahead(), expected, "{mib} MiB/s");
        }
    }
}
