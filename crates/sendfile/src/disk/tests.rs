use core::ffi::CStr;

use ring::OpenHow;
use ring::sim::{Config, World};

use super::*;
use crate::policy::Policy;
use crate::stream_queue::Wait;

/// Waits for the next completion.
fn next(ring: &mut Ring) -> Completion {
    let mut completions = Vec::new();
    while completions.is_empty() {
        ring.wait(None, &mut completions).unwrap();
    }
    assert_eq!(completions.len(), 1);
    completions.remove(0)
}

fn open(world: &World, ring: &mut Ring) -> Rc<File> {
    open_at(world, ring, c"f")
}

fn open_at(world: &World, ring: &mut Ring, path: &CStr) -> Rc<File> {
    let dir = Some(ring.sim_root(world));
    ring.submit(Op::Open { dir, path: path.into(), how: OpenHow::BENEATH }, KEYS);
    let Ok(Event::Opened(fd)) = next(ring).result else { unreachable!("it exists") };
    ring.submit(Op::Stat(fd.clone()), KEYS);
    let Ok(Event::Stat(stat)) = next(ring).result else { unreachable!("it exists") };
    Rc::new(File::new(fd, &stat))
}

#[test]
fn streams_that_go_on_wait_for_the_pace_and_first_reads_do_not() {
    let world = World::new(Config::new(1));
    world.write_file("f", &vec![7; 16 << 20]);
    let mut ring = Ring::simulated(&world);
    let file = open(&world, &mut ring);
    let mut disk = Disk::new(DiskConfig::default()).unwrap();
    let read = |disk: &mut Disk, ring: &mut Ring, name, wait| {
        let (owner, offset) = (Owner::of(name), name * BLOCK);
        let request = ReadRequest {
            owner,
            at: offset,
            file: &file,
            offset,
            len: BLOCK,
            policy: Policy::default(),
            wait,
            readahead: Readahead::Off,
            takes: Takes::Memory,
            window: u64::MAX,
            turn: Time::default(),
            trail: None,
            is_urgent: true,
        };
        let begun = disk.read(ring, request);
        if begun.is_none() {
            disk.wait_in_line(ring, owner, &file, wait);
        }
        begun.is_some()
    };
    let begun: Vec<_> = (0..5).map(|name| read(&mut disk, &mut ring, name, Wait::Next)).collect();
    assert_eq!(begun, [true, true, true, false, false]);
    assert!(!disk.has_next_waiting(), "its pace has no room for a chunk");
    assert!(read(&mut disk, &mut ring, 10, Wait::First));
    let mut ended = 0;
    while disk.next_waiting().is_none() {
        let completion = next(&mut ring);
        assert!(disk.handle(&mut ring, completion).is_some());
        ended += 1;
    }
    assert!((1..=3).contains(&ended), "{ended}");
}

#[test]
fn copies_come_in_turn_when_memory_is_short_or_others_wait() {
    let world = World::new(Config::new(1));
    world.write_file("f", &vec![7; 1 << 20]);
    let mut ring = Ring::simulated(&world);
    let file = open(&world, &mut ring);
    // Four buffers.
    let mut disk = Disk::new(DiskConfig { memory_bytes: 0, ..DiskConfig::default() }).unwrap();
    ring.submit(Op::Timer(ring.now() + 2 * STREAM_TURN_MAX), KEYS);
    next(&mut ring);
    let (old, new) = (Time::default(), ring.now());
    let (one, other) = (Owner::of(1), Owner::of(2));
    let copy = |disk: &mut Disk, owner, mut turn, is_urgent| {
        let (file, range, turn) = (&*file, 100..60_100, &mut turn);
        let request = CopyRequest { owner, file, range, look: true, turn, is_urgent };
        let copied = disk.copy(&ring, request)?;
        assert_eq!(copied[..], [7; 60_000]);
        Some((copied, *turn))
    };
    assert!(copy(&mut disk, one, old, false).is_some());
    let lent: Vec<_> = (0..3).map(|_| disk.pool.take(1).unwrap()).collect();
    assert!(copy(&mut disk, one, new, false).is_none(), "the last buffer is for the next bytes");
    assert_eq!(copy(&mut disk, one, old, true).map(|(_, turn)| turn), Some(new));
    drop(lent);

    let mut ring = Ring::simulated(&world);
    disk.wait_in_line(&mut ring, other, &file, Wait::First);
    assert!(copy(&mut disk, one, old, true).is_none(), "another one waits");
    assert!(copy(&mut disk, one, new, false).is_none());
    assert!(copy(&mut disk, one, new, true).is_some(), "it has its turn");
    assert_eq!(disk.next_waiting(), Some(other));
    assert!(copy(&mut disk, other, old, true).is_some());
    let hits = disk.stats().hits;
    world.evict_all();
    assert!(copy(&mut disk, one, new, true).is_none(), "it is missing");
    assert_eq!((hits, disk.stats().hits, disk.buffers_lent()), (4, 4, 0));
}

/// A disk, and what became of its reads that have ended.
struct Worker {
    ring: Ring,
    disk: Disk,
    file: Rc<File>,
}

impl Worker {
    /// Asks for a block; returns whether that fails at once.
    fn fails(&mut self, block: u64) -> bool {
        let request = ReadRequest {
            owner: Owner::of(1),
            at: block * BLOCK,
            file: &self.file,
            offset: block * BLOCK,
            len: BLOCK,
            policy: Policy::default(),
            wait: Wait::First,
            readahead: Readahead::Off,
            takes: Takes::Memory,
            window: u64::MAX,
            turn: Time::default(),
            trail: None,
            is_urgent: true,
        };
        self.disk.read(&mut self.ring, request).expect("there is room");
        self.disk.next_late().is_some()
    }

    fn would_fail(&mut self, block: u64) -> bool {
        self.would_fail_if(Tries::InTurn, block)
    }

    fn would_fail_if(&mut self, tries: Tries, block: u64) -> bool {
        let range = block * BLOCK..self.file.size();
        self.disk.may_refuse() && self.disk.would_fail(&mut self.ring, &self.file, &range, tries)
    }

    /// Waits until then, and takes what ends; returns the news.
    fn pass(&mut self, until: Time) -> Vec<Silence> {
        self.ring.submit(Op::Timer(until), KEYS);
        let mut completions = Vec::new();
        while self.ring.now() < until {
            self.ring.wait(None, &mut completions).unwrap();
            for completion in completions.drain(..) {
                if self.disk.owns(completion.token) {
                    self.disk.handle(&mut self.ring, completion);
                    while self.disk.next_late().is_some() {}
                }
            }
        }
        core::iter::from_fn(|| self.disk.next_silence()).collect()
    }
}

#[test]
fn disks_try_a_device_together_whose_reads_do_not_end() {
    const PATIENCE: Duration = Duration::from_secs(30);
    let world = World::new(Config::new(1));
    let device = world.make_device("slow");
    world.write_file("f", &vec![7; 16 << 20]);
    world.write_file("slow/f", &vec![7; 16 << 20]);
    let devices = Arc::new(Devices::default());
    let mut workers: Vec<_> = (0..2)
        .map(|_| {
            let mut ring = Ring::simulated(&world);
            let file = open_at(&world, &mut ring, c"slow/f");
            let config = DiskConfig { patience: Some(PATIENCE), ..DiskConfig::default() };
            let disk = Disk::sharing(config, Arc::default(), Arc::clone(&devices)).unwrap();
            Worker { ring, disk, file }
        })
        .collect();
    let [one, other] = &mut workers[..] else { unreachable!("there are two") };
    world.evict("slow/f");
    let start = one.ring.now();
    let at = |seconds| start + Duration::from_secs(seconds);
    assert!(!one.fails(0));
    assert_eq!(one.pass(at(1)), []);
    let silent = one.file.device();
    world.hang(device);
    assert!(!one.fails(1));
    assert_eq!(one.pass(at(30)), []);
    assert!(!one.would_fail(2) && !other.would_fail(2));
    assert_eq!(one.pass(at(32)), [Silence::Begun(silent)]);
    // In each such time one read of all disks tries it.
    assert!(!other.would_fail(2) && !other.fails(2));
    for _ in 0..3 {
        for worker in [&mut *one, &mut *other] {
            assert!(worker.would_fail(3) && worker.fails(3));
        }
    }
    // The first bytes of the response are resident.
    assert!(!other.would_fail(0));
    assert_eq!(other.pass(at(61)), []);
    assert!(one.would_fail(3));
    assert_eq!(other.pass(at(63)), [], "one has told it");
    assert!(one.would_fail_if(Tries::Never, 3));
    assert!(!one.would_fail_if(Tries::Never, 0));
    assert!(!one.would_fail(3) && !one.fails(3));
    assert!(other.would_fail(3));
    // The first read that ends shows it to all.
    world.release(device);
    assert_eq!(one.pass(at(64)), [Silence::Ended(silent)]);
    assert!(!one.would_fail(4) && !one.fails(4));
    assert_eq!(other.pass(at(65)), []);
    assert!(!other.disk.may_refuse() && !other.fails(5));
}

#[test]
fn a_stream_in_line_reads_when_the_pause_of_its_device_ends() {
    let world = World::new(Config::new(1));
    world.write_file("f", &vec![7; 1 << 20]);
    let mut ring = Ring::simulated(&world);
    let file = open(&world, &mut ring);
    let mut disk = Disk::new(DiskConfig::default()).unwrap();
    // A limit of 32 blocks in each second, which comes in slices.
    let device = file.device();
    let start = ring.now();
    let at = |ms| start + Duration::from_millis(ms);
    for slice in 0..20 {
        for read in 0..8 {
            let ms = slice * 250 + read;
            disk.devices.begin(device, BLOCK, Wait::Next, false, at(ms));
            disk.devices.begin(device, BLOCK, Wait::First, false, at(ms));
            let took = if read == 0 { 240 } else { 1 };
            disk.devices.end(device, BLOCK, Duration::from_millis(took), false, at(ms));
        }
    }
    let now = at(5_000);
    (0..32).for_each(|_| disk.devices.begin(device, BLOCK, Wait::Next, false, now));
    ring.submit(Op::Timer(now), KEYS);
    next(&mut ring);
    disk.now = ring.now();
    let opens_at = disk.devices.opens_at(device, disk.now).expect("it is spaced");
    disk.wait_in_line(&mut ring, Owner::of(1), &file, Wait::Next);
    assert_eq!(disk.next_waiting(), None);
    let completion = next(&mut ring);
    assert!(disk.handle(&mut ring, completion).is_none() && ring.now() >= opens_at);
    assert_eq!(disk.next_waiting(), Some(Owner::of(1)));
}
