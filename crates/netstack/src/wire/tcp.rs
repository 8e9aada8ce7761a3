//! The header of TCP (RFC 9293, 3.1) with the options that the stack knows (RFC 9293, 3.2; RFC 2018; RFC 7323).

use core::ops::Deref;

use super::{Malformed, be16};
use crate::seq::SeqNumber;

/// The header of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The sender's port.
    pub source: u16,
    /// The receiver's port.
    pub destination: u16,
    /// The sequence number of the first byte, or of the SYN: `SEG.SEQ`.
    pub seq: SeqNumber,
    /// `SEG.ACK`; `Some` if the flag ACK is set.
    pub ack: Option<SeqNumber>,
    /// The other flags.
    pub flags: Flags,
    /// `SEG.WND`, not scaled.
    pub window: u16,
    /// The options.
    pub options: Options,
}

/// The flags except ACK, which [`Header::ack`] replaces. URG is ignored: urgent data is treated as data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// The sender has no more data.
    pub fin: bool,
    /// The sender begins a connection.
    pub syn: bool,
    /// The sender resets the connection.
    pub rst: bool,
    /// The receiver has to push the data to its application at once.
    pub psh: bool,
    /// The sender has seen a mark of congestion (RFC 3168).
    pub ece: bool,
    /// The sender has reduced its congestion window (RFC 3168).
    pub cwr: bool,
}

/// The options that the stack knows. The connection decides which of them a segment may have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// The maximum segment size.
    pub mss: Option<u16>,
    /// The shift of later windows, at most 14 (RFC 7323, 2.3).
    pub window_scale: Option<u8>,
    /// Selective acknowledgements may be sent.
    pub sack_permitted: bool,
    /// The selective acknowledgements.
    pub sack: SackBlocks,
    /// The sender's timestamp and the echoed one: `TSval`, `TSecr`.
    pub timestamps: Option<(u32, u32)>,
}

/// Blocks of selective acknowledgements: the first number of each block, and the number after its last.
#[derive(Clone, Copy, Default)]
pub struct SackBlocks {
    blocks: [(SeqNumber, SeqNumber); Self::MAX],
    len: u8,
}

/// The largest shift of a window (RFC 7323, 2.3).
pub const WINDOW_SCALE_MAX: u8 = 14;

const END: u8 = 0;
const NO_OPERATION: u8 = 1;
const MSS: u8 = 2;
const WINDOW_SCALE: u8 = 3;
const SACK_PERMITTED: u8 = 4;
const SACK: u8 = 5;
const TIMESTAMPS: u8 = 8;

impl Header {
    /// Bytes of a header without options.
    pub const LEN: usize = 20;
    /// Bytes of a header with as many options as fit.
    pub const LEN_MAX: usize = 60;

    /// Reads a header. Its checksum covers the whole segment and the pseudo header, see
    /// [`super::checksum::Sum::pseudo_header`].
    ///
    /// Unknown options are skipped. An option whose length is wrong ends the options, as with the kernels of
    /// Linux and FreeBSD (RFC 9293, 3.1 lets an implementation choose); those in front of it count.
    ///
    /// # Errors
    ///
    /// If the header is cut off or its length is less than 20.
    #[inline]
    pub fn parse(segment: &[u8]) -> Result<(Self, &[u8]), Malformed> {
        let fields = segment.first_chunk::<{ Self::LEN }>().ok_or(Malformed::Header)?;
        let header_len = usize::from(fields[12] >> 4) * 4;
        let (head, payload) = segment.split_at_checked(header_len).ok_or(Malformed::Header)?;
        let options = head.get(Self::LEN..).ok_or(Malformed::Header)?;
        let number = |at: usize| {
            SeqNumber(u32::from_be_bytes([
                fields[at],
                fields[at + 1],
                fields[at + 2],
                fields[at + 3],
            ]))
        };
        let header = Self {
            source: be16(fields[0], fields[1]),
            destination: be16(fields[2], fields[3]),
            seq: number(4),
            ack: (fields[13] & 0x10 != 0).then(|| number(8)),
            flags: Flags::from_bits(fields[13]),
            window: be16(fields[14], fields[15]),
            options: Options::parse(options),
        };
        Ok((header, payload))
    }

    /// Writes the header and returns its length. The checksum is left zero.
    ///
    /// If there are too many selective acknowledgements, the last ones are left out. With timestamps three fit.
    #[inline]
    pub fn emit(&self, into: &mut [u8; Self::LEN_MAX]) -> usize {
        let (fields, options) = into.split_at_mut(Self::LEN);
        let len = Self::LEN + self.options.emit(options);
        let ports = u32::from(self.source) << 16 | u32::from(self.destination);
        let flags = self.flags.bits() | u8::from(self.ack.is_some()) << 4;
        #[expect(clippy::cast_possible_truncation, reason = "a length of at most 60")]
        let offset = (len as u32 / 4) << 28;
        let window = offset | u32::from(flags) << 16 | u32::from(self.window);
        let words = [ports, self.seq.0, self.ack.unwrap_or_default().0, window, 0];
        for (to, word) in fields.as_chunks_mut::<4>().0.iter_mut().zip(words) {
            *to = word.to_be_bytes();
        }
        len
    }
}

impl Flags {
    /// No options.
    pub const NONE: Self =
        Self { fin: false, syn: false, rst: false, psh: false, ece: false, cwr: false };

    const fn from_bits(bits: u8) -> Self {
        Self {
            fin: bits & 0x01 != 0,
            syn: bits & 0x02 != 0,
            rst: bits & 0x04 != 0,
            psh: bits & 0x08 != 0,
            ece: bits & 0x40 != 0,
            cwr: bits & 0x80 != 0,
        }
    }

    const fn bits(self) -> u8 {
        self.fin as u8
            | (self.syn as u8) << 1
            | (self.rst as u8) << 2
            | (self.psh as u8) << 3
            | (self.ece as u8) << 6
            | (self.cwr as u8) << 7
    }
}

impl Options {
    /// Reads options.
    #[inline]
    fn parse(bytes: &[u8]) -> Self {
        let mut options = Self::default();
        // The only ones of nearly all segments.
        if let &[NO_OPERATION, NO_OPERATION, TIMESTAMPS, 10, v0, v1, v2, v3, e0, e1, e2, e3] = bytes
        {
            options.timestamps =
                Some((u32::from_be_bytes([v0, v1, v2, v3]), u32::from_be_bytes([e0, e1, e2, e3])));
        } else {
            options.parse_each(bytes);
        }
        options
    }

    fn parse_each(&mut self, mut bytes: &[u8]) {
        loop {
            bytes = match *bytes {
                [] | [END, ..] => return,
                [NO_OPERATION, ref rest @ ..] => rest,
                [kind, len, ref rest @ ..] => {
                    let Some((value, rest)) =
                        usize::from(len).checked_sub(2).and_then(|len| rest.split_at_checked(len))
                    else {
                        return;
                    };
                    self.set(kind, value);
                    rest
                }
                [_] => return,
            };
        }
    }

    /// Handles an option. An option with a wrong length is ignored.
    fn set(&mut self, kind: u8, value: &[u8]) {
        match (kind, value) {
            (MSS, &[a, b]) => self.mss = Some(be16(a, b)),
            (WINDOW_SCALE, &[shift]) => self.window_scale = Some(shift.min(WINDOW_SCALE_MAX)),
            (SACK_PERMITTED, []) => self.sack_permitted = true,
            (TIMESTAMPS, &[v0, v1, v2, v3, e0, e1, e2, e3]) => {
                self.timestamps = Some((
                    u32::from_be_bytes([v0, v1, v2, v3]),
                    u32::from_be_bytes([e0, e1, e2, e3]),
                ));
            }
            (SACK, value) => {
                if let (blocks, []) = value.as_chunks::<8>() {
                    self.sack = blocks.iter().map(read_block).collect();
                }
            }
            _ => {}
        }
    }

    /// Writes the options into 40 bytes, in the order of Linux, and returns their length, a multiple of 4.
    #[inline]
    fn emit(&self, into: &mut [u8]) -> usize {
        match *self {
            // The only ones of nearly all segments.
            Self {
                mss: None,
                window_scale: None,
                sack_permitted: false,
                sack: SackBlocks { len: 0, .. },
                timestamps: Some((value, echo)),
            } => {
                let kind = u32::from_be_bytes([NO_OPERATION, NO_OPERATION, TIMESTAMPS, 10]);
                for (to, word) in into.as_chunks_mut::<4>().0.iter_mut().zip([kind, value, echo]) {
                    *to = word.to_be_bytes();
                }
                12
            }
            _ => self.emit_each(into),
        }
    }

    fn emit_each(&self, into: &mut [u8]) -> usize {
        let mut at = 0;
        let mut put = |bytes: &[u8]| {
            into[at..at + bytes.len()].copy_from_slice(bytes);
            at += bytes.len();
            at
        };
        if let Some(mss) = self.mss {
            let [a, b] = mss.to_be_bytes();
            put(&[MSS, 4, a, b]);
        }
        // An option whose length is no multiple of 4 shares a word with `SACK_PERMITTED` or is padded.
        let [first, second] =
            if self.sack_permitted { [SACK_PERMITTED, 2] } else { [NO_OPERATION; 2] };
        if let Some((value, echo)) = self.timestamps {
            put(&[first, second, TIMESTAMPS, 10]);
            put(&value.to_be_bytes());
            put(&echo.to_be_bytes());
        } else if self.sack_permitted {
            put(&[NO_OPERATION, NO_OPERATION, first, second]);
        }
        if let Some(shift) = self.window_scale {
            put(&[NO_OPERATION, WINDOW_SCALE, 3, shift]);
        }
        let mut len = put(&[]);
        let blocks = self.sack.len().min((Self::LEN_MAX - len).saturating_sub(4) / 8);
        if blocks > 0 {
            #[expect(clippy::cast_possible_truncation, reason = "four blocks at most")]
            put(&[NO_OPERATION, NO_OPERATION, SACK, 2 + 8 * blocks as u8]);
            for (left, right) in &self.sack[..blocks] {
                put(&left.0.to_be_bytes());
                len = put(&right.0.to_be_bytes());
            }
        }
        len
    }

    /// The length of the options when they are emitted.
    #[must_use]
    pub fn emitted_len(&self) -> usize {
        self.emit(&mut [0; Self::LEN_MAX])
    }

    const LEN_MAX: usize = Header::LEN_MAX - Header::LEN;
}

impl SackBlocks {
    /// The maximum number of blocks, without other options.
    pub const MAX: usize = 4;

    /// Adds a block, or ignores it at the maximum, [`Self::MAX`].
    pub fn push(&mut self, left: SeqNumber, right: SeqNumber) {
        if let Some(block) = self.blocks.get_mut(usize::from(self.len)) {
            *block = (left, right);
            self.len += 1;
        }
    }
}

impl Deref for SackBlocks {
    type Target = [(SeqNumber, SeqNumber)];

    fn deref(&self) -> &Self::Target {
        &self.blocks[..usize::from(self.len)]
    }
}

impl FromIterator<(SeqNumber, SeqNumber)> for SackBlocks {
    fn from_iter<I: IntoIterator<Item = (SeqNumber, SeqNumber)>>(blocks: I) -> Self {
        let mut collected = Self::default();
        for (left, right) in blocks {
            collected.push(left, right);
        }
        collected
    }
}

impl PartialEq for SackBlocks {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for SackBlocks {}

impl core::fmt::Debug for SackBlocks {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        (**self).fmt(f)
    }
}

fn read_block(&[l0, l1, l2, l3, r0, r1, r2, r3]: &[u8; 8]) -> (SeqNumber, SeqNumber) {
    (
        SeqNumber(u32::from_be_bytes([l0, l1, l2, l3])),
        SeqNumber(u32::from_be_bytes([r0, r1, r2, r3])),
    )
}

#[cfg(test)]
mod tests;
