//! Requests that are refused before a handler has answered them.

use http::Reject;
use sendfile::Piece;

use super::Http1;
use super::exchange::{Exchange, Known};
use super::work::Work;
use crate::context::Context;
use crate::forwarded::Scheme;
use crate::other_protocol::OtherProtocol;
use crate::record::Sketch;
use crate::session::refusal;

impl Http1 {
    /// Refuses a malformed request. If other requests are being answered, the refusal waits for its turn. If the head
    /// is at fault, `unread` has the bytes of the head that have come.
    #[cold]
    pub(super) fn refuse(
        &mut self,
        work: &mut Work,
        cx: &mut Context,
        reject: Reject,
        unread: &[u8],
    ) {
        // The refusal replaces the answer to the request with the faulty body.
        let is_of_body = work.body_is_outstanding();
        let request = is_of_body.then(|| work.exchanges.pop_back()).flatten();
        let known = match request.and_then(Exchange::into_request) {
            Some((head, facts)) => Known::Request(head, facts),
            None => {
                let limits = &cx.tuning.request_limits;
                let found = http1::sketch(unread, limits).filter(|_| cx.logs && !is_of_body);
                let sketch = |http1::Sketch { method, target, version }| {
                    Sketch::new(method, target, version)
                };
                Known::Line(found.map(sketch).unwrap_or_default())
            }
        };
        self.refuse_request(work, cx, reject, known);
    }

    /// Handles the first bytes of a connection if these bytes belong to another protocol. Returns true if the protocol
    /// has a refusal of its own, or if the connection goes on with HTTP/2.
    #[cold]
    pub(super) fn refuse_protocol(
        &mut self,
        work: &mut Work,
        cx: &mut Context,
        bytes: &[u8],
    ) -> bool {
        // No listener can be configured for TLS within TLS.
        let is_twice = |protocol| protocol == OtherProtocol::Tls && work.scheme == Scheme::Https;
        let is_first = self.next_request == 0;
        let protocol = OtherProtocol::of(bytes).filter(|one| is_first && !is_twice(*one));
        let Some(protocol) = protocol else { return false };
        // The preface selects HTTP/2 only without TLS. With TLS, the client selects HTTP/2 in the handshake.
        if protocol == OtherProtocol::Http2
            && work.scheme == Scheme::Http
            && cx.site_rules.speaks_http2(work.listener)
        {
            self.take_no_more();
            work.has_preface = true;
            return true;
        }
        cx.other_protocol = Some((protocol, work.client.ip()));
        let Some(alert) = protocol.alert() else { return false };
        self.take_no_more();
        work.stream.push(Piece::Bytes(alert.to_vec()));
        true
    }

    /// Refuses the last request. The request is not in the queue of waiting requests.
    #[cold]
    pub(super) fn refuse_request(
        &mut self,
        work: &mut Work,
        cx: &mut Context,
        reject: Reject,
        known: Known,
    ) {
        self.take_no_more();
        work.incoming = None;
        if work.exchanges.is_empty() && work.producing.is_none() {
            self.respond_to_refused(work, cx, reject, known);
        } else {
            work.exchanges.push_back(Exchange::Refused(reject, known));
        }
    }

    pub(super) fn respond_to_refused(
        &mut self,
        work: &mut Work,
        cx: &mut Context,
        reject: Reject,
        known: Known,
    ) {
        let origin = work.place();
        let (head, facts) = match known {
            Known::Request(head, facts) => (head, facts),
            Known::Line(sketch) => {
                return refusal::make_unread(cx, origin, reject, sketch, |cx, response| {
                    work.begin_response(cx, None, response, true);
                });
            }
        };
        let head = &head.as_head();
        work.facts = facts;
        refusal::make(cx, origin, reject, Some(head), |cx, response| {
            work.begin_response(cx, Some(head), response, true);
        });
    }
}
