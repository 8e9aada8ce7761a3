//! Operations on descriptors: accepts, multishot receives, connects, polls.

use std::io::{self, ErrorKind};
use std::rc::Rc;

use io_uring::squeue::{Entry, Flags};
use io_uring::types::Fd as RawTarget;
use io_uring::{cqueue, opcode};
use rustix::event::PollFlags;

use super::{RECV_GROUP, Uring, WIDE_GROUP};
use crate::common::{Common, Pinned, Slot};
use crate::drivers::ACCEPTS_MAX;
use crate::fd::Fd;
use crate::now::socket as now;
use crate::op::{Event, Op, Wait};
use crate::recv;
use crate::recv::RecvPool;
use crate::slab::Key;

/// Receive buffers that one connection may fill before the caller has looked at all of them, mostly in one turn: a request
/// head of 16 KiB. As long as a socket stays within them, the kernel receives without being asked again (multishot). A
/// socket that fills more could use all buffers of the ring, and the turn of all others with them. From then on it
/// receives into one buffer per turn, as with epoll, and takes turns with the other sockets of its kind. Sockets that
/// were connected do so from the beginning.
const RECEIVES_MAX: u32 = 8;

/// The events of a socket that has room for bytes or is dead.
const WRITABLE: u32 = (libc::POLLOUT | libc::POLLHUP).cast_unsigned() as u32;
const POLLERR: u32 = libc::POLLERR.cast_unsigned() as u32;
const POLLRDHUP: u32 = libc::POLLRDHUP.cast_unsigned() as u32;

/// Makes the kernel's form of an operation on a socket; `None` for any other.
pub(super) fn entry(slot: &Slot) -> Option<Entry> {
    let (wait, fd) = slot.socket()?;
    let target = RawTarget(fd.raw());
    let poll =
        |events: libc::c_short| opcode::PollAdd::new(target, events.cast_unsigned().into()).build();
    Some(match wait {
        Wait::Accept => {
            // A multishot accept would accept all connections that wait, in one call.
            let events = libc::POLLIN.cast_unsigned().into();
            opcode::PollAdd::new(target, events).multi(true).build()
        }
        Wait::Connect => {
            let Op::Connect(address) = &slot.op else { unreachable!("it waits for a connect") };
            let address = address.as_any();
            opcode::Connect::new(target, address.as_ptr().cast(), address.addr_len()).build()
        }
        Wait::Recv if fd.is_greedy() => {
            fd.set_takes_wide(fd.wants_wide());
            // The kernel names the buffer, and says how long it is.
            opcode::Recv::new(target, core::ptr::null_mut(), 0)
                .buf_group(group_of(fd))
                .build()
                .flags(Flags::BUFFER_SELECT)
        }
        Wait::Recv => {
            // As long as a socket sends little, its bytes fit into small buffers.
            fd.set_takes_wide(fd.is_connected());
            opcode::RecvMulti::new(target, group_of(fd)).build()
        }
        // Operations other than "once" go on at the next event, but not while the peer's side is at its end.
        Wait::Writable if fd.has_ended() => {
            let events = libc::POLLOUT.cast_unsigned().into();
            opcode::PollAdd::new(target, events).multi(true).build()
        }
        Wait::Writable => poll(libc::POLLOUT),
        Wait::Readable | Wait::Signal | Wait::Child => poll(libc::POLLIN),
        Wait::Acknowledgements => {
            let events = libc::POLLERR.cast_unsigned().into();
            opcode::PollAdd::new(target, events).multi(true).build()
        }
    })
}

/// The group of the buffers that the next receive of a socket takes.
fn group_of(fd: &Fd) -> u16 {
    if fd.takes_wide() { WIDE_GROUP } else { RECV_GROUP }
}

impl Uring {
    /// Accepts connections that wait at the listener of an operation, up to the maximum of one turn. If more wait, the
    /// next turn goes on.
    pub(super) fn accept(&mut self, common: &mut Common, key: Key) {
        let Some(Slot { op: Op::Accept(listener), cancelled: false, pinned: Pinned::None, .. }) =
            common.table.get(key)
        else {
            return;
        };
        let listener = listener.clone();
        for count in 0..ACCEPTS_MAX {
            match now::accept(listener.os()) {
                Ok(socket) => {
                    let socket = common.fd(listener.accepted(socket));
                    common.emit(key, Event::Accepted(socket));
                    // Mostly one connection waits. An accept that finds none makes a socket before it looks, and frees
                    // it.
                    if count == 0 && !now::polls(listener.os(), PollFlags::IN) {
                        return;
                    }
                }
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock => return,
                    // The peer closed the connection before it was accepted: not an error of the listener.
                    ErrorKind::ConnectionAborted | ErrorKind::Interrupted => {}
                    _ => {
                        // The operation ends when its poll has.
                        let slot = common.table.get_mut(key).expect("looked at above");
                        slot.pinned = Pinned::Refused(Some(error));
                        return self.cancel_in_kernel(key);
                    }
                },
            }
        }
        self.accepting.push(key);
    }

    /// The poll of an accept has ended by itself: it begins again, unless the accept was cancelled or has failed.
    fn end_accept(&mut self, common: &mut Common, key: Key, cancelled: bool) {
        let slot = common.table.get_mut(key).expect("just looked at");
        if let Pinned::Refused(why) = &mut slot.pinned
            && let Some(why) = why.take()
        {
            common.end(key, Err(why));
        } else {
            self.again(common, key, cancelled);
        }
    }

    /// The buffers into which a socket has received.
    fn pool_of(&self, fd: &Fd) -> &Rc<RecvPool> {
        if fd.takes_wide() { &self.wide } else { &self.recv }
    }

    /// The kernel says what became of an operation on a socket.
    pub(super) fn complete_socket(
        &mut self,
        common: &mut Common,
        key: Key,
        wait: Wait,
        outcome: io::Result<u32>,
        flags: u32,
    ) {
        let more = cqueue::more(flags);
        let slot = common.table.get_mut(key).expect("just looked at");
        let cancelled = slot.cancelled;
        match (wait, outcome) {
            (Wait::Accept, Ok(_)) => {
                if !self.accepting.contains(&key) {
                    self.accepting.push(key);
                }
                if !more {
                    self.end_accept(common, key, cancelled);
                }
            }
            (Wait::Accept, Err(error)) => match &mut slot.pinned {
                Pinned::Refused(why) => {
                    let why = why.take().unwrap_or(error);
                    common.end(key, Err(why));
                }
                _ => drop(common.end(key, Err(error))),
            },
            (Wait::Connect, result) => {
                let (_, socket) = slot.socket().expect("looked at as a connect");
                let socket = socket.clone();
                // A server may have much more to send than is wanted, and the kernel would fill many buffers before the
                // caller could stop it.
                socket.mark_greedy();
                if !self.wide.is_populated() {
                    self.wide.populate();
                }
                common.end(key, result.map(|_| Event::Connected(socket)));
            }
            (Wait::Recv, Ok(0)) => {
                if let (Some(id), Some((_, fd))) = (cqueue::buffer_select(flags), slot.socket()) {
                    drop(self.pool_of(fd).received(id, 0));
                }
                common.end(key, Ok(Event::Eof));
            }
            (Wait::Recv, Ok(len)) => {
                let count = match slot.pinned {
                    Pinned::Received { turn, count } if turn == self.turn => count + 1,
                    _ => 1,
                };
                slot.pinned = Pinned::Received { turn: self.turn, count };
                let too_much = count == RECEIVES_MAX + 1;
                let (_, fd) = slot.socket().expect("looked at as a receive");
                let (is_connected, is_greedy) = (fd.is_connected(), fd.is_greedy());
                if too_much {
                    fd.mark_greedy();
                }
                let id =
                    cqueue::buffer_select(flags).expect("a receive with bytes names its buffer");
                let buf = self.pool_of(fd).received(id, len as usize);
                fd.note_filled(buf.len() >= recv::SMALL.size);
                common.emit(key, Event::Received(buf));
                if more && too_much {
                    // If the cancel does not find the receive because it is just running, the next turn tries again.
                    self.cancel_in_kernel(key);
                }
                match (more, cancelled) {
                    (true, _) => {}
                    // The received bytes may be enough: their receiver says so before the next turn.
                    (false, false) if is_connected => self.starved.push_back(key),
                    (false, false) if is_greedy => self.waiting.push_back(key),
                    (false, _) => self.again(common, key, cancelled),
                }
            }
            (Wait::Recv, Err(error)) => match error.raw_os_error() {
                Some(libc::ENOBUFS) if !cancelled => {
                    let (_, fd) = slot.socket().expect("looked at as a receive");
                    match fd.is_connected() {
                        true => self.starved.push_back(key),
                        false => self.waiting.push_back(key),
                    }
                }
                // ECANCELED: to go on one by one.
                Some(libc::EINTR | libc::ECANCELED) => self.again(common, key, cancelled),
                Some(libc::ENOBUFS) => common.end_cancelled(key),
                _ => drop(common.end(key, Err(error))),
            },
            // The poll is once, so a signal that is left completes the next at once.
            (Wait::Signal, result) => match result.and_then(|_| common.take_signal(key)) {
                Ok(_) => self.again(common, key, cancelled),
                Err(error) => drop(common.end(key, Err(error))),
            },
            (Wait::Child, Ok(_)) => {
                if !common.end_child(key) {
                    self.again(common, key, cancelled);
                }
            }
            (Wait::Child, Err(error)) => drop(common.end(key, Err(error))),
            (Wait::Acknowledgements, Ok(_)) => {
                let (_, fd) = slot.socket().expect("looked at as acknowledgements");
                let fd = fd.clone();
                common.take_acknowledgements(&fd);
                if !more {
                    self.again(common, key, cancelled);
                }
            }
            (Wait::Acknowledgements, Err(error)) => drop(common.end(key, Err(error))),
            (Wait::Writable, Ok(events)) => {
                let (_, fd) = slot.socket().expect("looked at as a poll");
                let fd = fd.clone();
                // A poll reports messages in the error queue as an error, and the end of the peer's side
                // in any case. Neither means that the socket has room for bytes.
                let has_error = events & POLLERR != 0 && !common.take_acknowledgements(&fd);
                if events & WRITABLE == 0 && !has_error {
                    if events & POLLRDHUP != 0 {
                        fd.mark_ended();
                    }
                    if !more {
                        self.again(common, key, cancelled);
                    }
                } else if more {
                    let slot = common.table.get_mut(key).expect("looked at above");
                    if !matches!(slot.pinned, Pinned::Writable) {
                        slot.pinned = Pinned::Writable;
                        self.cancel_in_kernel(key);
                    }
                } else {
                    common.end(key, Ok(Event::Writable));
                }
            }
            (Wait::Writable, Err(error)) => {
                let is_writable = matches!(slot.pinned, Pinned::Writable);
                common.end(key, if is_writable { Ok(Event::Writable) } else { Err(error) });
            }
            (Wait::Readable, result) => drop(common.end(key, result.map(|_| Event::Readable))),
        }
    }
}
