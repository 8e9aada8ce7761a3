//! A small file server with each kind of event loop, written without knowledge of the library:
//! `loop_server level|edge|oneshot|poll|select DIRECTORY`.
//!
//! The server writes its address to standard error, and answers `GET /name` with the file in the
//! directory.

use std::fs::File;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd as _, RawFd};
use std::path::{Path, PathBuf};

use libc::{EPOLL_CTL_ADD, EPOLL_CTL_MOD, EPOLLET, EPOLLIN, EPOLLONESHOT, EPOLLOUT, epoll_event};

const CONNECTIONS_MAX: u16 = 1000;
const EVENTS_MAX: u16 = 64;

/// The event that a connection waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wish {
    Read,
    Write,
    Close,
}

#[derive(Debug)]
struct Connection {
    stream: TcpStream,
    request: Vec<u8>,
    head: Vec<u8>,
    file: Option<(File, u64)>,
    at: libc::off_t,
    wish: Wish,
}

impl Connection {
    fn new(stream: TcpStream) -> Self {
        let (request, head) = (Vec::new(), Vec::new());
        Self { stream, request, head, file: None, at: 0, wish: Wish::Read }
    }

    /// Receives and sends until the socket is empty or full.
    fn advance(&mut self, directory: &Path) -> Wish {
        self.wish = loop {
            let step = if self.file.is_some() { self.send() } else { self.receive(directory) };
            match step {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    break if self.file.is_some() { Wish::Write } else { Wish::Read };
                }
                Err(_) => break Wish::Close,
            }
        };
        self.wish
    }

    fn receive(&mut self, directory: &Path) -> io::Result<()> {
        let mut buffer = [0; 4096];
        let count = self.stream.read(&mut buffer)?;
        if count == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        self.request.extend(&buffer[..count]);
        if !self.request.ends_with(b"\r\n\r\n") {
            return Ok(());
        }
        let request = String::from_utf8_lossy(&self.request).into_owned();
        let name = request.split([' ', '?']).nth(1).unwrap_or("/").trim_start_matches('/');
        let file = File::open(directory.join(name))?;
        let len = file.metadata()?.len();
        self.head = format!("HTTP/1.1 200 OK\r\nContent-Length: {len}\r\n\r\n").into_bytes();
        self.request.clear();
        (self.file, self.at) = (Some((file, len)), 0);
        Ok(())
    }

    fn send(&mut self) -> io::Result<()> {
        if !self.head.is_empty() {
            let count = self.stream.write(&self.head)?;
            self.head.drain(..count);
            return Ok(());
        }
        let Some((file, len)) = &self.file else { return Ok(()) };
        let left = usize::try_from(len - self.at.cast_unsigned()).unwrap_or(usize::MAX);
        if left == 0 {
            self.file = None;
            return Ok(());
        }
        let (out, file) = (self.stream.as_raw_fd(), file.as_raw_fd());
        // SAFETY: both descriptors are open, and the offset is ours.
        match unsafe { libc::sendfile(out, file, &raw mut self.at, left) } {
            1.. => Ok(()),
            0 => Err(ErrorKind::UnexpectedEof.into()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// The server: connections by descriptor.
struct Server {
    listener: TcpListener,
    directory: PathBuf,
    connections: Vec<Option<Connection>>,
}

impl Server {
    fn accept(&mut self) -> Option<RawFd> {
        let (stream, _) = self.listener.accept().ok()?;
        stream.set_nonblocking(true).expect("ioctl FIONBIO");
        let fd = stream.as_raw_fd();
        *self.place(fd) = Some(Connection::new(stream));
        Some(fd)
    }

    fn place(&mut self, fd: RawFd) -> &mut Option<Connection> {
        &mut self.connections[usize::try_from(fd).expect("a descriptor")]
    }

    /// Serves a connection and returns the event that it waits for then; a closed one is removed.
    fn advance(&mut self, fd: RawFd) -> Wish {
        let directory = self.directory.clone();
        let place = self.place(fd);
        let wish = place.as_mut().map_or(Wish::Close, |it| it.advance(&directory));
        if wish == Wish::Close {
            *place = None;
        }
        wish
    }

    fn waiting(&self) -> impl Iterator<Item = (RawFd, Wish)> {
        self.connections.iter().flatten().map(|it| (it.stream.as_raw_fd(), it.wish))
    }

    fn epoll(&mut self, mode: i32) {
        let all = EPOLLIN | EPOLLOUT;
        // SAFETY: no pointers.
        let epfd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        let control = |op, fd: RawFd, events: i32| {
            let mut event =
                epoll_event { events: events.cast_unsigned(), u64: fd.unsigned_abs().into() };
            // SAFETY: a valid event.
            let error = unsafe { libc::epoll_ctl(epfd, op, fd, &raw mut event) };
            assert_eq!(error, 0, "{}", io::Error::last_os_error());
        };
        let listener = self.listener.as_raw_fd();
        control(EPOLL_CTL_ADD, listener, EPOLLIN);
        loop {
            let mut events = [epoll_event { events: 0, u64: 0 }; EVENTS_MAX as usize];
            // SAFETY: there is room for as many events.
            let count =
                unsafe { libc::epoll_wait(epfd, events.as_mut_ptr(), EVENTS_MAX.into(), -1) };
            for event in &events[..usize::try_from(count).unwrap_or(0)] {
                let fd = RawFd::try_from(event.u64).expect("a descriptor");
                if fd == listener {
                    while let Some(fd) = self.accept() {
                        let first = if mode == EPOLLET { all } else { EPOLLIN };
                        control(EPOLL_CTL_ADD, fd, first | mode);
                    }
                    continue;
                }
                match self.advance(fd) {
                    _ if mode == EPOLLET => {}
                    Wish::Close => {}
                    Wish::Read => control(EPOLL_CTL_MOD, fd, EPOLLIN | mode),
                    Wish::Write => control(EPOLL_CTL_MOD, fd, EPOLLOUT | mode),
                }
            }
        }
    }

    fn poll(&mut self) {
        loop {
            let listener = (self.listener.as_raw_fd(), Wish::Read);
            let mut polled: Vec<_> = core::iter::once(listener)
                .chain(self.waiting())
                .map(|(fd, wish)| {
                    let events = if wish == Wish::Write { libc::POLLOUT } else { libc::POLLIN };
                    libc::pollfd { fd, events, revents: 0 }
                })
                .collect();
            // SAFETY: as many valid elements.
            unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, -1) };
            for found in polled.iter().filter(|found| found.revents != 0) {
                self.ready(found.fd);
            }
        }
    }

    fn select(&mut self) {
        loop {
            let listener = (self.listener.as_raw_fd(), Wish::Read);
            let waiting: Vec<_> = core::iter::once(listener).chain(self.waiting()).collect();
            // SAFETY: zeros are empty sets.
            let mut sets: [libc::fd_set; 2] = unsafe { core::mem::zeroed() };
            let index = |wish| usize::from(wish == Wish::Write);
            for &(fd, wish) in &waiting {
                // SAFETY: descriptors are below CONNECTIONS_MAX, which is below FD_SETSIZE.
                unsafe { libc::FD_SET(fd, &raw mut sets[index(wish)]) };
            }
            let [read, write] = &mut sets;
            let none = core::ptr::null_mut();
            let mut limit = libc::timeval { tv_sec: 100, tv_usec: 0 };
            // SAFETY: sets and a limit of our own.
            unsafe { libc::select(CONNECTIONS_MAX.into(), read, write, none, &raw mut limit) };
            for (fd, wish) in waiting {
                // SAFETY: as above.
                if unsafe { libc::FD_ISSET(fd, &raw const sets[index(wish)]) } {
                    self.ready(fd);
                }
            }
        }
    }

    fn ready(&mut self, fd: RawFd) {
        if fd == self.listener.as_raw_fd() {
            while self.accept().is_some() {}
        } else {
            self.advance(fd);
        }
    }
}

fn main() {
    let arguments: Vec<_> = std::env::args().collect();
    let [_, mode, directory] = &arguments[..] else {
        panic!("loop_server level|edge|oneshot|poll|select DIRECTORY");
    };
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.set_nonblocking(true).expect("ioctl FIONBIO");
    eprintln!("listening on http://{}/", listener.local_addr().expect("it is bound"));
    let connections = (0..CONNECTIONS_MAX).map(|_| None).collect();
    let mut server = Server { listener, directory: directory.into(), connections };
    match &mode[..] {
        "level" => server.epoll(0),
        "edge" => server.epoll(EPOLLET),
        "oneshot" => server.epoll(EPOLLONESHOT),
        "poll" => server.poll(),
        "select" => server.select(),
        other => panic!("no such mode: {other}"),
    }
}
