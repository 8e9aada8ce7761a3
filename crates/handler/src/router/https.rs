//! Requests that are refused because of the way in which they came: contradictory forwarding fields, the wrong
//! handshake, or no TLS. Also the answers to ACME challenges.

use std::rc::Rc;

use http::{Method, Status, Target};

use super::Router;
use super::admit::{admit_at_site, is_forged, told_scheme};
use super::answer::{Answer, Moved, Outcome};
use super::destination::normalize;
use crate::challenges::DIRECTORY;
use crate::guard::Refusal;
use crate::serving::{Destination, Serving, ToHttps};
use crate::{Found, Request};
use config::route::RouteId;
use config::site::SiteId;
use session::forwarded::Scheme;
use session::network::Handshake;
use session::reason::Reason;
use session::shell::Shell;

impl Router {
    /// Answers a request that its site [turns away](turned_away), before any route can answer.
    #[cold]
    pub(super) fn turn_away(
        &mut self,
        shell: &mut Shell,
        request: &Request<'_>,
        serving: &Rc<Serving>,
        site: SiteId,
        outcome: Outcome,
    ) -> Found<Answer> {
        let is_misdirected = match &outcome {
            Outcome::Error(status, _) => *status == Status::MisdirectedRequest,
            Outcome::Refused(refusal) => *refusal == Refusal::Outdated,
            _ => false,
        };
        if is_misdirected && request.origin.handshake().is_some() && request.standing.is_new() {
            shell.cx.stats.tls_misdirected.add(1);
        }
        if matches!(outcome, Outcome::Refused(Refusal::Conflict)) && request.standing.is_new() {
            shell.cx.stats.forged_clients.add(1);
        }
        let outcome = match is_of_site(&outcome) {
            true => {
                let route = route_of(serving, site, request.head.target);
                let admitted = admit_at_site(shell, request, serving, site, route);
                admitted.map_or_else(Outcome::Refused, |()| outcome)
            }
            false => outcome,
        };
        self.refuse(shell, request, serving, Destination { site, route: None }, outcome)
    }
}

/// Returns true if the conditions of the site hold for a request that is turned away with this outcome. The answers to
/// challenges are for all authorities, and the other refusals say nothing about the site.
pub(super) const fn is_of_site(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Moved(_) | Outcome::Error(_, Reason::UnlistedHost))
}

/// The route that has the path of a target, or the same path with a slash at its end, if there is one.
pub(super) fn route_of(serving: &Serving, site: SiteId, target: Target<'_>) -> Option<RouteId> {
    let Target::Origin { path, .. } = target else { return None };
    let mut name = Vec::new();
    normalize(path, &mut name).ok()?;
    serving.destination(site, &name).route.or_else(|| serving.directory(site, &name))
}

/// Returns true if a request may have to be [turned away](turned_away). If there is no TLS, no site treats schemes
/// differently, no proxy is trusted, and there are no challenges, no request is turned away.
#[inline(always)]
pub(super) fn may_turn_away(request: &Request<'_>, serving: &Serving) -> bool {
    request.origin.handshake().is_some() || serving.has_sender_rules()
}

/// The outcome of a request that its site turns away because of its sender; `None` for all other requests.
#[inline(never)]
pub(super) fn turned_away(
    shell: &Shell,
    request: &Request<'_>,
    serving: &Serving,
    site: SiteId,
) -> Option<Outcome> {
    if request.origin.handshake().is_some_and(Handshake::is_outdated) {
        return Some(Outcome::Refused(Refusal::Outdated));
    }
    if let Some(answer) = challenge(request, serving) {
        return Some(Outcome::Challenge(answer));
    }
    // A server that reads such a request otherwise mistakes it for that of another client.
    if is_forged(shell, request, serving) {
        return Some(Outcome::Refused(Refusal::Conflict));
    }
    if is_misdirected(request) {
        return Some(Outcome::Error(Status::MisdirectedRequest, Reason::Handshake));
    }
    redirected(shell, request, serving, site, serving.to_https(site)?)
}

/// The answer to a challenge of an authority. The authority sends such a request without TLS.
fn challenge(request: &Request<'_>, serving: &Serving) -> Option<Box<str>> {
    let Target::Origin { path, .. } = request.head.target else { return None };
    let is_read = matches!(request.head.method, Method::Get | Method::Head);
    if !is_read || request.origin.handshake().is_some() {
        return None;
    }
    serving.challenges().answer(path)
}

/// Returns true if the handshake of the connection was not for the host of the request (RFC 9110 §15.5.20). Without
/// this check a client could reach a site by the handshake of another site that asks for no certificate. The client
/// sends the request again on another connection.
fn is_misdirected(request: &Request<'_>) -> bool {
    let Some(handshake) = request.origin.handshake() else { return false };
    match request.head.host().map(str::from_utf8) {
        None => !handshake.permits(None),
        Some(Ok(host)) => !handshake.permits(Some(host)),
        // No site has such a host, and no handshake is for it.
        Some(Err(_)) => true,
    }
}

/// The redirection of a request without TLS to the same URL with `https`, or its refusal; `None` if the request may be
/// answered without TLS.
///
/// A client is redirected only to hosts of its site, so no client can choose an address to which other clients are
/// redirected. A request about the server itself (`OPTIONS *`) has no such URL.
fn redirected(
    shell: &Shell,
    request: &Request<'_>,
    serving: &Serving,
    site: SiteId,
    to: &ToHttps,
) -> Option<Outcome> {
    let told = told_scheme(shell, request, serving);
    if told.unwrap_or_else(|| request.origin.scheme()) == Scheme::Https {
        return None;
    }
    let Target::Origin { path, query } = request.head.target else { return None };
    // Another program may put its challenges there, before there is a certificate.
    if path.strip_prefix(DIRECTORY).is_some_and(is_of_challenge) {
        return None;
    }
    let host = request.head.host();
    let listed = host.and_then(|host| serving.listed(request.origin.listener, host, site));
    let Some(name) = listed.as_deref().or(to.name.as_deref()) else {
        return Some(Outcome::Error(Status::MisdirectedRequest, Reason::UnlistedHost));
    };
    let mut location = format!("https://{name}").into_bytes();
    // A proxy that speaks TLS has the port that its clients know.
    if let Some(port) = to.port.filter(|_| told.is_none()) {
        location.extend_from_slice(format!(":{port}").as_bytes());
    }
    location.extend_from_slice(path);
    if let Some(query) = query {
        location.push(b'?');
        location.extend_from_slice(query);
    }
    Some(Outcome::Moved(Box::new(Moved { status: Status::PermanentRedirect, location })))
}

/// Returns true for names of challenge files that lead to no other directory. The names that authorities choose have no
/// dot.
fn is_of_challenge(name: &[u8]) -> bool {
    let is_valid = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    name.iter().all(is_valid) && !name.starts_with(b".")
}
