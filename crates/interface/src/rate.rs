//! The rate at which one connection sends.

use core::num::NonZeroU64;

use ring::{Op, Ring, Time};
use sendfile::Slices;

use session::kind;

/// The rate of a connection.
#[derive(Debug)]
pub(super) struct Rate {
    bytes_per_second: NonZeroU64,
    slices: Slices,
    /// The connection's id in the worker.
    name: u64,
    /// The time of the timer that is in the ring.
    timer_at: Option<Time>,
}

impl Rate {
    /// A rate from now on, for the connection with the id `name` in the worker.
    pub(super) fn new(ring: &Ring, bytes_per_second: NonZeroU64, name: u64) -> Self {
        let slices = Slices::new(bytes_per_second, ring.now());
        Self { bytes_per_second, slices, name, timer_at: None }
    }

    pub(super) const fn bytes_per_second(&self) -> NonZeroU64 {
        self.bytes_per_second
    }

    /// The bytes that may be sent now; if there are none, a timer will wake the connection.
    pub(super) fn allowed(&mut self, ring: &mut Ring) -> u64 {
        match self.slices.room(ring.now()) {
            Ok(room) => room.get(),
            Err(until) => {
                if self.timer_at != Some(until) {
                    ring.submit(Op::Timer(until), kind::WRITABLE | self.name);
                    self.timer_at = Some(until);
                }
                0
            }
        }
    }

    /// Counts bytes that were sent.
    pub(super) fn spend(&mut self, bytes: u64) {
        self.slices.spend(bytes);
    }
}
