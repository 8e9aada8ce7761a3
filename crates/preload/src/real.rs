//! The C library's own versions of the functions that this library replaces.

use core::ffi::{CStr, c_char, c_int, c_long, c_uint, c_ulong, c_void};
use core::mem::transmute_copy;
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

use libc::{
    FILE, epoll_event, fd_set, nfds_t, off_t, pollfd, sigset_t, sockaddr, socklen_t, timespec,
    timeval,
};

/// A function of the next library, found at its first use or by [`find_all`]. The next library may lack it: by
/// dlsym(3) programs find all functions of this library, also those that their C library does not have.
///
/// `F` is its type, a function pointer.
pub(crate) struct Real<F> {
    name: &'static CStr,
    found: AtomicPtr<c_void>,
    _type: core::marker::PhantomData<F>,
}

impl<F: Copy> Real<F> {
    const fn new(name: &'static CStr) -> Self {
        assert!(size_of::<F>() == size_of::<*mut c_void>(), "a function pointer");
        Self { name, found: AtomicPtr::new(ptr::null_mut()), _type: core::marker::PhantomData }
    }

    /// The function. Aborts if there is none, so this is for functions that every C library has.
    #[inline]
    pub(crate) fn function(&self) -> F {
        self.if_any().unwrap_or_else(|| {
            // SAFETY: abort(3) has no preconditions.
            unsafe { libc::abort() }
        })
    }

    /// The function, if the C library has one.
    #[inline]
    pub(crate) fn if_any(&self) -> Option<F> {
        let mut found = self.found.load(Ordering::Relaxed);
        if found.is_null() {
            found = self.find();
        }
        if found.is_null() {
            return None;
        }
        // SAFETY: `F` has the size of a pointer (`new`) and is the type that the C library's
        // headers give the function of that name (the list below).
        Some(unsafe { transmute_copy(&found) })
    }

    #[cold]
    fn find(&self) -> *mut c_void {
        // SAFETY: the name ends with a NUL.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        self.found.store(found, Ordering::Relaxed);
        found
    }
}

macro_rules! functions {
    ($($name:ident: ($($argument:ty),*) -> $result:ty;)*) => {
        $(
            #[allow(non_upper_case_globals, reason = "named as the function it is")]
            pub(crate) static $name: Real<unsafe extern "C-unwind" fn($($argument),*) -> $result> =
                Real::new(match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                    Ok(name) => name,
                    Err(_) => panic!("one NUL, at the end"),
                });
        )*
        /// Find the functions, so that their first use costs nothing.
        pub(crate) fn find_all() {
            $( _ = $name.if_any(); )*
        }
    };
}

functions! {
    sendfile: (c_int, c_int, *mut off_t, usize) -> isize;
    epoll_create: (c_int) -> c_int;
    epoll_create1: (c_int) -> c_int;
    epoll_ctl: (c_int, c_int, c_int, *mut epoll_event) -> c_int;
    poll: (*mut pollfd, nfds_t, c_int) -> c_int;
    ppoll: (*mut pollfd, nfds_t, *const timespec, *const sigset_t) -> c_int;
    __poll_chk: (*mut pollfd, nfds_t, c_int, usize) -> c_int;
    __ppoll_chk: (*mut pollfd, nfds_t, *const timespec, *const sigset_t, usize) -> c_int;
    select: (c_int, *mut fd_set, *mut fd_set, *mut fd_set, *mut timeval) -> c_int;
    pselect: (c_int, *mut fd_set, *mut fd_set, *mut fd_set, *const timespec, *const sigset_t) -> c_int;
    close: (c_int) -> c_int;
    fclose: (*mut FILE) -> c_int;
    close_range: (c_uint, c_uint, c_int) -> c_int;
    closefrom: (c_int) -> ();
    dup: (c_int) -> c_int;
    dup2: (c_int, c_int) -> c_int;
    dup3: (c_int, c_int, c_int) -> c_int;
    fcntl: (c_int, c_int, c_ulong) -> c_int;
    lockf: (c_int, c_int, off_t) -> c_int;
    flock: (c_int, c_int) -> c_int;
    shutdown: (c_int, c_int) -> c_int;
    accept: (c_int, *mut sockaddr, *mut socklen_t) -> c_int;
    accept4: (c_int, *mut sockaddr, *mut socklen_t, c_int) -> c_int;
    chroot: (*const c_char) -> c_int;
    prctl: (c_int, c_ulong, c_ulong, c_ulong, c_ulong) -> c_int;
    syscall: (c_long, c_ulong, c_ulong, c_ulong, c_ulong, c_ulong, c_ulong) -> c_long;
    socket: (c_int, c_int, c_int) -> c_int;
}
