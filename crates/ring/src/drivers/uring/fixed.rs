//! Buffers that are registered with the ring (io_uring_register(2), `IORING_REGISTER_BUFFERS_UPDATE`).
//!
//! For a read with `O_DIRECT` the kernel pins the pages of the buffer, and releases them at the end. The pages of a
//! registered buffer stay pinned. Buffered reads copy and gain nothing (`docs/linux.md` has the figures).
//!
//! A buffer is registered when a read with `O_DIRECT` first uses it, so a server without such reads pins nothing. The
//! pages then stay in memory until the ring is dropped. Without `CAP_IPC_LOCK` pinned pages count against
//! `RLIMIT_MEMLOCK`. Buffers beyond that limit are used unregistered.

use io_uring::squeue::Entry;
use io_uring::types::Fd as RawTarget;
use io_uring::{IoUring, opcode};

use crate::buffer::{Buffer, BufferPool};
use crate::helpers::job::read_flags;
use crate::op::Op;

/// The registered buffers of one pool, the first pool that a read used that bypasses the page cache.
#[derive(Debug, Default)]
pub(super) struct Fixed {
    /// Kept, so that no other mapping can take the addresses of the registered buffers.
    pool: Option<BufferPool>,
    /// For each buffer of the pool, whether it is registered, under its number.
    registered: Vec<bool>,
    /// True once the kernel has refused to register a buffer: no other is tried.
    is_full: bool,
}

impl Fixed {
    /// Makes the kernel's form of a read that bypasses the page cache into a registered buffer; `None` for any other
    /// operation.
    pub(super) fn entry(&mut self, ring: &IoUring, op: &mut Op) -> Option<Entry> {
        let Op::Read { file, offset, buf, caching } = op else { return None };
        if !file.is_direct() {
            return None;
        }
        let index = self.index(ring, buf)?;
        let len = u32::try_from(buf.want()).expect("buffers are below 2^31 bytes");
        let read = opcode::ReadFixed::new(RawTarget(file.raw()), buf.as_mut_ptr(), len, index)
            .offset(*offset)
            .rw_flags(read_flags(*caching));
        Some(read.build())
    }

    /// The number under which a buffer is registered, if it is or can be.
    fn index(&mut self, ring: &IoUring, buf: &Buffer) -> Option<u16> {
        let pool = self.pool.get_or_insert_with(|| {
            let pool = buf.pool();
            self.is_full = !make_table(ring, pool.count());
            self.registered = vec![false; pool.count()];
            pool
        });
        if !pool.has(buf) {
            return None;
        }
        let registered = &mut self.registered[buf.index() as usize];
        if !*registered {
            if self.is_full {
                return None;
            }
            // SAFETY: the memory is mapped as long as the pool lives, which is kept for as long as the ring.
            let done = unsafe {
                let place = [pool.place(buf.index())];
                ring.submitter().register_buffers_update(buf.index(), &place, None)
            };
            *registered = done.is_ok();
            self.is_full = done.is_err();
        }
        registered.then(|| u16::try_from(buf.index()).expect("the kernel has no larger table"))
    }
}

/// Makes room for `count` buffers; false if the kernel does not (it has room for 16,384).
fn make_table(ring: &IoUring, count: usize) -> bool {
    u32::try_from(count).is_ok_and(|count| ring.submitter().register_buffers_sparse(count).is_ok())
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;
    use std::fs::{self, File};
    use std::os::unix::ffi::OsStringExt as _;

    use crate::common::Common;
    use crate::drivers::uring::Uring;
    use crate::op::{Caching, Event, OpenHow};
    use crate::{BufferPool, Fd};

    use super::*;

    const BLOCK: usize = 64 * 1024;

    struct Reads {
        common: Common,
        uring: Uring,
        fd: Fd,
        content: Vec<u8>,
    }

    impl Reads {
        /// Makes a file of two blocks; `None` if no file can be opened with `O_DIRECT` there.
        fn new(name: &str) -> Option<Self> {
            let path = std::env::temp_dir().join(format!("ring-{name}-{}", std::process::id()));
            let content: Vec<u8> = (0..=u8::MAX).flat_map(|byte| [byte; 2 * BLOCK / 256]).collect();
            fs::write(&path, &content).unwrap();
            File::open(&path).unwrap().sync_all().unwrap();
            let name = CString::new(path.clone().into_os_string().into_vec()).unwrap();
            let mut common = Common::new().unwrap();
            let mut uring = Uring::new(&common).unwrap();
            let open = Op::Open { dir: None, path: name, how: OpenHow::DIRECT };
            let opened = end(&mut common, &mut uring, open);
            fs::remove_file(path).unwrap();
            match opened {
                Ok(Event::Opened(fd)) => Some(Self { common, uring, fd, content }),
                Ok(other) => panic!("{other:?}"),
                Err(error) => {
                    eprintln!("skipped: O_DIRECT: {error}");
                    None
                }
            }
        }

        /// Reads into a buffer, checks that the bytes are those of the file, and gives the buffer back.
        fn read(&mut self, offset: usize, buf: Buffer) {
            let (file, want) = (self.fd.clone(), buf.want());
            let read = Op::Read { file, offset: offset as u64, buf, caching: Caching::Keep };
            let Ok(Event::Read(buf)) = end(&mut self.common, &mut self.uring, read) else {
                panic!("a read of {want} bytes at {offset}")
            };
            assert!(*buf == self.content[offset..offset + want], "{want} bytes at {offset}");
        }

        fn registered(&self) -> Vec<usize> {
            let registered = self.uring.fixed.registered.iter().enumerate();
            registered.filter_map(|(index, is_registered)| is_registered.then_some(index)).collect()
        }
    }

    /// Lets the kernel do an operation, and returns its result.
    fn end(common: &mut Common, uring: &mut Uring, op: Op) -> std::io::Result<Event> {
        let key = common.insert(0, op);
        uring.submit(common, key);
        while common.ready.is_empty() {
            uring.wait(common, crate::Time::default(), None).unwrap();
        }
        common.ready.pop().expect("not empty").result
    }

    #[test]
    fn a_buffer_is_registered_at_its_first_read() {
        let Some(mut reads) = Reads::new("fixed") else { return };
        let pool = BufferPool::new(BLOCK, 4).unwrap();
        let other = BufferPool::new(BLOCK, 1).unwrap();
        reads.read(0, numbered(&pool, 2));
        assert_eq!(reads.registered(), [2]);
        reads.read(BLOCK, numbered(&pool, 2));
        assert_eq!(reads.registered(), [2]);
        reads.read(BLOCK, numbered(&pool, 3));
        assert_eq!(reads.registered(), [2, 3]);
        // Parts are read into the middle of a registered buffer.
        let _others = [0, 1].map(|index| numbered(&pool, index));
        let parts = [(); 3].map(|()| pool.take_part(BLOCK / 16).unwrap());
        for (nth, part) in parts.into_iter().enumerate() {
            reads.read(nth * BLOCK / 16, part);
        }
        assert_eq!(reads.registered(), [2, 3]);
        // Only one pool has slots in the table.
        reads.read(0, other.take(BLOCK).unwrap());
        assert_eq!(reads.registered(), [2, 3]);
    }

    /// The buffer of this number.
    fn numbered(pool: &BufferPool, index: u32) -> Buffer {
        let mut buffers: Vec<Buffer> = (0..pool.count()).filter_map(|_| pool.take(BLOCK)).collect();
        let at = buffers.iter().position(|buffer| buffer.index() == index).unwrap();
        buffers.swap_remove(at)
    }

    #[test]
    fn where_the_kernel_has_no_room_buffers_are_used_as_they_are() {
        let Some(mut reads) = Reads::new("unfixed") else { return };
        let pool = BufferPool::new(BLOCK, 16 * 1024 + 1).unwrap();
        reads.read(0, pool.take(BLOCK).unwrap());
        assert!(reads.registered().is_empty());
    }
}
