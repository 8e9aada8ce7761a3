//! The limits of all pages of one response together: their memory, and the number of their includes.
//!
//! A response has at most [`RESPONSE_BYTES_MAX`] in memory. Its pages take a part: their variables, and their parts that
//! wait. The rest is for bodies that fill holes. A hole is charged for the largest body in memory before its answer is looked
//! for. The hole whose turn to be sent has come goes on in any case: bytes are left for it. An upstream whose response is
//! sent gets the buffer of its route if it fits, and a small one otherwise, as if its connection had other requests. If
//! nothing else of the response waits, the buffer may be larger than the limit; then nothing is looked for ahead.
//!
//! The entries of a directory are the one kind of body that may be larger than was charged. A larger listing is dropped if it
//! is found before its turn, and looked for again then: otherwise it might use the bytes of the listing before it. At
//! its turn at least [`NEXT_BYTES`] are left for it. If it does not fit then, the page shows the error message.
//!
//! The length of the response is not limited. It is made as the client receives it, so a long response costs no more
//! memory than a short one. It has [`INCLUDES_MAX`] pages and files at most.

use core::cell::{Cell, RefCell};
use std::rc::Rc;

use ring::Key;
use sendfile::Piece;

use crate::Part;
use ::includes::{BYTES_MAX, Memory};

/// Includes of one response, of all its pages.
pub(super) const INCLUDES_MAX: u32 = 1000;
/// Holes of the pages of one response that are open at the same time: their answers are looked for, or their pages,
/// programs or upstreams are still at work. At this limit only the page continues whose turn to be sent has come.
const OPEN_MAX: usize = 32;

/// Bytes of memory of one response.
pub(super) const RESPONSE_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Bytes of bodies in memory among them: found ones, those that may be found, and what the part that is sent may keep.
const BODIES_BYTES_MAX: usize = RESPONSE_BYTES_MAX - BYTES_MAX;
/// Bytes of bodies that are left for the part whose turn to be sent has come: the buffer that a route has by default.
const NEXT_BYTES: usize = 1024 * 1024;
/// The bytes that an answer may come to: a file in memory. Other bodies are not in memory before their turn, or are small,
/// or are listings.
pub(super) const ANSWER_BYTES_MAX: usize = content::FILE_BYTES_MAX_IN_MEMORY;

const _: () = assert!(ANSWER_BYTES_MAX <= NEXT_BYTES && NEXT_BYTES < BODIES_BYTES_MAX);

/// Each piece for the session counts as this many bytes in addition to its own.
const PIECE_BYTES: u64 = 64;
/// Bytes that a range of a file counts, because each takes a call.
const FILE_PIECE_BYTES: u64 = 1024;

/// The memory and the includes that the pages of one response have taken.
#[derive(Debug)]
pub(crate) struct Budget {
    /// The memory of pages.
    pub(super) memory: Rc<Memory>,
    /// The memory of bodies that were found.
    pub(super) bodies: Rc<Memory>,
    /// The memory of bodies that may be found.
    pub(super) expected: Rc<Memory>,
    /// The memory that the producer which is sent may come to keep, if it may keep much.
    sending: Cell<usize>,
    /// Includes so far.
    includes: Cell<u32>,
    /// Holes whose answers are looked for, or whose producers have not ended or were not sent.
    open: Cell<usize>,
    /// Bytes that may still be given since the session asked last; each piece counts more than its bytes.
    pub(super) left: Cell<u64>,
    /// Pages that wait for others.
    paused: RefCell<Vec<Key>>,
}

/// The decision about a body that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fit {
    /// There is memory for it.
    Now,
    /// There may be memory for it when its turn to be sent has come.
    AtItsTurn,
    /// There is no memory for it.
    Never,
}

impl Budget {
    /// The budget of a response that has not begun.
    pub(crate) fn new(memory: Rc<Memory>) -> Rc<Self> {
        Rc::new(Self {
            memory,
            bodies: Rc::default(),
            expected: Rc::default(),
            sending: Cell::new(0),
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
        let found = self.bodies.held();
        let sending = self.sending.get().max(NEXT_BYTES);
        self.open.get() < OPEN_MAX
            && self.memory.has_room_beside(found)
            && found + self.expected.held() + ANSWER_BYTES_MAX + sending <= BODIES_BYTES_MAX
    }

    /// Decides about a body of `bytes` bytes. Its hole has charged `expected` bytes. `is_turn`: its turn to be sent has come,
    /// so no other producer is being sent. `can_wait`: otherwise the body can be found again then.
    pub(super) fn admit(
        &self,
        bytes: usize,
        expected: usize,
        is_turn: bool,
        can_wait: bool,
    ) -> Fit {
        let others = self.bodies.held() + self.expected.held() - expected;
        let next = if is_turn { 0 } else { self.sending.get().max(NEXT_BYTES) };
        if bytes <= expected {
            Fit::Now
        } else if !is_turn && can_wait && bytes <= BODIES_BYTES_MAX {
            Fit::AtItsTurn
        } else if others + bytes + next <= BODIES_BYTES_MAX {
            Fit::Now
        } else {
            Fit::Never
        }
    }

    /// Returns true if the producer that is sent may keep `most` bytes of memory; otherwise it may keep little.
    pub(super) fn admits_whole(&self, most: usize) -> bool {
        if self.sending.get() < most {
            let others = self.bodies.held() + self.expected.held();
            let fits = others == 0 || others + most <= BODIES_BYTES_MAX;
            self.sending.set(if fits { most } else { 0 });
        }
        self.sending.get() >= most
    }

    /// The producer that was sent has ended.
    pub(super) fn end_sending(&self) {
        self.sending.set(0);
    }

    /// Bytes of memory of the response, but for those of its producers.
    pub(super) fn held(&self) -> usize {
        self.memory.held() + self.bodies.held()
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

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use ::includes::Share;
    use testkit::Random;

    use super::*;

    /// A hole of a page, with its share of a budget, which is given back when the hole is dropped.
    enum Hole {
        Pending(#[expect(dead_code, reason = "it is dropped")] Share),
        Found(#[expect(dead_code, reason = "it is dropped")] Share),
        /// The most bytes that its producer keeps.
        Gateway(Share, usize),
        Listing(Share),
        Postponed,
        Error,
    }

    /// The holes of a page within a page, in order, and those of the outer page after them.
    struct Model {
        budget: Rc<Budget>,
        inner: VecDeque<Hole>,
        outer: VecDeque<Hole>,
        /// Bytes that the producer keeps which is sent.
        kept: usize,
        /// True if the turn of the first outer hole has come. No page within the page comes before it then.
        is_outer: bool,
    }

    impl Model {
        fn begin(&mut self, is_inner: bool) {
            let share = Share::new(&self.budget.expected, ANSWER_BYTES_MAX);
            self.budget.open();
            let holes = if is_inner { &mut self.inner } else { &mut self.outer };
            holes.push_back(Hole::Pending(share));
        }

        /// A hole that is looked for is found.
        fn find(&mut self, chance: &mut Random) {
            let front = self.inner.front().or_else(|| self.outer.front());
            let is_front = matches!(front, Some(Hole::Pending(_)));
            let all = self.inner.iter_mut().chain(&mut self.outer);
            let pending = all.filter(|hole| matches!(hole, Hole::Pending(_)));
            let mut pending: Vec<_> = pending.collect();
            if pending.is_empty() {
                return;
            }
            let place = chance.below(pending.len());
            let hole = &mut *pending[place];
            if chance.one_in(3) {
                let most = chance.below(8 << 20);
                let bytes = chance.below(most + 1);
                let is_turn = is_front && place == 0 && self.kept == 0;
                let can_wait = !chance.one_in(4);
                match self.budget.admit(bytes, ANSWER_BYTES_MAX, is_turn, can_wait) {
                    Fit::Now => {
                        *hole = Hole::Listing(Share::new(&self.budget.bodies, bytes));
                        self.is_outer |= is_turn && self.inner.is_empty();
                    }
                    Fit::AtItsTurn => *hole = Hole::Postponed,
                    Fit::Never => {
                        let is_left = bytes <= NEXT_BYTES && (is_turn || can_wait);
                        assert!(!is_left, "{bytes} bytes are left for it");
                        *hole = Hole::Error;
                        self.budget.close(1);
                    }
                }
            } else if chance.one_in(2) {
                // The size of a buffer: small, the default, large, larger than the limit.
                let most = [16 << 10, 1 << 20, 3 << 20, 64 << 20][chance.below(4)];
                *hole = Hole::Gateway(Share::new(&self.budget.bodies, 24 * 1024), most);
            } else {
                let bytes = chance.below(ANSWER_BYTES_MAX + 1);
                *hole = Hole::Found(Share::new(&self.budget.bodies, bytes));
                self.budget.close(1);
            }
        }

        /// The first hole is sent, or a part of it.
        fn send(&mut self, chance: &mut Random) {
            let (is_outer, before) = (self.inner.is_empty(), self.outer.len());
            let holes = if is_outer { &self.outer } else { &self.inner };
            if !matches!(holes.front(), None | Some(Hole::Pending(_))) {
                self.send_first(chance);
                self.is_outer = is_outer && self.outer.len() == before;
            }
        }

        fn send_first(&mut self, chance: &mut Random) {
            let holes = if self.inner.is_empty() { &mut self.outer } else { &mut self.inner };
            match holes.front_mut() {
                None | Some(Hole::Pending(_)) => {}
                Some(Hole::Found(_) | Hole::Error) => drop(holes.pop_front()),
                Some(hole @ Hole::Postponed) => {
                    *hole = Hole::Pending(Share::new(&self.budget.expected, ANSWER_BYTES_MAX));
                }
                Some(Hole::Listing(share)) => {
                    let bytes = share.bytes();
                    share.resize(0);
                    self.kept = self.kept.max(bytes);
                    assert!(self.budget.admits_whole(self.kept), "it was admitted");
                    if chance.one_in(4) {
                        holes.pop_front();
                        self.end();
                    }
                }
                Some(Hole::Gateway(share, most)) => {
                    share.resize(0);
                    let is_whole = self.budget.admits_whole(*most);
                    // If the route has a buffer directory, every part gets its memory.
                    self.kept = self.kept.max(if is_whole { *most } else { NEXT_BYTES.min(*most) });
                    if chance.one_in(4) {
                        holes.pop_front();
                        self.end();
                    }
                }
            }
        }

        /// The producer that was sent ends.
        fn end(&mut self) {
            self.budget.end_sending();
            self.budget.close(1);
            self.kept = 0;
        }

        fn check(&self) {
            let others = self.budget.bodies.held() + self.budget.expected.held();
            let is_within = others + self.kept <= BODIES_BYTES_MAX;
            assert!(is_within || others == 0, "{others} bytes beside {}", self.kept);
        }
    }

    #[test]
    fn bodies_are_within_their_limit_and_the_next_one_goes_on() {
        let (mut full, mut large) = (0, 0);
        for seed in 0..2000 {
            let mut chance = Random::new(seed);
            let budget = Budget::new(Rc::default());
            budget.memory.begin();
            let (inner, outer) = (VecDeque::new(), VecDeque::new());
            let mut model = Model { budget, inner, outer, kept: 0, is_outer: false };
            for _ in 0..400 {
                match chance.below(5) {
                    0 | 1 if model.budget.has_room() => {
                        model.begin(chance.one_in(2) && !model.is_outer);
                    }
                    0 | 1 => full += 1,
                    2 if model.inner.is_empty() && !model.is_outer => model.begin(true),
                    2 | 3 => model.find(&mut chance),
                    _ => model.send(&mut chance),
                }
                model.check();
                large += usize::from(model.kept > BODIES_BYTES_MAX);
            }
            // Everything ends, whatever was begun.
            for _ in 0..10_000 {
                model.find(&mut chance);
                model.send(&mut chance);
                model.check();
            }
            assert!(model.inner.is_empty() && model.outer.is_empty(), "seed {seed}");
            assert_eq!((model.budget.open.get(), model.budget.held()), (0, 0));
        }
        assert!(full > 0 && large > 0, "{full} {large}");
    }
}
