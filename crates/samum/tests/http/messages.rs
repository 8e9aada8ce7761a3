//! Fields that differ from one response to the next.

use core::time::Duration;
use std::collections::HashSet;
use std::time::SystemTime;

use testkit::{Content, Tree};

use crate::common::{SOON, ask, on_both_drivers, serve, set_modified, wait_until};

fn tree() -> Tree {
    Tree::new().file("a.txt", "hello, world\n").file("big.bin", Content::pseudo_random(1, 300_000))
}

/// If a client could predict the next boundary, the author of a file could forge parts of the response.
#[test]
fn no_boundary_predicts_the_next() {
    on_both_drivers(|driver| {
        let tree = tree();
        let server = serve(driver, tree.path(), &[]);
        let boundary = |_| {
            let response = ask(&server, "GET /big.bin\nRange: bytes=0-0,4000-4000");
            response.header("Content-Type").unwrap().to_owned()
        };
        let seen: HashSet<String> = (0..20).map(boundary).collect();
        assert_eq!(seen.len(), 20, "{seen:?}");
    });
}

#[test]
fn a_modification_time_in_the_future_is_not_sent() {
    on_both_drivers(|driver| {
        let tree = tree();
        for name in ["a.txt", "big.bin"] {
            let future = SystemTime::now() + Duration::from_secs(86_400);
            set_modified(&tree.path().join(name), future);
        }
        let server = serve(driver, tree.path(), &[]);
        // RFC 9110 §8.8.2.1: the date of the message replaces it.
        let mut last = None;
        for head in ["GET /a.txt", "GET /big.bin", "GET /a.txt\nRange: bytes=0-0", "HEAD /a.txt"] {
            let response = ask(&server, head);
            assert!(response.header("Date").is_some());
            assert_eq!(response.header("Last-Modified"), response.header("Date"), "{head}");
            last = response.header("Date").map(str::to_owned);
        }
        let same = format!("GET /a.txt\nIf-Unmodified-Since: {}", last.as_deref().unwrap());
        assert_eq!(ask(&server, &same).status, 200, "what was sent is not compared");
        // The same in another second.
        let changed = wait_until(SOON, || {
            let response = ask(&server, "GET /a.txt");
            assert_eq!(response.header("Last-Modified"), response.header("Date"));
            response.header("Date") != last.as_deref()
        });
        assert!(changed);
    });
}
