//! One direction of a connection: each record is sealed, or opened, with the next number.

use alloc::vec::Vec;
use core::fmt;

use crate::aead::{Aead, Cipher, Forged, TAG_BYTES};
use crate::fault::Fault;
use crate::frame::{Content, EXPLICIT_BYTES, HEAD_BYTES, PLAIN_BYTES_MAX, head, length};
use crate::keys::Keys;

/// The most bytes that TLS 1.3 adds to the plain bytes of a record, besides its head (RFC 8446 §5.2).
const EXPANSION_BYTES_MAX: usize = 256;

/// The keys of a direction, with the cipher while there is something to do.
pub(crate) struct Direction<A> {
    keys: Keys,
    aead: Option<A>,
}

/// The bytes that a record proves besides its content.
struct Additional {
    bytes: [u8; 13],
    len: usize,
}

impl Additional {
    /// The head of a record of TLS 1.3 (RFC 8446 §5.2).
    fn tls13(head: [u8; HEAD_BYTES]) -> Self {
        let mut bytes = [0; 13];
        bytes[..HEAD_BYTES].copy_from_slice(&head);
        Self { bytes, len: HEAD_BYTES }
    }

    /// Number, type and length of the plain bytes of TLS 1.2 (RFC 5246 §6.2.3.3).
    fn tls12(sequence: u64, content: u8, plain: usize) -> Self {
        let mut bytes = [0; 13];
        bytes[..8].copy_from_slice(&sequence.to_be_bytes());
        bytes[8..].copy_from_slice(&head(content, plain));
        Self { bytes, len: 13 }
    }

    fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl<A: Aead> Direction<A> {
    pub(crate) const fn new(keys: Keys) -> Self {
        Self { keys, aead: None }
    }

    pub(crate) const fn keys(&self) -> &Keys {
        &self.keys
    }

    /// Takes the context of the cipher out, and keeps the keys.
    pub(crate) const fn rest(&mut self) -> Option<A> {
        self.aead.take()
    }

    /// Goes on with a context that [`rest`](Self::rest) has taken out. The keys are the same as then.
    pub(crate) fn wake(&mut self, aead: Option<A>) {
        self.aead = aead;
    }

    /// Goes on with the keys that follow.
    pub(crate) fn update(&mut self) {
        self.aead = None;
        self.keys.update();
    }

    #[cfg(test)]
    pub(crate) const fn has_context(&self) -> bool {
        self.aead.is_some()
    }

    /// Leaves a number out.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn step(&mut self) {
        self.keys.step();
    }

    /// The place of the first sealed byte in a record.
    pub(crate) fn begin(&self) -> usize {
        let is_gcm = self.keys.cipher() != Cipher::ChaCha20Poly1305;
        if !self.keys.is_tls13() && is_gcm { HEAD_BYTES + EXPLICIT_BYTES } else { HEAD_BYTES }
    }

    /// The bytes that a record adds to its plain bytes.
    pub(crate) fn overhead(&self) -> usize {
        self.begin() + usize::from(self.keys.is_tls13()) + TAG_BYTES
    }

    /// Seals a record. Returns its length, which is that of `plain` and the [overhead](Self::overhead); `out` has room for it.
    pub(crate) fn seal(&mut self, content: u8, plain: &[u8], out: &mut [u8]) -> usize {
        self.seal_with(content, plain.len(), out, |aead, nonce, aad, last, sealed| {
            aead.seal(nonce, aad, plain, last, sealed);
        })
    }

    /// As [`seal`](Self::seal), of `len` plain bytes that are in `out` at [`begin`](Self::begin).
    pub(crate) fn seal_in_place(&mut self, content: u8, len: usize, out: &mut [u8]) -> usize {
        self.seal_with(content, len, out, |aead, nonce, aad, last, sealed| {
            // In one piece with the plain bytes: the cipher takes longer for two.
            sealed[len..len + last.len()].copy_from_slice(last);
            aead.seal_in_place(nonce, aad, sealed);
        })
    }

    fn seal_with(
        &mut self,
        content: u8,
        len: usize,
        out: &mut [u8],
        seal: impl FnOnce(&A, [u8; 12], &[u8], &[u8], &mut [u8]),
    ) -> usize {
        let (begin, length) = (self.begin(), len + self.overhead());
        let Self { keys, aead } = self;
        let (nonce, own_type) = (keys.nonce(), [content]);
        let (head, additional, last) = if keys.is_tls13() {
            let head = head(Content::DATA, length - HEAD_BYTES);
            (head, Additional::tls13(head), &own_type[..])
        } else {
            let additional = Additional::tls12(keys.sequence(), content, len);
            (head(content, length - HEAD_BYTES), additional, &[][..])
        };
        let (front, sealed) = out[..length].split_at_mut(begin);
        front[..HEAD_BYTES].copy_from_slice(&head);
        // The explicit part of the nonce, if there is one.
        front[HEAD_BYTES..].copy_from_slice(&nonce[nonce.len() + HEAD_BYTES - begin..]);
        let aead = aead.get_or_insert_with(|| A::new(keys.cipher(), keys.key()));
        seal(aead, nonce, additional.as_bytes(), last, sealed);
        keys.step();
        length
    }

    /// Opens a whole record. Appends its content to `plain`, and returns its type. After an error nothing is appended.
    pub(crate) fn open(&mut self, record: &[u8], plain: &mut Vec<u8>) -> Result<u8, Fault> {
        let begin = plain.len();
        plain.resize(begin + self.sealed_len(record)?, 0);
        let opened = self.open_into(record, &mut plain[begin..]);
        plain.truncate(opened.map_or(begin, |(_, len)| begin + len));
        opened.map(|(content, _)| content)
    }

    /// Opens a whole record into the beginning of `out`, which has at least as many bytes as the record has. Returns the
    /// type of its content, and its length. After an error `out` has nothing of use.
    pub(crate) fn open_into(
        &mut self,
        record: &[u8],
        out: &mut [u8],
    ) -> Result<(u8, usize), Fault> {
        let len = self.sealed_len(record)?;
        let begin = self.begin();
        let is_tls13 = self.keys.is_tls13();
        let content = record[0];
        let (front, sealed) = record.split_at(begin);
        let Self { keys, aead } = self;
        let mut nonce = keys.nonce();
        let explicit = &front[HEAD_BYTES..];
        let at_nonce = nonce.len() - explicit.len();
        nonce[at_nonce..].copy_from_slice(explicit);
        let additional = if is_tls13 {
            Additional::tls13([front[0], front[1], front[2], front[3], front[4]])
        } else {
            Additional::tls12(keys.sequence(), content, len)
        };
        let out = &mut out[..len];
        let aead = aead.get_or_insert_with(|| A::new(keys.cipher(), keys.key()));
        let opened = aead.open(nonce, additional.as_bytes(), sealed, out);
        opened.map_err(|Forged| Fault::Forged)?;
        keys.step();
        if len > PLAIN_BYTES_MAX + usize::from(is_tls13) {
            return Err(Fault::Overflow);
        }
        if !is_tls13 {
            return Ok((content, len));
        }
        // The last byte that is not padding is the type (RFC 8446 §5.4).
        let end = out.iter().rposition(|byte| *byte != 0).ok_or(Fault::Unexpected)?;
        Ok((out[end], end))
    }

    /// The bytes of a whole record without its head and its proof.
    fn sealed_len(&self, record: &[u8]) -> Result<usize, Fault> {
        if length(record)? != Some(record.len()) {
            return Err(Fault::Decode);
        }
        let is_tls13 = self.keys.is_tls13();
        if is_tls13 && record.len() > HEAD_BYTES + PLAIN_BYTES_MAX + EXPANSION_BYTES_MAX {
            return Err(Fault::Overflow);
        }
        if is_tls13 && record[0] != Content::DATA {
            return Err(Fault::Unexpected);
        }
        record.len().checked_sub(self.begin() + TAG_BYTES).ok_or(Fault::Forged)
    }
}

impl<A> fmt::Debug for Direction<A> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.keys.fmt(out)
    }
}
