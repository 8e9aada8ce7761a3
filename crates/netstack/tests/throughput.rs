//! The speed of a download over loss and round trip, in the simulated network. The table is a file, so that a change
//! of congestion control or loss recovery shows in review. `SAMUM_WRITE=1 cargo test -p samum-netstack --test all throughput`
//! writes it. `throughput-linux.txt` (CUBIC) and `throughput-linux-bbr.txt` (BBR version 1) have the speed of the kernel's TCP
//! over the same paths in real time; it is measured by samum's tests of an interface.

use core::fmt::Write;
use core::net::{Ipv4Addr, SocketAddr};
use core::time::Duration;

use netstack::sim::{Conditions, Link, News, Random, World};
use netstack::tcp::Algorithm;

use crate::hosts::{START, host};

/// Bytes a second: 100 Mbit/s.
const RATE: u64 = 12_500_000;
const QUEUE_BYTES: usize = 250_000;
const DOWNLOAD_BYTES: usize = 8 * 1024 * 1024;
/// The share of frames that are lost, on the way to the client.
const LOSSES: [f64; 6] = [0.0, 0.000_1, 0.001, 0.01, 0.02, 0.05];
const RTTS_MS: [u64; 5] = [1, 10, 20, 50, 200];
const SEEDS: usize = 5;

/// The bits a second of one download.
fn download(congestion: Algorithm, loss: f64, rtt: Duration, seed: u64) -> f64 {
    let mut random = Random::new(seed);
    let path = Conditions {
        delay: rtt / 2,
        rate: Some(RATE),
        queue_bytes: QUEUE_BYTES,
        ..Conditions::default()
    };
    let links =
        [Link::new(path, random.fork()), Link::new(Conditions { loss, ..path }, random.fork())];
    let mut world = World::new(START, [1, 2].map(|index| host(index, congestion)), links);
    let local = SocketAddr::new(Ipv4Addr::new(10, 0, 0, 1).into(), 5000);
    let peer = SocketAddr::new(Ipv4Addr::new(10, 0, 0, 2).into(), 80);
    assert!(world.hosts[0].connect(START, local, peer).is_some());
    world.settle();
    let mut received = 0;
    let mut begun = START;
    while received < DOWNLOAD_BYTES {
        let news = world.advance(START + Duration::from_secs(3600)).expect("the download goes on");
        for (host, id, news) in news {
            match news {
                News::Accepted(..) if host == 1 => {
                    begun = world.now();
                    world.hosts[1].send(id, vec![0; DOWNLOAD_BYTES]);
                }
                News::Received(bytes) => received += bytes.len(),
                News::Lost(why) => panic!("{why:?}"),
                _ => {}
            }
        }
        world.settle();
    }
    let bytes = f64::from(u32::try_from(DOWNLOAD_BYTES).expect("small"));
    bytes * 8.0 / world.now().since(begun).as_secs_f64()
}

fn table() -> String {
    let mut text = String::from(
        "Mbit/s of a download of 8 MiB over 100 Mbit/s with a queue of 250 kB: medians of 5 seeds.\n",
    );
    for congestion in [Algorithm::Cubic, Algorithm::Bbr] {
        let _ = writeln!(text, "\n{congestion:?}");
        add_table(&mut text, congestion);
    }
    text
}

fn add_table(text: &mut String, congestion: Algorithm) {
    text.push_str("loss in % \\ RTT in ms");
    for rtt in RTTS_MS {
        let _ = write!(text, "{rtt:>8}");
    }
    text.push('\n');
    for loss in LOSSES {
        let _ = write!(text, "{:>21}", loss * 100.0);
        for rtt in RTTS_MS {
            let mut speeds: Vec<_> = (0..SEEDS)
                .map(|seed| download(congestion, loss, Duration::from_millis(rtt), seed as u64))
                .collect();
            speeds.sort_by(f64::total_cmp);
            let _ = write!(text, "{:>8.1}", speeds[SEEDS / 2] / 1e6);
        }
        text.push('\n');
    }
}

#[test]
fn the_speed_is_as_in_the_table() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/throughput.txt");
    let table = table();
    if std::env::var_os("SAMUM_WRITE").is_some() {
        std::fs::write(path, &table).expect("the table is written");
    }
    let expected = std::fs::read_to_string(path).unwrap_or_default();
    assert!(table == expected, "the speed has changed; SAMUM_WRITE=1 writes the table:\n{table}");
}
