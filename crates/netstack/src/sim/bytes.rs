//! Reads and writes, by position, the few fields of frames that the simulated network needs.
//!
//! The stack's own headers (`wire`) are not used on purpose: a mistake in them would cancel itself out here and
//! stay unnoticed.

use core::net::IpAddr;
use core::ops::Range;

/// The protocol number of TCP.
pub(super) const TCP: u8 = 6;

/// Where the parts of a frame stand that holds a packet of IP.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    /// The first byte of the IP header.
    pub(super) ip: usize,
    /// The version of IP: 4 or 6.
    pub(super) version: u8,
    /// The protocol of the transport.
    pub(super) protocol: u8,
    /// The header and the payload of the transport, as long as the IP header says.
    pub(super) transport: Range<usize>,
}

/// Finds the parts; `None` for other frames, and for those whose lengths are wrong.
pub(super) fn layout(frame: &[u8]) -> Option<Layout> {
    let mut ip = 14;
    if frame.get(12..14)? == [0x81, 0x00] {
        ip = 18;
    }
    let ethertype = u16_at(frame, ip - 2)?;
    let (version, protocol, transport) = match ethertype {
        0x0800 => {
            let header = usize::from(frame.get(ip)? & 0x0f) * 4;
            let total = usize::from(u16_at(frame, ip + 2)?);
            (4, *frame.get(ip + 9)?, ip + header..ip + total)
        }
        0x86dd => {
            let payload = usize::from(u16_at(frame, ip + 4)?);
            (6, *frame.get(ip + 6)?, ip + 40..ip + 40 + payload)
        }
        _ => return None,
    };
    frame.get(transport.clone())?;
    Some(Layout { ip, version, protocol, transport })
}

impl Layout {
    /// The source and the destination of the packet.
    pub(super) fn addresses(&self, frame: &[u8]) -> (IpAddr, IpAddr) {
        let at = |offset: usize, len: usize| &frame[self.ip + offset..self.ip + offset + len];
        let v4 = |offset| IpAddr::from(<[u8; 4]>::try_from(at(offset, 4)).expect("four bytes"));
        let v6 =
            |offset| IpAddr::from(<[u8; 16]>::try_from(at(offset, 16)).expect("sixteen bytes"));
        if self.version == 4 { (v4(12), v4(16)) } else { (v6(8), v6(24)) }
    }

    /// The length of the TCP header, if the packet is one of TCP and its length is possible.
    pub(super) fn tcp_header_bytes(&self, frame: &[u8]) -> Option<usize> {
        let bytes = usize::from(frame.get(self.transport.start + 12)? >> 4) * 4;
        (self.protocol == TCP && bytes >= 20 && bytes <= self.transport.len()).then_some(bytes)
    }

    /// The sum of the pseudo header (RFC 9293, 3.1; RFC 8200, 8.1) for a transport of `bytes` bytes.
    pub(super) fn pseudo_sum(&self, frame: &[u8], bytes: usize) -> u32 {
        let addresses = if self.version == 4 { 12..20 } else { 8..40 };
        let bytes = u32::try_from(bytes).expect("less than a packet's 64 KiB");
        sum(&frame[self.ip + addresses.start..self.ip + addresses.end])
            + u32::from(self.protocol)
            + (bytes >> 16)
            + (bytes & 0xffff)
    }

    /// Writes the checksums of the IP header and of TCP.
    pub(super) fn fill_checksums(&self, frame: &mut [u8]) {
        if self.version == 4 {
            put_u16(frame, self.ip + 10, 0);
            let header = self.ip..self.transport.start;
            let checksum = !fold(sum(&frame[header]));
            put_u16(frame, self.ip + 10, checksum);
        }
        if self.protocol == TCP {
            let field = self.transport.start + 16;
            put_u16(frame, field, 0);
            let pseudo = self.pseudo_sum(frame, self.transport.len());
            let checksum = !fold(pseudo + sum(&frame[self.transport.clone()]));
            put_u16(frame, field, checksum);
        }
    }

    /// Whether the checksums of the IP header and of TCP are right.
    pub(super) fn has_right_checksums(&self, frame: &[u8]) -> bool {
        let header =
            self.version == 6 || fold(sum(&frame[self.ip..self.transport.start])) == 0xffff;
        let pseudo = self.pseudo_sum(frame, self.transport.len());
        header
            && (self.protocol != TCP
                || fold(pseudo + sum(&frame[self.transport.clone()])) == 0xffff)
    }
}

/// Adds 16-bit words (RFC 1071). A frame of 64 KiB does not overflow.
pub(super) fn sum(bytes: &[u8]) -> u32 {
    let words = bytes.chunks(2);
    words.map(|word| u32::from(word[0]) << 8 | u32::from(word.get(1).copied().unwrap_or(0))).sum()
}

/// Adds the carries.
pub(super) fn fold(mut sum: u32) -> u16 {
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    u16::try_from(sum).expect("folded")
}

pub(super) fn u16_at(frame: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(frame.get(at..at + 2)?.try_into().ok()?))
}

pub(super) fn u32_at(frame: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(frame.get(at..at + 4)?.try_into().ok()?))
}

pub(super) fn put_u16(frame: &mut [u8], at: usize, value: u16) {
    frame[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

pub(super) fn put_u32(frame: &mut [u8], at: usize, value: u32) {
    frame[at..at + 4].copy_from_slice(&value.to_be_bytes());
}
