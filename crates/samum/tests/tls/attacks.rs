//! Clients that misuse handshakes, while another client is served.

use core::net::SocketAddr;
use core::time::Duration;
use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::thread;
use std::time::Instant;

use testkit::{Server, Tree};

use super::{Authority, TlsClient};
use crate::common::{SOON, on_both_drivers, serve_config, tcp_address};

/// The time that a client has for its handshake here.
const HEADER: Duration = Duration::from_secs(2);
/// Connections of one attack.
const MANY: usize = 200;

/// A server whose clients have [`HEADER`] for their handshake, and a client that the others must not disturb.
struct Scene {
    server: Server,
    victim: TlsClient,
    _tree: Tree,
}

impl Scene {
    fn new(driver: &str) -> Self {
        let authority = Authority::new();
        let tree = Tree::new().file("www/index.html", "the page");
        authority.issue(&["a.example"]).put(&tree, "a");
        let text = format!(
            "[server]\ndriver = \"{driver}\"\nthreads = 1\ntimeout-header = \"{}s\"\n\n[[site]]\n\
             listen = [{{ address = \"127.0.0.1:0\", tls = true }}]\nhosts = [\"a.example\"]\n\
             tls = {{ certificate = \"a.pem\", key = \"a.key\" }}\n\n[[site.route]]\nfiles = \"www\"\n",
            HEADER.as_secs()
        );
        let server = serve_config(&tree, &text);
        let victim = authority.connect(tcp_address(&server), "a.example").expect("a handshake");
        Self { server, victim, _tree: tree }
    }

    fn address(&self) -> SocketAddr {
        tcp_address(&self.server)
    }

    /// The client that was there before the attack is served.
    #[track_caller]
    fn check_victim(&mut self) {
        let body = self.victim.get("a.example", "/").expect("a response");
        assert_eq!(body, b"the page");
    }
}

fn connect(address: SocketAddr) -> TcpStream {
    let socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(SOON)).unwrap();
    socket
}

/// What the server says until it closes. A reset is an end, too.
fn rest(mut socket: &TcpStream) -> Vec<u8> {
    let mut said = Vec::new();
    match socket.read_to_end(&mut said) {
        Ok(_) => said,
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => said,
        Err(error) => panic!("the server does not close: {error}"),
    }
}

/// A length of `bytes` bytes, and the content.
fn with_length(bytes: usize, content: &[u8]) -> Vec<u8> {
    [&content.len().to_be_bytes()[8 - bytes..], content].concat()
}

fn extension(number: u16, content: &[u8]) -> Vec<u8> {
    [&number.to_be_bytes()[..], &with_length(2, content)].concat()
}

/// The first message of a client in one record (RFC 8446 §4.1.2), with a key for X25519. `name` is the server's name, and
/// `padding` the length of an extension that nobody knows.
fn hello(name: &[u8], padding: usize) -> Vec<u8> {
    let name = [&[0][..], &with_length(2, name)].concat();
    // A point of small order is refused; 9 is the base point.
    let mut share = vec![0; 32];
    share[0] = 9;
    let share = [&[0, 0x1d][..], &with_length(2, &share)].concat();
    let extensions = [
        extension(0, &with_length(2, &name)),
        extension(10, &with_length(2, &[0, 0x1d])),
        extension(13, &with_length(2, &[4, 3, 8, 4])),
        extension(43, &with_length(1, &[3, 4])),
        extension(51, &with_length(2, &share)),
        extension(0xfafa, &vec![0; padding]),
    ];
    let body = [
        &[3, 3][..],
        &[7; 32],
        &with_length(1, &[]),
        &with_length(2, &[0x13, 1]),
        &with_length(1, &[0]),
        &with_length(2, &extensions.concat()),
    ];
    let message = [&[1][..], &with_length(3, &body.concat())].concat();
    [&[22, 3, 1][..], &with_length(2, &message)].concat()
}

/// The type of a record with an alert, and of one with a message of the handshake.
const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;

#[test]
fn half_handshakes_end_with_their_time() {
    on_both_drivers(|driver| {
        let mut scene = Scene::new(driver);
        let whole = hello(b"a.example", 0);
        let parts = [0, 1, 4, 5, 6, whole.len() / 2, whole.len() - 1];
        let started = Instant::now();
        let sockets: Vec<_> = (0..MANY)
            .map(|number| {
                let mut socket = connect(scene.address());
                socket.write_all(&whole[..parts[number % parts.len()]]).unwrap();
                socket
            })
            .collect();
        // The whole message, and then nothing: the server has answered and waits.
        let silent: Vec<_> = (0..MANY)
            .map(|_| {
                let mut socket = connect(scene.address());
                socket.write_all(&whole).unwrap();
                socket
            })
            .collect();
        // A byte a second is no progress.
        let mut slow = connect(scene.address());
        for byte in &whole {
            scene.check_victim();
            if slow.write_all(core::slice::from_ref(byte)).is_err() {
                break;
            }
            thread::sleep(Duration::from_millis(100));
        }
        assert!(rest(&slow).is_empty(), "it had no whole message");
        let took = started.elapsed();
        assert!(took < 3 * HEADER, "a byte at a time was borne for {took:?}");
        sockets.iter().for_each(|socket| assert!(rest(socket).is_empty()));
        for socket in &silent {
            assert_eq!(rest(socket).first(), Some(&HANDSHAKE), "the server's first message");
        }
        scene.check_victim();
    });
}

#[test]
fn first_messages_that_are_too_long_or_none_are_refused_at_once() {
    on_both_drivers(|driver| {
        let mut scene = Scene::new(driver);
        let endless =
            [&[HANDSHAKE, 3, 1, 0x40, 0, 1, 0xff, 0xff, 0xff][..], &[0; 0x4000 - 4]].concat();
        let alert = [ALERT, 3, 3, 0, 2, 2, 10];
        let cases = [
            ("a message of 16 MiB", endless.repeat(2)),
            ("an alert", alert.to_vec()),
            ("a record of no type", [[99, 3, 3, 0, 1, 0]].concat()),
            ("a record that is too long", [&[HANDSHAKE, 3, 1, 0xff, 0xff][..], &[1; 99]].concat()),
            ("another message", [HANDSHAKE, 3, 1, 0, 4, 2, 0, 0, 0].to_vec()),
            ("empty records", [HANDSHAKE, 3, 1, 0, 0].repeat(100)),
            ("the end of TLS before its beginning", [20, 3, 3, 0, 1, 1].repeat(100)),
        ];
        for (what, bytes) in cases {
            let mut socket = connect(scene.address());
            let started = Instant::now();
            // The server may close before it has taken everything.
            let _ = socket.write_all(&bytes);
            let said = rest(&socket);
            assert!(said.first().is_none_or(|first| *first == ALERT), "{what}: {said:?}");
            assert!(started.elapsed() < HEADER, "{what}: not before its time was over");
            scene.check_victim();
        }
    });
}

/// A message may be split as the client likes (RFC 8446 §5.1).
#[test]
fn a_first_message_in_records_of_one_byte_is_answered() {
    on_both_drivers(|driver| {
        let scene = Scene::new(driver);
        let whole = hello(b"a.example", 0);
        let records: Vec<u8> =
            whole[5..].iter().flat_map(|byte| [HANDSHAKE, 3, 1, 0, 1, *byte]).collect();
        let mut socket = connect(scene.address());
        socket.write_all(&records).unwrap();
        let mut answer = [0];
        socket.read_exact(&mut answer).unwrap();
        assert_eq!(answer[0], HANDSHAKE, "not the server's first message");
    });
}

/// Names that are none get the default site's certificate or an alert, and never more.
#[test]
fn names_of_servers_that_are_none_do_no_harm() {
    on_both_drivers(|driver| {
        let mut scene = Scene::new(driver);
        let labels = |count: usize| vec!["a"; count].join(".").into_bytes();
        let names = [
            Vec::new(),
            labels(127),
            labels(128),
            labels(255),
            vec![b'a'; 64],
            vec![b'a'; 8_000],
            b"..".to_vec(),
            b"a.example\0".to_vec(),
            b"127.0.0.1".to_vec(),
            vec![0xff; 9],
            b"a.example\r\nHost: b".to_vec(),
        ];
        for name in names {
            let mut socket = connect(scene.address());
            socket.write_all(&hello(&name, 0)).unwrap();
            let mut first = [0];
            // After its first message the server waits for the client's.
            let is_closed = socket.read(&mut first).is_ok_and(|len| len == 0);
            let is_known = is_closed || [ALERT, HANDSHAKE].contains(&first[0]);
            assert!(is_known, "{:?}: {first:?}", name.escape_ascii().to_string());
            scene.check_victim();
        }
    });
}

/// Clients that read nothing: neither the server's messages, nor the alert for what they say then.
#[test]
fn clients_that_never_read_their_alert_are_closed() {
    on_both_drivers(|driver| {
        let mut scene = Scene::new(driver);
        let sockets: Vec<_> = (0..MANY)
            .map(|_| {
                let mut socket = connect(scene.address());
                socket.write_all(&hello(b"a.example", 8_000)).unwrap();
                // No record can be opened that is sealed with no key.
                let _ = socket.write_all(&[&[23, 3, 3, 0x10, 0][..], &[0; 0x1000]].concat());
                socket
            })
            .collect();
        scene.check_victim();
        for socket in &sockets {
            assert_eq!(rest(socket).first(), Some(&HANDSHAKE));
        }
        scene.check_victim();
    });
}
