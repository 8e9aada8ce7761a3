//! The words of other servers' configurations, for users who come from those servers.

/// The counterpart of a word of another server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Word {
    /// One of these keys does the same.
    Keys(&'static [&'static str]),
    /// Nothing, as this sentence says.
    Missing(&'static str),
}

/// Words and keys. A word is meant for all tables, or as `TABLE.WORD` for one of them.
const KEYS: &[(&str, &[&str])] = &[
    ("access_log", &["log"]),
    ("accesslog", &["log"]),
    ("add_header", &["headers"]),
    ("add_type", &["types"]),
    ("alias", &["files"]),
    ("autoindex", &["listing"]),
    ("autoindex_format", &["listing"]),
    ("backend", &["proxy"]),
    ("bind", &["listen"]),
    ("blacklist", &["deny"]),
    ("brotli_static", &["precompressed"]),
    ("browse", &["listing"]),
    ("cache_control", &["headers"]),
    ("cert", &["certificate"]),
    ("cert_file", &["certificate"]),
    ("certificate_key", &["key"]),
    ("charset_types", &["charset"]),
    ("chroot", &["confine"]),
    ("client_body_buffer_size", &["buffer"]),
    ("client_body_temp_path", &["buffer-dir"]),
    ("client_body_timeout", &["timeout-header"]),
    ("client_header_buffer_size", &["max-request-head"]),
    ("client_header_timeout", &["timeout-header"]),
    ("client_max_body_size", &["max-body"]),
    ("connect_timeout", &["timeout-connect"]),
    ("cors", &["headers"]),
    ("custom_log", &["log"]),
    ("default_backend", &["proxy"]),
    ("default_server", &["default"]),
    ("default_type", &["default-type"]),
    ("dir_listing", &["listing"]),
    ("directory_index", &["index"]),
    ("directory_listing", &["listing"]),
    ("disable_symlinks", &["symlinks"]),
    ("document_root", &["files"]),
    ("domain", &["hosts"]),
    ("domains", &["hosts"]),
    ("email", &["contact"]),
    ("entry_points", &["listen"]),
    ("entrypoints", &["listen"]),
    ("env", &["environment"]),
    ("environment_variables", &["environment"]),
    ("error_document", &["errors"]),
    ("error_page", &["errors"]),
    ("expires", &["headers"]),
    ("expires_by_type", &["headers"]),
    ("expires_default", &["headers"]),
    ("fail_duration", &["fail-timeout"]),
    ("fail_timeout", &["fail-timeout"]),
    ("fallback_resource", &["fallback"]),
    ("fastcgi_buffers", &["buffer"]),
    ("fastcgi_connect_timeout", &["timeout-connect"]),
    ("fastcgi_index", &["index"]),
    ("fastcgi_pass", &["fastcgi"]),
    ("fastcgi_read_timeout", &["timeout-upstream"]),
    ("fastcgi_send_timeout", &["timeout-upstream-send"]),
    ("file_e_tag", &["etag"]),
    ("file_etag", &["etag"]),
    ("file_server", &["files"]),
    ("follow_symlinks", &["symlinks"]),
    ("force_https", &["https"]),
    ("grace_period", &["timeout-drain"]),
    ("graceful_shutdown_timeout", &["timeout-drain"]),
    ("gzip_static", &["precompressed"]),
    ("handle", &["path"]),
    ("handle_errors", &["errors"]),
    ("handle_path", &["path"]),
    ("hard_stop_after", &["timeout-drain"]),
    ("header", &["headers"]),
    ("header_down", &["headers"]),
    ("header_up", &["request-headers"]),
    ("headers.add", &["set"]),
    ("headers.append", &["set"]),
    ("headers.delete", &["remove"]),
    ("headers.hide", &["remove"]),
    ("headers.path", &["match"]),
    ("headers.unset", &["remove"]),
    ("health_check", &["check"]),
    ("health_interval", &["check-interval"]),
    ("health_uri", &["check"]),
    ("hidden", &["dotfiles"]),
    ("hide", &["dotfiles"]),
    ("http_port", &["listen"]),
    ("https_port", &["listen"]),
    ("idle_timeout", &["timeout-idle"]),
    ("index_file", &["index"]),
    ("index_files", &["index"]),
    ("io_uring", &["driver"]),
    ("ip_allow_list", &["allow"]),
    ("ip_hash", &["balance"]),
    ("ip_white_list", &["allow"]),
    ("keep_alive_timeout", &["timeout-idle"]),
    ("keepalive_timeout", &["timeout-idle"]),
    ("key_file", &["key"]),
    ("landlock", &["confine"]),
    ("large_client_header_buffers", &["max-request-head"]),
    ("lb_policy", &["balance"]),
    ("lb_retries", &["retries"]),
    ("least_conn", &["balance"]),
    ("limit_conn", &["connections-per-ip"]),
    ("limit_rate", &["bytes-per-connection"]),
    ("limit_req", &["requests-per-ip"]),
    ("limit_request_body", &["max-body"]),
    ("limit_request_line", &["max-request-head"]),
    ("listen.addr", &["address"]),
    ("listen.host", &["address"]),
    ("listen.ip", &["address"]),
    ("listen.path", &["unix"]),
    ("listen.port", &["address"]),
    ("listen.socket", &["unix"]),
    ("listen.ssl", &["tls"]),
    ("load_balancer", &["proxy", "balance"]),
    ("location", &["path"]),
    ("log.path", &["file"]),
    ("log_format", &["format"]),
    ("max_fails", &["max-fails"]),
    ("max_request_body_size", &["max-body"]),
    ("max_request_size", &["max-body"]),
    ("max_request_workers", &["max-connections"]),
    ("max_size", &["max-body"]),
    ("maxconn", &["max-connections"]),
    ("mime", &["types"]),
    ("mime_types", &["types"]),
    ("mimetype", &["types"]),
    ("mimetypes", &["types"]),
    ("nbproc", &["threads"]),
    ("nbthread", &["threads"]),
    ("options", &["listing", "symlinks", "includes"]),
    ("order", &["allow", "deny"]),
    ("path_prefix", &["path"]),
    ("php", &["fastcgi"]),
    ("php_fastcgi", &["fastcgi"]),
    ("php_fpm", &["fastcgi"]),
    ("port", &["listen"]),
    ("ports", &["listen"]),
    ("prefix", &["path"]),
    ("private_key", &["key"]),
    ("proxy_buffer_size", &["buffer"]),
    ("proxy_buffering", &["buffer"]),
    ("proxy_buffers", &["buffer"]),
    ("proxy_connect_timeout", &["timeout-connect"]),
    ("proxy_next_upstream", &["retries"]),
    ("proxy_pass", &["proxy"]),
    ("proxy_pass_request_headers", &["request-headers"]),
    ("proxy_read_timeout", &["timeout-upstream"]),
    ("proxy_send_timeout", &["timeout-upstream-send"]),
    ("proxy_set_header", &["request-headers"]),
    ("proxy_temp_path", &["buffer-dir"]),
    ("rate_limit", &["requests-per-ip"]),
    ("read_timeout", &["timeout-upstream", "timeout-header"]),
    ("real_ip", &["trusted-proxies"]),
    ("real_ip_header", &["trusted-proxies"]),
    ("redir", &["redirect"]),
    ("redirect.code", &["status"]),
    ("redirect_https", &["https"]),
    ("redirect_match", &["redirect"]),
    ("redirect_scheme", &["https"]),
    ("remote_ip_header", &["trusted-proxies"]),
    ("request_body", &["max-body"]),
    ("require", &["allow", "deny"]),
    ("respond", &["status"]),
    ("response_header", &["headers"]),
    ("response_headers", &["headers"]),
    ("return", &["redirect", "status"]),
    ("reverse_proxy", &["proxy"]),
    ("rewrite", &["redirect"]),
    ("rewrite_rule", &["redirect"]),
    ("root", &["files"]),
    ("script_alias", &["cgi"]),
    ("send_timeout", &["timeout-send"]),
    ("server_alias", &["hosts"]),
    ("server_name", &["hosts"]),
    ("session_affinity", &["hash-by"]),
    ("set_env", &["environment"]),
    ("set_header", &["request-headers"]),
    ("set_real_ip_from", &["trusted-proxies"]),
    ("shutdown_timeout", &["timeout-drain"]),
    ("slow_start", &["slow-start"]),
    ("spa", &["fallback"]),
    ("ssi", &["includes"]),
    ("ssl", &["tls"]),
    ("ssl_ca_certificate_file", &["client"]),
    ("ssl_certificate", &["tls"]),
    ("ssl_certificate_file", &["tls"]),
    ("ssl_certificate_key", &["tls"]),
    ("ssl_certificate_key_file", &["tls"]),
    ("ssl_client_certificate", &["client"]),
    ("ssl_crl", &["crl"]),
    ("ssl_engine", &["tls"]),
    ("ssl_redirect", &["https"]),
    ("ssl_verify_client", &["client"]),
    ("static", &["files"]),
    ("stats", &["metrics", "status-page"]),
    ("status.body", &["text"]),
    ("status.content", &["text"]),
    ("status.response", &["text"]),
    ("status.status", &["code"]),
    ("sticky", &["hash-by"]),
    ("stub_status", &["metrics", "status-page"]),
    ("templates", &["includes"]),
    ("tls.ca", &["client"]),
    ("transport", &["upstream-tls"]),
    ("try_files", &["fallback"]),
    ("upstream", &["proxy"]),
    ("uri", &["path"]),
    ("url_redirect", &["redirect"]),
    ("use", &["driver"]),
    ("white_list", &["allow"]),
    ("whitelist", &["allow"]),
    ("worker_connections", &["max-connections"]),
    ("worker_processes", &["threads"]),
    ("worker_shutdown_timeout", &["timeout-drain"]),
    ("workers", &["threads"]),
    ("write_timeout", &["timeout-send", "timeout-upstream-send"]),
];

const ACCOUNT: &str = "use `user = \"USER:GROUP\"`";
const ACME: &str =
    "write `tls = \"acme\"` into the site, and a section `[acme]` with `agree-terms = true`";
const AUTHENTICATION: &str = "there is no authentication yet";
const CACHE: &str = "responses of upstreams are not cached";
const COMPRESSION: &str =
    "files are not compressed on the fly: put FILE.gz, FILE.br or FILE.zst beside FILE";
const CONTENTS: &str = "contents are sent as they are, and not changed on the way";
const FIELDS: &str =
    "no rule looks at the fields of a request: `allow` and `deny` are for addresses";
const GATEWAYS: &str = "use `proxy`, `fastcgi` or `cgi`: other protocols are not spoken";
const GRPC: &str = "servers are asked in HTTP/1.1, and gRPC needs HTTP/2";
const HIDDEN: &str = "write `headers = [{ remove = [\"NAME\"] }]`";
const HTACCESS: &str = "directories have no files with rules: the keys of a route are the rules";
const HTTP_ALONE: &str = "samum speaks HTTP alone, and passes on nothing else";
const HTTP2: &str = "it needs no key: HTTP/2 is spoken unless a listener has `http2 = false`";
const HTTP3: &str = "HTTP/1.1 and HTTP/2 are spoken, and no HTTP/3 yet";
const METHODS: &str =
    "no route is for some methods alone: an upstream decides, and `files` takes `GET` and `HEAD`";
const MODULES: &str = "the server has no modules and runs no scripts itself: `proxy`, `fastcgi` and `cgi` lead to programs";
const NEEDLESS: &str = "it needs no key: the server does it by itself";
const OPEN_FILES: &str =
    "it needs no key: the server raises its limit up to the hard limit (`LimitNOFILE=` of a unit)";
const PASSPHRASE: &str = "a key is not encrypted: `openssl pkey -in OLD -out NEW` decrypts it once";
const PID: &str =
    "there is no file of the process id: a unit knows it, and commands use the control socket";
const PROFILE: &str =
    "use `profile` in `tls`: it chooses versions, and there are no lists of ciphers and curves";
const RELATIVE: &str =
    "it needs no key: redirects to other paths of the site name no host and no port";
const ROUTES: &str = "write `[[site.route]]`, behind the `[[site]]` that has the route";
const SITES: &str = "write `[[site]]`, with its names in `hosts`";
const STAPLING: &str = "there is no OCSP stapling";
const STDERR: &str = "messages go to standard error: the unit or the container collects them";
const UPGRADE: &str = "it needs no key: `proxy` passes on a request to upgrade, as of a WebSocket";
const VARIABLES: &str =
    "there are no variables of one's own and no conditions: write a route for each case";

const MISSING: &[(&str, &str)] = &[
    ("[server].group", ACCOUNT),
    ("absolute_redirect", RELATIVE),
    ("accept_mutex", NEEDLESS),
    ("acl", VARIABLES),
    ("acme_server", ACME),
    ("add_handler", "use `fastcgi` or `cgi`: a route says what is run"),
    ("admin", "it needs no key: commands such as `samum reload` use the socket of `control`"),
    ("aio", NEEDLESS),
    ("allow_override", HTACCESS),
    ("auth", AUTHENTICATION),
    ("auth_basic", AUTHENTICATION),
    ("auth_name", AUTHENTICATION),
    ("auth_request", AUTHENTICATION),
    ("auth_type", AUTHENTICATION),
    ("auth_user_file", AUTHENTICATION),
    ("auto_https", ACME),
    ("basic_auth", AUTHENTICATION),
    ("basicauth", AUTHENTICATION),
    ("brotli", COMPRESSION),
    ("cert_resolver", ACME),
    ("certificates_resolvers", ACME),
    (
        "chain",
        "use `certificate`: its file has the other certificates of the chain behind the first",
    ),
    ("ciphers", PROFILE),
    ("compress", COMPRESSION),
    ("curves", PROFILE),
    ("daemon", "the server stays in the foreground: a unit or a container starts it"),
    ("debug", STDERR),
    ("defaults", "a key of [[site]] is the default of its routes, and [server] has the timeouts"),
    ("deflate", COMPRESSION),
    ("digest_auth", AUTHENTICATION),
    ("directio", NEEDLESS),
    ("directory_slash", NEEDLESS),
    ("enable_sendfile", NEEDLESS),
    ("encode", COMPRESSION),
    ("error_log", STDERR),
    ("error_log_level", STDERR),
    ("errorlog", STDERR),
    ("events", "it needs no table: [server] has `threads` and `max-connections`"),
    ("fastcgi_cache", CACHE),
    ("fastcgi_hide_header", HIDDEN),
    ("fastcgi_param", "use `environment` in `fastcgi`"),
    ("fastcgi_split_path_info", NEEDLESS),
    ("forward_auth", AUTHENTICATION),
    ("frontend", SITES),
    ("geo", VARIABLES),
    ("global", "write [server]"),
    ("grpc", GRPC),
    ("grpc_pass", GRPC),
    ("gunzip", COMPRESSION),
    ("gzip", COMPRESSION),
    ("gzip_comp_level", COMPRESSION),
    ("gzip_min_length", COMPRESSION),
    ("gzip_types", COMPRESSION),
    ("gzip_vary", COMPRESSION),
    (
        "headers.always",
        "a field is set for all statuses, but `Cache-Control` and its like for errors only with `status`",
    ),
    ("headers.name", "write `{ set = { NAME = \"VALUE\" } }`"),
    ("headers.value", "write `{ set = { NAME = \"VALUE\" } }`"),
    ("htaccess", HTACCESS),
    ("http", "it needs no table: [server] and [[site]] stand at the top of the file"),
    ("http2", HTTP2),
    ("http3", HTTP3),
    ("if", VARIABLES),
    ("image_filter", CONTENTS),
    (
        "intermediate",
        "use `certificate`: its file has the other certificates of the chain behind the first",
    ),
    ("js_include", MODULES),
    ("jwt", AUTHENTICATION),
    ("keepalive", NEEDLESS),
    (
        "keepalive_requests",
        "a connection has any number of requests; `timeout-idle` ends it between them",
    ),
    ("letsencrypt", ACME),
    ("limit_conn_zone", NEEDLESS),
    ("limit_except", METHODS),
    ("limit_req_zone", NEEDLESS),
    ("lingering_close", NEEDLESS),
    ("load_module", MODULES),
    ("log_level", STDERR),
    ("loglevel", STDERR),
    ("lua", MODULES),
    ("mail", HTTP_ALONE),
    ("map", VARIABLES),
    ("matchers", VARIABLES),
    ("max_version", PROFILE),
    ("memcached_pass", GATEWAYS),
    ("methods", METHODS),
    ("middlewares", MODULES),
    ("min_version", PROFILE),
    ("mirror", "a request goes to one server alone"),
    ("modules", MODULES),
    ("multi_accept", NEEDLESS),
    ("open_file_cache", NEEDLESS),
    ("output_buffers", NEEDLESS),
    ("passphrase", PASSPHRASE),
    ("perl", MODULES),
    ("pid", PID),
    ("pid_file", PID),
    ("pidfile", PID),
    ("plugins", MODULES),
    ("port_in_redirect", RELATIVE),
    ("postpone_output", NEEDLESS),
    ("protocols", PROFILE),
    ("proxy_cache", CACHE),
    ("proxy_cache_path", CACHE),
    ("proxy_cache_valid", CACHE),
    ("proxy_hide_header", HIDDEN),
    ("proxy_http_version", UPGRADE),
    (
        "proxy_intercept_errors",
        "a response of an upstream is passed on as it is: `errors` is for errors of samum",
    ),
    (
        "proxy_pass_reverse",
        "it needs no key: a `Location` with the address of the server leads to the route",
    ),
    (
        "proxy_redirect",
        "it needs no key: a `Location` with the address of the server leads to the route",
    ),
    ("proxy_request_buffering", "it needs no key: bodies are passed on while they come"),
    ("proxy_ssl_certificate", "use `certificate` in `upstream-tls`"),
    ("proxy_ssl_certificate_key", "use `key` in `upstream-tls`"),
    ("proxy_ssl_name", "use `name` in `upstream-tls`"),
    ("proxy_ssl_server_name", NEEDLESS),
    ("proxy_ssl_trusted_certificate", "use `ca` in `upstream-tls`"),
    ("proxy_ssl_verify", "use `verify` in `upstream-tls`"),
    ("quic", HTTP3),
    ("replace_response", CONTENTS),
    (
        "resolver",
        "it needs no key: names of servers are resolved as the system does, and again every 30 s",
    ),
    ("reuseport", NEEDLESS),
    ("rewrite_cond", VARIABLES),
    ("rlimit_nofile", OPEN_FILES),
    ("satisfy", AUTHENTICATION),
    ("scgi_pass", GATEWAYS),
    ("secure_link", FIELDS),
    ("sendfile", NEEDLESS),
    ("server_block", SITES),
    ("server_name_in_redirect", RELATIVE),
    ("server_signature", NEEDLESS),
    ("server_tokens", "write `headers = [{ remove = [\"Server\"] }]`"),
    ("split_clients", VARIABLES),
    ("ssl_buffer_size", NEEDLESS),
    (
        "ssl_certificate_chain_file",
        "use `certificate`: its file has the other certificates of the chain behind the first",
    ),
    ("ssl_ciphers", PROFILE),
    ("ssl_dhparam", PROFILE),
    ("ssl_ecdh_curve", PROFILE),
    ("ssl_password_file", PASSPHRASE),
    ("ssl_prefer_server_ciphers", PROFILE),
    ("ssl_protocols", PROFILE),
    ("ssl_session_cache", NEEDLESS),
    ("ssl_session_tickets", NEEDLESS),
    ("ssl_session_timeout", NEEDLESS),
    ("ssl_stapling", STAPLING),
    ("ssl_stapling_verify", STAPLING),
    (
        "ssl_trusted_certificate",
        "there is no OCSP stapling; `client` in `tls` names the authority of the certificates of clients",
    ),
    ("stream", HTTP_ALONE),
    (
        "strip_prefix",
        "a server with a path, such as `http://HOST/`, has it in place of the path of the route",
    ),
    ("sub_filter", CONTENTS),
    ("substitute", CONTENTS),
    ("tcp_keepalive", NEEDLESS),
    ("tcp_nodelay", NEEDLESS),
    ("tcp_nopush", NEEDLESS),
    ("the top of the file.route", ROUTES),
    ("the top of the file.routes", ROUTES),
    ("tls.email", ACME),
    ("tls.password", PASSPHRASE),
    ("trace_enable", "it needs no key: `TRACE` is refused, or passed on by `proxy`"),
    ("types_hash_bucket_size", NEEDLESS),
    ("types_hash_max_size", NEEDLESS),
    ("umask", "the unit or the shell sets it; `mode` of a listener is for Unix sockets"),
    (
        "underscores_in_headers",
        "fields with `_` in their names are not passed on, as by default in nginx",
    ),
    ("use_backend", VARIABLES),
    ("use_canonical_name", RELATIVE),
    ("uwsgi", GATEWAYS),
    (
        "uwsgi_pass",
        "use `proxy` or `fastcgi`: uWSGI's own protocol is not spoken, and uWSGI speaks HTTP (`http-socket`)",
    ),
    ("valid_referers", FIELDS),
    ("vars", VARIABLES),
    ("versions", PROFILE),
    ("vhost", SITES),
    ("virtual_host", SITES),
    ("virtualhost", SITES),
    ("websocket", UPGRADE),
    ("websockets", UPGRADE),
    ("worker_cpu_affinity", NEEDLESS),
    ("worker_rlimit_nofile", OPEN_FILES),
    ("zstd", COMPRESSION),
];

/// Looks a word of a table up, which may be written with hyphens, or as Apache and Traefik write words.
pub(super) fn word(table: &str, name: &str) -> Option<Word> {
    word_as(table, &name.replace('-', "_")).or_else(|| word_as(table, &with_underscores(name)))
}

/// `DirectoryIndex`, `SSLEngine` or `entryPoints` as `directory_index`, `ssl_engine` or `entry_points`.
fn with_underscores(name: &str) -> String {
    let mut words = String::new();
    let mut before = None;
    let mut rest = name.chars().peekable();
    while let Some(letter) = rest.next() {
        let is_end = rest.peek().is_some_and(char::is_ascii_lowercase);
        let begins = before.is_some_and(|before: char| {
            before.is_ascii_lowercase() || (before.is_ascii_uppercase() && is_end)
        });
        if letter.is_ascii_uppercase() && begins {
            words.push('_');
        }
        words.push(letter.to_ascii_lowercase());
        before = Some(letter);
    }
    words
}

fn word_as(table: &str, name: &str) -> Option<Word> {
    let find = |name: &str| {
        let keys = find(KEYS, name).map(Word::Keys);
        keys.or_else(|| find(MISSING, name).map(Word::Missing))
    };
    find(&format!("{table}.{name}")).or_else(|| find(name))
}

fn find<T: Copy>(list: &[(&str, T)], name: &str) -> Option<T> {
    list.iter().find(|(theirs, _)| *theirs == name).map(|(_, ours)| *ours)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGES: [&str; 2] = [
        include_str!("../../../../docs/from-nginx.md"),
        include_str!("../../../../docs/from-caddy.md"),
    ];

    fn is_key(name: &str) -> bool {
        let sections = super::super::sections();
        sections.iter().any(|section| section.rows.iter().any(|row| row.name == name))
    }

    #[test]
    fn words_are_sorted_and_their_keys_exist() {
        for (theirs, ours) in KEYS {
            assert!(!ours.is_empty() && ours.iter().all(|key| is_key(key)), "{theirs}: {ours:?}");
        }
        assert!(KEYS.is_sorted_by(|one, other| one.0 < other.0));
        assert!(MISSING.is_sorted_by(|one, other| one.0 < other.0));
        assert_eq!(word("tls", "gzip"), Some(Word::Missing(COMPRESSION)));
        assert_eq!(word("[[site]]", "proxy-buffering"), Some(Word::Keys(&["buffer"])));
        assert_eq!(word("[[site]]", "files"), None);
        assert_eq!(word("tls", "password"), Some(Word::Missing(PASSPHRASE)));
        assert_eq!(word("[[site]]", "password"), None);
        for (theirs, ours) in [
            ("DirectoryIndex", "index"),
            ("SSLEngine", "tls"),
            ("FileETag", "etag"),
            ("entryPoints", "listen"),
            ("Require", "allow"),
            ("ForceHTTPS", "https"),
            ("nbthread", "threads"),
            ("static", "files"),
        ] {
            let Some(Word::Keys([first, ..])) = word("[[site]]", theirs) else {
                panic!("{theirs}")
            };
            assert_eq!(*first, ours, "{theirs}");
        }
        assert_eq!(word("[[site]]", "AllowOverride"), Some(Word::Missing(HTACCESS)));
        assert_eq!(word("redirect", "code"), Some(Word::Keys(&["status"])));
    }

    /// The pages say that each of their directives has a hint.
    #[test]
    fn each_directive_of_the_pages_about_other_servers_has_a_word() {
        let lines = PAGES.iter().flat_map(|page| page.lines());
        let cells = lines.filter_map(|line| line.strip_prefix("| ")?.split(" | ").next());
        let quoted = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2));
        let directives = quoted.filter_map(|text| text.split([' ', '/']).next());
        let is_word = |text: &str| {
            text.len() > 1 && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
        };
        let directives: Vec<_> = directives.filter(|text| is_word(text)).collect();
        assert!(directives.len() > 70, "{directives:?}");
        for directive in directives {
            let is_known = word("[[site.route]]", directive).is_some() || is_key(directive);
            assert!(is_known, "{directive}");
        }
    }
}
