//! Requests to an authority: HTTPS, one at a time, on the thread that asks. Time and bytes are limited.

use core::time::Duration;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use http1::Limits;
use http1::client::{Connection, Eof, Event};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::storage::words;

/// The time for a whole request, with the connection to the server.
const REQUEST_MAX: Duration = Duration::from_secs(30);
/// The time for a connection to one address.
const CONNECT_MAX: Duration = Duration::from_secs(10);
/// The addresses of a server that are tried.
const ADDRESSES_MAX: usize = 4;
/// The most bytes of a response's body. A chain of certificates has some kilobytes.
const BODY_BYTES_MAX: u64 = 1 << 20;
/// The most bytes of a file of authorities. The bundle of a system has 200 KiB.
const ROOTS_BYTES_MAX: u64 = 16 << 20;
const LIMITS: Limits = Limits { body_bytes_max: BODY_BYTES_MAX, ..Limits::DEFAULT };

/// A client with one connection, which is kept.
pub(crate) struct Client {
    config: Arc<ClientConfig>,
    kept: Option<(Authority, Stream)>,
}

/// A response.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    fields: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

/// The server of a URL, and the rest of the URL.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Authority {
    host: String,
    port: u16,
}

type Stream = StreamOwned<ClientConnection, Timed>;

/// A socket with a time at which all calls end.
struct Timed {
    socket: TcpStream,
    until: Instant,
}

impl Response {
    /// The value of a field.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let field = self.fields.iter().find(|(found, _)| found.eq_ignore_ascii_case(name));
        field.map(|(_, value)| &**value)
    }
}

impl Client {
    /// Makes a client that trusts the authorities of a file.
    ///
    /// # Errors
    ///
    /// A sentence for the operator.
    pub(crate) fn new(roots: &Path) -> Result<Self, String> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder =
            ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let builder = builder.map_err(|error| format!("cannot make settings for TLS: {error}"))?;
        let config = builder.with_root_certificates(read_roots(roots)?).with_no_client_auth();
        Ok(Self { config: Arc::new(config), kept: None })
    }

    /// Sends a request, with a message in the format of ACME or without, and waits for the response.
    ///
    /// # Errors
    ///
    /// A sentence for the operator.
    pub(crate) fn send(
        &mut self,
        method: &str,
        url: &str,
        message: Option<&str>,
    ) -> Result<Response, String> {
        let (authority, target) = split(url)?;
        let until = Instant::now() + REQUEST_MAX;
        let request = request(method, &authority, target, message);
        let sent = self.try_send(method, &authority, &request, until);
        sent.map_err(|why| format!("cannot ask {url}: {why}"))
    }

    fn try_send(
        &mut self,
        method: &str,
        authority: &Authority,
        request: &[u8],
        until: Instant,
    ) -> Result<Response, String> {
        let kept = self.kept.take().filter(|(of, _)| of == authority);
        if let Some((of, mut stream)) = kept {
            stream.sock.until = until;
            match exchange(&mut stream, method, request) {
                Ok((response, true)) => {
                    self.kept = Some((of, stream));
                    return Ok(response);
                }
                Ok((response, false)) => return Ok(response),
                // The server has closed it meanwhile. A message that it got nevertheless has a nonce that it refuses now.
                Err(Fault::Unanswered) => {}
                Err(Fault::Other(why)) => return Err(why),
            }
        }
        let mut stream = self.connect(authority, until)?;
        match exchange(&mut stream, method, request) {
            Ok((response, is_kept)) => {
                if is_kept {
                    self.kept = Some((authority.clone(), stream));
                }
                Ok(response)
            }
            Err(Fault::Unanswered) => {
                Err("the server closed the connection without a response".to_owned())
            }
            Err(Fault::Other(why)) => Err(why),
        }
    }

    fn connect(&self, authority: &Authority, until: Instant) -> Result<Stream, String> {
        let Authority { host, port } = authority;
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let addresses = (bare, *port).to_socket_addrs();
        let addresses =
            addresses.map_err(|error| format!("{host} has no address: {}", words(&error)))?;
        let mut failed = format!("{host} has no address");
        for address in addresses.take(ADDRESSES_MAX) {
            let left = until.saturating_duration_since(Instant::now()).min(CONNECT_MAX);
            if left.is_zero() {
                break;
            }
            match TcpStream::connect_timeout(&address, left) {
                Ok(socket) => {
                    // The call fails only for a socket that is broken, and so do the others then.
                    let _ = socket.set_nodelay(true);
                    let name = ServerName::try_from(bare.to_owned());
                    let name = name.map_err(|_| format!("{host} is no name of a server"))?;
                    let connection = ClientConnection::new(Arc::clone(&self.config), name);
                    let connection = connection.map_err(|error| error.to_string())?;
                    return Ok(StreamOwned::new(connection, Timed { socket, until }));
                }
                Err(error) => failed = format!("cannot connect to {address}: {}", words(&error)),
            }
        }
        Err(failed)
    }
}

impl core::fmt::Debug for Client {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        out.debug_struct("Client").field("is_kept", &self.kept.is_some()).finish_non_exhaustive()
    }
}

/// The end of an exchange without a response.
enum Fault {
    /// The connection was closed before the response.
    Unanswered,
    /// A sentence for the operator.
    Other(String),
}

/// Sends a request and receives its response. Returns true if the connection can be kept.
fn exchange(stream: &mut Stream, method: &str, request: &[u8]) -> Result<(Response, bool), Fault> {
    let fault = |error: io::Error| match error.kind() {
        io::ErrorKind::ConnectionReset
        | io::ErrorKind::BrokenPipe
        | io::ErrorKind::UnexpectedEof => Fault::Unanswered,
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
            Fault::Other(format!("no complete response within {} s", REQUEST_MAX.as_secs()))
        }
        _ => Fault::Other(words(&error)),
    };
    stream.write_all(request).and_then(|()| stream.flush()).map_err(fault)?;
    let mut connection = Connection::new();
    connection.begin(if method == "HEAD" { http::Method::Head } else { http::Method::Get });
    let mut response: Option<(Response, bool)> = None;
    let (mut received, mut buffer) = (Vec::new(), [0; 16 * 1024]);
    loop {
        let (consumed, event) = connection.handle_input(&received, &LIMITS);
        match event {
            Event::Partial => {
                received.drain(..consumed);
                let read = match stream.read(&mut buffer) {
                    Ok(0) => 0,
                    Ok(read) => read,
                    // A body that ends with the connection needs close_notify. Its end is an error without.
                    Err(error) => return Err(fault(error)),
                };
                if read == 0 {
                    return match (connection.handle_eof(received.len()), response) {
                        (Eof::BodyEnd, Some((response, _))) => Ok((response, false)),
                        (Eof::Unanswered, _) => Err(Fault::Unanswered),
                        _ => Err(Fault::Other("the response was cut off".to_owned())),
                    };
                }
                received.extend_from_slice(&buffer[..read]);
                continue;
            }
            Event::Interim(_) | Event::Trailer(..) | Event::NoTrailers => {}
            Event::Response(head) => {
                let fields = head.fields.iter();
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                let fields = fields.map(|(name, value)| (text(name), text(value))).collect();
                let status = head.status.code();
                let is_whole = head.framing == http1::response::Framing::None;
                let found = Response { status, fields, body: Vec::new() };
                if is_whole {
                    return Ok((found, head.keep_alive));
                }
                response = Some((found, head.keep_alive));
            }
            Event::Body(bytes) => {
                if let Some((response, _)) = &mut response {
                    response.body.extend_from_slice(bytes);
                }
            }
            Event::BodyEnd => {
                return response.ok_or_else(|| Fault::Other("a body without a head".to_owned()));
            }
            Event::Faulty(fault) => {
                return Err(Fault::Other(format!("the response is refused: {}", fault.reason)));
            }
            Event::Closed => return Err(Fault::Unanswered),
        }
        received.drain(..consumed);
    }
}

/// The bytes of a request.
fn request(method: &str, authority: &Authority, target: &str, message: Option<&str>) -> Vec<u8> {
    let Authority { host, port } = authority;
    let port = if *port == 443 { String::new() } else { format!(":{port}") };
    let mut head = format!(
        "{method} {target} HTTP/1.1\r\nHost: {host}{port}\r\nUser-Agent: samum\r\nAccept: */*\r\n"
    );
    if let Some(message) = message {
        head += &format!(
            "Content-Type: application/jose+json\r\nContent-Length: {}\r\n",
            message.len()
        );
    }
    head += "\r\n";
    head += message.unwrap_or_default();
    head.into_bytes()
}

/// Splits a URL into its server and its target.
fn split(url: &str) -> Result<(Authority, &str), String> {
    let wrong = || format!("{} is no URL with https", url.escape_default());
    let rest = url.strip_prefix("https://").ok_or_else(wrong)?;
    if !rest.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(wrong());
    }
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, target) = rest.split_at(end);
    let is_port = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit());
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if is_port(port) => (host, port.parse().map_err(|_| wrong())?),
        _ => (authority, 443),
    };
    if host.is_empty() || host.contains('@') || !(target.is_empty() || target.starts_with('/')) {
        return Err(wrong());
    }
    let target = if target.is_empty() { "/" } else { target };
    Ok((Authority { host: host.to_owned(), port }, target))
}

/// Checks that a file has authorities that can be trusted.
///
/// # Errors
///
/// A sentence for the operator.
pub fn check_roots(path: &Path) -> Result<(), String> {
    read_roots(path).map(drop)
}

/// Reads the authorities that are trusted, of a file in the format PEM.
fn read_roots(path: &Path) -> Result<RootCertStore, String> {
    let mut bytes = Vec::new();
    let read = std::fs::File::open(path)
        .and_then(|file| file.take(ROOTS_BYTES_MAX).read_to_end(&mut bytes));
    read.map_err(|error| {
        let advice = match error.kind() {
            io::ErrorKind::NotFound => {
                " (install `ca-certificates`, or name a file by `ca` in `[acme]`)"
            }
            _ => "",
        };
        format!("cannot read {}: {}{advice}", path.display(), words(&error))
    })?;
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    let all = all
        .map_err(|_| format!("{} is no file of certificates in the format PEM", path.display()))?;
    let mut store = RootCertStore::empty();
    // Systems keep old ones that nothing can read.
    let (added, _) = store.add_parsable_certificates(all);
    if added == 0 {
        return Err(format!("{} has no certificate of an authority", path.display()));
    }
    Ok(store)
}

impl Timed {
    /// Returns the time that is left, for the next call.
    fn left(&self) -> io::Result<Duration> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
    }
}

impl Read for Timed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.socket.set_read_timeout(Some(self.left()?))?;
        self.socket.read(buffer)
    }
}

impl Write for Timed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.socket.set_write_timeout(Some(self.left()?))?;
        self.socket.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.socket.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_has_a_server_and_a_target() {
        for (url, expected) in [
            ("https://a.example/dir", Some(("a.example", 443, "/dir"))),
            ("https://a.example:14000/dir?x", Some(("a.example", 14000, "/dir?x"))),
            ("https://[::1]:1/d", Some(("[::1]", 1, "/d"))),
            ("https://[::1]/d", Some(("[::1]", 443, "/d"))),
            ("https://a", Some(("a", 443, "/"))),
            ("http://a/", None),
            ("https:///x", None),
            ("https://u@a/", None),
            ("https://a?x", None),
            ("https://a:99999/", None),
            ("https://a/\r\nX: y", None),
            ("", None),
        ] {
            let found = split(url).ok();
            let found = found.as_ref().map(|(it, target)| (&*it.host, it.port, *target));
            assert_eq!(found, expected, "{url}");
        }
    }

    #[test]
    fn a_file_of_authorities_has_one_at_least() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ca.pem");
        let read = || read_roots(&path).map(|store| store.len());
        assert!(read().unwrap_err().contains("no such file"));
        std::fs::write(&path, "text").unwrap();
        assert!(read().unwrap_err().contains("has no certificate"));
        std::fs::write(&path, "-----BEGIN CERTIFICATE-----\n???\n").unwrap();
        assert!(read().unwrap_err().contains("is no file of certificates"));
    }
}
