//! The verification of a server's certificate, and words for what is wrong with it.

use core::fmt;
use core::time::Duration;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, OtherError, SignatureScheme};

use super::day::day;
use super::roots::Roots;
use crate::x509::{Fields, Link};

/// The names of a certificate that are shown.
const NAMES_MAX: usize = 5;

/// Verifies certificates of servers, or accepts any.
#[derive(Debug)]
pub(super) struct Verifier {
    provider: Arc<CryptoProvider>,
    trusted: Option<Trusted>,
}

#[derive(Debug)]
struct Trusted {
    roots: Roots,
    by_chain: Arc<WebPkiServerVerifier>,
}

/// The reason why a certificate is not accepted, as a sentence that goes on after the name of its server.
#[derive(Debug)]
pub(super) struct NotAccepted(pub(super) String);

impl Verifier {
    pub(super) fn new(
        roots: Option<&Roots>,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Self, Box<dyn core::error::Error>> {
        let trusted = |roots: &Roots| {
            let store = Arc::clone(&roots.store);
            let builder = WebPkiServerVerifier::builder_with_provider(store, provider.clone());
            Ok::<_, Box<dyn core::error::Error>>(Trusted {
                roots: roots.clone(),
                by_chain: builder.build()?,
            })
        };
        Ok(Self { provider: Arc::clone(provider), trusted: roots.map(trusted).transpose()? })
    }
}

impl Trusted {
    /// Verifies a certificate that stands itself in the file of the authorities.
    fn verify_own(
        &self,
        certificate: &CertificateDer<'_>,
        name: &ServerName<'_>,
        now: UnixTime,
    ) -> Result<(), Error> {
        verify_server_name(&ParsedCertificate::try_from(certificate)?, name)?;
        let fields =
            Fields::read(certificate).map_err(|_| Error::from(CertificateError::BadEncoding))?;
        let time = |seconds: i64| {
            UnixTime::since_unix_epoch(Duration::from_secs(u64::try_from(seconds).unwrap_or(0)))
        };
        let (not_before, not_after) = (time(fields.not_before), time(fields.not_after));
        if now < not_before {
            return Err(CertificateError::NotValidYetContext { time: now, not_before }.into());
        }
        if now > not_after {
            return Err(CertificateError::ExpiredContext { time: now, not_after }.into());
        }
        Ok(())
    }

    /// The words for an error about a certificate.
    fn words(&self, error: &CertificateError, certificate: &CertificateDer<'_>) -> String {
        let link = Link::read(certificate).ok();
        match error {
            CertificateError::ExpiredContext { not_after, .. } => {
                format!("its certificate expired on {}: renew it there", day(not_after.as_secs()))
            }
            CertificateError::NotValidYetContext { not_before, .. } => format!(
                "its certificate is not valid before {}: the clock of one of the machines is wrong",
                day(not_before.as_secs())
            ),
            CertificateError::NotValidForNameContext { expected, .. } => {
                let names = names(certificate);
                let expected = expected.to_str();
                format!(
                    "its certificate is for {names} and not for {expected}: `upstream-tls = {{ name = … }}` names the one to expect"
                )
            }
            _ if link.as_ref().is_some_and(|link| link.subject == link.issuer) => {
                "its certificate is self-signed: `upstream-tls = { ca = … }` names a file with it if it is to be trusted"
                    .to_owned()
            }
            CertificateError::BadSignature => {
                let issuer = link.map_or_else(|| "an unknown one".to_owned(), |it| it.issuer);
                format!(
                    "its certificate, issued by {issuer}, was not signed by the authority of that name in {}: `upstream-tls = {{ ca = … }}` names another file",
                    self.roots.name
                )
            }
            CertificateError::UnknownIssuer => {
                let issuer = link.map_or_else(|| "an unknown one".to_owned(), |it| it.issuer);
                format!(
                    "its certificate is issued by {issuer}, which is none of the authorities of {}: `upstream-tls = {{ ca = … }}` names others",
                    self.roots.name
                )
            }
            other => format!("its certificate cannot be verified: {other}"),
        }
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(trusted) = &self.trusted else { return Ok(ServerCertVerified::assertion()) };
        let verified = if trusted.roots.own.iter().any(|own| own == end_entity) {
            trusted.verify_own(end_entity, server_name, now)
        } else {
            let by_chain = &trusted.by_chain;
            by_chain
                .verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
                .map(drop)
        };
        match verified {
            Ok(()) => Ok(ServerCertVerified::assertion()),
            Err(Error::InvalidCertificate(error)) => {
                let words = NotAccepted(trusted.words(&error, end_entity));
                Err(CertificateError::Other(OtherError(Arc::new(words))).into())
            }
            Err(other) => Err(other),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// The names of a certificate, for the operator.
fn names(certificate: &CertificateDer<'_>) -> String {
    let names = Fields::read(certificate).map(|fields| fields.names).unwrap_or_default();
    let shown: Vec<_> = names.iter().take(NAMES_MAX).map(ToString::to_string).collect();
    match (shown.len(), names.len().saturating_sub(NAMES_MAX)) {
        (0, _) => "no name".to_owned(),
        (_, 0) => shown.join(", "),
        (_, more) => format!("{} and {more} more", shown.join(", ")),
    }
}

impl fmt::Display for NotAccepted {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl core::error::Error for NotAccepted {}
