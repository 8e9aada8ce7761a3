//! The fields that a route's upstreams get beside the fields of the client, and the variables in their values.
//!
//! ```text
//! value    = *( text | "$$" | variable )
//! variable = "$" name | "${" name "}"
//! ```
//!
//! A name without braces ends where the longest name of a variable ends: a hyphen belongs to it only if the name has one.
//! `$$` stands for a dollar, as in the target of a redirect.

use http1::Limits;

use super::{rule, suggest};

/// A field of requests that are passed on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestHeader {
    name: String,
    /// The value as it was written.
    text: String,
    /// Its pieces; none if the field is left out.
    pieces: Vec<Piece>,
}

/// A piece of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// Bytes that are equal in each request.
    Text(String),
    /// A value that differs between requests.
    Variable(Variable),
}

/// A fact about a request, for use in a value. The names are those of the access log in JSON, if the log has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variable {
    /// The address of the client, which a trusted proxy may have named.
    Client,
    /// The requested host, with its port if the client has sent one.
    Host,
    /// The method.
    Method,
    /// The path as the client has sent it.
    Path,
    /// The address of the peer of the connection.
    Peer,
    /// The query as the client has sent it, without its question mark.
    Query,
    /// The scheme that the client has asked for: `http` or `https`. A trusted proxy may have named it.
    Scheme,
    /// The cipher suite of the connection. Without TLS it is empty, as are the other facts of a handshake.
    TlsCipher,
    /// The subject of the certificate that the client has shown; empty if there is none.
    TlsClient,
    /// The server that the client has named in its handshake (SNI); empty if there is none.
    TlsServerName,
    /// The version of TLS: `TLSv1.2` or `TLSv1.3`.
    TlsVersion,
}

const VARIABLES: [(&str, Variable); 11] = [
    ("client", Variable::Client),
    ("host", Variable::Host),
    ("method", Variable::Method),
    ("path", Variable::Path),
    ("peer", Variable::Peer),
    ("query", Variable::Query),
    ("scheme", Variable::Scheme),
    ("tls-cipher", Variable::TlsCipher),
    ("tls-client", Variable::TlsClient),
    ("tls-server-name", Variable::TlsServerName),
    ("tls-version", Variable::TlsVersion),
];

/// The variables of nginx that mean the same as a variable here, or a fact that upstreams always get.
const ELSEWHERE: [(&str, &str); 13] = [
    ("args", "use `$query`"),
    ("http_host", "use `$host`"),
    ("proxy_add_x_forwarded_for", "`X-Forwarded-For` is continued anyway"),
    ("query_string", "use `$query`"),
    ("realip_remote_addr", "use `$peer`"),
    ("remote_addr", "use `$client`"),
    ("request_method", "use `$method`"),
    ("request_uri", "use `$path` and `$query`"),
    ("ssl_cipher", "use `$tls-cipher`"),
    ("ssl_client_s_dn", "use `$tls-client`"),
    ("ssl_protocol", "use `$tls-version`"),
    ("ssl_server_name", "use `$tls-server-name`"),
    ("uri", "use `$path`"),
];

/// Fields that only the server itself writes, because they frame the request, belong to one connection, or count the
/// servers that a request has passed. Hyphens are left out, because some servers treat hyphens and underscores alike.
const OWN: [&str; 11] = [
    "connection",
    "contentlength",
    "expect",
    "http2settings",
    "keepalive",
    "maxforwards",
    "te",
    "trailer",
    "transferencoding",
    "upgrade",
    "via",
];
/// The beginning of the names of further such fields.
const OWN_START: &str = "proxy";

impl RequestHeader {
    /// The maximum of fields of one route.
    pub const FIELDS_MAX: usize = 64;
    /// The maximum of bytes of a value, as it is written.
    pub const VALUE_BYTES_MAX: usize = 4096;
    /// Variables in a value.
    pub const VARIABLES_MAX: usize = 8;
    /// The maximum of bytes of the names and values of all fields of one route, as they are written. The head that is
    /// sent (64 KiB) has as much room for the request's own fields and its variables.
    pub const BYTES_MAX: usize = 32 * 1024;

    /// Makes a field of its name and its value, which may have variables. An empty value leaves the field out.
    ///
    /// # Errors
    ///
    /// A sentence for the operator.
    pub fn new(name: &str, text: &str) -> Result<Self, String> {
        let name = Self::check_name(name)?;
        let text = rule::field_value(text)?;
        if text.len() > Self::VALUE_BYTES_MAX {
            return Err("a value has 4096 bytes at most".to_owned());
        }
        let pieces = pieces(&text)?;
        let variables = pieces.iter().filter(|piece| matches!(piece, Piece::Variable(_))).count();
        if variables > Self::VARIABLES_MAX {
            return Err("a value has 8 variables at most".to_owned());
        }
        if name.eq_ignore_ascii_case("Host") {
            check_host(&pieces)?;
        }
        Ok(Self { name, text, pieces })
    }

    /// Checks a name.
    ///
    /// # Errors
    ///
    /// A sentence for the operator.
    pub(super) fn check_name(name: &str) -> Result<String, String> {
        let letters = name.bytes().filter(|byte| !matches!(byte, b'-' | b'_'));
        let letters: Vec<u8> = letters.map(|byte| byte.to_ascii_lowercase()).collect();
        let is_plain = letters.iter().all(u8::is_ascii_alphanumeric);
        if letters.is_empty() || !is_plain {
            return Err(format!("{name:?}: expected letters, digits and hyphens"));
        }
        if letters.starts_with(OWN_START.as_bytes())
            || OWN.iter().any(|own| own.as_bytes() == letters)
        {
            return Err(format!("{name}: only the server itself writes this field"));
        }
        Ok(name.to_owned())
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its value as it was written.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The pieces of its value; none if it is left out.
    #[must_use]
    #[inline]
    pub fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    /// Returns true if its value has the subject of the client's certificate, so that a client must not send the field
    /// itself.
    #[must_use]
    pub fn names_tls_client(&self) -> bool {
        self.pieces.contains(&Piece::Variable(Variable::TlsClient))
    }

    /// Returns whether a field has this name, in the eyes of programs that treat `X_Real_IP` as `X-Real-IP`.
    pub fn is_named(&self, name: &[u8]) -> bool {
        let folded = |byte: &u8| if *byte == b'_' { b'-' } else { byte.to_ascii_lowercase() };
        name.len() == self.name.len()
            && name.iter().map(folded).eq(self.name.bytes().map(|byte| folded(&byte)))
    }
}

/// Splits a value into its pieces.
fn pieces(text: &str) -> Result<Vec<Piece>, String> {
    let mut pieces = Vec::new();
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once('$') {
        plain.push_str(before);
        if let Some(behind) = behind.strip_prefix('$') {
            plain.push('$');
            rest = behind;
            continue;
        }
        let (name, behind) = match behind.strip_prefix('{') {
            Some(inner) => inner.split_once('}').ok_or("expected `}` behind `${`")?,
            None => behind.split_at(name_len(behind)),
        };
        if !plain.is_empty() {
            pieces.push(Piece::Text(core::mem::take(&mut plain)));
        }
        pieces.push(Piece::Variable(variable(name)?));
        rest = behind;
    }
    plain.push_str(rest);
    if !plain.is_empty() {
        pieces.push(Piece::Text(plain));
    }
    Ok(pieces)
}

/// The length of the name at the beginning of a text: of the longest one of a variable, or else of a word.
fn name_len(text: &str) -> usize {
    let is_of_word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    let ends = |len: usize| !text.as_bytes().get(len).is_some_and(is_of_word);
    let known = VARIABLES.iter().map(|(name, _)| *name);
    let known = known.filter(|name| text.starts_with(name) && ends(name.len()));
    let word = || text.bytes().take_while(is_of_word).count();
    known.map(str::len).max().unwrap_or_else(word)
}

/// Finds a variable by its name.
fn variable(name: &str) -> Result<Variable, String> {
    if let Some((_, variable)) = VARIABLES.iter().find(|(known, _)| *known == name) {
        return Ok(*variable);
    }
    if name.is_empty() {
        return Err(
            "`$` is followed by the name of a variable; `$$` is the character itself".to_owned()
        );
    }
    let names = || VARIABLES.iter().map(|(name, _)| *name);
    let hint = match ELSEWHERE.iter().find(|(theirs, _)| *theirs == name) {
        Some((_, hint)) => format!("{hint}; "),
        None => suggest::nearest(name, names())
            .map(|near| format!("did you mean `${near}`? "))
            .unwrap_or_default(),
    };
    let all: Vec<_> = names().map(|name| format!("`${name}`")).collect();
    Err(format!("unknown variable `${name}`; {hint}there are {}", all.join(", ")))
}

/// Checks that a request has one host, and that it is one.
fn check_host(pieces: &[Piece]) -> Result<(), String> {
    match pieces {
        [] => Err("a request has a `Host`".to_owned()),
        [Piece::Variable(Variable::Host)] => Ok(()),
        [Piece::Text(host)] => {
            // The same parser judges the hosts of clients.
            let head = format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
            let parsed = http1::parse(head.as_bytes(), &Limits::DEFAULT);
            let is_host = parsed.is_ok_and(|parsed| parsed.is_some());
            is_host.then_some(()).ok_or_else(|| format!("{host:?} is no host"))
        }
        _ => Err("`Host` is `$host`, or a host without variables".to_owned()),
    }
}

const _: () = assert!(RequestHeader::VALUE_BYTES_MAX == 4096 && RequestHeader::VARIABLES_MAX == 8);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_has_texts_and_variables() {
        let text = |text: &str| Piece::Text(text.to_owned());
        let (client, path) = (Piece::Variable(Variable::Client), Piece::Variable(Variable::Path));
        let tls_client = Piece::Variable(Variable::TlsClient);
        for (value, expected) in [
            ("", vec![]),
            ("a b", vec![text("a b")]),
            ("$client", vec![client.clone()]),
            ("${client}s", vec![client.clone(), text("s")]),
            ("$client,$path", vec![client.clone(), text(","), path.clone()]),
            ("$client$path", vec![client.clone(), path]),
            ("$client-$client-x", vec![client.clone(), text("-"), client.clone(), text("-x")]),
            ("$tls-client", vec![tls_client.clone()]),
            ("$tls-client-$client", vec![tls_client.clone(), text("-"), client]),
            ("${tls-client}s", vec![tls_client, text("s")]),
            ("$$client$$", vec![text("$client$")]),
            ("ä", vec![text("ä")]),
        ] {
            assert_eq!(pieces(value), Ok(expected), "{value}");
        }
        for (name, variable) in VARIABLES {
            assert_eq!(pieces(&format!("${name}")), Ok(vec![Piece::Variable(variable)]));
        }
        for (value, expected) in [
            ("$", "`$` is followed by the name of a variable"),
            ("a $ b", "`$` is followed by the name of a variable"),
            ("${client", "expected `}`"),
            ("${}", "`$` is followed by the name of a variable"),
            (
                "$clients",
                "unknown variable `$clients`; did you mean `$client`? there are `$client`, `$host`,",
            ),
            (
                "$remote_addr",
                "unknown variable `$remote_addr`; use `$client`; there are `$client`,",
            ),
            ("$1", "unknown variable `$1`; there are"),
            ("$tls-clients", "unknown variable `$tls`;"),
            ("$tls", "unknown variable `$tls`;"),
            ("$ssl_client_s_dn", "unknown variable `$ssl_client_s_dn`; use `$tls-client`;"),
        ] {
            let error = pieces(value).expect_err(value);
            assert!(error.contains(expected), "{value}: {error}");
        }
    }

    #[test]
    fn fields_of_the_server_and_values_with_line_ends_are_refused() {
        for name in [
            "Connection",
            "content-length",
            "Content_Length",
            "TransferEncoding",
            "Transfer-Encoding",
            "Upgrade",
            "Expect",
            "Trailer",
            "TE",
            "Keep-Alive",
            "Via",
            "Max-Forwards",
            "Proxy",
            "Proxy-Authorization",
            "proxy_connection",
        ] {
            let error = RequestHeader::new(name, "x").expect_err(name);
            assert!(error.contains("only the server itself"), "{name}: {error}");
        }
        for (name, value) in [
            ("", "x"),
            ("-", "x"),
            ("A B", "x"),
            ("A:", "x"),
            ("Ä", "x"),
            ("A\r\nB", "x"),
            ("A", "x\r\nB: y"),
            ("A", "x\ny"),
            ("A", "x\0"),
            ("A", &"x".repeat(4097)),
            ("A", &"$path".repeat(9)),
        ] {
            assert!(RequestHeader::new(name, value).is_err(), "{name:?} {value:?}");
        }
        for (name, value) in [("X-A", ""), ("A_B", "$$"), ("Cookie", "a=b; c"), ("X", "ä")] {
            assert!(RequestHeader::new(name, value).is_ok(), "{name:?} {value:?}");
        }
    }

    #[test]
    fn a_request_has_one_host() {
        for good in ["$host", "${host}", "a.org", "a.org:80", "[::1]:80", "127.0.0.1"] {
            assert!(RequestHeader::new("host", good).is_ok(), "{good}");
        }
        for bad in ["", "a b", "a/b", "a@b", "a.org:x", "$client", "$host:80", "x$host"] {
            assert!(RequestHeader::new("Host", bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn names_are_the_same_with_hyphens_and_underscores() {
        let field = RequestHeader::new("X-Real_IP", "x").expect("a field");
        for (name, expected) in
            [("x-real-ip", true), ("X_REAL_IP", true), ("X-Real-I", false), ("XRealIP", false)]
        {
            assert_eq!(field.is_named(name.as_bytes()), expected, "{name}");
        }
    }
}
