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

use core::num::NonZeroU16;

/// The id of a request on its connection, 1 to 65,535.
///
/// It distinguishes a record of the response from a late record of an earlier request.
///
/// ```
/// use fastcgi::RequestId;
///
/// let ids = [0, 1, 65_534, 65_535].map(|before| RequestId::after(before).get());
/// assert_eq!(ids, [1, 2, 65_535, 1]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestId(NonZeroU16);

/// The bytes of a header.
pub(crate) const HEADER_BYTES: usize = 8;
/// The maximum of bytes of content that a record can have.
pub(crate) const CONTENT_BYTES_MAX: usize = u16::MAX as usize;

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
    /// `FCGI_GET_VALUES_RESULT` or `FCGI_UNKNOWN_TYPE`, which belong to no request.
    Management,
}

impl RequestId {
    /// The id of the first request on a connection.
    pub const FIRST: Self = Self(NonZeroU16::MIN);

    /// The id of the next request on a connection, after `before` requests.
    #[expect(clippy::missing_panics_doc, reason = "it does not panic")]
    pub fn after(requests: u64) -> Self {
        let id = u16::try_from(requests % u64::from(u16::MAX) + 1).expect("it has 16 bits");
        Self(NonZeroU16::new(id).expect("it is one more than something"))
    }

    /// The number that is sent.
    pub const fn get(self) -> u16 {
        self.0.get()
    }
}

/// A header that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) record: Received,
    pub(crate) content_bytes: u16,
    pub(crate) padding_bytes: u8,
}

impl Header {
    /// Reads a header of the response to this request.
    ///
    /// # Errors
    ///
    /// The reason why it is none that an application may send.
    pub(crate) const fn parse(
        bytes: [u8; HEADER_BYTES],
        request: RequestId,
    ) -> Result<Self, &'static str> {
        let [version, record, id_high, id_low, high, low, padding_bytes, _] = bytes;
        if version != VERSION {
            return Err("a record of another version of FastCGI");
        }
        let (record, id_expected) = match record {
            3 => (Received::EndRequest, request.get()),
            6 => (Received::Stdout, request.get()),
            7 => (Received::Stderr, request.get()),
            10 | 11 => (Received::Management, 0),
            _ => return Err("a record of a type that applications do not send"),
        };
        if u16::from_be_bytes([id_high, id_low]) != id_expected {
            return Err("a record of another request");
        }
        let content_bytes = u16::from_be_bytes([high, low]);
        Ok(Self { record, content_bytes, padding_bytes })
    }
}

/// The header of a record without padding.
pub(crate) const fn header(
    record: Sent,
    request: RequestId,
    content_bytes: u16,
) -> [u8; HEADER_BYTES] {
    let [id_high, id_low] = request.get().to_be_bytes();
    let [high, low] = content_bytes.to_be_bytes();
    [VERSION, record as u8, id_high, id_low, high, low, 0, 0]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fcgi_3_3_a_header_has_a_type_an_id_and_two_lengths() {
        let header = Header::parse([1, 6, 0, 1, 0x12, 0x34, 0x56, 0xff], RequestId::FIRST);
        let expected =
            Header { record: Received::Stdout, content_bytes: 0x1234, padding_bytes: 0x56 };
        assert_eq!(header, Ok(expected), "the reserved byte says nothing");
    }

    #[test]
    fn fcgi_8_an_application_sends_five_types_of_records() {
        for record in 0..=u8::MAX {
            for (id, before) in [0, 1, 2, 0x100, u16::MAX].into_iter().zip([0, 0, 1, 0xff, 0xfffe])
            {
                let [high, low] = id.to_be_bytes();
                let bytes = [1, record, high, low, 0, 0, 0, 0];
                let read = |before| {
                    let header = Header::parse(bytes, RequestId::after(before));
                    header.map(|header| header.record).map_err(|_| ())
                };
                let expected = match (record, id) {
                    (3, 1..) => Ok(Received::EndRequest),
                    (6, 1..) => Ok(Received::Stdout),
                    (7, 1..) => Ok(Received::Stderr),
                    (10 | 11, 0) => Ok(Received::Management),
                    _ => Err(()),
                };
                assert_eq!(read(before), expected, "{record} {id}");
                // Records of a request are none of the next one.
                let expected = expected.and_then(|record| match record {
                    Received::Management => Ok(record),
                    _ => Err(()),
                });
                assert_eq!(read(before + 1), expected, "{record} {id}");
            }
        }
    }

    #[test]
    fn fcgi_3_3_there_is_one_version() {
        for version in [0, 2, b'H', u8::MAX] {
            let header = Header::parse([version, 6, 0, 1, 0, 0, 0, 0], RequestId::FIRST);
            assert!(header.is_err());
        }
    }

    #[test]
    fn a_header_is_written_as_it_is_read() {
        let request = RequestId::after(0x5677);
        assert_eq!(header(Sent::Stdin, request, 0x1234), [1, 5, 0x56, 0x78, 0x12, 0x34, 0, 0]);
    }
}
