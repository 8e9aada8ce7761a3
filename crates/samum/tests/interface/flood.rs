//! Downloads while SYNs with forged sources come.
//!
//! `cargo test --release -p samum --test interface -- --ignored --nocapture flood` prints how much of its rate the
//! server keeps. Where SYNs come faster than the processor handles them, they crowd out acknowledgements as well.

use core::net::Ipv4Addr;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use core::time::Duration;
use std::thread;
use std::time::Instant;

use netstack::sim::{Random, Segment, TcpOption, flag};
use testkit::{Content, Tap, Tree, or_skip};

use crate::common::request;
use crate::net::{Frames, Net};
use crate::{addresses, connect, path, processor_ticks};

const CLIENTS: usize = 100;
const FRAMES: u32 = 1_000_000;
/// Frames that are sent together, and the time from one such batch to the next: 100,000 a second.
const BATCH: u32 = 100;
const PAUSE: Duration = Duration::from_millis(1);

const SERVER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const EXTRA_MAC: [u8; 6] = [2, 0, 0, 0, 0, 9];
/// An ethertype for experiments, which the kernel drops.
const EXPERIMENT: [u8; 2] = [0x88, 0xb5];

/// A SYN of a forged source, or a frame of the same length that is none.
fn frame(random: &mut Random, is_syn: bool) -> Vec<u8> {
    let [a, b, c, port, rest @ ..] = random.bits().to_be_bytes();
    let source = Ipv4Addr::new(10, a, b, c);
    let syn = Segment {
        source: (source, 1024 + u16::from(port)).into(),
        destination: addresses()[0],
        ecn: 0,
        seq: u32::from_be_bytes(rest),
        ack: 0,
        flags: flag::SYN,
        window: 65_535,
        options: vec![
            TcpOption::Mss(1460),
            TcpOption::SackPermitted,
            TcpOption::Timestamps(1, 0),
            TcpOption::WindowScale(7),
        ],
        payload: vec![],
    };
    let mut frame = syn.to_frame();
    frame[..6].copy_from_slice(&SERVER_MAC);
    frame[6..12].copy_from_slice(&EXTRA_MAC);
    if !is_syn {
        frame[12..14].copy_from_slice(&EXPERIMENT);
    }
    frame
}

/// Sends all frames in their time.
fn flood(tap: &Tap, are_syns: bool) {
    let mut random = Random::new(1);
    let begun = Instant::now();
    for batch in 1..=FRAMES / BATCH {
        for _ in 0..BATCH {
            tap.write(&frame(&mut random, are_syns));
        }
        thread::sleep((begun + PAUSE * batch).saturating_duration_since(Instant::now()));
    }
}

/// The bytes a second of the clients while something is done, and the server's ticks of processor time for it.
fn measure(bytes: &AtomicU64, server: u32, act: impl FnOnce()) -> (f64, u64) {
    let (before, ticks, begun) =
        (bytes.load(Ordering::Relaxed), processor_ticks(server), Instant::now());
    act();
    let got = bytes.load(Ordering::Relaxed) - before;
    #[expect(clippy::cast_precision_loss, reason = "a rate to print")]
    let rate = got as f64 / begun.elapsed().as_secs_f64();
    (rate, processor_ticks(server) - ticks)
}

/// Frames that nothing answers take as much of the processor on their way as the SYNs do: what the server keeps beside
/// the SYNs is compared with its rate beside such frames.
#[test]
#[ignore = "measures for more than a minute"]
fn a_flood_of_syns_leaves_downloads_most_of_their_rate() {
    let file = Content::pseudo_random(9, 1024 * 1024);
    let tree = Tree::new().file("f", file.clone());
    let expected = file.to_vec();
    // `SAMUM_FRAMES=auto` measures one way only.
    let only = std::env::var("SAMUM_FRAMES").ok();
    for frames in [Frames::Auto, Frames::Xdp, Frames::Packet] {
        let name = format!("{frames:?}").to_lowercase();
        if only.as_ref().is_some_and(|only| *only != name) {
            continue;
        }
        let net = or_skip!(Net::new(frames));
        let [a, b, c, d, e, f] = SERVER_MAC;
        let tap = net.plug(&format!("{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}"));
        let server = net.serve(path(&tree), &[]);
        let (bytes, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
        net.as_client(|| {
            thread::scope(|scope| {
                for _ in 0..CLIENTS {
                    scope.spawn(|| {
                        let mut client = connect(addresses()[0]);
                        while !is_over.load(Ordering::Relaxed) {
                            client.send(request("GET /f")).unwrap();
                            client.head().unwrap();
                            for part in expected.chunks(65_536) {
                                assert!(client.read_exactly(part.len()).unwrap() == part);
                                bytes.fetch_add(part.len() as u64, Ordering::Relaxed);
                            }
                        }
                    });
                }
                thread::sleep(Duration::from_secs(2));
                let pid = server.pid();
                let alone = measure(&bytes, pid, || thread::sleep(Duration::from_secs(5)));
                let beside_frames = measure(&bytes, pid, || flood(&tap, false));
                let beside_syns = measure(&bytes, pid, || flood(&tap, true));
                is_over.store(true, Ordering::Relaxed);
                let share = beside_syns.0 / beside_frames.0;
                eprintln!(
                    "{frames:?}: {:.0} MB/s alone, {:.0} beside other frames, {:.0} beside SYNs: {share:.2}; \
                     ticks of the server: {} {} {}",
                    alone.0 / 1e6,
                    beside_frames.0 / 1e6,
                    beside_syns.0 / 1e6,
                    alone.1,
                    beside_frames.1,
                    beside_syns.1,
                );
            });
        });
    }
}
