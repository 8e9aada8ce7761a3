//! The keys of the table `upstream-tls`.

use std::path::{Path, PathBuf};

use super::text::path_text;
use super::{FLAG, Key, inline_text, read_keys, set};
use crate::draft::{Shared, Thing, UpstreamTlsDraft};
use crate::message::Notes;
use crate::node::Node;
use crate::value::quoted;
use crate::{TlsFiles, UpstreamTls};

/// The keys of `upstream-tls`.
pub(super) const UPSTREAM_TLS: &[Key<UpstreamTlsDraft, UpstreamTls>] = &[
    Key {
        name: "ca",
        kind: "path",
        default: "the authorities of the system",
        example: r#""/etc/ssl/private-ca.pem""#,
        doc: "The file of the authorities that issue the certificates of the servers, in the format PEM. It may have the \
              certificates of servers themselves, such as self-signed ones. By default these are the authorities of the \
              system: the file that the variable `SSL_CERT_FILE` names, or the file of the distribution \
              (`/etc/ssl/certs/ca-certificates.crt`). Files are read at the start and at each reload.",
        read: |draft, node, notes| draft.tls.ca = read_file(draft, node, notes),
        write: |tls| tls.ca.as_deref().map(path_text),
    },
    Key {
        name: "name",
        kind: "name or address",
        default: "the host of the server's URL",
        example: r#""app.internal.example""#,
        doc: "The name that the certificates of the servers must have. A name is sent to the server (SNI), an address is \
              not.",
        read: |draft, node, notes| draft.tls.name = node.text(name, notes),
        write: |tls| tls.name.as_deref().map(quoted),
    },
    Key {
        name: "certificate",
        kind: "path",
        default: "none",
        example: r#""/etc/ssl/gateway.pem""#,
        doc: "The file of the certificate that servers get if they ask for one, in the format PEM, with the other \
              certificates of its chain after it.",
        read: |draft, node, notes| {
            draft.certificate = read_file(draft, node, notes).map(|path| (path, node.place));
        },
        write: |tls| tls.pair.as_ref().map(|pair| path_text(&pair.certificate)),
    },
    Key {
        name: "key",
        kind: "path",
        default: "the file of `certificate`",
        example: r#""/etc/ssl/gateway.key""#,
        doc: "The file of its private key, in the format PEM and not encrypted.",
        read: |draft, node, notes| {
            draft.key = read_file(draft, node, notes).map(|path| (path, node.place));
        },
        write: |tls| tls.pair.as_ref()?.key.as_deref().map(path_text),
    },
    Key {
        name: "verify",
        kind: FLAG,
        default: "`true`",
        example: "false",
        doc: "If false, any certificate is accepted. An attacker between samum and the server can then read and change \
              everything. Each start, each reload and `samum check` warn of it.",
        read: |draft, node, notes| {
            let verifies = node.flag(notes);
            if verifies == Some(false) {
                let text = "`verify = false` accepts any certificate: an attacker between samum and these servers can read \
                            and change everything; `ca` names a file with the certificate to trust";
                notes.warning(node.place, text);
            }
            set(&mut draft.tls.verify, verifies);
        },
        write: |tls| (!tls.verify).then(|| "false".to_owned()),
    },
];

/// Reads the TLS of connections to servers.
pub(super) fn read_upstream_tls(shared: &mut Shared, node: Node<'_>, notes: &mut Notes) {
    let Some(table) = node.table(notes) else { return };
    let mut draft = UpstreamTlsDraft::default();
    read_keys(&mut draft, UPSTREAM_TLS, "upstream-tls", table, notes);
    let UpstreamTlsDraft { mut tls, certificate, key, places } = draft;
    match (certificate, key) {
        (Some((certificate, _)), key) => {
            tls.pair = Some(TlsFiles::new(certificate, key.map(|(key, _)| key)));
        }
        (None, Some((_, place))) => {
            notes.error(place, "a `key` needs the `certificate` that it belongs to");
        }
        (None, None) => {}
    }
    if !tls.verify && (tls.ca.is_some() || tls.name.is_some()) {
        let text = "with `verify = false` no certificate is compared with `ca` and `name`";
        notes.warning(node.place, text);
    }
    shared.upstream_tls_places = places;
    // An empty table says the same as none.
    shared.gateway.tls = (tls != UpstreamTls::default()).then(|| Box::new(tls));
}

/// The text of the TLS of connections to servers.
pub(super) fn upstream_tls_text(tls: &UpstreamTls) -> String {
    inline_text(UPSTREAM_TLS, tls)
}

fn name(text: &str) -> Result<String, String> {
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:".contains(&byte);
    if text.is_empty() || text.len() > 253 || !text.bytes().all(is_name) {
        return Err(format!("{text:?} is no name of a server, and no address"));
    }
    Ok(text.to_ascii_lowercase())
}

/// Reads a path, and notes its position.
fn read_file(draft: &mut UpstreamTlsDraft, node: Node<'_>, notes: &mut Notes) -> Option<PathBuf> {
    let path = node.file(notes)?;
    draft.places.push((Thing::TlsFile(Path::to_owned(&path)), node.place));
    Some(path)
}
