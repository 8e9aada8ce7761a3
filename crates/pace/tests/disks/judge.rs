//! Judges of a disk: the model, fixed choices, and the former rules.

use core::cell::RefCell;
use core::time::Duration;
use std::rc::Rc;

use pace::{Constants, Pace, Spacing};

const BLOCK: u64 = 256 * 1024;

/// A read that has ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended {
    pub(crate) stream: usize,
    pub(crate) bytes: u64,
    pub(crate) began: Duration,
    /// Other reads in flight.
    pub(crate) beside: u32,
}

pub(crate) trait Judge {
    fn begin(&mut self, _bytes: u64, _now: Duration) {}
    /// Records the begin of a small read.
    fn begin_small(&mut self, bytes: u64, now: Duration) {
        self.begin(bytes, now);
    }
    fn end(&mut self, ended: Ended, now: Duration);
    fn chunk(&self, stream: usize) -> u64;
    fn depth(&self) -> u64;
    /// The time at which streams may read again; `None` if they may read now.
    fn opens_at(&self, _now: Duration) -> Option<Duration> {
        None
    }
    fn reads_far(&self, stream: usize) -> bool;
    /// True if a stream may begin a read.
    fn has_room(&self, _now: Duration) -> bool {
        true
    }
}

/// A judge with the same choice for all disks.
#[derive(Clone, Copy)]
pub(crate) struct Fixed {
    pub(crate) chunk: u64,
    pub(crate) depth: u64,
}

impl Judge for Fixed {
    fn end(&mut self, _: Ended, _: Duration) {}
    fn chunk(&self, _: usize) -> u64 {
        self.chunk
    }
    fn depth(&self) -> u64 {
        self.depth
    }
    fn reads_far(&self, _: usize) -> bool {
        false
    }
}

/// The model: a pace for each worker, and one spacing for all workers.
pub(crate) struct Spaced {
    pace: Pace,
    spacing: Rc<RefCell<Spacing>>,
}

impl Spaced {
    pub(crate) fn new(constants: Constants) -> Self {
        let spacing = Rc::new(RefCell::new(Spacing::with(constants)));
        Self { pace: Pace::with(constants), spacing }
    }

    pub(crate) fn workers(constants: Constants, count: usize) -> Vec<Box<dyn Judge>> {
        let spacing = Rc::new(RefCell::new(Spacing::with(constants)));
        let judge = || Self { pace: Pace::with(constants), spacing: Rc::clone(&spacing) };
        (0..count).map(|_| Box::new(judge()) as Box<dyn Judge>).collect()
    }
}

impl Judge for Spaced {
    fn begin(&mut self, bytes: u64, now: Duration) {
        self.pace.begin(bytes, now);
        if self.pace.lets_kernel_read_ahead() {
            self.spacing.borrow_mut().begin_ahead(now);
        } else {
            self.spacing.borrow_mut().begin(bytes, now);
        }
    }
    fn begin_small(&mut self, bytes: u64, now: Duration) {
        self.pace.begin(bytes, now);
        self.spacing.borrow_mut().begin_other(now);
    }
    fn end(&mut self, ended: Ended, now: Duration) {
        let mut spacing = self.spacing.borrow_mut();
        if !self.pace.lets_kernel_read_ahead() {
            spacing.end(ended.bytes, now - ended.began, now);
        }
        self.pace.set_spaced(spacing.is_on(now));
        self.pace.end(ended.bytes, ended.bytes, now);
    }
    fn chunk(&self, _: usize) -> u64 {
        self.pace.chunk()
    }
    fn depth(&self) -> u64 {
        self.pace.depth()
    }
    fn opens_at(&self, now: Duration) -> Option<Duration> {
        self.spacing.borrow().opens_at(now)
    }
    fn reads_far(&self, _: usize) -> bool {
        self.pace.lets_kernel_read_ahead()
    }
    fn has_room(&self, now: Duration) -> bool {
        self.pace.has_room(now)
    }
}

/// The threads of nginx: each thread sends up to 2 MiB of a file, and the kernel always reads ahead.
pub(crate) struct Threads;

impl Judge for Threads {
    fn end(&mut self, _: Ended, _: Duration) {}
    fn chunk(&self, _: usize) -> u64 {
        2 * 1024 * 1024
    }
    fn depth(&self) -> u64 {
        32
    }
    fn reads_far(&self, _: usize) -> bool {
        true
    }
}

/// The former rule of the file source. The time of a stream's last read decides the chunk of the stream. A device
/// has at most 32 reads. The kernel reads ahead after 18 MiB that came quickly.
#[derive(Default)]
pub(crate) struct Source {
    chunks: Vec<u64>,
    quick_bytes: u64,
}

const QUICK_BYTES: u64 = 18 * 1024 * 1024;

impl Judge for Source {
    fn end(&mut self, Ended { stream, bytes, began, beside }: Ended, now: Duration) {
        let took = now - began;
        let blocks = u32::try_from(bytes.div_ceil(BLOCK)).unwrap();
        let (share, quick) = (took / (beside + 1), Duration::from_micros(1500) * blocks);
        let is_fast = self.quick_bytes == QUICK_BYTES;
        if share < quick {
            self.quick_bytes = (self.quick_bytes + bytes).min(QUICK_BYTES);
        } else if share > quick * 2 && (!is_fast || took > Duration::from_millis(50)) {
            self.quick_bytes = 0;
        }
        if self.chunks.len() <= stream {
            self.chunks.resize(stream + 1, BLOCK);
        }
        let chunk = &mut self.chunks[stream];
        let blocks = u32::try_from(bytes / BLOCK).unwrap().max(1);
        let is_fast =
            took < Duration::from_millis(10) || share < Duration::from_micros(500) * blocks;
        if is_fast && bytes >= *chunk {
            *chunk = (*chunk * 2).min(4 * BLOCK);
        } else if took > Duration::from_millis(50) && !is_fast {
            *chunk = BLOCK;
        }
    }
    fn chunk(&self, stream: usize) -> u64 {
        self.chunks.get(stream).copied().unwrap_or(BLOCK)
    }
    fn depth(&self) -> u64 {
        32
    }
    fn reads_far(&self, stream: usize) -> bool {
        self.quick_bytes == QUICK_BYTES && self.chunk(stream) == 4 * BLOCK
    }
}

/// The former rule of the preload library. Readers read blocks. More readers are used while more readers raise
/// the rate; their number is halved if reads take more than 10 ms. The kernel reads ahead after 72 quick blocks.
pub(crate) struct Readers {
    readers: u64,
    round: Round,
    trial: Option<(u64, u64)>,
    upwards: bool,
    settled_until: u64,
    fast: u32,
    slow: u32,
    slow_us: u64,
    in_flight: u64,
}

#[derive(Clone, Copy, Default)]
struct Round {
    began_us: u64,
    reads: u64,
    took_us: u64,
    readers: u64,
    bytes: u64,
}

impl Default for Readers {
    fn default() -> Self {
        Self {
            readers: 32,
            round: Round::default(),
            trial: None,
            upwards: false,
            settled_until: 0,
            fast: 0,
            slow: 0,
            slow_us: 0,
            in_flight: 0,
        }
    }
}

impl Readers {
    fn judge(&mut self, now_us: u64) {
        let round = self.round;
        let (rate, took_us) =
            (round.bytes * 1_000_000 / round.took_us.max(1), round.took_us / round.reads);
        if took_us < 5_000 {
            self.trial = None;
            self.readers = (self.readers * 2).min(32);
            return;
        }
        if let Some((readers, before)) = self.trial.take() {
            let percent = if self.readers < readers { 85 } else { 115 };
            if rate * 100 < before * percent {
                self.readers = readers;
                self.upwards = !self.upwards;
                self.settled_until = now_us + 10_000_000;
            }
        }
        if now_us < self.settled_until {
            return;
        }
        let ways = [took_us < 10_000 || self.upwards, took_us < 10_000 || !self.upwards];
        let at_work = round.readers / round.reads;
        let next = |up: bool| {
            if up {
                (at_work * 4 >= self.readers * 3 && self.readers < 32)
                    .then(|| (self.readers * 2).min(32))
            } else {
                let fewer = (at_work / 2).max(2);
                (fewer < at_work).then_some(fewer)
            }
        };
        if let Some((up, readers)) = ways.into_iter().find_map(|up| Some((up, next(up)?))) {
            self.trial = Some((self.readers, rate));
            (self.upwards, self.readers) = (up, readers);
        }
    }
}

impl Judge for Readers {
    fn begin(&mut self, _: u64, _: Duration) {
        self.in_flight += 1;
    }
    fn end(&mut self, ended: Ended, now: Duration) {
        let us = |time: Duration| u64::try_from(time.as_micros()).unwrap();
        let (began_us, now_us) = (us(ended.began), us(now));
        let readers = self.in_flight;
        self.in_flight -= 1;
        let steady = readers <= self.readers;
        if began_us >= self.round.began_us && steady {
            self.round.reads += 1;
            self.round.took_us += now_us - began_us;
            self.round.readers += readers;
            self.round.bytes += ended.bytes.max(128 * 1024) * readers;
            if self.round.reads >= readers.max(4) {
                self.judge(now_us);
                self.round = Round { began_us: now_us, ..Round::default() };
            }
        }
        if ended.bytes < BLOCK / 2 {
            return;
        }
        let share = (now_us - began_us) / readers;
        let is_fast = self.fast == 72;
        if share < 1_500 {
            self.fast = (self.fast + 1).min(72);
            self.slow = 0;
        } else if is_fast && share > 50_000 && began_us >= self.slow_us {
            (self.slow, self.slow_us) = (self.slow + 1, now_us);
            if self.slow == 4 {
                (self.fast, self.slow) = (0, 0);
            }
        } else if !is_fast && share > 3_000 {
            self.fast = 0;
        }
    }
    fn chunk(&self, _: usize) -> u64 {
        BLOCK
    }
    fn depth(&self) -> u64 {
        self.readers
    }
    fn reads_far(&self, _: usize) -> bool {
        self.fast == 72
    }
}

/// BBR's model of a path (Cardwell and others, 2016): the window is twice the product of the greatest rate and
/// the least latency of the last 10 s. Every 10 s the smallest window is used for 0.2 s, so that the latency is
/// measured again.
pub(crate) struct Bbr {
    window: u64,
    in_flight: u64,
    now: Duration,
    busy: Duration,
    bytes: u64,
    ended: u32,
    rates: Vec<(Duration, f64)>,
    latency: (Duration, f64),
    probe_until: Duration,
}

impl Default for Bbr {
    fn default() -> Self {
        Self {
            window: 2 * BLOCK,
            in_flight: 0,
            now: Duration::ZERO,
            busy: Duration::ZERO,
            bytes: 0,
            ended: 0,
            rates: Vec::new(),
            latency: (Duration::ZERO, f64::MAX),
            probe_until: Duration::ZERO,
        }
    }
}

impl Bbr {
    fn pass(&mut self, now: Duration) {
        if self.in_flight > 0 {
            self.busy += now - self.now;
        }
        self.now = now;
    }
}

impl Judge for Bbr {
    fn begin(&mut self, _: u64, now: Duration) {
        self.pass(now);
        self.in_flight += 1;
    }
    fn end(&mut self, ended: Ended, now: Duration) {
        self.pass(now);
        self.in_flight -= 1;
        self.bytes += ended.bytes.max(128 * 1024);
        self.ended += 1;
        let took = (now - ended.began).as_secs_f64();
        if ended.bytes >= BLOCK && took < self.latency.1 {
            self.latency = (now, took);
        }
        if now > self.latency.0 + Duration::from_secs(10) {
            self.latency = (now, took);
            self.probe_until = now + Duration::from_millis(200);
        }
        if self.busy < Duration::from_millis(100) || self.ended < 16 {
            return;
        }
        self.rates.retain(|(at, _)| *at + Duration::from_secs(10) > now);
        self.rates.push((now, self.bytes as f64 / self.busy.as_secs_f64()));
        (self.busy, self.bytes, self.ended) = (Duration::ZERO, 0, 0);
        let rate = self.rates.iter().map(|(_, rate)| *rate).fold(0.0, f64::max);
        self.window = ((2.0 * rate * self.latency.1) as u64).clamp(2 * BLOCK, 32 << 20);
    }
    fn chunk(&self, _: usize) -> u64 {
        1 << (self.window / 2).clamp(BLOCK, 4 * BLOCK).ilog2()
    }
    fn depth(&self) -> u64 {
        if self.now < self.probe_until { 2 } else { (self.window / self.chunk(0)).max(2) }
    }
    fn reads_far(&self, _: usize) -> bool {
        false
    }
}
