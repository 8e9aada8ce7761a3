//! The keys of `[[site.route]]` that its site does not have.

use std::path::PathBuf;

use super::cgi::CGI;
use super::fastcgi::FASTCGI;
use super::log::{log_text, read_log_key};
use super::patterns::read_pattern;
use super::redirect::{REDIRECT, read_target};
use super::servers::{read_applications, read_servers};
use super::shared::{SHARED, files};
use super::status::{STATUS, read_code};
use super::text::{list_text, path_text};
use super::{FLAG, Key, ROUTE_TITLE, find, inline_text, names, read_keys_with, set, unknown};
use crate::draft::RouteDraft;
use crate::message::Notes;
use crate::node::Table;
use crate::value::{self, quoted};
use crate::{
    Action, Cgi, Fastcgi, FileRules, Files, FixedStatus, GatewayRules, Log, Redirect, Route,
    Upstream, upstream,
};

/// The keys that are the action of a route.
pub(in super::super) const ACTIONS: [&str; 9] = [
    "files",
    "proxy",
    "fastcgi",
    "redirect",
    "redirects",
    "status",
    "cgi",
    "metrics",
    "status-page",
];

/// The keys of `[[site.route]]` that its site does not have.
pub(super) const ROUTE: &[Key<RouteDraft, Route>] = &[
    Key {
        name: "path",
        kind: "path of a URL",
        default: "`\"/\"`",
        example: r#""/pages/""#,
        doc: "The path, which begins with a slash and is written without `%`. If the path ends with a slash, the \
              route has all paths below it; if not, the route also has the path itself. The route with the longest \
              path wins. A request for a path that lacks only the slash at its end is redirected to the path with \
              the slash, whatever the route of a shorter path would do. The redirect has 301 for `GET` and `HEAD`, \
              and 308 for other methods, which the client repeats with the body. A route whose `path` or `match` is \
              exactly the requested path, and a line of `redirects` with this path, come first. A file of another \
              route with this name is served to `GET`. Methods that `files` does not take are redirected to the path \
              with the slash only if its route takes them (`proxy`, `fastcgi`, `cgi`, `redirect`, `status`).",
        read: |route, node, notes| {
            if let Some(path) = node.text(value::route_path, notes) {
                let mut names = path.split('/').filter_map(|segment| segment.strip_prefix(':'));
                if let Some(name) =
                    names.find(|name| name.starts_with(|first: char| first.is_ascii_alphabetic()))
                {
                    let text = format!(
                        "`:{name}` stands for itself: a path has no parameters, and `match` has `*` for any characters"
                    );
                    notes.warning(node.place, text);
                }
                route.path = (path, node.place);
            }
        },
        write: |route| Some(quoted(&route.path)),
    },
    Key {
        name: "match",
        kind: "pattern",
        default: "all paths",
        example: r#""*.php""#,
        doc: "A pattern for the whole path of a request: `*` stands for any characters, slashes too, `?` for one \
              character, and any other character for itself. There are no alternatives (`{css,js}`, `[ab]`) and no \
              regular expressions; behind a backslash a special character of these stands for itself, as in \
              `'/\\{a\\}'`. Among routes with the same path, routes with a pattern come first, in the order of the \
              file.",
        read: |route, node, notes| {
            route.pattern = read_pattern(node, notes).map(|pattern| (pattern, node.place));
        },
        write: |route| route.pattern.as_ref().map(|pattern| quoted(pattern.as_str())),
    },
    Key {
        name: "log",
        kind: "path, `-` for standard output, `none`, or table",
        default: "the log of the site",
        example: r#"{ file = "/var/log/samum/api.log", status = "5xx" }"#,
        doc: "The access log of the route, instead of the log of the site.",
        read: |route, node, notes| {
            let mut log = Log::default();
            read_log_key(&mut log, node, notes);
            route.log = Some((log, node.place));
        },
        write: |route| route.log.as_ref().map(log_text),
    },
    Key {
        name: "internal",
        kind: FLAG,
        default: "`false`",
        example: "true",
        doc: "Clients that ask for paths of this route get 404, unless another route has exactly the same paths. \
              Other routes can hand requests over to this route, and error pages may be files of this route.",
        read: |route, node, notes| set(&mut route.is_internal, node.flag(notes)),
        write: |route| route.is_internal.then(|| "true".to_owned()),
    },
    Key {
        name: "files",
        kind: "path",
        default: "none",
        example: r#""/srv/www""#,
        doc: "An action: serve the files of this directory. The path of the route is removed from the path of \
              the request.",
        read: |route, node, notes| {
            let rules = FileRules::default();
            let root = node.file(notes).unwrap_or_default();
            route.actions.push((Action::Files(Files { root, rules }), node.place));
        },
        write: |route| files(route).map(|files| path_text(&files.root)),
    },
    Key {
        name: "redirect",
        kind: "path, URL, or table",
        default: "none",
        example: r#"{ to = "/new/$0", status = 301 }"#,
        doc: "An action: send the client to another path or URL. `$1` to `$9` stand for the texts that match the \
              stars of `match`, `$0` for the path after the route's path, and `$$` for a dollar. The query of the \
              request is kept, unless the target has a query.",
        read: |route, node, notes| {
            let mut redirect = Redirect { to: String::new(), status: 308 };
            if node.is_table() {
                let Some(table) = node.table(notes) else { return };
                read_keys_with(&mut redirect, REDIRECT, "redirect", &["to"], table, notes);
            } else {
                set(&mut redirect.to, read_target(node, notes));
            }
            route.actions.push((Action::Redirect(redirect), node.place));
        },
        write: |route| match &route.action {
            Action::Redirect(redirect) => Some(inline_text(REDIRECT, redirect)),
            _ => None,
        },
    },
    Key {
        name: "redirects",
        kind: "path",
        default: "none",
        example: r#""redirects.txt""#,
        doc: "An action: send the client elsewhere if this file lists the path of the request. For other paths the \
              next route is looked for. Each line has a path, a target, and a status: 301, which is the default, \
              302, 303, 307 or 308. A path that ends with `/*` stands for all paths below it, and `:splat` in its \
              target for the rest of the path. A line with exactly the requested path comes first, then the line \
              with the longest path that ends with `/*`. A line that begins with `#` is a comment. A file may have \
              1,000,000 redirects.",
        read: |route, node, notes| {
            let path = node.file(notes).unwrap_or_default();
            route.actions.push((Action::Redirects(path), node.place));
        },
        write: |route| match &route.action {
            Action::Redirects(path) => Some(path_text(path)),
            _ => None,
        },
    },
    Key {
        name: "status",
        kind: "number, or table",
        default: "none",
        example: r#"{ code = 200, text = "ok\n" }"#,
        doc: "An action: answer with this status, from 200 to 599 but not 304, whatever the method. Without a text, \
              a status from 400 on has its page of `errors` or the built-in page, and other statuses have no \
              content. For 301, 302, 303, 307 and 308 use `redirect`.",
        read: |route, node, notes| {
            let mut fixed = FixedStatus { code: 200, text: None };
            if node.is_table() {
                let Some(table) = node.table(notes) else { return };
                read_keys_with(&mut fixed, STATUS, "status", &["code"], table, notes);
            } else {
                set(&mut fixed.code, read_code(node, ", or a table", notes));
            }
            if fixed.text.is_some() && !FixedStatus::has_content(fixed.code) {
                notes.error(node.place, format!("a {} has no content, so no `text`", fixed.code));
            }
            route.actions.push((Action::Status(fixed), node.place));
        },
        write: |route| match &route.action {
            Action::Status(fixed) if fixed.text.is_none() => Some(fixed.code.to_string()),
            Action::Status(fixed) => Some(inline_text(STATUS, fixed)),
            _ => None,
        },
    },
    Key {
        name: "cgi",
        kind: "path, or table",
        default: "none",
        example: r#"{ directory = "/usr/lib/cgi-bin", timeout = 20 }"#,
        doc: "An action: run the programs of this directory (RFC 3875). The path of the route is removed from the \
              path of the request. A body of 1 MiB at most, or in chunks, has come when its program is started: slow \
              uploads occupy no program. A longer body of known length comes while the program runs. A body in \
              chunks waits in memory and in a file (see `buffer`). A program behind a symbolic link out of the \
              directory is answered 403, and no key permits such a link.",
        read: |route, node, notes| {
            let mut cgi = Cgi::new(PathBuf::new());
            if node.is_table() {
                let Some(table) = node.table(notes) else { return };
                read_keys_with(&mut cgi, CGI, "cgi", &["directory"], table, notes);
            } else {
                set(&mut cgi.root, node.file(notes));
            }
            route.actions.push((Action::Cgi(cgi), node.place));
        },
        write: |route| match &route.action {
            Action::Cgi(cgi) => Some(inline_text(CGI, cgi)),
            _ => None,
        },
    },
    Key {
        name: "proxy",
        kind: "server, or list of servers",
        default: "none",
        example: r#"["http://127.0.0.1:9000", "unix:/run/app.sock"]"#,
        doc: "An action: pass requests on to these servers, `http://HOST:PORT` or `unix:PATH`, by HTTP/1.1. The path \
              of a request is kept, unless the URL of the server has a path. This path then replaces the path of the \
              route. Each server may have a path of its own. The path of the route has the spelling of the \
              configuration, and a path with dot segments is sent in its normal form. If a `Location` has the \
              address of the server, or a path below the path of its URL, the client gets the corresponding path \
              below the route's path. A host name stands for its addresses, 16 at most. The name is resolved again \
              every 30 s, and its last addresses are used while that fails. A response with `X-Accel-Redirect: \
              /path` or `X-Sendfile: /directory/file`, whatever its status, is replaced by that file of the site, \
              with the status of the file (200, 206, 304). Fields of clients whose names have other characters than \
              letters, digits and `-`, such as `_`, are not passed on, as with nginx.",
        read: |route, node, notes| {
            let servers = read_servers(node, notes, upstream::server);
            let upstream = Upstream { servers, rules: GatewayRules::default() };
            route.actions.push((Action::Proxy(upstream), node.place));
        },
        write: |route| match &route.action {
            Action::Proxy(upstream) => Some(list_text(&upstream.servers)),
            _ => None,
        },
    },
    Key {
        name: "fastcgi",
        kind: "server, list of servers, or table",
        default: "none",
        example: r#"{ server = "unix:/run/php/php-fpm.sock", keep = true }"#,
        doc: "An action: have scripts run by a FastCGI application, `HOST:PORT` or `unix:PATH`. With `files` in the \
              same route, the scripts are the files of that directory whose names end with `.php`; `index` and \
              `fallback` may be scripts, and the other files are sent. A request for a directory without the slash \
              at its end is redirected to the path with the slash, with 308 if the request would change something \
              (`POST`). The part of a path after the name of a script is the path info. A body of 1 MiB at most, or \
              in chunks, has come when the application gets its request: slow uploads occupy no process. A body in \
              chunks waits in memory and in a file (see `buffer`). Of a longer body of known length the first \
              `buffer` bytes have come, in memory and 16 MiB at most; the rest comes while the process waits. If a \
              worker has collected 16 MiB of such bodies, the application gets the oldest request at once, and \
              further requests as they come.",
        read: |route, node, notes| {
            let mut fastcgi = Fastcgi::new(Vec::new(), GatewayRules::default());
            if node.is_table() {
                let Some(table) = node.table(notes) else { return };
                read_keys_with(&mut fastcgi, FASTCGI, "fastcgi", &["server"], table, notes);
            } else {
                fastcgi.upstream.servers = read_applications(node, notes);
            }
            route.fastcgi = Some((fastcgi, node.place));
        },
        write: |route| match &route.action {
            Action::Fastcgi(fastcgi) => Some(inline_text(FASTCGI, fastcgi)),
            _ => None,
        },
    },
    Key {
        name: "metrics",
        kind: FLAG,
        default: "`false`",
        example: "true",
        doc: "An action: send the counters of the server in the text format of Prometheus.",
        read: |route, node, notes| {
            if node.flag(notes) == Some(true) {
                route.actions.push((Action::Metrics, node.place));
            }
        },
        write: |route| matches!(route.action, Action::Metrics).then(|| "true".to_owned()),
    },
    Key {
        name: "status-page",
        kind: FLAG,
        default: "`false`",
        example: "true",
        doc: "An action: show the state of the server on a page of HTML that stays up to date. With `?json` after its path \
              the same figures are sent as JSON, with `?events` as server-sent events. The route needs `allow`.",
        read: |route, node, notes| {
            if node.flag(notes) == Some(true) {
                route.actions.push((Action::StatusPage, node.place));
            }
        },
        write: |route| matches!(route.action, Action::StatusPage).then(|| "true".to_owned()),
    },
];

pub(super) fn read_route(route: &mut RouteDraft, table: Table<'_>, notes: &mut Notes) {
    for (name, place, node) in table.entries() {
        if let Some(key) = find(ROUTE, name) {
            let before = notes.error_count();
            key.read(route, node, notes);
            let is_wrong = notes.error_count() > before || node.has_failed();
            route.has_wrong_action |= is_wrong && ACTIONS.contains(&name);
        } else if let Some(key) = find(SHARED, name) {
            key.read(&mut route.shared, node, notes);
            route.own.push((key.name, place));
        } else {
            let names = names(ROUTE).chain(names(SHARED));
            let meant = unknown(name, ROUTE_TITLE, names, place, notes);
            route.has_unknown = true;
            route.has_wrong_action |= meant.is_some_and(|key| ACTIONS.contains(&key));
        }
    }
}
