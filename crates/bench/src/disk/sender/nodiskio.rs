//! "sendfile, but not from disk": FreeBSD's `SF_NODISKIO` on Linux. Bytes that `RWF_NOWAIT`
//! finds resident are sent by sendfile(2); a helper thread reads the others into the page cache first,
//! and then they are sent by sendfile(2) as well.

use std::io::{self, ErrorKind};
use std::rc::Rc;

use ring::{BufferPool, Caching, Completion, Event, Op, Ring, Token};

use super::{CHUNK, MOVER, Mover, Source, Step, TRANSFERS_MAX, TURN, Turn, taken, truncated};

/// The mover.
pub(super) struct Nodiskio {
    buffers: BufferPool,
}

/// A transfer of a file.
pub(super) struct Range {
    file: Rc<Source>,
    offset: u64,
    /// The end of the part that was found resident.
    resident: u64,
    asked: bool,
    failed: Option<io::Error>,
}

impl Nodiskio {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self { buffers: BufferPool::new(CHUNK, TRANSFERS_MAX)? })
    }

    /// Lets a helper read the next piece into the page cache.
    fn ask(&self, turn: &mut Turn<'_>, range: &mut Range) -> io::Result<()> {
        let left = usize::try_from(range.file.stat.size - range.offset).unwrap_or(CHUNK);
        let none = || io::Error::other(format!("more than {TRANSFERS_MAX} transfers"));
        let buf = self.buffers.take(left.min(CHUNK)).ok_or_else(none)?;
        let (file, offset) = (range.file.fd.clone(), range.offset);
        turn.ring.submit(Op::Read { file, offset, buf, caching: Caching::Keep }, MOVER + turn.name);
        range.asked = true;
        Ok(())
    }
}

impl Mover for Nodiskio {
    type Transfer = Range;
    type Arrival = io::Result<u64>;

    fn begin(&mut self, file: &Rc<Source>) -> Range {
        Range { file: Rc::clone(file), offset: 0, resident: 0, asked: false, failed: None }
    }

    fn advance(&mut self, mut turn: Turn<'_>, range: &mut Range) -> io::Result<Step> {
        if let Some(error) = range.failed.take() {
            return Err(error);
        }
        if range.asked {
            return Ok(Step::Waiting);
        }
        let end = range.offset.saturating_add(TURN);
        loop {
            let left = range.file.stat.size - range.offset;
            if left == 0 {
                return Ok(Step::Done);
            }
            if range.offset >= end {
                return Ok(Step::More);
            }
            if range.resident <= range.offset {
                let len = usize::try_from(left).unwrap_or(CHUNK).min(CHUNK);
                match turn.ring.probe(&range.file.fd, range.offset, len) {
                    Ok(0) => return Err(truncated()),
                    Ok(n) => range.resident = range.offset + n as u64,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {
                        self.ask(&mut turn, range)?;
                        return Ok(Step::Waiting);
                    }
                    Err(error) => return Err(error),
                }
            }
            let len = usize::try_from(range.resident - range.offset).unwrap_or(CHUNK);
            let sent = turn.ring.sendfile(turn.socket, &range.file.fd, range.offset, len);
            match taken(sent)? {
                None => return Ok(Step::Blocked),
                Some(0) => return Err(truncated()),
                Some(n) => range.offset += n as u64,
            }
        }
    }

    fn complete(
        &mut self,
        _: &mut Ring,
        done: Completion,
        arrivals: &mut Vec<(Token, io::Result<u64>)>,
    ) {
        let read = match done.result {
            Ok(Event::Read(buffer)) if !buffer.is_empty() => Ok(buffer.len() as u64),
            Ok(_) => Err(truncated()),
            Err(error) => Err(error),
        };
        arrivals.push((done.token - MOVER, read));
    }

    fn arrive(&mut self, _: &mut Ring, range: &mut Range, arrival: io::Result<u64>) {
        range.asked = false;
        match arrival {
            Ok(len) => range.resident = range.offset + len,
            Err(error) => range.failed = Some(error),
        }
    }
}
