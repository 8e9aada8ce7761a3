//! Configurations as in files, without a file system.

use core::time::Duration;
use std::collections::BTreeMap;

use proptest::option;
use proptest::prelude::*;
use ring::Choice;
use sendfile::{Caching, Policy, Window};

use super::*;
use crate::print::{shown, to_toml};
use crate::{
    Access, Account, Action, Address, Balance, Capture, Cgi, Confine, Congestion, ErrorFormat,
    FileRules, Files, FixedStatus, Frames, GatewayRules, HashBy, HeaderRule, HealthRules, Https,
    Interface, Limits, Listen, Log, LogFormat, LogTarget, OwnFormat, Peers, Piece, Protocol, Rate,
    Redirect, RequestHeader, Route, Sample, ServerAddress, ServerUrl, Site, StatusSet, Symlinks,
    Tags, Tls, TlsClients, TlsFiles, TlsProfile, Tuning, UnixSocket, Upstream, UpstreamTls,
    Variable, value,
};

mod acme;
mod elsewhere;

/// Files in memory.
struct Fake(BTreeMap<PathBuf, Vec<u8>>);

impl Fake {
    fn new(files: &[(&str, &str)]) -> Self {
        Self(files.iter().map(|(path, text)| (path.into(), text.as_bytes().to_vec())).collect())
    }
}

impl Environment for Fake {
    fn working_directory(&self) -> &Path {
        Path::new("/etc")
    }

    fn threads(&self) -> usize {
        3
    }

    fn canonical(&mut self, path: &Path) -> PathBuf {
        PathBuf::from(path.to_str().unwrap().replace("/samum/../", "/"))
    }

    fn read(&mut self, path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
        let bytes = self.0.get(path).ok_or(io::ErrorKind::NotFound)?;
        if bytes.len() as u64 > bytes_max {
            Err(io::ErrorKind::FileTooLarge.into())
        } else {
            Ok(bytes.clone())
        }
    }

    fn list(&mut self, directory: &Path) -> io::Result<Vec<String>> {
        let names = self.0.keys().rev().filter(|path| path.parent() == Some(directory));
        let names: Vec<_> =
            names.map(|path| path.file_name().unwrap().to_str().unwrap().to_owned()).collect();
        if names.is_empty() { Err(io::ErrorKind::NotFound.into()) } else { Ok(names) }
    }
}

fn load_files(files: &[(&str, &str)]) -> Result<Loaded, Errors> {
    load(Path::new("samum/a.toml"), &mut Fake::new(files))
}

fn load_text(text: &str) -> Result<Loaded, Errors> {
    load_files(&[("/etc/samum/a.toml", text)])
}

fn config(text: &str) -> Config {
    load_text(text).unwrap_or_else(|errors| panic!("{text}\n{errors}")).config
}

fn errors(text: &str) -> String {
    load_text(text).map(|_| ()).expect_err(text).to_string()
}

fn warnings(text: &str) -> String {
    Errors(load_text(text).unwrap_or_else(|errors| panic!("{text}\n{errors}")).warnings).to_string()
}

/// A site with a route that has these keys.
fn with_route(keys: &str) -> String {
    format!("[[site]]\n[[site.route]]\n{keys}\n")
}

#[test]
fn the_shortest_file_means_what_the_command_line_means() {
    let mut expected = Config::default();
    expected.server.threads = 3;
    expected.sites[0].is_default = false;
    let Action::Files(files) = &mut expected.sites[0].routes[0].action else { unreachable!() };
    files.root = "/etc/samum/www".into();
    assert_eq!(config(&with_route("files = './www/'")), expected);
}

#[test]
fn a_route_that_sets_its_limit_on_requests_does_not_count_with_others() {
    let read = config(
        r#"
        [[site]]
        limits = { requests-per-ip = "2/s" }
        [[site.route]]
        files = "/x"
        [[site.route]]
        path = "/y/"
        files = "/y"
        limits = { requests-per-ip = "2/s" }
        [[site.route]]
        path = "/z/"
        files = "/z"
        limits = { requests-per-ip = "none", connections-per-ip = 3 }
        "#,
    );
    let own: Vec<_> =
        read.sites[0].routes.iter().map(|route| route.limits.has_own_requests).collect();
    assert_eq!(own, [false, true, false]);
    assert_eq!(config(&to_toml(&read)), read, "{}", to_toml(&read));
}

#[test]
fn a_route_inherits_from_its_site() {
    let config = config(
        r#"
        [[site]]
        index = "a"
        listing = true
        allow = ["10.0.0.0/8"]
        limits = { connections-per-ip = 1, requests-per-ip = "2/s" }
        headers = [{ set = { A = "site" } }]
        errors = { 404 = "/404", 500 = "/500" }
        server-timing = true
        log = "x.log"
        [[site.route]]
        files = "/x"
        [[site.route]]
        path = "/y/"
        files = "/y"
        index = ["b", "c"]
        listing = false
        allow = []
        deny = ["10.0.0.1"]
        limits = { connections-per-ip = "none", bytes-per-connection = "1k/s" }
        headers = [{ remove = ["A"] }]
        errors = { 404 = "/y/404" }
        server-timing = false
        "#,
    );
    let [x, y] = &config.sites[0].routes[..] else { unreachable!() };
    let ten = "10.0.0.0/8".parse().unwrap();
    let (Action::Files(of_x), Action::Files(of_y)) = (&x.action, &y.action) else { unreachable!() };
    assert_eq!((&of_x.rules.index[..], of_x.rules.listing), (&["a".to_owned()][..], true));
    let index = ["b", "c"].map(str::to_owned);
    assert_eq!((&of_y.rules.index[..], of_y.rules.listing), (&index[..], false));
    assert_eq!(x.access, Access { allow: vec![Peers::Prefix(ten)], deny: vec![] });
    assert_eq!(y.access, Access { allow: vec![], deny: vec!["10.0.0.1".parse().unwrap()] });
    let requests = Some(Rate { per_second: 2.0, burst: 2 });
    let limits = Limits { requests, ..Limits::default() };
    assert_eq!(x.limits, Limits { connections: Some(1), ..limits });
    assert_eq!(y.limits, Limits { bytes_per_second: Some(1024), ..limits });
    assert_eq!((x.headers.len(), y.headers.len()), (1, 2));
    assert_eq!(y.headers[0], x.headers[0]);
    let site = &config.sites[0];
    let of_x = (&x.access, x.limits, &x.headers, x.server_timing);
    let of_site = (&site.access, site.limits, &site.headers, site.server_timing);
    assert_eq!(of_site, of_x, "for the responses that no route makes");
    assert_eq!(x.errors[&404], "/404");
    assert_eq!((&y.errors[&404][..], &y.errors[&500][..]), ("/y/404", "/500"));
    assert!(x.server_timing && !y.server_timing);
    assert_eq!(config.sites[0].log.target, LogTarget::File("/etc/samum/x.log".into()));
}

#[test]
fn a_limit_for_bodies_is_inherited_by_the_routes_that_take_bodies() {
    let config = config(
        "[[site]]\nmax-body = '1k'\n[[site.route]]\nfiles = 'x'\n[[site.route]]\npath = '/a/'\ncgi = 'x'\n\
         [[site.route]]\npath = '/b/'\nproxy = 'unix:s'\nmax-body = 5\n\
         [[site.route]]\npath = '/c/'\nfiles = 'x'\nfastcgi = 'unix:s'\nmax-body = 'none'\n",
    );
    let limits = config.sites[0].routes.iter().map(|route| route.max_body);
    assert_eq!(limits.collect::<Vec<_>>(), [None, Some(1024), Some(5), None]);
}

#[test]
fn a_route_has_its_own_fields_for_servers_or_those_of_its_site() {
    let config = config(
        "[[site]]\nrequest-headers = { A = '1', B = '' }\n[[site.route]]\nproxy = 'unix:s'\n[[site.route]]\n\
         path = '/a/'\nfiles = 'x'\n[[site.route]]\npath = '/b/'\nproxy = 'unix:s'\nrequest-headers = { C = '$host' }\n",
    );
    let fields = config.sites[0].routes.iter().map(|route| {
        let fields = route.request_headers.iter();
        fields.map(|field| (field.name(), field.text())).collect::<Vec<_>>()
    });
    let expected = [vec![("A", "1"), ("B", "")], vec![], vec![("C", "$host")]];
    assert_eq!(fields.collect::<Vec<_>>(), expected);
}

#[test]
fn included_files_are_read_in_the_order_of_their_names() {
    let site =
        |host: &str| format!("[[site]]\nhosts = ['{host}']\n[[site.route]]\nfiles = 'www'\n");
    let main = format!("include = ['conf.d/*.toml', '/other/one.toml']\n{}", site("main"));
    let nested = format!("include = 'deep/?.toml'\n{}", site("b"));
    let loaded = load_files(&[
        ("/etc/samum/a.toml", &main),
        ("/etc/samum/conf.d/b.toml", &nested),
        ("/etc/samum/conf.d/a.toml", &site("a")),
        ("/etc/samum/conf.d/.hidden.toml", "not TOML"),
        ("/etc/samum/conf.d/c.txt", "not TOML"),
        ("/etc/samum/conf.d/deep/x.toml", &site("x")),
        ("/other/one.toml", &site("one")),
    ]);
    let config = loaded.unwrap().config;
    let sites = config.sites.iter().map(|site| {
        let Action::Files(files) = &site.routes[0].action else { unreachable!() };
        (&site.name[..], files.root.to_str().unwrap())
    });
    assert_eq!(
        sites.collect::<Vec<_>>(),
        [
            ("main", "/etc/samum/www"),
            ("a", "/etc/samum/conf.d/www"),
            ("b", "/etc/samum/conf.d/www"),
            ("x", "/etc/samum/conf.d/deep/www"),
            ("one", "/other/www"),
        ]
    );
}

#[test]
fn errors_of_included_files_name_these() {
    let main =
        "include = ['b.toml', 'c.toml', 'b.toml', 'none.toml', 'a.toml', 'x/*.toml', '*/x', '']";
    let text = load_files(&[
        ("/etc/samum/a.toml", main),
        ("/etc/samum/b.toml", "include = '../samum/a.toml'\n[server]\nthread = 1"),
        ("/etc/samum/c.toml", "[server]\n[[site]]\nlisten = ["),
    ]);
    let text = text.unwrap_err().to_string();
    for expected in [
        "samum/b.toml:1:11: error: samum/../samum/a.toml includes itself",
        "samum/b.toml:3:1: error: unknown key `thread`; did you mean `threads`?",
        "samum/c.toml:3:",
        "samum/a.toml:1:32: error: samum/b.toml is included twice",
        "samum/a.toml:1:42: error: cannot read samum/none.toml: there is no such file",
        "samum/a.toml:1:55: error: samum/a.toml includes itself",
        "samum/a.toml:1:65: error: cannot read samum/x: there is no such file",
        "samum/a.toml:1:77: error: expected the path of a file, whose last part alone",
        "samum/a.toml:1:84: error: expected the path of a file, whose last part alone",
    ] {
        assert!(text.contains(expected), "{expected}\n{text}");
    }
    let server = load_files(&[
        ("/etc/samum/a.toml", "include = 'b.toml'\n[server]\n"),
        ("/etc/samum/b.toml", "[server]\n"),
    ]);
    let expected = "samum/b.toml:1:1: error: another file has `[server]` at samum/a.toml:2";
    let text = server.unwrap_err().to_string();
    assert!(text.contains(expected), "{text}");
}

#[test]
fn includes_have_a_depth() {
    let files: Vec<_> = (0..10)
        .map(|at| {
            let name = format!("/etc/samum/{}.toml", char::from(b'a' + at));
            (name, format!("include = '{}.toml'\n", char::from(b'b' + at)))
        })
        .collect();
    let files: Vec<_> = files.iter().map(|(name, text)| (&name[..], &text[..])).collect();
    let text = load_files(&files).unwrap_err().to_string();
    assert!(text.contains("i.toml:1:11: error: samum/j.toml: more than 8 files"), "{text}");
    assert!(!text.contains("samum/k.toml"), "{text}");
}

#[test]
fn files_have_a_size_together() {
    let large = "#".repeat(usize::try_from(BYTES_MAX).unwrap() - 30);
    let files = [
        ("/etc/samum/a.toml", "include = ['b.toml', 'c.toml']"),
        ("/etc/samum/b.toml", &large[..]),
        ("/etc/samum/c.toml", "#"),
    ];
    let text = load_files(&files).unwrap_err().to_string();
    assert!(text.contains("c.toml: the files have more than 64 MiB together"), "{text}");
    assert!(!text.contains("b.toml: the files"), "{text}");
}

#[test]
fn a_file_that_cannot_be_read_is_an_error() {
    let text = load_files(&[]).unwrap_err().to_string();
    assert_eq!(text, "error: cannot read samum/a.toml: there is no such file");
    let mut fake = Fake(BTreeMap::from([("/etc/samum/a.toml".into(), b"# \xff\n".to_vec())]));
    let text = load(Path::new("samum/a.toml"), &mut fake).unwrap_err().to_string();
    assert!(text.starts_with("samum/a.toml:1:3: error: the file is not UTF-8\n"), "{text}");
}

#[test]
fn many_errors_are_counted() {
    let hosts: Vec<_> = (0..60).map(|at| format!("'a:{at}'")).collect();
    let text =
        errors(&format!("[[site]]\nhosts = [{}]\n[[site.route]]\nfiles = 'x'", hosts.join(", ")));
    assert_eq!(text.matches("has no port").count(), 50, "{text}");
    assert!(text.ends_with("error: 10 more are not shown"), "{text}");
}

#[test]
fn an_error_shows_its_line() {
    assert_eq!(
        errors("[server]\n\tthreads = \"ä\" # many\n[[site]]"),
        "samum/a.toml:2:12: error: expected a whole number from 1 to 1024, found a string\n  \
           2 |  threads = \"ä\" # many\n    \
             |            ^^^\n\
         samum/a.toml:3:1: error: the site has no route: add `[[site.route]]` with `files = \"DIR\"`\n  \
           3 | [[site]]\n    \
             | ^^^^^^^^"
    );
    let long = errors(&format!("[server]\ncontrol = \"{}\" x = 1", "a".repeat(1000)));
    let shown = long.lines().nth(1).unwrap();
    assert!(shown.chars().count() < 120 && shown.contains("aa\" x = 1"), "{long}");
    let caret = long.lines().nth(2).unwrap().find('^').unwrap();
    assert_eq!(shown.replace('…', ".").get(caret..=caret), Some("x"), "{long}");
}

#[test]
fn terminals_are_safe_from_files() {
    let text = errors("\"\\u202e\\u001b[2J\" = 1\n# \u{202e}");
    assert!(text.contains(r"unknown key `\u{202e}\u{1b}[2J`"), "{text}");
    let text = errors("a = '\u{202e}'");
    assert!(!text.contains('\u{202e}'), "{text}");
}

#[test]
fn mistakes_are_explained() {
    let site = |keys: &str| format!("[[site]]\n{keys}\n[[site.route]]\nfiles = 'x'\n");
    let routes =
        |keys: &str| format!("[[site]]\n[[site.route]]\nfiles = 'x'\n[[site.route]]\n{keys}\n");
    let mut wrong = Vec::new();
    for (text, expected) in [
        // TOML and types.
        ("a = ".to_owned(), "1:5: error: "),
        ("[server]\nthreads = 1\nthreads = 2\n".to_owned(), "3:1: error: duplicate key"),
        ("[server]\nthreads = 0\n".to_owned(), "expected a whole number from 1 to 1024"),
        ("[server]\nthreads = 2.5\n".to_owned(), "found a number with a fraction"),
        (
            "[server]\ntimeout-idle = true\n".to_owned(),
            "expected a number, or a string with a unit, found true",
        ),
        (
            "[server]\ntimeout-idle = '5 minutes'\n".to_owned(),
            "expected seconds, such as 30 or 0.5",
        ),
        ("[server]\ntimeout-idle = 0\n".to_owned(), "expected from 0.1 to 1000000000 seconds"),
        ("[server]\nrate-min = '1x'\n".to_owned(), "expected bytes per second"),
        ("[server]\ndriver = 'kqueue'\n".to_owned(), "expected `auto`, `uring` or `epoll`"),
        ("[server]\nhosts = ['a']\n".to_owned(), "unknown key `hosts`; it belongs to [[site]]"),
        ("[server]\nwhatever = 1\n".to_owned(), "unknown key `whatever`; [server] has threads, "),
        ("[site]\n".to_owned(), "expected `[[site]]` in two brackets, found a table"),
        ("server = 1".to_owned(), "expected a table in braces"),
        ("include = 1".to_owned(), "expected a list in brackets"),
        (String::new(), "error: there is no site to serve"),
        // Hosts and addresses.
        (site("host = ['a']"), "unknown key `host`; did you mean `hosts`?"),
        (site("server_name = 'a'"), "unknown key `server_name`; use `hosts`"),
        (site("proxy_pass = 'a'"), "unknown key `proxy_pass`; use `proxy` in [[site.route]]"),
        (site("gzip = true"), "unknown key `gzip`; files are not compressed on the fly"),
        (site("hosts = 'a'"), "expected a list in brackets"),
        (site("readahead = '4g'"), "expected at most 4294967295 bytes"),
        (site("readahead = 4294967296"), "expected at most 4294967295 bytes"),
        (site("hosts = ['a.org:80']"), "write `a.org`, and the port in `listen`"),
        (site("hosts = ['[::1]:80']"), "write `[::1]`, and the port in `listen`"),
        (site("hosts = ['::1']"), "write `[::1]`"),
        (site("hosts = ['http://a.org/x']"), "a host is no URL; write `a.org`"),
        (site("hosts = ['bücher.example']"), "the form that begins with `xn--`"),
        (site("hosts = ['*']"), "`default = true`"),
        (site("hosts = ['www.*.org']"), "a wildcard is `*.` before a name"),
        (site("hosts = ['a b']"), "expected a host, such as"),
        (
            site("hosts = ['a.org', 'A.ORG.']"),
            "2:19: error: `a.org` is a host of 127.0.0.1:8080 already at samum/a.toml:2",
        ),
        (site("listen = []"), "expected at least one address"),
        (site("listen = ['a.org:80']"), "expected ADDRESS:PORT"),
        (site("allow = ['all']"), "all: all addresses are \"0.0.0.0/0\" and \"::/0\""),
        (
            routes("proxy = 'unix:s'\ntimeout = 5"),
            "unknown key `timeout`; use `timeout-connect` or `timeout-upstream` or `timeout-upstream-send`; `timeout` \
             belongs to",
        ),
        (site("listen = [':80', '0.0.0.0:80']"), "0.0.0.0:80 is listed twice"),
        (site("listen = [{ mode = '660' }]"), "`listen` needs the key `address` or `unix`"),
        (site("listen = [{ unix = 's', mode = 'rw' }]"), "expected three octal digits"),
        (site("listen = [{ address = ':80', mode = '660' }]"), "`mode` is for Unix sockets"),
        (site("listen = [{ address = 'unix:s' }]"), "expected ADDRESS:PORT"),
        (
            site("listen = [{ unix = 's', mode = '600' }, 'unix:s']"),
            "another mode or owner at samum/a.toml:2",
        ),
        (site("log = { format = 'json' }"), "expected one of `file`, `syslog` and `journald`"),
        (site("log = { file = 'x', format = 'xml' }"), "expected `common`, `combined` or `json`"),
        (
            site("allow = ['192.0.2.1/24']"),
            "the address has bits behind the length of the range: write 192.0.2.0/24",
        ),
        (site("limits = { requests-per-ip = '5 per second' }"), "expected a rate such as 100/s"),
        (site("limits = { requests-per-ip = '5/s burst 0' }"), "expected a rate such as 100/s"),
        (
            site("limits = { connections = 5 }"),
            "unknown key `connections`; use `connections-per-ip`",
        ),
        // Booleans in the place of words.
        (site("cache = false"), "expected `always`, `never` or `popular`, found false"),
        (site("etag = false"), "expected `stat` or `hash`, found false"),
        (
            site("symlinks = false"),
            "expected `beneath`, `never` or `follow`, or a table, found false",
        ),
        (site("fallback = false"), "expected a value, or \"none\", found false"),
        (site("fallback = 'off'"), "without a value it is \"none\""),
        (site("hsts = 'no'"), "without a value it is \"none\""),
        (site("charset = 'off'"), "without a value it is \"none\""),
        (site("log = false"), "expected a path, `-` for standard output, or `none`, found false"),
        (
            site("log = { file = 'x', format = true }"),
            "`json`, or a text with variables, found true",
        ),
        // Words of other servers for logs.
        (site("log = 'off'"), "without a log it is \"none\"; \"./off\" is a file"),
        (site("log = 'stdout'"), "standard output is \"-\""),
        (site("log = 'stderr'"), "the log goes to standard output, which is \"-\", or to a file"),
        (site("log = 'syslog'"), "syslog is `log = { syslog = \"unix:/dev/log\" }` in a"),
        (site("log = 'syslog:server=unix:/dev/log'"), "syslog is `log = { syslog = "),
        (site("log = { file = 'journald' }"), "`log = { journald = "),
        (
            site("log = { file = 'x', format = 'Combined' }"),
            "expected `common`, `combined` or `json`, or a text with variables; did you mean `combined`?",
        ),
        (
            site("log = { file = 'x', format = '$remote_addr $http_x $bytes_sent' }"),
            "unknown variable `$remote_addr`; use `$client`; unknown variable `$http_x`; unknown variable `$bytes_sent`; \
             use `$bytes`, which has the body alone; there are",
        ),
        // Brackets.
        (
            "[[server]]\n".to_owned(),
            "1:1: error: expected `[server]` in single brackets, found a list",
        ),
        (
            site("[[site.limits]]\nx = 1"),
            "expected `[site.limits]` in single brackets, found a list",
        ),
        (site("[[site.log]]\nfile = 'x'"), "expected `[site.log]` in single brackets"),
        (site("[[site.tls]]\nx = 1"), "expected `[site.tls]` in single brackets"),
        (
            "[[site]]\n[site.route]\nfiles = 'x'\n".to_owned(),
            "2:1: error: expected `[[site.route]]` in two brackets, found a table",
        ),
        (
            site("headers = { X = 'y' }"),
            "expected a list of tables, such as `[{ set = { Cache-Control = \"no-cache\" } }]`, found a table",
        ),
        ("[[route]]\nfiles = 'x'\n".to_owned(), "unknown key `route`; write `[[site.route]]`"),
        // Keys in the wrong place, and words of other servers.
        (
            routes("files = 'x'\ninclude = 'y'"),
            "unknown key `include`; it belongs to the top of the file",
        ),
        (
            routes("files = 'x'\nread-timeout = 5"),
            "unknown key `read-timeout`; use `timeout-upstream`",
        ),
        (
            "[server]\nread-timeout = 5\n".to_owned(),
            "unknown key `read-timeout`; use `timeout-header`",
        ),
        (site("response-headers = []"), "unknown key `response-headers`; use `headers`"),
        (site("server_tokens = 'off'"), "write `headers = [{ remove = [\"Server\"] }]`"),
        (
            site("limit_rate = '1m'"),
            "unknown key `limit_rate`; use `bytes-per-connection` in limits",
        ),
        (routes("proxy_redirect = 'off'"), "it needs no key: a `Location` with the address"),
        (site("ssl_trusted_certificate = 'x'"), "there is no OCSP stapling"),
        (
            routes("files = 'x'\nfastcgi = 'unix:s'\nfastcgi_param = 'x'"),
            "unknown key `fastcgi_param`; use `environment` in `fastcgi`",
        ),
        ("[server]\ngroup = 'x'\n".to_owned(), "unknown key `group`; use `user = \"USER:GROUP\"`"),
        (site("log_format = 'x'"), "unknown key `log_format`; use `format` in log"),
        (site("tls = { chain = 'x' }"), "unknown key `chain`; use `certificate`: its file has"),
        (site("tls = { min-version = '1.2' }"), "unknown key `min-version`; use `profile`"),
        (site("tls = { password = 'x' }"), "unknown key `password`; a key is not encrypted"),
        (site("listen = [{ port = 80 }]"), "unknown key `port`; use `address`"),
        (site("listen = [{}]"), "`listen` needs the key `address` or `unix`"),
        (
            routes("proxy = 'http://unix:/run/x.sock:/a'"),
            "\"http://unix:/run/x.sock:/a\": write \"unix:/run/x.sock\"",
        ),
        (
            routes("redirect = 'https://$host$request_uri'"),
            "a target has no variables such as `$host`, but `$0`, `$1` and so on; `$$` is the character itself; to send \
             clients to the same URL with `https` write `https = \"redirect\"` into [[site]]",
        ),
        (
            routes("redirect = 'https://{host}{uri}'"),
            "a target has no variables such as `{host}`; to send clients to the same URL with `https` write",
        ),
        (routes("redirect = '/a/{http.request.uri}'"), "no variables such as `{http.request.uri}`"),
        // TLS.
        (
            site("tls = '/x.pem'"),
            "2:7: error: expected `acme`, `self-signed`, or a table: `{ certificate = \"FILE\", key = \"FILE\" }`",
        ),
        (
            site("tls = true"),
            "expected `acme`, `self-signed`, or a table: `{ certificate = \"FILE\", key = \"FILE\" }`, found true",
        ),
        (site("tls = {}"), "`tls` needs the key `certificate`"),
        (site("tls = { certificate = [] }"), "2:23: error: expected at least one path"),
        (site("tls = { certificate = '' }"), "expected a path in the file system"),
        (
            site("tls = { certificate = ['a', 'b', 'a'] }"),
            "2:23: error: /etc/samum/a is listed twice",
        ),
        (
            site("tls = { certificate = ['a', 'b'], key = 'c' }"),
            "2:41: error: `certificate` has 2 files and `key` has 1: list one key for each certificate",
        ),
        (
            site("tls = { certificate = 'self-signed', key = 'c' }"),
            "2:44: error: a self-signed certificate has a key of its own: leave `key` out",
        ),
        (
            site("tls = { certificate = 'a', profile = 'old' }"),
            "expected `modern` or `intermediate`",
        ),
        (site("tls = { certificate = 'a', client = 'b' }"), "expected a table in braces"),
        (site("tls = { certificate = 'a', client = {} }"), "`client` needs the key `ca`"),
        (site("tls = { cert = 'a' }"), "unknown key `cert`; use `certificate`"),
        (site("certificate = 'a'"), "unknown key `certificate`; it belongs to tls"),
        (site("ssl_certificate = 'a'"), "unknown key `ssl_certificate`; use `tls`"),
        (site("ssl_protocols = 'TLSv1.3'"), "unknown key `ssl_protocols`; use `profile` in `tls`"),
        (site("ssl_client_certificate = 'a'"), "use `client` in tls"),
        (
            site(
                "listen = [':80', { address = ':443', tls = true }, { address = '[::]:443', tls = true }]",
            ),
            "2:18: error: the site `default` has no certificate for 0.0.0.0:443: add `tls = { certificate = \"FILE\", \
             key = \"FILE\" }` to the site, `tls = \"acme\"`, or `tls = \"self-signed\"` for a test",
        ),
        (site("https = 'force'"), "2:9: error: expected `allow` or `redirect`"),
        (site("https = true"), "2:9: error: expected `allow` or `redirect`, found true"),
        (
            site(
                "https = 'redirect'\nlisten = [{ address = ':443', tls = true }]\ntls = 'self-signed'",
            ),
            "2:9: error: `https = \"redirect\"` needs `hosts`: a client is sent to one of these names only",
        ),
        (
            site("https = 'redirect'\nhosts = ['a.org']"),
            "2:9: error: `https = \"redirect\"` leads nowhere without a listener that speaks TLS: write `{ address = \
             \"0.0.0.0:443\", tls = true }` into `listen`, or name the proxy that speaks TLS for the site in \
             `trusted-proxies` of [server]",
        ),
        (
            site("hsts = 'yes'"),
            "2:8: error: expected a time in days or whole seconds, such as 180d",
        ),
        (site("hsts = '11y'"), "expected a time in days"),
        (site("hsts = 0"), "expected from 1 second to 3650d"),
        (site("hsts = '4000d'"), "expected from 1 second to 3650d"),
        (site("hsts = 1.5"), "expected a time in days or whole seconds"),
        (site("route = 1"), "duplicate key"),
        (site("name = ''"), "expected a name of visible characters"),
        (
            "[[site]]\ndefault = true\n[[site]]\ndefault = true\n".to_owned(),
            "4:11: error: 127.0.0.1:8080 has a default site already at samum/a.toml:2",
        ),
        // Routes.
        ("[[site]]\n".to_owned(), "the site has no route"),
        ("[[site]]\nroute = []\n".to_owned(), "the site has no route"),
        (
            with_route(""),
            "the route has no action; it needs one of `files`, `proxy`, `fastcgi`, `redirect`, `redirects`, `status`, `cgi`, `metrics`, `status-page`",
        ),
        (with_route("metrics = false"), "the route has no action"),
        (with_route("status-page = false"), "the route has no action"),
        (
            with_route("status-page = true"),
            "3:15: error: the page would show the state of the server to every client: name those that may see it",
        ),
        (
            with_route("status-page = true\nallow = []"),
            "the page would show the state of the server",
        ),
        (
            with_route("deny = ['10.0.0.0/8']\nstatus-page = true"),
            "4:15: error: the page would show",
        ),
        (
            with_route("files = 'x'\nfastcgi = 'a:1'\ncheck = '/up'"),
            "`check` asks by HTTP, which no FastCGI application speaks",
        ),
        (
            with_route("files = 'x'\nmetrics = true"),
            "4:11: error: the route has another action already",
        ),
        (routes("path = 'a'\nfiles = 'x'"), "a path begins with a slash; did you mean `/a`?"),
        (routes("path = ''\nfiles = 'x'"), "a path begins with a slash; did you mean `/`?"),
        (routes("path = '/a//b/./c/../'\nfiles = 'x'"), "not in its normal form, which is `/a/b/`"),
        (routes("path = '/..'\nfiles = 'x'"), "not in its normal form, which is `/`"),
        (routes("path = '/a%20b'\nfiles = 'x'"), "without `%`"),
        (routes("path = '/a?b'\nfiles = 'x'"), "a path ends before `?`"),
        (routes("match = '**********'\nfiles = 'x'"), "at most 9 stars"),
        (routes("match = ''\nfiles = 'x'"), "expected a pattern"),
        (
            routes("match = '*.{css,js}'\nfiles = 'x'"),
            "5:9: error: *.{css,js}: alternatives in braces are not supported: write one for each, `*.css` and `*.js`; \
             `\\{` is the character itself",
        ),
        (
            routes("files = 'x'\nheaders = [{ match = '*.{css,js}' }]"),
            "6:22: error: *.{css,js}: alternatives in braces are not supported",
        ),
        (
            routes("match = '~ \\.php$'\nfiles = 'x'"),
            "5:9: error: ~ \\.php$: this is a regular expression",
        ),
        (
            routes("match = '*.php$'\nfiles = 'x'"),
            "5:9: error: *.php$: this is a regular expression",
        ),
        (routes("match = '*.[jt]s'\nfiles = 'x'"), "a choice of characters in brackets"),
        (
            routes("path = '*.js'\nfiles = 'x'"),
            "5:8: error: a path has no stars: use `match = \"*.js\"`",
        ),
        (
            routes("path = '/images/*'\nfiles = 'x'"),
            "5:8: error: a path has no stars: `path = \"/images/\"` has all paths below it, or use `match = \"/images/*\"`",
        ),
        (
            routes("path = '/x*'\nfiles = 'x'"),
            "5:8: error: a path has no stars: use `match = \"/x*\"`",
        ),
        (
            routes("path = '/{a,b}/'\nfiles = 'x'"),
            "5:8: error: a path is no pattern, which is said with `match`: alternatives in braces",
        ),
        (routes("path = '= /a'\nfiles = 'x'"), "5:8: error: a path is no pattern"),
        (routes("path = '~ ^/a'\nfiles = 'x'"), "5:8: error: a path is no pattern"),
        (
            site("hosts = ['.example.org']"),
            "write `example.org` for the name itself, and `*.example.org`",
        ),
        (site("hosts = ['~^www\\.']"), "a host is no regular expression"),
        (
            site("hosts = ['{a,b}.example.org']"),
            "a host is no regular expression, and has no alternatives",
        ),
        (routes("files = ''"), "expected a path in the file system"),
        (routes("errors = { 200 = '/x' }\nfiles = 'x'"), "200 is no status of an error"),
        (routes("errors = { 404 = 'x' }\nfiles = 'x'"), "a path begins with a slash"),
        (routes("headers = [{ set = { 'A B' = 'x' } }]\nfiles = 'x'"), "no name of a field"),
        (
            routes("headers = [{ set = { Content-Length = '1' } }]\nfiles = 'x'"),
            "only the server itself writes this field",
        ),
        (
            routes("headers = [{ set = { A = \"b\\nc: d\" } }]\nfiles = 'x'"),
            "a value has neither line ends nor control",
        ),
        (
            routes("redirect = { to = '/x', status = 304 }"),
            "has the status 301, 302, 303, 307 or 308",
        ),
        (routes("redirect = { status = 301 }"), "`redirect` needs the key `to`"),
        (
            routes("status = 199"),
            "5:10: error: expected a whole number from 200 to 599, or a table",
        ),
        (routes("status = 600"), "expected a whole number from 200 to 599, or a table"),
        (routes("status = { code = 600 }"), "error: expected a whole number from 200 to 599\n"),
        (routes("status = 304"), "304 only answers the condition of a request"),
        (
            routes("status = '404'"),
            "expected a whole number from 200 to 599, or a table, found a string",
        ),
        (routes("status = { text = 'x' }"), "`status` needs the key `code`"),
        (routes("status = { code = 204, text = '' }"), "a 204 has no content, so no `text`"),
        (routes("status = { code = 205, text = 'x' }"), "a 205 has no content"),
        (routes("status = { code = 200, body = 'x' }"), "unknown key `body`; use `text`"),
        (
            routes(&format!("status = {{ code = 200, text = '{}' }}", "x".repeat((64 << 10) + 1))),
            "a text has 64 KiB at most",
        ),
        (routes("status = 403\nfiles = 'x'"), "the route has another action already"),
        (routes("return = 403"), "unknown key `return`; use `redirect` or `status`"),
        (site("return = 403"), "use `redirect` or `status` in [[site.route]]"),
        (routes("respond = 403"), "unknown key `respond`; use `status`"),
        (
            routes("proxy = 'unix:s'\nrequest-headers = { Transfer-Encoding = 'x' }"),
            "6:21: error: Transfer-Encoding: only the server itself writes this field",
        ),
        (
            routes("proxy = 'unix:s'\nrequest-headers = { X-A = '1', x_a = '2' }"),
            "6:32: error: `X-A` is the same field for a server",
        ),
        (
            routes("proxy = 'unix:s'\nrequest-headers = { X-A = '$clinet' }"),
            "6:27: error: unknown variable `$clinet`; did you mean `$client`? there are `$client`, `$host`, \
             `$method`, `$path`, `$peer`, `$query`",
        ),
        (
            routes("proxy = 'unix:s'\nrequest-headers = { X-A = \"a\\nb\" }"),
            "a value has neither line ends nor control characters",
        ),
        (
            routes(&format!(
                "proxy = 'unix:s'\nrequest-headers = {{ {} }}",
                (0..8)
                    .map(|n| format!("A{n} = '{}'", "x".repeat(4096)))
                    .collect::<Vec<_>>()
                    .join(", ")
            )),
            "the fields of a route have 32 KiB at most",
        ),
        (routes("proxy = 'unix:s'\nrequest-headers = { Host = '' }"), "a request has a `Host`"),
        (routes("proxy = 'unix:s'\nrequest-headers = { X-A = 1 }"), "expected a string"),
        (
            routes("cgi = 'x'\nrequest-headers = { A = 'b' }"),
            "only routes with `proxy` send fields to servers; `environment` sets variables",
        ),
        (
            routes("status = 403\nrequest-headers = {}"),
            "only routes with `proxy` send fields to servers",
        ),
        (
            site("request-headers = {}"),
            "2:19: error: no route of the site sends fields to a server",
        ),
        (site("proxy_set_header = 'x'"), "unknown key `proxy_set_header`; use `request-headers`"),
        (routes("path = '/a'\nfiles = 'x'\nindex = []"), "7:9: error: expected at least one name"),
        (
            routes("path = '/a'\nfiles = 'x'\nindex = ['a', 'b/c']"),
            "7:15: error: expected the name of a file in",
        ),
        (
            routes("path = '/a'\nfiles = 'x'\nindex = ['a', 'b', 'a']"),
            "7:9: error: `a` is listed twice",
        ),
        (routes("path = '/a'\nfiles = 'x'\nindex = 1"), "expected a list in brackets"),
        (
            routes(
                "path = '/a'\nfiles = 'x'\nindex = ['1', '2', '3', '4', '5', '6', '7', '8', '9']",
            ),
            "an index has 8 names at most",
        ),
        (
            routes(
                "path = '/a'\nfiles = 'x'\nfastcgi = 'unix:s'\n[[site.route]]\npath = '/b'\nfiles = 'x'\n\
                    index = ['index.html', 'index.php']",
            ),
            "the index `index.php` would be sent, and not run: add `fastcgi`",
        ),
        (routes("redirect = 'x'"), "expected a path such as `/new/`, or a URL"),
        (routes("redirect = '//x'"), "expected a path such as `/new/`, or a URL"),
        (routes("redirect = '/a b'"), "visible ASCII characters only"),
        (routes("redirect = '/$x'"), "`$` is followed by a digit"),
        (routes("redirect = '/$1'"), "`$1` needs a `match` with stars"),
        (routes("match = '/*'\nredirect = '/$2'"), "`$2` has no star: `match` is `/*`"),
        (routes("path = '/a/'\nredirect = '/a/'"), "leads to itself"),
        (routes("path = '/a'\nredirect = '/a/$0'"), "leads to itself"),
        (routes("path = '/a/'\nredirect = '/x/../%61/b?c'"), "leads to itself"),
        (routes("match = '/a/*'\nredirect = '/a/b/$1'"), "leads to itself"),
        (
            routes("max-body = '1m'\nredirect = '/x'"),
            "5:12: error: the route takes no bodies: only routes with `proxy`, `fastcgi` or `cgi` do",
        ),
        (routes("max-body = 'none'\npath = '/a'\nfiles = 'x'"), "the route takes no bodies"),
        (site("max-body = '1m'"), "2:12: error: no route of the site takes bodies"),
        (routes("max-body = 0\ncgi = 'x'"), "1 byte at least; without a limit it is \"none\""),
        (routes("max-body = 'much'\ncgi = 'x'"), "expected a number of bytes"),
        (site("client_max_body_size = '1m'"), "unknown key `client_max_body_size`; use `max-body`"),
        (routes("cgi = { processes = 1 }"), "`cgi` needs the key `directory`"),
        (routes("cgi = { directory = 'x', processes = 0 }"), "expected a whole number from 1 to"),
        (
            routes("cgi = { directory = 'x', environment = { A-B = '' } }"),
            "expected the name of a variable",
        ),
        (
            routes("cgi = { directory = 'x', environment = { A = \"\\u0000\" } }"),
            "a variable has no NUL",
        ),
    ] {
        let found = errors(&text);
        if !found.contains(expected) {
            wrong.push(format!("{text}\n{expected}\n{found}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn paths_that_a_site_names_lead_to_files() {
    let site = |routes: &[&str]| {
        let routes: String =
            routes.iter().map(|keys| format!("[[site.route]]\n{keys}\n")).collect();
        format!("[[site]]\nlog = '-'\n{routes}")
    };
    for (text, expected) in [
        (
            site(&["files = 'x'\npath = '/a/'\nfallback = '/b'"]),
            "6:12: error: no route of the site serves files at `/b`",
        ),
        (
            site(&["files = 'x'\nfallback = '/b'", "path = '/b'\nmetrics = true"]),
            "serves files at `/b`",
        ),
        (
            site(&["files = 'x'\npath = '/a/'\nerrors = { 404 = '/404' }"]),
            "6:18: error: no route of the site serves files at `/404`",
        ),
        (site(&["cgi = 'x'\nerrors = { 404 = '/404' }"]), "serves files at `/404`"),
        (
            site(&["files = 'x'\nfallback = '/b/x'", "path = '/b/'\nfiles = 'y'\nfallback = '/c'"]),
            "error: the fallbacks of 8 routes lead to each other",
        ),
        (site(&["files = 'x'\nfallback = '/b/x'", "path = '/b/'\nredirects = 'y'"]), ""),
        (site(&["files = 'x'\nfallback = '/index.html'"]), ""),
        (site(&["files = 'x'\nfallback = '/b/x'", "path = '/b/'\nfiles = 'y'"]), ""),
        (
            site(&[
                "files = 'x'\nfallback = '/b/x'",
                "path = '/b/'\nfiles = 'y'\nfallback = '/b/y'",
            ]),
            "",
        ),
        (
            site(&[
                "cgi = 'x'\nerrors = { 404 = '/e/404' }",
                "path = '/e/'\nfiles = 'y'\ninternal = true",
            ]),
            "",
        ),
    ] {
        match load_text(&text) {
            Ok(_) => assert_eq!(expected, "", "{text}"),
            Err(errors) => {
                let found = errors.to_string();
                assert!(!expected.is_empty() && found.contains(expected), "{text}\n{found}");
            }
        }
    }
    // Values that routes inherit are reported once.
    let inherited = "[[site]]\nerrors = { 404 = '/404' }\nfallback = '/x'\n\
                     [[site.route]]\npath = '/a/'\nfiles = 'x'\n[[site.route]]\npath = '/b/'\nfiles = 'x'\n";
    assert_eq!(errors(inherited).matches("error").count(), 3, "{}", errors(inherited));
}

#[test]
fn dollars_in_redirections_are_captures_or_themselves() {
    let route = |to: &str| {
        format!("[[site]]\n[[site.route]]\npath = '/a/'\nmatch = '*'\nredirect = '{to}'\n")
    };
    for to in ["/$$1", "/b/$1$0$$", "/$$$1"] {
        let Action::Redirect(redirect) = &config(&route(to)).sites[0].routes[0].action else {
            unreachable!()
        };
        assert_eq!(redirect.to, to);
    }
    assert!(errors(&route("/$$$2")).contains("`$2` has no star"));
    assert!(errors(&route("/a/$$")).contains("leads to itself"));
}

#[test]
fn what_is_only_unusual_is_no_error() {
    let two = |keys: &str| {
        format!("[[site]]\n[[site.route]]\npath = '/b/'\nfiles = 'x'\n[[site.route]]\n{keys}\n")
    };
    for text in [
        two("path = '/a/'\nredirect = '/b/$0'"),
        two("path = '/a/'\nredirect = 'https://a.org/a/$0'"),
        two("path = '/'\nredirect = '/b/$0'"),
        two("match = '*.php'\nredirect = '/b$1'"),
        two("match = '/*.htm'\nredirect = '/$1.html'"),
        two("files = 'ä'\nerrors = { 404 = '/ä/404.html' }\npath = '/ä'"),
        two("status = 301\nheaders = [{ set = { location = '/b/' } }]"),
        two("status = { code = 200, text = '' }"),
        two("status = 401\nheaders = [{ set = { www-authenticate = 'Basic' } }]"),
    ] {
        assert_eq!(warnings(&text), "", "{text}");
    }
    let text = "[[site]]\nhosts = ['EXAMPLE.org.', '*.Example.ORG', '[2001:DB8:0::1]', 'xn--bcher-kva.example']\n\
                [[site.route]]\nfiles = 'x'\n";
    let hosts = &config(text).sites[0].hosts;
    assert_eq!(*hosts, ["example.org", "*.example.org", "[2001:db8::1]", "xn--bcher-kva.example"]);
}

/// A misspelled action or route has one error, and other unknown keys have one list of actions.
#[test]
fn an_unknown_key_is_the_only_error_of_its_cause() {
    let routes = |keys: &[&str]| {
        let routes: String = keys.iter().map(|keys| format!("[[site.route]]\n{keys}\n")).collect();
        errors(&format!("[[site]]\n{routes}"))
    };
    let shown = routes(&["file = 'x'", "root = 'x'\nproxy_pass = 'y'", "alias = 'z'"]);
    assert_eq!(shown.matches("error: unknown key").count(), 4, "{shown}");
    assert_eq!(shown.matches("error:").count(), 4, "{shown}");
    let shown = routes(&["qqq = 'x'", "path = '/a'\nqqq = 'x'"]);
    assert_eq!(shown.matches("has no action").count(), 1, "{shown}");
    assert!(shown.contains("2:1: error: the route has no action"), "{shown}");
    let shown = routes(&["file = 'x'", "path = '/a'", "path = '/b'"]);
    assert_eq!(shown.matches("has no action").count(), 2, "{shown}");
    for title in [
        "[[site.rout]]",
        "[[site.routes]]",
        "[[site.location]]",
        "[site.route]",
        "[[route]]",
        "[[routes]]",
    ] {
        let shown = errors(&format!("[[site]]\n{title}\nfiles = 'x'\n"));
        assert_eq!(shown.matches("error:").count(), 1, "{shown}");
        assert!(shown.contains("route"), "{shown}");
    }
}

#[test]
fn a_wrong_value_is_the_only_error_of_its_cause() {
    let site = |keys: &str| format!("[[site]]\n{keys}\n[[site.route]]\nfiles = 'x'\n");
    for text in [
        with_route("metrics = 'yes'"),
        with_route("status-page = 1"),
        with_route("redirect = true"),
        with_route("redirect = 'x'"),
        with_route("fastcgi = 5"),
        with_route("proxi = 'unix:s'\nmax-body = '1m'\nrequest-headers = { A = 'b' }"),
        with_route("status-page = true\nallow = ['all']"),
        with_route("proxy = 'unix:s'\nbuffer = 'x'\nbuffer-dir = '/x'"),
        "[[site]]\nmax-body = '1m'\n[[site.rout]]\nproxy = 'unix:s'\n".to_owned(),
        site("listen = [':80', { address = '0.0.0.0:80', tls = true }]"),
        site("listen = [{ port = 80 }]"),
        site("listen = [{}, ':80']"),
        site("log = { path = 'x' }"),
        site("tls = { cert = 'x', key = 'y' }"),
        "[[site]]\nlisten = [':80'\nhosts = ['a']\n\n[[site.route]]\nfiles = 'x'\n".to_owned(),
        "[[site]]\nname = 'a\nhosts = ['b']\n\n[[site.route]]\nfiles = 'x'\n".to_owned(),
    ] {
        let shown = errors(&text);
        assert_eq!(shown.matches("error:").count(), 1, "{text}\n{shown}");
    }
    let shown = errors("[[site]]\nlisting = on\n[[site.route]]\nfiles = x\ndotfiles = no\n");
    assert!(shown.contains("2:11: error: `on` is no value: write `true`"), "{shown}");
    assert!(shown.contains("5:12: error: `no` is no value: write `false`"), "{shown}");
    assert_eq!(shown.matches("error:").count(), 3, "{shown}");
}

#[test]
fn probable_mistakes_are_warnings() {
    let two = |one: &str, other: &str| {
        format!(
            "[[site]]\n[[site.route]]\nfiles = 'x'\n{one}\n[[site.route]]\nfiles = 'x'\n{other}\n"
        )
    };
    for (text, expected) in [
        (two("", ""), "5:1: warning: no request reaches this route: another one has the same paths at samum/a.toml:2"),
        (two("path = '/a/'", "path = '/a/'"), "no request reaches this route"),
        (two("match = '*.x'", "match = '*.x'"), "no request reaches this route"),
        (two("path = '/img/'", "path = '/img/'\nmatch = '/css/*'"), "8:9: warning: no path of the route, whose `path` is `/img/`, can match"),
        (two("", "path = '/img/'\nmatch = '/im'"), "can match"),
        (two("", "path = '/img'\nmatch = '/imgx'"), "can match"),
        (two("", "match = 'x*'"), "7:9: warning: no path can match"),
        (two("", "match = '/images/'"), "7:9: warning: only the very path `/images/` matches; for all paths below it write"),
        (two("", "match = '**.php'"), "7:9: warning: `**` is two stars"),
        (with_route("files = 'x'\nheaders = [{ match = '/a/**' }]"), "4:22: warning: `**` is two stars"),
        (with_route("files = 'x'\nheaders = [{ match = '.css' }]"), "4:22: warning: no path can match"),
        (
            with_route("files = 'x'\nheaders = [{ set = { X-Host = 'a $host' } }]"),
            "4:31: warning: `$host` is sent as it is: the fields of responses have no variables",
        ),
        (with_route("status = 308"), "3:10: warning: a 308 without `Location` leads nowhere: use `redirect`"),
        (with_route("status = 206"), "3:10: warning: a 206 without `Content-Range` is a part of nothing: use 200"),
        (with_route("status = { code = 401, text = 'x' }"), "3:10: warning: a 401 without `WWW-Authenticate` asks for nothing"),
        (
            "[[site]]\n[[site.route]]\nfiles = 'x'\n[[site]]\n[[site.route]]\nfiles = 'y'\n".to_owned(),
            "4:1: warning: no request reaches this site",
        ),
        (
            "[[site]]\n[[site.route]]\nfiles = 'x'\n[[site]]\ndefault = true\n[[site.route]]\nfiles = 'y'\n"
                .to_owned(),
            "1:1: warning: no request reaches this site",
        ),
        (
            "[[site]]\nhosts = ['_']\n[[site.route]]\nfiles = 'x'\n".to_owned(),
            "2:10: warning: `_` is only a name here",
        ),
        (format!("include = '*.conf'\n{}", with_route("files = 'x'")), "1:11: warning: no file matches"),
        (
            "[[site]]\nhsts = '180d'\n[[site.route]]\nfiles = 'x'\n".to_owned(),
            "2:8: warning: `hsts` does nothing without a listener that speaks TLS: write `{ address = \
             \"0.0.0.0:443\", tls = true }` into `listen`, or name the proxy",
        ),
        (
            "[[site]]\ntls = 'self-signed'\n[[site.route]]\nfiles = 'x'\n".to_owned(),
            "2:7: warning: `tls` does nothing without a listener that speaks TLS: write `{ address = \
             \"0.0.0.0:443\", tls = true }` into `listen`",
        ),
    ] {
        let found = warnings(&text);
        assert!(found.contains(expected) && found.matches("warning").count() == 1, "{text}\n{found}");
    }
    for text in [
        two("", "match = '*'"),
        two("path = '/a/'", "path = '/a'"),
        two("", "path = '/img/'\nmatch = '/img/*'"),
        two("", "path = '/img/'\nmatch = '/?m*'"),
        two("", "path = '/img/'\nmatch = '/img/'"),
        two("", "match = '/'"),
        with_route("match = '/img/'\nredirect = '/other/'"),
        two("", "path = '/img'\nmatch = '/img'"),
        two("", "path = '/img/'\nmatch = '*'"),
        two("", "path = '/img/'\nmatch = '/img/a/b'"),
        "[[site]]\n[[site.route]]\nfiles = 'x'\n[[site]]\nlisten = [':1']\n[[site.route]]\nfiles = 'y'\n"
            .to_owned(),
    ] {
        assert_eq!(warnings(&text), "", "{text}");
    }
}

#[test]
fn a_key_that_the_action_of_its_route_does_nothing_with_is_a_warning() {
    let files = "listing = true\nindex = 'a'\nfallback = 'none'\nincludes = true\n";
    let servers = "retries = 1\nbalance = 'least'\nsplice = false\ncheck = 'none'\n";
    let gateways = "half-close = true\n";
    for (action, useless) in [
        ("files = 'x'", &[servers, gateways][..]),
        ("redirect = '/x'", &[files, servers, gateways]),
        ("redirects = 'x'", &[files, servers, gateways]),
        ("status = 404", &[files, servers, gateways]),
        ("metrics = true", &[files, servers, gateways]),
        ("cgi = 'x'", &[files, servers]),
        ("proxy = 'unix:s'", &[files]),
        ("fastcgi = { server = 'unix:s', root = 'x' }", &[files]),
        ("files = 'x'\nfastcgi = 'unix:s'", &[]),
    ] {
        let (key, _) = action.rsplit('\n').next().and_then(|last| last.split_once(' ')).unwrap();
        let path = "[[site]]\n[[site.route]]\npath = '/a/'\n";
        let found = warnings(&format!("{path}{action}\n{files}{servers}{gateways}"));
        let useless: Vec<_> = useless.iter().flat_map(|keys| keys.lines()).collect();
        assert_eq!(found.matches("warning: ").count(), useless.len(), "{found}");
        for line in useless {
            let (name, _) = line.split_once(' ').unwrap();
            let expected =
                format!(":1: warning: `{name}` does nothing in a route with `{key}`: it is for `");
            assert!(found.contains(&expected), "{expected}\n{found}");
        }
        // A route gives no warning for a key that it inherits: the site may have it for another route.
        let servers = if key == "fastcgi" { "retries = 1\n" } else { servers };
        let route = "[[site.route]]\npath = '/a/'\n";
        let site = format!("[[site]]\n{files}{servers}{gateways}{route}{action}\n");
        assert_eq!(warnings(&site), "", "{site}");
    }
}

#[test]
fn a_key_without_the_one_that_it_is_about_is_a_warning() {
    for (keys, expected) in [
        (
            "proxy = 'unix:s'\nhash-by = 'path'",
            "`hash-by` does nothing without `balance = \"hash\"`",
        ),
        ("proxy = 'unix:s'\nhash-by = 'path'\nbalance = 'hash'", ""),
        // The default, as `samum check` prints it.
        ("proxy = 'unix:s'\nhash-by = 'client'", ""),
        ("proxy = 'unix:s'\ncheck-interval = 1", "`check-interval` does nothing without `check`"),
        ("proxy = 'unix:s'\ncheck-interval = 1\ncheck = '/'", ""),
        (
            "files = 'x'\ninclude-types = ['text/x']",
            "`include-types` does nothing without `includes = true`",
        ),
        ("files = 'x'\ninclude-types = ['text/x']\nincludes = true", ""),
        ("files = 'x'\nhash-by = 'path'", "`hash-by` does nothing in a route with `files`"),
    ] {
        let found = warnings(&format!("[[site]]\n[[site.route]]\n{keys}\n"));
        assert_eq!(
            found.matches("warning: ").count(),
            usize::from(!expected.is_empty()),
            "{found}"
        );
        assert!(found.contains(expected), "{expected}\n{found}");
    }
}

#[test]
fn an_address_says_whether_proxies_send_headers() {
    let text = "[[site]]\nlisten = [{ address = ':80', proxy-protocol = true }, ':81', \
                { unix = 's', proxy-protocol = true }, { address = ':82' }]\n[[site.route]]\nfiles = 'x'\n";
    let read = config;
    let config = read(text);
    let site = &config.sites[0];
    let have_headers: Vec<_> = site.listen.iter().map(|listen| listen.proxy_protocol).collect();
    assert_eq!(have_headers, [true, false, true, false]);
    let printed = to_toml(&config);
    assert!(printed.contains(r#"{ address = "0.0.0.0:80", proxy-protocol = true }"#), "{printed}");
    assert_eq!(read(&printed).sites, config.sites);
}

#[test]
fn an_address_says_whether_it_speaks_tls() {
    let text = "[[site]]\nlisten = [{ address = ':443', tls = true }, ':80', { unix = 's', tls = true }, \
                { address = ':81', tls = false }]\ntls = 'self-signed'\n[[site.route]]\nfiles = 'x'\n";
    let read = config;
    let config = read(text);
    let site = &config.sites[0];
    let speak_tls: Vec<_> = site.listen.iter().map(|listen| listen.tls).collect();
    assert_eq!(speak_tls, [true, false, true, false]);
    let printed = to_toml(&config);
    let expected = r#"listen = [{ address = "0.0.0.0:443", tls = true }, "0.0.0.0:80", "#;
    assert!(printed.contains(expected), "{printed}");
    assert_eq!(read(&printed).sites, config.sites);
}

#[test]
fn sites_of_an_address_agree_on_the_beginning_of_its_connections() {
    for key in ["proxy-protocol", "tls"] {
        let site = |host: &str, value: &str| {
            format!(
                "[[site]]\nhosts = ['{host}']\nlisten = [{{ address = ':443'{value} }}]\n\
                 [[site.route]]\nfiles = 'x'\n"
            )
        };
        let yes = format!(", {key} = true");
        let text = errors(&(site("a.org", &yes) + &site("b.org", "")));
        let expected = format!(
            "8:11: error: the sites of 0.0.0.0:443 must agree on `{key}`, which is true at samum/a.toml:3"
        );
        assert!(text.contains(&expected), "{text}");
    }
}

/// Reads the keys of a site with a listener with TLS.
fn with_tls(keys: &str) -> Site {
    let listen = "listen = [{ address = ':443', tls = true }]";
    config(&format!("[[site]]\n{listen}\n{keys}\n[[site.route]]\nfiles = 'x'\n")).sites.remove(0)
}

#[test]
fn certificates_have_their_keys() {
    let files = |certificate: &str, key: Option<&str>| TlsFiles {
        certificate: certificate.into(),
        key: key.map(Into::into),
    };
    for (value, expected, printed) in [
        ("'self-signed'", vec![], "\"self-signed\""),
        ("{ certificate = 'self-signed' }", vec![], "\"self-signed\""),
        (
            "{ certificate = 'a' }",
            vec![files("/etc/samum/a", None)],
            r#"{ certificate = "/etc/samum/a", profile = "intermediate" }"#,
        ),
        (
            "{ key = '../b', certificate = '/a' }",
            vec![files("/a", Some("/etc/samum/../b"))],
            r#"{ certificate = "/a", key = "/etc/samum/../b", profile = "intermediate" }"#,
        ),
        // It is the same file, and need not be named.
        (
            "{ certificate = ['/a'], key = ['/./a'] }",
            vec![files("/a", None)],
            r#"{ certificate = "/a", profile = "intermediate" }"#,
        ),
        (
            "{ certificate = ['/a', '/b'], key = ['/c', '/b'] }",
            vec![files("/a", Some("/c")), files("/b", None)],
            r#"{ certificate = ["/a", "/b"], key = ["/c", "/b"], profile = "intermediate" }"#,
        ),
    ] {
        let site = with_tls(&format!("tls = {value}"));
        let tls = Tls { pairs: expected, ..Tls::default() };
        assert_eq!(site.tls.as_ref(), Some(&tls), "{value}");
        let text = to_toml(&Config {
            server: Server::default(),
            sites: vec![site.clone()],
            acme: None,
            secrets: Secrets::default(),
        });
        assert!(text.contains(&format!("\ntls = {printed}\n")), "{text}");
        assert_eq!(config(&text).sites, [site]);
    }
}

#[test]
fn clients_may_need_certificates() {
    let tls = |keys: &str| with_tls(&format!("tls = {{ certificate = 'x', {keys} }}")).tls.unwrap();
    let of = |client: &str| tls(&format!("client = {{ {client} }}")).client.unwrap();
    assert_eq!(tls("profile = 'modern'").profile, TlsProfile::Modern);
    assert_eq!(tls("").client, None);
    let ca = PathBuf::from("/etc/samum/ca");
    assert_eq!(of("ca = 'ca'"), TlsClients::new(ca.clone()));
    assert_eq!(
        of("ca = 'ca', require = false, crl = '/crl'"),
        TlsClients { ca, require: false, crl: Some("/crl".into()) }
    );
}

#[test]
fn each_site_that_is_reached_by_tls_has_a_certificate() {
    let site = |keys: &str| {
        let listen = "listen = [{ address = ':443', tls = true }]";
        format!("[[site]]\n{listen}\n{keys}\n[[site.route]]\nfiles = 'x'\n")
    };
    let tls = "tls = 'self-signed'";
    let missing = |name: &str| format!("the site `{name}` has no certificate for 0.0.0.0:443");
    for (sites, without) in [
        (vec![site(tls)], vec![]),
        (vec![site(tls), site("hosts = ['a.org']")], vec!["a.org"]),
        (
            vec![site("hosts = ['a.org']\nname = 'A'"), site("hosts = ['b.org']")],
            vec!["A", "b.org"],
        ),
        (vec![site(""), site(&format!("hosts = ['a.org']\n{tls}"))], vec!["default"]),
        (vec![site(tls), site("default = true")], vec!["default"]),
        // No request reaches it there.
        (vec![site(tls), site("")], vec![]),
    ] {
        let text = sites.concat();
        let found = load_text(&text).map_or_else(|errors| errors.to_string(), |_| String::new());
        assert_eq!(found.matches("error: ").count(), without.len(), "{text}\n{found}");
        for name in without {
            assert!(found.contains(&missing(name)), "{text}\n{found}");
        }
    }
    // Sites of one address may differ.
    let text = [
        site("hosts = ['a.org']\ntls = { certificate = 'a', profile = 'modern' }"),
        site("hosts = ['b.org']\ntls = { certificate = 'b', client = { ca = 'c' } }"),
    ];
    assert_eq!(warnings(&text.concat()), "");
}

#[test]
fn a_site_says_what_becomes_of_requests_without_tls() {
    let site =
        with_tls("tls = 'self-signed'\nhosts = ['a.org']\nhttps = 'redirect'\nhsts = '180d'");
    assert_eq!((site.https, site.hsts), (Https::Redirect, Some(Duration::from_secs(15_552_000))));
    let site = with_tls("tls = 'self-signed'\nhttps = 'allow'\nhsts = 'none'");
    assert_eq!((site.https, site.hsts), (Https::Allow, None));
    for (seconds, printed) in [(15_552_000, "\"180d\""), (3600, "3600"), (86_401, "86401")] {
        let site = with_tls(&format!("tls = 'self-signed'\nhsts = {seconds}"));
        let text = to_toml(&Config {
            server: Server::default(),
            sites: vec![site.clone()],
            acme: None,
            secrets: Secrets::default(),
        });
        assert!(text.contains(&format!("\nhsts = {printed}\n")), "{text}");
        assert_eq!(config(&text).sites, [site]);
    }
    // A proxy that is trusted says the scheme.
    let text = "[server]\ntrusted-proxies = ['10.0.0.1']\n[[site]]\nhosts = ['a.org']\nhttps = 'redirect'\n\
                hsts = 1\n[[site.route]]\nfiles = 'x'\n";
    assert_eq!(warnings(text), "");
}

#[test]
fn an_error_of_a_file_with_a_certificate_has_its_line() {
    let text = "[[site]]\nlisten = [{ address = ':443', tls = true }]\n\
                tls = { certificate = ['a', 'b'], key = ['c', 'd'], client = { ca = 'e', crl = 'f' } }\n\
                [[site.route]]\nfiles = 'x'\n";
    let loaded = load_text(text).unwrap();
    for (name, column) in [("a", 24), ("b", 29), ("c", 42), ("d", 47), ("e", 69), ("f", 80)] {
        let thing = Thing::TlsFile(format!("/etc/samum/{name}").into());
        let shown = loaded.error(&thing, "it is wrong").to_string();
        let expected = format!("samum/a.toml:3:{column}: error: it is wrong");
        assert!(shown.starts_with(&expected), "{shown}");
    }
}

/// The keys for routes with gateways only.
const GATEWAY: [&str; 18] = [
    "balance",
    "buffer",
    "buffer-dir",
    "check",
    "check-interval",
    "fail-timeout",
    "hash-by",
    "max-body",
    "max-fails",
    "receive-max",
    "request-headers",
    "retries",
    "slow-start",
    "splice",
    "timeout-connect",
    "timeout-upstream",
    "timeout-upstream-send",
    "upstream-tls",
];

/// A file in which a table of the documentation has one line more.
fn with_line(section: &str, name: &str, line: &str) -> String {
    let inline = |key: &str, more: &str| with_route(&format!("{key} = {{ {more}{line} }}"));
    let needed =
        |needed: &str, text: &str| if name == needed { String::new() } else { format!("{text}, ") };
    match section {
        "the top of the file" if name == "site" => line.to_owned(),
        "the top of the file" => format!("{line}\n{}", with_route("files = 'x'")),
        "[server]" => format!("[server]\n{line}\n{}", with_route("files = 'x'")),
        "[[site]] and [[site.route]]" if GATEWAY.contains(&name) => {
            let size = if name == "buffer-dir" { "buffer = '4m'\n" } else { "" };
            with_route(&format!("proxy = 'http://127.0.0.1'\n{size}{line}"))
        }
        "[[site]]" if name == "https" => {
            let tls = "listen = [{ address = ':443', tls = true }]\ntls = 'self-signed'";
            format!("[[site]]\nhosts = ['a.org']\n{tls}\n{line}\n[[site.route]]\nfiles = 'x'\n")
        }
        "[[site]]" | "[[site]] and [[site.route]]" => {
            format!("[[site]]\n{line}\n[[site.route]]\nfiles = 'x'\n")
        }
        "[[site.route]]" => {
            let actions = ["files", "proxy", "redirect", "redirects", "status", "cgi"];
            let flags = ["metrics = true", "status-page = true"];
            let is_action = actions.contains(&name) || flags.contains(&line);
            let path = match name {
                "redirect" => "path = '/old/'",
                "status-page" => "allow = ['127.0.0.1']",
                _ => "",
            };
            with_route(&format!("{line}\n{}\n{path}", if is_action { "" } else { "files = 'x'" }))
        }
        "listen" => {
            let unix = if name == "address" { String::new() } else { needed("unix", "unix = 's'") };
            let tls = if name == "tls" { "tls = 'self-signed'\n" } else { "" };
            format!("[[site]]\n{tls}listen = [{{ {unix}{line} }}]\n[[site.route]]\nfiles = 'x'\n")
        }
        "upstream-tls" => {
            let needed = if name == "key" { "certificate = 'x', " } else { "" };
            with_route(&format!("proxy = 'https://a'\nupstream-tls = {{ {needed}{line} }}"))
        }
        "[acme]" | "eab" => {
            let storage = if name == "storage" { "" } else { "storage = '/s'\n" };
            let line = match (section, name) {
                ("eab", "id") => format!("eab = {{ key-file = 'x', {line} }}"),
                ("eab", _) => format!("eab = {{ id = 'x', {line} }}"),
                _ => line.to_owned(),
            };
            format!(
                "[acme]\n{storage}{line}\n[[site]]\nhosts = ['a.example']\ntls = 'acme'\n\
                 listen = [{{ address = ':443', tls = true }}]\n[[site.route]]\nfiles = 'x'\n"
            )
        }
        "tls" | "client" => {
            let listen = "listen = [{ address = ':443', tls = true }]";
            let (needed, inline) = match section {
                "tls" => (needed("certificate", "certificate = 'x'"), line.to_owned()),
                _ => (
                    "certificate = 'x', ".to_owned(),
                    format!("client = {{ {}{line} }}", needed("ca", "ca = 'x'")),
                ),
            };
            format!(
                "[[site]]\n{listen}\ntls = {{ {needed}{inline} }}\n[[site.route]]\nfiles = 'x'\n"
            )
        }
        "log" => format!(
            "[[site]]\nlog = {{ {}{line} }}\n[[site.route]]\nfiles = 'x'\n",
            if ["syslog", "journald"].contains(&name) {
                String::new()
            } else {
                needed("file", "file = 'x'")
            }
        ),
        "interface" => {
            let own = if name == "gateways" { "addresses = ['10.0.0.1/24'], " } else { "" };
            format!(
                "[server]\ninterface = [{{ {}{own}{line} }}]\n{}",
                needed("name", "name = 'eth0'"),
                with_route("files = 'x'")
            )
        }
        "pcap" => format!(
            "[server]\npcap = {{ {}{line} }}\n{}",
            needed("file", "file = 'x'"),
            with_route("files = 'x'")
        ),
        "limits" => with_route(&format!("limits = {{ {line} }}\nfiles = 'x'")),
        "headers" => with_route(&format!("headers = [{{ {line} }}]\nfiles = 'x'")),
        "symlinks" => with_route(&format!("files = 'x'\nsymlinks = {{ {line} }}")),
        "redirect" => inline("path = '/old/'\nredirect", &needed("to", "to = '/new/'")),
        "status" => inline("status", &needed("code", "code = 200")),
        "cgi" => inline("cgi", &needed("directory", "directory = 'x'")),
        "fastcgi" => with_route(&format!(
            "files = 'x'\nfastcgi = {{ {}{line} }}",
            needed("server", "server = 'unix:s'")
        )),
        other => panic!("{other} is a new section"),
    }
}

#[test]
fn a_status_page_may_have_the_clients_of_its_site() {
    let config = config("[[site]]\nallow = ['unix']\n[[site.route]]\nstatus-page = true\n");
    let route = &config.sites[0].routes[0];
    assert_eq!((&route.action, &route.access.allow[..]), (&Action::StatusPage, &[Peers::Unix][..]));
}

#[test]
fn every_key_takes_its_example_and_its_default() {
    for section in keys::sections() {
        for row in section.rows {
            let line = |value: &str| {
                with_line(section.title, row.name, &format!("{} = {value}", row.name))
            };
            let files = [
                ("/etc/samum/a.toml", &line(row.example)[..]),
                ("/etc/samum/conf.d/b.toml", "# nothing"),
            ];
            let with_example =
                load_files(&files).unwrap_or_else(|errors| panic!("{errors}")).config;
            let Some(default) =
                row.default.strip_prefix('`').and_then(|text| text.strip_suffix('`'))
            else {
                continue;
            };
            let without = config(&with_line(section.title, row.name, ""));
            assert_eq!(config(&line(default)), without, "{} {}", section.title, row.name);
            assert_ne!(with_example, without, "{} {}", section.title, row.name);
        }
    }
}

#[test]
fn a_hash_of_all_files_is_told() {
    let digest = |other: &str| {
        let main = format!("include = 'b.toml'\n{}", with_route("files = 'x'"));
        let files = [("/etc/samum/a.toml", &main[..]), ("/etc/samum/b.toml", other)];
        load_files(&files).unwrap().digest
    };
    assert_eq!(digest("# a"), digest("# a"));
    assert_ne!(digest("# a"), digest("# b"));
}

fn text() -> impl Strategy<Value = String> {
    proptest::collection::vec(any::<char>().prop_filter("no NUL", |char| *char != '\0'), 1..8)
        .prop_map(|chars| chars.into_iter().collect())
}

fn file() -> impl Strategy<Value = PathBuf> {
    text().prop_map(|text| format!("/{}", text.replace(['/', '.'], "a")).into())
}

fn seconds() -> impl Strategy<Value = Duration> {
    (100..10_000_000_u64).prop_map(Duration::from_millis)
}

fn path() -> impl Strategy<Value = String> {
    "(/[a-zä]{1,3}){0,2}/|(/[a-zä]{1,3}){1,2}"
}

fn pattern() -> impl Strategy<Value = Pattern> {
    "[*]?[a-z?/\"]{1,5}[*]?".prop_map(|text| Pattern::new(&text).unwrap())
}

fn prefixes() -> impl Strategy<Value = Vec<crate::Prefix>> {
    let prefix = (any::<u128>(), 0..=128_u32).prop_map(|(bits, len)| {
        let first = bits & u128::MAX.checked_shl(128 - len).unwrap_or(0);
        let address = core::net::Ipv6Addr::from_bits(first);
        format!("{address}/{len}").parse().unwrap()
    });
    let v4 = (any::<u32>(), 0..=32_u32).prop_map(|(bits, len)| {
        let first = bits & u32::MAX.checked_shl(32 - len).unwrap_or(0);
        let address = core::net::Ipv4Addr::from_bits(first);
        format!("{address}/{len}").parse().unwrap()
    });
    proptest::collection::vec(prop_oneof![prefix, v4], 0..3)
}

fn rules() -> impl Strategy<Value = FileRules> {
    let caching = prop_oneof![Just(Caching::Always), Just(Caching::Never), Just(Caching::Popular)];
    let tags = prop_oneof![Just(Tags::Stat), Just(Tags::Hash)];
    let symlinks = prop_oneof![
        Just(Symlinks::Beneath),
        Just(Symlinks::Never),
        Just(Symlinks::Follow),
        proptest::collection::vec(file(), 0..3).prop_map(|into| Symlinks::Into(into.into())),
    ];
    let types =
        proptest::collection::btree_map("[a-z\"]{1,3}[.]?[a-z]", "[a-z]/[a-z]{1,3}(; a=b)?", 0..3);
    let index = proptest::collection::vec(text(), 1..4);
    let texts =
        (index, option::of(Just("/fallback".to_owned())), types, option::of("[a-z]{1,3}-8"));
    let choices = (caching, tags, symlinks, any::<[bool; 5]>(), 0..u64::from(u32::MAX));
    let include_types = proptest::collection::vec("[a-z]{1,4}/[a-z+]{1,4}", 0..3);
    let default_type = "[a-z]{1,4}/[a-z]{1,4}(; a=b)?";
    (texts, choices, include_types, default_type).prop_map(
        |(texts, (caching, tags, symlinks, flags, window), include_types, default_type)| {
            let (index, fallback, types, charset) = texts;
            let index = index.into_iter().map(|name| name.replace(['/', '.'], "a"));
            let index: Vec<_> =
                index.collect::<std::collections::BTreeSet<_>>().into_iter().collect();
            let [listing, clean_urls, dotfiles, precompressed, includes] = flags;
            FileRules {
                index,
                listing,
                policy: Policy { caching, window: Window::of(window) },
                tags,
                fallback,
                clean_urls,
                types,
                default_type,
                charset,
                dotfiles,
                symlinks,
                precompressed,
                includes,
                include_types,
            }
        },
    )
}

fn action() -> impl Strategy<Value = Action> {
    let status = prop_oneof![Just(301), Just(302), Just(303), Just(307), Just(308)];
    prop_oneof![
        (file(), rules()).prop_map(|(root, rules)| Action::Files(Files { root, rules })),
        // No backslash: before a digit it is the star of other servers, and refused.
        (r#"https://[a-z]{1,5}/[!"%-.0-\[\]-z|~]{0,5}([$]0)?"#, status)
            .prop_map(|(to, status)| Action::Redirect(Redirect { to, status })),
        file().prop_map(Action::Redirects),
        (
            (file(), GatewayRules::BUFFER_MIN..1 << 40, option::of(file())),
            (1..65_536_u32, seconds(), any::<u64>(), environment()),
            [0, 1].map(|least| proptest::collection::vec(file(), least..3))
        )
            .prop_map(|(files, limits, [read, write])| {
                let (root, buffer, buffer_dir) = files;
                let (processes_max, timeout, output_max, environment) = limits;
                Action::Cgi(Cgi {
                    root,
                    processes_max,
                    timeout,
                    output_max,
                    environment,
                    read,
                    write,
                    buffer,
                    buffer_dir,
                })
            }),
        upstream().prop_map(Action::Proxy),
        Just(Action::Metrics),
        Just(Action::StatusPage),
        (200..304_u16, option::of(text()))
            .prop_filter("content", |(code, text)| text.is_none()
                || FixedStatus::has_content(*code))
            .prop_map(|(code, text)| Action::Status(FixedStatus { code, text })),
        (305..600_u16, option::of(text()))
            .prop_map(|(code, text)| Action::Status(FixedStatus { code, text })),
    ]
}

fn upstream() -> impl Strategy<Value = Upstream> {
    let ip = any::<([u16; 7], u16)>().prop_map(|(rest, port)| {
        let [a, b, c, d, e, f, g] = rest;
        let address = core::net::Ipv6Addr::new(0x2001, a, b, c, d, e, f, g);
        ServerAddress::Ip((address, port.max(1)).into())
    });
    let host = ("[a-z]{1,3}[.]org", 1..=u16::MAX);
    let host = host.prop_map(|(host, port)| ServerAddress::Host(host, port));
    // These look like a variable or a pattern of another server.
    let socket = text().prop_map(|text| text.replace(['/', '.', '$', '%', '{', '*'], "a"));
    let socket = socket.prop_map(|name| ServerAddress::Unix(format!("/{name}").into()));
    let address = prop_oneof![ip, host, socket];
    let url = (address, option::of(path())).prop_map(|(address, path)| {
        let path = path.filter(|_| !matches!(address, ServerAddress::Unix(_)));
        ServerUrl { protocol: Protocol::Http, address, path }
    });
    let url = (url, any::<bool>()).prop_map(|(url, has_tls)| match url.address {
        ServerAddress::Unix(_) => url,
        _ if has_tls => ServerUrl { protocol: Protocol::Https, ..url },
        _ => url,
    });
    let pair = (file(), option::of(file()));
    let pair = pair.prop_map(|(certificate, key)| TlsFiles::new(certificate, key));
    let name = option::of("[a-z]{1,3}[.]org");
    let tls = (option::of(file()), name, option::of(pair), any::<bool>());
    let tls = tls.prop_map(|(ca, name, pair, verify)| UpstreamTls { ca, name, pair, verify });
    let tls = tls.prop_map(|tls| (tls != UpstreamTls::default()).then(|| Box::new(tls)));
    let servers = proptest::collection::vec(url, 1..3);
    let balance = prop_oneof![Just(Balance::RoundRobin), Just(Balance::Least), Just(Balance::Hash)];
    let hash_by = prop_oneof![Just(HashBy::Client), Just(HashBy::Path)];
    let timeouts = (seconds(), seconds(), seconds());
    let rules = (GatewayRules::BUFFER_MIN..1 << 40, timeouts, balance, hash_by, 0..3_u32);
    let ways = (option::of(file()), any::<bool>(), GatewayRules::RECEIVE_MIN..1 << 40, tls);
    (servers, rules, health(), ways).prop_map(|(servers, rules, health, ways)| {
        let (dir, splice, receive_max, tls) = ways;
        let (buffer, timeouts, balance, hash_by, retries) = rules;
        let (timeout_connect, timeout_upstream, timeout_upstream_send) = timeouts;
        let rules = GatewayRules {
            buffer,
            buffer_dir: dir.filter(|_| buffer >= GatewayRules::BUFFER_FILE_MIN),
            splice,
            receive_max,
            timeout_connect,
            timeout_upstream,
            timeout_upstream_send,
            balance,
            hash_by,
            retries,
            health,
            tls,
        };
        Upstream { servers, rules }
    })
}

fn health() -> impl Strategy<Value = HealthRules> {
    (0..9_u32, seconds(), option::of(seconds()), option::of(path()), seconds()).prop_map(
        |(max_fails, fail_timeout, slow_start, check, check_interval)| HealthRules {
            max_fails,
            fail_timeout,
            slow_start,
            check,
            check_interval,
        },
    )
}

fn environment() -> impl Strategy<Value = Vec<(String, String)>> {
    let variables = proptest::collection::btree_map("[A-Z_][A-Z0-9_]{0,4}", "[ -~]{0,5}", 0..3);
    variables.prop_map(|variables| variables.into_iter().collect())
}

fn header_rule() -> impl Strategy<Value = HeaderRule> {
    let set = proptest::collection::btree_map("X-[a-z]{1,4}", "([!-~]([ -~]{0,5}[!-~])?)?", 0..3);
    let status = prop_oneof![
        (200..600_u16).prop_map(StatusSet::One),
        (2..=5_u16).prop_map(StatusSet::Class)
    ];
    let statuses = proptest::collection::vec(status, 0..3);
    let remove = proptest::collection::vec("X-[a-z]{1,4}", 0..3);
    (option::of(pattern()), statuses, set, remove).prop_map(|(pattern, statuses, set, remove)| {
        HeaderRule { pattern, statuses, set: set.into_iter().collect(), remove }
    })
}

fn limits() -> impl Strategy<Value = Limits> {
    let rate = (1e-3..1e6_f64, 1..1_000_000_u32);
    let rate = rate.prop_map(|(per_second, burst)| Rate { per_second, burst });
    // Twice of the least rate of clients, see `server`.
    let bytes = 1_u64 << 33..u64::MAX;
    let of = (option::of(1..1_u32 << 20), option::of(rate), option::of(bytes));
    of.prop_map(|(connections, requests, bytes_per_second)| Limits {
        connections,
        requests,
        // A route without a limit of its own shares the limit of its site.
        has_own_requests: requests.is_some(),
        bytes_per_second,
    })
}

fn access() -> impl Strategy<Value = Access> {
    let peers = || {
        (prefixes(), any::<bool>()).prop_map(|(prefixes, unix)| {
            let prefixes = prefixes.into_iter().map(Peers::Prefix);
            prefixes.chain(unix.then_some(Peers::Unix)).collect()
        })
    };
    (peers(), peers()).prop_map(|(allow, deny)| Access { allow, deny })
}

fn route() -> impl Strategy<Value = Route> {
    let errors = proptest::collection::btree_map(417..600_u16, path(), 0..3);
    let headers = proptest::collection::vec(header_rule(), 0..3);
    let fields = proptest::collection::btree_map(
        "[XY]-[a-z]{1,4}",
        "([!-#%-~]{1,5}|[$]{2}|[$][{]host[}]){0,3}",
        0..3,
    );
    let fields = fields.prop_map(|fields| {
        fields.iter().map(|(name, text)| RequestHeader::new(name, text).unwrap()).collect()
    });
    let fields = fields.prop_map(|fields: Vec<_>| -> Arc<[RequestHeader]> { fields.into() });
    let flags = (any::<(bool, bool, bool, bool)>(), option::of(1..u64::MAX), fields);
    let which = (path(), option::of(pattern()), flags);
    (which, access(), limits(), headers, errors, action()).prop_map(
        |(
            (path, pattern, ((is_internal, server_timing, half_close, own_log), max_body, fields)),
            mut access,
            limits,
            headers,
            errors,
            action,
        )| {
            if action == Action::StatusPage {
                access.allow.push(Peers::Unix);
            }
            Route {
                path,
                pattern,
                is_internal,
                access,
                limits,
                headers,
                errors,
                server_timing,
                // It is printed where the responses do not come from files.
                half_close: half_close && action.is_gateway(),
                max_body: max_body.filter(|_| action.is_gateway()),
                request_headers: match action {
                    Action::Proxy(_) => fields,
                    _ => Arc::default(),
                },
                log: own_log.then(|| Log {
                    target: LogTarget::Syslog("/dev/log".into()),
                    format: LogFormat::Own(Arc::new(OwnFormat::new("$status").expect("a format"))),
                    ..Log::default()
                }),
                action,
            }
        },
    )
}

fn address() -> impl Strategy<Value = Address> {
    let name = || option::of("[a-z]{1,4}|[0-9]{1,3}");
    let unix = (file(), option::of(0..=0o777_u32), name(), name());
    let ip = any::<([u16; 7], u16)>().prop_map(|(rest, port)| {
        let [a, b, c, d, e, f, g] = rest;
        Address::Ip((core::net::Ipv6Addr::new(0x2001, a, b, c, d, e, f, g), port).into())
    });
    let v4 = any::<(u32, u16)>()
        .prop_map(|(bits, port)| Address::Ip((core::net::Ipv4Addr::from_bits(bits), port).into()));
    let unix = unix.prop_map(|(path, mode, user, group)| {
        Address::Unix(UnixSocket { path, mode, user, group })
    });
    prop_oneof![ip, v4, unix]
}

fn listen() -> impl Strategy<Value = Listen> {
    (address(), any::<[bool; 3]>()).prop_map(|(address, [proxy_protocol, tls, http2])| Listen {
        address,
        proxy_protocol,
        tls,
        http2,
    })
}

fn tls() -> impl Strategy<Value = Tls> {
    let pairs = proptest::collection::btree_map(file(), option::of(file()), 0..3);
    let pairs = pairs.prop_map(|pairs| {
        pairs.into_iter().map(|(certificate, key)| TlsFiles::new(certificate, key)).collect()
    });
    let client = (file(), any::<bool>(), option::of(file()));
    let client = client.prop_map(|(ca, require, crl)| TlsClients { ca, require, crl });
    let profile = prop_oneof![Just(TlsProfile::Modern), Just(TlsProfile::Intermediate)];
    (pairs, profile, option::of(client)).prop_map(|(pairs, profile, client)| Tls {
        is_acme: false,
        pairs,
        profile,
        client,
    })
}

/// The TLS of a site, and what becomes of requests without it.
fn schemes() -> impl Strategy<Value = (Option<Tls>, Https, Option<Duration>)> {
    let https = prop_oneof![Just(Https::Allow), Just(Https::Redirect)];
    let seconds = prop_oneof![1..=315_360_000_u64, (1..=3650_u64).prop_map(|days| days * 86_400)];
    (option::of(tls()), https, option::of(seconds.prop_map(Duration::from_secs)))
}

fn site() -> impl Strategy<Value = Site> {
    let target = prop_oneof![
        Just(LogTarget::None),
        Just(LogTarget::Stdout),
        file().prop_map(LogTarget::File)
    ];
    let format =
        prop_oneof![Just(LogFormat::Common), Just(LogFormat::Combined), Just(LogFormat::Json)];
    let statuses =
        prop_oneof![Just(Vec::new()), Just(vec![StatusSet::Class(5), StatusSet::One(404)])];
    let sample = prop_oneof![Just(Sample::default()), Just(Sample { of_million: 10_000 })];
    let log = (target, format, statuses, sample)
        .prop_map(|(target, format, statuses, sample)| Log { target, format, statuses, sample });
    let hosts = proptest::collection::vec("([*][.])?[a-z]{1,3}[.]org|\\[2001:db8::[1-9]\\]", 0..3);
    let listen = proptest::collection::vec(listen(), 1..3);
    let routes = proptest::collection::vec(route(), 1..4);
    let headers = proptest::collection::vec(header_rule(), 0..3);
    let which = (listen, hosts, any::<bool>());
    let shared = (access(), limits(), any::<bool>(), any::<bool>(), headers);
    ("[a-zäöü\"\\\\ ]{1,8}x", which, schemes(), log, shared, routes).prop_map(
        |(name, (listen, hosts, is_default), (tls, https, hsts), log, shared, mut routes)| {
            let (access, limits, server_timing, shares, headers) = shared;
            let limits = Limits { has_own_requests: false, ..limits };
            if shares {
                routes[0].limits.requests = limits.requests;
                routes[0].limits.has_own_requests = false;
            }
            // The changes of the site come before those of the route.
            for route in &mut routes {
                route.headers.splice(0..0, headers.iter().cloned());
            }
            Site {
                name,
                listen,
                // A redirection leads to one of the hosts.
                https: if hosts.is_empty() { Https::Allow } else { https },
                hosts,
                is_default,
                tls,
                hsts,
                log,
                access,
                limits,
                headers,
                errors: BTreeMap::new(),
                server_timing,
                routes,
            }
        },
    )
}

fn interface() -> impl Strategy<Value = Interface> {
    let name = prop_oneof![Just("eth1"), Just("enp3s0f1")];
    (name, any::<bool>()).prop_map(|(name, is_ours)| {
        let addresses = ["10.0.0.1/24", "fd00::1/64"].map(|text| text.parse().unwrap());
        let gateway = "10.0.0.254".parse().unwrap();
        Interface {
            name: name.to_owned(),
            addresses: if is_ours { addresses.into() } else { Vec::new() },
            gateways: if is_ours { vec![gateway] } else { Vec::new() },
        }
    })
}

fn capture() -> impl Strategy<Value = Capture> {
    (file(), any::<u64>(), 1..=1000_u16, prefixes()).prop_map(
        |(file, bytes_max, files_max, peers)| Capture { file, bytes_max, files_max, peers },
    )
}

fn server() -> impl Strategy<Value = Server> {
    let driver = prop_oneof![Just(Choice::Auto), Just(Choice::Uring), Just(Choice::Epoll)];
    let format = prop_oneof![Just(ErrorFormat::Text), Just(ErrorFormat::Json)];
    let times = (seconds(), seconds(), seconds(), seconds());
    let proxies = prefixes().prop_map(|prefixes| {
        let prefixes = prefixes.into_iter().map(Peers::Prefix);
        prefixes.chain([Peers::Unix]).collect::<Vec<_>>()
    });
    let numbers = (1..=1024_usize, 1..=1_usize << 20, 0..1_u64 << 32);
    let stack = (proptest::collection::vec(interface(), 0..3), option::of(capture()));
    let group = option::of(Just("adm".to_owned()));
    let account = group.prop_map(|group| Account { user: "samum".to_owned(), group });
    let confine = prop_oneof![Just(Confine::Auto), Just(Confine::Required), Just(Confine::Off)];
    let rights = (option::of(account), option::of(confine));
    (numbers, driver, option::of(file()), proxies, format, times, stack, rights).prop_map(
        |(
            (threads, connections_max, rate_min),
            driver,
            control,
            trusted_proxies,
            error_format,
            times,
            (interfaces, capture),
            (user, confine),
        )| {
            let (timeout_idle, timeout_header, timeout_send, timeout_disk) = times;
            let mut tuning = Tuning {
                connections_max,
                timeout_idle,
                timeout_header,
                timeout_send,
                timeout_disk,
                timeout_drain: (threads % 2 == 0).then_some(timeout_idle),
                rate_min,
                ranges_max: threads,
                ..Tuning::default()
            };
            tuning.set_request_head(1024 * threads.min(256));
            tuning.response_limits.head_bytes_max = 1023 + threads;
            tuning.request_limits.fields_max = threads;
            tuning.response_limits.fields_max = 4 * threads;
            // Without interfaces it is not written.
            let (frames, congestion) = if interfaces.is_empty() {
                (Frames::Auto, Congestion::Cubic)
            } else {
                (Frames::Packet, Congestion::NewReno)
            };
            Server {
                threads,
                driver,
                interfaces,
                frames,
                congestion,
                capture,
                control,
                trusted_proxies,
                error_format,
                user,
                confine,
                tuning,
            }
        },
    )
}

/// Sites whose addresses and hosts are not in each other's way.
fn sites() -> impl Strategy<Value = Vec<Site>> {
    proptest::collection::vec(site(), 1..4).prop_map(|mut sites| {
        let mut sockets = std::collections::HashSet::new();
        for (number, site) in sites.iter_mut().enumerate() {
            site.hosts.sort();
            site.hosts.dedup();
            site.listen.retain(|listen| match &listen.address {
                Address::Ip(address) => sockets.insert(format!("{address}")),
                Address::Unix(socket) => sockets.insert(socket.path.display().to_string()),
            });
            let own = Address::Ip(([127, 0, 0, 1], u16::try_from(number).unwrap()).into());
            site.listen.push(own.into());
            if site.listen.iter().any(|listen| listen.tls) {
                site.tls.get_or_insert_default();
            }
            // Pages and fallbacks lead to files there.
            for route in &mut site.routes {
                route.errors.values_mut().for_each(|page| *page = "/pages/error".to_owned());
                route.path.insert_str(0, "/own");
                let Action::Files(files) = &mut route.action else { continue };
                files.rules.fallback =
                    files.rules.fallback.take().map(|path| format!("/pages{path}"));
            }
            // Routes inherit the pages of their site.
            site.errors.clone_from(&site.routes[0].errors);
            for route in &site.routes {
                site.errors.retain(|status, _| route.errors.contains_key(status));
            }
            let (headers, errors) = (site.headers.clone(), site.errors.clone());
            let path = "/pages/".to_owned();
            site.routes.push(Route { path, headers, errors, ..Route::default() });
            let Some(Action::Files(files)) = site.routes.last_mut().map(|route| &mut route.action)
            else {
                unreachable!()
            };
            files.root = "/pages".into();
        }
        sites
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn what_is_printed_means_the_same(server in server(), sites in sites()) {
        let config = Config { server, sites, acme: None, secrets: Secrets::default() };
        let text = to_toml(&config);
        let read = match load_text(&text) {
            Ok(loaded) => {
                let warnings = Errors(loaded.warnings).to_string();
                // A key without the one that it is about was in the configuration already.
                prop_assert!(!warnings.contains("does nothing in"), "{}\n{}", text, warnings);
                loaded.config
            }
            Err(errors) => panic!("{text}\n{errors}"),
        };
        prop_assert_eq!(&to_toml(&read), &text);
        prop_assert_eq!(read, config);
    }

    #[test]
    fn any_text_is_refused_or_means_something(text in ".{0,200}") {
        let _ = load_text(&text);
    }
}

#[test]
fn a_listener_can_have_the_address_of_a_socket_that_was_passed() {
    struct Unit(Fake, Vec<(String, Address)>);
    impl Environment for Unit {
        fn working_directory(&self) -> &Path {
            self.0.working_directory()
        }
        fn threads(&self) -> usize {
            1
        }
        fn passed(&self) -> &[(String, Address)] {
            &self.1
        }
        fn canonical(&mut self, path: &Path) -> PathBuf {
            self.0.canonical(path)
        }
        fn read(&mut self, path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
            self.0.read(path, bytes_max)
        }
        fn list(&mut self, directory: &Path) -> io::Result<Vec<String>> {
            self.0.list(directory)
        }
    }
    let address = |text: &str| value::address(text).unwrap();
    let passed = [("web", "[::]:80"), ("app", "unix:/run/app"), ("two", ":1"), ("two", ":2")];
    let passed = passed.map(|(name, at)| (name.to_owned(), address(at)));
    let listen = |name: &str| {
        let text =
            format!("[[site]]\nlisten = [\"systemd:{name}\"]\n[[site.route]]\nstatus = 200\n");
        let mut unit = Unit(Fake::new(&[("/etc/a.toml", &text)]), passed.to_vec());
        let loaded = load(Path::new("/etc/a.toml"), &mut unit);
        loaded
            .map(|loaded| loaded.config.sites[0].listen[0].address.clone())
            .map_err(|errors| errors.0[0].to_string())
    };
    assert_eq!(listen("web"), Ok(address("[::]:80")));
    assert_eq!(listen("app"), Ok(address("unix:/run/app")));
    for (name, why) in
        [("two", "several sockets have the name `two`"), ("no", "has passed a socket")]
    {
        let error = listen(name).unwrap_err();
        assert!(error.contains(why), "{error}");
    }
}

/// Files in memory, and an environment.
struct World(Fake, BTreeMap<&'static str, OsString>);

impl Environment for World {
    fn working_directory(&self) -> &Path {
        self.0.working_directory()
    }
    fn threads(&self) -> usize {
        1
    }
    fn canonical(&mut self, path: &Path) -> PathBuf {
        self.0.canonical(path)
    }
    fn variable(&self, name: &str) -> Option<OsString> {
        self.1.get(name).cloned()
    }
    fn read(&mut self, path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
        self.0.read(path, bytes_max)
    }
    fn list(&mut self, directory: &Path) -> io::Result<Vec<String>> {
        self.0.list(directory)
    }
}

/// Loads a file in an environment with some variables and files.
fn load_in_world(text: &str) -> Result<Loaded, Errors> {
    use std::os::unix::ffi::OsStringExt as _;
    let long = "x".repeat(64 * 1024);
    let files = [
        ("/etc/a.toml", text),
        ("/run/credentials/token", "s3cr$t-${APP_PORT}\n"),
        ("/run/credentials/threads", "7\r\n"),
        ("/run/credentials/long", &*long),
        ("/run/credentials/longer", &format!("{long}y")),
        ("/srv/name", "/srv/hidden-place"),
    ];
    let variables = [
        ("APP_PORT", OsString::from("8000")),
        ("ROOT", "/srv/www".into()),
        ("QUOTED", "a\"]\nthreads = 9 # $client".into()),
        ("YES", "true".into()),
        ("EMPTY", OsString::new()),
        ("BYTES", OsString::from_vec(vec![0xff])),
        ("CREDENTIALS_DIRECTORY", "/run/credentials".into()),
    ];
    load(Path::new("/etc/a.toml"), &mut World(Fake::new(&files), variables.into()))
}

#[test]
fn variables_of_the_environment_are_values_of_any_kind() {
    let text = r#"
        include = "${NO_SUCH:-none}/*.toml"
        [server]
        threads = "${NO_SUCH:-5}"
        timeout-idle = "${NO_SUCH:-120}"
        [[site]]
        listen = ["127.0.0.1:${APP_PORT}", { address = "[::1]:${APP_PORT}", proxy-protocol = "${YES}" }]
        hosts = ["${HOST:-a.example}"]
        log = { file = "${LOG:--}", format = "$client ${APP_PORT} $${APP_PORT} ${NO:-$$} $$" }
        [[site.route]]
        files = "${ROOT}/$${ROOT}"
        listing = "${YES}"
        default-type = "${EMPTY:-text/plain}"
        [[site.route]]
        path = "/proxy/"
        proxy = "http://127.0.0.1:${APP_PORT}"
        request-headers = { X-A = "${client} ${APP_PORT} $$", X-B = "${file:token}", X-C = "${EMPTY}" }
        [[site.route]]
        path = "/to/"
        redirect = "https://example.org:${APP_PORT}/$0"
        [[site.route]]
        path = "/status/"
        status = { code = "${CODE:-404}", text = "${QUOTED}" }
    "#;
    let include = "include = \"${NO_SUCH:-none}/*.toml\"";
    let errors = load_in_world(text).map(drop).expect_err("the directory is not there").to_string();
    assert!(errors.contains("cannot read /etc/none"), "{errors}");
    let loaded =
        load_in_world(&text.replace(include, "")).unwrap_or_else(|errors| panic!("{errors}"));
    let config = &loaded.config;
    assert_eq!(config.server.threads, 5);
    assert_eq!(config.server.tuning.timeout_idle, Duration::from_secs(120));
    let site = &config.sites[0];
    let listen: Vec<_> = site.listen.iter().map(|listen| listen.address.to_string()).collect();
    assert_eq!(listen, ["127.0.0.1:8000", "[::1]:8000"]);
    assert!(site.listen[1].proxy_protocol);
    assert_eq!(site.hosts, ["a.example"]);
    let LogFormat::Own(own) = &site.log.format else { panic!("{:?}", site.log.format) };
    assert_eq!(own.text(), "$client 8000 $${APP_PORT} $$$$ $$");
    let route = |path: &str| site.routes.iter().find(|route| route.path == path).expect(path);
    let Action::Files(files) = &route("/").action else { panic!("files") };
    assert_eq!(files.root, Path::new("/srv/www/${ROOT}"));
    assert!(files.rules.listing);
    assert_eq!(files.rules.default_type, "text/plain");
    let fields = &route("/proxy/").request_headers;
    let field = |name: &str| fields.iter().find(|field| field.name() == name).expect(name);
    let text = |text: &str| Piece::Text(text.to_owned());
    assert_eq!(field("X-A").pieces(), [Piece::Variable(Variable::Client), text(" 8000 $")]);
    assert_eq!(field("X-B").pieces(), [text("s3cr$t-${APP_PORT}")]);
    assert_eq!(field("X-C").pieces(), []);
    let Action::Redirect(redirect) = &route("/to/").action else { panic!("a redirect") };
    assert_eq!(redirect.to, "https://example.org:8000/$0");
    let Action::Status(fixed) = &route("/status/").action else { panic!("a status") };
    let quoted = "a\"]\nthreads = 9 # $client";
    assert_eq!((fixed.code, fixed.text.as_deref()), (404, Some(quoted)));
    let files: Vec<_> = loaded.files().collect();
    assert_eq!(files, [Path::new("/etc/a.toml"), Path::new("/run/credentials/token")]);
    // The printed text has no reference any more.
    let mut again = load_text(&to_toml(config)).unwrap_or_else(|errors| panic!("{errors}")).config;
    again.secrets = config.secrets.clone();
    assert_eq!(again, *config);
}

#[test]
fn a_reference_without_a_value_is_one_error_that_names_it() {
    for (value, why) in [
        ("${NO_SUCH}", "the environment has no variable `NO_SUCH`"),
        ("${BYTES}", "the value of the variable `BYTES` is not UTF-8"),
        ("${App}", "`${App}`: a variable of the environment has capitals"),
        ("${ROOT", "expected `}` behind `${ROOT`"),
        ("${file:none}", "cannot read /run/credentials/none: there is no such file"),
        ("${file:/none}", "cannot read /none: there is no such file"),
        ("${NO_SUCH:-${ROOT}}", "`${NO_SUCH:-…}`: a default has no references of its own"),
        ("${file:longer}", "cannot read /run/credentials/longer: a value has 64 KiB at most"),
    ] {
        for key in ["files", "threads", "listing", "listen"] {
            let mut text = with_route("files = \"/\"\nlisting = true\n");
            text = match key {
                "threads" => format!("[server]\nthreads = '{value}'\n{text}"),
                "listen" => {
                    text.replace("[[site.route]]", &format!("listen = '{value}'\n[[site.route]]"))
                }
                "listing" => text.replace("true", &format!("'{value}'")),
                _ => text.replace("\"/\"", &format!("'{value}'")),
            };
            let Errors(errors) = load_in_world(&text).map(drop).expect_err(value);
            assert!(
                errors.len() == 1 && errors[0].line.contains(why),
                "{key} = {value}: {errors:?}"
            );
        }
    }
    let errors = errors(&with_route("files = '${file:name}'"));
    assert!(errors.contains("$CREDENTIALS_DIRECTORY, and that is not set"), "{errors}");
    // A number that is text is none if nothing was replaced.
    for value in ["'5'", "'${ROOT}'", "'${APP_PORT}'", "'${file:token}'"] {
        let text = format!("[server]\nthreads = {value}\n{}", with_route("files = '/'"));
        let errors = load_in_world(&text).map(drop).expect_err(value).to_string();
        assert!(errors.contains("a whole number from 1 to 1024"), "{errors}");
        assert!(!errors.contains("s3cr"), "{errors}");
        let line = errors.lines().next().unwrap_or_default();
        let by = format!("(its value comes by `{}`)", value.trim_matches('\''));
        assert_eq!(line.ends_with(&by), value.contains("${"), "{line}");
    }
    let errors = load_in_world(&with_route("listing = '${ROOT}'\nfiles = '/'"));
    let errors = errors.map(drop).expect_err("no flag").to_string();
    assert!(errors.contains("expected true or false"), "{errors}");
    // The value of a default is named by its variable, and two references are both named.
    for (keys, expected) in [
        ("files = '/'\nlisting = '${NO_SUCH:-maybe}'", "(its value comes by `${NO_SUCH}`)"),
        ("files = '/'\nlisting = '${YES}${ROOT}'", "(its value comes by `${YES}`, `${ROOT}`)"),
        ("proxy = ['http://a', 'ftp://${ROOT}']", "(its value comes by `${ROOT}`)"),
    ] {
        let errors = load_in_world(&with_route(keys)).map(drop).expect_err(keys).to_string();
        assert!(errors.contains(expected), "{keys}: {errors}");
    }
}

#[test]
fn a_wrong_line_with_a_credential_is_not_shown() {
    for keys in [
        "proxy = 'http://u:hunter2@h'",
        "proxy = 'http://h'\nrequest-headers = 'Authorization: Bearer hunter2'",
        "proxy = 'http://h'\nrequest-headers = ['Authorization: Bearer hunter2']",
        "proxy = 'http://h'\nrequest-headers = [\n  'Authorization: Bearer hunter2'\n]",
        "proxy = 'http://h'\nrequest-headers = { Authorization = Bearer hunter2 }",
        "proxy = 'http://h'\nrequest-headers = { X-Api-Key = 'hunter2\", A = 'b' }",
        "proxy = 'http://h'\nrequest-headers.Authorization = hunter2",
        "proxy = 'http://h'\nrequest-header = { Authorization = 'Bearer hunter2' }",
        "proxy = 'http://h'\nrequst_headers = { A = 'Bearer hunter2' }",
        "proxy = 'http://h'\nproxy_set_header = 'Authorization hunter2'",
        "cgi = { directory = '/x', environment = 'PASSWORD=hunter2' }",
        "cgi = { directory = '/x', environment = ['PASSWORD=hunter2'] }",
        "cgi = { directory = '/x', env = { PASSWORD = 'hunter2' } }",
        "files = 'x'\nfastcgi_param = 'DB_PASSWORD hunter2'",
    ] {
        let text = format!("[[site]]\n[[site.route]]\n{keys}");
        let errors = load_text(&text).expect_err(keys).to_string();
        assert!(errors.contains("error: ") && !errors.contains("hunter2"), "{keys}: {errors}");
    }
}

#[test]
fn what_came_from_a_file_and_what_may_be_secret_is_not_shown() {
    let text = r#"
        [server]
        threads = "${file:threads}"
        [[site]]
        errors = { 404 = "${file:/srv/name}.html" }
        [[site.route]]
        files = "${file:/srv/name}"
        headers = [{ set = { X-A = "${file:token}" } }]
        [[site.route]]
        path = "/proxy/"
        proxy = "http://127.0.0.1:${APP_PORT}"
        request-headers = { Authorization = "Bearer hunter2" }
        [[site.route]]
        path = "/cgi/"
        cgi = { directory = "/cgi", environment = { PASSWORD = "hunter3" } }
        [[site.route]]
        path = "/php/"
        fastcgi = { server = "127.0.0.1:9000", root = "/php", environment = { PASSWORD = "hunter4" } }
        [[site.route]]
        path = "/status/"
        status = { code = 200, text = "${file:long}" }
    "#;
    let loaded = load_in_world(text).unwrap_or_else(|errors| panic!("{errors}"));
    assert_eq!(loaded.config.server.threads, 7);
    let text = shown(&loaded.config);
    for secret in ["s3cr", "hidden-place", "hunter", "threads = 7", "xxxx"] {
        assert!(!text.contains(secret), "{secret} in {text}");
    }
    for line in [
        "threads = \"…\"",
        "errors = \"…\"",
        "headers = \"…\"",
        "files = \"…\"",
        "status = \"…\"",
        "Authorization\" = \"…\"",
        "PASSWORD\" = \"…\"",
        "http://127.0.0.1:8000",
    ] {
        assert!(text.contains(line), "{line} in {text}");
    }
    assert!(to_toml(&loaded.config).contains("hunter2"), "the other text means the same");
    let message = loaded.error(&Thing::Directory("/x".into()), "cannot open /srv/hidden-place");
    assert!(message.line.contains("cannot open …"), "{message}");
    let message = loaded.warning(&Thing::Directory("/x".into()), "s3cr$t-${APP_PORT}");
    assert!(!message.line.contains("s3cr"), "{message}");
    // Messages go to logs: they show neither a wrong value, nor the line that has it.
    for (key, value) in [
        ("proxy = 'unix:s'\nrequest-headers", r#""Bearer hunter5\u0001""#),
        ("proxy = 'unix:s'\nrequest-headers", r#""hunter5 $clinet""#),
        ("cgi = { directory = '/cgi' }\nrequest-headers", r#""hunter5""#),
    ] {
        let text = with_route(&format!("{key} = {{ A = {value} }}"));
        let errors = load_in_world(&text).map(drop).expect_err("a wrong value").to_string();
        assert!(errors.contains("error:") && !errors.contains("hunter5"), "{errors}");
    }
    for (name, table) in
        [("cgi", "directory = '/cgi'"), ("fastcgi", "server = 'unix:s', root = '/'")]
    {
        let environment = r#"{ PASSWORD = "hunter6\u0000", 'A B' = "hunter6" }"#;
        let text = with_route(&format!("{name} = {{ {table}, environment = {environment} }}"));
        let errors = load_in_world(&text).map(drop).expect_err("a wrong value").to_string();
        assert!(errors.contains("has no NUL") && !errors.contains("hunter6"), "{errors}");
    }
    // The sentence about a wrong value has the value.
    let errors = load_in_world(&with_route("files = '/'\nreadahead = '${file:token}'"));
    let errors = errors.map(drop).expect_err("no number of bytes").to_string();
    assert!(errors.contains("error:") && !errors.contains("s3cr"), "{errors}");
    assert!(!format!("{:?}", loaded.config.secrets).contains("s3cr"));
}
