//! The ways in which a peer breaks the protocol, and the alerts that say so.

use core::fmt;

/// The meaning of an alert (RFC 8446 §6, RFC 5246 §7.2), by its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alert {
    /// Nothing follows.
    CloseNotify = 0,
    /// A record or a message came at the wrong time, or too often.
    UnexpectedMessage = 10,
    /// A record was not sealed with the keys of the connection.
    BadRecordMac = 20,
    /// A record was too long.
    RecordOverflow = 22,
    /// A field has a value that it must not have.
    IllegalParameter = 47,
    /// A message has a wrong length.
    DecodeError = 50,
    /// There is no second handshake on a connection.
    NoRenegotiation = 100,
}

impl Alert {
    /// The content of the record: how serious the alert is, and what it says.
    #[must_use]
    pub const fn bytes(self) -> [u8; 2] {
        let level = if matches!(self, Self::CloseNotify) { Level::WARNING } else { Level::FATAL };
        [level, self as u8]
    }
}

/// The levels of alerts (RFC 5246 §7.2).
pub(crate) struct Level;

impl Level {
    pub(crate) const WARNING: u8 = 1;
    pub(crate) const FATAL: u8 = 2;
}

/// Why a connection cannot go on. After one, nothing more is to be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The peer has ended the connection by an alert with this number.
    Alerted(u8),
    /// A message has a wrong length.
    Decode,
    /// Too many records without data, or too many warnings.
    Flood,
    /// A record was not sealed with the keys of the connection.
    Forged,
    /// A field has a value that it must not have.
    Illegal,
    /// A record is too long, or its content is.
    Overflow,
    /// The peer wants a second handshake on the connection.
    Renegotiation,
    /// A record or a message has a type that must not come here.
    Unexpected,
}

impl Fault {
    /// The alert for the peer: nothing if it has ended the connection itself (RFC 8446 §6.2).
    #[must_use]
    pub const fn alert(self) -> Option<Alert> {
        Some(match self {
            Self::Alerted(_) => return None,
            Self::Decode => Alert::DecodeError,
            // As BoringSSL says it.
            Self::Flood | Self::Unexpected => Alert::UnexpectedMessage,
            Self::Forged => Alert::BadRecordMac,
            Self::Illegal => Alert::IllegalParameter,
            Self::Overflow => Alert::RecordOverflow,
            Self::Renegotiation => Alert::NoRenegotiation,
        })
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::Alerted(number) => return write!(out, "the peer has sent alert {number}"),
            Self::Decode => "a message has a wrong length",
            Self::Flood => "there are too many records without data",
            Self::Forged => "a record was not sealed with the keys of the connection",
            Self::Illegal => "a field has a value that it must not have",
            Self::Overflow => "a record is too long",
            Self::Renegotiation => "the peer wants a second handshake",
            Self::Unexpected => "a record has a type that must not come here",
        };
        out.write_str(text)
    }
}

impl core::error::Error for Fault {}
