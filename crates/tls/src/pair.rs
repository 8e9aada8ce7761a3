//! Pairs of a chain of certificates and the private key of its first certificate.
//!
//! A pair is read from one file or two, which are in PEM. It is checked when it is read, so that no handshake can fail because
//! of it: the key belongs to the certificate, and is of a kind that the server can sign with. Times and names are not checked
//! here: [`check`](crate::check) reports them.

use core::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use rustls::Error;
use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::{CertifiedKey, SigningKey};

use crate::fault::{Cause, FILE_BYTES_MAX, Fault};
use crate::pem::{Sections, Source, is_binary};
use crate::x509::{Algorithm, Fields, Link, Refused, SubjectName};

/// A chain of certificates and the private key of the first. Its `Debug` has no part of the key, and no other way leads to
/// the bytes of the key: it can only sign.
pub struct Pair {
    /// The file of the chain, if it is in one.
    path: Option<PathBuf>,
    fields: Fields,
    /// One for each certificate.
    pub(crate) links: Vec<Link>,
    fingerprint: [u8; 32],
    certified: Arc<CertifiedKey>,
}

impl Pair {
    /// Reads a chain of certificates, the server's first, and its private key. Without `key` the key is in the file of the
    /// chain. The key may be in PKCS#8, PKCS#1 or SEC1. Its bytes are wiped, except those of the caller's `key`.
    ///
    /// # Errors
    ///
    /// A [`Fault`] with the path of the file to blame, and one of these causes: [`Cause::FileTooLarge`],
    /// [`Cause::TooManyCertificates`], [`Cause::CutOff`], [`Cause::Damaged`], [`Cause::JoinedLines`],
    /// [`Cause::NoCertificate`], [`Cause::NoKey`], [`Cause::EncryptedKey`], [`Cause::Unreadable`], [`Cause::Version1`],
    /// [`Cause::UnsupportedKey`], [`Cause::UnusableKey`], [`Cause::OtherKey`], [`Cause::NotFirst`].
    pub fn read(certificate: Source<'_>, key: Option<Source<'_>>) -> Result<Self, Fault> {
        let mut sections = Sections::read(certificate, FILE_BYTES_MAX)?;
        if sections.certificates.is_empty() {
            let is_binary = is_binary(certificate.bytes);
            return Err(Fault::new(certificate.path, Cause::NoCertificate { is_binary }));
        }
        let chain = core::mem::take(&mut sections.certificates);
        let sections_of_key =
            key.map_or(Ok(sections), |key| Sections::read(key, FILE_BYTES_MAX))?;
        let key_path = key.unwrap_or(certificate).path;
        let Some(private) = sections_of_key.key else {
            let cause = if sections_of_key.has_encrypted_key {
                Cause::EncryptedKey
            } else {
                let is_binary = key.is_some_and(|key| is_binary(key.bytes));
                Cause::NoKey { is_key_file: key.is_some(), is_binary }
            };
            return Err(Fault::new(key_path, cause));
        };
        Self::join(Some(certificate.path), chain, Some(key_path), &private)
    }

    /// Joins a chain, which is not empty, and a key. The paths are those of their files, if they are in some.
    pub(crate) fn join(
        path: Option<&Path>,
        chain: Vec<CertificateDer<'static>>,
        key_path: Option<&Path>,
        private: &PrivateKeyDer<'_>,
    ) -> Result<Self, Fault> {
        let fault = |cause| Fault::new(path, cause);
        let refused = |position| {
            move |refused| match refused {
                Refused::CutOff => Cause::CutOff,
                Refused::Unreadable(detail) => Cause::Unreadable { position, detail },
                Refused::Version1 => Cause::Version1,
                Refused::UnsupportedKey(kind) => Cause::UnsupportedKey(kind),
            }
        };
        let fields = Fields::read(&chain[0]).map_err(refused(1)).map_err(fault)?;
        let links = chain.iter().zip(1..);
        let links = links.map(|(der, position)| Link::read(der).map_err(refused(position)));
        let links = links.collect::<Result<_, _>>().map_err(fault)?;
        let signing =
            any_supported_type(private).map_err(|_| Fault::new(key_path, Cause::UnusableKey))?;
        match belongs(&chain[0], &signing) {
            Ok(()) => {}
            Err(Error::InconsistentKeys(_)) => {
                let owner = chain.iter().position(|other| belongs(other, &signing).is_ok());
                return Err(match owner {
                    Some(index) => fault(Cause::NotFirst { position: index + 1 }),
                    None => {
                        let certificate = path.map(Path::to_owned).unwrap_or_default();
                        Fault::new(key_path, Cause::OtherKey { certificate })
                    }
                });
            }
            Err(other) => {
                let detail = other.to_string();
                return Err(fault(Cause::Unreadable { position: 1, detail }));
            }
        }
        let mut fingerprint = [0; 32];
        fingerprint.copy_from_slice(digest(&SHA256, &chain[0]).as_ref());
        let certified = Arc::new(CertifiedKey::new(chain, signing));
        Ok(Self { path: path.map(Path::to_owned), fields, links, fingerprint, certified })
    }

    /// Returns the file of the chain, if it is in one.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Returns the name of the authority that has issued the certificate, such as `CN=R3,O=Let's Encrypt,C=US`.
    pub fn issuer(&self) -> &str {
        // The first link is that of the certificate.
        self.links.first().map_or("", |link| &link.issuer)
    }

    /// Returns the names that the certificate is valid for, in its order: its alternative names, or else its common name.
    pub fn names(&self) -> &[SubjectName] {
        &self.fields.names
    }

    /// Returns true if the name is the common name, which most clients do not accept.
    pub const fn has_common_name_only(&self) -> bool {
        self.fields.is_common_name
    }

    /// Returns the time from which the certificate is valid, in seconds since 1970.
    pub const fn not_before(&self) -> i64 {
        self.fields.not_before
    }

    /// Returns the last second in which the certificate is valid, in seconds since 1970.
    pub const fn not_after(&self) -> i64 {
        self.fields.not_after
    }

    /// Returns the kind of the key.
    pub const fn algorithm(&self) -> Algorithm {
        self.fields.algorithm
    }

    /// Returns the SHA-256 of the certificate. Two pairs with the same are the same to clients, but for their chains.
    pub const fn digest(&self) -> [u8; 32] {
        self.fingerprint
    }

    /// Returns the SHA-256 of the certificate as 32 pairs of hexadecimal digits with colons between them, as browsers and
    /// `openssl x509 -fingerprint -sha256` show it.
    pub fn fingerprint(&self) -> String {
        let digits: Vec<_> = self.fingerprint.iter().map(|byte| format!("{byte:02X}")).collect();
        digits.join(":")
    }

    /// Returns the chain and the key, for handshakes.
    pub fn certified(&self) -> Arc<CertifiedKey> {
        self.certified.clone()
    }

    /// Returns true if clients must refuse the certificate, because this server does not staple.
    pub(crate) const fn must_be_stapled(&self) -> bool {
        self.fields.must_be_stapled
    }

    /// Returns false if the certificate is only for something else than servers.
    pub(crate) const fn is_for_servers(&self) -> bool {
        self.fields.is_for_servers
    }

    /// Returns true if the certificate says where that of its issuer is.
    pub(crate) const fn names_issuer(&self) -> bool {
        self.fields.names_issuer
    }
}

impl fmt::Debug for Pair {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Pair")
            .field("path", &self.path)
            .field("fields", &self.fields)
            .field("fingerprint", &self.fingerprint())
            .finish_non_exhaustive()
    }
}

/// Returns an error if a key is not that of a certificate, or the certificate cannot be read.
fn belongs(certificate: &CertificateDer<'static>, key: &Arc<dyn SigningKey>) -> Result<(), Error> {
    CertifiedKey::new(vec![certificate.clone()], key.clone()).keys_match()
}

#[cfg(test)]
mod tests;
