//! The servers of `proxy` and `fastcgi`.

use crate::message::Notes;
use crate::node::Node;
use crate::{ServerUrl, Upstream, upstream};

/// Reads a server, or a list of servers.
pub(super) fn read_servers(
    node: Node<'_>,
    notes: &mut Notes,
    read: fn(&str) -> Result<ServerUrl, String>,
) -> Vec<ServerUrl> {
    let read = |node: Node<'_>, notes: &mut Notes| node.text(read, notes);
    let servers = match node.as_text() {
        Some(_) => read(node, notes).map(|server| vec![server]),
        None => node.list(notes, read),
    };
    let servers = servers.unwrap_or_default();
    if servers.len() > Upstream::SERVERS_MAX {
        let most = Upstream::SERVERS_MAX;
        notes.error(node.place, format!("a route has {most} servers at most"));
    } else if node.is_empty_list() {
        notes.error(node.place, "expected at least one server");
    }
    servers
}

/// Reads the servers of an application.
pub(super) fn read_applications(node: Node<'_>, notes: &mut Notes) -> Vec<ServerUrl> {
    read_servers(node, notes, upstream::application)
}
