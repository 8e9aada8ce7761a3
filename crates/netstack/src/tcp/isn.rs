//! Numbers that a peer must not predict: initial sequence numbers (RFC 6528) and the offsets of timestamps (RFC
//! 7323, 5.4).

use super::ends::EndpointBytes;
use super::handshake::Endpoints;
use crate::seq::SeqNumber;
use crate::siphash::Key;
use crate::time::Time;

/// The keys of the numbers that begin a connection.
pub(crate) struct Isn {
    sequence: Key,
    timestamps: Key,
}

impl Isn {
    pub(crate) fn new(secret: Key) -> Self {
        Self { sequence: secret.derive(b's'), timestamps: secret.derive(b't') }
    }

    /// The initial sequence number: a clock of 4 µs plus a hash of both ends (RFC 6528, 3). A later connection of
    /// the same ends begins after an earlier one, if the earlier one sent less than 250 kB/s.
    #[expect(clippy::cast_possible_truncation, reason = "both are circles of 32 bits")]
    pub(crate) fn number(&self, now: Time, endpoints: &Endpoints) -> SeqNumber {
        let hash = self.sequence.keyed(&EndpointBytes::new(endpoints)) as u32;
        SeqNumber(hash) + (now.as_nanos() / 4096) as u32
    }

    /// The offset of our timestamps towards a peer. The offset is the same for all connections with the peer, so
    /// that the peer can compare timestamps of two connections (RFC 6191).
    #[expect(clippy::cast_possible_truncation, reason = "timestamps are a circle of 32 bits")]
    pub(crate) fn timestamp_offset(&self, endpoints: &Endpoints) -> u32 {
        self.timestamps.keyed(&EndpointBytes::of_addresses(endpoints)) as u32
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;

    fn ends(port: u16, peer: &str) -> Endpoints {
        let (local, peer) = ("192.0.2.1:80", peer);
        Endpoints {
            local: local.parse().expect("an address"),
            peer: core::net::SocketAddr::new(peer.parse().expect("an address"), port),
        }
    }

    #[test]
    fn rfc6528_3_numbers_differ_by_ends_and_grow_with_the_clock() {
        let isn = Isn::new(Key::new(*b"0123456789abcdef"));
        let other = Isn::new(Key::new(*b"0123456789abcdeg"));
        let now = Time::from_nanos(1 << 40);
        let first = isn.number(now, &ends(1, "192.0.2.9"));
        assert_ne!(first, isn.number(now, &ends(2, "192.0.2.9")));
        assert_ne!(first, isn.number(now, &ends(1, "192.0.2.8")));
        assert_ne!(first, other.number(now, &ends(1, "192.0.2.9")));
        let later = isn.number(now + Duration::from_secs(1), &ends(1, "192.0.2.9"));
        assert!((240_000..260_000).contains(&(later - first)));
    }

    #[test]
    fn rfc7323_5_4_timestamps_are_offset_by_peer() {
        let isn = Isn::new(Key::new(*b"0123456789abcdef"));
        let offset = isn.timestamp_offset(&ends(1, "192.0.2.9"));
        assert_eq!(offset, isn.timestamp_offset(&ends(2, "192.0.2.9")));
        assert_ne!(offset, isn.timestamp_offset(&ends(1, "192.0.2.8")));
    }
}
