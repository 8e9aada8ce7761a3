//! The operations of a [`Ring`](crate::Ring), and their results.

mod file;
mod process;
mod socket;

use core::fmt;
use std::ffi::CString;
use std::io;
use std::process::ExitStatus;

use crate::buffer::Buffer;
use crate::fd::Fd;
use crate::gate::Device;
use crate::pipe::Pipe;
use crate::recv::RecvBuf;
use crate::slab::Key;
use crate::symlinks::SymlinkScope;
use crate::timers::Time;

pub use file::{Caching, Change, Entry, EntryOrder, FileKind, Listing, OpenHow, Stat, Targets};
pub(crate) use file::{parent_and_name, path_of_entry};
pub use process::Signal;
pub use socket::Address;
pub(crate) use socket::Wait;

/// The caller's name for an operation, given back with each of its completions.
pub type Token = u64;

/// The maximum number of a ring's accepts whose listener another accept of the ring waits for ([`Op::Accept`]). A
/// program needs one or two for a listener. When an accept ends, all of them are searched for its replacement.
pub const SPARE_ACCEPTS_MAX: usize = 64;

/// The maximum number of symbolic links in a directory whose targets a listing describes ([`Op::List`]): the walk to each
/// takes some microseconds, or some dozens if it leads far.
pub const LISTED_LINKS_MAX: usize = 10_000;

/// An operation that may take time. It owns its buffers and descriptors until its last completion.
#[derive(Debug)]
pub enum Op {
    /// `accept4(2)` again and again: one [`Event::Accepted`] for each connection, until cancelled
    /// or failed. It makes the listener nonblocking. The new sockets are nonblocking and close-on-exec. Several accepts
    /// of one listener share its connections: each connection is an event of any one of them. The epoll driver and the
    /// simulation keep the further accepts of a listener themselves, at most [`SPARE_ACCEPTS_MAX`] per ring. Beyond
    /// that an accept fails at once with `ENOBUFS`. io_uring leaves them to the kernel.
    Accept(Fd),
    /// `recv(2)` again and again into buffers of the ring: one [`Event::Received`] for each piece, then [`Event::Eof`].
    /// At most one per socket. A socket that was [connected](Self::Connect) brings one piece at a time. The next piece
    /// comes once no piece of such a socket is kept, so copy bytes that must stay.
    Recv(Fd),
    /// `socket(2)` and `connect(2)`: a stream socket, nonblocking and close-on-exec, and then once
    /// [`Event::Connected`]. Fails as these calls do:
    ///
    /// - `ECONNREFUSED` and `ENOENT` (a Unix socket that does not exist) where nothing listens,
    /// - `ETIMEDOUT` when the kernel has sent its last SYN without an answer (two minutes unless `tcp_syn_retries` was
    ///   changed, tcp(7); a timer and [`Ring::cancel`](crate::Ring::cancel) end it earlier),
    /// - `EHOSTUNREACH` and `ENETUNREACH`, `EMFILE` without a free descriptor, `EAFNOSUPPORT` without IPv6,
    /// - `EAGAIN` for a Unix socket whose backlog is full.
    ///
    /// After any failure the socket is closed.
    Connect(Address),
    /// Once: the socket or pipe has room for bytes, or is dead. At most one per descriptor.
    Writable(Fd),
    /// Once: the descriptor has something to read, or is dead. Not together with [`Op::Recv`].
    Readable(Fd),
    /// Reports how many bytes the peer has acknowledged, again and again: one [`Event::Acknowledged`] for each news,
    /// until cancelled. Earlier news are reported at once. At most one per socket. Fails with `EINVAL` unless
    /// [`Ring::report_acknowledgements`](crate::Ring::report_acknowledgements) was called for the socket with success.
    Acknowledgements(Fd),
    /// `openat2(2)`. If the kernel asks to try again with `EAGAIN`, the open is tried 64 times, and then fails with
    /// `EAGAIN`. The reason is a rename or mount anywhere beside a `..` of the path, so that
    /// [`RESOLVE_BENEATH`](OpenHow::BENEATH) could not be ensured.
    Open {
        /// The directory that `path` is relative to; `None` is the working directory.
        dir: Option<Fd>,
        /// The path.
        path: CString,
        /// Flags, mode and resolution.
        how: OpenHow,
    },
    /// Opens the target of a path through symbolic links that may lead out of the directory that it begins at:
    /// [`Event::Opened`]. Fails with `EXDEV` if a link leads to a directory that is not permitted, and with `ELOOP` if
    /// links are not permitted. Links into other directories need `/proc`.
    Follow {
        /// The directory that `path` is relative to.
        root: Fd,
        /// The path.
        path: CString,
        /// Flags and mode; `links` says how the path is resolved.
        how: OpenHow,
        /// The links that are followed.
        symlinks: SymlinkScope,
    },
    /// `statx(2)` of an open descriptor.
    Stat(Fd),
    /// `preadv2(2)` of `buf.want()` bytes. Short only at the end of the file or on an error after
    /// some bytes. `EINVAL` at or beyond 2⁶².
    Read {
        /// A regular file.
        file: Fd,
        /// The offset in bytes from the start of the file.
        offset: u64,
        /// The buffer for the bytes.
        buf: Buffer,
        /// The effect on the page cache.
        caching: Caching,
    },
    /// `splice(2)` of `pipe.want()` bytes of a file into an empty pipe: pages, not copies. May be
    /// short; 0 is the end of the file.
    Splice {
        /// A regular file.
        file: Fd,
        /// The offset in bytes from the start of the file.
        offset: u64,
        /// The pipe for the pages.
        pipe: Pipe,
    },
    /// `write(2)` at the end of a file opened for appending, or into a pipe; or `pwrite(2)` at a position. May be short.
    /// `EINVAL` at or beyond 2⁶².
    Write {
        /// The destination.
        file: Fd,
        /// The position in bytes from the start of a file that was not opened for appending; `None` for all others.
        at: Option<u64>,
        /// The bytes to write.
        bytes: Vec<u8>,
    },
    /// Read a directory: names, kinds, sizes and times.
    List {
        /// The directory, open for reading.
        dir: Fd,
        /// At most this many entries are kept; see [`Listing::truncated`].
        entries_max: usize,
        /// The order of the entries.
        order: EntryOrder,
        /// If given, the entry of a symbolic link describes its target, and links that cannot be followed are left out.
        /// Links beyond [`LISTED_LINKS_MAX`] are left out, too.
        targets: Option<Targets>,
    },
    /// Search the names in a directory: [`Event::HasName`]. No file is opened. Fails with `ELOOP` if the path has a
    /// symbolic link.
    HasName {
        /// The directory that `path` is relative to and does not leave.
        root: Fd,
        /// The directory to read; empty or `.` is `root` itself.
        path: CString,
        /// The maximum number of names to read.
        entries_max: usize,
        /// Returns true for a name that ends the search.
        is_wanted: fn(&[u8]) -> bool,
    },
    /// Watch a directory: [`Event::Watching`] once, then [`Event::Changed`] for each change of an
    /// entry, until cancelled. Other attributes of the directory itself are a change of an entry of the
    /// directory above; only if it is `root`, they are reported here, without a name. Fails with
    /// `EOPNOTSUPP` where changes made elsewhere would go unseen (network file systems, FUSE) and with
    /// `ELOOP` where the path has a symbolic link.
    Watch {
        /// The directory that `path` is relative to and does not leave.
        root: Fd,
        /// The directory to watch; empty or `.` is `root` itself.
        path: CString,
    },
    /// Watch one file, which need not exist yet: [`Event::Watching`] once, then [`Event::Changed`] with
    /// its name when its contents or attributes may have changed, or it was created, removed, or replaced
    /// by `rename(2)`, until cancelled. Several changes in one turn are one event. For programs that have a few files; the
    /// server watches directories ([`Op::Watch`]).
    ///
    /// The watch is on the name in its directory and on the inode that has the name. So changes through another name of
    /// the inode are seen, and a file that takes the name is followed. A directory that takes the path of the file's
    /// directory is followed, too, but not one above it. The event comes once the new file is watched, so a program
    /// that reads the file at each event misses no change.
    ///
    /// Fails as [`Op::Watch`] does. `ENOENT` if the directory does not exist, `ELOOP` also if the file is a symbolic
    /// link, `EISDIR` if it is a directory. `EACCES` if it may not be read (`inotify_add_watch(2)`), `ENOSPC` beyond
    /// the user's watches (`inotify(7)`), `EINVAL` if the path does not end with a name. The operation also ends with
    /// one of these errors when the file's directory has gone, or when the new owner of the name cannot be watched. The
    /// kernel does not report that a directory is removed while a descriptor keeps it open: the removal of `root`
    /// itself is no event.
    WatchFile {
        /// The directory that `path` is relative to and does not leave.
        root: Fd,
        /// The file to watch.
        path: CString,
    },
    /// `posix_fadvise(2)` `POSIX_FADV_DONTNEED`: drop a clean range from the page cache.
    Discard {
        /// A regular file.
        file: Fd,
        /// The offset in bytes from the start of the file.
        offset: u64,
        /// The length in bytes; 0 means to the end.
        len: u64,
    },
    /// `fallocate(2)` `FALLOC_FL_PUNCH_HOLE`: give a range of a file back to the file system, which then reads as
    /// zeroes. In blocks that are only partly in the range, the bytes of the range become zeroes. Pages that a socket
    /// still sends keep their bytes. `EOPNOTSUPP` if the file system cannot punch holes.
    Punch {
        /// A regular file, open for writing.
        file: Fd,
        /// The offset in bytes from the start of the file.
        offset: u64,
        /// The length in bytes; at least 1.
        len: u64,
    },
    /// `fstatfs(2)`: which kind of file system a file is on.
    FileSystem(Fd),
    /// Brings the positions of all blocks of a file into memory: `FS_IOC_FIEMAP` of ioctl(2) with `FIEMAP_FLAG_CACHE`,
    /// for which ext4 reads its whole tree of extents. A read needs the part of the tree for its blocks, and sleeps
    /// while that part is read for any caller. Until this operation has ended all reads of the file sleep in other
    /// threads.
    /// Fails with `EBADR` or `EOPNOTSUPP` on file systems that cannot do it.
    Extents(Fd),
    /// Once, when the ring's clock has reached this time.
    Timer(Time),
    /// A signal again and again, by `signalfd(2)`: one [`Event::Signal`] for each, until cancelled.
    ///
    /// The program blocks the signal in all of its threads: it calls
    /// [`block_signals`](crate::block_signals) before it starts the first. In a thread that does not
    /// block it the signal's handler or default action runs instead, and there is no event. The ring's
    /// own threads block all signals.
    ///
    /// A signal that is pending is reported at once. Signals below 32 do not queue: several that come
    /// before the first is reported are one event. If several operations wait for the same signal, in
    /// one ring or in several, each signal goes to one of them. A signal to one thread (`tgkill(2)`)
    /// goes only to a ring of that thread. Cancelling leaves the signal blocked.
    ///
    /// Fails with `EINVAL` if this thread does not block the signal, also for signals that cannot be blocked:
    /// `SIGKILL`, `SIGSTOP` and numbers that are no signal. Fails with `EMFILE` and `ENFILE` without a free descriptor,
    /// and with `ENOMEM`.
    Signal(i32),
    /// The end of a child process, by `pidfd_open(2)` and `waitid(2)`: one [`Event::Exited`], with which the child has
    /// been reaped. No other child is reaped.
    ///
    /// The number is the [`Child::id`](std::process::Child::id). It stays the child's until the child is reaped, so no
    /// other code may wait for this child. `ECHILD` if other code does while the operation is in flight, if the kernel
    /// did because the program ignores `SIGCHLD` (`sigaction(2)`), or for a process that is no child of this one.
    /// `ESRCH` if the child was reaped before. `EINVAL` for 0 and numbers that are no process number, `EMFILE` and
    /// `ENFILE` without a free descriptor. A child whose operation was cancelled is left as it is, and can be waited
    /// for again.
    Child(u32),
}

impl Op {
    /// Returns whether the ring makes a descriptor for the operation to wait for.
    pub(crate) const fn has_own_descriptor(&self) -> bool {
        matches!(self, Self::Connect(_) | Self::Signal(_) | Self::Child(_))
    }

    /// Returns whether the operation uses inotify.
    pub(crate) const fn is_watch(&self) -> bool {
        matches!(self, Self::Watch { .. } | Self::WatchFile { .. })
    }

    /// Returns whether the operation watches the directory that its path is relative to.
    pub(crate) fn watches_root(&self) -> bool {
        matches!(self, Self::Watch { path, .. } if matches!(path.to_bytes(), b"" | b"."))
    }

    /// The device that the operation may have to wait for. Writes of logs have none: each log has one
    /// at a time.
    pub(crate) fn device(&self) -> Option<Device> {
        match self {
            Self::Open { dir, .. } => Some(dir.as_ref().map(Fd::device).unwrap_or_default()),
            Self::Stat(fd)
            | Self::Read { file: fd, .. }
            | Self::Splice { file: fd, .. }
            | Self::List { dir: fd, .. }
            | Self::Follow { root: fd, .. }
            | Self::HasName { root: fd, .. }
            | Self::Watch { root: fd, .. }
            | Self::WatchFile { root: fd, .. }
            | Self::Discard { file: fd, .. }
            | Self::Punch { file: fd, .. }
            | Self::FileSystem(fd)
            | Self::Extents(fd) => Some(fd.device()),
            Self::Accept(_)
            | Self::Recv(_)
            | Self::Connect(_)
            | Self::Writable(_)
            | Self::Readable(_)
            | Self::Acknowledgements(_)
            | Self::Write { .. }
            | Self::Timer(_)
            | Self::Signal(_)
            | Self::Child(_) => None,
        }
    }
}

/// One message from the ring.
#[derive(Debug)]
pub struct Completion {
    /// The operation, as [`Ring::submit`](crate::Ring::submit) named it.
    pub key: Key,
    /// The operation, as the caller named it.
    pub token: Token,
    /// The event, or the error.
    pub result: io::Result<Event>,
    /// True if more completions of this operation will come.
    pub more: bool,
}

/// The result of an operation, or of one step of it.
#[derive(Debug)]
pub enum Event {
    /// A connection was accepted.
    Accepted(Fd),
    /// The connection was made.
    Connected(Fd),
    /// Received bytes, at least one.
    Received(RecvBuf),
    /// The peer will send no more.
    Eof,
    /// The descriptor has room for bytes, or is dead.
    Writable,
    /// The descriptor has something to read, or is dead.
    Readable,
    /// The number of bytes that the peer has acknowledged, of those that were sent since
    /// [`Ring::report_acknowledgements`](crate::Ring::report_acknowledgements). The number is exact only at the end of
    /// each send. Acknowledged pages of a file may still be referred to: a receiver on the same machine shares them.
    Acknowledged(u64),
    /// The file is open.
    Opened(Fd),
    /// The attributes of the file.
    Stat(Box<Stat>),
    /// The buffer holds `buf.len()` bytes; 0 is the end of the file.
    Read(Buffer),
    /// The pipe holds `pipe.len()` bytes; 0 is the end of the file.
    Spliced(Pipe),
    /// The buffer of a write, and the number of its bytes that were written.
    Written(Vec<u8>, usize),
    /// The directory's entries.
    Listed(Box<Listing>),
    /// True if a wanted name was found, or if the directory has more than `entries_max` names.
    HasName(bool),
    /// Changes are reported from now on.
    Watching {
        /// The mount of the directory, as in [`Stat::mount`]. Another mount above it makes no event.
        mount: u64,
    },
    /// Something in the watched directory changed, or the watched file.
    Changed(Change),
    /// The range was dropped from the page cache.
    Discarded,
    /// The range was given back to the file system.
    Punched,
    /// The file system's magic number, `f_type` of `statfs(2)`.
    FileSystem(u64),
    /// The number of pieces of the file.
    Extents(u32),
    /// The time has come.
    Timer,
    /// A signal was sent to this process or thread.
    Signal(Signal),
    /// The child process has ended with this status.
    Exited(ExitStatus),
    /// [`Waker::wake`](crate::Waker::wake) was called, once or more often.
    Woken,
}

/// The driver that a ring runs on.
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
