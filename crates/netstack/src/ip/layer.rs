//! The IP layer: handles each received frame.
//!
//! The layer itself answers ARP, neighbour discovery and echo requests. It reports ports that are closed and parameters
//! that are unknown (ICMP), and hands everything else up.

use alloc::vec::Vec;
use core::net::{IpAddr, Ipv6Addr, SocketAddr};

use super::emit::Emitter;
use super::gateways::Gateways;
use super::limit::Limit;
use super::neighbours::{Neighbours, NextHop};
use super::packet::{Packet, ReceivedChecksum, can_be_sender};
use super::report::{self, Report};
use crate::cache::Cache;
use crate::config::{Address, Config};
use crate::counters::Counters;
use crate::siphash;
use crate::tcp::Endpoints;
use crate::time::Time;
use crate::transmit::{Full, Transmit};
use crate::wire::{
    Ecn, EtherType, Mac, Malformed, Protocol, arp, ethernet, icmpv4, icmpv6, ipv4, ipv6, ndp, tcp,
    udp,
};

/// The IP layer, with its knowledge of other stations.
pub(crate) struct Layer {
    mac: Mac,
    addresses: Vec<Address>,
    udp_ports: Vec<u16>,
    flow_key: u64,
    /// The next hops of connections.
    pub(crate) neighbours: Neighbours,
    gateways: Gateways,
    /// The next hops of peers that have sent a datagram.
    datagram_hops: Cache<NextHop>,
    /// The limits of each kind of reply, by its number. Each kind has its own, so that a flood of one kind does not
    /// stop the others. Without resolution replies, the stack would be unreachable.
    limits: [Limit; 4],
}

/// The kinds of replies that have limits of their own (RFC 4443, 2.4(f)).
#[derive(Clone, Copy)]
enum ReplyKind {
    /// Replies of ARP and neighbour discovery.
    Resolution,
    /// Replies to echo requests.
    Echo,
    /// Replies to datagrams for ports that are not served.
    Unreachable,
    /// Replies to packets that cannot be processed.
    Problem,
}

/// The content of a received frame.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Received<'a> {
    /// A segment of TCP.
    Segment(Segment<'a>),
    /// A datagram for a port that is served.
    Datagram {
        /// The destination of the datagram.
        local: SocketAddr,
        /// The source of the datagram.
        peer: SocketAddr,
        payload: &'a [u8],
    },
    /// A report from the network about a sent segment.
    Report(Report),
    /// No content for the transports.
    Nothing,
}

/// A segment for a served address, with a right checksum.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Segment<'a> {
    /// The addresses and ports: `local` is the receiver, `peer` the sender.
    pub(crate) endpoints: Endpoints,
    pub(crate) header: tcp::Header,
    pub(crate) payload: &'a [u8],
    /// The ECN field, in which a router may have marked congestion.
    pub(crate) ecn: Ecn,
    /// The station that the segment came from, for [`Neighbours`].
    pub(crate) hop: NextHop,
    /// True if only the stack owns the address. Otherwise the kernel owns it, with all ports that the stack does
    /// not serve.
    pub(crate) is_ours: bool,
}

/// The reason why a datagram was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unsent {
    /// The interface has no room.
    Full,
    /// The datagram is longer than a frame, and the stack does not fragment.
    TooLong,
    /// No datagram came from the peer lately, so its next hop is unknown.
    NoRoute,
}

/// The reason why a frame was dropped.
enum Refused {
    Malformed(Malformed),
    NotOurs,
    TooMany,
}

/// The maximum number of peers with a known next hop for datagrams. As a rule the application replies at once. A
/// peer that was replaced in between has to ask again.
const DATAGRAM_PEERS_MAX: usize = 4096;

impl Layer {
    pub(crate) fn new(config: &Config, secret: siphash::Key, now: Time) -> Self {
        let key = secret.keyed(b"layer");
        let limit =
            |purpose| Limit::new(config.replies_per_second_max, secret.derive(purpose), now);
        let datagram_peers = if config.udp_ports.is_empty() { 1 } else { DATAGRAM_PEERS_MAX };
        Self {
            mac: Mac(config.mac),
            addresses: config.addresses.clone(),
            udp_ports: config.udp_ports.clone(),
            flow_key: key,
            neighbours: Neighbours::new(),
            gateways: Gateways::new(config),
            datagram_hops: Cache::new(datagram_peers, key),
            limits: [b'a', b'e', b'u', b'p'].map(limit),
        }
    }

    /// The emitter, by which frames leave.
    #[inline]
    pub(crate) fn emitter<'a, T: Transmit>(
        &'a self,
        counters: &'a mut Counters,
        out: &'a mut T,
    ) -> Emitter<'a, T> {
        Emitter {
            mac: self.mac,
            neighbours: &self.neighbours,
            flow_key: self.flow_key,
            counters,
            out,
        }
    }

    /// Updates the routers: handles their replies since the last call, and sends due requests.
    #[inline]
    pub(crate) fn tend_gateways<T: Transmit>(
        &mut self,
        now: Time,
        counters: &mut Counters,
        out: &mut T,
    ) {
        while let Some((old, new)) = self.gateways.moved() {
            if let Some(old) = old {
                self.neighbours.replace(old, new);
            }
        }
        let (mac, flow_key, neighbours) = (self.mac, self.flow_key, &self.neighbours);
        self.gateways.ask(now, &mut Emitter { mac, neighbours, flow_key, counters, out });
    }

    /// Handles a frame. Drops are counted by reason.
    #[inline]
    pub(crate) fn handle_frame<'a, T: Transmit>(
        &mut self,
        now: Time,
        frame: &'a [u8],
        checksum: ReceivedChecksum,
        counters: &mut Counters,
        out: &mut T,
    ) -> Received<'a> {
        counters.frames_received += 1;
        match self.step(now, frame, checksum, counters, out) {
            Ok(received) => received,
            Err(refused) => {
                let drops = &mut counters.drops;
                *match refused {
                    Refused::Malformed(Malformed::Header) => &mut drops.malformed,
                    Refused::Malformed(Malformed::Checksum) => &mut drops.checksum,
                    Refused::Malformed(Malformed::Fragment) => &mut drops.fragment,
                    Refused::Malformed(Malformed::Extension) => &mut drops.extension,
                    Refused::NotOurs => &mut drops.not_ours,
                    Refused::TooMany => &mut drops.requests,
                } += 1;
                Received::Nothing
            }
        }
    }

    #[inline]
    fn step<'a, T: Transmit>(
        &mut self,
        now: Time,
        frame: &'a [u8],
        checksum: ReceivedChecksum,
        counters: &mut Counters,
        out: &mut T,
    ) -> Result<Received<'a>, Refused> {
        let (link, bytes) = ethernet::Header::parse(frame)?;
        let hop = NextHop::of(&link);
        let is_to_us = link.destination == self.mac;
        if !is_to_us && !link.destination.is_multicast() || link.source.is_multicast() {
            return Err(Refused::NotOurs);
        }
        if link.ethertype == EtherType::ARP {
            let (message, _) = arp::Header::parse(bytes)?;
            let is_gateway = self.gateways.hear(message.sender.into(), message.sender_mac, hop);
            if is_gateway && message.operation == arp::Operation::Reply {
                return Ok(Received::Nothing);
            }
            return self.answer_arp(now, &message, hop, counters, out);
        }
        let packet = match Packet::parse(link.ethertype, bytes) {
            Err(why @ Malformed::Extension) => {
                return self.answer_problem(why.into(), now, bytes, hop, is_to_us, counters, out);
            }
            packet => packet?.ok_or(Refused::NotOurs)?,
        };
        if packet.protocol == Protocol::ICMPV6 && ndp::Header::is_one(packet.payload) {
            return self.handle_discovery(now, &packet, hop, counters, out);
        }
        // RFC 1122, 4.2.3.10: a segment to all stations is dropped; so are all other packets to all stations.
        let address = self.address(packet.destination).filter(|_| is_to_us);
        let &Address { is_ours, .. } = address.ok_or(Refused::NotOurs)?;
        if !packet.has_valid_source() {
            return Err(Malformed::Header.into());
        }
        let hop = self.gateways.hop_to(packet.source, hop);
        match (packet.protocol, packet.source.is_ipv4()) {
            (Protocol::TCP, _) => read_segment(&packet, checksum, hop, is_ours),
            (Protocol::UDP, _) => {
                let (header, payload) = udp::Header::parse(packet.payload)?;
                let is_served = self.udp_ports.contains(&header.destination);
                if !is_served && !is_ours {
                    return Err(Refused::NotOurs);
                }
                check_datagram(&packet, &header, payload, checksum)?;
                if !is_served {
                    return self.refuse_datagram(
                        now,
                        &packet,
                        report::quoted(bytes),
                        hop,
                        counters,
                        out,
                    );
                }
                self.datagram_hops.set(packet.source, hop);
                Ok(Received::Datagram {
                    local: SocketAddr::new(packet.destination, header.destination),
                    peer: SocketAddr::new(packet.source, header.source),
                    payload,
                })
            }
            (Protocol::ICMP, true) | (Protocol::ICMPV6, false) => {
                self.handle_icmp(now, &packet, hop, is_ours, counters, out)
            }
            (_, true) => Err(Refused::NotOurs),
            (_, false) => {
                self.answer_problem(Refused::NotOurs, now, bytes, hop, is_to_us, counters, out)
            }
        }
    }

    /// The served address `ip`. The search is linear, because there are few addresses.
    #[inline]
    fn address(&self, ip: IpAddr) -> Option<&Address> {
        self.addresses.iter().find(|address| address.ip == ip)
    }

    /// True if the stack serves the address, and only the stack owns it.
    fn is_ours(&self, ip: IpAddr) -> bool {
        self.address(ip).is_some_and(|address| address.is_ours)
    }

    fn answer_arp<T: Transmit>(
        &mut self,
        now: Time,
        message: &arp::Header,
        hop: NextHop,
        counters: &mut Counters,
        out: &mut T,
    ) -> Result<Received<'static>, Refused> {
        if message.operation != arp::Operation::Request || !self.is_ours(message.target.into()) {
            return Err(Refused::NotOurs);
        }
        self.admit(ReplyKind::Resolution, now)?;
        let reply = arp::Header {
            operation: arp::Operation::Reply,
            sender_mac: self.mac,
            sender: message.target,
            target_mac: message.sender_mac,
            target: message.sender,
        };
        let sent = self.emitter(counters, out).arp(hop, &reply);
        Ok(answered(sent, counters))
    }

    /// Answers a solicitation (RFC 4861, 7.2.3 and 7.2.4), or handles a router's reply.
    fn handle_discovery<T: Transmit>(
        &mut self,
        now: Time,
        packet: &Packet<'_>,
        hop: NextHop,
        counters: &mut Counters,
        out: &mut T,
    ) -> Result<Received<'static>, Refused> {
        check_icmp(packet)?;
        let (message, _) = ndp::Header::parse(packet.payload)?;
        // A router does not forward such messages.
        if packet.hop_limit != ndp::Header::HOP_LIMIT || packet.source.is_multicast() {
            return Err(Malformed::Header.into());
        }
        let target = match message {
            ndp::Header::Solicitation { target, .. } => target,
            ndp::Header::Advertisement { target, target_mac, .. } => {
                let mac = target_mac.ok_or(Refused::NotOurs)?;
                let is_gateway = self.gateways.hear(target.into(), mac, hop);
                return is_gateway.then_some(Received::Nothing).ok_or(Refused::NotOurs);
            }
        };
        if !self.is_ours(target.into()) {
            return Err(Refused::NotOurs);
        }
        self.admit(ReplyKind::Resolution, now)?;
        // A station that still checks its own address sends from the unspecified address. Then the reply goes to
        // all stations.
        let is_solicited = !packet.source.is_unspecified();
        let (destination, hop) = if is_solicited {
            (packet.source, hop)
        } else {
            (ALL_NODES.into(), hop.to(ALL_NODES_MAC))
        };
        let advertisement = ndp::Header::Advertisement {
            target,
            target_mac: Some(self.mac),
            is_solicited,
            overrides: true,
            is_router: false,
        };
        let mut head = [0; ndp::Header::LEN_MAX];
        let len = advertisement.emit(&mut head);
        let sent = self.emitter(counters, out).icmp(
            target.into(),
            destination,
            hop,
            Some(ndp::Header::HOP_LIMIT),
            &head[..len],
            &[],
        );
        Ok(answered(sent, counters))
    }

    fn handle_icmp<T: Transmit>(
        &mut self,
        now: Time,
        packet: &Packet<'_>,
        hop: NextHop,
        is_ours: bool,
        counters: &mut Counters,
        out: &mut T,
    ) -> Result<Received<'static>, Refused> {
        check_icmp(packet)?;
        let mut head = [0; 8];
        let echoed = if packet.source.is_ipv4() {
            match icmpv4::Header::parse(packet.payload)? {
                (icmpv4::Header::EchoRequest(numbers), data) => {
                    icmpv4::Header::EchoReply(numbers).emit(&mut head);
                    data
                }
                (header, quoted) => return about_segment(report::of_v4(header, quoted, packet)?),
            }
        } else {
            match icmpv6::Header::parse(packet.payload)? {
                (icmpv6::Header::EchoRequest(numbers), data) => {
                    icmpv6::Header::EchoReply(numbers).emit(&mut head);
                    data
                }
                (header, quoted) => return about_segment(report::of_v6(header, quoted, packet)?),
            }
        };
        if !is_ours {
            return Err(Refused::NotOurs);
        }
        let parts: &[&[u8]] = if echoed.is_empty() { &[] } else { &[echoed] };
        self.reply(ReplyKind::Echo, now, packet, hop, &head, parts, counters, out)
    }

    /// Counts a reply, or refuses it because of the limit of its kind.
    fn admit(&mut self, answer: ReplyKind, now: Time) -> Result<(), Refused> {
        self.limits[answer as usize].allows(now).then_some(()).ok_or(Refused::TooMany)
    }

    /// Replies to a packet by ICMP, within the limit of the reply's kind.
    fn reply<T: Transmit>(
        &mut self,
        answer: ReplyKind,
        now: Time,
        packet: &Packet<'_>,
        hop: NextHop,
        head: &[u8],
        parts: &[&[u8]],
        counters: &mut Counters,
        out: &mut T,
    ) -> Result<Received<'static>, Refused> {
        self.admit(answer, now)?;
        let (own, peer) = (packet.destination, packet.source);
        let sent = self.emitter(counters, out).icmp(own, peer, hop, None, head, parts);
        Ok(answered(sent, counters))
    }

    /// Reports to the sender of an IPv6 packet why the packet is not processed (RFC 8200, 4; RFC 4443, 2.4 and 3.4).
    /// The stack reports only for its own addresses; the kernel replies for the kernel's.
    #[cold]
    fn answer_problem<T: Transmit>(
        &mut self,
        why: Refused,
        now: Time,
        bytes: &[u8],
        hop: NextHop,
        is_to_us: bool,
        counters: &mut Counters,
        out: &mut T,
    ) -> Result<Received<'static>, Refused> {
        let knows = |one| matches!(one, Protocol::TCP | Protocol::UDP | Protocol::ICMPV6);
        let Some(problem) = ipv6::Header::problem(bytes, knows) else { return Err(why) };
        let (peer, for_groups) = (problem.source.into(), problem.is_for_groups);
        let own = self.addresses.iter().find(|address| {
            let is_in_group = |ip| for_groups && is_in_group(ip, problem.destination);
            address.is_ours && (address.ip == problem.destination || is_in_group(address.ip))
        });
        let own = own.filter(|own| (is_to_us || for_groups) && can_be_sender(peer, own.ip));
        let Some(&Address { ip: own, .. }) = own else { return Err(why) };
        self.admit(ReplyKind::Problem, now)?;
        let hop = self.gateways.hop_to(peer, hop);
        let mut head = [0; icmpv6::Header::LEN];
        problem.message.emit(&mut head);
        let quoted = report::quoted(problem.packet);
        let sent = self.emitter(counters, out).icmp(own, peer, hop, None, &head, &[quoted]);
        Ok(answered(sent, counters))
    }

    /// Reports by ICMP that a port is not served (RFC 1122, 4.1.3.1; RFC 4443, 3.1).
    fn refuse_datagram<T: Transmit>(
        &mut self,
        now: Time,
        packet: &Packet<'_>,
        quoted: &[u8],
        hop: NextHop,
        counters: &mut Counters,
        out: &mut T,
    ) -> Result<Received<'static>, Refused> {
        let mut head = [0; 8];
        if packet.source.is_ipv4() {
            icmpv4::Header::Unreachable { code: icmpv4::PORT }.emit(&mut head);
        } else {
            icmpv6::Header::Unreachable { code: icmpv6::PORT }.emit(&mut head);
        }
        self.reply(ReplyKind::Unreachable, now, packet, hop, &head, &[quoted], counters, out)
    }

    /// Sends a datagram to a peer that has sent one lately. The stack does not retransmit.
    ///
    /// # Errors
    ///
    /// If the datagram could not be sent.
    pub(crate) fn send_datagram<T: Transmit>(
        &self,
        local: SocketAddr,
        peer: SocketAddr,
        parts: &[&[u8]],
        counters: &mut Counters,
        out: &mut T,
    ) -> Result<(), Unsent> {
        let ip_header = if peer.is_ipv4() { ipv4::Header::LEN } else { ipv6::Header::LEN };
        let payload: usize = parts.iter().map(|part| part.len()).sum();
        if ip_header + udp::Header::LEN + payload > usize::from(out.limits().mtu) {
            return Err(Unsent::TooLong);
        }
        let hop = self.datagram_hops.get(peer.ip()).ok_or(Unsent::NoRoute)?;
        self.emitter(counters, out).udp(local, peer, hop, parts).map_err(|Full| Unsent::Full)
    }
}

/// The address of all stations of a link (RFC 4291, 2.7.1), and its MAC address (RFC 2464, 7).
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
const ALL_NODES_MAC: Mac = Mac([0x33, 0x33, 0, 0, 0, 1]);

/// True if a multicast group contains the station with this address. Each station is in the group of all stations
/// and in its solicited-node group (RFC 4291, 2.8).
fn is_in_group(ip: IpAddr, group: Ipv6Addr) -> bool {
    let IpAddr::V6(ip) = ip else { return false };
    let [.., high, low] = ip.segments();
    let solicited = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00 | high & 0xff, low);
    group == ALL_NODES || group == solicited
}

#[inline]
fn read_segment<'a>(
    packet: &Packet<'a>,
    checksum: ReceivedChecksum,
    hop: NextHop,
    is_ours: bool,
) -> Result<Received<'a>, Refused> {
    let (header, payload) = tcp::Header::parse(packet.payload)?;
    let field = u16::from_be_bytes([packet.payload[16], packet.payload[17]]);
    if !packet.is_right(packet.payload, field, checksum) {
        return Err(Malformed::Checksum.into());
    }
    Ok(Received::Segment(Segment {
        endpoints: Endpoints {
            local: SocketAddr::new(packet.destination, header.destination),
            peer: SocketAddr::new(packet.source, header.source),
        },
        header,
        payload,
        ecn: packet.ecn,
        hop,
        is_ours,
    }))
}

fn check_datagram(
    packet: &Packet<'_>,
    header: &udp::Header,
    payload: &[u8],
    checksum: ReceivedChecksum,
) -> Result<(), Malformed> {
    // Only an IPv4 datagram may have no checksum (RFC 8200, 8.1).
    let has_none = header.checksum == 0 && packet.source.is_ipv4();
    let datagram = &packet.payload[..udp::Header::LEN + payload.len()];
    if has_none || packet.is_right(datagram, header.checksum, checksum) {
        Ok(())
    } else {
        Err(Malformed::Checksum)
    }
}

/// Checks the checksum of an ICMP message, which interfaces do not complete. Only the checksum of ICMPv6 covers the
/// pseudo header.
fn check_icmp(packet: &Packet<'_>) -> Result<(), Malformed> {
    let mut sum = if packet.source.is_ipv4() {
        Default::default()
    } else {
        packet.pseudo_header(packet.payload.len())
    };
    sum.add(packet.payload);
    if sum.is_right() { Ok(()) } else { Err(Malformed::Checksum) }
}

fn about_segment(report: Option<Report>) -> Result<Received<'static>, Refused> {
    report.map(Received::Report).ok_or(Refused::NotOurs)
}

/// A reply for which the interface has no room is lost; the station asks again.
fn answered(sent: Result<(), Full>, counters: &mut Counters) -> Received<'static> {
    if sent == Err(Full) {
        counters.drops.no_room += 1;
    }
    Received::Nothing
}

impl From<Malformed> for Refused {
    fn from(why: Malformed) -> Self {
        Self::Malformed(why)
    }
}

#[cfg(test)]
mod tests;
