//! More clients than a server has descriptors for.

use core::net::SocketAddr;
use core::time::Duration;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Instant;

use crate::{Address, Client, request};

/// The maximum of descriptors of a program that has few.
const FEW: usize = 40;
/// Clients that get their responses when the others have left.
const LATE: usize = 8;
const LIMIT: Duration = Duration::from_secs(10);

/// The command that runs a program with few descriptors.
#[must_use]
pub fn with_few_descriptors(program: impl AsRef<Path>) -> Command {
    let mut command = Command::new("sh");
    let script = format!("ulimit -n {FEW} && exec \"$@\"");
    command.args(["-c", &script, "sh"]).arg(program.as_ref());
    command
}

/// Asserts that a server with few descriptors, the process `pid`, accepts connections again after a time without free
/// descriptors. The server responds to a request of HTTP/1.1 with any bytes.
pub fn assert_accepts_after_crowd(pid: u32, address: SocketAddr) {
    let connect = |_| {
        let mut client = TcpStream::connect(address).expect("the backlog has room");
        client.set_read_timeout(Some(LIMIT)).expect("the limit is not 0");
        client.write_all(b"GET / HTTP/1.1\r\nHost: test\r\n\r\n").expect("the kernel takes it");
        client
    };
    let mut clients: Vec<_> = (0..FEW + LATE).map(connect).collect();
    await_crowd(pid);
    // Meanwhile the server fails to accept the next connection.
    thread::sleep(Duration::from_millis(50));
    drop(clients.drain(..FEW));
    for client in &mut clients {
        client.read_exact(&mut [0]).expect("an answer");
    }
}

/// Asserts that a file server with few descriptors, the process `pid`, responds with 503 for a file while it has no
/// free descriptor. The file exists, and is sent later.
pub fn assert_unavailable_in_crowd(pid: u32, address: SocketAddr, path: &str) {
    let address = Address::Tcp(address);
    let connect = || Client::connect(&address).expect("the backlog has room");
    let ask = |client: &mut Client| {
        client.send(request(&format!("GET {path}"))).expect("the kernel takes it");
        client.response().expect("a response").status
    };
    // A descriptor that is closed late is free for a moment, until one more client is accepted.
    let await_status = |client: &mut Client, awaited| {
        let began = Instant::now();
        loop {
            match ask(client) {
                status if status == awaited => return,
                status @ (200 | 503) => assert!(began.elapsed() < LIMIT, "{status}"),
                status => panic!("{status}"),
            }
        }
    };
    let mut client = connect();
    assert_eq!(ask(&mut client), 200);
    let clients: Vec<_> = (0..FEW).map(|_| connect()).collect();
    await_crowd(pid);
    await_status(&mut client, 503);
    drop(clients);
    await_status(&mut client, 200);
}

/// Waits until a process has no free descriptor.
fn await_crowd(pid: u32) {
    let open = || fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count);
    let began = Instant::now();
    while open() < FEW {
        assert!(began.elapsed() < LIMIT, "{} descriptors are in use", open());
        thread::sleep(Duration::from_millis(5));
    }
}
