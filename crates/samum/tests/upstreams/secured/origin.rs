//! A server with TLS, which does what the path of a request says.

use core::net::SocketAddr;
use core::sync::atomic::{AtomicUsize, Ordering};
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;

use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::server::WebPkiClientVerifier;
use rustls::{
    HandshakeKind, ProtocolVersion, RootCertStore, ServerConfig, ServerConnection, StreamOwned,
    SupportedProtocolVersion,
};
use testkit::Content;

use crate::common::SOON;
use crate::tls::{Authority, Issued};

/// Bytes of `/download`.
pub(super) const DOWNLOAD: u64 = 100 * 1024 * 1024;
/// Bytes of `/chunks`: the beginning of these.
pub(super) const CHUNKS: u64 = 8 * 1024 * 1024;
const PART_BYTES: usize = 100_000;

/// The settings of a server.
pub(super) struct Settings<'a> {
    pub(super) issued: &'a Issued,
    pub(super) versions: &'static [&'static SupportedProtocolVersion],
    /// The authority of clients that are let in.
    pub(super) clients: Option<&'a Authority>,
}

impl<'a> Settings<'a> {
    pub(super) const fn new(issued: &'a Issued) -> Self {
        Self { issued, versions: rustls::ALL_VERSIONS, clients: None }
    }

    /// Starts a server.
    pub(super) fn start(self) -> SecuredOrigin {
        let builder = ServerConfig::builder_with_provider(Arc::new(default_provider()));
        let builder = builder.with_protocol_versions(self.versions).unwrap();
        let builder = match self.clients {
            None => builder.with_no_client_auth(),
            Some(authority) => {
                let mut roots = RootCertStore::empty();
                roots.add(authority.der()).unwrap();
                let provider = Arc::new(default_provider());
                let verifier =
                    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
                builder.with_client_cert_verifier(verifier.build().unwrap())
            }
        };
        let key = PrivateKeyDer::from_pem_slice(self.issued.key.as_bytes()).unwrap();
        let mut config = builder.with_single_cert(vec![self.issued.der.clone()], key).unwrap();
        config.session_storage = rustls::server::ServerSessionMemoryCache::new(64);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (config, accepted) = (Arc::new(config), Arc::new(AtomicUsize::new(0)));
        let count = Arc::clone(&accepted);
        thread::spawn(move || {
            for socket in listener.incoming() {
                let number = count.fetch_add(1, Ordering::Relaxed) + 1;
                let config = Arc::clone(&config);
                // The server under test shows what has failed.
                thread::spawn(move || serve(config, socket?, number));
            }
        });
        SecuredOrigin { address, accepted }
    }
}

/// A server that runs until the test ends.
pub(super) struct SecuredOrigin {
    pub(super) address: SocketAddr,
    accepted: Arc<AtomicUsize>,
}

impl SecuredOrigin {
    pub(super) fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// The connections that it has accepted.
    pub(super) fn accepted(&self) -> usize {
        self.accepted.load(Ordering::Relaxed)
    }
}

type Stream = StreamOwned<ServerConnection, TcpStream>;

fn serve(config: Arc<ServerConfig>, socket: TcpStream, number: usize) -> io::Result<()> {
    socket.set_read_timeout(Some(3 * SOON))?;
    let connection = ServerConnection::new(config).map_err(io::Error::other)?;
    let mut reader = BufReader::new(StreamOwned::new(connection, socket));
    for request in 1.. {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head)? == 0 {
                return Ok(());
            }
        }
        if !answer(&mut reader, &head, number, request)? {
            break;
        }
    }
    Ok(())
}

/// Answers a request. Returns false if the connection is over.
fn answer(
    reader: &mut BufReader<Stream>,
    head: &str,
    number: usize,
    request: u32,
) -> io::Result<bool> {
    let lower = head.to_ascii_lowercase();
    let length = lower.lines().find_map(|line| line.strip_prefix("content-length: "));
    let length: u64 = length.map_or(0, |length| length.parse().unwrap());
    match head.split(' ').nth(1).unwrap() {
        "/download" => {
            write!(reader.get_mut(), "HTTP/1.1 200 OK\r\nContent-Length: {DOWNLOAD}\r\n\r\n")?;
            send_download(reader.get_mut(), DOWNLOAD, |stream, bytes| stream.write_all(bytes))?;
        }
        // Each part is a chunk; keys are renewed now and then.
        "/chunks" => {
            let stream = reader.get_mut();
            stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")?;
            let mut parts = 0;
            send_download(stream, CHUNKS, |stream, bytes| {
                parts += 1;
                if parts % 10 == 0 && is_tls13(stream) {
                    stream.conn.refresh_traffic_keys().map_err(io::Error::other)?;
                }
                write!(stream, "{:x}\r\n", bytes.len())?;
                stream.write_all(bytes)?;
                stream.write_all(b"\r\n")
            })?;
            stream.write_all(b"0\r\n\r\n")?;
        }
        "/upload" => {
            let mut body = vec![0; usize::try_from(length).unwrap()];
            reader.read_exact(&mut body)?;
            let stream = reader.get_mut();
            write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n")?;
            stream.write_all(&body)?;
        }
        // The end of the connection is the end of the response.
        "/until-close" | "/cut" => {
            let stream = reader.get_mut();
            stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n")?;
            stream.write_all(&[b'x'; 300_000])?;
            stream.flush()?;
            if head.starts_with("GET /until-close") {
                stream.conn.send_close_notify();
                stream.conn.complete_io(&mut stream.sock)?;
            }
            return Ok(false);
        }
        "/cut-before-head" => return Ok(false),
        // A record that never comes completely.
        "/amid-record" => {
            let stream = reader.get_mut();
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 9000\r\n\r\n")?;
            stream.flush()?;
            stream.conn.writer().write_all(&[b'x'; 9000])?;
            let mut record = Vec::new();
            stream.conn.write_tls(&mut record)?;
            stream.sock.write_all(&record[..record.len() / 2])?;
            stream.sock.read_exact(&mut [0])?;
            return Ok(false);
        }
        "/forged" => {
            let stream = reader.get_mut();
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n")?;
            stream.flush()?;
            stream.sock.write_all(&[23, 3, 3, 0, 40])?;
            stream.sock.write_all(&[7; 40])?;
            stream.sock.read_exact(&mut [0])?;
            return Ok(false);
        }
        // An echo after a change of protocols.
        "/echo" => {
            let switched = "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n";
            reader.get_mut().write_all(switched.as_bytes())?;
            let mut bytes = vec![0; 50_000];
            loop {
                let count = reader.read(&mut bytes)?;
                if count == 0 {
                    let stream = reader.get_mut();
                    stream.conn.send_close_notify();
                    stream.conn.complete_io(&mut stream.sock)?;
                    return Ok(false);
                }
                reader.get_mut().write_all(&bytes[..count])?;
            }
        }
        _ => {
            let stream = reader.get_mut();
            let name = stream.conn.server_name().unwrap_or("none").to_owned();
            let is_resumed = stream.conn.handshake_kind() == Some(HandshakeKind::Resumed);
            let client = stream.conn.peer_certificates().is_some();
            let version = if is_tls13(stream) { "1.3" } else { "1.2" };
            let text = format!(
                "connection {number} request {request} sni {name} resumed {is_resumed} client {client} version {version}"
            );
            let length = text.len();
            write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{text}")?;
        }
    }
    reader.get_mut().flush()?;
    Ok(true)
}

fn is_tls13(stream: &Stream) -> bool {
    stream.conn.protocol_version() == Some(ProtocolVersion::TLSv1_3)
}

/// The content of a download.
pub(super) fn download() -> Content {
    Content::pseudo_random(5, DOWNLOAD)
}

fn send_download(
    stream: &mut Stream,
    length: u64,
    mut send: impl FnMut(&mut Stream, &[u8]) -> io::Result<()>,
) -> io::Result<()> {
    let (content, mut at) = (download(), 0);
    while at < length {
        let bytes = content.read(at, PART_BYTES.min(usize::try_from(length - at).unwrap()));
        at += bytes.len() as u64;
        send(stream, &bytes)?;
    }
    Ok(())
}
