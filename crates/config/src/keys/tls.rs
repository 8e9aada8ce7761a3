//! The keys of the table `tls` of a site, and of the table `client` in it.

use std::path::{Path, PathBuf};

use super::text::path_text;
use super::{FLAG, Key, inline_text, read_keys_with, set};
use crate::draft::{SiteDraft, Thing, TlsDraft};
use crate::message::Notes;
use crate::node::Node;
use crate::value::{self, quoted};
use crate::{Tls, TlsClients, TlsFiles, TlsProfile};

/// The keys of `tls`.
pub(super) const TLS: &[Key<TlsDraft, Tls>] = &[
    Key {
        name: "certificate",
        kind: "path, list of paths, `acme`, or `self-signed`",
        default: "none; it is needed",
        example: r#""/etc/ssl/example.org.pem""#,
        doc: "The file of the certificate, in the format PEM, with the other certificates of its chain after it. A \
              list has several files, for different hosts or with different kinds of keys (ECDSA and RSA). \
              `acme` is a certificate for the `hosts` of the site that the server gets by itself (`[acme]`). `self-signed` is a \
              certificate that the server makes in memory.",
        read: |draft, node, notes| match node.as_text() {
            Some(text @ (value::SELF_SIGNED | value::ACME)) => {
                draft.is_acme = text == value::ACME;
                draft.certificates = Some(Vec::new());
            }
            _ => {
                draft.certificates = read_files(draft, node, notes);
                if let Some(twice) = draft.certificates.as_deref().and_then(value::repeated) {
                    notes.error(node.place, format!("{} is listed twice", twice.display()));
                }
            }
        },
        write: |tls| match &tls.pairs[..] {
            _ if tls.is_acme => Some(quoted(value::ACME)),
            [] => Some(quoted(value::SELF_SIGNED)),
            pairs => Some(files_text(pairs.iter().map(|files| &*files.certificate))),
        },
    },
    Key {
        name: "key",
        kind: "path, or list of paths",
        default: "the file of the certificate",
        example: r#""/etc/ssl/example.org.key""#,
        doc: "The file of the private key, in the format PEM (PKCS#8, PKCS#1 or SEC1) and not encrypted. For a list of \
              certificates it is a list of the same length, in the same order.",
        read: |draft, node, notes| {
            draft.keys = read_files(draft, node, notes).map(|keys| (keys, node.place));
        },
        write: |tls| {
            let keys =
                tls.pairs.iter().map(|files| files.key.as_ref().unwrap_or(&files.certificate));
            let is_said = !tls.is_acme && tls.pairs.iter().any(|files| files.key.is_some());
            is_said.then(|| files_text(keys.map(PathBuf::as_path)))
        },
    },
    Key {
        name: "profile",
        kind: "`modern` or `intermediate`",
        default: "`\"intermediate\"`",
        example: r#""modern""#,
        doc: "The versions of TLS that clients may use: 1.3 only (`modern`), or 1.3 and 1.2 (`intermediate`). The \
              ciphers of 1.2 use AEAD and ECDHE; there is no list of ciphers.",
        read: |draft, node, notes| {
            set(&mut draft.profile, node.choice::<TlsProfile>(notes));
        },
        write: |tls| Some(quoted(&value::word::<TlsProfile, _>(&tls.profile))),
    },
    Key {
        name: "client",
        kind: "table",
        default: "none",
        example: r#"{ ca = "/etc/ssl/staff-ca.pem" }"#,
        doc: "Clients are asked for certificates. Programs and applications get the subject of a certificate as \
              `SSL_CLIENT_S_DN`, with `SSL_CLIENT_VERIFY` (`SUCCESS`, or `NONE`). Upstreams get the subject by \
              `$tls-client` in `request-headers`.",
        read: |draft, node, notes| {
            let Some(table) = node.table(notes) else { return };
            draft.client = Some(TlsClients::new(PathBuf::new()));
            read_keys_with(draft, TLS_CLIENT, "client", &["ca"], table, notes);
        },
        write: |tls| tls.client.as_ref().map(|client| inline_text(TLS_CLIENT, client)),
    },
];

/// The keys of `client`.
pub(super) const TLS_CLIENT: &[Key<TlsDraft, TlsClients>] = &[
    Key {
        name: "ca",
        kind: "path",
        default: "none; it is needed",
        example: r#""/etc/ssl/staff-ca.pem""#,
        doc: "The file of the authorities whose certificates clients may have, in the format PEM.",
        read: |draft, node, notes| {
            let ca = read_file(draft, node, notes);
            if let Some(client) = &mut draft.client {
                set(&mut client.ca, ca);
            }
        },
        write: |client| Some(path_text(&client.ca)),
    },
    Key {
        name: "require",
        kind: FLAG,
        default: "`true`",
        example: "false",
        doc: "A client without a certificate is refused. With `false` such a client is served, too. A client with a \
              certificate of another authority is refused anyway.",
        read: |draft, node, notes| {
            if let Some(client) = &mut draft.client {
                set(&mut client.require, node.flag(notes));
            }
        },
        write: |client| Some(client.require.to_string()),
    },
    Key {
        name: "crl",
        kind: "path",
        default: "none",
        example: r#""/etc/ssl/staff-ca.crl""#,
        doc: "The file of the revocation lists of these authorities, in the format PEM. A client whose certificate is listed \
              there is refused.",
        read: |draft, node, notes| {
            let crl = read_file(draft, node, notes);
            if let Some(client) = &mut draft.client {
                client.crl = crl;
            }
        },
        write: |client| client.crl.as_deref().map(path_text),
    },
];

/// Reads the TLS of a site: a table, or the word for a certificate without files of the operator.
pub(super) fn read_tls(site: &mut SiteDraft, node: Node<'_>, notes: &mut Notes) {
    site.tls_place = Some(node.place);
    let mut draft = TlsDraft::default();
    if node.is_table() {
        let Some(table) = node.table(notes) else { return };
        read_keys_with(&mut draft, TLS, "tls", &["certificate"], table, notes);
    } else {
        let text = node.text_or(TLS_VALUE, word, notes);
        draft.is_acme = text == Some(value::ACME);
        draft.certificates = text.map(|_| Vec::new());
    }
    site.things.append(&mut draft.places);
    site.tls = tls_of(draft, notes);
}

/// The text of the TLS of a site: the word, if it says all.
pub(super) fn tls_text(tls: &Tls) -> String {
    let without_files = Tls { pairs: Vec::new(), is_acme: false, ..tls.clone() };
    match tls {
        _ if tls.is_acme && without_files == Tls::default() => quoted(value::ACME),
        _ if *tls == Tls::default() => quoted(value::SELF_SIGNED),
        _ => inline_text(TLS, tls),
    }
}

/// The values of `tls`.
const TLS_VALUE: &str =
    "`acme`, `self-signed`, or a table: `{ certificate = \"FILE\", key = \"FILE\" }`";

/// Reads the word for a certificate whose files are not named.
fn word(text: &str) -> Result<&'static str, String> {
    let words = [value::ACME, value::SELF_SIGNED];
    let found = words.into_iter().find(|word| *word == text);
    found.ok_or_else(|| format!("expected {TLS_VALUE}"))
}

/// Puts each certificate together with its key; `None` if the certificates were wrong.
fn tls_of(draft: TlsDraft, notes: &mut Notes) -> Option<Tls> {
    let TlsDraft { certificates, keys, profile, client, is_acme, .. } = draft;
    let certificates = certificates?;
    let mut keys = match keys {
        Some((_, place)) if certificates.is_empty() => {
            let kind = if is_acme { "a certificate by ACME" } else { "a self-signed certificate" };
            notes.error(place, format!("{kind} has a key of its own: leave `key` out"));
            return None;
        }
        Some((keys, place)) if keys.len() != certificates.len() => {
            let (expected, found) = (certificates.len(), keys.len());
            let text = format!("`certificate` has {expected} files and `key` has {found}: list one key for each certificate");
            notes.error(place, text);
            return None;
        }
        Some((keys, _)) => keys,
        None => Vec::new(),
    }
    .into_iter();
    let pair = |certificate| TlsFiles::new(certificate, keys.next());
    let pairs = certificates.into_iter().map(pair).collect();
    Some(Tls { pairs, is_acme, profile, client })
}

/// Reads a path, and notes its position.
fn read_file(draft: &mut TlsDraft, node: Node<'_>, notes: &mut Notes) -> Option<PathBuf> {
    let path = node.file(notes)?;
    draft.places.push((Thing::TlsFile(path.clone()), node.place));
    Some(path)
}

/// Reads a path, or a list of paths; `None` if one of them was wrong.
fn read_files(draft: &mut TlsDraft, node: Node<'_>, notes: &mut Notes) -> Option<Vec<PathBuf>> {
    if !node.is_list() {
        return read_file(draft, node, notes).map(|path| vec![path]);
    }
    if node.is_empty_list() {
        notes.error(node.place, "expected at least one path");
        return None;
    }
    let read = |node: Node<'_>, notes: &mut Notes| Some(read_file(draft, node, notes));
    node.list(notes, read)?.into_iter().collect()
}

/// The text of a path, or of a list of paths.
fn files_text<'a>(paths: impl Iterator<Item = &'a Path>) -> String {
    let all: Vec<_> = paths.map(path_text).collect();
    match &all[..] {
        [one] => one.clone(),
        all => format!("[{}]", all.join(", ")),
    }
}
