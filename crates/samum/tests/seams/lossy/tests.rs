//! The client's end of the segments, and the network in front of it.

use core::ops::Range;
use std::collections::BTreeMap;
use std::rc::Rc;

use ring::sim::{End, Peer};
use testkit::Random;

use super::{ACKNOWLEDGED, AGAIN, DATA, END, Lossy, frame, unframe};
use crate::seams::below::{Layered, assert_a_part_is_counted};
use crate::seams::world::Client;

/// The client's end, and the network in front of it.
pub(crate) struct LossyClient {
    peer: Rc<Peer>,
    chance: Random,
    input: Vec<u8>,
    /// Segments that are late, in any order.
    late: Vec<(u64, Vec<u8>)>,
    /// Segments that have come, by position.
    segments: BTreeMap<u64, Vec<u8>>,
    received: Vec<u8>,
    /// The end of the last segment that was sent, lost ones included.
    sent: u64,
    acknowledged: u64,
    end: Option<u64>,
}

impl LossyClient {
    fn tell(&self, kind: u8, range: Range<u64>) {
        self.peer.send(&frame(kind, range, b""));
    }

    /// Takes the segments that join what has been received.
    fn join(&mut self) {
        while let Some(first) = self.segments.first_entry() {
            let at = usize::try_from(*first.key()).expect("a position");
            if at > self.received.len() {
                return;
            }
            let bytes = first.remove();
            let (known, fresh) = bytes.split_at(bytes.len().min(self.received.len() - at));
            assert_eq!(known, &self.received[at..][..known.len()], "other bytes are sent again");
            self.received.extend_from_slice(fresh);
        }
    }
}

impl LossyClient {
    pub(crate) const fn new(peer: Rc<Peer>, seed: u64) -> Self {
        Self {
            peer,
            chance: Random::new(seed),
            input: Vec::new(),
            late: Vec::new(),
            segments: BTreeMap::new(),
            received: Vec::new(),
            sent: 0,
            acknowledged: 0,
            end: None,
        }
    }
}

impl Client for LossyClient {
    fn send(&mut self, bytes: &[u8]) {
        self.peer.send(&frame(DATA, 0..bytes.len() as u64, bytes));
    }

    fn shut_down(&mut self) {
        self.tell(END, 0..0);
    }

    fn look(&mut self) {
        self.input.extend(self.peer.take());
        while let Some((kind, range, bytes)) = unframe(&mut self.input) {
            match kind {
                DATA => {
                    self.sent = self.sent.max(range.end);
                    let is_lost = self.chance.one_in(8);
                    if !is_lost {
                        self.late.push((range.start, bytes));
                    }
                }
                END => self.end = Some(range.end),
                _ => panic!("a frame of kind {kind}"),
            }
        }
        while !self.late.is_empty() && !self.chance.one_in(10) {
            let (at, bytes) = self.late.swap_remove(self.chance.below(self.late.len()));
            self.segments.insert(at, bytes);
        }
        self.join();
        let next = self.received.len() as u64;
        if next < self.sent && self.chance.one_in(3) {
            let missing = self.segments.keys().next().map_or(self.sent, |at| *at);
            self.tell(AGAIN, next..missing);
        }
        if self.acknowledged < next && self.chance.one_in(3) {
            let all = next - self.acknowledged;
            self.acknowledged +=
                if self.chance.one_in(3) { 1 + self.chance.bits() % all } else { all };
            self.tell(ACKNOWLEDGED, 0..self.acknowledged);
        }
    }

    fn received(&self) -> &[u8] {
        &self.received
    }

    fn end(&self) -> Option<End> {
        let end = self.peer.end()?;
        Some(if self.end == Some(self.received.len() as u64) { end } else { End::Reset })
    }
}

#[test]
fn a_part_of_a_segment_is_counted() {
    assert_a_part_is_counted(
        |tcp, _| Layered::new(tcp, Lossy::default()),
        &frame(DATA, 0..20_000, b""),
    );
}
