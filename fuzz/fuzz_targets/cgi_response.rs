//! Arbitrary bytes as the output of a CGI program. Checked: its header means the same in whatever pieces it
//! comes, is as short as it may be, and gives no field that could end its line or belongs to the server.

#![no_main]

// A program's output is read by one module that needs nothing of its crate.
#[allow(dead_code, reason = "the server uses the rest")]
#[path = "../../crates/gateways/src/cgi/response.rs"]
mod response;

use libfuzzer_sys::fuzz_target;
use response::{Document, Fault, HEADER_BYTES_MAX, Parser, Reply};

// The first byte is the size of the pieces.
fuzz_target!(|input: &[u8]| {
    let [piece, output @ ..] = input else { return };
    let whole = parse(output, usize::MAX);
    assert_eq!(parse(output, usize::from(piece % 16) + 1), whole);
    let Ok(Some((taken, reply))) = whole else { return };
    assert!(taken < HEADER_BYTES_MAX + 1 && output[..taken].ends_with(b"\n"));
    // Less is no header.
    assert_eq!(parse(&output[..taken - 1], usize::MAX), Ok(None));
    match reply {
        Reply::LocalRedirect(path) => {
            assert!(path.starts_with(b"/") && path.iter().all(u8::is_ascii_graphic));
        }
        Reply::Document(document) => check(&document),
    }
});

/// The length and the meaning of a header that comes in pieces of this size.
fn parse(output: &[u8], piece: usize) -> Result<Option<(usize, Reply)>, Fault> {
    let mut parser = Parser::default();
    let mut at = 0;
    for piece in output.chunks(piece) {
        let (taken, reply) = parser.handle_output(piece)?;
        assert!(taken == piece.len() || reply.is_some());
        at += taken;
        if let Some(reply) = reply {
            return Ok(Some((at, reply)));
        }
    }
    Ok(None)
}

fn check(document: &Document) {
    assert!((200..1000).contains(&document.status.code()));
    assert!(
        document.has_content() || document.content_type.is_none() || document.status.is_bodiless()
    );
    for value in [&document.content_type, &document.location].into_iter().flatten() {
        assert!(!value.is_empty());
        assert!(!value.iter().any(|byte| byte.is_ascii_control() && *byte != b'\t'));
    }
    for (name, value) in document.fields.fields() {
        assert!(!value.iter().any(|byte| byte.is_ascii_control() && *byte != b'\t'));
        let name = name.to_ascii_lowercase();
        let is_own =
            [&b"connection"[..], b"content-length", b"transfer-encoding", b"date", b"status"];
        assert!(!is_own.contains(&&name[..]) && !name.starts_with(b"x-cgi-"));
    }
}
