//! Certificates of clients: who issues them, and which are revoked.

use core::fmt;
use std::sync::Arc;

use aws_lc_rs::digest::{Context, SHA256};
use rustls::RootCertStore;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;

use crate::fault::{CRL_BYTES_MAX, Cause, FILE_BYTES_MAX, Fault};
use crate::pem::{Sections, Source, is_binary};
use crate::provider::provider;

/// The authorities whose certificates identify clients.
#[derive(Clone)]
pub struct Clients {
    verifier: Arc<dyn ClientCertVerifier>,
    /// A digest of all settings: tickets of other settings are not accepted.
    digest: [u8; 32],
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
        Ok(Self { verifier, digest })
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
