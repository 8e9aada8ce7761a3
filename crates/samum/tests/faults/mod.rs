//! Faults around the server, its reactions and its messages, on both drivers.

mod attacks;
mod clients;
mod command_line;
mod control_group;
mod deploys;
mod descriptors;
mod disk;
mod health;
mod listeners;
mod log;
mod log_formats;
mod memory;
mod page_cache;
mod reasons;
mod reloads;
mod signals;

use std::io::Read as _;
use std::process::{Command, Stdio};

use crate::common::{SOON, wait_until};

/// Runs a command that ends by itself; returns its exit code, standard output and standard error.
#[track_caller]
fn outcome(command: &mut Command) -> (Option<i32>, String, String) {
    let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = testkit::tether(command).spawn().expect("it starts");
    let mut stdout = child.stdout.take().expect("piped");
    let reader = std::thread::spawn(move || {
        let mut text = String::new();
        stdout.read_to_string(&mut text).map(|_| text)
    });
    // Some commands wait for ten seconds themselves.
    let ended = wait_until(3 * SOON, || child.try_wait().expect("a child").is_some());
    if !ended {
        child.kill().expect("a child");
    }
    let output = child.wait_with_output().expect("a child");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(ended, "still running: {stderr}");
    (output.status.code(), reader.join().expect("no panic").expect("UTF-8"), stderr)
}
