//! Data in flight: what was sent and is not acknowledged, when it is sent again, and how much may be sent.
//!
//! Only a connection whose data moves has a [`Flight`]. The connection asks [`Flight::next`] what to send, sends it,
//! and says so with [`Flight::sent`]; it passes on each acknowledgement ([`Flight::handle_ack`]) and each timer
//! ([`Flight::handle_timer`]). A FIN is the last byte of the stream here: it has a sequence number, and it is
//! sent, lost and acknowledged as any byte is.

use alloc::collections::VecDeque;
use core::time::Duration;

use super::congestion::Algorithm;
use crate::seq::SeqNumber;
use crate::time::Time;

/// What survives in a connection while nothing is in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Saved {
    srtt_us: u32,
    rttvar_us: u32,
    cwnd: u32,
    ssthresh: u32,
    sent_ms: u32,
}

impl Saved {
    /// The state of a new connection. `rtt` is the round trip of the handshake, if it was measured.
    #[must_use]
    pub fn new(now: Time, rtt: Option<Duration>, mss: u32) -> Self {
        let srtt_us = rtt.map_or(0, |rtt| u32::try_from(rtt.as_micros()).unwrap_or(u32::MAX));
        Self {
            srtt_us,
            rttvar_us: srtt_us / 2,
            cwnd: 10 * mss,
            ssthresh: u32::MAX,
            sent_ms: now_ms(now),
        }
    }
}

/// What the flight knows about the connection. It does not change while data is in flight, but for the MSS
/// ([`Flight::shrink_mss`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    /// Bytes of payload in a whole segment: `Eff.snd.MSS` of RFC 9293, 3.7.1, options taken off.
    pub mss: u32,
    /// Whether the peer acknowledges selectively (RFC 2018).
    pub sack: bool,
    /// The algorithm for the congestion window.
    pub algorithm: Algorithm,
}

/// What the connection could send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Bytes behind `SND.NXT` that are ready; a FIN that is due counts as one.
    pub new_bytes: u32,
    /// `SND.UNA + SND.WND`: the first sequence number that the peer does not take.
    pub window_end: SeqNumber,
    /// The largest window that the peer has announced: `Max(SND.WND)` of RFC 9293, 3.8.6.2.1.
    pub window_max: u32,
    /// Bytes of payload in a frame that the interface cuts into segments; 0 if it does not cut.
    pub cut_bytes_max: u32,
}

/// Why bytes are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// For the first time.
    New,
    /// Again: acknowledgements of later bytes show that they were lost.
    Fast,
    /// Again, after a retransmission timeout.
    Timeout,
    /// A tail loss probe (RFC 8985, 7): new bytes if there are any, otherwise the last ones again.
    Probe,
}

/// What to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// These bytes, then call [`Flight::sent`] and ask again. Bytes behind `SND.NXT` are new whatever the kind.
    Send {
        /// The first byte's sequence number.
        from: SeqNumber,
        /// At least 1. More than the MSS only if the interface cuts.
        bytes: u32,
        /// The reason.
        kind: Kind,
        /// Whether the segment is to carry CWR (RFC 3168, 6.1.2). Only on new bytes.
        cwr: bool,
    },
    /// Nothing before this moment: pacing. It is among the deadlines.
    WaitUntil(Time),
    /// Nothing until an acknowledgement, a timer or more to send.
    Blocked,
}

/// An acceptable acknowledgement (RFC 9293, 3.10.7.4): its number is not before `SND.UNA` and not
/// after `SND.NXT`. The connection has dropped any other one, optimistic acknowledgements among them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ack<'a> {
    /// `SEG.ACK`.
    pub una: SeqNumber,
    /// The blocks as they came, D-SACK included (RFC 2883); they are checked here.
    pub sack: &'a [(SeqNumber, SeqNumber)],
    /// `TSecr` less the connection's offset: the milliseconds of the stack's clock, modulo 2³², when the
    /// segment that is echoed was sent.
    pub ts_echo: Option<u32>,
    /// Whether the segment carries ECE, on a connection that agreed on ECN.
    pub ece: bool,
    /// Whether it is a duplicate by RFC 5681, 2: no data, no SYN or FIN, the window unchanged. That it
    /// acknowledges nothing new is checked here.
    pub is_duplicate: bool,
}

/// What an acknowledgement has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Acked {
    /// Bytes that are acknowledged now and were not: `SEG.ACK - SND.UNA`.
    pub bytes: u32,
    /// Whether it may have made something sendable: ask [`Flight::next`].
    pub room: bool,
}

/// What a timer has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimerOutcome {
    /// It was early, or was for nothing.
    Nothing,
    /// Something may be sent: ask [`Flight::next`].
    Room,
    /// The peer has not acknowledged for too long (RFC 9293, 3.8.3: R2).
    TimedOut,
}

/// For people: `samum stack`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// Bytes of the congestion window.
    pub cwnd: u32,
    /// The slow start threshold in bytes; the greatest number if there was no loss.
    pub ssthresh: u32,
    /// Bytes that are thought to be in the network.
    pub pipe: u32,
    /// The smoothed round trip, if one was measured.
    pub srtt: Option<Duration>,
}

#[derive(Clone, Copy, Debug)]
struct Record {
    from: SeqNumber,
    bytes: u32,
}

/// The data in flight of a connection.
#[derive(Debug)]
pub struct Flight {
    path: Path,
    saved: Saved,
    snd_una: SeqNumber,
    snd_nxt: SeqNumber,
    records: VecDeque<Record>,
    timer: Option<Time>,
    is_lost: bool,
}

impl Default for Flight {
    fn default() -> Self {
        Self::new()
    }
}

impl Flight {
    /// An empty one, to be kept in reserve. [`Flight::begin`] makes it usable.
    #[must_use]
    pub fn new() -> Self {
        Self {
            path: Path { mss: 536, sack: false, algorithm: Algorithm::Cubic },
            saved: Saved::new(Time::default(), None, 536),
            snd_una: SeqNumber(0),
            snd_nxt: SeqNumber(0),
            records: VecDeque::new(),
            timer: None,
            is_lost: false,
        }
    }

    /// Begins in place; no allocation is given back or made. `SND.NXT` is `snd_una`: nothing is in flight.
    pub fn begin(&mut self, saved: Saved, path: Path, snd_una: SeqNumber) {
        self.path = path;
        self.saved = saved;
        self.snd_una = snd_una;
        self.snd_nxt = snd_una;
        self.records.clear();
        self.timer = None;
        self.is_lost = false;
    }

    /// Ends it when nothing is in flight: afterwards it can be kept in reserve.
    #[must_use]
    pub fn end(&mut self) -> Saved {
        self.timer = None;
        self.saved
    }

    /// Says what to send. It changes nothing that `sent` relies on: if the interface is full, `sent` is not called.
    pub fn next(&mut self, _now: Time, offer: &Offer) -> Next {
        let frame = self.path.mss.max(offer.cut_bytes_max / self.path.mss * self.path.mss);
        if self.is_lost
            && let Some(record) = self.records.front()
        {
            return Next::Send {
                from: record.from,
                bytes: record.bytes,
                kind: Kind::Timeout,
                cwr: false,
            };
        }
        let window = offer.window_end - self.snd_una;
        let room = window.min(self.saved.cwnd).saturating_sub(self.snd_nxt - self.snd_una);
        match offer.new_bytes.min(room).min(frame) {
            0 => Next::Blocked,
            bytes => Next::Send { from: self.snd_nxt, bytes, kind: Kind::New, cwr: false },
        }
    }

    /// Notes that bytes were sent: those that `next` named, or fewer of them.
    pub fn sent(&mut self, now: Time, from: SeqNumber, bytes: u32, _kind: Kind) {
        if from == self.snd_nxt {
            self.records.push_back(Record { from, bytes });
            self.snd_nxt += bytes;
        }
        self.is_lost = false;
        self.timer = Some(now + Duration::from_millis(200));
    }

    /// Handles an acknowledgement.
    pub fn handle_ack(&mut self, now: Time, ack: &Ack<'_>) -> Acked {
        let bytes = ack.una - self.snd_una;
        self.snd_una = ack.una;
        while let Some(record) = self.records.front_mut() {
            if (record.from + record.bytes).is_after(ack.una) {
                if record.from.is_before(ack.una) {
                    record.bytes -= ack.una - record.from;
                    record.from = ack.una;
                }
                break;
            }
            self.records.pop_front();
        }
        self.timer = (!self.is_empty()).then(|| now + Duration::from_millis(200));
        Acked { bytes, room: bytes > 0 }
    }

    /// Handles the time: call it at [`Flight::deadline`] or later.
    pub fn handle_timer(&mut self, now: Time, _window_end: SeqNumber) -> TimerOutcome {
        if self.timer.is_none_or(|at| at > now) {
            return TimerOutcome::Nothing;
        }
        self.timer = None;
        self.is_lost = true;
        TimerOutcome::Room
    }

    /// When [`Flight::handle_timer`] is to be called.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        self.timer
    }

    /// Whether nothing is in flight.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.snd_una == self.snd_nxt
    }

    /// `SND.UNA`.
    #[must_use]
    pub fn snd_una(&self) -> SeqNumber {
        self.snd_una
    }

    /// `SND.NXT`.
    #[must_use]
    pub fn snd_nxt(&self) -> SeqNumber {
        self.snd_nxt
    }

    /// The path takes smaller segments only (RFC 1191, 8201): larger ones in flight are sent again.
    pub fn shrink_mss(&mut self, mss: u32) {
        self.path.mss = mss;
    }

    /// For people.
    #[must_use]
    pub fn status(&self) -> Status {
        Status {
            cwnd: self.saved.cwnd,
            ssthresh: self.saved.ssthresh,
            pipe: self.snd_nxt - self.snd_una,
            srtt: (self.saved.srtt_us > 0)
                .then(|| Duration::from_micros(u64::from(self.saved.srtt_us))),
        }
    }
}

/// Milliseconds of the stack's clock, modulo 2³²: what timestamps carry.
#[expect(clippy::cast_possible_truncation, reason = "the modulus is meant")]
fn now_ms(now: Time) -> u32 {
    (now.as_micros() / 1_000) as u32
}
