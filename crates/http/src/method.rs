//! Request methods.
//!
//! Reading list: RFC 9110 §9.

use core::fmt;

/// A request method (RFC 9110 §9). Methods are case-sensitive.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Method<'a> {
    /// `GET`
    Get,
    /// `HEAD`
    Head,
    /// `OPTIONS`
    Options,
    /// `POST`
    Post,
    /// `PUT`
    Put,
    /// `PATCH`
    Patch,
    /// `DELETE`
    Delete,
    /// `TRACE`
    Trace,
    /// `CONNECT`
    Connect,
    /// Any other token. A server that does not know it responds with 501, not 405.
    Other(&'a [u8]),
}

impl<'a> Method<'a> {
    /// The method of this token.
    #[inline]
    pub fn of_token(token: &'a [u8]) -> Self {
        match token {
            b"GET" => Self::Get,
            b"HEAD" => Self::Head,
            b"OPTIONS" => Self::Options,
            b"POST" => Self::Post,
            b"PUT" => Self::Put,
            b"PATCH" => Self::Patch,
            b"DELETE" => Self::Delete,
            b"TRACE" => Self::Trace,
            b"CONNECT" => Self::Connect,
            other => Self::Other(other),
        }
    }

    /// The method as it stands in a request.
    pub fn as_bytes(&self) -> &'a [u8] {
        match self {
            Self::Get => b"GET",
            Self::Head => b"HEAD",
            Self::Options => b"OPTIONS",
            Self::Post => b"POST",
            Self::Put => b"PUT",
            Self::Patch => b"PATCH",
            Self::Delete => b"DELETE",
            Self::Trace => b"TRACE",
            Self::Connect => b"CONNECT",
            Self::Other(token) => token,
        }
    }

    /// Returns whether this crate has a name for the method. A server that does not allow a known method
    /// responds with 405, to an unknown one with 501.
    pub fn is_known(&self) -> bool {
        !matches!(self, Self::Other(_))
    }
}

impl fmt::Debug for Method<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.as_bytes().escape_ascii(), f)
    }
}
