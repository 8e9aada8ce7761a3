//! A budget that is not exceeded, whatever clients, servers, applications and pages with includes do, in any order.

use core::ops::Range;

use config::{Fastcgi, FileRules, Files};
use testkit::Random;

use super::turns::record;
use super::*;
use crate::seams::world::for_seeds_of;

/// The budget of the worker.
const BUDGET: u64 = 1024 * 1024;
const BUFFER: u64 = 64 * 1024;
/// Bytes beyond the budget that a connection may hold: its own budget, for the worker counts it again when it has acted;
/// what the stream has of the one request that it may always have under way; and, if that is for a page, what comes in
/// one step for each of its eight holes before their turn.
const ONE: u64 = (128 + 64 + 8 * 20) * 1024;
const CLIENTS: usize = 40;
/// Bytes of the longest contents.
const LONG: usize = 300_000;
/// Bytes that the socket of a client receives.
const SOCKET: usize = 8 * 1024;
/// Bytes that may be received for a client that has left, so that the connection to its server can be kept, and before it
/// has left.
const DROPPED: usize = 16 * 64 * 1024;

/// The server of the application.
const APPLICATION: &str = "127.0.0.1:9001";
/// Pages that include those with greater numbers, and what the others make.
const PAGES: usize = 5;
/// Bytes of the body of a request to the application.
const BODY: usize = 20_000;

/// The seeds of the worlds: a few, or `SAMUM_SEEDS`, which is a number or a range (`5000..10000`).
fn seeds() -> Range<u64> {
    let Ok(text) = std::env::var("SAMUM_SEEDS") else { return 0..10 };
    let number = |text: &str| text.parse().expect("a number");
    match text.split_once("..") {
        Some((from, to)) => number(from)..number(to),
        None => 0..number(&text),
    }
}

/// A client, the requests that it has sent, and the bytes that it has read.
struct Eager {
    peer: Peer,
    reads: bool,
    read: usize,
}

/// The end of a connection that a server or an application has, the bytes that it has sent, and the parts of a content
/// that it has still to send.
struct Giver {
    peer: Peer,
    is_application: bool,
    sent: usize,
    left: Vec<Vec<u8>>,
}

impl Giver {
    fn new(peer: Peer, is_application: bool) -> Self {
        Self { peer, is_application, sent: 0, left: Vec::new() }
    }

    /// Takes the next request, if it is complete.
    fn take_request(&self) -> bool {
        let received = self.peer.received();
        let is_complete = match self.is_application {
            // The end of the content.
            true => received.windows(8).any(|record| record == [1, 5, 0, 1, 0, 0, 0, 0]),
            false => split(&received).is_some(),
        };
        if is_complete {
            let _ = self.peer.take();
        }
        is_complete
    }

    /// Answers the next request, if there is one, in one of the forms that contents have.
    fn answer(&mut self, chance: &mut Random) {
        if !self.left.is_empty() || !self.take_request() {
            return;
        }
        let size = [10, 5_000, 30_000, LONG][chance.below(4)];
        let content = vec![b'x'; size];
        // The longest content of a record.
        let most = if self.is_application { 65_535 } else { LONG };
        let parts = content.chunks(size.div_ceil(1 + chance.below(5)).min(most));
        self.left = if self.is_application {
            let records = parts.map(|part| record(6, part));
            let head = record(6, b"Content-Type: a/b\r\n\r\n");
            [head].into_iter().chain(records).chain([record(3, &[0; 8])]).collect()
        } else if chance.one_in(2) {
            let chunk =
                |part: &[u8]| [format!("{:x}\r\n", part.len()).as_bytes(), part, b"\r\n"].concat();
            let head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
            [head].into_iter().chain(parts.map(chunk)).chain([b"0\r\n\r\n".to_vec()]).collect()
        } else {
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {size}\r\n\r\n").into_bytes();
            [head].into_iter().chain(parts.map(<[u8]>::to_vec)).collect()
        };
        self.left.reverse();
    }

    fn send(&mut self) {
        if let Some(part) = self.left.pop() {
            self.sent += part.len();
            self.peer.send(&part);
        }
    }

    /// Bytes that the worker has received.
    fn received(&self) -> usize {
        self.sent - self.peer.unreceived_bytes()
    }
}

/// Adds an application at `/app/` to a site, and pages at `/pages/`.
fn add_routes(site: &mut Site) {
    let Action::Proxy(upstream) = &site.routes[0].action else { unreachable!("it is one") };
    let servers = vec![upstream::server(&format!("http://{APPLICATION}")).expect("a server")];
    let application = Fastcgi {
        upstream: Upstream { servers, ..upstream.clone() },
        files: None,
        root: Some("/none".into()),
        keeps_connections: false,
        environment: Vec::new(),
    };
    let rules = FileRules { includes: true, ..FileRules::default() };
    let pages = Files { root: "/srv".into(), rules };
    for (path, action) in
        [("/app/", Action::Fastcgi(application)), ("/pages/", Action::Files(pages))]
    {
        site.routes.push(Route { path: path.to_owned(), action, ..Route::default() });
    }
}

/// Writes pages that set long variables, and include other pages, a long file, and what servers and the application make.
fn write_pages(world: &World, chance: &mut Random) {
    world.make_dir("srv");
    world.write_file("srv/long.txt", &[b'y'; LONG]);
    for page in 0..PAGES {
        let mut text = String::new();
        for hole in 0..chance.below(12) {
            text += &"z".repeat([10, 3000, 20_000][chance.below(3)]);
            let inner = page + 1 + chance.below(PAGES);
            text += &match chance.below(6) {
                0 | 1 => {
                    let value = "v".repeat(4000);
                    format!("<!--#set var=\"v{hole}\" value=\"$v{inner}{value}\" -->")
                }
                2 => format!("<!--#include virtual=\"/a?{page}-{hole}\" -->"),
                3 => format!("<!--#include virtual=\"/app/{page}-{hole}\" -->"),
                4 => "<!--#include virtual=\"long.txt\" -->".to_owned(),
                _ if inner < PAGES => format!("<!--#include virtual=\"{inner}.html\" -->"),
                _ => format!("<!--#echo var=\"v{}\" -->", chance.below(12)),
            };
        }
        world.write_file(&format!("srv/{page}.html"), text.as_bytes());
    }
}

/// A request of a kind: for a server, the application, or a page.
fn request(chance: &mut Random, kinds: usize) -> Vec<u8> {
    let rest = "HTTP/1.1\r\nHost: a.example\r\n";
    match chance.below(kinds) {
        0 => GET.to_vec(),
        1 if chance.one_in(4) => {
            let head = format!("POST /app/a {rest}Content-Length: {BODY}\r\n\r\n");
            [head.as_bytes(), &[b'b'; BODY]].concat()
        }
        1 => format!("GET /app/a {rest}\r\n").into_bytes(),
        _ => format!("GET /pages/{}.html {rest}\r\n", chance.below(PAGES)).into_bytes(),
    }
}

#[test]
fn a_budget_is_not_exceeded_whatever_clients_servers_and_pages_do() {
    for_seeds_of(seeds(), |seed| {
        let mut chance = Random::new(seed);
        let network = Duration::ZERO..=Duration::ZERO;
        let sim = SimConfig { network, send_buffer: SOCKET, wide_receives: true, ..config(seed) };
        let change = |rules: &mut GatewayRules| {
            rules.buffer = BUFFER;
            rules.splice = false;
            rules.timeout_upstream = Duration::from_secs(600);
        };
        let tuning = Tuning { memory_bytes_max: BUDGET, ..Tuning::default() };
        let world = World::new(sim);
        write_pages(&world, &mut chance);
        let application = APPLICATION.parse::<core::net::SocketAddr>().expect("an address");
        let application = world.listen(application);
        let mut stage = Stage::with_tuning(world, change, add_routes, tuning);
        // Some worlds have servers only, or servers and the application.
        let kinds = 1 + chance.below(3);
        let (mut clients, mut servers) = (Vec::<Eager>::new(), Vec::<Giver>::new());
        // Bytes that clients have got, or that were dropped for them, which have left; those of servers that have.
        let (mut gone, mut given) = (0, 0);
        for _ in 0..400 {
            match chance.below(12) {
                0 | 1 if clients.len() < CLIENTS => {
                    let (peer, reads) = (stage.world.connect(), chance.one_in(4));
                    if !reads {
                        peer.stop_reading();
                    }
                    clients.push(Eager { peer, reads, read: 0 });
                }
                2..=5 if !clients.is_empty() => {
                    let at = chance.below(clients.len());
                    for _ in 0..1 + chance.below(16) {
                        clients[at].peer.send(&request(&mut chance, kinds));
                    }
                }
                6 if !clients.is_empty() => {
                    let at = chance.below(clients.len());
                    let client = &mut clients[at];
                    client.reads = !client.reads;
                    match client.reads {
                        true => client.peer.set_read_rate(None),
                        false => client.peer.stop_reading(),
                    }
                }
                7 if chance.one_in(10) && !clients.is_empty() => {
                    let at = chance.below(clients.len());
                    gone += clients.swap_remove(at).read + DROPPED;
                }
                _ => {
                    servers.iter_mut().for_each(|server| server.answer(&mut chance));
                    for server in &mut servers {
                        if !chance.one_in(3) {
                            server.send();
                        }
                    }
                }
            }
            stage.pass(Duration::from_millis(1));
            if let Some(listener) = &stage.listener {
                let new = core::iter::from_fn(|| listener.accept());
                servers.extend(new.map(|peer| Giver::new(peer, false)));
            }
            let new = core::iter::from_fn(|| application.accept());
            servers.extend(new.map(|peer| Giver::new(peer, true)));
            clients.iter_mut().for_each(|client| client.read += client.peer.take().len());
            servers.retain(|server| {
                let is_there = server.peer.end().is_none();
                given += if is_there { 0 } else { server.received() };
                is_there
            });
            let held = stage.worker.held().0 + stage.worker.shared();
            // Those of clients that have left may not be closed yet.
            let most = BUDGET + stage.worker.connections() as u64 * ONE;
            assert!(held <= most, "{held} of {most} bytes are charged");
            // The same by what has come and not gone on, whatever is charged.
            let received = given + servers.iter().map(Giver::received).sum::<usize>();
            let passed: usize = clients.iter().map(|client| client.read + SOCKET).sum();
            let waiting = received.saturating_sub(passed + gone) as u64;
            assert!(waiting <= most, "{waiting} of {most} bytes wait");
        }
        drop(clients);
        drop((servers, application));
        stage.check_nothing_is_left(Vec::new(), Vec::new());
    });
}
