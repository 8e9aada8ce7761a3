//! Pages with directives: random ones, on a disk that is slow or hangs, for clients that leave.

use core::time::Duration;
use std::rc::Rc;

use config::FileRules;
use ring::sim::World;
use samum::worker::Worker;
use session::Http1;
use testkit::Random;

use crate::seams::stage::{content, parse, parse_whole};
use crate::seams::world::{Client, Plain, config, for_seeds, parts, pass, run_until};

const ERRMSG: &[u8] = b"[an error occurred while processing the directive]";
/// Pages that include those with greater numbers.
const PAGES: usize = 6;

/// Writes the pages, and returns what each comes to.
fn write_pages(world: &World, chance: &mut Random) -> Vec<Vec<u8>> {
    world.make_device("slow");
    let mut shown: Vec<Vec<u8>> = vec![Vec::new(); PAGES];
    for page in (0..PAGES).rev() {
        let (mut text, mut expected) = (Vec::new(), Vec::new());
        for hole in 0..chance.below(8) {
            // In memory, of one read, of several.
            let length = [10, 3000, 40_000, 150_000][chance.below(4)];
            let bytes = content(chance.bits(), length);
            text.extend_from_slice(&bytes);
            expected.extend_from_slice(&bytes);
            let (path, body) = match chance.below(5) {
                0 if page + 1 < PAGES => {
                    let inner = page + 1 + chance.below(PAGES - page - 1);
                    (format!("/{inner}.html?{hole}"), Some(shown[inner].clone()))
                }
                1 => ("/none".to_owned(), None),
                2 => (format!("{page}.html"), None),
                _ => {
                    let directory = ["", "slow/"][chance.below(2)];
                    let path = format!("{directory}{page}-{hole}.txt");
                    let length = [0, 100, 35_000, 300_000][chance.below(4)];
                    let body = content(chance.bits(), length);
                    world.write_file(&path, &body);
                    (path, Some(body))
                }
            };
            text.extend_from_slice(format!("<!--#include virtual=\"{path}\" -->").as_bytes());
            expected.extend_from_slice(&body.unwrap_or_else(|| ERRMSG.to_vec()));
        }
        text.extend_from_slice(b"<!--#if expr='$none'-->never<!--#endif-->end");
        expected.extend_from_slice(b"end");
        world.write_file(&format!("{page}.html"), &text);
        shown[page] = expected;
    }
    shown
}

fn serve(world: &World) -> Worker<Http1> {
    let rules = FileRules { includes: true, ..FileRules::default() };
    Worker::new(parts(world, rules)).expect("memory")
}

fn request(page: usize) -> String {
    format!("GET /{page}.html HTTP/1.1\r\nHost: a\r\n\r\n")
}

fn check_nothing_is_left(world: &World, mut worker: Worker<Http1>) {
    pass(&mut worker, Duration::from_secs(300));
    assert_eq!(worker.connections(), 0, "connections are left");
    assert_eq!(worker.held().0, 0, "memory is charged to connections");
    let open = world.open_descriptors() - world.open_pipes();
    assert_eq!(open, 2, "the root and the listener");
    assert_eq!(world.stalls(), [], "a sendfile would have slept");
}

#[test]
fn pages_are_what_they_say_whatever_the_disk_does() {
    for_seeds(100, |seed| {
        let mut chance = Random::new(seed);
        let world = World::new(config(seed));
        let shown = write_pages(&world, &mut chance);
        world.evict_all();
        let mut worker = serve(&world);
        let mut clients: Vec<(Plain, usize, Vec<usize>)> = Vec::new();
        for _ in 0..3 {
            let mut client = Plain::new(Rc::new(world.connect()), chance.bits());
            let pages: Vec<usize> = (0..3).map(|_| chance.below(PAGES)).collect();
            let requests: String = pages.iter().map(|page| request(*page)).collect();
            client.send(requests.as_bytes());
            clients.push((client, 0, pages));
            if chance.one_in(2) {
                world.evict_all();
            }
        }
        for (client, at, pages) in &mut clients {
            for page in pages {
                let mut response = None;
                run_until(&mut worker, || {
                    client.look();
                    response = parse_whole(&client.received()[*at..]);
                    response.is_some()
                });
                let response = response.expect("a response");
                assert_eq!(response.status, 200);
                assert!(response.body == shown[*page], "page {page}: {}", response.body.len());
                *at += response.len;
            }
            client.shut_down();
        }
        check_nothing_is_left(&world, worker);
    });
}

#[test]
fn clients_that_leave_in_the_middle_leave_nothing() {
    for_seeds(100, |seed| {
        let mut chance = Random::new(seed);
        let world = World::new(config(seed));
        write_pages(&world, &mut chance);
        world.evict_all();
        let mut worker = serve(&world);
        for _ in 0..5 {
            let mut client = Plain::new(Rc::new(world.connect()), chance.bits());
            client.send(request(chance.below(PAGES)).repeat(1 + chance.below(3)).as_bytes());
            let time = Duration::from_micros(chance.below(20_000));
            pass(&mut worker, time);
            client.look();
            drop(client);
        }
        check_nothing_is_left(&world, worker);
    });
}

#[test]
fn a_disk_that_hangs_under_a_hole_delays_what_is_behind_it_and_nothing_else() {
    for_seeds(20, |seed| {
        let world = World::new(config(seed));
        let device = world.make_device("slow");
        let large = content(seed, 200_000);
        world.write_file("slow/hole.txt", &large);
        world.write_file("a.txt", b"text");
        // More than are looked for at the same time: the rest of the page is not even evaluated.
        let holes = "<!--#include virtual=\"/slow/hole.txt\"-->".repeat(12);
        let page = format!("begin{holes}|<!--#include virtual=\"/a.txt\"-->end");
        world.write_file("0.html", page.as_bytes());
        world.write_file("1.html", b"<!--#include virtual=\"/a.txt\"-->");
        world.evict_all();
        let mut worker = serve(&world);
        world.hang(device);
        let mut client = Plain::new(Rc::new(world.connect()), seed);
        client.send(request(0).as_bytes());
        run_until(&mut worker, || {
            client.look();
            client.received().windows(5).any(|five| five == b"begin")
        });
        let (mut other, mut at) = (Plain::new(Rc::new(world.connect()), seed), 0);
        for _ in 0..3 {
            other.send(request(1).as_bytes());
            let mut response = None;
            run_until(&mut worker, || {
                other.look();
                response = parse_whole(&other.received()[at..]);
                response.is_some()
            });
            let response = response.expect("a response");
            assert_eq!(response.body, b"text");
            at += response.len;
        }
        let (until, mut turns) = (worker.ring().now() + Duration::from_secs(1), 0);
        while worker.ring().now() < until {
            worker.turn(Some(until)).expect("a ring that waits");
            turns += 1;
            assert!(turns < 100, "the worker spins while a page waits");
        }
        world.release(device);
        let mut body = Vec::new();
        run_until(&mut worker, || {
            client.look();
            let response = parse_whole(client.received());
            response.is_some_and(|response| {
                body = response.body;
                true
            })
        });
        let expected = [b"begin", &large.repeat(12)[..], b"|textend"].concat();
        assert!(body == expected, "{}", body.len());
        client.shut_down();
        other.shut_down();
        check_nothing_is_left(&world, worker);
    });
}

/// Steps of pages in one turn of a worker.
const STEPS_MAX: u64 = 2048;
/// Bytes that the pages of one response may hold, with those of one directive that passes them.
const RESPONSE_BYTES_MAX: u64 = 2 * 1024 * 1024 + 64 * 1024;

#[test]
fn pages_that_include_one_another_are_made_in_short_turns() {
    for_seeds(3, |seed| {
        let world = World::new(config(seed));
        for page in 0..10 {
            let include =
                |hole| format!("<!--#include virtual=\"/{}.html\"-->", (page + hole) % 10);
            let text: String = (1..900).map(include).collect();
            world.write_file(&format!("{page}.html"), text.as_bytes());
        }
        world.write_file("a.txt", b"text");
        let mut worker = serve(&world);
        let connect = |page| {
            let mut client = Plain::new(Rc::new(world.connect()), seed);
            client.send(request(page).as_bytes());
            client
        };
        let mut clients: Vec<Plain> = (0..4).map(connect).collect();
        let mut other = Plain::new(Rc::new(world.connect()), seed);
        let (mut at, mut answers, mut turns) = (0, 0, 0);
        other.send(b"GET /a.txt HTTP/1.1\r\nHost: a\r\n\r\n");
        while answers < 3 || worker.stats().includes_failed < 50_000 {
            let before = worker.stats();
            let until = worker.ring().now() + Duration::from_millis(1);
            worker.turn(Some(until)).expect("a ring that waits");
            // A worker with something to do does not wait, so only what it computes takes time.
            world.compute(Duration::from_micros(500));
            let after = worker.stats();
            // A step may count as an include, and as one that has failed.
            let failed = after.includes_failed - before.includes_failed;
            let steps = failed.max(after.includes - before.includes);
            assert!(steps <= STEPS_MAX, "{steps} steps in one turn");
            clients.iter_mut().for_each(Plain::look);
            other.look();
            if let Some(response) = parse(&other.received()[at..])
                && response.whole
            {
                assert_eq!(response.body, b"text");
                at += response.len;
                answers += 1;
                other.send(b"GET /a.txt HTTP/1.1\r\nHost: a\r\n\r\n");
            }
            turns += 1;
            assert!(turns < 5000, "{answers} answers, {after:?}");
        }
        drop((clients, other));
        check_nothing_is_left(&world, worker);
    });
}

/// A page of directives that take memory.
fn greedy(chance: &mut Random) -> String {
    let mut page = format!("<!--#set var='w' value='{}'-->", "<".repeat(1000));
    for _ in 0..chance.below(60) {
        let number = chance.below(90);
        page += &match chance.below(8) {
            0..4 => (0..10 + chance.below(40))
                .map(|nth| format!("<!--#set var='v{}' value='$w$w$w$w'-->", number + nth))
                .collect(),
            4 => "<!--#echo var='v1'-->".repeat(number),
            5 => format!("<!--#config errmsg='{}'--><!--#bad-->", "e".repeat(1900)),
            6 => format!("<!--#include virtual='/{}.txt'-->", number % 3),
            _ => format!("<!--#include virtual='/{}.html'-->", number % PAGES).repeat(number),
        };
    }
    page
}

#[test]
fn the_pages_of_a_response_keep_within_its_memory_whatever_clients_do() {
    for_seeds(60, |seed| {
        let mut chance = Random::new(seed);
        let world = World::new(config(seed));
        world.make_device("slow");
        for page in 0..PAGES {
            world.write_file(&format!("{page}.html"), greedy(&mut chance).as_bytes());
            world.write_file(&format!("{page}.txt"), &content(seed, 40_000));
        }
        let mut worker = serve(&world);
        let mut clients: Vec<Plain> = Vec::new();
        for _ in 0..400 {
            if clients.len() < 3 {
                let mut client = Plain::new(Rc::new(world.connect()), chance.bits());
                let requests: String =
                    (0..1 + chance.below(4)).map(|_| request(chance.below(PAGES))).collect();
                client.send(requests.as_bytes());
                clients.push(client);
            }
            match chance.below(40) {
                0 => drop(clients.swap_remove(chance.below(clients.len()))),
                1 => world.evict_all(),
                // Some of them read nothing for long.
                place => clients.iter_mut().skip(place % 3).for_each(Plain::look),
            }
            let until = worker.ring().now() + Duration::from_millis(1);
            worker.turn(Some(until)).expect("a ring that waits");
            // Those that wait behind another response have not begun.
            let most = 3 * (RESPONSE_BYTES_MAX + 4 * 128 * 1024);
            assert!(worker.shared() <= most, "{} bytes", worker.shared());
        }
        drop(clients);
        check_nothing_is_left(&world, worker);
    });
}

/// Listings wait behind a part that does not come. Their entries are memory of the response.
#[test]
fn listings_within_a_page_keep_within_the_memory_of_the_response() {
    /// The entries of a listing have 2.6 MB.
    const ENTRIES: usize = 10_000;
    const LISTINGS: usize = 8;
    /// The entries of a listing count for the directory and for the response that has it.
    const SHARED_BYTES_MAX: u64 = 2 * 8 * 1024 * 1024;
    let world = World::new(config(1));
    let device = world.make_device("slow");
    world.write_file("slow/hole.txt", b"late");
    let name = "n".repeat(200);
    let mut holes = String::new();
    for listing in 0..LISTINGS {
        world.make_dir(&format!("{listing}"));
        for entry in 0..ENTRIES {
            world.write_file(&format!("{listing}/{entry:05}{name}"), b"");
        }
        holes += &format!("<!--#include virtual='/{listing}/'-->");
    }
    let page = format!("<!--#include virtual='/slow/hole.txt'-->{holes}end");
    world.write_file("0.html", page.as_bytes());
    world.evict_all();
    let rules = FileRules { includes: true, listing: true, ..FileRules::default() };
    let mut worker: Worker<Http1> = Worker::new(parts(&world, rules)).expect("memory");
    world.hang(device);
    let mut client = Plain::new(Rc::new(world.connect()), 1);
    client.send(request(0).as_bytes());
    let (mut most, until) = (0, worker.ring().now() + Duration::from_secs(1));
    while worker.ring().now() < until {
        worker.turn(Some(until)).expect("a ring that waits");
        most = most.max(worker.shared());
    }
    assert!(worker.stats().includes > 2, "listings are looked for ahead");
    world.release(device);
    let mut body = Vec::new();
    for _ in 0..1_000_000 {
        client.look();
        if let Some(response) = parse_whole(client.received()) {
            body = response.body;
            break;
        }
        let until = worker.ring().now() + Duration::from_millis(1);
        worker.turn(Some(until)).expect("a ring that waits");
        most = most.max(worker.shared());
    }
    assert!(most <= SHARED_BYTES_MAX, "{most} bytes");
    let body = String::from_utf8(body).expect("text");
    assert!(body.starts_with("late<!DOCTYPE html>") && body.ends_with("end"), "{}", body.len());
    assert_eq!(body.matches("Index of").count(), 2 * LISTINGS);
    assert_eq!(body.matches("<tr><td><a href=\"./").count(), ENTRIES * LISTINGS);
    assert_eq!(worker.stats().includes_failed, 0);
    client.shut_down();
    check_nothing_is_left(&world, worker);
}
