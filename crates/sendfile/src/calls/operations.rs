//! The calls that need no queue of a socket: each is one operation of the ring, or two.

use core::cmp::Ordering;
use core::time::Duration;
use std::ffi::CString;
use std::io;
use std::rc::Rc;

use ring::{Address, Completion, Entry, Event, Fd, FileKind, Key, Op, OpenHow, Ring, Time, Token};

use super::{CALL, Call, Calls, Full, InFlight, Outcome, Stop, Work};
use crate::failure::Failure;
use crate::file::File;

/// The outcome that is reported for a call of one operation.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    Accept,
    Child,
    Connect,
    Other,
    Signal,
    Timer,
}

/// The operation in flight of a call that may wait for a disk, and the timer that ends the call if it takes too long.
#[derive(Debug)]
pub(super) struct OnDisk {
    op: Key,
    timer: Option<Key>,
}

impl Calls {
    /// Opens a regular file for [`Part::File`](super::Part::File), beneath a directory ([`OpenHow::BENEATH`]) and not
    /// on this thread: [`Outcome::Opened`], with its `statx(2)`.
    ///
    /// # Errors
    ///
    /// [`Full`] beyond [`CALLS_MAX`](super::CALLS_MAX); nothing has been done then.
    pub fn open(&mut self, dir: &Fd, path: CString, token: Token) -> Result<Call, Full<CString>> {
        if !self.has_room() {
            return Err(Full(path));
        }
        let op = Op::Open { dir: Some(dir.clone()), path, how: OpenHow::BENEATH };
        Ok(self.begin_on_disk(token, op, |op| Work::Open { op, file: None }))
    }

    /// Reads a directory beneath a directory ([`OpenHow::DIRECTORY`]; `.` is `dir` itself), with a maximum of entries,
    /// and not on this thread: [`Outcome::Listed`]. Directories come first, then the others, both by name.
    ///
    /// # Errors
    ///
    /// [`Full`] beyond [`CALLS_MAX`](super::CALLS_MAX); nothing has been done then.
    pub fn list(
        &mut self,
        dir: &Fd,
        path: CString,
        entries_max: usize,
        token: Token,
    ) -> Result<Call, Full<CString>> {
        if !self.has_room() {
            return Err(Full(path));
        }
        let op = Op::Open { dir: Some(dir.clone()), path, how: OpenHow::DIRECTORY };
        Ok(self.begin_on_disk(token, op, |op| Work::List { op, entries_max }))
    }

    /// Watches one file beneath a directory, which need not exist yet ([`Op::WatchFile`]), until it is
    /// cancelled or fails: [`Outcome::Watching`] once changes are seen, then [`Outcome::Changed`] for each.
    ///
    /// # Errors
    ///
    /// [`Full`] beyond [`CALLS_MAX`](super::CALLS_MAX); nothing has been done then.
    pub fn watch_file(
        &mut self,
        dir: &Fd,
        path: CString,
        token: Token,
    ) -> Result<Call, Full<CString>> {
        if !self.has_room() {
            return Err(Full(path));
        }
        let op = Op::WatchFile { root: dir.clone(), path };
        Ok(self.begin_on_disk(token, op, Work::WatchFile))
    }

    /// Accepts connections until it is cancelled or fails: [`Outcome::Accepted`] for each of them.
    ///
    /// # Errors
    ///
    /// [`Full`] beyond [`CALLS_MAX`](super::CALLS_MAX); nothing has been done then.
    pub fn accept(&mut self, listener: &Fd, token: Token) -> Result<Call, Full<()>> {
        if !self.has_room() {
            return Err(Full(()));
        }
        Ok(self.begin_one(token, Op::Accept(listener.clone()), Kind::Accept))
    }

    /// Makes a connection ([`Op::Connect`]): [`Outcome::Connected`] with its socket, or with an error.
    ///
    /// # Errors
    ///
    /// [`Full`] beyond [`CALLS_MAX`](super::CALLS_MAX); nothing has been done then.
    pub fn connect(&mut self, address: Address, token: Token) -> Result<Call, Full<Address>> {
        if !self.has_room() {
            return Err(Full(address));
        }
        Ok(self.begin_one(token, Op::Connect(address), Kind::Connect))
    }

    /// Waits for a time of the ring's clock: [`Outcome::Timer`].
    ///
    /// # Errors
    ///
    /// [`Full`] beyond [`CALLS_MAX`](super::CALLS_MAX); nothing has been done then.
    pub fn timer(&mut self, at: Time, token: Token) -> Result<Call, Full<()>> {
        if !self.has_room() {
            return Err(Full(()));
        }
        Ok(self.begin_one(token, Op::Timer(at), Kind::Timer))
    }

    /// Waits for signals with this number, which the program blocks ([`Op::Signal`]), until it is
    /// cancelled or fails: [`Outcome::Signal`] for each of them.
    ///
    /// # Errors
    ///
    /// [`Full`] beyond [`CALLS_MAX`](super::CALLS_MAX); nothing has been done then.
    pub fn signal(&mut self, number: i32, token: Token) -> Result<Call, Full<()>> {
        if !self.has_room() {
            return Err(Full(()));
        }
        Ok(self.begin_one(token, Op::Signal(number), Kind::Signal))
    }

    /// Waits for the end of one child process, by the number from [`Child::id`](std::process::Child::id)
    /// ([`Op::Child`]): [`Outcome::Exited`], with which the child has been reaped.
    ///
    /// # Errors
    ///
    /// [`Full`] beyond [`CALLS_MAX`](super::CALLS_MAX); nothing has been done then.
    pub fn child(&mut self, id: u32, token: Token) -> Result<Call, Full<()>> {
        if !self.has_room() {
            return Err(Full(()));
        }
        Ok(self.begin_one(token, Op::Child(id), Kind::Child))
    }

    /// Begins any other operation: a watch of a directory, a write. [`Outcome::Event`] for each of its
    /// completions. Not for a socket that was [adopted](Self::adopt).
    ///
    /// # Errors
    ///
    /// [`Full`] beyond [`CALLS_MAX`](super::CALLS_MAX); nothing has been done then.
    pub fn submit(&mut self, op: Op, token: Token) -> Result<Call, Full<Op>> {
        if !self.has_room() {
            return Err(Full(op));
        }
        Ok(self.begin_one(token, op, Kind::Other))
    }

    fn begin_one(&mut self, token: Token, op: Op, kind: Kind) -> Call {
        let Self { calls, ring, .. } = self;
        let submit = |key: Key| {
            let op = ring.submit(op, CALL | key.to_bits());
            InFlight { token, work: Work::Op { op, kind } }
        };
        Call(calls.insert_with(submit))
    }

    fn begin_on_disk(&mut self, token: Token, op: Op, work: impl FnOnce(OnDisk) -> Work) -> Call {
        let Self { calls, ring, patience, .. } = self;
        let submit = |key: Key| InFlight {
            token,
            work: work(OnDisk::begin(ring, *patience, Call(key), op)),
        };
        Call(calls.insert_with(submit))
    }

    /// Completes a call for a file although its operation goes on, without an owner. The disk may keep the operation,
    /// but it refers to no memory of the caller. The slots of the ring limit the number of such operations.
    pub(super) fn end_on_disk(&mut self, call: Call, error: io::Error) {
        let Some(InFlight { token, work }) = self.calls.remove(call.0) else {
            unreachable!("a call ends once")
        };
        let (on_disk, outcome) = match work {
            Work::Open { op, .. } => (op, Outcome::Opened(Err(error))),
            Work::List { op, .. } => (op, Outcome::Listed(Err(error))),
            Work::WatchFile(op) => (op, Outcome::Changed(Err(error))),
            work => unreachable!("{work:?} waits for no disk"),
        };
        on_disk.cancel(&mut self.ring);
        self.complete(call, token, outcome, false);
    }

    pub(super) fn handle_op(&mut self, call: Call, completion: Completion) {
        let Completion { key, result, more, .. } = completion;
        // The call has ended: the result of its operation is given back.
        let Some(InFlight { token, work }) = self.calls.get_mut(call.0) else { return };
        let token = *token;
        if let Some(on_disk) = work.on_disk() {
            let (is_late, is_stopped_timer) = (on_disk.timer == Some(key), on_disk.op != key);
            if is_late && matches!(work, Work::Store(_)) {
                return self.end_store(call, Err(Stop::Failed(Failure::Late)));
            }
            if is_late {
                return self.end_on_disk(call, io::ErrorKind::TimedOut.into());
            }
            if is_stopped_timer {
                return;
            }
        }
        if let Work::Store(store) = work {
            // The timer of a write that has ended says nothing.
            if store.on_disk().is_some() {
                self.handle_written(call, result);
            }
            return;
        }
        let outcome = match (work, result) {
            (Work::Open { op, file, .. }, Ok(Event::Opened(opened))) => {
                op.op = self.ring.submit(Op::Stat(opened.clone()), CALL | call.to_bits());
                *file = Some(opened);
                return;
            }
            (Work::Open { file, .. }, Ok(Event::Stat(stat))) => {
                let file = file.take().expect("a file is open before it is asked what it is");
                Outcome::Opened(match stat.kind {
                    FileKind::Regular => Ok((Rc::new(File::new(file, &stat)), stat)),
                    FileKind::Directory => Err(io::ErrorKind::IsADirectory.into()),
                    FileKind::Symlink | FileKind::Other => Err(io::ErrorKind::InvalidInput.into()),
                })
            }
            (Work::Open { .. }, Err(error)) => Outcome::Opened(Err(error)),
            (Work::List { op, entries_max }, Ok(Event::Opened(dir))) => {
                let (entries_max, order) = (*entries_max, directories_first);
                let list = Op::List { dir, entries_max, order, targets: None };
                op.op = self.ring.submit(list, CALL | call.to_bits());
                return;
            }
            (Work::List { .. }, Ok(Event::Listed(listing))) => Outcome::Listed(Ok(listing)),
            (Work::List { .. }, Err(error)) => Outcome::Listed(Err(error)),
            (Work::WatchFile(op), Ok(Event::Watching { .. })) => {
                op.stop_timer(&mut self.ring);
                op.timer = None;
                Outcome::Watching
            }
            (Work::WatchFile(_), Ok(Event::Changed(_))) => Outcome::Changed(Ok(())),
            (Work::WatchFile(_), Err(error)) => Outcome::Changed(Err(error)),
            (Work::Op { kind, .. }, result) => {
                let kind = *kind;
                self.outcome(kind, result)
            }
            (work, result) => unreachable!("{work:?} ended with {result:?}"),
        };
        if !more
            && let Some(mut ended) = self.calls.remove(call.0)
            && let Some(on_disk) = ended.work.on_disk()
        {
            on_disk.stop_timer(&mut self.ring);
        }
        self.complete(call, token, outcome, more);
    }

    fn outcome(&mut self, kind: Kind, result: io::Result<Event>) -> Outcome {
        match (kind, result) {
            (Kind::Accept, Ok(Event::Accepted(socket))) => {
                Outcome::Accepted(Ok(self.adopt(socket)))
            }
            (Kind::Accept, Err(error)) => Outcome::Accepted(Err(error)),
            (Kind::Child, Ok(Event::Exited(status))) => Outcome::Exited(Ok(status)),
            (Kind::Child, Err(error)) => Outcome::Exited(Err(error)),
            (Kind::Connect, Ok(Event::Connected(socket))) => {
                Outcome::Connected(Ok(self.adopt(socket)))
            }
            (Kind::Connect, Err(error)) => Outcome::Connected(Err(error)),
            (Kind::Other, result) => Outcome::Event(result),
            (Kind::Signal, Ok(Event::Signal(signal))) => Outcome::Signal(Ok(signal)),
            (Kind::Signal, Err(error)) => Outcome::Signal(Err(error)),
            (Kind::Timer, Ok(Event::Timer)) => Outcome::Timer(Ok(())),
            (Kind::Timer, Err(error)) => Outcome::Timer(Err(error)),
            (kind, result) => unreachable!("{kind:?} ended with {result:?}"),
        }
    }
}

impl OnDisk {
    /// Begins the operation of a call, with a timer if there is a limit.
    pub(super) fn begin(ring: &mut Ring, patience: Option<Duration>, call: Call, op: Op) -> Self {
        let token = CALL | call.to_bits();
        let timer = patience.map(|patience| ring.submit(Op::Timer(ring.now() + patience), token));
        // A write is not counted against a device by itself, because a log has one at a time.
        let device = if let Op::Write { file, .. } = &op { Some(file.device()) } else { None };
        let op = match device {
            Some(device) => ring.submit_to(device, op, token),
            None => ring.submit(op, token),
        };
        Self { op, timer }
    }

    /// Gives the operation up: its completion has no owner.
    pub(super) fn cancel(&self, ring: &mut Ring) {
        ring.cancel(self.op);
        self.stop_timer(ring);
    }

    pub(super) fn stop_timer(&self, ring: &mut Ring) {
        if let Some(timer) = self.timer {
            ring.cancel(timer);
        }
    }
}

impl Work {
    /// The operation of a call that may wait for a disk; `None` for sends.
    const fn on_disk(&mut self) -> Option<&mut OnDisk> {
        match self {
            Self::Open { op, .. } | Self::List { op, .. } | Self::WatchFile(op) => Some(op),
            Self::Store(store) => store.on_disk(),
            _ => None,
        }
    }
}

/// The order of a listing: directories first, then the others, both by name.
fn directories_first(a: &Entry, b: &Entry) -> Ordering {
    let key = |entry: &Entry| entry.kind != FileKind::Directory;
    key(a).cmp(&key(b)).then_with(|| a.name.cmp(&b.name))
}
