//! The counters of a stack.

use crate::tcp::ConnectionCounters;

/// Frames that were dropped, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drops {
    /// A header was cut off or contradicts itself.
    pub malformed: u64,
    /// A checksum is wrong.
    pub checksum: u64,
    /// Fragments of IP: nothing is put together again.
    pub fragment: u64,
    /// IPv6 with an extension header that is not skipped.
    pub extension: u64,
    /// Requests of ARP, neighbour discovery and echo, datagrams for ports that are not served, and packets of IPv6 whose
    /// sender is to be told that they cannot be processed, because too many came within a second.
    pub requests: u64,
    /// For an address, a port or a protocol that nothing here serves.
    pub not_ours: u64,
    /// Segments that no connection wants and no reset was sent for: too many came within a second, or
    /// they were resets themselves.
    pub no_connection: u64,
    /// Frames of ours that the interface had no room for and that nothing repeats.
    pub no_room: u64,
}

/// What became of handshakes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Handshakes {
    /// SYNs that were kept in the half-open table.
    pub begun: u64,
    /// SYN cookies that were sent because the table was full.
    pub cookies_sent: u64,
    /// Connections that a cookie's acknowledgement made.
    pub cookies_accepted: u64,
    /// Connections that came to be, all told.
    pub completed: u64,
    /// Handshakes that ended without a connection: not acknowledged, or reset.
    pub given_up: u64,
    /// SYN,ACKs and SYNs that were sent again.
    pub retransmitted: u64,
    /// Handshakes that completed when there was no place for a connection.
    pub refused: u64,
}

/// What a stack has done since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Frames that came.
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
    /// Connections in TIME-WAIT that ended early for want of room.
    pub time_wait_overflows: u64,
    /// Connections that their applications had closed and that ended early for want of room.
    pub orphan_overflows: u64,
}
