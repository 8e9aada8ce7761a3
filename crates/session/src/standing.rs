//! The decision of a route's conditions about a request. It goes with the request while the request waits, so the conditions
//! are asked once.

use core::num::NonZeroU32;

use http::Status;

use crate::reason::Reason;

/// The decision about a request so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Standing {
    /// No condition was asked.
    #[default]
    New,
    /// The request, or the request that it belongs to, has met the limits before: no rate counts it again. An access check
    /// is never left out for it.
    Counted,
    /// The request was refused, and stays refused.
    Refused(Refusal),
}

/// The reason why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The client may not use the route.
    Forbidden,
    /// The client has too many connections, and this one is among the last. It is to be closed.
    Connections,
    /// The client asks too often, and may ask again after this number of seconds.
    Requests(NonZeroU32),
    /// The fields of the request name different clients.
    Conflict,
    /// The body is too long. The connection is to be closed, because the body will not be read.
    BodyTooLong,
    /// The rules for clients of TLS have changed since the handshake. The connection is to be closed: the client has to
    /// connect again.
    Outdated,
}

// Each request has a standing, which one store can write.
const _: () = assert!(size_of::<Standing>() <= 8);

impl Standing {
    /// Returns true if no condition was asked.
    #[must_use]
    pub const fn is_new(self) -> bool {
        matches!(self, Self::New)
    }
}

impl From<Result<(), Refusal>> for Standing {
    fn from(decision: Result<(), Refusal>) -> Self {
        decision.map_or_else(Self::Refused, |()| Self::Counted)
    }
}

impl Refusal {
    /// The same for the operator.
    #[must_use]
    pub const fn reason(self) -> &'static Reason {
        match self {
            Self::Forbidden => &Reason::Access,
            Self::Connections => &Reason::Connections,
            Self::Requests(_) => &Reason::Requests,
            Self::Conflict => &Reason::Conflict,
            Self::BodyTooLong => &Reason::BodyTooLong,
            Self::Outdated => &Reason::Outdated,
        }
    }

    /// The status of the response.
    #[must_use]
    pub const fn status(self) -> Status {
        match self {
            Self::Forbidden => Status::Forbidden,
            Self::Connections | Self::Requests(_) => Status::TooManyRequests,
            Self::Conflict => Status::BadRequest,
            Self::BodyTooLong => Status::ContentTooLarge,
            Self::Outdated => Status::MisdirectedRequest,
        }
    }
}
