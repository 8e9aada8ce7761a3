//! Memory that the connections of a worker share, so that none of them has any while it is idle.

use core::cell::{Cell, RefCell};
use core::fmt;
use core::ops::Range;
use std::rc::Rc;

use outq::OutQ;
use sendfile::Piece;
use tls_record::RECORD_OVERHEAD_MAX;

/// The most plain bytes that are sealed before they are sent: a large batch makes few system calls, a small one stays in the
/// processor's cache. From 64 to 256 KiB no difference was measured.
pub(crate) const BATCH_BYTES: usize = 64 * 1024;
/// A connection whose socket is full copies at most this many bytes of records, and gives the memory of the batch back.
/// If more is left, it keeps that memory.
const COPIED_BYTES_MAX: u64 = BATCH_BYTES as u64 / 2;
/// The memory for the records of a batch: few are shorter than 4 KiB.
const RECORDS_BYTES: usize = BATCH_BYTES + 32 * RECORD_OVERHEAD_MAX;
/// The most memory for received plain bytes that is kept for the next receive.
const PLAIN_BYTES_KEPT: usize = 32 * 1024;

/// The memory that the connections of a worker share.
#[derive(Default)]
pub(crate) struct Buffers {
    /// For the next batch of records. A connection whose records could not leave has the memory of its batch, too, and then
    /// the next batch gets another.
    records: RefCell<Rc<Vec<u8>>>,
    /// For the plain bytes of the next receive.
    plain: Cell<Vec<u8>>,
}

impl Buffers {
    /// Makes a batch with the function `write`, which returns the number of bytes that it has written.
    pub(crate) fn batch(&self, write: impl FnOnce(&mut [u8]) -> usize) -> Option<Piece> {
        let mut records = self.records.borrow_mut();
        if Rc::get_mut(&mut records).is_none_or(|records| records.is_empty()) {
            *records = Rc::new(vec![0; RECORDS_BYTES]);
        }
        let written = write(Rc::get_mut(&mut records)?);
        (written > 0).then(|| Piece::Part(Rc::clone(&records), 0..written))
    }

    /// Takes memory for plain bytes. It is empty.
    pub(crate) fn take_plain(&self) -> Vec<u8> {
        self.plain.take()
    }

    /// Takes memory back that [`take_plain`](Self::take_plain) has given.
    pub(crate) fn put_plain(&self, mut plain: Vec<u8>) {
        if (1..=PLAIN_BYTES_KEPT).contains(&plain.capacity()) {
            plain.clear();
            self.plain.set(plain);
        }
    }
}

/// Copies records that could not leave, if they are few, so that the next batch of the worker has the memory.
pub(crate) fn keep_few(queue: &mut OutQ<Piece>) {
    let (at, is_referred_to) = (queue.sent(), queue.released() < queue.sent());
    let first = queue.next_ready().next().filter(|first| first.len() <= COPIED_BYTES_MAX);
    if let Some(first) = first
        && !is_referred_to
        && let Piece::Part(..) = first.payload
    {
        let copy = first.payload.bytes()[bounds(&first.range)].to_vec();
        queue.retract(at);
        queue.fill(at, Piece::Bytes(copy));
    }
}

/// The place of a chunk in its payload.
pub(crate) fn bounds(range: &Range<u64>) -> Range<usize> {
    let index = |at| usize::try_from(at).expect("within a slice");
    index(range.start)..index(range.end)
}

impl fmt::Debug for Buffers {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Buffers").finish_non_exhaustive()
    }
}
