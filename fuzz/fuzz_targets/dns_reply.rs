//! The DNS server of netdev's examples: a message, and the text of a zone, both from the input. Checked: a reply is
//! well-formed to its last byte for a plain reader, not longer than the resolver takes, and about the question.

#![no_main]

#[path = "../../crates/netdev/examples/dns/answers.rs"]
mod answers;
#[path = "plain/dns.rs"]
mod dns;
#[path = "../../crates/netdev/examples/dns/message.rs"]
mod message;
#[path = "../../crates/netdev/examples/dns/name.rs"]
mod name;
#[path = "../../crates/netdev/examples/dns/zone.rs"]
mod zone;

use answers::Zone;
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use message::{Transport, reply};
use name::Name;
use zone::Error;

/// A zone with an answer of each kind; a text of the input follows.
const ZONE: &str = "\
$TTL 300
@ SOA ns mail 1 2 3 4 60
@ NS ns
ns A 192.0.2.1
a A 192.0.2.2
alias CNAME a
*.wild MX 10 a
*.to CNAME x.wild
sub NS ns.sub
ns.sub A 192.0.2.3
large TXT 0123456789012345678901234567890123456789012345678901234567890123456789
large TXT a123456789012345678901234567890123456789012345678901234567890123456789
large TXT b123456789012345678901234567890123456789012345678901234567890123456789
large TXT c123456789012345678901234567890123456789012345678901234567890123456789
large TXT d123456789012345678901234567890123456789012345678901234567890123456789
large TXT e123456789012345678901234567890123456789012345678901234567890123456789
";
const ORIGIN: &[u8] = b"example.org.";

const TRUNCATED: u16 = 0x0200;
/// Bytes of the longest datagram for a resolver that says nothing, and for any.
const DATAGRAM_BYTES: usize = 512;
const DATAGRAM_BYTES_MAX: usize = 1232;

#[derive(Arbitrary, Debug)]
struct Input<'a> {
    is_stream: bool,
    message: Message<'a>,
    zone: &'a [u8],
}

#[derive(Arbitrary, Debug)]
enum Message<'a> {
    Raw(&'a [u8]),
    Question { flags: u16, labels: Vec<Label<'a>>, kind: u8, opt: Option<u16>, behind: &'a [u8] },
}

/// A label of a name in the zone, or another one.
#[derive(Arbitrary, Debug)]
enum Label<'a> {
    Known(u8),
    Other(&'a [u8]),
}

const LABELS: [&[u8]; 9] = [b"ns", b"A", b"alias", b"wild", b"to", b"sub", b"large", b"x", b"mail"];

impl Message<'_> {
    fn bytes(&self) -> Vec<u8> {
        let (flags, labels, kind, opt, behind) = match self {
            Self::Raw(bytes) => return bytes.to_vec(),
            Self::Question { flags, labels, kind, opt, behind } => {
                (flags, labels, *kind, opt, *behind)
            }
        };
        let [flags0, flags1] = flags.to_be_bytes();
        let mut bytes = vec![7, 8, flags0, flags1, 0, 1, 0, 0, 0, 0, 0, u8::from(opt.is_some())];
        for label in labels {
            let label = match label {
                Label::Known(which) => LABELS[usize::from(*which) % LABELS.len()],
                Label::Other(bytes) => &bytes[..bytes.len().min(63)],
            };
            bytes.push(u8::try_from(label.len()).expect("at most 63"));
            bytes.extend(label);
        }
        bytes.extend(b"\x07example\x03org\0");
        bytes.extend([0, kind, 0, 1]);
        if let Some(size) = opt {
            let [size0, size1] = size.to_be_bytes();
            bytes.extend([0, 0, 41, size0, size1, 0, 0, 0x80, 0, 0, 0]);
        }
        bytes.extend(behind);
        bytes
    }
}

fn load(text: &[u8]) -> Result<Zone, Error> {
    let origin = Name::parse(ORIGIN, &Name::root()).expect("a name");
    let text = [ZONE.as_bytes(), text].concat();
    let lines = 1 + text.iter().filter(|byte| **byte == b'\n').count();
    let zone = zone::parse(&text, &origin).and_then(|records| Zone::new(records, &origin));
    if let Err(error) = &zone {
        assert!((1..=lines).contains(&error.line) && !error.reason.is_empty(), "{error}");
    }
    zone
}

fuzz_target!(|input: Input<'_>| {
    let message = input.message.bytes();
    let transport = if input.is_stream { Transport::Stream } else { Transport::Datagram };
    let zone = load(input.zone).unwrap_or_else(|_| load(b"").expect("a right zone"));
    let mut moved = Vec::new();
    let Some(reply) = reply(&zone, &message, transport, &mut moved) else {
        return assert!(message.len() < 12 || message[2] & 0x80 != 0, "a question without a reply");
    };
    check(&message, &reply.parts().concat(), transport);
});

fn check(message: &[u8], reply: &[u8], transport: Transport) {
    let [answers, authorities, additionals] = dns::records(reply);
    assert_eq!(reply[..2], message[..2], "the number of the question");
    assert!(reply[2] & 0x80 != 0, "a reply");
    let has_opt = additionals.last().is_some_and(|record| record.kind == zone::kind::OPT);
    let bytes_max = match transport {
        Transport::Stream => usize::from(u16::MAX),
        Transport::Datagram if has_opt => DATAGRAM_BYTES_MAX,
        Transport::Datagram => DATAGRAM_BYTES,
    };
    assert!(reply.len() <= bytes_max, "{} bytes", reply.len());
    if dns::word(reply, 4) == 0 {
        return assert!(answers.is_empty() && authorities.is_empty() && additionals.is_empty());
    }
    let (name, behind) = dns::name(reply, 12);
    assert_eq!(reply[12..behind + 4], message[12..behind + 4], "the question as it came");
    if dns::word(reply, 2) & TRUNCATED != 0 {
        assert!(transport == Transport::Datagram && answers.is_empty());
    }
    if let Some(first) = answers.first() {
        assert_eq!(first.owner, name, "the owner of the first answer");
    }
}
