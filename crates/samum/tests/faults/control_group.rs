//! The memory limit of a control group: of a container or a systemd unit.

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use core::time::Duration;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Instant;

use testkit::{Content, Server, Tree, or_skip};

use crate::common::{
    SAMUM, SOON, cached_pages, connect, on_both_drivers, request, text, wait_until,
};

/// A control group with a memory limit. Its processes are in a group below it, which has no limit of
/// its own.
struct Group(PathBuf);

impl Group {
    fn new(limit: u64) -> Result<Self, String> {
        /// Tests of one process run at the same time.
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Relaxed);
        let name = format!("samum-test-{}-{number}", std::process::id());
        let hierarchies =
            [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")];
        let mut reason = String::new();
        for (hierarchy, file) in hierarchies {
            let group = Self(Path::new(hierarchy).join(&name));
            let made = fs::create_dir(&group.0)
                // If there is no such file, the directory is no control group.
                .and_then(|()| OpenOptions::new().write(true).open(group.0.join(file)))
                .and_then(|mut file| file.write_all(limit.to_string().as_bytes()))
                .and_then(|()| fs::create_dir(group.0.join("unit")));
            match made {
                Ok(()) => return Ok(group),
                Err(error) => reason = format!("no limit of memory at {hierarchy}: {error}"),
            }
        }
        Err(reason)
    }

    /// A command that runs in the lower group.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "echo $$ > \"$0\" && exec \"$@\""]);
        command.arg(self.0.join("unit/cgroup.procs")).arg(program);
        command
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for directory in [self.0.join("unit"), self.0.clone()] {
            for _ in 0..100 {
                // A process stays in the group for a moment after it has ended.
                if fs::remove_dir(&directory).is_ok() || !directory.exists() {
                    break;
                }
                thread::sleep(Duration::from_millis(20));
            }
        }
    }
}

#[test]
fn a_file_that_is_large_for_the_container_does_not_stay_in_its_memory() {
    const BYTES: u64 = 12 << 20;
    on_both_drivers(|driver| {
        let content = Content::pseudo_random(1, BYTES);
        let tree = Tree::beneath("/var/tmp").file("large.bin", content.clone());
        let path = tree.path().join("large.bin");
        if let Err(error) = cached_pages(&path, BYTES) {
            testkit::skip!("cachestat: {error}");
        }
        // An eighth of the first limit is more than the file, an eighth of the second is less.
        for (limit, stays) in [(256 << 20, true), (64 << 20, false)] {
            let group = or_skip!(Group::new(limit));
            tree.evict("large.bin");
            let mut command = group.command(SAMUM);
            command.args(["serve", text(tree.path()), "--listen", "127.0.0.1:0"]);
            command.args(["--threads", "1", "--driver", driver]);
            let server = Server::spawn(&mut command).unwrap();
            let mut client = connect(&server);
            client.send(request("GET /large.bin")).unwrap();
            content.assert_is(&client.response().unwrap().body);
            drop(client);
            let of = BYTES / 4096;
            let is_large = |pages| pages > of / 2;
            // What does not stay leaves a little later, when no packet refers to it.
            let until = Instant::now() + SOON;
            let mut pages = cached_pages(&path, BYTES).unwrap();
            while !stays && is_large(pages) && Instant::now() < until {
                thread::sleep(Duration::from_millis(50));
                pages = cached_pages(&path, BYTES).unwrap();
            }
            drop(server);
            let as_expected = is_large(pages) == stays;
            assert!(as_expected, "{pages} of {of} pages are in memory with a limit of {limit}");
        }
    });
}

/// A crawler reads more than fits into memory, each file once, beside a site whose files are asked for often. (Where the
/// kernel alone decides, most of what the crawler has read last stays.)
#[test]
fn a_scan_of_files_read_once_leaves_the_files_that_are_asked_for_often_in_memory() {
    const LIMIT: u64 = 64 << 20;
    const BYTES: u64 = 512 << 10;
    const HOT: usize = 16;
    /// Before the server finds that not everything fits, what is read stays.
    const SCANNED: usize = 160;
    /// Those that were read last.
    const LAST: usize = 40;
    let content = |number: usize| Content::pseudo_random(number as u64, BYTES);
    let tree = Tree::beneath("/var/tmp");
    let hot: Vec<String> = (0..HOT).map(|number| format!("hot{number}")).collect();
    let scanned: Vec<String> = (0..SCANNED).map(|number| format!("scanned{number}")).collect();
    for (number, name) in hot.iter().chain(&scanned).enumerate() {
        tree.write(name, content(number));
    }
    let pages = |names: &[String]| -> u64 {
        let of = |name| cached_pages(&tree.path().join(name), BYTES).unwrap();
        names.iter().map(of).sum()
    };
    let all = |names: &[String]| names.len() as u64 * BYTES / 4096;
    if let Err(error) = cached_pages(&tree.path().join(&hot[0]), BYTES) {
        testkit::skip!("cachestat: {error}");
    }
    on_both_drivers(|driver| {
        hot.iter().chain(&scanned).for_each(|name| tree.evict(name));
        let group = or_skip!(Group::new(LIMIT));
        let mut command = group.command(SAMUM);
        command.args(["serve", text(tree.path()), "--listen", "127.0.0.1:0"]);
        command.args(["--threads", "1", "--driver", driver]);
        let server = Server::spawn(&mut command).unwrap();
        let mut client = connect(&server);
        let mut ask_for = |number: usize, name: &str| {
            client.send(request(&format!("GET /{name}"))).unwrap();
            content(number).assert_is(&client.response().unwrap().body);
        };
        for _ in 0..4 {
            hot.iter().enumerate().for_each(|(number, name)| ask_for(number, name));
        }
        // The site is asked for all the time.
        for (number, name) in scanned.iter().enumerate() {
            ask_for(HOT + number, name);
            ask_for(number % HOT, &hot[number % HOT]);
        }
        let last = &scanned[SCANNED - LAST..];
        // What does not stay leaves a little later, when no packet refers to it.
        let are_gone = wait_until(SOON, || pages(last) <= all(last) / 10);
        assert!(are_gone, "{} of {} pages that were read once stay", pages(last), all(last));
        assert!(pages(&hot) >= all(&hot) * 9 / 10, "{} of {} are left", pages(&hot), all(&hot));
    });
}
