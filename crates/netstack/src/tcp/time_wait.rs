//! Connections in TIME-WAIT (RFC 9293, 3.3.2): both ends have closed, and old segments may still come.
//!
//! A record takes 44 bytes, and 4 in the table. Records are queued in the order in which they end. A record that
//! leaves early leaves a gap until the front of the queue reaches it.

use alloc::collections::VecDeque;
use core::net::{IpAddr, Ipv6Addr};
use core::time::Duration;

use super::clock::milliseconds;
use super::half_open::clock;
use super::handshake::{Endpoints, Timestamps};
use crate::seq::SeqNumber;
use crate::siphash::Key;
use crate::table::{Chained, Table};
use crate::time::Time;
use crate::wire::tcp::{Flags, Header, Options};

/// Twice the maximum lifetime of a segment. RFC 9293, 3.4.2 says 4 minutes; Linux and Windows take one minute.
const TWO_MSL: Duration = Duration::from_secs(60);
/// The number of records whose memory is allocated together.
const STEP: usize = 4096;

/// The remaining state of a connection in TIME-WAIT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Remains {
    /// `SND.NXT`.
    pub(crate) snd_nxt: SeqNumber,
    /// `RCV.NXT`.
    pub(crate) rcv_nxt: SeqNumber,
    pub(crate) timestamps: Option<Timestamps>,
}

/// The reaction of a connection in TIME-WAIT to a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Nothing.
    Drop,
    /// The segment is acknowledged.
    Acknowledge(Header),
    /// The segment is a SYN that begins a new connection. The record is gone. Our initial number must not be before
    /// this number.
    Reuse(SeqNumber),
}

/// All connections in TIME-WAIT.
pub(crate) struct TimeWait {
    records: Records,
    table: Table,
    /// The maximum number of records, with gaps.
    max: usize,
}

/// The records in the order in which they end. A record's index counts all records ever added, modulo 2³¹.
struct Records {
    queue: VecDeque<Record>,
    /// The index of the first record.
    first: u32,
    key: Key,
}

#[derive(Clone, Copy, Debug)]
struct Record {
    ends: Ends,
    snd_nxt: SeqNumber,
    rcv_nxt: SeqNumber,
    ts_recent: u32,
    /// The time at which the wait is over, in milliseconds modulo 2³².
    over_ms: u32,
    link: u32,
    has_timestamps: bool,
    /// False if it is a gap.
    is_kept: bool,
}

/// Both ends of a connection, packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ends {
    peer: Ipv6Addr,
    peer_port: u16,
    /// The index of our address in `Config::addresses`.
    local: u16,
    local_port: u16,
}

const _: () = assert!(size_of::<Record>() <= 44);

const INDEX_MASK: u32 = u32::MAX >> 1;

impl TimeWait {
    /// An empty table for at most `max` records. A further record ends the oldest early.
    pub(crate) fn new(secret: Key, max: u32) -> Self {
        let records = Records { queue: VecDeque::new(), first: 0, key: secret.derive(b'w') };
        Self { records, table: Table::new(), max: max as usize }
    }

    /// Adds a connection. `local` is the index of our address. Returns true if another connection ended early.
    pub(crate) fn insert(
        &mut self,
        now: Time,
        local: u16,
        endpoints: &Endpoints,
        remains: &Remains,
    ) -> bool {
        if self.max == 0 {
            return true;
        }
        let is_early = self.records.queue.len() == self.max && self.remove_first();
        let record = Record {
            ends: Ends::new(local, endpoints),
            snd_nxt: remains.snd_nxt,
            rcv_nxt: remains.rcv_nxt,
            ts_recent: remains.timestamps.map_or(0, |ours| ours.recent),
            over_ms: milliseconds(now + TWO_MSL),
            link: 0,
            has_timestamps: remains.timestamps.is_some(),
            is_kept: true,
        };
        self.push(record);
        is_early
    }

    fn push(&mut self, record: Record) {
        let records = &mut self.records;
        if records.queue.len() == records.queue.capacity() {
            records.queue.reserve_exact(STEP.min(self.max));
        }
        let index = records.index(records.queue.len());
        records.queue.push_back(record);
        let hash = records.hash(index);
        self.table.insert(records, hash, index);
    }

    /// Handles a segment. Returns the reaction if a connection with these ends is in TIME-WAIT. `offset` is the
    /// offset of our timestamps towards the peer. `seg_len` counts the payload, SYN and FIN.
    pub(crate) fn handle_segment(
        &mut self,
        now: Time,
        local: u16,
        endpoints: &Endpoints,
        offset: u32,
        header: &Header,
        seg_len: u32,
    ) -> Option<Step> {
        let ends = Ends::new(local, endpoints);
        let hash = self.records.hash_of(&ends);
        let records = &self.records;
        let is_same = |index| records.get(index).ends == ends;
        let index = self.table.find(hash, |index| records.link(index), is_same)?;
        let record = *self.records.get(index);
        Some(match record.judge(header, seg_len) {
            Verdict::Drop => Step::Drop,
            Verdict::Acknowledge { restarts } => {
                if restarts {
                    self.remove(index);
                    if self.records.queue.len() == self.max {
                        self.remove_first();
                    }
                    self.push(Record { over_ms: milliseconds(now + TWO_MSL), ..record });
                }
                Step::Acknowledge(record.acknowledgement(now, offset))
            }
            Verdict::Reuse => {
                self.remove(index);
                // The number is after all bytes that the old connection may still have in flight (Linux does the
                // same).
                Step::Reuse(record.snd_nxt + (u32::from(u16::MAX) + 2))
            }
        })
    }

    /// Ends the connections whose wait is over.
    pub(crate) fn handle_timer(&mut self, now: Time) {
        let now = milliseconds(now);
        while self.records.queue.front().is_some_and(|record| record.is_over(now)) {
            self.remove_first();
        }
    }

    /// The time to call [`handle_timer`](Self::handle_timer).
    pub(crate) fn deadline(&self, now: Time) -> Option<Time> {
        let first = self.records.queue.front()?;
        let left = first.over_ms.wrapping_sub(milliseconds(now)).cast_signed();
        Some(now + Duration::from_millis(u64::try_from(left).unwrap_or(0)))
    }

    /// Connections in TIME-WAIT.
    pub(crate) const fn len(&self) -> usize {
        self.table.len()
    }

    /// Bytes of memory.
    pub(crate) fn memory(&self) -> usize {
        self.table.memory() + self.records.queue.capacity() * size_of::<Record>()
    }

    /// Leaves a gap at `index`.
    fn remove(&mut self, index: u32) {
        let hash = self.records.hash(index);
        self.table.remove(&mut self.records, hash, index);
        self.records.get_mut(index).is_kept = false;
    }

    /// Removes the first record; returns true if it was not a gap.
    fn remove_first(&mut self) -> bool {
        let Some(first) = self.records.queue.front() else { return false };
        let is_kept = first.is_kept;
        if is_kept {
            self.remove(self.records.first);
        }
        self.records.queue.pop_front();
        self.records.first = self.records.index(1);
        if self.records.queue.is_empty() {
            self.records.queue.shrink_to(STEP);
        }
        is_kept
    }
}

enum Verdict {
    Drop,
    Acknowledge {
        /// True if the wait begins again (RFC 9293, 3.10.7.4: the peer's FIN came again).
        restarts: bool,
    },
    Reuse,
}

impl Record {
    /// Checks a segment as in RFC 9293, 3.10.7.4 for TIME-WAIT.
    fn judge(&self, header: &Header, seg_len: u32) -> Verdict {
        let flags = header.flags;
        // RFC 1337: a reset does not end the wait; otherwise old segments could reach a later connection.
        if flags.rst {
            return Verdict::Drop;
        }
        if flags.syn && header.ack.is_none() {
            return if self.is_later_connection(header) {
                Verdict::Reuse
            } else {
                Verdict::Acknowledge { restarts: false }
            };
        }
        let is_next = header.seq + seg_len == self.rcv_nxt;
        match seg_len {
            _ if flags.fin && is_next => Verdict::Acknowledge { restarts: true },
            // The acknowledgement of an acknowledgement changes nothing.
            0 if header.seq == self.rcv_nxt => Verdict::Drop,
            _ => Verdict::Acknowledge { restarts: false },
        }
    }

    /// True if a SYN begins a later connection of the same ends: its timestamp is later (RFC 6191, 2), or its
    /// sequence number is later (RFC 9293, 3.6.1).
    fn is_later_connection(&self, header: &Header) -> bool {
        let is_later_number = header.seq.is_after(self.rcv_nxt);
        match header.options.timestamps {
            Some((value, _)) if self.has_timestamps => {
                let ahead = value.wrapping_sub(self.ts_recent).cast_signed();
                ahead > 0 || ahead == 0 && is_later_number
            }
            _ => is_later_number,
        }
    }

    fn acknowledgement(&self, now: Time, offset: u32) -> Header {
        let ours = Timestamps { recent: self.ts_recent, offset };
        let timestamps = self.has_timestamps.then(|| (clock(now, ours), ours.recent));
        Header {
            source: self.ends.local_port,
            destination: self.ends.peer_port,
            seq: self.snd_nxt,
            ack: Some(self.rcv_nxt),
            flags: Flags::NONE,
            window: 0,
            options: Options { timestamps, ..Options::default() },
        }
    }

    const fn is_over(&self, now_ms: u32) -> bool {
        !self.is_kept || now_ms.wrapping_sub(self.over_ms).cast_signed() >= 0
    }
}

impl Ends {
    fn new(local: u16, endpoints: &Endpoints) -> Self {
        let peer = match endpoints.peer.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        let (peer_port, local_port) = (endpoints.peer.port(), endpoints.local.port());
        Self { peer, peer_port, local, local_port }
    }
}

impl Records {
    fn index(&self, place: usize) -> u32 {
        #[expect(clippy::cast_possible_truncation, reason = "less than `Config::time_wait_max`")]
        let place = place as u32;
        self.first.wrapping_add(place) & INDEX_MASK
    }

    fn place(&self, index: u32) -> usize {
        (index.wrapping_sub(self.first) & INDEX_MASK) as usize
    }

    fn get(&self, index: u32) -> &Record {
        &self.queue[self.place(index)]
    }

    fn get_mut(&mut self, index: u32) -> &mut Record {
        let place = self.place(index);
        &mut self.queue[place]
    }

    #[expect(clippy::cast_possible_truncation, reason = "a hash of 32 bits")]
    fn hash_of(&self, ends: &Ends) -> u32 {
        let mut bytes = [0; 22];
        bytes[..16].copy_from_slice(&ends.peer.octets());
        bytes[16..18].copy_from_slice(&ends.peer_port.to_be_bytes());
        bytes[18..20].copy_from_slice(&ends.local.to_be_bytes());
        bytes[20..].copy_from_slice(&ends.local_port.to_be_bytes());
        self.key.spread(&bytes) as u32
    }
}

impl Chained for Records {
    fn link(&self, index: u32) -> u32 {
        self.get(index).link
    }

    fn set_link(&mut self, index: u32, link: u32) {
        self.get_mut(index).link = link;
    }

    fn hash(&self, index: u32) -> u32 {
        self.hash_of(&self.get(index).ends)
    }
}

#[cfg(test)]
mod tests;
