//! System calls by name. Pure.

/// Names the calls that a file server may make.
macro_rules! names {
    ($number:expr; $($variable:ident $name:literal),+ $(,)?) => {
        match i64::try_from($number) {
            // libc does not have it yet.
            Ok(451) => "cachestat".to_owned(),
            $(Ok(libc::$variable) => $name.to_owned(),)+
            _ => format!("call_{}", $number),
        }
    };
}

/// The name of a system call (syscalls(2)), or `call_N` of one that no server is expected to make.
pub(super) fn name(number: u64) -> String {
    names!(number;
        SYS_accept4 "accept4",
        SYS_brk "brk",
        SYS_clock_gettime "clock_gettime",
        SYS_clock_nanosleep "clock_nanosleep",
        SYS_clone3 "clone3",
        SYS_close "close",
        SYS_copy_file_range "copy_file_range",
        SYS_epoll_ctl "epoll_ctl",
        // The kernel's call depends on whether there is a deadline.
        SYS_epoll_pwait "epoll_wait",
        SYS_epoll_pwait2 "epoll_wait",
        SYS_epoll_wait "epoll_wait",
        SYS_eventfd2 "eventfd2",
        SYS_exit "exit",
        SYS_fadvise64 "fadvise64",
        SYS_fcntl "fcntl",
        SYS_fstat "fstat",
        SYS_fstatfs "fstatfs",
        SYS_futex "futex",
        SYS_getdents64 "getdents64",
        SYS_getpid "getpid",
        SYS_getrandom "getrandom",
        SYS_getrusage "getrusage",
        SYS_getsockname "getsockname",
        SYS_getsockopt "getsockopt",
        SYS_gettid "gettid",
        SYS_inotify_add_watch "inotify_add_watch",
        SYS_inotify_rm_watch "inotify_rm_watch",
        SYS_io_uring_enter "io_uring_enter",
        SYS_io_uring_register "io_uring_register",
        SYS_ioctl "ioctl",
        SYS_lseek "lseek",
        SYS_madvise "madvise",
        SYS_mincore "mincore",
        SYS_mmap "mmap",
        SYS_mprotect "mprotect",
        SYS_mremap "mremap",
        SYS_munmap "munmap",
        SYS_newfstatat "newfstatat",
        SYS_openat "openat",
        SYS_openat2 "openat2",
        SYS_pipe2 "pipe2",
        SYS_poll "poll",
        SYS_ppoll "ppoll",
        SYS_pread64 "pread64",
        SYS_preadv2 "preadv2",
        SYS_read "read",
        SYS_readahead "readahead",
        SYS_readv "readv",
        SYS_recvfrom "recvfrom",
        SYS_recvmsg "recvmsg",
        SYS_rseq "rseq",
        SYS_rt_sigprocmask "rt_sigprocmask",
        SYS_sched_yield "sched_yield",
        SYS_sendfile "sendfile",
        SYS_sendmsg "sendmsg",
        SYS_sendto "sendto",
        SYS_set_robust_list "set_robust_list",
        SYS_setsockopt "setsockopt",
        SYS_shutdown "shutdown",
        SYS_sigaltstack "sigaltstack",
        SYS_splice "splice",
        SYS_statx "statx",
        SYS_tee "tee",
        SYS_timerfd_settime "timerfd_settime",
        SYS_vmsplice "vmsplice",
        SYS_write "write",
        SYS_writev "writev",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_have_the_names_of_their_manual_pages() {
        let number = |call: i64| u64::try_from(call).unwrap();
        assert_eq!(name(number(libc::SYS_io_uring_enter)), "io_uring_enter");
        assert_eq!(name(number(libc::SYS_sendto)), "sendto");
        assert_eq!(name(number(libc::SYS_reboot)), format!("call_{}", libc::SYS_reboot));
        assert_eq!(name(u64::MAX), format!("call_{}", u64::MAX));
    }
}
