//! The events that a program asks `epoll(7)` for at one socket, and those that the kernel is asked for while
//! the socket is *deferred*: the socket looks full to the program because its file is being read.
//!
//! Pure: the caller makes the calls. The rules for each registration (one epoll instance that watches the socket):
//!
//! | mode | when the deferral begins | `ADD`, `MOD` by the program meanwhile | when it ends |
//! |---|---|---|---|
//! | level | `MOD` without `EPOLLOUT`, else the loop would spin | passed on without it | `MOD` to the events that the program wants |
//! | edge | nothing: the edge has been consumed | passed on without it | `MOD` to the events that the program wants, which makes an edge |
//! | one shot | nothing: it has fired, or will fire once | `MOD` removes it from the kernel, `ADD` is not passed on | `ADD`, but only if the program has armed it meanwhile |
//!
//! A one-shot registration that the kernel does not have cannot fire: not for another event, not because it
//! had not fired yet, and not when the peer resets (the kernel reports `EPOLLERR` and `EPOLLHUP` unasked). If the
//! registration fired, the program would believe that it is disarmed, and the end of the deferral would arm it once
//! more. Registrations with `EPOLLEXCLUSIVE` cannot be changed: a socket with such a registration is never deferred.
//!
//! Level-triggered interest of a deferred socket loses `EPOLLOUT` until the read has ended. Edge-triggered interest is
//! armed again by `EPOLL_CTL_MOD`. One-shot interest that the program arms meanwhile is removed from the kernel and
//! added when the read has ended, so that it fires once for each time it was armed.

use libc::{
    EPOLLERR, EPOLLET, EPOLLEXCLUSIVE, EPOLLHUP, EPOLLONESHOT, EPOLLOUT, EPOLLWAKEUP, EPOLLWRBAND,
    EPOLLWRNORM,
};

/// The most epoll instances that watch a deferred socket; a socket with more is not deferred.
pub(crate) const REGISTRATIONS_MAX: usize = 4;

/// The events that say that a socket is writable.
const WRITABLE: u32 = bits(EPOLLOUT | EPOLLWRNORM | EPOLLWRBAND);
/// The bits that say how events are reported.
const MODE: u32 = bits(EPOLLET) | bits(EPOLLONESHOT) | bits(EPOLLWAKEUP);

const fn bits(events: i32) -> u32 {
    events.cast_unsigned()
}

/// The operations of `epoll_ctl(2)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    Add,
    Del,
    Mod,
}

/// The call to make for an `epoll_ctl(2)` of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CtlDecision {
    /// Make this call, with these events.
    Pass(Op, u32),
    /// Make no call: the program's call has succeeded.
    Keep,
    /// Make no call: the program's call fails with `EEXIST`, because the program has not removed the
    /// registration.
    Refuse,
    /// Add nothing yet, but try a `MOD` with these events. If that fails with `ENOENT`, the program's `ADD` has
    /// succeeded. If it succeeds, the registration exists already, and the program's call fails with `EEXIST`.
    Withhold(u32),
}

/// A call that the library has to make: `EPOLL_CTL_MOD`, or `EPOLL_CTL_ADD` of a registration that it removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) epfd: i32,
    pub(crate) events: u32,
    pub(crate) data: u64,
    pub(crate) adds: bool,
}

/// The changes of one socket, at most one for each registration.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Changes {
    all: [Change; REGISTRATIONS_MAX],
    len: usize,
}

impl Changes {
    fn push(&mut self, change: Change) {
        self.all[self.len] = change;
        self.len += 1;
    }

    pub(crate) fn as_slice(&self) -> &[Change] {
        &self.all[..self.len]
    }
}

/// One epoll instance that watches the socket, and the events that the program wants.
#[derive(Clone, Copy, Debug, Default)]
struct Registration {
    epfd: i32,
    wanted: u32,
    data: u64,
    /// The kernel has fewer events than `wanted`. Only while the socket is deferred.
    held: bool,
    /// The kernel does not have the registration. Implies `held`.
    taken: bool,
    /// It was made before a fork: another process has it, too.
    inherited: bool,
}

/// The epoll instances that watch one socket. All zeros: there are none.
#[derive(Debug, Default)]
pub(crate) struct Interest {
    registrations: [Registration; REGISTRATIONS_MAX],
    len: usize,
    deferred: bool,
    /// More instances watch the socket than there is room for.
    overflowed: bool,
}

impl Interest {
    /// Decides about a call that the program is about to make.
    pub(crate) fn asked(&self, op: Op, epfd: i32, events: u32) -> CtlDecision {
        let known = self.find(epfd);
        let taken = known.is_some_and(|index| self.registrations[index].taken);
        let must_hold = self.deferred && is_held_back(events);
        // A registration that the kernel does not have can only be added.
        let known_op = if taken { Op::Add } else { op };
        match (op, is_one_shot(events)) {
            (Op::Add, _) if taken => CtlDecision::Refuse,
            (Op::Del, _) if taken => CtlDecision::Keep,
            (Op::Del, _) => CtlDecision::Pass(op, events),
            _ if !must_hold || (known.is_none() && self.len == REGISTRATIONS_MAX) => {
                CtlDecision::Pass(known_op, events)
            }
            (Op::Mod, true) if taken => CtlDecision::Keep,
            (Op::Mod, true) => CtlDecision::Pass(Op::Del, events),
            // The kernel answers `EEXIST`, unless the registration has vanished without being seen.
            (_, true) if known.is_some() => CtlDecision::Pass(op, events & MODE),
            (_, true) => CtlDecision::Withhold(events & MODE),
            _ => CtlDecision::Pass(known_op, events & !WRITABLE),
        }
    }

    /// Notes that the call has succeeded.
    pub(crate) fn granted(&mut self, op: Op, epfd: i32, wanted: u32, data: u64) {
        if op == Op::Del {
            self.forget(epfd);
            return;
        }
        let known = self.find(epfd);
        let index = match known {
            Some(index) => index,
            None if self.len == REGISTRATIONS_MAX => {
                self.overflowed = true;
                return;
            }
            None => {
                self.len += 1;
                self.len - 1
            }
        };
        let held = self.deferred && is_held_back(wanted);
        let passed = op == Op::Add && known.is_some();
        let taken = held && is_one_shot(wanted) && !passed;
        let inherited = self.registrations[index].inherited && known.is_some();
        self.registrations[index] = Registration { epfd, wanted, data, held, taken, inherited };
    }

    /// Removes an instance that does not watch the socket any more.
    pub(crate) fn forget(&mut self, epfd: i32) {
        if let Some(index) = self.find(epfd) {
            self.len -= 1;
            self.registrations[index] = self.registrations[self.len];
        }
    }

    /// Removes an instance that is about to be closed. Returns the change to make before, because the instance
    /// may live on by another descriptor.
    pub(crate) fn withdraw(&mut self, epfd: i32) -> Option<Change> {
        let Registration { wanted, data, held, taken, .. } = self.registrations[self.find(epfd)?];
        self.forget(epfd);
        held.then_some(Change { epfd, events: wanted, data, adds: taken })
    }

    /// Says whether all registrations can be changed. What this process had changed of another's, nobody would
    /// change back if this one ended.
    pub(crate) fn is_deferrable(&self) -> bool {
        let is_exclusive =
            |it: &Registration| it.wanted & bits(EPOLLEXCLUSIVE) != 0 && it.wanted & WRITABLE != 0;
        !self.overflowed && !self.known().iter().any(|it| it.inherited || is_exclusive(it))
    }

    /// Makes the socket look full from now on.
    pub(crate) fn defer(&mut self) -> Changes {
        let mut changes = Changes::default();
        if self.deferred {
            return changes;
        }
        self.deferred = true;
        for it in &mut self.registrations[..self.len] {
            if is_level(it.wanted) && is_held_back(it.wanted) {
                it.held = true;
                let events = it.wanted & !WRITABLE;
                changes.push(Change { epfd: it.epfd, events, data: it.data, adds: false });
            }
        }
        changes
    }

    /// Shows the socket as it is again, to all instances that watch it.
    pub(crate) fn resume(&mut self) -> Changes {
        let mut changes = Changes::default();
        if !self.deferred {
            return changes;
        }
        self.deferred = false;
        for it in &mut self.registrations[..self.len] {
            let edge = !is_one_shot(it.wanted) && is_held_back(it.wanted) && !is_level(it.wanted);
            if it.held || edge {
                let adds = it.taken;
                (it.held, it.taken) = (false, false);
                changes.push(Change { epfd: it.epfd, events: it.wanted, data: it.data, adds });
            }
        }
        changes
    }

    /// Ends the deferral in a forked child, without a change: the registrations are the parent's, too.
    pub(crate) fn inherit(&mut self) {
        self.deferred = false;
        for it in &mut self.registrations[..self.len] {
            (it.held, it.taken, it.inherited) = (false, false, true);
        }
    }

    /// Says whether this instance watches the socket.
    pub(crate) fn knows(&self, epfd: i32) -> bool {
        self.find(epfd).is_some()
    }

    fn find(&self, epfd: i32) -> Option<usize> {
        self.known().iter().position(|it| it.epfd == epfd)
    }

    fn known(&self) -> &[Registration] {
        &self.registrations[..self.len]
    }
}

/// Says whether a registration for these events gets fewer of them while the socket is deferred.
const fn is_held_back(events: u32) -> bool {
    events & WRITABLE != 0 && events & bits(EPOLLEXCLUSIVE) == 0
}

const fn is_one_shot(events: u32) -> bool {
    events & bits(EPOLLONESHOT) != 0
}

const fn is_level(events: u32) -> bool {
    events & (bits(EPOLLET) | bits(EPOLLONESHOT)) == 0
}

const _: () = assert!(MODE & WRITABLE == 0 && MODE & bits(EPOLLERR | EPOLLHUP) == 0);

#[cfg(test)]
mod tests;
