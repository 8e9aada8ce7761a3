//! The path of frames to the interface.

/// A frame that is to leave: its head, and its payload in order.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// The headers of the link, of IP and of the transport, whole.
    pub head: &'a [u8],
    /// The payload. None of the parts is empty.
    pub parts: &'a [&'a [u8]],
    /// Some exactly if the payload is longer than one segment: the interface cuts it, and this is the
    /// payload of each segment but the last one (`gso_size` of Linux).
    pub segment_bytes: Option<u16>,
    /// The checksum that the interface is to fill in; `None` if all are complete.
    pub checksum: Option<Checksum>,
}

/// A checksum that is not complete: its field holds the sum of the pseudo header, not inverted (Linux:
/// `CHECKSUM_PARTIAL`, virtio: `VIRTIO_NET_HDR_F_NEEDS_CSUM`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checksum {
    /// Where summing begins in the frame: the header of the transport.
    pub start: u16,
    /// The position of the field behind `start`.
    pub offset: u16,
}

impl Frame<'_> {
    /// Bytes of the whole frame.
    #[must_use]
    pub fn len(&self) -> usize {
        self.head.len() + self.payload_bytes()
    }

    /// Whether it has no bytes, which no frame has.
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

/// What an interface does for the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of the largest frame without the link header: the interface's MTU.
    pub mtu: u16,
    /// Bytes of payload in a frame that the interface cuts into segments; 0 if it does not. At most
    /// 65,535 less the headers, for the length field of IP.
    pub cut_bytes_max: u32,
    /// Whether it fills in checksums.
    pub fills_checksums: bool,
}

/// The interface has no room for another frame now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// An interface that takes frames.
pub trait Transmit {
    /// What the interface does. It may change between two batches, never within one.
    fn limits(&self) -> Limits;

    /// Takes a frame: sends it, or copies it for the next batch. Nothing refers to the frame afterwards.
    ///
    /// # Errors
    ///
    /// If there is no room. The frame is not taken, and the owner of the interface tells the stack when
    /// there is room again.
    fn send(&mut self, frame: &Frame<'_>) -> Result<(), Full>;
}
