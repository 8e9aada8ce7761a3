//! The sender: one thread, one event loop, and a [`Strategy`] for the bytes of files.
//!
//! All strategies share the rest: `ring` for events (on epoll, or on io_uring if the strategy reads
//! through it), the requests, the head of the response, turns of 1 MiB. But a strategy is more than a
//! system call. All but samum request a piece of 256 KiB when the piece before has been sent, and leave
//! readahead to the kernel (`O_DIRECT` has none). samum is compared as its server works
//! ([`DIFFERENCES`]). Its gain does not come from splice(2) or a read alone, and some of the other
//! strategies could have it too.
//!
//! | strategy | module |
//! |---|---|
//! | read+write, sendfile | `inline`: on the loop, which sleeps when the disk does |
//! | thread pool, AIO, io_uring read, io_uring splice | `fetch`: a piece is fetched, then sent |
//! | sendfile, but not from disk | `nodiskio` |
//! | mmap and mlock | `mlock` |
//! | samum | `samum`: `Stream` and `Disk` of the crate `sendfile` |
//!
//! The sender runs as a process of its own (`samum-bench disk-sender`, hidden), so that CPU time, memory
//! and the limit of a cgroup are its own. It ends after the process that started it.

use core::time::Duration;
use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io::{self, Error, ErrorKind, IoSlice};
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use ring::{Choice, Completion, Device, Event, Fd, FileKind, Op, Ring, Stat, Token, Waker};
use sendfile::Caching;

mod fetch;
mod inline;
mod mlock;
mod nodiskio;
mod samum;

/// A way of a file's bytes from the disk to a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Strategy {
    /// pread(2) and send(2) on the loop
    ReadWrite,
    /// sendfile(2) on the loop
    Sendfile,
    /// pread(2) in up to 64 threads, then send(2)
    ThreadPool,
    /// Asynchronous reads with `O_DIRECT` by io_uring, then send(2)
    AioDirect,
    /// sendfile(2) of what `RWF_NOWAIT` finds in memory; else a helper thread reads it first
    SfNodiskio,
    /// mmap(2) and mlock(2) in helper threads, then send(2) from the mapping
    MmapMlock,
    /// Asynchronous reads through the page cache by io_uring, then send(2)
    UringRead,
    /// splice(2) from file to pipe by io_uring, then from pipe to socket on the loop
    UringSplice,
    /// samum's non-blocking sendfile on io_uring
    SamumUring,
    /// samum's on io_uring, and nothing stays in the page cache
    SamumUringNocache,
    /// samum's on epoll and threads
    SamumEpoll,
    /// samum's on epoll and threads, and nothing stays in the page cache
    SamumEpollNocache,
}

impl Strategy {
    /// Its name on the command line and in tables.
    #[must_use]
    pub fn name(self) -> String {
        clap::ValueEnum::to_possible_value(&self)
            .map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// Its description in one line.
    #[must_use]
    pub fn about(self) -> String {
        clap::ValueEnum::to_possible_value(&self)
            .and_then(|value| value.get_help().map(ToString::to_string))
            .unwrap_or_default()
    }

    /// Returns whether its loop runs on io_uring.
    #[must_use]
    pub fn needs_uring(self) -> bool {
        use Strategy::{AioDirect, SamumUring, SamumUringNocache, UringRead, UringSplice};
        matches!(self, AioDirect | UringRead | UringSplice | SamumUring | SamumUringNocache)
    }
}

/// The differences between samum and the other strategies, apart from the call that moves the bytes.
pub const DIFFERENCES: &str = "Strategies but samum's have one piece of 256 KiB of a download on its way at a time, \
    and the kernel reads ahead of it, save with O_DIRECT. samum's has up to 1 MiB of each download read ahead, in \
    pieces of 256 KiB to 1 MiB by how fast the disk answers, turns the kernel's readahead off on a slow disk, sends \
    what comes from the disk corked (TCP_CORK), and bounds the reads and memory of all downloads together";

/// The command line of the hidden `samum-bench disk-sender`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Strategy
    #[arg(long, value_enum)]
    pub strategy: Strategy,
    /// Port of 127.0.0.1 to listen on
    #[arg(long)]
    pub port: u16,
    /// Directory whose files to serve; those of its subdirectories are not
    pub root: PathBuf,
}

/// Serves until the process that started it has ended.
///
/// # Errors
/// If files cannot be opened as the strategy needs them, or the kernel refuses a listener or ring.
pub fn run(args: &Args) -> io::Result<()> {
    let parent = rustix::process::getppid();
    let listener = TcpListener::bind(("127.0.0.1", args.port))?;
    serve(args.strategy, listener, &args.root, || rustix::process::getppid() == parent)
}

/// Serves the files of a directory, and `/hot` from memory, for as long as `goes_on` says once a
/// second.
///
/// # Errors
/// As [`run`].
pub fn serve(
    strategy: Strategy,
    listener: TcpListener,
    root: &Path,
    goes_on: impl Fn() -> bool,
) -> io::Result<()> {
    let choice = if strategy.needs_uring() { Choice::Uring } else { Choice::Epoll };
    let mut ring = Ring::new(choice)?;
    let direct = strategy == Strategy::AioDirect;
    let files = open(&ring, root, direct)?;
    let start = Start { listener, files, goes_on };
    use fetch::{Fetch, How};
    match strategy {
        Strategy::ReadWrite => start.serve(ring, inline::ReadWrite),
        Strategy::Sendfile => start.serve(ring, inline::Sendfile),
        Strategy::ThreadPool | Strategy::UringRead => start.serve(ring, Fetch::new(How::Read)?),
        Strategy::AioDirect => start.serve(ring, Fetch::new(How::Direct)?),
        Strategy::UringSplice => start.serve(ring, Fetch::new(How::Splice)?),
        Strategy::SfNodiskio => start.serve(ring, nodiskio::Nodiskio::new()?),
        Strategy::MmapMlock => {
            let waker = ring.waker(WAKER)?;
            start.serve(ring, mlock::Mlock::new(waker)?)
        }
        Strategy::SamumUring | Strategy::SamumEpoll => {
            start.serve(ring, samum::Samum::new(Caching::Always)?)
        }
        Strategy::SamumUringNocache | Strategy::SamumEpollNocache => {
            start.serve(ring, samum::Samum::new(Caching::Never)?)
        }
    }
}

/// A file that is served.
#[derive(Debug)]
struct Source {
    /// For calls on the loop.
    file: File,
    /// The same, for operations of the ring.
    fd: Fd,
    stat: Stat,
}

/// Opens all files of a directory: what opening costs is not the question here.
fn open(ring: &Ring, root: &Path, direct: bool) -> io::Result<HashMap<String, Rc<Source>>> {
    let mut files = HashMap::new();
    for entry in std::fs::read_dir(root)? {
        let entry = entry?;
        if !entry.file_type()?.is_file() {
            continue;
        }
        if files.len() == FILES_MAX {
            return Err(Error::other(format!("more than {FILES_MAX} files in {}", root.display())));
        }
        let mut options = File::options();
        options.read(true);
        if direct {
            options.custom_flags(libc::O_DIRECT);
        }
        let file = options.open(entry.path()).map_err(|error| match error.kind() {
            ErrorKind::InvalidInput => {
                Error::new(ErrorKind::Unsupported, "this file system has no O_DIRECT")
            }
            _ => error,
        })?;
        let meta = file.metadata()?;
        let stat = Stat {
            kind: FileKind::Regular,
            size: meta.len(),
            mtime: meta.mtime(),
            mtime_nanos: u32::try_from(meta.mtime_nsec()).unwrap_or(0),
            ctime: meta.ctime(),
            ctime_nanos: u32::try_from(meta.ctime_nsec()).unwrap_or(0),
            dev: meta.dev(),
            device: Device::of(meta.dev()),
            ino: meta.ino(),
            links: u32::try_from(meta.nlink()).unwrap_or(u32::MAX),
            mode: u16::try_from(meta.mode() & 0o17_7777).unwrap_or_default(),
            owner: meta.uid(),
            from_image: false,
            direct_align: 0,
            mount: 0,
        };
        let fd = ring.adopt_file(file.try_clone()?.into());
        let name = format!("/{}", entry.file_name().to_string_lossy());
        files.insert(name, Rc::new(Source { file, fd, stat }));
    }
    Ok(files)
}

/// The way in which a strategy moves the bytes of files. It never sees requests.
trait Mover {
    /// The state of one file on its way.
    type Transfer;

    /// The result of a completion for a transfer.
    type Arrival;

    /// Begins; does no I/O.
    fn begin(&mut self, file: &Rc<Source>) -> Self::Transfer;

    /// Moves what can be moved now, at most about [`TURN`].
    fn advance(&mut self, turn: Turn<'_>, transfer: &mut Self::Transfer) -> io::Result<Step>;

    /// Handles a completion that is not the loop's, or a wake-up; returns its transfer and its result. The
    /// loop gives it to [`arrive`](Self::arrive) if the transfer is still there, and then advances it.
    fn complete(
        &mut self,
        ring: &mut Ring,
        completion: Completion,
        arrivals: &mut Vec<(Token, Self::Arrival)>,
    );

    /// Gives a transfer the result that it has waited for.
    fn arrive(&mut self, ring: &mut Ring, transfer: &mut Self::Transfer, arrival: Self::Arrival);

    /// Its socket, which was full, is not any more.
    fn writable(&mut self, _transfer: &mut Self::Transfer) {}

    /// Returns whether a transfer has work while its socket is full.
    fn works_ahead(&self) -> bool {
        false
    }

    /// A transfer that waited for room, and may go on now.
    fn next_waiting(&mut self) -> Option<Token> {
        None
    }
}

/// The ring, the socket and the client of one turn of a transfer.
struct Turn<'a> {
    ring: &'a mut Ring,
    socket: &'a Fd,
    /// The client.
    name: Token,
}

/// The result of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// The kernel has all bytes.
    Done,
    /// The socket is full.
    Blocked,
    /// Something is under way that will complete, or the mover knows that the socket is still full.
    Waiting,
    /// The turn is over.
    More,
}

/// Converts the result of `send` and similar calls: the bytes taken, or none if the socket is full.
fn taken(result: io::Result<usize>) -> io::Result<Option<usize>> {
    match result {
        Ok(n) => Ok(Some(n)),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}

/// A file that ends before its size: it was cut while it was served.
fn truncated() -> Error {
    Error::new(ErrorKind::UnexpectedEof, "the file has become shorter")
}

/// Makes a mover's error of any that a completion can carry.
fn wrong(event: &Event) -> Error {
    Error::other(format!("a read ended with {event:?}"))
}

/// The parameters of every strategy.
struct Start<G> {
    listener: TcpListener,
    files: HashMap<String, Rc<Source>>,
    goes_on: G,
}

impl<G: Fn() -> bool> Start<G> {
    fn serve<M: Mover>(self, mut ring: Ring, mover: M) -> io::Result<()> {
        self.listener.set_nonblocking(true)?;
        let listener = ring.adopt_socket(self.listener.into());
        ring.submit(Op::Accept(listener), LISTENER);
        let mut server = Server {
            ring,
            mover,
            files: self.files,
            clients: HashMap::new(),
            next: LISTENER + 1,
            again: VecDeque::new(),
        };
        let (mut completions, mut arrivals) = (Vec::new(), Vec::new());
        let mut glance = server.ring.now() + GLANCE;
        loop {
            let now = server.ring.now();
            if now >= glance {
                if !(self.goes_on)() {
                    return Ok(());
                }
                glance = now + GLANCE;
            }
            let until = if server.again.is_empty() { glance } else { now };
            server.ring.wait(Some(until), &mut completions)?;
            for completion in completions.drain(..) {
                server.handle(completion, &mut arrivals);
            }
            server.proceed_again();
        }
    }
}

struct Server<M: Mover> {
    ring: Ring,
    mover: M,
    files: HashMap<String, Rc<Source>>,
    clients: HashMap<Token, Client<M::Transfer>>,
    /// The next client's name.
    next: Token,
    /// Clients whose turn ended before their work.
    again: VecDeque<Token>,
}

struct Client<T> {
    socket: Fd,
    /// The bytes of requests.
    input: Vec<u8>,
    /// The bytes of responses that the kernel does not have yet.
    output: Vec<u8>,
    transfer: Option<T>,
    /// A `Writable` is under way.
    blocked: bool,
}

impl<M: Mover> Server<M> {
    fn handle(&mut self, done: Completion, arrivals: &mut Vec<(Token, M::Arrival)>) {
        if done.token >= MOVER {
            self.mover.complete(&mut self.ring, done, arrivals);
            for (name, arrival) in arrivals.drain(..) {
                if let Some(Client { transfer: Some(transfer), .. }) = self.clients.get_mut(&name) {
                    self.mover.arrive(&mut self.ring, transfer, arrival);
                    self.proceed(name);
                }
            }
            while let Some(name) = self.mover.next_waiting() {
                self.proceed(name);
            }
            return;
        }
        let name = done.token;
        match (done.result, self.clients.get_mut(&name)) {
            (Ok(Event::Accepted(socket)), _) => self.accept(socket),
            (Ok(Event::Received(bytes)), Some(client)) => {
                client.input.extend_from_slice(&bytes);
                drop(bytes);
                self.proceed(name);
            }
            (Ok(Event::Writable), Some(client)) => {
                client.blocked = false;
                if let Some(transfer) = &mut client.transfer {
                    self.mover.writable(transfer);
                }
                self.proceed(name);
            }
            // The peer has closed or reset the connection.
            _ => drop(self.clients.remove(&name)),
        }
    }

    fn accept(&mut self, socket: Fd) {
        let name = self.next;
        self.next += 1;
        assert!(self.next < MOVER, "2^40 connections");
        self.ring.submit(Op::Recv(socket.clone()), name);
        let client = Client {
            socket,
            input: Vec::new(),
            output: Vec::new(),
            transfer: None,
            blocked: false,
        };
        self.clients.insert(name, client);
    }

    /// The turns of the others come first.
    fn proceed_again(&mut self) {
        for _ in 0..self.again.len() {
            if let Some(name) = self.again.pop_front() {
                self.proceed(name);
            }
        }
    }

    fn proceed(&mut self, name: Token) {
        if self.try_proceed(name).is_err() {
            // The promised bytes cannot be sent, so the connection is closed early.
            self.clients.remove(&name);
        }
    }

    /// Sends what can be sent, and handles the next request when everything is sent.
    fn try_proceed(&mut self, name: Token) -> io::Result<()> {
        let Some(client) = self.clients.get_mut(&name) else { return Ok(()) };
        loop {
            if client.blocked && !(self.mover.works_ahead() && client.output.is_empty()) {
                return Ok(());
            }
            while !client.output.is_empty() {
                let more = client.transfer.is_some();
                let result = self.ring.send(&client.socket, &[IoSlice::new(&client.output)], more);
                let Some(n) = taken(result)? else {
                    self.block(name);
                    return Ok(());
                };
                client.output.drain(..n);
            }
            if let Some(transfer) = &mut client.transfer {
                let turn = Turn { ring: &mut self.ring, socket: &client.socket, name };
                match self.mover.advance(turn, transfer)? {
                    Step::Done => client.transfer = None,
                    Step::Waiting => return Ok(()),
                    Step::Blocked => {
                        self.block(name);
                        return Ok(());
                    }
                    Step::More => {
                        self.again.push_back(name);
                        return Ok(());
                    }
                }
            }
            let Some(path) = request(&mut client.input)? else { return Ok(()) };
            if path == "/hot" {
                head(&mut client.output, "200 OK", HOT_BYTES as u64);
                client.output.resize(client.output.len() + HOT_BYTES, b'h');
            } else if let Some(file) = self.files.get(&path) {
                head(&mut client.output, "200 OK", file.stat.size);
                client.transfer = Some(self.mover.begin(file));
            } else {
                head(&mut client.output, "404 Not Found", 0);
            }
        }
    }

    fn block(&mut self, name: Token) {
        if let Some(client) = self.clients.get_mut(&name) {
            client.blocked = true;
            self.ring.submit(Op::Writable(client.socket.clone()), name);
        }
    }
}

/// The path of the first request in `input`, if it is all there; takes it out.
fn request(input: &mut Vec<u8>) -> io::Result<Option<String>> {
    let Some(end) = input.windows(4).position(|bytes| bytes == b"\r\n\r\n") else {
        if input.len() > REQUEST_MAX {
            return Err(ErrorKind::InvalidData.into());
        }
        return Ok(None);
    };
    let line = String::from_utf8_lossy(&input[..end]);
    let path = line.split(' ').nth(1).unwrap_or("").to_owned();
    input.drain(..end + 4);
    Ok(Some(path))
}

fn head(output: &mut Vec<u8>, status: &str, length: u64) {
    let head = format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n\r\n");
    output.extend_from_slice(head.as_bytes());
}

/// The bytes of a file that one call requests.
const CHUNK: usize = 256 << 10;

/// The bytes that one client's transfer moves before the others' turns come.
const TURN: u64 = 1 << 20;

/// The bytes of `/hot`.
pub const HOT_BYTES: usize = 1024;

/// Files of the directory.
pub const FILES_MAX: usize = 1024;

/// The number of buffers and of pipes: the maximum of transfers under way.
const TRANSFERS_MAX: usize = 1024;

/// The maximum of bytes of a request's head.
const REQUEST_MAX: usize = 16 << 10;

/// The interval of checks whether the sender must end.
const GLANCE: Duration = Duration::from_secs(1);

/// Tokens: the listener, then clients by number; the tokens of movers begin here.
const LISTENER: Token = 0;
const MOVER: Token = 1 << 40;
const WAKER: Token = 1 << 50;

/// Tells the loop of what helper threads have done.
type Wakes = Waker;
