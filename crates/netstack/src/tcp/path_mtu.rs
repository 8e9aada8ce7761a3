//! The MTU of paths as routers report it (RFC 1191, RFC 8201), with doubt about reports that may be forged (RFC
//! 5927, 7.2).
//!
//! An attacker that knows the numbers of a connection can forge a report. While segments of full size arrive, a report
//! that calls them too long is *doubted*. If the quoted segment is acknowledged before the retransmission timeout, the
//! report is dropped; otherwise it is believed. Before the first segment of full size has arrived, a report is
//! believed at once. Such a belief ends when the peer's timestamps show that the quoted segments arrived. A believed
//! MTU ages, for open connections, too.

use core::net::IpAddr;
use core::time::Duration;

use crate::cache::Cache;
use crate::seq::SeqNumber;
use crate::time::Time;

/// The MTUs of paths that are smaller than the interface's.
#[derive(Debug)]
pub(crate) struct PathMtus {
    peers: Cache<Entry>,
    /// The time at which the last of them is too old. Most stacks never know such a path, and then need no look-up.
    until: Time,
}

/// A router's report about a connection whose whole segments arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Doubted {
    /// The first sequence number of the quoted segment.
    pub(super) seq: SeqNumber,
    /// The reported MTU of the path.
    pub(super) mtu: u16,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    mtu: u16,
    until: Time,
}

/// The maximum number of peers with such a path. If a peer is replaced, its next connection learns the MTU again.
const PEERS_MAX: usize = 1024;

/// The time for which an MTU is believed. Then larger packets are tried (RFC 1191, 6.3; RFC 8201, 5.3), as in Linux
/// (`net.ipv4.route.mtu_expires`).
pub(super) const AGE_MAX: Duration = Duration::from_secs(10 * 60);

/// The minimum MTU that is believed with IPv4: every host accepts packets of this size (RFC 791, 3.1). With smaller
/// packets an attacker could slow the server down (RFC 5927, 7.1). Linux believes 552 (`net.ipv4.route.min_pmtu`).
pub(crate) const MIN_V4: u16 = 576;
/// The minimum MTU with IPv6: every link has at least this MTU (RFC 8200, 5).
pub(crate) const MIN_V6: u16 = 1280;

/// The report that has shortened the segments of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Believed {
    /// The first sequence number of the quoted segment. If the report is true, no segment of its length from there
    /// on arrives.
    pub(super) seq: SeqNumber,
    /// The end of the bytes sent before the report.
    pub(super) until: SeqNumber,
    /// The time of the report: milliseconds of the stack's clock, modulo 2³². All bytes are retransmitted from then
    /// on.
    pub(super) at_ms: u32,
}

impl Believed {
    /// True if an acknowledgement shows that the report is false. The acknowledgement covers bytes from `before` on,
    /// and its segment was sent at `echo_ms`. The report is false if a segment arrived that was sent before the report
    /// and is not in front of the quoted segment.
    pub(super) fn is_refuted(&self, before: SeqNumber, echo_ms: u32) -> bool {
        !before.is_before(self.seq)
            && before.is_before(self.until)
            && echo_ms.wrapping_sub(self.at_ms).cast_signed() < 0
    }
}

impl PathMtus {
    pub(crate) fn new(key: u64) -> Self {
        Self { peers: Cache::new(PEERS_MAX, key), until: Time::from_nanos(0) }
    }

    /// The MTU of the path to the peer, if it is known to be smaller than the interface's.
    pub(crate) fn get(&self, now: Time, peer: IpAddr) -> Option<u16> {
        self.known(now, peer).map(|(mtu, _)| mtu)
    }

    /// The same MTU, and the time until which it is believed.
    pub(super) fn known(&self, now: Time, peer: IpAddr) -> Option<(u16, Time)> {
        if now >= self.until {
            return None;
        }
        self.peers.get(peer).filter(|entry| now < entry.until).map(|entry| (entry.mtu, entry.until))
    }

    /// Drops the MTU of the path to a peer, because its report was false.
    pub(super) fn forget(&mut self, now: Time, peer: IpAddr) {
        if self.known(now, peer).is_some() {
            self.peers.set(peer, Entry { mtu: u16::MAX, until: now });
        }
    }

    /// Records a smaller MTU that a router has reported. The caller has checked that the quoted segment is in
    /// flight (RFC 5927, 4.1), because any host could send such a report. Returns the time until which the MTU is
    /// believed.
    pub(crate) fn lower(&mut self, now: Time, peer: IpAddr, mtu: u16) -> Time {
        let mtu = self.get(now, peer).map_or(mtu, |known| known.min(mtu));
        self.until = now + AGE_MAX;
        self.peers.set(peer, Entry { mtu, until: self.until });
        self.until
    }
}

/// The MTU to believe when a router reports `mtu` for a packet of `packet_bytes`; `None` if the report cannot be
/// true.
pub(crate) fn believed(is_v4: bool, mtu: u32, packet_bytes: u16) -> Option<u16> {
    if !is_v4 {
        // RFC 8201, 4: a smaller MTU is discarded.
        return u16::try_from(mtu).ok().filter(|mtu| *mtu >= MIN_V6);
    }
    if mtu == 0 {
        // The router is older than RFC 1191: the next lower plateau is tried (5).
        let next = PLATEAUS.into_iter().find(|plateau| *plateau < packet_bytes);
        return Some(next.unwrap_or(MIN_V4));
    }
    u16::try_from(mtu).ok().map(|mtu| mtu.max(MIN_V4))
}

/// The MTUs of common links (RFC 1191, 7.1), from the largest down to the minimum that is believed.
const PLATEAUS: [u16; 8] = [32_000, 17_914, 8_166, 4_352, 2_002, 1_492, 1_006, MIN_V4];

#[cfg(test)]
mod tests {
    use core::net::Ipv4Addr;

    use super::*;

    #[test]
    fn an_mtu_only_gets_smaller_until_it_is_too_old() {
        let mut mtus = PathMtus::new(5);
        let peer = IpAddr::from(Ipv4Addr::new(192, 0, 2, 1));
        let start = Time::from_nanos(9);
        assert_eq!(mtus.get(start, peer), None);
        mtus.lower(start, peer, 1400);
        mtus.lower(start, peer, 1450);
        assert_eq!(mtus.get(start, peer), Some(1400));
        let later = start + AGE_MAX / 2;
        mtus.lower(later, peer, 1300);
        assert_eq!(mtus.get(start + AGE_MAX, peer), Some(1300));
        assert_eq!(mtus.get(later + AGE_MAX, peer), None);
        mtus.lower(later + AGE_MAX, peer, 1450);
        assert_eq!(mtus.get(later + AGE_MAX, peer), Some(1450));
    }

    #[test]
    fn rfc1191_what_is_believed_with_ipv4() {
        for (mtu, packet_bytes, expected) in [
            (1400, 1500, Some(1400)),
            (576, 1500, Some(576)),
            (68, 1500, Some(576)),
            (1, 1500, Some(576)),
            (70_000, 1500, None),
            (0, 1500, Some(1492)),
            (0, 1492, Some(1006)),
            (0, 65_535, Some(32_000)),
            (0, 600, Some(576)),
            (0, 40, Some(576)),
        ] {
            assert_eq!(believed(true, mtu, packet_bytes), expected, "{mtu} {packet_bytes}");
        }
    }

    #[test]
    fn rfc8201_4_what_is_believed_with_ipv6() {
        for (mtu, expected) in
            [(1280, Some(1280)), (1279, None), (0, None), (1400, Some(1400)), (1 << 20, None)]
        {
            assert_eq!(believed(false, mtu, 1500), expected, "{mtu}");
        }
    }
}
