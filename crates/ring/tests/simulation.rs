//! The additions of the simulated world to the contract: faults, stalls, deadlocks, and the same run
//! twice.

use core::num::NonZeroU64;
use core::time::Duration;
use std::collections::VecDeque;
use std::io::{ErrorKind, IoSlice};

use ring::sim::{Config, End, MissingPage, World};
use ring::{BufferPool, Caching, Completion, Device, Event, Fd, Op, OpenHow, PipePool, Ring};

fn run(ring: &mut Ring, time: Duration) -> Vec<Completion> {
    let until = ring.now() + time;
    let (mut all, mut some) = (Vec::new(), Vec::new());
    while ring.now() < until {
        ring.wait(Some(until), &mut some).unwrap();
        all.append(&mut some);
    }
    all
}

fn open(ring: &mut Ring, path: &str) -> Fd {
    let path = std::ffi::CString::new(path).unwrap();
    ring.submit(Op::Open { dir: None, path, how: OpenHow::BENEATH }, 0);
    match run(ring, Duration::from_millis(1)).pop().unwrap().result.unwrap() {
        Event::Opened(fd) => fd,
        other => panic!("{other:?}"),
    }
}

/// A connection of the server below.
struct Conn {
    socket: Fd,
    unsent: VecDeque<u8>,
    full: bool,
    ended: bool,
}

/// Echo what five peers send; how it went, in words.
fn echo(config: Config) -> String {
    let world = World::new(config);
    let mut ring = Ring::simulated(&world);
    let listener = ring.sim_listener(&world);
    ring.submit(Op::Accept(listener.clone()), 0);
    let peers: Vec<_> = (0..5).map(|_| world.connect()).collect();
    let bytes: Vec<u8> = (0..50_000_u32).map(|at| u8::try_from(at % 251).unwrap()).collect();
    for (nth, peer) in peers.iter().enumerate() {
        for piece in bytes.chunks(7000) {
            peer.send(piece);
        }
        peer.shutdown_write();
        if nth == 0 {
            peer.set_read_rate(Some(100_000));
        }
    }
    let mut conns: Vec<Option<Conn>> = vec![None];
    let mut trace = String::new();
    let mut completions = Vec::new();
    while peers.iter().any(|peer| peer.end().is_none()) {
        ring.wait(Some(ring.now() + Duration::from_secs(5)), &mut completions).unwrap();
        for completion in completions.drain(..) {
            trace += &format!("{:?} {completion:?}\n", ring.now());
            let token = usize::try_from(completion.token).unwrap();
            if token == 0 {
                match completion.result {
                    Ok(Event::Accepted(socket)) => {
                        let next = conns.len() as u64;
                        ring.submit(Op::Recv(socket.clone()), next);
                        let unsent = VecDeque::new();
                        conns.push(Some(Conn { socket, unsent, full: false, ended: false }));
                    }
                    _ => drop(ring.submit(Op::Accept(listener.clone()), 0)),
                }
                continue;
            }
            let Some(conn) = &mut conns[token] else { continue };
            match completion.result.unwrap() {
                Event::Received(buf) => conn.unsent.extend(buf.iter()),
                Event::Eof => conn.ended = true,
                Event::Writable => conn.full = false,
                other => panic!("{other:?}"),
            }
            while !conn.full && !conn.unsent.is_empty() {
                match ring.send(&conn.socket, &[IoSlice::new(conn.unsent.as_slices().0)], false) {
                    Ok(count) => drop(conn.unsent.drain(..count)),
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::WouldBlock);
                        conn.full = true;
                        ring.submit(Op::Writable(conn.socket.clone()), completion.token);
                    }
                }
            }
            if conn.ended && conn.unsent.is_empty() {
                conns[token] = None;
            }
        }
    }
    for peer in &peers {
        assert_eq!(peer.end(), Some(End::Eof));
        assert!(peer.received() == bytes);
    }
    drop(conns);
    run(&mut ring, Duration::from_secs(1));
    assert_eq!(world.open_descriptors(), 1, "the listener");
    trace
}

#[test]
fn an_echo_server_survives_a_nasty_world() {
    for seed in 0..200 {
        eprintln!("seed {seed}");
        echo(Config::nasty(seed));
    }
}

#[test]
fn the_same_seed_is_the_same_run() {
    for seed in 0..5 {
        assert!(echo(Config::nasty(seed)) == echo(Config::nasty(seed)));
        assert!(echo(Config::nasty(seed)) != echo(Config::nasty(seed + 100)));
    }
}

#[test]
fn a_wait_without_end_is_an_error() {
    let world = World::new(Config::new(1));
    let mut ring = Ring::simulated(&world);
    let listener = ring.sim_listener(&world);
    ring.submit(Op::Accept(listener), 0);
    let mut completions = Vec::new();
    // The first look at the listener is something that happens.
    let error = loop {
        match ring.wait(None, &mut completions) {
            Ok(()) => assert!(completions.is_empty()),
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::Deadlock);
}

#[test]
fn sending_what_is_not_there_is_a_stall() {
    let world = World::new(Config::new(1));
    world.write_file("file", &[1; 20_000]);
    let mut ring = Ring::simulated(&world);
    let file = open(&mut ring, "file");
    ring.no_readahead(&file);
    let listener = ring.sim_listener(&world);
    ring.submit(Op::Accept(listener), 0);
    let peer = world.connect();
    let Some(Ok(Event::Accepted(socket))) =
        run(&mut ring, Duration::from_millis(1)).pop().map(|one| one.result)
    else {
        panic!("a connection")
    };
    assert_eq!(ring.sendfile(&socket, &file, 0, 10_000).unwrap(), 10_000);
    assert_eq!(world.stalls(), []);
    world.evict("file");
    let before = ring.now();
    assert_eq!(ring.sendfile(&socket, &file, 10_000, 1 << 20).unwrap(), 10_000);
    let [stall] = &world.stalls()[..] else { panic!("one stall") };
    assert_eq!((&stall.file[..], stall.offset, stall.at), ("file", 10_000, before));
    let missing = |number| MissingPage { number, reclaimed: None };
    assert_eq!(stall.missing, [2, 3, 4].map(missing));
    assert!(ring.now() > before, "the worker slept");
    run(&mut ring, Duration::from_secs(1));
    assert_eq!(peer.take(), [1; 20_000]);
}

#[test]
fn a_stall_says_which_pages_the_kernel_reclaimed_in_the_midst_of_a_turn() {
    let world = World::new(Config::new(1));
    world.write_file("file", &[1; 4096]);
    let mut ring = Ring::simulated(&world);
    let file = open(&mut ring, "file");
    let listener = ring.sim_listener(&world);
    ring.submit(Op::Accept(listener), 0);
    let _peer = world.connect();
    let Some(Ok(Event::Accepted(socket))) =
        run(&mut ring, Duration::from_millis(1)).pop().map(|one| one.result)
    else {
        panic!("a connection")
    };
    assert_eq!(ring.probe(&file, 0, 4096).unwrap(), 4096);
    world.configure(|config| config.faults.eviction = 1.0);
    let reclaimed = Some(ring.now());
    ring.sendfile(&socket, &file, 0, 4096).unwrap();
    assert_eq!(world.stalls()[0].missing, [MissingPage { number: 0, reclaimed }]);
    assert_eq!((world.counts().reclaims, world.counts().evictions), (1, 0));
}

#[test]
fn pages_on_their_way_count_as_cached_but_are_not_there() {
    let world = World::new(Config::new(3));
    world.write_file("file", &[1; 64 * 4096]);
    world.evict_all();
    let mut ring = Ring::simulated(&world);
    let file = open(&mut ring, "file");
    let pool = BufferPool::new(4096, 1).unwrap();
    let buf = pool.take(4096).unwrap();
    ring.submit(Op::Read { file: file.clone(), offset: 0, buf, caching: Caching::Keep }, 0);
    // One page was asked for; 32 more are the kernel's readahead.
    assert_eq!(ring.cached_pages(&file, 0, 64 * 4096).unwrap(), 33);
    assert_eq!(ring.probe(&file, 0, 4096).unwrap_err().kind(), ErrorKind::WouldBlock);
    run(&mut ring, Duration::from_secs(1));
    assert_eq!(ring.probe(&file, 0, 64 * 4096).unwrap(), 33 * 4096);
}

/// A page is evicted while its read and others are under way, and another program begins to read it.
#[test]
fn a_read_ends_when_all_its_pages_are_there_even_those_that_another_brings() {
    for seed in 0..20 {
        let world = World::new(Config::new(seed));
        world.write_file("file", &[1; 8192]);
        world.evict("file");
        let mut ring = Ring::simulated(&world);
        let file = open(&mut ring, "file");
        ring.probe(&file, 4096, 1).unwrap_err();
        run(&mut ring, Duration::from_secs(1));
        let pool = BufferPool::new(8192, 1).unwrap();
        let buf = pool.take(8192).unwrap();
        ring.submit(Op::Read { file: file.clone(), offset: 0, buf, caching: Caching::Keep }, 0);
        world.evict("file");
        ring.probe(&file, 4096, 1).unwrap_err();
        let mut completions = Vec::new();
        ring.wait(None, &mut completions).unwrap();
        assert_eq!(completions.len(), 1);
        assert_eq!(ring.probe(&file, 0, 8192).unwrap(), 8192, "seed {seed}");
    }
}

#[test]
fn dropped_pages_do_not_stay() {
    let world = World::new(Config::new(4));
    world.write_file("file", &[1; 8192]);
    world.evict("file");
    let mut ring = Ring::simulated(&world);
    let file = open(&mut ring, "file");
    ring.no_readahead(&file);
    let pool = BufferPool::new(8192, 1).unwrap();
    let buf = pool.take(8192).unwrap();
    ring.submit(Op::Read { file: file.clone(), offset: 0, buf, caching: Caching::Drop }, 0);
    assert_eq!(run(&mut ring, Duration::from_secs(1)).len(), 1);
    assert_eq!(ring.cached_pages(&file, 0, 8192).unwrap(), 0);
    world.configure(|config| config.can_drop = false);
    let buf = pool.take(8192).unwrap();
    ring.submit(Op::Read { file, offset: 0, buf, caching: Caching::Drop }, 0);
    let error = run(&mut ring, Duration::from_secs(1)).pop().unwrap().result.unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EOPNOTSUPP));
}

#[test]
fn reads_in_a_nasty_world_bring_the_right_bytes_or_an_error() {
    let bytes: Vec<u8> = (0..100_000_u32).map(|at| u8::try_from(at % 251).unwrap()).collect();
    let (mut errors, mut shorts) = (0, 0);
    for seed in 0..50 {
        let world = World::new(Config::nasty(seed));
        world.write_file("file", &bytes);
        let mut ring = Ring::simulated(&world);
        let file = open(&mut ring, "file");
        let pool = BufferPool::new(16 * 1024, 8).unwrap();
        for _ in 0..10 {
            world.evict("file");
            for at in 0..6_u64 {
                let offset = at * 16 * 1024;
                let buf = pool.take(16 * 1024).unwrap();
                let read = Op::Read { file: file.clone(), offset, buf, caching: Caching::Keep };
                let key = ring.submit(read, offset);
                if at == 5 {
                    ring.cancel(key);
                }
            }
            for completion in run(&mut ring, Duration::from_secs(1)) {
                let at = usize::try_from(completion.token).unwrap();
                match completion.result {
                    Ok(Event::Read(buf)) => {
                        assert!(!buf.is_empty() && bytes[at..].starts_with(&buf));
                        shorts += usize::from(buf.len() < 16 * 1024);
                    }
                    Ok(other) => panic!("{other:?}"),
                    Err(error) => {
                        assert!(matches!(error.raw_os_error(), Some(libc::EIO | libc::ECANCELED)));
                        errors += 1;
                    }
                }
            }
            assert_eq!(pool.available(), pool.count());
        }
    }
    assert!(errors > 0 && shorts > 0);
}

#[test]
fn too_many_changes_are_one_unknown_change() {
    let world = World::new(Config::new(9));
    world.configure(|config| config.watch_queue = 8);
    let mut ring = Ring::simulated(&world);
    let root = ring.sim_root(&world);
    ring.submit(Op::Watch { root, path: c"".into() }, 0);
    assert!(matches!(
        run(&mut ring, Duration::from_millis(1))[..],
        [Completion { result: Ok(Event::Watching { .. }), .. }]
    ));
    for index in 0..9 {
        world.write_file(&format!("file{index}"), b"");
    }
    let changes = run(&mut ring, Duration::from_secs(1));
    let unknown = |one: &Completion| matches!(&one.result, Ok(Event::Changed(change)) if change.name.is_none());
    assert!(changes.iter().any(unknown));
    world.configure(|config| config.file_system = 0x6969);
    let root = ring.sim_root(&world);
    ring.submit(Op::Watch { root, path: c"".into() }, 0);
    let error = run(&mut ring, Duration::from_secs(1)).pop().unwrap().result.unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EOPNOTSUPP), "NFS: changes elsewhere are not seen");
}

#[test]
fn a_device_that_hangs_keeps_its_operations_and_no_others() {
    for seed in 0..50 {
        let world = World::new(Config::new(seed));
        let device = world.make_device("slow");
        for name in ["slow/cached", "slow/cold", "fast"] {
            world.write_file(name, &[1; 8192]);
        }
        let mut ring = Ring::simulated(&world);
        let [cached, cold, fast] =
            ["slow/cached", "slow/cold", "fast"].map(|name| open(&mut ring, name));
        world.evict("slow/cold");
        world.evict("fast");
        world.hang(device);
        let pool = BufferPool::new(8192, 4).unwrap();
        let pipes = PipePool::new(1);
        let mut keys = Vec::new();
        for (token, file) in [&cached, &cold, &fast].into_iter().enumerate() {
            let (file, buf) = (file.clone(), pool.take(8192).unwrap());
            let read = Op::Read { file, offset: 0, buf, caching: Caching::Keep };
            keys.push(ring.submit(read, token as u64));
        }
        ring.submit(Op::Stat(cached.clone()), 3);
        let pipe = ring.take_pipe(&pipes, 0, 8192).unwrap();
        ring.submit(Op::Splice { file: cold.clone(), offset: 0, pipe }, 4);
        let tokens = |ring: &mut Ring, time| {
            let mut all: Vec<_> = run(ring, time).iter().map(|one| one.token).collect();
            all.sort_unstable();
            all
        };
        assert_eq!(tokens(&mut ring, Duration::from_secs(60)), [0, 2]);
        assert_eq!(ring.probe(&cold, 0, 1).unwrap_err().kind(), ErrorKind::WouldBlock);
        // An operation that sleeps in the kernel cannot be cancelled.
        ring.cancel(keys[1]);
        assert_eq!(tokens(&mut ring, Duration::from_secs(60)), []);
        assert_eq!(world.counts().hangs, 3);
        world.release(device);
        assert_eq!(tokens(&mut ring, Duration::from_secs(1)), [1, 3, 4]);
        assert_eq!(ring.probe(&cold, 0, 8192).unwrap(), 8192);
    }
}

#[test]
fn devices_that_hang_keep_few_of_ten_thousand_operations_in_the_kernel() {
    let world = World::new(Config::new(1));
    let devices = ["dead", "dying"].map(|name| world.make_device(name));
    let mut ring = Ring::simulated(&world);
    let files = ["dead/file", "dying/file", "healthy"].map(|name| {
        world.write_file(name, &[1; 100]);
        let file = open(&mut ring, name);
        // The file's device is known from here on.
        ring.submit(Op::Stat(file.clone()), 0);
        assert_eq!(run(&mut ring, Duration::from_millis(20)).len(), 1);
        file
    });
    devices.iter().for_each(|device| world.hang(*device));
    run(&mut ring, Duration::from_secs(2));
    for token in 0..10_000 {
        for file in &files {
            ring.submit(Op::Stat(file.clone()), token);
        }
    }
    assert_eq!(run(&mut ring, Duration::from_secs(60)).len(), 10_000, "those of the healthy file");
    assert_eq!(world.counts().hangs, 60, "a quarter of 120 places for each device");
    devices.iter().for_each(|device| world.release(*device));
    assert_eq!(run(&mut ring, Duration::from_secs(60)).len(), 20_000);
}

#[test]
fn subvolumes_of_a_device_that_hangs_have_one_share_of_the_places() {
    let world = World::new(Config::new(1));
    let device = world.make_device("disk");
    let names = ["disk/one", "disk/two", "disk/three", "disk/four"];
    names.iter().for_each(|name| world.make_subvolume(name, device));
    let mut ring = Ring::simulated(&world);
    let files = names.map(|name| {
        let name = format!("{name}/file");
        world.write_file(&name, &[1; 100]);
        let file = open(&mut ring, &name);
        ring.submit(Op::Stat(file.clone()), 0);
        let found = run(&mut ring, Duration::from_millis(20)).pop().unwrap().result;
        let Ok(Event::Stat(stat)) = found else { panic!("{found:?}") };
        assert_ne!(stat.dev, device, "a number of its own");
        assert_eq!((stat.device, file.device()), (Device::of(device), Device::of(device)));
        file
    });
    world.hang(device);
    run(&mut ring, Duration::from_secs(2));
    for token in 0..1000 {
        for file in &files {
            ring.submit(Op::Stat(file.clone()), token);
        }
    }
    assert_eq!(run(&mut ring, Duration::from_secs(60)).len(), 0);
    assert_eq!(world.counts().hangs, 30, "a quarter of 120 places");
    world.release(device);
    assert_eq!(run(&mut ring, Duration::from_secs(60)).len(), 4000);
}

#[test]
fn a_corked_socket_holds_back_what_fills_no_packet() {
    let world = World::new(Config::new(1));
    let mut ring = Ring::simulated(&world);
    let listener = ring.sim_listener(&world);
    ring.submit(Op::Accept(listener), 0);
    let peer = world.connect();
    let Some(Ok(Event::Accepted(socket))) =
        run(&mut ring, Duration::from_millis(1)).pop().map(|one| one.result)
    else {
        panic!("a connection")
    };
    let send = |ring: &mut Ring, more| {
        ring.send(&socket, &[IoSlice::new(&[1; 2000])], more).unwrap();
        run(ring, Duration::from_millis(100));
        peer.take().len()
    };
    ring.cork(&socket, true);
    assert_eq!(send(&mut ring, false), 1448);
    ring.cork(&socket, false);
    run(&mut ring, Duration::from_millis(100));
    assert_eq!(peer.take().len(), 552);
    assert_eq!(send(&mut ring, true), 1448);
    run(&mut ring, Duration::from_millis(150));
    assert_eq!(peer.take().len(), 552, "held back for 200 ms at most");
    assert_eq!(send(&mut ring, false), 2000);
}

#[test]
fn a_rate_bounds_what_leaves() {
    let world = World::new(Config::new(1));
    let mut ring = Ring::simulated(&world);
    let listener = ring.sim_listener(&world);
    ring.submit(Op::Accept(listener), 0);
    let peer = world.connect();
    let Some(Ok(Event::Accepted(socket))) =
        run(&mut ring, Duration::from_millis(1)).pop().map(|one| one.result)
    else {
        panic!("a connection")
    };
    assert!(ring.set_rate(&socket, NonZeroU64::new(1_000_000)));
    ring.send(&socket, &[IoSlice::new(&[1; 30_000])], false).unwrap();
    run(&mut ring, Duration::from_millis(20));
    let taken = peer.take().len();
    assert!((18_000..=20_000).contains(&taken), "{taken} in 20 ms");
    // A peer may be slower, or have another rate next.
    peer.set_read_rate(Some(100_000));
    run(&mut ring, Duration::from_millis(20));
    let taken = peer.take().len();
    assert!(taken <= 3000, "{taken} in 20 ms");
    peer.set_read_rate(None);
    assert!(ring.set_rate(&socket, None));
    world.configure(|config| config.paces = false);
    assert!(!ring.set_rate(&socket, NonZeroU64::new(1)), "as with a Unix socket");
    run(&mut ring, Duration::from_millis(20));
    assert!(peer.take().len() >= 7000, "the rest at once");
}

/// Each way in which Linux says nothing, or less than one would like, of residency.
#[test]
fn residency_can_be_denied() {
    let world = World::new(Config::new(1));
    world.write_file("file", &[1; 8192]);
    let mut ring = Ring::simulated(&world);
    let file = open(&mut ring, "file");
    let mapping = ring.map(&file, 8192).unwrap();
    assert_eq!(mapping.resident(0, 8192).unwrap(), 8192);
    assert!(!ring.has_swap());
    world.configure(|config| {
        config.probe_errno = Some(libc::EOPNOTSUPP);
        config.cachestat_errno = Some(libc::EPERM);
        config.splice_errno = Some(libc::EINVAL);
        config.mincore_denied = true;
        config.swap = true;
    });
    assert_eq!(ring.probe(&file, 0, 1).unwrap_err().raw_os_error(), Some(libc::EOPNOTSUPP));
    assert_eq!(ring.cached_pages(&file, 0, 1).unwrap_err().raw_os_error(), Some(libc::EPERM));
    assert_eq!(mapping.resident(0, 1).unwrap_err().kind(), ErrorKind::PermissionDenied);
    assert!(ring.has_swap());
    let pipe = ring.take_pipe(&PipePool::new(1), 0, 8192).unwrap();
    ring.submit(Op::Splice { file, offset: 0, pipe }, 0);
    let error = run(&mut ring, Duration::from_secs(1)).pop().unwrap().result.unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
}

#[test]
fn two_rings_share_a_world() {
    let world = World::new(Config::new(5));
    let mut rings = [Ring::simulated(&world), Ring::simulated(&world)];
    for ring in &mut rings {
        let listener = ring.sim_listener(&world);
        ring.submit(Op::Accept(listener), 0);
    }
    let _peers: Vec<_> = (0..50).map(|_| world.connect()).collect();
    let counts = rings.each_mut().map(|ring| run(ring, Duration::from_millis(10)).len());
    assert_eq!(counts[0] + counts[1], 50);
    assert!(counts[0] > 0 && counts[1] > 0, "either listener gets some");
}
