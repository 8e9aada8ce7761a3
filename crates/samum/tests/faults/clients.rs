//! Clients that vanish, send nothing or slowly, take nothing or slowly.

use core::time::Duration;
use std::io::{ErrorKind, Read as _};
use std::net::TcpStream;
use std::thread;
use std::time::Instant;

use testkit::{Address, Client, Content, Server, Signal, Tree};

use crate::common::{
    SOON, ask, ask_on, connect, descriptors, on_both_drivers, on_both_drivers_at_once, request,
    serve, wait_until,
};

const BIG: u64 = 20 << 20;

fn tree() -> Tree {
    Tree::new().file("a.txt", "hello").file("big.bin", Content::pseudo_random(1, BIG))
}

/// The time until the server closes the connection, and the bytes that it sends before.
#[track_caller]
fn closed_after(client: &mut Client) -> (Duration, String) {
    let began = Instant::now();
    let said = client.read_to_end().expect("closed in the soft way");
    (began.elapsed(), String::from_utf8_lossy(&said).into_owned())
}

#[track_caller]
fn assert_between(took: Duration, least: f64, most: f64) {
    let took = took.as_secs_f64();
    assert!((least..most).contains(&took), "{took} s");
}

#[test]
fn a_silent_connection_is_closed_without_a_response() {
    on_both_drivers(|driver| {
        let tree = tree();
        let server = serve(driver, tree.path(), &["--timeout-idle", "0.5"]);
        let (took, said) = closed_after(&mut connect(&server));
        assert_between(took, 0.4, 3.0);
        assert_eq!(said, "");
        let mut client = connect(&server);
        assert_eq!(ask_on(&mut client, "GET /a.txt").status, 200);
        thread::sleep(Duration::from_millis(300));
        assert_eq!(ask_on(&mut client, "GET /a.txt").status, 200, "each request begins anew");
        let (took, said) = closed_after(&mut client);
        assert_between(took, 0.4, 3.0);
        assert_eq!(said, "");
    });
}

#[test]
fn an_incomplete_request_gets_a_408() {
    on_both_drivers(|driver| {
        let tree = tree();
        let server = serve(driver, tree.path(), &["--timeout-header", "0.5"]);
        for beginning in
            ["GET / HT", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab"]
        {
            let mut client = connect(&server);
            assert_eq!(ask_on(&mut client, "GET /a.txt").status, 200);
            client.send(beginning).unwrap();
            let (took, said) = closed_after(&mut client);
            assert_between(took, 0.4, 3.0);
            assert!(said.starts_with("HTTP/1.1 408 Request Timeout\r\n"), "{said}");
            assert!(said.contains("\r\nConnection: close\r\n"), "{said}");
        }
        // If the request was already answered, a late body only closes the connection.
        let mut client = connect(&server);
        assert_eq!(ask_on(&mut client, "POST /a.txt\nContent-Length: 10").status, 405);
        assert_eq!(closed_after(&mut client).1, "");
    });
}

/// A close with unread bytes is a reset, which can destroy the response on its way, and makes the client fail that sends first
/// and reads then.
#[test]
fn a_client_that_sends_on_behind_an_early_error_gets_it_whole() {
    on_both_drivers_at_once(|driver| {
        let tree = tree();
        let server = serve(driver, tree.path(), &[]);
        thread::scope(|scope| {
            for (beginning, status) in [
                ("POST /a.txt\nContent-Length: 100000000", 405),
                ("GET /a.txt\nBad header: a", 400),
            ] {
                let server = &server;
                scope.spawn(move || {
                    let mut client = connect(server);
                    client.send(request(beginning)).unwrap();
                    // Longer than a client may be silent.
                    for _ in 0..8 {
                        client.send(vec![b'x'; 100_000]).unwrap();
                        thread::sleep(Duration::from_millis(400));
                    }
                    client.send(vec![b'x'; 4_000_000]).unwrap();
                    client.shutdown_write().unwrap();
                    assert_eq!(client.response().unwrap().status, status);
                    assert_eq!(client.read_to_end().expect("closed in the soft way"), b"");
                });
            }
        });
    });
}

#[test]
fn single_bytes_do_not_extend_the_timeout() {
    on_both_drivers(|driver| {
        let tree = tree();
        let server =
            serve(driver, tree.path(), &["--timeout-header", "0.5", "--timeout-idle", "60"]);
        let mut client = connect(&server);
        let began = Instant::now();
        for byte in request("GET /a.txt").bytes().cycle() {
            if client.send([byte]).is_err() || began.elapsed() > Duration::from_secs(1) {
                break;
            }
            thread::sleep(Duration::from_millis(50));
        }
        assert_eq!(client.response().unwrap().status, 408);
        assert_eq!(client.read_to_end().unwrap(), b"");
        // Other clients are served meanwhile.
        assert_eq!(ask(&server, "GET /a.txt").status, 200);
    });
}

/// Each packet ends a request and begins the next, so a part of a request always waits.
#[test]
fn a_client_that_pipelines_without_a_pause_is_never_timed_out() {
    on_both_drivers(|driver| {
        let tree = tree();
        let server = serve(driver, tree.path(), &["--timeout-header", "0.5"]);
        let mut client = connect(&server);
        let text = request("GET /a.txt");
        let (begin, end) = text.split_at(10);
        client.send(begin).unwrap();
        for _ in 0..20 {
            thread::sleep(Duration::from_millis(100));
            client.send(format!("{end}{begin}")).unwrap();
            assert_eq!(client.response().unwrap().status, 200);
        }
        client.send(end).unwrap();
        assert_eq!(client.response().unwrap().status, 200);
    });
}

/// Requests the large file with a small receive window.
fn download(server: &Server) -> TcpStream {
    let Address::Tcp(address) = server.address() else { unreachable!("it listens on TCP") };
    let mut stream = TcpStream::connect(address).unwrap();
    // With the default window the kernel would take megabytes in one step, and then nothing for long.
    rustix::net::sockopt::set_socket_recv_buffer_size(&stream, 64 * 1024).unwrap();
    std::io::Write::write_all(&mut stream, request("GET /big.bin\nConnection: close").as_bytes())
        .unwrap();
    stream
}

/// Counts the bytes until the end of the stream or its reset.
fn rest(mut stream: TcpStream) -> usize {
    let mut buffer = vec![0; 1 << 20];
    let mut total = 0;
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return total,
            Ok(count) => total += count,
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return total,
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn a_client_that_takes_nothing_is_closed() {
    on_both_drivers(|driver| {
        let tree = tree();
        let server = serve(driver, tree.path(), &["--timeout-send", "0.5"]);
        // So that from now on only the connection takes a descriptor.
        ask(&server, "GET /big.bin");
        thread::sleep(Duration::from_millis(100));
        let before = descriptors(&server);
        let began = Instant::now();
        let client = download(&server);
        assert!(wait_until(SOON, || descriptors(&server) > before));
        assert!(wait_until(SOON, || descriptors(&server) <= before));
        assert_between(began.elapsed(), 0.4, 3.0);
        assert!(rest(client) < usize::try_from(BIG).unwrap());
    });
}

#[test]
fn only_clients_below_the_minimum_rate_are_closed() {
    on_both_drivers_at_once(|driver| {
        let tree = tree();
        for (rate_min, is_closed) in [("100m", true), ("1k", false)] {
            let server =
                serve(driver, tree.path(), &["--timeout-send", "0.5", "--rate-min", rate_min]);
            let mut client = download(&server);
            let mut buffer = vec![0; 256 * 1024];
            let began = Instant::now();
            let mut total = 0;
            // About 5 MB per second.
            while began.elapsed() < Duration::from_millis(1500) {
                match client.read(&mut buffer) {
                    Ok(0) | Err(_) => break,
                    Ok(count) => total += count,
                }
                thread::sleep(Duration::from_millis(40));
            }
            total += rest(client);
            let whole = usize::try_from(BIG).unwrap();
            assert_eq!(total < whole, is_closed, "--rate-min {rate_min}: {total} bytes");
        }
    });
}

#[test]
fn a_thousand_clients_that_vanish_leave_nothing_behind() {
    on_both_drivers(|driver| {
        let tree = tree();
        tree.evict("big.bin");
        let server = serve(driver, tree.path(), &[]);
        ask(&server, "GET /a.txt");
        ask(&server, "GET /big.bin\nRange: bytes=0-9");
        let before = descriptors(&server);
        for number in 0..1000 {
            let mut client = download(&server);
            if number % 3 > 0 {
                let mut some = [0; 1000];
                client.read_exact(&mut some).unwrap();
            }
            // Closing a socket with unread bytes resets the connection.
            drop(client);
        }
        // A pipe or two may be kept for the next download, but nothing for each client.
        let left = || descriptors(&server);
        assert!(wait_until(SOON, || left() < before + 200), "{} and before {before}", left());
        Content::pseudo_random(1, BIG)
            .assert_at(0, &ask(&server, "GET /big.bin\nRange: bytes=0-99999").body);
    });
}

/// Opens a connection that is being answered as long as the client receives nothing.
fn busy(server: &Server) -> TcpStream {
    let mut stream = download(server);
    stream.read_exact(&mut [0; 1000]).unwrap();
    stream
}

#[test]
fn connections_beyond_the_maximum_wait_while_none_is_idle() {
    on_both_drivers(|driver| {
        let tree = tree();
        let server = serve(driver, tree.path(), &["--max-connections", "3"]);
        let busy: Vec<_> = (0..3).map(|_| busy(&server)).collect();
        let mut waiting: Vec<_> = (0..2).map(|_| connect(&server)).collect();
        for client in &mut waiting {
            client.send(request("GET /a.txt")).unwrap();
            client.set_limit(Duration::from_millis(100));
            assert_eq!(client.response().unwrap_err().kind(), ErrorKind::TimedOut);
            client.set_limit(SOON);
        }
        let message = server.wait_for_stderr("3 connections, as many as", SOON);
        assert!(message.is_some(), "{:?}", server.stderr());
        drop(busy);
        for client in &mut waiting {
            assert_eq!(client.response().unwrap().body, b"hello");
        }
        assert_eq!(ask(&server, "GET /a.txt").status, 200);
    });
}

#[test]
fn a_new_connection_replaces_the_one_that_has_been_idle_for_longest() {
    on_both_drivers(|driver| {
        for threads in ["1", "3"] {
            let tree = tree();
            let options = ["--max-connections", "20", "--threads", threads];
            let server = serve(driver, tree.path(), &options);
            let mut silent: Vec<_> = (0..20).map(|_| connect(&server)).collect();
            thread::sleep(Duration::from_millis(100));
            let began = Instant::now();
            for _ in 0..10 {
                assert_eq!(ask(&server, "GET /a.txt").status, 200);
            }
            let took = began.elapsed();
            eprintln!("10 new connections, {threads} workers: {took:?}");
            assert!(took < Duration::from_secs(5), "{took:?}");
            // The oldest connections were closed first, and some are left.
            let mut open = 0;
            for client in &mut silent {
                client.set_limit(Duration::from_millis(1));
                open += usize::from(client.read_to_end().is_err());
            }
            assert!((1..20).contains(&open), "{open} of 20 are left");
        }
    });
}

#[test]
fn requests_that_came_before_their_connections_were_accepted_are_answered() {
    on_both_drivers(|driver| {
        let tree = tree();
        let options = ["--max-connections", "20", "--threads", "1"];
        let mut server = serve(driver, tree.path(), &options);
        // The server has no processor while they come.
        server.signal(Signal::STOP).unwrap();
        let mut clients: Vec<_> = (0..100).map(|_| connect(&server)).collect();
        for client in &mut clients {
            client.send(request("GET /a.txt\nConnection: close")).unwrap();
        }
        server.signal(Signal::CONT).unwrap();
        for (number, client) in clients.iter_mut().enumerate() {
            let response = client.response();
            assert!(response.is_ok_and(|it| it.body == b"hello"), "client {number}");
        }
    });
}

#[test]
fn a_worker_may_have_more_than_its_share_of_connections() {
    on_both_drivers(|driver| {
        let tree = tree();
        let options = ["--max-connections", "12", "--threads", "4"];
        let server = serve(driver, tree.path(), &options);
        // The kernel spreads them at random, so rarely three to each worker.
        let mut clients: Vec<_> = (0..12).map(|_| connect(&server)).collect();
        for client in &mut clients {
            client.send(request("GET /a.txt")).unwrap();
        }
        for client in &mut clients {
            assert_eq!(client.response().unwrap().body, b"hello");
        }
        for client in &mut clients {
            assert_eq!(ask_on(client, "GET /a.txt").status, 200, "it was not closed for another");
        }
    });
}
