//! The access log: its lines, and logs that cannot be written.

use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::process::Command;
use std::time::Instant;

use rustix::process::{Pid, kill_process};
use testkit::http2::{Http2, pseudo};
use testkit::{Address, Client, Content, Server, Signal, Tree, skip};

use super::outcome;
use crate::common::{
    SAMUM, SOON, ask, ask_on, command, connect, make_fifo, on_both_drivers,
    on_both_drivers_at_once, request, serve, serve_config, tcp_address, text, wait_until,
};

/// Splits a line in common or combined format at blanks, brackets and quotes.
fn parts(line: &str) -> Vec<String> {
    let mut parts = Vec::new();
    let mut rest = line;
    while !rest.is_empty() {
        let (end, skip) = match rest.as_bytes()[0] {
            b'"' => (rest[1..].find('"').expect(line) + 2, 1),
            b'[' => (rest.find(']').expect(line) + 1, 1),
            _ => (rest.find(' ').unwrap_or(rest.len()), 0),
        };
        parts.push(rest[skip..end - skip].to_owned());
        rest = &rest[end..];
        rest = rest.strip_prefix(' ').unwrap_or(rest);
    }
    parts
}

fn tree() -> Tree {
    Tree::new()
        .file("a.txt", "hello")
        .file("big.bin", Content::pseudo_random(1, 300_000))
        .directory("d")
}

/// The log lines of a few requests.
#[track_caller]
fn lines(driver: &str, format: &str) -> Vec<String> {
    let tree = tree();
    let logs = Tree::new();
    let log = logs.path().join("access.log");
    let options = ["--listing", "--log", text(&log), "--log-format", format];
    let mut server = serve(driver, tree.path(), &options);
    let mut client = connect(&server);
    ask_on(&mut client, "GET /a.txt?q=1\nReferer: http://r/\"x\\y\nUser-Agent: tester/1.0");
    ask_on(&mut client, "HEAD /big.bin");
    ask_on(&mut client, "GET /big.bin\nRange: bytes=0-99");
    ask_on(&mut client, "GET /missing");
    let listing = ask_on(&mut client, "GET /d/").body.len();
    ask_on(&mut client, "GET /big.bin");
    crate::common::ask_raw(&server, "NONSENSE\r\n\r\n");
    assert_eq!(server.terminate().unwrap().code(), Some(0));
    let lines: Vec<_> = fs::read_to_string(&log).unwrap().lines().map(str::to_owned).collect();
    assert_eq!(lines.len(), 7, "{lines:?}");
    assert!(listing > 0);
    lines
}

#[test]
fn lines_are_in_common_log_format() {
    on_both_drivers(|driver| {
        let parts: Vec<_> = lines(driver, "common").iter().map(|line| parts(line)).collect();
        for parts in &parts {
            assert_eq!(parts.len(), 7, "{parts:?}");
            assert_eq!((&parts[0][..], &parts[1][..], &parts[2][..]), ("127.0.0.1", "-", "-"));
            assert!(parts[3].len() == 26 && parts[3].ends_with(" +0000"), "{parts:?}");
        }
        let short: Vec<_> = parts.iter().map(|parts| (&parts[4][..], &parts[5][..])).collect();
        assert_eq!(
            short,
            [
                ("GET /a.txt?q=1 HTTP/1.1", "200"),
                ("HEAD /big.bin HTTP/1.1", "200"),
                ("GET /big.bin HTTP/1.1", "206"),
                ("GET /missing HTTP/1.1", "404"),
                ("GET /d/ HTTP/1.1", "200"),
                ("GET /big.bin HTTP/1.1", "200"),
                ("-", "400"),
            ]
        );
        let bytes: Vec<u64> = parts.iter().map(|parts| parts[6].parse().unwrap()).collect();
        assert_eq!((bytes[0], bytes[1], bytes[2], bytes[5]), (5, 0, 100, 300_000));
    });
}

#[test]
fn a_request_that_cannot_be_understood_is_logged_for_the_site_of_its_listener() {
    on_both_drivers(|driver| {
        let tree = tree();
        let logs = Tree::new().file("samum.toml", "");
        let (root, dir) = (tree.path().display(), logs.path().display());
        let site = |name: &str| {
            format!(
                "[[site]]\nlisten = [{{ unix = \"{dir}/{name}\" }}]\nlog = \"{dir}/{name}.log\"\n\
                 [[site.route]]\nfiles = \"{root}\"\n"
            )
        };
        let config = logs.path().join("samum.toml");
        let server = format!("[server]\nthreads = 1\ndriver = \"{driver}\"\n");
        fs::write(&config, format!("{server}{}{}", site("first"), site("second"))).unwrap();
        let mut command = Command::new(SAMUM);
        let mut server = Server::spawn(command.arg("serve").arg("--config").arg(&config)).unwrap();
        let mut client = Client::connect(&Address::Unix(logs.path().join("second"))).unwrap();
        client.send("NONSENSE\r\n\r\n").unwrap();
        assert_eq!(client.response().unwrap().status, 400);
        assert_eq!(server.terminate().unwrap().code(), Some(0));
        let log = |name: &str| fs::read_to_string(logs.path().join(name)).unwrap();
        assert_eq!(log("first.log"), "");
        assert!(log("second.log").contains("\"-\" 400 "), "{}", log("second.log"));
    });
}

#[test]
fn combined_lines_have_referrer_and_user_agent() {
    on_both_drivers(|driver| {
        let lines = lines(driver, "combined");
        let first = parts(&lines[0]);
        assert_eq!(first[7..], ["http://r/\\x22x\\x5cy", "tester/1.0"]);
        assert_eq!(parts(&lines[1])[7..], ["-", "-"]);
    });
}

#[test]
fn json_lines_are_objects() {
    on_both_drivers(|driver| {
        for (number, line) in lines(driver, "json").iter().enumerate() {
            let inner = line.strip_prefix('{').and_then(|line| line.strip_suffix('}')).expect(line);
            for name in
                ["time", "peer", "request", "status", "bytes", "seconds", "referer", "user_agent"]
            {
                assert_eq!(inner.matches(&format!("\"{name}\":")).count(), 1, "{name} in {line}");
            }
            if number == 0 {
                assert!(
                    line.contains(r#""request":"GET /a.txt?q=1 HTTP/1.1","status":200,"bytes":5,"#),
                    "{line}"
                );
                assert!(
                    line.contains(r#""referer":"http://r/\"x\\y","user_agent":"tester/1.0""#),
                    "{line}"
                );
            }
        }
    });
}

#[test]
fn a_client_cannot_write_characters_that_a_terminal_acts_on() {
    let raw = "a\u{202e}b\u{9b}2Jc\u{200b}d\u{2029}e\u{e0041}f\u{7f}ä";
    let quoted =
        "\\xe2\\x80\\xaeb\\xc2\\x9b2Jc\\xe2\\x80\\x8bd\\xe2\\x80\\xa9e\\xf3\\xa0\\x81\\x81f";
    let escaped = "a\\u202eb\\u009b2Jc\\u200bd\\u2029e\\udb40\\udc41f\\u007fä";
    on_both_drivers(|driver| {
        for (format, expected) in [("combined", quoted), ("json", escaped)] {
            let tree = tree();
            let logs = Tree::new();
            let log = logs.path().join("access.log");
            let options = ["--log", text(&log), "--log-format", format];
            let mut server = serve(driver, tree.path(), &options);
            // A field must not have a DEL; a rejected request is logged without its bytes.
            let field = raw.replace('\u{7f}', "");
            ask(&server, &format!("GET /a.txt\nUser-Agent: {field}\nReferer: {field}"));
            ask(&server, &format!("GET /{}", field.replace('ä', "%c3%a4")));
            assert_eq!(server.terminate().unwrap().code(), Some(0));
            let lines = fs::read_to_string(&log).unwrap();
            let expected = expected.replace("\\u007f", "");
            assert!(lines.contains(&expected), "{expected} in {lines:?}");
            let hidden: Vec<_> =
                lines.chars().filter(|char| *char != '\n' && raw.contains(*char)).collect();
            assert!(hidden.iter().all(|char| char.is_ascii() || *char == 'ä'), "{hidden:?}");
        }
    });
}

#[test]
fn the_log_is_complete_after_sigterm() {
    on_both_drivers(|driver| {
        let tree = tree();
        let logs = Tree::new();
        let log = logs.path().join("access.log");
        let mut server = serve(driver, tree.path(), &["--threads", "2", "--log", text(&log)]);
        std::thread::scope(|scope| {
            for client in 0..8 {
                let server = &server;
                scope.spawn(move || {
                    let mut connection = connect(server);
                    let all: String =
                        (0..250).map(|n| request(&format!("GET /a.txt?{client}-{n}"))).collect();
                    connection.send(all).unwrap();
                    for _ in 0..250 {
                        assert_eq!(connection.response().unwrap().status, 200);
                    }
                });
            }
        });
        assert_eq!(server.terminate().unwrap().code(), Some(0));
        let file = BufReader::new(File::open(&log).unwrap());
        let mut found: Vec<_> = file.lines().map(|line| parts(&line.unwrap())[4].clone()).collect();
        found.sort();
        let mut expected: Vec<_> = (0..8)
            .flat_map(|client| (0..250).map(move |n| format!("GET /a.txt?{client}-{n} HTTP/1.1")))
            .collect();
        expected.sort();
        assert_eq!(found, expected);
    });
}

#[test]
fn a_renamed_log_is_reopened_without_losing_a_line() {
    on_both_drivers(|driver| {
        for signal in [Signal::HUP, Signal::USR1] {
            let tree = tree();
            let logs = Tree::new();
            let log = logs.path().join("access.log");
            let mut server = serve(driver, tree.path(), &["--threads", "2", "--log", text(&log)]);
            let done = AtomicBool::new(false);
            let asked = std::thread::scope(|scope| {
                let client = || {
                    let mut connection = connect(&server);
                    let mut asked = 0;
                    while !done.load(Ordering::Relaxed) {
                        assert_eq!(ask_on(&mut connection, "GET /a.txt").status, 200);
                        asked += 1;
                    }
                    asked
                };
                let clients: Vec<_> = (0..4).map(|_| scope.spawn(client)).collect();
                let reopened = [1, 2, 3].map(|number| {
                    fs::rename(&log, logs.path().join(format!("access.log.{number}"))).unwrap();
                    let pid = Pid::from_raw(server.pid().cast_signed()).unwrap();
                    kill_process(pid, signal).unwrap();
                    wait_until(SOON, || fs::metadata(&log).is_ok_and(|data| data.len() > 0))
                });
                // Before any assertion, or the clients would never stop.
                done.store(true, Ordering::Relaxed);
                assert_eq!(reopened, [true; 3], "{:?}", server.stderr());
                clients.into_iter().map(|client| client.join().unwrap()).sum::<usize>()
            });
            // That is said when each worker has the new file.
            let are_reopened =
                || server.stderr().iter().filter(|line| line.contains("reopened ")).count() == 3;
            assert!(wait_until(SOON, are_reopened), "{:?}", server.stderr());
            // None of the renamed files is still open.
            let fds = format!("/proc/{}/fd", server.pid());
            let is_moved = || {
                let mut open = fs::read_dir(&fds).unwrap();
                open.any(|entry| {
                    // A descriptor that is closed meanwhile has no link.
                    let path = fs::read_link(entry.unwrap().path()).unwrap_or_default();
                    path.display().to_string().contains("access.log.")
                })
            };
            assert!(wait_until(SOON, || !is_moved()));
            assert_eq!(server.terminate().unwrap().code(), Some(0));
            let mut lines = Vec::new();
            for entry in fs::read_dir(logs.path()).unwrap() {
                let all = fs::read_to_string(entry.unwrap().path()).unwrap();
                lines.extend(all.lines().map(parts));
            }
            assert_eq!(lines.len(), asked);
            assert!(lines.iter().all(|parts| parts[4] == "GET /a.txt HTTP/1.1"), "no line is torn");
        }
    });
}

#[test]
fn a_log_that_cannot_be_reopened_stays_open() {
    on_both_drivers(|driver| {
        let tree = tree();
        let logs = Tree::new().directory("d");
        let log = logs.path().join("d/access.log");
        let mut server = serve(driver, tree.path(), &["--log", text(&log)]);
        fs::rename(logs.path().join("d"), logs.path().join("moved")).unwrap();
        server.signal(Signal::HUP).unwrap();
        let message = server.wait_for_stderr("logging continues to the old file", SOON);
        assert!(message.is_some_and(|line| line.contains("no such file")), "{:?}", server.stderr());
        ask(&server, "GET /a.txt");
        assert_eq!(server.terminate().unwrap().code(), Some(0));
        let lines = fs::read_to_string(logs.path().join("moved/access.log")).unwrap();
        assert_eq!(lines.lines().count(), 1);
    });
}

/// The user to whom the directory of the log belongs puts a link in the place of the log (CVE-2016-1247).
#[test]
fn a_log_of_root_is_not_led_elsewhere_by_another_user() {
    use std::os::unix::fs::{MetadataExt as _, chown, lchown, symlink};

    if fs::metadata("/proc/self").is_ok_and(|process| process.uid() != 0) {
        skip!("needs root");
    }
    on_both_drivers(|driver| {
        let tree = tree();
        let logs = Tree::new().directory("logs").file("precious", "data");
        let [directory, log, precious] =
            ["logs", "logs/access.log", "precious"].map(|name| logs.path().join(name));
        chown(&directory, Some(65534), None).unwrap();
        let args = ["--log", text(&log)];
        let mut server = serve(driver, tree.path(), &args);
        fs::rename(&log, directory.join("old")).unwrap();
        symlink(&precious, &log).unwrap();
        lchown(&log, Some(65534), None).unwrap();
        server.signal(Signal::USR1).unwrap();
        let said = server.wait_for_stderr("a symbolic link of user 65534 leads there", SOON);
        assert!(said.is_some_and(|line| line.contains("continues to the old file")));
        ask(&server, "GET /a.txt");
        drop(server);
        let (code, _, stderr) = outcome(&mut command(driver, tree.path(), &args));
        assert!(code == Some(1) && stderr.contains("link of user 65534"), "{stderr}");
        assert_eq!(fs::read(&precious).unwrap(), b"data");
        // A link of root's own leads where it says.
        lchown(&log, Some(0), None).unwrap();
        let server = serve(driver, tree.path(), &args);
        ask(&server, "GET /a.txt");
        assert!(wait_until(SOON, || fs::read(&precious).unwrap().len() > 4));
    });
}

#[test]
fn without_a_log_file_the_signals_change_nothing() {
    on_both_drivers(|driver| {
        let tree = tree();
        let mut server = serve(driver, tree.path(), &["--log", "-"]);
        for signal in [Signal::HUP, Signal::USR1] {
            server.signal(signal).unwrap();
        }
        assert!(server.wait_for_stderr("no log file to reopen", SOON).is_some());
        ask(&server, "GET /a.txt");
        assert!(server.wait_for_stdout("GET /a.txt", SOON).is_some());
        assert_eq!(server.terminate().unwrap().code(), Some(0));
    });
}

#[test]
fn an_interrupted_download_is_logged_with_the_bytes_sent() {
    on_both_drivers(|driver| {
        let tree = tree();
        tree.write("huge.bin", Content::pseudo_random(2, 30 << 20));
        let logs = Tree::new();
        let log = logs.path().join("access.log");
        let mut server = serve(driver, tree.path(), &["--log", text(&log)]);
        let mut client = connect(&server);
        client.send(request("GET /huge.bin")).unwrap();
        client.read_exactly(1 << 20).unwrap();
        drop(client);
        assert_eq!(ask(&server, "GET /a.txt").status, 200);
        assert_eq!(server.terminate().unwrap().code(), Some(0));
        let text = fs::read_to_string(&log).unwrap();
        let line = text.lines().find(|line| line.contains("huge.bin")).expect("it was begun");
        let bytes: u64 = parts(line)[6].parse().unwrap();
        assert!((1 << 19..30 << 20).contains(&bytes), "{bytes}");
    });
}

#[test]
fn lines_go_to_standard_output_on_request() {
    on_both_drivers(|driver| {
        let tree = tree();
        let server = serve(driver, tree.path(), &["--log", "-"]);
        ask(&server, "GET /a.txt");
        assert!(server.wait_for_stdout("\"GET /a.txt HTTP/1.1\" 200 5", SOON).is_some());
    });
}

#[test]
fn a_full_disk_loses_only_log_lines() {
    on_both_drivers(|driver| {
        let tree = tree();
        let mut server = serve(driver, tree.path(), &["--log", "/dev/full"]);
        let mut client = connect(&server);
        for _ in 0..50 {
            assert_eq!(ask_on(&mut client, "GET /a.txt").body, b"hello");
        }
        let message = server.wait_for_stderr("cannot log to /dev/full", SOON).expect("it is said");
        assert!(message.contains("No space left on device"), "{message}");
        for _ in 0..50 {
            assert_eq!(ask_on(&mut client, "GET /a.txt").body, b"hello");
        }
        assert_eq!(server.terminate().unwrap().code(), Some(0));
        let messages = server.stderr();
        assert_eq!(
            messages.iter().filter(|line| line.contains("cannot log to")).count(),
            1,
            "once"
        );
        assert!(
            messages.iter().any(|line| line.contains("100 lines of the access log are lost")),
            "{messages:?}"
        );
    });
}

#[test]
fn a_full_pipe_loses_only_log_lines() {
    on_both_drivers(|driver| {
        let tree = tree();
        let logs = Tree::new();
        let fifo = logs.path().join("fifo");
        make_fifo(&fifo);
        let mut server = serve(driver, tree.path(), &["--log", text(&fifo)]);
        let mut client = connect(&server);
        let head = format!("GET /a.txt?{}", "x".repeat(7000));
        let began = Instant::now();
        // 64 KiB fit into the pipe, 1 MiB into the server's memory.
        for _ in 0..300 {
            assert_eq!(ask_on(&mut client, &head).body, b"hello");
        }
        let message = server.wait_for_stderr("it takes no more lines", SOON);
        assert!(message.is_some(), "{:?}", server.stderr());
        assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
        // Now the pipe is read.
        let reader = std::thread::spawn(move || {
            let lines = BufReader::new(File::open(&fifo).unwrap()).lines();
            lines.map(|line| line.unwrap()).take_while(|line| !line.contains("/last")).count()
        });
        let message = server.wait_for_stderr(" dropped", SOON).expect("it is said");
        ask_on(&mut client, "GET /last");
        let read = reader.join().unwrap();
        let dropped: usize = message.split(' ').find_map(|word| word.parse().ok()).expect(&message);
        assert_eq!(read + dropped, 300, "{message}");
        assert_eq!(server.terminate().unwrap().code(), Some(0));
    });
}

#[test]
fn a_blocked_pipe_can_be_replaced() {
    on_both_drivers(|driver| {
        let tree = tree();
        let logs = Tree::new();
        let log = logs.path().join("log");
        make_fifo(&log);
        let mut server = serve(driver, tree.path(), &["--log", text(&log)]);
        let mut client = connect(&server);
        let head = format!("GET /a.txt?{}", "x".repeat(7000));
        for _ in 0..30 {
            ask_on(&mut client, &head);
        }
        fs::remove_file(&log).unwrap();
        server.signal(Signal::USR1).unwrap();
        assert!(server.wait_for_stderr("reopened ", SOON).is_some());
        ask_on(&mut client, "GET /last");
        let lines = || fs::read_to_string(&log).unwrap_or_default();
        assert!(wait_until(SOON, || lines().contains("/last")), "{:?}", server.stderr());
        assert!(lines().lines().all(|line| line.starts_with("127.0.0.1 ")), "no line is torn");
        let message = server.wait_for_stderr(" dropped", SOON).expect("it is said");
        let dropped: usize = message.split(' ').find_map(|word| word.parse().ok()).expect(&message);
        assert!((1..31).contains(&dropped), "{message}");
        assert_eq!(server.terminate().unwrap().code(), Some(0));
    });
}

#[test]
fn a_blocked_pipe_does_not_block_the_shutdown() {
    on_both_drivers(|driver| {
        let tree = tree();
        let logs = Tree::new();
        let fifo = logs.path().join("fifo");
        make_fifo(&fifo);
        let mut server = serve(driver, tree.path(), &["--log", text(&fifo)]);
        let mut client = connect(&server);
        let head = format!("GET /a.txt?{}", "x".repeat(7000));
        for _ in 0..30 {
            ask_on(&mut client, &head);
        }
        assert_eq!(server.terminate().unwrap().code(), Some(0));
        assert!(
            server.stderr().iter().any(|line| line.contains("lines of the access log are lost"))
        );
    });
}

/// The parts of lines in JSON: the status, the method, the path, the version and the request line.
fn known(line: &str) -> [String; 5] {
    ["status", "method", "path", "version", "request"].map(|name| {
        let (_, rest) = line.split_once(&format!("\"{name}\":")).expect(line);
        let rest = rest.strip_prefix('"').unwrap_or(rest);
        let end = rest.find(['"', ',', '}']).expect(line);
        rest[..end].to_owned()
    })
}

#[test]
fn requests_that_are_refused_while_they_are_read_have_the_parts_that_are_known() {
    on_both_drivers_at_once(|driver| {
        let (tree, logs) = (tree(), Tree::new());
        let log = logs.path().join("access.log");
        let keys = format!(
            "[server]\ndriver = '{driver}'\nthreads = 1\ntimeout-header = 1\n\
             [[site]]\nlisten = ['127.0.0.1:0']\nlog = {{ file = '{}', format = 'json' }}\n\
             [[site.route]]\nfiles = '.'\n\
             [[site.route]]\npath = '/api/'\nproxy = 'http://127.0.0.1:1'\nmax-body = 3\n",
            text(&log)
        );
        let server = serve_config(&tree, &keys);
        // Too long, and still read at once with its version.
        let long = "a".repeat(9000);
        let many = "A: b\r\n".repeat(1000);
        let method = "M".repeat(40);
        let cases = [
            ("GET /a?b HTTP/1.1\r\nHost: h\r\nExpect: tea\r\n\r\n", "417", "GET", "/a", "HTTP/1.1"),
            ("GET /a HTTP/1.1\r\nHost: h\r\nA B: c\r\n\r\n", "400", "GET", "/a", "HTTP/1.1"),
            ("GET /a HTTP/1.1\r\n\r\n", "400", "GET", "/a", "HTTP/1.1"),
            ("GET /a HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", "400", "GET", "/a", "HTTP/1.1"),
            ("GET /a b HTTP/1.1\r\n", "400", "GET", "/a", "HTTP/1.1"),
            ("GET a HTTP/1.1\r\n", "400", "GET", "a", "HTTP/1.1"),
            ("GET /a HTTP/3.0\r\n\r\n", "505", "GET", "/a", "HTTP/3.0"),
            ("GET /a FTP/1.1\r\n\r\n", "400", "GET", "/a", ""),
            (
                &format!("GET /{long} HTTP/1.1\r\n"),
                "414",
                "GET",
                &format!("/{}", &long[..8191]),
                "HTTP/1.1",
            ),
            (&format!("POST /a HTTP/1.1\r\n{many}\r\n"), "431", "POST", "/a", "HTTP/1.1"),
            (&format!("{method} / HTTP/1.1\r\n"), "501", &method[..32], "", ""),
            (
                "POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: x, chunked\r\n\r\n",
                "501",
                "POST",
                "/a",
                "HTTP/1.1",
            ),
            // It is too slow.
            ("GET /a HTTP/1.1\r\nHost", "408", "GET", "/a", "HTTP/1.1"),
            ("GET /a", "408", "GET", "/a", ""),
            // It is no request.
            ("\u{1} \u{2}\r\n", "400", "", "", ""),
            // Its head was read.
            (
                "POST /api/a HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\n",
                "413",
                "POST",
                "/api/a",
                "HTTP/1.1",
            ),
            ("BREW /a HTTP/1.1\r\nHost: h\r\n\r\n", "501", "BREW", "/a", "HTTP/1.1"),
        ];
        let mut count = 0;
        let mut next = || {
            count += 1;
            let mut lines = Vec::new();
            let has_it = wait_until(SOON, || {
                let all = fs::read_to_string(&log).unwrap();
                // A long line can be seen while it is written.
                lines = all.split_inclusive('\n').map(str::to_owned).collect();
                lines.get(count - 1).is_some_and(|line| line.ends_with('\n'))
            });
            assert!(has_it, "{count}: {lines:?}");
            known(&lines[count - 1])
        };
        for (bytes, status, method, path, version) in cases {
            let mut client = connect(&server);
            client.send(bytes).unwrap();
            let shown = bytes.get(..60).unwrap_or(bytes);
            assert_eq!(client.response().expect(shown).status.to_string(), status, "{shown:?}");
            let [found @ .., line] = next();
            assert_eq!(found, [status, method, path, version], "{shown:?}");
            let is_whole = line.starts_with(method) && line.ends_with(version);
            assert!(is_whole && !line.is_empty(), "{line}");
        }
        // A refusal that waits for the response before it.
        let mut client = connect(&server);
        client.send("GET /a.txt HTTP/1.1\r\nHost: h\r\n\r\nGET /b HTTP/9.0\r\n\r\n").unwrap();
        assert_eq!((client.response().unwrap().status, next()[2].as_str()), (200, "/a.txt"));
        assert_eq!((client.response().unwrap().status, next()[2].as_str()), (505, "/b"));
        let longer = "a".repeat(20_000);
        for (fields, status, method, path) in [
            (vec![("expect", "tea")], "417", "GET", "/a"),
            (vec![("x", &longer[..])], "431", "GET", "/a"),
        ] {
            let mut client = Http2::connect(tcp_address(&server)).unwrap();
            let head = pseudo("GET", "/a?b").into_iter().chain(fields);
            let stream = client.request(head, true).unwrap();
            assert_eq!(client.reply(stream).unwrap().status.to_string(), status);
            let [found @ .., line] = next();
            assert_eq!(found, [status, method, path, "HTTP/2.0"]);
            assert_eq!(line, "GET /a?b HTTP/2.0");
        }
        // Each has one line.
        assert_eq!(fs::read_to_string(&log).unwrap().lines().count(), count);
    });
}
