//! The conditions of routes, and the client to which they apply.

use core::hash::{Hash as _, Hasher as _};
use core::net::{IpAddr, SocketAddr};
use std::hash::DefaultHasher;
use std::path::Path;

use ring::Device;

use crate::Request;
use crate::guard::{Guard, Refusal};
use crate::serving::Serving;
use config::route::RouteId;
use config::site::SiteId;
use config::{Action, Address};
use gateways::input::COLLECTED_BYTES_MAX;
use gateways::input::collected::Storage;
use gateways::programs::environment::Circumstances;
use gateways::quota;
use session::client::Sender;
use session::forwarded::{Conflict, Scheme};
use session::limits::ClientKey;
use session::request_id::RequestId;
use session::shell::Shell;
use session::standing::Standing;

/// Checks by the conditions of a route if a request may pass. The limits count a request once, and a request that was
/// refused before stays refused.
#[inline(never)]
pub(super) fn admit(
    shell: &mut Shell,
    request: &Request<'_>,
    serving: &Serving,
    guard: &Guard,
) -> Result<(), Refusal> {
    if let Standing::Refused(refusal) = request.standing {
        return Err(refusal);
    }
    let snapshot = &serving.snapshot;
    let origin = request.origin;
    let client = client_of(shell, request, serving);
    let connection = origin.client().and_then(|client| client.counted.as_ref());
    let is_counted = !request.standing.is_new();
    let limit = || guard.limit(snapshot.limiter(), client, connection, is_counted, shell.cx.now);
    let said = guard.permit(client).and_then(|()| limit());
    let said = said.and_then(|()| guard.admit_body(request.head.framing));
    count(shell, said);
    said
}

/// Lets a request pass or refuses it, if no route responds to it. The limits of the site apply. If the request will be
/// redirected to the path of `route`, the access rules of this route apply, else the access rules of the site.
pub(super) fn admit_at_site(
    shell: &mut Shell,
    request: &Request<'_>,
    serving: &Serving,
    site: SiteId,
    route: Option<RouteId>,
) -> Result<(), Refusal> {
    let limits = serving.site_guard(site);
    let access = route.map_or(limits, |id| serving.guard(id));
    if limits.is_none() && access.is_none() {
        return Ok(());
    }
    let client = client_of(shell, request, serving);
    let connection = request.origin.client().and_then(|client| client.counted.as_ref());
    let (limiter, is_counted, now) =
        (serving.snapshot.limiter(), !request.standing.is_new(), shell.cx.now);
    let limit =
        || limits.map_or(Ok(()), |own| own.limit(limiter, client, connection, is_counted, now));
    let said = access.map_or(Ok(()), |own| own.permit(client)).and_then(|()| limit());
    count(shell, said);
    said
}

/// Counts a request that was refused.
fn count(shell: &Shell, said: Result<(), Refusal>) {
    let stats = &shell.cx.stats;
    match said {
        Ok(()) => {}
        Err(Refusal::Forbidden) => stats.forbidden.add(1),
        Err(Refusal::Connections) => stats.limited_connections.add(1),
        Err(Refusal::Requests(_)) => stats.limited_requests.add(1),
        Err(Refusal::BodyTooLong) => stats.long_bodies.add(1),
        // Such requests were turned away before.
        Err(Refusal::Conflict | Refusal::Outdated) => {}
    }
}

/// Returns true if a trusted proxy has sent a request whose fields name different clients.
pub(super) fn is_forged(shell: &Shell, request: &Request<'_>, serving: &Serving) -> bool {
    let proxies = serving.snapshot.proxies();
    if proxies.is_empty() {
        return false;
    }
    let own = request.origin.client_address(&shell.ring);
    matches!(proxies.client_of(own, request.head), Err(Conflict))
}

/// The client of a request.
pub(super) fn client_of(shell: &Shell, request: &Request<'_>, serving: &Serving) -> Option<IpAddr> {
    let own = request.origin.client_address(&shell.ring);
    serving.snapshot.proxies().client_of(own, request.head).unwrap_or(own)
}

/// The sender of a request.
pub(super) fn sender_of(shell: &Shell, request: &Request<'_>, serving: &Serving) -> Sender {
    let peer = request.origin.client_address(&shell.ring);
    serving.snapshot.proxies().sender_of(peer, request.origin.scheme(), request.head)
}

/// The host that the client of a request has asked for, as a trusted proxy reports it in `Forwarded`.
pub(super) fn told_host<'a>(
    shell: &Shell,
    request: &Request<'a>,
    serving: &Serving,
) -> Option<&'a [u8]> {
    let proxies = serving.snapshot.proxies();
    if proxies.is_empty() {
        return None;
    }
    proxies.told_host(request.origin.client_address(&shell.ring), request.head)
}

/// The scheme that the client of a request has asked for, as a trusted proxy reports it.
pub(super) fn told_scheme(
    shell: &Shell,
    request: &Request<'_>,
    serving: &Serving,
) -> Option<Scheme> {
    let proxies = serving.snapshot.proxies();
    // Without trusted proxies the peer makes no difference.
    if proxies.is_empty() {
        return None;
    }
    proxies.told_scheme(request.origin.client_address(&shell.ring), request.head)
}

/// The storage of the body of a request, if all of it is collected; `None` if an upstream takes the body while it comes.
pub(super) fn storage_of(
    shell: &Shell,
    request: &Request<'_>,
    serving: &Serving,
    route: RouteId,
) -> Option<Storage> {
    let (buffer, dir) = match &serving.route(route).action {
        Action::Cgi(cgi) => (cgi.buffer, &cgi.buffer_dir),
        Action::Fastcgi(fastcgi) => {
            let rules = &fastcgi.upstream.rules;
            (rules.buffer, &rules.buffer_dir)
        }
        _ => return None,
    };
    let client = client_of(shell, request, serving);
    let dir = quota::directory(dir.as_deref());
    Some(Storage {
        memory_max: buffer.min(COLLECTED_BYTES_MAX),
        client: client.map(ClientKey::new),
        device: Device::unknown(name_of_device(&dir)),
        dir: dir.into(),
    })
}

/// A number that stands for the device of a directory while the device is not known. Each use of the same path has the
/// same number.
fn name_of_device(dir: &Path) -> u64 {
    let mut hasher = DefaultHasher::new();
    dir.hash(&mut hasher);
    hasher.finish()
}

/// The id of a request.
pub(super) fn request_id(shell: &Shell, request: &Request<'_>, is_trusted: bool) -> RequestId {
    RequestId::of(request.head, is_trusted, shell.cx.id_seed, request.ticket)
}

/// The facts about a request that programs and scripts get in addition to its head.
pub(super) fn circumstances<'a>(
    shell: &Shell,
    request: &Request<'a>,
    serving: &'a Serving,
) -> Circumstances<'a> {
    let address = serving.snapshot.address(request.origin.listener);
    let sender = sender_of(shell, request, serving);
    // The peer is a proxy if the sender has another address.
    let peer = request.origin.address(&shell.ring);
    let is_client = |peer: &SocketAddr| Some(peer.ip().to_canonical()) == sender.client;
    // Of a listener at one address no system call has to ask.
    let bound = address.and_then(Address::ip).filter(|ip| !ip.is_unspecified());
    let local = || Some(request.origin.local_address(&shell.ring)?.ip());
    Circumstances {
        sender,
        told_host: told_host(shell, request, serving),
        requested: None,
        user: None,
        client_port: peer.filter(is_client).map(|peer| peer.port()),
        server_name: "localhost",
        server_address: bound.or_else(local),
        // With port 0 the kernel has chosen the port.
        port: address.and_then(Address::port).filter(|port| *port != 0),
        handshake: request.origin.handshake(),
        request_id: Some(request_id(shell, request, sender.is_trusted)),
        reserved: serving.snapshot.reserved(),
    }
}
