use metrics::{CertificateNumbers, Loads, RefusedLoad, SiteNumbers, UpstreamTimes};
use serde_json::Value;
use std::time::SystemTime;

use super::*;

/// Figures whose lists have this many entries, with this text wherever there is one.
fn figures(entries: usize, text: &str) -> Figures {
    let owned = || text.to_owned();
    let server = |number: usize| ServerNumbers {
        upstream: owned(),
        server: owned(),
        is_up: number > 0,
        requests: u64::MAX,
        in_flight: 3,
        failures: u64::MAX,
        times: UpstreamTimes { counts: [1 << 50; 10], sum: u64::MAX },
        handshakes: None,
    };
    let site = |_| SiteNumbers {
        name: text.into(),
        requests: u64::MAX,
        failed: 1 << 60,
        body_bytes: u64::MAX,
    };
    let reads = sendfile::DeviceStats {
        begun: u64::MAX,
        ended: 2,
        time: Duration::from_millis(7),
        bytes: u64::MAX,
        waiting: 5,
        rate: Some(123),
    };
    let certificate = |_| CertificateNumbers { site: owned(), file: owned(), expires_at: i64::MAX };
    let example = |number: usize| Example {
        unix: i64::try_from(number).unwrap(),
        status: 404,
        method: owned(),
        host: owned(),
        path: owned(),
        id: owned(),
        reason: owned(),
    };
    let directory = |number: usize| programs::Numbers {
        mount: owned(),
        directory: owned().into(),
        running: 3,
        running_max: 4,
        waiting: number,
        waiting_max: 256,
    };
    let mut summary = Summary {
        workers: 2,
        stats: Stats {
            responses: 30,
            accepted: 10,
            active_requests: 4,
            connections: 100,
            tls_handshakes_under_way: 1,
            connections_reading: 2,
            connections_waiting: 3,
            connections_writing: 4,
            connections_tunnels: 5,
            ..Stats::default()
        },
        statuses: (0..entries).map(|_| (owned(), u64::MAX)).collect(),
        sites: (0..entries).map(site).collect(),
        sites_asked: entries,
        devices: (0..entries as u64)
            .map(|number| (Some((8, number)), DeviceNumbers { reads, unanswered: 1 }))
            .collect(),
        certificates: (0..entries).map(certificate).collect(),
        certificates_all: entries,
        loads: Loads {
            successes: 1,
            hash: Some(owned()),
            loaded_at: Some(SystemTime::UNIX_EPOCH + Duration::from_secs(77)),
            refusal: Some(RefusedLoad {
                at: SystemTime::UNIX_EPOCH + Duration::from_secs(88),
                text: (0..entries).flat_map(|_| [text, "\n"]).collect(),
            }),
            ..Loads::default()
        },
        ..Summary::default()
    };
    summary.latencies.counts[1] = 4;
    summary.latencies.sum = 400_000;
    Figures {
        at: Time::from_nanos(5_000_000_000),
        unix: 1_800_000_000,
        summary,
        process: Some(ProcessNumbers { resident: 4096, ..ProcessNumbers::default() }),
        servers: (0..entries).map(server).collect(),
        servers_all: entries,
        programs: (0..entries).map(directory).collect(),
        programs_all: entries,
        sites: entries,
        routes: entries,
        examples: (0..entries).map(example).collect(),
        viewers: 1,
    }
}

fn parse(text: &str) -> Value {
    assert!(text.len() <= BYTES_MAX && !text.contains('\n'), "{} bytes", text.len());
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn figures_are_shown_as_they_are() {
    let json = parse(&render(&figures(2, "a"), None));
    for (pointer, expected) in [
        ("/time", "1800000000"),
        ("/interval_seconds", "null"),
        ("/responses/total", "30"),
        ("/responses/per_second", "null"),
        ("/responses/under_way", "4"),
        ("/responses/statuses/shown/0/count", "18446744073709551615"),
        ("/latency/requests", "null"),
        ("/latency/p50_seconds", "null"),
        ("/latency_all/requests", "4"),
        ("/latency_all/mean_seconds", "0.0001"),
        ("/latency_all/p99_seconds", "0.0001"),
        ("/connections/accepted", "10"),
        ("/disks/shown/1/device", "\"8:1\""),
        ("/disks/shown/1/mean_seconds", "0.0035"),
        ("/disks/shown/1/reads_in_flight", "18446744073709551613"),
        ("/disks/shown/1/responses_waiting", "5"),
        ("/disks/shown/1/learned_bytes_per_second", "123"),
        ("/upstreams/shown/0/up", "false"),
        ("/upstreams/shown/1/up", "true"),
        ("/upstreams/more", "0"),
        ("/config/loaded", "77"),
        ("/connections/open", "100"),
        ("/connections/idle", "85"),
        ("/connections/handshakes", "1"),
        ("/connections/reading", "2"),
        ("/connections/waiting", "3"),
        ("/connections/writing", "4"),
        ("/connections/tunnels", "5"),
        ("/programs/shown/1/route", "\"a\""),
        ("/programs/shown/1/directory", "\"a\""),
        ("/programs/shown/1/running", "3"),
        ("/programs/shown/1/running_max", "4"),
        ("/programs/shown/1/waiting", "1"),
        ("/programs/shown/1/waiting_max", "256"),
        ("/config/last_load_refused", "true"),
        ("/config/last_refused", "88"),
        ("/refusal/shown/1/line", "\"a\""),
        ("/process/resident_bytes", "4096"),
        ("/process/started", "null"),
        ("/errors/shown/1/path", "\"a\""),
        ("/errors/shown/1/id", "\"a\""),
    ] {
        let found = json.pointer(pointer).unwrap_or_else(|| panic!("{pointer}: {json}"));
        assert_eq!(found.to_string(), expected, "{pointer}");
    }
}

#[test]
fn rates_are_those_since_earlier_figures() {
    let before = figures(1, "a");
    let mut now = figures(2, "a");
    now.at = Time::from_nanos(7_000_000_000);
    now.summary.stats.responses = 35;
    now.summary.latencies.counts[1] = 5;
    now.summary.latencies.sum += 50_000;
    now.summary.devices[0].1.reads.ended = 10;
    let earlier = Earlier::of(&before);
    let json = parse(&render(&now, Some(&earlier)));
    for (pointer, expected) in [
        ("/interval_seconds", 2.0),
        ("/responses/per_second", 2.5),
        ("/latency/requests", 1.0),
        ("/latency/mean_seconds", 0.00005),
        ("/disks/shown/0/reads_per_second", 4.0),
        ("/disks/shown/0/bytes_per_second", 0.0),
        // It was not read from before.
        ("/disks/shown/1/reads_per_second", 1.0),
    ] {
        assert_eq!(json.pointer(pointer).and_then(Value::as_f64), Some(expected), "{pointer}");
    }
    // A site has been removed, with its numbers: what came since is not known.
    now.summary.latencies.counts[1] = 3;
    now.summary.stats.responses = 29;
    let json = parse(&render(&now, Some(&earlier)));
    for pointer in ["/responses/per_second", "/latency/requests", "/latency/mean_seconds"] {
        assert_eq!(json.pointer(pointer), Some(&Value::Null), "{pointer}");
    }
    let json = parse(&render(&before, Some(&earlier)));
    assert_eq!(json.pointer("/responses/per_second"), Some(&Value::Null), "in no time");
}

#[test]
fn what_clients_sent_stays_one_visible_text() {
    for (text, shown) in [
        ("/a\r\nSet-Cookie: b", r"/a\u{d}\u{a}Set-Cookie: b"),
        ("\"}],\"x\":[{\"", "\"}],\"x\":[{\""),
        ("\\\" \\u0022", "\\\" \\u0022"),
        ("\x1b[2J\x07", r"\u{1b}[2J\u{7}"),
        ("<script>alert(1)</script>&amp;", "<script>alert(1)</script>&amp;"),
        ("\u{202e}gnp.exe", r"\u{202e}gnp.exe"),
        ("data: x\n\nevent: y", r"data: x\u{a}\u{a}event: y"),
        ("ä水😀", "ä水😀"),
    ] {
        let written = render(&figures(1, text), None);
        for char in ['<', '>', '&', '\x1b', '\n', '\r', '\u{202e}'] {
            assert!(!written.contains(char), "{text:?}: {written}");
        }
        let json = parse(&written);
        for pointer in [
            "/errors/shown/0/host",
            "/errors/shown/0/path",
            "/errors/shown/0/reason",
            "/errors/shown/0/method",
            "/responses/statuses/shown/0/status",
            "/sites/shown/0/name",
            "/upstreams/shown/0/server",
            "/certificates/shown/0/file",
            "/config/hash",
        ] {
            assert_eq!(json.pointer(pointer).and_then(Value::as_str), Some(shown), "{pointer}");
        }
    }
}

#[test]
fn a_long_text_is_cut_between_two_characters() {
    for text in ["x".repeat(1000), "é".repeat(400), "水".repeat(300), "\x1b".repeat(300)] {
        let json = parse(&render(&figures(1, &text), None));
        let path = json.pointer("/errors/shown/0/path").and_then(Value::as_str).unwrap();
        assert!(path.ends_with('…') && path.len() <= TEXT_BYTES_MAX + '…'.len_utf8(), "{path}");
    }
}

#[test]
fn ten_thousand_sites_fit_and_the_text_says_how_many_are_left_out() {
    let json = parse(&render(&figures(10_000, "site.example"), None));
    let shown = |name: &str| {
        let list = json.pointer(&format!("/{name}")).expect("a list");
        let shown = list["shown"].as_array().expect("entries").len() as u64;
        (shown, list["more"].as_u64().expect("a number"))
    };
    for name in ["sites", "upstreams", "certificates", "disks", "errors", "responses/statuses"] {
        let (listed, more) = shown(name);
        assert_eq!(listed + more, 10_000, "{name}");
        assert!((16..=LISTED_MAX as u64).contains(&listed), "{name}: {listed}");
    }
}

#[test]
fn no_text_makes_it_longer_than_its_limit() {
    for char in ['x', '<', '"', '\\', '\0', '\u{e0041}', '水'] {
        for entries in [1, 64, 1000] {
            let json = parse(&render(&figures(entries, &char.to_string().repeat(5000)), None));
            let sites = &json["sites"];
            let shown = sites["shown"].as_array().expect("entries").len();
            assert!(shown > 0, "{char:?} {entries}");
            assert_eq!(shown as u64 + sites["more"].as_u64().unwrap(), entries as u64);
        }
    }
}

#[test]
fn each_reason_has_a_counter_of_its_own() {
    let names: std::collections::BTreeSet<_> = REASONS.iter().map(|(name, _)| name).collect();
    assert_eq!(names.len(), REASONS.len());
    let all = Stats { forbidden: 2, log_lines_dropped: 3, ..Stats::default() };
    let mut figures = figures(0, "");
    assert_eq!(parse(&render(&figures, None))["reasons"]["shown"], Value::Array(Vec::new()));
    figures.summary.stats = all;
    let json = parse(&render(&figures, None));
    let shown = json["reasons"]["shown"].as_array().unwrap();
    let counts: Vec<_> = shown.iter().map(|one| one["count"].as_u64()).collect();
    assert_eq!(counts, [Some(2), Some(3)]);
}
