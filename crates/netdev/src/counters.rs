//! The counters of a device.

/// What a device has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Frames received.
    pub received: u64,
    /// Of these, frames that were copied: too long for a chunk, or too many others were held.
    pub copied: u64,
    /// Frames sent. A frame that the kernel cuts is one.
    pub sent: u64,
    /// Bytes of the frames that were sent.
    pub sent_bytes: u64,
    /// System calls that sent.
    pub calls: u64,
    /// Frames that the kernel refused for another reason than room: they are lost, as on a wire.
    pub lost: u64,
    /// Frames that were refused for lack of room ([`Full`](netstack::Full)).
    pub refused: u64,
}
