//! Runs the cases of a script against a stack: plays its peers and its application, and compares.

use core::fmt::Write;
use core::net::{IpAddr, SocketAddr};
use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use netstack::sim::{
    Datagram, Device, Host, News, Segment, TcpOption, flag, host_unreachable, mac, too_large,
};
use netstack::{Address, Config, ConnectionId, Keepalive, Limits, Lost, Stack, Time};

use crate::scripts::end::{End, at, blocks, contents, kind, numbers, relative};
use crate::scripts::packets;
use crate::scripts::parse::{Action, Case, Icmp, Line, Open, Opt, Pattern, Step, Told};

/// The stack's clock and its initial sequence numbers are near where they wrap in 32 bits of milliseconds.
const START: Time = Time::from_nanos(4_294_967_000_000_000);

/// What is due at once may come this much later: the tick of the timers.
const TICK: Duration = Duration::from_millis(1);

/// Runs a case; the error says which line failed and what came before it.
pub(crate) fn run(case: &Case<'_>) -> Result<(), String> {
    let mut settings = Settings::default();
    let split = case.lines.iter().position(|line| !matches!(line.what, Step::Config(..)));
    let (configs, lines) = case.lines.split_at(split.unwrap_or(case.lines.len()));
    for line in configs {
        if let Step::Config(name, values) = &line.what {
            settings.set(name, values).map_err(|why| format!("line {}: {why}", line.number))?;
        }
    }
    let mut world = World::new(settings);
    for line in lines {
        world.step(line).map_err(|why| {
            let log = world.log_end();
            format!("line {}: {}\n  {why}\n  so far:\n    {log}", line.number, line.text)
        })?;
    }
    world.end().map_err(|why| format!("at the end: {why}\n  so far:\n    {}", world.log_end()))
}

/// What `config` lines say.
pub(crate) struct Settings {
    config: Config,
    limits: Limits,
    room: usize,
    is_v6: bool,
    /// Whether the address is the kernel's.
    is_kernels: bool,
    peer_isn: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            config: Config { tcp_ports: vec![80], ..Config::new([0; 6]) },
            limits: Limits { mtu: 1500, cut_bytes_max: 0, fills_checksums: false },
            room: usize::MAX,
            is_v6: false,
            is_kernels: false,
            peer_isn: 0xffff_ff00,
        }
    }
}

impl Settings {
    pub(crate) fn set(&mut self, name: &str, values: &[u64]) -> Result<(), String> {
        let config = &mut self.config;
        let milliseconds = |value: u64| Duration::from_millis(value);
        let number = |value: u64| u32::try_from(value).expect("a setting of 32 bits");
        match (name, values) {
            ("receive", &[value]) => config.receive_bytes_max = number(value),
            ("connections", &[value]) => config.connections_max = number(value),
            ("half-open", &[value]) => config.half_open_max = number(value),
            ("time-wait", &[value]) => config.time_wait_max = number(value),
            ("replies", &[value]) => config.replies_per_second_max = number(value),
            ("patience", &[value]) => config.patience = milliseconds(value),
            ("fin-wait", &[value]) => config.fin_wait = milliseconds(value),
            ("ecn", &[value]) => config.ecn = value == 1,
            ("keepalive", &[idle, interval, probes]) => {
                config.keepalive = Some(Keepalive {
                    idle: milliseconds(idle),
                    interval: milliseconds(interval),
                    probes: u8::try_from(probes).expect("few probes"),
                });
            }
            ("mtu", &[value]) => self.limits.mtu = u16::try_from(value).expect("an MTU"),
            ("cut", &[value]) => {
                self.limits.cut_bytes_max = number(value);
                self.limits.fills_checksums = true;
            }
            ("room", &[value]) => self.room = usize::try_from(value).expect("frames"),
            ("v6", []) => self.is_v6 = true,
            ("kernels", []) => self.is_kernels = true,
            ("udp", &[port]) => config.udp_ports = vec![u16::try_from(port).expect("a port")],
            ("isn", &[value]) => self.peer_isn = number(value),
            _ => return Err(format!("config {name} with {values:?}")),
        }
        Ok(())
    }
}

/// A connection, as the script has played it.
pub(crate) struct Peer {
    pub end: End,
    id: Option<ConnectionId>,
    news: Vec<News>,
    received: u64,
    told_received: u64,
    queued: u64,
}

pub(crate) struct World {
    host: Host,
    now: Time,
    local: IpAddr,
    remote: IpAddr,
    peer_isn: u32,
    peers: BTreeMap<u16, Peer>,
    current: u16,
    /// What the stack has sent and no line has looked at.
    sent: VecDeque<(Time, Segment)>,
    /// The same for frames that are no segments, in words.
    packets: VecDeque<String>,
    /// The initial sequence numbers of the stack in the order of its SYNs.
    numbers: Vec<u32>,
    /// The datagrams that it has told.
    datagrams: VecDeque<Datagram>,
    /// The last one that a line has looked at.
    answered: Option<Datagram>,
    log: Vec<String>,
}

impl World {
    pub(crate) fn new(settings: Settings) -> Self {
        let (local, remote): (IpAddr, IpAddr) = if settings.is_v6 {
            ("fd00::1".parse().expect("an address"), "fd00::2".parse().expect("an address"))
        } else {
            ("10.0.0.1".parse().expect("an address"), "10.0.0.2".parse().expect("an address"))
        };
        let prefix = if settings.is_v6 { 64 } else { 24 };
        let config = Config {
            mac: mac(local),
            addresses: vec![Address { ip: local, prefix, is_ours: !settings.is_kernels }],
            ..settings.config
        };
        let device = Device::new(settings.limits, settings.room);
        Self {
            host: Host::new(config, device, [7; 16], START),
            now: START,
            local,
            remote,
            peer_isn: settings.peer_isn,
            peers: BTreeMap::new(),
            current: 5000,
            sent: VecDeque::new(),
            packets: VecDeque::new(),
            numbers: Vec::new(),
            datagrams: VecDeque::new(),
            answered: None,
            log: Vec::new(),
        }
    }

    pub(crate) fn peer(&mut self) -> &mut Peer {
        let isn = self.peer_isn;
        let remote = SocketAddr::new(self.remote, self.current);
        let local = SocketAddr::new(self.local, 80);
        self.peers.entry(self.current).or_insert_with(|| Peer {
            end: End::new(local, remote, isn),
            id: None,
            news: Vec::new(),
            received: 0,
            told_received: 0,
            queued: 0,
        })
    }

    fn step(&mut self, line: &Line<'_>) -> Result<(), String> {
        let (from, to) = (self.now + line.after.0, self.now + line.after.1);
        match &line.what {
            Step::Expect(pattern) => return self.expect(pattern, from, to),
            Step::ExpectRun(pattern, count) => return self.expect_run(pattern, *count, from, to),
            Step::Ignore => {
                self.advance(to)?;
                self.sent.clear();
                return Ok(());
            }
            _ => {}
        }
        self.advance(to)?;
        match &line.what {
            Step::Wait => return Ok(()),
            Step::Told(told) => return self.told(told),
            Step::NotTold(told) => {
                return if self.told(told).is_ok() {
                    Err("it was told".to_owned())
                } else {
                    Ok(())
                };
            }
            Step::State(state) => return self.state(state),
            Step::ExpectPacket(expected) => {
                let packet = self.packets.pop_front().ok_or("nothing came")?;
                return if packet == *expected { Ok(()) } else { Err(format!("{packet:?} came")) };
            }
            Step::Iss(distance) => return self.iss(*distance),
            Step::Count(name, expected) => {
                let value = count(self.host.stack(), name).ok_or("no such counter")?;
                return if value == *expected { Ok(()) } else { Err(format!("it is {value}")) };
            }
            _ => self.nothing_is_left()?,
        }
        match &line.what {
            Step::Peer(port, to) => {
                self.current = *port;
                self.peer().end.local.set_port(*to);
            }
            Step::Inject(pattern) => self.inject(pattern)?,
            Step::Open(open) => self.open(open)?,
            Step::Icmp { kind, seq } => self.icmp(*kind, *seq)?,
            Step::Packet(words) => {
                let frame = packets::build(words, self.local, self.remote)?;
                self.log.push(format!("{} in {words}", milliseconds(self.now)));
                self.host.handle_frame(self.now, &frame);
                self.host.settle(self.now);
            }
            Step::Chatter(bytes) => {
                for seq in 1..=*bytes {
                    let flags = flag::ACK | flag::PSH;
                    let pattern =
                        Pattern { flags, seq: (seq, seq + 1), ack: Some(1), ..Pattern::default() };
                    self.inject(&pattern)?;
                    self.advance(self.now + Duration::from_millis(50))?;
                }
                self.sent.clear();
            }
            Step::Do(action) => self.act(action)?,
            Step::Config(..) => return Err("settings come first".to_owned()),
            Step::Differs(_) | Step::Ours(_) => return Err("nothing is recorded here".to_owned()),
            _ => {}
        }
        self.collect()
    }

    /// Lets the time pass until so long after the beginning; returns what the stack has sent and no line has looked
    /// at, and when.
    pub(crate) fn take_until(&mut self, to: Duration) -> Result<Vec<(Duration, Segment)>, String> {
        self.collect()?;
        self.advance(START + to)?;
        Ok(self.sent.drain(..).map(|(at, segment)| (at.since(START), segment)).collect())
    }

    /// What happened last.
    fn log_end(&self) -> String {
        const LINES_MAX: usize = 40;
        let skipped = self.log.len().saturating_sub(LINES_MAX);
        self.log[skipped..].join("\n    ")
    }

    /// Nothing may have been sent that no line expects.
    fn nothing_is_left(&self) -> Result<(), String> {
        match self.sent.front() {
            Some((at, segment)) => {
                Err(format!("nobody expects {} at {}", self.show(segment), milliseconds(*at)))
            }
            None => self
                .packets
                .front()
                .map_or(Ok(()), |packet| Err(format!("nobody expects {packet}"))),
        }
    }

    /// Compares the last two initial sequence numbers.
    fn iss(&self, distance: Option<i64>) -> Result<(), String> {
        let [.., before, last] = self.numbers[..] else {
            return Err("only one SYN came".to_owned());
        };
        let is = relative(last, before);
        match distance {
            None if is.abs() < 1 << 20 => Err(format!("it is only {is} from the one before")),
            Some(expected) if is.abs_diff(expected) > 10 => {
                Err(format!("it is {is} behind the one before"))
            }
            _ => Ok(()),
        }
    }

    fn end(&mut self) -> Result<(), String> {
        self.nothing_is_left()?;
        for (port, peer) in &self.peers {
            let mut unread =
                peer.news.iter().filter(|news| matches!(news, News::Lost(_) | News::Ended));
            if let Some(news) = unread.next() {
                return Err(format!("no line of peer {port} expects {news:?}"));
            }
        }
        Ok(())
    }

    /// Lets the time pass, with the stack's timers, until `to`.
    fn advance(&mut self, to: Time) -> Result<(), String> {
        while let Some(next) = self.host.next_timer().filter(|next| *next <= to) {
            self.timer(next)?;
        }
        self.now = self.now.max(to);
        Ok(())
    }

    fn timer(&mut self, at: Time) -> Result<(), String> {
        self.now = self.now.max(at);
        self.host.handle_timers(self.now);
        self.host.settle(self.now);
        if self.host.next_timer().is_some_and(|next| next <= self.now) {
            return Err(format!("the timer of {} is due again at once", milliseconds(self.now)));
        }
        self.collect()
    }

    /// Takes what the stack has sent and told.
    fn collect(&mut self) -> Result<(), String> {
        for frame in self.host.frames() {
            let segment = match Segment::from_frame(&frame) {
                Ok(segment) => segment,
                Err(why) => {
                    let packet = packets::describe(&frame);
                    let packet = packet.map_err(|other| format!("sent a frame: {why}; {other}"))?;
                    self.log.push(format!("{} out {packet}", milliseconds(self.now)));
                    self.packets.push_back(packet);
                    continue;
                }
            };
            if segment.has(flag::SYN) {
                self.numbers.push(segment.seq);
            }
            let port = segment.destination.port();
            let now = self.now;
            if let Some(peer) = self.peers.get_mut(&port) {
                peer.end.hear(&segment);
            }
            let shown = self.show(&segment);
            self.log.push(format!("{} > {shown}", milliseconds(now)));
            self.sent.push_back((now, segment));
        }
        self.datagrams.extend(self.host.datagrams());
        for (id, news) in self.host.news() {
            if let News::Accepted(_, remote) = &news {
                let port = remote.port();
                let peer = self.peers.get_mut(&port).ok_or("accepted a peer that there is not")?;
                peer.id = Some(id);
            }
            let peer = self.peers.values_mut().find(|peer| peer.id == Some(id));
            let peer = peer.ok_or_else(|| format!("{news:?} of an unknown connection"))?;
            match &news {
                News::Acknowledged | News::Room => continue,
                News::Received(bytes) => {
                    let from = peer.received.cast_signed();
                    let to = from + i64::try_from(bytes.len()).expect("few bytes");
                    self.log.push(format!("{} told received {from}..{to}", milliseconds(self.now)));
                    if contents(false, from..to) != *bytes {
                        return Err("received wrong bytes".to_owned());
                    }
                    peer.received = to.cast_unsigned();
                }
                _ => {
                    self.log.push(format!("{} told {news:?}", milliseconds(self.now)));
                    peer.news.push(news);
                }
            }
        }
        Ok(())
    }

    pub(crate) fn inject(&mut self, pattern: &Pattern) -> Result<(), String> {
        let clock = peer_clock(self.now);
        let segment = self.peer().end.segment(pattern, clock)?;
        let mut frame = segment.to_frame();
        if pattern.has_bad_checksum {
            *frame.last_mut().expect("a frame") ^= 1;
        }
        self.log.push(format!("{} < {}", milliseconds(self.now), self.show(&segment)));
        self.host.handle_frame(self.now, &frame);
        self.host.settle(self.now);
        self.collect()
    }

    fn open(&mut self, open: &Open) -> Result<(), String> {
        let syn = open.syn();
        self.inject(&syn)?;
        let (_, answer) = self.sent.pop_front().ok_or("no SYN,ACK came")?;
        if !answer.has(flag::SYN | flag::ACK) || answer.ack != at(self.peer().end.isn, 1) {
            return Err(format!("the answer to the SYN is {}", self.show(&answer)));
        }
        let answered: Vec<u8> = answer.options.iter().map(kind).collect();
        let missing = syn.options.iter().map(Opt::kind).find(|kind| !answered.contains(kind));
        if let Some(missing) = missing {
            return Err(format!("the SYN,ACK lacks the option {missing}: {}", self.show(&answer)));
        }
        self.advance(self.now + open.rtt)?;
        self.nothing_is_left()?;
        self.peer().end.sends_timestamps = open.timestamps;
        self.inject(&Pattern::handshake_ack())?;
        self.told(&Told::Accepted).map_err(|_| "no connection was accepted".to_owned())
    }

    fn icmp(&mut self, kind: Icmp, seq: i64) -> Result<(), String> {
        let end = &self.peer().end;
        let iss = end.iss.ok_or("no segment could have been lost")?;
        let quoted = Segment {
            source: end.local,
            destination: end.remote,
            ecn: 0,
            seq: at(iss, seq),
            ack: 0,
            flags: flag::ACK,
            window: 0,
            options: Vec::new(),
            payload: vec![0; 100],
        };
        let quoted = quoted.to_frame();
        let frame = match kind {
            Icmp::TooLarge(mtu) => too_large(&quoted, mtu),
            Icmp::Unreachable => host_unreachable(&quoted),
        };
        self.log.push(format!("{} icmp {kind:?} seq {seq}", milliseconds(self.now)));
        self.host.handle_frame(self.now, &frame.ok_or("nothing to quote")?);
        self.host.settle(self.now);
        Ok(())
    }

    pub(crate) fn act(&mut self, action: &Action) -> Result<(), String> {
        self.log.push(format!("{} do {action:?}", milliseconds(self.now)));
        let now = self.now;
        if let Action::Connect = action {
            let local = SocketAddr::new(self.local, 49_152);
            let remote = SocketAddr::new(self.remote, self.current);
            let id = self.host.connect(now, local, remote).ok_or("it does not connect")?;
            let peer = self.peer();
            (peer.id, peer.end.local) = (Some(id), local);
            self.host.settle(now);
            return Ok(());
        }
        if let Action::Answer(bytes) = action {
            let Datagram { local, peer, .. } =
                *self.answered.as_ref().ok_or("no datagram was told")?;
            let bytes: Vec<u8> = packets::data(*bytes);
            return self.host.send_datagram(local, peer, &bytes).map_err(|why| format!("{why:?}"));
        }
        let id = self.peer().id.ok_or("there is no connection")?;
        match action {
            Action::Send(bytes) => {
                let from = self.peer().queued;
                self.peer().queued += bytes;
                let bytes = contents(true, from.cast_signed()..(from + bytes).cast_signed());
                self.host.send(id, bytes);
            }
            Action::Shutdown => self.host.shutdown(id),
            Action::Close => self.host.close(now, id),
            Action::StopReceiving => self.host.set_receiving(now, id, false),
            Action::Receive => self.host.set_receiving(now, id, true),
            Action::Connect | Action::Answer(_) => {}
        }
        self.host.settle(now);
        Ok(())
    }

    fn told(&mut self, told: &Told) -> Result<(), String> {
        if let Told::Datagram(bytes) = told {
            let datagram = self.datagrams.pop_front().ok_or("no datagram was told")?;
            let is_it = datagram.bytes == packets::data(*bytes);
            let len = datagram.bytes.len();
            self.answered = Some(datagram);
            return if is_it { Ok(()) } else { Err(format!("told {len} bytes")) };
        }
        let peer = self.peer();
        if let Told::Received(bytes) = told {
            let received = peer.received - peer.told_received;
            peer.told_received = peer.received;
            return if received == *bytes {
                Ok(())
            } else {
                Err(format!("told received {received}"))
            };
        }
        let is_it = |news: &News| match (news, told) {
            (News::Accepted(..), Told::Accepted)
            | (News::Closed, Told::Closed)
            | (News::Ended, Told::Ended) => true,
            (News::Lost(why), Told::Lost(expected)) => {
                *expected
                    == match why {
                        Lost::Reset => "reset",
                        Lost::TimedOut => "timed-out",
                        Lost::Unreachable => "unreachable",
                    }
            }
            _ => false,
        };
        let position = peer.news.iter().position(is_it);
        let position = position.ok_or_else(|| format!("told only {:?}", peer.news))?;
        peer.news.remove(position);
        Ok(())
    }

    fn state(&mut self, expected: &str) -> Result<(), String> {
        let id = self.peer().id.ok_or("there was no connection")?;
        let state = self.host.state(id).unwrap_or("CLOSED");
        if state == expected { Ok(()) } else { Err(format!("it is {state}")) }
    }

    /// Waits until the stack has sent something, at most until `to`.
    fn wait(&mut self, to: Time) -> Result<(Time, Segment), String> {
        loop {
            if let Some(first) = self.sent.pop_front() {
                return Ok(first);
            }
            match self.host.next_timer().filter(|next| *next <= to + TICK) {
                Some(next) => self.timer(next)?,
                None => {
                    self.now = self.now.max(to);
                    return Err(format!("nothing came until {}", milliseconds(self.now)));
                }
            }
        }
    }

    fn expect(&mut self, pattern: &Pattern, from: Time, to: Time) -> Result<(), String> {
        let (at, segment) = self.wait(to)?;
        self.is_in_time(at, from, to, &segment)?;
        self.compare(pattern, &segment, pattern.seq)
    }

    fn is_in_time(&self, at: Time, from: Time, to: Time, segment: &Segment) -> Result<(), String> {
        if at < from || at > to + TICK {
            let (at, from, to) = (milliseconds(at), milliseconds(from), milliseconds(to));
            return Err(format!("{} came at {at}, not within {from}..{to}", self.show(segment)));
        }
        Ok(())
    }

    fn expect_run(
        &mut self,
        pattern: &Pattern,
        count: Option<usize>,
        from: Time,
        to: Time,
    ) -> Result<(), String> {
        let (mut next, end) = pattern.seq;
        let mut segments = 0;
        while next < end {
            let (at, segment) = self.wait(to)?;
            self.is_in_time(at, from, to, &segment)?;
            let len = i64::try_from(segment.payload.len()).expect("few bytes");
            if len == 0 || next + len > end {
                return Err(format!("{} does not go on with {next}", self.show(&segment)));
            }
            let flags = if next + len == end {
                pattern.flags
            } else {
                pattern.flags & !(flag::PSH | flag::FIN)
            };
            self.compare(&Pattern { flags, ..pattern.clone() }, &segment, (next, next + len))?;
            next += len;
            segments += 1;
        }
        match count {
            Some(count) if count != segments => Err(format!("it came in {segments} segments")),
            _ => Ok(()),
        }
    }

    fn compare(
        &mut self,
        pattern: &Pattern,
        segment: &Segment,
        seq: (i64, i64),
    ) -> Result<(), String> {
        let current = self.current;
        if segment.destination.port() != current {
            return Err(format!("{} goes to another peer", self.show(segment)));
        }
        let end = &self.peer().end;
        let (iss, isn) = (end.iss.unwrap_or(0), end.isn);
        let first_stamp = end.stamps.map_or(0, |(first, _)| first);
        let mut wrong = String::new();
        let mut differ = |what: &str, is: i64, expected: i64| {
            if is != expected {
                let _ = write!(wrong, " {what} {is} instead of {expected};");
            }
        };
        // PSH is looked at only if the line has it: it is the stack's to choose.
        let ignored = flag::PSH & !pattern.flags;
        if !pattern.has_any_flags {
            differ("flags", i64::from(segment.flags & !ignored), i64::from(pattern.flags));
        }
        differ("seq", relative(segment.seq, iss), seq.0);
        let is_syn = segment.has(flag::SYN);
        differ("payload", i64::try_from(segment.payload.len()).expect("few bytes"), seq.1 - seq.0);
        if let Some(ack) = pattern.ack {
            differ("ack", relative(segment.ack, isn), ack);
        }
        if let Some(window) = pattern.window {
            differ("win", i64::from(segment.window), i64::from(window));
        }
        if let Some(ecn) = pattern.ecn {
            differ("ecn", i64::from(segment.ecn), i64::from(ecn));
        }
        for expected in &pattern.options {
            let is_there = segment.options.iter().any(|option| match (option, expected) {
                (TcpOption::Mss(is), Opt::Mss(mss)) => is == mss,
                (TcpOption::WindowScale(is), Opt::WindowScale(shift)) => is == shift,
                (TcpOption::SackPermitted, Opt::SackPermitted) => true,
                (option, Opt::Any(expected)) => kind(option) == *expected,
                (TcpOption::Sack(is), Opt::Sack(blocks)) => {
                    let block =
                        |(left, right): &(u32, u32)| (relative(*left, isn), relative(*right, isn));
                    is.iter().map(block).collect::<Vec<_>>() == *blocks
                }
                (TcpOption::Timestamps(value, echo), Opt::Timestamps(expected, expected_echo)) => {
                    expected.is_none_or(|expected| relative(*value, first_stamp) == expected)
                        && expected_echo.is_none_or(|expected| *echo == at(0, expected))
                }
                (TcpOption::Other(is, contents), Opt::Other(kind, expected)) => {
                    is == kind && contents == expected
                }
                _ => false,
            });
            if !is_there {
                let _ = write!(wrong, " without {expected:?};");
            }
        }
        for option in
            segment.options.iter().filter(|option| pattern.without.contains(&kind(option)))
        {
            let _ = write!(wrong, " with {option:?};");
        }
        if !is_syn && segment.payload != contents(true, seq.0 - 1..seq.1 - 1) && wrong.is_empty() {
            wrong.push_str(" wrong bytes;");
        }
        if wrong.is_empty() { Ok(()) } else { Err(format!("{}:{wrong}", self.show(segment))) }
    }

    /// A segment in the words of the format.
    fn show(&self, segment: &Segment) -> String {
        let is_ours = segment.source.ip() == self.local;
        let port = if is_ours { segment.destination.port() } else { segment.source.port() };
        let end = self.peers.get(&port).map(|peer| &peer.end);
        let (iss, isn) = end.map_or((0, 0), |end| (end.iss.unwrap_or(0), end.isn));
        let (own, others) = if is_ours { (iss, isn) } else { (isn, iss) };
        let mut text = numbers(segment, segment.flags, own, others);
        let _ = write!(text, " win {}", segment.window);
        if segment.ecn != 0 {
            let _ = write!(text, " {}", ["", "ect1", "ect0", "ce"][usize::from(segment.ecn)]);
        }
        for option in &segment.options {
            let _ = match option {
                TcpOption::Sack(ranges) => write!(text, " sack {}", blocks(ranges, others)),
                TcpOption::Timestamps(value, echo) => {
                    let first = end.and_then(|end| end.stamps).map_or(0, |(first, _)| first);
                    let (value, echo) = if is_ours {
                        (relative(*value, first), relative(*echo, 0))
                    } else {
                        (relative(*value, 0), relative(*echo, first))
                    };
                    write!(text, " ts {value} {echo}")
                }
                other => write!(text, " {other:?}"),
            };
        }
        if port != self.current {
            let _ = write!(text, " (peer {port})");
        }
        text
    }
}

/// A number that the stack tells about itself.
fn count(stack: &Stack, name: &str) -> Option<u64> {
    let (census, counters) = (stack.census(), stack.counters());
    let size = |size: usize| u64::try_from(size).expect("few");
    Some(match name {
        "half-open" => size(census.half_open),
        "connections" => size(census.connections),
        "time-wait" => size(census.time_wait),
        "orphan-overflows" => counters.orphan_overflows,
        "cookies-sent" => counters.handshakes.cookies_sent,
        "cookies-accepted" => counters.handshakes.cookies_accepted,
        "drops.malformed" => counters.drops.malformed,
        "drops.fragment" => counters.drops.fragment,
        "drops.extension" => counters.drops.extension,
        "drops.not_ours" => counters.drops.not_ours,
        "drops.requests" => counters.drops.requests,
        "drops.checksum" => counters.drops.checksum,
        "drops.no_connection" => counters.drops.no_connection,
        _ => return None,
    })
}

/// The timestamp of the peers' clocks: 1,000 at the beginning.
fn peer_clock(now: Time) -> u32 {
    u32::try_from(1000 + now.since(START).as_millis()).expect("a case is short")
}

fn milliseconds(at: Time) -> String {
    format!("{:>9.3}", at.since(START).as_secs_f64() * 1000.0)
}
