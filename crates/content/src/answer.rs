//! The answers for paths.

use std::rc::Rc;

use http::Status;
use session::reason::Reason;

use super::resource::Resource;

/// The answer for a path.
#[derive(Clone, Debug)]
pub enum PathAnswer {
    /// The resource of the path.
    Resource(Rc<Resource>),
    /// A page for this status, and the reason for the operator.
    Error(Status, Reason),
    /// A refusal, with a reason that the page shows.
    Rejected(http::Reject),
}

impl PathAnswer {
    /// Returns the bytes of memory that it shares with the cache, and whether it keeps files open.
    pub fn holds(&self) -> (u64, bool) {
        match self {
            Self::Resource(resource) => (resource.memory as u64, resource.descriptors > 0),
            Self::Error(..) | Self::Rejected(_) => (0, false),
        }
    }
}

/// The result of [`Content::find`](super::Content::find).
#[derive(Debug)]
pub enum Found {
    /// The answer is there.
    Now(PathAnswer),
    /// The answer will appear in [`Content::answers`](super::Content::answers).
    Later,
}
