//! The only source of random numbers: SplitMix64 (Steele, Lea, Flood 2014), seeded.

use core::ops::RangeInclusive;

/// A sequence of numbers that its seed determines.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The sequence of a seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub const fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number of the range. A bias of its length / 2⁶⁴ does not matter here.
    pub fn within(&mut self, range: RangeInclusive<u64>) -> u64 {
        range.start() + self.bits() % (range.end() - range.start() + 1)
    }

    /// A position in a list of `len` things.
    ///
    /// # Panics
    ///
    /// If it is empty.
    pub fn index(&mut self, len: usize) -> usize {
        let last = u64::try_from(len - 1).expect("usize is at most 64 bits");
        usize::try_from(self.within(0..=last)).expect("below a usize")
    }

    /// True with this probability.
    pub fn chance(&mut self, probability: f64) -> bool {
        const SCALE: f64 = (1_u64 << 53) as f64;
        let unit = (self.bits() >> 11) as f64 / SCALE;
        unit < probability
    }

    /// Another sequence, which depends on this one's state.
    #[must_use]
    pub const fn fork(&mut self) -> Self {
        Self(self.bits())
    }
}
