use proptest::prelude::*;

use super::*;
use crate::name::Name;
use crate::zone;

/// A zone with an answer of each kind.
const ZONE: &str = "\
$TTL 300
@ SOA ns mail 1 2 3 4 60
@ NS ns
ns A 192.0.2.1
a A 192.0.2.2
alias CNAME a
*.wild MX 10 a
sub NS ns.sub
ns.sub A 192.0.2.3
";

fn zone() -> Zone {
    let origin = Name::parse(b"example.org.", &Name::root()).unwrap();
    let large: String = (0..120).map(|n| format!("large A 192.0.2.{n}\n")).collect();
    let text = format!("{ZONE}{large}");
    Zone::new(zone::parse(text.as_bytes(), &origin).unwrap(), &origin).unwrap()
}

/// A question with these bytes after it.
fn question(flags: u16, counts: [u16; 4], name: &str, kind: u16, behind: &[u8]) -> Vec<u8> {
    let mut message = vec![0x12, 0x34];
    message.extend(flags.to_be_bytes());
    counts.iter().for_each(|count| message.extend(count.to_be_bytes()));
    message.extend(Name::parse(name.as_bytes(), &Name::root()).unwrap().bytes());
    message.extend(kind.to_be_bytes());
    message.extend([0, 1]);
    message.extend(behind);
    message
}

fn opt(bytes_max: u16, version: u8) -> Vec<u8> {
    let [size0, size1] = bytes_max.to_be_bytes();
    vec![0, 0, 41, size0, size1, 0, version, 0x80, 0, 0, 0]
}

fn ask(zone: &Zone, message: &[u8], transport: Transport) -> Option<Vec<u8>> {
    let mut moved = Vec::new();
    reply(zone, message, transport, &mut moved).map(|reply| reply.parts().concat())
}

fn flags(reply: &[u8]) -> u16 {
    u16::from_be_bytes([reply[2], reply[3]])
}

fn counts(reply: &[u8]) -> [u16; 4] {
    [4, 6, 8, 10].map(|at| u16::from_be_bytes([reply[at], reply[at + 1]]))
}

#[test]
fn each_kind_of_question_has_its_reply() {
    let zone = zone();
    for (name, kind, expected_flags, expected_counts) in [
        ("a.example.org", kind::A, 0x8500, [1, 1, 0, 0]),
        ("A.eXample.org", kind::A, 0x8500, [1, 1, 0, 0]),
        ("a.example.org", kind::MX, 0x8500, [1, 0, 1, 0]),
        ("a.example.org", kind::ANY, 0x8500, [1, 1, 0, 0]),
        ("b.example.org", kind::A, 0x8503, [1, 0, 1, 0]),
        ("b.a.example.org", kind::A, 0x8503, [1, 0, 1, 0]),
        ("wild.example.org", kind::A, 0x8500, [1, 0, 1, 0]),
        ("x.wild.example.org", kind::MX, 0x8500, [1, 1, 0, 0]),
        ("x.y.wild.example.org", kind::MX, 0x8500, [1, 1, 0, 0]),
        ("x.wild.example.org", kind::A, 0x8500, [1, 0, 1, 0]),
        ("alias.example.org", kind::A, 0x8500, [1, 2, 0, 0]),
        ("alias.example.org", kind::CNAME, 0x8500, [1, 1, 0, 0]),
        ("alias.example.org", kind::MX, 0x8500, [1, 1, 1, 0]),
        ("sub.example.org", kind::A, 0x8100, [1, 0, 1, 1]),
        ("ns.sub.example.org", kind::A, 0x8100, [1, 0, 1, 1]),
        ("sub.example.org", kind::DS, 0x8500, [1, 0, 1, 0]),
        ("example.com", kind::A, 0x8105, [1, 0, 0, 0]),
        ("example.org", kind::AXFR, 0x8105, [1, 0, 0, 0]),
    ] {
        let message = question(0x0100, [1, 0, 0, 0], name, kind, &[]);
        let reply = ask(&zone, &message, Transport::Datagram).unwrap();
        assert_eq!(flags(&reply), expected_flags, "{name} {kind}");
        assert_eq!(counts(&reply), expected_counts, "{name} {kind}");
        assert_eq!(reply[12..message.len()], message[12..], "the question as it came");
    }
}

#[test]
fn a_message_against_the_format_has_no_answer() {
    let zone = zone();
    let ask = |message: &[u8]| ask(&zone, message, Transport::Datagram).map(|reply| flags(&reply));
    let of = |flags, counts, behind: &[u8]| question(flags, counts, "a.example.org", 1, behind);
    assert_eq!(ask(&of(0x8000, [1, 0, 0, 0], &[])), None, "a reply");
    assert_eq!(ask(&[0; 11]), None, "no header");
    assert_eq!(ask(&of(0x2800, [1, 0, 0, 0], &[])), Some(0xa804), "an update");
    for counts in [[0, 0, 0, 0], [2, 0, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0], [1, 0, 0, 1]] {
        assert_eq!(ask(&of(0, counts, &[])), Some(0x8001), "{counts:?}");
    }
    let two = [opt(1232, 0), opt(1232, 0)].concat();
    assert_eq!(ask(&of(0, [1, 0, 0, 2], &two)), Some(0x8001), "two OPT records");
    let owned = [b"\x01a".to_vec(), opt(1232, 0)].concat();
    assert_eq!(ask(&of(0, [1, 0, 0, 1], &owned)), Some(0x8001), "an OPT record of a name");
}

#[test]
fn a_reply_that_does_not_fit_is_truncated() {
    let zone = zone();
    let of =
        |behind: &[u8], count| question(0, [1, 0, 0, count], "large.example.org", kind::A, behind);
    for (message, transport, expected_flags, expected_counts) in [
        (of(&[], 0), Transport::Datagram, 0x8600, [1, 0, 0, 0]),
        (of(&opt(65535, 0), 1), Transport::Datagram, 0x8600, [1, 0, 0, 1]),
        (of(&[], 0), Transport::Stream, 0x8400, [1, 120, 0, 0]),
        (of(&opt(0, 0), 1), Transport::Stream, 0x8400, [1, 120, 0, 1]),
    ] {
        let reply = ask(&zone, &message, transport).unwrap();
        assert_eq!((flags(&reply), counts(&reply)), (expected_flags, expected_counts));
        let is_truncated = flags(&reply) & TRUNCATED != 0;
        assert_eq!(reply.len() < 512, is_truncated);
    }
}

#[test]
fn a_version_of_edns_that_is_not_known_is_an_error() {
    let message = question(0, [1, 0, 0, 1], "a.example.org", kind::A, &opt(1232, 1));
    let reply = ask(&zone(), &message, Transport::Datagram).unwrap();
    assert_eq!((flags(&reply), counts(&reply)), (0x8000, [1, 0, 0, 1]));
    assert_eq!(reply[reply.len() - 11..], [0, 0, 41, 4, 208, 1, 0, 0x80, 0, 0, 0]);
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(
        bytes in proptest::collection::vec(any::<u8>(), 0..200),
        place in 0..64_usize,
        is_whole in any::<bool>(),
    ) {
        let zone = zone();
        let mut message =
            question(0, [1, 0, 0, 1], "x.wild.example.org", kind::MX, &opt(1232, 0));
        if is_whole {
            message = bytes;
        } else {
            for (byte, new) in message[place.min(40)..].iter_mut().zip(&bytes) {
                *byte = *new;
            }
        }
        for transport in [Transport::Datagram, Transport::Stream] {
            if let Some(reply) = ask(&zone, &message, transport) {
                prop_assert!(reply.len() >= HEADER_BYTES);
            }
        }
    }

    #[test]
    fn no_file_makes_it_panic(words in proptest::collection::vec(
        prop_oneof![
            Just("@ "), Just("a "), Just("*"), Just("IN "), Just("5 "), Just("A "), Just("NS "),
            Just("SOA "), Just("CNAME "), Just("192.0.2.1 "), Just("\n"), Just("("), Just(")"),
            Just("\""), Just("\\"), Just(";"), Just("$TTL "), Just("."), Just("TXT "), Just("TYPE9 \\# "),
            Just("@ SOA a b 1 2 3 4 5\n"), Just("a CNAME a\n"), Just("*.a NS a\n"),
        ],
        0..40,
    )) {
        let origin = Name::parse(b"example.org.", &Name::root()).unwrap();
        let records = zone::parse(words.concat().as_bytes(), &origin);
        if let Ok(zone) = records.and_then(|records| Zone::new(records, &origin)) {
            prop_assert!(zone.find(origin.bytes(), kind::SOA).is_some());
        }
    }
}
