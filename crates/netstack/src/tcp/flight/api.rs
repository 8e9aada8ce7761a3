//! The types that a connection and its [`Flight`](super::Flight) exchange.

use core::time::Duration;

use crate::config::Algorithm;
use crate::seq::SeqNumber;
use crate::tcp::clock::milliseconds;
use crate::tcp::congestion::Congestion;
use crate::tcp::recovery::rtt::Rtt;
use crate::time::Time;

/// The state that a connection keeps while nothing is in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
// Without padding, because each idle connection has one.
#[repr(Rust, packed)]
pub struct Saved {
    /// The smoothed round trip in microseconds; 0 if none was measured.
    pub(super) srtt_us: u32,
    /// The mean deviation of the round trip in microseconds.
    pub(super) rttvar_us: u32,
    /// The congestion window in bytes.
    pub(in crate::tcp) cwnd: u32,
    /// The slow start threshold in bytes.
    pub(super) ssthresh: u32,
    /// The time at which data was sent last: milliseconds of the stack's clock, modulo 2³².
    pub(super) sent_ms: u32,
    /// True if the next new segment has to carry CWR, because the last acknowledgement echoed congestion (RFC 3168,
    /// 6.1.2).
    pub(super) cwr_is_due: bool,
}

impl Saved {
    /// The state of a new connection. `rtt` is the round trip of the handshake, if it was measured.
    #[must_use]
    pub fn new(now: Time, rtt: Option<Duration>, mss: u32) -> Self {
        let mut measured = Rtt::default();
        if let Some(rtt) = rtt {
            measured.sample(u32::try_from(rtt.as_micros()).unwrap_or(u32::MAX));
        }
        let (srtt_us, rttvar_us) = measured.save();
        let (cwnd, ssthresh) = Congestion::initial(mss);
        Self { srtt_us, rttvar_us, cwnd, ssthresh, sent_ms: milliseconds(now), cwr_is_due: false }
    }
}

/// The properties of the connection and its path. Only the MSS can change while data is in flight
/// ([`Flight::shrink_mss`](super::Flight::shrink_mss)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    /// Bytes of payload in a whole segment, without options: `Eff.snd.MSS` of RFC 9293, 3.7.1.
    pub mss: u32,
    /// True if the peer acknowledges selectively (RFC 2018).
    pub sack: bool,
    /// The algorithm for the congestion window.
    pub algorithm: Algorithm,
    /// The time for which the peer may leave retransmissions unacknowledged: R2 of RFC 9293, 3.8.3.
    pub patience: Duration,
}

/// The data that the connection could send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Ready bytes after `SND.NXT`; a due FIN counts as one.
    pub new_bytes: u32,
    /// `SND.UNA + SND.WND`: the first sequence number that the peer does not accept.
    pub window_end: SeqNumber,
    /// The largest window that the peer has announced: `Max(SND.WND)` of RFC 9293, 3.8.6.2.1.
    pub window_max: u32,
    /// True if the override timeout of RFC 9293, 3.8.6.2.1 has expired. Then a small window is used, too.
    pub has_waited: bool,
    /// Bytes of payload in a frame that the interface cuts into segments; 0 if it does not cut.
    pub cut_bytes_max: u32,
}

/// The reason for sending bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The bytes are sent for the first time.
    New,
    /// A retransmission: acknowledgements of later bytes show the loss.
    Fast,
    /// A retransmission after a timeout.
    Timeout,
    /// A tail loss probe (RFC 8985, 7): new bytes if there are any, otherwise the last bytes again.
    Probe,
}

/// The next step of sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendStep {
    /// Send these bytes, then call [`Flight::sent`](super::Flight::sent) and ask again. Bytes after `SND.NXT` are new
    /// for any kind.
    Send {
        /// The first byte's sequence number.
        from: SeqNumber,
        /// At least 1. More than the MSS only if the interface cuts.
        bytes: u32,
        /// The reason.
        kind: Kind,
        /// True if the segment has to carry CWR (RFC 3168, 6.1.2). Only on new bytes.
        cwr: bool,
    },
    /// Pacing: send nothing before this time, which is one of the deadlines.
    WaitUntil(Time),
    /// Send nothing until an acknowledgement, a timer or new bytes.
    Blocked,
}

/// An acceptable acknowledgement (RFC 9293, 3.10.7.4): its number is not before `SND.UNA` and not
/// after `SND.NXT`. The connection has dropped all others, also optimistic acknowledgements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ack<'a> {
    /// `SEG.ACK`.
    pub una: SeqNumber,
    /// The blocks as received, with a D-SACK (RFC 2883). The flight checks them.
    pub sack: &'a [(SeqNumber, SeqNumber)],
    /// `TSecr` less the connection's offset: the time at which the echoed segment was sent, milliseconds of the
    /// stack's clock, modulo 2³².
    pub ts_echo: Option<u32>,
    /// True if the segment carries ECE, on a connection that agreed on ECN.
    pub ece: bool,
    /// True if it can be a duplicate by RFC 5681, 2: no data, no SYN or FIN, the window unchanged. The flight
    /// checks that it acknowledges nothing new.
    pub is_duplicate: bool,
}

/// The effect of an acknowledgement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Acked {
    /// Newly acknowledged bytes: `SEG.ACK - SND.UNA`.
    pub bytes: u32,
    /// True if bytes may be sent now: ask [`Flight::next`](super::Flight::next).
    pub room: bool,
}

/// The effect of a timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimerOutcome {
    /// No effect: the timer was early or obsolete.
    Nothing,
    /// Bytes may be sent: ask [`Flight::next`](super::Flight::next).
    Room,
    /// The peer has acknowledged nothing for too long (RFC 9293, 3.8.3: R2).
    TimedOut,
}

/// The status of a flight, as `samum stack` shows it.
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
