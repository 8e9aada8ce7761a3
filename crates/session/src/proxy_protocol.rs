//! The header that a proxy sends in front of a connection's bytes to name its client: versions 1 and 2 of the PROXY
//! protocol.
//!
//! Reading list: <https://www.haproxy.org/download/3.0/doc/proxy-protocol.txt>, §2.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The most bytes of a header. Version 1 has at most 107. Version 2 has 16, then addresses (216 for Unix sockets) and
/// further values (TLVs), which are skipped.
pub const HEADER_BYTES_MAX: usize = 4 * 1024;
/// Bytes of a header of version 1, with its line end.
const LINE_BYTES_MAX: usize = 107;
const LINE_SIGNATURE: &[u8] = b"PROXY ";
const BINARY_SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
/// Bytes of a header of version 2 in front of its addresses.
const BINARY_BYTES: usize = 16;

/// The peer sends other bytes where a header is required, or a header where none is permitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Invalid;

/// Reads a header, whose bytes may come in any pieces.
///
/// A peer that is not trusted may send no header: its first bytes are held back until they cannot begin a header.
#[derive(Debug)]
pub struct Reader {
    is_trusted: bool,
    /// The bytes that have come.
    bytes: Vec<u8>,
}

/// The end of a header.
#[derive(Debug, PartialEq, Eq)]
pub struct Header {
    /// The client; `None` if the connection is the peer's own (`LOCAL`), or the peer does not name an
    /// address (`UNKNOWN`, a Unix socket).
    pub client: Option<SocketAddr>,
    /// The bytes that came after the header.
    pub rest: Vec<u8>,
}

/// A header at the beginning of some bytes: its client and its length.
type Found = (Option<SocketAddr>, usize);

impl Reader {
    /// A reader for a peer that must send a header, or for a peer that must not.
    #[must_use]
    pub const fn new(is_trusted: bool) -> Self {
        Self { is_trusted, bytes: Vec::new() }
    }

    /// Parses the next bytes of the connection. `None` if more are needed.
    ///
    /// # Errors
    ///
    /// If the connection has to be closed.
    pub fn push(&mut self, bytes: &[u8]) -> Result<Option<Header>, Invalid> {
        self.bytes.extend_from_slice(bytes);
        let is_line = may_begin_with(&self.bytes, LINE_SIGNATURE);
        let is_binary = may_begin_with(&self.bytes, BINARY_SIGNATURE);
        let found = match (is_line, is_binary) {
            (Some(true), _) | (_, Some(true)) if !self.is_trusted => return Err(Invalid),
            (Some(true), _) => line(&self.bytes)?,
            (_, Some(true)) => binary(&self.bytes)?,
            (None, _) | (_, None) => None,
            _ if self.is_trusted => return Err(Invalid),
            _ => Some((None, 0)),
        };
        Ok(found.map(|(client, len)| {
            let mut rest = core::mem::take(&mut self.bytes);
            rest.drain(..len);
            Header { client, rest }
        }))
    }

    /// Returns true if the peer must send a header; otherwise it must send none.
    #[must_use]
    pub const fn is_trusted(&self) -> bool {
        self.is_trusted
    }

    /// The bytes that have come so far.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Bytes of memory in addition to the reader itself.
    #[must_use]
    pub const fn memory(&self) -> usize {
        self.bytes.capacity()
    }
}

/// Returns true if the bytes may begin with a signature; `None` if more bytes are needed to decide.
fn may_begin_with(bytes: &[u8], signature: &[u8]) -> Option<bool> {
    if bytes.len() < signature.len() && signature.starts_with(bytes) {
        return None;
    }
    Some(bytes.starts_with(signature))
}

/// Reads a header of version 1; `None` if more bytes are needed.
fn line(bytes: &[u8]) -> Result<Option<Found>, Invalid> {
    let first = &bytes[..bytes.len().min(LINE_BYTES_MAX)];
    let Some(end) = first.windows(2).position(|pair| pair == b"\r\n") else {
        return if bytes.len() < LINE_BYTES_MAX { Ok(None) } else { Err(Invalid) };
    };
    let words = str::from_utf8(&first[LINE_SIGNATURE.len()..end]).map_err(|_| Invalid)?;
    let mut words = words.split(' ');
    let client = match words.next() {
        Some("TCP4") => Some(addresses::<Ipv4Addr>(words)?),
        Some("TCP6") => Some(addresses::<Ipv6Addr>(words)?),
        // The rest of the line has to be ignored.
        Some("UNKNOWN") => None,
        _ => return Err(Invalid),
    };
    Ok(Some((client, end + 2)))
}

/// Reads source, destination and their ports; returns the source.
fn addresses<'a, T: core::str::FromStr + Into<IpAddr>>(
    mut words: impl Iterator<Item = &'a str>,
) -> Result<SocketAddr, Invalid> {
    let mut next = || words.next().ok_or(Invalid);
    let source: T = next()?.parse().map_err(|_| Invalid)?;
    let _: T = next()?.parse().map_err(|_| Invalid)?;
    let port = |word: &str| {
        let is_plain = word.bytes().all(|byte| byte.is_ascii_digit())
            && (word == "0" || !word.starts_with('0'));
        word.parse::<u16>().ok().filter(|_| is_plain).ok_or(Invalid)
    };
    let source_port = port(next()?)?;
    port(next()?)?;
    match words.next() {
        Some(_) => Err(Invalid),
        None => Ok(SocketAddr::new(source.into(), source_port)),
    }
}

/// Reads a header of version 2; `None` if more bytes are needed.
fn binary(bytes: &[u8]) -> Result<Option<Found>, Invalid> {
    let Some((fixed, rest)) = bytes.split_first_chunk::<BINARY_BYTES>() else { return Ok(None) };
    let [.., version_and_command, family, high, low] = *fixed;
    let len = usize::from(u16::from_be_bytes([high, low]));
    if BINARY_BYTES + len > HEADER_BYTES_MAX {
        return Err(Invalid);
    }
    let is_local = match version_and_command {
        0x20 => true,
        0x21 => false,
        _ => return Err(Invalid),
    };
    let Some(block) = rest.get(..len) else { return Ok(None) };
    let client = match family {
        _ if is_local => None,
        // The protocol is not specified, or the proxy's client came through a Unix socket.
        0x00 => None,
        0x11 => Some(source::<4>(block)?),
        0x21 => Some(source::<16>(block)?),
        0x31 if len >= 216 => None,
        // Datagrams, and values that no proxy may send.
        _ => return Err(Invalid),
    };
    Ok(Some((client, BINARY_BYTES + len)))
}

/// The source, among source, destination and their ports.
fn source<const LEN: usize>(block: &[u8]) -> Result<SocketAddr, Invalid>
where
    IpAddr: From<[u8; LEN]>,
{
    let (address, block) = block.split_first_chunk::<LEN>().ok_or(Invalid)?;
    let (_, ports) = block.split_first_chunk::<LEN>().ok_or(Invalid)?;
    let [high, low, _, _] = *ports.first_chunk().ok_or(Invalid)?;
    Ok(SocketAddr::new(IpAddr::from(*address), u16::from_be_bytes([high, low])))
}

#[cfg(test)]
mod tests;
