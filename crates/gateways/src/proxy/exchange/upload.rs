//! The body of a request on its way to an upstream, and the client's bytes in a tunnel.

use core::cell::RefCell;
use std::rc::Rc;

use ring::Key;

use super::{Exchange, Stage, Tools};
use crate::input::Input;

/// Bytes of a body that wait until an upstream receives them; at this limit the client waits.
const UNSENT_BYTES_MAX: u64 = 64 * 1024;
/// A link gets a body in pieces of at most `PIECE_BYTES_MAX`, and at most `TURN_PIECES_MAX` of them in a worker turn.
/// Then other exchanges come first. Only a body that was collected has more.
const PIECE_BYTES_MAX: usize = 64 * 1024;
const TURN_PIECES_MAX: u32 = 16;

/// Bytes of a body that are kept after a link got them, so that the request can be sent again. A longer body can be
/// sent only once.
const HELD_BYTES_MAX: usize = 64 * 1024;

/// The body of a request, or the client's bytes in a tunnel.
#[derive(Debug)]
pub(super) struct Upload {
    input: Option<Rc<RefCell<Input>>>,
    given: Given,
    /// True if there is no body, or if a link has got the end of the body.
    pub(super) has_sent_all: bool,
}

/// The bytes of a body that were given to links.
#[derive(Debug)]
struct Given {
    /// True if a link has got any bytes.
    has_any: bool,
    /// All bytes that links have got, while the request can be sent again.
    held: Option<Vec<u8>>,
    /// The number of these bytes that the current link has got.
    at: usize,
}

impl Given {
    /// The state before any bytes.
    const fn new(is_idempotent: bool) -> Self {
        let held = if is_idempotent { Some(Vec::new()) } else { None };
        Self { has_any: false, held, at: 0 }
    }

    /// Begins anew with another link.
    const fn rewind(&mut self) {
        self.at = 0;
    }

    /// Takes the bytes that an earlier link has got and that this link has to get first.
    fn again(&mut self) -> Option<Vec<u8>> {
        let bytes = self.held.as_ref()?.get(self.at..).filter(|bytes| !bytes.is_empty())?;
        self.at += bytes.len();
        Some(bytes.to_vec())
    }

    /// Counts bytes that the link gets.
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

    /// Returns true if some of the bytes are no longer kept.
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

    /// Begins the upload anew, through another link.
    pub(super) const fn rewind(&mut self, has_body: bool) {
        self.given.rewind();
        self.has_sent_all = !has_body;
    }

    /// Returns true if a link has got a part of the body that is no longer kept.
    pub(super) const fn is_consumed(&self) -> bool {
        self.given.is_consumed()
    }

    /// Drops the kept bytes: the body will not be sent again.
    pub(super) fn let_go(&mut self) {
        self.given.held = None;
    }

    /// Bytes of memory of the bytes that are kept to be sent again.
    pub(super) fn held_bytes(&self) -> usize {
        self.given.held.as_ref().map_or(0, Vec::capacity)
    }

    /// Bytes of memory of bytes that have come and that no link has got, after the moment from which no other part
    /// counts them.
    pub(super) fn waiting_bytes(&self) -> usize {
        let Some(input) = &self.input else { return 0 };
        let input = input.borrow();
        if input.is_whole() { input.waiting_bytes() } else { 0 }
    }

    /// Gives the input the key of the exchange.
    pub(super) fn begin(&self, key: Key) {
        if let Some(input) = &self.input {
            input.borrow_mut().set_key(key);
        }
    }

    /// Returns true if more of the body has to come before any byte is sent.
    pub(super) fn is_collected(&self) -> bool {
        let Some(input) = &self.input else { return false };
        let input = input.borrow();
        input.is_collected() && !input.is_whole()
    }

    /// The length of the body, if the whole body has come and no byte was taken.
    pub(super) fn length(&self) -> Option<u64> {
        self.input.as_ref()?.borrow().length()
    }

    /// Returns true if the rest of the body will never come.
    pub(super) fn is_broken_off(&self) -> bool {
        self.input.as_ref().is_some_and(|input| input.borrow().is_broken_off())
    }

    /// Returns true if the body is longer than it may be.
    pub(super) fn is_too_long(&self) -> bool {
        self.input.as_ref().is_some_and(|input| input.borrow().is_too_long())
    }

    /// Returns true if the body was given up, because there is no room for the body, or because a disk has failed.
    pub(super) fn has_no_room(&self) -> bool {
        self.input.as_ref().is_some_and(|input| input.borrow().has_no_room())
    }

    /// Sends the bytes of a tunnel from now on.
    pub(super) fn begin_tunnel(&mut self) {
        self.has_sent_all = false;
        if let Some(input) = &self.input {
            input.borrow_mut().begin_tunnel();
        }
    }

    /// Drops the rest of the body.
    pub(super) fn drop_rest(&self) {
        if let Some(input) = &self.input {
            input.borrow_mut().drop_rest();
        }
    }
}

impl Exchange {
    /// Sends the upstream the bytes of the request that have come.
    pub(super) fn send(&mut self, tools: &mut Tools<'_>) {
        let Some(link) = self.tries.link(tools.links) else { return };
        let before = link.sent();
        let mut has_failed = link.flush(&mut tools.shell.ring).is_err();
        let is_tunnel = self.stage == Stage::Tunnel;
        // If no link has got a byte of the body, another link can send it.
        let takes = is_tunnel || self.wire.has_body() && self.stage != Stage::Connecting;
        let mut pieces = 0;
        // The loop goes on while the upstream receives everything, because no event reports room in an empty queue.
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
                // While more bytes wait, there is no room for the client.
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
        // Even so, the response may have come; the end of the received bytes decides.
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
            // Later bytes are kept, too.
            given.push(b"more");
            given.rewind();
            let held = held.unwrap_or_default().len() + b"more".len();
            let again = given.again().map_or(0, |bytes| bytes.len());
            let fits = is_idempotent && !is_consumed && held <= HELD_BYTES_MAX;
            assert_eq!(again, if fits { held } else { 0 }, "{is_idempotent} {pieces:?}");
        }
    }
}
