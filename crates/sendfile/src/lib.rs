//! Files as sources of promises: a `sendfile` that never waits for the disk.
//!
//! If a file is not in the page cache, `sendfile(2)` sleeps. Then the thread and all other clients of the thread wait.
//! FreeBSD's `sendfile(2)` does not sleep (Smirnoff 2014), and this crate does the same on Linux. The crate knows which
//! ranges are resident, that is, in the page cache ([`File`]), and sends these ranges by `sendfile(2)`. It reads other
//! ranges through the ring into buffers or pipes of a [`Disk`], and sends from there. `file.rs` names the few cases in
//! which `sendfile(2)` still sleeps.
//!
//! # Which part to use
//!
//! - A program without an event loop of its own uses only [`Calls`]: it begins a call and waits for the completion. The
//!   page of [`Calls`] has a short example, and `examples/three_calls.rs` is a longer example. `libsamum` offers the
//!   same calls to C.
//! - A server with a loop over a [`ring::Ring`] uses one [`Disk`] per thread, and one [`Stream`] and one [`Transport`]
//!   ([`KernelTcp`]) per connection: see below. `examples/file_server.rs` is such a server, for HTTP.
//! - A protocol that changes bytes (TLS), or that retransmits bytes, implements [`Transport`]. A protocol that merges
//!   several streams into one (HTTP/2) fills each stream and moves the ready pieces ([`Stream::fill`],
//!   [`OutQ::take_ready`](outq::OutQ::take_ready)).
//!
//! # A loop of your own
//!
//! A [`Stream`] sends responses to one peer: bytes in memory, and ranges of files. [`Stream::pump`] does all that can
//! be done now, and says why it stops. A stream consists of a queue and of the source that fills this queue:
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
//!   │ depth, the queues of waiting streams │
//!   └──────────────────────────────────────┘
//! ```
//!
//! The queue ([`OutQ`](outq::OutQ)) has the promised bytes in order, ready or not. The source ([`FileSource`]) only
//! fills the queue, and the transport only drains the queue. Source and transport do not know each other.
//!
//! The loop passes each completion of the ring to the part that began the operation, by its token, and pumps the
//! streams that can go on:
//!
//! ```
//! # use std::{fs, io::Read as _, os::unix::net::UnixStream, rc::Rc};
//! use ring::{Choice, Event, Op, Ring, Token};
//! use sendfile::{
//!     Disk, DiskConfig, File, KernelTcp, Owner, Piece, Policy, Progress, Stream, Transport as _,
//! };
//!
//! // One per thread. A program with several peers has a stream, a transport and tokens for each.
//! const DISK: Token = 1 << 56;
//! const PEER: Token = 1;
//! let mut ring = Ring::new(Choice::Auto)?;
//! let mut disk = Disk::new(DiskConfig { token_base: DISK, ..DiskConfig::default() })?;
//! let mut completions = Vec::new();
//!
//! // Files are opened (`Op::Open`) and asked for their size by operations, too, because both may sleep.
//! let fd = ring.adopt_file(fs::File::open("Cargo.toml")?.into());
//! ring.submit(Op::Stat(fd.clone()), PEER);
//! ring.wait(None, &mut completions)?;
//! let Event::Stat(stat) = completions.remove(0).result? else { unreachable!() };
//! let file = Rc::new(File::new(fd, &stat));
//!
//! let (ours, mut theirs) = UnixStream::pair()?;
//! ours.set_nonblocking(true)?;
//! let mut transport = KernelTcp::new(ring.adopt_socket(ours.into()), PEER, PEER);
//! let mut stream = Stream::new();
//! stream.push(Piece::Static(b"a file follows: "));
//! stream.push_file(&file, 0..file.size(), Policy::default());
//! loop {
//!     match stream.pump(&mut ring, &mut disk, &mut transport, Owner::of(PEER)) {
//!         Progress::Drained => break,
//!         Progress::Failed(failure) => panic!("{failure:?}: the connection is to be closed"),
//!         // With several streams, pump the other streams first.
//!         Progress::More => continue,
//!         Progress::Blocked | Progress::Waiting => ring.wait(None, &mut completions)?,
//!     }
//!     for done in completions.drain(..) {
//!         if !disk.owns(done.token) {
//!             transport.handle_writable();
//!         } else if let Some(read) = disk.handle(&mut ring, done) {
//!             // With several streams, `read.owner` names the stream that has asked for the read.
//!             stream.handle_read(read);
//!         }
//!     }
//!     // Streams that waited for a buffer and can have one: pump each of them.
//!     while let Some(owner) = disk.next_waiting() {
//!         assert_eq!(owner, Owner::of(PEER));
//!     }
//! }
//! transport.shutdown(&mut ring);
//! let mut all = String::new();
//! theirs.read_to_string(&mut all)?;
//! assert_eq!(all, format!("a file follows: {}", fs::read_to_string("Cargo.toml")?));
//! # std::io::Result::Ok(())
//! ```
//!
//! # Limits
//!
//! The buffers of a `Disk` bound the memory of all streams. [`DiskConfig::depth`] bounds the reads in flight, and
//! [`Window`] bounds the bytes that are prefetched for one stream. A stream that finds no buffer waits in a queue
//! ([`Disk::next_waiting`]). A stream that has read for 30 ms waits in the same queue, if other streams wait. If a
//! stream holds buffers while its peer receives nothing ([`Disk::next_holder`]), the stream gives unsent bytes back
//! ([`Stream::reclaim`]). If the peer acknowledges nothing, the connection is closed ([`HOLD_MAX`]).

#![forbid(unsafe_code)]

mod allowance;
mod calls;
mod cyclic;
mod devices;
mod direct;
mod disk;
mod failure;
mod file;
mod page_cache;
mod payload;
mod policy;
mod shared;
mod slice;
mod source;
mod stream;
mod stream_queue;
mod tcp;
mod trail;
mod transport;
mod way;

pub use allowance::Allowance;
pub use calls::{
    CALLS_MAX, Call, Calls, Done, Full, MEMORY_BYTES_MAX, Outcome, Part, Room, Socket, Stop,
};
pub use cyclic::{Cyclic, CyclicFile, CyclicPool, Part as CyclicPart};
pub use devices::{Devices, Silence};
pub use disk::{DeviceStats, Disk, DiskConfig, DiskStats, Owner, ReadDone, Tries};
pub use failure::Failure;
pub use file::File;
pub use outq::Weight;
pub use page_cache::PageCache;
pub use payload::{FileRange, Pages, Piece};
pub use policy::{Caching, Policy, Window};
pub use shared::{Account, Charge, Shared};
pub use slice::Slices;
pub use source::{FileSource, FillCx, HOLD_MAX};
pub use stream::{Progress, Stream, TURN_BYTES_OF_MEMORY};
pub use tcp::KernelTcp;
pub use transport::{Alpn, Drained, Handshake, Takes, Transport};
pub use way::Unusual;
