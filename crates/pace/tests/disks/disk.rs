//! Simulated disks on a virtual clock.

use core::cmp::Reverse;
use core::time::Duration;
use std::collections::{BinaryHeap, VecDeque};

/// A seeded generator (xorshift64*).
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// A number below `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) % end
    }
}

/// The time that a unit of a disk needs before it transfers a part.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Access {
    /// The same time for each part.
    Fixed(Duration),
    /// The arm of a hard disk needs no time if the part follows the last part. Otherwise the arm needs a seek by
    /// distance (0.5 to 14.5 ms) and a rotation at 7,200 rotations per minute.
    Seek,
}

/// A limit of the bytes per second, with a credit that fills while the disk transfers less.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bucket {
    pub(crate) rate: u64,
    pub(crate) credit: u64,
}

/// A disk: units that work in parallel, and one link that they share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Model {
    pub(crate) name: &'static str,
    pub(crate) units: usize,
    pub(crate) access: Access,
    /// Bytes per second of the link.
    pub(crate) link: u64,
    /// A time, and the bytes per second of the link from this time on.
    pub(crate) later: Option<(Duration, u64)>,
    pub(crate) bucket: Option<Bucket>,
    /// The maximum bytes in each [`SLICE`]; further bytes wait for the next slice.
    pub(crate) slice: Option<u64>,
    /// Bytes that the kernel's readahead keeps in flight for a stream.
    pub(crate) readahead: u64,
    pub(crate) mood: Mood,
}

/// The way in which a disk changes its speed while the disk is read.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Mood {
    Even,
    /// Each part takes three times as long, in random waves of 0.2 s. Waves are a fourth of the time.
    Waves,
    /// Another process reads or writes from `.0` to `.1`, and keeps `.2` parts in flight.
    Busy(Duration, Duration, usize),
}

/// `throtl_slice` of the kernel (block/blk-throttle.c).
const SLICE: Duration = Duration::from_millis(100);

/// Bytes of the parts into which the kernel splits a read.
const PART: u64 = 256 * 1024;
/// The size of each disk.
pub(crate) const SIZE: u64 = 1 << 40;
/// The arm moves in one direction; after this many parts it moves to the oldest part (`fifo_batch` of mq-deadline).
const BATCH: u32 = 16;

#[derive(Clone, Copy, Debug)]
struct Part {
    read: usize,
    offset: u64,
    bytes: u64,
}

#[derive(Debug)]
pub(crate) struct Disk {
    model: Model,
    begin: Duration,
    random: Random,
    waiting: VecDeque<Part>,
    /// The end time and the read of each part in service.
    served: BinaryHeap<Reverse<(Duration, usize)>>,
    /// The remaining parts of each read.
    left: Vec<u64>,
    head: u64,
    /// Parts served since the oldest part was served.
    batch: u32,
    link_free: Duration,
    credit: u64,
    credit_at: Duration,
    /// The slice in which the last part passed, and the bytes that passed in the slice.
    slice: (u32, u64),
    /// The beginning of the last wave that has begun, or of the next wave.
    wave: Duration,
    /// The parts of the other process that are in flight.
    others: usize,
}

/// The reads of the other process.
const OTHERS: usize = usize::MAX;
/// The time for which a disk is slow.
const WAVE: Duration = Duration::from_millis(200);

impl Disk {
    /// A disk that exists from `begin` on; the times of its model are counted from `begin`.
    pub(crate) fn new(model: Model, seed: u64, begin: Duration) -> Self {
        Self {
            model,
            begin,
            random: Random::new(seed),
            waiting: VecDeque::new(),
            served: BinaryHeap::new(),
            left: Vec::new(),
            head: 0,
            batch: 0,
            link_free: begin,
            credit: model.bucket.map_or(0, |bucket| bucket.credit),
            credit_at: begin,
            slice: (0, 0),
            wave: begin,
            others: 0,
        }
    }

    /// Begins a read. Reads are numbered from 0.
    pub(crate) fn submit(&mut self, offset: u64, bytes: u64, now: Duration) -> usize {
        let read = self.left.len();
        let parts = bytes.div_ceil(PART);
        self.left.push(parts);
        for part in 0..parts {
            let bytes = PART.min(bytes - part * PART);
            self.waiting.push_back(Part { read, offset: offset + part * PART, bytes });
        }
        self.serve(now);
        read
    }

    /// Puts the parts of the other process into the queue.
    fn crowd(&mut self, now: Duration) {
        let Mood::Busy(from, to, most) = self.model.mood else { return };
        while (from..to).contains(&(now - self.begin)) && self.others < most {
            self.others += 1;
            self.waiting.push_back(Part { read: OTHERS, offset: 0, bytes: PART });
        }
    }

    /// The factor by which the disk is slow.
    fn slowness(&mut self, now: Duration) -> u32 {
        if !matches!(self.model.mood, Mood::Waves) {
            return 1;
        }
        while now >= self.wave + WAVE {
            self.wave += WAVE + Duration::from_nanos(self.random.below(6 * WAVE.as_nanos() as u64));
        }
        if now >= self.wave { 3 } else { 1 }
    }

    /// The time at which the next part ends.
    pub(crate) fn next(&self) -> Option<Duration> {
        self.served.peek().map(|Reverse((at, _))| *at)
    }

    /// Ends the next part; returns its read if the part was the read's last.
    pub(crate) fn step(&mut self) -> Option<usize> {
        let Reverse((now, read)) = self.served.pop()?;
        self.others -= usize::from(read == OTHERS);
        self.serve(now);
        if read == OTHERS {
            return None;
        }
        self.left[read] -= 1;
        (self.left[read] == 0).then_some(read)
    }

    fn serve(&mut self, now: Duration) {
        self.crowd(now);
        while self.served.len() < self.model.units && !self.waiting.is_empty() {
            let index = self.choose();
            let part = self.waiting.remove(index).expect("one of those that wait");
            let end = self.end_of(part, now);
            self.served.push(Reverse((end, part.read)));
        }
    }

    /// The part that is served next: the oldest part, or, for an arm, the next part in the direction of the arm.
    fn choose(&mut self) -> usize {
        self.batch += 1;
        if matches!(self.model.access, Access::Fixed(_)) || self.batch >= BATCH {
            self.batch = 0;
            return 0;
        }
        let way = |part: &Part| part.offset.wrapping_sub(self.head) % SIZE;
        (0..self.waiting.len()).min_by_key(|&index| way(&self.waiting[index])).unwrap()
    }

    fn end_of(&mut self, part: Part, now: Duration) -> Duration {
        let access = match self.model.access {
            Access::Fixed(time) => time,
            Access::Seek if part.offset == self.head => Duration::ZERO,
            Access::Seek => {
                let distance = part.offset.abs_diff(self.head) as f64 / SIZE as f64;
                let turn = self.random.below(8_333) as f64 / 1e6;
                Duration::from_secs_f64(0.0005 + 0.014 * distance.sqrt() + turn)
            }
        };
        self.head = part.offset + part.bytes;
        let now = self.model.slice.map_or(now, |most| now.max(self.pass_slice(part, now, most)));
        let slowness = self.slowness(now);
        let start = (now + access * slowness).max(self.link_free);
        let link = self
            .model
            .later
            .filter(|(at, _)| start - self.begin >= *at)
            .map_or(self.model.link, |(_, link)| link);
        let mut end = start + time_of(part.bytes, link) * slowness;
        if let Some(Bucket { rate, credit }) = self.model.bucket {
            let passed = start.saturating_sub(self.credit_at).as_secs_f64();
            let now = (self.credit + (passed * rate as f64) as u64).min(credit);
            if now >= part.bytes {
                self.credit = now - part.bytes;
                self.credit_at = start;
            } else {
                end = end.max(start + time_of(part.bytes - now, rate));
                self.credit = 0;
                self.credit_at = end;
            }
        }
        self.link_free = end;
        end
    }

    /// The beginning of the slice in which a part passes.
    fn pass_slice(&mut self, part: Part, now: Duration, most: u64) -> Duration {
        let slice = (now.as_nanos() / SLICE.as_nanos()) as u32;
        if slice > self.slice.0 {
            self.slice = (slice, 0);
        }
        if self.slice.1 + part.bytes > most {
            self.slice = (self.slice.0 + 1, 0);
        }
        self.slice.1 += part.bytes;
        SLICE * self.slice.0
    }
}

fn time_of(bytes: u64, rate: u64) -> Duration {
    Duration::from_secs_f64(bytes as f64 / rate as f64)
}
