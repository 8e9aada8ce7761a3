//! The keys of configuration files: their names, meanings and values.
//!
//! The parser, the printed configuration and `docs/configuration.md` are made of these tables. A key of a
//! site or a route has an entry here and a member in [`draft`](super::draft), and is carried over by
//! [`resolve`](super::resolve).

use core::time::Duration;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use sendfile::Window;

use super::draft::{AddressDraft, Draft, RouteDraft, Shared, SiteDraft, Thing};
use super::message::{Notes, Place};
use super::node::{Node, Table};
use super::value::{self, quoted};
use super::{
    Action, Address, Balance, Capture, Cgi, Congestion, ErrorFormat, Fastcgi, Files, Frames,
    GatewayRules, HashBy, HeaderRule, Interface, Limits, Log, LogFormat, LogTarget, Redirect,
    Route, Server, ServerUrl, Site, Symlinks, Upstream, rule, suggest, upstream,
};

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

const SERVER_TITLE: &str = "[server]";
const SITE_TITLE: &str = "[[site]]";
const ROUTE_TITLE: &str = "[[site.route]]";

const BYTES: &str = "bytes: a number, or a string with k, m or g";
const SECONDS: &str = "seconds: a number, or a string";
const FLAG: &str = "true or false";
const PREFIXES: &str = "list of addresses and ranges";

/// The keys outside all tables.
const TOP: &[Key<Draft, ()>] = &[
    Key {
        name: "include",
        kind: "path, or list of paths",
        default: "no files",
        example: r#""conf.d/*.toml""#,
        doc: "Further files with sites. The last part of a path may have `*` and `?`; such files are read in \
              the order of their names. Their sites come behind those of this file.",
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
                    read_keys(&mut draft.server, SERVER, SERVER_TITLE, table, notes);
                    draft.server_things = server_things(&draft.server, table);
                }
                Some(other) => notes.error_beside(node.place, "another file has `[server]`", other),
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

/// The keys of `[server]`.
const SERVER: &[Key<Server>] = &[
    Key {
        name: "threads",
        kind: "number",
        default: "one per core, if there are descriptors for them",
        example: "4",
        doc: "Worker threads.",
        read: |server, node, notes| {
            let number = node.number(value::THREADS, notes);
            set(&mut server.threads, number.and_then(|number| usize::try_from(number).ok()));
        },
        write: |server| Some(server.threads.to_string()),
    },
    Key {
        name: "driver",
        kind: "`auto`, `uring` or `epoll`",
        default: "`\"auto\"`",
        example: r#""epoll""#,
        doc: "The kernel interface to use; `auto` is io_uring where the kernel has and allows it.",
        read: |server, node, notes| {
            let driver = node.text(value::choice::<value::Driver>, notes);
            set(&mut server.driver, driver.map(Into::into));
        },
        write: |server| Some(quoted(&value::word::<value::Driver, _>(&server.driver))),
    },
    Key {
        name: "interface",
        kind: "list of names and tables",
        default: "`[]`",
        example: r#"["eth1", { name = "eth2", addresses = ["10.0.0.1/24"] }]"#,
        doc: "The network interfaces whose listeners are served by samum's own TCP/IP stack, with a worker of its own \
              for each receive queue. A listener is one of an interface if its address is; one for all addresses \
              is served by the kernel, too. All other traffic of the interface stays with the kernel. It needs the \
              capabilities CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF, which the server drops when it has started; see \
              “Serving on a network interface” below.",
        read: |server, node, notes| {
            set(&mut server.interfaces, node.list(notes, read_interface));
        },
        write: |server| {
            let all: Vec<_> = server.interfaces.iter().map(interface_text).collect();
            (!all.is_empty()).then(|| format!("[{}]", all.join(", ")))
        },
    },
    Key {
        name: "frames",
        kind: "`auto`, `xdp`, `packet` or `tap`",
        default: "`\"auto\"`",
        example: r#""packet""#,
        doc: "The way of frames from and to the interfaces: AF_XDP in both directions (`xdp`), AF_XDP to receive and \
              a packet socket to send large segments (`packet`), or a TAP device (`tap`), which needs `addresses`, saves \
              most where the clients are on the same machine, and costs most in a bridge. `auto` receives by AF_XDP, and sends small and large frames each by the way of these two that a short \
              measurement at the start finds to be cheaper.",
        read: |server, node, notes| {
            set(&mut server.frames, node.text(value::choice::<Frames>, notes));
        },
        write: |server| {
            let word = || quoted(&value::word::<Frames, _>(&server.frames));
            (!server.interfaces.is_empty()).then(word)
        },
    },
    Key {
        name: "congestion",
        kind: "`cubic`, `bbr` or `newreno`",
        default: "`\"cubic\"`",
        example: r#""bbr""#,
        doc: "The congestion control of connections on the interfaces. For CUBIC each loss means that the path is full. \
              BBR measures how fast the path delivers, and sends as fast: it is faster where frames are lost by \
              chance, and it keeps queues short. NewReno is the older standard, for comparisons.",
        read: |server, node, notes| {
            set(&mut server.congestion, node.text(value::choice::<Congestion>, notes));
        },
        write: |server| {
            let word = || quoted(&value::word::<Congestion, _>(&server.congestion));
            (!server.interfaces.is_empty()).then(word)
        },
    },
    Key {
        name: "pcap",
        kind: "path, or table",
        default: "none",
        example: r#"{ file = "/var/tmp/eth1.pcapng", peers = ["10.0.0.2"] }"#,
        doc: "Record the frames of the interfaces in files of the format pcapng, for Wireshark and tcpdump.",
        read: |server, node, notes| {
            let mut capture = Capture::new(PathBuf::new());
            if node.is_table() {
                let Some(table) = node.table(notes) else { return };
                read_keys(&mut capture, PCAP, "pcap", table, notes);
                require(table, "file", "pcap", notes);
            } else {
                set(&mut capture.file, node.file(notes));
            }
            server.capture = Some(capture);
        },
        write: |server| server.capture.as_ref().map(|capture| inline_text(PCAP, capture)),
    },
    Key {
        name: "control",
        kind: "path",
        default: "none",
        example: r#""/run/samum/control.sock""#,
        doc: "The Unix socket for `samum reload` and `samum stack`, which only the user of the server may use. Without this key it is \
              `control.sock` in `$RUNTIME_DIRECTORY`, else in `/run/samum`; if it cannot be made there, the server says so.",
        read: |server, node, notes| {
            if let Some(path) = node.file(notes) {
                server.control = Some(path);
            }
        },
        write: |server| server.control.as_deref().map(path_text),
    },
    Key {
        name: "trusted-proxies",
        kind: PREFIXES,
        default: "`[]`",
        example: r#"["10.0.0.0/8", "unix"]"#,
        doc: "The proxies that are believed when they name their clients, by `Forwarded`, `X-Forwarded-For` or \
              the PROXY protocol; `unix` are all that connect to a Unix socket. The client that they name \
              counts for access rules, limits and logs. A request whose fields name different clients is \
              answered 400.",
        read: |server, node, notes| {
            let list = node.list(notes, |node, notes| node.text(value::peers, notes));
            set(&mut server.trusted_proxies, list);
        },
        write: |server| Some(list_text(&server.trusted_proxies)),
    },
    Key {
        name: "error-format",
        kind: "`text` or `json`",
        default: "`\"text\"`",
        example: r#""json""#,
        doc: "The format of messages on standard error.",
        read: |server, node, notes| {
            set(&mut server.error_format, node.text(value::choice::<ErrorFormat>, notes));
        },
        write: |server| Some(quoted(&value::word::<ErrorFormat, _>(&server.error_format))),
    },
    Key {
        name: "max-connections",
        kind: "number",
        default: "`16384`",
        example: "4096",
        doc: "The maximum number of connections. Beyond it, a new connection replaces the one that has been \
              idle for longest; while none has been idle for 50 ms, it waits.",
        read: |server, node, notes| {
            let number = node.number(value::CONNECTIONS, notes);
            let number = number.and_then(|number| usize::try_from(number).ok());
            set(&mut server.tuning.connections_max, number);
        },
        write: |server| Some(server.tuning.connections_max.to_string()),
    },
    Key {
        name: "timeout-idle",
        kind: SECONDS,
        default: "`75`",
        example: "60",
        doc: "A connection without a request is closed after this time.",
        read: |server, node, notes| {
            set(&mut server.tuning.timeout_idle, node.quantity(value::seconds, notes));
        },
        write: |server| Some(seconds_text(server.tuning.timeout_idle)),
    },
    Key {
        name: "timeout-header",
        kind: SECONDS,
        default: "`20`",
        example: "10",
        doc: "A request that is not complete after this time is answered 408.",
        read: |server, node, notes| {
            set(&mut server.tuning.timeout_header, node.quantity(value::seconds, notes));
        },
        write: |server| Some(seconds_text(server.tuning.timeout_header)),
    },
    Key {
        name: "timeout-send",
        kind: SECONDS,
        default: "`30`",
        example: "20.5",
        doc: "A connection whose client takes less than `rate-min` for this time is closed.",
        read: |server, node, notes| {
            set(&mut server.tuning.timeout_send, node.quantity(value::seconds, notes));
        },
        write: |server| Some(seconds_text(server.tuning.timeout_send)),
    },
    Key {
        name: "timeout-disk",
        kind: SECONDS,
        default: "`30`",
        example: r#""10s""#,
        doc: "A request whose file the disk has not brought after this time is answered 503; if its response \
              has begun, the connection is closed. Later requests for the same device are answered 503 at once, but \
              for one in each such time, until it answers.",
        read: |server, node, notes| {
            set(&mut server.tuning.timeout_disk, node.quantity(value::seconds, notes));
        },
        write: |server| Some(seconds_text(server.tuning.timeout_disk)),
    },
    Key {
        name: "rate-min",
        kind: "bytes per second",
        default: "`64`",
        example: r#""1KiB/s""#,
        doc: "Bytes per second that a client must take while a response waits for it.",
        read: |server, node, notes| {
            set(&mut server.tuning.rate_min, node.quantity(value::bytes_per_second, notes));
        },
        write: |server| Some(bytes_text(server.tuning.rate_min)),
    },
];

/// The keys of `[[site]]` that its routes do not have.
const SITE: &[Key<SiteDraft, Site>] = &[
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
        doc: "The addresses to listen on: `ADDRESS:PORT`, with an IPv6 address in brackets, `:PORT` for all \
              IPv4 addresses, or a Unix socket. Sites may share an address.",
        read: |site, node, notes| {
            let read =
                |node: Node<'_>, notes: &mut Notes| Some((read_address(node, notes)?, node.place));
            for ((address, proxy_protocol), place) in node.list(notes, read).unwrap_or_default() {
                if proxy_protocol {
                    site.proxy_protocol.push(address.clone());
                }
                site.listen.push((address, place));
            }
            if node.is_empty_list() {
                notes.error(node.place, "expected at least one address");
            }
        },
        write: |site| {
            let text = |address| address_text(address, site.proxy_protocol.contains(address));
            let all: Vec<_> = site.listen.iter().map(text).collect();
            Some(format!("[{}]", all.join(", ")))
        },
    },
    Key {
        name: "hosts",
        kind: "list of hosts",
        default: "`[]`",
        example: r#"["example.org", "*.example.org"]"#,
        doc: "The hosts of the site: names, `[IPv6]` addresses, or `*.` and a name for all names below that \
              one. A request goes to the site with its host, else to the one with the longest wildcard, else \
              to the default site of the address.",
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
        doc: "The site gets the requests of its addresses for hosts that no site has. If no site of an \
              address is its default, the first one is.",
        read: |site, node, notes| {
            if let Some(flag) = node.flag(notes) {
                site.default = flag.then_some(node.place);
            }
        },
        write: |site| site.is_default.then(|| "true".to_owned()),
    },
    Key {
        name: "log",
        kind: "path, `-` for standard output, `none`, or table",
        default: "`\"none\"`",
        example: r#"{ file = "/var/log/samum/example.log", format = "json" }"#,
        doc: "The access log of all routes of the site.",
        read: |site, node, notes| {
            site.log_place = node.place;
            if node.is_table() {
                let Some(table) = node.table(notes) else { return };
                read_keys(&mut site.log, LOG, "log", table, notes);
                require(table, "file", "log", notes);
            } else {
                set(&mut site.log.target, read_log(node, notes));
            }
        },
        write: |site| Some(inline_text(LOG, &site.log)),
    },
];

/// The keys of `[[site.route]]` that its site does not have.
const ROUTE: &[Key<RouteDraft, Route>] = &[
    Key {
        name: "path",
        kind: "path of a URL",
        default: "`\"/\"`",
        example: r#""/pages/""#,
        doc: "The path, which begins with a slash and is written without `%`. If it ends with a slash, the \
              route has all paths below it; if not, it has itself and the paths below it. The longest path \
              that a request has wins.",
        read: |route, node, notes| {
            if let Some(path) = node.text(value::path, notes) {
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
        doc: "A pattern for the whole path of a request: `*` stands for any characters, `?` for one. Among \
              the routes of the same path those with a pattern come first, in the order of the file.",
        read: |route, node, notes| {
            route.pattern = node.text(value::pattern, notes).map(|pattern| (pattern, node.place));
        },
        write: |route| route.pattern.as_ref().map(|pattern| quoted(pattern.as_str())),
    },
    Key {
        name: "internal",
        kind: FLAG,
        default: "`false`",
        example: "true",
        doc: "Clients that ask for its paths get 404 (unless another route has the very same ones); other routes \
              hand requests over to it, and pages for errors may be its files.",
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
            let rules = super::FileRules::default();
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
        doc: "An action: send the client to another path or URL. `$1` to `$9` stand for the text that the \
              stars of `match` stand for, `$0` for the path behind that of the route, and `$$` for a dollar. The query of the \
              request is kept, unless the target has one.",
        read: |route, node, notes| {
            let mut redirect = Redirect { to: String::new(), status: 308 };
            if node.is_table() {
                let Some(table) = node.table(notes) else { return };
                read_keys(&mut redirect, REDIRECT, "redirect", table, notes);
                require(table, "to", "redirect", notes);
            } else {
                set(&mut redirect.to, node.text(value::target, notes));
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
              target for the rest of them; a line with the path itself comes before it, and the longest such path \
              before others. A line that begins with `#` is a comment. A file may have 1,000,000 redirects.",
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
        name: "cgi",
        kind: "path, or table",
        default: "none",
        example: r#"{ directory = "/usr/lib/cgi-bin", timeout = 20 }"#,
        doc: "An action: run the programs of this directory (RFC 3875). The path of the route is removed from \
              the path of the request. A body of 1 MiB at most, or in chunks, has come when its program is started: \
              slow uploads occupy no program. A longer one comes meanwhile, or is refused if it is in chunks (413).",
        read: |route, node, notes| {
            let mut cgi = Cgi::new(PathBuf::new());
            if node.is_table() {
                let Some(table) = node.table(notes) else { return };
                read_keys(&mut cgi, CGI, "cgi", table, notes);
                require(table, "directory", "cgi", notes);
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
              of a request is kept, unless the URL of the server has one, which then takes the place of the path \
              of the route. Each server may have a path of its own. A path with dot segments, or that spells the path \
              of the route in another way, is sent in its normal form. A host name stands for its addresses, 16 at \
              most. It is resolved again every 30 s, and its last addresses count while that fails.",
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
              same route these are the files of that directory whose names end with `.php`; its `index` and its \
              `fallback` may be scripts, and the other files are sent. What follows the name of a script in a \
              path is its path info. A body of 1 MiB at most, or in chunks, has come when the application hears of \
              its request: slow uploads occupy no process. A longer one comes meanwhile, or is refused if it is in \
              chunks (413).",
        read: |route, node, notes| {
            let mut fastcgi = Fastcgi::new(Vec::new(), GatewayRules::default());
            if node.is_table() {
                let Some(table) = node.table(notes) else { return };
                read_keys(&mut fastcgi, FASTCGI, "fastcgi", table, notes);
                require(table, "server", "fastcgi", notes);
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
];

/// The keys of `[[site]]` that its routes have, too, and inherit.
const SHARED: &[Key<Shared, Route>] = &[
    Key {
        name: "allow",
        kind: PREFIXES,
        default: "`[]`",
        example: r#"["192.0.2.0/24", "2001:db8::/32"]"#,
        doc: "The clients that may use the route; if it is not empty, others are refused (403). Of several \
              ranges in `allow` and `deny` the most specific one decides. `unix` are all clients on a Unix socket that \
              no proxy of `trusted-proxies` gives an address. They have no limits of their own.",
        read: |shared, node, notes| {
            let list = node.list(notes, |node, notes| node.text(value::peers, notes));
            set(&mut shared.access.allow, list);
        },
        write: |route| some_list_text(&route.access.allow),
    },
    Key {
        name: "deny",
        kind: PREFIXES,
        default: "`[]`",
        example: r#"["192.0.2.7"]"#,
        doc: "The clients that are refused (403). If it has `::/0`, or `0.0.0.0/0` and `::/0`, `unix` is refused, too, unless \
              it is in `allow`.",
        read: |shared, node, notes| {
            let list = node.list(notes, |node, notes| node.text(value::peers, notes));
            set(&mut shared.access.deny, list);
        },
        write: |route| some_list_text(&route.access.deny),
    },
    Key {
        name: "limits",
        kind: "table",
        default: "`{}`",
        example: r#"{ connections-per-ip = 64, requests-per-ip = "100/s burst 200" }"#,
        doc: "Limits for each client address. A route has the limits of its site that it does not set itself.",
        read: |shared, node, notes| {
            let Some(table) = node.table(notes) else { return };
            read_keys(&mut shared.limits, LIMITS, "limits", table, notes);
            let mut entries = table.entries();
            if let Some((.., node)) = entries.find(|(name, ..)| *name == "bytes-per-connection") {
                shared.rate_place = Some(node.place);
            }
        },
        write: |route| {
            (route.limits != Limits::default()).then(|| inline_text(LIMITS, &route.limits))
        },
    },
    Key {
        name: "headers",
        kind: "list of tables",
        default: "`[]`",
        example: r#"[{ match = "*.css", set = { Cache-Control = "max-age=86400" }, remove = ["Server"] }]"#,
        doc: "Changes of the fields of responses, in this order. Those of the site come before those of the \
              route.",
        read: |shared, node, notes| {
            let read = |node: Node<'_>, notes: &mut Notes| {
                let mut rule = HeaderRule { pattern: None, set: Vec::new(), remove: Vec::new() };
                read_keys(&mut rule, HEADER, "headers", node.table(notes)?, notes);
                Some(rule)
            };
            shared.headers.extend(node.list(notes, read).unwrap_or_default());
        },
        write: |route| {
            let all: Vec<_> = route.headers.iter().map(|rule| inline_text(HEADER, rule)).collect();
            (!all.is_empty()).then(|| format!("[{}]", all.join(", ")))
        },
    },
    Key {
        name: "errors",
        kind: "table of statuses and paths",
        default: "`{}`",
        example: r#"{ 404 = "/404.html", 503 = "/busy.html" }"#,
        doc: "Pages for statuses from 400 to 599, but 412 and 416: paths of the same site that lead to files. A \
              route has the pages of its site for statuses that it does not set itself. A page is sent with the \
              status of the error. Where it cannot be read, the page of the server is sent. Requests for which there is \
              no route have the pages of the site; those that are not HTTP have the page of the server.",
        read: |shared, node, notes| {
            let Some(table) = node.table(notes) else { return };
            for (name, place, node) in table.entries() {
                let status = name.parse().ok().ok_or_else(|| format!("`{name}` is no status"));
                let status = status.and_then(rule::error_status);
                match (status, node.text(value::path, notes)) {
                    (Err(why), _) => notes.error(place, why),
                    (Ok(status), Some(path)) => {
                        shared.errors.insert(status, (path, node.place));
                    }
                    (Ok(_), None) => {}
                }
            }
        },
        write: |route| errors_text(&route.errors),
    },
    Key {
        name: "server-timing",
        kind: FLAG,
        default: "`false`",
        example: "true",
        doc: "Responses have a `Server-Timing` field that says how long the disk took.",
        read: |shared, node, notes| set(&mut shared.server_timing, node.flag(notes)),
        write: |route| Some(route.server_timing.to_string()),
    },
    Key {
        name: "index",
        kind: "name of a file",
        default: "`\"index.html\"`",
        example: r#""start.html""#,
        doc: "The file that is served for its directory.",
        read: |shared, node, notes| set(&mut shared.files.index, node.text(value::index, notes)),
        write: |route| files(route).map(|files| quoted(&files.rules.index)),
    },
    Key {
        name: "listing",
        kind: FLAG,
        default: "`false`",
        example: "true",
        doc: "Directories that have no such file are listed (HTML, or JSON for clients that prefer it).",
        read: |shared, node, notes| set(&mut shared.files.listing, node.flag(notes)),
        write: |route| files(route).map(|files| files.rules.listing.to_string()),
    },
    Key {
        name: "cache",
        kind: "`always`, `never` or `popular`",
        default: "`\"popular\"`",
        example: r#""never""#,
        doc: "The files that stay in the page cache after they were read; `samum serve --help` explains them.",
        read: |shared, node, notes| {
            let cache = node.text(value::choice::<value::Cache>, notes);
            set(&mut shared.files.policy.caching, cache.map(Into::into));
        },
        write: |route| {
            let caching = files(route)?.rules.policy.caching;
            Some(quoted(&value::word::<value::Cache, _>(&caching)))
        },
    },
    Key {
        name: "readahead",
        kind: BYTES,
        default: "`\"2m\"`",
        example: r#""512k""#,
        doc: "Prefetch at most this many bytes beyond those that a client has taken.",
        read: |shared, node, notes| {
            let bytes = node.quantity(value::bytes, notes);
            set(&mut shared.files.policy.window, bytes.map(Window::of));
        },
        write: |route| files(route).map(|files| bytes_text(files.rules.policy.window.bytes())),
    },
    Key {
        name: "etag",
        kind: "`stat` or `hash`",
        default: "`\"stat\"`",
        example: r#""hash""#,
        doc: "The source of the ETag of a file: what `stat(2)` says, or the contents.",
        read: |shared, node, notes| {
            let etag = node.text(value::choice::<value::Etag>, notes);
            set(&mut shared.files.tags, etag.map(Into::into));
        },
        write: |route| Some(quoted(&value::word::<value::Etag, _>(&files(route)?.rules.tags))),
    },
    Key {
        name: "fallback",
        kind: "path of a URL, or `none`",
        default: "`\"none\"`",
        example: r#""/index.html""#,
        doc: "The file that is served with status 200 where there is nothing: a path of the same site that leads \
              to files. Where that file is missing, too, the response is a 404.",
        read: |shared, node, notes| {
            let read = |node: Node<'_>, notes: &mut Notes| node.text(value::path, notes);
            set(&mut shared.files.fallback, unless_none(node, notes, read));
            shared.fallback_place = Some(node.place);
        },
        write: |route| files(route)?.rules.fallback.as_deref().map(quoted),
    },
    Key {
        name: "clean-urls",
        kind: FLAG,
        default: "`false`",
        example: "true",
        doc: "`/a` is answered with `a.html` where there is no `a`, `/a.html` redirects to `/a`, and `/index.html` \
              to `/`.",
        read: |shared, node, notes| set(&mut shared.files.clean_urls, node.flag(notes)),
        write: |route| files(route).map(|files| files.rules.clean_urls.to_string()),
    },
    Key {
        name: "types",
        kind: "table of extensions and media types",
        default: "`{}`",
        example: r#"{ wasm = "application/wasm" }"#,
        doc: "Media types by the extension of a file's name, before those that are built in. A route has the \
              types of its site for extensions that it does not set itself.",
        read: |shared, node, notes| {
            let Some(table) = node.table(notes) else { return };
            for (name, _, node) in table.entries() {
                let read = |value: &str| rule::type_of(name, value);
                shared.files.types.extend(node.text(read, notes));
            }
        },
        write: |route| {
            let types = &files(route)?.rules.types;
            let entry =
                |(name, value): (&String, &String)| format!("{} = {}", quoted(name), quoted(value));
            let all: Vec<_> = types.iter().map(entry).collect();
            (!all.is_empty()).then(|| format!("{{ {} }}", all.join(", ")))
        },
    },
    Key {
        name: "charset",
        kind: "name of an encoding, or `none`",
        default: "`\"utf-8\"`",
        example: r#""iso-8859-1""#,
        doc: "The encoding of text files, which their media type names.",
        read: |shared, node, notes| {
            let read = |node: Node<'_>, notes: &mut Notes| node.text(rule::charset, notes);
            set(&mut shared.files.charset, unless_none(node, notes, read));
        },
        write: |route| {
            let charset = files(route)?.rules.charset.as_deref();
            Some(quoted(charset.unwrap_or("none")))
        },
    },
    Key {
        name: "dotfiles",
        kind: FLAG,
        default: "`false`",
        example: "true",
        doc: "Files and directories are served whose names begin with a dot. `/.well-known/` is served anyway.",
        read: |shared, node, notes| set(&mut shared.files.dotfiles, node.flag(notes)),
        write: |route| files(route).map(|files| files.rules.dotfiles.to_string()),
    },
    Key {
        name: "symlinks",
        kind: "`beneath` or `never`",
        default: "`\"beneath\"`",
        example: r#""never""#,
        doc: "The symbolic links that are followed: those that stay beneath the directory, or none. Others lead \
              to nothing.",
        read: |shared, node, notes| {
            set(&mut shared.files.symlinks, node.text(value::choice::<Symlinks>, notes));
        },
        write: |route| Some(quoted(&value::word::<Symlinks, _>(&files(route)?.rules.symlinks))),
    },
    Key {
        name: "precompressed",
        kind: FLAG,
        default: "`true`",
        example: "false",
        doc: "`a.css.br`, `a.css.zst` or `a.css.gz` is sent in place of `a.css` to clients that understand it, also \
              if it is older than `a.css`: whatever writes `a.css` has to write it anew, or remove it. It may be a \
              symbolic link if `symlinks` lets `a.css` be one.",
        read: |shared, node, notes| set(&mut shared.files.precompressed, node.flag(notes)),
        write: |route| files(route).map(|files| files.rules.precompressed.to_string()),
    },
    Key {
        name: "includes",
        kind: FLAG,
        default: "`false`",
        example: "true",
        doc: "Files may have directives (server-side includes), such as `<!--#include virtual=\"/menu\" -->`, which \
              are replaced by what they say: `include` (`virtual` or `file`), `echo` (with `encoding` `entity`, \
              `url` or `none`, and `default`), `set`, `if`, `elif`, `else`, `endif` (`expr` is a variable or a text, or \
              two of them with `=` or `!=` between; there are no regular expressions) and `config` (`errmsg`, \
              `timefmt`). What is included is found as if the client had asked for it, also in internal routes, \
              and may come from programs and servers; an error, a cycle or a response that is not a 200 shows the \
              error message instead. Variables are those that were set, `DOCUMENT_URI`, `DOCUMENT_NAME`, \
              `LAST_MODIFIED`, `DATE_LOCAL` and `DATE_GMT` (all times in UTC), `QUERY_STRING`, `REQUEST_URI`, `REQUEST_METHOD`, \
              `SERVER_PROTOCOL`, `REMOTE_ADDR`, `ARG_` with the name of a part of the query, `HTTP_` with that of a \
              field. A file with directives has no ETag, no Last-Modified, no ranges and no precompressed form, and \
              32 MiB at most; one without is sent like any other. Pages to which a server, a script or a program \
              hands a request over are processed, too. Pages for errors are sent as they are.",
        read: |shared, node, notes| set(&mut shared.files.includes, node.flag(notes)),
        write: |route| files(route).map(|files| files.rules.includes.to_string()),
    },
    Key {
        name: "include-types",
        kind: "list of media types",
        default: "`[\"text/html\"]`",
        example: r#"["text/html", "text/xml"]"#,
        doc: "The media types of the files that may have directives.",
        read: |shared, node, notes| {
            let list = node.list(notes, |node, notes| node.text(rule::media_essence, notes));
            set(&mut shared.files.include_types, list);
        },
        write: |route| files(route).map(|files| list_text(&files.rules.include_types)),
    },
    Key {
        name: "buffer",
        kind: BYTES,
        default: "`\"1m\"`",
        example: r#""64k""#,
        doc: "Bytes of the response of another server that may wait for the client, at least 16 KiB; the server \
              waits then. Beside it a response that is spliced has at most twice `receive-max` in pipes, and a \
              worker 1.25 MiB that its servers have sent before they were told to wait.",
        read: |shared, node, notes| match node.quantity(value::bytes, notes) {
            Some(bytes) if bytes < GatewayRules::BUFFER_MIN => {
                notes.error(node.place, "a buffer has 16 KiB at least");
            }
            bytes => set(&mut shared.gateway.buffer, bytes),
        },
        write: |route| gateway(route).map(|rules| bytes_text(rules.buffer)),
    },
    Key {
        name: "buffer-dir",
        kind: "directory, or `none`",
        default: "`\"none\"`",
        example: r#""/var/cache/samum""#,
        doc: "A directory on whose disk the response of another server waits for a slow client, so that a large \
              `buffer`, of 4 MiB at least, costs 2.25 MiB of memory for each such client and not more. The files \
              have no names and are gone with the process. The file system has to know `O_TMPFILE` and \
              holes in files (ext4, XFS, Btrfs, tmpfs). If the disk is full, fails or does not answer within \
              2 s, or a worker has 128 files already, the response goes on through memory, and its \
              server waits for the client.",
        read: |shared, node, notes| {
            let read = |node: Node<'_>, notes: &mut Notes| node.file(notes);
            set(&mut shared.gateway.buffer_dir, unless_none(node, notes, read));
        },
        write: |route| {
            let dir = gateway(route)?.buffer_dir.as_deref();
            Some(dir.map_or_else(|| quoted("none"), path_text))
        },
    },
    Key {
        name: "splice",
        kind: FLAG,
        default: "`true`",
        example: "false",
        doc: "If true, long responses of other servers whose length is known, and much that comes through a tunnel, go to \
              clients through a pipe, without being copied (`splice(2)`). If false, they go through the `buffer`, as all others do.",
        read: |shared, node, notes| set(&mut shared.gateway.splice, node.flag(notes)),
        write: |route| gateway(route).map(|rules| rules.splice.to_string()),
    },
    Key {
        name: "receive-max",
        kind: BYTES,
        default: "`\"512k\"`",
        example: r#""64k""#,
        doc: "Bytes of a long response of another server that are received at once, at least 4 KiB. Fewer of them \
              cost more CPU time each.",
        read: |shared, node, notes| match node.quantity(value::bytes, notes) {
            Some(bytes) if bytes < GatewayRules::RECEIVE_MIN => {
                notes.error(node.place, "4 KiB at least are received at once");
            }
            bytes => set(&mut shared.gateway.receive_max, bytes),
        },
        write: |route| gateway(route).map(|rules| bytes_text(rules.receive_max)),
    },
    Key {
        name: "half-close",
        kind: FLAG,
        default: "`false`",
        example: "true",
        doc: "A client that has sent its request may end its side of the connection and still wait for the answer \
              of a server, a script or a program. If false, such a client counts as one that has left, as most \
              have: unless the response has begun, the request is given up and the connection is closed. If true, \
              a client that has left is noticed when something is sent to it, or after `timeout-send`.",
        read: |shared, node, notes| set(&mut shared.half_close, node.flag(notes)),
        write: |route| route.action.is_gateway().then(|| route.half_close.to_string()),
    },
    Key {
        name: "timeout-connect",
        kind: SECONDS,
        default: "`5`",
        example: "1",
        doc: "The time in which a connection to another server must be made.",
        read: |shared, node, notes| {
            set(&mut shared.gateway.timeout_connect, node.quantity(value::seconds, notes));
        },
        write: |route| gateway(route).map(|rules| seconds_text(rules.timeout_connect)),
    },
    Key {
        name: "timeout-upstream",
        kind: SECONDS,
        default: "`60`",
        example: "20",
        doc: "The time in which another server must send something while it is its turn. A request that it does \
              not answer is answered 504; a response that it does not continue is cut off. A connection that has \
              switched to another protocol is closed if nothing is sent through it in this time.",
        read: |shared, node, notes| {
            set(&mut shared.gateway.timeout_upstream, node.quantity(value::seconds, notes));
        },
        write: |route| gateway(route).map(|rules| seconds_text(rules.timeout_upstream)),
    },
    Key {
        name: "timeout-upstream-send",
        kind: SECONDS,
        default: "`60`",
        example: "20",
        doc: "The time in which another server must take some bytes of a request, while some wait for it and it has \
              not answered; if it does not, the request is answered 504. A client that is slow to send its request \
              does not count here. Behind the head of the response only `timeout-upstream` counts, because a server \
              may answer without taking the rest of a body.",
        read: |shared, node, notes| {
            set(&mut shared.gateway.timeout_upstream_send, node.quantity(value::seconds, notes));
        },
        write: |route| gateway(route).map(|rules| seconds_text(rules.timeout_upstream_send)),
    },
    Key {
        name: "balance",
        kind: "`round-robin`, `least` or `hash`",
        default: "`\"round-robin\"`",
        example: r#""least""#,
        doc: "The choice among several servers: each in its turn, one with the fewest requests at the moment (each \
              worker counts its own), or the same one for the same `hash-by`. With `hash`, a server that has 5/4 of \
              its share, and more than 16 requests, is passed over.",
        read: |shared, node, notes| {
            set(&mut shared.gateway.balance, node.text(value::choice::<Balance>, notes));
        },
        write: |route| Some(quoted(&value::word::<Balance, _>(&gateway(route)?.balance))),
    },
    Key {
        name: "hash-by",
        kind: "`client` or `path`",
        default: "`\"client\"`",
        example: r#""path""#,
        doc: "The part of a request that has its server with `balance = \"hash\"`: the address of the client, or the \
              path.",
        read: |shared, node, notes| {
            set(&mut shared.gateway.hash_by, node.text(value::choice::<HashBy>, notes));
        },
        write: |route| Some(quoted(&value::word::<HashBy, _>(&gateway(route)?.hash_by))),
    },
    Key {
        name: "retries",
        kind: "number",
        default: "`2`",
        example: "0",
        doc: "The number of times that a request is sent again at most, up to 2: to another server that has not \
              failed with it. That is done if no byte of it was sent, or it is `GET`, `HEAD`, `OPTIONS`, `PUT`, \
              `DELETE` or `TRACE` and nothing of a response has come, and its body was not sent yet. A connection that \
              was kept and that the server has closed meanwhile does not count. All others are a fifth of the \
              requests at most, and 10 per second and worker.",
        read: |shared, node, notes| {
            let number = node.number(0..=i64::from(GatewayRules::RETRIES_MAX), notes);
            set(&mut shared.gateway.retries, number.and_then(|number| u32::try_from(number).ok()));
        },
        write: |route| gateway(route).map(|rules| rules.retries.to_string()),
    },
    Key {
        name: "max-fails",
        kind: "number",
        default: "`3`",
        example: "1",
        doc: "Requests in a row that a server does not answer before it is down; 0: it never is. A response with any \
              status is an answer. If all servers of a route are down, one is asked nevertheless.",
        read: |shared, node, notes| {
            let number = node.number(0..=1000, notes);
            let health = &mut shared.gateway.health;
            set(&mut health.max_fails, number.and_then(|number| u32::try_from(number).ok()));
        },
        write: |route| gateway(route).map(|rules| rules.health.max_fails.to_string()),
    },
    Key {
        name: "fail-timeout",
        kind: SECONDS,
        default: "`10`",
        example: "2",
        doc: "A server that is down is tried again by one request after this time, and after twice as long each \
              time that this fails, up to a minute. Failures that are further apart are not in a row.",
        read: |shared, node, notes| {
            let time = node.quantity(value::seconds, notes);
            set(&mut shared.gateway.health.fail_timeout, time);
        },
        write: |route| gateway(route).map(|rules| seconds_text(rules.health.fail_timeout)),
    },
    Key {
        name: "slow-start",
        kind: "seconds, or `none`",
        default: "`\"none\"`",
        example: "30",
        doc: "The time in which the share of a server grows from nothing to all of it: one that is up again, one at an \
              address that its name did not have when it was resolved before, or one that a reload has added to \
              others. With `balance = \"hash\"` this is a share of the keys that are the server's.",
        read: |shared, node, notes| {
            let read = |node: Node<'_>, notes: &mut Notes| node.quantity(value::seconds, notes);
            set(&mut shared.gateway.health.slow_start, unless_none(node, notes, read));
        },
        write: |route| {
            let time = gateway(route)?.health.slow_start;
            Some(time.map_or_else(|| quoted("none"), seconds_text))
        },
    },
    Key {
        name: "check",
        kind: "path of a URL, or `none`",
        default: "`\"none\"`",
        example: r#""/health""#,
        doc: "A path that each server is asked for again and again. A server is down after 3 responses in a row that \
              have another status than 2xx or 3xx, or do not come, and up after 2 others.",
        read: |shared, node, notes| {
            let read = |node: Node<'_>, notes: &mut Notes| node.text(value::path, notes);
            set(&mut shared.gateway.health.check, unless_none(node, notes, read));
        },
        write: |route| {
            let check = &gateway(route)?.health.check;
            Some(check.as_deref().map_or_else(|| quoted("none"), quoted))
        },
    },
    Key {
        name: "check-interval",
        kind: SECONDS,
        default: "`5`",
        example: "1",
        doc: "The time from one such question to the next, in which the response must come. All workers together ask \
              once.",
        read: |shared, node, notes| {
            let time = node.quantity(value::seconds, notes);
            set(&mut shared.gateway.health.check_interval, time);
        },
        write: |route| gateway(route).map(|rules| seconds_text(rules.health.check_interval)),
    },
];

/// The keys of a Unix socket in `listen`.
const LISTEN: &[Key<AddressDraft>] = &[
    Key {
        name: "address",
        kind: "address",
        default: "none; it or `unix` is needed",
        example: r#""0.0.0.0:80""#,
        doc: "`ADDRESS:PORT`, as without a table.",
        read: |draft, node, notes| match node.text(value::address, notes) {
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
        write: |AddressDraft { socket, .. }| {
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
        doc: "Trusted proxies send a header of the PROXY protocol, version 1 or 2, in front of each connection. \
              A connection of theirs without one is closed, and so is one of others with one. Sites that \
              share an address must agree.",
        read: |draft, node, notes| set(&mut draft.proxy_protocol, node.flag(notes)),
        write: |draft| draft.proxy_protocol.then(|| "true".to_owned()),
    },
];

/// The keys of `log`.
const LOG: &[Key<Log>] = &[
    Key {
        name: "file",
        kind: "path, `-` for standard output, or `none`",
        default: "none; it is needed",
        example: r#""/var/log/samum/access.log""#,
        doc: "The file to append to, which is opened again on SIGHUP and SIGUSR1.",
        read: |log, node, notes| set(&mut log.target, read_log(node, notes)),
        write: |log| {
            Some(match &log.target {
                LogTarget::None => quoted("none"),
                LogTarget::Stdout => quoted("-"),
                LogTarget::File(path) => path_text(path),
            })
        },
    },
    Key {
        name: "format",
        kind: "`common`, `combined` or `json`",
        default: "`\"combined\"`",
        example: r#""json""#,
        doc: "The format of its lines.",
        read: |log, node, notes| set(&mut log.format, node.text(value::choice::<LogFormat>, notes)),
        write: |log| Some(quoted(&value::word::<LogFormat, _>(&log.format))),
    },
];

/// The keys of an element of `interface`.
const INTERFACE: &[Key<Interface>] = &[
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
        doc: "The addresses of the interface that only samum has: it answers ARP, neighbour discovery and ping for \
              them. Leave them out for addresses that the kernel has.",
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
              Clients of other networks are answered through them. Without one, an answer goes to the station that \
              its request came from, which is right unless requests come in another way than answers leave: from a \
              load balancer, or from one of several routers.",
        read: |interface, node, notes| {
            let list = node.list(notes, |node, notes| node.text(value::ip, notes));
            set(&mut interface.gateways, list);
        },
        write: |interface| some_list_text(&interface.gateways),
    },
];

/// The keys of `pcap`.
const PCAP: &[Key<Capture>] = &[
    Key {
        name: "file",
        kind: "path",
        default: "none; it is needed",
        example: r#""/var/tmp/eth1.pcapng""#,
        doc: "The file. Older files have the names FILE.1, FILE.2 and so on.",
        read: |capture, node, notes| set(&mut capture.file, node.file(notes)),
        write: |capture| Some(path_text(&capture.file)),
    },
    Key {
        name: "size",
        kind: BYTES,
        default: "`\"64MiB\"`",
        example: r#""1g""#,
        doc: "The size at which a file is followed by another one.",
        read: |capture, node, notes| {
            set(&mut capture.bytes_max, node.quantity(value::bytes, notes));
        },
        write: |capture| Some(bytes_text(capture.bytes_max)),
    },
    Key {
        name: "files",
        kind: "number",
        default: "`4`",
        example: "10",
        doc: "The number of files that are kept, with the one that is being written.",
        read: |capture, node, notes| {
            let number = node.number(value::CAPTURE_FILES, notes);
            set(&mut capture.files_max, number.and_then(|number| u16::try_from(number).ok()));
        },
        write: |capture| Some(capture.files_max.to_string()),
    },
    Key {
        name: "peers",
        kind: PREFIXES,
        default: "`[]`: all",
        example: r#"["10.0.0.2", "10.1.0.0/16"]"#,
        doc: "Record only frames from and to these addresses.",
        read: |capture, node, notes| {
            let list = node.list(notes, |node, notes| node.text(value::prefix, notes));
            set(&mut capture.peers, list);
        },
        write: |capture| some_list_text(&capture.peers),
    },
];

/// The keys of `limits`.
const LIMITS: &[Key<Limits>] = &[
    Key {
        name: "connections-per-ip",
        kind: "number, or `none`",
        default: "`\"none\"`",
        example: "64",
        doc: "Open connections of one IPv4 address, or of one /64 of IPv6 addresses.",
        read: |limits, node, notes| {
            let read = |node: Node<'_>, notes: &mut Notes| {
                node.number(1..=1 << 20, notes).and_then(|number| u32::try_from(number).ok())
            };
            set(&mut limits.connections, unless_none(node, notes, read));
        },
        write: |limits| limits.connections.map(|number| number.to_string()),
    },
    Key {
        name: "requests-per-ip",
        kind: "rate, or `none`",
        default: "`\"none\"`",
        example: r#""100/s burst 200""#,
        doc: "Requests of the same: `NUMBER/s`, `NUMBER/min` or `NUMBER/h`. Others are answered 429. The burst \
              is the number of requests that may come at once, by default those of a second.",
        read: |limits, node, notes| {
            let read = |node: Node<'_>, notes: &mut Notes| node.text(value::rate, notes);
            set(&mut limits.requests, unless_none(node, notes, read));
        },
        write: |limits| limits.requests.map(|rate| quoted(&value::rate_text(rate))),
    },
    Key {
        name: "bytes-per-connection",
        kind: "bytes per second, or `none`",
        default: "`\"none\"`",
        example: r#""20MiB/s""#,
        doc: "Bytes per second that a connection is sent.",
        read: |limits, node, notes| {
            let read =
                |node: Node<'_>, notes: &mut Notes| node.quantity(value::bytes_per_second, notes);
            set(&mut limits.bytes_per_second, unless_none(node, notes, read));
        },
        write: |limits| {
            limits.bytes_per_second.map(|bytes| quoted(&format!("{}/s", value::bytes_text(bytes))))
        },
    },
];

/// The keys of an element of `headers`.
const HEADER: &[Key<HeaderRule>] = &[
    Key {
        name: "match",
        kind: "pattern",
        default: "all paths",
        example: r#""*.css""#,
        doc: "The pattern that a path must match: where a file is sent, its path or that by which it was found, \
              such as `/` for `/index.html`; in other responses, such as errors, the path of the request.",
        read: |rule, node, notes| rule.pattern = node.text(value::pattern, notes),
        write: |rule| rule.pattern.as_ref().map(|pattern| quoted(pattern.as_str())),
    },
    Key {
        name: "set",
        kind: "table of names and values",
        default: "`{}`",
        example: r#"{ Cache-Control = "max-age=86400" }"#,
        doc: "Fields that responses have, instead of others with these names.",
        read: |rule, node, notes| {
            let Some(table) = node.table(notes) else { return };
            for (name, place, node) in table.entries() {
                let name = rule::field_name(name).map_err(|why| notes.error(place, why));
                if let (Ok(name), Some(value)) = (name, node.text(rule::field_value, notes)) {
                    rule.set.push((name, value));
                }
            }
        },
        write: |rule| {
            let field =
                |(name, value): &(String, String)| format!("{} = {}", quoted(name), quoted(value));
            let all: Vec<_> = rule.set.iter().map(field).collect();
            (!all.is_empty()).then(|| format!("{{ {} }}", all.join(", ")))
        },
    },
    Key {
        name: "remove",
        kind: "list of names",
        default: "`[]`",
        example: r#"["Server"]"#,
        doc: "Fields that are left out.",
        read: |rule, node, notes| {
            let list = node.list(notes, |node, notes| node.text(rule::field_name, notes));
            set(&mut rule.remove, list);
        },
        write: |rule| some_list_text(&rule.remove),
    },
];

/// The keys of `redirect`.
const REDIRECT: &[Key<Redirect>] = &[
    Key {
        name: "to",
        kind: "path or URL",
        default: "none; it is needed",
        example: r#""https://example.org/$0""#,
        doc: "The target.",
        read: |redirect, node, notes| set(&mut redirect.to, node.text(value::target, notes)),
        write: |redirect| Some(quoted(&redirect.to)),
    },
    Key {
        name: "status",
        kind: "301, 302, 303, 307 or 308",
        default: "`308`",
        example: "301",
        doc: "The status: permanent (301, 308) or temporary (302, 303, 307). With 307 and 308 the client keeps \
              its method.",
        read: |redirect, node, notes| {
            let Some(number) = node.number(0..=999, notes) else { return };
            match u16::try_from(number) {
                Ok(status @ (301 | 302 | 303 | 307 | 308)) => redirect.status = status,
                _ => notes
                    .error(node.place, "a redirection has the status 301, 302, 303, 307 or 308"),
            }
        },
        write: |redirect| Some(redirect.status.to_string()),
    },
];

/// The keys of `cgi`.
const CGI: &[Key<Cgi>] = &[
    Key {
        name: "directory",
        kind: "path",
        default: "none; it is needed",
        example: r#""/usr/lib/cgi-bin""#,
        doc: "The directory of the programs.",
        read: |cgi, node, notes| set(&mut cgi.root, node.file(notes)),
        write: |cgi| Some(path_text(&cgi.root)),
    },
    Key {
        name: "processes",
        kind: "number",
        default: "`32`",
        example: "8",
        doc: "The maximum number of programs that run at once, of all workers together. 256 further requests wait \
              in line; beyond them, and after the time of a program, the response is a 503.",
        read: |cgi, node, notes| {
            let number = node.number(1..=65_536, notes);
            set(&mut cgi.processes_max, number.and_then(|number| u32::try_from(number).ok()));
        },
        write: |cgi| Some(cgi.processes_max.to_string()),
    },
    Key {
        name: "timeout",
        kind: SECONDS,
        default: "`60`",
        example: "20",
        doc: "A program that has not ended after this time is sent SIGTERM, and SIGKILL 5 s later. The time \
              that the client takes to send and to receive counts. The response is a 504, or cut off.",
        read: |cgi, node, notes| set(&mut cgi.timeout, node.quantity(value::seconds, notes)),
        write: |cgi| Some(seconds_text(cgi.timeout)),
    },
    Key {
        name: "output",
        kind: BYTES,
        default: "`\"64m\"`",
        example: r#""1g""#,
        doc: "Bytes that a program may put out, on standard output and standard error together. One that \
              exceeds them is stopped, and its response cut off.",
        read: |cgi, node, notes| set(&mut cgi.output_max, node.quantity(value::bytes, notes)),
        write: |cgi| Some(bytes_text(cgi.output_max)),
    },
    Key {
        name: "environment",
        kind: "table of names and values",
        default: "`{}`",
        example: r#"{ GIT_PROJECT_ROOT = "/srv/git" }"#,
        doc: "Variables of the environment beside those of the request (and `PATH`), instead of others with \
              their names. Nothing of the server's own environment is passed on.",
        read: |cgi, node, notes| read_variables(&mut cgi.environment, node, notes),
        write: |cgi| variables_text(&cgi.environment),
    },
];

/// The keys of `fastcgi`.
const FASTCGI: &[Key<Fastcgi>] = &[
    Key {
        name: "server",
        kind: "server, or list of servers",
        default: "none; it is needed",
        example: r#"["10.0.0.1:9000", "10.0.0.2:9000"]"#,
        doc: "The application: `HOST:PORT` or `unix:PATH`.",
        read: |fastcgi, node, notes| fastcgi.upstream.servers = read_applications(node, notes),
        write: |fastcgi| {
            let servers: Vec<_> =
                fastcgi.upstream.servers.iter().map(|server| &server.address).collect();
            Some(list_text(&servers))
        },
    },
    Key {
        name: "root",
        kind: "path",
        default: "that of `files`",
        example: r#""/srv/www""#,
        doc: "The directory of the scripts as the application sees it. Without `files` in the route, it is needed, \
              and all requests of the route are for scripts: whether they exist is left to the application.",
        read: |fastcgi, node, notes| fastcgi.root = node.file(notes),
        write: |fastcgi| fastcgi.root.as_deref().map(path_text),
    },
    Key {
        name: "keep",
        kind: FLAG,
        default: "`false`",
        example: "true",
        doc: "Connections are kept for further requests. Each takes one process of php-fpm for itself, so there must \
              be more processes than requests at once.",
        read: |fastcgi, node, notes| set(&mut fastcgi.keeps_connections, node.flag(notes)),
        write: |fastcgi| fastcgi.keeps_connections.then(|| "true".to_owned()),
    },
    Key {
        name: "environment",
        kind: "table of names and values",
        default: "`{}`",
        example: r#"{ APP_ENV = "production" }"#,
        doc: "Variables of the environment beside those of the request, instead of others with their names.",
        read: |fastcgi, node, notes| read_variables(&mut fastcgi.environment, node, notes),
        write: |fastcgi| variables_text(&fastcgi.environment),
    },
];

/// Reads variables of an environment.
fn read_variables(to: &mut Vec<(String, String)>, node: Node<'_>, notes: &mut Notes) {
    let Some(table) = node.table(notes) else { return };
    for (name, place, node) in table.entries() {
        let name = value::variable_name(name).map_err(|why| notes.error(place, why));
        if let (Ok(name), Some(value)) = (name, node.text(value::variable, notes)) {
            to.push((name, value));
        }
    }
}

fn variables_text(variables: &[(String, String)]) -> Option<String> {
    let variable =
        |(name, value): &(String, String)| format!("{} = {}", quoted(name), quoted(value));
    let all: Vec<_> = variables.iter().map(variable).collect();
    (!all.is_empty()).then(|| format!("{{ {} }}", all.join(", ")))
}

/// Reads a server, or a list of servers.
fn read_servers(
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
fn read_applications(node: Node<'_>, notes: &mut Notes) -> Vec<ServerUrl> {
    read_servers(node, notes, upstream::application)
}

/// Finds the places of the things outside that `[server]` names.
fn server_things(server: &Server, table: Table<'_>) -> Vec<(Thing, Place)> {
    let mut all = Vec::new();
    for (name, _, node) in table.entries() {
        match (name, &server.control) {
            ("control", Some(path)) => all.push((Thing::Control(path.clone()), node.place)),
            ("interface", _) => {
                // The first reading has reported the errors of the list.
                let read = |node: Node<'_>, _: &mut Notes| Some(node.place);
                let places = node.list(&mut Notes::default(), read).unwrap_or_default();
                let names = server.interfaces.iter().map(|it| Thing::Interface(it.name.clone()));
                all.extend(names.zip(places));
            }
            _ => {}
        }
    }
    all
}

/// Reads a file.
pub(super) fn read_file(draft: &mut Draft, table: Table<'_>, notes: &mut Notes) {
    read_keys(draft, TOP, "the top of the file", table, notes);
}

fn read_site(site: &mut SiteDraft, table: Table<'_>, notes: &mut Notes) {
    for (name, place, node) in table.entries().filter(|(name, ..)| *name != "route") {
        if let Some(key) = find(SITE, name) {
            (key.read)(site, node, notes);
        } else if let Some(key) = find(SHARED, name) {
            (key.read)(&mut site.shared, node, notes);
        } else {
            let names = names(SITE).chain(names(SHARED)).chain(["route"]);
            unknown(name, SITE_TITLE, names, place, notes);
        }
    }
    if !table.has("listen") {
        site.listen.push((value::default_address(), site.place));
    }
    // The routes begin with what their site says.
    let Some((_, _, node)) = table.entries().find(|(name, ..)| *name == "route") else { return };
    for table in node.tables("site.route", notes) {
        let mut route = RouteDraft::new(table.place, site.shared.clone());
        read_route(&mut route, table, notes);
        site.routes.push(route);
    }
}

fn read_route(route: &mut RouteDraft, table: Table<'_>, notes: &mut Notes) {
    for (name, place, node) in table.entries() {
        if let Some(key) = find(ROUTE, name) {
            (key.read)(route, node, notes);
        } else if let Some(key) = find(SHARED, name) {
            (key.read)(&mut route.shared, node, notes);
        } else {
            unknown(name, ROUTE_TITLE, names(ROUTE).chain(names(SHARED)), place, notes);
        }
    }
}

fn read_keys<R, W>(
    to: &mut R,
    keys: &'static [Key<R, W>],
    title: &str,
    table: Table<'_>,
    notes: &mut Notes,
) {
    for (name, place, node) in table.entries() {
        match find(keys, name) {
            Some(key) => (key.read)(to, node, notes),
            None => unknown(name, title, names(keys), place, notes),
        }
    }
}

fn find<R, W>(keys: &'static [Key<R, W>], name: &str) -> Option<&'static Key<R, W>> {
    keys.iter().find(|key| key.name == name)
}

fn names<R, W>(keys: &'static [Key<R, W>]) -> impl Iterator<Item = &'static str> {
    keys.iter().map(|key| key.name)
}

/// Reports a key that a table does not have, with the one that was probably meant.
fn unknown(
    name: &str,
    title: &str,
    names: impl Iterator<Item = &'static str>,
    place: Place,
    notes: &mut Notes,
) {
    let names: Vec<_> = names.collect();
    let home =
        sections().into_iter().find(|section| section.rows.iter().any(|row| row.name == name));
    let advice = match (suggest::nearest(name, names.iter().copied()), home) {
        (Some(near), _) => format!("did you mean `{near}`?"),
        (None, Some(home)) => format!("it belongs to {}", home.title),
        (None, None) => format!("{title} has {}", names.join(", ")),
    };
    notes.error(place, format!("unknown key `{name}`; {advice}"));
}

/// Reports a key that is missing.
fn require(table: Table<'_>, name: &str, title: &str, notes: &mut Notes) {
    if !table.has(name) {
        notes.error(table.place, format!("`{title}` needs the key `{name}`"));
    }
}

/// Reads an address, and whether proxies send headers there.
fn read_address(node: Node<'_>, notes: &mut Notes) -> Option<(Address, bool)> {
    if node.is_table() {
        let mut draft = AddressDraft::default();
        let table = node.table(notes)?;
        read_keys(&mut draft, LISTEN, "listen", table, notes);
        let is_ip = table.has("address");
        if !is_ip {
            require(table, "unix", "listen", notes);
        }
        for key in ["unix", "mode", "owner"].into_iter().filter(|key| is_ip && table.has(key)) {
            notes.error(table.place, format!("`{key}` is for Unix sockets; `address` is none"));
        }
        let address = if is_ip { draft.address? } else { Address::Unix(draft.socket) };
        return Some((address, draft.proxy_protocol));
    }
    let address = match node.text(value::address, notes)? {
        Address::Unix(mut socket) => {
            socket.path = node
                .join(socket.path.to_str()?)
                .map_err(|why| notes.error(node.place, why))
                .ok()?;
            Address::Unix(socket)
        }
        address => address,
    };
    Some((address, false))
}

/// Reads an interface: its name, or a table.
fn read_interface(node: Node<'_>, notes: &mut Notes) -> Option<Interface> {
    if !node.is_table() {
        let name = node.text(value::interface, notes)?;
        return Some(Interface { name, ..Interface::default() });
    }
    let mut interface = Interface::default();
    let table = node.table(notes)?;
    read_keys(&mut interface, INTERFACE, "interface", table, notes);
    require(table, "name", "interface", notes);
    if let Err(error) = interface.check() {
        notes.error(table.place, error);
    }
    Some(interface)
}

fn interface_text(interface: &Interface) -> String {
    if interface.addresses.is_empty() && interface.gateways.is_empty() {
        return quoted(&interface.name);
    }
    inline_text(INTERFACE, interface)
}

fn read_log(node: Node<'_>, notes: &mut Notes) -> Option<LogTarget> {
    match node.as_text() {
        Some("none") => Some(LogTarget::None),
        Some("-") => Some(LogTarget::Stdout),
        _ => node.file(notes).map(LogTarget::File),
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
        _ => read(node, notes).map(Some),
    }
}

fn set<T>(to: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *to = value;
    }
}

const fn files(route: &Route) -> Option<&Files> {
    route.action.files()
}

fn gateway(route: &Route) -> Option<&GatewayRules> {
    route.action.upstream().map(|upstream| &upstream.rules)
}

/// Writes the lines of `[server]`.
pub(super) fn write_server(server: &Server) -> String {
    lines(SERVER, server)
}

/// Writes the lines of a site without its routes.
pub(super) fn write_site(site: &Site) -> String {
    let errors = errors_text(&site.errors).map(|text| format!("errors = {text}\n"));
    lines(SITE, site) + &errors.unwrap_or_default()
}

/// Writes the lines of a route.
pub(super) fn write_route(route: &Route) -> String {
    lines(ROUTE, route) + &lines(SHARED, route)
}

fn lines<R, W>(keys: &'static [Key<R, W>], from: &W) -> String {
    let line = |key: &Key<R, W>| Some(format!("{} = {}\n", key.name, (key.write)(from)?));
    keys.iter().filter_map(line).collect()
}

fn inline_text<R, W>(keys: &'static [Key<R, W>], from: &W) -> String {
    let entry = |key: &Key<R, W>| Some(format!("{} = {}", key.name, (key.write)(from)?));
    let all: Vec<_> = keys.iter().filter_map(entry).collect();
    format!("{{ {} }}", all.join(", "))
}

fn errors_text(errors: &BTreeMap<u16, String>) -> Option<String> {
    let page = |(status, path): (&u16, &String)| format!("{status} = {}", quoted(path));
    let all: Vec<_> = errors.iter().map(page).collect();
    (!all.is_empty()).then(|| format!("{{ {} }}", all.join(", ")))
}

fn address_text(address: &Address, proxy_protocol: bool) -> String {
    let draft = match address {
        Address::Ip(ip) if !proxy_protocol => return quoted(&ip.to_string()),
        Address::Ip(_) => AddressDraft {
            address: Some(address.clone()),
            proxy_protocol,
            ..AddressDraft::default()
        },
        Address::Unix(socket) => {
            AddressDraft { address: None, socket: socket.clone(), proxy_protocol }
        }
    };
    inline_text(LISTEN, &draft)
}

/// The text of a path, which came from a string of TOML.
fn path_text(path: &Path) -> String {
    quoted(&path.to_string_lossy())
}

fn list_text<T: ToString>(values: &[T]) -> String {
    let all: Vec<_> = values.iter().map(|value| quoted(&value.to_string())).collect();
    format!("[{}]", all.join(", "))
}

fn some_list_text<T: ToString>(values: &[T]) -> Option<String> {
    (!values.is_empty()).then(|| list_text(values))
}

fn bytes_text(bytes: u64) -> String {
    quoted(&value::bytes_text(bytes))
}

fn seconds_text(time: Duration) -> String {
    time.as_secs_f64().to_string()
}

/// All tables, in the order of the documentation.
pub(super) fn sections() -> Vec<Section> {
    fn rows<R, W>(keys: &'static [Key<R, W>]) -> Vec<Row> {
        let row = |key: &Key<R, W>| Row {
            name: key.name,
            kind: key.kind,
            default: key.default,
            example: key.example,
            doc: key.doc,
        };
        keys.iter().map(row).collect()
    }
    let section = |title, doc, rows| Section { title, doc, rows };
    vec![
        section(
            "the top of the file",
            "Keys outside all tables; they stand before the first one.",
            rows(TOP),
        ),
        section(
            SERVER_TITLE,
            "The settings of the process. Flags of `samum serve` beside `--config` override them.",
            rows(SERVER),
        ),
        section(SITE_TITLE, "A site: what is served to requests for some hosts.", rows(SITE)),
        section(
            ROUTE_TITLE,
            "A route: what is done with the requests for some paths of a site. A route has exactly one action.",
            rows(ROUTE),
        ),
        section(
            "[[site]] and [[site.route]]",
            "A route inherits these keys from its site. A key of the route replaces that of the site, but \
             `limits` and `errors` are merged, and `headers` are added to those of the site.",
            rows(SHARED),
        ),
        section("listen", "An address, as an element of `listen`.", rows(LISTEN)),
        section("interface", "An interface, as an element of `interface`.", rows(INTERFACE)),
        section("pcap", "The table `pcap`.", rows(PCAP)),
        section("log", "The table `log`.", rows(LOG)),
        section("limits", "The table `limits`.", rows(LIMITS)),
        section("headers", "An element of `headers`.", rows(HEADER)),
        section("redirect", "The table `redirect`.", rows(REDIRECT)),
        section("cgi", "The table `cgi`.", rows(CGI)),
        section("fastcgi", "The table `fastcgi`.", rows(FASTCGI)),
    ]
}
