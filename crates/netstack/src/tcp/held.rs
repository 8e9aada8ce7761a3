//! Received bytes that wait for the application: bytes that came out of order, and bytes that came while the
//! application does not receive.
//!
//! Up to 1,024 ranges are kept if they hold 256 bytes on average. With a limit of 32 ranges, the peer of a sender in
//! slow start dropped data after them. HyStart++ ends slow start a round trip too late for a queue of one
//! bandwidth-delay product, and every second segment of that round trip is lost.

use alloc::vec::Vec;

use crate::seq::SeqNumber;
use crate::wire::tcp::SackBlocks;

/// The received bytes that are held for the application.
///
/// ```text
///        unread          gap      ranges[0]     gap     ranges[1]
///   |---------------|...........|-----------|.........|-----------|
///                RCV.NXT
/// ```
#[derive(Debug, Default)]
pub(super) struct Held {
    /// The bytes in front of `RCV.NXT` that the application does not have yet.
    unread: Vec<u8>,
    /// The ranges that came out of order, sorted. No range touches another. At most [`RANGES_MAX`].
    ranges: Vec<Range>,
    /// The sequence number of the peer's FIN, if the FIN came out of order.
    fin: Option<SeqNumber>,
    /// Bytes that came twice and have to be reported once (RFC 2883).
    duplicate: Option<(SeqNumber, SeqNumber)>,
    /// The number of segments that came out of order.
    arrivals: u32,
}

/// Contiguous bytes.
#[derive(Debug)]
struct Range {
    /// The sequence number of the first byte.
    from: SeqNumber,
    bytes: Vec<u8>,
    /// `Held::arrivals` at the last growth of the range.
    arrival: u32,
}

/// The maximum ranges of any size. A peer that sends every second byte gets no more memory.
const SMALL_RANGES_MAX: usize = 32;

/// The overhead of a range, bytes: the struct, and the smallest allocation. With single bytes and gaps between them,
/// most of the held memory is this overhead.
pub(super) const RANGE_COST: usize = size_of::<Range>() + 32;

/// The minimum mean bytes of ranges beyond [`SMALL_RANGES_MAX`]. A large window that loses every second segment exceeds
/// it. The overhead of a range is a quarter of it.
const RANGE_BYTES_MIN: usize = 256;

/// The maximum ranges with any content, because each segment out of order searches all ranges.
const RANGES_MAX: usize = 1024;

impl Held {
    /// All held bytes, with the overhead of their ranges.
    pub(super) fn bytes(&self) -> usize {
        self.unread.len() + self.ranges.iter().map(Range::cost).sum::<usize>()
    }

    /// The bytes in order that the application does not have yet.
    pub(super) const fn unread_bytes(&self) -> usize {
        self.unread.len()
    }

    /// True if nothing is held, so the memory may be freed.
    pub(super) const fn is_empty(&self) -> bool {
        self.unread.is_empty() && !self.is_out_of_order() && self.duplicate.is_none()
    }

    /// True if bytes or a FIN out of order are held.
    pub(super) const fn is_out_of_order(&self) -> bool {
        !self.ranges.is_empty() || self.fin.is_some()
    }

    /// True if there are blocks for a selective acknowledgement.
    pub(super) const fn has_blocks(&self) -> bool {
        !self.ranges.is_empty() || self.duplicate.is_some()
    }

    /// Adds the next bytes in order.
    pub(super) fn push_unread(&mut self, bytes: &[u8]) {
        self.unread.extend_from_slice(bytes);
    }

    /// Takes all bytes in order.
    pub(super) fn take_unread(&mut self) -> Vec<u8> {
        core::mem::take(&mut self.unread)
    }

    /// Records a FIN that came out of order.
    pub(super) const fn note_fin(&mut self, at: SeqNumber) {
        self.fin = Some(at);
    }

    /// Takes the FIN that came out of order, if all bytes in front of it have come since.
    pub(super) fn take_fin(&mut self, rcv_nxt: SeqNumber) -> bool {
        self.fin.take_if(|at| *at == rcv_nxt).is_some()
    }

    /// Records that the bytes from `left` to `right` came twice.
    pub(super) const fn note_duplicate(&mut self, left: SeqNumber, right: SeqNumber) {
        self.duplicate = Some((left, right));
    }

    /// Drops the duplicate after it was reported.
    pub(super) const fn forget_duplicate(&mut self) {
        self.duplicate = None;
    }

    /// True if one more range may be kept.
    fn has_room(&self) -> bool {
        let count = self.ranges.len();
        let is_worth_it = || {
            let bytes: usize = self.ranges.iter().map(|range| range.bytes.len()).sum();
            bytes >= count * RANGE_BYTES_MIN
        };
        count < SMALL_RANGES_MAX || count < RANGES_MAX && is_worth_it()
    }

    /// Holds bytes that came out of order; `from` is after `RCV.NXT`. Returns false at the maximum of ranges.
    pub(super) fn insert(&mut self, from: SeqNumber, bytes: &[u8]) -> bool {
        let end = from + len(bytes);
        let first = self.ranges.partition_point(|range| range.end().is_before(from));
        let behind = self.ranges.partition_point(|range| !range.from.is_after(end));
        if first == behind && !self.has_room() {
            return false;
        }
        let overlap = self.ranges[first..behind].iter().find_map(|range| range.overlap(from, end));
        self.duplicate = overlap.or(self.duplicate);
        self.arrivals = self.arrivals.wrapping_add(1);
        let arrival = self.arrivals;
        match self.ranges.get_mut(first) {
            // The usual case: the segment follows another segment after the same gap.
            Some(range) if behind == first + 1 && !from.is_before(range.from) => {
                range.append(from, bytes);
                range.arrival = arrival;
            }
            _ => {
                let mut merged = Range { from, bytes: Vec::new(), arrival };
                let mut touched = self.ranges.drain(first..behind);
                match touched.next() {
                    Some(range) if range.from.is_before(from) => {
                        merged.from = range.from;
                        merged.bytes = range.bytes;
                        merged.append(from, bytes);
                    }
                    Some(range) => {
                        merged.append(from, bytes);
                        merged.append(range.from, &range.bytes);
                    }
                    None => merged.append(from, bytes),
                }
                for range in touched {
                    merged.append(range.from, &range.bytes);
                }
                self.ranges.insert(first, merged);
            }
        }
        true
    }

    /// Moves the bytes that are now in order to the unread bytes, and returns `RCV.NXT` after them. Bytes that a
    /// segment in order has brought again are a duplicate.
    pub(super) fn join(&mut self, rcv_nxt: SeqNumber) -> SeqNumber {
        let mut next = rcv_nxt;
        let joined = self.ranges.partition_point(|range| !range.from.is_after(rcv_nxt));
        for range in self.ranges.drain(..joined) {
            // A segment that filled the gap may have held the first of these bytes, too.
            let known = next - range.from;
            self.duplicate = self.duplicate.or_else(|| range.overlap(range.from, rcv_nxt));
            if let Some(bytes) = usize::try_from(known).ok().and_then(|n| range.bytes.get(n..)) {
                self.unread.extend_from_slice(bytes);
                next = range.end();
            }
        }
        // `next` may have reached the next range only if they touched, and no range touches another.
        next
    }

    /// Drops the ranges out of order, which are after the peer's FIN, and returns their bytes with overhead.
    pub(super) fn drop_out_of_order(&mut self) -> usize {
        self.fin = None;
        self.ranges.drain(..).map(|range| range.cost()).sum()
    }

    /// The blocks of an acknowledgement: the report of a duplicate (RFC 2883, 4), then the ranges, from the one
    /// that grew last on (RFC 2018, 4).
    pub(super) fn blocks(&self) -> SackBlocks {
        let mut blocks = SackBlocks::default();
        if let Some((left, right)) = self.duplicate {
            blocks.push(left, right);
        }
        let mut newest = u32::MAX;
        for _ in blocks.len()..SackBlocks::MAX {
            // There are few ranges, seldom more than one. To sort them would cost more.
            let next = self.ranges.iter().filter(|range| self.age(range) < newest);
            let Some(range) = next.max_by_key(|range| self.age(range)) else { break };
            newest = self.age(range);
            blocks.push(range.from, range.end());
        }
        blocks
    }

    /// The rank of a range: a range that grew later has a greater rank. Valid for 2³² arrivals.
    const fn age(&self, range: &Range) -> u32 {
        u32::MAX - 1 - self.arrivals.wrapping_sub(range.arrival)
    }
}

impl Range {
    fn cost(&self) -> usize {
        RANGE_COST + self.bytes.len()
    }

    fn end(&self) -> SeqNumber {
        self.from + len(&self.bytes)
    }

    /// Returns the bytes of `from..end` that the range has; `from` is not after `end`.
    fn overlap(&self, from: SeqNumber, end: SeqNumber) -> Option<(SeqNumber, SeqNumber)> {
        let left = if from.is_before(self.from) { self.from } else { from };
        let right = end.earlier(self.end());
        left.is_before(right).then_some((left, right))
    }

    /// Appends the bytes after the range's end; `from` is not after the end.
    fn append(&mut self, from: SeqNumber, bytes: &[u8]) {
        let known = usize::try_from(self.end() - from).ok();
        if let Some(bytes) = known.and_then(|known| bytes.get(known..)) {
            self.bytes.extend_from_slice(bytes);
        }
    }
}

/// The length of bytes that fit into a window.
fn len(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.len()).expect("less than a window")
}

#[cfg(test)]
mod tests;
