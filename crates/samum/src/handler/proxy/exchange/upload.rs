//! The body of a request on its way to a server, and what a client sends into a tunnel.

use super::{Exchange, Stage, Tools};

/// Bytes of a body that wait to be taken by a server; the client waits then.
const UNSENT_BYTES_MAX: u64 = 64 * 1024;

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
        while let Some(input) = &self.input
            && takes
            && !self.has_sent_all
            && !has_failed
            && link.unsent() < UNSENT_BYTES_MAX
        {
            let mut input = input.borrow_mut();
            let bytes = Vec::from(core::mem::take(&mut input.waiting));
            let has_more = !bytes.is_empty();
            if has_more {
                self.has_sent_body = true;
                tools.woken.push_back(self.ticket);
            }
            if is_tunnel {
                link.push(bytes);
            } else {
                self.wire.push_body(link, bytes);
            }
            if input.is_whole() {
                self.has_sent_all = true;
                if !is_tunnel {
                    self.wire.push_body_end(link, &input.trailers);
                }
            }
            has_failed = link.flush(&mut tools.shell.ring).is_err();
            if !has_more {
                break;
            }
        }
        if self.has_sent_all && link.unsent() == 0 {
            if is_tunnel {
                link.shutdown(&mut tools.shell.ring);
            } else if let Some(input) = &self.input {
                input.borrow_mut().release();
            }
        }
        if link.sent() > before {
            self.since = tools.shell.cx.now;
        }
        // The response may have come all the same: the end of what is received tells.
        self.has_sent_all |= has_failed;
    }
}
