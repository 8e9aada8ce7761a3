//! The MTU of paths, as routers have told it (RFC 1191, RFC 8201).

use core::net::IpAddr;
use core::time::Duration;

use crate::cache::Cache;
use crate::time::Time;

/// The MTUs of paths that are smaller than the interface's.
#[derive(Debug)]
pub(crate) struct PathMtus(Cache<Entry>);

#[derive(Clone, Copy, Debug)]
struct Entry {
    mtu: u16,
    until: Time,
}

/// The most peers with such a path. If one is replaced, its next connection learns the MTU again.
const PEERS_MAX: usize = 1024;

/// How long an MTU is believed: after that, larger packets are tried (RFC 1191, 6.3; RFC 8201, 5.3).
const AGE_MAX: Duration = Duration::from_secs(10 * 60);

/// The least MTU that is believed with IPv4: every host takes packets of this size (RFC 791, 3.1), and an
/// attacker that makes packets smaller makes the server slow (RFC 5927, 7.1).
pub(crate) const MIN_V4: u16 = 576;
/// With IPv6, every link has at least this MTU (RFC 8200, 5).
pub(crate) const MIN_V6: u16 = 1280;

impl PathMtus {
    pub(crate) fn new(key: u64) -> Self {
        Self(Cache::new(PEERS_MAX, key))
    }

    /// The MTU of the path to the peer, if it is known to be smaller than the interface's.
    pub(crate) fn get(&self, now: Time, peer: IpAddr) -> Option<u16> {
        self.0.get(peer).filter(|entry| now < entry.until).map(|entry| entry.mtu)
    }

    /// A router has told a smaller MTU. The caller has found that the quoted segment is really in flight
    /// (RFC 5927, 4.1): otherwise anybody could say so.
    pub(crate) fn lower(&mut self, now: Time, peer: IpAddr, mtu: u16) {
        let mtu = self.get(now, peer).map_or(mtu, |known| known.min(mtu));
        self.0.set(peer, Entry { mtu, until: now + AGE_MAX });
    }
}

/// The MTU that is believed when a router says `mtu` for a packet of `packet_bytes`; `None` if the message
/// says nothing that can be true.
pub(crate) fn believed(is_v4: bool, mtu: u32, packet_bytes: u16) -> Option<u16> {
    if !is_v4 {
        // RFC 8201, 4: a smaller one is discarded.
        return u16::try_from(mtu).ok().filter(|mtu| *mtu >= MIN_V6);
    }
    if mtu == 0 {
        // The router is older than RFC 1191: the next lower plateau is tried (5).
        let next = PLATEAUS.into_iter().find(|plateau| *plateau < packet_bytes);
        return Some(next.unwrap_or(MIN_V4));
    }
    u16::try_from(mtu).ok().map(|mtu| mtu.max(MIN_V4))
}

/// The MTUs of common links (RFC 1191, 7.1), from the largest down to the least that is believed.
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
