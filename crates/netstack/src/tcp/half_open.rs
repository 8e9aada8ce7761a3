//! Handshakes under way: SYN-SENT and SYN-RECEIVED (RFC 9293, 3.5), in a bounded table.

use core::time::Duration;

use super::ends::EndpointBytes;
use super::handshake::{Endpoints, Handshake, Timestamps};
use crate::seq::SeqNumber;
use crate::siphash::Key;
use crate::slots::{self, Slots};
use crate::table::{Chained, Table};
use crate::time::Time;
use crate::wire::tcp::{Flags, Header, Options};

/// The offer of a peer's SYN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Offer {
    /// The largest payload that the peer accepts.
    pub(crate) mss: u16,
    pub(crate) window_scale: Option<u8>,
    pub(crate) sack: bool,
    /// The value of the peer's timestamp.
    pub(crate) timestamp: Option<u32>,
    /// True if the peer supports ECN (RFC 3168, 6.1.1).
    pub(crate) ecn: bool,
}

/// The wishes of this end in a handshake.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wants {
    /// The MSS that we announce: the interface's MTU without headers (RFC 9293, 3.7.1).
    pub(crate) mss: u16,
    /// The receive window.
    pub(crate) window: u32,
    pub(crate) ecn: bool,
}

/// A handshake under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HalfOpen {
    pub(crate) state: HalfOpenState,
    /// Some exactly for an active open: the key of the connection.
    pub(crate) asked: Option<slots::Key>,
    /// The offset of our timestamps, even if timestamps are not agreed on.
    offset: u32,
    /// The agreed values so far. `snd_wnd` and `rtt` are still unknown.
    pub(crate) handshake: Handshake,
    /// True if windows are scaled (RFC 7323, 2).
    is_scaled: bool,
    /// The time of our first SYN.
    begun: Time,
    /// The number of retransmissions of our SYN.
    repeats: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HalfOpenState {
    SynSent,
    SynReceived,
}

/// The reaction of a handshake to a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Nothing.
    Drop,
    /// Our SYN or SYN,ACK has to be sent (again).
    Synchronize,
    /// The reply is an acknowledgement with the number that this end expects.
    Acknowledge,
    /// The reply is a reset.
    Reset,
    /// The connection is established. The peer has acknowledged our SYN,ACK, or we have to acknowledge the peer's.
    Complete(Handshake),
    /// The peer has refused or reset the connection.
    Refused,
}

/// Our SYN is retransmitted after 1, 2, 4, 8 and 16 s (RFC 9293, 3.8.3; RFC 6298, 2.1). After 32 s more the
/// handshake is given up.
const REPEATS_MAX: u8 = 5;
const FIRST_TIMEOUT: Duration = Duration::from_secs(1);
/// The MSS of a peer without an MSS option (RFC 9293, 3.7.1).
const MSS_DEFAULT_V4: u16 = 536;
const MSS_DEFAULT_V6: u16 = 1220;
/// The minimum MSS that is believed: the headers of smaller segments cost more than their payload (Linux:
/// `TCP_MIN_MSS`).
const MSS_MIN: u16 = 88;

impl Offer {
    /// Reads a SYN.
    pub(crate) fn new(header: &Header, endpoints: &Endpoints) -> Self {
        let default = if endpoints.local.is_ipv4() { MSS_DEFAULT_V4 } else { MSS_DEFAULT_V6 };
        // A SYN announces ECN by both flags, a SYN,ACK by ECE alone.
        let ecn = header.flags.ece && header.flags.cwr == header.ack.is_none();
        Self {
            mss: header.options.mss.unwrap_or(default).max(MSS_MIN),
            window_scale: header.options.window_scale,
            sack: header.options.sack_permitted,
            timestamp: header.options.timestamps.map(|(value, _)| value),
            ecn,
        }
    }
}

impl Wants {
    /// The shift of our windows: the smallest shift with which the window fits into 16 bits.
    pub(crate) fn shift(&self) -> u8 {
        let bits = (u32::BITS - self.window.leading_zeros()).saturating_sub(u16::BITS);
        u8::try_from(bits).unwrap_or(0).min(14)
    }

    /// The window field of a SYN, which is never scaled (RFC 7323, 2.2).
    pub(crate) fn syn_window(&self) -> u16 {
        u16::try_from(self.window).unwrap_or(u16::MAX)
    }
}

impl HalfOpen {
    /// Begins a handshake for a peer's SYN: SYN-RECEIVED.
    pub(crate) fn received(now: Time, handshake: Handshake, is_scaled: bool) -> Self {
        Self {
            state: HalfOpenState::SynReceived,
            asked: None,
            offset: handshake.timestamps.map_or(0, |ours| ours.offset),
            handshake,
            is_scaled,
            begun: now,
            repeats: 0,
        }
    }

    /// Begins an active open: SYN-SENT, with all options offered.
    pub(crate) fn asked(
        now: Time,
        endpoints: Endpoints,
        neighbour: u16,
        iss: SeqNumber,
        offset: u32,
        wants: &Wants,
    ) -> Self {
        let handshake = everything(endpoints, neighbour, iss, offset, wants);
        Self {
            state: HalfOpenState::SynSent,
            asked: None,
            offset,
            handshake,
            is_scaled: true,
            begun: now,
            repeats: 0,
        }
    }

    /// Returns the reaction to a segment. `seg_len` counts its payload and FIN.
    pub(crate) fn handle_segment(
        &mut self,
        now: Time,
        header: &Header,
        seg_len: u32,
        wants: &Wants,
    ) -> Step {
        match self.state {
            HalfOpenState::SynSent => self.handle_in_syn_sent(now, header, wants),
            HalfOpenState::SynReceived => self.handle_in_syn_received(now, header, seg_len, wants),
        }
    }

    /// RFC 9293, 3.10.7.3.
    fn handle_in_syn_sent(&mut self, now: Time, header: &Header, wants: &Wants) -> Step {
        let accepts = header.ack.map(|ack| ack == self.handshake.iss + 1);
        match (accepts, header.flags.rst, header.flags.syn) {
            (Some(true), true, _) => Step::Refused,
            (_, true, _) => Step::Drop,
            (Some(false), ..) => Step::Reset,
            (_, _, false) => Step::Drop,
            (Some(true), _, true) => {
                self.agree(header, wants);
                // The window of a SYN is not scaled.
                Step::Complete(self.complete(now, u32::from(header.window)))
            }
            // A simultaneous open (RFC 9293, 3.5, figure 7).
            (None, _, true) => {
                self.agree(header, wants);
                self.state = HalfOpenState::SynReceived;
                Step::Synchronize
            }
        }
    }

    /// RFC 9293, 3.10.7.4, with the checks of RFC 5961 and RFC 7323.
    fn handle_in_syn_received(
        &mut self,
        now: Time,
        header: &Header,
        seg_len: u32,
        wants: &Wants,
    ) -> Step {
        let expected = self.handshake.irs + 1;
        let window = wants.window;
        let is_in_window = header.seq.is_within(expected, window)
            || seg_len > 0 && (header.seq + (seg_len - 1)).is_within(expected, window);
        let is_old = match (self.handshake.timestamps, header.options.timestamps) {
            (Some(ours), Some((value, _))) => value.wrapping_sub(ours.recent).cast_signed() < 0,
            _ => false,
        };
        let has_asked = self.asked.is_some();
        let knows_ours = header.ack == Some(self.handshake.iss + 1);
        if has_asked && !knows_ours && (header.flags.rst || header.ack.is_some()) {
            // The SYN may be forged, and so may segments that fit it. As in SYN-SENT, only an acknowledgement of our
            // number counts.
            return if header.flags.rst { Step::Drop } else { Step::Reset };
        }
        if header.flags.rst {
            // RFC 5961, 3.2: only the exact number resets. For another number in the window, the true peer is asked
            // by a challenge.
            return match (has_asked || header.seq == expected, is_in_window) {
                (true, _) => Step::Refused,
                (false, true) => Step::Acknowledge,
                (false, false) => Step::Drop,
            };
        }
        if header.flags.syn && header.ack.is_none() && header.seq == self.handshake.irs {
            self.note_timestamp(header);
            return Step::Synchronize;
        }
        // The reply of the true peer, independent of the number of the first SYN.
        if header.flags.syn && has_asked && knows_ours {
            self.agree(header, wants);
            // The window of a SYN is not scaled.
            return Step::Complete(self.complete(now, u32::from(header.window)));
        }
        // RFC 5961, 4.2: a further SYN gets an acknowledgement, too.
        if !is_in_window || is_old || header.flags.syn {
            return Step::Acknowledge;
        }
        match header.ack {
            None => Step::Drop,
            Some(ack) if ack != self.handshake.iss + 1 => Step::Reset,
            Some(_) => {
                self.note_timestamp(header);
                let window = u32::from(header.window) << self.handshake.snd_wind_shift;
                Step::Complete(self.complete(now, window))
            }
        }
    }

    fn note_timestamp(&mut self, header: &Header) {
        if let (Some(ours), Some((value, _))) =
            (&mut self.handshake.timestamps, header.options.timestamps)
        {
            ours.recent = value;
        }
    }

    /// Reduces our offer to the options that the peer's SYN offers, too.
    fn agree(&mut self, header: &Header, wants: &Wants) {
        let offer = Offer::new(header, &self.handshake.endpoints);
        let Handshake { endpoints, neighbour, iss, .. } = self.handshake;
        let both = agreed(endpoints, neighbour, header.seq, &offer, self.offset, wants);
        // RFC 3168, 6.1.1.1: a host that has sent a SYN without ECN may not send ECN-capable packets.
        self.handshake = Handshake { iss, ecn: both.ecn && self.repeats == 0, ..both };
        self.is_scaled = offer.window_scale.is_some();
    }

    fn complete(&self, now: Time, snd_wnd: u32) -> Handshake {
        // Karn's algorithm (RFC 6298, 3).
        let rtt = (self.repeats == 0).then(|| now.since(self.begun));
        Handshake { snd_wnd, rtt, ..self.handshake }
    }

    /// Our SYN or SYN,ACK.
    pub(crate) fn syn(&self, now: Time, wants: &Wants) -> Header {
        let is_answer = self.state == HalfOpenState::SynReceived;
        syn(
            &self.handshake,
            is_answer,
            self.is_scaled,
            self.handshake.timestamps.map(|ours| clock(now, ours)),
            wants,
        )
    }

    /// The acknowledgement of the peer's SYN.
    pub(crate) fn acknowledgement(&self, now: Time, wants: &Wants) -> Header {
        acknowledgement(&self.handshake, now, wants)
    }

    /// The time at which our SYN is due again, or the handshake is given up.
    pub(crate) fn deadline(&self) -> Time {
        self.begun + FIRST_TIMEOUT * ((2 << self.repeats) - 1)
    }

    /// Handles the deadline. Returns true if our SYN has to be retransmitted; false gives the handshake up.
    pub(crate) fn repeat(&mut self, wants: &Wants) -> bool {
        if self.asked.is_some() && self.state == HalfOpenState::SynReceived {
            // No segment came that fits the SYN and acknowledges our number, so the SYN may have been forged.
            let Handshake { endpoints, neighbour, iss, .. } = self.handshake;
            self.handshake = everything(endpoints, neighbour, iss, self.offset, wants);
            self.is_scaled = true;
            self.state = HalfOpenState::SynSent;
        }
        if self.state == HalfOpenState::SynSent {
            // RFC 3168, 6.1.1.1: a middlebox may drop SYNs that ask for ECN.
            self.handshake.ecn = false;
        }
        let again = self.repeats < REPEATS_MAX;
        self.repeats += u8::from(again);
        again
    }
}

/// Our clock for timestamps.
#[expect(clippy::cast_possible_truncation, reason = "timestamps are a circle of 32 bits")]
pub(crate) fn clock(now: Time, ours: Timestamps) -> u32 {
    ((now.as_micros() / 1000) as u32).wrapping_add(ours.offset)
}

/// The offer of an active open: all options.
fn everything(
    endpoints: Endpoints,
    neighbour: u16,
    iss: SeqNumber,
    offset: u32,
    wants: &Wants,
) -> Handshake {
    Handshake {
        endpoints,
        neighbour,
        iss,
        irs: SeqNumber(0),
        snd_wnd: 0,
        snd_wind_shift: 0,
        rcv_wind_shift: wants.shift(),
        peer_mss: MSS_MIN,
        sack: true,
        timestamps: Some(Timestamps { recent: 0, offset }),
        ecn: wants.ecn,
        rtt: None,
    }
}

/// The options that both ends support, after a peer's offer. `iss`, `snd_wnd` and `rtt` are still unknown.
pub(crate) fn agreed(
    endpoints: Endpoints,
    neighbour: u16,
    irs: SeqNumber,
    offer: &Offer,
    offset: u32,
    wants: &Wants,
) -> Handshake {
    Handshake {
        endpoints,
        neighbour,
        iss: SeqNumber(0),
        irs,
        snd_wnd: 0,
        snd_wind_shift: offer.window_scale.unwrap_or(0),
        rcv_wind_shift: offer.window_scale.map_or(0, |_| wants.shift()),
        peer_mss: offer.mss,
        sack: offer.sack,
        timestamps: offer.timestamp.map(|recent| Timestamps { recent, offset }),
        ecn: offer.ecn && wants.ecn,
        rtt: None,
    }
}

/// A SYN or SYN,ACK with the timestamp `clock`.
pub(crate) fn syn(
    handshake: &Handshake,
    is_answer: bool,
    is_scaled: bool,
    clock: Option<u32>,
    wants: &Wants,
) -> Header {
    let recent = handshake.timestamps.map_or(0, |ours| ours.recent);
    Header {
        source: handshake.endpoints.local.port(),
        destination: handshake.endpoints.peer.port(),
        seq: handshake.iss,
        ack: is_answer.then(|| handshake.irs + 1),
        flags: Flags {
            syn: true,
            // RFC 3168, 6.1.1: both flags request ECN, ECE alone accepts it.
            ece: handshake.ecn,
            cwr: handshake.ecn && !is_answer,
            ..Flags::NONE
        },
        window: wants.syn_window(),
        options: Options {
            mss: Some(wants.mss),
            window_scale: is_scaled.then(|| wants.shift()),
            sack_permitted: handshake.sack,
            timestamps: clock.map(|clock| (clock, recent)),
            ..Options::default()
        },
    }
}

/// An acknowledgement of the peer's SYN, before any other segment was received.
pub(crate) fn acknowledgement(handshake: &Handshake, now: Time, wants: &Wants) -> Header {
    let timestamps = handshake.timestamps.map(|ours| (clock(now, ours), ours.recent));
    let window = wants.window >> handshake.rcv_wind_shift;
    Header {
        source: handshake.endpoints.local.port(),
        destination: handshake.endpoints.peer.port(),
        seq: handshake.iss + 1,
        ack: Some(handshake.irs + 1),
        flags: Flags::NONE,
        window: u16::try_from(window).unwrap_or(u16::MAX),
        options: Options { timestamps, ..Options::default() },
    }
}

/// All handshakes under way.
pub(crate) struct HalfOpens {
    slots: Linked,
    table: Table,
}

struct Linked {
    slots: Slots<HalfOpen>,
    key: Key,
}

impl HalfOpens {
    /// An empty table for at most `max` handshakes.
    pub(crate) fn new(secret: Key, max: u32) -> Self {
        let slots = Linked { slots: Slots::new(max), key: secret.derive(b'h') };
        Self { slots, table: Table::new() }
    }

    /// The handshake with these ends.
    pub(crate) fn find(&self, endpoints: &Endpoints) -> Option<slots::Key> {
        // Most segments come while no handshake is under way.
        if self.slots.slots.is_empty() {
            return None;
        }
        let slots = &self.slots.slots;
        let is = |index| slots.at(index).is_some_and(|one| one.handshake.endpoints == *endpoints);
        slots.key(self.table.find(self.slots.hash_of(endpoints), |index| slots.link(index), is)?)
    }

    /// Adds a handshake; `None` at the maximum.
    pub(crate) fn insert(&mut self, one: HalfOpen) -> Option<slots::Key> {
        let hash = self.slots.hash_of(&one.handshake.endpoints);
        let key = self.slots.slots.insert(one)?;
        self.table.insert(&mut self.slots, hash, key.index);
        Some(key)
    }

    pub(crate) fn get(&self, key: slots::Key) -> Option<&HalfOpen> {
        self.slots.slots.get(key)
    }

    pub(crate) fn get_mut(&mut self, key: slots::Key) -> Option<&mut HalfOpen> {
        self.slots.slots.get_mut(key)
    }

    /// Removes a handshake.
    pub(crate) fn remove(&mut self, key: slots::Key) -> Option<HalfOpen> {
        let endpoints = self.slots.slots.get(key)?.handshake.endpoints;
        let hash = self.slots.hash_of(&endpoints);
        self.table.remove(&mut self.slots, hash, key.index);
        self.slots.slots.remove(key)
    }

    pub(crate) const fn is_full(&self) -> bool {
        self.slots.slots.is_full()
    }

    pub(crate) const fn len(&self) -> usize {
        self.table.len()
    }

    /// Bytes of memory.
    pub(crate) fn memory(&self) -> usize {
        self.slots.slots.memory() + self.table.memory()
    }
}

impl Linked {
    #[expect(clippy::cast_possible_truncation, reason = "a hash of 32 bits")]
    fn hash_of(&self, endpoints: &Endpoints) -> u32 {
        self.key.spread(&EndpointBytes::new(endpoints)) as u32
    }
}

impl Chained for Linked {
    fn link(&self, index: u32) -> u32 {
        self.slots.link(index)
    }

    fn set_link(&mut self, index: u32, link: u32) {
        self.slots.set_link(index, link);
    }

    fn hash(&self, index: u32) -> u32 {
        self.slots.at(index).map_or(0, |one| self.hash_of(&one.handshake.endpoints))
    }
}
