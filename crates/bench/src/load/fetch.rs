//! One request and its whole response, unmeasured: it checks that a server serves the right bytes
//! before it is measured.

use core::net::SocketAddr;
use core::time::Duration;
use std::io::{self, Error, ErrorKind, Read as _, Write as _};
use std::net::TcpStream;

use super::Target;
use super::response::Parser;
use crate::interrupt;

/// The body of a response with status 200, on a connection of its own.
///
/// # Errors
/// When there is none within `limit` for each receive, another status, or more than [`BODY_MAX`]
/// bytes.
pub fn fetch(address: SocketAddr, path: &str, limit: Duration) -> io::Result<Vec<u8>> {
    let mut body = Vec::new();
    let mut is_long = false;
    each_part(address, &address.to_string(), path, limit, |bytes| {
        is_long |= body.len() + bytes.len() > BODY_MAX;
        if !is_long {
            body.extend_from_slice(bytes);
        }
    })?;
    if is_long {
        return Err(Error::other(format!("{path}: more than {BODY_MAX} bytes")));
    }
    Ok(body)
}

/// The same of a `host` (and its port, RFC 9110 §7.2), with the body in parts, as they come.
///
/// # Errors
/// As [`fetch`], but for the length; `Interrupted` after ctrl-C.
pub fn each_part(
    address: SocketAddr,
    host: &str,
    path: &str,
    limit: Duration,
    mut part: impl FnMut(&[u8]),
) -> io::Result<()> {
    let mut stream = TcpStream::connect_timeout(&address, limit)?;
    stream.set_read_timeout(Some(limit))?;
    stream.write_all(&Target::new(path).request(host, false))?;
    let mut parser = Parser::default();
    let mut buffer = vec![0; 1 << 18];
    loop {
        interrupt::check()?;
        let n = stream.read(&mut buffer).map_err(|error| in_words(error, limit))?;
        let done = match n {
            0 => parser.end().map(|()| true),
            n => parser.feed(&buffer[..n], &mut part),
        };
        match done.map_err(|error| Error::other(format!("{path}: {error}")))? {
            true if parser.status() == 200 => return Ok(()),
            true => return Err(Error::other(format!("{path}: status {}", parser.status()))),
            false => {}
        }
    }
}

/// The error of a receive that may have waited for `limit`.
pub(crate) fn in_words(error: Error, limit: Duration) -> Error {
    match error.kind() {
        // A read that times out fails with this (socket(7), SO_RCVTIMEO).
        ErrorKind::WouldBlock => {
            Error::new(ErrorKind::TimedOut, format!("no answer within {} s", limit.as_secs()))
        }
        _ => error,
    }
}

/// Longer bodies are refused.
pub const BODY_MAX: usize = 2 << 30;
