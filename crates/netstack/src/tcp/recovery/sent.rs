//! The scoreboard: a record of each transmission that is not yet acknowledged (RFC 6675, 3; RFC 8985, 5).
//!
//! ```text
//! SND.UNA                                                              SND.NXT
//!    │ Lost │ InFlight (again) │ Sacked │   InFlight   │ Sacked │ InFlight │
//!    └──────┴──────────────────┴────────┴──────────────┴────────┴──────────┘
//! ```
//!
//! The records are contiguous and in order. A record covers the bytes that left at one moment, up to
//! [`RECORD_BYTES_MAX`]; selective acknowledgements and retransmissions split records.

use alloc::collections::VecDeque;

use super::delivery::{Deliveries, Sample, Snapshot};
use crate::seq::SeqNumber;
use crate::tcp::clock::{elapsed_us, later, milliseconds};
use crate::time::Time;

/// The maximum bytes of a record: the largest frame.
const RECORD_BYTES_MAX: u32 = 64 * 1024;

/// The maximum records of one connection. At the limit, an acknowledgement that would split a record counts only
/// for whole records. Bytes may then be retransmitted in vain, but none is missed.
const RECORDS_MAX: usize = 4_096;

/// New data is sent only while there are fewer records than this. The rest is for splits.
const RECORDS_OF_NEW_MAX: usize = RECORDS_MAX / 4 * 3;

/// The number of records whose memory is kept while nothing is in flight.
const RECORDS_KEPT: usize = 64;

/// The state of sent bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SentState {
    /// The bytes were sent, and are not known to be lost.
    InFlight,
    /// The bytes were selectively acknowledged.
    Sacked,
    /// The bytes count as lost, and are not yet retransmitted.
    Lost,
}

/// Contiguous bytes with the same history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    /// The first byte.
    pub(crate) from: SeqNumber,
    /// The number of bytes, at least 1.
    pub(crate) bytes: u32,
    /// The time of the last transmission.
    pub(crate) sent_at: Time,
    /// The state of the bytes.
    pub(crate) state: SentState,
    /// True if the bytes were sent more than once: an acknowledgement may be for any transmission (Karn's
    /// algorithm).
    pub(crate) is_again: bool,
    /// The deliveries at the last transmission.
    pub(crate) snapshot: Snapshot,
}

impl Record {
    /// The byte after the last one.
    pub(crate) fn end(&self) -> SeqNumber {
        self.from + self.bytes
    }
}

/// The transmission that was delivered last, as far as known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Newest {
    /// The time at which the transmission left.
    pub(crate) sent_at: Time,
    /// The number after its last byte.
    pub(crate) end: SeqNumber,
    /// The deliveries at the time at which it left.
    pub(crate) snapshot: Snapshot,
}

/// The bytes that an acknowledgement delivers, collected record by record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Delivery {
    now: Time,
    ts_echo: Option<u32>,
    min_rtt_us: u32,
    /// Bytes that were not acknowledged before, not even selectively.
    pub(crate) bytes: u32,
    /// The earliest transmission among delivered bytes that were sent once, for the timeout.
    pub(crate) oldest_sent_at: Option<Time>,
    /// The transmission that left last; of equal times, the one after: `RACK.xmit_ts`, `RACK.end_seq`.
    pub(crate) newest: Option<Newest>,
    /// The greatest end of delivered bytes.
    pub(crate) highest: Option<SeqNumber>,
    /// The least end of delivered bytes that were sent once.
    pub(crate) lowest_once: Option<SeqNumber>,
    /// True if bytes were delivered that counted as lost and had not been retransmitted.
    pub(crate) was_not_lost: bool,
    /// True if retransmitted bytes were delivered. Without SACK the other bytes came long before, and their time is
    /// no measurement.
    pub(crate) has_again: bool,
}

impl Delivery {
    /// A delivery without bytes yet.
    pub(crate) fn new(now: Time, ts_echo: Option<u32>, min_rtt_us: u32) -> Self {
        Self {
            now,
            ts_echo,
            min_rtt_us,
            bytes: 0,
            oldest_sent_at: None,
            newest: None,
            highest: None,
            lowest_once: None,
            was_not_lost: false,
            has_again: false,
        }
    }

    /// Adds bytes up to `end` of a record that was not sacked.
    fn add(&mut self, record: &Record, end: SeqNumber, bytes: u32) {
        self.bytes += bytes;
        self.highest = Some(self.highest.map_or(end, |highest| highest.later(end)));
        if !record.is_again {
            let lowest = self.lowest_once.map_or(end, |lowest| lowest.earlier(end));
            self.lowest_once = Some(lowest);
            let oldest = self.oldest_sent_at.map_or(record.sent_at, |at| at.min(record.sent_at));
            self.oldest_sent_at = Some(oldest);
            self.was_not_lost |= record.state == SentState::Lost;
        } else {
            self.has_again = true;
            if self.may_be_an_earlier_transmission(record) {
                return;
            }
        }
        let is_newer = self.newest.is_none_or(|newest| {
            newest.sent_at < record.sent_at
                || newest.sent_at == record.sent_at && newest.end.is_before(end)
        });
        if is_newer {
            self.newest = Some(Newest { sent_at: record.sent_at, end, snapshot: record.snapshot });
        }
    }

    /// RFC 8985, 6.2, step 2: an acknowledgement is for the first transmission if it comes too soon for the
    /// retransmission, or echoes an earlier timestamp.
    fn may_be_an_earlier_transmission(&self, record: &Record) -> bool {
        let is_echo_earlier = self.ts_echo.is_some_and(|echo| {
            echo.wrapping_sub(milliseconds(record.sent_at)).cast_signed().is_negative()
        });
        is_echo_earlier || elapsed_us(self.now, record.sent_at) < self.min_rtt_us
    }
}

/// The records.
#[derive(Debug)]
pub(crate) struct Sent {
    records: VecDeque<Record>,
    /// Bytes in flight: `pipe` of RFC 6675.
    pipe: u32,
    /// Bytes that count as lost and are not yet retransmitted.
    lost: u32,
    /// Bytes selectively acknowledged.
    sacked: u32,
    /// No lost byte is in front of this number.
    lost_from: SeqNumber,
    /// No byte after this number was retransmitted.
    again_end: SeqNumber,
    /// The delivered and lost bytes of the connection.
    deliveries: Deliveries,
}

impl Sent {
    /// An empty scoreboard.
    pub(crate) fn new() -> Self {
        let zero = SeqNumber(0);
        Self {
            records: VecDeque::new(),
            pipe: 0,
            lost: 0,
            sacked: 0,
            lost_from: zero,
            again_end: zero,
            deliveries: Deliveries::default(),
        }
    }

    /// Empties the scoreboard. The next record begins at `snd_una`.
    pub(crate) fn clear(&mut self, snd_una: SeqNumber) {
        self.records.clear();
        if self.records.capacity() > RECORDS_KEPT {
            self.records.shrink_to(RECORDS_KEPT);
        }
        (self.pipe, self.lost, self.sacked) = (0, 0, 0);
        (self.lost_from, self.again_end) = (snd_una, snd_una);
        self.deliveries = Deliveries::default();
    }

    /// The bytes delivered so far.
    pub(crate) const fn delivered(&self) -> u64 {
        self.deliveries.delivered()
    }

    /// Records that the application has no more bytes, with room for more.
    pub(crate) fn limit_by_application(&mut self) {
        self.deliveries.limit_by_application(self.pipe);
    }

    /// Records the bytes that an acknowledgement has delivered, after lost bytes were marked. Returns a sample of the
    /// rate.
    pub(crate) fn sample(
        &mut self,
        now: Time,
        bytes: u32,
        newest: Option<&Newest>,
        min_rtt_us: u32,
    ) -> Option<Sample> {
        self.deliveries.deliver(now, bytes);
        newest.map(|one| self.deliveries.sample(now, one.sent_at, &one.snapshot, min_rtt_us))
    }

    /// Bytes in flight.
    pub(crate) const fn pipe(&self) -> u32 {
        self.pipe
    }

    /// Bytes that count as lost and are not yet retransmitted.
    pub(crate) const fn lost(&self) -> u32 {
        self.lost
    }

    /// Bytes selectively acknowledged.
    pub(crate) const fn sacked(&self) -> u32 {
        self.sacked
    }

    /// True if there is a record for new data.
    pub(crate) fn has_room(&self) -> bool {
        self.records.len() < RECORDS_OF_NEW_MAX
    }

    /// True if RACK can find no loss: all bytes were sent once, and there is no gap.
    pub(crate) fn is_in_order(&self) -> bool {
        let Some(first) = self.records.front() else { return true };
        self.sacked == 0 && !self.again_end.is_after(first.from)
    }

    /// True if all bytes are in flight, and were sent once and in order.
    pub(crate) fn is_plain(&self) -> bool {
        self.lost == 0 && self.is_in_order()
    }

    /// Removes acknowledged bytes when all records are [plain](Self::is_plain). Returns the time at which the first
    /// acknowledged record left, and the last one.
    pub(crate) fn acknowledge_plain(&mut self, una: SeqNumber) -> Option<(Time, Newest)> {
        let first = self.records.front()?;
        let oldest_sent_at = first.sent_at;
        let mut newest = Newest { sent_at: oldest_sent_at, end: una, snapshot: first.snapshot };
        while let Some(record) = self.records.front_mut()
            && record.from.is_before(una)
        {
            (newest.sent_at, newest.snapshot) = (record.sent_at, record.snapshot);
            let bytes = una - record.from;
            if bytes < record.bytes {
                self.pipe -= bytes;
                record.from = una;
                record.bytes -= bytes;
                break;
            }
            self.pipe -= record.bytes;
            self.records.pop_front();
        }
        (self.lost_from, self.again_end) = (una, una);
        Some((oldest_sent_at, newest))
    }

    /// The record in front of `SND.NXT`.
    pub(crate) fn last(&self) -> Option<&Record> {
        self.records.back()
    }

    /// The first lost bytes that are not yet retransmitted.
    pub(crate) fn first_lost(&self) -> Option<&Record> {
        if self.lost == 0 {
            return None;
        }
        self.records
            .range(self.index(self.lost_from)..)
            .find(|record| record.state == SentState::Lost)
    }

    /// Records new sent bytes.
    pub(crate) fn push(&mut self, now: Time, from: SeqNumber, bytes: u32) {
        self.pipe += bytes;
        if let Some(last) = self.records.back_mut() {
            debug_assert_eq!(last.end(), from, "records are contiguous");
            let is_same =
                last.sent_at == now && last.state == SentState::InFlight && !last.is_again;
            if is_same && last.bytes + bytes <= RECORD_BYTES_MAX {
                last.bytes += bytes;
                last.snapshot.extend(self.pipe);
                return;
            }
        }
        let snapshot = self.deliveries.send(now, bytes, self.pipe);
        self.records.push_back(Record {
            from,
            bytes,
            sent_at: now,
            state: SentState::InFlight,
            is_again: false,
            snapshot,
        });
    }

    /// Records retransmitted bytes. All of them are in one record.
    pub(crate) fn resend(&mut self, now: Time, from: SeqNumber, bytes: u32) {
        let mut i = self.index(from);
        if self.split(i, from) {
            i += 1;
        }
        self.split(i, from + bytes);
        let Some(record) = self.records.get_mut(i) else { return };
        record.sent_at = now;
        record.is_again = true;
        if record.state == SentState::Lost {
            record.state = SentState::InFlight;
            self.lost -= record.bytes;
            self.pipe += record.bytes;
        }
        record.snapshot = self.deliveries.send(now, record.bytes, self.pipe);
        let end = record.end();
        self.again_end = self.again_end.later(end);
        if from == self.lost_from {
            self.lost_from = end;
        }
    }

    /// Removes acknowledged bytes.
    pub(crate) fn acknowledge(&mut self, una: SeqNumber, delivery: &mut Delivery) {
        while let Some(record) = self.records.front_mut() {
            if !record.from.is_before(una) {
                break;
            }
            let bytes = record.bytes.min(una - record.from);
            match record.state {
                SentState::InFlight => self.pipe -= bytes,
                SentState::Sacked => self.sacked -= bytes,
                SentState::Lost => self.lost -= bytes,
            }
            if record.state != SentState::Sacked {
                delivery.add(record, record.from + bytes, bytes);
            }
            if bytes < record.bytes {
                record.from += bytes;
                record.bytes -= bytes;
                break;
            }
            self.records.pop_front();
        }
        self.lost_from = self.lost_from.later(una);
        self.again_end = self.again_end.later(una);
    }

    /// Marks selectively acknowledged bytes. `left` is not before `SND.UNA`; `right` is after `left` and not after
    /// `SND.NXT`. A partly covered segment does not count.
    pub(crate) fn sack(
        &mut self,
        left: SeqNumber,
        right: SeqNumber,
        mss: u32,
        delivery: &mut Delivery,
    ) {
        let mut i = self.index(left);
        while let Some(record) = self.records.get(i) {
            if !record.from.is_before(right) {
                break;
            }
            if record.state == SentState::Sacked {
                i += 1;
                continue;
            }
            let skipped = if record.from.is_before(left) { left - record.from } else { 0 };
            let begin = record.from + skipped.div_ceil(mss) * mss;
            let end = if record.end().is_after(right) {
                record.from + (right - record.from) / mss * mss
            } else {
                record.end()
            };
            if !begin.is_before(end) {
                i += 1;
                continue;
            }
            if begin != record.from {
                if !self.split(i, begin) {
                    i += 1;
                    continue;
                }
                i += 1;
            }
            if self.records[i].end() != end && !self.split(i, end) {
                break;
            }
            i = self.mark_sacked(i, delivery) + 1;
        }
    }

    /// Marks a record and joins it with its neighbours; returns its new index.
    fn mark_sacked(&mut self, i: usize, delivery: &mut Delivery) -> usize {
        let record = &mut self.records[i];
        match record.state {
            SentState::Lost => self.lost -= record.bytes,
            _ => self.pipe -= record.bytes,
        }
        self.sacked += record.bytes;
        delivery.add(record, record.end(), record.bytes);
        record.state = SentState::Sacked;
        self.join(i + 1);
        if self.join(i) { i - 1 } else { i }
    }

    /// Joins a record with the record in front of it if both are sacked.
    fn join(&mut self, i: usize) -> bool {
        let Some(record) = self.records.get(i).copied() else { return false };
        let Some(front) = i.checked_sub(1).map(|i| &mut self.records[i]) else { return false };
        let both = front.state == SentState::Sacked && record.state == SentState::Sacked;
        if both {
            front.bytes += record.bytes;
            front.is_again |= record.is_again;
            self.records.remove(i);
        }
        both
    }

    /// Marks bytes as lost that were sent longer before the newest delivery than reordering explains (RFC 8985,
    /// 6.2, step 5). Returns the time at which the next record would be lost.
    pub(crate) fn mark_lost_by_time(
        &mut self,
        now: Time,
        newest: Newest,
        patience_us: u64,
    ) -> Option<Time> {
        let mut next: Option<Time> = None;
        for record in &mut self.records {
            let is_older = record.sent_at < newest.sent_at
                || record.sent_at == newest.sent_at && record.end().is_before(newest.end);
            if !is_older {
                // After the retransmitted bytes, records are in the order of their times.
                if !record.from.is_before(self.again_end) {
                    break;
                }
                continue;
            }
            if record.state != SentState::InFlight {
                continue;
            }
            let lost_at = later(record.sent_at, patience_us);
            if lost_at <= now {
                record.state = SentState::Lost;
                self.pipe -= record.bytes;
                self.lost += record.bytes;
                self.deliveries.lose(record.bytes);
                self.lost_from = self.lost_from.earlier(record.from);
            } else {
                next = Some(next.map_or(lost_at, |next| next.min(lost_at)));
            }
        }
        next
    }

    /// Marks the first segment as lost (RFC 5681, 3.2, step 2, and RFC 6582, 3.2, step 3), unless it is already
    /// marked.
    pub(crate) fn mark_first_lost(&mut self, mss: u32) {
        let Some(first) = self.records.front().copied() else { return };
        if first.state != SentState::InFlight || first.is_again {
            return;
        }
        self.split(0, first.from + first.bytes.min(mss));
        let first = &mut self.records[0];
        first.state = SentState::Lost;
        self.pipe -= first.bytes;
        self.lost += first.bytes;
        self.deliveries.lose(first.bytes);
        self.lost_from = first.from;
    }

    /// Marks all bytes as lost that the peer has not acknowledged selectively.
    pub(crate) fn mark_all_lost(&mut self) {
        for record in &mut self.records {
            if record.state == SentState::InFlight {
                record.state = SentState::Lost;
                self.pipe -= record.bytes;
                self.lost += record.bytes;
            }
        }
        if let Some(first) = self.records.front() {
            self.lost_from = first.from;
        }
    }

    /// Marks all lost records as in flight again, because they were only late.
    pub(crate) fn mark_none_lost(&mut self) {
        for record in &mut self.records {
            if record.state == SentState::Lost {
                record.state = SentState::InFlight;
                self.lost -= record.bytes;
                self.pipe += record.bytes;
            }
        }
    }

    /// True if the peer has dropped selectively acknowledged bytes (RFC 2018, 8): the bytes at `SND.UNA` are sacked
    /// but not acknowledged.
    pub(crate) fn is_reneged(&self) -> bool {
        self.records.front().is_some_and(|first| first.state == SentState::Sacked)
    }

    /// Undoes all selective acknowledgements: their bytes count as in flight.
    pub(crate) fn forget_sacked(&mut self) {
        for record in &mut self.records {
            if record.state == SentState::Sacked {
                record.state = SentState::InFlight;
                record.is_again = true;
                self.sacked -= record.bytes;
                self.pipe += record.bytes;
            }
        }
        if let Some(last) = self.records.back() {
            self.again_end = last.end();
        }
    }

    /// The record that contains a byte, or the number of records.
    fn index(&self, seq: SeqNumber) -> usize {
        match self.records.front() {
            Some(first) if first.end().is_after(seq) => 0,
            _ => self.records.partition_point(|record| !record.end().is_after(seq)),
        }
    }

    /// Splits a record in front of a byte that is within it. Returns false if the byte is at the record's edge, or
    /// there is no room.
    fn split(&mut self, i: usize, at: SeqNumber) -> bool {
        if self.records.len() >= RECORDS_MAX {
            return false;
        }
        let Some(record) = self.records.get_mut(i) else { return false };
        let front_bytes = at - record.from;
        if front_bytes == 0 || front_bytes >= record.bytes {
            return false;
        }
        let mut back = *record;
        record.bytes = front_bytes;
        back.from = at;
        back.bytes -= front_bytes;
        self.records.insert(i + 1, back);
        true
    }

    /// Checks the invariants.
    #[cfg(test)]
    pub(crate) fn check(&self, snd_una: SeqNumber, snd_nxt: SeqNumber) {
        let (mut pipe, mut lost, mut sacked, mut at) = (0, 0, 0, snd_una);
        let mut was_sacked = false;
        for record in &self.records {
            assert_eq!(record.from, at, "records are contiguous");
            assert!(record.bytes > 0, "no record is empty");
            match record.state {
                SentState::InFlight => pipe += record.bytes,
                SentState::Lost => {
                    lost += record.bytes;
                    assert!(!record.from.is_before(self.lost_from), "a lost byte is overlooked");
                }
                SentState::Sacked => sacked += record.bytes,
            }
            assert!(
                !(was_sacked && record.state == SentState::Sacked),
                "sacked records are joined"
            );
            was_sacked = record.state == SentState::Sacked;
            let is_ordered = !record.is_again || !record.end().is_after(self.again_end);
            assert!(is_ordered || was_sacked, "again_end is behind what was sent again");
            at = record.end();
        }
        assert_eq!(at, snd_nxt, "the records end at SND.NXT");
        assert_eq!((pipe, lost, sacked), (self.pipe, self.lost, self.sacked));
        assert!(self.records.len() <= RECORDS_MAX);
    }
}
