//! The header in front of a frame that tells the other side to fill in a checksum, or to cut the frame
//! into segments (`struct virtio_net_hdr` in linux/virtio_net.h; virtio 1.2, 5.1.6).

use netstack::{Frame, ReceivedChecksum};

/// Bytes of the header.
pub(crate) const HEADER_BYTES: usize = 10;

const NEEDS_CSUM: u8 = 1;
const DATA_VALID: u8 = 2;
const GSO_TCPV4: u8 = 1;
const GSO_TCPV6: u8 = 4;

const VLAN: [[u8; 2]; 2] = [[0x81, 0x00], [0x88, 0xa8]];
const IPV6: [u8; 2] = [0x86, 0xdd];

/// Builds the header of a frame to send.
///
/// All fields are in the byte order of this machine: packet sockets and TAP devices expect this order
/// by default.
pub(crate) fn emit(frame: &Frame<'_>) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    if let Some(checksum) = frame.checksum {
        header[0] = NEEDS_CSUM;
        header[6..8].copy_from_slice(&checksum.start.to_ne_bytes());
        header[8..10].copy_from_slice(&checksum.offset.to_ne_bytes());
    }
    if let Some(segment_bytes) = frame.segment_bytes {
        header[1] = gso_type(frame.head);
        // The head in full. The kernel copies it into the linear part of its buffer.
        let head_bytes = u16::try_from(frame.head.len()).expect("a head is at most 200 bytes");
        header[2..4].copy_from_slice(&head_bytes.to_ne_bytes());
        header[4..6].copy_from_slice(&segment_bytes.to_ne_bytes());
    }
    header
}

/// The GSO type of a frame: TCP over the version of IP in its ethertype.
fn gso_type(head: &[u8]) -> u8 {
    let ethertype = |at: usize| head.get(at..at + 2);
    let is_tagged = VLAN.iter().any(|tag| ethertype(12) == Some(tag));
    let is_ipv6 = ethertype(if is_tagged { 16 } else { 12 }) == Some(&IPV6);
    if is_ipv6 { GSO_TCPV6 } else { GSO_TCPV4 }
}

/// Reads the knowledge about the checksum of a received frame.
///
/// A frame without its checksum filled in was never on a wire.
pub(crate) fn parse(header: [u8; HEADER_BYTES]) -> ReceivedChecksum {
    if header[0] & (NEEDS_CSUM | DATA_VALID) != 0 {
        ReceivedChecksum::Verified
    } else {
        ReceivedChecksum::Unverified
    }
}

#[cfg(test)]
mod tests {
    use netstack::Checksum;

    use super::*;

    fn header(head: &[u8], checksum: Option<Checksum>, segment_bytes: Option<u16>) -> [u8; 10] {
        emit(&Frame { head, parts: &[b"body"], segment_bytes, checksum })
    }

    #[test]
    fn the_header_says_what_is_left_to_do() {
        let head = |ethertype: &[u8]| [&[2; 12], ethertype, &[0; 40]].concat();
        let [at0, at1] = 34_u16.to_ne_bytes();
        let [by0, by1] = 16_u16.to_ne_bytes();
        let [size0, size1] = 1448_u16.to_ne_bytes();
        let checksum = Some(Checksum { start: 34, offset: 16 });
        let ipv4 = head(&[0x08, 0x00]);
        assert_eq!(header(&ipv4, None, None), [0; 10]);
        assert_eq!(header(&ipv4, checksum, None), [1, 0, 0, 0, 0, 0, at0, at1, by0, by1]);
        for (head, gso) in [
            (ipv4, GSO_TCPV4),
            (head(&IPV6), GSO_TCPV6),
            (head(&[0x81, 0x00, 0, 5, 0x08, 0x00]), GSO_TCPV4),
            (head(&[0x81, 0x00, 0, 5, 0x86, 0xdd]), GSO_TCPV6),
            (head(&[0x88, 0xa8, 0, 5, 0x86, 0xdd]), GSO_TCPV6),
        ] {
            let [len0, len1] = u16::try_from(head.len()).unwrap().to_ne_bytes();
            let wanted = [1, gso, len0, len1, size0, size1, at0, at1, by0, by1];
            assert_eq!(header(&head, checksum, Some(1448)), wanted);
        }
    }

    #[test]
    fn the_flags_say_if_a_received_checksum_is_right() {
        for (flags, wanted) in [
            (0, ReceivedChecksum::Unverified),
            (NEEDS_CSUM, ReceivedChecksum::Verified),
            (DATA_VALID, ReceivedChecksum::Verified),
            (4, ReceivedChecksum::Unverified),
        ] {
            assert_eq!(parse([flags, 0, 0, 0, 0, 0, 0, 0, 0, 0]), wanted);
        }
    }
}
