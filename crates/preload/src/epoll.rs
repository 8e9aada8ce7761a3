//! Makes the calls of `epoll_ctl(2)` that a change of interest needs.

use core::ffi::c_int;

use libc::epoll_event;

use crate::interest::{Change, Changes, Op};
use crate::real;

/// Makes these changes.
pub(crate) fn apply(socket: c_int, changes: Changes) {
    changes.as_slice().iter().for_each(|&change| apply_one(socket, change));
}

pub(crate) fn apply_one(socket: c_int, Change { epfd, events, data, adds }: Change) {
    let mut event = epoll_event { events, u64: data };
    let op = number(if adds { Op::Add } else { Op::Mod });
    // SAFETY: a valid event. The call fails only if the instance or the registration is gone in a
    // way that was not seen here; then nothing has to be changed.
    unsafe {
        real::epoll_ctl.function()(epfd, op, socket, &raw mut event);
    }
}

pub(crate) fn number(op: Op) -> c_int {
    match op {
        Op::Add => libc::EPOLL_CTL_ADD,
        Op::Del => libc::EPOLL_CTL_DEL,
        Op::Mod => libc::EPOLL_CTL_MOD,
    }
}
