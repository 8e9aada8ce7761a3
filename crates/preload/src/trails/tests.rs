//! Tests of the pages that are discarded, and of the times.

use super::*;

const FILE: FileId = FileId { dev: 1, ino: 2 };
const OTHER: FileId = FileId { dev: 1, ino: 3 };
const MIB: u64 = 1 << 20;
const SOCKET: c_int = 10;

fn trails() -> Box<Trails> {
    Box::new(Trails::none())
}

/// Notes that readers have brought a range of MiB at a time in ms.
fn bring(trails: &mut Trails, range: Range<u64>, ms: u64) -> Option<c_int> {
    trails.brought(FILE, range.start * MIB..range.end * MIB, ms * 1000, || Some(100))
}

fn send(trails: &mut Trails, range: Range<u64>, ms: u64) {
    trails.passed(SOCKET, FILE, &(range.start * MIB..range.end * MIB), ms * 1000);
}

/// The ranges that are discarded at a time in ms, in MiB, with those whose descriptors are closed.
fn discarded(trails: &mut Trails, ms: u64) -> Vec<(u64, u64, bool)> {
    let mut all = Vec::new();
    while let Some(Discard { range, closes, .. }) = trails.due(ms * 1000) {
        all.push((range.start / MIB, range.end / MIB, closes));
        trails.has_discarded();
    }
    all
}

/// (what happens at which ms; the ranges that are discarded then)
#[test]
fn what_was_sent_is_discarded_after_a_pause_and_again_after_longer_ones() {
    let trails = &mut trails();
    assert_eq!(bring(trails, 0..10, 0), Some(100));
    send(trails, 0..10, 50);
    for (ms, expected) in [
        (99, vec![]),
        (100, vec![(0, 10, false)]),
        (899, vec![]),
        // Packets may have referred to the last 8 MiB.
        (900, vec![(2, 10, false)]),
        (7299, vec![]),
        (7300, vec![(2, 10, false)]),
        (58_499, vec![]),
        (58_500, vec![(2, 10, true)]),
        (1_000_000, vec![]),
    ] {
        assert_eq!(discarded(trails, ms), expected, "{ms} ms");
    }
    assert_eq!(trails.due_us(), None);
}

#[test]
fn behind_a_response_that_goes_on_discards_follow_in_steps_and_the_window_stays() {
    let trails = &mut trails();
    bring(trails, 0..12, 0);
    send(trails, 0..10, 90);
    assert_eq!(discarded(trails, 100), [(0, 10, false)]);
    bring(trails, 12..16, 120);
    trails.passed(SOCKET, FILE, &(10 * MIB..10 * MIB + 1000), 130_000);
    assert_eq!(discarded(trails, 230), [], "less than a step");
    send(trails, 10..15, 240);
    assert_eq!(discarded(trails, 339), []);
    assert_eq!(discarded(trails, 340), [(2, 15, false)]);
    // The response stands still: its window is the last to go.
    assert_eq!(discarded(trails, 1140), [(7, 15, false)]);
    assert_eq!(discarded(trails, 7540), [(7, 15, false)]);
    assert_eq!(discarded(trails, 58_740), [(7, 16, true)]);
}

#[test]
fn a_socket_that_is_closed_or_sends_another_file_leaves_its_window() {
    for close in [true, false] {
        let trails = &mut trails();
        bring(trails, 0..8, 0);
        send(trails, 0..2, 10);
        assert_eq!(discarded(trails, 100), [(0, 2, false)]);
        let is_earlier = if close {
            trails.left_by(SOCKET, 200_000)
        } else {
            trails.passed(SOCKET, OTHER, &(0..1), 200_000)
        };
        assert!(is_earlier, "the next was due at 900 ms");
        assert_eq!(discarded(trails, 299), []);
        assert_eq!(discarded(trails, 300), [(0, 8, false)]);
        assert!(!trails.left_by(SOCKET, 301_000), "it is left once");
    }
}

#[test]
fn ranges_that_touch_are_one_trail_and_a_part_that_was_there_before_is_in_none() {
    let trails = &mut trails();
    assert_eq!(bring(trails, 0..1, 0), Some(100));
    assert_eq!(bring(trails, 1..2, 0), None);
    assert_eq!(bring(trails, 3..4, 0), Some(100), "2 was in memory");
    assert_eq!(bring(trails, 4..4, 0), None, "nothing");
    send(trails, 0..4, 1);
    assert_eq!(discarded(trails, 100), [(0, 2, false), (3, 4, false)]);
}

#[test]
fn what_is_read_anew_belongs_to_the_new_trail() {
    let trails = &mut trails();
    bring(trails, 0..20, 0);
    send(trails, 0..20, 0);
    assert_eq!(discarded(trails, 100), [(0, 20, false)]);
    // Another client comes behind the first.
    bring(trails, 5..6, 200);
    let ranges = |trails: &Trails| -> Vec<_> {
        trails.all().map(|(_, range)| (range.start / MIB, range.end / MIB)).collect()
    };
    assert_eq!(ranges(trails), [(6, 20), (5, 6)]);
    // Another one comes to a part that was not discarded yet, but reclaimed.
    bring(trails, 20..30, 200);
    bring(trails, 22..23, 200);
    assert_eq!(ranges(trails), [(6, 23), (5, 6)], "where they touch they are one");
    // One that reads all of it leaves nothing of it.
    bring(trails, 5..23, 1000);
    let whole: Vec<_> = trails.all().filter(|(_, range)| !range.is_empty()).collect();
    assert_eq!(whole, [(100, 5 * MIB..23 * MIB)]);
}

#[test]
fn a_file_that_stays_keeps_all_its_pages() {
    let trails = &mut trails();
    bring(trails, 0..8, 0);
    send(trails, 0..8, 0);
    assert!(!trails.keep(OTHER) && trails.keep(FILE));
    assert_eq!(discarded(trails, 0), [(8, 8, true)], "only the descriptor is closed");
    assert_eq!(trails.due_us(), None);
}

#[test]
fn only_one_thread_discards_at_a_time() {
    let trails = &mut trails();
    bring(trails, 0..2, 0);
    bring(trails, 5..6, 0);
    send(trails, 0..6, 0);
    assert!(trails.due(100_000).is_some());
    assert!(trails.due(100_000).is_none());
    trails.has_discarded();
    assert!(trails.due(100_000).is_some());
}

#[test]
fn without_room_or_a_descriptor_pages_stay() {
    let trails = &mut trails();
    assert_eq!(trails.brought(FILE, 0..MIB, 0, || None), None);
    assert_eq!(trails.due_us(), None);
    for ino in 0..TRAILS_MAX as u64 {
        let file = FileId { dev: 2, ino };
        assert_eq!(trails.brought(file, 0..MIB, 0, || Some(7)), Some(7));
    }
    assert_eq!(trails.brought(FILE, 0..MIB, 0, || unreachable!("there is no room")), None);
    trails.surrender(7);
    assert_eq!(trails.all().count(), TRAILS_MAX - 1, "the program has closed it");
    assert_eq!(trails.take(|file| file.ino == 3), Some(7));
    assert_eq!(trails.take(|file| file.ino == 3), None);
}

/// Whatever comes in which order, each page that was brought and sent is discarded in the end, or belongs to a trail.
#[test]
fn nothing_that_was_brought_is_forgotten() {
    proptest::proptest!(|(seed in 0_u64..1000)| {
        let trails = &mut trails();
        let mut random = testkit::Random::new(seed);
        let (mut now, mut at) = (0, 0);
        let mut present = [false; 64];
        for _ in 0..200 {
            now += random.below(2000);
            if random.below(3) == 0 {
                at = random.below(60);
            }
            let to = (at + 1 + random.below(3)).min(64);
            let absent = (at..to).take_while(|&mib| !present[usize::try_from(mib).unwrap()]);
            let count = absent.count() as u64;
            bring(trails, at..at + count, now);
            (at..at + count).for_each(|mib| present[usize::try_from(mib).unwrap()] = true);
            send(trails, at..to, now);
            at = to % 64;
            while let Some(Discard { range, .. }) = trails.due(now * 1000) {
                (range.start / MIB..range.end / MIB)
                    .for_each(|mib| present[usize::try_from(mib).unwrap()] = false);
                trails.has_discarded();
            }
        }
        for _ in 0..8 {
            now += 60_000;
            while let Some(Discard { range, .. }) = trails.due(now * 1000) {
                (range.start / MIB..range.end / MIB)
                    .for_each(|mib| present[usize::try_from(mib).unwrap()] = false);
                trails.has_discarded();
            }
        }
        assert_eq!(trails.due_us(), None);
        assert!(!present.contains(&true), "seed {seed}: {present:?}");
    });
}
