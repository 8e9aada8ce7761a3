//! The table of `tests/cases`, run on the binary over real sockets.

use core::time::Duration;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;
use std::time::UNIX_EPOCH;

use testkit::{Client, Response, Tree};

use crate::cases::{Conversation, Cut, Kind, MODIFIED, Site, sites};
use crate::common::{connect, on_both_drivers, serve, set_modified};

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
            for cut in Cut::ALL {
                for case in &site.cases {
                    if let Err(fault) = case.run(cut, &mut connect(&server)) {
                        let (site, case) = (site.name, &case.name);
                        faults.push(format!("{site}, {case:?}, {cut:?}: {fault}"));
                    }
                }
            }
        }
        assert!(faults.is_empty(), "{} cases:\n{}", faults.len(), faults.join("\n"));
    });
}

pub(crate) fn make(site: &Site) -> Tree {
    let tree = Tree::new();
    for entry in &site.entries {
        let path = OsStr::from_bytes(&entry.path);
        match &entry.kind {
            Kind::File(content) => {
                tree.write(path, content.clone());
                set_modified(&tree.path().join(path), UNIX_EPOCH + Duration::from_secs(MODIFIED));
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

pub(crate) fn evict(site: &Site, tree: &Tree) {
    for entry in &site.entries {
        if matches!(&entry.kind, Kind::File(content) if !content.is_empty()) {
            tree.evict(OsStr::from_bytes(&entry.path));
        }
    }
}

impl Conversation for Client {
    fn send(&mut self, bytes: &[u8]) {
        // The server may have closed the connection after its response.
        let _ = Self::send(self, bytes);
    }

    fn shut_down(&mut self) -> Result<(), String> {
        self.shutdown_write().map_err(text)
    }

    fn receive(&mut self, is_for_head: bool) -> Result<Response, String> {
        if is_for_head { self.head() } else { self.response() }.map_err(text)
    }

    fn rest(&mut self) -> Result<usize, String> {
        self.read_to_end().map(|rest| rest.len()).map_err(text)
    }
}

fn text(error: io::Error) -> String {
    error.to_string()
}
