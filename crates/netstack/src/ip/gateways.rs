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

/// The time between two questions to a router that has not answered yet.
const ASK_EVERY: Duration = Duration::from_secs(1);
/// The time between two questions to a router that has answered.
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
    /// Our address that asks.
    source: IpAddr,
    /// Where answers go through it.
    hop: Option<NextHop>,
    /// A station of the virtual LAN in which it is asked for.
    lan: NextHop,
    ask_at: Time,
}

impl Gateways {
    /// Has no answers yet, but those to other stacks of the interface.
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

    /// The station that frames to a peer go to, from which a frame came by `from`.
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

    /// The station with the address `sender` has told its address of the link. Returns whether it is a router.
    pub(crate) fn hear(&self, sender: IpAddr, mac: Mac, from: NextHop) -> bool {
        let is_it = |router: &&Router| router.gateway.ip == sender;
        let Some(router) = self.routers.iter().find(is_it) else { return false };
        if !mac.is_multicast() {
            // Relaxed: the number is all that the stacks of an interface share.
            router.gateway.hop.store(from.to(mac).to_bits(), Ordering::Relaxed);
        }
        true
    }

    /// A router that has another address of the link than before: the old one, if it had one, and the new one.
    pub(crate) fn moved(&mut self) -> Option<(Option<NextHop>, NextHop)> {
        self.routers.iter_mut().find_map(|router| {
            let told = NextHop::from_bits(router.gateway.hop.load(Ordering::Relaxed));
            let hop = told.filter(|hop| router.hop != Some(*hop))?;
            router.lan = hop;
            Some((router.hop.replace(hop), hop))
        })
    }

    /// Asks the routers whose time has come. A question for which the interface has no room is lost.
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
    /// Asks for its address of the link (RFC 826; RFC 4861, 7.2.2).
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

/// Returns whether an address belongs to this link by its form alone, whatever the prefixes are.
const fn is_link_local(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(_) => false,
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    }
}

/// The group of the stations that may have an address (RFC 4291, 2.7.1), and its address of the link (RFC 2464, 7).
const fn solicited_node(target: Ipv6Addr) -> (Ipv6Addr, Mac) {
    let [.., a, b, c] = target.octets();
    let low = u16::from_be_bytes([b, c]);
    let group = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00 | a as u16, low);
    (group, Mac([0x33, 0x33, 0xff, a, b, c]))
}
