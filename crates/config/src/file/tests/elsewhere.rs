//! Words of other servers inside of values.

use super::{errors, load_text, warnings, with_route};

#[test]
fn a_word_of_another_server_that_can_mean_nothing_is_an_error() {
    for (keys, expected) in [
        // Patterns.
        (
            "match = '*.css|*.js'\nfiles = 'x'",
            "3:9: error: *.css|*.js: alternatives with `|` are not supported: write one for each, `*.css` and `*.js`",
        ),
        (
            "files = 'x'\nheaders = [{ match = '*.css|*.js' }]",
            "4:22: error: *.css|*.js: alternatives with `|`",
        ),
        (
            "path = '/a|/b'\nfiles = 'x'",
            "3:8: error: a path is no pattern, which is said with `match`: alternatives with `|`",
        ),
        // Files.
        (
            "files = 'x'\nindex = '$uri.html'",
            "4:9: error: `$uri` is not replaced: an index is the name of a file in the directory, such as index.html; `clean-urls = true` finds `a.html` for `/a`",
        ),
        ("files = 'x'\nindex = ['{path}', 'index.html']", "4:10: error: `{path}` is not replaced"),
        (
            "files = 'x'\nfallback = '$uri $uri/ /index.html'",
            "4:12: error: `$uri` is not replaced: the requested file comes first anyway; write `/index.html`",
        ),
        ("files = 'x'\nfallback = '$uri $uri/ /index.php?$query_string'", "write `/index.php`"),
        (
            "files = 'x'\nfallback = '{path} /index.html'",
            "4:12: error: `{path}` is not replaced: the requested file comes first anyway; write `/index.html`",
        ),
        ("files = 'x'\nfallback = '/$uri.html'", "and `clean-urls = true` finds `a.html` for `/a`"),
        (
            "files = 'x'\nfallback = '{http.request.uri.path}'",
            "a fallback is a path, such as `/index.html`",
        ),
        (
            "files = 'x'\nfallback = ['$uri', '/index.html']",
            "4:12: error: expected one path, such as `/index.html`: the requested file comes first anyway",
        ),
        (
            "files = 'x'\nfallback = '=404'",
            "a path that leads to nothing is a 404 anyway: write \"none\"",
        ),
        ("files = 'x'\nfallback = '@app'", "`@app` is a location of nginx"),
        (
            "files = 'x'\nerrors = { 404 = '@app' }",
            "4:18: error: `@app` is a location of nginx; expected the path of a file of this site",
        ),
        (
            "files = 'x'\nerrors = { 404 = 'https://a.org/404' }",
            "expected the path of a file of this site, such as `/404.html`, and no URL",
        ),
        (
            "files = 'x'\nerrors = { 404 = '/{http.error.status_code}.html' }",
            "`{http.error.status_code}` is not replaced: a path has no variables",
        ),
        (
            "files = 'x'\ntypes = { 'css,js' = 'a/b' }",
            "\"css,js\": each extension has an entry of its own",
        ),
        (
            "files = 'x'\ntypes = { css = 'text/*' }",
            "\"text/*\": a media type has no `*`: write each type",
        ),
        (
            "files = 'x'\nincludes = true\ninclude-types = ['text/*']",
            "5:18: error: \"text/*\": a media type has no `*`: write each type",
        ),
        ("files = 'x'\ninclude-types = ['*']", "is no media type"),
        ("files = 'x'\ndefault-type = '*/*'", "a media type has no `*`"),
        // Redirects.
        (
            "path = '/a/'\nredirect = '/n/:splat'",
            "4:12: error: `:splat` is for the files of `redirects`: here `$1` stands for the first star of `match`, and `$0` for the rest",
        ),
        ("path = '/a/'\nredirect = '/n/\\1'", "the text of a star is `$1`, and not `\\1`"),
        (
            "path = '/a/'\nredirect = '/n/%{REQUEST_URI}'",
            "a target has no variables such as `%{…}`",
        ),
        (
            "path = '/a/'\nredirect = { to = '/n/:splat' }",
            "`:splat` is for the files of `redirects`",
        ),
        // Servers.
        (
            "proxy = 'http://h/$0'",
            "3:9: error: \"http://h/$0\": `$0` is not replaced: a server has a fixed URL; with a path in the URL",
        ),
        (
            "proxy = 'http://h$request_uri'",
            "`$request_uri` is not replaced: a server has a fixed URL",
        ),
        ("proxy = 'http://$host'", "`$host` is not replaced"),
        ("proxy = ['http://h', 'http://{host}/x']", "`{host}` is not replaced"),
        ("proxy = 'http://h/*'", "a server has no patterns: write \"http://h/\""),
        (
            "proxy = 'http://h'\ncheck = '/{path}'",
            "`{path}` is not replaced: a path has no variables",
        ),
        // Clients.
        (
            "files = 'x'\nallow = ['private_ranges']",
            "private_ranges: write \"10.0.0.0/8\", \"172.16.0.0/12\"",
        ),
    ] {
        let shown = errors(&with_route(keys));
        assert!(
            shown.contains(expected) && shown.matches("error:").count() == 1,
            "{keys}\n{shown}"
        );
    }
}

#[test]
fn a_word_of_another_server_that_is_taken_as_it_is_is_a_warning() {
    for (keys, expected) in [
        (
            "match = '*.css, *.js'\nfiles = 'x'",
            "3:9: warning: this is one pattern, and the path must have its space or comma",
        ),
        (
            "files = 'x'\nheaders = [{ match = '/a/* /b/*', remove = ['A'] }]",
            "4:22: warning: this is one pattern",
        ),
        (
            "files = 'x'\nindex = 'index.php index.html'",
            "4:9: warning: this is one name; several names are a list: [\"index.php\", \"index.html\"]",
        ),
        (
            "files = 'x'\nindex = ['a,b']",
            "4:10: warning: this is one name; several names are a list: [\"a\", \"b\"]",
        ),
        (
            "files = 'x'\ntypes = { 'htm html' = 'text/html' }",
            "4:11: warning: this is the name of one file: each extension has an entry of its own",
        ),
        (
            "path = '/a/'\nredirect = '/n/:year/:name?q'",
            "4:12: warning: `:year` is sent as it is: `$1` stands for the first star of `match`",
        ),
        (
            "path = '/a/'\nredirect = { to = 'https://a.org/:id' }",
            "4:19: warning: `:id` is sent as it is",
        ),
        (
            "proxy = 'http://h'\nrequest-headers = { X = '{remote}' }",
            "4:25: warning: `{remote}` is sent as it is: write `$client`",
        ),
        (
            "proxy = 'http://h'\nrequest-headers = { X = 'a {header.X-B}' }",
            "`{header.X-B}` is sent as it is, as it is no variable here",
        ),
        (
            "proxy = 'http://h'\nrequest-headers = { X = '%{REMOTE_ADDR}s' }",
            "`%{…}` is sent as it is",
        ),
        (
            "files = 'x'\nheaders = [{ set = { X = '{host}' } }]",
            "4:26: warning: `{host}` is sent as it is: the fields of responses have no variables",
        ),
        (
            "files = 'x'\nfastcgi = { server = 'a:1', environment = { A = '$document_root$uri' } }",
            "`$uri` is passed as it is: these values have no variables",
        ),
        (
            "cgi = { directory = 'x', environment = { A = '{path}' } }",
            "`{path}` is passed as it is",
        ),
        (
            "status = { code = 200, text = 'hello {remote}' }",
            "`{remote}` is sent as it is: a text has no variables",
        ),
        (
            "files = 'x'\nallow = ['0.0.0.0']",
            "4:10: warning: `0.0.0.0` is a single address: the range is `0.0.0.0/0`",
        ),
        (
            "files = 'x'\ndeny = ['192.168.1.0', '10.0.0.1']",
            "4:9: warning: `192.168.1.0` is a single address: the range is `192.168.1.0/24`",
        ),
    ] {
        let shown = warnings(&with_route(keys));
        assert!(
            shown.contains(expected) && shown.matches("warning:").count() == 1,
            "{keys}\n{shown}"
        );
    }
    let proxies = format!("[server]\ntrusted-proxies = ['::']\n{}", with_route("files = 'x'"));
    let shown = warnings(&proxies);
    assert!(
        shown.contains("2:20: warning: `::` is a single address: the range is `::/0`"),
        "{shown}"
    );
}

#[test]
fn what_only_looks_like_a_word_of_another_server_has_no_warning() {
    for keys in [
        r"match = '/a\|b'
          files = 'x'",
        "match = '/a b/*'\nfiles = 'x'",
        "files = 'x'\nindex = 'read me.html'\ntypes = { 'Release Notes' = 'text/plain' }",
        "files = 'x'\nfallback = '/{id}.html'",
        "path = '/a/'\nredirect = '/Help:Contents/:80/$0'",
        "path = '/a/'\nredirect = 'https://a.org:81/x?to=/:id#:id'",
        "proxy = 'http://h'\nrequest-headers = { X = '{id} ${host} {\"a\": 1}' }",
        "files = 'x'\nheaders = [{ set = { X = '{id} $5 100%' } }]",
        "files = 'x'\nallow = ['10.0.0.0/8', '10.0.0.0/32', '::1']",
    ] {
        // A name with a space may be meant; only lists of short words are taken for lists.
        let expected = if keys.contains("read me") { 1 } else { 0 };
        let shown = warnings(&with_route(keys));
        assert_eq!(shown.matches("warning:").count(), expected, "{keys}\n{shown}");
    }
}

/// The files that paths lead to are known, so a check can look for them.
#[test]
fn fallbacks_and_error_pages_are_named_with_the_files_that_they_lead_to() {
    let loaded = load_text(
        "[[site]]\nerrors = { 404 = '/e/404.html', 500 = '/500' }\n\
         [[site.route]]\nfiles = '/srv'\nclean-urls = true\nfallback = '/app/'\nindex = ['a', 'b']\n\
         [[site.route]]\npath = '/e/'\nfiles = '/errors'\ninternal = true\n",
    )
    .unwrap_or_else(|errors| panic!("{errors}"));
    let named: Vec<_> = loaded
        .named_files()
        .map(|named| {
            let files: Vec<_> = named.files.iter().map(|file| file.to_str().unwrap()).collect();
            (&named.path[..], files.join(" "), named.is_fallback)
        })
        .collect();
    let expected = [
        ("/e/404.html", "/errors/404.html", false),
        ("/500", "/srv/500 /srv/500.html", false),
        ("/app/", "/srv/app/a /srv/app/b", true),
    ];
    assert_eq!(named, expected.map(|(path, files, is)| (path, files.to_owned(), is)));
}

#[test]
fn values_as_other_servers_write_them_have_a_hint() {
    let proxied = |keys: &str| with_route(&format!("proxy = 'http://h'\n{keys}"));
    let site = |keys: &str| format!("[[site]]\n{keys}\n[[site.route]]\nstatus = 404\n");
    let served = |keys: &str| format!("[server]\n{keys}\n{}", site(""));
    for (text, expected) in [
        // Servers.
        (with_route("proxy = 'ws://h:1'"), "write \"http://h:1\", which is for WebSockets, too"),
        (with_route("proxy = 'fcgi://h:1'"), "write `fastcgi = \"h:1\"`"),
        (with_route("proxy = 'h2c://h:1'"), "servers are asked in HTTP/1.1"),
        (with_route("proxy = 'http://a:1 http://b:1'"), "several servers are a list"),
        (with_route("files = '/x'\nfastcgi = 'tcp://h:9000'"), "write \"h:9000\""),
        (
            with_route("files = '/x'\nfastcgi = 'unix//run/php.sock'"),
            "write \"unix:/run/php.sock\"",
        ),
        (proxied("balance = 'least_conn'"), "did you mean `least`?"),
        (proxied("balance = 'ip_hash'"), "did you mean `hash`?"),
        // Redirects and statuses.
        (with_route("redirect = '301 /x'"), "`{ to = \"TARGET\", status = 301 }`"),
        (with_route("redirect = '/x permanent'"), "write `{ to = \"/x\", status = 301 }`"),
        (with_route("redirect = 'http://$server_name/'"), "no variables such as `$server_name`"),
        (with_route("redirect = { to = '/x', code = 301 }"), "use `status`"),
        (with_route("status = { code = 404, body = 'x' }"), "use `text`"),
        (site("errors = { '500 502' = '/x' }"), "each status has an entry of its own"),
        (site("errors = { '4xx' = '/x' }"), "each status has an entry of its own"),
        (site("errors = { 404 = '=200 /x' }"), "write `/x`"),
        (site("errors = { 404 = 'HTTPS://h/x' }"), "and no URL"),
        // Addresses.
        (site("listen = ['*:80']"), "write \":80\""),
        (site("listen = ['443 ssl http2']"), "write `{ address = \":443\", tls = true }`"),
        (site("listen = ['[::]:80 default_server']"), "write \"[::]:80\", and `default = true`"),
        (site("listen = ['https://h:443']"), "an address has no scheme"),
        (site("https = 'on'"), "did you mean `redirect`?"),
        // Logs, times and rates.
        (site("log = '/x.log combined'"), "`log = { file = \"FILE\", format = \"combined\" }`"),
        (site("log = '|rotatelogs'"), "no program takes the lines"),
        (site("log = 'console'"), "standard output is \"-\""),
        (
            site("limits = { requests-per-ip = '10r/s burst=20 nodelay' }"),
            "write \"10/s burst 20\"",
        ),
        (site("limits = { requests-per-ip = '10/minute' }"), "write \"10/min\""),
        (site("hsts = '1y'"), "write 365d"),
        (served("timeout-idle = '1h30m'"), "write 5400"),
        (served("timeout-idle = '75000ms'"), "write 75"),
        (served("driver = 'io_uring'"), "did you mean `uring`?"),
        (served("control = 'off'"), "leave the key out for the default"),
        // Files.
        (with_route("files = '/x'\ncache = 'no-store'"), "for `Cache-Control` write `headers = "),
        (with_route("files = '/x'\nsymlinks = 'if_not_owner'"), "did you mean `beneath`?"),
        (with_route("files = '/x'\nheaders = [{ add = { A = 'b' } }]"), "use `set`"),
        (with_route("files = '/x'\nheaders = [{ unset = ['A'] }]"), "use `remove`"),
        (with_route("files = '/x'\nheaders = [{ name = 'A' }]"), "write `{ set = { NAME = "),
        // Words of Apache, Traefik, HAProxy and lighttpd.
        (site("DirectoryIndex = 'x'"), "use `index`"),
        (site("AllowOverride = 'None'"), "directories have no files with rules"),
        (site("ServerAlias = 'x'"), "use `hosts`"),
        (site("VirtualHost = 'x'"), "write `[[site]]`"),
        (site("SSLCertificateFile = 'x'"), "use `tls`"),
        (site("entryPoints = 'x'"), "use `listen`"),
        (site("maxconn = 10"), "use `max-connections` in [server]"),
        (site("grpc_pass = 'x'"), "gRPC needs HTTP/2"),
    ] {
        let shown = errors(&text);
        assert!(shown.contains(expected), "{text}\n{shown}");
        assert_eq!(shown.matches("error:").count(), 1, "{text}\n{shown}");
    }
    for (text, expected) in [
        (with_route("path = '/a/:id'\nfiles = '/x'"), "a path has no parameters"),
        (with_route("status = 444"), "444 closes a connection without a response in nginx"),
        (with_route("path = '/x;'\nfiles = '/x'"), "the `;` at the end is a part of the value"),
        (with_route("files = '/x'\nindex = 'index.html;'"), "the `;` at the end"),
        (with_route("files = '/x'\nfastcgi = 'unix:/x;'"), "the `;` at the end"),
        (site("log = '/x.log;'"), "the `;` at the end"),
    ] {
        let shown = warnings(&text);
        assert!(shown.contains(expected), "{text}\n{shown}");
        assert_eq!(shown.matches("warning:").count(), 1, "{text}\n{shown}");
    }
}
