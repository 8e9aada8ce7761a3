//! The content of a response on its way from a program or an upstream to the client. This module knows no pipe and no
//! socket, like the [input](super::input).
//!
//! A request is charged for its response before the response comes: 20 KiB until its turn, then the whole cyclic
//! buffer. If the worker's budget has no room for a cyclic buffer, the content gets a small buffer of 36 KiB. If the
//! budget has no room for 20 KiB, 4 KiB are received at a time and wait. Then later requests wait in the client's
//! socket.

use core::cell::RefCell;
use core::ops::Range;
use std::rc::Rc;

use http::FieldSection;
use outq::Payload as _;
use sendfile::{Account, Caching, Charge, File, Piece, Policy, Takes, Window};

use super::interest::Interest;
use crate::row::Row;
use session::handler::{BodySink, Produced, Producer};

/// Shorter pieces of a response are joined with the piece in front of them, up to this many bytes, while they wait for
/// the client.
const JOINED_BYTES_MIN: usize = 1024;
const JOINED_BYTES_MAX: usize = 16 * 1024;

/// Bytes of a content that may be in memory before its turn: as many as the ring receives in one operation. The rest
/// waits at its source.
pub(crate) const EARLY_BYTES_MAX: u64 = 20 * 1024;

/// The pages of a buffer's file leave the page cache with the file.
const FILE_POLICY: Policy = Policy { caching: Caching::Always, window: Window::of(1024 * 1024) };

/// The content of a response.
#[derive(Debug)]
pub(crate) struct Output {
    waiting: Row<Waiting>,
    /// Bytes that may wait in the heap while more bytes come. They are charged before they are there.
    allowance: u64,
    /// Bytes that may wait in memory if the client receives only this content.
    memory_max: u64,
    /// Bytes that wait in the heap. Cyclic buffers are charged as a whole.
    in_heap: u64,
    charge: Charge,
    /// Bytes that wait in memory and in pipes.
    pub(crate) bytes: u64,
    /// Bytes that wait in a file.
    in_file: u64,
    /// Bytes that were [lent](Self::lend). The client waits for them.
    lent: u64,
    /// The fields of the trailer section.
    pub(crate) trailers: FieldSection<'static>,
    /// The pieces that the client's transport can send. They are known after the first call of the producer.
    pub(crate) takes: Option<Takes>,
    /// True if the client had other requests at the same time, or received little, when the producer was last asked.
    pub(crate) is_shared: bool,
    /// Bytes that are still missing from the promised length.
    left: Option<u64>,
    end: Option<Produced>,
    /// True if the producer has said that it waits.
    pub(crate) is_awaited: bool,
    /// True if the client wants no more of the content.
    pub(crate) is_unwanted: bool,
}

/// A part of the content of a response that waits for the client.
#[derive(Debug)]
enum Waiting {
    Piece(Piece),
    File(Rc<File>, Range<u64>),
}

/// The producer of the content of a response.
#[derive(Debug)]
pub(crate) struct OutputProducer {
    pub(crate) output: Rc<RefCell<Output>>,
    pub(crate) interest: Rc<Interest>,
}

impl Output {
    /// Creates a content without bytes. The bytes that it may hold before its turn are charged to `account`.
    pub(crate) fn new(account: &Account) -> Self {
        Self {
            waiting: Row::new(),
            allowance: EARLY_BYTES_MAX,
            memory_max: EARLY_BYTES_MAX,
            in_heap: 0,
            charge: account.charge(EARLY_BYTES_MAX),
            bytes: 0,
            in_file: 0,
            lent: 0,
            trailers: FieldSection::EMPTY,
            takes: None,
            is_shared: false,
            left: None,
            end: None,
            is_awaited: false,
            is_unwanted: false,
        }
    }

    /// The same content, but `bytes` bytes of it may wait in memory when its turn has come.
    pub(crate) fn up_to(self, bytes: u64) -> Self {
        Self { memory_max: bytes, ..self }
    }

    /// Promises the length of the content, if it is known.
    pub(crate) fn promise(&mut self, length: Option<u64>) {
        self.left = length;
        self.end = (length == Some(0)).then_some(Produced::Ended);
        self.recharge();
    }

    /// Sets the bytes that may wait in the heap from now on, while more comes.
    pub(crate) fn allow(&mut self, bytes: u64) {
        self.allowance = bytes;
        self.recharge();
    }

    /// The bytes that the content may hold before its turn. If the content has ended, the bytes that it has.
    pub(crate) fn reserved(&self) -> u64 {
        self.charge.bytes().max(self.in_memory())
    }

    /// Charges the bytes that are in the heap, or that may still come there.
    fn recharge(&mut self) {
        let is_over = self.end.is_some() || self.is_unwanted;
        let expected = if is_over { 0 } else { self.allowance };
        self.charge.set(self.in_heap.max(expected));
    }

    /// Adds bytes of the content. Returns false if they exceed the promised length; the excess is dropped.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> bool {
        self.push_piece(Piece::Bytes(bytes.to_vec()))
    }

    /// Adds a piece of the content, like [`push`](Self::push).
    pub(crate) fn push_piece(&mut self, mut piece: Piece) -> bool {
        let length = piece.len();
        if self.is_unwanted || length == 0 {
            return true;
        }
        if self.end.is_some() {
            return false;
        }
        let kept = self.left.map_or(length, |left| left.min(length));
        if let Some(left) = &mut self.left {
            *left -= kept;
            if *left == 0 {
                self.end = Some(Produced::Ended);
            }
        }
        if kept > 0 {
            self.wait(if kept < length { piece.split_to(kept) } else { piece });
        }
        self.recharge();
        kept == length
    }

    fn wait(&mut self, piece: Piece) {
        self.bytes += piece.len();
        self.in_heap += heap_bytes(&piece);
        // A piece takes memory and time in addition to its bytes, and an upstream may send a chunk for each byte.
        if let (Some(Waiting::Piece(Piece::Bytes(last))), Piece::Bytes(bytes)) =
            (self.waiting.back_mut(), &piece)
            && bytes.len() < JOINED_BYTES_MIN
            && last.len() + bytes.len() <= JOINED_BYTES_MAX
        {
            last.extend_from_slice(bytes);
        } else {
            self.waiting.push_back(Waiting::Piece(piece));
        }
    }

    /// Returns true if no bytes wait for the client here. Bytes may be lent.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Bytes that are in memory and in pipes, lent or not.
    pub(crate) const fn in_memory(&self) -> u64 {
        self.bytes + self.lent
    }

    /// Lends the bytes that wait in memory after everything else. The borrower gives them back in order: as
    /// [pieces](Self::give_back), or as [ranges of a file](Self::give_back_file).
    pub(crate) fn lend(&mut self) -> impl Iterator<Item = Piece> + use<> {
        let is_memory =
            |waiting: &&Waiting| matches!(waiting, Waiting::Piece(piece) if piece.is_memory());
        let count = self.waiting.iter().rev().take_while(is_memory).count();
        let lent = self.waiting.split_last(count);
        let bytes: u64 = lent.iter().map(Waiting::len).sum();
        self.bytes -= bytes;
        self.lent += bytes;
        self.in_heap -= lent.iter().map(Waiting::heap_bytes).sum::<u64>();
        self.recharge();
        lent.into_iter().filter_map(|waiting| match waiting {
            Waiting::Piece(piece) => Some(piece),
            Waiting::File(..) => None,
        })
    }

    /// Takes a lent piece back.
    pub(crate) fn give_back(&mut self, piece: Piece) {
        self.lent -= piece.len();
        if !self.is_unwanted {
            self.wait(piece);
            self.recharge();
        }
    }

    /// Takes lent bytes back as a range of a file.
    pub(crate) fn give_back_file(&mut self, file: Rc<File>, range: Range<u64>) {
        let length = range.end - range.start;
        self.lent -= length;
        if !self.is_unwanted {
            self.in_file += length;
            self.waiting.push_back(Waiting::File(file, range));
        }
    }

    /// Ends the content. Returns false if bytes are missing.
    pub(crate) fn finish(&mut self, is_whole: bool) -> bool {
        let is_complete = is_whole && self.left.is_none_or(|left| left == 0);
        let end = if is_complete { Produced::Ended } else { Produced::Failed };
        let is_whole = *self.end.get_or_insert(end) == Produced::Ended;
        self.recharge();
        is_whole
    }

    /// Returns true if the content has ended, complete or not.
    pub(crate) const fn has_ended(&self) -> bool {
        self.end.is_some()
    }

    /// Takes the whole content, if it has come in one piece and has ended.
    pub(crate) fn take_whole(&mut self) -> Option<Piece> {
        let is_whole = self.end == Some(Produced::Ended)
            && self.waiting.len() == 1
            && self.lent == 0
            && self.trailers.as_bytes().is_empty();
        if !is_whole || self.in_file > 0 {
            return None;
        }
        let Some(Waiting::Piece(piece)) = self.waiting.pop_front() else { return None };
        self.bytes -= piece.len();
        self.in_heap -= heap_bytes(&piece);
        self.recharge();
        Some(piece)
    }

    /// Drops the rest, because the client wants no more of the content.
    pub(crate) fn drop_rest(&mut self) {
        self.is_unwanted = true;
        self.waiting = Row::new();
        (self.bytes, self.in_file, self.in_heap) = (0, 0, 0);
        self.recharge();
    }
}

impl Waiting {
    fn len(&self) -> u64 {
        match self {
            Self::Piece(piece) => piece.len(),
            Self::File(_, range) => range.end - range.start,
        }
    }

    fn heap_bytes(&self) -> u64 {
        match self {
            Self::Piece(piece) => heap_bytes(piece),
            Self::File(..) => 0,
        }
    }
}

/// The bytes of a piece that are in the heap.
fn heap_bytes(piece: &Piece) -> u64 {
    match piece {
        Piece::Bytes(_) | Piece::Part(..) => piece.len(),
        _ => 0,
    }
}

impl Producer for OutputProducer {
    fn poll(&mut self, room: u64, sink: &mut dyn BodySink) -> Produced {
        let mut output = self.output.borrow_mut();
        output.takes = Some(sink.takes());
        output.is_shared = sink.is_shared();
        let mut made = 0;
        while made < room
            && let Some(waiting) = output.waiting.pop_front()
        {
            match waiting {
                Waiting::Piece(mut piece) => {
                    // The client receives only a part. The rest counts here, so the upstream is asked for no more.
                    if output.is_shared && piece.is_memory() && piece.len() > room - made {
                        let first = piece.split_to(room - made);
                        output.waiting.push_front(Waiting::Piece(piece));
                        piece = first;
                    }
                    made += piece.len();
                    output.bytes -= piece.len();
                    output.in_heap -= heap_bytes(&piece);
                    sink.push(piece);
                }
                Waiting::File(file, range) => {
                    made += range.end - range.start;
                    output.in_file -= range.end - range.start;
                    sink.push_file(&file, range, FILE_POLICY);
                }
            }
        }
        output.recharge();
        // There is room again, after bytes were taken now or sent earlier.
        if made > 0 || output.end.is_none() || output.lent > 0 {
            self.interest.touch();
        }
        if !output.waiting.is_empty() {
            return Produced::More;
        }
        let end = output.end.filter(|_| output.lent == 0);
        output.is_awaited = end.is_none();
        end.unwrap_or(Produced::Waiting)
    }

    fn trailers(&mut self) -> FieldSection<'static> {
        core::mem::take(&mut self.output.borrow_mut().trailers)
    }

    fn weight(&self) -> u64 {
        let output = self.output.borrow();
        output.in_memory() + output.trailers.as_bytes().len() as u64
    }

    fn weight_max(&self) -> u64 {
        self.weight().max(self.output.borrow().memory_max)
    }
}

#[cfg(test)]
mod tests {
    use core::ops::Range;

    use ring::Key;
    use sendfile::{File, Policy};

    use super::super::interest::News;
    use super::*;

    #[derive(Default)]
    struct Sink(Vec<u8>);

    impl BodySink for Sink {
        fn takes(&self) -> Takes {
            Takes::Memory
        }

        fn push(&mut self, piece: Piece) {
            self.0.extend(piece.bytes());
        }

        fn push_file(&mut self, _: &Rc<File>, range: Range<u64>, _: Policy) {
            unreachable!("a gateway gives no range of a file: {range:?}");
        }
    }

    fn producer(output: Output) -> OutputProducer {
        telling(output, Rc::default())
    }

    /// The producer of a content. The gateway that fills this content learns these news.
    fn telling(output: Output, news: Rc<RefCell<News>>) -> OutputProducer {
        let interest = Rc::new(Interest::new(Key::NONE, false, news));
        OutputProducer { output: Rc::new(RefCell::new(output)), interest }
    }

    #[test]
    fn a_content_is_as_long_as_was_promised_or_fails() {
        for (promised, pieces, is_whole, expected, end, is_within) in [
            (None, &["ab", "c"][..], true, "abc", Produced::Ended, true),
            (None, &["ab", "c"], false, "abc", Produced::Failed, true),
            (Some(3), &["ab", "c"], true, "abc", Produced::Ended, true),
            // The content was complete before the failure.
            (Some(3), &["ab", "c"], false, "abc", Produced::Ended, true),
            (Some(4), &["ab", "c"], true, "abc", Produced::Failed, true),
            (Some(2), &["abc"], true, "ab", Produced::Ended, false),
            (Some(0), &[], true, "", Produced::Ended, true),
            (Some(0), &["a"], true, "", Produced::Ended, false),
        ] {
            let mut output = Output::new(&Account::default());
            output.promise(promised);
            let within = pieces.iter().all(|piece| output.push(piece.as_bytes()));
            assert_eq!(within, is_within, "{promised:?} {pieces:?}");
            output.finish(is_whole);
            let (mut producer, mut sink) = (producer(output), Sink::default());
            assert_eq!(producer.poll(100, &mut sink), end, "{promised:?} {pieces:?}");
            assert_eq!(sink.0, expected.as_bytes());
        }
    }

    /// The sink of a client that receives few bytes at a time.
    #[derive(Default)]
    struct Shared(Vec<u8>);

    impl BodySink for Shared {
        fn takes(&self) -> Takes {
            Takes::Memory
        }

        fn is_shared(&self) -> bool {
            true
        }

        fn push(&mut self, piece: Piece) {
            self.0.extend(piece.bytes());
        }

        fn push_file(&mut self, _: &Rc<File>, range: Range<u64>, _: Policy) {
            unreachable!("a gateway gives no range of a file: {range:?}");
        }
    }

    #[test]
    fn a_client_that_takes_little_gets_a_part_of_a_piece_and_the_rest_counts() {
        let mut output = Output::new(&Account::default());
        output.push(b"abcdef");
        output.push(&[b'g'; JOINED_BYTES_MIN]);
        let all = output.in_memory();
        let (mut producer, mut sink) = (producer(output), Shared::default());
        for (room, taken) in [(4, 4), (2, 6), (JOINED_BYTES_MIN as u64 - 1, 5 + JOINED_BYTES_MIN)] {
            assert_eq!(producer.poll(room, &mut sink), Produced::More);
            assert_eq!((sink.0.len(), producer.weight()), (taken, all - taken as u64));
        }
        assert_eq!(producer.poll(100, &mut sink), Produced::Waiting);
        assert!(sink.0.starts_with(b"abcdefg") && producer.weight() == 0);
        assert_eq!(producer.output.borrow().in_heap, 0);
    }

    #[test]
    fn a_producer_gives_what_there_is_room_for_and_waits() {
        let mut output = Output::new(&Account::default());
        output.push(b"abc");
        output.push(&[b'd'; JOINED_BYTES_MIN]);
        let news: Rc<RefCell<News>> = Rc::default();
        let told = || core::mem::take(&mut news.borrow_mut().touched).len();
        let (mut producer, mut sink) = (telling(output, Rc::clone(&news)), Sink::default());
        assert_eq!(producer.poll(1, &mut sink), Produced::More);
        assert_eq!(
            (&sink.0[..], producer.weight(), told()),
            (&b"abc"[..], JOINED_BYTES_MIN as u64, 1)
        );
        assert_eq!(producer.poll(1, &mut sink), Produced::Waiting);
        producer.output.borrow_mut().trailers.push(b"A", b"b");
        assert_eq!(producer.weight(), b"A: b\r\n".len() as u64, "trailers wait in memory, too");
        assert!(producer.output.borrow().is_awaited);
        assert_eq!(told(), 1);
    }

    /// A chunk for each byte would cost a piece for each, a hundred times the memory of the bytes.
    #[test]
    fn short_pieces_are_joined() {
        let mut output = Output::new(&Account::default());
        output.promise(Some(100_000));
        let bytes: Vec<u8> = (0..100_000_u32).map(|at| at.to_le_bytes()[1]).collect();
        for byte in bytes.chunks(1) {
            assert!(output.push(byte));
        }
        assert_eq!(output.waiting.len(), bytes.len().div_ceil(JOINED_BYTES_MAX));
        assert_eq!((output.bytes, output.has_ended()), (100_000, true));
        let (mut producer, mut sink) = (producer(output), Sink::default());
        assert_eq!(producer.poll(u64::MAX, &mut sink), Produced::Ended);
        assert!(sink.0 == bytes);
    }

    #[test]
    fn what_is_lent_holds_the_end_back_and_keeps_its_place() {
        for is_whole in [true, false] {
            let mut output = Output::new(&Account::default());
            output.promise(is_whole.then_some(6));
            output.push(b"abc");
            let mut lent: Vec<_> = output.lend().collect();
            output.push(b"def");
            lent.extend(output.lend());
            output.finish(is_whole);
            assert_eq!((output.bytes, output.in_memory(), output.is_empty()), (0, 6, true));
            let (mut producer, mut sink) = (producer(output), Sink::default());
            assert_eq!(producer.poll(100, &mut sink), Produced::Waiting);
            assert!(producer.output.borrow().is_awaited && producer.weight() == 6);
            for piece in lent {
                producer.output.borrow_mut().give_back(piece);
            }
            let end = if is_whole { Produced::Ended } else { Produced::Failed };
            assert_eq!(producer.poll(100, &mut sink), end);
            assert_eq!((&sink.0[..], producer.weight()), (&b"abcdef"[..], 0));
        }
    }
}
