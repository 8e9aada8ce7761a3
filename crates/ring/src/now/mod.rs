//! The system calls that return at once and never sleep on a disk.

#[allow(unsafe_code, reason = "preadv2 into shared scratch memory, cachestat")]
pub(crate) mod file;
#[allow(unsafe_code, reason = "a mapping, and mincore of it")]
mod mapping;
#[allow(unsafe_code, reason = "masks of signals, signalfd, shutdown")]
pub(crate) mod process;
#[allow(unsafe_code, reason = "an ioctl")]
pub(crate) mod socket;

pub(crate) use file::may_cachestat;

pub(crate) const PAGE: usize = 4096;
/// Pages that one look at a file's residency covers.
const PAGES_MAX: usize = 64;
/// The maximum of bytes that one [`Ring::probe`](crate::Ring::probe) looks at.
pub const PROBE_BYTES_MAX: usize = PAGES_MAX * PAGE;
