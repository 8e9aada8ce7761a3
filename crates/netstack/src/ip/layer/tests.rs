use std::vec::Vec;

use core::time::Duration;

use proptest::prelude::*;

use super::super::report::What;
use super::*;
use crate::counters::Drops;
use crate::seq::SeqNumber;
use crate::sim;
use crate::transmit::Limits;
use crate::wire::checksum::Sum;
use crate::wire::tcp::{Flags, Options};

const OURS: Mac = Mac([2, 0, 0, 0, 0, 1]);
const PEERS: Mac = Mac([2, 0, 0, 0, 0, 2]);

/// The addresses: ours alone, the kernel's, the peer's.
const V4: [&str; 3] = ["192.0.2.1", "192.0.2.2", "192.0.2.9"];
const V6: [&str; 3] = ["2001:db8::1", "2001:db8::2", "2001:db8::9"];

fn addr(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// A layer with an interface.
struct Host {
    layer: Layer,
    counters: Counters,
    device: sim::Device,
    now: Time,
}

impl Host {
    fn new() -> Self {
        let mut config = Config::new(OURS.0);
        for [ours, kernels, _] in [V4, V6] {
            for (text, is_ours) in [(ours, true), (kernels, false)] {
                config.addresses.push(Address { ip: addr(text), prefix: 24, is_ours });
            }
        }
        config.udp_ports.push(53);
        config.replies_per_second_max = 10;
        let limits = Limits { mtu: 1500, cut_bytes_max: 0, fills_checksums: false };
        Self {
            layer: Layer::new(&config, siphash::Key::new([5; 16]), Time::default()),
            counters: Counters::default(),
            device: sim::Device::new(limits, usize::MAX),
            now: Time::default(),
        }
    }

    fn handle<'a>(&mut self, frame: &'a [u8]) -> Received<'a> {
        self.handle_known(frame, ReceivedChecksum::Unverified)
    }

    fn handle_known<'a>(&mut self, frame: &'a [u8], known: ReceivedChecksum) -> Received<'a> {
        self.layer.handle_frame(self.now, frame, known, &mut self.counters, &mut self.device)
    }

    /// The only answer to a frame.
    fn answer(&mut self, frame: &[u8]) -> Vec<u8> {
        assert_eq!(self.handle(frame), Received::Nothing);
        let [answer] = <[_; 1]>::try_from(self.device.take()).unwrap();
        answer
    }

    /// Sends a frame until too many were answered, and returns the number of answers.
    fn flood(&mut self, frame: &[u8]) -> usize {
        self.counters = Counters::default();
        while self.counters.drops == NONE {
            assert_eq!(self.handle(frame), Received::Nothing);
        }
        assert_eq!(self.counters.drops, REQUESTS);
        self.device.take().len()
    }

    /// Takes a frame that is dropped, and returns what was counted for it.
    fn drops(&mut self, frame: &[u8]) -> Drops {
        self.counters = Counters::default();
        assert_eq!(self.handle(frame), Received::Nothing);
        assert_eq!(self.device.take(), Vec::<Vec<u8>>::new());
        assert_eq!((self.counters.frames_received, self.counters.frames_sent), (1, 0));
        self.counters.drops
    }
}

const NOT_OURS: Drops = Drops { not_ours: 1, ..NONE };
const MALFORMED: Drops = Drops { malformed: 1, ..NONE };
const CHECKSUM: Drops = Drops { checksum: 1, ..NONE };
const REQUESTS: Drops = Drops { requests: 1, ..NONE };
const NONE: Drops = Drops {
    malformed: 0,
    checksum: 0,
    fragment: 0,
    extension: 0,
    requests: 0,
    not_ours: 0,
    no_connection: 0,
    no_room: 0,
};

/// A frame from the peer to us.
fn framed(destination: Mac, vlan: Option<u16>, ethertype: EtherType, payload: &[u8]) -> Vec<u8> {
    let header = ethernet::Header { destination, source: PEERS, vlan, ethertype };
    let mut head = [0; ethernet::Header::LEN_MAX];
    let len = header.emit(&mut head);
    [&head[..len], payload].concat()
}

/// A packet in a frame from the peer to us, its payload as it is.
fn packet(source: &str, destination: &str, protocol: Protocol, payload: &[u8]) -> Vec<u8> {
    let len = u16::try_from(payload.len()).unwrap();
    let (ecn, hop_limit) = (Ecn::NotEct, 255);
    let (ethertype, head) = match (addr(source), addr(destination)) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let mut head = [0; ipv4::Header::LEN];
            let header = ipv4::Header { source, destination, protocol, ecn, hop_limit };
            header.emit(len, &mut head);
            (EtherType::IPV4, head.to_vec())
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let mut head = [0; ipv6::Header::LEN];
            let flow_label = 0;
            let header = ipv6::Header { source, destination, protocol, ecn, hop_limit, flow_label };
            header.emit(len, &mut head);
            (EtherType::IPV6, head.to_vec())
        }
        _ => unreachable!(),
    };
    framed(OURS, None, ethertype, &[&head, payload].concat())
}

/// The same with the checksum at `offset` filled in.
fn summed(
    source: &str,
    destination: &str,
    protocol: Protocol,
    offset: usize,
    payload: &[u8],
) -> Vec<u8> {
    let mut payload = payload.to_vec();
    payload[offset..offset + 2].fill(0);
    let mut sum = Sum::default();
    if protocol != Protocol::ICMP {
        let bytes = u32::try_from(payload.len()).unwrap();
        sum = Sum::pseudo_header(addr(source), addr(destination), protocol, bytes);
    }
    sum.add(&payload);
    payload[offset..offset + 2].copy_from_slice(&sum.checksum().to_be_bytes());
    packet(source, destination, protocol, &payload)
}

fn icmp(source: &str, destination: &str, message: &[u8]) -> Vec<u8> {
    let protocol = if addr(source).is_ipv4() { Protocol::ICMP } else { Protocol::ICMPV6 };
    summed(source, destination, protocol, 2, message)
}

fn datagram(source: &str, destination: &str, port: u16, payload: &[u8]) -> Vec<u8> {
    let mut head = [0; udp::Header::LEN];
    let header = udp::Header { source: 4000, destination: port, checksum: 0 };
    header.emit(u16::try_from(payload.len()).unwrap(), &mut head);
    summed(source, destination, Protocol::UDP, 6, &[&head, payload].concat())
}

fn header() -> tcp::Header {
    tcp::Header {
        source: 4000,
        destination: 80,
        seq: SeqNumber(7),
        ack: None,
        flags: Flags { syn: true, ..Flags::NONE },
        window: 100,
        options: Options::default(),
    }
}

fn segment(source: &str, destination: &str) -> Vec<u8> {
    let mut head = [0; tcp::Header::LEN_MAX];
    let len = header().emit(&mut head);
    summed(source, destination, Protocol::TCP, 16, &[&head[..len], b"data"].concat())
}

/// The packet in an answer to the peer, whose checksums the device has checked.
fn read(frame: &[u8]) -> (ethernet::Header, Packet<'_>) {
    let (link, bytes) = ethernet::Header::parse(frame).unwrap();
    assert_eq!(link.source, OURS);
    (link, Packet::parse(link.ethertype, bytes).unwrap().unwrap())
}

mod links {
    use super::*;

    #[test]
    fn frames_for_other_stations_are_dropped() {
        let mut host = Host::new();
        let frame = segment(V4[2], V4[0]);
        for mac in [PEERS, Mac::BROADCAST, Mac([0x33, 0x33, 0, 0, 0, 1])] {
            let mut other = frame.clone();
            other[..6].copy_from_slice(&mac.0);
            assert_eq!(host.drops(&other), NOT_OURS, "{mac}");
        }
        let mut from_a_group = frame.clone();
        from_a_group[6..12].copy_from_slice(&Mac::BROADCAST.0);
        assert_eq!(host.drops(&from_a_group), NOT_OURS);
        assert!(matches!(host.handle(&frame), Received::Segment(_)));
    }

    #[test]
    fn other_protocols_and_second_tags_are_dropped() {
        let mut host = Host::new();
        let double = [0, 9, 0x08, 0x00];
        assert_eq!(host.drops(&framed(OURS, Some(5), EtherType::VLAN, &double)), NOT_OURS);
        assert_eq!(host.drops(&framed(OURS, None, EtherType(0x88cc), &[0; 40])), NOT_OURS);
        assert_eq!(host.drops(&packet(V4[2], V4[0], Protocol(47), &[0; 40])), NOT_OURS);
        assert_eq!(host.drops(&packet(V4[2], V4[0], Protocol::ICMPV6, &[0; 40])), NOT_OURS);
        assert_eq!(host.drops(&packet(V6[2], V6[1], Protocol::ICMP, &[0; 40])), NOT_OURS);
        assert_eq!(host.drops(&[2; 13]), MALFORMED);
    }
}

mod resolution {
    use super::*;

    pub(super) fn request(target: &str, vlan: Option<u16>) -> Vec<u8> {
        let (IpAddr::V4(sender), IpAddr::V4(target)) = (addr(V4[2]), addr(target)) else {
            unreachable!()
        };
        let message = arp::Header {
            operation: arp::Operation::Request,
            sender_mac: PEERS,
            sender,
            target_mac: Mac([0; 6]),
            target,
        };
        let mut bytes = [0; arp::Header::LEN];
        message.emit(&mut bytes);
        framed(Mac::BROADCAST, vlan, EtherType::ARP, &bytes)
    }

    #[test]
    fn rfc826_only_an_address_that_is_ours_is_answered() {
        let mut host = Host::new();
        for vlan in [None, Some(12)] {
            let answer = host.answer(&request(V4[0], vlan));
            let (link, bytes) = ethernet::Header::parse(&answer).unwrap();
            assert_eq!((link.destination, link.source, link.vlan), (PEERS, OURS, vlan));
            let (message, _) = arp::Header::parse(bytes).unwrap();
            assert_eq!(message.operation, arp::Operation::Reply);
            assert_eq!((message.sender_mac, IpAddr::from(message.sender)), (OURS, addr(V4[0])));
            assert_eq!((message.target_mac, IpAddr::from(message.target)), (PEERS, addr(V4[2])));
            // A reply is no question.
            assert_eq!(host.drops(&framed(OURS, vlan, EtherType::ARP, bytes)), NOT_OURS);
        }
        assert_eq!(host.drops(&request(V4[1], None)), NOT_OURS);
        assert_eq!(host.drops(&request("192.0.2.77", None)), NOT_OURS);
    }

    pub(super) fn solicitation(source: &str, target: &str) -> Vec<u8> {
        let IpAddr::V6(target) = addr(target) else { unreachable!() };
        let mut bytes = [0; ndp::Header::LEN_MAX];
        let len = ndp::Header::Solicitation { target, source_mac: None }.emit(&mut bytes);
        let mut frame = icmp(source, "ff02::1:ff00:1", &bytes[..len]);
        frame[..6].copy_from_slice(&[0x33, 0x33, 0xff, 0, 0, 1]);
        frame
    }

    #[test]
    fn rfc4861_7_2_4_only_an_address_that_is_ours_is_advertised() {
        let mut host = Host::new();
        let answer = host.answer(&solicitation(V6[2], V6[0]));
        let (link, packet) = read(&answer);
        assert_eq!(link.destination, PEERS);
        assert_eq!((packet.source, packet.destination), (addr(V6[0]), addr(V6[2])));
        assert_eq!(packet.hop_limit, 255);
        let (message, _) = ndp::Header::parse(packet.payload).unwrap();
        let IpAddr::V6(target) = addr(V6[0]) else { unreachable!() };
        let expected = ndp::Header::Advertisement {
            target,
            target_mac: Some(OURS),
            is_solicited: true,
            overrides: true,
            is_router: false,
        };
        assert_eq!(message, expected);
        assert_eq!(host.drops(&solicitation(V6[2], V6[1])), NOT_OURS);
        assert_eq!(host.drops(&icmp(V6[2], V6[0], packet.payload)), NOT_OURS);
    }

    #[test]
    fn rfc4861_7_2_4_a_station_without_an_address_is_answered_to_all() {
        let answer = Host::new().answer(&solicitation("::", V6[0]));
        let (link, packet) = read(&answer);
        assert_eq!(link.destination, Mac([0x33, 0x33, 0, 0, 0, 1]));
        assert_eq!(packet.destination, addr("ff02::1"));
        let (message, _) = ndp::Header::parse(packet.payload).unwrap();
        assert!(matches!(message, ndp::Header::Advertisement { is_solicited: false, .. }));
    }

    #[test]
    fn rfc4861_7_1_1_a_forwarded_or_damaged_solicitation_is_dropped() {
        let mut host = Host::new();
        let good = solicitation(V6[2], V6[0]);
        let mut forwarded = good.clone();
        forwarded[14 + 7] = 254;
        assert_eq!(host.drops(&forwarded), MALFORMED);
        let mut damaged = good;
        damaged[14 + 40 + 20] ^= 1;
        assert_eq!(host.drops(&damaged), CHECKSUM);
    }
}

mod echo {
    use super::*;

    #[test]
    fn an_address_that_is_ours_answers_with_the_same_data() {
        let mut host = Host::new();
        for (versions, kind, reply) in [(V4, 8, 0), (V6, 128, 129)] {
            for data in [&b""[..], b"data that comes back"] {
                let message = [&[kind, 0, 0, 0, 1, 2, 3, 4], data].concat();
                let answer = host.answer(&icmp(versions[2], versions[0], &message));
                let (link, packet) = read(&answer);
                assert_eq!((link.destination, packet.hop_limit), (PEERS, 64));
                assert_eq!(packet.source, addr(versions[0]));
                assert_eq!(packet.destination, addr(versions[2]));
                assert_eq!(check_icmp(&packet), Ok(()));
                assert_eq!(packet.payload[..2], [reply, 0]);
                assert_eq!(packet.payload[4..], message[4..]);
            }
            let message = [kind, 0, 0, 0, 1, 2, 3, 4];
            assert_eq!(host.drops(&icmp(versions[2], versions[1], &message)), NOT_OURS);
            let mut damaged = icmp(versions[2], versions[0], &message);
            *damaged.last_mut().unwrap() ^= 1;
            assert_eq!(host.drops(&damaged), CHECKSUM);
        }
    }

    #[test]
    fn an_echo_to_all_stations_is_not_answered() {
        let mut host = Host::new();
        let message = [8, 0, 0, 0, 1, 2, 3, 4];
        assert_eq!(host.drops(&icmp(V4[2], "192.0.2.255", &message)), NOT_OURS);
        assert_eq!(host.drops(&icmp("255.255.255.255", V4[0], &message)), MALFORMED);
    }
}

mod transports {
    use super::*;

    #[test]
    fn segments_for_addresses_that_are_served_are_handed_up() {
        let mut host = Host::new();
        for versions in [V4, V6] {
            for (local, is_ours) in [(versions[0], true), (versions[1], false)] {
                let frame = segment(versions[2], local);
                let Received::Segment(segment) = host.handle(&frame) else { panic!("{local}") };
                assert_eq!((segment.header, segment.payload), (header(), &b"data"[..]));
                assert_eq!(segment.endpoints.local, SocketAddr::new(addr(local), 80));
                assert_eq!(segment.endpoints.peer, SocketAddr::new(addr(versions[2]), 4000));
                assert_eq!((segment.hop, segment.is_ours), (NextHop::new(PEERS, None), is_ours));
            }
        }
        assert_eq!(host.drops(&segment(V4[2], "192.0.2.77")), NOT_OURS);
        assert_eq!(host.drops(&segment(V4[0], V4[0])), MALFORMED);
        assert_eq!(host.counters.frames_received, 1);
    }

    #[test]
    fn a_wrong_checksum_matters_unless_the_interface_has_verified_it() {
        let mut host = Host::new();
        let mut frame = segment(V4[2], V4[0]);
        *frame.last_mut().unwrap() ^= 1;
        assert_eq!(host.drops(&frame), CHECKSUM);
        let verified = host.handle_known(&frame, ReceivedChecksum::Verified);
        assert!(matches!(verified, Received::Segment(_)));
        let partial = host.handle_known(&frame, ReceivedChecksum::MayBePartial);
        assert_eq!(partial, Received::Nothing);
    }

    #[test]
    fn a_datagram_is_answered_by_the_way_it_came() {
        let mut host = Host::new();
        let (local, peer) = (SocketAddr::new(addr(V6[0]), 53), SocketAddr::new(addr(V6[2]), 4000));
        let send = |host: &mut Host, parts: &[&[u8]]| {
            host.layer.send_datagram(local, peer, parts, &mut host.counters, &mut host.device)
        };
        assert_eq!(send(&mut host, &[b"answer"]), Err(Unsent::NoRoute));
        let frame = datagram(V6[2], V6[0], 53, b"question");
        let expected = Received::Datagram { local, peer, payload: b"question" };
        assert_eq!(host.handle(&frame), expected);
        assert_eq!(send(&mut host, &[b"ans", b"wer"]), Ok(()));
        let frames = host.device.take();
        let (link, packet) = read(&frames[0]);
        assert_eq!(link.destination, PEERS);
        let (header, payload) = udp::Header::parse(packet.payload).unwrap();
        assert_eq!((header.source, header.destination, payload), (53, 4000, &b"answer"[..]));
        assert!(packet.is_right(packet.payload, header.checksum, ReceivedChecksum::Unverified));

        let longest = [0; 1500 - 40 - 8 + 1];
        assert_eq!(send(&mut host, &[&longest[1..]]), Ok(()));
        assert_eq!(send(&mut host, &[&longest]), Err(Unsent::TooLong));
        assert_eq!(host.counters.frames_sent, 2);
    }

    #[test]
    fn datagrams_with_wrong_checksums_are_dropped() {
        let mut host = Host::new();
        for versions in [V4, V6] {
            // The second port is not served.
            let [mut frame, other] = [53, 54].map(|port| {
                let mut frame = datagram(versions[2], versions[0], port, b"data");
                *frame.last_mut().unwrap() ^= 1;
                frame
            });
            assert_eq!(host.drops(&other), CHECKSUM);
            assert_eq!(host.drops(&frame), CHECKSUM);
            // No checksum.
            let field = frame.len() - 4 - 2;
            frame[field..field + 2].fill(0);
            if addr(versions[0]).is_ipv4() {
                assert!(matches!(host.handle(&frame), Received::Datagram { .. }));
            } else {
                assert_eq!(host.drops(&frame), CHECKSUM);
            }
        }
    }
}

mod reports {
    use super::*;

    /// A packet of ours as a router quotes it: 8 bytes of the segment.
    fn quoted(source: &str, protocol: Protocol) -> Vec<u8> {
        let segment = [0, 80, 0x0f, 0xa0, 1, 2, 3, 4, 9, 9, 9, 9];
        let peer = if addr(source).is_ipv4() { V4[2] } else { V6[2] };
        let mut frame = packet(source, peer, protocol, &segment);
        frame.truncate(frame.len() - 4);
        frame.split_off(14)
    }

    fn report(frame: &[u8]) -> What {
        let mut host = Host::new();
        let Received::Report(report) = host.handle(frame) else { panic!("{:?}", host.counters) };
        assert_eq!((report.endpoints.local.port(), report.endpoints.peer.port()), (80, 4000));
        assert!([V4[0], V6[0]].map(addr).contains(&report.endpoints.local.ip()));
        assert!([V4[2], V6[2]].map(addr).contains(&report.endpoints.peer.ip()));
        assert_eq!(report.seq, SeqNumber(0x0102_0304));
        report.what
    }

    #[test]
    fn a_report_names_the_connection_and_the_segment() {
        let (v4, v6) = (quoted(V4[0], Protocol::TCP), quoted(V6[0], Protocol::TCP));
        let router4 =
            |head: [u8; 8], quoted: &[u8]| icmp("203.0.113.1", V4[0], &[&head, quoted].concat());
        let router6 =
            |head: [u8; 8], quoted: &[u8]| icmp("2001:db8:1::1", V6[0], &[&head, quoted].concat());
        let too_big = |mtu| What::TooBig { mtu };
        assert_eq!(report(&router4([3, 4, 0, 0, 0, 0, 5, 0x78], &v4)), too_big(1400));
        assert_eq!(report(&router6([2, 0, 0, 0, 0, 0, 5, 0x78], &v6)), too_big(1400));
        assert_eq!(report(&router4([3, 1, 0, 0, 0, 0, 0, 0], &v4)), What::Unreachable);
        assert_eq!(report(&router6([1, 3, 0, 0, 0, 0, 0, 0], &v6)), What::Unreachable);

        let mut host = Host::new();
        // Smaller than any link of IPv6.
        assert_eq!(host.drops(&router6([2, 0, 0, 0, 0, 0, 4, 0xff], &v6)), MALFORMED);
        // Of another protocol, of another host, and a kind that says nothing of segments.
        let udp = quoted(V4[0], Protocol::UDP);
        assert_eq!(host.drops(&router4([3, 1, 0, 0, 0, 0, 0, 0], &udp)), NOT_OURS);
        let others = quoted(V4[1], Protocol::TCP);
        assert_eq!(host.drops(&router4([3, 1, 0, 0, 0, 0, 0, 0], &others)), NOT_OURS);
        assert_eq!(host.drops(&router4([11, 0, 0, 0, 0, 0, 0, 0], &v4)), NOT_OURS);
        // Less than 8 bytes of the segment.
        assert_eq!(host.drops(&router4([3, 1, 0, 0, 0, 0, 0, 0], &v4[..27])), MALFORMED);
        assert_eq!(host.drops(&router4([3, 4, 0, 0, 0, 0, 0, 0], &[])), MALFORMED);
    }
}

proptest! {
    /// Frames that differ from good ones in some bytes do not panic, and each is counted once.
    #[test]
    fn no_frame_panics(
        which in 0..7_usize, flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        cut in any::<prop::sample::Index>(), known in 0..2_u8,
    ) {
        let mut frame = match which {
            0 => segment(V4[2], V4[0]),
            1 => segment(V6[2], V6[0]),
            2 => datagram(V4[2], V4[0], 53, b"question"),
            3 => icmp(V4[2], V4[0], &[8, 0, 0, 0, 1, 2, 3, 4, 5]),
            4 => icmp("2001:db8:1::1", V6[0], &[&[2, 0, 0, 0, 0, 0, 5, 0x78], &[0x60; 60][..]].concat()),
            5 => packet(V6[2], V6[0], Protocol(60), &[[6, 0, 0x9e, 4, 0, 0, 0, 0], [0; 8]].concat()),
            _ => icmp(V6[2], V6[0], &[&[135, 0, 0, 0, 0, 0, 0, 0], &[1; 40][..]].concat()),
        };
        for (at, byte) in flips {
            let at = at.index(frame.len());
            frame[at] ^= byte;
        }
        frame.truncate(cut.index(frame.len() + 1));
        let known = [ReceivedChecksum::Unverified, ReceivedChecksum::Verified][usize::from(known)];
        let mut host = Host::new();
        let up = u64::from(host.handle_known(&frame, known) != Received::Nothing);
        let Drops { malformed, checksum, fragment, extension, requests, not_ours, .. } = host.counters.drops;
        let drops = malformed + checksum + fragment + extension + requests + not_ours;
        prop_assert_eq!(up + drops + host.counters.frames_sent, 1);
    }
}

mod limits {
    use super::resolution::{request, solicitation};
    use super::*;

    /// The kinds of answers, with a frame that asks for one.
    fn questions() -> [(&'static str, Vec<u8>); 4] {
        [
            ("resolution", request(V4[0], None)),
            ("echo", icmp(V4[2], V4[0], &[8, 0, 0, 0, 1, 2, 3, 4])),
            ("unreachable", datagram(V6[2], V6[0], 54, b"question")),
            ("problem", packet(V6[2], V6[0], Protocol(132), &[0; 20])),
        ]
    }

    #[test]
    fn rfc4443_2_4_f_a_flood_of_one_kind_leaves_the_answers_of_others_alive() {
        for (flood, frame) in questions() {
            let mut host = Host::new();
            let answers = host.flood(&frame);
            assert!((5..20).contains(&answers), "{flood}: {answers} answers, and the limit is 10");
            for (kind, question) in questions() {
                if kind == flood {
                    continue;
                }
                host.answer(&question);
            }
            assert!(host.flood(&frame) == 0, "{flood}");
            host.now = host.now + Duration::from_millis(100);
            host.answer(&frame);
        }
    }

    #[test]
    fn both_versions_and_both_protocols_share_the_limit_of_their_kind() {
        for (first, second) in [
            (request(V4[0], None), solicitation(V6[2], V6[0])),
            (
                icmp(V4[2], V4[0], &[8, 0, 0, 0, 1, 2, 3, 4]),
                icmp(V6[2], V6[0], &[128, 0, 0, 0, 1, 2, 3, 4]),
            ),
            (datagram(V4[2], V4[0], 54, b"question"), datagram(V6[2], V6[0], 54, b"question")),
        ] {
            let mut host = Host::new();
            host.flood(&first);
            assert_eq!(host.drops(&second), REQUESTS);
        }
    }
}
