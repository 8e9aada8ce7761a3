//! Segments forged by an off-path attacker: addresses and ports are right, sequence numbers are guessed.

use core::net::SocketAddr;

use netstack::sim::{Numbers, Random, Segment, TcpOption, flag};

use crate::worlds::plan::Aim;

/// Flags of the forged segments, and whether they carry data.
const KINDS: [(u8, bool); 9] = [
    (flag::RST, false),
    (flag::RST | flag::ACK, false),
    (flag::SYN, false),
    (flag::SYN | flag::ACK, false),
    (flag::ACK, false),
    (flag::ACK, true),
    (flag::ACK | flag::PSH | flag::FIN, true),
    (flag::ACK | flag::FIN, false),
    (flag::FIN, true),
];

/// A byte that no application sends at any place by more than chance.
const BYTE: u8 = 0x66;

/// Frames to one end of a connection: each kind of segment, several times. With `numbers`, those of the connection,
/// an [`Aim::Window`] hits the window and misses the numbers that count: the next one, and what may be acknowledged.
pub(crate) fn volley(
    random: &mut Random,
    source: SocketAddr,
    destination: SocketAddr,
    aim: Aim,
    numbers: Option<Numbers>,
) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    for _ in 0..3 {
        for (flags, has_data) in KINDS {
            let (mut seq, mut ack) = (word(random), word(random));
            if let (Aim::Window, Some(numbers)) = (aim, numbers) {
                if numbers.receive_window < 2 {
                    continue;
                }
                let ahead = random.within(1..=u64::from(numbers.receive_window - 1));
                seq = numbers.rcv_nxt.wrapping_add(u32::try_from(ahead).expect("a window"));
                // At least a quarter of all numbers away from what is in flight: no window is so large.
                ack = numbers.snd_nxt.wrapping_add(0x4000_0000 + (ack >> 1));
            }
            let timestamps = TcpOption::Timestamps(word(random), word(random));
            let segment = Segment {
                source,
                destination,
                ecn: 0,
                seq,
                ack,
                flags,
                window: u16::try_from(random.within(0..=0xffff)).expect("16 bits"),
                options: if random.chance(0.5) { vec![timestamps] } else { vec![] },
                payload: vec![BYTE; if has_data { 100 } else { 0 }],
            };
            frames.push(segment.to_frame());
        }
    }
    frames
}

fn word(random: &mut Random) -> u32 {
    u32::try_from(random.bits() >> 32).expect("32 bits")
}
