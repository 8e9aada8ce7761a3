//! Programs in a namespace, and the paths of the examples.

use std::env;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use crate::net::Namespace;

/// A program that is ended on drop.
pub(crate) struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// An example, which `cargo test` builds beside the tests.
pub(crate) fn example(name: &str) -> PathBuf {
    let test = env::current_exe().unwrap();
    test.ancestors().nth(2).unwrap().join("examples").join(name)
}

/// Starts a program in the namespace.
pub(crate) fn start(namespace: &Namespace, program: &str, arguments: &[&str]) -> Running {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", namespace.name(), program]).args(arguments);
    Running(command.stdin(Stdio::null()).spawn().unwrap())
}
