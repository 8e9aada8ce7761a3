//! The dependencies that `DESIGN.md` allows, between crates and between modules, and where `unsafe` may be.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use modules::Arrow;

#[path = "architecture/modules.rs"]
mod modules;

/// Crates that only the examples of a crate may use.
const FOR_EXAMPLES: [(&str, &str); 3] =
    [("netdev", "outq"), ("sendfile", "http"), ("sendfile", "http1")];

/// Files with `unsafe` in them, tests included.
const UNSAFE: [&str; 45] = [
    "bench/src/sys/memory.rs",
    "bench/src/sys/process.rs",
    "bench/src/sys/select.rs",
    "bench/src/sys/signal.rs",
    "bench/src/sys/socket.rs",
    "bench/src/sys/transfer.rs",
    "bench/src/sys/uring.rs",
    "libsamum/src/abi.rs",
    "libsamum/src/sigpipe.rs",
    "netdev/src/frames.rs",
    "netdev/src/mapping.rs",
    "netdev/src/packet.rs",
    "netdev/src/pool.rs",
    "netdev/src/tap.rs",
    "netdev/src/xdp/bpf.rs",
    "netdev/src/xdp/ring.rs",
    "netdev/src/xdp/ring/tests.rs",
    "netstack/tests/allocations.rs",
    "preload/examples/loop_server.rs",
    "preload/examples/odd_program.rs",
    "preload/src/deferral.rs",
    "preload/src/descriptors.rs",
    "preload/src/epoll.rs",
    "preload/src/exports.rs",
    "preload/src/lock.rs",
    "preload/src/real.rs",
    "preload/src/sendfile.rs",
    "preload/src/sys.rs",
    "preload/src/wait.rs",
    "ring/src/buffer.rs",
    "ring/src/drivers/uring/file.rs",
    "ring/src/drivers/uring/fixed.rs",
    "ring/src/drivers/uring/mod.rs",
    "ring/src/helpers/job.rs",
    "ring/src/now/file.rs",
    "ring/src/now/mapping.rs",
    "ring/src/now/process.rs",
    "ring/src/now/socket.rs",
    "ring/src/recv.rs",
    "ring/src/span.rs",
    "ring/src/statx.rs",
    "testkit/src/evict.rs",
    "testkit/src/middle_box.rs",
    "testkit/src/seccomp.rs",
    "testkit/src/tether.rs",
];

/// Modules that are pure, in crates that are not: they decide, and others act.
const PURE: [&str; 102] = [
    "acme/src/plan.rs",
    "acme/src/record.rs",
    "config/src/acme.rs",
    "config/src/access.rs",
    "config/src/pattern.rs",
    "config/src/redirect.rs",
    "config/src/resolve.rs",
    "config/src/route.rs",
    "config/src/rule.rs",
    "config/src/site.rs",
    "config/src/text.rs",
    "content/src/in_memory.rs",
    "content/src/library.rs",
    "content/src/media_types.rs",
    "content/src/path.rs",
    "gateways/src/cgi/life.rs",
    "gateways/src/cgi/response.rs",
    "gateways/src/fastcgi/mod.rs",
    "gateways/src/input/parts.rs",
    "gateways/src/names.rs",
    "gateways/src/proxy/exchange/duty.rs",
    "gateways/src/proxy/location.rs",
    "gateways/src/proxy/request.rs",
    "gateways/src/proxy/response.rs",
    "gateways/src/proxy/trailers.rs",
    "gateways/src/row.rs",
    "includes/src/directive.rs",
    "includes/src/evaluator.rs",
    "includes/src/expression.rs",
    "includes/src/memory.rs",
    "includes/src/parser.rs",
    "includes/src/timefmt.rs",
    "includes/src/variables.rs",
    "logs/src/line.rs",
    "metrics/src/exposition.rs",
    "metrics/src/histogram.rs",
    "metrics/src/summary.rs",
    "netdev/src/choose.rs",
    "netdev/src/netlink.rs",
    "netdev/src/room.rs",
    "netdev/src/xdp/assembler.rs",
    "netdev/src/xdp/program.rs",
    "ring/src/gate.rs",
    "ring/src/slab.rs",
    "ring/src/timers.rs",
    "samum/src/certificates/plan.rs",
    "samum/src/certificates/watch.rs",
    "rights/src/rules.rs",
    "rights/src/support.rs",
    "samum/src/confine/links.rs",
    "samum/src/confine/uses.rs",
    "handler/src/guard.rs",
    "handler/src/router/advance.rs",
    "handler/src/router/state.rs",
    "samum/src/secure/quantum.rs",
    "samum/src/secure/queue.rs",
    "interface/src/listening.rs",
    "interface/src/connections.rs",
    "interface/src/plan.rs",
    "handler/src/serving/snapshot/succession.rs",
    "handler/src/status_page/json.rs",
    "samum/src/upgrade/machine.rs",
    "samum/src/worker/trim.rs",
    "sendfile/src/disk/file_systems.rs",
    "sendfile/src/policy.rs",
    "session/src/client.rs",
    "session/src/fields.rs",
    "session/src/forwarded.rs",
    "session/src/limits.rs",
    "session/src/other_protocol.rs",
    "session/src/proxy_protocol.rs",
    "session/src/session/http1.rs",
    "session/src/session/http1/exchange.rs",
    "session/src/session/http1/receive.rs",
    "session/src/session/http1/refuse.rs",
    "session/src/session/http2.rs",
    "session/src/session/http2/input.rs",
    "session/src/session/http2/deadlines.rs",
    "session/src/session/http2/judge.rs",
    "session/src/session/http2/lane.rs",
    "session/src/session/http2/pace.rs",
    "session/src/session/http2/respond.rs",
    "session/src/session/http1/response.rs",
    "session/src/session/opening.rs",
    "session/src/standing.rs",
    "session/src/wheel.rs",
    "tls-record/src/aead.rs",
    "tls-record/src/assembly.rs",
    "tls-record/src/direction.rs",
    "tls-record/src/fault.rs",
    "tls-record/src/frame.rs",
    "tls-record/src/keys.rs",
    "tls-record/src/lib.rs",
    "tls-record/src/records.rs",
    "tls/src/check.rs",
    "tls/src/names.rs",
    "tls/src/pem.rs",
    "tls/src/x509.rs",
    "upstream/src/balance.rs",
    "upstream/src/choice.rs",
    "upstream/src/health.rs",
    "upstream/src/retries.rs",
];

/// A crate as the table in `DESIGN.md` has it.
#[derive(Debug)]
struct Row {
    name: String,
    /// True if it does no I/O, and uses `core`, `alloc` and other pure crates, and no code from elsewhere.
    is_pure: bool,
    /// The crates of the workspace that it may depend on.
    may_use: Vec<String>,
}

/// The table of crates in `DESIGN.md`: a name in backquotes, the kind, what the crate may depend on, the purpose.
fn table() -> Vec<Row> {
    let design = fs::read_to_string(crates().with_file_name("DESIGN.md")).unwrap();
    let (_, section) = design.split_once("\n## 3. Crates\n").expect("the section about crates");
    let (section, _) = section.split_once("\n## ").expect("another section");
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `"));
    let read = |row: &str| -> Row {
        let cells: Vec<_> = row.split('|').map(str::trim).collect();
        let [name, kind, may_use, _purpose, ""] = cells[..] else { panic!("four cells: {row}") };
        Row {
            name: name.trim_end_matches('`').to_owned(),
            is_pure: kind.starts_with("pure"),
            may_use: may_use.split(", ").filter(|&name| name != "–").map(str::to_owned).collect(),
        }
    };
    rows.map(read).collect()
}

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("crates/").to_owned()
}

/// The dependencies in a manifest, by section. It reads only the TOML that these manifests use: one line for each.
fn dependencies(name: &str) -> BTreeMap<String, Vec<String>> {
    let manifest = fs::read_to_string(crates().join(name).join("Cargo.toml")).unwrap();
    let mut sections = BTreeMap::<String, Vec<String>>::new();
    let mut section = String::new();
    for line in manifest.lines().map(str::trim) {
        if let Some(header) = line.strip_prefix('[') {
            section = header.trim_end_matches(']').to_owned();
        } else if section.ends_with("dependencies") && !line.is_empty() && !line.starts_with('#') {
            let name = line.split(['=', '.', ' ']).next().expect("split yields one");
            sections.entry(section.clone()).or_default().push(name.to_owned());
        }
    }
    sections
}

/// All files of Rust below a directory.
fn sources(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found
}

/// The directories of all crates, in order.
fn all_crates() -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(crates())
        .unwrap()
        .map(|entry| entry.unwrap())
        .filter(|entry| entry.path().join("Cargo.toml").exists())
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn every_crate_has_its_place() {
    let mut known: Vec<_> = table().into_iter().map(|row| row.name).collect();
    known.sort_unstable();
    assert_eq!(all_crates(), known, "each crate needs a row in the table of DESIGN.md");
}

#[test]
fn crates_depend_only_on_those_that_the_table_allows() {
    let ours = all_crates();
    for Row { name, may_use, .. } in table() {
        assert!(may_use.iter().all(|used| ours.contains(used)), "{name}: {may_use:?}");
        for (section, dependencies) in dependencies(&name) {
            for dependency in dependencies.iter().filter(|dependency| ours.contains(dependency)) {
                let pair = (&name[..], &dependency[..]);
                let for_tests = dependency == "testkit" || FOR_EXAMPLES.contains(&pair);
                let is_allowed =
                    (for_tests && section == "dev-dependencies") || may_use.contains(dependency);
                assert!(is_allowed, "{name} depends on {dependency} in [{section}]");
            }
        }
    }
}

#[test]
fn pure_crates_depend_on_pure_crates_only() {
    let pure: Vec<_> = table().into_iter().filter(|row| row.is_pure).map(|row| row.name).collect();
    assert!(pure.iter().any(|name| name == "outq"), "{pure:?}");
    for name in &pure {
        for dependency in dependencies(name).get("dependencies").into_iter().flatten() {
            assert!(pure.contains(dependency), "{name} depends on {dependency}");
        }
        let root = fs::read_to_string(crates().join(name).join("src/lib.rs")).unwrap();
        for attribute in ["#![no_std]", "#![forbid(unsafe_code)]"] {
            assert!(root.lines().any(|line| line == attribute), "{name} lacks {attribute}");
        }
    }
}

/// Where Cargo does not look for tests itself, a file that no program names is no test, and nothing says so.
#[test]
fn each_file_of_tests_is_part_of_a_program() {
    for name in all_crates() {
        let root = crates().join(&name);
        let manifest = fs::read_to_string(root.join("Cargo.toml")).unwrap();
        if !manifest.contains("\nautotests = false\n") {
            continue;
        }
        let files = sources(&root.join("tests"));
        let texts: String = files.iter().map(|file| fs::read_to_string(file).unwrap()).collect();
        for file in files {
            let is_of_folder = file.ends_with("mod.rs") || file.ends_with("main.rs");
            let named = if is_of_folder { file.parent().expect("tests/") } else { &file };
            let stem = named.file_stem().expect("a name").to_str().unwrap();
            let is_module = texts.contains(&format!("mod {stem};\n"));
            let is_program = manifest.contains(&format!("[[test]]\nname = \"{stem}\"\n"));
            assert!(is_module || is_program, "no program has {}", file.display());
        }
    }
}

#[test]
fn modules_form_no_circles() {
    let mut report = String::new();
    for name in all_crates() {
        let src = crates().join(&name).join("src");
        let files: Vec<_> = sources(&src)
            .into_iter()
            .map(|path| {
                let text = fs::read_to_string(&path).unwrap();
                (path.strip_prefix(&src).unwrap().to_str().unwrap().to_owned(), text)
            })
            .collect();
        for circle in modules::circles(&modules::arrows(&files)) {
            report += &format!("a circle in crates/{name}/src:\n");
            for Arrow { from, to, place } in circle {
                report += &format!("  {} -> {}, at {place}\n", from.join("::"), to.join("::"));
            }
        }
    }
    assert!(report.is_empty(), "{report}");
}

#[test]
fn unsafe_code_is_where_it_is_known_to_be() {
    let mut found: Vec<_> = sources(&crates())
        .into_iter()
        .filter(|path| {
            let text = fs::read_to_string(path).unwrap();
            text.lines()
                .map(str::trim_start)
                .any(|line| !line.starts_with("//") && has_unsafe(line))
        })
        .map(|path| path.strip_prefix(crates()).unwrap().to_str().unwrap().to_owned())
        .collect();
    found.sort();
    assert_eq!(found, UNSAFE);
}

/// A module that decides and does nothing: it may take the time of the ring, and nothing else of it; of the standard library
/// it takes no file, socket, process, thread, clock or environment. Addresses are values.
#[test]
fn pure_modules_do_nothing() {
    let mut report = String::new();
    for name in PURE {
        let text = fs::read_to_string(crates().join(name)).unwrap_or_else(|_| panic!("no {name}"));
        for (path, line) in modules::full_paths(name, &text) {
            if is_impure(&path) {
                report += &format!("{name}:{line}: {}\n", path.join("::"));
            }
        }
    }
    assert!(report.is_empty(), "{report}");
}

/// All that a session decides in one worker turn has one time, that of the turn. A clock would be read for each frame.
#[test]
fn sessions_read_no_clock() {
    for path in sources(&crates().join("session/src/session")) {
        let text = fs::read_to_string(&path).unwrap();
        let reads = ["ring.now()", "Instant", "SystemTime"].iter().find(|it| text.contains(**it));
        assert_eq!(reads, None, "{}", path.display());
    }
}

/// Returns true for what a pure module may not name. A module of the standard library that has both kinds is refused as a
/// whole, so that each name is imported by itself.
fn is_impure(path: &[String]) -> bool {
    let names: Vec<_> = path.iter().map(String::as_str).collect();
    match names[..] {
        ["ring"] => true,
        ["ring", name, ..] => name != "Time",
        ["std", "fs" | "os" | "process" | "env" | "thread", ..] | ["std", "net" | "time"] => true,
        ["std", "net", name, ..] => name.starts_with("Tcp") || name.starts_with("Udp"),
        ["std", "time", "Instant" | "SystemTime", ..] => true,
        _ => false,
    }
}

#[test]
fn what_is_impure_is_found_by_any_name() {
    for (code, is_refused) in [
        ("use ring::Time;", false),
        ("fn now() -> ring::Time { todo() }", false),
        ("use ring::{Time, Ring};", true),
        ("use ring::*;", true),
        ("use ring as clock; fn f() { clock::Ring::new() }", true),
        ("fn f() { let _ = std::fs::read(PATH); }", true),
        ("use std::{collections::HashMap, fs as files};", true),
        ("use std as standard; fn f() { standard::env::args() }", true),
        ("use std::net::{IpAddr, SocketAddr};", false),
        ("use std::net::TcpStream as Way;", true),
        ("use std::net; fn f() { net::UdpSocket::bind(A) }", true),
        ("use std::time::Duration;", false),
        ("use std::time::{Duration, Instant};", true),
        ("#[cfg(test)] mod tests { use std::fs; }", false),
        ("/// [`std::fs::read`]\nfn f() { g(\"std::fs\") }", false),
    ] {
        let found = modules::full_paths("it.rs", code).iter().any(|(path, _)| is_impure(path));
        assert_eq!(found, is_refused, "{code}");
    }
}

/// The keyword, and not a part of another word or of a string.
fn has_unsafe(line: &str) -> bool {
    // Not written out, so that this file has none.
    ["{", "fn ", "impl ", "trait ", "extern "]
        .iter()
        .any(|form| line.contains(&format!("{} {form}", "unsafe")))
}
