//! The configuration of a stack: addresses, ports and limits.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::IpAddr;
use core::sync::atomic::AtomicU64;
use core::time::Duration;

/// The settings of a stack. They stay as they are while it lives.
#[derive(Clone, Debug)]
pub struct Config {
    /// The link address (MAC) of the interface: the source of every frame.
    pub mac: [u8; 6],
    /// The addresses that are served.
    pub addresses: Vec<Address>,
    /// The routers, one for each version of IP at most. Peers outside of the prefixes are answered through
    /// them; without a router, an answer goes to the link address that the segment came from. They need an
    /// address that is ours.
    pub gateways: Vec<Gateway>,
    /// The ports where connections are accepted, on each address.
    pub tcp_ports: Vec<u16>,
    /// The ports whose datagrams the application gets, on each address.
    pub udp_ports: Vec<u16>,
    /// The most connections at once; at most 2²⁴ − 1. A handshake that makes one more ends the oldest of those that their
    /// applications have closed, and is reset if there is none.
    pub connections_max: u32,
    /// The most handshakes under way. Further ones get SYN cookies, which need no memory.
    pub half_open_max: u32,
    /// The most connections in TIME-WAIT. One more ends the oldest early.
    pub time_wait_max: u32,
    /// The number of resets and other replies to segments of no connection within a second, on average. Further
    /// segments are dropped. The same for each kind of answers of ARP, neighbour discovery and ICMP.
    pub replies_per_second_max: u32,
    /// The receive window: the most bytes that a peer may have under way to a connection.
    pub receive_bytes_max: u32,
    /// The time without an acknowledgement after which a connection is lost (RFC 9293, 3.8.3: R2). Some
    /// retransmissions happen in any case.
    pub patience: Duration,
    /// The time that a connection whose side we have closed waits for the peer's FIN (FIN-WAIT-2).
    pub fin_wait: Duration,
    /// Whether idle connections are tried for a peer that has gone.
    pub keepalive: Option<Keepalive>,
    /// Whether congestion is marked instead of told by loss, with peers that can (RFC 3168).
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

/// An address that is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// The address.
    pub ip: IpAddr,
    /// The bits of the prefix that the link's hosts have in common.
    pub prefix: u8,
    /// Whether the address is ours alone. If the kernel owns it, the stack serves its ports there and is
    /// silent about all else: no ARP, no ND, no echo, no reset for a port that is not served.
    pub is_ours: bool,
}

/// A router. Its clones share what it has answered: ARP has no ports, so that its answers to all stacks of an
/// interface come by one of the receive queues.
#[derive(Clone, Debug)]
pub struct Gateway {
    pub(crate) ip: IpAddr,
    /// The bits of its next hop; 0 as long as it is not known.
    pub(crate) hop: Arc<AtomicU64>,
}

/// When an idle connection is probed (RFC 9293, 3.8.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keepalive {
    /// The idle time before the first probe.
    pub idle: Duration,
    /// The time between two probes.
    pub interval: Duration,
    /// The number of probes without an answer after which the connection is lost.
    pub probes: u8,
}

impl Address {
    /// Returns whether an address has the same prefix: it is one of the hosts of the link.
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
    /// Serves nothing yet, from an interface with this link address; the limits have their defaults.
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
    /// The index of an address that is served.
    pub(crate) fn place_of(&self, ip: IpAddr) -> Option<u16> {
        let place = self.addresses.iter().position(|address| address.ip == ip)?;
        u16::try_from(place).ok()
    }
}
