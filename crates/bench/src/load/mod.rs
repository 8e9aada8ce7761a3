//! The load generator: requests to one HTTP server, each of them timed.
//!
//! ```text
//!   schedule, popularity      pure: the time and the target of the next request
//!             │
//!          engine             the shell: one thread, one epoll, N connections
//!             │
//!  response, account, trace  pure: parsed responses, and their figures
//! ```
//!
//! A *closed loop* sends when the previous response has come, and finds the maximum. An *open loop* sends by the
//! clock, even if the server is late, and finds the latency at a rate. Latencies count from the planned time of a
//! request ([`schedule`]).
//!
//! The generator measures its own cost: [`Account::bottleneck`] says when the generator, not the server,
//! limited the figures. To save CPU it leaves the bytes of bodies in the kernel unless they are compared.
//!
//! A request that was cut off counts with the time that it waited, and percentiles from there on are lower bounds. A
//! closed loop has no latencies.

use core::net::SocketAddr;
use core::time::Duration;
use std::io::{self, Error};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use rustix::thread::{CpuSet, sched_setaffinity};

pub mod account;
pub mod engine;
pub mod failure;
pub mod fetch;
pub mod popularity;
pub mod questions;
pub mod response;
pub mod schedule;
pub mod slow;
pub mod target;
pub mod trace;

pub use account::Account;
pub use engine::{Watch, run};
pub use failure::Failure;
pub use popularity::Order;
pub use schedule::{Arrival, Ramp};
pub use target::{Sources, Target, Url};
pub use trace::Trace;

/// The parameters of a load.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The server.
    pub address: SocketAddr,
    /// For the `Host` field.
    pub host: String,
    /// The targets to request; at least one.
    pub targets: Vec<Target>,
    /// The order of the targets.
    pub order: Order,
    /// The times of requests.
    pub arrival: Arrival,
    /// The number of connections, at least one.
    pub connections: usize,
    /// True if each connection is used again and again, false if it is used for one request.
    pub keep_alive: bool,
    /// The time before the window, in which requests do not count.
    pub warmup: Duration,
    /// The length of the window, in which requests count.
    pub duration: Duration,
    /// The time limit of a request, and of connecting.
    pub timeout: Duration,
    /// True if bodies are copied out of the kernel, as by a client that needs them. Otherwise they are discarded in
    /// the kernel, which costs the generator less. The server may notice: with a faster client it sends fewer bytes
    /// at a time.
    pub copy: bool,
    /// The CPU to run on.
    pub cpu: Option<usize>,
    /// The source addresses of connections.
    pub sources: Sources,
    /// The seed of random choices.
    pub seed: u64,
    /// True if each exchange is kept ([`Account::trace`]). Such a load goes on even if every request fails, because that
    /// is a result, too.
    pub is_traced: bool,
}

impl Plan {
    /// A closed loop over 64 connections that are kept, for 3 s after 0.5 s of warm-up; 20 s for a
    /// request.
    #[must_use]
    pub fn new(address: SocketAddr, targets: Vec<Target>) -> Self {
        Self {
            address,
            host: address.to_string(),
            targets,
            order: Order::Cycle,
            arrival: Arrival::Closed,
            connections: 64,
            keep_alive: true,
            warmup: Duration::from_millis(500),
            duration: Duration::from_secs(3),
            timeout: Duration::from_secs(20),
            copy: false,
            cpu: None,
            sources: Sources::Any,
            seed: 1,
            is_traced: false,
        }
    }
}

/// The words for tables whose figures depend on [`Plan::copy`].
#[must_use]
pub const fn receives(copy: bool) -> &'static str {
    if copy {
        "the load generator copies the bytes that it receives, so it uses more CPU time than one that discards them"
    } else {
        "the load generator discards the bytes that it receives, in the kernel"
    }
}

/// Runs a load on a thread of its own and waits for it, so that this thread stays where it is.
///
/// # Errors
/// As [`run`].
pub fn measure(plan: &Plan) -> io::Result<Account> {
    Background::start(plan.clone()).join()
}

/// A load on a thread of its own, which ends soon when this is dropped.
#[derive(Debug)]
pub struct Background {
    watch: Arc<Watch>,
    /// None once the thread has been joined.
    thread: Option<JoinHandle<io::Result<Account>>>,
}

impl Drop for Background {
    fn drop(&mut self) {
        self.watch.stop();
    }
}

impl Background {
    /// Starts it.
    #[must_use]
    pub fn start(plan: Plan) -> Self {
        let watch = Arc::new(Watch::default());
        let seen = Arc::clone(&watch);
        Self { watch, thread: Some(thread::spawn(move || run(&plan, &seen))) }
    }

    /// The bytes of bodies that it has received so far.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.watch.bytes()
    }

    /// Takes the targets that nobody requests any more, of a load that is [traced](Plan::is_traced): those whose last
    /// exchange has ended since the previous call.
    #[must_use]
    pub fn take_left(&self) -> Vec<usize> {
        self.watch.take_left()
    }

    /// Returns whether the load has ended.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Ends its window now; requests in flight are waited for as at its regular end.
    ///
    /// # Errors
    /// As [`run`].
    pub fn close(self) -> io::Result<Account> {
        self.watch.close();
        self.join()
    }

    /// Ends it at once.
    ///
    /// # Errors
    /// As [`run`].
    pub fn stop(self) -> io::Result<Account> {
        self.watch.stop();
        self.join()
    }

    /// Waits until it ends.
    ///
    /// # Errors
    /// As [`run`].
    pub fn join(mut self) -> io::Result<Account> {
        let panicked = || Error::other("the load generator panicked");
        let thread = self.thread.take().ok_or_else(panicked)?;
        thread.join().unwrap_or_else(|_| Err(panicked()))
    }
}

/// Restricts this thread and its children to one CPU.
///
/// # Errors
/// As sched_setaffinity(2): there is no such CPU, or it is not ours.
pub fn pin(cpu: Option<usize>) -> io::Result<()> {
    let Some(cpu) = cpu else { return Ok(()) };
    let mut set = CpuSet::new();
    if cpu >= CpuSet::MAX_CPU {
        return Err(Error::other(format!("there is no CPU {cpu}")));
    }
    set.set(cpu);
    sched_setaffinity(None, &set)
        .map_err(|error| Error::other(format!("cannot run on CPU {cpu}: {error}")))
}
