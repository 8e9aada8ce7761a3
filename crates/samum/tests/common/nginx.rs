//! nginx, to compare answers with.

use core::net::SocketAddr;
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};

use testkit::{Address, Client, Response, Tree, request};

use super::{SOON, wait_until};

/// A running nginx, which ends when this is dropped.
pub(crate) struct Nginx {
    child: Child,
    address: SocketAddr,
}

impl Nginx {
    /// Starts nginx with what `http` says for an address that is free; its own files are in the tree. `None` if it is not
    /// installed.
    #[track_caller]
    pub(crate) fn start(tree: &Tree, http: impl FnOnce(SocketAddr) -> String) -> Option<Self> {
        let address = free_address();
        let root = tree.path().display();
        let config = format!(
            "daemon off; master_process off; user root; pid {root}/nginx.pid; error_log {root}/nginx.log;\n\
             events {{}}\n\
             http {{ access_log off; client_body_temp_path {root}/b; proxy_temp_path {root}/p; \
             fastcgi_temp_path {root}/f; uwsgi_temp_path {root}/u; scgi_temp_path {root}/s;\n{} }}\n",
            http(address)
        );
        tree.write("nginx.conf", config.as_str());
        let mut command = Command::new("nginx");
        command.arg("-c").arg(tree.path().join("nginx.conf")).arg("-p").arg(tree.path());
        command.env("TZ", "UTC").stdin(Stdio::null()).stderr(Stdio::null()).stdout(Stdio::null());
        let child = command.spawn().ok()?;
        let nginx = Self { child, address };
        let is_up = wait_until(SOON, || TcpStream::connect(address).is_ok());
        let log = || std::fs::read_to_string(tree.path().join("nginx.log")).unwrap_or_default();
        assert!(is_up, "nginx does not start: {}", log());
        Some(nginx)
    }

    /// The response to a request: a request line without its version, and fields, one a line.
    pub(crate) fn ask(&self, head: &str) -> Response {
        let mut client = Client::connect(&Address::Tcp(self.address)).expect("nginx accepts");
        client.send(request(head)).expect("nginx takes the request");
        client.response().expect("nginx answers")
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// An address that nobody has at the moment.
pub(crate) fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("a free port")
}
