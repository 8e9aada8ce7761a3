//! The keys of `[[site]]` that its routes do not have.

use super::listen::{listen_text, read_listen};
use super::log::{log_text, read_log_key};
use super::route::{ROUTE, read_route};
use super::shared::SHARED;
use super::text::{days_text, list_text};
use super::tls::{read_tls, tls_text};
use super::{FLAG, Key, SITE_TITLE, find, names, set, unknown, unless_none};
use crate::draft::{RouteDraft, SiteDraft};
use crate::message::Notes;
use crate::node::{Node, Table};
use crate::value::{self, quoted};
use crate::{Https, Site};

/// The keys of `[[site]]` that its routes do not have.
pub(super) const SITE: &[Key<SiteDraft, Site>] = &[
    Key {
        name: "name",
        kind: "string",
        default: "the first host, or `default`",
        example: r#""intranet""#,
        doc: "The name of the site in metrics and messages.",
        read: |site, node, notes| {
            site.name = node.text(value::name, notes);
        },
        write: |site| Some(quoted(&site.name)),
    },
    Key {
        name: "listen",
        kind: "list of addresses",
        default: "`[\"127.0.0.1:8080\"]`",
        example: r#"["0.0.0.0:80", "[::]:80", { unix = "/run/samum/http.sock", mode = "660" }]"#,
        doc: "The addresses to listen on: `ADDRESS:PORT`, with an IPv6 address in brackets or `localhost` for 127.0.0.1, `:PORT` for all \
              IPv4 addresses, or a Unix socket. `systemd:NAME` stands for the only socket of that name (`FileDescriptorName=`) which a service \
              manager has passed. Sites may share an address.",
        read: |site, node, notes| {
            let read =
                |node: Node<'_>, notes: &mut Notes| Some((read_listen(node, notes)?, node.place));
            site.listen = node.list(notes, read).unwrap_or_default();
            if node.is_empty_list() {
                notes.error(node.place, "expected at least one address");
            }
        },
        write: |site| {
            let all: Vec<_> = site.listen.iter().map(listen_text).collect();
            Some(format!("[{}]", all.join(", ")))
        },
    },
    Key {
        name: "hosts",
        kind: "list of hosts",
        default: "`[]`",
        example: r#"["example.org", "*.example.org"]"#,
        doc: "The hosts of the site: names, `[IPv6]` addresses, or `*.` and a name for all names below that name. A \
              request goes to the site with its host, else to the site with the longest wildcard, else to the \
              default site of the address.",
        read: |site, node, notes| {
            let read = |node: Node<'_>, notes: &mut Notes| {
                node.text(value::host, notes).map(|host| (host, node.place))
            };
            site.hosts = node.list(notes, read).unwrap_or_default();
        },
        write: |site| (!site.hosts.is_empty()).then(|| list_text(&site.hosts)),
    },
    Key {
        name: "default",
        kind: FLAG,
        default: "`false`",
        example: "true",
        doc: "The site gets the requests of its addresses for hosts that no site has. If no site of an address has \
              this key, the first site is the default.",
        read: |site, node, notes| {
            if let Some(flag) = node.flag(notes) {
                site.default = flag.then_some(node.place);
            }
        },
        write: |site| site.is_default.then(|| "true".to_owned()),
    },
    Key {
        name: "tls",
        kind: "table, `acme`, or `self-signed`",
        default: "none",
        example: r#"{ certificate = "/etc/ssl/example.org.pem", key = "/etc/ssl/example.org.key" }"#,
        doc: "The certificates of the site, for its addresses with `tls = true`. A client that names a host of no \
              site gets a certificate of the default site of the address. A client of an IP address names no host in \
              its handshake: then the address to which it has connected counts as the host. Sites that share an \
              address may have different `profile` and `client`. A request for another site than the site of its \
              handshake is answered 421 if the two sites differ in certificates, `profile` or `client`. Programs and \
              applications get `SSL_PROTOCOL`, `SSL_CIPHER` and `SSL_SERVER_NAME` of the handshake. `self-signed` is a \
              certificate that the server makes in memory, for tests: browsers warn of it. Files are read again when \
              they change. `acme` is a certificate for all `hosts` that the server gets and renews by itself (`[acme]`); \
              until the first one has come, a self-signed one is shown.",
        read: read_tls,
        write: |site| site.tls.as_ref().map(tls_text),
    },
    Key {
        name: "https",
        kind: "`allow` or `redirect`",
        default: "`\"allow\"`",
        example: r#""redirect""#,
        doc: "The treatment of requests without TLS: they are answered, or redirected with 308 to the same URL with \
              `https`, before their routes are asked. The URL has the host of the request if this is one of `hosts`, \
              else the first of `hosts` that is no wildcard; if all are wildcards, the answer is 421. The URL has \
              the port of the first address with `tls = true`, unless the port is 443. If a proxy of \
              `trusted-proxies` reports the scheme, that scheme counts, and the URL has no port. A proxy that speaks \
              TLS has to report the scheme: otherwise its clients are redirected again and again. Files in \
              `/.well-known/acme-challenge/` are sent without TLS, too, for other programs that get certificates.",
        read: |site, node, notes| {
            site.https_place = Some(node.place);
            set(&mut site.https, node.choice::<Https>(notes));
        },
        write: |site| Some(quoted(&value::word::<Https, _>(&site.https))),
    },
    Key {
        name: "hsts",
        kind: "seconds: a number, or a string with s or d (days), or `none`",
        default: "`\"none\"`",
        example: r#""180d""#,
        doc: "Responses over TLS have the field `Strict-Transport-Security` with this time, 1 second to 3,650 days, \
              whatever their status. A browser then asks for the host by TLS only, until the time is over. If a \
              proxy of `trusted-proxies` reports the scheme, that scheme counts. A response that has the field by \
              `headers` or from an upstream keeps its own field. The value `max-age=0`, which `headers` can set, \
              ends the time at once.",
        read: |site, node, notes| {
            site.hsts_place = Some(node.place);
            let read = |node: Node<'_>, notes: &mut Notes| node.quantity(value::days, notes);
            set(&mut site.hsts, unless_none(node, notes, read));
        },
        write: |site| Some(site.hsts.map_or_else(|| quoted("none"), days_text)),
    },
    Key {
        name: "log",
        kind: "path, `-` for standard output, `none`, or table",
        default: "`\"none\"`",
        example: r#"{ file = "/var/log/samum/example.log", format = "json" }"#,
        doc: "The access log of all routes of the site.",
        read: |site, node, notes| {
            site.log_place = node.place;
            read_log_key(&mut site.log, node, notes);
        },
        write: |site| Some(log_text(&site.log)),
    },
];

/// Returns true if a key that is not in its place is that of routes, or belongs to a route.
pub(super) fn is_of_route(key: &str) -> bool {
    ["route", "routes"].contains(&key) || find(ROUTE, key).is_some()
}

pub(super) fn read_site(site: &mut SiteDraft, table: Table<'_>, notes: &mut Notes) {
    for (name, place, node) in table.entries().filter(|(name, ..)| *name != "route") {
        if let Some(key) = find(SITE, name) {
            key.read(site, node, notes);
        } else if let Some(key) = find(SHARED, name) {
            key.read(&mut site.shared, node, notes);
        } else {
            let names = names(SITE).chain(names(SHARED)).chain(["route"]);
            let meant = unknown(name, SITE_TITLE, names, place, notes);
            site.has_wrong_route |= meant.is_some_and(is_of_route);
        }
    }
    if !table.has("listen") {
        site.listen.push((value::default_address().into(), site.place));
    }
    // The routes begin with the values of their site.
    let Some((_, _, node)) = table.entries().find(|(name, ..)| *name == "route") else { return };
    let before = notes.error_count();
    let tables = node.tables("site.route", notes);
    site.has_wrong_route |= notes.error_count() > before;
    for table in tables {
        let mut route = RouteDraft::new(table.place, site.shared.clone());
        read_route(&mut route, table, notes);
        site.routes.push(route);
    }
}
