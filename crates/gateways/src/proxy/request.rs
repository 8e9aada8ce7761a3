//! The head of a request as it is sent to an upstream. It is written anew from the parsed head, so that both servers
//! understand the same.
//!
//! Reading list: RFC 9110 §7.6 (forwarding), §7.8 (`Upgrade`), §10.1.1 (`Expect`); RFC 9112 §3.2; RFC 7239.
//!
//! | part | as it is sent |
//! |---|---|
//! | method, query, `Host` | as the client sent them |
//! | path | as the client sent it, but for that of the route, which has the configuration's spelling: the path is of the route that was chosen by its meaning, also for a server that mistakes `//a/b` for the path `/b` of a host. If it has dot segments, in the one form that [`path::resolve`] gives it ([`path::forwarded`]). Below the path of the server's URL, if that has one |
//! | version | HTTP/1.1 |
//! | framing | `Content-Length`, or chunked, by what was parsed |
//! | `Expect` | not at all: the session invites the body |
//! | `Connection` | `close` if the method has no use for the body, so that a server that mistakes the body for another request has nothing to send its response to (RFC 9110 §9.3.1, §9.3.5) |
//! | fields of one connection | not at all (RFC 9110 §7.6.1), but for an `Upgrade` and for `TE: trailers` |
//! | `X-Request-Id` | the id of the request: that of a trusted proxy, or one that is made |
//! | `Via` | continued, with a comment if the request is one for what a page includes |
//! | `Forwarded`, `X-Forwarded-For`, `-Host`, `-Proto` | continued if the peer is a trusted proxy, else replaced; then other `X-Forwarded-*`, `X-Real-IP` and the fields of `is_of_outer_request` are left out too. All name the scheme that counts |
//! | `Proxy` | not at all: CGI programs mistake it for the proxy that they are to use ("httpoxy") |
//! | fields of the route's `request-headers` | as these say, in place of all others with the same names |
//! | fields with other characters in their names than letters, digits and `-` | not at all: to many programs `X_Real_IP` is the same as `X-Real-IP` |

use core::net::IpAddr;
use core::ops::Range;
use std::sync::Arc;

use http::bytes;
use http::{ConnectionOptions, Field, Framing, Head, Method, Status, Target};
use http::{Version, path, push_line};
use http1::write::{self, ConnectionOption, RequestStart};

use crate::names::{imitates_framing, is_of_outer_request, is_plain};
use crate::tls::safe;
use config::{Piece, RequestHeader, Variable};
use sendfile::Handshake;
use session::client::Sender;
use session::forwarded;
use session::request_id::{REQUEST_ID, RequestId};

/// Bytes of the head of a request as it is sent, without the path of the server's URL. The limit is larger if the
/// client's fields and half of these bytes are more. Most servers accept fewer bytes: 8 KiB in a line (nginx, Apache
/// httpd), or 16 KiB in all (HAProxy, Node.js).
pub(crate) const HEAD_BYTES_MAX: usize = 64 * 1024;
/// The most servers of this kind through which a request may pass; more are a loop.
const HOPS_MAX: usize = 8;
/// Status 508, of RFC 5842 §7.2.
pub const LOOP_DETECTED: u16 = 508;
/// The comment of samum in `Via`, if samum has passed the request on for a page (RFC 9110 §7.6.3).
const INCLUDE: &[u8] = b"(include)";

/// The facts on which the head that is sent depends, in addition to the head of the client's request.
#[derive(Clone, Copy, Debug)]
pub struct Forwarding<'a> {
    /// The path of the route, which ends with a slash.
    pub prefix: &'a [u8],
    /// The `Host` for requests that name none.
    pub authority: &'a [u8],
    /// The sender of the request.
    pub sender: Sender,
    /// The host that the client has asked for, if a trusted proxy names it in `Forwarded`.
    pub told_host: Option<&'a [u8]>,
    /// True if it is for what a page includes.
    pub is_include: bool,
    /// The fields that the route sets or leaves out, if there are some.
    pub fields: Option<&'a Arc<[RequestHeader]>>,
    /// The handshake of the connection, if it has TLS.
    pub handshake: Option<&'a dyn Handshake>,
    /// The id of the request, which the upstream gets.
    pub request_id: Option<&'a RequestId>,
}

/// The head of a request would have more than `HEAD_BYTES_MAX` bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong<'a> {
    /// The field of the route that does not fit; `None` if all of them fit.
    pub(crate) field: Option<&'a str>,
}

impl<'a> Forwarding<'a> {
    fn fields(&self) -> impl Iterator<Item = &'a RequestHeader> {
        self.fields.into_iter().flat_map(|fields| &**fields)
    }

    /// Returns true if the route sets a field, or leaves it out.
    fn replaces(&self, name: &[u8]) -> bool {
        self.fields().any(|field| field.is_named(name))
    }
}

/// Returns the status for a request that may be passed on to no upstream.
pub fn refusal(head: &Head<'_>) -> Option<Status> {
    let mut objections = Objections::default();
    head.fields().for_each(|(name, value)| objections.note(name, value));
    objections.refusal(head)
}

/// The things that fields of a request say against passing it on.
#[derive(Debug, Default)]
struct Objections {
    /// True if some server may mistake one for a field of the framing.
    imitates_framing: bool,
    /// Servers of this kind that have passed it on.
    hops: usize,
}

impl Objections {
    fn note(&mut self, name: &[u8], value: &[u8]) {
        self.imitates_framing |= imitates_framing(name);
        if name.eq_ignore_ascii_case(b"Via") {
            self.hops += bytes::list(value).filter(|hop| comment_of_own(hop).is_some()).count();
        }
    }

    /// The status, once all fields were noted.
    fn refusal(&self, head: &Head<'_>) -> Option<Status> {
        match head.method {
            // A gateway makes no tunnels to other servers, and the response to a TRACE would show the fields that it adds.
            Method::Connect | Method::Trace => Some(Status::MethodNotAllowed),
            Method::Options if hops_left(head) == Some(0) => Some(Status::NoContent),
            _ if self.imitates_framing => Some(Status::BadRequest),
            _ if self.hops >= HOPS_MAX => Status::from_code(LOOP_DETECTED),
            _ => None,
        }
    }
}

/// Returns true if a samum server has passed a request on for an include of a page. Includes of the answer are then not
/// passed on again. Otherwise a page that includes itself through upstreams n times would be asked for n to the power
/// of `HOPS_MAX` times.
pub fn is_for_include(head: &Head<'_>) -> bool {
    let mut hops = values(head, b"Via").flat_map(bytes::list);
    hops.any(|hop| comment_of_own(hop) == Some(INCLUDE))
}

/// The comment of an element of `Via` that a samum server has added, perhaps empty; `None` for another server's
/// element.
fn comment_of_own(hop: &[u8]) -> Option<&[u8]> {
    let is_space = |byte: &u8| matches!(byte, b' ' | b'\t');
    let mut words = hop.split(is_space).filter(|word| !word.is_empty());
    let own = words.nth(1)? == config::NAME.as_bytes();
    own.then(|| words.next().unwrap_or_default())
}

/// Returns true if the link is of no use for another request, because of a body with this method. A server that expects
/// no body may mistake it for the next request (RFC 9110 §9.3.1, §9.3.2, §9.3.5). `OPTIONS` has no use for a body
/// (§9.3.7), and `TRACE` may have none (§9.3.8).
pub(super) fn is_last(head: &Head<'_>) -> bool {
    let has_no_use = matches!(
        head.method,
        Method::Get | Method::Head | Method::Delete | Method::Options | Method::Trace
    );
    has_no_use && head.framing.has_content()
}

/// The protocols to which the client asks to switch (RFC 9110 §7.8), as they are sent to the upstream; `None` if there
/// are none.
///
/// Another version of HTTP is left out, because its requests would pass to the upstream whatever their routes are. With
/// `HEAD` there are none, because a response to `HEAD` ends with its head, and after a 101 a tunnel would begin there.
/// WebSocket has `GET` only (RFC 6455 §4.1). Other protocols use `POST`, as Docker and Kubernetes do, or `OPTIONS`.
///
/// A request of Docker has a body, which is sent before the tunnel begins. So has a `GET` of some libraries: RFC 9110 §7.8
/// demands only that the whole request comes first, and nginx and Caddy pass such an upgrade on, too. If the method has no
/// use for a body and there is no tunnel, the link is [of no use](is_last) afterwards.
pub(crate) fn upgrade(head: &Head<'_>) -> Option<Vec<u8>> {
    let is_asked = match head.framing {
        Framing::Tunnel => true,
        Framing::None => false,
        Framing::Length(_) | Framing::Unknown => {
            let mut options = head.lines(Field::Connection).flat_map(bytes::list);
            head.version == Version::Http11
                && options.any(|option| option.eq_ignore_ascii_case(b"upgrade"))
        }
    };
    if !is_asked || head.method == Method::Head {
        return None;
    }
    let is_http = |protocol: &[u8]| {
        let name = protocol.split(|&byte| byte == b'/').next().unwrap_or_default();
        [&b"http"[..], b"h2", b"h2c", b"h3", b"tls"]
            .iter()
            .any(|own| own.eq_ignore_ascii_case(name))
    };
    let protocols: Vec<_> =
        values(head, b"Upgrade").flat_map(bytes::list).filter(|name| !is_http(name)).collect();
    (!protocols.is_empty()).then(|| protocols.join(&b", "[..]))
}

/// A head that was [written](fn@write).
#[derive(Debug)]
pub(crate) struct Written {
    /// The place of the path of the route in it, which [`with_base`] replaces.
    pub(crate) prefix: Range<usize>,
    /// Its [`refusal`].
    pub(crate) refusal: Option<Status>,
}

/// Appends the head of the request to an upstream, for a request with the target of a resource.
///
/// # Errors
///
/// [`TooLong`]; then a part of the head was written.
pub(crate) fn write<'a>(
    head: &Head<'_>,
    to: &mut Vec<u8>,
    how: &Forwarding<'a>,
) -> Result<Written, TooLong<'a>> {
    let head_at = to.len();
    let (path, query) = match head.target {
        Target::Origin { path, query } => (path, query),
        // Requests for these targets are answered without an upstream.
        Target::Asterisk | Target::Authority => (&b"/"[..], None),
    };
    let mut sent = path::forwarded(path);
    if !sent.starts_with(how.prefix) {
        sent = below(how.prefix, &sent).into();
    }
    let prefix_at = to.len() + head.method.as_bytes().len() + 1;
    let prefix = prefix_at..prefix_at + prefix_len(&sent, how.prefix);
    let start = RequestStart {
        method: head.method,
        target: Target::Origin { path: &sent, query },
        host: host_for(head, how),
        framing: head.framing,
    };
    write::request_start(&start, to);
    let options = ConnectionOptions::of(head.lines(Field::Connection));
    let mut has_trailers = false;
    let mut objections = Objections::default();
    for (name, value) in head.fields() {
        objections.note(name, value);
        has_trailers |= name.eq_ignore_ascii_case(b"TE") && accepts_trailers(value);
        if options.is_end_to_end(name) && is_passed_on(name, how) {
            push_line(to, name, value);
        }
    }
    let connection = if let Some(protocols) = upgrade(head) {
        push_line(to, b"Upgrade", &protocols);
        if is_last(head) { ConnectionOption::UpgradeOrClose } else { ConnectionOption::Upgrade }
    } else if is_last(head) {
        ConnectionOption::Close
    } else if has_trailers {
        push_line(to, b"TE", b"trailers");
        ConnectionOption::Te
    } else {
        ConnectionOption::Unsaid
    };
    if let Some(hops) = hops_left(head) {
        push_line(to, b"Max-Forwards", hops.saturating_sub(1).to_string().as_bytes());
    }
    push_line(to, b"Via", via(head.version, how.is_include).as_bytes());
    push_origin(head, how, to);
    if let Some(id) = how.request_id.filter(|_| !how.replaces(REQUEST_ID)) {
        push_line(to, REQUEST_ID, id.as_bytes());
    }
    // A head that the configuration permits is passed on.
    let bytes_max = HEAD_BYTES_MAX.max(head.lines_len() + HEAD_BYTES_MAX / 2);
    push_own(head, how, to, head_at + bytes_max)?;
    write::request_end(connection, to);
    if to.len() - head_at > bytes_max {
        return Err(TooLong { field: None });
    }
    Ok(Written { prefix, refusal: objections.refusal(head) })
}

/// The host in the request to the upstream.
fn host_for<'a>(head: &Head<'a>, how: &Forwarding<'a>) -> &'a [u8] {
    let field = how.fields().find(|field| field.is_named(b"Host"));
    match field.map(|field| field.pieces()) {
        Some([Piece::Text(host)]) => host.as_bytes(),
        _ => head.host().unwrap_or(how.authority),
    }
}

/// Adds the route's fields until there are `len_max` bytes; `Host` was written before.
fn push_own<'a>(
    head: &Head<'_>,
    how: &Forwarding<'a>,
    to: &mut Vec<u8>,
    len_max: usize,
) -> Result<(), TooLong<'a>> {
    for field in how.fields().filter(|field| !field.is_named(b"Host")) {
        let line_at = to.len();
        to.extend_from_slice(field.name().as_bytes());
        to.extend_from_slice(b": ");
        let value_at = to.len();
        for piece in field.pieces() {
            push_piece(piece, head, how, to);
            if to.len() > len_max {
                return Err(TooLong { field: Some(field.name()) });
            }
        }
        let value = &to[value_at..];
        debug_assert!(
            value.iter().all(|&byte| bytes::is(byte, bytes::VALUE)),
            "no value ends its line"
        );
        if value.trim_ascii().is_empty() {
            to.truncate(line_at);
        } else {
            to.extend_from_slice(b"\r\n");
        }
    }
    Ok(())
}

fn push_piece(piece: &Piece, head: &Head<'_>, how: &Forwarding<'_>, to: &mut Vec<u8>) {
    let (path, query) = match head.target {
        Target::Origin { path, query } => (path, query.unwrap_or_default()),
        Target::Asterisk | Target::Authority => (&b""[..], &b""[..]),
    };
    let fact = |text: Option<&str>, to: &mut Vec<u8>| {
        to.extend_from_slice(&safe(text.unwrap_or_default()));
    };
    let address = |address: Option<IpAddr>, to: &mut Vec<u8>| match address {
        Some(address) => push_address(address, to),
        None => to.extend_from_slice(b"unknown"),
    };
    match piece {
        Piece::Text(text) => to.extend_from_slice(text.as_bytes()),
        Piece::Variable(variable) => match variable {
            Variable::Client => address(how.sender.client, to),
            Variable::Peer => address(how.sender.peer, to),
            Variable::Host => to.extend_from_slice(head.host().unwrap_or(how.authority)),
            Variable::Method => to.extend_from_slice(head.method.as_bytes()),
            Variable::Path => to.extend_from_slice(path),
            Variable::Query => to.extend_from_slice(query),
            Variable::Scheme => to.extend_from_slice(how.sender.scheme().name().as_bytes()),
            Variable::TlsCipher => fact(how.handshake.and_then(|tls| tls.cipher()), to),
            Variable::TlsClient => fact(how.handshake.and_then(|tls| tls.client()), to),
            Variable::TlsServerName => fact(how.handshake.and_then(|tls| tls.server_name()), to),
            Variable::TlsVersion => fact(how.handshake.map(|tls| tls.version()), to),
            Variable::RequestId => {
                to.extend_from_slice(how.request_id.map_or(b"", |id| id.as_bytes()));
            }
            // The configuration permits none of these here, because no response is there yet.
            _ => {}
        },
    }
}

/// A [written](fn@write) head for a server whose URL has the path `base`. The path replaces that of the route, which is
/// at `prefix`.
pub(super) fn with_base(head: &[u8], prefix: Range<usize>, base: &[u8]) -> Vec<u8> {
    let (start, rest) = (&head[..prefix.start], &head[prefix.end..]);
    let mut whole = Vec::with_capacity(head.len() + base.len());
    whole.extend_from_slice(start);
    // The configuration has it without percent-encoding.
    path::resolve(base, &mut whole);
    if whole.ends_with(b"/") && (rest.starts_with(b"/") || whole.len() > start.len() + 1) {
        whole.pop();
    }
    whole.extend_from_slice(rest);
    whole
}

/// The `Host` of a [written](fn@write) head.
pub(super) fn host_of(head: &[u8]) -> &[u8] {
    const NAME: &[u8] = b"\r\nHost: ";
    let at = head.windows(NAME.len()).position(|part| part.eq_ignore_ascii_case(NAME));
    let value = at.map_or(&head[..0], |at| &head[at + NAME.len()..]);
    value.split(|&byte| byte == b'\r').next().unwrap_or_default()
}

/// Returns true if a value of `TE` says that the client understands trailers.
fn accepts_trailers(value: &[u8]) -> bool {
    bytes::list(value)
        .filter_map(bytes::weighted)
        .any(|(name, weight)| name.eq_ignore_ascii_case(b"trailers") && weight > 0)
}

/// The element of `Via` for a request of this version.
const fn via(version: Version, is_include: bool) -> &'static str {
    match (version, is_include) {
        (Version::Http10, false) => "1.0 samum",
        (Version::Http10, true) => "1.0 samum (include)",
        (Version::Http11, false) => "1.1 samum",
        (Version::Http11, true) => "1.1 samum (include)",
        (Version::Http2, false) => "2 samum",
        (Version::Http2, true) => "2 samum (include)",
    }
}

/// A path that begins with the route's path in the configuration's spelling; the rest stays as it is.
fn below(prefix: &[u8], path: &[u8]) -> Vec<u8> {
    let mut whole = Vec::with_capacity(path.len());
    path::resolve(prefix, &mut whole);
    whole.pop();
    whole.extend_from_slice(path::behind(path, prefix));
    whole
}

/// The length of the route's path, without the slash at its end, at the start of a path that is sent.
fn prefix_len(sent: &[u8], prefix: &[u8]) -> usize {
    // The route's path has the same number of segments in both spellings.
    let depth = prefix.iter().filter(|&&byte| byte == b'/').count();
    let slashes = sent.iter().enumerate().filter(|(_, byte)| **byte == b'/');
    slashes.map(|(at, _)| at).nth(depth.saturating_sub(1)).unwrap_or(sent.len())
}

/// Returns true if a field that does not belong to a connection is passed on unchanged.
fn is_passed_on(name: &[u8], how: &Forwarding<'_>) -> bool {
    !is_written(name, how) && is_plain(name) && !how.replaces(name)
}

/// Returns whether a field is written anew, or left out because only a trusted proxy may send it.
fn is_written(name: &[u8], how: &Forwarding<'_>) -> bool {
    const WRITTEN: [&[u8]; 6] =
        [b"Content-Length", b"Expect", b"Forwarded", b"Host", b"Max-Forwards", b"Proxy"];
    const CONTINUED: [&[u8]; 3] = [b"X-Forwarded-For", b"X-Forwarded-Host", b"X-Forwarded-Proto"];
    const ADDRESSES: [&[u8]; 2] = [b"X-Forwarded-For", b"X-Real-IP"];
    let is_one_of = |names: &[&[u8]]| names.iter().any(|other| other.eq_ignore_ascii_case(name));
    let is_trusted = how.sender.is_trusted;
    // Already the first letter tells of most that they are not.
    match name.first().map(u8::to_ascii_lowercase) {
        Some(b'c' | b'e' | b'f' | b'h' | b'm' | b'p') => {
            is_one_of(&WRITTEN) || !is_trusted && is_of_outer_request(name)
        }
        Some(b'x') if how.request_id.is_some() && name.eq_ignore_ascii_case(REQUEST_ID) => true,
        Some(b'x') if is_trusted => is_one_of(&CONTINUED),
        Some(b'x') => is_one_of(&ADDRESSES) || is_of_outer_request(name),
        _ => false,
    }
}

/// Adds the fields that say where a request comes from.
///
/// A list that a trusted proxy has sent is continued. If the proxy has sent only one of the two lists, the other one
/// begins with the client that the first one names, so that both lists agree.
fn push_origin(head: &Head<'_>, how: &Forwarding<'_>, to: &mut Vec<u8>) {
    // Only these lines of a trusted proxy are looked for.
    let trusted = how.sender.is_trusted.then_some(head);
    let lines_of =
        |name: &'static [u8]| trusted.into_iter().flat_map(move |head| values(head, name));
    let of_proxy = |name| {
        let mut lines = lines_of(name);
        lines.next().filter(|value| !value.is_empty() && lines.next().is_none())
    };
    let host = of_proxy(b"X-Forwarded-Host").or(how.told_host).or_else(|| head.host());
    let host = host.filter(|host| !host.is_empty());
    let own = how.sender.own_scheme.name().as_bytes();
    let told = how.sender.scheme().name().as_bytes();

    let client = how.sender.client.filter(|client| Some(*client) != how.sender.peer);

    let line_at = to.len();
    to.extend_from_slice(b"X-Forwarded-For: ");
    let list_at = to.len();
    for value in lines_of(b"X-Forwarded-For").filter(|value| !value.is_empty()) {
        to.extend_from_slice(value);
        to.extend_from_slice(b", ");
    }
    if let Some(client) = client.filter(|_| to.len() == list_at) {
        push_address(client, to);
        to.extend_from_slice(b", ");
    }
    match how.sender.peer {
        Some(peer) => push_address(peer, to),
        None => to.extend_from_slice(b"unknown"),
    }
    to.extend_from_slice(b"\r\n");
    if how.replaces(b"X-Forwarded-For") {
        to.truncate(line_at);
    }
    if let Some(host) = host.filter(|_| !how.replaces(b"X-Forwarded-Host")) {
        push_line(to, b"X-Forwarded-Host", host);
    }
    if !how.replaces(b"X-Forwarded-Proto") {
        push_line(to, b"X-Forwarded-Proto", told);
    }

    if how.replaces(b"Forwarded") {
        return;
    }
    to.extend_from_slice(b"Forwarded: ");
    let list_at = to.len();
    let is_sound = |value: &&[u8]| !value.is_empty() && forwarded::is_sound(value);
    // A list with another scheme than the one that counts begins anew.
    let is_kept = !how.sender.is_contradicted;
    for value in lines_of(b"Forwarded").filter(|value| is_kept && is_sound(value)) {
        to.extend_from_slice(value);
        to.extend_from_slice(b", ");
    }
    let is_first = to.len() == list_at;
    if let Some(client) = client.filter(|_| is_first) {
        push_element(Some(client), host, told, to);
        to.extend_from_slice(b", ");
    }
    // A peer that stands for its client uses the scheme that it names.
    let scheme = if is_first && client.is_none() { told } else { own };
    push_element(how.sender.peer, head.host(), scheme, to);
    to.extend_from_slice(b"\r\n");
}

/// Appends a `forwarded-element` (RFC 7239 §4).
fn push_element(node: Option<IpAddr>, host: Option<&[u8]>, scheme: &[u8], to: &mut Vec<u8>) {
    to.extend_from_slice(b"for=");
    match node {
        Some(node @ IpAddr::V4(_)) => push_address(node, to),
        Some(IpAddr::V6(address)) => push_text(format!("[{address}]").as_bytes(), to),
        None => to.extend_from_slice(b"unknown"),
    }
    if let Some(host) = host.filter(|host| !host.is_empty()) {
        to.extend_from_slice(b";host=");
        push_text(host, to);
    }
    to.extend_from_slice(b";proto=");
    push_text(scheme, to);
}

/// Appends an address without the brackets that it may need.
fn push_address(address: IpAddr, to: &mut Vec<u8>) {
    match address {
        // A formatter would take ten times as long.
        IpAddr::V4(address) => {
            // Three digits and a dot for each number.
            let mut text = [0; 16];
            let mut len = 0;
            let mut push = |byte| {
                text[len] = byte;
                len += 1;
            };
            for octet in address.octets() {
                if octet >= 100 {
                    push(b'0' + octet / 100);
                }
                if octet >= 10 {
                    push(b'0' + octet / 10 % 10);
                }
                push(b'0' + octet % 10);
                push(b'.');
            }
            to.extend_from_slice(&text[..len - 1]);
        }
        IpAddr::V6(address) => to.extend_from_slice(address.to_string().as_bytes()),
    }
}

/// Appends a token, or a quoted string of the same text (RFC 9110 §5.6.4).
fn push_text(text: &[u8], to: &mut Vec<u8>) {
    if !text.is_empty() && bytes::skip(text, 0, bytes::TOKEN) == text.len() {
        return to.extend_from_slice(text);
    }
    to.push(b'"');
    for part in text.split_inclusive(|byte| matches!(byte, b'"' | b'\\')) {
        let (start, last) = part.split_at(part.len() - 1);
        to.extend_from_slice(start);
        if matches!(last, [b'"' | b'\\']) {
            to.push(b'\\');
        }
        to.extend_from_slice(last);
    }
    to.push(b'"');
}

/// The number of servers through which a request for the options of a resource may still pass (RFC 9110 §7.6.2), if the
/// client limits it.
fn hops_left(head: &Head<'_>) -> Option<u64> {
    if head.method != Method::Options {
        return None;
    }
    values(head, b"Max-Forwards").next().and_then(bytes::decimal)
}

/// The values of all lines of a field.
fn values<'a>(head: &Head<'a>, name: &[u8]) -> impl Iterator<Item = &'a [u8]> {
    let named = head.fields().filter(move |(found, _)| found.eq_ignore_ascii_case(name));
    named.map(|(_, value)| value)
}

#[cfg(test)]
pub(super) mod tests;
