//! Tells whether a line of a configuration may have a credential, also a line that is wrong: messages go to logs.

/// The keys whose values are credentials, perhaps. They may be misspelt.
const KEYS: [&str; 2] = ["environment", "request-headers"];
/// The words of other servers for these keys, and fields whose values are credentials.
const NAMES: &[&str] = &[
    "authorization",
    "cookie",
    "env",
    "fastcgi-param",
    "header-up",
    "proxy-authorization",
    "proxy-set-header",
    "set-env",
    "set-header",
];
/// Parts of names of fields and variables whose values are credentials.
const PARTS: &[&str] = &["api-key", "apikey", "credential", "passw", "secret", "token"];

/// Returns true if a line has the name of a credential in front of a value, or a URL with a user.
pub(crate) fn may_have_one(line: &str) -> bool {
    has_user(line) || line.split_inclusive(['=', ':']).any(ends_with_a_name)
}

/// Returns true for the text of a line up to a name of a credential, perhaps with dots, and a `=` or `:`.
fn ends_with_a_name(text: &str) -> bool {
    let Some(text) = text.strip_suffix(['=', ':']) else { return false };
    let is_of_key = |char: char| char.is_ascii_alphanumeric() || "-_.\"'".contains(char);
    let key = text.trim_end().rsplit(|char| !is_of_key(char)).next().unwrap_or_default();
    key.split(['.', '"', '\'']).any(is_name)
}

fn is_name(name: &str) -> bool {
    let name = name.to_ascii_lowercase().replace('_', "-");
    PARTS.iter().any(|part| name.contains(part))
        || NAMES.contains(&&*name)
        || crate::suggest::nearest(&name, KEYS).is_some()
}

/// Returns true if a URL has a user in front of its host (RFC 3986 §3.2.1).
fn has_user(line: &str) -> bool {
    line.split("://").skip(1).any(|rest| {
        let authority = rest.split(['/', '"', '\'', ' ', '?', '#']).next().unwrap_or_default();
        authority.contains('@')
    })
}

#[cfg(test)]
mod tests {
    use super::may_have_one;

    #[test]
    fn a_line_may_have_a_credential() {
        for line in [
            "request-headers = \"Authorization: Bearer x\"",
            "request_headers = { A = 'b' }",
            "requst-headers = { A = 'b' }",
            "  \"Authorization: Bearer x\",",
            "route = { path = '/', request-headers = 'x' }",
            "request-headers.X-A = x",
            "cgi = { environment = \"A=b\" }",
            "DB_PASSWORD = 'x'",
            "X-Api-Key = x",
            "'Authorization' = 'x'",
            "proxy = \"http://user:x@host\"",
        ] {
            assert!(may_have_one(line), "{line}");
        }
        for line in [
            "",
            "[[site]]",
            "hosts = ['example.org']",
            "proxy = \"https://10.0.0.5:8443/a@b\"",
            "headers = { X-Frame-Options = 'DENY' }",
            "max-request-head = '64k'",
            "listen = ['[::]:80']",
            "tls = { certificate = 'a', key = 'b' }",
            "error-format = 'json'",
        ] {
            assert!(!may_have_one(line), "{line}");
        }
    }
}
