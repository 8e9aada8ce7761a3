//! Content of a response that waits for a slow client on a disk. Its bytes are in memory until they have been written to
//! a file without a name, and afterwards only in the file. Bodies of requests are collected: `gateways/src/input/collected.rs`.
//!
//! ```text
//!   push ──► unwritten ──write──► file ──► ranges for the client
//!                │                 ├─ released: holes
//!                └─ fail, finish: bytes that are not in the file go on through memory
//! ```
//!
//! A file is used when the upstream has more to send while its client receives less than 8 MiB in 0.1 s. The file and
//! the memory in front of it have `buffer` bytes together. One write of 64 to 256 KiB is under way at a time. Pieces
//! stay in memory until they are written. So no response fails because a disk is full, fails, or is silent for 2 s.
//! When the upstream has sent everything, the rest goes through memory, so an exchange never outlives its upstream for
//! the disk.
//!
//! Cyclic memory becomes free only in its order, and some bytes of the first buffer wait for the client. So once there
//! is a file, the content is received into another buffer.

use core::ops::Range;
use core::time::Duration;
use std::collections::VecDeque;
use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::rc::Rc;

use outq::Payload as _;
use ring::{Completion, Device, Event, Fd, Op, OpenHow, Ring, Time, Token, WeakFd};
use rustix::fs::OFlags;
use sendfile::{CyclicFile, File, Piece};

/// Bytes of memory in which a content waits to be written. As many more may wait for the client, from the time before
/// there was a file.
pub(super) const MEMORY_BYTES: u64 = 1024 * 1024;
/// Bytes of one write; they are in memory twice.
const WRITE_BYTES: u64 = 256 * 1024;
/// Fewer bytes are written only if the client waits for them. Each range of the file costs some memory of its own, so
/// it should be as long as a quantum of the client's connection.
const WRITE_BYTES_MIN: u64 = 64 * 1024;
/// The time after which a disk that has not opened or written is no help to a client.
const PATIENCE: Duration = Duration::from_secs(2);

/// The most files of a worker. Each file is at most as long as its route's buffer.
const FILES_MAX: usize = 128;

/// The files of a worker. Files of complete responses are among them until the clients have taken their content.
#[derive(Debug, Default)]
pub(super) struct Files(Vec<WeakFd>);

impl Files {
    /// Counts a file; returns false if there is no room for it.
    fn add(&mut self, file: &Fd) -> bool {
        self.0.retain(WeakFd::is_open);
        let has_room = self.0.len() < FILES_MAX;
        if has_room {
            self.0.push(file.downgrade());
        }
        has_room
    }
}

/// A file for the content of one response. A part of the content is still in memory.
#[derive(Debug)]
pub(super) struct Spool {
    state: State,
    token: Token,
    /// Bytes of the file.
    size: u64,
    /// The pieces that are not in the file, in order. The first bytes of them may be under way to the file.
    unwritten: VecDeque<Piece>,
    /// The number of bytes in these pieces.
    bytes: u64,
    /// The time of the disk's last reply, or of an order to an idle disk.
    since: Time,
}

#[derive(Debug)]
enum State {
    Opening,
    /// The device of the file is being looked up.
    Looking(Fd),
    Open(CyclicFile),
    Failed,
}

impl Spool {
    /// Begins to make a file in a directory, for a route's buffer of this many bytes, memory included. Its operations
    /// carry `token`, and the open counts against `device`.
    pub(super) fn new(
        ring: &mut Ring,
        dir: &Path,
        bytes: u64,
        (token, device): (Token, Device),
        now: Time,
    ) -> Self {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::APPEND;
        let how = OpenHow { flags: flags.bits().cast_signed(), mode: 0o600, resolve: 0 };
        // A path of a configuration contains no NUL.
        let path = CString::new(dir.as_os_str().as_bytes()).unwrap_or_default();
        ring.submit_to(device, Op::Open { dir: None, path, how }, token);
        Self {
            state: State::Opening,
            token,
            size: bytes.saturating_sub(2 * MEMORY_BYTES + WRITE_BYTES),
            unwritten: VecDeque::new(),
            bytes: 0,
            since: now,
        }
    }

    /// Returns true if content may be pushed.
    pub(super) const fn is_open(&self) -> bool {
        matches!(self.state, State::Open(_))
    }

    /// Returns true if the spool waits for the disk.
    pub(super) const fn is_waiting(&self) -> bool {
        match &self.state {
            State::Opening | State::Looking(_) => true,
            State::Open(file) => file.is_busy(),
            State::Failed => false,
        }
    }

    /// Returns true if the spool has waited for the disk for too long.
    pub(super) fn is_overdue(&self, now: Time) -> bool {
        self.is_waiting() && now.since(self.since) >= PATIENCE
    }

    /// Adds content after all other content; it is in memory.
    pub(super) fn push(&mut self, piece: Piece) {
        self.bytes += piece.len();
        self.unwritten.push_back(piece);
    }

    /// Handles a completion. Returns the file and the range in it that was written, if bytes were.
    ///
    /// # Errors
    ///
    /// Those of `openat2(2)`, `statx(2)`, `write(2)` and `fallocate(2)`; an error without a number if there are
    /// [`FILES_MAX`] files.
    pub(super) fn handle(
        &mut self,
        ring: &mut Ring,
        files: &mut Files,
        completion: Completion,
        now: Time,
    ) -> io::Result<Option<(Rc<File>, Range<u64>)>> {
        self.since = now;
        match &mut self.state {
            State::Opening => {
                let Event::Opened(fd) = completion.result? else { unreachable!("opened") };
                if !files.add(&fd) {
                    return Err(io::Error::other(format!("{FILES_MAX} files are in use")));
                }
                ring.submit(Op::Stat(fd.clone()), self.token);
                self.state = State::Looking(fd);
                Ok(None)
            }
            State::Looking(fd) => {
                let Event::Stat(stat) = completion.result? else { unreachable!("looked at") };
                let file = CyclicFile::new(fd.clone(), *stat, self.size, self.token);
                self.state = State::Open(file);
                Ok(None)
            }
            State::Open(file) => {
                let written = file.handle(ring, completion)?;
                if let Some((_, range)) = &written {
                    self.drop_first(range.end - range.start);
                }
                Ok(written)
            }
            // The completion belongs to an operation from before the failure.
            State::Failed => Ok(None),
        }
    }

    /// Drops the memory of bytes that are in the file.
    fn drop_first(&mut self, mut count: u64) {
        self.bytes -= count;
        while let Some(first) = self.unwritten.front_mut()
            && count > 0
        {
            let cut = count.min(first.len());
            drop(first.split_to(cut));
            count -= cut;
            if first.len() == 0 {
                self.unwritten.pop_front();
            }
        }
    }

    /// Returns the space of released bytes to the file system, and writes waiting bytes if they are enough, or if the
    /// client `waits` for them.
    pub(super) fn write(&mut self, ring: &mut Ring, waits: bool, now: Time) {
        let State::Open(file) = &mut self.state else { return };
        let was_busy = file.is_busy();
        file.reclaim(ring);
        let count = self.bytes.min(WRITE_BYTES).min(file.room());
        if count >= if waits { 1 } else { WRITE_BYTES_MIN } {
            let count = usize::try_from(count).expect("less than memory has");
            let mut bytes = Vec::with_capacity(count);
            for piece in &self.unwritten {
                let piece = piece.bytes();
                bytes.extend_from_slice(&piece[..piece.len().min(count - bytes.len())]);
            }
            file.write(ring, bytes);
        }
        if !was_busy && file.is_busy() {
            self.since = now;
        }
    }

    /// Stops writing, and returns the pieces that are not in the file.
    pub(super) fn fail(&mut self) -> VecDeque<Piece> {
        self.state = State::Failed;
        self.bytes = 0;
        core::mem::take(&mut self.unwritten)
    }
}
