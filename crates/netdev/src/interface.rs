//! The properties of an interface: what the kernel knows about it.

use core::net::IpAddr;
use std::io;
use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

use crate::error::Error;
use crate::netlink::{self, KernelMessage, Link};

/// An interface in the network namespace of the thread that opened it.
#[derive(Clone, Debug)]
pub struct Interface {
    /// The name of the interface.
    pub name: String,
    /// The number of the interface in its namespace.
    pub index: u32,
    /// The Ethernet address of the interface.
    pub mac: [u8; 6],
    /// The bytes of the largest frame, without the link header.
    pub mtu: u16,
    /// The number of its receive queues, at least 1. Fewer queues may be in use (`ethtool -L`): by default a
    /// virtual cable has a queue for each processor, and uses one.
    pub rx_queues: u32,
    /// The kernel's addresses on the interface, and the lengths of their prefixes.
    pub addresses: Vec<(IpAddr, u8)>,
    /// The kernel's addresses on other interfaces.
    others: Vec<IpAddr>,
    /// The kind of a virtual interface (`veth`, `bridge`, ...); empty for an adapter.
    pub kind: String,
}

impl Interface {
    /// Looks an interface up.
    ///
    /// # Errors
    ///
    /// If there is no such interface, or it is down, or it is no Ethernet.
    pub fn open(name: &str) -> Result<Self, Error> {
        let failed = |source| Error::system(format!("interface {name}: asking the kernel"), source);
        let socket = netlink_socket(SocketFlags::empty()).map_err(failed)?;
        let mut link = None;
        ask(&socket, &netlink::links(), |answer| match answer {
            KernelMessage::Link(found) if found.name == name => link = Some(found),
            _ => {}
        })
        .map_err(failed)?;
        let link = link.ok_or_else(|| {
            Error::new(format!("interface {name}: there is no such interface"))
                .advise("`ip link` lists those of this network namespace")
        })?;
        let mut addresses = Vec::new();
        let mut others = Vec::new();
        ask(&socket, &netlink::addresses(), |answer| match answer {
            KernelMessage::Address(index, address, prefix) if index == link.index => {
                addresses.push((address, prefix));
            }
            KernelMessage::Address(_, address, _) => others.push(address),
            _ => {}
        })
        .map_err(failed)?;
        Self::new(link, addresses, others)
    }

    /// True if the kernel has the address, on this or another interface.
    pub(crate) fn kernel_has(&self, address: IpAddr) -> bool {
        self.addresses.iter().any(|(own, _)| *own == address) || self.others.contains(&address)
    }

    fn new(link: Link, addresses: Vec<(IpAddr, u8)>, others: Vec<IpAddr>) -> Result<Self, Error> {
        let name = link.name;
        if !link.is_up {
            return Err(Error::new(format!("interface {name}: it is down"))
                .advise("bring it up with `ip link set NAME up`"));
        }
        let mac = <[u8; 6]>::try_from(link.mac);
        let mac = mac.map_err(|_| Error::new(format!("interface {name}: it is no Ethernet")))?;
        Ok(Self {
            name,
            index: link.index,
            mac,
            // IP packets have at most 65,535 bytes.
            mtu: u16::try_from(link.mtu).unwrap_or(u16::MAX),
            rx_queues: link.rx_queues.max(1),
            addresses,
            others,
            kind: link.kind,
        })
    }
}

pub(crate) fn netlink_socket(flags: SocketFlags) -> io::Result<OwnedFd> {
    // Protocol 0 of netlink is NETLINK_ROUTE.
    Ok(rustix::net::socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        SocketFlags::CLOEXEC | flags,
        None,
    )?)
}

/// Sends a request, and hands over each message of the reply.
fn ask(socket: &OwnedFd, question: &[u8], mut take: impl FnMut(KernelMessage)) -> io::Result<()> {
    rustix::net::send(socket, question, SendFlags::empty())?;
    // Datagrams of a dump are at most this long (netlink_dump in net/netlink/af_netlink.c).
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let (bytes, _) = rustix::net::recv(socket, &mut buffer[..], RecvFlags::empty())?;
        for answer in netlink::answers(&buffer[..bytes]) {
            match answer {
                KernelMessage::Done => return Ok(()),
                KernelMessage::Error(number) => return Err(io::Error::from_raw_os_error(number)),
                answer => take(answer),
            }
        }
    }
}
