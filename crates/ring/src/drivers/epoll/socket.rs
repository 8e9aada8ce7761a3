//! Sockets: each operation first tries its call, and then waits for an edge of its descriptor.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::event::PollFlags;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SocketFlags};

use super::Epoll;
use crate::common::{Common, Slot};
use crate::drivers::ACCEPTS_MAX;
use crate::fd::Fd;
use crate::now::socket::polls;
use crate::op::{Event, Op, SPARE_ACCEPTS_MAX, Wait};
use crate::recv;
use crate::slab::Key;

const SOCKET_EVENTS: EventFlags =
    EventFlags::IN.union(EventFlags::OUT).union(EventFlags::RDHUP).union(EventFlags::ET);
/// The peer has closed its side, or the connection is gone. A message in the error queue is an error,
/// too, and says nothing of the kind.
const GONE: EventFlags = EventFlags::RDHUP.union(EventFlags::HUP);
const DEAD: EventFlags = EventFlags::RDHUP.union(EventFlags::HUP).union(EventFlags::ERR);

/// The operations that wait for a descriptor. It is added to the epoll set once, for both directions. An edge without a
/// waiting operation is ignored, because every operation first tries its call.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Interest {
    added: bool,
    /// The peer has closed its side or the socket is broken; there will be no further edge of it.
    dead: bool,
    /// True if `input` is in `again`, `more` or `waiting` already.
    queued: bool,
    input: Option<Key>,
    output: Option<Key>,
    acknowledgements: Option<Key>,
}

impl Interest {
    /// Returns whether the epoll set has the socket.
    pub(super) const fn is_added(&self) -> bool {
        self.added
    }
}

pub(super) fn index(fd: i32) -> usize {
    usize::try_from(fd).expect("descriptors in use are not negative")
}

impl Epoll {
    fn interest(&mut self, fd: BorrowedFd<'_>) -> io::Result<&mut Interest> {
        let at = index(fd.as_raw_fd());
        if at >= self.interests.len() {
            self.interests.resize(at + 1, Interest::default());
        }
        let interest = &mut self.interests[at];
        if !interest.added {
            let data = EventData::new_u64(at as u64);
            match epoll::add(&self.epoll, fd, data, SOCKET_EVENTS) {
                // A regular file is always ready, which the caller finds when it tries.
                Ok(()) | Err(Errno::PERM) => interest.added = true,
                // The number was used for the same open file before, which lives on elsewhere.
                Err(Errno::EXIST) => {
                    epoll::modify(&self.epoll, fd, data, SOCKET_EVENTS)?;
                    interest.added = true;
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(interest)
    }

    pub(super) fn submit_socket(&mut self, common: &mut Common, key: Key, wait: Wait, fd: &Fd) {
        if wait == Wait::Accept {
            // accept4(2) has no flag for nonblocking listeners. accept4 reports ENOTTY and similar faults.
            let _ = rustix::io::ioctl_fionbio(fd.os(), true);
        }
        // Before it is in the epoll set: a socket that connects to nothing is an event.
        if wait == Wait::Connect
            && let Err(error) = begin_connect(common, key, fd)
        {
            common.end(key, Err(error.into()));
            return;
        }
        match self.interest(fd.os()) {
            Ok(interest) if wait == Wait::Accept && interest.input.is_some() => {
                if self.spare_accepts.len() < SPARE_ACCEPTS_MAX {
                    self.spare_accepts.push(key);
                } else {
                    common.end(key, Err(Errno::NOBUFS.into()));
                }
            }
            Ok(interest) => {
                let side = match wait {
                    Wait::Writable | Wait::Connect => &mut interest.output,
                    Wait::Acknowledgements => &mut interest.acknowledgements,
                    _ => {
                        interest.queued = true;
                        &mut interest.input
                    }
                };
                debug_assert!(side.is_none(), "one operation for each direction of {fd:?}");
                *side = Some(key);
                self.again.push(key);
            }
            Err(error) => drop(common.end(key, Err(error))),
        }
    }

    pub(super) fn cancel_socket(&mut self, common: &Common, key: Key, wait: Wait, fd: &Fd) {
        if wait == Wait::Accept {
            return self.end_accept(common, key, fd);
        }
        let interest = &mut self.interests[index(fd.raw())];
        match wait {
            Wait::Writable | Wait::Connect => interest.output = None,
            Wait::Acknowledgements => interest.acknowledgements = None,
            _ => (interest.input, interest.queued) = (None, false),
        }
    }

    /// Something has happened to the descriptor with this index.
    pub(super) fn handle_edge(&mut self, common: &mut Common, at: usize, flags: EventFlags) {
        self.interests[at].dead |= flags.intersects(GONE);
        let Interest { input, output, queued, acknowledgements, .. } = self.interests[at];
        if let (Some(key), true) = (acknowledgements, flags.contains(EventFlags::ERR)) {
            self.attempt(common, key);
        }
        if let (Some(key), false, true) = (input, queued, flags.intersects(EventFlags::IN | DEAD)) {
            self.attempt(common, key);
        }
        if let (Some(key), true) = (output, flags.intersects(EventFlags::OUT | DEAD)) {
            self.interests[at].output = None;
            end_output(common, key);
        }
    }

    /// Do what `key` waits for if it can be done now.
    pub(super) fn attempt(&mut self, common: &mut Common, key: Key) {
        let Some((wait, fd)) = common.table.get(key).and_then(Slot::socket) else {
            return;
        };
        let fd = fd.clone();
        match wait {
            Wait::Recv => {
                self.interests[index(fd.raw())].queued = false;
                self.receive(common, key, &fd);
            }
            Wait::Accept => {
                self.interests[index(fd.raw())].queued = false;
                self.accept(common, key, &fd);
            }
            Wait::Readable => {
                self.interests[index(fd.raw())].queued = false;
                if polls(fd.os(), PollFlags::IN) {
                    self.interests[index(fd.raw())].input = None;
                    common.end(key, Ok(Event::Readable));
                }
            }
            Wait::Signal => {
                self.interests[index(fd.raw())].queued = false;
                match common.take_signal(key) {
                    // The socket may have another event, for which no further edge comes.
                    Ok(true) => {
                        self.interests[index(fd.raw())].queued = true;
                        self.again.push(key);
                    }
                    Ok(false) => {}
                    Err(error) => {
                        self.interests[index(fd.raw())].input = None;
                        common.end(key, Err(error));
                    }
                }
            }
            Wait::Child => {
                let interest = &mut self.interests[index(fd.raw())];
                interest.queued = false;
                if common.end_child(key) {
                    self.interests[index(fd.raw())].input = None;
                }
            }
            Wait::Acknowledgements => common.begin_acknowledgements(key, &fd),
            Wait::Writable | Wait::Connect => {
                // Messages in the error queue would make it look dead.
                common.take_acknowledgements(&fd);
                if polls(fd.os(), PollFlags::OUT) {
                    self.interests[index(fd.raw())].output = None;
                    end_output(common, key);
                }
            }
        }
    }

    fn receive(&mut self, common: &mut Common, key: Key, fd: &Fd) {
        let interest = &mut self.interests[index(fd.raw())];
        let pool = if fd.wants_wide() { &self.wide } else { &self.recv };
        let received = pool.receive(|space| {
            let (len, _) = rustix::net::recv(fd.os(), space, RecvFlags::DONTWAIT)?;
            Ok(len)
        });
        let end = match received {
            None => {
                interest.queued = true;
                return self.receive_later(key, fd);
            }
            Some(Ok(buf)) if buf.is_empty() => Ok(Event::Eof),
            Some(Ok(buf)) => {
                fd.note_filled(buf.len() >= recv::SMALL.size);
                // A short receive has emptied the socket (epoll(7), "Questions and answers"), unless the end of the
                // stream follows.
                if interest.dead || buf.len() == pool.shape().size {
                    interest.queued = true;
                    self.receive_later(key, fd);
                }
                common.emit(key, Event::Received(buf));
                return;
            }
            Some(Err(error)) => match error.kind() {
                io::ErrorKind::WouldBlock => return,
                io::ErrorKind::Interrupted => {
                    interest.queued = true;
                    return self.again.push(key);
                }
                _ => Err(error),
            },
        };
        interest.input = None;
        common.end(key, end);
    }

    /// Receives more when the caller has given buffers back.
    fn receive_later(&mut self, key: Key, fd: &Fd) {
        match fd.is_connected() {
            true => self.more.push(key),
            false => self.waiting.push_back(key),
        }
    }

    fn accept(&mut self, common: &mut Common, key: Key, fd: &Fd) {
        for _ in 0..ACCEPTS_MAX {
            match rustix::net::accept_with(fd.os(), SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
                Ok(socket) => {
                    let socket = common.fd(fd.accepted(socket));
                    common.emit(key, Event::Accepted(socket));
                }
                Err(Errno::AGAIN) => return,
                // The peer closed the connection before it was accepted: not an error of the listener.
                Err(Errno::CONNABORTED | Errno::INTR) => {}
                Err(error) => {
                    self.end_accept(common, key, fd);
                    common.end(key, Err(error.into()));
                    return;
                }
            }
        }
        self.interests[index(fd.raw())].queued = true;
        self.again.push(key);
    }

    /// Ends the accept `key`. If it is the accept that waits for the listener, a spare one replaces it. Without a spare
    /// accept the listener leaves the epoll set. Other workers may share the listener by dup(2), and then it would
    /// report events here even after this descriptor is closed.
    fn end_accept(&mut self, common: &Common, key: Key, listener: &Fd) {
        self.spare_accepts.retain(|spare| *spare != key);
        if self.interests[index(listener.raw())].input != Some(key) {
            return;
        }
        let is_for_it = |spare: &Key| {
            let waits = common.table.get(*spare).and_then(Slot::socket);
            waits.is_some_and(|(_, fd)| fd.raw() == listener.raw())
        };
        let spare = self.spare_accepts.iter().position(is_for_it);
        let next = spare.map(|at| self.spare_accepts.remove(at));
        let interest = &mut self.interests[index(listener.raw())];
        match next {
            Some(next) => {
                (interest.input, interest.queued) = (Some(next), true);
                self.again.push(next);
            }
            None => {
                *interest = Interest::default();
                // ENOENT: it was never added.
                let _ = epoll::delete(&self.epoll, listener.os());
            }
        }
    }
}

/// Begins the connect `key`. Its socket becomes writable when it is connected, or has failed.
fn begin_connect(common: &Common, key: Key, fd: &Fd) -> Result<(), Errno> {
    let Some(Slot { op: Op::Connect(address), .. }) = common.table.get(key) else {
        unreachable!("called for a connect")
    };
    match rustix::net::connect(fd.os(), address.as_any()) {
        // EINTR: the connect goes on (connect(2)).
        Ok(()) | Err(Errno::INPROGRESS | Errno::INTR) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Ends the operation `key`, which waits until the socket has room for bytes or is dead.
fn end_output(common: &mut Common, key: Key) {
    let result = match common.table.get(key).and_then(Slot::socket) {
        Some((Wait::Connect, fd)) => match rustix::net::sockopt::socket_error(fd.os()) {
            Ok(Ok(())) => Ok(Event::Connected(fd.clone())),
            Ok(Err(error)) | Err(error) => Err(error.into()),
        },
        _ => Ok(Event::Writable),
    };
    common.end(key, result);
}
