//! A connection whose peer the test plays.
//!
//! Numbers are relative: 0 is the first byte of a direction. The real numbers are chosen so that they wrap at 2³²
//! soon.

use core::net::SocketAddr;
use core::time::Duration;
use std::format;
use std::string::{String, ToString};
use std::vec::Vec;

use outq::OutQ;

use super::*;
use crate::config::{Address, Config};
use crate::seq::SeqNumber;
use crate::time::Time;
use crate::transmit::{Full, Limits};
use crate::wire::Ecn;
use crate::wire::tcp::{Flags, Header, Options};

pub(super) const ISS: SeqNumber = SeqNumber(u32::MAX - 700);
pub(super) const IRS: SeqNumber = SeqNumber(u32::MAX - 40);

/// Bytes of a whole segment of the tests' connections, which have no timestamps unless a test asks for them.
pub(super) const MSS: usize = 1460;

/// A connection, its queue and its interface.
#[derive(Debug)]
pub(super) struct Bench {
    pub(super) connection: Connection,
    pub(super) config: Config,
    pub(super) shared: Shared,
    pub(super) now: Time,
    pub(super) queue: OutQ<Vec<u8>>,
    pub(super) interface: Interface,
    /// The events that the application has got.
    pub(super) received: Vec<u8>,
    pub(super) fate: Fate,
    pub(super) news: Vec<&'static str>,
    /// The window that segments of the peer announce.
    pub(super) window: u16,
}

/// A segment that the connection has sent.
#[derive(Clone, Debug)]
pub(super) struct Sent {
    pub(super) header: Header,
    pub(super) payload: Vec<u8>,
    pub(super) segment_bytes: Option<u16>,
    pub(super) ecn: Ecn,
    pub(super) parts: usize,
}

#[derive(Debug)]
pub(super) struct Interface {
    pub(super) limits: Limits,
    /// The number of further segments that the interface takes before it is full.
    pub(super) room: usize,
    pub(super) sent: Vec<Sent>,
}

impl Emit for Interface {
    fn limits(&self) -> Limits {
        self.limits
    }

    fn tcp(
        &mut self,
        _endpoints: &Endpoints,
        _neighbour: u16,
        header: &Header,
        parts: &[&[u8]],
        segment_bytes: Option<u16>,
        ecn: Ecn,
    ) -> Result<(), Full> {
        self.room = self.room.checked_sub(1).ok_or(Full)?;
        assert!(parts.iter().all(|part| !part.is_empty()), "an empty part");
        let payload = parts.concat();
        match segment_bytes {
            Some(bytes) => {
                assert!(payload.len() > bytes.into());
                assert!(payload.len() <= usize::try_from(self.limits.cut_bytes_max).unwrap());
            }
            None => assert!(payload.len() <= MSS),
        }
        self.sent.push(Sent { header: *header, payload, segment_bytes, ecn, parts: parts.len() });
        Ok(())
    }
}

/// A segment of the peer.
#[derive(Clone, Debug)]
pub(super) struct Peer {
    pub(super) header: Header,
    pub(super) payload: Vec<u8>,
    pub(super) ecn: Ecn,
    has_window: bool,
}

/// The peer's segment that begins with byte `seq` and acknowledges ours in front of `ack`.
pub(super) fn segment(seq: i64, ack: i64) -> Peer {
    let header = Header {
        source: 2000,
        destination: 80,
        seq: number(IRS, seq),
        ack: Some(number(ISS, ack)),
        flags: Flags::NONE,
        window: 0,
        options: Options::default(),
    };
    Peer { header, payload: Vec::new(), ecn: Ecn::NotEct, has_window: false }
}

impl Peer {
    pub(super) fn data(mut self, bytes: &[u8]) -> Self {
        self.payload = bytes.to_vec();
        self
    }

    pub(super) fn fin(mut self) -> Self {
        self.header.flags.fin = true;
        self
    }

    pub(super) fn syn(mut self) -> Self {
        self.header.flags.syn = true;
        self
    }

    pub(super) fn rst(mut self) -> Self {
        self.header.flags.rst = true;
        self
    }

    pub(super) fn without_ack(mut self) -> Self {
        self.header.ack = None;
        self
    }

    pub(super) fn window(mut self, window: u16) -> Self {
        self.header.window = window;
        self.has_window = true;
        self
    }

    pub(super) fn timestamps(mut self, value: u32, echo: u32) -> Self {
        self.header.options.timestamps = Some((value, echo));
        self
    }
}

fn number(initial: SeqNumber, at: i64) -> SeqNumber {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "on the circle")]
    SeqNumber(initial.0.wrapping_add(1).wrapping_add(at as u32))
}

/// The number of a byte in a direction.
pub(super) fn position(initial: SeqNumber, at: SeqNumber) -> i64 {
    i64::from((at - (initial + 1)).cast_signed())
}

impl Sent {
    /// `FLAGS SEQ+LEN ack ACK`, then the selective acknowledgements.
    pub(super) fn show(&self) -> String {
        let flags = self.header.flags;
        let mut shown = String::new();
        for (on, name) in [
            (flags.fin, 'F'),
            (flags.syn, 'S'),
            (flags.rst, 'R'),
            (flags.psh, 'P'),
            (flags.ece, 'E'),
            (flags.cwr, 'C'),
            (self.header.ack.is_some(), '.'),
        ] {
            if on {
                shown.push(name);
            }
        }
        let (seq, len) = (position(ISS, self.header.seq), self.payload.len());
        let ack = position(IRS, self.header.ack.unwrap());
        shown += &format!(" {seq}+{len} ack {ack}");
        for &(left, right) in self.header.options.sack.iter() {
            shown += &format!(" {}-{}", position(IRS, left), position(IRS, right));
        }
        shown
    }
}

pub(super) fn config() -> Config {
    let mut config = Config::new([2, 0, 0, 0, 0, 1]);
    let ip = [10, 0, 0, 1].into();
    config.addresses.push(Address { ip, prefix: 24, is_ours: true });
    config
}

pub(super) fn handshake() -> Handshake {
    Handshake {
        endpoints: Endpoints {
            local: SocketAddr::from(([10, 0, 0, 1], 80)),
            peer: SocketAddr::from(([10, 0, 0, 2], 2000)),
        },
        neighbour: 0,
        iss: ISS,
        irs: IRS,
        snd_wnd: 60_000,
        snd_wind_shift: 0,
        rcv_wind_shift: 0,
        peer_mss: 1460,
        sack: true,
        timestamps: None,
        ecn: false,
        rtt: Some(Duration::from_millis(20)),
    }
}

/// A connection right after its handshake that is no longer young: acknowledgements may be delayed.
pub(super) fn established() -> Bench {
    let mut bench = Bench::new(&handshake(), config());
    bench.connection.quick_acks = 0;
    bench
}

pub(super) fn fin_wait_1() -> Bench {
    let mut bench = established();
    bench.connection.shutdown();
    bench.drain();
    bench.clear();
    assert_eq!(bench.connection.state, TcpState::FinWait1);
    bench
}

pub(super) fn fin_wait_2() -> Bench {
    let mut bench = fin_wait_1();
    bench.hear(segment(0, 1));
    bench.drain();
    assert_eq!(bench.connection.state, TcpState::FinWait2);
    bench.clear();
    bench
}

pub(super) fn close_wait() -> Bench {
    let mut bench = established();
    bench.hear(segment(0, 0).fin());
    bench.acknowledge();
    bench.clear();
    assert_eq!(bench.connection.state, TcpState::CloseWait);
    bench
}

pub(super) fn closing() -> Bench {
    let mut bench = fin_wait_1();
    bench.hear(segment(0, 0).fin());
    bench.acknowledge();
    bench.clear();
    assert_eq!(bench.connection.state, TcpState::Closing);
    bench
}

pub(super) fn last_ack() -> Bench {
    let mut bench = close_wait();
    bench.connection.shutdown();
    bench.drain();
    bench.clear();
    assert_eq!(bench.connection.state, TcpState::LastAck);
    bench
}

/// Makes a connection in a state.
pub(super) type Begin = fn() -> Bench;

/// A constructor for each state, with the number of bytes, FINs included, that the peer and this end have sent.
pub(super) const STATES: [(Begin, i64, i64); 6] = [
    (established, 0, 0),
    (fin_wait_1, 0, 1),
    (fin_wait_2, 0, 1),
    (close_wait, 1, 0),
    (closing, 1, 1),
    (last_ack, 1, 1),
];

impl Bench {
    pub(super) fn new(handshake: &Handshake, config: Config) -> Self {
        let now = Time::from_nanos(5_000_000_000);
        let mut shared = Shared::new(7);
        shared.begin();
        Self {
            connection: Connection::new(handshake, 1500, now, &config),
            config,
            shared,
            now,
            queue: OutQ::new(),
            interface: Interface {
                limits: Limits { mtu: 1500, cut_bytes_max: 0, fills_checksums: true },
                room: usize::MAX,
                sent: Vec::new(),
            },
            received: Vec::new(),
            fate: Fate::Keep,
            news: Vec::new(),
            window: 60_000,
        }
    }

    /// Lets time pass.
    pub(super) fn wait(&mut self, time: Duration) {
        self.now = self.now + time;
    }

    /// Delivers a segment of the peer, and reports the outcome to the application.
    pub(super) fn hear(&mut self, peer: Peer) {
        let Peer { mut header, payload, ecn, has_window } = peer;
        if !has_window {
            header.window = self.window;
        }
        let cx = &mut Context { config: &self.config, shared: &mut self.shared };
        let outcome = self.connection.handle_segment(self.now, cx, &header, &payload, ecn);
        self.received.extend_from_slice(&payload[outcome.received.clone()]);
        self.tell(&outcome);
    }

    /// Reports an outcome to the application, without the bytes of the segment.
    pub(super) fn tell(&mut self, outcome: &Outcome) {
        let cx = &mut Context { config: &self.config, shared: &mut self.shared };
        if outcome.more {
            self.connection.receive(cx, |bytes| self.received.extend_from_slice(bytes));
        }
        for (on, name) in [
            (outcome.acknowledged, "acknowledged"),
            (outcome.room, "room"),
            (outcome.ended, "ended"),
        ] {
            if on {
                self.news.push(name);
            }
        }
        if outcome.fate != Fate::Keep {
            assert_eq!(self.fate, Fate::Keep);
            self.fate = outcome.fate;
        }
    }

    /// Sets whether the application receives bytes.
    pub(super) fn set_receiving(&mut self, on: bool) {
        let outcome = self.connection.set_receiving(on);
        self.tell(&outcome);
    }

    /// Handles the connection's timer if it is due. Returns true if there is room.
    pub(super) fn handle_timer(&mut self) -> bool {
        let cx = &mut Context { config: &self.config, shared: &mut self.shared };
        let outcome = self.connection.handle_timer(self.now, cx);
        self.tell(&outcome);
        outcome.room
    }

    /// Sends bytes of the application.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Drained {
        self.queue.push(bytes.to_vec());
        self.drain()
    }

    pub(super) fn drain(&mut self) -> Drained {
        self.drain_with(u64::MAX).unwrap()
    }

    pub(super) fn drain_with(&mut self, mut budget: u64) -> Result<Drained, Full> {
        let cx = &mut Context { config: &self.config, shared: &mut self.shared };
        let out = &mut self.interface;
        self.connection.drain(self.now, cx, &mut self.queue, &mut budget, out)
    }

    /// Ends a batch.
    pub(super) fn acknowledge(&mut self) {
        if self.connection.is_ack_due(self.now) {
            let cx = &mut Context { config: &self.config, shared: &mut self.shared };
            self.connection.acknowledge(self.now, cx, &mut self.interface).unwrap();
        }
    }

    /// The segments that were sent since the last call, and an acknowledgement if one is due now.
    pub(super) fn sent(&mut self) -> Vec<String> {
        self.acknowledge();
        self.interface.sent.drain(..).map(|sent| sent.show()).collect()
    }

    /// Clears the sent segments and the events.
    pub(super) fn clear(&mut self) {
        self.interface.sent.clear();
        self.news.clear();
    }

    pub(super) fn deadline(&self) -> Option<Duration> {
        self.connection.deadline(&self.config).map(|at| at.since(self.now))
    }

    /// The sent segments as one string, for tables.
    pub(super) fn shown(&mut self) -> String {
        let sent = self.sent().join(", ");
        if sent.is_empty() { "nothing".to_string() } else { sent }
    }
}

pub(super) const RESET: Fate = Fate::Lost(Lost::Reset);

/// `n` bytes, each different from its neighbours.
pub(super) fn bytes(n: usize) -> Vec<u8> {
    #[expect(clippy::cast_possible_truncation, reason = "a pattern")]
    (0..n).map(|at| (at % 251) as u8).collect()
}
