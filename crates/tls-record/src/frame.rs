//! The head of a record (RFC 8446 §5.1, §5.2): its type, a version that says nothing any more, its length.

use crate::aead::TAG_BYTES;
use crate::fault::Fault;

/// The bytes of a head.
pub(crate) const HEAD_BYTES: usize = 5;
/// The most plain bytes of a record (RFC 8446 §5.1).
pub const PLAIN_BYTES_MAX: usize = 1 << 14;
/// The bytes of a nonce that a record of TLS 1.2 with AES-GCM carries (RFC 5288 §3).
pub(crate) const EXPLICIT_BYTES: usize = 8;
/// The bytes that a record adds to its plain bytes, at most: head, tag, and a part of the nonce or a type.
pub const RECORD_OVERHEAD_MAX: usize = HEAD_BYTES + EXPLICIT_BYTES + TAG_BYTES;
/// The most bytes of a record, head included, of any version (RFC 5246 §6.2.3). The bound of TLS 1.3 is lower.
pub const RECORD_BYTES_MAX: usize = HEAD_BYTES + PLAIN_BYTES_MAX + 2048;

/// The types of content (RFC 8446 §5.1).
pub(crate) struct Content;

impl Content {
    pub(crate) const ALERT: u8 = 21;
    pub(crate) const HANDSHAKE: u8 = 22;
    pub(crate) const DATA: u8 = 23;
}

/// Makes the head of a record whose body has this many bytes.
pub(crate) fn head(content: u8, body: usize) -> [u8; HEAD_BYTES] {
    let [high, low] = u16::try_from(body).expect("a body of one record").to_be_bytes();
    [content, 3, 3, high, low]
}

/// Returns the length of the record that begins here, head included; `None` if the head is not complete.
///
/// # Errors
///
/// [`Fault::Overflow`].
pub(crate) fn length(bytes: &[u8]) -> Result<Option<usize>, Fault> {
    let [_, _, _, high, low, ..] = *bytes else { return Ok(None) };
    let length = HEAD_BYTES + usize::from(u16::from_be_bytes([high, low]));
    if length > RECORD_BYTES_MAX { Err(Fault::Overflow) } else { Ok(Some(length)) }
}
