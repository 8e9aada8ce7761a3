//! Waits for resources that an ended process still holds.

use core::time::Duration;
use std::io;
use std::thread;
use std::time::Instant;

use rustix::io::Errno;

/// The time for which an attempt is repeated while the interface is busy, or the user's locked memory is used up.
/// The kernel takes some 100 ms to clean up after an ended process.
const BUSY_PATIENCE: Duration = Duration::from_secs(2);
const BUSY_PAUSE: Duration = Duration::from_millis(20);

/// Repeats an attempt until the interface is not busy and memory is free, or [`BUSY_PATIENCE`] is over.
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

/// True if an error has this errno.
pub(crate) fn is(error: &io::Error, errno: Errno) -> bool {
    error.raw_os_error() == Some(errno.raw_os_error())
}
