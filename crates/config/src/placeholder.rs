//! Variables of other servers that users write into values: of nginx (`$uri`), of Caddy (`{path}`), and of Apache and
//! HAProxy (`%{REQUEST_URI}`).
//!
//! A value is searched for names that these servers know. Braces, dollars and per cent signs alone mean nothing.

use super::variable;

/// A variable of another server in a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Placeholder<'a> {
    /// The variable as it stands in the value.
    pub(crate) text: &'a str,
    /// The variables here that mean the same, for values that have variables.
    pub(crate) counterpart: Option<&'static str>,
}

/// The placeholders of Caddy without the `http.request.` of their long names, and their counterparts.
const CADDY: [(&str, Option<&str>); 32] = [
    ("client_ip", Some("`$client`")),
    ("dir", None),
    ("file", None),
    ("host", Some("`$host`")),
    ("hostport", Some("`$host`")),
    ("labels", None),
    ("method", Some("`$method`")),
    ("orig_method", Some("`$method`")),
    ("orig_path", Some("`$path`")),
    ("orig_uri", Some("`$path` and `$query`")),
    ("path", Some("`$path`")),
    ("port", None),
    ("query", Some("`$query`")),
    ("remote", Some("`$client`")),
    ("remote.host", Some("`$client`")),
    ("remote_host", Some("`$client`")),
    ("remote_port", None),
    ("scheme", Some("`$scheme`")),
    ("tls.cipher_suite", Some("`$tls-cipher`")),
    ("tls.client.subject", Some("`$tls-client`")),
    ("tls.server_name", Some("`$tls-server-name`")),
    ("tls.version", Some("`$tls-version`")),
    ("tls_cipher", Some("`$tls-cipher`")),
    ("tls_client_subject", Some("`$tls-client`")),
    ("tls_server_name", Some("`$tls-server-name`")),
    ("tls_version", Some("`$tls-version`")),
    ("upstream_hostport", None),
    ("uri", Some("`$path` and `$query`")),
    ("uri.path", Some("`$path`")),
    ("uri.query", Some("`$query`")),
    ("uuid", Some("`$request-id`")),
    ("vars", None),
];

/// The beginnings of placeholders of Caddy whose rest is the name of something else.
const CADDY_STARTS: [&str; 12] = [
    "cookie.", "env.", "err.", "file.", "header.", "http.", "labels.", "path.", "query.", "re.",
    "system.", "vars.",
];

/// Returns the first placeholder of Caddy, Apache or HAProxy in a value.
pub(crate) fn braced(text: &str) -> Option<Placeholder<'_>> {
    let mut opened = text.match_indices('{');
    opened.find_map(|(at, _)| {
        let (inner, _) = text[at + 1..].split_once('}')?;
        let (before, end) = (&text[..at], at + 1 + inner.len() + 1);
        match before.as_bytes().last() {
            // A reference of this configuration.
            Some(b'$') => None,
            Some(b'%') => {
                let is_name = inner
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || b"_-:".contains(&byte));
                // It is not shown, because the text may be secret.
                (is_name && !inner.is_empty())
                    .then_some(Placeholder { text: "%{…}", counterpart: None })
            }
            _ => {
                let short = inner.strip_prefix("http.request.").unwrap_or(inner);
                let known = CADDY.iter().find(|(name, _)| *name == short);
                let is_other = CADDY_STARTS.iter().any(|start| {
                    let is_plain =
                        |byte: u8| byte.is_ascii_alphanumeric() || b"._-*".contains(&byte);
                    inner.len() > start.len()
                        && inner.starts_with(start)
                        && inner.bytes().all(is_plain)
                });
                let counterpart = known.and_then(|(_, counterpart)| *counterpart);
                (known.is_some() || is_other)
                    .then_some(Placeholder { text: &text[at..end], counterpart })
            }
        }
    })
}

/// Returns the first variable of any server in a value that has no variables, in backticks. It may be a variable of this
/// configuration, which other values have.
pub(crate) fn any(text: &str) -> Option<String> {
    let dollar = variable::meant(text).map(|name| format!("`${name}`"));
    dollar.or_else(|| braced(text).map(|found| format!("`{}`", found.text)))
}

/// Returns the first capture of a pattern in a value that has none, such as `$1`.
pub(crate) fn capture(text: &str) -> Option<&str> {
    let is_capture = |at: &usize| text[at + 1..].starts_with(|next: char| next.is_ascii_digit());
    let at = text.match_indices('$').map(|(at, _)| at).find(is_capture)?;
    Some(&text[at..at + 2])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_other_servers_know_are_found() {
        for (text, expected, counterpart) in [
            ("{remote}", Some("{remote}"), Some("`$client`")),
            ("a {http.request.uri.path} b", Some("{http.request.uri.path}"), Some("`$path`")),
            ("{http.request.remote.host}", Some("{http.request.remote.host}"), Some("`$client`")),
            ("{header.X-A}", Some("{header.X-A}"), None),
            ("{http.vars.a}", Some("{http.vars.a}"), None),
            ("{upstream_hostport}", Some("{upstream_hostport}"), None),
            ("{x} {host}", Some("{host}"), Some("`$host`")),
            ("%{REMOTE_ADDR}s", Some("%{…}"), None),
            ("%{X-Forwarded-For}i", Some("%{…}"), None),
            ("%{SSL:SSL_PROTOCOL}", Some("%{…}"), None),
            // Texts that only have the same characters.
            ("${host}", None, None),
            ("{", None, None),
            ("{}", None, None),
            ("{id}", None, None),
            ("{\"a\": {\"path\": 1}}", None, None),
            ("{header.}", None, None),
            ("%{}", None, None),
            ("100%{a b}", None, None),
            ("äö{path", None, None),
        ] {
            let found = braced(text);
            assert_eq!(found.map(|found| found.text), expected, "{text}");
            assert_eq!(found.and_then(|found| found.counterpart), counterpart, "{text}");
        }
        assert_eq!(any("/$uri/{path}").as_deref(), Some("`$uri`"));
        assert_eq!(any("/a/{path}").as_deref(), Some("`{path}`"));
        assert_eq!(any("/a$b/{id}"), None);
        for (text, expected) in
            [("/a/$0", Some("$0")), ("$a$12", Some("$1")), ("$", None), ("a$ä", None), ("", None)]
        {
            assert_eq!(capture(text), expected, "{text}");
        }
    }
}
