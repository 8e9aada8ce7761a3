//! The ends of the responses in the stream of one connection.

use std::collections::VecDeque;

use sendfile::Weight;

use crate::record::Record;

/// The positions at which the responses end that have not left, in order.
///
/// The size of the memory is asked for before each request, so it is counted and not summed up.
#[derive(Debug, Default)]
pub(super) struct Ends {
    queue: VecDeque<End>,
    /// The memory of the entries. An entry's memory does not change while it is here.
    records: usize,
}

/// The end of a response.
#[derive(Debug)]
pub(super) struct End {
    /// The position after its last byte.
    pub(super) at: u64,
    /// The entry for the log, if it is recorded.
    pub(super) record: Option<Box<Record>>,
}

impl Ends {
    /// Adds the end of the last response.
    pub(super) fn push(&mut self, end: End) {
        self.records += end.memory();
        self.queue.push_back(end);
    }

    /// Takes out the first end.
    pub(super) fn pop(&mut self) -> Option<End> {
        let end = self.queue.pop_front()?;
        self.records -= end.memory();
        Some(end)
    }

    /// Takes out the first end if the stream has been sent that far.
    #[inline]
    pub(super) fn pop_sent(&mut self, sent: u64) -> Option<End> {
        if self.queue.front()?.at > sent { None } else { self.pop() }
    }

    /// The entry of the first response, if there is a response.
    pub(super) fn first_record(&mut self) -> Option<&mut Option<Box<Record>>> {
        Some(&mut self.queue.front_mut()?.record)
    }

    /// The entry of the last response, if there is a response.
    pub(super) fn last_record(&mut self) -> Option<&mut Option<Box<Record>>> {
        Some(&mut self.queue.back_mut()?.record)
    }

    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub(super) fn weight(&self) -> Weight {
        Weight { own: (self.queue.len() * size_of::<End>() + self.records) as u64, shared: 0 }
    }

    /// Panics unless the responses end in order and between these positions.
    pub(super) fn check(&self, sent: u64, promised: u64) {
        assert!(self.queue.iter().is_sorted_by_key(|end| end.at), "they end in order: {self:?}");
        assert!(self.queue.front().is_none_or(|end| end.at > sent), "they were logged");
        assert!(self.queue.back().is_none_or(|end| end.at <= promised));
        assert_eq!(self.records, self.queue.iter().map(End::memory).sum::<usize>());
    }
}

impl End {
    fn memory(&self) -> usize {
        self.record.as_ref().map_or(0, |record| record.memory())
    }
}
