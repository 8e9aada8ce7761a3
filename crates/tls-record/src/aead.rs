//! The encryption of one record: what this crate needs of a library of cryptography.

use aws_lc_rs::aead::{
    AES_128_GCM, AES_256_GCM, Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey,
};

/// The bytes of a tag, which all these ciphers have in common (RFC 5116 §5.1, RFC 8439 §2.8).
pub(crate) const TAG_BYTES: usize = 16;
/// The bytes of a nonce, likewise.
pub(crate) const NONCE_BYTES: usize = 12;

/// The cipher of a suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cipher {
    /// AES-GCM with a key of 16 bytes.
    Aes128Gcm,
    /// AES-GCM with a key of 32 bytes.
    Aes256Gcm,
    /// ChaCha20-Poly1305, whose key has 32 bytes.
    ChaCha20Poly1305,
}

impl Cipher {
    /// The bytes of a key: 16 or 32.
    #[must_use]
    pub const fn key_len(self) -> usize {
        match self {
            Self::Aes128Gcm => 16,
            Self::Aes256Gcm | Self::ChaCha20Poly1305 => 32,
        }
    }
}

/// The bytes are not those that were sealed, or were sealed with another key or nonce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forged;

/// A cipher with its key, ready to be used (RFC 5116 §2). Making one costs about 0.2 µs, and it may take some hundred bytes.
/// An implementation wipes the key when it is dropped.
pub trait Aead: Sized {
    /// Takes a key, which has [`Cipher::key_len`] bytes.
    fn new(cipher: Cipher, key: &[u8]) -> Self;

    /// Seals `plain`, and then `last`, into `sealed`, which is 16 bytes longer than both.
    fn seal(&self, nonce: [u8; 12], aad: &[u8], plain: &[u8], last: &[u8], sealed: &mut [u8]);

    /// As [`seal`](Self::seal), of plain bytes that are the beginning of `sealed`, and of nothing else.
    fn seal_in_place(&self, nonce: [u8; 12], aad: &[u8], sealed: &mut [u8]);

    /// Opens `sealed` into `plain`, which is 16 bytes shorter.
    ///
    /// # Errors
    ///
    /// [`Forged`]. What is in `plain` must not be used then.
    fn open(
        &self,
        nonce: [u8; 12],
        aad: &[u8],
        sealed: &[u8],
        plain: &mut [u8],
    ) -> Result<(), Forged>;
}

/// The ciphers of AWS-LC.
#[derive(Debug)]
pub struct AwsLc(LessSafeKey);

impl Aead for AwsLc {
    fn new(cipher: Cipher, key: &[u8]) -> Self {
        let algorithm = match cipher {
            Cipher::Aes128Gcm => &AES_128_GCM,
            Cipher::Aes256Gcm => &AES_256_GCM,
            Cipher::ChaCha20Poly1305 => &CHACHA20_POLY1305,
        };
        Self(LessSafeKey::new(UnboundKey::new(algorithm, key).expect("a key of its length")))
    }

    fn seal(&self, nonce: [u8; 12], aad: &[u8], plain: &[u8], last: &[u8], sealed: &mut [u8]) {
        let (out, end) = sealed.split_at_mut(plain.len());
        let (nonce, aad) = (Nonce::assume_unique_for_key(nonce), Aad::from(aad));
        let done = self.0.seal_out_of_place_scatter(nonce, aad, plain, out, last, end);
        done.expect("lengths that fit, of one record");
    }

    fn seal_in_place(&self, nonce: [u8; 12], aad: &[u8], sealed: &mut [u8]) {
        let (plain, end) = sealed.split_at_mut(sealed.len() - TAG_BYTES);
        let (nonce, aad) = (Nonce::assume_unique_for_key(nonce), Aad::from(aad));
        let done = self.0.seal_in_place_scatter(nonce, aad, plain, &[], end);
        done.expect("lengths that fit, of one record");
    }

    fn open(
        &self,
        nonce: [u8; 12],
        aad: &[u8],
        sealed: &[u8],
        plain: &mut [u8],
    ) -> Result<(), Forged> {
        let (sealed, tag) = sealed.split_at(plain.len());
        let (nonce, aad) = (Nonce::assume_unique_for_key(nonce), Aad::from(aad));
        self.0.open_separate_gather(nonce, aad, sealed, tag, plain).map_err(|_| Forged)
    }
}
