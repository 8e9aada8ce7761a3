//! The types that a connection and its [`Flight`](super::Flight) exchange.

use core::time::Duration;

use crate::config::Algorithm;
use crate::seq::SeqNumber;
use crate::tcp::clock::milliseconds;
use crate::tcp::congestion::Congestion;
use crate::tcp::recovery::rtt::Rtt;
use crate::time::Time;

/// What survives in a connection while nothing is in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
// Without padding, for each idle connection has one.
#[repr(Rust, packed)]
pub struct Saved {
    /// The smoothed round trip in microseconds; 0 if none was measured.
    pub(super) srtt_us: u32,
    /// Its mean deviation.
    pub(super) rttvar_us: u32,
    /// The congestion window in bytes.
    pub(in crate::tcp) cwnd: u32,
    /// The slow start threshold in bytes.
    pub(super) ssthresh: u32,
    /// Milliseconds of the stack's clock, modulo 2³², when data was sent last.
    pub(super) sent_ms: u32,
    /// The next new segment is to say that the window shrank: the acknowledgement that told of congestion was
    /// the last one (RFC 3168, 6.1.2).
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

/// What the flight knows about the connection. It does not change while data is in flight, but for the MSS
/// ([`Flight::shrink_mss`](super::Flight::shrink_mss)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    /// Bytes of payload in a whole segment: `Eff.snd.MSS` of RFC 9293, 3.7.1, options taken off.
    pub mss: u32,
    /// Whether the peer acknowledges selectively (RFC 2018).
    pub sack: bool,
    /// The algorithm for the congestion window.
    pub algorithm: Algorithm,
    /// How long the peer may leave everything unacknowledged that is sent again: R2 of RFC 9293, 3.8.3.
    pub patience: Duration,
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
    /// Whether the override timeout of RFC 9293, 3.8.6.2.1 has expired: a small window is used, too.
    pub has_waited: bool,
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
pub enum SendStep {
    /// These bytes, then call [`Flight::sent`](super::Flight::sent) and ask again. Bytes behind `SND.NXT` are new whatever the kind.
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
    /// True if there may be something to send now: ask [`Flight::next`](super::Flight::next).
    pub room: bool,
}

/// What a timer has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimerOutcome {
    /// It was early, or was for nothing.
    Nothing,
    /// Something may be sent: ask [`Flight::next`](super::Flight::next).
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
