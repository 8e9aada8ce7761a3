//! The writing of requests.
//!
//! Reading list: FastCGI 1.0 §3.3, §3.4, §5.1 to §5.4, §6.2.
//!
//! A request is [`begin_request`], [`params`], [`stdin`] once for each piece of content, and [`stdin_end`], all with
//! its id. Records have no padding. Padding would let an application read aligned words, which none does, and would
//! cost bytes.

use alloc::vec::Vec;

use crate::record::{CONTENT_BYTES_MAX, HEADER_BYTES, RequestId, Sent, header};

/// `FCGI_RESPONDER`
const RESPONDER: u16 = 1;
/// `FCGI_KEEP_CONN`
const KEEP_CONNECTION: u8 = 1;
/// The longest name or value whose length is one byte.
const SHORT_MAX: usize = 0x7f;
/// The longest name or value that the format can express.
const LONG_MAX: usize = 0x7fff_ffff;

/// Appends `FCGI_BEGIN_REQUEST`, for a responder.
///
/// If `keeps_connection` is true, the application leaves the connection open after its response, for another
/// request. Otherwise the application closes it.
pub fn begin_request(id: RequestId, keeps_connection: bool, out: &mut Vec<u8>) {
    let [role_high, role_low] = RESPONDER.to_be_bytes();
    let flags = if keeps_connection { KEEP_CONNECTION } else { 0 };
    let mut records = Records::new(id, Sent::BeginRequest, out);
    records.push(&[role_high, role_low, flags, 0, 0, 0, 0, 0]);
    records.close();
}

/// Appends the variables of a request: `FCGI_PARAMS` up to the end of that stream.
///
/// ```
/// let mut out = Vec::new();
/// let id = fastcgi::RequestId::FIRST;
/// fastcgi::write::params(id, [(&b"A"[..], &b"bc"[..])], &mut out);
/// assert_eq!(out, b"\x01\x04\x00\x01\x00\x05\x00\x00\x01\x02Abc\x01\x04\x00\x01\x00\x00\x00\x00");
/// ```
///
/// # Panics
///
/// If a name or value has 2 GiB or more.
pub fn params<'a>(
    id: RequestId,
    pairs: impl IntoIterator<Item = (&'a [u8], &'a [u8])>,
    out: &mut Vec<u8>,
) {
    let mut records = Records::new(id, Sent::Params, out);
    for (name, value) in pairs {
        records.push_length(name.len());
        records.push_length(value.len());
        records.push(name);
        records.push(value);
    }
    records.close();
    end(id, Sent::Params, out);
}

/// Appends content of a request. Content that is empty says nothing.
pub fn stdin(id: RequestId, content: &[u8], out: &mut Vec<u8>) {
    let mut records = Records::new(id, Sent::Stdin, out);
    records.push(content);
    records.close();
}

/// Appends the end of the content of a request, which ends the request.
pub fn stdin_end(id: RequestId, out: &mut Vec<u8>) {
    end(id, Sent::Stdin, out);
}

/// Appends `FCGI_ABORT_REQUEST`: the response is not wanted any more. An application that understands it
/// ends the response soon; few read it before they have ended.
pub fn abort_request(id: RequestId, out: &mut Vec<u8>) {
    end(id, Sent::AbortRequest, out);
}

/// Appends a record without content, which is the end if it belongs to a stream.
fn end(id: RequestId, record: Sent, out: &mut Vec<u8>) {
    out.extend_from_slice(&header(record, id, 0));
}

/// Bytes that are cut into records of one type while they are appended.
struct Records<'a> {
    id: RequestId,
    record: Sent,
    out: &'a mut Vec<u8>,
    /// The position in `out` of the header of the record that is being written.
    start: usize,
}

impl<'a> Records<'a> {
    /// Begins a record.
    fn new(id: RequestId, record: Sent, out: &'a mut Vec<u8>) -> Self {
        let start = out.len();
        out.extend_from_slice(&header(record, id, 0));
        Self { id, record, out, start }
    }

    /// Appends content.
    fn push(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let room = CONTENT_BYTES_MAX - self.content_bytes();
            if room == 0 {
                self.next();
                continue;
            }
            let (now, later) = bytes.split_at(bytes.len().min(room));
            self.out.extend_from_slice(now);
            bytes = later;
        }
    }

    /// Appends the length of a name or value (§3.4).
    fn push_length(&mut self, len: usize) {
        assert!(len <= LONG_MAX, "a name or value is too long for FastCGI");
        let [a, b, c, d] = u32::try_from(len).expect("it has 31 bits").to_be_bytes();
        if len <= SHORT_MAX {
            self.push(&[d]);
        } else {
            self.push(&[a | 0x80, b, c, d]);
        }
    }

    /// Ends the record and begins another.
    fn next(&mut self) {
        self.set_length();
        self.start = self.out.len();
        self.out.extend_from_slice(&header(self.record, self.id, 0));
    }

    /// Ends the record. A record without content is left out, because it would be the end of its stream.
    fn close(mut self) {
        if self.content_bytes() == 0 {
            self.out.truncate(self.start);
        } else {
            self.set_length();
        }
    }

    fn set_length(&mut self) {
        let content_bytes = u16::try_from(self.content_bytes()).expect("it was cut");
        let header = header(self.record, self.id, content_bytes);
        self.out[self.start..self.start + HEADER_BYTES].copy_from_slice(&header);
    }

    /// The bytes of content in the record so far.
    fn content_bytes(&self) -> usize {
        self.out.len() - self.start - HEADER_BYTES
    }
}

#[cfg(test)]
mod tests;
