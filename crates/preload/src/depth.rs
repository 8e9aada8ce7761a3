//! The number of readers that a disk (a device number) gets: as many as make it faster, or as few as keep
//! waits short.
//!
//! All other reads of the program (`open`, a small `pread`, its own pages) wait behind those of the readers.
//! A disk that serves one read after the other is no faster with many readers; an array, or a disk at the
//! other end of a network, is faster, however long one read takes. Latency does not tell them apart, so both
//! are tried: if reads take long, the disk gets half as many readers, and if that makes it slower, as many as
//! before. Pure.

/// The most readers of all disks together.
pub(crate) const READERS_MAX: usize = 32;
/// The fewest readers of a disk: they keep it busy while the program sends the bytes that have come.
const READERS_MIN: usize = 2;
/// Reads of at least this time take long. If they take less than half of it, more readers do no harm.
const LONG_US: u64 = 10_000;
/// The least gain from twice as many readers, in percent.
const GAIN_PERCENT_MIN: u64 = 15;
/// The number of reads after which a number of readers is judged, unless more readers are at work.
const ROUND_READS: u64 = 4;
/// A number that was better than half or twice as many stays for this time.
const SETTLED_US: u64 = 10_000_000;

/// The readers that one disk may have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Depth {
    readers: usize,
    round: Round,
    trial: Option<Trial>,
    /// The next trial is with more readers.
    upwards: bool,
    settled_until_us: u64,
}

/// Reads during which the same number of readers was allowed.
#[derive(Clone, Copy, Debug)]
struct Round {
    began_us: u64,
    reads: u64,
    took_us: u64,
    /// Sums over the reads: the readers that were at work, and the bytes that those have read meanwhile if the
    /// disk served all alike.
    readers: u64,
    bytes: u64,
}

/// A shorter read counts as this many bytes, because it costs a disk with arms about as much.
const BYTES_MIN: u64 = 128 * 1024;

impl Round {
    const fn new(began_us: u64) -> Self {
        Self { began_us, reads: 0, took_us: 0, readers: 0, bytes: 0 }
    }

    /// The speed of the disk, in bytes per second.
    fn rate(&self) -> u64 {
        self.bytes.saturating_mul(1_000_000) / self.took_us.max(1)
    }
}

/// The number of readers before a trial of another number.
#[derive(Clone, Copy, Debug)]
struct Trial {
    /// The number before, and the speed of the disk with it.
    readers: usize,
    rate: u64,
}

impl Depth {
    pub(crate) const fn new() -> Self {
        let round = Round::new(0);
        Self { readers: READERS_MAX, round, trial: None, upwards: false, settled_until_us: 0 }
    }

    #[cfg(test)]
    pub(crate) fn of(readers: usize) -> Self {
        Self { readers, ..Self::new() }
    }

    /// The number of readers that may read at once.
    pub(crate) fn readers(&self) -> usize {
        self.readers
    }

    /// Notes a read that had to wait for the disk. `readers`: the numbers of readers at its begin and at its
    /// end, this one included.
    pub(crate) fn note(&mut self, bytes: u64, began_us: u64, now_us: u64, readers: [usize; 2]) {
        let [before, readers] = readers;
        // While the number changes, it is not known how many reads have shared the disk. And readers that go
        // on while no other job waits are not bound by a smaller number.
        let is_steady = before.abs_diff(readers) * 4 <= readers && readers <= self.readers;
        if began_us < self.round.began_us || !is_steady {
            return;
        }
        let round = &mut self.round;
        round.reads += 1;
        round.took_us += now_us.saturating_sub(began_us);
        round.readers += readers as u64;
        round.bytes += bytes.max(BYTES_MIN) * readers as u64;
        if round.reads >= (readers as u64).max(ROUND_READS) {
            self.judge(now_us);
            self.round = Round::new(now_us);
        }
    }

    fn judge(&mut self, now_us: u64) {
        let (rate, took_us) = (self.round.rate(), self.round.took_us / self.round.reads);
        if took_us < LONG_US / 2 {
            self.trial = None;
            self.readers = (self.readers * 2).min(READERS_MAX);
            return;
        }
        if let Some(trial) = self.trial.take()
            && !self.is_better(trial, rate)
        {
            self.readers = trial.readers;
            self.settle(now_us);
        }
        if now_us < self.settled_until_us {
            return;
        }
        // If reads do not take long, only a larger number is worth a trial.
        let ways = [took_us < LONG_US || self.upwards, took_us < LONG_US || !self.upwards];
        let tried = ways.into_iter().find_map(|up| Some((up, self.next(up)?)));
        if let Some((upwards, readers)) = tried {
            self.trial = Some(Trial { readers: self.readers, rate });
            (self.upwards, self.readers) = (upwards, readers);
        }
    }

    /// Keeps the number for a while, and tries the other direction then.
    fn settle(&mut self, now_us: u64) {
        self.upwards = !self.upwards;
        self.settled_until_us = now_us.saturating_add(SETTLED_US);
    }

    fn is_better(&self, trial: Trial, rate: u64) -> bool {
        let percent = if self.readers < trial.readers {
            100 - GAIN_PERCENT_MIN
        } else {
            100 + GAIN_PERCENT_MIN
        };
        rate.saturating_mul(100) >= trial.rate.saturating_mul(percent)
    }

    /// The number to try; `None` if a trial would change nothing.
    fn next(&self, upwards: bool) -> Option<usize> {
        let at_work = usize::try_from(self.round.readers / self.round.reads).unwrap_or(READERS_MAX);
        if upwards {
            let are_bound = at_work * 4 >= self.readers * 3 && self.readers < READERS_MAX;
            are_bound.then(|| (self.readers * 2).min(READERS_MAX))
        } else {
            let fewer = (at_work / 2).max(READERS_MIN);
            (fewer < at_work).then_some(fewer)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: u64 = 256 * 1024;

    /// A disk with arms that work side by side. Each entry is the time until which an arm is busy.
    struct Disk {
        arms: Vec<u64>,
        /// The time of one read.
        service_us: u64,
        /// The time that a read saves if twice as many wait, in percent.
        sorts: u64,
    }

    /// Lets so many streams read for so long. Returns the number of readers that is allowed at the end, and the
    /// reads per second of the last ten seconds.
    fn run(
        depth: &mut Depth,
        disk: &mut Disk,
        streams: usize,
        from_us: u64,
        secs: u64,
    ) -> (usize, u64) {
        let mut now = from_us;
        let (mut reading, mut ended) = (Vec::<(u64, u64, usize)>::new(), 0);
        let end = from_us + secs * 1_000_000;
        while now < end {
            while reading.len() < streams.min(depth.readers()) {
                let saved = u64::from((reading.len() + 1).ilog2()) * disk.sorts;
                let arm = disk.arms.iter_mut().min().unwrap();
                *arm = now.max(*arm) + disk.service_us * (100 - saved) / 100;
                reading.push((*arm, now, reading.len() + 1));
            }
            reading.sort_unstable();
            let (at, began, readers) = reading[0];
            depth.note(BYTES, began, at, [readers, reading.len()]);
            reading.remove(0);
            now = at;
            ended += u64::from(now + 10_000_000 >= end);
        }
        (depth.readers(), ended / 10)
    }

    fn disk(arms: usize, service_us: u64) -> Disk {
        Disk { arms: vec![0; arms], service_us, sorts: 0 }
    }

    #[test]
    fn a_slow_disk_has_a_short_line() {
        // 256 KiB at 16 MiB/s.
        for (streams, secs) in [(8, 1), (200, 3), (200, 30)] {
            let (readers, _) = run(&mut Depth::new(), &mut disk(1, 15_625), streams, 0, secs);
            assert!(readers <= 3, "{readers} for {streams} after {secs} s");
        }
    }

    #[test]
    fn many_arms_are_kept_busy_however_long_they_take() {
        for service_us in [1_000, 30_000, 60_000, 500_000] {
            let best = 32_000_000 / service_us;
            let (readers, rate) = run(&mut Depth::new(), &mut disk(32, service_us), 200, 0, 120);
            assert!(readers >= 16, "{readers} at {service_us} us");
            assert!(rate >= best * 9 / 10, "{rate} of {best} at {service_us} us");
        }
    }

    #[test]
    fn an_array_gets_as_many_readers_as_it_can_use() {
        let best = 4_000_000 / 20_000;
        let (readers, rate) = run(&mut Depth::new(), &mut disk(4, 20_000), 200, 0, 120);
        assert!(readers <= 16, "{readers}");
        assert!(rate >= best * 9 / 10, "{rate} of {best}");
    }

    #[test]
    fn a_disk_that_sorts_has_a_line_to_sort() {
        for (sorts, expected) in [(5, 2..=3), (15, 8..=READERS_MAX)] {
            let mut disk = Disk { sorts, ..disk(1, 20_000) };
            let (readers, _) = run(&mut Depth::new(), &mut disk, 200, 0, 60);
            assert!(expected.contains(&readers), "{readers} where twice as many save {sorts} %");
        }
    }

    #[test]
    fn few_streams_do_not_keep_later_ones_from_an_array() {
        for few in 1..6 {
            for service_us in [30_000, 100_000] {
                let (mut depth, mut array) = (Depth::new(), disk(32, 100_000));
                run(&mut depth, &mut array, few, 0, 60);
                array.service_us = service_us;
                let (_, rate) = run(&mut depth, &mut array, 200, 60_000_000, 60);
                let best = 32_000_000 / service_us;
                assert!(rate >= best * 9 / 10, "{rate} of {best} after {few}");
            }
        }
    }

    #[test]
    fn readers_that_go_on_while_no_job_waits_prove_nothing() {
        let (mut depth, mut now) = (Depth::new(), 0);
        for _ in 0..1000 {
            depth.note(BYTES, now, now + 60_000, [20, 20]);
            now += 60_000;
        }
        assert_eq!(depth.readers(), 10, "the trial has not been judged");
    }

    #[test]
    fn many_small_files_are_reads_too() {
        let (mut depth, mut now) = (Depth::new(), 0);
        for _ in 0..100 {
            let readers = depth.readers();
            for _ in 0..READERS_MAX {
                depth.note(1000, now, now + 10_000 * readers as u64, [readers; 2]);
            }
            now += 320_000;
        }
        assert!(depth.readers() <= 4, "{}", depth.readers());
    }

    #[test]
    fn a_disk_that_has_got_more_arms_is_given_more_readers() {
        for service_us in [30_000, 60_000, 200_000] {
            let mut depth = Depth::new();
            assert!(run(&mut depth, &mut disk(1, 60_000), 200, 0, 30).0 <= 4);
            let mut array = disk(32, service_us);
            let (_, rate) = run(&mut depth, &mut array, 200, 30_000_000, 60);
            let best = 32_000_000 / service_us;
            assert!(rate >= best * 9 / 10, "{rate} of {best}");
        }
    }

    #[test]
    fn a_disk_that_has_become_slow_has_a_short_line_soon() {
        let (mut depth, mut disk) = (Depth::new(), disk(1, 100));
        assert_eq!(run(&mut depth, &mut disk, 50, 0, 10).0, READERS_MAX);
        disk.service_us = 15_625;
        assert!(run(&mut depth, &mut disk, 50, 10_000_000, 5).0 <= 3);
        disk.service_us = 100;
        assert_eq!(run(&mut depth, &mut disk, 50, 15_000_000, 1).0, READERS_MAX);
    }
}
