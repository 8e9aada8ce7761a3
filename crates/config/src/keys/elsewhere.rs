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
    ("browse", &["listing"]),
    ("client_max_body_size", &["max-body"]),
    ("default_server", &["default"]),
    ("error_page", &["errors"]),
    ("fastcgi_pass", &["fastcgi"]),
    ("file_server", &["files"]),
    ("header_up", &["request-headers"]),
    ("location", &["path"]),
    ("max_size", &["max-body"]),
    ("php_fastcgi", &["fastcgi"]),
    ("proxy_connect_timeout", &["timeout-connect"]),
    ("proxy_pass", &["proxy"]),
    ("proxy_read_timeout", &["timeout-upstream"]),
    ("proxy_send_timeout", &["timeout-upstream-send"]),
    ("proxy_set_header", &["request-headers"]),
    ("request_body", &["max-body"]),
    ("respond", &["status"]),
    ("return", &["redirect", "status"]),
    ("reverse_proxy", &["proxy"]),
    ("rewrite", &["redirect"]),
    ("root", &["files"]),
    ("server_name", &["hosts"]),
    ("ssi", &["includes"]),
    ("ssl", &["tls"]),
    ("ssl_certificate", &["tls"]),
    ("ssl_certificate_key", &["tls"]),
    ("ssl_client_certificate", &["client"]),
    ("try_files", &["fallback"]),
    ("upstream", &["proxy"]),
];

const AUTHENTICATION: &str = "there is no authentication yet";
const COMPRESSION: &str =
    "files are not compressed on the fly: put FILE.gz, FILE.br or FILE.zst beside FILE";
const PROFILE: &str =
    "use `profile` in `tls`: it chooses versions, and there are no lists of ciphers and curves";

const MISSING: &[(&str, &str)] = &[
    ("auth", AUTHENTICATION),
    ("auth_basic", AUTHENTICATION),
    ("basic_auth", AUTHENTICATION),
    ("encode", COMPRESSION),
    ("gzip", COMPRESSION),
    ("proxy_redirect", "the `Location` of a server is passed on as it is"),
    ("ssl_ciphers", PROFILE),
    ("ssl_protocols", PROFILE),
];

/// Looks a word up.
pub(super) fn word(name: &str) -> Option<Word> {
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
        assert_eq!(word("files"), None);
    }
}
