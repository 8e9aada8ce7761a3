//! The body of a request on its way to a server, and what a client sends into a tunnel.

use core::cell::RefCell;
use std::rc::Rc;

use ring::Key;

use super::{Exchange, Stage, Tools};
use crate::handler::gateway::input::Input;

/// Bytes of a body that wait to be taken by a server; the client waits then.
const UNSENT_BYTES_MAX: u64 = 64 * 1024;

/// The body of a request, or what the client sends into a tunnel.
#[derive(Debug)]
pub(super) struct Upload {
    input: Option<Rc<RefCell<Input>>>,
    /// True once bytes of it were given to a link.
    pub(super) has_sent_bytes: bool,
    /// True once its end was, or if there is none.
    pub(super) has_sent_all: bool,
}

impl Upload {
    pub(super) const fn new(input: Option<Rc<RefCell<Input>>>, has_body: bool) -> Self {
        Self { input, has_sent_bytes: false, has_sent_all: !has_body }
    }

    /// Tells its input the name of the exchange. Returns true if nothing of it may be sent before all has come.
    pub(super) fn begin(&self, key: Key) -> bool {
        let Some(input) = &self.input else { return false };
        let mut input = input.borrow_mut();
        input.set_key(key);
        input.is_collected() && input.length().is_none()
    }

    /// Its length, if all of it has come and nothing was taken of it.
    pub(super) fn length(&self) -> Option<u64> {
        self.input.as_ref()?.borrow().length()
    }

    /// Returns whether the client has to send more of it. One that has broken it off owes nothing more.
    pub(super) fn is_owed(&self) -> bool {
        let is_broken_off = |input: &Rc<RefCell<Input>>| input.borrow().is_broken_off();
        !self.has_sent_all && !self.input.as_ref().is_some_and(is_broken_off)
    }

    /// Returns whether it has more bytes than it may have.
    pub(super) fn is_too_long(&self) -> bool {
        self.input.as_ref().is_some_and(|input| input.borrow().is_too_long())
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
        // As long as the server takes all of it: nothing tells when there is room in a queue that is empty.
        while let Some(input) = &self.upload.input
            && takes
            && !self.upload.has_sent_all
            && !has_failed
            && link.unsent() < UNSENT_BYTES_MAX
        {
            let mut input = input.borrow_mut();
            let bytes = Vec::from(core::mem::take(&mut input.waiting));
            let has_more = !bytes.is_empty();
            if has_more {
                self.upload.has_sent_bytes = true;
                tools.woken.push_back(self.ticket);
            }
            if is_tunnel {
                link.push(bytes);
            } else {
                self.wire.push_body(link, bytes);
            }
            if input.is_whole() {
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
