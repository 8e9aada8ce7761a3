//! Files: the operations that the kernel has. All others go to helper threads.

use core::mem::MaybeUninit;
use core::sync::atomic::AtomicU8;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use io_uring::opcode;
use io_uring::squeue::{Entry, Flags};
use io_uring::types::{Fd as RawTarget, OpenHow as RawHow};

use super::{ARRIVAL, INOTIFY, Uring};
use crate::common::{Common, Pinned, Slot};
use crate::fd::{Fd, Handle};
use crate::helpers::job::read_flags;
use crate::helpers::open::OPEN_TRIES_MAX;
use crate::mounts;
use crate::now::file::settle_flags;
use crate::op::{Event, Op, Stat};
use crate::slab::Key;
use crate::statx::STATX_MASK;

/// Makes the kernel's form of an operation; `None` if the kernel has none.
pub(super) fn entry(slot: &mut Slot) -> Option<Entry> {
    Some(match &mut slot.op {
        Op::Open { dir, path, how } => {
            let raw = RawHow::new()
                .flags(u64::from((how.flags | libc::O_CLOEXEC).cast_unsigned()))
                .mode(how.mode.into())
                .resolve(how.resolve);
            let raw = Box::new(raw);
            let dir = RawTarget(dir.as_ref().map_or(libc::AT_FDCWD, Fd::raw));
            let entry = opcode::OpenAt2::new(dir, path.as_ptr(), &raw const *raw).build();
            let before = if let Pinned::How { tries, .. } = slot.pinned { tries } else { 0 };
            slot.pinned = Pinned::How { how: raw, tries: before + 1 };
            entry
        }
        Op::Stat(fd) => {
            let mut out = Box::new(MaybeUninit::<libc::statx>::zeroed());
            let entry =
                opcode::Statx::new(RawTarget(fd.raw()), c"".as_ptr(), out.as_mut_ptr().cast())
                    .flags(libc::AT_EMPTY_PATH)
                    .mask(STATX_MASK)
                    .build();
            slot.pinned = Pinned::Statx(out);
            entry
        }
        Op::Read { file, offset, buf, caching } => {
            let len = u32::try_from(buf.want()).expect("buffers are below 2^31 bytes");
            opcode::Read::new(RawTarget(file.raw()), buf.as_mut_ptr(), len)
                .offset(*offset)
                .rw_flags(read_flags(*caching))
                .build()
        }
        Op::Splice { file, offset, pipe } => {
            let len = u32::try_from(pipe.want()).expect("pipes hold a megabyte");
            let offset = i64::try_from(*offset).unwrap_or(i64::MAX);
            opcode::Splice::new(RawTarget(file.raw()), offset, RawTarget(pipe.write_end()), -1, len)
                .flags(libc::SPLICE_F_MOVE)
                .build()
        }
        Op::Write { file, at, bytes } => {
            let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
            opcode::Write::new(RawTarget(file.raw()), bytes.as_ptr(), len)
                .offset(at.unwrap_or(u64::MAX))
                .build()
        }
        _ => return None,
    })
}

/// Returns whether an operation could sleep in the worker if it was submitted inline: the first read of a file, a write
/// at a position, and an open without `O_PATH`.
///
/// A buffered read that is submitted inline waits for data by callback, but for metadata it sleeps in the worker. It
/// sleeps until the positions of the file's blocks have been read (`ext4_read_bh` below `page_cache_ra_unbounded` in
/// the stack of a worker whose disk had died). So threads of the kernel do the first reads, until one has ended and has
/// brought the positions into memory: ext4 brings all 340 extents of a block of its tree into memory together. In a
/// file of more extents the worker could sleep where the next block begins. [`Op::Extents`] brings all blocks into
/// memory, and until it ends, threads do the reads. Threads do all splices.
///
/// If all names of a path are in memory, io_uring opens it inline. The file system may sleep then: it asks a server, or
/// reads an access control list or a directory's first block. A program may have to permit the open (fanotify). An open
/// with `O_PATH` waits for none of these.
pub(super) fn may_sleep_inline(op: &Op) -> bool {
    match op {
        Op::Read { file, .. } => !file.was_read(),
        Op::Open { how, .. } => how.flags & libc::O_PATH == 0,
        // The blocks that it writes to may have to be found, and other bytes of a page to be read.
        Op::Write { at, .. } => at.is_some(),
        _ => false,
    }
}

/// Entries linked in front of a splice without the kernel's readahead, so that its range is in memory when it
/// begins: `POSIX_FADV_WILLNEED` of the range, then a read of its last byte.
///
/// `IORING_OP_SPLICE` runs in a worker thread of the kernel, and sleeps there for each page that is still being read.
/// Without readahead (`POSIX_FADV_RANDOM`) it would read page by page, and on a slow disk sleep for long. So a thread
/// begins to read the whole range: it sleeps for metadata but not for data. A buffered read of one byte then waits by
/// callback, where the file system allows that (`FMODE_NOWAIT`: ext4, xfs, btrfs). On other file systems a thread waits
/// for the byte as it would have waited for the page. The metadata is in memory by then, so the read can be inline,
/// unless the kernel had no memory for the pages or takes less than the range in one request (`max_sectors_kb` below
/// 1,024). In one case the read still sleeps in the worker. If it meets a page that triggers readahead, it submits the
/// next window, and waits for a tag of the device (`blk_mq_get_tag` below `filemap_readahead`). A device that has
/// stopped answering may have none left.
///
/// With the kernel's readahead, which is for fast disks, the thread sleeps for pages that are on their way. A read of
/// one byte in front would avoid this sleep, but it costs more. In a virtual machine the processor's first access to a
/// page that the device has written may trap to the host, some 6 µs, and a splice does not access the page at all.
///
/// The read is a hint: pages in front of it may still be on their way, and then the thread sleeps. If an entry fails or
/// finds the end of the file, the kernel drops the splice, which then has no completion of its own
/// (`REQ_F_SKIP_LINK_CQES`). The completion of the entry comes, and the splice is [tried
/// alone](Uring::complete_arrival).
fn arrivals(op: &Op, key: Key) -> Option<[Entry; ARRIVALS]> {
    /// The byte that the read in front of a splice lands on. No code reads it, and the kernel may write it at any time.
    static LANDING: AtomicU8 = AtomicU8::new(0);
    let Op::Splice { file, offset, pipe } = op else { return None };
    if !file.is_random() || *offset > OFFSET_MAX || pipe.want() == 0 {
        return None;
    }
    let target = RawTarget(file.raw());
    let len = libc::off_t::try_from(pipe.want()).expect("pipes hold a megabyte");
    let begin = opcode::Fadvise::new(target, len, libc::POSIX_FADV_WILLNEED).offset(*offset);
    let last = offset + pipe.want() as u64 - 1;
    let wait = opcode::Read::new(target, LANDING.as_ptr(), 1).offset(last);
    let link = |entry: Entry| {
        entry.flags(Flags::IO_LINK | Flags::SKIP_SUCCESS).user_data(ARRIVAL | key.to_bits())
    };
    Some([link(begin.build()), link(wait.build())])
}

/// Places in files beyond it do not exist (`MAX_LFS_FILESIZE`), and -1 would mean the descriptor's own.
const OFFSET_MAX: u64 = 1 << 62;
/// As many as [`arrivals`] gives.
const ARRIVALS: usize = 2;

impl Uring {
    /// Submits the entries in front of a splice, if all fit into the queue: entries are linked only within one
    /// submission.
    pub(super) fn submit_arrivals(&mut self, op: &Op, key: Key) {
        if let Some(entries) = arrivals(op, key)
            && self.has_room(ARRIVALS + 1)
        {
            entries.into_iter().for_each(|entry| self.push(entry));
        }
    }

    /// An entry in front of a splice has failed, so the splice was dropped: it is tried alone.
    pub(super) fn complete_arrival(&mut self, common: &mut Common, key: Key) {
        let Some(slot) = common.table.get_mut(key) else { return };
        if slot.cancelled {
            common.end_cancelled(key);
        } else if let Some(splice) = entry(slot) {
            self.push(splice.user_data(key.to_bits()));
        }
    }

    /// Give it to a helper thread.
    pub(super) fn submit_to_helper(&mut self, common: &mut Common, key: Key) {
        let is_watch = common.table.get(key).is_some_and(|slot| slot.op.is_watch());
        if is_watch && !self.inotify_armed {
            match common.inotify() {
                Ok(fd) => {
                    self.inotify_armed = true;
                    self.arm_poll(fd.as_raw_fd(), INOTIFY);
                }
                Err(error) => {
                    common.end(key, Err(error));
                    return;
                }
            }
        }
        common.submit_job(key);
    }

    /// The kernel says what became of an operation on a file.
    pub(super) fn complete_file(
        &mut self,
        common: &mut Common,
        key: Key,
        outcome: io::Result<u32>,
    ) {
        let slot = common.table.get_mut(key).expect("just looked at");
        let cancelled = slot.cancelled;
        match (&mut slot.op, outcome) {
            // The kernel could not start a thread for the operation, and reports a cancel (`io_queue_iowq`).
            (_, Err(error)) if error.raw_os_error() == Some(libc::ECANCELED) && !cancelled => {
                common.submit_job(key);
            }
            (Op::Open { how, .. }, Ok(fd)) => {
                // SAFETY: openat2(2) has just made it, for us alone.
                let fd = unsafe { OwnedFd::from_raw_fd(fd.cast_signed()) };
                settle_flags(&fd, *how);
                let is_direct = how.flags & libc::O_DIRECT != 0;
                let fd = common.fd(Handle::File(fd));
                if is_direct {
                    fd.mark_direct();
                }
                common.end(key, Ok(Event::Opened(fd)));
            }
            (Op::Open { .. }, Err(error)) => match slot.pinned {
                Pinned::How { tries, .. }
                    if error.raw_os_error() == Some(libc::EAGAIN) && tries < OPEN_TRIES_MAX =>
                {
                    self.again(common, key, cancelled);
                }
                _ => drop(common.end(key, Err(error))),
            },
            (Op::Stat(_), Ok(_)) => {
                let Pinned::Statx(raw) = &slot.pinned else { unreachable!("set by submit") };
                // SAFETY: zeroed is a valid `statx`, and the kernel has filled it by now.
                let raw = unsafe { raw.assume_init_ref() };
                let Some(site) = mounts::FileLocation::from(raw).site() else {
                    // A helper thread looks again, and learns of the mount.
                    return common.submit_job(key);
                };
                let stat = Stat::new(raw, site);
                common.end(key, Ok(Event::Stat(Box::new(stat))));
            }
            (Op::Read { .. }, Ok(len)) => common.end_read(key, len as usize),
            (Op::Splice { .. }, Ok(len)) => common.end_splice(key, len as usize),
            (Op::Write { bytes, .. }, Ok(len)) => {
                let bytes = core::mem::take(bytes);
                common.end(key, Ok(Event::Written(bytes, len as usize)));
            }
            (_, Err(error)) => drop(common.end(key, Err(error))),
            (op, Ok(_)) => unreachable!("{op:?} is not submitted to the kernel"),
        }
    }
}
