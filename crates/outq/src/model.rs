//! A model of the queue, simple and slow: the model has one cell for each byte. [`Pair`] applies
//! the same operations to the model and the real queue, and compares all results that a caller can
//! see. Property tests and the fuzz target share [`Pair`].

use alloc::rc::Rc;
use alloc::vec::Vec;
use core::ops::Range;

use crate::{Chunk, OutQ, Payload, State, Weight};

/// One call of the queue. [`Pair::apply`] takes each number modulo the range that the protocol
/// allows at this moment. If the protocol allows no value, the operation is skipped.
#[derive(Clone, Copy, Debug)]
pub enum Operation {
    /// The next `n` bytes will come later.
    Promise(u16),
    /// The next `n` bytes are in memory.
    Push(u16),
    /// Some missing bytes come; the bytes may be after a failure or across a failure.
    Fill(u16, u16),
    /// A missing byte will never come; the byte may be after a failure.
    Fail(u16),
    /// Filled, unsent bytes are retracted; the bytes may be after a failure.
    Retract(u16),
    /// The transport sends ready bytes.
    Send(u16),
    /// The transport releases sent bytes.
    Release(u16),
    /// Ready bytes move into another queue.
    Take(u16),
    /// The producer fails.
    Abort,
    /// The connection goes idle.
    Shrink,
    /// Another connection takes the queue over.
    Restart,
}

/// A payload. The number of clones of [`Pair::alive`] shows how many payloads are alive, because
/// each payload has a clone in `_alive`.
#[derive(Debug)]
pub struct Piece {
    bytes: Vec<u8>,
    name: usize,
    _alive: Rc<()>,
}

impl Payload for Piece {
    fn len(&self) -> u64 {
        to_u64(self.bytes.len())
    }

    fn weight(&self) -> Weight {
        weight(self.name, self.bytes.len())
    }

    fn split_to(&mut self, n: u64) -> Self {
        let n = usize::try_from(n).expect("a piece is short");
        assert!(0 < n && n < self.bytes.len(), "an empty half");
        let rest = self.bytes.split_off(n);
        let bytes = core::mem::replace(&mut self.bytes, rest);
        Self { bytes, name: self.name, _alive: Rc::clone(&self._alive) }
    }
}

/// A filled byte: its payload, its index in the payload, and its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cell {
    payload: usize,
    index: usize,
    value: u8,
}

/// The simple queue. Values that are not stored are computed anew in each call.
#[derive(Debug, Default)]
struct Model {
    /// All promised bytes from position 0 on; `None` is a byte of a gap. No byte from `failed_at`
    /// on is filled.
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
            Some(Some(_)) => State::Ready,
            _ if self.failed_at == Some(self.sent) => State::Failed,
            Some(None) => State::Waiting,
            None => State::Drained,
        }
    }

    /// The names of the payloads with an unreleased byte. The bytes of one payload are neighbours.
    fn payloads_alive(&self) -> Vec<usize> {
        let mut payloads: Vec<usize> =
            self.cells[self.released..].iter().flatten().map(|cell| cell.payload).collect();
        payloads.dedup();
        payloads
    }

    /// Chooses one of the positions that `is_allowed` accepts: the one with the index `wish % count`, where `count` is
    /// the number of accepted positions.
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

/// The queue and its model, to which the same operations are applied.
#[derive(Debug, Default)]
pub struct Pair {
    queue: OutQ<Piece>,
    model: Model,
    /// The payloads that were made so far; the index is the name of the payload.
    payloads: Vec<Made>,
    alive: Rc<()>,
}

/// A payload that was made earlier. The queue may have dropped it since.
#[derive(Debug)]
struct Made {
    len: usize,
    /// The number of bytes that have been cut off the front of the payload.
    cut: usize,
}

impl Pair {
    /// Applies one operation to the queue and the model, then compares the queue with the model.
    ///
    /// # Panics
    ///
    /// Panics if queue and model differ, or if the queue's invariants do not hold.
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
            Operation::Take(max) => self.take(max),
            Operation::Abort => {
                self.queue.abort();
                let gap = self.model.first_gap().map(|(begin, _)| begin);
                let failed_at = gap.unwrap_or_else(|| self.model.reachable());
                self.model.failed_at = Some(failed_at);
                self.model.cells[failed_at..].fill(None);
            }
            Operation::Shrink => self.queue.shrink(),
            Operation::Restart => {
                if self.model.released == self.model.cells.len() && self.model.failed_at.is_none() {
                    self.queue.restart();
                    self.model = Model::default();
                }
            }
        }
        self.compare();
    }

    /// The number of bytes that may be promised or pushed now.
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

    fn take(&mut self, max: u16) {
        let Model { sent, released, .. } = self.model;
        if released != sent {
            return;
        }
        let max = usize::from(max);
        let first = self.model.cells.get(sent).copied().flatten();
        let of_first = |cell: &&Option<Cell>| {
            cell.map(|cell| cell.payload) == first.map(|first| first.payload)
        };
        let count = self.model.cells[sent..].iter().take_while(of_first).count().min(max);
        let taken = self.queue.take_ready(to_u64(max));
        let Some(first) = first.filter(|_| max > 0) else {
            return assert!(taken.is_none(), "a gap is never taken");
        };
        let taken = taken.expect("a payload is ready");
        assert_eq!(taken.name, first.payload);
        let expected: Vec<u8> =
            self.model.cells[sent..sent + count].iter().flatten().map(|cell| cell.value).collect();
        assert_eq!(taken.bytes, expected, "bytes at {sent}");
        self.payloads[first.payload].cut = first.index + count;
        self.model.sent += count;
        self.model.released += count;
    }

    /// Makes a new payload, for the queue and for the model. No two payloads have the same bytes,
    /// so that stale bytes are noticed.
    fn piece(&mut self, len: usize) -> (Piece, Vec<Option<Cell>>) {
        let payload = self.payloads.len();
        self.payloads.push(Made { len, cut: 0 });
        let bytes: Vec<u8> = (0..len).map(|index| value(payload, index)).collect();
        let cells = bytes.iter().enumerate();
        let cells = cells.map(|(index, &value)| Some(Cell { payload, index, value }));
        let cells = cells.collect();
        let piece = Piece { bytes, name: payload, _alive: Rc::clone(&self.alive) };
        (piece, cells)
    }

    fn compare(&self) {
        let Self { queue, model, payloads, .. } = self;
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
        for payload in alive {
            let Made { len, cut } = payloads[payload];
            sum += weight(payload, len - cut);
        }
        assert_eq!(queue.weight(), sum);

        self.compare_chunks(queue.next_ready(), model.sent..model.ready());
        assert_eq!(queue.unsent_ready(), to_u64(model.ready() - model.sent));
        for from in [model.released, model.released.midpoint(model.sent), model.sent] {
            self.compare_chunks(queue.in_flight(to_u64(from)), from..model.sent);
        }
    }

    fn compare_chunks<'a>(
        &self,
        chunks: impl Iterator<Item = Chunk<'a, Piece>>,
        range: Range<usize>,
    ) {
        let mut at = range.start;
        for chunk in chunks {
            assert!(chunk.len() > 0);
            assert_eq!(chunk.at, to_u64(at));
            for index in chunk.range.clone() {
                let index = usize::try_from(index).expect("a piece is short");
                let expected = self.model.cells[at].expect("a gap is in no chunk").value;
                assert_eq!(chunk.payload.bytes[index], expected, "byte at {at}");
                at += 1;
            }
        }
        assert_eq!(at, range.end);
    }
}

/// The weight of a payload with `left` bytes left.
fn weight(payload: usize, left: usize) -> Weight {
    let (payload, left) = (to_u64(payload), to_u64(left));
    Weight { own: payload % 7 * 100 + left, shared: payload % 5 * 1000 }
}

/// Byte `index` of a payload.
fn value(payload: usize, index: usize) -> u8 {
    // Fibonacci hashing: any two payloads differ within a few bytes.
    let mixed = (to_u64(payload) << 32 | to_u64(index)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed.to_be_bytes()[0]
}

fn to_u64(n: usize) -> u64 {
    u64::try_from(n).expect("usize is 64 bits at most")
}

/// The maximum bytes that one run promises. This number is enough for a few dozen segments. The
/// number is small because each comparison walks through all bytes.
const PROMISED_MAX: usize = 1024;
