//! The TLS of a site: its certificates, its demands on clients, and what becomes of requests without TLS.

use std::path::PathBuf;

use clap::ValueEnum;

/// The TLS of a site, for its listeners with TLS. By default it has a self-signed certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    /// The files of the certificates and their keys, in the order of the configuration; each certificate once. If there
    /// are none, the server makes a self-signed certificate in memory.
    pub pairs: Vec<TlsFiles>,
    /// True if the certificate comes by ACME. Its file is the only pair, and may be missing: then it was not issued yet.
    pub is_acme: bool,
    /// The versions of TLS and the algorithms that clients may use.
    pub profile: TlsProfile,
    /// The demands on certificates of clients. By default clients are not asked for certificates.
    pub client: Option<TlsClients>,
}

/// The files of a certificate and of its key, both in the format PEM.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TlsFiles {
    /// The file of the certificate, which may have further certificates of its chain.
    pub certificate: PathBuf,
    /// The file of the private key, if it is another one.
    pub key: Option<PathBuf>,
}

impl TlsFiles {
    /// Makes the pair of a certificate and the file of its key, which may be the same file.
    #[must_use]
    pub fn new(certificate: PathBuf, key: Option<PathBuf>) -> Self {
        let key = key.filter(|key| *key != certificate);
        Self { certificate, key }
    }
}

/// The versions of TLS and the algorithms that clients may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, ValueEnum)]
pub enum TlsProfile {
    /// TLS 1.3 only.
    Modern,
    /// TLS 1.3, and TLS 1.2 with authenticated encryption (AEAD) and ephemeral keys (ECDHE) only.
    #[default]
    Intermediate,
}

/// The treatment of requests without TLS. What a trusted proxy says of the scheme of its client counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, ValueEnum)]
pub enum Https {
    /// They are answered as others are.
    #[default]
    Allow,
    /// They are redirected to the same URL with `https`, whose host is one of the site.
    Redirect,
}

/// The demands on certificates of clients.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TlsClients {
    /// The file of the authorities whose certificates clients may have, in the format PEM.
    pub ca: PathBuf,
    /// True if a client without a certificate is refused. By default true.
    pub require: bool,
    /// The file of the revocation lists of these authorities, in the format PEM. By default no certificate is revoked.
    pub crl: Option<PathBuf>,
}

impl TlsClients {
    /// Clients need a certificate of these authorities.
    #[must_use]
    pub const fn new(ca: PathBuf) -> Self {
        Self { ca, require: true, crl: None }
    }
}
