//! One completion queue for every kind of event: sockets, files, inodes, timers, signals, child
//! processes, wake-ups.
//!
//! `submit` an operation, `wait` for completions, and never sleep anywhere else. Three drivers offer the same contract
//! and pass one test suite (`tests/contract/mod.rs`):
//!
//! | driver | sockets | files |
//! |---|---|---|
//! | io_uring (Linux 6.1) | polled accepts, multishot receives into provided buffers, connects | asynchronous reads; helper threads for operations that io_uring lacks |
//! | epoll | edge-triggered `epoll(7)` | helper threads |
//! | simulation ([`sim`]) | simulated peers | a simulated disk; one seed, one run |
//!
//! The idea is Polyakov's kevent (2006): one queue for everything that can happen. Before changing
//! a driver read `io_uring(7)`, `io_uring_enter(2)`, `epoll(7)`, `inotify(7)`.
//!
//! # Ownership
//!
//! An operation owns its buffers and descriptors until its last completion
//! ([`Completion::more`] is false), also after [`Ring::cancel`]. Keys carry a generation, so a late
//! completion is never mistaken for one of a newer operation. Dropping a ring cancels all operations, joins them, and
//! only then frees their memory. On a slow file system a drop takes as long as the slowest call under way, unless
//! [`Ring::set_drop_limit`] was called.
//!
//! # What may be called when
//!
//! Only [`Ring::wait`] sleeps. The direct calls ([`Ring::send`], [`Ring::receive`], [`Ring::sendfile`],
//! [`Ring::probe`]...) return at once. `sendfile` does so only for resident ranges, and its caller has to know which
//! ranges are resident (the crate `sendfile` does).
//!
//! # Limits
//!
//! A ring accepts any number of operations; the owner of their sockets and files bounds them. At most 160 calls sleep
//! in helper threads at the same time. As many sleep in the kernel's threads: 120 operations on files, 32 calls of
//! `close(2)`, and writes. Further calls wait in a queue. A device that does not answer has at most a quarter of these
//! slots.
//!
//! ```no_run
//! use ring::{Choice, Event, Op, Ring};
//!
//! let mut ring = Ring::new(Choice::Auto)?;
//! let listener = ring.adopt_socket(std::net::TcpListener::bind("127.0.0.1:0")?.into());
//! ring.submit(Op::Accept(listener), 0);
//! let mut completions = Vec::new();
//! ring.wait(None, &mut completions)?;
//! for completion in completions.drain(..) {
//!     if let Ok(Event::Accepted(socket)) = completion.result {
//!         ring.send(&socket, &[std::io::IoSlice::new(b"hello\n")], false)?;
//!     }
//! }
//! # std::io::Result::Ok(())
//! ```

#![deny(unsafe_code)]

mod acknowledged;
mod beside;
#[allow(unsafe_code, reason = "memory that the kernel writes to")]
mod buffer;
mod common;
mod drivers;
mod fault;
mod fd;
mod gate;
mod helpers;
mod mounts;
mod now;
mod op;
mod pipe;
#[allow(unsafe_code, reason = "memory that the kernel writes to, and the ring of its descriptors")]
mod recv;
mod ring;
mod silence;
pub mod sim;
mod slab;
#[allow(unsafe_code, reason = "memory whose parts have different owners")]
mod span;
#[allow(unsafe_code, reason = "a structure that the kernel fills")]
mod statx;
mod symlinks;
mod timers;
mod wall;

pub use acknowledged::Left;
pub use beside::{Beside, Detached, Job};
pub use buffer::{Buffer, BufferPool};
pub use common::cancelled;
pub use fault::Fault;
pub use fd::{Fd, WeakFd};
pub use gate::{Call, Device, Gate, Shares};
pub use mounts::learn_device;
pub use now::PROBE_BYTES_MAX;
pub use now::process::{
    Sockets, block_signals, keep_descriptors_from_programs, start_orphan, take_passed_descriptors,
    unblock_signals,
};
pub use op::{
    Address, Caching, Change, Completion, DriverKind, Entry, EntryOrder, Event, FileKind,
    LISTED_LINKS_MAX, Listing, Op, OpenHow, SPARE_ACCEPTS_MAX, Signal, Stat, Targets, Token,
};
pub use pipe::{Pipe, PipePool};
pub use recv::RecvBuf;
pub use ring::{Choice, Mapping, Ring, Waker};
pub use silence::{Silences, Verdict};
pub use slab::{Key, Slab};
pub use span::{Span, trim_heap};
pub use symlinks::SymlinkScope;
pub use timers::Time;
