//! The dependencies that `DESIGN.md` allows, between crates and between modules, and where `unsafe` may be.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use modules::Arrow;

#[path = "architecture/modules.rs"]
mod modules;

/// Each crate, and the crates of the workspace that it may depend on.
const MAY_DEPEND_ON: [(&str, &[&str]); 15] = [
    ("outq", &[]),
    ("netstack", &["outq"]),
    ("netdev", &["netstack"]),
    ("http", &[]),
    ("http1", &["http"]),
    ("fastcgi", &[]),
    ("pace", &[]),
    ("media", &[]),
    ("ring", &[]),
    ("sendfile", &["outq", "pace", "ring"]),
    ("libsamum", &["ring", "sendfile"]),
    (
        "samum",
        &["fastcgi", "http", "http1", "media", "netdev", "netstack", "outq", "ring", "sendfile"],
    ),
    ("preload", &["pace"]),
    ("testkit", &["http", "http1", "netstack", "outq", "ring", "sendfile"]),
    ("bench", &["http", "http1", "media", "netdev", "netstack", "outq", "ring", "sendfile"]),
];

/// Crates that only the examples of a crate may use.
const FOR_EXAMPLES: [(&str, &str); 3] =
    [("netdev", "outq"), ("sendfile", "http"), ("sendfile", "http1")];

/// Crates that do no I/O. They use `core`, `alloc` and other pure crates, and no code from elsewhere.
const PURE: [&str; 7] = ["fastcgi", "http", "http1", "media", "netstack", "outq", "pace"];

/// Files with `unsafe` in them, tests included.
const UNSAFE: [&str; 43] = [
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
    "ring/src/drivers/uring/mod.rs",
    "ring/src/drivers/uring/socket.rs",
    "ring/src/helpers/job.rs",
    "ring/src/now/file.rs",
    "ring/src/now/mapping.rs",
    "ring/src/now/process.rs",
    "ring/src/now/socket.rs",
    "ring/src/recv.rs",
    "ring/src/span.rs",
    "testkit/src/middle_box.rs",
    "testkit/src/seccomp.rs",
    "testkit/src/tether.rs",
];

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
    let names = all_crates();
    let mut known: Vec<_> = MAY_DEPEND_ON.map(|(name, _)| name).into();
    known.sort_unstable();
    assert_eq!(names, known, "a new crate needs a line in this file and in DESIGN.md");
}

#[test]
fn crates_depend_only_on_those_below_them() {
    let ours: Vec<_> = MAY_DEPEND_ON.map(|(name, _)| name).into();
    for (name, allowed) in MAY_DEPEND_ON {
        for (section, dependencies) in dependencies(name) {
            for dependency in
                dependencies.iter().filter(|dependency| ours.contains(&&dependency[..]))
            {
                let pair = (name, &dependency[..]);
                let for_tests = dependency == "testkit" || FOR_EXAMPLES.contains(&pair);
                let is_allowed = (for_tests && section == "dev-dependencies")
                    || allowed.contains(&&dependency[..]);
                assert!(is_allowed, "{name} depends on {dependency} in [{section}]");
            }
        }
    }
}

#[test]
fn pure_crates_depend_on_pure_crates_only() {
    for name in PURE {
        for dependency in dependencies(name).get("dependencies").into_iter().flatten() {
            assert!(PURE.contains(&&dependency[..]), "{name} depends on {dependency}");
        }
        let root = fs::read_to_string(crates().join(name).join("src/lib.rs")).unwrap();
        for attribute in ["#![no_std]", "#![forbid(unsafe_code)]"] {
            assert!(root.lines().any(|line| line == attribute), "{name} lacks {attribute}");
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

/// The keyword, and not a part of another word or of a string.
fn has_unsafe(line: &str) -> bool {
    // Not written out, so that this file has none.
    ["{", "fn ", "impl ", "trait ", "extern "]
        .iter()
        .any(|form| line.contains(&format!("{} {form}", "unsafe")))
}
