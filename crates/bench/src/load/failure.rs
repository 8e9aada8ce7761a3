//! The reasons why a request fails.

use core::fmt;

/// The reasons why a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Failure {
    /// No connection: refused, unreachable.
    Connect,
    /// No local port left to connect from.
    Ports,
    /// The connection was reset or closed within the exchange.
    Closed,
    /// No complete response within the time limit.
    Timeout,
    /// Not a response.
    Malformed,
    /// Another status than 200.
    Status,
    /// Other bytes than those of the file, or another number of them.
    Bytes,
    /// Without a response and without a timeout at the end of the load.
    Unfinished,
}

impl Failure {
    /// All kinds of failures.
    pub const ALL: [Self; 8] = [
        Self::Connect,
        Self::Ports,
        Self::Closed,
        Self::Timeout,
        Self::Malformed,
        Self::Status,
        Self::Bytes,
        Self::Unfinished,
    ];
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Connect => "not connected",
            Self::Ports => "no local port left",
            Self::Closed => "connection lost",
            Self::Timeout => "timed out",
            Self::Malformed => "malformed",
            Self::Status => "status not 200",
            Self::Bytes => "wrong bytes",
            Self::Unfinished => "unanswered at the end",
        })
    }
}
