//! Pages with holes that servers fill: right, not at all, by half, and for a client that leaves.

use config::{FileRules, Files};

use super::*;

const PAGE: &[u8] = b"GET /pages/page.html HTTP/1.1\r\nHost: a\r\n\r\n";
const ERRMSG: &str = "[an error occurred while processing the directive]";

/// A site with a page that includes `/app/1` and `/app/2`.
fn stage(mut sim: SimConfig) -> Stage {
    // Those of the disk are shown elsewhere.
    (sim.faults.read_error, sim.faults.eviction) = (0.0, 0.0);
    let world = World::new(sim);
    world.make_dir("srv");
    let page = "begin<!--#include virtual=\"/app/1\"-->middle<!--#include virtual=\"/app/2\"-->end";
    world.write_file("srv/page.html", page.as_bytes());
    let rules = FileRules { includes: true, ..FileRules::default() };
    let files = Files { root: "/srv".into(), rules };
    let path = "/pages/".to_owned();
    let pages = Route { path, action: Action::Files(files), ..Route::default() };
    Stage::in_world(world, |_| {}, |site| site.routes.push(pages))
}

/// Asks for the page; the server's ends of the connections for its holes, in order.
fn ask(stage: &mut Stage, client: &Client) -> [Peer; 2] {
    client.peer.send(PAGE);
    let mut servers = [stage.accept(), stage.accept()];
    let heads = [0, 1].map(|number| stage.request(&servers[number]).0);
    for number in [1, 2] {
        let start = format!("GET /app/{number} HTTP/1.1\r\n");
        assert!(heads.iter().any(|head| head.starts_with(&start)), "{heads:?}");
    }
    if heads[0].starts_with("GET /app/2 ") {
        servers.reverse();
    }
    servers
}

#[test]
fn holes_are_filled_in_order_whichever_server_is_faster() {
    in_worlds(10, |sim| {
        let mut stage = stage(sim);
        let mut client = stage.client();
        let servers = ask(&mut stage, &client);
        let large = content(7, 400_000);
        servers[1].send(b"HTTP/1.1 200 OK\r\nContent-Length: 400000\r\n\r\n");
        servers[1].send(&large);
        stage.pass(Duration::from_millis(50));
        client.plain.look();
        assert!(!client.plain.received().windows(6).any(|bytes| bytes == b"middle"));
        servers[0].send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
        servers[0].send(b"3\r\none\r\n0\r\n\r\n");
        let response = stage.response(&mut client);
        assert_eq!((response.status, response.whole), (200, true));
        assert!(response.body == [b"beginonemiddle", &large[..], b"end"].concat());
        let stats = stage.stats();
        assert_eq!((stats.proxied, stats.proxy_failed, stats.includes), (2, 0, 2));
        assert_eq!((stats.includes_failed, stage.notes()), (0, String::new()));
        stage.check_nothing_is_left(vec![client], servers.into());
    });
}

/// The second server answers as it should, the first one with these bytes and this end.
fn answer_first(stage: &mut Stage, servers: &[Peer; 2], answer: &[u8], ending: Ending) {
    servers[1].send(OK);
    servers[0].send(answer);
    stage.pass(Duration::from_millis(10));
    match ending {
        Ending::Open => {}
        Ending::Closed => servers[0].close(),
        Ending::Reset => servers[0].reset(),
    }
}

#[test]
fn a_hole_without_an_answer_has_the_error_message() {
    let cases: [(&[u8], Ending, &str); 6] = [
        (b"", Ending::Closed, "closed"),
        (b"", Ending::Reset, "reset"),
        (b"220 mail.example ESMTP\r\n\r\n", Ending::Open, ""),
        (b"HTTP/1.1 200 OK\r\nContent-Len", Ending::Closed, "closed"),
        (b"", Ending::Open, "did not answer"),
        (b"HTTP/1.1 200", Ending::Open, "did not answer"),
    ];
    in_worlds(5, |sim| {
        for (answer, ending, told) in cases {
            let mut stage = stage(sim.clone());
            let mut client = stage.client();
            let servers = ask(&mut stage, &client);
            answer_first(&mut stage, &servers, answer, ending);
            let response = stage.response(&mut client);
            assert_eq!((response.status, response.whole), (200, true));
            let text = String::from_utf8(response.body).expect("a text");
            assert_eq!(text, format!("begin{ERRMSG}middleokend"));
            let stats = stage.stats();
            assert_eq!((stats.proxy_failed, stats.includes_failed), (1, 1));
            assert_eq!(stats.proxy_timeouts, u64::from(told.contains("answer")));
            let notes = stage.notes();
            let name = format!("http://{SERVER}: ");
            assert!(notes.contains(&name) && notes.contains(told), "{notes}");
            stage.check_nothing_is_left(vec![client], servers.into());
        }
    });
}

#[test]
fn a_hole_that_is_cut_off_cuts_the_page() {
    let length = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort";
    let chunks = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nshort\r\n";
    let cases: [(&[u8], Ending); 5] = [
        (length, Ending::Closed),
        (length, Ending::Reset),
        (length, Ending::Open),
        (chunks, Ending::Closed),
        (chunks, Ending::Open),
    ];
    in_worlds(5, |sim| {
        for (answer, ending) in cases {
            let mut stage = stage(sim.clone());
            let mut client = stage.client();
            let servers = ask(&mut stage, &client);
            answer_first(&mut stage, &servers, answer, ending);
            let response = stage.response(&mut client);
            assert_eq!((response.status, response.whole), (200, false));
            assert!(client.plain.end().is_some());
            let text = String::from_utf8(response.body).expect("a text");
            assert!("beginshort".starts_with(&text) && text.starts_with("begin"), "{text}");
            let stats = stage.stats();
            assert_eq!((stats.proxy_failed, stats.includes_failed), (1, 0));
            assert_eq!(stats.proxy_timeouts, u64::from(ending == Ending::Open));
            stage.check_told("cut off");
            stage.check_nothing_is_left(vec![client], servers.into());
        }
    });
}

#[test]
fn a_client_that_leaves_cancels_the_requests_for_its_holes() {
    let answers: [&[u8]; 2] = [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nshort"];
    in_worlds(10, |sim| {
        for answer in answers {
            let mut stage = stage(sim.clone());
            let client = stage.client();
            let servers = ask(&mut stage, &client);
            servers[0].send(answer);
            stage.pass(Duration::from_millis(20));
            client.peer.reset();
            stage.pass(Duration::from_millis(20));
            for server in &servers {
                assert!(server.end().is_some(), "a server was not told");
            }
            let stats = stage.stats();
            assert_eq!((stats.proxy_left, stats.proxy_failed, stats.proxy_timeouts), (2, 0, 0));
            stage.check_nothing_is_left(vec![client], servers.into());
        }
    });
}
