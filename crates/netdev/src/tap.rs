//! A TAP device: frames through a file descriptor, for machines and containers without XDP (tun(4);
//! Documentation/networking/tuntap.rst of Linux).
//!
//! The stack is the machine at the other end of the device's cable, with a MAC of its own.

use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::rc::Rc;

use netstack::{Frame, Full};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::counters::Counters;
use crate::error::Error;
use crate::interface::Interface;
use crate::parts::with_slices;
use crate::patience::with_patience;
use crate::pool::{Pool, Received};
use crate::vnet;

/// Bytes of a chunk: the largest frame and its headers, in whole pages.
const CHUNK_BYTES: usize = 68 * 1024;

/// A TAP device.
#[derive(Debug)]
pub(crate) struct Tap {
    file: OwnedFd,
    pool: Rc<Pool>,
    held_max: usize,
}

impl Tap {
    /// Opens the device of an existing interface. At most `held_max` received frames may hold its
    /// memory.
    pub(crate) fn open(interface: &Interface, held_max: usize) -> Result<Self, Error> {
        let name = &interface.name;
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = rustix::fs::open("/dev/net/tun", flags, Mode::empty()).map_err(|errno| {
            Error::system("opening /dev/net/tun", errno)
                .advise("load the module `tun`, or give the container this device")
        })?;
        with_patience(|| attach(&file, name)).map_err(|source| {
            let advice = match source.raw_os_error().map(Errno::from_raw_os_error) {
                Some(Errno::INVAL) => "make a TAP device with `ip tuntap add NAME mode tap`",
                Some(Errno::PERM) => {
                    "give it to the user with `ip tuntap add NAME mode tap user USER`"
                }
                Some(Errno::BUSY) => "another process has it",
                _ => "`ip -d link show NAME` says more",
            };
            Error::system(format!("interface {name}: attaching to the TAP device"), source)
                .advise(advice)
        })?;
        let failed = |what, source| Error::system(format!("interface {name}: {what}"), source);
        offload(&file)
            .map_err(|source| failed("setting the offloads of the TAP device", source))?;
        let chunks = u32::try_from(held_max + 1).expect("a small limit");
        let pool = Pool::new(CHUNK_BYTES, chunks).map_err(|source| failed("memory", source))?;
        Ok(Self { file, pool: Rc::new(pool), held_max })
    }

    /// Takes a frame that has arrived.
    pub(crate) fn receive(&mut self) -> Option<Received> {
        let mut chunk = self.pool.blank()?;
        let mut header = [0; vnet::HEADER_BYTES];
        let mut parts = [IoSliceMut::new(&mut header), IoSliceMut::new(chunk.bytes_mut())];
        // An error means that no frame has arrived, or that the interface is down.
        let bytes = rustix::io::readv(&self.file, &mut parts).ok()?;
        let end = bytes.checked_sub(vnet::HEADER_BYTES)?;
        Some(chunk.share_or_copy(0..end, vnet::parse(header), self.held_max))
    }

    /// Sends a frame.
    pub(crate) fn send(&mut self, frame: &Frame<'_>, counters: &mut Counters) -> Result<(), Full> {
        let header = vnet::emit(frame);
        counters.calls += 1;
        match with_slices(&header, frame, |slices| rustix::io::writev(&self.file, slices)) {
            Err(Errno::AGAIN) => return Err(Full),
            Err(_) => counters.lost += 1,
            Ok(_) => {}
        }
        Ok(())
    }
}

impl AsFd for Tap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// The MAC of the machine at the other end of the cable: the interface's MAC, changed and marked as
/// locally administered.
pub(crate) const fn peer_mac(mac: [u8; 6]) -> [u8; 6] {
    let [a, b, c, d, e, f] = mac;
    [a | 0x02, b, c, d, e, f ^ 0x01]
}

fn attach(file: &OwnedFd, name: &str) -> io::Result<()> {
    // SAFETY: all bytes zero are a valid `ifreq`, which is made of integers.
    let mut request: libc::ifreq = unsafe { core::mem::zeroed() };
    // The name comes from the kernel and is shorter than the field (IFNAMSIZ counts the zero).
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from.cast_signed();
    }
    let flags = libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR;
    request.ifr_ifru.ifru_flags = i16::try_from(flags).expect("flags of 16 bits");
    // SAFETY: TUNSETIFF reads and writes an `ifreq` (tun(4)), which lives until the call returns.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &raw mut request) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Lets the kernel hand over frames of more than one segment, and frames without checksums.
fn offload(file: &OwnedFd) -> io::Result<()> {
    let offloads = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6;
    // SAFETY: TUNSETOFFLOAD takes its argument by value (tun(4)).
    let result = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETOFFLOAD, offloads) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
