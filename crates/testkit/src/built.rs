//! What cargo has built beside a test, or builds when it is asked for.

use std::path::PathBuf;
use std::process::Command;

/// The directory that cargo puts programs and libraries in for this test's profile, after `cargo
/// build` with these arguments has made sure of them there.
///
/// A package's tests come with its own programs only: not with those of others, and with no `cdylib`.
#[must_use]
pub fn built(args: &[&str]) -> PathBuf {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--quiet"]).args(args);
    if !cfg!(debug_assertions) {
        cargo.arg("--release");
    }
    assert!(cargo.status().expect("cargo").success(), "cargo build {args:?}");
    let test = std::env::current_exe().expect("/proc/self/exe");
    test.ancestors().nth(2).expect("target/PROFILE/deps/TEST").to_owned()
}
