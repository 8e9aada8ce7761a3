//! Late reads, and devices that do not answer.

use core::ops::Range;
use core::time::Duration;
use std::collections::VecDeque;

use ring::{Device, Op, Ring, Time};

use super::upkeep::Upkeep;
use super::{Disk, Operation, ReadDone};
use crate::devices::Silence;
use crate::file::{BLOCK, File};

/// The streams that may try a device whose reads do not end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tries {
    /// In each patience one stream tries the device. This stream may be the one, and then does not fail at once.
    InTurn,
    /// This stream never tries the device.
    Never,
}

/// Reads that have taken too long.
#[derive(Debug, Default)]
pub(super) struct Late {
    /// Those that have failed for that, for their owners.
    done: VecDeque<ReadDone>,
    /// The number of operations that are [`Operation::Late`].
    in_flight: usize,
    /// News for the operator.
    pub(super) silences: VecDeque<Silence>,
    /// When reads are looked at for such ones: the time of the earliest timer.
    pub(super) look_at: Option<Time>,
}

impl Late {
    /// Adds a read that has failed, for its owner.
    pub(super) fn push(&mut self, read: ReadDone) {
        self.done.push_back(read);
    }

    /// An operation that is [`Operation::Late`] has ended.
    pub(super) const fn ended(&mut self) {
        self.in_flight -= 1;
    }
}

impl Disk {
    /// Returns whether a read of a device fails at once.
    pub(super) fn refuses(&self, device: Device) -> bool {
        self.config.patience.is_some_and(|patience| {
            self.reads.refuses(device, self.now, patience)
                || self.devices.refuses(device, self.now, patience)
        })
    }

    /// Returns whether the reads of a device do not end, even if a read may try it now.
    fn is_silent(&self, device: Device) -> bool {
        let is_long = |patience| self.reads.silence(device, self.now) >= patience;
        self.config.patience.is_some_and(is_long) || self.devices.is_silent(device)
    }

    /// Returns whether the reads of some device may not end, so that [`would_fail`](Self::would_fail) is worth asking.
    #[must_use]
    #[inline]
    pub fn may_refuse(&self) -> bool {
        self.late.in_flight > 0 || self.devices.any_is_silent()
    }

    /// Returns whether a stream that began with this range of a file would fail before its first byte. It would if the
    /// reads of the device do not end and the first byte has to be read. Ask before the head of a response is promised.
    ///
    /// # Panics
    ///
    /// If the range starts beyond its end.
    #[must_use]
    pub fn would_fail(
        &mut self,
        ring: &mut Ring,
        file: &File,
        range: &Range<u64>,
        tries: Tries,
    ) -> bool {
        assert!(range.start <= range.end);
        self.now = ring.now();
        let device = file.device();
        let fails = match tries {
            Tries::InTurn => self.refuses(device),
            Tries::Never => self.is_silent(device),
        };
        if range.is_empty() || !fails {
            return false;
        }
        self.introduce(ring, file);
        let len = (range.end - range.start).min(BLOCK - range.start % BLOCK);
        file.resident(ring, range.start, len, self.now, true) == 0
    }

    /// The next device whose reads have stopped ending, or end again, for a report to the operator. Call it after
    /// [`handle`](Self::handle).
    pub fn next_silence(&mut self) -> Option<Silence> {
        self.late.silences.pop_front()
    }

    /// The next read that has failed because it took too long, for its owner like those that
    /// [`handle`](Self::handle) returns. Call it after each of these.
    pub fn next_late(&mut self) -> Option<ReadDone> {
        self.late.done.pop_front()
    }

    /// At the time `at`, the reads are searched for late ones.
    pub(super) fn look_at(&mut self, ring: &mut Ring, at: Time) {
        if self.late.look_at.is_none_or(|earlier| at < earlier) {
            self.late.look_at = Some(at);
            self.keep_up(ring, Op::Timer(at), Upkeep::Look(at));
        }
    }

    /// Fails reads that take too long.
    pub(super) fn look(&mut self, ring: &mut Ring) {
        self.late.look_at = None;
        let Some(patience) = self.config.patience else { return };
        let mut next = None;
        for key in self.operations.keys().collect::<Vec<_>>() {
            let operation = self.operations.get_mut(key).expect("one of its keys");
            let Operation::Read(read) = operation else { continue };
            if self.now.since(read.began) < patience {
                let due = read.began + patience;
                next = Some(next.map_or(due, |next: Time| next.min(due)));
                continue;
            }
            let place = Operation::Upkeep(Upkeep::Extents);
            let Operation::Read(read) = core::mem::replace(operation, place) else {
                unreachable!("it has just been looked at")
            };
            self.late.push(read.late());
            self.late.in_flight += 1;
            let device = read.file.device();
            *operation = Operation::Late(read);
            let silence = self.reads.silence(device, self.now);
            if silence >= patience && self.devices.begin_silence(device, silence, self.now) {
                self.late.silences.push_back(Silence::Begun(device));
            }
        }
        if !self.queue.is_empty() {
            let soon = self.now + LOOK;
            next = Some(next.map_or(soon, |next| next.min(soon)));
        }
        if let Some(next) = next {
            self.look_at(ring, next);
        }
    }
}

/// The interval at which late reads are looked for while streams wait.
const LOOK: Duration = Duration::from_secs(1);
