//! The counters of a stack.

use crate::tcp::ConnectionCounters;

/// Frames that were dropped, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drops {
    /// A header is cut off or contradicts itself.
    pub malformed: u64,
    /// A checksum is wrong.
    pub checksum: u64,
    /// Fragments of IP: the stack does not reassemble.
    pub fragment: u64,
    /// IPv6 with an extension header that is not skipped.
    pub extension: u64,
    /// Frames without a reply because of the reply limit: requests of ARP, neighbour discovery and echo, datagrams for
    /// ports that are not served, and IPv6 packets that cannot be processed.
    pub requests: u64,
    /// Frames for an address, a port or a protocol that the stack does not serve.
    pub not_ours: u64,
    /// Segments without a connection that got no reset: because of the reply limit, or because they were resets.
    pub no_connection: u64,
    /// Sent frames for which the interface had no room, and which are not repeated.
    pub no_room: u64,
}

/// Handshakes, by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Handshakes {
    /// SYNs that were kept in the half-open table.
    pub begun: u64,
    /// SYN cookies that were sent because the table was full.
    pub cookies_sent: u64,
    /// Connections that a cookie's acknowledgement made.
    pub cookies_accepted: u64,
    /// All connections that opened.
    pub completed: u64,
    /// Handshakes that ended without a connection: not acknowledged, or reset.
    pub given_up: u64,
    /// SYN,ACKs and SYNs that were retransmitted.
    pub retransmitted: u64,
    /// Handshakes that completed without a free slot for the connection.
    pub refused: u64,
}

/// The counters of a stack since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Frames that the interface received.
    pub frames_received: u64,
    /// Frames that the interface took.
    pub frames_sent: u64,
    /// Frames that were dropped.
    pub drops: Drops,
    /// Connections.
    pub connections: ConnectionCounters,
    /// Handshakes.
    pub handshakes: Handshakes,
    /// Resets that were sent to segments of no connection.
    pub resets_sent: u64,
    /// Connections in TIME-WAIT that ended early because their table was full.
    pub time_wait_overflows: u64,
    /// Closed connections that ended early to make room for new ones.
    pub orphan_overflows: u64,
}
