//! A file server on `ring`, `http1`, `outq` and `sendfile` together: one thread, any number of
//! clients, no call that sleeps on the disk.
//!
//! ```sh
//! cargo run --release -p sendfile --example file_server -- . &
//! curl -O http://127.0.0.1:8081/Cargo.lock
//! ```
//!
//! What `samum` adds: caches, ranges, preconditions, listings, logs, limits, timeouts.

use std::collections::HashMap;
use std::ffi::CString;
use std::net::TcpListener;
use std::rc::Rc;

use http1::{Event as Http, Limits, Method, ResponseHead, Status, Target, date, path};
use ring::{Choice, Event, Fd, FileKind, Op, OpenHow, Ring, Token};
use sendfile::{Disk, DiskConfig, File, Piece, Progress, Stream, Window};

/// A client, and the file that it waits for.
struct Client {
    socket: Fd,
    http: http1::Connection,
    input: Vec<u8>,
    file: Option<Fd>,
    stream: Stream,
}

/// The operations of client `n` have the tokens `n * 8` and following; those of the disk are above.
const ACCEPT: Token = 0;
const DISK: Token = 1 << 40;
const RECV: Token = 1;
const WRITABLE: Token = 2;
const OPEN: Token = 3;
const STAT: Token = 4;

fn main() -> std::io::Result<()> {
    let root = std::env::args().nth(1).unwrap_or_else(|| ".".into());
    let mut ring = Ring::new(Choice::Auto)?;
    let mut disk = Disk::new(DiskConfig {
        token_base: DISK,
        ..DiskConfig::default()
    })?;
    let root = ring.adopt_file(std::fs::File::open(root)?.into());
    let listener = TcpListener::bind("127.0.0.1:8081")?;
    listener.set_nonblocking(true)?;
    let listener = ring.adopt_socket(listener.into());
    ring.submit(Op::Accept(listener), ACCEPT);
    let mut clients: HashMap<u64, Client> = HashMap::new();
    let (mut next, mut completions) = (1, Vec::new());
    loop {
        ring.wait(None, &mut completions)?;
        for done in completions.drain(..) {
            if disk.owns(done.token) {
                if let Some(read) = disk
                    .is_read(done.token)
                    .then(|| disk.handle(&mut ring, done))
                    .flatten()
                    && let Some(client) = clients.get_mut(&read.owner)
                {
                    let n = read.owner;
                    client.stream.handle_read(&mut ring, &mut disk, read);
                    proceed(&mut ring, &mut disk, &root, &mut clients, n);
                }
                continue;
            }
            let n = done.token / 8;
            match (clients.get_mut(&n), done.result) {
                (_, Ok(Event::Accepted(socket))) => {
                    ring.submit(Op::Recv(socket.clone()), next * 8 + RECV);
                    let http = http1::Connection::new();
                    clients.insert(
                        next,
                        Client {
                            socket,
                            http,
                            input: Vec::new(),
                            file: None,
                            stream: Stream::new(),
                        },
                    );
                    next += 1;
                }
                (Some(client), Ok(Event::Received(bytes))) => {
                    client.input.extend_from_slice(&bytes)
                }
                (Some(client), Ok(Event::Opened(file))) => {
                    ring.submit(Op::Stat(file.clone()), n * 8 + STAT);
                    client.file = Some(file);
                }
                (Some(client), Ok(Event::Stat(stat))) => match client.file.take() {
                    Some(file) if stat.kind == FileKind::Regular => {
                        respond(&ring, client, Status::Ok, stat.size);
                        client
                            .stream
                            .push_file(&Rc::new(File::new(file, &stat)), 0..stat.size);
                    }
                    _ => respond(&ring, client, Status::NotFound, 0),
                },
                (Some(client), Err(_)) if done.token % 8 == OPEN => {
                    respond(&ring, client, Status::NotFound, 0)
                }
                (Some(_), Ok(Event::Writable)) => {}
                // The client has gone, or has nothing more to say.
                _ => drop(clients.remove(&n)),
            }
            proceed(&mut ring, &mut disk, &root, &mut clients, n);
        }
        while let Some(n) = disk.next_waiting() {
            if let Some(client) = clients.get_mut(&n) {
                client.stream.left_line();
            }
            proceed(&mut ring, &mut disk, &root, &mut clients, n);
        }
    }
}

fn respond(ring: &Ring, client: &mut Client, status: Status, size: u64) {
    let mut head = Vec::new();
    let date = date::format(ring.unix_time());
    ResponseHead {
        content_length: Some(size),
        ..ResponseHead::new(status, date)
    }
    .write_to(&mut head);
    client.stream.push(Piece::Bytes(head));
}

/// Send what can be sent; when everything is, take the next request.
fn proceed(
    ring: &mut Ring,
    disk: &mut Disk,
    root: &Fd,
    clients: &mut HashMap<u64, Client>,
    n: u64,
) {
    let Some(client) = clients.get_mut(&n) else {
        return;
    };
    match client
        .stream
        .pump(ring, disk, &client.socket, n, Window::default())
    {
        Progress::Blocked => {
            drop(ring.submit(Op::Writable(client.socket.clone()), n * 8 + WRITABLE))
        }
        Progress::More => proceed(ring, disk, root, clients, n),
        Progress::Waiting => {}
        Progress::Failed(_) => drop(clients.remove(&n)),
        Progress::Drained => {
            let (taken, event) = client.http.handle_input(&client.input, &Limits::DEFAULT);
            let mut name = Vec::new();
            match event {
                Http::Request(head) => match head.target {
                    Target::Origin { path: url, .. }
                        if head.method == Method::Get
                            && path::normalize(url, &mut name).is_ok() =>
                    {
                        let path = CString::new(name).expect("normal paths have no NUL");
                        ring.submit(
                            Op::Open {
                                dir: Some(root.clone()),
                                path,
                                how: OpenHow::BENEATH,
                            },
                            n * 8 + OPEN,
                        );
                    }
                    _ => respond(ring, client, Status::NotFound, 0),
                },
                Http::Rejected(_) | Http::Closed => return drop(clients.remove(&n)),
                Http::Partial | Http::BodySkipped => {}
            }
            client.input.drain(..taken);
        }
    }
}
