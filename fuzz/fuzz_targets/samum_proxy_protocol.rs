//! Arbitrary bytes at the beginning of a connection behind a proxy. Checked: the pieces in which they come
//! do not matter, no byte after a header is lost, and a peer that is not trusted cannot name a client.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[allow(dead_code, reason = "the server needs more of it")]
#[path = "../../crates/session/src/proxy_protocol.rs"]
mod proxy_protocol;

use proxy_protocol::{HEADER_BYTES_MAX, Header, Invalid, Reader};

/// Returns what comes of bytes in pieces of `size`.
fn read(is_trusted: bool, bytes: &[u8], size: usize) -> Result<Option<Header>, Invalid> {
    let mut reader = Reader::new(is_trusted);
    let mut pieces = bytes.chunks(size);
    while let Some(piece) = pieces.next() {
        if let Some(mut header) = reader.push(piece)? {
            header.rest.extend(pieces.flatten());
            return Ok(Some(header));
        }
        assert!(reader.memory() <= 2 * (HEADER_BYTES_MAX + size));
    }
    Ok(None)
}

fuzz_target!(|input: (u8, &[u8])| {
    let (size, bytes) = input;
    for is_trusted in [false, true] {
        let whole = read(is_trusted, bytes, bytes.len().max(1));
        assert_eq!(read(is_trusted, bytes, usize::from(size).max(1)), whole);
        assert_eq!(read(is_trusted, bytes, 1), whole);
        match whole {
            Ok(Some(Header { client, rest })) => {
                let len = bytes.len() - rest.len();
                assert!(bytes.ends_with(&rest) && len <= HEADER_BYTES_MAX);
                assert_eq!(is_trusted, len > 0);
                assert!(is_trusted || client.is_none());
            }
            Ok(None) => assert!(bytes.len() < HEADER_BYTES_MAX),
            Err(Invalid) => {}
        }
    }
});
