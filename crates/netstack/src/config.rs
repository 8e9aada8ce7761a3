//! The configuration of a stack: addresses, ports and limits.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::IpAddr;
use core::sync::atomic::AtomicU64;
use core::time::Duration;

/// The settings of a stack. They do not change while the stack lives.
#[derive(Clone, Debug)]
pub struct Config {
    /// The link address (MAC) of the interface: the source of every frame.
    pub mac: [u8; 6],
    /// The addresses that the stack serves.
    pub addresses: Vec<Address>,
    /// The routers, at most one for each version of IP. Packets to peers outside of the prefixes go through them.
    /// Without a router, a reply goes to the MAC address that the segment came from. A router needs an address with
    /// [`is_ours`](Address::is_ours).
    pub gateways: Vec<Gateway>,
    /// The ports at which connections are accepted, on each address.
    pub tcp_ports: Vec<u16>,
    /// The ports whose datagrams go to the application, on each address.
    pub udp_ports: Vec<u16>,
    /// The maximum concurrent connections; at most 2²⁴ − 1. At the limit, a completed handshake ends the oldest
    /// connection that its application has closed. If there is no such connection, the handshake is reset.
    pub connections_max: u32,
    /// The maximum concurrent handshakes. Further handshakes get SYN cookies, which need no memory.
    pub half_open_max: u32,
    /// The maximum connections in TIME-WAIT. A further connection ends the oldest early.
    pub time_wait_max: u32,
    /// The mean maximum per second of resets and other replies to segments without a connection. Further segments
    /// are dropped. The same limit applies to each kind of replies of ARP, neighbour discovery and ICMP.
    pub replies_per_second_max: u32,
    /// The receive window: the maximum bytes that a peer may have in flight to a connection.
    pub receive_bytes_max: u32,
    /// The time without an acknowledgement after which a connection is lost (RFC 9293, 3.8.3: R2). The first few
    /// retransmissions happen in any case.
    pub patience: Duration,
    /// The time for which a closed connection waits for the peer's FIN (FIN-WAIT-2).
    pub fin_wait: Duration,
    /// The keepalive probes of idle connections, which detect peers that have gone; `None` for no probes.
    pub keepalive: Option<Keepalive>,
    /// True to use ECN with peers that support it (RFC 3168): routers mark congestion instead of dropping packets.
    pub ecn: bool,
    /// The algorithm that sizes the congestion window.
    pub congestion: Algorithm,
}

/// The algorithm that sizes the congestion window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Algorithm {
    /// BBRv3 (draft-ietf-ccwg-bbr).
    Bbr,
    /// CUBIC (RFC 9438).
    #[default]
    Cubic,
    /// NewReno (RFC 5681 and 6582).
    NewReno,
}

/// An address that the stack serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// The address.
    pub ip: IpAddr,
    /// The length, in bits, of the prefix that the link's hosts share.
    pub prefix: u8,
    /// True if only the stack owns the address. If the kernel owns it, the stack only serves its ports there: no
    /// ARP, no ND, no echo, no reset for other ports.
    pub is_ours: bool,
}

/// A router. Its clones share the router's reply. ARP has no ports, so the replies to all stacks of an interface
/// come by one receive queue.
#[derive(Clone, Debug)]
pub struct Gateway {
    pub(crate) ip: IpAddr,
    /// The bits of the router's next hop; 0 while it is unknown.
    pub(crate) hop: Arc<AtomicU64>,
}

/// The times of keepalive probes (RFC 9293, 3.8.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keepalive {
    /// The idle time before the first probe.
    pub idle: Duration,
    /// The time between two probes.
    pub interval: Duration,
    /// The number of unanswered probes after which the connection is lost.
    pub probes: u8,
}

impl Address {
    /// True if `ip` has the same prefix, so it is a host of the link.
    #[must_use]
    pub fn contains(&self, ip: IpAddr) -> bool {
        let prefix = u32::from(self.prefix);
        match (self.ip, ip) {
            (IpAddr::V4(own), IpAddr::V4(ip)) => {
                (own.to_bits() ^ ip.to_bits()).leading_zeros() >= prefix
            }
            (IpAddr::V6(own), IpAddr::V6(ip)) => {
                (own.to_bits() ^ ip.to_bits()).leading_zeros() >= prefix
            }
            _ => false,
        }
    }
}

impl Gateway {
    /// The router with this address.
    #[must_use]
    pub fn new(ip: IpAddr) -> Self {
        Self { ip, hop: Arc::default() }
    }
}

impl Config {
    /// A configuration without addresses and ports, for an interface with this MAC address. The limits have their
    /// defaults.
    #[must_use]
    pub const fn new(mac: [u8; 6]) -> Self {
        Self {
            mac,
            addresses: Vec::new(),
            gateways: Vec::new(),
            tcp_ports: Vec::new(),
            udp_ports: Vec::new(),
            connections_max: 2_000_000,
            half_open_max: 4096,
            time_wait_max: 131_072,
            replies_per_second_max: 1000,
            receive_bytes_max: 64 * 1024,
            patience: Duration::from_secs(100),
            fin_wait: Duration::from_secs(60),
            keepalive: None,
            ecn: true,
            congestion: Algorithm::Cubic,
        }
    }
    /// The index of an address in `addresses`.
    pub(crate) fn place_of(&self, ip: IpAddr) -> Option<u16> {
        let place = self.addresses.iter().position(|address| address.ip == ip)?;
        u16::try_from(place).ok()
    }
}
