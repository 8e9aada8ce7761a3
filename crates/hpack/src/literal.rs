//! The representations of fields that depend on no connection (RFC 7541 §6.1, §6.2).

use alloc::vec::Vec;

use crate::static_table::{self, Found};
use crate::{huffman, integer};

/// The way in which a literal field treats the dynamic tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Indexing {
    /// The peer adds the field to its table (RFC 7541 §6.2.1).
    Added,
    /// The tables do not change (RFC 7541 §6.2.2).
    Without,
    /// The tables do not change, and no proxy may add the field to a table (RFC 7541 §6.2.3).
    Never,
}

impl Indexing {
    /// The indexing of a field with this name, if it is in no dynamic table. The values of some fields are secrets, which
    /// nobody shall find out by the sizes of blocks (RFC 7541 §7.1).
    pub(crate) const fn of_name(name: &[u8]) -> Self {
        match name {
            b"authorization" | b"cookie" | b"proxy-authorization" | b"set-cookie" => Self::Never,
            _ => Self::Without,
        }
    }

    /// The bits of the first byte that are no index, and the number of bits of the index.
    const fn form(self) -> (u8, u32) {
        match self {
            Self::Added => (0x40, 6),
            Self::Without => (0x00, 4),
            Self::Never => (0x10, 4),
        }
    }
}

/// The length of names that are written in lower case without an allocation.
const SHORT: usize = 64;

/// A field name in lower case, as HTTP/2 sends it (RFC 9113 §8.2.1).
pub(crate) struct LowerCase<'a> {
    short: [u8; SHORT],
    name: &'a [u8],
}

impl<'a> LowerCase<'a> {
    pub(crate) fn of(name: &'a [u8]) -> Self {
        let mut short = [0; SHORT];
        if let Some(copy) = short.get_mut(..name.len()) {
            copy.copy_from_slice(name);
            copy.make_ascii_lowercase();
        }
        Self { short, name }
    }

    /// Calls `use_name` with the name.
    pub(crate) fn with<T>(&self, use_name: impl FnOnce(&[u8]) -> T) -> T {
        match self.short.get(..self.name.len()) {
            Some(short) => use_name(short),
            None => use_name(&self.name.to_ascii_lowercase()),
        }
    }
}

/// Appends a field that is in no dynamic table. `name` is in lower case.
pub(crate) fn push_field(name: &[u8], value: &[u8], indexing: Indexing, out: &mut Vec<u8>) {
    match static_table::find(name, value) {
        Found::Field(index) => integer::encode(index, 7, 0x80, out),
        Found::Name(_) | Found::Nothing => push_literal(name, value, indexing, out),
    }
}

/// Appends a field as a literal, even if a table has it. `name` is in lower case.
pub(crate) fn push_literal(name: &[u8], value: &[u8], indexing: Indexing, out: &mut Vec<u8>) {
    let (flags, prefix) = indexing.form();
    match static_table::find(name, b"") {
        Found::Field(index) | Found::Name(index) => integer::encode(index, prefix, flags, out),
        Found::Nothing => {
            out.push(flags);
            push_string(name, out);
        }
    }
    push_string(value, out);
}

/// Appends a string, in Huffman code if that is shorter.
fn push_string(string: &[u8], out: &mut Vec<u8>) {
    let encoded_len = huffman::encoded_len(string);
    if encoded_len < string.len() {
        integer::encode(encoded_len, 7, 0x80, out);
        huffman::encode(string, out);
    } else {
        push_plain(string, out);
    }
}

/// Appends a string as it is.
pub(crate) fn push_plain(string: &[u8], out: &mut Vec<u8>) {
    integer::encode(string.len(), 7, 0, out);
    out.extend_from_slice(string);
}
