//! The result of a handshake: the values that a connection begins with.

use core::net::SocketAddr;
use core::time::Duration;

use crate::seq::SeqNumber;

/// The two ends of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Endpoints {
    /// Our address and port.
    pub local: SocketAddr,
    /// The peer's. Both addresses are of one version of IP.
    pub peer: SocketAddr,
}

/// Timestamps that both sides send (RFC 7323, 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timestamps {
    /// The value that the peer sent last: `TS.Recent`.
    pub recent: u32,
    /// Added to our clock's milliseconds, so that a peer cannot tell how long we have been running (5.4).
    pub offset: u32,
}

/// The result of a handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handshake {
    /// The two ends.
    pub endpoints: Endpoints,
    /// The next hop that the peer's frames come from, an index of the table of next hops.
    pub neighbour: u16,
    /// Our initial sequence number: `ISS`. `SND.NXT` is one behind it.
    pub iss: SeqNumber,
    /// The peer's: `IRS`.
    pub irs: SeqNumber,
    /// `SND.WND`: the window of the segment that completed the handshake, scaled.
    pub snd_wnd: u32,
    /// The shift of windows that the peer announces (RFC 7323, 2); 0 if not agreed.
    pub snd_wind_shift: u8,
    /// The shift of windows that we announce; 0 if not agreed.
    pub rcv_wind_shift: u8,
    /// The largest payload that the peer takes, from its MSS option, 536 or 1,220 without (RFC 9293, 3.7.1).
    /// The path's MTU and the options of each segment are not yet taken off.
    pub peer_mss: u16,
    /// Whether selective acknowledgements may be sent (RFC 2018, 2).
    pub sack: bool,
    /// Some exactly if both sides send timestamps.
    pub timestamps: Option<Timestamps>,
    /// Whether both sides mark congestion (RFC 3168, 6.1.1).
    pub ecn: bool,
    /// The round trip that the handshake took, if it was measured (not if its SYN,ACK was sent twice, and not
    /// with a SYN cookie).
    pub rtt: Option<Duration>,
}
