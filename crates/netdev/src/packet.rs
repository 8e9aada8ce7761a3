//! A packet socket that only sends: frames with a virtio-net header, so that the kernel fills in checksums
//! and cuts large segments as late as it can (packet(7), `PACKET_VNET_HDR`).
//!
//! Up to 16 KiB of a frame are copied into a batch of 64 frames that leaves at the end of a worker turn.

use core::net::{IpAddr, Ipv6Addr};
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use netstack::{Frame, Full};
use rustix::io::Errno;
use rustix::net::{MMsgHdr, SendAncillaryBuffer, SendFlags};

use crate::counters::Counters;
use crate::error::Error;
use crate::interface::Interface;
use crate::parts::with_slices;
use crate::vnet;

/// The number of frames in a batch.
const BATCH_FRAMES: usize = 64;
/// Frames up to this length, also frames that the kernel cuts, are copied and leave with the batch. Larger frames
/// leave together. Each single call sends an interrupt to the receiving processor, which costs more than a copy of 8
/// KiB: a response of 8 KiB costs 5.8 us in a batch instead of 9.1. For 64 KiB both costs are the same.
const COPY_BYTES_MAX: usize = 16 * 1024;
/// The kernel's memory for frames that have not left.
const SEND_BUFFER_BYTES: i32 = 8 * 1024 * 1024;

/// A packet socket of an interface.
#[derive(Debug)]
pub(crate) struct Socket {
    fd: OwnedFd,
    batch: Batch,
}

/// Frames that leave together. Each frame follows its virtio-net header.
#[derive(Debug, Default)]
struct Batch {
    bytes: Vec<u8>,
    /// The end of each frame in `bytes`.
    ends: Vec<usize>,
    /// The number of frames at the begin that have left.
    sent: usize,
}

impl Socket {
    pub(crate) fn open(interface: &Interface) -> Result<Self, Error> {
        let failed = |what, source| {
            Error::system(format!("interface {}: {what} a packet socket", interface.name), source)
        };
        // Protocol 0: the socket receives no frames.
        let flags = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: socket(2) has no pointers.
        let fd = unsafe { libc::socket(libc::AF_PACKET, flags, 0) };
        let fd = check(fd).map_err(|source| failed("making", source))?;
        // SAFETY: the descriptor was made just now, and has no other owner.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        set(&fd, libc::SOL_PACKET, libc::PACKET_VNET_HDR, &1)
            .map_err(|source| failed("asking for virtio-net headers of", source))?;
        // The kernel caps the size at the system's limit, unless the process may exceed the limit.
        set(&fd, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &SEND_BUFFER_BYTES)
            .or_else(|_| set(&fd, libc::SOL_SOCKET, libc::SO_SNDBUF, &SEND_BUFFER_BYTES))
            .map_err(|source| failed("setting the buffer of", source))?;
        bind(&fd, interface.index).map_err(|source| failed("binding", source))?;
        Ok(Self { fd, batch: Batch::default() })
    }

    /// Lets the interface receive frames to the solicited-node multicast group (RFC 4291, 2.7.1).
    pub(crate) fn join(&self, interface: &Interface, address: Ipv6Addr) -> Result<(), Error> {
        let [.., a, b, c] = address.octets();
        let membership = libc::packet_mreq {
            mr_ifindex: interface.index.cast_signed(),
            mr_type: u16::try_from(libc::PACKET_MR_MULTICAST).expect("a small number"),
            mr_alen: 6,
            mr_address: [0x33, 0x33, 0xff, a, b, c, 0, 0],
        };
        set(&self.fd, libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &membership).map_err(
            |source| {
                let address = IpAddr::V6(address);
                let what = format!("interface {}: joining the group of {address}", interface.name);
                Error::system(what, source)
            },
        )
    }

    /// Sends a frame, or copies it into the batch.
    pub(crate) fn send(&mut self, frame: &Frame<'_>, counters: &mut Counters) -> Result<(), Full> {
        let is_copied = frame.len() <= COPY_BYTES_MAX;
        let is_turn = if is_copied { self.batch.has_room() } else { self.batch.is_empty() };
        if !is_turn && !self.flush(counters) {
            return Err(Full);
        }
        let header = vnet::emit(frame);
        if is_copied {
            self.batch.push(&header, frame);
            return Ok(());
        }
        counters.calls += 1;
        match with_slices(&header, frame, |slices| rustix::io::writev(&self.fd, slices)) {
            Err(Errno::AGAIN) => return Err(Full),
            Err(_) => counters.lost += 1,
            Ok(_) => {}
        }
        Ok(())
    }

    /// Sends the batch. Returns true if no frame remains.
    pub(crate) fn flush(&mut self, counters: &mut Counters) -> bool {
        while !self.batch.is_empty() {
            counters.calls += 1;
            match self.batch.send(self.fd.as_fd()) {
                Ok(frames) => self.batch.remove(frames),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return false,
                // The error concerns the first frame: the interface is down, or a queue of the kernel is full.
                Err(_) => {
                    self.batch.remove(1);
                    counters.lost += 1;
                }
            }
        }
        true
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Batch {
    fn has_room(&self) -> bool {
        self.ends.len() < BATCH_FRAMES
    }

    fn is_empty(&self) -> bool {
        self.sent == self.ends.len()
    }

    fn push(&mut self, header: &[u8], frame: &Frame<'_>) {
        self.bytes.extend_from_slice(header);
        self.bytes.extend_from_slice(frame.head);
        frame.parts.iter().for_each(|part| self.bytes.extend_from_slice(part));
        self.ends.push(self.bytes.len());
    }

    /// Sends as many frames as the kernel accepts, at least one. Returns their number.
    fn send(&self, socket: BorrowedFd<'_>) -> Result<usize, Errno> {
        let mut start = self.sent.checked_sub(1).map_or(0, |last| self.ends[last]);
        let mut slices = Vec::with_capacity(BATCH_FRAMES);
        for &end in &self.ends[self.sent..] {
            slices.push([IoSlice::new(&self.bytes[start..end])]);
            start = end;
        }
        if let [[only]] = &slices[..] {
            return rustix::net::send(socket, only, SendFlags::empty()).map(|_| 1);
        }
        let mut controls: Vec<_> = slices.iter().map(|_| SendAncillaryBuffer::default()).collect();
        let messages = slices.iter().zip(&mut controls);
        let mut messages: Vec<_> =
            messages.map(|(slices, control)| MMsgHdr::new(slices, control)).collect();
        rustix::net::sendmmsg(socket, &mut messages, SendFlags::empty())
    }

    /// Removes frames from the begin.
    fn remove(&mut self, frames: usize) {
        self.sent += frames;
        if self.is_empty() {
            self.sent = 0;
            self.ends.clear();
            self.bytes.clear();
        }
    }
}

fn bind(socket: &OwnedFd, interface: u32) -> io::Result<()> {
    // SAFETY: all bytes zero are a valid address, which is made of integers.
    let mut address: libc::sockaddr_ll = unsafe { core::mem::zeroed() };
    address.sll_family = u16::try_from(libc::AF_PACKET).expect("a small number");
    address.sll_ifindex = interface.cast_signed();
    let bytes = libc::socklen_t::try_from(size_of_val(&address)).expect("a small size");
    let pointer = (&raw const address).cast();
    // SAFETY: `pointer` is to an address of as many bytes, which lives until the call returns.
    check(unsafe { libc::bind(socket.as_raw_fd(), pointer, bytes) }).map(drop)
}

/// Sets a socket option. The type is the one that the kernel expects for the option.
fn set<T>(socket: &OwnedFd, level: i32, name: i32, value: &T) -> io::Result<()> {
    let bytes = libc::socklen_t::try_from(size_of::<T>()).expect("a small size");
    let pointer = core::ptr::from_ref(value).cast();
    // SAFETY: `pointer` is to a value of as many bytes, which lives until the call returns. The kernel
    // only reads it.
    check(unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, pointer, bytes) }).map(drop)
}

fn check(result: i32) -> io::Result<i32> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}
