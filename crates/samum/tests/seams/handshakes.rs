//! Handshakes that wait for their turn: floods of them, and what others notice. A step takes the time of the simulation that
//! [`Stage::turn`] lets pass, so the tests count steps and turns.

use core::time::Duration;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use config::{Action, Address, Config, FileRules, Files, Listen, Route};
use handler::serving::Snapshot;
use rcgen::{CertificateParams, KeyPair, PKCS_RSA_SHA256};
use ring::sim::{Peer, World};
use rustls::crypto::aws_lc_rs::{self, kx_group};
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, HandshakeKind};
use samum::crowd::Crowd;
use samum::network::Listeners;
use samum::secure::Secure;
use samum::worker::Worker;
use session::Http1;
use testkit::metrics::Metrics;
use tls::{Pair, Source, WorkerAcceptors};

use crate::options::Options;
use crate::seams::stage::{content, parse_whole};
use crate::seams::tls::{
    HOST, TlsClient, acceptors, acceptors_of, client_config, client_config_of, secure,
};
use crate::seams::world::{Client, Plain, config, parts, pass};

/// The time for a step that the worker takes.
const STEP: Duration = Duration::from_micros(150);
/// The places of the queue.
const PLACES: usize = 1024;
const GET: &str = "GET /small HTTP/1.1\r\nHost: example.org\r\n\r\n";

struct Stage {
    world: World,
    worker: Worker<Http1, Secure<Listeners>>,
    /// The listeners with TLS, and without.
    listeners: [i32; 2],
    /// Clients that have sent a hello and nothing else.
    flood: Vec<Peer>,
    answered: usize,
    hello: Vec<u8>,
}

impl Stage {
    fn new(acceptors: WorkerAcceptors) -> Self {
        let now = Duration::ZERO..=Duration::ZERO;
        let world =
            World::new(ring::sim::Config { network: now.clone(), cancel: now, ..config(1) });
        world.write_file("small", &content(1, 100));
        let mut parts = parts(&world, Options::default());
        parts.listeners.push(parts.ring.sim_listener(&world));
        let listeners = [0, 1].map(|index: usize| parts.listeners[index].raw());
        parts.snapshot = Arc::new(Snapshot::new(&behind_proxies()).expect("a valid configuration"));
        parts.crowd = Crowd::new(10_000);
        let network = secure(Listeners::new(parts.listeners.clone()), acceptors);
        let worker = Worker::over(parts, network).expect("memory");
        Self { world, worker, listeners, flood: Vec::new(), answered: 0, hello: hello() }
    }

    /// A connection of a client with this address.
    fn connect(&self, client: &str) -> Peer {
        let peer = self.world.connect_to(self.listeners[0]);
        let (protocol, server) =
            if client.contains(':') { ("TCP6", "2001:db8::1") } else { ("TCP4", "192.0.2.200") };
        peer.send(format!("PROXY {protocol} {client} {server} 1 443\r\n").as_bytes());
        peer
    }

    /// Sends a hello for each of these clients, and waits until the worker has them all.
    fn flood(&mut self, clients: impl IntoIterator<Item = String>) {
        let mut accepted = self.worker.stats().accepted;
        for client in clients {
            let peer = self.connect(&client);
            peer.send(&self.hello);
            self.flood.push(peer);
            accepted += 1;
        }
        // Bytes come one after the other, a nanosecond apart.
        self.world.compute(Duration::from_micros(100));
        let waits = |peer: &Peer| peer.end().is_none() && peer.unreceived_bytes() > 0;
        while self.worker.stats().accepted < accepted || self.flood.iter().any(waits) {
            let steps = self.turn();
            assert!(steps <= 1, "{steps} steps in a turn");
        }
    }

    /// Runs one worker turn. Returns the number of steps that the flood has got in it.
    fn turn(&mut self) -> usize {
        let until = self.worker.ring().now() + Duration::from_micros(10);
        self.worker.turn(Some(until)).expect("a ring that waits");
        let before = self.answered;
        self.count_answers();
        let steps = self.answered - before;
        // A turn without a step takes some time, too.
        self.world.compute(STEP * u32::try_from(steps).expect("few") + Duration::from_micros(1));
        steps
    }

    fn count_answers(&mut self) {
        self.answered = self.flood.iter().filter(|peer| peer.received_bytes() > 0).count();
    }

    /// A client whose handshake is complete.
    fn client(&mut self, address: &str) -> TlsClient {
        let mut client = TlsClient::new(Rc::new(self.connect(address)), 0);
        self.ask(&mut client);
        client
    }

    /// Runs turns until a client has something. The clock of the world stands still while a worker is busy, so no other
    /// way to wait would do.
    fn turn_until<T>(&mut self, mut look: impl FnMut() -> Option<T>) -> T {
        for _ in 0..100_000 {
            if let Some(found) = look() {
                return found;
            }
            self.turn();
        }
        panic!("nothing comes");
    }

    fn ask(&mut self, client: &mut TlsClient) {
        let before = client.received().len();
        client.send(GET.as_bytes());
        self.turn_until(|| {
            client.look();
            parse_whole(&client.received()[before..])
        });
    }

    fn metrics(&mut self) -> Metrics {
        let mut client = Plain::new(Rc::new(self.world.connect_to(self.listeners[1])), 1);
        client.send(
            b"PROXY TCP4 192.0.2.99 192.0.2.200 1 80\r\nGET /metrics HTTP/1.1\r\nHost: a\r\n\r\n",
        );
        let page = self.turn_until(|| {
            client.look();
            parse_whole(client.received())
        });
        let page = page.body;
        Metrics::parse(&String::from_utf8(page).expect("text")).expect("a valid page")
    }

    /// Handshakes that were refused, and that have failed.
    fn lost(&mut self) -> (f64, f64) {
        let metrics = self.metrics();
        let sum = |name| metrics.sum(name, &[]);
        (sum("samum_tls_handshakes_refused_total"), sum("samum_tls_handshakes_failed_total"))
    }

    fn check_nothing_is_left(mut self) {
        self.flood.clear();
        pass(&mut self.worker, Duration::from_secs(300));
        assert_eq!((self.worker.connections(), self.worker.held()), (0, (0, 0)));
    }
}

/// All connections come by a proxy, which names the client.
fn behind_proxies() -> Config {
    let mut config = Config::default();
    let site = &mut config.sites[0];
    let address = |port: u16| Listen::from(Address::Ip(([127, 0, 0, 1], port).into()));
    let (tls, plain) = (Listen { tls: true, ..address(443) }, address(80));
    site.listen = [tls, plain].map(|listen| Listen { proxy_protocol: true, ..listen }).into();
    let files = Files { root: ".".into(), rules: FileRules::default() };
    site.routes = vec![
        Route { action: Action::Files(files), ..Route::default() },
        Route { path: "/metrics".to_owned(), action: Action::Metrics, ..Route::default() },
    ];
    config.server.trusted_proxies = vec!["10.0.0.0/8".parse().expect("a range")];
    config
}

/// The first message of a client, which each client of a flood sends again.
fn hello() -> Vec<u8> {
    let name = ServerName::try_from(HOST).expect("a name");
    let mut connection = ClientConnection::new(client_config(0), name).expect("a connection");
    let mut bytes = Vec::new();
    connection.write_tls(&mut bytes).expect("a vector");
    bytes
}

/// Settings with a key for RSA: a helper takes the steps.
fn acceptors_with_rsa() -> WorkerAcceptors {
    let key = KeyPair::generate_for(&PKCS_RSA_SHA256).expect("a key");
    let params = CertificateParams::new(vec![HOST.to_owned()]).expect("a name");
    let certificate = params.self_signed(&key).expect("a certificate").pem();
    let text = certificate + &key.serialize_pem();
    let source = Source { path: Path::new("pair.pem"), bytes: text.as_bytes() };
    acceptors_of(Pair::read(source, None).expect("a pair"))
}

fn of_one(count: usize) -> impl Iterator<Item = String> {
    core::iter::repeat_n("198.51.100.1".to_owned(), count)
}

#[test]
fn a_turn_takes_one_step_after_the_requests_of_others() {
    let mut stage = Stage::new(acceptors());
    let mut client = stage.client("192.0.2.1");
    stage.flood(of_one(300));
    let mut turns = 0;
    while stage.answered < 300 {
        client.send(GET.as_bytes());
        let before = client.received().len();
        for turn in 0.. {
            assert!(turn < 4, "a request has waited for {turn} turns");
            let steps = stage.turn();
            assert!(steps <= 1, "{steps} steps in a turn");
            client.look();
            if client.received().len() > before {
                break;
            }
        }
        turns += 1;
        assert!(turns < 1000, "the handshakes do not go on: {}", stage.answered);
    }
    assert_eq!(stage.lost(), (0.0, 0.0));
    drop(client);
    stage.check_nothing_is_left();
}

#[test]
fn a_newcomer_waits_for_one_step_of_each_other_client() {
    let mut stage = Stage::new(acceptors());
    stage.flood((0..64 * 15).map(|number| format!("198.51.100.{}", number % 64)));
    // IPv6 addresses of one /64 are one client.
    stage.flood((0..50).map(|number| format!("2001:db8::1:{number}")));
    let before = stage.answered;
    assert!(before < 500, "{before}");
    let mut newcomer = TlsClient::new(Rc::new(stage.connect("192.0.2.1")), 0);
    newcomer.send(GET.as_bytes());
    for turn in 0.. {
        assert!(turn < 150, "it has waited for {turn} turns");
        stage.turn();
        newcomer.look();
        if !newcomer.received().is_empty() {
            break;
        }
    }
    // Some turns are for its bytes, before and after its step. In order of arrival it would be the last.
    assert!(stage.answered - before < 130, "{} steps of others", stage.answered - before);
    assert_eq!(stage.lost(), (0.0, 0.0));
    drop(newcomer);
    stage.check_nothing_is_left();
}

#[test]
fn what_a_client_asks_for_beyond_its_share_is_refused_and_counted() {
    let mut stage = Stage::new(acceptors());
    // From now on the file is in memory.
    drop(stage.client("192.0.2.1"));
    stage.flood(of_one(3 * PLACES));
    for _ in 0..200 {
        stage.turn();
    }
    let ended = stage.flood.iter().filter(|peer| peer.end().is_some()).count();
    let waiting = stage.flood.len() - stage.answered - ended;
    assert!(ended > PLACES / 2 && (500..PLACES).contains(&waiting), "{ended} {waiting}");
    assert_eq!(stage.lost(), (ended as f64, 0.0));
    // There is a place for another client, whose turn comes soon.
    stage.flood(of_one(PLACES));
    drop(stage.client("192.0.2.1"));
    let ended = stage.flood.iter().filter(|peer| peer.end().is_some()).count();
    assert!(stage.flood.len() - stage.answered - ended > 300, "the others wait");
    stage.check_nothing_is_left();
}

#[test]
fn who_leaves_gives_back_the_place() {
    let mut stage = Stage::new(acceptors());
    stage.flood(of_one(PLACES));
    stage.flood.clear();
    stage.answered = 0;
    while stage.worker.connections() > 0 {
        stage.turn();
    }
    assert_eq!(stage.lost(), (0.0, PLACES as f64));
    stage.flood(of_one(PLACES));
    assert_eq!(stage.lost().0, 0.0);
    stage.check_nothing_is_left();
}

#[test]
fn a_client_that_goes_on_to_send_while_it_waits_is_closed() {
    let mut stage = Stage::new(acceptors());
    stage.flood(of_one(500));
    stage.flood(of_one(1));
    let sender = stage.flood.len() - 1;
    stage.flood[sender].send(&[22, 3, 3, 0x40, 0]);
    for _ in 0..15 {
        stage.flood[sender].send(&[0; 2000]);
        stage.turn();
    }
    assert!(stage.flood[sender].end().is_some());
    assert!(stage.flood[sender].received_bytes() == 0);
    assert_eq!(stage.lost(), (0.0, 1.0));
    stage.check_nothing_is_left();
}

#[test]
fn a_helper_takes_the_steps_with_rsa() {
    let mut stage = Stage::new(acceptors_with_rsa());
    for version in 0..2 {
        let peer = Rc::new(stage.connect("192.0.2.1"));
        let mut client = TlsClient::new(peer, version);
        stage.ask(&mut client);
        stage.ask(&mut client);
    }
    stage.flood(of_one(50));
    // A newcomer waits for what the helper has and for one more; without turns a helper would take them in order.
    stage.turn();
    let mut newcomer = TlsClient::new(Rc::new(stage.connect("192.0.2.2")), 0);
    stage.ask(&mut newcomer);
    stage.turn();
    assert!(stage.answered <= 6, "{} before the newcomer", stage.answered);
    pass(&mut stage.worker, Duration::from_secs(2));
    stage.turn();
    assert_eq!(stage.answered, 50);
    drop(newcomer);
    stage.check_nothing_is_left();
}

#[test]
fn a_step_that_waits_for_too_long_is_refused() {
    let mut stage = Stage::new(acceptors_with_rsa());
    let latency = Duration::from_millis(200);
    stage.world.configure(|config| config.disk = latency..=latency);
    stage.flood(of_one(100));
    pass(&mut stage.worker, Duration::from_secs(4));
    assert!(stage.flood.iter().all(|peer| peer.end().is_none()));
    pass(&mut stage.worker, Duration::from_secs(2));
    stage.turn();
    let ended = stage.flood.iter().filter(|peer| peer.end().is_some()).count();
    // The helper has two at a time.
    assert!((20..=60).contains(&stage.answered), "{}", stage.answered);
    assert_eq!(ended, 100 - stage.answered);
    assert_eq!(stage.lost(), (ended as f64, 0.0));
    stage.check_nothing_is_left();
}

#[test]
fn a_second_hello_waits_for_its_turn_too() {
    let mut provider = aws_lc_rs::default_provider();
    provider.kx_groups = vec![kx_group::SECP256R1MLKEM768, kx_group::X25519];
    let config = client_config_of(provider, &rustls::version::TLS13);
    let mut stage = Stage::new(acceptors());
    let peer = Rc::new(stage.connect("198.51.100.1"));
    let mut client = TlsClient::with(Rc::clone(&peer), config);
    stage.turn_until(|| (peer.received_bytes() > 0).then_some(()));
    stage.flood(of_one(600));
    let waiting = stage.flood.len() - stage.answered;
    // Now it sends the second one, which waits in the line of the flood.
    client.look();
    assert_eq!(client.kind(), Some(HandshakeKind::FullWithHelloRetryRequest));
    stage.ask(&mut client);
    let left = stage.flood.len() - stage.answered;
    assert!(waiting > 100 && left < 10, "{waiting} before the second hello, {left} behind");
    drop(client);
    stage.check_nothing_is_left();
}
