//! Requests that are passed on, through simulated connections to a server that does what a test says: what
//! is right arrives whole, and what is wrong is answered, counted and told to the operator.

use core::ops::RangeInclusive;
use core::time::Duration;
use std::ffi::CString;
use std::rc::Rc;
use std::sync::Arc;

use config::{Action, Config, GatewayRules, Route, Site, Tuning, Upstream, upstream};
use handler::serving::Snapshot;
use metrics::Stats;
use ring::sim::{Config as SimConfig, End, Faults, Peer, PeerListener, World};
use ring::{Event, Fd, Op, OpenHow, Ring};
use rustix::fs::OFlags;
use samum::worker::Worker;
use session::Http1;

use crate::seams::stage::{Response, content, parse, parse_whole};
use crate::seams::world::{Client as _, Plain, config, for_seeds, parts, pass, run_until};

mod budget;
mod crowd;
mod hand_over;
mod holes;
mod turns;

/// The server that requests are passed on to.
const SERVER: &str = "127.0.0.1:9000";
const GET: &[u8] = b"GET /a?b=c HTTP/1.1\r\nHost: a.example\r\n\r\n";
const HEAD: &[u8] = b"HEAD /a HTTP/1.1\r\nHost: a.example\r\n\r\n";
const POST: &[u8] = b"POST /a HTTP/1.1\r\nHost: a.example\r\nContent-Length: 4\r\n\r\nbody";
const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
/// The timeouts of the route, less than those for clients.
const TIMEOUT: Duration = Duration::from_secs(5);

struct Stage {
    world: World,
    worker: Worker<Http1>,
    /// The server; none if it refuses connections.
    listener: Option<PeerListener>,
    /// The number of directories that are served.
    roots: usize,
}

/// A client's connection, and what was read of its responses.
struct Client {
    plain: Plain,
    peer: Rc<Peer>,
    at: usize,
}

impl Stage {
    fn new(sim: SimConfig) -> Self {
        Self::with_rules(sim, |_| {})
    }

    fn with_rules(sim: SimConfig, change: impl FnOnce(&mut GatewayRules)) -> Self {
        let world = World::new(sim);
        Self::in_world(world, change, |_| {})
    }

    /// In a world with the directories of a site, whose first route passes requests on.
    fn in_world(
        world: World,
        change: impl FnOnce(&mut GatewayRules),
        add: impl FnOnce(&mut Site),
    ) -> Self {
        Self::with_tuning(world, change, add, Tuning::default())
    }

    fn with_tuning(
        world: World,
        change: impl FnOnce(&mut GatewayRules),
        add: impl FnOnce(&mut Site),
        tuning: Tuning,
    ) -> Self {
        world.write_file("notes", b"");
        let listener = world.listen(SERVER.parse::<core::net::SocketAddr>().expect("an address"));
        let mut rules = GatewayRules {
            timeout_connect: TIMEOUT,
            timeout_upstream: TIMEOUT,
            timeout_upstream_send: TIMEOUT,
            ..GatewayRules::default()
        };
        change(&mut rules);
        let servers = vec![upstream::server(&format!("http://{SERVER}")).expect("a server")];
        let mut config = Config::default();
        config.server.tuning = tuning;
        config.sites[0].routes[0].action = Action::Proxy(Upstream { servers, rules });
        add(&mut config.sites[0]);

        let mut parts = parts(&world, Tuning::default());
        parts.descriptors_max = 10_000;
        let root = parts.roots.remove(0);
        let how = OFlags::WRONLY | OFlags::APPEND;
        parts.notes = Some(open(&mut parts.ring, &root, "notes", how));
        parts.snapshot = Arc::new(Snapshot::new(&config).expect("a valid configuration"));
        for path in parts.snapshot.roots() {
            let path = path.strip_prefix("/").expect("an absolute path").to_str().expect("a text");
            parts.roots.push(open(&mut parts.ring, &root, path, OFlags::RDONLY));
        }
        let roots = parts.roots.len();
        let worker = Worker::new(parts).expect("memory");
        Self { world, worker, listener: Some(listener), roots }
    }

    fn client(&self) -> Client {
        let peer = Rc::new(self.world.connect());
        Client { plain: Plain::new(Rc::clone(&peer), 0), peer, at: 0 }
    }

    fn run_until(&mut self, is_done: impl FnMut() -> bool) -> bool {
        run_until(&mut self.worker, is_done)
    }

    fn pass(&mut self, time: Duration) {
        pass(&mut self.worker, time);
    }

    /// The server's end of the next connection.
    fn accept(&mut self) -> Peer {
        let mut peer = None;
        let listener = self.listener.as_ref().expect("a server");
        run_until(&mut self.worker, || {
            peer = listener.accept();
            peer.is_some()
        });
        peer.expect("a connection to the server")
    }

    /// Returns whether a connection to the server waits to be accepted.
    fn has_connected(&mut self) -> bool {
        self.pass(Duration::from_millis(50));
        self.listener.as_ref().and_then(PeerListener::accept).is_some()
    }

    /// The next request on a connection to the server: its head, and its body as it is framed.
    fn request(&mut self, server: &Peer) -> (String, Vec<u8>) {
        let mut found = None;
        self.run_until(|| {
            found = split(&server.received());
            found.is_some() || server.end().is_some()
        });
        let (head, body) = found.expect("a request");
        let rest = server.take().split_off(head.len() + body.len());
        assert_eq!(rest, b"", "one request at a time");
        (head, body)
    }

    /// The next response to a client, whole or cut off.
    fn response(&mut self, client: &mut Client) -> Response {
        let mut found = None;
        let Client { plain, at, .. } = client;
        self.run_until(|| {
            plain.look();
            let has_ended = plain.end().is_some();
            let rest = &plain.received()[*at..];
            found = if has_ended { parse(rest) } else { parse_whole(rest) }.filter(|response| {
                let is_until_close = response.head.contains("\r\nConnection: close\r\n")
                    && !response.head.contains("\r\nContent-Length")
                    && !response.head.contains("\r\nTransfer-Encoding");
                !is_until_close || has_ended
            });
            found.is_some() || has_ended
        });
        let response = found.expect("a response");
        *at += response.len;
        response
    }

    /// Sends a request and gives the server's end of the connection through which it came.
    fn ask(&mut self, client: &Client, request: &[u8]) -> Peer {
        client.peer.send(request);
        let server = self.accept();
        self.request(&server);
        server
    }

    fn stats(&self) -> Stats {
        self.worker.stats()
    }

    /// What the operator was told.
    fn notes(&mut self) -> String {
        self.pass(Duration::from_secs(1));
        String::from_utf8(self.world.read_file("notes")).expect("a text")
    }

    /// Checks that the operator was told this about the server, and nothing else.
    fn check_told(&mut self, text: &str) {
        let notes = self.notes();
        let told = format!("http://{SERVER}: ");
        assert!(notes.contains(&told) && notes.contains(text), "not {text:?}: {notes:?}");
        // Others are about the connection to the client, and about the error that the client gets.
        let is_other = |line: &str| {
            line.contains("a response could not be made") || line.starts_with("samum: 404 for ")
        };
        assert_eq!(notes.lines().filter(|line| !is_other(line)).count(), 1, "{notes}");
    }

    /// Checks that nothing is left once all peers have gone.
    fn check_nothing_is_left(mut self, clients: Vec<Client>, servers: Vec<Peer>) {
        drop((clients, servers));
        self.listener = None;
        self.pass(Duration::from_secs(120));
        assert_eq!(self.worker.connections(), 0, "connections are left");
        let open = self.world.open_descriptors() - self.world.open_pipes();
        assert_eq!(open, 2 + self.roots, "the listener, the messages, and the directories");
        assert_eq!(self.worker.held(), (0, 0), "memory is left");
        assert_eq!(self.world.stalls(), []);
        self.worker.shut_down();
        self.pass(Duration::from_secs(1));
        assert!(self.worker.has_shut_down(), "something is under way");
    }
}

fn open(ring: &mut Ring, root: &Fd, path: &str, flags: OFlags) -> Fd {
    let how = OpenHow::BENEATH.with_flags(flags.bits().cast_signed());
    let path = CString::new(path).expect("no NUL");
    ring.submit(Op::Open { dir: Some(root.clone()), path, how }, 0);
    let mut completions = Vec::new();
    ring.wait(None, &mut completions).expect("a ring that waits");
    match completions.pop().map(|completion| completion.result) {
        Some(Ok(Event::Opened(file))) => file,
        other => panic!("{other:?}"),
    }
}

/// Reads a request, if it is complete.
fn split(bytes: &[u8]) -> Option<(String, Vec<u8>)> {
    let at = bytes.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
    let head = String::from_utf8(bytes[..at].to_vec()).expect("a text");
    let rest = &bytes[at..];
    let body = if head.contains("\r\nTransfer-Encoding: chunked\r\n") {
        let end = rest.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
        &rest[..end]
    } else if let Some(line) = head.lines().find_map(|line| line.strip_prefix("Content-Length: ")) {
        rest.get(..line.parse().expect("a number"))?
    } else {
        b""
    };
    Some((head, body.to_vec()))
}

/// The kinds of worlds in which each test runs.
fn in_worlds(count: u64, test: impl Fn(SimConfig)) {
    for_seeds(count, |seed| {
        test(config(seed));
        let mut nasty = SimConfig::nasty(seed);
        nasty.faults.accept_error = 0.0;
        test(nasty);
    });
}

/// The time from a cancel to its effect where a test bounds what is received. In other worlds it is up to 300 µs, and
/// several receives may end in it.
const AT_ONCE: RangeInclusive<Duration> = Duration::ZERO..=Duration::ZERO;

/// The same, with receives that are as wide as those of a kernel.
fn in_wide_worlds(count: u64, test: impl Fn(SimConfig)) {
    in_worlds(count, |sim| test(SimConfig { wide_receives: true, ..sim }));
}

#[test]
fn a_response_arrives_by_length_in_chunks_and_until_the_end() {
    let large = content(1, 300_000);
    let by_length = [
        format!("HTTP/1.1 200 OK\r\nX-A: 1\r\nContent-Length: {}\r\n\r\n", large.len()).as_bytes(),
        &large,
    ]
    .concat();
    let until_close = [b"HTTP/1.1 200 OK\r\nX-A: 1\r\n\r\n", &large[..]].concat();
    let mut chunked = b"HTTP/1.1 200 OK\r\nX-A: 1\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
    for piece in large.chunks(7001) {
        chunked.extend_from_slice(format!("{:x};x=y\r\n", piece.len()).as_bytes());
        chunked.extend_from_slice(piece);
        chunked.extend_from_slice(b"\r\n");
    }
    chunked.extend_from_slice(b"0\r\nX-Trailer: 1\r\nSet-Cookie: a=b\r\n\r\n");
    in_worlds(12, |sim| {
        let (seed, default) = (sim.seed, GatewayRules::default());
        let mut stage = Stage::with_rules(sim, |rules| {
            rules.splice = seed % 2 == 0;
            rules.receive_max =
                if seed % 3 == 2 { GatewayRules::RECEIVE_MIN } else { default.receive_max };
        });
        let mut client = stage.client();
        let mut server = stage.ask(&client, GET);
        for (answer, is_kept) in [(&by_length, true), (&chunked, true), (&until_close, false)] {
            server.send(answer);
            if !is_kept {
                server.shutdown_write();
            }
            let response = stage.response(&mut client);
            assert_eq!((response.status, response.whole), (200, true), "{}", response.head);
            assert!(response.head.contains("\r\nX-A: 1\r\n"), "{}", response.head);
            let is_chunked = answer.ends_with(b"\r\n\r\n");
            assert_eq!(response.trailers, if is_chunked { "X-Trailer: 1\r\n" } else { "" });
            assert!(response.body == large);
            // The next request: through the same link if it was kept.
            if is_kept {
                client.peer.send(GET);
                let (head, _) = stage.request(&server);
                assert!(head.starts_with("GET /a?b=c HTTP/1.1\r\nHost: a.example\r\n"), "{head}");
            } else {
                server = stage.ask(&client, GET);
            }
        }
        server.send(OK);
        assert_eq!(stage.response(&mut client).body, b"ok");
        let stats = stage.stats();
        assert_eq!((stats.proxied, stats.proxy_failed, stats.proxy_retries), (4, 0, 0));
        assert_eq!(stage.notes(), "");
        stage.check_nothing_is_left(vec![client], vec![server]);
    });
}

/// A client of HTTP/1.0 knows no chunks: the end of the connection is that of the response.
#[test]
fn a_response_that_is_cut_off_does_not_look_whole_to_a_client_of_http_1_0() {
    let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    in_worlds(6, |sim| {
        for (rest, end) in [("0\r\n\r\n", End::Eof), ("", End::Reset), ("x", End::Reset)] {
            let mut stage = Stage::new(sim.clone());
            let client = stage.client();
            let server = stage.ask(&client, b"GET /a HTTP/1.0\r\nHost: a.example\r\n\r\n");
            server.send(format!("{head}5\r\nhello\r\n").as_bytes());
            stage.pass(Duration::from_millis(10));
            server.send(rest.as_bytes());
            server.shutdown_write();
            stage.run_until(|| client.peer.end().is_some());
            assert_eq!(client.peer.end(), Some(end), "behind {rest:?}");
            if end == End::Eof {
                let response = String::from_utf8(client.peer.received()).expect("UTF-8");
                assert!(response.ends_with("\r\n\r\nhello"), "{response}");
            }
        }
    });
}

#[test]
fn a_body_is_sent_by_length_and_in_chunks() {
    in_worlds(10, |sim| {
        let body = content(2, 400_000);
        let mut stage = Stage::new(sim);
        let mut client = stage.client();
        let head = format!(
            "POST /a HTTP/1.1\r\nHost: a.example\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        client.peer.send(head.as_bytes());
        client.peer.send(&body);
        let server = stage.accept();
        let (head, sent) = stage.request(&server);
        assert!(head.contains("\r\nContent-Length: 400000\r\n"), "{head}");
        assert!(sent == body);
        server.send(OK);
        assert_eq!(stage.response(&mut client).body, b"ok");

        client.peer.send(
            b"POST /a HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n\
              3;a=b\r\nabc\r\n",
        );
        stage.pass(Duration::from_millis(20));
        client.peer.send(b"2\r\nde\r\n0\r\nX-T: 1\r\nContent-Length: 7\r\n\r\n");
        let (head, sent) = stage.request(&server);
        assert!(head.contains("\r\nTransfer-Encoding: chunked\r\n"), "{head}");
        assert!(!head.contains("Content-Length"), "{head}");
        let sent = String::from_utf8(sent).expect("a text");
        assert!(
            sent.starts_with("3\r\nabc\r\n") && sent.ends_with("0\r\nX-T: 1\r\n\r\n"),
            "{sent}"
        );
        server.send(OK);
        assert_eq!(stage.response(&mut client).body, b"ok");
        stage.check_nothing_is_left(vec![client], vec![server]);
    });
}

/// The state of the disk on which a content waits for a slow client.
#[derive(Clone, Copy, Debug, PartialEq)]
enum BufferDisk {
    Good,
    /// It is full from the beginning, or becomes full later.
    Full,
    FullLater,
    /// It does not answer for some seconds.
    Hanging,
}

/// Lets responses wait for slow clients on the device `spool`.
fn spool_slow_clients(rules: &mut GatewayRules) {
    rules.buffer = 5 * 1024 * 1024;
    rules.buffer_dir = Some("/spool".into());
}

#[test]
fn a_slow_client_has_every_byte_whatever_the_disk_of_the_buffer_does() {
    use BufferDisk::{Full, FullLater, Good, Hanging};
    let large = content(3, 8_000_000);
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", large.len());
    let by_length = [head.as_bytes(), &large].concat();
    let mut chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
    for piece in large.chunks(70_001) {
        chunked.extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
        chunked.extend_from_slice(piece);
        chunked.extend_from_slice(b"\r\n");
    }
    chunked.extend_from_slice(b"0\r\n\r\n");
    for (disk, answer) in [
        (Good, &by_length),
        (Good, &chunked),
        (Full, &by_length),
        (FullLater, &chunked),
        (FullLater, &by_length),
        (Hanging, &by_length),
    ] {
        in_worlds(4, |mut sim| {
            // A page that is reclaimed between a look and its use would be a recorded stall.
            sim.faults.eviction = 0.0;
            let may_fail = sim.faults.read_error > 0.0;
            let rate = 1_000_000 + sim.seed % 4 * 1_000_000;
            let world = World::new(sim);
            let device = world.make_device("spool");
            let mut stage = Stage::in_world(world.clone(), spool_slow_clients, |_| {});
            world.set_full(device, disk == Full);
            let mut client = stage.client();
            client.peer.set_read_rate(Some(rate));
            let server = stage.ask(&client, GET);
            server.send(answer);
            stage.pass(Duration::from_millis(700));
            world.set_full(device, matches!(disk, Full | FullLater));
            if disk == Hanging {
                world.hang(device);
                stage.pass(Duration::from_secs(3));
                world.release(device);
            }
            let response = stage.response(&mut client);
            // The file's pages may have left the page cache, and reads may fail: then the response is cut off.
            assert!(response.whole || may_fail, "{disk:?}");
            assert!(large.starts_with(&response.body), "{disk:?}");
            assert!(!response.whole || response.body.len() == large.len(), "{disk:?}");
            let stats = stage.stats();
            assert_eq!(stats.proxy_buffer_files, 1, "{disk:?}");
            if !may_fail {
                assert_eq!(stats.proxy_buffer_failed, u64::from(disk != Good), "{disk:?}");
                let notes = stage.notes();
                assert_eq!(notes.contains("no buffer in /spool: "), disk != Good, "{notes}");
            }
            stage.check_nothing_is_left(vec![client], vec![server]);
        });
    }
}

#[test]
fn a_client_that_goes_leaves_no_file() {
    in_worlds(10, |mut sim| {
        sim.faults.eviction = 0.0;
        let pause = Duration::from_millis(150 + sim.seed * 97 % 900);
        let world = World::new(sim);
        world.make_device("spool");
        let mut stage = Stage::in_world(world, spool_slow_clients, |_| {});
        let client = stage.client();
        client.peer.set_read_rate(Some(1_000_000));
        let server = stage.ask(&client, GET);
        let head = "HTTP/1.1 200 OK\r\nContent-Length: 9000000\r\n\r\n";
        server.send(&[head.as_bytes(), &content(4, 8_000_000)].concat());
        stage.pass(pause);
        client.peer.reset();
        stage.check_nothing_is_left(vec![client], vec![server]);
    });
}

#[test]
fn the_files_of_slow_clients_have_a_limit() {
    const FILES_MAX: u64 = 128;
    let large = content(5, 1_600_000);
    let head = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1600000\r\n\r\n";
    let answer = [head.as_bytes(), &large].concat();
    let mut sim = config(7);
    sim.faults = Faults::default();
    let world = World::new(sim);
    world.make_device("spool");
    // More buffers than a worker usually has memory for.
    let tuning = Tuning { memory_bytes_max: 1 << 30, ..Tuning::default() };
    let mut stage = Stage::with_tuning(world, spool_slow_clients, |_| {}, tuning);
    let slow_clients = |stage: &mut Stage, count: u64| {
        let clients: Vec<Client> = (0..count).map(|_| stage.client()).collect();
        let servers: Vec<Peer> = clients.iter().map(|client| stage.ask(client, GET)).collect();
        for (client, server) in clients.iter().zip(&servers) {
            client.peer.set_read_rate(Some(10_000));
            server.send(&answer);
        }
        stage.pass(Duration::from_secs(2));
        (clients, servers)
    };
    let (mut clients, servers) = slow_clients(&mut stage, FILES_MAX + 4);
    assert_eq!(stage.stats().proxy_buffer_files, FILES_MAX + 4);
    assert_eq!(stage.stats().proxy_buffer_failed, 4);
    // A client that receives its response, or goes, makes room for another.
    clients.swap_remove(0);
    clients[1].peer.set_read_rate(None);
    stage.pass(Duration::from_secs(2));
    let (more, _) = slow_clients(&mut stage, 3);
    stage.pass(Duration::from_secs(2));
    assert_eq!(stage.stats().proxy_buffer_failed, 5);
    clients.extend(more);
    for client in &mut clients {
        client.peer.set_read_rate(None);
        let response = stage.response(client);
        assert!(response.whole && response.body == large);
    }
    assert!(stage.notes().contains("no buffer in /spool: 128 files are in use; "));
    stage.check_nothing_is_left(clients, servers);
}

/// A worker has memory for the buffers of a few slow clients. Contents of others wait at their servers, whatever their
/// framing is.
#[test]
fn contents_without_a_buffer_wait_at_their_servers() {
    const MIB: usize = 1024 * 1024;
    const CLIENTS: usize = 60;
    const SIZE: usize = MIB - 10_000;
    /// The memory of a client without a buffer: what waits for it, and the rest of what it was given before; of each the
    /// limit, and a receive more. Its socket takes some, too.
    const LITTLE: usize = 4 * 20 * 1024 + 10_000;
    let large = content(6, SIZE);
    let by_length = format!("HTTP/1.1 200 OK\r\nContent-Length: {SIZE}\r\n\r\n");
    let in_chunks = format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{SIZE:x}\r\n");
    let until_close = "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n";
    let answers = [
        [by_length.as_bytes(), &large].concat(),
        [in_chunks.as_bytes(), &large, b"\r\n0\r\n\r\n"].concat(),
        [until_close.as_bytes(), &large].concat(),
    ];
    in_wide_worlds(2, |mut sim| {
        sim.cancel = AT_ONCE;
        sim.send_buffer = 10_000;
        for buffers in [0, 4] {
            let bytes = (buffers * MIB) as u64;
            let tuning = Tuning { buffers_bytes_max: bytes, ..Tuning::default() };
            let no_pipes = |rules: &mut GatewayRules| rules.splice = false;
            let world = World::new(sim.clone());
            let mut stage = Stage::with_tuning(world, no_pipes, |_| {}, tuning);
            let mut clients: Vec<Client> = (0..CLIENTS).map(|_| stage.client()).collect();
            let servers: Vec<Peer> = clients.iter().map(|it| stage.ask(it, GET)).collect();
            for ((client, server), answer) in
                clients.iter().zip(&servers).zip(answers.iter().cycle())
            {
                client.peer.stop_reading();
                server.send(answer);
                if answer == &answers[2] {
                    server.shutdown_write();
                }
            }
            stage.pass(Duration::from_secs(2));
            let waiting: usize = servers.iter().map(Peer::unreceived_bytes).sum();
            let all: usize = answers.iter().map(|answer| answer.len() * CLIENTS / 3).sum();
            let taken = all - waiting;
            let most = buffers * MIB + CLIENTS * LITTLE;
            assert!(taken <= most, "{taken} bytes of {most} with {buffers} buffers");
            assert!(taken >= buffers * SIZE, "{taken} bytes with {buffers} buffers");
            for client in &mut clients {
                client.peer.set_read_rate(None);
                let response = stage.response(client);
                assert!(response.whole && response.body == large, "{}", response.head);
            }
            stage.check_nothing_is_left(clients, servers);
        }
    });
}

/// The way in which a server ends what it sends.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Ending {
    Open,
    Closed,
    Reset,
}

/// What the client gets of a response that is at fault.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Got {
    /// The page of this error.
    Page(u16),
    /// The beginning of a response, which does not look whole.
    Cut,
    /// A whole response with this status; the fault was after it.
    Whole(u16),
}

#[test]
fn what_is_at_fault_is_answered_counted_and_told() {
    use Ending::{Closed, Open, Reset};
    use Got::{Cut, Page, Whole};
    let huge_head = [
        b"HTTP/1.1 200 OK\r\nX-A: ".as_slice(),
        &vec![b'a'; 1024 * 1024],
        b"\r\nContent-Length: 2\r\n\r\nok",
    ]
    .concat();
    let long =
        [b"HTTP/1.1 200 OK\r\nContent-Length: 300000\r\n\r\n".as_slice(), &content(8, 300_001)]
            .concat();
    let two = OK.repeat(2);
    let interims =
        [&b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n".repeat(16 * 1024)[..], OK].concat();
    /// A name, the request, what the server sends, how that ends, what the client gets, and the line for the
    /// operator.
    type Case<'a> = (&'a str, &'a [u8], &'a [u8], Ending, Got, &'a str);
    let cases: &[Case<'_>] = &[
        (
            "a short body",
            GET,
            b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort",
            Closed,
            Cut,
            "cut off",
        ),
        (
            "a short body in chunks",
            GET,
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nshort\r\n",
            Closed,
            Cut,
            "cut off",
        ),
        (
            "a reset half-way",
            GET,
            b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort",
            Reset,
            Cut,
            "reset",
        ),
        (
            "a chunk that is no chunk",
            GET,
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nshort\r\nxyz\r\n",
            Open,
            Cut,
            "cut off",
        ),
        (
            "a body beyond its length",
            GET,
            b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok and more",
            Open,
            Whole(200),
            "behind its response",
        ),
        (
            "a body of a 304",
            GET,
            b"HTTP/1.1 304 Not Modified\r\n\r\nbody",
            Open,
            Whole(304),
            "behind its response",
        ),
        (
            "a body of a 204",
            GET,
            b"HTTP/1.1 204 No Content\r\nContent-Length: 4\r\n\r\nbody",
            Open,
            Whole(204),
            "behind its response",
        ),
        (
            "a body for HEAD",
            HEAD,
            b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody",
            Open,
            Whole(200),
            "behind its response",
        ),
        (
            "a body beyond its length that is pulled",
            GET,
            &long,
            Open,
            Whole(200),
            "behind its response",
        ),
        (
            "two responses",
            GET,
            &two,
            Open,
            Whole(200),
            "behind its response",
        ),
        (
            "a length that no client can be promised",
            GET,
            b"HTTP/1.1 200 OK\r\nContent-Length: 9223372036854775809\r\n\r\nok",
            Open,
            Page(502),
            "a Content-Length of 2^62 bytes or more",
        ),
        ("garbage", GET, b"220 mail.example ESMTP\r\n\r\n", Open, Page(502), ""),
        ("binary garbage", GET, b"\x16\x03\x01\x00\xa5\x01\x00\x00\n\n\n", Open, Page(502), ""),
        ("a head of 1 MiB", GET, &huge_head, Open, Page(502), ""),
        ("nothing", GET, b"", Closed, Page(502), "closed"),
        ("a reset at once", GET, b"", Reset, Page(502), "reset"),
        ("half a head", GET, b"HTTP/1.1 200 OK\r\nContent-Le", Closed, Page(502), "closed"),
        (
            "two lengths",
            GET,
            b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok",
            Open,
            Page(502),
            "",
        ),
        (
            "a length and chunks",
            GET,
            b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            Open,
            Page(502),
            "",
        ),
        (
            "a 101 that was not asked for",
            GET,
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n",
            Open,
            Page(502),
            "101",
        ),
        ("too many interim responses", GET, &interims, Open, Page(502), "interim"),
        ("no answer", GET, b"", Open, Page(504), "did not answer"),
        ("an answer that stops in its head", GET, b"HTTP/1.1 200", Open, Page(504), "answer"),
        (
            "an answer that stops in its body",
            GET,
            b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort",
            Open,
            Cut,
            "did not answer",
        ),
    ];
    in_worlds(5, |sim| {
        for &(name, request, answer, ending, got, told) in cases {
            let mut stage = Stage::new(sim.clone());
            let mut client = stage.client();
            let server = stage.ask(&client, request);
            server.send(answer);
            // What was sent has come before a reset may destroy it.
            stage.pass(Duration::from_millis(10));
            match ending {
                Open => {}
                Closed => server.close(),
                Reset => server.reset(),
            }
            if request == HEAD {
                stage.pass(Duration::from_millis(100));
                client.plain.look();
                let received = String::from_utf8_lossy(client.plain.received()).into_owned();
                assert!(received.ends_with("\r\nContent-Length: 4\r\n\r\n"), "{received}");
                assert!(server.end().is_some(), "{name}: the link was kept");
                assert_eq!(stage.stats().proxy_surplus, 1, "{name}");
                stage.check_told(told);
                stage.check_nothing_is_left(vec![client], vec![server]);
                continue;
            }
            let mut response = stage.response(&mut client);
            // The first of too many interim responses are passed on.
            while response.status < 200 {
                response = stage.response(&mut client);
            }
            let is_timeout = told.contains("answer");
            match got {
                Page(status) => {
                    assert_eq!((response.status, response.whole), (status, true), "{name}")
                }
                Cut => {
                    assert_eq!((response.status, response.whole), (200, false), "{name}");
                    assert!(client.plain.end().is_some(), "{name}");
                }
                Whole(status) => {
                    assert_eq!((response.status, response.whole), (status, true), "{name}");
                    stage.pass(Duration::from_millis(100));
                    assert!(server.end().is_some(), "{name}: the link was kept");
                }
            }
            let stats = stage.stats();
            assert_eq!(stats.proxied, 1);
            let counted = match got {
                Whole(_) => stats.proxy_surplus,
                Page(_) | Cut if is_timeout => stats.proxy_timeouts,
                Page(_) | Cut => stats.proxy_failed,
            };
            assert_eq!(counted, 1, "{name}");
            let is_whole = matches!(got, Whole(_));
            assert_eq!(stats.proxy_failed, u64::from(!is_whole), "{name}");
            stage.check_told(told);
            assert!(!stage.has_connected(), "{name}: it was tried again");
            // Others are served.
            let mut other = stage.client();
            let one = stage.ask(&other, GET);
            one.send(OK);
            assert_eq!(stage.response(&mut other).body, b"ok", "{name}");
            stage.check_nothing_is_left(vec![client, other], vec![server, one]);
        }
    });
}

/// RFC 9110 §15: the client treats it as a 5xx. So do nginx and HAProxy, and some applications say by such a code what
/// only their own clients understand.
#[test]
fn a_status_beyond_599_is_passed_on() {
    in_worlds(2, |sim| {
        let mut stage = Stage::new(sim);
        let mut client = stage.client();
        let mut server = None;
        for (code, expected) in [(600, 600), (999, 999)] {
            client.peer.send(GET);
            let server = server.get_or_insert_with(|| stage.accept());
            stage.request(server);
            let answer = format!("HTTP/1.1 {code} x\r\nContent-Length: 2\r\n\r\nok");
            server.send(answer.as_bytes());
            let response = stage.response(&mut client);
            assert_eq!((response.status, &response.body[..]), (expected, &b"ok"[..]));
        }
        assert_eq!((stage.stats().proxy_failed, stage.notes()), (0, String::new()));
        stage.check_nothing_is_left(vec![client], server.into_iter().collect());
    });
}

/// A link that is kept is closed when its server sends something that nothing has asked for.
#[test]
fn bytes_behind_a_response_are_told_also_when_they_come_later() {
    let long =
        [b"HTTP/1.1 200 OK\r\nContent-Length: 300000\r\n\r\n".as_slice(), &content(9, 300_000)]
            .concat();
    in_worlds(5, |sim| {
        for answer in [OK, &long] {
            let mut stage = Stage::new(sim.clone());
            let mut client = stage.client();
            let server = stage.ask(&client, GET);
            server.send(answer);
            assert!(stage.response(&mut client).whole);
            stage.pass(Duration::from_secs(1));
            assert!(server.end().is_none(), "the link is kept");
            assert_eq!((stage.stats().proxy_surplus, stage.notes()), (0, String::new()));
            server.send(OK);
            stage.pass(Duration::from_millis(100));
            assert!(server.end().is_some(), "the link is still kept");
            let other = stage.ask(&client, GET);
            other.send(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nother");
            assert_eq!(stage.response(&mut client).body, b"other");
            let stats = stage.stats();
            assert_eq!((stats.proxy_surplus, stats.proxy_failed, stats.proxied), (1, 0, 2));
            stage.check_told("behind its response");
            stage.check_nothing_is_left(vec![client], vec![server, other]);
        }
    });
}

#[test]
fn a_server_without_an_address_is_a_bad_gateway() {
    in_worlds(1, |sim| {
        let add = |site: &mut Site| {
            let Action::Proxy(upstream) = &mut site.routes[0].action else { unreachable!() };
            upstream.servers = vec![upstream::server("http://none.example").expect("a server")];
        };
        let mut stage = Stage::in_world(World::new(sim), |_| {}, add);
        let mut client = stage.client();
        client.peer.send(GET);
        assert_eq!(stage.response(&mut client).status, 502);
        assert_eq!(stage.stats().proxy_failed, 1);
        assert!(stage.notes().contains("no name of its servers is resolved"));
        stage.check_nothing_is_left(vec![client], vec![]);
    });
}

#[test]
fn a_server_that_refuses_or_never_accepts_is_a_bad_gateway() {
    in_worlds(10, |sim| {
        let mut stage = Stage::new(sim.clone());
        stage.listener = None;
        let mut client = stage.client();
        client.peer.send(GET);
        assert_eq!(stage.response(&mut client).status, 502);
        assert_eq!((stage.stats().proxy_failed, stage.stats().proxied), (1, 1));
        assert!(stage.notes().contains("refused"), "{}", stage.notes());
        stage.check_nothing_is_left(vec![client], vec![]);

        let mut stage = Stage::new(sim);
        stage.listener.as_ref().expect("a server").stop_answering();
        let mut client = stage.client();
        client.peer.send(POST);
        assert_eq!(stage.response(&mut client).status, 504);
        assert!(stage.stats().proxy_timeouts > 0);
        assert!(stage.notes().contains("no connection was made"), "{}", stage.notes());
        stage.check_nothing_is_left(vec![client], vec![]);
    });
}

/// Requests that time out together, and as many as may in one turn.
const TOGETHER: usize = 400;
const EXPIRIES_MAX: u64 = 128;

#[test]
fn requests_that_time_out_together_are_answered_in_several_turns() {
    for_seeds(5, |seed| {
        let mut stage = Stage::new(config(seed));
        let mut clients: Vec<_> = (0..TOGETHER).map(|_| stage.client()).collect();
        clients.iter().for_each(|client| client.peer.send(GET));
        let (mut before, end) = (0, stage.worker.ring().now() + 4 * TIMEOUT);
        while stage.worker.ring().now() < end {
            stage.worker.turn(Some(end)).expect("a ring that waits");
            let now = stage.stats().proxy_timeouts;
            assert!(now - before <= EXPIRIES_MAX, "{} in one turn", now - before);
            before = now;
        }
        assert_eq!(before, TOGETHER as u64);
        assert!(clients.iter_mut().all(|client| stage.response(client).status == 504));
    });
}

#[test]
fn a_request_is_tried_again_only_where_that_is_safe() {
    for (request, retries) in [(GET, 2), (GET, 0), (POST, 2)] {
        in_worlds(20, |sim| {
            let mut stage = Stage::with_rules(sim, |rules| rules.retries = retries);
            let mut client = stage.client();
            let server = stage.ask(&client, GET);
            server.send(OK);
            assert_eq!(stage.response(&mut client).body, b"ok");
            // The server closes the link just as the next request comes.
            client.peer.send(request);
            server.close();
            let mut next = None;
            let listener = stage.listener.take().expect("a server");
            run_until(&mut stage.worker, || {
                next = next.take().or_else(|| listener.accept());
                client.plain.look();
                next.is_some() || client.plain.received().len() > client.at
            });
            stage.listener = Some(listener);
            match &next {
                Some(next) => {
                    stage.request(next);
                    next.send(OK);
                    assert_eq!(stage.response(&mut client).status, 200);
                    if request == POST {
                        // The link was closed before the request was there: nothing was sent through it.
                        assert_eq!((server.received_bytes(), stage.stats().proxy_retries), (0, 0));
                    }
                }
                None => {
                    assert_eq!(request, POST, "it may be tried again");
                    assert_eq!(stage.response(&mut client).status, 502);
                    assert!(!stage.has_connected(), "a request was sent twice");
                    let stats = stage.stats();
                    assert_eq!((stats.proxy_failed, stats.proxy_retries), (1, 0));
                    stage.check_told("");
                }
            }
            let servers = [server].into_iter().chain(next).collect();
            stage.check_nothing_is_left(vec![client], servers);
        });
    }
}

/// A `PUT` has the same effect twice (RFC 9110 §9.2.2), and what was sent of its body is held, up to 64 KiB.
#[test]
fn a_body_is_sent_again_if_all_of_it_is_held_and_the_method_is_idempotent() {
    const HELD: usize = 64 * 1024;
    for (method, length, is_chunked, is_repeated) in [
        ("PUT", 4, false, true),
        ("PUT", 1000, true, true),
        ("DELETE", HELD, false, true),
        ("PUT", HELD + 1, false, false),
        ("POST", 4, false, false),
        ("PATCH", 1000, true, false),
    ] {
        in_worlds(10, |sim| {
            let mut stage = Stage::new(SimConfig { faults: Faults::default(), ..sim });
            let mut client = stage.client();
            let server = stage.ask(&client, GET);
            server.send(OK);
            assert_eq!(stage.response(&mut client).body, b"ok");
            let body = content(3, length);
            let head =
                |framing: String| format!("{method} /a HTTP/1.1\r\nHost: a\r\n{framing}\r\n");
            let (head, framed) = match is_chunked {
                false => (head(format!("Content-Length: {length}\r\n")), body.clone()),
                true => {
                    let head = head("Transfer-Encoding: chunked\r\n".to_owned());
                    let size = format!("{length:x}\r\n").into_bytes();
                    (head, [&size, &body[..], b"\r\n0\r\n\r\n"].concat())
                }
            };
            client.peer.send(head.as_bytes());
            client.peer.send(&framed);
            // The server closes the link when it has taken all.
            run_until(&mut stage.worker, || server.received().len() >= framed.len() + 20);
            stage.pass(Duration::from_millis(50));
            server.reset();
            let mut next = None;
            if is_repeated {
                let server = next.insert(stage.accept());
                let (_, again) = stage.request(server);
                assert!(again == framed, "{method} {length}: another body");
                server.send(OK);
                assert_eq!(stage.response(&mut client).status, 200);
                assert_eq!((stage.stats().proxy_retries, stage.stats().proxy_failed), (1, 0));
            } else {
                assert_eq!(stage.response(&mut client).status, 502, "{method} {length}");
                assert!(!stage.has_connected(), "{method} {length}: sent twice");
                stage.check_told("");
            }
            let servers = [server].into_iter().chain(next).collect();
            stage.check_nothing_is_left(vec![client], servers);
        });
    }
}

/// The rest comes when its beginning is sent again.
#[test]
fn a_body_that_still_comes_is_sent_again_from_its_beginning_on() {
    in_worlds(10, |sim| {
        let mut stage = Stage::new(SimConfig { faults: Faults::default(), ..sim });
        let mut client = stage.client();
        let server = stage.ask(&client, GET);
        server.send(OK);
        assert_eq!(stage.response(&mut client).body, b"ok");
        client.peer.send(b"PUT /a HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n01234");
        stage.pass(Duration::from_millis(50));
        assert!(server.received().ends_with(b"01234"));
        server.close();
        let next = stage.accept();
        stage.pass(Duration::from_millis(50));
        client.peer.send(b"56789");
        assert_eq!(stage.request(&next).1, b"0123456789");
        next.send(OK);
        assert_eq!(stage.response(&mut client).status, 200);
        assert_eq!((stage.stats().proxy_retries, stage.stats().proxy_failed), (1, 0));
        stage.check_nothing_is_left(vec![client], vec![server, next]);
    });
}

#[test]
fn an_answer_before_the_end_of_the_request_is_passed_on() {
    in_worlds(20, |sim| {
        let mut stage = Stage::new(sim);
        let mut client = stage.client();
        client.peer.send(b"POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\nbody");
        let server = stage.accept();
        stage.run_until(|| server.received().ends_with(b"body"));
        server.send(b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 3\r\n\r\nno!");
        let response = stage.response(&mut client);
        assert_eq!((response.status, &response.body[..]), (413, &b"no!"[..]));
        stage.pass(Duration::from_millis(100));
        assert!(server.end().is_some(), "a link with half a request was kept");
        assert!(!stage.has_connected(), "it was sent again");
        let stats = stage.stats();
        assert_eq!((stats.proxy_failed, stats.proxy_early, stats.proxy_left), (0, 1, 0));
        stage.check_told("it answered before the end of the request");
        stage.check_nothing_is_left(vec![client], vec![server]);
    });
}

/// Nothing more comes of the request then, so that the server would wait, and the client for the server.
#[test]
fn a_response_that_has_begun_ends_at_once_when_its_client_breaks_its_body_off() {
    in_worlds(20, |sim| {
        for is_bad in [true, false] {
            let mut stage = Stage::new(sim.clone());
            let mut client = stage.client();
            let head = b"POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
            client.peer.send(&[&head[..], b"3\r\nabc\r\n"].concat());
            let server = stage.accept();
            stage.run_until(|| server.received().ends_with(b"abc\r\n"));
            server.send(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nbut");
            stage.run_until(|| {
                client.plain.look();
                client.plain.received().ends_with(b"but")
            });
            if is_bad {
                client.peer.send(b"no length\r\n");
            } else {
                client.peer.shutdown_write();
            }
            stage.pass(Duration::from_millis(100));
            assert!(server.end().is_some(), "the server is still waited for");
            client.plain.look();
            assert!(client.plain.end().is_some(), "its response is not cut off");
            let stats = stage.stats();
            assert_eq!((stats.proxy_failed, stats.proxy_timeouts, stats.proxy_left), (0, 0, 1));
            stage.check_told("the client waits no more; its response is cut off");
            stage.check_nothing_is_left(vec![client], vec![server]);
        }
    });
}

/// A client that ends its side has most likely left. Its server is told so, unless the route says that clients
/// may do so, or the response has begun.
#[test]
fn a_request_is_given_up_when_its_client_ends_its_side_before_the_head() {
    in_worlds(20, |sim| {
        for (half_close, request) in [(false, GET), (false, POST), (true, GET), (true, POST)] {
            let world = World::new(sim.clone());
            let add = |site: &mut Site| site.routes[0].half_close = half_close;
            let mut stage = Stage::in_world(world, |_| {}, add);
            let mut client = stage.client();
            let server = stage.ask(&client, request);
            client.peer.shutdown_write();
            stage.pass(Duration::from_millis(50));
            assert_eq!(server.end().is_none(), half_close, "{request:?}");
            if half_close {
                server.send(OK);
                assert_eq!(stage.response(&mut client).body, b"ok");
            }
            stage.run_until(|| client.peer.end().is_some());
            client.plain.look();
            assert_eq!(client.plain.received().len(), client.at, "no byte of another response");
            let stats = stage.stats();
            assert_eq!(stats.proxy_failed, 0, "no server is to blame");
            assert_eq!(stats.proxy_left, u64::from(!half_close));
            if half_close {
                assert_eq!(stage.notes(), "");
            } else {
                stage.check_told("the client waits no more; its request is given up");
            }
            stage.check_nothing_is_left(vec![client], vec![server]);
        }
        let mut stage = Stage::new(sim);
        let mut client = stage.client();
        let server = stage.ask(&client, GET);
        server.send(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbe");
        stage.pass(Duration::from_millis(50));
        client.peer.shutdown_write();
        stage.pass(Duration::from_millis(50));
        server.send(b"en");
        assert_eq!(stage.response(&mut client).body, b"been");
        assert_eq!(stage.stats().proxy_left, 0);
        stage.check_nothing_is_left(vec![client], vec![server]);
    });
}

/// A path that no file can have is sent on as it is, unless the server could take it for one of another route.
#[test]
fn paths_that_name_no_file_are_passed_on() {
    let long = format!("/{}", "x".repeat(5000));
    in_worlds(1, |sim| {
        let add = |site: &mut Site| {
            let other = Route { path: "/other".to_owned(), ..site.routes[0].clone() };
            site.routes.push(other);
        };
        let mut stage = Stage::in_world(World::new(sim), |_| {}, add);
        let mut client = stage.client();
        // Each route has links of its own.
        let mut servers: [Option<Peer>; 2] = [None, None];
        for (path, sent) in [
            ("/a%2fb/./c", Some("/a%2Fb/c")),
            ("/other/a%2Fb", Some("/other/a%2Fb")),
            ("/é//%c3%a9?ü=%fc?", Some("/%C3%A9//%c3%a9?%C3%BC=%fc?")),
            ("http://a/é", Some("/%C3%A9")),
            ("/other/é%2Fü", Some("/other/%C3%A9%2F%C3%BC")),
            ("/other", Some("/other")),
            ("/other?q", Some("/other?q")),
            (&long, Some(&long[..])),
            ("/a%2F..%2Fb", None),
            ("/other%2Fa", None),
            ("/%2Fother%2F", None),
        ] {
            client.peer.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes());
            if let Some(sent) = sent {
                let server = &mut servers[usize::from(path.starts_with("/other"))];
                let server = server.get_or_insert_with(|| stage.accept());
                let (head, _) = stage.request(server);
                assert!(head.starts_with(&format!("GET {sent} HTTP/1.1\r\n")), "{head}");
                server.send(OK);
            }
            let status = stage.response(&mut client).status;
            assert_eq!(status, if sent.is_some() { 200 } else { 404 }, "{path}");
        }
        stage.check_nothing_is_left(vec![client], servers.into_iter().flatten().collect());
    });
}

/// They must not overtake each other on their ways to the server.
#[test]
fn requests_of_one_client_are_passed_on_one_after_the_other() {
    in_worlds(10, |sim| {
        let mut stage = Stage::new(sim);
        let mut client = stage.client();
        let requests = ["GET /1", "GET /2", "DELETE /3", "POST /4", "GET /5", "PUT /6"];
        for request in requests {
            let body =
                if request.starts_with('P') { "Content-Length: 4\r\n\r\nbody" } else { "\r\n" };
            client.peer.send(format!("{request} HTTP/1.1\r\nHost: a\r\n{body}").as_bytes());
        }
        let server = stage.accept();
        for expected in requests {
            let (head, _) = stage.request(&server);
            assert!(head.starts_with(expected), "{head} is not {expected}");
            stage.pass(Duration::from_millis(50));
            assert!(!stage.has_connected(), "another one overtakes {expected}");
            server.send(OK);
            assert_eq!(stage.response(&mut client).status, 200);
        }
        stage.check_nothing_is_left(vec![client], vec![server]);
    });
}

/// Hints come before the response, and only where the client can tell of which request they are.
#[test]
fn interim_responses_are_passed_on() {
    const HINTS: &[u8] = b"HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\nConnection: x\r\n\r\n";
    in_worlds(10, |sim| {
        let mut stage = Stage::new(sim);
        let mut client = stage.client();
        let server = stage.ask(&client, GET);
        // No client waits for the first.
        server.send(b"HTTP/1.1 100 Continue\r\n\r\n");
        server.send(HINTS);
        let hints = stage.response(&mut client);
        assert_eq!(hints.head, "HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\n");
        // They come with the response.
        server.send(&[HINTS, OK].concat());
        assert_eq!(stage.response(&mut client).status, 103);
        assert_eq!(stage.response(&mut client).body, b"ok");

        // Each request has its own.
        client.peer.send(GET);
        client.peer.send(GET);
        for _ in 0..2 {
            stage.request(&server);
            server.send(&[HINTS, OK].concat());
            assert_eq!(stage.response(&mut client).status, 103);
            assert_eq!(stage.response(&mut client).body, b"ok");
        }

        // HTTP/1.0 knows no such responses.
        client.peer.send(b"GET / HTTP/1.0\r\nHost: a.example\r\n\r\n");
        stage.request(&server);
        server.send(&[HINTS, OK].concat());
        assert_eq!(stage.response(&mut client).status, 200);
        stage.check_nothing_is_left(vec![client], vec![server]);
    });
}

/// The time that a server has begins when nothing can happen before it does something: not while the client
/// has to send the rest of a body.
#[test]
fn the_time_of_a_server_begins_with_its_turn() {
    in_worlds(3, |sim| {
        for answers in [true, false] {
            let mut stage = Stage::new(sim.clone());
            let mut client = stage.client();
            let (first, rest) = POST.split_at(POST.len() - 2);
            client.peer.send(first);
            let server = stage.accept();
            let almost = TIMEOUT - Duration::from_millis(500);
            stage.pass(almost);
            client.peer.send(rest);
            stage.request(&server);
            stage.pass(almost);
            assert_eq!(stage.stats().proxy_timeouts, 0, "its time began with the request");
            if answers {
                server.send(OK);
                assert_eq!(stage.response(&mut client).body, b"ok");
            } else {
                stage.pass(Duration::from_secs(1));
                assert_eq!(stage.stats().proxy_timeouts, 1, "its time does not end");
                assert_eq!(stage.response(&mut client).status, 504);
            }
            stage.check_nothing_is_left(vec![client], vec![server]);
        }
    });
}

#[test]
fn all_copies_of_a_request_that_waits_are_charged() {
    const FIELD: usize = 10_000;
    in_worlds(3, |sim| {
        let mut stage = Stage::new(sim);
        let mut client = stage.client();
        let field = "x".repeat(FIELD);
        let request = format!("GET / HTTP/1.1\r\nHost: a\r\nA: {field}\r\n\r\n");
        let server = stage.ask(&client, request.as_bytes());
        // The session keeps one, and the exchange another.
        let held = stage.worker.held().0;
        assert!(held >= 2 * FIELD as u64, "{held}");
        server.send(OK);
        assert_eq!(stage.response(&mut client).body, b"ok");
        assert!(stage.worker.held().0 < FIELD as u64, "{}", stage.worker.held().0);
        stage.check_nothing_is_left(vec![client], vec![server]);
    });
}

#[test]
fn the_beginning_of_a_head_is_charged() {
    const FIELD: usize = 25_000;
    in_worlds(3, |sim| {
        let mut stage = Stage::new(sim);
        let mut client = stage.client();
        let server = stage.ask(&client, GET);
        stage.pass(Duration::from_millis(10));
        let before = stage.worker.held().0;
        let field = "x".repeat(FIELD);
        server.send(format!("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nA: {field}").as_bytes());
        stage.pass(Duration::from_millis(100));
        let held = stage.worker.held().0;
        assert!(held >= before + FIELD as u64, "{held}, {before} before it");
        server.send(b"\r\n\r\nok");
        assert_eq!(stage.response(&mut client).body, b"ok");
        assert!(stage.worker.held().0 < FIELD as u64, "{}", stage.worker.held().0);
        stage.check_nothing_is_left(vec![client], vec![server]);
    });
}

#[test]
fn a_client_that_leaves_closes_its_link() {
    let answers: [(&[u8], &str); 2] = [
        (b"", "its request is given up"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nshort", "its response is cut off"),
    ];
    for (answer, told) in answers {
        in_worlds(10, |sim| {
            let mut stage = Stage::new(sim);
            let client = stage.client();
            let server = stage.ask(&client, GET);
            server.send(answer);
            stage.pass(Duration::from_millis(20));
            client.peer.reset();
            stage.pass(Duration::from_millis(20));
            assert!(server.end().is_some(), "the server was not told");
            let stats = stage.stats();
            assert_eq!((stats.proxy_left, stats.proxy_failed, stats.proxy_timeouts), (1, 0, 0));
            stage.check_told(told);
            stage.check_nothing_is_left(vec![client], vec![server]);
        });
    }
}

/// A surplus of one server's must never be taken for the response to another request.
#[test]
fn bytes_behind_a_long_response_are_not_for_the_next_request() {
    let evil = &b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil"[..];
    let (sized, chunked) =
        (&b"Content-Length: 300000\r\n\r\n"[..], b"Transfer-Encoding: chunked\r\n\r\n");
    let content = content(9, 300_000);
    let by_length = [b"HTTP/1.1 200 OK\r\n", sized, &content, evil].concat();
    let last = b"\r\n0\r\n\r\n";
    let in_chunks =
        [b"HTTP/1.1 200 OK\r\n", &chunked[..], b"493e0\r\n", &content, last, evil].concat();
    in_worlds(30, |sim| {
        let is_chunked = sim.seed.is_multiple_of(2);
        let mut stage = Stage::new(sim);
        let (mut client, mut other) = (stage.client(), stage.client());
        let server = stage.ask(&client, GET);
        // Both come in one turn, with some luck: the end of the response, and the next request.
        server.send(if is_chunked { &in_chunks } else { &by_length });
        other.peer.send(GET);
        let mut asked = Vec::new();
        stage.run_until(|| {
            client.plain.look();
            client.plain.received().len() >= 300_000
        });
        assert!(stage.response(&mut client).whole);
        let next = stage.accept();
        stage.request(&next);
        next.send(OK);
        asked.push(next);
        assert_eq!(stage.response(&mut other).body, b"ok");
        asked.push(server);
        stage.check_nothing_is_left(vec![client, other], asked);
    });
}

/// A client that ends or breaks a tunnel must not make its server count as down.
#[test]
fn tunnels_that_break_are_no_failures_of_the_server() {
    in_worlds(3, |sim| {
        let mut stage = Stage::with_rules(sim, |rules| rules.health.max_fails = 1);
        for is_reset in [false, true] {
            let mut client = stage.client();
            let server = stage.ask(&client, UPGRADE);
            server.send(SWITCHED);
            assert_eq!(stage.response(&mut client).status, 101);
            if is_reset {
                server.reset();
            }
            stage.pass(TIMEOUT + Duration::from_secs(1));
            client.plain.look();
            assert!(client.plain.end().is_some(), "{is_reset}");
        }
        let mut client = stage.client();
        let server = stage.ask(&client, GET);
        server.send(OK);
        assert_eq!(stage.response(&mut client).status, 200);
        assert!(!stage.notes().contains("down"), "{}", stage.notes());
        stage.check_nothing_is_left(vec![client], vec![server]);
    });
}

/// Clients may leave as often as they like. They neither fill the log nor keep a fault of a server out of it.
#[test]
fn many_clients_that_leave_have_few_lines() {
    const CLIENTS: u64 = 200;
    in_worlds(2, |sim| {
        let mut stage = Stage::new(sim);
        let begin = stage.worker.ring().now();
        for _ in 0..CLIENTS {
            let client = stage.client();
            let server = stage.ask(&client, GET);
            client.peer.reset();
            stage.run_until(|| server.end().is_some());
        }
        assert_eq!(stage.stats().proxy_left, CLIENTS);
        let mut client = stage.client();
        let server = stage.ask(&client, GET);
        server.reset();
        assert_eq!(stage.response(&mut client).status, 502);
        let notes = stage.notes();
        let seconds = stage.worker.ring().now().since(begin).as_secs();
        let lines = |text| notes.lines().filter(|line| line.contains(text)).count() as u64;
        let about_clients = lines("the client waits no more");
        assert!((10..=11 + seconds).contains(&about_clients), "{about_clients} in {seconds} s");
        assert!(about_clients < CLIENTS, "{seconds} s are too long");
        assert_eq!(lines("reset"), 1, "{notes}");
        // The next line tells how many there were.
        let next = stage.client();
        let other = stage.ask(&next, GET);
        next.peer.reset();
        stage.run_until(|| other.end().is_some());
        assert!(stage.notes().contains(" lines about clients of gateways were dropped\n"));
        stage.check_nothing_is_left(vec![client, next], vec![server, other]);
    });
}

#[test]
fn a_slow_client_throttles_the_server() {
    const BUFFER: u64 = 64 * 1024;
    /// What the ring has received before it is told to stop: all of its buffers.
    const RING: u64 = 1024 * 1024;
    /// One that is being sent, and one that waits.
    const PIPES: u64 = 2 * 128 * 1024;
    in_worlds(3, |sim| {
        let socket_bytes = sim.send_buffer as u64;
        let mut stage = Stage::with_rules(sim, |rules| {
            (rules.buffer, rules.receive_max) = (BUFFER, PIPES / 2);
        });
        let mut client = stage.client();
        let body = content(3, 4_000_000);
        let server = stage.ask(&client, GET);
        client.peer.set_read_rate(Some(1000));
        server.send(b"HTTP/1.1 200 OK\r\nContent-Length: 4000000\r\n\r\n");
        // In pieces, as from a network.
        body.chunks(16 * 1024).for_each(|piece| server.send(piece));
        for _ in 0..100 {
            stage.pass(Duration::from_millis(100));
            let taken = 4_000_000 - server.unreceived_bytes() as u64;
            let most = BUFFER + RING + PIPES + 2 * socket_bytes;
            assert!(taken <= most, "{taken} of at most {most} were taken");
            assert!(stage.worker.held().0 <= 1_000_000, "{}", stage.worker.held().0);
        }
        client.peer.set_read_rate(None);
        let response = stage.response(&mut client);
        assert!(response.whole && response.body == body);
        stage.check_nothing_is_left(vec![client], vec![server]);
    });
}

#[test]
fn a_server_of_tiny_chunks_has_a_bounded_turn() {
    /// What the ring has received before it is told to stop: all of its buffers.
    const RING: usize = 1024 * 1024;
    const RECEIVE: usize = 16 * 1024;
    const CHUNKS: usize = 500_000;
    in_worlds(3, |sim| {
        let mut stage = Stage::with_rules(sim, |rules| rules.receive_max = RECEIVE as u64);
        let mut client = stage.client();
        let body = content(4, CHUNKS);
        let server = stage.ask(&client, GET);
        let framed = body.iter().flat_map(|byte| [b'1', b'\r', b'\n', *byte, b'\r', b'\n']);
        let head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".iter().copied();
        let all: Vec<u8> = head.chain(framed).chain(*b"0\r\n\r\n").collect();
        server.send(&all);
        assert!(stage.run_until(|| server.unreceived_bytes() > 0), "all were taken in one turn");
        let (mut left, mut turns) = (server.unreceived_bytes(), 0);
        while left > 0 {
            let now = stage.worker.ring().now();
            stage.worker.turn(Some(now + Duration::from_millis(1))).expect("a ring that waits");
            let before = core::mem::replace(&mut left, server.unreceived_bytes());
            if before < all.len() - RING {
                assert!(before - left <= 2 * RECEIVE, "{} bytes in a turn", before - left);
                turns += 1;
            }
        }
        // A turn understands 1,024 chunks, of 6 bytes each.
        assert!(turns > (all.len() - RING) / 6 / 1024 / 2, "{turns} turns");
        let response = stage.response(&mut client);
        assert!(response.whole && response.body == body);
        stage.check_nothing_is_left(vec![client], vec![server]);
    });
}

#[test]
fn a_client_that_takes_a_byte_a_second_is_closed_and_its_server_told() {
    let large = content(10, 4_000_000);
    let by_length = [b"HTTP/1.1 200 OK\r\nContent-Length: 4000000\r\n\r\n", &large[..]].concat();
    let mut chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
    for piece in large.chunks(70_001) {
        chunked.extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
        chunked.extend_from_slice(piece);
        chunked.extend_from_slice(b"\r\n");
    }
    let timeout_send = Tuning::default().timeout_send;
    in_worlds(3, |sim| {
        for answer in [&by_length, &chunked] {
            let mut stage = Stage::new(sim.clone());
            let mut client = stage.client();
            let server = stage.ask(&client, GET);
            client.peer.set_read_rate(Some(1));
            server.send(answer);
            stage.pass(timeout_send - Duration::from_secs(1));
            assert_eq!((stage.stats().slow_peers, server.end()), (0, None));
            // What the socket has taken at first may count for the first time.
            stage.pass(timeout_send + Duration::from_secs(2));
            let stats = stage.stats();
            assert_eq!((stats.slow_peers, stats.proxy_left), (1, 1));
            assert_eq!((stats.proxy_failed, stats.proxy_timeouts), (0, 0), "no server is to blame");
            assert!(server.end().is_some(), "the server was not told");
            client.peer.set_read_rate(None);
            assert!(!stage.response(&mut client).whole);
            stage.check_told("the client waits no more; its response is cut off");
            stage.check_nothing_is_left(vec![client], vec![server]);
        }
    });
}

#[test]
fn a_server_that_never_takes_a_body_has_its_time() {
    in_worlds(3, |sim| {
        let mut stage = Stage::with_rules(sim, |rules| rules.timeout_upstream = 4 * TIMEOUT);
        let mut client = stage.client();
        client.peer.send(b"PUT /a HTTP/1.1\r\nHost: a\r\nContent-Length: 2000000\r\n\r\n");
        client.peer.send(&content(11, 2_000_000));
        let server = stage.accept();
        server.stop_reading();
        stage.pass(TIMEOUT - Duration::from_millis(500));
        client.plain.look();
        assert_eq!((client.plain.received().len(), stage.stats().proxy_timeouts), (0, 0));
        let response = stage.response(&mut client);
        assert_eq!((response.status, response.whole), (504, true));
        let stats = stage.stats();
        assert_eq!((stats.proxy_timeouts, stats.proxy_failed), (1, 1));
        stage.check_told("it took nothing of the request within 5 s (timeout-upstream-send)");
        server.set_read_rate(None);
        stage.pass(Duration::from_millis(50));
        assert!(server.end().is_some(), "the link is still open");
        assert!(!stage.has_connected(), "a body was sent twice");
        stage.check_nothing_is_left(vec![client], vec![server]);
    });
}

#[test]
fn a_server_that_sends_but_never_takes_a_body_has_its_time() {
    in_worlds(3, |sim| {
        let mut stage = Stage::with_rules(sim, |rules| rules.timeout_upstream = 4 * TIMEOUT);
        let mut client = stage.client();
        client.peer.send(b"PUT /a HTTP/1.1\r\nHost: a\r\nContent-Length: 2000000\r\n\r\n");
        client.peer.send(&content(11, 2_000_000));
        let server = stage.accept();
        server.stop_reading();
        for byte in *b"HTTP/1." {
            stage.pass(Duration::from_secs(1));
            server.send(&[byte]);
        }
        assert_eq!(stage.stats().proxy_timeouts, 1, "bytes of its head gave it more time");
        assert_eq!(stage.response(&mut client).status, 504);
        stage.check_told("it took nothing of the request within 5 s (timeout-upstream-send)");
        stage.check_nothing_is_left(vec![client], vec![server]);
    });
}

#[test]
fn a_server_that_waits_for_a_slow_upload_is_not_late() {
    in_worlds(3, |sim| {
        let mut stage = Stage::new(sim);
        let mut client = stage.client();
        client.peer.send(b"PUT /a HTTP/1.1\r\nHost: a\r\nContent-Length: 18000\r\n\r\n");
        let server = stage.accept();
        let body = content(12, 18_000);
        for piece in body.chunks(6000) {
            stage.pass(2 * TIMEOUT);
            client.peer.send(piece);
        }
        let (_, sent) = stage.request(&server);
        assert!(sent == body);
        // The whole time for an answer begins with its last byte.
        stage.pass(TIMEOUT - Duration::from_millis(500));
        server.send(OK);
        assert_eq!(stage.response(&mut client).body, b"ok");
        assert_eq!((stage.stats().proxy_timeouts, stage.notes()), (0, String::new()));
        stage.check_nothing_is_left(vec![client], vec![server]);
    });
}

/// It may wait for the rest of the body with the rest of its content, however that is received.
#[test]
fn a_server_that_has_begun_its_content_waits_for_a_slow_upload() {
    for length in [4, 300_000] {
        in_worlds(3, |sim| {
            let mut stage = Stage::new(sim);
            let mut client = stage.client();
            client.peer.send(b"PUT /a HTTP/1.1\r\nHost: a\r\nContent-Length: 12000\r\n\r\n");
            let body = content(12, 12_000);
            client.peer.send(&body[..6000]);
            let server = stage.accept();
            let whole = content(13, length);
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n");
            server.send(&[head.as_bytes(), &whole[..length / 2]].concat());
            stage.pass(2 * TIMEOUT);
            client.peer.send(&body[6000..]);
            // The whole time for the rest begins with the last byte of the body.
            stage.pass(TIMEOUT - Duration::from_millis(500));
            server.send(&whole[length / 2..]);
            let response = stage.response(&mut client);
            assert!(response.whole && response.body == whole, "{length}: {}", response.head);
            assert_eq!((stage.stats().proxy_timeouts, stage.notes()), (0, String::new()));
            let (_, sent) = stage.request(&server);
            assert!(sent == body);
            stage.check_nothing_is_left(vec![client], vec![server]);
        });
    }
}

#[test]
fn a_server_that_takes_slowly_or_answers_without_the_body_is_not_late() {
    const LEN: usize = 4_000_000;
    let put = format!("PUT /a HTTP/1.1\r\nHost: a\r\nContent-Length: {LEN}\r\n\r\n");
    in_worlds(3, |sim| {
        let send = sim.send_buffer;
        let mut stage = Stage::with_rules(sim.clone(), |rules| {
            rules.timeout_upstream_send = Duration::from_secs(2);
        });
        let client = stage.client();
        client.peer.send(put.as_bytes());
        client.peer.send(&content(13, LEN));
        let server = stage.accept();
        // It takes a buffer of its socket in a second.
        server.set_read_rate(Some(send as u64));
        stage.pass(4 * TIMEOUT);
        assert_eq!(stage.stats().proxy_timeouts, 0, "{}", stage.notes());
        stage.check_nothing_is_left(vec![client], vec![server]);

        // It sends all the time, but less than its client receives in the end.
        let mut stage = Stage::with_rules(sim, |rules| rules.buffer = 64 * 1024);
        let mut client = stage.client();
        client.peer.send(put.as_bytes());
        client.peer.send(&content(13, LEN));
        let server = stage.accept();
        server.stop_reading();
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {LEN}\r\n\r\n");
        server.send(head.as_bytes());
        let answer = content(14, LEN);
        let (first, rest) = answer.split_at(10);
        for byte in first {
            server.send(&[*byte]);
            stage.pass(TIMEOUT / 2);
        }
        // Now it is the client that does nothing.
        client.peer.set_read_rate(Some(1000));
        server.send(rest);
        stage.pass(4 * TIMEOUT);
        assert_eq!(stage.stats().proxy_timeouts, 0, "{}", stage.notes());
        client.peer.set_read_rate(None);
        let response = stage.response(&mut client);
        assert!(response.whole && response.body == answer);
        assert_eq!(stage.stats().proxy_failed, 0);
        stage.check_nothing_is_left(vec![client], vec![server]);
    });
}

#[test]
fn a_server_that_takes_no_body_throttles_the_client() {
    in_worlds(3, |sim| {
        let mut stage = Stage::new(sim);
        let mut client = stage.client();
        let body = content(4, 2_000_000);
        client.peer.send(b"PUT /a HTTP/1.1\r\nHost: a\r\nContent-Length: 2000000\r\n\r\n");
        body.chunks(16 * 1024).for_each(|piece| client.peer.send(piece));
        let server = stage.accept();
        server.stop_reading();
        stage.pass(Duration::from_secs(1));
        assert!(client.peer.unreceived_bytes() > 1_000_000);
        server.set_read_rate(None);
        let (_, sent) = stage.request(&server);
        assert!(sent == body);
        server.send(OK);
        assert_eq!(stage.response(&mut client).body, b"ok");
        stage.check_nothing_is_left(vec![client], vec![server]);
    });
}

const UPGRADE: &[u8] =
    b"GET /ws HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n";
const SWITCHED: &[u8] =
    b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\nhello";

#[test]
fn a_tunnel_carries_bytes_both_ways_and_ends_with_either_side() {
    in_worlds(10, |sim| {
        for by_client in [true, false] {
            let mut stage = Stage::new(sim.clone());
            let mut client = stage.client();
            let server = stage.ask(&client, UPGRADE);
            server.send(SWITCHED);
            let response = stage.response(&mut client);
            assert_eq!(response.status, 101, "{}", response.head);
            let (up, down) = (content(5, 300_000), content(6, 300_000));
            client.peer.send(&up);
            server.send(&down);
            let expected = [b"hello", &down[..]].concat();
            let at = client.at;
            stage.run_until(|| {
                client.plain.look();
                client.plain.received().len() >= at + expected.len()
                    && server.received_bytes() >= up.len()
            });
            assert!(client.plain.received()[at..] == expected);
            assert!(server.take() == up);
            if by_client {
                client.peer.shutdown_write();
                stage.pass(Duration::from_millis(100));
                assert_eq!(server.end(), Some(End::Eof), "the half that has ended");
                // The other half goes on.
                server.send(b"bye");
                server.shutdown_write();
            } else {
                server.send(b"bye");
                server.close();
            }
            stage.pass(Duration::from_millis(100));
            client.plain.look();
            assert!(client.plain.received().ends_with(b"bye"));
            assert_eq!(client.plain.end(), Some(End::Eof));
            assert_eq!(stage.stats().proxy_failed, 0);
            stage.check_nothing_is_left(vec![client], vec![server]);
        }
    });
}

/// A tunnel would begin after a response that has nothing after its head, and end at once.
#[test]
fn a_request_for_a_head_alone_offers_no_tunnel() {
    let head = [b"HEAD", &UPGRADE[3..]].concat();
    in_worlds(6, |sim| {
        let mut stage = Stage::new(sim);
        let client = stage.client();
        client.peer.send(&head);
        let server = stage.accept();
        let (sent, _) = stage.request(&server);
        assert!(!sent.to_ascii_lowercase().contains("upgrade"), "{sent}");
        server.send(SWITCHED);
        stage.pass(Duration::from_millis(100));
        let received = String::from_utf8(client.peer.received()).expect("a text");
        assert!(received.starts_with("HTTP/1.1 502 "), "{received}");
        stage.check_told("a 101 that the request has not asked for");
        stage.check_nothing_is_left(vec![client], vec![server]);
    });
}

#[test]
fn rfc9110_15_5_22_a_client_learns_which_protocol_is_demanded() {
    in_worlds(6, |sim| {
        let mut stage = Stage::new(sim);
        let mut client = stage.client();
        let server = stage.ask(&client, GET);
        server.send(
            b"HTTP/1.1 426 Upgrade Required\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\
              Content-Length: 0\r\n\r\n",
        );
        let response = stage.response(&mut client);
        assert_eq!(response.status, 426);
        assert!(
            response.head.contains("\r\nUpgrade: websocket\r\nConnection: upgrade\r\n"),
            "{}",
            response.head
        );
        // The connection goes on.
        client.peer.send(GET);
        stage.request(&server);
        server.send(OK);
        assert_eq!(stage.response(&mut client).body, b"ok");
        stage.check_nothing_is_left(vec![client], vec![server]);
    });
}

#[test]
fn bytes_behind_an_upgrade_reach_the_server_once_it_has_agreed() {
    in_worlds(10, |sim| {
        let mut stage = Stage::new(sim);
        let mut client = stage.client();
        let server = stage.ask(&client, &[UPGRADE, b"early"].concat());
        stage.pass(Duration::from_millis(100));
        assert_eq!(server.received_bytes(), 0, "it may still refuse");
        server.send(SWITCHED);
        assert_eq!(stage.response(&mut client).status, 101);
        stage.run_until(|| server.received_bytes() == 5);
        assert_eq!(server.take(), b"early");
        client.peer.shutdown_write();
        server.shutdown_write();
        stage.pass(Duration::from_millis(100));
        stage.check_nothing_is_left(vec![client], vec![server]);
    });
}

/// What comes through a tunnel is pulled while there is much of it, and comes through the ring otherwise.
#[test]
fn a_tunnel_carries_much_and_little_in_turns() {
    in_wide_worlds(10, |sim| {
        for splice in [true, false] {
            let mut stage = Stage::with_rules(sim.clone(), |rules| rules.splice = splice);
            let mut client = stage.client();
            let server = stage.ask(&client, UPGRADE);
            server.send(SWITCHED);
            assert_eq!(stage.response(&mut client).status, 101);
            let (at, up) = (client.at, content(5, 600_000));
            let (mut sent, mut taken) = (b"hello".to_vec(), Vec::new());
            let mut send_down = |server: &Peer, seed, bytes| {
                server.send(&content(seed, bytes));
                sent.extend_from_slice(&content(seed, bytes));
                sent.len()
            };
            for (turn, up) in up.chunks(200_000).enumerate() {
                client.peer.send(up);
                let expected = send_down(&server, turn as u64, 1_000_000);
                taken.extend_from_slice(up);
                stage.run_until(|| {
                    client.plain.look();
                    client.plain.received().len() == at + expected
                        && server.received_bytes() == taken.len()
                });
                assert_eq!(stage.world.open_pipes() > 0, splice, "the ways past the ring");
                for bytes in [1, 100, 5_000, 1, 20_000, 300, 2] {
                    let expected = send_down(&server, 10 + turn as u64, bytes);
                    stage.run_until(|| {
                        client.plain.look();
                        client.plain.received().len() == at + expected
                    });
                }
            }
            client.peer.shutdown_write();
            stage.pass(Duration::from_millis(100));
            assert_eq!(server.end(), Some(End::Eof), "the half that has ended");
            send_down(&server, 20, 1_000_000);
            server.shutdown_write();
            stage.run_until(|| {
                client.plain.look();
                client.plain.end().is_some()
            });
            assert!(client.plain.received()[at..] == sent && server.take() == up);
            assert_eq!(client.plain.end(), Some(End::Eof));
            let stats = stage.stats();
            assert_eq!((stats.proxy_failed, stats.proxy_early, stats.proxy_left), (0, 0, 0));
            stage.check_nothing_is_left(vec![client], vec![server]);
        }
    });
}

#[test]
fn a_client_that_stops_reading_throttles_its_tunnel() {
    const BUFFER: u64 = 64 * 1024;
    const RECEIVE: u64 = 128 * 1024;
    const LEN: usize = 4_000_000;
    in_wide_worlds(3, |mut sim| {
        sim.cancel = AT_ONCE;
        for splice in [true, false] {
            let socket_bytes = sim.send_buffer as u64;
            let mut stage = Stage::with_rules(sim.clone(), |rules| {
                (rules.buffer, rules.receive_max, rules.splice) = (BUFFER, RECEIVE, splice);
            });
            let mut client = stage.client();
            let server = stage.ask(&client, UPGRADE);
            server.send(SWITCHED);
            assert_eq!(stage.response(&mut client).status, 101);
            let at = client.at;
            let body = content(3, LEN);
            let (first, rest) = body.split_at(LEN / 2);
            server.send(first);
            stage.run_until(|| {
                client.plain.look();
                client.plain.received().len() == at + 5 + LEN / 2
            });
            // It is pulled now.
            client.peer.set_read_rate(Some(1000));
            server.send(rest);
            for turn in 0..100 {
                stage.pass(Duration::from_millis(100));
                let taken = (LEN / 2 - server.unreceived_bytes()) as u64;
                // One pipe that is being sent, and one that waits. Memory that is being sent is in the buffer.
                let held = if splice { 2 * RECEIVE } else { BUFFER };
                // The receive that fills it, and one that ends before the stop.
                let most = held + 2 * socket_bytes + 2 * 20 * 1024;
                assert!(taken <= most, "{taken} of at most {most} were taken");
                // The other half goes on.
                client.peer.send(b"x");
                stage.run_until(|| server.received_bytes() > turn);
            }
            assert_eq!(stage.stats().proxy_timeouts, 0, "it is the client that does nothing");
            client.peer.set_read_rate(None);
            stage.run_until(|| {
                client.plain.look();
                client.plain.received().len() == at + 5 + LEN
            });
            assert!(client.plain.received()[at + 5..] == body);
            stage.check_nothing_is_left(vec![client], vec![server]);
        }
    });
}

#[test]
fn an_idle_tunnel_is_closed() {
    in_worlds(5, |sim| {
        let mut stage = Stage::new(sim);
        let mut client = stage.client();
        let server = stage.ask(
            &client,
            b"GET /ws HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
        );
        server.send(
            b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
        );
        assert_eq!(stage.response(&mut client).status, 101);
        // Bytes of either side keep it.
        for turn in 0..6 {
            stage.pass(TIMEOUT / 5 * 4);
            if turn % 2 == 0 { client.peer.send(b"a") } else { server.send(b"b") }
        }
        stage.pass(Duration::from_millis(50));
        client.plain.look();
        assert!(client.plain.received().ends_with(b"bbb") && client.plain.end().is_none());
        stage.pass(TIMEOUT + Duration::from_secs(1));
        client.plain.look();
        assert!(client.plain.end().is_some() && server.end().is_some());
        stage.check_nothing_is_left(vec![client], vec![server]);
    });
}
