//! ICMP errors that routers send about packets that they cannot forward.

use alloc::vec::Vec;
use core::net::IpAddr;

use super::bytes::{self, Layout, fold, put_u16, sum};

const ICMP_V4: u8 = 1;
const ICMP_V6: u8 = 58;

/// The answer to a packet that is larger than the MTU of the next hop: "fragmentation needed" (RFC 792;
/// RFC 1191, 4) or "packet too big" (RFC 4443, 3.2). `None` if the frame holds no packet, or one that may be cut
/// into fragments, which no link here does.
#[must_use]
pub fn too_large(frame: &[u8], mtu: u16) -> Option<Vec<u8>> {
    let layout = bytes::layout(frame)?;
    if layout.version == 4 && frame[layout.ip + 6] & 0x40 == 0 {
        return None;
    }
    let [high, low] = mtu.to_be_bytes();
    Some(if layout.version == 4 {
        error(frame, &layout, [3, 4], [0, 0, high, low])
    } else {
        error(frame, &layout, [2, 0], [0, 0, high, low])
    })
}

/// The answer to a packet whose destination cannot be reached: "host unreachable" (RFC 792) or "address
/// unreachable" (RFC 4443, 3.1).
#[must_use]
pub fn host_unreachable(frame: &[u8]) -> Option<Vec<u8>> {
    let layout = bytes::layout(frame)?;
    let kind = if layout.version == 4 { [3, 1] } else { [1, 3] };
    Some(error(frame, &layout, kind, [0; 4]))
}

/// The message to the sender of a frame that quotes its packet. It has the address of the far end, which
/// saves a router one of its own.
fn error(frame: &[u8], layout: &Layout, kind: [u8; 2], rest: [u8; 4]) -> Vec<u8> {
    let mut message = Vec::new();
    message.extend(&frame[6..12]);
    message.extend(&frame[..6]);
    let (source, destination) = layout.addresses(frame);
    let quoted_max =
        if layout.version == 4 { layout.transport.start + 8 } else { layout.ip + 1280 - 48 };
    let quoted = &frame[layout.ip..layout.transport.end.min(quoted_max)];
    let length = |bytes: usize| u16::try_from(bytes).expect("at most 1,280").to_be_bytes();
    let mut pseudo = 0;
    match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            message.extend([0x08, 0x00, 0x45, 0]);
            message.extend(length(20 + 8 + quoted.len()));
            message.extend([0, 0, 0, 0, 64, ICMP_V4, 0, 0]);
            message.extend(destination.octets());
            message.extend(source.octets());
            let checksum = !fold(sum(&message[14..34]));
            put_u16(&mut message, 24, checksum);
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            message.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            message.extend(length(8 + quoted.len()));
            message.extend([ICMP_V6, 64]);
            message.extend(destination.octets());
            message.extend(source.octets());
            pseudo = sum(&message[22..54]) + u32::from(ICMP_V6) + sum(&length(8 + quoted.len()));
        }
        _ => unreachable!("a packet has addresses of one version"),
    }
    let begin = message.len();
    message.extend(kind);
    message.extend([0, 0]);
    message.extend(rest);
    message.extend(quoted);
    let checksum = !fold(pseudo + sum(&message[begin..]));
    put_u16(&mut message, begin + 2, checksum);
    message
}
