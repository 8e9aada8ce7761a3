//! The first look at a client: its address, and whether its connection may stay.

use core::net::IpAddr;

use crate::network::Origin;
use handler::desk::Desk;
use session::client::Client;
use session::shell::Shell;

/// Asks for the client of a newcomer, if something needs to know it. Returns false if the connection is to be
/// closed.
#[inline]
pub(super) fn admit(shell: &mut Shell<Desk>, origin: &mut Origin) -> bool {
    let asks = shell.cx.logs
        || shell.desk.servings.at(origin.listener).snapshot.admission(origin.listener).asks;
    !asks || ask(shell, origin)
}

#[cold]
fn ask(shell: &mut Shell<Desk>, origin: &mut Origin) -> bool {
    let serving = shell.desk.servings.at(origin.listener);
    let is_unix = serving.snapshot.admission(origin.listener).is_unix;
    match origin.client_address(&shell.ring) {
        // The client has gone. As a client on a Unix socket it would pass all rules.
        None if !is_unix => false,
        address => enter(shell, origin, address),
    }
}

/// Notes the client of a connection, and counts it. Returns false if the client has far too many.
#[cold]
pub(super) fn enter(shell: &mut Shell<Desk>, origin: &mut Origin, address: Option<IpAddr>) -> bool {
    let serving = shell.desk.servings.at(origin.listener);
    let admission = serving.snapshot.admission(origin.listener);
    let client = client_of(shell, origin.listener, address);
    let is_beyond = |max| client.counted.as_ref().is_some_and(|counted| counted.is_beyond(max));
    if admission.connections_max.is_some_and(is_beyond) {
        shell.cx.stats.limited_connections.add(1);
        return false;
    }
    origin.set_client(client);
    true
}

/// Counts a connection that is older than the configuration, unless an earlier configuration counted it.
#[cold]
pub(super) fn count(shell: &Shell<Desk>, origin: &mut Origin) {
    let is_counted = origin.client().is_some_and(|client| client.counted.is_some());
    let snapshot = &shell.desk.servings.at(origin.listener).snapshot;
    if is_counted || !snapshot.admission(origin.listener).counts {
        return;
    }
    // Neither a client on a Unix socket nor a client that has gone has an address.
    if let Some(address) = origin.client_address(&shell.ring) {
        origin.set_client(client_of(shell, origin.listener, Some(address)));
    }
}

/// The client at a listener with this address, whose connection is counted if a limit wants it.
fn client_of(shell: &Shell<Desk>, listener: u32, address: Option<IpAddr>) -> Client {
    let snapshot = &shell.desk.servings.at(listener).snapshot;
    // Those of a proxy are of many clients.
    let counts = snapshot.admission(listener).counts && !snapshot.proxies().trusts(address);
    Client::new(address, counts.then(|| snapshot.limiter()))
}
