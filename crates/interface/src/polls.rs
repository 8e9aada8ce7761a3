//! The events for which the ring waits on behalf of a stack: frames, room for frames, news about interfaces, and times.
//! The ring waits for each of these once at a time.

use core::time::Duration;
use std::io;
use std::os::fd::AsFd as _;

use netdev::{Counters, ROOM_PAUSE, Room, Wait, Watch};
use ring::{Fd, Op, Ring, Time, Token};

use logs::say::say;
use session::kind;

/// The device has frames.
pub(super) const READABLE: Token = kind::NETWORK;
/// The device may have room again.
pub(super) const WRITABLE: Token = kind::NETWORK | 1;
/// A timer of the stack is due, or there is news that the worker was not told.
pub(super) const TIMER: Token = kind::NETWORK | 2;
/// There are news about interfaces.
pub(super) const WATCH: Token = kind::NETWORK | 3;

/// Reports of frames in a row without any, after which the device is asked at intervals: its interface is gone.
const VAIN_REPORTS_MAX: u32 = 4;
/// The interval.
const VAIN_PAUSE: Duration = Duration::from_millis(100);

/// Frames that come.
#[derive(Debug)]
pub(super) struct Arrivals {
    fd: Fd,
    is_awaited: bool,
    reports: Reports,
}

/// The reports of a device that it has frames.
#[derive(Clone, Copy, Debug, Default)]
struct Reports {
    /// Frames that the device had received when it was last asked for them because it had reported some.
    received: u64,
    /// How often in a row the device had none.
    vain: u32,
}

impl Reports {
    /// Returns true if the reports of the device are in vain. `received` is the number of frames that it has received
    /// so far.
    const fn are_vain(&mut self, received: u64) -> bool {
        let has_none = self.received == received;
        self.received = received;
        self.vain = if has_none { self.vain.saturating_add(1) } else { 0 };
        self.vain > VAIN_REPORTS_MAX
    }
}

impl Arrivals {
    pub(super) const fn new(fd: Fd) -> Self {
        Self { fd, is_awaited: false, reports: Reports { received: 0, vain: 0 } }
    }

    /// The device has reported frames, or a pause is over.
    pub(super) const fn handle(&mut self) {
        self.is_awaited = false;
    }

    /// Begins to wait for frames, unless it waits already.
    pub(super) fn await_more(
        &mut self,
        ring: &mut Ring,
        now: Time,
        received: impl FnOnce() -> u64,
    ) {
        if core::mem::replace(&mut self.is_awaited, true) {
            return;
        }
        let op = if self.reports.are_vain(received()) {
            Op::Timer(now + VAIN_PAUSE)
        } else {
            Op::Readable(self.fd.clone())
        };
        ring.submit(op, READABLE);
    }
}

/// Room for frames that leave.
#[derive(Debug)]
pub(super) struct Departures {
    fd: Fd,
    is_awaited: bool,
    room: Room,
}

impl Departures {
    pub(super) fn new(fd: Fd) -> Self {
        Self { fd, is_awaited: false, room: Room::default() }
    }

    /// The device has reported room, or a pause is over.
    pub(super) fn handle(&mut self, counters: &Counters) {
        self.is_awaited = false;
        self.room.handle_end(counters);
    }

    /// A batch of frames has left, or a part of it: waits for room for the rest, if that is not done yet.
    pub(super) fn await_room(
        &mut self,
        ring: &mut Ring,
        now: Time,
        has_left: bool,
        counters: &Counters,
    ) {
        let op = match self.room.handle_batch(has_left, counters) {
            Wait::Nothing => return,
            Wait::Pause => Op::Timer(now + ROOM_PAUSE),
            Wait::Writable => Op::Writable(self.fd.clone()),
        };
        if !core::mem::replace(&mut self.is_awaited, true) {
            ring.submit(op, WRITABLE);
        }
    }
}

/// News about interfaces, as long as there may be some.
#[derive(Debug, Default)]
pub(super) struct Announcements(Option<Watched>);

#[derive(Debug)]
struct Watched {
    watch: Watch,
    fd: Fd,
    is_awaited: bool,
}

impl Announcements {
    /// Those of a watch, if there is one.
    ///
    /// # Errors
    ///
    /// Those of `dup(2)`.
    pub(super) fn new(ring: &Ring, watch: Option<Watch>) -> io::Result<Self> {
        let Some(watch) = watch else { return Ok(Self(None)) };
        let fd = ring.adopt_socket(watch.as_fd().try_clone_to_owned()?);
        Ok(Self(Some(Watched { watch, fd, is_awaited: false })))
    }

    /// Tells the operator of those that have come.
    pub(super) fn handle(&mut self) {
        let watched = self.0.as_mut().expect("it has news");
        watched.is_awaited = false;
        let is_over = match watched.watch.handle_readable() {
            Ok(news) => {
                news.iter().for_each(|sentence| say(sentence));
                watched.watch.is_gone()
            }
            // There will be no more news.
            Err(_) => true,
        };
        if is_over {
            self.0 = None;
        }
    }

    /// Waits for some, if that is not done yet.
    pub(super) fn await_more(&mut self, ring: &mut Ring) {
        if let Some(watched) = &mut self.0
            && !core::mem::replace(&mut watched.is_awaited, true)
        {
            ring.submit(Op::Readable(watched.fd.clone()), WATCH);
        }
    }
}

/// The earliest time at which the ring calls.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Alarm(Option<Time>);

impl Alarm {
    /// Asks the ring for a call at a time, or earlier. Later timers may be in the ring; they do no harm.
    pub(super) fn set(&mut self, ring: &mut Ring, at: Time) {
        if self.0.is_none_or(|before| at < before) {
            ring.submit(Op::Timer(at), TIMER);
            self.0 = Some(at);
        }
    }

    /// The ring has called.
    pub(super) const fn handle(&mut self) {
        self.0 = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_reports_frames_without_having_any_is_asked_at_intervals() {
        let mut reports = Reports::default();
        let mut are_vain = |received: u64| reports.are_vain(received);
        assert_eq!([1, 1, 1, 1, 1].map(&mut are_vain), [false; 5]);
        assert_eq!([1, 1].map(&mut are_vain), [true; 2], "the fifth in a row");
        assert_eq!(
            [2, 2, 2, 2, 2, 2].map(&mut are_vain),
            [false, false, false, false, false, true]
        );
    }
}
