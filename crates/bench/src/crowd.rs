//! `samum-bench crowd`: as many connections as a server can hold, from one interface.
//!
//! The clients are a stack of our own on the interface, because a kernel has neither the memory nor the ports
//! for a million sockets. They open their connections, wait, and at the end each of them sends a request. New
//! clients are measured before and after the wait.

use core::fmt;
use core::mem;
use core::net::{IpAddr, SocketAddr};
use core::time::Duration;
use std::collections::{HashMap, VecDeque};
use std::time::Instant;

use netdev::{Device, Frames, Options};
use netstack::tcp::Endpoints;
use netstack::wire::Mac;
use netstack::{Address, Application, Config, ConnectionId, Lost, Stack, Time};
use outq::OutQ;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::rand::{GetRandomFlags, getrandom};

use crate::Error;
use crate::machine;

/// The command line of `samum-bench crowd`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Interface of the clients, in the network namespace of this command
    #[arg(long, value_name = "NAME")]
    pub interface: String,
    /// Link address of the server
    #[arg(long, value_name = "MAC", value_parser = mac)]
    pub via: [u8; 6],
    /// Address of the server
    #[arg(long, value_name = "ADDR:PORT")]
    pub server: SocketAddr,
    /// Addresses of the clients, which nothing else may have
    #[arg(long, value_name = "ADDR,...", value_delimiter = ',', required = true)]
    pub from: Vec<IpAddr>,
    /// Path of the file that is requested
    #[arg(long, value_name = "PATH", default_value = "/")]
    pub path: String,
    /// Connections
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(1..=4_000_000))]
    pub count: u32,
    /// New clients, one after the other, whose latency is measured before and beside the crowd
    #[arg(long, value_name = "N", default_value_t = 2000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub newcomers: u32,
    /// Process of the server, whose memory is measured
    #[arg(long, value_name = "PID")]
    pub pid: Option<u32>,
}

fn mac(text: &str) -> Result<[u8; 6], String> {
    let bytes: Result<Vec<_>, _> = text.split(':').map(|hex| u8::from_str_radix(hex, 16)).collect();
    bytes
        .ok()
        .and_then(|bytes| bytes.try_into().ok())
        .ok_or_else(|| "six bytes such as 02:00:00:00:00:01".to_owned())
}

/// The figures of a crowd.
#[derive(Clone, Copy, Debug)]
pub struct Measured {
    count: u32,
    /// The time until all connections were open.
    pub opened: Duration,
    /// The time until all clients had a response to a request.
    pub answered: Duration,
    /// The latency of new clients without the crowd: the time until the response is complete, with the
    /// connect.
    pub alone: Latency,
    /// The latency of new clients beside the crowd.
    pub beside: Latency,
    /// `Some` if the process of the server was found.
    pub memory: Option<Memory>,
}

/// Latencies of new clients.
#[derive(Clone, Copy, Debug)]
pub struct Latency {
    /// The median.
    pub p50: Duration,
    /// The 99th percentile.
    pub p99: Duration,
}

/// Memory of the server, bytes (PSS).
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    /// Before the crowd.
    pub before: u64,
    /// For each connection, when all were open.
    pub each: u64,
    /// For each connection, after all have sent a request.
    pub each_asked: u64,
}

/// Opens the crowd and measures.
///
/// # Errors
///
/// If the interface cannot be used, a connection is lost, or nothing happens for 10 s.
pub fn run(args: &Args) -> Result<Measured, Error> {
    let mut clients = Clients::new(args)?;
    let before = args.pid.and_then(memory);
    clients.newcomers(100)?;
    let alone = clients.newcomers(args.newcomers)?;
    let began = Instant::now();
    clients.each(args.count, AT_ONCE, Deed::Open)?;
    let opened = began.elapsed();
    let after = args.pid.and_then(memory);
    let beside = clients.newcomers(args.newcomers)?;
    let began = Instant::now();
    clients.each(args.count, AT_ONCE, Deed::Ask)?;
    let answered = began.elapsed();
    let again = args.pid.and_then(memory);
    let memory = before.zip(after).zip(again).map(|((before, after), again)| {
        let each = |bytes: u64| bytes.saturating_sub(before) / u64::from(args.count);
        Memory { before, each: each(after), each_asked: each(again) }
    });
    Ok(Measured { count: args.count, opened, answered, alone, beside, memory })
}

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { count, opened, answered, alone, beside, .. } = self;
        writeln!(
            f,
            "{count} connections opened in {:.1} s, all answered a request in {:.1} s",
            opened.as_secs_f64(),
            answered.as_secs_f64()
        )?;
        let microseconds = |latency: &Latency| {
            format!("p50 {} p99 {}", latency.p50.as_micros(), latency.p99.as_micros())
        };
        writeln!(
            f,
            "a new client, connection and request, us: alone {}, beside them {}",
            microseconds(alone),
            microseconds(beside)
        )?;
        let Some(Memory { before, each, each_asked }) = self.memory else { return Ok(()) };
        writeln!(
            f,
            "memory of the server (PSS): {before} bytes before, {each} a connection when all were open, \
             {each_asked} when all had asked"
        )
    }
}

/// Memory of a process, shared memory by its share.
fn memory(pid: u32) -> Option<u64> {
    machine::field(&machine::read(&format!("/proc/{pid}/smaps_rollup")), "Pss:")
        .map(|kib| kib * 1024)
}

/// Connections that are being opened, or requests that wait, at one time.
const AT_ONCE: usize = 256;
/// The time without an event after which the server is reported as silent.
const SILENCE_MAX: Duration = Duration::from_secs(10);

/// The clients: the stack, and the events that they wait for.
struct Clients {
    device: Device,
    stack: Stack,
    began: Instant,
    news: News,
    request: &'static [u8],
    /// Queues of connections that have something in flight.
    queues: HashMap<ConnectionId, OutQ<&'static [u8]>>,
    /// The crowd.
    all: Vec<ConnectionId>,
    /// Ends that were not used.
    ends: VecDeque<Endpoints>,
    via: [u8; 6],
    /// The bytes of a response, known from the first one.
    response_bytes: Option<usize>,
}

/// A deed of each connection of the crowd.
#[derive(Clone, Copy)]
enum Deed {
    Open,
    Ask,
}

/// The news from the stack.
#[derive(Default)]
struct News {
    accepted: Vec<ConnectionId>,
    received: Vec<(ConnectionId, usize)>,
    /// The bytes of the first response.
    first: Vec<u8>,
    acted: Vec<ConnectionId>,
    lost: Vec<(ConnectionId, Lost)>,
    ended: usize,
}

impl Application for News {
    fn accepted(&mut self, id: ConnectionId, _local: SocketAddr, _peer: SocketAddr) {
        self.accepted.push(id);
    }

    fn received(&mut self, id: ConnectionId, bytes: &[u8]) {
        self.received.push((id, bytes.len()));
        if self.first.len() < 64 * 1024 {
            self.first.extend_from_slice(bytes);
        }
    }

    fn acknowledged(&mut self, id: ConnectionId) {
        self.acted.push(id);
    }

    fn room(&mut self, id: ConnectionId) {
        self.acted.push(id);
    }

    fn ended(&mut self, _id: ConnectionId) {
        self.ended += 1;
    }

    fn lost(&mut self, id: ConnectionId, why: Lost) {
        self.lost.push((id, why));
    }
}

impl Clients {
    fn new(args: &Args) -> Result<Self, Error> {
        let options = Options {
            interface: args.interface.clone(),
            frames: Frames::Packet,
            services: Vec::new(),
            own_addresses: args.from.clone(),
        };
        let mut opened = netdev::open(&options).map_err(|error| error.to_string())?;
        let device = opened.queues.remove(0).start();
        let prefix = |ip: &IpAddr| if ip.is_ipv4() { 24 } else { 64 };
        let addresses =
            args.from.iter().map(|ip| Address { ip: *ip, prefix: prefix(ip), is_ours: true });
        let mut config = Config::new(device.mac());
        config.addresses = addresses.collect();
        config.connections_max = args.count + 100_000;
        let mut secret = [0; 16];
        getrandom(&mut secret, GetRandomFlags::empty()).map_err(|error| error.to_string())?;
        let ports = 1024..=u16::MAX;
        let ends = ports.flat_map(|port| args.from.iter().map(move |ip| (*ip, port)));
        let ends = ends.map(|local| Endpoints { local: local.into(), peer: args.server });
        let request = format!("GET {} HTTP/1.1\r\nHost: {}\r\n\r\n", args.path, args.server);
        Ok(Self {
            stack: Stack::new(config, secret, Time::default()),
            device,
            began: Instant::now(),
            news: News::default(),
            request: Box::leak(request.into_bytes().into_boxed_slice()),
            queues: HashMap::new(),
            all: Vec::new(),
            ends: ends.collect(),
            via: args.via,
            response_bytes: None,
        })
    }

    fn now(&self) -> Time {
        Time::default() + self.began.elapsed()
    }

    fn connect(&mut self) -> Result<ConnectionId, Error> {
        let ends = self.ends.pop_front().ok_or("more connections than addresses and ports")?;
        let now = self.now();
        let id = self.stack.connect(now, ends, Mac(self.via), &mut self.device);
        id.map_err(|error| format!("a connection from {}: {error:?}", ends.local))
    }

    fn ask(&mut self, id: ConnectionId) {
        self.queues.entry(id).or_default().push(self.request);
        self.drain(id);
    }

    fn drain(&mut self, id: ConnectionId) {
        let Some(queue) = self.queues.get_mut(&id) else { return };
        let now = Time::default() + self.began.elapsed();
        self.stack.drain(now, id, queue, &mut u64::MAX.clone(), &mut self.device);
        if queue.released() == queue.promised() {
            self.queues.remove(&id);
        }
    }

    /// Waits until something happens, and lets the stack handle it.
    fn turn(&mut self) -> Result<(), Error> {
        let mut now = self.now();
        self.stack.flush(now, &mut self.device);
        self.device.flush();
        let began = Instant::now();
        let mut frames = 0;
        loop {
            while frames < AT_ONCE
                && let Some(frame) = self.device.receive()
            {
                frames += 1;
                let checksum = frame.checksum();
                self.stack.handle_frame(now, &frame, checksum, &mut self.news, &mut self.device);
            }
            let timer = self.stack.next_timer();
            if timer.is_some_and(|timer| timer <= now) {
                self.stack.handle_timers(now, &mut self.news, &mut self.device);
            }
            if frames > 0 || self.news.has_any() {
                break;
            }
            if began.elapsed() > SILENCE_MAX {
                return Err(format!("{SILENCE_MAX:?} without an answer; {:?}", self.stack));
            }
            let wait = timer.map_or(SILENCE_MAX, |timer| timer.since(now));
            let wait = Timespec::try_from(wait).map_err(|error| error.to_string())?;
            poll(&mut [PollFd::new(&self.device.fd(), PollFlags::IN)], Some(&wait))
                .map_err(|error| error.to_string())?;
            now = self.now();
        }
        for id in mem::take(&mut self.news.acted) {
            self.drain(id);
        }
        match self.news.lost.first() {
            Some((_, why)) => Err(format!("a connection is lost: {why:?}")),
            None if self.news.ended > 0 => Err("the server has ended a connection".to_owned()),
            None => Ok(()),
        }
    }

    /// Connects one client after the other; each sends a request.
    fn newcomers(&mut self, count: u32) -> Result<Latency, Error> {
        let mut times = Vec::new();
        for _ in 0..count {
            let began = Instant::now();
            let id = self.connect()?;
            let mut left = None;
            while left != Some(0) {
                self.turn()?;
                for accepted in mem::take(&mut self.news.accepted) {
                    if accepted == id {
                        self.ask(id);
                    }
                }
                for (from, bytes) in mem::take(&mut self.news.received) {
                    if from == id {
                        let expected = self.expected()?;
                        left = Some(
                            left.or(expected).ok_or("a head that is cut")?.saturating_sub(bytes),
                        );
                    }
                }
            }
            times.push(began.elapsed());
            let now = self.now();
            self.stack.close(now, id, &mut self.device);
        }
        times.sort_unstable();
        Ok(Latency { p50: times[times.len() / 2], p99: times[times.len() * 99 / 100] })
    }

    /// The bytes of a response, once the head of the first one has come.
    fn expected(&mut self) -> Result<Option<usize>, Error> {
        if self.response_bytes.is_none() {
            let text = String::from_utf8_lossy(&self.news.first);
            if let Some((head, _)) = text.split_once("\r\n\r\n") {
                let lower = head.to_ascii_lowercase();
                let length = lower.lines().find_map(|line| line.strip_prefix("content-length:"));
                let length: usize = length
                    .and_then(|length| length.trim().parse().ok())
                    .ok_or("a response without a length")?;
                self.response_bytes = Some(head.len() + 4 + length);
            }
        }
        Ok(self.response_bytes)
    }

    /// Lets each client of the crowd do something, `at_once` at a time.
    fn each(&mut self, count: u32, at_once: usize, deed: Deed) -> Result<(), Error> {
        let count = count as usize;
        let (mut begun, mut done) = (0, 0);
        let mut left = HashMap::new();
        let expected = self.expected()?.ok_or("no response was seen")?;
        while done < count {
            while begun < count && begun - done < at_once {
                match deed {
                    Deed::Open => {
                        let id = self.connect()?;
                        self.all.push(id);
                    }
                    Deed::Ask => {
                        let id = self.all[begun];
                        left.insert(id, expected);
                        self.ask(id);
                    }
                }
                begun += 1;
            }
            self.turn()?;
            let accepted = mem::take(&mut self.news.accepted).len();
            let received = mem::take(&mut self.news.received);
            match deed {
                Deed::Open => done += accepted,
                Deed::Ask => {
                    for (id, bytes) in received {
                        let Some(rest) = left.get_mut(&id) else { continue };
                        *rest = rest.saturating_sub(bytes);
                        if *rest == 0 {
                            left.remove(&id);
                            done += 1;
                        }
                    }
                }
            }
        }
        Ok(())
    }
}

impl News {
    fn has_any(&self) -> bool {
        !(self.accepted.is_empty()
            && self.received.is_empty()
            && self.acted.is_empty()
            && self.lost.is_empty())
    }
}
