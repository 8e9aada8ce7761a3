//! The speed of the kernel's TCP over the paths of netstack's table `throughput.txt`, for comparison.
//!
//! `cargo test --release -p samum --test interface -- --ignored kernel` measures for some minutes and writes
//! `crates/netstack/tests/throughput-linux.txt` and `throughput-linux-bbr.txt`.

use core::fmt::Write as _;
use core::time::Duration;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::Mutex;
use std::thread;
use std::time::Instant;

use netstack::sim::Conditions;
use testkit::or_skip;

use crate::net::{Frames, Net, V4};

/// As in `crates/netstack/tests/throughput.rs`.
const RATE: u64 = 12_500_000;
const QUEUE_BYTES: usize = 250_000;
const DOWNLOAD_BYTES: usize = 8 * 1024 * 1024;
const LOSSES: [f64; 6] = [0.0, 0.000_1, 0.001, 0.01, 0.02, 0.05];
const RTTS_MS: [u64; 5] = [1, 10, 20, 50, 200];
const SEEDS: usize = 5;

/// Slow downloads keep no processor busy: this many at the same time. Of the others, which use most of the rate, this
/// many.
const SLOW_AT_ONCE: usize = 20;
const FAST_AT_ONCE: usize = 2;

/// The most bytes of a socket's buffers: twice the round trips of the rate, and room for the kernel's own data.
const BUFFER_BYTES_MAX: &str = "4096 131072 16777216";

/// An error if the kernel does not allow this algorithm in a namespace.
pub(crate) fn allowed(congestion: &str) -> Result<(), String> {
    let key = "net.ipv4.tcp_allowed_congestion_control";
    let allowed = fs::read_to_string("/proc/sys/net/ipv4/tcp_allowed_congestion_control");
    let allowed = allowed.map_err(|error| format!("{key}: {error}"))?;
    let allowed = allowed.trim();
    if allowed.split(' ').any(|one| one == congestion) {
        return Ok(());
    }
    Err(format!("{congestion} is not allowed; try sysctl {key}='{allowed} {congestion}'"))
}

/// Sets the algorithm of the namespace of the calling thread, what it remembers and how much it buffers. The algorithm has
/// to be [`allowed`].
pub(crate) fn configure(congestion: &str) {
    for (key, value) in [
        ("tcp_congestion_control", congestion),
        ("tcp_no_metrics_save", "1"),
        ("tcp_rmem", BUFFER_BYTES_MAX),
        ("tcp_wmem", BUFFER_BYTES_MAX),
    ] {
        let written = fs::write(format!("/proc/sys/net/ipv4/{key}"), value);
        written.unwrap_or_else(|error| panic!("{key} = {value}: {error}"));
    }
}

/// The bits a second of one download.
fn download(congestion: &str, loss: f64, rtt: Duration, seed: u64) -> f64 {
    let path = Conditions {
        delay: rtt / 2,
        rate: Some(RATE),
        queue_bytes: QUEUE_BYTES,
        mtu: 1500,
        ..Conditions::default()
    };
    let paths = [path, Conditions { loss, ..path }];
    let net = Net::across(Frames::Packet, paths, seed).unwrap();
    let listener = net.as_server(|| {
        configure(congestion);
        TcpListener::bind((V4, 80)).unwrap()
    });
    let client = net.as_client(|| {
        configure(congestion);
        TcpStream::connect((V4, 80)).unwrap()
    });
    let (mut server, _) = listener.accept().unwrap();
    let begun = Instant::now();
    thread::scope(|scope| {
        scope.spawn(move || server.write_all(&vec![0; DOWNLOAD_BYTES]).unwrap());
        let mut received = vec![0; DOWNLOAD_BYTES];
        (&client).read_exact(&mut received).unwrap();
    });
    let bytes = f64::from(u32::try_from(DOWNLOAD_BYTES).unwrap());
    bytes * 8.0 / begun.elapsed().as_secs_f64()
}

/// A download, by its places in the lists, and its seed.
type Run = (usize, usize, u64);

/// The speeds of these downloads, this many at the same time.
fn speeds(congestion: &str, mut runs: Vec<Run>, at_once: usize) -> Vec<(Run, f64)> {
    runs.reverse();
    let (runs, speeds) = (Mutex::new(runs), Mutex::new(vec![]));
    thread::scope(|scope| {
        for _ in 0..at_once {
            scope.spawn(|| {
                loop {
                    let Some(run) = runs.lock().unwrap().pop() else { break };
                    let rtt = Duration::from_millis(RTTS_MS[run.1]);
                    let speed = download(congestion, LOSSES[run.0], rtt, run.2);
                    eprintln!("{} %, {rtt:?}: {:.1}", LOSSES[run.0] * 100.0, speed / 1e6);
                    speeds.lock().unwrap().push((run, speed));
                }
            });
        }
    });
    speeds.into_inner().unwrap()
}

#[test]
#[ignore = "measures for minutes and writes a table"]
fn the_speed_of_cubic_is_written() {
    or_skip!(allowed("cubic"));
    write("cubic", "CUBIC", "throughput-linux.txt");
}

#[test]
#[ignore = "measures for minutes and writes a table"]
fn the_speed_of_bbr_is_written() {
    or_skip!(allowed("bbr"));
    // Version 3 is not in the kernel.
    write("bbr", "BBR version 1", "throughput-linux-bbr.txt");
}

/// Measures all cells of the table, and writes it.
fn write(congestion: &str, name: &str, file: &str) {
    let all = || {
        let cells =
            (0..LOSSES.len()).flat_map(|loss| (0..RTTS_MS.len()).map(move |rtt| (loss, rtt)));
        cells.flat_map(|(loss, rtt)| (0..SEEDS as u64).map(move |seed| (loss, rtt, seed)))
    };
    let is_slow =
        |run: &Run| congestion == "cubic" && LOSSES[run.0] >= 0.01 && RTTS_MS[run.1] >= 10;
    let mut slow: Vec<_> = all().filter(is_slow).collect();
    // The slowest first, so that the others run at the same time.
    slow.sort_by_key(|(loss, rtt, _)| core::cmp::Reverse((*rtt, *loss)));
    let mut measured = speeds(congestion, slow, SLOW_AT_ONCE);
    measured.extend(speeds(congestion, all().filter(|run| !is_slow(run)).collect(), FAST_AT_ONCE));

    let kernel = rustix::system::uname();
    let date = Command::new("date").args(["-u", "+%F"]).output().unwrap().stdout;
    let mut text = format!(
        "Mbit/s of a download of 8 MiB over 100 Mbit/s with a queue of 250 kB: medians of {SEEDS} downloads.\n\
         Linux {}, {name}, {}.\n\nloss in % \\ RTT in ms",
        kernel.release().to_str().unwrap(),
        String::from_utf8(date).unwrap().trim(),
    );
    for rtt in RTTS_MS {
        let _ = write!(text, "{rtt:>8}");
    }
    text.push('\n');
    for (row, loss) in LOSSES.iter().enumerate() {
        let _ = write!(text, "{:>21}", loss * 100.0);
        for column in 0..RTTS_MS.len() {
            let cell = measured.iter().filter(|((loss, rtt, _), _)| (*loss, *rtt) == (row, column));
            let mut speeds: Vec<_> = cell.map(|(_, speed)| *speed).collect();
            speeds.sort_by(f64::total_cmp);
            let _ = write!(text, "{:>8.1}", speeds[SEEDS / 2] / 1e6);
        }
        text.push('\n');
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../netstack/tests/");
    fs::write(format!("{path}{file}"), text).unwrap();
}
