//! The simulated world: a site in it, a worker that serves the site, and clients.

use core::ops::Range;
use core::panic::AssertUnwindSafe;
use core::time::Duration;
use std::collections::BTreeSet;
use std::panic::{catch_unwind, resume_unwind};
use std::rc::Rc;
use std::sync::Arc;

use config::FileRules;
use handler::Handler;
use handler::attach::Attachments;
use ring::sim::{Config, End, Peer, World};
use ring::{Ring, Time};
use samum::crowd::Crowd;
use samum::network::{Listeners, Network};
use samum::worker::{Parts, Worker};
use sendfile::{KernelTcp, Transport};
use session::Session;

use crate::cases::{Kind, MODIFIED, Site};
use crate::options::Options;

/// Longest time between two looks of a test at the world.
const STEP: Duration = Duration::from_millis(20);
/// Time of the simulation after which a client has waited for too long: less than the time after
/// which a connection is closed because it is idle.
const PATIENCE: Duration = Duration::from_secs(60);
/// Time of the simulation after which whatever has a timeout has ended.
const TIMEOUTS: Duration = Duration::from_secs(300);

/// A world whose clock starts when the files of the table were modified, so that it can give them
/// that time.
pub(crate) fn config(seed: u64) -> Config {
    Config { unix_time: MODIFIED.cast_signed(), ..Config::new(seed) }
}

/// Makes the entries of a site, none of them in the page cache.
pub(crate) fn make(config: Config, site: &Site) -> World {
    let world = World::new(config);
    let mut directories = BTreeSet::new();
    for entry in &site.entries {
        let path = &entry.path[..];
        let above = (0..path.len()).filter(|at| path[*at] == b'/').map(|at| &path[..at]);
        let itself = matches!(entry.kind, Kind::Directory).then_some(path);
        for directory in above.chain(itself) {
            if directories.insert(directory) {
                world.make_dir(directory);
            }
        }
        match &entry.kind {
            Kind::File(content) => {
                world.write_file(path, &content.to_vec());
                world.set_mtime(path, MODIFIED.cast_signed());
            }
            Kind::Directory => {}
            Kind::Link(target) => world.symlink(target, str::from_utf8(path).expect("a text")),
        }
    }
    world.evict_all();
    world
}

/// The options that a site is served with.
pub(crate) fn options(site: &Site) -> Options {
    let mut rules = FileRules { listing: site.listing, ..FileRules::default() };
    if let Some(index) = site.index {
        rules.index = vec![index.to_owned()];
    }
    Options::from(rules)
}

/// The parts of a worker in this world, with one listener.
pub(crate) fn parts(world: &World, options: impl Into<Options>) -> Parts {
    let ring = Ring::simulated(world);
    Parts {
        listeners: vec![ring.sim_listener(world)],
        snapshot: options.into().snapshot(),
        roots: vec![ring.sim_root(world)],
        crowd: Crowd::new(1000),
        page_cache: Arc::default(),
        devices: Arc::default(),
        silences: Arc::default(),
        reported: Arc::default(),
        board: Arc::default(),
        descriptors_max: 64,
        logs: Vec::new(),
        metrics: (metrics::Metrics::new(1), 0),
        notes: None,
        attachments: Attachments::default(),
        ring,
    }
}

/// A function that makes the transport of a connection, of the socket and the listener's index.
pub(crate) type Make<T> = fn(KernelTcp, usize) -> T;

/// A worker that serves the files of this world in sessions `S`, over transports that `make` makes.
pub(crate) fn serve_over<S: Session, T: Transport>(
    world: &World,
    options: Options,
    make: Make<T>,
) -> Worker<S, Listeners<Make<T>>> {
    let parts = parts(world, options);
    let network = Listeners::with(parts.listeners.clone(), make);
    Worker::over(parts, network).expect("memory")
}

/// Lets so much time pass.
pub(crate) fn pass<S: Session, N: Network, H: Handler>(
    worker: &mut Worker<S, N, H>,
    time: Duration,
) {
    let until = worker.ring().now() + time;
    while worker.ring().now() < until {
        worker.turn(Some(until)).expect("a ring that waits");
    }
}

/// Lets the world go on until `is_done` says so; returns whether it did before patience ran out.
pub(crate) fn run_until<S: Session, N: Network, H: Handler>(
    worker: &mut Worker<S, N, H>,
    mut is_done: impl FnMut() -> bool,
) -> bool {
    let end: Time = worker.ring().now() + PATIENCE;
    while !is_done() {
        let now = worker.ring().now();
        if now >= end {
            return false;
        }
        worker.turn(Some(now + STEP)).expect("a ring that waits");
    }
    true
}

/// Asserts that nothing is left once all peers have gone: no connection, no descriptor but the root
/// and the listener, no bytes in pipes, no memory; and that no call has waited for the disk.
pub(crate) fn assert_nothing_is_left<S: Session, N: Network, H: Handler>(
    world: &World,
    worker: &mut Worker<S, N, H>,
) {
    pass(worker, TIMEOUTS);
    assert_eq!(worker.connections(), 0, "connections are left");
    assert_eq!(world.open_descriptors() - world.open_pipes(), 2, "descriptors are left");
    assert_eq!(world.pipe_bytes(), 0, "bytes are left in pipes");
    assert_eq!(worker.held(), (0, 0), "bytes of connections, buffers of the disk");
    assert_eq!(world.stalls(), [], "a sendfile would have slept");
}

/// Runs a test for each of this many seeds, or for `SAMUM_SEED` alone; prints the seed if it fails.
pub(crate) fn for_seeds(count: u64, test: impl Fn(u64)) {
    for_seeds_of(0..count, test);
}

/// The same for these seeds.
pub(crate) fn for_seeds_of(seeds: Range<u64>, test: impl Fn(u64)) {
    let seed = std::env::var("SAMUM_SEED").ok().map(|seed| seed.parse().expect("a number"));
    for seed in seed.map_or(seeds, |seed: u64| seed..seed + 1) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| test(seed))) {
            eprintln!("failed with SAMUM_SEED={seed}");
            resume_unwind(panic);
        }
    }
}

/// The client's end of a transport. It works only when it is looked at.
pub(crate) trait Client {
    /// Sends plain bytes.
    fn send(&mut self, bytes: &[u8]);

    /// Sends no more plain bytes.
    fn shut_down(&mut self);

    /// Takes what has come, and answers it where the transport asks for it.
    fn look(&mut self);

    /// All plain bytes received so far, in order.
    fn received(&self) -> &[u8];

    /// How the stream of plain bytes has ended, if it has.
    fn end(&self) -> Option<End>;
}

/// A function that makes a client of its socket and a seed.
pub(crate) type Dial<C> = fn(Rc<Peer>, u64) -> C;

/// The client of [`KernelTcp`]: plain bytes are the socket's.
pub(crate) struct Plain {
    peer: Rc<Peer>,
    received: Vec<u8>,
}

impl Plain {
    pub(crate) const fn new(peer: Rc<Peer>, _seed: u64) -> Self {
        Self { peer, received: Vec::new() }
    }
}

impl Client for Plain {
    fn send(&mut self, bytes: &[u8]) {
        self.peer.send(bytes);
    }

    fn shut_down(&mut self) {
        self.peer.shutdown_write();
    }

    fn look(&mut self) {
        self.received.extend(self.peer.take());
    }

    fn received(&self) -> &[u8] {
        &self.received
    }

    fn end(&self) -> Option<End> {
        self.peer.end()
    }
}
