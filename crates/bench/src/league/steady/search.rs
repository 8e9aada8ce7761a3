//! The search for the highest load that a server bears: steps from one end, and then bisection. Pure.
//!
//! From below the load is doubled until the server does not bear it. From above it is halved until the server bears it.
//! A server that an overload leaves in another state differs in the two.

/// The end from which a search begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    Below,
    Above,
}

/// A search that goes on.
#[derive(Clone, Debug)]
pub(super) struct Search {
    direction: Direction,
    least: f64,
    most: f64,
    /// The search ends when the lowest load that is not safe is at most this many times the highest load that is safe.
    precision: f64,
    /// The highest load that was borne, if there is one.
    borne: Option<f64>,
    /// The lowest load that was not.
    not_borne: Option<f64>,
}

/// The result of a search. Loads are in the unit of its bounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Found {
    /// The highest load that the server bears; it does not bear one a little higher.
    Safe(f64),
    /// The server bears this load, and higher ones were not tried, or nobody could tell.
    AtLeast(f64),
    /// The server does not even bear the least load.
    Nothing,
    /// No load could be judged.
    Unknown,
}

impl Search {
    /// Searches between two loads above 0, to a `precision` above 1.
    pub(super) fn new(direction: Direction, least: f64, most: f64, precision: f64) -> Self {
        Self { direction, least, most, precision, borne: None, not_borne: None }
    }

    /// The next load to try; `None` if the search has ended.
    pub(super) fn next(&self) -> Option<f64> {
        match (self.borne, self.not_borne) {
            (None, None) => Some(match self.direction {
                Direction::Below => self.least,
                Direction::Above => self.most,
            }),
            (Some(borne), None) => (borne < self.most).then(|| self.most.min(borne * STEP)),
            (None, Some(not)) => (not > self.least).then(|| self.least.max(not / STEP)),
            (Some(borne), Some(not)) => {
                (not > borne * self.precision).then(|| (borne * not).sqrt())
            }
        }
    }

    /// Handles the answer for a load.
    pub(super) fn tell(&mut self, load: f64, is_borne: bool) {
        let side = if is_borne { &mut self.borne } else { &mut self.not_borne };
        *side = Some(load);
    }

    /// The result so far; final when there is nothing more to try.
    pub(super) fn found(&self) -> Found {
        match (self.borne, self.not_borne) {
            (Some(borne), Some(not)) if not <= borne * self.precision => Found::Safe(borne),
            (Some(borne), _) => Found::AtLeast(borne),
            (None, Some(not)) if not <= self.least => Found::Nothing,
            (None, _) => Found::Unknown,
        }
    }
}

/// The factor between two loads before both sides are known.
const STEP: f64 = 2.0;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Searches on a server that bears what `bears` says; returns the loads that were tried.
    fn tried(mut search: Search, mut bears: impl FnMut(f64) -> bool) -> (Found, Vec<f64>) {
        let mut loads = Vec::new();
        while let Some(load) = search.next() {
            assert!(loads.len() < 100, "no end: {loads:?}");
            loads.push(load);
            search.tell(load, bears(load));
        }
        (search.found(), loads)
    }

    #[test]
    fn loads_are_tried_from_both_ends() {
        let search = |direction| Search::new(direction, 100.0, 1000.0, 1.2);
        let (found, loads) = tried(search(Direction::Below), |load| load <= 300.0);
        assert_eq!(loads[..3], [100.0, 200.0, 400.0]);
        assert!(matches!(found, Found::Safe(load) if (250.0..=300.0).contains(&load)), "{found:?}");
        let (found, loads) = tried(search(Direction::Above), |load| load <= 300.0);
        assert_eq!(loads[..3], [1000.0, 500.0, 250.0]);
        assert!(matches!(found, Found::Safe(load) if (250.0..=300.0).contains(&load)), "{found:?}");
    }

    #[test]
    fn bounds_are_said() {
        for direction in [Direction::Below, Direction::Above] {
            let search = || Search::new(direction, 100.0, 1000.0, 1.2);
            assert_eq!(tried(search(), |_| true).0, Found::AtLeast(1000.0));
            assert_eq!(tried(search(), |_| false).0, Found::Nothing);
            assert_eq!(search().found(), Found::Unknown);
        }
        assert_eq!(tried(Search::new(Direction::Above, 100.0, 1000.0, 1.2), |_| true).1, [1000.0]);
        let mut cut_short = Search::new(Direction::Below, 100.0, 1000.0, 1.2);
        cut_short.tell(100.0, true);
        cut_short.tell(200.0, false);
        assert_eq!(cut_short.found(), Found::AtLeast(100.0), "a bisection that did not end");
    }

    #[test]
    fn a_server_that_does_not_recover_differs_from_above() {
        // Behind an overload it bears half as much.
        let search = |direction| {
            let mut was_overloaded = false;
            tried(Search::new(direction, 10.0, 1000.0, 1.05), |load| {
                let bears = load <= if was_overloaded { 200.0 } else { 400.0 };
                was_overloaded |= !bears;
                bears
            })
        };
        let (below, above) = (search(Direction::Below).0, search(Direction::Above).0);
        assert!(
            matches!((below, above), (Found::Safe(b), Found::Safe(a)) if b > 300.0 && a <= 200.0)
        );
    }

    proptest! {
        #[test]
        fn the_limit_is_found_to_the_precision(
            limit in 1.0..10_000.0f64,
            least in 1.0..100.0f64,
            times in 2.0..500.0f64,
            precision in 1.01..2.0f64,
            above in any::<bool>(),
        ) {
            let direction = if above { Direction::Above } else { Direction::Below };
            let most = least * times;
            let (found, loads) =
                tried(Search::new(direction, least, most, precision), |load| load <= limit);
            prop_assert!(loads.iter().all(|load| (least..=most).contains(load)));
            match found {
                Found::Nothing => prop_assert!(limit < least),
                Found::AtLeast(load) => prop_assert!(load == most && limit >= most),
                Found::Safe(load) => {
                    prop_assert!(load <= limit && load * precision * (1.0 + 1e-9) > limit);
                }
                Found::Unknown => prop_assert!(false, "it always answers"),
            }
        }
    }
}
