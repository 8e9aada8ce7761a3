//! The counters of a device.

/// The counters of a device, since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Frames received.
    pub received: u64,
    /// Received frames that were copied, because they were too long for a chunk or too many others
    /// were held.
    pub copied: u64,
    /// Frames sent. A frame that the kernel cuts counts once.
    pub sent: u64,
    /// Bytes of the sent frames.
    pub sent_bytes: u64,
    /// System calls that sent frames.
    pub calls: u64,
    /// Frames that the kernel refused for another reason than lack of room. These frames are lost,
    /// as on a wire.
    pub lost: u64,
    /// Frames that were refused for lack of room ([`Full`](netstack::Full)).
    pub refused: u64,
}
