//! A TCP segment as a value, for peers that a test plays itself.

use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

use super::bytes::{self, Layout, TCP, u16_at, u32_at};

/// The Ethernet address of an IP address in the simulated network: its last four bytes after 02:00.
#[must_use]
pub fn mac(ip: IpAddr) -> [u8; 6] {
    let tail: [u8; 4] = match ip {
        IpAddr::V4(ip) => ip.octets(),
        IpAddr::V6(ip) => {
            let [.., a, b, c, d] = ip.octets();
            [a, b, c, d]
        }
    };
    [2, 0, tail[0], tail[1], tail[2], tail[3]]
}

/// The bits of a segment's header (RFC 9293, 3.1).
pub mod flag {
    /// The sender has no more data.
    pub const FIN: u8 = 1;
    /// The sequence number is an initial one.
    pub const SYN: u8 = 2;
    /// The connection is reset.
    pub const RST: u8 = 4;
    /// The data should be delivered at once.
    pub const PSH: u8 = 8;
    /// The acknowledgement is valid.
    pub const ACK: u8 = 16;
    /// The urgent pointer is valid.
    pub const URG: u8 = 32;
    /// Congestion was marked (RFC 3168).
    pub const ECE: u8 = 64;
    /// The sender has reduced its window (RFC 3168).
    pub const CWR: u8 = 128;
}

/// An option of the header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TcpOption {
    /// The largest payload that the sender accepts.
    Mss(u16),
    /// The shift of its windows (RFC 7323).
    WindowScale(u8),
    /// It may be told ranges (RFC 2018).
    SackPermitted,
    /// Ranges that have come.
    Sack(Vec<(u32, u32)>),
    /// Value and echo (RFC 7323).
    Timestamps(u32, u32),
    /// Another kind, with its contents.
    Other(u8, Vec<u8>),
}

/// A segment with its addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The address and port that it comes from.
    pub source: SocketAddr,
    /// Those that it goes to. Of the same version of IP.
    pub destination: SocketAddr,
    /// The two bits of IP for congestion (RFC 3168): 0 not capable, 2 and 1 capable, 3 marked.
    pub ecn: u8,
    /// The sequence number.
    pub seq: u32,
    /// The acknowledgement number, sent even if the flag says that it is not valid.
    pub ack: u32,
    /// The bits of [`flag`].
    pub flags: u8,
    /// The window, as it is in the field.
    pub window: u16,
    /// The options in order, without padding.
    pub options: Vec<TcpOption>,
    /// The data.
    pub payload: Vec<u8>,
}

impl Segment {
    /// The frame, complete with its checksums.
    ///
    /// # Panics
    ///
    /// If the addresses are of two versions of IP, or the options or the whole are too long.
    #[must_use]
    pub fn to_frame(&self) -> Vec<u8> {
        let mut options = Vec::new();
        for option in &self.options {
            option.write(&mut options);
        }
        while !options.len().is_multiple_of(4) {
            options.push(0);
        }
        let transport_bytes = 20 + options.len() + self.payload.len();

        let mut frame = Vec::with_capacity(14 + 40 + transport_bytes);
        frame.extend(mac(self.destination.ip()));
        frame.extend(mac(self.source.ip()));
        let length = |bytes: usize| u16::try_from(bytes).expect("at most 64 KiB").to_be_bytes();
        match (self.source.ip(), self.destination.ip()) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                frame.extend([0x08, 0x00, 0x45, self.ecn]);
                frame.extend(length(20 + transport_bytes));
                frame.extend([0, 0, 0x40, 0, 64, TCP, 0, 0]);
                frame.extend(source.octets());
                frame.extend(destination.octets());
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                frame.extend([0x86, 0xdd, 0x60, self.ecn << 4, 0, 0]);
                frame.extend(length(transport_bytes));
                frame.extend([TCP, 64]);
                frame.extend(source.octets());
                frame.extend(destination.octets());
            }
            _ => panic!("two versions of IP"),
        }
        frame.extend(self.source.port().to_be_bytes());
        frame.extend(self.destination.port().to_be_bytes());
        frame.extend(self.seq.to_be_bytes());
        frame.extend(self.ack.to_be_bytes());
        let words = u8::try_from(5 + options.len() / 4).expect("few options");
        assert!(words < 16, "options of more than 40 bytes");
        frame.extend([words << 4, self.flags]);
        frame.extend(self.window.to_be_bytes());
        frame.extend([0; 4]);
        frame.extend(options);
        frame.extend(&self.payload);
        bytes::layout(&frame).expect("a frame of IP").fill_checksums(&mut frame);
        frame
    }

    /// Reads a frame.
    ///
    /// # Errors
    ///
    /// If it is no segment, or one with a wrong checksum or wrong lengths: a sentence for a message.
    pub fn from_frame(frame: &[u8]) -> Result<Self, &'static str> {
        let layout = bytes::layout(frame).ok_or("the frame is no packet of IP")?;
        let header = layout.tcp_header_bytes(frame).ok_or("the packet is no segment of TCP")?;
        if !layout.has_right_checksums(frame) {
            return Err("a checksum is wrong");
        }
        Self::read(frame, &layout, header).ok_or("the header's lengths are wrong")
    }

    fn read(frame: &[u8], layout: &Layout, header: usize) -> Option<Self> {
        let (source, destination) = layout.addresses(frame);
        let tcp = &frame[layout.transport.clone()];
        let ecn =
            if layout.version == 4 { frame[layout.ip + 1] } else { frame[layout.ip + 1] >> 4 };
        Some(Self {
            source: SocketAddr::new(source, u16_at(tcp, 0)?),
            destination: SocketAddr::new(destination, u16_at(tcp, 2)?),
            ecn: ecn & 3,
            seq: u32_at(tcp, 4)?,
            ack: u32_at(tcp, 8)?,
            flags: tcp[13],
            window: u16_at(tcp, 14)?,
            options: TcpOption::read_all(&tcp[20..header])?,
            payload: tcp[header..].to_vec(),
        })
    }

    /// Whether the header has all of these bits.
    #[must_use]
    pub const fn has(&self, flags: u8) -> bool {
        self.flags & flags == flags
    }

    /// Sequence numbers that it uses: its data, SYN and FIN.
    ///
    /// # Panics
    ///
    /// Never: a payload is shorter than 64 KiB.
    #[must_use]
    pub fn seq_len(&self) -> u32 {
        let payload = u32::try_from(self.payload.len()).expect("less than 64 KiB");
        payload + u32::from(self.has(flag::SYN)) + u32::from(self.has(flag::FIN))
    }
}

impl TcpOption {
    fn write(&self, into: &mut Vec<u8>) {
        match self {
            Self::Mss(mss) => {
                into.extend([2, 4]);
                into.extend(mss.to_be_bytes());
            }
            Self::WindowScale(shift) => into.extend([1, 3, 3, *shift]),
            Self::SackPermitted => into.extend([1, 1, 4, 2]),
            Self::Sack(blocks) => {
                let len = u8::try_from(2 + 8 * blocks.len()).expect("few blocks");
                into.extend([1, 1, 5, len]);
                for (left, right) in blocks {
                    into.extend(left.to_be_bytes());
                    into.extend(right.to_be_bytes());
                }
            }
            Self::Timestamps(value, echo) => {
                into.extend([1, 1, 8, 10]);
                into.extend(value.to_be_bytes());
                into.extend(echo.to_be_bytes());
            }
            Self::Other(kind, contents) => {
                into.extend([*kind, u8::try_from(2 + contents.len()).expect("a short option")]);
                into.extend(contents);
            }
        }
    }

    fn read_all(mut bytes: &[u8]) -> Option<Vec<Self>> {
        let mut options = Vec::new();
        while let Some((&kind, rest)) = bytes.split_first() {
            match kind {
                0 => break,
                1 => bytes = rest,
                _ => {
                    let len = usize::from(*rest.first()?);
                    let contents = bytes.get(2..len)?;
                    bytes = &bytes[len..];
                    options.push(Self::read(kind, contents)?);
                }
            }
        }
        Some(options)
    }

    fn read(kind: u8, contents: &[u8]) -> Option<Self> {
        Some(match (kind, contents.len()) {
            (2, 2) => Self::Mss(u16_at(contents, 0)?),
            (3, 1) => Self::WindowScale(contents[0]),
            (4, 0) => Self::SackPermitted,
            (5, len) if len.is_multiple_of(8) => {
                let block = |bytes: &[u8]| Some((u32_at(bytes, 0)?, u32_at(bytes, 4)?));
                Self::Sack(contents.chunks(8).map(block).collect::<Option<_>>()?)
            }
            (8, 8) => Self::Timestamps(u32_at(contents, 0)?, u32_at(contents, 4)?),
            (2..=5 | 8, _) => return None,
            _ => Self::Other(kind, contents.to_vec()),
        })
    }
}
