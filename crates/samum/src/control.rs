//! Passes orders to the workers from threads that may sleep. A worker must not sleep, so it opens no file itself and
//! takes no lock to receive its orders.

use core::iter;
use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, SyncSender, TrySendError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use ring::Waker;

use crate::network::Network;
use crate::worker::{Replacement, Worker};
use config::Log;
use handler::serving::{Snapshot, Succession};
use session::Session;

/// The maximum number of orders that wait for one worker. Orders come from signals and deploys, a few per second at
/// most, and a worker turn takes milliseconds. So a worker with a full queue no longer runs, and gets no further
/// orders.
const ORDERS_MAX: usize = 16;

/// The bit of [`State`] that makes the workers shut down.
const STOP: u64 = 1 << 63;

/// The number of orders given so far, and [`STOP`]. A worker checks it after each of its turns.
type State = Arc<AtomicU64>;

/// The time for a worker to execute earlier orders before an order that all workers have to get.
const ORDERS_WAIT_MAX: Duration = Duration::from_secs(10);
/// The pause between two tries in that time.
const ORDERS_WAIT_PAUSE: Duration = Duration::from_millis(2);

/// The time for a worker to describe its stack.
const REPORT_MAX: Duration = Duration::from_secs(2);

/// The time in which each worker of a healthy server ends a turn and executes its orders. A turn takes milliseconds.
const HEALTH_TURN_MAX: Duration = Duration::from_secs(2);

/// The time for a worker to begin with the configuration that it has got. A worker turn takes milliseconds.
pub(crate) const CONFIGURE_MAX: Duration = Duration::from_secs(10);

/// The time for a worker to carry out other orders that it has got.
const FINISH_MAX: Duration = Duration::from_secs(2);

/// An order to a worker: a part to use from now on, or a question.
#[derive(Debug)]
pub(crate) enum Order {
    /// Another configuration.
    Configuration(Box<Configuration>),
    /// Another file for an access log.
    Log(Log, OwnedFd),
    /// A report on the state of its stack, with its connections or without, if it has a stack.
    Report(Sender<String>, bool),
    /// Duplicates of its listening sockets, with the numbers of their listeners.
    Sockets(Sender<io::Result<Vec<(u32, OwnedFd)>>>),
    /// The end of accepting, because another process accepts at the sockets of these listeners.
    Leave(Arc<[u32]>),
    /// The question whether a worker still turns. The answer is its number, which is given here.
    Turn(usize, Sender<usize>),
    /// No action. The sender is dropped when all earlier orders have been carried out.
    Mark { _done: Sender<()> },
    /// Another directory for one of the roots of the snapshot, or none.
    Root(usize, Option<Arc<OwnedFd>>),
}

/// The parts of a configuration that replaces another one. See [`Replacement`].
#[derive(Debug)]
pub(crate) struct Configuration {
    pub(crate) snapshot: Arc<Snapshot>,
    pub(crate) succession: Arc<Succession>,
    pub(crate) roots: Vec<(usize, Arc<OwnedFd>)>,
    pub(crate) listeners: Vec<(u32, OwnedFd)>,
    pub(crate) logs: Vec<(Log, OwnedFd)>,
}

/// All workers, as other threads see them.
#[derive(Debug)]
pub(crate) struct Workers {
    state: State,
    orders: Vec<SyncSender<Order>>,
    wakers: Vec<Waker>,
    /// The configuration that the workers serve, or are about to.
    served: Mutex<Option<Arc<Snapshot>>>,
}

/// The orders for one worker, as the worker sees them.
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
        (Self { state, orders, wakers: Vec::new(), served: Mutex::new(None) }, inboxes)
    }

    /// Adds the waker of a worker that has started.
    pub(crate) fn add_waker(&mut self, waker: Waker) {
        self.wakers.push(waker);
    }

    /// Notes the configuration that the workers serve from the start.
    pub(crate) fn set_served(&self, snapshot: Arc<Snapshot>) {
        *self.served.lock().unwrap_or_else(PoisonError::into_inner) = Some(snapshot);
    }

    /// The configuration that the workers serve, or are about to; `None` before the start.
    pub(crate) fn served(&self) -> Option<Arc<Snapshot>> {
        self.served.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Orders all workers to shut down.
    pub(crate) fn stop(&self) {
        // Release pairs with the acquire in `Inbox::is_stopped`.
        self.state.fetch_or(STOP, Ordering::Release);
        self.wake();
    }

    /// Gives each worker a duplicate of a descriptor. If the descriptor cannot be duplicated for all workers, no worker
    /// gets one.
    ///
    /// # Errors
    ///
    /// Those of `dup(2)`; `WouldBlock` if the queue of a worker is full. Then the other workers have got the order.
    pub(crate) fn tell(&self, order: impl Fn(OwnedFd) -> Order, fd: &OwnedFd) -> io::Result<()> {
        let duplicates: io::Result<Vec<_>> =
            self.orders.iter().map(|_| fd.try_clone().map(&order)).collect();
        self.give(duplicates?, Duration::ZERO)
    }

    /// Orders all workers to serve a root from another directory, or from none.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if the queue of a worker is full. Then the other workers have got the order.
    pub(crate) fn replace_root(
        &self,
        root: usize,
        directory: Option<&Arc<OwnedFd>>,
    ) -> io::Result<()> {
        let orders = self.orders.iter().map(|_| Order::Root(root, directory.cloned()));
        self.give(orders, Duration::ZERO)
    }

    /// Asks the workers of interfaces for the states of their stacks, with the connections or without. A worker that
    /// does not answer in time is left out.
    pub(crate) fn reports(&self, has_connections: bool) -> Vec<String> {
        let (sender, reports) = mpsc::channel();
        let orders = self.orders.iter().map(|_| Order::Report(sender.clone(), has_connections));
        // A worker whose queue is full is left out, too.
        let _ = self.give(orders, Duration::ZERO);
        drop(sender);
        let deadline = Instant::now() + REPORT_MAX;
        let next = || reports.recv_timeout(deadline.saturating_duration_since(Instant::now())).ok();
        let mut all: Vec<_> = iter::from_fn(next).collect();
        all.sort_unstable();
        all
    }

    /// Returns true once [`stop`](Self::stop) was called.
    pub(crate) fn is_stopping(&self) -> bool {
        self.state.load(Ordering::Relaxed) & STOP != 0
    }

    /// Duplicates of the listening sockets of all workers, by the numbers of their listeners.
    ///
    /// # Errors
    ///
    /// A sentence for the operator, if a worker does not answer within [`ORDERS_WAIT_MAX`], or has no descriptors left.
    pub(crate) fn sockets(&self) -> Result<BTreeMap<u32, Vec<OwnedFd>>, String> {
        let (sender, answers) = mpsc::channel();
        let orders = self.orders.iter().map(|_| Order::Sockets(sender.clone()));
        let hangs = || "a worker takes no orders".to_owned();
        self.give(orders, ORDERS_WAIT_MAX).map_err(|_| hangs())?;
        drop(sender);
        let deadline = Instant::now() + ORDERS_WAIT_MAX;
        let mut all = BTreeMap::<u32, Vec<OwnedFd>>::new();
        for _ in &self.orders {
            let left = deadline.saturating_duration_since(Instant::now());
            let sockets = answers.recv_timeout(left).map_err(|_| hangs())?;
            let sockets =
                sockets.map_err(|error| format!("cannot duplicate a descriptor: {error}"))?;
            for (number, socket) in sockets {
                all.entry(number).or_default().push(socket);
            }
        }
        Ok(all)
    }

    /// Tells all workers to accept no more, because another process accepts at the sockets of these listeners. A worker
    /// whose queue stays full for [`ORDERS_WAIT_MAX`] hangs, and accepts nothing.
    pub(crate) fn leave(&self, shared: &[u32]) {
        let shared: Arc<[u32]> = shared.into();
        let orders = self.orders.iter().map(|_| Order::Leave(Arc::clone(&shared)));
        let _ = self.give(orders, ORDERS_WAIT_MAX);
    }

    /// Checks that the server is healthy: it is not shutting down, and each worker ends a turn within [`HEALTH_TURN_MAX`].
    /// Returns the number of workers.
    ///
    /// # Errors
    ///
    /// A sentence for the operator.
    pub(crate) fn check_health(&self) -> Result<usize, String> {
        // An order that sees no stop yet is carried out during the shutdown, too.
        if self.is_stopping() {
            return Err("the server is shutting down".to_owned());
        }
        match self.hanging(HEALTH_TURN_MAX) {
            None => Ok(self.orders.len()),
            Some(number) => Err(format!(
                "worker-{number} does not turn: it has taken no order for {} s",
                HEALTH_TURN_MAX.as_secs()
            )),
        }
    }

    /// The number of a worker that does not end a turn within `limit`, if there is one.
    pub(crate) fn hanging(&self, limit: Duration) -> Option<usize> {
        let count = self.orders.len();
        let (sender, turns) = mpsc::channel();
        let orders = (0..count).map(|number| Order::Turn(number, sender.clone()));
        // A worker that receives no order has no answer, either.
        let _ = self.give(orders, Duration::ZERO);
        drop(sender);
        let deadline = Instant::now() + limit;
        let next = || turns.recv_timeout(deadline.saturating_duration_since(Instant::now())).ok();
        let turned: Vec<_> = iter::from_fn(next).collect();
        (0..count).find(|number| !turned.contains(number))
    }

    /// Gives each worker its configuration, and waits at most [`CONFIGURE_MAX`] until all serve it: a client that comes
    /// after a reload expects the new configuration. Returns the number of a worker that does not serve it by then.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if a worker receives no orders. Then the other workers have got theirs.
    pub(crate) fn configure(&self, all: Vec<Configuration>) -> io::Result<Option<usize>> {
        self.configure_within(all, CONFIGURE_MAX)
    }

    fn configure_within(
        &self,
        all: Vec<Configuration>,
        patience: Duration,
    ) -> io::Result<Option<usize>> {
        if let Some(one) = all.first() {
            self.set_served(Arc::clone(&one.snapshot));
        }
        let orders = all.into_iter().map(|one| Order::Configuration(Box::new(one)));
        self.give(orders, ORDERS_WAIT_MAX)?;
        // Orders are carried out one after the other. At a shutdown the workers end.
        Ok(self.hanging(patience).filter(|_| !self.is_stopping()))
    }

    /// Waits at most [`FINISH_MAX`] until all workers have carried out their orders. Returns false if a worker may not
    /// have.
    pub(crate) fn finish(&self) -> bool {
        let (sender, done) = mpsc::channel();
        let marks = self.orders.iter().map(|_| Order::Mark { _done: sender.clone() });
        // A worker whose queue is full is left out of the wait.
        let are_all_told = self.give(marks, Duration::ZERO).is_ok();
        drop(sender);
        // The wait ends when the last worker has dropped its mark, or when the time is over.
        let ended = done.recv_timeout(FINISH_MAX);
        are_all_told && ended == Err(RecvTimeoutError::Disconnected)
    }

    /// Gives each worker its order. If the queue of a worker is full, it waits at most `patience`.
    fn give(&self, orders: impl IntoIterator<Item = Order>, patience: Duration) -> io::Result<()> {
        let mut result = Ok(());
        for (sender, mut order) in self.orders.iter().zip(orders) {
            let deadline = Instant::now() + patience;
            loop {
                order = match sender.try_send(order) {
                    // A worker that has ended needs no orders.
                    Ok(()) | Err(TrySendError::Disconnected(_)) => break,
                    Err(TrySendError::Full(order)) => order,
                };
                if Instant::now() >= deadline {
                    result = Err(io::ErrorKind::WouldBlock.into());
                    break;
                }
                self.announce();
                thread::sleep(ORDERS_WAIT_PAUSE);
            }
        }
        self.announce();
        result
    }

    /// Makes the workers check for orders.
    fn announce(&self) {
        // Release pairs with the acquire in `Inbox::obey`.
        self.state.fetch_add(1, Ordering::Release);
        self.wake();
    }

    fn wake(&self) {
        for waker in &self.wakers {
            waker.wake();
        }
    }
}

impl Inbox {
    /// Returns true if the worker must shut down.
    pub(crate) fn is_stopped(&self) -> bool {
        self.state.load(Ordering::Acquire) & STOP != 0
    }

    /// Carries out the orders given since the last call. The worker calls it after each of its turns; an order wakes
    /// the worker, which then ends its turn.
    pub(crate) fn obey<S: Session, N: Network>(&mut self, worker: &mut Worker<S, N>) {
        let state = self.state.load(Ordering::Acquire);
        if core::mem::replace(&mut self.seen, state) == state {
            return;
        }
        for order in self.orders.try_iter() {
            match order {
                Order::Configuration(configuration) => {
                    let Configuration { snapshot, succession, roots, listeners, logs } =
                        *configuration;
                    let ring = worker.ring();
                    let roots = roots.into_iter();
                    let listeners = listeners.into_iter();
                    let replacement = Replacement {
                        snapshot,
                        succession,
                        roots: roots.map(|(root, fd)| (root, ring.share_file(fd))).collect(),
                        listeners: listeners
                            .map(|(number, fd)| (number, ring.adopt_socket(fd)))
                            .collect(),
                        logs: logs
                            .into_iter()
                            .map(|(log, fd)| (log, ring.adopt_file(fd)))
                            .collect(),
                    };
                    worker.replace_configuration(replacement);
                }
                Order::Report(sender, has_connections) => {
                    if let Some(report) = worker.report(has_connections) {
                        // The call fails if the client has gone.
                        let _ = sender.send(report);
                    }
                }
                Order::Sockets(sender) => {
                    // The call fails if the time for the answer is over.
                    let _ = sender.send(worker.sockets());
                }
                Order::Leave(shared) => worker.leave(&shared),
                Order::Turn(number, sender) => {
                    // The call fails if the time for the answer is over.
                    let _ = sender.send(number);
                }
                Order::Mark { .. } => {}
                Order::Log(log, file) => worker.replace_log(&log, file),
                Order::Root(root, directory) => {
                    let directory = directory.map(|fd| worker.ring().share_file(fd));
                    worker.replace_root(root, directory.as_ref());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_finished_when_all_workers_have_carried_them_out() {
        let (workers, inboxes) = Workers::new(2);
        let started = Instant::now();
        thread::spawn(move || {
            thread::sleep(Duration::from_millis(100));
            for inbox in inboxes {
                let _mark = inbox.orders.recv();
                thread::sleep(Duration::from_millis(50));
            }
        });
        assert!(workers.finish());
        assert!(started.elapsed() >= Duration::from_millis(200), "{:?}", started.elapsed());
        // They have ended.
        assert!(workers.finish());
        // A worker that receives no orders is not waited for.
        let (workers, _inboxes) = Workers::new(1);
        for _ in 0..ORDERS_MAX {
            let (done, _) = mpsc::channel();
            assert!(workers.give([Order::Mark { _done: done }], Duration::ZERO).is_ok());
        }
        assert!(!workers.finish());
    }

    #[test]
    fn a_worker_that_does_not_take_its_configuration_is_named() {
        let (workers, inboxes) = Workers::new(2);
        let [one, two] = <[Inbox; 2]>::try_from(inboxes).unwrap();
        let turning = thread::spawn(move || {
            for order in one.orders {
                if let Order::Turn(number, sender) = order {
                    let _ = sender.send(number);
                }
            }
        });
        let patience = Duration::from_millis(50);
        assert_eq!(workers.configure_within(Vec::new(), patience).unwrap(), Some(1));
        drop(two);
        // A shutdown ends the workers.
        workers.stop();
        assert_eq!(workers.configure_within(Vec::new(), patience).unwrap(), None);
        drop(workers);
        turning.join().unwrap();
    }

    #[test]
    fn a_server_is_healthy_while_each_worker_turns_and_it_does_not_shut_down() {
        let (workers, inboxes) = Workers::new(2);
        let [one, two] = <[Inbox; 2]>::try_from(inboxes).unwrap();
        let turn = |inbox: Inbox, turns: usize| {
            thread::spawn(move || {
                for order in inbox.orders.iter().take(turns) {
                    let Order::Turn(number, sender) = order else { panic!("{order:?}") };
                    let _ = sender.send(number);
                }
                thread::sleep(2 * HEALTH_TURN_MAX);
            })
        };
        let _threads = (turn(one, 9), turn(two, 1));
        assert_eq!(workers.check_health(), Ok(2));
        let started = Instant::now();
        let error = workers.check_health().unwrap_err();
        assert!(error.starts_with("worker-1 does not turn"), "{error}");
        assert!(
            (HEALTH_TURN_MAX..2 * HEALTH_TURN_MAX).contains(&started.elapsed()),
            "{:?}",
            started.elapsed()
        );
        workers.stop();
        assert_eq!(workers.check_health(), Err("the server is shutting down".to_owned()));
    }

    #[test]
    fn a_worker_that_takes_no_orders_or_has_ended_is_not_healthy() {
        let (workers, inboxes) = Workers::new(1);
        let mark = || Order::Mark { _done: mpsc::channel().0 };
        while workers.give([mark()], Duration::ZERO).is_ok() {}
        assert!(workers.check_health().is_err());
        drop(inboxes);
        assert!(workers.check_health().is_err());
    }
}
