//! The bounds of all pages of one response together: their memory, and the number of their includes.
//!
//! The length of the response is not bounded: it is made as the client takes it, so that a long one costs no more memory
//! than a short one, and has [`INCLUDES_MAX`] pages and files at most.

use core::cell::{Cell, RefCell};
use std::rc::Rc;

use ring::Key;
use sendfile::Piece;

use crate::handler::Part;
use crate::includes::Memory;

/// Includes of one response, of all its pages.
pub(super) const INCLUDES_MAX: u32 = 1000;
/// Holes of the pages of one response that are looked for, or whose pages, programs or servers are still at work, at
/// once. Beyond them, only the page whose turn to be sent has come goes on.
const OPEN_MAX: usize = 32;

/// Bytes that count for a piece that is given to the session, beside its own.
const PIECE_BYTES: u64 = 64;
/// Bytes that count for a range of a file. Each takes a call.
const FILE_PIECE_BYTES: u64 = 1024;

/// The memory and the includes that the pages of one response have taken.
#[derive(Debug)]
pub(in crate::handler) struct Budget {
    pub(super) memory: Rc<Memory>,
    /// Includes so far.
    includes: Cell<u32>,
    /// Holes that are looked for, or whose producers have not ended, or not been sent.
    open: Cell<usize>,
    /// Bytes that may still be given since the session asked last, where each piece counts for some more.
    pub(super) left: Cell<u64>,
    /// Pages that wait for the others.
    paused: RefCell<Vec<Key>>,
}

impl Budget {
    /// The budget of a response that has not begun.
    pub(in crate::handler) fn new(memory: Rc<Memory>) -> Rc<Self> {
        Rc::new(Self {
            memory,
            includes: Cell::new(0),
            open: Cell::new(0),
            left: Cell::new(0),
            paused: RefCell::default(),
        })
    }

    /// Counts an include; false if there are too many.
    pub(super) fn include(&self) -> bool {
        let count = self.includes.get();
        self.includes.set(count + u32::from(count < INCLUDES_MAX));
        count < INCLUDES_MAX
    }

    /// A hole is looked for.
    pub(super) fn open(&self) {
        self.open.set(self.open.get() + 1);
    }

    /// So many holes are filled, or not wanted any more.
    pub(super) fn close(&self, holes: usize) {
        self.open.set(self.open.get() - holes);
    }

    /// A part is given to the session.
    pub(super) fn give(&self, part: &Part) {
        let bytes = match part {
            Part::Piece(Piece::Bytes(bytes)) => PIECE_BYTES + bytes.len() as u64,
            Part::Piece(_) | Part::Producer(_) => PIECE_BYTES,
            Part::File(..) => FILE_PIECE_BYTES,
        };
        self.left.set(self.left.get().saturating_sub(bytes));
    }

    /// Returns whether a page may go on before its turn to be sent has come.
    pub(super) fn has_room(&self) -> bool {
        self.open.get() < OPEN_MAX && self.memory.has_room()
    }

    /// A page waits until there is room.
    pub(super) fn pause(&self, page: Key) {
        let mut paused = self.paused.borrow_mut();
        if !paused.contains(&page) {
            paused.push(page);
        }
    }

    /// The pages that can perhaps go on, because there is room.
    pub(super) fn take_paused(&self) -> Vec<Key> {
        if self.has_room() { self.paused.take() } else { Vec::new() }
    }
}
