//! A minimal TCP to measure and test the path to the interface: a server without loss recovery that answers each
//! data segment.

use netdev::Device;
use netstack::{Checksum, Frame, Full, Transmit as _};

/// Ethernet, with one VLAN tag or none, IPv4 or IPv6, and TCP: a received frame taken apart.
#[derive(Debug)]
pub(crate) struct Segment<'a> {
    link_bytes: usize,
    ip_bytes: usize,
    frame: &'a [u8],
    payload: &'a [u8],
}

pub(crate) const FIN: u8 = 1;
pub(crate) const SYN: u8 = 2;
pub(crate) const RST: u8 = 4;
pub(crate) const ACK: u8 = 16;

const TCP_BYTES: usize = 20;

impl<'a> Segment<'a> {
    /// Takes a frame apart; `None` if it is no TCP.
    pub(crate) fn parse(frame: &'a [u8]) -> Option<Self> {
        let is_tagged = frame.get(12..14)? == [0x81, 0x00];
        let link_bytes = if is_tagged { 18 } else { 14 };
        let ip = frame.get(link_bytes..)?;
        let (ip_bytes, protocol, total) =
            match (ip.first()? >> 4, frame.get(link_bytes - 2..link_bytes)?) {
                (4, [0x08, 0x00]) => (
                    usize::from(ip[0] & 15) * 4,
                    *ip.get(9)?,
                    usize::from(u16::from_be_bytes([*ip.get(2)?, *ip.get(3)?])),
                ),
                (6, [0x86, 0xdd]) => (
                    40,
                    *ip.get(6)?,
                    40 + usize::from(u16::from_be_bytes([*ip.get(4)?, *ip.get(5)?])),
                ),
                _ => return None,
            };
        let tcp = ip.get(ip_bytes..total)?;
        let data = usize::from(*tcp.get(12)? >> 4) * 4;
        let payload = tcp.get(data..)?;
        (protocol == 6).then_some(Self { link_bytes, ip_bytes, frame, payload })
    }

    fn tcp(&self) -> &'a [u8] {
        &self.frame[self.link_bytes + self.ip_bytes..]
    }

    pub(crate) fn flags(&self) -> u8 {
        self.tcp()[13]
    }

    pub(crate) fn payload(&self) -> &'a [u8] {
        self.payload
    }

    fn word(&self, at: usize) -> u32 {
        u32::from_be_bytes(self.tcp()[at..at + 4].try_into().unwrap())
    }

    /// The sequence number after this segment.
    pub(crate) fn end(&self) -> u32 {
        let flags = self.flags();
        let controls = u32::from(flags & SYN != 0) + u32::from(flags & FIN != 0);
        self.word(4).wrapping_add(self.payload.len() as u32).wrapping_add(controls)
    }

    /// The sequence number that the peer expects.
    pub(crate) fn acknowledged(&self) -> u32 {
        self.word(8)
    }

    /// The head of a response segment with `payload_bytes` of payload, and the remaining work on its checksum.
    pub(crate) fn answer(&self, seq: u32, flags: u8, payload_bytes: usize) -> (Vec<u8>, Checksum) {
        let mut head = self.frame[6..12].to_vec();
        head.extend(&self.frame[..6]);
        head.extend(&self.frame[12..self.link_bytes]);
        let ip = &self.frame[self.link_bytes..];
        let tcp_bytes = TCP_BYTES + payload_bytes;
        let mut sum = tcp_bytes as u32 + 6;
        if self.frame[self.link_bytes] >> 4 == 4 {
            let start = head.len();
            let total = u16::try_from(20 + tcp_bytes).unwrap().to_be_bytes();
            head.extend([0x45, 0, total[0], total[1], 0, 0, 0x40, 0, 64, 6, 0, 0]);
            head.extend(&ip[16..20]);
            head.extend(&ip[12..16]);
            sum += add(&head[start + 12..]);
            let check = !fold(add(&head[start..]));
            head[start + 10..start + 12].copy_from_slice(&check.to_be_bytes());
        } else {
            let length = u16::try_from(tcp_bytes).unwrap().to_be_bytes();
            head.extend([0x60, 0, 0, 0, length[0], length[1], 6, 64]);
            head.extend(&ip[24..40]);
            head.extend(&ip[8..24]);
            sum += add(&head[head.len() - 32..]);
        }
        let start = u16::try_from(head.len()).unwrap();
        head.extend(&self.tcp()[2..4]);
        head.extend(&self.tcp()[..2]);
        head.extend(seq.to_be_bytes());
        head.extend(self.end().to_be_bytes());
        let [check0, check1] = fold(sum).to_be_bytes();
        head.extend([(TCP_BYTES as u8 / 4) << 4, flags, 0xff, 0xff, check0, check1, 0, 0]);
        (head, Checksum { start, offset: 16 })
    }
}

/// Sends a segment with a payload of any length that a frame can have.
pub(crate) fn send(
    device: &mut Device,
    (head, checksum): &(Vec<u8>, Checksum),
    body: &[u8],
) -> Result<(), Full> {
    let limits = device.limits();
    let segment_bytes = limits.mtu - 40 - 20;
    let is_cut = body.len() > usize::from(segment_bytes);
    let parts = [body];
    let mut head = head.clone();
    let parts = if body.is_empty() { &parts[..0] } else { &parts };
    if !limits.fills_checksums {
        let start = usize::from(checksum.start);
        let sum = add(&head[start..]) + add(body);
        head[start + 16..start + 18].copy_from_slice(&(!fold(sum)).to_be_bytes());
    }
    device.send(&Frame {
        head: &head,
        parts,
        segment_bytes: is_cut.then_some(segment_bytes),
        checksum: limits.fills_checksums.then_some(*checksum),
    })
}

/// The sum of the internet checksum (RFC 1071).
pub(crate) fn add(bytes: &[u8]) -> u32 {
    let pairs = bytes.chunks(2).map(|pair| match *pair {
        [a, b] => u16::from_be_bytes([a, b]),
        _ => u16::from_be_bytes([pair[0], 0]),
    });
    pairs.map(u32::from).sum()
}

pub(crate) fn fold(mut sum: u32) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}
