//! Streams at the same time: their order, their ends, their lines in the log.

use core::time::Duration;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::thread;

use testkit::http2::{Http2, kind, pseudo};
use testkit::metrics::Metrics;
use testkit::{Content, Op, Server, SlowFs, Tree, or_skip};

use super::{Certified, connect};
use crate::common::stage::script;
use crate::common::{SOON, on_both_drivers, serve, serve_config, tcp_address, wait_until};
use crate::tls::Authority;

const CANCEL: u32 = 8;

/// A page of many files, some of which are cold: the disk sleeps until it is woken.
#[test]
fn cold_files_hold_up_none_of_the_hot_ones() {
    const HOT: usize = 60;
    const COLD: usize = 20;
    let file = |name: &str| Content::pseudo_random(name.len() as u64, 30_000);
    let certified = Certified::new();
    on_both_drivers(|driver| {
        for is_secure in [false, true] {
            let mut builder = SlowFs::builder();
            for number in 0..HOT {
                builder = builder.file(format!("hot/{number}"), file("hot"));
            }
            for number in 0..COLD {
                builder = builder.file(format!("cold/{number}"), file("cold"));
            }
            let slow =
                or_skip!(builder.cache_attributes(Duration::from_secs(60)).keep_data().mount());
            let options = if is_secure { vec!["--tls", &certified.files] } else { vec![] };
            let server = serve(driver, slow.path(), &options);
            if is_secure {
                let client = Http2::new(certified.connect(&server), &[]).unwrap();
                ask_for_page(&slow, client, HOT, COLD, &file("hot"), &file("cold"));
            } else {
                ask_for_page(&slow, connect(&server), HOT, COLD, &file("hot"), &file("cold"));
            }
        }
    });
}

fn ask_for_page<S: std::io::Read + std::io::Write>(
    slow: &SlowFs,
    mut client: Http2<S>,
    hot: usize,
    cold: usize,
    hot_file: &Content,
    cold_file: &Content,
) {
    for _ in 0..2 {
        for number in 0..hot {
            hot_file.assert_is(&client.ask(&format!("/hot/{number}")).unwrap().body);
        }
    }
    for number in 0..cold {
        slow.set_delay_of(format!("cold/{number}"), Op::Read, Duration::MAX);
    }
    let (mut hots, mut colds) = (Vec::new(), Vec::new());
    for number in 0..hot {
        if number < cold {
            colds.push(client.get(&format!("/cold/{number}")).unwrap());
        }
        hots.push(client.get(&format!("/hot/{number}")).unwrap());
    }
    for stream in hots {
        let reply = client.reply(stream).unwrap();
        assert_eq!(reply.status, 200);
        hot_file.assert_is(&reply.body);
    }
    assert!(slow.wait_until_waiting(Op::Read, 1, SOON), "nothing is read");
    for stream in &colds {
        assert!(!client.so_far(*stream).is_over(), "the disk sleeps");
    }
    for number in 0..cold {
        slow.set_delay_of(format!("cold/{number}"), Op::Read, Duration::ZERO);
    }
    for stream in colds {
        cold_file.assert_is(&client.reply(stream).unwrap().body);
    }
}

/// A failure of a disk in the middle of a response resets its stream, and no other.
#[test]
fn a_file_that_cannot_be_read_resets_its_stream_alone() {
    on_both_drivers(|driver| {
        let builder = SlowFs::builder()
            .file("bad", Content::pseudo_random(1, 3_000_000))
            .file("good", Content::pseudo_random(2, 50_000));
        let slow = or_skip!(builder.mount());
        let server = serve(driver, slow.path(), &[]);
        let mut client = connect(&server);
        client.keep_windows();
        let bad = client.get("/bad").unwrap();
        while client.so_far(bad).body.len() < 65_535 {
            client.take_frame().unwrap();
        }
        slow.fail_reads("bad");
        let mut more = Vec::new();
        for stream in [0, bad] {
            let count = 4_000_000_u32.to_be_bytes();
            testkit::http2::push_frame(kind::WINDOW_UPDATE, 0, stream, &count, &mut more);
        }
        client.send(&more).unwrap();
        let reply = client.reply(bad).unwrap();
        assert_eq!((reply.status, reply.reset), (200, Some(2)), "INTERNAL_ERROR");
        let reply = client.ask("/good").unwrap();
        Content::pseudo_random(2, 50_000).assert_is(&reply.body);
    });
}

#[test]
fn urgent_responses_come_first_and_incremental_ones_take_turns() {
    let file = |seed| Content::pseudo_random(seed, 32_000);
    let names = ["a", "b", "page.html", "picture.png"];
    let tree = (1..).zip(names).fold(Tree::new(), |tree, (seed, name)| tree.file(name, file(seed)));
    on_both_drivers(|driver| {
        let server = serve(driver, tree.path(), &[]);
        // They are in memory from now on.
        for name in names.repeat(3) {
            assert_eq!(connect(&server).ask(&format!("/{name}")).unwrap().status, 200);
        }
        let ask = |client: &mut Http2, paths: &[(&str, &str)]| {
            let streams: Vec<_> = paths
                .iter()
                .map(|(path, priority)| {
                    let mut fields = pseudo("GET", path);
                    if !priority.is_empty() {
                        fields.push(("priority", *priority));
                    }
                    client.request(fields, true).unwrap()
                })
                .collect();
            streams
        };
        // The window is closed until all requests have been read.
        let settings = [(4, 0)];
        let finish = |client: &mut Http2, streams: &[u32]| {
            client.frame(kind::PING, 0, 0, b"all read").unwrap();
            while client.pongs == 0 {
                client.take_frame().unwrap();
            }
            client.order.clear();
            let mut bytes = Vec::new();
            let wide = testkit::http2::settings_payload(&[(4, 1 << 20)]);
            testkit::http2::push_frame(kind::SETTINGS, 0, 0, &wide, &mut bytes);
            let more = (1_u32 << 20).to_be_bytes();
            testkit::http2::push_frame(kind::WINDOW_UPDATE, 0, 0, &more, &mut bytes);
            client.send(&bytes).unwrap();
            for stream in streams {
                assert!(client.reply(*stream).unwrap().has_ended);
            }
            core::mem::take(&mut client.order)
        };
        let open = || {
            let stream = std::net::TcpStream::connect(tcp_address(&server)).unwrap();
            stream.set_nodelay(true).unwrap();
            Http2::new(stream, &settings).unwrap()
        };
        // As the client wishes: the second before the first, each as a whole.
        let mut client = open();
        let streams = ask(&mut client, &[("/a", "u=5"), ("/b", "u=1")]);
        assert_eq!(finish(&mut client, &streams), [streams[1], streams[0]]);
        // Of the same urgency they take turns, or come one after the other.
        let mut client = open();
        let streams = ask(&mut client, &[("/a", "u=2, i"), ("/b", "u=2, i")]);
        assert_eq!(finish(&mut client, &streams), [streams.clone(), streams].concat());
        let mut client = open();
        let streams = ask(&mut client, &[("/a", "u=2, i=?0"), ("/b", "u=2, i=?0")]);
        assert_eq!(finish(&mut client, &streams), streams);
        // Without a wish documents come before pictures.
        let mut client = open();
        let streams = ask(&mut client, &[("/picture.png", ""), ("/page.html", "")]);
        assert_eq!(finish(&mut client, &streams), [streams[1], streams[0]]);
        // An update of the priority counts, also for a stream that is open.
        let mut client = open();
        let streams = ask(&mut client, &[("/a", "u=1"), ("/b", "u=5")]);
        let update = [&streams[0].to_be_bytes()[..], b"u=7"].concat();
        client.frame(16, 0, 0, &update).unwrap();
        assert_eq!(finish(&mut client, &streams), [streams[1], streams[0]]);
    });
}

#[test]
fn the_log_and_the_metrics_have_each_stream() {
    on_both_drivers(|driver| {
        let tree = Tree::new().directory("cgi").file("www/a.txt", "a file");
        script(&tree, "slow", "sleep 60; printf 'Content-Type: a/b\\n\\nlate'");
        let root = tree.path().display().to_string();
        let server = serve_config(
            &tree,
            &format!(
                "[server]\nthreads = 1\ndriver = '{driver}'\n\
                 [[site]]\nlisten = ['127.0.0.1:0']\nlog = '{root}/log'\n\
                 [[site.route]]\nfiles = '{root}/www'\n\
                 [[site.route]]\npath = '/tool/'\ncgi = '{root}/cgi'\n\
                 [[site.route]]\npath = '/metrics'\nmetrics = true\n"
            ),
        );
        let mut client = connect(&server);
        let streams: Vec<_> = ["/a.txt", "/none", "/tool/slow"]
            .iter()
            .map(|path| client.get(path).unwrap())
            .collect();
        assert_eq!(client.reply(streams[0]).unwrap().body, b"a file");
        assert_eq!(client.reply(streams[1]).unwrap().status, 404);
        client.frame(kind::RST_STREAM, 0, streams[2], &CANCEL.to_be_bytes()).unwrap();
        let mut sum = |name, labels: &[(&str, &str)]| {
            let page = client.ask("/metrics").unwrap();
            let metrics = Metrics::parse(str::from_utf8(&page.body).unwrap()).unwrap();
            metrics.sum(name, labels).to_string()
        };
        // The numbers of a turn are shown at its end.
        let is_reset = || sum("samum_http2_streams_reset_total", &[("reason", "client")]) == "1";
        assert!(wait_until(SOON, is_reset));
        assert_eq!(sum("samum_http2_connections_total", &[]), "1");
        let log = || fs::read_to_string(tree.path().join("log")).unwrap_or_default();
        let lines = [
            "\"GET /a.txt HTTP/2.0\" 200 6",
            "\"GET /none HTTP/2.0\" 404",
            "\"GET /tool/slow HTTP/2.0\" 499",
        ];
        let is_there = || lines.iter().all(|line| log().contains(line));
        assert!(wait_until(SOON, is_there), "{}", log());
    });
}

#[test]
fn a_preface_that_contradicts_the_handshake_is_refused() {
    let tree = Tree::new().file("a.txt", "a file");
    let certified = Certified::new();
    on_both_drivers(|driver| {
        use std::io::{Read as _, Write as _};
        let server = serve(driver, tree.path(), &["--tls", &certified.files]);
        let address = tcp_address(&server);
        let said = |protocols: &[&str], bytes: &[u8]| {
            let client = certified.authority.connect_offering(address, "localhost", protocols);
            let mut client = client.unwrap();
            client.write_all(bytes).unwrap();
            let mut said = Vec::new();
            // The server may end the connection without an alert.
            let _ = client.read_to_end(&mut said);
            said
        };
        for protocols in [&["http/1.1"][..], &[]] {
            let said = said(protocols, testkit::http2::PREFACE);
            assert!(said.starts_with(b"HTTP/1.1 505 "), "{}", said.escape_ascii());
        }
        let said = said(&["h2"], b"GET /a.txt HTTP/1.1\r\nHost: localhost\r\n\r\n");
        let goaway = b"\0\0\0\0\0\0\0\0\x01";
        assert!(said.windows(goaway.len()).any(|it| it == goaway), "{}", said.escape_ascii());
        assert!(!said.starts_with(b"HTTP"), "{}", said.escape_ascii());
    });
}

#[test]
fn a_listener_without_http2_refuses_it() {
    let tree = Tree::new().file("a.txt", "a file");
    let certified = Certified::new();
    on_both_drivers(|driver| {
        let plain = serve(driver, tree.path(), &["--no-http2"]);
        let said = crate::common::ask_raw(&plain, testkit::http2::PREFACE);
        assert!(said.starts_with(b"HTTP/1.1 505 "), "{}", said.escape_ascii());
        let secure = serve(driver, tree.path(), &["--no-http2", "--tls", &certified.files]);
        let offer = |protocols| {
            let address = tcp_address(&secure);
            certified.authority.connect_offering(address, "localhost", protocols)
        };
        assert!(offer(&["h2"]).is_err());
        let client = offer(&["h2", "http/1.1"]).unwrap();
        assert_eq!(client.conn.alpn_protocol(), Some(&b"http/1.1"[..]));
    });
}

/// A server whose clients may ask three times, and then once in an hour.
fn serve_three(tree: &Tree, driver: &str) -> Server {
    let root = tree.path().display().to_string();
    serve_config(
        tree,
        &format!(
            "[server]\nthreads = 1\ndriver = '{driver}'\n\
             [[site]]\nlisten = ['127.0.0.1:0']\n\
             [[site.route]]\nfiles = '{root}/www'\nlimits = {{ requests-per-ip = '1/h burst 3' }}\n"
        ),
    )
}

/// The address rules and the limits of a route hold for each stream.
#[test]
fn limits_count_each_stream() {
    on_both_drivers(|driver| {
        let tree = Tree::new().file("www/a.txt", "a file");
        let server = serve_three(&tree, driver);
        let mut client = connect(&server);
        let streams: Vec<_> = (0..6).map(|_| client.get("/a.txt").unwrap()).collect();
        let statuses: Vec<_> =
            streams.iter().map(|stream| client.reply(*stream).unwrap().status).collect();
        assert_eq!(statuses[..3], [200; 3], "{statuses:?}");
        assert_eq!(statuses[5], 429, "{statuses:?}");
    });
}

/// The handler is asked about a request whose body nothing takes when the body has come. The request counts then.
#[test]
fn limits_count_requests_whose_bodies_nothing_takes() {
    on_both_drivers(|driver| {
        let tree = Tree::new().file("www/a.txt", "a file");
        let server = serve_three(&tree, driver);
        let mut client = connect(&server);
        let statuses: Vec<_> = (0..6)
            .map(|_| {
                let stream = client.request(pseudo("GET", "/a.txt"), false).unwrap();
                client.upload(stream, b"x", &[]).unwrap();
                client.reply(stream).unwrap().status
            })
            .collect();
        assert_eq!(statuses, [200, 200, 200, 429, 429, 429]);
    });
}

/// Each stream has to be for a host of the handshake's site, or of one with the same certificate and rules.
#[test]
fn a_stream_for_a_host_of_another_certificate_is_misdirected() {
    on_both_drivers(|driver| {
        let (authority, tree) = (Authority::new(), Tree::new().file("www/a.txt", "a file"));
        authority.issue(&["a.test", "c.test"]).put(&tree, "a");
        authority.issue(&["b.test"]).put(&tree, "b");
        let site = |host: &str, name: &str| {
            format!(
                "[[site]]\nlisten = [{{ address = '127.0.0.1:0', tls = true }}]\nhosts = {host}\n\
                 tls = {{ certificate = '{name}.pem', key = '{name}.key' }}\n\
                 [[site.route]]\nfiles = 'www'\n"
            )
        };
        let server = serve_config(
            &tree,
            &format!(
                "[server]\nthreads = 1\ndriver = '{driver}'\n{}{}",
                site("['a.test', 'c.test']", "a"),
                site("['b.test']", "b")
            ),
        );
        let address = tcp_address(&server);
        let stream = authority.connect_offering(address, "a.test", &["h2"]).unwrap();
        let mut client = Http2::new(stream, &[]).unwrap();
        for (host, status) in [("a.test", 200), ("b.test", 421), ("c.test", 200), ("a.test", 200)] {
            let fields = [
                (":method", "GET"),
                (":scheme", "https"),
                (":authority", host),
                (":path", "/a.txt"),
            ];
            let stream = client.request(fields, true).unwrap();
            assert_eq!(client.reply(stream).unwrap().status, status, "{host}");
        }
    });
}

/// A rate is that of all streams of its route together, and slows no others.
#[test]
fn streams_of_a_route_share_its_rate() {
    on_both_drivers(|driver| {
        let file = || Content::pseudo_random(1, 200_000);
        let tree = Tree::new().file("slow/a", file()).file("fast/a", file());
        let root = tree.path().display().to_string();
        let server = serve_config(
            &tree,
            &format!(
                "[server]\nthreads = 1\ndriver = '{driver}'\n[[site]]\nlisten = ['127.0.0.1:0']\n\
                 [[site.route]]\npath = '/fast/'\nfiles = '{root}/fast'\n\
                 [[site.route]]\npath = '/slow/'\nfiles = '{root}/slow'\n\
                 limits = {{ bytes-per-connection = '200KB/s' }}\n"
            ),
        );
        let mut client = connect(&server);
        let began = std::time::Instant::now();
        let slow: Vec<_> = (0..2).map(|_| client.get("/slow/a").unwrap()).collect();
        let fast: Vec<_> = (0..5).map(|_| client.get("/fast/a").unwrap()).collect();
        for stream in fast {
            file().assert_is(&client.reply(stream).unwrap().body);
        }
        assert!(slow.iter().any(|stream| !client.so_far(*stream).is_over()), "no rate");
        for stream in slow {
            file().assert_is(&client.reply(stream).unwrap().body);
        }
        // What may be sent in the first quarter of a second comes at once.
        assert!(began.elapsed() >= Duration::from_millis(1500), "{:?}", began.elapsed());
    });
}

/// The failure of an upstream or of a program can come together with the last bytes of its response.
#[test]
fn a_response_that_breaks_off_has_no_end() {
    const BROKEN: &[u8] = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcX";
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let upstream = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(BROKEN);
        }
    });
    on_both_drivers(|driver| {
        let tree = Tree::new().directory("cgi");
        script(&tree, "killed", "printf 'Content-Type: a/b\\n\\nabc'; kill -9 $$");
        let config = format!(
            "[server]\nthreads = 1\ndriver = \"{driver}\"\n[[site]]\nlisten = [\"127.0.0.1:0\"]\n\
             [[site.route]]\npath = \"/cgi/\"\ncgi = \"{}\"\n\
             [[site.route]]\nproxy = \"http://{upstream}\"\n",
            tree.path().join("cgi").display()
        );
        let server = serve_config(&tree, &config);
        for path in ["/broken", "/cgi/killed"] {
            let reply = connect(&server).ask(path).unwrap();
            assert!(b"abc".starts_with(&reply.body), "{path}: {reply:?}");
            assert_eq!((reply.has_ended, reply.reset), (false, Some(2)), "{path}: INTERNAL_ERROR");
        }
    });
}

/// Nothing of these could be passed on to an upstream in HTTP/1.
#[test]
fn requests_that_only_http2_can_malform_are_reset_alone() {
    let tree = Tree::new().file("a.txt", "a file");
    on_both_drivers(|driver| {
        let server = serve(driver, tree.path(), &[]);
        let mut client = connect(&server);
        const PROTOCOL_ERROR: u32 = 1;
        let with = |field: (&'static str, &'static str)| {
            let mut fields = pseudo("GET", "/a.txt");
            fields.push(field);
            fields
        };
        for fields in [
            with(("connection", "close")),
            with(("transfer-encoding", "chunked")),
            with(("X-Upper", "1")),
            with(("te", "gzip")),
            with((":path", "/a.txt")),
            with(("host", "other.test")),
            with(("x-line", "a\r\nx: y")),
            with(("content-length", "5")),
            pseudo("GET", "a.txt"),
            pseudo("GET", ""),
        ] {
            let stream = client.request(fields.clone(), true).unwrap();
            let reply = client.reply(stream).unwrap();
            assert_eq!(reply.reset, Some(PROTOCOL_ERROR), "{fields:?}");
        }
        assert_eq!(client.ask("/a.txt").unwrap().body, b"a file");
    });
}
