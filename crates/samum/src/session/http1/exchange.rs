//! The requests whose responses have not begun.

use core::time::Duration;

use http::{HeadBuf, Reject};
use http1::Framing;
use ring::Time;
use sendfile::Weight;

use crate::handler::{AnswerSize, Search};

/// What HTTP/1 knows of a request beside its head.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Asked {
    /// Whether the client waits to be invited to send the body.
    pub(super) expect_continue: bool,
    /// Whether its body, in chunks, has not been skipped yet: the response has to report its faults.
    pub(super) skips_body_first: bool,
    /// Whether it is the last of the connection.
    pub(super) last: bool,
    /// When its head was complete.
    pub(super) at: Time,
    /// When its answer was last looked for.
    pub(super) since: Time,
    /// The time for which its answer was looked for.
    pub(super) found: Duration,
}

impl Asked {
    /// What a request says, whose body will be skipped.
    #[inline]
    pub(super) fn of(request: &http1::Request<'_>, at: Time) -> Self {
        Self {
            at,
            since: at,
            found: Duration::ZERO,
            expect_continue: request.expect_continue,
            skips_body_first: request.framing == Framing::Chunked && request.keep_alive,
            last: !request.keep_alive,
        }
    }
}

/// A request whose response has not begun.
#[derive(Debug)]
pub(super) enum Exchange {
    /// Nothing is wrong with it so far.
    Asked { request: u32, head: HeadBuf, asked: Asked, lookup: Lookup },
    /// It was refused, for this reason. Its head, unless that could not be understood.
    Refused(Reject, Option<(HeadBuf, Asked)>),
}

/// How far the answer to a request has been found.
#[derive(Debug)]
pub(super) enum Lookup {
    /// The handler will deliver it.
    Pending(Option<Box<dyn Search>>),
    /// The connection keeps it.
    Found(AnswerSize),
    /// It is too large to be kept, and is found again when its turn comes.
    Postponed,
}

impl Exchange {
    /// Whether its response can begin.
    pub(super) const fn is_ready(&self) -> bool {
        match self {
            Self::Asked { asked, lookup, .. } => {
                !matches!(lookup, Lookup::Pending(_)) && !asked.skips_body_first
            }
            Self::Refused(..) => true,
        }
    }

    pub(super) fn weight(&self) -> Weight {
        let mut weight = Weight { own: size_of::<Self>() as u64, shared: 0 };
        match self {
            Self::Asked { head, .. } | Self::Refused(_, Some((head, _))) => {
                weight.own += head.memory() as u64;
            }
            Self::Refused(_, None) => {}
        }
        if let Self::Asked { lookup, .. } = self {
            match lookup {
                Lookup::Found(size) => weight.shared += size.shared,
                Lookup::Pending(Some(search)) => weight.own += search.weight(),
                Lookup::Pending(None) | Lookup::Postponed => {}
            }
        }
        weight
    }

    /// The request, unless its head could not be understood.
    pub(super) fn into_request(self) -> Option<(HeadBuf, Asked)> {
        match self {
            Self::Asked { head, asked, .. } => Some((head, asked)),
            Self::Refused(_, request) => request,
        }
    }
}
