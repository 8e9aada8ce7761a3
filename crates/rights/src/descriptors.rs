//! The number of descriptors that the process may have (getrlimit(2), `RLIMIT_NOFILE`).

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The number of descriptors that the process may have, once [`raise`] has raised it.
#[must_use]
pub fn limit() -> usize {
    number(getrlimit(Resource::Nofile).maximum)
}

/// Raises the limit to the hard limit; returns it, or the one that stays if it cannot be raised.
pub fn raise() -> usize {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    let is_raised = setrlimit(Resource::Nofile, raised).is_ok();
    number(if is_raised { limit.maximum } else { limit.current })
}

fn number(limit: Option<u64>) -> usize {
    limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(1 << 20)
}
