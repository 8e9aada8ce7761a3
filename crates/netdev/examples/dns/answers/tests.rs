use super::*;
use crate::zone;

fn zone(text: &str) -> Result<Zone, Error> {
    let origin = name("example.org");
    let text = format!("$TTL 300\n@ SOA ns mail 1 2 3 4 60\n{text}");
    Zone::new(zone::parse(text.as_bytes(), &origin)?, &origin)
}

fn name(text: &str) -> Name {
    Name::parse(text.as_bytes(), &Name::root()).unwrap()
}

/// The tail of the answer to a question.
fn tail(zone: &Zone, text: &str, kind: u16) -> Vec<u8> {
    let mut moved = Vec::new();
    zone.find(name(text).bytes(), kind).unwrap().tail(&mut moved).to_vec()
}

#[test]
fn names_are_compressed_against_the_question() {
    let zone = zone("a MX 1 b.a\n MX 2 a").unwrap();
    let expected = [
        b"\xc0\x0c\0\x0f\0\x01\0\0\x01\x2c\0\x06\0\x01\x01b\xc0\x0c".as_slice(),
        b"\xc0\x0c\0\x0f\0\x01\0\0\x01\x2c\0\x04\0\x02\xc0\x0c",
    ];
    assert_eq!(tail(&zone, "a.example.org", kind::MX), expected.concat());
}

#[test]
fn pointers_of_a_wildcard_move_with_the_question() {
    let zone = zone("*.w MX 1 a.b.w\n MX 2 b.w").unwrap();
    // The question's name is `long.w.example.org`: `w` is at 17, and the tail begins at 36.
    let expected = [
        b"\xc0\x0c\0\x0f\0\x01\0\0\x01\x2c\0\x08\0\x01\x01a\x01b\xc0\x11".as_slice(),
        b"\xc0\x0c\0\x0f\0\x01\0\0\x01\x2c\0\x04\0\x02\xc0\x34",
    ];
    assert_eq!(tail(&zone, "long.w.example.org", kind::MX), expected.concat());
}

#[test]
fn a_chain_ends_at_a_loop() {
    let zone = zone("a CNAME b\nb CNAME a\n*.w CNAME x.w").unwrap();
    for (text, count) in [("a.example.org", 2), ("y.w.example.org", 2)] {
        let found = zone.find(name(text).bytes(), kind::A).unwrap();
        assert_eq!(found.answer.counts, [count, 0, 0], "{text}");
    }
}

#[test]
fn negative_answers_live_as_long_as_the_soa_says() {
    let tail = tail(&zone("").unwrap(), "x.example.org", kind::A);
    assert_eq!(tail[6..10], 60_u32.to_be_bytes());
}

#[test]
fn records_that_contradict_each_other_are_an_error() {
    for (line, text) in [
        (4, "a CNAME b\na A 192.0.2.1"),
        (4, "a CNAME b\na CNAME c"),
        (3, "@ SOA ns mail 2 2 3 4 60"),
        (3, "a SOA ns mail 2 2 3 4 60"),
    ] {
        assert_eq!(zone(text).unwrap_err().line, line, "{text}");
    }
    assert!(Zone::new(Vec::new(), &name("example.org")).is_err(), "no SOA");
    let large: String = (0..300).map(|n| format!("a TXT {n}{}\n", "x".repeat(250))).collect();
    assert!(zone(&large).is_err(), "more than a message holds");
}
