//! Limits the calls that may sleep, by device: a device that does not answer occupies only its share of the slots.
//!
//! A call on a dead network file system cannot be cancelled, and keeps its slot until it ends. So the share of a device
//! is bounded before its calls begin. A device that answers may have half of all slots. A device that has not answered
//! for a second may have a quarter. The last quarter of all slots is for devices with less than a quarter of them.
//! Devices whose numbers are not known yet have three quarters together. So two devices may die in one moment, and the
//! others are still served.
//!
//! The kernel answers many calls from memory, even while the device is dead. So only a call that really reached the
//! device proves that a device in doubt answers: see [`Call`].
//!
//! This module makes no system call and reads no clock.

use core::ops::Bound;
use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use crate::timers::Time;

/// A device that has not answered for this time may have fewer calls under way than a device that has.
const ANSWERS_WITHIN: Duration = Duration::from_secs(1);
/// The divisor for the share of all slots that a device may have while it answers.
const SHARE_ANSWERING: usize = 2;
/// The divisor for the share of a silent device, and for the slots that are kept for devices with fewer.
const SHARE_SILENT: usize = 4;

/// The maximum of devices without calls whose last answer is remembered.
const IDLE_MAX: usize = 64;

/// A disk or file system with a queue of its own, for which a call may have to wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Device(u64);

impl Device {
    /// The device of a file by its [`Stat::dev`](crate::Stat::dev).
    #[must_use]
    pub const fn of(dev: u64) -> Self {
        Self(dev)
    }

    /// A device whose number is not known yet, by any number that the caller gives it.
    #[must_use]
    pub const fn unknown(name: u64) -> Self {
        // The major number, which is in the upper half, has far less than 31 bits.
        Self(name | Self::FIRST_UNKNOWN.0)
    }

    const FIRST_UNKNOWN: Self = Self(1 << 63);

    const fn is_unknown(self) -> bool {
        self.0 >= Self::FIRST_UNKNOWN.0
    }

    /// Major and minor number, as in `/proc/self/mountinfo`, if they are known.
    #[must_use]
    pub const fn numbers(self) -> Option<(u64, u64)> {
        if self.0 >> 63 == 0 { Some((self.0 >> 32, self.0 & 0xffff_ffff)) } else { None }
    }
}

/// A call under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// The device that it may have to wait for.
    pub device: Device,
    /// When it began.
    pub begun: Time,
    /// A call that took this long has waited for the device; a shorter one may have been answered from memory.
    pub waits_from: Duration,
}

impl Call {
    /// A call of unknown kind: a call that takes a second is not answered from memory.
    #[must_use]
    pub const fn new(device: Device, begun: Time) -> Self {
        Self { device, begun, waits_from: ANSWERS_WITHIN }
    }

    /// Returns whether the end of the call at `now` shows that the device answers.
    fn has_asked(&self, now: Time) -> bool {
        now.since(self.begun) >= self.waits_from
    }
}

/// The slots for calls, and the devices that have them.
#[derive(Debug)]
pub struct Shares {
    places: usize,
    taken: usize,
    /// The slots of devices whose numbers are not known.
    unknown: usize,
    /// Devices with calls under way, and some that had calls before; by device. There are few, so a search
    /// in a row costs less than a tree.
    devices: Vec<Calls>,
}

/// The calls of one device that are under way.
#[derive(Debug)]
struct Calls {
    device: Device,
    /// The times at which the calls began, in any order.
    begun: Vec<Time>,
    /// The time when the device last answered: a call on it ended. If the device is in doubt, the call must have [asked
    /// it](Call::has_asked).
    answered: Option<Time>,
    last_begun: Time,
    /// True from the moment a call was found to be late until the next answer.
    is_doubted: bool,
    /// True if the caller was told that the device does not answer.
    is_reported: bool,
}

impl Shares {
    /// Makes `places` slots, all of them free.
    #[must_use]
    pub const fn new(places: usize) -> Self {
        Self { places, taken: 0, unknown: 0, devices: Vec::new() }
    }

    /// Calls under way.
    #[must_use]
    pub const fn taken(&self) -> usize {
        self.taken
    }

    /// The index of a device in [`Self::devices`], or the index at which it belongs.
    fn find(&self, device: Device) -> Result<usize, usize> {
        self.devices.binary_search_by_key(&device, |calls| calls.device)
    }

    fn get(&self, device: Device) -> Option<&Calls> {
        self.find(device).ok().map(|at| &self.devices[at])
    }

    /// Returns whether a call may begin now: a slot is free, and the device is below its share.
    #[must_use]
    pub fn may_begin(&self, device: Device, now: Time) -> bool {
        self.may_begin_at(self.find(device), device, now)
    }

    fn may_begin_at(&self, at: Result<usize, usize>, device: Device, now: Time) -> bool {
        if self.is_full() || (device.is_unknown() && self.is_full_for_unknown()) {
            return false;
        }
        let Ok(at) = at else { return true };
        let calls = &self.devices[at];
        let silent = (self.places / SHARE_SILENT).max(1);
        let answers = calls.answered.is_some_and(|at| now.since(at) < ANSWERS_WITHIN);
        let share = if answers && self.taken + silent < self.places {
            (self.places / SHARE_ANSWERING).max(1)
        } else {
            silent
        };
        calls.begun.len() < share
    }

    const fn is_full(&self) -> bool {
        self.taken >= self.places
    }

    /// A client can name as many directories of one dead device as it likes, and each counts as a device of its own
    /// until something is found in it. Together they leave a quarter of the slots to known devices.
    fn is_full_for_unknown(&self) -> bool {
        self.unknown >= (self.places - self.places / SHARE_SILENT).max(1)
    }

    /// A call begins.
    pub fn begin(&mut self, device: Device, now: Time) {
        self.begin_at(self.find(device), device, now);
    }

    /// Begins a call if it may begin now.
    fn try_begin(&mut self, device: Device, now: Time) -> bool {
        let at = self.find(device);
        let may = self.may_begin_at(at, device, now);
        if may {
            self.begin_at(at, device, now);
        }
        may
    }

    fn begin_at(&mut self, at: Result<usize, usize>, device: Device, now: Time) {
        self.taken += 1;
        self.unknown += usize::from(device.is_unknown());
        let at = at.unwrap_or_else(|at| self.insert(at, device, now));
        let calls = &mut self.devices[at];
        calls.begun.push(now);
        calls.last_begun = now;
    }

    /// Adds a device at the index where it belongs; returns the index.
    #[cold]
    fn insert(&mut self, at: usize, device: Device, now: Time) -> usize {
        let mut at = at;
        if self.devices.len() >= self.taken + IDLE_MAX {
            self.devices.retain(|calls| !calls.begun.is_empty());
            at = self.devices.partition_point(|calls| calls.device < device);
        }
        let calls = Calls {
            device,
            begun: Vec::new(),
            answered: None,
            last_begun: now,
            is_doubted: false,
            is_reported: false,
        };
        self.devices.insert(at, calls);
        at
    }

    /// Ends a call. Returns whether its end is the first answer since the device was [reported](Self::report).
    ///
    /// # Panics
    ///
    /// If the device has no call under way.
    pub fn end(&mut self, device: Device, now: Time) -> bool {
        let begun = self.get(device).and_then(Calls::oldest).unwrap_or(now);
        self.end_call(&Call { device, begun, waits_from: Duration::ZERO }, now)
    }

    /// As [`end`](Self::end), for a call that may have been answered from memory: its end is no answer of a device in
    /// [doubt](Self::doubt).
    ///
    /// # Panics
    ///
    /// If the device has no call under way.
    pub fn end_call(&mut self, call: &Call, now: Time) -> bool {
        let at = self.find(call.device).expect("a call ends that has begun");
        let calls = &mut self.devices[at];
        let its_own = calls.begun.iter().position(|begun| *begun == call.begun);
        calls.begun.swap_remove(its_own.expect("a call ends that has begun"));
        self.taken -= 1;
        self.unknown -= usize::from(call.device.is_unknown());
        if calls.is_doubted && !call.has_asked(now) {
            return false;
        }
        calls.answered = Some(now);
        calls.is_doubted = false;
        core::mem::take(&mut calls.is_reported)
    }

    /// Notes that a call of a device is late, though others may have ended since it began.
    pub fn doubt(&mut self, device: Device) {
        if let Ok(at) = self.find(device) {
            let calls = &mut self.devices[at];
            calls.is_doubted |= !calls.begun.is_empty();
        }
    }

    /// Returns whether a device is in doubt. Only then it matters whether a call really asks the device.
    #[must_use]
    pub fn is_doubted(&self, device: Device) -> bool {
        self.get(device).is_some_and(|calls| calls.is_doubted)
    }

    /// Returns how long the device has had a call under way without an answer to any call; 0 without calls.
    #[must_use]
    pub fn silence(&self, device: Device, now: Time) -> Duration {
        self.get(device).map_or(Duration::ZERO, |calls| calls.silence(now))
    }

    /// Returns whether a call should not even be tried, because the device has been silent for `patience`. In each such
    /// time one call is still tried, as long as the device has slots.
    #[must_use]
    pub fn refuses(&self, device: Device, now: Time, patience: Duration) -> bool {
        self.get(device).is_some_and(|calls| {
            calls.silence(now) >= patience
                && (now.since(calls.last_begun) < patience || !self.may_begin(device, now))
        })
    }

    /// Notes that this worker or another found that a device does not answer. The device is in doubt, and
    /// [`end`](Self::end) reports its next answer. Returns its calls under way.
    pub fn report(&mut self, device: Device, now: Time) -> usize {
        let at = self.find(device).unwrap_or_else(|at| self.insert(at, device, now));
        self.devices[at].is_doubted = true;
        self.devices[at].is_reported = true;
        self.devices[at].begun.len()
    }

    /// The devices that have answered nothing for `patience`, and the calls of each that are under way.
    pub fn silent(&self, now: Time, patience: Duration) -> impl Iterator<Item = (Device, usize)> {
        // Mostly there are no calls, and each turn comes here.
        let devices = if self.taken == 0 { &[][..] } else { &self.devices };
        let are_silent =
            move |calls: &&Calls| !calls.begun.is_empty() && calls.silence(now) >= patience;
        devices.iter().filter(are_silent).map(|calls| (calls.device, calls.begun.len()))
    }
}

impl Calls {
    /// When the first of those under way began.
    fn oldest(&self) -> Option<Time> {
        self.begun.iter().min().copied()
    }

    fn silence(&self, now: Time) -> Duration {
        let Some(oldest) = self.oldest() else { return Duration::ZERO };
        now.since(self.answered.map_or(oldest, |at| at.max(oldest)))
    }
}

/// [`Shares`], and the calls that wait for a slot, each in the queue of its device.
#[derive(Debug)]
pub struct Gate<T> {
    shares: Shares,
    lines: BTreeMap<Device, VecDeque<T>>,
    waiting: usize,
    /// The device whose call last left a queue; the next call is another device's, if others wait.
    last: Device,
}

impl<T> Gate<T> {
    /// Makes `places` slots, all of them free.
    #[must_use]
    pub const fn new(places: usize) -> Self {
        Self {
            shares: Shares::new(places),
            lines: BTreeMap::new(),
            waiting: 0,
            last: Device::of(0),
        }
    }

    /// The slots.
    #[must_use]
    pub const fn shares(&self) -> &Shares {
        &self.shares
    }

    /// The slots, to [report](Shares::report) a device.
    pub const fn shares_mut(&mut self) -> &mut Shares {
        &mut self.shares
    }

    /// Calls that wait.
    #[must_use]
    pub const fn waiting(&self) -> usize {
        self.waiting
    }

    /// The number of calls that wait for a slot of this device.
    #[must_use]
    pub fn waiting_for(&self, device: Device) -> usize {
        self.lines.get(&device).map_or(0, VecDeque::len)
    }

    /// Takes a slot for a call, or puts the call into the queue of its device and returns false.
    pub fn enter(&mut self, device: Device, call: T, now: Time) -> bool {
        let may_pass = self.waiting == 0 || !self.lines.contains_key(&device);
        if may_pass && self.shares.try_begin(device, now) {
            return true;
        }
        self.line_up(device, call);
        false
    }

    /// Puts a call into the queue of its device; [`next`](Self::next) takes it out when it has a slot.
    pub fn line_up(&mut self, device: Device, call: T) {
        self.lines.entry(device).or_default().push_back(call);
        self.waiting += 1;
    }

    /// Gives the slot of a call back; see [`Shares::end`]. Take the [next](Self::next) calls afterwards.
    pub fn leave(&mut self, device: Device, now: Time) -> bool {
        self.shares.end(device, now)
    }

    /// As [`leave`](Self::leave), for a call that may have been answered from memory; see [`Shares::end_call`].
    pub fn leave_call(&mut self, call: &Call, now: Time) -> bool {
        self.shares.end_call(call, now)
    }

    /// Takes the next call out of a queue, if it gets a slot now.
    pub fn next(&mut self, now: Time) -> Option<T> {
        // There may be a queue for each of thousands of directories. Queues that cannot be served because of their
        // number are not looked at. So at most one queue for each call under way is looked at in vain.
        if self.waiting == 0 || self.shares.is_full() {
            return None;
        }
        let (mut last, mut end) = (self.last, Bound::Unbounded);
        if self.shares.is_full_for_unknown() {
            end = Bound::Excluded(Device::FIRST_UNKNOWN);
            if last.is_unknown() {
                last = Device::of(0);
            }
        }
        let may = |device: &&Device| self.shares.may_begin(**device, now);
        let behind = self
            .lines
            .range((Bound::Included(last), end))
            .map(|(device, _)| device)
            .skip_while(|device| **device == last);
        let before = self.lines.range(..=last).map(|(device, _)| device);
        let device = *behind.chain(before).find(may)?;
        let line = self.lines.get_mut(&device)?;
        let call = line.pop_front()?;
        if line.is_empty() {
            self.lines.remove(&device);
        }
        self.waiting -= 1;
        self.last = device;
        self.shares.begin(device, now);
        Some(call)
    }

    /// Takes all calls out of their lines.
    pub fn take_waiting(&mut self) -> impl Iterator<Item = T> + use<T> {
        self.waiting = 0;
        core::mem::take(&mut self.lines).into_values().flatten()
    }

    /// Takes a call out of its queue; returns whether it was there.
    pub fn withdraw(&mut self, device: Device, call: &T) -> bool
    where
        T: PartialEq,
    {
        let Some(line) = self.lines.get_mut(&device) else { return false };
        let Some(place) = line.iter().position(|other| other == call) else { return false };
        line.remove(place);
        if line.is_empty() {
            self.lines.remove(&device);
        }
        self.waiting -= 1;
        true
    }
}

#[cfg(test)]
mod tests;
