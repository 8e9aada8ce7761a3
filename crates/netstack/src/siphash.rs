//! SipHash (Aumasson, Bernstein 2012): a keyed hash of short inputs. Without the key its values look random, so a
//! peer can neither predict a number nor fill one chain of a table.

/// A key for one purpose.
#[derive(Clone, Copy)]
pub(crate) struct Key([u64; 2]);

impl Key {
    pub(crate) fn new(secret: [u8; 16]) -> Self {
        let (low, high) = secret.split_at(8);
        Self([word(low), word(high)])
    }

    /// Derives a key for another purpose. `self` cannot be computed from the derived key.
    pub(crate) fn derive(self, purpose: u8) -> Self {
        Self([self.keyed(&[purpose, 0]), self.keyed(&[purpose, 1])])
    }

    /// SipHash-2-4, for numbers that peers see.
    pub(crate) fn keyed(self, bytes: &[u8]) -> u64 {
        hash::<2, 4>(self.0, bytes)
    }

    /// SipHash-1-3, for tables.
    pub(crate) fn spread(self, bytes: &[u8]) -> u64 {
        hash::<1, 3>(self.0, bytes)
    }
}

fn hash<const COMPRESS: usize, const FINISH: usize>(key: [u64; 2], bytes: &[u8]) -> u64 {
    let mut state = [
        key[0] ^ 0x736f_6d65_7073_6575,
        key[1] ^ 0x646f_7261_6e64_6f6d,
        key[0] ^ 0x6c79_6765_6e65_7261,
        key[1] ^ 0x7465_6462_7974_6573,
    ];
    let mut whole = bytes.chunks_exact(8);
    for eight in &mut whole {
        absorb::<COMPRESS>(&mut state, word(eight));
    }
    // The length is hashed modulo 256.
    absorb::<COMPRESS>(&mut state, word(whole.remainder()) | (bytes.len() as u64) << 56);
    state[2] ^= 0xff;
    (0..FINISH).for_each(|_| round(&mut state));
    state[0] ^ state[1] ^ state[2] ^ state[3]
}

fn absorb<const ROUNDS: usize>(state: &mut [u64; 4], word: u64) {
    state[3] ^= word;
    (0..ROUNDS).for_each(|_| round(state));
    state[0] ^= word;
}

fn round(v: &mut [u64; 4]) {
    v[0] = v[0].wrapping_add(v[1]);
    v[2] = v[2].wrapping_add(v[3]);
    v[1] = v[1].rotate_left(13) ^ v[0];
    v[3] = v[3].rotate_left(16) ^ v[2];
    v[0] = v[0].rotate_left(32);
    v[2] = v[2].wrapping_add(v[1]);
    v[0] = v[0].wrapping_add(v[3]);
    v[1] = v[1].rotate_left(17) ^ v[2];
    v[3] = v[3].rotate_left(21) ^ v[0];
    v[2] = v[2].rotate_left(32);
}

/// Up to eight bytes as a number, the first one lowest.
fn word(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The paper's key and inputs: bytes that count up.
    fn counted<const N: usize>() -> [u8; N] {
        core::array::from_fn(|at| u8::try_from(at).expect("small"))
    }

    #[test]
    fn the_values_of_the_paper() {
        let key = Key::new(counted());
        // The paper's appendix A, and the first of the reference implementation's vectors.
        assert_eq!(key.keyed(&counted::<15>()), 0xa129_ca61_49be_45e5);
        assert_eq!(key.keyed(&[]), 0x726f_db47_dd0e_0e31);
        assert_eq!(key.keyed(&counted::<8>()), 0x93f5_f579_9a93_2462);
    }

    #[test]
    fn the_standard_library_computes_the_same_with_fewer_rounds() {
        // `SipHasher` is 2-4; `DefaultHasher::new()` is 1-3 with the key zero.
        #[expect(deprecated, reason = "nothing replaces it for 2-4")]
        use core::hash::{Hasher, SipHasher};
        let key = Key::new([0; 16]);
        for len in 0..64 {
            let bytes = &counted::<64>()[..len];
            #[expect(deprecated, reason = "as above")]
            let mut four = SipHasher::new();
            four.write(bytes);
            assert_eq!(key.keyed(bytes), four.finish());
            let mut three = std::hash::DefaultHasher::new();
            three.write(bytes);
            assert_eq!(key.spread(bytes), three.finish());
        }
    }
}
