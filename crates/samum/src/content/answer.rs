//! How the content answers requests.

use std::rc::Rc;

use http::Status;

use super::resource::Resource;

/// Names a request whose answer comes later. The two numbers are the caller's; the content hands them
/// back with the answer and does not look at them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    /// The first number: the connection.
    pub connection: u64,
    /// The second number: the request on it.
    pub request: u32,
}

/// The answer to a request.
#[derive(Clone, Debug)]
pub enum Answer {
    /// What was found by the path.
    Resource(Rc<Resource>),
    /// The methods that are allowed.
    Options,
    /// Nothing can be sent.
    Error(Status),
    /// The request was refused, for a reason that the client is told.
    Rejected(http::Reject),
}

impl Answer {
    /// Bytes of memory that it shares with the cache, and whether it keeps files open.
    pub(crate) fn holds(&self) -> (u64, bool) {
        match self {
            Self::Resource(resource) => (resource.memory as u64, resource.descriptors > 0),
            Self::Options | Self::Error(_) | Self::Rejected(_) => (0, false),
        }
    }
}

/// The result of [`Content::find`](super::Content::find).
#[derive(Debug)]
pub(crate) enum Found {
    Now(Answer),
    /// The answer will be among [`Content::answers`](super::Content::answers).
    Later,
}
