//! The keys of an element of `interface`.

use super::text::some_list_text;
use super::{Key, inline_text, read_keys_with, set};
use crate::Interface;
use crate::message::Notes;
use crate::node::Node;
use crate::value::{self, quoted};

/// The keys of an element of `interface`.
pub(super) const INTERFACE: &[Key<Interface>] = &[
    Key {
        name: "name",
        kind: "string",
        default: "none; it is needed",
        example: r#""eth1""#,
        doc: "The name of the interface.",
        read: |interface, node, notes| {
            set(&mut interface.name, node.text(value::interface, notes));
        },
        write: |interface| Some(quoted(&interface.name)),
    },
    Key {
        name: "addresses",
        kind: "list of addresses with prefix lengths",
        default: "`[]`: those that the kernel has there",
        example: r#"["10.0.0.1/24", "fd00::1/64"]"#,
        doc: "The addresses of the interface that only samum has: samum answers ARP, neighbour discovery and ping \
              for these addresses. Addresses that the kernel has are not listed here.",
        read: |interface, node, notes| {
            let list = node.list(notes, |node, notes| node.text(str::parse, notes));
            set(&mut interface.addresses, list);
        },
        write: |interface| some_list_text(&interface.addresses),
    },
    Key {
        name: "gateways",
        kind: "list of addresses",
        default: "`[]`",
        example: r#"["10.0.0.254"]"#,
        doc: "The routers to other networks, one for each version of IP at most, for addresses that only samum has. \
              Clients of other networks are answered through these routers. Without a router, an answer goes to the \
              station from which its request came. This is wrong if answers have to leave by another way: for \
              example with a load balancer, or with several routers.",
        read: |interface, node, notes| {
            let list = node.list(notes, |node, notes| node.text(value::ip, notes));
            set(&mut interface.gateways, list);
        },
        write: |interface| some_list_text(&interface.gateways),
    },
];

/// Reads an interface: its name, or a table.
pub(super) fn read_interface(node: Node<'_>, notes: &mut Notes) -> Option<Interface> {
    if !node.is_table() {
        let name = node.text(value::interface, notes)?;
        return Some(Interface { name, ..Interface::default() });
    }
    let mut interface = Interface::default();
    let table = node.table(notes)?;
    read_keys_with(&mut interface, INTERFACE, "interface", &["name"], table, notes);
    if table.has("name")
        && let Err(error) = interface.check()
    {
        notes.error(table.place, error);
    }
    Some(interface)
}

pub(super) fn interface_text(interface: &Interface) -> String {
    if interface.addresses.is_empty() && interface.gateways.is_empty() {
        return quoted(&interface.name);
    }
    inline_text(INTERFACE, interface)
}
