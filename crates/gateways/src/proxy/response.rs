//! The meaning of an upstream's response: the parts that are passed on, or the file that takes its place.
//!
//! Reading list: RFC 9110 §6.6.1 (`Date`), §7.6.1, §7.8, §8.6, §15.2, §15.3.5; RFC 9112 §6.
//!
//! The parser has refused heads from which two readers could understand different lengths. This module decides the
//! rest: it leaves out the fields of one connection, and makes the length a number. A response that its request does
//! not permit is a [`Fault`].
//!
//! A hand-over (`X-Accel-Redirect`, `X-Sendfile`) is followed in a response of any final status, as in nginx 1.22. The
//! response is dropped: up to 64 KiB of it are received for 1 s, so that the link can be kept. Both fields give access
//! to the same files, which are those of the site's routes. If a response has both, `X-Accel-Redirect` counts. The
//! route's guard and fields apply, and so do the client's ranges and conditions. A path without a file is a 404. A
//! target that is no file of a route is a 502. The answer is kept until it is sent, because it could only be found
//! again by another request to the upstream.

use core::fmt;
use std::borrow::Cow;

use http::date::{self, DATE_LEN};
use http::{
    ConnectionOptions, Field, FieldSection, Head, ResponseHead, Status, Version, bytes, path,
};
use http1::response::{Fault, Framing, Response};

use super::request;
use crate::cgi::response::{Document, Reply, TOO_LONG, UPGRADE_REQUIRED};
use crate::names;
use session::handler::{BODY_BYTES_END, Interim};

/// Bytes that suffice for the fields of most responses.
const FIELDS_BYTES: usize = 384;
const ACCEL_REDIRECT: &[u8] = b"X-Accel-Redirect";
const SENDFILE: &[u8] = b"X-Sendfile";

/// Fields that the client gets from a response that hands its request over, as with nginx.
const KEPT: [&[u8]; 5] =
    [b"Cache-Control", b"Content-Disposition", b"Content-Type", b"Expires", b"Set-Cookie"];

/// The facts about a request on which the meaning of its responses depends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    /// The version that the client speaks.
    version: Version,
    /// The protocols for which the upstream was asked, if it was.
    upgrade: Option<Vec<u8>>,
    /// True if the link may be kept for another request.
    pub(super) may_keep: bool,
}

/// The meaning of a final response, or of one that switches protocols.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// The response is passed on. Its content, if it has any, follows.
    Response(Passed),
    /// The response is passed on, and then all bytes belong to another protocol.
    Tunnel(Passed),
    /// A file, or the answer for another path, takes the place of the response. The content of the response is dropped.
    HandOver(HandOver),
}

/// The head of a response as it is passed on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Passed {
    /// The status.
    pub(crate) status: Status,
    /// The time at which the upstream made the response, in Unix seconds, if it says so.
    date: Option<i64>,
    /// The length of the content, or the length that it would have; `None` if unknown.
    pub(crate) content_length: Option<u64>,
    /// All other fields.
    fields: FieldSection<'static>,
}

/// A request that an upstream has handed over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandOver {
    /// The file or the path.
    pub to: Target,
    /// The fields that the client gets in addition.
    pub fields: FieldSection<'static>,
}

/// The file or the path to which a request is handed over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A path of the site, perhaps with a query: `X-Accel-Redirect`.
    Path(Vec<u8>),
    /// A path of the file system: `X-Sendfile`.
    File(Vec<u8>),
    /// A path of the site, perhaps with a query, that is answered as if the client had asked for it: a local redirect
    /// (RFC 3875 §6.2.2).
    Local(Vec<u8>),
}

impl Target {
    /// The query of the path, if there is one.
    pub fn query(&self) -> Option<&[u8]> {
        match self {
            Self::Path(path) | Self::Local(path) => {
                let mark = path.iter().position(|&byte| byte == b'?')?;
                Some(&path[mark + 1..])
            }
            Self::File(_) => None,
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, path) = match self {
            Self::Path(path) => ("X-Accel-Redirect", path),
            Self::File(path) => ("X-Sendfile", path),
            Self::Local(path) => ("Location", path),
        };
        write!(f, "{name}: {}", path.escape_ascii())
    }
}

impl Asked {
    /// Bytes on the heap.
    pub(super) fn memory(&self) -> usize {
        self.upgrade.as_ref().map_or(0, Vec::capacity)
    }

    /// The facts about a request with this head.
    pub(crate) fn of(head: &Head<'_>) -> Self {
        Self {
            version: head.version,
            upgrade: request::upgrade(head),
            may_keep: !request::is_last(head),
        }
    }
}

impl Passed {
    /// Returns true if a `Location` may name the next address, or the address of something made (RFC 9110 §10.2.2).
    pub(super) fn may_lead(&self) -> bool {
        matches!(self.status.code(), 201 | 300..400)
    }

    /// Replaces the `Location`, if there is one and `change` returns another.
    pub(super) fn change_location(&mut self, change: impl Fn(&[u8]) -> Option<Vec<u8>>) {
        let is_location = |name: &[u8]| name.eq_ignore_ascii_case(b"Location");
        let mut locations = self.fields.fields().filter(|(name, _)| is_location(name));
        let (Some((_, location)), None) = (locations.next(), locations.next()) else { return };
        let Some(changed) = change(location) else { return };
        let value = |(name, value)| (name, if is_location(name) { &changed[..] } else { value });
        self.fields = collected(self.fields.fields().map(value));
    }

    /// The head for the client, which is sent `now`, in Unix seconds.
    pub(crate) fn head(&self, now: i64) -> ResponseHead<'_> {
        ResponseHead {
            // The current date exists as text already.
            date: self.date.filter(|date| *date != now),
            content_length: self.content_length,
            extra: self.fields.as_borrowed(),
            ..ResponseHead::new(self.status)
        }
    }
}

/// An interim response for the client, if the client understands such responses. A 100 is not passed on, because no
/// upstream is asked for it: the session invites the body.
pub(crate) fn interim(response: &Response<'_>, asked: &Asked) -> Option<Interim> {
    let status = response.status;
    let is_passed = asked.version >= Version::Http11 && status != Status::Continue;
    is_passed.then(|| Interim { status, fields: passed_on(&response.fields) })
}

/// The time, in Unix seconds and as an HTTP date.
pub(crate) type Now<'a> = (i64, &'a [u8; DATE_LEN]);

/// The meaning of a response to a request. `now` serves for dates that do not name their century; most dates are `now`.
///
/// A field whose name is nearly one of the framing fields is not passed on. The upstream may have meant it as framing,
/// so its link is not kept.
///
/// # Errors
///
/// A [`Fault`] if the request does not permit the response, or if two of its fields contradict each other.
pub(crate) fn read(
    response: &Response<'_>,
    asked: &mut Asked,
    now: Now<'_>,
) -> Result<Meaning, Fault> {
    let status = response.status;
    let lines = &response.fields[..];
    let marked = Marked::among(lines);
    asked.may_keep &= !marked.imitates_framing;
    let length = match (response.content_length, response.framing) {
        (Some(BODY_BYTES_END..), Framing::Length(_)) => return Err(Fault { reason: TOO_LONG }),
        // Otherwise no content of this length follows.
        (length, _) => length.filter(|length| *length < BODY_BYTES_END),
    };
    if status != Status::SwitchingProtocols
        && let Some(hand_over) = hand_over(lines, &marked)?
    {
        return Ok(Meaning::HandOver(hand_over));
    }
    let mut passed = Passed {
        status,
        date: marked.date.one().and_then(|date| time_of(date, now)),
        content_length: match response.framing {
            Framing::Chunked | Framing::UntilClose => None,
            Framing::None | Framing::Length(_) => length,
        },
        fields: if marked.imitates_framing { passed_on(&usual(lines)) } else { passed_on(lines) },
    };
    if status != Status::SwitchingProtocols {
        push_upgrade(lines, status, &mut passed.fields);
        return Ok(Meaning::Response(passed));
    }
    let wanted = asked.upgrade.as_deref().unwrap_or_default();
    let protocol = Lines::of(lines, b"Upgrade")
        .single()?
        .ok_or(Fault { reason: "a 101 without a protocol" })?;
    let is_wanted = |asked: &[u8]| asked.eq_ignore_ascii_case(protocol);
    if !bytes::list(wanted).any(is_wanted) {
        return Err(Fault { reason: "a 101 that the request has not asked for" });
    }
    passed.fields.push(b"Upgrade", protocol);
    Ok(Meaning::Tunnel(passed))
}

/// The meaning of the header of a script; true if content follows.
///
/// # Errors
///
/// A [`Fault`] if two of its fields contradict each other.
pub(crate) fn of_script(reply: Reply) -> Result<(Meaning, bool), Fault> {
    let document = match reply {
        Reply::Document(document) => document,
        Reply::LocalRedirect(path) => {
            let hand_over = HandOver { to: Target::Local(path), fields: FieldSection::EMPTY };
            return Ok((Meaning::HandOver(hand_over), false));
        }
    };
    let has_content = document.has_content();
    let Document { status, content_type, content_length, location, fields } = document;
    let own = [(&b"Content-Type"[..], content_type), (b"Location", location)];
    let mut all = FieldSection::EMPTY;
    all.push(b"Server", config::NAME.as_bytes());
    for (name, value) in own {
        value.into_iter().for_each(|value| all.push(name, &value));
    }
    fields.fields().for_each(|(name, value)| all.push(name, value));
    let lines: Vec<_> = all.fields().map(|(name, value)| (name, Cow::Borrowed(value))).collect();
    let lines = &lines[..];
    if let Some(hand_over) = hand_over(lines, &Marked::among(lines))? {
        return Ok((Meaning::HandOver(hand_over), false));
    }
    let content_length = content_length.filter(|_| has_content);
    let mut fields = passed_on(lines);
    push_upgrade(lines, status, &mut fields);
    Ok((Meaning::Response(Passed { status, date: None, content_length, fields }), has_content))
}

/// The fields of a response on which its meaning depends.
#[derive(Debug, Default)]
struct Marked<'a> {
    date: Lines<'a>,
    accel_redirect: Lines<'a>,
    sendfile: Lines<'a>,
    /// True if one is nearly of the framing.
    imitates_framing: bool,
}

/// The values of the lines of one field.
#[derive(Debug, Default)]
enum Lines<'a> {
    #[default]
    None,
    One(&'a [u8]),
    Several,
}

impl<'a> Marked<'a> {
    /// Looks at all lines once. Already the first letter tells of most that they are none of these.
    fn among(lines: &'a [Line<'_>]) -> Self {
        let mut marked = Self::default();
        for (name, value) in lines {
            let of_field = match name.first() {
                Some(b'D' | b'd') if name.eq_ignore_ascii_case(b"Date") => &mut marked.date,
                Some(b'X' | b'x') if name.eq_ignore_ascii_case(ACCEL_REDIRECT) => {
                    &mut marked.accel_redirect
                }
                Some(b'X' | b'x') if name.eq_ignore_ascii_case(SENDFILE) => &mut marked.sendfile,
                Some(b'C' | b'c' | b'T' | b't') => {
                    marked.imitates_framing |= names::imitates_framing(name);
                    continue;
                }
                Some(byte) if !byte.is_ascii_alphabetic() => {
                    marked.imitates_framing |= names::imitates_framing(name);
                    continue;
                }
                _ => continue,
            };
            of_field.add(value);
        }
        marked
    }
}

impl<'a> Lines<'a> {
    fn of(lines: &'a [Line<'_>], name: &[u8]) -> Self {
        let mut all = Self::None;
        values(lines, name).for_each(|value| all.add(value));
        all
    }

    /// Adds a line. A line without a value says nothing, and a line that repeats another one says nothing more.
    fn add(&mut self, value: &'a [u8]) {
        if value.is_empty() {
            return;
        }
        *self = match self {
            Self::None => Self::One(value),
            Self::One(before) if *before == value => return,
            Self::One(_) | Self::Several => Self::Several,
        };
    }

    /// The value, if all lines have the same.
    const fn one(&self) -> Option<&'a [u8]> {
        match self {
            Self::One(value) => Some(value),
            Self::None | Self::Several => None,
        }
    }

    /// The value of a field on which it depends where the response comes from. There may be one value.
    const fn single(&self) -> Result<Option<&'a [u8]>, Fault> {
        match self {
            Self::Several => Err(Fault { reason: "two values of a field that may have one" }),
            Self::None | Self::One(_) => Ok(self.one()),
        }
    }
}

/// The lines without those that are nearly of the framing.
#[cold]
fn usual<'a>(lines: &'a [Line<'a>]) -> Vec<Line<'a>> {
    lines.iter().filter(|(name, _)| !names::imitates_framing(name)).cloned().collect()
}

/// The file to which a response with these fields hands its request over, if it does. Like with nginx, its status does
/// not matter: the file has one of its own.
fn hand_over(lines: &[Line<'_>], marked: &Marked<'_>) -> Result<Option<HandOver>, Fault> {
    let Some(to) = target(marked)? else { return Ok(None) };
    let is_kept =
        |(name, _): &(&[u8], &[u8])| KEPT.iter().any(|kept| kept.eq_ignore_ascii_case(name));
    let fields = collected(end_to_end(lines).filter(is_kept));
    Ok(Some(HandOver { to, fields }))
}

/// The file that the fields of a response name, if they do.
fn target(marked: &Marked<'_>) -> Result<Option<Target>, Fault> {
    // Some applications name their file for every kind of server.
    if let Some(path) = marked.accel_redirect.single()? {
        let path = path.starts_with(b"/").then(|| Target::Path(path::encode_query(path)));
        return path.map(Some).ok_or(Fault { reason: "an X-Accel-Redirect that is no path" });
    }
    let Some(file) = marked.sendfile.single()? else { return Ok(None) };
    let file = file.starts_with(b"/").then(|| Target::File(file.to_vec()));
    file.map(Some).ok_or(Fault { reason: "an X-Sendfile that is no absolute path" })
}

/// A line of a head: name and value.
type Line<'a> = (&'a [u8], Cow<'a, [u8]>);

/// The values of all lines of a field.
fn values<'a>(lines: &'a [Line<'_>], name: &[u8]) -> impl Iterator<Item = &'a [u8]> {
    lines.iter().filter(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| &**value)
}

/// The time that a `Date` says.
fn time_of(value: &[u8], (now, date): Now<'_>) -> Option<i64> {
    if value == date { Some(now) } else { date::parse(value, now) }
}

/// The fields that are passed on to the client as they are.
fn passed_on(lines: &[Line<'_>]) -> FieldSection<'static> {
    // Most are, and already their first letter tells.
    collected(end_to_end(lines).filter(|(name, _)| match name.first() {
        Some(b'C' | b'c') => Field::of_name(name) != Some(Field::ContentLength),
        Some(b'D' | b'd') => !name.eq_ignore_ascii_case(b"Date"),
        Some(b'X' | b'x') => !names::is_for_proxy(name),
        _ => true,
    }))
}

/// Adds the protocols that a 426 demands of the client (RFC 9110 §15.5.22).
fn push_upgrade(lines: &[Line<'_>], status: Status, fields: &mut FieldSection<'static>) {
    if status.code() != UPGRADE_REQUIRED {
        return;
    }
    let mut protocols = values(lines, b"Upgrade").peekable();
    if protocols.peek().is_some() {
        protocols.for_each(|protocol| fields.push_checked(b"Upgrade", protocol));
        fields.push(b"Connection", b"upgrade");
    }
}

/// The lines without those that concern only the connection to the upstream.
fn end_to_end<'a>(lines: &'a [Line<'_>]) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
    let options = ConnectionOptions::of(values(lines, b"Connection"));
    let all = lines.iter().map(|(name, value)| (*name, &**value));
    all.filter(move |(name, _)| options.is_end_to_end(name))
}

fn collected<'a>(fields: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> FieldSection<'static> {
    let mut section = FieldSection::with_capacity(FIELDS_BYTES);
    fields.for_each(|(name, value)| section.push_checked(name, value));
    section
}

#[cfg(test)]
pub(super) mod tests;
