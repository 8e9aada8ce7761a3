//! A peer's end of a connection: it turns the words of a script into segments, for any stack.

use core::net::SocketAddr;

use netstack::sim::{Segment, TcpOption, flag};

use crate::scripts::parse::{Opt, Pattern, letters};

/// The state of a peer on which its next segment depends.
pub(crate) struct End {
    /// The stack's address.
    pub local: SocketAddr,
    /// The peer's.
    pub remote: SocketAddr,
    pub isn: u32,
    /// The stack's initial sequence number, once it has sent a SYN.
    pub iss: Option<u32>,
    /// The stack's first timestamp and its last one.
    pub stamps: Option<(u32, u32)>,
    pub sends_timestamps: bool,
    window: u16,
}

impl End {
    pub(crate) const fn new(local: SocketAddr, remote: SocketAddr, isn: u32) -> Self {
        let (iss, stamps) = (None, None);
        Self { local, remote, isn, iss, stamps, sends_timestamps: false, window: 65_535 }
    }

    /// Learns from what the stack has sent.
    pub(crate) fn hear(&mut self, segment: &Segment) {
        if segment.has(flag::SYN) {
            self.iss = Some(segment.seq);
        }
        for option in &segment.options {
            if let TcpOption::Timestamps(value, _) = option {
                let (first, _) = self.stamps.unwrap_or((*value, *value));
                self.stamps = Some((first, *value));
            }
        }
    }

    /// The segment that a script describes, when the peer's clock shows this timestamp.
    pub(crate) fn segment(&mut self, pattern: &Pattern, clock: u32) -> Result<Segment, String> {
        self.window = pattern.window.unwrap_or(self.window);
        let iss = self.iss.unwrap_or(0);
        let mut options = Vec::new();
        let last = self.stamps.map_or(0, |(_, last)| last);
        for option in &pattern.options {
            options.push(match option {
                Opt::Mss(mss) => TcpOption::Mss(*mss),
                Opt::WindowScale(shift) => TcpOption::WindowScale(*shift),
                Opt::SackPermitted => TcpOption::SackPermitted,
                Opt::Any(_) => return Err("which one?".to_owned()),
                Opt::Sack(blocks) => {
                    let block = |(left, right): &(i64, i64)| (at(iss, *left), at(iss, *right));
                    TcpOption::Sack(blocks.iter().map(block).collect())
                }
                Opt::Timestamps(value, echo) => {
                    let first = self.stamps.map_or(0, |(first, _)| first);
                    let echo = echo.map_or(last, |echo| at(first, echo));
                    TcpOption::Timestamps(value.map_or(clock, |value| at(0, value)), echo)
                }
                Opt::Other(kind, contents) => TcpOption::Other(*kind, contents.clone()),
            });
        }
        let is_syn = pattern.flags & flag::SYN != 0;
        let has_timestamps =
            options.iter().any(|option| matches!(option, TcpOption::Timestamps(..)));
        if self.sends_timestamps && !has_timestamps && !is_syn && !pattern.without.contains(&8) {
            options.push(TcpOption::Timestamps(clock, last));
        }
        // Data of a SYN is after it.
        let before = i64::from(!is_syn);
        let data = pattern.seq.0 - before..pattern.seq.1 - before;
        Ok(Segment {
            source: self.remote,
            destination: self.local,
            ecn: pattern.ecn.unwrap_or(0),
            seq: at(self.isn, pattern.seq.0),
            ack: pattern.ack.map_or(0, |ack| at(iss, ack)),
            flags: pattern.flags,
            window: self.window,
            options,
            payload: contents(false, data),
        })
    }
}

/// The flags, the range and the acknowledgement of a segment, counted from the initial numbers of its sender and of the
/// other side.
pub(crate) fn numbers(segment: &Segment, flags: u8, own: u32, others: u32) -> String {
    let from = relative(segment.seq, own);
    let to = from + i64::try_from(segment.payload.len()).expect("few bytes");
    let range = if from == to { from.to_string() } else { format!("{from}:{to}") };
    let ack = if segment.has(flag::ACK) {
        format!(" ack {}", relative(segment.ack, others))
    } else {
        String::new()
    };
    format!("{} {range}{ack}", letters(flags))
}

/// The blocks of a SACK option, counted from this number.
pub(crate) fn blocks(ranges: &[(u32, u32)], base: u32) -> String {
    let block = |(left, right): &(u32, u32)| {
        format!("{}:{}", relative(*left, base), relative(*right, base))
    };
    ranges.iter().map(block).collect::<Vec<_>>().join(" ")
}

/// The data of either side at a position of its stream.
fn content(is_ours: bool, position: i64) -> u8 {
    let mixed =
        (position.cast_unsigned() ^ u64::from(is_ours) << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed.to_be_bytes()[0]
}

pub(crate) fn contents(is_ours: bool, positions: core::ops::Range<i64>) -> Vec<u8> {
    positions.map(|position| content(is_ours, position)).collect()
}

/// The number at a distance from the base.
pub(crate) fn at(base: u32, relative: i64) -> u32 {
    u32::try_from((i64::from(base) + relative).rem_euclid(1 << 32)).expect("a number of 32 bits")
}

/// The distance from the base, on the circle.
pub(crate) fn relative(number: u32, base: u32) -> i64 {
    i64::from(number.wrapping_sub(base).cast_signed())
}

pub(crate) const fn kind(option: &TcpOption) -> u8 {
    match option {
        TcpOption::Mss(_) => 2,
        TcpOption::WindowScale(_) => 3,
        TcpOption::SackPermitted => 4,
        TcpOption::Sack(_) => 5,
        TcpOption::Timestamps(..) => 8,
        TcpOption::Other(kind, _) => *kind,
    }
}
