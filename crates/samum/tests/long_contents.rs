//! Long contents of servers behind this one, byte for byte: of known length, in chunks, and up to the end of
//! the connection; whole and cut off.

mod common;

use core::net::SocketAddr;
use core::time::Duration;
use std::io::{BufRead as _, BufReader, BufWriter, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::mpsc;
use std::thread;

use testkit::{Client, Content, Server, Tree, request};

use common::{SAMUM, SOON, on_both_drivers};

/// Sizes below, at and above what is pulled, what a pipe takes, and what a buffer takes.
const SIZES: [u64; 9] = [1, 2048, 65_535, 65_537, 200_000, 262_144, 262_145, 1_048_577, 5_000_000];

/// The content of that size.
fn content(size: u64) -> Vec<u8> {
    Content::pseudo_random(size, size).to_vec()
}

/// A server that answers `/FORM/SIZE`.
fn origin() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            // A client may go at any time.
            thread::spawn(|| stream.and_then(|stream| answer(&stream)));
        }
    });
    address
}

fn answer(stream: &TcpStream) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream).lines();
    let mut out = stream;
    while let Some(line) = lines.next() {
        let line = line?;
        let mut words = line.split(['/', ' ']).skip(2);
        let (form, size) = (words.next().unwrap(), words.next().unwrap().parse().unwrap());
        while !lines.next().is_none_or(|line| line.is_ok_and(|line| line.is_empty())) {}
        let bytes = content(size);
        let part = |pieces: &mut dyn FnMut(&[u8]) -> std::io::Result<()>| {
            // Of all sizes, from bytes alone to more than a buffer takes.
            let mut rest = &bytes[..];
            for length in (0..).map(|nth| [1, 7, 70_000, 1000, 4096, 600_000][nth % 6]) {
                if rest.is_empty() {
                    return Ok(());
                }
                let (piece, others) = rest.split_at(length.min(rest.len()));
                pieces(piece)?;
                rest = others;
            }
            Ok(())
        };
        match form {
            "length" | "short" => {
                let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {size}\r\n\r\n");
                out.write_all(head.as_bytes())?;
                if form == "short" {
                    out.write_all(&bytes[..bytes.len() * 2 / 3])?;
                    return Ok(());
                }
                part(&mut |piece| out.write_all(piece))?;
            }
            "chunks" | "cut" => {
                out.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")?;
                part(&mut |piece| {
                    write!(out, "{:x}\r\n", piece.len())?;
                    out.write_all(piece)?;
                    out.write_all(b"\r\n")
                })?;
                if form == "cut" {
                    return Ok(());
                }
                out.write_all(b"0\r\n\r\n")?;
            }
            _ => {
                out.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")?;
                return part(&mut |piece| out.write_all(piece));
            }
        }
    }
    Ok(())
}

/// One in front of such a server, whose route has these keys.
fn serve(driver: &str, keys: &str) -> (Server, Tree) {
    serve_from(driver, origin(), keys)
}

/// The same for the server at this address.
fn serve_from(driver: &str, origin: SocketAddr, keys: &str) -> (Server, Tree) {
    let tree = Tree::new();
    let config = format!(
        "[server]\nthreads = 1\ndriver = '{driver}'\n[[site]]\nlisten = ['127.0.0.1:0']\n\
         [[site.route]]\npath = '/'\nproxy = ['http://{origin}']\n{keys}\n"
    );
    tree.write("samum.toml", config.as_str());
    let mut command = Command::new(SAMUM);
    command.args(["serve", "--config"]).arg(tree.path().join("samum.toml"));
    (Server::spawn(&mut command).expect("the server starts"), tree)
}

#[test]
fn they_are_passed_on() {
    on_both_drivers(check_they_are_passed_on);
}

fn check_they_are_passed_on(driver: &str) {
    for keys in ["", "buffer = '16k'"] {
        let (server, _tree) = serve(driver, keys);
        let mut client = Client::connect(&server.address()).unwrap();
        for form in ["length", "chunks", "end"] {
            for size in SIZES {
                client.send(request(&format!("GET /{form}/{size}"))).unwrap();
                let response = client.response().unwrap();
                assert_eq!(response.status, 200, "{form}, {size}");
                assert!(response.body == content(size), "{form}, {size}: {}", response.body.len());
            }
        }
    }
}

#[test]
fn a_client_sees_that_they_are_cut_off() {
    on_both_drivers(check_a_client_sees_that_they_are_cut_off);
}

fn check_a_client_sees_that_they_are_cut_off(driver: &str) {
    let (server, _tree) = serve(driver, "");
    for form in ["short", "cut"] {
        for size in SIZES.into_iter().filter(|size| *size > 1) {
            let mut client = Client::connect(&server.address()).unwrap();
            client.send(request(&format!("GET /{form}/{size}"))).unwrap();
            // An error page, if nothing was sent before.
            let whole = client.response().is_ok_and(|response| response.status == 200);
            assert!(!whole, "{form}, {size}");
        }
    }
}

#[test]
fn slow_clients_have_all_of_them() {
    on_both_drivers(check_slow_clients_have_all_of_them);
}

fn check_slow_clients_have_all_of_them(driver: &str) {
    let (server, _tree) = serve(driver, "");
    // More than there are pipes.
    let clients: Vec<_> = (0..40)
        .map(|nth| {
            let mut client = Client::connect(&server.address()).unwrap();
            let form = if nth % 4 == 0 { "chunks" } else { "length" };
            client.send(request(&format!("GET /{form}/5000000"))).unwrap();
            client
        })
        .collect();
    for mut client in clients {
        assert!(client.response().unwrap().body == content(5_000_000));
    }
}

#[test]
fn a_server_waits_when_the_buffer_is_full() {
    on_both_drivers(check_a_server_waits);
}

fn check_a_server_waits(driver: &str) {
    /// More than all sockets on the way hold.
    const SIZE: usize = 32 * 1024 * 1024;
    for chunk in [1000, 100_000] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, has_sent) = mpsc::channel();
        thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            let mut lines = BufReader::new(&stream).lines();
            while lines.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {}
            let mut out = BufWriter::new(&stream);
            write!(out, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").unwrap();
            for bytes in content(SIZE as u64).chunks(chunk) {
                write!(out, "{:x}\r\n", bytes.len()).unwrap();
                out.write_all(bytes).unwrap();
                out.write_all(b"\r\n").unwrap();
            }
            out.write_all(b"0\r\n\r\n").unwrap();
            out.flush().unwrap();
            sender.send(()).unwrap();
        });
        let (server, _tree) = serve_from(driver, address, "");
        let mut client = Client::connect(&server.address()).unwrap();
        client.set_limit(6 * SOON);
        client.send(request("GET /")).unwrap();
        let early = has_sent.recv_timeout(Duration::from_secs(1));
        assert!(early.is_err(), "chunks of {chunk}: all of it waits for the client somewhere");
        assert!(client.response().unwrap().body == content(SIZE as u64));
        has_sent.recv_timeout(SOON).expect("the client has taken all of it");
    }
}

#[test]
fn a_server_goes_early_if_the_buffer_has_room() {
    on_both_drivers(check_a_server_goes_early);
}

fn check_a_server_goes_early(driver: &str) {
    /// More than all sockets on the way hold.
    const SIZE: u64 = 48 * 1024 * 1024;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, has_sent) = mpsc::channel();
    thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let mut lines = BufReader::new(&stream).lines();
        while lines.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {}
        let mut out = &stream;
        write!(out, "HTTP/1.1 200 OK\r\nContent-Length: {SIZE}\r\n\r\n").unwrap();
        out.write_all(&content(SIZE)).unwrap();
        sender.send(()).unwrap();
    });
    let (server, _tree) = serve_from(driver, address, "buffer = '64m'");
    let mut client = Client::connect(&server.address()).unwrap();
    client.set_limit(SOON);
    client.send(request("GET /")).unwrap();
    has_sent.recv_timeout(SOON).expect("the server need not wait for the client");
    assert!(client.response().unwrap().body == content(SIZE));
}
