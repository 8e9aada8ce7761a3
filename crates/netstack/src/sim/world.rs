//! Two hosts and the path between them.

use alloc::vec::Vec;

use super::host::{Host, News};
use super::link::Link;
use crate::application::ConnectionId;
use crate::time::Time;

/// Steps at one moment that are many: the time must go on.
const STEPS_OF_A_MOMENT_MAX: u32 = 10_000;

/// Two hosts and the path between them, on a virtual clock.
///
/// ```text
///  host 0 ──► link 0 ──► host 1
///         ◄── link 1 ◄──
/// ```
///
/// A test lets it [`advance`](Self::advance), lets its applications act on the news, and then
/// [`settle`](Self::settle)s it.
#[derive(Debug)]
pub struct World {
    now: Time,
    /// The steps that the clock stands still.
    steps: u32,
    /// The ends.
    pub hosts: [Host; 2],
    /// The directions; the first carries what the first host sends.
    pub links: [Link; 2],
}

impl World {
    /// A world at a moment that its hosts began at.
    #[must_use]
    pub const fn new(now: Time, hosts: [Host; 2], links: [Link; 2]) -> Self {
        Self { now, steps: 0, hosts, links }
    }

    /// The time.
    #[must_use]
    pub const fn now(&self) -> Time {
        self.now
    }

    /// When something happens next by itself.
    #[must_use]
    pub fn next_event(&self) -> Option<Time> {
        let timers = self.hosts.iter().filter_map(Host::next_timer);
        timers.chain(self.links.iter().filter_map(Link::next_arrival)).min()
    }

    /// Goes to the next event, handles it, and returns what the hosts tell. If there is none until `until`,
    /// goes there and returns `None`.
    ///
    /// # Panics
    ///
    /// If a stack's timer is due again and again at one moment.
    pub fn advance(&mut self, until: Time) -> Option<Vec<(usize, ConnectionId, News)>> {
        let Some(next) = self.next_event().filter(|next| *next <= until) else {
            self.now = self.now.max(until);
            return None;
        };
        self.steps = if next > self.now { 0 } else { self.steps + 1 };
        assert!(self.steps < STEPS_OF_A_MOMENT_MAX, "the time stands still at {:?}", self.now);
        self.now = self.now.max(next);
        for (index, host) in self.hosts.iter_mut().enumerate() {
            let incoming = &mut self.links[1 - index];
            while let Some(frame) = incoming.take(self.now) {
                host.handle_frame(self.now, &frame);
            }
            if host.next_timer().is_some_and(|timer| timer <= self.now) {
                host.handle_timers(self.now);
            }
        }
        Some(self.news())
    }

    /// What the hosts have told since the last call.
    pub fn news(&mut self) -> Vec<(usize, ConnectionId, News)> {
        let of_host = |(index, host): (usize, &mut Host)| {
            host.news().into_iter().map(move |(id, news)| (index, id, news))
        };
        self.hosts.iter_mut().enumerate().flat_map(of_host).collect()
    }

    /// Lets the hosts send, and collects their frames.
    pub fn settle(&mut self) {
        for (index, host) in self.hosts.iter_mut().enumerate() {
            loop {
                host.settle(self.now);
                let frames = host.frames();
                if frames.is_empty() {
                    break;
                }
                for frame in frames {
                    if let Some(answer) = self.links[index].carry(self.now, frame) {
                        host.handle_frame(self.now, &answer);
                    }
                }
            }
        }
    }
}
