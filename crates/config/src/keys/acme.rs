//! The keys of `[acme]`, and of the table `eab` in it.

use std::path::PathBuf;

use super::text::{list_text, path_text, some_list_text};
use super::{FLAG, Key, inline_text, read_keys, set};
use crate::draft::{AcmeDraft, Thing};
use crate::value::{self, quoted};
use crate::{Acme, AcmeChallenge, AcmeEab};

pub(super) const ACME_TITLE: &str = "[acme]";

/// The keys of `[acme]`.
pub(super) const ACME: &[Key<AcmeDraft, Acme>] = &[
    Key {
        name: "directory",
        kind: "URL",
        default: "that of Let's Encrypt",
        example: r#""https://acme-staging-v02.api.letsencrypt.org/directory""#,
        doc: "The directory of the ACME server of the authority, with `https`.",
        read: |draft, node, notes| set(&mut draft.directory, node.text(value::https_url, notes)),
        write: |acme| Some(quoted(&acme.directory)),
    },
    Key {
        name: "contact",
        kind: "list of addresses of electronic mail",
        default: "`[]`",
        example: r#"["admin@example.org"]"#,
        doc: "The addresses that the authority may write to.",
        read: |draft, node, notes| {
            set(&mut draft.contact, node.list(notes, |node, notes| node.text(value::mail, notes)));
        },
        write: |acme| some_list_text(&acme.contact),
    },
    Key {
        name: "storage",
        kind: "path",
        default: "`acme` in `$STATE_DIRECTORY`, else it is needed",
        example: r#""/var/lib/samum/acme""#,
        doc: "The directory for accounts, keys, certificates and challenges. The server makes it (0700) for its `user`; \
              the directory around it must exist. A directory that belongs to another user, that others may write to, or \
              that is a symbolic link, is refused. Several processes may share it: one of them asks the authority, and \
              all of them show the certificates and answer challenges. Back-off and the numbers of orders are kept there, \
              too.",
        read: |draft, node, notes| {
            if let Some(path) = node.file(notes) {
                draft.things.push((Thing::AcmeStorage(path.clone()), node.place));
                draft.storage = Some(path);
            }
        },
        write: |acme| Some(path_text(&acme.storage)),
    },
    Key {
        name: "challenges",
        kind: "list of `http-01` and `tls-alpn-01`",
        default: "`[\"http-01\", \"tls-alpn-01\"]`",
        example: r#"["tls-alpn-01"]"#,
        doc: "The ways to prove to the authority that a host is ours, the best first; after a failure the next one is \
              tried. For `http-01` the authority asks port 80, and a listener without TLS answers below \
              `/.well-known/acme-challenge/`, before `https`, `allow`, `deny` and routes. For `tls-alpn-01` the authority \
              asks port 443. Both answer for challenges only that wait in `storage`.",
        read: |draft, node, notes| {
            let list = node.list(notes, |node, notes| node.choice::<AcmeChallenge>(notes));
            set(&mut draft.challenges, list);
            if node.is_empty_list() {
                notes.error(node.place, "expected at least one challenge");
            }
        },
        write: |acme| {
            let all: Vec<_> = acme.challenges.iter().map(value::word::<AcmeChallenge, _>).collect();
            Some(list_text(&all))
        },
    },
    Key {
        name: "ca",
        kind: "path",
        default: "the authorities that the system trusts",
        example: r#""/etc/ssl/company-ca.pem""#,
        doc: "The file of the authorities that may have issued the certificate of the ACME server itself, in the format PEM.",
        read: |draft, node, notes| {
            if let Some(path) = node.file(notes) {
                draft.things.push((Thing::TlsFile(path.clone()), node.place));
                draft.ca = Some(path);
            }
        },
        write: |acme| acme.ca.as_deref().map(path_text),
    },
    Key {
        name: "agree-terms",
        kind: FLAG,
        default: "`false`; `true` is needed",
        example: "true",
        doc: "You agree to the terms of service of the authority. Without it, the error says where they are.",
        read: |draft, node, notes| {
            draft.things.push((Thing::AcmeTerms, node.place));
            set(&mut draft.agrees, node.flag(notes));
        },
        write: |acme| Some(acme.agrees.to_string()),
    },
    Key {
        name: "eab",
        kind: "table",
        default: "none",
        example: r#"{ id = "kid-1", key-file = "/etc/samum/eab.key" }"#,
        doc: "The key of an account that the authority has made in another way (External Account Binding).",
        read: |draft, node, notes| {
            let Some(table) = node.table(notes) else { return };
            let mut eab = AcmeEab::default();
            read_keys(&mut eab, EAB, "eab", table, notes);
            for name in ["id", "key-file"].into_iter().filter(|name| !table.has(name)) {
                notes.error(table.place, format!("`eab` needs the key `{name}`"));
            }
            draft.things.push((Thing::TlsFile(eab.key_file.clone()), table.place));
            draft.eab = Some(eab);
        },
        write: |acme| acme.eab.as_ref().map(|eab| inline_text(EAB, eab)),
    },
];

/// The keys of `eab`.
pub(super) const EAB: &[Key<AcmeEab>] = &[
    Key {
        name: "id",
        kind: "string",
        default: "none; it is needed",
        example: r#""kid-1""#,
        doc: "The name of the key.",
        read: |eab, node, notes| set(&mut eab.id, node.text(value::name, notes)),
        write: |eab| Some(quoted(&eab.id)),
    },
    Key {
        name: "key-file",
        kind: "path",
        default: "none; it is needed",
        example: r#""/etc/samum/eab.key""#,
        doc: "The file with the key (HMAC) in base64 for URLs, as the authority gives it. It is read when the account is made.",
        read: |eab, node, notes| set(&mut eab.key_file, node.file(notes)),
        write: |eab| Some(path_text(&eab.key_file)),
    },
];

impl Default for AcmeDraft {
    fn default() -> Self {
        Self {
            place: None,
            directory: Acme::LETS_ENCRYPT.to_owned(),
            contact: Vec::new(),
            storage: None::<PathBuf>,
            challenges: vec![AcmeChallenge::Http, AcmeChallenge::TlsAlpn],
            ca: None,
            agrees: false,
            eab: None,
            things: Vec::new(),
        }
    }
}
