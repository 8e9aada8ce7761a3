//! The tables of an MP4: `moov`, `sidx`, `mfra`.

use alloc::vec::Vec;

use super::{be32, be64, boxes, child, to_ms, version};
use crate::layout::Builder;

/// The maximum number of tracks that are parsed. A film has one track of pictures, and one of sound or
/// subtitles for each language.
const TRACKS_MAX: usize = 32;

/// A track, as far as `mfra` needs it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Track {
    id: u32,
    /// Ticks of its clock in a second.
    per_second: u32,
    is_video: bool,
}

/// Reads the body of `moov`: the duration, and the chunks of a track, of pictures if there is one.
/// Returns the tracks.
pub(super) fn moov(body: &[u8], found: &mut Builder) -> Vec<Track> {
    duration(body, found);
    // A fragmented film has its duration here or nowhere.
    if let Some(mehd) = child(body, b"mvex").and_then(|mvex| child(mvex, b"mehd"))
        && let Some(mvhd) = child(body, b"mvhd")
        && let Some(per_second) = be32(mvhd, if version(mvhd) == 1 { 20 } else { 12 })
        && let Some(ticks) = number(mehd, 4, version(mehd) == 1)
        && let Some(ms) = to_ms(ticks, per_second)
    {
        found.set_duration(ms);
    }
    let mut tracks = Vec::new();
    let mut media = Vec::new();
    for (_, trak) in boxes(body).filter(|(kind, _)| *kind == b"trak").take(TRACKS_MAX) {
        if let Some((track, tables)) = track(trak) {
            tracks.push(track);
            media.push((track, tables));
        }
    }
    media.sort_by_key(|(track, _)| !track.is_video);
    for (track, tables) in media {
        if chunks(tables, track.per_second, found).is_some() && found.has_points() {
            break;
        }
    }
    tracks
}

/// Reads the duration in the body of `moov`.
pub(super) fn duration(body: &[u8], found: &mut Builder) {
    if let Some(ms) = child(body, b"mvhd").and_then(header_duration) {
        found.set_duration(ms);
    }
}

/// The duration in `mvhd`. All bits set mean that the duration is unknown.
fn header_duration(mvhd: &[u8]) -> Option<u64> {
    let (per_second, ticks) = if version(mvhd) == 1 {
        (be32(mvhd, 20)?, be64(mvhd, 24).filter(|&ticks| ticks != u64::MAX)?)
    } else {
        (be32(mvhd, 12)?, be32(mvhd, 16).filter(|&ticks| ticks != u32::MAX)?.into())
    };
    to_ms(ticks, per_second)
}

/// A track and the body of its `stbl`.
fn track(trak: &[u8]) -> Option<(Track, &[u8])> {
    let tkhd = child(trak, b"tkhd")?;
    let id = be32(tkhd, if version(tkhd) == 1 { 20 } else { 12 })?;
    let mdia = child(trak, b"mdia")?;
    let mdhd = child(mdia, b"mdhd")?;
    let per_second = be32(mdhd, if version(mdhd) == 1 { 20 } else { 12 })?;
    let is_video = child(mdia, b"hdlr")?.get(8..12)? == b"vide";
    let tables = child(child(mdia, b"minf")?, b"stbl")?;
    Some((Track { id, per_second, is_video }, tables))
}

/// Adds a point for each chunk. The time of a chunk is that of its first sample.
fn chunks(stbl: &[u8], per_second: u32, found: &mut Builder) -> Option<()> {
    let (offsets, is_wide) = match child(stbl, b"stco") {
        Some(stco) => (stco, false),
        None => (child(stbl, b"co64")?, true),
    };
    let width = if is_wide { 8 } else { 4 };
    let mut runs = Runs::of(child(stbl, b"stsc")?)?;
    let mut clock = Clock::of(child(stbl, b"stts")?)?;
    let (mut sample, count) = (0_u64, be32(offsets, 4)?);
    let entries = offsets.get(8..)?.chunks_exact(width);
    for (number, entry) in (1..=count).zip(entries) {
        let offset = number_at(entry, is_wide)?;
        let Some(ms) = to_ms(clock.at(sample)?, per_second) else { break };
        found.add_point(offset, ms);
        sample += u64::from(runs.samples_of(number));
    }
    Some(())
}

/// The entries of `stsc`: a first chunk, and the number of samples in each chunk from there on.
#[derive(Debug)]
struct Runs<'a> {
    rest: &'a [u8],
    samples: u32,
}

impl<'a> Runs<'a> {
    fn of(stsc: &'a [u8]) -> Option<Self> {
        Some(Self { rest: stsc.get(8..)?, samples: 0 })
    }

    /// The number of samples in a chunk. Callers pass chunks in order, from 1.
    fn samples_of(&mut self, chunk: u32) -> u32 {
        while let (Some(first), Some(samples)) = (be32(self.rest, 0), be32(self.rest, 4)) {
            if first > chunk {
                break;
            }
            self.samples = samples;
            self.rest = self.rest.get(12..).unwrap_or_default();
        }
        self.samples
    }
}

/// The entries of `stts`: a number of samples, and the ticks of each sample.
#[derive(Debug)]
struct Clock<'a> {
    rest: &'a [u8],
    /// The first sample of the entry at the start of `rest`, and its time.
    sample: u64,
    ticks: u64,
}

impl<'a> Clock<'a> {
    fn of(stts: &'a [u8]) -> Option<Self> {
        Some(Self { rest: stts.get(8..)?, sample: 0, ticks: 0 })
    }

    /// The time at which a sample begins; `None` on overflow. Callers pass samples in ascending
    /// order. After the last entry the clock stands still.
    fn at(&mut self, sample: u64) -> Option<u64> {
        while let (Some(count), Some(delta)) = (be32(self.rest, 0), be32(self.rest, 4)) {
            let within = (sample - self.sample).checked_mul(delta.into());
            if sample - self.sample < u64::from(count) {
                return self.ticks.checked_add(within?);
            }
            self.ticks = self.ticks.checked_add(u64::from(count) * u64::from(delta))?;
            self.sample += u64::from(count);
            self.rest = self.rest.get(8..).unwrap_or_default();
        }
        Some(self.ticks)
    }
}

/// Reads the body of a `sidx` that ends at `end`: the sizes and durations of segments after it.
pub(super) fn sidx(body: &[u8], end: u64, found: &mut Builder) {
    // Films with several tracks have a `sidx` for each, of the same segments.
    if !found.has_points() {
        let _ = segments(body, end, found);
    }
}

fn segments(body: &[u8], end: u64, found: &mut Builder) -> Option<()> {
    let is_wide = version(body) == 1;
    let per_second = be32(body, 8)?;
    let (begins_at, width) = if is_wide { (12, 8) } else { (12, 4) };
    let mut ticks = number(body, begins_at, is_wide)?;
    let mut offset = end.checked_add(number(body, begins_at + width, is_wide)?)?;
    let counted_at = begins_at + 2 * width;
    let count = usize::try_from(be32(body, counted_at)? & 0xffff).ok()?;
    for entry in body.get(counted_at + 4..)?.chunks_exact(12).take(count) {
        found.add_point(offset, to_ms(ticks, per_second)?);
        // The first bit distinguishes media from a further `sidx` with its media after it.
        offset = offset.checked_add(u64::from(be32(entry, 0)? & 0x7fff_ffff))?;
        ticks = ticks.checked_add(be32(entry, 4)?.into())?;
    }
    found.set_end(offset, to_ms(ticks, per_second)?);
    Some(())
}

/// Reads the body of `mfra`: the fragments of a track, of pictures if there is one.
pub(super) fn mfra(body: &[u8], tracks: &[Track], found: &mut Builder) {
    let track = |tfra| be32(tfra, 4).and_then(|id| tracks.iter().find(|track| track.id == id));
    let tables = || boxes(body).filter(|(kind, _)| *kind == b"tfra").take(TRACKS_MAX);
    let mut known: Vec<_> = tables().filter_map(|(_, tfra)| Some((track(tfra)?, tfra))).collect();
    known.sort_by_key(|(track, _)| !track.is_video);
    for (track, tfra) in known {
        if fragments(tfra, track.per_second, found).is_some() && found.has_points() {
            return;
        }
    }
}

fn fragments(tfra: &[u8], per_second: u32, found: &mut Builder) -> Option<()> {
    let is_wide = version(tfra) == 1;
    let width = if is_wide { 8 } else { 4 };
    // The widths of three further numbers of an entry, 1 to 4 bytes, in two bits each.
    let widths = be32(tfra, 8)?;
    let others: u32 = [4, 2, 0].map(|shift| (widths >> shift & 3) + 1).iter().sum();
    let len = 2 * width + usize::try_from(others).ok()?;
    let count = usize::try_from(be32(tfra, 12)?).ok()?;
    for entry in tfra.get(16..)?.chunks_exact(len).take(count) {
        let ticks = number_at(entry, is_wide)?;
        found.add_point(number(entry, width, is_wide)?, to_ms(ticks, per_second)?);
    }
    Some(())
}

/// The 64-bit or 32-bit number at offset `at`.
fn number(bytes: &[u8], at: usize, is_wide: bool) -> Option<u64> {
    if is_wide { be64(bytes, at) } else { be32(bytes, at).map(u64::from) }
}

fn number_at(bytes: &[u8], is_wide: bool) -> Option<u64> {
    number(bytes, 0, is_wide)
}
