//! The hash by which tables of fixed size find their slots. Pure.

/// Hashes a few words by multiplying and folding (wyhash's mixing step).
pub(crate) fn hash<const N: usize>(words: [u64; N]) -> u64 {
    words.into_iter().fold(0x9e37_79b9_7f4a_7c15, |hash, word| {
        let product = u128::from(hash ^ word) * 0xe703_7ed1_a0b4_28db;
        fold(product)
    })
}

#[allow(clippy::cast_possible_truncation, reason = "the two halves are wanted")]
const fn fold(product: u128) -> u64 {
    (product >> 64) as u64 ^ product as u64
}
