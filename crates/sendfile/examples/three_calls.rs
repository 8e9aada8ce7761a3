//! Kevent's three calls (Polyakov 2006): asynchronous `recv`, `send` and `sendfile`, one after the
//! other, on one queue. A memfd and a Unix socket are the source and the destination; any file and
//! any stream socket do as well.
//!
//! ```sh
//! cargo run -p sendfile --example three_calls
//! ```

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::rc::Rc;

use ring::{Choice, Completion, Event, Op, Ring, Token};
use rustix::fs::MemfdFlags;
use sendfile::{
    Disk, DiskConfig, File, KernelTcp, Owner, Piece, Progress, Stream, Transport, Window,
};

const RECV: Token = 1;
const WRITABLE: Token = 2;
const STAT: Token = 3;
const DISK: Token = 1 << 40;
const FILE_BYTES: usize = 3_000_000;

fn main() -> std::io::Result<()> {
    let (server, mut client) = UnixStream::pair()?;
    let mut memory = std::fs::File::from(rustix::fs::memfd_create("source", MemfdFlags::CLOEXEC)?);
    let content: Vec<u8> =
        (0..FILE_BYTES).map(|at| u8::try_from(at % 251).expect("small")).collect();
    memory.write_all(&content)?;

    // The other side: asks, then reads everything.
    let reader = std::thread::spawn(move || {
        client.write_all(b"the file, please\n")?;
        let mut all = Vec::new();
        client.read_to_end(&mut all).map(|_| all)
    });

    let mut ring = Ring::new(Choice::Auto)?;
    let mut disk = Disk::new(DiskConfig { token_base: DISK, ..DiskConfig::default() })?;
    server.set_nonblocking(true)?;
    let socket = ring.adopt_socket(server.into());
    let memory = ring.adopt_file(memory.into());

    // 1. recv
    let mut transport = KernelTcp::new(socket, RECV, WRITABLE);
    transport.set_receiving(&mut ring, true);
    let Event::Received(request) = event(&mut ring)? else { panic!("the client asks first") };
    println!("received {:?}", String::from_utf8_lossy(&request));
    drop(request);

    // 2. send, 3. sendfile: both promised at once, and sent in order.
    ring.submit(Op::Stat(memory.clone()), STAT);
    let Event::Stat(stat) = event(&mut ring)? else { panic!("a memfd has a state") };
    let mut stream = Stream::new();
    stream.push(Piece::Bytes(format!("{} bytes follow\n", stat.size).into_bytes()));
    stream.push_file(&Rc::new(File::in_memory(memory, &stat)), 0..stat.size);
    finish(&mut ring, &mut disk, &mut transport, &mut stream)?;
    println!("sent {} bytes on {ring}", stream.sent());
    transport.shutdown(&mut ring);

    let all = reader.join().expect("the reader does not panic")?;
    assert!(all.ends_with(&content) && all.starts_with(b"3000000 bytes follow\n"));
    println!("the client has them all");
    Ok(())
}

/// The next event.
fn event(ring: &mut Ring) -> std::io::Result<Event> {
    let mut completions = Vec::new();
    while completions.is_empty() {
        ring.wait(None, &mut completions)?;
    }
    let first: Completion = completions.remove(0);
    first.result
}

/// Go on until everything promised is with the kernel.
fn finish(
    ring: &mut Ring,
    disk: &mut Disk,
    transport: &mut impl Transport,
    stream: &mut Stream,
) -> std::io::Result<()> {
    loop {
        match stream.pump(ring, disk, transport, Owner::of(0), Window::default()) {
            Progress::Drained => return Ok(()),
            Progress::Failed(failure) => return Err(std::io::Error::other(format!("{failure:?}"))),
            Progress::More => continue,
            Progress::Blocked | Progress::Waiting => {}
        }
        let mut completions = Vec::new();
        ring.wait(None, &mut completions)?;
        for completion in completions {
            if completion.token == WRITABLE {
                transport.handle_writable();
            } else if disk.owns(completion.token)
                && let Some(read) = disk.handle(ring, completion)
            {
                stream.handle_read(ring, read);
            }
        }
    }
}
