use core::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::rc::Rc;
use std::sync::Arc;

use outq::OutQ;
use proptest::prelude::*;
use rustls::server::ServerSessionMemoryCache;
use rustls::version::{TLS12, TLS13};
use rustls::{ServerConfig, ServerConnection, SupportedProtocolVersion};
use sendfile::{Account, Piece};

use super::day::day;
use super::*;
use crate::buffers::bounds;
use crate::pair::Pair;
use crate::provider::provider;
use crate::testing::{Authority, params, read, source};

/// An authority with a server, and settings that trust it.
struct Stage {
    settings: ClientSettings,
    server: Arc<ServerConfig>,
    buffers: Rc<ClientBuffers>,
    /// The account to which the memory of connections is charged.
    account: Account,
}

impl Stage {
    fn new(version: &'static SupportedProtocolVersion) -> Self {
        let authority = Authority::new("root");
        let (certificate, key) = authority.issue(&params("app", &["app.test"]));
        let pair = read(&[&certificate, &key.serialize_pem()]).unwrap();
        let roots = Roots::read(source("ca.pem", authority.certificate.as_bytes())).unwrap();
        let settings = ClientSettings::new(Some(&roots), None).unwrap();
        let account = Account::default();
        let buffers = ClientBuffers::charged_to(&account);
        Self { settings, server: server(&pair, version), buffers, account }
    }

    fn connect(&self) -> (ClientConnection, ServerConnection) {
        let name = ServerName::new("app.test").unwrap();
        let client = ClientConnection::new(&self.settings, &name, &self.buffers);
        (client, ServerConnection::new(Arc::clone(&self.server)).unwrap())
    }

    /// A connection after its handshake.
    fn shaken(&self) -> (ClientConnection, ServerConnection) {
        let (mut client, mut server) = self.connect();
        shake(&mut client, &mut server, usize::MAX).unwrap();
        (client, server)
    }
}

fn server(pair: &Pair, version: &'static SupportedProtocolVersion) -> Arc<ServerConfig> {
    let builder = ServerConfig::builder_with_provider(provider());
    let builder = builder.with_protocol_versions(core::slice::from_ref(&version)).unwrap();
    let certified = Arc::new(rustls::sign::SingleCertAndKey::from(pair.certified()));
    let mut config = builder.with_no_client_auth().with_cert_resolver(certified);
    config.session_storage = ServerSessionMemoryCache::new(16);
    config.send_half_rtt_data = true;
    Arc::new(config)
}

/// Takes the records that have to leave.
fn leave(records: &mut OutQ<Piece>) -> Vec<u8> {
    let mut all = Vec::new();
    for chunk in records.next_ready() {
        all.extend_from_slice(&chunk.payload.bytes()[bounds(&chunk.range)]);
    }
    records.mark_sent(all.len() as u64);
    records.mark_released(all.len() as u64);
    all
}

fn feed(server: &mut ServerConnection, mut bytes: &[u8]) -> Result<(), rustls::Error> {
    while !bytes.is_empty() {
        server.read_tls(&mut bytes).unwrap();
        server.process_new_packets()?;
    }
    Ok(())
}

fn records_of(server: &mut ServerConnection) -> Vec<u8> {
    let mut records = Vec::new();
    while server.wants_write() {
        server.write_tls(&mut records).unwrap();
    }
    records
}

/// Completes a handshake, whose bytes come to the client in parts of at most `part` bytes.
fn shake(
    client: &mut ClientConnection,
    server: &mut ServerConnection,
    part: usize,
) -> Result<(), ClientFault> {
    let mut is_complete = client.step()?;
    for _ in 0..5 {
        let _ = feed(server, &leave(client.records()));
        for bytes in records_of(server).chunks(part) {
            client.handle_received(bytes);
            is_complete |= client.step()?;
        }
    }
    assert!(is_complete && client.is_open());
    assert!(!server.is_handshaking());
    Ok(())
}

fn queue_of(pieces: &[&[u8]]) -> OutQ<Piece> {
    let mut queue = OutQ::new();
    for piece in pieces {
        queue.push(Piece::Bytes(piece.to_vec()));
    }
    queue
}

/// Seals a stream completely.
fn seal(client: &mut ClientConnection, queue: &mut OutQ<Piece>) -> Vec<u8> {
    let mut all = leave(client.records());
    while client.seal(queue) {
        all.extend(leave(client.records()));
    }
    all
}

fn received(server: &mut ServerConnection) -> Vec<u8> {
    let mut plain = Vec::new();
    if let Err(error) = io::Read::read_to_end(&mut server.reader(), &mut plain) {
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    }
    plain
}

const VERSIONS: [&SupportedProtocolVersion; 2] = [&TLS13, &TLS12];

#[test]
fn a_handshake_may_come_in_parts_of_any_size() {
    for version in VERSIONS {
        let stage = Stage::new(version);
        for part in [1, 5, 6, 100, 1000, usize::MAX] {
            let (mut client, mut server) = stage.connect();
            assert!(!client.is_open() && client.sent() == 0);
            shake(&mut client, &mut server, part).unwrap();
            assert_eq!(server.server_name(), Some("app.test"));
            let mut queue = queue_of(&[b"GET / ", b"HTTP/1.1"]);
            feed(&mut server, &seal(&mut client, &mut queue)).unwrap();
            assert_eq!(received(&mut server), b"GET / HTTP/1.1");
            assert!(client.sent() > 14 && client.unsent() == 0 && queue.is_drained());
            client.say_end();
            feed(&mut server, &leave(client.records())).unwrap();
            assert_eq!(server.reader().into_first_chunk().unwrap(), b"", "the end was said");
        }
    }
}

#[test]
fn bytes_behind_the_handshake_are_news() {
    let stage = Stage::new(&TLS13);
    let (mut client, mut server) = stage.connect();
    assert!(!client.step().unwrap());
    feed(&mut server, &leave(client.records())).unwrap();
    // The server does not wait for the end of the handshake.
    io::Write::write_all(&mut server.writer(), b"early").unwrap();
    server.send_close_notify();
    client.handle_received(&records_of(&mut server));
    assert!(!client.has_news());
    assert!(client.step().unwrap());
    assert!(client.has_news());
    assert_eq!(&*client.take_plain().unwrap(), b"early");
    assert_eq!(*client.end(), End::Ended);
    assert!(client.has_news() && client.take_plain().is_none());
}

#[test]
fn what_a_connection_holds_for_its_caller_is_charged() {
    for version in VERSIONS {
        let stage = Stage::new(version);
        let charged = || stage.account.charged();
        let (mut client, mut server) = stage.connect();
        assert_eq!(charged(), 0);
        assert!(!client.step().unwrap());
        feed(&mut server, &leave(client.records())).unwrap();
        client.handle_received(&records_of(&mut server));
        assert!(charged() > 0, "a step waits");
        drop((client, server));
        assert_eq!(charged(), 0);

        let (mut client, mut server) = stage.shaken();
        assert_eq!(charged(), 0, "an idle connection");
        server.set_buffer_limit(None);
        io::Write::write_all(&mut server.writer(), &[b'x'; 60_000]).unwrap();
        let records = records_of(&mut server);
        let (most, rest) = records.split_at(records.len() - 5_000);
        client.handle_received(most);
        // Three records and a part of the fourth.
        assert!((50_000..200_000).contains(&charged()), "{}", charged());
        let plain = client.take_plain().unwrap();
        assert!((5_800..40_000).contains(&charged()), "a part of a record: {}", charged());
        drop(plain);
        client.handle_received(rest);
        drop(client.take_plain());
        assert_eq!(charged(), 0);

        // Bytes for which the caller has no room.
        io::Write::write_all(&mut server.writer(), &[b'x'; 16_000]).unwrap();
        let records = records_of(&mut server);
        let mut room = [0; 10];
        let receive = |buffer: &mut [u8]| {
            buffer[..records.len()].copy_from_slice(&records);
            Ok(records.len())
        };
        assert_eq!(client.receive(&mut room, receive).unwrap(), 10);
        assert!(charged() >= 15_990, "{}", charged());
        let none = |_: &mut [u8]| Err(io::ErrorKind::WouldBlock.into());
        let mut room = vec![0; 20_000];
        assert_eq!(client.receive(&mut room, none).unwrap(), 15_990);
        assert_eq!(charged(), 0);
        // The memory that the worker keeps for all is its own.
        assert!(client.receive(&mut room, none).is_err());
        assert_eq!(charged(), 0);
    }
}

#[test]
fn a_session_is_resumed_and_other_settings_have_other_sessions() {
    for version in VERSIONS {
        let stage = Stage::new(version);
        let kind = |settings: &ClientSettings| {
            let (_, mut server) = stage.connect();
            let name = ServerName::new("app.test").unwrap();
            let mut client = ClientConnection::new(settings, &name, &stage.buffers);
            shake(&mut client, &mut server, usize::MAX).unwrap();
            server.handshake_kind() == Some(rustls::HandshakeKind::Resumed)
        };
        assert!(!kind(&stage.settings));
        assert!(kind(&stage.settings) && kind(&stage.settings), "{version:?}");
        let other = ClientSettings::new(None, None).unwrap();
        assert!(other != stage.settings && !kind(&other));
    }
}

#[test]
fn the_end_of_the_socket_is_no_end_of_the_bytes() {
    for version in VERSIONS {
        let stage = Stage::new(version);
        let (mut client, mut server) = stage.shaken();
        io::Write::write_all(&mut server.writer(), b"bytes").unwrap();
        let records = records_of(&mut server);
        // A record that has come in part, and one that was never begun.
        for cut in [0, 1] {
            let (mut client, mut other) = stage.shaken();
            io::Write::write_all(&mut other.writer(), b"bytes").unwrap();
            let records = records_of(&mut other);
            client.handle_received(&records[..records.len() - cut]);
            client.handle_end();
            assert_eq!(client.take_plain().is_some(), cut == 0);
            assert_eq!(*client.end(), End::Failed(ClientFault::Truncated));
        }
        client.handle_received(&records);
        server.send_close_notify();
        client.handle_received(&records_of(&mut server));
        client.handle_end();
        assert_eq!(*client.end(), End::Ended);
        // After a fault nothing is sealed any more.
        let (mut client, _) = stage.shaken();
        leave(client.records());
        client.handle_received(&[23, 3, 3, 0, 30]);
        client.handle_received(&[7; 30]);
        assert!(matches!(client.end(), End::Failed(ClientFault::Record(_))));
        assert!(!leave(client.records()).is_empty(), "an alert");
        assert!(!client.seal(&mut queue_of(&[b"more"])));
    }
}

#[test]
fn what_is_wrong_with_a_certificate_is_told_in_words() {
    let authority = Authority::new("root");
    let roots = Roots::read(source("ca.pem", authority.certificate.as_bytes())).unwrap();
    let settings = ClientSettings::new(Some(&roots), None).unwrap();
    let other = Authority::new("other");
    let fault = |settings: &ClientSettings, issuer: &Authority, names: &[&str], name: &str| {
        let (certificate, key) = issuer.issue(&params("app", names));
        let pair = read(&[&certificate, &key.serialize_pem()]).unwrap();
        let (buffers, name) = (Rc::default(), ServerName::new(name).unwrap());
        let mut client = ClientConnection::new(settings, &name, &buffers);
        let mut server = ServerConnection::new(server(&pair, &TLS13)).unwrap();
        let told = shake(&mut client, &mut server, usize::MAX).err().map(|it| it.to_string());
        assert!(told.is_none() || !client.is_open());
        told
    };
    for (issuer, names, name, expected) in [
        (&authority, &["app.test"][..], "app.test", None),
        (&authority, &["*.app.test"], "x.app.test", None),
        (&authority, &["10.0.0.5"], "10.0.0.5", None),
        (&authority, &["app.test"], "10.0.0.5", Some("is for app.test and not for 10.0.0.5")),
        (&authority, &["a.b.c.d"], "x.y", Some("is for a.b.c.d and not for x.y")),
        (&other, &["app.test"], "app.test", Some("issued by CN=other")),
    ] {
        let told = fault(&settings, issuer, names, name);
        match expected {
            None => assert_eq!(told, None),
            Some(part) => assert!(told.as_ref().unwrap().contains(part), "{told:?}"),
        }
    }
    let any = ClientSettings::new(None, None).unwrap();
    assert_eq!(fault(&any, &other, &["x"], "app.test"), None);
    for text in ["app.test", "10.0.0.5", "::1", "a_b.test"] {
        assert!(ServerName::new(text).is_some(), "{text}");
    }
    for text in ["", "a b", "-.-", "a..b", "[::1]"] {
        assert!(ServerName::new(text).is_none(), "{text}");
    }
}

#[test]
fn settings_are_the_same_if_they_trust_the_same_and_show_the_same() {
    let [one, two] = ["one", "two"].map(Authority::new);
    let roots = |all: &[&Authority]| {
        let text: String = all.iter().map(|authority| authority.certificate.as_str()).collect();
        Roots::read(source("ca.pem", text.as_bytes())).unwrap()
    };
    let (certificate, key) = one.issue(&params("it", &["it"]));
    let pair = read(&[&certificate, &key.serialize_pem()]).unwrap();
    let all: Vec<_> = [
        (Some(roots(&[&one])), None),
        (Some(roots(&[&two])), None),
        (Some(roots(&[&one, &two])), None),
        (Some(roots(&[&one])), Some(&pair)),
        (None, None),
        (None, Some(&pair)),
    ]
    .into_iter()
    .map(|(roots, pair)| {
        let make = || ClientSettings::new(roots.as_ref(), pair).unwrap();
        assert!(make() == make());
        make()
    })
    .collect();
    for (index, one) in all.iter().enumerate() {
        assert_eq!(all.iter().filter(|other| *other == one).count(), 1, "{index}");
    }
    assert!(Roots::read(source("ca.pem", b"no certificate")).is_err());
    assert!(Roots::read_system(source("roots.pem", b"")).is_err());
}

#[test]
fn days_are_those_of_the_calendar() {
    for (seconds, expected) in [
        (0, "1970-01-01"),
        (86_399, "1970-01-01"),
        (951_782_400, "2000-02-29"),
        (951_868_800, "2000-03-01"),
        (1_782_907_200, "2026-07-01"),
        (4_107_542_400, "2100-03-01"),
        (253_402_300_799, "9999-12-31"),
    ] {
        assert_eq!(day(seconds), expected);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever the sizes are, each byte comes once and in order, by either way to receive.
    #[test]
    fn bytes_come_in_order_by_both_ways(
        is_tls13: bool,
        sizes in proptest::collection::vec(0..40_000_usize, 1..6),
        steps in proptest::collection::vec((1..70_000_usize, 1..50_000_usize, any::<bool>()), 1..12),
        renews: bool,
    ) {
        let stage = Stage::new(if is_tls13 { &TLS13 } else { &TLS12 });
        let (mut client, mut server) = stage.shaken();
        let mut sent = Vec::new();
        let mut incoming = VecDeque::new();
        for (number, size) in (0_u8..).zip(&sizes) {
            let bytes = vec![number; *size];
            io::Write::write_all(&mut server.writer(), &bytes).unwrap();
            sent.extend(bytes);
            incoming.extend(records_of(&mut server));
            if renews && is_tls13 {
                server.refresh_traffic_keys().unwrap();
            }
        }
        server.send_close_notify();
        incoming.extend(records_of(&mut server));
        let incoming = RefCell::new(incoming);
        let mut plain: Vec<u8> = Vec::new();
        for (most, room, is_pulled) in steps.iter().cycle() {
            if *is_pulled {
                let mut room = vec![0; *room];
                let received = client.receive(&mut room, |records| {
                    let mut incoming = incoming.borrow_mut();
                    let count = (*most).min(records.len()).min(incoming.len());
                    if count == 0 {
                        return Err(io::ErrorKind::WouldBlock.into());
                    }
                    for (place, byte) in records.iter_mut().zip(incoming.drain(..count)) {
                        *place = byte;
                    }
                    Ok(count)
                });
                match received {
                    Ok(0) => break,
                    Ok(count) => plain.extend(&room[..count]),
                    Err(error) => prop_assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
                }
            } else {
                let part: Vec<u8> = {
                    let mut incoming = incoming.borrow_mut();
                    let count = (*most).min(incoming.len());
                    incoming.drain(..count).collect()
                };
                client.handle_received(&part);
                if let Some(bytes) = client.take_plain() {
                    plain.extend(&*bytes);
                }
                if *client.end() == End::Ended && !client.records().is_drained() {
                    leave(client.records());
                }
                if *client.end() == End::Ended {
                    break;
                }
            }
        }
        if let Some(bytes) = client.take_plain() {
            plain.extend(&*bytes);
        }
        prop_assert!(plain == sent, "{} of {}", plain.len(), sent.len());
        prop_assert_eq!(client.end(), &End::Ended);
    }
}
