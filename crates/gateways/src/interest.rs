//! The request that waits for a response, and the events that a gateway must look at.

use core::cell::{Cell, RefCell};
use std::rc::Rc;

use ring::Key;
use sendfile::Weight;

use session::handler::Search;

/// The events of bodies and clients since the gateway last looked.
#[derive(Debug, Default)]
pub struct News {
    /// Requests that may go on: more bytes of their bodies have come, or there is room for their output.
    pub touched: Vec<Key>,
    /// Requests whose clients no longer wait.
    pub left: Vec<Key>,
}

impl News {
    /// Adds a request that may go on. A body may come in thousands of pieces of a byte each: the gateway looks at its
    /// request once for all of them.
    pub fn touch(&mut self, key: Key) {
        if self.touched.last() != Some(&key) {
            self.touched.push(key);
        }
    }

    /// Returns true if there are no events.
    pub(crate) const fn is_empty(&self) -> bool {
        self.touched.is_empty() && self.left.is_empty()
    }
}

/// The interest of a client in the response of a gateway: the client waits for the response, or receives it. When this
/// value is dropped, the gateway [learns](News::left) that nobody wants the response any more.
#[derive(Debug)]
pub struct Interest {
    key: Cell<Key>,
    /// Bytes of memory that are kept for the client until the response has come.
    memory: Cell<u64>,
    /// Bytes of memory that an incomplete head of the response needs meanwhile.
    head: Cell<u64>,
    /// Bytes that the content of the response may hold before its turn.
    reserved: Cell<u64>,
    /// True if the client may have ended its sending direction.
    half_close: bool,
    /// The news of the gateway that answers.
    news: RefCell<Rc<RefCell<News>>>,
}

/// The client of a request for a gateway, as the router knows it.
#[derive(Clone, Copy, Debug)]
pub struct Waiter {
    /// Bytes of memory that the router keeps of the request until it is answered.
    pub memory: usize,
    /// True if the client may end its sending direction.
    pub half_close: bool,
}

impl Interest {
    /// The interest in an exchange or a program. `news` reports events of this exchange or program.
    pub fn new(key: Key, half_close: bool, news: Rc<RefCell<News>>) -> Self {
        let (memory, head, reserved) = (Cell::new(0), Cell::new(0), Cell::new(0));
        let (key, news) = (Cell::new(key), RefCell::new(news));
        Self { key, memory, head, reserved, half_close, news }
    }

    /// Sets the bytes that are kept for the client until the response has come: all forms of its request.
    pub(crate) fn set_memory(&self, bytes: u64) {
        self.memory.set(bytes);
    }

    /// Sets the number of bytes that an incomplete head of a response needs.
    pub(crate) fn set_head(&self, bytes: u64) {
        self.head.set(bytes);
    }

    /// Sets the bytes that the content of the response may hold before its turn. The output charges them to the worker.
    pub(crate) fn reserve(&self, bytes: u64) {
        self.reserved.set(bytes);
    }

    /// Tells the gateway to look at the request for which the client waits.
    pub(super) fn touch(&self) {
        self.news.borrow().borrow_mut().touch(self.key.get());
    }

    /// Makes the client wait for another answer, whose gateway has this news.
    pub(crate) fn pass_to(&self, key: Key, news: &Rc<RefCell<News>>) {
        self.leave();
        self.key.set(key);
        self.news.replace(Rc::clone(news));
    }

    /// Makes the client wait for an answer for which no search has begun.
    pub(crate) fn leave(&self) {
        self.key.set(Key::NONE);
        self.head.set(0);
    }
}

impl Drop for Interest {
    fn drop(&mut self) {
        self.news.borrow().borrow_mut().left.push(self.key.get());
    }
}

impl Search for Interest {
    fn weight(&self) -> Weight {
        Weight { own: self.memory.get() + self.head.get(), shared: self.reserved.get() }
    }

    fn ends_with_client(&self) -> bool {
        !self.half_close
    }
}
