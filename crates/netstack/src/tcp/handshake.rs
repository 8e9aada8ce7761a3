//! The result of a handshake: the values that a connection begins with.

use core::net::SocketAddr;
use core::time::Duration;

use crate::seq::SeqNumber;

/// The two ends of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Endpoints {
    /// Our address and port.
    pub local: SocketAddr,
    /// The peer's address and port. Both addresses are of one version of IP.
    pub peer: SocketAddr,
}

/// Timestamps that both sides send (RFC 7323, 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timestamps {
    /// The last value from the peer: `TS.Recent`.
    pub recent: u32,
    /// The offset of timestamps from our clock's milliseconds. It hides the uptime from peers (5.4).
    pub offset: u32,
}

/// The result of a handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handshake {
    /// The two ends.
    pub endpoints: Endpoints,
    /// The next hop that the peer's frames come from, an index of the table of next hops.
    pub neighbour: u16,
    /// Our initial sequence number: `ISS`. `SND.NXT` is `ISS` + 1.
    pub iss: SeqNumber,
    /// The peer's initial sequence number: `IRS`.
    pub irs: SeqNumber,
    /// `SND.WND`: the window of the segment that completed the handshake, scaled.
    pub snd_wnd: u32,
    /// The shift of the peer's windows (RFC 7323, 2); 0 without window scaling.
    pub snd_wind_shift: u8,
    /// The shift of our windows; 0 without window scaling.
    pub rcv_wind_shift: u8,
    /// The largest payload that the peer accepts, from its MSS option; 536 or 1,220 without the option (RFC 9293,
    /// 3.7.1). The path's MTU and the options of each segment are not subtracted yet.
    pub peer_mss: u16,
    /// True if selective acknowledgements may be sent (RFC 2018, 2).
    pub sack: bool,
    /// `Some` if both sides send timestamps.
    pub timestamps: Option<Timestamps>,
    /// True if both sides support ECN (RFC 3168, 6.1.1).
    pub ecn: bool,
    /// The round trip of the handshake; `None` after a retransmission, and with a SYN cookie.
    pub rtt: Option<Duration>,
}
