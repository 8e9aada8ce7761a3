//! The client whose requests are counted: one kept connection of HTTP/1.1 or HTTP/2, in the clear or by TLS.
//!
//! The socket is read when the server sleeps, so what the client does costs the server nothing.

use core::time::Duration;
use std::io::{self, Error, ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;

use http2::frame::{self, FrameHead, Kind, flag};
use rustix::net::sockopt;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{ClientConfig, ClientConnection};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, SignatureScheme};

use crate::league::server::Server;
use crate::load::response::Parser;
use crate::load::target::connect;

/// The protocol of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Protocol {
    pub(super) is_http2: bool,
    pub(super) is_sealed: bool,
}

impl Protocol {
    pub(super) const HTTP1: Self = Self { is_http2: false, is_sealed: false };
    pub(super) const HTTPS1: Self = Self { is_http2: false, is_sealed: true };
    pub(super) const HTTP2: Self = Self { is_http2: true, is_sealed: false };
    pub(super) const HTTPS2: Self = Self { is_http2: true, is_sealed: true };
}

/// One kept connection.
#[derive(Debug)]
pub(super) struct Client {
    socket: TcpStream,
    tls: Option<Box<ClientConnection>>,
    /// With HTTP/2, the number of the next stream.
    stream: Option<u32>,
    /// The bytes, as sent, of the last response that was asked for.
    pub(super) expected: usize,
    /// The status of that response.
    pub(super) status: u16,
    /// The entity tag of that response; none with HTTP/2.
    pub(super) etag: String,
}

impl Client {
    /// Connects, and shakes hands. The server runs by itself.
    pub(super) fn connect(server: &Server, protocol: Protocol) -> io::Result<Self> {
        let socket = connect(server.address(), None, LIMIT)?;
        // A whole response fits, so the server never waits for the client. A buffer above the system's limit needs a
        // privilege; with a smaller buffer the server waits, but always at the same byte.
        if sockopt::set_socket_recv_buffer_size_force(&socket, RECEIVE_BUFFER).is_err() {
            sockopt::set_socket_recv_buffer_size(&socket, RECEIVE_BUFFER)?;
        }
        let mut socket = TcpStream::from(socket);
        socket.set_nonblocking(false)?;
        socket.set_read_timeout(Some(LIMIT))?;
        let mut tls = None;
        if protocol.is_sealed {
            let tls = tls.insert(Box::new(handshake(protocol).map_err(Error::other)?));
            while tls.is_handshaking() {
                tls.complete_io(&mut socket)?;
            }
        }
        let stream = protocol.is_http2.then_some(1);
        let mut client = Self { socket, tls, stream, expected: 0, status: 0, etag: String::new() };
        if protocol.is_http2 {
            client.send(&http2_beginning())?;
        }
        Ok(client)
    }

    /// The bytes of requests for a path that are sent together. The streams of HTTP/2 can be used once.
    pub(super) fn requests(&mut self, path: &str, fields: &str, times: usize) -> Vec<u8> {
        let Some(stream) = &mut self.stream else {
            let request = format!(
                "GET {path} HTTP/1.1\r\nHost: localhost\r\nUser-Agent: samum-bench\r\n{fields}\r\n"
            );
            return request.repeat(times).into_bytes();
        };
        let block = http2_request(path);
        let mut bytes = Vec::new();
        for _ in 0..times {
            let flags = flag::END_STREAM | flag::END_HEADERS;
            push_frame(&mut bytes, Kind::Headers, flags, *stream, &block);
            *stream += 2;
        }
        bytes
    }

    /// Sends requests and receives their responses, while the server runs by itself.
    pub(super) fn ask(&mut self, requests: &[u8], times: usize) -> io::Result<()> {
        self.send(requests)?;
        self.socket.set_nonblocking(false)?;
        self.expected = 0;
        if self.stream.is_some() {
            self.read_streams(times)?
        } else {
            self.read_response()?
        }
        self.socket.set_nonblocking(true)
    }

    fn read_response(&mut self) -> io::Result<()> {
        let (mut bytes, mut parser) = (Vec::new(), Parser::default());
        loop {
            let part = self.read()?;
            bytes.extend_from_slice(&part);
            let done = if part.is_empty() {
                parser.end().map(|()| true)
            } else {
                parser.feed(&part, |_| ())
            };
            if done.map_err(|error| Error::other(error.to_string()))? {
                break;
            }
        }
        let head = String::from_utf8_lossy(&bytes);
        let etag = head.lines().take_while(|line| !line.is_empty()).find_map(|line| {
            let (name, value) = line.split_once(": ")?;
            name.eq_ignore_ascii_case("etag").then(|| value.to_owned())
        });
        (self.status, self.etag) = (parser.status(), etag.unwrap_or_default());
        Ok(())
    }

    /// Reads until this many streams have ended, and acknowledges settings.
    fn read_streams(&mut self, mut streams: usize) -> io::Result<()> {
        let mut bytes = Vec::new();
        while streams > 0 {
            let part = self.read()?;
            if part.is_empty() {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            bytes.extend_from_slice(&part);
            while let Some(head) = FrameHead::parse(&bytes) {
                let end = frame::HEAD_LEN + head.length as usize;
                if bytes.len() < end {
                    break;
                }
                let payload: Vec<u8> = bytes.drain(..end).skip(frame::HEAD_LEN).collect();
                match head.kind {
                    Kind::Headers if payload.contains(&STATUS_200) => self.status = 200,
                    Kind::Settings if !head.has(flag::ACK) => {
                        let mut ack = Vec::new();
                        push_frame(&mut ack, Kind::Settings, flag::ACK, 0, &[]);
                        self.send(&ack)?;
                    }
                    _ => {}
                }
                let may_end = matches!(head.kind, Kind::Headers | Kind::Data);
                streams -= usize::from(may_end && head.has(flag::END_STREAM));
            }
        }
        Ok(())
    }

    /// The next bytes of the server, opened; none at the end.
    fn read(&mut self) -> io::Result<Vec<u8>> {
        let mut part = vec![0; 1 << 16];
        loop {
            let n = self.socket.read(&mut part)?;
            self.expected += n;
            let Some(tls) = self.tls.as_mut().filter(|_| n > 0) else {
                part.truncate(n);
                return Ok(part);
            };
            let mut sealed = &part[..n];
            let mut opened = Vec::new();
            while !sealed.is_empty() {
                tls.read_tls(&mut sealed)?;
                let state = tls.process_new_packets().map_err(Error::other)?;
                let at = opened.len();
                opened.resize(at + state.plaintext_bytes_to_read(), 0);
                tls.reader().read_exact(&mut opened[at..])?;
            }
            // Tickets, or a part of a record.
            if !opened.is_empty() {
                return Ok(opened);
            }
        }
    }

    /// The acknowledgement of the last response leaves with the next request, as between a client and a server that are
    /// busy, and not at a time of its own.
    pub(super) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        sockopt::set_tcp_quickack(&self.socket, false)?;
        let Some(tls) = &mut self.tls else { return self.socket.write_all(bytes) };
        tls.writer().write_all(bytes)?;
        let mut sealed = Vec::new();
        while tls.wants_write() {
            tls.write_tls(&mut sealed)?;
        }
        self.socket.write_all(&sealed)
    }

    /// Receives the bytes that have come, without opening them; returns their number.
    pub(super) fn receive(&mut self) -> io::Result<usize> {
        let (mut part, mut received) = (vec![0; 1 << 18], 0);
        loop {
            match self.socket.read(&mut part) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(n) => received += n,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(received),
                Err(error) => return Err(error),
            }
        }
    }
}

/// The first bytes of a client of HTTP/2. They open windows that no response fills.
fn http2_beginning() -> Vec<u8> {
    const INITIAL_WINDOW_SIZE: u16 = 4;
    let mut bytes = frame::PREFACE.to_vec();
    let mut settings = INITIAL_WINDOW_SIZE.to_be_bytes().to_vec();
    settings.extend_from_slice(&WINDOW.to_be_bytes());
    push_frame(&mut bytes, Kind::Settings, 0, 0, &settings);
    push_frame(&mut bytes, Kind::WindowUpdate, 0, 0, &WINDOW.to_be_bytes());
    bytes
}

/// The header block of a request (RFC 7541 §6): nothing in it enters a table, so each is the same.
fn http2_request(path: &str) -> Vec<u8> {
    const METHOD_GET: u8 = 0x82;
    const SCHEME_HTTP: u8 = 0x86;
    // Literals without indexing, of names in the static table.
    const AUTHORITY: u8 = 0x01;
    const PATH: u8 = 0x04;
    const USER_AGENT: [u8; 2] = [0x0f, 58 - 15];
    let mut block = vec![METHOD_GET, SCHEME_HTTP];
    for (name, value) in
        [(&[AUTHORITY][..], "localhost"), (&[PATH], path), (&USER_AGENT, "samum-bench")]
    {
        block.extend_from_slice(name);
        block.push(u8::try_from(value.len()).ok().filter(|len| *len < 127).expect("a short text"));
        block.extend_from_slice(value.as_bytes());
    }
    block
}

fn push_frame(to: &mut Vec<u8>, kind: Kind, flags: u8, stream: u32, payload: &[u8]) {
    let length = u32::try_from(payload.len()).expect("a short frame");
    to.extend_from_slice(&FrameHead { length, kind, flags, stream }.to_bytes());
    to.extend_from_slice(payload);
}

/// A client that accepts any certificate: it made the server itself. The cipher is the one that processors are best at.
fn handshake(protocol: Protocol) -> Result<ClientConnection, rustls::Error> {
    let provider = Arc::new(CryptoProvider {
        cipher_suites: vec![aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256],
        kx_groups: vec![aws_lc_rs::kx_group::X25519],
        ..aws_lc_rs::default_provider()
    });
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyCertificate))
        .with_no_client_auth();
    let name = if protocol.is_http2 { "h2" } else { "http/1.1" };
    config.alpn_protocols = vec![name.as_bytes().to_vec()];
    let host =
        ServerName::try_from("localhost").map_err(|_| rustls::Error::HandshakeNotComplete)?;
    ClientConnection::new(Arc::new(config), host)
}

#[derive(Debug)]
struct AnyCertificate;

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ECDSA_NISTP256_SHA256]
    }
}

/// The field `:status: 200` in the static table (RFC 7541, appendix A).
const STATUS_200: u8 = 0x88;

/// The bytes that a server of HTTP/2 may send before the client says more: near the most that a window has.
const WINDOW: u32 = 1 << 30;

/// The time after which a request has failed.
pub(super) const LIMIT: Duration = Duration::from_secs(60);

/// The bytes of the receive buffer: a response of 1 MiB and the kernel's overhead for its packets.
const RECEIVE_BUFFER: usize = 8 << 20;
