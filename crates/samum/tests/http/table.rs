//! The table of `tests/cases`, run on the binary over real sockets.

use core::time::Duration;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;
use std::time::UNIX_EPOCH;

use testkit::{Response, Server, Tree};

use crate::cases::{Case, Kind, MODIFIED, Site, sites};
use crate::common::{connect, on_both_drivers, serve};

/// The pieces in which the bytes of a step are sent.
#[derive(Clone, Copy, Debug)]
enum Cut {
    Whole,
    /// Single bytes, unless there are more than [`DRIBBLED_MAX`].
    Bytes,
}

const DRIBBLED_MAX: usize = 2000;

#[test]
fn every_case_has_its_responses_cold_and_warm_and_however_it_is_cut() {
    let sites = sites();
    let trees: Vec<_> = sites.iter().map(make).collect();
    on_both_drivers(|driver| {
        let mut faults = Vec::new();
        for (site, tree) in sites.iter().zip(&trees) {
            evict(site, tree);
            let index = site.index.map_or(vec![], |index| vec!["--index", index]);
            let listing = if site.listing { vec!["--listing"] } else { vec![] };
            let server = serve(driver, tree.path(), &[index, listing].concat());
            for cut in [Cut::Whole, Cut::Bytes] {
                for case in &site.cases {
                    if let Err(fault) = run(&server, case, cut) {
                        let (site, case) = (site.name, &case.name);
                        faults.push(format!("{site}, {case:?}, {cut:?}: {fault}"));
                    }
                }
            }
        }
        assert!(faults.is_empty(), "{} cases:\n{}", faults.len(), faults.join("\n"));
    });
}

fn make(site: &Site) -> Tree {
    let tree = Tree::new();
    for entry in &site.entries {
        let path = OsStr::from_bytes(&entry.path);
        match &entry.kind {
            Kind::File(content) => {
                tree.write(path, content.clone());
                let file = File::options().write(true).open(tree.path().join(path)).unwrap();
                file.set_modified(UNIX_EPOCH + Duration::from_secs(MODIFIED)).unwrap();
            }
            Kind::Directory => fs::create_dir_all(tree.path().join(path)).unwrap(),
            Kind::Link(target) => {
                fs::create_dir_all(tree.path().join(path).parent().unwrap()).unwrap();
                symlink(target, tree.path().join(path)).unwrap();
            }
        }
    }
    tree
}

fn evict(site: &Site, tree: &Tree) {
    for entry in &site.entries {
        if matches!(&entry.kind, Kind::File(content) if !content.is_empty()) {
            tree.evict(OsStr::from_bytes(&entry.path));
        }
    }
}

fn run(server: &Server, case: &Case, cut: Cut) -> Result<(), String> {
    let text = |error: io::Error| error.to_string();
    let mut client = connect(server);
    let mut earlier: Vec<Response> = Vec::new();
    for (number, step) in case.steps.iter().enumerate() {
        let bytes = step.bytes(&earlier);
        let pieces = match cut {
            Cut::Bytes if bytes.len() <= DRIBBLED_MAX => bytes.chunks(1),
            _ => bytes.chunks(bytes.len().max(1)),
        };
        for piece in pieces {
            // The server may have closed the connection after its response.
            if client.send(piece).is_err() {
                break;
            }
        }
        if case.shuts_down && number + 1 == case.steps.len() {
            client.shutdown_write().map_err(text)?;
        }
        for expected in &step.expect {
            let response = if expected.is_for_head() { client.head() } else { client.response() };
            let response = response.map_err(text)?;
            expected
                .check(&response, &earlier)
                .map_err(|fault| format!("{fault}\n{response:?}"))?;
            earlier.push(response);
        }
    }
    if !case.closes && !case.shuts_down {
        client.shutdown_write().map_err(text)?;
    }
    let rest = client.read_to_end().map_err(text)?;
    if rest.is_empty() { Ok(()) } else { Err(format!("{} bytes more", rest.len())) }
}
