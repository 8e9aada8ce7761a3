//! A fault of ours must not end somebody else's program: a panic is caught where the program called us,
//! logged once, and from then on the library is off and everything is left to the kernel.
//!
//! What a thread can be cancelled in (`poll`, `select`, `accept`, `close`, a `fcntl` that waits) is never
//! called in here: the C library unwinds then, and to catch that would abort.

use core::panic::AssertUnwindSafe;
use core::sync::atomic::{AtomicBool, Ordering};
use std::panic::{self, PanicHookInfo};

use crate::{process, setting, stats};

#[cfg(not(panic = "unwind"))]
compile_error!("a panic would end the program: the library needs panic = \"unwind\"");

/// Set once the tables are there; never, if `SAMUM_PRELOAD=off`; and not any more when the fuse has blown.
static ON: AtomicBool = AtomicBool::new(false);

#[inline]
pub(crate) fn is_on() -> bool {
    // Acquire pairs with Release in `switch_on`.
    ON.load(Ordering::Acquire)
}

/// The tables are there.
pub(crate) fn switch_on() {
    ON.store(true, Ordering::Release);
}

/// From now on everything is left to the kernel; who waits is told. Returns whether it was on.
#[cold]
pub(crate) fn switch_off() -> bool {
    let was_on = ON.swap(false, Ordering::AcqRel);
    // Where that fails too, a socket may wait for ever. The program goes on.
    let _ = panic::catch_unwind(process::resume_all);
    was_on
}

/// Run what is ours of a call. `None`: it has failed, and the library is off.
#[inline]
pub(crate) fn run<T>(name: &str, ours: impl FnOnce() -> T) -> Option<T> {
    let ours = || {
        point(name);
        ours()
    };
    match panic::catch_unwind(AssertUnwindSafe(ours)) {
        Ok(value) => Some(value),
        Err(fault) => {
            // To drop it could fail again.
            core::mem::forget(fault);
            switch_off();
            None
        }
    }
}

/// Panics if `SAMUM_PRELOAD_PANIC` says so, in debug builds: for tests.
#[inline]
pub(crate) fn point(name: &str) {
    if cfg!(debug_assertions) && setting::PANIC.text() == Some(name.as_bytes()) {
        panic!("at {name}, on purpose");
    }
}

/// Log panics, once, instead of writing them to the program's standard error.
pub(crate) fn log_panics() {
    panic::set_hook(Box::new(log_panic));
}

fn log_panic(fault: &PanicHookInfo<'_>) {
    static IS_LOGGED: AtomicBool = AtomicBool::new(false);
    if IS_LOGGED.swap(true, Ordering::Relaxed) {
        return;
    }
    let payload = fault.payload();
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(|text| &text[..]));
    let (file, line) = fault.location().map_or(("?", 0), |place| (place.file(), place.line()));
    let text = text.unwrap_or("no reason given");
    stats::log(format_args!(
        "a fault of this library in {file}:{line} ({text}): everything is left to the kernel from now on"
    ));
}
