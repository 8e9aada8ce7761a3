//! The parts of the kernel and of the C library that the other modules need, as safe functions.
//!
//! A function that this library replaces is called through [`crate::real`] or as a bare system call, never by its
//! name, because the name calls the replacement.

use core::ffi::{CStr, c_int, c_long, c_void};
use core::mem::MaybeUninit;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize, Ordering};
use core::time::Duration;

use pace::popularity::{CounterLine, Popularity, Sums};

/// An error number of the C library.
pub(crate) type Errno = c_int;

/// A file, whatever descriptor leads to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FileId {
    pub(crate) dev: u64,
    pub(crate) ino: u64,
}

/// The results of `fstat(2)`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Status {
    pub(crate) id: FileId,
    pub(crate) size: u64,
    pub(crate) is_regular: bool,
    pub(crate) is_socket: bool,
    /// It has no type: it is an epoll instance or the like.
    pub(crate) is_anonymous: bool,
}

/// The kernel's readahead in an open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Readahead {
    /// There is none.
    Off,
    /// It is that of the device's settings.
    Usual,
}

/// The calling thread's `errno`.
pub(crate) fn errno() -> Errno {
    // SAFETY: `__errno_location` has no preconditions.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: it points to the calling thread's errno, which lives as long as the thread.
    unsafe { *place }
}

pub(crate) fn set_errno(errno: Errno) {
    // SAFETY: `__errno_location` has no preconditions.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: it points to the calling thread's errno, which lives as long as the thread.
    unsafe { *place = errno }
}

/// A result of a system call: a count, or `errno`.
fn result(returned: c_long) -> Result<u64, Errno> {
    u64::try_from(returned).map_err(|_| errno())
}

pub(crate) fn status(fd: c_int) -> Result<Status, Errno> {
    let mut stat = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: fstat(2) writes at most one `stat` to the place it is given, which is one.
    result(unsafe { libc::fstat(fd, stat.as_mut_ptr()) }.into())?;
    // SAFETY: fstat(2) has succeeded, so it has written all of it.
    let stat = unsafe { stat.assume_init() };
    Ok(Status {
        id: FileId { dev: stat.st_dev, ino: stat.st_ino },
        size: u64::try_from(stat.st_size).unwrap_or(0),
        is_regular: stat.st_mode & libc::S_IFMT == libc::S_IFREG,
        is_socket: stat.st_mode & libc::S_IFMT == libc::S_IFSOCK,
        is_anonymous: stat.st_mode & libc::S_IFMT == 0,
    })
}

/// The file offset of a descriptor.
pub(crate) fn position(fd: c_int) -> Result<i64, Errno> {
    // SAFETY: lseek(2) takes no pointers.
    let position = unsafe { libc::lseek(fd, 0, libc::SEEK_CUR) };
    if position < 0 { Err(errno()) } else { Ok(position) }
}

/// The status flags of a descriptor (`F_GETFL`).
pub(crate) fn flags(fd: c_int) -> Result<c_int, Errno> {
    // SAFETY: F_GETFL takes no pointers.
    result(unsafe { libc::syscall(libc::SYS_fcntl, fd, libc::F_GETFL) })
        .map(|flags| c_int::try_from(flags).unwrap_or(0))
}

/// Says whether this is a socket without boundaries of messages (`SOCK_STREAM`).
pub(crate) fn is_stream(fd: c_int) -> bool {
    let mut kind: c_int = 0;
    let mut len = u32::try_from(size_of::<c_int>()).unwrap_or(0);
    let (value, len) = ((&raw mut kind).cast(), &raw mut len);
    // SAFETY: getsockopt(2) writes at most `len` bytes to the place it is given, which is one `c_int`.
    let error = unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_TYPE, value, len) };
    error == 0 && kind == libc::SOCK_STREAM
}

/// The error of a stream socket to which nothing can be sent any more, because its peer has reset it or it
/// is shut down. As `sendfile(2)` does, this raises `SIGPIPE` with `EPIPE`.
pub(crate) fn socket_error(socket: c_int) -> Option<Errno> {
    let mut polled = libc::pollfd { fd: socket, events: 0, revents: 0 };
    let no_time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let (polled_at, no_time) = (&raw mut polled, &raw const no_time);
    let no_signals = ptr::null::<Signals>();
    // SAFETY: one element, a valid limit and no signals.
    unsafe { libc::syscall(libc::SYS_ppoll, polled_at, 1, no_time, no_signals, 8) };
    if polled.revents & (libc::POLLERR | libc::POLLHUP) == 0 {
        return None;
    }
    let (none, nobody) = (ptr::null::<u8>(), ptr::null::<u8>());
    // SAFETY: nothing to send, and no address. On a stream socket this only checks the state.
    let sent =
        unsafe { libc::syscall(libc::SYS_sendto, socket, none, 0, libc::MSG_DONTWAIT, nobody, 0) };
    result(sent).err().filter(|&error| error != libc::EAGAIN)
}

/// A second descriptor of the same open file, closed by `exec`.
pub(crate) fn duplicate(fd: c_int) -> Result<c_int, Errno> {
    // SAFETY: F_DUPFD_CLOEXEC takes no pointers.
    let copy = unsafe { libc::syscall(libc::SYS_fcntl, fd, libc::F_DUPFD_CLOEXEC, 3) };
    c_int::try_from(result(copy)?).map_err(|_| libc::EMFILE)
}

/// Says whether dup2(2) of these will succeed.
pub(crate) fn can_duplicate(old: c_int, new: c_int) -> bool {
    // SAFETY: F_GETFD takes no pointers.
    let is_open = unsafe { libc::syscall(libc::SYS_fcntl, old, libc::F_GETFD) } >= 0;
    is_open && u64::try_from(new).is_ok_and(|new| new < descriptors_limit().rlim_cur)
}

/// close_range(2), also with a C library that does not have it.
pub(crate) fn close_range(first: u32, last: u32, flags: c_int) -> c_int {
    // SAFETY: the descriptors are the program's to close, and it has asked for it.
    let returned = unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) };
    c_int::try_from(returned).unwrap_or(-1)
}

/// closefrom(3), for C libraries that have none.
pub(crate) fn close_from(first: u32) {
    let errno = errno();
    if close_range(first, u32::MAX, 0) != 0 {
        // Linux before 5.9.
        let limit = u32::try_from(descriptors_limit().rlim_cur).unwrap_or(u32::MAX);
        (first..limit).map(u32::cast_signed).for_each(close);
    }
    set_errno(errno);
}

/// A second descriptor of the same open file, if there is room.
pub(crate) fn duplicate_if_room(fd: c_int) -> Option<c_int> {
    if_room(duplicate(fd))
}

/// Closes a new descriptor again if its number is in the last quarter of the limit, which is left to the
/// program.
fn if_room(new: Result<c_int, Errno>) -> Option<c_int> {
    let new = new.ok()?;
    let limit = descriptors_limit().rlim_cur;
    if u64::from(new.unsigned_abs()) < limit - limit / 4 {
        return Some(new);
    }
    close(new);
    None
}

/// Opens `/dev/null` for writing, if there is room.
pub(crate) fn open_null_if_room() -> Option<c_int> {
    if_room(open_null())
}

fn open_null() -> Result<c_int, Errno> {
    open(c"/dev/null", libc::O_WRONLY)
}

fn open(path: &CStr, how: c_int) -> Result<c_int, Errno> {
    open_or_make(path, how, 0)
}

/// `mode`: of a file that the call makes (`O_CREAT`).
fn open_or_make(path: &CStr, how: c_int, mode: libc::mode_t) -> Result<c_int, Errno> {
    let how = how | libc::O_CLOEXEC | libc::O_NOCTTY;
    // SAFETY: `path` ends with a NUL.
    let fd = unsafe { libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), how, mode) };
    let fd = c_int::try_from(result(fd)?).map_err(|_| libc::EMFILE)?;
    if fd > 2 {
        return Ok(fd);
    }
    // A program that redirects a standard stream has just closed it, and expects to get the number.
    let copy = duplicate(fd);
    close(fd);
    copy
}

/// Brings at most `len` bytes into memory by sending them to `sink`, which comes from [`open_null_if_room`]: a
/// `sendfile(2)` to `/dev/null` copies nothing.
pub(crate) fn discard(sink: c_int, fd: c_int, offset: u64, len: u64) -> Result<u64, Errno> {
    // The program may have closed the descriptor and opened another file at its number.
    if !is_null(sink) {
        return Err(libc::EBADF);
    }
    let mut offset = i64::try_from(offset).map_err(|_| libc::EOVERFLOW)?;
    let len = usize::try_from(len).map_err(|_| libc::EOVERFLOW)?;
    // SAFETY: the offset is valid for the whole call.
    result(unsafe { libc::syscall(libc::SYS_sendfile, sink, fd, &raw mut offset, len) })
}

/// Closes a descriptor of [`open_null_if_room`], unless the program has opened something else at its number.
pub(crate) fn close_null(fd: c_int) {
    if is_null(fd) {
        close(fd);
    }
}

fn is_null(fd: c_int) -> bool {
    let mut stat = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: fstat(2) writes at most one `stat` to the place it is given, which is one.
    if unsafe { libc::fstat(fd, stat.as_mut_ptr()) } != 0 {
        return false;
    }
    // SAFETY: fstat(2) has succeeded, so it has written all of it.
    let stat = unsafe { stat.assume_init() };
    stat.st_mode & libc::S_IFMT == libc::S_IFCHR && stat.st_rdev == NULL_DEVICE
}

/// The number of `/dev/null` (Documentation/admin-guide/devices.txt).
const NULL_DEVICE: libc::dev_t = libc::makedev(1, 3);

/// Closes a descriptor that one of the functions above has made.
pub(crate) fn close(fd: c_int) {
    // SAFETY: close(2) takes no pointers; the descriptor is the caller's own. It was open for
    // reading, so there is no error that could matter.
    unsafe { libc::syscall(libc::SYS_close, fd) };
}

pub(crate) fn pid() -> c_int {
    // SAFETY: getpid(2) has no preconditions.
    unsafe { libc::getpid() }
}

/// Time since some moment before the program began.
pub(crate) fn now() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: clock_gettime(2) writes one `timespec` to the place it is given.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    let nanoseconds = u32::try_from(time.tv_nsec).unwrap_or(0);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), nanoseconds)
}

/// [`now`] in microseconds.
pub(crate) fn now_us() -> u64 {
    u64::try_from(now().as_micros()).unwrap_or(u64::MAX)
}

/// Reads at most [`SCRATCH_REACH`] bytes into memory that is never looked at.
///
/// `nowait`: fails with `EAGAIN` instead of waiting for the disk (`RWF_NOWAIT`).
pub(crate) fn read_to_scratch(
    fd: c_int,
    offset: u64,
    len: u64,
    nowait: bool,
) -> Result<u64, Errno> {
    let scratch = SCRATCH.load(Ordering::Relaxed);
    let offset = i64::try_from(offset).map_err(|_| libc::EOVERFLOW)?;
    let mut left = usize::try_from(len).map_err(|_| libc::EOVERFLOW)?;
    if scratch.is_null() {
        return Err(libc::ENOMEM);
    }
    let none = libc::iovec { iov_base: scratch.cast(), iov_len: 0 };
    let mut parts = [none; SCRATCH_PARTS];
    let mut used = 0;
    while left > 0 && used < SCRATCH_PARTS {
        parts[used].iov_len = left.min(SCRATCH_BYTES);
        left -= parts[used].iov_len;
        used += 1;
    }
    let count = c_int::try_from(used).map_err(|_| libc::EINVAL)?;
    let how = if nowait { libc::RWF_NOWAIT } else { 0 };
    // A bare system call, because a thread can be cancelled in the C library's function, and not in
    // sendfile(2).
    // SAFETY: `used` parts are filled in, and each lies in the scratch mapping, which is never
    // unmapped, and which no Rust reference points into: all threads overwrite it at will.
    result(unsafe { libc::syscall(libc::SYS_preadv2, fd, parts.as_ptr(), count, offset, 0, how) })
}

/// The most bytes of one [`read_to_scratch`]. All parts point to the same memory, which stays in the
/// processor's cache.
pub(crate) const SCRATCH_REACH: u64 = (SCRATCH_BYTES * SCRATCH_PARTS) as u64;
const SCRATCH_BYTES: usize = 64 * 1024;
const SCRATCH_PARTS: usize = 16;
static SCRATCH: AtomicPtr<u8> = AtomicPtr::new(ptr::null_mut());

/// Maps the memory for [`read_to_scratch`]. False: there is none.
pub(crate) fn make_scratch() -> bool {
    let memory = map(SCRATCH_BYTES);
    SCRATCH.store(memory, Ordering::Relaxed);
    !memory.is_null()
}

/// Maps `len` bytes of zeros, which are never unmapped; null without memory.
pub(crate) fn map(len: usize) -> *mut u8 {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new private mapping at a place of the kernel's choice touches nothing that exists.
    let memory = unsafe { libc::mmap(ptr::null_mut(), len, protection, kind, -1, 0) };
    if memory == libc::MAP_FAILED { ptr::null_mut() } else { memory.cast() }
}

/// Makes the sketch of popular files, in memory that is shared with all processes that this one forks. False: there is no
/// memory.
pub(crate) fn make_sketch(capacity: u64) -> bool {
    let lines = Popularity::lines(capacity);
    let len = SKETCH_HEAD_BYTES + lines * size_of::<CounterLine>();
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let kind = libc::MAP_SHARED | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping at a place of the kernel's choice touches nothing that exists.
    let memory = unsafe { libc::mmap(ptr::null_mut(), len, protection, kind, -1, 0) };
    if memory == libc::MAP_FAILED {
        return false;
    }
    SKETCH_CAPACITY.store(usize::try_from(capacity).unwrap_or(usize::MAX), Ordering::Relaxed);
    // Release pairs with Acquire in `sketch`.
    SKETCH.store(memory.cast(), Ordering::Release);
    true
}

/// The sketch that [`make_sketch`] has made; none before.
pub(crate) fn sketch() -> Option<Popularity<'static>> {
    // Acquire pairs with Release in `make_sketch`.
    let memory = SKETCH.load(Ordering::Acquire);
    if memory.is_null() {
        return None;
    }
    let capacity = SKETCH_CAPACITY.load(Ordering::Relaxed) as u64;
    // SAFETY: the mapping begins with a page for the sums, is never unmapped, and zeros are a valid `Sums`.
    let sums = unsafe { &*memory.cast::<Sums>() };
    // SAFETY: the mapping has more than `SKETCH_HEAD_BYTES`.
    let lines = unsafe { memory.add(SKETCH_HEAD_BYTES) }.cast::<CounterLine>();
    // SAFETY: the mapping was made with room for so many lines, from a page's start on, and zeros are valid lines.
    let lines = unsafe { core::slice::from_raw_parts(lines, Popularity::lines(capacity)) };
    Some(Popularity::new(lines, sums, capacity))
}

static SKETCH: AtomicPtr<u8> = AtomicPtr::new(ptr::null_mut());
static SKETCH_CAPACITY: AtomicUsize = AtomicUsize::new(0);
/// The sums have a page of their own, so that the lines are aligned.
const SKETCH_HEAD_BYTES: usize = 4096;
const _: () = assert!(size_of::<Sums>() <= SKETCH_HEAD_BYTES);

/// The number of pages of a range that are in the page cache, including those that are still being read
/// (`cachestat(2)`, since Linux 6.5); `None` if that may not be asked: since Linux 6.16 only the owner of a
/// file and processes that may write to it may ask.
pub(crate) fn cached_pages(fd: c_int, offset: u64, len: u64) -> Option<u64> {
    if !MAY_CACHESTAT.load(Ordering::Relaxed) {
        return None;
    }
    cachestat(fd, offset, len).ok()
}

/// Set if `cachestat` may be called: a seccomp filter could kill the process for it ([`crate::permit`]).
static MAY_CACHESTAT: AtomicBool = AtomicBool::new(false);

/// Says whether `cachestat` may be called from now on.
pub(crate) fn allow_cachestat(may_be_called: bool) {
    MAY_CACHESTAT.store(may_be_called, Ordering::Relaxed);
}

/// Calls `cachestat` for no file: fails with `EBADF` if the kernel knows the call.
pub(crate) fn try_cachestat() -> Errno {
    cachestat(-1, 0, 0).err().unwrap_or(0)
}

fn cachestat(fd: c_int, offset: u64, len: u64) -> Result<u64, Errno> {
    const SYS_CACHESTAT: c_long = 451;
    let range = [offset, len];
    let mut counts = [0u64; 5];
    let (from, to) = (range.as_ptr(), counts.as_mut_ptr());
    // SAFETY: `struct cachestat_range` is two u64, `struct cachestat` five, as these are.
    result(unsafe { libc::syscall(SYS_CACHESTAT, fd, from, to, 0) })?;
    Ok(counts[0])
}

/// Calls `sendfile(2)` for no descriptors: fails with `EBADF`.
pub(crate) fn try_sendfile() -> Errno {
    let none = ptr::null_mut::<i64>();
    // SAFETY: a null offset is allowed.
    result(unsafe { libc::syscall(libc::SYS_sendfile, -1, -1, none, 1) }).err().unwrap_or(0)
}

/// The `Seccomp:` line of proc(5): 0 if there is no filter of system calls. `None` if it cannot be read. prctl(2)
/// would tell too, but the filter may kill for it.
pub(crate) fn seccomp_mode() -> Option<u8> {
    const NAME: &[u8] = b"Seccomp:";
    let fd = open(c"/proc/self/status", libc::O_RDONLY).ok()?;
    // The file has 1.5 KiB as a rule. With many groups the line is not found, and a child tries the calls.
    let mut text = [0u8; 4096];
    // SAFETY: valid for the length that is passed.
    let read = unsafe { libc::syscall(libc::SYS_read, fd, text.as_mut_ptr(), text.len()) };
    close(fd);
    let text = text.get(..usize::try_from(read).ok()?)?;
    let line = text.split(|&byte| byte == b'\n').find_map(|line| line.strip_prefix(NAME))?;
    core::str::from_utf8(line).ok()?.trim().parse().ok()
}

/// Turns core files off for this process (`PR_SET_DUMPABLE`).
pub(crate) fn leave_no_core() -> Errno {
    // SAFETY: PR_SET_DUMPABLE takes no pointers.
    result(unsafe { libc::syscall(libc::SYS_prctl, libc::PR_SET_DUMPABLE, 0, 0, 0, 0) })
        .err()
        .unwrap_or(0)
}

/// Says whether a thread can be started and runs. For a child that is about to end.
pub(crate) fn can_have_thread() -> bool {
    static RAN: AtomicBool = AtomicBool::new(false);
    extern "C" fn run(_: *mut c_void) -> *mut c_void {
        RAN.store(true, Ordering::Relaxed);
        ptr::null_mut()
    }
    if !start_thread(run) {
        return false;
    }
    for _ in 0..THREAD_PAUSES {
        pause(Duration::from_millis(1));
        if RAN.load(Ordering::Relaxed) {
            break;
        }
    }
    // A filter may kill the thread for the calls with which it ends.
    pause(Duration::from_millis(1));
    RAN.load(Ordering::Relaxed)
}

/// Pauses of 1 ms in which a thread has to begin.
const THREAD_PAUSES: usize = 1000;

/// Memory that a child shares with its parent.
pub(crate) struct Shared(*mut u8);

pub(crate) const SHARED_WORDS: usize = 1024;
/// The child writes and ends, and then the parent reads: the end orders the two.
pub(crate) const SHARED_ORDER: Ordering = Ordering::Relaxed;

pub(crate) fn share() -> Option<Shared> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let (kind, len) = (libc::MAP_SHARED | libc::MAP_ANONYMOUS, SHARED_WORDS * size_of::<u32>());
    // SAFETY: a new mapping at a place of the kernel's choice touches nothing that exists.
    let memory = unsafe { libc::mmap(ptr::null_mut(), len, protection, kind, -1, 0) };
    (memory != libc::MAP_FAILED).then(|| Shared(memory.cast()))
}

impl Shared {
    pub(crate) fn words(&self) -> &[AtomicU32] {
        // SAFETY: mapped with this length, page-aligned, zeros, until `self` is dropped.
        unsafe { core::slice::from_raw_parts(self.0.cast(), SHARED_WORDS) }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: mapped by `share`; `words` lends it no longer than `self` lives.
        unsafe { libc::munmap(self.0.cast(), SHARED_WORDS * size_of::<u32>()) };
    }
}

/// Runs `body` in a child process and waits until the child has ended, in whatever way. False: no child could
/// be made.
///
/// The program gets no `SIGCHLD`, and the handlers around fork(2) are not called, so this is only for a
/// process with one thread.
pub(crate) fn in_child(body: impl FnOnce()) -> bool {
    let none = ptr::null_mut::<c_void>();
    // SAFETY: without CLONE_VM, and with no stack, this is fork(2) without a signal at the end.
    let child = unsafe { libc::syscall(libc::SYS_clone, 0, none, none, none, none) };
    if child == 0 {
        body();
        // SAFETY: _exit(2) has no preconditions.
        unsafe { libc::_exit(0) }
    }
    if child < 0 {
        return false;
    }
    let no_status = ptr::null_mut::<c_int>();
    let no_usage = ptr::null_mut::<libc::rusage>();
    loop {
        // SAFETY: a null status and usage are allowed.
        let waited =
            unsafe { libc::syscall(libc::SYS_wait4, child, no_status, libc::__WALL, no_usage) };
        if waited >= 0 || errno() != libc::EINTR {
            return true;
        }
    }
}

/// Sets the kernel's readahead of an open file. This is only advice, so errors are ignored.
pub(crate) fn advise(fd: c_int, readahead: Readahead) {
    let advice = match readahead {
        Readahead::Off => libc::POSIX_FADV_RANDOM,
        Readahead::Usual => libc::POSIX_FADV_NORMAL,
    };
    // SAFETY: posix_fadvise(2) takes no pointers.
    unsafe { libc::posix_fadvise(fd, 0, 0, advice) };
}

/// Asks the kernel to begin to read a range, all of it in one request. The call does not wait for the bytes. It may
/// wait for metadata and for the disk's queue. This is only advice, so errors are ignored: what is missing is read when
/// it is needed.
pub(crate) fn will_need(fd: c_int, offset: u64, len: u64) {
    // A file has no bytes beyond `i64::MAX`.
    let [offset, len] = [offset, len].map(|it| i64::try_from(it).unwrap_or(i64::MAX));
    // SAFETY: posix_fadvise(2) takes no pointers.
    unsafe { libc::posix_fadvise(fd, offset, len, libc::POSIX_FADV_WILLNEED) };
}

/// Asks the kernel to remove the pages of a range from the page cache. Pages that are in use or not written yet stay.
/// This is only advice, so errors are ignored.
pub(crate) fn dont_need(fd: c_int, offset: u64, len: u64) {
    // A file has no bytes beyond `i64::MAX`.
    let [offset, len] = [offset, len].map(|it| i64::try_from(it).unwrap_or(i64::MAX));
    // SAFETY: posix_fadvise(2) takes no pointers.
    unsafe { libc::posix_fadvise(fd, offset, len, libc::POSIX_FADV_DONTNEED) };
}

/// This process's share of memory, in bytes: [`memory_of_all`] divided by the number of CPUs.
pub(crate) fn memory() -> u64 {
    // SAFETY: sysconf(3) has no preconditions.
    let cpus = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
    memory_of_all() / u64::try_from(cpus).unwrap_or(1).max(1)
}

/// The memory of the machine, or of the container, in bytes. Limits of other control groups are not seen.
pub(crate) fn memory_of_all() -> u64 {
    let mut info = MaybeUninit::<libc::sysinfo>::zeroed();
    // SAFETY: sysinfo(2) writes at most one `sysinfo` to the place it is given, which is one.
    unsafe { libc::sysinfo(info.as_mut_ptr()) };
    // SAFETY: numbers only, of which zeros are valid.
    let info = unsafe { info.assume_init() };
    let machine = info.totalram.saturating_mul(info.mem_unit.into());
    let groups = [c"/sys/fs/cgroup/memory.max", c"/sys/fs/cgroup/memory/memory.limit_in_bytes"];
    groups.into_iter().filter_map(number_in).fold(machine, u64::min)
}

/// The number that a file begins with.
fn number_in(path: &CStr) -> Option<u64> {
    let fd = open(path, libc::O_RDONLY).ok()?;
    let mut text = [0u8; 32];
    // SAFETY: valid for the length that is passed.
    let read = unsafe { libc::syscall(libc::SYS_read, fd, text.as_mut_ptr(), text.len()) };
    close(fd);
    let text = text.get(..usize::try_from(read).ok()?)?;
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    core::str::from_utf8(&text[..digits]).ok()?.parse().ok()
}

/// The hard limit of descriptors.
pub(crate) fn descriptors_max() -> u64 {
    descriptors_limit().rlim_max
}

fn descriptors_limit() -> libc::rlimit {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: getrlimit(2) writes one `rlimit` to the place it is given.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    limit
}

/// Makes the kernel's table of descriptors grow now, while most servers still have one thread. The table
/// doubles when it is full, and in a process with threads the kernel then waits until no CPU can be looking
/// at the old one (`expand_fdtable` in fs/file.c). That takes milliseconds, in any call that opens a
/// descriptor.
pub(crate) fn grow_descriptor_table() {
    let count = descriptors_limit().rlim_cur.min(TABLE_DESCRIPTORS);
    let last = c_int::try_from(count).unwrap_or(c_int::MAX) - 1;
    let Ok(fd) = open_null() else { return };
    // SAFETY: F_DUPFD_CLOEXEC takes no pointers.
    let highest = unsafe { libc::syscall(libc::SYS_fcntl, fd, libc::F_DUPFD_CLOEXEC, last) };
    close(fd);
    // If the call was refused, the table stays as it is.
    if let Ok(highest) = c_int::try_from(highest).and_then(u32::try_from) {
        close(highest.cast_signed());
    }
}

/// These take 128 KiB of the kernel's memory.
const TABLE_DESCRIPTORS: u64 = 16 * 1024;

/// The signals that a thread has blocked: bit 0 is signal 1.
pub(crate) type Signals = u64;

/// The signals of glibc and musl: 32 for cancellation, 33 for setuid(2) and its like.
const OF_C_LIBRARY: Signals = 0b11 << 31;

/// Blocks all signals; returns those that were blocked before.
pub(crate) fn block_signals() -> Signals {
    let all = Signals::MAX;
    let mut before = 0;
    // SAFETY: both sets are the 8 bytes that the last argument says. The bare system call also
    // blocks the C library's own signals, whose handlers must not run here either.
    unsafe {
        libc::syscall(
            libc::SYS_rt_sigprocmask,
            libc::SIG_SETMASK,
            &raw const all,
            &raw mut before,
            8,
        )
    };
    before
}

/// Blocks these signals and no others.
pub(crate) fn restore_signals(signals: Signals) {
    let none = ptr::null_mut::<Signals>();
    // SAFETY: the set is the 8 bytes that the last argument says, and a null old set is allowed.
    unsafe {
        libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, &raw const signals, none, 8)
    };
}

/// Sleeps while `word` is `value`, at most for `limit`. May return early. Returns true at the limit.
pub(crate) fn futex_wait(word: &AtomicU32, value: u32, limit: Option<Duration>) -> bool {
    let limit = limit.map(|limit| libc::timespec {
        tv_sec: limit.as_secs().cast_signed(),
        tv_nsec: limit.subsec_nanos().into(),
    });
    let limit: *const libc::timespec = limit.as_ref().map_or(ptr::null(), ptr::from_ref);
    let operation = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: `word` and `limit` are valid for the whole call; futex(2) allows a null limit.
    let woken = unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), operation, value, limit) };
    woken != 0 && errno() == libc::ETIMEDOUT
}

/// Sleeps for less than a second.
pub(crate) fn pause(time: Duration) {
    let time = libc::timespec { tv_sec: 0, tv_nsec: time.subsec_nanos().into() };
    let rest = ptr::null_mut::<libc::timespec>();
    // A bare system call, because a thread can be cancelled in the C library's function, and not in fork(2).
    // SAFETY: `time` is valid for the whole call, and a null rest is allowed.
    unsafe { libc::syscall(libc::SYS_nanosleep, &raw const time, rest) };
}

/// Wakes one thread that sleeps on `word`.
pub(crate) fn futex_wake(word: &AtomicU32) {
    let operation = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: `word` is only an address here.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), operation, 1) };
}

/// The number of times that the calling thread has gone to sleep (`ru_nvcsw`, getrusage(2)).
pub(crate) fn sleeps() -> i64 {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: getrusage(2) writes at most one `rusage` to the place it is given, which is one.
    unsafe { libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr()) };
    // SAFETY: numbers only, of which zeros are valid.
    unsafe { usage.assume_init() }.ru_nvcsw
}

/// Starts a detached thread with a small stack, in which all signals of the program are blocked.
///
/// Returns false if it cannot be started.
pub(crate) fn start_thread(body: extern "C" fn(*mut c_void) -> *mut c_void) -> bool {
    let mut attributes = MaybeUninit::<libc::pthread_attr_t>::uninit();
    // SAFETY: pthread_attr_init initialises the place it is given.
    if unsafe { libc::pthread_attr_init(attributes.as_mut_ptr()) } != 0 {
        return false;
    }
    let attributes = attributes.as_mut_ptr();
    // SAFETY: initialised above. An error leaves the default size, which is larger.
    unsafe { libc::pthread_attr_setstacksize(attributes, THREAD_STACK_BYTES) };
    // SAFETY: initialised above, and the constant is a valid state.
    unsafe { libc::pthread_attr_setdetachstate(attributes, libc::PTHREAD_CREATE_DETACHED) };
    let mut thread = MaybeUninit::<libc::pthread_t>::uninit();
    let signals = block_signals();
    // A thread inherits the blocked signals. Two signals are the C library's: it sends the second to all
    // threads when the program changes its user, and waits until all have handled it.
    restore_signals(!OF_C_LIBRARY);
    // SAFETY: the attributes are initialised; `body` needs no argument and does not unwind.
    let error =
        unsafe { libc::pthread_create(thread.as_mut_ptr(), attributes, body, ptr::null_mut()) };
    restore_signals(signals);
    // SAFETY: initialised above and not used after this.
    unsafe { libc::pthread_attr_destroy(attributes) };
    error == 0
}

/// Readers call the kernel and keep a few words; the C library also takes thread-local data from the stack.
const THREAD_STACK_BYTES: usize = 128 * 1024;

/// Registers functions that are called around each `fork(2)`.
pub(crate) fn at_fork(before: extern "C" fn(), parent: extern "C" fn(), child: extern "C" fn()) {
    // SAFETY: the functions live as long as the program: a preloaded library is never unloaded.
    // Without memory to register them, a forked child shares the library's descriptors; nothing else.
    unsafe { libc::pthread_atfork(Some(before), Some(parent), Some(child)) };
}

/// A variable of the environment; none in a program with more rights than the user who started it. Valid
/// until the program changes its environment.
pub(crate) fn environment(name: &CStr) -> Option<&'static CStr> {
    // SAFETY: getauxval(3) has no preconditions.
    if unsafe { libc::getauxval(libc::AT_SECURE) } != 0 {
        return None;
    }
    // SAFETY: `name` ends with a NUL. Called before the program begins, so no thread writes.
    let value = unsafe { libc::getenv(name.as_ptr()) };
    // SAFETY: getenv(3) returns null or a string that ends with a NUL.
    (!value.is_null()).then(|| unsafe { CStr::from_ptr(value) })
}

/// Makes a copy that is never freed. `None` without memory, or if there are no bytes.
pub(crate) fn keep(bytes: &[u8]) -> Option<&'static mut [u8]> {
    if bytes.is_empty() {
        return None;
    }
    let memory = map(bytes.len());
    if memory.is_null() {
        return None;
    }
    // SAFETY: the mapping has this length, is ours alone, and stays.
    let copy = unsafe { core::slice::from_raw_parts_mut(memory, bytes.len()) };
    copy.copy_from_slice(bytes);
    Some(copy)
}

/// The copy that [`keep`] has made, by its address; `None` for null.
pub(crate) fn kept(bytes: *const u8, len: usize) -> Option<&'static [u8]> {
    // SAFETY: the only caller passes what `keep` returned, or null.
    (!bytes.is_null()).then(|| unsafe { core::slice::from_raw_parts(bytes, len) })
}

/// Writes a text to a new file, which only its owner may read, in the place of one that is there. A link that is there is
/// removed and not followed. False: that failed.
pub(crate) fn write_new_file(path: &CStr, text: &[u8]) -> bool {
    let how = libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL | libc::O_NOFOLLOW;
    // SAFETY: the path ends with a NUL. If nothing is there, or it cannot be removed, the open says so.
    unsafe { libc::unlink(path.as_ptr()) };
    let Ok(fd) = open_or_make(path, how, 0o600) else { return false };
    let written = write(fd, text);
    close(fd);
    written
}

/// Appends a text to a file. Errors are ignored: the text is lost.
pub(crate) fn append_to_file(path: &CStr, text: &[u8]) {
    let how = libc::O_WRONLY | libc::O_CREAT | libc::O_APPEND;
    if let Ok(fd) = open_or_make(path, how, 0o644) {
        write(fd, text);
        close(fd);
    }
}

/// Writes a text to a descriptor, in one call. False: that failed.
pub(crate) fn write(fd: c_int, text: &[u8]) -> bool {
    // SAFETY: the text is valid for its length.
    let written = unsafe { libc::syscall(libc::SYS_write, fd, text.as_ptr(), text.len()) };
    usize::try_from(written) == Ok(text.len())
}

/// Renames a file, in the place of another. Errors are ignored: the counts are then those of before.
pub(crate) fn rename(from: &CStr, to: &CStr) {
    // SAFETY: both paths end with a NUL.
    unsafe { libc::rename(from.as_ptr(), to.as_ptr()) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closefrom_of_ours_closes_all_from_there_on() {
        let high = [900, 901, 1000];
        for number in high {
            // SAFETY: dup2(2) takes no pointers, and no test has opened so many.
            assert_eq!(unsafe { libc::dup2(0, number) }, number);
        }
        close_from(901);
        assert!(flags(900).is_ok());
        assert_eq!(flags(901), Err(libc::EBADF));
        assert_eq!(flags(1000), Err(libc::EBADF));
        close(900);
    }

    #[test]
    fn what_dup2_would_refuse_is_known() {
        assert!(can_duplicate(0, 500));
        for (old, new) in [(-1, 500), (777, 500), (0, -1), (0, c_int::MAX)] {
            assert!(!can_duplicate(old, new), "{old} as {new}");
        }
    }
}
