//! A plain reader of DNS messages (RFC 1035, 4), for replies.

use core::ops::Range;

const HEADER_BYTES: usize = 12;
const NAME_BYTES_MAX: usize = 255;

/// A record of a section.
pub(crate) struct Record {
    /// In lower case, not compressed.
    pub(crate) owner: Vec<u8>,
    pub(crate) kind: u16,
}

/// Reads a whole message: its records, in order.
///
/// # Panics
///
/// If it is not well-formed to its last byte.
pub(crate) fn records(message: &[u8]) -> [Vec<Record>; 3] {
    let [questions, sections @ ..] = [4, 6, 8, 10].map(|at| word(message, at));
    let mut at = HEADER_BYTES;
    for _ in 0..questions {
        at = name(message, at).1 + 4;
    }
    let sections = sections.map(|count| (0..count).map(|_| record(message, &mut at)).collect());
    assert_eq!(at, message.len(), "the end of the last record");
    sections
}

fn record(message: &[u8], at: &mut usize) -> Record {
    let (owner, behind) = name(message, *at);
    let kind = word(message, behind);
    let begin = behind + 10;
    let end = begin + usize::from(word(message, behind + 8));
    *at = end;
    check_data(message, kind, begin..end);
    Record { owner, kind }
}

/// Checks the data of the types that have names or strings, to their last byte.
fn check_data(message: &[u8], kind: u16, data: Range<usize>) {
    let begin = data.start;
    let end = match kind {
        1 => begin + 4,
        28 => begin + 16,
        // NS, CNAME and PTR
        2 | 5 | 12 => name(message, begin).1,
        // MX
        15 => name(message, begin + 2).1,
        // SOA
        6 => name(message, name(message, begin).1).1 + 5 * 4,
        // TXT
        16 => {
            let mut at = begin;
            while at < data.end {
                at += 1 + usize::from(message[at]);
            }
            at
        }
        _ => data.end,
    };
    assert_eq!(end, data.end, "the data of a record of type {kind}");
    assert!(end <= message.len());
}

/// Reads a name: its bytes without compression in lower case, and the place after it.
pub(crate) fn name(message: &[u8], begin: usize) -> (Vec<u8>, usize) {
    let (mut bytes, mut at, mut behind) = (Vec::new(), begin, None);
    loop {
        let length = message[at];
        match length {
            0 => {
                bytes.push(0);
                assert!(bytes.len() <= NAME_BYTES_MAX, "a name that is too long");
                return (bytes, behind.unwrap_or(at + 1));
            }
            1..=63 => {
                let label = &message[at..=at + usize::from(length)];
                bytes.extend(label.to_ascii_lowercase());
                at += label.len();
            }
            0xc0.. => {
                let to = usize::from(word(message, at) & 0x3fff);
                // So it ends.
                assert!((HEADER_BYTES..at).contains(&to), "a pointer to what was not before it");
                behind.get_or_insert(at + 2);
                at = to;
            }
            _ => panic!("a label of an unknown kind"),
        }
    }
}

pub(crate) fn word(message: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([message[at], message[at + 1]])
}
