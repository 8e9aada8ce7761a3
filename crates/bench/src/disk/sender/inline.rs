//! Calls on the event loop that sleep while the disk is busy, as in many servers.

use std::io::{self, IoSlice};
use std::os::unix::fs::FileExt as _;
use std::rc::Rc;

use ring::{Completion, Ring, Token};

use super::{CHUNK, Mover, Source, Step, TURN, Turn, taken, truncated};

/// pread(2) into a buffer of the transfer, send(2) from there.
pub(super) struct ReadWrite;

/// A transfer through memory.
pub(super) struct Copy {
    file: Rc<Source>,
    /// The next byte to read.
    offset: u64,
    buffer: Vec<u8>,
    /// The bytes of the buffer that the kernel has taken.
    sent: usize,
}

impl Mover for ReadWrite {
    type Transfer = Copy;
    type Arrival = ();

    fn begin(&mut self, file: &Rc<Source>) -> Copy {
        Copy { file: Rc::clone(file), offset: 0, buffer: Vec::new(), sent: 0 }
    }

    fn advance(&mut self, turn: Turn<'_>, copy: &mut Copy) -> io::Result<Step> {
        let mut moved = 0;
        loop {
            if copy.sent == copy.buffer.len() {
                if copy.offset == copy.file.stat.size {
                    return Ok(Step::Done);
                }
                if moved >= TURN {
                    return Ok(Step::More);
                }
                copy.sent = 0;
                copy.buffer.resize(CHUNK, 0);
                let n = copy.file.file.read_at(&mut copy.buffer, copy.offset)?;
                copy.buffer.truncate(n);
                copy.offset += n as u64;
                if n == 0 {
                    return Err(truncated());
                }
            }
            let piece = IoSlice::new(&copy.buffer[copy.sent..]);
            let Some(n) = taken(turn.ring.send(turn.socket, &[piece], false))? else {
                return Ok(Step::Blocked);
            };
            copy.sent += n;
            moved += n as u64;
        }
    }

    fn complete(&mut self, _: &mut Ring, _: Completion, _: &mut Vec<(Token, ())>) {}

    fn arrive(&mut self, _: &mut Ring, _: &mut Copy, (): ()) {}
}

/// sendfile(2), whether or not the bytes are resident.
pub(super) struct Sendfile;

/// A transfer without a copy.
pub(super) struct Range {
    file: Rc<Source>,
    offset: u64,
}

impl Mover for Sendfile {
    type Transfer = Range;
    type Arrival = ();

    fn begin(&mut self, file: &Rc<Source>) -> Range {
        Range { file: Rc::clone(file), offset: 0 }
    }

    fn advance(&mut self, turn: Turn<'_>, range: &mut Range) -> io::Result<Step> {
        let end = range.offset.saturating_add(TURN);
        loop {
            let left = range.file.stat.size - range.offset;
            if left == 0 {
                return Ok(Step::Done);
            }
            if range.offset >= end {
                return Ok(Step::More);
            }
            let len = usize::try_from(left).unwrap_or(CHUNK).min(CHUNK);
            let sent = turn.ring.sendfile(turn.socket, &range.file.fd, range.offset, len);
            match taken(sent)? {
                None => return Ok(Step::Blocked),
                Some(0) => return Err(truncated()),
                Some(n) => range.offset += n as u64,
            }
        }
    }

    fn complete(&mut self, _: &mut Ring, _: Completion, _: &mut Vec<(Token, ())>) {}

    fn arrive(&mut self, _: &mut Ring, _: &mut Range, (): ()) {}
}
