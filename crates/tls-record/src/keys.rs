//! The keys of one direction of a connection, and those that follow them (RFC 8446 §7.2, §7.3).

use core::fmt;

use aws_lc_rs::hkdf::{HKDF_SHA256, HKDF_SHA384, KeyType, Prk};
use zeroize::Zeroize as _;

use crate::aead::{Cipher, NONCE_BYTES};

/// The most bytes of a key.
const KEY_BYTES_MAX: usize = 32;
/// The most bytes of a secret: those of SHA-384.
const SECRET_BYTES_MAX: usize = 48;

/// The keys of one direction, and the number of its next record. They take about 100 bytes, and are wiped when they are
/// dropped. Nothing shows them.
pub struct Keys {
    key: [u8; KEY_BYTES_MAX],
    iv: [u8; NONCE_BYTES],
    cipher: Cipher,
    /// The bytes of the secret. It is empty in TLS 1.2, whose keys never change.
    secret_len: u8,
    sequence: u64,
    secret: [u8; SECRET_BYTES_MAX],
}

impl Keys {
    /// The keys of TLS 1.3 that belong to a traffic secret (RFC 8446 §7.3). `sequence` is the number of records that were
    /// sealed with them before. The length of the secret tells the hash of the suite: 32 bytes SHA-256, 48 bytes SHA-384.
    /// `None` for any other length.
    #[must_use]
    pub fn tls13(cipher: Cipher, secret: &[u8], sequence: u64) -> Option<Self> {
        let secret_len = u8::try_from(secret.len()).ok().filter(|len| matches!(len, 32 | 48))?;
        let mut keys = Self::new(cipher, sequence);
        keys.secret[..secret.len()].copy_from_slice(secret);
        keys.secret_len = secret_len;
        keys.derive();
        Some(keys)
    }

    /// The keys of TLS 1.2: a key, and an IV, to which the number of a record is added. With AES-GCM the first 4 bytes of
    /// the IV are the salt of the handshake, and the others are free to choose (RFC 5288 §3). `sequence` is the number of
    /// records that were sealed with the key before. `None` if the key has not the length that the cipher needs.
    #[must_use]
    pub fn tls12(cipher: Cipher, key: &[u8], iv: [u8; 12], sequence: u64) -> Option<Self> {
        if key.len() != cipher.key_len() {
            return None;
        }
        let mut keys = Self::new(cipher, sequence);
        keys.key[..key.len()].copy_from_slice(key);
        keys.iv = iv;
        Some(keys)
    }

    const fn new(cipher: Cipher, sequence: u64) -> Self {
        Self {
            key: [0; KEY_BYTES_MAX],
            iv: [0; NONCE_BYTES],
            cipher,
            secret_len: 0,
            sequence,
            secret: [0; SECRET_BYTES_MAX],
        }
    }

    pub(crate) const fn is_tls13(&self) -> bool {
        self.secret_len > 0
    }

    pub(crate) const fn cipher(&self) -> Cipher {
        self.cipher
    }

    pub(crate) fn key(&self) -> &[u8] {
        &self.key[..self.cipher.key_len()]
    }

    /// The number of the next record.
    pub(crate) const fn sequence(&self) -> u64 {
        self.sequence
    }

    /// The nonce of the next record (RFC 8446 §5.3, RFC 7905 §2).
    pub(crate) fn nonce(&self) -> [u8; NONCE_BYTES] {
        let mut nonce = self.iv;
        for (byte, number) in nonce[4..].iter_mut().zip(self.sequence.to_be_bytes()) {
            *byte ^= number;
        }
        nonce
    }

    /// Goes on to the next record.
    pub(crate) fn step(&mut self) {
        // A peer would need longer than the sun.
        self.sequence = self.sequence.checked_add(1).expect("fewer than 2^64 records");
    }

    /// Goes on to the keys that follow these: a KeyUpdate (RFC 8446 §7.2).
    pub(crate) fn update(&mut self) {
        let mut next = [0; SECRET_BYTES_MAX];
        let len = usize::from(self.secret_len);
        expand_label(self.secret(), b"traffic upd", &mut next[..len]);
        self.secret = next;
        next.zeroize();
        self.sequence = 0;
        self.derive();
    }

    fn secret(&self) -> &[u8] {
        &self.secret[..usize::from(self.secret_len)]
    }

    /// Makes the key and the IV of the secret (RFC 8446 §7.3).
    fn derive(&mut self) {
        let (mut key, len) = ([0; KEY_BYTES_MAX], self.cipher.key_len());
        expand_label(self.secret(), b"key", &mut key[..len]);
        self.key = key;
        key.zeroize();
        let mut iv = [0; NONCE_BYTES];
        expand_label(self.secret(), b"iv", &mut iv);
        self.iv = iv;
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        self.key.zeroize();
        self.iv.zeroize();
        self.secret.zeroize();
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut all = out.debug_struct("Keys");
        all.field("cipher", &self.cipher).field("sequence", &self.sequence).finish_non_exhaustive()
    }
}

/// The length of what is to be made.
struct Length(usize);

impl KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

/// HKDF-Expand-Label without a context (RFC 8446 §7.1).
fn expand_label(secret: &[u8], label: &[u8], out: &mut [u8]) {
    const PREFIX: &[u8] = b"tls13 ";
    let algorithm = if secret.len() == 32 { HKDF_SHA256 } else { HKDF_SHA384 };
    let byte = |count: usize| [u8::try_from(count).expect("a short text, a short key")];
    let (length, label_len) = (byte(out.len()), byte(PREFIX.len() + label.len()));
    let info = [&[0], &length[..], &label_len, PREFIX, label, &[0]];
    let prk = Prk::new_less_safe(algorithm, secret);
    let okm = prk.expand(&info, Length(out.len())).expect("fewer bytes than 255 hashes");
    okm.fill(out).expect("the length that was asked for");
}
