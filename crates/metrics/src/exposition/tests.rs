use core::time::Duration;
use std::time::{SystemTime, UNIX_EPOCH};

use http::{Method, Status};
use testkit::metrics::Metrics as Parsed;

use super::*;
use crate::{Meters, MethodLabel, Observation, SchemeLabel, SiteLabel, StatusLabel};

/// The text, made in parts of about this many bytes.
fn text(metrics: &Metrics, part: usize) -> String {
    let mut exposition = metrics.exposition(core::iter::empty(), None);
    let mut text = String::new();
    loop {
        let next = exposition.next_part(part);
        if next.is_empty() {
            return text;
        }
        text += &next;
    }
}

fn observe(meters: &mut Meters, site: SiteLabel, method: Method<'_>, code: u16, micros: u64) {
    meters.observe(&Observation {
        site,
        scheme: SchemeLabel::Http,
        method: MethodLabel::of(method),
        status: StatusLabel::of(Status::from_code(code).unwrap()),
        duration: Duration::from_micros(micros),
        body_bytes: 1000,
        request_body_bytes: 500,
        disk_wait: Duration::from_micros(micros / 2),
    });
}

#[test]
fn the_numbers_of_all_workers_are_added_up() {
    let metrics = Metrics::new(2);
    let mut workers = [0, 1].map(|worker| metrics.meters(worker));
    for (worker, meters) in workers.iter_mut().enumerate() {
        let sites = meters.configure(["a.example", "we\"ird\\"]);
        for _ in 0..=worker {
            observe(meters, sites[0], Method::Get, 200, 60);
            observe(meters, sites[1], Method::Get, 200, 20_000_000);
        }
        observe(meters, sites[1 - worker], Method::Other(b"BREW"), 418, 1);
        let counters = meters.counters();
        counters.accepted.set(5);
        counters.header_timeouts.set(1);
        counters.idle_timeouts.set(2);
        meters.end_turn(Duration::from_micros(300 * (worker as u64 + 1)));
    }
    let parsed = Parsed::parse(&text(&metrics, 1 << 20)).unwrap();
    let duration = "http_server_request_duration_seconds";
    let count =
        |suffix: &str, labels: &[(&str, &str)]| parsed.sum(&format!("{duration}{suffix}"), labels);
    let (a, weird) = (("server_address", "a.example"), ("server_address", "we\"ird\\"));
    assert_eq!(count("_count", &[]), 8.0);
    assert_eq!(count("_count", &[a]), 4.0);
    let get = [a, ("http_request_method", "GET"), ("http_response_status_code", "200")];
    assert_eq!(count("_count", &get), 3.0);
    assert_eq!(count("_bucket", &[&get[..], &[("le", "0.00005")]].concat()), 0.0);
    assert_eq!(count("_bucket", &[&get[..], &[("le", "0.0001")]].concat()), 3.0);
    assert!((count("_sum", &get) - 0.000_18).abs() < 1e-12);
    assert_eq!(count("_bucket", &[weird, ("le", "10")]), 1.0);
    assert_eq!(count("_bucket", &[weird, ("le", "+Inf")]), 4.0);
    let other = [("http_request_method", "_OTHER"), ("http_response_status_code", "4xx")];
    assert_eq!(count("_count", &other), 2.0);
    assert_eq!(parsed.sum("http_server_response_body_size_bytes_sum", &[]), 8000.0);
    assert_eq!(parsed.sum("http_server_request_body_size_bytes_sum", &[]), 4000.0);
    let small = [a, ("le", "512")];
    assert_eq!(parsed.sum("http_server_request_body_size_bytes_bucket", &small), 4.0);
    assert_eq!(parsed.sum("samum_request_disk_wait_seconds_count", &[weird]), 4.0);
    assert_eq!(parsed.sum("samum_connections_accepted_total", &[]), 10.0);
    let closed = |reason| parsed.sum("samum_connections_closed_total", &[("reason", reason)]);
    assert_eq!((closed("idle"), closed("header"), closed("send")), (4.0, 2.0, 0.0));
    assert_eq!(parsed.sum("samum_worker_turn_seconds_bucket", &[("le", "0.0005")]), 1.0);
    assert_eq!(parsed.sum("samum_worker_turn_longest_seconds", &[]), 0.000_6);
}

#[test]
fn requests_and_handshakes_are_told_apart_by_scheme_and_version() {
    let metrics = Metrics::new(2);
    for (worker, count) in [(0, 1), (1, 10)] {
        let mut meters = metrics.meters(worker);
        let site = meters.configure(["a"])[0];
        for (scheme, times) in [(SchemeLabel::Http, 1), (SchemeLabel::Https, 2)] {
            for _ in 0..times {
                meters.observe(&Observation {
                    site,
                    scheme,
                    method: MethodLabel::of(Method::Get),
                    status: StatusLabel::of(Status::Ok),
                    duration: Duration::ZERO,
                    body_bytes: 0,
                    request_body_bytes: 0,
                    disk_wait: Duration::ZERO,
                });
            }
        }
        let counters = meters.counters();
        counters.active_requests.set(count);
        counters.active_requests_tls.set(2 * count);
        counters.tls_handshakes_under_way.set(3 * count);
        counters.tls_handshakes_failed.set(4 * count);
        counters.tls_clients_refused.set(5 * count);
        counters.tls12_full.set(5 * count);
        counters.tls12_resumed.set(6 * count);
        counters.tls13_full.set(7 * count);
        counters.tls13_resumed.set(8 * count);
        counters.tls_misdirected.set(9 * count);
        counters.tls_handshakes_refused.set(10 * count);
        counters.tls_took[1].set(11 * count);
        counters.tls_took_above.set(12 * count);
        counters.tls_took_us.set(13_000_000 * count);
        meters.end_turn(Duration::ZERO);
    }
    let parsed = Parsed::parse(&text(&metrics, 1)).unwrap();
    let sum = |name: &str, labels: &[(&str, &str)]| parsed.sum(name, labels);
    let count =
        |scheme| sum("http_server_request_duration_seconds_count", &[("url_scheme", scheme)]);
    assert_eq!((count("http"), count("https")), (2.0, 4.0));
    let active = |scheme| sum("http_server_active_requests", &[("url_scheme", scheme)]);
    assert_eq!((active("http"), active("https")), (11.0, 22.0));
    let handshakes = |version, resumed| {
        sum("samum_tls_handshakes_total", &[("version", version), ("resumed", resumed)])
    };
    assert_eq!((handshakes("1.2", "false"), handshakes("1.2", "true")), (55.0, 66.0));
    assert_eq!((handshakes("1.3", "false"), handshakes("1.3", "true")), (77.0, 88.0));
    assert_eq!(sum("samum_tls_handshakes", &[]), 33.0);
    let failed = |reason| sum("samum_tls_handshakes_failed_total", &[("reason", reason)]);
    assert_eq!((failed("other"), failed("client-certificate")), (44.0, 55.0));
    assert_eq!(sum("samum_tls_misdirected_total", &[]), 99.0);
    assert_eq!(sum("samum_tls_handshakes_refused_total", &[]), 110.0);
    assert_eq!(sum("samum_tls_handshake_seconds_bucket", &[("le", "0.001")]), 121.0);
    assert_eq!(sum("samum_tls_handshake_seconds_count", &[]), 253.0);
    assert_eq!(sum("samum_tls_handshake_seconds_sum", &[]), 143.0);
}

#[test]
fn the_parts_do_not_change_the_text() {
    let metrics = Metrics::new(1);
    let mut meters = metrics.meters(0);
    let names: Vec<_> = (0..20).map(|number| format!("site-{number}")).collect();
    for (number, site) in meters.configure(names.iter().map(|name| &name[..])).iter().enumerate() {
        for code in [200, 304, 404] {
            observe(&mut meters, *site, Method::Get, code, number as u64);
        }
    }
    meters.end_turn(Duration::ZERO);
    let whole = text(&metrics, usize::MAX);
    Parsed::parse(&whole).unwrap();
    for part in [1, 1000, 10_000, 100_000] {
        assert!(text(&metrics, part) == whole, "parts of {part}");
    }
}

#[test]
fn sites_cost_nothing_before_their_first_request_and_leave_when_they_are_removed() {
    let metrics = Metrics::new(1);
    let mut meters = metrics.meters(0);
    let empty = text(&metrics, 1);
    Parsed::parse(&empty).unwrap();
    let names: Vec<_> = (0..10_000).map(|number| format!("site-{number}")).collect();
    let sites = meters.configure(names.iter().map(|name| &name[..]));
    meters.end_turn(Duration::ZERO);
    assert!(!text(&metrics, 1).contains("site-"), "no series without a request");
    observe(&mut meters, sites[7], Method::Get, 200, 1);
    meters.end_turn(Duration::ZERO);
    assert!(text(&metrics, 1).contains("site-7"));
    meters.configure(["other"]);
    meters.end_turn(Duration::ZERO);
    assert!(!text(&metrics, 1).contains("site-"));
}

#[test]
fn loads_of_the_configuration_are_shown() {
    let metrics = Metrics::new(1);
    metrics.note_load(Some("abc"), UNIX_EPOCH + Duration::from_secs(1000));
    metrics.note_failed_load("no such key", SystemTime::UNIX_EPOCH);
    let parsed = Parsed::parse(&text(&metrics, 1)).unwrap();
    let loads = |result| parsed.sum("samum_config_loads_total", &[("result", result)]);
    assert_eq!((loads("success"), loads("failure")), (1.0, 1.0));
    assert_eq!(parsed.sum("samum_config_last_load_successful", &[]), 0.0);
    assert_eq!(parsed.sum("samum_config_last_load_success_timestamp_seconds", &[]), 1000.0);
    assert_eq!(parsed.sum("samum_config_info", &[("hash", "abc")]), 1.0);
    metrics.note_load(Some("def"), UNIX_EPOCH + Duration::from_secs(2000));
    let parsed = Parsed::parse(&text(&metrics, 1)).unwrap();
    assert_eq!(parsed.sum("samum_config_info", &[("hash", "def")]), 1.0);
    assert_eq!(parsed.sum("samum_config_last_load_successful", &[]), 1.0);
}

/// Each family of the text has a row in the document, with its type and the names and values of its labels, and the
/// document has no others.
#[test]
fn certificates_are_shown_by_the_time_at_which_they_expire() {
    let metrics = Metrics::new(1);
    assert!(!text(&metrics, 1).contains("samum_tls_certificate_expiry_seconds"));
    let certificate = |number: i64| CertificateNumbers {
        site: format!("{number}.example"),
        file: "/etc/ssl/a\"b.pem".to_owned(),
        expires_at: 1_800_000_000 - number,
    };
    metrics.set_certificates((0..1_100).map(certificate).collect());
    metrics.note_renewal();
    metrics.note_failed_renewal();
    metrics.note_failed_renewal();
    let shown = text(&metrics, 1);
    let name = "samum_tls_certificate_expiry_seconds";
    let all: Vec<_> = shown.lines().filter(|line| line.starts_with(name)).collect();
    assert_eq!(all.len(), CERTIFICATES_SHOWN_MAX);
    let file = r#"file="/etc/ssl/a\"b.pem""#;
    assert_eq!(
        all[0],
        format!("{name}{{server_address=\"1099.example\",{file}}} 1799998901"),
        "what expires first is never left out"
    );
    let parsed = Parsed::parse(&shown).unwrap();
    let renewals = |result| parsed.sum("samum_tls_renewals_total", &[("result", result)]);
    assert_eq!((renewals("success"), renewals("failure")), (1.0, 2.0));
}

#[test]
fn many_servers_have_few_histograms() {
    let metrics = Metrics::new(1);
    let server = |number: u64| {
        let mut counts = [0; UPSTREAM_BOUNDS.len() + 1];
        (counts[0], counts[UPSTREAM_BOUNDS.len()]) = (2, 1);
        let times = UpstreamTimes { counts, sum: 31_000_000_000 };
        ServerNumbers { server: number.to_string(), times, ..ServerNumbers::default() }
    };
    let text = metrics.exposition((0..500).map(server), None).next_part(usize::MAX);
    let parsed = Parsed::parse(&text).unwrap();
    let name = "samum_upstream_response_seconds";
    let series = text.lines().filter(|line| line.starts_with(name)).count();
    assert!((900..=1000).contains(&series), "{series}");
    let of = |suffix: &str, labels: &[(&str, &str)]| parsed.sum(&format!("{name}{suffix}"), labels);
    let first = ("server", "0");
    assert_eq!(of("_bucket", &[first, ("le", "0.005")]), 2.0);
    assert_eq!(of("_bucket", &[first, ("le", "30")]), 2.0);
    assert_eq!(of("_bucket", &[first, ("le", "+Inf")]), 3.0);
    assert_eq!((of("_count", &[first]), of("_sum", &[first])), (3.0, 31.0));
    assert!(!text.contains("process_"), "there is no /proc");
}

#[test]
fn the_document_shows_all_families() {
    let metrics = Metrics::new(1);
    metrics.set_certificates(vec![CertificateNumbers {
        site: String::new(),
        file: String::new(),
        expires_at: 0,
    }]);
    let mut meters = metrics.meters(0);
    let site = meters.configure(["a"])[0];
    observe(&mut meters, site, Method::Get, 200, 1);
    meters.end_turn(Duration::ZERO);
    metrics.note_load(Some("abc"), UNIX_EPOCH);
    let process =
        ProcessNumbers { descriptors: Some(3), started: Some(1), ..ProcessNumbers::default() };
    let servers = [ServerNumbers::default()].into_iter();
    let text = metrics.exposition(servers, Some(&process)).next_part(usize::MAX);
    let mut shown: Vec<_> = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")).collect();
    shown.sort_unstable();

    let document = include_str!("../../../../docs/logs-and-metrics.md");
    let mut rows = Vec::new();
    for line in document.lines().skip_while(|line| *line != "## Metrics") {
        let cells: Vec<_> = line.split('|').map(str::trim).collect();
        let [_, names, kind @ ("counter" | "gauge" | "histogram"), ..] = cells[..] else {
            continue;
        };
        rows.extend(names.split(", ").map(|name| format!("{} {kind}", name.trim_matches('`'))));
    }
    rows.sort_unstable();
    assert_eq!(rows, shown);
    for Family { name, samples, .. } in FAMILIES {
        let row = document.lines().find(|line| line.contains(&format!("`{name}`"))).expect("a row");
        for (label, _) in *samples {
            let value = label.split('"').nth(1).filter(|_| *name != "http_server_active_requests");
            let is_shown = value.is_none_or(|value| row.contains(&format!("`{value}`")));
            assert!(is_shown, "{label} is not in the row of {name}");
        }
    }
}
