//! The first look at a client: its address, and whether its connection may stay.

use core::net::IpAddr;

use crate::client::Client;
use crate::network::Origin;
use crate::shell::Shell;

/// Asks for the client of a newcomer, if something needs to know it. Returns false if the connection is to be
/// closed.
#[inline]
pub(super) fn admit(shell: &mut Shell, origin: &mut Origin) -> bool {
    let asks = shell.cx.logs
        || shell.cx.serving_at(origin.listener).snapshot.admission(origin.listener).asks;
    !asks || ask(shell, origin)
}

#[cold]
fn ask(shell: &mut Shell, origin: &mut Origin) -> bool {
    let is_unix = shell.cx.serving_at(origin.listener).snapshot.admission(origin.listener).is_unix;
    match origin.client_address(&shell.ring) {
        // It has gone. As a client on a Unix socket it would pass all rules.
        None if !is_unix => false,
        address => enter(shell, origin, address),
    }
}

/// Notes the client of a connection, and counts it. Returns false if the client has far too many.
#[cold]
pub(super) fn enter(shell: &mut Shell, origin: &mut Origin, address: Option<IpAddr>) -> bool {
    let snapshot = &shell.cx.serving_at(origin.listener).snapshot;
    let admission = snapshot.admission(origin.listener);
    // Those of a proxy are of many clients.
    let counts = admission.counts && !snapshot.proxies().trusts(address);
    let client = Client::new(address, counts.then(|| snapshot.limiter()));
    let is_beyond = |max| client.counted.as_ref().is_some_and(|counted| counted.is_beyond(max));
    if admission.connections_max.is_some_and(is_beyond) {
        shell.cx.stats.limited_connections += 1;
        return false;
    }
    origin.set_client(client);
    true
}
