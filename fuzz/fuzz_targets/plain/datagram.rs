//! Frames with a datagram, written and read by position.

use core::net::{IpAddr, SocketAddr};

use netstack::sim::mac;

/// The protocol number of UDP.
const UDP: u8 = 17;
const ETHERNET_BYTES: usize = 14;

/// The frame of a datagram, with its checksum.
pub(crate) fn to_frame(source: SocketAddr, destination: SocketAddr, payload: &[u8]) -> Vec<u8> {
    let length = u16::try_from(8 + payload.len()).expect("a datagram").to_be_bytes();
    let ports = [source.port().to_be_bytes(), destination.port().to_be_bytes()].concat();
    let udp = [&ports[..], &length, &[0; 2], payload].concat();
    let mut frame = [mac(destination.ip()), mac(source.ip())].concat();
    match (source.ip(), destination.ip()) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let total = u16::try_from(20 + udp.len()).expect("a packet").to_be_bytes();
            let mut ip = [&[0x45, 0][..], &total, &[0, 0, 0x40, 0, 64, UDP, 0, 0]].concat();
            ip.extend([source.octets(), destination.octets()].as_flattened());
            let checksum = !folded(sum(&ip));
            ip[10..12].copy_from_slice(&checksum.to_be_bytes());
            frame.extend([8, 0]);
            frame.extend(ip);
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            frame.extend(length);
            frame.extend([UDP, 64]);
            frame.extend([source.octets(), destination.octets()].as_flattened());
        }
        _ => panic!("two versions of IP"),
    }
    let begin = frame.len();
    frame.extend(&udp);
    // A sum of zero is sent as its other form (RFC 768).
    let checksum = match !folded(pseudo_sum(source.ip(), destination.ip(), udp.len()) + sum(&udp)) {
        0 => 0xffff,
        checksum => checksum,
    };
    frame[begin + 6..begin + 8].copy_from_slice(&checksum.to_be_bytes());
    frame
}

/// The addresses and the payload of the datagram in a frame that the stack has sent; `None` if it has none.
///
/// # Panics
///
/// If a length or the checksum is wrong, or there is no checksum.
pub(crate) fn from_frame(frame: &[u8]) -> Option<(SocketAddr, SocketAddr, Vec<u8>)> {
    let ip = &frame[ETHERNET_BYTES..];
    let (udp, source, destination) = match frame[12..ETHERNET_BYTES] {
        [8, 0] if ip[9] == UDP => {
            assert_eq!(folded(sum(&ip[..20])), 0xffff, "the checksum of the IP header");
            (&ip[20..], IpAddr::from(bytes::<4>(&ip[12..])), bytes::<4>(&ip[16..]).into())
        }
        [0x86, 0xdd] if ip[6] == UDP => {
            (&ip[40..], IpAddr::from(bytes::<16>(&ip[8..])), bytes::<16>(&ip[24..]).into())
        }
        _ => return None,
    };
    let word = |at: usize| u16::from_be_bytes(bytes(&udp[at..]));
    assert_eq!(usize::from(word(4)), udp.len(), "the length of the datagram");
    assert_ne!(word(6), 0, "a datagram without a checksum");
    let sum = pseudo_sum(source, destination, udp.len()) + sum(udp);
    assert_eq!(folded(sum), 0xffff, "the checksum of the datagram");
    Some(((source, word(0)).into(), (destination, word(2)).into(), udp[8..].to_vec()))
}

fn bytes<const N: usize>(bytes: &[u8]) -> [u8; N] {
    *bytes.first_chunk().expect("a header is whole")
}

fn pseudo_sum(source: IpAddr, destination: IpAddr, bytes: usize) -> u32 {
    let of = |ip| match ip {
        IpAddr::V4(ip) => sum(&ip.octets()),
        IpAddr::V6(ip) => sum(&ip.octets()),
    };
    of(source) + of(destination) + u32::from(UDP) + u32::try_from(bytes).expect("a datagram")
}

fn sum(bytes: &[u8]) -> u32 {
    let words = bytes.chunks(2);
    words.map(|word| u32::from(word[0]) << 8 | u32::from(*word.get(1).unwrap_or(&0))).sum()
}

fn folded(mut sum: u32) -> u16 {
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    u16::try_from(sum).expect("folded")
}
