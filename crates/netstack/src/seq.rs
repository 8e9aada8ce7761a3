//! Sequence numbers (RFC 9293, 3.4): a circle of 2³² bytes.

use core::cmp::Ordering;
use core::fmt;
use core::ops::{Add, AddAssign, Sub};

/// A sequence number.
///
/// Numbers are compared on the circle: a number is before another if it is less than 2³¹ bytes in front of the
/// other. This is an order only among numbers near each other, such as the numbers of one window, so the type is
/// not `Ord`.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct SeqNumber(pub u32);

impl SeqNumber {
    /// True if `self` is before `other`, by less than 2³¹.
    #[must_use]
    pub const fn is_before(self, other: Self) -> bool {
        (self.0.wrapping_sub(other.0).cast_signed()) < 0
    }

    /// True if `self` is after `other`, by less than 2³¹.
    #[must_use]
    pub const fn is_after(self, other: Self) -> bool {
        other.is_before(self)
    }

    /// The later of two.
    #[must_use]
    pub const fn later(self, other: Self) -> Self {
        if self.is_before(other) { other } else { self }
    }

    /// The earlier of two.
    #[must_use]
    pub const fn earlier(self, other: Self) -> Self {
        if other.is_before(self) { other } else { self }
    }

    /// True if the number is in the range of `len` numbers that begins with `from`.
    #[must_use]
    pub const fn is_within(self, from: Self, len: u32) -> bool {
        self.0.wrapping_sub(from.0) < len
    }
}

impl Add<u32> for SeqNumber {
    type Output = Self;

    fn add(self, n: u32) -> Self {
        Self(self.0.wrapping_add(n))
    }
}

impl AddAssign<u32> for SeqNumber {
    fn add_assign(&mut self, n: u32) {
        *self = *self + n;
    }
}

impl Sub for SeqNumber {
    type Output = u32;

    /// The distance from `other` forward to `self`, on the circle.
    fn sub(self, other: Self) -> u32 {
        self.0.wrapping_sub(other.0)
    }
}

impl PartialOrd for SeqNumber {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.0.wrapping_sub(other.0).cast_signed().cmp(&0))
    }
}

impl fmt::Debug for SeqNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_compared_on_the_circle() {
        for start in [0, 1, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff] {
            let (first, next) = (SeqNumber(start), SeqNumber(start) + 1);
            assert!(first.is_before(next) && next.is_after(first) && first < next);
            assert!(!first.is_before(first) && !first.is_after(first));
            assert_eq!((first.later(next), next.later(first)), (next, next));
            assert_eq!((first.earlier(next), next.earlier(first)), (first, first));
            assert_eq!(next - first, 1);
            assert!(first.is_within(first, 1) && !next.is_within(first, 1));
            assert!((first + 0x7fff_ffff).is_after(first));
        }
    }
}
