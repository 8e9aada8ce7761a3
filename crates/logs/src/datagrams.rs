//! Lines as messages to a daemon on this machine: of syslog, or the journal of systemd.
//!
//! A worker sends each message itself and never waits: the socket is told not to (`MSG_DONTWAIT`). The queue of such a
//! socket has few places (`net.unix.max_dgram_qlen`), so messages that it does not accept wait in memory for a while.
//! When too many wait, further ones are dropped and counted. A daemon that is started anew has another socket at the
//! path. The worker then connects again, at most once a second: such sockets are in `/dev` or `/run`, which are in
//! memory.
//!
//! Reading list: RFC 3164 §4, syslog(3), `systemd.journal-fields(7)`, "Native Journal Protocol" of systemd.

use core::time::Duration;
use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use ring::{Fd, Time};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, send, socket_with,
};

use crate::dropped_lines;
use config::errno::words;

/// The bytes of messages that wait in a worker.
const BUFFER_MAX: usize = 1024 * 1024;
/// The pause between two tries while messages wait.
const RETRY: Duration = Duration::from_millis(50);
/// The pause between two tries to connect.
const CONNECT_PAUSE: Duration = Duration::from_secs(1);
/// The pause between two messages about lines that are dropped: a daemon may be too slow again and again.
const TROUBLE_PAUSE: Duration = Duration::from_secs(10);

/// The messages of one log.
#[derive(Debug)]
pub(super) struct Datagrams {
    socket: Fd,
    path: PathBuf,
    waiting: VecDeque<Vec<u8>>,
    bytes: usize,
    retry_at: Option<Time>,
    connect_at: Time,
    dropped: u64,
    /// The number of dropped messages that were reported.
    reported: u64,
    /// True if lines are being dropped, and a message has said so.
    troubled: bool,
    /// The next message about lines that are dropped comes at this time or later.
    trouble_at: Time,
    trouble: Option<String>,
}

/// Opens a socket of this kind.
///
/// # Errors
///
/// A message for the operator.
pub(super) fn open(path: &Path) -> Result<OwnedFd, String> {
    let open = || -> io::Result<OwnedFd> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None)?;
        connect(&socket, &SocketAddrUnix::new(path)?)?;
        Ok(socket)
    };
    open().map_err(|error| {
        format!("cannot log to {}: {} (a daemon must listen there)", path.display(), words(&error))
    })
}

impl Datagrams {
    pub(super) fn new(socket: Fd, path: &Path) -> Self {
        Self {
            socket,
            path: path.to_owned(),
            waiting: VecDeque::new(),
            bytes: 0,
            retry_at: None,
            connect_at: Time::default(),
            dropped: 0,
            reported: 0,
            troubled: false,
            trouble_at: Time::default(),
            trouble: None,
        }
    }

    /// Sends messages through another socket from now on.
    pub(super) fn replace(&mut self, socket: Fd) {
        self.socket = socket;
        self.retry_at = None;
    }

    /// Sends a message now, or keeps it for later, or drops it.
    pub(super) fn add(&mut self, message: &[u8], now: Time) {
        self.flush(now);
        if self.waiting.is_empty() {
            match self.send(message, now) {
                Ok(()) => return self.recover(),
                Err(error) if may_take_later(error) => {}
                Err(error) => return self.drop_one(error, now),
            }
        }
        if self.bytes + message.len() > BUFFER_MAX {
            return self.drop_one(Errno::AGAIN, now);
        }
        self.bytes += message.len();
        self.waiting.push_back(message.to_vec());
        self.retry_at.get_or_insert(now + RETRY);
    }

    /// Sends the messages that wait, if it is time.
    pub(super) fn flush(&mut self, now: Time) {
        if self.retry_at.is_none_or(|at| now < at) {
            return;
        }
        self.retry_at = None;
        let mut has_sent = false;
        while let Some(message) = self.waiting.pop_front() {
            match self.send(&message, now) {
                Ok(()) => {
                    self.bytes -= message.len();
                    has_sent = true;
                }
                Err(error) if may_take_later(error) => {
                    self.waiting.push_front(message);
                    self.retry_at = Some(now + RETRY);
                    return;
                }
                Err(error) => {
                    self.bytes -= message.len();
                    has_sent = false;
                    self.drop_one(error, now);
                }
            }
        }
        if has_sent {
            self.recover();
        }
    }

    /// The socket has taken a message, and none waits.
    fn recover(&mut self) {
        if core::mem::take(&mut self.troubled) {
            let lost = self.dropped - self.reported;
            self.reported = self.dropped;
            let path = self.path.display();
            self.trouble = Some(format!("logging to {path} again; {}", dropped_lines(lost)));
        }
    }

    fn send(&mut self, message: &[u8], now: Time) -> Result<(), Errno> {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        let sent = send(self.socket.os(), message, flags);
        match sent {
            Err(Errno::CONNREFUSED | Errno::NOTCONN | Errno::CONNRESET)
                if now >= self.connect_at =>
            {
                self.connect_at = now + CONNECT_PAUSE;
                connect(self.socket.os(), &SocketAddrUnix::new(&self.path)?)?;
                send(self.socket.os(), message, flags).map(drop)
            }
            sent => sent.map(drop),
        }
    }

    fn drop_one(&mut self, error: Errno, now: Time) {
        self.dropped += 1;
        if !self.troubled && now >= self.trouble_at {
            self.troubled = true;
            self.trouble_at = now + TROUBLE_PAUSE;
            let why = if error == Errno::AGAIN {
                "it takes no more messages".to_owned()
            } else {
                words(&error.into())
            };
            let path = self.path.display();
            self.trouble = Some(format!("cannot log to {path}: {why}; dropping lines"));
        }
    }

    /// The time of the next try.
    pub(super) fn due(&self) -> Option<Time> {
        self.retry_at
    }

    /// Takes the message about lost lines that has to be reported.
    pub(super) fn complaint(&mut self) -> Option<String> {
        self.trouble.take()
    }

    pub(super) fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Lines that were dropped and not reported, and lines that still wait.
    pub(super) fn lost(&self) -> u64 {
        self.dropped - self.reported + self.waiting.len() as u64
    }

    pub(super) fn is_quiet(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Tries to send the waiting messages at once, for the end of a worker.
    pub(super) fn hurry(&mut self, now: Time) {
        self.retry_at = self.retry_at.map(|_| now);
        self.flush(now);
    }
}

/// Returns true if the socket may accept the message later: its queue is full.
fn may_take_later(error: Errno) -> bool {
    matches!(error, Errno::AGAIN | Errno::NOBUFS | Errno::INTR)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixDatagram;

    use ring::{Choice, Ring};

    use super::*;

    fn datagrams(ring: &Ring, path: &Path) -> Datagrams {
        Datagrams::new(ring.adopt_file(open(path).unwrap()), path)
    }

    #[test]
    fn a_socket_that_takes_nothing_is_not_waited_for_and_what_is_lost_is_counted() {
        let ring = Ring::new(Choice::Epoll).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let daemon = UnixDatagram::bind(&path).unwrap();
        let mut log = datagrams(&ring, &path);
        let message = vec![b'x'; 1000];
        let mut now = Time::default() + Duration::from_secs(100);
        for _ in 0..3000 {
            log.add(&message, now);
        }
        let kept = BUFFER_MAX / 1000;
        assert!(log.dropped() > 0 && log.dropped() < 3000 - kept as u64, "{}", log.dropped());
        assert!(log.complaint().is_some_and(|text| text.contains("it takes no more messages")));
        let dropped = log.dropped();
        let mut room = [0; 2000];
        let mut received = 0;
        daemon.set_nonblocking(true).unwrap();
        while received < 3000 - dropped {
            while daemon.recv(&mut room).is_ok_and(|len| len == 1000) {
                received += 1;
            }
            now = now + RETRY;
            log.flush(now);
        }
        assert!(log.is_quiet() && log.dropped() == dropped);
        let again = format!("again; {dropped} lines were dropped");
        assert!(log.complaint().is_some_and(|text| text.ends_with(&again)));
    }

    #[test]
    fn a_daemon_that_is_started_anew_gets_the_next_messages() {
        let ring = Ring::new(Choice::Epoll).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let daemon = UnixDatagram::bind(&path).unwrap();
        let mut log = datagrams(&ring, &path);
        let mut now = Time::default() + Duration::from_secs(100);
        log.add(b"one", now);
        drop(daemon);
        std::fs::remove_file(&path).unwrap();
        log.add(b"lost", now);
        assert_eq!(log.dropped(), 1);
        assert!(log.complaint().is_some_and(|text| text.contains("; dropping lines")));
        // While the daemon is gone, no further message comes.
        for _ in 0..3 {
            now = now + CONNECT_PAUSE;
            log.flush(now);
            log.add(b"lost", now);
            assert_eq!(log.complaint(), None);
        }
        let daemon = UnixDatagram::bind(&path).unwrap();
        now = now + CONNECT_PAUSE;
        log.add(b"two", now);
        let mut room = [0; 10];
        assert_eq!(daemon.recv(&mut room).unwrap(), 3);
        assert_eq!((&room[..3], log.dropped()), (&b"two"[..], 4));
        assert!(log.complaint().is_some_and(|text| text.ends_with("again; 4 lines were dropped")));
        // It stops and starts all the time.
        drop(daemon);
        std::fs::remove_file(&path).unwrap();
        log.add(b"lost", now);
        assert_eq!(log.complaint(), None);
        now = now + TROUBLE_PAUSE;
        log.add(b"lost", now);
        assert!(log.complaint().is_some_and(|text| text.contains("; dropping lines")));
        assert!(open(&directory.path().join("none")).is_err());
    }
}
