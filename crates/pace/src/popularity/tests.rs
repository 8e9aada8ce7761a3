extern crate std;

use std::boxed::Box;
use std::collections::{BTreeMap, HashMap};
use std::println;
use std::vec::Vec;

use testkit::Random;

use super::*;

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;
/// Files that are requested once (by the crawler) have names from this number on.
const CRAWLED: u64 = 1 << 40;

fn sketch(capacity: u64) -> Popularity<'static> {
    let lines: Vec<_> = (0..Popularity::lines(capacity)).map(|_| CounterLine::default()).collect();
    Popularity::new(lines.leak(), Box::leak(Box::<Sums>::default()), capacity)
}

fn cutoff(popularity: &Popularity<'_>) -> usize {
    popularity.set_cutoff();
    popularity.sums.cutoff.load(Relaxed)
}

#[test]
fn while_everything_fits_everything_is_popular() {
    let popularity = sketch(64 * MIB);
    for round in 0..30 {
        for key in 0..64 {
            assert!(popularity.request_key(key, MIB), "round {round}, file {key}");
        }
    }
    assert_eq!(cutoff(&popularity), 0);
}

/// Each case has kinds of files and the expected cutoff. A kind has the MiB of a file, the requests for
/// each file, and the number of files.
#[test]
fn the_files_above_the_cutoff_fit_together_and_with_those_at_it_do_not() {
    type Kind = (u64, usize, u64);
    let cases: [(&[Kind], usize); 8] = [
        (&[], 0),
        (&[(1, 1, 64)], 0),
        (&[(1, 1, 65)], 1),
        (&[(1, 1, 1000), (1, 2, 64)], 1),
        (&[(1, 1, 1000), (1, 2, 65)], 2),
        (&[(1, 1, 10), (1, 5, 10), (8, 7, 6)], 1),
        (&[(1, 1, 10), (1, 5, 10), (8, 7, 7)], 5),
        (&[(1, 1, 10), (1, 5, 10), (8, 7, 9)], 7),
    ];
    for (kinds, expected) in cases {
        let popularity = sketch(64 * MIB);
        let mut key = 0;
        for (mib, requests, files) in kinds {
            for _ in 0..*files {
                key += 1;
                for _ in 0..*requests {
                    popularity.request_key(key, mib * MIB);
                }
            }
        }
        // Keys that share all their counters would be counted too often, but such keys are few.
        assert_eq!(cutoff(&popularity), expected, "{kinds:?}");
    }
}

#[test]
fn a_request_for_a_good_part_of_the_memory_is_neither_popular_nor_counted() {
    let popularity = sketch(64 * MIB);
    for _ in 0..100 {
        assert!(!popularity.request_key(1, 8 * MIB + 1));
        assert!(popularity.request_key(2, 8 * MIB));
    }
    assert!(popularity.sums.bytes_by_count[COUNT_MAX].load(Relaxed) <= 8 * MIB);
}

/// No count is less than the number of requests, and few counts are more.
#[test]
fn counts_are_near_the_truth() {
    let (mut wrong, mut all) = (0, 0);
    for seed in 0..20 {
        let popularity = sketch(256 * MIB);
        let mut random = Random::new(seed);
        let mut truth: HashMap<u64, usize> = HashMap::new();
        for _ in 0..8000 {
            // Half of the requests are for a few files.
            let key = if random.below(2) == 0 { random.below(500) } else { random.below(1 << 40) };
            let count = truth.entry(key).or_default();
            *count = (*count + 1).min(COUNT_MAX);
            let counted = popularity.count(hash(key), 1);
            assert!(counted >= *count, "seed {seed}: {key} has {counted} instead of {count}");
            wrong += usize::from(counted > *count);
            all += 1;
        }
    }
    assert!(wrong * 20 < all, "{wrong} of {all} are wrong");
}

#[test]
fn halving_halves_every_count_and_keeps_the_bytes_by_count_with_them() {
    let popularity = sketch(256 * MIB);
    for key in 0..70 {
        for _ in 0..key {
            popularity.count(hash(key), 1);
        }
    }
    popularity.halve();
    let mut bytes = [0; COUNT_MAX + 1];
    for key in 0..70_usize {
        bytes[key.min(COUNT_MAX) / 2] += 1;
        let count = popularity.count(hash(key as u64), 0);
        assert_eq!(count, key.min(COUNT_MAX) / 2 + 1, "{key}");
    }
    for (count, bytes) in bytes.into_iter().enumerate().skip(1) {
        assert_eq!(popularity.sums.bytes_by_count[count].load(Relaxed), bytes, "{count}");
    }
}

#[test]
fn what_was_popular_is_forgotten() {
    let popularity = sketch(64 * MIB);
    let ask = |keys: core::ops::Range<u64>| {
        (0..200_000 / 100).fold(0, |all, _| {
            all + keys.clone().filter(|key| popularity.request_key(*key, MIB)).count()
        })
    };
    // All keys together are twice as much as fits; the second half displaces the first half.
    ask(0..50);
    assert!(popularity.request_key(1, MIB));
    ask(100..150);
    assert!(popularity.request_key(101, MIB));
    assert!(cutoff(&popularity) < CUTOFF_MAX, "counts are halved early");
}

#[test]
fn counts_stay_bounded_while_threads_count_and_halve() {
    let popularity = sketch(64 * MIB);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let popularity = &popularity;
            scope.spawn(move || {
                let mut random = Random::new(thread);
                for _ in 0..100_000 {
                    popularity.request_key(random.below(100), MIB);
                }
            });
        }
    });
    let words = popularity.lines.iter().flat_map(|line| &line.0);
    for word in words.map(|word| word.load(Relaxed)) {
        assert!(word.to_ne_bytes().iter().all(|count| usize::from(*count) < COUNT_MAX + 8));
    }
    // If two requests are counted as one request, the sum is too great, by an amount that depends on the
    // timing of the threads. Halving the counts removes this error, and would remove a much larger error.
    popularity.sums.bytes_by_count[COUNT_MAX].fetch_add(1000 * MIB, Relaxed);
    let mut random = Random::new(4);
    for _ in 0..200_000 {
        popularity.request_key(random.below(100), MIB);
    }
    let bytes: u64 = popularity.sums.bytes_by_count.iter().map(|bytes| bytes.load(Relaxed)).sum();
    assert!((90 * MIB..=110 * MIB).contains(&bytes), "{bytes} of 100 files");
}

/// The kernel's page cache for files, as in mm/vmscan.c and mm/workingset.c: two lists of equal length. A
/// file that is read again soon after its eviction becomes active. Whole files are cached and evicted.
struct Kernel {
    capacity: u64,
    files: HashMap<u64, Cached>,
    lists: [BTreeMap<u64, u64>; 2],
    bytes: [u64; 2],
    clock: u64,
    /// The value of `age` when a file was evicted. `age` is the bytes that were evicted or became active
    /// since the start.
    left_at: HashMap<u64, u64>,
    age: u64,
}

#[derive(Clone, Copy)]
struct Cached {
    is_active: bool,
    is_referenced: bool,
    since: u64,
    bytes: u64,
}

impl Kernel {
    fn new(capacity: u64) -> Self {
        let (files, lists, left_at) = Default::default();
        Self { capacity, files, lists, bytes: [0; 2], clock: 0, left_at, age: 0 }
    }

    /// Reads a file; returns whether it was cached.
    fn read(&mut self, name: u64, bytes: u64, keep: bool) -> bool {
        if let Some(cached) = self.files.get_mut(&name) {
            if !core::mem::replace(&mut cached.is_referenced, true) || cached.is_active {
                return true;
            }
            self.take(name);
            self.put(name, bytes, true);
            self.age += bytes;
            return true;
        }
        if keep {
            let left_at = self.left_at.remove(&name);
            self.put(name, bytes, left_at.is_some_and(|at| self.age - at <= self.bytes[1]));
            self.files.get_mut(&name).unwrap().is_referenced = true;
            self.reclaim();
        }
        false
    }

    fn reclaim(&mut self) {
        while self.bytes[0] + self.bytes[1] > self.capacity {
            while self.bytes[0] < self.bytes[1] {
                let name = *self.lists[1].first_key_value().unwrap().1;
                let cached = self.take(name);
                self.put(name, cached.bytes, false);
            }
            let name = *self.lists[0].first_key_value().unwrap().1;
            self.age += self.take(name).bytes;
            self.left_at.insert(name, self.age);
        }
    }

    fn put(&mut self, name: u64, bytes: u64, is_active: bool) {
        self.clock += 1;
        let cached = Cached { is_active, is_referenced: false, since: self.clock, bytes };
        self.files.insert(name, cached);
        self.lists[usize::from(is_active)].insert(self.clock, name);
        self.bytes[usize::from(is_active)] += bytes;
    }

    fn take(&mut self, name: u64) -> Cached {
        let cached = self.files.remove(&name).unwrap();
        self.lists[usize::from(cached.is_active)].remove(&cached.since);
        self.bytes[usize::from(cached.is_active)] -= cached.bytes;
        cached
    }
}

/// A site whose files are requested by Zipf's law, and a crawler that reads each file once.
#[derive(Clone, Copy)]
struct Load {
    files: u64,
    /// The percentage of the requests that the crawler sends.
    crawled: u64,
    /// The number of requests after which another twentieth of the files becomes the most popular.
    drift: u64,
}

/// Returns the part of the site's bytes that had to be read, with and without a sketch.
#[expect(clippy::cast_precision_loss, reason = "ratios")]
fn misses(load: Load, capacity: u64) -> [f64; 2] {
    let mut sums: Vec<f64> = Vec::new();
    for rank in 1..=load.files {
        sums.push(sums.last().unwrap_or(&0.0) + (rank as f64).powf(-0.8));
    }
    let size = |name: u64| (64 * KIB) << (hash(name) % 5);
    [true, false].map(|has_sketch| {
        let popularity = sketch(capacity * 7 / 8);
        let (mut cache, mut random) = (Kernel::new(capacity), Random::new(7));
        let (mut read, mut all) = (0, 0);
        for request in 0..300_000 {
            let name = if random.below(100) < load.crawled {
                CRAWLED + request
            } else {
                let at =
                    random.below(1_u64 << 50) as f64 / (1_u64 << 50) as f64 * sums.last().unwrap();
                let rank = sums.partition_point(|sum| *sum < at) as u64;
                (rank + request / load.drift * (load.files / 20)) % load.files
            };
            let keep = !has_sketch || popularity.request_key(name, size(name));
            let is_cached = cache.read(name, size(name), keep);
            if name < CRAWLED && request > 100_000 {
                all += size(name);
                read += if is_cached { 0 } else { size(name) };
            }
        }
        read as f64 / all as f64
    })
}

/// The simulation by which the rule was chosen. `cargo test -p samum-pace popular -- --nocapture` prints
/// a table of its results.
#[test]
#[expect(clippy::print_stdout, reason = "a table to choose by")]
fn less_is_read_than_with_the_kernels_reclaim_alone() {
    let site = Load { files: 2000, crawled: 50, drift: u64::MAX };
    println!("files crawled drift: read of 1 byte served: with the sketch, without");
    for (load, most) in [
        (site, 0.85),
        (Load { crawled: 0, ..site }, 0.9),
        (Load { crawled: 90, ..site }, 0.95),
        (Load { drift: 20_000, ..site }, 0.85),
        (Load { drift: 20_000, crawled: 0, ..site }, 1.0),
        (Load { files: 400, ..site }, 0.5),
        (Load { files: 20_000, ..site }, 1.02),
        (Load { files: 20_000, crawled: 0, ..site }, 1.02),
    ] {
        let Load { files, crawled, drift } = load;
        let [with, without] = misses(load, 256 * MIB);
        println!("{files:6} {crawled:3} % {drift:20}: {with:.3} {without:.3}");
        assert!(with < most * without, "{files} {crawled} {drift}: {with} instead of {without}");
    }
}

/// A player asks for one piece after the other.
#[test]
fn requests_are_counted_by_the_position_where_they_begin() {
    let popularity = sketch(64 * MIB);
    (0..100).for_each(|other| _ = popularity.request(1000 + other, 0, MIB));
    assert_eq!(cutoff(&popularity), 1);
    let is_popular = |at: u64| popularity.request(1, at * PIECE_BYTES, MIB);
    assert!(!(0..40).any(is_popular));
    assert!(is_popular(0), "the second request for the same piece");
}

#[test]
fn a_sketch_has_a_counter_for_each_16_kib_between_a_least_and_a_most() {
    for (capacity, bytes) in
        [(0, 16 * KIB), (256 * MIB, 16 * KIB), (300 * MIB, 32 * KIB), (u64::MAX, MIB)]
    {
        let lines = Popularity::lines(capacity);
        assert_eq!((lines * size_of::<CounterLine>()) as u64, bytes, "{capacity}");
    }
}
