//! The limits of all pages of one response together: their memory, and the number of their includes.
//!
//! The length of the response is not limited. It is made as the client takes it, so a long response costs no more
//! memory than a short one. It has [`INCLUDES_MAX`] pages and files at most.

use core::cell::{Cell, RefCell};
use std::rc::Rc;

use ring::Key;
use sendfile::Piece;

use crate::Part;
use ::includes::Memory;

/// Includes of one response, of all its pages.
pub(super) const INCLUDES_MAX: u32 = 1000;
/// Holes of the pages of one response that are open at once: their answers are looked for, or their pages, programs or
/// upstreams are still at work. At this limit only the page continues whose turn to be sent has come.
const OPEN_MAX: usize = 32;

/// Bytes that each piece for the session counts beside its own.
const PIECE_BYTES: u64 = 64;
/// Bytes that a range of a file counts, because each takes a call.
const FILE_PIECE_BYTES: u64 = 1024;

/// The memory and the includes that the pages of one response have taken.
#[derive(Debug)]
pub(crate) struct Budget {
    pub(super) memory: Rc<Memory>,
    /// Includes so far.
    includes: Cell<u32>,
    /// Holes whose answers are looked for, or whose producers have not ended or were not sent.
    open: Cell<usize>,
    /// Bytes that may still be given since the session asked last; each piece counts more than its bytes.
    pub(super) left: Cell<u64>,
    /// Pages that wait for others.
    paused: RefCell<Vec<Key>>,
}

impl Budget {
    /// The budget of a response that has not begun.
    pub(crate) fn new(memory: Rc<Memory>) -> Rc<Self> {
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

    /// Counts a hole whose answer is looked for.
    pub(super) fn open(&self) {
        self.open.set(self.open.get() + 1);
    }

    /// Subtracts holes that were filled, or are no longer wanted.
    pub(super) fn close(&self, holes: usize) {
        self.open.set(self.open.get() - holes);
    }

    /// Counts a part that the session gets.
    pub(super) fn give(&self, part: &Part) {
        let bytes = match part {
            Part::Piece(Piece::Bytes(bytes)) => PIECE_BYTES + bytes.len() as u64,
            Part::Piece(_) | Part::Producer(_) => PIECE_BYTES,
            Part::File(..) => FILE_PIECE_BYTES,
        };
        self.left.set(self.left.get().saturating_sub(bytes));
    }

    /// Returns true if a page may continue before its turn to be sent has come.
    pub(super) fn has_room(&self) -> bool {
        self.open.get() < OPEN_MAX && self.memory.has_room()
    }

    /// Makes a page wait until there is room.
    pub(super) fn pause(&self, page: Key) {
        let mut paused = self.paused.borrow_mut();
        if !paused.contains(&page) {
            paused.push(page);
        }
    }

    /// Takes the pages that may continue, because there is room.
    pub(super) fn take_paused(&self) -> Vec<Key> {
        if self.has_room() { self.paused.take() } else { Vec::new() }
    }
}
