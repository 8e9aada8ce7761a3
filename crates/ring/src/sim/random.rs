//! The one source of chance: SplitMix64 (Steele, Lea, Flood 2014), seeded.

use core::time::Duration;

use super::Latency;

#[derive(Debug)]
pub(super) struct Random(u64);

impl Random {
    pub(super) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) const fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From 0 to `end`, which is left out. A bias of `end` / 2⁶⁴ does not matter here.
    pub(super) fn below(&mut self, end: usize) -> usize {
        let wide = self.bits() % u64::try_from(end).expect("usize is at most 64 bits");
        usize::try_from(wide).expect("below a usize")
    }

    pub(super) fn chance(&mut self, probability: f64) -> bool {
        const SCALE: f64 = (1_u64 << 53) as f64;
        let unit = (self.bits() >> 11) as f64 / SCALE;
        unit < probability
    }

    pub(super) fn latency(&mut self, range: &Latency) -> Duration {
        let (start, end) = (range.start().as_nanos(), range.end().as_nanos());
        let start = u64::try_from(start).unwrap_or(u64::MAX);
        let spread = u64::try_from(end).unwrap_or(u64::MAX).saturating_sub(start);
        Duration::from_nanos(start + self.bits() % (spread + 1))
    }
}
