//! The payloads of a stream: memory, pages of a file in a pipe, ranges of files.

use core::cell::RefCell;
use core::ops::Range;
use std::rc::Rc;

use outq::{Memory, Payload, Weight};
use ring::{Buffer, Pipe};

use crate::cyclic;
use crate::file::File;
use crate::shared::Shared;

/// A piece of memory or file in a stream.
#[derive(Debug)]
pub enum Piece {
    /// Bytes of the program itself.
    Static(&'static [u8]),
    /// Bytes that were made for this stream.
    Bytes(Vec<u8>),
    /// A range of bytes made for this stream, which have been cut.
    Part(Rc<Vec<u8>>, Range<usize>),
    /// A range of a buffer shared with other streams.
    Shared(Shared, Range<usize>),
    /// A range of a buffer that a read has filled.
    Disk(Rc<Buffer>, Range<usize>),
    /// Bytes in a cyclic buffer.
    Cyclic(cyclic::Part),
    /// Bytes in a pipe: pages of a file, or bytes received from another socket.
    Pipe(Pages),
    /// A resident range of a file, for `sendfile(2)`.
    File(FileRange),
}

/// Bytes in a pipe, some of which may have left.
///
/// A pipe returns its bytes in order, so the halves of a cut share the pipe and leave one after the
/// other.
#[derive(Debug)]
pub struct Pages {
    pub(crate) pipe: Rc<RefCell<Pipe>>,
    len: u64,
}

/// A range of a file. None of its bytes are in the memory of this program.
#[derive(Debug)]
pub struct FileRange {
    pub(crate) file: Rc<File>,
    /// Position of the first byte in the file.
    pub(crate) offset: u64,
    pub(crate) len: u64,
}

impl Piece {
    /// The bytes of a piece of memory.
    ///
    /// # Panics
    ///
    /// For pipes and ranges of files, which are in no memory of this program.
    #[must_use]
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Static(bytes) => bytes,
            Self::Bytes(bytes) => bytes,
            Self::Part(all, range) => &all[range.clone()],
            Self::Shared(all, range) => &all[range.clone()],
            Self::Disk(all, range) => &all[range.clone()],
            Self::Cyclic(part) => part,
            Self::Pipe(_) | Self::File(_) => unreachable!("not in this program's memory"),
        }
    }

    /// Returns whether the payload has [`bytes`](Self::bytes) in memory.
    #[must_use]
    pub const fn is_memory(&self) -> bool {
        !matches!(self, Self::Pipe(_) | Self::File(_))
    }

    /// Returns whether the payload is the result of a read.
    pub(crate) const fn is_read(&self) -> bool {
        matches!(self, Self::Disk(..) | Self::Pipe(_))
    }

    /// The result of a read into a buffer.
    pub(crate) fn disk(buffer: Buffer) -> Self {
        let len = buffer.len();
        Self::Disk(Rc::new(buffer), 0..len)
    }

    /// The bytes that are in a pipe.
    #[must_use]
    pub fn pipe(pipe: Pipe) -> Self {
        let len = pipe.len() as u64;
        Self::Pipe(Pages { pipe: Rc::new(RefCell::new(pipe)), len })
    }
}

impl Payload for Piece {
    fn len(&self) -> u64 {
        match self {
            Self::File(range) => range.len,
            Self::Pipe(pages) => pages.len,
            Self::Bytes(bytes) => bytes.len() as u64,
            memory => memory.bytes().len() as u64,
        }
    }

    /// A [`Disk`](crate::Disk) bounds the memory of its reads, and a [`CyclicPool`](crate::CyclicPool)
    /// the memory of its buffers, so they weigh nothing here. Each part of cut bytes weighs as much as
    /// the whole.
    fn weight(&self) -> Weight {
        let (own, shared) = match self {
            Self::Bytes(bytes) => (bytes.capacity(), 0),
            Self::Part(all, _) => (all.capacity(), 0),
            Self::Shared(all, _) => (0, all.len()),
            Self::Static(_) | Self::Disk(..) | Self::Cyclic(_) | Self::Pipe(_) | Self::File(_) => {
                (0, 0)
            }
        };
        Weight { own: own as u64 + PLACE_BYTES, shared: shared as u64 }
    }

    fn split_to(&mut self, n: u64) -> Self {
        if let Self::Bytes(bytes) = self {
            let bytes = core::mem::take(bytes);
            let all = 0..bytes.len();
            *self = Self::Part(Rc::new(bytes), all);
        }
        match self {
            Self::Static(bytes) => Self::Static(bytes.split_to(n)),
            Self::Bytes(_) => unreachable!("made a part of above"),
            Self::Part(all, range) => Self::Part(Rc::clone(all), split_range(range, n)),
            Self::Shared(all, range) => Self::Shared(all.clone(), split_range(range, n)),
            Self::Disk(all, range) => Self::Disk(Rc::clone(all), split_range(range, n)),
            Self::Cyclic(part) => Self::Cyclic(part.split_to(index(n))),
            Self::Pipe(pages) => {
                pages.len -= n;
                Self::Pipe(Pages { pipe: Rc::clone(&pages.pipe), len: n })
            }
            Self::File(range) => {
                let FileRange { file, offset, .. } = &*range;
                let front = FileRange { file: Rc::clone(file), offset: *offset, len: n };
                range.offset += n;
                range.len -= n;
                Self::File(front)
            }
        }
    }
}

/// For transports that send [only from memory](crate::Takes::Memory); the other pieces are not in the queue then.
impl Memory for Piece {
    /// # Panics
    ///
    /// As [`Piece::bytes`].
    fn bytes(&self) -> &[u8] {
        self.bytes()
    }
}

/// Cuts off the first `n` bytes and returns where they are.
fn split_range(range: &mut Range<usize>, n: u64) -> Range<usize> {
    let middle = range.start + index(n);
    core::mem::replace(range, middle..range.end).start..middle
}

/// The memory that a piece, or a promised range of a file, takes in addition to its bytes: its entry in a queue
/// that may have doubled just now, and the position.
pub(crate) const PLACE_BYTES: u64 = 2 * (size_of::<Piece>() + size_of::<u64>()) as u64;

pub(crate) fn index(value: u64) -> usize {
    usize::try_from(value).expect("a length of memory, or at most a turn")
}

#[cfg(test)]
mod tests {
    use ring::sim::{Config, World};
    use ring::{BufferPool, Device, FileKind, PipePool, Ring, Stat};

    use super::*;
    use crate::cyclic::CyclicPool;
    use crate::shared::Account;

    #[test]
    fn memory_is_cut_without_a_copy_and_each_part_weighs_the_whole() {
        let pool = BufferPool::new(4096, 1).unwrap();
        let mut buffer = pool.take(6).unwrap();
        buffer.fill_from(b"abcdef");
        let shared = Shared::new(b"_abcdef_".to_vec(), &Account::default());
        let mut cyclic = CyclicPool::new(4096, 0).take(4096).unwrap();
        cyclic.room()[..6].copy_from_slice(b"abcdef");
        cyclic.received(6);
        for mut piece in [
            Piece::Static(b"abcdef"),
            Piece::Bytes(b"abcdef".to_vec()),
            Piece::Shared(shared, 1..7),
            Piece::disk(buffer),
            Piece::Cyclic(cyclic.take(6)),
        ] {
            let weight = piece.weight();
            let first = piece.split_to(1);
            let second = piece.split_to(2);
            assert_eq!((first.bytes(), second.bytes()), (&b"a"[..], &b"bc"[..]));
            assert_eq!((piece.bytes(), piece.len()), (&b"def"[..], 3));
            for part in [&first, &second, &piece] {
                assert_eq!(part.weight(), weight);
            }
        }
        assert_eq!(pool.available(), 1, "the last part gives the buffer back");
        assert_eq!(cyclic.free(), 4096, "the last part frees the memory");
    }

    #[test]
    fn pipes_and_ranges_of_files_are_cut() {
        let world = World::new(Config::new(0));
        let ring = Ring::simulated(&world);
        let pipe = ring.take_pipe(&PipePool::new(1), 0, 6).unwrap();
        let mut pages = Piece::Pipe(Pages { pipe: Rc::new(RefCell::new(pipe)), len: 6 });
        assert_eq!((pages.split_to(2).len(), pages.len()), (2, 4));

        let stat = Stat {
            kind: FileKind::Regular,
            size: 100,
            mtime: 0,
            mtime_nanos: 0,
            ctime: 0,
            ctime_nanos: 0,
            dev: 0,
            device: Device::default(),
            ino: 0,
            links: 1,
            mode: 0o644,
            owner: 0,
            from_image: false,
            direct_align: 0,
            mount: 0,
        };
        let file = Rc::new(File::new(ring.sim_root(&world), &stat));
        let mut range = Piece::File(FileRange { file, offset: 10, len: 6 });
        let front = range.split_to(2);
        let place = |piece: &Piece| match piece {
            Piece::File(range) => (range.offset, range.len),
            _ => panic!("a range of a file"),
        };
        assert_eq!((place(&front), place(&range)), ((10, 2), (12, 4)));
    }
}
