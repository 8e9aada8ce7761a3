//! Passes orders to the workers from threads that may sleep. A worker must not sleep: it opens no file
//! itself, and takes no lock to receive its orders.

use core::sync::atomic::{AtomicU64, Ordering};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, SyncSender, TrySendError};

use ring::Waker;

use crate::config::Log;
use crate::worker::Worker;

/// The maximum number of orders that wait for one worker. Orders come from signals and deploys, a few
/// per second at most, and a turn takes milliseconds. So a worker with a full queue no longer runs, and
/// gets no further orders.
const ORDERS_MAX: usize = 16;

/// The bit of [`State`] that tells the workers to shut down.
const STOP: u64 = 1 << 63;

/// The number of orders given so far, and [`STOP`]. A worker checks it after each turn.
type State = Arc<AtomicU64>;

/// An order to a worker: what to use from now on.
#[derive(Debug)]
pub(crate) enum Order {
    /// Another file for an access log.
    Log(Log, OwnedFd),
    /// Another directory for one of the roots of the snapshot.
    Root(usize, OwnedFd),
}

/// All workers, as other threads see them.
#[derive(Debug)]
pub(crate) struct Workers {
    state: State,
    orders: Vec<SyncSender<Order>>,
    wakers: Vec<Waker>,
}

/// The orders for one worker, as it sees them.
#[derive(Debug)]
pub(crate) struct Inbox {
    state: State,
    /// The state at the last call of [`obey`](Self::obey).
    seen: u64,
    orders: Receiver<Order>,
}

impl Workers {
    /// Makes the inboxes of `count` workers.
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

    /// Adds the waker of a worker that has started.
    pub(crate) fn add_waker(&mut self, waker: Waker) {
        self.wakers.push(waker);
    }

    /// Tells all workers to shut down.
    pub(crate) fn stop(&self) {
        // Release pairs with the acquire in `Inbox::is_stopped`.
        self.state.fetch_or(STOP, Ordering::Release);
        self.wake();
    }

    /// Gives each worker a duplicate of a descriptor. If the descriptor cannot be duplicated for all
    /// of them, no worker gets one.
    ///
    /// # Errors
    ///
    /// Those of `dup(2)`; `WouldBlock` if the queue of a worker is full. The other workers have got the
    /// order then.
    pub(crate) fn tell(&self, order: impl Fn(OwnedFd) -> Order, fd: &OwnedFd) -> io::Result<()> {
        let duplicates: io::Result<Vec<_>> =
            self.orders.iter().map(|_| fd.try_clone().map(&order)).collect();
        let mut result = Ok(());
        for (sender, order) in self.orders.iter().zip(duplicates?) {
            match sender.try_send(order) {
                // A worker that has ended needs no orders.
                Ok(()) | Err(TrySendError::Disconnected(_)) => {}
                Err(TrySendError::Full(_)) => result = Err(io::ErrorKind::WouldBlock.into()),
            }
        }
        // Release pairs with the acquire in `Inbox::obey`.
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
    /// Returns whether the worker must shut down.
    pub(crate) fn is_stopped(&self) -> bool {
        self.state.load(Ordering::Acquire) & STOP != 0
    }

    /// Carries out the orders given since the last call. Call it after each turn; an order wakes the
    /// worker, which ends its turn.
    pub(crate) fn obey(&mut self, worker: &mut Worker) {
        let state = self.state.load(Ordering::Acquire);
        if core::mem::replace(&mut self.seen, state) == state {
            return;
        }
        for order in self.orders.try_iter() {
            match order {
                Order::Log(log, file) => worker.replace_log(&log, file),
                Order::Root(root, directory) => {
                    let directory = worker.ring().adopt_file(directory);
                    worker.replace_root(root, &directory);
                }
            }
        }
    }
}
