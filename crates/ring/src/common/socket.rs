//! Operations on sockets: the socket of each, and the event that it waits for.

use std::io;

use rustix::net::{SocketFlags, SocketType, socket_with};

use super::{Common, Pinned, Slot};
use crate::fd::{Fd, Handle};
use crate::op::{Op, Wait};
use crate::slab::Key;

impl Slot {
    /// The event that the operation waits for, and the socket; `None` if it has no socket.
    pub(crate) const fn socket(&self) -> Option<(Wait, &Fd)> {
        match (&self.op, &self.pinned) {
            (Op::Accept(fd), _) => Some((Wait::Accept, fd)),
            (Op::Connect(_), Pinned::Socket(fd)) => Some((Wait::Connect, fd)),
            (Op::Recv(fd), _) => Some((Wait::Recv, fd)),
            (Op::Readable(fd), _) => Some((Wait::Readable, fd)),
            (Op::Writable(fd), _) => Some((Wait::Writable, fd)),
            _ => None,
        }
    }
}

impl Common {
    /// Makes the socket of the connect `key`.
    pub(crate) fn open_socket(&mut self, key: Key) -> io::Result<()> {
        let Some(Slot { op: Op::Connect(address), .. }) = self.table.get(key) else {
            unreachable!("called for a connect")
        };
        let family = address.as_any().address_family();
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = self.fd(Handle::Socket(socket_with(family, SocketType::STREAM, flags, None)?));
        let slot = self.table.get_mut(key).expect("looked at above");
        slot.pinned = Pinned::Socket(socket);
        Ok(())
    }
}
