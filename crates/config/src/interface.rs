//! The network interfaces on which samum's own TCP/IP stack serves.

use core::fmt;
use core::net::IpAddr;
use core::str::FromStr;
use std::path::PathBuf;

use super::Prefix;

/// A network interface whose listeners are served by samum's own TCP/IP stack.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interface {
    /// Its name, such as `eth1`.
    pub name: String,
    /// The addresses that only samum has there. If there are none, the kernel's addresses of the interface are
    /// served, and the kernel goes on to answer ARP and ping for them.
    pub addresses: Vec<InterfaceAddress>,
    /// The routers through which other networks are answered, for addresses that only samum has: one for each
    /// version of IP at most.
    pub gateways: Vec<IpAddr>,
}

impl Interface {
    /// Checks the gateways.
    ///
    /// # Errors
    ///
    /// A sentence for the operator, if two have one version of IP, or no address can reach one.
    pub fn check(&self) -> Result<(), String> {
        for (at, gateway) in self.gateways.iter().enumerate() {
            let is_same = |other: &IpAddr| other.is_ipv4() == gateway.is_ipv4();
            if self.gateways[..at].iter().any(is_same) {
                return Err(format!(
                    "gateway {gateway}: there is another one for this version of IP"
                ));
            }
            let mut own = self.addresses.iter().filter(|own| is_same(&own.address)).peekable();
            if own.peek().is_none() {
                return Err(format!(
                    "gateway {gateway}: it needs an address of the same version that only samum has"
                ));
            }
            let is_link_local =
                matches!(gateway, IpAddr::V6(gateway) if gateway.is_unicast_link_local());
            if !is_link_local && !own.any(|own| own.contains(*gateway)) {
                return Err(format!("gateway {gateway}: it is in the network of no address"));
            }
        }
        Ok(())
    }
}

/// An address of an interface, and the size of its network: `10.0.0.1/24`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InterfaceAddress {
    /// The address.
    pub address: IpAddr,
    /// The number of bits that the addresses of its network have in common.
    pub prefix: u8,
}

impl InterfaceAddress {
    fn contains(self, ip: IpAddr) -> bool {
        netstack::Address { ip: self.address, prefix: self.prefix, is_ours: true }.contains(ip)
    }
}

impl FromStr for InterfaceAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let read = || {
            let (address, prefix) = text.split_once('/')?;
            let (address, prefix) = (address.parse::<IpAddr>().ok()?, prefix.parse::<u8>().ok()?);
            let bits = if address.is_ipv4() { 32 } else { 128 };
            (1..=bits).contains(&prefix).then_some(Self { address, prefix })
        };
        read().ok_or_else(|| {
            "expected an address and the length of its network's prefix, such as 10.0.0.1/24 or fd00::1/64"
                .to_owned()
        })
    }
}

impl fmt::Display for InterfaceAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

/// The way of frames from and to an interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Frames {
    /// Frames are received by AF_XDP, and sent by AF_XDP or a packet socket, whichever a short measurement at the start
    /// finds to be cheaper
    #[default]
    Auto,
    /// AF_XDP in both directions
    Xdp,
    /// Frames are received by AF_XDP, and sent as large segments by a packet socket
    Packet,
    /// A TAP device, whose name is that of the interface; needs --address
    Tap,
}

/// The congestion control of samum's own TCP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Congestion {
    /// CUBIC: a loss means that the path is full
    #[default]
    Cubic,
    /// BBRv3: the rate follows what the path delivers, so that losses by chance cost little
    Bbr,
    /// NewReno: the older standard, for comparisons
    #[value(name = "newreno")]
    NewReno,
}

/// A record of the frames of all interfaces, in the format pcapng.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capture {
    /// The file. The files before it are FILE.1, FILE.2 and so on; the highest number is the oldest.
    pub file: PathBuf,
    /// A file that has this many bytes is followed by another one.
    pub bytes_max: u64,
    /// Files that are kept, with the one that is being written.
    pub files_max: u16,
    /// Only frames of these peers are recorded; of all, if there are none.
    pub peers: Vec<Prefix>,
}

impl Capture {
    /// The record of all peers, with the default limits.
    #[must_use]
    pub const fn new(file: PathBuf) -> Self {
        Self { file, bytes_max: 64 << 20, files_max: 4, peers: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(addresses: &[&str], gateways: &[&str]) -> Result<(), String> {
        let addresses = addresses.iter().map(|text| text.parse().unwrap()).collect();
        let gateways = gateways.iter().map(|text| text.parse().unwrap()).collect();
        Interface { name: "eth1".to_owned(), addresses, gateways }.check()
    }

    #[test]
    fn a_gateway_is_in_the_network_of_an_address() {
        let own = ["10.0.0.1/24", "fd00::1/64"];
        assert_eq!(checked(&[], &[]), Ok(()));
        assert_eq!(checked(&own, &["10.0.0.254", "fd00::ff"]), Ok(()));
        assert_eq!(checked(&own, &["fe80::1"]), Ok(()));
        let wrong = |addresses: &[&str], gateways: &[&str], what: &str| {
            let error = checked(addresses, gateways).unwrap_err();
            assert!(error.contains(what), "{gateways:?}: {error}");
        };
        wrong(&own, &["10.0.1.1"], "in the network of no address");
        wrong(&own, &["fd00:0:0:1::1"], "in the network of no address");
        wrong(&own[..1], &["fe80::1"], "needs an address of the same version");
        wrong(&[], &["10.0.0.254"], "needs an address of the same version");
        wrong(&own, &["10.0.0.254", "10.0.0.253"], "another one for this version of IP");
    }

    #[test]
    fn addresses_have_the_prefix_of_their_network() {
        for text in ["10.0.0.1/24", "10.0.0.1/32", "fd00::1/64", "fd00::1/128"] {
            assert_eq!(text.parse::<InterfaceAddress>().unwrap().to_string(), text);
        }
        for text in ["10.0.0.1", "10.0.0.1/0", "10.0.0.1/33", "fd00::1/129", "eth0/24", "/24", ""] {
            let error = text.parse::<InterfaceAddress>().unwrap_err();
            assert!(error.contains("such as 10.0.0.1/24"), "{text}: {error}");
        }
    }
}
