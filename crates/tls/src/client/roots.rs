//! The authorities that servers are verified by.

use core::fmt;
use std::sync::Arc;

use aws_lc_rs::digest::{Context, SHA256};
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use x509_cert::der::{AnyRef, Tag};
use x509_cert::name::Name;

use crate::fault::{Cause, FILE_BYTES_MAX, Fault};
use crate::pem::{Sections, Source, is_binary};

/// The bytes of the system's file of authorities. That of Debian has 220 KB, for 150 of them.
pub const ROOTS_BYTES_MAX: usize = 8 * 1024 * 1024;

/// The authorities that servers are verified by.
#[derive(Clone)]
pub struct Roots {
    pub(super) store: Arc<RootCertStore>,
    /// The certificates of a file of the operator. A server may have one of these itself.
    pub(super) own: Vec<CertificateDer<'static>>,
    /// The file, as it is named to the operator.
    pub(super) name: String,
    digest: [u8; 32],
}

impl Roots {
    /// Reads the authorities of the operator's choice.
    ///
    /// # Errors
    ///
    /// A [`Fault`] with the path of the file, and one of these causes: [`Cause::FileTooLarge`],
    /// [`Cause::TooManyCertificates`], [`Cause::CutOff`], [`Cause::Damaged`], [`Cause::JoinedLines`],
    /// [`Cause::NoCertificate`], [`Cause::Unreadable`].
    pub fn read(ca: Source<'_>) -> Result<Self, Fault> {
        let own = Sections::read(ca, FILE_BYTES_MAX)?.certificates;
        let mut store = RootCertStore::empty();
        for (certificate, position) in own.iter().zip(1..) {
            store.add(certificate.clone()).map_err(|error| {
                Fault::new(ca.path, Cause::Unreadable { position, detail: error.to_string() })
            })?;
        }
        Self::of(ca, store, own)
    }

    /// Reads the authorities of the system. Certificates that cannot be read are passed over, as other programs do: the
    /// operator has not chosen them.
    ///
    /// # Errors
    ///
    /// A [`Fault`] with the path of the file, and one of these causes: [`Cause::FileTooLarge`], [`Cause::CutOff`],
    /// [`Cause::Damaged`], [`Cause::JoinedLines`], [`Cause::NoCertificate`].
    pub fn read_system(source: Source<'_>) -> Result<Self, Fault> {
        let all = Sections::read_many(source, ROOTS_BYTES_MAX, usize::MAX)?.certificates;
        let mut store = RootCertStore::empty();
        store.add_parsable_certificates(all);
        Self::of(source, store, Vec::new())
    }

    fn of(
        source: Source<'_>,
        store: RootCertStore,
        own: Vec<CertificateDer<'static>>,
    ) -> Result<Self, Fault> {
        if store.is_empty() {
            let is_binary = is_binary(source.bytes);
            return Err(Fault::new(source.path, Cause::NoCertificate { is_binary }));
        }
        let mut context = Context::new(&SHA256);
        context.update(source.bytes);
        let mut digest = [0; 32];
        digest.copy_from_slice(context.finish().as_ref());
        let name = source.path.display().to_string();
        Ok(Self { store: Arc::new(store), own, name, digest })
    }

    /// Returns true if an authority has this name, in the form of [`Pair::issuer`](crate::Pair::issuer).
    #[must_use]
    pub fn has_authority(&self, name: &str) -> bool {
        let name_of = |subject| AnyRef::new(Tag::Sequence, subject).ok()?.decode_as::<Name>().ok();
        let mut names = self.store.roots.iter().filter_map(|root| name_of(&root.subject));
        names.any(|known| known.to_string() == name)
    }

    /// A digest of the file.
    pub(super) const fn digest(&self) -> &[u8; 32] {
        &self.digest
    }
}

impl fmt::Debug for Roots {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Roots").field("name", &self.name).finish_non_exhaustive()
    }
}
