//! One direction of a path between two interfaces: a queue in front of a rate, a delay, and accidents.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::time::Duration;

use super::bytes::{self, Layout};
use super::messages::too_large;
use super::random::Random;
use crate::time::Time;

/// Losses that come together: the model of Gilbert and Elliott, with a good state that loses nothing.
#[derive(Clone, Copy, Debug)]
pub struct Burst {
    /// The chance, for each frame, that a bad time begins.
    pub begin: f64,
    /// The chance, for each frame of a bad time, that it ends.
    pub end: f64,
    /// The chance that a frame of a bad time is lost.
    pub loss: f64,
}

/// A token bucket.
#[derive(Clone, Copy, Debug)]
pub struct Policer {
    /// Bytes a second.
    pub rate: u64,
    /// Bytes that may come without a pause.
    pub burst_bytes: u64,
}

/// The properties of a [`Link`]. The default is a link without a fault, a delay or a limit.
#[derive(Clone, Copy, Debug)]
pub struct Conditions {
    /// The chance that a frame is lost.
    pub loss: f64,
    /// More losses, which come together.
    pub burst: Option<Burst>,
    /// The chance that a frame comes twice.
    pub duplicate: f64,
    /// The chance that a bit of a packet of IP is flipped. The link's own header is left alone: an adapter drops
    /// frames whose checksum, which is not simulated, is wrong.
    pub corrupt: f64,
    /// The chance that a frame is held back so that later ones overtake it, and the most time that it is.
    pub reorder: (f64, Duration),
    /// The time on the way.
    pub delay: Duration,
    /// Added to the delay, up to this much, without changing the order.
    pub jitter: Duration,
    /// Bytes a second; `None` is no limit.
    pub rate: Option<u64>,
    /// Bytes that wait in front of the rate; what comes when it is full is dropped.
    pub queue_bytes: usize,
    /// With more bytes than these in the queue, frames that are capable of it are marked (RFC 3168).
    pub mark_bytes: Option<usize>,
    /// A policer drops what comes faster than its rate; it has no queue.
    pub policer: Option<Policer>,
    /// Frames arrive together at multiples of this time, as over radio; zero for never.
    pub bunch: Duration,
    /// The largest packet of IP that goes through. What is larger is dropped.
    pub mtu: u16,
    /// Whether the sender of a packet that was too large is told (RFC 1191, RFC 8201).
    pub says_too_large: bool,
    /// Options of TCP that a box on the way overwrites with no-operations, a bit for each kind. Boxes that do so
    /// leave the maximum segment size alone.
    pub strips: u32,
}

impl Default for Conditions {
    fn default() -> Self {
        Self {
            loss: 0.0,
            burst: None,
            duplicate: 0.0,
            corrupt: 0.0,
            reorder: (0.0, Duration::ZERO),
            delay: Duration::ZERO,
            jitter: Duration::ZERO,
            rate: None,
            queue_bytes: usize::MAX,
            mark_bytes: None,
            policer: None,
            bunch: Duration::ZERO,
            mtu: u16::MAX,
            says_too_large: true,
            strips: 0,
        }
    }
}

/// What has become of the frames of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fates {
    /// Those that were given to it.
    pub offered: u64,
    /// Those that came out, copies included.
    pub delivered: u64,
    /// Those that chance has lost.
    pub lost: u64,
    /// Those that found the queue full.
    pub overflowed: u64,
    /// Those with a bit that was flipped.
    pub corrupted: u64,
    /// Those that came twice.
    pub duplicated: u64,
    /// Those that a policer has dropped.
    pub policed: u64,
    /// Those that were held back.
    pub reordered: u64,
    /// Those that were marked.
    pub marked: u64,
    /// Those that were larger than the MTU.
    pub too_large: u64,
}

/// One direction of a path.
#[derive(Debug)]
pub struct Link {
    conditions: Conditions,
    random: Random,
    is_bad_time: bool,
    /// The moment at which the rate has taken the last frame of the queue.
    free_at: Time,
    /// The moment at which the policer's bucket is full.
    full_at: Time,
    /// When each frame of the queue leaves it, and its bytes.
    queue: VecDeque<(Time, usize)>,
    queued_bytes: usize,
    /// The last arrival in order.
    last_arrival: Time,
    /// Frames on the way by arrival; the number keeps those of one moment in order.
    on_the_way: BTreeMap<(Time, u64), Vec<u8>>,
    numbered: u64,
    fates: Fates,
}

impl Link {
    /// A link, idle.
    #[must_use]
    pub const fn new(conditions: Conditions, random: Random) -> Self {
        Self {
            conditions,
            random,
            is_bad_time: false,
            free_at: Time::from_nanos(0),
            full_at: Time::from_nanos(0),
            queue: VecDeque::new(),
            queued_bytes: 0,
            last_arrival: Time::from_nanos(0),
            on_the_way: BTreeMap::new(),
            numbered: 0,
            fates: Fates {
                offered: 0,
                delivered: 0,
                lost: 0,
                overflowed: 0,
                corrupted: 0,
                duplicated: 0,
                policed: 0,
                reordered: 0,
                marked: 0,
                too_large: 0,
            },
        }
    }

    /// What has become of the frames.
    #[must_use]
    pub const fn fates(&self) -> Fates {
        self.fates
    }

    /// The time that a frame would wait in the queue if it came now.
    #[must_use]
    pub fn wait(&self, now: Time) -> Duration {
        self.free_at.since(now)
    }

    /// The properties, which may change at any time; frames on the way have theirs.
    pub const fn conditions_mut(&mut self) -> &mut Conditions {
        &mut self.conditions
    }

    /// The next arrival.
    #[must_use]
    pub fn next_arrival(&self) -> Option<Time> {
        self.on_the_way.first_key_value().map(|((at, _), _)| *at)
    }

    /// A frame that has arrived by `now`.
    pub fn take(&mut self, now: Time) -> Option<Vec<u8>> {
        let first = self.on_the_way.first_entry().filter(|first| first.key().0 <= now)?;
        self.fates.delivered += 1;
        Some(first.remove())
    }

    /// Carries a frame. Returns the answer to one that is too large, a frame for its sender.
    pub fn carry(&mut self, now: Time, mut frame: Vec<u8>) -> Option<Vec<u8>> {
        self.fates.offered += 1;
        let layout = bytes::layout(&frame);
        if let Some(layout) = &layout {
            if layout.transport.end - layout.ip > usize::from(self.conditions.mtu) {
                self.fates.too_large += 1;
                let mtu = self.conditions.mtu;
                return self.conditions.says_too_large.then(|| too_large(&frame, mtu)).flatten();
            }
            strip(&mut frame, layout, self.conditions.strips);
        }
        if !self.pass_policer(now, frame.len()) {
            self.fates.policed += 1;
            return None;
        }
        let left = self.queue_behind_rate(now, &mut frame)?;
        if self.is_lost() {
            self.fates.lost += 1;
            return None;
        }
        if let Some(layout) = &layout
            && self.random.chance(self.conditions.corrupt)
        {
            self.fates.corrupted += 1;
            let at = layout.ip + self.random.index(layout.transport.end - layout.ip);
            frame[at] ^= 1 << self.random.index(8);
        }
        if self.random.chance(self.conditions.duplicate) {
            self.fates.duplicated += 1;
            self.deliver(left, frame.clone());
        }
        self.deliver(left, frame);
        None
    }

    /// The moment at which the frame has left the queue; `None` if the queue is full.
    fn queue_behind_rate(&mut self, now: Time, frame: &mut [u8]) -> Option<Time> {
        let Some(rate) = self.conditions.rate else { return Some(now) };
        while let Some(&(leaves, bytes)) = self.queue.front()
            && leaves <= now
        {
            self.queue.pop_front();
            self.queued_bytes -= bytes;
        }
        if self.queued_bytes + frame.len() > self.conditions.queue_bytes {
            self.fates.overflowed += 1;
            return None;
        }
        if self.conditions.mark_bytes.is_some_and(|most| self.queued_bytes > most) && mark(frame) {
            self.fates.marked += 1;
        }
        let bytes = u64::try_from(frame.len()).expect("a frame is short");
        let takes = Duration::from_nanos(bytes * 1_000_000_000 / rate);
        self.free_at = self.free_at.max(now) + takes;
        self.queue.push_back((self.free_at, frame.len()));
        self.queued_bytes += frame.len();
        Some(self.free_at)
    }

    /// Takes this many bytes out of the bucket. Returns false, and takes none, if it holds fewer.
    fn pass_policer(&mut self, now: Time, bytes: usize) -> bool {
        let Some(policer) = self.conditions.policer else { return true };
        let time = |bytes: u64| Duration::from_nanos(bytes * 1_000_000_000 / policer.rate);
        let full_at = self.full_at.max(now) + time(u64::try_from(bytes).expect("a frame is short"));
        let passes = full_at.since(now) <= time(policer.burst_bytes);
        if passes {
            self.full_at = full_at;
        }
        passes
    }

    fn is_lost(&mut self) -> bool {
        let in_burst = self.conditions.burst.is_some_and(|burst| {
            let turns = if self.is_bad_time { burst.end } else { burst.begin };
            self.is_bad_time ^= self.random.chance(turns);
            self.is_bad_time && self.random.chance(burst.loss)
        });
        in_burst || self.random.chance(self.conditions.loss)
    }

    fn deliver(&mut self, left: Time, frame: Vec<u8>) {
        let upto = |random: &mut Random, most: Duration| {
            Duration::from_nanos(
                random.within(0..=u64::try_from(most.as_nanos()).expect("a short time")),
            )
        };
        let bunch_ns = u64::try_from(self.conditions.bunch.as_nanos()).expect("a short time");
        let jitter = upto(&mut self.random, self.conditions.jitter);
        let mut arrival = (left + self.conditions.delay + jitter).max(self.last_arrival);
        if let Some(over) = arrival.as_nanos().checked_rem(bunch_ns)
            && over > 0
        {
            arrival = Time::from_nanos(arrival.as_nanos() + bunch_ns - over);
        }
        let (chance, most) = self.conditions.reorder;
        if self.random.chance(chance) {
            self.fates.reordered += 1;
            arrival = arrival + upto(&mut self.random, most);
        } else {
            self.last_arrival = arrival;
        }
        self.numbered += 1;
        self.on_the_way.insert((arrival, self.numbered), frame);
    }
}

/// Overwrites options of these kinds with no-operations, in every segment, and puts the checksum right.
fn strip(frame: &mut [u8], layout: &Layout, kinds: u32) {
    if kinds == 0 {
        return;
    }
    let Some(header) = layout.tcp_header_bytes(frame) else { return };
    let (mut at, end) = (layout.transport.start + 20, layout.transport.start + header);
    let mut has_changed = false;
    while at < end && frame[at] != 0 {
        let len =
            if frame[at] == 1 { 1 } else { usize::from(frame.get(at + 1).copied().unwrap_or(0)) };
        if len == 0 || at + len > end {
            break;
        }
        if frame[at] > 1 && frame[at] < 32 && kinds & (1 << frame[at]) != 0 {
            frame[at..at + len].fill(1);
            has_changed = true;
        }
        at += len;
    }
    if has_changed {
        layout.fill_checksums(frame);
    }
}

/// Marks congestion on a packet that is capable of it. Returns whether it is.
fn mark(frame: &mut [u8]) -> bool {
    let Some(layout) = bytes::layout(frame) else { return false };
    let (at, shift) = if layout.version == 4 { (layout.ip + 1, 0) } else { (layout.ip + 1, 4) };
    let is_capable = frame[at] >> shift & 3 != 0;
    if is_capable {
        frame[at] |= 3 << shift;
        layout.fill_checksums(frame);
    }
    is_capable
}
