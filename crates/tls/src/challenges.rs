//! Challenges of authorities by handshakes (tls-alpn-01, RFC 8737).
//!
//! An authority begins a handshake with one protocol only, `acme-tls/1`, for a name. If a challenge waits for that name, the
//! authority is shown a certificate with the answer, and the connection ends with the handshake. Any other client with that
//! protocol gets the handshake of a site, which fails because no site speaks it.

use core::fmt;
use core::sync::atomic::{AtomicBool, Ordering};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use rcgen::{
    CertificateParams, CustomExtension, DistinguishedName, KeyPair, PKCS_ECDSA_P256_SHA256,
};
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use rustls::pki_types::PrivateKeyDer;
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::version::{TLS12, TLS13};
use zeroize::{Zeroize as _, Zeroizing};

use crate::fault::{Cause, Fault};
use crate::provider::provider;

/// The protocol of such handshakes.
const PROTOCOL: &[u8] = b"acme-tls/1";

/// The challenges that wait, for all threads.
#[derive(Default)]
pub(crate) struct Challenges {
    /// True if there are some. Each change is a release, so a thread that sees it sees the settings, too.
    are_pending: AtomicBool,
    /// The settings of their handshakes, by name in lower case.
    by_name: Mutex<HashMap<String, Arc<ServerConfig>>>,
}

impl Challenges {
    /// Replaces all challenges: names, and the SHA-256 of the answer.
    pub(crate) fn replace(&self, all: &[(String, [u8; 32])]) -> Result<(), Fault> {
        let settings =
            |(name, answer): &(String, [u8; 32])| Ok((name.clone(), settings(name, answer)?));
        let all: HashMap<_, _> = all.iter().map(settings).collect::<Result<_, Fault>>()?;
        let are_pending = !all.is_empty();
        *self.by_name.lock().unwrap_or_else(PoisonError::into_inner) = all;
        self.are_pending.store(are_pending, Ordering::Release);
        Ok(())
    }

    /// Returns the settings for a client, if it asks for the answer to a challenge that waits.
    #[inline]
    pub(crate) fn find(&self, hello: &ClientHello<'_>) -> Option<Arc<ServerConfig>> {
        if self.are_pending.load(Ordering::Acquire) { self.find_pending(hello) } else { None }
    }

    #[cold]
    fn find_pending(&self, hello: &ClientHello<'_>) -> Option<Arc<ServerConfig>> {
        let mut protocols = hello.alpn()?;
        if protocols.next() != Some(PROTOCOL) || protocols.next().is_some() {
            return None;
        }
        let name = hello.server_name()?.to_ascii_lowercase();
        self.by_name.lock().unwrap_or_else(PoisonError::into_inner).get(&name).cloned()
    }
}

impl fmt::Debug for Challenges {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Challenges")
            .field("are_pending", &self.are_pending)
            .finish_non_exhaustive()
    }
}

/// The settings of a handshake that shows the answer for a name.
fn settings(name: &str, answer: &[u8; 32]) -> Result<Arc<ServerConfig>, Fault> {
    let fault = |error: rustls::Error| Fault::new(None, Cause::Settings(error.to_string()));
    let builder = ServerConfig::builder_with_provider(provider());
    let builder = builder.with_protocol_versions(&[&TLS13, &TLS12]).map_err(fault)?;
    let resolver = Arc::new(Answer(certified(name, answer)?));
    let mut config = builder.with_no_client_auth().with_cert_resolver(resolver);
    config.alpn_protocols = vec![PROTOCOL.to_vec()];
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

/// The certificate that is shown.
#[derive(Debug)]
struct Answer(Arc<CertifiedKey>);

impl ResolvesServerCert for Answer {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0))
    }
}

/// The certificate with an answer (RFC 8737 §3), and its key. It is no [`Pair`](crate::Pair): its critical extension is
/// unknown to all but authorities.
fn certified(name: &str, answer: &[u8; 32]) -> Result<Arc<CertifiedKey>, Fault> {
    let fault = |error: rcgen::Error| Fault::new(None, Cause::SelfSigned(error.to_string()));
    let mut params = CertificateParams::new([name.to_owned()]).map_err(fault)?;
    params.distinguished_name = DistinguishedName::new();
    params.custom_extensions = vec![CustomExtension::new_acme_identifier(answer)];
    let mut key = Zeroizing::new(KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(fault)?);
    let certificate = params.self_signed(&*key).map_err(fault)?;
    let private = Zeroizing::new(PrivateKeyDer::Pkcs8(key.serialize_der().into()));
    key.zeroize();
    let signing = any_supported_type(&private).map_err(|_| Fault::new(None, Cause::UnusableKey))?;
    Ok(Arc::new(CertifiedKey::new(vec![certificate.der().clone()], signing)))
}

#[cfg(test)]
mod tests;
