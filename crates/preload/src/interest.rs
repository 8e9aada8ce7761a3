//! What a program wants to hear of one socket from `epoll(7)`, and what the kernel is told instead
//! while the socket is *deferred*: looks full to the program because its file is being read.
//!
//! Pure: the caller makes the calls. Per registration (one epoll instance that watches the socket):
//!
//! | mode | when the deferral begins | `ADD`, `MOD` by the program meanwhile | when it ends |
//! |---|---|---|---|
//! | level | `MOD` without `EPOLLOUT`, else the loop would spin | passed on without it | `MOD` to what is wanted |
//! | edge | nothing: the edge has been consumed | passed on without it | `MOD` to what is wanted, which makes an edge |
//! | one shot | nothing: it has fired, or will fire once | `MOD` takes it away from the kernel, `ADD` is kept from it | `ADD`, but only if the program has armed it meanwhile |
//!
//! A one-shot registration that the kernel does not have cannot fire: not for something else, nor because
//! it had not fired yet, nor when the peer resets (`EPOLLERR` and `EPOLLHUP` are told unasked). Else the
//! program would take it for disarmed, and we would arm it once more.
//! Registrations with `EPOLLEXCLUSIVE` cannot be changed: such a socket is not deferred at all.

use libc::{
    EPOLLERR, EPOLLET, EPOLLEXCLUSIVE, EPOLLHUP, EPOLLONESHOT, EPOLLOUT, EPOLLWAKEUP, EPOLLWRBAND,
    EPOLLWRNORM,
};

/// Epoll instances that may watch one socket; watched by more, it is not deferred.
pub(crate) const REGISTRATIONS_MAX: usize = 4;

/// What tells a program that it can write.
const WRITABLE: u32 = bits(EPOLLOUT | EPOLLWRNORM | EPOLLWRBAND);
/// How events are told, as opposed to which.
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

/// What the kernel is to be told when the program calls `epoll_ctl(2)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// This call, with these events.
    Pass(Op, u32),
    /// Nothing now: the call has succeeded.
    Keep,
    /// Nothing: the call fails with `EEXIST`, for the program has not removed what is not there.
    Refuse,
    /// Nothing now, if the kernel would accept it: asked to `MOD` what is not there, with these events, it
    /// says `ENOENT`. If it is there all the same, the call fails with `EEXIST`.
    Withhold(u32),
}

/// A call to be made by us: `EPOLL_CTL_MOD`, or `EPOLL_CTL_ADD` of what was taken away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) epfd: i32,
    pub(crate) events: u32,
    pub(crate) data: u64,
    pub(crate) adds: bool,
}

/// At most one change for each registration.
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

/// One epoll instance that watches the socket, as the program wants it.
#[derive(Clone, Copy, Debug, Default)]
struct Registration {
    epfd: i32,
    wanted: u32,
    data: u64,
    /// The kernel has been told less than `wanted`. Never while the socket is not deferred.
    held: bool,
    /// The kernel has been told to forget it. Implies `held`.
    taken: bool,
}

/// Who watches one socket. All zeros is a socket that nobody watches.
#[derive(Debug, Default)]
pub(crate) struct Interest {
    registrations: [Registration; REGISTRATIONS_MAX],
    len: usize,
    deferred: bool,
    /// More instances watch than are known.
    overflowed: bool,
}

impl Interest {
    /// The program is about to make this call.
    pub(crate) fn asked(&self, op: Op, epfd: i32, events: u32) -> Answer {
        let known = self.find(epfd);
        let taken = known.is_some_and(|index| self.registrations[index].taken);
        let must_hold = self.deferred && is_held_back(events);
        // What the kernel does not know can only be added.
        let known_op = if taken { Op::Add } else { op };
        match (op, is_one_shot(events)) {
            (Op::Add, _) if taken => Answer::Refuse,
            (Op::Del, _) if taken => Answer::Keep,
            (Op::Del, _) => Answer::Pass(op, events),
            _ if !must_hold || (known.is_none() && self.len == REGISTRATIONS_MAX) => {
                Answer::Pass(known_op, events)
            }
            (Op::Mod, true) if taken => Answer::Keep,
            (Op::Mod, true) => Answer::Pass(Op::Del, events),
            // The kernel says `EEXIST`, unless the registration has gone unseen.
            (_, true) if known.is_some() => Answer::Pass(op, events & MODE),
            (_, true) => Answer::Withhold(events & MODE),
            _ => Answer::Pass(known_op, events & !WRITABLE),
        }
    }

    /// The call that was asked for has succeeded.
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
        self.registrations[index] = Registration { epfd, wanted, data, held, taken };
    }

    /// The instance does not watch it any more.
    pub(crate) fn forget(&mut self, epfd: i32) {
        if let Some(index) = self.find(epfd) {
            self.len -= 1;
            self.registrations[index] = self.registrations[self.len];
        }
    }

    /// The instance is about to be closed. Returns what it has to be told first: it may live on, by another
    /// descriptor.
    pub(crate) fn withdraw(&mut self, epfd: i32) -> Option<Change> {
        let Registration { wanted, data, held, taken, .. } = self.registrations[self.find(epfd)?];
        self.forget(epfd);
        held.then_some(Change { epfd, events: wanted, data, adds: taken })
    }

    /// Whether everyone who watches can be made to wait.
    pub(crate) fn is_deferrable(&self) -> bool {
        let fixed =
            |it: &Registration| it.wanted & bits(EPOLLEXCLUSIVE) != 0 && it.wanted & WRITABLE != 0;
        !self.overflowed && !self.known().iter().any(fixed)
    }

    /// The socket is to look full from now on.
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

    /// The socket is to be seen as it is, and who waits for it to be told.
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

    /// After `fork(2)`: the deferral is the parent's, and so is what the kernel has been told.
    pub(crate) fn disown(&mut self) {
        self.deferred = false;
        for it in &mut self.registrations[..self.len] {
            (it.held, it.taken) = (false, false);
        }
    }

    fn find(&self, epfd: i32) -> Option<usize> {
        self.known().iter().position(|it| it.epfd == epfd)
    }

    fn known(&self) -> &[Registration] {
        &self.registrations[..self.len]
    }
}

/// Whether a registration for these events is told less while the socket is deferred.
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
