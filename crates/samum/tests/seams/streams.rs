//! HTTP/2 in simulated worlds: many streams of one connection, disks that hang and fail, clients that read slowly,
//! cancel and leave.

use core::cell::Cell;
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind, Read, Write};
use std::sync::Arc;

use config::{
    Action, Config as Settings, FileRules, GatewayRules, Rate, Tuning, Upstream, upstream,
};
use handler::serving::Snapshot;
use ring::sim::{Config, Counts, Peer, World};
use samum::worker::{Parts, Worker};
use sendfile::{Caching, Policy, Window};
use session::Http;
use testkit::Random;
use testkit::http2::{END_STREAM, Http2, Reply, kind, pseudo};

use crate::options::Options;
use crate::seams::world::{assert_nothing_is_left, for_seeds, parts, pass, run_until};

/// Files of the root, and of a device that may hang.
const FILES: [(&str, usize); 8] = [
    ("f0", 0),
    ("f1", 1),
    ("f5000", 5000),
    ("f32769", 32_769),
    ("f300001", 300_001),
    ("f1000000", 1_000_000),
    ("slow/f5000", 5001),
    ("slow/f700000", 700_000),
];
const SLOW: &str = "slow/f700000";
const CANCEL: u32 = 8;

fn content(seed: u64, len: usize) -> Vec<u8> {
    Random::new(seed ^ len as u64).words(len)
}

/// A world with the files, and the number of the device.
fn make(config: Config) -> (World, u64) {
    let seed = config.seed;
    let world = World::new(config);
    let device = world.make_device("slow");
    for (name, len) in FILES {
        world.write_file(name, &content(seed, len));
    }
    world.evict_all();
    (world, device)
}

fn serve(world: &World, options: impl Into<Options>) -> Worker<Http> {
    Worker::new(parts(world, options)).expect("memory")
}

/// A simulated peer as a stream. Without bytes a read would block.
struct Pipe {
    peer: Peer,
    input: Vec<u8>,
}

impl Read for Pipe {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.input.extend(self.peer.take());
        if self.input.is_empty() {
            return Err(ErrorKind::WouldBlock.into());
        }
        let count = buffer.len().min(self.input.len());
        buffer[..count].copy_from_slice(&self.input[..count]);
        self.input.drain(..count);
        Ok(count)
    }
}

impl Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.peer.send(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct Client(Http2<Pipe>);

impl Client {
    fn new(world: &World) -> Self {
        Self::with(world, &[])
    }

    fn with(world: &World, settings: &[(u16, u32)]) -> Self {
        let pipe = Pipe { peer: world.connect(), input: Vec::new() };
        Self(Http2::new(pipe, settings).expect("a peer takes everything"))
    }

    fn peer(&mut self) -> &Peer {
        &self.0.stream().peer
    }

    fn get(&mut self, name: &str) -> u32 {
        self.0.get(&format!("/{name}")).expect("a peer takes everything")
    }

    /// Asks for one byte of a file.
    fn byte(&mut self, name: &str, at: usize) -> u32 {
        let (path, range) = (format!("/{name}"), format!("bytes={at}-{at}"));
        let mut fields = pseudo("GET", &path);
        fields.push(("range", &range));
        self.0.request(fields, true).expect("a peer takes everything")
    }

    fn cancel(&mut self, stream: u32) {
        let code = CANCEL.to_be_bytes();
        self.0.frame(kind::RST_STREAM, 0, stream, &code).expect("a peer takes everything");
    }

    /// Takes the frames that have come whole.
    fn look(&mut self) {
        while self.0.take_frame().is_ok() {}
    }

    fn reply(&mut self, stream: u32) -> &Reply {
        self.look();
        self.0.so_far(stream)
    }

    fn has_all(&mut self, streams: &[u32]) -> bool {
        self.look();
        streams.iter().all(|stream| self.0.so_far(*stream).is_over())
    }
}

#[track_caller]
fn wait_for(worker: &mut Worker<Http>, client: &mut Client, streams: &[u32]) {
    let has_all = run_until(worker, || client.has_all(streams));
    let lens = streams.iter().map(|stream| client.0.so_far(*stream).body.len());
    assert!(has_all, "{streams:?}: {:?} {worker:?}", lens.collect::<Vec<_>>());
}

#[track_caller]
fn assert_whole(client: &mut Client, stream: u32, body: &[u8]) {
    let reply = client.reply(stream);
    assert_eq!((reply.has_ended, reply.body.len()), (true, body.len()), "{stream}");
    assert!(reply.body == body, "{stream}: other bytes than the file's");
}

fn assert_all_is_given_back(world: &World, worker: &mut Worker<Http>) {
    assert_nothing_is_left(world, worker);
    assert_eq!(worker.held(), (0, 0), "bytes of connections, buffers of the disk");
}

#[test]
fn a_cold_stream_does_not_hold_up_hot_ones() {
    for_seeds(20, |seed| {
        let (world, device) = make(Config::new(seed));
        let mut worker = serve(&world, Tuning::default());
        let mut client = Client::with(&world, &[(4, 1 << 24)]);
        widen(&mut client);
        let hot = &FILES[..6];
        let first: Vec<_> = hot.iter().map(|(name, _)| client.get(name)).collect();
        wait_for(&mut worker, &mut client, &first);
        let opened = client.get(SLOW);
        wait_for(&mut worker, &mut client, &[opened]);

        world.evict(SLOW);
        world.hang(device);
        // The body of one file, and the other file itself, are on the device that hangs.
        let (cold, sought) = (client.get(SLOW), client.get("slow/f5000"));
        let streams: Vec<_> = hot.iter().map(|(name, _)| client.get(name)).collect();
        let begun = world.now();
        wait_for(&mut worker, &mut client, &streams);
        assert!(world.now().since(begun) < Duration::from_secs(1));
        for (stream, (_, len)) in streams.iter().zip(hot) {
            assert_whole(&mut client, *stream, &content(seed, *len));
        }
        pass(&mut worker, Duration::from_secs(10));
        assert_eq!(client.reply(sought), &Reply::default());
        let begun = client.reply(cold);
        assert!(begun.status == 200 && begun.body.is_empty() && !begun.is_over(), "{begun:?}");

        world.release(device);
        wait_for(&mut worker, &mut client, &[cold, sought]);
        assert_whole(&mut client, cold, &content(seed, 700_000));
        assert_whole(&mut client, sought, &content(seed, 5001));
        drop(client);
        assert_all_is_given_back(&world, &mut worker);
    });
}

/// Opens the window of the connection.
fn widen(client: &mut Client) {
    let window = (1_u32 << 30).to_be_bytes();
    client.0.frame(kind::WINDOW_UPDATE, 0, 0, &window).expect("a peer takes everything");
}

/// A frame and its head are one record of TLS, and each record costs a client system calls.
#[test]
fn the_frames_of_resident_files_are_whole() {
    for_seeds(5, |seed| {
        const LEN: usize = 3_000_000;
        const FRAME: usize = 16 * 1024 - 9;
        let (world, _) = make(Config::new(seed));
        world.write_file("big", &content(seed, LEN));
        let mut worker = serve(&world, Tuning::default());
        let mut client = Client::with(&world, &[(4, 1 << 30)]);
        widen(&mut client);
        let streams: Vec<_> = (0..4).map(|_| client.get("big")).collect();
        let mut frames = BTreeMap::<_, Vec<_>>::new();
        assert!(run_until(&mut worker, || {
            while let Ok(frame) = client.0.take_frame() {
                if frame.kind == kind::DATA {
                    frames.entry(frame.stream).or_default().push(frame.payload.len());
                }
            }
            streams.iter().all(|stream| client.0.so_far(*stream).is_over())
        }));
        for stream in streams {
            let short = frames[&stream].iter().filter(|len| **len != FRAME).count();
            assert!(short <= 1, "{short} short frames of {}", frames[&stream].len());
            assert_whole(&mut client, stream, &content(seed, LEN));
        }
    });
}

/// Pages of files go while they are sent. Then a stream has read what is after the next byte, and not that byte itself.
#[test]
fn streams_that_share_memory_end_although_pages_go() {
    for_seeds(40, |seed| {
        const LEN: usize = 3_000_000;
        let (world, _) = make(Config::new(seed));
        world.write_file("big", &content(seed, LEN));
        let mut worker = serve(&world, Tuning::default());
        let mut client = Client::with(&world, &[(4, 1 << 30)]);
        widen(&mut client);
        let mut chance = Random::new(seed);
        let streams: Vec<_> = (0..2 + seed % 9).map(|_| client.get("big")).collect();
        let mut is_over = false;
        for _ in 0..2000 {
            if chance.one_in(3) {
                world.evict("big");
            }
            is_over = client.has_all(&streams);
            if is_over {
                break;
            }
            pass(&mut worker, Duration::from_micros(200));
        }
        if !is_over {
            wait_for(&mut worker, &mut client, &streams);
        }
        streams.iter().for_each(|stream| assert_whole(&mut client, *stream, &content(seed, LEN)));
        drop(client);
        assert_all_is_given_back(&world, &mut worker);
    });
}

/// The streams of a client that widens only the window of the last one have the memory, until that needs it.
#[test]
fn a_stream_without_a_window_keeps_no_memory_from_another() {
    for_seeds(20, |seed| {
        let (world, _) = make(Config::new(seed));
        let mut worker = serve(&world, Tuning::default());
        let mut client = Client::with(&world, &[(4, 1000)]);
        widen(&mut client);
        let shut = [(); 8].map(|()| client.get("f1000000"));
        let has_begun = |client: &mut Client, stream: u32| client.reply(stream).body.len() == 1000;
        assert!(run_until(&mut worker, || shut.iter().all(|it| has_begun(&mut client, *it))));
        let open = client.get("f300001");
        let window = (1_u32 << 20).to_be_bytes();
        client.0.frame(kind::WINDOW_UPDATE, 0, open, &window).expect("a peer takes everything");
        wait_for(&mut worker, &mut client, &[open]);
        assert_whole(&mut client, open, &content(seed, 300_001));
    });
}

/// Deadlines pass late, and one stream may have read more than its share of the rate.
#[test]
fn streams_share_the_rate_of_their_route() {
    const RATE: u64 = 1_000_000;
    for_seeds(20, |seed| {
        let (world, _) = make(Config::new(seed));
        world.write_file("big", &content(seed, 12_000_000));
        let mut config = config::Config::default();
        config.sites[0].routes[0].limits.bytes_per_second = Some(RATE);
        let snapshot = Arc::new(Snapshot::new(&config).expect("a valid configuration"));
        let parts = Parts { snapshot, ..parts(&world, Tuning::default()) };
        let mut worker = Worker::<Http>::new(parts).expect("memory");
        let mut client = Client::with(&world, &[(4, 1 << 30)]);
        widen(&mut client);
        let streams: Vec<_> = (0..1 + seed % 3).map(|_| client.get("big")).collect();
        let mut received =
            || streams.iter().map(|it| client.reply(*it).body.len() as u64).collect::<Vec<_>>();
        pass(&mut worker, Duration::from_secs(1));
        let before = received();
        pass(&mut worker, Duration::from_secs(8));
        let each: Vec<_> = received().iter().zip(before).map(|(now, then)| now - then).collect();
        let all: u64 = each.iter().sum();
        assert!(all.abs_diff(8 * RATE) <= 8 * RATE / 10, "{each:?} in 8 s");
        assert!(each.iter().all(|one| *one >= all / each.len() as u64 / 2), "{each:?}");
    });
}

/// A configuration that passes all requests on.
fn proxied() -> Settings {
    let mut config = Settings::default();
    let servers = vec![upstream::server("http://127.0.0.1:9000").expect("a server")];
    let upstream = Upstream { servers, rules: GatewayRules::default() };
    config.sites[0].routes[0].action = Action::Proxy(upstream);
    config
}

/// The answer to a refused request waits for the body, and other requests are refused meanwhile.
#[test]
fn a_request_is_refused_once_whatever_comes_before_its_body() {
    let world = World::new(Config::new(1));
    let mut config = proxied();
    config.sites[0].routes[0].limits.requests = Some(Rate { per_second: 20.0, burst: 1 });
    let snapshot = Arc::new(Snapshot::new(&config).expect("a valid configuration"));
    let parts = Parts { snapshot, roots: Vec::new(), ..parts(&world, Tuning::default()) };
    let mut worker = Worker::<Http>::new(parts).expect("memory");
    let mut client = Client::new(&world);
    let post = |client: &mut Client| {
        let mut fields = pseudo("POST", "/");
        fields.push(("content-length", "4"));
        client.0.request(fields, false).expect("a peer takes everything")
    };
    let streams = [(); 4].map(|()| post(&mut client));
    let refused = &streams[1..];
    pass(&mut worker, Duration::from_millis(10));
    assert_eq!(worker.stats().limited_requests, 3);
    // Meanwhile there is a token again.
    pass(&mut worker, Duration::from_millis(100));
    for stream in refused {
        client.0.frame(kind::DATA, END_STREAM, *stream, b"body").expect("it takes all");
    }
    wait_for(&mut worker, &mut client, refused);
    for stream in refused {
        assert_eq!(client.reply(*stream).status, 429, "{stream}");
    }
    assert_eq!(worker.stats().limited_requests, 3, "each is counted once");
}

/// All gateways of the connection are occupied, so the request would have to wait if it were not refused.
#[test]
fn a_refusal_does_not_wait_for_a_gateway() {
    const GATEWAYS: usize = 32;
    let world = World::new(Config::new(1));
    let server = "127.0.0.1:9000".parse::<core::net::SocketAddr>().expect("an address");
    let listener = world.listen(server);
    let mut config = proxied();
    config.sites[0].routes[0].limits.requests = Some(Rate { per_second: 0.1, burst: 33 });
    let snapshot = Arc::new(Snapshot::new(&config).expect("a valid configuration"));
    let parts = Parts { snapshot, roots: Vec::new(), ..parts(&world, Tuning::default()) };
    let mut worker = Worker::<Http>::new(parts).expect("memory");
    let mut client = Client::new(&world);
    let streams = [(); GATEWAYS + 2].map(|()| client.get(""));
    pass(&mut worker, Duration::from_millis(50));
    let statuses = streams.map(|stream| client.reply(stream).status);
    assert_eq!(statuses[GATEWAYS..], [0, 429], "{statuses:?}");
    assert!(statuses[..GATEWAYS].iter().all(|status| *status == 0), "{statuses:?}");
    assert_eq!(worker.stats().limited_requests, 1);
    drop((client, listener));
}

#[test]
fn a_stream_that_fails_ends_alone() {
    for_seeds(20, |seed| {
        let (world, _) = make(Config::new(seed));
        let policy = Policy { window: Window::of(0), ..Policy::default() };
        let rules = FileRules { policy, ..FileRules::default() };
        let mut worker = serve(&world, rules);
        let mut client = Client::new(&world);
        client.peer().set_read_rate(Some(1_000_000));
        let (cut, whole) = (client.get("f1000000"), client.get(SLOW));
        assert!(run_until(&mut worker, || client.reply(cut).body.len() > 10_000));
        world.truncate("f1000000", 5000);
        wait_for(&mut worker, &mut client, &[cut, whole]);
        let failed = client.reply(cut);
        assert!(failed.reset == Some(2) && !failed.has_ended, "INTERNAL_ERROR");
        assert!(content(seed, 1_000_000).starts_with(&failed.body));
        assert_whole(&mut client, whole, &content(seed, 700_000));
        assert_eq!(worker.stats().truncated, 1);
        let next = client.get("f5000");
        wait_for(&mut worker, &mut client, &[next]);
        assert_whole(&mut client, next, &content(seed, 5000));
    });
}

#[test]
fn a_stream_that_is_reset_gives_its_place_to_another() {
    for_seeds(20, |seed| {
        let (world, device) = make(Config::new(seed));
        let mut worker = serve(&world, Tuning::default());
        let mut client = Client::new(&world);
        let opened = client.get(SLOW);
        wait_for(&mut worker, &mut client, &[opened]);
        world.evict(SLOW);
        world.hang(device);
        let cold = [(); 100].map(|()| client.get(SLOW));
        assert!(run_until(&mut worker, || client.reply(cold[99]).status == 200));
        cold.iter().for_each(|stream| client.cancel(*stream));
        let hot = [(); 20].map(|()| client.get("f300001"));
        wait_for(&mut worker, &mut client, &hot);
        // Their reads end when they have gone.
        world.release(device);
        pass(&mut worker, Duration::from_secs(1));
        hot.iter().for_each(|stream| assert_whole(&mut client, *stream, &content(seed, 300_001)));
        assert!(cold.iter().all(|stream| !client.reply(*stream).is_over()));
        assert_eq!(worker.stats().http2_resets, 100);
        drop(client);
        assert_all_is_given_back(&world, &mut worker);
    });
}

#[test]
fn a_client_that_asks_and_resets_fills_no_memory() {
    let (world, _) = make(Config::new(1));
    let mut worker = serve(&world, Tuning::default());
    let mut client = Client::new(&world);
    client.peer().stop_reading();
    for _ in 0..900 {
        let stream = client.get("f300001");
        client.cancel(stream);
        client.get("f5000");
    }
    for _ in 0..500 {
        let now = worker.ring().now();
        worker.turn(Some(now + Duration::from_millis(20))).unwrap();
        let (bytes, _) = worker.held();
        assert!(bytes < 1_000_000, "{bytes} bytes");
    }
}

/// Buffers of the disk with the bytes that the streams of a connection may have: of files, read ahead, and in frames that
/// wait. Parts of buffers may lie apart.
const BUFFERS_MAX: usize = 8;
/// Buffers of 256 KiB that hold the window of a stream alone.
const ALONE_BUFFERS: usize = 8;

/// Whatever the client receives, and whatever the disk does. The session checks its own count at each step.
#[test]
fn the_files_of_a_connection_have_a_bound_at_each_step() {
    let most = Cell::new(0);
    for_seeds(150, |seed| {
        let mut chance = Random::new(seed);
        let mut config = Config::new(seed);
        config.disk = Duration::from_millis(1)..=Duration::from_millis(100);
        let (world, device) = make(config);
        let mut worker = serve(&world, Tuning::default());
        let window = [1, 1000, 16_384, 65_535, 1 << 20][chance.below(5)];
        let mut client = Client::with(&world, &[(4, window)]);
        if chance.one_in(2) {
            widen(&mut client);
        }
        if chance.one_in(3) {
            client.peer().set_read_rate(Some(100_000 + chance.bits() % 3_000_000));
        }
        // A client that gives back few bytes at a time counts as an attack (`http2::limits`), and its connection ends.
        let is_shut = window <= 1000 || window == 16_384 && chance.one_in(2);
        if is_shut {
            client.0.keep_windows();
        }
        let mut streams = Vec::new();
        let mut hangs = false;
        for _ in 0..300 {
            for _ in 0..chance.below(12) {
                if streams.len() < 90 {
                    let (name, len) = FILES[2 + chance.below(FILES.len() - 2)];
                    streams.push((client.get(name), len));
                }
            }
            match chance.below(40) {
                0 => world.evict_all(),
                1 => {
                    hangs = !hangs;
                    if hangs { world.hang(device) } else { world.release(device) }
                }
                2 if !streams.is_empty() => {
                    let (stream, _) = streams.swap_remove(chance.below(streams.len()));
                    client.cancel(stream);
                }
                // Reads of a byte that nobody waits for.
                3 if streams.len() < 60 => {
                    let bytes: Vec<_> =
                        (0..30).map(|_| client.byte(SLOW, chance.below(700_000))).collect();
                    let now = worker.ring().now();
                    worker.turn(Some(now + Duration::from_millis(5))).unwrap();
                    bytes.into_iter().for_each(|stream| client.cancel(stream));
                }
                4 if is_shut && !streams.is_empty() => {
                    let (stream, _) = streams[chance.below(streams.len())];
                    let more = 1000_u32.to_be_bytes();
                    client.0.frame(kind::WINDOW_UPDATE, 0, stream, &more).expect("it takes all");
                }
                _ => client.look(),
            }
            let now = worker.ring().now();
            worker.turn(Some(now + Duration::from_millis(5))).unwrap();
            let (_, buffers) = worker.held();
            // The first stream may have been alone.
            assert!(buffers <= ALONE_BUFFERS + BUFFERS_MAX, "{buffers} buffers, {worker:?}");
            most.set(most.get().max(buffers));
        }
        world.release(device);
        if !is_shut {
            let ids: Vec<_> = streams.iter().map(|(stream, _)| *stream).collect();
            let mut received = 0;
            while !run_until(&mut worker, || client.has_all(&ids)) {
                // Slow clients and disks need long, but something comes all the time.
                let now = ids.iter().map(|id| client.reply(*id).body.len()).sum();
                assert!(now > received, "streams wait for ever: {worker:?}, {:?}", worker.stats());
                received = now;
            }
            for (stream, len) in streams {
                assert_whole(&mut client, stream, &content(seed, len));
            }
        }
        drop(client);
        assert_all_is_given_back(&world, &mut worker);
    });
    let is_one_seed = std::env::var("SAMUM_SEED").is_ok();
    assert!(is_one_seed || most.get() > 1, "the bound was never near");
}

/// Reads of a byte count little for the bounds of bytes, so their number has a bound of its own. The session checks it.
#[test]
fn reads_of_streams_that_were_reset_have_a_bound() {
    for_seeds(20, |seed| {
        let (world, device) = make(Config::new(seed));
        let mut worker = serve(&world, Tuning::default());
        let mut client = Client::new(&world);
        let opened = client.get(SLOW);
        wait_for(&mut worker, &mut client, &[opened]);
        world.evict(SLOW);
        world.hang(device);
        for round in 0..4 {
            let cold = (0..90).map(|place| client.byte(SLOW, (round * 90 + place) * 1900));
            let cold: Vec<_> = cold.collect();
            let last = cold[89];
            assert!(run_until(&mut worker, || client.reply(last).status == 206));
            pass(&mut worker, Duration::from_millis(50));
            cold.into_iter().for_each(|stream| client.cancel(stream));
        }
        // Streams that read nothing from this disk go on, and those that do when the reads have ended.
        let hot = client.get("f300001");
        wait_for(&mut worker, &mut client, &[hot]);
        assert_whole(&mut client, hot, &content(seed, 300_001));
        let cold = client.get(SLOW);
        world.release(device);
        wait_for(&mut worker, &mut client, &[cold]);
        assert_whole(&mut client, cold, &content(seed, 700_000));
        drop(client);
        assert_all_is_given_back(&world, &mut worker);
    });
}

/// A client that gives each of many streams a byte makes the server keep little, and a window for one makes that one end.
#[test]
fn many_streams_that_take_a_byte_keep_little_and_hold_up_none() {
    for_seeds(20, |seed| {
        let (world, device) = make(Config::new(seed));
        let mut worker = serve(&world, Tuning::default());
        let mut client = Client::with(&world, &[(4, 0)]);
        widen(&mut client);
        client.0.keep_windows();
        let slow = client.get(SLOW);
        assert!(run_until(&mut worker, || client.reply(slow).status == 200));
        world.hang(device);
        let shut = [(); 90].map(|()| client.get("f1000000"));
        assert!(run_until(&mut worker, || shut.iter().all(|it| client.reply(*it).status == 200)));
        let take = |client: &mut Client, stream: u32, bytes: u32| {
            let frame = bytes.to_be_bytes();
            client
                .0
                .frame(kind::WINDOW_UPDATE, 0, stream, &frame)
                .expect("a peer takes everything");
        };
        // The disk of one stream does not answer. The others take a byte each.
        take(&mut client, slow, 1 << 20);
        for stream in shut {
            take(&mut client, stream, 1);
        }
        let mut has_all = false;
        for _ in 0..5000 {
            let now = worker.ring().now();
            worker.turn(Some(now + Duration::from_millis(5))).unwrap();
            assert!(worker.held().1 <= BUFFERS_MAX, "{worker:?}");
            has_all = shut.iter().all(|it| client.reply(*it).body.len() == 1);
            if has_all {
                break;
            }
        }
        assert!(has_all, "streams wait for ever: {worker:?}");
        world.evict("f300001");
        let open = client.get("f300001");
        take(&mut client, open, 1 << 20);
        wait_for(&mut worker, &mut client, &[open]);
        assert_whole(&mut client, open, &content(seed, 300_001));
        world.release(device);
        wait_for(&mut worker, &mut client, &[slow]);
        drop(client);
        assert_all_is_given_back(&world, &mut worker);
    });
}

/// As with HTTP/1.
#[test]
fn a_stream_alone_reads_its_whole_window() {
    let mut config = Config::new(1);
    config.disk = Duration::from_millis(20)..=Duration::from_millis(20);
    let (world, _) = make(config);
    world.write_file("big", &content(1, 8_000_000));
    world.evict("big");
    let policy = Policy { caching: Caching::Never, ..Policy::default() };
    let mut worker = serve(&world, FileRules { policy, ..FileRules::default() });
    let mut client = Client::new(&world);
    let stream = client.get("big");
    let (mut most, mut has_all) = (0, false);
    for _ in 0..100_000 {
        let now = worker.ring().now();
        worker.turn(Some(now + Duration::from_millis(5))).unwrap();
        most = most.max(worker.held().1);
        has_all = client.has_all(&[stream]);
        if has_all {
            break;
        }
    }
    assert!(has_all, "{worker:?}");
    assert_whole(&mut client, stream, &content(1, 8_000_000));
    // A read begins when half of the window is free.
    assert!(most >= ALONE_BUFFERS / 2, "{most} buffers");
}

#[test]
fn clients_that_take_nothing_do_not_keep_the_buffers() {
    for_seeds(3, |seed| {
        let (world, _) = make(Config::new(seed));
        let mut worker = serve(&world, Tuning::default());
        let mut stuck: Vec<_> = (0..80)
            .map(|number| {
                // Some do not read, and some give their streams windows of a byte.
                let settings: &[_] = if number % 2 == 0 { &[] } else { &[(4, 1)] };
                let mut client = Client::with(&world, settings);
                client.0.keep_windows();
                if number % 2 == 0 {
                    client.peer().stop_reading();
                }
                for _ in 0..20 {
                    client.get("f1000000");
                }
                client
            })
            .collect();
        pass(&mut worker, Duration::from_secs(5));
        stuck.iter_mut().for_each(Client::look);
        world.evict_all();
        let mut client = Client::new(&world);
        let begun = world.now();
        let streams = [(); 4].map(|()| client.get(SLOW));
        wait_for(&mut worker, &mut client, &streams);
        let took = world.now().since(begun);
        assert!(took < Duration::from_secs(3), "{took:?} beside 80 that take nothing");
        drop((client, stuck));
        assert_all_is_given_back(&world, &mut worker);
    });
}

/// A client of a random world, and what it expects.
struct Scripted {
    client: Client,
    expected: Vec<(u32, Vec<u8>)>,
    cancelled: BTreeSet<u32>,
    has_reset: bool,
}

impl Scripted {
    fn new(world: &World, seed: u64, chance: &mut Random) -> Self {
        let windows = [65_535, 1 << 20, 1000, 16_384];
        let window = windows[chance.below(windows.len())];
        let mut client = Client::with(world, &[(4, window)]);
        if chance.one_in(3) {
            client.peer().set_read_rate(Some(300_000 + chance.bits() % 3_000_000));
        }
        let mut expected = Vec::new();
        for _ in 0..2 + chance.below(12) {
            let (name, len) = FILES[chance.below(FILES.len())];
            let (mut body, mut range) = (content(seed, len), None);
            if len > 0 && chance.one_in(4) {
                let first = chance.below(len);
                let last = first + chance.below(len - first);
                body = body[first..=last].to_vec();
                range = Some(format!("bytes={first}-{last}"));
            }
            let path = format!("/{name}");
            let mut fields = pseudo("GET", &path);
            fields.extend(range.as_deref().map(|range| ("range", range)));
            let priority = format!("u={}, i={}", chance.below(8), ["?0", "?1"][chance.below(2)]);
            fields.push(("priority", &priority));
            let stream = client.0.request(fields, true).expect("a peer takes everything");
            expected.push((stream, body));
        }
        Self { client, expected, cancelled: BTreeSet::new(), has_reset: false }
    }

    fn poke(&mut self, chance: &mut Random) {
        if chance.one_in(30) {
            let (stream, _) = self.expected[chance.below(self.expected.len())];
            if !self.client.reply(stream).is_over() {
                self.client.cancel(stream);
                self.cancelled.insert(stream);
            }
        }
        if chance.one_in(200) {
            self.client.peer().reset();
            self.has_reset = true;
        }
    }

    /// Panics at a byte that is not right; returns whether all has come that will.
    fn check(&mut self, faults: bool) -> bool {
        self.client.look();
        let mut is_done = true;
        for (stream, body) in &self.expected {
            let reply = self.client.0.so_far(*stream);
            let refused = faults && [500, 503].contains(&reply.status);
            assert!(refused || body.starts_with(&reply.body), "{stream}: a wrong byte");
            assert!(!reply.has_ended || refused || reply.body == *body, "{stream}: too short");
            assert!(reply.reset.is_none() || faults, "{stream} failed: {:?}", reply.reset);
            is_done &= reply.is_over() || self.cancelled.contains(stream);
        }
        is_done || self.has_reset
    }
}

#[test]
fn every_byte_is_right_in_random_worlds() {
    let all = Cell::new((Counts::default(), 0, 0));
    for_seeds(200, |seed| {
        let mut chance = Random::new(seed ^ 0x5eed);
        let faults = chance.one_in(3);
        let mut config = if faults { Config::nasty(seed) } else { Config::new(seed) };
        config.faults.short_send = 0.2;
        config.faults.accept_error = 0.0;
        if chance.one_in(2) {
            config.disk = Duration::from_millis(1)..=Duration::from_millis(300);
        }
        let caching = [Caching::Popular, Caching::Never, Caching::Always][chance.below(3)];
        let (world, device) = make(config);
        let mut worker = serve(
            &world,
            FileRules { policy: Policy { caching, ..Policy::default() }, ..FileRules::default() },
        );
        let mut clients: Vec<_> =
            (0..1 + chance.below(6)).map(|_| Scripted::new(&world, seed, &mut chance)).collect();
        let mut hangs = false;
        let mut all_done = false;
        for round in 0..20_000 {
            if chance.one_in(3) {
                let count = clients.len();
                clients[chance.below(count)].poke(&mut chance);
            }
            if chance.one_in(40) {
                world.evict_all();
            }
            if round < 500 && chance.one_in(40) {
                hangs = !hangs;
                if hangs { world.hang(device) } else { world.release(device) }
            }
            if round == 500 {
                world.release(device);
            }
            let now = worker.ring().now();
            worker.turn(Some(now + Duration::from_millis(20))).unwrap();
            if round % 16 == 0 {
                let waiting =
                    clients.iter_mut().filter_map(|one| (!one.check(faults)).then_some(()));
                all_done = waiting.count() == 0;
                if all_done && round > 500 {
                    break;
                }
            }
        }
        assert!(all_done, "clients wait for ever: {worker:?}");
        let (mut sum, mut cancelled, mut reset) = all.get();
        sum += world.counts();
        for one in clients {
            cancelled += one.cancelled.len();
            reset += usize::from(one.has_reset);
        }
        all.set((sum, cancelled, reset));
        assert_all_is_given_back(&world, &mut worker);
    });
    let (Counts { partial_sends, failures, hangs, .. }, cancelled, reset) = all.get();
    let happened = [partial_sends, failures, hangs].iter().all(|count| *count > 0);
    let is_one_seed = std::env::var("SAMUM_SEED").is_ok();
    assert!(is_one_seed || (happened && cancelled > 0 && reset > 0), "{:?}", all.get());
}
