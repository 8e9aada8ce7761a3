//! Measures the paths to an interface by sending frames that serve no other purpose.

use core::time::Duration;

use netstack::{Checksum, Frame};
use rustix::time::ClockId;

use crate::choose::{By, Cost, Costs, Ways};
use crate::counters::Counters;
use crate::sockets::{CUT_BYTES_MAX, Sockets};

/// The number of measurements of each kind. The least counts, because the others were interrupted.
const ROUNDS: usize = 4;
/// Small frames in a measurement.
const SMALL_FRAMES: u32 = 48;
/// Pieces of large data in a measurement.
const LARGE_PIECES: u32 = 8;
/// Frames between two flushes: a batch of a server with some load.
const BATCH: u32 = 8;

/// Payload of a small frame, bytes: a short response.
const SMALL_BYTES: usize = 128;
/// Segments of large data: half of the segments of 1,460 bytes that one frame can carry. With few segments both
/// paths may cost the same; with many segments a wrong choice costs several times as much.
const LARGE_SEGMENTS: u16 = 22;

/// Bytes of the headers below: Ethernet, IPv4, TCP.
const HEAD_BYTES: u16 = 14 + 20 + 20;

/// Measures the costs of small frames and of large data by both paths. The measurement takes some milliseconds.
pub(crate) fn costs(sockets: &mut Sockets, mac: [u8; 6], mtu: u16) -> Costs {
    let segment_bytes = sockets.limits(mtu).mtu.saturating_sub(40);
    let large_bytes = usize::from(segment_bytes) * usize::from(LARGE_SEGMENTS);
    let large = vec![0; large_bytes.min(CUT_BYTES_MAX as usize)];
    let mut costs = Costs { small: UNKNOWN, large: UNKNOWN };
    for _ in 0..ROUNDS {
        for by in [By::Xdp, By::Packet] {
            sockets.set_ways(Ways::all(by));
            let small = measure(sockets, SMALL_FRAMES, |sockets| {
                send(sockets, mac, &large[..SMALL_BYTES.min(large.len())], None);
            });
            let large = measure(sockets, LARGE_PIECES, |sockets| match by {
                By::Packet => send(sockets, mac, &large, Some(segment_bytes)),
                By::Xdp => {
                    let segments = large.chunks(usize::from(segment_bytes).max(1));
                    segments.for_each(|segment| send(sockets, mac, segment, None));
                }
            });
            for (cost, time) in [(&mut costs.small, small), (&mut costs.large, large)] {
                let least = match by {
                    By::Xdp => &mut cost.xdp,
                    By::Packet => &mut cost.packet,
                };
                *least = time.min(*least);
            }
        }
    }
    costs
}

const UNKNOWN: Cost = Cost { xdp: Duration::MAX, packet: Duration::MAX };

/// Measures the mean CPU time of the thread for one of `count` calls.
fn measure(sockets: &mut Sockets, count: u32, mut send: impl FnMut(&mut Sockets)) -> Duration {
    let mut counters = Counters::default();
    let before = rustix::time::clock_gettime(ClockId::ThreadCPUTime);
    for number in 1..=count {
        send(sockets);
        if number % BATCH == 0 {
            sockets.flush(&mut counters);
        }
    }
    let after = rustix::time::clock_gettime(ClockId::ThreadCPUTime);
    let time = Duration::try_from(after - before).unwrap_or_default();
    time / count
}

/// Sends a TCP segment that no machine receives. The Ethernet frame is addressed to its own sender, and no switch
/// returns such a frame. The IP addresses are for documentation (RFC 5737).
fn send(sockets: &mut Sockets, mac: [u8; 6], payload: &[u8], segment_bytes: Option<u16>) {
    let mut head = [0; HEAD_BYTES as usize];
    head[..6].copy_from_slice(&mac);
    head[6..12].copy_from_slice(&mac);
    head[12..14].copy_from_slice(&[0x08, 0x00]);
    let ip_bytes = u16::try_from(payload.len()).unwrap_or(u16::MAX).saturating_add(HEAD_BYTES - 14);
    let [length0, length1] = ip_bytes.to_be_bytes();
    // Time to live: one hop.
    head[14..34].copy_from_slice(&[
        0x45, 0, length0, length1, 0, 0, 0x40, 0, 1, 6, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2,
    ]);
    // From and to port 9 (discard), with a header of 20 bytes and the flag ACK.
    head[34..38].copy_from_slice(&[0, 9, 0, 9]);
    head[46..48].copy_from_slice(&[0x50, 0x10]);
    let frame = Frame {
        head: &head,
        parts: &[payload],
        segment_bytes,
        checksum: Some(Checksum { start: 34, offset: 16 }),
    };
    // A refused frame makes the path look cheap only if all frames are refused.
    let _ = sockets.send(&frame, &mut Counters::default());
}
