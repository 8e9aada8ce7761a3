//! `poll(2)` and `select(2)` over deferred sockets. The call is cut into short slices, until there is an event or
//! the deferral ends. The slices do not ask whether deferred sockets are writable.
//!
//! `epoll_wait(2)` needs none of this, because the interest in the kernel is changed.

use core::ffi::c_int;
use core::time::Duration;

use libc::{fd_set, nfds_t, pollfd, sigset_t, timespec};

use crate::descriptors::{self, DEFERRED};
use crate::sys::Signals;
use crate::{deferral, fuse, real, sys};

/// The length of a slice: the end of a deferral is noticed at most this late.
const SLICE: Duration = Duration::from_millis(5);
/// The most descriptors of a `poll` in slices. Sockets in a larger one are not deferred.
const POLL_MAX: usize = 1024;
const WRITABLE: i16 = libc::POLLOUT | libc::POLLWRNORM | libc::POLLWRBAND;

/// The longest time that a caller wants to wait; `None`: for ever.
pub(crate) type Limit = Option<Duration>;

/// Says whether a `poll` has to be made in slices.
pub(crate) fn can_poll(polled: &[pollfd]) -> bool {
    if polled.len() > POLL_MAX {
        polled.iter().filter(|polled| is_deferred(polled)).for_each(|it| deferral::leave(it.fd));
        return false;
    }
    polled.iter().any(is_deferred)
}

/// Makes a `ppoll(2)` for which [`can_poll`] is true; `None` if the real one has to be called.
pub(crate) fn poll(polled: &mut [pollfd], limit: Limit, signals: *const sigset_t) -> Option<c_int> {
    let mut masked = [pollfd { fd: -1, events: 0, revents: 0 }; POLL_MAX];
    let masked = masked.get_mut(..polled.len())?;
    let until = limit.map(|limit| sys::now().saturating_add(limit));
    let blocked = BlockedSignals::begin();
    let signals = blocked.within(signals);
    loop {
        let (slice, is_last) = fuse::run("poll slice", || {
            let mut waits = false;
            for (masked, polled) in masked.iter_mut().zip(polled.iter()) {
                *masked = *polled;
                if is_deferred(polled) {
                    waits = true;
                    masked.events &= !WRITABLE;
                }
            }
            let (slice, is_last) = slice(until, waits);
            (slice.map(timespec_of), is_last)
        })?;
        let slice = slice.as_ref().map_or(core::ptr::null(), core::ptr::from_ref);
        let (first, len) = (masked.as_mut_ptr(), masked.len() as nfds_t);
        // SAFETY: `len` valid elements, a valid or null limit, and the caller's signals.
        let ready = unsafe { real::ppoll.function()(first, len, slice, signals) };
        if ready != 0 || is_last {
            if ready >= 0 {
                for (polled, masked) in polled.iter_mut().zip(masked.iter()) {
                    polled.revents = masked.revents;
                }
            }
            return Some(ready);
        }
    }
}

fn is_deferred(polled: &pollfd) -> bool {
    polled.events & WRITABLE != 0 && descriptors::flags(polled.fd) & DEFERRED != 0
}

/// The three sets of `select(2)`, null where the program has none.
#[derive(Clone, Copy)]
pub(crate) struct Sets {
    pub(crate) read: *mut fd_set,
    pub(crate) write: *mut fd_set,
    pub(crate) except: *mut fd_set,
}

/// Makes a `pselect(2)`; `None` if no socket in it is deferred, so that the real one can be called.
///
/// # Safety
/// The sets are null or valid.
pub(crate) unsafe fn select(
    count: c_int,
    sets: Sets,
    limit: Limit,
    signals: *const sigset_t,
) -> Option<c_int> {
    let size = c_int::try_from(libc::FD_SETSIZE).unwrap_or(0);
    // The size of larger sets is not known here.
    if sets.write.is_null() || !(0..=size).contains(&count) {
        return None;
    }
    // SAFETY: null or valid for `count` (the caller's promise).
    let wanted = [sets.read, sets.write, sets.except].map(|set| unsafe { copy_of(set, count) });
    let [_, Some(write), _] = wanted else { return None };
    if !(0..count).any(|fd| is_in(&write, fd)) {
        return None;
    }
    let until = limit.map(|limit| sys::now().saturating_add(limit));
    let blocked = BlockedSignals::begin();
    let signals = blocked.within(signals);
    loop {
        let [mut read, _, mut except] = wanted;
        let mut masked = write;
        let (slice, is_last) = fuse::run("select slice", || {
            let mut waits = false;
            for fd in (0..count).filter(|&fd| is_in(&write, fd)) {
                waits = true;
                // SAFETY: `fd` is below FD_SETSIZE.
                unsafe { libc::FD_CLR(fd, &raw mut masked) };
            }
            let (slice, is_last) = slice(until, waits);
            (slice.map(timespec_of), is_last)
        })?;
        let slice = slice.as_ref().map_or(core::ptr::null(), core::ptr::from_ref);
        let set = |set: &mut Option<fd_set>| {
            set.as_mut().map_or(core::ptr::null_mut(), core::ptr::from_mut)
        };
        let (r, w, e) = (set(&mut read), &raw mut masked, set(&mut except));
        // SAFETY: sets of our own or null, a valid or null limit, and the caller's signals.
        let ready = unsafe { real::pselect.function()(count, r, w, e, slice, signals) };
        if ready != 0 || is_last {
            if ready >= 0 {
                let found = [(sets.read, read), (sets.write, Some(masked)), (sets.except, except)];
                for (place, set) in found {
                    if let Some(set) = set {
                        // SAFETY: the set was there, so it is valid for `count` (the caller's promise).
                        unsafe { copy(&raw const set, place, count) };
                    }
                }
            }
            return Some(ready);
        }
    }
}

/// The signals, all blocked between slices. A signal that came there would not interrupt what is one call
/// to the program, and a flag that its handler sets would be seen too late.
struct BlockedSignals {
    signals: Signals,
    set: sigset_t,
}

impl BlockedSignals {
    fn begin() -> Self {
        // SAFETY: a `sigset_t` is bits only, of which zeros are valid.
        let mut set: sigset_t = unsafe { core::mem::zeroed() };
        let signals = sys::block_signals();
        // SAFETY: the first 8 bytes of a `sigset_t` are what the kernel looks at.
        unsafe { (&raw mut set).cast::<Signals>().write(signals) };
        Self { signals, set }
    }

    /// The signals to block within a slice: those that the caller passes, or had blocked.
    fn within(&self, callers: *const sigset_t) -> *const sigset_t {
        if callers.is_null() { &raw const self.set } else { callers }
    }
}

impl Drop for BlockedSignals {
    fn drop(&mut self) {
        sys::restore_signals(self.signals);
    }
}

/// The first `count` bits of a set; `None` for null.
///
/// # Safety
/// `set` is null or valid for `count` descriptors.
unsafe fn copy_of(set: *const fd_set, count: c_int) -> Option<fd_set> {
    if set.is_null() {
        return None;
    }
    // SAFETY: an `fd_set` is bits only, of which zeros are valid.
    let mut found: fd_set = unsafe { core::mem::zeroed() };
    // SAFETY: valid for `count` (the caller's promise).
    unsafe { copy(set, &raw mut found, count) };
    Some(found)
}

/// Copies the words of a set that hold `count` bits: programs allocate no more than those.
///
/// # Safety
/// Both are valid for `count` descriptors, which is at most `FD_SETSIZE`.
unsafe fn copy(from: *const fd_set, to: *mut fd_set, count: c_int) {
    let words = usize::try_from(count).unwrap_or(0).div_ceil(64);
    // SAFETY: as many words as the kernel itself reads and writes (the caller's promise); the two do
    // not overlap, for one of them is always ours.
    unsafe { core::ptr::copy_nonoverlapping(from.cast::<u64>(), to.cast::<u64>(), words) };
}

fn is_in(write: &fd_set, fd: c_int) -> bool {
    // SAFETY: the callers pass numbers below FD_SETSIZE.
    descriptors::flags(fd) & DEFERRED != 0 && unsafe { libc::FD_ISSET(fd, write) }
}

/// The length of the next slice, and whether it is the last.
fn slice(until: Option<Duration>, waits: bool) -> (Limit, bool) {
    match until {
        None if waits => (Some(SLICE), false),
        None => (None, true),
        Some(until) => {
            let left = until.saturating_sub(sys::now());
            if waits && left > SLICE { (Some(SLICE), false) } else { (Some(left), true) }
        }
    }
}

fn timespec_of(time: Duration) -> timespec {
    timespec {
        tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: time.subsec_nanos().into(),
    }
}

/// The limit in a `timespec`; `None` if that is not valid.
pub(crate) fn limit_of(seconds: i64, nanoseconds: i64) -> Option<Duration> {
    let nanoseconds = u32::try_from(nanoseconds).ok().filter(|&it| it < 1_000_000_000)?;
    Some(Duration::new(u64::try_from(seconds).ok()?, nanoseconds))
}
