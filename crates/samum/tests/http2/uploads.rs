//! Bodies of requests, with credit: programs and upstreams that take them, fast, slowly, or not.

use core::time::Duration;

use testkit::http2::{Http2, pseudo};
use testkit::{Content, Server, Tree};

use super::{Certified, connect};
use crate::common::stage::script;
use crate::common::{SOON, on_both_drivers, serve_config, tcp_address, wait_until};

const CANCEL: u32 = 8;

/// A server with programs, and another server in front of it.
struct Stage {
    front: Server,
    _back: Server,
    _trees: (Tree, Tree),
}

fn stage(driver: &str, certified: Option<&Certified>) -> Stage {
    let (back, front) = (Tree::new().directory("cgi"), Tree::new().directory("cgi"));
    for tree in [&back, &front] {
        script(tree, "cat", "printf 'Content-Type: a/b\\n\\n'; exec cat");
        script(tree, "sum", "printf 'Content-Type: a/b\\n\\n'; exec md5sum");
        script(tree, "slow", "sleep 0.5; printf 'Content-Type: a/b\\n\\n'; exec md5sum");
        script(tree, "deaf", "printf 'Content-Type: a/b\\n\\nno'; exec 0</dev/null");
        script(
            tree,
            "facts",
            "printf 'Content-Type: a/b\\n\\n%s %s %s' \"$SERVER_PROTOCOL\" \"$HTTP_HOST\" \"$HTTP_COOKIE\"",
        );
    }
    let route =
        |tree: &Tree| format!("cgi = '{}/cgi'\nmax-body = 20000000\n", tree.path().display());
    let head = format!("[server]\nthreads = 1\ndriver = '{driver}'\n[[site]]\n");
    let server = serve_config(
        &back,
        &format!("{head}listen = ['127.0.0.1:0']\n[[site.route]]\n{}", route(&back)),
    );
    let tls = certified.map_or_else(String::new, |it| {
        let (certificate, key) = it.files.split_once(',').unwrap();
        format!("tls = {{ certificate = '{certificate}', key = '{key}' }}\n")
    });
    let config = format!(
        "{head}listen = [{{ address = '127.0.0.1:0', tls = {} }}]\n{tls}\
         [[site.route]]\npath = '/own/'\n{}\
         [[site.route]]\npath = '/short/'\n{}\
         [[site.route]]\npath = '/far/'\nproxy = 'http://{}/'\nmax-body = 20000000\n",
        certified.is_some(),
        route(&front),
        route(&front).replace("20000000", "1000"),
        tcp_address(&server),
    );
    Stage { front: serve_config(&front, &config), _back: server, _trees: (back, front) }
}

fn bytes(seed: u64, length: usize) -> Vec<u8> {
    Content::pseudo_random(seed, length as u64).read(0, length)
}

fn check_uploads<S: std::io::Read + std::io::Write>(client: &mut Http2<S>) {
    for path in ["/own/cat", "/far/cat"] {
        for length in [0, 1, 65_535, 65_536, 3_000_000] {
            for is_announced in [true, false] {
                let body = bytes(length as u64, length);
                let said = length.to_string();
                let mut fields = pseudo("POST", path);
                if is_announced {
                    fields.push(("content-length", &said));
                }
                let stream = client.request(fields, false).unwrap();
                client.upload(stream, &body, &[]).unwrap();
                let reply = client.reply(stream).unwrap();
                assert_eq!(reply.status, 200, "{path} {length}");
                assert!(reply.body == body, "{path} {length}: {} bytes", reply.body.len());
            }
        }
    }
}

#[test]
fn bodies_reach_programs_and_upstreams_whole() {
    let certified = Certified::new();
    on_both_drivers(|driver| {
        let stage = stage(driver, None);
        check_uploads(&mut connect(&stage.front));
        let secure = self::stage(driver, Some(&certified));
        check_uploads(&mut Http2::new(certified.connect(&secure.front), &[]).unwrap());
    });
}

/// Several uploads of one connection at the same time, one of which is taken late.
#[test]
fn a_slow_consumer_holds_up_no_other_upload() {
    on_both_drivers(|driver| {
        let stage = stage(driver, None);
        let mut client = connect(&stage.front);
        let body = bytes(7, 300_000);
        let open = |client: &mut Http2, path| client.request(pseudo("POST", path), false).unwrap();
        let slow = open(&mut client, "/own/slow");
        let fast = open(&mut client, "/own/sum");
        client.upload(fast, &body, &[]).unwrap();
        let fast = client.reply(fast).unwrap();
        client.upload(slow, &body, &[("x-after", "1")]).unwrap();
        let slow = client.reply(slow).unwrap();
        assert_eq!((slow.status, fast.status), (200, 200));
        assert_eq!(slow.body, fast.body, "the same bytes");
    });
}

#[test]
fn bodies_that_are_too_long_or_unwanted_end_only_their_streams() {
    on_both_drivers(|driver| {
        let stage = stage(driver, None);
        let mut client = connect(&stage.front);
        let mut fields = pseudo("POST", "/short/cat");
        fields.push(("content-length", "1001"));
        let announced = client.request(fields, false).unwrap();
        assert_eq!(client.reply(announced).unwrap().status, 413);
        let unannounced = client.request(pseudo("POST", "/short/cat"), false).unwrap();
        client.upload(unannounced, &bytes(1, 50_000), &[]).unwrap();
        assert_eq!(client.reply(unannounced).unwrap().status, 413);
        // A program that does not read its body answers all the same.
        let deaf = client.request(pseudo("POST", "/own/deaf"), false).unwrap();
        client.upload(deaf, &bytes(2, 200_000), &[]).unwrap();
        let reply = client.reply(deaf).unwrap();
        assert!(reply.status == 200 && reply.body == b"no", "{reply:?}");
        assert_eq!(client.ask("/own/sum").unwrap().status, 200, "the connection goes on");
        assert!(client.goaways.is_empty());
    });
}

#[test]
fn a_client_that_waits_for_an_invitation_gets_one() {
    on_both_drivers(|driver| {
        let stage = stage(driver, None);
        let mut client = connect(&stage.front);
        for path in ["/own/cat", "/far/cat"] {
            let mut fields = pseudo("POST", path);
            fields.extend([("content-length", "5"), ("expect", "100-continue")]);
            let stream = client.request(fields, false).unwrap();
            while client.so_far(stream).interim.is_empty() {
                client.take_frame().unwrap();
            }
            client.upload(stream, b"hello", &[]).unwrap();
            let reply = client.reply(stream).unwrap();
            assert_eq!((reply.interim, &reply.body[..]), (vec![100], &b"hello"[..]), "{path}");
        }
    });
}

/// Crumbs of a cookie are one field, and a program gets the host of the authority.
#[test]
fn programs_get_the_facts_of_a_request() {
    on_both_drivers(|driver| {
        let stage = stage(driver, None);
        let mut client = connect(&stage.front);
        let mut fields = pseudo("GET", "/own/facts");
        fields.extend([("cookie", "a=1"), ("cookie", "b=2")]);
        let stream = client.request(fields.clone(), true).unwrap();
        assert_eq!(client.reply(stream).unwrap().body, b"HTTP/2.0 localhost a=1; b=2");
        fields[3].1 = "/far/facts";
        let stream = client.request(fields, true).unwrap();
        let body = client.reply(stream).unwrap().body;
        let body = String::from_utf8(body).unwrap();
        assert!(body.starts_with("HTTP/1.1 ") && body.ends_with(" a=1; b=2"), "{body}");
    });
}

/// More requests for gateways than one connection may occupy: all are answered.
#[test]
fn more_requests_for_programs_than_run_at_once_are_all_answered() {
    on_both_drivers(|driver| {
        let stage = stage(driver, None);
        let mut client = connect(&stage.front);
        client.stream().set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let streams: Vec<_> = (0..90).map(|_| client.get("/own/facts").unwrap()).collect();
        for stream in streams {
            let reply = client.reply(stream).unwrap();
            assert!(reply.status == 200 || reply.status == 503, "{reply:?}");
        }
    });
}

/// A server whose clients have little time.
fn hurried(driver: &str, tree: &Tree) -> Server {
    script(tree, "cat", "printf 'Content-Type: a/b\\n\\n'; exec cat");
    script(tree, "first", "printf 'Content-Type: a/b\\n\\nhello'; cat >/dev/null");
    let config = format!(
        "[server]\nthreads = 1\ndriver = '{driver}'\ntimeout-send = 1\ntimeout-header = 1\n\
         rate-min = 1000\n[[site]]\nlisten = ['127.0.0.1:0']\n\
         [[site.route]]\nstatus = {{ code = 200, text = 'a' }}\n\
         [[site.route]]\npath = '/own/'\ncgi = '{}/cgi'\nmax-body = 20000000\n",
        tree.path().display()
    );
    serve_config(tree, &config)
}

/// Asks with a body of which only a part comes.
fn stall(client: &mut Http2, path: &str, said: &str, sent: usize) -> u32 {
    let mut fields = pseudo("POST", path);
    fields.push(("content-length", said));
    let stream = client.request(fields, false).unwrap();
    client.upload_part(stream, &bytes(1, sent)).unwrap();
    stream
}

#[test]
fn a_connection_whose_only_upload_stalls_ends_with_an_answer() {
    on_both_drivers(|driver| {
        let tree = Tree::new().directory("cgi");
        let server = hurried(driver, &tree);
        let mut client = connect(&server);
        let stream = stall(&mut client, "/own/cat", "100", 10);
        client.read_to_end().unwrap();
        let reply = client.so_far(stream);
        assert!(reply.status == 408 && reply.has_ended, "{reply:?}");
        assert_eq!(client.goaways.last(), Some(&(stream, 0)));
        // A frame of which nothing more comes.
        let mut client = connect(&server);
        client.send(b"\0\0\x01\x01").unwrap();
        client.read_to_end().unwrap();
        assert_eq!(client.goaways, [(0, 0)]);
    });
}

#[test]
fn an_upload_that_stalls_ends_alone() {
    on_both_drivers(|driver| {
        let tree = Tree::new().directory("cgi");
        let server = hurried(driver, &tree);
        let mut client = connect(&server);
        let asked = stall(&mut client, "/own/cat", "100", 10);
        let begun = stall(&mut client, "/own/first", "3000000", 2_000_000);
        while client.so_far(begun).body != b"hello" {
            client.take_frame().unwrap();
        }
        let are_over = |client: &mut Http2| {
            assert_eq!(client.ask("/a").unwrap().status, 200);
            client.so_far(asked).is_over() && client.so_far(begun).is_over()
        };
        assert!(wait_until(SOON, || are_over(&mut client)));
        let (asked, begun) = (client.so_far(asked), client.so_far(begun));
        assert!(asked.status == 408 && asked.has_ended, "{asked:?}");
        assert_eq!((begun.status, begun.reset), (200, Some(CANCEL)));
        assert!(client.goaways.is_empty());
    });
}

/// The rest of a body after its response is taken as with HTTP/1.1, up to a limit, and then the client is told.
#[test]
fn the_rest_of_a_body_behind_its_response_is_taken_up_to_a_limit() {
    on_both_drivers(|driver| {
        let tree = Tree::new().directory("cgi");
        let server = hurried(driver, &tree);
        let mut client = connect(&server);
        for (length, is_unwanted) in [(900_000, false), (3_000_000, true)] {
            let stream = client.request(pseudo("POST", "/a"), false).unwrap();
            client.upload_part(stream, &bytes(1, 50_000)).unwrap();
            let reply = client.reply(stream).unwrap();
            assert_eq!((reply.status, reply.is_rest_unwanted), (200, false));
            client.upload(stream, &bytes(1, length), &[]).unwrap();
            assert_eq!(client.so_far(stream).is_rest_unwanted, is_unwanted, "{length}");
            assert_eq!(client.ask("/a").unwrap().status, 200);
        }
        // A client that sends nothing more is told later.
        let stream = client.request(pseudo("POST", "/a"), false).unwrap();
        client.upload_part(stream, &bytes(1, 50_000)).unwrap();
        while !client.so_far(stream).is_rest_unwanted {
            client.take_frame().unwrap();
        }
        assert_eq!(client.ask("/a").unwrap().status, 200);
        assert!(client.goaways.is_empty());
    });
}
