//! A server with programs at `/tool/`, the same at `/closed/` for other clients and at `/short/` for short bodies, and
//! files at `/`.

use core::fmt::Write as _;
use std::fs;

use testkit::Tree;

pub(crate) use crate::common::stage::{Stage, script, text};
use crate::common::{SOON, wait_until};
pub(crate) use crate::common::{on_both_drivers, on_both_drivers_at_once};

/// A directory with programs in `cgi` and files in `www`.
pub(crate) fn tree() -> Tree {
    Tree::new().directory("cgi").file("www/a.txt", "a file")
}

/// The numbers of programs that the server has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) started: u64,
    pub(crate) failed: u64,
    pub(crate) killed: u64,
    pub(crate) refused: u64,
}

/// Serves the tree.
pub(crate) fn serve(driver: &str, tree: &Tree) -> Stage {
    serve_with(driver, tree, "")
}

/// The same with these keys of `cgi`.
pub(crate) fn serve_with(driver: &str, tree: &Tree, keys: &str) -> Stage {
    start(driver, tree, keys, 30)
}

/// The same for clients that leave: one that has closed its side may still want its response, but not
/// for long.
pub(crate) fn serve_impatient(driver: &str, tree: &Tree, keys: &str) -> Stage {
    start(driver, tree, keys, 1)
}

fn start(driver: &str, tree: &Tree, keys: &str, timeout_send: u64) -> Stage {
    let root = tree.path().display();
    let mut cgi = format!("directory = '{root}/cgi'");
    if !keys.is_empty() {
        write!(cgi, ", {keys}").unwrap();
    }
    let config = format!(
        "[server]\nthreads = 1\ndriver = '{driver}'\ntimeout-send = {timeout_send}\n\
         [[site]]\nlisten = ['127.0.0.1:0']\n\
         [[site.route]]\nfiles = '{root}/www'\n\
         [[site.route]]\npath = '/tool/'\ncgi = {{ {cgi} }}\n\
         [[site.route]]\npath = '/closed/'\ncgi = '{root}/cgi'\nallow = ['192.0.2.1']\n\
         [[site.route]]\npath = '/short/'\ncgi = '{root}/cgi'\nmax-body = 5\n\
         [[site.route]]\npath = '/metrics'\nmetrics = true\n"
    );
    Stage::new(tree, &config)
}

impl Stage {
    /// The numbers of programs so far.
    pub(crate) fn counts(&self) -> Counts {
        let number = |event| self.count("samum_cgi_programs_total", &[("event", event)]);
        let (started, failed) = (number("started"), number("failed"));
        Counts { started, failed, killed: number("killed"), refused: number("refused") }
    }

    /// Waits until these are the numbers of programs.
    #[track_caller]
    pub(crate) fn expect(&self, expected: Counts) {
        let is_so = wait_until(SOON, || self.counts() == expected);
        assert!(is_so, "{:?} and not {expected:?}", self.counts());
    }
}

/// The number that a program has written to a file, once it has.
#[track_caller]
pub(crate) fn pid_in(tree: &Tree, file: &str) -> u32 {
    let path = tree.path().join(file);
    let mut pid = None;
    let is_there = wait_until(SOON, || {
        let text = fs::read_to_string(&path).unwrap_or_default();
        pid = text.strip_suffix('\n').and_then(|text| text.parse().ok());
        pid.is_some()
    });
    assert!(is_there, "{file} is not written");
    pid.unwrap()
}

/// Waits until nothing is left of a process, not even a zombie.
#[track_caller]
pub(crate) fn wait_for_end(pid: u32) {
    let path = format!("/proc/{pid}");
    let has_ended = wait_until(SOON, || !fs::exists(&path).unwrap());
    let state = fs::read_to_string(format!("{path}/status")).unwrap_or_default();
    assert!(has_ended, "{pid} is left: {state}");
}
