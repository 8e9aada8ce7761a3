//! Matroska, and its subset WebM: elements with a name and a size. The `Segment` has `Info` with the
//! duration, `Cluster`s with the media, and `Cues` with the positions of the clusters. `SeekHead`, at
//! the start of the `Segment`, has the positions of these elements.

use core::ops::Range;

use crate::layout::{Builder, scale};
use crate::limits::{BOXES_MAX, TABLE_BYTES_MAX};

/// The size of an element's header: a name of 4 bytes at most, a size of 8 at most.
const HEADER_BYTES: u64 = 12;
/// The smallest header.
const HEADER_BYTES_MIN: u64 = 2;

/// Names of elements, as they stand in a file.
mod name {
    pub(super) const EBML: u32 = 0x1a45_dfa3;
    pub(super) const SEGMENT: u32 = 0x1853_8067;
    pub(super) const SEEK_HEAD: u32 = 0x114d_9b74;
    pub(super) const SEEK: u32 = 0x4dbb;
    pub(super) const SEEK_ID: u32 = 0x53ab;
    pub(super) const SEEK_POSITION: u32 = 0x53ac;
    pub(super) const INFO: u32 = 0x1549_a966;
    pub(super) const TIMESTAMP_SCALE: u32 = 0x2a_d7b1;
    pub(super) const DURATION: u32 = 0x4489;
    pub(super) const CLUSTER: u32 = 0x1f43_b675;
    pub(super) const CUES: u32 = 0x1c53_bb6b;
    pub(super) const CUE_POINT: u32 = 0xbb;
    pub(super) const CUE_TIME: u32 = 0xb3;
    pub(super) const CUE_TRACK_POSITIONS: u32 = 0xb7;
    pub(super) const CUE_CLUSTER_POSITION: u32 = 0xf1;
}

/// The parser. In turns, the parser asks for a range and receives the bytes of the range.
#[derive(Debug)]
pub(crate) struct Matroska {
    size: u64,
    found: Builder,
    /// The contents of the `Segment`. Positions count from their start.
    segment: Option<Range<u64>>,
    /// The position of the `Cues`, if `SeekHead` has it.
    cues_at: Option<u64>,
    /// The length of a tick, nanoseconds.
    tick_ns: u64,
    /// Elements of the outermost levels that were looked at.
    elements: u32,
    step: Step,
}

/// The next part of the file to read.
#[derive(Debug)]
enum Step {
    /// The header of an element at this position, up to the end of the file.
    Header(u64),
    /// The contents of an element.
    Table {
        kind: Table,
        body: Range<u64>,
    },
    Done,
}

#[derive(Clone, Copy, Debug)]
enum Table {
    SeekHead,
    Info,
    Cues,
}

impl Matroska {
    /// Returns whether a file with these first bytes is Matroska.
    pub(crate) fn begins_with(magic: &[u8]) -> bool {
        magic.starts_with(&name::EBML.to_be_bytes())
    }

    pub(crate) const fn new(size: u64) -> Self {
        Self {
            size,
            found: Builder::new(size),
            segment: None,
            cues_at: None,
            tick_ns: 1_000_000,
            elements: 0,
            step: Step::Header(0),
        }
    }

    pub(crate) fn need(&self) -> Option<Range<u64>> {
        match &self.step {
            Step::Header(at) => Some(*at..at + HEADER_BYTES.min(self.size - at)),
            Step::Table { body, .. } => Some(body.clone()),
            Step::Done => None,
        }
    }

    /// Parses the bytes that it has asked for.
    pub(crate) fn handle(&mut self, bytes: &[u8]) {
        self.step = match core::mem::replace(&mut self.step, Step::Done) {
            Step::Header(at) => self.handle_header(at, bytes),
            Step::Table { kind: Table::SeekHead, body } => {
                self.seek_head(bytes);
                self.next_element(body.end)
            }
            Step::Table { kind: Table::Info, body } => {
                self.info(bytes);
                self.next_element(body.end)
            }
            Step::Table { kind: Table::Cues, body } => {
                self.cues(bytes);
                // `Cues` after the media are read last, when everything else is known.
                if self.found.has_media_start() { Step::Done } else { self.next_element(body.end) }
            }
            Step::Done => Step::Done,
        };
    }

    pub(crate) fn into_builder(self) -> Builder {
        self.found
    }

    fn handle_header(&mut self, at: u64, bytes: &[u8]) -> Step {
        let Some(header) = Header::parse(bytes, self.size - at) else { return Step::Done };
        self.elements += 1;
        let body = at + header.len..at + header.len + header.size;
        match (header.name, &self.segment) {
            (name::SEGMENT, None) => {
                let start = body.start;
                self.segment = Some(body);
                self.next_element(start)
            }
            (_, None) => self.next_element(body.end),
            (name::SEEK_HEAD, Some(_)) => self.table(Table::SeekHead, at, body),
            (name::INFO, Some(_)) => self.table(Table::Info, at, body),
            (name::CUES, Some(_)) => self.table(Table::Cues, at, body),
            (name::CLUSTER, Some(_)) => {
                let is_first = !self.found.has_media_start();
                self.found.set_media_start(at);
                match self.cues_at {
                    Some(cues) if is_first && cues > at => self.next_element(cues),
                    _ => Step::Done,
                }
            }
            _ => self.next_element(body.end),
        }
    }

    /// The step for an element with a table.
    fn table(&mut self, kind: Table, at: u64, body: Range<u64>) -> Step {
        self.found.add_index(at..body.end);
        if body.is_empty() || body.end - body.start > TABLE_BYTES_MAX {
            return self.next_element(body.end);
        }
        Step::Table { kind, body }
    }

    fn next_element(&self, at: u64) -> Step {
        let end = self.segment.as_ref().map_or(self.size, |segment| segment.end);
        if self.elements >= BOXES_MAX || at >= end || end - at < HEADER_BYTES_MIN {
            return Step::Done;
        }
        Step::Header(at)
    }

    /// Finds the position of the `Cues`.
    fn seek_head(&mut self, body: &[u8]) {
        let start = self.segment_start();
        for seek in elements(body).filter_map(named(name::SEEK)) {
            let id = elements(seek).find_map(named(name::SEEK_ID)).map(unsigned);
            let position = elements(seek).find_map(named(name::SEEK_POSITION)).map(unsigned);
            if id == Some(name::CUES.into())
                && let Some(position) = position
            {
                self.cues_at = start.checked_add(position).filter(|&at| at < self.size);
            }
        }
    }

    /// Finds the duration, and the length of a tick.
    fn info(&mut self, body: &[u8]) {
        if let Some(scale) = elements(body).find_map(named(name::TIMESTAMP_SCALE)).map(unsigned)
            && scale > 0
        {
            self.tick_ns = scale;
        }
        if let Some(ticks) = elements(body).find_map(named(name::DURATION)).and_then(float) {
            self.found.set_duration(self.to_ms(ticks));
        }
    }

    /// Adds a point for each cluster that `Cues` names.
    fn cues(&mut self, body: &[u8]) {
        let start = self.segment_start();
        for cue in elements(body).filter_map(named(name::CUE_POINT)) {
            let time = elements(cue).find_map(named(name::CUE_TIME)).map(unsigned);
            let positions = elements(cue).find_map(named(name::CUE_TRACK_POSITIONS));
            let cluster = positions
                .and_then(|body| elements(body).find_map(named(name::CUE_CLUSTER_POSITION)));
            if let (Some(ticks), Some(cluster)) = (time, cluster.map(unsigned))
                && let Some(offset) = start.checked_add(cluster)
            {
                self.found.add_point(offset, self.to_ms(ticks));
            }
        }
    }

    fn segment_start(&self) -> u64 {
        self.segment.as_ref().map_or(0, |segment| segment.start)
    }

    fn to_ms(&self, ticks: u64) -> u64 {
        scale(ticks, self.tick_ns, 1_000_000)
    }
}

/// The header of an element.
#[derive(Debug)]
struct Header {
    name: u32,
    /// Bytes of the header.
    len: u64,
    /// Bytes of the contents, at most the room in the parent. An unknown size counts as all of the
    /// room: only the outermost elements may have an unknown size.
    size: u64,
}

impl Header {
    /// Parses the header of an element. Its parent has `room` bytes left.
    fn parse(bytes: &[u8], room: u64) -> Option<Self> {
        let first = *bytes.first()?;
        let name_len = first.leading_zeros() as usize + 1;
        if name_len > 4 {
            return None;
        }
        let name = u32::try_from(unsigned(bytes.get(..name_len)?)).ok()?;
        let bytes = &bytes[name_len..];
        let size_len = bytes.first()?.leading_zeros() as usize + 1;
        if size_len > 8 {
            return None;
        }
        let unknown = (1 << (7 * size_len)) - 1;
        let size = unsigned(bytes.get(..size_len)?) & unknown;
        let len = (name_len + size_len) as u64;
        let room = room.checked_sub(len)?;
        let size = if size == unknown { room } else { size.min(room) };
        Some(Self { name, len, size })
    }
}

/// The elements within a body: their names and their contents. The iterator ends at the first
/// malformed element.
fn elements(mut body: &[u8]) -> impl Iterator<Item = (u32, &[u8])> {
    core::iter::from_fn(move || {
        let header = Header::parse(body, body.len() as u64)?;
        let start = usize::try_from(header.len).ok()?;
        let (this, rest) = body.split_at(start + usize::try_from(header.size).ok()?);
        body = rest;
        Some((header.name, &this[start..]))
    })
}

/// Takes the contents of elements of this name, for `find_map` and `filter_map`.
fn named<'a>(name: u32) -> impl FnMut((u32, &'a [u8])) -> Option<&'a [u8]> {
    move |(found, body)| (found == name).then_some(body)
}

/// An unsigned number. If it has more than 8 bytes, the last 8 count.
fn unsigned(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |value, &byte| value << 8 | u64::from(byte))
}

/// A floating-point number, without its fraction.
fn float(bytes: &[u8]) -> Option<u64> {
    let value = match bytes.len() {
        4 => f32::from_be_bytes(*bytes.first_chunk()?).into(),
        8 => f64::from_be_bytes(*bytes.first_chunk()?),
        _ => return None,
    };
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a cast of a float ends at the bounds of the integer, and NaN becomes 0"
    )]
    Some(value as u64)
}

#[cfg(test)]
mod tests;
