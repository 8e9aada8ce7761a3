//! Requests on connections with a handshake: a transport whose handshake is a double, and what its facts change.
//!
//! The first line of a client is the handshake: the name of the server, the subject of the client, and the hosts for
//! which requests may come. The rest are plain bytes.

use core::time::Duration;
use std::rc::Rc;
use std::sync::Arc;

use config::site::without_port;
use config::{
    Access, Action, Address, Config, FileRules, Files, FixedStatus, GatewayRules, Https, Listen,
    Redirect, RequestHeader, Route, Site, Upstream,
};
use handler::Request;
use handler::attach::{Admission, Attachments, Authorizer, Denial, Grant};
use handler::router::Router;
use handler::serving::Snapshot;
use http::Status;
use outq::OutQ;
use ring::sim::{Peer, PeerListener, World};
use samum::network::Listeners;
use samum::worker::Worker;
use sendfile::{Failure, Handshake, KernelTcp, Piece, Takes};
use session::Http1;
use session::shell::Shell;
use testkit::metrics::Metrics;

use crate::options::Options;
use crate::seams::below::{Below, Layer, Layered, bounds};
use crate::seams::stage::{Response, content, parse_whole};
use crate::seams::world::{Client as _, Make, Plain, config, parts, pass, run_until};

/// The numbers of the listeners: the first without TLS.
const PLAIN: usize = 0;
const TLS: usize = 1;
/// The ports of the listeners.
const PORTS: [u16; 2] = [80, 8443];

/// The facts of a client's handshake.
#[derive(Debug)]
struct Said {
    server_name: Option<String>,
    client: Option<String>,
    /// `-` stands for requests without a host.
    permitted: Vec<String>,
}

impl Handshake for Said {
    fn version(&self) -> &'static str {
        "TLSv1.3"
    }

    fn cipher(&self) -> Option<&'static str> {
        Some("TLS_AES_128_GCM_SHA256")
    }

    fn server_name(&self) -> Option<&str> {
        self.server_name.as_deref()
    }

    fn client(&self) -> Option<&str> {
        self.client.as_deref()
    }

    fn is_resumed(&self) -> bool {
        false
    }

    fn permits(&self, host: Option<&str>) -> bool {
        let host = host.map_or(&b"-"[..], |host| without_port(host.as_bytes()));
        self.permitted.iter().any(|permitted| permitted.as_bytes().eq_ignore_ascii_case(host))
    }
}

/// The state of a connection.
#[derive(Debug)]
enum Hello {
    /// It has no handshake.
    None,
    Expected,
    Said(Rc<Said>),
}

impl Layer for Hello {
    fn is_open(&self) -> bool {
        !matches!(self, Self::Expected)
    }

    fn handshake(&self) -> Option<Rc<dyn Handshake>> {
        let Self::Said(said) = self else { return None };
        Some(Rc::<Said>::clone(said))
    }

    fn make(&mut self, below: &mut Below, queue: &mut OutQ<Piece>, most: u64) -> u64 {
        let mut bytes = Vec::new();
        for chunk in queue.next_ready() {
            bytes.extend_from_slice(&chunk.payload.bytes()[bounds(&chunk.range)]);
        }
        bytes.truncate(usize::try_from(most).unwrap_or(usize::MAX));
        let count = bytes.len() as u64;
        below.push(bytes);
        queue.mark_sent(count);
        queue.mark_released(count);
        count
    }

    fn undo(
        &mut self,
        _below: &mut Below,
        _queue: &mut OutQ<Piece>,
        input: &mut Vec<u8>,
        plain: &mut Vec<u8>,
    ) -> Result<bool, Failure> {
        if matches!(self, Self::Expected)
            && let Some(end) = input.iter().position(|byte| *byte == b'\n')
        {
            let line: Vec<u8> = input.drain(..=end).collect();
            let line = String::from_utf8(line).expect("a text");
            let [server_name, client, permitted] =
                line.trim_end().split('|').collect::<Vec<_>>()[..].try_into().expect("three parts");
            let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
            let (server_name, client) = (some(server_name), some(client));
            let permitted = permitted.split(',').map(str::to_owned).collect();
            *self = Self::Said(Rc::new(Said { server_name, client, permitted }));
        }
        if self.is_open() {
            plain.append(input);
        }
        Ok(false)
    }

    fn end(&mut self) -> Vec<u8> {
        Vec::new()
    }
}

fn make(tcp: KernelTcp, listener: usize) -> Layered<Hello> {
    Layered::new(tcp, if listener == TLS { Hello::Expected } else { Hello::None })
}

/// A configuration of these sites, each with both listeners and the route of [`files`].
fn sites(all: &[&[&str]]) -> Config {
    let mut config = Config::default();
    let site = config.sites.remove(0);
    let address = |port: u16| Listen::from(Address::Ip(([127, 0, 0, 1], port).into()));
    let [plain, tls] = PORTS.map(address);
    for hosts in all {
        config.sites.push(Site {
            name: hosts.first().map_or("default", |host| host).to_owned(),
            listen: vec![plain.clone(), Listen { tls: true, ..tls.clone() }],
            hosts: hosts.iter().map(|host| (*host).to_owned()).collect(),
            routes: vec![files(), metrics()],
            ..site.clone()
        });
    }
    config
}

fn files() -> Route {
    let files = Files { root: ".".into(), rules: FileRules::default() };
    Route { action: Action::Files(files), ..Route::default() }
}

fn metrics() -> Route {
    Route { path: "/metrics".to_owned(), action: Action::Metrics, ..Route::default() }
}

struct Stage {
    world: World,
    worker: Worker<Http1, Listeners<Make<Layered<Hello>>>, Router>,
    /// The listening sockets.
    listeners: Vec<i32>,
}

impl Stage {
    fn new(config: &Config) -> Self {
        Self::with(config, Attachments::default())
    }

    fn with(config: &Config, attachments: Attachments) -> Self {
        let world = World::new(self::config(1));
        world.write_file("small", &content(1, 100));
        world.write_file("421.html", b"another connection");
        world.make_dir(".well-known");
        world.make_dir(".well-known/acme-challenge");
        world.write_file(".well-known/acme-challenge/token-_", b"key");
        let mut parts = parts(&world, Options::default());
        parts.listeners.push(parts.ring.sim_listener(&world));
        let listeners = parts.listeners.iter().map(ring::Fd::raw).collect();
        parts.snapshot = Arc::new(Snapshot::new(config).expect("a valid configuration"));
        let network = Listeners::with(parts.listeners.clone(), make as Make<_>);
        let network = network.taking(Some(Takes::Memory));
        parts.attachments = attachments;
        let worker = Worker::over(parts, network);
        Self { world, worker: worker.expect("memory"), listeners }
    }

    /// The responses to requests on one connection, which begins with a handshake if there is one.
    fn ask_all(&mut self, hello: Option<&str>, requests: &[&str]) -> Vec<Response> {
        let listener = self.listeners[if hello.is_some() { TLS } else { PLAIN }];
        let mut client = Plain::new(Rc::new(self.world.connect_to(listener)), 1);
        if let Some(hello) = hello {
            client.send(format!("{hello}\n").as_bytes());
        }
        let (mut responses, mut at) = (Vec::new(), 0);
        for request in requests {
            client.send(request.as_bytes());
            let mut response = None;
            run_until(&mut self.worker, || {
                client.look();
                response = parse_whole(&client.received()[at..]);
                response.is_some()
            });
            let response = response.unwrap_or_else(|| panic!("no response to {request}"));
            at += response.len;
            responses.push(response);
        }
        responses
    }

    fn ask(&mut self, hello: Option<&str>, request: &str) -> Response {
        self.ask_all(hello, &[request]).remove(0)
    }

    fn metrics(&mut self) -> Metrics {
        let page = self.ask(None, &get("/metrics", "a.org"));
        Metrics::parse(&String::from_utf8(page.body).expect("text")).expect("a valid page")
    }
}

fn get(path: &str, host: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n")
}

/// Answers for the route that it guards.
#[derive(Debug)]
struct Refusing;

impl Authorizer for Refusing {
    fn has_say(&self, _route: &Route) -> bool {
        true
    }

    fn admit(&mut self, _shell: &mut Shell, _request: &Request<'_>, _route: &Route) -> Admission {
        Admission::Now(Err(Status::Unauthorized.into()))
    }

    fn may_have_news(&self) -> bool {
        false
    }

    fn next_admitted(&mut self) -> Option<(handler::Ticket, Result<Grant, Denial>)> {
        None
    }
}

fn refusing() -> Attachments {
    Attachments { authorizer: Some(Box::new(Refusing)), ..Attachments::default() }
}

#[test]
fn rfc9110_15_5_20_a_request_for_another_host_than_that_of_the_handshake_is_misdirected() {
    let mut stage = Stage::new(&sites(&[&["a.org"], &["b.org", "*.b.org"]]));
    let a = "a.org||a.org,[2001:db8::1]";
    let mut misdirected = 0.0;
    for (hello, host, status) in [
        (Some(a), "a.org", 200),
        (Some(a), "A.ORG:8443", 200),
        (Some(a), "a.org:", 200),
        (Some(a), "[2001:db8::1]", 200),
        (Some(a), "[2001:db8::1]:8443", 200),
        (Some(a), "b.org", 421),
        (Some(a), "x.b.org", 421),
        (Some(a), "unknown.org", 421),
        (Some(a), "", 421),
        (Some("||a.org,b.org"), "a.org", 200),
        (Some("||a.org,b.org"), "b.org", 200),
        (Some("||"), "", 200),
        (Some("b.org||x"), "a.org", 421),
        (None, "a.org", 200),
        (None, "b.org", 200),
        (None, "", 200),
    ] {
        let response = stage.ask(hello, &get("/small", host));
        assert_eq!(response.status, status, "{hello:?} {host}");
        misdirected += f64::from(u8::from(status == 421));
    }
    // The authority of an absolute target is the host, and Host is not.
    for (target, host, status) in [
        ("http://a.org/small", "b.org", 200),
        ("http://b.org/small", "a.org", 421),
        ("https://b.org:8443/small", "a.org", 421),
    ] {
        let response = stage.ask(Some(a), &get(target, host));
        assert_eq!(response.status, status, "{target} {host}");
        misdirected += f64::from(u8::from(status == 421));
    }
    for (hello, status) in [("a.org||-", 200), ("a.org||a.org", 421)] {
        assert_eq!(stage.ask(Some(hello), "GET /small HTTP/1.0\r\n\r\n").status, status);
        misdirected += f64::from(u8::from(status == 421));
    }
    assert_eq!(stage.metrics().sum("samum_tls_misdirected_total", &[]), misdirected);
}

#[test]
fn a_misdirected_request_leaves_the_connection_open_for_others() {
    let mut stage = Stage::new(&sites(&[&["a.org"], &["b.org"]]));
    let post = "POST /small HTTP/1.1\r\nHost: b.org\r\nContent-Length: 5\r\n\r\nabcde";
    let chunked =
        "POST / HTTP/1.1\r\nHost: b.org\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n";
    let star = "OPTIONS * HTTP/1.1\r\nHost: b.org\r\n\r\n";
    let small = get("/small", "a.org");
    let all = [&small[..], &get("/small", "b.org"), post, chunked, star, &small];
    let responses = stage.ask_all(Some("a.org||a.org"), &all);
    let statuses: Vec<_> = responses.iter().map(|response| response.status).collect();
    assert_eq!(statuses, [200, 421, 421, 421, 421, 200]);
}

#[test]
fn nothing_of_a_site_is_asked_about_a_misdirected_request() {
    let mut config = sites(&[&["a.org"], &["b.org"]]);
    for site in &mut config.sites {
        site.errors.insert(421, "/421.html".to_owned());
        let status = FixedStatus { code: 410, text: None };
        site.routes.push(Route {
            path: "/gone".to_owned(),
            action: Action::Status(status),
            ..Route::default()
        });
        let access =
            Access { deny: vec!["0.0.0.0/0".parse().expect("a range")], allow: Vec::new() };
        site.routes.push(Route { path: "/closed/".to_owned(), access, ..files() });
    }
    let paths = ["/small", "/gone", "/closed/", "/closed", "/a/../b", "/%2e%2e/", "/none"];
    for (has_authorizer, statuses) in
        [(false, [200, 410, 403, 301, 404, 400, 404]), (true, [401, 401, 403, 401, 401, 400, 401])]
    {
        let attachments = if has_authorizer { refusing() } else { Attachments::default() };
        let mut stage = Stage::with(&config, attachments);
        for (path, status) in paths.into_iter().zip(statuses) {
            let request = get(path, "b.org");
            assert_eq!(stage.ask(Some("b.org||b.org"), &request).status, status, "{path}");
            let response = stage.ask(Some("a.org||a.org"), &request);
            assert_eq!(response.status, 421, "{path}");
            assert_eq!(response.body, b"another connection", "{path}");
        }
    }
}

/// The same sites, which redirect requests without TLS.
fn redirecting(all: &[&[&str]]) -> Config {
    let mut config = sites(all);
    config.sites.iter_mut().for_each(|site| site.https = Https::Redirect);
    config
}

/// The value of a field of a response.
fn field<'a>(response: &'a Response, name: &str) -> Option<&'a str> {
    let mut lines = response.head.lines().filter_map(|line| line.split_once(": "));
    lines.find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value)
}

/// The status of a response, with the address if it is a redirect.
fn outcome(response: &Response) -> String {
    let location = field(response, "Location").map(|to| format!(" {to}"));
    format!("{}{}", response.status, location.unwrap_or_default())
}

#[test]
fn a_request_without_tls_is_redirected_to_a_host_of_its_site() {
    let a = &["*.a.org", "a.org", "www.a.org"][..];
    let mut config = redirecting(&[a, &["*.b.org"], &["c.org"]]);
    config.sites[2].https = Https::Allow;
    let mut stage = Stage::new(&config);
    for (host, path, expected) in [
        ("a.org", "/small", "308 https://a.org:8443/small"),
        ("A.org:80", "/x?y=1&z", "308 https://a.org:8443/x?y=1&z"),
        ("www.a.org", "/?", "308 https://www.a.org:8443/?"),
        ("x.y.a.org.", "/d/../e//f%2e", "308 https://x.y.a.org:8443/d/../e//f%2e"),
        ("a.org", "//evil.example/", "308 https://a.org:8443//evil.example/"),
        // What the site does not list is not repeated.
        ("evil.example", "/", "308 https://a.org:8443/"),
        ("evil.example%2f.a.org", "/", "308 https://a.org:8443/"),
        ("", "/", "308 https://a.org:8443/"),
        ("x.b.org", "/", "308 https://x.b.org:8443/"),
        ("a%23.b.org", "/", "421"),
        ("c.org", "/small", "200"),
        // An authority looks there without TLS.
        ("a.org", "/.well-known/acme-challenge/token-_", "200"),
        ("a.org", "/.well-known/acme-challenge/none", "404"),
        (
            "a.org",
            "/.well-known/acme-challenge/../small",
            "308 https://a.org:8443/.well-known/acme-challenge/../small",
        ),
        (
            "a.org",
            "/.well-known/acme-challenge/%2e%2e/small",
            "308 https://a.org:8443/.well-known/acme-challenge/%2e%2e/small",
        ),
        ("a.org", "/.well-known/acme", "308 https://a.org:8443/.well-known/acme"),
    ] {
        assert_eq!(outcome(&stage.ask(None, &get(path, host))), expected, "{host:?} {path}");
    }
    for (request, expected) in [
        ("GET http://www.a.org/b HTTP/1.1\r\nHost: a.org", "308 https://www.a.org:8443/b"),
        ("GET http://x.b.org:80 HTTP/1.1\r\nHost: a.org", "308 https://x.b.org:8443/"),
        ("GET /b HTTP/1.0", "308 https://a.org:8443/b"),
        ("DELETE /small HTTP/1.0", "308 https://a.org:8443/small"),
        ("BREW /small HTTP/1.1\r\nHost: a.org", "308 https://a.org:8443/small"),
        ("OPTIONS /small HTTP/1.1\r\nHost: a.org", "308 https://a.org:8443/small"),
        ("OPTIONS * HTTP/1.1\r\nHost: a.org", "204"),
        ("CONNECT a.org:80 HTTP/1.1\r\nHost: a.org:80", "405"),
    ] {
        assert_eq!(outcome(&stage.ask(None, &format!("{request}\r\n\r\n"))), expected, "{request}");
    }
    // With TLS there is no redirect, whatever the client says.
    for fields in ["", "X-Forwarded-Proto: http\r\n", "Forwarded: proto=http\r\n"] {
        let request = format!("GET /small HTTP/1.1\r\nHost: a.org\r\n{fields}\r\n");
        assert_eq!(outcome(&stage.ask(Some("a.org||a.org"), &request)), "200", "{fields}");
    }
    assert_eq!(outcome(&stage.ask(Some("a.org||a.org"), &get("/small", "x.b.org"))), "421");
}

#[test]
fn the_port_of_a_redirect_is_that_of_the_first_listener_with_tls() {
    let tls = |port| {
        let address = Address::Ip(([127, 0, 0, 1], port).into());
        Listen { tls: true, ..Listen::from(address) }
    };
    for (ports, expected) in [
        (&[443][..], "https://a.org/"),
        (&[444, 443], "https://a.org:444/"),
        (&[443, 444], "https://a.org/"),
        (&[0], "https://a.org/"),
        (&[], "https://a.org/"),
    ] {
        let mut config = redirecting(&[&["a.org"]]);
        config.sites[0].listen.truncate(1);
        config.sites[0].listen.extend(ports.iter().map(|port| tls(*port)));
        let response = Stage::new(&config).ask(None, &get("/", "a.org"));
        assert_eq!(outcome(&response), format!("308 {expected}"), "{ports:?}");
    }
}

#[test]
fn a_redirect_never_loops_behind_a_proxy_that_says_the_scheme() {
    let mut config = redirecting(&[&["a.org"]]);
    // Peers of the simulation have such addresses.
    config.server.trusted_proxies = vec!["10.0.0.0/8".parse().expect("a range")];
    let mut stage = Stage::new(&config);
    let https = "308 https://a.org/small";
    let tls = Some("a.org||a.org");
    for (hello, fields, expected) in [
        (None, "X-Forwarded-Proto: https", "200"),
        (None, "Forwarded: for=192.0.2.1;proto=https", "200"),
        (None, "X-Forwarded-For: 192.0.2.1\r\nX-Forwarded-Proto: https", "200"),
        (None, "X-Forwarded-Proto: http", https),
        (None, "Forwarded: proto=http", https),
        // Only one of the two is the proxy's.
        (None, "Forwarded: proto=https\r\nX-Forwarded-Proto: http", https),
        (None, "X-Other: 1", "308 https://a.org:8443/small"),
        (tls, "X-Other: 1", "200"),
        (tls, "X-Forwarded-Proto: https", "200"),
        (tls, "X-Forwarded-Proto: http", https),
    ] {
        let request = format!("GET /small HTTP/1.1\r\nHost: a.org\r\n{fields}\r\n\r\n");
        assert_eq!(outcome(&stage.ask(hello, &request)), expected, "{hello:?} {fields}");
    }
}

#[test]
fn a_redirect_comes_before_the_body_and_behind_the_conditions_of_its_route() {
    let mut config = redirecting(&[&["a.org"]]);
    let site = &mut config.sites[0];
    let access = Access { deny: vec!["0.0.0.0/0".parse().expect("a range")], allow: Vec::new() };
    site.routes.push(Route { path: "/closed/".to_owned(), access, ..files() });
    // Nothing listens there, and nothing has to.
    let servers = vec![config::upstream::server("http://192.0.2.1:1").expect("a server")];
    let upstream = Upstream { servers, rules: GatewayRules::default() };
    site.routes.push(Route {
        path: "/app/".to_owned(),
        action: Action::Proxy(upstream),
        max_body: Some(3),
        ..Route::default()
    });
    let mut stage = Stage::with(&config, refusing());
    let to = |path: &str| format!("308 https://a.org:8443{path}");
    assert_eq!(outcome(&stage.ask(None, &get("/closed/", "a.org"))), "403");
    assert_eq!(outcome(&stage.ask(None, &get("/closed/../%", "a.org"))), to("/closed/../%"));
    for fields in [
        "Content-Length: 5\r\n\r\nabcde",
        "Content-Length: 5000000\r\nExpect: 100-continue\r\n\r\n",
        "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        "Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
    ] {
        let request = format!("POST /app/x HTTP/1.1\r\nHost: a.org\r\n{fields}");
        assert_eq!(outcome(&stage.ask(None, &request)), to("/app/x"), "{fields}");
    }
}

/// Two sites of which the first has `hsts`, with a route of each kind of response.
fn strict() -> Config {
    let mut config = sites(&[&["a.org"], &["b.org"]]);
    let site = &mut config.sites[0];
    site.hsts = Some(Duration::from_secs(15_552_000));
    site.errors.insert(404, "/421.html".to_owned());
    let own = vec![config::rule::header("strict-transport-security: max-age=0").expect("a rule")];
    site.routes.push(Route { path: "/own/".to_owned(), headers: own, ..files() });
    let to = Redirect { to: "/elsewhere".to_owned(), status: 302 };
    let redirect = Action::Redirect(to);
    site.routes.push(Route { path: "/old".to_owned(), action: redirect, ..Route::default() });
    let text = Some("a text".to_owned());
    let status = Action::Status(FixedStatus { code: 200, text });
    site.routes.push(Route { path: "/text".to_owned(), action: status, ..Route::default() });
    let access = Access { deny: vec!["0.0.0.0/0".parse().expect("a range")], allow: Vec::new() };
    site.routes.push(Route { path: "/closed/".to_owned(), access, ..files() });
    config
}

/// The values of `Strict-Transport-Security` in a response.
fn hsts(response: &Response) -> Vec<&str> {
    let lines = response.head.lines().filter_map(|line| line.split_once(": "));
    let is_it = |(name, _): &(&str, _)| name.eq_ignore_ascii_case("Strict-Transport-Security");
    lines.filter(is_it).map(|(_, value)| value).collect()
}

#[test]
fn rfc6797_7_responses_over_tls_tell_browsers_to_stay_there() {
    let mut stage = Stage::new(&strict());
    stage.world.make_dir("dir");
    stage.world.make_dir("own");
    stage.world.write_file("own/small", &content(1, 100));
    stage.world.write_file("large", &content(2, 700_000));
    let with = |fields: &str| format!("GET /small HTTP/1.1\r\nHost: a.org\r\n{fields}\r\n\r\n");
    let tag = stage.ask(None, &get("/small", "a.org"));
    let tag = field(&tag, "ETag").expect("a tag").to_owned();
    let a_year = "max-age=15552000";
    for (request, status, expected) in [
        (get("/small", "a.org"), 200, a_year),
        // From memory.
        (get("/small", "a.org"), 200, a_year),
        (get("/large", "a.org"), 200, a_year),
        (get("/large", "a.org"), 200, a_year),
        (with("Range: bytes=1-5"), 206, a_year),
        (with(&format!("If-None-Match: {tag}")), 304, a_year),
        (with("Range: bytes=1000-"), 416, a_year),
        (with("Connection: close"), 200, a_year),
        ("GET /small HTTP/1.0\r\nHost: a.org\r\n\r\n".to_owned(), 200, a_year),
        (get("/dir", "a.org"), 301, a_year),
        (get("/old", "a.org"), 302, a_year),
        (get("/text", "a.org"), 200, a_year),
        (get("/closed/", "a.org"), 403, a_year),
        (get("/none", "a.org"), 404, a_year),
        (get("/%", "a.org"), 400, a_year),
        (get("/metrics", "a.org"), 200, a_year),
        ("POST /small HTTP/1.1\r\nHost: a.org\r\n\r\n".to_owned(), 405, a_year),
        ("OPTIONS * HTTP/1.1\r\nHost: a.org\r\n\r\n".to_owned(), 204, a_year),
        // No handler answers these; the site of malformed heads is the default one.
        (with("A B: c"), 400, a_year),
        ("GET / HTTP/3.0\r\n\r\n".to_owned(), 505, a_year),
        // Another host than that of the handshake; the browser mistakes it for that of the host.
        (get("/small", "other.org"), 421, a_year),
        // A rule of the route.
        (get("/own/small", "a.org"), 200, "max-age=0"),
        (get("/own/small", "a.org"), 200, "max-age=0"),
        (get("/own/none", "a.org"), 404, "max-age=0"),
        // A site without it.
        (get("/small", "b.org"), 200, ""),
        (get("/none", "b.org"), 404, ""),
    ] {
        for hello in [Some("a.org||a.org,b.org"), None] {
            if hello.is_none() && status == 421 {
                continue;
            }
            let response = stage.ask(hello, &request);
            assert_eq!(response.status, status, "{request}");
            let is_by_rule = expected == "max-age=0";
            let expected = if hello.is_some() || is_by_rule { expected } else { "" };
            let expected: Vec<_> =
                Some(expected).filter(|text| !text.is_empty()).into_iter().collect();
            assert_eq!(hsts(&response), expected, "{hello:?} {request}: {}", response.head);
            if status == 200 && request.contains("/small") {
                assert_eq!(response.body, content(1, 100), "{request}");
            } else if request.contains("/large") {
                assert!(response.body == content(2, 700_000), "{request}");
            }
        }
    }
}

#[test]
fn what_is_refused_before_the_routes_has_the_fields_of_its_site() {
    let mut config = sites(&[&["a.org"], &["b.org"]]);
    for (site, name) in config.sites.iter_mut().zip(["a", "b"]) {
        site.headers = vec![config::rule::header(&format!("X-Site: {name}")).expect("a rule")];
        site.hsts = Some(Duration::from_secs(60));
        site.https = Https::Redirect;
    }
    let mut stage = Stage::new(&config);
    let tls = Some("a.org||a.org");
    for (hello, request, status, expected) in [
        // The handshake was for another site, whose field the response does not have.
        (tls, get("/small", "b.org"), 421, "b"),
        (tls, "GET / HTTP/3.0\r\n\r\n".to_owned(), 505, "a"),
        (None, get("/small", "b.org"), 308, "b"),
        (None, get("/small", "a.org"), 308, "a"),
        (None, "OPTIONS * HTTP/1.1\r\nHost: b.org\r\n\r\n".to_owned(), 204, "b"),
    ] {
        let response = stage.ask(hello, &request);
        assert_eq!(response.status, status, "{request}");
        assert_eq!(field(&response, "X-Site"), Some(expected), "{request}: {}", response.head);
        assert_eq!(hsts(&response).len(), usize::from(hello.is_some()), "{request}");
    }
}

#[test]
fn a_trusted_proxy_may_speak_tls_for_a_site_with_hsts() {
    let mut config = strict();
    let ask = |config: &Config, hello: Option<&str>, fields: &str| {
        let mut stage = Stage::new(config);
        ["GET", "BREW"].map(|method| {
            let request = format!("{method} /small HTTP/1.1\r\nHost: a.org\r\n{fields}\r\n\r\n");
            !hsts(&stage.ask(hello, &request)).is_empty()
        })
    };
    let tls = Some("a.org||a.org");
    for (is_trusted, hello, fields, expected) in [
        (false, None, "X-Forwarded-Proto: https", false),
        (false, tls, "X-Forwarded-Proto: http", true),
        (true, None, "X-Other: 1", false),
        (true, None, "X-Forwarded-Proto: https", true),
        (true, None, "Forwarded: proto=https", true),
        (true, None, "X-Forwarded-Proto: http", false),
        (true, tls, "X-Other: 1", true),
        (true, tls, "X-Forwarded-Proto: http", false),
    ] {
        let proxies = is_trusted.then(|| "10.0.0.0/8".parse().expect("a range"));
        config.server.trusted_proxies = proxies.into_iter().collect();
        assert_eq!(ask(&config, hello, fields), [expected; 2], "{is_trusted} {hello:?} {fields}");
    }
}

/// The head and the body of a request that is passed on, which gets an answer.
fn passed(stage: &mut Stage, server: &PeerListener, hello: Option<&str>, request: &str) -> String {
    let listener = stage.listeners[if hello.is_some() { TLS } else { PLAIN }];
    let mut client = Plain::new(Rc::new(stage.world.connect_to(listener)), 1);
    let hello = hello.map(|hello| format!("{hello}\n")).unwrap_or_default();
    client.send(format!("{hello}{request}").as_bytes());
    let (mut link, mut bytes) = (None, Vec::new());
    let is_whole = run_until(&mut stage.worker, || {
        link = link.take().or_else(|| server.accept());
        bytes.extend(link.as_ref().map(Peer::take).unwrap_or_default());
        let end: &[u8] = if request.contains("chunked") { b"0\r\n" } else { b"\r\n\r\n" };
        bytes.ends_with(b"\r\n\r\n") && bytes.windows(end.len()).any(|part| part == end)
    });
    let sent = String::from_utf8(bytes).expect("a text");
    assert!(is_whole, "{request}: {sent}");
    sent
}

#[test]
fn the_subject_of_a_certificate_is_a_field_that_no_client_can_send_on_any_route() {
    let mut config = sites(&[&["a.org"], &["b.org"]]);
    let route = |path: &str, fields: &[(&str, &str)]| {
        let servers = vec![config::upstream::server("http://192.0.2.1:80").expect("a server")];
        let upstream = Upstream { servers, rules: GatewayRules::default() };
        let field = |(name, text): &(&str, &str)| RequestHeader::new(name, text).expect("a field");
        Route {
            path: path.to_owned(),
            action: Action::Proxy(upstream),
            request_headers: fields.iter().map(field).collect(),
            ..Route::default()
        }
    };
    config.sites[0].routes.push(route("/staff/", &[("X-Client", "$tls-client"), ("X-A", "a")]));
    config.sites[0].routes.push(route("/open/", &[]));
    config.sites[0].routes.push(route("/own/", &[("x_client", "nobody")]));
    config.sites[1].routes.push(route("/app/", &[("X-A", "b")]));
    let mut stage = Stage::new(&config);
    let server = stage.world.listen(core::net::SocketAddr::from(([192, 0, 2, 1], 80)));
    let both = "a.org,b.org";
    for (hello, host, path, expected) in [
        (Some("a.org|CN=al,O=b|a.org"), "a.org", "/staff/", Some("X-Client: CN=al,O=b")),
        (Some("a.org||a.org"), "a.org", "/staff/", None),
        (None, "a.org", "/staff/", None),
        (Some("a.org|CN=al|a.org"), "a.org", "/open/", None),
        (None, "a.org", "/open/", None),
        (None, "a.org", "/own/", Some("x_client: nobody")),
        (Some(&*format!("b.org|CN=al|{both}")), "b.org", "/app/", None),
        (None, "b.org", "/app/", None),
    ] {
        for (fields, end) in [
            ("", "\r\n"),
            ("Connection: X-Client\r\n", "\r\n"),
            ("Transfer-Encoding: chunked\r\n", "\r\n1\r\na\r\n0\r\nX-Client: CN=forged\r\n\r\n"),
        ] {
            let request = format!(
                "POST {path} HTTP/1.1\r\nHost: {host}\r\nX-Client: CN=forged\r\n\
                 x-client: CN=forged\r\nX_Client: CN=forged\r\n{fields}{end}"
            );
            let sent = passed(&mut stage, &server, hello, &request);
            let is_it = |line: &&str| line.to_lowercase().replace('_', "-").starts_with("x-client");
            let found: Vec<_> = sent.lines().filter(is_it).collect();
            assert_eq!(found, Vec::from_iter(expected), "{hello:?} {host}{path}: {sent}");
            assert!(!sent.contains("forged"), "{sent}");
        }
    }
}

#[test]
fn requests_are_counted_by_the_scheme_that_their_clients_have_asked_for() {
    for (is_trusted, expected) in [(false, [2.0, 2.0]), (true, [1.0, 3.0])] {
        let mut config = sites(&[&["a.org"]]);
        let proxies = is_trusted.then(|| "10.0.0.0/8".parse().expect("a range"));
        config.server.trusted_proxies = proxies.into_iter().collect();
        let mut stage = Stage::new(&config);
        let small = get("/small", "a.org");
        let told = "GET / HTTP/1.1\r\nHost: a.org\r\nX-Forwarded-Proto: https\r\n\r\n";
        for (hello, request) in [
            (None, &small[..]),
            (None, told),
            (Some("a.org||a.org"), &small),
            (Some("a.org||a.org"), "GET / HTTP/3.0\r\n\r\n"),
        ] {
            stage.ask(hello, request);
        }
        let metrics = stage.metrics();
        let count = |scheme| {
            let name = "http_server_request_duration_seconds_count";
            metrics.sum(name, &[("url_scheme", scheme)])
        };
        assert_eq!(["http", "https"].map(count), expected, "{is_trusted}");
    }
}

#[test]
fn requests_that_are_being_answered_are_counted_by_the_scheme_of_their_connection() {
    let mut stage = Stage::new(&sites(&[&["a.org"]]));
    // More than any socket takes.
    stage.world.write_file("large", &content(2, 7_000_000));
    let active = |stage: &mut Stage| {
        let metrics = stage.metrics();
        let count = |scheme| metrics.sum("http_server_active_requests", &[("url_scheme", scheme)]);
        ["http", "https"].map(count)
    };
    let mut clients = Vec::new();
    for (hello, expected) in [
        (Some("a.org||a.org\n"), [0.0, 1.0]),
        (Some("a.org||a.org\n"), [0.0, 2.0]),
        (None, [1.0, 2.0]),
    ] {
        let listener = stage.listeners[if hello.is_some() { TLS } else { PLAIN }];
        let client = stage.world.connect_to(listener);
        client.stop_reading();
        client.send(format!("{}{}", hello.unwrap_or_default(), get("/large", "a.org")).as_bytes());
        clients.push(client);
        pass(&mut stage.worker, Duration::from_secs(1));
        assert_eq!(active(&mut stage), expected);
    }
    clients.clear();
    pass(&mut stage.worker, Duration::from_secs(1));
    assert_eq!(active(&mut stage), [0.0, 0.0]);
}

#[test]
fn tls_within_tls_is_no_request() {
    let mut stage = Stage::new(&sites(&[&["a.org"]]));
    let response = stage.ask(Some("a.org||a.org"), "\u{16}\u{3}\u{1}\r\n\r\n");
    assert_eq!(response.status, 400);
}
