//! Long transfers through a route that a reload changes meanwhile.

use core::net::SocketAddr;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::thread;

use testkit::{Client, Content, Tree, request};

use super::{configure, origin, serve};
use crate::common::{SAMUM, ask, on_both_drivers, tcp_address};

/// More than all buffers between a server and a client that does not read.
const DOWNLOAD: u64 = 48 * 1024 * 1024;
const UPLOAD: u64 = 8 * 1024 * 1024;
const SWITCHED: &str =
    "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n";

/// A server that sends a long download, sends uploads back, and echoes through tunnels.
fn transfers() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            // The client sees what has failed.
            thread::spawn(move || answer(stream?));
        }
    });
    address
}

/// Answers one request.
fn answer(mut stream: TcpStream) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head)? == 0 {
            return Ok(());
        }
    }
    let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
    let length: u64 = length.map_or(0, |length| length.parse().unwrap());
    match head.split(' ').nth(1) {
        Some("/download") => {
            write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {DOWNLOAD}\r\n\r\n")?;
            stream.write_all(&bytes(1, DOWNLOAD))
        }
        Some("/upload") => {
            let mut body = Vec::new();
            reader.take(length).read_to_end(&mut body)?;
            write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len())?;
            stream.write_all(&body)
        }
        _ => {
            stream.write_all(SWITCHED.as_bytes())?;
            std::io::copy(&mut reader, &mut stream).map(drop)
        }
    }
}

fn bytes(seed: u64, len: u64) -> Vec<u8> {
    Content::pseudo_random(seed, len).read(0, usize::try_from(len).unwrap())
}

#[test]
fn a_reload_that_changes_the_route_loses_nothing_of_what_is_under_way() {
    on_both_drivers(|driver| {
        let tree = Tree::new();
        let next = origin(&tree, 1, 0);
        configure(&tree, driver, &[format!("http://{}", transfers())], "");
        let server = serve(&tree);
        let connect = || Client::connect(&server.address()).unwrap();

        let mut download = connect();
        download.send(request("GET /download\nConnection: close")).unwrap();
        let mut downloaded = download.read_exactly(100_000).unwrap();
        let mut upload = connect();
        let body = bytes(2, UPLOAD);
        let (first, rest) = body.split_at(body.len() / 2);
        upload.send(request(&format!("POST /upload\nContent-Length: {UPLOAD}"))).unwrap();
        upload.send(first).unwrap();
        let mut tunnel = connect();
        tunnel.send(request("GET /tunnel\nConnection: upgrade\nUpgrade: echo")).unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.extend(tunnel.read_exactly(1).unwrap());
        }
        assert!(head.starts_with(b"HTTP/1.1 101 "));
        tunnel.send("before").unwrap();
        assert_eq!(tunnel.read_exactly(6).unwrap(), b"before");

        let urls = [format!("http://{}", tcp_address(&next))];
        for keys in ["buffer = '64k'", "balance = 'least'", "splice = false"] {
            configure(&tree, driver, &urls, keys);
            let mut reload = Command::new(SAMUM);
            reload.arg("reload").arg("--control").arg(tree.path().join("control"));
            let output = reload.output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            assert_eq!(ask(&server, "GET /name").body, b"1", "it goes to the other server");
        }

        tunnel.send("after").unwrap();
        assert_eq!(tunnel.read_exactly(5).unwrap(), b"after");
        tunnel.shutdown_write().unwrap();
        assert_eq!(tunnel.read_to_end().unwrap(), b"");
        upload.send(rest).unwrap();
        let response = upload.response().unwrap();
        assert!(response.status == 200 && response.body == body, "{}", response.body.len());
        downloaded.extend(download.read_to_end().unwrap());
        let at = downloaded.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap() + 4;
        assert!(downloaded[at..] == bytes(1, DOWNLOAD), "{}", downloaded.len());
    });
}
