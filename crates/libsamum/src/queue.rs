//! A queue for C: each object has a name, which is a number. An invalid name is an error and never undefined
//! behaviour.

use core::ffi::{CStr, c_int};
use core::net::{SocketAddr, SocketAddrV6};
use core::time::Duration;
use std::collections::{HashMap, VecDeque};
use std::ffi::{CString, OsStr};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::rc::Rc;

use ring::{Address, Choice, Event, Fd, FileKind, Key, Listing, Op, Ring, Slab, Waker};
use rustix::fs::{AtFlags, FileType, OFlags, StatxFlags};
use rustix::io::Errno;
use sendfile::{
    CALLS_MAX, Caching, Call, Calls, DiskConfig, Done, File, Full, Outcome, Part, Policy, Room,
    Socket, Window,
};

use crate::errno;

/// The kind of a named object, in the highest byte of the name; the rest is a key. So no name is 0, and the name of
/// a file is never the name of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Socket = 1,
    Call = 2,
    Object = 3,
}

/// Bits of a key.
const KEY_BITS: u32 = 56;

const fn name(kind: Kind, key: u64) -> u64 {
    (kind as u64) << KEY_BITS | key
}

/// The key of a name of this kind.
fn key(kind: Kind, name: u64) -> Option<Key> {
    (name >> KEY_BITS == kind as u64).then(|| Key::from_bits(name))
}

/// Reads `SAMUM_NOCACHE` and its siblings; 0 is `None`: the default applies.
const fn caching(number: u32) -> Result<Option<Caching>> {
    match number {
        0 => Ok(None),
        1 => Ok(Some(Caching::Never)),
        2 => Ok(Some(Caching::Always)),
        3 => Ok(Some(Caching::Popular)),
        _ => Err(libc::EINVAL),
    }
}

/// An object of a queue that is not a socket.
#[derive(Debug)]
enum Object {
    Listener(Fd),
    Directory(Fd),
    File(OpenFile),
    Listing(Listing),
}

/// A file, and what may be done with it.
#[derive(Debug)]
struct OpenFile {
    file: Rc<File>,
    caching: Caching,
    /// Its attributes; the size is that of `file`.
    stat: ring::Stat,
    access: Access,
}

/// The directions in which a file was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Access {
    reads: bool,
    writes: bool,
}

impl Access {
    /// Of a file that the library has opened.
    const READ: Self = Self { reads: true, writes: false };
}

/// A file that becomes larger by a call.
#[derive(Clone, Copy, Debug)]
struct Growing {
    /// The file's name.
    file: u64,
    /// The position of the first byte that is written.
    offset: u64,
}

/// `struct samum_completion`.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Completion {
    token: u64,
    call: u64,
    name: u64,
    bytes: u64,
    event: u32,
    error: c_int,
}

/// `struct samum_stat`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stat {
    size: u64,
    mtime: i64,
    ctime: i64,
    device: u64,
    inode: u64,
    mtime_nanos: u32,
    ctime_nanos: u32,
}

impl From<&ring::Stat> for Stat {
    fn from(stat: &ring::Stat) -> Self {
        let &ring::Stat { size, mtime, mtime_nanos, ctime, ctime_nanos, dev, ino, .. } = stat;
        let half = |bits: u64| u32::try_from(bits & 0xffff_ffff).expect("32 bits");
        let device = libc::makedev(half(dev >> 32), half(dev));
        Self { size, mtime, ctime, device, inode: ino, mtime_nanos, ctime_nanos }
    }
}

/// An entry of a directory.
#[derive(Debug)]
pub(crate) struct Entry<'a> {
    pub(crate) name: &'a CStr,
    pub(crate) size: u64,
    pub(crate) mtime: i64,
    /// `enum samum_kind`.
    pub(crate) kind: u32,
}

/// `enum samum_event`.
#[derive(Clone, Copy, Debug)]
enum What {
    Sent = 1,
    Received = 2,
    Accepted = 3,
    Opened = 4,
    Connected = 5,
    Timer = 6,
    Signal = 7,
    Acknowledged = 8,
    Listed = 9,
    Watching = 10,
    Changed = 11,
    Exited = 12,
    Read = 13,
    Stored = 14,
    Ready = 15,
    Woken = 16,
}

/// A piece of a send: memory, or a range of a file.
#[derive(Debug)]
pub(crate) enum Piece {
    Memory(&'static [u8]),
    File { name: u64, offset: u64, length: u64, readahead: u32, caching: u32 },
}

impl Piece {
    const fn len(&self) -> u64 {
        match self {
            Self::Memory(bytes) => bytes.len() as u64,
            Self::File { length, .. } => *length,
        }
    }
}

/// `SAMUM_READABLE` and `SAMUM_WRITABLE`.
#[derive(Clone, Copy, Debug)]
enum Direction {
    In,
    Out,
}

/// The maximum bytes of one send. With this limit, sums of positions and sizes stay below 2⁶⁴.
const SEND_BYTES_MAX: u64 = 1 << 62;

/// The initial limit on the time of a disk operation: the default of `samum serve --timeout-disk`.
const PATIENCE: Duration = Duration::from_secs(30);
/// The longest time for which the end of a queue waits for operations under way. A busy disk may take this long.
const DROP_LIMIT: Duration = Duration::from_secs(1);

/// The calls of one queue, and their objects.
#[derive(Debug)]
pub(crate) struct Queue {
    objects: Slab<Object>,
    /// Completions that C has not taken yet.
    waiting: VecDeque<Completion>,
    batch: Vec<Done>,
    /// The caching choices of files that are being opened. Files with the default have no entry.
    caching: HashMap<u64, Caching>,
    /// The files of receives into files.
    growing: HashMap<u64, Growing>,
    calls: Calls,
}

/// A result with the errno of the failure.
pub(crate) type Result<T> = core::result::Result<T, c_int>;

impl Queue {
    pub(crate) fn new() -> Result<Self> {
        let config = DiskConfig { patience: Some(PATIENCE), ..DiskConfig::default() };
        let calls = Ring::new(Choice::Auto).and_then(|mut ring| {
            ring.set_drop_limit(Some(DROP_LIMIT));
            Calls::new(ring, config)
        });
        let calls = calls.map_err(|error| errno::of_error(&error))?;
        Ok(Self {
            objects: Slab::new(),
            waiting: VecDeque::new(),
            batch: Vec::new(),
            caching: HashMap::new(),
            growing: HashMap::new(),
            calls,
        })
    }

    pub(crate) const fn set_patience(&mut self, patience: Option<Duration>) {
        self.calls.set_patience(patience);
    }

    pub(crate) fn socket(&mut self, fd: OwnedFd) -> u64 {
        let fd = self.calls.ring().adopt_socket(fd);
        name(Kind::Socket, self.calls.adopt(fd).to_bits())
    }

    pub(crate) fn listener(&mut self, fd: OwnedFd) -> u64 {
        let fd = self.calls.ring().adopt_socket(fd);
        self.insert(Object::Listener(fd))
    }

    pub(crate) fn directory(&mut self, fd: OwnedFd) -> u64 {
        let fd = self.calls.ring().adopt_file(fd);
        self.insert(Object::Directory(fd))
    }

    /// Takes a file that was [checked](check_file).
    pub(crate) fn file(
        &mut self,
        fd: OwnedFd,
        caching: Caching,
        (stat, access): (ring::Stat, Access),
    ) -> u64 {
        let fd = self.calls.ring().adopt_file(fd);
        let file = Rc::new(File::new(fd, &stat));
        self.insert(Object::File(OpenFile { file, caching, stat, access }))
    }

    fn insert(&mut self, object: Object) -> u64 {
        name(Kind::Object, self.objects.insert(object).to_bits())
    }

    fn object(&self, name: u64) -> Result<&Object> {
        key(Kind::Object, name).and_then(|key| self.objects.get(key)).ok_or(libc::EBADF)
    }

    fn open_socket(&self, name: u64) -> Result<Socket> {
        let socket = key(Kind::Socket, name).map(|key| Socket::from_bits(key.to_bits()));
        socket.filter(|socket| self.calls.is_open(*socket)).ok_or(libc::EBADF)
    }

    pub(crate) fn close(&mut self, name: u64) -> Result<()> {
        if let Ok(socket) = self.open_socket(name) {
            self.calls.close(socket);
            return Ok(());
        }
        let object = key(Kind::Object, name).and_then(|key| self.objects.remove(key));
        object.map(drop).ok_or(libc::EBADF)
    }

    pub(crate) fn shutdown(&mut self, socket: u64) -> Result<()> {
        let socket = self.open_socket(socket)?;
        self.calls.shutdown(socket);
        Ok(())
    }

    pub(crate) fn accept(&mut self, listener: u64, token: u64) -> Result<u64> {
        let Object::Listener(fd) = self.object(listener)? else { return Err(libc::EBADF) };
        let fd = fd.clone();
        self.begin(|calls| calls.accept(&fd, token))
    }

    pub(crate) fn connect(&mut self, address: Address, token: u64) -> Result<u64> {
        self.begin(|calls| calls.connect(address, token))
    }

    pub(crate) fn acknowledged(&mut self, socket: u64) -> Result<u64> {
        let socket = self.open_socket(socket)?;
        Ok(self.calls.acknowledged(socket))
    }

    pub(crate) fn acknowledgement(&mut self, socket: u64, bytes: u64, token: u64) -> Result<u64> {
        let socket = self.open_socket(socket)?;
        self.begin(|calls| calls.acknowledgement(socket, bytes, token))
    }

    pub(crate) fn timer(&mut self, after: Duration, token: u64) -> Result<u64> {
        let at = self.calls.ring().now() + after;
        self.begin(|calls| calls.timer(at, token))
    }

    pub(crate) fn signal(&mut self, number: c_int, token: u64) -> Result<u64> {
        // The library blocks SIGPIPE while a function runs (`sigpipe`), so no call may wait for it.
        if number == libc::SIGPIPE {
            return Err(libc::EINVAL);
        }
        self.begin(|calls| calls.signal(number, token))
    }

    pub(crate) fn child(&mut self, pid: libc::pid_t, token: u64) -> Result<u64> {
        // For waitpid(2), numbers up to 0 mean several children.
        let id = u32::try_from(pid).ok().filter(|id| *id > 0).ok_or(libc::EINVAL)?;
        self.begin(|calls| calls.child(id, token))
    }

    /// Waits until a descriptor is ready.
    pub(crate) fn ready(&mut self, fd: OwnedFd, direction: u32, token: u64) -> Result<u64> {
        let direction = match direction {
            1 => Direction::In,
            2 => Direction::Out,
            _ => return Err(libc::EINVAL),
        };
        // io_uring reports a file as ready, and epoll does not accept it.
        if let FileType::RegularFile | FileType::Directory = kind(fd.as_fd())? {
            return Err(libc::EPERM);
        }
        let fd = self.calls.ring().adopt_socket(fd);
        let op = match direction {
            Direction::In => Op::Readable(fd),
            Direction::Out => Op::Writable(fd),
        };
        self.begin(|calls| calls.submit(op, token))
    }

    pub(crate) fn waker(&mut self) -> Result<Waker> {
        // Its events are of no call, so they have no token.
        self.calls.waker(0).map_err(|error| errno::of_error(&error))
    }

    fn open_file(&self, name: u64) -> Result<&OpenFile> {
        match self.object(name)? {
            Object::File(file) => Ok(file),
            _ => Err(libc::EBADF),
        }
    }

    fn open_directory(&self, name: u64) -> Result<Fd> {
        match self.object(name)? {
            Object::Directory(fd) => Ok(fd.clone()),
            _ => Err(libc::EBADF),
        }
    }

    pub(crate) fn watch(&mut self, directory: u64, path: CString, token: u64) -> Result<u64> {
        let dir = self.open_directory(directory)?;
        self.begin(|calls| calls.watch_file(&dir, path, token))
    }

    pub(crate) fn list(
        &mut self,
        directory: u64,
        path: CString,
        entries_max: usize,
        token: u64,
    ) -> Result<u64> {
        let dir = self.open_directory(directory)?;
        self.begin(|calls| calls.list(&dir, path, entries_max, token))
    }

    /// An entry of a listing. Its name stays at the same address until the listing is closed.
    pub(crate) fn entry(&mut self, listing: u64, index: usize) -> Result<Entry<'_>> {
        let object = key(Kind::Object, listing).and_then(|key| self.objects.get_mut(key));
        let Some(Object::Listing(listing)) = object else { return Err(libc::EBADF) };
        let end = if listing.truncated { libc::EOVERFLOW } else { libc::ENOENT };
        let entry = listing.entries.get_mut(index).ok_or(end)?;
        if entry.name.last() != Some(&0) {
            entry.name.push(0);
        }
        let name = CStr::from_bytes_with_nul(&entry.name).expect("a name has no NUL");
        let kind = match entry.kind {
            FileKind::Directory => 1,
            FileKind::Regular => 2,
            FileKind::Symlink => 3,
            FileKind::Other => 4,
        };
        Ok(Entry { name, size: entry.size, mtime: entry.mtime, kind })
    }

    pub(crate) fn stat(&self, file: u64) -> Result<Stat> {
        Ok((&self.open_file(file)?.stat).into())
    }

    pub(crate) fn open(
        &mut self,
        directory: u64,
        path: CString,
        flags: c_int,
        token: u64,
    ) -> Result<u64> {
        let caching = self::flags(flags)?;
        let dir = self.open_directory(directory)?;
        let call = self.begin(|calls| calls.open(&dir, path, token))?;
        if caching != Caching::default() {
            self.caching.insert(call, caching);
        }
        Ok(call)
    }

    pub(crate) fn send(
        &mut self,
        socket: u64,
        pieces: impl Iterator<Item = Result<Piece>>,
        readahead: u64,
        token: u64,
    ) -> Result<u64> {
        let socket = self.open_socket(socket)?;
        let window = if readahead == 0 { Window::default() } else { Window::of(readahead) };
        let mut room = SEND_BYTES_MAX;
        let mut part = |piece: Piece| {
            room = room.checked_sub(piece.len()).ok_or(libc::EINVAL)?;
            self.part(piece, window)
        };
        let parts = pieces.map(|piece| part(piece?)).collect::<Result<_>>()?;
        self.begin(|calls| calls.send(socket, parts, token))
    }

    fn part(&self, piece: Piece, window: Window) -> Result<Part> {
        match piece {
            Piece::Memory(bytes) => Ok(Part::Static(bytes)),
            Piece::File { name, offset, length, readahead, caching: own } => {
                let OpenFile { file, caching: opened, access, .. } = self.open_file(name)?;
                if !access.reads {
                    return Err(libc::EBADF);
                }
                let end = offset.checked_add(length).filter(|end| *end <= file.size());
                let caching = caching(own)?.unwrap_or(*opened);
                let window = if readahead == 0 { window } else { Window::of(readahead.into()) };
                let policy = Policy { caching, window };
                Ok(Part::File(Rc::clone(file), offset..end.ok_or(libc::EINVAL)?, policy))
            }
        }
    }

    pub(crate) fn receive(
        &mut self,
        socket: u64,
        room: &'static mut [u8],
        token: u64,
    ) -> Result<u64> {
        let socket = self.open_socket(socket)?;
        self.begin(|calls| calls.receive_into(socket, Room::Static(room), token))
    }

    /// Reads at most as many bytes as there is room for; fewer at the end of the file.
    pub(crate) fn read(
        &mut self,
        file: u64,
        offset: u64,
        room: &'static mut [u8],
        token: u64,
    ) -> Result<u64> {
        let OpenFile { file, caching, access, .. } = self.open_file(file)?;
        if !access.reads {
            return Err(libc::EBADF);
        }
        let start = offset.min(file.size());
        let end = file.size().min(start.saturating_add(room.len() as u64));
        let policy = Policy { caching: *caching, window: Window::default() };
        let file = Rc::clone(file);
        let room = Room::Static(room);
        self.begin(|calls| calls.read_into(&file, start..end, policy, room, token))
    }

    pub(crate) fn receive_file(
        &mut self,
        socket: u64,
        file: u64,
        offset: u64,
        length: u64,
        token: u64,
    ) -> Result<u64> {
        let socket = self.open_socket(socket)?;
        let OpenFile { file: open, access, .. } = self.open_file(file)?;
        if !access.writes {
            return Err(libc::EBADF);
        }
        let end = offset.checked_add(length).filter(|end| *end < SEND_BYTES_MAX);
        if length == 0 || end.is_none() {
            return Err(libc::EINVAL);
        }
        let fd = open.fd().clone();
        let call = self.begin(|calls| calls.receive_to_file(socket, &fd, offset, length, token))?;
        self.growing.insert(call, Growing { file, offset });
        Ok(call)
    }

    /// Takes account of bytes that were written to a file: ranges of later calls may end after them.
    fn grow(&mut self, call: u64, bytes: u64) {
        let Some(Growing { file, offset }) = self.growing.remove(&call) else { return };
        let object = key(Kind::Object, file).and_then(|key| self.objects.get_mut(key));
        if let Some(Object::File(open)) = object
            && bytes > 0
            && offset + bytes > open.file.size()
        {
            open.stat.size = offset + bytes;
            open.file = Rc::new(File::new(open.file.fd().clone(), &open.stat));
        }
    }

    pub(crate) fn cancel(&mut self, call: u64) -> Result<()> {
        let key = key(Kind::Call, call).ok_or(libc::EINVAL)?;
        self.calls.cancel(Call::from_bits(key.to_bits()));
        Ok(())
    }

    /// Begins a call, and returns its name. Completions that C has not taken count for the limit, too.
    fn begin<T>(
        &mut self,
        begin: impl FnOnce(&mut Calls) -> core::result::Result<Call, Full<T>>,
    ) -> Result<u64> {
        if self.calls.pending() + self.waiting.len() >= CALLS_MAX {
            return Err(libc::EAGAIN);
        }
        let call = begin(&mut self.calls).map_err(|_| libc::EAGAIN)?;
        Ok(name(Kind::Call, call.to_bits()))
    }

    /// Waits until a call has completed or the time is over, and returns at most `most` completions.
    pub(crate) fn wait(
        &mut self,
        limit: Option<Duration>,
        most: usize,
    ) -> Result<impl ExactSizeIterator<Item = Completion>> {
        if self.waiting.is_empty() {
            let mut batch = core::mem::take(&mut self.batch);
            let until = limit.map(|limit| self.calls.ring().now() + limit);
            let waited = self.calls.wait(until, &mut batch);
            for done in batch.drain(..) {
                let completion = self.completion(done);
                self.waiting.push_back(completion);
            }
            self.batch = batch;
            waited.map_err(|error| errno::of_error(&error))?;
        }
        let count = self.waiting.len().min(most);
        Ok(self.waiting.drain(..count))
    }

    /// Waits until one call has completed, and leaves the completions of others for [`wait`](Self::wait).
    pub(crate) fn wait_for(&mut self, call: u64, limit: Option<Duration>) -> Result<Completion> {
        let key = key(Kind::Call, call).ok_or(libc::EINVAL)?;
        if let Some(at) = self.waiting.iter().position(|one| one.call == call) {
            return self.waiting.remove(at).ok_or(libc::EINVAL);
        }
        let call = Call::from_bits(key.to_bits());
        if !self.calls.is_pending(call) {
            return Err(libc::EINVAL);
        }
        let until = limit.map(|limit| self.calls.ring().now() + limit);
        let waited = self.calls.wait_for(call, until);
        let done = waited.map_err(|error| errno::of_error(&error))?.ok_or(libc::ETIMEDOUT)?;
        Ok(self.completion(done))
    }

    fn completion(&mut self, done: Done) -> Completion {
        let Done { call, token, outcome, .. } = done;
        let call = name(Kind::Call, call.to_bits());
        let (event, name_, bytes, error) = match outcome {
            Outcome::Sent { bytes, end } => {
                (What::Sent, 0, bytes, end.err().map(|stop| errno::of_stop(stop, libc::EPIPE)))
            }
            Outcome::Received { end: Ok(count), .. } => (What::Received, 0, count as u64, None),
            Outcome::Received { end: Err(stop), .. } => {
                (What::Received, 0, 0, Some(errno::of_stop(stop, libc::ECONNRESET)))
            }
            Outcome::Read { bytes, end, .. } => {
                (What::Read, 0, bytes as u64, end.err().map(|stop| errno::of_stop(stop, libc::EIO)))
            }
            Outcome::Stored { bytes, end } => {
                self.grow(call, bytes);
                let error = end.err().map(|stop| errno::of_stop(stop, libc::ECONNRESET));
                (What::Stored, 0, bytes, error)
            }
            Outcome::Acknowledged(Ok(bytes)) => (What::Acknowledged, 0, bytes, None),
            Outcome::Acknowledged(Err(stop)) => {
                (What::Acknowledged, 0, 0, Some(errno::of_stop(stop, libc::EPIPE)))
            }
            Outcome::Accepted(Ok(socket)) => {
                (What::Accepted, name(Kind::Socket, socket.to_bits()), 0, None)
            }
            Outcome::Accepted(Err(error)) => (What::Accepted, 0, 0, Some(errno::of_error(&error))),
            Outcome::Opened(Ok((file, stat))) => {
                let size = file.size();
                let caching = self.caching.remove(&call).unwrap_or_default();
                let (stat, access) = (*stat, Access::READ);
                let name = self.insert(Object::File(OpenFile { file, caching, stat, access }));
                (What::Opened, name, size, None)
            }
            Outcome::Opened(Err(error)) => {
                self.caching.remove(&call);
                (What::Opened, 0, 0, Some(errno::of_error(&error)))
            }
            Outcome::Connected(Ok(socket)) => {
                (What::Connected, name(Kind::Socket, socket.to_bits()), 0, None)
            }
            Outcome::Connected(Err(error)) => {
                (What::Connected, 0, 0, Some(errno::of_error(&error)))
            }
            Outcome::Timer(end) => {
                (What::Timer, 0, 0, end.err().map(|error| errno::of_error(&error)))
            }
            Outcome::Signal(end) => {
                (What::Signal, 0, 0, end.err().map(|error| errno::of_error(&error)))
            }
            Outcome::Listed(Ok(listing)) => {
                let count = listing.entries.len() as u64;
                (What::Listed, self.insert(Object::Listing(*listing)), count, None)
            }
            Outcome::Listed(Err(error)) => (What::Listed, 0, 0, Some(errno::of_error(&error))),
            Outcome::Watching => (What::Watching, 0, 0, None),
            Outcome::Changed(end) => {
                (What::Changed, 0, 0, end.err().map(|error| errno::of_error(&error)))
            }
            Outcome::Exited(Ok(status)) => {
                (What::Exited, 0, status.into_raw().cast_unsigned().into(), None)
            }
            Outcome::Exited(Err(error)) => (What::Exited, 0, 0, Some(errno::of_error(&error))),
            Outcome::Event(Ok(Event::Woken)) => {
                return Completion {
                    token,
                    call: 0,
                    name: 0,
                    bytes: 0,
                    event: What::Woken as u32,
                    error: 0,
                };
            }
            Outcome::Event(Ok(Event::Readable | Event::Writable)) => (What::Ready, 0, 0, None),
            Outcome::Event(Err(error)) => (What::Ready, 0, 0, Some(errno::of_error(&error))),
            Outcome::Event(event) => unreachable!("nothing else is begun here: {event:?}"),
        };
        let error = error.unwrap_or(0);
        Completion { token, call, name: name_, bytes, event: event as u32, error }
    }
}

/// The address in a `struct sockaddr` of this size.
pub(crate) fn address(raw: &[u8]) -> Result<Address> {
    let part = |from: usize, to: usize| raw.get(from..to).ok_or(libc::EINVAL);
    let word = |at: usize| part(at, at + 4).map(|bytes| bytes.try_into().expect("four bytes"));
    let port = || part(2, 4).map(|bytes| u16::from_be_bytes([bytes[0], bytes[1]]));
    let family = part(0, 2).map(|bytes| u16::from_ne_bytes([bytes[0], bytes[1]]))?;
    match c_int::from(family) {
        libc::AF_INET => {
            part(0, size_of::<libc::sockaddr_in>())?;
            let ip: [u8; 4] = word(4)?;
            Ok(SocketAddr::from((ip, port()?)).into())
        }
        libc::AF_INET6 => {
            let ip: [u8; 16] = part(8, 24)?.try_into().expect("sixteen bytes");
            let [flow, scope] = [u32::from_ne_bytes(word(4)?), u32::from_ne_bytes(word(24)?)];
            Ok(SocketAddr::V6(SocketAddrV6::new(ip.into(), port()?, flow, scope)).into())
        }
        libc::AF_UNIX => {
            let path = raw[2..].split(|byte| *byte == 0).next().expect("split yields one");
            let address = Address::unix(OsStr::from_bytes(path));
            address.map_err(|error| errno::of_error(&error))
        }
        _ => Err(libc::EAFNOSUPPORT),
    }
}

/// Refuses a descriptor of another file type.
pub(crate) fn check(fd: &OwnedFd, wanted: FileType, otherwise: c_int) -> Result<()> {
    if kind(fd.as_fd())? == wanted { Ok(()) } else { Err(otherwise) }
}

/// The file type of a descriptor. The server of a network file system is not asked.
fn kind(fd: BorrowedFd<'_>) -> Result<FileType> {
    let how = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let stat = rustix::fs::statx(fd, c"", how, StatxFlags::TYPE).map_err(Errno::raw_os_error)?;
    Ok(FileType::from_raw_mode(stat.stx_mode.into()))
}

/// Reads the `flags` of a file.
pub(crate) fn flags(flags: c_int) -> Result<Caching> {
    let flags = u32::try_from(flags).map_err(|_| libc::EINVAL)?;
    Ok(caching(flags)?.unwrap_or_default())
}

/// Checks a descriptor for [`Queue::file`], and prepares it: as the library opens files, without `O_NONBLOCK`, and with
/// `O_NOATIME` if the kernel permits that.
pub(crate) fn check_file(fd: &OwnedFd) -> Result<(ring::Stat, Access)> {
    let stat = ring::Stat::local(fd).map_err(|error| errno::of_error(&error))?;
    match stat.kind {
        FileKind::Regular => {}
        FileKind::Directory => return Err(libc::EISDIR),
        FileKind::Symlink | FileKind::Other => return Err(libc::EINVAL),
    }
    let flags = rustix::fs::fcntl_getfl(fd).map_err(Errno::raw_os_error)?;
    if flags.contains(OFlags::PATH) {
        return Err(libc::EBADF);
    }
    // Buffers and positions of such files have to be aligned, and writes go to the end.
    if flags.intersects(OFlags::DIRECT | OFlags::APPEND) {
        return Err(libc::EINVAL);
    }
    let kept = flags - OFlags::NONBLOCK;
    if rustix::fs::fcntl_setfl(fd, kept | OFlags::NOATIME).is_err() {
        // It may be another user's file. This fails for none of the flags that can be set.
        let _ = rustix::fs::fcntl_setfl(fd, kept);
    }
    let mode = flags & OFlags::ACCMODE;
    Ok((stat, Access { reads: mode != OFlags::WRONLY, writes: mode != OFlags::RDONLY }))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_piece_has_its_own_policy_or_that_of_its_file_and_its_call() {
        let mut queue = Queue::new().unwrap();
        let dir = queue.directory(fs::File::open(env!("CARGO_MANIFEST_DIR")).unwrap().into());
        let [plain, never, always] = [0, 1, 2].map(|flags| {
            queue.open(dir, c"Cargo.toml".into(), flags, 0).unwrap();
            let done = queue.wait(None, 1).unwrap().next().expect("there is no limit of time");
            assert_eq!(done.error, 0);
            done.name
        });
        let policy = |name, readahead, caching| {
            let piece = Piece::File { name, offset: 0, length: 1, readahead, caching };
            let Part::File(_, _, policy) = queue.part(piece, Window::of(7))? else {
                panic!("a file is one")
            };
            Ok((policy.caching, policy.window.bytes()))
        };
        assert_eq!(policy(plain, 0, 0), Ok((Caching::Popular, 7)));
        assert_eq!(policy(plain, 9, 1), Ok((Caching::Never, 9)));
        assert_eq!(policy(plain, u32::MAX, 2), Ok((Caching::Always, u32::MAX.into())));
        assert_eq!(policy(never, 0, 0), Ok((Caching::Never, 7)));
        assert_eq!(policy(never, 0, 3), Ok((Caching::Popular, 7)));
        assert_eq!(policy(always, 0, 0), Ok((Caching::Always, 7)));
        assert_eq!(policy(always, 0, 4), Err(libc::EINVAL));
    }

    #[test]
    fn an_address_is_read_from_its_bytes() {
        let family = |family: c_int| u16::try_from(family).unwrap().to_ne_bytes().to_vec();
        let v6 = [family(libc::AF_INET6), vec![0x1f, 0x90], vec![0; 4], vec![0xfe; 16], vec![0; 4]];
        let expected = SocketAddr::from(([0xfe_u8; 16], 8080)).into();
        assert_eq!(address(&v6.concat()), Ok(expected));
        assert_eq!(address(&v6.concat()[..27]), Err(libc::EINVAL));
        let v4 = [family(libc::AF_INET), vec![0, 80, 127, 0, 0, 1], vec![0xff; 8]].concat();
        assert_eq!(address(&v4), Ok(SocketAddr::from(([127, 0, 0, 1], 80)).into()));
        assert_eq!(address(&v4[..15]), Err(libc::EINVAL));
        let unix = |path: &[u8]| address(&[&family(libc::AF_UNIX), path].concat());
        assert_eq!(unix(b"/run/a\0rest"), Ok(Address::unix("/run/a").unwrap()));
        assert_eq!(unix(b"/run/a"), Ok(Address::unix("/run/a").unwrap()));
        assert_eq!(unix(b"\0abstract"), Err(libc::ENOENT));
        assert_eq!(unix(b""), Err(libc::ENOENT));
        assert_eq!((address(b"x"), address(&[9, 9])), (Err(libc::EINVAL), Err(libc::EAFNOSUPPORT)));
    }
}
