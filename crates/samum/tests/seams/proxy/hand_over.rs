//! Requests that a server hands over to files of the site: it authorises, and the file is sent as if the
//! client had asked for it.

use config::{FileRules, Files, Route};

use super::*;

const FILE: &[u8] = b"0123456789";

/// A site with a route of files that is reached by hand-over only, and an open one with a longer directory.
fn stage(sim: SimConfig) -> Stage {
    let world = World::new(sim);
    for directory in ["srv", "srv/files", "srv/files/open", "srv/files/.hidden"] {
        world.make_dir(directory);
    }
    for path in ["a.txt", "open/b.txt", ".hidden/c.txt", "d e.bin"] {
        world.write_file(&format!("srv/files/{path}"), FILE);
    }
    world.write_file("srv/secret", b"secret");
    world.evict_all();
    Stage::in_world(
        world,
        |_| {},
        |site| {
            for (path, root, is_internal) in
                [("/internal/", "/srv/files", true), ("/open/", "/srv/files/open", false)]
            {
                let files = Files { root: root.into(), rules: FileRules::default() };
                let path = path.to_owned();
                let action = Action::Files(files);
                site.routes.push(Route { path, is_internal, action, ..Route::default() });
            }
        },
    )
}

/// Sends a request, lets the server answer it with these fields, and gives the response. The link is kept.
fn hand_over(
    stage: &mut Stage,
    (client, server): (&mut Client, &mut Option<Peer>),
    request: &str,
    fields: &str,
) -> Response {
    client.peer.send(request.as_bytes());
    let server = server.get_or_insert_with(|| stage.accept());
    stage.request(server);
    let fields = fields.strip_prefix("HTTP/1.1 ").unwrap_or(fields);
    let (status, fields) = fields.split_once(" OK\r\n").unwrap_or(("200", fields));
    let content = match status {
        "204" | "304" => "\r\n",
        _ => "Content-Length: 7\r\n\r\nignored",
    };
    server.send(format!("HTTP/1.1 {status} OK\r\n{fields}{content}").as_bytes());
    let response = stage.response(client);
    assert!(!response.head.contains("X-Accel") && !response.head.contains("X-Sendfile"));
    response
}

fn get(fields: &str) -> String {
    format!("GET /app HTTP/1.1\r\nHost: a\r\n{fields}\r\n")
}

#[test]
fn a_file_is_sent_in_the_place_of_an_answer() {
    in_worlds(5, |sim| {
        let mut stage = stage(SimConfig { faults: Faults::default(), ..sim });
        let (mut client, mut server) = (stage.client(), None);
        for (fields, bytes) in [
            ("X-Accel-Redirect: /internal/a.txt\r\n", FILE),
            ("X-Accel-Redirect: /internal/d%20e.bin?query\r\n", FILE),
            ("X-Accel-Redirect: /internal/d e.bin\r\n", FILE),
            ("X-Accel-Redirect: /open/b.txt\r\n", FILE),
            ("X-Sendfile: /srv/files/a.txt\r\n", FILE),
            ("X-Sendfile: /srv/files//./d e.bin\r\n", FILE),
            ("X-Sendfile: /srv/files/open/b.txt\r\n", FILE),
        ] {
            let response = hand_over(&mut stage, (&mut client, &mut server), &get(""), fields);
            assert_eq!((response.status, &response.body[..]), (200, bytes), "{fields}");
            assert!(response.head.contains("\r\nETag: "), "{}", response.head);
        }
        // The fields of the server, and those of the file.
        let fields = "X-Accel-Redirect: /internal/a.txt\r\nContent-Type: a/b\r\nSet-Cookie: a=1\r\n\
                      Set-Cookie: b=2\r\nX-Powered-By: it\r\nCache-Control: private\r\n\
                      ETag: \"own\"\r\nContent-Disposition: attachment\r\n";
        let response = hand_over(&mut stage, (&mut client, &mut server), &get(""), fields);
        for kept in [
            "Content-Type: a/b",
            "Set-Cookie: a=1",
            "Set-Cookie: b=2",
            "Cache-Control: private",
            "Content-Disposition: attachment",
            "Content-Length: 10",
        ] {
            assert!(
                response.head.contains(&format!("\r\n{kept}\r\n")),
                "{kept}: {}",
                response.head
            );
        }
        assert!(!response.head.contains("X-Powered-By") && !response.head.contains("own"));
        let tag =
            response.head.lines().find_map(|line| line.strip_prefix("ETag: ")).expect("a tag");

        // Ranges, conditions and methods of the client.
        let accel = "X-Accel-Redirect: /internal/a.txt\r\nContent-Type: a/b\r\n";
        let response =
            hand_over(&mut stage, (&mut client, &mut server), &get("Range: bytes=2-4\r\n"), accel);
        assert_eq!((response.status, &response.body[..]), (206, &b"234"[..]), "{}", response.head);
        let condition = get(&format!("If-None-Match: {tag}\r\n"));
        let response = hand_over(&mut stage, (&mut client, &mut server), &condition, accel);
        assert_eq!(response.status, 304, "{}", response.head);
        let post = "POST /app HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nab";
        let response = hand_over(&mut stage, (&mut client, &mut server), post, accel);
        assert_eq!((response.status, &response.body[..]), (200, FILE));
        // Only GET and HEAD have conditions on what is sent (RFC 9110 §13.1.2), and GET alone has ranges (§14.2).
        for method in ["POST", "PUT", "DELETE", "BREW"] {
            for fields in [
                &format!("If-None-Match: {tag}"),
                "If-None-Match: *",
                "If-Match: \"other\"",
                "If-Modified-Since: Fri, 31 Dec 2100 00:00:00 GMT",
                "If-Unmodified-Since: Thu, 01 Jan 1970 00:00:00 GMT",
                "Range: bytes=2-4",
                "Range: bytes=99-\r\nRange: bytes=1-2",
            ] {
                let request = format!("{method} /app HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\n");
                let response = hand_over(&mut stage, (&mut client, &mut server), &request, accel);
                let found = (response.status, &response.body[..]);
                assert_eq!(found, (200, FILE), "{method} {fields}: {}", response.head);
            }
        }
        // The route itself is not there for clients, and no other has its paths.
        let server = server.expect("it was asked");
        client.peer.send(b"GET /internal/a.txt HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(stage.response(&mut client).status, 404);
        let told = "samum: 404 for GET a/internal/a.txt: no route of the site has this path\n";
        assert_eq!((stage.stats().proxy_failed, stage.notes()), (0, told.to_owned()));
        stage.check_nothing_is_left(vec![client], vec![server]);
    });
}

/// nginx does so, too: the application may say by its status what it likes, and the client gets that of the file.
#[test]
fn a_response_of_any_status_hands_over() {
    in_worlds(3, |sim| {
        let mut stage = stage(SimConfig { faults: Faults::default(), ..sim });
        let (mut client, mut server) = (stage.client(), None);
        for status in [201, 204, 206, 302, 304, 401, 403, 404, 500, 503, 999] {
            let head = format!("HTTP/1.1 {status} OK\r\nX-Accel-Redirect: /internal/a.txt\r\n");
            let response = hand_over(&mut stage, (&mut client, &mut server), &get(""), &head);
            assert_eq!((response.status, &response.body[..]), (200, FILE), "{status}");
        }
        let head = "HTTP/1.1 404 OK\r\nX-Sendfile: /srv/files/a.txt\r\n";
        let range = get("Range: bytes=2-4\r\n");
        let response = hand_over(&mut stage, (&mut client, &mut server), &range, head);
        assert_eq!((response.status, &response.body[..]), (206, &b"234"[..]));
        assert_eq!((stage.stats().proxy_failed, stage.notes()), (0, String::new()));
        stage.check_nothing_is_left(vec![client], server.into_iter().collect());
    });
}

#[test]
fn what_is_no_file_of_a_route_is_refused() {
    in_worlds(3, |sim| {
        let sim = SimConfig { faults: Faults::default(), ..sim };
        for (field, status) in [
            ("X-Accel-Redirect: /app", 502),
            ("X-Accel-Redirect: /internal/.hidden/c.txt", 502),
            ("X-Accel-Redirect: /internal/../../secret", 502),
            ("X-Accel-Redirect: /internal/%2e%2e/secret", 502),
            ("X-Accel-Redirect: http://a/internal/a.txt", 502),
            ("X-Accel-Redirect: /internal", 502),
            ("X-Sendfile: /srv/secret", 502),
            ("X-Sendfile: /srv/files/../secret", 502),
            ("X-Sendfile: /srv/filesystem", 502),
            ("X-Sendfile: srv/files/a.txt", 502),
            ("X-Accel-Redirect: /internal/none", 404),
            ("X-Accel-Redirect: /internal/open/", 404),
            ("X-Sendfile: /srv/files/none", 404),
            ("X-Sendfile: /srv/files", 404),
        ] {
            let mut stage = stage(sim.clone());
            let (mut client, mut server) = (stage.client(), None);
            let response = hand_over(
                &mut stage,
                (&mut client, &mut server),
                &get(""),
                &format!("{field}\r\n"),
            );
            assert_eq!((response.status, response.whole), (status, true), "{field}");
            assert_eq!(stage.stats().proxy_failed, 1, "{field}");
            stage.check_told("X-");
            stage.check_nothing_is_left(vec![client], server.into_iter().collect());
        }
    });
}

/// Nobody waits for the content. It has little time, even if a part of it comes now and then.
#[test]
fn a_content_beside_a_file_that_does_not_end_ends_the_link_soon() {
    in_worlds(5, |sim| {
        let mut stage = stage(SimConfig { faults: Faults::default(), ..sim });
        for drips in [false, true] {
            let mut client = stage.client();
            let server = stage.ask(&client, get("").as_bytes());
            let accel = "X-Accel-Redirect: /internal/a.txt";
            server.send(
                format!("HTTP/1.1 200 OK\r\n{accel}\r\nContent-Length: 99\r\n\r\n").as_bytes(),
            );
            let response = stage.response(&mut client);
            assert_eq!((response.status, &response.body[..]), (200, FILE));
            for _ in 0..8 {
                assert!(server.end().is_none(), "it has a second");
                stage.pass(Duration::from_millis(100));
                if drips {
                    server.send(b"a");
                }
            }
            stage.pass(Duration::from_millis(500));
            assert!(server.end().is_some(), "drips: {drips}");
            assert_eq!((stage.stats().proxy_failed, stage.notes()), (0, String::new()));
            stage.pass(Duration::from_millis(50));
        }
    });
}

/// A content of no use is received as far as that costs less than another link.
#[test]
fn a_long_content_beside_a_file_ends_the_link() {
    in_worlds(5, |sim| {
        let mut stage = stage(SimConfig { faults: Faults::default(), ..sim });
        for (framing, length, is_kept) in [
            ("Content-Length: 7000", 7000, true),
            ("Content-Length: 70000", 70_000, false),
            ("Transfer-Encoding: chunked", 7000, true),
            ("Transfer-Encoding: chunked", 70_000, false),
        ] {
            let mut client = stage.client();
            let server = stage.ask(&client, get("").as_bytes());
            let accel = "X-Accel-Redirect: /internal/a.txt";
            server.send(format!("HTTP/1.1 200 OK\r\n{accel}\r\n{framing}\r\n\r\n").as_bytes());
            let content = "a".repeat(length);
            match framing.starts_with("Content-Length") {
                true => server.send(content.as_bytes()),
                false => server.send(format!("{length:x}\r\n{content}\r\n0\r\n\r\n").as_bytes()),
            }
            let response = stage.response(&mut client);
            assert_eq!((response.status, &response.body[..]), (200, FILE));
            stage.pass(Duration::from_millis(50));
            assert_eq!(server.end().is_none(), is_kept, "{framing} {length}");
            assert_eq!((stage.stats().proxy_failed, stage.notes()), (0, String::new()));
            server.close();
            stage.pass(Duration::from_millis(50));
        }
    });
}

/// Either may come first in a turn, and the request keeps its connection for as long as a file may take its place.
#[test]
fn a_client_that_leaves_as_its_response_comes_leaves_nothing() {
    let at_once = Duration::from_micros(50);
    in_worlds(30, |sim| {
        let mut stage = stage(SimConfig { network: at_once..=at_once, ..sim });
        let mut servers = Vec::new();
        let mut clients = Vec::new();
        for _ in 0..5 {
            let client = stage.client();
            let server = stage.ask(&client, get("").as_bytes());
            server.send(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok");
            client.peer.close();
            stage.pass(Duration::from_millis(20));
            servers.push(server);
            clients.push(client);
        }
        stage.check_nothing_is_left(clients, servers);
    });
}
