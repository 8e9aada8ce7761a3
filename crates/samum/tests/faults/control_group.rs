//! The memory limit of a control group: of a container or a systemd unit.

use core::time::Duration;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Instant;

use testkit::{Content, Server, Tree, or_skip};

use crate::common::{SAMUM, SOON, cached_pages, connect, on_both_drivers, request, text};

/// A control group with a memory limit. Its processes are in a group below it, which has no limit of
/// its own.
struct Group(PathBuf);

impl Group {
    fn new(limit: u64) -> Result<Self, String> {
        let name = format!("samum-test-{}", std::process::id());
        let hierarchies =
            [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")];
        let mut reason = String::new();
        for (hierarchy, file) in hierarchies {
            let group = Self(Path::new(hierarchy).join(&name));
            let made = fs::create_dir(&group.0)
                .and_then(|()| fs::write(group.0.join(file), limit.to_string()))
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
