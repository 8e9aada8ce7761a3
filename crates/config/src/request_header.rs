//! The fields that a route's upstreams get in addition to the fields of the client. Their values have
//! [variables](super::variable).

use http1::Limits;

use super::rule;
use super::secrets::HIDDEN;
use super::variable::{Piece, Scope, Variable, pieces};

/// A field of requests that are passed on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestHeader {
    name: String,
    /// The value as it was written.
    text: String,
    /// Its pieces; none if the field is left out.
    pieces: Vec<Piece>,
}

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
        let pieces = pieces(&text, Scope::Request)?;
        let variables = pieces.iter().filter(|piece| matches!(piece, Piece::Variable(_))).count();
        if variables > Self::VARIABLES_MAX {
            return Err("a value has 8 variables at most".to_owned());
        }
        if name.eq_ignore_ascii_case("Host") {
            check_host(&pieces)?;
        }
        Ok(Self { name, text, pieces })
    }

    /// The field with a value that is not shown.
    pub(super) fn hidden(&self) -> Self {
        Self { name: self.name.clone(), text: HIDDEN.to_owned(), pieces: Vec::new() }
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

    /// Returns true if upstreams do not get the field, even if the client sends it.
    #[must_use]
    pub fn is_left_out(&self) -> bool {
        self.text.is_empty()
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
