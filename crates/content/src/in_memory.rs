//! Decides which files a worker keeps in memory as finished responses. It depends on the pieces that its transports can
//! send.
//!
//! The limit of finished responses was measured with load generators that copy what they receive, as browsers do
//! (`wrk`, `samum-bench league --copy`). With many connections a copy of 64 KiB costs the server more than
//! `sendfile(2)`, because source and packets do not stay in its caches. A generator that lets the kernel discard the
//! received bytes does not see that. Sends are direct calls and no operations of the ring: a bare io_uring server sent
//! no cheaper through its ring, and a direct call leaves nothing in flight that would have to be cancelled.
//!
//! A transport that sends only from memory would copy or read a larger file for each request. If a worker has such
//! transports and others, files between the two limits are in memory and open. Then each response leaves in the form
//! that its connection can send.
//!
//! | bytes | transports send files | only memory | both kinds of transports |
//! |---|---|---|---|
//! | up to 32 KiB | in memory | in memory | in memory |
//! | up to 256 KiB | open | in memory | in memory, and open |
//! | more | open | open | open |

use sendfile::Takes;

/// Files up to this size are kept in memory as finished responses, together with their heads. For
/// larger files `sendfile` is cheaper.
const BYTES_MAX: u64 = 32 * 1024;
/// The same where transports send only from memory: a larger file is copied or read for each request.
pub(crate) const BYTES_MAX_OF_MEMORY: u64 = FILE_BYTES_MAX_IN_MEMORY as u64;
/// The bytes of the largest file that any worker keeps in memory.
pub const FILE_BYTES_MAX_IN_MEMORY: usize = 256 * 1024;

/// The sizes of files that are kept in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InMemory {
    /// Larger files are not in memory.
    max: u64,
    /// Larger files are open.
    closed_max: u64,
}

impl InMemory {
    /// The sizes for transports that all send these pieces; `None` if some take ranges of files, and others memory
    /// only.
    pub const fn of(takes: Option<Takes>) -> Self {
        match takes {
            Some(Takes::Files) => Self { max: BYTES_MAX, closed_max: BYTES_MAX },
            Some(Takes::Memory) => {
                Self { max: BYTES_MAX_OF_MEMORY, closed_max: BYTES_MAX_OF_MEMORY }
            }
            None => Self { max: BYTES_MAX_OF_MEMORY, closed_max: BYTES_MAX },
        }
    }

    /// The size of the largest file that is in memory.
    pub(crate) const fn max(self) -> u64 {
        self.max
    }

    /// Returns whether a file of this size stays open.
    pub(crate) const fn keeps_open(self, size: u64) -> bool {
        size > self.closed_max
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_in_memory_or_open_or_both() {
        let (files, memory, mixed) = (Some(Takes::Files), Some(Takes::Memory), None);
        for (size, takes, is_in_memory, is_open) in [
            (0, files, true, false),
            (BYTES_MAX, files, true, false),
            (BYTES_MAX + 1, files, false, true),
            (BYTES_MAX + 1, memory, true, false),
            (BYTES_MAX_OF_MEMORY, memory, true, false),
            (BYTES_MAX_OF_MEMORY + 1, memory, false, true),
            (BYTES_MAX, mixed, true, false),
            (BYTES_MAX + 1, mixed, true, true),
            (BYTES_MAX_OF_MEMORY, mixed, true, true),
            (BYTES_MAX_OF_MEMORY + 1, mixed, false, true),
        ] {
            let sizes = InMemory::of(takes);
            let found = (size <= sizes.max(), sizes.keeps_open(size));
            assert_eq!(found, (is_in_memory, is_open), "{size} {takes:?}");
        }
    }
}
