//! WebSockets over HTTP/2: tunnels by extended CONNECT.
//!
//! Reading list: RFC 8441; RFC 6455 §1.3, §4; RFC 9113 §8.5.
//!
//! A handler sees the request that a client of HTTP/1.1 would have sent: `GET` with `Upgrade: websocket` and a key. So
//! routes, limits and upstreams are the same for both. Its answer is translated:
//!
//! | answer | response |
//! |---|---|
//! | 101 that accepts the key | 200, and then the bytes of the tunnel in DATA frames |
//! | 101 that does not accept the key | 502: a server that knows nothing of WebSocket has not agreed to anything |
//! | any other success | 501, because a client would mistake it for the beginning of the tunnel |
//! | any other status | the same |
//!
//! END_STREAM is the end of one direction, as FIN is. A tunnel that breaks is reset with CONNECT_ERROR.

use http::{Head, Method, Reject, Status};

use super::Http2;
use super::lane::{Form, Incoming};
use super::websocket::{ACCEPT, Key, Tunnel, UPGRADE, Upgrade, WEBSOCKET};
use super::work::Work;
use crate::context::Context;
use crate::handler::{Reception, Response};
use crate::session::{Requests, refusal};

/// Tunnels of one connection. They do not count as streams that occupy gateways, because they may last for days.
const TUNNELS_MAX: usize = 32;

const OTHER_PROTOCOL: Reject =
    Reject::new(Status::NotImplemented, "tunnels of this protocol are not provided");
const NO_WEBSOCKET: Reject =
    Reject::new(Status::NotImplemented, "there is no WebSocket at this address");
const NOT_ACCEPTED: Reject =
    Reject::new(Status::BadGateway, "the server has not accepted the key of the WebSocket");
const TOO_MANY: Reject =
    Reject::new(Status::ServiceUnavailable, "the connection has too many tunnels");
const ENDED: Reject = Reject::bad("a tunnel that ends with its request");

impl Http2 {
    /// Passes a request for a tunnel on, as one for an upgrade.
    #[cold]
    pub(super) fn handle_connect(
        &mut self,
        work: &mut Work,
        requests: &mut impl Requests,
        request: &http2::Request<'_>,
        protocol: &[u8],
    ) {
        let (id, head) = (request.stream, &request.head);
        let tunnels = work.lanes.iter().filter(|lane| lane.tunnel != Tunnel::No).count();
        let cx = requests.cx();
        let reject = if !protocol.eq_ignore_ascii_case(WEBSOCKET) {
            Some(OTHER_PROTOCOL)
        } else if request.has_ended {
            Some(ENDED)
        } else if tunnels >= TUNNELS_MAX {
            Some(TOO_MANY)
        } else {
            None
        };
        if let Some(reject) = reject {
            return refusal::make(cx, work.place, reject, Some(head), |cx, response| {
                self.begin_response(work, cx, id, Some(head), false, response);
            });
        }
        let key = Key::new([cx.next_token(), cx.next_token()]);
        let upgrade = Upgrade::of(head, key);
        let head = upgrade.head(head);
        let Reception { consumer, standing } = requests.consumer(id, &head);
        let lane = work.lane_of_current(id);
        lane.tunnel = Tunnel::Asked(key);
        lane.incoming = consumer.map(|consumer| Incoming::new(consumer, Form::Offered));
        work.recount(id);
        let is_next = work.has_gateway_room();
        requests.handle_request(self, work, id, &head, is_next, standing);
    }

    /// Begins the response to a request for a tunnel.
    #[cold]
    pub(super) fn answer_connect(
        &mut self,
        work: &mut Work,
        cx: &mut Context,
        id: u32,
        head: Option<&Head<'_>>,
        response: &mut Response<'_>,
    ) {
        let Some(lane) = work.lane(id) else { return };
        let Tunnel::Asked(key) = core::mem::replace(&mut lane.tunnel, Tunnel::No) else { return };
        // The log shows what the client has sent.
        let head = head.map(|head| head.with_target(Method::Connect, head.target));
        let status = response.outcome().0;
        let reject = match status {
            Status::SwitchingProtocols => {
                let head = &mut response.made().head;
                (!key.is_accepted(&head.extra)).then_some(NOT_ACCEPTED)
            }
            _ if (200..300).contains(&status.code()) => Some(NO_WEBSOCKET),
            _ => None,
        };
        if reject.is_none() && status == Status::SwitchingProtocols {
            lane.tunnel = Tunnel::Open;
            if let Some(incoming) = &mut lane.incoming {
                incoming.form = Form::Tunnel;
            }
            let made = &mut response.made().head;
            (made.status, made.content_length) = (Status::Ok, None);
            made.extra.remove(UPGRADE);
            made.extra.remove(ACCEPT);
            self.begin_response(work, cx, id, head.as_ref(), false, response);
            return self.feed(work, cx.now, id);
        }
        // Nothing uses the bytes that the client may have sent already.
        self.stop_body(work, cx.now, id);
        match reject {
            None => self.begin_response(work, cx, id, head.as_ref(), false, response),
            Some(reject) => {
                refusal::make(cx, work.place, reject, head.as_ref(), |cx, response| {
                    self.begin_response(work, cx, id, head.as_ref(), false, response);
                });
            }
        }
    }
}
