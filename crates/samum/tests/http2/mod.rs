//! HTTP/2, with the binary.

mod attacks;
mod operation;
mod programs;
mod smuggling;
mod streams;
mod table;
mod tunnels;
mod uploads;

use std::net::TcpStream;

use rustls::{ClientConnection, StreamOwned};
use testkit::http2::Http2;
use testkit::{Server, Tree};

use crate::common::tcp_address;
use crate::tls::Authority;

/// A client's side of TLS.
type Secure = StreamOwned<ClientConnection, TcpStream>;

/// A certificate for `localhost` and `a.test`, and clients that trust it.
struct Certified {
    authority: Authority,
    _tree: Tree,
    /// The value of `--tls`.
    files: String,
}

impl Certified {
    fn new() -> Self {
        let (authority, tree) = (Authority::new(), Tree::new());
        authority.issue(&["localhost", "a.test"]).put(&tree, "it");
        let at = tree.path().display();
        let files = format!("{at}/it.pem,{at}/it.key");
        Self { authority, _tree: tree, files }
    }

    /// A connection whose handshake has chosen HTTP/2.
    #[track_caller]
    fn connect(&self, server: &Server) -> Secure {
        let protocols = ["h2", "http/1.1"];
        let address = tcp_address(server);
        let stream = self.authority.connect_offering(address, "localhost", &protocols);
        let stream = stream.expect("a handshake");
        assert_eq!(stream.conn.alpn_protocol(), Some(&b"h2"[..]));
        stream
    }
}

/// A connection without TLS.
#[track_caller]
fn connect(server: &Server) -> Http2 {
    Http2::connect(tcp_address(server)).expect("the server accepts")
}
