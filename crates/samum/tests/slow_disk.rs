//! A real slow file system (FUSE): requests that wait for it do not delay others.

use core::time::Duration;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Instant;

use testkit::metrics::Metrics;
use testkit::{
    Address, Client, Content, HungDisk, Op, Response, Server, SlowFs, SlowFsBuilder, Subvolumes,
    Tree, or_skip,
};

use crate::common::{
    self, SOON, ask, ask_on, connect, on_both_drivers, on_both_drivers_at_once, request, serve,
};

const COLD: usize = 20;
/// The disk sleeps until it is woken, so a request that waits for it takes longer.
const ANSWER_MAX: Duration = Duration::from_secs(2);

fn cold(number: usize) -> Content {
    Content::pseudo_random(number as u64, 200_000)
}

fn file_system() -> SlowFsBuilder {
    let mut builder = SlowFs::builder()
        .file("hot/hot.txt", "hot")
        .file("hot/large.bin", cold(99))
        .file("listed/a", "a");
    for number in 0..COLD {
        builder = builder.file(format!("cold/{number}.bin"), cold(number));
    }
    builder
}

/// Requests the hot file for a while; returns the latencies in ascending order.
fn latencies(client: &mut Client, path: &str, body: &Content) -> Vec<Duration> {
    let mut all = Vec::new();
    let until = Instant::now() + Duration::from_millis(600);
    // Longer than a cached entry is believed, so that the server has to look up the file again.
    while Instant::now() < until || all.len() < 100 {
        let began = Instant::now();
        let response = ask_on(client, &format!("GET {path}"));
        all.push(began.elapsed());
        assert_eq!(response.status, 200);
        body.assert_is(&response.body);
        thread::sleep(Duration::from_millis(1));
    }
    all.sort_unstable();
    all
}

#[track_caller]
fn assert_quick(latencies: &[Duration]) {
    let most = latencies[latencies.len() - 1];
    assert!(most < ANSWER_MAX, "{most:?}");
}

/// Opens clients that each wait for a cold file.
fn ask_cold(server: &Server) -> Vec<Client> {
    (0..COLD)
        .map(|number| {
            let mut client = connect(server);
            client.send(request(&format!("GET /cold/{number}.bin"))).unwrap();
            client
        })
        .collect()
}

#[track_caller]
fn assert_cold_arrive(clients: Vec<Client>) {
    for (number, mut client) in clients.into_iter().enumerate() {
        client.set_limit(Duration::from_secs(20));
        let response = client.response().unwrap();
        assert_eq!(response.status, 200, "{number}");
        cold(number).assert_is(&response.body);
    }
}

/// Asserts that hot files are served while `op` sleeps on cold files, and that the cold files arrive in
/// the end.
fn hot_beside_cold(op: Op) {
    on_both_drivers(|driver| {
        let slow = or_skip!(file_system().mount());
        let server = serve(driver, slow.path(), &["--listing"]);
        let mut hot = connect(&server);
        for path in ["/hot/hot.txt", "/hot/hot.txt"] {
            assert_eq!(ask_on(&mut hot, &format!("GET {path}")).body, b"hot");
        }
        // The whole disk sleeps until it is woken, including the part with the hot file.
        slow.set_delay(op, Duration::MAX);
        let clients = ask_cold(&server);
        assert!(slow.wait_until_waiting(op, 1, SOON), "nobody asks");
        let latencies = latencies(&mut hot, "/hot/hot.txt", &Content::from("hot"));
        slow.set_delay(op, Duration::from_millis(20));
        assert_quick(&latencies);
        assert_cold_arrive(clients);
    });
}

#[test]
fn hot_files_are_answered_while_cold_ones_are_looked_up() {
    hot_beside_cold(Op::Lookup);
}

#[test]
fn hot_files_are_answered_while_cold_ones_are_opened() {
    hot_beside_cold(Op::Open);
}

#[test]
fn hot_files_are_answered_while_attributes_are_fetched() {
    hot_beside_cold(Op::Getattr);
}

#[test]
fn hot_files_are_answered_while_cold_ones_are_read() {
    hot_beside_cold(Op::Read);
}

#[test]
fn hot_files_are_answered_while_a_directory_is_listed() {
    on_both_drivers(|driver| {
        let slow = or_skip!(file_system().mount());
        let server = serve(driver, slow.path(), &["--listing"]);
        let mut hot = connect(&server);
        assert_eq!(ask_on(&mut hot, "GET /hot/hot.txt").body, b"hot");
        slow.set_delay(Op::Readdir, Duration::MAX);
        slow.set_delay(Op::Read, Duration::MAX);
        let mut listing = connect(&server);
        listing.send(request("GET /listed/")).unwrap();
        let clients = ask_cold(&server);
        assert!(slow.wait_until_waiting(Op::Readdir, 1, SOON));
        let latencies = latencies(&mut hot, "/hot/hot.txt", &Content::from("hot"));
        slow.set_delay(Op::Readdir, Duration::ZERO);
        slow.set_delay(Op::Read, Duration::ZERO);
        assert_quick(&latencies);
        let page = String::from_utf8(listing.response().unwrap().body).unwrap();
        assert!(page.contains("href=\"./a\""), "{page}");
        assert_cold_arrive(clients);
    });
}

#[test]
fn a_hot_large_file_is_sent_while_cold_ones_are_read() {
    on_both_drivers(|driver| {
        let slow =
            or_skip!(file_system().cache_attributes(Duration::from_secs(60)).keep_data().mount());
        let server = serve(driver, slow.path(), &[]);
        let mut hot = connect(&server);
        for _ in 0..3 {
            cold(99).assert_is(&ask_on(&mut hot, "GET /hot/large.bin").body);
        }
        for number in 0..COLD {
            slow.set_delay_of(format!("cold/{number}.bin"), Op::Read, Duration::MAX);
        }
        let clients = ask_cold(&server);
        assert!(slow.wait_until_waiting(Op::Read, 1, SOON));
        let latencies = latencies(&mut hot, "/hot/large.bin", &cold(99));
        for number in 0..COLD {
            slow.set_delay_of(format!("cold/{number}.bin"), Op::Read, Duration::ZERO);
        }
        assert_quick(&latencies);
        assert_cold_arrive(clients);
    });
}

#[test]
fn cold_requests_of_one_connection_overlap_and_arrive_in_order() {
    on_both_drivers(|driver| {
        const DELAY: Duration = Duration::from_millis(60);
        let slow = or_skip!(file_system().delay(Op::Read, DELAY).delay(Op::Open, DELAY).mount());
        let server = serve(driver, slow.path(), &[]);
        let mut client = connect(&server);
        let requests: String =
            (0..COLD).map(|number| request(&format!("GET /cold/{number}.bin"))).collect();
        client.send(requests).unwrap();
        for number in 0..COLD {
            cold(number).assert_is(&client.response().unwrap().body);
        }
        assert!(slow.waiting_max(Op::Open) > 1, "opens overlap");
        assert!(slow.waiting_max(Op::Read) > 1, "reads overlap");
    });
}

#[test]
fn many_clients_of_one_cold_file_ask_the_disk_once() {
    on_both_drivers(|driver| {
        let slow = or_skip!(file_system().delay(Op::Open, Duration::from_millis(200)).mount());
        let server = serve(driver, slow.path(), &[]);
        let mut clients: Vec<_> = (0..10).map(|_| connect(&server)).collect();
        for client in &mut clients {
            client.send(request("GET /hot/hot.txt")).unwrap();
        }
        for client in &mut clients {
            assert_eq!(client.response().unwrap().body, b"hot");
        }
        assert_eq!(slow.count(Op::Open), 1, "requests for the same path join");
    });
}

#[test]
fn clients_that_leave_while_the_disk_sleeps_leave_nothing_behind() {
    for op in [Op::Open, Op::Read] {
        on_both_drivers(|driver| {
            let slow = or_skip!(file_system().mount());
            let server = serve(driver, slow.path(), &[]);
            assert_eq!(ask(&server, "GET /hot/hot.txt").status, 200);
            let before = common::descriptors(&server);
            slow.set_delay(op, Duration::MAX);
            let clients = ask_cold(&server);
            assert!(slow.wait_until_waiting(op, 1, SOON));
            drop(clients);
            slow.set_delay(op, Duration::ZERO);
            // Cached files and pooled pipes stay open; connections do not.
            let most = before + COLD + 130;
            assert!(
                common::wait_until(SOON, || common::descriptors(&server) <= most),
                "{}",
                common::descriptors(&server)
            );
            assert_cold_arrive(ask_cold(&server));
        });
    }
}

#[test]
fn a_server_with_a_sleeping_disk_shuts_down() {
    on_both_drivers(|driver| {
        let slow = or_skip!(file_system().mount());
        let mut server = serve(driver, slow.path(), &[]);
        slow.set_delay(Op::Read, Duration::MAX);
        let clients = ask_cold(&server);
        assert!(slow.wait_until_waiting(Op::Read, 1, SOON));
        // It takes requests in their order, so it has those.
        assert_eq!(ask(&server, "GET /missing").status, 404);
        server.signal(testkit::Signal::TERM).unwrap();
        assert!(server.wait_for_stderr("shutting down", SOON).is_some());
        // Clients that still wait get their responses.
        slow.set_delay(Op::Read, Duration::ZERO);
        assert_cold_arrive(clients);
        assert_eq!(server.wait(SOON).unwrap().code(), Some(0));
    });
}

/// A tree with a file system in it, and the name of that, which is below the root.
fn tree_with(file_system: SlowFsBuilder) -> Result<(Tree, SlowFs, String), testkit::Skip> {
    let mut tree = Tree::new().file("hot.txt", "hot");
    for number in 0..HEALTHY {
        tree = tree.file(format!("healthy{number}/a.txt"), "fine");
    }
    let slow = file_system.mount_beneath(tree.path())?;
    let name = slow.path().file_name().expect("a directory").to_str().expect("plain").to_owned();
    Ok((tree, slow, name))
}

const HEALTHY: usize = 40;
/// Requests of one client for files of a file system that does not answer: more than a connection has under way.
const REQUESTS: usize = 72;
/// More clients than there are places for calls that sleep.
const CLIENTS: usize = 140;

fn set_dead(slow: &SlowFs, is_dead: bool) {
    let delay = if is_dead { Duration::MAX } else { Duration::ZERO };
    for op in [Op::Lookup, Op::Open, Op::Getattr, Op::Read] {
        slow.set_delay(op, delay);
    }
}

/// Asks for each of the healthy files, one after another. What waits for a file system that does not answer waits for the
/// patience with it, 3 s, or for ever, and so would most of these. A single one may be late because other programs
/// have the processors.
#[track_caller]
fn assert_not_delayed(mut ask: impl FnMut(usize)) {
    let mut all: Vec<_> = (0..HEALTHY)
        .map(|number| {
            let began = Instant::now();
            ask(number);
            began.elapsed()
        })
        .collect();
    all.sort();
    assert!(all[HEALTHY / 2] < Duration::from_secs(2), "{all:?}");
}

/// Opens clients that together ask for more than 10,000 different files.
fn ask_dead(server: &Server, name: &str) -> Vec<Client> {
    let paths = |client: usize| (0..REQUESTS).map(move |file| client * REQUESTS + file);
    (0..CLIENTS)
        .map(|number| {
            let get = |file| request(&format!("GET /{name}/cold/{file}.bin"));
            let mut client = connect(server);
            client.send(paths(number).map(get).collect::<String>()).unwrap();
            client
        })
        .collect()
}

#[test]
fn a_file_system_that_never_answers_harms_only_its_own_files() {
    for is_known in [true, false] {
        on_both_drivers_at_once(|driver| {
            let (tree, slow, name) = or_skip!(tree_with(file_system()));
            let mut server = serve(driver, tree.path(), &["--timeout-disk", "3"]);
            assert_eq!(ask(&server, "GET /hot.txt").body, b"hot");
            if is_known {
                assert_eq!(ask(&server, &format!("GET /{name}/hot/hot.txt")).body, b"hot");
            }
            set_dead(&slow, true);
            let clients = ask_dead(&server, &name);
            assert!(slow.wait_until_waiting(Op::Lookup, 1, SOON));
            assert_not_delayed(|number| {
                let response = ask(&server, &format!("GET /healthy{number}/a.txt"));
                assert_eq!((response.status, &response.body[..]), (200, &b"fine"[..]));
            });
            assert_eq!(ask(&server, "GET /hot.txt").body, b"hot");
            for mut client in clients {
                client.set_limit(SOON);
                for _ in 0..REQUESTS {
                    let response = client.response().unwrap();
                    assert_eq!(response.status, 503);
                    assert!(response.header("Retry-After").is_some());
                }
            }
            assert!(server.wait_for_stderr("has not answered", SOON).is_some());
            assert_eq!(said(&server, "has not answered"), 1, "{:?}", server.stderr());
            let began = Instant::now();
            for number in 0..20 {
                // One of them may be the one that tries it.
                let mut client = connect(&server);
                client.send(request(&format!("GET /{name}/cold/new{number}.bin"))).unwrap();
                assert_eq!(client.response().unwrap().status, 503);
            }
            assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
            set_dead(&slow, false);
            assert!(server.wait_for_stderr("answers again", SOON).is_some());
            for number in 0..COLD {
                let path = format!("GET /{name}/cold/{number}.bin");
                assert!(common::wait_until(SOON, || ask(&server, &path).status == 200));
                cold(number).assert_is(&ask(&server, &path).body);
            }
            set_dead(&slow, true);
            let clients = ask_dead(&server, &name);
            assert!(slow.wait_until_waiting(Op::Lookup, 1, SOON));
            server.signal(testkit::Signal::TERM).unwrap();
            drop(clients);
            // The main thread has ended; those in calls of FUSE cannot even be killed (`request_wait_answer`
            // in fs/fuse/dev.c).
            let status = format!("/proc/{}/status", server.pid());
            let has_ended = || fs::read_to_string(&status).unwrap().contains("State:\tZ");
            assert!(common::wait_until(SOON, has_ended), "it waits for calls");
            set_dead(&slow, false);
            assert_eq!(server.wait(SOON).unwrap().code(), Some(0));
        });
    }
}

/// A call of FUSE that the file system has begun cannot be killed, so the process and its descriptors stay.
#[test]
fn a_server_that_a_dead_file_system_keeps_lets_go_of_its_clients_and_its_address() {
    for signals in [1, 2] {
        on_both_drivers_at_once(|driver| {
            let (tree, slow, name) = or_skip!(tree_with(file_system()));
            let mut server = serve(driver, tree.path(), &["--timeout-disk", "3"]);
            assert_eq!(ask(&server, "GET /hot.txt").body, b"hot");
            set_dead(&slow, true);
            let mut client = connect(&server);
            client.send(request(&format!("GET /{name}/cold/0.bin"))).unwrap();
            assert!(slow.wait_until_waiting(Op::Lookup, 1, SOON));
            server.signal(testkit::Signal::TERM).unwrap();
            assert!(server.wait_for_stderr("shutting down", SOON).is_some());
            if signals == 2 {
                server.signal(testkit::Signal::TERM).unwrap();
            }
            client.set_limit(SOON);
            match client.response() {
                Ok(response) => assert_eq!((signals, response.status), (1, 503)),
                Err(error) => {
                    assert_ne!(error.kind(), ErrorKind::TimedOut, "{driver}: it waits for ever");
                    assert_eq!(signals, 2, "{error}");
                }
            }
            let status = format!("/proc/{}/status", server.pid());
            let has_ended = || fs::read_to_string(&status).unwrap().contains("State:\tZ");
            assert!(common::wait_until(SOON, has_ended), "it waits for calls");
            let Address::Tcp(address) = server.address() else { unreachable!("it has a port") };
            let successor = serve(driver, tree.path(), &["--listen", &address.to_string()]);
            assert_eq!(ask(&successor, "GET /hot.txt").body, b"hot");
            set_dead(&slow, false);
            assert_eq!(server.wait(SOON).unwrap().code(), Some(0));
        });
    }
}

#[test]
fn reads_that_never_end_harm_only_their_own_files() {
    on_both_drivers_at_once(|driver| {
        let (tree, slow, name) = or_skip!(tree_with(file_system()));
        for number in 0..HEALTHY {
            tree.write(format!("large{number}"), cold(number));
            tree.evict(format!("large{number}"));
        }
        let server = serve(driver, tree.path(), &["--timeout-disk", "3"]);
        slow.set_delay(Op::Read, Duration::MAX);
        let clients: Vec<Client> = (0..CLIENTS)
            .map(|number| {
                let mut client = connect(&server);
                let file = number % COLD;
                client.send(request(&format!("GET /{name}/cold/{file}.bin"))).unwrap();
                client
            })
            .collect();
        assert!(slow.wait_until_waiting(Op::Read, 1, SOON));
        assert_not_delayed(|number| {
            cold(number).assert_is(&ask(&server, &format!("GET /large{number}")).body);
        });
        for mut client in clients {
            client.set_limit(SOON);
            let head = client.head().unwrap();
            assert_eq!((head.status, client.read_to_end().unwrap_or_default().len()), (200, 0));
        }
        assert!(server.wait_for_stderr("did not answer while", SOON).is_some());
        // From now on a request is refused before its head, unless it is the one that tries the disk.
        let began = Instant::now();
        let clients: Vec<_> = (0..2 * COLD)
            .map(|number| {
                let mut client = connect(&server);
                let file = number % COLD;
                client.send(request(&format!("GET /{name}/cold/{file}.bin"))).unwrap();
                client
            })
            .collect();
        let mut tries = 0;
        for mut client in clients {
            // That of a try leaves with the first bytes, or when the connection is closed.
            match client.head().unwrap() {
                head if head.status == 200 => tries += 1,
                head => assert_eq!((head.status, head.header("Retry-After")), (503, Some("10"))),
            }
        }
        assert!(began.elapsed() < 2 * TIMEOUT, "{:?}", began.elapsed());
        assert!(tries <= 2, "{tries} tries");
        assert_eq!(ask(&server, &format!("HEAD /{name}/cold/0.bin")).status, 200);
        assert_eq!(said(&server, "no read of a disk"), 1, "{:?}", server.stderr());
        slow.set_delay(Op::Read, Duration::ZERO);
        // The disk counts as silent until one of its reads has ended.
        let answers = || {
            let mut client = connect(&server);
            client.send(request(&format!("GET /{name}/cold/0.bin"))).unwrap();
            client.response().is_ok_and(|response| response.status == 200)
        };
        assert!(common::wait_until(SOON, answers));
        for number in 0..COLD {
            cold(number).assert_is(&ask(&server, &format!("GET /{name}/cold/{number}.bin")).body);
        }
        assert_eq!(said(&server, "end again"), 1, "{:?}", server.stderr());
    });
}

/// The page for 503 is on a disk that answers, and on the one that does not.
#[test]
fn a_request_that_a_silent_disk_cannot_serve_has_the_page_of_its_site_if_that_can_be_read() {
    on_both_drivers_at_once(|driver| {
        for is_readable in [true, false] {
            let (tree, slow, name) = or_skip!(tree_with(file_system()));
            tree.write("busy.html", "busy");
            let page = if is_readable { "/busy.html" } else { &format!("/{name}/cold/19.bin") };
            let options = ["--timeout-disk", "3", "--errors", &format!("503={page}")];
            let server = serve(driver, tree.path(), &options);
            assert_eq!(ask(&server, &format!("GET /{name}/cold/18.bin")).status, 200);
            // A page that has to be looked for is for later requests.
            assert_eq!(ask(&server, "GET /busy.html").body, b"busy");
            let get = |number: usize| {
                let mut client = connect(&server);
                client.send(request(&format!("GET /{name}/cold/{number}.bin"))).unwrap();
                client
            };
            let has_page_of_server = |response: &Response| {
                assert_may_come_back(response);
                let body = String::from_utf8_lossy(&response.body);
                assert!(!is_readable || body == "busy", "{body}");
                body.contains("cannot do this at the moment")
            };
            // Its reads do not end: the head of the first response was promised, later ones are refused.
            slow.set_delay(Op::Read, Duration::MAX);
            let first = get(0);
            assert!(server.wait_for_stderr("no read of a disk", SOON).is_some());
            drop(first);
            // Other files: to open one again whose read has not ended may sleep until it does.
            let (began, mut tries) = (Instant::now(), 0);
            for mut client in (1..11).map(get).collect::<Vec<_>>() {
                match client.response() {
                    Ok(response) => assert_eq!(has_page_of_server(&response), !is_readable),
                    // Its head was sent, and no body.
                    Err(_) => tries += 1,
                }
            }
            assert!(tries <= 2, "{tries} tries");
            assert!(began.elapsed() < 2 * TIMEOUT, "{:?}", began.elapsed());
            slow.set_delay(Op::Read, Duration::ZERO);
            assert!(server.wait_for_stderr("end again", SOON).is_some());
            // It does not say which files it has.
            slow.set_delay(Op::Lookup, Duration::MAX);
            let began = Instant::now();
            for mut client in (20..30).map(get).collect::<Vec<_>>() {
                assert_eq!(has_page_of_server(&client.response().unwrap()), !is_readable);
            }
            assert!(began.elapsed() < 2 * TIMEOUT - ANSWER_MAX / 2, "{:?}", began.elapsed());
            slow.set_delay(Op::Lookup, Duration::ZERO);
        }
    });
}

#[test]
fn a_request_that_has_waited_for_a_disk_does_not_wait_for_its_page_as_long_again() {
    on_both_drivers_at_once(|driver| {
        let (tree, slow, name) = or_skip!(tree_with(file_system()));
        let page = format!("503=/{name}/cold/0.bin");
        let seconds = TIMEOUT.as_secs().to_string();
        let options = ["--timeout-disk", &seconds, "--errors", &page];
        let server = serve(driver, tree.path(), &options);
        for path in ["hot/hot.txt", "cold/0.bin"] {
            slow.set_delay_of(path, Op::Lookup, Duration::MAX);
        }
        let (mut client, began) = (connect(&server), Instant::now());
        client.send(request(&format!("GET /{name}/hot/hot.txt"))).unwrap();
        // The disk gives another answer after the request has begun to wait.
        thread::sleep(TIMEOUT / 2);
        assert_eq!(ask(&server, &format!("GET /{name}/listed/a")).status, 200);
        let response = client.response().unwrap();
        assert_eq!(response.status, 503);
        let body = String::from_utf8_lossy(&response.body);
        assert!(body.contains("cannot do this at the moment"), "{body}");
        assert!(began.elapsed() < 2 * TIMEOUT, "{:?}", began.elapsed());
        for path in ["hot/hot.txt", "cold/0.bin"] {
            slow.set_delay_of(path, Op::Lookup, Duration::ZERO);
        }
    });
}

#[test]
fn workers_try_reads_of_a_silent_disk_together() {
    on_both_drivers_at_once(|driver| {
        let (tree, slow, name) = or_skip!(tree_with(file_system()));
        let server = serve_with_metrics(driver, 4, tree.path());
        slow.set_delay(Op::Read, Duration::MAX);
        let get = |number: usize| {
            let mut client = connect(&server);
            let file = number % COLD;
            client.send(request(&format!("GET /{name}/cold/{file}.bin"))).unwrap();
            client
        };
        // Enough that each worker has some.
        let clients: Vec<_> = (0..64).map(get).collect();
        assert!(server.wait_for_stderr("no read of a disk", SOON).is_some());
        for mut client in clients {
            // Those whose files were found too late for that are refused.
            if client.head().unwrap().status != 503 {
                assert_eq!(client.read_to_end().unwrap_or_default().len(), 0);
            }
        }
        let (began, mut clients) = (Instant::now(), Vec::new());
        while began.elapsed() < 2 * TIMEOUT {
            clients.push(get(clients.len()));
            thread::sleep(Duration::from_millis(20));
        }
        let mut tries = 0;
        for mut client in clients {
            match client.head().unwrap().status {
                200 => tries += 1,
                status => assert_eq!(status, 503),
            }
        }
        assert!((1..=3).contains(&tries), "{tries} tries");
        slow.set_delay(Op::Read, Duration::ZERO);
        assert!(server.wait_for_stderr("end again", SOON).is_some());
        for number in 0..64 {
            let body = || get(number).response().is_ok_and(|response| response.status == 200);
            assert!(common::wait_until(SOON, body));
        }
        for text in ["no read of a disk", "end again"] {
            assert_eq!(said(&server, text), 1, "{text}: {:?}", server.stderr());
        }
    });
}

#[test]
fn closes_that_never_end_harm_only_their_own_files() {
    on_both_drivers(|driver| {
        let mut many = file_system();
        for number in 0..CLOSES {
            many = many.file(format!("many/{number}"), "closed");
        }
        let (tree, slow, name) = or_skip!(tree_with(many));
        for number in 0..HEALTHY {
            tree.write(format!("large{number}"), cold(number));
            tree.evict(format!("large{number}"));
        }
        let server = serve_with_few_descriptors(driver, tree.path());
        assert_eq!(ask(&server, "GET /hot.txt").body, b"hot");
        let before = common::descriptors(&server);
        slow.set_delay(Op::Flush, Duration::MAX);
        let mut client = connect(&server);
        for number in 0..CLOSES {
            // The response is sent before its file is closed.
            assert_eq!(ask_on(&mut client, &format!("GET /{name}/many/{number}")).body, b"closed");
        }
        assert!(slow.wait_until_waiting(Op::Flush, 2, SOON));
        assert_not_delayed(|number| {
            cold(number).assert_is(&ask(&server, &format!("GET /large{number}")).body);
        });
        slow.set_delay(Op::Flush, Duration::ZERO);
        // Some are cached, and some pipes are kept for the next responses.
        let are_closed = || common::descriptors(&server) < before + CLOSES / 2;
        assert!(common::wait_until(SOON, are_closed), "{}", common::descriptors(&server));
    });
}

/// A server that keeps few files open.
fn serve_with_few_descriptors(driver: &str, dir: &Path) -> Server {
    let serve = common::command(driver, dir, &[]);
    let mut command = Command::new("prlimit");
    command.arg("--nofile=1200:1200").arg(serve.get_program()).args(serve.get_args());
    Server::spawn(&mut command).expect("the server starts")
}

/// More files than there are threads that could wait for the end of their `close(2)`.
const CLOSES: usize = 300;

/// Writes files in turns, a block of each at a time, so that none lies in one piece and the places of their
/// blocks do not fit into their inodes: to read a file, its extents have to be read first.
fn write_in_pieces(directory: &Path) {
    let all: Vec<_> = (0..COLD)
        .map(|number| {
            let path = directory.join(format!("{number}.bin"));
            (fs::File::create(path).unwrap(), cold(number))
        })
        .collect();
    for offset in (0..all[0].1.len()).step_by(PIECE) {
        for (file, content) in &all {
            file.write_all_at(&content.read(offset, PIECE), offset).unwrap();
            // Blocks are allocated when they are written back.
            file.sync_data().unwrap();
        }
    }
}

/// Bytes of a file in one piece.
const PIECE: usize = 4096;

#[test]
fn a_block_device_that_never_answers_harms_only_its_own_files() {
    on_both_drivers(|driver| {
        let tree = Tree::new().file("hot.txt", "hot");
        for number in 0..HEALTHY {
            tree.write(format!("large{number}"), cold(number));
            tree.evict(format!("large{number}"));
        }
        let disk = or_skip!(HungDisk::mount_beneath(tree.path(), |directory| {
            fs::write(directory.join("hot.txt"), "also hot").unwrap();
            write_in_pieces(directory);
        }));
        let name = disk.path().file_name().expect("a directory").to_str().expect("plain");
        let server = serve(driver, tree.path(), &["--timeout-disk", "3"]);
        assert_eq!(ask(&server, "GET /hot.txt").body, b"hot");
        assert_eq!(ask(&server, &format!("GET /{name}/hot.txt")).body, b"also hot");
        // The inode of this one is known, but neither its extents nor its contents.
        assert_eq!(ask(&server, &format!("HEAD /{name}/0.bin")).status, 200);
        disk.set_hung(true);
        let hung = |count| -> Vec<Client> {
            let client = |number: usize| {
                let mut client = connect(&server);
                let file = number % COLD;
                client.send(request(&format!("GET /{name}/{file}.bin"))).unwrap();
                client
            };
            (0..count).map(client).collect()
        };
        let clients = hung(CLIENTS);
        assert!(disk.wait_until_asked(SOON));
        assert_not_delayed(|number| {
            assert_eq!(ask(&server, "GET /hot.txt").body, b"hot");
            cold(number).assert_is(&ask(&server, &format!("GET /large{number}")).body);
        });
        for mut client in clients {
            client.set_limit(SOON);
            let head = client.head().unwrap();
            if head.status != 503 {
                let body = client.read_to_end().unwrap_or_default();
                assert_eq!((head.status, body.len()), (200, 0));
            }
        }
        disk.set_hung(false);
        for number in 0..COLD {
            let get = || {
                let mut client = connect(&server);
                client.send(request(&format!("GET /{name}/{number}.bin"))).unwrap();
                client.response().ok().filter(|response| response.status == 200)
            };
            // A response that began before the reads in the kernel had ended may still be cut off.
            let mut got = None;
            assert!(common::wait_until(SOON, || {
                got = get();
                got.is_some()
            }));
            cold(number).assert_is(&got.expect("it was waited for").body);
        }
    });
}

/// Of a dead disk the kernel has many inodes and pages in memory. That it has is no sign of the disk's.
#[test]
fn a_block_device_that_never_answers_stays_silent_beside_what_is_in_memory() {
    /// As many as there are in the blocks that ext4 reads ahead of an inode (`inode_readahead_blks`), and more.
    const APART: usize = 700;
    const WARM: usize = 400;
    const PATIENCE: Duration = Duration::from_secs(2);
    on_both_drivers_at_once(|driver| {
        let tree = Tree::new();
        let disk = or_skip!(HungDisk::mount_beneath(tree.path(), |directory| {
            for number in 0..5 * APART {
                fs::write(directory.join(format!("{number}.txt")), "small").unwrap();
            }
        }));
        let name = disk.path().file_name().expect("a directory").to_str().expect("plain");
        let names = fs::read_dir(disk.path()).unwrap().count();
        assert!(names >= 5 * APART, "they are in memory");
        for number in 0..WARM {
            fs::read(disk.path().join(format!("{number}.txt"))).unwrap();
        }
        let seconds = PATIENCE.as_secs().to_string();
        let options = ["--threads", "1", "--timeout-disk", &seconds];
        let server = serve(driver, tree.path(), &options);
        let get = |number: usize| {
            let mut client = connect(&server);
            client.send(request(&format!("GET /{name}/{number}.txt"))).unwrap();
            client
        };
        let (mut warm, mut cold) = (0..WARM, (2..5).map(|number| number * APART));
        let mut next_warm = || get(warm.next().expect("there are enough")).response().unwrap();
        let mut next_cold = || get(cold.next().expect("there are enough"));
        assert_eq!(next_warm().status, 200);
        disk.set_hung(true);
        // The first shows that something is wrong. Until the second is late, no other call has shown the contrary.
        for is_silent in [false, true] {
            let (mut client, began) = (next_cold(), Instant::now());
            // The disk is silent from `PATIENCE` after the last answer in the first round on.
            let rest = Duration::from_millis(if is_silent { 500 } else { 100 });
            while began.elapsed() + rest < PATIENCE {
                assert_eq!(next_warm().status, 200);
                thread::sleep(Duration::from_millis(50));
            }
            assert_eq!(client.response().unwrap().status, 503);
            if is_silent {
                assert!(server.wait_for_stderr("has not answered", PATIENCE / 2).is_some());
            }
            assert_eq!(said(&server, "has not answered"), usize::from(is_silent), "{driver}");
        }
        let (began, mut tries, mut late) = (Instant::now(), 0, 0);
        while began.elapsed() < 3 * PATIENCE {
            // From memory, if it is the one that tries the disk.
            tries += usize::from(next_warm().status == 200);
            let asked = Instant::now();
            assert_eq!(get(4 * APART).response().unwrap().status, 503);
            late += usize::from(asked.elapsed() > PATIENCE / 2);
            thread::sleep(Duration::from_millis(50));
        }
        assert!(tries > 0 && tries + late <= 4, "{driver}: {tries}, {late}");
        for (text, count) in [("has not answered", 1), ("answers again", 0)] {
            assert_eq!(said(&server, text), count, "{driver}: {:?}", server.stderr());
        }
        disk.set_hung(false);
        let began = Instant::now();
        assert!(server.wait_for_stderr("answers again", SOON).is_some());
        assert!(began.elapsed() < PATIENCE, "{:?}", began.elapsed());
        assert!(common::wait_until(SOON, || get(4 * APART).response().unwrap().status == 200));
    });
}

/// The patience of a server that shows its metrics.
const TIMEOUT: Duration = Duration::from_secs(3);

/// A server that shows its metrics.
fn serve_with_metrics(driver: &str, threads: usize, dir: &Path) -> Server {
    let (config, timeout) = (tempfile::NamedTempFile::new().unwrap(), TIMEOUT.as_secs());
    let text = format!(
        "[server]\nthreads = {threads}\ndriver = '{driver}'\ntimeout-disk = {timeout}\n\
         [[site]]\nlisten = ['127.0.0.1:0']\n[[site.route]]\nfiles = {dir:?}\n\
         [[site.route]]\npath = '/metrics'\nmetrics = true\n"
    );
    fs::write(&config, text).unwrap();
    let mut command = Command::new(common::SAMUM);
    Server::spawn(command.args(["serve", "--config"]).arg(config.path())).expect("it starts")
}

fn metrics(server: &Server) -> Metrics {
    Metrics::parse(&String::from_utf8(ask(server, "GET /metrics").body).unwrap()).unwrap()
}

#[test]
fn files_of_subvolumes_and_of_an_overlay_of_them_are_of_one_device() {
    on_both_drivers(|driver| {
        let volumes = or_skip!(Subvolumes::mount(|subvolumes| {
            for (number, subvolume) in subvolumes.iter().enumerate() {
                for name in ["own", "both"] {
                    let path = subvolume.join(format!("{name}{number}.bin"));
                    fs::write(path, cold(number).to_vec()).unwrap();
                }
            }
        }));
        let server = serve_with_metrics(driver, 1, &volumes.path());
        for (path, number) in
            [("one/own0", 0), ("two/own1", 1), ("both/both0", 0), ("both/both1", 1)]
        {
            cold(number).assert_is(&ask(&server, &format!("GET /{path}.bin")).body);
        }
        // It comes when the file system has said its name, which no response waits for.
        assert!(server.wait_for_stderr("files on overlay (device 0:", SOON).is_some());
        assert_eq!(said(&server, "files on "), 1, "of a btrfs there is nothing to say");
        let metrics = metrics(&server);
        let reads = metrics.all("samum_disk_reads_total", &[]);
        let devices: Vec<_> =
            reads.map(|sample| (&sample.labels["device"], sample.value)).collect();
        assert!(devices.len() == 1 && devices[0].1 >= 4.0, "{devices:?}");
    });
}

/// The number of lines for the operator that contain `text`.
fn said(server: &Server, text: &str) -> usize {
    server.stderr().iter().filter(|line| line.contains(text)).count()
}

#[test]
fn the_operator_is_told_once_of_a_file_system_whose_files_are_always_read() {
    on_both_drivers(|driver| {
        let (tree, slow, name) = or_skip!(tree_with(file_system()));
        tree.write("large", cold(0));
        let server = serve(driver, tree.path(), &["--threads", "2"]);
        // So often that both workers meet both file systems.
        for _ in 0..32 {
            cold(0).assert_is(&ask(&server, "GET /large").body);
            cold(1).assert_is(&ask(&server, &format!("GET /{name}/cold/1.bin")).body);
        }
        let device = fs::metadata(slow.path()).unwrap().dev();
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        let text = format!("files on fuse (device {major}:{minor}) are read for each response");
        assert!(server.wait_for_stderr(&text, SOON).is_some(), "{:?}", server.stderr());
        assert_eq!(said(&server, &text), 1, "{:?}", server.stderr());
    });
}

#[test]
fn workers_speak_of_a_dead_file_system_with_one_voice() {
    on_both_drivers_at_once(|driver| {
        let (tree, slow, name) = or_skip!(tree_with(file_system()));
        let server = serve_with_metrics(driver, 2, tree.path());
        // So often that both workers know the device of both directories.
        for _ in 0..64 {
            assert_eq!(ask(&server, &format!("GET /{name}/hot/hot.txt")).body, b"hot");
            assert_eq!(ask(&server, &format!("HEAD /{name}/cold/0.bin")).status, 200);
        }
        set_dead(&slow, true);
        let mut asked = 0;
        let mut ask_another = || {
            asked += 1;
            let mut client = connect(&server);
            client.send(request(&format!("GET /{name}/cold/another{asked}.bin"))).unwrap();
            client
        };
        let clients: Vec<_> = (0..16).map(|_| ask_another()).collect();
        assert!(server.wait_for_stderr("has not answered", SOON).is_some());
        for mut client in clients {
            assert_eq!(client.response().unwrap().status, 503);
        }
        let unanswered = || metrics(&server).sum("samum_disk_calls_unanswered", &[]);
        // A worker shows its numbers at the end of a turn.
        assert!(common::wait_until(SOON, || unanswered() >= 16.0), "{}", unanswered());
        let (before, began) = (unanswered(), Instant::now());
        let mut clients = Vec::new();
        while began.elapsed() < 3 * TIMEOUT {
            clients.push(ask_another());
            thread::sleep(Duration::from_millis(20));
        }
        let tries = began.elapsed().as_secs_f64() / TIMEOUT.as_secs_f64() + 1.0;
        let tried = unanswered() - before;
        assert!((1.0..=tries).contains(&tried), "{tried} requests tried it");
        for mut client in clients {
            assert_eq!(client.response().unwrap().status, 503);
        }
        set_dead(&slow, false);
        assert!(server.wait_for_stderr("answers again", SOON).is_some());
        for _ in 0..64 {
            let path = format!("GET /{name}/hot/hot.txt");
            assert!(common::wait_until(SOON, || ask(&server, &path).status == 200));
        }
        assert!(common::wait_until(SOON, || unanswered() == 0.0), "{}", unanswered());
        for text in ["has not answered", "answers again"] {
            assert_eq!(said(&server, text), 1, "{:?}", server.stderr());
        }
    });
}

#[test]
fn tags_of_other_files_are_computed_beside_a_read_that_never_ends() {
    on_both_drivers(|driver| {
        let (tree, slow, name) = or_skip!(tree_with(file_system()));
        for number in 0..COLD {
            tree.write(format!("large{number}"), cold(number));
        }
        let server = serve(driver, tree.path(), &["--etag", "hash"]);
        slow.set_delay(Op::Read, Duration::MAX);
        for number in 0..COLD {
            let path = format!("HEAD /{name}/cold/{number}.bin");
            assert_eq!(ask(&server, &path).status, 200);
        }
        assert!(slow.wait_until_waiting(Op::Read, 1, SOON), "one is being hashed");
        let has_tag = |path: &str| ask(&server, &format!("HEAD {path}")).header("ETag").is_some();
        for number in 0..COLD {
            assert!(common::wait_until(SOON, || has_tag(&format!("/large{number}"))));
        }
        let cold = format!("/{name}/cold/{}.bin", COLD - 1);
        assert!(!has_tag(&cold));
        assert_eq!(threads(&server, "tags"), 2, "one for each device");
        slow.set_delay(Op::Read, Duration::ZERO);
        assert!(common::wait_until(SOON, || has_tag(&cold)));
    });
}

#[test]
fn a_tag_that_could_not_be_computed_is_tried_again_while_its_file_is_asked_for() {
    on_both_drivers(|driver| {
        let (tree, slow, name) = or_skip!(tree_with(file_system()));
        let server = serve(driver, tree.path(), &["--etag", "hash"]);
        slow.fail_reads("cold/0.bin");
        let head = format!("HEAD /{name}/cold/0.bin");
        let has_tag = || {
            let response = ask(&server, &head);
            assert_eq!(response.status, 200);
            response.header("ETag").is_some()
        };
        assert!(!has_tag());
        let is_read = || !slow.reads("cold/0.bin").is_empty();
        assert!(common::wait_until(SOON, is_read), "it is being hashed");
        thread::sleep(Duration::from_millis(200));
        assert!(!has_tag());
        slow.mend_reads("cold/0.bin");
        assert!(common::wait_until(SOON, has_tag), "it was asked for all the time");
    });
}

/// The number of the server's threads with a name.
fn threads(server: &Server, name: &str) -> usize {
    let tasks = fs::read_dir(format!("/proc/{}/task", server.pid())).expect("it runs");
    let names = tasks.map(|task| fs::read_to_string(task.unwrap().path().join("comm")));
    names.filter(|it| it.as_ref().is_ok_and(|it| it.trim_end() == name)).count()
}

/// The requests under way and all later ones fail, as on a device that is unplugged.
#[test]
fn a_device_that_is_removed_harms_only_its_own_files() {
    on_both_drivers(|driver| {
        let (tree, slow, name) = or_skip!(tree_with(file_system()));
        let mut server = serve(driver, tree.path(), &[]);
        assert_eq!(ask(&server, "GET /hot.txt").body, b"hot");
        assert_eq!(ask(&server, &format!("GET /{name}/hot/hot.txt")).body, b"hot");
        slow.set_delay(Op::Read, Duration::MAX);
        // A small file is read before the head of its response.
        let mut small = connect(&server);
        small.send(request(&format!("GET /{name}/listed/a"))).unwrap();
        let large: Vec<Client> = (0..COLD / 2)
            .map(|number| {
                let mut client = connect(&server);
                client.send(request(&format!("GET /{name}/cold/{number}.bin"))).unwrap();
                assert_eq!(client.head().unwrap().status, 200);
                client
            })
            .collect();
        assert!(slow.wait_until_waiting(Op::Read, 2, SOON));
        or_skip!(slow.abort());
        assert_may_come_back(&small.response().unwrap());
        for mut client in large {
            assert_eq!(client.read_to_end().unwrap_or_default(), b"");
        }
        for number in COLD / 2..COLD {
            assert_may_come_back(&ask(&server, &format!("GET /{name}/cold/{number}.bin")));
        }
        for number in 0..HEALTHY {
            assert_eq!(ask(&server, &format!("GET /healthy{number}/a.txt")).body, b"fine");
        }
        assert_eq!(ask(&server, "GET /hot.txt").body, b"hot");
        let said = server.stderr();
        for text in [&format!("cannot read /{name}/listed/a")[..], "could not be read while"] {
            assert!(said.iter().any(|line| line.contains(text)), "{text}: {said:?}");
        }
        assert_eq!(server.terminate().unwrap().code(), Some(0));
    });
}

/// The device below a file system is removed while files are downloaded from it.
#[test]
fn a_block_device_that_is_removed_under_load_harms_only_its_own_files() {
    /// More than samum and the buffers of the sockets hold.
    const LARGE: u64 = 32 << 20;
    const TAKEN: usize = 1 << 20;
    on_both_drivers(|driver| {
        let tree = Tree::new().file("hot.txt", "hot");
        for number in 0..HEALTHY {
            tree.write(format!("healthy{number}"), cold(number));
            tree.evict(format!("healthy{number}"));
        }
        let content = Content::pseudo_random(77, LARGE);
        let disk = or_skip!(HungDisk::mount_beneath(tree.path(), |directory| {
            let bytes = content.read(0, usize::try_from(LARGE).unwrap());
            fs::write(directory.join("large.bin"), bytes).unwrap();
            fs::write(directory.join("small.txt"), "small").unwrap();
            write_in_pieces(directory);
        }));
        let name = disk.path().file_name().expect("a directory").to_str().expect("plain");
        let mut server = serve(driver, tree.path(), &[]);
        // Its inode is known, its contents are not.
        assert_eq!(ask(&server, &format!("HEAD /{name}/0.bin")).status, 200);
        let downloads: Vec<(Client, Vec<u8>)> = (0..4)
            .map(|_| {
                let mut client = connect(&server);
                client.send(request(&format!("GET /{name}/large.bin"))).unwrap();
                assert_eq!(client.head().unwrap().status, 200);
                let taken = client.read_exactly(TAKEN).unwrap();
                (client, taken)
            })
            .collect();
        disk.evict("small.txt", 0..4096);
        or_skip!(disk.remove());
        for (mut client, mut body) in downloads {
            match client.read_to_end() {
                Ok(rest) => body.extend(rest),
                Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
            }
            assert!((body.len() as u64) < LARGE, "nothing stands in for what is gone");
            content.assert_at(0, &body);
        }
        // A file system tells of every failure of its device as `EIO`.
        assert_eq!(ask(&server, &format!("GET /{name}/small.txt")).status, 500);
        let mut client = connect(&server);
        client.send(request(&format!("GET /{name}/0.bin"))).unwrap();
        assert!(client.head().is_ok_and(|head| head.status == 500 || head.status == 200));
        assert_eq!(client.read_to_end().unwrap_or_default().len(), 0);
        for number in 0..HEALTHY {
            cold(number).assert_is(&ask(&server, &format!("GET /healthy{number}")).body);
        }
        assert_eq!(ask(&server, "GET /hot.txt").body, b"hot");
        let said = server.wait_for_stderr("could not be read while", SOON);
        assert!(said.is_some(), "{:?}", server.stderr());
        assert_eq!(server.terminate().unwrap().code(), Some(0));
    });
}

/// Asserts that a client is told to try again.
#[track_caller]
fn assert_may_come_back(response: &Response) {
    assert_eq!((response.status, response.header("Retry-After").is_some()), (503, true));
}

/// What the kernel has in memory of a watched directory it says at once: only the first file takes threads.
#[test]
fn a_first_request_for_what_is_in_memory_takes_no_thread() {
    const FILES: usize = 20;
    on_both_drivers(|driver| {
        let mut tree = Tree::new();
        for number in 0..=FILES {
            tree = tree.file(format!("d/{number}.png"), "small");
        }
        let mut seen = Vec::new();
        // On a busy machine a look may take so long that all others go through the ring for a minute.
        for _ in 0..5 {
            let mut server = serve(driver, tree.path(), &[]);
            assert_eq!(ask(&server, &format!("GET /d/{FILES}.png")).body, b"small");
            let trace = or_skip!(Trace::of_worker(&server));
            for number in 0..FILES {
                assert_eq!(ask(&server, &format!("GET /d/{number}.png")).body, b"small");
            }
            assert_eq!(server.terminate().unwrap().code(), Some(0));
            let calls = trace.calls();
            let count = |name: &str, part: &str| {
                let has = |call: &&Call| call.name == name && call.line.contains(part);
                calls.iter().filter(has).count()
            };
            let opened = count("openat2", "RESOLVE_CACHED") - count("openat2", "= -1");
            let read = count("preadv2", "= 5 <");
            if opened > FILES && read > FILES / 2 {
                return;
            }
            seen.push((opened, read));
        }
        panic!("opens and reads without a thread, of {} and {FILES}: {seen:?}", 2 * FILES);
    });
}

/// A tracer of the server's only worker.
struct Trace {
    strace: Child,
    output: tempfile::NamedTempFile,
}

impl Trace {
    fn of_worker(server: &Server) -> Result<Self, String> {
        let tasks = fs::read_dir(format!("/proc/{}/task", server.pid())).expect("it runs");
        let worker = tasks
            .map(|task| task.unwrap().path())
            .find(|task| {
                fs::read_to_string(task.join("comm")).is_ok_and(|name| name == "worker-0\n")
            })
            .expect("it has a worker");
        let output = tempfile::NamedTempFile::new().unwrap();
        let strace = Command::new("strace")
            .args(["-T", "-p"])
            .arg(worker.file_name().expect("a task has a number"))
            .arg("-o")
            .arg(output.path())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| format!("strace: {error}"))?;
        let mut trace = Self { strace, output };
        // The worker is traced once its status names a tracer.
        let traced = || {
            let status = fs::read_to_string(worker.join("status")).unwrap_or_default();
            status.lines().any(|line| line.starts_with("TracerPid:") && !line.ends_with("\t0"))
        };
        if common::wait_until(Duration::from_secs(5), traced) {
            return Ok(trace);
        }
        let _ = trace.strace.kill();
        let _ = trace.strace.wait();
        Err("the worker cannot be traced (ptrace is not permitted?)".into())
    }

    /// The system calls until the server has ended, with the duration of each in seconds.
    fn calls(mut self) -> Vec<Call> {
        self.strace.wait().unwrap();
        let text = fs::read_to_string(self.output.path()).unwrap();
        let call = |line: &str| {
            let (name, rest) = line.split_once('(')?;
            let seconds = rest.rsplit_once('<')?.1.strip_suffix('>')?.parse().ok()?;
            Some(Call { name: name.to_owned(), line: line.to_owned(), seconds })
        };
        text.lines().filter_map(call).collect()
    }
}

/// A system call that was traced.
#[derive(Debug)]
struct Call {
    name: String,
    line: String,
    seconds: f64,
}

impl Call {
    /// Returns whether it waits for events: only such a call may sleep.
    fn waits(&self) -> bool {
        match &self.name[..] {
            "io_uring_enter" => self.line.contains("IORING_ENTER_GETEVENTS"),
            name => name.starts_with("epoll_"),
        }
    }
}

#[test]
fn no_system_call_of_a_worker_sleeps_on_the_disk() {
    on_both_drivers_at_once(|driver| {
        const DELAY: Duration = Duration::from_millis(300);
        let slow = or_skip!(file_system().mount());
        let mut server = serve(driver, slow.path(), &["--listing", "--log", "/dev/null"]);
        let trace = or_skip!(Trace::of_worker(&server));
        for op in [Op::Lookup, Op::Open, Op::Getattr, Op::Read, Op::Readdir] {
            slow.set_delay(op, DELAY);
        }
        let clients = ask_cold(&server);
        assert!(ask(&server, "GET /listed/").body.ends_with(b"</html>\n"));
        assert_eq!(ask(&server, "GET /missing").status, 404);
        assert_cold_arrive(clients);
        assert_eq!(server.terminate().unwrap().code(), Some(0));
        let calls = trace.calls();
        let (waits, others): (Vec<_>, Vec<_>) = calls.iter().partition(|call| call.waits());
        assert!(!waits.is_empty() && others.len() > COLD, "{} calls were seen", calls.len());
        let slept: Vec<_> =
            others.iter().filter(|call| call.seconds > DELAY.as_secs_f64() / 2.0).collect();
        assert!(slept.is_empty(), "{slept:?}");
    });
}

/// A file of which the middle is not in memory.
fn partly_cached(number: usize) -> Content {
    Content::pseudo_random(number as u64, 3 * PART as u64)
}

const PART: usize = 512 * 1024;
const PARTLY_CACHED: usize = 8;

/// On a file system whose residency can be told, so that what is in memory leaves by `sendfile`. While the device does
/// not answer, a call that slept for it would not end, and the worker would answer nothing.
#[test]
fn no_system_call_of_a_worker_sleeps_on_a_block_device() {
    on_both_drivers(|driver| {
        let tree = Tree::new();
        let disk = or_skip!(HungDisk::mount_beneath(tree.path(), |directory| {
            fs::write(directory.join("hot.txt"), "hot").unwrap();
            for number in 0..PARTLY_CACHED {
                let file = fs::File::create(directory.join(format!("{number}.bin"))).unwrap();
                file.write_all_at(&partly_cached(number).read(0, 3 * PART), 0).unwrap();
            }
        }));
        let mut server = serve(driver, disk.path(), &["--log", "/dev/null"]);
        let mut hot = connect(&server);
        assert_eq!(ask_on(&mut hot, "GET /hot.txt").body, b"hot");
        for number in 0..PARTLY_CACHED {
            partly_cached(number).assert_is(&ask(&server, &format!("GET /{number}.bin")).body);
        }
        for number in 0..PARTLY_CACHED {
            disk.evict(format!("{number}.bin"), PART as u64..2 * PART as u64);
        }
        let trace = or_skip!(Trace::of_worker(&server));
        disk.set_hung(true);
        let mut clients: Vec<_> = (0..PARTLY_CACHED)
            .map(|number| {
                let mut client = connect(&server);
                client.send(request(&format!("GET /{number}.bin"))).unwrap();
                assert_eq!(client.head().unwrap().status, 200);
                partly_cached(number).assert_at(0, &client.read_exactly(PART).unwrap());
                client
            })
            .collect();
        assert!(disk.wait_until_asked(SOON));
        for _ in 0..COLD {
            assert_eq!(ask_on(&mut hot, "GET /hot.txt").body, b"hot");
            thread::sleep(HANG / u32::try_from(COLD).unwrap());
        }
        disk.set_hung(false);
        for (number, client) in clients.iter_mut().enumerate() {
            let rest = client.read_exactly(2 * PART).unwrap();
            partly_cached(number).assert_at(PART as u64, &rest);
        }
        assert_eq!(server.terminate().unwrap().code(), Some(0));
        let calls = trace.calls();
        let sent = calls.iter().filter(|call| call.name == "sendfile").count();
        assert!(sent >= PARTLY_CACHED, "sendfile was called {sent} times");
        let slept: Vec<_> = calls
            .iter()
            .filter(|call| !call.waits() && call.seconds > HANG.as_secs_f64() / 2.0)
            .collect();
        assert!(slept.is_empty(), "{slept:?}");
    });
}

/// The time for which the device does not answer.
const HANG: Duration = Duration::from_secs(1);
