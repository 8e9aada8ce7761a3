//! The functions that C calls. Each checks its pointers, calls safe code, and returns 0 or an errno.
//!
//! The C program keeps the rules of `include/samum.h`. Pointers are null or valid for the function's use. Memory
//! given to a call stays unchanged until the call has completed. Only the thread that made a queue uses it; this
//! rule is checked. A panic makes the queue unusable and never leaves Rust.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::mem::size_of;
use core::panic::AssertUnwindSafe;
use core::time::Duration;
use std::ffi::CString;
use std::io;
use std::os::fd::{FromRawFd as _, IntoRawFd as _, OwnedFd};
use std::panic::catch_unwind;
use std::thread::{self, ThreadId};

use libc::socklen_t;
use ring::Waker;
use rustix::fs::FileType;

use crate::queue::{self, Completion, Piece, Queue, Result, Stat};
use crate::sigpipe;

/// The target of `samum_queue *`.
#[derive(Debug)]
struct Handle {
    /// The thread that made the queue. Written once, before C has a pointer to the handle.
    thread: ThreadId,
    /// `None` after a panic. The memory and the descriptors of the queue are leaked then.
    queue: Option<Queue>,
}

/// `struct samum_piece`.
#[repr(C)]
#[derive(Debug)]
struct RawPiece {
    memory: *const c_void,
    file: u64,
    offset: u64,
    length: u64,
    readahead: u32,
    caching: u32,
}

/// `struct samum_entry`.
#[repr(C)]
#[derive(Debug)]
struct RawEntry {
    size: u64,
    mtime: i64,
    name: *const c_char,
    kind: u32,
}

/// `SAMUM_VERSION`: a million for each major version, a thousand for each minor one.
const VERSION: u32 = number(env!("CARGO_PKG_VERSION_MAJOR")) * 1_000_000
    + number(env!("CARGO_PKG_VERSION_MINOR")) * 1000
    + number(env!("CARGO_PKG_VERSION_PATCH"));

const fn number(digits: &str) -> u32 {
    match u32::from_str_radix(digits, 10) {
        Ok(number) => number,
        Err(_) => panic!("a version has numbers"),
    }
}

// The sizes that tests/misuse.c asserts, too.
const _: () = assert!(size_of::<RawEntry>() == 16 + 2 * size_of::<*const c_void>());
const _: () = assert!(size_of::<Stat>() == 48);
const _: () = assert!(size_of::<RawPiece>() == 32 + size_of::<*const c_void>());
const _: () = assert!(size_of::<Completion>() == 40);

/// Runs `act` on a queue.
///
/// # Safety
///
/// `queue` is null, or came from `samum_queue_new` and has not been freed.
unsafe fn with<T>(queue: *mut Handle, act: impl FnOnce(&mut Queue) -> Result<T>) -> Result<T> {
    if queue.is_null() {
        return Err(libc::EFAULT);
    }
    // SAFETY: by the contract `queue` points to a handle, and nothing writes to `thread` any more, so any thread
    // may read it.
    let thread = unsafe { (*queue).thread };
    if thread != thread::current().id() {
        return Err(libc::EPERM);
    }
    // SAFETY: as above; only the queue's own thread comes here, and no function calls back into the program while
    // it uses the queue. So there is no other reference to the handle.
    let handle = unsafe { &mut *queue };
    let Some(queue) = &mut handle.queue else { return Err(libc::ENOTRECOVERABLE) };
    sigpipe::without(|| catch_unwind(AssertUnwindSafe(|| act(queue)))).unwrap_or_else(|_| {
        // The state of the queue is unknown, so not even its destructors may run.
        core::mem::forget(handle.queue.take());
        Err(libc::ENOTRECOVERABLE)
    })
}

/// Writes a result to the memory that C names, and returns the errno.
///
/// # Safety
///
/// `place` is null or may be written to.
unsafe fn give<T>(place: *mut T, result: Result<T>) -> c_int {
    match result {
        Ok(value) => {
            if !place.is_null() {
                // SAFETY: by the contract, and it is not null.
                unsafe { place.write(value) };
            }
            0
        }
        Err(errno) => errno,
    }
}

/// Begins a call with a path, and writes the call's name to the memory that C names.
///
/// # Safety
///
/// As [`with`] and [`give`]; and `path` is null or ends with a NUL, and stays unchanged during this call.
unsafe fn begin_with_path(
    queue: *mut Handle,
    path: *const c_char,
    call: *mut u64,
    act: impl FnOnce(&mut Queue, CString) -> Result<u64>,
) -> c_int {
    if path.is_null() {
        return libc::EFAULT;
    }
    // SAFETY: the caller's promise, and it is not null.
    let path = unsafe { CStr::from_ptr(path) };
    // SAFETY: the caller's promise.
    let begun = unsafe { with(queue, |queue| act(queue, path.into())) };
    // SAFETY: the caller's promise.
    unsafe { give(call, begun) }
}

/// Begins a call that fills memory of the caller, and writes the call's name to the memory that C names.
///
/// # Safety
///
/// As [`with`] and [`give`]; and `memory` is null or points to `size` bytes, which no other code uses until the call has
/// completed.
unsafe fn begin_with_room(
    queue: *mut Handle,
    memory: *mut c_void,
    size: usize,
    call: *mut u64,
    act: impl FnOnce(&mut Queue, &'static mut [u8]) -> Result<u64>,
) -> c_int {
    if memory.is_null() {
        return libc::EFAULT;
    }
    let begin = |queue: &mut Queue| {
        // SAFETY: the caller's promise. The queue drops its last reference to the memory before it reports the completion.
        let room = unsafe { room(memory, size) }?;
        act(queue, room)
    };
    // SAFETY: the caller's promise.
    let begun = unsafe { with(queue, begin) };
    // SAFETY: the caller's promise.
    unsafe { give(call, begun) }
}

/// Runs `act` on a queue with a descriptor that passes a check, and which the queue takes over. After an error C keeps the descriptor.
///
/// # Safety
///
/// As [`with`] and [`give`]; and if `fd` is open, no other code closes it from now on unless this fails.
unsafe fn adopt<T>(
    queue: *mut Handle,
    fd: c_int,
    check: impl FnOnce(&OwnedFd) -> Result<T>,
    place: *mut u64,
    act: impl FnOnce(&mut Queue, OwnedFd, T) -> u64,
) -> c_int {
    let with_fd = |queue: &mut Queue| {
        if fd < 0 {
            return Err(libc::EBADF);
        }
        // SAFETY: `fd` is not -1, and by the contract it belongs to this call if it is open. If `fd` is not open,
        // the check fails below, and `fd` is given up without being closed.
        let owned = unsafe { OwnedFd::from_raw_fd(fd) };
        match check(&owned) {
            Ok(checked) => Ok(act(queue, owned, checked)),
            Err(errno) => {
                let _still_theirs = owned.into_raw_fd();
                Err(errno)
            }
        }
    };
    // SAFETY: the caller's promise.
    let result = unsafe { with(queue, with_fd) };
    // SAFETY: the caller's promise.
    unsafe { give(place, result) }
}

/// See `samum.h`.
#[unsafe(no_mangle)]
extern "C" fn samum_version() -> u32 {
    VERSION
}

/// See `samum.h`.
#[unsafe(no_mangle)]
unsafe extern "C" fn samum_queue_new(place: *mut *mut Handle) -> c_int {
    if place.is_null() {
        return libc::EFAULT;
    }
    let made = catch_unwind(Queue::new).unwrap_or(Err(libc::ENOTRECOVERABLE));
    let handle = made.map(|queue| {
        Box::into_raw(Box::new(Handle { thread: thread::current().id(), queue: Some(queue) }))
    });
    // SAFETY: the header asks for a pointer that may be written to.
    unsafe { give(place, handle) }
}

/// See `samum.h`.
#[unsafe(no_mangle)]
unsafe extern "C" fn samum_queue_free(queue: *mut Handle) -> c_int {
    if queue.is_null() {
        return 0;
    }
    // SAFETY: the header asks for a queue that has not been freed. The call only checks that the queue is this
    // thread's.
    let own = unsafe { with(queue, |_| Ok(())) };
    if own == Err(libc::EPERM) {
        return libc::EPERM;
    }
    // SAFETY: `queue` came from `Box::into_raw` in `samum_queue_new`, and C uses it no more.
    let handle = unsafe { Box::from_raw(queue) };
    match catch_unwind(AssertUnwindSafe(|| drop(handle))) {
        Ok(()) => 0,
        Err(_) => libc::ENOTRECOVERABLE,
    }
}

/// See `samum.h`.
#[unsafe(no_mangle)]
unsafe extern "C" fn samum_queue_set_patience(queue: *mut Handle, milliseconds: u64) -> c_int {
    let patience = (milliseconds != 0).then(|| Duration::from_millis(milliseconds));
    let set = |queue: &mut Queue| {
        queue.set_patience(patience);
        Ok(())
    };
    // SAFETY: the header asks for a valid queue.
    let done = unsafe { with(queue, set) };
    done.err().unwrap_or(0)
}

/// See `samum.h`.
#[unsafe(no_mangle)]
unsafe extern "C" fn samum_socket(queue: *mut Handle, fd: c_int, socket: *mut u64) -> c_int {
    let check = |fd: &OwnedFd| queue::check(fd, FileType::Socket, libc::ENOTSOCK);
    // SAFETY: the header asks the caller for all promises of the called function.
    unsafe { adopt(queue, fd, check, socket, |queue, fd, ()| queue.socket(fd)) }
}

/// See `samum.h`.
#[unsafe(no_mangle)]
unsafe extern "C" fn samum_listener(queue: *mut Handle, fd: c_int, listener: *mut u64) -> c_int {
    let check = |fd: &OwnedFd| queue::check(fd, FileType::Socket, libc::ENOTSOCK);
    // SAFETY: the header asks the caller for all promises of the called function.
    unsafe { adopt(queue, fd, check, listener, |queue, fd, ()| queue.listener(fd)) }
}

/// See `samum.h`.
#[unsafe(no_mangle)]
unsafe extern "C" fn samum_directory(queue: *mut Handle, fd: c_int, directory: *mut u64) -> c_int {
    let check = |fd: &OwnedFd| queue::check(fd, FileType::Directory, libc::ENOTDIR);
    // SAFETY: the header asks the caller for all promises of the called function.
    unsafe { adopt(queue, fd, check, directory, |queue, fd, ()| queue.directory(fd)) }
}

/// See `samum.h`.
#[unsafe(no_mangle)]
unsafe extern "C" fn samum_file(
    queue: *mut Handle,
    fd: c_int,
    flags: c_int,
    file: *mut u64,
) -> c_int {
    let caching = match queue::flags(flags) {
        _ if queue.is_null() => return libc::EFAULT,
        Ok(caching) => caching,
        Err(errno) => return errno,
    };
    let act = |queue: &mut Queue, fd, checked| queue.file(fd, caching, checked);
    // SAFETY: the header asks the caller for all promises of the called function.
    unsafe { adopt(queue, fd, queue::check_file, file, act) }
}

/// See `samum.h`.
#[unsafe(no_mangle)]
unsafe extern "C" fn samum_close(queue: *mut Handle, name: u64) -> c_int {
    // SAFETY: the header asks for a valid queue.
    let closed = unsafe { with(queue, |queue| queue.close(name)) };
    closed.err().unwrap_or(0)
}

/// See `samum.h`.
#[unsafe(no_mangle)]
unsafe extern "C" fn samum_shutdown(queue: *mut Handle, socket: u64) -> c_int {
    // SAFETY: the header asks for a valid queue.
    let shut = unsafe { with(queue, |queue| queue.shutdown(socket)) };
    shut.err().unwrap_or(0)
}

/// See `samum.h`.
#[unsafe(no_mangle)]
unsafe extern "C" fn samum_accept(
    queue: *mut Handle,
    listener: u64,
    token: u64,
    call: *mut u64,
) -> c_int {
    // SAFETY: the header asks for a valid queue.
    let begun = unsafe { with(queue, |queue| queue.accept(listener, token)) };
    // SAFETY: the header asks for null or writable memory for the name.
    unsafe { give(call, begun) }
}

/// See `samum.h`.
#[unsafe(no_mangle)]
unsafe extern "C" fn samum_connect(
    queue: *mut Handle,
    address: *const c_void,
    size: socklen_t,
    token: u64,
    call: *mut u64,
) -> c_int {
    if address.is_null() {
        return libc::EFAULT;
    }
    let connect = |queue: &mut Queue| {
        let size = usize::try_from(size).map_err(|_| libc::EINVAL)?;
        if size > size_of::<libc::sockaddr_storage>() {
            return Err(libc::EINVAL);
        }
        // SAFETY: the header asks for an address of this size, which stays as it is during the call.
        let bytes = unsafe { slice(address.cast::<u8>(), size) }?;
        queue.connect(queue::address(bytes)?, token)
    };
    // SAFETY: the header asks for a valid queue.
    let begun = unsafe { with(queue, connect) };
    // SAFETY: the header asks for null or writable memory for the name.
    unsafe { give(call, begun) }
}

/// See `samum.h`.
#[unsafe(no_mangle)]
unsafe extern "C" fn samum_timer(
    queue: *mut Handle,
    milliseconds: u64,
    token: u64,
    call: *mut u64,
) -> c_int {
    let after = Duration::from_millis(milliseconds);
    // SAFETY: the header asks for a valid queue.
    let begun = unsafe { with(queue, |queue| queue.timer(after, token)) };
    // SAFETY: the header asks for null or writable memory for the name.
    unsafe { give(call, begun) }
}

/// See `samum.h`.
#[unsafe(no_mangle)]
unsafe extern "C" fn samum_acknowledged(queue: *mut Handle, socket: u64, bytes: *mut u64) -> c_int {
    if bytes.is_null() {
        return libc::EFAULT;
    }
    // SAFETY: the header asks for a valid queue.
    let asked = unsafe { with(queue, |queue| queue.acknowledged(socket)) };
    // SAFETY: the header asks for a place for the number.
    unsafe { give(bytes, asked) }
}

/// See `samum.h`.
#[unsafe(no_mangle)]
unsafe extern "C" fn samum_acknowledgement(
    queue: *mut Handle,
    socket: u64,
    bytes: u64,
    token: u64,
    call: *mut u64,
) -> c_int {
    // SAFETY: the header asks for a valid queue.
    let begun = unsafe { with(queue, |queue| queue.acknowledgement(socket, bytes, token)) };
    // SAFETY: the header asks for null or writable memory for the name.
    unsafe { give(call, begun) }
}

/// See `samum.h`.
#[unsafe(no_mangle)]
unsafe extern "C" fn samum_signal(
    queue: *mut Handle,
    number: c_int,
    token: u64,
    call: *mut u64,
) -> c_int {
    // SAFETY: the header asks for a valid queue.
    let begun = unsafe { with(queue, |queue| queue.signal(number, token)) };
    // SAFETY: the header asks for null or writable memory for the name.
    unsafe { give(call, begun) }
}

/// See `samum.h`.
#[unsafe(no_mangle)]
unsafe extern "C" fn samum_open(
    queue: *mut Handle,
    directory: u64,
    path: *const c_char,
    flags: c_int,
    token: u64,
    call: *mut u64,
) -> c_int {
    let open = |queue: &mut Queue, path| queue.open(directory, path, flags, token);
    // SAFETY: the header asks the caller for all promises of the called function.
    unsafe { begin_with_path(queue, path, call, open) }
}

/// See `samum.h`.
#[unsafe(no_mangle)]
unsafe extern "C" fn samum_stat(queue: *mut Handle, file: u64, stat: *mut Stat) -> c_int {
    if stat.is_null() {
        return libc::EFAULT;
    }
    // SAFETY: the header asks for a valid queue.
    let asked = unsafe { with(queue, |queue| queue.stat(file)) };
    // SAFETY: the header asks for writable memory for the result.
    unsafe { give(stat, asked) }
}

/// See `samum.h`.
#[unsafe(no_mangle)]
unsafe extern "C" fn samum_list(
    queue: *mut Handle,
    directory: u64,
    path: *const c_char,
    entries_max: usize,
    token: u64,
    call: *mut u64,
) -> c_int {
    let list = |queue: &mut Queue, path| queue.list(directory, path, entries_max, token);
    // SAFETY: the header asks the caller for all promises of the called function.
    unsafe { begin_with_path(queue, path, call, list) }
}

/// See `samum.h`.
#[unsafe(no_mangle)]
unsafe extern "C" fn samum_entry(
    queue: *mut Handle,
    listing: u64,
    index: usize,
    entry: *mut RawEntry,
) -> c_int {
    if entry.is_null() {
        return libc::EFAULT;
    }
    let find = |queue: &mut Queue| {
        let queue::Entry { name, size, mtime, kind } = queue.entry(listing, index)?;
        Ok(RawEntry { size, mtime, name: name.as_ptr(), kind })
    };
    // SAFETY: the header asks for a valid queue.
    let found = unsafe { with(queue, find) };
    // SAFETY: the header asks for writable memory for the result.
    unsafe { give(entry, found) }
}

/// See `samum.h`.
#[unsafe(no_mangle)]
unsafe extern "C" fn samum_watch(
    queue: *mut Handle,
    directory: u64,
    path: *const c_char,
    token: u64,
    call: *mut u64,
) -> c_int {
    let watch = |queue: &mut Queue, path| queue.watch(directory, path, token);
    // SAFETY: the header asks the caller for all promises of the called function.
    unsafe { begin_with_path(queue, path, call, watch) }
}

/// See `samum.h`.
#[unsafe(no_mangle)]
unsafe extern "C" fn samum_child(
    queue: *mut Handle,
    pid: libc::pid_t,
    token: u64,
    call: *mut u64,
) -> c_int {
    // SAFETY: the header asks for a valid queue.
    let begun = unsafe { with(queue, |queue| queue.child(pid, token)) };
    // SAFETY: the header asks for null or writable memory for the name.
    unsafe { give(call, begun) }
}

/// See `samum.h`.
#[unsafe(no_mangle)]
unsafe extern "C" fn samum_send(
    queue: *mut Handle,
    socket: u64,
    pieces: *const RawPiece,
    count: usize,
    readahead: u64,
    token: u64,
    call: *mut u64,
) -> c_int {
    let piece = |&RawPiece { memory, file, offset, length, readahead, caching }: &RawPiece| {
        if file != 0 {
            return Ok(Piece::File { name: file, offset, length, readahead, caching });
        }
        let length = usize::try_from(length).map_err(|_| libc::EINVAL)?;
        // SAFETY: the header asks for memory that stays readable and unchanged until the call has completed. The
        // queue drops its last reference to the memory before it reports the completion.
        unsafe { slice(memory.cast::<u8>(), length) }.map(Piece::Memory)
    };
    let send = |queue: &mut Queue| {
        // SAFETY: the header asks for `count` pieces, which stay unchanged during the call.
        let pieces = unsafe { slice(pieces, count) }?;
        queue.send(socket, pieces.iter().map(piece), readahead, token)
    };
    // SAFETY: the header asks for a valid queue.
    let begun = unsafe { with(queue, send) };
    // SAFETY: the header asks for null or writable memory for the name.
    unsafe { give(call, begun) }
}

/// See `samum.h`.
#[unsafe(no_mangle)]
unsafe extern "C" fn samum_receive(
    queue: *mut Handle,
    socket: u64,
    memory: *mut c_void,
    size: usize,
    token: u64,
    call: *mut u64,
) -> c_int {
    let receive = |queue: &mut Queue, room| queue.receive(socket, room, token);
    // SAFETY: the header asks the caller for all promises of the called function.
    unsafe { begin_with_room(queue, memory, size, call, receive) }
}

/// See `samum.h`.
#[unsafe(no_mangle)]
unsafe extern "C" fn samum_read(
    queue: *mut Handle,
    file: u64,
    offset: u64,
    memory: *mut c_void,
    size: usize,
    token: u64,
    call: *mut u64,
) -> c_int {
    let read = |queue: &mut Queue, room| queue.read(file, offset, room, token);
    // SAFETY: the header asks the caller for all promises of the called function.
    unsafe { begin_with_room(queue, memory, size, call, read) }
}

/// See `samum.h`.
#[unsafe(no_mangle)]
unsafe extern "C" fn samum_receive_file(
    queue: *mut Handle,
    socket: u64,
    file: u64,
    offset: u64,
    length: u64,
    token: u64,
    call: *mut u64,
) -> c_int {
    let receive = |queue: &mut Queue| queue.receive_file(socket, file, offset, length, token);
    // SAFETY: the header asks for a valid queue.
    let begun = unsafe { with(queue, receive) };
    // SAFETY: the header asks for null or writable memory for the name.
    unsafe { give(call, begun) }
}

/// See `samum.h`.
#[unsafe(no_mangle)]
unsafe extern "C" fn samum_ready(
    queue: *mut Handle,
    fd: c_int,
    direction: u32,
    token: u64,
    call: *mut u64,
) -> c_int {
    let ready = |queue: &mut Queue| {
        // The caller may close its descriptor at any time, so the queue waits on one of its own.
        // SAFETY: the call uses no memory, and fails with EBADF if `fd` is not open.
        let own = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 0) };
        if own < 0 {
            return Err(io::Error::last_os_error().raw_os_error().unwrap_or(libc::EBADF));
        }
        // SAFETY: the call above has made it for this code alone.
        let own = unsafe { OwnedFd::from_raw_fd(own) };
        queue.ready(own, direction, token)
    };
    // SAFETY: the header asks for a valid queue.
    let begun = unsafe { with(queue, ready) };
    // SAFETY: the header asks for null or writable memory for the name.
    unsafe { give(call, begun) }
}

/// See `samum.h`.
#[unsafe(no_mangle)]
unsafe extern "C" fn samum_waker_new(queue: *mut Handle, waker: *mut *mut Waker) -> c_int {
    if waker.is_null() {
        return libc::EFAULT;
    }
    // SAFETY: the header asks for a valid queue.
    let made = unsafe { with(queue, Queue::waker) };
    // SAFETY: the header asks for a place for the waker.
    unsafe { give(waker, made.map(|waker| Box::into_raw(Box::new(waker)))) }
}

/// See `samum.h`. It makes one system call, so a signal handler may call it.
#[unsafe(no_mangle)]
unsafe extern "C" fn samum_wake(waker: *const Waker) -> c_int {
    // SAFETY: the header asks for null, or a waker that has not been freed. Threads share it, and none changes it.
    match unsafe { waker.as_ref() } {
        None => libc::EFAULT,
        Some(waker) => {
            waker.wake();
            0
        }
    }
}

/// See `samum.h`.
#[unsafe(no_mangle)]
unsafe extern "C" fn samum_waker_free(waker: *mut Waker) -> c_int {
    if !waker.is_null() {
        // SAFETY: it came from `Box::into_raw` in `samum_waker_new`, and C uses it no more.
        drop(unsafe { Box::from_raw(waker) });
    }
    0
}

/// See `samum.h`.
#[unsafe(no_mangle)]
unsafe extern "C" fn samum_cancel(queue: *mut Handle, call: u64) -> c_int {
    // SAFETY: the header asks for a valid queue.
    let cancelled = unsafe { with(queue, |queue| queue.cancel(call)) };
    cancelled.err().unwrap_or(0)
}

/// See `samum.h`.
#[unsafe(no_mangle)]
unsafe extern "C" fn samum_wait(
    queue: *mut Handle,
    timeout_ms: c_int,
    completions: *mut Completion,
    room: usize,
    count: *mut usize,
) -> c_int {
    if completions.is_null() || count.is_null() {
        return libc::EFAULT;
    }
    let limit = limit(timeout_ms);
    let wait = |queue: &mut Queue| {
        if room == 0 {
            return Err(libc::EINVAL);
        }
        let done = queue.wait(limit, room)?;
        let taken = done.len();
        for (at, completion) in done.enumerate() {
            // SAFETY: `at` is below `room`, and the header asks for an array of `room` completions.
            let place = unsafe { completions.add(at) };
            // SAFETY: the same.
            unsafe { place.write(completion) };
        }
        Ok(taken)
    };
    // SAFETY: the header asks for a valid queue.
    let taken = unsafe { with(queue, wait) };
    // SAFETY: the header asks for a place for the count.
    unsafe { give(count, taken) }
}

/// See `samum.h`.
#[unsafe(no_mangle)]
unsafe extern "C" fn samum_wait_for(
    queue: *mut Handle,
    call: u64,
    timeout_ms: c_int,
    completion: *mut Completion,
) -> c_int {
    if completion.is_null() {
        return libc::EFAULT;
    }
    let limit = limit(timeout_ms);
    // SAFETY: the header asks for a valid queue.
    let done = unsafe { with(queue, |queue| queue.wait_for(call, limit)) };
    // SAFETY: the header asks for a place for the completion.
    unsafe { give(completion, done) }
}

/// The time limit of a wait: `None`, without a limit, for a negative number.
fn limit(timeout_ms: c_int) -> Option<Duration> {
    u64::try_from(timeout_ms).ok().map(Duration::from_millis)
}

/// Memory to be filled; none, or more than memory can be, is `EINVAL`.
///
/// # Safety
///
/// `memory` is not null, and points to `size` bytes, which no other code uses for `'a`.
unsafe fn room<'a>(memory: *mut c_void, size: usize) -> Result<&'a mut [u8]> {
    if size == 0 || isize::try_from(size).is_err() {
        return Err(libc::EINVAL);
    }
    // SAFETY: by the contract, and it is not larger than memory can be.
    Ok(unsafe { core::slice::from_raw_parts_mut(memory.cast::<u8>(), size) })
}

/// An array of C. A null pointer with a count above 0 is `EFAULT`; an array larger than the address space is
/// `EINVAL`.
///
/// # Safety
///
/// If `count` is not 0, `start` is null or points to `count` values, which stay unchanged for `'a`.
unsafe fn slice<'a, T>(start: *const T, count: usize) -> Result<&'a [T]> {
    if count == 0 {
        return Ok(&[]);
    }
    if start.is_null() {
        return Err(libc::EFAULT);
    }
    let bytes = count.checked_mul(size_of::<T>()).and_then(|bytes| isize::try_from(bytes).ok());
    if bytes.is_none() {
        return Err(libc::EINVAL);
    }
    // SAFETY: by the contract, and it is neither null nor larger than memory can be.
    Ok(unsafe { core::slice::from_raw_parts(start, count) })
}
