//! Slow clients: connections that request a file and receive a few bytes of it per second. They cause a
//! cost for the server, and are not measured themselves.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use core::time::Duration;
use std::io::{self, Error};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Instant;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send, sockopt};

use super::target::connect;
use super::{Plan, pin};

/// Slow clients on a thread of their own, until they are stopped.
#[derive(Debug)]
pub struct SlowReaders {
    shared: Arc<Shared>,
    thread: JoinHandle<io::Result<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    bytes: AtomicU64,
    reconnects: AtomicU64,
}

impl SlowReaders {
    /// Opens [`Plan::connections`] connections, requests one of the targets in turn on each, and reads
    /// `rate` bytes a second from it (at least one each [`TICK`]). A connection that ends is opened
    /// anew.
    ///
    /// # Errors
    /// If the connections cannot be made.
    pub fn start(plan: Plan, rate: u64) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let share = share(rate);
        let mut readers = Vec::new();
        for i in 0..plan.connections {
            readers.push(ask(&plan, i, share)?);
        }
        let seen = Arc::clone(&shared);
        let thread = thread::spawn(move || read(&plan, readers, share, &seen));
        Ok(Self { shared, thread })
    }

    /// The bytes received so far, with heads.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.shared.bytes.load(Ordering::Relaxed)
    }

    /// Ends the connections. Returns how many had to be made anew, because a response was complete or
    /// the server had closed.
    ///
    /// # Errors
    /// If connections could not be made anew.
    pub fn stop(self) -> io::Result<u64> {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or_else(|_| Err(Error::other("the slow readers panicked")))?;
        Ok(self.shared.reconnects.load(Ordering::Relaxed))
    }
}

/// Connects and sends the request. The receive buffer is small, so that other bytes stay in the server.
/// A quarter of it is the amount that the kernel accepts before it announces more room to the peer.
fn ask(plan: &Plan, i: usize, share: usize) -> io::Result<OwnedFd> {
    let socket = connect(plan.address, plan.sources.of(i), plan.timeout)?;
    sockopt::set_socket_recv_buffer_size(&socket, (4 * share).max(RECEIVE_BUFFER_MIN))?;
    let request = plan.targets[i % plan.targets.len()].request(&plan.host, false);
    send(&socket, &request, SendFlags::NOSIGNAL)?;
    Ok(socket)
}

fn read(plan: &Plan, mut readers: Vec<OwnedFd>, share: usize, shared: &Shared) -> io::Result<()> {
    pin(plan.cpu)?;
    let mut buffer = vec![0; share];
    let mut next = Instant::now();
    while !shared.stop.load(Ordering::Relaxed) {
        for (i, socket) in readers.iter_mut().enumerate() {
            let (n, ended) = take(socket, &mut buffer);
            shared.bytes.fetch_add(n as u64, Ordering::Relaxed);
            if ended {
                shared.reconnects.fetch_add(1, Ordering::Relaxed);
                *socket = ask(plan, i, share)?;
            }
        }
        // A late reader reads on at once to keep the rate.
        next = (next + TICK).max(Instant::now());
        thread::sleep(next - Instant::now());
    }
    Ok(())
}

/// Receives at most as much as fits. Returns the number of bytes, and whether the stream has ended.
fn take(socket: &OwnedFd, buffer: &mut [u8]) -> (usize, bool) {
    let mut taken = 0;
    while taken < buffer.len() {
        match recv(socket, &mut buffer[taken..], RecvFlags::TRUNC) {
            Ok((_, 0)) => return (taken, true),
            Ok((_, n)) => taken += n,
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => break,
            Err(_) => return (taken, true),
        }
    }
    (taken, false)
}

/// The bytes that are read in one [`TICK`] at `rate` bytes a second.
fn share(rate: u64) -> usize {
    let bytes = u128::from(rate) * TICK.as_millis() / 1000;
    usize::try_from(bytes).unwrap_or(usize::MAX).clamp(1, SHARE_MAX)
}

/// Slow readers do not copy received bytes ([`Plan::copy`]).
pub(crate) const COPIES: bool = false;

/// The interval at which each reader reads.
pub const TICK: Duration = Duration::from_millis(100);

/// The maximum of bytes of one read: 10 MiB/s for a reader.
const SHARE_MAX: usize = 1 << 20;

/// The minimum receive buffer of a slow reader's socket; the kernel doubles it (socket(7)).
const RECEIVE_BUFFER_MIN: usize = 4096;
