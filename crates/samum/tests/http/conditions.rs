//! Entity tags of files that change, across restarts of the server and between servers.

use core::time::Duration;
use std::fs;
use std::os::unix::fs::symlink;
use std::time::UNIX_EPOCH;

use testkit::{Server, Tree};

use crate::cases::MODIFIED;
use crate::common::{self, SOON, ask, on_both_drivers, serve, wait_until};

fn tree() -> Tree {
    let tree = Tree::new().file("a.txt", "0123456789");
    set_modified(&tree, "a.txt");
    tree
}

/// Gives a file the time that all of them have here.
fn set_modified(tree: &Tree, name: &str) {
    common::set_modified(&tree.path().join(name), UNIX_EPOCH + Duration::from_secs(MODIFIED));
}

/// Returns the tag of a file, as soon as it has one.
#[track_caller]
fn tag(server: &Server, path: &str) -> String {
    let mut tag = None;
    let get = format!("GET {path}");
    assert!(wait_until(SOON, || {
        tag = ask(server, &get).header("ETag").map(str::to_owned);
        tag.is_some()
    }));
    tag.unwrap()
}

/// Nix, container layers and `rsync -t` produce such files.
/// As Nix makes them, and images of containers: the time is the same in every release.
#[test]
fn files_of_time_0_or_1_are_told_apart_by_their_tags_alone() {
    let tree = Tree::new().directory("one").directory("two");
    let write = |release: &str, byte: u8| {
        for (name, seconds) in [("zero", 0), ("one", 1), ("two", 2)] {
            let path = tree.path().join(release).join(name);
            fs::write(&path, vec![byte; 100_000]).unwrap();
            fs::write(path.with_extension("small"), [byte; 10]).unwrap();
            for path in [path.clone(), path.with_extension("small")] {
                common::set_modified(&path, UNIX_EPOCH + Duration::from_secs(seconds));
            }
        }
    };
    write("one", b'a');
    write("two", b'b');
    let link = tree.path().join("current");
    on_both_drivers(|driver| {
        let _ = fs::remove_file(&link);
        symlink("one", &link).unwrap();
        let server = serve(driver, &link, &[]);
        for name in ["zero", "one", "zero.small", "one.small"] {
            let whole = ask(&server, &format!("GET /{name}"));
            let size = whole.body.len();
            assert_eq!(whole.header("Last-Modified"), None, "{name}");
            let tag = whole.header("ETag").unwrap().to_owned();
            for (condition, status) in [
                ("If-Modified-Since: Thu, 01 Jan 1970 00:00:01 GMT", 200),
                ("If-Modified-Since: Sun, 06 Nov 2022 08:49:37 GMT", 200),
                ("If-Unmodified-Since: Thu, 01 Jan 1970 00:00:00 GMT", 200),
                ("Range: bytes=0-1\nIf-Range: Thu, 01 Jan 1970 00:00:01 GMT", 200),
                ("Range: bytes=0-1\nIf-Range: Thu, 01 Jan 1970 00:00:00 GMT", 200),
                (&format!("Range: bytes=0-1\nIf-Range: {tag}"), 206),
                (&format!("If-None-Match: {tag}"), 304),
                ("If-None-Match: \"x\"\nIf-Modified-Since: Sun, 06 Nov 2022 08:49:37 GMT", 200),
            ] {
                let response = ask(&server, &format!("GET /{name}\n{condition}"));
                assert_eq!(response.status, status, "{name} {condition}");
                assert_eq!(response.header("Last-Modified"), None, "{name} {condition}");
            }
            let new = tree.path().join("new");
            symlink("two", &new).unwrap();
            fs::rename(&new, &link).unwrap();
            let head = format!("GET /{name}\nIf-None-Match: {tag}");
            assert!(wait_until(SOON, || ask(&server, &head).body == vec![b'b'; size]), "{name}");
            symlink("one", &new).unwrap();
            fs::rename(&new, &link).unwrap();
            assert!(wait_until(SOON, || ask(&server, &head).status == 304), "{name}");
        }
        let later = ask(&server, "GET /two");
        assert_eq!(later.header("Last-Modified"), Some("Thu, 01 Jan 1970 00:00:02 GMT"));
    });
}

#[test]
fn another_file_of_the_same_size_and_time_is_another_file() {
    on_both_drivers(|driver| {
        for (etag, size) in [("stat", 10), ("hash", 10), ("stat", 100_000), ("hash", 100_000)] {
            let tree = Tree::new().file("a", vec![b'a'; size]).file("b", vec![b'b'; size]);
            set_modified(&tree, "a");
            set_modified(&tree, "b");
            let server = serve(driver, tree.path(), &["--etag", etag]);
            let (old, other) = (tag(&server, "/a"), tag(&server, "/b"));
            assert_ne!(old, other);
            let part = format!("GET /a\nRange: bytes=2-4\nIf-Range: {old}");
            let unless = format!("GET /a\nIf-None-Match: {old}");
            assert_eq!((ask(&server, &part).status, ask(&server, &unless).status), (206, 304));
            // Another file by rename, or the same file with other bytes and the old time.
            let steps: [fn(&Tree, usize); 2] = [
                |tree, _| fs::rename(tree.path().join("b"), tree.path().join("a")).unwrap(),
                |tree, size| {
                    fs::write(tree.path().join("a"), vec![b'c'; size]).unwrap();
                    set_modified(tree, "a");
                },
            ];
            for (step, byte) in steps.into_iter().zip([b'b', b'c']) {
                step(&tree, size);
                let is_new = || ask(&server, "GET /a").body[0] == byte;
                assert!(wait_until(SOON, is_new));
                for head in [&part, &unless] {
                    let response = ask(&server, head);
                    assert_eq!((response.status, response.body.len()), (200, size), "{head}");
                    assert!(response.body.iter().all(|one| *one == byte));
                }
            }
        }
    });
}

#[test]
fn a_download_is_resumed_after_a_restart_of_the_server() {
    on_both_drivers(|driver| {
        let tree = tree();
        for etag in ["stat", "hash"] {
            let before = tag(&serve(driver, tree.path(), &["--etag", etag]), "/a.txt");
            let server = serve(driver, tree.path(), &["--etag", etag]);
            assert_eq!(tag(&server, "/a.txt"), before);
            let part = format!("GET /a.txt\nRange: bytes=2-4\nIf-Range: {before}");
            assert_eq!(ask(&server, &part).body, b"234");
        }
    });
}

#[test]
fn a_tag_of_contents_is_the_same_on_every_server() {
    on_both_drivers(|driver| {
        let large = vec![b'l'; 300_000];
        let make = || {
            let tree = Tree::new().file("a.txt", "0123456789").file("large", large.clone());
            let tree = tree.file("large.gz", vec![b'g'; 70_000]).file("same.gz", "0123456789");
            tree.file("same", "0123456789")
        };
        let (one, two) = (make(), make());
        set_modified(&two, "a.txt");
        let servers = [&one, &two].map(|tree| serve(driver, tree.path(), &["--etag", "hash"]));
        for path in ["/a.txt", "/large", "/same"] {
            let tags = [0, 1].map(|number: usize| tag(&servers[number], path));
            assert_eq!(tags[0], tags[1], "{path}");
        }
        for path in ["/large", "/same"] {
            let head = format!("GET {path}\nAccept-Encoding: gzip");
            assert!(wait_until(SOON, || ask(&servers[0], &head).header("ETag").is_some()));
            let coded = ask(&servers[0], &head).header("ETag").unwrap().to_owned();
            assert_ne!(coded, tag(&servers[0], path), "{path}");
            assert!(coded.ends_with("-gzip\""), "{coded}");
        }
    });
}
