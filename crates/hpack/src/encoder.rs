//! The encoder of the fields that one connection sends.

use alloc::borrow::ToOwned as _;
use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::dynamic_table::{DynamicTable, FIELD_OVERHEAD, TABLE_BYTES_MAX};
use crate::integer;
use crate::literal::{self, Indexing, LowerCase};
use crate::static_table;
use crate::{Block, Decoder, Limits};

/// [`TABLE_BYTES_MAX`], as the peer's sizes are kept.
const SIZE_MAX: u16 = 4096;
const _: () = assert!(SIZE_MAX as usize == TABLE_BYTES_MAX);
/// The fields that are remembered to find out which ones repeat.
const SEEN: usize = 16;

/// The part of the table that one field may fill: a larger field would evict many others.
const FIELD_SHARE: usize = 4;

/// The number of times that a prepared block repeats before its fields are looked for in the table. That costs as much as
/// three requests.
const REPEATS: u8 = 8;

/// Writes header blocks for one connection.
///
/// A field is added to the dynamic table when it comes for the second time, so fields that never repeat evict no others.
/// Secrets are never added: `authorization`, `cookie`, `proxy-authorization`, `set-cookie`.
///
/// For each block call [`begin`](Self::begin), then [`field`](Self::field) for each field. A [`prepared`](Self::prepared)
/// block may stand in place of fields.
#[derive(Clone, Debug)]
pub struct Encoder {
    table: DynamicTable,
    /// `None` until a field was sent that may repeat. Fields of prepared blocks are not among them.
    seen: Option<Box<Seen>>,
    /// The smallest size that the peer has set since the last block, if it has set one.
    smallest: Option<u16>,
    /// The size that the peer allows now.
    allowed: u16,
    last: Prepared,
}

// Most connections are idle, so an encoder is small.
const _: () = assert!(size_of::<Encoder>() <= 152);

/// The hashes of fields that were sent, and the place of the oldest.
#[derive(Clone, Debug, Default)]
struct Seen {
    hashes: [u32; SEEN],
    oldest: usize,
}

impl Seen {
    fn add(&mut self, hash: u32) {
        self.hashes[self.oldest] = hash;
        self.oldest = (self.oldest + 1) % SEEN;
    }
}

/// The last prepared block that was sent.
#[derive(Clone, Debug)]
struct Prepared {
    /// Its fields behind the date.
    rest: Vec<u8>,
    /// The same fields, by their indices in the table; empty if they are not known.
    short: Vec<u8>,
    /// The number of changes of the table for which they are right.
    changes: u64,
    /// The number of times that it has come again since the table was last used for it.
    repeats: u8,
}

impl Default for Encoder {
    fn default() -> Self {
        Self::new()
    }
}

impl Encoder {
    /// An encoder with an empty table of [`TABLE_BYTES_MAX`].
    #[must_use]
    pub const fn new() -> Self {
        Self {
            table: DynamicTable::new(),
            seen: None,
            smallest: None,
            allowed: SIZE_MAX,
            last: Prepared { rest: Vec::new(), short: Vec::new(), changes: 0, repeats: 0 },
        }
    }

    /// Sets the size of the table that the peer allows: SETTINGS_HEADER_TABLE_SIZE. A table is never larger than
    /// [`TABLE_BYTES_MAX`].
    pub fn set_table_size(&mut self, bytes: u32) {
        let size = u16::try_from(bytes).unwrap_or(SIZE_MAX).min(SIZE_MAX);
        self.allowed = size;
        self.smallest = Some(self.smallest.map_or(size, |smallest| smallest.min(size)));
    }

    /// Begins a block: appends what the peer must know about the size of the table (RFC 7541 §4.2).
    #[inline]
    pub fn begin(&mut self, out: &mut Vec<u8>) {
        if let Some(smallest) = self.smallest.take() {
            self.change_size(smallest, out);
        }
    }

    #[cold]
    fn change_size(&mut self, smallest: u16, out: &mut Vec<u8>) {
        for size in [smallest, self.allowed].map(usize::from) {
            if size != self.table.size_max() {
                integer::encode(size, 5, 0x20, out);
                self.table.set_size_max(size);
            }
        }
    }

    /// Appends a field. Its name is written in lower case.
    pub fn field(&mut self, name: &[u8], value: &[u8], out: &mut Vec<u8>) {
        LowerCase::of(name).with(|name| self.push(name, value, false, out));
    }

    /// Appends a field that no proxy may add to a table either (RFC 7541 §7.1.3).
    pub fn secret_field(&mut self, name: &[u8], value: &[u8], out: &mut Vec<u8>) {
        LowerCase::of(name).with(|name| literal::push_literal(name, value, Indexing::Never, out));
    }

    /// Appends a prepared block. If it repeats, but for its date, the fields behind the date are added to the table, and are
    /// sent by their indices from then on. So a client that asks for the same file all the time receives fewer bytes.
    pub fn prepared(&mut self, block: &Block, out: &mut Vec<u8>) {
        let (front, rest) = block.split_behind_date();
        out.extend_from_slice(front);
        let last = &mut self.last;
        if last.rest != rest {
            rest.clone_into(&mut last.rest);
            last.short.clear();
            last.repeats = 0;
        } else if !last.short.is_empty() && last.changes == self.table.changes() {
            return out.extend_from_slice(&last.short);
        } else {
            last.repeats += 1;
            if last.repeats == REPEATS {
                last.repeats = 0;
                return self.shorten(rest, out);
            }
        }
        out.extend_from_slice(rest);
    }

    /// Appends fields of a prepared block: by their indices, or else they are added to the table. Notes the bytes if all
    /// have an index that they can have.
    #[cold]
    fn shorten(&mut self, fields: &[u8], out: &mut Vec<u8>) {
        let (before, start) = (self.table.changes(), out.len());
        let limits = Limits { list_bytes_max: usize::MAX, fields_max: usize::MAX };
        let decoded = Decoder::new().decode(fields, &limits, &mut Vec::new(), |text, line| {
            self.push(&text[line.name], &text[line.value], true, out);
        });
        assert!(decoded.is_ok(), "a block that was prepared here");
        self.last.short.clear();
        if self.table.changes() == before {
            self.last.short.extend_from_slice(&out[start..]);
            self.last.changes = before;
        }
    }

    fn push(&mut self, name: &[u8], value: &[u8], repeats: bool, out: &mut Vec<u8>) {
        let indexing = Indexing::of_name(name);
        let size = name.len() + value.len() + FIELD_OVERHEAD;
        let is_constant = matches!(static_table::find(name, value), static_table::Found::Field(_));
        if indexing == Indexing::Never || is_constant || size > self.table.size_max() / FIELD_SHARE
        {
            return literal::push_field(name, value, indexing, out);
        }
        let hash = hash(name, value);
        if let Some(index) = self.table.find(name, value, hash) {
            return integer::encode(static_table::LEN + index, 7, 0x80, out);
        }
        let has_seen = self.seen.as_ref().is_some_and(|seen| seen.hashes.contains(&hash));
        if repeats || has_seen {
            literal::push_field(name, value, Indexing::Added, out);
            self.table.insert(name, value, hash);
        } else {
            self.seen.get_or_insert_default().add(hash);
            literal::push_field(name, value, Indexing::Without, out);
        }
    }

    /// Gives back memory that an idle connection does not need.
    pub fn shrink(&mut self) {
        self.table.shrink();
        (self.last.rest, self.last.short) = (Vec::new(), Vec::new());
    }

    /// The bytes of memory that the encoder has allocated.
    #[must_use]
    pub fn memory(&self) -> usize {
        let seen = self.seen.as_ref().map_or(0, |_| size_of::<Seen>());
        self.table.memory() + seen + self.last.rest.capacity() + self.last.short.capacity()
    }
}

/// A hash of a field, never zero. A peer that finds two fields with the same hash gains nothing.
fn hash(name: &[u8], value: &[u8]) -> u32 {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut hash = (name.len() as u64) << 32 | value.len() as u64;
    for part in [name, value] {
        let (words, rest) = part.as_chunks::<8>();
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        for word in words.iter().chain([&last]) {
            hash = (hash ^ u64::from_le_bytes(*word)).wrapping_mul(FACTOR).rotate_left(29);
        }
    }
    u32::try_from(hash >> 32).unwrap_or_default() | 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::String;

    /// Writes a block.
    fn block(encoder: &mut Encoder, fields: &[(&str, &str)]) -> Vec<u8> {
        let mut out = Vec::new();
        encoder.begin(&mut out);
        for (name, value) in fields {
            encoder.field(name.as_bytes(), value.as_bytes(), &mut out);
        }
        out
    }

    fn text(decoder: &mut Decoder, block: &[u8]) -> String {
        let mut text = Vec::new();
        decoder.decode(block, &Limits::DEFAULT, &mut text, |_, _| ()).unwrap();
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn a_field_that_repeats_becomes_one_byte() {
        let (mut encoder, mut decoder) = (Encoder::new(), Decoder::new());
        let fields = [(":status", "200"), ("Server", "samum"), ("X-Long-Name", "a value")];
        let lengths = [(); 4].map(|()| {
            let block = block(&mut encoder, &fields);
            let text = text(&mut decoder, &block);
            assert_eq!(text, ":status: 200\r\nserver: samum\r\nx-long-name: a value\r\n");
            block.len()
        });
        assert!(lengths[1] <= lengths[0] && lengths[1] > 20, "{lengths:?}");
        assert_eq!(lengths[2..], [3, 3]);
        assert_eq!(encoder.table.fields().len(), 2);
    }

    #[test]
    fn a_prepared_block_that_repeats_becomes_its_indices() {
        const DATES: [&[u8; 29]; 2] =
            [b"Sun, 06 Nov 1994 08:49:37 GMT", b"Mon, 07 Nov 1994 08:49:37 GMT"];
        let prepared = |etag: &str, date| {
            let mut block = Block::new();
            block.push(b":status", b"200");
            block.push_date(date);
            for (name, value) in [("Server", "samum"), ("ETag", etag), ("Set-Cookie", "a")] {
                block.push(name.as_bytes(), value.as_bytes());
            }
            block
        };
        let (mut encoder, mut decoder) = (Encoder::new(), Decoder::new());
        let mut send = |encoder: &mut Encoder, etag: &str, times: usize| {
            let mut len = 0;
            for date in DATES.iter().cycle().take(times) {
                let mut out = Vec::new();
                encoder.begin(&mut out);
                encoder.prepared(&prepared(etag, date), &mut out);
                let date = core::str::from_utf8(*date).unwrap();
                let expected = std::format!(
                    ":status: 200\r\ndate: {date}\r\nserver: samum\r\netag: {etag}\r\nset-cookie: a\r\n"
                );
                assert_eq!(text(&mut decoder, &out), expected);
                len = out.len();
            }
            len
        };
        let whole = |etag: &str| prepared(etag, DATES[0]).as_bytes().len();
        let repeats = usize::from(REPEATS);
        let cookie = 1 + 1 + 1 + 1;
        let short = 1 + (1 + 1 + 1 + 29) + 1 + 1 + cookie;
        assert_eq!(send(&mut encoder, "\"1\"", repeats), whole("\"1\""));
        assert_eq!(send(&mut encoder, "\"1\"", repeats + 2), short);
        assert_eq!(send(&mut encoder, "\"1\"", 100), short);
        // Other blocks move the indices.
        assert_eq!(send(&mut encoder, "\"2\"", 1), whole("\"2\""));
        assert_eq!(send(&mut encoder, "\"2\"", 3 * repeats), short);
        assert_eq!(send(&mut encoder, "\"1\"", 3 * repeats), short);
        encoder.set_table_size(0);
        assert_eq!(send(&mut encoder, "\"1\"", 3 * repeats), whole("\"1\""));
        // There is room for one of the fields.
        encoder.set_table_size(160);
        send(&mut encoder, "\"1\"", 10 * repeats);
        assert!(encoder.memory() > 0);
    }

    #[test]
    fn rfc7541_7_1_3_secrets_are_in_no_table() {
        let (mut encoder, mut decoder) = (Encoder::new(), Decoder::new());
        for name in ["Authorization", "cookie", "set-cookie", "Proxy-Authorization"] {
            for _ in 0..3 {
                let block = block(&mut encoder, &[(name, "secret")]);
                assert_eq!(block[0] & 0xf0, 0x10, "{name}");
                let expected = std::format!("{}: secret\r\n", name.to_ascii_lowercase());
                assert_eq!(text(&mut decoder, &block), expected);
            }
        }
        let mut out = Vec::new();
        encoder.secret_field(b":status", b"200", &mut out);
        assert_eq!(out[0], 0x18);
        assert!(encoder.table.fields().is_empty());
    }

    #[test]
    fn rfc7541_4_2_changed_sizes_are_said_at_the_next_block() {
        let (mut encoder, mut decoder) = (Encoder::new(), Decoder::new());
        let fields = [("a", "b")];
        for _ in 0..2 {
            text(&mut decoder, &block(&mut encoder, &fields));
        }
        encoder.set_table_size(0);
        encoder.set_table_size(100_000);
        let written = block(&mut encoder, &fields);
        assert_eq!(written[..4], [0x20, 0x3f, 0xe1, 0x1f]);
        assert_eq!(text(&mut decoder, &written), "a: b\r\n");
        encoder.set_table_size(4096);
        assert_eq!(block(&mut encoder, &fields)[0], 0x80 | 62);
        encoder.set_table_size(0);
        let written = block(&mut encoder, &fields);
        assert_eq!(written[..2], [0x20, 0x00]);
        assert_eq!(text(&mut decoder, &written), "a: b\r\n");
    }

    #[test]
    fn long_fields_and_long_names_are_written_too() {
        let (mut encoder, mut decoder) = (Encoder::new(), Decoder::new());
        let (name, value) = ("N".repeat(100), "~".repeat(10_000));
        for _ in 0..3 {
            let written = block(&mut encoder, &[(&name, &value)]);
            let expected = std::format!("{}: {value}\r\n", name.to_ascii_lowercase());
            assert_eq!(text(&mut decoder, &written), expected);
        }
        assert_eq!(encoder.memory(), 0);
    }
}
