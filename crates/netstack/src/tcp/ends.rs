//! The ends of a connection as bytes, for hashes.

use core::net::IpAddr;

use super::handshake::Endpoints;

/// Both ends of a connection as bytes: 12 for IPv4, 36 for IPv6.
pub(crate) struct EndpointBytes {
    bytes: [u8; 36],
    len: usize,
}

impl EndpointBytes {
    #[inline]
    pub(crate) fn new(endpoints: &Endpoints) -> Self {
        let mut all = Self { bytes: [0; 36], len: 0 };
        for end in [endpoints.local, endpoints.peer] {
            all.add_address(end.ip());
            all.add(end.port().to_be_bytes());
        }
        all
    }

    /// The bytes of the addresses, without the ports.
    pub(crate) fn of_addresses(endpoints: &Endpoints) -> Self {
        let mut all = Self { bytes: [0; 36], len: 0 };
        all.add_address(endpoints.local.ip());
        all.add_address(endpoints.peer.ip());
        all
    }

    #[inline]
    fn add_address(&mut self, ip: IpAddr) {
        match ip {
            IpAddr::V4(ip) => self.add(ip.octets()),
            IpAddr::V6(ip) => self.add(ip.octets()),
        }
    }

    #[inline]
    fn add<const N: usize>(&mut self, bytes: [u8; N]) {
        self.bytes[self.len..][..N].copy_from_slice(&bytes);
        self.len += N;
    }
}

impl core::ops::Deref for EndpointBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}
