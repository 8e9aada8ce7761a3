//! Two stacks, a path between them that misbehaves, and applications that act as a seed says: each byte arrives as it
//! was sent, each connection ends, and nothing is left behind. Each side has an algorithm of congestion control of its
//! own.
//!
//! `SAMUM_SEED=1` runs one seed. `SAMUM_SEEDS=10000` runs the first 10,000 seeds, `SAMUM_SEEDS=5000..10000` the
//! seeds from 5,000 on:
//!
//! ```sh
//! SAMUM_SEEDS=10000 cargo test --release -p samum-netstack --test all worlds
//! ```

mod attack;
mod endless;
mod plan;
mod play;

use core::panic::AssertUnwindSafe;
use std::panic::{catch_unwind, resume_unwind};

/// The number of seeds, unless `SAMUM_SEEDS` is set.
const SEEDS: u64 = 200;

/// Runs a test for all seeds, or for the one in `SAMUM_SEED`.
fn for_seeds(test: impl Fn(u64)) {
    let number = |text: &str| text.parse::<u64>().expect("a number");
    let (one, many) = (std::env::var("SAMUM_SEED").ok(), std::env::var("SAMUM_SEEDS").ok());
    let range = many.as_deref().and_then(|many| many.split_once(".."));
    let seeds = match (one, range) {
        (Some(seed), _) => number(&seed)..number(&seed) + 1,
        (None, Some((from, to))) => number(from)..number(to),
        (None, None) => 0..many.map_or(SEEDS, |many| number(&many)),
    };
    for seed in seeds {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| test(seed))) {
            eprintln!("failed with SAMUM_SEED={seed}");
            resume_unwind(panic);
        }
    }
}

#[test]
fn streams_arrive_and_connections_end() {
    for_seeds(|seed| play::play(plan::Plan::new(seed)));
}
