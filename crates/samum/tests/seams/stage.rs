//! A worker with a handler of a test's own in a simulated world, and what scripts of tests need.

use core::panic::AssertUnwindSafe;
use core::time::Duration;
use std::panic::{catch_unwind, resume_unwind};
use std::sync::Arc;

use config::Tuning;
use handler::Handler;
use handler::attach::Attachments;
use handler::desk::Desk;
use handler::router::Router;
use ring::Ring;
use ring::sim::World;
use samum::crowd::Crowd;
use samum::network::Listeners;
use samum::worker::{Parts, Worker};
use session::Http1;
use session::shell::Shell;
use testkit::Random;

use crate::options::Options;

/// Open files that the worker may keep.
const DESCRIPTORS_MAX: usize = 6;

/// Bytes that differ everywhere.
pub(crate) fn content(seed: u64, len: usize) -> Vec<u8> {
    Random::new(seed).words(len)
}

/// Runs a test with that many seeds, or with the one that `SAMUM_SEED` names.
pub(crate) fn for_seeds(count: u64, test: impl Fn(u64)) {
    let asked = std::env::var("SAMUM_SEED").ok();
    let seeds = match asked.map(|seed| seed.parse::<u64>().expect("a number")) {
        Some(seed) => seed..seed + 1,
        None => 0..count,
    };
    for seed in seeds {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| test(seed))) {
            eprintln!("failed with SAMUM_SEED={seed}");
            resume_unwind(panic);
        }
    }
}

/// A world and a worker in it.
pub(crate) struct Stage<H: Handler> {
    pub(crate) world: World,
    pub(crate) worker: Worker<Http1, Listeners, H>,
}

impl<H: Handler> Stage<H> {
    pub(crate) fn new(
        world: World,
        tuning: Tuning,
        handler: impl FnOnce(Router, &Shell<Desk>) -> H,
    ) -> Self {
        let ring = Ring::simulated(&world);
        let root = ring.sim_root(&world);
        let network = Listeners::new(vec![ring.sim_listener(&world)]);
        let parts = Parts {
            listeners: Vec::new(),
            snapshot: Options::from(tuning).snapshot(),
            roots: Vec::new(),
            crowd: Crowd::new(1000),
            page_cache: Arc::default(),
            devices: Arc::default(),
            silences: Arc::default(),
            reported: Arc::default(),
            board: Arc::default(),
            descriptors_max: DESCRIPTORS_MAX,
            logs: Vec::new(),
            metrics: (metrics::Metrics::new(1), 0),
            notes: None,
            attachments: Attachments::default(),
            ring,
        };
        let worker = Worker::with(parts, network, |shell| {
            Ok(handler(Router::new(&[root], DESCRIPTORS_MAX, shell)?, shell))
        });
        Self { world, worker: worker.unwrap() }
    }

    /// Lets the worker do what there is to do, for at most that long.
    pub(crate) fn turn(&mut self, most: Duration) {
        let until = self.worker.ring().now() + most;
        self.worker.turn(Some(until)).unwrap();
    }

    /// Lets so much time pass.
    pub(crate) fn pass(&mut self, time: Duration) {
        let until = self.worker.ring().now() + time;
        while self.worker.ring().now() < until {
            self.worker.turn(Some(until)).unwrap();
        }
    }

    /// Checks that nothing is left of clients that have gone.
    pub(crate) fn check_nothing_is_left(&mut self) {
        // A file that no request asks for is closed after half a minute.
        self.pass(Duration::from_secs(65));
        assert_eq!(self.worker.connections(), 0, "connections are left");
        let open = self.world.open_descriptors() - self.world.open_pipes();
        assert_eq!(open, 2, "the root and the listener");
        assert_eq!(self.worker.held().0, 0, "memory is charged to connections");
        assert_eq!(self.world.stalls(), [], "a sendfile would have slept");
    }
}

/// A response, as far as it has come.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) head: String,
    /// The lines of the trailer section.
    pub(crate) trailers: String,
    pub(crate) body: Vec<u8>,
    /// Whether its framing says that it is complete.
    pub(crate) whole: bool,
    /// Bytes of the stream that it takes.
    pub(crate) len: usize,
}

/// Reads the first response in a stream, by rules of its own; `None` if its head is not complete.
pub(crate) fn parse(bytes: &[u8]) -> Option<Response> {
    let mut body = Vec::new();
    let read = read(bytes, |part| body.extend_from_slice(part))?;
    Some(Response { body, ..read })
}

/// Reads the first response in a stream, if it is whole. Before that nothing of the body is copied, because tests ask again
/// and again while a long response comes.
pub(crate) fn parse_whole(bytes: &[u8]) -> Option<Response> {
    read(bytes, |_| ()).filter(|response| response.whole)?;
    parse(bytes)
}

/// Reads the first response without its body, whose parts `take` gets.
fn read(bytes: &[u8], mut take: impl FnMut(&[u8])) -> Option<Response> {
    let at = bytes.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
    let head = String::from_utf8(bytes[..at].to_vec()).unwrap();
    let status: u16 = head[9..12].parse().unwrap();
    let rest = &bytes[at..];
    let mut trailers = String::new();
    let (len, whole) = if status < 200 || status == 304 || status == 204 {
        (0, true)
    } else if head.contains("\r\nTransfer-Encoding: chunked\r\n") {
        unchunk(rest, take, &mut trailers)
    } else if let Some(line) = head.lines().find_map(|line| line.strip_prefix("Content-Length: ")) {
        let length: usize = line.parse().unwrap();
        let len = length.min(rest.len());
        take(&rest[..len]);
        (len, len == length)
    } else {
        // It lasts until the connection ends: the caller has to know that it has.
        assert!(head.contains("\r\nConnection: close\r\n"), "no framing: {head}");
        take(rest);
        (rest.len(), true)
    };
    Some(Response { status, head, body: Vec::new(), trailers, whole, len: at + len })
}

/// Gives `take` the content of the whole chunks. Returns how many bytes the chunks are, and whether the last is among them,
/// and sets the fields after it.
fn unchunk(bytes: &[u8], mut take: impl FnMut(&[u8]), trailers: &mut String) -> (usize, bool) {
    let mut at = 0;
    while let Some(line) = bytes[at..].windows(2).position(|two| two == b"\r\n") {
        let size = core::str::from_utf8(&bytes[at..at + line]).unwrap();
        let size = usize::from_str_radix(size, 16).unwrap();
        let start = at + line + 2;
        if size == 0 {
            let rest = &bytes[start - 2..];
            let Some(end) = rest.windows(4).position(|four| four == b"\r\n\r\n") else { break };
            trailers.push_str(core::str::from_utf8(&rest[2..end + 2]).unwrap());
            return (start + end + 2, true);
        }
        let Some(chunk) = bytes.get(start..start + size + 2) else { break };
        assert!(chunk.ends_with(b"\r\n"), "a chunk has its line end");
        take(&chunk[..size]);
        at = start + size + 2;
    }
    (at, false)
}
