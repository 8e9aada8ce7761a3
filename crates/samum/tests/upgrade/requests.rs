//! Requests over HTTP/2 to a server that is replaced and reloaded: none is lost to a client that does what RFC 9113 §6.8
//! says.
//!
//! Such a client sends no request after a GOAWAY, and sends requests above the last stream of a GOAWAY again on another
//! connection. h2load counts requests of both kinds as errors.

use core::sync::atomic::{AtomicBool, Ordering};
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;

use testkit::http2::Http2;

use super::*;
use crate::tls::Authority;

const UPGRADES: usize = 3;
const RELOADS: usize = 20;
const CLIENTS: usize = 4;
/// The requests of a client that wait for their responses.
const STREAMS: usize = 10;
/// The code of a stream that the server has not begun (RFC 9113 §8.7).
const REFUSED_STREAM: u32 = 7;

/// The requests of one client, by their ends.
#[derive(Debug, Default)]
struct Count {
    answered: usize,
    /// Those that a GOAWAY or REFUSED_STREAM lets the client send again.
    repeated: usize,
    lost: usize,
    goaways: usize,
}

impl Count {
    /// Asks on a connection until it is at its end, or until `is_over` and all responses have come.
    fn ask<S: Read + Write>(&mut self, client: &mut Http2<S>, is_over: &AtomicBool) {
        let mut waiting = BTreeSet::new();
        loop {
            while client.goaways.is_empty()
                && !is_over.load(Ordering::Relaxed)
                && waiting.len() < STREAMS
            {
                let Ok(stream) = client.get("/a.txt") else { break };
                waiting.insert(stream);
            }
            if waiting.is_empty() || client.take_frame().is_err() {
                break;
            }
            waiting.retain(|stream| {
                let reply = client.so_far(*stream);
                match reply.reset {
                    Some(REFUSED_STREAM) => self.repeated += 1,
                    Some(_) => self.lost += 1,
                    None if !reply.has_ended => return true,
                    None if reply.status == 200 && reply.body == b"hello" => self.answered += 1,
                    None => self.lost += 1,
                }
                false
            });
        }
        self.goaways += client.goaways.len();
        let last = client.goaways.iter().map(|(last, _)| *last).min().unwrap_or(u32::MAX);
        let unseen = waiting.range(last.saturating_add(1)..).count();
        self.repeated += unseen;
        self.lost += waiting.len() - unseen;
    }
}

fn count(driver: &str, has_tls: bool) -> Count {
    let authority = Authority::new();
    let tree = tree();
    authority.issue(&["localhost"]).put(&tree, "a");
    let [certificate, key] = ["a.pem", "a.key"].map(|name| tree.path().join(name));
    let listen = format!("{{ address = \"127.0.0.1:0\", tls = {has_tls}, http2 = true }}");
    let site = match has_tls {
        true => site(&tree, &listen).replace(
            "[[site.route]]",
            &format!("tls = {{ certificate = {certificate:?}, key = {key:?} }}\n[[site.route]]"),
        ),
        false => site(&tree, &listen),
    };
    let family = Family::start(driver, &tree, "", &site);
    let Address::Tcp(address) = family.server.address() else { panic!("an address") };
    let is_over = AtomicBool::new(false);
    let all = thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|_| {
                scope.spawn(|| {
                    let mut count = Count::default();
                    while !is_over.load(Ordering::Relaxed) {
                        if has_tls {
                            let stream = authority.connect_offering(address, "localhost", &["h2"]);
                            let client = stream.and_then(|stream| Http2::new(stream, &[]));
                            count.ask(&mut client.expect("a connection"), &is_over);
                        } else {
                            let stream = TcpStream::connect(address).expect("a connection");
                            stream.set_nodelay(true).unwrap();
                            stream.set_read_timeout(Some(SOON)).unwrap();
                            count.ask(&mut Http2::new(stream, &[]).expect("a preface"), &is_over);
                        }
                    }
                    count
                })
            })
            .collect();
        for turn in 0..RELOADS {
            let mut reload = Command::new(SAMUM);
            let output = reload.arg("reload").arg("--control").arg(&family.control).output();
            assert!(output.unwrap().status.success());
            thread::sleep(Duration::from_millis(100));
            if turn % (RELOADS / UPGRADES) == 3 {
                family.upgrade();
            }
        }
        thread::sleep(Duration::from_secs(1));
        is_over.store(true, Ordering::Relaxed);
        clients.into_iter().map(|client| client.join().expect("a client")).collect::<Vec<_>>()
    });
    family.stop();
    family.assert_ends();
    all.into_iter().fold(Count::default(), |sum, one| Count {
        answered: sum.answered + one.answered,
        repeated: sum.repeated + one.repeated,
        lost: sum.lost + one.lost,
        goaways: sum.goaways + one.goaways,
    })
}

#[test]
#[ignore = "takes a minute, and loads both processors"]
fn no_request_of_a_client_that_repeats_what_goaway_leaves_out_is_lost_in_upgrades() {
    for driver in ["uring", "epoll"] {
        for has_tls in [false, true] {
            let count = count(driver, has_tls);
            eprintln!("{driver}, TLS {has_tls}: {count:?}");
            assert_eq!(count.lost, 0, "{driver}, TLS {has_tls}: {count:?}");
            assert!(count.goaways >= UPGRADES * CLIENTS, "{driver}: {count:?}");
            assert!(count.answered > 1000, "{driver}: {count:?}");
        }
    }
}
