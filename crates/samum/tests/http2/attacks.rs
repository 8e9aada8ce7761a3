//! Clients that attack: each attack has a limit, a counter, and a message, and harms no other client.

use core::sync::atomic::Ordering;
use core::time::Duration;
use std::io;

use rustix::process::Signal;
use testkit::http2::{END_HEADERS, END_STREAM, Http2, PADDED, block, kind, pseudo, push_frame};
use testkit::metrics::Metrics;
use testkit::{Content, Op, Server, SlowFs, Tree, or_skip};

use super::connect;
use crate::common::silent::{LONG, long_origin, silent};
use crate::common::{
    SOON, on_both_drivers, on_both_drivers_at_once, resident_bytes, serve, serve_config, wait_until,
};

const ENHANCE_YOUR_CALM: u32 = 11;
const FLOW_CONTROL_ERROR: u32 = 3;
const REFUSED_STREAM: u32 = 7;
/// The memory that a connection may cost, with room for that of the allocator.
const CONNECTION_BYTES_MAX: u64 = 1024 * 1024;
/// The streams of a connection that occupy gateways.
const GATEWAYS_MAX: u64 = 32;
/// The same with files that a disk has to bring. With epoll the threads that read them count, too: the memory of their stacks, which
/// an optimised server needs less of.
const COLD_BYTES_MAX: u64 = 2 * CONNECTION_BYTES_MAX + CONNECTION_BYTES_MAX / 2;

fn stage(driver: &str, tree: &Tree) -> Server {
    stage_with(driver, tree, "")
}

/// A server with more keys for all.
fn stage_with(driver: &str, tree: &Tree, more: &str) -> Server {
    let root = tree.path().display().to_string();
    serve_config(
        tree,
        &format!(
            "[server]\nthreads = 1\ndriver = '{driver}'\n{more}\
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

/// The number of connections with this activity.
fn state(server: &Server, state: &str) -> u64 {
    let page = connect(server).ask("/metrics").expect("the page");
    let metrics = Metrics::parse(str::from_utf8(&page.body).unwrap()).unwrap();
    metrics.sum("samum_connections", &[("state", state)]).to_string().parse().unwrap()
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
    let is_counted = wait_until(SOON, || count(server, failed, reason) == before + 1);
    assert!(is_counted, "{reason}: {:?}, {:?}", client.goaways, server.stderr());
    assert_eq!(other.ask("/a.txt").unwrap().body, b"a file");
    let told = format!("reached a limit of HTTP/2 against attacks ({reason})");
    // Such messages come seldom.
    let is_told = || server.stderr().iter().any(|line| line.contains(&told));
    assert!(reason != "resets" || wait_until(SOON, is_told), "{:?}", server.stderr());
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
            // Acknowledgements of nothing.
            (kind::SETTINGS, END_STREAM, &[]),
            (kind::PING, END_STREAM, &[0; 8]),
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
        // Priorities, also of streams that never come.
        let mut bytes = Vec::new();
        (0..1000).for_each(|n| push_frame(kind::PRIORITY, 0, 2 * n + 1, &[0; 5], &mut bytes));
        assert_stopped(&server, "idle_frames", ENHANCE_YOUR_CALM, |client| {
            (0..30).try_for_each(|_| client.send(&bytes))
        });
        // DATA that is empty, tiny, or all padding.
        for (flags, payload) in [(0, &b""[..]), (0, b"x"), (PADDED, b"\x01\0")] {
            assert_stopped(&server, "idle_frames", ENHANCE_YOUR_CALM, |client| {
                let stream = client.request(pseudo("POST", "/a.txt"), false)?;
                let mut bytes = Vec::new();
                (0..1000).for_each(|_| push_frame(kind::DATA, flags, stream, payload, &mut bytes));
                // As many as are taken fit into the window. More bytes might end the connection for the window instead.
                (0..30).try_for_each(|_| client.send(&bytes))
            });
        }
        // Resets and heads of streams that have ended.
        let trailers = block([("x-after", "1")]);
        for (kind, flags, payload) in [
            (kind::RST_STREAM, 0, &8_u32.to_be_bytes()[..]),
            (kind::HEADERS, END_HEADERS | END_STREAM, &trailers),
        ] {
            assert_stopped(&server, "idle_frames", ENHANCE_YOUR_CALM, |client| {
                let stream = client.request(pseudo("GET", "no path"), true)?;
                let mut bytes = Vec::new();
                (0..1000).for_each(|_| push_frame(kind, flags, stream, payload, &mut bytes));
                (0..30).try_for_each(|_| client.send(&bytes))
            });
        }
        assert_stopped(&server, "window", FLOW_CONTROL_ERROR, |client| {
            let beyond = testkit::http2::settings_payload(&[(4, 1 << 31)]);
            client.frame(kind::SETTINGS, 0, 0, &beyond)
        });
    });
}

/// "Made you reset" (CVE-2025-8671): each way in which a client makes the server reset its own streams has the one budget.
#[test]
fn streams_that_the_client_makes_the_server_reset_count_as_resets() {
    let tree = tree();
    on_both_drivers(|driver| {
        let server = stage(driver, &tree);
        let get = block(pseudo("GET", "/large"));
        let post = block(pseudo("POST", "/a.txt"));
        let mut announced = pseudo("POST", "/a.txt");
        announced.push(("content-length", "5"));
        let announced = block(announced);
        let most = (u32::MAX >> 1).to_be_bytes();
        let malformed = block(pseudo("GET", "no path"));
        // The head, its flags, and a frame after it.
        type Frame<'a> = (u8, u8, &'a [u8]);
        let attacks: [(&[u8], u8, Option<Frame<'_>>); 8] = [
            (&get, END_STREAM, Some((kind::WINDOW_UPDATE, 0, &[0; 4]))),
            (&get, END_STREAM, Some((kind::WINDOW_UPDATE, 0, &most))),
            (&get, END_STREAM, Some((kind::DATA, END_STREAM, b"x"))),
            (&get, END_STREAM, Some((kind::HEADERS, END_HEADERS | END_STREAM, &get))),
            (&post, 0, Some((kind::HEADERS, END_HEADERS | END_STREAM, &get))),
            (&announced, 0, Some((kind::DATA, END_STREAM, b"x"))),
            (&announced, 0, Some((kind::DATA, END_STREAM, b"123456"))),
            (&malformed, END_STREAM, None),
        ];
        for (head, flags, behind) in attacks {
            assert_stopped(&server, "resets", ENHANCE_YOUR_CALM, |client| {
                for _ in 0..2000 {
                    let stream = client.reserve();
                    let mut bytes = Vec::new();
                    push_frame(kind::HEADERS, END_HEADERS | flags, stream, head, &mut bytes);
                    if let Some((kind, flags, payload)) = behind {
                        push_frame(kind, flags, stream, payload, &mut bytes);
                    }
                    client.send(&bytes)?;
                }
                Ok(())
            });
        }
        // Streams beyond the limit: none of the first hundred has a window.
        assert_stopped(&server, "resets", ENHANCE_YOUR_CALM, |client| {
            let none = testkit::http2::settings_payload(&[(4, 0)]);
            client.frame(kind::SETTINGS, 0, 0, &none)?;
            (0..2000).try_for_each(|_| client.get("/large").map(|_| ()))
        });
    });
}

/// Streams that come after the end of a connection are dropped, and not for ever.
#[test]
fn streams_behind_the_end_of_a_connection_are_counted() {
    on_both_drivers(|driver| {
        let tree = tree();
        let mut server = stage(driver, &tree);
        let mut other = connect(&server);
        let mut client = connect(&server);
        // Its stream stays open, because it has no window.
        client.frame(kind::SETTINGS, 0, 0, &testkit::http2::settings_payload(&[(4, 0)])).unwrap();
        let open = client.get("/large").unwrap();
        while client.so_far(open).status == 0 {
            client.take_frame().unwrap();
        }
        server.signal(Signal::TERM).unwrap();
        while !client.goaways.iter().any(|(last, _)| *last == open) {
            client.take_frame().unwrap();
        }
        let mut bytes = Vec::new();
        for _ in 0..30_000 {
            let stream = client.reserve();
            push_frame(kind::HEADERS, END_HEADERS | END_STREAM, stream, &get(), &mut bytes);
        }
        let _ = client.send(&bytes);
        let _ = client.read_to_end();
        assert_eq!(client.goaways.last().map(|last| last.1), Some(ENHANCE_YOUR_CALM));
        // A connection without requests of its own was told of its end, and nothing more.
        other.read_to_end().unwrap();
        assert_eq!(other.goaways.last().map(|last| last.1), Some(0));
    });
}

/// A client that receives no bytes gets no more answers to its frames than the limit.
#[test]
fn answers_that_nobody_reads_end_the_connection() {
    let tree = tree();
    on_both_drivers(|driver| {
        let server = stage(driver, &tree);
        for (kind, payload) in [(kind::PING, &[0; 8][..]), (kind::SETTINGS, &[])] {
            assert_stopped(&server, "control", ENHANCE_YOUR_CALM, |client| {
                let socket = client.stream();
                rustix::net::sockopt::set_socket_recv_buffer_size(&*socket, 4096).unwrap();
                let wide = testkit::http2::settings_payload(&[(4, 1 << 30)]);
                client.frame(kind::SETTINGS, 0, 0, &wide)?;
                client.frame(kind::WINDOW_UPDATE, 0, 0, &(1_u32 << 30).to_be_bytes())?;
                (0..90).try_for_each(|_| client.get("/large").map(|_| ()))?;
                let is_blocked = || state(&server, "writing") >= 1;
                assert!(wait_until(SOON, is_blocked), "it takes everything");
                let mut bytes = Vec::new();
                (0..300).for_each(|_| push_frame(kind, 0, 0, payload, &mut bytes));
                let failed = || count(&server, "samum_http2_connections_failed_total", "control");
                let before = failed();
                // The kernel may take some of the answers at first.
                let has_failed = || client.send(&bytes).is_err() || failed() > before;
                assert!(wait_until(SOON, has_failed));
                // It would take long to read all that was sent before the end.
                client.stream().shutdown(std::net::Shutdown::Both)?;
                Ok(())
            });
        }
    });
}

/// Header blocks that are small on the wire and large in memory.
#[test]
fn blocks_that_grow_when_they_are_decoded_are_refused() {
    let tree = tree();
    on_both_drivers(|driver| {
        let server = stage(driver, &tree);
        let before = resident_bytes(&server);
        // A field of 4,000 bytes for the table, and 100 streams each of which has it many times.
        let mut client = connect(&server);
        let mut first = get();
        first.extend_from_slice(b"\x40\x06x-bomb\x7f\xa1\x1e");
        first.extend_from_slice(&[b'x'; 4000]);
        let mut bytes = Vec::new();
        let stream = client.reserve();
        push_frame(kind::HEADERS, END_HEADERS | END_STREAM, stream, &first, &mut bytes);
        let bomb = [&get()[..], &[0xbe; 900]].concat();
        let streams: Vec<_> = (0..100).map(|_| client.reserve()).collect();
        for stream in &streams {
            push_frame(kind::HEADERS, END_HEADERS | END_STREAM, *stream, &bomb, &mut bytes);
        }
        client.send(&bytes).unwrap();
        assert_eq!(client.reply(stream).unwrap().body, b"a file");
        for stream in streams {
            assert_eq!(client.reply(stream).unwrap().status, 431);
        }
        // Crumbs of cookies: each counts as a field, and with 32 bytes more.
        let crumb = b"\x0f\x11\x03a=1";
        let crumbs = |count| [&get()[..], &crumb.repeat(count)].concat();
        for (count, status) in [(100, 200), (500, 200), (900, 431)] {
            let stream = client.reserve();
            client.frame(kind::HEADERS, END_HEADERS | END_STREAM, stream, &crumbs(count)).unwrap();
            assert_eq!(client.reply(stream).unwrap().status, status, "{count} crumbs");
        }
        assert_stopped(&server, "fields", ENHANCE_YOUR_CALM, |client| {
            let stream = client.reserve();
            client.frame(kind::HEADERS, END_HEADERS | END_STREAM, stream, &crumbs(1100))
        });
        let grown = resident_bytes(&server).saturating_sub(before);
        assert!(grown <= 2 * CONNECTION_BYTES_MAX, "{grown} bytes");
    });
}

/// A connection whose client reads a byte now and then is closed by the least rate.
#[test]
fn connections_that_are_read_too_slowly_are_closed() {
    on_both_drivers_at_once(|driver| {
        let tree = tree();
        let server = stage_with(driver, &tree, "timeout-send = 1\nrate-min = 1000\n");
        let socket = silent(&server);
        socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let mut client = Http2::new(socket, &[(4, 1 << 30)]).unwrap();
        client.frame(kind::WINDOW_UPDATE, 0, 0, &(1_u32 << 30).to_be_bytes()).unwrap();
        (0..20).for_each(|_| {
            client.get("/large").unwrap();
        });
        let is_closed = || {
            let _ = io::Read::read(client.stream(), &mut [0]);
            count(&server, "samum_connections_closed_total", "send") > 0
        };
        assert!(wait_until(SOON, is_closed), "a byte now and then is enough");
    });
}

/// Each stream has a least rate of its own: a client that receives one stream fast cannot keep the others open for ever by a
/// byte now and then.
#[test]
fn streams_that_are_read_too_slowly_are_reset_beside_a_fast_one() {
    on_both_drivers_at_once(|driver| {
        let tree = tree();
        let more = "timeout-send = 1\ntimeout-header = 1\nrate-min = 10000\n";
        let server = stage_with(driver, &tree, more);
        let stream = std::net::TcpStream::connect(crate::common::tcp_address(&server)).unwrap();
        let mut client = Http2::new(stream, &[(4, 0)]).unwrap();
        client.keep_windows();
        client.frame(kind::WINDOW_UPDATE, 0, 0, &(1_u32 << 30).to_be_bytes()).unwrap();
        let slow: Vec<_> = (0..99).map(|_| client.get("/large").unwrap()).collect();
        let is_over = |client: &mut Http2| {
            std::thread::sleep(Duration::from_millis(50));
            for id in &slow {
                if !client.so_far(*id).is_over() {
                    client.frame(kind::WINDOW_UPDATE, 0, *id, &1_u32.to_be_bytes()).unwrap();
                }
            }
            let fast = client.get("/large").unwrap();
            let wide = 4_000_000_u32.to_be_bytes();
            client.frame(kind::WINDOW_UPDATE, 0, fast, &wide).unwrap();
            assert_eq!(client.reply(fast).unwrap().body.len(), 3_000_000);
            slow.iter().all(|id| client.so_far(*id).reset.is_some())
        };
        assert!(wait_until(SOON, || is_over(&mut client)), "they stay open");
        assert_eq!(client.goaways, []);
        assert_eq!(count(&server, "samum_http2_streams_reset_total", "slow"), 99);
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

/// The same with files that a disk has to bring: all are asked for while it sleeps, and then it brings what was begun.
#[test]
fn cold_files_of_which_a_client_takes_a_byte_cost_little_memory() {
    const FILES: usize = 90;
    on_both_drivers(|driver| {
        let mut builder = SlowFs::builder();
        for number in 0..FILES {
            builder = builder.file(format!("{number}"), Content::pseudo_random(1, 1_000_000));
        }
        let slow = or_skip!(builder.cache_attributes(Duration::from_secs(60)).mount());
        let server = serve(driver, slow.path(), &["--threads", "1"]);
        let set_delay = |delay: Duration| {
            for number in 0..FILES {
                slow.set_delay_of(format!("{number}"), Op::Read, delay);
            }
        };
        // The server has answered before.
        assert_eq!(connect(&server).ask("/none").unwrap().status, 404);
        set_delay(Duration::MAX);
        let before = resident_bytes(&server);
        let stream = std::net::TcpStream::connect(crate::common::tcp_address(&server)).unwrap();
        let mut client = Http2::new(stream, &[(4, 1)]).unwrap();
        client.keep_windows();
        let streams: Vec<_> =
            (0..FILES).map(|number| client.get(&format!("/{number}")).unwrap()).collect();
        for stream in &streams {
            while client.so_far(*stream).status != 200 {
                client.take_frame().unwrap();
            }
        }
        assert!(slow.wait_until_waiting(Op::Read, 1, SOON), "nothing is read");
        set_delay(Duration::ZERO);
        for stream in &streams {
            while client.so_far(*stream).body.is_empty() {
                client.take_frame().unwrap();
            }
        }
        let grown = resident_bytes(&server).saturating_sub(before);
        assert!(grown <= COLD_BYTES_MAX, "{grown} bytes");
    });
}

/// The same with contents of another server, of which more would come than any buffer has.
#[test]
fn clients_that_take_nothing_of_an_upstream_cost_little_memory() {
    const ATTACKERS: u64 = 16;
    on_both_drivers(|driver| {
        let tree = tree();
        let (origin, asked) = long_origin();
        let config = format!(
            "[server]\nthreads = 1\ndriver = '{driver}'\n[[site]]\nlisten = ['127.0.0.1:0']\n\
             [[site.route]]\nproxy = 'http://{origin}'\n\
             [[site.route]]\npath = '/files/'\nfiles = '{}/www'\n",
            tree.path().display()
        );
        let server = serve_config(&tree, &config);
        for _ in 0..3 {
            assert_eq!(connect(&server).ask("/long").unwrap().body.len(), LONG);
        }
        let (before, asked_before) = (resident_bytes(&server), asked.load(Ordering::Relaxed));
        let attackers: Vec<_> = (0..ATTACKERS)
            .map(|_| {
                let stream =
                    std::net::TcpStream::connect(crate::common::tcp_address(&server)).unwrap();
                // Some bytes of each stream are sent, so that each has been asked for.
                let mut client = Http2::new(stream, &[(4, 1000)]).unwrap();
                client.keep_windows();
                let streams: Vec<_> = (0..100).map(|_| client.get("/endless").unwrap()).collect();
                for stream in &streams[..30] {
                    while client.so_far(*stream).body.len() < 1000 {
                        client.take_frame().unwrap();
                    }
                }
                client
            })
            .collect();
        let asked = asked.load(Ordering::Relaxed) - asked_before;
        assert!(asked <= ATTACKERS * GATEWAYS_MAX, "{asked} requests to the server");
        let mut other = connect(&server);
        for _ in 0..20 {
            assert_eq!(other.ask("/files/a.txt").unwrap().body, b"a file");
            assert_eq!(other.ask("/long").unwrap().body.len(), LONG);
        }
        let after = resident_bytes(&server);
        let each = after.saturating_sub(before) / ATTACKERS;
        assert!(each <= CONNECTION_BYTES_MAX, "{each} bytes for each connection");
        drop(attackers);
        assert_eq!(other.ask("/files/a.txt").unwrap().body, b"a file");
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
