//! Clients that attack: each attack has a limit, a counter, and a message, and harms no other client.

use std::io;

use testkit::http2::{END_HEADERS, END_STREAM, Http2, block, kind, pseudo, push_frame};
use testkit::metrics::Metrics;
use testkit::{Content, Server, Tree};

use super::connect;
use crate::common::{SOON, on_both_drivers, resident_bytes, serve_config, wait_until};

const ENHANCE_YOUR_CALM: u32 = 11;
const FLOW_CONTROL_ERROR: u32 = 3;
const REFUSED_STREAM: u32 = 7;
/// The memory that a connection may cost, with room for that of the allocator.
const CONNECTION_BYTES_MAX: u64 = 1024 * 1024;

fn stage(driver: &str, tree: &Tree) -> Server {
    let root = tree.path().display().to_string();
    serve_config(
        tree,
        &format!(
            "[server]\nthreads = 1\ndriver = '{driver}'\n\
             [[site]]\nlisten = ['127.0.0.1:0']\n\
             [[site.route]]\nfiles = '{root}/www'\n\
             [[site.route]]\npath = '/metrics'\nmetrics = true\n"
        ),
    )
}

fn tree() -> Tree {
    Tree::new().file("www/a.txt", "a file").file("www/large", Content::pseudo_random(1, 3_000_000))
}

fn count(server: &Server, name: &str, reason: &str) -> u64 {
    let page = connect(server).ask("/metrics").expect("the page");
    let metrics = Metrics::parse(str::from_utf8(&page.body).unwrap()).unwrap();
    metrics.sum(name, &[("reason", reason)]).to_string().parse().unwrap()
}

/// Lets an attacker act until its connection ends. Checks the code that it is told, the counter and the message, and that
/// another client is served.
#[track_caller]
fn assert_stopped(
    server: &Server,
    reason: &str,
    code: u32,
    attack: impl Fn(&mut Http2) -> io::Result<()>,
) {
    let failed = "samum_http2_connections_failed_total";
    let before = count(server, failed, reason);
    let mut other = connect(server);
    let mut client = connect(server);
    // The server may close the connection while the attack goes on.
    let _ = attack(&mut client);
    let _ = client.read_to_end();
    if let Some((_, said)) = client.goaways.last() {
        assert_eq!(*said, code, "{reason}");
    }
    assert!(wait_until(SOON, || count(server, failed, reason) == before + 1), "{reason}");
    assert_eq!(other.ask("/a.txt").unwrap().body, b"a file");
    let told = format!("reached a limit of HTTP/2 against attacks ({reason})");
    // Such messages come seldom.
    let is_told = server.stderr().iter().any(|line| line.contains(&told));
    assert!(is_told || reason != "resets", "{:?}", server.stderr());
}

fn get() -> Vec<u8> {
    block(pseudo("GET", "/a.txt"))
}

#[test]
fn floods_end_the_connection() {
    let tree = tree();
    on_both_drivers(|driver| {
        let server = stage(driver, &tree);
        // Rapid reset (CVE-2023-44487).
        assert_stopped(&server, "resets", ENHANCE_YOUR_CALM, |client| {
            for _ in 0..2000 {
                let stream = client.reserve();
                let mut bytes = Vec::new();
                let block = block(pseudo("GET", "/large"));
                push_frame(kind::HEADERS, END_HEADERS | END_STREAM, stream, &block, &mut bytes);
                push_frame(kind::RST_STREAM, 0, stream, &8_u32.to_be_bytes(), &mut bytes);
                client.send(&bytes)?;
            }
            Ok(())
        });
        // "Made you reset" (CVE-2025-8671): windows of nothing.
        assert_stopped(&server, "resets", ENHANCE_YOUR_CALM, |client| {
            for _ in 0..2000 {
                let stream = client.reserve();
                let mut bytes = Vec::new();
                let block = block(pseudo("GET", "/large"));
                push_frame(kind::HEADERS, END_HEADERS | END_STREAM, stream, &block, &mut bytes);
                push_frame(kind::WINDOW_UPDATE, 0, stream, &[0; 4], &mut bytes);
                client.send(&bytes)?;
            }
            Ok(())
        });
        assert_stopped(&server, "continuations", ENHANCE_YOUR_CALM, |client| {
            let stream = client.reserve();
            client.frame(kind::HEADERS, END_STREAM, stream, &get())?;
            (0..20).try_for_each(|_| client.frame(kind::CONTINUATION, 0, stream, &[]))
        });
        assert_stopped(&server, "block", ENHANCE_YOUR_CALM, |client| {
            let stream = client.reserve();
            let field = block([("x-long", &*"x".repeat(16_000))]);
            client.frame(kind::HEADERS, END_STREAM, stream, &field)?;
            (0..4).try_for_each(|_| client.frame(kind::CONTINUATION, 0, stream, &field))
        });
        // References of one byte to a field of the table.
        assert_stopped(&server, "fields", ENHANCE_YOUR_CALM, |client| {
            let stream = client.reserve();
            let bomb = [&get()[..], &[0x90; 8000]].concat();
            client.frame(kind::HEADERS, END_HEADERS | END_STREAM, stream, &bomb)
        });
        for (kind, flags, payload) in [
            (kind::PING, 0, &[0_u8; 8][..]),
            (kind::SETTINGS, 0, &[]),
            (kind::WINDOW_UPDATE, 0, &[0, 0, 0, 1]),
            (16, 0, b"\0\0\0\x01u=1"),
            (99, 0, b""),
        ] {
            let mut bytes = Vec::new();
            (0..1000).for_each(|_| push_frame(kind, flags, 0, payload, &mut bytes));
            assert_stopped(&server, "idle_frames", ENHANCE_YOUR_CALM, |client| {
                (0..30).try_for_each(|_| client.send(&bytes))
            });
        }
        assert_stopped(&server, "settings", ENHANCE_YOUR_CALM, |client| {
            let many = testkit::http2::settings_payload(&[(99, 0); 40]);
            client.frame(kind::SETTINGS, 0, 0, &many)
        });
        assert_stopped(&server, "window", FLOW_CONTROL_ERROR, |client| {
            let most = (u32::MAX >> 1).to_be_bytes();
            client.frame(kind::WINDOW_UPDATE, 0, 0, &most)
        });
        // Empty DATA, and data beyond the window.
        assert_stopped(&server, "idle_frames", ENHANCE_YOUR_CALM, |client| {
            let stream = client.request(pseudo("POST", "/a.txt"), false)?;
            let mut bytes = Vec::new();
            (0..1000).for_each(|_| push_frame(kind::DATA, 0, stream, &[], &mut bytes));
            (0..30).try_for_each(|_| client.send(&bytes))
        });
    });
}

#[test]
fn streams_beyond_the_limit_are_refused_and_nothing_else() {
    let tree = tree();
    on_both_drivers(|driver| {
        let server = stage(driver, &tree);
        let stream = std::net::TcpStream::connect(crate::common::tcp_address(&server)).unwrap();
        // No stream has a window, so all of them stay open.
        let mut client = Http2::new(stream, &[(4, 0)]).unwrap();
        let streams: Vec<_> = (0..110).map(|_| client.get("/large").unwrap()).collect();
        for stream in &streams[100..] {
            assert_eq!(client.reply(*stream).unwrap().reset, Some(REFUSED_STREAM));
        }
        let wide = testkit::http2::settings_payload(&[(4, 4_000_000)]);
        client.frame(kind::SETTINGS, 0, 0, &wide).unwrap();
        for stream in &streams[..100] {
            assert_eq!(client.reply(*stream).unwrap().body.len(), 3_000_000);
        }
        assert_eq!(count(&server, "samum_http2_streams_reset_total", "refused"), 10);
    });
}

/// Sixteen attackers that open streams and take nothing, with long heads: their memory is bounded, and comes back.
#[test]
fn clients_that_take_nothing_cost_little_memory() {
    const ATTACKERS: u64 = 16;
    let tree = tree();
    on_both_drivers(|driver| {
        let server = stage(driver, &tree);
        // The file is cached, and the buffers of the worker exist.
        for _ in 0..3 {
            assert_eq!(connect(&server).ask("/large").unwrap().body.len(), 3_000_000);
        }
        let before = resident_bytes(&server);
        let long = "x".repeat(8000);
        let attackers: Vec<_> = (0..ATTACKERS)
            .map(|_| {
                let stream =
                    std::net::TcpStream::connect(crate::common::tcp_address(&server)).unwrap();
                // One byte of each stream is sent, so that each has read something.
                let mut client = Http2::new(stream, &[(4, 1)]).unwrap();
                for _ in 0..100 {
                    let mut fields = pseudo("GET", "/large");
                    fields.push(("x-long", &long));
                    client.request(fields, true).unwrap();
                }
                client
            })
            .collect();
        let mut other = connect(&server);
        for _ in 0..20 {
            assert_eq!(other.ask("/a.txt").unwrap().body, b"a file");
        }
        let after = resident_bytes(&server);
        let each = after.saturating_sub(before) / ATTACKERS;
        assert!(each <= CONNECTION_BYTES_MAX, "{each} bytes for each connection");
        drop(attackers);
        assert_eq!(other.ask("/a.txt").unwrap().body, b"a file");
    });
}

/// Honest clients that come near the limits.
#[test]
fn honest_clients_near_the_limits_are_served() {
    let mut tree = Tree::new();
    for number in 0..300 {
        tree = tree.file(format!("www/{number}"), Content::pseudo_random(number, 3000));
    }
    let tree = tree.file("www/large", Content::pseudo_random(1, 300_000));
    on_both_drivers(|driver| {
        let server = stage(driver, &tree);
        let mut client = connect(&server);
        let cookie = "c".repeat(8000);
        // A page of 300 files, of which a browser asks for a hundred at a time.
        for first in [0, 100, 200] {
            let streams: Vec<_> = (first..first + 100)
                .map(|number| {
                    let path = format!("/{number}");
                    let mut fields = pseudo("GET", &path);
                    fields.push(("cookie", &cookie));
                    client.request(fields, true).unwrap()
                })
                .collect();
            for (number, stream) in (first..).zip(streams) {
                let reply = client.reply(stream).unwrap();
                Content::pseudo_random(number, 3000).assert_is(&reply.body);
            }
        }
        // A browser that leaves a page cancels its pictures.
        for _ in 0..3 {
            let streams: Vec<_> = (0..100).map(|_| client.get("/large").unwrap()).collect();
            for stream in streams {
                client.frame(kind::RST_STREAM, 0, stream, &8_u32.to_be_bytes()).unwrap();
            }
        }
        assert_eq!(client.ask("/large").unwrap().body.len(), 300_000);
        assert!(client.goaways.is_empty(), "{:?}", client.goaways);
    });
}
