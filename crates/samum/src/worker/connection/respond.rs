//! The response to a request: of its answer, or an error if the disk of the answer's file is
//! silent.

use core::num::NonZeroU64;

use http::{Head, Method};
use ring::Ring;
use sendfile::{Disk, Takes};

use super::Tools;
use crate::network::Origin;
use handler::desk::Desk;
use handler::{Handler, Request, Response, Ticket};
use session::Session;
use session::context::SiteRules as _;
use session::page;
use session::request_id::RequestId;
use session::shell::Shell;
use session::standing::Standing;

/// Begins the response that an answer comes to. Returns the rate at which the response is sent.
#[inline]
pub(super) fn respond<S: Session, H: Handler>(
    session: &mut S,
    tools: &mut Tools<'_, impl Session, H>,
    work: &mut S::Work,
    request: u32,
    head: &Head<'_>,
    origin: &Origin,
    takes: Takes,
    answer: &H::Answer,
) -> Option<NonZeroU64> {
    let ticket = Ticket { connection: tools.id, request };
    let other;
    let mut chosen = answer;
    let mut response = tools.handler.response(&mut tools.shell.cx, head, answer);
    if tools.disk.may_refuse()
        && would_fail(&mut tools.shell.ring, tools.disk, head, &response, takes)
        && let Some(unavailable) = unavailable(tools, head, takes, answer)
    {
        other = unavailable;
        chosen = &other;
        response = tools.handler.response(&mut tools.shell.cx, head, chosen);
    }
    let standing = Standing::Counted;
    let asked = || Request { head, ticket, origin, standing, is_next: true };
    tools.handler.wrap(asked, chosen, &mut response);
    if response.reason.is_some() {
        let Tools { handler, shell, .. } = tools;
        note_error(*handler, shell, head, &response, ticket, origin);
    }
    let Shell { cx, desk, .. } = tools.shell;
    let mut shows_scheme = false;
    if cx.logs {
        response.terms.client = desk.servings.client(origin.known_client(), head);
        if response.terms.recording.as_ref().is_some_and(|recording| recording.shows_more) {
            let is_trusted = desk.servings.trusts(origin.known_client());
            response.terms.named = Some((ticket, is_trusted));
            shows_scheme = true;
            // An id is of use to the operator only if a log has it.
            if response.shows_id {
                page::show_id(&mut response, &RequestId::of(head, is_trusted, cx.id_seed, ticket));
            }
        }
    }
    if cx.counts || shows_scheme || response.hsts.is_some() {
        let client = origin.known_client();
        response.terms.scheme = desk.servings.scheme(origin.scheme(), client, head);
    }
    session.respond(work, cx, request, head, &mut response)
}

/// Tells the handler of a response with a reason, with the id that the request has in logs.
#[cold]
fn note_error<H: Handler>(
    handler: &mut H,
    shell: &Shell<Desk>,
    head: &Head<'_>,
    response: &Response<'_>,
    ticket: Ticket,
    origin: &Origin,
) {
    let id = || {
        let is_trusted = shell.desk.servings.trusts(origin.known_client());
        RequestId::of(head, is_trusted, shell.cx.id_seed, ticket)
    };
    handler.note_error(&shell.cx, head, response, id);
}

/// Returns true if the response would be cut after its head, because a disk does not answer.
#[cold]
fn would_fail(
    ring: &mut Ring,
    disk: &mut Disk,
    head: &Head<'_>,
    response: &Response<'_>,
    takes: Takes,
) -> bool {
    let Some((file, range)) = response.first_range(takes) else { return false };
    head.method != Method::Head && disk.would_fail(ring, &file, &range, response.tries())
}

/// The answer in place of one whose file cannot be read now. If the error page is on such a
/// disk, too, the answer is the error without that page.
#[cold]
fn unavailable<H: Handler>(
    tools: &mut Tools<'_, impl Session, H>,
    head: &Head<'_>,
    takes: Takes,
    answer: &H::Answer,
) -> Option<H::Answer> {
    let other = tools.handler.unavailable(tools.shell, answer)?;
    let fails = {
        let response = tools.handler.response(&mut tools.shell.cx, head, &other);
        would_fail(&mut tools.shell.ring, tools.disk, head, &response, takes)
    };
    if fails { tools.handler.unavailable(tools.shell, &other) } else { Some(other) }
}
