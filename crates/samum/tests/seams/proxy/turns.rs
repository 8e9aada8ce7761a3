//! Turns of the worker while servers send as much as they can: each turn is short, and each response goes on.

use config::Fastcgi;

use super::*;

/// The longest turn: events and other exchanges have 0.4 ms each, and the last receive of each may pass that.
const TURN_MAX: Duration = Duration::from_millis(1);

#[test]
fn contents_of_many_servers_are_pulled_in_short_turns_and_by_turns() {
    const SERVERS: usize = 60;
    const SIZE: usize = 256 * 1024;
    for_seeds(3, |seed| {
        let network = Duration::ZERO..=Duration::ZERO;
        // All receives that an exchange may have in a turn take a millisecond.
        let sim = SimConfig { network, receive: Duration::from_micros(1), ..config(seed) };
        let mut stage = Stage::with_rules(sim, |rules| rules.receive_max = 64);
        let mut clients: Vec<Client> = (0..SERVERS).map(|_| stage.client()).collect();
        let servers: Vec<Peer> = clients.iter().map(|client| stage.ask(client, GET)).collect();
        let large = content(seed, SIZE);
        let head = format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{SIZE:x}\r\n");
        let answer = [head.as_bytes(), &large, b"\r\n0\r\n\r\n"].concat();
        servers.iter().for_each(|server| server.send(&answer));
        let mut longest = Duration::ZERO;
        let (mut has_begun, mut has_ended) = (false, false);
        loop {
            let until = stage.worker.ring().now() + Duration::from_millis(1);
            stage.worker.turn(Some(until)).expect("a ring that waits");
            let ring = stage.worker.ring();
            longest = longest.max(ring.now().since(ring.woke_at()));
            assert!(longest <= TURN_MAX, "a turn of {longest:?}");
            let left = || servers.iter().map(Peer::unreceived_bytes);
            let (least, most) = (left().min(), left().max());
            has_begun |= least > Some(0);
            if has_begun && least == Some(0) && !core::mem::replace(&mut has_ended, true) {
                assert!(most < Some(SIZE / 2), "{most:?} bytes are left when one is complete");
            }
            if has_ended && most == Some(0) {
                break;
            }
        }
        // The time is used, too.
        assert!(longest > TURN_MAX / 3, "a turn of {longest:?}");
        for client in &mut clients {
            let response = stage.response(client);
            assert!(response.whole && response.body == large, "{}", response.head);
        }
        stage.check_nothing_is_left(clients, servers);
    });
}

/// A record of the first request of a FastCGI connection.
pub(super) fn record(kind: u8, content: &[u8]) -> Vec<u8> {
    let [high, low] = u16::try_from(content.len()).expect("a record").to_be_bytes();
    [&[1, kind, 0, 1, high, low, 0, 0], content].concat()
}

#[test]
fn lines_of_an_application_are_read_by_turns() {
    /// Lines that count as much as all bytes of a response in a turn.
    const LINES: usize = 1024;
    let script = |site: &mut Site| {
        let route = &mut site.routes[0];
        let Action::Proxy(upstream) = &route.action else { unreachable!("it is one") };
        route.action = Action::Fastcgi(Fastcgi {
            upstream: upstream.clone(),
            files: None,
            root: Some("/srv".into()),
            keeps_connections: false,
            environment: Vec::new(),
        });
    };
    in_worlds(2, |sim| {
        let mut stage = Stage::in_world(World::new(sim), |_| {}, script);
        let mut client = stage.client();
        client.peer.send(GET);
        let server = stage.accept();
        stage.run_until(|| !server.received().is_empty());
        // The worker takes lines from the first 64 KiB only.
        let text = record(7, &b"a\n".repeat(30_000));
        let output = record(6, b"Content-Type: a/b\r\n\r\nok");
        server.send(&[&text[..], &output, &record(3, &[0; 8])].concat());
        let mut turns = 0;
        while client.peer.received_bytes() == 0 {
            let until = stage.worker.ring().now() + Duration::from_millis(1);
            stage.worker.turn(Some(until)).expect("a ring that waits");
            turns += 1;
            assert!(turns < 100_000, "no response");
        }
        // The last line of a turn may have more after it in its piece.
        assert!(turns >= 30_000 / (LINES + LINES / 2), "{turns} turns");
        assert_eq!(stage.response(&mut client).body, b"ok");
        stage.check_nothing_is_left(vec![client], vec![server]);
    });
}
