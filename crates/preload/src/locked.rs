//! Files that the program has locked (`fcntl(2)`, `lockf(3)`, `flock(2)`). Pure.
//!
//! A process gives up its locks on a file as soon as it closes any descriptor of that file, and readers
//! open and close such descriptors. So the library leaves `sendfile` calls of locked files to the kernel.
//! Descriptors that readers had opened before stay open: they are *parked* until the program closes the descriptor
//! by which it has locked the file. The program's close gives up the locks anyway. Locks of `flock(2)` belong to
//! the open file: while a reader holds the open file, a close by the program would not give up the locks.

use core::ffi::c_int;

use crate::sys::FileId;

/// The most descriptors that lock files at the same time. With more, all files count as locked from then on.
const LOCKS_MAX: usize = 256;

#[derive(Clone, Copy, Debug)]
struct Descriptor {
    file: FileId,
    fd: c_int,
}

const NONE: Descriptor = Descriptor { file: FileId { dev: 0, ino: 0 }, fd: -1 };

/// The locks of the program, and up to `PARKED_MAX` descriptors of readers that stay open meanwhile.
pub(crate) struct Locked<const PARKED_MAX: usize> {
    locks: [Descriptor; LOCKS_MAX],
    locks_len: usize,
    has_overflowed: bool,
    parked: [Descriptor; PARKED_MAX],
    parked_len: usize,
}

impl<const PARKED_MAX: usize> Locked<PARKED_MAX> {
    pub(crate) const fn none() -> Self {
        Self {
            locks: [NONE; LOCKS_MAX],
            locks_len: 0,
            has_overflowed: false,
            parked: [NONE; PARKED_MAX],
            parked_len: 0,
        }
    }

    /// Notes that the program is about to lock a file. False: too many are locked.
    pub(crate) fn lock(&mut self, fd: c_int, file: FileId) -> bool {
        let is_known = |lock: &Descriptor| lock.fd == fd && lock.file == file;
        if self.locks[..self.locks_len].iter().any(is_known) {
            return true;
        }
        self.has_overflowed |= self.locks_len == LOCKS_MAX;
        if !self.has_overflowed {
            self.locks[self.locks_len] = Descriptor { file, fd };
            self.locks_len += 1;
        }
        !self.has_overflowed
    }

    pub(crate) fn is_locked(&self, file: FileId) -> bool {
        self.has_overflowed || self.locks[..self.locks_len].iter().any(|lock| lock.file == file)
    }

    /// Notes that the program is about to close a descriptor. [`Locked::unpark`] has the descriptors that
    /// can be closed then.
    pub(crate) fn unlock(&mut self, fd: c_int) {
        let mut index = 0;
        while index < self.locks_len {
            if self.locks[index].fd == fd {
                self.locks_len -= 1;
                self.locks[index] = self.locks[self.locks_len];
            } else {
                index += 1;
            }
        }
    }

    /// Keeps a descriptor of a locked file. False: there is no room, so it has to be closed.
    pub(crate) fn park(&mut self, fd: c_int, file: FileId) -> bool {
        let has_room = self.parked_len < PARKED_MAX;
        if has_room {
            self.parked[self.parked_len] = Descriptor { file, fd };
            self.parked_len += 1;
        }
        has_room
    }

    /// Takes out a descriptor whose file is not locked any more.
    pub(crate) fn unpark(&mut self) -> Option<c_int> {
        let index = (0..self.parked_len).find(|&index| !self.is_locked(self.parked[index].file))?;
        Some(self.take_parked(index))
    }

    /// Notes that the program has closed a descriptor of ours.
    pub(crate) fn surrender(&mut self, fd: c_int) {
        if let Some(index) = (0..self.parked_len).find(|&index| self.parked[index].fd == fd) {
            self.take_parked(index);
        }
    }

    /// Forgets the locks in a forked child, which has none. Returns one parked descriptor at a time.
    pub(crate) fn begin_anew(&mut self) -> Option<c_int> {
        (self.locks_len, self.has_overflowed) = (0, false);
        self.unpark()
    }

    fn take_parked(&mut self, index: usize) -> c_int {
        let fd = self.parked[index].fd;
        self.parked_len -= 1;
        self.parked[index] = self.parked[self.parked_len];
        fd
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: FileId = FileId { dev: 1, ino: 2 };
    const OTHER: FileId = FileId { dev: 1, ino: 3 };

    #[test]
    fn what_readers_had_open_stays_open_until_the_program_closes() {
        let mut locked = Locked::<4>::none();
        assert!(locked.lock(5, FILE) && locked.lock(5, FILE) && locked.lock(6, FILE));
        assert!(locked.is_locked(FILE) && !locked.is_locked(OTHER));
        assert!(locked.park(10, FILE) && locked.park(11, FILE));
        locked.unlock(5);
        assert_eq!(locked.unpark(), None, "locked by another descriptor too");
        locked.surrender(10);
        locked.unlock(6);
        assert!(!locked.is_locked(FILE));
        assert_eq!([locked.unpark(), locked.unpark()], [Some(11), None]);
    }

    #[test]
    fn with_too_many_locks_all_files_are_taken_to_be_locked() {
        let mut locked = Locked::<4>::none();
        for ino in 0..LOCKS_MAX as u64 {
            assert!(locked.lock(5, FileId { dev: 2, ino }));
        }
        assert!(!locked.is_locked(FILE));
        assert!(!locked.lock(5, OTHER));
        assert!(locked.is_locked(FILE));
        locked.unlock(5);
        assert!(locked.is_locked(FILE), "it is not known which are left");
        assert!(locked.park(10, FILE));
        assert_eq!(
            [locked.begin_anew(), locked.begin_anew()],
            [Some(10), None],
            "a child has none"
        );
        assert!(!locked.is_locked(FILE));
    }

    #[test]
    fn what_finds_no_place_is_closed() {
        let mut locked = Locked::<4>::none();
        assert!(locked.lock(5, FILE));
        assert!((0..4).all(|_| locked.park(10, FILE)));
        assert!(!locked.park(10, FILE));
    }
}
