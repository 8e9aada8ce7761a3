//! The layout of a media file, and the points of which it consists.

use alloc::vec::Vec;
use core::ops::Range;

/// The maximum number of points that a layout keeps. Of a longer table the layout keeps every second point, every
/// fourth, and so on: for a film of two hours one point in 14 to 28 seconds.
pub const POINTS_MAX: usize = 512;
/// The maximum memory of a layout, bytes.
pub const MEMORY_MAX: usize = size_of::<Layout>()
    + (POINTS_MAX + 1) * size_of::<Point>()
    + INDEX_MAX * size_of::<Range<u64>>();
/// The maximum number of index ranges: `moov`, or `sidx` for each track, or `SeekHead`, `Info` and
/// `Cues`.
const INDEX_MAX: usize = 8;

/// The layout of a file, as its container describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    size: u64,
    index: Vec<Range<u64>>,
    /// Bytes over time, in ascending order of offsets; time never goes back. Between two points bytes and time grow
    /// linearly. In front of the first point and after the last there is no media. Either empty, or at least two
    /// points with different times.
    points: Vec<Point>,
}

/// The start of a chunk, a fragment or a cluster; the last one is the end of the media.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Point {
    pub(crate) offset: u64,
    pub(crate) ms: u64,
}

/// Collects the findings of a parser into a layout.
#[derive(Clone, Debug)]
pub(crate) struct Builder {
    size: u64,
    index: Vec<Range<u64>>,
    points: Vec<Point>,
    /// One of `stride` points is kept.
    stride: u64,
    /// Points seen since the last one that was kept.
    skipped: u64,
    duration_ms: Option<u64>,
    /// The end of the media, if a table of all fragments has it.
    end: Option<Point>,
    /// The first byte of media, as far as it is known without points.
    media_start: Option<u64>,
}

impl Layout {
    /// The ranges of the file without which a player cannot seek, or cannot play at all, in the order
    /// of the file. They lie within the file and are not empty; at most 8.
    #[must_use]
    pub fn index(&self) -> &[Range<u64>] {
        &self.index
    }

    /// The mean rate of the media, at least 1; `None` if the container does not have it.
    #[must_use]
    pub fn bytes_per_second(&self) -> Option<u64> {
        let (first, last) = (self.points.first()?, self.points.last()?);
        Some(scale(last.offset - first.offset, 1000, last.ms - first.ms).max(1))
    }

    /// The number of bytes from `offset` that a player uses in `ms`, at the rate of the media there. Bytes in front
    /// of the media take no time, so they count in full. Bytes after the media count only if `offset` is among
    /// them. The window ends at the end of the file. `None` if the container does not have the rate.
    #[must_use]
    pub fn window(&self, offset: u64, ms: u64) -> Option<u64> {
        let media_end = self.points.last()?.offset;
        if offset >= media_end {
            return Some(self.size.saturating_sub(offset));
        }
        let until = self.time_at(offset).checked_add(ms);
        let end = until.and_then(|until| self.offset_at(until)).unwrap_or(media_end);
        // The offset may lie between two milliseconds.
        Some(end.max(offset) - offset)
    }

    /// The time at which a player needs the byte at `offset`.
    fn time_at(&self, offset: u64) -> u64 {
        let next = self.points.partition_point(|point| point.offset <= offset);
        let Some(before) = next.checked_sub(1).map(|before| self.points[before]) else {
            return self.points[0].ms;
        };
        let Some(after) = self.points.get(next) else { return before.ms };
        let (bytes, ms) = (after.offset - before.offset, after.ms - before.ms);
        before.ms + scale(offset - before.offset, ms, bytes)
    }

    /// The first byte that a player does not need before `ms`; `None` if the player needs all bytes. `ms` is not
    /// before the first point.
    fn offset_at(&self, ms: u64) -> Option<u64> {
        let next = self.points.partition_point(|point| point.ms <= ms);
        let (before, after) = (self.points[next - 1], self.points.get(next)?);
        let (bytes, time) = (after.offset - before.offset, after.ms - before.ms);
        Some(before.offset + scale(ms - before.ms, bytes, time))
    }

    /// The invariants; for tests.
    #[cfg(any(test, fuzzing))]
    #[expect(clippy::missing_panics_doc, reason = "not in the library that others use")]
    pub fn check(&self) {
        assert!(self.index.len() <= INDEX_MAX && self.points.len() <= POINTS_MAX + 1);
        assert!(self.index.iter().all(|range| range.start < range.end && range.end <= self.size));
        assert!(self.index.windows(2).all(|pair| pair[0].end <= pair[1].start));
        let ordered = |a: &Point, b: &Point| a.offset < b.offset && a.ms <= b.ms;
        assert!(self.points.windows(2).all(|pair| ordered(&pair[0], &pair[1])));
        if let Some(last) = self.points.last() {
            assert!(last.offset <= self.size && last.ms > self.points[0].ms);
        }
    }
}

impl Builder {
    pub(crate) const fn new(size: u64) -> Self {
        Self {
            size,
            index: Vec::new(),
            points: Vec::new(),
            stride: 1,
            skipped: 0,
            duration_ms: None,
            end: None,
            media_start: None,
        }
    }

    /// Adds a range of the index. The part beyond the file is cut off. A range that is empty, overlaps another, or
    /// exceeds the limit is dropped.
    pub(crate) fn add_index(&mut self, range: Range<u64>) {
        let range = range.start..range.end.min(self.size);
        let place = self.index.partition_point(|other| other.start < range.start);
        let is_free = place.checked_sub(1).is_none_or(|at| self.index[at].end <= range.start)
            && self.index.get(place).is_none_or(|next| range.end <= next.start);
        if range.start < range.end && is_free && self.index.len() < INDEX_MAX {
            self.index.insert(place, range);
        }
    }

    /// True if the position of an index is known.
    pub(crate) const fn has_index(&self) -> bool {
        !self.index.is_empty()
    }

    /// Adds the start of a chunk and its time. A point that goes back, or lies beyond the file, is dropped.
    pub(crate) fn add_point(&mut self, offset: u64, ms: u64) {
        let goes_on = |last: &Point| last.offset < offset && last.ms <= ms;
        if offset >= self.size || !self.points.last().is_none_or(goes_on) {
            return;
        }
        self.skipped += 1;
        if self.skipped < self.stride && !self.points.is_empty() {
            return;
        }
        self.skipped = 0;
        if self.points.len() == POINTS_MAX {
            let mut at = 0;
            self.points.retain(|_| {
                at += 1;
                at % 2 == 1
            });
            self.stride *= 2;
        }
        self.points.push(Point { offset, ms });
    }

    pub(crate) const fn has_points(&self) -> bool {
        !self.points.is_empty()
    }

    /// Sets the duration of the whole film; only the first call counts.
    pub(crate) const fn set_duration(&mut self, ms: u64) {
        if self.duration_ms.is_none() && ms > 0 {
            self.duration_ms = Some(ms);
        }
    }

    /// Sets the end of the last chunk.
    pub(crate) const fn set_end(&mut self, offset: u64, ms: u64) {
        self.end = Some(Point { offset, ms });
    }

    /// Sets the first byte of media; only the first call counts.
    pub(crate) const fn set_media_start(&mut self, offset: u64) {
        if self.media_start.is_none() {
            self.media_start = Some(offset);
        }
    }

    pub(crate) const fn has_media_start(&self) -> bool {
        self.media_start.is_some()
    }

    pub(crate) fn build(mut self) -> Layout {
        if self.points.is_empty()
            && let Some(start) = self.media_start
            && self.duration_ms.is_some()
        {
            self.add_point(start, 0);
        }
        if let Some(end) = self.end() {
            self.points.push(end);
        } else {
            self.points.clear();
        }
        let Self { size, mut index, mut points, .. } = self;
        index.shrink_to_fit();
        points.shrink_to_fit();
        Layout { size, index, points }
    }

    /// The end of the media. If the container does not have its time, the media goes on at the mean rate of the
    /// points.
    fn end(&self) -> Option<Point> {
        let (first, last) = (self.points.first()?, self.points.last()?);
        let is_behind = |end: &Point| end.offset > last.offset && end.ms > last.ms;
        if let Some(end) = self.end.filter(is_behind).filter(|end| end.offset <= self.size) {
            return Some(end);
        }
        let behind = self.index.iter().find(|range| range.start > last.offset);
        let offset = behind.map_or(self.size, |range| range.start);
        if let Some(ms) = self.duration_ms.filter(|&ms| ms > last.ms) {
            return Some(Point { offset, ms });
        }
        if last.ms == first.ms {
            return None;
        }
        let rest = scale(offset - last.offset, last.ms - first.ms, last.offset - first.offset);
        Some(Point { offset, ms: last.ms.checked_add(rest)? })
    }
}

/// `value * by / per`, or `u64::MAX` if the result is larger.
pub(crate) fn scale(value: u64, by: u64, per: u64) -> u64 {
    u64::try_from(u128::from(value) * u128::from(by) / u128::from(per)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn layout(size: u64, duration_ms: u64, points: &[(u64, u64)], index: &[Range<u64>]) -> Layout {
        let mut builder = Builder::new(size);
        index.iter().cloned().for_each(|range| builder.add_index(range));
        builder.set_duration(duration_ms);
        points.iter().for_each(|&(offset, ms)| builder.add_point(offset, ms));
        let layout = builder.build();
        layout.check();
        layout
    }

    #[test]
    fn windows_follow_the_rate_at_their_place() {
        // 1 kB/s for 10 s, then 9 kB/s for 10 s; index in front and after.
        let film =
            layout(102_000, 20_000, &[(1000, 0), (11_000, 10_000)], &[50..1000, 101_000..102_000]);
        assert_eq!(film.bytes_per_second(), Some(5000));
        for (offset, ms, expected) in [
            (1000, 2000, 2000),
            (11_005, 0, 0), // between two milliseconds
            (11_005, 1, 4),
            (9000, 3000, 2000 + 9000),
            (20_000, 1000, 9000),
            (0, 1, 1000 + 1), // bytes in front of the media take no time
            (999, 1, 1 + 1),
            (100_500, 2000, 500), // never beyond the media
            (101_000, 1, 1000),   // the rest of the index
            (102_000, 1, 0),
            (u64::MAX, 1, 0),
            (0, u64::MAX, 101_000),
        ] {
            assert_eq!(film.window(offset, ms), Some(expected), "{ms} ms at {offset}");
        }
    }

    #[test]
    fn the_end_comes_from_the_duration_or_from_the_points() {
        let known = layout(11_000, 20_000, &[(1000, 0), (6000, 5000)], &[]);
        assert_eq!(known.points.last(), Some(&Point { offset: 11_000, ms: 20_000 }));
        for useless in [0, 5000, 4000] {
            let guessed = layout(11_000, useless, &[(1000, 0), (6000, 5000)], &[]);
            assert_eq!(guessed.points.last(), Some(&Point { offset: 11_000, ms: 10_000 }));
        }
        let one = layout(11_000, 10_000, &[(1000, 0)], &[]);
        assert_eq!(one.bytes_per_second(), Some(1000));
        for nothing in [layout(11_000, 0, &[(1000, 0)], &[]), layout(11_000, 5, &[], &[5..6, 7..8])]
        {
            assert_eq!((nothing.window(0, 1), nothing.bytes_per_second()), (None, None));
        }
    }

    #[test]
    fn points_that_go_back_are_dropped_and_many_become_fewer() {
        let film = layout(
            1000,
            0,
            &[(100, 5), (90, 6), (200, 4), (300, 5), (300, 7), (1000, 9), (400, 8)],
            &[],
        );
        let kept = [(100, 5), (300, 5), (400, 8)].map(|(offset, ms)| Point { offset, ms });
        assert_eq!(film.points[..3], kept);
        let points: Vec<_> = (0..1_000_000).map(|at| (at, at)).collect();
        let film = layout(1_000_000, 2_000_000, &points, &[]);
        assert!(film.points.len() > POINTS_MAX / 4);
        let steps =
            film.points[..film.points.len() - 1].windows(2).map(|two| two[1].ms - two[0].ms);
        assert_eq!(steps.collect::<alloc::collections::BTreeSet<_>>().len(), 1, "evenly");
    }

    #[test]
    fn ranges_of_the_index_are_in_order_and_apart() {
        let film = layout(100, 0, &[], &[50..60, 10..20, 15..17, 55..70, 20..50, 90..200, 5..5]);
        assert_eq!(film.index(), [10..20, 20..50, 50..60, 90..100]);
    }

    proptest! {
        #[test]
        fn windows_grow_with_time_and_stay_within_the_file(
            size in 1..u64::MAX,
            duration in any::<u64>(),
            points in prop::collection::vec((any::<u64>(), any::<u64>()), 0..20),
            index in prop::collection::vec((any::<u64>(), any::<u64>()), 0..4),
            offset in any::<u64>(),
            (less, more) in (any::<u64>(), any::<u64>()),
        ) {
            let mut points = points;
            points.sort_unstable();
            let index: Vec<_> = index.into_iter().map(|(start, end)| start..end).collect();
            let layout = layout(size, duration, &points, &index);
            let (less, more) = (less.min(more), less.max(more));
            let Some(short) = layout.window(offset, less) else { return Ok(()) };
            let long = layout.window(offset, more).unwrap();
            prop_assert!(short <= long);
            prop_assert!(long <= size.saturating_sub(offset));
        }
    }
}
