//! Operations on files that helper threads do.

use std::io;
use std::os::fd::AsRawFd;

use rustix::io::Errno;

use super::Common;
use crate::fd::{Fd, Handle, Unused};
use crate::helpers::job::{Job, Lent, LentTargets, Outcome};
use crate::op::{Completion, Event, Op, parent_and_name};
use crate::slab::Key;

impl Common {
    /// Give the operation `key` to a helper thread.
    pub(crate) fn submit_job(&mut self, key: Key) {
        let is_watch = self.is_watch(key);
        match self.job(key).and_then(|job| self.helpers.submit(key, job)) {
            Ok(()) => self.watches.settling += usize::from(is_watch),
            Err(error) if is_watch => self.end_watch_with(key, error),
            Err(error) => drop(self.end(key, Err(error))),
        }
    }

    fn is_watch(&self, key: Key) -> bool {
        self.table.get(key).is_some_and(|slot| slot.op.is_watch())
    }

    /// Lets a helper thread close a file.
    pub(crate) fn submit_close(&mut self, unused: Unused) {
        let device = unused.device;
        if self.helpers.submit(Key::NONE, Job::Close(unused)).is_err() {
            // Without a thread the descriptor was closed right here, because no other way is left.
            self.closed.push(device);
        }
    }

    fn job(&mut self, key: Key) -> io::Result<Job> {
        let inotify = self.watches.inotify().map(|fd| fd.as_raw_fd());
        let slot = self.table.get_mut(key).expect("just inserted by the driver");
        Ok(match &mut slot.op {
            Op::Open { dir, path, how } => {
                Job::Open { dir: dir.as_ref().map(Fd::raw), path: path.clone(), how: *how }
            }
            Op::Follow { root, path, how, symlinks } => Job::Follow {
                root: root.raw(),
                path: path.clone(),
                how: *how,
                symlinks: symlinks.clone(),
            },
            Op::Stat(fd) => Job::Stat { fd: fd.raw() },
            Op::Read { file, offset, buf, caching } => Job::Read {
                fd: file.raw(),
                offset: *offset,
                memory: Lent { start: buf.as_mut_ptr(), len: buf.want() },
                caching: *caching,
            },
            Op::Splice { file, offset, pipe } => Job::Splice {
                fd: file.raw(),
                offset: *offset,
                pipe: pipe.write_end(),
                len: pipe.want(),
            },
            Op::Write { file, at, bytes } => {
                Job::Write { fd: file.raw(), at: *at, bytes: core::mem::take(bytes) }
            }
            Op::List { dir, entries_max, order, targets } => Job::List {
                fd: dir.raw(),
                entries_max: *entries_max,
                order: *order,
                targets: targets.as_ref().map(|targets| LentTargets {
                    root: targets.root.raw(),
                    path: targets.path.clone(),
                    symlinks: targets.symlinks.clone(),
                    names: targets.names,
                }),
            },
            Op::HasName { root, path, entries_max, is_wanted } => Job::HasName {
                root: root.raw(),
                path: path.clone(),
                entries_max: *entries_max,
                is_wanted: *is_wanted,
            },
            Op::Watch { root, path } => Job::Watch {
                root: root.raw(),
                path: path.clone(),
                inotify: inotify.ok_or(io::ErrorKind::Unsupported)?,
            },
            Op::WatchFile { root, path } => {
                let (parent, name) = parent_and_name(path).ok_or(Errno::INVAL)?;
                let inotify = inotify.ok_or(io::ErrorKind::Unsupported)?;
                Job::WatchFile { root: root.raw(), parent, name, inotify }
            }
            Op::Punch { file, offset, len } => {
                Job::Punch { fd: file.raw(), offset: *offset, len: *len }
            }
            Op::Discard { file, offset, len } => {
                Job::Discard { fd: file.raw(), offset: *offset, len: *len }
            }
            Op::FileSystem(fd) => Job::FileSystem { fd: fd.raw() },
            Op::Extents(fd) => Job::Extents { fd: fd.raw() },
            Op::Accept(_)
            | Op::Connect(_)
            | Op::Recv(_)
            | Op::Writable(_)
            | Op::Readable(_)
            | Op::Timer(_)
            | Op::Signal(_)
            | Op::Acknowledgements(_)
            | Op::Child(_) => unreachable!("never sleeps, so no driver gives it to a helper"),
        })
    }

    /// Deliver the results of the helper threads.
    pub(crate) fn reap_helpers(&mut self) {
        for (key, result) in self.helpers.take_done() {
            let event = match result {
                Ok(Outcome::Opened(fd)) => Ok(Event::Opened(self.fd(Handle::File(fd)))),
                Ok(Outcome::Stat(stat)) => Ok(Event::Stat(stat)),
                Ok(Outcome::Read(len)) => {
                    self.end_read(key, len);
                    continue;
                }
                Ok(Outcome::Spliced(len)) => {
                    self.end_splice(key, len);
                    continue;
                }
                Ok(Outcome::Written(bytes, count)) => Ok(Event::Written(bytes, count)),
                Ok(Outcome::Listed(listing)) => Ok(Event::Listed(listing)),
                Ok(Outcome::HasName(has)) => Ok(Event::HasName(has)),
                Ok(Outcome::Watching(watched)) => {
                    self.watching(key, watched);
                    continue;
                }
                Ok(Outcome::WatchingFile(watched)) => {
                    self.watching_file(key, watched);
                    continue;
                }
                Ok(Outcome::Punched) => Ok(Event::Punched),
                Ok(Outcome::Discarded) => Ok(Event::Discarded),
                Ok(Outcome::FileSystem(magic)) => Ok(Event::FileSystem(magic)),
                Ok(Outcome::Extents(count)) => Ok(Event::Extents(count)),
                Ok(Outcome::Closed(device)) => {
                    self.closed.push(device);
                    continue;
                }
                Err(error) if self.is_watch(key) => {
                    self.end_watch_with(key, error);
                    self.watch_settled();
                    continue;
                }
                Err(error) => Err(error),
            };
            self.end(key, event);
        }
    }

    /// The read `key` brought `len` bytes.
    pub(crate) fn end_read(&mut self, key: Key, len: usize) {
        let Some(slot) = self.remove(key) else { return };
        let Op::Read { file, mut buf, .. } = slot.op else {
            unreachable!("only reads end with a count of bytes read")
        };
        file.mark_read();
        buf.set_len(len);
        let result = Ok(Event::Read(buf));
        self.ready.push(Completion { key, token: slot.token, result, more: false });
    }

    /// The splice `key` brought `len` bytes.
    pub(crate) fn end_splice(&mut self, key: Key, len: usize) {
        let Some(slot) = self.remove(key) else { return };
        let Op::Splice { file, mut pipe, .. } = slot.op else {
            unreachable!("only splices end with a count of bytes spliced")
        };
        file.mark_read();
        pipe.set_len(len);
        let result = Ok(Event::Spliced(pipe));
        self.ready.push(Completion { key, token: slot.token, result, more: false });
    }
}
