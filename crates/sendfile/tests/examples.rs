//! The examples of this crate and of `ring`, as programs.

use core::net::SocketAddr;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};

use testkit::{
    assert_accepts_after_crowd, assert_unavailable_in_crowd, built, with_few_descriptors,
};

/// A program that is ended with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts an example with few descriptors. Returns its address, too.
fn start(example: &str, args: &[&str]) -> (Running, SocketAddr) {
    let program = built(&["--workspace", "--example", example]).join("examples");
    let mut command = with_few_descriptors(program.join(example));
    command.args(args).stderr(Stdio::piped());
    let mut server = Running(command.spawn().unwrap());
    let mut line = String::new();
    let mut stderr = BufReader::new(server.0.stderr.take().unwrap());
    stderr.read_line(&mut line).unwrap();
    let address = line.trim_start_matches("listening on ").split_ascii_whitespace().next();
    let address = address.and_then(|address| address.parse().ok());
    (server, address.unwrap_or_else(|| panic!("{line}")))
}

/// Asserts that an example accepts connections again after it had no free descriptor.
fn accepts_again(example: &str, args: &[&str]) {
    let (server, address) = start(example, args);
    assert_accepts_after_crowd(server.0.id(), address);
}

#[test]
fn the_file_server_accepts_again_after_it_had_no_free_descriptor() {
    accepts_again("file_server", &["/", "127.0.0.1:0"]);
}

#[test]
fn the_file_server_answers_503_while_it_has_no_free_descriptor() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("file"), "content").unwrap();
    let args = [dir.path().to_str().unwrap(), "127.0.0.1:0"];
    let (server, address) = start("file_server", &args);
    assert_unavailable_in_crowd(server.0.id(), address, "/file");
}

#[test]
fn the_echo_server_accepts_again_after_it_had_no_free_descriptor() {
    accepts_again("echo", &["127.0.0.1:0"]);
}
