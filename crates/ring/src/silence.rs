//! The silent devices of a process, shared by its workers: the operator sees one report per device, and only one call
//! of all workers tries such a device at a time.
//!
//! Each worker measures alone for how long a device has answered nothing ([`Shares`](crate::Shares)). The lock here is
//! taken only when that time is so long that calls are given up, when the device answers again, and for calls
//! meanwhile.

use core::sync::atomic::{AtomicUsize, Ordering};
use core::time::Duration;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::gate::Device;
use crate::timers::Time;

/// The maximum of devices that are remembered after they answer again.
const ANSWERING_MAX: usize = 64;

/// The devices that do not answer, and some that did not answer earlier. `N` is kept with each device, such as its name
/// for the operator.
#[derive(Debug)]
pub struct Silences<N = ()> {
    /// The number of silent devices. It is a hint to leave the lock alone, so relaxed order is enough.
    count: AtomicUsize,
    known: Mutex<Vec<Known<N>>>,
}

#[derive(Debug)]
struct Known<N> {
    device: Device,
    name: N,
    state: SilenceState,
}

#[derive(Clone, Copy, Debug)]
enum SilenceState {
    /// The device does not answer; the time is when a call last tried it.
    Silent(Option<Time>),
    /// The device answers again, since this time.
    Answers(Time),
}

/// The decision on a call to a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The device answers, as far as is known.
    Answers,
    /// The device does not answer, and the call may try it.
    Try,
    /// The device does not answer, and another call tries it.
    Refused,
}

impl<N> Default for Silences<N> {
    fn default() -> Self {
        Self { count: AtomicUsize::new(0), known: Mutex::default() }
    }
}

impl<N> Silences<N> {
    fn lock(&self) -> MutexGuard<'_, Vec<Known<N>>> {
        // A panic cannot come between two changes that belong together.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether any device does not answer.
    #[must_use]
    #[inline]
    pub fn is_any(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    /// Notes that a worker has had no answer of a device for `silence`. Returns true if it is news: no worker has noted
    /// it, and none has had an answer meanwhile.
    pub fn begin(&self, device: Device, name: N, silence: Duration, now: Time) -> bool {
        let mut known = self.lock();
        let state = SilenceState::Silent(None);
        match known.iter_mut().find(|one| one.device == device) {
            Some(Known { state: SilenceState::Silent(_), .. }) => return false,
            Some(Known { state: SilenceState::Answers(at), .. }) if now.since(*at) < silence => {
                return false;
            }
            Some(one) => one.state = state,
            None => {
                if known.len() >= self.count.load(Ordering::Relaxed) + ANSWERING_MAX {
                    known.retain(|one| matches!(one.state, SilenceState::Silent(_)));
                }
                known.push(Known { device, name, state });
            }
        }
        self.count.fetch_add(1, Ordering::Relaxed);
        true
    }

    /// Notes that a worker has had an answer of a device. If the device was silent before, returns the name kept with
    /// it.
    pub fn end(&self, device: Device, now: Time) -> Option<N>
    where
        N: Clone,
    {
        let mut known = self.lock();
        let one = known.iter_mut().find(|one| one.device == device)?;
        let SilenceState::Silent(_) = one.state else { return None };
        one.state = SilenceState::Answers(now);
        self.count.fetch_sub(1, Ordering::Relaxed);
        Some(one.name.clone())
    }

    /// Decides on a call: in each `patience` one call may try a device that does not answer.
    pub fn judge(&self, device: Device, now: Time, patience: Duration) -> Verdict {
        self.verdict(device, now, patience, true)
    }

    /// Returns whether a call would be refused. Unlike a real call it does not count as a try.
    #[must_use]
    pub fn refuses(&self, device: Device, now: Time, patience: Duration) -> bool {
        self.verdict(device, now, patience, false) == Verdict::Refused
    }

    /// Returns whether a device does not answer, even if a call may try it now.
    #[must_use]
    pub fn is_silent(&self, device: Device) -> bool {
        // No time has passed since any try.
        self.verdict(device, Time::default(), Duration::MAX, false) != Verdict::Answers
    }

    fn verdict(&self, device: Device, now: Time, patience: Duration, tries: bool) -> Verdict {
        if !self.is_any() {
            return Verdict::Answers;
        }
        let mut known = self.lock();
        let Some(one) = known.iter_mut().find(|one| one.device == device) else {
            return Verdict::Answers;
        };
        let SilenceState::Silent(tried) = &mut one.state else { return Verdict::Answers };
        if tried.is_some_and(|tried| now.since(tried) < patience) {
            return Verdict::Refused;
        }
        if tries {
            *tried = Some(now);
        }
        Verdict::Try
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Device = Device::of(1);
    const B: Device = Device::of(2);
    const PATIENCE: Duration = Duration::from_secs(30);

    fn at(seconds: u64) -> Time {
        Time::default() + Duration::from_secs(seconds)
    }

    #[test]
    fn silence_begins_and_ends_once() {
        let all = Silences::default();
        assert!(all.begin(A, "a", PATIENCE, at(30)));
        assert!(!all.begin(A, "another name", PATIENCE, at(31)), "another worker finds the same");
        assert!(all.begin(B, "b", PATIENCE, at(31)));
        assert_eq!(all.end(A, at(40)), Some("a"));
        assert_eq!(all.end(A, at(41)), None);
        assert!(!all.begin(A, "a", PATIENCE, at(42)), "another worker's calls are about to end");
        assert!(all.begin(A, "a", PATIENCE, at(70)));
    }

    #[test]
    fn one_request_at_a_time_tries_a_silent_device() {
        let all = Silences::default();
        let judge = |device, seconds| all.judge(device, at(seconds), PATIENCE);
        assert_eq!(judge(A, 1), Verdict::Answers);
        all.begin(A, "a", PATIENCE, at(30));
        assert!(all.is_any() && !all.refuses(A, at(30), PATIENCE), "none has tried it");
        assert_eq!(
            [judge(A, 30), judge(A, 31), judge(A, 59)],
            [Verdict::Try, Verdict::Refused, Verdict::Refused]
        );
        assert!(all.refuses(A, at(59), PATIENCE) && !all.refuses(A, at(60), PATIENCE));
        assert_eq!([judge(A, 60), judge(A, 61)], [Verdict::Try, Verdict::Refused]);
        assert_eq!(judge(B, 61), Verdict::Answers);
        all.end(A, at(62));
        assert_eq!((judge(A, 62), all.is_any()), (Verdict::Answers, false));
    }

    #[test]
    fn few_devices_that_answer_again_are_remembered() {
        let all = Silences::default();
        all.begin(Device::of(0), "silent", PATIENCE, at(30));
        for number in 1..1000 {
            let device = Device::of(number);
            assert!(all.begin(device, "a", PATIENCE, at(30)) && all.end(device, at(30)).is_some());
            assert!(all.lock().len() <= ANSWERING_MAX + 1);
        }
        assert_eq!(all.judge(Device::of(0), at(31), PATIENCE), Verdict::Try);
    }
}
