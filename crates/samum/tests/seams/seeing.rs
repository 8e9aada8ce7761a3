//! What the server tells of itself, on a virtual clock: waits for the disk to the microsecond, cut
//! responses, connections.

use core::time::Duration;
use std::rc::Rc;
use std::sync::Arc;

use config::{Action, Config, FileRules, Files, Route, Site};
use handler::serving::Snapshot;
use ring::sim::{Config as Simulation, World};
use samum::worker::Worker;
use testkit::metrics::Metrics;

use crate::options::Options;
use crate::seams::stage::{Response, content, parse_whole};
use crate::seams::world::{Client, Plain, config, for_seeds, parts, pass, run_until};

/// The time of each read from the disk, and of each look at a name.
const DISK: Duration = Duration::from_millis(20);
const METADATA: Duration = Duration::from_millis(3);
/// Longer than the buffer of a socket.
const LARGE: usize = 700_000;

/// Two sites with the same files; the first shows the metrics, the second tells the time in its
/// responses.
fn sites() -> Config {
    let mut config = Config::default();
    let site = config.sites.remove(0);
    for name in ["a.example", "b.example"] {
        let files = Files { root: ".".into(), rules: FileRules::default() };
        let files = Route {
            action: Action::Files(files),
            server_timing: name == "b.example",
            ..Route::default()
        };
        let metrics =
            Route { path: "/metrics".to_owned(), action: Action::Metrics, ..Route::default() };
        let routes = if name == "a.example" { vec![files, metrics] } else { vec![files] };
        let (hosts, is_default) = (vec![name.to_owned()], name == "a.example");
        config.sites.push(Site {
            name: name.to_owned(),
            hosts,
            is_default,
            routes,
            ..site.clone()
        });
    }
    config
}

struct Stage {
    world: World,
    worker: Worker,
    seed: u64,
}

impl Stage {
    fn new(seed: u64) -> Self {
        let exactly = |time| time..=time;
        let world = World::new(Simulation {
            disk: exactly(DISK),
            metadata: exactly(METADATA),
            network: exactly(Duration::from_micros(100)),
            ..config(seed)
        });
        world.write_file("large", &content(seed, LARGE));
        world.write_file("small", &content(seed, 100));
        world.evict_all();
        let mut parts = parts(&world, Options::default());
        parts.snapshot = Arc::new(Snapshot::new(&sites()).expect("valid hosts"));
        let worker = Worker::new(parts).expect("memory");
        Self { world, worker, seed }
    }

    fn client(&self) -> Plain {
        Plain::new(Rc::new(self.world.connect()), self.seed)
    }

    /// The response to a request on a connection of its own, which the client closes then.
    fn ask(&mut self, host: &str, method: &str, path: &str) -> Response {
        let mut client = self.client();
        client.send(format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes());
        let mut response = None;
        run_until(&mut self.worker, || {
            client.look();
            response = parse_whole(client.received());
            response.is_some()
        });
        response.expect("a response")
    }

    fn metrics(&mut self) -> Metrics {
        let page = self.ask("a.example", "GET", "/metrics");
        assert!(
            page.head.contains("\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n")
        );
        assert!(page.head.contains("\r\nCache-Control: no-store\r\n"), "{}", page.head);
        Metrics::parse(&String::from_utf8(page.body).expect("text")).expect("a valid page")
    }
}

const A: (&str, &str) = ("server_address", "a.example");
const B: (&str, &str) = ("server_address", "b.example");

#[test]
fn requests_are_counted_with_what_they_waited_for() {
    for_seeds(10, |seed| {
        let mut stage = Stage::new(seed);
        for _ in 0..3 {
            assert_eq!(stage.ask("a.example", "GET", "/large").status, 200);
        }
        assert_eq!(stage.ask("b.example", "GET", "/missing").status, 404);
        assert_eq!(stage.ask("b.example", "BREW", "/small").status, 501);
        let metrics = stage.metrics();
        let count =
            |labels: &[_]| metrics.sum("http_server_request_duration_seconds_count", labels);
        let (get, ok) = (("http_request_method", "GET"), ("http_response_status_code", "200"));
        assert_eq!(count(&[A, get, ok, ("url_scheme", "http")]), 3.0);
        assert_eq!(count(&[B, get, ("http_response_status_code", "404")]), 1.0);
        assert_eq!(count(&[B, ("http_request_method", "_OTHER")]), 1.0);
        assert_eq!(count(&[]), 5.0);
        let bytes = metrics.sum("http_server_response_body_size_bytes_sum", &[A]);
        assert_eq!(bytes, 3.0 * LARGE as f64);

        let wait = |suffix: &str, labels: &[_]| {
            metrics.sum(&format!("samum_request_disk_wait_seconds{suffix}"), labels)
        };
        assert_eq!(wait("_bucket", &[A, ("le", "0.00005")]), 2.0, "two of them were hot");
        // The name is looked up, and at least the first read is waited for.
        let (waited, least) = (wait("_sum", &[A]), (METADATA + DISK).as_secs_f64());
        let duration = metrics.sum("http_server_request_duration_seconds_sum", &[A]);
        assert!(least <= waited && waited <= duration, "{least} {waited} {duration}");

        let residency = |result| metrics.sum("samum_residency_bytes_total", &[("result", result)]);
        assert_eq!(residency("hit") + residency("miss"), 3.0 * LARGE as f64);
        assert!(residency("hit") >= 2.0 * LARGE as f64);
        let reads = metrics.sum("samum_disk_reads_total", &[]);
        assert_eq!(metrics.sum("samum_residency_total", &[("result", "miss")]), reads);
        let time = metrics.sum("samum_disk_read_seconds_total", &[]);
        assert!(time >= reads * DISK.as_secs_f64() * 0.99, "{reads} reads in {time} s");
        assert_eq!(metrics.sum("samum_disk_reads_in_flight", &[]), 0.0);
        assert_eq!(metrics.sum("samum_connections_accepted_total", &[]), 6.0);
        assert_eq!(metrics.sum("samum_responses_total", &[]), 5.0);
        // Those of the scrapes are counted, too.
        let metrics = stage.metrics();
        assert_eq!(metrics.sum("http_server_request_duration_seconds_count", &[A]), 4.0);
        assert_eq!(stage.world.stalls(), [], "a sendfile would have slept");
    });
}

#[test]
fn what_goes_on_and_what_is_given_up_is_counted() {
    for_seeds(10, |seed| {
        let mut stage = Stage::new(seed);
        let slow = Rc::new(stage.world.connect());
        slow.stop_reading();
        slow.send(b"GET /large HTTP/1.1\r\nHost: b.example\r\n\r\n");
        let _silent = stage.world.connect();
        let half = stage.world.connect();
        half.send(b"GET /sm");
        pass(&mut stage.worker, Duration::from_secs(1));
        let metrics = stage.metrics();
        assert_eq!(metrics.sum("http_server_active_requests", &[("url_scheme", "http")]), 1.0);
        assert_eq!(metrics.sum("samum_connections_open", &[]), 4.0);
        assert_eq!(metrics.sum("samum_connections", &[]), 4.0);
        let with = |metrics: &Metrics, state| metrics.sum("samum_connections", &[("state", state)]);
        assert_eq!((with(&metrics, "writing"), with(&metrics, "reading")), (1.0, 1.0));
        assert_eq!(metrics.sum("http_server_request_duration_seconds_count", &[B]), 0.0);

        pass(&mut stage.worker, Duration::from_secs(100));
        let metrics = stage.metrics();
        let closed = |reason| metrics.sum("samum_connections_closed_total", &[("reason", reason)]);
        assert_eq!((closed("send"), closed("idle"), closed("header")), (1.0, 1.0, 1.0));
        assert_eq!((closed("place"), closed("half-closed")), (0.0, 0.0));
        assert_eq!(metrics.sum("http_server_active_requests", &[]), 0.0);
        assert_eq!(metrics.sum("samum_connections_open", &[]), 1.0);
        for state in ["reading", "writing", "tunnel", "handshake"] {
            assert_eq!(with(&metrics, state), 0.0, "{state}");
        }
        // It is counted with what it was sent, and so is the request that was not complete.
        assert_eq!(metrics.sum("http_server_request_duration_seconds_count", &[B]), 1.0);
        let sent = metrics.sum("http_server_response_body_size_bytes_sum", &[B]);
        assert!(0.0 < sent && sent < LARGE as f64, "{sent}");
        let timed_out =
            [A, ("http_response_status_code", "408"), ("http_request_method", "_OTHER")];
        assert_eq!(metrics.sum("http_server_request_duration_seconds_count", &timed_out), 1.0);
    });
}

#[test]
fn a_response_tells_how_long_its_file_was_looked_for() {
    for_seeds(10, |seed| {
        let mut stage = Stage::new(seed);
        let timing = |response: &Response| {
            let mut lines = response.head.lines();
            let value = lines.find_map(|line| line.strip_prefix("Server-Timing: disk;dur="))?;
            let (disk, find) = value.split_once(", find;dur=").expect("two parts");
            Some((disk.parse::<f64>().unwrap(), find.parse::<f64>().unwrap()))
        };
        let (disk, find) = timing(&stage.ask("b.example", "GET", "/small")).expect("it is cold");
        assert!(disk >= METADATA.as_secs_f64() * 1e3 && disk == find, "{disk} {find}");
        assert_eq!(timing(&stage.ask("b.example", "GET", "/small")), Some((0.0, 0.0)));
        assert_eq!(timing(&stage.ask("a.example", "GET", "/small")), None);
    });
}
