//! What the stack counts.

/// Frames that were dropped, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drops {
    /// A header was cut off or contradicts itself.
    pub malformed: u64,
    /// A checksum is wrong.
    pub checksum: u64,
    /// Fragments of IP: nothing is put together again.
    pub fragment: u64,
    /// For an address, a port or a protocol that nothing here serves.
    pub not_ours: u64,
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
}
