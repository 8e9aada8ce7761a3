//! The content of a response on its way to the client.

use core::cell::RefCell;
use std::rc::Rc;

use http::Status;
use outq::Payload as _;
use sendfile::{Account, Piece};

use super::{Exchange, Tools};
use crate::output::Output;
use crate::proxy::spool::Spool;

/// Bytes of content without use that are received before the end of a response, so that the link can be kept.
const DROPPED_BYTES_MAX: u64 = 64 * 1024;

/// The content of a response on its way to the client.
#[derive(Debug)]
pub(super) struct Delivery {
    /// True for a request with the method HEAD.
    is_head: bool,
    pub(super) output: Rc<RefCell<Output>>,
    /// The file in which content waits for a slow client, if the route has a directory for such files.
    pub(super) spool: Option<Box<Spool>>,
    /// The number of bytes of content that have come.
    pub(super) bytes: u64,
    /// The value of `bytes` at the last look.
    bytes_before: u64,
    /// Bytes that came after the client had gone.
    dropped_bytes: u64,
    /// True if responses with this status have no content.
    is_bodiless: bool,
    /// True if more content has come than was announced, or than the status permits.
    is_over_length: bool,
}

impl Delivery {
    /// `memory_max`: the bytes of the content that may wait in memory.
    pub(super) fn new(is_head: bool, account: &Account, memory_max: u64) -> Self {
        Self {
            is_head,
            output: Rc::new(RefCell::new(Output::new(account).up_to(memory_max))),
            spool: None,
            bytes: 0,
            bytes_before: 0,
            dropped_bytes: 0,
            is_bodiless: false,
            is_over_length: false,
        }
    }

    /// Begins with the head of the response: its status, whether content follows, and the content's length if known.
    pub(super) fn begin(&mut self, status: Status, has_content: bool, length: Option<u64>) {
        self.is_bodiless = status.is_bodiless();
        let mut output = self.output.borrow_mut();
        if has_content && !self.is_head {
            output.promise(length);
        } else {
            output.drop_rest();
        }
    }

    /// Returns true if all wanted content has come. The end of the response may be missing.
    pub(super) fn has_all(&self) -> bool {
        let output = self.output.borrow();
        output.has_ended() || output.is_unwanted
    }

    /// The number of bytes that have come since the last call.
    pub(super) const fn came(&mut self) -> u64 {
        self.bytes - core::mem::replace(&mut self.bytes_before, self.bytes)
    }

    /// Stops writing to the file. Bytes that are not in the file are still in memory, and continue through memory.
    /// Bytes in the file stay there until the client has them.
    pub(super) fn leave_file(&mut self) {
        let unwritten = self.spool.as_mut().map(|spool| spool.fail()).unwrap_or_default();
        let mut output = self.output.borrow_mut();
        unwritten.into_iter().for_each(|piece| output.give_back(piece));
    }
}

impl Exchange {
    /// Passes content on.
    pub(super) fn take(&mut self, tools: &mut Tools<'_>, content: Piece) {
        let length = content.len();
        self.delivery.bytes += length;
        // Only FastCGI comes here. With HTTP such a response ends with its head, and the bytes count as sent after it.
        if self.delivery.is_bodiless && length > 0 {
            self.note_surplus(tools, "it sent a body with a status that has none; it is dropped");
        }
        if self.interest.strong_count() == 0 {
            self.delivery.dropped_bytes += length;
            if self.delivery.dropped_bytes > DROPPED_BYTES_MAX {
                self.abort(tools);
            }
            return;
        }
        let is_within = self.delivery.output.borrow_mut().push_piece(content);
        self.wake(tools);
        if !is_within {
            self.note_surplus(tools, "it sent more than its Content-Length; the rest is dropped");
        }
        self.spool(tools);
    }

    /// Reports, once, that the response has more content than it may have.
    fn note_surplus(&mut self, tools: &mut Tools<'_>, text: &str) {
        if !core::mem::replace(&mut self.delivery.is_over_length, true) {
            tools.shell.cx.stats.proxy_surplus.add(1);
            self.note(tools, text);
        }
    }

    /// Ends the content. Returns false if wanted content is missing.
    pub(super) fn end_output(&mut self, tools: &mut Tools<'_>, is_whole: bool) -> bool {
        self.delivery.leave_file();
        if let Some((times, since)) = &self.times {
            times.body.set(Some(tools.shell.cx.now.since(*since)));
        }
        let is_complete = {
            let mut output = self.delivery.output.borrow_mut();
            output.finish(is_whole) || output.is_unwanted
        };
        self.wake(tools);
        is_complete
    }

    /// Wakes the client's producer, which has more content or its end.
    pub(super) fn wake(&self, tools: &mut Tools<'_>) {
        if core::mem::take(&mut self.delivery.output.borrow_mut().is_awaited) {
            tools.woken.push_back(self.ticket);
        }
    }
}
