//! The secrets of a connection of TLS 1.3, from which its keys are made again at each KeyUpdate (RFC 8446 §7.2).
//!
//! rustls gives the keys of a connection away, and not the secrets; it tells the secrets only to the log that a `ServerConfig`
//! names. So here is a log that no one reads: it keeps the two secrets of the handshake that runs on this thread, until
//! the handshake fetches them. rustls' own object for the same purpose takes 560 bytes of each connection, and more
//! behind.

use core::cell::RefCell;
use core::fmt;

use rustls::KeyLog;
use zeroize::Zeroizing;

/// The secrets of both directions. They are wiped when they are dropped.
#[derive(Default)]
pub(crate) struct Secrets {
    pub(crate) client: Zeroizing<Vec<u8>>,
    pub(crate) server: Zeroizing<Vec<u8>>,
}

thread_local! {
    static TOLD: RefCell<Secrets> = RefCell::default();
}

impl Secrets {
    /// Takes the secrets that rustls has told on this thread since the last call; empty ones if it has told none.
    pub(crate) fn take() -> Self {
        TOLD.take()
    }
}

impl fmt::Debug for Secrets {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Secrets").finish_non_exhaustive()
    }
}

/// The object to which rustls tells the secrets. Nothing is written anywhere.
#[derive(Debug)]
pub(crate) struct Told;

impl KeyLog for Told {
    fn will_log(&self, label: &str) -> bool {
        matches!(label, "CLIENT_TRAFFIC_SECRET_0" | "SERVER_TRAFFIC_SECRET_0")
    }

    fn log(&self, label: &str, _client_random: &[u8], secret: &[u8]) {
        TOLD.with_borrow_mut(|told| {
            let place = match label {
                "CLIENT_TRAFFIC_SECRET_0" => &mut told.client,
                "SERVER_TRAFFIC_SECRET_0" => &mut told.server,
                // Secrets that no record after the handshake is sealed with.
                _ => return,
            };
            *place = Zeroizing::new(secret.to_vec());
        });
    }
}
