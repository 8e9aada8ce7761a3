//! Pebble, the ACME server for tests of Let's Encrypt, with a server for names that are all on this machine.

use core::net::{Ipv4Addr, SocketAddr};
use core::sync::atomic::{AtomicU32, Ordering};
use std::io::{self, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{self, Command};
use std::thread;

use testkit::{Tree, tether};

use super::super::Authority;
use crate::common::{SOON, wait_until};

/// Where Pebble looks for the answers to challenges.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ports {
    pub(super) http: u16,
    pub(super) tls: u16,
}

impl Ports {
    pub(super) fn new() -> Self {
        Self { http: free_port(), tls: free_port() }
    }
}

/// A Pebble that runs. Its directory is `https://localhost:PORT/dir`.
pub(super) struct Pebble {
    child: process::Child,
    port: u16,
    tree: Tree,
}

/// The way in which it behaves.
#[derive(Clone, Debug)]
pub(super) struct Behaviour {
    /// Of a hundred nonces, this many are refused.
    pub(super) nonces_refused: u8,
    /// Seconds for which a validation waits, if it waits.
    pub(super) sleep: Option<u8>,
    /// Seconds for which certificates are valid.
    pub(super) validity: u32,
    /// The identifier and the key of an external account, in base64 for URLs, if accounts need one.
    pub(super) external: Option<(&'static str, &'static str)>,
}

impl Default for Behaviour {
    fn default() -> Self {
        Self { nonces_refused: 50, sleep: None, validity: 90 * 86_400, external: None }
    }
}

impl Pebble {
    /// Starts it; it looks for answers at these ports.
    pub(super) fn start(ports: Ports, behaviour: &Behaviour) -> Result<Self, String> {
        let program = program()?;
        let tree = Tree::new();
        let authority = Authority::new();
        authority.issue(&["localhost"]).put(&tree, "pebble");
        tree.write("ca.pem", authority.pem().as_bytes());
        let (port, management) = (free_port(), free_port());
        let at = |name: &str| tree.path().join(name).display().to_string();
        let external = behaviour.external.map_or_else(String::new, |(id, key)| {
            format!(r#""externalAccountBindingRequired": true, "externalAccountMACKeys": {{ "{id}": "{key}" }},"#)
        });
        let config = format!(
            r#"{{ "pebble": {{
                "listenAddress": "127.0.0.1:{port}", "managementListenAddress": "127.0.0.1:{management}",
                "certificate": "{}", "privateKey": "{}", "httpPort": {}, "tlsPort": {}, {external}
                "domainBlocklist": ["refused.example"],
                "profiles": {{ "default": {{ "description": "tests", "validityPeriod": {} }} }}
            }} }}"#,
            at("pebble.pem"),
            at("pebble.key"),
            ports.http,
            ports.tls,
            behaviour.validity
        );
        tree.write("pebble.json", config.as_bytes());
        let mut command = Command::new(program);
        command.args(["-config", &at("pebble.json"), "-dnsserver", &names().to_string()]);
        command.env("PEBBLE_WFE_NONCEREJECT", behaviour.nonces_refused.to_string());
        match behaviour.sleep {
            Some(seconds) => command.env("PEBBLE_VA_SLEEPTIME", seconds.to_string()),
            None => command.env("PEBBLE_VA_NOSLEEP", "1"),
        };
        let log = std::fs::File::create(tree.path().join("log")).expect("a file");
        command.stdout(log.try_clone().expect("a descriptor")).stderr(log);
        let child = tether(&mut command).spawn().expect("it starts");
        let pebble = Self { child, port, tree };
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        assert!(wait_until(SOON, || TcpStream::connect(address).is_ok()), "{}", pebble.log());
        Ok(pebble)
    }

    /// The keys of `[acme]` that lead to it.
    pub(super) fn keys(&self) -> String {
        let ca = self.tree.path().join("ca.pem");
        format!(
            "directory = \"https://localhost:{}/dir\"\nca = \"{}\"\nagree-terms = true\n",
            self.port,
            ca.display()
        )
    }

    /// Lets other users read the certificate of its authority.
    pub(super) fn open_to_all(&self) {
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(self.tree.path(), mode).expect("it is ours");
    }

    /// All that it has logged.
    pub(super) fn log(&self) -> String {
        std::fs::read_to_string(self.tree.path().join("log")).unwrap_or_default()
    }

    /// The number of orders that it was asked for and did not refuse because of a nonce.
    pub(super) fn orders(&self) -> usize {
        self.log().lines().filter(|line| line.contains("Added order ")).count()
    }
}

impl Drop for Pebble {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if thread::panicking() {
            let log = self.log();
            let lines: Vec<_> = log.lines().collect();
            eprintln!("pebble:\n{}", lines[lines.len().saturating_sub(40)..].join("\n"));
        }
    }
}

/// Finds the program.
fn program() -> Result<PathBuf, String> {
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let places = std::env::var_os("PATH").unwrap_or_default();
    let mut all = std::env::split_paths(&places)
        .chain([home.join("go/bin"), PathBuf::from("/usr/local/bin")]);
    let found = all.find_map(|place| Some(place.join("pebble")).filter(|path| path.is_file()));
    found.ok_or_else(|| {
        "no pebble: `go install github.com/letsencrypt/pebble/v2/cmd/pebble@latest`".to_owned()
    })
}

/// A port that was free a moment ago, and that the kernel gives to no client: those begin at 32768.
pub(super) fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        // Tests of another process begin elsewhere.
        let number =
            NEXT.fetch_add(1, Ordering::Relaxed).wrapping_add(process::id().wrapping_mul(64));
        let port = 10_000 + u16::try_from(number % 20_000).expect("it is small");
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
}

/// Starts a server for names (RFC 1035), for which each name has the address of this machine and nothing else. Pebble asks
/// it over TCP.
fn names() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let address = listener.local_addr().expect("it is bound");
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            // An asker that goes away asks again.
            thread::spawn(move || while serve_one(&mut stream).is_ok() {});
        }
    });
    address
}

/// Answers one question of a connection.
fn serve_one(stream: &mut TcpStream) -> io::Result<()> {
    let mut len = [0; 2];
    stream.read_exact(&mut len)?;
    let mut query = vec![0; usize::from(u16::from_be_bytes(len))];
    stream.read_exact(&mut query)?;
    let answer = answer(&query).ok_or(io::ErrorKind::InvalidData)?;
    let len = u16::try_from(answer.len()).map_err(io::Error::other)?;
    stream.write_all(&[&len.to_be_bytes()[..], &answer].concat())
}

/// The answer to a question.
fn answer(query: &[u8]) -> Option<Vec<u8>> {
    const HEAD_BYTES: usize = 12;
    let end = HEAD_BYTES + query.get(HEAD_BYTES..)?.iter().position(|byte| *byte == 0)? + 5;
    let question = query.get(HEAD_BYTES..end)?;
    let is_address = question.get(question.len() - 4..)? == [0, 1, 0, 1];
    let mut answer = query.get(..2)?.to_vec();
    // A response, recursive, without an error; one question, and perhaps one answer.
    answer.extend([0x81, 0x80, 0, 1, 0, u8::from(is_address), 0, 0, 0, 0]);
    answer.extend(question);
    if is_address {
        // The name of the question, an address, for no time.
        answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4, 127, 0, 0, 1]);
    }
    Some(answer)
}

/// The path of a file in a storage.
pub(super) fn stored(tree: &Tree, name: &str) -> PathBuf {
    Path::new(tree.path()).join("acme").join(name)
}
