//! A stack, peers of both versions of IP that send whatever they like near what the stack expects, and an application
//! that does whatever it likes. The simulated interface checks each frame, and in the end everything is gone.

#![no_main]

#[path = "plain/datagram.rs"]
mod datagram;

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use core::time::Duration;
use std::collections::BTreeMap;

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use netstack::sim::{
    Datagram, Device, Host, News, Segment, TcpOption, flag, host_unreachable, mac, too_large,
};
use netstack::tcp::Algorithm;
use netstack::{Address, Config, ConnectionId, Keepalive, Limits, Time, Unsent};

/// The setting of a run.
#[derive(Arbitrary, Clone, Copy, Debug)]
struct Setting {
    receive_bytes: u16,
    half_open: u8,
    time_wait: u8,
    connections: u8,
    cuts: bool,
    ecn: bool,
    keeps_alive: bool,
    room: u8,
    congestion: Congestion,
}

#[derive(Arbitrary, Clone, Copy, Debug)]
enum Congestion {
    Bbr,
    Cubic,
    NewReno,
}

impl From<Congestion> for Algorithm {
    fn from(congestion: Congestion) -> Self {
        match congestion {
            Congestion::Bbr => Self::Bbr,
            Congestion::Cubic => Self::Cubic,
            Congestion::NewReno => Self::NewReno,
        }
    }
}

/// A step. A peer has one of four ports, two for each version of IP; numbers are counted from what its connection
/// expects.
#[derive(Arbitrary, Clone, Debug)]
enum Operation {
    Frame(Vec<u8>),
    Segment {
        peer: u8,
        flags: u8,
        seq: i16,
        ack: i16,
        window: u16,
        options: Options,
        bytes: u16,
    },
    TooLarge {
        peer: u8,
        seq: i16,
        mtu: u16,
    },
    Unreachable {
        peer: u8,
        seq: i16,
    },
    Wait(u16),
    WaitLong,
    Send {
        peer: u8,
        bytes: u16,
    },
    Shutdown {
        peer: u8,
    },
    Close {
        peer: u8,
    },
    SetReceiving {
        peer: u8,
        on: bool,
    },
    Connect {
        peer: u8,
    },
    /// A datagram comes, for the port that is served or another one.
    Datagram {
        peer: u8,
        is_served: bool,
        bytes: u16,
    },
    /// The application sends one.
    SendDatagram {
        peer: u8,
        bytes: u16,
    },
}

#[derive(Arbitrary, Clone, Debug)]
struct Options {
    mss: Option<u16>,
    window_scale: Option<u8>,
    sack_permitted: bool,
    sack: Option<Vec<(i16, u16)>>,
    timestamps: Option<(i16, i16)>,
}

/// What is known of the connection with a peer.
#[derive(Clone, Copy, Debug, Default)]
struct Peer {
    id: Option<ConnectionId>,
    local_port: u16,
    /// The number that the stack expects.
    seq: u32,
    /// The number after what the stack has sent.
    ack: u32,
    stamp: u32,
    has_timestamps: bool,
}

struct Run {
    host: Host,
    now: Time,
    peers: BTreeMap<u16, Peer>,
}

/// The addresses of the stack and of its peers. Those of both versions end alike, so that they have one link address.
const V4: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2))];
const V6: [IpAddr; 2] = [
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0x0a00, 1)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0x0a00, 2)),
];
const TCP_PORT: u16 = 80;
const UDP_PORT: u16 = 53;
const MTU: u16 = 1500;

/// The address of the stack that the peer with a port knows, and the peer's.
const fn addresses(port: u16) -> [IpAddr; 2] {
    if port.is_multiple_of(2) { V4 } else { V6 }
}

impl Run {
    fn new(setting: Setting) -> Self {
        let now = Time::from_nanos(1 << 52);
        let config = Config {
            addresses: [V4, V6].map(|[ip, _]| Address { ip, prefix: 24, is_ours: true }).to_vec(),
            tcp_ports: vec![TCP_PORT],
            udp_ports: vec![UDP_PORT],
            receive_bytes_max: u32::from(setting.receive_bytes) + 1,
            half_open_max: setting.half_open.into(),
            time_wait_max: setting.time_wait.into(),
            connections_max: setting.connections.into(),
            ecn: setting.ecn,
            keepalive: setting.keeps_alive.then_some(Keepalive {
                idle: Duration::from_secs(20),
                interval: Duration::from_secs(2),
                probes: 3,
            }),
            congestion: setting.congestion.into(),
            ..Config::new(mac(V4[0]))
        };
        let limits = Limits {
            mtu: MTU,
            cut_bytes_max: if setting.cuts { 65_000 } else { 0 },
            fills_checksums: setting.cuts,
        };
        let device = Device::new(limits, usize::from(setting.room) + 1);
        Self { host: Host::new(config, device, [3; 16], now), now, peers: BTreeMap::new() }
    }

    fn peer(&mut self, number: u8) -> (u16, &mut Peer) {
        let port = 1000 + u16::from(number % 4);
        let peer = Peer { local_port: TCP_PORT, ..Peer::default() };
        (port, self.peers.entry(port).or_insert(peer))
    }

    fn segment(&mut self, number: u8, seq: i16, ack: i16) -> Segment {
        let (port, peer) = self.peer(number);
        let [local, remote] = addresses(port);
        Segment {
            source: SocketAddr::new(remote, port),
            destination: SocketAddr::new(local, peer.local_port),
            ecn: 0,
            seq: peer.seq.wrapping_add_signed(seq.into()),
            ack: peer.ack.wrapping_add_signed(ack.into()),
            flags: 0,
            window: 0,
            options: Vec::new(),
            payload: Vec::new(),
        }
    }

    fn apply(&mut self, operation: Operation) {
        match operation {
            Operation::Frame(bytes) => self.host.handle_frame(self.now, &bytes),
            Operation::Segment { peer, flags, seq, ack, window, options, bytes } => {
                let mut segment = self.segment(peer, seq, ack);
                segment.flags = flags;
                segment.ecn = window.to_be_bytes()[1] & 3;
                segment.window = window;
                segment.payload = vec![7; usize::from(bytes % 3000)];
                segment.options = self.options(peer, options, flags & flag::SYN != 0);
                self.host.handle_frame(self.now, &segment.to_frame());
            }
            Operation::TooLarge { peer, seq, mtu } => {
                let quoted = self.quoted(peer, seq);
                let message = too_large(&quoted, mtu).expect("a packet");
                self.host.handle_frame(self.now, &message);
            }
            Operation::Unreachable { peer, seq } => {
                let quoted = self.quoted(peer, seq);
                let message = host_unreachable(&quoted).expect("a packet");
                self.host.handle_frame(self.now, &message);
            }
            Operation::Wait(milliseconds) => self.wait(Duration::from_millis(milliseconds.into())),
            Operation::WaitLong => self.wait(Duration::from_secs(100)),
            Operation::Connect { peer } => {
                let (port, known) = self.peer(peer);
                if known.id.is_some() {
                    return;
                }
                let local_port = 50_000 + port;
                let [local, remote] = addresses(port);
                let (local, remote) =
                    (SocketAddr::new(local, local_port), SocketAddr::new(remote, port));
                if let Some(id) = self.host.connect(self.now, local, remote) {
                    let (_, known) = self.peer(peer);
                    (known.id, known.local_port) = (Some(id), local_port);
                }
            }
            Operation::Send { peer, bytes } => {
                if let Some(id) = self.peer(peer).1.id {
                    self.host.send(id, vec![8; bytes.into()]);
                }
            }
            Operation::Shutdown { peer } => {
                if let Some(id) = self.peer(peer).1.id {
                    self.host.shutdown(id);
                }
            }
            Operation::Close { peer } => {
                if let Some(id) = self.peer(peer).1.id.take() {
                    self.host.close(self.now, id);
                }
            }
            Operation::SetReceiving { peer, on } => {
                if let Some(id) = self.peer(peer).1.id {
                    self.host.set_receiving(self.now, id, on);
                }
            }
            Operation::Datagram { peer, is_served, bytes } => {
                self.receive_datagram(peer, is_served, vec![6; usize::from(bytes % 3000)]);
            }
            Operation::SendDatagram { peer, bytes } => {
                self.send_datagram(peer, &vec![5; usize::from(bytes % 3000)]);
            }
        }
        self.settle();
    }

    fn datagram_ends(&mut self, number: u8) -> (SocketAddr, SocketAddr) {
        let (port, _) = self.peer(number);
        let [local, remote] = addresses(port);
        (SocketAddr::new(local, UDP_PORT), SocketAddr::new(remote, port))
    }

    /// A datagram is told as it came, if its port is served. Then the way to the peer is known.
    fn receive_datagram(&mut self, number: u8, is_served: bool, bytes: Vec<u8>) {
        let (mut local, peer) = self.datagram_ends(number);
        local.set_port(if is_served { UDP_PORT } else { UDP_PORT + 1 });
        self.host.datagrams();
        self.host.handle_frame(self.now, &datagram::to_frame(peer, local, &bytes));
        let expected = is_served.then_some(Datagram { local, peer, bytes });
        assert_eq!(self.host.datagrams(), Vec::from_iter(expected));
        if is_served {
            assert_eq!(self.host.send_datagram(local, peer, b"answer"), Ok(()));
        }
    }

    /// A datagram leaves as it was given, or not at all.
    fn send_datagram(&mut self, number: u8, bytes: &[u8]) {
        let (local, peer) = self.datagram_ends(number);
        let sent = self.host.send_datagram(local, peer, bytes);
        let header_bytes = if peer.is_ipv4() { 20 + 8 } else { 40 + 8 };
        let is_too_long = header_bytes + bytes.len() > usize::from(MTU);
        assert_eq!(sent == Err(Unsent::TooLong), is_too_long);
        let frames = self.host.frames();
        let left = frames.iter().filter_map(|frame| datagram::from_frame(frame));
        let expected = sent.is_ok().then(|| (local, peer, bytes.to_vec()));
        assert_eq!(Vec::from_iter(left), Vec::from_iter(expected));
    }

    fn options(&mut self, number: u8, options: Options, is_syn: bool) -> Vec<TcpOption> {
        let (_, peer) = self.peer(number);
        let mut all = Vec::new();
        if is_syn {
            all.extend(options.mss.map(TcpOption::Mss));
            all.extend(options.window_scale.map(TcpOption::WindowScale));
            all.extend(options.sack_permitted.then_some(TcpOption::SackPermitted));
        } else if let Some(blocks) = options.sack {
            let block = |(from, bytes): (i16, u16)| {
                let left = peer.ack.wrapping_add_signed(from.into());
                (left, left.wrapping_add(bytes.into()))
            };
            all.push(TcpOption::Sack(blocks.into_iter().take(2).map(block).collect()));
        }
        if let Some((value, echo)) = options.timestamps {
            let value = 5_000_u32.wrapping_add_signed(value.into());
            all.push(TcpOption::Timestamps(value, peer.stamp.wrapping_add_signed(echo.into())));
        } else if peer.has_timestamps {
            all.push(TcpOption::Timestamps(5_000, peer.stamp));
        }
        all
    }

    fn quoted(&mut self, peer: u8, seq: i16) -> Vec<u8> {
        let mut segment = self.segment(peer, 0, 0);
        (segment.source, segment.destination) = (segment.destination, segment.source);
        segment.seq = segment.ack.wrapping_add_signed(seq.into());
        segment.payload = vec![0; 20];
        segment.to_frame()
    }

    fn wait(&mut self, time: Duration) {
        let until = self.now + time;
        let mut steps = 0;
        while let Some(next) = self.host.next_timer().filter(|next| *next <= until) {
            steps = if next > self.now { 0 } else { steps + 1 };
            assert!(steps < 1000, "the time stands still");
            self.now = self.now.max(next);
            self.host.handle_timers(self.now);
            self.settle();
        }
        self.now = until;
    }

    /// Lets the host send, and learns from its frames and news.
    fn settle(&mut self) {
        self.host.settle(self.now);
        for frame in self.host.frames() {
            datagram::from_frame(&frame);
            let Ok(segment) = Segment::from_frame(&frame) else { continue };
            let Some(peer) = self.peers.get_mut(&segment.destination.port()) else { continue };
            if segment.has(flag::ACK) {
                peer.seq = segment.ack;
            }
            if !segment.has(flag::RST) {
                peer.ack = segment.seq.wrapping_add(segment.seq_len());
            }
            peer.has_timestamps = false;
            for option in segment.options {
                if let TcpOption::Timestamps(value, _) = option {
                    (peer.stamp, peer.has_timestamps) = (value, true);
                }
            }
        }
        for (id, news) in self.host.news() {
            match news {
                News::Accepted(_, remote) => {
                    if let Some(peer) = self.peers.get_mut(&remote.port()) {
                        peer.id = Some(id);
                    }
                }
                News::Closed | News::Lost(_) => {
                    self.peers
                        .values_mut()
                        .filter(|peer| peer.id == Some(id))
                        .for_each(|peer| peer.id = None);
                }
                _ => {}
            }
        }
    }
}

fuzz_target!(|input: (Setting, Vec<Operation>)| {
    let (setting, operations) = input;
    let mut run = Run::new(setting);
    for operation in operations {
        run.apply(operation);
    }
    // Without a peer and an application, everything ends.
    let open: Vec<_> = run.peers.values().filter_map(|peer| peer.id).collect();
    for id in open {
        run.host.close(run.now, id);
    }
    run.settle();
    run.wait(Duration::from_secs(3600));
    run.host.check_empty();
});
