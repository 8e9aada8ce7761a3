//! Decides when free memory of the heap is given back to the kernel. The allocator alone keeps memory that others may
//! want again, for ever.

use core::time::Duration;

use ring::Time;

/// The bytes that must have become free: to give memory back takes about 0.1 ms for each MiB. The allocator holds up to
/// twice as many bytes as connections, and each worker may keep so many.
const FREED_MIN: u64 = 2 * 1024 * 1024;
/// The delay after a connection was closed, because others are often closed with it.
const DELAY: Duration = Duration::from_secs(2);
/// The comparisons after the last close. Upstreams and files of closed connections hold memory for a while longer.
const LOOKS: u8 = 4;

/// The memory that connections have held since the heap was last given back.
#[derive(Debug, Default)]
pub(super) struct Trim {
    /// The largest number of bytes held.
    peak: u64,
    /// The time at which the held memory is compared with the peak.
    due: Option<Time>,
    /// The comparisons that follow the next one, unless a connection is closed.
    looks: u8,
}

impl Trim {
    /// Records that a connection is closed while `held` bytes are held.
    pub(super) fn handle_close(&mut self, held: u64, now: Time) {
        self.peak = self.peak.max(held);
        if self.peak >= FREED_MIN {
            self.due.get_or_insert_with(|| now + DELAY);
            self.looks = LOOKS - 1;
        }
    }

    /// The time of the next comparison.
    pub(super) const fn due(&self) -> Option<Time> {
        self.due
    }

    /// Returns true if the heap is to be given back now, while `held` bytes are held.
    pub(super) fn is_wanted(&mut self, held: u64, now: Time) -> bool {
        if self.due.take_if(|due| *due <= now).is_none() {
            return false;
        }
        // If connections come and go and always hold about as much, the memory would be wanted again.
        let is_wanted = held <= self.peak / 2 && self.peak - held >= FREED_MIN;
        if is_wanted {
            self.peak = held;
        } else if self.looks > 0 {
            self.looks -= 1;
            self.due = Some(now + DELAY);
        }
        is_wanted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1024 * 1024;

    fn at(seconds: u64) -> Time {
        Time::default() + Duration::from_secs(seconds)
    }

    #[test]
    fn the_heap_is_given_back_once_after_much_of_it_has_become_free() {
        for (peak, held, expected) in [
            (100, 10, true),
            (100, 50, true),
            (100, 51, false),
            (2, 0, true),
            (2, 1, false),
            (1, 0, false),
        ] {
            let mut trim = Trim::default();
            trim.handle_close(peak * MIB, at(0));
            trim.handle_close(peak * MIB / 2, at(1));
            assert!(!trim.is_wanted(held * MIB, at(1)), "too early");
            assert_eq!(trim.is_wanted(held * MIB, at(2)), expected, "{peak} {held}");
            if expected {
                assert_eq!(trim.due(), None, "until another one is closed");
            }
        }
    }

    #[test]
    fn memory_that_becomes_free_after_the_last_close_is_given_back() {
        for free_at in 1..=6 {
            let mut trim = Trim::default();
            trim.handle_close(100 * MIB, at(0));
            let mut looks = 0;
            let given_back = (0..20).find(|second| {
                let held = if *second < 2 * free_at { 90 * MIB } else { MIB };
                looks += u8::from(trim.due().is_some_and(|due| due <= at(*second)));
                trim.is_wanted(held, at(*second))
            });
            let expected = (free_at <= u64::from(LOOKS)).then_some(2 * free_at);
            assert_eq!(given_back, expected, "free after {free_at} looks");
            assert!(looks <= LOOKS && trim.due().is_none(), "an idle server sleeps");
        }
    }

    #[test]
    fn a_peak_is_remembered_until_it_is_over() {
        let mut trim = Trim::default();
        trim.handle_close(100 * MIB, at(0));
        assert!(!trim.is_wanted(90 * MIB, at(2)));
        trim.handle_close(90 * MIB, at(3));
        assert_eq!(trim.due(), Some(at(4)));
        assert!(trim.is_wanted(0, at(4)));
        trim.handle_close(0, at(6));
        assert_eq!(trim.due(), None, "nothing was held since");
    }
}
