//! Many requests of clients that receive the responses late, or never.

use core::time::Duration;
use std::io::{self, ErrorKind, Write as _};
use std::net::TcpStream;
use std::thread;

use testkit::{Content, Tree};

use crate::common::{
    SOON, ask, descriptors, on_both_drivers, request, resident_bytes, serve, tcp_address,
    wait_until,
};

const REQUESTS: usize = 5_000;

fn tree() -> Tree {
    let tree = Tree::new().file("big.bin", Content::pseudo_random(9, 200_000));
    for number in 0..50 {
        tree.write(format!("{number}.txt"), Content::from(format!("file {number}\n").into_bytes()));
    }
    tree
}

#[test]
fn a_client_that_takes_nothing_costs_bounded_memory() {
    on_both_drivers(|driver| {
        let tree = tree();
        let server = serve(driver, tree.path(), &[]);
        assert_eq!(ask(&server, "GET /1.txt").status, 200);
        let before = resident_bytes(&server);
        let address = tcp_address(&server);
        let mut clients = Vec::new();
        for _ in 0..8 {
            let mut client = TcpStream::connect(address).unwrap();
            client.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
            let requests: String =
                (0..REQUESTS).map(|_| request("GET /big.bin") + &request("GET /1.txt")).collect();
            clients.push(thread::spawn(move || {
                // The server takes no more: that is the bound.
                let mut sent = 0;
                while sent < 8 << 20 {
                    match client.write(requests.as_bytes()) {
                        Ok(count) => sent += count,
                        Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                        Err(error) => panic!("{error}"),
                    }
                }
                (client, sent)
            }));
        }
        let clients: Vec<_> = clients.into_iter().map(|client| client.join().unwrap()).collect();
        for (_, sent) in &clients {
            assert!(
                *sent < 8 << 20,
                "the server has taken {sent} bytes of requests that it cannot answer"
            );
        }
        let grown = resident_bytes(&server).saturating_sub(before);
        assert!(grown < 32 << 20, "{grown} bytes for eight clients");
        // Other clients are served meanwhile.
        assert_eq!(ask(&server, "GET /2.txt").body, b"file 2\n");
        drop(clients);
        assert!(wait_until(SOON, || descriptors(&server) < 40));
    });
}

#[test]
fn clients_that_go_on_behind_their_last_requests_cost_bounded_memory() {
    // As many as begin in one turn of the worker, so that the connection had its share of it, and some less and more.
    const CASES: [(usize, &str); 5] =
        [(1, "/1.txt"), (64, "/1.txt"), (63, "/big.bin"), (64, "/big.bin"), (200, "/big.bin")];
    on_both_drivers(|driver| {
        let tree = tree();
        let server = serve(driver, tree.path(), &[]);
        assert_eq!(ask(&server, "GET /1.txt").status, 200);
        let before = resident_bytes(&server);
        let clients = CASES.map(|(requests, path)| {
            let mut client = TcpStream::connect(tcp_address(&server)).unwrap();
            let sent = request(&format!("GET {path}")).repeat(requests - 1);
            client.write_all(sent.as_bytes()).unwrap();
            let last = request(&format!("GET {path}\nConnection: close"));
            client.write_all(last.as_bytes()).unwrap();
            let mut taking = client.try_clone().unwrap();
            // Either ends when the server closes the connection, or has it reset because of what comes then.
            let taker = thread::spawn(move || io::copy(&mut taking, &mut io::sink()).is_ok());
            // No more than shows that it is kept: other tests count what a CPU does meanwhile.
            let sender = thread::spawn(move || {
                (0..24 * 16).take_while(|_| client.write_all(&[b'x'; 64 * 1024]).is_ok()).count()
            });
            (taker, sender)
        });
        let mut most = 0;
        assert!(wait_until(SOON, || {
            most = most.max(resident_bytes(&server).saturating_sub(before));
            clients.iter().all(|(taker, sender)| taker.is_finished() && sender.is_finished())
        }));
        assert!(most < 32 << 20, "{most} bytes for {} clients", CASES.len());
        assert_eq!(ask(&server, "GET /2.txt").body, b"file 2\n");
    });
}

#[test]
fn a_client_that_takes_late_gets_everything() {
    on_both_drivers(|driver| {
        let tree = tree();
        let server = serve(driver, tree.path(), &[]);
        let writer = TcpStream::connect(tcp_address(&server)).unwrap();
        let mut reader = writer.try_clone().unwrap();
        // More than both sockets hold, so that the server stops receiving requests, and continues.
        let count = 600;
        let writing = thread::spawn(move || {
            let mut writer = writer;
            let requests: String = (0..count).map(|_| request("GET /big.bin")).collect();
            writer.write_all(requests.as_bytes()).unwrap();
            writer.shutdown(std::net::Shutdown::Write).unwrap();
        });
        thread::sleep(Duration::from_millis(300));
        let got = io::copy(&mut reader, &mut io::sink()).unwrap();
        writing.join().unwrap();
        assert!(got > count * 200_000 && got < count * 200_400, "{got}");
    });
}
