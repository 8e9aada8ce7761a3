//! The allowed reasons for leaving something out: a machine lacks it, or does not allow it. Any
//! other reason is a fault of ours, and would go unnoticed, because a row that says why does not
//! count as a failure.

/// Parts of sentences that samum-bench or the kernel says then.
const OF_THE_MACHINE: [&str; 20] = [
    "C compiler",
    // No static C library.
    "cc cannot build it",
    "there is no /bin/true",
    "no io_uring",
    "no registered files",
    "the kernel refuses it",
    "Operation not permitted",
    "Permission denied",
    "Function not implemented",
    "Operation not supported",
    // RLIMIT_MEMLOCK, which io_uring's memory counted against before Linux 5.12.
    "Cannot allocate memory",
    "has no O_DIRECT",
    "cannot be slowed down",
    "memory cannot be limited",
    "is not on a disk",
    "is in memory",
    "are free in",
    "is not installed",
    "needs root",
    "needs two CPUs",
];

/// Panics, unless `why` is such a reason; announces it.
#[track_caller]
pub(crate) fn accept(what: &str, why: &str) {
    assert!(
        OF_THE_MACHINE.iter().any(|reason| why.contains(reason)),
        "{what} is left out for no good reason: {why}"
    );
    testkit::announce_skip(format_args!("{what}: {why}"));
}
