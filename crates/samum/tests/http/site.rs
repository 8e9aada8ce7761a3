//! Responses that no route makes have the fields that their site demands.

use testkit::http2::{Http2, pseudo};
use testkit::{Server, Tree};

use crate::common::{
    ask, ask_raw, connect, on_both_drivers_at_once, request, serve, serve_config, tcp_address, text,
};

/// The fields that a case is about. No site has a default for them, except `Server`.
const NAMES: [&str; 7] = [
    "Cache-Control",
    "Expires",
    "Server",
    "Strict-Transport-Security",
    "X-Frame-Options",
    "X-Site",
    "X-Style",
];

/// A site that is the default one, and `b.test`, which redirects to https. A client says by `X-Forwarded-Proto` whether it
/// has used TLS.
fn start(driver: &str, tree: &Tree) -> Server {
    let keys = format!(
        "[server]\ndriver = '{driver}'\nthreads = 1\ntimeout-header = 1\ntrusted-proxies = ['127.0.0.1']\n\
         [[site]]\nlisten = ['127.0.0.1:0']\nhosts = ['test']\nhsts = 60\nerrors = {{ 404 = '/app/404.html' }}\n\
         headers = [\n\
         {{ set = {{ X-Frame-Options = 'DENY', Cache-Control = 'max-age=60' }}, remove = ['Server'] }},\n\
         {{ match = '*.css', set = {{ X-Style = '1' }} }},\n\
         {{ status = '4xx', set = {{ Expires = '0' }} }},\n\
         ]\n\
         [[site.route]]\npath = '/app/'\nfiles = '{root}'\n\
         headers = [{{ set = {{ X-Frame-Options = 'SAMEORIGIN' }} }}]\n\
         [[site.route]]\npath = '/cgi/'\nproxy = 'http://127.0.0.1:1'\n\
         [[site]]\nlisten = ['127.0.0.1:0']\nhosts = ['b.test']\nhttps = 'redirect'\nhsts = 60\n\
         headers = [{{ set = {{ X-Site = 'b', Strict-Transport-Security = 'max-age=9' }} }}]\n\
         [[site.route]]\npath = '/app/'\nfiles = '{root}'\n",
        root = text(tree.path()),
    );
    serve_config(tree, &keys)
}

/// The fields of a response that a case is about, sorted.
fn relevant<'a>(fields: impl Iterator<Item = (&'a str, &'a str)>) -> Vec<String> {
    let own = |name: &str| NAMES.iter().find(|own| own.eq_ignore_ascii_case(name));
    let lines = fields.filter_map(|(name, value)| Some(format!("{}: {value}", own(name)?)));
    let mut lines: Vec<_> = lines.collect();
    lines.sort();
    lines
}

fn tree() -> Tree {
    Tree::new().file("404.html", "own page").file("a.css", "css")
}

/// The fields of responses of the first site, of which some are for errors, and some for others.
const FAILURE: &[&str] = &["Expires: 0", "X-Frame-Options: DENY"];
const SUCCESS: &[&str] = &["Cache-Control: max-age=60", "X-Frame-Options: DENY"];
const STYLE: &[&str] = &["Expires: 0", "X-Frame-Options: DENY", "X-Style: 1"];
const OF_B: &[&str] = &["Server: samum", "Strict-Transport-Security: max-age=9", "X-Site: b"];
const SECURE: &[&str] =
    &["Expires: 0", "Strict-Transport-Security: max-age=60", "X-Frame-Options: DENY"];

#[test]
fn responses_that_no_route_makes_have_the_fields_of_their_site() {
    let tree = tree();
    on_both_drivers_at_once(|driver| {
        let server = start(driver, &tree);
        let long = format!("GET /{} HTTP/1.1\r\nHost: test\r\n\r\n", "a".repeat(40_000));
        let many = format!("GET / HTTP/1.1\r\nHost: test\r\n{}\r\n", "A: b\r\n".repeat(1000));
        let b = "\nHost: b.test";
        let tls = "\nX-Forwarded-Proto: https";
        for (bytes, status, fields) in [
            // A host that has no route for the path. The error page changes nothing.
            (request("GET /none"), 404, FAILURE),
            (request("GET /none.css"), 404, STYLE),
            (request("GET /x/../none.css"), 404, STYLE),
            (request("POST /none"), 404, FAILURE),
            (request(&format!("GET /none{tls}")), 404, SECURE),
            (request(&format!("GET /none{b}{tls}")), 404, OF_B),
            // A redirect to the path of a directory, whose route has not been asked.
            (request("GET /app"), 301, SUCCESS),
            // A redirect to https.
            (request(&format!("GET /app/{b}")), 308, OF_B),
            // Requests about the server, or with a path that no file and no route can have.
            (request("OPTIONS *"), 204, SUCCESS),
            (request("GET *"), 400, FAILURE),
            (request("CONNECT test:80"), 405, FAILURE),
            (request("GET /../none"), 400, FAILURE),
            // Two trusted fields name different clients.
            (
                request("GET /app/a.css\nX-Forwarded-For: 192.0.2.1\nForwarded: for=192.0.2.2"),
                400,
                STYLE,
            ),
            // No handler has been asked. A request without a head is for the default site.
            ("GET / HTTP/3.0\r\n\r\n".to_owned(), 505, &["X-Frame-Options: DENY"]),
            ("GET /a b\r\n\r\n".to_owned(), 400, FAILURE),
            (request("GET /\nA B: c"), 400, FAILURE),
            (request("POST /cgi/x\nTransfer-Encoding: gzip"), 400, FAILURE),
            (long, 414, FAILURE),
            (many, 431, FAILURE),
            // It is too slow.
            ("GET / HT".to_owned(), 408, FAILURE),
            // A body that is malformed, whose head was read.
            (request("POST /cgi/x.css\nTransfer-Encoding: chunked") + "x\r\n", 400, STYLE),
            // A route that has been asked, for comparison.
            (request("GET /app/none"), 404, &["Expires: 0", "X-Frame-Options: SAMEORIGIN"]),
        ] {
            let mut client = connect(&server);
            client.send(&bytes).expect("the server takes the request");
            let response = client.response();
            let response = response.unwrap_or_else(|error| panic!("{bytes:.80}: {error}"));
            assert_eq!(response.status, status, "{bytes:.80}");
            let all = response.headers.iter().map(|(name, value)| (&name[..], &value[..]));
            assert_eq!(relevant(all), fields, "{bytes:.80}: {response:?}");
        }
    });
}

#[test]
fn over_http2_they_have_them_too() {
    let tree = tree();
    on_both_drivers_at_once(|driver| {
        let server = start(driver, &tree);
        let long = format!("/{}", "a".repeat(20_000));
        let with = |method, path, more: &[(&'static str, &'static str)]| {
            let mut fields = pseudo(method, path);
            fields.retain(|(name, _)| *name != ":authority");
            fields.extend_from_slice(more);
            fields
        };
        let a = (":authority", "test");
        let b = (":authority", "b.test");
        let tls = ("x-forwarded-proto", "https");
        for (fields, status, expected) in [
            (with("GET", "/none", &[a]), 404, FAILURE),
            (with("GET", "/none.css", &[a]), 404, STYLE),
            (with("GET", "/none", &[a, tls]), 404, SECURE),
            (with("GET", "/none", &[b, tls]), 404, OF_B),
            (with("GET", "/app", &[a]), 301, SUCCESS),
            (with("GET", "/app/", &[b]), 308, OF_B),
            (with("OPTIONS", "*", &[a]), 204, SUCCESS),
            // No handler is asked.
            (with("GET", &long, &[a]), 414, FAILURE),
        ] {
            let mut client = Http2::connect(tcp_address(&server)).expect("the server accepts");
            let stream = client.request(fields.iter().copied(), true).unwrap();
            let reply = client.reply(stream).unwrap_or_else(|error| panic!("{fields:?}: {error}"));
            assert_eq!(reply.status, status, "{fields:?}");
            let all = reply.fields.iter().map(|(name, value)| (&name[..], &value[..]));
            assert_eq!(relevant(all), expected, "{fields:?}");
        }
    });
}

#[test]
fn without_a_configuration_they_have_the_fields_of_the_command_line() {
    let tree = tree();
    on_both_drivers_at_once(|driver| {
        let server =
            serve(driver, tree.path(), &["--headers", "X-Site: cli", "--headers", "Server:"]);
        let options = ask(&server, "OPTIONS *");
        assert_eq!((options.status, options.header("X-Site")), (204, Some("cli")));
        let refused = ask_raw(&server, "GET / HTTP/3.0\r\n\r\n");
        let refused = String::from_utf8(refused).expect("text");
        assert!(
            refused.contains("\r\nX-Site: cli\r\n") && !refused.contains("\r\nServer:"),
            "{refused}"
        );
    });
}

/// A site whose routes take other clients than the site, `b.test` with a redirect to https, and `c.test` with a limit.
/// A client is what `X-Forwarded-For` says.
fn start_guarded(driver: &str, tree: &Tree) -> Server {
    let keys = format!(
        "[server]\ndriver = '{driver}'\nthreads = 1\ntrusted-proxies = ['127.0.0.1']\n\
         [[site]]\nlisten = ['127.0.0.1:0']\nhosts = ['test']\nallow = ['192.0.2.0/24']\n\
         errors = {{ 403 = '/open/403.html' }}\nserver-timing = true\n\
         [[site.route]]\npath = '/app/'\nfiles = '{root}'\n\
         [[site.route]]\npath = '/open/'\nfiles = '{root}'\nallow = []\nserver-timing = false\n\
         [[site.route]]\npath = '/shut/'\nfiles = '{root}'\nallow = []\ndeny = ['192.0.2.1']\n\
         [[site]]\nlisten = ['127.0.0.1:0']\nhosts = ['b.test']\nhttps = 'redirect'\nallow = ['192.0.2.0/24']\n\
         [[site.route]]\npath = '/app/'\nfiles = '{root}'\n\
         [[site.route]]\npath = '/open/'\nfiles = '{root}'\nallow = []\n\
         [[site.route]]\npath = '/shut/'\nfiles = '{root}'\ndeny = ['192.0.2.1']\n\
         [[site]]\nlisten = ['127.0.0.1:0']\nhosts = ['c.test']\n\
         limits = {{ requests-per-ip = '2/h burst 2' }}\n\
         [[site.route]]\npath = '/app/'\nfiles = '{root}'\n\
         [[site.route]]\npath = '/cgi/'\nproxy = 'http://127.0.0.1:1'\n\
         [[site]]\nlisten = ['127.0.0.1:0']\nhosts = ['d.test']\nhttps = 'redirect'\n\
         limits = {{ requests-per-ip = '2/h burst 2' }}\n\
         [[site.route]]\npath = '/cgi/'\nproxy = 'http://127.0.0.1:1'\n\
         limits = {{ requests-per-ip = '1/h burst 1' }}\n",
        root = text(tree.path()),
    );
    serve_config(tree, &keys)
}

/// The requests of which no route makes the response, with the host and the target, and the statuses for a client of the
/// site and for another client.
const GUARDED: &[(&str, &str, &str, u16, u16)] = &[
    ("GET", "test", "/none", 404, 403),
    ("GET", "test", "/x/../none", 404, 403),
    ("GET", "test", "/none%2Fx", 404, 403),
    ("POST", "test", "/none", 404, 403),
    ("BREW", "test", "/none", 404, 403),
    ("OPTIONS", "test", "*", 204, 403),
    // A redirect is for the clients of the route to which it leads.
    ("GET", "test", "/app", 301, 403),
    ("GET", "test", "/open", 301, 301),
    ("GET", "test", "/shut", 403, 301),
    ("GET", "b.test", "/app/", 308, 403),
    ("GET", "b.test", "/app", 308, 403),
    ("POST", "b.test", "/none", 308, 403),
    ("GET", "b.test", "/../none", 308, 403),
    ("GET", "b.test", "/open/a.css", 308, 308),
    ("GET", "b.test", "/x/../open", 308, 308),
    ("GET", "b.test", "/shut/", 403, 403),
    // A route, for comparison.
    ("GET", "test", "/app/a.css", 200, 403),
    ("GET", "test", "/open/a.css", 200, 200),
];
const CLIENTS: [&str; 2] = ["192.0.2.1", "198.51.100.1"];

#[test]
fn clients_that_the_site_refuses_are_refused_where_no_route_answers() {
    let tree = tree().file("403.html", "own refusal");
    on_both_drivers_at_once(|driver| {
        let server = start_guarded(driver, &tree);
        for (method, host, target, ok, denied) in GUARDED {
            for (client, status) in CLIENTS.iter().zip([*ok, *denied]) {
                let head = format!("{method} {target}\nHost: {host}\nX-Forwarded-For: {client}");
                let response = ask(&server, &head);
                assert_eq!(response.status, status, "{head}");
                // The page of the site is for all refusals of the site.
                let has_page = status == 403 && *host == "test";
                let is_page = response.body == b"own refusal";
                assert_eq!(is_page, has_page, "{head}: {response:?}");
                let mut http2 = Http2::connect(tcp_address(&server)).expect("a connection");
                let mut fields = pseudo(method, target);
                fields.retain(|(name, _)| *name != ":authority");
                fields.extend([(":authority", *host), ("x-forwarded-for", *client)]);
                let stream = http2.request(fields, true).unwrap();
                let reply = http2.reply(stream).unwrap_or_else(|error| panic!("{head}: {error}"));
                assert_eq!(reply.status, status, "over HTTP/2: {head}");
            }
        }
        // Targets that only HTTP/1 has.
        for (head, status) in [("CONNECT test:80", 405), ("GET /../none", 400)] {
            for (client, status) in CLIENTS.iter().zip([status, 403]) {
                let response = ask(&server, &format!("{head}\nX-Forwarded-For: {client}"));
                assert_eq!(response.status, status, "{head} of {client}");
            }
        }
        // It would be another client.
        let forged = "GET /none\nX-Forwarded-For: 192.0.2.1\nForwarded: for=198.51.100.1";
        assert_eq!(ask(&server, forged).status, 400);
    });
}

#[test]
fn requests_that_no_route_answers_count_against_the_limit_of_the_site() {
    let tree = tree();
    on_both_drivers_at_once(|driver| {
        let server = start_guarded(driver, &tree);
        // They count together, and with the requests of routes that share the limit. Each row has a client of its own.
        for (number, (host, heads)) in [
            ("c.test", [("GET /none", 404), ("GET /none", 404)]),
            ("c.test", [("GET /app/a.css", 200), ("GET /x/../none", 404)]),
            ("c.test", [("OPTIONS *", 204), ("GET /app", 301)]),
            ("c.test", [("CONNECT c.test:80", 405), ("GET /../none", 400)]),
            ("c.test", [("POST /none\nContent-Length: 0", 404), ("BREW /none", 404)]),
            // The limit of a route is for its responses. The redirect to it does not use it up.
            ("d.test", [("GET /cgi/", 308), ("GET /cgi/", 308)]),
            ("d.test", [("GET /none", 308), ("POST /cgi/x\nContent-Length: 0", 308)]),
        ]
        .into_iter()
        .enumerate()
        {
            let more = format!("\nHost: {host}\nX-Forwarded-For: 203.0.113.{number}");
            for (head, status) in heads {
                assert_eq!(ask(&server, &format!("{head}{more}")).status, status, "{head} {more}");
            }
            for (head, _) in heads {
                let refused = ask(&server, &format!("{head}{more}"));
                assert_eq!(refused.status, 429, "{head} {more}");
                assert!(refused.header("Retry-After").is_some(), "{head} {more}: {refused:?}");
            }
        }
        let tls = "\nHost: d.test\nX-Forwarded-For: 203.0.113.5\nX-Forwarded-Proto: https";
        assert_eq!(ask(&server, &format!("GET /cgi/{tls}")).status, 502);
    });
}

#[test]
fn responses_that_no_route_makes_have_their_times_if_the_site_says_so() {
    let tree = tree();
    on_both_drivers_at_once(|driver| {
        let server = start_guarded(driver, &tree);
        let own = "\nX-Forwarded-For: 192.0.2.1";
        for (bytes, status, has_times) in [
            (request(&format!("GET /none{own}")), 404, true),
            (request("GET /none"), 403, true),
            (request(&format!("OPTIONS *{own}")), 204, true),
            ("GET / HTTP/3.0\r\n\r\n".to_owned(), 505, true),
            (request(&format!("GET /app/a.css{own}")), 200, true),
            (request(&format!("GET /open/a.css{own}")), 200, false),
            (request("GET /none\nHost: c.test"), 404, false),
        ] {
            let mut client = connect(&server);
            client.send(&bytes).expect("the server takes the request");
            let response = client.response().expect("a response");
            assert_eq!(response.status, status, "{bytes}");
            let times = response.header("Server-Timing");
            assert_eq!(times.is_some(), has_times, "{bytes}: {response:?}");
        }
    });
}

#[test]
fn connections_beyond_the_limit_of_the_site_are_refused_where_no_route_answers() {
    let tree = tree();
    on_both_drivers_at_once(|driver| {
        let keys = format!(
            "[server]\ndriver = '{driver}'\nthreads = 1\n\
             [[site]]\nlisten = ['127.0.0.1:0']\nlimits = {{ connections-per-ip = 1 }}\n\
             [[site.route]]\npath = '/app/'\nfiles = '{}'\n",
            text(tree.path()),
        );
        let server = serve_config(&tree, &keys);
        let mut first = connect(&server);
        first.send(request("GET /none")).expect("the server takes the request");
        assert_eq!(first.response().expect("a response").status, 404);
        assert_eq!(ask(&server, "GET /none").status, 429);
    });
}
