//! The reasons why a connection to a server cannot go on, in words for the operator.

use core::fmt;

use rustls::{AlertDescription, CertificateError, Error, OtherError};
use tls_record::Fault;

use super::verifier::NotAccepted;

/// The alert by which a server of TLS 1.3 demands a certificate (RFC 8446 §6.2), and those by which it refuses one. The last
/// one says that a signature is wrong, perhaps that of an authority.
const CERTIFICATE_REQUIRED: u8 = 116;
const OF_CERTIFICATES: [u8; 8] = [42, 43, 44, 45, 46, 48, 49, 51];

/// The reason why a connection to a server cannot go on. Its text goes on after the name of the server, and ends without a
/// full stop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientFault {
    /// The server speaks something else.
    NotTls,
    /// The certificate of the server is not accepted, for this reason.
    NotAccepted(String),
    /// The server has ended the connection by an alert with this number, perhaps during the handshake.
    Alerted {
        /// Its number (RFC 8446 §6).
        number: u8,
        /// True if the handshake was not complete.
        is_shaking: bool,
    },
    /// The handshake has failed. The text is the detail, for experts.
    Handshake(String),
    /// The server has broken the protocol after the handshake.
    Record(Fault),
    /// The connection has ended without the end of TLS (close_notify), so bytes may be missing.
    Truncated,
    /// The connection has ended in the handshake.
    Ended,
}

impl ClientFault {
    /// The fault of a handshake.
    pub(super) fn of(error: &Error) -> Self {
        match error {
            Error::InvalidCertificate(CertificateError::Other(OtherError(why)))
                if why.is::<NotAccepted>() =>
            {
                Self::NotAccepted(why.to_string())
            }
            Error::AlertReceived(alert) => {
                Self::Alerted { number: u8::from(*alert), is_shaking: true }
            }
            other => Self::Handshake(other.to_string()),
        }
    }
}

impl From<Fault> for ClientFault {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Alerted(number) => Self::Alerted { number, is_shaking: false },
            other => Self::Record(other),
        }
    }
}

impl fmt::Display for ClientFault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotTls => out.write_str(
                "it does not speak TLS there: write `http://` if it speaks HTTP without TLS",
            ),
            Self::NotAccepted(why) => out.write_str(why),
            Self::Alerted { number: CERTIFICATE_REQUIRED, .. } => out.write_str(
                "it demands a certificate: `upstream-tls = { certificate = …, key = … }` names one",
            ),
            Self::Alerted { number, .. } if OF_CERTIFICATES.contains(number) => write!(
                out,
                "it does not accept the certificate of `upstream-tls`, or the lack of one (TLS alert {number}, {:?})",
                AlertDescription::from(*number)
            ),
            Self::Alerted { number, is_shaking } => {
                let when =
                    if *is_shaking { "refused the handshake" } else { "ended the connection" };
                write!(out, "it {when} (TLS alert {number}, {:?})", AlertDescription::from(*number))
            }
            Self::Handshake(detail) => write!(out, "the TLS handshake failed: {detail}"),
            Self::Record(Fault::Renegotiation) => {
                out.write_str("it asked for a second TLS handshake, which is refused")
            }
            Self::Record(fault) => write!(out, "it broke the TLS protocol: {fault}"),
            Self::Truncated => {
                out.write_str("the connection was closed without the end of TLS (close_notify)")
            }
            Self::Ended => out.write_str("the connection was closed in the TLS handshake"),
        }
    }
}

impl core::error::Error for ClientFault {}
