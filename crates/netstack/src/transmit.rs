//! The path of frames to the interface.

/// A frame to send: its head, and its payload in order.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// The complete headers of the link, of IP and of the transport.
    pub head: &'a [u8],
    /// The payload. None of the parts is empty.
    pub parts: &'a [&'a [u8]],
    /// `Some` if the payload is longer than one segment. The interface cuts it; each segment except the last
    /// has this payload (`gso_size` of Linux).
    pub segment_bytes: Option<u16>,
    /// The checksum that the interface has to fill in; `None` if all checksums are complete.
    pub checksum: Option<Checksum>,
}

/// An incomplete checksum: its field holds the sum of the pseudo header, not inverted (Linux: `CHECKSUM_PARTIAL`,
/// virtio: `VIRTIO_NET_HDR_F_NEEDS_CSUM`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checksum {
    /// The offset in the frame at which the sum begins: the transport's header.
    pub start: u16,
    /// The position of the field after `start`.
    pub offset: u16,
}

impl Frame<'_> {
    /// Bytes of the whole frame.
    #[must_use]
    pub fn len(&self) -> usize {
        self.head.len() + self.payload_bytes()
    }

    /// True if the frame has no bytes. No frame of the stack is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.head.is_empty()
    }

    /// Bytes of the payload.
    #[must_use]
    pub fn payload_bytes(&self) -> usize {
        self.parts.iter().map(|part| <[u8]>::len(part)).sum()
    }
}

/// The limits and offloads of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of the largest frame without the link header: the interface's MTU.
    pub mtu: u16,
    /// The maximum payload bytes of a frame that the interface cuts into segments; 0 if the interface does not cut.
    /// At most 65,535 less the headers, for the length field of IP.
    pub cut_bytes_max: u32,
    /// True if the interface fills in checksums.
    pub fills_checksums: bool,
}

/// The interface has no room for another frame now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// An interface that takes frames.
pub trait Transmit {
    /// The limits and offloads of the interface. They may change between two batches, never within a batch.
    fn limits(&self) -> Limits;

    /// Takes a frame: sends it, or copies it for the next batch. Nothing refers to the frame afterwards.
    ///
    /// # Errors
    ///
    /// If there is no room. The frame is not taken, and the owner of the interface reports new room to the stack.
    fn send(&mut self, frame: &Frame<'_>) -> Result<(), Full>;
}
