//! Bodies that have to come completely before a gateway gets any byte. Such a body is in memory first, and then in a
//! file without a name.
//!
//! ```text
//!   push ──► waiting ──write──► file ──read──► ready ──► server, program
//!               └──────── (once the file is empty) ─────────┘
//! ```
//!
//! This module decides which operation of the file is next; [`bodies`](super::super::bodies) executes the operation.

use core::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use ring::{Buffer, BufferPool, Caching, Device, Event, Fd, Op, OpenHow};
use rustix::fs::OFlags;

use super::{COLLECTED_BYTES_MAX, Charge, Input, Rest, Stage};
use crate::quota::{self, Holder, Quota, Room};
use session::handler::{CONSUMER_ROOM_MIN, Ticket};

/// The maximum number of bytes that one write has. The client goes on sending meanwhile.
const WRITE_BYTES: u64 = 256 * 1024;
/// Fewer bytes than this are written only if other bodies need the memory.
const WRITE_BYTES_MIN: u64 = 64 * 1024;
/// Bytes of one read.
const READ_BYTES: usize = 64 * 1024;
/// The maximum number of bytes of all bodies in memory, for the gateways of one kind of a worker. At this limit clients
/// wait.
pub(crate) const POOL_BYTES_MAX: u64 = 16 * COLLECTED_BYTES_MAX;

/// The memory of the bodies that are collected, and the bodies that have something to do.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    pub(crate) bytes: Rc<Cell<u64>>,
    /// The bodies that may need an operation of a file.
    pub(crate) wanting: RefCell<Vec<Weak<RefCell<Input>>>>,
    /// True if a client has found no room because other clients use the memory.
    pub(crate) starves: Cell<bool>,
}

impl Pool {
    /// Returns true if no body has bytes, wants an operation or waits for room.
    pub(crate) fn is_idle(&self) -> bool {
        self.bytes.get() == 0 && !self.starves.get() && self.wanting.borrow().is_empty()
    }
}

/// The memory and the directory that may store a body while it is collected.
#[derive(Clone, Debug)]
pub struct Storage {
    /// The bytes of the body that may wait in memory. At most [`COLLECTED_BYTES_MAX`].
    pub memory_max: u64,
    /// The client to whose share of memory and files the body belongs.
    pub client: Holder,
    /// The directory for the file of the body.
    pub dir: Box<Path>,
    /// The device of that directory, as long as nothing is open there.
    pub device: Device,
}

/// The state of a body that is collected whole, in addition to the state that each body has ([`Input`]).
#[derive(Debug)]
pub(crate) struct Collected {
    this: Weak<RefCell<Input>>,
    ticket: Ticket,
    pool: Rc<Pool>,
    pub(super) charge: Charge,
    storage: Storage,
    file: Option<BodyFile>,
    /// True while other bodies need the memory of this body.
    is_pressed: bool,
    /// True while this body is among the bodies that may need an operation.
    is_listed: bool,
    /// True if the client of this body has found no room because other clients use the memory.
    starves: Cell<bool>,
}

/// The file of a body. First all bytes of the file are written, then all bytes are read.
#[derive(Debug)]
struct BodyFile {
    reservation: Rc<quota::Reservation>,
    /// `None` until it is open.
    fd: Option<Fd>,
    /// True while an operation is in flight.
    is_busy: bool,
    /// Bytes that are on their way into the file.
    writing: u64,
    written: u64,
    /// Bytes of the file that were read, or are in `ready`.
    read: u64,
    /// Bytes that were read, and the number of these bytes that were taken.
    ready: Option<(Buffer, usize)>,
    buffers: Option<BufferPool>,
}

/// The next operation of a file.
#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) op: Op,
    pub(crate) device: Device,
    /// The file counts as long as the operation is in flight.
    pub(crate) reservation: Rc<quota::Reservation>,
}

/// The event that a body waits for.
#[derive(Debug)]
pub(crate) enum Wait {
    /// The body waits for no file.
    Nothing,
    /// The body waits for the end of this operation.
    Step(Step),
    /// The body waits for room among all files. Other files give way.
    Room,
}

/// The reason why a body is given up.
#[derive(Debug)]
pub(crate) enum Fault {
    /// All files together have as many bytes as they may have, and the client of this body has more of these bytes than
    /// any other client.
    NoRoom,
    /// The disk has failed.
    Disk(io::Error),
}

impl Collected {
    pub(crate) fn new(
        this: Weak<RefCell<Input>>,
        ticket: Ticket,
        pool: &Rc<Pool>,
        storage: Storage,
    ) -> Self {
        let memory_max = storage.memory_max.min(COLLECTED_BYTES_MAX);
        Self {
            this,
            ticket,
            pool: Rc::clone(pool),
            charge: Charge::new(Rc::clone(&pool.bytes)),
            storage: Storage { memory_max, ..storage },
            file: None,
            is_pressed: false,
            is_listed: false,
            starves: Cell::new(false),
        }
    }

    /// The room in memory while `waiting` bytes wait there.
    pub(super) fn room(&self, waiting: u64) -> u64 {
        // The session also needs room for the framing of the last bytes.
        let most = match self.file {
            None => self.storage.memory_max,
            Some(_) => self.storage.memory_max.min(WRITE_BYTES),
        };
        let own = (most + CONSUMER_ROOM_MIN).saturating_sub(waiting);
        let of_all = POOL_BYTES_MAX.saturating_sub(self.pool.bytes.get());
        if own >= CONSUMER_ROOM_MIN && of_all < CONSUMER_ROOM_MIN {
            self.starves.set(true);
            self.pool.starves.set(true);
        }
        own.min(of_all)
    }

    /// Bytes in memory that are on their way to the file or from the file.
    pub(super) fn in_flight(&self) -> u64 {
        self.file.as_ref().map_or(0, |file| file.writing + file.ready_bytes().len() as u64)
    }

    /// Bytes that were read and not taken.
    pub(super) fn ready(&self) -> &[u8] {
        self.file.as_ref().map_or(&[], |file| file.ready_bytes())
    }

    pub(super) fn drop_file(&mut self) {
        self.file = None;
    }

    /// Notes that the body may need an operation.
    fn want(&mut self) {
        if !core::mem::replace(&mut self.is_listed, true) {
            self.pool.wanting.borrow_mut().push(Weak::clone(&self.this));
        }
    }
}

impl BodyFile {
    fn ready_bytes(&self) -> &[u8] {
        self.ready.as_ref().map_or(&[], |(buffer, taken)| &buffer[*taken..])
    }

    /// Bytes of the body that are in the file or on the way, and were not taken.
    fn left(&self) -> u64 {
        self.written - self.read + self.writing + self.ready_bytes().len() as u64
    }
}

impl Input {
    fn collected(&mut self) -> Option<&mut Collected> {
        match &mut self.stage {
            Stage::Whole(collected) => Some(collected),
            _ => None,
        }
    }

    /// Bytes of the body that are in a file, on the way to the file, or on the way back.
    pub(super) fn in_file(&self) -> u64 {
        match &self.stage {
            Stage::Whole(collected) => collected.file.as_ref().map_or(0, BodyFile::left),
            _ => 0,
        }
    }

    /// Counts the memory that the body takes.
    pub(super) fn account(&mut self) {
        let waiting = self.waiting.len() as u64;
        if let Some(collected) = self.collected() {
            let in_flight = collected.in_flight();
            collected.charge.set(waiting + in_flight);
        }
    }

    /// Notes that more of a collected body has come.
    pub(super) fn handle_more(&mut self) {
        self.account();
        let waiting = self.waiting.len() as u64;
        if let Some(collected) = self.collected()
            && (collected.file.is_some() || waiting > collected.storage.memory_max)
        {
            collected.want();
        }
    }

    /// Notes that all of the body has come. From now on the bytes in the file are read.
    pub(super) fn handle_end(&mut self) {
        if let Some(collected) = self.collected()
            && let Some(file) = &collected.file
        {
            file.reservation.stay();
            collected.want();
        }
    }

    /// Handles bytes that were read from the file.
    pub(super) fn consume_ready(&mut self, count: usize) {
        let Some(collected) = self.collected() else { return };
        let Some(file) = &mut collected.file else { return };
        if let Some((_, taken)) = &mut file.ready {
            *taken += count;
        }
        if file.ready_bytes().is_empty() {
            file.ready = None;
            if file.left() > 0 {
                collected.want();
            } else {
                // Other files may use the reservation of this file.
                collected.file = None;
            }
        }
        self.account();
    }

    /// Bytes of memory that the body takes.
    #[cfg(test)]
    pub(crate) fn memory(&self) -> u64 {
        match &self.stage {
            Stage::Whole(collected) => self.waiting.len() as u64 + collected.in_flight(),
            _ => 0,
        }
    }

    /// Bytes of memory that other bodies would get if this body went to a file. The value is 0 if the body is on its
    /// way there already.
    pub(crate) fn spillable(&self) -> u64 {
        match &self.stage {
            Stage::Whole(collected) if !collected.is_pressed => self.waiting.len() as u64,
            _ => 0,
        }
    }

    /// The client of the body, if the body is collected.
    pub(crate) const fn client(&self) -> Holder {
        match &self.stage {
            Stage::Whole(collected) => collected.storage.client,
            _ => None,
        }
    }

    /// The directory for the file of the body, if the body is collected.
    pub(crate) fn dir(&self) -> &Path {
        match &self.stage {
            Stage::Whole(collected) => &collected.storage.dir,
            _ => Path::new(""),
        }
    }

    /// The request of the body, if the body is collected.
    pub(crate) const fn ticket(&self) -> Option<Ticket> {
        match &self.stage {
            Stage::Whole(collected) => Some(collected.ticket),
            _ => None,
        }
    }

    /// Notes that other bodies need the memory of this body.
    pub(crate) fn press(&mut self) {
        if let Some(collected) = self.collected() {
            collected.is_pressed = true;
            collected.want();
        }
    }

    /// Returns true if the client of the body has found no room because other clients use the memory. The next call
    /// returns false.
    pub(crate) fn take_starving(&mut self) -> bool {
        self.collected().is_some_and(|collected| collected.starves.take())
    }

    /// Returns true if the body has a file, or will get a file soon.
    pub(crate) const fn has_file(&self) -> bool {
        matches!(&self.stage, Stage::Whole(collected) if collected.file.is_some())
    }

    /// Returns true if the file of the body has to make room for other files.
    pub(crate) fn gives_way(&self) -> bool {
        let Stage::Whole(collected) = &self.stage else { return false };
        self.rest == Rest::Coming
            && collected.file.as_ref().is_some_and(|file| file.reservation.gives_way())
    }

    /// Gives the body up: nothing uses the body.
    pub(crate) fn give_up(&mut self) {
        self.rest = Rest::NoRoom;
        self.release();
        self.touch();
    }

    /// Returns the next operation, and counts it as in flight.
    pub(crate) fn next_step(&mut self, quota: &Arc<Quota>) -> Result<Wait, Fault> {
        let next = self.decide(quota)?;
        if self.waiting.is_empty()
            && let Some(collected) = self.collected()
        {
            collected.is_pressed = false;
        }
        self.account();
        Ok(next)
    }

    fn decide(&mut self, quota: &Arc<Quota>) -> Result<Wait, Fault> {
        let Self { waiting, stage: Stage::Whole(collected), rest, .. } = self else {
            return Ok(Wait::Nothing);
        };
        let Collected { file, storage, is_pressed, is_listed, .. } = &mut **collected;
        *is_listed = false;
        if !matches!(rest, Rest::Coming | Rest::None) {
            return Ok(Wait::Nothing);
        }
        let (is_coming, waits) = (*rest == Rest::Coming, waiting.len() as u64);
        if file.is_none() && (waits > storage.memory_max || *is_pressed && waits > 0) {
            let reservation = Rc::new(quota.add(storage.client));
            if !is_coming {
                reservation.stay();
            }
            *file = Some(BodyFile::new(reservation));
        }
        let Some(file) = file.as_mut().filter(|file| !file.is_busy) else {
            return Ok(Wait::Nothing);
        };
        let Some(fd) = &file.fd else {
            return match file.reservation.reserve(waits.min(WRITE_BYTES)) {
                Room::Granted => {
                    file.is_busy = true;
                    Ok(Wait::Step(Step {
                        op: open(&storage.dir),
                        device: storage.device,
                        reservation: Rc::clone(&file.reservation),
                    }))
                }
                Room::Soon => Ok(Wait::Room),
                Room::None => Err(Fault::NoRoom),
            };
        };
        let (fd, device, reservation) = (fd.clone(), fd.device(), Rc::clone(&file.reservation));
        if !is_coming && file.ready.is_none() && file.read < file.written {
            let left = usize::try_from(file.written - file.read).unwrap_or(READ_BYTES);
            let buf = file.buffer(left.min(READ_BYTES)).map_err(Fault::Disk)?;
            file.is_busy = true;
            let op = Op::Read { file: fd, offset: file.read, buf, caching: Caching::Keep };
            return Ok(Wait::Step(Step { op, device, reservation }));
        }
        let least = match (*is_pressed, is_coming) {
            (true, _) => 1,
            (false, true) => WRITE_BYTES_MIN.min(storage.memory_max),
            // The file is read soon, so it need not go to the disk first.
            (false, false) => return Ok(Wait::Nothing),
        };
        if waits < least {
            return Ok(Wait::Nothing);
        }
        let count = waits.min(WRITE_BYTES);
        match file.reservation.reserve(file.written + count) {
            Room::Granted => {}
            Room::Soon => return Ok(Wait::Room),
            Room::None => return Err(Fault::NoRoom),
        }
        file.is_busy = true;
        file.writing = count;
        let bytes = waiting.drain(..usize::try_from(count).unwrap_or(usize::MAX)).collect();
        if waiting.is_empty() {
            // The bytes that were collected before the body had a file took more memory.
            *waiting = VecDeque::new();
        }
        Ok(Wait::Step(Step { op: Op::Write { file: fd, at: None, bytes }, device, reservation }))
    }

    /// Handles the result of an operation. Returns the next operation if this operation has to go on with the same
    /// bytes.
    pub(crate) fn handle_step(&mut self, result: io::Result<Event>) -> Result<Option<Step>, Fault> {
        let Some(collected) = self.collected() else { return Ok(None) };
        let Some(file) = &mut collected.file else { return Ok(None) };
        file.is_busy = false;
        let mut again = None;
        match result.map_err(Fault::Disk)? {
            Event::Opened(fd) => file.fd = Some(fd),
            Event::Written(_, 0) => return Err(Fault::Disk(io::ErrorKind::WriteZero.into())),
            Event::Written(mut bytes, count) => {
                file.written += count as u64;
                file.writing -= count as u64;
                bytes.drain(..count);
                if let Some(fd) = file.fd.clone().filter(|_| !bytes.is_empty()) {
                    file.is_busy = true;
                    let (device, reservation) = (fd.device(), Rc::clone(&file.reservation));
                    again = Some(Step {
                        op: Op::Write { file: fd, at: None, bytes },
                        device,
                        reservation,
                    });
                }
            }
            Event::Read(buffer) if buffer.is_empty() => {
                return Err(Fault::Disk(io::ErrorKind::UnexpectedEof.into()));
            }
            Event::Read(buffer) => {
                file.read += buffer.len() as u64;
                file.ready = Some((buffer, 0));
            }
            other => unreachable!("no operation of a body: {other:?}"),
        }
        if again.is_none() {
            collected.want();
        }
        self.account();
        // The program or the application of the body can perhaps go on.
        self.touch();
        Ok(again)
    }
}

impl BodyFile {
    const fn new(reservation: Rc<quota::Reservation>) -> Self {
        Self {
            reservation,
            fd: None,
            is_busy: false,
            writing: 0,
            written: 0,
            read: 0,
            ready: None,
            buffers: None,
        }
    }

    /// Each file has a buffer of its own. So a file whose disk hangs keeps no buffer from other files.
    fn buffer(&mut self, bytes: usize) -> io::Result<Buffer> {
        let buffers = match self.buffers.take() {
            Some(buffers) => buffers,
            None => BufferPool::new(READ_BYTES, 1)?,
        };
        let buffer = self.buffers.insert(buffers).take(bytes);
        buffer.ok_or_else(|| io::ErrorKind::OutOfMemory.into())
    }
}

/// Makes a file without a name.
fn open(dir: &Path) -> Op {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::APPEND;
    let how = OpenHow { flags: flags.bits().cast_signed(), mode: 0o600, resolve: 0 };
    // A path of a configuration has no NUL byte.
    let path = CString::new(dir.as_os_str().as_bytes()).unwrap_or_default();
    Op::Open { dir: None, path, how }
}
