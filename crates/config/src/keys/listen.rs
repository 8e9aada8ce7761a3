//! The keys of a listener in `listen`.

use super::text::path_text;
use super::{Key, inline_text, read_keys_with, set};
use crate::draft::ListenDraft;
use crate::message::Notes;
use crate::node::Node;
use crate::value::{self, quoted};
use crate::{Address, Listen};

/// The keys of a listener in a table.
pub(super) const LISTEN: &[Key<ListenDraft>] = &[
    Key {
        name: "address",
        kind: "address",
        default: "none; it or `unix` is needed",
        example: r#""0.0.0.0:80""#,
        doc: "`ADDRESS:PORT` or `systemd:NAME`, as without a table.",
        read: |draft, node, notes| match node.address(notes) {
            Some(Address::Unix(_)) => {
                notes.error(node.place, "expected ADDRESS:PORT; write `unix`")
            }
            address => draft.address = address,
        },
        write: |draft| match draft.address {
            Some(Address::Ip(ip)) => Some(quoted(&ip.to_string())),
            _ => None,
        },
    },
    Key {
        name: "unix",
        kind: "path",
        default: "none; it or `address` is needed",
        example: r#""/run/samum/http.sock""#,
        doc: "The path of a Unix socket.",
        read: |draft, node, notes| set(&mut draft.socket.path, node.file(notes)),
        write: |draft| draft.address.is_none().then(|| path_text(&draft.socket.path)),
    },
    Key {
        name: "mode",
        kind: "octal digits",
        default: "0777 less the umask",
        example: r#""660""#,
        doc: "The permissions of the socket. Users with write permission can connect.",
        read: |draft, node, notes| draft.socket.mode = node.text(value::mode, notes),
        write: |draft| draft.socket.mode.map(|mode| quoted(&format!("{mode:03o}"))),
    },
    Key {
        name: "owner",
        kind: "`USER`, `USER:GROUP` or `:GROUP`",
        default: "the user of the server",
        example: r#""www-data:www-data""#,
        doc: "The user and the group that will own the socket.",
        read: |draft, node, notes| {
            if let Some(owner) = node.text(value::owner, notes) {
                (draft.socket.user, draft.socket.group) = owner;
            }
        },
        write: |ListenDraft { socket, .. }| {
            let user = socket.user.as_deref().unwrap_or_default();
            match &socket.group {
                Some(group) => Some(quoted(&format!("{user}:{group}"))),
                None => socket.user.as_deref().map(quoted),
            }
        },
    },
    Key {
        name: "proxy-protocol",
        kind: "`true` or `false`",
        default: "`false`",
        example: "true",
        doc: "Trusted proxies send a header of the PROXY protocol, version 1 or 2, in front of each connection. A \
              connection of a trusted proxy without this header is closed, and a connection of another client with \
              this header is closed, too. Sites that share an address must agree.",
        read: |draft, node, notes| set(&mut draft.proxy_protocol, node.flag(notes)),
        write: |draft| draft.proxy_protocol.then(|| "true".to_owned()),
    },
    Key {
        name: "tls",
        kind: "`true` or `false`",
        default: "`false`",
        example: "true",
        doc: "Connections begin with a handshake of TLS; the header of the PROXY protocol comes before the \
              handshake. Each site of the address needs certificates. Sites that share an address must agree.",
        read: |draft, node, notes| set(&mut draft.tls, node.flag(notes)),
        write: |draft| draft.tls.then(|| "true".to_owned()),
    },
    Key {
        name: "http2",
        kind: "`true` or `false`",
        default: "`true`",
        example: "false",
        doc: "Clients may speak HTTP/2. With `tls` a client chooses the protocol in the handshake (ALPN). Without `tls` a \
              client begins with the preface of HTTP/2, as `curl --http2-prior-knowledge` does. Sites that share an \
              address must agree.",
        read: |draft, node, notes| set(&mut draft.http2, node.flag(notes)),
        write: |draft| (!draft.http2).then(|| "false".to_owned()),
    },
];

/// Reads a listener: an address, or a table with more.
pub(super) fn read_listen(node: Node<'_>, notes: &mut Notes) -> Option<Listen> {
    if node.is_table() {
        let mut draft = ListenDraft::default();
        let table = node.table(notes)?;
        read_keys_with(&mut draft, LISTEN, "listen", &["address", "unix"], table, notes);
        let is_ip = table.has("address");
        for key in ["unix", "mode", "owner"].into_iter().filter(|key| is_ip && table.has(key)) {
            notes.error(table.place, format!("`{key}` is for Unix sockets; `address` is none"));
        }
        let ListenDraft { address, socket, proxy_protocol, tls, http2 } = draft;
        let socket = (!socket.path.as_os_str().is_empty()).then_some(Address::Unix(socket));
        let address = if is_ip { address? } else { socket? };
        return Some(Listen { address, proxy_protocol, tls, http2 });
    }
    let address = match node.address(notes)? {
        Address::Unix(mut socket) => {
            socket.path = node
                .join(socket.path.to_str()?)
                .map_err(|why| notes.error(node.place, why))
                .ok()?;
            Address::Unix(socket)
        }
        address => address,
    };
    Some(address.into())
}

/// The text of a listener: its address alone, if that says all.
pub(super) fn listen_text(listen: &Listen) -> String {
    let &Listen { ref address, proxy_protocol, tls, http2 } = listen;
    let mut draft = ListenDraft { proxy_protocol, tls, http2, ..ListenDraft::default() };
    match address {
        Address::Ip(ip) if *listen == Listen::from(address.clone()) => {
            return quoted(&ip.to_string());
        }
        Address::Ip(_) => draft.address = Some(address.clone()),
        Address::Unix(socket) => draft.socket = socket.clone(),
    }
    inline_text(LISTEN, &draft)
}
