//! Every kind of event loop, with a real disk: every byte is right, no loop stalls or spins.

use core::time::Duration;
use std::thread;
use std::time::Instant;

use testkit::{Content, Server, Throttle, Tree, or_skip};

use crate::common::{
    client, count, cpu, descriptors, get, loop_server, preloaded, room_for_descriptors, tree, until,
};

const MODES: [&str; 5] = ["level", "edge", "oneshot", "poll", "select"];
const MIB: u64 = 1024 * 1024;

fn content(size: u64) -> Content {
    Content::pseudo_random(size, size)
}

fn with_files(sizes: &[u64]) -> Tree {
    sizes.iter().fold(tree(), |tree, &size| tree.file(size.to_string(), content(size)))
}

/// Starts a server of this mode, which writes its counts beside its files.
fn serve(mode: &str, tree: &Tree, throttle: &Throttle) -> Server {
    let mut command = throttle.command(loop_server());
    command.arg(mode).arg(tree.path()).env("SAMUM_PRELOAD_STATS", tree.path().join("stats"));
    Server::spawn(preloaded(&mut command)).unwrap()
}

#[test]
fn hot_and_cold_files_arrive_whole() {
    let sizes =
        [0, 1, 4096, 16 * 1024, 16 * 1024 + 1, 70_000, 256 * 1024, 300_000, MIB + 5, 9 * MIB];
    let tree = with_files(&sizes);
    let throttle = or_skip!(Throttle::new(tree.path()));
    for mode in MODES {
        let server = serve(mode, &tree, &throttle);
        for round in 0..3 {
            for &size in &sizes {
                tree.evict(size.to_string());
            }
            throttle.limit(Some(64 * MIB));
            thread::scope(|scope| {
                for offset in 0..8 {
                    let (server, sizes) = (&server, &sizes);
                    scope.spawn(move || {
                        let mut client = client(server);
                        for index in 0..sizes.len() {
                            let size = sizes[(index + offset) % sizes.len()];
                            get(&mut client, &size.to_string(), &content(size));
                        }
                    });
                }
            });
            throttle.limit(None);
            let stats = tree.path().join("stats");
            if round == 2 {
                assert!(count(&stats, server.pid(), "rearmed") > 0, "{mode}: nothing was cold");
                assert_eq!(count(&stats, server.pid(), "left_no_progress"), 0, "{mode}");
            }
        }
    }
}

#[test]
fn a_hot_file_does_not_wait_for_a_cold_one_and_no_loop_spins() {
    let tree = with_files(&[1000, 4 * MIB]);
    let throttle = or_skip!(Throttle::new(tree.path()));
    for mode in MODES {
        let server = serve(mode, &tree, &throttle);
        let mut hot = client(&server);
        get(&mut hot, "1000", &content(1000));
        tree.evict((4 * MIB).to_string());
        throttle.limit(Some(MIB));
        let (began, before) = (Instant::now(), cpu(server.pid()));
        let mut slowest = Duration::ZERO;
        thread::scope(|scope| {
            let cold = scope.spawn(|| {
                get(&mut client(&server), &(4 * MIB).to_string(), &content(4 * MIB));
            });
            while !cold.is_finished() {
                let asked = Instant::now();
                get(&mut hot, "1000", &content(1000));
                slowest = slowest.max(asked.elapsed());
                thread::sleep(Duration::from_millis(20));
            }
        });
        let (took, used) = (began.elapsed(), cpu(server.pid()) - before);
        throttle.limit(None);
        assert!(took > Duration::from_millis(1500), "{mode}: the disk was not slow: {took:?}");
        assert!(slowest < took / 4, "{mode}: hot file took {slowest:?} of {took:?}");
        // Otherwise the loop sleeps whenever the table has to grow, because there are threads now.
        assert!(room_for_descriptors(server.pid()) >= 1 << 10, "{mode}");
        assert!(used < took * 3 / 100, "{mode}: {used:?} of processor in {took:?}");
    }
}

#[test]
fn clients_that_leave_leave_nothing_behind() {
    let tree = with_files(&[1000, 8 * MIB]);
    let throttle = or_skip!(Throttle::new(tree.path()));
    for mode in MODES {
        let server = serve(mode, &tree, &throttle);
        let mut staying = client(&server);
        tree.evict((8 * MIB).to_string());
        get(&mut staying, &(8 * MIB).to_string(), &content(8 * MIB));
        get(&mut staying, "1000", &content(1000));
        let before = descriptors(server.pid());
        tree.evict((8 * MIB).to_string());
        throttle.limit(Some(4 * MIB));
        for round in 0..30 {
            let mut leaving: Vec<_> = (0..10).map(|_| client(&server)).collect();
            for client in &mut leaving {
                client.send(format!("GET /{} HTTP/1.1\r\nHost: x\r\n\r\n", 8 * MIB)).unwrap();
            }
            thread::sleep(Duration::from_millis(round));
        }
        throttle.limit(None);
        until("all descriptors are closed", || descriptors(server.pid()) <= before);
        get(&mut client(&server), &(8 * MIB).to_string(), &content(8 * MIB));
        until("all descriptors are closed", || descriptors(server.pid()) <= before);
    }
}

#[test]
fn peers_that_reset_are_let_go_at_once() {
    let tree = with_files(&[1000, 4 * MIB]);
    let throttle = or_skip!(Throttle::new(tree.path()));
    for mode in MODES {
        let server = serve(mode, &tree, &throttle);
        let mut staying = client(&server);
        get(&mut staying, "1000", &content(1000));
        let before = descriptors(server.pid());
        tree.evict((4 * MIB).to_string());
        throttle.limit(Some(MIB / 2));
        let mut leaving: Vec<_> = (0..10).map(|_| client(&server)).collect();
        for client in &mut leaving {
            client.send(format!("GET /{} HTTP/1.1\r\nHost: x\r\n\r\n", 4 * MIB)).unwrap();
            // Received bytes that were not read make the close a reset.
            thread::sleep(Duration::from_millis(20));
        }
        let (used, asked) = (cpu(server.pid()), Instant::now());
        drop(leaving);
        // The two descriptors of a reader and the program's file stay open until the read has ended.
        until("closed connections are forgotten", || descriptors(server.pid()) <= before + 4);
        get(&mut staying, "1000", &content(1000));
        let (took, used) = (asked.elapsed(), cpu(server.pid()) - used);
        throttle.limit(None);
        // The reads take 8 s.
        assert!(took < Duration::from_secs(4), "{mode}: {took:?}");
        assert!(used < Duration::from_millis(30), "{mode}: it spins: {used:?} in {took:?}");
    }
}

#[test]
fn turned_off_it_does_nothing() {
    let tree = with_files(&[300_000]);
    let mut command = std::process::Command::new(loop_server());
    command.arg("level").arg(tree.path()).env("SAMUM_PRELOAD", "off");
    let stats = tree.path().join("stats");
    command.env("SAMUM_PRELOAD_STATS", &stats);
    let mut server = Server::spawn(preloaded(&mut command)).unwrap();
    tree.evict("300000");
    get(&mut client(&server), "300000", &content(300_000));
    server.terminate().unwrap();
    assert!(!stats.with_added_extension(server.pid().to_string()).exists());
}
