//! The page of the operator: its headers, its figures, its events, and who gets them.

use core::fmt::Write as _;
use core::net::Ipv4Addr;
use std::collections::HashMap;
use std::fs::Permissions;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::thread;

use rustix::process::Signal;
use serde_json::Value;
use testkit::{Address, Client, Response, Server, Tree, or_skip};

use crate::common::browser::Browser;
use crate::common::stage::text;
use crate::common::{
    SOON, ask, connect, connect_from, on_both_drivers, on_both_drivers_at_once, serve_config,
    wait_until,
};

const ROUTE: &str =
    "[[site.route]]\npath = \"/status\"\nstatus-page = true\nallow = [\"127.0.0.1\"]\n";

/// A configuration of two workers that serves files, and has these lines besides.
fn config(driver: &str, tree: &Tree, more: &str) -> String {
    format!(
        "[server]\nthreads = 2\ndriver = \"{driver}\"\ntimeout-drain = 5\n[[site]]\n\
         listen = [\"127.0.0.1:0\"]\n[[site.route]]\nfiles = {:?}\n{more}",
        tree.path().join("files")
    )
}

fn serve(driver: &str) -> (Server, Tree) {
    let tree = Tree::new().file("files/a.txt", "hello");
    let server = serve_config(&tree, &config(driver, &tree, ROUTE));
    (server, tree)
}

fn figures(server: &Server) -> Value {
    let response = ask(server, "GET /status?json");
    assert_eq!(response.status, 200);
    serde_json::from_str(text(&response)).expect("JSON")
}

fn field(response: &Response, name: &str) -> String {
    response.header(name).unwrap_or_else(|| panic!("no {name}")).to_owned()
}

/// A viewer, whose response has begun; `None` if there is no place. It ends with the connection.
fn try_view(server: &Server) -> Option<Client> {
    let mut client = connect(server);
    client.send("GET /status?events HTTP/1.0\r\nHost: test\r\n\r\n").unwrap();
    let head = client.head().unwrap();
    assert_eq!(field(&head, "cache-control"), "no-store");
    if head.status == 503 {
        return None;
    }
    assert_eq!(head.status, 200);
    assert_eq!(field(&head, "content-type"), "text/event-stream");
    Some(client)
}

/// The same, when there is a place: a viewer that has left may still have one.
fn view(server: &Server) -> Client {
    let mut viewer = None;
    let has_place = wait_until(SOON, || {
        viewer = try_view(server);
        viewer.is_some()
    });
    assert!(has_place, "no place");
    viewer.expect("it has a place")
}

/// The next block of lines of a viewer.
fn block(client: &mut Client) -> String {
    let mut bytes = Vec::new();
    while !bytes.ends_with(b"\n\n") {
        bytes.extend(client.read_exactly(1).unwrap());
    }
    String::from_utf8(bytes).unwrap()
}

fn event(client: &mut Client) -> Value {
    let block = block(client);
    let data = block.strip_prefix("data: ").unwrap_or_else(|| panic!("{block:?}"));
    serde_json::from_str(data).expect("JSON")
}

#[test]
fn the_page_and_the_figures_are_for_the_clients_of_allow_and_are_not_stored() {
    on_both_drivers(|driver| {
        let (server, _tree) = serve(driver);
        let page = ask(&server, "GET /status");
        assert_eq!(
            (page.status, &field(&page, "content-type")[..]),
            (200, "text/html; charset=utf-8")
        );
        let policy = field(&page, "content-security-policy");
        assert!(
            policy.starts_with("default-src 'none'; ") && !policy.contains("unsafe"),
            "{policy}"
        );
        let json = ask(&server, "GET /status?json");
        assert_eq!((json.status, &field(&json, "content-type")[..]), (200, "application/json"));
        for response in [&page, &json] {
            assert_eq!(field(response, "cache-control"), "no-store");
            assert_eq!(field(response, "x-content-type-options"), "nosniff");
        }
        for target in ["/status", "/status?json", "/status?events"] {
            let head = ask(&server, &format!("HEAD {target}"));
            assert_eq!((head.status, head.body.len()), (200, 0), "{target}");
            let post = ask(&server, &format!("POST {target}\nContent-Length: 0"));
            assert_eq!(post.status, 405, "{target}");
            let other = connect_from(&server, Ipv4Addr::new(127, 0, 0, 2));
            let mut other = Client::from(other);
            other.send(format!("GET {target} HTTP/1.1\r\nHost: test\r\n\r\n")).unwrap();
            assert_eq!(other.response().unwrap().status, 403, "{target}");
        }
        // The client of HEAD has no place among the viewers.
        assert_eq!(figures(&server)["viewers"], 0);
    });
}

#[test]
fn the_figures_are_those_of_all_workers() {
    const ROUNDS: u64 = 20;
    on_both_drivers(|driver| {
        let (server, _tree) = serve(driver);
        for _ in 0..ROUNDS {
            assert_eq!(ask(&server, "GET /a.txt").status, 200);
            assert_eq!(ask(&server, "GET /missing").status, 404);
        }
        let mut last = Value::Null;
        let of = |figures: &Value, status: &str| {
            let list = figures["responses"]["statuses"]["shown"].as_array().unwrap();
            let found = list.iter().find(|one| one["status"] == status);
            found.and_then(|one| one["count"].as_u64()).unwrap_or_default()
        };
        // Figures are shared for half a second, and a worker may be about to count.
        let is_complete = wait_until(SOON, || {
            last = figures(&server);
            of(&last, "200") >= ROUNDS && of(&last, "404") >= ROUNDS
        });
        assert!(is_complete, "{last}");
        assert_eq!(of(&last, "404"), ROUNDS);
        assert_eq!(last["process"]["workers"], 2);
        assert_eq!(last["config"]["routes"], 2);
        assert!(last["connections"]["accepted"].as_u64() >= Some(2 * ROUNDS));
        assert!(last["latency_all"]["p50_seconds"].as_f64().is_some());
        let error = &last["errors"]["shown"][0];
        assert_eq!(
            (error["path"].as_str(), error["status"].as_u64()),
            (Some("/missing"), Some(404))
        );
        assert_eq!(error["reason"], "no such file");
        assert!(wait_until(SOON, || figures(&server)["responses"]["per_second"].is_number()));
    });
}

#[test]
fn what_a_client_sends_is_escaped_and_shown_without_its_query() {
    on_both_drivers(|driver| {
        let (server, _tree) = serve(driver);
        let hostile = "GET /%0d%0a%1b%22<script>\"'`&\u{e4}\u{202e}?password=secret\n\
                       Host: <script>alert('1')</script>\n\
                       X-Request-Id: <script>\u{1b}\"\nReferer: http://secret/\nCookie: secret";
        let mut client = connect(&server);
        client.send(testkit::request(hostile)).unwrap();
        let status = client.response().unwrap().status;
        assert!([400, 404].contains(&status), "{status}");
        // The name of the host is refused above. Another one goes with the same path.
        let named = hostile.replace("Host: <script>alert('1')</script>", "Host: a-b.example");
        assert_eq!(ask(&server, &named.replace('\u{1b}', "")).status, 404);
        let mut written = String::new();
        let is_shown = wait_until(SOON, || {
            written = text(&ask(&server, "GET /status?json")).to_owned();
            written.contains("a-b.example")
        });
        assert!(is_shown, "{written}");
        for word in ["secret", "password", "<", ">", "&", "\u{1b}", "\n", "\r", "\u{202e}"] {
            assert!(!written.contains(word), "{word:?}: {written}");
        }
        let json: Value = serde_json::from_str(&written).unwrap();
        let path = json["errors"]["shown"][0]["path"].as_str().unwrap();
        assert!(path.starts_with("/%0d%0a%1b%22<script>"), "{path}");
    });
}

#[test]
fn events_arrive_and_a_reload_ends_them() {
    on_both_drivers_at_once(|driver| {
        let (mut server, tree) = serve(driver);
        let mut viewer = view(&server);
        assert_eq!(block(&mut viewer), "retry: 1000\n\n");
        let first = event(&mut viewer);
        assert_eq!(ask(&server, "GET /a.txt").status, 200);
        let later = |viewer: &mut Client, total: u64| {
            for _ in 0..10 {
                let event = event(viewer);
                if event["responses"]["total"].as_u64() > Some(total) {
                    return event;
                }
            }
            panic!("no event has the request");
        };
        let second = later(&mut viewer, first["responses"]["total"].as_u64().unwrap());
        assert!(second["time"].as_i64() >= first["time"].as_i64());
        assert!(second["interval_seconds"].as_f64() > Some(0.0), "{second}");
        assert_eq!(second["viewers"], 1);
        // A reload may have other rules. It ends all events, and the browser comes back.
        tree.write("samum.toml", &config(driver, &tree, "")[..]);
        server.signal(Signal::HUP).unwrap();
        viewer.read_to_end().unwrap();
        assert_eq!(ask(&server, "GET /status").status, 404);
    });
}

#[test]
fn an_end_of_the_server_ends_the_events_as_responses_end() {
    on_both_drivers_at_once(|driver| {
        let (mut server, _tree) = serve(driver);
        let mut viewer = connect(&server);
        viewer.send(testkit::request("GET /status?events")).unwrap();
        assert!(wait_until(SOON, || figures(&server)["viewers"] == 1));
        server.signal(Signal::TERM).unwrap();
        // In chunks, so it would be no whole response if it were cut off.
        let response = viewer.response().unwrap();
        assert!(text(&response).starts_with("retry: 1000\n\ndata: {"));
        assert!(server.wait(SOON).unwrap().success());
    });
}

#[test]
fn the_seventeenth_viewer_is_told_why_it_has_no_place() {
    on_both_drivers(|driver| {
        let (server, _tree) = serve(driver);
        let mut viewers: Vec<_> = (0..16).map(|_| view(&server)).collect();
        let refused = ask(&server, "GET /status?events");
        assert_eq!(refused.status, 503);
        assert_eq!(field(&refused, "content-type"), "text/plain; charset=utf-8");
        assert_eq!(
            (&field(&refused, "retry-after")[..], &field(&refused, "cache-control")[..]),
            ("10", "no-store")
        );
        assert!(text(&refused).starts_with("16 pages are kept up to date already"), "{refused:?}");
        // The page and its figures are for everybody.
        assert_eq!(ask(&server, "GET /status").status, 200);
        assert_eq!(ask(&server, "GET /status?json").status, 200);
        viewers.pop();
        view(&server);
    });
}

#[test]
fn ten_thousand_sites_have_a_page_that_says_how_many_it_shows() {
    const SITES: usize = 10_000;
    let tree = Tree::new().file("files/a.txt", "hello");
    let mut more = ROUTE.to_owned();
    for number in 0..SITES {
        write!(
            more,
            "[[site]]\nlisten = [\"127.0.0.1:0\"]\nhosts = [\"s{number}.example\"]\n\
             [[site.route]]\nfiles = {:?}\n",
            tree.path().join("files")
        )
        .unwrap();
    }
    let server = serve_config(&tree, &config("auto", &tree, &more));
    let mut client = connect(&server);
    for number in 0..SITES {
        client.send(format!("GET /a.txt HTTP/1.1\r\nHost: s{number}.example\r\n\r\n")).unwrap();
        if number % 64 == 63 || number + 1 == SITES {
            for _ in 0..=number % 64 {
                assert_eq!(client.response().unwrap().status, 200);
            }
        }
    }
    let mut last = Value::Null;
    let is_complete = wait_until(SOON, || {
        last = figures(&server);
        last["responses"]["total"].as_u64() >= Some(SITES as u64)
    });
    assert!(is_complete, "{last}");
    let sites = &last["sites"];
    let shown = sites["shown"].as_array().unwrap().len();
    assert!((16..=64).contains(&shown), "{shown}");
    assert_eq!(shown as u64 + sites["more"].as_u64().unwrap(), SITES as u64 + 1);
    assert!(last.to_string().len() <= 64 * 1024);
}

/// An upstream that agrees to upgrades, says nothing to other requests, and holds all connections.
fn silent_upstream() -> core::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        let mut held = Vec::new();
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let (mut head, mut byte) = (Vec::new(), [0]);
            while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap() == 1 {
                head.push(byte[0]);
            }
            if head.starts_with(b"GET /api/tunnel ") {
                let answer = "HTTP/1.1 101 x\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n";
                stream.write_all(answer.as_bytes()).unwrap();
            }
            held.push(stream);
        }
    });
    address
}

#[test]
fn connections_are_shown_by_what_they_do() {
    on_both_drivers_at_once(|driver| {
        let tree = Tree::new().file("files/film.mp4", vec![7; 32 << 20]);
        let upstream = silent_upstream();
        let proxy = format!("[[site.route]]\npath = \"/api/\"\nproxy = \"http://{upstream}\"\n");
        let tls = format!(
            "[[site]]\nlisten = [{{ address = \"127.0.0.2:0\", tls = true }}]\ntls = \"self-signed\"\n\
             [[site.route]]\nfiles = {:?}\n",
            tree.path().join("files")
        );
        let server = serve_config(&tree, &config(driver, &tree, &[ROUTE, &proxy, &tls].concat()));
        let all: [&[&str]; 6] = [
            &["", "GET /a HTTP/1.1\r\nHost: test\r\n\r\n"],
            &["GET /a.t"],
            &["GET /api/ HTTP/1.1\r\nHost: test\r\n\r\n"],
            &["GET /film.mp4 HTTP/1.1\r\nHost: test\r\n\r\n"],
            &[
                "GET /api/tunnel HTTP/1.1\r\nHost: test\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n",
            ],
            // Its body does not come.
            &["POST /api/ HTTP/1.1\r\nHost: test\r\nContent-Length: 9\r\n\r\n"],
        ];
        let clients = all.iter().flat_map(|texts| texts.iter()).map(|text| {
            let mut client = connect(&server);
            client.send(text).unwrap();
            client
        });
        let clients: Vec<_> = clients.collect();
        assert!(wait_until(SOON, || server.addresses().len() == 2), "both are announced");
        let Some(Address::Tcp(with_tls)) = server.addresses().last().cloned() else {
            panic!("it has an address")
        };
        let handshake = TcpStream::connect(with_tls).unwrap();
        let mut last = Value::Null;
        let of = |figures: &Value, state: &str| figures["connections"][state].as_u64();
        let is_shown = wait_until(SOON, || {
            last = figures(&server);
            // Connections that ask for the figures may be idle, too.
            of(&last, "idle") >= Some(2)
                && of(&last, "reading") == Some(2)
                && ["waiting", "writing", "tunnels", "handshakes"]
                    .iter()
                    .all(|state| of(&last, state) == Some(1))
        });
        assert!(is_shown, "{}", last["connections"]);
        drop((clients, handshake));
        let is_over = wait_until(SOON, || {
            last = figures(&server);
            ["reading", "waiting", "writing", "tunnels", "handshakes"]
                .iter()
                .all(|state| of(&last, state) == Some(0))
        });
        assert!(is_over, "{}", last["connections"]);
    });
}

#[test]
fn an_error_is_shown_with_the_id_that_the_request_has_in_the_log() {
    on_both_drivers(|driver| {
        let tree = Tree::new().file("files/a.txt", "hello");
        let log = tree.path().join("log");
        let more = format!("{ROUTE}[site.log]\nfile = {log:?}\nformat = \"$request-id $path\"\n");
        // The log belongs to the site, in front of its routes.
        let config = config(driver, &tree, "")
            .replace("[[site.route]]", &format!("{}[[site.route]]", &more[ROUTE.len()..]));
        let config = config.replace("[server]\n", "[server]\ntrusted-proxies = [\"127.0.0.1\"]\n");
        let server = serve_config(&tree, &(config + ROUTE));
        assert_eq!(ask(&server, "GET /made").status, 404);
        assert_eq!(ask(&server, "GET /given\nX-Request-Id: given.by-a_proxy").status, 404);
        let mut last = Value::Null;
        let mut ids = HashMap::new();
        let is_complete = wait_until(SOON, || {
            last = figures(&server);
            let written = std::fs::read_to_string(&log).unwrap_or_default();
            ids = written
                .lines()
                .filter_map(|line| line.split_once(' '))
                .map(|(id, path)| (path.to_owned(), id.to_owned()))
                .collect();
            last["errors"]["shown"].as_array().map(Vec::len) == Some(2)
                && ids.contains_key("/given")
        });
        assert!(is_complete, "{last} {ids:?}");
        for error in last["errors"]["shown"].as_array().unwrap() {
            let path = error["path"].as_str().unwrap();
            assert_eq!(error["id"].as_str(), Some(&ids[path][..]), "{path}");
        }
        assert_eq!(ids["/given"], "given.by-a_proxy");
        assert_eq!(ids["/made"].len(), 32);
    });
}

#[test]
fn programs_are_shown_with_those_that_wait_for_them() {
    on_both_drivers_at_once(|driver| {
        let tree =
            Tree::new().file("files/a.txt", "hello").file("tool/wait", "#!/bin/sh\nsleep 1000\n");
        let program = tree.path().join("tool/wait");
        std::fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
        let route = format!(
            "[[site.route]]\npath = \"/tool/\"\ncgi = {{ directory = {:?}, processes = 2 }}\n",
            tree.path().join("tool")
        );
        let server = serve_config(&tree, &config(driver, &tree, &[ROUTE, &route].concat()));
        let clients: Vec<_> = (0..5)
            .map(|_| {
                let mut client = connect(&server);
                client.send(testkit::request("GET /tool/wait")).unwrap();
                client
            })
            .collect();
        let expected = serde_json::json!({
            "route": "/tool/", "directory": tree.path().join("tool"),
            "running": 2, "running_max": 2, "waiting": 3, "waiting_max": 256,
        });
        let mut last = Value::Null;
        let is_shown = wait_until(SOON, || {
            last = figures(&server)["programs"].take();
            last["shown"] == serde_json::json!([expected])
        });
        assert!(is_shown, "{last}");
        drop(clients);
        let is_over = wait_until(SOON, || {
            last = figures(&server)["programs"].take();
            last["shown"][0]["running"] == 0 && last["shown"][0]["waiting"] == 0
        });
        assert!(is_over, "{last}");
    });
}

#[test]
fn a_refused_configuration_is_shown_with_its_errors_until_one_is_loaded() {
    on_both_drivers(|driver| {
        let (mut server, tree) = serve(driver);
        let good = config(driver, &tree, ROUTE);
        let first = figures(&server);
        assert_eq!(first["config"]["last_load_refused"], false);
        assert_eq!(first["config"]["last_refused"], Value::Null);
        assert_eq!(first["refusal"]["shown"], serde_json::json!([]));
        tree.write("samum.toml", &good.replace("timeout-drain", "timeout-drian")[..]);
        server.signal(Signal::HUP).unwrap();
        let mut last = Value::Null;
        let is_refused = wait_until(SOON, || {
            last = figures(&server);
            last["config"]["last_load_refused"] == true
        });
        assert!(is_refused, "{last}");
        assert!(last["config"]["last_refused"].as_i64() >= last["config"]["loaded"].as_i64());
        let lines = last["refusal"]["shown"].as_array().unwrap();
        let lines: Vec<_> = lines.iter().map(|line| line["line"].as_str().unwrap()).collect();
        assert!(
            lines[0].contains("timeout-drian") && lines[0].contains("samum.toml:"),
            "{lines:?}"
        );
        tree.write("samum.toml", &good[..]);
        server.signal(Signal::HUP).unwrap();
        let is_loaded = wait_until(SOON, || {
            last = figures(&server);
            last["config"]["last_load_refused"] == false
        });
        assert!(is_loaded && last["refusal"]["shown"] == serde_json::json!([]), "{last}");
        assert_eq!(last["config"]["refused"], 1);
    });
}

/// A server with something to show: an upstream that is down, certificates, errors, and a hostile client.
fn busy() -> (Server, Tree) {
    let tree = Tree::new().file("files/a.txt", "hello").file("files/film.mp4", vec![7; 3 << 20]);
    let files = tree.path().join("files");
    let config = format!(
        "[server]\nthreads = 2\n[[site]]\nlisten = [\"127.0.0.1:0\"]\nhosts = [\"www.example\"]\ndefault = true\n\
         [[site.route]]\nfiles = {files:?}\n{ROUTE}\
         [[site.route]]\npath = \"/api/\"\nproxy = [\"http://127.0.0.1:1\", \"http://127.0.0.1:2\"]\n\
         [[site.route]]\npath = \"/private/\"\nfiles = {files:?}\nallow = [\"192.0.2.0/24\"]\n\
         [[site]]\nlisten = [{{ address = \"127.0.0.2:0\", tls = true }}]\nhosts = [\"shop.example\"]\n\
         tls = \"self-signed\"\n[[site.route]]\nfiles = {files:?}\n",
    );
    let server = serve_config(&tree, &config);
    for path in ["/api/orders?token=secret", "/private/plan.pdf", "/film.mp4", "/old/page.html"] {
        ask(&server, &format!("GET {path}"));
    }
    let hostile =
        "GET /<img/src=x/onerror=document.title='hacked'><script>document.title='hacked'</script>";
    assert_eq!(ask(&server, hostile).status, 404);
    (server, tree)
}

/// Bytes that are written in base64 (RFC 4648 §4).
fn decode(text: &str) -> Vec<u8> {
    let digits = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let value = |byte: &u8| {
        let digit = digits.iter().position(|digit| digit == byte).expect("a digit");
        u32::try_from(digit).expect("a small number")
    };
    let mut bytes = Vec::new();
    for four in text.trim_end_matches('=').as_bytes().chunks(4) {
        let bits =
            four.iter().fold(0, |bits, byte| bits << 6 | value(byte)) << (6 * (4 - four.len()));
        bytes.extend_from_slice(&bits.to_be_bytes()[1..four.len()]);
    }
    bytes
}

/// With `SAMUM_WRITE=1` the pictures of the documentation are taken anew.
#[test]
fn chromium_shows_the_page_in_light_and_dark_on_a_phone_and_by_keyboard() {
    let mut browser = or_skip!(Browser::new());
    let (server, _tree) = busy();
    let origin = format!("http://{}", crate::common::tcp_address(&server));
    browser.load(&format!("{origin}/status"));
    browser.wait_for("document.getElementById('state')?.textContent === 'live'");
    browser.wait_for("document.body.innerText.includes('/private/plan.pdf')");
    browser.wait_for("document.body.innerText.includes('/api/orders')");
    // Its own style and script count, and nothing of what a client has sent.
    assert_eq!(browser.value("getComputedStyle(document.body).maxWidth"), "1280px");
    assert_eq!(browser.value("document.title"), "samum status");
    assert_eq!(browser.value("document.querySelectorAll('script').length"), 1);
    assert_eq!(browser.value("document.images.length"), 0);
    browser.wait_for("document.body.innerText.includes('<script>document.title=')");
    assert_eq!(browser.value("document.body.innerText.includes('secret')"), false);
    assert_eq!(browser.value("document.body.innerText.includes('http://127.0.0.1:1')"), true);
    assert_eq!(browser.value("document.body.innerText.includes('shop.example')"), true);
    let elsewhere = format!(
        "performance.getEntriesByType('resource').filter(one => !one.name.startsWith('{origin}/')).length"
    );
    assert_eq!(browser.value(&elsewhere), 0);
    // It lives: the figures change without a touch.
    let total = "Number(document.querySelector('#tiles div:last-child dd').textContent.replaceAll(',', ''))";
    let before = browser.value(total).as_f64().expect("a number");
    for _ in 0..50 {
        ask(&server, "GET /a.txt");
    }
    browser.wait_for(&format!("{total} >= {before} + 50"));
    let mut colours = Vec::new();
    for (name, width, height, is_dark) in
        [("light", 1200, 480, false), ("dark", 1200, 480, true), ("phone", 400, 800, true)]
    {
        browser.show(width, height, is_dark);
        browser.wait_for(&format!("innerWidth === {width}"));
        let wide = browser.value("document.documentElement.scrollWidth");
        assert_eq!(wide, width, "{name}");
        colours.push(browser.value("getComputedStyle(document.body).backgroundColor"));
        if std::env::var_os("SAMUM_WRITE").is_some() {
            let picture = decode(&browser.picture());
            // The repository keeps them for ever.
            assert!(picture.len() < 80_000, "{name}: {} bytes", picture.len());
            let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/status-page");
            std::fs::write(format!("{docs}-{name}.png"), picture).unwrap();
        }
    }
    assert!(colours[0] != colours[1] && colours[1] == colours[2], "{colours:?}");
    // By keyboard: the button is reached first, and gives the place of the viewer back.
    browser.press("Tab", 9, "");
    browser.wait_for("document.activeElement.id === 'pause'");
    browser.press("Enter", 13, "\r");
    browser.wait_for("document.getElementById('state').textContent === 'paused'");
    assert!(wait_until(SOON, || figures(&server)["viewers"] == 0));
    browser.press("Enter", 13, "\r");
    browser.wait_for("document.getElementById('state').textContent === 'live'");
    browser.press("Tab", 9, "");
    browser.wait_for("document.activeElement.textContent === 'JSON'");
    browser.press("Tab", 9, "");
    browser.wait_for("document.activeElement.getAttribute('role') === 'region'");
    // Without a place it asks by itself, and says so.
    let click = "document.getElementById('pause').click()";
    browser.value(click);
    let _viewers: Vec<_> = (0..16).map(|_| view(&server)).collect();
    browser.value(click);
    browser.wait_for(
        "document.getElementById('state').textContent.startsWith('too many pages are open')",
    );
}
