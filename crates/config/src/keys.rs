//! The keys of configuration files: their names, meanings and values.
//!
//! The parser, the printed configuration and `docs/configuration.md` are made of these tables. Each table has a
//! file of the same name: `keys/log.rs` has the keys of `log`. The keys that a site and its routes share are in
//! `keys/shared.rs`. A key of a site or a route has an entry in such a file and a member in
//! [`draft`](super::draft). [`resolve`](super::resolve) carries its value over.

mod acme;
mod cgi;
mod elsewhere;
mod environment;
mod fastcgi;
mod headers;
mod interface;
mod limits;
mod listen;
mod log;
mod patterns;
mod pcap;
mod peers;
mod redirect;
mod request_headers;
mod route;
mod server;
mod servers;
mod shared;
mod site;
mod status;
mod symlinks;
mod text;
mod tls;
mod top;
mod upstream_tls;

use super::draft::Draft;
use super::message::{Notes, Span};
use super::node::{Node, Table};
use super::{Acme, Limits, Peers, Route, Secrets, Server, Site, rule, suggest};
use crate::secrets::HIDDEN;
use crate::value::quoted;
use acme::{ACME, ACME_TITLE, EAB};
use cgi::CGI;
use elsewhere::Word;
use fastcgi::FASTCGI;
use headers::HEADER;
use interface::INTERFACE;
use limits::{LIMITS, limits_text};
use listen::LISTEN;
use log::LOG;
use pcap::PCAP;
use redirect::REDIRECT;
pub(super) use route::ACTIONS;
use route::ROUTE;
use server::SERVER;
pub(super) use shared::readers;
use shared::{SHARED, errors_text, headers_text};
use site::{SITE, is_of_route};
use status::STATUS;
use symlinks::SYMLINKS;
use text::some_list_text;
use tls::{TLS, TLS_CLIENT};
use top::TOP;
use upstream_tls::UPSTREAM_TLS;

/// A key that is read into an `R`, and written from a `W`.
pub(super) struct Key<R: 'static, W: 'static = R> {
    pub(super) name: &'static str,
    /// The kind of its values.
    pub(super) kind: &'static str,
    /// The default: a value of TOML in backticks, or words.
    pub(super) default: &'static str,
    /// A value as an example.
    pub(super) example: &'static str,
    pub(super) doc: &'static str,
    read: fn(&mut R, Node<'_>, &mut Notes),
    /// Returns the value, unless nothing need be said.
    write: fn(&W) -> Option<String>,
}

impl<R, W> Key<R, W> {
    const fn row(&self) -> Row {
        let &Self { name, kind, default, example, doc, .. } = self;
        Row { name, kind, default, example, doc }
    }

    /// Reads a value, and notes whether it has a secret.
    fn read(&self, to: &mut R, node: Node<'_>, notes: &mut Notes) {
        if node.has_secrets() && node.is_secret() {
            notes.secrets.add_key(self.name);
        }
        let errors = notes.count_errors();
        (self.read)(to, node, notes);
        // The lines of nginx end so.
        let is_line = node.as_text().is_some_and(|text| text.len() > 1 && text.ends_with(';'));
        if is_line && notes.count_errors() == errors && !FREE_TEXTS.contains(&self.name) {
            let text = "the `;` at the end is a part of the value: lines of TOML have none";
            notes.warning(node.place, text);
        }
    }
}

/// Keys whose values are any texts.
const FREE_TEXTS: [&str; 2] = ["format", "text"];

/// The facts about a key that its documentation has.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) kind: &'static str,
    pub(super) default: &'static str,
    pub(super) example: &'static str,
    pub(super) doc: &'static str,
}

/// A table of keys, for its documentation.
#[derive(Debug)]
pub(super) struct Section {
    /// Its name in files, such as `[server]`.
    pub(super) title: &'static str,
    pub(super) doc: &'static str,
    pub(super) rows: Vec<Row>,
}

const TOP_TITLE: &str = "the top of the file";
const SERVER_TITLE: &str = "[server]";
const SITE_TITLE: &str = "[[site]]";
const ROUTE_TITLE: &str = "[[site.route]]";
const SHARED_TITLE: &str = "[[site]] and [[site.route]]";

pub(super) const BYTES: &str = "bytes: a number, or a string with k, m or g";
pub(super) const SECONDS: &str = "seconds: a number, or a string";
const FLAG: &str = "true or false";
pub(super) const ACCOUNT: &str = "string: `USER` or `USER:GROUP`";
pub(super) const PREFIXES: &str = "list of addresses and ranges";

/// Reads keys of `[server]`.
pub(super) fn read_server(draft: &mut Draft, table: Table<'_>, notes: &mut Notes) {
    read_keys(draft, SERVER, SERVER_TITLE, table, notes);
}

/// Reads a file.
pub(super) fn read_file(draft: &mut Draft, table: Table<'_>, notes: &mut Notes) {
    for (name, place, node) in table.entries() {
        if let Some(key) = find(TOP, name) {
            key.read(draft, node, notes);
        } else {
            let meant = unknown(name, TOP_TITLE, names(TOP), place, notes);
            draft.has_wrong_route |= is_of_route(meant.unwrap_or(name));
        }
    }
}

/// Reads the keys of a table. Returns true if all are known.
fn read_keys<R, W>(
    to: &mut R,
    keys: &'static [Key<R, W>],
    title: &str,
    table: Table<'_>,
    notes: &mut Notes,
) -> bool {
    let mut is_known = true;
    for (name, place, node) in table.entries() {
        match find(keys, name) {
            Some(key) => key.read(to, node, notes),
            None => {
                unknown(name, title, names(keys), place, notes);
                is_known = false;
            }
        }
    }
    is_known
}

/// As [`read_keys`], for a table that needs one of the keys `needed`. If a key is unknown, it may be the one that is
/// missing, and is the only error.
fn read_keys_with<R, W>(
    to: &mut R,
    keys: &'static [Key<R, W>],
    title: &str,
    needed: &[&str],
    table: Table<'_>,
    notes: &mut Notes,
) {
    let is_known = read_keys(to, keys, title, table, notes);
    if is_known && !needed.iter().any(|name| table.has(name)) {
        let needed: Vec<_> = needed.iter().map(|name| format!("`{name}`")).collect();
        let text = format!("`{title}` needs the key {}", needed.join(" or "));
        notes.error(table.place, text);
    }
}

fn find<R, W>(keys: &'static [Key<R, W>], name: &str) -> Option<&'static Key<R, W>> {
    keys.iter().find(|key| key.name == name)
}

fn names<R, W>(keys: &'static [Key<R, W>]) -> impl Iterator<Item = &'static str> {
    keys.iter().map(|key| key.name)
}

/// Reports a key that a table does not have. Returns the key that was probably meant.
fn unknown(
    name: &str,
    title: &str,
    names: impl Iterator<Item = &'static str>,
    place: Span,
    notes: &mut Notes,
) -> Option<&'static str> {
    let names: Vec<_> = names.collect();
    let home = |name: &str| {
        sections().into_iter().find(|section| section.rows.iter().any(|row| row.name == name))
    };
    // A key of one of the large tables is a key in the wrong place, even if a key of this table is similar.
    let large = [TOP_TITLE, SERVER_TITLE, SITE_TITLE, ROUTE_TITLE, SHARED_TITLE];
    let misplaced = home(name).filter(|home| large.contains(&home.title));
    // Such as `timeout-connect` for `timeout`.
    let is_longer = |key: &&&str| key.strip_prefix(name).is_some_and(|rest| rest.starts_with('-'));
    let longer: Vec<_> = names.iter().filter(is_longer).map(|key| format!("`{key}`")).collect();
    let word = elsewhere::word(title, name);
    let near = suggest::nearest(name, names.iter().copied());
    let advice = match (&word, &misplaced, near) {
        (Some(Word::Keys(keys)), ..) => {
            let listed = |keys: &[&str]| {
                let all: Vec<_> = keys.iter().map(|key| format!("`{key}`")).collect();
                all.join(" or ")
            };
            let here: Vec<_> = keys.iter().copied().filter(|key| names.contains(key)).collect();
            match keys.first().filter(|_| here.is_empty()) {
                None => format!("use {}", listed(&here)),
                Some(key) => {
                    let title = home(key).map_or(ROUTE_TITLE, |home| home.title);
                    format!("use {} in {title}", listed(keys))
                }
            }
        }
        (Some(Word::Missing(sentence)), ..) => (*sentence).to_owned(),
        (None, Some(home), _) => format!("it belongs to {}", home.title),
        (None, None, Some(near)) => format!("did you mean `{near}`?"),
        (None, None, None) if !longer.is_empty() => {
            let home = home(name).map(|home| format!("; `{name}` belongs to {}", home.title));
            format!("use {}{}", longer.join(" or "), home.unwrap_or_default())
        }
        (None, None, None) => match home(name) {
            Some(home) => format!("it belongs to {}", home.title),
            None => format!("{title} has {}", names.join(", ")),
        },
    };
    notes.error(place, format!("unknown key `{name}`; {advice}"));
    match word {
        Some(Word::Keys(keys)) => keys.first().copied(),
        Some(Word::Missing(_)) => None,
        None => near.filter(|_| misplaced.is_none()),
    }
}

/// Reads a value, or the word that there is none.
fn unless_none<T>(
    node: Node<'_>,
    notes: &mut Notes,
    read: impl FnOnce(Node<'_>, &mut Notes) -> Option<T>,
) -> Option<Option<T>> {
    match node.as_text() {
        Some("none") => Some(None),
        Some(text) if rule::is_refusal(text) => {
            notes.error(node.place, "without a value it is \"none\"");
            None
        }
        None if node.is_flag() => {
            node.expected("a value, or \"none\"", notes);
            None
        }
        _ => read(node, notes).map(Some),
    }
}

fn set<T>(to: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *to = value;
    }
}

/// Writes the lines of `[server]`, without the secrets that are given.
pub(super) fn write_server(server: &Server, secrets: &Secrets) -> String {
    lines(SERVER, server, secrets)
}

/// Writes the lines of `[acme]`.
pub(super) fn write_acme(acme: &Acme, secrets: &Secrets) -> String {
    lines(ACME, acme, secrets)
}

/// Writes the lines of a site without its routes, but with what these have in common.
pub(super) fn write_site(site: &Site, secrets: &Secrets) -> String {
    let errors = errors_text(&site.errors).map(|text| line("errors", &text, secrets));
    let headers = headers_text(&site.headers).map(|text| line("headers", &text, secrets));
    let allow = some_list_text(&site.access.allow).map(|text| line("allow", &text, secrets));
    let deny = some_list_text(&site.access.deny).map(|text| line("deny", &text, secrets));
    let limits = Limits { has_own_requests: site.limits.requests.is_some(), ..site.limits };
    let limits =
        (site.limits != Limits::default()).then(|| line("limits", &limits_text(&limits), secrets));
    let timing = line("server-timing", &site.server_timing.to_string(), secrets);
    let shared = [allow, deny, limits, headers, errors, Some(timing)].into_iter().flatten();
    lines(SITE, site, secrets) + &shared.collect::<String>()
}

/// Writes the lines of a route of a site.
pub(super) fn write_route(site: &Site, route: &Route, secrets: &Secrets) -> String {
    let mut route = route.clone();
    // It says itself that it does not have that of its site.
    route.limits.has_own_requests |=
        route.limits.requests.is_none() && site.limits.requests.is_some();
    // Those of its site are added again when the text is read.
    if let Some(own) = route.headers.strip_prefix(&site.headers[..]) {
        route.headers = own.to_vec();
    }
    // Values that lines of a route leave out are those of the site, unless the route says that it has none.
    let (own, of_site) = (&route.access, &site.access);
    let none = |name, own: &[Peers], of_site: &[Peers]| {
        (own.is_empty() && !of_site.is_empty()).then(|| line(name, "[]", secrets))
    };
    let allow = none("allow", &own.allow, &of_site.allow);
    let deny = none("deny", &own.deny, &of_site.deny);
    let limits = (has_no_own(&route.limits) && !has_no_own(&site.limits))
        .then(|| line("limits", &limits_text(&route.limits), secrets));
    let without = [allow, deny, limits].into_iter().flatten().collect::<String>();
    lines(ROUTE, &route, secrets) + &lines(SHARED, &route, secrets) + &without
}

/// Returns true if a route has no limits that its lines name.
fn has_no_own(limits: &Limits) -> bool {
    let Limits { connections, bytes_per_second, has_own_requests, requests: _ } = limits;
    connections.is_none() && bytes_per_second.is_none() && !has_own_requests
}

fn lines<R, W>(keys: &'static [Key<R, W>], from: &W, secrets: &Secrets) -> String {
    let line = |key: &Key<R, W>| Some(line(key.name, &(key.write)(from)?, secrets));
    keys.iter().filter_map(line).collect()
}

/// The line of a key. A value with a secret is not shown, in whatever form the secret is in it.
fn line(name: &str, value: &str, secrets: &Secrets) -> String {
    if secrets.has_key(name) {
        return format!("{name} = {}\n", quoted(HIDDEN));
    }
    format!("{name} = {}\n", secrets.conceal(value))
}

fn inline_text<R, W>(keys: &'static [Key<R, W>], from: &W) -> String {
    let entry = |key: &Key<R, W>| Some(format!("{} = {}", key.name, (key.write)(from)?));
    let all: Vec<_> = keys.iter().filter_map(entry).collect();
    format!("{{ {} }}", all.join(", "))
}

/// The keys of `[server]`.
pub(super) fn server_rows() -> impl Iterator<Item = Row> {
    SERVER.iter().map(Key::row)
}

/// All tables, in the order of the documentation.
pub(super) fn sections() -> Vec<Section> {
    fn rows<R, W>(keys: &'static [Key<R, W>]) -> Vec<Row> {
        keys.iter().map(Key::row).collect()
    }
    let section = |title, doc, rows| Section { title, doc, rows };
    vec![
        section(
            TOP_TITLE,
            "Keys outside all tables. They stand before the first table.",
            rows(TOP),
        ),
        section(
            SERVER_TITLE,
            "The settings of the process. Flags of `samum serve` other than `--config` override them.",
            rows(SERVER),
        ),
        section(SITE_TITLE, "A site: the routes for the requests for some hosts.", rows(SITE)),
        section(
            ROUTE_TITLE,
            "A route: the action for the requests for some paths of a site. A route has exactly one action.",
            rows(ROUTE),
        ),
        section(
            SHARED_TITLE,
            "A route inherits these keys from its site. A key of the route replaces the key of the site, but \
             `limits` and `errors` are merged, and `headers` are added to the `headers` of the site. `samum check` \
             warns of a key that the action of its route does not use.",
            rows(SHARED),
        ),
        section("listen", "An address, as an element of `listen`.", rows(LISTEN)),
        section("tls", "The table `tls` of a site.", rows(TLS)),
        section("client", "The table `client` of `tls`.", rows(TLS_CLIENT)),
        section("upstream-tls", "The table `upstream-tls`.", rows(UPSTREAM_TLS)),
        section(
            ACME_TITLE,
            "Certificates by ACME, for sites with `tls = \"acme\"`. docs/certificates.md shows the way to the first one.",
            rows(ACME),
        ),
        section("eab", "The table `eab` of `[acme]`.", rows(EAB)),
        section("interface", "An interface, as an element of `interface`.", rows(INTERFACE)),
        section("pcap", "The table `pcap`.", rows(PCAP)),
        section("log", "The table `log`.", rows(LOG)),
        section("limits", "The table `limits`.", rows(LIMITS)),
        section("headers", "An element of `headers`.", rows(HEADER)),
        section("symlinks", "The table `symlinks`.", rows(SYMLINKS)),
        section("redirect", "The table `redirect`.", rows(REDIRECT)),
        section("status", "The table `status`.", rows(STATUS)),
        section("cgi", "The table `cgi`.", rows(CGI)),
        section("fastcgi", "The table `fastcgi`.", rows(FASTCGI)),
    ]
}
