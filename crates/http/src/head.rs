//! The head of a request, as a view of received bytes.
//!
//! Reading list: RFC 9110 §3.9, §5, §6, §7.

use alloc::vec::Vec;
use core::fmt;

use crate::bytes;
use crate::field::{Field, FieldIndex};
use crate::framing::Framing;
use crate::method::Method;

/// The head of a request: a view of bytes that a parser has accepted.
///
/// The parser of a version of HTTP makes it with [`Head::new`]; everything else only reads it. A
/// head whose bytes go away is kept as a [`HeadBuf`](crate::HeadBuf).
#[derive(Clone, PartialEq, Eq)]
pub struct Head<'a> {
    /// The method.
    pub method: Method<'a>,
    /// The resource that the request is about.
    pub target: Target<'a>,
    /// The version of the request. It decides which features the connection may use, and is shown in logs.
    pub version: Version,
    /// The content that follows the head. There is none unless the parser sets this.
    pub framing: Framing,
    /// The authority that the target names, if it names one.
    authority: Option<&'a [u8]>,
    /// All field lines, each with its line end.
    lines: &'a [u8],
    index: FieldIndex,
}

/// The resource of a request (RFC 9112 §3.2).
///
/// The bytes are visible ASCII, and others than ASCII if the parser says so, not decoded;
/// [`path`](crate::path) turns a path into the name of a file.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Target<'a> {
    /// A resource of this server: origin-form, or absolute-form reduced to it.
    ///
    /// [`Head::host`] returns the authority of an absolute-form, even if `Host` differs (RFC 9112 §3.2.2).
    Origin {
        /// The path, beginning with a slash.
        path: &'a [u8],
        /// The text after the first `?`, if the target has one; it may be empty.
        query: Option<&'a [u8]>,
    },
    /// The server as a whole: `OPTIONS *`, or `OPTIONS` of an absolute URI without path and query.
    Asterisk,
    /// `host:port`, only for `CONNECT`; [`Head::host`] returns it.
    Authority,
}

/// The version of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// HTTP/1.0
    Http10,
    /// HTTP/1.1, or any later HTTP/1.x, which a 1.1 server treats as 1.1 (RFC 9110 §2.5).
    Http11,
    /// HTTP/2
    Http2,
}

impl<'a> Head<'a> {
    /// The maximum of bytes of field lines in a head: as many as a [`FieldIndex`] can index.
    pub const LINES_BYTES_MAX: usize = FieldIndex::LINES_BYTES_MAX;

    /// A head, as its parser found it.
    ///
    /// `authority` is the one of an absolute target, or `:authority` in later versions. `lines` are the field lines,
    /// each `name ":" OWS value OWS CRLF` with a token as its name and no control character but HTAB in its value.
    /// HTTP/1.1 sends them in this form, and the parser of another version writes them so. `index` has the positions
    /// in `lines` of the values of the fields named by [`Field`].
    ///
    /// The parser is responsible for the syntax of all of these; nothing is checked again here.
    ///
    /// # Panics
    ///
    /// If `lines` is longer than [`LINES_BYTES_MAX`](Self::LINES_BYTES_MAX).
    #[inline]
    pub fn new(
        method: Method<'a>,
        target: Target<'a>,
        version: Version,
        authority: Option<&'a [u8]>,
        lines: &'a [u8],
        index: FieldIndex,
    ) -> Self {
        assert!(lines.len() <= Self::LINES_BYTES_MAX, "a head with too many bytes of fields");
        let framing = Framing::None;
        Self { method, target, version, framing, authority, lines, index }
    }

    /// The head with this framing of its content.
    #[must_use]
    #[inline]
    pub const fn with_framing(mut self, framing: Framing) -> Self {
        self.framing = framing;
        self
    }

    /// The head of a request for another resource, with the same fields: a request that is handed over.
    pub fn with_target<'b>(&self, method: Method<'b>, target: Target<'b>) -> Head<'b>
    where
        'a: 'b,
    {
        Head { method, target, ..self.clone() }
    }

    /// The head with other field lines; they are as in [`new`](Self::new).
    ///
    /// # Panics
    ///
    /// If `lines` is longer than [`LINES_BYTES_MAX`](Self::LINES_BYTES_MAX).
    pub fn with_lines<'b>(&self, lines: &'b [u8], index: FieldIndex) -> Head<'b>
    where
        'a: 'b,
    {
        assert!(lines.len() <= Self::LINES_BYTES_MAX, "a head with too many bytes of fields");
        Head { lines, index, ..self.clone() }
    }

    /// The head of a request without its conditions and ranges, because they do not concern the content that is sent.
    /// The conditions of a `POST` are about the resource that it goes to (RFC 9110 §13.2.1, §14.2).
    /// [`fields`](Self::fields) still has their lines.
    #[must_use]
    pub fn without_conditions(&self) -> Self {
        let mut head = self.clone();
        head.index.remove(&Field::CONDITIONS);
        head
    }

    /// The authority of the target, if it names one.
    pub(crate) const fn authority(&self) -> Option<&'a [u8]> {
        self.authority
    }

    /// The number of bytes of all field lines.
    pub const fn lines_len(&self) -> usize {
        self.lines.len()
    }

    /// The text of all field lines.
    pub(crate) const fn text(&self) -> &'a [u8] {
        self.lines
    }

    pub(crate) const fn index(&self) -> &FieldIndex {
        &self.index
    }

    /// The value of a field that was sent on exactly one line, without whitespace around it; it may be empty.
    ///
    /// `None` if the field is absent, and also if it was sent several times: a field that may come only once is then
    /// invalid and to be ignored (RFC 9110 §5.3). Use [`has`](Self::has) to distinguish the two, and
    /// [`lines`](Self::lines) for fields that hold lists.
    #[inline]
    pub fn field(&self, field: Field) -> Option<&'a [u8]> {
        self.index.single(field, self.lines)
    }

    /// Returns whether the field was sent at least once.
    #[inline]
    pub fn has(&self, field: Field) -> bool {
        self.index.has(field)
    }

    /// Returns whether any of `fields` was sent.
    #[inline]
    pub fn has_any(&self, fields: &[Field]) -> bool {
        self.index.has_any(fields)
    }

    /// The values of all lines of a field, in their order, for fields that hold lists.
    #[inline]
    pub fn lines(&self, field: Field) -> Lines<'a> {
        if self.index.is_repeated(field) {
            Lines(Source::Several { field, rest: self.fields() })
        } else {
            Lines(Source::Single(self.index.single(field, self.lines)))
        }
    }

    /// All field lines as `(name, value)`, in their order. Each call scans the lines again.
    pub fn fields(&self) -> Fields<'a> {
        Fields::new(self.lines)
    }

    /// The host and port that the request is for: the authority of the target if it has one, otherwise the value of
    /// `Host`.
    ///
    /// `None` only in HTTP/1.0; empty if the client says that it has no host. The syntax has been checked: no user
    /// information, no slash, no whitespace. Hosts compare without case, and the port is still attached.
    #[inline]
    pub fn host(&self) -> Option<&'a [u8]> {
        self.authority.or_else(|| self.field(Field::Host))
    }

    /// Appends the request line as HTTP/1 writes it, without its line end: for logs.
    ///
    /// An absolute target appears as the path that it was reduced to.
    pub fn request_line(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.method.as_bytes());
        out.push(b' ');
        match self.target {
            Target::Authority => out.extend_from_slice(self.host().unwrap_or_default()),
            target => target.push(out),
        }
        out.push(b' ');
        out.extend_from_slice(self.version.name().as_bytes());
    }
}

impl Target<'_> {
    /// Returns the path and the query; `*` for a target without them.
    pub fn to_text(self) -> Vec<u8> {
        let mut text = Vec::new();
        self.push(&mut text);
        text
    }

    fn push(self, out: &mut Vec<u8>) {
        let Self::Origin { path, query } = self else { return out.push(b'*') };
        out.extend_from_slice(path);
        if let Some(query) = query {
            out.push(b'?');
            out.extend_from_slice(query);
        }
    }
}

impl Version {
    /// The name of the version, such as `HTTP/1.1`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Http10 => "HTTP/1.0",
            Self::Http11 => "HTTP/1.1",
            Self::Http2 => "HTTP/2.0",
        }
    }
}

impl fmt::Debug for Head<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Head")
            .field("method", &self.method)
            .field("target", &self.target)
            .field("version", &self.version)
            .field("framing", &self.framing)
            .field("host", &self.host().map(Text))
            .field("lines", &Text(self.lines))
            .finish()
    }
}

impl fmt::Debug for Target<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Origin { path, query } => f
                .debug_struct("Origin")
                .field("path", &Text(path))
                .field("query", &query.map(Text))
                .finish(),
            Self::Asterisk => f.write_str("Asterisk"),
            Self::Authority => f.write_str("Authority"),
        }
    }
}

/// The values of one field: see [`Head::lines`].
#[derive(Clone, Debug)]
pub struct Lines<'a>(Source<'a>);

#[derive(Clone, Debug)]
enum Source<'a> {
    Single(Option<&'a [u8]>),
    Several { field: Field, rest: Fields<'a> },
}

impl<'a> Iterator for Lines<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        match &mut self.0 {
            Source::Single(value) => value.take(),
            Source::Several { field, rest } => {
                rest.find(|(name, _)| Field::of_name(name) == Some(*field)).map(|(_, value)| value)
            }
        }
    }
}

/// Field lines as `(name, value)`: see [`Head::fields`] and
/// [`FieldSection::fields`](crate::FieldSection::fields).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    /// The lines of a text that a parser has checked; see [`Head::new`] for its form.
    pub const fn new(lines: &'a [u8]) -> Self {
        Self { rest: lines }
    }

    /// The lines without those that concern one connection only; see [`ConnectionOptions`].
    pub fn end_to_end(self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        let is_connection = |name: &[u8]| Field::of_name(name) == Some(Field::Connection);
        let connection = self.clone().filter(move |(name, _)| is_connection(name));
        let options = ConnectionOptions::of(connection.map(|(_, value)| value));
        self.filter(move |(name, _)| options.is_end_to_end(name))
    }
}

/// The options of `Connection` in one head. They name fields that concern one connection only.
///
/// The first [`CONNECTION_OPTIONS_MAX`] count. Only a peer that wants to cause work sends more. Such a peer gains
/// nothing, because it could also have left the option out.
#[derive(Clone, Debug)]
pub struct ConnectionOptions<'a> {
    /// The options that are no names of [`is_hop_by_hop`]. Most heads have none.
    names: Vec<&'a [u8]>,
}

impl<'a> ConnectionOptions<'a> {
    /// No options.
    pub const NONE: Self = Self { names: Vec::new() };

    /// The options in the values of all lines of `Connection`.
    #[inline]
    pub fn of(values: impl Iterator<Item = &'a [u8]>) -> Self {
        let options = values.flat_map(bytes::list).take(CONNECTION_OPTIONS_MAX);
        Self { names: options.filter(|name| !is_hop_by_hop(name)).collect() }
    }

    /// Returns whether a proxy may forward the field with this name: no option names it, and it does not belong to
    /// HTTP/1 framing or to connections (RFC 9110 §7.6.1).
    #[inline]
    pub fn is_end_to_end(&self, name: &[u8]) -> bool {
        !is_hop_by_hop(name) && !self.names.iter().any(|option| option.eq_ignore_ascii_case(name))
    }
}

/// The options of `Connection` that are looked at to find the fields it names. Peers send two or
/// three.
pub const CONNECTION_OPTIONS_MAX: usize = 32;

/// Returns whether a field is never forwarded, with or without a mention in `Connection` (RFC 9110 §7.6.1, §11.7).
/// `Trailer` announces fields that are skipped here.
fn is_hop_by_hop(name: &[u8]) -> bool {
    // Length and first letter leave one candidate.
    let candidate = match (name.len(), name.first().map(u8::to_ascii_lowercase)) {
        (2, Some(b't')) => "TE",
        (7, Some(b't')) => "Trailer",
        (7, Some(b'u')) => "Upgrade",
        (10, Some(b'c')) => "Connection",
        (10, Some(b'k')) => "Keep-Alive",
        (14, Some(b'h')) => "HTTP2-Settings",
        (16, Some(b'p')) => "Proxy-Connection",
        (17, Some(b't')) => "Transfer-Encoding",
        (18, Some(b'p')) => "Proxy-Authenticate",
        (19, Some(b'p')) => "Proxy-Authorization",
        (25, Some(b'p')) => "Proxy-Authentication-Info",
        _ => return false,
    };
    name.eq_ignore_ascii_case(candidate.as_bytes())
}

impl<'a> Iterator for Fields<'a> {
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let lines = self.rest;
        // The lines were checked before they came here, so that only the end has no colon, and no name has
        // a character that is not one of names.
        let name_end = bytes::find(lines, b':');
        let end = bytes::skip_value(lines, name_end);
        let rest = lines.get(end + 2..)?;
        self.rest = rest;
        Some((&lines[..name_end], bytes::trim(&lines[name_end + 1..end])))
    }
}

/// Shows bytes as text in debug output.
struct Text<'a>(&'a [u8]);

impl fmt::Debug for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}

#[cfg(test)]
pub(crate) mod tests;
