//! Files as sources of promises: a `sendfile` that never waits for the disk.
//!
//! A [`Stream`] is what goes out through one socket: bytes that are here and ranges of files that
//! may not be. [`Stream::pump`] moves what can be moved now. Ranges that are in the page cache go
//! by `sendfile(2)`; others are read through the ring into buffers of a [`Disk`] and sent from
//! there. Neither sleeps. The idea is FreeBSD's non-blocking `sendfile(2)` (Smirnoff 2014); what is
//! different is that Linux's would sleep, so residency is known before it is called ([`File`]).
//!
//! ```text
//!   push(bytes), push_file(range)
//!            │                              Disk (one per worker)
//!            ▼            start reads       ┌───────────────────────────┐
//!   Stream: outq + sources ───────────────► │ buffers, depth, the line  │ ──► ring
//!            │          ◄─────────────────── │ of streams that wait      │ ◄── ring
//!            ▼            handle_read       └───────────────────────────┘
//!         socket
//! ```
//!
//! Limits: the buffers of a `Disk` bound the memory of all its streams, its depth the reads in
//! flight, [`Window`] the bytes read ahead of one stream; a stream that finds no buffer waits in
//! line ([`Disk::next_waiting`]), and one that sits on buffers while its peer takes nothing
//! ([`Disk::next_holder`]) gives them back ([`Stream::reclaim`]).

#![forbid(unsafe_code)]

mod disk;
mod file;
mod shared;
mod stream;

pub use disk::{Disk, DiskConfig, ReadDone};
pub use file::{Caching, File};
pub use outq::Weight;
pub use shared::{Account, Charge, Shared};
pub use stream::{Failure, Piece, Progress, Stream, Window};
