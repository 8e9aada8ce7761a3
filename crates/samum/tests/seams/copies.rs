//! Copies of files in a coding that stand in no file: made by a thread after the file was first loaded.

use core::time::Duration;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use config::{Action, Config, FileRules, Files};
use handler::attach::{Copied, Copier, Name, Original};
use handler::router::Router;
use handler::serving::Snapshot;
use http::Coding;
use ring::sim::World;
use ring::{Beside, Caching, Detached, Job, Stat};
use samum::network::Listeners;
use samum::worker::{Replacement, Worker};
use session::shell::Shell;
use session::{Http1, kind};

use crate::seams::reloads::open;
use crate::seams::stage::{Response, parse_whole};
use crate::seams::world::{config, parts, pass, run_until};

const LONG: &[u8] = b"a text that is long enough to be worth a copy";
/// A file that is not read into memory.
const LARGE_BYTES: usize = 100_000;
/// Copies that the thread is asked for, at most.
const JOBS_MAX: usize = 100;

/// Makes copies of texts in gzip, which are none, on a thread.
#[derive(Debug, Default)]
struct Toy {
    /// `Some` once a copy was wanted.
    thread: Option<Beside<Copying>>,
    /// The files of the thread's jobs, in the order of the jobs.
    asked: VecDeque<(Name, State)>,
    made: BTreeMap<State, Vec<u8>>,
}

/// The state of a file: its number, the nanoseconds and the seconds of its last modification, and its size.
type State = (u64, u32, i64, u64);

const fn state(stat: &Stat) -> State {
    (stat.ino, stat.mtime_nanos, stat.mtime, stat.size)
}

/// The job to make one copy.
enum Copying {
    Bytes(Vec<u8>),
    File(Detached),
}

impl Job for Copying {
    type Output = Vec<u8>;

    fn run(self, _sleep: &dyn Fn(Duration)) -> Vec<u8> {
        match self {
            Self::Bytes(bytes) => copied(&bytes),
            Self::File(file) => {
                let mut bytes = vec![0; LARGE_BYTES];
                let count = file.read_at(&mut bytes, 0, Caching::Keep).expect("a disk that reads");
                copied(&bytes[..count])
            }
        }
    }
}

impl Copier for Toy {
    fn copy(
        &mut self,
        shell: &mut Shell,
        original: &Original<'_>,
        coding: Coding,
    ) -> Option<Copied> {
        let is_text = original.content_type.starts_with("text/") && original.stat.size > 10;
        if coding != Coding::Gzip || !is_text || !original.rules.precompressed {
            return None;
        }
        let state = state(original.stat);
        if let Some(bytes) = self.made.get(&state) {
            let etag = format!("\"copy-{}\"", original.stat.size).into_bytes();
            return Some(Copied { bytes: bytes.clone(), etag });
        }
        if self.asked.len() == JOBS_MAX || self.asked.iter().any(|(_, other)| *other == state) {
            return None;
        }
        let job = match original.bytes {
            Some(bytes) => Copying::Bytes(bytes.to_vec()),
            None => Copying::File(shell.ring.detach(original.file).expect("a descriptor")),
        };
        let beside = || shell.ring.beside("copies", kind::WAKE).expect("a thread");
        assert!(self.thread.get_or_insert_with(beside).submit(job));
        self.asked.push_back((original.name.clone(), state));
        None
    }

    fn next_made(&mut self) -> Option<Name> {
        let copy = self.thread.as_mut()?.take()?;
        let (name, state) = self.asked.pop_front()?;
        self.made.insert(state, copy);
        Some(name)
    }
}

fn copied(bytes: &[u8]) -> Vec<u8> {
    [b"copy of ", bytes].concat()
}

struct Stage {
    world: World,
    worker: Worker<Http1, Listeners, Router>,
}

impl Stage {
    fn new() -> Self {
        let world = World::new(config(1));
        for (name, bytes) in [("a.txt", LONG), ("b.txt", LONG), ("b.txt.gz", b"a file")] {
            world.write_file(name, bytes);
        }
        world.write_file("short.txt", b"short");
        world.write_file("large.txt", &[b'a'; LARGE_BYTES]);
        world.write_file("c.bin", LONG);
        let mut parts = parts(&world, FileRules::default());
        let network = Listeners::new(parts.listeners.clone());
        parts.attachments.copier = Some(Box::<Toy>::default());
        let worker = Worker::over(parts, network);
        Self { world, worker: worker.expect("memory") }
    }

    fn get(&mut self, path: &str, fields: &str) -> Response {
        let client = self.world.connect();
        client.send(format!("GET /{path} HTTP/1.1\r\nHost: a\r\n{fields}\r\n").as_bytes());
        let mut response = None;
        run_until(&mut self.worker, || {
            response = parse_whole(&client.received());
            response.is_some()
        });
        response.expect("a response")
    }
}

/// The time in which a thread makes a copy of a small file.
const MAKING: Duration = Duration::from_secs(1);
const GZIP: &str = "Accept-Encoding: gzip\r\n";

#[test]
fn a_copy_that_is_in_no_file_is_sent_once_a_thread_has_made_it() {
    let mut stage = Stage::new();
    let first = stage.get("a.txt", GZIP);
    assert_eq!((first.status, &first.body[..]), (200, LONG));
    assert!(!first.head.contains("Vary"), "{}", first.head);
    pass(&mut stage.worker, MAKING);
    // It is loaded with its copy first, and then it is in memory.
    for _ in 0..3 {
        let response = stage.get("a.txt", GZIP);
        assert_eq!((response.status, &response.body), (200, &copied(LONG)));
        for line in ["Content-Encoding: gzip", "Vary: Accept-Encoding", "ETag: \"copy-45\""] {
            assert!(response.head.contains(line), "{line}: {}", response.head);
        }
        let response = stage.get("a.txt", "");
        assert_eq!((response.status, &response.body[..]), (200, LONG));
        assert!(response.head.contains("Vary: Accept-Encoding"), "{}", response.head);
        assert!(!response.head.contains("Content-Encoding"), "{}", response.head);
    }
    let range = stage.get("a.txt", &format!("{GZIP}Range: bytes=2-6\r\n"));
    assert_eq!((range.status, &range.body[..]), (206, &copied(LONG)[2..7]));
    assert!(range.head.contains("Content-Range: bytes 2-6/53"), "{}", range.head);
    let fields = format!("{GZIP}If-None-Match: \"copy-45\"\r\n");
    assert_eq!(stage.get("a.txt", &fields).status, 304);
}

#[test]
fn the_thread_reads_a_file_that_is_not_in_memory() {
    let mut stage = Stage::new();
    let large = [b'a'; LARGE_BYTES];
    assert_eq!(stage.get("large.txt", GZIP).body, large);
    pass(&mut stage.worker, MAKING);
    assert_eq!(stage.get("large.txt", GZIP).body, copied(&large));
    assert_eq!(stage.get("large.txt", "").body, large);
}

#[test]
fn a_file_comes_before_a_copy_and_some_have_none() {
    let mut stage = Stage::new();
    let others = [("b.txt", &b"a file"[..]), ("short.txt", b"short"), ("c.bin", LONG)];
    for (path, body) in others.repeat(2) {
        let response = stage.get(path, GZIP);
        assert_eq!(&response.body[..], body, "{path}");
        assert_eq!(response.head.contains("Vary:"), path == "b.txt", "{path}: {}", response.head);
        pass(&mut stage.worker, MAKING);
    }
    // A file that is looked at again keeps its copy, and a changed file gets another copy.
    stage.get("a.txt", GZIP);
    pass(&mut stage.worker, MAKING);
    assert_eq!(stage.get("a.txt", GZIP).body, copied(LONG));
    pass(&mut stage.worker, Duration::from_secs(30));
    assert_eq!(stage.get("a.txt", GZIP).body, copied(LONG));
    stage.world.write_file("a.txt", b"another text");
    pass(&mut stage.worker, Duration::from_secs(30));
    assert_eq!(stage.get("a.txt", GZIP).body, b"another text");
    pass(&mut stage.worker, MAKING);
    assert_eq!(stage.get("a.txt", GZIP).body, copied(b"another text"));
    stage.world.write_file("a.txt.gz", b"now a file");
    pass(&mut stage.worker, Duration::from_secs(30));
    assert_eq!(stage.get("a.txt", GZIP).body, b"now a file");
}

/// Makes a copy at once, and finds it again by the name alone.
#[derive(Debug, Default)]
struct ByName(Vec<(Name, Vec<u8>)>);

impl Copier for ByName {
    fn copy(
        &mut self,
        _shell: &mut Shell,
        original: &Original<'_>,
        coding: Coding,
    ) -> Option<Copied> {
        let bytes = original.bytes.filter(|_| coding == Coding::Gzip)?;
        if let Some((_, bytes)) = self.0.iter().find(|(name, _)| name == original.name) {
            return Some(Copied { bytes: bytes.clone(), etag: Vec::new() });
        }
        self.0.push((original.name.clone(), copied(bytes)));
        Some(Copied { bytes: copied(bytes), etag: Vec::new() })
    }
}

const DIRECTORIES: [&str; 3] = ["a", "b", "c"];

/// The text of a file that each of the directories has.
fn text_of(directory: &str) -> String {
    format!("the text in {directory}, which is long enough")
}

#[test]
fn no_directory_has_the_names_of_another() {
    let world = World::new(config(1));
    for name in DIRECTORIES {
        world.make_dir(name);
        world.write_file(&format!("{name}/x.txt"), text_of(name).as_bytes());
    }
    let served = |directory: &str| {
        let rules = FileRules { precompressed: true, ..FileRules::default() };
        let mut config = Config::default();
        let files = Files { root: directory.into(), rules };
        config.sites[0].routes[0].action = Action::Files(files);
        config
    };
    let mut parts = parts(&world, FileRules::default());
    let root = parts.roots.remove(0);
    let directories = DIRECTORIES.map(|name| open(&mut parts.ring, &root, name));
    let mut snapshot = Arc::new(Snapshot::new(&served("a")).expect("a valid configuration"));
    parts.snapshot = Arc::clone(&snapshot);
    let network = Listeners::new(parts.listeners.clone());
    parts.roots = vec![directories[0].clone()];
    parts.attachments.copier = Some(Box::<ByName>::default());
    let worker = Worker::over(parts, network);
    let mut stage = Stage { world, worker: worker.expect("memory") };
    let check = |stage: &mut Stage, directory: &str| {
        let expected = copied(text_of(directory).as_bytes());
        assert_eq!(stage.get("x.txt", GZIP).body, expected, "in {directory}");
        // What was removed is forgotten, and its id is free for another directory.
        pass(&mut stage.worker, Duration::from_secs(1));
    };
    check(&mut stage, "a");
    for (directory, name) in directories.iter().zip(DIRECTORIES).skip(1) {
        let next = Arc::new(snapshot.successor(&served(name)).expect("a valid configuration"));
        let replacement = Replacement {
            snapshot: Arc::clone(&next),
            succession: Arc::new(snapshot.succession(&next, |_| None)),
            roots: HashMap::from([(0, directory.clone())]),
            listeners: Vec::new(),
            logs: Vec::new(),
        };
        stage.worker.replace_configuration(replacement);
        snapshot = next;
        check(&mut stage, name);
    }
    // The directory at the path of a root is another one.
    stage.worker.replace_root(0, Some(&directories[0]));
    check(&mut stage, "a");
}
