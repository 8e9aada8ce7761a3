//! Switches the library off when it fails. A fault of this library must not end the program. A panic is caught
//! where the program called the library, and logged once. From then on the kernel handles all calls.
//!
//! No function in which a thread can be cancelled (`poll`, `select`, `accept`, `close`, a `fcntl` that
//! waits) is called under [`run`]: the C library cancels by unwinding, and `catch_unwind` would abort the process.
//!
//! To catch panics at exported functions, the release profile unwinds, and programs abort in a panic hook.

use core::panic::AssertUnwindSafe;
use core::sync::atomic::{AtomicBool, Ordering};
use std::panic::{self, PanicHookInfo};

use crate::{process, setting, stats};

#[cfg(not(panic = "unwind"))]
compile_error!("a panic would end the program: the library needs panic = \"unwind\"");

/// Set once the tables exist, unless `SAMUM_PRELOAD=off`; cleared for good when the fuse blows.
static ON: AtomicBool = AtomicBool::new(false);

#[inline]
pub(crate) fn is_on() -> bool {
    // Acquire pairs with Release in `switch_on`.
    ON.load(Ordering::Acquire)
}

/// Switches the library on: the tables exist.
pub(crate) fn switch_on() {
    ON.store(true, Ordering::Release);
}

/// Leaves everything to the kernel from now on, and resumes sockets that wait. Returns whether the library
/// was on.
#[cold]
pub(crate) fn switch_off() -> bool {
    let was_on = ON.swap(false, Ordering::AcqRel);
    // If this fails too, a socket may wait for ever, but the program goes on.
    let _ = panic::catch_unwind(process::resume_all);
    was_on
}

/// Runs the library's part of a call. `None`: that has failed, and the library is off.
#[inline]
pub(crate) fn run<T>(name: &str, ours: impl FnOnce() -> T) -> Option<T> {
    let ours = || {
        point(name);
        ours()
    };
    match panic::catch_unwind(AssertUnwindSafe(ours)) {
        Ok(value) => Some(value),
        Err(fault) => {
            // To drop the payload could panic again.
            core::mem::forget(fault);
            switch_off();
            None
        }
    }
}

/// Panics if `SAMUM_PRELOAD_PANIC` names this point, in debug builds: for tests.
#[inline]
pub(crate) fn point(name: &str) {
    if cfg!(debug_assertions) && setting::PANIC.text() == Some(name.as_bytes()) {
        panic!("at {name}, on purpose");
    }
}

/// Logs the first panic instead of writing it to the program's standard error.
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
