//! A client of TLS that accepts every certificate: for tests that look at the certificate themselves, or at something else.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, Error, SignatureScheme};

/// A verifier that accepts every certificate and every signature. A server must have a signature of one of its schemes.
#[derive(Debug)]
pub struct AnyCertificate(Vec<SignatureScheme>);

impl AnyCertificate {
    /// Asks for all signatures that this cryptography can verify.
    #[must_use]
    pub fn of(provider: &CryptoProvider) -> Arc<Self> {
        Self::signed_by(&provider.signature_verification_algorithms.supported_schemes())
    }

    /// Asks for signatures of these schemes only.
    #[must_use]
    pub fn signed_by(schemes: &[SignatureScheme]) -> Arc<Self> {
        Arc::new(Self(schemes.to_vec()))
    }
}

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.clone()
    }
}
