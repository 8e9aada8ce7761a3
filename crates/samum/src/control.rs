//! Orders to the workers, from threads that may sleep. A worker may not: it opens no file itself, and
//! takes no lock to learn what is wanted of it.

use core::sync::atomic::{AtomicU64, Ordering};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, SyncSender, TrySendError};

use ring::Waker;

use crate::worker::Worker;

/// Orders that wait for one worker. They come from signals and deploys, a few a second at most, and a
/// turn takes milliseconds: a worker that has so many does not run any more, and gets no further ones.
const ORDERS_MAX: usize = 16;

/// Set in [`State`] when the workers are to finish.
const STOP: u64 = 1 << 63;

/// The number of orders given so far, and [`STOP`]: what a worker looks at after each turn.
type State = Arc<AtomicU64>;

/// What a worker is told to use from now on.
#[derive(Debug)]
pub(crate) enum Order {
    /// Another file for the access log.
    Log(OwnedFd),
    /// Another directory to serve.
    Root(OwnedFd),
}

/// All workers, as other threads see them.
#[derive(Debug)]
pub(crate) struct Workers {
    state: State,
    orders: Vec<SyncSender<Order>>,
    wakers: Vec<Waker>,
}

/// What one worker is told, as it sees it.
#[derive(Debug)]
pub(crate) struct Inbox {
    state: State,
    /// The state that has been acted upon.
    seen: u64,
    orders: Receiver<Order>,
}

impl Workers {
    /// For so many workers, each of which gets one of the inboxes.
    pub(crate) fn new(count: usize) -> (Self, Vec<Inbox>) {
        let state = State::default();
        let (orders, inboxes) = (0..count)
            .map(|_| {
                let (sender, orders) = mpsc::sync_channel(ORDERS_MAX);
                (sender, Inbox { state: Arc::clone(&state), seen: 0, orders })
            })
            .unzip();
        (Self { state, orders, wakers: Vec::new() }, inboxes)
    }

    /// A worker runs and waits for events.
    pub(crate) fn add_waker(&mut self, waker: Waker) {
        self.wakers.push(waker);
    }

    /// Tell them to finish.
    pub(crate) fn stop(&self) {
        // Release pairs with the acquire in `Inbox::is_stopped`.
        self.state.fetch_or(STOP, Ordering::Release);
        self.wake();
    }

    /// Give each worker a duplicate of a descriptor, or none of them.
    ///
    /// # Errors
    ///
    /// Those of `dup(2)`; `WouldBlock` when a worker takes no orders any more.
    pub(crate) fn tell(&self, order: fn(OwnedFd) -> Order, fd: &OwnedFd) -> io::Result<()> {
        let duplicates: io::Result<Vec<_>> =
            self.orders.iter().map(|_| fd.try_clone().map(order)).collect();
        let mut result = Ok(());
        for (sender, order) in self.orders.iter().zip(duplicates?) {
            match sender.try_send(order) {
                // One that has ended needs nothing.
                Ok(()) | Err(TrySendError::Disconnected(_)) => {}
                Err(TrySendError::Full(_)) => result = Err(io::ErrorKind::WouldBlock.into()),
            }
        }
        // Release pairs with the acquire in `Inbox::orders`.
        self.state.fetch_add(1, Ordering::Release);
        self.wake();
        result
    }

    fn wake(&self) {
        for waker in &self.wakers {
            waker.wake();
        }
    }
}

impl Inbox {
    /// Whether to finish.
    pub(crate) fn is_stopped(&self) -> bool {
        self.state.load(Ordering::Acquire) & STOP != 0
    }

    /// Do what has been ordered since the last call: after each turn, which a waker has ended.
    pub(crate) fn obey(&mut self, worker: &mut Worker) {
        let state = self.state.load(Ordering::Acquire);
        if core::mem::replace(&mut self.seen, state) == state {
            return;
        }
        for order in self.orders.try_iter() {
            match order {
                Order::Log(file) => worker.replace_log(file),
                Order::Root(directory) => worker.replace_root(directory),
            }
        }
    }
}
