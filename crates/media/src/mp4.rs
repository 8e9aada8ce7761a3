//! MP4: a sequence of boxes. `moov` has the tables of a whole film, in front of the media or after them. A
//! fragmented film has one `moof` for each fragment; `sidx` in front or `mfra` at the end has the positions of the
//! fragments.

mod tables;

use alloc::vec::Vec;
use core::ops::Range;

use crate::layout::{Builder, scale};
use crate::limits::{BOXES_MAX, TABLE_BYTES_MAX};
use tables::Track;

/// The size of a box's header, with a size of 64 bits.
const HEADER_BYTES: u64 = 16;
/// The same with a size of 32 bits.
const SHORT_HEADER_BYTES: u64 = 8;
/// The size of `mfro`, the last box within `mfra`. `mfra` is the last box of a file, so a parser finds its start
/// from the end of the file.
const MFRO_BYTES: u64 = 16;
/// The bytes that are read of a `moov` that is too large: `mvhd` stands at its start.
const MOOV_START_BYTES: u64 = 4096;
/// The types of boxes that a file begins with.
const FIRST: [&[u8; 4]; 9] =
    [b"ftyp", b"styp", b"moov", b"moof", b"sidx", b"mdat", b"free", b"skip", b"wide"];

/// The parser. In turns, the parser asks for a range and receives the bytes of the range.
#[derive(Debug)]
pub(crate) struct Mp4 {
    size: u64,
    found: Builder,
    tracks: Vec<Track>,
    /// Boxes of the outermost level that were looked at.
    boxes: u32,
    step: Step,
}

/// The next part of the file to read.
#[derive(Debug)]
enum Step {
    /// The header of a box at this position, up to the end of the file.
    Header(u64),
    /// The contents of a box with a table, or their start.
    Table {
        kind: Table,
        body: Range<u64>,
        end: u64,
    },
    /// The last 16 bytes of the file.
    Mfro,
    Done,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Table {
    Moov,
    /// The start of a `moov` that is too large.
    MoovStart,
    Sidx,
    Mfra,
}

impl Mp4 {
    /// Returns whether a file with these first eight bytes is an MP4.
    pub(crate) fn begins_with(magic: &[u8]) -> bool {
        FIRST.iter().any(|kind| magic[4..].starts_with(&kind[..]))
    }

    pub(crate) const fn new(size: u64) -> Self {
        let found = Builder::new(size);
        Self { size, found, tracks: Vec::new(), boxes: 0, step: Step::Header(0) }
    }

    pub(crate) fn need(&self) -> Option<Range<u64>> {
        match &self.step {
            Step::Header(at) => Some(*at..at + HEADER_BYTES.min(self.size - at)),
            Step::Table { body, .. } => Some(body.clone()),
            Step::Mfro => Some(self.size - MFRO_BYTES..self.size),
            Step::Done => None,
        }
    }

    /// Parses the bytes that it has asked for.
    pub(crate) fn handle(&mut self, bytes: &[u8]) {
        self.step = match core::mem::replace(&mut self.step, Step::Done) {
            Step::Header(at) => self.handle_header(at, bytes),
            Step::Table { kind, end, .. } => {
                match kind {
                    Table::Moov => self.tracks = tables::moov(bytes, &mut self.found),
                    Table::MoovStart => tables::duration(bytes, &mut self.found),
                    Table::Sidx => tables::sidx(bytes, end, &mut self.found),
                    Table::Mfra => tables::mfra(bytes, &self.tracks, &mut self.found),
                }
                // The tables of a film that is not fragmented are complete, and `mfra` is the last box.
                if kind == Table::Mfra || self.found.has_points() && kind == Table::Moov {
                    Step::Done
                } else {
                    self.next_box(end)
                }
            }
            Step::Mfro => self.handle_mfro(bytes),
            Step::Done => Step::Done,
        };
    }

    pub(crate) fn into_builder(self) -> Builder {
        self.found
    }

    fn handle_header(&mut self, at: u64, bytes: &[u8]) -> Step {
        let Some(header) = Header::parse(bytes, self.size - at) else { return Step::Done };
        self.boxes += 1;
        let (start, end) = (at + header.len, at + header.size);
        match &header.kind {
            b"moov" => self.table(Table::Moov, at, start, end),
            b"sidx" => self.table(Table::Sidx, at, start, end),
            b"mfra" => self.table(Table::Mfra, at, start, end),
            b"moof" | b"mdat" if self.found.has_points() => Step::Done,
            // A fragmented film has its index in front, at the end, or nowhere.
            b"moof" => {
                self.found.set_media_start(at);
                if self.size >= MFRO_BYTES { Step::Mfro } else { Step::Done }
            }
            b"mdat" => {
                self.found.set_media_start(start);
                // Nothing useful follows a `moov` without chunks.
                if self.found.has_index() { Step::Done } else { self.next_box(end) }
            }
            _ => self.next_box(end),
        }
    }

    /// The step for a box with a table.
    fn table(&mut self, kind: Table, at: u64, start: u64, end: u64) -> Step {
        self.found.add_index(at..end);
        if start == end {
            return self.next_box(end);
        }
        if end - start <= TABLE_BYTES_MAX {
            return Step::Table { kind, body: start..end, end };
        }
        if kind != Table::Moov {
            return self.next_box(end);
        }
        Step::Table { kind: Table::MoovStart, body: start..start + MOOV_START_BYTES, end }
    }

    fn handle_mfro(&mut self, bytes: &[u8]) -> Step {
        let (kind, len) = (bytes.get(4..8), be32(bytes, 12).map(u64::from));
        match len {
            Some(len) if kind == Some(b"mfro") && len >= MFRO_BYTES && len < self.size => {
                self.next_box(self.size - len)
            }
            _ => Step::Done,
        }
    }

    const fn next_box(&self, at: u64) -> Step {
        if self.boxes >= BOXES_MAX || self.size - at < SHORT_HEADER_BYTES {
            return Step::Done;
        }
        Step::Header(at)
    }
}

/// The header of a box.
#[derive(Debug)]
struct Header {
    kind: [u8; 4],
    /// Bytes of the header.
    len: u64,
    /// Bytes of the box with its header, at most the room in the parent.
    size: u64,
}

impl Header {
    /// Parses the header of a box. Its parent has `room` bytes left. The box is at least as long as its header.
    fn parse(bytes: &[u8], room: u64) -> Option<Self> {
        let kind = *bytes.get(4..)?.first_chunk()?;
        let (len, size) = match be32(bytes, 0)? {
            0 => (SHORT_HEADER_BYTES, room),
            1 => (HEADER_BYTES, be64(bytes, 8)?),
            size => (SHORT_HEADER_BYTES, u64::from(size)),
        };
        (len <= size && len <= room).then_some(Self { kind, len, size: size.min(room) })
    }
}

/// The boxes within a body: their types and their bodies. The iterator ends at the first malformed box.
fn boxes(mut body: &[u8]) -> impl Iterator<Item = (&[u8; 4], &[u8])> {
    core::iter::from_fn(move || {
        let header = Header::parse(body, body.len() as u64)?;
        let kind = body[4..].first_chunk().expect("it was parsed");
        let (this, rest) = body.split_at(usize::try_from(header.size).ok()?);
        body = rest;
        Some((kind, &this[usize::try_from(header.len).ok()?..]))
    })
}

/// The body of the first box of a type.
fn child<'a>(body: &'a [u8], kind: &[u8; 4]) -> Option<&'a [u8]> {
    boxes(body).find(|(found, _)| *found == kind).map(|(_, body)| body)
}

/// The big-endian 32-bit number at offset `at`.
fn be32(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|bytes| u32::from_be_bytes(*bytes))
}

/// The big-endian 64-bit number at offset `at`.
fn be64(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|bytes| u64::from_be_bytes(*bytes))
}

/// The version of a full box, which gives the widths of its numbers.
fn version(body: &[u8]) -> u8 {
    body.first().copied().unwrap_or_default()
}

/// Ticks of a clock as milliseconds; `None` for a clock that stands still.
fn to_ms(ticks: u64, per_second: u32) -> Option<u64> {
    (per_second > 0).then(|| scale(ticks, 1000, per_second.into()))
}

#[cfg(test)]
mod tests;
