//! `SAMUM_PRELOAD_CACHE` and `SAMUM_PRELOAD_READAHEAD` under real servers: which pages are in the page cache afterwards,
//! by `fincore(1)`.

use core::time::Duration;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Instant;

use testkit::{Client, Content, Tree, skip};

use crate::common::{count_in, tree};
use crate::servers::{Running, free_port, helped, nginx, open_to_all, program, statistics};

const MIB: u64 = 1024 * 1024;
const LARGE: u64 = 8;
const LARGE_BYTES: u64 = 24 * MIB;
const SMALL: u64 = 64;
/// After this time without progress a trail has had its third discard.
const LIMIT: Duration = Duration::from_secs(20);

fn content(name: &str) -> Content {
    let number: u64 = name[1..].parse().unwrap();
    match &name[..1] {
        "s" => Content::pseudo_random(number, 1 + number * 4001),
        _ => Content::pseudo_random(number, LARGE_BYTES),
    }
}

fn names() -> Vec<String> {
    let large = (0..LARGE).map(|number| format!("f{number}"));
    large.chain((0..SMALL).map(|number| format!("s{number}"))).collect()
}

fn site(names: &[String]) -> Tree {
    let tree =
        names.iter().fold(tree(), |tree, name| tree.file(format!("site/{name}"), content(name)));
    open_to_all(tree.path());
    tree
}

fn has_fincore() -> bool {
    Command::new("fincore").arg("--version").stdout(Stdio::null()).status().is_ok()
}

/// The bytes of files that are in the page cache.
fn resident(tree: &Tree, names: &[String]) -> u64 {
    let mut command = Command::new("fincore");
    command.args(["--bytes", "--noheadings", "--raw", "--output", "RES"]);
    command.args(names.iter().map(|name| tree.path().join("site").join(name)));
    let text = String::from_utf8(command.output().unwrap().stdout).unwrap();
    text.lines().map(|line| line.trim().parse::<u64>().unwrap()).sum()
}

fn bytes(names: &[String]) -> u64 {
    names.iter().map(|name| content(name).len()).sum()
}

/// Waits until no more than 2 % of the bytes that were read are in the page cache beside those of before.
#[track_caller]
fn assert_left_as_it_was(tree: &Tree, names: &[String], before: u64, limit: Duration) {
    let end = Instant::now() + limit;
    let most = before + bytes(names) / 50;
    loop {
        let now = resident(tree, names);
        if now <= most {
            // The kernel may reclaim some of them on a busy machine.
            assert!(now >= before / 5 * 4, "{before} bytes were there, {now} are left");
            return;
        }
        assert!(Instant::now() < end, "{now} bytes are there, {before} before, {most} are allowed");
        thread::sleep(Duration::from_millis(100));
    }
}

#[track_caller]
fn get(client: &mut Client, name: &str) {
    client.send(format!("GET /{name} HTTP/1.1\r\nHost: test\r\n\r\n")).unwrap();
    let response = client.response().unwrap_or_else(|error| panic!("{name}: {error}"));
    assert_eq!(response.status, 200, "{name}");
    content(name).assert_is(&response.body);
}

/// Downloads all files by several clients at once; other clients leave in the middle of a file.
fn download(server: &Running, names: &[String]) {
    thread::scope(|scope| {
        for at in 0..4 {
            scope.spawn(move || {
                let mut client = server.client();
                names.iter().skip(at).step_by(4).for_each(|name| get(&mut client, name));
                let mut leaving = server.client();
                leaving.send(format!("GET /f{at} HTTP/1.1\r\nHost: test\r\n\r\n")).unwrap();
                leaving.read_exactly(3_000_000).unwrap();
            });
        }
    });
}

fn start_nginx(
    tree: &Tree,
    program: &Path,
    workers: u8,
    main: &str,
    settings: &[(&str, &str)],
) -> Running {
    let port = free_port();
    let conf = nginx(tree, port, workers, main);
    let mut command = Command::new(program);
    command.arg("-c").arg(conf).envs(settings.iter().copied());
    Running::start(helped(&mut command, tree), port)
}

/// The path of a program, or the reason to skip a test of what it leaves in the page cache.
fn measurable(name: &str) -> Result<PathBuf, String> {
    if !has_fincore() {
        return Err("fincore is not installed".to_owned());
    }
    program(name)
}

/// The user decides whether the library may ask `cachestat(2)`.
#[test]
fn nginx_with_never_leaves_the_page_cache_as_it_was() {
    let program = testkit::or_skip!(measurable("nginx"));
    let names = names();
    let tree = site(&names);
    for user in ["user root;\n", "user daemon daemon;\n"] {
        for extra in ["", "open_file_cache max=1000;", "sendfile_max_chunk 512k;"] {
            names.iter().for_each(|name| tree.evict(format!("site/{name}")));
            // One file is in memory, and a half of another.
            let path = |name: &str| tree.path().join("site").join(name);
            fs::read(path("f0")).unwrap();
            let half = usize::try_from(LARGE_BYTES / 2).unwrap();
            let file = fs::File::open(path("f1")).unwrap();
            rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Random).unwrap();
            std::os::unix::fs::FileExt::read_exact_at(&file, &mut vec![0; half], 0).unwrap();
            let before = resident(&tree, &names);
            assert!((LARGE_BYTES * 3 / 2..LARGE_BYTES * 2).contains(&before), "{before}");
            let main =
                format!("{user}{extra} client_body_temp_path {}/body;", tree.path().display());
            let server =
                start_nginx(&tree, &program, 2, &main, &[("SAMUM_PRELOAD_CACHE", "never")]);
            download(&server, &names);
            assert_left_as_it_was(&tree, &names, before, LIMIT);
            // The second time they are as cold as the first.
            download(&server, &names);
            server.terminate();
            assert_left_as_it_was(&tree, &names, before, Duration::ZERO);
        }
    }
    assert!(statistics(&tree).iter().any(|file| count_in(file, "discards") > 0));
}

#[test]
fn without_a_choice_the_files_stay() {
    let program = testkit::or_skip!(measurable("nginx"));
    let names = names();
    let tree = site(&names);
    names.iter().for_each(|name| tree.evict(format!("site/{name}")));
    let server = start_nginx(&tree, &program, 1, "", &[]);
    download(&server, &names);
    server.terminate();
    let (found, all) = (resident(&tree, &names), bytes(&names));
    // The kernel may reclaim some of them on a busy machine.
    assert!(found >= all / 5 * 4, "{found} of {all}");
}

/// The master and the workers begin and end within a moment; the client reads everything before.
#[test]
fn a_program_that_exits_soon_leaves_nothing() {
    let program = testkit::or_skip!(measurable("nginx"));
    let names = vec!["f0".to_owned()];
    let tree = site(&names);
    for user in ["user root;\n", "user daemon daemon;\n"] {
        tree.evict("site/f0");
        let main = format!("{user}client_body_temp_path {}/body;", tree.path().display());
        let server = start_nginx(&tree, &program, 1, &main, &[("SAMUM_PRELOAD_CACHE", "never")]);
        get(&mut server.client(), "f0");
        server.terminate();
        assert_left_as_it_was(&tree, &names, 0, Duration::ZERO);
    }
}

#[test]
fn lighttpd_with_never_leaves_the_page_cache_as_it_was() {
    let program = testkit::or_skip!(measurable("lighttpd"));
    let names: Vec<_> = (0..LARGE).map(|number| format!("f{number}")).collect();
    let tree = site(&names);
    names.iter().for_each(|name| tree.evict(format!("site/{name}")));
    let (port, root) = (free_port(), tree.path().display());
    let conf = tree.path().join("lighttpd.conf");
    let text = format!(
        "server.document-root = \"{root}/site\"\nserver.port = {port}\nserver.bind = \"127.0.0.1\"\n\
         server.network-backend = \"sendfile\"\nserver.max-keep-alive-requests = 100000\n\
         server.errorlog = \"{root}/error.log\"\n"
    );
    fs::write(&conf, text).unwrap();
    let mut command = Command::new(program);
    command.arg("-D").arg("-f").arg(conf).env("SAMUM_PRELOAD_CACHE", "never");
    let server = Running::start(helped(&mut command, &tree), port);
    download(&server, &names);
    assert_left_as_it_was(&tree, &names, 0, LIMIT);
    server.terminate();
}

/// Files that visitors ask for again and again stay; files that a crawler asks for once do not. Two workers count
/// together.
#[test]
fn nginx_with_popular_keeps_what_is_asked_for_often() {
    const HOT: u64 = 40;
    let program = testkit::or_skip!(measurable("nginx"));
    if !cfg!(debug_assertions) {
        skip!("the size of the memory is set in debug builds only");
    }
    let named = |kind: &str, count| (0..count).map(|number| format!("{kind}{number}")).collect();
    let (hot, crawled): (Vec<String>, Vec<String>) = (named("h", HOT), named("c", 400));
    let content = |number| Content::pseudo_random(number, MIB);
    let tree =
        hot.iter().chain(&crawled).zip(0..).fold(tree(), |tree, (name, number)| {
            tree.file(format!("site/{name}"), content(number))
        });
    hot.iter().chain(&crawled).for_each(|name| tree.evict(format!("site/{name}")));
    // There is room for 64 MiB.
    let memory = (64 * MIB * 4 / 3).to_string();
    let settings = [("SAMUM_PRELOAD_CACHE", "popular"), ("SAMUM_PRELOAD_MEMORY", &memory)];
    let server = start_nginx(&tree, &program, 2, "", &settings);
    let fetch = |name: &str| {
        // A connection for each request, so that both workers get some.
        let mut client = server.client();
        client.send(format!("GET /{name} HTTP/1.0\r\n\r\n")).unwrap();
        let response = client.response().unwrap();
        assert_eq!((response.status, response.body.len() as u64), (200, MIB), "{name}");
    };
    for (round, once) in crawled.chunks(20).enumerate() {
        hot.iter().filter(|_| round % 2 == 0).for_each(|name| fetch(name));
        once.iter().for_each(|name| fetch(name));
    }
    let end = Instant::now() + LIMIT;
    // Before the first requests were counted, everything was popular.
    let late = &crawled[200..];
    while resident(&tree, late) > 200 * MIB / 50 {
        assert!(Instant::now() < end, "{} of the crawled bytes stay", resident(&tree, late));
        thread::sleep(Duration::from_millis(100));
    }
    let kept = resident(&tree, &hot);
    assert!(kept >= HOT * MIB / 5 * 4, "{kept} of the hot bytes stay");
    server.terminate();
}

/// The bytes that are read for a client that takes few.
#[test]
fn a_window_bounds_what_is_read_ahead_of_a_client() {
    let program = testkit::or_skip!(measurable("nginx"));
    let names = vec!["f0".to_owned()];
    let tree = site(&names);
    let found = ["256k", "4m"].map(|window| {
        tree.evict("site/f0");
        let bytes = if window == "4m" { "4194304" } else { "262144" };
        // Without the kernel's readahead, which no window bounds.
        let settings = [("SAMUM_PRELOAD_READAHEAD", bytes), ("SAMUM_PRELOAD_CACHE", "never")];
        let server = start_nginx(&tree, &program, 1, "", &settings);
        let mut client = server.client();
        client.send("GET /f0 HTTP/1.1\r\nHost: test\r\n\r\n").unwrap();
        client.read_exactly(100_000).unwrap();
        // The socket buffers of both sides are full, and the window behind them.
        thread::sleep(Duration::from_millis(500));
        drop(client);
        server.terminate();
        statistics(&tree).iter().map(|file| count_in(file, "read_bytes")).max().unwrap_or(0)
    });
    assert!(found[0] + 3 * MIB < found[1] + MIB, "{found:?} bytes were read");
}
