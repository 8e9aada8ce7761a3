//! The numbers of handshakes of one worker.

use core::cell::Cell;

/// The numbers of handshakes. A worker publishes them with its other numbers.
#[derive(Debug, Default)]
pub struct Counters {
    under_way: Cell<u64>,
    failed: Cell<u64>,
    refused: Cell<u64>,
    /// Complete ones: full and resumed, of TLS 1.2 and of TLS 1.3.
    complete: [Cell<u64>; 4],
}

fn add(to: &Cell<u64>, count: i64) {
    to.set(to.get().saturating_add_signed(count));
}

impl Counters {
    /// Handshakes under way.
    pub fn under_way(&self) -> u64 {
        self.under_way.get()
    }

    /// Handshakes that have failed, or that the client has given up.
    pub fn failed(&self) -> u64 {
        self.failed.get()
    }

    /// Handshakes that were refused, or had waited for too long, because clients have asked for too many.
    pub fn refused(&self) -> u64 {
        self.refused.get()
    }

    /// Complete handshakes: TLS 1.2 full, TLS 1.2 resumed, TLS 1.3 full, TLS 1.3 resumed.
    pub fn complete_by_kind(&self) -> [u64; 4] {
        self.complete.each_ref().map(Cell::get)
    }

    pub(crate) fn begin(&self) {
        add(&self.under_way, 1);
    }

    pub(crate) fn fail(&self) {
        add(&self.under_way, -1);
        add(&self.failed, 1);
    }

    pub(crate) fn refuse(&self) {
        add(&self.under_way, -1);
        add(&self.refused, 1);
    }

    pub(crate) fn complete(&self, is_1_3: bool, is_resumed: bool) {
        add(&self.under_way, -1);
        add(&self.complete[2 * usize::from(is_1_3) + usize::from(is_resumed)], 1);
    }
}
