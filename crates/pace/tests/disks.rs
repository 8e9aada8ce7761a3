//! Tests on simulated disks: they compare the model, the former rules and the best fixed choices.
//!
//! The results are two text files, `tests/disks.txt` and `tests/shared.txt`, so that a change of the model shows in
//! review. `PACE_WRITE=1 cargo test -p samum-pace` writes them.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "virtual times and speeds, far from the ends of their types"
)]

#[path = "disks/disk.rs"]
mod disk;
#[path = "disks/files.rs"]
mod files;
#[path = "disks/judge.rs"]
mod judge;
#[path = "disks/load.rs"]
mod load;

use core::fmt::Write as _;
use core::sync::atomic::{AtomicUsize, Ordering};
use core::time::Duration;
use std::path::Path;
use std::thread;

use disk::{Access, Bucket, Model, Mood};
use files::{Readahead, Sent, send};
use judge::{Bbr, Fixed, Judge, Readers, Source, Spaced, Threads};
use load::{Load, Outcome, run};
use pace::Constants;

const MB: u64 = 1_000_000;
const MIB: u64 = 1024 * 1024;

const fn us(us: u64) -> Duration {
    Duration::from_micros(us)
}

const SSD: Model = Model {
    name: "SATA SSD",
    units: 32,
    access: Access::Fixed(us(100)),
    link: 530 * MB,
    later: None,
    bucket: None,
    slice: None,
    // The kernel's readahead with `read_ahead_kb` of 8,192.
    readahead: 8 * MIB,
    mood: Mood::Even,
};

const fn limit(name: &'static str, rate: u64) -> Model {
    let bucket = Some(Bucket { rate, credit: rate / 10 });
    Model { name, units: 256, link: 2_000 * MB, bucket, ..SSD }
}

const DISKS: [Model; 11] = [
    Model { name: "hard disk", units: 1, access: Access::Seek, link: 180 * MB, ..SSD },
    Model {
        name: "array of 8",
        units: 8,
        access: Access::Fixed(us(9_000)),
        link: 1_200 * MB,
        ..SSD
    },
    SSD,
    Model { name: "NVMe", units: 64, access: Access::Fixed(us(150)), link: 3_500 * MB, ..SSD },
    NETWORK,
    Model {
        name: "it widens",
        link: 25 * MB,
        later: Some((Duration::from_secs(10), 250 * MB)),
        ..NETWORK
    },
    Model {
        name: "cloud, burst",
        units: 256,
        access: Access::Fixed(us(1_000)),
        link: 500 * MB,
        bucket: Some(Bucket { rate: 60 * MB, credit: 1 << 30 }),
        ..SSD
    },
    limit("250 MiB/s", 250 * MIB),
    limit("64 MiB/s", 64 * MIB),
    Model { name: "64 MiB, slices", bucket: None, slice: Some(64 * MIB / 10), ..limit("", 0) },
    limit("8 MiB/s", 8 * MIB),
];

const NETWORK: Model = Model {
    name: "network 20ms",
    units: 4_096,
    access: Access::Fixed(us(20_000)),
    link: 250 * MB,
    ..SSD
};

const MIXED: Load = Load {
    name: "8 large downloads, and a cold read of 16 KiB each 50 ms",
    streams: 8,
    workers: 1,
    file: 1 << 37,
    small_every: Some(us(50_000)),
    time: Duration::from_secs(30),
};

const LOADS: [Load; 6] = [
    MIXED,
    Load { name: "the same by 2 workers", workers: 2, ..MIXED },
    Load { name: "the same by 4 workers", workers: 4, ..MIXED },
    Load {
        name: "200 cold files of 5 MiB",
        streams: 200,
        file: 5 * MIB,
        small_every: None,
        time: Duration::from_secs(600),
        ..MIXED
    },
    Load {
        name: "one cold file of 1 GiB",
        streams: 1,
        file: 1 << 30,
        small_every: None,
        time: Duration::from_secs(600),
        ..MIXED
    },
    Load { name: "200 large downloads", streams: 200, small_every: None, ..MIXED },
];

/// Makes the judges for the given number of workers.
type Judges<'a> = &'a (dyn Fn(usize) -> Vec<Box<dyn Judge>> + Sync);

fn outcome(model: Model, load: Load, judges: Judges<'_>) -> Outcome {
    run(model, load, &mut judges(load.workers), 1)
}

/// The outcomes of all loads on all disks.
fn outcomes(judge: Judges<'_>) -> Vec<Outcome> {
    let cases = LOADS.iter().flat_map(|load| DISKS.iter().map(move |disk| (*disk, *load)));
    cases.map(|(disk, load)| outcome(disk, load, judge)).collect()
}

/// The outcomes of several judges for all loads on all disks, computed on all processors.
fn all_outcomes(judges: &[(String, Judges<'_>)]) -> Vec<Vec<Outcome>> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut done = Vec::new();
        while let index = next.fetch_add(1, Ordering::Relaxed)
            && index < judges.len()
        {
            done.push((index, outcomes(judges[index].1)));
        }
        done
    };
    let count = thread::available_parallelism().map_or(1, usize::from);
    let mut all = thread::scope(|scope| {
        let threads: Vec<_> = (0..count).map(|_| scope.spawn(work)).collect();
        threads.into_iter().flat_map(|it| it.join().unwrap()).collect::<Vec<_>>()
    });
    all.sort_unstable_by_key(|(index, _)| *index);
    all.into_iter().map(|(_, outcomes)| outcomes).collect()
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// One line for each disk and load: the best fixed choice, and the judges.
fn table(fixed: &[Vec<Outcome>], judges: &[(String, Judges<'_>)], of: &[Vec<Outcome>]) -> String {
    let mut text = String::new();
    for (index, load) in LOADS.iter().enumerate() {
        write!(text, "\n{}\n{:28}", load.name, "").unwrap();
        judges.iter().for_each(|(name, _)| write!(text, "{name:>20}").unwrap());
        for (disk, model) in DISKS.iter().enumerate() {
            let case = index * DISKS.len() + disk;
            let best = best_of(fixed, case);
            write!(text, "\n{:14}{:9.1} MB/s", model.name, best / 1e6).unwrap();
            for outcomes in of {
                let Outcome { rate, p99, .. } = outcomes[case];
                write!(text, "{:10.0} %", rate * 100.0 / best).unwrap();
                match load.small_every {
                    Some(_) => write!(text, "{:8.1}", ms(p99)).unwrap(),
                    None => write!(text, "{:8}", "").unwrap(),
                }
            }
        }
        text.push('\n');
    }
    text
}

fn best_of(fixed: &[Vec<Outcome>], case: usize) -> f64 {
    fixed.iter().map(|outcomes| outcomes[case].rate).fold(0.0, f64::max)
}

/// One line for each judge: the means over all disks and loads.
fn means(fixed: &[Vec<Outcome>], judges: &[(String, Judges<'_>)], of: &[Vec<Outcome>]) -> String {
    let mut text = String::new();
    for ((name, _), outcomes) in judges.iter().zip(of) {
        let shares = (0..outcomes.len()).map(|case| outcomes[case].rate / best_of(fixed, case));
        let (sum, least) =
            shares.fold((0.0, f64::MAX), |(sum, least), share| (sum + share, least.min(share)));
        let rate = sum * 100.0 / outcomes.len() as f64;
        let waits: Vec<_> =
            outcomes.iter().filter(|it| !it.p99.is_zero()).map(|it| ms(it.p99)).collect();
        let p99 = f64::exp(waits.iter().map(|wait| wait.ln()).sum::<f64>() / waits.len() as f64);
        let worst = waits.iter().copied().fold(0.0, f64::max);
        writeln!(text, "{name:20}{rate:8.1} %{:8.0} %{p99:10.1}{worst:10.1}", least * 100.0)
            .unwrap();
    }
    text
}

/// One line for each variant that concerns limits in slices.
fn slices(judges: &[(String, Judges<'_>)], of: &[Vec<Outcome>]) -> String {
    let disk = DISKS.iter().position(|disk| disk.slice.is_some()).unwrap();
    let concerns = ["pace", "spacing", "quick", "slices", "spare"];
    let mut text = String::new();
    for ((name, _), outcomes) in judges.iter().zip(of) {
        if concerns.iter().any(|word| name.ends_with(word)) {
            let waits = (0..3).map(|load| ms(outcomes[load * DISKS.len() + disk].p90));
            write!(text, "{name:20}").unwrap();
            waits.for_each(|wait| write!(text, "{wait:10.1}").unwrap());
            text.push('\n');
        }
    }
    text
}

/// A judge for each of `count` workers.
fn each<J: Judge + 'static>(count: usize, judge: impl Fn() -> J) -> Vec<Box<dyn Judge>> {
    (0..count).map(|_| Box::new(judge()) as Box<dyn Judge>).collect()
}

/// The constants with which no limit is measured.
const UNSPACED: Constants = Constants { slices: Duration::MAX, ..Constants::DEFAULT };

fn variants() -> Vec<(String, Constants)> {
    let all = Constants::DEFAULT;
    let mut variants = Vec::new();
    for (word, half) in [("half", true), ("twice", false)] {
        let scale = |value: u64| if half { value / 2 } else { value * 2 };
        let time = |time: Duration| if half { time / 2 } else { time * 2 };
        let (wait, round, memory) = (time(all.wait), time(all.round), time(all.memory));
        let (reads, readahead) = (scale(all.reads), scale(all.readahead));
        let (window_first, proof) = (scale(all.window_first), scale(all.proof));
        let (ahead, window_ahead) = (scale(all.ahead), scale(all.window_ahead));
        let (slices, spare) = (time(all.slices), scale(all.spare));
        let steady = scale(all.steady);
        let quick = if half { all.quick / 2 } else { all.quick * 2 };
        let (window_min, window_max) = (scale(all.window_min), scale(all.window_max));
        variants.extend([
            (format!("{word} wait"), Constants { wait, ..all }),
            (format!("{word} round"), Constants { round, ..all }),
            (format!("{word} reads"), Constants { reads, ..all }),
            (format!("{word} memory"), Constants { memory, ..all }),
            (format!("{word} window_min"), Constants { window_min, ..all }),
            (format!("{word} window_max"), Constants { window_max, ..all }),
            (format!("{word} window_first"), Constants { window_first, ..all }),
            (format!("{word} readahead"), Constants { readahead, ..all }),
            (format!("{word} steady"), Constants { steady, ..all }),
            (format!("{word} proof"), Constants { proof, ..all }),
            (format!("{word} ahead"), Constants { ahead, ..all }),
            (format!("{word} window_ahead"), Constants { window_ahead, ..all }),
            (format!("{word} quick"), Constants { quick, ..all }),
            (format!("{word} slices"), Constants { slices, ..all }),
            (format!("{word} spare"), Constants { spare, ..all }),
        ]);
    }
    variants.extend([
        ("no harmless window".to_owned(), Constants { wait: Duration::ZERO, ..all }),
        ("no round".to_owned(), Constants { round: Duration::ZERO, ..all }),
        ("no end of memory".to_owned(), Constants { memory: Duration::MAX / 2, ..all }),
        ("no readahead".to_owned(), Constants { readahead: u64::MAX, ..all }),
        ("no steady".to_owned(), Constants { steady: 1, ..all }),
        ("no reads".to_owned(), Constants { reads: 0, ..all }),
        ("no proof".to_owned(), Constants { proof: u64::MAX, ..all }),
        ("no ahead".to_owned(), Constants { ahead: 0, ..all }),
        ("no window_ahead".to_owned(), Constants { window_ahead: 0, ..all }),
        ("no quick".to_owned(), Constants { quick: 1, ..all }),
        ("no spare".to_owned(), Constants { spare: u64::MAX, ..all }),
    ]);
    variants
}

#[test]
fn the_model_on_simulated_disks() {
    let choices = [1, 4]
        .into_iter()
        .flat_map(|blocks| [2, 4, 8, 16, 32].map(|depth| Fixed { chunk: blocks * MIB / 4, depth }));
    let fixed: Vec<_> = choices.map(|choice| move |count| each(count, || choice)).collect();
    let fixed: Vec<_> = fixed.iter().map(|make| (String::new(), make as Judges<'_>)).collect();
    let fixed = all_outcomes(&fixed);

    let variants: Vec<_> = variants()
        .into_iter()
        .map(|(name, constants)| (name, move |count| Spaced::workers(constants, count)))
        .collect();
    let mut judges: Vec<(String, Judges<'_>)> = vec![
        ("source".to_owned(), &|count| each(count, Source::default)),
        ("readers".to_owned(), &|count| each(count, Readers::default)),
        ("BBR".to_owned(), &|count| each(count, Bbr::default)),
        ("pace".to_owned(), &|count| Spaced::workers(Constants::DEFAULT, count)),
        ("no spacing".to_owned(), &|count| Spaced::workers(UNSPACED, count)),
    ];
    let before = judges.len();
    judges.extend(variants.iter().map(|(name, make)| (name.clone(), make as Judges<'_>)));
    let of = all_outcomes(&judges);

    let text = format!(
        "Simulated disks (tests/disks.rs). MB/s: the best of ten fixed choices of chunk and depth. Then for each\n\
         judge its rate in percent of that, and the time in ms within which 99 of 100 small reads ended. `source`\n\
         and `readers`: what the file source and the preload library did before; `BBR`: the rule of that name.\n\
         {}\n\
         Means over all of the above: rate, least rate, p99 (geometric), worst p99\n{}\n\
         The limit by slices, by 1, 2 and 4 workers: the time in ms within which 9 of 10 small reads ended\n{}",
        table(&fixed, &judges[..before], &of[..before]),
        means(&fixed, &judges, &of),
        slices(&judges[before - 2..], &of[before - 2..]),
    );
    compare("tests/disks.txt", &text);
    // Streams wait in one queue, so no stream is overtaken often. Streams of several workers are not overtaken often
    // either: no worker believes that a device is slow because other workers read much from this device.
    let turns = of[3].iter().map(|it| it.turns).fold(0.0, f64::max);
    assert!(turns < 8.0, "{turns}");
}

/// A disk that serves 16 parts at a time, and the mood of the disk in each round.
#[derive(Clone, Copy)]
struct Shared {
    name: &'static str,
    link: u64,
    mood: fn(u32) -> Mood,
}

/// The time until which another process uses a disk: longer than any test.
const ALWAYS: Duration = Duration::from_secs(900);

const SHARED: [Shared; 8] = [
    Shared { name: "2 GB/s", link: 2_000 * MB, mood: |_| Mood::Even },
    Shared { name: "2 GB/s, waves", link: 2_000 * MB, mood: |_| Mood::Waves },
    Shared {
        name: "2 GB/s beside 4 MiB",
        link: 2_000 * MB,
        mood: |_| Mood::Busy(us(0), ALWAYS, 16),
    },
    Shared {
        name: "2 GB/s, 16 MiB for 0.3 s",
        link: 2_000 * MB,
        mood: |_| Mood::Busy(us(100_000), us(400_000), 64),
    },
    Shared {
        name: "2 GB/s, 16 MiB in turns",
        link: 2_000 * MB,
        mood: |round| match round % 2 {
            0 => Mood::Busy(us(0), ALWAYS, 64),
            _ => Mood::Even,
        },
    },
    Shared { name: "1 GB/s, waves", link: 1_000 * MB, mood: |_| Mood::Waves },
    Shared {
        name: "1 GB/s beside 4 MiB",
        link: 1_000 * MB,
        mood: |_| Mood::Busy(us(0), ALWAYS, 16),
    },
    Shared {
        name: "1 GB/s, 16 MiB for 0.3 s",
        link: 1_000 * MB,
        mood: |_| Mood::Busy(us(100_000), us(400_000), 64),
    },
];

/// Eight rounds of downloads, with pauses between the rounds.
fn rounds(shared: Shared, judge: &mut dyn Judge, readahead: Readahead, seed: u64) -> Vec<Sent> {
    // The memory of the pace does not end in a short pause, and may end in a long pause.
    let pause = Duration::from_millis(if seed.is_multiple_of(2) { 300 } else { 3_000 });
    let mut begin = pause;
    let round = |round: u32| {
        let mood = (shared.mood)(round);
        let model =
            Model { units: 16, access: Access::Fixed(us(150)), link: shared.link, mood, ..SSD };
        let seed = seed * 100 + u64::from(round);
        let sent = send(model, judge, readahead, seed, begin);
        begin += sent.took + pause;
        sent
    };
    (0..8).map(round).collect()
}

/// The rounds of 16 seeds, each with the judge of a worker that has just started.
fn all_rounds<J: Judge>(shared: Shared, judge: impl Fn() -> J, readahead: Readahead) -> Vec<Sent> {
    (1..=16).flat_map(|seed| rounds(shared, &mut judge(), readahead, seed)).collect()
}

/// On a disk that another process uses, a worker gets as much as the threads of another server, even right after the
/// start. These threads ask for as much as they can.
#[test]
fn downloads_get_their_share_of_a_disk_that_others_use() {
    let mut text = String::from(
        "200 cold files of 5 MiB at once, 16 times 8 rounds (tests/disks.rs), with the model, and with 32 threads that each\n\
         send 2 MiB of a file at a time. MB/s: the median of the rounds and the least. The ratio of the rates of the same\n\
         rounds: the median, the least, and the least of the first rounds after the start. The time in ms within which 99 of\n\
         100 small files came with the model: the median. (With threads they also wait for a thread, which is not simulated.)\n\n\
         disk                            pace        threads             ratio         small\n",
    );
    let nginx = Readahead { first: 64 * 1024, most: SSD.readahead };
    let samum = Readahead { first: 4096, ..nginx };
    let theirs = SHARED.map(|shared| all_rounds(shared, || Threads, nginx));
    let ours_of = |constants: Constants| {
        SHARED.map(|shared| all_rounds(shared, || Spaced::new(constants), samum))
    };
    let ratios = |ours: &[Sent], theirs: &[Sent]| -> Vec<f64> {
        ours.iter().zip(theirs).map(|(ours, theirs)| ours.rate / theirs.rate).collect()
    };
    for ((shared, ours), theirs) in SHARED.iter().zip(ours_of(Constants::DEFAULT)).zip(&theirs) {
        write!(text, "{:26}", shared.name).unwrap();
        for all in [&ours, theirs] {
            let (rate, least) = median_and_least(all.iter().map(|sent| sent.rate / 1e6).collect());
            write!(text, "{rate:8.0}{least:6.0}").unwrap();
        }
        let (wait, _) = median_and_least(ours.iter().map(|sent| ms(sent.p99)).collect());
        let ratios = ratios(&ours, theirs);
        let (_, first) = median_and_least(ratios.iter().copied().step_by(8).collect());
        let (ratio, least) = median_and_least(ratios);
        writeln!(text, "{ratio:10.2}{least:6.2}{first:6.2}{wait:10.0}").unwrap();
        assert!(ratio >= 0.9 && least >= 0.75 && first >= 0.85, "{text}");
    }
    text.push_str(
        "\nThe ratio on these disks, in this order, with other constants: the median, the least\n",
    );
    let all = Constants::DEFAULT;
    for (name, constants) in [
        ("pace", all),
        ("no window_ahead", Constants { window_ahead: 0, ..all }),
        ("half window_ahead", Constants { window_ahead: all.window_ahead / 2, ..all }),
        ("no ahead", Constants { ahead: 0, ..all }),
        ("half ahead", Constants { ahead: all.ahead / 2, ..all }),
        ("no steady", Constants { steady: 1, ..all }),
        ("no end of memory", Constants { memory: Duration::MAX / 2, ..all }),
    ] {
        write!(text, "{name:18}").unwrap();
        for (ours, theirs) in ours_of(constants).iter().zip(&theirs) {
            let (ratio, least) = median_and_least(ratios(ours, theirs));
            write!(text, "{ratio:7.2}{least:5.2}").unwrap();
        }
        text.push('\n');
    }
    compare("tests/shared.txt", &text);
}

fn median_and_least(mut all: Vec<f64>) -> (f64, f64) {
    all.sort_unstable_by(f64::total_cmp);
    (all[all.len() / 2], all[0])
}

/// Compares a text with a file of this crate, or writes the file.
fn compare(path: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    if std::env::var_os("PACE_WRITE").is_some() {
        std::fs::write(&path, text).unwrap();
    }
    let before = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(before, text, "PACE_WRITE=1 writes it");
}
