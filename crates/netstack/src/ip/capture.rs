//! Writes frames in the format of pcapng (draft-ietf-opsawg-pcapng), which Wireshark and tcpdump read.

use alloc::vec::Vec;

use super::channel::{Captured, Direction};

/// The writer of a file. The writer appends blocks to the caller's buffer, and the caller writes the buffer to the
/// file in order.
///
/// A file begins with [`begin`](Self::begin). When [`file_bytes`](Self::file_bytes) reaches the caller's limit, the
/// caller continues with another file, which begins the same way.
#[derive(Clone, Debug)]
pub struct Capture {
    /// The name of the interface.
    interface: alloc::string::String,
    /// The time at which the stack's clock was 0, in nanoseconds since 1970.
    epoch: u64,
    frame_bytes_max: u32,
    file_bytes: u64,
}

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE_DESCRIPTION: u32 = 1;
const ENHANCED_PACKET: u32 = 6;

/// Shows readers the byte order: all numbers of this writer are little-endian.
const BYTE_ORDER_MAGIC: u32 = 0x1a2b_3c4d;
const ETHERNET: u16 = 1;

const END_OF_OPTIONS: u16 = 0;
const INTERFACE_NAME: u16 = 2;
const INTERFACE_RESOLUTION: u16 = 9;
const PACKET_FLAGS: u16 = 2;

impl Capture {
    /// Writes frames of the interface with this name, of which a channel copied at most `frame_bytes_max`
    /// bytes. `epoch` is the moment at which the stack's clock was 0, in nanoseconds since 1970.
    #[must_use]
    pub fn new(interface: &str, frame_bytes_max: u32, epoch: u64) -> Self {
        Self { interface: interface.into(), epoch, frame_bytes_max, file_bytes: 0 }
    }

    /// Begins a file: a section and the description of its only interface.
    pub fn begin(&mut self, into: &mut Vec<u8>) {
        let start = into.len();
        block(into, SECTION_HEADER, |into| {
            put_u32(into, BYTE_ORDER_MAGIC);
            // Version 1.0, and an unknown length of the section.
            put_u16(into, 1);
            put_u16(into, 0);
            into.extend_from_slice(&[0xff; 8]);
        });
        block(into, INTERFACE_DESCRIPTION, |into| {
            put_u16(into, ETHERNET);
            put_u16(into, 0);
            put_u32(into, self.frame_bytes_max);
            option(into, INTERFACE_NAME, self.interface.as_bytes());
            // In units of 10⁻⁹ seconds.
            option(into, INTERFACE_RESOLUTION, &[9]);
            option(into, END_OF_OPTIONS, &[]);
        });
        self.file_bytes = (into.len() - start) as u64;
    }

    /// Writes a frame.
    pub fn write(&mut self, frame: &Captured<'_>, into: &mut Vec<u8>) {
        let start = into.len();
        let time = self.epoch.saturating_add(frame.time.as_nanos());
        block(into, ENHANCED_PACKET, |into| {
            // The index of the interface: the first one.
            put_u32(into, 0);
            let [low, high] = [time, time >> 32].map(|part| part & 0xffff_ffff);
            for number in [high, low, frame.bytes.len() as u64, frame.len as u64] {
                put_u32(into, u32::try_from(number).unwrap_or(u32::MAX));
            }
            padded(into, frame.bytes);
            let direction: u32 = match frame.direction {
                Direction::Received => 1,
                Direction::Sent => 2,
            };
            option(into, PACKET_FLAGS, &direction.to_le_bytes());
            option(into, END_OF_OPTIONS, &[]);
        });
        self.file_bytes += (into.len() - start) as u64;
    }

    /// The bytes of the file so far.
    #[must_use]
    pub const fn file_bytes(&self) -> u64 {
        self.file_bytes
    }
}

/// Writes a block: its type, its length, what `body` writes, and its length again.
fn block(into: &mut Vec<u8>, kind: u32, body: impl FnOnce(&mut Vec<u8>)) {
    let start = into.len();
    put_u32(into, kind);
    put_u32(into, 0);
    body(into);
    // A frame has at most 64 KiB and its headers.
    let len = u32::try_from(into.len() + 4 - start).unwrap_or(u32::MAX);
    put_u32(into, len);
    into[start + 4..start + 8].copy_from_slice(&len.to_le_bytes());
}

fn option(into: &mut Vec<u8>, code: u16, value: &[u8]) {
    put_u16(into, code);
    put_u16(into, u16::try_from(value.len()).unwrap_or(u16::MAX));
    padded(into, value);
}

/// Writes bytes, and zeros up to a multiple of 4.
fn padded(into: &mut Vec<u8>, bytes: &[u8]) {
    into.extend_from_slice(bytes);
    into.resize(into.len() + bytes.len().next_multiple_of(4) - bytes.len(), 0);
}

fn put_u16(into: &mut Vec<u8>, number: u16) {
    into.extend_from_slice(&number.to_le_bytes());
}

fn put_u32(into: &mut Vec<u8>, number: u32) {
    into.extend_from_slice(&number.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Time;

    #[test]
    fn a_file_byte_by_byte() {
        let mut capture = Capture::new("eth10", 65_535, 0x0102_0304_0000_0000);
        let mut file = Vec::new();
        capture.begin(&mut file);
        let frame = Captured {
            time: Time::from_nanos(0x0506_0708),
            direction: Direction::Sent,
            len: 1500,
            bytes: b"frame",
        };
        capture.write(&frame, &mut file);
        #[rustfmt::skip]
        let expected = [
            &[0x0a, 0x0d, 0x0d, 0x0a, 28, 0, 0, 0, 0x4d, 0x3c, 0x2b, 0x1a, 1, 0, 0, 0][..],
            &[0xff; 8], &[28, 0, 0, 0],
            &[1, 0, 0, 0, 44, 0, 0, 0, 1, 0, 0, 0, 0xff, 0xff, 0, 0],
            &[2, 0, 5, 0], b"eth10\0\0\0", &[9, 0, 1, 0, 9, 0, 0, 0, 0, 0, 0, 0], &[44, 0, 0, 0],
            &[6, 0, 0, 0, 52, 0, 0, 0, 0, 0, 0, 0, 4, 3, 2, 1, 8, 7, 6, 5],
            &[5, 0, 0, 0, 0xdc, 5, 0, 0], b"frame\0\0\0",
            &[2, 0, 4, 0, 2, 0, 0, 0, 0, 0, 0, 0], &[52, 0, 0, 0],
        ]
        .concat();
        assert_eq!(file, expected);
        assert_eq!(capture.file_bytes(), file.len() as u64);
        // The next file has the same beginning.
        let mut next = Vec::new();
        capture.begin(&mut next);
        assert_eq!(next, file[..72]);
        assert_eq!(capture.file_bytes(), 72);
    }
}
