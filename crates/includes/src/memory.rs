//! The memory of the pages of one response: the variables that they set, and the bytes that wait to be sent.

use core::cell::Cell;
use std::rc::Rc;

/// The bytes of memory of the pages of one response. The error message replaces values beyond it.
pub const BYTES_MAX: usize = 2 * 1024 * 1024;
/// The limit while pages are evaluated ahead of the part that is sent next. Beyond it, all other parts wait.
pub(crate) const AHEAD_BYTES_MAX: usize = 1024 * 1024;
/// The limit before the response begins. Many pages may wait behind another response on their connection.
pub(crate) const BEFORE_BYTES_MAX: usize = 32 * 1024;

/// The memory of the pages of one response, or of another kind of its bytes.
#[derive(Debug)]
pub struct Memory {
    held: Cell<usize>,
    /// Pages are evaluated ahead only while they hold fewer bytes than this.
    ahead_max: Cell<usize>,
}

/// A part of this memory, until it is dropped. Its clone is another part with as many bytes.
#[derive(Debug)]
pub struct Share {
    bytes: usize,
    memory: Rc<Memory>,
}

impl Default for Memory {
    /// The memory of a response that has not begun.
    fn default() -> Self {
        Self { held: Cell::new(0), ahead_max: Cell::new(BEFORE_BYTES_MAX) }
    }
}

impl Memory {
    /// The response begins.
    pub fn begin(&self) {
        self.ahead_max.set(AHEAD_BYTES_MAX);
    }

    /// The bytes that are held.
    pub const fn held(&self) -> usize {
        self.held.get()
    }

    /// Returns whether pages may be evaluated ahead while `others` bytes of the response wait, too.
    pub const fn has_room_beside(&self, others: usize) -> bool {
        self.held.get() + others < self.ahead_max.get()
    }

    /// Returns whether a page may set `bytes` more. `is_next`: everything before them has been sent.
    pub(super) const fn admits(&self, bytes: usize, is_next: bool) -> bool {
        let most = if is_next { BYTES_MAX } else { self.ahead_max.get() };
        self.held.get() + bytes <= most
    }
}

impl Share {
    /// Takes a part of `bytes`.
    pub fn new(memory: &Rc<Memory>, bytes: usize) -> Self {
        memory.held.set(memory.held.get() + bytes);
        Self { bytes, memory: Rc::clone(memory) }
    }

    /// Sets the size of the part.
    pub fn resize(&mut self, bytes: usize) {
        self.memory.held.set(self.memory.held.get() - self.bytes + bytes);
        self.bytes = bytes;
    }

    /// Its bytes.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Clone for Share {
    fn clone(&self) -> Self {
        Self::new(&self.memory, self.bytes)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.memory.held.set(self.memory.held.get() - self.bytes);
    }
}
