//! Opens an interface and begins a stack there, for an address that the kernel does not own.

use core::error::Error;
use core::net::SocketAddr;
use std::fs::File;
use std::io::Read;

use netdev::{Device, Frames, Options, Protocol, Service};
use netstack::{Address, Config, Stack, Time};

/// The way of the frames if the user names none. A TAP device is known by its name: `tap…`.
pub(crate) fn frames_of(interface: &str) -> Frames {
    if interface.starts_with("tap") { Frames::Tap } else { Frames::Auto }
}

/// A device and a stack that serve an address and port by these protocols.
pub(crate) fn start(
    interface: &str,
    frames: Frames,
    local: SocketAddr,
    protocols: &[Protocol],
) -> Result<(Device, Stack), Box<dyn Error>> {
    let services = protocols.iter().map(|&protocol| Service { protocol, local });
    let mut opened = netdev::open(&Options {
        interface: interface.to_owned(),
        frames,
        services: services.collect(),
        own_addresses: vec![local.ip()],
    })?;
    eprintln!("{}", opened.choice);
    let device = opened.queues.remove(0).start();

    let mut config = Config::new(device.mac());
    config.addresses = vec![Address { ip: local.ip(), prefix: 24, is_ours: true }];
    for protocol in protocols {
        match protocol {
            Protocol::Tcp => config.tcp_ports.push(local.port()),
            Protocol::Udp => config.udp_ports.push(local.port()),
        }
    }
    let mut secret = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut secret)?;
    Ok((device, Stack::new(config, secret, Time::default())))
}
