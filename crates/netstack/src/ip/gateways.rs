//! The routers to other networks.
//!
//! Packets to a peer of another network go through its router, even if the peer's frames come from another station:
//! a load balancer, or the second of two routers. Until the router has reported its MAC address, packets go to the
//! station that the peer's frames come from. The stack asks the router again and again, because another router may
//! take over its address. If a router stops answering, its last reported MAC address stays in use.

use alloc::vec::Vec;
use core::net::{IpAddr, Ipv6Addr};
use core::sync::atomic::Ordering;
use core::time::Duration;

use super::emit::Emitter;
use super::neighbours::NextHop;
use crate::config::{Address, Config, Gateway};
use crate::time::Time;
use crate::transmit::{Full, Transmit};
use crate::wire::{Mac, arp, ndp};

/// The time between two requests to a router that has not answered yet.
const ASK_EVERY: Duration = Duration::from_secs(1);
/// The time between two requests to a router that has answered.
const CONFIRM_EVERY: Duration = Duration::from_secs(10);

/// The routers of a stack.
#[derive(Debug)]
pub(crate) struct Gateways {
    addresses: Vec<Address>,
    routers: Vec<Router>,
}

#[derive(Debug)]
struct Router {
    gateway: Gateway,
    /// The stack's address that sends the requests.
    source: IpAddr,
    /// The station of the router; `None` until it has answered.
    hop: Option<NextHop>,
    /// A station of the virtual LAN in which the router is asked for.
    lan: NextHop,
    ask_at: Time,
}

impl Gateways {
    /// Begins without replies, except for replies to other stacks of the interface.
    pub(crate) fn new(config: &Config) -> Self {
        let router = |gateway: &Gateway| {
            let is_fit = |own: &&Address| own.ip.is_ipv4() == gateway.ip.is_ipv4() && own.is_ours;
            let fit = || config.addresses.iter().filter(is_fit);
            let own = fit().find(|own| own.contains(gateway.ip)).or_else(|| fit().next())?;
            Some(Router {
                gateway: gateway.clone(),
                source: own.ip,
                hop: None,
                lan: NextHop::new(Mac::BROADCAST, None),
                ask_at: Time::default(),
            })
        };
        let routers = config.gateways.iter().filter_map(router).collect();
        Self { addresses: config.addresses.clone(), routers }
    }

    /// The station for frames to a peer. `from` is the station that the peer's frame came from.
    #[inline]
    pub(crate) fn hop_to(&mut self, peer: IpAddr, from: NextHop) -> NextHop {
        if self.routers.is_empty() || is_link_local(peer) {
            return from;
        }
        if self.addresses.iter().any(|own| own.contains(peer)) {
            return from;
        }
        let is_its = |router: &&mut Router| router.gateway.ip.is_ipv4() == peer.is_ipv4();
        let Some(router) = self.routers.iter_mut().find(is_its) else { return from };
        router.hop.unwrap_or_else(|| {
            router.lan = from;
            from
        })
    }

    /// Records the MAC address that the station `sender` has reported. Returns true if the station is a router.
    pub(crate) fn hear(&self, sender: IpAddr, mac: Mac, from: NextHop) -> bool {
        let is_it = |router: &&Router| router.gateway.ip == sender;
        let Some(router) = self.routers.iter().find(is_it) else { return false };
        if !mac.is_multicast() {
            // Relaxed: the stacks of an interface share nothing but this number.
            router.gateway.hop.store(from.to(mac).to_bits(), Ordering::Relaxed);
        }
        true
    }

    /// A router whose MAC address has changed: the old station, if there was one, and the new one.
    pub(crate) fn moved(&mut self) -> Option<(Option<NextHop>, NextHop)> {
        self.routers.iter_mut().find_map(|router| {
            let told = NextHop::from_bits(router.gateway.hop.load(Ordering::Relaxed));
            let hop = told.filter(|hop| router.hop != Some(*hop))?;
            router.lan = hop;
            Some((router.hop.replace(hop), hop))
        })
    }

    /// Sends requests to the routers that are due. A request for which the interface has no room is lost.
    pub(crate) fn ask<T: Transmit>(&mut self, now: Time, emitter: &mut Emitter<'_, T>) {
        for router in self.routers.iter_mut().filter(|router| router.ask_at <= now) {
            router.ask_at = now + if router.hop.is_some() { CONFIRM_EVERY } else { ASK_EVERY };
            if router.ask(emitter) == Err(Full) {
                emitter.counters.drops.no_room += 1;
            }
        }
    }
}

impl Router {
    /// Asks for the router's MAC address (RFC 826; RFC 4861, 7.2.2).
    fn ask<T: Transmit>(&self, emitter: &mut Emitter<'_, T>) -> Result<(), Full> {
        match (self.source, self.gateway.ip) {
            (IpAddr::V4(sender), IpAddr::V4(target)) => {
                let message = arp::Header {
                    operation: arp::Operation::Request,
                    sender_mac: emitter.mac,
                    sender,
                    target_mac: Mac([0; 6]),
                    target,
                };
                emitter.arp(self.lan.to(Mac::BROADCAST), &message)
            }
            (source, IpAddr::V6(target)) => {
                let source_mac = Some(emitter.mac);
                let mut head = [0; ndp::Header::LEN_MAX];
                let len = ndp::Header::Solicitation { target, source_mac }.emit(&mut head);
                let (group, mac) = solicited_node(target);
                let limit = Some(ndp::Header::HOP_LIMIT);
                emitter.icmp(source, group.into(), self.lan.to(mac), limit, &head[..len], &[])
            }
            _ => unreachable!("the source has the version of the router"),
        }
    }
}

/// True if an address belongs to this link by its form alone, with any prefixes.
const fn is_link_local(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(_) => false,
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    }
}

/// The solicited-node group of an address (RFC 4291, 2.7.1), and the group's MAC address (RFC 2464, 7).
const fn solicited_node(target: Ipv6Addr) -> (Ipv6Addr, Mac) {
    let [.., a, b, c] = target.octets();
    let low = u16::from_be_bytes([b, c]);
    let group = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00 | a as u16, low);
    (group, Mac([0x33, 0x33, 0xff, a, b, c]))
}
