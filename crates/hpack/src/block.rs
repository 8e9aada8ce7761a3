//! Header blocks that are prepared once and sent on many connections.

use alloc::vec::Vec;

use crate::integer;
use crate::literal::{self, Indexing, LowerCase};

/// The number of bytes of a date in a header field, such as `Sun, 06 Nov 1994 08:49:37 GMT`.
pub const DATE_LEN: usize = 29;

/// The index of `date` in the static table.
const DATE_INDEX: usize = 33;

/// A header block, or a part of one, that means the same on every connection: it uses no dynamic table.
///
/// Its date can be changed in place, because a date is not written in Huffman code.
///
/// ```
/// let mut block = hpack::Block::new();
/// block.push(b":status", b"200");
/// block.push_date(b"Sun, 06 Nov 1994 08:49:37 GMT");
/// block.push(b"Content-Type", b"text/css");
/// let len = block.as_bytes().len();
/// block.set_date(b"Sun, 06 Nov 1994 08:49:38 GMT");
/// assert_eq!(block.as_bytes().len(), len);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Block {
    bytes: Vec<u8>,
    /// The place of the date, if the block has one.
    date_at: Option<usize>,
}

impl Block {
    /// A block without fields.
    #[must_use]
    pub const fn new() -> Self {
        Self { bytes: Vec::new(), date_at: None }
    }

    /// Adds a field. Its name is written in lower case.
    pub fn push(&mut self, name: &[u8], value: &[u8]) {
        LowerCase::of(name).with(|name| {
            literal::push_field(name, value, Indexing::of_name(name), &mut self.bytes);
        });
    }

    /// Adds the field `date`.
    pub fn push_date(&mut self, date: &[u8; DATE_LEN]) {
        integer::encode(DATE_INDEX, 4, 0, &mut self.bytes);
        literal::push_plain(date, &mut self.bytes);
        self.date_at = Some(self.bytes.len() - DATE_LEN);
    }

    /// Changes the date, if there is one.
    pub fn set_date(&mut self, date: &[u8; DATE_LEN]) {
        if let Some(at) = self.date_at {
            self.bytes[at..at + DATE_LEN].copy_from_slice(date);
        }
    }

    /// The bytes to be sent.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The fields up to the date, and those behind it. Without a date all are behind it.
    pub(crate) fn split_behind_date(&self) -> (&[u8], &[u8]) {
        self.bytes.split_at(self.date_at.map_or(0, |at| at + DATE_LEN))
    }

    /// Gives back memory that the block does not need.
    pub fn shrink(&mut self) {
        self.bytes.shrink_to_fit();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Decoder, Limits};

    #[test]
    fn only_the_date_changes() {
        let mut block = Block::new();
        block.set_date(b"Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(block.as_bytes(), b"");
        block.push(b":status", b"200");
        block.push_date(b"Sun, 06 Nov 1994 08:49:37 GMT");
        block.push(b"ETag", b"\"1\"");
        for date in [b"Sun, 06 Nov 1994 08:49:37 GMT", b"Mon, 07 Nov 1994 08:49:37 GMT"] {
            block.set_date(date);
            let mut text = Vec::new();
            let decoded =
                Decoder::new().decode(block.as_bytes(), &Limits::DEFAULT, &mut text, |_, _| ());
            assert_eq!(decoded.unwrap().fields, 3);
            let date = core::str::from_utf8(date).unwrap();
            let expected = std::format!(":status: 200\r\ndate: {date}\r\netag: \"1\"\r\n");
            assert_eq!(text, expected.into_bytes());
        }
    }
}
