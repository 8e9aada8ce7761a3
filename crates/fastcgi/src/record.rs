//! The header of a record, and the kinds of records.
//!
//! Reading list: FastCGI 1.0 §3.3, §8.
//!
//! ```text
//!    0        1      2      3      4      5       6         7       8
//!   ┌────────┬──────┬─────────────┬──────────────┬─────────┬───────┬── … ────┬── … ────┐
//!   │version │ type │ request id  │content length│ padding │ (none)│ content │ padding │
//!   │        │      │             │              │ length  │       │         │         │
//!   └────────┴──────┴─────────────┴──────────────┴─────────┴───────┴─────────┴─────────┘
//! ```

/// Bytes of a header.
pub(crate) const HEADER_BYTES: usize = 8;
/// The most bytes of content that a record can have.
pub(crate) const CONTENT_BYTES_MAX: usize = u16::MAX as usize;
/// The id of each request: there is one at a time on a connection.
pub(crate) const REQUEST_ID: u16 = 1;

/// `FCGI_VERSION_1`
const VERSION: u8 = 1;

/// The types of records that are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Sent {
    BeginRequest = 1,
    AbortRequest = 2,
    Params = 4,
    Stdin = 5,
}

/// The records that an application sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Received {
    EndRequest,
    Stdout,
    Stderr,
    /// `FCGI_GET_VALUES_RESULT` or `FCGI_UNKNOWN_TYPE`. They are about no request.
    Management,
}

/// A header that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) record: Received,
    pub(crate) content_bytes: u16,
    pub(crate) padding_bytes: u8,
}

impl Header {
    /// Reads a header.
    ///
    /// # Errors
    ///
    /// The reason why it is none that an application may send.
    pub(crate) const fn parse(bytes: [u8; HEADER_BYTES]) -> Result<Self, &'static str> {
        let [version, record, id_high, id_low, high, low, padding_bytes, _] = bytes;
        if version != VERSION {
            return Err("a record of another version of FastCGI");
        }
        let id = u16::from_be_bytes([id_high, id_low]);
        let record = match (record, id) {
            (3, REQUEST_ID) => Received::EndRequest,
            (6, REQUEST_ID) => Received::Stdout,
            (7, REQUEST_ID) => Received::Stderr,
            (10 | 11, 0) => Received::Management,
            (3 | 6 | 7 | 10 | 11, _) => return Err("a record of a request that was not made"),
            _ => return Err("a record of a type that applications do not send"),
        };
        let content_bytes = u16::from_be_bytes([high, low]);
        Ok(Self { record, content_bytes, padding_bytes })
    }
}

/// The header of a record without padding.
pub(crate) const fn header(record: Sent, content_bytes: u16) -> [u8; HEADER_BYTES] {
    let [id_high, id_low] = REQUEST_ID.to_be_bytes();
    let [high, low] = content_bytes.to_be_bytes();
    [VERSION, record as u8, id_high, id_low, high, low, 0, 0]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fcgi_3_3_a_header_has_a_type_an_id_and_two_lengths() {
        let header = Header::parse([1, 6, 0, 1, 0x12, 0x34, 0x56, 0xff]);
        let expected =
            Header { record: Received::Stdout, content_bytes: 0x1234, padding_bytes: 0x56 };
        assert_eq!(header, Ok(expected), "the reserved byte says nothing");
    }

    #[test]
    fn fcgi_8_an_application_sends_five_types_of_records() {
        for record in 0..=u8::MAX {
            for id in [0, 1, 2, 0x100, u16::MAX] {
                let [high, low] = id.to_be_bytes();
                let header = Header::parse([1, record, high, low, 0, 0, 0, 0]);
                let expected = match (record, id) {
                    (3, 1) => Ok(Received::EndRequest),
                    (6, 1) => Ok(Received::Stdout),
                    (7, 1) => Ok(Received::Stderr),
                    (10 | 11, 0) => Ok(Received::Management),
                    _ => Err(()),
                };
                let record = header.map(|header| header.record).map_err(|_| ());
                assert_eq!(record, expected, "{record:?} {id}");
            }
        }
    }

    #[test]
    fn fcgi_3_3_there_is_one_version() {
        for version in [0, 2, b'H', u8::MAX] {
            assert!(Header::parse([version, 6, 0, 1, 0, 0, 0, 0]).is_err());
        }
    }

    #[test]
    fn a_header_is_written_as_it_is_read() {
        assert_eq!(header(Sent::Stdin, 0x1234), [1, 5, 0, 1, 0x12, 0x34, 0, 0]);
    }
}
