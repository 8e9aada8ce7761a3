//! The queue as anyone would write it who had no hurry: one cell for each byte. [`Pair`] puts the
//! model and the real queue through the same operations and compares everything that can be seen.
//! Property tests and the fuzz target share it.

use alloc::rc::Rc;
use alloc::vec::Vec;

use crate::{OutQ, Payload, State, Weight};

/// One call of the queue. The numbers are wishes: [`Pair::apply`] takes each modulo what the
/// protocol allows at that moment, and leaves an operation out for which there is no room.
#[derive(Clone, Copy, Debug)]
pub enum Operation {
    /// Nothing is here yet of the next `n` bytes.
    Promise(u16),
    /// The next `n` bytes are here.
    Push(u16),
    /// Some missing bytes come; also those behind a failure, and across it.
    Fill(u16, u16),
    /// A missing byte will never come; also one behind a failure.
    Fail(u16),
    /// Filled bytes vanish before they could be sent; also those behind a failure.
    Retract(u16),
    /// The transport takes ready bytes.
    Send(u16),
    /// The transport lets sent bytes go.
    Release(u16),
    /// The connection goes idle.
    Shrink,
    /// Another connection takes the queue over.
    Restart,
}

/// A payload whose life is counted: `_alive` is one clone of [`Pair::alive`].
#[derive(Debug)]
pub struct Piece {
    bytes: Vec<u8>,
    weight: Weight,
    _alive: Rc<()>,
}

impl Payload for Piece {
    fn len(&self) -> u64 {
        to_u64(self.bytes.len())
    }

    fn weight(&self) -> Weight {
        self.weight
    }
}

/// A filled byte: which payload it belongs to, and its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cell {
    payload: u32,
    value: u8,
}

/// The naive queue. Everything that is not stored is counted out anew each time it is asked for.
#[derive(Debug, Default)]
struct Model {
    /// All promised bytes from position 0 on; None is a gap. Never filled from `failed_at` on.
    cells: Vec<Option<Cell>>,
    sent: usize,
    released: usize,
    failed_at: Option<usize>,
}

impl Model {
    fn reachable(&self) -> usize {
        self.failed_at.unwrap_or(self.cells.len())
    }

    fn ready(&self) -> usize {
        let gap = self.cells.iter().position(Option::is_none);
        gap.unwrap_or(self.cells.len())
    }

    fn first_gap(&self) -> Option<(usize, usize)> {
        let begin = self.ready();
        let reachable = &self.cells[begin..self.reachable()];
        let missing = reachable.iter().take_while(|cell| cell.is_none()).count();
        (missing > 0).then_some((begin, begin + missing))
    }

    fn state(&self) -> State {
        match self.cells.get(self.sent) {
            None => State::Drained,
            Some(Some(_)) => State::Ready,
            Some(None) if self.failed_at == Some(self.sent) => State::Failed,
            Some(None) => State::Waiting,
        }
    }

    /// Payloads of which a byte is unreleased. Bytes of one payload are neighbours.
    fn payloads_alive(&self) -> Vec<u32> {
        let mut payloads: Vec<u32> =
            self.cells[self.released..].iter().flatten().map(|cell| cell.payload).collect();
        payloads.dedup();
        payloads
    }

    /// The `wish`th position, counted around, of those for which `is_allowed` holds.
    fn pick(&self, wish: u16, is_allowed: impl Fn(&Self, usize) -> bool) -> Option<usize> {
        let allowed: Vec<usize> =
            (0..self.cells.len()).filter(|&at| is_allowed(self, at)).collect();
        let count = allowed.len();
        (count > 0).then(|| allowed[usize::from(wish) % count])
    }

    fn is_poisoned(&self, at: usize) -> bool {
        self.failed_at.is_some_and(|failed_at| at >= failed_at)
    }
}

/// The queue and its model, always after the same operations.
#[derive(Debug, Default)]
pub struct Pair {
    queue: OutQ<Piece>,
    model: Model,
    /// Payloads made so far; the next one's name.
    payloads: u32,
    alive: Rc<()>,
}

impl Pair {
    /// Does one operation on both sides, then compares them.
    ///
    /// # Panics
    ///
    /// When they differ, or the queue's invariants do not hold.
    pub fn apply(&mut self, operation: Operation) {
        match operation {
            Operation::Promise(n) => self.promise(n),
            Operation::Push(n) => self.push(n),
            Operation::Fill(at, n) => self.fill(at, n),
            Operation::Fail(at) => self.fail(at),
            Operation::Retract(at) => self.retract(at),
            Operation::Send(n) => {
                let n = usize::from(n) % (self.model.ready() - self.model.sent + 1);
                self.queue.mark_sent(to_u64(n));
                self.model.sent += n;
            }
            Operation::Release(n) => {
                let n = usize::from(n) % (self.model.sent - self.model.released + 1);
                self.queue.mark_released(to_u64(n));
                self.model.released += n;
            }
            Operation::Shrink => self.queue.shrink(),
            Operation::Restart => {
                if self.model.released == self.model.cells.len() {
                    self.queue.restart();
                    self.model = Model::default();
                }
            }
        }
        self.compare();
    }

    /// How many bytes may be promised or pushed now.
    fn room(&self) -> usize {
        match self.model.failed_at {
            Some(_) => 0,
            None => PROMISED_MAX - self.model.cells.len(),
        }
    }

    fn promise(&mut self, n: u16) {
        if self.model.failed_at.is_some() {
            return;
        }
        let n = usize::from(n) % (self.room() + 1);
        let at = self.queue.promise(to_u64(n));
        assert_eq!(at, to_u64(self.model.cells.len()));
        self.model.cells.resize(self.model.cells.len() + n, None);
    }

    fn push(&mut self, n: u16) {
        if self.model.failed_at.is_some() {
            return;
        }
        let n = usize::from(n) % (self.room() + 1);
        let (piece, cells) = self.piece(n);
        let at = self.queue.push(piece);
        assert_eq!(at, to_u64(self.model.cells.len()));
        self.model.cells.extend(cells);
    }

    fn fill(&mut self, at: u16, n: u16) {
        let Some(at) = self.model.pick(at, |model, at| model.cells[at].is_none()) else {
            return;
        };
        let missing = self.model.cells[at..].iter().take_while(|cell| cell.is_none()).count();
        let n = usize::from(n) % (missing + 1);
        let (piece, cells) = self.piece(n);
        self.queue.fill(to_u64(at), piece);
        for (at, cell) in (at..self.model.reachable()).zip(cells) {
            self.model.cells[at] = cell;
        }
    }

    fn fail(&mut self, at: u16) {
        let Some(at) = self.model.pick(at, |model, at| model.cells[at].is_none()) else {
            return;
        };
        self.queue.fail(to_u64(at));
        self.model.failed_at = Some(at.min(self.model.reachable()));
        self.model.cells[at..].fill(None);
    }

    fn retract(&mut self, at: u16) {
        let is_allowed = |model: &Model, at: usize| {
            at >= model.sent && (model.cells[at].is_some() || model.is_poisoned(at))
        };
        let Some(at) = self.model.pick(at, is_allowed) else {
            return;
        };
        self.queue.retract(to_u64(at));
        let payload = self.model.cells[at].map(|cell| cell.payload);
        for cell in &mut self.model.cells[at..] {
            if cell.map(|cell| cell.payload) != payload {
                break;
            }
            *cell = None;
        }
    }

    /// A new payload, for the queue and for the model. No two have the same bytes, so that stale
    /// ones are noticed.
    fn piece(&mut self, len: usize) -> (Piece, Vec<Option<Cell>>) {
        let payload = self.payloads;
        self.payloads += 1;
        let bytes: Vec<u8> = (0..len).map(|index| value(payload, to_u64(index))).collect();
        let cells = bytes.iter().map(|&value| Some(Cell { payload, value }));
        let cells = cells.collect();
        let piece = Piece { bytes, weight: weight(payload), _alive: Rc::clone(&self.alive) };
        (piece, cells)
    }

    fn compare(&self) {
        let Self { queue, model, .. } = self;
        queue.check();
        assert_eq!(queue.promised(), to_u64(model.cells.len()));
        assert_eq!(queue.ready(), to_u64(model.ready()));
        assert_eq!(queue.sent(), to_u64(model.sent));
        assert_eq!(queue.released(), to_u64(model.released));
        assert_eq!(queue.failed_at(), model.failed_at.map(to_u64));
        assert_eq!(queue.state(), model.state());
        assert_eq!(queue.is_drained(), model.state() == State::Drained);
        assert_eq!(
            queue.first_gap().map(|gap| (gap.start, gap.end)),
            model.first_gap().map(|(begin, end)| (to_u64(begin), to_u64(end)))
        );
        let alive = model.payloads_alive();
        assert_eq!(Rc::strong_count(&self.alive) - 1, alive.len());
        let mut sum = Weight::default();
        alive.into_iter().for_each(|payload| sum += weight(payload));
        assert_eq!(queue.weight(), sum);

        let mut at = model.sent;
        for chunk in queue.next_ready() {
            assert!(chunk.len() > 0);
            assert_eq!(chunk.at, to_u64(at));
            for index in chunk.range.clone() {
                let index = usize::try_from(index).expect("a piece is short");
                let expected = model.cells[at].expect("a gap is never ready").value;
                assert_eq!(chunk.payload.bytes[index], expected, "byte at {at}");
                at += 1;
            }
        }
        assert_eq!(at, model.ready());
        assert_eq!(queue.unsent_ready(), to_u64(at - model.sent));
    }
}

/// What a payload weighs: nothing that follows from its length.
fn weight(payload: u32) -> Weight {
    Weight { own: u64::from(payload % 7) * 100, shared: u64::from(payload % 5) * 1000 }
}

/// Byte `index` of a payload.
fn value(payload: u32, index: u64) -> u8 {
    // Fibonacci hashing: any two payloads differ within a few bytes.
    let mixed = (u64::from(payload) << 32 | index).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed.to_be_bytes()[0]
}

fn to_u64(n: usize) -> u64 {
    u64::try_from(n).expect("usize is 64 bits at most")
}

/// Bytes that one run promises at most. Enough for a few dozen segments; each comparison walks all
/// of them.
const PROMISED_MAX: usize = 1024;
