//! A plain reader and a plain writer of records, for tests.

use alloc::vec::Vec;

/// A record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record<'a> {
    pub(crate) kind: u8,
    pub(crate) id: u16,
    pub(crate) content: &'a [u8],
}

/// The records that all of these bytes are.
pub(crate) fn records(mut bytes: &[u8]) -> impl Iterator<Item = Record<'_>> {
    core::iter::from_fn(move || {
        let (header, rest) = bytes.split_at_checked(8)?;
        assert_eq!(header[0], 1, "another version");
        let content_bytes = usize::from(header[4]) << 8 | usize::from(header[5]);
        let (content, rest) = rest.split_at(content_bytes);
        bytes = &rest[usize::from(header[6])..];
        Some(Record {
            kind: header[1],
            id: u16::from(header[2]) << 8 | u16::from(header[3]),
            content,
        })
    })
}

/// A record with padding.
pub(crate) fn record(kind: u8, id: u16, content: &[u8], padding: u8) -> Vec<u8> {
    let [id_high, id_low] = id.to_be_bytes();
    let [high, low] = u16::try_from(content.len()).expect("it fits").to_be_bytes();
    let header = [1, kind, id_high, id_low, high, low, padding, 0xee];
    [&header, content, &[0xdd].repeat(padding.into())].concat()
}
