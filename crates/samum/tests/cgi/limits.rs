//! The limits on number, time, output and lines.

use core::time::Duration;
use std::io::ErrorKind;
use std::time::Instant;

use testkit::request;

use crate::cgi::stage::{
    Counts, on_both_drivers, on_both_drivers_at_once, pid_in, script, serve, serve_impatient,
    serve_with, text, tree, wait_for_end,
};

const HEAD: &str = "printf 'Content-Type: a/b\\n\\n'";

#[test]
fn a_program_that_hangs_is_stopped() {
    on_both_drivers_at_once(|driver| {
        let tree = tree();
        let pid = format!("echo $$ >{}/", tree.path().display());
        script(&tree, "before", &format!("{pid}before; sleep 1000"));
        script(&tree, "after", &format!("{pid}after; {HEAD}; echo a; sleep 1000"));
        script(&tree, "deaf", &format!("trap '' TERM; {pid}deaf; while :; do sleep 0.1; done"));
        let stage = serve_with(driver, &tree, "timeout = 0.7");
        let began = Instant::now();
        assert_eq!(stage.ask("GET /tool/before").status, 504);
        assert!(began.elapsed() >= Duration::from_millis(700));
        stage.wait_for_log("/tool/before: it took more than 0.7 s before its header was complete");
        let mut client = stage.connect();
        client.send(request("GET /tool/after")).unwrap();
        assert_eq!(client.response().unwrap_err().kind(), ErrorKind::UnexpectedEof);
        stage.wait_for_log("/tool/after: it took more than 0.7 s; its response is cut off");
        assert_eq!(stage.ask("GET /tool/deaf").status, 504);
        for name in ["before", "after", "deaf"] {
            wait_for_end(pid_in(&tree, name));
        }
        assert!(began.elapsed() >= Duration::from_secs(5), "the last one has had its 5 s");
        stage.expect(Counts { started: 3, failed: 3, killed: 3, refused: 0 });
    });
}

#[test]
fn a_program_that_floods_is_stopped() {
    on_both_drivers(|driver| {
        let tree = tree();
        let pid = format!("echo $$ >{}/", tree.path().display());
        script(&tree, "out", &format!("{pid}out; {HEAD}; exec cat /dev/zero"));
        script(&tree, "err", &format!("{pid}err; {HEAD}; exec cat /dev/zero >&2"));
        script(&tree, "all", &format!("{HEAD}; head -c 99000 /dev/zero"));
        script(&tree, "late", &format!("{HEAD}; sleep 0.5; exec cat /dev/zero"));
        let stage = serve_with(driver, &tree, "output = 100000");
        for name in ["out", "err"] {
            let mut client = stage.connect();
            client.send(request(&format!("GET /tool/{name}"))).unwrap();
            assert_eq!(client.response().unwrap_err().kind(), ErrorKind::UnexpectedEof, "{name}");
            stage.wait_for_log(&format!(
                "/tool/{name}: it put out more than 100000 bytes; its response is cut off"
            ));
            wait_for_end(pid_in(&tree, name));
        }
        assert_eq!(stage.ask("GET /tool/all").body.len(), 99_000);
        assert_eq!(stage.ask("HEAD /tool/late").status, 200);
        // After a HEAD request it is stopped, too; nothing failed for the client.
        stage.expect(Counts { started: 4, failed: 2, killed: 3, refused: 0 });
    });
}

#[test]
fn lines_on_standard_error_are_logged_and_bounded() {
    on_both_drivers(|driver| {
        let tree = tree();
        script(&tree, "few", &format!("echo one >&2; {HEAD}; printf 'two\\033[2J\\nthree' >&2"));
        script(
            &tree,
            "long",
            &format!("{HEAD}; head -c 5000 /dev/zero | tr '\\0' x >&2; echo >&2; echo next >&2"),
        );
        script(&tree, "many", &format!("{HEAD}; yes noise | head -n 1000 >&2"));
        script(&tree, "fault", "exit 3");
        let stage = serve(driver, &tree);
        assert_eq!(stage.ask("GET /tool/few").status, 200);
        stage.wait_for_log("samum: /tool/few: one");
        stage.wait_for_log("samum: /tool/few: two\\u{1b}[2J");
        stage.wait_for_log("samum: /tool/few: three");
        assert_eq!(stage.ask("GET /tool/long").status, 200);
        stage.wait_for_log("samum: /tool/long: next");
        let log = stage.server.stderr();
        let long = log.iter().find(|line| line.contains("/tool/long: x")).unwrap();
        assert_eq!(long.len(), "samum: /tool/long: ".len() + 512);
        assert_eq!(stage.ask("GET /tool/many").status, 200);
        assert_eq!(stage.ask("GET /tool/fault").status, 502);
        stage.wait_for_log("/tool/fault: it ended before");
        std::thread::sleep(Duration::from_millis(1200));
        assert_eq!(stage.ask("GET /tool/few").status, 200);
        stage.wait_for_log("lines from the standard error of /tool/ were dropped");
        let noise = stage.server.stderr().iter().filter(|line| line.contains("noise")).count();
        assert!((50..=120).contains(&noise), "{noise}");
    });
}

#[test]
fn only_so_many_programs_run_at_once_and_others_wait_in_line() {
    on_both_drivers(|driver| {
        let tree = tree();
        let count = "ls \"$PATH_INFO\"/running 2>/dev/null | wc -l";
        let text_of = format!(
            "mkdir -p \"$PATH_INFO\"/running; : >\"$PATH_INFO\"/running/$$; {HEAD}; {count}; sleep 0.2; \
             rm \"$PATH_INFO\"/running/$$"
        );
        script(&tree, "run", &text_of);
        let stage = serve_with(driver, &tree, "processes = 3");
        let path = format!("/tool/run{}", tree.path().display());
        let mut clients: Vec<_> = (0..12).map(|_| stage.connect()).collect();
        for client in &mut clients {
            client.send(request(&format!("GET {path}"))).unwrap();
        }
        for client in &mut clients {
            let response = client.response().unwrap();
            let running: u32 = text(&response).trim().parse().unwrap();
            assert!((1..=3).contains(&running), "{running} at once");
        }
        stage.expect(Counts { started: 12, ..Counts::default() });
    });
}

#[test]
fn a_full_line_is_answered_503() {
    on_both_drivers(|driver| {
        let tree = tree();
        let go = tree.path().join("go");
        // A script that is still asleep at the end of the test ends with the directory.
        let (dir, file) = (tree.path().display(), go.display());
        let wait =
            format!("while [ -d {dir} ] && ! [ -e {file} ]; do sleep 0.05; done; {HEAD}; echo a");
        script(&tree, "run", &wait);
        let stage = serve_impatient(driver, &tree, "processes = 1");
        let mut first = stage.connect();
        first.send(request("GET /tool/run")).unwrap();
        std::thread::sleep(Duration::from_millis(300));
        // These leave again, and do not count.
        let leaving: Vec<_> = (0..100)
            .map(|_| {
                let mut client = stage.connect();
                client.send(request("GET /tool/run")).unwrap();
                client
            })
            .collect();
        std::thread::sleep(Duration::from_millis(200));
        drop(leaving);
        std::thread::sleep(Duration::from_millis(1500));
        let mut waiting: Vec<_> = (0..256)
            .map(|_| {
                let mut client = stage.connect();
                client.send(request("GET /tool/run")).unwrap();
                client
            })
            .collect();
        std::thread::sleep(Duration::from_millis(300));
        let response = stage.ask("GET /tool/run");
        assert_eq!((response.status, response.header("Retry-After")), (503, Some("10")));
        let response = stage.post("POST /tool/run", b"body");
        assert_eq!(response.status, 503);
        tree.write("go", "");
        assert_eq!(text(&first.response().unwrap()), "a\n");
        for client in waiting.iter_mut().take(20) {
            assert_eq!(text(&client.response().unwrap()), "a\n");
        }
        drop(waiting);
        // If those that left stayed in the line, 100 more would be refused. On a busy machine some are still there when
        // the many come.
        assert!((2..100).contains(&stage.counts().refused), "{:?}", stage.counts());
    });
}

#[test]
fn a_request_does_not_wait_in_line_for_ever() {
    on_both_drivers(|driver| {
        let tree = tree();
        script(&tree, "run", "trap '' TERM; sleep 1000");
        let stage = serve_with(driver, &tree, "processes = 1, timeout = 0.5");
        let mut clients = [stage.connect(), stage.connect()];
        for client in &mut clients {
            client.send(request("GET /tool/run")).unwrap();
            std::thread::sleep(Duration::from_millis(100));
        }
        let statuses = clients.map(|mut client| client.response().unwrap().status);
        assert_eq!(statuses, [504, 503]);
    });
}
