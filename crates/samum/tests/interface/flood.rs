//! Downloads while SYNs with forged sources come.
//!
//! `cargo test --release -p samum --test interface -- --ignored --nocapture flood` prints how much of its rate the
//! server keeps. Where SYNs come faster than the processor handles them, they crowd out acknowledgements as well.
//!
//! The server has CPU 0 with the kernel's work for what it receives. The clients and the flood have CPU 1 with the
//! kernel's work for what reaches them, also for the answers to forged sources, which a real network carries away.

use core::net::Ipv4Addr;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use core::time::Duration;
use std::process::Command;
use std::thread;
use std::time::Instant;

use netstack::sim::{Random, Segment, TcpOption, flag};
use rustix::thread::{CpuSet, Pid, gettid, sched_setaffinity};
use testkit::{Content, Tap, Tree, or_skip};

use crate::common::request;
use crate::net::{Frames, Net};
use crate::{addresses, connect, path};

const CLIENTS: usize = 100;
const FRAMES: u32 = 1_000_000;
/// Frames that are sent together, and the time from one such batch to the next: 100,000 a second.
const BATCH: u32 = 100;
const PAUSE: Duration = Duration::from_millis(1);

const SERVER_CPU: usize = 0;
const CLIENT_CPU: usize = 1;
/// `USER_HZ` of Linux.
const TICKS_PER_SECOND: f64 = 100.0;

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

/// What a phase was like.
#[derive(Clone, Copy, Debug)]
struct Phase {
    /// Bytes a second that the clients got.
    rate: f64,
    /// The share of the time that the server's CPU was busy.
    busy: f64,
}

/// Clock ticks in which a CPU was idle since boot. They are exact, while the others are guessed from what a CPU does
/// when a tick comes: a flood that is sent in time with the ticks is not seen there.
fn idle_ticks(cpu: usize) -> u64 {
    let stat = std::fs::read_to_string("/proc/stat").unwrap();
    let name = format!("cpu{cpu} ");
    let line = stat.lines().find_map(|line| line.strip_prefix(&name)).expect("the CPU is there");
    let times: Vec<u64> = line.split(' ').map(|ticks| ticks.parse().unwrap()).collect();
    // user nice system idle iowait
    times[3] + times[4]
}

fn measure(bytes: &AtomicU64, act: impl FnOnce()) -> Phase {
    let look = || (bytes.load(Ordering::Relaxed), idle_ticks(SERVER_CPU));
    let (before, begun) = (look(), Instant::now());
    act();
    let (after, seconds) = (look(), begun.elapsed().as_secs_f64());
    #[expect(clippy::cast_precision_loss, reason = "figures to print")]
    let each_second = |before: u64, after: u64| (after - before) as f64 / seconds;
    let idle = each_second(before.1, after.1) / TICKS_PER_SECOND;
    Phase { rate: each_second(before.0, after.0), busy: 1.0 - idle }
}

/// Moves a thread to a CPU, and the threads that it makes from now on; the calling one if none is named.
fn pin(thread: Option<Pid>, cpu: usize) {
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(thread, &set).expect("there are two CPUs");
}

/// Has this thread run whenever it wants to (chrt(1)), so that the flood keeps its time beside the clients.
fn hurry(on: bool) {
    let thread = gettid().as_raw_nonzero().to_string();
    let policy = if on { ["-f", "-p", "1"] } else { ["-o", "-p", "0"] };
    assert!(Command::new("chrt").args(policy).arg(thread).status().unwrap().success());
}

#[test]
#[ignore = "measures for two minutes"]
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
        net.steer(SERVER_CPU, CLIENT_CPU);
        for thread in std::fs::read_dir(format!("/proc/{}/task", server.pid())).unwrap() {
            let thread = thread.unwrap().file_name().into_string().unwrap();
            pin(Pid::from_raw(thread.parse().unwrap()), SERVER_CPU);
        }
        let bytes = AtomicU64::new(0);
        let (is_paused, is_over) = (AtomicBool::new(false), AtomicBool::new(false));
        let download = || {
            let mut client = connect(addresses()[0]);
            while !is_over.load(Ordering::Relaxed) {
                if is_paused.load(Ordering::Relaxed) {
                    thread::sleep(Duration::from_millis(10));
                    continue;
                }
                client.send(request("GET /f")).unwrap();
                client.head().unwrap();
                for part in expected.chunks(65_536) {
                    assert!(client.read_exactly(part.len()).unwrap() == part);
                    bytes.fetch_add(part.len() as u64, Ordering::Relaxed);
                }
            }
        };
        net.as_client(|| {
            pin(None, CLIENT_CPU);
            thread::scope(|scope| {
                for _ in 0..CLIENTS {
                    scope.spawn(download);
                }
                thread::sleep(Duration::from_secs(2));
                hurry(true);
                let alone = measure(&bytes, || thread::sleep(Duration::from_secs(5)));
                let beside_frames = measure(&bytes, || flood(&tap, false));
                let beside_syns = measure(&bytes, || flood(&tap, true));
                is_paused.store(true, Ordering::Relaxed);
                thread::sleep(Duration::from_secs(1));
                let only_syns = measure(&bytes, || flood(&tap, true));
                hurry(false);
                is_over.store(true, Ordering::Relaxed);
                // If SYNs alone take nearly all, this says nothing: beside downloads they are answered in larger batches.
                let left = (beside_syns.busy - only_syns.busy) / alone.busy;
                eprintln!(
                    "{frames:?}: {:.0} MB/s alone, {:.0} beside other frames, {:.0} beside SYNs; SYNs alone take {:.2} \
                     of the CPU; beside SYNs {:.2} of the rate beside frames, {:.2} relative to the CPU left",
                    alone.rate / 1e6,
                    beside_frames.rate / 1e6,
                    beside_syns.rate / 1e6,
                    only_syns.busy,
                    beside_syns.rate / beside_frames.rate,
                    beside_syns.rate / (alone.rate * left),
                );
            });
        });
    }
}
