//! The states of a connection (RFC 9293, 3.3.2).

/// ```text
///              LISTEN ──SYN──► SYN-RECEIVED          SYN-SENT
///            (half-open table)      │ ACK               │ SYN,ACK
///                                   └──► ESTABLISHED ◄──┘
///                        shutdown │            │ FIN
///               FIN-WAIT-1 ◄──────┘            └──────► CLOSE-WAIT
///        ACK of FIN │   │ FIN                               │ shutdown
///       FIN-WAIT-2 ◄┘   └──► CLOSING                     LAST-ACK
///               │ FIN          │ ACK of FIN                 │ ACK of FIN
///               └──► TIME-WAIT ◄┘                           └──► CLOSED
///                 (a table of its own)
/// ```
///
/// A [`Connection`](super::Connection) has the states from ESTABLISHED on. The other states live in
/// tables that need less memory for each connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TcpState {
    /// Data moves in both directions.
    Established,
    /// Our FIN was sent and is not acknowledged.
    FinWait1,
    /// Our FIN is acknowledged; the peer may still send.
    FinWait2,
    /// The peer has ended its side; ours is open.
    CloseWait,
    /// Both have sent a FIN; ours is not acknowledged, and the peer's came first.
    Closing,
    /// The peer has ended its side, then we ours; our FIN is not acknowledged.
    LastAck,
}

impl TcpState {
    /// All states, in the order of their numbers.
    pub const ALL: [Self; 6] = [
        Self::Established,
        Self::FinWait1,
        Self::FinWait2,
        Self::CloseWait,
        Self::Closing,
        Self::LastAck,
    ];

    /// True if our FIN was sent: no byte may be added to the stream.
    #[must_use]
    pub const fn is_shut_down(self) -> bool {
        matches!(self, Self::FinWait1 | Self::FinWait2 | Self::Closing | Self::LastAck)
    }

    /// True if the peer's FIN has come: no further byte will be received.
    #[must_use]
    pub const fn has_ended(self) -> bool {
        matches!(self, Self::CloseWait | Self::Closing | Self::LastAck)
    }

    /// The name in RFC 9293.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Established => "ESTABLISHED",
            Self::FinWait1 => "FIN-WAIT-1",
            Self::FinWait2 => "FIN-WAIT-2",
            Self::CloseWait => "CLOSE-WAIT",
            Self::Closing => "CLOSING",
            Self::LastAck => "LAST-ACK",
        }
    }
}

/// The reason why a connection was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lost {
    /// The peer has reset the connection.
    Reset,
    /// The peer has not acknowledged for too long (RFC 9293, 3.8.3: R2), or does not answer keepalives.
    TimedOut,
    /// The network has reported that the peer cannot be reached, until patience ended.
    Unreachable,
}
