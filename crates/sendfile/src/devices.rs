//! The devices, as the workers of a process see them together: the spacing of streams on each, devices whose reads do
//! not end, and file systems already reported to the operator.
//!
//! Silences of reads of open files are kept here. Calls on paths have `ring::Silences` of their own, because the kernel
//! may answer a call on a path from memory while no read ends. While no device is silent, the check for silences costs
//! a read one atomic load.
//!
//! All workers share a `Spacing`, because one worker that reads without pauses uses up a whole time slice of the
//! device's rate limit. Each worker has its own `Pace`: `docs/experiments.md` has the gain and the cost of a shared
//! one.

use core::time::Duration;
use std::sync::{Mutex, MutexGuard, PoisonError};

use pace::Spacing;
use ring::{Device, Silences, Time};

use crate::stream_queue::Wait;
use crate::way::Unusual;

/// The maximum of file systems that are reported to the operator, so that the log is not flooded.
const TOLD_MAX: usize = 64;

/// The devices on which streams are spaced, for all [`Disk`](crate::Disk)s of a process. Spacing is of use only if no
/// worker reads without it.
///
/// A lock is taken when a read begins or ends, and when a stream wants to read more of a file that it has begun; never
/// for resident files.
#[derive(Debug, Default)]
pub struct Devices {
    known: Mutex<Known>,
    /// Devices and types of file systems that were reported to the operator.
    told: Mutex<Vec<(Device, u64)>>,
    /// The devices whose reads do not end. They are separate from the devices of other calls, which may be answered
    /// from memory.
    silences: Silences,
}

/// News of a device that a [`Disk`](crate::Disk) reads from. Among all disks with the same [`Devices`] only one reports
/// it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Silence {
    /// No read of the device has ended for the [patience](crate::DiskConfig::patience) of the disk.
    Begun(Device),
    /// A read of the device has ended.
    Ended(Device),
}

/// The devices that were read from. There are few, so a linear search costs less than a hash table.
#[derive(Debug, Default)]
struct Known(Vec<(Device, Spacing)>);

impl Known {
    fn get(&self, device: Device) -> Option<&Spacing> {
        self.0.iter().find(|(known, _)| *known == device).map(|(_, spacing)| spacing)
    }

    fn entry(&mut self, device: Device) -> &mut Spacing {
        let found = self.0.iter().position(|(known, _)| *known == device);
        let at = found.unwrap_or_else(|| {
            self.0.push((device, Spacing::new()));
            self.0.len() - 1
        });
        &mut self.0[at].1
    }
}

impl Devices {
    fn known(&self) -> MutexGuard<'_, Known> {
        // A panic cannot come between two changes of a spacing that belong together.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether a file system is to be reported to the operator: once for each type on a device, up to
    /// [`TOLD_MAX`].
    pub(crate) fn tells(&self, file_system: &Unusual) -> bool {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let name = (file_system.device, file_system.magic);
        let is_new = !told.contains(&name) && told.len() < TOLD_MAX;
        if is_new {
            told.push(name);
        }
        is_new
    }

    /// The time at which a stream may begin a read of a device, if it may not now.
    pub(crate) fn opens_at(&self, device: Device, now: Time) -> Option<Time> {
        let at = self.known().get(device)?.opens_at(since_start(now))?;
        Some(Time::from_nanos(u64::try_from(at.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// Returns whether there may be a device whose reads do not end.
    pub(crate) fn any_is_silent(&self) -> bool {
        self.silences.is_any()
    }

    /// Notes that no read of a device has ended for `silence`; returns whether that is news.
    pub(crate) fn begin_silence(&self, device: Device, silence: Duration, now: Time) -> bool {
        self.silences.begin(device, (), silence, now)
    }

    /// Notes that a read of a device has ended; returns whether that is news.
    pub(crate) fn end_silence(&self, device: Device, now: Time) -> bool {
        self.silences.is_any() && self.silences.end(device, now).is_some()
    }

    /// Returns whether a read of a device should not even be tried: its reads do not end, and within the last
    /// `patience` another disk has already tried a read.
    pub(crate) fn refuses(&self, device: Device, now: Time, patience: Duration) -> bool {
        self.silences.refuses(device, now, patience)
    }

    /// Returns whether the reads of a device do not end, even if a read may try it now.
    pub(crate) fn is_silent(&self, device: Device) -> bool {
        self.silences.is_silent(device)
    }

    /// Notes that a read begins. If the device does not answer, this read is the one that tries it.
    pub(crate) fn note_try(&self, device: Device, now: Time, patience: Duration) {
        self.silences.judge(device, now, patience);
    }

    /// Notes that a read of `bytes` begins. `is_ahead`: the kernel may read ahead.
    pub(crate) fn begin(&self, device: Device, bytes: u64, wait: Wait, is_ahead: bool, now: Time) {
        let mut known = self.known();
        let spacing = known.entry(device);
        match wait {
            Wait::First => spacing.begin_other(since_start(now)),
            Wait::Next if is_ahead => spacing.begin_ahead(since_start(now)),
            Wait::Next => spacing.begin(bytes, since_start(now)),
        }
    }

    /// Notes that a read of a slow device has ended; `is_idle`: no stream waits. Returns whether streams are spaced
    /// now.
    pub(crate) fn end(
        &self,
        device: Device,
        bytes: u64,
        took: Duration,
        is_idle: bool,
        now: Time,
    ) -> bool {
        let mut known = self.known();
        let spacing = known.entry(device);
        if is_idle {
            spacing.note_idle();
        }
        spacing.end(bytes, took, since_start(now));
        spacing.is_on(since_start(now))
    }
}

/// The time since the clock's start.
pub(crate) const fn since_start(now: Time) -> Duration {
    Duration::from_nanos(now.as_nanos())
}
