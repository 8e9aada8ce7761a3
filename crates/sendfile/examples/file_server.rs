//! A file server on `ring`, `http1`, `outq` and `sendfile` together: one thread, any number of
//! clients, no call that sleeps on the disk. `samum` adds caches, ranges, logs and limits.
//! `cargo run -p samum-sendfile --example file_server -- .` and `curl http://127.0.0.1:8081/Cargo.lock`;
//! a second argument is another address.

use core::time::Duration;
use std::{collections::HashMap, ffi::CString, io, net::TcpListener, rc::Rc};

use http::{ResponseHead, Status, Target, date, path};
use http1::server::{self, Event as Http};
use http1::{Limits, write};
use ring::{Choice, Completion, Event, Fd, FileKind, Op, OpenHow, Ring, Token};
use rustix::io::Errno;
use sendfile::{
    Disk, DiskConfig, File, KernelTcp, Owner, Piece, Policy, Progress, Stream, Transport as _,
};

/// Tokens below are a client's number; the disk's own reads are from here on.
const DISK: Token = 1 << 40;
/// The token of the listener; the tokens of clients are the numbers of their sockets.
const LISTENER: Token = 0;
/// The pause after an accept that has failed, for example without a free descriptor.
const PAUSE: Duration = Duration::from_millis(100);

struct Server {
    ring: Ring,
    disk: Disk,
    listener: Fd,
    root: Fd,
    clients: HashMap<u64, Client>,
}

struct Client {
    transport: KernelTcp,
    http: server::Connection,
    input: Vec<u8>,
    file: Option<Fd>,
    stream: Stream,
}

fn main() -> io::Result<()> {
    let mut ring = Ring::new(Choice::Auto)?;
    let address = std::env::args().nth(2).unwrap_or_else(|| "127.0.0.1:8081".into());
    let listener = TcpListener::bind(address)?;
    eprintln!("listening on {}", listener.local_addr()?);
    let listener = ring.adopt_socket(listener.into());
    ring.submit(Op::Accept(listener.clone()), LISTENER);
    let root = std::env::args().nth(1).unwrap_or_else(|| ".".into());
    let root = ring.adopt_file(std::fs::File::open(root)?.into());
    let disk = Disk::new(DiskConfig { token_base: DISK, ..DiskConfig::default() })?;
    let mut server = Server { ring, disk, listener, root, clients: HashMap::new() };
    let mut completions = Vec::new();
    loop {
        server.ring.wait(None, &mut completions)?;
        for done in completions.drain(..) {
            server.handle(done);
        }
        while let Some(client) = server.disk.next_waiting() {
            server.proceed(client.connection);
        }
    }
}

impl Server {
    fn handle(&mut self, done: Completion) {
        if self.disk.owns(done.token) {
            let done = self.disk.handle(&mut self.ring, done);
            let owner = done.as_ref().map_or(0, |read| read.owner.connection);
            if let (Some(read), Some(client)) = (done, self.clients.get_mut(&owner)) {
                client.stream.handle_read(read);
            }
            return self.proceed(owner);
        }
        let (ring, name) = (&mut self.ring, done.token);
        match (self.clients.get_mut(&name), done.result) {
            (_, Ok(Event::Accepted(socket))) => {
                let name = socket.raw().unsigned_abs().into();
                let mut transport = KernelTcp::new(socket, name, name);
                transport.set_receiving(ring, true);
                let (http, stream) = (server::Connection::new(), Stream::new());
                let client = Client { transport, http, input: Vec::new(), file: None, stream };
                self.clients.insert(name, client);
            }
            (None, Err(_)) if name == LISTENER => {
                ring.submit(Op::Timer(ring.now() + PAUSE), LISTENER);
            }
            (None, Ok(Event::Timer)) => {
                ring.submit(Op::Accept(self.listener.clone()), LISTENER);
            }
            (Some(client), Ok(Event::Received(bytes))) => client.input.extend_from_slice(&bytes),
            (Some(client), Ok(Event::Opened(file))) => {
                ring.submit(Op::Stat(file.clone()), name);
                client.file = Some(file);
            }
            (Some(client), Ok(Event::Stat(stat))) => match client.file.take() {
                Some(file) if stat.kind == FileKind::Regular => {
                    respond(ring, client, Status::Ok, stat.size);
                    let file = Rc::new(File::new(file, &stat));
                    client.stream.push_file(&file, 0..stat.size, Policy::default());
                }
                _ => respond(ring, client, Status::NotFound, 0),
            },
            // The client may have gone, which sending will find.
            (Some(client), Err(error)) => {
                let status =
                    if is_shortage(&error) { Status::ServiceUnavailable } else { Status::NotFound };
                respond(ring, client, status, 0);
            }
            (Some(client), Ok(Event::Writable)) => client.transport.handle_writable(),
            _ => drop(self.clients.remove(&name)),
        }
        self.proceed(name);
    }

    /// Send what can be sent; when everything is sent, handle the next request.
    fn proceed(&mut self, name: u64) {
        let Some(client) = self.clients.get_mut(&name) else { return };
        let (ring, transport, owner) = (&mut self.ring, &mut client.transport, Owner::of(name));
        match client.stream.pump(ring, &mut self.disk, transport, owner) {
            Progress::Waiting | Progress::Blocked => {}
            // A socket that has room for bytes says so at once: the others' turns come first.
            Progress::More => {
                ring.submit(Op::Writable(transport.socket().clone()), name);
            }
            Progress::Failed(_) => drop(self.clients.remove(&name)),
            Progress::Drained => {
                let (taken, event) = client.http.handle_input(&client.input, &Limits::DEFAULT);
                let mut file = Vec::new();
                if let Http::Request(request) = event
                    && let Target::Origin { path: url, .. } = request.head.target
                    && path::normalize(url, &mut file).is_ok()
                {
                    let (dir, path) =
                        (Some(self.root.clone()), CString::new(file).expect("no NUL"));
                    ring.submit(Op::Open { dir, path, how: OpenHow::BENEATH }, name);
                }
                client.input.drain(..taken);
            }
        }
    }
}

/// Returns whether a resource has run out: the file may exist then.
fn is_shortage(error: &io::Error) -> bool {
    let shortages = [Errno::MFILE, Errno::NFILE, Errno::NOMEM];
    shortages.iter().any(|shortage| error.raw_os_error() == Some(shortage.raw_os_error()))
}

fn respond(ring: &Ring, client: &mut Client, status: Status, size: u64) {
    let mut bytes = Vec::new();
    let head = ResponseHead { content_length: Some(size), ..ResponseHead::new(status) };
    let date = date::format(ring.unix_time());
    write::response_head(&head, &date, write::Wire::default(), &mut bytes);
    client.stream.push(Piece::Bytes(bytes));
}
