//! Running out of descriptors.

use core::time::Duration;
use std::io::ErrorKind;
use std::process::Command;

use testkit::{Client, Server, Tree, skip};

use crate::common::{
    SAMUM, SOON, ask_on, connect, descriptors, on_both_drivers, request, run, serve, text,
    wait_until,
};

const COMPLAINT: &str = "out of descriptors";

/// Separates the clients that are answered at once from those that wait.
fn part(clients: Vec<Client>) -> (Vec<Client>, Vec<Client>) {
    let is_answered = |client: &mut Client| {
        client.set_limit(Duration::from_millis(20));
        let answer = client.response();
        client.set_limit(SOON);
        match &answer {
            Ok(response) => assert!(matches!(response.status, 200 | 503), "{response:?}"),
            Err(error) => assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}"),
        }
        answer.is_ok()
    };
    let (mut answered, mut waiting) = (Vec::new(), Vec::new());
    for mut client in clients {
        if is_answered(&mut client) { answered.push(client) } else { waiting.push(client) }
    }
    (answered, waiting)
}

#[test]
fn accepting_pauses_with_one_message_and_goes_on() {
    if let Err(reason) = run("prlimit", &["--version".as_ref()]) {
        skip!("no prlimit: {reason}");
    }
    on_both_drivers(|driver| {
        let tree = Tree::new().file("a.txt", "hello");
        let server = serve(driver, tree.path(), &["--max-connections", "40"]);
        let mut clients: Vec<_> = (0..40).map(|_| connect(&server)).collect();
        for client in &mut clients {
            assert_eq!(ask_on(client, "GET /a.txt").status, 200);
            client.send("GET /a.txt").unwrap();
        }
        // io_uring uses the limit at the time when an accept begins: here, when a client leaves. While a
        // new connection waits for a place, nothing is accepted.
        let newcomer = connect(&server);
        assert!(server.wait_for_stderr("40 connections, as many as", SOON).is_some());
        let limit = descriptors(&server) - 20;
        let (pid, limit) = (server.pid().to_string(), format!("--nofile={limit}:{limit}"));
        run("prlimit", &["--pid".as_ref(), pid.as_ref(), limit.as_ref()]).unwrap();
        drop((clients, newcomer));
        let mut clients: Vec<_> = (0..40).map(|_| connect(&server)).collect();
        for client in &mut clients {
            client.send(request("GET /a.txt")).unwrap();
        }
        assert!(server.wait_for_stderr(COMPLAINT, SOON).is_some());
        let (mut answered, mut waiting) = part(clients);
        assert!(
            !answered.is_empty() && !waiting.is_empty(),
            "{} and {}",
            answered.len(),
            waiting.len()
        );
        // After several tries the message has not been repeated, and open connections are served.
        std::thread::sleep(Duration::from_millis(400));
        let complaints = server.stderr().iter().filter(|line| line.contains(COMPLAINT)).count();
        assert_eq!(complaints, 1, "{:?}", server.stderr());
        assert_eq!(ask_on(&mut answered[0], "GET /a.txt").body, b"hello");
        // Each connection that closes makes room for another.
        drop(answered);
        while !waiting.is_empty() {
            assert_eq!(waiting[0].response().unwrap().body, b"hello");
            waiting.remove(0);
        }
    });
}

#[test]
fn a_low_limit_leaves_descriptors_for_files() {
    on_both_drivers(|driver| {
        let tree = Tree::new();
        for number in 0..60 {
            tree.write(format!("{number}.bin"), testkit::Content::pseudo_random(number, 100_000));
        }
        let mut command = Command::new("sh");
        command.args([
            "-c",
            "ulimit -n 128; exec \"$0\" \"$@\"",
            SAMUM,
            "serve",
            text(tree.path()),
        ]);
        command.args(["--listen", "127.0.0.1:0", "--threads", "1", "--driver", driver]);
        let server = Server::spawn(&mut command).unwrap();
        let mut clients: Vec<_> = (0..66).map(|_| connect(&server)).collect();
        let message = server.wait_for_stderr("connections, as many as", SOON);
        assert!(message.is_some_and(|line| line.contains("ulimit -n")));
        // With as many connections as allowed, every file can still be opened.
        for number in 0..60 {
            let response = ask_on(&mut clients[65], &format!("GET /{number}.bin"));
            assert_eq!(response.status, 200, "{number}");
            testkit::Content::pseudo_random(number, 100_000).assert_is(&response.body);
        }
        assert!(descriptors(&server) < 128);
        assert_eq!(server.stderr().iter().filter(|line| line.contains(COMPLAINT)).count(), 0);
        drop(clients);
        assert!(wait_until(SOON, || descriptors(&server) < 100));
    });
}

/// Nobody who types it wants 64: that there are few is said at the start, and all of them are used.
#[test]
fn with_64_descriptors_25_clients_are_served_side_by_side() {
    on_both_drivers(|driver| {
        let tree = Tree::new();
        for number in 0..20 {
            tree.write(format!("{number}.bin"), testkit::Content::pseudo_random(number, 100_000));
        }
        let mut command = Command::new("sh");
        let script = "ulimit -n 64; exec \"$0\" \"$@\"";
        command.args(["-c", script, SAMUM, "serve", text(tree.path())]);
        // As many workers as the machine has cores, or as there are descriptors for.
        command.args(["--listen", "127.0.0.1:0", "--driver", driver]);
        let server = Server::spawn(&mut command).unwrap();
        let message = server.wait_for_stderr("there is room for 25 connections at once", SOON);
        assert!(message.is_some_and(|line| line.contains("`ulimit -n 20000`")));
        let mut clients: Vec<_> = (0..25).map(|_| connect(&server)).collect();
        for number in 0..20 {
            for client in &mut clients {
                assert_eq!(ask_on(client, &format!("GET /{number}.bin")).status, 200, "{number}");
            }
        }
        assert!(descriptors(&server) < 64);
        assert_eq!(server.stderr().iter().filter(|line| line.contains(COMPLAINT)).count(), 0);
    });
}

/// If the table grows while the process has several threads, the worker that accepts sleeps.
#[test]
fn the_table_of_descriptors_has_its_final_size_at_the_start() {
    on_both_drivers(|driver| {
        let tree = Tree::new().file("a.txt", "hello");
        for limit in [1 << 10, 1 << 12] {
            let script = format!("ulimit -n {limit} && exec \"$0\" \"$@\"");
            let mut command = Command::new("sh");
            command.args(["-c", &script, SAMUM, "serve", text(tree.path())]);
            command.args(["--listen", "127.0.0.1:0", "--threads", "1", "--driver", driver]);
            let server = Server::spawn(&mut command).unwrap();
            let status = format!("/proc/{}/status", server.pid());
            let status = std::fs::read_to_string(status).unwrap();
            let size = status.lines().find_map(|line| line.strip_prefix("FDSize:"));
            assert_eq!(size.unwrap().trim().parse(), Ok(limit));
            assert!(descriptors(&server) < 100);
        }
    });
}
