//! Network interfaces whose listeners are served by samum's own TCP/IP stack.
//!
//! `plan` assigns listeners to interfaces, and `netdev` opens the interfaces. Each of their receive queues has a worker
//! with a stack of its own:
//!
//! ```text
//!   Device ──frames──► Stack ──news──► StackNetwork ──events──► worker
//!     ▲                  ▲                                         │
//!     └──────frames──────┴───────drain──── StackTransport ◄────────┘
//! ```
//!
//! A connection lives on one core. A frame is handled to its end, session and response included, before the next frame
//! is handled. Frames to be sent leave in one batch before the worker waits. Received bytes are parts of the frame,
//! without a copy. A connection that has nothing left to send is closed with a FIN, any other connection with a reset.
//! Sockets of the kernel that do not listen hold the ports. So a second server fails as at any port, and after the
//! server's death the kernel refuses connections.

#![forbid(unsafe_code)]

mod capture;
mod connections;
mod listening;
mod network;
mod news;
mod plan;
mod polls;
mod rate;
mod report;
mod strays;
mod transport;
mod wire;

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;
use std::collections::{HashMap, HashSet};
use std::os::fd::OwnedFd;

use netdev::{Options, Protocol, Queue, Service, Watch};
use netstack::tcp::Algorithm;
use netstack::{Config, Gateway, Stack};
use ring::Ring;

use capture::{Files, Port, Recorder};
use config::{Address, Congestion, Frames, Interface, Listen, Server};
pub use network::StackNetwork;
use news::News;
use plan::{Addressed, Local};
use strays::Strays;
pub use transport::StackTransport;

/// Connections of a stack that may wait for a slot in the worker, in addition to those that have one.
const BACKLOG: u32 = 4096;
/// The least time without an acknowledgement after which a connection is lost. The time of a client is the session's
/// matter (`--timeout-send`).
const PATIENCE: Duration = Duration::from_secs(100);

/// Opens a socket of the kernel that does not listen, and keeps a port from other programs.
type Reserve = fn(SocketAddr) -> Result<OwnedFd, String>;

/// The interfaces of a server, which are open.
#[derive(Debug)]
pub struct Interfaces {
    /// The listeners that the kernel serves.
    pub kernel: Vec<(u32, Listen)>,
    /// The values that the workers need, one for each receive queue.
    pub seeds: Vec<Seed>,
    /// Sentences for the operator about the addresses and the drivers of the frames.
    pub said: Vec<String>,
    /// Sockets of the kernel that hold the ports of the interfaces, so that a second server at such a port fails as at
    /// any other.
    pub reserved: HashMap<SocketAddr, OwnedFd>,
    /// The interfaces and their addresses.
    pub owners: Owners,
}

/// The addresses of the interfaces.
#[derive(Debug)]
pub struct Owners {
    /// The addresses by the names of the interfaces.
    addresses: Vec<(String, Vec<IpAddr>)>,
    /// The addresses that the interfaces took at the start, and keep until the end.
    locals: HashSet<SocketAddr>,
}

/// The values with which a worker of an interface begins.
#[derive(Debug)]
pub struct Seed {
    /// The interface and its receive queue.
    name: String,
    queue: Queue,
    /// `Some` for the first queue of an interface.
    watch: Option<Watch>,
    /// `Some` if the interface has other queues.
    strays: Option<Strays>,
    config: Config,
    /// `Some` if frames are recorded.
    record: Option<(Files, config::Capture)>,
    locals: Vec<Local>,
}

impl Interfaces {
    /// Opens the interfaces for their listeners. Without interfaces all listeners are the kernel's. `reserve` keeps ports of
    /// the kernel's addresses from other programs.
    ///
    /// # Errors
    ///
    /// A message for the operator.
    pub fn open(
        server: &Server,
        listeners: &[(u32, Listen)],
        reserve: Reserve,
    ) -> Result<Self, String> {
        let mut names = Vec::new();
        for interface in &server.interfaces {
            names.push((interface.name.clone(), addresses_of(interface, server.frames)?));
        }
        let mut owners = Owners { addresses: names, locals: HashSet::new() };
        let plan = plan::divide(listeners, &owners.addressed())?;
        owners.locals.extend(plan.interfaces.iter().flatten().map(|(_, local)| *local));
        let (kernel, seeds, said, reserved) = (plan.kernel, Vec::new(), Vec::new(), HashMap::new());
        let mut opened = Self { kernel, seeds, said, reserved, owners };
        for (interface, locals) in server.interfaces.iter().zip(plan.interfaces) {
            opened.add(interface, locals, server, listeners, reserve)?;
        }
        Ok(opened)
    }

    fn add(
        &mut self,
        interface: &Interface,
        locals: Vec<Local>,
        server: &Server,
        listeners: &[(u32, Listen)],
        reserve: Reserve,
    ) -> Result<(), String> {
        let is_ours = !interface.addresses.is_empty();
        if !is_ours {
            for (_, local) in &locals {
                // The kernel listens at this port itself for a listener at all addresses.
                let is_kernels =
                    self.kernel.iter().any(|(_, other)| plan::is_all(&other.address, *local));
                // The kernel may list an address twice.
                if !is_kernels && !self.reserved.contains_key(local) {
                    self.reserved.insert(*local, reserve(*local)?);
                }
            }
        }
        let service = |(_, local): &Local| Service { protocol: Protocol::Tcp, local: *local };
        let options = Options {
            interface: interface.name.clone(),
            frames: frames(server.frames),
            services: locals.iter().map(service).collect(),
            own_addresses: interface.addresses.iter().map(|own| own.address).collect(),
        };
        let opened = netdev::open(&options).map_err(|error| error.to_string())?;
        let addresses = if is_ours {
            interface.addresses.iter().map(|own| (own.address, own.prefix)).collect()
        } else {
            opened.interface.addresses
        };
        let is_alone = server.interfaces.len() == 1 && opened.queues.len() == 1;
        let mut ports: Vec<u16> = locals.iter().map(|(_, local)| local.port()).collect();
        ports.sort_unstable();
        ports.dedup();
        let connections = u32::try_from(server.tuning.connections_max).unwrap_or(u32::MAX);
        let gateways: Vec<_> = interface.gateways.iter().copied().map(Gateway::new).collect();
        let mut watch = Some(opened.watch);
        let strays = Strays::of_queues(opened.queues.len());
        for (number, (queue, strays)) in opened.queues.into_iter().zip(strays).enumerate() {
            let name = format!("{}, queue {number}", interface.name);
            let record = server.capture.as_ref().map(|capture| {
                let path = if is_alone {
                    capture.file.clone()
                } else {
                    capture::path_of(&capture.file, &interface.name, number)
                };
                Ok::<_, String>((Files::open(path, capture.files_max)?, capture.clone()))
            });
            let config = Config {
                addresses: addresses
                    .iter()
                    .map(|(ip, prefix)| netstack::Address { ip: *ip, prefix: *prefix, is_ours })
                    .collect(),
                gateways: gateways.clone(),
                tcp_ports: ports.clone(),
                connections_max: connections.saturating_add(BACKLOG),
                congestion: congestion(server.congestion),
                patience: PATIENCE.max(server.tuning.timeout_send),
                // The device knows its own link address.
                ..Config::new([0; 6])
            };
            self.seeds.push(Seed {
                name,
                queue,
                watch: watch.take(),
                strays,
                config,
                record: record.transpose()?,
                locals: locals.clone(),
            });
        }
        for (number, local) in &locals {
            let tls = listeners.iter().any(|(other, listen)| other == number && listen.tls);
            let url = config::url(*local, tls);
            self.said.push(format!("interface {}: listening on {url}", interface.name));
        }
        self.said.push(opened.choice);
        Ok(())
    }
}

impl Owners {
    /// Returns the name of the interface that alone serves a listener.
    pub fn owner(&self, listener: &Address) -> Option<&str> {
        plan::owner(listener, &self.addressed())
    }

    /// Returns the address of a listener that an interface has taken since the start, even if it is not served now.
    pub fn taken(&self, listener: &Address) -> Option<SocketAddr> {
        let Address::Ip(ip) = listener else { return None };
        self.locals.get(ip).copied()
    }

    fn addressed(&self) -> Vec<Addressed<'_>> {
        self.addresses.iter().map(|(name, addresses)| Addressed { name, addresses }).collect()
    }
}

impl Seed {
    /// Begins to serve, on the thread of the worker.
    ///
    /// # Errors
    ///
    /// A message for the operator.
    pub fn start(mut self, ring: &Ring) -> Result<StackNetwork, String> {
        let mut secret = [0; 16];
        let got = rustix::rand::getrandom(&mut secret, rustix::rand::GetRandomFlags::empty());
        got.map_err(|error| format!("cannot get random bytes: {error}"))?;
        let device = self.queue.start();
        self.config.mac = device.mac();
        let now = wire::time(ring.now());
        let recorder = self.record.map(|(files, settings)| {
            let (seconds, nanos) = ring.unix_clock();
            let unix =
                u64::try_from(seconds).unwrap_or_default() * 1_000_000_000 + u64::from(nanos);
            let epoch = unix.saturating_sub(now.as_nanos());
            Recorder::start(files, &settings, &self.name, epoch).map(Box::new)
        });
        let recorder = recorder.transpose();
        let recorder = recorder.map_err(|error| format!("cannot start a thread: {error}"))?;
        let port = Port { device, recorder, now };
        let stack = Stack::new(self.config, secret, now);
        let news = News::new(self.strays);
        StackNetwork::new(self.name, ring, stack, port, news, self.locals, self.watch)
            .map_err(|error| format!("cannot use an interface: {error}"))
    }
}

/// The addresses that an interface serves: its own ones, or those of the kernel.
fn addresses_of(interface: &Interface, frames: Frames) -> Result<Vec<IpAddr>, String> {
    if !interface.addresses.is_empty() {
        return Ok(interface.addresses.iter().map(|own| own.address).collect());
    }
    if frames == Frames::Tap {
        let name = &interface.name;
        return Err(format!(
            "interface {name}: a TAP device is a cable, and its addresses are those of the kernel's end; add \
             --address ADDR/PREFIX (`addresses`) for this end, another one of the same network, and --listen ADDR:PORT"
        ));
    }
    let found = netdev::Interface::open(&interface.name).map_err(|error| error.to_string())?;
    Ok(found.addresses.into_iter().map(|(address, _)| address).collect())
}

/// Checks if an interface exists.
///
/// # Errors
///
/// A message for the operator.
pub fn probe(interface: &Interface, frames: Frames) -> Result<(), String> {
    addresses_of(interface, frames)?;
    netdev::Interface::open(&interface.name).map(drop).map_err(|error| error.to_string())
}

const fn congestion(congestion: Congestion) -> Algorithm {
    match congestion {
        Congestion::Cubic => Algorithm::Cubic,
        Congestion::Bbr => Algorithm::Bbr,
        Congestion::NewReno => Algorithm::NewReno,
    }
}

const fn frames(frames: Frames) -> netdev::Frames {
    match frames {
        Frames::Auto => netdev::Frames::Auto,
        Frames::Xdp => netdev::Frames::Xdp,
        Frames::Packet => netdev::Frames::Packet,
        Frames::Tap => netdev::Frames::Tap,
    }
}
