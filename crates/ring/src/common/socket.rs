//! Operations that wait for an event of a descriptor: the descriptor of each, and the event.

use std::io;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use super::{Common, Pinned, Slot};
use crate::fd::{Fd, Handle};
use crate::now::{process, socket as kernel};
use crate::op::{Event, Op, Wait};
use crate::slab::Key;

impl Slot {
    /// The event that the operation waits for, and the descriptor; `None` if it waits for none.
    pub(crate) const fn socket(&self) -> Option<(Wait, &Fd)> {
        match (&self.op, &self.pinned) {
            (Op::Accept(fd), _) => Some((Wait::Accept, fd)),
            (Op::Connect(_), Pinned::Own(fd)) => Some((Wait::Connect, fd)),
            (Op::Recv(fd), _) => Some((Wait::Recv, fd)),
            (Op::Readable(fd), _) => Some((Wait::Readable, fd)),
            (Op::Writable(fd), _) => Some((Wait::Writable, fd)),
            (Op::Acknowledgements(fd), _) => Some((Wait::Acknowledgements, fd)),
            (Op::Signal(_), Pinned::Own(fd)) => Some((Wait::Signal, fd)),
            (Op::Child(_), Pinned::Own(fd)) => Some((Wait::Child, fd)),
            _ => None,
        }
    }
}

impl Common {
    /// Makes the descriptor that the operation `key` waits for, if that is not the caller's.
    pub(crate) fn open_own(&mut self, key: Key) -> io::Result<()> {
        let slot = self.table.get(key).expect("just inserted");
        let fd = match &slot.op {
            Op::Connect(address) => {
                let family = address.as_any().address_family();
                let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
                let socket = socket_with(family, SocketType::STREAM, flags, None)?;
                if family != AddressFamily::UNIX {
                    // Nagle's algorithm would hold back a short segment until the peer acknowledges the one before, which
                    // a peer may delay by 40 ms. Whoever sends in pieces passes `MSG_MORE`.
                    rustix::net::sockopt::set_tcp_nodelay(&socket, true)?;
                }
                socket
            }
            Op::Signal(signal) => process::signalfd(*signal)?,
            Op::Child(pid) => process::pidfd(*pid)?,
            _ => unreachable!("it waits for no descriptor of the ring's own"),
        };
        let own = self.fd(Handle::Socket(fd));
        let slot = self.table.get_mut(key).expect("looked at above");
        if matches!(slot.op, Op::Connect(_)) {
            own.mark_connected();
        }
        slot.pinned = Pinned::Own(own);
        Ok(())
    }

    /// Begins to report the acknowledgements of a socket by the operation `key`. Earlier ones are reported now.
    pub(crate) fn begin_acknowledgements(&mut self, key: Key, fd: &Fd) {
        if let Some(acknowledged) = fd.acknowledged() {
            acknowledged.borrow_mut().reporter = Some(key);
            self.take_acknowledgements(fd);
        }
    }

    /// Reads the acknowledgements of a socket, and reports news. Returns false if the kernel was not asked to report
    /// them.
    pub(crate) fn take_acknowledgements(&mut self, fd: &Fd) -> bool {
        let Some(acknowledged) = fd.acknowledged() else { return false };
        let mut acknowledged = acknowledged.borrow_mut();
        kernel::read_acknowledgements(fd.os(), &mut acknowledged);
        if let Some(key) = acknowledged.reporter
            && let Some(bytes) = acknowledged.take_news()
        {
            self.emit(key, Event::Acknowledged(bytes));
        }
        true
    }

    /// Takes a pending signal for the operation `key`, and reports it. Returns whether there was one; an error ends the
    /// operation.
    pub(crate) fn take_signal(&mut self, key: Key) -> io::Result<bool> {
        let Some((_, fd)) = self.table.get(key).and_then(Slot::socket) else { return Ok(false) };
        let signal = process::read_signal(fd.os())?;
        if let Some(signal) = signal {
            self.emit(key, Event::Signal(signal));
        }
        Ok(signal.is_some())
    }

    /// Ends the operation `key` with the status of its child, or with an error. Returns false if the child
    /// has not ended.
    pub(crate) fn end_child(&mut self, key: Key) -> bool {
        let Some((_, fd)) = self.table.get(key).and_then(Slot::socket) else { return true };
        let Some(status) = process::wait_for(fd.os()).transpose() else { return false };
        self.end(key, status.map(Event::Exited));
        true
    }
}
