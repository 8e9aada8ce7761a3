//! The words of other servers' configurations, for users who come from those servers.

/// The counterpart of a word of nginx or Caddy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Word {
    /// One of these keys does the same.
    Keys(&'static [&'static str]),
    /// Nothing, as this sentence says.
    Missing(&'static str),
}

const KEYS: &[(&str, &[&str])] = &[
    ("access_log", &["log"]),
    ("add_header", &["headers"]),
    ("alias", &["files"]),
    ("autoindex", &["listing"]),
    ("brotli_static", &["precompressed"]),
    ("browse", &["listing"]),
    ("client_body_temp_path", &["buffer-dir"]),
    ("client_header_buffer_size", &["max-request-head"]),
    ("client_header_timeout", &["timeout-header"]),
    ("client_max_body_size", &["max-body"]),
    ("cors", &["headers"]),
    ("default_server", &["default"]),
    ("default_type", &["default-type"]),
    ("directory_index", &["index"]),
    ("disable_symlinks", &["symlinks"]),
    ("document_root", &["files"]),
    ("error_page", &["errors"]),
    ("expires", &["headers"]),
    ("fail_duration", &["fail-timeout"]),
    ("fail_timeout", &["fail-timeout"]),
    ("fastcgi_buffers", &["buffer"]),
    ("fastcgi_param", &["environment"]),
    ("fastcgi_pass", &["fastcgi"]),
    ("fastcgi_read_timeout", &["timeout-upstream"]),
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
    ("ip_hash", &["balance"]),
    ("keepalive_timeout", &["timeout-idle"]),
    ("large_client_header_buffers", &["max-request-head"]),
    ("lb_policy", &["balance"]),
    ("lb_retries", &["retries"]),
    ("least_conn", &["balance"]),
    ("limit_conn", &["connections-per-ip"]),
    ("limit_req", &["requests-per-ip"]),
    ("location", &["path"]),
    ("max_fails", &["max-fails"]),
    ("max_size", &["max-body"]),
    ("php", &["fastcgi"]),
    ("php_fastcgi", &["fastcgi"]),
    ("php_fpm", &["fastcgi"]),
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
    ("proxy_ssl_certificate", &["certificate"]),
    ("proxy_ssl_name", &["name"]),
    ("proxy_ssl_trusted_certificate", &["ca"]),
    ("proxy_ssl_verify", &["verify"]),
    ("proxy_temp_path", &["buffer-dir"]),
    ("rate_limit", &["requests-per-ip"]),
    ("real_ip_header", &["trusted-proxies"]),
    ("redir", &["redirect"]),
    ("request_body", &["max-body"]),
    ("respond", &["status"]),
    ("return", &["redirect", "status"]),
    ("reverse_proxy", &["proxy"]),
    ("rewrite", &["redirect"]),
    ("root", &["files"]),
    ("send_timeout", &["timeout-send"]),
    ("server_name", &["hosts"]),
    ("server_tokens", &["server"]),
    ("set_real_ip_from", &["trusted-proxies"]),
    ("slow_start", &["slow-start"]),
    ("ssi", &["includes"]),
    ("ssl", &["tls"]),
    ("ssl_certificate", &["tls"]),
    ("ssl_certificate_key", &["tls"]),
    ("ssl_client_certificate", &["client"]),
    ("ssl_crl", &["crl"]),
    ("ssl_trusted_certificate", &["client"]),
    ("ssl_verify_client", &["client"]),
    ("sticky", &["hash-by"]),
    ("stub_status", &["metrics", "status-page"]),
    ("templates", &["includes"]),
    ("try_files", &["fallback"]),
    ("upstream", &["proxy"]),
    ("worker_connections", &["max-connections"]),
    ("worker_processes", &["threads"]),
    ("workers", &["threads"]),
];

const ACME: &str = "there is no ACME yet: certbot or lego can write the files of `tls`, whose changes are seen within seconds";
const AUTHENTICATION: &str = "there is no authentication yet";
const CACHE: &str = "responses of upstreams are not cached";
const COMPRESSION: &str =
    "files are not compressed on the fly: put FILE.gz, FILE.br or FILE.zst beside FILE";
const HTTP2: &str = "HTTP/1.1 is spoken, and no HTTP/2 yet";
const NEEDLESS: &str = "it needs no key: the server does it by itself";
const PROFILE: &str =
    "use `profile` in `tls`: it chooses versions, and there are no lists of ciphers and curves";
const STDERR: &str = "messages go to standard error: the unit or the container collects them";
const UPGRADE: &str = "it needs no key: `proxy` passes on a request to upgrade, as of a WebSocket";
const VARIABLES: &str =
    "there are no variables of one's own and no conditions: write a route for each case";

const MISSING: &[(&str, &str)] = &[
    ("acme", ACME),
    ("aio", NEEDLESS),
    ("auth", AUTHENTICATION),
    ("auth_basic", AUTHENTICATION),
    ("auth_request", AUTHENTICATION),
    ("auto_https", ACME),
    ("basic_auth", AUTHENTICATION),
    ("basicauth", AUTHENTICATION),
    ("brotli", COMPRESSION),
    ("ciphers", PROFILE),
    ("compress", COMPRESSION),
    ("curves", PROFILE),
    ("daemon", "the server stays in the foreground: a unit or a container starts it"),
    ("email", ACME),
    ("encode", COMPRESSION),
    ("error_log", STDERR),
    ("fastcgi_cache", CACHE),
    ("forward_auth", AUTHENTICATION),
    ("geo", VARIABLES),
    ("gzip", COMPRESSION),
    ("http2", HTTP2),
    ("http3", HTTP2),
    ("if", VARIABLES),
    ("letsencrypt", ACME),
    (
        "limit_rate",
        "a connection has no upper rate; `requests-per-ip` and `connections-per-ip` of `[limits]` are there",
    ),
    ("map", VARIABLES),
    ("multi_accept", NEEDLESS),
    ("open_file_cache", NEEDLESS),
    (
        "pid",
        "there is no file of the process id: a unit knows it, and commands use the control socket",
    ),
    ("protocols", PROFILE),
    ("proxy_cache", CACHE),
    ("proxy_cache_path", CACHE),
    ("proxy_cache_valid", CACHE),
    ("proxy_http_version", UPGRADE),
    ("proxy_redirect", "the `Location` of a server is passed on as it is"),
    ("quic", HTTP2),
    ("reuseport", NEEDLESS),
    ("sendfile", NEEDLESS),
    ("split_clients", VARIABLES),
    ("ssl_ciphers", PROFILE),
    ("ssl_dhparam", PROFILE),
    ("ssl_ecdh_curve", PROFILE),
    ("ssl_prefer_server_ciphers", PROFILE),
    ("ssl_protocols", PROFILE),
    ("tcp_nodelay", NEEDLESS),
    ("tcp_nopush", NEEDLESS),
    (
        "uwsgi_pass",
        "use `proxy` or `fastcgi`: uWSGI's own protocol is not spoken, and uWSGI speaks HTTP (`http-socket`)",
    ),
    ("vars", VARIABLES),
    ("websocket", UPGRADE),
    ("websockets", UPGRADE),
    ("zstd", COMPRESSION),
];

/// Looks a word up, which may be written with hyphens.
pub(super) fn word(name: &str) -> Option<Word> {
    let name = &name.replace('-', "_");
    let keys = find(KEYS, name).map(Word::Keys);
    keys.or_else(|| find(MISSING, name).map(Word::Missing))
}

fn find<T: Copy>(list: &[(&str, T)], name: &str) -> Option<T> {
    list.iter().find(|(theirs, _)| *theirs == name).map(|(_, ours)| *ours)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_exist_and_words_are_no_keys_of_routes() {
        let sections = super::super::sections();
        let is_key = |name: &str| {
            sections.iter().any(|section| section.rows.iter().any(|row| row.name == name))
        };
        for (theirs, ours) in KEYS {
            assert!(!ours.is_empty() && ours.iter().all(|key| is_key(key)), "{theirs}: {ours:?}");
            assert_eq!(word(theirs), Some(Word::Keys(ours)));
        }
        assert_eq!(word("gzip"), Some(Word::Missing(COMPRESSION)));
        assert_eq!(word("proxy-buffering"), Some(Word::Keys(&["buffer"])));
        assert_eq!(word("files"), None);
    }
}
