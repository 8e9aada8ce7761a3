//! The response of an upstream: its head, its content and its end.

use core::cell::Cell;
use core::time::Duration;
use std::rc::Rc;
use std::sync::Arc;

use http::{FieldSection, Status};
use ring::Key;
use sendfile::Piece;

use super::duty::Clock;
use super::pull::{PULLED_BYTES_MIN, SHARED_BYTES};
use super::reception::ReceiveMethod;
use super::{Exchange, SURPLUS, Stage, Tools};
use crate::held::Held;
use crate::interest::Interest;
use crate::output::EARLY_BYTES_MAX;
use crate::proxy::response::{Meaning, Passed};
use crate::proxy::spool::MEMORY_BYTES;
use crate::proxy::wire::Heard;
use crate::proxy::{Answer, Reached};
use config::GatewayRules;
use session::reason::Reason;
use session::record::UpstreamTimes;

/// The time that the rest of a response may take after a hand-over, so that the link can be kept.
const HAND_OVER_MAX: Duration = Duration::from_secs(1);

/// While the worker's memory is short, the exchange is *lean*: it receives this many bytes of a response in one step.
/// While the exchange is lean, no more bytes than this may wait for the client.
const LEAN_BYTES_MAX: u64 = 4 * 1024;

/// The line for the operator about a request that was answered before all of it was sent.
const EARLY: &str = "it answered before the end of the request; the connection is closed";

/// Bytes of a content that may wait in memory by the rules of its route.
pub(super) fn memory_max(rules: &GatewayRules) -> u64 {
    let GatewayRules { buffer, buffer_dir, .. } = rules;
    if buffer_dir.is_some() { MEMORY_BYTES.min(*buffer) } else { *buffer }
}

impl Exchange {
    /// Receives while there is room for it.
    pub(super) fn receive_if_wanted(&mut self, tools: &mut Tools<'_>) {
        let is_full = self.is_full();
        if let Some(link) = self.tries.link(tools.links) {
            link.set_receiving(&mut tools.shell.ring, !is_full);
        }
    }

    pub(super) fn is_full(&self) -> bool {
        self.delivery.output.borrow().in_memory() >= self.waiting_max()
    }

    /// Bytes of the content that may wait in memory now. Before its turn, or if its connection has other requests, only
    /// a few may wait. Never more may wait than the buffer holds.
    fn waiting_max(&self) -> u64 {
        let most = match &self.reception.method {
            ReceiveMethod::Memory { buffer, .. } => self.memory_max().min(buffer.size()),
            ReceiveMethod::Ring | ReceiveMethod::Pipes => self.memory_max(),
        };
        let has_buffer = self.reception.method.is_memory();
        match () {
            () if self.reception.is_lean => LEAN_BYTES_MAX,
            () if self.has_its_turn() => most,
            // The bytes that came with the head have to be sent first. Otherwise the content would keep these bytes and
            // a buffer.
            () if self.is_beside_others() && self.reception.method.is_pulled() && !has_buffer => {
                most.min(SHARED_BYTES as u64 / 2)
            }
            () if self.is_beside_others() => most.min(SHARED_BYTES as u64),
            () => most.min(EARLY_BYTES_MAX),
        }
    }

    /// Bytes that may be received in one call. If the content has its turn, the buffer is the limit.
    pub(super) fn room(&self) -> usize {
        if self.has_its_turn() && !self.reception.is_lean {
            return usize::MAX;
        }
        let waiting = self.delivery.output.borrow().in_memory();
        let room = self.waiting_max().saturating_sub(waiting).max(LEAN_BYTES_MAX);
        usize::try_from(room).unwrap_or(usize::MAX)
    }

    /// Checks if the worker has memory for as many bytes as the ring receives in one operation. If not, the exchange is
    /// lean: little is received at a time.
    pub(super) fn note_shortage(&mut self, tools: &Tools<'_>) {
        let is_lean = !tools.shell.cx.budget.has_room(EARLY_BYTES_MAX);
        if core::mem::replace(&mut self.reception.is_lean, is_lean) != is_lean {
            let allowance = if is_lean { LEAN_BYTES_MAX } else { EARLY_BYTES_MAX };
            self.delivery.output.borrow_mut().allow(allowance);
        }
    }

    /// Bytes of the content that may wait in memory.
    pub(super) fn memory_max(&self) -> u64 {
        memory_max(&self.upstream.rules)
    }

    /// Handles bytes that the upstream has sent.
    pub(in crate::proxy) fn handle_received(&mut self, tools: &mut Tools<'_>, bytes: &[u8]) {
        self.note_heard(tools);
        if self.reception.unread.is_empty() {
            let taken = self.understand(tools, bytes);
            self.reception.unread.extend_from_slice(&bytes[taken..]);
        } else {
            let mut all = core::mem::take(&mut self.reception.unread);
            all.extend_from_slice(bytes);
            let taken = self.understand(tools, &all);
            all.drain(..taken);
            self.reception.unread = all;
        }
        if self.stage != Stage::Over {
            self.wake(tools);
            self.pull_if_long(tools);
            if !self.reception.method.is_pulled() && self.is_full() {
                self.receive_if_wanted(tools);
            }
        }
    }

    /// Records that the upstream has sent bytes.
    pub(super) fn note_heard(&mut self, tools: &Tools<'_>) {
        self.tries.has_heard = true;
        if self.wire.counts_bytes() {
            self.clock.note_progress(tools.shell.cx.now);
        }
    }

    /// Parses received bytes; returns how many were consumed.
    pub(super) fn understand(&mut self, tools: &mut Tools<'_>, bytes: &[u8]) -> usize {
        let mut at = 0;
        while self.stage != Stage::Over {
            if self.stage == Stage::Tunnel {
                self.delivery.output.borrow_mut().push(&bytes[at..]);
                return bytes.len();
            }
            let (taken, heard) = self.wire.handle_input(
                &bytes[at..],
                &tools.shell.cx.tuning.response_limits,
                (tools.shell.cx.unix, &tools.shell.cx.date()),
            );
            at += taken;
            match heard {
                Heard::Partial => break,
                heard => self.handle_heard(tools, heard, bytes.len() == at),
            }
            // Another server is asked now. The rest of these bytes came from the server before.
            if self.stage == Stage::Connecting {
                return bytes.len();
            }
        }
        at
    }

    /// Handles a part of the response. `is_clean`: no bytes follow it.
    pub(super) fn handle_heard(&mut self, tools: &mut Tools<'_>, heard: Heard<'_>, is_clean: bool) {
        if !matches!(heard, Heard::Partial | Heard::Text(_)) {
            self.clock.note_progress(tools.shell.cx.now);
        }
        match heard {
            Heard::Partial | Heard::Nothing => {}
            Heard::Head { meaning, has_content, content } => {
                self.answer(tools, meaning, has_content);
                if self.stage == Stage::Content {
                    if self.wire.ends_with_head(has_content) {
                        self.end(tools, is_clean);
                    } else {
                        self.take(tools, Piece::Bytes(content.to_vec()));
                    }
                }
            }
            Heard::Interim(interim) => tools.interims.push_back((self.ticket, interim)),
            Heard::Content(content) => self.take(tools, Piece::Bytes(content.to_vec())),
            Heard::Trailer(name, value) => {
                self.delivery.output.borrow_mut().trailers.push(name, value);
            }
            Heard::NoTrailers => {
                self.delivery.output.borrow_mut().trailers = FieldSection::EMPTY;
            }
            Heard::Text(text) => self.read_text(tools, text),
            Heard::End => self.end(tools, is_clean),
            Heard::Overloaded => self.handle_overloaded(tools),
            Heard::Faulty(reason) => self.blame(tools, reason),
        }
    }

    /// Takes the head of the response.
    pub(super) fn answer(&mut self, tools: &mut Tools<'_>, meaning: Meaning, has_content: bool) {
        // The upstream would mistake the rest of the body for bytes of the tunnel.
        if matches!(meaning, Meaning::Tunnel(_)) && !self.upload.has_sent_all {
            return self.blame(tools, "a 101 before the end of the request's body");
        }
        let now = tools.shell.cx.now;
        let change = self.tries.chosen.as_mut().and_then(|chosen| chosen.handle_success(now));
        self.note_change(tools, change);
        self.upload.let_go();
        // The client has left in the same worker turn.
        let Some(interest) = self.interest.upgrade() else { return self.handle_left(tools) };
        let output = Rc::clone(&self.delivery.output);
        let name = || self.wire.name_at(self.tries.server_name(&self.upstream));
        let reason = match &meaning {
            Meaning::Response(passed) if passed.status.code() >= 400 => {
                Some(Reason::answered(&name(), passed.status))
            }
            _ => None,
        };
        if tools.shell.cx.counts
            && let Some(chosen) = &self.tries.chosen
        {
            let Clock { connect, connected, .. } = self.clock;
            chosen.server.note_response(connect.unwrap_or_default() + now.since(connected));
        }
        let times = tools.shell.cx.logs.then(|| {
            let Clock { connect, connected, .. } = self.clock;
            Rc::new(UpstreamTimes {
                name: self.tries.server_name(&self.upstream).into(),
                connect,
                head: now.since(connected),
                body: Cell::new(None),
            })
        });
        self.times = times.clone().map(|times| (times, now));
        let reached = |passed: Passed, has_content: bool, interest: Rc<Interest>| {
            let passed = Box::new(Reached { passed, has_content, output, interest, reason, times });
            Answer::Response(passed)
        };
        let answer = match meaning {
            Meaning::Response(mut passed) => {
                self.stage = Stage::Content;
                if let Some(chosen) = &self.tries.chosen {
                    self.wire.lead_back(&mut passed, &chosen.server.url);
                }
                self.delivery.begin(passed.status, has_content, passed.content_length);
                reached(passed, has_content, interest)
            }
            Meaning::Tunnel(passed) => {
                self.stage = Stage::Tunnel;
                self.upload.begin_tunnel();
                reached(passed, true, interest)
            }
            Meaning::HandOver(over) => {
                let chosen = self.tries.chosen.as_ref().expect("a server has answered");
                // The hand-over's target gets no body. From here on this exchange no longer ends when the client
                // leaves.
                interest.leave();
                let interest = core::mem::take(&mut self.interest);
                let held = Held::of_client(interest);
                let answer = Answer::HandOver(Box::new(over), Arc::clone(&chosen.server), held);
                tools.answers.push_back((self.ticket, answer));
                // A short content that is not needed is received, so that the link can be kept.
                if !self.upload.has_sent_all
                    || self.wire.content_left().is_some_and(|left| left >= PULLED_BYTES_MIN)
                {
                    return self.give_up(tools);
                }
                self.delivery.output.borrow_mut().drop_rest();
                self.stage = Stage::Content;
                self.clock.until = Some(now + HAND_OVER_MAX);
                return;
            }
        };
        tools.answers.push_back((self.ticket, answer));
    }

    /// Takes the end of the response as the upstream marks it. `is_clean`: no bytes follow it.
    pub(super) fn end(&mut self, tools: &mut Tools<'_>, is_clean: bool) {
        if !is_clean {
            tools.shell.cx.stats.proxy_surplus.add(1);
            self.note(tools, SURPLUS);
        }
        self.finish(tools, is_clean);
    }

    /// Completes the response. `is_clean`: the connection has not ended, and no bytes follow.
    pub(super) fn finish(&mut self, tools: &mut Tools<'_>, is_clean: bool) {
        if !self.end_output(tools, true) {
            tools.shell.cx.stats.proxy_failed.add(1);
            self.note(tools, "it sent less than its Content-Length; its response is cut off");
        }
        if let Some(key) = self.tries.link.take() {
            let has_left = tools.links.get_mut(key).is_some_and(|link| link.unsent() == 0);
            let has_whole_request = self.upload.has_sent_all && has_left;
            if !has_whole_request && self.stage == Stage::Content {
                tools.shell.cx.stats.proxy_early.add(1);
                self.note_client(tools, EARLY);
            }
            if self.wire.is_idle()
                && has_whole_request
                && is_clean
                && self.has_nothing_behind(tools, key)
            {
                tools.links.keep(&mut tools.shell.ring, key, tools.shell.cx.now);
            } else {
                tools.links.close(&mut tools.shell.ring, key);
            }
        }
        self.end_text(tools);
        self.upload.drop_rest();
        self.stage = Stage::Over;
    }

    /// Returns true if the socket is empty after a response that was pulled, or after any response of an application.
    /// If bytes are left in the socket, the next request on the link would mistake them for its response: all requests
    /// of a FastCGI connection have the same id.
    fn has_nothing_behind(&self, tools: &mut Tools<'_>, key: Key) -> bool {
        if !self.reception.method.is_pulled() && !self.wire.pulls_all() {
            return true;
        }
        let Some(link) = tools.links.get_mut(key) else { return true };
        match link.receive_behind(&mut tools.shell.ring, &mut [0]) {
            Ok(0) => true,
            Ok(_) => {
                tools.shell.cx.stats.proxy_surplus.add(1);
                self.note(tools, SURPLUS);
                false
            }
            // The connection has ended.
            Err(_) => false,
        }
    }

    /// Records that the upstream will send no more.
    pub(in crate::proxy) fn handle_ended(&mut self, tools: &mut Tools<'_>) {
        if self.stage == Stage::Tunnel {
            return self.finish(tools, false);
        }
        if self.wire.handle_eof(self.reception.unread.len()) {
            self.finish(tools, false);
        } else {
            self.handle_broken(tools, "the connection was closed", Status::BadGateway);
        }
    }

    /// Charges the client's connection after each step: for the bytes of an incomplete head, and for the bytes of the
    /// body that wait or are held.
    pub(in crate::proxy) fn charge_head(&mut self, tools: &mut Tools<'_>) {
        if !matches!(self.stage, Stage::Collecting | Stage::Connecting | Stage::Asking) {
            return;
        }
        let body = self.upload.held_bytes() + self.upload.waiting_bytes();
        let kept = self.reception.unread.capacity() + self.wire.head_bytes() + body;
        if core::mem::replace(&mut self.reception.charged, kept) != kept
            && let Some(interest) = self.interest.upgrade()
        {
            interest.set_head(kept as u64);
            // The worker counts its connection again.
            tools.woken.push_back(self.ticket);
        }
    }
}
