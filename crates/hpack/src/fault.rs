//! The faults of header blocks.

use core::error::Error;
use core::fmt;

/// The reason why a header block cannot be decoded.
///
/// The tables of the two sides may differ after a fault, so no later block can be decoded. The connection ends, with
/// COMPRESSION_ERROR for every fault but [`TooManyFields`](Self::TooManyFields) (RFC 9113 §4.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// The block ends within a field.
    Truncated,
    /// An integer is larger than any length or index.
    Integer,
    /// An index is zero, or beyond the end of the tables.
    Index,
    /// A string is not valid Huffman code.
    Huffman,
    /// The size of the table is changed after a field, more than twice, or beyond what was allowed.
    SizeUpdate,
    /// The block has more fields than any honest peer sends.
    TooManyFields,
}

impl Fault {
    /// A fragment of an English sentence for the log, such as "an index of no field".
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Truncated => "a header block that ends within a field",
            Self::Integer => "an integer that is too large",
            Self::Index => "an index of no field",
            Self::Huffman => "a string that is no Huffman code",
            Self::SizeUpdate => "a table size update that is not allowed",
            Self::TooManyFields => "too many fields in a header block",
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.reason())
    }
}

impl Error for Fault {}
