//! A cyclic buffer on a disk: the bytes of a stream are appended to a file without a name, sent from there,
//! and given back to the file system.
//!
//! Nothing is overwritten, so a socket may refer to pages of the file for as long as it likes. A hole is
//! made where bytes were released, and pages that are still on their way keep their bytes. The file has
//! positions of the whole stream, but on the disk it has only the bytes that were not released.

use core::ops::Range;
use std::collections::VecDeque;
use std::io;
use std::rc::{Rc, Weak};

use ring::{Completion, Event, Fd, Key, Op, Ring, Stat, Token};

use crate::file::File;

/// The unit in which file systems allocate: a page. File systems with larger blocks use one block more.
const BLOCK_BYTES: u64 = 4096;

/// A file of which at most a fixed number of bytes are on the disk.
///
/// Open it with `O_TMPFILE | O_RDWR | O_APPEND` ([`Op::Open`]). Then [`write`](Self::write), give each
/// completion to [`handle`](Self::handle), and promise the range that `handle` returns
/// ([`Stream::push_file`](crate::Stream::push_file)). Use [`Caching::Always`](crate::Caching), because
/// released bytes leave the page cache with the file. A range is released when its [`File`] is dropped,
/// which streams do. Call [`reclaim`](Self::reclaim) from time to time.
#[derive(Debug)]
pub struct CyclicFile {
    fd: Fd,
    stat: Stat,
    size: u64,
    token: Token,
    /// The bytes that were written since the file was made.
    written: u64,
    /// The write in flight, and its bytes.
    writing: Option<(Key, u64)>,
    /// Written ranges that were not yet found to be released, in order.
    ranges: VecDeque<Written>,
    /// All bytes before this position were found to be released.
    released: u64,
    /// Position of the first byte on the disk; at a block.
    punched: u64,
    /// The operation that makes a hole, and where that will end.
    punching: Option<(Key, u64)>,
}

#[derive(Debug)]
struct Written {
    end: u64,
    file: Weak<File>,
}

impl CyclicFile {
    /// Takes an empty file and its attributes from `statx(2)`. Of `size` whole blocks are used. Its
    /// operations carry `token`.
    #[must_use]
    pub const fn new(fd: Fd, stat: Stat, size: u64, token: Token) -> Self {
        Self {
            fd,
            stat,
            size: size / BLOCK_BYTES * BLOCK_BYTES,
            token,
            written: 0,
            writing: None,
            ranges: VecDeque::new(),
            released: 0,
            punched: 0,
            punching: None,
        }
    }

    /// The bytes that may be written now; 0 while a write is in flight.
    #[must_use]
    pub const fn room(&self) -> u64 {
        if self.writing.is_some() {
            return 0;
        }
        self.size.saturating_sub(self.written - self.punched)
    }

    /// The bytes on the disk, with those of a write in flight.
    #[must_use]
    pub const fn used(&self) -> u64 {
        let writing = if let Some((_, bytes)) = self.writing { bytes } else { 0 };
        self.written + writing - self.punched
    }

    /// Returns whether an operation is in flight: the token must stay valid until the operation has ended.
    #[must_use]
    pub const fn is_busy(&self) -> bool {
        self.writing.is_some() || self.punching.is_some()
    }

    /// Writes bytes after all others.
    ///
    /// # Panics
    ///
    /// If there are none, or more than there is [room](Self::room).
    pub fn write(&mut self, ring: &mut Ring, bytes: Vec<u8>) {
        let len = bytes.len() as u64;
        assert!(len > 0 && len <= self.room(), "{len} bytes for {}", self.room());
        self.submit(ring, bytes);
    }

    fn submit(&mut self, ring: &mut Ring, bytes: Vec<u8>) {
        let len = bytes.len() as u64;
        let op = Op::Write { file: self.fd.clone(), at: None, bytes };
        // The device may not answer, and must not occupy the slots of the others.
        self.writing = Some((ring.submit_to(self.fd.device(), op, self.token), len));
    }

    /// Handles the completion of an operation. If something was written, returns a file and the written range
    /// in it.
    ///
    /// # Errors
    ///
    /// The errors of `write(2)` (`ENOSPC`: the disk is full) and `fallocate(2)` (`EOPNOTSUPP`: the file
    /// system cannot make holes). Bytes that were written before can still be sent; nothing more can be
    /// written.
    pub fn handle(
        &mut self,
        ring: &mut Ring,
        completion: Completion,
    ) -> io::Result<Option<(Rc<File>, Range<u64>)>> {
        let is_write = self.writing.take_if(|(key, _)| *key == completion.key).is_some();
        let hole = if is_write { None } else { self.punching.take() };
        let event = completion.result.inspect_err(|_| self.size = 0)?;
        match event {
            Event::Written(_, 0) => {
                self.size = 0;
                Err(io::ErrorKind::WriteZero.into())
            }
            Event::Written(mut bytes, count) => {
                let start = self.written;
                self.written += count as u64;
                bytes.drain(..count);
                if !bytes.is_empty() {
                    self.submit(ring, bytes);
                }
                let stat = Stat { size: self.written, ..self.stat };
                let file = Rc::new(File::new(self.fd.clone(), &stat));
                self.ranges.push_back(Written { end: self.written, file: Rc::downgrade(&file) });
                Ok(Some((file, start..self.written)))
            }
            Event::Punched => {
                if let Some((_, end)) = hole {
                    self.punched = end;
                }
                self.reclaim(ring);
                Ok(None)
            }
            other => unreachable!("no operation of a cyclic file: {other:?}"),
        }
    }

    /// Gives released ranges back to the file system, in whole blocks, from the first byte on.
    pub fn reclaim(&mut self, ring: &mut Ring) {
        while let Some(first) = self.ranges.front()
            && first.file.strong_count() == 0
        {
            self.released = first.end;
            self.ranges.pop_front();
        }
        let end = self.released / BLOCK_BYTES * BLOCK_BYTES;
        if self.punching.is_none() && end > self.punched {
            let (file, offset) = (self.fd.clone(), self.punched);
            let op = Op::Punch { file, offset, len: end - offset };
            self.punching = Some((ring.submit(op, self.token), end));
        }
    }
}
