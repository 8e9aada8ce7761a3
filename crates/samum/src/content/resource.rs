//! What a path turned out to be.

use core::cell::{Cell, RefCell};
use std::rc::Rc;

use http1::{Coding, Codings, ResponseHead, Status, date};
use ring::{Listing, Stat, Time};
use sendfile::File;

/// A path's resource, shared by the cache and the requests that it answers.
#[derive(Debug)]
pub(crate) struct Resource {
    pub(crate) key: Box<[u8]>,
    pub(crate) kind: Kind,
    /// It was as it is at this time, or later.
    pub(crate) validated: Cell<Time>,
    /// Whether a change would make an event.
    pub(crate) watched: Cell<bool>,
    /// Whether it has been asked for since the clock hand was here.
    pub(crate) used: Cell<bool>,
    /// Bytes of memory it holds, roughly.
    pub(crate) memory: usize,
    /// Open files it holds.
    pub(crate) descriptors: usize,
}

/// What it is.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "nearly all that are kept are files")]
pub(crate) enum Kind {
    File(FileSet),
    /// A directory asked for without its slash.
    Redirect,
    /// A directory without an index, its entries sorted.
    Directory(Rc<Listing>),
}

/// A file and its precompressed siblings.
#[derive(Debug)]
pub(crate) struct FileSet {
    pub(crate) content_type: String,
    pub(crate) plain: Variant,
    /// In the order of [`Coding::PREFERENCE`].
    pub(crate) encoded: [Option<Variant>; Coding::PREFERENCE.len()],
    pub(crate) codings: Codings,
}

/// One file that can be sent.
#[derive(Debug)]
pub(crate) struct Variant {
    pub(crate) stat: Stat,
    pub(crate) etag: Vec<u8>,
    pub(crate) data: Data,
    /// The usual response: 200 to an HTTP/1.1 client, the connection stays open. With the body
    /// if that is in memory.
    pub(crate) finished: Finished,
}

/// Where the bytes are.
#[derive(Debug)]
pub(crate) enum Data {
    /// Behind the head in [`Variant::finished`].
    Memory,
    File(Rc<File>),
}

/// A head, and perhaps a body, ready to send but for the date.
#[derive(Debug)]
pub(crate) struct Finished {
    bytes: RefCell<Rc<[u8]>>,
    /// The second that the date in `bytes` names.
    second: Cell<i64>,
    date_at: usize,
    modified_at: usize,
    /// Unix seconds.
    modified: i64,
    pub(crate) head_len: usize,
}

impl FileSet {
    pub(crate) fn variant(&self, coding: Option<Coding>) -> &Variant {
        coding.and_then(|coding| self.encoded[coding as usize].as_ref()).unwrap_or(&self.plain)
    }

    pub(crate) fn vary(&self) -> Option<&'static [u8]> {
        (!self.codings.is_empty()).then_some(&b"Accept-Encoding"[..])
    }
}

impl Variant {
    /// `body` is the whole file if it is to be kept in memory.
    pub(crate) fn new(
        stat: Stat,
        coding: Option<Coding>,
        content_type: &str,
        vary: Option<&'static [u8]>,
        body: Result<&[u8], Rc<File>>,
    ) -> Self {
        let etag = etag(&stat, coding);
        let mut bytes = Vec::new();
        let head = ResponseHead {
            content_length: Some(stat.size),
            ..head(&stat, &etag, coding, content_type, vary, date::format(0))
        };
        let date_at = head.write_to(&mut bytes);
        let head_len = bytes.len();
        let name = b"\r\nLast-Modified: ";
        let place = bytes.windows(name.len()).position(|window| window == name);
        let modified_at = place.expect("the head has it") + name.len();
        let data = match body {
            Ok(body) => {
                bytes.extend_from_slice(body);
                Data::Memory
            }
            Err(file) => Data::File(file),
        };
        let finished = Finished {
            bytes: RefCell::new(bytes.into()),
            second: Cell::new(0),
            date_at,
            modified_at,
            modified: stat.mtime,
            head_len,
        };
        Self { stat, etag, data, finished }
    }

    pub(crate) fn memory(&self) -> usize {
        self.finished.bytes.borrow().len() + size_of::<Self>()
    }

    pub(crate) const fn last_modified(&self) -> i64 {
        self.stat.mtime
    }
}

impl Finished {
    /// The bytes with the present date in them.
    pub(crate) fn dated(&self, second: i64, date: &[u8; date::DATE_LEN]) -> Rc<[u8]> {
        let mut bytes = self.bytes.borrow_mut();
        let before = self.second.replace(second);
        if before != second {
            if let Some(own) = Rc::get_mut(&mut bytes) {
                self.stamp(own, before, second, date);
            } else {
                // Somebody is still sending the old one.
                let mut copy = bytes.to_vec();
                self.stamp(&mut copy, before, second, date);
                *bytes = copy.into();
            }
        }
        Rc::clone(&bytes)
    }

    /// A modification in the future is given the date of the message (RFC 9110 §8.8.2.1).
    fn stamp(&self, bytes: &mut [u8], before: i64, second: i64, date: &[u8; date::DATE_LEN]) {
        bytes[self.date_at..][..date.len()].copy_from_slice(date);
        if self.modified > before {
            let modified = date::format(self.modified.min(second));
            bytes[self.modified_at..][..modified.len()].copy_from_slice(&modified);
        }
    }
}

/// The fields that every response about this file has.
pub(crate) fn head<'a>(
    stat: &Stat,
    etag: &'a [u8],
    coding: Option<Coding>,
    content_type: &'a str,
    vary: Option<&'static [u8]>,
    date: [u8; date::DATE_LEN],
) -> ResponseHead<'a> {
    ResponseHead {
        server: Some(crate::NAME),
        content_type: Some(content_type.as_bytes()),
        content_encoding: coding.map(|coding| coding.name().as_bytes()),
        last_modified: Some(stat.mtime),
        etag: Some(etag),
        vary,
        accept_ranges: true,
        ..ResponseHead::new(Status::Ok, date)
    }
}

/// Modification time to the nanosecond and size, and the coding, whose file could have the same.
fn etag(stat: &Stat, coding: Option<Coding>) -> Vec<u8> {
    let coding = coding.map_or(String::new(), |coding| format!("-{}", coding.name()));
    format!("\"{:x}.{:x}-{:x}{coding}\"", stat.mtime, stat.mtime_nanos, stat.size).into_bytes()
}
