//! The examples of this crate and of `ring`, as programs.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};

use testkit::{assert_accepts_after_crowd, built, with_few_descriptors};

/// A program that is ended with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Asserts that an example accepts connections again after it had no free descriptor.
fn accepts_again(package: &str, example: &str, args: &[&str]) {
    let program = built(&["--package", package, "--example", example]).join("examples");
    let mut command = with_few_descriptors(program.join(example));
    command.args(args).stderr(Stdio::piped());
    let mut server = Running(command.spawn().unwrap());
    let mut line = String::new();
    let mut stderr = BufReader::new(server.0.stderr.take().unwrap());
    stderr.read_line(&mut line).unwrap();
    let address = line.trim_start_matches("listening on ").split_ascii_whitespace().next();
    let address = address.and_then(|address| address.parse().ok());
    assert_accepts_after_crowd(server.0.id(), address.unwrap_or_else(|| panic!("{line}")));
}

#[test]
fn the_file_server_accepts_again_after_it_had_no_free_descriptor() {
    accepts_again("sendfile", "file_server", &["/", "127.0.0.1:0"]);
}

#[test]
fn the_echo_server_accepts_again_after_it_had_no_free_descriptor() {
    accepts_again("ring", "echo", &["127.0.0.1:0"]);
}
