//! The clock of the system.

use std::time::{SystemTime, UNIX_EPOCH};

/// The time in seconds since 1970. A clock before that was not set, and counts as 0.
pub(crate) fn unix() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_secs()).unwrap_or(i64::MAX)
}
