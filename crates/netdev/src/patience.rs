//! Waits for resources that an ended process still holds.

use core::time::Duration;
use std::io;
use std::thread;
use std::time::Instant;

use rustix::io::Errno;

/// The time to try again while an interface is busy, or the locked memory of the user is used up. The kernel takes
/// some 100 ms to clean up after a process that died.
const BUSY_PATIENCE: Duration = Duration::from_secs(2);
const BUSY_PAUSE: Duration = Duration::from_millis(20);

/// Tries until the interface is not busy and memory is free, or patience ends.
pub(crate) fn with_patience<T>(mut attempt: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let end = Instant::now() + BUSY_PATIENCE;
    loop {
        match attempt() {
            Err(error)
                if (is(&error, Errno::BUSY) || is(&error, Errno::NOBUFS))
                    && Instant::now() < end =>
            {
                thread::sleep(BUSY_PAUSE);
            }
            result => return result,
        }
    }
}

/// Returns whether an error has this number.
pub(crate) fn is(error: &io::Error, errno: Errno) -> bool {
    error.raw_os_error() == Some(errno.raw_os_error())
}
