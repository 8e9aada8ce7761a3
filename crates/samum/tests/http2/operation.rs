//! The end of connections: idle, slow, at a shutdown, at a reload.

use core::time::Duration;
use std::thread;

use testkit::http2::kind;
use testkit::{Content, Signal, Tree};

use super::connect;
use crate::common::{SOON, on_both_drivers_at_once, serve, serve_config, tcp_address, wait_until};

const NO_ERROR: u32 = 0;

#[test]
fn an_idle_connection_is_told_of_its_end() {
    let tree = Tree::new().file("a.txt", "a file");
    on_both_drivers_at_once(|driver| {
        let server = serve(driver, tree.path(), &["--timeout-idle", "2"]);
        let mut client = connect(&server);
        let stream = client.get("/a.txt").unwrap();
        assert_eq!(client.reply(stream).unwrap().body, b"a file");
        // PING does not keep the connection.
        client.frame(kind::PING, 0, 0, &[0; 8]).unwrap();
        client.read_to_end().unwrap();
        assert_eq!(client.goaways, [(stream, NO_ERROR)]);
    });
}

#[test]
fn a_connection_that_does_not_begin_is_closed() {
    let tree = Tree::new().file("a.txt", "a file");
    on_both_drivers_at_once(|driver| {
        let server = serve(driver, tree.path(), &["--timeout-header", "1"]);
        // Without the settings of the client, and with half of a frame.
        for bytes in [&testkit::http2::PREFACE[..20], testkit::http2::PREFACE] {
            let mut client = crate::common::connect(&server);
            client.send(bytes).unwrap();
            let _ = client.read_to_end().expect("the server closes the connection");
        }
        let mut client = connect(&server);
        client.send(b"\0\0\x08\x06\0\0\0\0\0half").unwrap();
        client.read_to_end().unwrap();
    });
}

#[test]
fn at_a_shutdown_requests_under_way_are_answered() {
    let tree = Tree::new().file("large", Content::pseudo_random(1, 2_000_000));
    on_both_drivers_at_once(|driver| {
        let mut server = serve(driver, tree.path(), &[]);
        let mut idle = connect(&server);
        assert_eq!(idle.ask("/none").unwrap().status, 404);
        let mut client = connect(&server);
        client.keep_windows();
        let stream = client.get("/large").unwrap();
        while client.so_far(stream).body.len() < 65_535 {
            client.take_frame().unwrap();
        }
        server.signal(Signal::TERM).unwrap();
        while client.goaways.is_empty() {
            client.take_frame().unwrap();
        }
        let mut more = Vec::new();
        for stream in [0, stream] {
            let count = 2_000_000_u32.to_be_bytes();
            testkit::http2::push_frame(kind::WINDOW_UPDATE, 0, stream, &count, &mut more);
        }
        client.send(&more).unwrap();
        let reply = client.reply(stream).unwrap();
        Content::pseudo_random(1, 2_000_000).assert_is(&reply.body);
        client.read_to_end().unwrap();
        assert_eq!(client.goaways.last(), Some(&(stream, NO_ERROR)));
        idle.read_to_end().unwrap();
        assert!(!idle.goaways.is_empty());
        drop((client, idle));
        assert_eq!(server.wait(SOON).unwrap().code(), Some(0));
    });
}

/// A request that was sent before the client has learned of the end is answered.
#[test]
fn a_removed_listener_answers_what_was_on_its_way() {
    on_both_drivers_at_once(|driver| {
        let tree = Tree::new().file("www/a.txt", "a file");
        let root = tree.path().display().to_string();
        let config = |listen: &str| {
            format!(
                "[server]\nthreads = 1\ndriver = '{driver}'\n\
                 [[site]]\nlisten = [{listen}]\n[[site.route]]\nfiles = '{root}/www'\n"
            )
        };
        let socket = format!("{{ unix = '{root}/socket' }}");
        let mut server = serve_config(&tree, &config(&format!("'127.0.0.1:0', {socket}")));
        let mut client = connect(&server);
        assert_eq!(client.ask("/a.txt").unwrap().status, 200);
        tree.write("samum.toml", config(&socket).as_str());
        server.signal(Signal::HUP).unwrap();
        assert!(
            server.wait_for_stderr("loaded the configuration", SOON).is_some(),
            "{:?}",
            server.stderr()
        );
        let stream = client.get("/a.txt").unwrap();
        assert_eq!(client.reply(stream).unwrap().body, b"a file");
        client.read_to_end().unwrap();
        assert_eq!(client.goaways.last().map(|last| last.1), Some(NO_ERROR));
        let is_gone = || std::net::TcpStream::connect(tcp_address(&server)).is_err();
        assert!(wait_until(SOON, is_gone));
    });
}

/// A client whose windows are closed holds up its own streams, and not for ever.
#[test]
fn streams_without_a_window_are_reset() {
    let tree = Tree::new().file("large", Content::pseudo_random(1, 500_000));
    on_both_drivers_at_once(|driver| {
        let options = ["--timeout-send", "1", "--timeout-header", "1"];
        let server = serve(driver, tree.path(), &options);
        let mut client = connect(&server);
        client.keep_windows();
        let stream = client.get("/large").unwrap();
        // The connection ends, or only the stream does.
        while client.so_far(stream).reset.is_none() {
            if client.take_frame().is_err() {
                break;
            }
        }
        assert!(!client.so_far(stream).has_ended);
    });
}

/// A hundred bodies that come by a byte a second each are not waited for.
#[test]
fn uploads_that_are_too_slow_are_given_up() {
    on_both_drivers_at_once(|driver| {
        let tree = Tree::new().directory("cgi");
        crate::common::stage::script(&tree, "cat", "printf 'Content-Type: a/b\\n\\n'; exec cat");
        let root = tree.path().display().to_string();
        let server = serve_config(
            &tree,
            &format!(
                "[server]\nthreads = 1\ndriver = '{driver}'\ntimeout-header = 1\nrate-min = 1000\n\
                 [[site]]\nlisten = ['127.0.0.1:0']\n[[site.route]]\ncgi = '{root}/cgi'\n"
            ),
        );
        let mut client = connect(&server);
        let mut streams = Vec::new();
        for _ in 0..100 {
            let fields = testkit::http2::pseudo("POST", "/cat");
            streams.push(client.request(fields, false).unwrap());
        }
        client.stream().set_read_timeout(Some(Duration::from_millis(10))).unwrap();
        let mut count = 0;
        // A part of them at a time has programs.
        let has_ended = wait_until(4 * SOON, || {
            count += 1;
            if count % 100 == 0
                && streams.iter().any(|id| client.frame(kind::DATA, 0, *id, b"x").is_err())
            {
                return true;
            }
            let is_over = |error: std::io::Error| {
                !matches!(
                    error.kind(),
                    std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut
                )
            };
            thread::sleep(Duration::from_millis(10));
            client.take_frame().is_err_and(is_over)
                || streams.iter().all(|id| client.so_far(*id).is_over())
        });
        assert!(has_ended, "the uploads go on");
    });
}
