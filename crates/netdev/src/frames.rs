//! The frames of an interface: [`open`] it, then receive and send by a [`Device`] per receive queue.

use core::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};

use netstack::{Frame, Full, Limits, Transmit};
use rustix::io::Errno;

use crate::error::Error;
use crate::interface::Interface;
use crate::pool::Received;
use crate::tap::{self, Tap};

/// The number of received frames of a device that may be kept. Further frames are copies.
pub const HELD_MAX: usize = 256;

/// The number of [`Service`]s of an interface, for the length of the XDP program.
pub const SERVICES_MAX: usize = 16;

/// What to open.
#[derive(Clone, Debug)]
pub struct Options {
    /// The name of the interface.
    pub interface: String,
    /// The way of the frames.
    pub frames: Frames,
    /// What to take from the interface, at most [`SERVICES_MAX`]. Everything else goes to the kernel. A
    /// TAP device ignores it, because all of its frames are the stack's.
    pub services: Vec<Service>,
    /// Addresses that the kernel does not own: everything to them is taken, with ARP and neighbour
    /// discovery.
    pub own_addresses: Vec<IpAddr>,
}

/// The way of the frames of an interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Frames {
    /// Receive by AF_XDP, and transmit by the way that is cheaper for the size at hand.
    #[default]
    Auto,
    /// Receive and transmit by AF_XDP.
    Xdp,
    /// Receive by AF_XDP, and transmit by a packet socket, which cuts large segments.
    Packet,
    /// Receive and transmit by a TAP device, whose name is that of the interface.
    Tap,
}

/// A transport protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

/// An address and a port that the stack serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Service {
    /// The protocol.
    pub protocol: Protocol,
    /// The address, which is not the unspecified one, and the port.
    pub local: SocketAddr,
}

/// An open interface.
#[derive(Debug)]
pub struct Opened {
    /// Its properties.
    pub interface: Interface,
    /// One for each receive queue. All must be started: the frames of a queue without a device go to the
    /// kernel.
    pub queues: Vec<Queue>,
    /// The way of the frames and the reason for it: a sentence for the log.
    pub choice: String,
}

/// Opens an interface, in the network namespace of the calling thread.
///
/// The rights that it takes can be dropped afterwards ([`drop_rights`](crate::drop_rights)).
///
/// # Errors
///
/// If the interface cannot be used so. The message says what to do.
pub fn open(options: &Options) -> Result<Opened, Error> {
    let interface = Interface::open(&options.interface)?;
    match options.frames {
        Frames::Tap => {
            let tap = Tap::open(&interface, HELD_MAX)?;
            let device = Device {
                limits: Limits {
                    mtu: interface.mtu,
                    cut_bytes_max: CUT_BYTES_MAX,
                    fills_checksums: true,
                },
                mac: tap::peer_mac(interface.mac),
                way: Way::Tap(tap),
                counters: Counters::default(),
            };
            let choice = format!("interface {}: frames by a TAP device", interface.name);
            Ok(Opened { interface, queues: vec![Queue { device }], choice })
        }
        Frames::Auto | Frames::Xdp | Frames::Packet => {
            Err(Error::new(format!("interface {}: only TAP devices can be used", interface.name)))
        }
    }
}

/// Payload of the largest frame that the kernel cuts: the length field of IP has 16 bits, and headers of
/// IP and TCP have at most 60 bytes.
const CUT_BYTES_MAX: u32 = 65_535 - 60 - 60;

/// A receive queue of an interface, and the way to send. It can be sent to the thread that is to use it.
#[derive(Debug)]
pub struct Queue {
    device: Device,
}

// SAFETY: `Device` is not `Send` for the reference counts of its pool. They are in the device itself and
// in frames that it has received. A queue has received none: `device` is private, and `start` gives it
// away.
unsafe impl Send for Queue {}

impl Queue {
    /// Begins to use it.
    #[must_use]
    pub fn start(self) -> Device {
        self.device
    }
}

/// Frames of one receive queue, and the way to send frames.
///
/// The loop: wait until [`fd`](Self::fd) is readable, [`receive`](Self::receive) until nothing is left or
/// the batch is long enough, send, [`flush`](Self::flush).
#[derive(Debug)]
pub struct Device {
    way: Way,
    limits: Limits,
    mac: [u8; 6],
    counters: Counters,
}

#[derive(Debug)]
enum Way {
    Tap(Tap),
}

/// What a device has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Frames received.
    pub received: u64,
    /// Frames sent. A frame that the kernel cuts is one.
    pub sent: u64,
    /// Bytes of the frames that were sent.
    pub sent_bytes: u64,
    /// System calls that sent.
    pub batches: u64,
    /// Frames that the kernel refused: they are lost, as on a wire.
    pub lost: u64,
    /// Frames for which there was no room ([`Full`]).
    pub refused: u64,
}

impl Device {
    /// The descriptor that is readable when frames have arrived.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        match &self.way {
            Way::Tap(tap) => tap.as_fd(),
        }
    }

    /// The descriptor that is writable when there is room again after a [`Full`].
    #[must_use]
    pub fn room_fd(&self) -> BorrowedFd<'_> {
        self.fd()
    }

    /// The MAC of the stack on this interface.
    #[must_use]
    pub const fn mac(&self) -> [u8; 6] {
        self.mac
    }

    /// What it has done.
    #[must_use]
    pub const fn counters(&self) -> Counters {
        self.counters
    }

    /// Takes the next frame that has arrived.
    pub fn receive(&mut self) -> Option<Received> {
        let received = match &mut self.way {
            Way::Tap(tap) => tap.receive(),
        };
        self.counters.received += u64::from(received.is_some());
        received
    }

    /// Sends the frames that wait in the batch. Returns whether all have left; the others leave with a
    /// later call, when [`room_fd`](Self::room_fd) is writable.
    pub fn flush(&mut self) -> bool {
        match &self.way {
            Way::Tap(_) => true,
        }
    }
}

impl Transmit for Device {
    fn limits(&self) -> Limits {
        self.limits
    }

    fn send(&mut self, frame: &Frame<'_>) -> Result<(), Full> {
        let sent = match &mut self.way {
            Way::Tap(tap) => tap.send(frame),
        };
        match sent {
            Ok(()) => {
                self.counters.sent += 1;
                self.counters.sent_bytes += frame.len() as u64;
                self.counters.batches += 1;
            }
            Err(Errno::AGAIN | Errno::NOBUFS) => {
                self.counters.refused += 1;
                return Err(Full);
            }
            Err(_) => self.counters.lost += 1,
        }
        Ok(())
    }
}
