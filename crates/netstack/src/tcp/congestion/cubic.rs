//! CUBIC (RFC 9438): the window is a cubic function of the time since the last loss, flat near the window of that loss.
//!
//! Integers only. Windows are bytes, times milliseconds: with `C` = 0.4 segments/s³ the function is
//! `W(t) = W_max + 2/5 · mss · (t - K)³ / 10⁹`.

use super::Growth;
use crate::tcp::clock::elapsed_us;
use crate::time::Time;

/// `beta_cubic` = 0.7 (RFC 9438, 4.6).
const BETA_PERCENT: u64 = 70;

/// The maximum of `t - K`, milliseconds. Beyond it the window has long reached its limits; up to it 64 bits
/// suffice.
const DISTANCE_MAX_MS: u64 = 60_000;

/// The state of RFC 9438, 4.1.2.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cubic {
    /// `W_max` in bytes; 0 before a loss.
    w_max: u32,
    /// `cwnd_prior` in bytes: the window before the last reduction.
    cwnd_prior: u32,
    /// Some exactly in congestion avoidance: `t_epoch`.
    epoch: Option<Epoch>,
    /// The growth below one byte: the numerator over `cwnd`.
    remainder: u64,
}

#[derive(Clone, Copy, Debug)]
struct Epoch {
    began: Time,
    /// `K` in milliseconds.
    k_ms: u64,
    /// The window at which the function is flat.
    origin: u32,
    /// `W_est` in bytes: the window that a Reno flow would have.
    w_est: u32,
    /// The growth of `w_est` below one byte: the numerator over `17 · cwnd`.
    w_est_remainder: u64,
}

impl Cubic {
    pub(crate) const fn new() -> Self {
        Self { w_max: 0, cwnd_prior: 0, epoch: None, remainder: 0 }
    }

    /// Restarts after a time without sending, which does not count as time of the function (RFC 9438, 5.8).
    pub(crate) fn restart(&mut self) {
        self.epoch = None;
    }

    /// Handles congestion, and returns the new threshold (RFC 9438, 4.6 and 4.7).
    pub(crate) fn reduce(&mut self, flight: u32) -> u32 {
        // Fast convergence: a flow whose window shrinks leaves room for others.
        self.w_max =
            if flight < self.w_max { percent(flight, (100 + BETA_PERCENT) / 2) } else { flight };
        self.cwnd_prior = flight;
        self.epoch = None;
        percent(flight, BETA_PERCENT)
    }

    /// The growth of the window in congestion avoidance, bytes (RFC 9438, 4.2 to 4.5).
    pub(crate) fn growth(&mut self, growth: &Growth, cwnd: u32, mss: u32) -> u32 {
        let (w_max, remainder) = (self.w_max, self.remainder);
        let epoch = self.epoch.get_or_insert_with(|| Epoch::new(growth.now, w_max, cwnd, mss));
        epoch.grow_reno(growth.bytes, cwnd, mss, self.cwnd_prior);

        let t_ms = u64::from(elapsed_us(growth.now, epoch.began) / 1_000);
        let now = epoch.w_cubic(t_ms, mss);
        if now < epoch.w_est {
            return epoch.w_est.saturating_sub(cwnd);
        }
        let most = cwnd.saturating_add(cwnd / 2);
        let target = epoch.w_cubic(t_ms + u64::from(growth.srtt_us / 1_000), mss).clamp(cwnd, most);
        let due = u64::from(target - cwnd) * u64::from(growth.bytes) + remainder;
        self.remainder = due % u64::from(cwnd);
        u32::try_from(due / u64::from(cwnd)).unwrap_or(u32::MAX)
    }
}

impl Epoch {
    fn new(now: Time, w_max: u32, cwnd: u32, mss: u32) -> Self {
        // K = cbrt((W_max - cwnd_epoch) / C), in milliseconds: the root of 10⁹ · 5/2 · difference / mss.
        let below = u64::from(w_max.saturating_sub(cwnd));
        let k_ms = cube_root(below * 2_500_000_000 / u64::from(mss));
        Self { began: now, k_ms, origin: w_max.max(cwnd), w_est: cwnd, w_est_remainder: 0 }
    }

    /// `W_cubic(t)` in bytes.
    fn w_cubic(&self, t_ms: u64, mss: u32) -> u32 {
        let distance = t_ms.abs_diff(self.k_ms).min(DISTANCE_MAX_MS);
        // At most 2 · 65,535 · 2.16e14 = 2.8e19 / 5: the division comes before the multiplication by the segment.
        let bytes = distance.pow(3) / 1_000_000 * (2 * u64::from(mss)) / 5 / 1_000;
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        if t_ms < self.k_ms {
            self.origin.saturating_sub(bytes)
        } else {
            self.origin.saturating_add(bytes)
        }
    }

    /// RFC 9438, 4.3: the window of a Reno flow with this decrease factor grows by
    /// `alpha = 3 · (1 - beta) / (1 + beta)` = 9/17 segments in a round trip, and by one from `cwnd_prior` on.
    fn grow_reno(&mut self, bytes: u32, cwnd: u32, mss: u32, cwnd_prior: u32) {
        let alpha = if self.w_est < cwnd_prior { 9 } else { 17 };
        let due = alpha * u64::from(bytes) * u64::from(mss) + self.w_est_remainder;
        let per_byte = 17 * u64::from(cwnd);
        self.w_est_remainder = due % per_byte;
        let grown = u32::try_from(due / per_byte).unwrap_or(u32::MAX);
        self.w_est = self.w_est.saturating_add(grown);
    }
}

/// `percent` hundredths of a window, at most the whole window.
fn percent(w: u32, percent: u64) -> u32 {
    u32::try_from(u64::from(w) * percent / 100).unwrap_or(u32::MAX)
}

/// The integer cube root, rounded down, computed bit by bit.
fn cube_root(n: u64) -> u64 {
    let mut root = 0_u64;
    for bit in (0..22).rev() {
        let next = root | 1 << bit;
        if next.checked_pow(3).is_some_and(|cube: u64| cube <= n) {
            root = next;
        }
    }
    root
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seq::SeqNumber;

    const MSS: u32 = 1_000;

    #[test]
    fn the_cube_root_is_exact() {
        for n in (0..2_000).chain([u64::MAX, 1 << 63, (1 << 21) - 1, 2_097_151_u64.pow(3)]) {
            let root = cube_root(n);
            assert!(root.pow(3) <= n, "{n}");
            assert!((root + 1).checked_pow(3).is_none_or(|next| next > n), "{n}");
        }
    }

    /// Acknowledges a tenth of the window every 10 ms, for a round trip of 100 ms.
    fn run(cubic: &mut Cubic, cwnd: &mut u32, from_ms: u64, to_ms: u64) {
        for ms in (from_ms..to_ms).step_by(10) {
            let growth = Growth {
                now: Time::from_nanos(ms * 1_000_000),
                bytes: *cwnd / 10,
                una: SeqNumber(0),
                snd_nxt: SeqNumber(0),
                rtt_us: 100_000,
                srtt_us: 100_000,
            };
            *cwnd += cubic.growth(&growth, *cwnd, MSS);
        }
    }

    #[test]
    fn rfc9438_4_2_the_window_returns_in_k_and_grows_beyond() {
        let mut cubic = Cubic::new();
        let prior = 1_000 * MSS;
        let mut cwnd = cubic.reduce(prior);
        assert_eq!(cwnd, 700 * MSS);
        // K = cbrt(300 / 0.4) = 9.086 s.
        run(&mut cubic, &mut cwnd, 0, 4_543);
        // W(K/2) = 1000 - 0.4 · 4.543³ = 962.5.
        assert!((955 * MSS..970 * MSS).contains(&cwnd), "{cwnd}");
        run(&mut cubic, &mut cwnd, 4_543, 9_086);
        assert!((995 * MSS..1_005 * MSS).contains(&cwnd), "{cwnd}");
        run(&mut cubic, &mut cwnd, 9_086, 14_086);
        // W(K + 5) = 1000 + 0.4 · 125 = 1050.
        assert!((1_040 * MSS..1_060 * MSS).contains(&cwnd), "{cwnd}");
    }

    #[test]
    fn rfc9438_4_3_a_small_window_grows_as_renos() {
        let mut cubic = Cubic::new();
        let mut cwnd = cubic.reduce(10 * MSS);
        // 9/17 of a segment in each round trip of 100 ms until the window before the loss, then a whole segment.
        run(&mut cubic, &mut cwnd, 0, 500);
        assert!((9_300..9_800).contains(&cwnd), "{cwnd}");
        run(&mut cubic, &mut cwnd, 500, 1_500);
        assert!((17_000..19_500).contains(&cwnd), "{cwnd}");
    }

    #[test]
    fn rfc9438_4_7_fast_convergence() {
        let mut cubic = Cubic::new();
        assert_eq!((cubic.reduce(100 * MSS), cubic.w_max), (70 * MSS, 100 * MSS));
        assert_eq!((cubic.reduce(80 * MSS), cubic.w_max), (56 * MSS, 68 * MSS));
        assert_eq!((cubic.reduce(90 * MSS), cubic.w_max), (63 * MSS, 90 * MSS));
    }

    #[test]
    fn nothing_overflows() {
        for (mss, window) in [(1, 1), (1, u32::MAX), (65_535, u32::MAX), (65_535, 1 << 30)] {
            let mut cubic = Cubic::new();
            let mut cwnd = cubic.reduce(window).max(mss);
            for s in [0, 1, 3_600, 1_000_000] {
                let growth = Growth {
                    now: Time::from_nanos(s * 1_000_000_000),
                    bytes: cwnd,
                    una: SeqNumber(0),
                    snd_nxt: SeqNumber(0),
                    rtt_us: u32::MAX,
                    srtt_us: u32::MAX,
                };
                cwnd = cwnd.saturating_add(cubic.growth(&growth, cwnd, mss));
            }
        }
    }
}
