//! The sections of a file in PEM (RFC 7468): certificates, a private key, lists of revoked certificates.
//!
//! Lines between sections, and sections with other labels, are skipped: `openssl pkcs12` writes attributes, `openssl
//! ecparam` writes parameters. The base64 text that the reader holds while it decodes a key is freed without being wiped;
//! the caller's bytes are the caller's to wipe.

use std::path::Path;

use rustls::pki_types::pem::{self, PemObject, SectionKind};
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use zeroize::{Zeroize, Zeroizing};

use crate::fault::{CERTIFICATES_MAX, Cause, Fault};

/// U+FEFF in UTF-8, at the beginning of a file.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// The bytes of a file, and its path for messages.
#[derive(Clone, Copy)]
pub struct Source<'a> {
    /// The path of the file. It is only shown.
    pub path: &'a Path,
    /// All bytes of the file. One byte more than the maximum of its kind is enough to be refused.
    pub bytes: &'a [u8],
}

/// The contents of a file.
pub(crate) struct Sections {
    /// In the order of the file.
    pub(crate) certificates: Vec<CertificateDer<'static>>,
    /// The first private key. Others are wiped.
    pub(crate) key: Option<Zeroizing<PrivateKeyDer<'static>>>,
    pub(crate) revocation_lists: Vec<CertificateRevocationListDer<'static>>,
    /// True if a private key is encrypted. It is no section of the above.
    pub(crate) has_encrypted_key: bool,
}

impl Sections {
    /// Reads a file of at most `bytes_max` bytes.
    pub(crate) fn read(source: Source<'_>, bytes_max: usize) -> Result<Self, Fault> {
        Self::read_many(source, bytes_max, CERTIFICATES_MAX)
    }

    /// Reads a file of at most `bytes_max` bytes with at most `certificates_max` certificates.
    pub(crate) fn read_many(
        source: Source<'_>,
        bytes_max: usize,
        certificates_max: usize,
    ) -> Result<Self, Fault> {
        let fault = |cause| Fault::new(source.path, cause);
        if source.bytes.len() > bytes_max {
            return Err(fault(Cause::FileTooLarge { bytes_max }));
        }
        // Editors of some systems write it.
        let bytes = source.bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(source.bytes);
        let mut sections = Self {
            certificates: Vec::new(),
            key: None,
            revocation_lists: Vec::new(),
            has_encrypted_key: lines(bytes).any(marks_encrypted_key),
        };
        if lines(bytes).any(is_joined) {
            return Err(fault(Cause::JoinedLines));
        }
        for section in <(SectionKind, Vec<u8>)>::pem_slice_iter(bytes) {
            match section {
                Ok((kind, der)) => sections.push(kind, der),
                // Lines of an encrypted key that say so are no base64.
                Err(pem::Error::Base64Decode(_)) if sections.has_encrypted_key => {}
                Err(error) => return Err(fault(cause(error, bytes))),
            }
            if sections.certificates.len() > certificates_max {
                return Err(fault(Cause::TooManyCertificates));
            }
        }
        Ok(sections)
    }

    fn push(&mut self, kind: SectionKind, mut der: Vec<u8>) {
        match kind {
            SectionKind::Certificate => self.certificates.push(der.into()),
            SectionKind::Crl => self.revocation_lists.push(der.into()),
            _ if self.key.is_some() => der.zeroize(),
            _ => self.key = PrivateKeyDer::from_pem(kind, der).map(Zeroizing::new),
        }
    }
}

impl core::fmt::Debug for Source<'_> {
    /// Without the bytes, which may be a key.
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        out.debug_struct("Source").field("path", &self.path).finish_non_exhaustive()
    }
}

/// Returns true for bytes that are no text: DER, which begins with a sequence.
pub(crate) fn is_binary(bytes: &[u8]) -> bool {
    bytes.first() == Some(&0x30)
}

/// The lines as the reader below separates them.
fn lines(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    bytes.split(|&byte| byte == b'\n' || byte == b'\r')
}

/// Returns true for lines that encrypted keys have: in PKCS#8 (RFC 5958), and in the older form of RFC 1421 §4.6.1.1.
fn marks_encrypted_key(line: &[u8]) -> bool {
    line.starts_with(b"-----BEGIN ENCRYPTED PRIVATE KEY-----")
        || line.starts_with(b"Proc-Type: 4,ENCRYPTED")
}

/// Returns true for a line that ends a section and begins another: files without a final line break were joined.
fn is_joined(line: &[u8]) -> bool {
    line.starts_with(b"-----END ") && line.windows(11).any(|part| part == b"-----BEGIN ")
}

fn cause(error: pem::Error, bytes: &[u8]) -> Cause {
    match error {
        pem::Error::MissingSectionEnd { .. } => Cause::CutOff,
        // The last line may be a part of what it was going to be.
        pem::Error::IllegalSectionStart { line } if bytes.ends_with(&line) => Cause::CutOff,
        pem::Error::IllegalSectionStart { .. } => {
            Cause::Damaged("a BEGIN line does not end in -----".to_owned())
        }
        pem::Error::Base64Decode(_) => Cause::Damaged("it is not in base64".to_owned()),
        other => Cause::Damaged(other.to_string()),
    }
}
