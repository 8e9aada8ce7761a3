//! A budget that is not exceeded, whatever clients and servers do, in any order.

use super::*;
use crate::stage::Chance;

/// The budget of the worker.
const BUDGET: u64 = 1024 * 1024;
const BUFFER: u64 = 64 * 1024;
/// Bytes beyond the budget that a connection may hold: its own budget, for the worker counts it again when it has acted; and
/// what the stream has of the one request that it may always have under way.
const ONE: u64 = (128 + 64) * 1024;
const CLIENTS: usize = 40;
/// Bytes of the longest contents.
const LONG: usize = 300_000;
/// Bytes that the socket of a client takes.
const SOCKET: usize = 8 * 1024;
/// Bytes that may be received for a client that has left, so that the connection to its server can be kept, and before it
/// has left.
const DROPPED: usize = 16 * 64 * 1024;

/// The number of worlds: `SAMUM_SEEDS`, or a few.
fn seeds() -> u64 {
    std::env::var("SAMUM_SEEDS").map_or(10, |seeds| seeds.parse().expect("a number"))
}

/// A client, the requests that it has sent, and the bytes that it has read.
struct Eager {
    peer: Peer,
    reads: bool,
    read: usize,
}

/// A server's end of a connection, the bytes that it has sent, and the parts of a content that it has still to send.
struct Giver {
    peer: Peer,
    sent: usize,
    left: Vec<Vec<u8>>,
}

impl Giver {
    /// Answers the next request, if there is one, in one of the forms that contents have.
    fn answer(&mut self, chance: &mut Chance) {
        if !self.left.is_empty() {
            return;
        }
        let Some((head, _)) = split(&self.peer.received()) else { return };
        let _ = self.peer.take();
        assert!(head.starts_with("GET "), "{head}");
        let size = [10, 5_000, 30_000, LONG][chance.below(4)];
        let content = vec![b'x'; size];
        let mut parts: Vec<_> = content.chunks(size.div_ceil(1 + chance.below(5))).collect();
        let is_chunked = chance.one_in(2);
        let head = match is_chunked {
            true => "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_owned(),
            false => format!("HTTP/1.1 200 OK\r\nContent-Length: {size}\r\n\r\n"),
        };
        if is_chunked {
            parts.push(b"");
        }
        let framed = |part: &&[u8]| match is_chunked {
            true => [format!("{:x}\r\n", part.len()).as_bytes(), *part, b"\r\n"].concat(),
            false => part.to_vec(),
        };
        self.left = parts.iter().map(framed).collect();
        self.left.insert(0, head.into_bytes());
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

#[test]
fn a_budget_is_not_exceeded_whatever_clients_and_servers_do() {
    for_seeds(seeds(), |seed| {
        let mut chance = Chance(seed);
        let network = Duration::ZERO..=Duration::ZERO;
        let sim = SimConfig { network, send_buffer: SOCKET, wide_receives: true, ..config(seed) };
        let change = |rules: &mut GatewayRules| {
            rules.buffer = BUFFER;
            rules.splice = false;
            rules.timeout_upstream = Duration::from_secs(600);
        };
        let tuning = Tuning { memory_bytes_max: BUDGET, ..Tuning::default() };
        let mut stage = Stage::with_tuning(World::new(sim), change, |_| {}, tuning);
        let (mut clients, mut servers) = (Vec::<Eager>::new(), Vec::<Giver>::new());
        // Bytes that clients have got, or that were dropped for them, which have left.
        let mut gone = 0;
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
                    clients[at].peer.send(&GET.repeat(1 + chance.below(16)));
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
                servers.extend(new.map(|peer| Giver { peer, sent: 0, left: Vec::new() }));
            }
            clients.iter_mut().for_each(|client| client.read += client.peer.take().len());
            servers.retain(|server| server.peer.end().is_none());
            let held = stage.worker.held().0 + stage.worker.shared();
            // Those of clients that have left may not be closed yet.
            let most = BUDGET + stage.worker.connections() as u64 * ONE;
            assert!(held <= most, "{held} of {most} bytes are charged");
            // The same by what has come and not gone on, whatever is charged.
            let received: usize = servers.iter().map(Giver::received).sum();
            let passed: usize = clients.iter().map(|client| client.read + SOCKET).sum();
            let waiting = received.saturating_sub(passed + gone) as u64;
            assert!(waiting <= most, "{waiting} of {most} bytes wait");
        }
        drop(clients);
        drop(servers);
        stage.check_nothing_is_left(Vec::new(), Vec::new());
    });
}
