//! Hosts with receive windows that never limit a flow, so that only congestion control is measured.

use core::net::Ipv4Addr;

use netstack::sim::{Device, Host, mac};
use netstack::tcp::Algorithm;
use netstack::{Address, Config, Limits, Time};

/// The time at which a simulation begins.
pub(crate) const START: Time = Time::from_nanos(1_000_000_000);

/// The host 10.0.0.`index`, which serves port 80 with this congestion control.
pub(crate) fn host(index: u8, congestion: Algorithm) -> Host {
    let ip = Ipv4Addr::new(10, 0, 0, index);
    let config = Config {
        addresses: vec![Address { ip: ip.into(), prefix: 24, is_ours: true }],
        tcp_ports: vec![80],
        receive_bytes_max: 4 * 1024 * 1024,
        ecn: false,
        congestion,
        ..Config::new(mac(ip.into()))
    };
    let limits = Limits { mtu: 1500, cut_bytes_max: 65_000, fills_checksums: true };
    Host::new(config, Device::new(limits, usize::MAX), [index; 16], START)
}
