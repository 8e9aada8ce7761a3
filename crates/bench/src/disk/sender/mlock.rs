//! mmap(2) and mlock(2) in helper threads, which sleep until the pages are resident; then send(2) from
//! the mapping, which cannot sleep.

use core::ops::Range as Bytes;
use std::collections::HashMap;
use std::io;
use std::rc::Rc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use ring::{Completion, Ring, Token};

use super::{CHUNK, Mover, Source, Step, Turn, Wakes};
use crate::sys::memory::Locked;

/// The mover.
pub(super) struct Mlock {
    jobs: Sender<Job>,
    done: Receiver<(Token, io::Result<Locked>)>,
    /// Descriptors for the helpers, by inode: they may outlive a transfer.
    files: HashMap<u64, Arc<std::fs::File>>,
}

/// A range to lock, and the token of its transfer.
struct Job {
    name: Token,
    file: Arc<std::fs::File>,
    bytes: Bytes<u64>,
}

/// A transfer of a file.
pub(super) struct Mapped {
    file: Rc<Source>,
    offset: u64,
    piece: Piece,
}

enum Piece {
    None,
    Asked,
    /// Mapped and locked, with the number of sent bytes.
    Here(Locked, usize),
    Failed(io::Error),
}

impl Mlock {
    /// Starts the helpers; they end with the mover.
    pub(super) fn new(waker: Wakes) -> io::Result<Self> {
        let (jobs, todo) = channel::<Job>();
        let (report, done) = channel();
        let todo = Arc::new(Mutex::new(todo));
        for _ in 0..HELPERS {
            let (todo, report, waker) = (Arc::clone(&todo), report.clone(), waker.clone());
            thread::Builder::new().name("mlock".to_owned()).spawn(move || {
                loop {
                    let job = todo.lock().unwrap_or_else(PoisonError::into_inner).recv();
                    let Ok(Job { name, file, bytes }) = job else { return };
                    let locked = Locked::new(&file, bytes);
                    if report.send((name, locked)).is_err() {
                        return;
                    }
                    waker.wake();
                }
            })?;
        }
        Ok(Self { jobs, done, files: HashMap::new() })
    }

    fn ask(&mut self, name: Token, mapped: &Mapped) -> io::Result<()> {
        let end = mapped.file.stat.size.min(mapped.offset + CHUNK as u64);
        let file = match self.files.get(&mapped.file.stat.ino) {
            Some(file) => Arc::clone(file),
            None => {
                let file = Arc::new(mapped.file.file.try_clone()?);
                self.files.insert(mapped.file.stat.ino, Arc::clone(&file));
                file
            }
        };
        self.jobs
            .send(Job { name, file, bytes: mapped.offset..end })
            .map_err(|_| io::Error::other("the helpers have gone"))
    }
}

impl Mover for Mlock {
    type Transfer = Mapped;
    type Arrival = io::Result<Locked>;

    fn begin(&mut self, file: &Rc<Source>) -> Mapped {
        Mapped { file: Rc::clone(file), offset: 0, piece: Piece::None }
    }

    fn advance(&mut self, turn: Turn<'_>, mapped: &mut Mapped) -> io::Result<Step> {
        loop {
            match &mut mapped.piece {
                Piece::None if mapped.offset == mapped.file.stat.size => return Ok(Step::Done),
                Piece::None => {
                    self.ask(turn.name, mapped)?;
                    mapped.piece = Piece::Asked;
                    return Ok(Step::Waiting);
                }
                Piece::Asked => return Ok(Step::Waiting),
                Piece::Here(locked, sent) => {
                    let Some(n) = super::taken(locked.send(turn.socket.raw(), *sent))? else {
                        return Ok(Step::Blocked);
                    };
                    *sent += n;
                    if *sent == locked.len() {
                        mapped.offset += *sent as u64;
                        mapped.piece = Piece::None;
                    }
                }
                Piece::Failed(error) => {
                    return Err(core::mem::replace(error, io::ErrorKind::Other.into()));
                }
            }
        }
    }

    /// Handles the completion of the waker: it takes all results of the helpers.
    fn complete(
        &mut self,
        _: &mut Ring,
        _: Completion,
        arrivals: &mut Vec<(Token, io::Result<Locked>)>,
    ) {
        arrivals.extend(self.done.try_iter());
    }

    fn arrive(&mut self, _: &mut Ring, mapped: &mut Mapped, arrival: io::Result<Locked>) {
        mapped.piece = match arrival {
            Ok(locked) => Piece::Here(locked, 0),
            Err(error) => Piece::Failed(error),
        };
    }
}

/// As many as `ring` has for the strategies that use its threads.
const HELPERS: usize = 64;
