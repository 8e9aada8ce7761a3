//! The speed of long downloads from samum's own TCP and from the kernel's (CUBIC) over the same path.
//!
//! `cargo test --release -p samum --test interface -- --ignored beside --nocapture` measures for some minutes, and says
//! of each median whether it meets its bar. A pair of downloads, one after the other, has one path and one seed.

use core::net::SocketAddr;
use core::ops::RangeInclusive;
use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;
use std::thread;
use std::time::Instant;

use netstack::sim::Conditions;
use testkit::{Content, Server, Tree, or_skip};

use crate::common::{SAMUM, request};
use crate::kernel::{allowed, configure};
use crate::net::{Frames, Net, V4};
use crate::{connect, path};

const DOWNLOAD_BYTES: u64 = 32 * 1024 * 1024;
/// Bytes that a client receives in one call.
const PART_BYTES: usize = 64 * 1024;
const DOWNLOADS: u64 = 10;
const OWN: u16 = 80;
const KERNEL: u16 = 81;

/// 100 Mbit/s and 20 ms, with a queue for one round trip.
const PATH: Conditions = Conditions {
    delay: Duration::from_millis(10),
    rate: Some(12_500_000),
    queue_bytes: 250_000,
    mtu: 1500,
    loss: 0.0,
    burst: None,
    duplicate: 0.0,
    corrupt: 0.0,
    reorder: (0.0, Duration::ZERO),
    jitter: Duration::ZERO,
    mark_bytes: None,
    policer: None,
    bunch: Duration::ZERO,
    says_too_large: true,
    strips: 0,
};

/// Both servers at the end of one path, which loses what they send.
struct Pair {
    net: Net,
    _servers: [Server; 2],
}

impl Pair {
    fn new(tree: &Tree, loss: f64, seed: u64) -> Self {
        let net = Net::across(Frames::Auto, [PATH, Conditions { loss, ..PATH }], seed).unwrap();
        net.as_server(|| configure("cubic"));
        net.as_client(|| configure("cubic"));
        let own = net.serve(path(tree), &[]);
        let mut command = net.at_server(SAMUM);
        command.args(["serve", path(tree), "--threads", "1"]);
        command.args(["--listen", &format!("{V4}:{KERNEL}")]);
        let kernel = Server::spawn(&mut command).unwrap();
        Self { net, _servers: [own, kernel] }
    }

    /// Downloads the file from the server at a port, and says how much has come, until `goes_on` says no.
    fn download(port: u16, goes_on: impl Fn(u64) -> bool) {
        let mut client = connect(SocketAddr::new(V4.parse().unwrap(), port));
        client.send(request("GET /f")).unwrap();
        assert_eq!(client.head().unwrap().status, 200);
        let mut bytes = 0;
        while bytes < DOWNLOAD_BYTES && goes_on(bytes) {
            bytes += client.read_exactly(PART_BYTES).unwrap().len() as u64;
        }
        goes_on(bytes);
    }

    /// The seconds of a download.
    fn seconds(&self, port: u16) -> f64 {
        self.net.as_client(|| {
            let begun = Instant::now();
            Self::download(port, |_| true);
            begun.elapsed().as_secs_f64()
        })
    }

    /// The share of the own stack beside two flows of the kernel's, until the first of them has ended; 1 is fair.
    fn share(&self) -> f64 {
        let flows = [OWN, KERNEL, KERNEL].map(|port| (port, AtomicU64::new(0)));
        let is_over = || flows.iter().any(|flow| flow.1.load(Ordering::Relaxed) == DOWNLOAD_BYTES);
        self.net.as_client(|| {
            thread::scope(|scope| {
                for (port, bytes) in &flows {
                    scope.spawn(|| {
                        Self::download(*port, |now| {
                            if !is_over() {
                                bytes.store(now, Ordering::Relaxed);
                            }
                            !is_over()
                        });
                    });
                }
            });
        });
        let [own, first, second] = flows.map(|flow| float(flow.1.into_inner()));
        3.0 * own / (own + first + second)
    }
}

fn float(bytes: u64) -> f64 {
    f64::from(u32::try_from(bytes).expect("less than 4 GiB"))
}

/// The speed in relation to the kernel's, by the share of the frames that is lost: the least median.
const SPEEDS: [(f64, f64); 2] = [(0.0, 1.0), (0.01, 0.95)];
/// The share beside two flows of the kernel's: the least and the greatest median.
const SHARE: RangeInclusive<f64> = 0.7..=1.4;

fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    f64::midpoint(values[(values.len() - 1) / 2], values[values.len() / 2])
}

/// Median, least and greatest.
fn show(values: &[f64]) -> String {
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let greatest = values.iter().copied().fold(0.0, f64::max);
    format!("{:.2} ({least:.2}–{greatest:.2})", median(values))
}

/// Returns whether the median, as it is shown, is within its bar.
fn verdict(values: &[f64], bar: &RangeInclusive<f64>) -> &'static str {
    let shown = (median(values) * 100.0).round() / 100.0;
    if bar.contains(&shown) { "met" } else { "missed" }
}

#[test]
fn a_median_meets_its_bar_or_misses_it() {
    let values = [1.2, 0.9, 1.004, 0.998];
    assert_eq!(show(&values), "1.00 (0.90–1.20)");
    assert_eq!(verdict(&values, &(1.0..=f64::INFINITY)), "met");
    assert_eq!(verdict(&values, &(1.01..=f64::INFINITY)), "missed");
    assert_eq!(verdict(&values, &(0.7..=0.99)), "missed");
}

/// The seconds of the own stack and of the kernel's for each seed. A path that loses much keeps no processor busy, so
/// all of its pairs run at the same time.
fn seconds(tree: &Tree, loss: f64) -> Vec<[f64; 2]> {
    let one = |seed: u64| {
        let pair = Pair::new(tree, loss, seed);
        if seed.is_multiple_of(2) {
            [OWN, KERNEL].map(|port| pair.seconds(port))
        } else {
            let [kernel, own] = [KERNEL, OWN].map(|port| pair.seconds(port));
            [own, kernel]
        }
    };
    if loss == 0.0 {
        return (0..DOWNLOADS).map(one).collect();
    }
    thread::scope(|scope| {
        let threads: Vec<_> = (0..DOWNLOADS).map(|seed| scope.spawn(move || one(seed))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
#[ignore = "measures for minutes"]
fn downloads_beside_the_kernels() {
    or_skip!(allowed("cubic"));
    let tree = Tree::new().file("f", Content::pseudo_random(10, DOWNLOAD_BYTES));
    for (loss, least) in SPEEDS {
        let seconds = seconds(&tree, loss);
        let of = |which: usize| seconds.iter().map(|pair| pair[which]).collect();
        let (own, kernel): (Vec<_>, Vec<_>) = (of(0), of(1));
        let ratios: Vec<_> = own.iter().zip(&kernel).map(|(own, kernel)| kernel / own).collect();
        eprintln!(
            "{} % lost: {} s, the kernel's TCP {} s; speed in relation to it {}, at least {least}: {}",
            loss * 100.0,
            show(&own),
            show(&kernel),
            show(&ratios),
            verdict(&ratios, &(least..=f64::INFINITY))
        );
    }
    let shares: Vec<_> = (0..DOWNLOADS).map(|seed| Pair::new(&tree, 0.0, seed).share()).collect();
    let (shown, is_met) = (show(&shares), verdict(&shares, &SHARE));
    eprintln!("share beside two flows of the kernel's: {shown}, within {SHARE:?}: {is_met}");
}
