//! Chance for tests: each has a seed, and one that fails says which.

/// A sequence of numbers that its seed determines: SplitMix64 (Steele, Lea, Flood 2014).
#[derive(Clone, Debug)]
pub struct Random(u64);

const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

const fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Random {
    /// The sequence of a seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The sequence of a seed after this many numbers.
    pub(crate) const fn at(seed: u64, numbers: u64) -> Self {
        Self(seed.wrapping_add(numbers.wrapping_mul(STEP)))
    }

    /// A seed whose sequence is unrelated to those of the seeds beside this one.
    pub(crate) const fn scrambled(seed: u64) -> u64 {
        mix(seed)
    }

    /// The next 64 bits.
    pub const fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        mix(self.0)
    }

    /// From 0 to `end`, which is left out. A bias of `end` / 2⁶⁴ does not matter in a test.
    pub fn below<N: TryFrom<u64> + TryInto<u64>>(&mut self, end: N) -> N {
        let Ok(end) = end.try_into() else { panic!("an end that is not negative") };
        let Ok(number) = N::try_from(self.bits() % end) else { unreachable!("less than `end`") };
        number
    }

    /// True in one of this many calls, on average.
    pub fn one_in<N: TryInto<u64>>(&mut self, times: N) -> bool {
        let Ok(times) = times.try_into() else { panic!("a number that is not negative") };
        self.bits().is_multiple_of(times)
    }

    /// This many random bytes, eight of each number. Tests make gigabytes, and a loop over words is fast without optimisation.
    pub fn words(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len.next_multiple_of(8)];
        for word in bytes.as_chunks_mut::<8>().0 {
            *word = self.bits().to_le_bytes();
        }
        bytes.truncate(len);
        bytes
    }

    /// This many random bytes, each of another number.
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.bits().to_be_bytes()[0]).collect()
    }
}

/// Says which seed has failed, if the test panics while this is there.
#[derive(Debug)]
pub struct Seed(u64);

impl Seed {
    /// For the test of a seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }
}

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("failed with seed {}", self.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first numbers of the seed 1234567 by the authors' program.
    #[test]
    fn the_generator_is_splitmix64() {
        let mut random = Random::new(1_234_567);
        assert_eq!(
            [(); 3].map(|()| random.bits()),
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]
        );
        assert!((0..100).all(|_| random.below(3_usize) < 3));
    }
}
