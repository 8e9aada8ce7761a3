//! The body of a request on its way from the client to a program or an upstream. This module knows no pipe and no
//! socket: a handler moves the body when [`News`] report an event.

pub(crate) mod body_queue;
pub mod collected;
pub(crate) mod parts;

use core::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use http::FieldSection;
use ring::Key;

use self::collected::Collected;
use self::parts::Parts;
use super::interest::News;
use session::handler::{CONSUMER_ROOM_MIN, Consumer};

/// Bytes of a streamed body that wait to be taken; at this limit the client has to wait.
const STREAMED_BYTES_MAX: usize = 64 * 1024;
/// The longest body of known length that is collected whole. Of a longer body only a part is collected. A body that is
/// collected whole has at most this many bytes in memory, and the rest in a file.
pub const COLLECTED_BYTES_MAX: u64 = 1024 * 1024;

/// The body of a request.
#[derive(Debug)]
pub struct Input {
    /// The name of the request in its gateway, once it has one.
    key: Option<Key>,
    /// Bytes in memory that have come and were not taken. Bytes of the body in a file come before these bytes.
    waiting: VecDeque<u8>,
    /// The fields of the trailer section.
    pub(crate) trailers: FieldSection<'static>,
    stage: Stage,
    rest: Rest,
    news: Rc<RefCell<News>>,
}

/// The stage of a body before it is taken.
#[derive(Debug)]
pub(crate) enum Stage {
    /// The body is taken while it comes.
    Streamed,
    /// All of the body has to come before any byte is taken.
    Whole(Box<Collected>),
    /// A part of the body, or all of it, has to come before any byte is taken.
    Part {
        /// The number of bytes of the part.
        bytes: u64,
        charge: Charge,
        parts: Rc<Parts>,
    },
    /// The part has come, or the wait for it has ended. The part is taken, and then the rest while the rest comes.
    PassedOn(Charge),
}

/// The state of the rest of a body, after the bytes that have come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rest {
    /// The client still has to send the rest.
    Coming,
    /// There is no rest: the whole body has come.
    None,
    /// The rest will never come: the client has broken the body off, or has got its response. The bytes that had come
    /// are dropped.
    BrokenOff,
    /// Nothing uses the rest. The bytes that had come are dropped, and bytes that still come are dropped, too.
    Unwanted,
    /// Nothing uses the rest, because the body is longer than it may be.
    TooLong,
    /// Nothing uses the rest, because there is no room for the rest, or because a disk has failed.
    NoRoom,
}

/// The bytes of a collected body in the account of all collected bodies. When the charge is dropped, the account gets
/// these bytes back.
#[derive(Debug)]
pub(crate) struct Charge {
    of_all: Rc<Cell<u64>>,
    bytes: u64,
}

/// The consumer of a request's body.
#[derive(Debug)]
pub(crate) struct InputConsumer {
    pub(crate) input: Rc<RefCell<Input>>,
    /// The most bytes that the body may have.
    pub(crate) bytes_max: u64,
    /// True if the bytes of a tunnel may follow the body.
    pub(crate) awaits_tunnel: bool,
}

impl Charge {
    pub(crate) const fn new(of_all: Rc<Cell<u64>>) -> Self {
        Self { of_all, bytes: 0 }
    }

    fn add(&mut self, bytes: u64) {
        self.bytes += bytes;
        self.of_all.set(self.of_all.get() + bytes);
    }

    /// Gives the bytes back.
    fn clear(&mut self) {
        self.set(0);
    }

    fn set(&mut self, bytes: u64) {
        self.of_all.set(self.of_all.get() - self.bytes + bytes);
        self.bytes = bytes;
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.clear();
    }
}

impl Input {
    pub(crate) const fn new(stage: Stage, news: Rc<RefCell<News>>) -> Self {
        Self {
            key: None,
            waiting: VecDeque::new(),
            trailers: FieldSection::EMPTY,
            stage,
            rest: Rest::Coming,
            news,
        }
    }

    /// Sets the name of the request in its gateway.
    pub(crate) const fn set_key(&mut self, key: Key) {
        self.key = Some(key);
    }

    /// The length of the body, if the whole body has come and no byte was taken.
    pub(crate) fn length(&self) -> Option<u64> {
        self.is_whole().then(|| self.in_file() + self.waiting.len() as u64)
    }

    /// Returns true if all of the body, or a part of the body, has to come before any byte is taken.
    pub(crate) const fn is_collected(&self) -> bool {
        matches!(self.stage, Stage::Whole(_) | Stage::Part { .. })
    }

    /// Returns true if something waits for the rest of the body.
    #[cfg(test)]
    pub(crate) const fn is_awaited(&self) -> bool {
        self.is_collected() && matches!(self.rest, Rest::Coming)
    }

    /// Returns true if the whole body has come.
    pub(crate) const fn is_whole(&self) -> bool {
        matches!(self.rest, Rest::None)
    }

    /// Returns true if no byte waits to be taken, and no further byte will wait.
    pub(crate) fn is_over(&self) -> bool {
        self.rest != Rest::Coming && self.is_empty()
    }

    /// Returns true if no byte of the body waits to be taken.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.in_file() == 0
    }

    /// Bytes of memory of the bytes that wait to be taken.
    pub(crate) fn waiting_bytes(&self) -> usize {
        self.waiting.capacity()
    }

    /// Returns true if the body was given up, because there is no room for the body, or because a disk has failed.
    pub(crate) const fn has_no_room(&self) -> bool {
        matches!(self.rest, Rest::NoRoom)
    }

    /// Returns true if the rest will never come: the client has broken the body off, or has got its response.
    pub(crate) const fn is_broken_off(&self) -> bool {
        matches!(self.rest, Rest::BrokenOff)
    }

    /// Returns true if the body is longer than it may be.
    pub(crate) const fn is_too_long(&self) -> bool {
        matches!(self.rest, Rest::TooLong)
    }

    /// The next bytes that are in memory in one piece. A file may have more bytes.
    pub(crate) fn next(&self) -> &[u8] {
        match &self.stage {
            Stage::Whole(collected) if self.in_file() > 0 => collected.ready(),
            _ => self.waiting.as_slices().0,
        }
    }

    /// Takes `count` of the [next](Self::next) bytes.
    pub(crate) fn consume(&mut self, count: usize) {
        if self.in_file() > 0 {
            self.consume_ready(count);
        } else {
            self.waiting.drain(..count);
            self.account();
        }
    }

    /// Takes at most `bytes_max` of the next bytes. With the last byte the memory of the body is freed.
    pub(crate) fn take(&mut self, bytes_max: usize) -> Vec<u8> {
        if self.in_file() > 0 {
            let ready = self.next();
            let bytes = ready[..ready.len().min(bytes_max)].to_vec();
            self.consume_ready(bytes.len());
            return bytes;
        }
        if self.waiting.len() <= bytes_max {
            if let Some(charge) = self.charge() {
                charge.clear();
            }
            return core::mem::take(&mut self.waiting).into();
        }
        let (first, _) = self.waiting.as_slices();
        let bytes = first[..first.len().min(bytes_max)].to_vec();
        self.waiting.drain(..bytes.len());
        self.account();
        bytes
    }

    /// From now on, the consumer receives the bytes of a tunnel, which follow the body.
    pub(crate) fn begin_tunnel(&mut self) {
        if self.is_whole() {
            self.rest = Rest::Coming;
        }
    }

    /// Drops the rest of the body, because nothing uses the rest.
    pub(crate) fn drop_rest(&mut self) {
        self.rest = Rest::Unwanted;
        self.release();
    }

    /// Frees the memory of the body, because the upstream or the program has all bytes of the body.
    pub(crate) fn release(&mut self) {
        self.waiting = VecDeque::new();
        if let Stage::Whole(collected) = &mut self.stage {
            collected.drop_file();
        }
        if let Some(charge) = self.charge() {
            charge.clear();
        }
    }

    /// The charge of the body, if it is collected.
    const fn charge(&mut self) -> Option<&mut Charge> {
        match &mut self.stage {
            Stage::Streamed => None,
            Stage::Whole(collected) => Some(&mut collected.charge),
            Stage::Part { charge, .. } | Stage::PassedOn(charge) => Some(charge),
        }
    }

    /// Ends the wait for a part.
    fn pass_on(&mut self) {
        if let Stage::Part { charge, parts, .. } = &self.stage {
            self.stage = Stage::PassedOn(parts.passed_on(charge.bytes));
            self.touch();
        }
    }

    /// The number of bytes for which there is room.
    fn room(&self) -> u64 {
        // The session enforces the limit of a collected body. It also needs room for the framing of the last bytes.
        let most = match &self.stage {
            Stage::Whole(collected) => return collected.room(self.waiting.len() as u64),
            Stage::Part { bytes, .. } => *bytes + CONSUMER_ROOM_MIN,
            Stage::Streamed | Stage::PassedOn(_) => STREAMED_BYTES_MAX as u64,
        };
        // If the part of a body was passed on, more bytes of the body may wait.
        most.saturating_sub(self.waiting.len() as u64)
    }

    /// Receives the next bytes, if something wants them. Returns the collected parts that these bytes belong to.
    fn push(&mut self, bytes: &[u8]) -> Option<Rc<Parts>> {
        if self.rest != Rest::Coming {
            return None;
        }
        self.waiting.extend(bytes);
        self.touch();
        match &mut self.stage {
            Stage::Streamed | Stage::PassedOn(_) => None,
            Stage::Whole(_) => {
                self.handle_more();
                None
            }
            Stage::Part { charge, bytes: least, parts } => {
                charge.add(bytes.len() as u64);
                let parts = Rc::clone(parts);
                if charge.bytes >= *least {
                    self.pass_on();
                }
                Some(parts)
            }
        }
    }

    fn touch(&self) {
        if let Some(key) = self.key {
            self.news.borrow_mut().touch(key);
        }
    }
}

impl Consumer for InputConsumer {
    fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    fn room(&self) -> u64 {
        self.input.borrow().room()
    }

    fn push(&mut self, bytes: &[u8]) {
        let parts = self.input.borrow_mut().push(bytes);
        if let Some(parts) = parts {
            parts.make_room();
        }
    }

    fn trailer(&mut self, name: &[u8], value: &[u8]) {
        let mut input = self.input.borrow_mut();
        if input.rest == Rest::Coming {
            input.trailers.push(name, value);
        }
    }

    fn end(&mut self) {
        let mut input = self.input.borrow_mut();
        if matches!(input.rest, Rest::Coming | Rest::Unwanted) {
            input.rest = Rest::None;
            input.pass_on();
            input.handle_end();
        }
        input.touch();
    }

    fn awaits_tunnel(&self) -> bool {
        self.awaits_tunnel
    }

    fn handle_excess(&mut self) -> bool {
        let mut input = self.input.borrow_mut();
        input.rest = Rest::TooLong;
        input.release();
        input.touch();
        true
    }

    fn weight(&self) -> u64 {
        let input = self.input.borrow();
        let in_flight = match &input.stage {
            Stage::Whole(collected) => collected.in_flight(),
            _ => 0,
        };
        (input.waiting.len() + input.trailers.as_bytes().len()) as u64 + in_flight
    }
}

impl Drop for InputConsumer {
    fn drop(&mut self) {
        let mut input = self.input.borrow_mut();
        if matches!(input.rest, Rest::Coming | Rest::Unwanted) {
            input.rest = Rest::BrokenOff;
            input.release();
            input.touch();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_waits_to_be_taken_or_is_dropped() {
        let news = Rc::new(RefCell::new(News::default()));
        let input = Rc::new(RefCell::new(Input::new(Stage::Streamed, Rc::clone(&news))));
        input.borrow_mut().set_key(Key::NONE);
        let mut consumer =
            InputConsumer { input: Rc::clone(&input), bytes_max: u64::MAX, awaits_tunnel: false };
        consumer.push(&[1; 1000]);
        assert_eq!(consumer.room(), STREAMED_BYTES_MAX as u64 - 1000);
        assert_eq!((consumer.weight(), news.borrow().touched.len()), (1000, 1));
        // Pieces of a byte are no more news than one piece.
        (0..1000).for_each(|_| consumer.push(&[1]));
        assert_eq!((consumer.weight(), news.borrow().touched.len()), (2000, 1));
        input.borrow_mut().drop_rest();
        assert_eq!((consumer.room(), consumer.weight()), (STREAMED_BYTES_MAX as u64, 0));
        consumer.push(&[1; 1000]);
        assert_eq!(consumer.weight(), 0);
        assert!(input.borrow().is_over() && !input.borrow().is_broken_off());
        // The client may still wait for the response.
        drop(consumer);
        assert!(input.borrow().is_over() && input.borrow().is_broken_off());
    }

    #[test]
    fn a_body_is_taken_in_pieces_in_its_order() {
        for pieces in [&[][..], &[1], &[10, 10], &[5, 4, 3, 2, 1], &[100, 1, 30]] {
            let mut input = Input::new(Stage::Streamed, Rc::default());
            let (mut next, mut given, mut taken) = (0..=u8::MAX, Vec::new(), Vec::new());
            for &piece in pieces {
                let bytes: Vec<_> = next.by_ref().take(piece).collect();
                input.waiting.extend(&bytes);
                given.extend(bytes);
                let bytes = input.take(7);
                assert!(!bytes.is_empty() && bytes.len() <= 7);
                taken.extend(bytes);
            }
            while !input.waiting.is_empty() {
                taken.extend(input.take(7));
            }
            assert_eq!((taken, input.waiting.capacity()), (given, 0), "{pieces:?}");
            assert!(input.take(7).is_empty());
        }
    }

    #[test]
    fn the_bytes_of_a_tunnel_follow_the_body() {
        let input = Rc::new(RefCell::new(Input::new(Stage::Streamed, Rc::default())));
        let (bytes_max, awaits_tunnel) = (u64::MAX, true);
        let mut consumer = InputConsumer { input: Rc::clone(&input), bytes_max, awaits_tunnel };
        consumer.push(b"body");
        consumer.end();
        assert_eq!(input.borrow_mut().take(10), b"body");
        // Without a tunnel no bytes are taken.
        consumer.push(b"lost");
        assert!(input.borrow().is_over());
        input.borrow_mut().begin_tunnel();
        assert!(!input.borrow().is_over());
        consumer.push(b"tunnel");
        consumer.end();
        let mut input = input.borrow_mut();
        assert_eq!((input.take(10), input.is_over()), (b"tunnel".to_vec(), true));
    }

    #[test]
    fn a_body_comes_whole_or_is_broken_off() {
        let news = Rc::new(RefCell::new(News::default()));
        for is_whole in [true, false] {
            let input = Rc::new(RefCell::new(Input::new(Stage::Streamed, Rc::clone(&news))));
            let mut consumer = InputConsumer {
                input: Rc::clone(&input),
                bytes_max: u64::MAX,
                awaits_tunnel: false,
            };
            consumer.push(b"body");
            assert!(!input.borrow().is_whole() && !input.borrow().is_broken_off());
            if is_whole {
                consumer.end();
            }
            drop(consumer);
            let mut input = input.borrow_mut();
            assert_eq!((input.is_whole(), input.is_broken_off()), (is_whole, !is_whole));
            assert_eq!((input.length(), input.is_over()), (is_whole.then_some(4), !is_whole));
            input.drop_rest();
            assert!(input.is_over() && !input.is_whole() && !input.is_broken_off());
        }
    }
}
