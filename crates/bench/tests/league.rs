//! The league and `http` as commands: their output, with samum and the other servers of this machine. No test compares
//! speeds.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::LazyLock;

use serde_json::Value;
use testkit::{Address, Server, Tree, built, skip};

fn bench(args: &[&str]) -> Output {
    // The league starts it.
    samum();
    let mut command = Command::new(env!("CARGO_BIN_EXE_samum-bench"));
    command.args(args).output().unwrap()
}

/// samum and its library, which the league looks for beside samum-bench.
fn samum() -> &'static Path {
    static SAMUM: LazyLock<PathBuf> = LazyLock::new(|| {
        let _ = built(&["--package", "samum-preload", "--lib"]);
        // The example is the DNS server. It makes cargo take the features that tests need of dependencies, too.
        built(&["--workspace", "--bin", "samum", "--example", "dns"]).join("samum")
    });
    &SAMUM
}

#[derive(Debug, serde::Deserialize)]
struct Row {
    test: String,
    system: String,
    series: String,
    step: f64,
    value: f64,
    unit: String,
}

/// A run's directory: raw.csv, and of each test who was left out and why.
fn read(dir: &Path) -> (Vec<Row>, Vec<(String, String)>) {
    let rows = csv::Reader::from_path(dir.join("raw.csv")).unwrap().into_deserialize();
    let meta: Value =
        serde_json::from_str(&fs::read_to_string(dir.join("meta.json")).unwrap()).unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let skipped = meta["tests"].as_array().unwrap().iter().flat_map(|test| {
        let skipped = test["skipped"].as_array().unwrap().iter();
        skipped.map(|row| (text(&row["system"]), text(&row["why"]))).collect::<Vec<_>>()
    });
    (rows.map(Result::unwrap).collect(), skipped.collect())
}

fn systems(rows: &[Row], series: &str) -> BTreeSet<String> {
    rows.iter().filter(|row| row.series == series).map(|row| row.system.clone()).collect()
}

#[test]
fn warm_has_every_server_or_says_why_not() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run");
    let root = dir.path().join("root");
    fs::create_dir(&root).unwrap();
    let args = ["league", "warm", "--quick", "--secs", "0.2", "--host", "here"];
    let paths = ["--out", out.to_str().unwrap(), "--root", root.to_str().unwrap()];
    let output = bench(&[&args[..], &paths[..]].concat());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let (rows, skipped) = read(&out);
    let left_out: BTreeSet<String> = skipped.iter().map(|(system, _)| system.clone()).collect();
    for (system, why) in &skipped {
        crate::reasons::accept(system, why);
    }
    // In a closed loop the time of a request is no latency.
    assert!(rows.iter().all(|row| !row.series.starts_with('p')), "percentiles of a closed loop");
    for series in ["CPU per request", "requests per second"] {
        let there = systems(&rows, series);
        assert!(
            there.is_superset(&["samum", "samum-epoll"].map(str::to_owned).into()),
            "{there:?}"
        );
        assert!(there.is_disjoint(&left_out), "{there:?}, {skipped:?}");
        assert_eq!(there.len() + left_out.len(), 10, "{there:?}, {skipped:?}");
    }
    for row in &rows {
        assert_eq!(row.test, "warm");
        assert!(row.value.is_finite() && row.value > 0.0, "{row:?}");
        assert!([128.0, 65_536.0].contains(&row.step), "{row:?}");
    }
    let floors = rows.iter().filter(|row| row.series == "CPU per request, floor = 1");
    for row in floors.filter(|row| row.system == "floor") {
        assert_eq!((row.value, &row.unit[..]), (1.0, "1"));
    }
    let summary = fs::read_to_string(out.join("summary.md")).unwrap();
    let title = "128 bytes, closed loop over 64 connections; the load generator discards the bytes that it receives, in the kernel:";
    assert!(summary.contains(title), "{summary}");
    // The version of the measured samum.
    let meta: Value =
        serde_json::from_str(&fs::read_to_string(out.join("meta.json")).unwrap()).unwrap();
    let hashed: BTreeSet<_> =
        meta["binaries"].as_array().unwrap().iter().map(|b| b["name"].as_str().unwrap()).collect();
    assert!(hashed.is_superset(&["samum", "samum-bench"].into()), "{hashed:?}");
    let samum = fs::read(samum()).unwrap();
    assert!(meta["binaries"].as_array().unwrap().iter().any(|b| b["bytes"] == samum.len()));
    assert!(summary.contains(" · samum "), "{summary}");
    assert!(meta.get("tree").is_some(), "the commit, or null where git is missing");
    assert!(summary.contains("tcp_nopush on") || left_out.contains("nginx"), "{summary}");
    assert!(fs::metadata(out.join("report.html")).unwrap().len() > 10_000);
}

#[test]
fn wire_measures_or_says_why_not_and_removes_its_network() {
    samum();
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run");
    let mut command = Command::new(env!("CARGO_BIN_EXE_samum-bench"));
    command.args(["league", "wire", "wire-close", "--quick", "--secs", "0.3", "--sizes", "128"]);
    command.args(["--servers", "floor,samum,samum-own", "--out"]).arg(&out);
    let bench = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let namespaces = format!("samum-bench-{}-", bench.id());
    let output = bench.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let left = fs::read_dir("/run/netns").into_iter().flatten().flatten();
    let mut left = left.map(|entry| entry.file_name().into_string().unwrap());
    assert!(!left.any(|name| name.starts_with(&namespaces)), "{namespaces}");
    let (rows, skipped) = read(&out);
    for (system, why) in &skipped {
        crate::reasons::accept(system, why);
    }
    let left_out: BTreeSet<_> = skipped.iter().map(|(system, _)| &system[..]).collect();
    if left_out.contains("") {
        return;
    }
    for test in ["wire", "wire-close"] {
        let of_test: Vec<&Row> = rows.iter().filter(|row| row.test == test).collect();
        let value = |system: &str, series: &str| {
            let is_it = |row: &&&Row| row.system == system && row.series == series;
            of_test.iter().find(is_it).map(|row| row.value)
        };
        for system in
            ["floor", "samum", "samum-own"].into_iter().filter(|it| !left_out.contains(it))
        {
            for series in ["requests per second", "CPU of the core per request"] {
                let value = value(system, series);
                assert!(value.is_some_and(|it| it.is_finite() && it > 0.0), "{test}: {value:?}");
            }
            let own = value(system, "own user time per request").unwrap();
            let all = value(system, "CPU of the core per request").unwrap();
            // Both are counted in clock ticks.
            assert!((0.0..2.0 * all + 1e6).contains(&own), "{test}, {system}: {own} of {all}");
        }
        if !left_out.contains("floor") {
            assert_eq!(value("floor", "CPU of the core, floor = 1"), Some(1.0));
        }
    }
    let summary = fs::read_to_string(out.join("summary.md")).unwrap();
    assert!(summary.contains("connections, each for one request"), "{summary}");
}

#[test]
fn cold_measures_or_says_why_not() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run");
    let args = ["league", "cold", "--quick", "--servers", "samum", "--secs", "0.2", "--out"];
    let output = bench(&[&args[..], &[out.to_str().unwrap()]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let (rows, skipped) = read(&out);
    if let Some((_, why)) = skipped.first() {
        crate::reasons::accept("cold", why);
        return;
    }
    let latency = rows.iter().filter(|row| row.series.starts_with("latency"));
    let points: Vec<_> = latency.map(|row| (row.step, row.value)).collect();
    assert!(points.len() > 10 && points.is_sorted(), "a curve: {points:?}");
    assert_eq!(systems(&rows, "kept beside cold").len(), 1);
    for latency in ["alone", "beside cold"] {
        let series = format!("p99 by the clock, {latency}");
        assert_eq!(systems(&rows, &series).len(), 1, "{series}");
    }
}

#[test]
fn download_mixed_and_idle_measure_or_say_why_not() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run");
    let tests = ["league", "download", "mixed", "idle", "--quick", "--servers", "samum"];
    let small = ["--secs", "0.2", "--bytes", "8388608", "--rate", "1048576", "--count", "50"];
    let args = [&tests[..], &small[..], &["--out", out.to_str().unwrap()]].concat();
    let output = bench(&args);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let (rows, skipped) = read(&out);
    for (system, why) in &skipped {
        crate::reasons::accept(system, why);
    }
    let on_a_disk = skipped.is_empty();
    for (test, series, points, is_needed) in [
        ("download", "one file", 1, on_a_disk),
        ("download", "200 at once", 1, on_a_disk),
        ("download", "CPU per GiB, one file", 1, on_a_disk),
        ("download", "CPU per GiB, 200 at once", 1, on_a_disk),
        ("mixed", "small files per second", 1, on_a_disk),
        ("mixed", "large files", 1, on_a_disk),
        ("mixed", "CPU per GB", 1, on_a_disk),
        ("mixed", "p99 of small files", 1, on_a_disk),
        ("idle", "request beside all", 1, true),
        // The first connection is measured in another way.
        ("idle", "connect", 49, true),
        ("idle", "first request", 49, true),
    ] {
        let of_samum = rows.iter().filter(|row| {
            (&row.test[..], &row.system[..], &row.series[..]) == (test, "samum", series)
        });
        let of_samum: Vec<_> = of_samum.collect();
        assert!(of_samum.len() == points || !is_needed, "{test}, {series}: {of_samum:?}");
        assert!(
            of_samum.iter().all(|row| row.value.is_finite() && row.value > 0.0),
            "{of_samum:?}"
        );
    }
    let latency = rows.iter().filter(|row| row.series == "latency of small files");
    assert!(latency.count() > 10 || !on_a_disk, "a curve");
}

#[test]
fn proxies_are_measured_or_say_why_not() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run");
    let tests = ["league", "proxied", "proxied-small", "proxied-slow", "--quick"];
    let servers = ["--servers", "origin,nginx-proxy,haproxy,haproxy-splice"];
    let small = ["--secs", "0.2", "--downloads", "65536,1048576", "--clients", "3"];
    let args = [&tests[..], &servers, &small, &["--out", out.to_str().unwrap()]].concat();
    let output = bench(&args);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let (rows, skipped) = read(&out);
    for (system, why) in &skipped {
        crate::reasons::accept(system, why);
    }
    let left_out: BTreeSet<_> = skipped.iter().map(|(system, _)| system.clone()).collect();
    // Without nginx there is no origin, and all tests are left out.
    let is_all_left_out = left_out.contains("") || left_out.contains("origin");
    if is_all_left_out || left_out.is_empty() && rows.is_empty() {
        return;
    }
    for (test, series, points) in [
        ("proxied", "speed of a download", 2),
        ("proxied", "CPU per GiB", 2),
        ("proxied", "time to the first byte", 2),
        ("proxied", "memory over idle", 2),
        ("proxied", "temporary files", 2),
        ("proxied-small", "CPU per request", 1),
        ("proxied-small", "requests per second", 1),
        ("proxied-slow", "memory over idle", 1),
        ("proxied-slow", "temporary files", 1),
        ("proxied-slow", "memory of sockets", 1),
        ("proxied-slow", "received by clients", 1),
    ] {
        let of_series = |row: &&Row| row.test == test && row.series == series;
        let there: Vec<_> = rows.iter().filter(of_series).collect();
        let systems: BTreeSet<_> = there.iter().map(|row| row.system.clone()).collect();
        assert!(systems.is_disjoint(&left_out), "{test}, {series}: {systems:?}, {skipped:?}");
        assert!(systems.len() + left_out.len() >= 4, "{test}, {series}: {systems:?}, {skipped:?}");
        assert_eq!(there.len(), points * systems.len(), "{test}, {series}: {there:?}");
        let may_be_none = series.starts_with("memory") || series.starts_with("temporary");
        assert!(
            there.iter().all(|row| row.value > 0.0 || may_be_none && row.value == 0.0),
            "{there:?}"
        );
    }
}

#[test]
fn gateways_are_measured_or_say_why_not() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run");
    let tests = ["league", "fastcgi", "includes", "--quick", "--secs", "0.5"];
    let servers = ["--servers", "nginx-fastcgi,haproxy-fastcgi,nginx-includes"];
    let output = bench(&[&tests[..], &servers, &["--out", out.to_str().unwrap()]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let (rows, skipped) = read(&out);
    for (system, why) in &skipped {
        crate::reasons::accept(system, why);
    }
    for (test, servers) in
        [("fastcgi", &["nginx-fastcgi", "haproxy-fastcgi"][..]), ("includes", &["nginx-includes"])]
    {
        for series in ["CPU per request", "requests per second"] {
            for server in servers {
                let found = rows.iter().filter(|row| {
                    (&row.test[..], &row.system[..], &row.series[..]) == (test, server, series)
                });
                let found: Vec<_> = found.collect();
                assert!(found.len() == 1 || !skipped.is_empty(), "{test}, {server}, {series}");
                assert!(found.iter().all(|row| row.value > 0.0), "{found:?}");
            }
        }
    }
}

#[test]
fn requests_beside_stalled_ones_are_measured() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run");
    let tests = ["league", "stalled", "--quick", "--secs", "0.2"];
    let servers = ["--servers", "nginx-stalled"];
    let output = bench(&[&tests[..], &servers, &["--out", out.to_str().unwrap()]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let (rows, skipped) = read(&out);
    for (system, why) in &skipped {
        crate::reasons::accept(system, why);
    }
    for series in ["requests per second", "p99 of a hot file"] {
        for kind in ["alone", "beside stalled requests"] {
            let name = format!("{series}, {kind}");
            let found: Vec<_> = rows.iter().filter(|row| row.series == name).collect();
            assert!(found.len() == 1 || !skipped.is_empty(), "{name}");
            assert!(found.iter().all(|row| row.value > 0.0), "{found:?}");
        }
    }
}

/// Each of these needs a network of namespaces, a slow disk or other programs, and is measured here in its smallest form.
#[test]
fn tests_of_disks_and_links_measure_or_say_why_not() {
    let dir = tempfile::tempdir().unwrap();
    let small =
        ["--quick", "--secs", "0.1", "--bytes", "4194304", "--readers", "2", "--count", "100"];
    for (nth, (tests, servers, figures)) in [
        (
            &["films", "crawler", "asleep", "hung", "disk"][..],
            &["--servers", "samum"][..],
            &[
                ("films", "first picture"),
                ("films", "bytes read for bytes played"),
                ("crawler", "CPU per GiB"),
                ("asleep", "p99 of a hot file"),
                ("hung", "recovery"),
                ("disk", "one file"),
            ][..],
        ),
        (
            &["wire-cold"],
            &["--servers", "samum,samum-own"],
            &[("wire-cold", "CPU of the core per GiB")],
        ),
        (
            &["wire-idle", "dns", "proxied-units"],
            &[],
            &[
                ("wire-idle", "memory of each"),
                ("dns", "answers per second"),
                ("proxied-units", "speed of a download"),
            ],
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let out = dir.path().join(nth.to_string());
        let args =
            [&["league"], tests, servers, &small, &["--out", out.to_str().unwrap()]].concat();
        let output = bench(&args);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let (rows, skipped) = read(&out);
        for (system, why) in &skipped {
            crate::reasons::accept(system, why);
        }
        for (test, series) in figures {
            let is_it = |row: &&Row| row.test == *test && row.series == *series;
            let found: Vec<_> = rows.iter().filter(is_it).collect();
            assert!(!found.is_empty() || !skipped.is_empty(), "{test}, {series}: {rows:?}");
            let is_figure = |row: &&Row| row.value.is_finite() && row.value > 0.0;
            assert!(found.iter().all(is_figure), "{found:?}");
        }
    }
}

#[test]
fn steady_has_seconds_and_a_safe_load_or_says_why_not() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run");
    let args = ["league", "steady", "--quick", "--seconds", "2", "--disks", "67108864,none"];
    let more = ["--peak", "400", "--servers", "samum", "--out", out.to_str().unwrap()];
    let output = bench(&[&args[..], &more].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let (rows, skipped) = read(&out);
    if let Some((_, why)) = skipped.first() {
        crate::reasons::accept("steady", why);
        return;
    }
    let summary = fs::read_to_string(out.join("summary.md")).unwrap();
    let page = fs::read_to_string(out.join("report.html")).unwrap();
    for disk in ["disk of 64.0 MiB/s", "disk without a limit"] {
        let of = |what: &str| {
            let name = format!("{what}, {disk}");
            rows.iter().filter(|row| row.series == name).map(|row| row.value).collect::<Vec<_>>()
        };
        let traffic = of("traffic");
        assert!(traffic.len() == 2 && traffic.iter().all(|&bytes| bytes > 0.0), "{traffic:?}");
        assert!(of("p99 of hot files").iter().all(|&ns| ns > 0.0));
        assert_eq!(of("errors").len(), 2);
        assert!(of("peak of traffic")[0] > 0.0 && of("p99 of hot files alone")[0] > 0.0);
        // Nothing is said about the load: other tests take time and disk meanwhile.
        for direction in ["safe load, from below", "safe load, from above"] {
            assert!(of(direction).len() <= 1 && of(direction).iter().all(|&rate| rate >= 0.0));
        }
        assert!(summary.contains(&format!("Safe load, {disk}: median")), "{summary}");
        assert!(page.contains(&format!("traffic, {disk}")), "a graph");
    }
    assert!(summary.contains("SURGE (Barford and Crovella 1998"), "{summary}");
}

/// Runs a test of TLS with these servers. Each work has figures of at least `count` servers, or a server says why not.
fn measures_works(test: &str, servers: &str, count: usize, works: &[&str]) {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run");
    let args = ["league", test, "--quick", "--servers", servers, "--out", out.to_str().unwrap()];
    let output = bench(&args);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let (rows, skipped) = read(&out);
    for (system, why) in &skipped {
        crate::reasons::accept(system, why);
    }
    // Without the load generator no server is measured.
    let is_skipped = skipped.iter().any(|(system, _)| system.is_empty());
    for work in works.iter().filter(|_| !is_skipped) {
        for what in ["CPU", "per second"] {
            let name = format!("{what}, {work}");
            let found: Vec<_> = rows.iter().filter(|row| row.series == name).collect();
            assert!(found.len() + skipped.len() >= count, "{name}: {rows:?}");
            assert!(found.iter().all(|row| row.value > 0.0 && row.value.is_finite()), "{found:?}");
        }
    }
}

#[test]
fn tls_is_measured_or_says_why_not() {
    let works = [
        "1.00 KiB over kept connections",
        "64.0 KiB over kept connections",
        "1.00 MiB over kept connections",
        "1.00 KiB over HTTP/2, 10 streams",
        "full handshakes",
        "resumed handshakes",
    ];
    measures_works("tls", "samum-tls,nginx-tls", 2, &works);
}

#[test]
fn proxies_to_tls_are_measured_or_say_why_not() {
    let proxies = ["samum", "nginx", "haproxy"];
    let servers = proxies.map(|proxy| format!("{proxy}-tls-out,{proxy}-tls-both")).join(",");
    let works = [
        "1.00 KiB over kept connections without TLS",
        "1.00 KiB over kept connections",
        "downloads of 8.00 MiB",
    ];
    measures_works("proxied-tls", &servers, 3, &works);
}

#[test]
fn http_measures_any_server() {
    let samum = samum();
    let tree = Tree::new().file("f", "hello");
    let root = tree.path().to_str().unwrap();
    let server = Server::start(samum, ["serve", root, "--listen", "127.0.0.1:0"]).unwrap();
    let Address::Tcp(address) = server.address() else { panic!("asked for TCP") };
    let url = format!("http://{address}/f");
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run");
    let refused = "http://127.0.0.1:1/";
    let args = ["http", &url, refused, "--quick", "--secs", "0.2", "--count", "200", "--out"];
    let output = bench(&[&args[..], &[out.to_str().unwrap()]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let (rows, skipped) = read(&out);
    for (system, why) in &skipped {
        let says = why.contains("refused") && why.contains("left out of all tests");
        assert!(system == refused && says, "{system}: {why}");
    }
    assert_eq!(skipped.len(), 3, "a row of each test: {skipped:?}");
    for series in ["connect", "request"] {
        let steps = rows.iter().filter(|row| row.series == series).map(|row| row.step);
        assert_eq!(steps.collect::<Vec<_>>(), (1..=200).map(f64::from).collect::<Vec<_>>());
    }
    let rates = rows.iter().filter(|row| row.unit == "1/s");
    assert!(rates.clone().count() == 2 && rates.clone().all(|row| row.value > 100.0));
    let curves: BTreeSet<_> =
        rows.iter().filter(|row| row.test == "latency").map(|row| &row.series).collect();
    assert_eq!(curves.len(), 4, "{curves:?}");
    // The server runs on this machine, so its CPU and memory are known.
    let summary = fs::read_to_string(out.join("summary.md")).unwrap();
    let kept = summary.lines().find(|line| line.contains("| kept |")).unwrap();
    let cpu: f64 = kept.split('|').nth(5).unwrap().trim().parse().unwrap();
    assert!((0.5..5000.0).contains(&cpu), "{kept}");
}

#[test]
fn a_low_rate_is_shown_as_it_is() {
    let tree = Tree::new().file("f", "hello");
    let root = tree.path().to_str().unwrap();
    let server = Server::start(samum(), ["serve", root, "--listen", "127.0.0.1:0"]).unwrap();
    let Address::Tcp(address) = server.address() else { panic!("asked for TCP") };
    let url = format!("http://{address}/f");
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run");
    let args =
        ["http", &url, "--test", "latency", "--even", "--rates", "0.001,2.5", "--secs", "0.8"];
    let output =
        bench(&[&args[..], &["--slow-readers", "0", "--out", out.to_str().unwrap()]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let (rows, skipped) = read(&out);
    assert_eq!(skipped, [(url, "0.001/s: no request was due within 0.8 s".to_owned())]);
    assert!(rows.iter().all(|row| row.series == "2.5/s") && !rows.is_empty(), "{rows:?}");
    let summary = fs::read_to_string(out.join("summary.md")).unwrap();
    // One to three requests within the window.
    let row = summary.lines().find(|line| line.contains("| 2.5/s |")).unwrap();
    let rate: f64 = row.split('|').nth(3).unwrap().trim().parse().unwrap();
    assert!((1.0..4.0).contains(&rate), "{row}");
}

/// A server in Python that takes part like the others for `answers` responses, and then only responds with 404. `begin`
/// sets `host` and `port`, and goes to the directory of the files.
fn failing(begin: &str, answers: u32) -> String {
    format!(
        "\
#!/usr/bin/env python3
import http.server, os, re, sys
{begin}
answered = 0
class Handler(http.server.SimpleHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    def log_message(self, *_): pass
    def do_GET(self):
        global answered
        answered += 1
        if answered > {answers}:
            self.send_response(404)
            self.send_header('Content-Length', '0')
            self.end_headers()
        else:
            super().do_GET()
http.server.ThreadingHTTPServer((host, int(port)), Handler).serve_forever()
"
    )
}

/// With the directory and the port as its arguments.
const WITH_ARGUMENTS: &str = "\
host, port = '127.0.0.1', sys.argv[2]
os.chdir(sys.argv[1])";

/// A server that runs instead of samum, with its configuration.
const AS_SAMUM: &str = r#"if '--version' in sys.argv:
    sys.exit()
configuration = open(sys.argv[3]).read()
host, port = re.search(r'listen = \["(.*):(.*)"\]', configuration).groups()
os.chdir(re.search(r'files = "(.*)"', configuration)[1])"#;

fn has_python() -> bool {
    Command::new("python3").arg("--version").output().is_ok()
}

#[test]
fn a_server_that_fails_does_not_end_the_league() {
    if !has_python() {
        skip!("there is no python3");
    }
    let dir = tempfile::tempdir().unwrap();
    let (out, script) = (dir.path().join("run"), dir.path().join("failing.py"));
    // One request compares its bytes, and one more is measured.
    fs::write(&script, failing(WITH_ARGUMENTS, 2)).unwrap();
    let failing = format!("failing=python3 {} {{root}} {{port}}", script.display());
    let args = ["league", "warm", "--quick", "--secs", "0.2", "--servers", "samum", "--add"];
    let output = bench(&[&args[..], &[&failing, "--out", out.to_str().unwrap()]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let (rows, skipped) = read(&out);
    assert!(systems(&rows, "requests per second").contains("samum"));
    let [(system, why)] = &skipped[..] else { panic!("{skipped:?}") };
    assert!(system == "failing" && why.contains("dropped in round 1"), "{system}: {why}");
    assert!(fs::read_to_string(out.join("summary.md")).unwrap().contains("128 bytes"));
}

#[test]
fn a_server_that_fails_beside_stalled_or_hung_requests_does_not_end_the_test() {
    if !has_python() {
        skip!("there is no python3");
    }
    let samum = samum();
    let dir = tempfile::tempdir().unwrap();
    let script = dir.path().join("failing.py");
    fs::write(&script, failing(AS_SAMUM, 1)).unwrap();
    fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    // nginx waits for a device that hangs, and samum does not.
    for (test, samum, servers) in [
        ("stalled", &*script, ["samum-stalled", "nginx-stalled"]),
        ("hung", samum, ["nginx", "samum"]),
    ] {
        let out = dir.path().join(test);
        let mut command = Command::new(env!("CARGO_BIN_EXE_samum-bench"));
        command.env("SAMUM", samum).args(["league", test, "--quick", "--secs", "0.1"]);
        command.args(["--count", "50", "--servers", &servers.join(","), "--out"]).arg(&out);
        let output = command.output().unwrap();
        let (rows, skipped) = read(&out);
        if let Some((system, why)) = skipped.iter().find(|(_, why)| !why.starts_with("dropped")) {
            crate::reasons::accept(&format!("{test} {system}"), why);
            continue;
        }
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let [(system, why)] = &skipped[..] else { panic!("{test}: {skipped:?}") };
        assert!(system == servers[0], "{test}: {system}");
        assert!(why.starts_with("dropped in round 1: "), "{test}: {why}");
        let measured: BTreeSet<_> = rows.iter().map(|row| row.system.clone()).collect();
        assert_eq!(measured, [servers[1].to_owned()].into(), "{test}");
    }
}

#[test]
fn a_server_that_does_not_start_has_one_row() {
    let dir = tempfile::tempdir().unwrap();
    let script = dir.path().join("samum");
    fs::write(&script, "#!/bin/sh\n[ \"$1\" = --version ]\n").unwrap();
    fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    for test in ["crawler", "asleep"] {
        let out = dir.path().join(test);
        let mut command = Command::new(env!("CARGO_BIN_EXE_samum-bench"));
        command.env("SAMUM", &script).args(["league", test, "--quick", "--secs", "0.1"]);
        command.args(["--servers", "samum,nginx", "--out"]).arg(&out);
        let output = command.output().unwrap();
        let (_, skipped) = read(&out);
        if let Some((system, why)) = skipped.iter().find(|(system, _)| system != "samum") {
            crate::reasons::accept(&format!("{test} {system}"), why);
            continue;
        }
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let [(_, why)] = &skipped[..] else { panic!("{test}: {skipped:?}") };
        assert!(why.contains("did not start"), "{test}: {why}");
    }
}

/// A server that can only respond once and close.
#[test]
fn http_measures_a_server_that_closes() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            // A client may go away at any time.
            let _ = stream.and_then(|mut stream| {
                let _head = stream.read(&mut [0; 1024])?;
                stream.write_all(b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok")
            });
        }
    });
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run");
    let args = ["http", &url, "--quick", "--secs", "0.2", "--test", "maximum,connections", "--out"];
    let output = bench(&[&args[..], &[out.to_str().unwrap()]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let (rows, skipped) = read(&out);
    let [row] = &rows[..] else { panic!("{rows:?}") };
    assert!(row.series == "one request each" && row.value > 100.0, "{row:?}");
    let [(_, connections), (_, maximum)] = &skipped[..] else { panic!("{skipped:?}") };
    assert_eq!(connections, "the server does not keep connections");
    assert_eq!(maximum, "kept: the server does not keep connections");
}

/// One server never answers and counts its requests; it is none of the other tests' servers.
#[test]
fn a_server_that_does_not_answer_is_asked_once() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = format!("http://{}/", listener.local_addr().unwrap());
    let (asked, count) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            // Closed without a response.
            let _ = stream.and_then(|mut stream| stream.read(&mut [0; 1024]));
            asked.send(()).unwrap();
        }
    });
    let tree = Tree::new().file("f", "hello");
    let root = tree.path().to_str().unwrap();
    let server = Server::start(samum(), ["serve", root, "--listen", "127.0.0.1:0"]).unwrap();
    let Address::Tcp(address) = server.address() else { panic!("asked for TCP") };
    let url = format!("http://{address}/f");
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run");
    let args = ["http", &silent, &url, "--quick", "--secs", "0.1", "--count", "20", "--out"];
    let output = bench(&[&args[..], &[out.to_str().unwrap()]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(count.try_iter().count(), 1);
    let (rows, skipped) = read(&out);
    assert!(rows.iter().all(|row| row.system == url) && !rows.is_empty());
    assert_eq!(skipped.len(), 3, "a row of each test: {skipped:?}");
    for (system, why) in skipped {
        assert!(system == silent && why.contains("left out of all tests"), "{system}: {why}");
    }
}

#[test]
fn wrong_command_lines_are_answered_with_a_sentence() {
    for (args, says) in [
        (&["league", "--servers", "apache"][..], "no server is called 'apache'"),
        (&["league", "--add", "x"], "NAME=COMMAND"),
        (&["league", "--servers", "nginx,nginx"], "twice"),
        (&["league", "hot"], "no test is called 'hot'"),
        (&["league", "--secs", "0"], "above 0"),
        (&["league", "--secs", "1e300"], "86400 at most"),
        (&["league", "--rate", "99999999999999"], "99999999999999"),
        (&["league", "--root", "/no/such"], "/no/such is not a directory"),
        (&["league", "--disks", "16"], "must be bytes per second from 65536 to"),
        (&["http"], "<URL>"),
        (&["http", "localhost"], "'localhost'"),
        (&["http", "https://127.0.0.1/"], "TLS is not supported; give the http:// URL"),
        (&["http", "http://127.0.0.1/", "--slow-path", "x"], "begins with /"),
        (&["http", "http://127.0.0.1/", "--test", "maximum,rate"], "no test is called 'rate'"),
    ] {
        let output = bench(args);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {said}");
        assert!(said.contains(says), "{args:?}: {said}");
    }
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run");
    let output = bench(&["http", "http://127.0.0.1:1/", "--quick", "--out", out.to_str().unwrap()]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("http://127.0.0.1:1/ does not answer"), "{said}");
}
