//! The body of a request on its way to a server, and what a client sends into a tunnel.

use core::cell::RefCell;
use std::rc::Rc;

use ring::Key;

use super::{Exchange, Stage, Tools};
use crate::handler::gateway::input::Input;

/// Bytes of a body that wait to be taken by a server; the client waits then.
const UNSENT_BYTES_MAX: u64 = 64 * 1024;
/// Bytes of a body that are given to a link at once, and the pieces that it is given in a turn of the worker; the others'
/// turns come first then. Only a body that was collected has more.
const PIECE_BYTES_MAX: usize = 64 * 1024;
const TURN_PIECES_MAX: u32 = 16;

/// Bytes of a body that are held after they were given to a link, so that the request can be sent again. A longer body
/// can be sent once.
const HELD_BYTES_MAX: usize = 64 * 1024;

/// The body of a request, or what the client sends into a tunnel.
#[derive(Debug)]
pub(super) struct Upload {
    input: Option<Rc<RefCell<Input>>>,
    given: Given,
    /// True once its end was given to a link, or if there is none.
    pub(super) has_sent_all: bool,
}

/// The bytes of a body that were given to links.
#[derive(Debug)]
struct Given {
    /// True once there are some.
    has_any: bool,
    /// All of them, as long as the request can be sent again.
    held: Option<Vec<u8>>,
    /// The number of them that the link has which is used now.
    at: usize,
}

impl Given {
    /// None so far.
    const fn new(is_idempotent: bool) -> Self {
        let held = if is_idempotent { Some(Vec::new()) } else { None };
        Self { has_any: false, held, at: 0 }
    }

    /// Another link is used from now on.
    const fn rewind(&mut self) {
        self.at = 0;
    }

    /// Takes the bytes that another link had and that this one is to be given before all others.
    fn again(&mut self) -> Option<Vec<u8>> {
        let bytes = self.held.as_ref()?.get(self.at..).filter(|bytes| !bytes.is_empty())?;
        self.at += bytes.len();
        Some(bytes.to_vec())
    }

    /// These bytes are given to the link.
    fn push(&mut self, bytes: &[u8]) {
        self.has_any |= !bytes.is_empty();
        if let Some(held) = self.held.take_if(|held| held.len() + bytes.len() <= HELD_BYTES_MAX) {
            let held = self.held.insert(held);
            held.extend_from_slice(bytes);
            self.at = held.len();
        } else {
            self.held = None;
        }
    }

    /// Returns whether some of them are not held any more.
    const fn is_consumed(&self) -> bool {
        self.has_any && self.held.is_none()
    }
}

impl Upload {
    pub(super) const fn new(
        input: Option<Rc<RefCell<Input>>>,
        has_body: bool,
        is_idempotent: bool,
    ) -> Self {
        Self { input, given: Given::new(is_idempotent), has_sent_all: !has_body }
    }

    /// It is sent through another link from its beginning on.
    pub(super) const fn rewind(&mut self, has_body: bool) {
        self.given.rewind();
        self.has_sent_all = !has_body;
    }

    /// Returns whether a part of it was given to a link and is not held any more.
    pub(super) const fn is_consumed(&self) -> bool {
        self.given.is_consumed()
    }

    /// It will not be sent again.
    pub(super) fn let_go(&mut self) {
        self.given.held = None;
    }

    /// Bytes of memory of what is held to be sent again.
    pub(super) fn held_bytes(&self) -> usize {
        self.given.held.as_ref().map_or(0, Vec::capacity)
    }

    /// Bytes of memory of what has come and was not given to a link, once nothing counts it any more but this.
    pub(super) fn waiting_bytes(&self) -> usize {
        let Some(input) = &self.input else { return 0 };
        let input = input.borrow();
        if input.is_whole() { input.waiting_bytes() } else { 0 }
    }

    /// Tells its input the name of the exchange.
    pub(super) fn begin(&self, key: Key) {
        if let Some(input) = &self.input {
            input.borrow_mut().set_key(key);
        }
    }

    /// Returns whether more of it has to come before anything is sent.
    pub(super) fn is_collected(&self) -> bool {
        let Some(input) = &self.input else { return false };
        let input = input.borrow();
        input.is_collected() && !input.is_whole()
    }

    /// Its length, if all of it has come and nothing was taken of it.
    pub(super) fn length(&self) -> Option<u64> {
        self.input.as_ref()?.borrow().length()
    }

    /// Returns whether the rest of it will never come.
    pub(super) fn is_broken_off(&self) -> bool {
        self.input.as_ref().is_some_and(|input| input.borrow().is_broken_off())
    }

    /// Returns whether it has more bytes than it may have.
    pub(super) fn is_too_long(&self) -> bool {
        self.input.as_ref().is_some_and(|input| input.borrow().is_too_long())
    }

    /// Returns whether it was given up, because there is no room for it, or a disk has failed.
    pub(super) fn has_no_room(&self) -> bool {
        self.input.as_ref().is_some_and(|input| input.borrow().has_no_room())
    }

    /// No more of it is taken.
    pub(super) fn drop_rest(&self) {
        if let Some(input) = &self.input {
            input.borrow_mut().drop_rest();
        }
    }
}

impl Exchange {
    /// Gives the server what there is of the request.
    pub(super) fn send(&mut self, tools: &mut Tools<'_>) {
        let Some(link) = self.tries.link(tools.links) else { return };
        let before = link.sent();
        let mut has_failed = link.flush(&mut tools.shell.ring).is_err();
        let is_tunnel = self.stage == Stage::Tunnel;
        // A body that was not given to a link can be sent by another one.
        let takes = is_tunnel || self.wire.has_body() && self.stage != Stage::Connecting;
        let mut pieces = 0;
        // As long as the server takes all of it: nothing tells when there is room in a queue that is empty.
        while let Some(input) = &self.upload.input
            && takes
            && !self.upload.has_sent_all
            && !has_failed
            && link.unsent() < UNSENT_BYTES_MAX
        {
            if pieces == TURN_PIECES_MAX {
                if !core::mem::replace(&mut self.reception.is_queued, true) {
                    tools.again.push_back(self.key);
                }
                break;
            }
            pieces += 1;
            let mut input = input.borrow_mut();
            let again = if is_tunnel { None } else { self.upload.given.again() };
            let bytes = again.unwrap_or_else(|| {
                let bytes = input.take(PIECE_BYTES_MAX);
                // As long as more waits there is no room for the client.
                if !bytes.is_empty() && input.is_empty() {
                    tools.woken.push_back(self.ticket);
                }
                if !is_tunnel {
                    self.upload.given.push(&bytes);
                }
                bytes
            });
            let has_more = !bytes.is_empty();
            if is_tunnel {
                link.push(bytes);
            } else {
                self.wire.push_body(link, bytes);
            }
            if input.is_whole() && input.is_empty() {
                self.upload.has_sent_all = true;
                if !is_tunnel {
                    self.wire.push_body_end(link, &input.trailers);
                }
            }
            has_failed = link.flush(&mut tools.shell.ring).is_err();
            if !has_more {
                break;
            }
        }
        if self.upload.has_sent_all && link.unsent() == 0 {
            if is_tunnel {
                link.shutdown(&mut tools.shell.ring);
            } else if let Some(input) = &self.upload.input {
                input.borrow_mut().release();
            }
        }
        if link.sent() > before {
            self.clock.since = tools.shell.cx.now;
        }
        // The response may have come all the same: the end of what is received tells.
        self.upload.has_sent_all |= has_failed;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_held_until_it_is_too_long_or_if_it_may_be_sent_once() {
        for (is_idempotent, pieces, is_consumed) in [
            (true, &[][..], false),
            (true, &[1, 0, HELD_BYTES_MAX - 1], false),
            (true, &[HELD_BYTES_MAX + 1], true),
            (true, &[1, HELD_BYTES_MAX, 1], true),
            (false, &[], false),
            (false, &[0], false),
            (false, &[1], true),
        ] {
            let mut given = Given::new(is_idempotent);
            let mut all = Vec::new();
            for (byte, length) in (1..).zip(pieces) {
                let bytes = vec![byte; *length];
                given.push(&bytes);
                all.extend(bytes);
                assert_eq!(given.again(), None, "the link has them");
            }
            assert_eq!(given.is_consumed(), is_consumed, "{is_idempotent} {pieces:?}");
            given.rewind();
            let held = (!is_consumed && !all.is_empty()).then_some(all);
            assert!(given.again() == held, "{is_idempotent} {pieces:?}");
            assert_eq!(given.again(), None);
            // What comes then is held, too.
            given.push(b"more");
            given.rewind();
            let held = held.unwrap_or_default().len() + b"more".len();
            let again = given.again().map_or(0, |bytes| bytes.len());
            let fits = is_idempotent && !is_consumed && held <= HELD_BYTES_MAX;
            assert_eq!(again, if fits { held } else { 0 }, "{is_idempotent} {pieces:?}");
        }
    }
}
