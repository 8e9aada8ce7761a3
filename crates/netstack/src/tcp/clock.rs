//! The units in which TCP counts time.

use crate::time::Time;

/// The time `us` microseconds after `at`.
pub(super) const fn later(at: Time, us: u64) -> Time {
    Time::from_nanos(at.as_nanos().saturating_add(us.saturating_mul(1_000)))
}

/// Microseconds from `earlier` until now, at most 71 minutes.
#[expect(clippy::cast_possible_truncation, reason = "it was compared with the limit")]
pub(super) const fn elapsed_us(now: Time, earlier: Time) -> u32 {
    let us = now.as_nanos().saturating_sub(earlier.as_nanos()) / 1_000;
    if us > u32::MAX as u64 { u32::MAX } else { us as u32 }
}

/// Milliseconds of the stack's clock, modulo 2³²: what timestamps carry (RFC 7323, 5.4).
#[expect(clippy::cast_possible_truncation, reason = "the modulus is meant")]
pub(super) const fn milliseconds(at: Time) -> u32 {
    (at.as_nanos() / 1_000_000) as u32
}

/// Seconds of the stack's clock, modulo 2³²: 136 years.
#[expect(clippy::cast_possible_truncation, reason = "the modulus is meant")]
pub(super) const fn seconds(at: Time) -> u32 {
    (at.as_nanos() / 1_000_000_000) as u32
}
