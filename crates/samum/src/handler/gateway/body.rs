//! The bytes on their way between a client and what answers it: a program or another server. They know no
//! pipe and no socket: a handler moves them on when it is told that something has happened ([`News`]).

use core::cell::{Cell, RefCell};
use core::ops::Range;
use std::collections::VecDeque;
use std::rc::Rc;

use http::FieldSection;
use outq::Payload as _;
use ring::Key;
use sendfile::{Caching, File, Piece, Policy, Takes, Window};

use crate::handler::{BodySink, CONSUMER_ROOM_MIN, Consumer, Produced, Producer, Search};

/// Bytes of a body that wait to be taken.
const STREAMED_BYTES_MAX: usize = 64 * 1024;
/// Bytes of a body that is collected. A longer one is passed on while it comes, or refused if its length is not known.
pub(in crate::handler) const COLLECTED_BYTES_MAX: u64 = 1024 * 1024;

/// Shorter pieces of a response are joined with the one in front of them, up to so many bytes together, while they
/// wait for the client.
const JOINED_BYTES_MIN: usize = 1024;
const JOINED_BYTES_MAX: usize = 16 * 1024;

/// The pages of a buffer's file leave the page cache with the file.
const FILE_POLICY: Policy = Policy { caching: Caching::Always, window: Window::of(1024 * 1024) };

/// What has happened to bodies since it was last asked.
#[derive(Debug, Default)]
pub(in crate::handler) struct News {
    /// Those that can perhaps go on: there is more for them, or room for what they put out.
    pub(in crate::handler) touched: Vec<Key>,
    /// Those whose clients wait no more.
    pub(in crate::handler) left: Vec<Key>,
}

/// The interest of a client in the response of a gateway: the client waits for it, or takes it. When this is dropped,
/// the gateway [learns](News::left) that the response is not wanted any more.
#[derive(Debug)]
pub(in crate::handler) struct Interest {
    key: Cell<Key>,
    /// Bytes of memory that are kept for it until the response has come.
    memory: Cell<u64>,
    /// Bytes of memory that the beginning of the response takes meanwhile.
    head: Cell<u64>,
    /// True if the client may have ended its side of the connection.
    half_close: bool,
    news: Rc<RefCell<News>>,
}

/// The client of a request for a gateway, as the router has it.
#[derive(Clone, Copy, Debug)]
pub(in crate::handler) struct Waiter {
    /// Bytes of memory that the router keeps of the request until it is answered.
    pub(in crate::handler) memory: usize,
    /// True if the client may end its side of the connection.
    pub(in crate::handler) half_close: bool,
}

/// The body of a request.
#[derive(Debug)]
pub(in crate::handler) struct Input {
    /// The name of what it is for, once that is known.
    key: Option<Key>,
    /// What has come and was not taken.
    pub(in crate::handler) waiting: VecDeque<u8>,
    /// The fields of the trailer section.
    pub(in crate::handler) trailers: FieldSection<'static>,
    /// Some if all of it has to come before anything is taken.
    collected: Option<Collected>,
    /// True if there will be no more.
    pub(in crate::handler) has_ended: bool,
    /// True if nothing takes it: it is dropped.
    pub(in crate::handler) is_unwanted: bool,
    news: Rc<RefCell<News>>,
}

/// The bytes of a body that is collected, among those of all that are; they are given back when this is dropped.
#[derive(Debug)]
pub(in crate::handler) struct Collected {
    of_all: Rc<Cell<u64>>,
    bytes: u64,
}

/// Takes the body of a request.
#[derive(Debug)]
pub(in crate::handler) struct InputConsumer(pub(in crate::handler) Rc<RefCell<Input>>);

/// The content of a response.
#[derive(Debug)]
pub(in crate::handler) struct Output {
    waiting: VecDeque<Waiting>,
    /// Bytes that wait in memory and in pipes.
    pub(in crate::handler) bytes: u64,
    /// Bytes that wait in a file.
    in_file: u64,
    /// Bytes that were [lent](Self::lend). The client waits for them.
    lent: u64,
    /// The fields of the trailer section.
    pub(in crate::handler) trailers: FieldSection<'static>,
    /// The pieces that the client takes; known once the producer has been asked.
    pub(in crate::handler) takes: Option<Takes>,
    /// Bytes that are missing to the length that was promised.
    left: Option<u64>,
    end: Option<Produced>,
    /// True if the producer has said that it waits.
    pub(in crate::handler) is_awaited: bool,
    /// True if no more is wanted of it.
    pub(in crate::handler) is_unwanted: bool,
}

/// A part of the content of a response that waits for the client.
#[derive(Debug)]
enum Waiting {
    Piece(Piece),
    File(Rc<File>, Range<u64>),
}

/// Gives the content of a response.
#[derive(Debug)]
pub(in crate::handler) struct OutputProducer {
    pub(in crate::handler) output: Rc<RefCell<Output>>,
    pub(in crate::handler) interest: Rc<Interest>,
}

/// Waits for the header of a response.
#[derive(Debug)]
pub(in crate::handler) struct HeaderSearch(pub(in crate::handler) Rc<Interest>);

impl Interest {
    pub(in crate::handler) const fn new(
        key: Key,
        half_close: bool,
        news: Rc<RefCell<News>>,
    ) -> Self {
        let (memory, head) = (Cell::new(0), Cell::new(0));
        Self { key: Cell::new(key), memory, head, half_close, news }
    }

    /// So many bytes are kept for the client until the response has come: its request, in all forms.
    pub(in crate::handler) fn set_memory(&self, bytes: u64) {
        self.memory.set(bytes);
    }

    /// Sets the number of bytes that are kept of a response head that is not complete.
    pub(in crate::handler) fn set_head(&self, bytes: u64) {
        self.head.set(bytes);
    }

    /// The client waits for another answer.
    pub(in crate::handler) fn pass_to(&self, key: Key) {
        self.key.set(key);
        self.head.set(0);
    }
}

impl Drop for Interest {
    fn drop(&mut self) {
        self.news.borrow_mut().left.push(self.key.get());
    }
}

impl Search for HeaderSearch {
    fn weight(&self) -> u64 {
        self.0.memory.get() + self.0.head.get()
    }

    fn ends_with_client(&self) -> bool {
        !self.0.half_close
    }
}

impl Collected {
    pub(in crate::handler) const fn new(of_all: Rc<Cell<u64>>) -> Self {
        Self { of_all, bytes: 0 }
    }

    fn add(&mut self, bytes: u64) {
        self.bytes += bytes;
        self.of_all.set(self.of_all.get() + bytes);
    }
}

impl Drop for Collected {
    fn drop(&mut self) {
        self.of_all.set(self.of_all.get() - self.bytes);
    }
}

impl Input {
    pub(in crate::handler) const fn new(
        collected: Option<Collected>,
        news: Rc<RefCell<News>>,
    ) -> Self {
        Self {
            key: None,
            waiting: VecDeque::new(),
            trailers: FieldSection::EMPTY,
            collected,
            has_ended: false,
            is_unwanted: false,
            news,
        }
    }

    /// Names what it is for.
    pub(in crate::handler) const fn set_key(&mut self, key: Key) {
        self.key = Some(key);
    }

    /// The length of the body, if all of it has come and nothing was taken of it.
    pub(in crate::handler) fn length(&self) -> Option<u64> {
        (self.has_ended && !self.is_unwanted).then_some(self.waiting.len() as u64)
    }

    /// Returns whether all of it has to come before anything is taken.
    pub(in crate::handler) const fn is_collected(&self) -> bool {
        self.collected.is_some()
    }

    /// Returns whether something waits for the rest of it.
    pub(in crate::handler) const fn is_awaited(&self) -> bool {
        self.is_collected() && !self.has_ended && !self.is_unwanted
    }

    /// The name of what it is for, once that is known.
    pub(in crate::handler) const fn key(&self) -> Option<Key> {
        self.key
    }

    /// Nothing more is taken.
    pub(in crate::handler) fn drop_rest(&mut self) {
        self.is_unwanted = true;
        self.release();
    }

    /// The gateway's server or program has all of it: it takes no memory any more.
    pub(in crate::handler) fn release(&mut self) {
        self.waiting = VecDeque::new();
        if let Some(collected) = &mut self.collected {
            *collected = Collected::new(Rc::clone(&collected.of_all));
        }
    }

    /// Bytes that there is room for.
    fn room(&self) -> u64 {
        // The session keeps to the limit of a body that is collected, and needs room for the framing of its
        // last bytes, too.
        let most = match self.is_collected() {
            true => COLLECTED_BYTES_MAX + CONSUMER_ROOM_MIN,
            false => STREAMED_BYTES_MAX as u64,
        };
        most - self.waiting.len() as u64
    }

    fn touch(&self) {
        if let Some(key) = self.key {
            self.news.borrow_mut().touched.push(key);
        }
    }
}

impl Consumer for InputConsumer {
    fn bytes_max(&self) -> u64 {
        if self.0.borrow().is_collected() { COLLECTED_BYTES_MAX } else { u64::MAX }
    }

    fn room(&self) -> u64 {
        self.0.borrow().room()
    }

    fn push(&mut self, bytes: &[u8]) {
        let mut input = self.0.borrow_mut();
        if !input.is_unwanted {
            input.waiting.extend(bytes);
            if let Some(collected) = &mut input.collected {
                collected.add(bytes.len() as u64);
            }
            input.touch();
        }
    }

    fn trailer(&mut self, name: &[u8], value: &[u8]) {
        let mut input = self.0.borrow_mut();
        if !input.is_unwanted {
            input.trailers.push(name, value);
        }
    }

    fn end(&mut self) {
        let mut input = self.0.borrow_mut();
        input.has_ended = true;
        input.touch();
    }

    fn weight(&self) -> u64 {
        let input = self.0.borrow();
        (input.waiting.len() + input.trailers.as_bytes().len()) as u64
    }
}

impl Drop for InputConsumer {
    fn drop(&mut self) {
        let mut input = self.0.borrow_mut();
        // The rest will not come. Its client has gone, or has its response.
        if !core::mem::replace(&mut input.has_ended, true) {
            input.drop_rest();
            input.touch();
        }
    }
}

impl Output {
    pub(in crate::handler) const fn new() -> Self {
        Self {
            waiting: VecDeque::new(),
            bytes: 0,
            in_file: 0,
            lent: 0,
            trailers: FieldSection::EMPTY,
            takes: None,
            left: None,
            end: None,
            is_awaited: false,
            is_unwanted: false,
        }
    }

    /// Promises so many bytes.
    pub(in crate::handler) fn promise(&mut self, length: Option<u64>) {
        self.left = length;
        self.end = (length == Some(0)).then_some(Produced::Ended);
    }

    /// Adds what has been put out. Returns false if that is more than was promised; the rest is
    /// dropped.
    pub(in crate::handler) fn push(&mut self, bytes: &[u8]) -> bool {
        self.push_piece(Piece::Bytes(bytes.to_vec()))
    }

    /// Like [`push`](Self::push), of a piece.
    pub(in crate::handler) fn push_piece(&mut self, mut piece: Piece) -> bool {
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
        kept == length
    }

    fn wait(&mut self, piece: Piece) {
        self.bytes += piece.len();
        // A piece takes memory and time beside its bytes, and a server may send a chunk for each byte.
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

    /// Returns whether nothing waits for the client here. Something may be lent.
    pub(in crate::handler) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Bytes that are in memory and in pipes, lent or not.
    pub(in crate::handler) const fn in_memory(&self) -> u64 {
        self.bytes + self.lent
    }

    /// Lends what is in memory and waits behind all else, to be given back in order: as
    /// [pieces](Self::give_back), or as [ranges of a file](Self::give_back_file).
    pub(in crate::handler) fn lend(&mut self) -> impl Iterator<Item = Piece> + use<> {
        let is_memory =
            |waiting: &&Waiting| matches!(waiting, Waiting::Piece(piece) if piece.is_memory());
        let count = self.waiting.iter().rev().take_while(is_memory).count();
        let lent = self.waiting.split_off(self.waiting.len() - count);
        let bytes: u64 = lent.iter().map(Waiting::len).sum();
        self.bytes -= bytes;
        self.lent += bytes;
        lent.into_iter().filter_map(|waiting| match waiting {
            Waiting::Piece(piece) => Some(piece),
            Waiting::File(..) => None,
        })
    }

    /// Takes a piece back that was lent.
    pub(in crate::handler) fn give_back(&mut self, piece: Piece) {
        self.lent -= piece.len();
        if !self.is_unwanted {
            self.wait(piece);
        }
    }

    /// Takes bytes back that were lent, in a file.
    pub(in crate::handler) fn give_back_file(&mut self, file: Rc<File>, range: Range<u64>) {
        let length = range.end - range.start;
        self.lent -= length;
        if !self.is_unwanted {
            self.in_file += length;
            self.waiting.push_back(Waiting::File(file, range));
        }
    }

    /// No more is put out. Returns false if something is missing.
    pub(in crate::handler) fn finish(&mut self, is_whole: bool) -> bool {
        let is_complete = is_whole && self.left.is_none_or(|left| left == 0);
        let end = if is_complete { Produced::Ended } else { Produced::Failed };
        *self.end.get_or_insert(end) == Produced::Ended
    }

    /// Returns whether the response has its end, whole or not.
    pub(in crate::handler) const fn has_ended(&self) -> bool {
        self.end.is_some()
    }

    /// Takes all of it, if it has come in one piece and has ended.
    pub(in crate::handler) fn take_whole(&mut self) -> Option<Piece> {
        let is_whole = self.end == Some(Produced::Ended)
            && self.waiting.len() == 1
            && self.lent == 0
            && self.trailers.as_bytes().is_empty();
        if !is_whole || self.in_file > 0 {
            return None;
        }
        let Some(Waiting::Piece(piece)) = self.waiting.pop_front() else { return None };
        self.bytes -= piece.len();
        Some(piece)
    }

    /// Nothing more of it is wanted.
    pub(in crate::handler) fn drop_rest(&mut self) {
        self.is_unwanted = true;
        self.waiting = VecDeque::new();
        (self.bytes, self.in_file) = (0, 0);
    }
}

impl Waiting {
    fn len(&self) -> u64 {
        match self {
            Self::Piece(piece) => piece.len(),
            Self::File(_, range) => range.end - range.start,
        }
    }
}

impl Producer for OutputProducer {
    fn poll(&mut self, room: u64, sink: &mut dyn BodySink) -> Produced {
        let mut output = self.output.borrow_mut();
        output.takes = Some(sink.takes());
        let mut made = 0;
        while made < room
            && let Some(waiting) = output.waiting.pop_front()
        {
            made += waiting.len();
            match waiting {
                Waiting::Piece(piece) => {
                    output.bytes -= piece.len();
                    sink.push(piece);
                }
                Waiting::File(file, range) => {
                    output.in_file -= range.end - range.start;
                    sink.push_file(&file, range, FILE_POLICY);
                }
            }
        }
        // There is room again, of what was taken now or of what has been sent since.
        if made > 0 || output.end.is_none() || output.lent > 0 {
            self.interest.news.borrow_mut().touched.push(self.interest.key.get());
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
}

#[cfg(test)]
mod tests {
    use core::ops::Range;

    use sendfile::{File, Policy};

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
        let interest = Rc::new(Interest::new(Key::NONE, false, Rc::default()));
        OutputProducer { output: Rc::new(RefCell::new(output)), interest }
    }

    #[test]
    fn a_content_is_as_long_as_was_promised_or_fails() {
        for (promised, pieces, is_whole, expected, end, is_within) in [
            (None, &["ab", "c"][..], true, "abc", Produced::Ended, true),
            (None, &["ab", "c"], false, "abc", Produced::Failed, true),
            (Some(3), &["ab", "c"], true, "abc", Produced::Ended, true),
            // It was complete before the failure.
            (Some(3), &["ab", "c"], false, "abc", Produced::Ended, true),
            (Some(4), &["ab", "c"], true, "abc", Produced::Failed, true),
            (Some(2), &["abc"], true, "ab", Produced::Ended, false),
            (Some(0), &[], true, "", Produced::Ended, true),
            (Some(0), &["a"], true, "", Produced::Ended, false),
        ] {
            let mut output = Output::new();
            output.promise(promised);
            let within = pieces.iter().all(|piece| output.push(piece.as_bytes()));
            assert_eq!(within, is_within, "{promised:?} {pieces:?}");
            output.finish(is_whole);
            let (mut producer, mut sink) = (producer(output), Sink::default());
            assert_eq!(producer.poll(100, &mut sink), end, "{promised:?} {pieces:?}");
            assert_eq!(sink.0, expected.as_bytes());
        }
    }

    #[test]
    fn a_producer_gives_what_there_is_room_for_and_waits() {
        let mut output = Output::new();
        output.push(b"abc");
        output.push(&[b'd'; JOINED_BYTES_MIN]);
        let (mut producer, mut sink) = (producer(output), Sink::default());
        assert_eq!(producer.poll(1, &mut sink), Produced::More);
        assert_eq!((&sink.0[..], producer.weight()), (&b"abc"[..], JOINED_BYTES_MIN as u64));
        assert_eq!(producer.poll(1, &mut sink), Produced::Waiting);
        producer.output.borrow_mut().trailers.push(b"A", b"b");
        assert_eq!(producer.weight(), b"A: b\r\n".len() as u64, "trailers wait in memory, too");
        assert!(producer.output.borrow().is_awaited);
        assert_eq!(producer.interest.news.borrow().touched.len(), 2);
    }

    /// A chunk for each byte would cost a piece for each, a hundred times the memory of the bytes.
    #[test]
    fn short_pieces_are_joined() {
        let mut output = Output::new();
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
            let mut output = Output::new();
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

    #[test]
    fn a_body_waits_to_be_taken_or_is_dropped() {
        let news = Rc::new(RefCell::new(News::default()));
        let input = Rc::new(RefCell::new(Input::new(None, Rc::clone(&news))));
        input.borrow_mut().set_key(Key::NONE);
        let mut consumer = InputConsumer(Rc::clone(&input));
        consumer.push(&[1; 1000]);
        assert_eq!(consumer.room(), STREAMED_BYTES_MAX as u64 - 1000);
        assert_eq!((consumer.weight(), news.borrow().touched.len()), (1000, 1));
        input.borrow_mut().drop_rest();
        assert_eq!((consumer.room(), consumer.weight()), (STREAMED_BYTES_MAX as u64, 0));
        consumer.push(&[1; 1000]);
        assert_eq!(consumer.weight(), 0);
        drop(consumer);
        assert!(input.borrow().has_ended);
    }
}
