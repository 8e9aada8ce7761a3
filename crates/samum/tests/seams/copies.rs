//! Copies of files in a coding that stand in no file: made in memory when the file is loaded.

use core::time::Duration;

use config::FileRules;
use handler::attach::{Copied, Copier, Original};
use handler::router::Router;
use http::Coding;
use ring::sim::World;
use samum::network::Listeners;
use samum::worker::Worker;
use session::Http1;

use crate::seams::stage::{Response, parse_whole};
use crate::seams::world::{config, parts, pass, run_until};

const LONG: &[u8] = b"a text that is long enough to be worth a copy";

/// Makes copies of texts in gzip, which are none.
#[derive(Debug)]
struct Toy;

impl Copier for Toy {
    fn copy(&mut self, original: &Original<'_>, coding: Coding) -> Option<Copied> {
        let is_wanted = coding == Coding::Gzip && original.content_type.starts_with("text/");
        let bytes = original.bytes.filter(|bytes| is_wanted && bytes.len() > 10)?;
        let etag = format!("\"copy-{}\"", bytes.len()).into_bytes();
        Some(Copied { bytes: copied(bytes), etag })
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
        world.write_file("c.bin", LONG);
        let mut parts = parts(&world, FileRules::default());
        let network = Listeners::new(parts.listeners.clone());
        let roots = core::mem::take(&mut parts.roots);
        let worker = Worker::with(parts, network, |shell| {
            let mut router = Router::new(&roots, 64, shell)?;
            router.set_copier(Box::new(Toy));
            Ok(router)
        });
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

#[test]
fn a_copy_that_is_in_no_file_is_sent_as_one_is() {
    let mut stage = Stage::new();
    // It is loaded first, and then it is in memory.
    for _ in 0..3 {
        let response = stage.get("a.txt", "Accept-Encoding: gzip\r\n");
        assert_eq!((response.status, &response.body), (200, &copied(LONG)));
        for line in ["Content-Encoding: gzip", "Vary: Accept-Encoding", "ETag: \"copy-45\""] {
            assert!(response.head.contains(line), "{line}: {}", response.head);
        }
        let response = stage.get("a.txt", "");
        assert_eq!((response.status, &response.body[..]), (200, LONG));
        assert!(response.head.contains("Vary: Accept-Encoding"), "{}", response.head);
        assert!(!response.head.contains("Content-Encoding"), "{}", response.head);
    }
    let range = stage.get("a.txt", "Accept-Encoding: gzip\r\nRange: bytes=2-6\r\n");
    assert_eq!((range.status, &range.body[..]), (206, &copied(LONG)[2..7]));
    assert!(range.head.contains("Content-Range: bytes 2-6/53"), "{}", range.head);
    let fields = "Accept-Encoding: gzip\r\nIf-None-Match: \"copy-45\"\r\n";
    assert_eq!(stage.get("a.txt", fields).status, 304);
}

#[test]
fn a_file_comes_before_a_copy_and_some_have_none() {
    let mut stage = Stage::new();
    for (path, body) in [("b.txt", &b"a file"[..]), ("short.txt", b"short"), ("c.bin", LONG)] {
        let response = stage.get(path, "Accept-Encoding: gzip\r\n");
        assert_eq!(&response.body[..], body, "{path}");
        assert_eq!(response.head.contains("Vary:"), path == "b.txt", "{path}: {}", response.head);
    }
    // A file that is looked at again keeps its copy, and a changed one gets another.
    let gzip = "Accept-Encoding: gzip\r\n";
    assert_eq!(stage.get("a.txt", gzip).body, copied(LONG));
    pass(&mut stage.worker, Duration::from_secs(30));
    assert_eq!(stage.get("a.txt", gzip).body, copied(LONG));
    stage.world.write_file("a.txt", b"another text");
    pass(&mut stage.worker, Duration::from_secs(30));
    assert_eq!(stage.get("a.txt", gzip).body, copied(b"another text"));
    stage.world.write_file("a.txt.gz", b"now a file");
    pass(&mut stage.worker, Duration::from_secs(30));
    assert_eq!(stage.get("a.txt", gzip).body, b"now a file");
}
