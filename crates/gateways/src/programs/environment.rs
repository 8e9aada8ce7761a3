//! The environment of a program: the request in the variables of RFC 3875 §4.
//!
//! It has the meta-variables of the RFC, and others that programs expect from every server: `REQUEST_URI`,
//! `REQUEST_SCHEME`, `REMOTE_PORT`, `SERVER_ADDR`, `SCRIPT_FILENAME`, `DOCUMENT_ROOT`, `DOCUMENT_URI` (as with nginx,
//! the path with the chosen index), and `REDIRECT_STATUS`, without which PHP refuses to run. A request over samum's own
//! TLS has `SSL_PROTOCOL`, `SSL_CIPHER`, `SSL_SERVER_NAME`, `SSL_CLIENT_VERIFY` and `SSL_CLIENT_S_DN`, as with Apache
//! httpd. `REMOTE_USER` is the user whom an authorizer names. No field of a client can be one of these, because each
//! field's name begins with `HTTP_`.
//!
//! Left out on purpose:
//!
//! - `HTTP_PROXY`, because programs mistake it for the proxy that they are to use ("httpoxy"),
//! - fields whose names have other characters than letters, digits and `-`: `X_Real_IP` and `X-Real-IP` would be one
//!   variable,
//! - fields that concern only the connection, and `Expect`,
//! - fields for which `request-headers` of a route have the subject of a certificate, because an application would
//!   believe them,
//! - fields by which a proxy describes its client's request (`Forwarded`, `X-Forwarded-Proto`), unless the peer is a
//!   trusted proxy, because an application would believe them,
//! - arguments made of the query (§4.4), because programs mistake those that begin with `-` for options.

use core::net::IpAddr;
use core::ops::Range;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use http::{Field, Framing, Head, Target, path};
use sendfile::Handshake;

use crate::names::is_of_outer_request;
use crate::tls::safe;
use config::RequestHeader;
use session::client::Sender;
use session::forwarded::Scheme;
use session::request_id::{REQUEST_ID, RequestId};

/// The search path of programs, unless the configuration has another one.
pub(crate) const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// Fields without a variable, in addition to fields that concern only the connection.
const HIDDEN_FIELDS: [&[u8]; 5] =
    [b"Content-Length", b"Content-Type", b"Expect", b"Host", b"Proxy"];

/// Room for the texts of most requests, and for their variables.
const TEXTS_BYTES: usize = 1024;
const VARIABLES: usize = 32;

/// The variables of one program. Each name occurs once.
#[derive(Debug, Default)]
pub struct Environment {
    /// The names and the values. A value that was replaced stays among them.
    texts: Vec<u8>,
    variables: Vec<Variable>,
    /// The path of the request, if it is not that of `REQUEST_URI`.
    path: Option<Box<[u8]>>,
}

/// The places of a variable's name and value among the texts. Most requests have 20 variables. With memory of its own
/// for each text, a request took 15,000 instructions more.
#[derive(Debug)]
struct Variable {
    name: Range<usize>,
    value: Range<usize>,
}

/// The facts about a request that are not in its head.
#[derive(Clone, Copy, Debug)]
pub struct Circumstances<'a> {
    /// The sender of the request.
    pub sender: Sender,
    /// The name of the user who has made the request, if an authorizer names one.
    pub user: Option<&'a str>,
    /// The host that the client has asked for, if a trusted proxy names it in `Forwarded`.
    pub told_host: Option<&'a [u8]>,
    /// The path and the query that the client has requested, if the request is for what its page includes.
    pub requested: Option<&'a [u8]>,
    /// The port of the client, if it is known.
    pub client_port: Option<u16>,
    /// The name of the server, for requests that name no host.
    pub server_name: &'a str,
    /// The address at which the connection was accepted, if it is known and not that of a Unix socket.
    pub server_address: Option<IpAddr>,
    /// The port of the listener, if it has one.
    pub port: Option<u16>,
    /// The handshake of the connection, if it has TLS.
    pub handshake: Option<&'a dyn Handshake>,
    /// The id of the request.
    pub request_id: Option<RequestId>,
    /// Fields of routes that only the server may write: no client's field with such a name has a variable.
    pub reserved: &'a [RequestHeader],
}

/// The way from the path of a request to a program.
#[derive(Clone, Copy, Debug)]
pub struct Script<'a> {
    /// The path of the route, which ends with a slash.
    pub mount: &'a [u8],
    /// The path below the route, as [`http::path::normalize_opaque`] makes it.
    pub path: &'a [u8],
    /// True if the request names a directory: its path ends with a slash.
    pub directory: bool,
    /// The length of the part of `path` that is the name of the program.
    pub len: usize,
}

impl Environment {
    /// Bytes of memory of all variables.
    pub(crate) fn memory(&self) -> usize {
        let path = self.path.as_ref().map_or(0, |path| path.len());
        self.texts.capacity() + self.variables.capacity() * size_of::<Variable>() + path
    }

    /// The variables that are known before the program is found, and before all of the body has come.
    pub fn new(head: &Head<'_>, circumstances: &Circumstances<'_>) -> Self {
        let mut all = Self {
            texts: Vec::with_capacity(TEXTS_BYTES),
            variables: Vec::with_capacity(VARIABLES),
            path: None,
        };
        let (path, query) = match head.target {
            Target::Origin { path, query } => (path, query),
            Target::Asterisk | Target::Authority => (&b"*"[..], None),
        };
        all.path = circumstances.requested.map(|_| path.into());
        // As in nginx and Apache httpd, an include has the URI of its page.
        let uri = circumstances.requested.map_or_else(|| head.target.to_text(), Into::into);
        let (name, port) = split_host(head.host().unwrap_or_default());
        let name = if name.is_empty() { circumstances.server_name.as_bytes() } else { name };
        let sender = circumstances.sender;
        let scheme = sender.scheme();
        let outer = if sender.is_trusted { outer_port(head, circumstances) } else { None };
        let port = outer.or(circumstances.port).or(port).unwrap_or_else(|| scheme.port());
        // Of a Unix socket nginx says the same.
        let client = sender.client.map(|client| client.to_canonical().to_string());
        let client = client.as_deref().unwrap_or("unix:").as_bytes();
        all.add("AUTH_TYPE", b"");
        all.add("GATEWAY_INTERFACE", b"CGI/1.1");
        if scheme == Scheme::Https {
            all.add("HTTPS", b"on");
        }
        all.add("QUERY_STRING", query.unwrap_or_default());
        all.add("REDIRECT_STATUS", b"200");
        all.add("REMOTE_ADDR", client);
        all.add("REMOTE_HOST", client);
        if let Some(port) = circumstances.client_port {
            all.add("REMOTE_PORT", port.to_string().as_bytes());
        }
        if let Some(user) = circumstances.user {
            all.add("REMOTE_USER", &safe(user));
        }
        all.add("REQUEST_METHOD", head.method.as_bytes());
        all.add("REQUEST_SCHEME", scheme.name().as_bytes());
        all.add("REQUEST_URI", &uri);
        if let Some(address) = circumstances.server_address {
            all.add("SERVER_ADDR", address.to_canonical().to_string().as_bytes());
        }
        all.add("SERVER_NAME", name);
        all.add("SERVER_PORT", port.to_string().as_bytes());
        all.add("SERVER_PROTOCOL", head.version.name().as_bytes());
        all.add("SERVER_SOFTWARE", concat!("samum/", env!("CARGO_PKG_VERSION")).as_bytes());
        if let Some(host) = head.host() {
            all.add("HTTP_HOST", host);
        }
        if let Some(handshake) = circumstances.handshake {
            all.set_handshake(handshake);
        }
        if let Some(id) = &circumstances.request_id {
            all.add("HTTP_X_REQUEST_ID", id.as_bytes());
        }
        let has_id = circumstances.request_id.is_some();
        let is_id = |name: &[u8]| has_id && name.eq_ignore_ascii_case(REQUEST_ID);
        let is_reserved = |name: &[u8]| {
            is_id(name) || circumstances.reserved.iter().any(|one| one.is_named(name))
        };
        for (name, value) in head.fields().end_to_end() {
            if !sender.is_trusted && is_of_outer_request(name) || is_reserved(name) {
                continue;
            }
            if name.eq_ignore_ascii_case(b"Content-Type") {
                all.set("CONTENT_TYPE", value);
            } else if let Some(name) = variable(name) {
                all.append(&name, value);
            }
        }
        all
    }

    /// Sets the variables about TLS.
    fn set_handshake(&mut self, handshake: &dyn Handshake) {
        let client = handshake.client();
        self.set("SSL_CLIENT_VERIFY", if client.is_some() { b"SUCCESS" } else { b"NONE" });
        for (name, value) in [
            ("SSL_CIPHER", handshake.cipher()),
            ("SSL_CLIENT_S_DN", client),
            ("SSL_PROTOCOL", Some(handshake.version())),
            ("SSL_SERVER_NAME", handshake.server_name()),
        ] {
            if let Some(value) = value {
                self.set(name, &safe(value));
            }
        }
    }

    /// Removes the variables about content, for a request that was handed over: it has no content (RFC 3875 §6.2.2).
    #[must_use]
    pub(crate) fn without_content(mut self) -> Self {
        let Self { texts, variables, .. } = &mut self;
        variables.retain(|variable| &texts[variable.name.clone()] != b"CONTENT_TYPE");
        self
    }

    /// Sets the length of the content that the program will read, as far as the client has announced it.
    pub fn announce_content(&mut self, head: &Head<'_>) {
        match head.framing {
            Framing::Length(length) => self.set_content_length(length),
            // The client has announced an empty body.
            Framing::None | Framing::Tunnel if head.has(Field::ContentLength) => {
                self.set_content_length(0);
            }
            _ => {}
        }
    }

    /// Sets the length of the content that the program will read.
    pub fn set_content_length(&mut self, length: u64) {
        self.set("CONTENT_LENGTH", length.to_string().as_bytes());
    }

    /// Adds the variables that are known once the program is found. `root` is the directory of the programs, and
    /// `documents` the directory of the site's files.
    pub fn set_script(&mut self, script: Script<'_>, root: &Path, documents: Option<&Path>) {
        let Script { mount, path, directory, len } = script;
        let (name, rest) = path.split_at(len);
        // No file has a slash in its name. The path info is decoded (RFC 3875 §4.1.5).
        let (name, rest) = (&path::with_slashes(name, b"%2F"), &path::with_slashes(rest, b"/"));
        self.set("SCRIPT_NAME", &[mount, name].concat());
        self.set("SCRIPT_FILENAME", root.join(OsStr::from_bytes(name)).as_os_str().as_bytes());
        let info = [&**rest, if directory { b"/" } else { b"" }].concat();
        self.set("DOCUMENT_URI", &[mount, name, &info].concat());
        if let Some(documents) = documents {
            self.set("DOCUMENT_ROOT", documents.as_os_str().as_bytes());
        }
        if info.is_empty() {
            return;
        }
        self.set("PATH_INFO", &info);
        if let Some(documents) = documents {
            self.set("PATH_TRANSLATED", &[documents.as_os_str().as_bytes(), &info].concat());
        }
    }

    /// Sets a variable, and replaces an earlier value.
    pub fn set(&mut self, name: &str, value: &[u8]) {
        match self.place(name) {
            Some(place) => self.variables[place].value = self.keep(value),
            None => self.add(name, value),
        }
    }

    /// Adds a variable that is not set.
    fn add(&mut self, name: &str, value: &[u8]) {
        let (name, value) = (self.keep(name.as_bytes()), self.keep(value));
        self.variables.push(Variable { name, value });
    }

    /// Sets the variable of a field, or appends the value of a further line of the field.
    fn append(&mut self, name: &str, value: &[u8]) {
        let Some(place) = self.place(name) else { return self.add(name, value) };
        // RFC 6265 §5.4 has cookies in one list; browsers split it into several fields only in HTTP/2.
        let separator = if name == "HTTP_COOKIE" { b"; " } else { b", " };
        // The texts behind the old value make room, so that a field with many lines takes no more memory than these.
        let Range { start, end: at } = self.variables[place].value;
        let count = separator.len() + value.len();
        self.texts.splice(at..at, separator.iter().chain(value).copied());
        for Variable { name, value } in &mut self.variables {
            for range in [name, value].into_iter().filter(|range| range.start >= at) {
                *range = range.start + count..range.end + count;
            }
        }
        self.variables[place].value = start..at + count;
    }

    /// The place of a variable among the others.
    fn place(&self, name: &str) -> Option<usize> {
        let is_it = |variable: &Variable| self.texts[variable.name.clone()] == *name.as_bytes();
        self.variables.iter().position(is_it)
    }

    /// Appends a text to the others; returns its place.
    fn keep(&mut self, text: &[u8]) -> Range<usize> {
        let at = self.texts.len();
        self.texts.extend_from_slice(text);
        at..self.texts.len()
    }

    /// The path of the request, for the operator.
    pub(crate) fn path(&self) -> &[u8] {
        let uri = || self.value("REQUEST_URI").unwrap_or_default().as_encoded_bytes();
        let path = || uri().split(|&byte| byte == b'?').next().unwrap_or_default();
        self.path.as_deref().unwrap_or_else(path)
    }

    /// The value of a variable.
    pub(crate) fn value(&self, name: &str) -> Option<&OsStr> {
        self.iter().find(|(other, _)| *other == name).map(|(_, value)| value)
    }

    /// All variables.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&OsStr, &OsStr)> {
        let text = |range: &Range<usize>| OsStr::from_bytes(&self.texts[range.clone()]);
        self.variables.iter().map(move |Variable { name, value }| (text(name), text(value)))
    }
}

/// The lengths of the parts of a path that may be the name of a program: one name, two names, and so on. They end
/// before a name that no file can have, or that begins with a dot, because such files are not meant for clients.
///
/// In the file system nothing is below a program, so the first part that is no directory decides.
pub(crate) fn candidates(path: &[u8]) -> impl Iterator<Item = usize> {
    let mut end = 0;
    path.split(|&byte| byte == b'/').take_while(|name| is_candidate(name)).map(move |name| {
        let start = if end == 0 { 0 } else { end + 1 };
        end = start + name.len();
        end
    })
}

fn is_candidate(name: &[u8]) -> bool {
    !matches!(name, [] | [b'.', ..]) && path::check_file(name).is_ok()
}

/// The variable of a field; `None` if the field has none.
fn variable(name: &[u8]) -> Option<String> {
    let is_plain = name.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'-');
    if !is_plain || HIDDEN_FIELDS.iter().any(|hidden| hidden.eq_ignore_ascii_case(name)) {
        return None;
    }
    let name = name.iter().map(|byte| match byte {
        b'-' => '_',
        byte => char::from(byte.to_ascii_uppercase()),
    });
    Some("HTTP_".chars().chain(name).collect())
}

/// The port of the URL that the client of a trusted proxy has requested, if the proxy gives it: as a field, in the
/// host, or by the scheme. A `Host` with the port of the listener is the proxy's own, which names samum.
fn outer_port(head: &Head<'_>, circumstances: &Circumstances<'_>) -> Option<u16> {
    let single = |wanted: &'static [u8]| {
        let is_it = move |(name, _): &(&[u8], &[u8])| name.eq_ignore_ascii_case(wanted);
        let mut lines = head.fields().filter(is_it).map(|(_, value)| value);
        lines.next().filter(|value| !value.is_empty() && lines.next().is_none())
    };
    let port = single(b"X-Forwarded-Port").and_then(http::bytes::decimal);
    if let Some(port @ 1..) = port.and_then(|port| u16::try_from(port).ok()) {
        return Some(port);
    }
    let default = circumstances.sender.told_scheme.map(Scheme::port);
    match single(b"X-Forwarded-Host").or(circumstances.told_host) {
        Some(host) => split_host(host).1.or(default),
        None => default.map(|default| {
            let port = split_host(head.host().unwrap_or_default()).1;
            port.filter(|port| Some(*port) != circumstances.port).unwrap_or(default)
        }),
    }
}

/// Splits the value of `Host` into host and port. The brackets of an IPv6 address stay (RFC 3875 §4.1.14).
fn split_host(host: &[u8]) -> (&[u8], Option<u16>) {
    match host.iter().rposition(|&byte| byte == b':') {
        Some(colon) if !host.ends_with(b"]") => {
            let port = http::bytes::decimal(&host[colon + 1..]);
            (&host[..colon], port.and_then(|port| u16::try_from(port).ok()))
        }
        _ => (host, None),
    }
}

#[cfg(test)]
mod tests;
