//! The facts that a complete handshake gives about a connection.

use rustls::server::ServerConnection;
use rustls::{CipherSuite, HandshakeKind, ProtocolVersion};
use sendfile::Handshake;

use crate::acceptor::Acceptor;
use crate::x509;

/// The facts of a complete handshake.
#[derive(Debug)]
pub(crate) struct Established {
    acceptor: Acceptor,
    /// The index of the site that the client has named.
    site: usize,
    version: &'static str,
    cipher: Option<&'static str>,
    server_name: Option<Box<str>>,
    client: Option<Box<str>>,
    is_resumed: bool,
}

impl Established {
    pub(crate) fn new(connection: &ServerConnection, acceptor: &Acceptor, site: usize) -> Self {
        let version = match connection.protocol_version() {
            Some(ProtocolVersion::TLSv1_3) => "TLSv1.3",
            _ => "TLSv1.2",
        };
        let certificate = connection.peer_certificates().and_then(|all| all.first());
        Self {
            acceptor: acceptor.clone(),
            site,
            version,
            cipher: connection.negotiated_cipher_suite().and_then(|suite| name_of(suite.suite())),
            server_name: connection.server_name().map(Into::into),
            client: certificate.and_then(|der| x509::subject(der)).map(Into::into),
            is_resumed: connection.handshake_kind() == Some(HandshakeKind::Resumed),
        }
    }
}

/// Returns the name of a suite at IANA. The names that rustls has for the suites of TLS 1.3 are its own.
fn name_of(suite: CipherSuite) -> Option<&'static str> {
    match suite {
        CipherSuite::TLS13_AES_128_GCM_SHA256 => Some("TLS_AES_128_GCM_SHA256"),
        CipherSuite::TLS13_AES_256_GCM_SHA384 => Some("TLS_AES_256_GCM_SHA384"),
        CipherSuite::TLS13_CHACHA20_POLY1305_SHA256 => Some("TLS_CHACHA20_POLY1305_SHA256"),
        suite => suite.as_str(),
    }
}

impl Handshake for Established {
    fn version(&self) -> &'static str {
        self.version
    }

    fn cipher(&self) -> Option<&'static str> {
        self.cipher
    }

    fn server_name(&self) -> Option<&str> {
        self.server_name.as_deref()
    }

    fn client(&self) -> Option<&str> {
        self.client.as_deref()
    }

    fn is_resumed(&self) -> bool {
        self.is_resumed
    }

    fn permits(&self, host: Option<&str>) -> bool {
        let is_same = |name: &str| host.is_some_and(|host| host.eq_ignore_ascii_case(name));
        if self.server_name.as_deref().is_some_and(is_same) {
            return true;
        }
        self.acceptor.permits(self.site, host)
    }
}
