//! The spacing of streams on each device, as the workers of a process see it together.

use core::time::Duration;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use pace::Spacing;
use ring::{Device, Time};

use crate::line::Wait;

/// What the [`Disk`](crate::Disk)s of a process know of the devices together: on which ones streams are spaced. Spacing is
/// of use only if no worker reads without it.
///
/// A lock is taken when a read begins or ends, and when a stream that goes on wants to read; never for resident files.
#[derive(Debug, Default)]
pub struct Devices(Mutex<HashMap<Device, Spacing>>);

impl Devices {
    fn spacings(&self) -> MutexGuard<'_, HashMap<Device, Spacing>> {
        // A panic cannot come between two changes of a spacing that belong together.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The time at which a stream may begin a read of a device, if it may not now.
    pub(crate) fn opens_at(&self, device: Device, now: Time) -> Option<Time> {
        let at = self.spacings().get(&device)?.opens_at(since_start(now))?;
        Some(Time::from_nanos(u64::try_from(at.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// Notes that a read of so many bytes begins.
    pub(crate) fn begin(&self, device: Device, bytes: u64, wait: Wait, now: Time) {
        let mut spacings = self.spacings();
        let spacing = spacings.entry(device).or_default();
        match wait {
            Wait::First => spacing.begin_other(since_start(now)),
            Wait::Next => spacing.begin(bytes, since_start(now)),
        }
    }

    /// Notes that a read has ended of a device that is not fast. Returns whether streams are spaced now.
    pub(crate) fn end(&self, device: Device, bytes: u64, took: Duration, now: Time) -> bool {
        let mut spacings = self.spacings();
        let spacing = spacings.entry(device).or_default();
        spacing.end(bytes, took, since_start(now));
        spacing.is_on(since_start(now))
    }
}

/// The time since the clock's start.
pub(crate) const fn since_start(now: Time) -> Duration {
    Duration::from_nanos(now.as_nanos())
}
