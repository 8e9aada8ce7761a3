//! The content for a slow client goes through a file, if its route has a directory for such files. While the file has
//! room, the exchange receives from the upstream, which need not wait for the client.
//!
//! A disk that fails makes no response fail: bytes that were not written are still in memory, and the exchange
//! continues without the file.

use core::sync::atomic::Ordering;
use std::io;
use std::path::Path;

use ring::Completion;

use super::{Exchange, Stage, Tools};
use crate::proxy::spool::Spool;
use session::kind;

impl Exchange {
    /// Returns true if a slow client would get a file.
    pub(super) fn may_spool(&self) -> bool {
        self.delivery.spool.is_none() && self.upstream.rules.buffer_dir.is_some()
    }

    /// Makes a file if the upstream has more to send than the client receives.
    pub(super) fn spool_for_slow_client(&mut self, tools: &mut Tools<'_>) {
        let is_ahead = |tools: &mut Tools<'_>| {
            let link = self.tries.link(tools.links);
            link.is_some_and(|link| link.may_pull()) && !self.delivery.output.borrow().is_empty()
        };
        let may_spool = self.may_be_slow() && self.may_spool();
        if !may_spool || !is_ahead(tools) || !self.has_buffer(tools) {
            return;
        }
        let (shell, rules) = (&mut *tools.shell, &self.upstream.rules);
        let Some(dir) = &rules.buffer_dir else { return };
        let names = (kind::SPOOL | self.key.to_bits(), self.upstream.buffer_device());
        let spool = Spool::new(&mut shell.ring, dir, rules.buffer, names, shell.cx.now);
        self.delivery.spool = Some(Box::new(spool));
        shell.cx.stats.proxy_buffer_files.add(1);
        self.pull(tools);
    }

    /// Writes to the file the content that waits for the client.
    pub(super) fn spool(&mut self, tools: &mut Tools<'_>) {
        let Some(spool) = self.delivery.spool.as_mut().filter(|spool| spool.is_open()) else {
            return;
        };
        let mut output = self.delivery.output.borrow_mut();
        if self.stage == Stage::Content {
            output.lend().for_each(|piece| spool.push(piece));
        }
        spool.write(&mut tools.shell.ring, output.is_empty(), tools.shell.cx.now);
    }

    /// Handles a completion of an operation on the file.
    pub(in crate::proxy) fn handle_spool(&mut self, tools: &mut Tools<'_>, completion: Completion) {
        let Some(spool) = &mut self.delivery.spool else { return };
        let was_open = spool.is_open();
        let (ring, files) = (&mut tools.shell.ring, &mut tools.pools.files);
        match spool.handle(ring, files, completion, tools.shell.cx.now) {
            Ok(None) => {}
            Ok(Some((file, range))) => {
                self.delivery.output.borrow_mut().give_back_file(file, range);
                self.wake(tools);
            }
            Err(error) => self.fail_spool(tools, &text_of(&error)),
        }
        let is_open = self.delivery.spool.as_ref().is_some_and(|spool| spool.is_open());
        if is_open && !was_open {
            self.renew_buffer(tools);
        }
        self.spool(tools);
        self.pull(tools);
    }

    /// Continues without the file. Bytes that are in the file are still sent from there.
    pub(super) fn fail_spool(&mut self, tools: &mut Tools<'_>, reason: &str) {
        self.delivery.leave_file();
        self.wake(tools);
        tools.shell.cx.stats.proxy_buffer_failed.add(1);
        if !self.upstream.is_buffer_reported.swap(true, Ordering::Relaxed) {
            let dir = self.upstream.rules.buffer_dir.as_deref().unwrap_or_else(|| Path::new(""));
            let text = format!(
                "no buffer in {}: {reason}; responses for slow clients go through memory (said once)",
                dir.display()
            );
            tools.lines.note(tools.shell, &self.upstream.name, &text);
        }
    }
}

/// The text of an error, without the number that `io::Error` adds.
fn text_of(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(_) => error.kind().to_string(),
        None => error.to_string(),
    }
}
