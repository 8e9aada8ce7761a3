//! Formats of one's own, logs of routes, parts of logs, the ids of requests, and daemons that take the lines.

use core::net::SocketAddr;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Command;
use std::sync::mpsc;
use std::thread;

use testkit::http2::{Http2, kind};
use testkit::{Client, Server, Tree};

use crate::common::{SAMUM, SOON, ask, on_both_drivers, tcp_address, wait_until};

const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/// Serves the files of a tree, whose sites follow; `DIR` is the directory of the tree.
fn serve(tree: &Tree, driver: &str, server: &str, sites: &str) -> Server {
    let dir = tree.path().display().to_string();
    let text = format!(
        "[server]\nthreads = 1\ndriver = \"{driver}\"\ncontrol = \"{dir}/control.sock\"\n{server}\n{}",
        sites.replace("DIR", &dir)
    );
    tree.write("samum.toml", &text[..]);
    let mut command = Command::new(SAMUM);
    Server::spawn(command.arg("serve").arg("--config").arg(tree.path().join("samum.toml"))).unwrap()
}

fn files() -> Tree {
    Tree::new().file("www/a", "hello").directory("logs")
}

/// The lines of a log, once there are as many.
#[track_caller]
fn lines(path: &Path, count: usize) -> Vec<String> {
    let mut found = Vec::new();
    let has_all = wait_until(SOON, || {
        let text = fs::read_to_string(path).unwrap();
        found = text.lines().map(str::to_owned).collect();
        found.len() >= count
    });
    assert!(has_all, "{found:?}");
    assert_eq!(found.len(), count, "{found:?}");
    found
}

/// Sends a request as it is; returns the status.
#[track_caller]
fn send(server: &Server, bytes: &[u8]) -> u16 {
    let mut client = Client::connect(&server.address()).unwrap();
    client.send(bytes).unwrap();
    client.response().unwrap().status
}

/// A request with all that could forge a line: line ends, quotes, ESC and tags. The parser refuses line ends themselves.
const EVIL: &[u8] =
    b"GET /%0d%0a\"<script>?\"q HTTP/1.1\r\nHost: test\r\nX-Request-Id: \"<script>\x1b[2J\r\n\
                      User-Agent: \"\\<script>\xff\x80\r\nReferer: %0a\"\r\n\r\n";

#[test]
fn a_line_has_the_format_that_the_configuration_says() {
    on_both_drivers(|driver| {
        let tree = files();
        let format = "$client|$method|$host|$path|$query|$status|$bytes|$request_bytes|$request-id|$traceparent|\
                      $user-agent|$referer|$version|$scheme|$site|$upstream|$reason|$cut|$$|${status}x";
        let sites = format!(
            "[[site]]\nlisten = [\"127.0.0.1:0\"]\nhosts = [\"test\"]\n\
             log = {{ file = \"DIR/logs/own\", format = \"{format}\" }}\n[[site.route]]\nfiles = \"DIR/www\"\n"
        );
        let server = serve(&tree, driver, "trusted-proxies = [\"127.0.0.1\"]", &sites);
        let head = format!(
            "GET /a?b=c HTTP/1.1\r\nHost: test:81\r\nX-Request-Id: my.id_7-x\r\ntraceparent: {TRACE}\r\n\r\n"
        );
        assert_eq!(send(&server, head.as_bytes()), 200);
        assert_eq!(
            send(&server, b"GET /none HTTP/1.1\r\nHost: test\r\nX-Request-Id: a b\r\n\r\n"),
            404
        );
        let [first, second] = lines(&tree.path().join("logs/own"), 2).try_into().unwrap();
        let len = head.len();
        assert_eq!(
            first,
            format!(
                "127.0.0.1|GET|test:81|/a|b=c|200|5|{len}|my.id_7-x|{TRACE}|-|-|HTTP/1.1|http|test|-|-|-|$|200x"
            )
        );
        let id = second.split('|').nth(8).unwrap();
        assert!(id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit()), "{second}");
        assert!(second.contains("|no such file|"), "{second}");
    });
}

/// A server that answers each request when the last chunk of its body has come. The chunk is a line of its own: a head may
/// end with a 0, too, as the last digit of a port or of an id.
fn upstream() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, mut request, mut byte) = (stream.unwrap(), Vec::new(), [0]);
            while !request.ends_with(b"\r\n0\r\n\r\n") && stream.read(&mut byte).unwrap_or(0) == 1 {
                request.push(byte[0]);
            }
            // A request whose client has left gets no answer.
            if request.ends_with(b"\r\n0\r\n\r\n") {
                let _ = stream.write_all(b"HTTP/1.1 204 x\r\nConnection: close\r\n\r\n");
            }
        }
    });
    address
}

#[test]
fn the_bytes_of_a_body_in_chunks_count_when_they_have_come() {
    on_both_drivers(|driver| {
        let tree = files();
        let log = "log = { file = \"DIR/logs/own\", format = \"$path $status $request-bytes\" }";
        let sites = format!(
            "[[site]]\nlisten = [\"127.0.0.1:0\"]\n{log}\n[[site.route]]\nfiles = \"DIR/www\"\n\
             [[site.route]]\npath = \"/metrics\"\nmetrics = true\nlog = \"none\"\n\
             [[site.route]]\npath = \"/api/\"\nproxy = \"http://{}\"\n",
            upstream()
        );
        let server = serve(&tree, driver, "", &sites);
        let head = |path: &str| {
            format!("POST {path} HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n")
        };
        // The server itself drops the body: nobody decodes it, so nothing counts.
        let dropped = format!("{}3;x=y\r\nabc\r\n2\r\nde\r\n0\r\nA: b\r\n\r\n", head("/a"));
        assert_eq!(send(&server, dropped.as_bytes()), 405);
        let passed = format!("{}3\r\nabc\r\n4\r\ndefg\r\n0\r\n\r\n", head("/api/all"));
        assert_eq!(send(&server, passed.as_bytes()), 204);
        // The client leaves in the midst of the third chunk.
        let mut client = Client::connect(&server.address()).unwrap();
        client.send(format!("{}3\r\nabc\r\n4\r\ndefg\r\n9\r\nhi", head("/api/left"))).unwrap();
        // The bytes have come when another request has its answer from the same worker.
        assert_eq!(ask(&server, "GET /a").status, 200);
        drop(client);
        let announced =
            "POST /api/short HTTP/1.1\r\nHost: test\r\nContent-Length: 5\r\n\r\n0\r\n\r\n";
        assert_eq!(send(&server, announced.as_bytes()), 204);
        let mut lines = lines(&tree.path().join("logs/own"), 5);
        lines.sort();
        let of = |path: &str, status: u16, body: usize| {
            format!("{path} {status} {}", head(path).len() + body)
        };
        let get = format!("/a 200 {}", testkit::request("GET /a").len());
        let short = format!("/api/short 204 {}", announced.len());
        let mut expected =
            [get, of("/a", 405, 0), of("/api/all", 204, 7), of("/api/left", 499, 9), short];
        expected.sort();
        assert_eq!(lines, expected);
        let metrics = String::from_utf8(ask(&server, "GET /metrics").body).unwrap();
        let sum = metrics
            .lines()
            .filter_map(|line| line.strip_prefix("http_server_request_body_size_bytes_sum{"))
            .map(|line| line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap())
            .sum::<f64>();
        assert_eq!(sum, f64::from(7 + 9 + 5), "{metrics}");
    });
}

#[test]
fn what_clients_send_ends_no_line_and_no_quotes_in_any_format() {
    on_both_drivers(|driver| {
        let tree = files();
        let own = "\\\"$request\\\" \\\"$path\\\" \\\"$query\\\" \\\"$host\\\" \\\"$user-agent\\\" \\\"$referer\\\" \
                   $request-id";
        let daemon = UnixDatagram::bind(tree.path().join("syslog")).unwrap();
        let journal = UnixDatagram::bind(tree.path().join("journal")).unwrap();
        daemon.set_read_timeout(Some(SOON)).unwrap();
        journal.set_read_timeout(Some(SOON)).unwrap();
        let logs = [
            ("a", "{ file = \"DIR/logs/a\", format = \"common\" }".to_owned()),
            ("b", "{ file = \"DIR/logs/b\" }".to_owned()),
            ("c", "{ file = \"DIR/logs/c\", format = \"json\" }".to_owned()),
            ("d", format!("{{ file = \"DIR/logs/d\", format = \"{own}\" }}")),
            ("e", format!("{{ syslog = \"unix:DIR/syslog\", format = \"{own}\" }}")),
            ("f", format!("{{ journald = \"DIR/journal\", format = \"{own}\" }}")),
        ];
        let site = |(name, log): &(&str, String)| {
            format!(
                "[[site]]\nlisten = [\"127.0.0.1:0\"]\nhosts = [\"{name}\"]\nlog = {log}\n[[site.route]]\n\
                 files = \"DIR/www\"\n"
            )
        };
        let sites: String = logs.iter().map(site).collect();
        let server = serve(&tree, driver, "trusted-proxies = [\"127.0.0.1\"]", &sites);
        let evil = |host: &str| {
            let at = EVIL.windows(4).position(|part| part == b"test").unwrap();
            [&EVIL[..at], host.as_bytes(), &EVIL[at + 4..]].concat()
        };
        for (name, _) in &logs {
            let status = send(&server, &evil(name));
            assert_eq!(status, if driver.is_empty() { 0 } else { status }, "{name}");
            // ESC is no byte of a field.
            assert_eq!(status, 400, "{name}");
            let request = evil(name);
            let request: Vec<u8> = request.into_iter().filter(|byte| *byte != 0x1b).collect();
            assert_eq!(send(&server, &request), 404, "{name}");
        }
        let is_safe = |line: &str| line.chars().all(|char| !char.is_control());
        for name in ["a", "b", "c", "d"] {
            let path = tree.path().join("logs").join(name);
            let line = wait_for_line(&path, "script");
            assert!(is_safe(&line) && !line.contains('\u{1b}'), "{line}");
            match name {
                "c" => assert!(line.contains(r#"\"<script>"#) && line.ends_with("\"}"), "{line}"),
                _ => assert!(line.contains("/%0d%0a\\x22<script>"), "{line}"),
            }
        }
        let line = wait_for_line(&tree.path().join("logs/d"), "script");
        assert_eq!(line.matches('"').count(), 12, "{line}");
        let id = line.rsplit(' ').next().unwrap();
        assert!(id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit()), "{line}");
        let mut room = [0; 8192];
        let len = daemon.recv(&mut room).unwrap();
        let message = String::from_utf8(room[..len].to_vec()).unwrap();
        assert!(message.starts_with("<30>") && message.contains(" samum["), "{message}");
        assert!(is_safe(&message) && message.contains("\\x22<script>"), "{message}");
        let len = journal.recv(&mut room).unwrap();
        let entry = String::from_utf8(room[..len].to_vec()).unwrap();
        let names: Vec<_> = entry.lines().map(|line| line.split('=').next().unwrap()).collect();
        assert_eq!(
            names,
            [
                "MESSAGE",
                "PRIORITY",
                "SYSLOG_IDENTIFIER",
                "SAMUM_SITE",
                "SAMUM_CLIENT",
                "SAMUM_METHOD",
                "SAMUM_HOST",
                "SAMUM_PATH",
                "SAMUM_STATUS",
                "SAMUM_REQUEST_ID",
                "SAMUM_REASON"
            ],
            "{entry}"
        );
        assert!(entry.lines().all(is_safe), "{entry}");
    });
}

/// The line of a log that has a text.
#[track_caller]
fn wait_for_line(path: &Path, text: &str) -> String {
    let mut found = None;
    let is_there = wait_until(SOON, || {
        let log = fs::read_to_string(path).unwrap();
        found = log.lines().find(|line| line.contains(text)).map(str::to_owned);
        found.is_some()
    });
    assert!(is_there, "no {text} in {}: {:?}", path.display(), fs::read_to_string(path));
    found.unwrap()
}

#[test]
fn a_log_has_some_statuses_and_a_part_of_them_and_a_route_has_its_own() {
    on_both_drivers(|driver| {
        let tree = files();
        let sites = "[[site]]\nlisten = [\"127.0.0.1:0\"]\nlog = { file = \"DIR/logs/site\", status = [\"4xx\"] }\n\
                     [[site.route]]\nfiles = \"DIR/www\"\n\
                     [[site.route]]\npath = \"/own/\"\nfiles = \"DIR/www\"\n\
                     log = { file = \"DIR/logs/route\", format = \"$path $status\", sample = 0.1 }\n\
                     [[site.route]]\npath = \"/silent/\"\nfiles = \"DIR/www\"\nlog = \"none\"\n";
        let server = serve(&tree, driver, "", sites);
        for _ in 0..3 {
            assert_eq!(ask(&server, "GET /a").status, 200);
            assert_eq!(ask(&server, "GET /silent/none").status, 404);
            assert_eq!(ask(&server, "GET /none").status, 404);
        }
        for _ in 0..50 {
            assert_eq!(ask(&server, "GET /own/a").status, 200);
        }
        let site = lines(&tree.path().join("logs/site"), 3);
        assert!(site.iter().all(|line| line.contains("\"GET /none HTTP/1.1\" 404 ")), "{site:?}");
        assert_eq!(lines(&tree.path().join("logs/route"), 5), vec!["/own/a 200"; 5]);
    });
}

/// An upstream that never answers. It says which ids the requests have.
fn silent_upstream() -> (SocketAddr, mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (ids, received) = mpsc::channel();
    thread::spawn(move || {
        let mut links = Vec::new();
        for stream in listener.incoming() {
            let (mut stream, mut head) = (stream.unwrap(), Vec::new());
            let mut byte = [0];
            while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap_or(0) == 1 {
                head.push(byte[0]);
            }
            let head = String::from_utf8(head).unwrap();
            let id = head.lines().find_map(|line| line.strip_prefix("X-Request-Id: "));
            let _ = ids.send(id.expect("each request has an id").to_owned());
            links.push(stream);
        }
    });
    (address, received)
}

#[test]
fn a_request_whose_client_has_left_is_in_the_log_of_its_route_with_its_id() {
    on_both_drivers(|driver| {
        let tree = files();
        let (upstream, ids) = silent_upstream();
        let next_id = || ids.recv_timeout(SOON).expect("the upstream gets the request");
        let log =
            "{ file = \"DIR/logs/NAME\", format = \"$path $status $request-id $connection\" }";
        let sites = format!(
            "[[site]]\nlisten = [\"127.0.0.1:0\"]\nlog = {}\n\
             [[site.route]]\nfiles = \"DIR/www\"\n\
             [[site.route]]\npath = \"/own/\"\nproxy = \"http://{upstream}\"\nlog = {}\n\
             [[site.route]]\npath = \"/quiet/\"\nproxy = \"http://{upstream}\"\nlog = \"none\"\n",
            log.replace("NAME", "site"),
            log.replace("NAME", "own"),
        );
        let server = serve(&tree, driver, "trusted-proxies = [\"127.0.0.1\"]", &sites);
        let mut expected = Vec::new();
        for id in [None, Some("of.a-proxy")] {
            let field = id.map_or_else(String::new, |id| format!("X-Request-Id: {id}\r\n"));
            let mut client = Client::connect(&server.address()).unwrap();
            client.send(format!("GET /own/./a HTTP/1.1\r\nHost: x\r\n{field}\r\n")).unwrap();
            let told = next_id();
            assert!(id.is_none_or(|id| id == told), "{told}");
            expected.push(format!("/own/./a 499 {told} "));
        }
        // A stream that ends alone, and one that ends with its connection.
        let mut client = Http2::connect(tcp_address(&server)).unwrap();
        let stream = client.get("/own/reset").unwrap();
        expected.push(format!("/own/reset 499 {} ", next_id()));
        client.frame(kind::RST_STREAM, 0, stream, &8_u32.to_be_bytes()).unwrap();
        client.get("/own/closed").unwrap();
        expected.push(format!("/own/closed 499 {} ", next_id()));
        drop(client);
        let mut client = Client::connect(&server.address()).unwrap();
        client.send("GET /quiet/a HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        next_id();
        drop(client);

        let own = lines(&tree.path().join("logs/own"), expected.len());
        for begin in &expected {
            let line = own.iter().find_map(|line| line.strip_prefix(&**begin));
            let number = line.unwrap_or_else(|| panic!("{begin}: {own:?}"));
            assert!(
                number.parse::<u64>().is_ok(),
                "{begin}: the number of its connection: {number}"
            );
        }
        assert_eq!(ask(&server, "GET /a").status, 200);
        lines(&tree.path().join("logs/site"), 1);
    });
}

#[test]
fn an_id_is_handed_on_and_shown_on_the_page_of_an_error() {
    on_both_drivers(|driver| {
        let tree = files();
        let sites = "[[site]]\nlisten = [{ unix = \"DIR/inner\" }]\nlog = { file = \"DIR/logs/inner\", \
                     format = \"$request-id $host $path\" }\n[[site.route]]\nfiles = \"DIR/www\"\n\
                     [[site]]\nlisten = [\"127.0.0.1:0\"]\nlog = { file = \"DIR/logs/outer\", format = \"json\" }\n\
                     [[site.route]]\nproxy = \"unix:DIR/inner\"\n\
                     [[site.route]]\npath = \"/own/\"\nfiles = \"DIR/www\"\n";
        let server = serve(&tree, driver, "trusted-proxies = [\"unix\"]", sites);
        let is_tcp = |one: &testkit::Address| matches!(one, testkit::Address::Tcp(_));
        assert!(wait_until(SOON, || server.addresses().iter().any(is_tcp)));
        let address = server.addresses().into_iter().find(is_tcp).expect("it was there");
        let mut client = Client::connect(&address).unwrap();
        // A client that is no proxy chooses no id.
        let head = format!(
            "GET /a HTTP/1.1\r\nHost: x\r\nX-Request-Id: chosen\r\ntraceparent: {TRACE}\r\n\r\n"
        );
        client.send(head.as_bytes()).unwrap();
        assert_eq!(client.response().unwrap().status, 200);
        let inner = wait_for_line(&tree.path().join("logs/inner"), " x /a");
        let id = inner.split(' ').next().unwrap();
        assert!(id.len() == 32 && id != "chosen", "{inner}");
        let outer = wait_for_line(&tree.path().join("logs/outer"), "\"path\":\"/a\"");
        let member = format!("\"request_id\":\"{id}\",\"connection\":");
        assert!(outer.contains(&member), "{outer}");
        for name in [
            "upstream\":\"unix:",
            "upstream_connect_seconds\":0.",
            "upstream_head_seconds\":",
            "upstream_body_seconds\":",
        ] {
            assert!(outer.contains(name), "{name}: {outer}");
        }
        assert!(outer.contains(&format!("\"traceparent\":\"{TRACE}\"")), "{outer}");
        client.send(b"GET /own/none HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        let response = client.response().unwrap();
        let page = String::from_utf8(response.body).unwrap();
        let (_, rest) = page.split_once("<code>").expect("an id");
        let shown = rest.split_once("</code>").unwrap().0;
        let line = wait_for_line(&tree.path().join("logs/outer"), "/own/none");
        assert!(
            line.contains(&format!("\"request_id\":\"{shown}\"")) && shown != id,
            "{line} {page}"
        );
    });
}

#[test]
fn a_daemon_that_takes_nothing_is_not_waited_for() {
    on_both_drivers(|driver| {
        let tree = files();
        // Nobody reads from it.
        let daemon = UnixDatagram::bind(tree.path().join("syslog")).unwrap();
        let sites = "[[site]]\nlisten = [\"127.0.0.1:0\"]\nlog = { syslog = \"unix:DIR/syslog\" }\n\
                     [[site.route]]\nfiles = \"DIR/www\"\n";
        let server = serve(&tree, driver, "", sites);
        let mut client = crate::common::connect(&server);
        let agent = "x".repeat(4000);
        for _ in 0..400 {
            client
                .send(format!("GET /a HTTP/1.1\r\nHost: x\r\nUser-Agent: {agent}\r\n\r\n"))
                .unwrap();
            assert_eq!(client.response().unwrap().status, 200);
        }
        let line = "it takes no more messages; dropping lines";
        assert!(server.wait_for_stderr(line, SOON).is_some(), "{:?}", server.stderr());
        // Once it reads, it gets what has waited.
        daemon.set_read_timeout(Some(SOON)).unwrap();
        let mut room = vec![0; 8192];
        for _ in 0..100 {
            let len = daemon.recv(&mut room).unwrap();
            assert!(room[..len].starts_with(b"<30>"));
        }
    });
}

#[test]
fn a_log_that_cannot_be_is_an_error_at_the_start() {
    let tree = files();
    for (log, expected) in [
        ("{ file = \"DIR/logs/a\", format = \"$statu\" }", "did you mean `$status`?"),
        ("{ file = \"DIR/logs/a\", format = \"$remote_addr\" }", "use `$client`"),
        ("{ file = \"DIR/logs/a\", format = \"$client\\n\" }", "a format is one line"),
        ("{ file = \"DIR/logs/a\", format = \"fancy\" }", "or a text with variables"),
        ("{ file = \"DIR/logs/a\", sample = 0 }", "expected a number from 0.000001 to 1"),
        ("{ file = \"DIR/logs/a\", status = \"6xx\" }", "expected a status"),
        ("{ file = \"DIR/logs/a\", syslog = \"unix:/dev/log\" }", "expected one of `file`"),
        ("{ format = \"json\" }", "expected one of `file`"),
        ("{ syslog = \"/dev/log\" }", "expected `unix:` and a path"),
    ] {
        let dir = tree.path().display().to_string();
        let site = format!(
            "[[site]]\nlisten = [\"127.0.0.1:0\"]\nlog = {log}\n[[site.route]]\nfiles = \"DIR/www\"\n"
        );
        tree.write("samum.toml", &site.replace("DIR", &dir)[..]);
        let mut command = Command::new(SAMUM);
        command.arg("check").arg(tree.path().join("samum.toml"));
        let (code, _, stderr) = super::outcome(&mut command);
        assert!(code == Some(1) && stderr.contains(expected), "{log}: {stderr}");
    }
}
