//! A keyed hash that costs two multiplications, for uses in which a collision costs little.

/// Hashes the input to an evenly spread number. The hash is not secret: a peer that sees many numbers may learn the
/// key.
pub(crate) fn spread(key: u64, wide: u128, narrow: u32) -> u64 {
    let (high, low) = halves(wide);
    let once = folded(low ^ key ^ FRACTIONS[0], u64::from(narrow) ^ FRACTIONS[1]);
    folded(once ^ high, key ^ FRACTIONS[2])
}

/// Constants without a pattern: the fractions of the roots of 2, 3 and 5.
const FRACTIONS: [u64; 3] = [0x6a09_e667_f3bc_c908, 0xbb67_ae85_84ca_a73b, 0x3c6e_f372_fe94_f82b];

/// The XOR of both halves of a product. Each half depends on all bits of both factors.
fn folded(a: u64, b: u64) -> u64 {
    let (high, low) = halves(u128::from(a) * u128::from(b));
    high ^ low
}

fn halves(wide: u128) -> (u64, u64) {
    #[expect(clippy::cast_possible_truncation, reason = "both halves are wanted")]
    let halves = ((wide >> 64) as u64, wide as u64);
    halves
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn neighbouring_inputs_are_spread_evenly() {
        for bits in [0..10, 10..20, 40..50, 54..64] {
            let part = |hash: u64| hash >> bits.start & 0x3ff;
            let addresses: BTreeSet<_> = (0..2_000).map(|n| part(spread(5, n, 80))).collect();
            let ports: BTreeSet<_> = (0..2_000).map(|n| part(spread(5, 1 << 64, n))).collect();
            // 2,000 random numbers hit 1,024 (1 - e^(-2000/1024)) = 879 of 1,024 places on average.
            assert!((840..920).contains(&addresses.len()), "{bits:?} {}", addresses.len());
            assert!((840..920).contains(&ports.len()), "{bits:?} {}", ports.len());
        }
        assert_ne!(spread(5, 1, 1), spread(6, 1, 1));
    }
}
