//! The bytes that a stream may bring into memory, if it shares a bound with other streams.

/// The bytes that one fill may bring into memory. Reads count when they begin, with all bytes that they may bring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowance {
    /// Resident bytes that may be copied.
    pub copies: u64,
    /// Bytes that reads may bring. With less than [`READ_MIN`](Self::READ_MIN) no read begins.
    pub reads: u64,
}

impl Allowance {
    /// The least room in which a read begins: smaller reads cost a disk as much, and bring less.
    pub const READ_MIN: u64 = 16 * 1024;
    /// No limit except the window of the stream.
    pub const ALL: Self = Self { copies: u64::MAX, reads: u64::MAX };
    /// Nothing may be brought.
    pub const NONE: Self = Self { copies: 0, reads: 0 };

    /// The bytes of a read at `offset` of a file that wants `want` bytes. A read that is cut ends at a multiple of
    /// [`READ_MIN`](Self::READ_MIN), so that reads that bypass the page cache stay possible after it.
    pub(crate) const fn fit(self, offset: u64, want: u64) -> u64 {
        if want <= self.reads {
            return want;
        }
        let end = offset + self.reads;
        end - end % Self::READ_MIN - offset
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_that_is_cut_ends_at_a_multiple() {
        const KIB: u64 = 1024;
        for (reads, offset, want, expected) in [
            (u64::MAX, 5, u64::MAX - 5, u64::MAX - 5),
            (16 * KIB, 0, 16 * KIB, 16 * KIB),
            (16 * KIB, 0, 16 * KIB + 1, 16 * KIB),
            (16 * KIB, 1, 20 * KIB, 16 * KIB - 1),
            (16 * KIB, 16 * KIB - 1, 20 * KIB, 1),
            (50 * KIB, 7 * KIB, 256 * KIB, 41 * KIB),
            (50 * KIB, 7 * KIB, 50 * KIB, 50 * KIB),
        ] {
            let allowance = Allowance { copies: 0, reads };
            assert_eq!(
                allowance.fit(offset, want),
                expected,
                "{want} bytes at {offset} in {reads}"
            );
        }
    }
}
