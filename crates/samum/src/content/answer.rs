//! Answers to requests, and the tickets of requests that wait for them.

use std::rc::Rc;

use http::Status;

use super::resource::Resource;

/// Names a request whose answer comes later. The caller chooses the two numbers; the content
/// returns them with the answer and gives them no meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket {
    /// The first number: the connection.
    pub connection: u64,
    /// The second number: the request on it.
    pub request: u32,
}

/// The answer to a request.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    /// The resource of the path.
    Resource(Rc<Resource>),
    /// A page for this status.
    Error(Status),
    /// A refusal, with a reason that the page shows.
    Rejected(http::Reject),
}

impl Answer {
    /// Returns the bytes of memory that it shares with the cache, and whether it keeps files open.
    pub(crate) fn holds(&self) -> (u64, bool) {
        match self {
            Self::Resource(resource) => (resource.memory as u64, resource.descriptors > 0),
            Self::Error(_) | Self::Rejected(_) => (0, false),
        }
    }
}

/// The result of [`Content::find`](super::Content::find).
#[derive(Debug)]
pub(crate) enum Found {
    Now(Answer),
    /// The answer will appear in [`Content::answers`](super::Content::answers).
    Later,
}
