//! The one place that names the parts that attach to the router of each worker: an authorizer, a wrapper, a copier.

use handler::attach::{Attachments, HasSay, NO_AUTHORIZER};

/// Makes the parts of one worker, on its own thread. There are none yet.
pub(crate) fn attachments() -> Attachments {
    Attachments::default()
}

/// Says for which routes [`attachments`] has an authorizer, for `samum explain`.
pub(crate) const AUTHORIZES: HasSay = NO_AUTHORIZER;
