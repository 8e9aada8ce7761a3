//! The decoder of the header blocks that one connection receives.

use alloc::vec::Vec;
use core::ops::Range;

use crate::dynamic_table::{DynamicTable, FIELD_OVERHEAD};
use crate::fault::Fault;
use crate::{huffman, integer, static_table};

/// The changes of the table's size at the beginning of a block: to the smallest size, and to the last (RFC 7541 §4.2).
const SIZE_UPDATES_MAX: usize = 2;

/// Decodes the header blocks of one connection, in their order.
///
/// Every block must be decoded, also one whose fields nobody wants, because it may change the table.
#[derive(Clone, Debug)]
pub struct Decoder {
    table: DynamicTable,
    /// The size that the peer may give its table.
    allowed: usize,
}

/// The limits of one block. They hold while it is decoded, so no byte beyond them is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The size of all fields: the bytes of names and values, and [`FIELD_OVERHEAD`] for each field (RFC 9113 §6.5.2,
    /// SETTINGS_MAX_HEADER_LIST_SIZE). The fields beyond are cut off, and the connection goes on.
    pub list_bytes_max: usize,
    /// The number of fields, also of those that are cut off. More is a [`Fault::TooManyFields`].
    pub fields_max: usize,
}

impl Limits {
    /// Room for the heads that a server of files receives, with their cookies in crumbs.
    pub const DEFAULT: Self = Self { list_bytes_max: 32 * 1024, fields_max: 1000 };
}

/// A field that was decoded, as positions in the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// The name.
    pub name: Range<usize>,
    /// The value.
    pub value: Range<usize>,
    /// True if no proxy may add the field to a table (RFC 7541 §6.2.3).
    pub is_secret: bool,
}

/// The result of decoding a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Decoded {
    /// The number of fields, with those that were cut off.
    pub fields: usize,
    /// True if fields were cut off, because their size is more than [`Limits::list_bytes_max`].
    pub is_cut: bool,
    /// True if the block has added a field to the table, or changed its size. The same block may mean something else then.
    pub changes_table: bool,
}

impl Default for Decoder {
    fn default() -> Self {
        Self::new()
    }
}

impl Decoder {
    /// A decoder with an empty table. The peer may give the table up to [`TABLE_BYTES_MAX`](crate::TABLE_BYTES_MAX),
    /// with which every connection begins.
    #[must_use]
    pub const fn new() -> Self {
        let table = DynamicTable::new();
        Self { allowed: table.size_max(), table }
    }

    /// Decodes a whole block, and appends a line for each field to `text`: name, `": "`, value, CRLF. The bytes of names
    /// and values are as the peer sent them: nothing is checked.
    ///
    /// `handle_line` is called after each line. It may change `text` from the beginning of that line on, and only there.
    ///
    /// # Errors
    ///
    /// A [`Fault`], after which the connection cannot go on. The lines in front of it are in `text`.
    pub fn decode(
        &mut self,
        block: &[u8],
        limits: &Limits,
        text: &mut Vec<u8>,
        mut handle_line: impl FnMut(&mut Vec<u8>, Line),
    ) -> Result<Decoded, Fault> {
        let mut at = self.update_sizes(block)?;
        let mut decoded = Decoded { changes_table: at > 0, ..Decoded::default() };
        let mut size = 0;
        while at < block.len() {
            if decoded.fields == limits.fields_max {
                return Err(Fault::TooManyFields);
            }
            decoded.fields += 1;
            let start = text.len();
            let field = match self.field(&block[at..], decoded.is_cut, text) {
                Ok(field) => field,
                Err(fault) => {
                    text.truncate(start);
                    return Err(fault);
                }
            };
            at += field.len;
            decoded.changes_table |= field.is_added;
            let value_at = start + field.name_len + b": ".len();
            size += FIELD_OVERHEAD;
            if let Some(written) = text.len().checked_sub(value_at) {
                size += field.name_len + written;
            }
            decoded.is_cut |= size > limits.list_bytes_max;
            if decoded.is_cut {
                text.truncate(start);
                continue;
            }
            let line = Line {
                name: start..start + field.name_len,
                value: value_at..text.len(),
                is_secret: field.is_secret,
            };
            text.extend_from_slice(b"\r\n");
            handle_line(text, line);
        }
        Ok(decoded)
    }

    /// Follows the changes of the table's size at the beginning of a block. Returns their length.
    fn update_sizes(&mut self, block: &[u8]) -> Result<usize, Fault> {
        let mut at = 0;
        for _ in 0..SIZE_UPDATES_MAX {
            let Some(0x20..=0x3f) = block.get(at) else { break };
            let (size, len) = integer::decode(&block[at..], 5)?;
            if size > self.allowed {
                return Err(Fault::SizeUpdate);
            }
            self.table.set_size_max(size);
            at += len;
        }
        Ok(at)
    }

    /// Decodes the field at the beginning of `rest`, and appends its name, `": "` and value. If it is cut, nothing needs
    /// to be appended, but the table changes as if.
    #[inline]
    fn field(&mut self, rest: &[u8], is_cut: bool, text: &mut Vec<u8>) -> Result<Read, Fault> {
        let first = rest.first().ok_or(Fault::Truncated)?;
        let (prefix, is_added, is_secret) = match first {
            0x80.. => {
                let (index, len) = integer::decode(rest, 7)?;
                let (name, value) = self.indexed(index)?;
                if !is_cut {
                    text.extend_from_slice(name);
                    text.extend_from_slice(b": ");
                    text.extend_from_slice(value);
                }
                return Ok(Read { len, name_len: name.len(), is_added: false, is_secret: false });
            }
            0x40.. => (6, true, false),
            0x20.. => return Err(Fault::SizeUpdate),
            0x10.. => (4, false, true),
            _ => (4, false, false),
        };
        let start = text.len();
        let (index, mut len) = integer::decode(rest, prefix)?;
        if index > 0 {
            let (name, _) = self.indexed(index)?;
            text.extend_from_slice(name);
        } else {
            len += string(&rest[len..], text)?;
        }
        let name_len = text.len() - start;
        text.extend_from_slice(b": ");
        let value_at = text.len();
        len += string(&rest[len..], text)?;
        if is_added {
            let (name, value) = (&text[start..start + name_len], &text[value_at..]);
            self.table.insert(name, value, 0);
        }
        Ok(Read { len, name_len, is_added, is_secret })
    }

    /// The field with this index (RFC 7541 §2.3.3).
    #[inline]
    fn indexed(&self, index: usize) -> Result<(&[u8], &[u8]), Fault> {
        let place = index.checked_sub(1).ok_or(Fault::Index)?;
        match static_table::FIELDS.get(place) {
            Some(&field) => Ok(field),
            None => self.table.get(index - static_table::LEN).ok_or(Fault::Index),
        }
    }

    /// Gives back memory that an idle connection does not need.
    pub fn shrink(&mut self) {
        self.table.shrink();
    }

    /// The bytes of memory that the decoder has allocated.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.table.memory()
    }

    /// The size that the peer has given its table.
    #[must_use]
    pub const fn table_size_max(&self) -> usize {
        self.table.size_max()
    }
}

/// The form of a field that was read.
struct Read {
    /// The bytes of the block.
    len: usize,
    name_len: usize,
    is_added: bool,
    is_secret: bool,
}

/// Decodes the string at the beginning of `rest`. Returns its length in the block.
#[inline]
fn string(rest: &[u8], text: &mut Vec<u8>) -> Result<usize, Fault> {
    let is_huffman = rest.first().is_some_and(|first| first & 0x80 != 0);
    let (string_len, len) = integer::decode(rest, 7)?;
    let string = rest.get(len..len + string_len).ok_or(Fault::Truncated)?;
    if is_huffman {
        huffman::decode(string, text)?;
    } else {
        text.extend_from_slice(string);
    }
    Ok(len + string_len)
}

#[cfg(test)]
mod tests;
