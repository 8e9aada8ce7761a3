//! An attempt at a server: the choice, the connection and the request.

use std::sync::Arc;

use http::Status;
use ring::Key;

use super::{Exchange, Stage, Tools};
use session::reason::Reason;
use upstream::retries::Reached;
use upstream::{Chosen, Cost, Link, Links, ServerSet, Try, Upstream};

/// The tries of a request, and the server that is tried now.
#[derive(Debug)]
pub(super) struct Tries {
    /// The hash that chooses the server of the request.
    affinity: u64,
    /// True if the request may be sent again without harm (RFC 9110 §9.2.2).
    pub(super) is_idempotent: bool,
    /// The number of times that the request was sent.
    pub(super) count: u32,
    /// The servers that have failed.
    failed: ServerSet,
    /// The server that is tried now.
    pub(super) chosen: Option<Chosen>,
    pub(super) link: Option<Key>,
    /// Bytes that had been sent through the link before this try.
    sent_before: u64,
    /// True if a byte was received through the link.
    pub(super) has_heard: bool,
}

impl Tries {
    pub(super) const fn new(affinity: u64, is_idempotent: bool) -> Self {
        Self {
            affinity,
            is_idempotent,
            count: 0,
            failed: ServerSet::EMPTY,
            chosen: None,
            link: None,
            sent_before: 0,
            has_heard: false,
        }
    }

    /// The link to the server that is tried.
    pub(super) fn link<'a>(&self, links: &'a mut Links) -> Option<&'a mut Link> {
        links.get_mut(self.link?)
    }

    /// The name of the server that is tried, or of the upstream while no server is chosen.
    pub(super) fn server_name<'a>(&'a self, upstream: &'a Upstream) -> &'a str {
        self.chosen.as_ref().map_or(&upstream.name, |chosen| &chosen.server.name)
    }

    /// Excludes the server that was tried from further tries.
    pub(super) fn exclude(&mut self) {
        if let Some(chosen) = &self.chosen {
            self.failed.insert(chosen.number());
        }
    }

    /// The point that the current try has reached; `sent` is the number of bytes that the link has
    /// sent for all of its requests.
    pub(super) const fn reached(&self, sent: u64) -> Reached {
        match (self.has_heard, sent > self.sent_before) {
            (true, _) => Reached::Response,
            (false, true) => Reached::Sent,
            (false, false) => Reached::Nothing,
        }
    }
}

impl Exchange {
    /// Begins once the body has come as far as the gateway needs: all of it, or a part of a long
    /// body.
    pub(super) fn collect(&mut self, tools: &mut Tools<'_>) {
        if self.upload.is_collected() {
            return;
        }
        if let Some(length) = self.upload.length() {
            self.wire.set_content_length(length);
        }
        self.start(tools);
    }

    /// Tries the first server.
    fn start(&mut self, tools: &mut Tools<'_>) {
        match self.choose(tools, Cost::First) {
            Some(chosen) => self.attempt(tools, chosen, true),
            None => {
                self.refuse(tools, "no name of its servers is resolved", Status::BadGateway);
            }
        }
    }

    /// Chooses a server that has not failed.
    pub(super) fn choose(&self, tools: &mut Tools<'_>, cost: Cost) -> Option<Chosen> {
        let ask = Try {
            key: self.tries.affinity,
            failed: self.tries.failed,
            cost,
            is_repeatable: self.tries.is_idempotent && !self.wire.has_body(),
        };
        tools.links.choose(&self.upstream, ask, tools.shell.cx.now)
    }

    /// Tries a server.
    pub(super) fn attempt(&mut self, tools: &mut Tools<'_>, chosen: Chosen, may_be_kept: bool) {
        self.tries.count += 1;
        self.tries.has_heard = false;
        self.upload.rewind(self.wire.has_body());
        let now = tools.shell.cx.now;
        (self.clock.since, self.clock.connected, self.clock.connect) = (now, now, None);
        let server = Arc::clone(&chosen.server);
        self.tries.chosen = Some(chosen);
        let ring = &mut tools.shell.ring;
        let kept = may_be_kept.then(|| tools.links.take_kept(ring, &server, self.key)).flatten();
        let link = match kept {
            Some(kept) => Some(kept),
            None => tools.links.connect(&mut tools.shell.ring, &server, self.key),
        };
        self.stage = if kept.is_some() { Stage::Asking } else { Stage::Connecting };
        self.tries.link = link;
        self.note_shortage(tools);
        let is_lean = self.reception.is_lean;
        let Some(link) = self.tries.link(tools.links) else {
            return self.refuse(tools, "its address is not known", Status::BadGateway);
        };
        self.reception.begin(is_lean || kept.is_none() && self.wire.pulls_all());
        if self.reception.method.is_pulled() {
            match kept {
                Some(_) => link.set_pulling(&mut tools.shell.ring),
                None => link.set_receiving(&mut tools.shell.ring, false),
            }
        }
        self.tries.sent_before = link.sent();
        link.push_piece(self.wire.begin(server.url.path.as_deref(), link.served));
        self.send(tools);
    }

    /// Sends the request, because the link has been made.
    pub(in crate::proxy) fn handle_connected(&mut self, tools: &mut Tools<'_>) {
        self.stage = Stage::Asking;
        let now = tools.shell.cx.now;
        self.clock.connect = Some(now.since(self.clock.connected));
        (self.clock.since, self.clock.connected) = (now, now);
        self.send(tools);
        if self.reception.method.is_pulled()
            && let Some(link) = self.tries.link(tools.links)
        {
            link.await_bytes(&mut tools.shell.ring);
        }
    }

    /// Continues because the client or the link has made room, or has more bytes.
    pub(in crate::proxy) fn handle_touched(&mut self, tools: &mut Tools<'_>) {
        // The upstream never gets the end of a body that is cut off here, and would wait for it.
        let is_too_long = self.upload.is_too_long();
        let has_no_room = self.upload.has_no_room();
        let is_cut_off =
            is_too_long || has_no_room || self.wire.has_body() && self.upload.is_broken_off();
        match self.stage {
            Stage::Collecting | Stage::Connecting | Stage::Asking if is_too_long => {
                return self.fail(tools, Status::ContentTooLarge, Reason::BodyTooLong);
            }
            Stage::Collecting | Stage::Connecting | Stage::Asking if has_no_room => {
                return self.fail(tools, Status::ServiceUnavailable, Reason::NoRoom);
            }
            _ if is_cut_off => return self.handle_left(tools),
            Stage::Collecting => return self.collect(tools),
            _ => {}
        }
        self.send(tools);
        self.spool(tools);
        if self.reception.is_lean {
            self.note_shortage(tools);
        }
        if self.reception.method.is_pulled() {
            self.pull(tools);
        } else {
            self.receive_if_wanted(tools);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_try_has_reached_nothing_if_its_link_only_sent_other_requests() {
        for (has_heard, sent, expected) in [
            (false, 100, Reached::Nothing),
            (false, 101, Reached::Sent),
            (true, 101, Reached::Response),
            // The upstream has sent bytes before the request.
            (true, 100, Reached::Response),
        ] {
            let tries = Tries { sent_before: 100, has_heard, ..Tries::new(0, true) };
            assert_eq!(tries.reached(sent), expected, "{has_heard} {sent}");
        }
    }
}
