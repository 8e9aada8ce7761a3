//! Predictable bytes: the content of a file, which a test can check at any offset.

use core::fmt;
use core::ops::Range;
use std::sync::Arc;

use crate::Random;

/// The content of a file. It is cheap to clone, and pseudo-random content of any length takes no memory.
///
/// ```
/// use testkit::Content;
///
/// let content = Content::pseudo_random(7, 1 << 40);
/// let piece = content.read(1 << 39, 100);
/// content.assert_at(1 << 39, &piece);
/// ```
#[derive(Clone)]
pub struct Content(Kind);

#[derive(Clone)]
enum Kind {
    Bytes(Arc<[u8]>),
    PseudoRandom { seed: u64, len: u64 },
}

impl Content {
    /// `len` pseudo-random bytes made from `seed`. The shorter of two contents with one seed is the beginning of
    /// the longer; contents of different seeds look unrelated.
    #[must_use]
    pub fn pseudo_random(seed: u64, len: u64) -> Self {
        Self(Kind::PseudoRandom { seed, len })
    }

    /// The number of bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        match &self.0 {
            Kind::Bytes(bytes) => bytes.len() as u64,
            Kind::PseudoRandom { len, .. } => *len,
        }
    }

    /// Returns whether the content has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// At most `count` bytes from `offset` on; fewer only at the end.
    #[must_use]
    pub fn read(&self, offset: u64, count: usize) -> Vec<u8> {
        let range = self.clamp(offset, count);
        match &self.0 {
            Kind::Bytes(bytes) => {
                let index = |at| usize::try_from(at).expect("within a slice");
                bytes[index(range.start)..index(range.end)].to_vec()
            }
            Kind::PseudoRandom { seed, .. } => pseudo_random_bytes(*seed, range),
        }
    }

    /// All bytes of the content.
    ///
    /// # Panics
    /// If they do not fit into the address space.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        self.read(0, usize::try_from(self.len()).expect("content fits into memory"))
    }

    /// Checks that the bytes at `offset` are these.
    ///
    /// # Panics
    /// If they differ, or reach beyond the end. The message has the offset, not megabytes of content.
    #[track_caller]
    pub fn assert_at(&self, offset: u64, bytes: &[u8]) {
        let expected = self.read(offset, bytes.len());
        if expected == bytes {
            return;
        }
        let difference = expected.iter().zip(bytes).position(|(ours, theirs)| ours != theirs);
        if let Some(at) = difference {
            let position = offset + at as u64;
            panic!("byte {position} is {:#04x}, expected {:#04x}", bytes[at], expected[at]);
        }
        assert_eq!(expected.len(), bytes.len(), "bytes beyond the end at {}", self.len());
    }

    /// Checks that these bytes are the whole content.
    ///
    /// # Panics
    /// If they are not. The message has the offset.
    #[track_caller]
    pub fn assert_is(&self, bytes: &[u8]) {
        self.assert_at(0, bytes);
        assert_eq!(bytes.len() as u64, self.len(), "number of bytes");
    }

    fn clamp(&self, offset: u64, count: usize) -> Range<u64> {
        let start = offset.min(self.len());
        start..start + (count as u64).min(self.len() - start)
    }
}

impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Bytes(bytes) => write!(f, "Content({} bytes)", bytes.len()),
            Kind::PseudoRandom { seed, len } => write!(f, "Content(seed {seed}, {len} bytes)"),
        }
    }
}

impl From<&[u8]> for Content {
    fn from(bytes: &[u8]) -> Self {
        Self(Kind::Bytes(bytes.into()))
    }
}

impl<const N: usize> From<&[u8; N]> for Content {
    fn from(bytes: &[u8; N]) -> Self {
        Self::from(bytes.as_slice())
    }
}

impl From<&str> for Content {
    fn from(text: &str) -> Self {
        Self::from(text.as_bytes())
    }
}

impl From<Vec<u8>> for Content {
    fn from(bytes: Vec<u8>) -> Self {
        Self(Kind::Bytes(bytes.into()))
    }
}

/// The bytes in `range` of the endless stream of `seed`. SplitMix64 reaches its n-th word without making those before it.
/// The seed is scrambled: without this the streams of neighbouring seeds would be shifted copies of each other.
fn pseudo_random_bytes(seed: u64, range: Range<u64>) -> Vec<u8> {
    let begin = range.start / 8;
    let index = |at: u64| usize::try_from(at - begin * 8).expect("within the vector");
    let mut bytes = Random::at(Random::scrambled(seed), begin).words(index(range.end));
    bytes.drain(..index(range.start));
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The published first outputs for the state 0, which is the scrambled 0.
    #[test]
    fn the_generator_is_splitmix64() {
        let first = [0xe220_a839_7b1d_cdaf_u64, 0x6e78_9e6a_a1b9_65f4, 0x06c4_5d18_8009_454f];
        let bytes = first.map(u64::to_le_bytes).concat();
        assert_eq!(Content::pseudo_random(0, 24).to_vec(), bytes);
    }

    #[test]
    fn any_piece_is_a_piece_of_the_whole() {
        let content = Content::pseudo_random(3, 1000);
        let whole = content.to_vec();
        assert_eq!(whole.len(), 1000);
        for offset in [0, 1, 7, 8, 9, 500, 993, 1000, 2000] {
            for count in [0, 1, 7, 8, 9, 100, 5000] {
                let end = (offset + count).min(1000);
                let piece = content.read(offset as u64, count);
                assert_eq!(piece, whole[offset.min(end)..end], "{count} at {offset}");
            }
        }
    }

    #[test]
    fn pieces_of_given_bytes() {
        let content = Content::from("0123456789");
        assert_eq!(content.read(2, 3), b"234");
        assert_eq!(content.read(8, 30), b"89");
        assert_eq!(content.read(10, 1), b"");
        content.assert_is(b"0123456789");
    }

    #[test]
    #[should_panic(expected = "byte 12 is 0x78, expected 0x32")]
    fn a_difference_is_located() {
        Content::from("0123456789012").assert_at(10, b"01x");
    }

    #[test]
    #[should_panic(expected = "number of bytes")]
    fn a_missing_end_is_noticed() {
        Content::from("0123456789").assert_is(b"01234");
    }

    #[test]
    #[should_panic(expected = "bytes beyond the end at 3")]
    fn a_surplus_is_noticed() {
        Content::from("012").assert_at(1, b"12x");
    }
}
