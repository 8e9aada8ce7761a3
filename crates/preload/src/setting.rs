//! The settings in the environment: `SAMUM_PRELOAD`, `SAMUM_PRELOAD_LOG`, `SAMUM_PRELOAD_STATS`.

use core::ffi::CStr;
use core::sync::atomic::{AtomicPtr, Ordering};

use crate::sys;

/// A path from the environment, copied at start, because programs overwrite their environment (nginx does
/// to set its title).
pub(crate) struct Path {
    bytes: AtomicPtr<u8>,
    len: core::sync::atomic::AtomicUsize,
}

/// The file for log lines. Unset: nothing is logged.
pub(crate) static LOG: Path = Path::unset();
/// The file for counts, to which `.PID` is added. Unset: no counts are written.
pub(crate) static STATS: Path = Path::unset();

/// The point at which to panic, in debug builds.
pub(crate) static PANIC: Path = Path::unset();

/// Reads the environment. Called once, before the program begins.
///
/// Returns false if the library is to do nothing.
pub(crate) fn read() -> bool {
    for (path, name) in [
        (&LOG, c"SAMUM_PRELOAD_LOG"),
        (&STATS, c"SAMUM_PRELOAD_STATS"),
        (&PANIC, c"SAMUM_PRELOAD_PANIC"),
    ] {
        if let Some(value) = sys::environment(name).filter(|value| !value.is_empty()) {
            path.set(value);
        }
    }
    sys::environment(c"SAMUM_PRELOAD").is_none_or(|value| value != c"off" && value != c"0")
}

impl Path {
    const fn unset() -> Self {
        Self {
            bytes: AtomicPtr::new(core::ptr::null_mut()),
            len: core::sync::atomic::AtomicUsize::new(0),
        }
    }

    fn set(&self, value: &CStr) {
        if let Some(copy) = sys::keep(value.to_bytes()) {
            self.len.store(copy.len(), Ordering::Relaxed);
            // Pairs with `text`.
            self.bytes.store(copy.as_mut_ptr(), Ordering::Release);
        }
    }

    /// The path, if it is set.
    pub(crate) fn text(&self) -> Option<&'static [u8]> {
        // Pairs with `set`.
        let bytes = self.bytes.load(Ordering::Acquire);
        sys::kept(bytes, self.len.load(Ordering::Relaxed))
    }
}
