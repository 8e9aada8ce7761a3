//! ctrl-C as a flag: who measures looks at it between two steps, and what was measured is kept.

use core::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use signal_hook::consts::{SIGINT, SIGTERM};

/// Set once, by a signal; never cleared.
static FLAG: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// From now on SIGINT and SIGTERM set the flag; a second one exits at once with 130.
///
/// # Errors
/// When the kernel refuses the handlers.
pub fn catch() -> Result<(), crate::Error> {
    let flag = Arc::clone(FLAG.get_or_init(Arc::default));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(&flag))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&flag)))
            .map_err(|error| format!("cannot catch signal {signal}: {error}"))?;
    }
    Ok(())
}

/// Has one come?
#[must_use]
pub fn is_set() -> bool {
    // Alone: nothing is published with it.
    FLAG.get().is_some_and(|flag| flag.load(Ordering::Relaxed))
}
