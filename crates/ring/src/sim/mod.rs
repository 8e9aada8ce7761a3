//! The third driver: a simulated world on a virtual clock. One seed, one run.
//!
//! A [`World`] has files, a page cache, a network and a clock. Rings made by
//! [`Ring::simulated`](crate::Ring::simulated) live in it. A test acts on it between two calls of
//! [`Ring::wait`](crate::Ring::wait), which lets time jump from one event to the next. Chance decides what the kernel
//! leaves open: the order of completions, the cuts in a stream, and whether a cancelled operation ends early, late or
//! as if it had not been cancelled. With [`Config::nasty`] every operation sometimes fails as well.
//!
//! A peer connects to a ring's listener by [`World::connect`], and a ring to a peer that
//! [listens](World::listen) by [`Op::Connect`](crate::Op::Connect). The rings' process gets signals by
//! [`World::signal`], and has children by [`World::start_child`].
//!
//! A real worker would sleep when it sends a file range that is not in the page cache. The simulation records each such
//! sleep: assert that [`World::stalls`] is empty.
//!
//! ```
//! use std::io::IoSlice;
//! use ring::sim::{Config, World};
//! use ring::{Event, Op, Ring};
//!
//! let world = World::new(Config::new(1));
//! let mut ring = Ring::simulated(&world);
//! let listener = ring.sim_listener(&world);
//! ring.submit(Op::Accept(listener), 0);
//! let peer = world.connect();
//! let mut completions = Vec::new();
//! ring.wait(None, &mut completions)?;
//! let Some(Ok(Event::Accepted(socket))) = completions.pop().map(|one| one.result) else { panic!() };
//! ring.send(&socket, &[IoSlice::new(b"hello")], false)?;
//! ring.wait(Some(ring.now() + std::time::Duration::from_secs(1)), &mut completions)?;
//! assert_eq!(peer.received(), b"hello");
//! # std::io::Result::Ok(())
//! ```
//!
//! The simulation lacks: more than one thread, permissions, pipes that wait, hard links, `O_DIRECT`, a limit on the
//! bytes that a socket receives, pages that a sender and the page cache share, and the cost of CPU time. The buffers
//! are real memory.

mod control;
mod disk;
mod driver;
mod files;
mod net;
mod peer;
mod process;
mod random;
mod sockets;
mod tree;
mod world;

use core::ops::RangeInclusive;
use core::sync::atomic::AtomicBool;
use core::time::Duration;
use std::io;
use std::sync::Arc;

pub use net::{End, MissingPage, Stall};
pub use peer::{Peer, PeerListener};
pub use world::{Counts, World};

pub(crate) use files::Mapping;

use crate::slab::Key;

pub(crate) use driver::Sim;

/// A duration: any in the range.
pub type Latency = RangeInclusive<Duration>;

/// An operation of some ring that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Waiter {
    ring: usize,
    key: u64,
}

impl Waiter {
    const fn new(ring: usize, key: Key) -> Self {
        Self { ring, key: key.to_bits() }
    }
}

/// The properties of a [`World`].
#[derive(Clone, Debug)]
pub struct Config {
    /// The source of all chance: the same seed and the same calls give the same run.
    pub seed: u64,
    /// Seconds since 1970 when the clock starts.
    pub unix_time: i64,
    /// From a peer to a socket and back, and from an event to its completion.
    pub network: Latency,
    /// The latency of a read of pages that are not in the page cache.
    pub disk: Latency,
    /// The bytes that a device reads per second, one read after the other; each read takes [`disk`](Self::disk) in
    /// addition. `None` for no limit. The kernel's readahead does not count.
    pub disk_rate: Option<u64>,
    /// The latency of a read from the page cache, and of a write.
    pub cache: Latency,
    /// Opening, stat, listing, watching, discarding.
    pub metadata: Latency,
    /// From a cancel to the end of the operation.
    pub cancel: Latency,
    /// The bytes that a socket accepts before the peer has received any.
    pub send_buffer: usize,
    /// True if connected sockets receive 20 KiB in one operation, as with the other drivers, and not 2 KiB. Then ten
    /// times as many bytes may come before a [cancel](Self::cancel) takes effect.
    pub wide_receives: bool,
    /// The time that each direct receive costs the caller.
    pub receive: Duration,
    /// Pages that the kernel reads ahead unless [`Ring::no_readahead`](crate::Ring::no_readahead) was called.
    pub readahead_pages: usize,
    /// True if sockets keep to a rate ([`Ring::set_rate`](crate::Ring::set_rate)); Unix sockets do not.
    pub paces: bool,
    /// The maximum of changes that wait for a watch; beyond it, the watch only reports that something changed.
    pub watch_queue: usize,
    /// Descriptors of the process; beyond that accept and open fail with `EMFILE`.
    pub descriptors: usize,
    /// The probability that all names of a path are in memory ([`Ring::open_cached`](crate::Ring::open_cached)).
    pub cached_names: f64,
    /// The result of `Op::FileSystem`. Watches work only where inotify sees all changes.
    pub file_system: u64,
    /// True if reads with `Caching::Drop` work (else `EOPNOTSUPP`).
    pub can_drop: bool,
    /// The errno of each [`Ring::sendfile`](crate::Ring::sendfile), of a file system that does not
    /// know it or a disk that is broken.
    pub sendfile_errno: Option<i32>,
    /// The errno of each splice from a file, of a file system that does not know it.
    pub splice_errno: Option<i32>,
    /// The errno of each [`Ring::probe`](crate::Ring::probe): `EOPNOTSUPP` of FUSE and overlayfs.
    pub probe_errno: Option<i32>,
    /// The errno of each [`Ring::cached_pages`](crate::Ring::cached_pages): `ENOSYS` before Linux
    /// 6.5, `EPERM` for files of others.
    pub cachestat_errno: Option<i32>,
    /// True if `mincore(2)` hides residency from this process, as for files of others.
    pub mincore_denied: bool,
    /// True if there is `/proc`, of which the simulation has `/proc/self/fd` only.
    pub proc: bool,
    /// True if the machine has swap.
    pub swap: bool,
    /// The bytes that a pipe holds.
    pub pipe_bytes: usize,
    /// The faults, and how often they come.
    pub faults: Faults,
}

/// Probabilities, from 0 to 1, of what may go wrong.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// A read brings fewer bytes than there are (an error after some bytes).
    pub short_read: f64,
    /// A read from the disk fails with `EIO`.
    pub read_error: f64,
    /// A read from the disk fails with `ENOMEM`, because there is no memory for its pages. Or the kernel reads nothing
    /// ahead, for the same reason.
    pub no_memory: f64,
    /// A write accepts fewer bytes than there are.
    pub short_write: f64,
    /// `send` or `sendfile` accepts fewer bytes than there is room for.
    pub short_send: f64,
    /// A receive brings fewer bytes than have come.
    pub short_receive: f64,
    /// An accept ends with `EMFILE`.
    pub accept_error: f64,
    /// Before a call of [`Ring::wait`](crate::Ring::wait), and in the midst of a turn, before a
    /// question about residency or a `sendfile`, the kernel reclaims some pages of a file.
    pub eviction: f64,
    /// `probe` says no although the pages are there.
    pub probe_denial: f64,
    /// A cancelled file operation goes on as if it had not been cancelled.
    pub success_after_cancel: f64,
}

impl Config {
    /// A world without faults: chance decides only about times and orders.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let micros = |from, to| Duration::from_micros(from)..=Duration::from_micros(to);
        Self {
            seed,
            unix_time: 1_700_000_000,
            network: micros(5, 200),
            disk: micros(100, 20_000),
            disk_rate: None,
            cache: micros(1, 10),
            metadata: micros(5, 500),
            cancel: micros(1, 300),
            send_buffer: 128 * 1024,
            wide_receives: false,
            receive: Duration::ZERO,
            readahead_pages: 32,
            paces: true,
            watch_queue: 1024,
            descriptors: 20_000,
            file_system: 0xef53,
            can_drop: true,
            sendfile_errno: None,
            cached_names: 0.5,
            splice_errno: None,
            probe_errno: None,
            cachestat_errno: None,
            mincore_denied: false,
            proc: true,
            swap: false,
            pipe_bytes: 1024 * 1024,
            faults: Faults { success_after_cancel: 0.3, ..Faults::default() },
        }
    }

    /// A world in which every fault happens sometimes, and buffers are small.
    #[must_use]
    pub fn nasty(seed: u64) -> Self {
        Self {
            send_buffer: 10_000,
            watch_queue: 8,
            pipe_bytes: 64 * 1024,
            faults: Faults {
                short_read: 0.1,
                read_error: 0.02,
                no_memory: 0.0,
                short_write: 0.2,
                short_send: 0.3,
                short_receive: 0.3,
                accept_error: 0.02,
                eviction: 0.1,
                probe_denial: 0.05,
                success_after_cancel: 0.5,
            },
            ..Self::new(seed)
        }
    }
}

/// The flag that a simulated ring's waker sets.
pub(crate) type Flag = Arc<AtomicBool>;

fn errno(error: i32) -> io::Error {
    io::Error::from_raw_os_error(error)
}
