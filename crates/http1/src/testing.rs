//! The parts that tests of requests and of responses share: tables, messages that are nearly right, and
//! messages that arrive in pieces.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Debug;

use http::Status;
use proptest::prelude::*;
use proptest::sample::{Index, select};

use crate::limits::Limits;

/// Limits that messages of [`nearly`] reach.
pub(crate) const SMALL: Limits = Limits {
    head_bytes_max: 110,
    target_bytes_max: 12,
    fields_max: 4,
    body_bytes_max: 16,
    chunk_line_bytes_max: 7,
    trailer_bytes_max: 20,
};

/// Beginnings of field lines that are refused with a 400 where they stand (RFC 9112 §5.1, §5.2, §11.1).
pub(crate) const MALFORMED_LINES: &[&str] = &[
    "Name : v",
    "Name\t:",
    ": v",
    " Name: v",
    "\tName: v",
    "Name\r\n",
    "Na me:",
    "Na\0me",
    "Na(me",
    "N\u{e4}",
    "A: \0",
    "A: \x01",
    "A: \x7f",
    "A: b\x0bc",
    "A: b\x1b",
    "A: b\r\n c",
    "A: b\r\n\t",
    "A: b\r c",
    "A: b\n",
    "\0",
    "@",
    "A\n",
    "\n",
    "\rX",
];

/// Field lines from which two readers may understand different lengths of a body: a 400 (RFC 9112 §6.3).
pub(crate) const AMBIGUOUS_LENGTHS: &[&str] = &[
    "Content-Length:\r\n",
    "Content-Length: x\r\n",
    "Content-Length: -1\r\n",
    "Content-Length: +1\r\n",
    "Content-Length: 1 \t2\r\n",
    "Content-Length: 0x1\r\n",
    "Content-Length: 1,1\r\n",
    "Content-Length: 5, 5\r\n",
    "Content-Length: 1.0\r\n",
    "Content-Length: 18446744073709551616\r\n",
    "Content-Length: 1\r\nContent-Length: 1\r\n",
    "Content-Length: 1\r\nX: y\r\ncontent-length: 2\r\n",
    "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n",
    "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
    "Transfer-Encoding: chunked\r\nContent-Length: 0\r\n",
];

/// Lines of `Transfer-Encoding`, and the status with which they are refused, if they are (RFC 9112 §6.1).
pub(crate) const TRANSFER_ENCODINGS: &[(&str, Result<(), Status>)] = &[
    ("Transfer-Encoding: chunked\r\n", Ok(())),
    ("Transfer-Encoding: CHUNKED\r\n", Ok(())),
    ("Transfer-Encoding: , chunked,\r\n", Ok(())),
    ("Transfer-Encoding:\r\nTransfer-Encoding: chunked\r\n", Ok(())),
    ("Transfer-Encoding: gzip, chunked\r\n", Err(Status::NotImplemented)),
    ("Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n", Err(Status::NotImplemented)),
    ("Transfer-Encoding: chunked, chunked\r\n", Err(Status::BadRequest)),
    ("Transfer-Encoding: chunked\r\ntransfer-encoding: chunked\r\n", Err(Status::BadRequest)),
    ("Transfer-Encoding: chunked, gzip\r\n", Err(Status::BadRequest)),
    ("Transfer-Encoding: chunked;x=y\r\n", Err(Status::BadRequest)),
    ("Transfer-Encoding: gzip\r\n", Err(Status::BadRequest)),
    ("Transfer-Encoding: identity\r\n", Err(Status::BadRequest)),
    ("Transfer-Encoding: xchunked\r\n", Err(Status::BadRequest)),
    ("Transfer-Encoding: \"chunked\"\r\n", Err(Status::BadRequest)),
    ("Transfer-Encoding:\r\n", Err(Status::BadRequest)),
];

/// The version and the fields of a message, and whether the connection persists (RFC 9112 §9.3).
pub(crate) const PERSISTENCE: &[(&str, &str, bool)] = &[
    ("1.1", "", true),
    ("1.0", "", false),
    ("1.1", "Connection: close\r\n", false),
    ("1.1", "Connection: Close\r\n", false),
    ("1.1", "Connection: keep-alive\r\n", true),
    ("1.0", "Connection: keep-alive\r\n", true),
    ("1.0", "Connection: Keep-Alive, x\r\n", true),
    ("1.0", "Connection: keep-alive, close\r\n", false),
    ("1.1", "Connection: x,close , y\r\n", false),
    ("1.1", "Connection: x\r\nConnection: close\r\n", false),
    ("1.1", "Connection: closed\r\n", true),
    ("1.1", "Connection:\r\n", true),
    ("1.0", "Connection: close\r\nConnection: keep-alive\r\n", false),
];

/// Lines and bodies of any message.
const PIECES: [&[u8]; 10] = [
    b"Connection: close\r\n",
    b"Connection: keep-alive\r\n",
    b"Content-Length: 5\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"5;x=y\r\nhello\r\n",
    b"0\r\n",
    b"hello",
    b"\r\n",
    b"\r",
    b":",
];

/// Bytes that are nearly a message, so that they reach every branch. They are some of `pieces`, which are
/// lines of one kind of message, and of [`PIECES`], with at most one byte changed.
pub(crate) fn nearly(pieces: &[&'static [u8]]) -> impl Strategy<Value = Vec<u8>> + use<> {
    let piece = select([pieces, &PIECES].concat());
    let pieces = proptest::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat());
    let change = proptest::option::of((any::<Index>(), any::<u8>()));
    (pieces, change).prop_map(|(mut bytes, change)| {
        if let Some((index, byte)) = change
            && !bytes.is_empty()
        {
            let at = index.index(bytes.len());
            bytes[at] = byte;
        }
        bytes
    })
}

/// Checks that each prefix of `bytes` has the same verdict as the whole, or none yet.
pub(crate) fn check_prefixes<'a, T: Debug + PartialEq, E: Debug + PartialEq>(
    bytes: &'a [u8],
    parse: impl Fn(&'a [u8]) -> Result<Option<T>, E>,
) -> Result<(), TestCaseError> {
    let whole = parse(bytes);
    for end in 0..bytes.len() {
        let verdict = parse(&bytes[..end]);
        if verdict != Ok(None) {
            prop_assert_eq!(&verdict, &whole, "after {} bytes", end);
        }
    }
    Ok(())
}

/// An input that arrives in pieces.
#[derive(Debug)]
pub(crate) struct Arriving<'a> {
    input: &'a [u8],
    /// The sizes of the pieces; the last holds for all that follow.
    sizes: &'a [usize],
    /// `consumed <= arrived <= input.len()`
    consumed: usize,
    arrived: usize,
}

impl<'a> Arriving<'a> {
    /// An input of which nothing has arrived.
    pub(crate) fn new(input: &'a [u8], sizes: &'a [usize]) -> Self {
        Self { input, sizes, consumed: 0, arrived: 0 }
    }

    /// The bytes that have arrived and are not consumed.
    pub(crate) fn rest(&self) -> &'a [u8] {
        &self.input[self.consumed..self.arrived]
    }

    /// Consumes bytes of [`rest`](Self::rest).
    pub(crate) fn consume(&mut self, len: usize) {
        assert!(len <= self.rest().len());
        self.consumed += len;
    }

    /// Lets the next piece arrive. Returns false if there is none.
    pub(crate) fn arrive(&mut self) -> bool {
        let missing = self.input.len() - self.arrived;
        let size = match self.sizes {
            [size, rest @ ..] => {
                if !rest.is_empty() {
                    self.sizes = rest;
                }
                *size
            }
            [] => 1,
        };
        self.arrived += size.min(missing);
        missing > 0
    }
}

/// Checks that `run`, which is given the sizes of pieces, reports the same however `input` is cut.
#[track_caller]
pub(crate) fn check_in_pieces(
    input: &str,
    expected: &[&str],
    run: impl Fn(&[u8], &[usize]) -> Vec<String>,
) {
    for size in [usize::MAX, 1, 2, 3, 7] {
        let happened = run(input.as_bytes(), &[size]);
        assert_eq!(happened, expected, "{input:?} in pieces of {size}");
    }
}
