//! A worker with two kinds of connections: some take ranges of files, and others memory only, as those that are
//! encrypted. Each is sent what it takes, of the same cached files.

use core::time::Duration;
use std::rc::Rc;

use config::Tuning;
use ring::sim::World;
use samum::network::Listeners;
use samum::worker::Worker;
use sendfile::KernelTcp;
use session::Http1;

use super::stage::{content, parse_whole};
use super::world::{Client, Make, Plain, config, for_seeds, parts, pass, run_until};

/// Files: one that all connections are sent from memory, one that only some are, and one that is never in memory.
const FILES: [(&str, usize); 3] =
    [("disk/small", 5_000), ("disk/middle", 100_000), ("disk/large", 700_000)];

struct Stage {
    world: World,
    worker: Worker<Http1, Listeners<Make<KernelTcp>>>,
    /// The device of the files.
    disk: u64,
    /// A connection of each of the two listeners, and the bytes of it that were looked at.
    clients: [(Plain, usize); 2],
}

/// Connections of the second listener send only from memory.
fn make(tcp: KernelTcp, listener: usize) -> KernelTcp {
    if listener == 1 { tcp.of_memory() } else { tcp }
}

impl Stage {
    fn new(seed: u64) -> Self {
        let world = World::new(config(seed));
        let disk = world.make_device("disk");
        for (path, len) in FILES {
            world.write_file(path, &content(len as u64, len));
        }
        world.evict_all();
        let mut parts = parts(&world, Tuning::default());
        parts.listeners.push(parts.ring.sim_listener(&world));
        let numbers: Vec<i32> = parts.listeners.iter().map(ring::Fd::raw).collect();
        let network = Listeners::with(parts.listeners.clone(), make as Make<KernelTcp>);
        let worker = Worker::over(parts, network.taking(None)).expect("memory");
        let clients = [0, 1].map(|listener| {
            let socket = Rc::new(world.connect_to(numbers[listener]));
            (Plain::new(socket, seed), 0)
        });
        Self { world, worker, disk, clients }
    }

    /// Asks for a file on one of the connections, and checks its bytes. Returns the number of calls of `sendfile`.
    fn ask(&mut self, client: usize, (path, len): (&str, usize)) -> u64 {
        let before = self.world.counts().sendfiles;
        let (plain, at) = &mut self.clients[client];
        plain.send(format!("GET /{path} HTTP/1.1\r\nHost: h\r\n\r\n").as_bytes());
        let mut response = None;
        run_until(&mut self.worker, || {
            plain.look();
            response = parse_whole(&plain.received()[*at..]);
            response.is_some()
        });
        let response = response.expect("a response");
        assert_eq!(response.status, 200);
        assert!(response.body == content(len as u64, len), "{path} for {client}");
        *at += response.len;
        self.world.counts().sendfiles - before
    }
}

#[test]
fn each_connection_is_sent_the_same_files_in_the_way_that_it_takes() {
    for_seeds(20, |seed| {
        let mut stage = Stage::new(seed);
        // Whichever asks first, all files are found.
        let first = usize::try_from(seed % 2).expect("0 or 1");
        for file in FILES {
            stage.ask(first, file);
            stage.ask(1 - first, file);
        }
        let [small, middle, large] = FILES;
        assert_eq!(stage.ask(0, small), 0, "it is in memory");
        assert!(stage.ask(0, middle) > 0 && stage.ask(0, large) > 0, "it is open");
        for file in FILES {
            assert_eq!(stage.ask(1, file), 0, "this connection takes memory only");
        }
        // Nothing more can be read from the disk.
        stage.world.evict_all();
        stage.world.hang(stage.disk);
        stage.ask(0, small);
        stage.ask(1, small);
        stage.ask(1, middle);
        assert_eq!(stage.world.counts().hangs, 0, "what is in memory was read again");
        stage.world.release(stage.disk);
        let Stage { world, mut worker, mut clients, .. } = stage;
        clients.iter_mut().for_each(|(client, _)| client.shut_down());
        // A file that no request asks for is closed after half a minute.
        pass(&mut worker, Duration::from_secs(300));
        assert_eq!((worker.connections(), worker.held()), (0, (0, 0)));
        assert_eq!(world.open_descriptors() - world.open_pipes(), 3, "the root and two listeners");
    });
}
