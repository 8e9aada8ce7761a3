//! Certificates of clients: who issues them, which are revoked, and why one is refused.

use core::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use aws_lc_rs::digest::{Context, SHA256};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{CertificateError, Error, RootCertStore};

use crate::fault::{CRL_BYTES_MAX, Cause, FILE_BYTES_MAX, Fault};
use crate::pem::{Sections, Source, is_binary};
use crate::provider::provider;
use crate::x509::{Link, ListHead};

/// The authorities whose certificates identify clients.
#[derive(Clone)]
pub struct Clients {
    verifier: Arc<dyn ClientCertVerifier>,
    /// A digest of all settings: tickets of other settings are not accepted.
    digest: [u8; 32],
    pub(crate) terms: Arc<Terms>,
}

/// The times of the authorities and of the lists of revoked certificates.
#[derive(Debug)]
pub(crate) struct Terms {
    pub(crate) ca: PathBuf,
    /// Those of authorities that can be read.
    pub(crate) authorities: Vec<Link>,
    pub(crate) crl: PathBuf,
    /// Those of lists that can be read.
    pub(crate) lists: Vec<ListHead>,
}

/// A reason why the certificate of a client is refused. Its text is a part of a sentence, with the remedy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Refusal {
    /// The client has sent no certificate, and must.
    Missing,
    /// No authority of the file has issued it.
    UnknownAuthority,
    /// It is not valid any more.
    Expired,
    /// It is not valid yet.
    NotYetValid,
    /// Its authority has revoked it.
    Revoked,
    /// No list says whether it is revoked.
    NoRevocationList,
    /// The list of its authority is out of date.
    OldRevocationList,
    /// It is for something else than clients.
    Purpose,
    /// A signature does not fit the key.
    Signature,
    /// It cannot be used.
    Unusable,
}

impl Refusal {
    /// The reason in an error of a handshake; `None` if the error is not about a certificate.
    pub(crate) fn of(error: &Error) -> Option<Self> {
        let error = match error {
            Error::NoCertificatesPresented => return Some(Self::Missing),
            Error::InvalidCertRevocationList(_) => return Some(Self::NoRevocationList),
            Error::InvalidCertificate(error) => error,
            _ => return None,
        };
        Some(match error {
            CertificateError::UnknownIssuer => Self::UnknownAuthority,
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => Self::Expired,
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                Self::NotYetValid
            }
            CertificateError::Revoked => Self::Revoked,
            CertificateError::BadSignature => Self::Signature,
            CertificateError::UnknownRevocationStatus => Self::NoRevocationList,
            CertificateError::ExpiredRevocationList
            | CertificateError::ExpiredRevocationListContext { .. } => Self::OldRevocationList,
            CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
                Self::Purpose
            }
            _ => Self::Unusable,
        })
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Missing => "it has sent no certificate (`require = false` lets it in without one)",
            Self::UnknownAuthority => {
                "no authority of `ca` has issued its certificate, or an intermediate certificate is missing"
            }
            Self::Expired => "its certificate has expired",
            Self::NotYetValid => "its certificate is not valid yet",
            Self::Revoked => "its certificate is revoked by `crl`",
            Self::NoRevocationList => "`crl` has no list of the authority of its certificate",
            Self::OldRevocationList => {
                "the list of `crl` for the authority of its certificate is out of date: fetch the current list"
            }
            Self::Purpose => "its certificate is not for clients (extended key usage)",
            Self::Signature => {
                "a signature does not fit: the authority of `ca` with the name of its issuer has another key, or it does not \
                 have the key of its certificate"
            }
            Self::Unusable => "its certificate is damaged, or of a kind that is not supported",
        })
    }
}

impl Clients {
    /// Reads the certificates of authorities, and lists of certificates that they have revoked. Each authority of a chain
    /// must have a list then, and a list that is out of date lets nobody in, as in other servers. If `require` is false,
    /// clients without a certificate are let in; those with a wrong one never are.
    ///
    /// # Errors
    ///
    /// A [`Fault`] with the path of the file to blame, and one of these causes: [`Cause::FileTooLarge`],
    /// [`Cause::TooManyCertificates`], [`Cause::CutOff`], [`Cause::Damaged`], [`Cause::JoinedLines`],
    /// [`Cause::NoCertificate`], [`Cause::Unreadable`], [`Cause::NoRevocationList`], [`Cause::RefusedRevocationList`].
    pub fn read(ca: Source<'_>, require: bool, crl: Option<Source<'_>>) -> Result<Self, Fault> {
        let authorities = Sections::read(ca, FILE_BYTES_MAX)?.certificates;
        if authorities.is_empty() {
            let is_binary = is_binary(ca.bytes);
            return Err(Fault::new(ca.path, Cause::NoCertificate { is_binary }));
        }
        let lists = match crl {
            Some(source) => Sections::read(source, CRL_BYTES_MAX)?.revocation_lists,
            None => Vec::new(),
        };
        if let Some(source) = crl.filter(|_| lists.is_empty()) {
            return Err(Fault::new(source.path, Cause::NoRevocationList));
        }
        let mut context = Context::new(&SHA256);
        context.update(&[u8::from(require)]);
        for der in authorities.iter().map(|der| &der[..]).chain(lists.iter().map(|der| &der[..])) {
            context.update(&(der.len() as u64).to_be_bytes());
            context.update(der);
        }
        let mut digest = [0; 32];
        digest.copy_from_slice(context.finish().as_ref());

        // Some old roots cannot be read in full; they are only not warned of.
        let terms = Arc::new(Terms {
            ca: ca.path.to_owned(),
            authorities: authorities.iter().filter_map(|der| Link::read(der).ok()).collect(),
            crl: crl.unwrap_or(ca).path.to_owned(),
            lists: lists.iter().filter_map(|der| ListHead::read(der).ok()).collect(),
        });
        let mut roots = RootCertStore::empty();
        for (certificate, position) in authorities.into_iter().zip(1..) {
            roots.add(certificate).map_err(|error| {
                Fault::new(ca.path, Cause::Unreadable { position, detail: error.to_string() })
            })?;
        }
        let mut builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider())
            .with_crls(lists)
            .enforce_revocation_expiration();
        if !require {
            builder = builder.allow_unauthenticated();
        }
        let verifier = builder.build().map_err(|error| {
            let cause = Cause::RefusedRevocationList(error.to_string());
            Fault::new(crl.unwrap_or(ca).path, cause)
        })?;
        Ok(Self { verifier, digest, terms })
    }

    pub(crate) fn verifier(&self) -> Arc<dyn ClientCertVerifier> {
        self.verifier.clone()
    }

    pub(crate) const fn digest(&self) -> [u8; 32] {
        self.digest
    }
}

impl fmt::Debug for Clients {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Clients").finish_non_exhaustive()
    }
}
