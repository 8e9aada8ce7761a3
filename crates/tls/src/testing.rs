//! Certificates for tests.

use std::path::Path;
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    PKCS_ECDSA_P256_SHA256, SignatureAlgorithm,
};

use crate::pair::Pair;
use crate::pem::Source;

/// An authority, with its certificate in PEM.
pub(crate) struct Authority {
    pub(crate) issuer: Issuer<'static, KeyPair>,
    pub(crate) certificate: String,
}

impl Authority {
    pub(crate) fn new(name: &str) -> Self {
        Self::of(None, params(name, &[]))
    }

    /// One that `root` has issued a certificate for.
    pub(crate) fn below(root: &Self, name: &str) -> Self {
        Self::of(Some(root), params(name, &[]))
    }

    /// One with a name and a time of validity of its own.
    pub(crate) fn of(root: Option<&Self>, mut params: CertificateParams) -> Self {
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate().unwrap();
        let certificate = match root {
            Some(root) => params.signed_by(&key, &root.issuer),
            None => params.self_signed(&key),
        };
        let certificate = certificate.unwrap().pem();
        Self { issuer: Issuer::new(params, key), certificate }
    }

    /// A certificate and its key.
    pub(crate) fn issue(&self, params: &CertificateParams) -> (String, KeyPair) {
        let key = KeyPair::generate().unwrap();
        (params.signed_by(&key, &self.issuer).unwrap().pem(), key)
    }
}

pub(crate) fn params(common: &str, names: &[&str]) -> CertificateParams {
    let names: Vec<_> = names.iter().map(|&name| name.to_owned()).collect();
    let mut params = CertificateParams::new(names).unwrap();
    params.distinguished_name.push(DnType::CommonName, common);
    params
}

/// A self-signed certificate and its key, in PEM.
pub(crate) fn self_signed(
    params: &CertificateParams,
    kind: &'static SignatureAlgorithm,
) -> (String, String) {
    let key = KeyPair::generate_for(kind).unwrap();
    (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
}

/// A pair for some names, with a key for ECDSA P-256.
pub(crate) fn pair(names: &[&str]) -> Arc<Pair> {
    pair_of(names, &PKCS_ECDSA_P256_SHA256)
}

/// A pair for some names.
pub(crate) fn pair_of(names: &[&str], kind: &'static SignatureAlgorithm) -> Arc<Pair> {
    let (certificate, key) = self_signed(&params("test", names), kind);
    Arc::new(read(&[&certificate, &key]).unwrap())
}

/// Reads a pair from one file, which has all these texts.
pub(crate) fn read(texts: &[&str]) -> Result<Pair, crate::Fault> {
    Pair::read(source("pair.pem", texts.concat().as_bytes()), None)
}

pub(crate) fn source<'a>(path: &'a str, bytes: &'a [u8]) -> Source<'a> {
    Source { path: Path::new(path), bytes }
}
