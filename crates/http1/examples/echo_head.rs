//! Parses requests from standard input, and prints the decisions of a server. If the input is empty
//! or a terminal, it parses built-in requests.
//!
//! ```text
//! printf 'GET / HTTP/1.1\r\nHost: a\r\nRange: bytes=-5\r\n\r\n' |
//!     cargo run -p samum-http1 --example echo_head
//! ```

#![expect(clippy::print_stdout, reason = "this is a program, and printing is what it is for")]

use std::io::{self, IsTerminal, Read};
use std::time::SystemTime;

use http::{Coding, Codings, Field, Head, Representation, Target, Validators, encoding, path};
use http1::Limits;
use http1::server::{Connection, Event};

const SAMPLE: &[u8] = b"GET /a/./b%20c.html?x=1 HTTP/1.1\r\n\
    Host: example.org\r\n\
    Accept-Encoding: gzip, br;q=0.5\r\n\
    Range: bytes=0-99, 500-599\r\n\
    \r\n\
    BREW /pot HTTP/1.1\r\nHost: example.org\r\n\r\n";

/// Longer bodies are refused.
const BODY_BYTES_MAX: u64 = 10_000;

/// An imaginary file, modified at 2023-11-14T22:13:20Z.
const FILE: Representation<'_> = Representation {
    size: 1000,
    validators: Validators {
        etag: b"\"3e8-65534b00\"",
        last_modified: Some(1_700_000_000),
        strong_date: true,
    },
};

fn main() -> io::Result<()> {
    let mut input = Vec::new();
    if !io::stdin().is_terminal() {
        io::stdin().read_to_end(&mut input)?;
    }
    if input.is_empty() {
        input.extend_from_slice(SAMPLE);
    }

    let mut connection = Connection::new();
    let mut rest = &input[..];
    loop {
        let (consumed, event) = connection.handle_input(rest, &Limits::DEFAULT);
        rest = &rest[consumed..];
        match event {
            Event::Request(mut request) => {
                describe(&request.head);
                if let Err(reject) = connection.decode_body(&mut request, BODY_BYTES_MAX) {
                    println!("-- {reject}");
                }
            }
            Event::Body(content) => println!("-- {} bytes", content.len()),
            Event::Trailer(name, value) => {
                println!("-- {}: {}", name.escape_ascii(), value.escape_ascii());
            }
            Event::BodyEnd => println!("-- the end of the body"),
            Event::Rejected(reject) => println!("{reject}; the connection is closed"),
            Event::Partial => break println!("-- {:?} end", connection.handle_eof(rest.len())),
            Event::Closed => break println!("-- closed"),
        }
    }
    Ok(())
}

fn describe(head: &Head<'_>) {
    println!("{head:#?}");
    if let Target::Origin { path, .. } = head.target {
        let mut name = Vec::new();
        match path::normalize(path, &mut name) {
            Ok(normal) => println!("file: \"{}\", {normal:?}", name.escape_ascii()),
            Err(error) => println!("no file: {} {error}", error.status()),
        }
    }
    let coding = encoding::choose(head.lines(Field::AcceptEncoding), Codings::ALL);
    println!("coding: {}", coding.map_or("identity", Coding::name));
    println!("plan: {:?}", http::plan(head, &FILE, now()));
}

fn now() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.ok().and_then(|age| i64::try_from(age.as_secs()).ok()).unwrap_or(0)
}
