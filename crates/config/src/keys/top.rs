//! The keys outside all tables.

use super::acme::{ACME, ACME_TITLE};
use super::server::SERVER;
use super::site::read_site;
use super::{Key, SERVER_TITLE, read_keys};
use crate::draft::{Draft, SiteDraft};
use crate::message::Notes;
use crate::node::Node;

/// The keys outside all tables.
pub(super) const TOP: &[Key<Draft, ()>] = &[
    Key {
        name: "include",
        kind: "path, or list of paths",
        default: "no files",
        example: r#""conf.d/*.toml""#,
        doc: "Further files with sites. The last part of a path may have `*` and `?`; matching files are read in the \
              order of their names. Their sites come after the sites of this file.",
        read: |draft, node, notes| {
            let read = |node: Node<'_>, notes: &mut Notes| {
                node.text(|text| Ok(text.to_owned()), notes).map(|text| (text, node.place))
            };
            let paths = match node.as_text() {
                Some(_) => read(node, notes).map(|path| vec![path]),
                None => node.list(notes, read),
            };
            draft.includes.extend(paths.unwrap_or_default());
        },
        write: |()| None,
    },
    Key {
        name: "server",
        kind: "table",
        default: "the defaults of its keys",
        example: "{ threads = 4 }",
        doc: "The settings of the process, in one of the files.",
        read: |draft, node, notes| {
            let Some(table) = node.table(notes) else { return };
            match draft.server_place.replace(node.place) {
                None => {
                    read_keys(draft, SERVER, SERVER_TITLE, table, notes);
                }
                Some(other) => notes.error_beside(node.place, "another file has `[server]`", other),
            }
        },
        write: |()| None,
    },
    Key {
        name: "acme",
        kind: "table",
        default: "none",
        example: "{ agree-terms = true }",
        doc: "The way to certificates by ACME, in one of the files.",
        read: |draft, node, notes| {
            let Some(table) = node.table(notes) else { return };
            match draft.acme.place.replace(node.place) {
                None => {
                    read_keys(&mut draft.acme, ACME, ACME_TITLE, table, notes);
                }
                Some(other) => notes.error_beside(node.place, "another file has `[acme]`", other),
            }
        },
        write: |()| None,
    },
    Key {
        name: "site",
        kind: "tables",
        default: "none; at least one is needed",
        example: r#"[{ route = [{ files = "/srv/www" }] }]"#,
        doc: "The sites.",
        read: |draft, node, notes| {
            for table in node.tables("site", notes) {
                let mut site = SiteDraft::new(table.place);
                read_site(&mut site, table, notes);
                draft.sites.push(site);
            }
        },
        write: |()| None,
    },
];
