//! The hash by which tables of fixed size find their slots. Pure.

/// A hash of a few words: multiply and fold (wyhash's mixing step).
pub(crate) fn hash<const N: usize>(words: [u64; N]) -> u64 {
    words.into_iter().fold(0x9e37_79b9_7f4a_7c15, |hash, word| {
        let product = u128::from(hash ^ word) * 0xe703_7ed1_a0b4_28db;
        fold(product)
    })
}

#[allow(clippy::cast_possible_truncation, reason = "the halves are what is wanted")]
const fn fold(product: u128) -> u64 {
    (product >> 64) as u64 ^ product as u64
}
