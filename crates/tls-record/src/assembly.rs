//! Whole records out of bytes that come in any parts.

use alloc::vec::Vec;

use crate::fault::Fault;
use crate::frame::{HEAD_BYTES, length};

/// The record that has not come completely. It holds no memory between records, and at most
/// [`RECORD_BYTES_MAX`](crate::RECORD_BYTES_MAX) bytes, or twice as much while it grows.
#[derive(Debug, Default)]
pub struct Assembly {
    bytes: Vec<u8>,
    /// True if the bytes are a record that has been given out.
    is_given: bool,
}

impl Assembly {
    /// Takes the next record out of `input`, its head included. `None`: more has to come. Call it until then, because that
    /// call frees the memory of the last record.
    ///
    /// # Errors
    ///
    /// [`Fault::Overflow`] if a head names a length that no record may have.
    pub fn next<'a, 'i: 'a>(&'a mut self, input: &mut &'i [u8]) -> Result<Option<&'a [u8]>, Fault> {
        if core::mem::take(&mut self.is_given) {
            self.bytes.clear();
        }
        if self.bytes.is_empty() {
            if let Some(length) = length(input)?
                && let Some((record, rest)) = input.split_at_checked(length)
            {
                *input = rest;
                return Ok(Some(record));
            }
            if input.is_empty() {
                self.bytes = Vec::new();
                return Ok(None);
            }
        }
        self.take_up_to(HEAD_BYTES, input);
        let Some(length) = length(&self.bytes)? else { return Ok(None) };
        self.take_up_to(length, input);
        self.is_given = self.bytes.len() == length;
        Ok(self.is_given.then_some(&self.bytes))
    }

    fn take_up_to(&mut self, length: usize, input: &mut &[u8]) {
        let missing = length.saturating_sub(self.bytes.len());
        let (taken, rest) = input.split_at(missing.min(input.len()));
        self.bytes.extend_from_slice(taken);
        *input = rest;
    }

    /// The memory that is held for the record, in bytes.
    #[must_use]
    pub const fn weight(&self) -> usize {
        self.bytes.capacity()
    }
}

#[cfg(test)]
mod tests {
    use std::vec;
    use std::vec::Vec;

    use super::*;
    use crate::frame::RECORD_BYTES_MAX;

    /// The records in a stream that comes in parts of `part` bytes.
    fn records(stream: &[u8], part: usize) -> Result<Vec<Vec<u8>>, Fault> {
        let (mut assembly, mut found) = (Assembly::default(), Vec::new());
        for mut input in stream.chunks(part) {
            while let Some(record) = assembly.next(&mut input)? {
                found.push(record.to_vec());
            }
            assert!(input.is_empty());
        }
        Ok(found)
    }

    #[test]
    fn records_are_whole_however_they_come() {
        let all = [
            [&[23, 3, 3, 0, 3][..], b"abc"].concat(),
            vec![21, 3, 3, 0, 0],
            [&[22, 3, 1, 1, 0][..], &[7; 256]].concat(),
            vec![23, 3, 3, 0, 1, 9],
        ];
        let stream = all.concat();
        for part in 1..=stream.len() {
            assert_eq!(records(&stream, part).unwrap(), all, "{part}");
        }
        // The last one is cut.
        for end in stream.len() - 5..stream.len() {
            assert_eq!(records(&stream[..end], 7).unwrap(), all[..3], "{end}");
        }
    }

    #[test]
    fn a_length_that_no_record_has_is_refused_before_its_bytes_come() {
        let head = |body: usize| {
            let [high, low] = u16::try_from(body).unwrap().to_be_bytes();
            vec![23, 3, 3, high, low]
        };
        for part in [1, 5] {
            assert_eq!(records(&head(RECORD_BYTES_MAX - 5), part), Ok(vec![]));
            assert_eq!(records(&head(RECORD_BYTES_MAX - 4), part), Err(Fault::Overflow));
        }
    }

    #[test]
    fn nothing_is_held_between_records() {
        let mut assembly = Assembly::default();
        let record = [&[23, 3, 3, 0x40, 0][..], &[0; 0x4000]].concat();
        for mut input in record.chunks(1000) {
            while assembly.next(&mut input).unwrap().is_some() {}
            assert!(assembly.weight() < 2 * RECORD_BYTES_MAX);
        }
        assert_eq!(assembly.weight(), 0);
    }
}
