//! The words of other servers' configurations, for users who come from those servers.

/// The counterpart of a word of nginx or Caddy.
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
    ("add_header", &["headers"]),
    ("alias", &["files"]),
    ("autoindex", &["listing"]),
    ("bind", &["listen"]),
    ("brotli_static", &["precompressed"]),
    ("browse", &["listing"]),
    ("cert", &["certificate"]),
    ("certificate_key", &["key"]),
    ("client_body_buffer_size", &["buffer"]),
    ("client_body_temp_path", &["buffer-dir"]),
    ("client_body_timeout", &["timeout-header"]),
    ("client_header_buffer_size", &["max-request-head"]),
    ("client_header_timeout", &["timeout-header"]),
    ("client_max_body_size", &["max-body"]),
    ("connect_timeout", &["timeout-connect"]),
    ("cors", &["headers"]),
    ("default_server", &["default"]),
    ("default_type", &["default-type"]),
    ("directory_index", &["index"]),
    ("disable_symlinks", &["symlinks"]),
    ("document_root", &["files"]),
    ("email", &["contact"]),
    ("error_page", &["errors"]),
    ("expires", &["headers"]),
    ("fail_duration", &["fail-timeout"]),
    ("fail_timeout", &["fail-timeout"]),
    ("fastcgi_buffers", &["buffer"]),
    ("fastcgi_connect_timeout", &["timeout-connect"]),
    ("fastcgi_index", &["index"]),
    ("fastcgi_pass", &["fastcgi"]),
    ("fastcgi_read_timeout", &["timeout-upstream"]),
    ("fastcgi_send_timeout", &["timeout-upstream-send"]),
    ("file_server", &["files"]),
    ("gzip_static", &["precompressed"]),
    ("handle", &["path"]),
    ("handle_errors", &["errors"]),
    ("handle_path", &["path"]),
    ("header", &["headers"]),
    ("header_down", &["headers"]),
    ("header_up", &["request-headers"]),
    ("health_check", &["check"]),
    ("health_interval", &["check-interval"]),
    ("health_uri", &["check"]),
    ("hide", &["dotfiles"]),
    ("idle_timeout", &["timeout-idle"]),
    ("ip_hash", &["balance"]),
    ("keepalive_timeout", &["timeout-idle"]),
    ("large_client_header_buffers", &["max-request-head"]),
    ("lb_policy", &["balance"]),
    ("lb_retries", &["retries"]),
    ("least_conn", &["balance"]),
    ("limit_conn", &["connections-per-ip"]),
    ("limit_rate", &["bytes-per-connection"]),
    ("limit_req", &["requests-per-ip"]),
    ("listen.addr", &["address"]),
    ("listen.host", &["address"]),
    ("listen.ip", &["address"]),
    ("listen.path", &["unix"]),
    ("listen.port", &["address"]),
    ("listen.socket", &["unix"]),
    ("listen.ssl", &["tls"]),
    ("location", &["path"]),
    ("log.path", &["file"]),
    ("log_format", &["format"]),
    ("max_fails", &["max-fails"]),
    ("max_size", &["max-body"]),
    ("php", &["fastcgi"]),
    ("php_fastcgi", &["fastcgi"]),
    ("php_fpm", &["fastcgi"]),
    ("port", &["listen"]),
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
    ("real_ip_header", &["trusted-proxies"]),
    ("redir", &["redirect"]),
    ("request_body", &["max-body"]),
    ("respond", &["status"]),
    ("response_header", &["headers"]),
    ("response_headers", &["headers"]),
    ("return", &["redirect", "status"]),
    ("reverse_proxy", &["proxy"]),
    ("rewrite", &["redirect"]),
    ("root", &["files"]),
    ("send_timeout", &["timeout-send"]),
    ("server_name", &["hosts"]),
    ("set_real_ip_from", &["trusted-proxies"]),
    ("slow_start", &["slow-start"]),
    ("ssi", &["includes"]),
    ("ssl", &["tls"]),
    ("ssl_certificate", &["tls"]),
    ("ssl_certificate_key", &["tls"]),
    ("ssl_client_certificate", &["client"]),
    ("ssl_crl", &["crl"]),
    ("ssl_verify_client", &["client"]),
    ("sticky", &["hash-by"]),
    ("stub_status", &["metrics", "status-page"]),
    ("templates", &["includes"]),
    ("tls.ca", &["client"]),
    ("transport", &["upstream-tls"]),
    ("try_files", &["fallback"]),
    ("upstream", &["proxy"]),
    ("worker_connections", &["max-connections"]),
    ("worker_processes", &["threads"]),
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
const HIDDEN: &str = "write `headers = [{ remove = [\"NAME\"] }]`";
const HTTP_ALONE: &str = "samum speaks HTTP alone, and passes on nothing else";
const HTTP2: &str = "it needs no key: HTTP/2 is spoken unless a listener has `http2 = false`";
const HTTP3: &str = "HTTP/1.1 and HTTP/2 are spoken, and no HTTP/3 yet";
const NEEDLESS: &str = "it needs no key: the server does it by itself";
const PASSPHRASE: &str = "a key is not encrypted: `openssl pkey -in OLD -out NEW` decrypts it once";
const PID: &str =
    "there is no file of the process id: a unit knows it, and commands use the control socket";
const PROFILE: &str =
    "use `profile` in `tls`: it chooses versions, and there are no lists of ciphers and curves";
const ROUTES: &str = "write `[[site.route]]`, behind the `[[site]]` that has the route";
const STAPLING: &str = "there is no OCSP stapling";
const STDERR: &str = "messages go to standard error: the unit or the container collects them";
const UPGRADE: &str = "it needs no key: `proxy` passes on a request to upgrade, as of a WebSocket";
const VARIABLES: &str =
    "there are no variables of one's own and no conditions: write a route for each case";

const MISSING: &[(&str, &str)] = &[
    ("[server].group", ACCOUNT),
    ("aio", NEEDLESS),
    ("auth", AUTHENTICATION),
    ("auth_basic", AUTHENTICATION),
    ("auth_request", AUTHENTICATION),
    ("auto_https", ACME),
    ("basic_auth", AUTHENTICATION),
    ("basicauth", AUTHENTICATION),
    ("brotli", COMPRESSION),
    (
        "chain",
        "use `certificate`: its file has the other certificates of the chain behind the first",
    ),
    ("ciphers", PROFILE),
    ("compress", COMPRESSION),
    ("curves", PROFILE),
    ("daemon", "the server stays in the foreground: a unit or a container starts it"),
    ("directio", NEEDLESS),
    ("encode", COMPRESSION),
    ("error_log", STDERR),
    ("fastcgi_cache", CACHE),
    ("fastcgi_hide_header", HIDDEN),
    ("fastcgi_param", "use `environment` in `fastcgi`"),
    ("fastcgi_split_path_info", NEEDLESS),
    ("forward_auth", AUTHENTICATION),
    ("geo", VARIABLES),
    ("gzip", COMPRESSION),
    ("http", "it needs no table: [server] and [[site]] stand at the top of the file"),
    ("http2", HTTP2),
    ("http3", HTTP3),
    ("if", VARIABLES),
    (
        "intermediate",
        "use `certificate`: its file has the other certificates of the chain behind the first",
    ),
    ("keepalive", NEEDLESS),
    ("letsencrypt", ACME),
    ("limit_conn_zone", NEEDLESS),
    (
        "limit_except",
        "no route is for some methods alone: an upstream decides, and `files` takes `GET` and `HEAD`",
    ),
    ("limit_req_zone", NEEDLESS),
    ("mail", HTTP_ALONE),
    ("map", VARIABLES),
    ("max_version", PROFILE),
    ("min_version", PROFILE),
    ("multi_accept", NEEDLESS),
    ("open_file_cache", NEEDLESS),
    ("passphrase", PASSPHRASE),
    ("pid", PID),
    ("pid_file", PID),
    ("pidfile", PID),
    ("protocols", PROFILE),
    ("proxy_cache", CACHE),
    ("proxy_cache_path", CACHE),
    ("proxy_cache_valid", CACHE),
    ("proxy_hide_header", HIDDEN),
    ("proxy_http_version", UPGRADE),
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
    (
        "resolver",
        "it needs no key: names of servers are resolved as the system does, and again every 30 s",
    ),
    ("reuseport", NEEDLESS),
    ("sendfile", NEEDLESS),
    ("server_tokens", "write `headers = [{ remove = [\"Server\"] }]`"),
    ("split_clients", VARIABLES),
    ("ssl_buffer_size", NEEDLESS),
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
    ("tcp_nodelay", NEEDLESS),
    ("tcp_nopush", NEEDLESS),
    ("the top of the file.route", ROUTES),
    ("the top of the file.routes", ROUTES),
    ("tls.password", PASSPHRASE),
    (
        "underscores_in_headers",
        "fields with `_` in their names are not passed on, as by default in nginx",
    ),
    (
        "uwsgi_pass",
        "use `proxy` or `fastcgi`: uWSGI's own protocol is not spoken, and uWSGI speaks HTTP (`http-socket`)",
    ),
    ("vars", VARIABLES),
    ("versions", PROFILE),
    ("websocket", UPGRADE),
    ("websockets", UPGRADE),
    (
        "worker_rlimit_nofile",
        "it needs no key: the server raises its limit up to the hard limit (`LimitNOFILE=` of a unit)",
    ),
    ("zstd", COMPRESSION),
];

/// Looks a word of a table up, which may be written with hyphens.
pub(super) fn word(table: &str, name: &str) -> Option<Word> {
    let name = name.replace('-', "_");
    let find = |name: &str| {
        let keys = find(KEYS, name).map(Word::Keys);
        keys.or_else(|| find(MISSING, name).map(Word::Missing))
    };
    find(&format!("{table}.{name}")).or_else(|| find(&name))
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
