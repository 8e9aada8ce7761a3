//! Deploys: DIR is removed and made again, or is a symbolic link that changes its target.

use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Instant;

use testkit::{Client, Content, Op, Server, Signal, SlowFs, Tree, or_skip};

use crate::common::{
    SOON, ask, ask_on, connect, on_both_drivers, on_both_drivers_at_once, request, serve,
    wait_until,
};

/// The message. The documentation promises a second; a busy machine may take longer, so the tests wait
/// for [`SOON`].
const SAID: &str = "is another directory now: serving the new one";

/// Two releases of a site, and `current`, a symbolic link to the first.
fn releases() -> Tree {
    Tree::new()
        .file("1/version.txt", "first")
        .file("1/old.txt", "only in the first")
        .file("2/version.txt", "second")
        .file("2/new.txt", "only in the second")
        .symlink("current", "1")
}

/// Changes the link as an atomic deploy does: by renaming a new link over it.
fn point_to(tree: &Path, release: &str) {
    symlink(release, tree.join("next")).unwrap();
    fs::rename(tree.join("next"), tree.join("current")).unwrap();
}

fn version(server: &Server) -> Vec<u8> {
    ask(server, "GET /version.txt").body
}

#[test]
fn a_new_target_of_the_link_is_followed() {
    on_both_drivers(|driver| {
        let tree = releases();
        let server = serve(driver, tree.path().join("current"), &["--threads", "2"]);
        // Both workers have cached the file, and that the other file is missing.
        for _ in 0..8 {
            assert_eq!(version(&server), b"first");
            assert_eq!(ask(&server, "GET /new.txt").status, 404);
        }
        point_to(tree.path(), "2");
        let began = Instant::now();
        assert!(wait_until(SOON, || version(&server) == b"second"));
        eprintln!("followed after {:?}", began.elapsed());
        assert!(server.wait_for_stderr(SAID, SOON).is_some(), "{:?}", server.stderr());
        // Each worker serves the new directory, on old and new connections, and stays with it.
        for _ in 0..20 {
            assert_eq!(version(&server), b"second");
            assert_eq!(ask(&server, "GET /new.txt").status, 200);
            assert_eq!(ask(&server, "GET /old.txt").status, 404);
        }
        // Changes in the new directory are seen at once, as in the first.
        tree.write("2/version.txt", "changed");
        assert!(wait_until(SOON, || version(&server) == b"changed"));
        // Back to the first, not atomically, as old versions of `ln -sfn` do it.
        fs::remove_file(tree.path().join("current")).unwrap();
        symlink("1", tree.path().join("current")).unwrap();
        assert!(wait_until(SOON, || version(&server) == b"first"));
        let times_said = || server.stderr().iter().filter(|line| line.contains(SAID)).count();
        assert!(wait_until(SOON, || times_said() >= 2), "{:?}", server.stderr());
        assert_eq!(times_said(), 2, "{:?}", server.stderr());
    });
}

#[test]
fn a_directory_that_is_removed_and_made_again_is_followed() {
    on_both_drivers(|driver| {
        let tree = Tree::new().file("site/version.txt", "first");
        let site = tree.path().join("site");
        let server = serve(driver, &site, &[]);
        assert_eq!(version(&server), b"first");
        fs::remove_dir_all(&site).unwrap();
        let status = || ask(&server, "GET /version.txt").status;
        assert!(wait_until(SOON, || status() == 404));
        assert!(wait_until(SOON, || status() == 503));
        let said = server.wait_for_stderr("requests for its files get a 503", SOON);
        assert!(said.is_some_and(|line| line.contains("no longer")), "{:?}", server.stderr());
        tree.write("site/version.txt", "second");
        assert!(wait_until(SOON, || version(&server) == b"second"));
        assert!(server.wait_for_stderr(SAID, SOON).is_some());
        assert_eq!(server.stderr().iter().filter(|line| line.contains("no longer")).count(), 1);
    });
}

#[test]
fn a_directory_that_is_moved_away_is_unavailable_until_it_is_back() {
    on_both_drivers_at_once(|driver| {
        let tree = Tree::new().file("site/version.txt", "first");
        let (site, away) = (tree.path().join("site"), tree.path().join("away"));
        let server = serve(driver, &site, &["--threads", "2"]);
        assert_eq!(version(&server), b"first");
        for _ in 0..2 {
            fs::rename(&site, &away).unwrap();
            let ask = || ask(&server, "GET /version.txt");
            assert!(wait_until(SOON, || ask().status == 503));
            assert!(ask().header("Retry-After").is_some());
            fs::rename(&away, &site).unwrap();
            assert!(wait_until(SOON, || ask().status == 200));
            assert_eq!(version(&server), b"first");
        }
        assert!(server.wait_for_stderr("exists again: serving it", SOON).is_some());
    });
}

#[test]
fn no_request_is_lost_in_a_deploy() {
    on_both_drivers(|driver| {
        let content = Content::pseudo_random(1, 20 << 20);
        let tree = releases().file("1/big.bin", content.clone());
        for release in ["1", "2"] {
            for number in 0..50 {
                tree.write(format!("{release}/many/{number}.txt"), release);
            }
        }
        let server = serve(driver, tree.path().join("current"), &["--threads", "2"]);
        // A download that has begun continues with the old file.
        let mut download = connect(&server);
        download.send(request("GET /big.bin")).unwrap();
        download.head().unwrap();
        let done = AtomicBool::new(false);
        let answers = std::thread::scope(|scope| {
            let client = |first: usize| {
                let (server, done) = (&server, &done);
                scope.spawn(move || {
                    let mut connection = connect(server);
                    let mut answers = 0;
                    while !done.load(Ordering::Relaxed) {
                        let path = format!("GET /many/{}.txt", (first + answers) % 50);
                        let response = ask_on(&mut connection, &path);
                        assert_eq!(response.status, 200);
                        assert!(response.body == b"1" || response.body == b"2");
                        answers += 1;
                    }
                    answers
                })
            };
            let clients: Vec<_> = (0..4).map(|number| client(number * 12)).collect();
            let followed = ["2", "1", "2"].map(|release| {
                point_to(tree.path(), release);
                let expected = if release == "1" { b"first".to_vec() } else { b"second".to_vec() };
                wait_until(SOON, || version(&server) == expected)
            });
            // Before any assertion, or the clients would never stop.
            done.store(true, Ordering::Relaxed);
            assert_eq!(followed, [true; 3]);
            clients.into_iter().map(|client| client.join().unwrap()).sum::<usize>()
        });
        assert!(answers > 100, "{answers}");
        content.assert_is(&download.read_exactly(20 << 20).unwrap());
        for _ in 0..8 {
            assert_eq!(ask(&server, "GET /many/7.txt").body, b"2");
        }
    });
}

/// Loads that wait for a disk when the directory is replaced must not leave the old file in the cache.
#[test]
fn a_file_that_is_being_read_during_a_deploy_is_not_cached() {
    on_both_drivers(|driver| {
        let slow = SlowFs::builder()
            .file("1/version.txt", "first")
            .file("2/version.txt", "second")
            .delay(Op::Read, Duration::MAX);
        let slow = or_skip!(slow.mount());
        let tree = Tree::new().symlink("current", slow.path().join("1"));
        let server = serve(driver, tree.path().join("current"), &[]);
        let mut waiting = connect(&server);
        waiting.send(request("GET /version.txt")).unwrap();
        assert!(slow.wait_until_waiting(Op::Read, 1, SOON));
        point_to(tree.path(), slow.path().join("2").to_str().unwrap());
        assert!(server.wait_for_stderr(SAID, SOON).is_some(), "{:?}", server.stderr());
        slow.set_delay(Op::Read, Duration::ZERO);
        assert_eq!(waiting.response().unwrap().body, b"first");
        for _ in 0..3 {
            assert_eq!(version(&server), b"second");
        }
    });
}

#[test]
fn a_directory_that_never_answers_does_not_block_signals() {
    on_both_drivers(|driver| {
        let slow = or_skip!(SlowFs::builder().file("site/a.txt", "hello").mount());
        let mut server = serve(driver, slow.path().join("site"), &[]);
        assert_eq!(ask(&server, "GET /a.txt").body, b"hello");
        slow.set_delay(Op::Lookup, Duration::MAX);
        slow.set_delay(Op::Getattr, Duration::MAX);
        let waits = || slow.waiting(Op::Lookup) + slow.waiting(Op::Getattr) > 0;
        assert!(wait_until(SOON, waits), "the path is looked at");
        server.signal(Signal::HUP).unwrap();
        assert!(server.wait_for_stderr("no log file to reopen", SOON).is_some());
        let address = server.address();
        server.signal(Signal::TERM).unwrap();
        assert!(server.wait_for_stderr("shutting down", SOON).is_some());
        assert!(wait_until(SOON, || Client::connect(&address).is_err()), "still accepting");
        // The kernel does not end a thread that waits for FUSE.
        slow.set_delay(Op::Lookup, Duration::ZERO);
        slow.set_delay(Op::Getattr, Duration::ZERO);
        assert_eq!(server.wait(SOON).unwrap().code(), Some(0));
    });
}
