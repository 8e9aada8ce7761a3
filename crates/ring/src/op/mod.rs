//! What can be asked of a [`Ring`](crate::Ring), and what it answers.

use core::fmt;
use std::ffi::CString;
use std::io;

use crate::buffer::Buffer;
use crate::fd::Fd;
use crate::pipe::Pipe;
use crate::recv::RecvBuf;
use crate::slab::Key;
use crate::timers::Time;

/// The caller's name for an operation, given back with each of its completions.
pub type Token = u64;

/// An operation that may take time. It owns what it needs until its last completion.
#[derive(Debug)]
pub enum Op {
    /// `accept4(2)` again and again: one [`Event::Accepted`] for each connection, until cancelled
    /// or failed. The new sockets are nonblocking and close-on-exec.
    Accept(Fd),
    /// `recv(2)` again and again into buffers of the ring: one [`Event::Received`] for each
    /// piece, then [`Event::Eof`]. At most one per socket.
    Recv(Fd),
    /// Once: the socket or pipe can take bytes, or is dead. At most one per descriptor.
    Writable(Fd),
    /// Once: the descriptor has something to read, or is dead. Not together with [`Op::Recv`].
    Readable(Fd),
    /// `openat2(2)`. Where the kernel asks to try again (`EAGAIN`: a rename or mount anywhere ran
    /// beside a `..` of the path, and [`RESOLVE_BENEATH`](OpenHow::BENEATH) could not be ensured) it
    /// is tried 64 times, and then fails with `EAGAIN`.
    Open {
        /// The directory that `path` is relative to; `None` is the working directory.
        dir: Option<Fd>,
        /// The path.
        path: CString,
        /// Flags, mode and resolution.
        how: OpenHow,
    },
    /// `statx(2)` of an open descriptor.
    Stat(Fd),
    /// `preadv2(2)` of `buf.want()` bytes. Short only at the end of the file or on an error after
    /// some bytes. `EINVAL` at or beyond 2⁶².
    Read {
        /// A regular file.
        file: Fd,
        /// Bytes from the start of the file.
        offset: u64,
        /// Where the bytes go.
        buf: Buffer,
        /// What shall become of the page cache.
        caching: Caching,
    },
    /// `splice(2)` of `pipe.want()` bytes of a file into an empty pipe: pages, not copies. May be
    /// short; 0 is the end of the file. Not in the simulation.
    Splice {
        /// A regular file.
        file: Fd,
        /// Bytes from the start of the file.
        offset: u64,
        /// Where the pages go.
        pipe: Pipe,
    },
    /// `write(2)` at the end of a file opened for appending, or into a pipe. May be short.
    Write {
        /// The destination.
        file: Fd,
        /// What to write.
        bytes: Vec<u8>,
    },
    /// Read a directory: names, kinds, sizes and times. Directories come first, then the others,
    /// both by name; the thread that reads sorts.
    List {
        /// The directory, open for reading.
        dir: Fd,
        /// At most this many entries are kept; see [`Listing::truncated`].
        entries_max: usize,
    },
    /// Watch a directory: [`Event::Watching`] once, then [`Event::Changed`] for each change of an
    /// entry, until cancelled. Fails with `EOPNOTSUPP` where changes made elsewhere would go
    /// unseen (network file systems, FUSE) and with `ELOOP` where the path has a symbolic link.
    Watch {
        /// The directory that `path` is relative to and does not leave.
        root: Fd,
        /// The directory to watch; empty or `.` is `root` itself.
        path: CString,
    },
    /// `posix_fadvise(2)` `POSIX_FADV_DONTNEED`: drop a clean range from the page cache.
    Discard {
        /// A regular file.
        file: Fd,
        /// Bytes from the start of the file.
        offset: u64,
        /// Bytes; 0 means to the end.
        len: u64,
    },
    /// `fstatfs(2)`: which kind of file system a file is on.
    FileSystem(Fd),
    /// Once, when the ring's clock has reached this time.
    Timer(Time),
}

/// `struct open_how` of `openat2(2)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenHow {
    /// `O_*`; `O_CLOEXEC` is always added. `O_NONBLOCK` is cleared again once a file has been
    /// opened for reading.
    pub flags: i32,
    /// Permission bits of a file that is created.
    pub mode: u32,
    /// `RESOLVE_*`.
    pub resolve: u64,
}

impl OpenHow {
    /// Open for reading what lies beneath the directory, and neither wait for a FIFO's writer nor
    /// become some terminal's owner.
    pub const BENEATH: Self = Self {
        flags: libc::O_RDONLY | libc::O_NONBLOCK | libc::O_NOCTTY,
        mode: 0,
        resolve: libc::RESOLVE_BENEATH | libc::RESOLVE_NO_MAGICLINKS,
    };

    /// The same where no component may be a symbolic link (`ELOOP`).
    #[must_use]
    pub const fn without_symlinks(self) -> Self {
        Self { resolve: self.resolve | libc::RESOLVE_NO_SYMLINKS, ..self }
    }

    /// The same with more `O_*` flags.
    #[must_use]
    pub const fn with_flags(self, flags: i32) -> Self {
        Self { flags: self.flags | flags, ..self }
    }
}

/// What a read does to the page cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Caching {
    /// What was read stays.
    #[default]
    Keep,
    /// `RWF_DONTCACHE` (Linux 6.14): what this read brought in is dropped after it. Fails with
    /// `EOPNOTSUPP` where the file system cannot.
    Drop,
}

/// One message from the ring.
#[derive(Debug)]
pub struct Completion {
    /// The operation, as [`Ring::submit`](crate::Ring::submit) named it.
    pub key: Key,
    /// The operation, as the caller named it.
    pub token: Token,
    /// What happened.
    pub result: io::Result<Event>,
    /// Whether more completions of this operation will come.
    pub more: bool,
}

/// What happened.
#[derive(Debug)]
pub enum Event {
    /// A connection was accepted.
    Accepted(Fd),
    /// Bytes have come; there is at least one.
    Received(RecvBuf),
    /// The peer will send no more.
    Eof,
    /// The descriptor can take bytes, or is dead.
    Writable,
    /// The descriptor has something to read, or is dead.
    Readable,
    /// The file is open.
    Opened(Fd),
    /// What the file is.
    Stat(Box<Stat>),
    /// The buffer holds `buf.len()` bytes; 0 is the end of the file.
    Read(Buffer),
    /// The pipe holds `pipe.len()` bytes; 0 is the end of the file.
    Spliced(Pipe),
    /// So many bytes of these were written.
    Written(Vec<u8>, usize),
    /// The directory's entries.
    Listed(Box<Listing>),
    /// From here on changes are reported.
    Watching,
    /// Something in the watched directory changed.
    Changed(Change),
    /// The range was dropped from the page cache.
    Discarded,
    /// The file system's magic number, `f_type` of `statfs(2)`.
    FileSystem(u64),
    /// The time has come.
    Timer,
    /// [`Waker::wake`](crate::Waker::wake) was called, once or more often.
    Woken,
}

/// What `statx(2)` says of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// What it is.
    pub kind: FileKind,
    /// Bytes.
    pub size: u64,
    /// Last modification, seconds since 1970.
    pub mtime: i64,
    /// Nanoseconds beside `mtime`.
    pub mtime_nanos: u32,
    /// Last change of the contents, the names or the attributes, seconds since 1970: no program can
    /// set it.
    pub ctime: i64,
    /// Nanoseconds beside `ctime`.
    pub ctime_nanos: u32,
    /// The file system.
    pub dev: u64,
    /// The inode number.
    pub ino: u64,
    /// Names of this inode.
    pub links: u32,
    /// The alignment that `O_DIRECT` wants of offsets and memory, or 0 where it is not to be had
    /// or not known (before Linux 6.1).
    pub direct_align: u32,
}

/// What a directory entry or an open file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FileKind {
    /// A directory.
    Directory,
    /// A regular file.
    Regular,
    /// A symbolic link (in listings).
    Symlink,
    /// A FIFO, socket or device.
    Other,
}

/// The entries of a directory, without `.` and `..`.
#[derive(Clone, Debug, Default)]
pub struct Listing {
    /// The entries: directories first, then by name.
    pub entries: Vec<Entry>,
    /// Whether there were more than were asked for.
    pub truncated: bool,
}

impl Listing {
    /// Put the entries into their order: some 40 ms for 100,000, so not on an event loop.
    pub(crate) fn sort(&mut self) {
        self.entries.sort_unstable_by(|a, b| {
            let rank = |entry: &Entry| entry.kind != FileKind::Directory;
            (rank(a), &a.name).cmp(&(rank(b), &b.name))
        });
    }
}

/// One entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The name: any bytes but `/` and NUL.
    pub name: Vec<u8>,
    /// What it is; links are not followed.
    pub kind: FileKind,
    /// Bytes.
    pub size: u64,
    /// Last modification, seconds since 1970.
    pub mtime: i64,
}

/// A change in a watched directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The entry that was changed, created, replaced, moved or removed; `None` when it is not
    /// known what changed (too many events, or the directory itself went away): assume everything.
    pub name: Option<Vec<u8>>,
    /// Whether the entry is a directory.
    pub directory: bool,
}

/// Which driver a ring runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DriverKind {
    /// io_uring.
    Uring,
    /// `epoll(7)` for sockets and threads for files.
    Epoll,
    /// The seeded simulation.
    Sim,
}

impl fmt::Display for DriverKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Uring => "io_uring",
            Self::Epoll => "epoll",
            Self::Sim => "simulation",
        })
    }
}
