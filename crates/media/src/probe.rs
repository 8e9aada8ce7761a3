//! The probe: asks for bytes of a file, hands them to the parser of its container, and bounds the
//! bytes and the parser's work.

use alloc::vec::Vec;
use core::ops::Range;

use crate::layout::{Builder, Layout};
use crate::limits::{BYTES_MAX, READ_BYTES};
use crate::matroska::Matroska;
use crate::mp4::Mp4;

/// The first bytes of a file, which identify the container.
const MAGIC_BYTES: u64 = 8;

/// Learns the layout of a file. Read the range that it [`wants`](Self::wants), pass the bytes to
/// [`handle_bytes`](Self::handle_bytes), and repeat until it wants nothing. Then take the
/// [layout](Self::into_layout).
///
/// A probe holds at most 1 MiB of the file at a time.
#[derive(Debug)]
pub struct Probe {
    size: u64,
    parser: Option<Parser>,
    /// The bytes of the file from `at` on, as far as the parser needs them.
    bytes: Vec<u8>,
    at: u64,
    /// Bytes read so far.
    taken: u64,
    is_over: bool,
}

/// The parser of a container.
#[derive(Debug)]
enum Parser {
    Mp4(Mp4),
    Matroska(Matroska),
}

impl Probe {
    /// Begins to probe a file of this size.
    #[must_use]
    pub const fn new(size: u64) -> Self {
        let is_over = size < MAGIC_BYTES;
        Self { size, parser: None, bytes: Vec::new(), at: 0, taken: 0, is_over }
    }

    /// The bytes of the file to read next; `None` at the end. The range is not empty and lies within
    /// the file. The caller may read the range in parts: each call of
    /// [`handle_bytes`](Self::handle_bytes) takes a first part.
    #[must_use]
    pub fn wants(&self) -> Option<Range<u64>> {
        if self.is_over {
            return None;
        }
        let start = self.at + self.bytes.len() as u64;
        let end = self.need()?.end.max(self.at + READ_BYTES.min(self.size - self.at));
        Some(start..end)
    }

    /// Takes the bytes at the start of the range that the probe [wants](Self::wants); further bytes
    /// are ignored. An empty slice means that no more bytes can be read, as if the file ended there.
    pub fn handle_bytes(&mut self, bytes: &[u8]) {
        let Some(wanted) = self.wants() else { return };
        let wanted = usize::try_from(wanted.end - wanted.start).unwrap_or(usize::MAX);
        let bytes = &bytes[..bytes.len().min(wanted)];
        self.taken += bytes.len() as u64;
        if bytes.is_empty() || self.taken > BYTES_MAX {
            self.end();
            return;
        }
        self.bytes.extend_from_slice(bytes);
        while let Some(needed) = self.need() {
            let Some(slice) = held(&self.bytes, self.at, &needed) else {
                return self.keep_from(needed.start);
            };
            match &mut self.parser {
                None => self.parser = Parser::of(slice, self.size),
                Some(Parser::Mp4(mp4)) => mp4.handle(slice),
                Some(Parser::Matroska(matroska)) => matroska.handle(slice),
            }
            if self.parser.is_none() {
                break;
            }
        }
        self.end();
    }

    /// The layout; `None` if the container is unknown.
    #[must_use]
    pub fn into_layout(self) -> Option<Layout> {
        let builder: Builder = match self.parser? {
            Parser::Mp4(mp4) => mp4.into_builder(),
            Parser::Matroska(matroska) => matroska.into_builder(),
        };
        Some(builder.build())
    }

    /// The bytes that the parser needs next.
    fn need(&self) -> Option<Range<u64>> {
        match &self.parser {
            None => Some(0..MAGIC_BYTES),
            Some(Parser::Mp4(mp4)) => mp4.need(),
            Some(Parser::Matroska(matroska)) => matroska.need(),
        }
    }

    /// Drops the bytes in front of `start`. If the probe does not hold the byte at `start`, the next
    /// read begins there.
    fn keep_from(&mut self, start: u64) {
        let held = self.at..=self.at + self.bytes.len() as u64;
        if held.contains(&start) {
            let gone = usize::try_from(start - self.at).unwrap_or(usize::MAX);
            self.bytes.drain(..gone.min(self.bytes.len()));
        } else {
            self.bytes.clear();
        }
        self.at = start;
    }

    fn end(&mut self) {
        self.is_over = true;
        self.bytes = Vec::new();
    }
}

impl Parser {
    fn of(magic: &[u8], size: u64) -> Option<Self> {
        if Matroska::begins_with(magic) {
            Some(Self::Matroska(Matroska::new(size)))
        } else if Mp4::begins_with(magic) {
            Some(Self::Mp4(Mp4::new(size)))
        } else {
            None
        }
    }
}

/// The bytes of a range, if all of them are among those that begin at `at`.
fn held<'a>(bytes: &'a [u8], at: u64, range: &Range<u64>) -> Option<&'a [u8]> {
    let start = usize::try_from(range.start.checked_sub(at)?).ok()?;
    let end = usize::try_from(range.end - at).ok()?;
    bytes.get(start..end)
}
