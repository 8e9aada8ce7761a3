//! The frames of an interface: [`open`] the interface, then receive and send by a [`Device`] per receive queue.

use core::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::Arc;

use netstack::{Frame, Full, Limits, Transmit};

use crate::choose::{By, Ways};
use crate::counters::Counters;
use crate::error::Error;
use crate::interface::Interface;
use crate::pool::Received;
use crate::sockets::{CUT_BYTES_MAX, Sockets};
use crate::tap::{self, Tap};
use crate::watch::Watch;
use crate::xdp::{self, Attachment, Mode, Taken};
use crate::{measure, packet, rights};

/// The maximum number of received frames that may be held per device. Further frames are copies.
pub const HELD_MAX: usize = 256;

/// The maximum number of [`Service`]s of an interface. It bounds the length of the XDP program.
pub const SERVICES_MAX: usize = 16;

/// The maximum number of own addresses of an interface. It bounds the length of the XDP program.
pub const OWN_ADDRESSES_MAX: usize = 16;

/// The interface to open, and its frames for the stack.
#[derive(Clone, Debug)]
pub struct Options {
    /// The name of the interface.
    pub interface: String,
    /// The path of the frames.
    pub frames: Frames,
    /// The services whose frames the stack gets, at most [`SERVICES_MAX`]. All other frames go to the kernel. A
    /// TAP device ignores this list, because the stack gets all of its frames.
    pub services: Vec<Service>,
    /// Addresses that the kernel does not own, at most [`OWN_ADDRESSES_MAX`]. The stack gets all frames to these
    /// addresses, with ARP and neighbour discovery. An address that the kernel has on any interface is an error.
    pub own_addresses: Vec<IpAddr>,
}

/// The path of the frames of an interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Frames {
    /// Receive by AF_XDP, and transmit by the path that is cheaper for the frame's size.
    #[default]
    Auto,
    /// Receive and transmit by AF_XDP.
    Xdp,
    /// Receive by AF_XDP, and transmit by a packet socket, which cuts large segments.
    Packet,
    /// Receive and transmit by a TAP device with the interface's name.
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
    /// The address and the port. The address is not the unspecified one.
    pub local: SocketAddr,
}

/// An open interface.
#[derive(Debug)]
pub struct Opened {
    /// The properties of the interface.
    pub interface: Interface,
    /// A queue for each receive queue in use. All queues must be started, because the frames of a queue without a
    /// device go to the kernel.
    pub queues: Vec<Queue>,
    /// Reports when the interface is gone.
    pub watch: Watch,
    /// The path of the frames and the reason for it: a sentence for the log.
    pub choice: String,
}

/// Opens an interface, in the network namespace of the calling thread.
///
/// The capabilities for opening (CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF) can be dropped afterwards.
///
/// # Errors
///
/// If the interface cannot be used with these options. The message says what to do.
pub fn open(options: &Options) -> Result<Opened, Error> {
    let interface = Interface::open(&options.interface)?;
    check_own(&interface, &options.own_addresses)?;
    match options.frames {
        Frames::Tap => open_tap(interface),
        Frames::Auto | Frames::Xdp | Frames::Packet => open_xdp(interface, options),
    }
}

/// Refuses an own address that the kernel has. The stack would take all frames to this address from the kernel, such as
/// those of the operator's remote login.
fn check_own(interface: &Interface, own_addresses: &[IpAddr]) -> Result<(), Error> {
    let known = own_addresses.iter().find(|own| interface.kernel_has(**own));
    known.map_or(Ok(()), |known| {
        let name = &interface.name;
        Err(Error::new(format!("interface {name}: the kernel has the address {known} itself"))
            .advise("leave out --address for it, or choose one that nothing else has"))
    })
}

fn open_tap(interface: Interface) -> Result<Opened, Error> {
    let way = FrameIo::Tap(Tap::open(&interface, HELD_MAX)?);
    let limits = Limits { mtu: interface.mtu, cut_bytes_max: CUT_BYTES_MAX, fills_checksums: true };
    let mac = tap::peer_mac(interface.mac);
    let device = Device { way, limits, mac, counters: Counters::default() };
    let choice = format!("interface {}: frames by a TAP device", interface.name);
    // The stack has a MAC and addresses of its own.
    let watch = Watch::open(&interface, None, None)?;
    Ok(Opened { interface, queues: vec![Queue { device }], watch, choice })
}

fn open_xdp(interface: Interface, options: &Options) -> Result<Opened, Error> {
    rights::check(&interface.name)?;
    let taken = taken(&interface, options)?;
    let (sockets, attachment, mode) = attach(&interface, &taken)?;
    let attachment = Arc::new(attachment);
    let mut devices = Vec::new();
    for xdp in sockets {
        let packet = packet::Socket::open(&interface)?;
        for address in &options.own_addresses {
            if let IpAddr::V6(address) = address {
                packet.join(&interface, *address)?;
            }
        }
        let ways = Ways::all(if options.frames == Frames::Xdp { By::Xdp } else { By::Packet });
        devices.push(Sockets::new(xdp, packet, ways, Arc::clone(&attachment)));
    }
    let way = match options.frames {
        Frames::Auto => {
            let costs = measure::costs(&mut devices[0], interface.mac, interface.mtu);
            let ways = costs.choose();
            devices.iter_mut().for_each(|device| device.set_ways(ways));
            costs.reason(ways)
        }
        Frames::Packet => "frames leave by packet socket".to_owned(),
        Frames::Xdp | Frames::Tap => "frames leave by AF_XDP".to_owned(),
    };
    let queues = devices.into_iter().map(|sockets| {
        let limits = sockets.limits(interface.mtu);
        let way = FrameIo::Sockets(Box::new(sockets));
        Queue { device: Device { way, limits, mac: interface.mac, counters: Counters::default() } }
    });
    let queues = queues.collect();
    let choice = format!("interface {}: XDP {mode}; {way}", interface.name);
    let addresses = options.own_addresses.is_empty().then(|| interface.addresses.clone());
    let watch = Watch::open(&interface, Some(interface.mac), addresses)?;
    Ok(Opened { interface, queues, watch, choice })
}

/// Checks the services and addresses against the limits of the program.
fn taken(interface: &Interface, options: &Options) -> Result<Taken, Error> {
    let (services, addresses) = (options.services.len(), options.own_addresses.len());
    let fault = if services > SERVICES_MAX {
        Some(format!("{services} services, and {SERVICES_MAX} are possible"))
    } else if addresses > OWN_ADDRESSES_MAX {
        Some(format!("{addresses} own addresses, and {OWN_ADDRESSES_MAX} are possible"))
    } else if services + addresses == 0 {
        Some("no service, and no own address".to_owned())
    } else {
        None
    };
    if let Some(fault) = fault {
        return Err(Error::new(format!("interface {}: {fault}", interface.name)));
    }
    let services = options.services.iter().map(|service| {
        let protocol = match service.protocol {
            Protocol::Tcp => xdp::TCP,
            Protocol::Udp => xdp::UDP,
        };
        (protocol, service.local)
    });
    Ok(Taken { services: services.collect(), own_addresses: options.own_addresses.clone() })
}

/// Opens the sockets, and attaches the program: in native mode if the driver can, otherwise in generic mode. A veth
/// always gets generic mode.
fn attach(
    interface: &Interface,
    taken: &Taken,
) -> Result<(Vec<xdp::Socket>, Attachment, Mode), Error> {
    let attach = |mode| {
        let (sockets, attachment) = xdp::open(interface, taken, mode, HELD_MAX)?;
        Ok((sockets, attachment, mode))
    };
    if interface.kind == "veth" {
        return attach(Mode::Generic);
    }
    attach(Mode::Native).or_else(|_: Error| attach(Mode::Generic))
}

/// A receive queue of an interface, with its path to send. A queue can be moved to the thread that will use it.
#[derive(Debug)]
pub struct Queue {
    device: Device,
}

// SAFETY: `Device` is not `Send` because of the reference counts of its pool. Only the device and its received
// frames hold them. A queue has received no frames: `device` is private, and `start` moves it out.
unsafe impl Send for Queue {}

impl Queue {
    /// Makes the device of this queue, for the calling thread.
    #[must_use]
    pub fn start(self) -> Device {
        self.device
    }
}

/// The frames of one receive queue, and the path to send frames.
///
/// The loop: wait until [`fd`](Self::fd) is readable, [`receive`](Self::receive) until no frame is left or the
/// batch is long enough, send, [`flush`](Self::flush).
#[derive(Debug)]
pub struct Device {
    way: FrameIo,
    limits: Limits,
    mac: [u8; 6],
    counters: Counters,
}

#[derive(Debug)]
enum FrameIo {
    Tap(Tap),
    Sockets(Box<Sockets>),
}

impl Device {
    /// The descriptor that becomes readable when frames have arrived.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        match &self.way {
            FrameIo::Tap(tap) => tap.as_fd(),
            FrameIo::Sockets(sockets) => sockets.fd(),
        }
    }

    /// The descriptor that becomes writable when there is room again after a [`Full`].
    #[must_use]
    pub fn room_fd(&self) -> BorrowedFd<'_> {
        match &self.way {
            FrameIo::Tap(tap) => tap.as_fd(),
            FrameIo::Sockets(sockets) => sockets.room_fd(),
        }
    }

    /// The MAC of the stack on this interface.
    #[must_use]
    pub const fn mac(&self) -> [u8; 6] {
        self.mac
    }

    /// The counters since the device was opened.
    #[must_use]
    pub const fn counters(&self) -> Counters {
        self.counters
    }

    /// The number of frames that the kernel dropped because 2,048 frames already waited. Reading it is a system
    /// call, so it is not one of the [counters](Self::counters). It is 0 with TAP, where the sender has the queue.
    /// It is also 0 on adapters without copies, which count such frames themselves (`ethtool -S`).
    #[must_use]
    pub fn missed(&self) -> u64 {
        match &self.way {
            FrameIo::Tap(_) => 0,
            FrameIo::Sockets(sockets) => sockets.missed(),
        }
    }

    /// Takes the next frame that has arrived.
    pub fn receive(&mut self) -> Option<Received> {
        let received = match &mut self.way {
            FrameIo::Tap(tap) => tap.receive(),
            FrameIo::Sockets(sockets) => sockets.receive(),
        }?;
        self.counters.received += 1;
        self.counters.copied += u64::from(received.is_copy());
        Some(received)
    }

    /// Sends the frames that wait in the batch. Returns true if all frames have left. The others leave with a later
    /// call, when [`room_fd`](Self::room_fd) is writable.
    pub fn flush(&mut self) -> bool {
        match &mut self.way {
            FrameIo::Tap(_) => true,
            FrameIo::Sockets(sockets) => sockets.flush(&mut self.counters),
        }
    }
}

impl Transmit for Device {
    fn limits(&self) -> Limits {
        self.limits
    }

    fn send(&mut self, frame: &Frame<'_>) -> Result<(), Full> {
        let counters = &mut self.counters;
        let sent = match &mut self.way {
            FrameIo::Tap(tap) => tap.send(frame, counters),
            FrameIo::Sockets(sockets) => sockets.send(frame, counters),
        };
        match sent {
            Ok(()) => {
                counters.sent += 1;
                counters.sent_bytes += frame.len() as u64;
            }
            Err(Full) => counters.refused += 1,
        }
        sent
    }
}
