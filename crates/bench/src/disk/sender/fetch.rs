//! Fetches a piece of the file by an operation of the ring, then sends it from its buffer or pipe; when
//! all of it has been sent, fetches the next.

use std::io::{self, IoSlice};
use std::rc::Rc;

use ring::{Buffer, BufferPool, Caching, Completion, Event, Op, Pipe, PipePool, Ring, Token};

use super::{
    CHUNK, MOVER, Mover, Source, Step, TRANSFERS_MAX, TURN, Turn, taken, truncated, wrong,
};

/// The way of fetching pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
    /// Through the page cache into a buffer: by io_uring, or by the epoll driver's threads.
    Read,
    /// Without the page cache into a buffer.
    Direct,
    /// Pages of the page cache into a pipe.
    Splice,
}

/// The mover.
pub(super) struct Fetch {
    how: How,
    buffers: BufferPool,
    pipes: PipePool,
}

/// A transfer of a file.
pub(super) struct Fetched {
    file: Rc<Source>,
    /// The offset of the piece.
    offset: u64,
    piece: Piece,
}

/// The state of a piece.
enum Piece {
    /// Not requested.
    None,
    /// Being fetched.
    Asked,
    /// In memory: `len` bytes of the buffer are good, and `sent` of them were sent.
    Buffer { buffer: Buffer, len: usize, sent: usize },
    /// In a pipe, of which `len` bytes were filled.
    Pipe { pipe: Pipe, len: usize },
    /// Nowhere, and why.
    Failed(io::Error),
}

impl Fetch {
    pub(super) fn new(how: How) -> io::Result<Self> {
        // Pages that are not touched cost only address space.
        let buffers = BufferPool::new(CHUNK, TRANSFERS_MAX)?;
        Ok(Self { how, buffers, pipes: PipePool::new(TRANSFERS_MAX) })
    }

    /// Begins to fetch the piece at `offset`.
    fn ask(&self, turn: &mut Turn<'_>, fetched: &Fetched, left: usize) -> io::Result<()> {
        let none = || io::Error::other(format!("more than {TRANSFERS_MAX} transfers"));
        let (file, offset, len) = (fetched.file.fd.clone(), fetched.offset, left.min(CHUNK));
        let op = match self.how {
            How::Splice => {
                let pipe = turn.ring.take_pipe(&self.pipes, offset, len).ok_or_else(none)?;
                Op::Splice { file, offset, pipe }
            }
            How::Read | How::Direct => {
                // O_DIRECT takes whole blocks, also at the file's end (open(2)).
                let block = if self.how == How::Direct { DIRECT_BLOCK } else { 1 };
                let buf = self.buffers.take(len.next_multiple_of(block)).ok_or_else(none)?;
                Op::Read { file, offset, buf, caching: Caching::Keep }
            }
        };
        turn.ring.submit(op, MOVER + turn.name);
        Ok(())
    }
}

impl Mover for Fetch {
    type Transfer = Fetched;
    type Arrival = io::Result<Event>;

    fn begin(&mut self, file: &Rc<Source>) -> Fetched {
        Fetched { file: Rc::clone(file), offset: 0, piece: Piece::None }
    }

    fn advance(&mut self, mut turn: Turn<'_>, fetched: &mut Fetched) -> io::Result<Step> {
        loop {
            match &mut fetched.piece {
                Piece::None => {
                    let left = fetched.file.stat.size - fetched.offset;
                    if left == 0 {
                        return Ok(Step::Done);
                    }
                    self.ask(&mut turn, fetched, usize::try_from(left).unwrap_or(CHUNK))?;
                    fetched.piece = Piece::Asked;
                    return Ok(Step::Waiting);
                }
                Piece::Asked => return Ok(Step::Waiting),
                Piece::Buffer { buffer, len, sent } => {
                    let bytes = IoSlice::new(&buffer[*sent..*len]);
                    let Some(n) = taken(turn.ring.send(turn.socket, &[bytes], false))? else {
                        return Ok(Step::Blocked);
                    };
                    *sent += n;
                    if sent == len {
                        fetched.offset += *len as u64;
                        fetched.piece = Piece::None;
                    }
                }
                Piece::Pipe { pipe, len } => {
                    let count = pipe.len();
                    let drained = turn.ring.drain(turn.socket, pipe, count, false);
                    if taken(drained)?.is_none() {
                        return Ok(Step::Blocked);
                    }
                    if pipe.is_empty() {
                        fetched.offset += *len as u64;
                        fetched.piece = Piece::None;
                    }
                }
                Piece::Failed(error) => {
                    return Err(core::mem::replace(error, io::ErrorKind::Other.into()));
                }
            }
        }
    }

    fn complete(
        &mut self,
        _: &mut Ring,
        done: Completion,
        arrivals: &mut Vec<(Token, io::Result<Event>)>,
    ) {
        arrivals.push((done.token - MOVER, done.result));
    }

    fn arrive(&mut self, _: &mut Ring, fetched: &mut Fetched, arrival: io::Result<Event>) {
        let left = usize::try_from(fetched.file.stat.size - fetched.offset).unwrap_or(usize::MAX);
        fetched.piece = match arrival {
            Ok(Event::Read(buffer)) if !buffer.is_empty() => {
                let len = buffer.len().min(left);
                Piece::Buffer { buffer, len, sent: 0 }
            }
            Ok(Event::Spliced(pipe)) if !pipe.is_empty() => {
                let len = pipe.len();
                Piece::Pipe { pipe, len }
            }
            Ok(Event::Read(_) | Event::Spliced(_)) => Piece::Failed(truncated()),
            Ok(event) => Piece::Failed(wrong(&event)),
            Err(error) => Piece::Failed(error),
        };
    }
}

/// A block size for `O_DIRECT` that every disk accepts.
const DIRECT_BLOCK: usize = 4096;

const _: () = assert!(CHUNK.is_multiple_of(DIRECT_BLOCK) && CHUNK as u64 <= TURN);
