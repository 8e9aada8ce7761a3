//! Programs and libraries of the workspace that cargo builds for a test.

use std::path::PathBuf;
use std::process::Command;

/// Runs `cargo build` with these arguments, and returns the directory with the programs and libraries of this
/// test's profile.
///
/// For a package's tests cargo builds only its own programs, no programs of other packages, and no `cdylib`.
///
/// With `--workspace` and an `--example` among the arguments, dependencies have the features that all packages and their
/// tests together need, as in `cargo test --workspace`, so nothing is compiled again after that. Without an example cargo
/// leaves out the features that tests need.
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
