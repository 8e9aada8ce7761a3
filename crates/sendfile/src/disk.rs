//! What one worker reads from disks: buffers, queue depth, and the line of those who wait.

use core::cell::Cell;
use std::collections::{HashMap, HashSet, VecDeque};
use std::io;
use std::rc::Rc;

use ring::{Buffer, BufferPool, Completion, Event, Op, Pipe, PipePool, Ring, Time, Token};

use crate::file::{BLOCK, Caching, File};

/// The size of a [`Disk`].
#[derive(Clone, Copy, Debug)]
pub struct DiskConfig {
    /// Bytes of all buffers together; rounded down to whole ones of 256 KiB, at least 4.
    pub memory_bytes: usize,
    /// Pipes, which hold pages of the page cache on their way out, at most 1 MiB each; 0 means that
    /// everything is read into buffers.
    pub pipes: usize,
    /// Reads in flight at once.
    pub depth: usize,
    /// What becomes of the page cache.
    pub caching: Caching,
    /// The tokens of the disk's own operations are `token_base` plus a number below 2³².
    pub token_base: Token,
}

impl Default for DiskConfig {
    /// 16 MiB, 64 pipes and 64 reads: enough for 64 streams that each keep one read in flight.
    fn default() -> Self {
        Self { memory_bytes: 16 << 20, pipes: 64, depth: 64, caching: Caching::Auto, token_base: 0 }
    }
}

/// The disks as one worker uses them: a pool of buffers, reads in flight, and a line of streams.
#[derive(Debug)]
pub struct Disk {
    pool: BufferPool,
    pipes: PipePool,
    config: DiskConfig,
    reads: HashMap<u32, Read>,
    next_read: u32,
    waiting: VecDeque<u64>,
    /// Those in `waiting`: nobody stands in line twice.
    in_line: HashSet<u64>,
    /// By file system: whether `RWF_DONTCACHE` works there.
    can_drop: HashMap<u64, Rc<Cell<bool>>>,
}

/// A read in flight.
#[derive(Debug)]
struct Read {
    owner: u64,
    at: u64,
    file: Rc<File>,
    offset: u64,
    len: u64,
    keep: bool,
    began: Time,
}

/// A read that has ended, for [`Stream::handle_read`](crate::Stream::handle_read) of its owner.
#[derive(Debug)]
pub struct ReadDone {
    /// The stream that asked, by the name it gave itself.
    pub owner: u64,
    pub(crate) at: u64,
    pub(crate) file: Rc<File>,
    pub(crate) offset: u64,
    /// Bytes asked for.
    pub(crate) len: u64,
    pub(crate) result: io::Result<Data>,
    pub(crate) began: Time,
}

/// What a read has brought.
#[derive(Debug)]
pub(crate) enum Data {
    /// Copies.
    Buffer(Buffer),
    /// Pages of the page cache.
    Pipe(Pipe),
}

impl Data {
    pub(crate) fn len(&self) -> u64 {
        match self {
            Self::Buffer(buf) => buf.len() as u64,
            Self::Pipe(pipe) => pipe.len() as u64,
        }
    }
}

impl Disk {
    /// Map the buffers.
    ///
    /// # Errors
    ///
    /// Those of `mmap(2)`.
    pub fn new(config: DiskConfig) -> io::Result<Self> {
        let block = usize::try_from(BLOCK).expect("a small constant");
        Ok(Self {
            pool: BufferPool::new(block, (config.memory_bytes / block).max(4))?,
            pipes: PipePool::new(config.pipes),
            config,
            reads: HashMap::new(),
            next_read: 0,
            waiting: VecDeque::new(),
            in_line: HashSet::new(),
            can_drop: HashMap::new(),
        })
    }

    /// Reads in flight.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.reads.len()
    }

    /// Whether a read could begin now.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.reads.len() < self.config.depth
            && self.pool.available() > 0
            && (self.config.pipes == 0 || self.pipes.has_room())
    }

    /// Whether streams wait for a buffer that no read in flight will free: time to
    /// [`reclaim`](crate::Stream::reclaim).
    #[must_use]
    pub fn is_starved(&self) -> bool {
        !self.waiting.is_empty() && !self.has_room()
    }

    /// The next stream in line, if there is room for a read of it. Pump it; if it wants more it
    /// goes to the end of the line.
    pub fn next_waiting(&mut self) -> Option<u64> {
        if !self.has_room() {
            return None;
        }
        let owner = self.waiting.pop_front()?;
        self.in_line.remove(&owner);
        Some(owner)
    }

    pub(crate) fn wait_in_line(&mut self, owner: u64) {
        if self.in_line.insert(owner) {
            self.waiting.push_back(owner);
        }
    }

    /// Begin a read of at most `len` bytes; how many were asked for, or `None` when there is no
    /// room. What stays in the page cache goes through a pipe, else through a buffer.
    pub(crate) fn read(
        &mut self,
        ring: &mut Ring,
        owner: u64,
        at: u64,
        file: &Rc<File>,
        offset: u64,
        len: u64,
    ) -> Option<u64> {
        if !self.has_room() {
            return None;
        }
        let keep = file.keeps(self.config.caching);
        let wanted = usize::try_from(len).unwrap_or(usize::MAX);
        if let Some(pipe) = keep.then(|| self.pipes.take(offset, wanted)).flatten() {
            let len = pipe.want() as u64;
            let op = Op::Splice { file: file.fd().clone(), offset, pipe };
            let read =
                Read { owner, at, file: Rc::clone(file), offset, len, keep, began: ring.now() };
            self.submit(ring, op, read);
            return Some(len);
        }
        let len = len.min(BLOCK - offset % BLOCK);
        let buf = self.pool.take(usize::try_from(len).expect("at most a block"))?;
        let can_drop = self.can_drop.entry(file.dev()).or_insert_with(|| Rc::new(Cell::new(true)));
        let caching =
            if keep || !can_drop.get() { ring::Caching::Keep } else { ring::Caching::Drop };
        let op = Op::Read { file: file.fd().clone(), offset, buf, caching };
        let read = Read { owner, at, file: Rc::clone(file), offset, len, keep, began: ring.now() };
        self.submit(ring, op, read);
        Some(len)
    }

    fn submit(&mut self, ring: &mut Ring, op: Op, read: Read) {
        let id = self.next_read;
        self.next_read = self.next_read.wrapping_add(1);
        ring.submit(op, self.config.token_base + Token::from(id));
        let before = self.reads.insert(id, read);
        debug_assert!(before.is_none(), "2^32 reads later the first has ended");
    }

    /// Take the completion of a read of this disk. `None` means that it was begun anew in another
    /// way and will end later.
    ///
    /// # Panics
    ///
    /// If the completion is of no read of this disk.
    pub fn handle(&mut self, ring: &mut Ring, completion: Completion) -> Option<ReadDone> {
        let id = u32::try_from(completion.token - self.config.token_base).expect("a read's token");
        let read = self.reads.remove(&id).expect("each read ends once");
        let result = match completion.result {
            Ok(Event::Read(buf)) => Ok(Data::Buffer(buf)),
            Ok(Event::Spliced(pipe)) => Ok(Data::Pipe(pipe)),
            Ok(event) => unreachable!("a read ended with {event:?}"),
            Err(error) if error.kind() == io::ErrorKind::Unsupported && !read.keep => {
                // No RWF_DONTCACHE on this file system, now known: read as usual, drop afterwards.
                let can_drop =
                    self.can_drop.get(&read.file.dev()).expect("made when the read began");
                can_drop.set(false);
                // There is room: the read that failed has just given its own back.
                match self.read(ring, read.owner, read.at, &read.file, read.offset, read.len) {
                    Some(_) => return None,
                    None => Err(error),
                }
            }
            Err(error) => Err(error),
        };
        if let Ok(data) = &result {
            self.after(ring, &read, data.len());
        }
        Some(ReadDone {
            owner: read.owner,
            at: read.at,
            file: read.file,
            offset: read.offset,
            len: read.len,
            result,
            began: read.began,
        })
    }

    fn after(&self, ring: &mut Ring, read: &Read, len: u64) {
        if read.keep {
            let now = ring.now();
            let end = read.offset + len;
            for number in read.offset.div_ceil(BLOCK)..end.div_ceil(BLOCK) {
                if (number + 1) * BLOCK <= end || end == read.file.size() {
                    read.file.remember(number, now);
                }
            }
        } else if self.can_drop.get(&read.file.dev()).is_some_and(|can_drop| !can_drop.get()) {
            let file = read.file.fd().clone();
            let op = Op::Discard { file, offset: read.offset, len: read.len };
            ring.submit(op, self.config.token_base + DISCARD);
        }
    }

    /// Whether this completion is of an operation of this disk. Those that nobody waits for are
    /// not to be given to [`handle`](Self::handle): see [`is_read`](Self::is_read).
    #[must_use]
    pub const fn owns(&self, token: Token) -> bool {
        token >= self.config.token_base && token <= self.config.token_base + DISCARD
    }

    /// Whether this completion is of a read.
    #[must_use]
    pub const fn is_read(&self, token: Token) -> bool {
        token >= self.config.token_base && token < self.config.token_base + DISCARD
    }
}

/// Added to the base, the token of what nobody waits for.
const DISCARD: Token = 1 << 32;
