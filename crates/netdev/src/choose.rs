//! Chooses the path of each frame to the interface. Pure: decides by measured costs.
//!
//! Order is kept only within each flow, so a large frame does not wait for a system call that sends the small
//! frames of other flows. Data is large from half of the largest frame on, because with few segments both paths
//! cost the same.

use core::time::Duration;

/// A path to the interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    /// The rings of AF_XDP.
    Xdp,
    /// A packet socket, which also cuts large segments.
    Packet,
}

/// The paths of frames by their size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ways {
    /// The path of frames up to the interface's MTU.
    pub(crate) small: By,
    /// The path of larger data: cut by the kernel, or, with AF_XDP, by the stack.
    pub(crate) large: By,
}

impl Ways {
    /// One path for all frames.
    pub(crate) const fn all(by: By) -> Self {
        Self { small: by, large: by }
    }
}

/// The CPU time of the same data by each path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cost {
    pub(crate) xdp: Duration,
    pub(crate) packet: Duration,
}

impl Cost {
    fn cheaper(self) -> By {
        if self.xdp < self.packet { By::Xdp } else { By::Packet }
    }

    /// Names the path and both costs.
    fn describe(self, by: By) -> String {
        let micros = |time: Duration| time.as_secs_f64() * 1e6;
        let (xdp, packet) = (micros(self.xdp), micros(self.packet));
        match by {
            By::Xdp => format!("AF_XDP ({xdp:.1} µs, by packet socket {packet:.1})"),
            By::Packet => format!("packet socket ({packet:.1} µs, by AF_XDP {xdp:.1})"),
        }
    }
}

/// Costs of sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Costs {
    /// One small frame.
    pub(crate) small: Cost,
    /// Data of several frames.
    pub(crate) large: Cost,
}

impl Costs {
    /// Chooses the cheaper path for each size. If large frames go by AF_XDP, small frames do, too.
    ///
    /// With AF_XDP the stack cuts large data into frames of the interface's MTU, which cost more than the smallest
    /// frames. All of these frames go by the path that was cheaper for many.
    pub(crate) fn choose(&self) -> Ways {
        match self.large.cheaper() {
            By::Xdp => Ways::all(By::Xdp),
            By::Packet => Ways { small: self.small.cheaper(), large: By::Packet },
        }
    }

    /// The reason for a choice, for the log.
    pub(crate) fn reason(&self, ways: Ways) -> String {
        let (small, large) = (self.small.describe(ways.small), self.large.describe(ways.large));
        format!("small frames leave by {small}, large data by {large}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cost(xdp: u64, packet: u64) -> Cost {
        Cost { xdp: Duration::from_nanos(xdp), packet: Duration::from_nanos(packet) }
    }

    #[test]
    fn each_size_leaves_by_the_cheaper_way() {
        let mixed = Ways { small: By::Xdp, large: By::Packet };
        for (small, large, wanted) in [
            (cost(700, 900), cost(9000, 3000), mixed),
            (cost(900, 700), cost(9000, 3000), Ways::all(By::Packet)),
            (cost(100, 900), cost(600, 3000), Ways::all(By::Xdp)),
            (cost(900, 700), cost(600, 3000), Ways::all(By::Xdp)),
            (cost(700, 700), cost(3000, 3000), Ways::all(By::Packet)),
        ] {
            assert_eq!(Costs { small, large }.choose(), wanted, "{small:?} {large:?}");
        }
    }

    #[test]
    fn a_reason_names_the_ways_and_their_costs() {
        let costs = Costs { small: cost(700, 1250), large: cost(9000, 3000) };
        let wanted = "small frames leave by AF_XDP (0.7 µs, by packet socket 1.2), \
                      large data by packet socket (3.0 µs, by AF_XDP 9.0)";
        assert_eq!(costs.reason(costs.choose()), wanted);
    }
}
