//! The lengths of the reads of a cold file, on a simulated disk, and the pages that they leave in the page cache.
//! Short reads come first where the kernel reads ahead.

use core::ops::Range;
use core::time::Duration;
use std::rc::Rc;
use std::sync::Arc;

use ring::sim::{Config, Peer, World};
use ring::{Event, Op, OpenHow, Ring, Token};
use sendfile::{
    Caching, Disk, DiskConfig, File, KernelTcp, Owner, PageCache, Policy, Progress, Stream, Window,
};

const DISK: Token = 1 << 40;
const OTHER_DISK: Token = 2 << 56;
const RECV: Token = 1;
const WRITABLE: Token = 2;
const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;

struct Setup {
    world: World,
    ring: Ring,
    disk: Disk,
    /// The disk of another worker.
    other: Disk,
    transport: KernelTcp,
    _peer: Peer,
}

fn next(ring: &mut Ring) -> Event {
    let mut completions = Vec::new();
    while completions.is_empty() {
        ring.wait(None, &mut completions).unwrap();
    }
    completions.remove(0).result.unwrap()
}

impl Setup {
    /// A disk whose reads take `read` each, and a peer that receives everything.
    fn new(read: Duration) -> Self {
        let send_buffer = 64 << 20;
        let world = World::new(Config { disk: read..=read, send_buffer, ..Config::new(1) });
        let mut ring = Ring::simulated(&world);
        let listener = ring.sim_listener(&world);
        let accept = ring.submit(Op::Accept(listener), 0);
        let peer = world.connect();
        let Event::Accepted(socket) = next(&mut ring) else { panic!("a connection") };
        ring.cancel(accept);
        let mut completions = Vec::new();
        ring.wait(Some(ring.now() + Duration::from_secs(1)), &mut completions).unwrap();
        let page_cache = Arc::new(PageCache::default());
        let [disk, other] = [DISK, OTHER_DISK].map(|token_base| {
            let config = DiskConfig { token_base, ..DiskConfig::default() };
            Disk::sharing(config, Arc::clone(&page_cache), Arc::default()).unwrap()
        });
        let transport = KernelTcp::new(socket, RECV, WRITABLE);
        Self { world, ring, disk, other, transport, _peer: peer }
    }

    /// From now on the other worker sends.
    const fn change_worker(&mut self) {
        core::mem::swap(&mut self.disk, &mut self.other);
    }

    /// A cold file.
    fn file(&mut self, len: u64) -> Rc<File> {
        self.world.write_file("file", &vec![7; usize::try_from(len).unwrap()]);
        self.world.evict_all();
        self.open()
    }

    fn open(&mut self) -> Rc<File> {
        let dir = Some(self.ring.sim_root(&self.world));
        self.ring.submit(Op::Open { dir, path: c"file".into(), how: OpenHow::BENEATH }, 0);
        let Event::Opened(fd) = next(&mut self.ring) else { panic!("a file") };
        self.ring.submit(Op::Stat(fd.clone()), 0);
        let Event::Stat(stat) = next(&mut self.ring) else { panic!("its size") };
        Rc::new(File::new(fd, &stat))
    }

    /// Sends a cold file of `len` bytes from `offset` on; returns the bytes that each pump began to read.
    fn send(&mut self, len: u64, offset: u64) -> Vec<u64> {
        let file = self.file(len);
        self.send_file(&file, offset..len)
    }

    fn send_file(&mut self, file: &Rc<File>, range: Range<u64>) -> Vec<u64> {
        self.send_with(file, range, Policy::default())
    }

    fn send_with(&mut self, file: &Rc<File>, range: Range<u64>, policy: Policy) -> Vec<u64> {
        let mut stream = Stream::new();
        stream.push_file(file, range, policy);
        let mut reads = Vec::new();
        let Self { ring, disk, other, transport, .. } = self;
        loop {
            let before = stream.reading();
            let progress = stream.pump(ring, disk, transport, Owner::of(7));
            if stream.reading() > before {
                reads.push(stream.reading() - before);
            }
            match progress {
                Progress::Waiting => {}
                Progress::More => continue,
                end => {
                    assert_eq!(end, Progress::Drained);
                    return reads;
                }
            }
            let mut completions = Vec::new();
            ring.wait(None, &mut completions).unwrap();
            for completion in completions {
                if disk.owns(completion.token) {
                    if let Some(done) = disk.handle(ring, completion) {
                        stream.handle_read(done);
                    }
                } else if other.owns(completion.token) {
                    assert!(other.handle(ring, completion).is_none());
                }
            }
        }
    }
}

/// Everything is read without filling the page cache.
const NEVER: Policy = Policy { caching: Caching::Never, window: Window::of(2 * MIB) };

impl Setup {
    fn pass(&mut self, time: Duration) {
        let until = self.ring.now() + time;
        let mut completions = Vec::new();
        while self.ring.now() < until {
            self.ring.wait(Some(until), &mut completions).unwrap();
            for completion in completions.drain(..) {
                let is_mine = self.disk.owns(completion.token);
                let disk = if is_mine { &mut self.disk } else { &mut self.other };
                assert!(disk.handle(&mut self.ring, completion).is_none());
            }
        }
    }

    fn cached_blocks(&self, file: &File) -> u64 {
        self.ring.cached_pages(file.fd(), 0, file.size()).unwrap() / 64
    }
}

#[test]
fn a_stream_that_is_not_to_fill_the_page_cache_leaves_nothing_behind() {
    for range in [0..8 * MIB, 3 * MIB..8 * MIB, MIB..2 * MIB] {
        let mut setup = Setup::new(Duration::from_micros(100));
        let file = setup.file(8 * MIB);
        setup.send_with(&file, range.clone(), NEVER);
        assert!(setup.cached_blocks(&file) > 0, "{range:?}: packets may refer to it");
        setup.pass(Duration::from_secs(1));
        assert_eq!(setup.cached_blocks(&file), 0, "{range:?}");
    }
}

/// The kernel has read ahead of a stream whose peer goes away.
#[test]
fn a_stream_that_is_cut_leaves_nothing_behind() {
    let mut setup = Setup::new(Duration::from_micros(300));
    setup.world.configure(|config| config.readahead_pages = 2048);
    setup.send(128 * MIB, 0);
    let file = setup.file(16 * MIB);
    let mut stream = Stream::new();
    stream.push_file(&file, 0..16 * MIB, NEVER);
    while stream.sent() < MIB || stream.is_reading() {
        let Setup { ring, disk, transport, .. } = &mut setup;
        if stream.sent() < MIB {
            stream.pump(ring, disk, transport, Owner::of(7));
        }
        let mut completions = Vec::new();
        ring.wait(None, &mut completions).unwrap();
        for completion in completions {
            if let Some(done) = disk.handle(ring, completion) {
                stream.handle_read(done);
            }
        }
    }
    drop(stream);
    assert_eq!(setup.cached_blocks(&file), 64, "the kernel has read ahead");
    setup.pass(Duration::from_secs(1));
    assert_eq!(setup.cached_blocks(&file), 0);
}

#[test]
fn few_files_stay_open_for_their_pages_to_leave_the_page_cache() {
    let mut setup = Setup::new(Duration::from_micros(100));
    let config = DiskConfig { lingering_files: 3, token_base: DISK, ..DiskConfig::default() };
    setup.disk = Disk::new(config).unwrap();
    let mut files = Vec::new();
    for _ in 0..20 {
        let file = setup.file(MIB);
        setup.send_with(&file, 0..MIB, NEVER);
        files.push(Rc::downgrade(&file));
        drop(file);
        setup.pass(Duration::from_millis(1));
        let open = files.iter().filter(|file| file.strong_count() > 0).count();
        assert!(open <= 4, "{open} files are open");
    }
    setup.pass(Duration::from_secs(1));
    assert!(files.iter().all(|file| file.strong_count() == 0));
}

#[test]
fn what_others_have_brought_stays() {
    let mut setup = Setup::new(Duration::from_micros(100));
    let file = setup.file(8 * MIB);
    setup.send_file(&file, 2 * MIB..3 * MIB);
    let before = setup.cached_blocks(&file);
    setup.send_with(&file, 0..8 * MIB, NEVER);
    setup.pass(Duration::from_secs(1));
    assert_eq!(setup.cached_blocks(&file), before);
    // Another stream wants the pages of a stream before they are dropped.
    let file = setup.file(8 * MIB);
    setup.send_with(&file, 0..8 * MIB, NEVER);
    setup.send_with(&file, 7 * MIB..8 * MIB, Policy { caching: Caching::Always, ..NEVER });
    setup.pass(Duration::from_secs(1));
    assert_eq!(setup.cached_blocks(&file), 32);
}

#[test]
fn what_a_stream_of_another_worker_has_brought_stays() {
    let always = Policy { caching: Caching::Always, ..NEVER };
    for (other, stays) in [(always, 32), (NEVER, 0)] {
        let mut setup = Setup::new(Duration::from_micros(100));
        let mine = setup.file(8 * MIB);
        setup.send_with(&mine, 0..8 * MIB, NEVER);
        setup.change_worker();
        let theirs = setup.open();
        setup.send_with(&theirs, 7 * MIB..8 * MIB, other);
        setup.pass(Duration::from_mins(2));
        assert_eq!(setup.cached_blocks(&theirs), stays, "{other:?}");
    }
}

/// A discard after the end of a stream reaches further than the stream has read.
#[test]
fn what_another_worker_has_brought_behind_the_end_of_a_stream_stays() {
    let mut setup = Setup::new(Duration::from_micros(100));
    let mine = setup.file(8 * MIB);
    setup.send_with(&mine, 0..MIB, NEVER);
    drop(mine);
    setup.change_worker();
    let theirs = setup.open();
    setup.send_with(&theirs, 6 * MIB..8 * MIB, Policy { caching: Caching::Always, ..NEVER });
    let brought = setup.ring.cached_pages(theirs.fd(), 6 * MIB, 2 * MIB).unwrap();
    setup.pass(Duration::from_mins(2));
    assert_eq!(setup.ring.cached_pages(theirs.fd(), 6 * MIB, 2 * MIB).unwrap(), brought);
    assert_eq!(brought, 512);
}

/// Four pages of each block are cached, as after a discard while packets referred to them.
#[test]
fn a_look_at_a_block_that_is_partly_cached_brings_nothing() {
    let mut setup = Setup::new(Duration::from_micros(100));
    let file = setup.file(2 * MIB);
    setup.send_file(&file, 0..2 * MIB);
    for block in 0..8 {
        let start = block * 256 * KIB;
        setup.world.evict_range("file", start..start + 80 * KIB);
        setup.world.evict_range("file", start + 96 * KIB..start + 256 * KIB);
    }
    let cached = |setup: &Setup| setup.ring.cached_pages(file.fd(), 0, file.size()).unwrap();
    assert_eq!(cached(&setup), 8 * 4);
    // Pages that have just been found resident are believed for a moment.
    setup.pass(Duration::from_secs(1));
    setup.send_with(&file, 0..2 * MIB, NEVER);
    setup.pass(Duration::from_secs(1));
    assert_eq!(cached(&setup), 8 * 4);
}

#[test]
fn where_the_kernel_reads_ahead_the_first_read_is_short() {
    // This makes its pace known after 50 ms.
    let mut fast = Setup::new(Duration::from_micros(300));
    fast.send(128 * MIB, 0);
    for offset in [0, 100 * KIB, 4 * MIB] {
        let reads = fast.send(8 * MIB, offset);
        assert_eq!(reads[0], 4 * KIB, "from {offset} on");
        assert!(reads[1..4].iter().any(|read| *read >= MIB), "from {offset} on: {reads:?}");
    }
}

/// The kernel's readahead is begun before the stream comes to its end, unless its extent cannot be known.
#[test]
fn a_stream_alone_on_a_quick_disk_does_not_wait_for_the_end_of_each_window_of_the_readahead() {
    let took = |cachestat_errno| {
        let mut fast = Setup::new(Duration::from_micros(300));
        fast.world.configure(|config| config.readahead_pages = 2048);
        fast.send(128 * MIB, 0);
        fast.world.configure(|config| config.cachestat_errno = cachestat_errno);
        let began = fast.ring.now();
        fast.send(128 * MIB, 0);
        fast.ring.now().since(began)
    };
    let (known, unknown) = (took(None), took(Some(1)));
    assert!(known < unknown / 2, "{known:?}, {unknown:?}");
}

/// Readahead that has begun does not end before the file does.
#[test]
fn nothing_is_read_ahead_before_a_disk_has_shown_that_it_is_fast() {
    let mut slow = Setup::new(Duration::from_millis(60));
    let reads = slow.send(32 * MIB, 0);
    assert!(reads.iter().all(|read| *read >= 256 * KIB), "{reads:?}");
    let mut fast = Setup::new(Duration::from_micros(300));
    let reads = fast.send(64 * MIB, 0);
    let short = reads.iter().position(|read| *read == 4 * KIB).expect("it has shown it");
    let before: u64 = reads[..short].iter().sum();
    assert!((16 * MIB..=20 * MIB).contains(&before), "{before}: {reads:?}");
}

#[test]
fn a_range_that_began_without_readahead_gets_a_short_read_when_the_disk_shows_that_it_is_fast() {
    // The disk shows that it is slow, then that it is fast.
    let mut disk = Setup::new(Duration::from_millis(60));
    disk.send(4 * MIB, 0);
    let quick = Duration::from_micros(1500);
    disk.world.configure(|config| config.disk = quick..=quick);
    let reads = disk.send(96 * MIB, 0);
    assert!(reads[0] >= 256 * KIB, "{reads:?}");
    let short = reads.iter().position(|read| *read == 4 * KIB).expect("it is fast again");
    assert!(reads[short + 1..].iter().all(|read| *read >= 64 * KIB), "{reads:?}");
}

#[test]
fn a_slow_disk_and_a_short_range_are_read_without_a_short_read() {
    let mut slow = Setup::new(Duration::from_millis(60));
    slow.send(16 * MIB, 0);
    assert_eq!(slow.send(8 * MIB, 0)[0], MIB, "half of the window at once");
    let mut fast = Setup::new(Duration::from_micros(100));
    assert_eq!(fast.send(8 * MIB, 8 * MIB - 300 * KIB)[..], [300 * KIB]);
}

/// Every fourth block of a file is missing, and the disk is slow.
#[test]
fn of_a_file_that_is_partly_there_only_what_is_missing_is_read_and_all_of_a_window_at_once() {
    let read = Duration::from_millis(60);
    let mut slow = Setup::new(read);
    slow.send(4 * MIB, 0);
    let file = slow.file(8 * MIB);
    slow.send_file(&file, 0..8 * MIB);
    assert_eq!(file.resident(&slow.ring, 0, 8 * MIB, slow.ring.now(), true), 8 * MIB);
    for block in (0..32).step_by(4) {
        let start = block * 256 * KIB;
        slow.world.evict_range("file", start..start + 256 * KIB);
    }
    let began = slow.ring.now();
    let reads = slow.send_file(&file, 0..8 * MIB);
    assert_eq!(reads.iter().sum::<u64>(), 8 * 256 * KIB, "{reads:?}");
    // The wait for the first hole is for the disk alone; then each window of 2 MiB has two.
    let took = slow.ring.now().since(began);
    assert!(took < read * 6, "{took:?}, {reads:?}");
}
