//! SYN cookies (Bernstein 1996; RFC 4987, 3.6): a handshake that needs no memory.
//!
//! The initial sequence number of the SYN,ACK is the cookie: a keyed hash of both ends, of the peer's initial number
//! and of a period of 64 s, with the index of the MSS in a table. The acknowledgement returns the cookie. The low bits of the
//! SYN,ACK's timestamp hold the peer's other options, and the acknowledgement echoes them, as in Linux. Without
//! timestamps there is no window scaling and no SACK. The stack keeps no state, so it retransmits nothing. If the
//! peer's acknowledgement was lost, the peer's first bytes return the cookie. A peer that waits for the server's first
//! bytes finds out only by its keepalive that there is no connection.
//!
//! ```text
//! sequence number   31 ────────────── 3 2 ─── 0      timestamp   31 ───── 6   5    4   3 ── 0
//!                   29 bits of the hash  MSS                     the clock  ECN SACK  shift, 15: none
//! ```

use core::time::Duration;

use super::ends::EndpointBytes;
use super::half_open::Offer;
use super::handshake::Endpoints;
use crate::seq::SeqNumber;
use crate::siphash::Key;
use crate::time::Time;

/// Makes and checks cookies.
pub(crate) struct Cookies {
    key: Key,
    /// The time of the last cookie. Acknowledgements are checked only while a cookie may come back.
    last_made: Option<Time>,
}

/// A cookie is valid in its period and the next period.
const PERIOD: Duration = Duration::from_secs(64);
/// A peer gets the greatest MSS of this table that is not above its own. The first is the minimum in use; the
/// others are frequent (Linux: `msstab`).
const MSS: [u16; 8] = [88, 536, 1220, 1300, 1360, 1400, 1440, 1460];
const MSS_BITS: u32 = 0b111;

const SHIFT_BITS: u32 = 0b1111;
const SACK_BIT: u32 = 1 << 4;
const ECN_BIT: u32 = 1 << 5;
const OPTION_BITS: u32 = 0b11_1111;

impl Cookies {
    pub(crate) fn new(secret: Key) -> Self {
        Self { key: secret.derive(b'c'), last_made: None }
    }

    /// The initial sequence number of a SYN,ACK.
    pub(crate) fn make(
        &mut self,
        now: Time,
        ends: &Endpoints,
        irs: SeqNumber,
        mss: u16,
    ) -> SeqNumber {
        self.last_made = Some(now);
        let place = MSS.partition_point(|one| *one <= mss).saturating_sub(1);
        SeqNumber(self.hash(period(now), ends, irs) & !MSS_BITS | u32::try_from(place).unwrap_or(0))
    }

    /// True if a cookie may still come back.
    pub(crate) fn are_out(&self, now: Time) -> bool {
        self.last_made.is_some_and(|made| now.since(made) < 2 * PERIOD)
    }

    /// The MSS of the peer, if `iss` is a cookie of this period or the last.
    pub(crate) fn check(
        &self,
        now: Time,
        ends: &Endpoints,
        irs: SeqNumber,
        iss: SeqNumber,
    ) -> Option<u16> {
        if !self.are_out(now) {
            return None;
        }
        let this = period(now);
        let is_ours = |period| self.hash(period, ends, irs) & !MSS_BITS == iss.0 & !MSS_BITS;
        (is_ours(this) || this > 0 && is_ours(this - 1)).then_some(MSS[(iss.0 & MSS_BITS) as usize])
    }

    #[expect(clippy::cast_possible_truncation, reason = "a hash of 32 bits")]
    fn hash(&self, period: u64, ends: &Endpoints, irs: SeqNumber) -> u32 {
        let mut bytes = [0; 48];
        bytes[..8].copy_from_slice(&period.to_be_bytes());
        bytes[8..12].copy_from_slice(&irs.0.to_be_bytes());
        let ends = EndpointBytes::new(ends);
        bytes[12..][..ends.len()].copy_from_slice(&ends);
        self.key.keyed(&bytes[..12 + ends.len()]) as u32
    }
}

const fn period(now: Time) -> u64 {
    now.as_nanos() / (PERIOD.as_secs() * 1_000_000_000)
}

/// The timestamp of a SYN,ACK, with the peer's offer in its low bits. The timestamp is at most 64 ms in the past
/// and never in the future, because the next timestamp must not be before it.
pub(crate) fn timestamp(clock: u32, offer: &Offer) -> u32 {
    let shift = offer.window_scale.map_or(SHIFT_BITS, u32::from);
    let sack = if offer.sack { SACK_BIT } else { 0 };
    let ecn = if offer.ecn { ECN_BIT } else { 0 };
    let value = clock & !OPTION_BITS | shift | sack | ecn;
    if value.wrapping_sub(clock).cast_signed() > 0 {
        value.wrapping_sub(OPTION_BITS + 1)
    } else {
        value
    }
}

/// The offer that [`timestamp`] stored, from the acknowledgement's echo.
pub(crate) fn offer(mss: u16, timestamps: Option<(u32, u32)>) -> Offer {
    let Some((value, echo)) = timestamps else {
        return Offer { mss, window_scale: None, sack: false, timestamp: None, ecn: false };
    };
    Offer {
        mss,
        // A shift of 15 is not valid (RFC 7323, 2.3), and means no window scaling here.
        window_scale: u8::try_from(echo & SHIFT_BITS).ok().filter(|shift| *shift <= 14),
        sack: echo & SACK_BIT != 0,
        timestamp: Some(value),
        ecn: echo & ECN_BIT != 0,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ends(port: u16) -> Endpoints {
        Endpoints {
            local: "192.0.2.1:80".parse().expect("an address"),
            peer: core::net::SocketAddr::from(([192, 0, 2, 9], port)),
        }
    }

    fn at(seconds: u64) -> Time {
        Time::from_nanos(seconds * 1_000_000_000)
    }

    #[test]
    fn rfc4987_3_6_a_cookie_is_good_for_its_ends_its_number_and_its_time_only() {
        let mut cookies = Cookies::new(Key::new(*b"0123456789abcdef"));
        let irs = SeqNumber(77);
        let iss = cookies.make(at(1000), &ends(1), irs, 1460);
        assert_eq!(cookies.check(at(1000), &ends(1), irs, iss), Some(1460));
        assert_eq!(cookies.check(at(1064), &ends(1), irs, iss), Some(1460));
        assert_eq!(cookies.check(at(1000), &ends(2), irs, iss), None);
        assert_eq!(cookies.check(at(1000), &ends(1), irs + 1, iss), None);
        assert_eq!(cookies.check(at(1000), &ends(1), irs, iss + 8), None);
        cookies.make(at(1150), &ends(1), irs, 1460);
        assert_eq!(cookies.check(at(1150), &ends(1), irs, iss), None, "too old");
    }

    #[test]
    fn no_acknowledgement_is_checked_while_no_cookie_is_out() {
        let mut cookies = Cookies::new(Key::new(*b"0123456789abcdef"));
        let iss = cookies.make(at(1), &ends(1), SeqNumber(1), 1460);
        cookies.last_made = None;
        assert_eq!(cookies.check(at(1), &ends(1), SeqNumber(1), iss), None);
    }

    #[test]
    fn the_mss_is_the_next_one_below() {
        let mut cookies = Cookies::new(Key::new(*b"0123456789abcdef"));
        for (mss, kept) in [(1, 88), (88, 88), (535, 88), (536, 536), (1459, 1440), (9000, 1460)] {
            let iss = cookies.make(at(1), &ends(1), SeqNumber(1), mss);
            assert_eq!(cookies.check(at(1), &ends(1), SeqNumber(1), iss), Some(kept));
        }
    }

    proptest! {
        #[test]
        fn the_timestamp_keeps_the_offer(
            clock: u32, value: u32, shift in prop::option::of(0..15_u8), sack: bool, ecn: bool,
        ) {
            let kept = Offer { mss: 536, window_scale: shift, sack, timestamp: Some(value), ecn };
            let sent = timestamp(clock, &kept);
            prop_assert!(clock.wrapping_sub(sent) < 128, "in the past, and not far");
            prop_assert_eq!(offer(536, Some((value, sent))), kept);
        }
    }
}
