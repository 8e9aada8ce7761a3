//! Runs a program at an address, with a thread for each receive queue of the interface. If the address is the
//! kernel's, the program uses only the port.

use core::convert::Infallible;
use core::error::Error;
use core::net::SocketAddr;
use std::fs::File;
use std::io::{self, Read};
use std::net::UdpSocket;
use std::sync::mpsc;
use std::thread;

use netdev::{Frames, Options, Program, Protocol, Queue, Service};
use netstack::{Address, Config, Stack, Time};

/// The default frame path of an interface. A TAP device is recognised by its name: `tap…`.
pub(crate) fn frames_of(interface: &str) -> Frames {
    if interface.starts_with("tap") { Frames::Tap } else { Frames::Auto }
}

/// Serves an address and port by these protocols. The interface chooses the receive queue of each frame, so each
/// queue has a stack and a program of its own. Returns the first error of any queue.
pub(crate) fn run<P: Program + Send + 'static>(
    interface: &str,
    frames: Frames,
    local: SocketAddr,
    protocols: &[Protocol],
    program: impl Fn() -> P,
) -> Result<Infallible, Box<dyn Error>> {
    let is_ours = UdpSocket::bind((local.ip(), 0)).is_err();
    let services = protocols.iter().map(|&protocol| Service { protocol, local });
    let opened = netdev::open(&Options {
        interface: interface.to_owned(),
        frames,
        services: services.collect(),
        own_addresses: if is_ours { vec![local.ip()] } else { Vec::new() },
    })?;
    eprintln!("{}", opened.choice);
    let mut config = Config::new([0; 6]);
    let prefix = if local.is_ipv4() { 24 } else { 64 };
    config.addresses = vec![Address { ip: local.ip(), prefix, is_ours }];
    for protocol in protocols {
        match protocol {
            Protocol::Tcp => config.tcp_ports.push(local.port()),
            Protocol::Udp => config.udp_ports.push(local.port()),
        }
    }
    let (sender, errors) = mpsc::channel();
    for queue in opened.queues {
        let (config, mut program, sender) = (config.clone(), program(), sender.clone());
        thread::spawn(move || {
            let error = run_queue(queue, config, &mut program).unwrap_err();
            // If the receiver is gone, the process is about to end because of another error.
            let _ = sender.send(error);
        });
    }
    Err(errors.recv()?.into())
}

fn run_queue(queue: Queue, config: Config, program: &mut impl Program) -> io::Result<Infallible> {
    let mut secret = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut secret)?;
    let mut device = queue.start();
    let config = Config { mac: device.mac(), ..config };
    netdev::run(&mut device, &mut Stack::new(config, secret, Time::default()), program)
}
