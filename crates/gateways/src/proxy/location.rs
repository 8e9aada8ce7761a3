//! The `Location` of a response as the client gets it: an upstream knows its own address and paths, and the client
//! knows those of this server.
//!
//! | `Location` | as the client gets it |
//! |---|---|
//! | a URL with the address of the server as it is configured; with `https` only if the URL names the port, because an upstream may write the scheme that it was told | its path, query and fragment, the path below that of the route |
//! | a path below that of the server's URL, if that has one | the path below that of the route |
//! | a URL with the host that the client has asked for | the same, if the server's URL has a path |
//! | anything else | as it is |
//!
//! The first row is the behaviour of nginx (`proxy_redirect default`) and Apache httpd (`ProxyPassReverse`), too.

use std::borrow::Cow;

use http::path;

use config::{Protocol, ServerUrl, server_address};

/// The URL of a request at this server, and its URL at the upstream.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mapping<'a> {
    /// The `Host` of the request to the upstream. In most cases this is the `Host` of the client's request.
    pub(super) host: &'a [u8],
    /// The path of the route as in the request, without a slash at its end.
    pub(super) route: &'a [u8],
    /// The URL of the upstream.
    pub(super) server: &'a ServerUrl,
}

impl Mapping<'_> {
    /// The `Location` for the client. `None` if the `Location` stays the same.
    pub(super) fn back(&self, location: &[u8]) -> Option<Vec<u8>> {
        let (start, path) = split(location);
        let plain = without(b"http://", start);
        let secure = without(b"https://", start);
        // A URL without a scheme has the scheme of the server's URL.
        let bare = start.strip_prefix(b"//");
        let (own, other) = match self.server.protocol {
            Protocol::Https => (secure, plain),
            Protocol::Http | Protocol::Fastcgi => (plain, secure),
        };
        // Without a port, a URL with the other scheme is about another server.
        let named = own.or(bare).or_else(|| other.filter(|authority| names_port(authority)));
        if named.is_some_and(|authority| self.is_server(authority)) {
            let path =
                if path.starts_with(b"/") { Cow::from(path) } else { [b"/", path].concat().into() };
            let back = self.path_back(&path).unwrap_or_else(|| path.into_owned());
            // A browser mistakes the name after two slashes for a host.
            return (!matches!(back.get(1), Some(b'/' | b'\\'))).then_some(back);
        }
        let authority = plain.or(secure).or(bare);
        let is_of_client =
            authority.is_some_and(|authority| authority.eq_ignore_ascii_case(self.host));
        let is_path = start.is_empty() && !matches!(path.get(1), Some(b'/' | b'\\'));
        if !is_of_client && !is_path {
            return None;
        }
        let back = self.path_back(path)?;
        let is_host = start.is_empty() && matches!(back.get(1), Some(b'/' | b'\\'));
        (!is_host).then(|| [start, &back].concat())
    }

    fn is_server(&self, authority: &[u8]) -> bool {
        let port = if self.server.protocol == Protocol::Https { 443 } else { 80 };
        let authority = core::str::from_utf8(authority).ok();
        let address = authority.and_then(|authority| server_address(authority, port));
        address.is_some_and(|address| address == self.server.address)
    }

    /// Turns a path of the upstream, with the rest of its URL, into a path of the route. `None` if the path stays the
    /// same or does not exist.
    fn path_back(&self, path: &[u8]) -> Option<Vec<u8>> {
        let mut base = Vec::new();
        path::resolve(self.server.path.as_ref()?.as_bytes(), &mut base);
        let base = base.strip_suffix(b"/").unwrap_or(&base);
        let rest = path.strip_prefix(base)?;
        match rest.first() {
            Some(b'/') => Some([self.route, rest].concat()),
            // The path of the route gets a slash at its end.
            None | Some(b'?' | b'#') if !base.is_empty() => Some([self.route, b"/", rest].concat()),
            _ => None,
        }
    }
}

/// Returns true if an authority has a port.
fn names_port(authority: &[u8]) -> bool {
    let port = authority.rsplit(|&byte| byte == b':').next().unwrap_or_default();
    port.len() < authority.len() && !port.is_empty() && port.iter().all(u8::is_ascii_digit)
}

/// The rest of a URL that begins with this scheme, in whatever case (RFC 3986 §3.1).
fn without<'a>(scheme: &[u8], url: &'a [u8]) -> Option<&'a [u8]> {
    let (start, rest) = url.split_at_checked(scheme.len())?;
    start.eq_ignore_ascii_case(scheme).then_some(rest)
}

/// A URL in two parts: authority with the scheme or the slashes before it, if it has an authority, and the rest.
fn split(url: &[u8]) -> (&[u8], &[u8]) {
    let colon = match url {
        [b'/', b'/', ..] => None,
        _ => match url.windows(3).position(|three| three == b"://") {
            Some(colon) if url[..colon].iter().all(u8::is_ascii_alphanumeric) => Some(colon),
            _ => return (b"", url),
        },
    };
    let begin = colon.map_or(2, |colon| colon + 3);
    let end = url[begin..].iter().position(|byte| b"/?#\\".contains(byte));
    url.split_at(end.map_or(url.len(), |end| begin + end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(server: &str, route: &str, pairs: &[(&str, Option<&str>)]) {
        let url = config::upstream::server(server).unwrap();
        let way = Mapping { host: b"example.org:8080", route: route.as_bytes(), server: &url };
        for &(location, back) in pairs {
            let found = way.back(location.as_bytes());
            let found = found.as_deref().map(|text| core::str::from_utf8(text).unwrap());
            assert_eq!(found, back, "{location} of {server} below {route}/");
        }
    }

    const SERVER: &str = "http://10.0.0.1:9000";

    #[test]
    fn the_address_of_the_server_is_not_for_the_client() {
        let pairs = [
            ("http://10.0.0.1:9000/", Some("/")),
            ("http://10.0.0.1:9000", Some("/")),
            ("http://10.0.0.1:9000?q", Some("/?q")),
            ("http://10.0.0.1:9000/a/b?c=http://d#e", Some("/a/b?c=http://d#e")),
            ("HTTP://10.0.0.1:9000/a", Some("/a")),
            ("hTTpS://10.0.0.1:9000/a", Some("/a")),
            ("//10.0.0.1:9000/a", Some("/a")),
            ("//10.0.0.1:9000", Some("/")),
            ("//10.0.0.1:9000?q=a://b", Some("/?q=a://b")),
            ("//10.0.0.1:9001/a", None),
            ("///10.0.0.1:9000/a", None),
            ("http:////10.0.0.1:9000/a", None),
            ("http://10.0.0.1:9001/", None),
            ("http://10.0.0.1/", None),
            ("https://10.0.0.1:9000/a", Some("/a")),
            ("https://10.0.0.1:9000", Some("/")),
            ("https://10.0.0.1/", None),
            ("https://10.0.0.1:/", None),
            ("https://10.0.0.1:9001/", None),
            ("http://10.0.0.1:9000.example.org/", None),
            ("http://user@10.0.0.1:9000/", None),
            ("", None),
            ("/a", None),
            ("a", None),
            ("http://example.org:8080/a", None),
        ];
        // The path is kept, whatever the route is.
        for route in ["", "/api"] {
            check(SERVER, route, &pairs);
        }
        let names = [
            ("http://APP.local/x", Some("/x")),
            ("http://app.local:80/x", Some("/x")),
            ("//app.local/x", Some("/x")),
            ("https://app.local:80/x", Some("/x")),
            // The server there is not the upstream.
            ("https://app.local/x", None),
            ("https://app.local:443/x", None),
        ];
        check("http://App.local", "", &names);
        let names = [
            ("http://[0::1]:81/x", Some("/x")),
            ("https://[::1]:81/x", Some("/x")),
            ("https://[::81]/x", None),
        ];
        check("http://[::1]:81", "", &names);
        let names = [
            ("https://app.local/x", Some("/x")),
            ("https://app.local:443/x", Some("/x")),
            ("http://app.local:443/x", Some("/x")),
            ("http://app.local/x", None),
            ("https://app.local:80/x", None),
        ];
        check("https://app.local", "", &names);
        check("unix:/run/a.sock", "", &[("http://localhost/x", None), ("/x", None)]);
    }

    #[test]
    fn a_path_of_the_server_is_one_of_the_route() {
        let pairs = [
            ("/v1/a?b#c", Some("/api/a?b#c")),
            ("/v1/", Some("/api/")),
            ("/v1", Some("/api/")),
            ("/v1?q", Some("/api/?q")),
            ("/v1//a", Some("/api//a")),
            ("/v10/a", None),
            ("/", None),
            ("a", None),
            ("?q", None),
            ("http://10.0.0.1:9000/v1/a", Some("/api/a")),
            ("http://10.0.0.1:9000/other", Some("/other")),
            ("http://Example.org:8080/v1/a", Some("http://Example.org:8080/api/a")),
            ("https://example.org:8080/v1/a", Some("https://example.org:8080/api/a")),
            ("HTTP://10.0.0.1:9000/v1/a", Some("/api/a")),
            ("//10.0.0.1:9000/v1/a", Some("/api/a")),
            ("//Example.org:8080/v1/a", Some("//Example.org:8080/api/a")),
            ("HTTPS://example.org:8080/v1/a", Some("HTTPS://example.org:8080/api/a")),
            ("//example.org/v1/a", None),
            ("http://example.org/v1/a", None),
            ("http://example.org:8080", None),
            ("ftp://example.org:8080/v1/a", None),
        ];
        for base in ["/v1/", "/v1"] {
            check(&format!("{SERVER}{base}"), "/api", &pairs);
        }
        check(&format!("{SERVER}/"), "/api", &[("/a", Some("/api/a")), ("/", Some("/api/"))]);
        check(&format!("{SERVER}/v1/"), "", &[("/v1/a", Some("/a")), ("/v1", Some("/"))]);
    }

    /// Browsers mistake the text after two slashes, or after a slash and a backslash, for a host.
    #[test]
    fn no_path_becomes_a_host() {
        let pairs = [
            "http://10.0.0.1:9000//evil.example",
            "http://10.0.0.1:9000/\\evil.example",
            "http://10.0.0.1:9000\\evil.example",
            "http://10.0.0.1:9000/v1//evil.example",
            "//10.0.0.1:9000//evil.example",
            "//10.0.0.1:9000\\evil.example",
            "/v1//evil.example",
            "/v1/\\evil.example",
            "//evil.example/v1/",
            "/\\evil.example/v1/",
        ];
        check(&format!("{SERVER}/v1/"), "", &pairs.map(|location| (location, None)));
        // The name was a host before.
        check(&format!("{SERVER}/"), "/api", &[("//other.example/a", None)]);
    }
}
