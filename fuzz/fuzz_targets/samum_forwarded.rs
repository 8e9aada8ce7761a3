//! Arbitrary lines of `Forwarded` and `X-Forwarded-For`, as a client sends them, and what its proxy adds.
//! Checked: a client never passes for another one.

#![no_main]

use std::net::IpAddr;

use libfuzzer_sys::fuzz_target;

#[allow(dead_code, reason = "the server uses the rest")]
#[path = "../../crates/session/src/forwarded.rs"]
mod forwarded;

/// Trusted are 10.0.0.0/8 and fd00::/8.
fn trusts(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.octets()[0] == 10,
        IpAddr::V6(address) => address.octets()[0] == 0xfd,
    }
}

fuzz_target!(|input: (&[u8], &[u8])| {
    let (one, other) = input;
    let ask = |one: &[&[u8]], other: &[&[u8]]| {
        forwarded::client(one.iter().copied(), other.iter().copied(), trusts)
    };
    let _ = ask(&[one], &[other]);
    for (added, quoted, client) in [
        ("192.0.2.7", "192.0.2.7", "192.0.2.7"),
        ("2001:db8::7", "\"[2001:db8::7]:80\"", "2001:db8::7"),
    ] {
        let client: IpAddr = client.parse().expect("an address");
        let truth = Ok(Some(client));
        let element = format!("for={quoted}");
        // What a proxy adds after the client's lines counts, in one line or in another.
        let behind = |line: &[u8], added: &str| [line, b", ", added.as_bytes()].concat();
        assert_eq!(ask(&[], &[&behind(other, added)]), truth);
        assert_eq!(ask(&[], &[other, added.as_bytes()]), truth);
        assert_eq!(ask(&[one, element.as_bytes()], &[]), truth);
        // A quote may hide what is added to its line, but the line tells nothing else then.
        let hidden = ask(&[&behind(one, &element)], &[]);
        assert!(hidden == truth || hidden == Ok(None), "{hidden:?}");
        // A proxy hands on the field that it does not know.
        for found in [
            ask(&[one], &[&behind(other, added)]),
            ask(&[one, element.as_bytes()], &[other]),
            ask(&[&behind(one, &element)], &[added.as_bytes()]),
        ] {
            assert!(found == truth || found == Err(forwarded::Conflict), "{found:?}");
        }
    }
});
