//! The settings in the environment: `SAMUM_PRELOAD`, `SAMUM_PRELOAD_LOG`, `SAMUM_PRELOAD_STATS`, `SAMUM_PRELOAD_CACHE`,
//! `SAMUM_PRELOAD_READAHEAD`.

use core::ffi::CStr;
use core::sync::atomic::{AtomicPtr, AtomicU8, AtomicUsize, Ordering};

use pace::CHUNK_MIN;

use crate::sys;

/// A path from the environment, copied at start, because programs overwrite their environment (nginx does
/// to set its title).
pub(crate) struct Path {
    bytes: AtomicPtr<u8>,
    len: AtomicUsize,
}

/// The file for log lines. Unset: nothing is logged.
pub(crate) static LOG: Path = Path::unset();
/// The file for counts, to which `.PID` is added. Unset: no counts are written.
pub(crate) static STATS: Path = Path::unset();

/// The point at which to panic, in debug builds.
pub(crate) static PANIC: Path = Path::unset();

/// The bytes of memory that count as the machine's, in debug builds.
pub(crate) fn memory() -> Option<u64> {
    let value = sys::environment(c"SAMUM_PRELOAD_MEMORY").filter(|_| cfg!(debug_assertions))?;
    value.to_str().ok()?.parse().ok()
}

/// The files that stay in the page cache after they were sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Caching {
    /// All: the library does nothing about it.
    Always,
    /// Those that are requested often, as many as fit.
    Popular,
    /// None, except for pages that were there before.
    Never,
}

static CACHING: AtomicU8 = AtomicU8::new(Caching::Always as u8);

/// The files that stay in the page cache.
#[inline]
pub(crate) fn caching() -> Caching {
    const POPULAR: u8 = Caching::Popular as u8;
    const NEVER: u8 = Caching::Never as u8;
    match CACHING.load(Ordering::Relaxed) {
        POPULAR => Caching::Popular,
        NEVER => Caching::Never,
        _ => Caching::Always,
    }
}

/// The settings that are needed only at the start.
#[derive(Debug)]
pub(crate) struct Settings {
    /// False if the library is to do nothing.
    pub(crate) is_on: bool,
    /// The largest window in bytes, in whole blocks; none if it is not set.
    pub(crate) window: Option<u64>,
    /// A setting that was not understood, and counts as not set.
    pub(crate) refused: Option<&'static str>,
}

/// Reads the environment. Called once, before the program begins.
pub(crate) fn read() -> Settings {
    for (path, name) in [
        (&LOG, c"SAMUM_PRELOAD_LOG"),
        (&STATS, c"SAMUM_PRELOAD_STATS"),
        (&PANIC, c"SAMUM_PRELOAD_PANIC"),
    ] {
        if let Some(value) = sys::environment(name).filter(|value| !value.is_empty()) {
            path.set(value);
        }
    }
    let mut refused = None;
    let caching = sys::environment(c"SAMUM_PRELOAD_CACHE").and_then(|value| {
        let caching = caching_of(value.to_bytes());
        refused = caching.is_none().then_some("SAMUM_PRELOAD_CACHE (always, popular or never)");
        caching
    });
    CACHING.store(caching.unwrap_or(Caching::Always) as u8, Ordering::Relaxed);
    let window = sys::environment(c"SAMUM_PRELOAD_READAHEAD").and_then(|value| {
        let window = window_of(value.to_bytes());
        refused = if window.is_none() {
            Some("SAMUM_PRELOAD_READAHEAD (a number of bytes, at least 262144)")
        } else {
            refused
        };
        window
    });
    let is_on =
        sys::environment(c"SAMUM_PRELOAD").is_none_or(|value| value != c"off" && value != c"0");
    Settings { is_on, window, refused }
}

fn caching_of(text: &[u8]) -> Option<Caching> {
    match text {
        b"always" => Some(Caching::Always),
        b"popular" => Some(Caching::Popular),
        b"never" => Some(Caching::Never),
        _ => None,
    }
}

/// Reads the size of a window, which has whole blocks.
fn window_of(text: &[u8]) -> Option<u64> {
    let bytes: u64 = core::str::from_utf8(text).ok()?.parse().ok()?;
    (bytes >= CHUNK_MIN).then_some(bytes / CHUNK_MIN * CHUNK_MIN)
}

impl Path {
    const fn unset() -> Self {
        Self { bytes: AtomicPtr::new(core::ptr::null_mut()), len: AtomicUsize::new(0) }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_a_number_of_whole_blocks() {
        for (text, expected) in [
            (&b"262144"[..], Some(262_144)),
            (b"1000000", Some(786_432)),
            (b"262143", None),
            (b"0", None),
            (b"", None),
            (b"2m", None),
            (b"-262144", None),
            (b"99999999999999999999", None),
            (b"\xff", None),
        ] {
            assert_eq!(window_of(text), expected, "{text:?}");
        }
    }

    #[test]
    fn the_choices_of_caching_have_names() {
        for (name, expected) in [
            (&b"always"[..], Some(Caching::Always)),
            (b"popular", Some(Caching::Popular)),
            (b"never", Some(Caching::Never)),
            (b"Never", None),
            (b"", None),
        ] {
            assert_eq!(caching_of(name), expected);
        }
    }
}
