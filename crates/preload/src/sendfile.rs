//! A `sendfile(2)` that does not wait for the disk.

use core::cell::Cell;
use core::ffi::c_int;

use libc::off_t;

use crate::deferral::{self, Outcome};
use crate::residency::{Residency, residency};
use crate::setting::{self, Caching};
use crate::state::Want;
use crate::stats::{self, Reason};
use crate::sys::{self, Errno};
use crate::{caching, fuse, real};

/// The most bytes that one call of the kernel sends: with more, the answer about the last of them may be
/// outdated.
const PIECE: u64 = 4 * 1024 * 1024;
/// The kernel's limit of one `sendfile(2)` (`MAX_RW_COUNT`).
const COUNT_MAX: usize = 0x7fff_f000;

/// Sends bytes that are in memory. If the first is not, a reader gets the job and the call fails with
/// `EAGAIN`; if that is impossible, the kernel sends, and may wait.
///
/// Returns the number of bytes sent, or -1 with `errno`. `progress` has the number even if this library
/// fails afterwards.
///
/// # Safety
/// `offset` is null or valid, as for `sendfile(2)`.
pub(crate) unsafe fn sendfile(
    out: c_int,
    file: c_int,
    offset: *mut off_t,
    count: usize,
    progress: &Cell<isize>,
) -> isize {
    let before = sys::errno();
    // SAFETY: the caller's promise.
    match unsafe { send(out, file, offset, count.min(COUNT_MAX), progress) } {
        Ok(sent) => {
            sys::set_errno(before);
            sent.cast_signed()
        }
        Err(errno) => {
            sys::set_errno(errno);
            -1
        }
    }
}

/// # Safety
/// As [`sendfile`].
unsafe fn send(
    out: c_int,
    file: c_int,
    offset: *mut off_t,
    count: usize,
    progress: &Cell<isize>,
) -> Result<usize, Errno> {
    let position = if offset.is_null() {
        sys::position(file)
    } else {
        // SAFETY: not null, so valid (the caller's promise).
        Ok(unsafe { *offset })
    };
    let Some(start) = position.ok().and_then(|position| u64::try_from(position).ok()) else {
        // SAFETY: the caller's arguments.
        return unsafe { ask_kernel(out, file, offset, count) };
    };
    // Only these answers depend on the file: while everything stays, no call is made for them.
    let served = if setting::caching() == Caching::Always { None } else { sys::status(file).ok() };
    let served = served.filter(|served| served.is_regular);
    let stays = served.is_none_or(|served| caching::stays(out, &served, start, count as u64));
    let mut sent = 0;
    while sent < count {
        let at = start.saturating_add(sent as u64);
        let rest = count - sent;
        let want =
            |file, is_absent| Want { file, offset: at, count: rest as u64, is_absent, stays };
        let mut found = residency(file, at, (rest as u64).min(PIECE), false, stays);
        if let Residency::Following(id) = found
            && deferral::has_waited(out, want(id, false))
        {
            // The reader has passed this place but has not noted it, because it was the end of its reads.
            found = residency(file, at, (rest as u64).min(PIECE), true, stays);
        }
        let piece = match found {
            Residency::Resident(len) => {
                stats::RESIDENT.add(1);
                usize::try_from(len).unwrap_or(rest).min(rest)
            }
            Residency::Unknown => {
                stats::left(Reason::Untold);
                rest
            }
            Residency::Cold(id) | Residency::Following(id) => {
                let is_absent = matches!(found, Residency::Cold(_));
                match deferral::defer(out, file, want(id, is_absent), sent == 0) {
                    Outcome::Deferred if sent == 0 => return Err(libc::EAGAIN),
                    Outcome::Failed(errno) if sent == 0 => return Err(errno),
                    Outcome::Deferred | Outcome::Failed(_) => return Ok(sent),
                    Outcome::Left(reason) => {
                        stats::left(reason);
                        rest
                    }
                }
            }
        };
        // Only a stream that does not block is given less than it can have: another output would wait for room
        // in the next call, or mistake each piece for a message.
        let piece = if piece < rest && !deferral::waits_for_events(out) { rest } else { piece };
        deferral::cancel(out);
        // SAFETY: the caller's arguments, but for a smaller count.
        match unsafe { ask_kernel(out, file, offset, piece) } {
            Ok(more) => {
                sent += more;
                progress.set(sent.cast_signed());
                if let Some(served) = served {
                    caching::note_sent(out, served.id, at..at.saturating_add(more as u64), stays);
                }
                fuse::point("sent");
                if more < piece {
                    break;
                }
            }
            // As the kernel does: the next call will meet the error again.
            Err(_) if sent > 0 => break,
            Err(errno) => return Err(errno),
        }
    }
    Ok(sent)
}

/// # Safety
/// As [`sendfile`].
unsafe fn ask_kernel(
    out: c_int,
    file: c_int,
    offset: *mut off_t,
    count: usize,
) -> Result<usize, Errno> {
    // SAFETY: the caller's arguments.
    let sent = unsafe { real::sendfile.function()(out, file, offset, count) };
    usize::try_from(sent).map_err(|_| sys::errno())
}
