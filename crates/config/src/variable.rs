//! The variables in texts of the configuration: values of `request-headers`, and formats of access logs.
//!
//! ```text
//! text     = *( text | "$$" | variable )
//! variable = "$" name | "${" name "}"
//! ```
//!
//! All names are in one table. In a name a hyphen and an underscore are the same. A name without braces ends where the
//! longest name of a variable ends: a hyphen belongs to it only if the name has one. `$$` stands for a dollar, as in the
//! target of a redirect.

use super::suggest;

/// A piece of a text.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Piece {
    /// Bytes that are equal in each request.
    Text(String),
    /// A value that differs between requests.
    Variable(Variable),
}

/// The moment at which a variable gets its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Scope {
    /// It is known of a request.
    Request,
    /// It is known once the response has left.
    Response,
}

/// A fact about a request or its response. The names are those of the access log in JSON, if the log has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Variable {
    /// Bytes of the body of the response that were sent.
    Bytes,
    /// The address of the client, which a trusted proxy may have named.
    Client,
    /// The number of the connection.
    Connection,
    /// The reason why the response was cut off; empty if it was not.
    Cut,
    /// The seconds in which the request has waited for a disk.
    DiskSeconds,
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
    /// The reason for an error.
    Reason,
    /// The value of `Referer`.
    Referer,
    /// The request line.
    Request,
    /// Bytes of the request: its head and its body.
    RequestBytes,
    /// The id of the request.
    RequestId,
    /// The scheme that the client has asked for: `http` or `https`. A trusted proxy may have named it.
    Scheme,
    /// The seconds from the end of the request's head until the response had left.
    Seconds,
    /// The name of the site.
    Site,
    /// The status of the response.
    Status,
    /// The time of the request, as RFC 3339 has it, in UTC.
    Time,
    /// The cipher suite of the connection. Without TLS it is empty, as are the other facts of a handshake.
    TlsCipher,
    /// The subject of the certificate that the client has shown; empty if there is none.
    TlsClient,
    /// The server that the client has named in its handshake (SNI); empty if there is none.
    TlsServerName,
    /// The version of TLS: `TLSv1.2` or `TLSv1.3`.
    TlsVersion,
    /// The value of `traceparent`, if it is one (W3C Trace Context).
    Traceparent,
    /// The upstream that has answered.
    Upstream,
    /// The seconds until the connection to the upstream was made.
    UpstreamConnectSeconds,
    /// The seconds from then on until the head of its response had come.
    UpstreamHeadSeconds,
    /// The seconds from then on until the rest of its response had come.
    UpstreamBodySeconds,
    /// The value of `User-Agent`.
    UserAgent,
    /// The version of HTTP: `HTTP/1.0` or `HTTP/1.1`.
    Version,
}

const VARIABLES: [(&str, Variable, Scope); 31] = [
    ("bytes", Variable::Bytes, Scope::Response),
    ("client", Variable::Client, Scope::Request),
    ("connection", Variable::Connection, Scope::Response),
    ("cut", Variable::Cut, Scope::Response),
    ("disk-seconds", Variable::DiskSeconds, Scope::Response),
    ("host", Variable::Host, Scope::Request),
    ("method", Variable::Method, Scope::Request),
    ("path", Variable::Path, Scope::Request),
    ("peer", Variable::Peer, Scope::Request),
    ("query", Variable::Query, Scope::Request),
    ("reason", Variable::Reason, Scope::Response),
    ("referer", Variable::Referer, Scope::Response),
    ("request", Variable::Request, Scope::Response),
    ("request-bytes", Variable::RequestBytes, Scope::Response),
    ("request-id", Variable::RequestId, Scope::Request),
    ("scheme", Variable::Scheme, Scope::Request),
    ("seconds", Variable::Seconds, Scope::Response),
    ("site", Variable::Site, Scope::Response),
    ("status", Variable::Status, Scope::Response),
    ("time", Variable::Time, Scope::Response),
    ("tls-cipher", Variable::TlsCipher, Scope::Request),
    ("tls-client", Variable::TlsClient, Scope::Request),
    ("tls-server-name", Variable::TlsServerName, Scope::Request),
    ("tls-version", Variable::TlsVersion, Scope::Request),
    ("traceparent", Variable::Traceparent, Scope::Response),
    ("upstream", Variable::Upstream, Scope::Response),
    ("upstream-body-seconds", Variable::UpstreamBodySeconds, Scope::Response),
    ("upstream-connect-seconds", Variable::UpstreamConnectSeconds, Scope::Response),
    ("upstream-head-seconds", Variable::UpstreamHeadSeconds, Scope::Response),
    ("user-agent", Variable::UserAgent, Scope::Response),
    ("version", Variable::Version, Scope::Response),
];

/// The variables of nginx that mean the same as variables here, or a fact that upstreams always get.
const ELSEWHERE: [(&str, &str); 32] = [
    ("args", "use `$query`"),
    ("body_bytes_sent", "use `$bytes`"),
    ("bytes_sent", "use `$bytes`, which has the body alone"),
    ("http_host", "use `$host`"),
    ("http_referer", "use `$referer`"),
    ("http_user_agent", "use `$user-agent`"),
    ("http_x_forwarded_for", "use `$client`, the address that a proxy of `trusted-proxies` names"),
    ("http_x_request_id", "use `$request-id`"),
    ("msec", "use `$time`"),
    ("proxy_add_x_forwarded_for", "`X-Forwarded-For` is continued anyway"),
    ("query_string", "use `$query`"),
    ("realip_remote_addr", "use `$peer`"),
    ("remote_addr", "use `$client`"),
    ("remote_user", "there is no authentication yet"),
    ("request_length", "use `$request-bytes`"),
    ("request_method", "use `$method`"),
    ("request_time", "use `$seconds`"),
    ("request_uri", "use `$path` and `$query`"),
    ("server_name", "use `$site` or `$host`"),
    ("server_protocol", "use `$version`"),
    ("ssl_cipher", "use `$tls-cipher`"),
    ("ssl_client_s_dn", "use `$tls-client`"),
    ("ssl_protocol", "use `$tls-version`"),
    ("ssl_server_name", "use `$tls-server-name`"),
    ("time_iso8601", "use `$time`"),
    ("time_local", "use `$time`"),
    ("upstream_addr", "use `$upstream`"),
    ("upstream_connect_time", "use `$upstream-connect-seconds`"),
    ("upstream_header_time", "use `$upstream-head-seconds`"),
    (
        "upstream_response_time",
        "use `$upstream-connect-seconds`, `$upstream-head-seconds` and `$upstream-body-seconds`, whose sum it is",
    ),
    ("upstream_status", "use `$status`"),
    ("uri", "use `$path`"),
];

/// Splits a text into its pieces. Its variables are known at the time of the scope.
pub(crate) fn pieces(text: &str, scope: Scope) -> Result<Vec<Piece>, String> {
    let mut pieces = Vec::new();
    let mut unknown = Vec::new();
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
        match variable(name, scope) {
            Ok(variable) => pieces.push(Piece::Variable(variable)),
            Err(Fault::Unknown(fault)) if unknown.contains(&fault) => {}
            Err(Fault::Unknown(fault)) => unknown.push(fault),
            Err(Fault::Other(why)) => return Err(why),
        }
        rest = behind;
    }
    if !unknown.is_empty() {
        let all: Vec<_> = known(scope).map(|name| format!("`${name}`")).collect();
        return Err(format!("{}there are {}", unknown.concat(), all.join(", ")));
    }
    plain.push_str(rest);
    if !plain.is_empty() {
        pieces.push(Piece::Text(plain));
    }
    Ok(pieces)
}

/// Returns whether a text begins with a name, in which hyphens may be underscores.
fn begins_with(text: &[u8], name: &str) -> bool {
    let folded = |byte: &u8| if *byte == b'_' { b'-' } else { *byte };
    text.len() >= name.len() && text.iter().map(folded).zip(name.bytes()).all(|(a, b)| a == b)
}

/// The length of the name at the beginning of a text: of the longest one of a variable, or else of a word.
fn name_len(text: &str) -> usize {
    let is_of_word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    let ends = |len: usize| !text.as_bytes().get(len).is_some_and(is_of_word);
    let known = VARIABLES.iter().map(|(name, ..)| *name);
    let known = known.filter(|name| begins_with(text.as_bytes(), name) && ends(name.len()));
    let word = || text.bytes().take_while(is_of_word).count();
    known.map(str::len).max().unwrap_or_else(word)
}

/// Returns the first name of a variable in a text that is sent as it is. The name is that of a variable here or of
/// nginx.
pub(crate) fn meant(text: &str) -> Option<&str> {
    text.split('$').skip(1).find_map(|behind| {
        let name = match behind.strip_prefix('{') {
            Some(inner) => inner.split('}').next().unwrap_or_default(),
            None => &behind[..name_len(behind)],
        };
        let is_ours =
            |known: &str| known.len() == name.len() && begins_with(name.as_bytes(), known);
        let is_known = VARIABLES.iter().any(|(known, ..)| is_ours(known))
            || ELSEWHERE.iter().any(|(theirs, _)| *theirs == name);
        is_known.then_some(name)
    })
}

/// The names of the variables that are known at a time.
fn known(scope: Scope) -> impl Iterator<Item = &'static str> {
    VARIABLES.iter().filter(move |(.., from)| *from <= scope).map(|(name, ..)| *name)
}

/// The fault of a name.
enum Fault {
    /// There is no variable with the name: the beginning of a sentence.
    Unknown(String),
    Other(String),
}

/// Finds a variable by its name.
fn variable(name: &str, scope: Scope) -> Result<Variable, Fault> {
    let is_it = |known: &str| known.len() == name.len() && begins_with(name.as_bytes(), known);
    match VARIABLES.iter().find(|(known, ..)| is_it(known)) {
        Some((_, variable, from)) if *from <= scope => return Ok(*variable),
        Some((known, ..)) => {
            return Err(Fault::Other(format!(
                "`${known}` is known only when the response has left: it is for the format of a log"
            )));
        }
        None => {}
    }
    if name.is_empty() {
        let why = "`$` is followed by the name of a variable; `$$` is the character itself";
        return Err(Fault::Other(why.to_owned()));
    }
    let hint = match ELSEWHERE.iter().find(|(theirs, _)| *theirs == name) {
        Some((_, hint)) => format!("{hint}; "),
        None => suggest::nearest(name, known(scope))
            .map(|near| format!("did you mean `${near}`? "))
            .unwrap_or_default(),
    };
    Err(Fault::Unknown(format!("unknown variable `${name}`; {hint}")))
}

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
            assert_eq!(pieces(value, Scope::Request), Ok(expected), "{value}");
        }
        for (name, variable, _) in VARIABLES {
            assert_eq!(
                pieces(&format!("${name}"), Scope::Response),
                Ok(vec![Piece::Variable(variable)])
            );
        }
        let error =
            pieces("$remote_addr $clients $x $remote_addr", Scope::Request).expect_err("three");
        let expected = "unknown variable `$remote_addr`; use `$client`; unknown variable `$clients`; did you mean \
                        `$client`? unknown variable `$x`; there are `$client`,";
        assert!(error.starts_with(expected), "{error}");
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
            let error = pieces(value, Scope::Request).expect_err(value);
            assert!(error.contains(expected), "{value}: {error}");
        }
    }

    #[test]
    fn a_variable_in_a_plain_text_is_found() {
        for (text, expected) in [
            ("$host", Some("host")),
            ("a $x $request_uri", Some("request_uri")),
            ("https://${user-agent}/", Some("user-agent")),
            ("$5, $ and $hosts", None),
            ("host", None),
        ] {
            assert_eq!(meant(text), expected, "{text}");
        }
    }

    #[test]
    fn what_is_known_of_a_response_is_for_logs() {
        let error = pieces("$status", Scope::Request).expect_err("it is not known");
        assert!(error.contains("`$status` is known only when the response has left"), "{error}");
        let [status, id] = [Variable::Status, Variable::RequestId].map(Piece::Variable);
        let blank = Piece::Text(" ".to_owned());
        for text in ["$status $request_id", "$status $request-id", "${status} ${request_id}"] {
            let expected = vec![status.clone(), blank.clone(), id.clone()];
            assert_eq!(pieces(text, Scope::Response), Ok(expected), "{text}");
        }
        let error = pieces("$body_bytes_sent", Scope::Response).expect_err("of nginx");
        assert!(error.contains("use `$bytes`"), "{error}");
    }
}
