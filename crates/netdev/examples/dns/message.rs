//! Reads a message with a question and lays out its reply (RFC 1035, 4; EDNS: RFC 6891).

use crate::answers::{HEADER_BYTES, TYPE_AND_CLASS_BYTES, Zone};
use crate::name;
use crate::zone::kind;

/// Bytes of a datagram that every resolver takes (RFC 1035, 4.2.1).
const DATAGRAM_BYTES: usize = 512;
/// Bytes of the longest datagram that is sent: no path has to fragment it (the minimum MTU of IPv6 less its
/// headers).
const DATAGRAM_BYTES_MAX: u16 = 1232;
/// Bytes of an OPT record without options.
const OPT_BYTES: usize = 11;
/// The class of the internet.
const IN: u16 = 1;

/// Flags of a header, and codes in it.
const RESPONSE: u16 = 0x8000;
const OPCODE: u16 = 0x7800;
const TRUNCATED: u16 = 0x0200;
const RECURSION_DESIRED: u16 = 0x0100;
const CHECKING_DISABLED: u16 = 0x0010;
const FORMERR: u16 = 1;
const NOTIMP: u16 = 4;
const REFUSED: u16 = 5;

/// The upper eight bits of the code BADVERS, 16.
const BADVERS_UPPER: u8 = 1;
/// The EDNS flag that asks for DNSSEC records; the reply repeats it (RFC 3225, 3).
const DNSSEC_OK: u8 = 0x80;

/// The protocol that carried a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    Datagram,
    Stream,
}

/// A reply, in four parts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reply<'a> {
    header: [u8; HEADER_BYTES],
    /// The question as received: a resolver checks its case to match the reply.
    question: &'a [u8],
    tail: &'a [u8],
    opt: Option<[u8; OPT_BYTES]>,
}

impl Reply<'_> {
    /// The parts in order. Some may be empty.
    pub(crate) fn parts(&self) -> [&[u8]; 4] {
        [&self.header, self.question, self.tail, self.opt.as_ref().map_or(&[], |opt| &opt[..])]
    }
}

/// Replies to a message; `None` if the message is itself a reply, or too short for a header. `moved` is memory for a
/// tail whose pointers have to move.
pub(crate) fn reply<'a>(
    zone: &'a Zone,
    message: &'a [u8],
    transport: Transport,
    moved: &'a mut Vec<u8>,
) -> Option<Reply<'a>> {
    let header = Header::parse(message)?;
    if header.flags & RESPONSE != 0 {
        return None;
    }
    if header.flags & OPCODE != 0 {
        return Some(header.reply(NOTIMP));
    }
    let Some(question) = header.question(message) else { return Some(header.reply(FORMERR)) };
    let Ok(edns) = header.edns(message, question.bytes.len()) else {
        return Some(header.reply(FORMERR));
    };
    let mut reply = header.reply(0);
    reply.set_counts([1, 0, 0, 0]);
    reply.question = question.bytes;
    if let Some(edns) = edns {
        reply.set_opt(edns);
        if edns.version > 0 {
            return Some(reply);
        }
    }
    let is_refused = question.class != IN || matches!(question.kind, kind::AXFR | kind::IXFR);
    let found = (!is_refused).then(|| zone.find(question.name, question.kind)).flatten();
    let Some(found) = found else {
        reply.add_flags(REFUSED);
        return Some(reply);
    };
    reply.add_flags(found.answer.flags);
    let tail = found.tail(moved);
    let bytes_max = match (transport, edns) {
        (Transport::Stream, _) => usize::from(u16::MAX),
        (Transport::Datagram, None) => DATAGRAM_BYTES,
        (Transport::Datagram, Some(edns)) => {
            usize::from(edns.bytes_max.min(DATAGRAM_BYTES_MAX)).max(DATAGRAM_BYTES)
        }
    };
    let opt_bytes = reply.opt.map_or(0, |_| OPT_BYTES);
    if HEADER_BYTES + reply.question.len() + tail.len() + opt_bytes > bytes_max {
        reply.add_flags(TRUNCATED);
        return Some(reply);
    }
    let [answers, authorities, additionals] = found.answer.counts;
    reply.set_counts([1, answers, authorities, additionals + u16::from(edns.is_some())]);
    reply.tail = tail;
    Some(reply)
}

impl Reply<'_> {
    fn add_flags(&mut self, flags: u16) {
        let now = u16::from_be_bytes([self.header[2], self.header[3]]);
        self.header[2..4].copy_from_slice(&(now | flags).to_be_bytes());
    }

    /// Sets the numbers of entries in the four sections.
    fn set_counts(&mut self, counts: [u16; 4]) {
        for (field, count) in self.header[4..].chunks_mut(2).zip(counts) {
            field.copy_from_slice(&count.to_be_bytes());
        }
    }

    fn set_opt(&mut self, asked: Edns) {
        let upper = if asked.version > 0 { BADVERS_UPPER } else { 0 };
        let dnssec = if asked.is_dnssec_ok { DNSSEC_OK } else { 0 };
        let [kind0, kind1] = kind::OPT.to_be_bytes();
        let [size0, size1] = DATAGRAM_BYTES_MAX.to_be_bytes();
        self.opt = Some([0, kind0, kind1, size0, size1, upper, 0, dnssec, 0, 0, 0]);
        self.set_counts([1, 0, 0, 1]);
    }
}

/// The header of a message.
struct Header {
    id: [u8; 2],
    flags: u16,
    counts: [u16; 4],
}

struct Question<'a> {
    bytes: &'a [u8],
    name: &'a [u8],
    kind: u16,
    class: u16,
}

/// The OPT record of a message.
#[derive(Clone, Copy)]
struct Edns {
    /// Bytes of the longest datagram that the peer accepts.
    bytes_max: u16,
    version: u8,
    is_dnssec_ok: bool,
}

/// A message that violates the format.
struct Malformed;

impl Header {
    fn parse(message: &[u8]) -> Option<Self> {
        let (header, _) = message.split_first_chunk::<HEADER_BYTES>()?;
        let word = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
        Some(Self {
            id: [header[0], header[1]],
            flags: word(2),
            counts: [word(4), word(6), word(8), word(10)],
        })
    }

    /// A reply with nothing but a header.
    fn reply<'a>(&self, code: u16) -> Reply<'a> {
        let kept = OPCODE | RECURSION_DESIRED | CHECKING_DISABLED;
        let [flags0, flags1] = (RESPONSE | self.flags & kept | code).to_be_bytes();
        let [id0, id1] = self.id;
        let header = [id0, id1, flags0, flags1, 0, 0, 0, 0, 0, 0, 0, 0];
        Reply { header, question: &[], tail: &[], opt: None }
    }

    /// The question; `None` if there is not exactly one (RFC 9619), or records before the additional section.
    fn question<'a>(&self, message: &'a [u8]) -> Option<Question<'a>> {
        let [1, 0, 0, _] = self.counts else { return None };
        let rest = &message[HEADER_BYTES..];
        let length = name::length(rest)?;
        let bytes = rest.get(..length + TYPE_AND_CLASS_BYTES)?;
        let (name, fixed) = bytes.split_at(length);
        Some(Question {
            bytes,
            name,
            kind: u16::from_be_bytes([fixed[0], fixed[1]]),
            class: u16::from_be_bytes([fixed[2], fixed[3]]),
        })
    }

    /// Looks for the OPT record in the additional section, the only section after the question.
    fn edns(&self, message: &[u8], question_bytes: usize) -> Result<Option<Edns>, Malformed> {
        let mut rest = &message[HEADER_BYTES + question_bytes..];
        let mut edns = None;
        for _ in 0..self.counts[3] {
            let name_bytes = owner_length(rest).ok_or(Malformed)?;
            let (name, behind) = rest.split_at(name_bytes);
            let (fixed, behind) = behind.split_first_chunk::<10>().ok_or(Malformed)?;
            let [kind0, kind1, size0, size1, _, version, flags, _, length0, length1] = *fixed;
            let length = usize::from(u16::from_be_bytes([length0, length1]));
            rest = behind.get(length..).ok_or(Malformed)?;
            if u16::from_be_bytes([kind0, kind1]) != kind::OPT {
                continue;
            }
            // A message has at most one OPT record, and its owner is the root (RFC 6891, 6.1.1 and 6.1.2).
            if name != [0] || edns.is_some() {
                return Err(Malformed);
            }
            let bytes_max = u16::from_be_bytes([size0, size1]);
            edns = Some(Edns { bytes_max, version, is_dnssec_ok: flags & DNSSEC_OK != 0 });
        }
        Ok(edns)
    }
}

/// Bytes of the owner's name at the begin of a record. A pointer ends it.
fn owner_length(bytes: &[u8]) -> Option<usize> {
    let mut at = 0;
    while at < name::NAME_BYTES_MAX {
        match *bytes.get(at)? {
            0 => return Some(at + 1),
            0xc0.. => return bytes.get(at + 1).map(|_| at + 2),
            length => at += 1 + usize::from(length),
        }
    }
    None
}

#[cfg(test)]
#[path = "message/tests.rs"]
mod tests;
