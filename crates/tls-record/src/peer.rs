//! A peer that seals whatever it likes: for tests and the fuzzer.

use alloc::vec;
use alloc::vec::Vec;

use crate::aead::{Aead as _, AwsLc, TAG_BYTES};
use crate::direction::Direction;
use crate::frame::{Content, HEAD_BYTES, RECORD_OVERHEAD_MAX, head};
use crate::keys::Keys;

/// The sealing side of a peer that keeps no rule.
#[derive(Debug)]
pub struct Peer(Direction<AwsLc>);

impl Peer {
    /// A peer that seals with these keys.
    #[must_use]
    pub const fn new(keys: Keys) -> Self {
        Self(Direction::new(keys))
    }

    /// Seals a record of any type, with any padding, which only TLS 1.3 has, and of any length that a head can say.
    ///
    /// # Panics
    ///
    /// If a head cannot say the length.
    pub fn seal(&mut self, content: u8, plain: &[u8], padding: usize) -> Vec<u8> {
        if !self.0.keys().is_tls13() {
            let mut out = vec![0; plain.len() + RECORD_OVERHEAD_MAX];
            let len = self.0.seal(content, plain, &mut out);
            out.truncate(len);
            return out;
        }
        let mut inner = [plain, &[content]].concat();
        inner.resize(inner.len() + padding, 0);
        let head = head(Content::DATA, inner.len() + TAG_BYTES);
        let mut out = vec![0; HEAD_BYTES + inner.len() + TAG_BYTES];
        out[..HEAD_BYTES].copy_from_slice(&head);
        let (keys, sealed) = (self.0.keys(), &mut out[HEAD_BYTES..]);
        AwsLc::new(keys.cipher(), keys.key()).seal(keys.nonce(), &head, &inner, &[], sealed);
        self.0.step();
        out
    }

    /// Goes on with the keys that follow.
    pub fn update(&mut self) {
        self.0.update();
    }
}
