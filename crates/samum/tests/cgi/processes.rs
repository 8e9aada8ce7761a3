//! The processes of programs: what they inherit, what they leave behind, and when they are stopped.

use std::io::ErrorKind;
use std::time::Instant;

use testkit::{Signal, Tree, request};

use crate::cgi::stage::{
    Counts, on_both_drivers, on_both_drivers_at_once, pid_in, script, serve, serve_impatient,
    serve_with, text, tree, wait_for_end,
};
use crate::common::{SAMUM, SOON, wait_until};

const HEAD: &str = "printf 'Content-Type: a/b\\n\\n'";

#[test]
fn a_program_inherits_nothing() {
    on_both_drivers(|driver| {
        let tree = tree();
        // The shell itself: its descriptors, its group and its signals.
        let shell = format!(
            "{HEAD}; for fd in /proc/$$/fd/*; do readlink $fd; done; echo ---; \
             while read -r name value; do case $name in SigBlk*|SigIgn*) echo $value;; esac; done </proc/$$/status; cut -d' ' -f5 /proc/$$/stat; echo $$"
        );
        script(&tree, "run", &shell);
        let stage = serve(driver, &tree);
        let response = stage.ask("GET /tool/run");
        let (descriptors, rest) = text(&response).split_once("---\n").unwrap();
        let descriptors: Vec<_> = descriptors.lines().collect();
        for target in &descriptors {
            let is_own = target.starts_with("pipe:")
                || *target == "/dev/null"
                || target.ends_with("/cgi/run");
            assert!(is_own, "{target} is inherited");
        }
        let pipes = descriptors.iter().filter(|target| target.starts_with("pipe:")).count();
        assert_eq!(pipes, 2, "output and errors: {descriptors:?}");
        let rest: Vec<_> =
            rest.lines().map(|line| line.split_whitespace().last().unwrap()).collect();
        let [blocked, ignored, group, pid] = rest[..] else { panic!("{rest:?}") };
        // glibc ignores two signals of its own in programs that it starts; a shell has those ignore SIGINT
        // and SIGQUIT that it starts in the background.
        let others = set(ignored) & !0x1_8000_0000 & !ignored_here();
        assert_eq!(others, 0, "{ignored}");
        assert_eq!(blocked, "0000000000000000");
        assert_eq!(group, pid, "it leads a group");
    });
}

/// A set of signals, as `/proc/PID/status` has it.
fn set(text: &str) -> u64 {
    u64::from_str_radix(text, 16).unwrap()
}

/// The signals that this process ignores.
fn ignored_here() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    set(status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap().trim())
}

#[test]
fn processes_of_a_client_that_leaves_are_stopped() {
    on_both_drivers_at_once(|driver| {
        let tree = tree();
        let pid = |name: &str| format!("{}/{name}", tree.path().display());
        for (name, before) in [("before", ""), ("after", HEAD)] {
            let text = format!(
                "{before}\nsleep 1000 & echo $! >{}; echo $$ >{}; wait",
                pid(&format!("{name}-child")),
                pid(name)
            );
            script(&tree, name, &text);
        }
        let flood = format!("echo $$ >{}; {HEAD}; while :; do echo a; done", pid("flood"));
        script(&tree, "flood", &flood);
        let read = format!("echo $$ >{}; {HEAD}; cat; sleep 1000", pid("read"));
        script(&tree, "read", &read);
        let stage = serve_impatient(driver, &tree, "");
        for name in ["before", "after", "flood", "read"] {
            let mut client = stage.connect();
            if name == "read" {
                client.send(request("POST /tool/read\nContent-Length: 2000000") + "some").unwrap();
            } else {
                client.send(request(&format!("GET /tool/{name}"))).unwrap();
            }
            let pid = pid_in(&tree, name);
            drop(client);
            wait_for_end(pid);
            if ["before", "after"].contains(&name) {
                wait_for_end(pid_in(&tree, &format!("{name}-child")));
            }
        }
        stage.expect(Counts { started: 4, killed: 4, ..Counts::default() });
    });
}

#[test]
fn processes_that_are_left_behind_do_not_hold_up_the_response() {
    on_both_drivers_at_once(|driver| {
        let tree = tree();
        let pid = |name: &str| format!("{}/{name}", tree.path().display());
        script(
            &tree,
            "silent",
            &format!("{HEAD}; echo a; sleep 1000 & echo $! >{}", pid("silent")),
        );
        let deaf = format!("{HEAD}; echo a; (trap '' TERM; sleep 1000) & echo $! >{}", pid("deaf"));
        script(&tree, "deaf", &deaf);
        script(&tree, "late", &format!("{HEAD}; echo a; (sleep 0.5; echo b) &"));
        let apart =
            format!("{HEAD}; echo a; sleep 1000 >/dev/null 2>&1 & echo $! >{}", pid("apart"));
        script(&tree, "apart", &apart);
        let stage = serve(driver, &tree);
        for (name, body, least, most) in [
            ("silent", "a\n", 900, 4000),
            ("deaf", "a\n", 900, 4000),
            ("late", "a\nb\n", 400, 4000),
            ("apart", "a\n", 0, 4000),
        ] {
            let began = Instant::now();
            assert_eq!(text(&stage.ask(&format!("GET /tool/{name}"))), body);
            let took = began.elapsed().as_millis();
            assert!((least..most).contains(&took), "{name}: {took} ms");
        }
        wait_for_end(pid_in(&tree, "silent"));
        wait_for_end(pid_in(&tree, "deaf"));
        // One that has closed the pipes is left alone.
        let apart = pid_in(&tree, "apart");
        assert!(std::fs::exists(format!("/proc/{apart}")).unwrap());
        // The shell has it; a machine without procps has no such program.
        let kill = format!("kill {apart}");
        std::process::Command::new("sh").args(["-c", &kill]).status().unwrap();
        assert_eq!(stage.counts().failed, 0);
    });
}

#[test]
fn a_program_may_go_on_when_its_response_has_ended() {
    on_both_drivers(|driver| {
        let tree = tree();
        let dir = tree.path().display();
        let text_of = format!(
            "{HEAD}; echo a; exec >&-; until [ -e {dir}/go ]; do sleep 0.1; done; echo $$ >{dir}/done"
        );
        script(&tree, "run", &text_of);
        let stage = serve(driver, &tree);
        assert_eq!(text(&stage.ask("GET /tool/run")), "a\n");
        tree.write("go", "");
        wait_for_end(pid_in(&tree, "done"));
        stage.expect(Counts { started: 1, ..Counts::default() });
    });
}

/// The server gives responses 30 s.
#[test]
fn nothing_is_left_of_a_server_that_ends() {
    on_both_drivers_at_once(end_server);
}

fn end_server(driver: &str) {
    let tree = tree();
    let pid = |name: &str| format!("{}/{name}", tree.path().display());
    script(&tree, "short", &format!("echo $$ >{}; sleep 0.5; {HEAD}; echo a", pid("short")));
    let long = format!("trap '' TERM; echo $$ >{}; {HEAD}; sleep 1000 & wait; wait", pid("long"));
    script(&tree, "long", &long);
    let mut stage = serve(driver, &tree);
    let (mut short, mut long) = (stage.connect(), stage.connect());
    short.send(request("GET /tool/short")).unwrap();
    long.send(request("GET /tool/long")).unwrap();
    let pids = [pid_in(&tree, "short"), pid_in(&tree, "long")];
    stage.terminate();
    // The one has had the time to end.
    assert_eq!(text(&short.response().unwrap()), "a\n");
    assert_ne!(long.response().unwrap_err().kind(), ErrorKind::TimedOut);
    wait_for_end(pids[0]);
    assert!(wait_until(SOON, || has_ended(pids[1])), "it goes on");
}

#[test]
fn nothing_is_left_of_a_server_that_ends_at_once() {
    on_both_drivers_at_once(|driver| {
        let tree = tree();
        let pid = |name: &str| format!("{}/{name}", tree.path().display());
        let (one, other) = (pid("one"), pid("other"));
        let text = format!("trap '' TERM; sleep 1000 & echo $! >{one}; echo $$ >{other}; wait");
        script(&tree, "long", &text);
        let mut stage = serve(driver, &tree);
        let mut client = stage.connect();
        client.send(request("GET /tool/long")).unwrap();
        let pids = [pid_in(&tree, "one"), pid_in(&tree, "other")];
        stage.server.signal(Signal::TERM).unwrap();
        stage.wait_for_log("shutting down");
        stage.terminate();
        for pid in pids {
            assert!(wait_until(SOON, || has_ended(pid)), "{pid} goes on");
        }
    });
}

/// Programs that try to escape their end: each writes the number of its last process to a file of its name.
fn fugitives(tree: &Tree) -> [&'static str; 6] {
    let deaf = |name: &str| {
        format!(
            "sh -c 'trap \"\" TERM; echo $$ >{}/{name}; exec sleep 1000'",
            tree.path().display()
        )
    };
    // The leader joins the group of a child.
    let group = format!(
        "exec perl -e '$SIG{{TERM}} = \"IGNORE\"; my $child = fork // die; \
         if (!$child) {{ setpgrp(0, 0); sleep 1000; exit }} select(undef, undef, undef, 0.1) until setpgrp(0, $child); \
         open(my $out, \">\", \"{}/group\"); print $out \"$$\\n\"; close $out; sleep 1000'",
        tree.path().display()
    );
    script(tree, "group", &group);
    script(tree, "session", &format!("setsid {} & wait", deaf("session")));
    // It forks twice, and holds the pipes.
    script(tree, "daemon", &format!("(setsid {} &)", deaf("daemon")));
    script(tree, "cleared", &format!("(env -i setsid {} &); sleep 1000", deaf("cleared")));
    let closed = format!("(setsid {} </dev/null >/dev/null 2>&1 &); sleep 1000", deaf("closed"));
    script(tree, "closed", &closed);
    let lost = format!("(env -i setsid {} </dev/null >/dev/null 2>&1 &); sleep 1000", deaf("lost"));
    script(tree, "lost", &lost);
    ["group", "session", "daemon", "cleared", "closed", "lost"]
}

#[test]
fn a_program_cannot_escape_its_end_or_keep_its_place() {
    on_both_drivers_at_once(|driver| {
        let tree = tree();
        let fugitives = fugitives(&tree);
        // It ends when as many as there are places run at the same time.
        let meet = format!(
            "touch {0}/$$.here; {HEAD}; until [ $(ls {0}/*.here | wc -l) -ge 6 ]; do sleep 0.1; done; echo met",
            tree.path().display()
        );
        script(&tree, "meet", &meet);
        let stage = serve_with(driver, &tree, "processes = 6, timeout = 3");
        let clients = fugitives.map(|name| {
            let mut client = stage.connect();
            client.send(request(&format!("GET /tool/{name}"))).unwrap();
            client
        });
        let pids = fugitives.map(|name| pid_in(&tree, name));
        for (mut client, name) in clients.into_iter().zip(fugitives) {
            let status = client.response().unwrap().status;
            assert_eq!(status, if name == "daemon" { 502 } else { 504 }, "{name}");
        }
        pids.into_iter().for_each(wait_for_end);
        stage.expect(Counts { started: 6, killed: 6, failed: 6, ..Counts::default() });
        let clients = [(); 6].map(|()| {
            let mut client = stage.connect();
            client.send(request("GET /tool/meet")).unwrap();
            client
        });
        for mut client in clients {
            assert_eq!(text(&client.response().unwrap()), "met\n");
        }
    });
}

/// What SIGTERM makes a process start, when it has lost its parents, its environment and the pipes.
#[test]
fn what_is_started_between_sigterm_and_sigkill_is_killed_too() {
    on_both_drivers_at_once(|driver| {
        let tree = tree();
        let dir = tree.path().display();
        script(&tree, "heir", &format!("trap '' TERM; echo $$ >{dir}/heir; exec sleep 1000"));
        let testator = format!(
            "trap '(setsid {dir}/cgi/heir &); exit' TERM; echo $$ >{dir}/testator; while :; do sleep 0.1; done"
        );
        script(&tree, "testator", &testator);
        let run =
            format!("(env -i setsid {dir}/cgi/testator </dev/null >/dev/null 2>&1 &); sleep 1000");
        script(&tree, "run", &run);
        let stage = serve_with(driver, &tree, "timeout = 1");
        assert_eq!(stage.ask("GET /tool/run").status, 504);
        wait_for_end(pid_in(&tree, "testator"));
        wait_for_end(pid_in(&tree, "heir"));
    });
}

/// A process whose program is that of the server may be one that is being started for another request.
#[test]
fn a_process_that_has_become_another_server_is_killed_too() {
    on_both_drivers_at_once(|driver| {
        let tree = tree();
        let dir = tree.path().display();
        let run = format!(
            "(env -i setsid {SAMUM} serve {dir} --listen 127.0.0.1:0 </dev/null >/dev/null 2>&1 & echo $! >{dir}/own); sleep 1000"
        );
        script(&tree, "run", &run);
        let stage = serve_with(driver, &tree, "timeout = 1");
        assert_eq!(stage.ask("GET /tool/run").status, 504);
        wait_for_end(pid_in(&tree, "own"));
    });
}

#[test]
fn a_program_cannot_hold_up_the_end_of_the_server_or_outlive_it() {
    on_both_drivers_at_once(|driver| {
        let tree = tree();
        let fugitives = fugitives(&tree);
        let mut stage = serve_with(driver, &tree, "timeout = 1");
        let clients = fugitives.map(|name| {
            let mut client = stage.connect();
            client.send(request(&format!("GET /tool/{name}"))).unwrap();
            client
        });
        let pids = fugitives.map(|name| pid_in(&tree, name));
        let began = Instant::now();
        stage.terminate();
        // Their time, that of SIGTERM, and 2 s.
        assert!(began.elapsed().as_secs() < 8, "{:?}", began.elapsed());
        for (pid, name) in pids.into_iter().zip(fugitives) {
            assert!(wait_until(SOON, || has_ended(pid)), "{name} goes on");
        }
        drop(clients);
    });
}

#[test]
fn what_escapes_is_killed_when_the_server_ends_at_once() {
    on_both_drivers_at_once(|driver| {
        let tree = tree();
        let fugitives = fugitives(&tree);
        let mut stage = serve(driver, &tree);
        let clients = fugitives.map(|name| {
            let mut client = stage.connect();
            client.send(request(&format!("GET /tool/{name}"))).unwrap();
            client
        });
        let pids = fugitives.map(|name| pid_in(&tree, name));
        stage.server.signal(Signal::TERM).unwrap();
        stage.wait_for_log("shutting down");
        let began = Instant::now();
        stage.terminate();
        assert!(began.elapsed().as_secs() < 5, "{:?}", began.elapsed());
        for (pid, name) in pids.into_iter().zip(fugitives) {
            assert!(wait_until(SOON, || has_ended(pid)), "{name} goes on");
        }
        drop(clients);
    });
}

/// The server is the parent of what has lost its own. It waits for all of that, and for leaders only once.
#[test]
fn no_zombies_are_left_of_orphans() {
    on_both_drivers_at_once(|driver| {
        let tree = tree();
        let orphans = format!(
            "{HEAD}; for i in 1 2 3 4 5; do (setsid sh -c 'exec >&- 2>&-; sleep 0.$0' $i &); done; echo a; exit 7"
        );
        script(&tree, "orphans", &orphans);
        let stage = serve(driver, &tree);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..10 {
                        assert_eq!(text(&stage.ask("GET /tool/orphans")), "a\n");
                    }
                });
            }
        });
        stage.expect(Counts { started: 40, ..Counts::default() });
        let server = stage.server.pid();
        let children = || {
            let threads = std::fs::read_dir(format!("/proc/{server}/task")).unwrap();
            let read = |thread: std::fs::DirEntry| {
                std::fs::read_to_string(thread.path().join("children")).unwrap_or_default()
            };
            threads.map(|thread| read(thread.unwrap())).collect::<String>()
        };
        assert!(wait_until(SOON, || children().is_empty()), "{}", children());
    });
}

/// Returns whether a process has ended. It may be a zombie, because its new parent need not wait for it at once.
fn has_ended(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    status.is_empty() || status.contains("State:\tZ")
}
