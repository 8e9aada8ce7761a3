//! The words of a script for frames other than TCP segments: `in` sends a frame, `out` expects one.
//!
//! ```text
//! arp request 10.0.0.1            also: reply; from A
//! nd solicit fd00::1              to its group of stations; also: from A, hops N
//! echo 5                          5 bytes of data
//! datagram 53 20                  to the port, 20 bytes; also: length N, no-checksum, padded
//! protocol 132 20                 20 bytes of this protocol
//! error 20                        ICMP of IPv6 says that an address is unreachable, and quotes 20 bytes
//! problem 1 6 60                  (only out) a parameter problem: code, pointer, and how many bytes it quotes
//! ```
//!
//! All but ARP are packets: `to A` and `from A` change the addresses, `hops N` the hop limit, `bad-checksum` flips a bit
//! of the payload and `bad-header` one of the header; `options`, `hop-by-hop`, `destination-options`, `routing`,
//! `routed`, `late-hop-by-hop` and `fragment` put an extension in front of the payload; `option N` sets its option.
//! `broadcast` sends to all stations of the link.

use core::net::{IpAddr, Ipv6Addr};
use core::str::FromStr;

use netstack::sim::mac;

const ARP: [u8; 2] = [0x08, 0x06];
const UDP: u8 = 17;
const ICMP: u8 = 1;
const ICMPV6: u8 = 58;
const PAD_N: u8 = 1;
/// The port of the peer's datagrams.
const PORT: u16 = 4000;

/// The words of a line, in turn.
struct Words<'a>(core::str::SplitWhitespace<'a>);

impl Words<'_> {
    fn value<T: FromStr>(&mut self) -> Result<T, String> {
        let word = self.0.next().ok_or("a value is missing")?;
        word.parse().map_err(|_| format!("{word:?} is no value"))
    }
}

/// How a packet differs from the plain one.
struct Differences {
    source: IpAddr,
    destination: IpAddr,
    hops: u8,
    length: Option<u16>,
    /// The option in extension headers.
    option: u8,
    others: Vec<String>,
}

impl Differences {
    fn has(&self, word: &str) -> bool {
        self.others.iter().any(|other| other == word)
    }
}

/// The frame of a line, from the peer to the stack.
pub(crate) fn build(line: &str, local: IpAddr, remote: IpAddr) -> Result<Vec<u8>, String> {
    let mut words = Words(line.split_whitespace());
    let kind: String = words.value()?;
    let mut first = [0_u64; 2];
    let mut target = None;
    let mut verb = String::new();
    match kind.as_str() {
        "arp" | "nd" => {
            verb = words.value()?;
            target = Some(words.value::<IpAddr>()?);
        }
        "echo" | "error" => first[1] = words.value()?,
        "datagram" | "protocol" => first = [words.value()?, words.value()?],
        other => return Err(format!("{other:?} is no frame")),
    }
    let mut how = Differences {
        source: remote,
        destination: local,
        hops: 64,
        length: None,
        option: PAD_N,
        others: Vec::new(),
    };
    if let ("nd", Some(IpAddr::V6(target))) = (kind.as_str(), target) {
        let [.., a, b, c] = target.octets();
        let group = [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, a, b, c];
        how = Differences { destination: Ipv6Addr::from(group).into(), hops: 255, ..how };
    }
    while let Some(word) = words.0.next() {
        match word {
            "from" => how.source = words.value()?,
            "to" => how.destination = words.value()?,
            "hops" => how.hops = words.value()?,
            "option" => how.option = words.value()?,
            "length" => how.length = Some(words.value()?),
            word => how.others.push(word.to_owned()),
        }
    }
    let port = u16::try_from(first[0]).map_err(|_| "no port")?;
    let bytes = usize::try_from(first[1]).map_err(|_| "too many bytes")?;
    let is_v4 = local.is_ipv4();
    let mut frame = match (kind.as_str(), target) {
        ("arp", Some(IpAddr::V4(target))) => {
            let IpAddr::V4(source) = how.source else {
                return Err("no address of IPv4".to_owned());
            };
            let hardware = if how.has("other-hardware") { 6 } else { 1 };
            let operation = if verb == "reply" { 2 } else { 1 };
            let head = [0, hardware, 8, 0, 6, 4, 0, operation];
            let ends = [&mac(remote)[..], &source.octets(), &[0; 6], &target.octets()].concat();
            framed([0xff; 6], mac(remote), ARP, &[&head[..], &ends].concat())
        }
        ("nd", Some(IpAddr::V6(target))) => {
            let message = [&[135, 0, 0, 0, 0, 0, 0, 0][..], &target.octets()].concat();
            packet(&how, ICMPV6, Some(2), message)
        }
        ("echo", _) => {
            let kind = if is_v4 { 8 } else { 128 };
            let message = [&[kind, 0, 0, 0, 1, 2, 3, 4][..], &data(bytes)].concat();
            packet(&how, if is_v4 { ICMP } else { ICMPV6 }, Some(2), message)
        }
        ("error", _) => {
            let message = [&[1, 3, 0, 0, 0, 0, 0, 0][..], &data(bytes)].concat();
            packet(&how, ICMPV6, Some(2), message)
        }
        ("protocol", _) => {
            let protocol = u8::try_from(port).map_err(|_| "no protocol")?;
            packet(&how, protocol, None, data(bytes))
        }
        ("datagram", _) => {
            let length = how.length.unwrap_or(u16::try_from(8 + bytes).map_err(|_| "too long")?);
            let ports = [PORT.to_be_bytes(), port.to_be_bytes()].concat();
            let head = [&ports[..], &length.to_be_bytes(), &[0, 0]].concat();
            let sum_at = (!how.has("no-checksum")).then_some(6);
            packet(&how, UDP, sum_at, [&head[..], &data(bytes)].concat())
        }
        _ => return Err("an address of the other version of IP".to_owned()),
    };
    if how.has("broadcast") {
        frame[..6].fill(0xff);
    }
    Ok(frame)
}

/// Data of packets.
pub(crate) fn data(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| u8::try_from(at % 251).expect("a byte")).collect()
}

fn framed(destination: [u8; 6], source: [u8; 6], ethertype: [u8; 2], bytes: &[u8]) -> Vec<u8> {
    [&destination[..], &source, &ethertype, bytes].concat()
}

/// A packet, whose checksum is filled in at `sum_at` of the payload.
fn packet(how: &Differences, protocol: u8, sum_at: Option<usize>, mut payload: Vec<u8>) -> Vec<u8> {
    if let Some(at) = sum_at {
        let pseudo = if protocol == ICMP { 0 } else { pseudo_sum(how, protocol, payload.len()) };
        let checksum = !fold(pseudo + sum(&payload));
        payload[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
    }
    if how.has("bad-checksum") {
        *payload.last_mut().expect("a payload") ^= 1;
    }
    let length = |bytes: usize| u16::try_from(bytes).expect("a short packet").to_be_bytes();
    let mut bytes = Vec::new();
    let ethertype = match (how.source, how.destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let options: &[u8] = if how.has("options") { &[1, 1, 1, 0] } else { &[] };
            let words = u8::try_from(5 + options.len() / 4).expect("few");
            bytes.extend([0x40 | words, 0]);
            bytes.extend(length(20 + options.len() + payload.len()));
            // More fragments follow, or none may be made.
            bytes.extend([0, 0, if how.has("fragment") { 0x20 } else { 0x40 }, 0]);
            bytes.extend([how.hops, protocol, 0, 0]);
            bytes.extend(source.octets());
            bytes.extend(destination.octets());
            bytes.extend(options);
            let checksum = !fold(sum(&bytes));
            bytes[10..12].copy_from_slice(&checksum.to_be_bytes());
            [8, 0]
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let (mut next, mut extensions) = (protocol, Vec::new());
            for (word, number, rest) in [
                ("late-hop-by-hop", 0, [0, how.option, 4, 0, 0, 0, 0]),
                ("destination-options", 60, [0, how.option, 4, 0, 0, 0, 0]),
                // Of a type for experiments (RFC 4727, 3.3): no segment is left, or one.
                ("routed", 43, [0, 253, 0, 0, 0, 0, 0]),
                ("routing", 43, [0, 253, 1, 0, 0, 0, 0]),
                // The first of several.
                ("fragment", 44, [0, 0, 1, 0, 0, 0, 7]),
                ("hop-by-hop", 0, [0, how.option, 4, 0, 0, 0, 0]),
            ] {
                if how.has(word) {
                    extensions.splice(0..0, [&[next][..], &rest].concat());
                    next = number;
                }
            }
            bytes.extend([0x60, 0, 0, 0]);
            bytes.extend(length(extensions.len() + payload.len()));
            bytes.extend([next, how.hops]);
            bytes.extend(source.octets());
            bytes.extend(destination.octets());
            bytes.extend(extensions);
            [0x86, 0xdd]
        }
        _ => panic!("two versions of IP"),
    };
    if how.has("bad-header") {
        bytes[8] ^= 1;
    }
    bytes.extend(payload);
    if how.has("padded") {
        bytes.extend([0xee; 10]);
    }
    let station = match how.destination {
        // RFC 2464, 7.
        IpAddr::V6(group) if group.is_multicast() => {
            let [.., a, b, c, d] = group.octets();
            [0x33, 0x33, a, b, c, d]
        }
        other => mac(other),
    };
    framed(station, mac(how.source), ethertype, &bytes)
}

fn pseudo_sum(how: &Differences, protocol: u8, bytes: usize) -> u32 {
    let address = |ip: IpAddr| match ip {
        IpAddr::V4(ip) => sum(&ip.octets()),
        IpAddr::V6(ip) => sum(&ip.octets()),
    };
    let bytes = u32::try_from(bytes).expect("a short packet");
    address(how.source) + address(how.destination) + u32::from(protocol) + bytes
}

/// Adds 16-bit words (RFC 1071).
fn sum(bytes: &[u8]) -> u32 {
    let words = bytes.chunks(2);
    words.map(|word| u32::from(word[0]) << 8 | u32::from(word.get(1).copied().unwrap_or(0))).sum()
}

fn fold(mut sum: u32) -> u16 {
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    u16::try_from(sum).expect("folded")
}

/// A frame of the stack that is no segment, in words; its checksums are checked, and that data is what was sent.
pub(crate) fn describe(frame: &[u8]) -> Result<String, &'static str> {
    let station = match frame.get(..6).ok_or("a frame is cut off")? {
        [0xff, ..] => " to all",
        [0x33, 0x33, ..] => " to a group",
        _ => "",
    };
    let bytes = &frame[14..];
    let what = match [frame[12], frame[13]] {
        ARP => {
            let &[
                ..,
                0,
                operation,
                _,
                _,
                _,
                _,
                _,
                _,
                s0,
                s1,
                s2,
                s3,
                _,
                _,
                _,
                _,
                _,
                _,
                t0,
                t1,
                t2,
                t3,
            ] = bytes
            else {
                return Err("no message of ARP");
            };
            let is_its_own = bytes[8..14] == frame[6..12];
            let operation = match operation {
                1 => "request",
                2 if is_its_own => "reply",
                _ => return Err("an operation of ARP, or a station that did not answer"),
            };
            let [sender, target] = [[s0, s1, s2, s3], [t0, t1, t2, t3]].map(IpAddr::from);
            format!("arp {operation} {sender} for {target}")
        }
        [8, 0] => {
            if fold(sum(&bytes[..20])) != 0xffff {
                return Err("the checksum of a header is wrong");
            }
            let (source, destination) = (&bytes[12..16], &bytes[16..20]);
            let source: [u8; 4] = source.try_into().expect("4 bytes");
            let destination: [u8; 4] = destination.try_into().expect("4 bytes");
            describe_payload(source.into(), destination.into(), bytes[9], bytes[8], &bytes[20..])?
        }
        [0x86, 0xdd] => {
            let source: [u8; 16] = bytes[8..24].try_into().expect("16 bytes");
            let destination: [u8; 16] = bytes[24..40].try_into().expect("16 bytes");
            describe_payload(source.into(), destination.into(), bytes[6], bytes[7], &bytes[40..])?
        }
        _ => return Err("an unknown ethertype"),
    };
    Ok(format!("{what}{station}"))
}

/// The datagram of the peer's that a message of ICMP refuses: its port, and how many bytes of its data are quoted.
fn refused(header_bytes: usize, protocol_at: usize, quoted: &[u8]) -> Result<String, &'static str> {
    let (header, datagram) = quoted.split_at_checked(header_bytes).ok_or("a header is cut off")?;
    match datagram {
        [s0, s1, d0, d1, _, _, _, _, rest @ ..]
            if header[protocol_at] == UDP
                && [*s0, *s1] == PORT.to_be_bytes()
                && rest == data(rest.len()) =>
        {
            Ok(format!("port-unreachable {} {}", u16::from_be_bytes([*d0, *d1]), rest.len()))
        }
        _ => Err("it quotes what was not sent"),
    }
}

fn describe_payload(
    source: IpAddr,
    destination: IpAddr,
    protocol: u8,
    hops: u8,
    payload: &[u8],
) -> Result<String, &'static str> {
    let (length, option, others) = (None, PAD_N, Vec::new());
    let ends = Differences { source, destination, hops, length, option, others };
    let pseudo = if protocol == ICMP { 0 } else { pseudo_sum(&ends, protocol, payload.len()) };
    if fold(pseudo + sum(payload)) != 0xffff {
        return Err("a checksum is wrong");
    }
    let is_data = |bytes: &[u8]| bytes == data(bytes.len());
    match (protocol, payload) {
        (ICMP, [0, 0, _, _, 1, 2, 3, 4, rest @ ..])
        | (ICMPV6, [129, 0, _, _, 1, 2, 3, 4, rest @ ..])
            if is_data(rest) =>
        {
            Ok(format!("echo-reply {}", rest.len()))
        }
        (ICMPV6, [4, code, _, _, p0, p1, p2, p3, quoted @ ..]) if quoted.first() == Some(&0x60) => {
            let pointer = u32::from_be_bytes([*p0, *p1, *p2, *p3]);
            Ok(format!("problem {code} {pointer} {}", quoted.len()))
        }
        (ICMPV6, [136, 0, _, _, flags, _, _, _, target @ ..])
            if target.len() == 24 && target[16..18] == [2, 1] && hops == 255 =>
        {
            let address: [u8; 16] = target[..16].try_into().expect("16 bytes");
            let is_its_own = target[18..] == mac(Ipv6Addr::from(address).into());
            let solicited = if flags & 0x40 != 0 { " solicited" } else { "" };
            let overrides = if flags & 0x20 != 0 { " override" } else { "" };
            is_its_own
                .then(|| format!("nd advertise {}{solicited}{overrides}", Ipv6Addr::from(address)))
                .ok_or("another station")
        }
        (ICMP, [3, 3, _, _, 0, 0, 0, 0, quoted @ ..]) => refused(20, 9, quoted),
        (ICMPV6, [1, 4, _, _, 0, 0, 0, 0, quoted @ ..]) => refused(40, 6, quoted),
        (UDP, [s0, s1, d0, d1, _, _, c0, c1, rest @ ..])
            if [*d0, *d1] == PORT.to_be_bytes() && [*c0, *c1] != [0, 0] && is_data(rest) =>
        {
            Ok(format!("datagram {} {}", u16::from_be_bytes([*s0, *s1]), rest.len()))
        }
        _ => Err("an unknown packet"),
    }
}
