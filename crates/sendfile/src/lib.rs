//! Files as sources of promises: a `sendfile` that never waits for the disk.
//!
//! [`Calls`] is for programs: sends, receives and `sendfile`s as calls with one completion each, on one
//! queue. Below it are the parts of a server that has a loop of its own.
//!
//! A [`Stream`] carries responses to one peer: bytes in memory, and ranges of files that may not be in
//! the page cache. [`Stream::pump`] does all that can be done now. Resident ranges are lent to the
//! transport, which sends them by `sendfile(2)`; others are read through the ring into buffers of a
//! [`Disk`] and sent from there. Neither sleeps. The idea is FreeBSD's non-blocking `sendfile(2)`
//! (Smirnoff 2014). Linux's would sleep, so residency is known before it is called ([`File`]).
//!
//! ```text
//!    push_file(range)       push(bytes)
//!          │                     │
//!          ▼                     ▼
//!   ┌────────────┐  fill   ┌───────────┐   drain   ┌───────────┐
//!   │ FileSource │ ──────► │   OutQ    │ ────────► │ Transport │ ──► socket
//!   │            │ retract │ of Pieces │ ◄──────── │           │
//!   └────────────┘  fail   └───────────┘   sent,   └───────────┘
//!      │      ▲                           released
//!      │ read │ handle_read
//!      ▼      │
//!   ┌──────────────────────────────────────┐
//!   │ Disk (one per worker): buffers,      │ ◄──► ring
//!   │ depth, the line of waiting streams   │
//!   └──────────────────────────────────────┘
//! ```
//!
//! The source only fills the queue, and the transport only drains it; neither knows the other.
//! Several streams can feed one transport: their ready pieces move into its queue.
//!
//! Limits: the buffers of a `Disk` bound the memory of all its streams, its depth the reads in
//! flight, [`Window`] the bytes prefetched for one stream; a stream that finds no buffer waits in
//! line ([`Disk::next_waiting`]), and so does one that has read on for long while others wait. One that
//! holds buffers while its peer takes nothing ([`Disk::next_holder`]) gives them back
//! ([`Stream::reclaim`]), or is closed if its peer acknowledges nothing ([`HOLD_MAX`]).

#![forbid(unsafe_code)]

mod calls;
mod cyclic;
mod devices;
mod direct;
mod disk;
mod failure;
mod file;
mod line;
mod page_cache;
mod payload;
mod policy;
mod popularity;
#[cfg(test)]
mod random;
mod shared;
mod slice;
mod source;
mod stream;
mod tcp;
mod trail;
mod transport;
mod way;

pub use calls::{
    CALLS_MAX, Call, Calls, Done, Full, MEMORY_BYTES_MAX, Outcome, Part, Room, Socket, Stop,
};
pub use cyclic::{Cyclic, CyclicFile, CyclicPool, Part as CyclicPart};
pub use devices::Devices;
pub use disk::{DeviceStats, Disk, DiskConfig, DiskStats, Owner, ReadDone};
pub use failure::Failure;
pub use file::File;
pub use outq::Weight;
pub use page_cache::PageCache;
pub use payload::{FileRange, Pages, Piece};
pub use policy::{Caching, Policy, Window};
pub use shared::{Account, Charge, Shared};
pub use slice::Slices;
pub use source::{FileSource, FillCx, HOLD_MAX};
pub use stream::{Progress, Stream};
pub use tcp::KernelTcp;
pub use transport::{Drained, Takes, Transport};
pub use way::Unusual;
