//! Long contents of servers behind this one, byte for byte: of known length, in chunks, and up to the end of
//! the connection; whole and cut off.

use core::net::SocketAddr;
use core::time::Duration;
use std::io::{BufRead as _, BufReader, BufWriter, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::Command;
use std::sync::mpsc;
use std::thread;

use testkit::{Client, Content, Disk, Server, Tree, or_skip, request};

use crate::common::{SAMUM, SOON, descriptors, on_both_drivers, resident_bytes, wait_until};

/// The longest that tens of megabytes take on a busy machine, through two processes and a disk.
const LATE: Duration = Duration::from_secs(120);

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
        client.set_limit(LATE);
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

/// A server that sends one content of this many bytes; says when it has sent all of it.
fn origin_of(size: u64) -> (SocketAddr, mpsc::Receiver<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, has_sent) = mpsc::channel();
    thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let mut lines = BufReader::new(&stream).lines();
        while lines.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {}
        let mut out = &stream;
        write!(out, "HTTP/1.1 200 OK\r\nContent-Length: {size}\r\n\r\n").unwrap();
        // The client may go.
        if out.write_all(&content(size)).is_ok() {
            sender.send(()).unwrap();
        }
    });
    (address, has_sent)
}

/// Bytes on the disk of the files without names that a server has in a directory.
fn bytes_in(server: &Server, dir: &Path) -> Vec<u64> {
    let fds = std::fs::read_dir(format!("/proc/{}/fd", server.pid())).unwrap();
    // A descriptor may be closed at any time.
    let links = fds.flatten().filter_map(|fd| Some((fd.path(), fd.path().read_link().ok()?)));
    let of_dir = links.filter(|(_, to)| to.starts_with(dir) && to.as_path() != dir);
    of_dir.filter_map(|(fd, _)| Some(fd.metadata().ok()?.blocks() * 512)).collect()
}

#[test]
fn a_server_goes_early_if_the_disk_has_room() {
    on_both_drivers(check_a_server_goes_early_through_a_file);
}

fn check_a_server_goes_early_through_a_file(driver: &str) {
    const SIZE: u64 = 100 * 1024 * 1024;
    const BUFFER: u64 = 64 * 1024 * 1024;
    const STEP: usize = 256 * 1024;
    let (address, has_sent) = origin_of(SIZE);
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let keys = format!("buffer = {BUFFER}\nbuffer-dir = '{}'", dir.path().display());
    let (server, _tree) = serve_from(driver, address, &keys);
    let before = resident_bytes(&server);
    let mut client = Client::connect(&server.address()).unwrap();
    client.set_limit(LATE);
    client.send(request("GET /")).unwrap();
    let (mut received, mut on_disk_max, mut memory_max) = (Vec::new(), 0, 0);
    let mut received_early = None;
    while received.len() < usize::try_from(SIZE).unwrap() {
        if received_early.is_none() {
            // 25 MiB a second, until the server has gone.
            thread::sleep(Duration::from_millis(10));
        }
        received.extend(client.read_exactly(STEP).unwrap());
        let on_disk = bytes_in(&server, dir.path());
        assert!(on_disk.len() <= 1, "{on_disk:?}");
        on_disk_max = on_disk_max.max(on_disk.iter().sum());
        memory_max = memory_max.max(resident_bytes(&server) - before);
        if received_early.is_none() && has_sent.try_recv().is_ok() {
            received_early = Some(received.len() as u64);
        }
    }
    let end = received.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
    let rest = usize::try_from(SIZE).unwrap() - (received.len() - end);
    received.extend(client.read_exactly(rest).unwrap());
    assert!(received[end..] == content(SIZE), "other bytes");
    let received_early = received_early.expect("the server need not wait for the client");
    eprintln!(
        "the server had gone at {received_early}; {on_disk_max} on the disk, {memory_max} more in memory"
    );
    assert!(received_early < SIZE - BUFFER / 2, "the server has waited for the client");
    assert!(on_disk_max <= BUFFER, "{on_disk_max} bytes on the disk");
    assert!(on_disk_max > BUFFER / 2, "{on_disk_max} bytes on the disk");
    assert!(memory_max < 16 * 1024 * 1024, "{memory_max} more bytes in memory");
    assert!(wait_until(SOON, || bytes_in(&server, dir.path()).is_empty()), "the file is left");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "it never had a name");
}

#[test]
fn clients_that_go_leave_nothing_on_the_disk() {
    on_both_drivers(check_clients_that_go_leave_nothing);
}

fn check_clients_that_go_leave_nothing(driver: &str) {
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let keys = format!("buffer = '16m'\nbuffer-dir = '{}'", dir.path().display());
    let (server, _tree) = serve(driver, &keys);
    // A server that has answered has opened what stays open.
    let mut first = Client::connect(&server.address()).unwrap();
    first.send(request("GET /length/10")).unwrap();
    assert_eq!(first.response().unwrap().body.len(), 10);
    let before = descriptors(&server);
    drop(first);
    let ask = |form: &str| {
        let mut client = Client::connect(&server.address()).unwrap();
        client.send(request(&format!("GET /{form}/30000000"))).unwrap();
        client
    };
    let clients = ["length", "chunks", "end", "length", "cut"].map(ask);
    let has_files = || bytes_in(&server, dir.path()).len() == clients.len();
    assert!(wait_until(LATE, has_files), "{:?}", bytes_in(&server, dir.path()));
    let is_full = || bytes_in(&server, dir.path()).iter().any(|bytes| *bytes > 12_000_000);
    assert!(wait_until(LATE, is_full), "{:?}", bytes_in(&server, dir.path()));
    drop(clients);
    assert!(wait_until(LATE, || bytes_in(&server, dir.path()).is_empty()), "files are left");
    // The log, and links that are kept.
    assert!(wait_until(LATE, || descriptors(&server) <= before + 2), "descriptors are left");
}

#[test]
fn every_form_goes_through_a_file() {
    on_both_drivers(check_every_form_goes_through_a_file);
}

fn check_every_form_goes_through_a_file(driver: &str) {
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let keys = format!("buffer = '6m'\nbuffer-dir = '{}'", dir.path().display());
    let (server, _tree) = serve(driver, &keys);
    for form in ["length", "chunks", "end", "short", "cut"] {
        let mut client = Client::connect(&server.address()).unwrap();
        client.set_limit(LATE);
        client.send(request(&format!("GET /{form}/24000000"))).unwrap();
        assert!(wait_until(LATE, || !bytes_in(&server, dir.path()).is_empty()), "{form}");
        let response = client.response();
        if matches!(form, "short" | "cut") {
            assert!(response.is_err(), "{form}");
        } else {
            assert!(response.unwrap().body == content(24_000_000), "{form}");
        }
    }
}

#[test]
fn a_full_disk_makes_the_server_wait() {
    on_both_drivers(check_a_full_disk_makes_the_server_wait);
}

fn check_a_full_disk_makes_the_server_wait(driver: &str) {
    /// More than all sockets on the way, the memory and what is left of the disk hold.
    const SIZE: u64 = 24 * 1024 * 1024;
    let disk = or_skip!(Disk::new());
    let tree = disk.tree();
    // All but some bytes of it are in use.
    let mut filler = std::fs::File::create(tree.path().join("filler")).unwrap();
    while filler.write_all(&[1; 65_536]).is_ok() {}
    filler.set_len(filler.metadata().unwrap().len() - 3_000_000).unwrap();
    let keys = format!(
        "buffer = '64m'\nbuffer-dir = '{}'\n[[site.route]]\npath = '/metrics'\nmetrics = true",
        tree.path().display()
    );
    let (server, _tree) = serve(driver, &keys);
    for form in ["length", "chunks"] {
        let mut client = Client::connect(&server.address()).unwrap();
        client.set_limit(LATE);
        client.send(request(&format!("GET /{form}/{SIZE}"))).unwrap();
        let failed = |nth: u32| {
            let metrics = Client::connect(&server.address()).and_then(|mut client| {
                client.send(request("GET /metrics"))?;
                client.response()
            });
            let text = String::from_utf8(metrics.unwrap().body).unwrap();
            text.contains(&format!("samum_proxy_buffer_files_total{{event=\"failed\"}} {nth}\n"))
        };
        let nth = if form == "length" { 1 } else { 2 };
        assert!(wait_until(LATE, || failed(nth)), "{form}: no failure");
        assert!(client.response().unwrap().body == content(SIZE), "{form}");
    }
    let notes = server.stderr();
    let said: Vec<_> = notes.iter().filter(|line| line.contains("no buffer in")).collect();
    assert_eq!(said.len(), 1, "{notes:?}");
    assert!(said[0].contains("no storage space") && said[0].contains("(said once)"), "{said:?}");
}
