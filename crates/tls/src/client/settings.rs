//! The settings of connections to servers: who is trusted, and who we are.

use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use aws_lc_rs::digest::{Context, SHA256};
use rustls::ClientConfig;
use rustls::client::Resumption;
use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256;
use rustls::pki_types;
use rustls::sign::SingleCertAndKey;
use rustls::version::{TLS12, TLS13};

use super::roots::Roots;
use super::verifier::Verifier;
use crate::fault::{Cause, Fault};
use crate::pair::Pair;
use crate::provider::provider;
use crate::secrets::Told;

/// The names of servers whose sessions are kept for later connections with the same settings; the oldest goes first. There
/// are 8 tickets of TLS 1.3 for each (rustls).
const SESSIONS_MAX: usize = 256;

/// The settings of connections to servers.
#[derive(Clone)]
pub struct ClientSettings {
    pub(super) config: Arc<ClientConfig>,
    /// A digest of all settings: connections with others are other ones.
    digest: [u8; 32],
}

/// The settings of connections to servers, which a renewal replaces while workers use them.
#[derive(Debug)]
pub struct SharedClientSettings {
    current: Mutex<ClientSettings>,
    /// Counts replacements. A connection was made with the settings of one generation.
    generation: AtomicU64,
}

/// The name that the certificate of a server must have: a name in DNS, or an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerName(pub(super) pki_types::ServerName<'static>);

impl ServerName {
    /// Reads a name in DNS, or an address. An address is not told to the server (RFC 6066 §3).
    #[must_use]
    pub fn new(text: &str) -> Option<Self> {
        pki_types::ServerName::try_from(text.to_owned()).ok().map(Self)
    }
}

impl SharedClientSettings {
    /// These settings, until they are replaced.
    #[must_use]
    pub fn new(settings: ClientSettings) -> Arc<Self> {
        Arc::new(Self { current: Mutex::new(settings), generation: AtomicU64::new(0) })
    }

    /// The generation of the present settings.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// The present settings, which are of the present generation or a later one.
    pub fn get(&self) -> ClientSettings {
        self.current.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// New connections have these settings from now on. Connections of before are not to be used for further requests.
    pub fn replace(&self, settings: ClientSettings) {
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = settings;
        self.generation.fetch_add(1, Ordering::Release);
    }
}

impl ClientSettings {
    /// Servers are verified by `roots`; without them any certificate is taken. `pair` is shown to servers that ask for a
    /// certificate.
    ///
    /// # Errors
    ///
    /// [`Cause::Settings`].
    pub fn new(roots: Option<&Roots>, pair: Option<&Pair>) -> Result<Self, Fault> {
        let mut context = Context::new(&SHA256);
        context.update(&[u8::from(roots.is_some()), u8::from(pair.is_some())]);
        if let Some(roots) = roots {
            context.update(roots.digest());
        }
        let certified = pair.map(Pair::certified);
        for certificate in certified.iter().flat_map(|certified| &certified.cert) {
            context.update(&(certificate.len() as u64).to_be_bytes());
            context.update(certificate);
        }
        let mut digest = [0; 32];
        digest.copy_from_slice(context.finish().as_ref());

        let settings =
            |error: &dyn fmt::Display| Fault::new(None, Cause::Settings(error.to_string()));
        let provider = client_provider();
        let verifier = Verifier::new(roots, &provider).map_err(|error| settings(&error))?;
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13, &TLS12])
            .map_err(|error| settings(&error))?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier));
        let mut config = match certified {
            Some(certified) => {
                builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(certified)))
            }
            None => builder.with_no_client_auth(),
        };
        config.resumption = Resumption::in_memory_sessions(SESSIONS_MAX);
        config.enable_secret_extraction = true;
        config.key_log = Arc::new(Told);
        Ok(Self { config: Arc::new(config), digest })
    }
}

/// Both are the same if they trust the same servers and show the same certificate.
impl PartialEq for ClientSettings {
    fn eq(&self, other: &Self) -> bool {
        self.digest == other.digest
    }
}

impl Eq for ClientSettings {}

impl fmt::Debug for ClientSettings {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("ClientSettings").finish_non_exhaustive()
    }
}

/// The cryptography of connections to servers. AES with a key of 128 bits is preferred: it costs less on both sides.
fn client_provider() -> Arc<CryptoProvider> {
    let mut provider = CryptoProvider::clone(&provider());
    provider.cipher_suites.sort_by_key(|suite| *suite != TLS13_AES_128_GCM_SHA256);
    Arc::new(provider)
}
