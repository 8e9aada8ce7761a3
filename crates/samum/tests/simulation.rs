//! Runs the whole server on a simulated disk with simulated clients and a virtual clock; a seed
//! determines a run. Every byte that a client gets is compared with all versions of the files, and the
//! simulation records each `sendfile` that would have slept.
//!
//! A failure prints its seed. `SAMUM_SEED=N cargo test -p samum --test worlds simulation` runs one seed, and
//! `SAMUM_SEEDS=100000` runs that many instead of a thousand, `SAMUM_SEEDS=50000..100000` those from 50,000
//! on.

use core::cell::Cell;
use core::ops::AddAssign;
use core::panic::AssertUnwindSafe;
use core::time::Duration;
use std::borrow::Cow;
use std::collections::HashMap;
use std::panic::{catch_unwind, resume_unwind};
use std::sync::Arc;

use config::{FileRules, Tags, Tuning};
use handler::attach::Attachments;
use ring::sim::{Config, Counts, End, MissingPage, Peer, Stall, World};
use ring::{Event, Fd, Op, OpenHow, Ring, Time};
use rustix::fs::OFlags;
use rustix::io::Errno;
use samum::crowd::Crowd;
use samum::network::Listeners;
use samum::worker::{Parts, Worker};
use sendfile::{Caching, KernelTcp, PageCache, Policy, Window};
use testkit::Random;

use crate::options::Options;

/// Sizes at every boundary: empty, small, the limit of finished responses, one block, several blocks.
const SIZES: [usize; 10] =
    [0, 1, 1000, 32_767, 32_768, 32_769, 65_537, 262_144, 300_001, 1_000_000];
/// The one among them that is a film.
const FILM: usize = 65_537;
const CLIENTS: usize = 12;
const REQUESTS: usize = 10;

fn content(seed: u64, len: usize) -> Vec<u8> {
    Random::new(seed).words(len)
}

/// The name of the file of a size. One of them is a film, whose layout is learned.
fn name(size: usize) -> String {
    if size == FILM { format!("f{size}.mp4") } else { format!("f{size}") }
}

/// The contents of that file.
fn file(seed: u64, size: usize) -> Vec<u8> {
    let mut bytes = content(seed, size);
    if size == FILM {
        make_film(&mut bytes, 1000);
    }
    bytes
}

/// Writes boxes into bytes, so that they are a film that lasts so long, with its index at the end.
fn make_film(bytes: &mut [u8], ms: u32) {
    let boxed = |kind: &[u8; 4], body: &[u8]| {
        let size = u32::try_from(8 + body.len()).unwrap();
        [&size.to_be_bytes()[..], kind, body].concat()
    };
    let mut header = [0; 100];
    header[12..16].copy_from_slice(&1000_u32.to_be_bytes());
    header[16..20].copy_from_slice(&ms.to_be_bytes());
    let moov = boxed(b"moov", &boxed(b"mvhd", &header));
    let (media, index) = bytes.split_at_mut(bytes.len() - moov.len());
    index.copy_from_slice(&moov);
    let size = u32::try_from(media.len() - 16).unwrap().to_be_bytes();
    let head = [boxed(b"ftyp", b"isom\0\0\0\0"), size.into(), b"mdat".into()].concat();
    media[..head.len()].copy_from_slice(&head);
}

/// All versions of all files.
#[derive(Default)]
struct Files(HashMap<String, Vec<Vec<u8>>>);

/// The contents that each entity tag stands for.
#[derive(Debug, Default)]
struct Contents(HashMap<String, Vec<u8>>);

impl Contents {
    /// Checks the body of a whole response, of the range that was asked for.
    fn check(&mut self, response: &Response<'_>, range: Option<(usize, usize)>) {
        let Some(tag) = response.tag else { return };
        let body = &response.body[..];
        let known = match (response.status, range) {
            (206, Some((a, b))) => self.0.get(tag).map(|contents| contents.get(a..=b)),
            _ => Some(Some(&self.0.entry(tag.to_owned()).or_insert_with(|| body.to_vec())[..])),
        };
        assert!(known.is_none_or(|known| known == Some(body)), "{tag} stands for two contents");
    }
}

struct Request {
    file: String,
    head: bool,
    range: Option<(usize, usize)>,
    /// Bytes of a field that means nothing.
    padding: usize,
}

impl Request {
    fn random(chance: &mut Random) -> Self {
        let size = SIZES[chance.below(SIZES.len())];
        let range = (chance.one_in(4) && size > 0).then(|| {
            let first = chance.below(size);
            (first, first + chance.below(size - first))
        });
        Self { file: name(size), head: chance.one_in(8), range, padding: 0 }
    }

    fn bytes(&self) -> Vec<u8> {
        let method = if self.head { "HEAD" } else { "GET" };
        let range = self.range.map_or(String::new(), |(a, b)| format!("Range: bytes={a}-{b}\r\n"));
        let padding = match self.padding {
            0 => String::new(),
            bytes => format!("Padding: {}\r\n", "x".repeat(bytes)),
        };
        format!("{method} /{} HTTP/1.1\r\nHost: sim\r\n{range}{padding}\r\n", self.file)
            .into_bytes()
    }
}

/// A name without a file, and the name of the directory.
const MISSING: &str = "missing";
const LISTING: &str = "";

/// The behaviour of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    Polite,
    /// Takes bytes at a limited rate.
    Slow,
    /// Closes or resets its connection at any time.
    Vanishing,
    /// Sends a few bytes at a time.
    Dribbling,
    /// Shuts down its side after its requests, and waits for the responses.
    HalfClosed,
}

/// The limits of a worker and its world.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// Whether reads fail, and the like.
    faults: bool,
    /// The worker's budget.
    memory_bytes_max: u64,
    /// Open files.
    descriptors_max: usize,
}

struct Client {
    peer: Peer,
    requests: Vec<Request>,
    input: Vec<u8>,
    manner: Manner,
    answered: usize,
    vanished: bool,
}

/// One response, parsed without the code under test.
struct Response<'a> {
    status: u16,
    tag: Option<&'a str>,
    body: Cow<'a, [u8]>,
    whole: bool,
    len: usize,
}

fn parse(bytes: &[u8], head_only: bool) -> Option<Response<'_>> {
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
    let head = core::str::from_utf8(&bytes[..end]).unwrap();
    let status = head[9..12].parse().unwrap();
    let tag = head.lines().find_map(|line| line.strip_prefix("ETag: "));
    let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
    let length: usize = match length {
        _ if head_only => 0,
        Some(length) => length.parse().unwrap(),
        None => {
            assert!(head.contains("Transfer-Encoding: chunked\r\n"), "{head}");
            let (body, len, whole) = unchunk(&bytes[end..]);
            return Some(Response { status, tag, body: body.into(), whole, len: end + len });
        }
    };
    let body = &bytes[end..bytes.len().min(end + length)];
    let (whole, len) = (body.len() == length, end + body.len());
    Some(Response { status, tag, body: body.into(), whole, len })
}

/// Returns the data of the complete chunks, their length in the message, and whether the last chunk is
/// among them.
fn unchunk(bytes: &[u8]) -> (Vec<u8>, usize, bool) {
    let (mut body, mut at) = (Vec::new(), 0);
    while let Some(line) = bytes[at..].windows(2).position(|two| two == b"\r\n") {
        let size = core::str::from_utf8(&bytes[at..at + line]).unwrap();
        let size = usize::from_str_radix(size, 16).unwrap();
        let start = at + line + 2;
        let Some(chunk) = bytes.get(start..start + size + 2) else { break };
        assert!(chunk.ends_with(b"\r\n"));
        body.extend_from_slice(&chunk[..size]);
        at = start + size + 2;
        if size == 0 {
            return (body, at, true);
        }
    }
    (body, at, false)
}

impl Client {
    /// Checks the received bytes; panics at a byte that is in no version of the file.
    fn check(&mut self, files: &Files, contents: &mut Contents, limits: Limits) {
        let all = self.peer.received();
        let (mut at, mut answered) = (0, 0);
        while at < all.len() && answered < self.requests.len() {
            let request = &self.requests[answered];
            let Some(response) = parse(&all[at..], request.head) else { break };
            match response.status {
                404 if request.file == MISSING => {}
                200 | 206 if request.head => {}
                200 if request.file == LISTING => {
                    let whole = core::str::from_utf8(&response.body);
                    let lists = |name: &String| {
                        name.contains('/') || whole.is_ok_and(|text| text.contains(&name[..]))
                    };
                    assert!(!response.whole || files.0.keys().all(lists), "a name is not listed");
                }
                200 | 206 => {
                    let versions = &files.0[&request.file];
                    let fits = versions.iter().any(|version| {
                        let expected = match (response.status, request.range) {
                            (206, Some((a, b))) => version.get(a..=b),
                            _ => Some(&version[..]),
                        };
                        expected.is_some_and(|bytes| {
                            if response.whole {
                                *bytes == *response.body
                            } else {
                                bytes.starts_with(&response.body)
                            }
                        })
                    });
                    if response.whole {
                        contents.check(&response, request.range);
                    }
                    let status = response.status;
                    assert!(
                        fits,
                        "{status} for {}: {} bytes fit no version",
                        request.file,
                        response.body.len()
                    );
                }
                500 | 503 | 404 if limits.faults => {}
                503 if request.file == LISTING && limits.memory_bytes_max < MEMORY_ENOUGH => {}
                // It was replaced each time that it had been found.
                503 if files.0[&request.file].len() > 2 => {}
                408 if self.manner == Manner::Dribbling => {}
                416 => assert!(request.range.is_some()),
                status => panic!("{status} for {}", request.file),
            }
            if !response.whole {
                break;
            }
            at += response.len;
            answered += 1;
        }
        self.answered = answered;
    }

    fn is_done(&self) -> bool {
        self.vanished || self.answered == self.requests.len() || self.peer.end().is_some()
    }
}

struct Run {
    world: World,
    worker: Worker,
    chance: Random,
    files: Files,
    contents: Contents,
    clients: Vec<Client>,
    limits: Limits,
}

impl Run {
    fn new(config: Config, options: impl Into<Options>, faults: bool) -> Self {
        let options = options.into();
        let memory_bytes_max = options.tuning.memory_bytes_max;
        Self::with(config, options, Limits { faults, memory_bytes_max, descriptors_max: 6 })
    }

    /// The same with a file for messages to the operator.
    fn with_notes(config: Config, options: impl Into<Options>) -> Self {
        let limits = Limits { faults: false, memory_bytes_max: MEMORY_ENOUGH, descriptors_max: 6 };
        Self::build(config, options.into(), limits, true)
    }

    fn notes(&self) -> String {
        String::from_utf8(self.world.read_file("notes")).unwrap()
    }

    fn with(config: Config, options: Options, limits: Limits) -> Self {
        Self::build(config, options, limits, false)
    }

    fn build(config: Config, options: Options, limits: Limits, has_notes: bool) -> Self {
        let seed = config.seed;
        let world = World::new(config);
        let mut files = Files::default();
        for size in SIZES {
            let bytes = file(seed ^ size as u64, size);
            world.write_file(&name(size), &bytes);
            files.0.insert(name(size), vec![bytes]);
        }
        world.evict_all();
        let mut ring = Ring::simulated(&world);
        let notes = has_notes.then(|| open_notes(&world, &mut ring));
        let parts = Parts {
            listeners: vec![ring.sim_listener(&world)],
            snapshot: options.snapshot(),
            roots: vec![ring.sim_root(&world)],
            crowd: Crowd::new(1000),
            page_cache: Arc::default(),
            devices: Arc::default(),
            silences: Arc::default(),
            reported: Arc::default(),
            board: Arc::default(),
            descriptors_max: limits.descriptors_max,
            logs: Vec::new(),
            metrics: (metrics::Metrics::new(1), 0),
            notes,
            attachments: Attachments::default(),
            ring,
        };
        let worker = Worker::new(parts).unwrap();
        let (chance, contents) = (Random::new(seed), Contents::default());
        Self { world, worker, chance, files, contents, clients: Vec::new(), limits }
    }

    fn connect(&mut self, manner: Manner) {
        let requests: Vec<_> = (0..REQUESTS).map(|_| Request::random(&mut self.chance)).collect();
        let input = requests.iter().flat_map(Request::bytes).collect();
        let peer = self.world.connect();
        if manner == Manner::Slow {
            peer.set_read_rate(Some(200_000 + self.chance.bits() % 2_000_000));
        }
        self.clients.push(Client { peer, requests, input, manner, answered: 0, vanished: false });
    }

    /// Lets a client send some bytes, or vanish.
    fn poke(&mut self, index: usize) {
        let chance = &mut self.chance;
        let client = &mut self.clients[index];
        if client.vanished {
            return;
        }
        let count = match client.manner {
            Manner::Dribbling => 1 + chance.below(20),
            _ if chance.one_in(2) => client.input.len(),
            _ => 1 + chance.below(100),
        };
        let rest = client.input.split_off(count.min(client.input.len()));
        let now = core::mem::replace(&mut client.input, rest);
        client.peer.send(&now);
        if client.input.is_empty() && !now.is_empty() && client.manner == Manner::HalfClosed {
            client.peer.shutdown_write();
        }
        if client.manner == Manner::Vanishing && chance.one_in(20) {
            client.vanished = true;
            if chance.one_in(2) { client.peer.reset() } else { client.peer.close() }
        }
    }

    /// Replaces a file by rename.
    fn replace(&mut self) {
        let size = SIZES[self.chance.below(SIZES.len())];
        let name = name(size);
        let bytes = file(self.chance.bits(), size);
        self.world.replace_file(&name, &bytes);
        self.files.0.get_mut(&name).unwrap().push(bytes);
    }

    fn turn(&mut self, most: Duration) {
        let until = self.worker.ring().now() + most;
        self.worker.turn(Some(until)).unwrap();
    }

    /// Runs until something has happened.
    fn until(&mut self, has_happened: impl Fn(&Self) -> bool) {
        for _ in 0..10_000 {
            if has_happened(self) {
                return;
            }
            self.turn(Duration::from_millis(10));
        }
        panic!("it does not happen: {}", self.notes());
    }

    /// Lets some time pass.
    fn pass(&mut self, time: Duration) {
        let until = self.worker.ring().now() + time;
        while self.worker.ring().now() < until {
            self.worker.turn(Some(until)).unwrap();
        }
    }

    /// Runs until every client has its responses, or can no longer get them.
    fn finish(&mut self) {
        for _ in 0..200_000 {
            for index in 0..self.clients.len() {
                if self.chance.one_in(10) {
                    self.poke(index);
                }
            }
            self.turn(Duration::from_millis(20));
            if self.chance.one_in(50) {
                for client in &mut self.clients {
                    client.check(&self.files, &mut self.contents, self.limits);
                }
                if self.clients.iter().all(Client::is_done) {
                    return;
                }
            }
        }
        let open: Vec<_> = self.clients.iter().filter(|client| !client.is_done()).collect();
        let first = open[0];
        let (next, unsent, got) =
            (&first.requests[first.answered], first.input.len(), first.peer.received());
        let tail = String::from_utf8_lossy(&got[got.len().saturating_sub(200)..]).into_owned();
        panic!(
            "{} clients wait for ever; one is {:?} with {} answers of {REQUESTS}, next {} {:?}, {unsent} unsent, {:?}, tail {tail:?}",
            open.len(),
            first.manner,
            first.answered,
            next.file,
            next.range,
            self.worker
        );
    }

    /// Checks that nothing is left once all clients have closed their connections.
    fn check_nothing_is_left(&mut self) {
        for client in &self.clients {
            client.peer.close();
        }
        for _ in 0..2000 {
            if self.worker.connections() == 0 {
                break;
            }
            self.turn(Duration::from_secs(1));
        }
        assert_eq!(self.worker.connections(), 0, "connections are left");
        // The root, the listener, as many cached files as allowed, and half as many that were opened
        // beyond the limit while responses held the others.
        for _ in 0..100 {
            self.turn(Duration::from_millis(20));
        }
        assert!(
            self.world.open_descriptors() <= 2 + 6 + 3,
            "{} descriptors are open",
            self.world.open_descriptors()
        );
    }
}

/// Opens the file to which the worker writes messages to the operator.
fn open_notes(world: &World, ring: &mut Ring) -> Fd {
    world.write_file("notes", b"");
    let how = OpenHow { flags: OFlags::WRONLY.bits().cast_signed(), mode: 0, resolve: 0 };
    ring.submit(Op::Open { dir: Some(ring.sim_root(world)), path: c"notes".into(), how }, 0);
    let mut completions = Vec::new();
    while completions.is_empty() {
        ring.wait(None, &mut completions).unwrap();
    }
    let Ok(Event::Opened(file)) = completions.remove(0).result else { panic!("it exists") };
    file
}

/// Requests a whole file, and waits for it.
fn ask(run: &mut Run, peer: &Peer, name: &str) {
    drop(peer.take());
    peer.send(format!("GET /{name} HTTP/1.1\r\nHost: sim\r\n\r\n").as_bytes());
    loop {
        run.turn(Duration::from_millis(5));
        if let Some(response) = parse(&peer.received(), false)
            && response.whole
        {
            assert_eq!(response.status, 200, "{name}");
            return;
        }
    }
}

/// The number of seeds, unless `SAMUM_SEEDS` is set.
const SEEDS: u64 = 1000;

/// The share of seeds, in thousandths, for a test of a single property.
const FEW: u64 = 20;

/// Runs a test for `share` thousandths of all seeds, or for the seed in `SAMUM_SEED`.
fn for_seeds(share: u64, test: impl Fn(u64)) {
    let number = |text: &str| text.parse::<u64>().expect("a number");
    let (one, many) = (std::env::var("SAMUM_SEED").ok(), std::env::var("SAMUM_SEEDS").ok());
    let range = many.as_deref().and_then(|many| many.split_once(".."));
    let seeds = match (one, range) {
        (Some(seed), _) => number(&seed)..number(&seed) + 1,
        (None, Some((from, to))) => number(from)..number(to),
        (None, None) => 0..(many.map_or(SEEDS, |many| number(&many)) * share).div_ceil(1000),
    };
    for seed in seeds {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| test(seed))) {
            eprintln!("failed with SAMUM_SEED={seed}");
            resume_unwind(panic);
        }
    }
}

const MANNERS: [Manner; 5] =
    [Manner::Polite, Manner::Slow, Manner::Vanishing, Manner::Dribbling, Manner::HalfClosed];

#[test]
fn every_client_gets_every_byte_and_no_call_sleeps() {
    for_seeds(FEW, |seed| {
        let mut run = Run::new(Config::new(seed), Tuning::default(), false);
        for number in 0..CLIENTS {
            run.connect(MANNERS[number % MANNERS.len()]);
        }
        run.finish();
        for client in run.clients.iter().filter(|client| !client.vanished) {
            assert_eq!(client.answered, REQUESTS, "{:?} {:?}", client.manner, client.peer.end());
        }
        run.check_nothing_is_left();
        assert_eq!(run.world.stalls(), [], "a sendfile would have slept");
    });
}

#[test]
fn files_that_are_replaced_and_evicted_under_way_are_served_whole() {
    for_seeds(FEW, |seed| {
        let mut run = Run::new(Config::new(seed), Tuning::default(), false);
        for number in 0..CLIENTS {
            run.connect(MANNERS[number % MANNERS.len()]);
        }
        for _ in 0..300 {
            let index = run.chance.below(CLIENTS);
            run.poke(index);
            if run.chance.one_in(10) {
                run.replace();
            }
            if run.chance.one_in(10) {
                run.world.evict_all();
            }
            run.turn(Duration::from_millis(10));
        }
        run.finish();
        for client in run.clients.iter().filter(|client| !client.vanished) {
            assert_eq!(client.answered, REQUESTS, "{:?} {:?}", client.manner, client.peer.end());
        }
        run.check_nothing_is_left();
    });
}

#[test]
fn whatever_goes_wrong_no_client_gets_a_wrong_byte() {
    for_seeds(2 * FEW, |seed| {
        let mut run = Run::new(Config::nasty(seed), Tuning::default(), true);
        for number in 0..CLIENTS {
            run.connect(MANNERS[number % MANNERS.len()]);
        }
        for _ in 0..200 {
            let index = run.chance.below(CLIENTS);
            run.poke(index);
            if run.chance.one_in(20) {
                run.replace();
            }
            run.turn(Duration::from_millis(10));
        }
        run.finish();
        run.check_nothing_is_left();
    });
}

#[test]
fn a_file_truncated_under_way_ends_the_connection_with_a_true_prefix() {
    for_seeds(FEW, |seed| {
        let policy = Policy { window: Window::of(0), ..Policy::default() };
        let rules = FileRules { policy, ..FileRules::default() };
        let mut run = Run::new(Config::new(seed), rules, false);
        let peer = run.world.connect();
        peer.set_read_rate(Some(1_000_000));
        peer.send(b"GET /f1000000 HTTP/1.1\r\nHost: sim\r\n\r\n");
        let enough = 1000 + run.chance.below(500_000);
        while peer.received().len() < enough {
            run.turn(Duration::from_millis(10));
        }
        // Bytes that the kernel has may still come.
        let left = run.chance.below(enough);
        run.world.truncate("f1000000", left);
        run.world.evict_all();
        for _ in 0..10_000 {
            if peer.end().is_some() {
                break;
            }
            run.turn(Duration::from_millis(10));
        }
        assert!(peer.end().is_some(), "the connection stays open");
        let all = peer.received();
        let response = parse(&all, false).unwrap();
        assert!(
            run.files.0["f1000000"][0].starts_with(&response.body),
            "other bytes than the file's"
        );
        assert!(!response.whole);
        assert_eq!(run.worker.stats().truncated, 1);
    });
}

/// Neither a read nor a splice gets pages, and the kernel reads nothing ahead.
#[test]
fn without_memory_for_pages_a_response_is_whole_or_cut_and_the_operator_is_told() {
    for_seeds(FEW, |seed| {
        let caching = [Caching::Always, Caching::Never][usize::from(seed % 2 == 1)];
        let policy = Policy { caching, window: Window::of(0) };
        let rules = FileRules { policy, ..FileRules::default() };
        let mut run = Run::with_notes(Config::new(seed), rules);
        let set = |run: &Run, no_memory| {
            run.world.configure(|config| config.faults.no_memory = no_memory);
        };
        let ask_for = |run: &Run, name: &str| {
            let peer = run.world.connect();
            peer.send(format!("GET /{name} HTTP/1.1\r\nHost: sim\r\n\r\n").as_bytes());
            peer
        };
        // Before the head a file is read into memory. If that fails, it is sent from the disk: there is memory again.
        set(&run, 1.0);
        let peer = ask_for(&run, "f1000");
        run.until(|run| run.world.counts().failures > 0);
        set(&run, 0.0);
        run.until(|_| parse(&peer.received(), false).is_some_and(|response| response.whole));
        assert_eq!(parse(&peer.received(), false).unwrap().body, run.files.0["f1000"][0]);
        assert_eq!(run.notes(), "");
        // There is still none, at the beginning of a response or amid one.
        for (name, enough) in [("f32767", 0), ("f1000000", 1000 + run.chance.below(300_000))] {
            set(&run, if enough == 0 { 1.0 } else { 0.0 });
            let peer = ask_for(&run, name);
            peer.set_read_rate(Some(1_000_000));
            run.until(|_| peer.received().len() >= enough);
            set(&run, 1.0);
            run.until(|_| peer.end().is_some());
            let all = peer.received();
            let response = parse(&all, false).unwrap();
            assert_eq!((response.status, response.whole), (200, false));
            assert!(run.files.0[name][0].starts_with(&response.body));
        }
        run.pass(Duration::from_secs(1));
        let told = "a response could not be sent: Cannot allocate memory";
        assert_eq!(run.notes().matches(told).count(), 2, "{}", run.notes());
        assert_eq!(run.worker.held().1, 0, "buffers are lent");
        // When there is memory again nothing is missing.
        set(&run, 0.0);
        let peer = run.world.connect();
        for size in SIZES {
            ask(&mut run, &peer, &name(size));
        }
        peer.close();
        run.pass(Duration::from_secs(1));
        assert_eq!(run.worker.held(), (0, 0));
        run.check_nothing_is_left();
    });
}

/// Lets the worker learn the layouts of films of a device that does not answer any more.
fn learn_from_a_hung_device(run: &mut Run, films: usize) {
    let device = run.world.make_device("slow");
    let mut film = vec![0; 100_000];
    make_film(&mut film, 1000);
    let peer = run.world.connect();
    for number in 0..films {
        run.world.write_file(&format!("slow/{number}.mp4"), &film);
        run.world.evict_all();
        let head = format!("HEAD /slow/{number}.mp4 HTTP/1.1\r\nHost: sim\r\n\r\n");
        peer.send(head.as_bytes());
    }
    let answers = |peer: &Peer| String::from_utf8_lossy(&peer.received()).matches("200 OK").count();
    while answers(&peer) < films {
        run.turn(Duration::from_millis(1));
    }
    run.world.hang(device);
}

/// Bytes read for a client that takes 100 kB/s of a file from `start` on for a second, and is not sent. Then it takes
/// all. Before that `hung` films of a device were to be learned that does not answer.
fn read_ahead(seed: u64, path: &str, bytes: &[u8], start: usize, hung: usize) -> u64 {
    // Reads of a slow disk are of 256 KiB.
    let disk = Duration::from_millis(60)..=Duration::from_millis(80);
    let (config, options) = (Config { disk, ..Config::new(seed) }, Options::default());
    let memory_bytes_max = options.tuning.memory_bytes_max;
    let limits = Limits { faults: false, memory_bytes_max, descriptors_max: 100 };
    let mut run = Run::with(config, options, limits);
    run.world.write_file(path, bytes);
    run.world.evict_all();
    if hung > 0 {
        learn_from_a_hung_device(&mut run, hung);
    }
    let peer = run.world.connect();
    let range = if start > 0 { format!("Range: bytes={start}-\r\n") } else { String::new() };
    let request = format!("GET /{path} HTTP/1.1\r\nHost: sim\r\n{range}\r\n");
    let whole = |peer: &Peer| parse(&peer.received(), false).is_some_and(|all| all.whole);
    // The second time, the layout of a film is known.
    let mut read = 0;
    for rate in [None, Some(100_000)] {
        run.world.evict_all();
        peer.set_read_rate(rate);
        let before = run.world.counts().splices;
        peer.send(request.as_bytes());
        let until = run.worker.ring().now() + Duration::from_secs(1);
        while run.worker.ring().now() < until {
            run.turn(Duration::from_millis(10));
        }
        read = (run.world.counts().splices - before) * 256 * 1024;
        read = read.saturating_sub(peer.received_bytes() as u64);
        peer.set_read_rate(None);
        for _ in 0..10_000 {
            if whole(&peer) {
                break;
            }
            run.turn(Duration::from_millis(10));
        }
        assert!(*parse(&peer.take(), false).unwrap().body == bytes[start..]);
    }
    read
}

#[test]
fn a_film_is_read_ahead_as_far_as_it_will_be_played_soon() {
    for_seeds(FEW, |seed| {
        let mut film = content(seed, 4_000_000);
        make_film(&mut film, 40_000);
        let other = read_ahead(seed, "film.bin", &film, 0, 0);
        let paced = read_ahead(seed, "film.mp4", &film, 0, 0);
        assert!(paced <= 768 * 1024 && other >= 2 * paced, "{paced} and {other} bytes");
    });
}

/// Writes boxes into bytes, so that they are a fragmented film: its first half lasts 40 s, its second one 2 s.
fn make_uneven_film(bytes: &mut [u8]) {
    const HEAD_BYTES: usize = 16 + 56;
    let half = (bytes.len() - HEAD_BYTES) / 2;
    let references = [(half, 40_000), (bytes.len() - HEAD_BYTES - half, 2000)];
    // Version, name, ticks per second, time, distance to the media, number of references.
    let mut numbers = vec![0, 1, 1000, 0, 0, 2];
    for (size, ms) in references {
        numbers.extend([u32::try_from(size).unwrap(), ms, 0]);
    }
    let body: Vec<u8> = numbers.into_iter().flat_map(u32::to_be_bytes).collect();
    let head =
        [&16_u32.to_be_bytes()[..], b"ftypisom\0\0\0\0", &56_u32.to_be_bytes(), b"sidx", &body]
            .concat();
    bytes[..HEAD_BYTES].copy_from_slice(&head);
}

#[test]
fn a_range_of_a_film_is_read_ahead_at_the_rate_of_its_place() {
    for_seeds(FEW, |seed| {
        let mut film = content(seed, 8_000_000);
        make_uneven_film(&mut film);
        // At these places a read of 256 KiB is the first, as at the start of a file.
        for (start, is_slow) in [(1 << 20, true), (2 << 20, true), (5 << 20, false)] {
            let paced = read_ahead(seed, "film.mp4", &film, start, 0);
            assert_eq!(paced <= 768 * 1024, is_slow, "{paced} bytes from {start} on");
        }
    });
}

/// A film of 2 MB a second is read ahead further than one whose layout is not known.
#[test]
fn films_are_learned_while_another_device_does_not_answer() {
    for_seeds(FEW, |seed| {
        let mut film = content(seed, 4_000_000);
        make_film(&mut film, 2000);
        for hung in [0, 20] {
            let paced = read_ahead(seed, "film.mp4", &film, 0, hung);
            assert!(paced > 768 * 1024, "{hung} films hang: {paced} bytes");
        }
    });
}

#[test]
fn a_change_is_seen_by_the_next_request_within_100_ms() {
    for_seeds(FEW, |seed| {
        let mut run = Run::new(Config::new(seed), Tuning::default(), false);
        let peer = run.world.connect();
        for _ in 0..20 {
            let size = SIZES[run.chance.below(SIZES.len())];
            let name = name(size);
            let bytes = file(run.chance.bits(), size);
            run.world.replace_file(&name, &bytes);
            let until = run.worker.ring().now() + Duration::from_millis(100);
            while run.worker.ring().now() < until {
                run.worker.turn(Some(until)).unwrap();
            }
            drop(peer.take());
            peer.send(format!("GET /{name} HTTP/1.1\r\nHost: sim\r\n\r\n").as_bytes());
            loop {
                run.turn(Duration::from_millis(5));
                let all = peer.received();
                let Some(response) = parse(&all, false).filter(|response| response.whole) else {
                    continue;
                };
                assert!(*response.body == bytes, "{name}: an old version");
                break;
            }
        }
        assert_eq!(peer.end(), None::<End>);
    });
}

/// The time in which a client gets all its answers while `stuck` other clients receive none.
fn time_beside(seed: u64, stuck: usize) -> Duration {
    let tuning = Tuning { timeout_send: Duration::from_secs(5), ..Tuning::default() };
    let mut run = Run::new(Config::new(seed), tuning, false);
    let peers: Vec<Peer> = (0..stuck).map(|_| run.world.connect()).collect();
    for peer in &peers {
        peer.stop_reading();
        peer.send(b"GET /f1000000 HTTP/1.1\r\nHost: sim\r\n\r\n");
    }
    for _ in 0..500 {
        run.turn(Duration::from_millis(1));
    }
    run.world.evict_all();
    run.connect(Manner::Polite);
    let begun = run.worker.ring().now();
    run.finish();
    assert_eq!(run.clients[0].answered, REQUESTS);
    let took = run.worker.ring().now().since(begun);
    for _ in 0..200 {
        run.turn(Duration::from_millis(100));
    }
    assert_eq!(run.worker.stats().slow_peers, stuck as u64);
    took
}

#[test]
fn a_client_that_takes_nothing_is_let_go_and_frees_the_disk_for_others() {
    for_seeds(FEW, |seed| {
        let (alone, beside) = (time_beside(seed, 0), time_beside(seed, 200));
        // Those that hold buffers would be let go after 5 s. Those that have just begun have their turns.
        let most = Duration::from_secs(5);
        assert!(beside < most, "{alone:?} alone, {beside:?} beside 200 that take nothing");
    });
}

#[test]
fn a_connection_begins_at_most_64_requests_in_a_turn() {
    for_seeds(FEW, |seed| {
        let mut run = Run::new(Config::new(seed), Tuning::default(), false);
        let first = run.world.connect();
        ask(&mut run, &first, "f1");
        let flooders: Vec<Peer> = (0..20).map(|_| run.world.connect()).collect();
        let all = b"GET /f1 HTTP/1.1\r\nHost: sim\r\n\r\n".repeat(1000);
        flooders.iter().for_each(|peer| peer.send(&all));
        let (mut before, mut most) = (run.worker.stats().responses, 0);
        for _ in 0..10_000 {
            run.turn(Duration::from_millis(20));
            let now = run.worker.stats().responses;
            most = most.max(now - before);
            before = now;
            flooders.iter().for_each(|peer| drop(peer.take()));
            if now == 20 * 1000 + 1 {
                break;
            }
        }
        assert_eq!(before, 20 * 1000 + 1, "all are answered");
        assert!(most <= 20 * 64, "{most} requests in one turn");
    });
}

/// Connections whose share of a turn is not enough for them, and the requests of each.
const FLOODERS: u64 = 80;
const REQUESTS_OF_FLOODER: u64 = 80;
/// Connections that go on in one turn. Each begins one response then, because its socket is nearly full.
const AGAIN_MAX: u64 = 64;

#[test]
fn connections_that_had_their_share_go_on_64_in_a_turn_whatever_comes_for_them() {
    for_seeds(FEW, |seed| {
        // All that was sent is there at once: the clock stands still as long as the worker is busy.
        let network = Duration::ZERO..=Duration::ZERO;
        let config = Config { network, ..Config::new(seed) };
        let mut run = Run::new(config, Tuning::default(), false);
        let first = run.world.connect();
        ask(&mut run, &first, "f32768");
        let ranges: Vec<_> = (0..32).map(|at| format!("{0}-{0}", at * 1000)).collect();
        let ranges = ranges.join(",");
        let one = format!("GET /f32768 HTTP/1.1\r\nHost: sim\r\nRange: bytes={ranges}\r\n\r\n");
        let all = one.repeat(usize::try_from(REQUESTS_OF_FLOODER).unwrap());
        let flooders: Vec<Peer> = (0..FLOODERS).map(|_| run.world.connect()).collect();
        for peer in &flooders {
            peer.stop_reading();
            peer.send(all.as_bytes());
        }
        // Each has its share, and those after it, until its socket is full.
        run.pass(Duration::from_millis(100));
        let (mut before, mut most) = (run.worker.stats().responses, 0);
        assert!(before > FLOODERS * 2 && before < FLOODERS * REQUESTS_OF_FLOODER / 2);
        flooders.iter().for_each(|peer| peer.set_read_rate(None));
        for _ in 0..10_000 {
            run.turn(Duration::from_millis(20));
            let now = run.worker.stats().responses;
            most = most.max(now - before);
            before = now;
            if now == 1 + FLOODERS * REQUESTS_OF_FLOODER {
                break;
            }
        }
        assert_eq!(before, 1 + FLOODERS * REQUESTS_OF_FLOODER, "all are answered");
        assert!(most > AGAIN_MAX / 2 && most <= AGAIN_MAX, "{most} responses in one turn");
    });
}

/// Requests that wait for one file of a device which does not answer.
const CROWD: u64 = 700;
/// Twice as many answers as a worker hands to connections in one worker turn.
const ANSWERS_OF_TURN_MAX: u64 = 256;

/// Lets a crowd wait for a device until the worker gives the requests up, or until `released`; returns the most
/// answers of a turn and the first line of a response.
fn answer_a_crowd(seed: u64, paths: u64, released: Option<Duration>) -> (u64, String) {
    let mut run = Run::new(Config::new(seed), Tuning::default(), false);
    let device = run.world.make_device("slow");
    for path in 0..paths {
        run.world.write_file(&format!("slow/{path}"), b"late");
    }
    run.world.evict_all();
    run.world.hang(device);
    let peers: Vec<Peer> = (0..CROWD).map(|_| run.world.connect()).collect();
    for (index, peer) in (0..).zip(&peers) {
        let path = index % paths;
        peer.send(format!("GET /slow/{path} HTTP/1.1\r\nHost: sim\r\n\r\n").as_bytes());
    }
    if let Some(released) = released {
        run.pass(released);
        assert_eq!(run.worker.stats().responses, 0, "the device does not answer");
        run.world.release(device);
    }
    let (mut before, mut most) = (0, 0);
    for _ in 0..10_000 {
        run.turn(Duration::from_secs(1));
        let now = run.worker.stats().responses;
        most = most.max(now - before);
        before = now;
        if now == CROWD {
            break;
        }
    }
    assert_eq!(before, CROWD, "all are answered");
    // The last bytes are on their way.
    run.pass(Duration::from_secs(1));
    let received = peers[0].received();
    let line = received.split(|byte| *byte == b'\r').next().unwrap();
    (most, String::from_utf8_lossy(line).into_owned())
}

#[test]
fn requests_that_wait_for_one_device_are_not_all_answered_in_one_turn() {
    for_seeds(FEW, |seed| {
        let given_up = "HTTP/1.1 503 Service Unavailable";
        for (paths, released, expected) in [
            (1, None, given_up),
            (CROWD, None, given_up),
            (1, Some(Duration::from_secs(1)), "HTTP/1.1 200 OK"),
        ] {
            let (most, line) = answer_a_crowd(seed, paths, released);
            assert_eq!(line, expected);
            assert!(most <= ANSWERS_OF_TURN_MAX, "{most} answers in a turn, for {paths} paths");
        }
    });
}

/// The first line of what a peer has received.
fn first_line(received: &[u8]) -> String {
    let line = received.split(|byte| *byte == b'\r').next().unwrap();
    String::from_utf8_lossy(line).into_owned()
}

/// The file is open and its attributes are cached, so it is the read of its contents that finds the device silent.
#[test]
fn a_response_from_a_silent_device_is_refused_before_its_head() {
    for_seeds(FEW, |seed| {
        let patience = Duration::from_secs(1);
        let tuning = Tuning { timeout_disk: patience, ..Tuning::default() };
        let mut run = Run::with_notes(Config::new(seed), tuning);
        let device = run.world.make_device("slow");
        let bytes = content(seed, 1_000_000);
        run.world.write_file("slow/f", &bytes);
        let mut peer = run.world.connect();
        ask(&mut run, &peer, "slow/f");
        // What is in memory leaves all the same.
        let half = 512 * 1024;
        run.world.evict_range("slow/f", half as u64..u64::MAX);
        run.world.hang(device);
        let send = |peer: &Peer, method: &str, first: usize| {
            drop(peer.take());
            let request =
                format!("{method} /slow/f HTTP/1.1\r\nHost: sim\r\nRange: bytes={first}-\r\n\r\n");
            peer.send(request.as_bytes());
        };
        let line = |run: &mut Run, peer: &Peer, method: &str, first: usize| {
            send(peer, method, first);
            run.pass(Duration::from_millis(200));
            first_line(&peer.received())
        };
        let (partial, refused) =
            ("HTTP/1.1 206 Partial Content", "HTTP/1.1 503 Service Unavailable");
        // It may still answer.
        send(&peer, "GET", half);
        run.pass(2 * patience);
        assert!(peer.end().is_some(), "the read has failed");
        assert_eq!(first_line(&peer.received()), partial);
        // One request tries the device.
        peer = run.world.connect();
        send(&peer, "GET", half);
        run.pass(Duration::from_millis(200));
        let other = run.world.connect();
        assert_eq!(line(&mut run, &other, "GET", half), refused);
        assert!(String::from_utf8_lossy(&other.received()).contains("Retry-After: "));
        assert_eq!(line(&mut run, &other, "HEAD", 0), "HTTP/1.1 200 OK");
        assert_eq!(line(&mut run, &other, "GET", 0), partial);
        assert!(run.notes().contains("no read of a disk"), "{}", run.notes());
        run.world.release(device);
        run.pass(Duration::from_secs(1));
        assert!(run.notes().contains("end again"), "{}", run.notes());
        let again = run.world.connect();
        assert_eq!(line(&mut run, &again, "GET", half), partial);
        let received = again.received();
        let whole = parse(&received, false).unwrap();
        assert!(whole.whole && *whole.body == bytes[half..]);
    });
}

/// An open file keeps its file system busy, and the space of a deleted file in use.
#[test]
fn a_file_without_requests_is_closed_after_a_while() {
    for_seeds(FEW, |seed| {
        let mut run = Run::new(Config::new(seed), Tuning::default(), false);
        let peer = run.world.connect();
        for size in [65_537, 262_144, 1_000_000] {
            ask(&mut run, &peer, &name(size));
        }
        // The root, the listener, the connection, and the two ends of a pooled pipe.
        let always = 3 + 2;
        assert_eq!(run.world.open_descriptors(), always + 3);
        // A file that is requested every second stays open.
        for _ in 0..29 {
            run.pass(Duration::from_secs(1));
            ask(&mut run, &peer, "f262144");
        }
        assert_eq!(run.world.open_descriptors(), always + 3);
        run.pass(Duration::from_secs(3));
        assert_eq!(run.world.open_descriptors(), always + 1);
        run.pass(Duration::from_secs(31));
        assert_eq!(run.world.open_descriptors(), always);
    });
}

/// Loads of more large files than descriptors wait in line.
#[test]
fn files_beyond_the_share_of_descriptors_are_served_one_after_the_other() {
    for_seeds(FEW, |seed| {
        let mut run = Run::new(Config::new(seed), Tuning::default(), false);
        let names: Vec<String> = (0..40).map(|number| format!("large{number}")).collect();
        for name in &names {
            run.world.write_file(name, &content(seed, 70_000));
        }
        let peers: Vec<Peer> = (0..2).map(|_| run.world.connect()).collect();
        for peer in &peers {
            // Responses that cannot be sent keep their files open.
            peer.stop_reading();
            for name in &names {
                peer.send(format!("GET /{name} HTTP/1.1\r\nHost: sim\r\n\r\n").as_bytes());
            }
        }
        run.pass(Duration::from_secs(5));
        // The root, the listener, the connections, the share of files and half of it again, and one load.
        let open = run.world.open_descriptors();
        assert!(open <= 2 + 2 + 6 + 3 + 5, "{open}");
        for peer in &peers {
            peer.set_read_rate(None);
        }
        run.pass(Duration::from_secs(20));
        for peer in &peers {
            let all = peer.received();
            let mut rest = &all[..];
            for name in &names {
                let response = parse(rest, false).unwrap_or_else(|| panic!("{name}: no answer"));
                assert_eq!((response.status, response.whole), (200, true), "{name}");
                rest = &rest[response.len..];
            }
        }
    });
}

/// A small file is overwritten in place while it is being read: all responses with the same tag have the
/// same bytes.
#[test]
fn a_tag_never_stands_for_two_contents() {
    for_seeds(2 * FEW, |seed| {
        let tags = if seed % 2 == 0 { Tags::Stat } else { Tags::Hash };
        let mut run =
            Run::new(Config::new(seed), FileRules { tags, ..FileRules::default() }, false);
        let peer = run.world.connect();
        // Turns until a change: with a hash that is known the response often comes before it.
        let turns = if tags == Tags::Hash { 100 } else { 30 };
        for round in 0..100 {
            if round % 2 == 1 {
                run.look_up_again("f1000");
                // A hash takes at most 20 ms.
                run.pass(Duration::from_millis(if tags == Tags::Hash { 30 } else { 5 }));
            } else {
                run.pass(Duration::from_millis(20));
            }
            drop(peer.take());
            peer.send(b"GET /f1000 HTTP/1.1\r\nHost: sim\r\n\r\n");
            let mut turns_left = if round % 2 == 1 { run.chance.below(turns) } else { usize::MAX };
            let all = loop {
                if turns_left == 0 {
                    let bytes = content(run.chance.bits(), 1000);
                    run.world.write_file("f1000", &bytes);
                }
                turns_left = turns_left.wrapping_sub(1);
                run.turn(Duration::from_micros(50));
                let all = peer.received();
                if parse(&all, false).is_some_and(|response| response.whole) {
                    break all;
                }
            };
            let response = parse(&all, false).unwrap();
            assert!(response.tag.is_some() || tags == Tags::Hash);
            run.contents.check(&response, None);
        }
        assert!(tags == Tags::Hash || run.contents.0.len() > 10);
    });
}

/// The longest time that a client may wait for its next byte, unless that comes from a device that
/// hangs: fifty times the time of a read, for several clients with some reads each. A packet that is not
/// full may wait 0.2 s.
const STARVED_MAX: Duration = Duration::from_secs(1);
/// Files in the root, and on a device that may hang.
const SCENARIO_FILES: [(&str, usize); 6] = [
    ("f1", 1),
    ("f5000", 5000),
    ("f32769", 32_769),
    ("f300001", 300_001),
    ("slow/f5000", 5000),
    ("slow/f200000", 200_000),
];
/// The number of connections of one run, and the maximum of requests of each.
const SCENARIO_CLIENTS: usize = 4;
/// Open files of a worker that are enough for all requests of all clients: loads, of which a tenth of so
/// many may run at the same time, stand in one line for all devices.
const DESCRIPTORS_ENOUGH: usize = 512;
/// A budget that is never spent.
const MEMORY_ENOUGH: u64 = 1 << 20;
/// The memory that a connection may hold while the worker's budget is spent: what was received and not
/// yet understood, and one response.
const RESPONSE_BYTES_MAX: u64 = 40 * 1024;
/// The memory that a connection may hold: its own budget and the response that passes it.
const CONNECTION_BYTES_MAX: u64 = 128 * 1024 + RESPONSE_BYTES_MAX;
/// The memory of the cache in these worlds: its own budget is larger than all files together.
const CACHED_BYTES_MAX: u64 = 16 * 1024;
const SCENARIO_REQUESTS: usize = 4;
const PADDING_MAX: usize = 6000;

/// A random machine, kernel and file system, as users may have them.
fn any_config(seed: u64, chance: &mut Random) -> (Config, Options) {
    let faults = chance.one_in(3);
    let mut config = if faults { Config::nasty(seed) } else { Config::new(seed) };
    let sometimes =
        |errno: Errno, chance: &mut Random| chance.one_in(6).then_some(errno.raw_os_error());
    config.cachestat_errno = match chance.below(6) {
        0 => Some(Errno::PERM.raw_os_error()),
        1 => Some(Errno::NOSYS.raw_os_error()),
        _ => None,
    };
    config.probe_errno = sometimes(Errno::OPNOTSUPP, chance);
    config.sendfile_errno = sometimes(Errno::INVAL, chance);
    config.splice_errno = sometimes(Errno::INVAL, chance);
    config.mincore_denied = chance.one_in(4);
    config.swap = chance.one_in(2);
    config.proc = !chance.one_in(4);
    config.can_drop = !chance.one_in(4);
    config.faults.short_send = 0.2;
    // The script evicts whole files, too.
    config.faults.eviction = [0.0, 0.02, 0.2][chance.below(3)];
    if chance.one_in(2) {
        config.pipe_bytes = 64 * 1024;
    }
    config.file_system = match chance.below(6) {
        0 => 0x794c_7630, // overlayfs
        1 => 0x6969,      // NFS: changes are not seen
        _ => config.file_system,
    };
    let caching = match chance.below(6) {
        0 => Caching::Never,
        1 => Caching::Always,
        _ => Caching::Popular,
    };
    let tags = if chance.one_in(3) { Tags::Hash } else { Tags::Stat };
    let policy = Policy { caching, ..Policy::default() };
    let rules = FileRules { policy, tags, listing: true, ..FileRules::default() };
    let mut options = Options::from(rules);
    if chance.one_in(2) {
        options.tuning.memory_bytes_max = [0, 20_000, 100_000][chance.below(3)];
    }
    (config, options)
}

impl Run {
    /// Connects a client with random requests of every kind.
    fn connect_any(&mut self) {
        let chance = &mut self.chance;
        let manner = MANNERS[chance.below(MANNERS.len())];
        // Some send many large requests together.
        let is_greedy = manner != Manner::Dribbling && chance.one_in(6);
        let count =
            1 + chance.below(if is_greedy { 10 * SCENARIO_REQUESTS } else { SCENARIO_REQUESTS });
        let requests: Vec<_> = (0..count)
            .map(|_| {
                let (file, size) = match chance.below(10) {
                    0 => (MISSING, 0),
                    1 => (LISTING, 0),
                    _ => SCENARIO_FILES[chance.below(SCENARIO_FILES.len())],
                };
                let range = (chance.one_in(4) && size > 0).then(|| {
                    let first = chance.below(size);
                    (first, first + chance.below(size - first))
                });
                let padding = if is_greedy { chance.below(PADDING_MAX) } else { 0 };
                Request { file: file.to_owned(), head: chance.one_in(8), range, padding }
            })
            .collect();
        let input = requests.iter().flat_map(Request::bytes).collect();
        let peer = self.world.connect();
        if manner == Manner::Slow {
            peer.set_read_rate(Some(500_000 + self.chance.bits() % 2_000_000));
        }
        self.clients.push(Client { peer, requests, input, manner, answered: 0, vanished: false });
    }

    /// Makes the server look up a file again that has not changed.
    fn look_up_again(&self, name: &str) {
        let sibling = format!("{name}.gz");
        self.world.write_file(&sibling, b"");
        self.world.remove(&sibling);
    }

    /// Runs clients, evictions, replacements and hangs together, until all clients have their responses.
    fn run_scenario(&mut self, device: u64, tally: &mut Tally) {
        let evict_all_in = if self.chance.one_in(2) { 20 } else { 500 };
        let mut hangs_until = None;
        // With few descriptors the files of the device that hangs may take all of them.
        let has_few = self.limits.descriptors_max < DESCRIPTORS_ENOUGH;
        // When the device last hung.
        let mut hung = Time::default();
        let mut progress: Vec<(usize, Time)> = vec![(0, self.world.now()); self.clients.len()];
        for round in 0_u32.. {
            let script = round < 150;
            let now = self.world.now();
            assert!(round < 20_000, "clients wait for ever: {:?}", self.worker);
            for index in 0..self.clients.len() {
                if self.chance.one_in(4) {
                    self.poke(index);
                }
            }
            if script && self.chance.one_in(evict_all_in) {
                self.world.evict_all();
            }
            if script && self.chance.one_in(30) {
                // A response under way and the next one then have an open file each, of one inode.
                let (name, _) = SCENARIO_FILES[self.chance.below(SCENARIO_FILES.len())];
                self.look_up_again(name);
            }
            if script && self.chance.one_in(30) {
                let (name, size) = SCENARIO_FILES[self.chance.below(SCENARIO_FILES.len())];
                let bytes = content(self.chance.bits(), size);
                self.world.replace_file(name, &bytes);
                self.files.0.get_mut(name).unwrap().push(bytes);
            }
            if script && hangs_until.is_none() && self.chance.one_in(60) {
                self.world.hang(device);
                hangs_until = Some(now + Duration::from_millis(1 + self.chance.bits() % 3000));
            }
            if hangs_until.is_some_and(|until| until <= now) {
                hangs_until = None;
                self.world.release(device);
            }
            self.turn(Duration::from_millis(20));
            self.check_memory(tally);
            let now = self.world.now();
            if hangs_until.is_some() {
                hung = now;
            }
            for (client, (bytes, since)) in self.clients.iter().zip(&mut progress) {
                let received = client.peer.received_bytes();
                if received > *bytes || !client.input.is_empty() {
                    (*bytes, *since) = (received, now);
                }
                let waits = now.since(*since);
                if waits > tally.longest_wait && !client.is_done() {
                    match self.waits_for(client) {
                        None => *since = now,
                        Some(file) if file.starts_with("slow/") || has_few => {
                            *since = (*since).max(hung);
                        }
                        Some(file) => {
                            tally.longest_wait = waits;
                            assert!(waits <= STARVED_MAX, "{:?} waits for {file}", client.manner);
                        }
                    }
                }
            }
            if round % 16 == 0 {
                for client in &mut self.clients {
                    client.check(&self.files, &mut self.contents, self.limits);
                }
                if !script && self.clients.iter().all(Client::is_done) {
                    return;
                }
            }
        }
    }

    /// The file of the first response that the client does not have whole.
    fn waits_for<'a>(&self, client: &'a Client) -> Option<&'a str> {
        let all = client.peer.received();
        let mut at = 0;
        for request in &client.requests {
            match parse(&all[at..], request.head) {
                Some(response) if response.whole => at += response.len,
                _ => return Some(&request.file),
            }
        }
        None
    }

    /// Checks that the worker's budget is passed by no more than one response for each connection. One
    /// connection may spend its own budget, too: what it holds is counted after its turn.
    fn check_memory(&self, tally: &mut Tally) {
        let held = self.worker.held().0 + self.worker.shared();
        let bytes_max = self.limits.memory_bytes_max;
        let each = self.worker.connections() as u64 * RESPONSE_BYTES_MAX;
        let last = if bytes_max == 0 { 0 } else { CONNECTION_BYTES_MAX };
        let most = bytes_max.max(CACHED_BYTES_MAX) + each + last;
        assert!(held <= most, "{held} bytes are held, of {bytes_max}");
        tally.spent += usize::from(bytes_max > 0 && held >= bytes_max);
    }
}

/// The unit of the server's knowledge of residency, and a page, in bytes.
const BLOCK: u64 = 256 * 1024;
const PAGE: u64 = 4096;
/// The time between two confirmations of a block by `cachestat`, and the time for which a look is
/// believed where `cachestat` is refused (`sendfile/src/file.rs`).
const CONFIDENCE: Duration = Duration::from_millis(5);
const BELIEF_ALONE: Duration = Duration::from_millis(50);

/// Whether the server cannot have known that pages are missing. The kernel may reclaim
///
/// - any pages between the touch and the `sendfile` of one turn, or between two calls of `sendfile` for one
///   range;
/// - a part of a block since its last confirmation, if the last byte to be sent, which is touched, stays.
///
/// Nothing else is excused: no page that was reclaimed earlier, that was evicted otherwise, or that has
/// not been there; and no range whose last page in a block was missing when the turn began.
fn is_unforeseeable(stall: &Stall, believed: Duration) -> bool {
    let end = stall.offset + stall.len as u64;
    stall.missing.iter().all(|page| {
        let is_recent = |since: Time| stall.at.since(since) < believed;
        let at = page.number as u64 * PAGE;
        let touched = (end.min((at / BLOCK + 1) * BLOCK) - 1) / PAGE;
        let is_touched = page.number as u64 == touched;
        page.reclaimed.is_some_and(
            |since| {
                if is_touched { since == stall.at } else { is_recent(since) }
            },
        )
    })
}

#[test]
fn only_what_was_reclaimed_since_the_last_confirmation_is_unforeseeable() {
    let at = Time::from_nanos(1_000_000_000);
    let before = |millis: u64| Some(Time::from_nanos(at.as_nanos() - millis * 1_000_000));
    // Pages 62 to 65, of which 62 and 63 are in one block, and 64 and 65 in the next.
    let (offset, len) = (62 * PAGE + 100, 3 * 4096 + 1);
    let stall = |missing: &[(usize, Option<Time>)]| Stall {
        file: "f".to_owned(),
        offset,
        len,
        at,
        missing: missing
            .iter()
            .map(|(number, reclaimed)| MissingPage { number: *number, reclaimed: *reclaimed })
            .collect(),
    };
    for (missing, expected) in [
        (&[(62, before(4))][..], true),
        (&[(62, before(5))], false),
        (&[(62, None)], false),
        (&[(62, before(4)), (64, before(9))], false),
        // The last page in each block is touched.
        (&[(63, before(1))], false),
        (&[(63, before(0))], true),
        (&[(64, before(1))], true),
        (&[(65, before(1))], false),
        (&[(65, before(0))], true),
    ] {
        let stall = stall(missing);
        assert_eq!(is_unforeseeable(&stall, CONFIDENCE), expected, "{stall:?}");
    }
}

/// What has happened in some worlds.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    counts: Counts,
    /// Calls of `sendfile` that would have slept, and that the server could not foresee.
    unforeseeable: usize,
    /// The longest time that a client waited for a byte of a file on a device that does not hang.
    longest_wait: Duration,
    /// Turns after which the budget of memory was spent.
    spent: usize,
    /// Entity tags of contents that clients got.
    hashes: usize,
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.counts += other.counts;
        self.unforeseeable += other.unforeseeable;
        self.longest_wait = self.longest_wait.max(other.longest_wait);
        self.spent += other.spent;
        self.hashes += other.hashes;
    }
}

fn scenario(seed: u64) -> Tally {
    let mut chance = Random::new(seed ^ 0x5eed);
    let (config, options) = any_config(seed, &mut chance);
    let (memory_bytes_max, tags) = (options.tuning.memory_bytes_max, options.rules.tags);
    let faults = config.faults.read_error > 0.0;
    let believed = if config.cachestat_errno.is_some() { BELIEF_ALONE } else { CONFIDENCE };
    let world = World::new(config);
    let device = world.make_device("slow");
    let mut files = Files::default();
    for (name, size) in SCENARIO_FILES {
        let bytes = content(seed ^ size as u64, size);
        world.write_file(name, &bytes);
        files.0.insert(name.to_owned(), vec![bytes]);
    }
    if chance.one_in(2) {
        world.evict_all();
    }
    let ring = Ring::simulated(&world);
    let descriptors_max = [6, 12, DESCRIPTORS_ENOUGH][chance.below(3)];
    // Some files are popular, or all or none.
    let page_cache_bytes = [0, 500_000, 8_000_000, 1 << 30][chance.below(4)];
    let parts = Parts {
        listeners: vec![ring.sim_listener(&world)],
        snapshot: options.snapshot(),
        roots: vec![ring.sim_root(&world)],
        crowd: Crowd::new(1000),
        page_cache: Arc::new(PageCache::new(page_cache_bytes)),
        devices: Arc::default(),
        silences: Arc::default(),
        reported: Arc::default(),
        board: Arc::default(),
        descriptors_max,
        logs: Vec::new(),
        metrics: (metrics::Metrics::new(1), 0),
        notes: None,
        attachments: Attachments::default(),
        ring,
    };
    // In each fourth world the connections send only from memory, as those with TLS do.
    let make = if seed % 4 == 3 { |tcp: KernelTcp, _| tcp.of_memory() } else { |tcp, _| tcp };
    let network = Listeners::with(parts.listeners.clone(), make as fn(KernelTcp, usize) -> _);
    let worker = Worker::over(parts, network).unwrap();
    let limits = Limits { faults, memory_bytes_max, descriptors_max };
    let contents = Contents::default();
    let mut run = Run { world, worker, chance, files, contents, clients: Vec::new(), limits };
    for _ in 0..SCENARIO_CLIENTS {
        run.connect_any();
    }
    let mut tally = Tally::default();
    run.run_scenario(device, &mut tally);
    run.world.release(device);
    for client in run.clients.iter().filter(|client| !client.vanished && !faults) {
        let timed_out = client.manner == Manner::Dribbling;
        assert!(
            client.answered == client.requests.len() || timed_out,
            "{:?} has {} of {} answers",
            client.manner,
            client.answered,
            client.requests.len()
        );
    }
    run.clients.iter().for_each(|client| client.peer.close());
    // Cached files are closed half a minute after their last use, and those whose pages are to leave the page
    // cache within a minute.
    run.pass(Duration::from_secs(130));
    assert_eq!(run.worker.connections(), 0, "connections are left");
    assert_eq!(run.worker.held(), (0, 0), "memory of connections, buffers of the disk");
    let watches = run.world.watches();
    assert!(watches <= 2, "{watches} watches of the root and one directory");
    let operations = run.worker.ring().in_flight();
    assert_eq!(operations, 1 + watches, "it accepts, and watches");
    assert!(run.worker.shared() <= CACHED_BYTES_MAX, "more is shared than cached");
    let open = run.world.open_descriptors() - run.world.open_pipes();
    assert_eq!(open, 2, "the root and the listener; {:?}", run.worker);
    assert!(
        run.world.open_pipes() <= (descriptors_max / 4).min(64) * 2,
        "more pipes are pooled than allowed"
    );
    assert_eq!(run.world.pipe_bytes(), 0, "bytes are left in pipes");
    let (unforeseeable, stalls): (Vec<_>, Vec<_>) =
        run.world.stalls().into_iter().partition(|stall| is_unforeseeable(stall, believed));
    assert_eq!(stalls, [], "a sendfile would have slept");
    let hashes = if tags == Tags::Hash { run.contents.0.len() } else { 0 };
    Tally { counts: run.world.counts(), unforeseeable: unforeseeable.len(), hashes, ..tally }
}

/// Random requests in random worlds: every byte is right, no client starves, nothing is left behind.
#[test]
fn what_users_run_is_right_in_every_world() {
    let all = Cell::new(Tally::default());
    let runs = Cell::new(0);
    for_seeds(1000, |seed| {
        let mut sum = all.get();
        sum += scenario(seed);
        all.set(sum);
        runs.set(runs.get() + 1);
    });
    eprintln!("{} runs: {:?}", runs.get(), all.get());
    let Tally { counts, unforeseeable, spent, hashes, .. } = all.get();
    // `fills`: none of these requests is passed on.
    let Counts {
        splices,
        fills: _,
        drains,
        sendfiles,
        partial_sends,
        evictions,
        reclaims,
        failures,
        hangs,
    } = counts;
    let happened = [
        splices,
        drains,
        sendfiles,
        partial_sends,
        evictions,
        reclaims,
        failures,
        hangs,
        unforeseeable as u64,
        spent as u64,
        hashes as u64,
    ];
    for count in happened {
        assert!(count > 0 || runs.get() < 100, "something never happened: {:?}", all.get());
    }
}
