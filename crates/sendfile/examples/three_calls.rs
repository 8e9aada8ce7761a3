//! Kevent's three calls (Polyakov 2006): asynchronous `recv`, `send` and `sendfile`, one after the
//! other, on one queue, without a loop of the program's own.
//!
//! ```sh
//! cargo run -p samum-sendfile --example three_calls
//! ```

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::ffi::CString;
use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;

use ring::{Choice, Ring};
use sendfile::{Calls, DiskConfig, Outcome, Part, Policy, Room};

fn main() -> io::Result<()> {
    let (ours, mut theirs) = UnixStream::pair()?;
    // The other side: asks, then reads everything.
    let peer = std::thread::spawn(move || {
        theirs.write_all(b"the file, please\n")?;
        let mut all = Vec::new();
        theirs.read_to_end(&mut all).map(|_| all)
    });

    let mut calls = Calls::new(Ring::new(Choice::Auto)?, DiskConfig::default())?;
    let socket = calls.ring().adopt_socket(ours.into());
    let socket = calls.adopt(socket);

    // 1. recv
    calls.receive_into(socket, Room::Owned(vec![0; 1000]), 0).expect("the queue is empty");
    let Outcome::Received { room, end: Ok(count) } = next(&mut calls)? else { unreachable!() };
    println!("received {:?}", String::from_utf8_lossy(&room.bytes()[..count]));

    // 2. send, 3. sendfile: one call, and one completion when the kernel has all bytes.
    let root = calls.ring().adopt_file(std::fs::File::open(env!("CARGO_MANIFEST_DIR"))?.into());
    let path = CString::new("Cargo.toml").expect("no NUL");
    calls.open(&root, path, 0).expect("the queue is empty");
    let Outcome::Opened(opened) = next(&mut calls)? else { unreachable!() };
    let (file, stat) = opened?;
    let size = stat.size;
    let head = format!("{size} bytes follow\n").into_bytes();
    let parts = vec![Part::Bytes(head), Part::File(file, 0..size, Policy::default())];
    calls.send(socket, parts, 0).expect("the queue is empty");
    let Outcome::Sent { bytes, end: Ok(()) } = next(&mut calls)? else { unreachable!() };
    println!("sent {bytes} bytes on {}", calls.ring());
    calls.close(socket);
    drop(calls);

    let all = peer.join().expect("the peer does not panic")?;
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    assert!(all.ends_with(&std::fs::read(manifest)?));
    println!("the peer has them all");
    Ok(())
}

/// The outcome of the only call in flight.
fn next(calls: &mut Calls) -> io::Result<Outcome> {
    let mut done = Vec::new();
    calls.wait(None, &mut done)?;
    Ok(done.remove(0).outcome)
}
