//! The partitions of a cyclic buffer: the bytes in use, and the range that is filled next.

use std::collections::VecDeque;

/// An exclusive part of a memory or file.
pub(super) trait Extent: Sized {
    /// Position of the first byte in the whole.
    fn start(&self) -> u64;

    /// The number of bytes, which may be 0.
    fn bytes(&self) -> u64;

    /// Puts `next` after the last byte; returns it if it begins elsewhere.
    fn join(&mut self, next: Self) -> Result<(), Self>;
}

/// The partitions in use, in the order in which they were filled, and the memory that follows them.
///
/// ```text
///   0       free       |   in use   | released | in use  |      room      |  free   size
///   +------------------+------------+----------+---------+----------------+---------+
///                       partitions, each filled at its position            extend()
/// ```
///
/// The memory wraps round; the drawing shows one of the cases. Memory in use belongs to the users of
/// its partition, and the room to the owner of the buffer. The table holds the rest: free memory,
/// and partitions that were released while an earlier one is in use.
#[derive(Debug)]
pub(super) struct Table<E> {
    size: u64,
    /// The bytes that have been filled since the buffer began: the position of the next partition.
    filled: u64,
    /// The partitions whose memory is not free, in order. The first is in use.
    partitions: VecDeque<Partition<E>>,
    /// Free memory after the room, in the order in which it will be filled.
    free: VecDeque<E>,
}

#[derive(Debug)]
struct Partition<E> {
    /// The number of bytes that were filled before it. It names the partition, and is its version: when
    /// the same memory is filled again, it has another position.
    at: u64,
    /// `Some` once it has been released.
    released: Option<E>,
}

impl<E: Extent> Table<E> {
    /// The table of a buffer of which all is room.
    pub(super) const fn new(size: u64) -> Self {
        Self { size, filled: 0, partitions: VecDeque::new(), free: VecDeque::new() }
    }

    pub(super) const fn size(&self) -> u64 {
        self.size
    }

    /// The bytes of memory that are not in use: the room, and the free bytes after it.
    pub(super) fn free(&self) -> u64 {
        self.size - self.partitions.front().map_or(0, |first| self.filled - first.at)
    }

    /// Notes that the first `n` bytes of the room are in use from now on; returns the position of the
    /// partition.
    pub(super) fn fill(&mut self, n: u64) -> u64 {
        let at = self.filled;
        self.partitions.push_back(Partition { at, released: None });
        self.filled += n;
        at
    }

    /// Takes back the memory of the partition at a position.
    pub(super) fn release(&mut self, at: u64, extent: E) {
        let place = self.partitions.binary_search_by_key(&at, |partition| partition.at);
        let partition = place.ok().and_then(|place| self.partitions.get_mut(place));
        let partition = partition.expect("a partition in use is in the table");
        assert!(partition.released.is_none(), "cyclic: {at} was released before");
        partition.released = Some(extent);
        while self.partitions.front().is_some_and(|first| first.released.is_some()) {
            let extent = self.partitions.pop_front().and_then(|first| first.released);
            self.append(extent.expect("just looked at"));
        }
    }

    fn append(&mut self, extent: E) {
        let extent = match self.free.back_mut() {
            Some(last) => last.join(extent).err(),
            None => Some(extent),
        };
        self.free.extend(extent);
    }

    /// Adds to the room what follows it without a break. If nothing is in use, the room is the whole
    /// memory: a buffer that is released soon is filled again and again at its beginning, which is in
    /// the processor's caches.
    #[must_use]
    pub(super) fn extend(&mut self, mut room: E) -> E {
        if room.bytes() == self.size {
            return room;
        }
        if self.partitions.is_empty() {
            self.put_back(room);
            return self.take_whole();
        }
        let Some(next) = self.free.pop_front() else { return room };
        if room.bytes() == 0 {
            return next;
        }
        if let Err(next) = room.join(next) {
            // The room reaches to the end of the memory.
            self.free.push_front(next);
        }
        room
    }

    /// Takes free memory that does not follow the room; `None` if there are not more than `n` bytes of it.
    pub(super) fn next_free(&mut self, n: u64) -> Option<E> {
        self.free.front().filter(|next| next.bytes() > n)?;
        self.free.pop_front()
    }

    /// Takes the room of a buffer that is filled no more.
    pub(super) fn put_back(&mut self, room: E) {
        self.free.push_front(room);
    }

    /// Takes all memory out, when nothing uses it and no room is left.
    pub(super) fn take_whole(&mut self) -> E {
        assert!(self.partitions.is_empty(), "cyclic: memory is in use");
        let mut parts: Vec<E> = self.free.drain(..).filter(|extent| extent.bytes() > 0).collect();
        parts.sort_unstable_by_key(Extent::start);
        let join = |mut whole: E, next: E| {
            assert!(whole.join(next).is_ok(), "cyclic: memory is missing");
            whole
        };
        let whole = parts.into_iter().reduce(join).expect("a buffer has memory");
        assert!(whole.bytes() == self.size, "cyclic: memory is missing");
        whole
    }

    /// Panics unless every byte is in exactly one state: in use, released, free, or in the room.
    pub(super) fn check(&self, room: &E) {
        let first = self.partitions.front();
        assert!(first.is_none_or(|first| first.released.is_none()), "released and not free");
        let ends = self.partitions.iter().skip(1).map(|partition| partition.at);
        for (partition, end) in self.partitions.iter().zip(ends.chain([self.filled])) {
            assert!(partition.at < end, "partition {} ends at {end}", partition.at);
            let bytes = partition.released.as_ref().map_or(end - partition.at, Extent::bytes);
            assert_eq!(bytes, end - partition.at);
        }
        let released = self.partitions.iter().filter_map(|partition| partition.released.as_ref());
        let ours = self.free.iter().chain([room]).chain(released);
        let mut places: Vec<_> =
            ours.map(|extent| extent.start()..extent.start() + extent.bytes()).collect();
        places.sort_unstable_by_key(|place| (place.start, place.end));
        assert!(places.is_sorted_by(|a, b| a.end <= b.start), "a byte in two places: {places:?}");
        let free = self.free.iter().chain([room]).map(Extent::bytes).sum::<u64>();
        assert_eq!(free, self.free());
    }
}
