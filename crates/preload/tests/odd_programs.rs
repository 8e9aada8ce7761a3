//! Programs that fork, reuse descriptor numbers, duplicate descriptors, block, or retry in a loop; and the library
//! under valgrind.

use std::path::PathBuf;
use std::process::{Command, Output};

use testkit::{Content, Server, Throttle, Tree, kill_at, or_skip, skip};

use crate::common::{
    client, count, get, library, loop_server, odd_program, preloaded, tree, until,
};

const MIB: u64 = 1024 * 1024;

fn run(command: &mut Command) -> (bool, String) {
    // A backtrace would need the debug information, from the slow disk.
    let Output { status, stderr, .. } = command.env("RUST_BACKTRACE", "0").output().unwrap();
    (status.success(), String::from_utf8_lossy(&stderr).into_owned())
}

/// A file that no process has read. Pages that are still being read may arrive after an eviction.
fn cold(tree: &Tree, throttle: &Throttle, name: &str) -> PathBuf {
    throttle.limit(None);
    tree.write(name, Content::pseudo_random(1, MIB));
    // Pages of programs and libraries that were reclaimed meanwhile would come from the slow disk, too.
    let mut command = throttle.command("/usr/bin/timeout");
    command.arg("60").arg(odd_program()).arg("nothing").arg(tree.path().join(name));
    assert_eq!(run(preloaded(&mut command)), (true, String::new()));
    tree.evict(name);
    throttle.limit(Some(64 * 1024));
    tree.path().join(name)
}

#[test]
fn programs_see_nothing_but_a_full_socket() {
    let tree = tree();
    let throttle = or_skip!(Throttle::new(tree.path()));
    for what in [
        "wait",
        "fork",
        "orphan",
        "vfork",
        "reuse",
        "dup",
        "shutdown",
        "again",
        "blocking",
        "pipe",
        "datagram",
        "loopless",
        "stubborn",
        "prodded",
        "errors",
        "reset",
        "oneshot",
        "prctl",
        "seccomp",
        "refused",
        "locked",
        "lockf",
        "flock",
        "fclose",
        "instance",
        "instances",
        "added",
        "place",
        "setuid",
        "select",
        "crowd",
        "last",
        "closefrom",
        "chroot",
    ] {
        let file = cold(&tree, &throttle, what);
        let mut command = throttle.command("/usr/bin/timeout");
        command.arg("60").arg(odd_program());
        let (ok, said) = run(preloaded(command.arg(what).arg(file)));
        assert!(ok, "{what}: {said}");
    }
    // The library writes its line before the filter exists.
    let file = cold(&tree, &throttle, "logged");
    let log = tree.path().join("log");
    let mut command = throttle.command("/usr/bin/timeout");
    command.arg("60").arg(odd_program()).arg("prctl").arg(file).env("SAMUM_PRELOAD_LOG", &log);
    let (ok, said) = run(preloaded(&mut command));
    let log = std::fs::read_to_string(log).unwrap_or_default();
    assert!(ok && log.contains("installs a seccomp filter"), "{said}{log}");
    // Without the library the first of them fails, so the programs do test something.
    let file = cold(&tree, &throttle, "without");
    let mut command = throttle.command(odd_program());
    let (ok, said) = run(command.arg("wait").arg(file));
    assert!(!ok && said.contains("Ok(8192)"), "{said}");
}

/// The filter is that of a unit with `SystemCallFilter=@system-service` and a systemd older than the call.
#[test]
fn a_filter_that_kills_at_a_call_of_ours_does_not_kill_the_program() {
    let tree = tree();
    let throttle = or_skip!(Throttle::new(tree.path()));
    // If the call is not needed, the library works as ever; otherwise the program waits for the disk itself.
    for (name, syscall, what) in [
        ("cachestat", 451, "wait"),
        ("preadv2", libc::SYS_preadv2, "unhelped"),
        ("fadvise64", libc::SYS_fadvise64, "unhelped"),
        ("clone3", libc::SYS_clone3, "unhelped"),
    ] {
        let file = cold(&tree, &throttle, name);
        let log = tree.path().join("log");
        let mut command = throttle.command("/usr/bin/env");
        // timeout(1) would fork, too.
        command.arg(odd_program()).arg(what).arg(file).env("SAMUM_PRELOAD_LOG", &log);
        let (ok, said) = run(kill_at(preloaded(&mut command), &[syscall]));
        let log = std::fs::read_to_string(log).unwrap_or_default();
        assert!(ok, "{name}: {said}{log}");
    }
}

#[test]
fn a_fault_of_the_library_is_logged_once_and_ends_nothing_but_its_help() {
    if !cfg!(debug_assertions) {
        skip!("faults are made in debug builds only");
    }
    let tree = tree();
    let throttle = or_skip!(Throttle::new(tree.path()));
    for point in [
        "begin",
        "sendfile",
        "state",
        "sent",
        "epoll_ctl",
        "granted",
        "reader",
        "read",
        "poll",
        "poll slice",
        "close",
        "dup",
        "dup2",
        "shutdown",
        "fork",
        "child",
    ] {
        let file = cold(&tree, &throttle, &point.replace(' ', "-"));
        let log = tree.path().join(format!("log-{point}"));
        let mut command = throttle.command("/usr/bin/timeout");
        command.arg("60").arg(odd_program()).arg("failing").arg(file);
        command.env("SAMUM_PRELOAD_LOG", &log).env("SAMUM_PRELOAD_PANIC", point);
        let (ok, said) = run(preloaded(&mut command));
        assert!(ok && said.is_empty(), "{point}: {said}");
        let log = std::fs::read_to_string(log).unwrap_or_default();
        let place = format!("(at {point}, on purpose): everything is left to the kernel");
        // Before the settings are read there is no log. Some points are reached by timeout(1), too, or by the
        // child.
        assert!(point == "begin" || log.contains(&place), "{point}: {log}");
        let pids: Vec<_> = log.lines().filter(|line| line.contains("fault")).collect();
        assert!(pids.len() <= 3, "{point}: {log}");
    }
}

#[test]
fn forked_children_have_no_descriptors_but_the_programs() {
    let tree = tree().file("file", Content::pseudo_random(1, MIB));
    // Written to the disk, so that the program can evict it.
    tree.evict("file");
    let mut command = Command::new(odd_program());
    let (ok, said) = run(preloaded(command.arg("forks").arg(tree.path().join("file"))));
    assert!(ok, "{said}");
}

#[test]
fn valgrind_finds_nothing() {
    let tree = tree().file("file", Content::pseudo_random(2, MIB));
    if !std::path::Path::new("/usr/bin/valgrind").exists() {
        skip!("valgrind is not installed");
    }
    let mut command = Command::new("/usr/bin/valgrind");
    command.args(["-q", "--error-exitcode=99", "--trace-children=no"]);
    command.arg(format!("--log-file={}", tree.path().join("valgrind").display()));
    let stats = tree.path().join("stats");
    command.arg(loop_server()).arg("level").arg(tree.path()).env("LD_PRELOAD", library());
    command.env("SAMUM_PRELOAD_STATS", &stats);
    let mut server = Server::spawn(&mut command).unwrap();
    for _ in 0..3 {
        tree.evict("file");
        get(&mut client(&server), "file", &Content::pseudo_random(2, MIB));
    }
    until("no socket has waited", || count(&stats, server.pid(), "rearmed") > 0);
    server.terminate().unwrap();
    let found = std::fs::read_to_string(tree.path().join("valgrind")).unwrap();
    assert!(!found.contains("Invalid") && !found.contains("ninitialised"), "{found}");
}
