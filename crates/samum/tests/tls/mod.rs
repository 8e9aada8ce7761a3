//! TLS, with the binary.

mod acme;
mod attacks;
mod certificates;
mod files;
mod flood;
mod programs;

use core::net::SocketAddr;
use core::time::Duration;
use std::fs;
use std::io::{self, Error, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType, IsCa, Issuer,
    KeyIdMethod, KeyPair, KeyUsagePurpose, RevokedCertParams, SerialNumber,
};
use rustls::client::Resumption;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, HandshakeKind, RootCertStore, StreamOwned};
use testkit::Tree;

use crate::common::SOON;

/// An authority that issues certificates, and clients that trust it alone.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: rcgen::Certificate,
}

/// A certificate and its key, in PEM.
pub(crate) struct Issued {
    pub(crate) certificate: String,
    pub(crate) key: String,
    /// The certificate in DER, as a client sees it.
    pub(crate) der: CertificateDer<'static>,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, "Authority of tests");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        Self { issuer: Issuer::new(params, key), certificate }
    }

    /// One whose certificate has expired.
    pub(crate) fn expired() -> Self {
        let Self { issuer, .. } = Self::new();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, "Old authority of tests");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.not_before = rcgen::date_time_ymd(2020, 1, 1);
        params.not_after = rcgen::date_time_ymd(2021, 1, 1);
        let key = issuer.key();
        let certificate = params.self_signed(key).unwrap();
        let key = KeyPair::from_pem(&key.serialize_pem()).unwrap();
        Self { issuer: Issuer::new(params, key), certificate }
    }

    /// A list that revokes these certificates, in PEM. The next list is due this many hours after now.
    pub(crate) fn revoke(&self, all: &[&Issued], hours: i64) -> String {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let this_update = rcgen::date_time_ymd(1970, 1, 1) + now - Duration::from_secs(86_400);
        let valid = u64::try_from(24 + hours).unwrap() * 3_600;
        let revoked = |issued: &&Issued| RevokedCertParams {
            serial_number: serial_of(&KeyPair::from_pem(&issued.key).unwrap()),
            revocation_time: this_update,
            reason_code: None,
            invalidity_date: None,
        };
        let list = CertificateRevocationListParams {
            this_update,
            next_update: this_update + Duration::from_secs(valid),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: all.iter().map(revoked).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        list.signed_by(&self.issuer).unwrap().pem().unwrap()
    }

    /// Its own certificate in PEM.
    pub(crate) fn pem(&self) -> String {
        self.certificate.pem()
    }

    /// Its own certificate in DER.
    pub(crate) fn der(&self) -> CertificateDer<'static> {
        self.certificate.der().clone()
    }

    /// A certificate for some names, which is valid for a long time.
    pub(crate) fn issue(&self, names: &[&str]) -> Issued {
        self.issue_with(names, |_| {})
    }

    /// The same, with other values.
    pub(crate) fn issue_with(
        &self,
        names: &[&str],
        change: impl FnOnce(&mut CertificateParams),
    ) -> Issued {
        self.issue_for(&KeyPair::generate().unwrap(), names, change)
    }

    /// The same, for a key.
    pub(crate) fn issue_for(
        &self,
        key: &KeyPair,
        names: &[&str],
        change: impl FnOnce(&mut CertificateParams),
    ) -> Issued {
        let names: Vec<_> = names.iter().map(|&name| name.to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        change(&mut params);
        // By default it is made of the key.
        params.serial_number = Some(serial_of(key));
        let certificate = params.signed_by(key, &self.issuer).unwrap();
        let der = certificate.der().clone();
        Issued { certificate: certificate.pem(), key: key.serialize_pem(), der }
    }

    /// A connection whose handshake is complete.
    pub(crate) fn connect(&self, address: SocketAddr, name: &str) -> io::Result<TlsClient> {
        self.connect_as(address, name, None)
    }

    /// The same, of a client with a certificate, or with none.
    pub(crate) fn connect_as(
        &self,
        address: SocketAddr,
        name: &str,
        client: Option<&Issued>,
    ) -> io::Result<TlsClient> {
        let config = Arc::new(self.client_config(client));
        let name = ServerName::try_from(name.to_owned()).map_err(Error::other)?;
        let connection = ClientConnection::new(config, name).map_err(Error::other)?;
        let socket = TcpStream::connect(address)?;
        socket.set_read_timeout(Some(SOON))?;
        let mut stream = StreamOwned::new(connection, socket);
        while stream.conn.is_handshaking() {
            stream.conn.complete_io(&mut stream.sock)?;
        }
        Ok(TlsClient(stream))
    }

    /// The same, of a client that offers these protocols (ALPN).
    pub(crate) fn connect_offering(
        &self,
        address: SocketAddr,
        name: &str,
        protocols: &[&str],
    ) -> io::Result<StreamOwned<ClientConnection, TcpStream>> {
        let mut config = self.client_config(None);
        config.alpn_protocols = protocols.iter().map(|it| it.as_bytes().to_vec()).collect();
        let name = ServerName::try_from(name.to_owned()).map_err(Error::other)?;
        let connection = ClientConnection::new(Arc::new(config), name).map_err(Error::other)?;
        let socket = TcpStream::connect(address)?;
        socket.set_read_timeout(Some(SOON))?;
        socket.set_nodelay(true)?;
        let mut stream = StreamOwned::new(connection, socket);
        while stream.conn.is_handshaking() {
            stream.conn.complete_io(&mut stream.sock)?;
        }
        Ok(stream)
    }

    /// The settings of a client that trusts this authority.
    fn client_config(&self, client: Option<&Issued>) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.der().clone()).unwrap();
        let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let mut config = match client {
            Some(Issued { der, key, .. }) => {
                let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
                builder.with_client_auth_cert(vec![der.clone()], key).unwrap()
            }
            None => builder.with_no_client_auth(),
        };
        // A client that resumes a session sees no certificate.
        config.resumption = Resumption::disabled();
        config
    }

    /// A client that resumes its sessions.
    pub(crate) fn resuming(&self) -> Resuming {
        let mut config = self.client_config(None);
        config.resumption = Resumption::in_memory_sessions(8);
        Resuming(Arc::new(config))
    }

    /// The certificate that a new client sees.
    #[track_caller]
    pub(crate) fn seen(&self, address: SocketAddr, name: &str) -> CertificateDer<'static> {
        self.connect(address, name).expect("a handshake").certificate()
    }
}

/// The serial number of the certificate for a key.
fn serial_of(key: &KeyPair) -> SerialNumber {
    SerialNumber::from_slice(&key.public_key_raw()[1..17])
}

impl Issued {
    /// Writes both to files, by renaming: `NAME.pem` and `NAME.key`.
    pub(crate) fn put(&self, tree: &Tree, name: &str) {
        for (end, text) in [("key", &self.key), ("pem", &self.certificate)] {
            put(tree, &format!("{name}.{end}"), text);
        }
    }
}

/// Writes a file to another name, and renames that. Only its owner can read it.
pub(crate) fn put(tree: &Tree, name: &str, text: &str) {
    let new = format!("{name}.new");
    tree.write(&new, text);
    let at = |name: &str| tree.path().join(name);
    fs::set_permissions(at(&new), fs::Permissions::from_mode(0o600)).unwrap();
    fs::rename(at(&new), at(name)).unwrap();
}

/// A client of the server.
pub(crate) struct TlsClient(StreamOwned<ClientConnection, TcpStream>);

impl TlsClient {
    /// Receives as many bytes as there is room for.
    pub(crate) fn read_exactly(&mut self, bytes: &mut [u8]) -> io::Result<()> {
        self.0.read_exact(bytes)
    }

    /// The certificate that the server has shown.
    pub(crate) fn certificate(&self) -> CertificateDer<'static> {
        let shown = self.0.conn.peer_certificates().expect("after a handshake");
        shown[0].clone().into_owned()
    }

    /// Sends a request, and returns all that comes up to the end of the connection.
    pub(crate) fn ask(&mut self, request: &str) -> io::Result<Vec<u8>> {
        self.0.write_all(request.as_bytes())?;
        let mut bytes = Vec::new();
        self.0.read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// The body of the last response, which is a text.
    pub(crate) fn rest(&mut self, path: &str) -> io::Result<String> {
        self.0.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes())?;
        let mut text = String::new();
        self.0.read_to_string(&mut text)?;
        let (_, body) = text.split_once("\r\n\r\n").ok_or_else(|| Error::other("no head"))?;
        Ok(body.to_owned())
    }

    /// The head of the response to a request, in small letters.
    pub(crate) fn head(&mut self, host: &str, path: &str) -> io::Result<String> {
        let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n");
        self.0.write_all(request.as_bytes())?;
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            self.0.read_exact(&mut byte)?;
            head.push(byte[0]);
        }
        Ok(String::from_utf8(head).map_err(Error::other)?.to_ascii_lowercase())
    }

    /// The body of a response with the status 200, whose length is known. The connection stays open.
    pub(crate) fn get(&mut self, host: &str, path: &str) -> io::Result<Vec<u8>> {
        let head = self.head(host, path)?;
        if !head.starts_with("http/1.1 200 ") {
            return Err(Error::other(head));
        }
        let (_, rest) = head.split_once("\r\ncontent-length: ").expect("a length");
        let length = rest.split("\r\n").next().expect("split yields one").parse();
        let mut body = vec![0; length.map_err(Error::other)?];
        self.0.read_exact(&mut body)?;
        Ok(body)
    }
}

/// A client that resumes its sessions.
pub(crate) struct Resuming(Arc<ClientConfig>);

impl Resuming {
    /// Asks for a file, and returns whether the session was resumed.
    #[track_caller]
    pub(crate) fn is_resumed(&self, address: SocketAddr, name: &'static str) -> bool {
        let name = ServerName::try_from(name).unwrap();
        let connection = ClientConnection::new(Arc::clone(&self.0), name).unwrap();
        let socket = TcpStream::connect(address).unwrap();
        socket.set_read_timeout(Some(SOON)).unwrap();
        let mut stream = StreamOwned::new(connection, socket);
        stream
            .write_all(b"GET /a.txt HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n")
            .unwrap();
        let mut answer = Vec::new();
        // The tickets come before the answer.
        stream.read_to_end(&mut answer).unwrap();
        assert!(answer.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&answer));
        stream.conn.handshake_kind() == Some(HandshakeKind::Resumed)
    }
}
