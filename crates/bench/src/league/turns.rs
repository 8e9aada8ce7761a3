//! The order in which servers take turns: another one in each round, by chance. Pure and seeded.
//!
//! A fixed order would give each server the same predecessor, which leaves the disk, the memory and the clock of the
//! processor in the same state each time. It would also meet periodic work of others always with the same server.

/// The orders of all rounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turns {
    /// The seed, which the notes of a run show.
    pub seed: u64,
}

impl Turns {
    /// The order of the turns of `count` servers in a round, from 0 on.
    #[must_use]
    pub fn of(self, count: usize, round: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..count).collect();
        // The first numbers of seeds that follow each other are alike in no known way; the step keeps rounds of runs
        // with neighbouring seeds apart.
        let seed = self.seed.wrapping_add((round as u64).wrapping_mul(STEP));
        fastrand::Rng::with_seed(seed).shuffle(&mut order);
        order
    }
}

/// 2⁶⁴ divided by the golden ratio, as in Steele and others, "Fast Splittable Pseudorandom Number Generators", 2014.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_server_has_each_place_equally_often() {
        let (count, rounds) = (5, 10_000);
        let turns = Turns { seed: 1 };
        let mut places = vec![vec![0_u32; count]; count];
        let mut behind = vec![vec![0_u32; count]; count];
        for round in 0..rounds {
            let order = turns.of(count, round);
            for (place, &server) in order.iter().enumerate() {
                places[server][place] += 1;
            }
            order.windows(2).for_each(|pair| behind[pair[1]][pair[0]] += 1);
        }
        // Expected are 2,000 of each; six standard deviations are 240.
        assert!(places.iter().flatten().all(|&n| (1760..2240).contains(&n)), "{places:?}");
        for (server, before) in behind.iter().enumerate() {
            let others = before.iter().enumerate().filter(|(other, _)| *other != server);
            assert!(others.clone().all(|(_, &n)| (1760..2240).contains(&n)), "{behind:?}");
        }
    }

    #[test]
    fn an_order_depends_on_seed_and_round_alone() {
        let of = |seed, round| Turns { seed }.of(8, round);
        assert_eq!(of(3, 4), of(3, 4));
        let all = [of(3, 4), of(3, 5), of(4, 4)];
        assert!(all[0] != all[1] && all[0] != all[2] && all[1] != all[2], "{all:?}");
        assert_eq!(Turns { seed: 7 }.of(1, 9), [0]);
        assert!(Turns { seed: 7 }.of(0, 9).is_empty());
    }
}
