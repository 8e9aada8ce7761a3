//! Second descriptors of files, for reads that bypass the page cache (`O_DIRECT` of open(2)).
//!
//! A file gets a second descriptor at its first read by a stream that does not fill the page cache, and keeps it
//! for as long as the file is open. Until the descriptor is open, and if it cannot be opened, reads go through the
//! page cache.

use core::cell::{Cell, RefCell};
use std::ffi::CString;
use std::rc::Rc;

use ring::{Fd, Op, OpenHow};

/// The second descriptor of a file.
#[derive(Debug)]
pub(crate) struct Direct {
    /// The alignment of reads, or 0 where the file system has no such reads.
    align: u64,
    state: RefCell<DirectState>,
}

#[derive(Debug)]
enum DirectState {
    Closed,
    Opening,
    Open { fd: Fd, _place: DescriptorSlot },
    Refused,
}

/// The slots for such descriptors of one worker.
#[derive(Debug)]
pub(crate) struct DescriptorSlots(Rc<Cell<usize>>);

/// A slot; its drop gives it back.
#[derive(Debug)]
pub(crate) struct DescriptorSlot(Rc<Cell<usize>>);

impl DescriptorSlots {
    pub(crate) fn new(count: usize) -> Self {
        Self(Rc::new(Cell::new(count)))
    }

    fn take(&self) -> Option<DescriptorSlot> {
        self.0.set(self.0.get().checked_sub(1)?);
        Some(DescriptorSlot(Rc::clone(&self.0)))
    }
}

impl Drop for DescriptorSlot {
    fn drop(&mut self) {
        self.0.set(self.0.get() + 1);
    }
}

impl Direct {
    /// For a file with this alignment (`stx_dio_offset_align` and `stx_dio_mem_align` of statx(2)).
    pub(crate) const fn new(align: u32) -> Self {
        Self { align: align as u64, state: RefCell::new(DirectState::Closed) }
    }

    /// The descriptor and the bytes of an aligned read at `offset`, at most `len`, if there can be one now.
    pub(crate) fn read(&self, offset: u64, len: u64) -> Option<(Fd, u64)> {
        let DirectState::Open { fd, .. } = &*self.state.borrow() else { return None };
        let len = len - len % self.align;
        (len > 0 && offset.is_multiple_of(self.align)).then(|| (fd.clone(), len))
    }

    /// The operation that opens the descriptor, and its slot. `None` if that was tried before, or if no slot is
    /// free. The result is for [`opened`](Self::opened).
    pub(crate) fn open(&self, file: &Fd, places: &DescriptorSlots) -> Option<(Op, DescriptorSlot)> {
        let mut state = self.state.borrow_mut();
        let may_open =
            matches!(*state, DirectState::Closed) && self.align > 0 && self.align <= ALIGN_MAX;
        if !may_open {
            return None;
        }
        let place = places.take()?;
        *state = DirectState::Opening;
        let path = CString::new(format!("/proc/self/fd/{}", file.raw())).expect("no NUL");
        Some((Op::Open { dir: None, path, how: OpenHow::DIRECT }, place))
    }

    /// The descriptor is open, or cannot be had.
    pub(crate) fn opened(&self, fd: Option<Fd>, place: DescriptorSlot) {
        let state = fd.map_or(DirectState::Refused, |fd| DirectState::Open { fd, _place: place });
        self.state.replace(state);
    }

    /// The file system has refused a read by it: none follows.
    pub(crate) fn refuse(&self) {
        self.state.replace(DirectState::Refused);
    }
}

/// Buffers are aligned to pages.
const ALIGN_MAX: u64 = 4096;
