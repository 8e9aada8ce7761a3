//! What the tests of the library share: the library itself, trees on a disk, servers beneath it.

#![allow(dead_code, reason = "not every test uses all of it")]

use core::time::Duration;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Instant;

use testkit::{Client, Content, Server, Tree, built};

/// The library, and the programs of `examples` beside it.
pub(crate) fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    let library = LIBRARY.get_or_init(|| {
        let target = built(&["--package", "samum-preload", "--lib", "--examples"]);
        target.join("libsamum_preload.so")
    });
    page_in(library);
    // What we are made of, the C library above all, is in others too.
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let files: BTreeSet<&str> =
        maps.lines().filter_map(|line| Some(&line[line.find('/')?..])).collect();
    files.into_iter().map(Path::new).filter(|file| file.is_file()).for_each(page_in);
    library
}

/// Each time: a page that nobody has used for a while may have been reclaimed, and a program that comes
/// to it stands still until the slow disk has it.
fn page_in(file: &Path) {
    fs::read(file).unwrap();
}

pub(crate) fn loop_server() -> PathBuf {
    example("loop_server")
}

fn example(name: &str) -> PathBuf {
    let program = library().with_file_name("examples").join(name);
    page_in(&program);
    program
}

pub(crate) fn odd_program() -> PathBuf {
    example("odd_program")
}

/// Let the library into a command.
pub(crate) fn preloaded(command: &mut Command) -> &mut Command {
    command.env("LD_PRELOAD", library())
}

/// A tree on a disk: on tmpfs nothing is ever cold.
pub(crate) fn tree() -> Tree {
    Tree::beneath("/var/tmp")
}

pub(crate) fn client(server: &Server) -> Client {
    let mut client = Client::connect(&server.address()).unwrap();
    client.set_limit(Duration::from_secs(30));
    client
}

/// Ask for a file on a connection that stays, and compare every byte.
#[track_caller]
pub(crate) fn get(client: &mut Client, name: &str, content: &Content) {
    client.send(format!("GET /{name} HTTP/1.1\r\nHost: test\r\n\r\n")).unwrap();
    let response = client.response().unwrap();
    assert_eq!(response.status, 200, "{name}");
    content.assert_is(&response.body);
}

/// Processor time of a process and its children, all threads.
pub(crate) fn cpu(pid: u32) -> Duration {
    let mut total = 0;
    for process in family(pid) {
        for task in tasks(process) {
            let times = fs::read_to_string(task.join("schedstat")).unwrap_or_default();
            let time = times.split(' ').next().and_then(|time| time.parse::<u64>().ok());
            total += time.unwrap_or(0);
        }
    }
    Duration::from_nanos(total)
}

/// Descriptors of a process and its children.
pub(crate) fn descriptors(pid: u32) -> usize {
    let count = |pid| fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count);
    family(pid).into_iter().map(count).sum()
}

/// How many descriptors the kernel's table of a process has room for.
pub(crate) fn room_for_descriptors(pid: u32) -> usize {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let size = status.lines().find_map(|line| line.strip_prefix("FDSize:"));
    size.unwrap().trim().parse().unwrap()
}

/// A process and all that come from it.
pub(crate) fn family(pid: u32) -> Vec<u32> {
    let mut all = vec![pid];
    let mut at = 0;
    while at < all.len() {
        for task in tasks(all[at]) {
            let children = fs::read_to_string(task.join("children")).unwrap_or_default();
            all.extend(children.split_whitespace().filter_map(|pid| pid.parse::<u32>().ok()));
        }
        at += 1;
    }
    all
}

fn tasks(pid: u32) -> Vec<PathBuf> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten();
    tasks.filter_map(|task| Some(task.ok()?.path())).collect()
}

/// What a process counts, from its file of statistics.
pub(crate) fn count(stats: &Path, pid: u32, name: &str) -> u64 {
    count_in(Path::new(&format!("{}.{pid}", stats.display())), name)
}

/// The same from one such file; 0 if it is not there.
pub(crate) fn count_in(file: &Path, name: &str) -> u64 {
    let text = fs::read_to_string(file).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.and_then(|count| count.parse().ok()).unwrap_or(0)
}

/// Wait until something holds.
#[track_caller]
pub(crate) fn until(what: &str, holds: impl Fn() -> bool) {
    let limit = Instant::now() + Duration::from_secs(10);
    while !holds() {
        assert!(Instant::now() < limit, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
