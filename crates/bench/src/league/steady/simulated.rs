//! Servers on a simulated disk, and the load that the search finds for each.

use super::files::{Group, SiteFile, bytes_from_disk, files};
use super::judge::{Figures, Judgement, judge};
use super::search::{Direction, Found, Search};
use crate::load::engine::DRAIN;
use crate::load::failure::Failure;
use crate::load::popularity::Popularity;
use crate::load::schedule::nanos;
use crate::load::schedule::{Nanos, Schedule};
use crate::load::trace::{Exchange, Trace};
use crate::load::{Arrival, Order};

/// The way in which a server uses its disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Server {
    /// All downloads at the same time, with equal parts.
    Fair,
    /// One file after the other.
    InOrder,
    /// As [`Self::InOrder`], and files in memory wait, too.
    Stalling,
}

/// The record of a load of this many clients per second.
fn load(server: Server, files: &[SiteFile], disk: f64, rate: f64, seed: u64) -> Trace {
    let mut schedule = Schedule::new(Arrival::Poisson(rate), seed);
    let mut popularity = Popularity::new(Order::Zipf(super::ZIPF), files.len(), seed ^ 1);
    let mut trace = Trace::default();
    // Target, planned time, and the bytes that are left.
    let mut waiting: Vec<(usize, Nanos, f64)> = Vec::new();
    let (end, last) = (SECONDS * SECOND, SECONDS * SECOND + nanos(DRAIN));
    let mut now = 0;
    while now < last && (now < end || !waiting.is_empty()) {
        while let Some(intended) = schedule.take_due(now.min(end - 1)) {
            let target = popularity.draw().unwrap();
            if files[target].is_in_memory && server != Server::Stalling {
                let (ended, bytes) = (intended + HOT_TAKES, files[target].len);
                trace.keep(Exchange { target, intended, ended, bytes, failure: None });
            } else {
                let len = if files[target].is_in_memory { 0.0 } else { files[target].len as f64 };
                waiting.push((target, intended, len));
            }
        }
        now += STEP;
        let mut left = disk * STEP as f64 / SECOND as f64;
        let each = if server == Server::Fair { left / waiting.len().max(1) as f64 } else { left };
        for (target, _, bytes) in &mut waiting {
            let got = bytes.min(each.min(left));
            *bytes -= got;
            left -= got;
            trace.received(now - 1, files[*target].group() as usize, whole(got));
        }
        let mut is_blocked = false;
        waiting.retain(|&(target, intended, bytes)| {
            let is_done = bytes <= 0.0 && !is_blocked;
            // In order, a file waits for those before it.
            is_blocked |= !is_done && server != Server::Fair;
            if is_done {
                let bytes = files[target].len;
                trace.keep(Exchange { target, intended, ended: now, bytes, failure: None });
            }
            !is_done
        });
    }
    for (target, intended, left) in waiting {
        let bytes = files[target].len - whole(left);
        let failure = Some(Failure::Unfinished);
        trace.keep(Exchange { target, intended, ended: now, bytes, failure });
    }
    trace
}

/// The part of what the disk can serve that a server bears.
fn safe(server: Server, disk: f64, direction: Direction, seed: u64) -> Found {
    let files = files(1000);
    let full = disk / bytes_from_disk(&files);
    let mut search = Search::new(direction, full / 8.0, 1.25 * full, 1.05);
    while let Some(rate) = search.next() {
        let trace = load(server, &files, disk, rate, seed);
        let figures = Figures::of(&trace, 0, |target| files[target].group());
        search.tell(rate, judge(&figures, HOT_TAKES as f64, None) == Judgement::Safe);
    }
    match search.found() {
        Found::Safe(load) => Found::Safe(load / full),
        other => other,
    }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bytes of a file")]
fn whole(bytes: f64) -> u64 {
    bytes as u64
}

const SECOND: Nanos = 1_000_000_000;
const SECONDS: u64 = 20;
const STEP: Nanos = 2_000_000;
/// The time for a file in memory: longer than a step, so that a step is no wait.
const HOT_TAKES: Nanos = 4_000_000;

#[test]
fn a_fair_server_bears_what_its_disk_gives() {
    for (disk, seed) in [(16e6, 1), (16e6, 2), (64e6, 3)] {
        for direction in [Direction::Below, Direction::Above] {
            let found = safe(Server::Fair, disk, direction, seed);
            let Found::Safe(part) = found else { panic!("{disk}, {direction:?}: {found:?}") };
            assert!((0.75..1.15).contains(&part), "{disk}, {direction:?}: {part}");
        }
    }
}

#[test]
fn a_server_that_reads_one_file_after_the_other_bears_less() {
    for seed in 1..4 {
        let of = |server| match safe(server, 16e6, Direction::Below, seed) {
            Found::Safe(part) => part,
            other => panic!("{server:?}: {other:?}"),
        };
        let (fair, in_order) = (of(Server::Fair), of(Server::InOrder));
        assert!(in_order < fair, "{in_order}, {fair}");
    }
}

#[test]
fn a_server_whose_files_in_memory_wait_for_the_disk_bears_nothing() {
    for direction in [Direction::Below, Direction::Above] {
        assert_eq!(safe(Server::Stalling, 16e6, direction, 1), Found::Nothing);
    }
}

#[test]
fn bytes_of_a_simulated_load_are_those_of_its_files() {
    let files = files(1000);
    let trace = load(Server::Fair, &files, 16e6, 200.0, 5);
    assert_eq!(trace.exchanges.iter().filter(|it| it.failure.is_some()).count(), 0);
    let downloads = trace.exchanges.iter().filter(|it| files[it.target].group() == Group::Download);
    let of_files: u64 = downloads.map(|it| it.bytes).sum();
    let of_slices: u64 = trace.slices.iter().map(|slice| slice[Group::Download as usize]).sum();
    let ratio = of_slices as f64 / of_files as f64;
    assert!((0.97..=1.0).contains(&ratio), "{ratio}");
}
