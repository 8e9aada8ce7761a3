//! Errors about certificates, keys and lists of revoked certificates. They are for the operator: each says in which file
//! it is, and what to do.

use core::fmt;
use std::path::{Path, PathBuf};

/// The certificates of a file, its private keys aside: a chain has 2 to 4, a bundle of private authorities a dozen.
pub const CERTIFICATES_MAX: usize = 100;
/// The bytes of a file of certificates or keys: [`CERTIFICATES_MAX`] with 10 KiB each.
pub const FILE_BYTES_MAX: usize = 1024 * 1024;
/// The bytes of a file of revoked certificates: 40 for each of 400,000.
pub const CRL_BYTES_MAX: usize = 16 * 1024 * 1024;

/// An error, with the path of its file if it is in one. Its text begins with the path, ends without a full stop, and never
/// contains a part of a key. The text may have hidden characters of a path: the code that prints it escapes them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    path: Option<PathBuf>,
    cause: Cause,
}

/// The cause of a [`Fault`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The file has more bytes than a file of its kind may have.
    FileTooLarge {
        /// The maximum, in bytes.
        bytes_max: usize,
    },
    /// The file has more than [`CERTIFICATES_MAX`] certificates.
    TooManyCertificates,
    /// The file ends in the middle of a section: it is being written, or was copied in part.
    CutOff,
    /// A section of the file is not what its label says. The text is the detail, for experts.
    Damaged(String),
    /// The end of a section and the beginning of the next are on one line, so the second would be lost.
    JoinedLines,
    /// There is no certificate in the file.
    NoCertificate {
        /// True if the file seems to be in DER or PKCS#12.
        is_binary: bool,
    },
    /// There is no private key in the file.
    NoKey {
        /// True if the file was named as that of the key.
        is_key_file: bool,
        /// True if the file seems to be in DER.
        is_binary: bool,
    },
    /// There is no list of revoked certificates in the file.
    NoRevocationList,
    /// The private key is encrypted with a passphrase.
    EncryptedKey,
    /// A certificate of the file cannot be read.
    Unreadable {
        /// The position of the certificate in its file; the first has 1.
        position: usize,
        /// The detail, for experts.
        detail: String,
    },
    /// The certificate of the server is of X.509 version 1.
    Version1,
    /// The certificate has a key of a kind that is not supported. The text is its name, such as `RSA 1024`.
    UnsupportedKey(String),
    /// The private key has a kind or a form that is not supported, or is damaged.
    UnusableKey,
    /// The private key belongs to no certificate of the file.
    OtherKey {
        /// The file of the certificate.
        certificate: PathBuf,
    },
    /// The private key belongs to a certificate of the file that is not the first.
    NotFirst {
        /// The position of the certificate in its file; the first has 1.
        position: usize,
    },
    /// A list of revoked certificates cannot be used. The text is the detail, for experts.
    RefusedRevocationList(String),
    /// A site with TLS has no pair of a certificate and a key.
    NoPair {
        /// A host of the site, or `*` if it has none.
        site: String,
    },
    /// A self-signed certificate cannot be made. The text is the detail, for experts.
    SelfSigned(String),
    /// The settings cannot be used, or the system has no random numbers. The text is the detail, for experts.
    Settings(String),
}

impl Fault {
    /// An error in a file, or in none.
    pub(crate) fn new<'a>(path: impl Into<Option<&'a Path>>, cause: Cause) -> Self {
        Self { path: path.into().map(Path::to_owned), cause }
    }

    /// Returns the path of the file that the error is in, if it is in one.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Returns the cause.
    pub const fn cause(&self) -> &Cause {
        &self.cause
    }

    /// Returns the path as text, for a command that the operator is to run.
    fn file(&self) -> impl fmt::Display + use<'_> {
        self.path.as_deref().unwrap_or_else(|| Path::new("OLD")).display()
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(path) = &self.path {
            write!(out, "{}: ", path.display())?;
        }
        let file = self.file();
        match &self.cause {
            Cause::FileTooLarge { bytes_max } => write!(
                out,
                "the file is larger than {} MiB, the maximum for its kind: check that the path is right",
                bytes_max / (1024 * 1024)
            ),
            Cause::TooManyCertificates => write!(
                out,
                "the file has more than {CERTIFICATES_MAX} certificates: keep those that are needed"
            ),
            Cause::CutOff => out.write_str(
                "the file ends in the middle of a section: copy it again, to another name, and then rename it",
            ),
            Cause::Damaged(detail) => {
                write!(out, "a section of the file cannot be read ({detail}): copy the file again")
            }
            Cause::JoinedLines => out.write_str(
                "an END and a BEGIN are on one line, so a section would be lost: put a line break between them",
            ),
            Cause::NoCertificate { is_binary: false } => out.write_str(
                "the file has no certificate: a line -----BEGIN CERTIFICATE----- is expected",
            ),
            Cause::NoCertificate { is_binary: true } => write!(
                out,
                "the file is not in PEM: convert it, from DER by `openssl x509 -inform DER -in {file} -out NEW`, \
                 from PKCS#12 by `openssl pkcs12 -nodes -in {file} -out NEW`"
            ),
            Cause::NoKey { is_binary: true, .. } => write!(
                out,
                "the file is not in PEM: convert it, from DER by `openssl pkey -inform DER -in {file} -out NEW`"
            ),
            Cause::NoKey { is_key_file: false, is_binary: false } => {
                out.write_str("the file has no private key: name the file of the key, too")
            }
            Cause::NoKey { is_key_file: true, is_binary: false } => out.write_str(
                "the file has no private key: a line such as -----BEGIN PRIVATE KEY----- is expected",
            ),
            Cause::NoRevocationList => write!(
                out,
                "the file has no list of revoked certificates: a line -----BEGIN X509 CRL----- is expected; \
                 `openssl crl -inform DER -in {file} -out NEW` converts from DER"
            ),
            Cause::EncryptedKey => write!(
                out,
                "the private key is encrypted, and samum asks for no passphrase: \
                 decrypt it by `openssl pkey -in {file} -out NEW`"
            ),
            Cause::Unreadable { position, detail } => write!(
                out,
                "certificate {position} of the file cannot be read ({detail}): copy it again, or ask its issuer"
            ),
            Cause::Version1 => out.write_str(
                "the certificate is of X.509 version 1, which clients refuse: ask its issuer for one of version 3",
            ),
            Cause::UnsupportedKey(kind) => write!(
                out,
                "the certificate has a key of a kind that is not supported ({kind}): make another key by \
                 `openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out NEW`, \
                 and ask for a certificate for it"
            ),
            Cause::UnusableKey => out.write_str(
                "the private key cannot be used: it must be ECDSA with P-256, P-384 or P-521, RSA with 2048 to 8192 \
                 bits, or Ed25519, and in PKCS#8, PKCS#1 or SEC1",
            ),
            Cause::OtherKey { certificate } => write!(
                out,
                "the private key does not belong to the certificate in {}: \
                 name the key that the certificate was requested with",
                certificate.display()
            ),
            Cause::NotFirst { position } => write!(
                out,
                "the private key belongs to certificate {position} of the file: \
                 move that certificate to the beginning of the file"
            ),
            Cause::RefusedRevocationList(detail) => write!(
                out,
                "the list of revoked certificates cannot be used ({detail}): ask its issuer for one of version 2"
            ),
            Cause::NoPair { site } => {
                write!(out, "the site {site} has no certificate: name its file, or use \"self-signed\"")
            }
            Cause::SelfSigned(detail) => write!(
                out,
                "a self-signed certificate cannot be made ({detail}): check the hosts of the site"
            ),
            Cause::Settings(detail) => {
                write!(out, "the settings of TLS cannot be used ({detail}): report this as a bug")
            }
        }
    }
}

impl core::error::Error for Fault {}
