//! Helpers shared by the library's tests: the library itself, trees on a disk, figures of processes.

#![allow(dead_code, reason = "not every test uses all of it")]

use core::time::Duration;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Instant;

use testkit::{Client, Content, Server, Tree, built};

/// The path of the library; the programs of `examples` are beside it.
pub(crate) fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    let library = LIBRARY.get_or_init(|| {
        let _ = built(&["--workspace", "--example", "loop_server", "--example", "odd_program"]);
        built(&["--package", "samum-preload", "--lib"]).join("libsamum_preload.so")
    });
    page_in(library);
    // Other programs use the same files, above all the C library.
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let files: BTreeSet<&str> =
        maps.lines().filter_map(|line| Some(&line[line.find('/')?..])).collect();
    files.into_iter().map(Path::new).filter(|file| file.is_file()).for_each(page_in);
    library
}

/// This is needed each time: a page that was not used for a while may have been reclaimed, and a program that
/// needs it stands still until the slow disk has read it.
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

/// Adds the library to a command.
pub(crate) fn preloaded(command: &mut Command) -> &mut Command {
    command.env("LD_PRELOAD", library())
}

/// A tree on a disk, because on tmpfs no file is ever cold.
pub(crate) fn tree() -> Tree {
    Tree::beneath("/var/tmp")
}

pub(crate) fn client(server: &Server) -> Client {
    let mut client = Client::connect(&server.address()).unwrap();
    client.set_limit(Duration::from_secs(30));
    client
}

/// Asks for a file on a connection that stays open, and compares every byte.
#[track_caller]
pub(crate) fn get(client: &mut Client, name: &str, content: &Content) {
    client.send(format!("GET /{name} HTTP/1.1\r\nHost: test\r\n\r\n")).unwrap();
    let response = client.response().unwrap();
    assert_eq!(response.status, 200, "{name}");
    content.assert_is(&response.body);
}

/// The processor time of all threads of a process and its children.
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

/// The number of descriptors of a process and its children.
pub(crate) fn descriptors(pid: u32) -> usize {
    let count = |pid| fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count);
    family(pid).into_iter().map(count).sum()
}

/// The size of the kernel's table of descriptors of a process.
pub(crate) fn room_for_descriptors(pid: u32) -> usize {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let size = status.lines().find_map(|line| line.strip_prefix("FDSize:"));
    size.unwrap().trim().parse().unwrap()
}

/// A process and all its descendants.
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

/// A count of a process, from its file of counts.
pub(crate) fn count(stats: &Path, pid: u32, name: &str) -> u64 {
    count_in(Path::new(&format!("{}.{pid}", stats.display())), name)
}

/// The same from one such file; 0 if the file does not exist.
pub(crate) fn count_in(file: &Path, name: &str) -> u64 {
    let text = fs::read_to_string(file).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.and_then(|count| count.parse().ok()).unwrap_or(0)
}

/// Waits until something is so.
#[track_caller]
pub(crate) fn until(what: &str, holds: impl Fn() -> bool) {
    let limit = Instant::now() + Duration::from_secs(10);
    while !holds() {
        assert!(Instant::now() < limit, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
