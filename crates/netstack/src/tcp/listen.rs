//! Segments of no connection (RFC 9293, 3.10.7.1 and 3.10.7.2).
//!
//! While SYN cookies may come back, a listener drops acknowledgements without a connection instead of resetting them.
//! Such a segment may hold bytes that have overtaken the first bytes of a connection. A cookie that could tell such
//! segments from strays would be weaker against guessed numbers.

use crate::seq::SeqNumber;
use crate::wire::tcp::{Flags, Header, Options};

/// The reset in reply to a segment without a connection; `None` if the segment is itself a reset. `seg_len` counts
/// the segment's payload, SYN and FIN.
pub(crate) fn reset(header: &Header, seg_len: u32) -> Option<Header> {
    if header.flags.rst {
        return None;
    }
    // The reset must be acceptable to the peer: it has the number that the peer expects, or acknowledges the peer's
    // number.
    let (seq, ack) = match header.ack {
        Some(ack) => (ack, None),
        None => (SeqNumber(0), Some(header.seq + seg_len)),
    };
    Some(Header {
        source: header.destination,
        destination: header.source,
        seq,
        ack,
        flags: Flags { rst: true, ..Flags::NONE },
        window: 0,
        options: Options::default(),
    })
}

/// The length of a segment in sequence numbers: `SEG.LEN`.
pub(crate) fn seg_len(header: &Header, payload: &[u8]) -> u32 {
    // A payload is shorter than a packet.
    let bytes = u32::try_from(payload.len()).unwrap_or(0);
    bytes + u32::from(header.flags.syn) + u32::from(header.flags.fin)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(ack: Option<SeqNumber>, flags: Flags) -> Header {
        let options = Options::default();
        Header { source: 1000, destination: 80, seq: SeqNumber(7), ack, flags, window: 0, options }
    }

    #[test]
    fn rfc9293_3_10_7_1_a_segment_of_no_connection_is_reset() {
        let syn = segment(None, Flags { syn: true, ..Flags::NONE });
        let answer = reset(&syn, seg_len(&syn, b"data")).expect("an answer");
        assert_eq!((answer.source, answer.destination), (80, 1000));
        assert_eq!((answer.seq, answer.ack), (SeqNumber(0), Some(SeqNumber(12))));
        let ack = segment(Some(SeqNumber(99)), Flags { fin: true, ..Flags::NONE });
        let answer = reset(&ack, seg_len(&ack, b"data")).expect("an answer");
        assert_eq!((answer.seq, answer.ack, answer.flags.rst), (SeqNumber(99), None, true));
    }

    #[test]
    fn rfc9293_3_10_7_1_a_reset_is_not_answered() {
        assert_eq!(reset(&segment(None, Flags { rst: true, ..Flags::NONE }), 0), None);
    }
}
