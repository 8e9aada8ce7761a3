//! Clients that speak another protocol than the expected HTTP/1: their refusal, and the message to the operator.

use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use ring::Time;

/// The minimum time between two messages about the same protocol, for all workers together: scanners try TLS
/// everywhere.
const REPORT_INTERVAL: Duration = Duration::from_secs(60);

/// The type of a TLS record with a handshake, with which each client begins (RFC 8446 §5.1). No request begins with it.
const HANDSHAKE: u8 = 22;
/// The record of a fatal alert, `protocol_version` (RFC 8446 §6). Its version is that of a first record, TLS 1.0, which
/// clients of all versions accept.
const ALERT: &[u8] = &[21, 3, 1, 0, 2, 2, 70];

/// A protocol that a client speaks in place of HTTP/1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum OtherProtocol {
    /// TLS.
    Tls,
    /// HTTP/2 with prior knowledge (RFC 9113 §3.4).
    Http2,
    /// A header of the PROXY protocol, which the listener does not expect.
    ProxyHeader,
}

impl OtherProtocol {
    /// Returns the protocol of the first bytes of a connection, if they are no request of HTTP/1.
    pub fn of(bytes: &[u8]) -> Option<Self> {
        if bytes.first() == Some(&HANDSHAKE) {
            Some(Self::Tls)
        } else if bytes.starts_with(b"PRI * HTTP/2") {
            Some(Self::Http2)
        } else if bytes.starts_with(b"PROXY ") || bytes.starts_with(b"\r\n\r\n\0") {
            Some(Self::ProxyHeader)
        } else {
            None
        }
    }

    /// The bytes that the client gets in place of a response that it would not understand.
    pub const fn alert(self) -> Option<&'static [u8]> {
        match self {
            Self::Tls => Some(ALERT),
            Self::Http2 | Self::ProxyHeader => None,
        }
    }

    /// The message for the operator, with the advice.
    pub fn text(self, client: &str) -> String {
        match self {
            Self::Tls => format!(
                "{client} speaks TLS to a listener for plain HTTP, and got a TLS alert (use http:// there, or have samum \
                 speak TLS: `listen = [{{ address = \"...\", tls = true }}]` and `tls` of the site, or `--tls` on the command \
                 line)"
            ),
            Self::Http2 => format!(
                "{client} begins with HTTP/2 where it is not spoken, and got a 505 (set `http2 = true` for the listener, choose \
                 it in the handshake of TLS, or let a proxy speak HTTP/1.1 to samum)"
            ),
            Self::ProxyHeader => format!(
                "{client} sends a header of the PROXY protocol to a listener that expects none, and got a 400 (set \
                 `proxy-protocol = true` for the listener and name the proxy in `trusted-proxies`, or let the proxy send \
                 none)"
            ),
        }
    }
}

/// The times at which each protocol was last reported.
#[derive(Debug, Default)]
pub struct Reported(Mutex<BTreeMap<OtherProtocol, Time>>);

impl Reported {
    /// Returns true if a protocol is to be reported again.
    pub fn is_due(&self, protocol: OtherProtocol, now: Time) -> bool {
        let mut reported = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = reported.get(&protocol).is_none_or(|then| now.since(*then) >= REPORT_INTERVAL);
        if is_due {
            reported.insert(protocol, now);
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_protocol_is_known_by_its_first_bytes() {
        use OtherProtocol::{Http2, ProxyHeader, Tls};
        for (bytes, protocol) in [
            (&b"\x16"[..], Some(Tls)),
            (b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03", Some(Tls)),
            (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", Some(Http2)),
            (b"PRI * HTTP/2", Some(Http2)),
            (b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n", Some(ProxyHeader)),
            (b"PROXY UNKNOWN\r\n", Some(ProxyHeader)),
            (b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c", Some(ProxyHeader)),
            (b"", None),
            (b"\x15\x03\x01", None),
            (b"\0\0\0", None),
            (b"GET / HTTP/3.0\r\n", None),
            (b"PRI * HTTP/9.0\r\n", None),
            (b"PROXYING / HTTP/1\r\n", None),
            (b"SSH-2.0-OpenSSH_9.6\r\n", None),
            (b"EHLO example.org\r\n", None),
        ] {
            assert_eq!(OtherProtocol::of(bytes), protocol, "{}", bytes.escape_ascii());
        }
    }

    #[test]
    fn the_operator_is_told_what_to_configure() {
        for (protocol, advice) in [
            (OtherProtocol::Tls, "`listen = [{ address = \"...\", tls = true }]`"),
            (OtherProtocol::Http2, "`http2 = true`"),
            (OtherProtocol::ProxyHeader, "`proxy-protocol = true`"),
        ] {
            let text = protocol.text("192.0.2.1");
            assert!(text.starts_with("192.0.2.1 ") && text.contains(advice), "{text}");
        }
    }

    #[test]
    fn the_operator_is_told_of_each_once_a_minute() {
        let reported = Reported::default();
        let at = |seconds: u64| Time::from_nanos(seconds * 1_000_000_000);
        let is_due = |seconds, protocol| reported.is_due(protocol, at(seconds));
        assert!(is_due(1, OtherProtocol::Tls));
        assert!(!is_due(60, OtherProtocol::Tls));
        assert!(is_due(60, OtherProtocol::ProxyHeader));
        assert!(is_due(61, OtherProtocol::Tls));
        assert!(!is_due(62, OtherProtocol::Tls));
    }
}
