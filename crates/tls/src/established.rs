//! The facts that a complete handshake gives about a connection.

use std::rc::Rc;

use rustls::{CipherSuite, CommonState, HandshakeKind, ProtocolVersion};
use sendfile::{Alpn, Handshake};

use crate::acceptor::{Acceptor, HTTP2};
use crate::acceptors::Listening;
use crate::x509;

/// The facts of a complete handshake. Each connection has them for as long as it lives, so they are small.
#[derive(Debug)]
pub(crate) struct Established {
    listening: Rc<Listening>,
    /// The host that the client has asked for.
    host: Option<Box<str>>,
    client: Option<Box<str>>,
    suite: CipherSuite,
    /// The index of the site of that host.
    site: u32,
    /// True if the host is a name that the client has sent, and false if it is the address of the connection.
    is_name: bool,
    is_tls13: bool,
    is_resumed: bool,
    alpn: Alpn,
}

/// The host that a client has asked for by its handshake.
#[derive(Debug)]
pub(crate) struct Asked {
    /// The name that it has sent, or the address to which it has connected, or neither.
    pub(crate) host: Option<Box<str>>,
    /// False if the host is the address.
    pub(crate) is_name: bool,
}

impl Established {
    pub(crate) fn new(
        connection: &CommonState,
        listening: &Rc<Listening>,
        site: usize,
        Asked { host, is_name }: Asked,
    ) -> Self {
        let certificate = connection.peer_certificates().and_then(|all| all.first());
        // Without a suite there is no connection.
        let suite = connection.negotiated_cipher_suite().map(|suite| suite.suite());
        Self {
            listening: Rc::clone(listening),
            host,
            client: certificate.and_then(|der| x509::subject(der)).map(Into::into),
            suite: suite.unwrap_or(CipherSuite::Unknown(0)),
            site: u32::try_from(site).expect("an index of a site"),
            is_name,
            is_tls13: connection.protocol_version() == Some(ProtocolVersion::TLSv1_3),
            is_resumed: connection.handshake_kind() == Some(HandshakeKind::Resumed),
            alpn: match connection.alpn_protocol() {
                Some(HTTP2) => Alpn::Http2,
                _ => Alpn::Http1,
            },
        }
    }

    pub(crate) const fn is_tls13(&self) -> bool {
        self.is_tls13
    }

    /// The listener that has accepted the connection.
    pub(crate) const fn listening(&self) -> &Rc<Listening> {
        &self.listening
    }

    /// The index of the site of the host that the client has asked for, in the latest configuration.
    fn site_of(&self, latest: &Acceptor) -> usize {
        if latest.is_same(&self.listening.acceptor) {
            return self.site as usize;
        }
        latest.site_of(self.host.as_deref())
    }

    /// The memory of the facts, in bytes.
    pub(crate) fn weight(&self) -> usize {
        let texts = [&self.host, &self.client];
        size_of::<Self>()
            + texts.iter().map(|text| text.as_ref().map_or(0, |it| it.len())).sum::<usize>()
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

/// Returns true if a host of a request is this one, with or without a port.
fn is_of(asked: &str, host: &str) -> bool {
    let Some((host, port)) = host.split_at_checked(asked.len()) else { return false };
    let is_port = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit());
    host.eq_ignore_ascii_case(asked)
        && (port.is_empty() || port.strip_prefix(':').is_some_and(is_port))
}

impl Handshake for Established {
    fn version(&self) -> &'static str {
        if self.is_tls13 { "TLSv1.3" } else { "TLSv1.2" }
    }

    fn cipher(&self) -> Option<&'static str> {
        name_of(self.suite)
    }

    fn server_name(&self) -> Option<&str> {
        self.host.as_deref().filter(|_| self.is_name)
    }

    fn client(&self) -> Option<&str> {
        self.client.as_deref()
    }

    fn is_resumed(&self) -> bool {
        self.is_resumed
    }

    fn alpn(&self) -> Alpn {
        self.alpn
    }

    fn is_outdated(&self) -> bool {
        let (made, latest) = (&self.listening.acceptor, self.listening.latest());
        !latest.is_same(made)
            && !latest.has_rules_of(self.site_of(&latest), made, self.site as usize)
    }

    fn permits(&self, host: Option<&str>) -> bool {
        if let (Some(asked), Some(host)) = (&self.host, host)
            && is_of(asked, host)
        {
            return true;
        }
        let latest = self.listening.latest();
        latest.permits(self.site_of(&latest), host)
    }
}
