//! The variables that are set when a page begins.

use core::net::IpAddr;

use http::{Head, Target};

use super::timefmt;
use super::work::Work;

/// The facts about a request and its page that variables show.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// The request of the client; for a page that is included, with the path and the query of that one.
    pub head: &'a Head<'a>,
    /// The path and the query that the client has requested, as it has written them.
    pub requested: &'a [u8],
    /// The path, in its normal form, of the page that the client has requested.
    pub document: &'a [u8],
    /// The time of that file's last change, in Unix seconds.
    pub modified: i64,
    /// The client.
    pub client: Option<IpAddr>,
    /// The time now, in Unix seconds.
    pub now: i64,
}

/// The prefix of variables for fields of the request.
const FIELD: &[u8] = b"HTTP_";
/// The work for a field of the request, in addition to the work for its name.
const FIELD_WORK: usize = 16;
/// The prefix of variables for parts of the query.
const ARGUMENT: &[u8] = b"ARG_";

impl Facts<'_> {
    /// Appends the value of a variable, whose name is in upper case. Times have the form `timefmt`. Returns false
    /// if there is no such variable. The bytes that are read for it are added to `work`.
    pub(super) fn put(
        &self,
        name: &[u8],
        timefmt: &[u8],
        out: &mut Vec<u8>,
        work: &mut Work,
    ) -> bool {
        let query = match self.head.target {
            Target::Origin { query, .. } => query.unwrap_or_default(),
            Target::Asterisk | Target::Authority => &b""[..],
        };
        match name {
            b"DATE_LOCAL" => out.extend(timefmt::format(timefmt, self.now, "UTC")),
            b"DATE_GMT" => out.extend(timefmt::format(timefmt, self.now, "GMT")),
            b"LAST_MODIFIED" => out.extend(timefmt::format(timefmt, self.modified, "UTC")),
            b"DOCUMENT_URI" => out.extend_from_slice(self.document),
            b"DOCUMENT_NAME" => {
                let name = self.document.rsplit(|byte| *byte == b'/').next();
                out.extend_from_slice(name.unwrap_or_default());
            }
            b"QUERY_STRING" => out.extend_from_slice(query),
            b"REQUEST_URI" => out.extend_from_slice(self.requested),
            b"REQUEST_METHOD" => out.extend_from_slice(self.head.method.as_bytes()),
            b"SERVER_PROTOCOL" => out.extend_from_slice(self.head.version.name().as_bytes()),
            b"REMOTE_ADDR" => match self.client {
                Some(client) => out.extend_from_slice(client.to_string().as_bytes()),
                None => return false,
            },
            _ => {
                let value = if let Some(argument) = name.strip_prefix(ARGUMENT) {
                    work.add(query.len());
                    argument_of(query, argument)
                } else if let Some(field) = name.strip_prefix(FIELD) {
                    self.field(field, work)
                } else {
                    None
                };
                let Some(value) = value else { return false };
                out.extend_from_slice(value);
            }
        }
        true
    }

    /// The value of a field that was sent once, by its name with `_` for `-`.
    fn field(&self, name: &[u8], work: &mut Work) -> Option<&[u8]> {
        if name == b"HOST" {
            return self.head.host();
        }
        // The field authorizes the client, and no page needs to know it. Programs do not get it either.
        if name == b"AUTHORIZATION" || name == b"PROXY_AUTHORIZATION" {
            return None;
        }
        let mut is_meant = |other: &[u8]| {
            work.add(FIELD_WORK + other.len());
            let same = |(byte, wanted): (&u8, &u8)| {
                byte.to_ascii_uppercase() == *wanted || (*byte == b'-' && *wanted == b'_')
            };
            other.len() == name.len() && other.iter().zip(name).all(same)
        };
        let mut values = self.head.fields().filter(|(other, _)| is_meant(other));
        let (_, value) = values.next()?;
        values.next().is_none().then_some(value)
    }
}

/// The value of a part of a query, by its name in upper case. The value is not decoded.
fn argument_of<'q>(query: &'q [u8], name: &[u8]) -> Option<&'q [u8]> {
    query.split(|byte| *byte == b'&').find_map(|argument| {
        let end = argument.iter().position(|byte| *byte == b'=').unwrap_or(argument.len());
        let value = argument.get(end + 1..).unwrap_or_default();
        argument[..end].eq_ignore_ascii_case(name).then_some(value)
    })
}
