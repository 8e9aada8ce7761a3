//! Decides when a block that was found resident has to be checked again.
//!
//! An exact check costs a copy of the block (`preadv2(RWF_NOWAIT)`, 9 us for 256 KiB, more if the memory is cold);
//! `cachestat(2)` costs 1 to 2 us. `cachestat(2)` can show that a page is missing, but not that all pages are resident.
//! A block leaves the page cache when memory is short, when a process drops it, or when its file changes, and the
//! kernel reports none of these events. So a block is believed to be resident only for a limited time after a check. In
//! addition, each use touches one byte of the block. The preload library leaves this touch out right after a read of
//! the block ([`JUST_READ`]).

use core::time::Duration;

/// An exact check is believed for this time while `cachestat` finds no page missing. `cachestat` cannot tell a page
/// that stayed from a page that was evicted and read again since the check, so no check holds for ever. If a block is
/// checked every 10 s, the copies cost less than a thousandth of the CPU time.
const LOOK: Duration = Duration::from_secs(10);
/// A confirmation, or a check of a mapping, is believed for this time: a file that is sent 1,000 times a second is
/// confirmed at every fifth send. The kernel does not evict a page that was touched within this time.
const CONFIRMATION: Duration = Duration::from_millis(5);
/// A check that nothing can confirm is believed for this time. If a file is sent all the time, one copy in 50 ms costs
/// less than a thousandth of the CPU time for each block.
const LOOK_ALONE: Duration = Duration::from_millis(50);
/// A block that a read has just brought needs no touch for this time. The touch would be costly: the processor's
/// first access to memory that the disk has written.
pub const JUST_READ: Duration = Duration::from_millis(100);

/// The means to confirm an exact check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Witness {
    /// `cachestat(2)`.
    Cachestat,
    /// None: `cachestat` is missing, or refused for files of other users.
    None,
    /// A check costs no more than a confirmation: `mincore(2)` of a mapping.
    Mapping,
}

/// The belief about a block that was wholly resident at its last check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Belief {
    /// The block counts as resident.
    Holds,
    /// The block counts as resident if the witness confirms it now.
    IfConfirmed,
    /// The block has to be checked.
    Over,
}

/// Judges a check by its age (`looked`), and by the time since its last confirmation (`confirmed`). Before the
/// first confirmation, both times are the age of the check.
#[must_use]
pub fn belief(looked: Duration, confirmed: Duration, witness: Witness) -> Belief {
    let (holds, if_confirmed) = match witness {
        Witness::Cachestat => (looked < LOOK && confirmed < CONFIRMATION, looked < LOOK),
        Witness::None => (looked < LOOK_ALONE, false),
        Witness::Mapping => (looked < CONFIRMATION, false),
    };
    if holds {
        Belief::Holds
    } else if if_confirmed {
        Belief::IfConfirmed
    } else {
        Belief::Over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_belief_ends_by_age() {
        let ms = Duration::from_millis;
        let table = [
            (Witness::Cachestat, 9_999, 4, Belief::Holds),
            (Witness::Cachestat, 9_999, 5, Belief::IfConfirmed),
            (Witness::Cachestat, 10_000, 0, Belief::Over),
            (Witness::None, 49, 49, Belief::Holds),
            (Witness::None, 50, 0, Belief::Over),
            (Witness::Mapping, 4, 4, Belief::Holds),
            (Witness::Mapping, 5, 0, Belief::Over),
        ];
        for (witness, looked, confirmed, expected) in table {
            let found = belief(ms(looked), ms(confirmed), witness);
            assert_eq!(found, expected, "{witness:?} {looked} {confirmed}");
        }
    }
}
