//! The CPU time that one client can cost the server, compared within one run.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs;

use testkit::{Server, Tree};

use crate::common::{SOON, ask_on, connect, on_both_drivers, request, serve, wait_until};

/// The CPU time of each thread of a server so far, in ns: `schedstat` of proc(5).
struct CpuTimes(HashMap<OsString, u64>);

impl CpuTimes {
    fn of(server: &Server) -> Self {
        let tasks = fs::read_dir(format!("/proc/{}/task", server.pid())).expect("it runs");
        let nanos = |task: fs::DirEntry| {
            let text = fs::read_to_string(task.path().join("schedstat")).ok()?;
            Some((task.file_name(), text.split(' ').next()?.parse().ok()?))
        };
        Self(tasks.filter_map(Result::ok).filter_map(nanos).collect())
    }

    /// The CPU time since then in ns. Threads that have ended do not count: only idle kernel workers end,
    /// and the thread of the worker stays.
    fn elapsed(&self, server: &Server) -> u64 {
        let now = Self::of(server).0;
        now.iter().map(|(thread, nanos)| nanos - self.0.get(thread).unwrap_or(&0)).sum()
    }
}

/// The CPU time of `count` requests, of which 32 are sent at a time.
fn cost(server: &Server, count: usize, target: impl Fn(usize) -> String, status: u16) -> u64 {
    let mut client = connect(server);
    let before = CpuTimes::of(server);
    for start in (0..count).step_by(32) {
        let numbers = start..count.min(start + 32);
        let batch: String =
            numbers.clone().map(|number| request(&format!("GET {}", target(number)))).collect();
        client.send(batch).unwrap();
        for _ in numbers {
            assert_eq!(client.response().unwrap().status, status);
        }
    }
    before.elapsed(server)
}

#[test]
fn changes_elsewhere_cost_the_same_however_many_files_are_cached() {
    const FILES: usize = 12_000;
    const CHANGES: usize = 2000;
    on_both_drivers(|driver| {
        let tree = Tree::new().file("a.txt", "a");
        for number in 0..FILES {
            tree.write(format!("files/{number}"), "x");
        }
        let server = serve(driver, tree.path(), &[]);
        let changes = |server: &Server| {
            let mut client = connect(server);
            ask_on(&mut client, "GET /a.txt");
            let before = CpuTimes::of(server);
            for _ in 0..CHANGES {
                fs::create_dir(tree.path().join("new")).unwrap();
                fs::remove_dir(tree.path().join("new")).unwrap();
            }
            // After all events.
            fs::write(tree.path().join("a.txt"), "b").unwrap();
            let (mut answers, mut last) = (0, None);
            let is_new = wait_until(SOON, || {
                answers += 1;
                let answer = last.insert(ask_on(&mut client, "GET /a.txt"));
                answer.body == b"b"
            });
            assert!(is_new, "{answers} answers, the last: {last:?}");
            fs::write(tree.path().join("a.txt"), "a").unwrap();
            before.elapsed(server)
        };
        let few = changes(&server);
        cost(&server, FILES, |number| format!("/files/{number}"), 200);
        let many = changes(&server);
        eprintln!("{} us beside few, {} us beside many", few / 1000, many / 1000);
        assert!(many <= 4 * few + 20_000_000, "{few} ns beside few, {many} ns beside many");
    });
}
