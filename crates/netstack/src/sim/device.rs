//! A simulated interface: accepts the stack's frames, cuts large ones into segments, fills in checksums.

use alloc::vec::Vec;

use super::bytes::{self, fold, put_u16, put_u32, u16_at, u32_at};
use crate::transmit::{Frame, Full, Limits, Transmit};

/// Frames that a stack has sent, as they go over the wire.
#[derive(Debug)]
pub struct Device {
    limits: Limits,
    /// The frames that it accepts until they are [collected](Self::take); each counts once, however many segments it is
    /// cut into.
    room: usize,
    /// How many it took since then.
    taken: usize,
    /// True if it refused a frame since then.
    refused: bool,
    frames: Vec<Vec<u8>>,
}

impl Device {
    /// An interface with room for `room` frames.
    #[must_use]
    pub const fn new(limits: Limits, room: usize) -> Self {
        Self { limits, room, taken: 0, refused: false, frames: Vec::new() }
    }

    /// The frames that were sent since the last call. There is room again.
    pub fn take(&mut self) -> Vec<Vec<u8>> {
        self.taken = 0;
        core::mem::take(&mut self.frames)
    }

    /// Whether a frame was refused since the last call: the stack is to be told that there is room.
    pub const fn has_refused(&mut self) -> bool {
        core::mem::replace(&mut self.refused, false)
    }

    /// Changes the MTU, between two batches.
    pub const fn set_mtu(&mut self, mtu: u16) {
        self.limits.mtu = mtu;
    }
}

impl Transmit for Device {
    fn limits(&self) -> Limits {
        self.limits
    }

    fn send(&mut self, frame: &Frame<'_>) -> Result<(), Full> {
        if self.taken == self.room {
            self.refused = true;
            return Err(Full);
        }
        self.taken += 1;
        cut(frame, self.limits, &mut self.frames);
        Ok(())
    }
}

/// Cuts a frame as an interface does (Linux: `tcp_gso_segment`), and checks that the stack keeps its
/// contract with the interface.
fn cut(frame: &Frame<'_>, limits: Limits, into: &mut Vec<Vec<u8>>) {
    assert!(frame.parts.iter().all(|part| !part.is_empty()), "a part of a frame is empty");
    let payload = frame.parts.concat();
    let mut whole = frame.head.to_vec();
    whole.extend(&payload);
    let Some(layout) = bytes::layout(&whole) else {
        assert!(frame.segment_bytes.is_none() && frame.checksum.is_none(), "of IP only");
        into.push(whole);
        return;
    };
    assert_eq!(layout.transport.end, whole.len(), "the length of the IP header is the frame's");
    if let Some(checksum) = frame.checksum {
        assert!(limits.fills_checksums, "the interface fills in no checksums");
        let (start, offset) = (usize::from(checksum.start), usize::from(checksum.offset));
        assert_eq!(start, layout.transport.start, "the sum begins at the transport");
        let pseudo = fold(layout.pseudo_sum(&whole, layout.transport.len()));
        assert_eq!(u16_at(&whole, start + offset), Some(pseudo), "the pseudo header's sum");
    } else {
        assert!(layout.has_right_checksums(&whole), "a checksum is wrong");
    }

    let Some(segment_bytes) = frame.segment_bytes.map(usize::from) else {
        assert!(whole.len() - layout.ip <= usize::from(limits.mtu), "a frame exceeds the MTU");
        if let Some(checksum) = frame.checksum {
            let sum = fold(bytes::sum(&whole[layout.transport.clone()]));
            put_u16(&mut whole, usize::from(checksum.start + checksum.offset), !sum);
        }
        into.push(whole);
        return;
    };
    let tcp_header = layout.tcp_header_bytes(&whole).expect("only TCP is cut");
    let header_bytes = layout.transport.start + tcp_header;
    assert_eq!(header_bytes, frame.head.len(), "the head ends where the payload begins");
    assert!(
        segment_bytes > 0 && payload.len() > segment_bytes,
        "a frame to cut is more than one segment"
    );
    assert!(
        header_bytes - layout.ip + segment_bytes <= usize::from(limits.mtu),
        "a segment exceeds the MTU"
    );
    assert!(payload.len() <= limits.cut_bytes_max as usize, "the interface cuts less at once");
    assert!(frame.checksum.is_some(), "checksums of segments are the interface's");
    let seq = u32_at(&whole, layout.transport.start + 4).expect("a header");
    let ident = u16_at(&whole, layout.ip + 4).expect("a header");
    let count = payload.len().div_ceil(segment_bytes);
    for (index, part) in payload.chunks(segment_bytes).enumerate() {
        let mut segment = whole[..header_bytes].to_vec();
        segment.extend(part);
        let ip_bytes = u16::try_from(segment.len() - layout.ip).expect("at most the MTU");
        let number = u16::try_from(index).expect("at most 64 Ki segments");
        if layout.version == 4 {
            put_u16(&mut segment, layout.ip + 2, ip_bytes);
            put_u16(&mut segment, layout.ip + 4, ident.wrapping_add(number));
        } else {
            put_u16(&mut segment, layout.ip + 4, ip_bytes - 40);
        }
        let offset = u32::try_from(index * segment_bytes).expect("less than 64 KiB");
        put_u32(&mut segment, layout.transport.start + 4, seq.wrapping_add(offset));
        let flags = &mut segment[layout.transport.start + 13];
        if index + 1 < count {
            *flags &= !(super::segment::flag::FIN | super::segment::flag::PSH);
        }
        if index > 0 {
            *flags &= !super::segment::flag::CWR;
        }
        let layout = bytes::layout(&segment).expect("a packet of IP");
        layout.fill_checksums(&mut segment);
        into.push(segment);
    }
}
