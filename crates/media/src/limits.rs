//! The limits of a probe.

/// The maximum number of bytes that a probe reads of one file: two tables, and the headers in front.
pub const BYTES_MAX: u64 = 2 * TABLE_BYTES_MAX + BOXES_MAX as u64 * READ_BYTES;
/// The maximum size of a table that is read: a `moov`, a `sidx`, an `mfra`, `Cues`. Of a larger table
/// only the position is known, and of a larger `moov` also the duration, which stands at its start. The
/// `moov` of a film of 40 minutes has this size.
pub const TABLE_BYTES_MAX: u64 = 1024 * 1024;
/// The maximum number of boxes or elements of the outermost levels that are looked at. Writers put the
/// index in front, or after the media, or into several boxes that stand together.
pub const BOXES_MAX: u32 = 32;
/// The minimum number of bytes that a probe reads: a page costs a disk as much as a header.
pub(crate) const READ_BYTES: u64 = 4096;
