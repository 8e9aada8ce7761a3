//! The answers of a server, as values: sites, and for each of them conversations of one connection.
//!
//! A case says which bytes a client sends and which responses must come back. Nothing here opens a
//! socket, starts a process or reads a clock, so whatever can serve a [`Site`] can run the table: the
//! binary over real sockets does (`tests/http/table.rs`).
//!
//! A runner makes the entries of each of the [`sites`], each file with the modification time [`MODIFIED`],
//! serves them, and calls [`Case::run`] for each case and each [`Cut`], with a [`Conversation`] on a new
//! connection.
//!
//! The same must come back however the bytes are cut into pieces.

use testkit::{Content, Framing, Response, request};

mod bodies;
mod conditions;
mod directories;
mod files;
mod malformed;
mod messages;
mod negotiation;
mod paths;
mod pipelining;
mod ranges;

/// The modification time of each file, in seconds since 1970, and as a field says it.
pub(crate) const MODIFIED: u64 = 784_111_777;
pub(crate) const LAST_MODIFIED: &str = "Sun, 06 Nov 1994 08:49:37 GMT";

/// All sites with their cases.
pub(crate) fn sites() -> Vec<Site> {
    [
        bodies::sites(),
        conditions::sites(),
        directories::sites(),
        files::sites(),
        malformed::sites(),
        messages::sites(),
        negotiation::sites(),
        paths::sites(),
        pipelining::sites(),
        ranges::sites(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// A directory, the options it is served with, and what clients ask of it.
pub(crate) struct Site {
    pub(crate) name: &'static str,
    pub(crate) entries: Vec<Entry>,
    /// `--listing`
    pub(crate) listing: bool,
    /// `--index`, if it is not the default.
    pub(crate) index: Option<&'static str>,
    pub(crate) cases: Vec<Case>,
}

/// One thing in a directory, by its path beneath the root, whose bytes are any that Linux allows.
pub(crate) struct Entry {
    pub(crate) path: Vec<u8>,
    pub(crate) kind: Kind,
}

pub(crate) enum Kind {
    File(Content),
    Directory,
    /// A symbolic link that says this.
    Link(&'static str),
}

impl Site {
    pub(crate) fn new(name: &'static str) -> Self {
        Self { name, entries: Vec::new(), listing: false, index: None, cases: Vec::new() }
    }

    pub(crate) fn file(mut self, path: impl AsRef<[u8]>, content: impl Into<Content>) -> Self {
        let kind = Kind::File(content.into());
        self.entries.push(Entry { path: path.as_ref().to_vec(), kind });
        self
    }

    fn directory(mut self, path: impl AsRef<[u8]>) -> Self {
        self.entries.push(Entry { path: path.as_ref().to_vec(), kind: Kind::Directory });
        self
    }

    fn link(mut self, path: &str, target: &'static str) -> Self {
        self.entries.push(Entry { path: path.into(), kind: Kind::Link(target) });
        self
    }

    fn with_listings(self) -> Self {
        Self { listing: true, ..self }
    }

    fn with_index(self, index: &'static str) -> Self {
        Self { index: Some(index), ..self }
    }

    fn cases(mut self, cases: impl IntoIterator<Item = Case>) -> Self {
        self.cases.extend(cases);
        self
    }
}

/// The bytes that one client sends on one connection, and the responses that must come back.
pub(crate) struct Case {
    pub(crate) name: String,
    steps: Vec<Step>,
    /// The client ends its side after the last step's bytes.
    shuts_down: bool,
    /// The server closes the connection after the last response, though the client has not ended its side.
    closes: bool,
}

/// Bytes, and the responses that are read before the next step.
struct Step {
    send: Vec<u8>,
    expect: Vec<Expected>,
}

impl Step {
    /// The bytes to send, with the entity tag of the first response in the place of each `{etag}`.
    fn bytes(&self, earlier: &[Response]) -> Vec<u8> {
        match tag(earlier) {
            Some(tag) if self.send.windows(ETAG.len()).any(|window| window == ETAG.as_bytes()) => {
                let text = str::from_utf8(&self.send).expect("requests with tags are text");
                text.replace(ETAG, tag).into_bytes()
            }
            _ => self.send.clone(),
        }
    }
}

const ETAG: &str = "{etag}";

/// The entity tag of the first response of a connection.
fn tag(earlier: &[Response]) -> Option<&str> {
    earlier.first().and_then(|first| first.header("ETag"))
}

impl Case {
    fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), steps: Vec::new(), shuts_down: false, closes: false }
    }

    /// A case of one request; its name is the request.
    fn of(head: impl Into<String>, expected: Expected) -> Self {
        let head = head.into();
        Self::new(head.clone()).ask(&head, expected)
    }

    /// Sends one request: its line without the version, and fields, one a line.
    fn ask(self, head: &str, expected: Expected) -> Self {
        let expected = if head.starts_with("HEAD ") { expected.for_head() } else { expected };
        self.send(request(head), [expected])
    }

    /// Sends these bytes, and reads this many responses.
    fn send(
        mut self,
        bytes: impl Into<Vec<u8>>,
        expect: impl IntoIterator<Item = Expected>,
    ) -> Self {
        self.steps.push(Step { send: bytes.into(), expect: expect.into_iter().collect() });
        self
    }

    fn shuts_down(self) -> Self {
        Self { shuts_down: true, ..self }
    }

    fn closes(self) -> Self {
        Self { closes: true, ..self }
    }

    /// Returns true if the case is about messages that every version of HTTP has, and not about the wire of HTTP/1.
    #[allow(dead_code, reason = "only one of the programs with this table speaks HTTP/2")]
    pub(crate) fn is_of_every_version(&self, is_fit: impl Fn(&[u8]) -> bool) -> bool {
        !self.closes && !self.shuts_down && self.steps.iter().all(|step| is_fit(&step.send))
    }

    /// Sends the bytes of each step, cut into pieces, and checks the responses. Then nothing may be left,
    /// and if [`closes`](Self::closes) the server must have closed the connection by itself.
    ///
    /// # Errors
    /// The first difference.
    pub(crate) fn run(&self, cut: Cut, client: &mut impl Conversation) -> Result<(), String> {
        let mut earlier: Vec<Response> = Vec::new();
        for (number, step) in self.steps.iter().enumerate() {
            let bytes = step.bytes(&earlier);
            for piece in cut.pieces(&bytes) {
                client.send(piece);
            }
            if self.shuts_down && number + 1 == self.steps.len() {
                client.shut_down()?;
            }
            for expected in &step.expect {
                let response = client.receive(expected.is_for_head)?;
                let fault = |fault| format!("{fault}\n{response:?}");
                expected.check(&response, &earlier).map_err(fault)?;
                earlier.push(response);
            }
        }
        if !self.closes && !self.shuts_down {
            client.shut_down()?;
        }
        match client.rest()? {
            0 => Ok(()),
            rest => Err(format!("{rest} bytes more")),
        }
    }
}

/// The client's side of one connection to whatever serves a site.
pub(crate) trait Conversation {
    /// Sends bytes, unless the server has closed the connection.
    fn send(&mut self, bytes: &[u8]);

    /// Ends the client's side.
    fn shut_down(&mut self) -> Result<(), String>;

    /// The next response; without a body if it answers a HEAD request, whatever its fields say.
    fn receive(&mut self, is_for_head: bool) -> Result<Response, String>;

    /// The number of bytes after the last response, up to the end of the connection.
    fn rest(&mut self) -> Result<usize, String>;
}

/// The pieces in which the bytes of a step are sent.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Cut {
    Whole,
    /// Single bytes, unless there are more than [`DRIBBLED_MAX`].
    Bytes,
}

const DRIBBLED_MAX: usize = 2000;

impl Cut {
    pub(crate) const ALL: [Self; 2] = [Self::Whole, Self::Bytes];

    fn pieces(self, bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
        let size = match self {
            Self::Bytes if bytes.len() <= DRIBBLED_MAX => 1,
            _ => bytes.len().max(1),
        };
        bytes.chunks(size)
    }
}

/// The properties that one response must have. `{etag}` in a value stands for the tag of the connection's first response.
#[derive(Clone)]
pub(crate) struct Expected {
    status: u16,
    fields: Vec<(&'static str, Value)>,
    framing: Option<Framing>,
    body: Body,
    is_for_head: bool,
    has_same_fields: bool,
}

#[derive(Clone)]
enum Value {
    Is(String),
    IsNot(String),
    Absent,
    Present,
    StrongTag,
}

#[derive(Clone)]
enum Body {
    /// These bytes.
    Is(Content),
    /// A page of the server's own about the status; the sentence on it, if it matters.
    Page(Option<&'static str>),
    /// A `multipart/byteranges` of a file of type `application/octet-stream`: first and last byte of each part.
    Parts(Content, Vec<(u64, u64)>),
    /// These texts in this order, and further ones anywhere; others nowhere.
    Text { ordered: Vec<String>, has: Vec<&'static str>, lacks: Vec<&'static str> },
}

impl Expected {
    fn new(status: u16, body: Body) -> Self {
        let (fields, framing) = (Vec::new(), None);
        Self { status, fields, framing, body, is_for_head: false, has_same_fields: false }
    }

    /// 200 with these bytes.
    fn ok(body: impl Into<Content>) -> Self {
        Self::new(200, Body::Is(body.into()))
    }

    /// 206 with these bytes of a file.
    fn part(of: &Content, first: u64, last: u64) -> Self {
        let count = usize::try_from(last - first + 1).expect("it fits into memory");
        let said = format!("bytes {first}-{last}/{}", of.len());
        Self::new(206, Body::Is(of.read(first, count).into())).field("Content-Range", said)
    }

    /// 206 with several parts of a file: first and last byte of each.
    fn parts(of: &Content, parts: impl Into<Vec<(u64, u64)>>) -> Self {
        // RFC 9110 §15.3.7.2
        Self::new(206, Body::Parts(of.clone(), parts.into())).absent("Content-Range")
    }

    /// This status and no body.
    fn empty(status: u16) -> Self {
        Self::new(status, Body::Is("".into()))
    }

    /// This status, explained by a page of the server's own.
    fn page(status: u16) -> Self {
        Self::new(status, Body::Page(None))
    }

    /// The same with this sentence on it.
    fn page_saying(status: u16, sentence: &'static str) -> Self {
        Self::new(status, Body::Page(Some(sentence)))
    }

    /// 200 with these texts, in this order.
    fn text(ordered: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let ordered = ordered.into_iter().map(Into::into).collect();
        Self::new(200, Body::Text { ordered, has: Vec::new(), lacks: Vec::new() })
    }

    fn has(mut self, text: &'static str) -> Self {
        if let Body::Text { has, .. } = &mut self.body {
            has.push(text);
        }
        self
    }

    fn lacks(mut self, text: &'static str) -> Self {
        if let Body::Text { lacks, .. } = &mut self.body {
            lacks.push(text);
        }
        self
    }

    fn field(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.fields.push((name, Value::Is(value.into())));
        self
    }

    fn field_other_than(mut self, name: &'static str, value: &str) -> Self {
        self.fields.push((name, Value::IsNot(value.into())));
        self
    }

    fn absent(mut self, name: &'static str) -> Self {
        self.fields.push((name, Value::Absent));
        self
    }

    fn present(mut self, name: &'static str) -> Self {
        self.fields.push((name, Value::Present));
        self
    }

    /// An entity tag that is not weak.
    fn strong_tag(mut self) -> Self {
        self.fields.push(("ETag", Value::StrongTag));
        self
    }

    /// A field that must have this value, or must not be there.
    fn field_or_absent(self, name: &'static str, value: Option<&str>) -> Self {
        match value {
            Some(value) => self.field(name, value),
            None => self.absent(name),
        }
    }

    fn framed(self, framing: Framing) -> Self {
        Self { framing: Some(framing), ..self }
    }

    fn for_head(self) -> Self {
        Self { is_for_head: true, ..self }
    }

    /// It has the fields of the response before, but perhaps another `Date`.
    fn same_fields(self) -> Self {
        Self { has_same_fields: true, ..self }
    }

    /// Holds a response against this. `earlier` are the connection's responses before it.
    ///
    /// # Errors
    /// The first difference.
    fn check(&self, response: &Response, earlier: &[Response]) -> Result<(), String> {
        self.check_head(response, earlier)?;
        match &self.body {
            _ if self.is_for_head => Ok(()),
            Body::Is(content) => same_bytes(&content.to_vec(), &response.body),
            Body::Page(sentence) => {
                let found = between(&response.body, "<p>", "</p>").ok_or("no sentence")?;
                let page = page(&format!("{} {}", response.status, response.reason), found);
                if sentence.is_some_and(|sentence| sentence != found) {
                    return Err(format!("the page says {found:?}"));
                }
                same_bytes(page.as_bytes(), &response.body)
            }
            Body::Parts(of, parts) => {
                let kind = response.header("Content-Type").unwrap_or_default();
                let boundary = kind.strip_prefix("multipart/byteranges; boundary=");
                let boundary = boundary.ok_or_else(|| format!("Content-Type: {kind}"))?;
                same_bytes(&multipart(boundary.trim_matches('"'), of, parts), &response.body)
            }
            Body::Text { ordered, has, lacks } => {
                let text = str::from_utf8(&response.body).map_err(|error| error.to_string())?;
                let mut rest = text;
                for part in ordered {
                    let at = rest.find(part).ok_or_else(|| format!("no {part:?} in {rest}"))?;
                    rest = &rest[at + part.len()..];
                }
                let missing = has.iter().find(|part| !text.contains(**part));
                let unwanted = lacks.iter().find(|part| text.contains(**part));
                match missing.or(unwanted) {
                    Some(part) => Err(format!("{part:?}: {text}")),
                    None => Ok(()),
                }
            }
        }
    }

    fn check_head(&self, response: &Response, earlier: &[Response]) -> Result<(), String> {
        if (response.minor_version, response.status) != (1, self.status) {
            return Err(format!("expected {}", self.status));
        }
        if self.framing.is_some_and(|framing| framing != response.framing) {
            return Err(format!("expected {:?}", self.framing));
        }
        for (name, value) in &self.fields {
            let found = response.header(name);
            let filled = |text: &String| text.replace(ETAG, tag(earlier).unwrap_or("no tag"));
            let is_right = match value {
                Value::Is(text) => found == Some(&filled(text)),
                Value::IsNot(text) => found.is_some_and(|found| found != filled(text)),
                Value::Absent => found.is_none(),
                Value::Present => found.is_some(),
                Value::StrongTag => found
                    .is_some_and(|tag| tag.len() > 2 && tag.starts_with('"') && tag.ends_with('"')),
            };
            if !is_right {
                return Err(format!("{name}: {found:?}"));
            }
        }
        // Interim responses have no fields.
        for name in ["Date", "Last-Modified"] {
            let is_date = |date: &str| date.len() == 29 && date.ends_with(" GMT");
            let is_missing = name == "Date" && self.status >= 200;
            let found = response.header(name);
            if !found.map_or(!is_missing, is_date) {
                return Err(format!("{name}: {found:?}"));
            }
        }
        if self.has_same_fields {
            let before = earlier.last().ok_or("no response before")?;
            if response.framing != before.framing || undated(response) != undated(before) {
                return Err(format!("unlike {before:?}"));
            }
        }
        Ok(())
    }
}

fn undated(response: &Response) -> Vec<&(String, String)> {
    response.headers.iter().filter(|(name, _)| !name.eq_ignore_ascii_case("Date")).collect()
}

/// Names the first difference instead of printing megabytes.
fn same_bytes(expected: &[u8], found: &[u8]) -> Result<(), String> {
    if expected == found {
        return Ok(());
    }
    let differs = expected.iter().zip(found).position(|(expected, found)| expected != found);
    let at = differs.unwrap_or_else(|| expected.len().min(found.len()));
    let excerpt = |bytes: &[u8]| bytes[at..bytes.len().min(at + 40)].escape_ascii().to_string();
    Err(format!(
        "{} bytes for {}; at {at} \"{}\" for \"{}\"",
        found.len(),
        expected.len(),
        excerpt(found),
        excerpt(expected)
    ))
}

fn between<'a>(body: &'a [u8], before: &str, after: &str) -> Option<&'a str> {
    let text = str::from_utf8(body).ok()?;
    text.split_once(before)?.1.split_once(after).map(|(found, _)| found)
}

fn page(status: &str, sentence: &str) -> String {
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{status}</title>\
         <style>:root{{color-scheme:light dark}}body{{font:1rem/1.5 system-ui,sans-serif;margin:4rem auto;\
         max-width:40rem;padding:0 1rem}}</style></head>\n\
         <body><h1>{status}</h1><p>{sentence}</p></body></html>\n"
    )
}

/// RFC 9110 §14.6
fn multipart(boundary: &str, of: &Content, parts: &[(u64, u64)]) -> Vec<u8> {
    let mut body = Vec::new();
    for (first, last) in parts {
        let range = format!("bytes {first}-{last}/{}", of.len());
        let head = format!(
            "--{boundary}\r\nContent-Type: application/octet-stream\r\nContent-Range: {range}\r\n\r\n"
        );
        body.extend_from_slice(head.as_bytes());
        body.extend(
            of.read(*first, usize::try_from(last - first + 1).expect("it fits into memory")),
        );
        body.extend_from_slice(b"\r\n");
    }
    body.extend_from_slice(format!("--{boundary}--\r\n").as_bytes());
    body
}

#[test]
fn a_response_that_is_not_as_expected_is_found() {
    let response = |fields: &[(&str, &str)], body: &str| {
        let date = ("Date", "Sun, 06 Nov 1994 08:49:37 GMT");
        let text = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
        Response {
            minor_version: 1,
            status: 200,
            reason: "OK".into(),
            headers: fields.iter().copied().chain([date]).map(text).collect(),
            framing: Framing::Length(body.len() as u64),
            body: body.into(),
            trailers: Vec::new(),
        }
    };
    let good = response(&[("ETag", "\"1\""), ("Server", "x")], "hello");
    let check = |expected: Expected| expected.check(&good, core::slice::from_ref(&good));
    let right = || Expected::ok("hello");
    for expected in [
        right().field("etag", "{etag}").present("Server").absent("Vary").same_fields(),
        right().strong_tag().framed(Framing::Length(5)).field_other_than("ETag", "\"2\""),
        Expected::ok("other").for_head(),
        Expected::text(["he", "lo"]).has("ell").lacks("x"),
    ] {
        assert_eq!(check(expected), Ok(()));
    }
    for expected in [
        Expected::ok("hallo"),
        Expected::ok("hello, world"),
        Expected::empty(204),
        right().field("ETag", "\"2\""),
        right().field_other_than("ETag", "{etag}"),
        right().absent("Server"),
        right().present("Vary"),
        right().framed(Framing::Chunked),
        Expected::page(200),
        Expected::parts(&"hello".into(), [(0, 1)]),
        Expected::text(["lo", "he"]),
        Expected::text([""]).has("x"),
        Expected::text([""]).lacks("ell"),
    ] {
        assert!(check(expected).is_err());
    }
    let other = response(&[("ETag", "\"1\"")], "hello");
    assert!(right().same_fields().check(&other, core::slice::from_ref(&good)).is_err());
    let mut undated = good.clone();
    undated.headers.retain(|(name, _)| name != "Date");
    assert!(right().check(&undated, &[]).is_err());
    let status = "404 Not Found";
    let page = |sentence| Response {
        status: 404,
        reason: "Not Found".into(),
        ..response(&[], &page(status, sentence))
    };
    assert_eq!(Expected::page_saying(404, "Gone.").check(&page("Gone."), &[]), Ok(()));
    assert!(Expected::page_saying(404, "Gone.").check(&page("Here."), &[]).is_err());
    let text = "--b\r\nContent-Type: application/octet-stream\r\nContent-Range: bytes 1-2/5\r\n\r\nel\r\n--b--\r\n";
    let parts = Response {
        status: 206,
        ..response(&[("Content-Type", "multipart/byteranges; boundary=b")], text)
    };
    assert_eq!(Expected::parts(&"hello".into(), [(1, 2)]).check(&parts, &[]), Ok(()));
    assert!(Expected::parts(&"hallo".into(), [(1, 2)]).check(&parts, &[]).is_err());
}
