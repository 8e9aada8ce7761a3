//! What two workers show together, compared with what was sent.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::process::{Command, Stdio};

use testkit::metrics::Metrics;
use testkit::{Content, Server, Tree, skip};

use crate::common::{SAMUM, SOON, ask, connect, on_both_drivers, wait_until};

const LARGE: usize = 300_000;

struct Stage {
    server: Server,
    /// The access log of both sites is in it.
    logs: Tree,
    _files: Tree,
}

/// Two sites on two workers, with one log in JSON; the first shows the metrics.
fn serve(driver: &str) -> Stage {
    let files =
        Tree::new().file("a.txt", "hello").file("b", Content::pseudo_random(1, LARGE as u64));
    let logs = Tree::new();
    let site = |name: &str, metrics: &str| {
        format!(
            "[[site]]\nlisten = [\"127.0.0.1:0\"]\nhosts = [\"{name}.example\"]\n\
             log = {{ file = {log:?}, format = \"json\" }}\n\
             [[site.route]]\nfiles = {files:?}\n{metrics}\n",
            log = logs.path().join("access.log"),
            files = files.path(),
        )
    };
    let config = format!(
        "[server]\nthreads = 2\ndriver = \"{driver}\"\n{}{}",
        site("a", "[[site.route]]\npath = \"/metrics\"\nmetrics = true"),
        site("b", "")
    );
    let file = logs.path().join("samum.toml");
    fs::write(&file, config).unwrap();
    let server = Server::spawn(Command::new(SAMUM).arg("serve").arg("--config").arg(file));
    Stage { server: server.expect("the server starts"), logs, _files: files }
}

fn scrape(server: &Server) -> String {
    let page = ask(server, "GET /metrics\nHost: a.example");
    assert_eq!(page.status, 200);
    String::from_utf8(page.body).unwrap()
}

#[test]
fn the_sums_of_two_workers_are_what_was_sent() {
    const CLIENTS: usize = 8;
    const ROUNDS: usize = 40;
    const REQUESTS: [(&str, &str, &str, u16); 5] = [
        ("a", "GET", "/a.txt", 200),
        ("b", "GET", "/b", 200),
        ("b", "HEAD", "/b", 200),
        ("b", "GET", "/missing", 404),
        ("a", "BREW", "/a.txt", 501),
    ];
    on_both_drivers(|driver| {
        let Stage { mut server, logs, _files } = serve(driver);
        let bodies = std::thread::scope(|scope| {
            let client = || {
                let mut bodies = BTreeMap::new();
                for round in 0..ROUNDS {
                    // A connection each, so that both workers have some.
                    let mut connection = connect(&server);
                    for at in 0..REQUESTS.len() {
                        let (site, method, path, status) = REQUESTS[(at + round) % REQUESTS.len()];
                        let head =
                            format!("{method} {path} HTTP/1.1\r\nHost: {site}.example\r\n\r\n");
                        connection.send(head).unwrap();
                        let response = match method {
                            "HEAD" => connection.head(),
                            _ => connection.response(),
                        };
                        let response = response.unwrap();
                        assert_eq!(response.status, status);
                        *bodies.entry((site, status)).or_insert(0) += response.body.len();
                    }
                }
                bodies
            };
            let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(client)).collect();
            let mut bodies = BTreeMap::new();
            for client in clients {
                for (labels, bytes) in client.join().unwrap() {
                    *bodies.entry(labels).or_insert(0) += bytes;
                }
            }
            bodies
        });
        let count = "http_server_request_duration_seconds_count";
        let each = (CLIENTS * ROUNDS) as f64;
        let with_scrapes = [
            ("server_address", "a.example"),
            ("http_request_method", "GET"),
            ("http_response_status_code", "200"),
        ];
        let mut last = Metrics::default();
        // A worker may be about to count what a client has got. The looks are counted, too.
        let mut looks = 0_u32;
        let is_complete = wait_until(SOON, || {
            looks += 1;
            last = Metrics::parse(&scrape(&server)).unwrap();
            let of_a = last.sum(count, &with_scrapes);
            of_a >= each && last.sum(count, &[]) - of_a >= 4.0 * each
        });
        assert!(is_complete, "{last:?}");
        let sum = |name: &str, site: &str, method: &str, status: &str| {
            let site = format!("{site}.example");
            let labels = [
                ("server_address", &site[..]),
                ("http_request_method", method),
                ("http_response_status_code", status),
            ];
            last.sum(name, &labels)
        };
        for (site, method, status) in
            [("b", "GET", "200"), ("b", "HEAD", "200"), ("b", "GET", "404"), ("a", "_OTHER", "501")]
        {
            assert_eq!(sum(count, site, method, status), each, "{site} {method} {status}");
        }
        let scrapes = sum(count, "a", "GET", "200") - each;
        assert!((0.0..=f64::from(looks)).contains(&scrapes), "{scrapes} of {looks}");
        let size = "http_server_response_body_size_bytes_sum";
        for ((site, status), bytes) in bodies {
            if (site, status) != ("a", 200) {
                let method = if status == 501 { "_OTHER" } else { "GET" };
                assert_eq!(sum(size, site, method, &status.to_string()), bytes as f64, "{site}");
            }
        }
        assert_eq!(sum(size, "b", "HEAD", "200"), 0.0);
        let waits = last.sum("samum_request_disk_wait_seconds_count", &[]);
        assert_eq!(waits, last.sum(count, &[]));
        assert!(last.sum("samum_connections_accepted_total", &[]) >= (CLIENTS * ROUNDS) as f64);
        assert!(last.sum("samum_worker_turn_seconds_count", &[]) > 0.0);
        assert_eq!(last.sum("samum_log_lines_dropped_total", &[]), 0.0);

        assert_eq!(server.terminate().unwrap().code(), Some(0));
        let log = fs::read_to_string(logs.path().join("access.log")).unwrap();
        let lines = |text: &str| log.lines().filter(|line| line.contains(text)).count();
        let line = "\"site\":\"b.example\",\"peer\":\"127.0.0.1\",\"client\":\"127.0.0.1\",\
                    \"method\":\"GET\",\"path\":\"/missing\",";
        assert_eq!(lines(line), CLIENTS * ROUNDS);
        assert_eq!(lines("\"kind\":\"request\""), lines(""));
        assert_eq!(lines("\"path\":\"/metrics\""), usize::try_from(looks).unwrap());
    });
}

#[test]
fn prometheus_finds_no_fault() {
    let promtool = |arguments: &[&str]| {
        let mut command = Command::new("promtool");
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        command.stderr(Stdio::piped()).spawn()
    };
    if let Err(error) = promtool(&["--version"]).and_then(|child| child.wait_with_output()) {
        skip!("no promtool (of the package prometheus): {error}");
    }
    let Stage { server, .. } = serve("uring");
    ask(&server, "GET /a.txt\nHost: b.example");
    let mut child = promtool(&["check", "metrics"]).unwrap();
    child.stdin.take().unwrap().write_all(scrape(&server).as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(output.status.success() && said.is_empty(), "{said}");
}
