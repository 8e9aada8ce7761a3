//! An AF_XDP socket: its memory, and its four rings.
//!
//! ```text
//!              fill ring                 rx ring
//!   free ──────────────────► kernel ──────────────────► received
//!              tx ring                   completion ring
//!   free ──────────────────► kernel ──────────────────► free
//! ```

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;

use netstack::ReceivedChecksum;
use netstack::{Checksum, Frame, Full};
use rustix::io::Errno;
use rustix::net::xdp::{
    SocketAddrXdp, SocketAddrXdpFlags, XDP_PGOFF_RX_RING, XDP_PGOFF_TX_RING,
    XDP_UMEM_PGOFF_COMPLETION_RING, XDP_UMEM_PGOFF_FILL_RING, XdpOptionsFlags, XdpUmemReg,
    XdpUmemRegFlags,
};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, sockopt};

use super::bpf::Mode;
use super::ring::{Consumer, Descriptor, Producer};
use crate::counters::Counters;
use crate::interface::Interface;
use crate::parts::gather;
use crate::pool::{Pool, Received};

/// The number of chunks that the kernel has for receiving: as many frames can arrive before the first one is
/// handled.
const FILL_FRAMES: u32 = 2048;
/// The maximum frames that wait to be sent.
const TX_FRAMES: u32 = 512;

/// The kernel's room in front of a frame in a chunk (`XDP_PACKET_HEADROOM`).
const HEADROOM: usize = 256;
/// Headers of Ethernet with two VLAN tags.
const LINK_BYTES: usize = 14 + 2 * 4;
/// The frame continues in the next descriptor.
const CONTINUES: u32 = libc::XDP_PKT_CONTD;

/// The memory, bytes, that [`is_in_use`] locks: a page.
pub(crate) const PROBE_BYTES: usize = 4096;

/// The bytes of the metadata in front of a sent frame: requests to the kernel (`struct xsk_tx_metadata`).
const METADATA_BYTES: usize = 24;

/// An AF_XDP socket, bound to a queue of an interface.
#[derive(Debug)]
pub(crate) struct Socket {
    fd: OwnedFd,
    pool: Rc<Pool>,
    fill: Producer<u64>,
    received: Consumer<Descriptor>,
    tx: Producer<Descriptor>,
    completed: Consumer<u64>,
    /// Chunks in the fill ring, or filled and not yet taken from the ring of received frames.
    filling: u32,
    /// Chunks that the kernel has not sent yet.
    sending: u32,
    held_max: usize,
    /// The knowledge about the checksums of received frames, which depends on their source.
    checksum: ReceivedChecksum,
    is_zero_copy: bool,
    has_metadata: bool,
}

impl Socket {
    /// Makes a socket and binds it to a queue. At most `held_max` received frames may hold its memory.
    pub(crate) fn open(
        interface: &Interface,
        queue: u32,
        mode: Mode,
        held_max: usize,
    ) -> io::Result<Self> {
        let pool = Pool::new(chunk_bytes(interface), chunks(held_max))?;
        let (fd, has_metadata) = unbound(&pool, FILL_FRAMES, TX_FRAMES)?;
        let offsets = sockopt::xdp_mmap_offsets(&fd)?;
        let socket = fd.as_fd();
        let fill = Producer::map(socket, XDP_UMEM_PGOFF_FILL_RING, &offsets.fr, FILL_FRAMES)?;
        let completion = XDP_UMEM_PGOFF_COMPLETION_RING;
        let completed = Consumer::map(socket, completion, &offsets.cr, TX_FRAMES)?;
        let received = Consumer::map(socket, XDP_PGOFF_RX_RING, &offsets.rx, FILL_FRAMES)?;
        let tx = Producer::map(socket, XDP_PGOFF_TX_RING, &offsets.tx, TX_FRAMES)?;
        bind(socket, interface.index, queue, mode)?;

        let is_zero_copy =
            sockopt::xdp_options(&fd)?.contains(XdpOptionsFlags::XDP_OPTIONS_ZEROCOPY);
        // The other end of a virtual cable is on this machine, and generic mode runs behind the offloads.
        let checksum = if mode == Mode::Generic || interface.kind == "veth" {
            ReceivedChecksum::MayBePartial
        } else {
            ReceivedChecksum::Unverified
        };
        let mut socket = Self {
            fd,
            pool: Rc::new(pool),
            fill,
            received,
            tx,
            completed,
            filling: 0,
            sending: 0,
            held_max,
            checksum,
            is_zero_copy,
            // A driver that sends from this memory may ignore the metadata.
            has_metadata: has_metadata && !is_zero_copy,
        };
        socket.replenish();
        Ok(socket)
    }

    /// Bytes that [`open`](Self::open) locks in memory.
    pub(crate) fn memory_bytes(interface: &Interface, held_max: usize) -> usize {
        chunk_bytes(interface) * chunks(held_max) as usize
    }

    /// True if the kernel fills in the checksums of sent frames.
    pub(crate) const fn fills_checksums(&self) -> bool {
        self.has_metadata
    }

    /// The number of frames that the kernel dropped because it had no chunk or no ring entry (`xsk_rcv` in
    /// net/xdp/xsk.c).
    pub(crate) fn missed(&self) -> u64 {
        let counts = sockopt::xdp_statistics(&self.fd);
        counts.map_or(0, |counts| counts.rx_dropped + counts.rx_ring_full.unwrap_or(0))
    }

    /// Takes the next frame that has arrived.
    pub(crate) fn receive(&mut self) -> Option<Received> {
        let Some(first) = self.received.pop() else {
            self.replenish();
            return None;
        };
        if first.options & CONTINUES != 0 {
            return self.receive_parts(first);
        }
        self.filling -= 1;
        let chunk = self.pool.take_back(first.offset)?;
        let range = self.range(first);
        Some(chunk.share_or_copy(range, self.checksum, self.held_max))
    }

    /// Joins a frame that is too long for a chunk. The kernel writes all descriptors of a frame together.
    fn receive_parts(&mut self, first: Descriptor) -> Option<Received> {
        let mut bytes = Vec::new();
        let mut part = Some(first);
        while let Some(descriptor) = part {
            self.filling -= 1;
            let chunk = self.pool.take_back(descriptor.offset)?;
            bytes.extend_from_slice(&chunk.bytes()[self.range(descriptor)]);
            let continues = descriptor.options & CONTINUES != 0;
            part = if continues { self.received.pop() } else { None };
        }
        Some(Received::copy(&bytes, self.checksum))
    }

    /// The range of a frame in its chunk.
    fn range(&self, frame: Descriptor) -> core::ops::Range<usize> {
        let offset = usize::try_from(frame.offset).expect("an offset into a mapping");
        let start = offset % self.pool.chunk_bytes();
        start..start + frame.bytes as usize
    }

    /// Gives back the entries of received frames, and chunks for future frames.
    pub(crate) fn replenish(&mut self) {
        self.received.release();
        if self.filling == FILL_FRAMES {
            return;
        }
        // `xsk_flush` (net/xdp/xsk.c) publishes arrived frames before it releases the entries of the fill ring. So the
        // ring may look full for a moment; the next call adds the remaining chunks.
        while self.filling < FILL_FRAMES && self.fill.has_room() {
            let chunk = self.pool.blank().expect("the other uses of chunks are limited");
            let is_written = self.fill.push(chunk.lend());
            assert!(is_written, "it has room");
            self.filling += 1;
        }
        self.fill.publish();
        if self.fill.needs_wakeup() {
            // The driver has stopped for lack of chunks. An error would come again when frames are sent.
            let _ = rustix::net::recv(&self.fd, &mut [0; 0][..], RecvFlags::DONTWAIT);
        }
    }

    /// Bytes of the longest frame that the socket sends.
    pub(crate) fn frame_bytes_max(&self) -> usize {
        self.pool.chunk_bytes() - METADATA_BYTES
    }

    /// Bytes, without the link header, of the longest frame that the socket sends and receives.
    pub(crate) fn mtu(&self) -> u16 {
        // The kernel drops a received frame that does not fit after the headroom (`xsk_rcv_check`).
        let received_max = self.pool.chunk_bytes() - HEADROOM;
        let bytes = self.frame_bytes_max().min(received_max) - LINK_BYTES;
        u16::try_from(bytes).expect("less than a chunk")
    }

    /// Copies a frame of one segment into the memory. The frame leaves by [`flush`](Self::flush).
    pub(crate) fn send(&mut self, frame: &Frame<'_>, counters: &mut Counters) -> Result<(), Full> {
        if self.sending == TX_FRAMES {
            self.flush(counters);
            if self.sending == TX_FRAMES {
                return Err(Full);
            }
        }
        let mut chunk = self.pool.blank().expect("the other uses of chunks are limited");
        let (metadata, body) = chunk.bytes_mut().split_at_mut(METADATA_BYTES);
        gather(frame, body);
        let mut options = 0;
        if let Some(checksum) = frame.checksum {
            metadata.copy_from_slice(&checksum_metadata(checksum));
            options = libc::XDP_TX_METADATA;
        }
        let descriptor = Descriptor {
            offset: chunk.lend() + METADATA_BYTES as u64,
            bytes: u32::try_from(frame.len()).expect("less than a chunk"),
            options,
        };
        let is_written = self.tx.push(descriptor);
        assert!(is_written, "the ring has room for all");
        self.sending += 1;
        Ok(())
    }

    /// Lets the kernel send the waiting frames. Returns true if no frame needs another call.
    pub(crate) fn flush(&mut self, counters: &mut Counters) -> bool {
        self.tx.publish();
        let mut waiting = self.tx.unread();
        // The kernel sends 32 frames or more per call. The loop ends when a call makes no progress.
        while waiting != 0 && self.tx.needs_wakeup() {
            counters.calls += 1;
            match rustix::net::send(&self.fd, &[], SendFlags::DONTWAIT) {
                // The driver sends on its own.
                Ok(_) if self.is_zero_copy => break,
                // The interface has dropped a frame.
                Err(Errno::BUSY) => counters.lost += 1,
                // The progress of the ring decides what follows.
                Ok(_) | Err(_) => {}
            }
            let before = core::mem::replace(&mut waiting, self.tx.unread());
            if waiting == before {
                self.reap();
                return false;
            }
        }
        self.reap();
        true
    }

    /// Takes back the chunks of frames that were sent.
    fn reap(&mut self) {
        while let Some(offset) = self.completed.pop() {
            // Dropping the chunk frees it.
            let chunk = self.pool.take_back(offset);
            debug_assert!(chunk.is_some(), "the kernel returns what it had");
            self.sending -= 1;
        }
        self.completed.release();
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// True if the interface uses an allocated queue. A socket with little memory tries to bind to the queue.
///
/// Afterwards the queue is busy for a moment, so this check is only for use after a failure.
pub(crate) fn is_in_use(interface: &Interface, queue: u32) -> bool {
    let try_it = || {
        let pool = Pool::new(PROBE_BYTES, 1)?;
        let (fd, _) = unbound(&pool, 1, 1)?;
        bind_with(fd.as_fd(), interface.index, queue, SocketAddrXdpFlags::XDP_COPY)?;
        Ok::<_, io::Error>(())
    };
    !try_it().is_err_and(|error| Errno::from_io_error(&error) == Some(Errno::INVAL))
}

fn chunk_bytes(interface: &Interface) -> usize {
    let needed = usize::from(interface.mtu) + LINK_BYTES + HEADROOM;
    if needed <= 2048 { 2048 } else { 4096 }
}

fn chunks(held_max: usize) -> u32 {
    FILL_FRAMES + TX_FRAMES + u32::try_from(held_max).expect("a small limit")
}

/// Makes a socket with rings for these numbers of received and sent frames. Also returns true if sent frames can
/// have metadata.
fn unbound(pool: &Pool, received: u32, sent: u32) -> io::Result<(OwnedFd, bool)> {
    let (family, kind) = (AddressFamily::XDP, SocketType::RAW);
    let fd = rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
    let has_metadata = register(fd.as_fd(), pool)?;
    sockopt::set_xdp_umem_fill_ring_size(&fd, received)?;
    sockopt::set_xdp_umem_completion_ring_size(&fd, sent)?;
    sockopt::set_xdp_rx_ring_size(&fd, received)?;
    sockopt::set_xdp_tx_ring_size(&fd, sent)?;
    Ok((fd, has_metadata))
}

/// Registers the memory. Returns true if sent frames can have metadata.
fn register(socket: BorrowedFd<'_>, pool: &Pool) -> io::Result<bool> {
    let memory = pool.memory();
    let plain = XdpUmemReg {
        addr: memory.at(0, memory.bytes()).as_ptr() as u64,
        len: memory.bytes() as u64,
        chunk_size: u32::try_from(pool.chunk_bytes()).expect("a chunk has at most a page"),
        headroom: 0,
        flags: XdpUmemRegFlags::empty(),
        tx_metadata_len: 0,
    };
    let with_metadata = XdpUmemReg {
        flags: XdpUmemRegFlags::from_bits_retain(libc::XDP_UMEM_TX_METADATA_LEN),
        tx_metadata_len: u32::try_from(METADATA_BYTES).expect("24"),
        ..plain
    };
    match sockopt::set_xdp_umem_reg(socket, with_metadata) {
        // Linux has metadata since 6.8.
        Err(Errno::INVAL | Errno::TOOBIG) => sockopt::set_xdp_umem_reg(socket, plain)?,
        result => return Ok(result.map(|()| true)?),
    }
    Ok(false)
}

/// Binds a socket to a queue.
fn bind(socket: BorrowedFd<'_>, interface: u32, queue: u32, mode: Mode) -> io::Result<()> {
    let with = |flags| {
        bind_with(socket, interface, queue, flags | SocketAddrXdpFlags::XDP_USE_NEED_WAKEUP)
    };
    Ok(try_ways(mode, with)?)
}

/// Tries to bind without copies, which needs a driver with zero copy, and otherwise with frames of any length.
fn try_ways(
    mode: Mode,
    mut with: impl FnMut(SocketAddrXdpFlags) -> Result<(), Errno>,
) -> Result<(), Errno> {
    if mode == Mode::Native && with(SocketAddrXdpFlags::XDP_ZEROCOPY).is_ok() {
        return Ok(());
    }
    match with(SocketAddrXdpFlags::XDP_COPY | SocketAddrXdpFlags::XDP_USE_SG) {
        // Linux has frames of several chunks since 6.6. Older kernels drop frames longer than one chunk.
        Err(Errno::INVAL) => with(SocketAddrXdpFlags::XDP_COPY),
        result => result,
    }
}

fn bind_with(
    socket: BorrowedFd<'_>,
    interface: u32,
    queue: u32,
    flags: SocketAddrXdpFlags,
) -> Result<(), Errno> {
    rustix::net::bind(socket, &SocketAddrXdp::new(flags, interface, queue))
}

/// Asks for a checksum (`XDP_TXMD_FLAGS_CHECKSUM`).
fn checksum_metadata(checksum: Checksum) -> [u8; METADATA_BYTES] {
    let mut metadata = [0; METADATA_BYTES];
    metadata[..8].copy_from_slice(&u64::from(libc::XDP_TXMD_FLAGS_CHECKSUM).to_ne_bytes());
    metadata[8..10].copy_from_slice(&checksum.start.to_ne_bytes());
    metadata[10..12].copy_from_slice(&checksum.offset.to_ne_bytes());
    metadata
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_older_kernel_gets_a_socket_without_long_frames() {
        type Flags = SocketAddrXdpFlags;
        let (zero_copy, copy, sg) = (Flags::XDP_ZEROCOPY, Flags::XDP_COPY, Flags::XDP_USE_SG);
        for (mode, refused, why, wanted) in [
            (Mode::Native, Flags::empty(), Errno::OPNOTSUPP, Ok(zero_copy)),
            (Mode::Native, zero_copy, Errno::OPNOTSUPP, Ok(copy | sg)),
            (Mode::Native, zero_copy | sg, Errno::INVAL, Ok(copy)),
            (Mode::Generic, Flags::empty(), Errno::INVAL, Ok(copy | sg)),
            (Mode::Generic, sg, Errno::INVAL, Ok(copy)),
            (Mode::Generic, sg, Errno::BUSY, Err(Errno::BUSY)),
            // The queue is not in use.
            (Mode::Generic, copy, Errno::INVAL, Err(Errno::INVAL)),
        ] {
            let mut bound = None;
            let result = try_ways(mode, |flags| {
                bound = Some(flags);
                if flags.intersects(refused) { Err(why) } else { Ok(()) }
            });
            let bound = bound.expect("a try");
            assert_eq!(result.map(|()| bound), wanted, "{mode:?} {refused:?} {why:?}");
        }
    }
}
