//! Responses to requests that no handler is asked about.

use http::{Head, Reject};

use crate::client::ClientAddress;
use crate::context::{Context, Demands};
use crate::fields;
use crate::forwarded::Scheme;
use crate::handler::Response;
use crate::page;
use crate::record::Sketch;

/// The facts about a connection that a refusal needs.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ConnectionFacts {
    /// The number of the listener that accepted the connection.
    pub(super) listener: u32,
    /// The scheme of requests.
    pub(super) scheme: Scheme,
    /// The address of the client.
    pub(super) client: ClientAddress,
}

/// Makes the response to a request that was refused before it was read, and passes it on. The log shows its sketch.
pub(super) fn make_unread(
    cx: &mut Context,
    place: ConnectionFacts,
    reject: Reject,
    sketch: Sketch,
    respond: impl FnOnce(&mut Context, &mut Response<'_>),
) {
    let sketch = cx.logs.then(|| Box::new(sketch));
    make_as(cx, place, reject, None, sketch, respond);
}

/// Makes the response to a refused request, and passes it on. A malformed request has no head.
pub(super) fn make(
    cx: &mut Context,
    place: ConnectionFacts,
    reject: Reject,
    head: Option<&Head<'_>>,
    respond: impl FnOnce(&mut Context, &mut Response<'_>),
) {
    make_as(cx, place, reject, head, None, respond);
}

fn make_as(
    cx: &mut Context,
    ConnectionFacts { listener, scheme, client }: ConnectionFacts,
    reject: Reject,
    head: Option<&Head<'_>>,
    sketch: Option<Box<Sketch>>,
    respond: impl FnOnce(&mut Context, &mut Response<'_>),
) {
    let named = Some((cx.next_unnamed(), false));
    let Demands { hsts, rules, server_timing } = cx.site_rules.demands(listener, head);
    let reason = reject.into();
    let mut response = page::refused(reject, page::bare(reject.status));
    fields::apply_to(&rules, head.map(|head| head.target), &mut response.made().head);
    response.hsts = hsts.as_ref();
    response.reason = Some(&reason);
    response.terms.recording = cx.site_rules.recording(listener, head);
    response.terms.server_timing = server_timing;
    response.terms.scheme = scheme;
    (response.terms.named, response.terms.sketch) = (named, sketch);
    if let Some(head) = head {
        response.terms.scheme = cx.site_rules.scheme(scheme, client, head);
        if cx.logs {
            response.terms.client = cx.site_rules.client(client, head);
        }
    }
    respond(cx, &mut response);
}
