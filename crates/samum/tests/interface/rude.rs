//! Clients of the kernel's TCP that behave unusually, boxes on the way that do, and clients that all know.

use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use core::time::Duration;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::process::Command;
use std::thread;

use netstack::sim::Conditions;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use testkit::{Content, Tree, or_skip};

use crate::common::{SOON, request};
use crate::net::{Frames, Net, V4};
use crate::paths::{LOSSY, SEED};
use crate::watch::{count, stack};
use crate::{
    addresses, assert_empty, connect, content, on_all_ways, on_all_ways_and_where_frames_are_lost,
    path, site,
};

/// The longest file of the site.
const LARGE: usize = 5;
const ASKED: &str = "GET /f5\nConnection: close";

/// Connects with a receive buffer of this many bytes, or the least that the kernel gives.
pub(crate) fn connect_small(bytes: usize) -> TcpStream {
    // A server that another test starts at this moment must not inherit it: it would keep the connection open.
    let (family, flags) = (AddressFamily::INET, SocketFlags::CLOEXEC);
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None).unwrap();
    sockopt::set_socket_recv_buffer_size(&socket, bytes).unwrap();
    rustix::net::connect(&socket, &addresses()[0]).unwrap();
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(SOON)).unwrap();
    stream
}

fn ask(head: &str) -> TcpStream {
    ask_on(TcpStream::connect(addresses()[0]).unwrap(), head)
}

/// Sends a request.
pub(crate) fn ask_on(mut stream: TcpStream, head: &str) -> TcpStream {
    stream.set_read_timeout(Some(SOON)).unwrap();
    stream.write_all(request(head).as_bytes()).unwrap();
    stream
}

/// Receives until the server closes, and checks that it was a response with this file.
#[track_caller]
pub(crate) fn check_response(mut stream: TcpStream, file: &Content) {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    check_bytes(&bytes, file);
}

#[track_caller]
fn check_bytes(bytes: &[u8], file: &Content) {
    let head = bytes.windows(4).position(|end| end == b"\r\n\r\n").expect("a head") + 4;
    assert!(bytes.starts_with(b"HTTP/1.1 200 "), "{:?}", String::from_utf8_lossy(&bytes[..head]));
    file.assert_is(&bytes[head..]);
}

#[test]
fn a_client_that_ends_its_side_gets_the_whole_response() {
    let tree = site();
    on_all_ways(|net| {
        let control = format!("{}/.control", path(&tree));
        let _server = net.serve(path(&tree), &["--control", &control]);
        net.as_client(|| {
            for head in [ASKED, "GET /f5"] {
                let stream = ask(head);
                stream.shutdown(Shutdown::Write).unwrap();
                // The FIN comes long before the response is read.
                thread::sleep(Duration::from_millis(50));
                check_response(stream, &content(LARGE));
            }
        });
        assert_empty(net, &control);
        assert!(stack(&control, &[]).contains("resets: none"), "{}", stack(&control, &[]));
    });
}

/// Also a client that keeps its connection sees an end for its own.
#[test]
fn connections_that_clients_close_end_without_a_reset() {
    // More than a turn sends: at the end of the response the connection stands in the worker's line.
    let long = Content::pseudo_random(8, 1024 * 1024);
    let expected = long.to_vec();
    let tree = site().file("long", long);
    on_all_ways(|net| {
        let control = format!("{}/.control", path(&tree));
        let _server = net.serve(path(&tree), &["--control", &control]);
        net.as_client(|| {
            // Clients that have asked for little or much, and one that has not.
            let mut clients = [(); 3].map(|()| connect(addresses()[0]));
            clients[1].send(request("GET /f2")).unwrap();
            content(2).assert_is(&clients[1].response().unwrap().body);
            clients[0].send(request("GET /long")).unwrap();
            clients[0].head().unwrap();
            for part in expected.chunks(64 * 1024) {
                assert!(clients[0].read_exactly(part.len()).unwrap() == part, "other bytes");
            }
            for mut client in clients {
                client.shutdown_write().unwrap();
                assert_eq!(client.read_to_end().unwrap(), b"");
            }
        });
        assert_empty(net, &control);
        assert!(stack(&control, &[]).contains("resets: none"), "{}", stack(&control, &[]));
    });
}

/// The memory for connections and the resets that came, by the server's own account.
fn memory_and_resets(control: &str) -> (u64, u64) {
    let shown = stack(control, &[]);
    (count(&shown, " KiB of memory"), count(&shown, " received"))
}

#[test]
fn clients_that_reset_in_the_midst_of_a_download_leave_nothing_behind() {
    const CLIENTS: u64 = 20;
    let large = Content::pseudo_random(7, 50 * 1024 * 1024);
    let tree = Tree::new().file("large", large);
    on_all_ways(|net| {
        let control = format!("{}/.control", path(&tree));
        let _server = net.serve(path(&tree), &["--control", &control]);
        let reset_all = || {
            net.as_client(|| {
                let streams: Vec<_> = (0..CLIENTS).map(|_| ask("GET /large")).collect();
                for mut stream in streams {
                    stream.read_exact(&mut [0; 10_000]).unwrap();
                    // Closing sends a reset instead of a FIN.
                    sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).unwrap();
                }
            });
            assert_empty(net, &control);
            memory_and_resets(&control)
        };
        let (first, resets) = reset_all();
        assert_eq!(resets, CLIENTS);
        for round in 2..=5 {
            let (memory, resets) = reset_all();
            assert_eq!(resets, round * CLIENTS);
            // The places for data in flight are kept, as many as were in use at the same time; they have half a KiB
            // each.
            assert!(memory <= first + CLIENTS, "{first} KiB, after {round} rounds {memory} KiB");
        }
    });
}

#[test]
fn a_client_with_the_smallest_window_gets_every_byte() {
    let tree = site();
    on_all_ways(|net| {
        let _server = net.serve(path(&tree), &[]);
        net.as_client(|| {
            let mut stream = connect_small(1);
            stream.write_all(request("GET /f4\nConnection: close").as_bytes()).unwrap();
            let (mut bytes, mut part) = (Vec::new(), [0; 300]);
            loop {
                let count = stream.read(&mut part).unwrap();
                if count == 0 {
                    break;
                }
                bytes.extend_from_slice(&part[..count]);
                thread::sleep(Duration::from_millis(1));
            }
            check_bytes(&bytes, &content(4));
        });
    });
}

/// All at the same time: the effects of one must not harm another.
#[test]
fn slow_and_rude_clients_over_a_path_that_loses_frames_get_every_byte_and_leave_nothing_behind() {
    const ROUNDS: usize = 3;
    let large = Content::pseudo_random(7, 50 * 1024 * 1024);
    let tree = site().file("large", large.clone());
    let slow = || {
        let stream = ask_on(connect_small(4096), ASKED);
        // Its window is closed for a time.
        thread::sleep(Duration::from_millis(300));
        check_response(stream, &content(LARGE));
    };
    let tiny = || {
        let mut stream = ask_on(connect_small(1), "GET /f3\nConnection: close");
        let (mut bytes, mut part) = (Vec::new(), [0; 300]);
        while let count @ 1.. = stream.read(&mut part).unwrap() {
            bytes.extend_from_slice(&part[..count]);
            thread::sleep(Duration::from_millis(1));
        }
        check_bytes(&bytes, &content(3));
    };
    let half_closing = || {
        let stream = ask("GET /f5");
        stream.shutdown(Shutdown::Write).unwrap();
        check_response(stream, &content(LARGE));
    };
    let begin = || {
        let mut stream = ask("GET /large");
        let mut bytes = vec![0; 100_000];
        stream.read_exact(&mut bytes).unwrap();
        let head = bytes.windows(4).position(|end| end == b"\r\n\r\n").expect("a head") + 4;
        let length = bytes.len() - head;
        assert!(bytes[head..] == large.read(0, length), "other bytes");
        stream
    };
    // Bytes that are received and not read make the kernel send a reset.
    let leaving = || drop(begin());
    let resetting = || {
        let stream = begin();
        sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).unwrap();
    };
    for frames in [Frames::Packet, Frames::Xdp] {
        eprintln!("frames: {frames:?}");
        let mut net = or_skip!(Net::across(frames, [LOSSY; 2], SEED));
        let control = format!("{}/.control", path(&tree));
        let _server = net.serve(path(&tree), &["--control", &control]);
        net.as_client(|| {
            thread::scope(|scope| {
                for _ in 0..ROUNDS {
                    scope.spawn(slow);
                    scope.spawn(tiny);
                    scope.spawn(half_closing);
                    scope.spawn(leaving);
                    scope.spawn(resetting);
                }
            });
        });
        assert_empty(&net, &control);
        let fates = net.stop();
        assert!(fates[1].lost > 10, "{fates:?}");
    }
}

/// Downloads over a path on several connections at the same time, and returns the frames to the client that it dropped
/// because its queue was full.
fn download(conditions: Conditions, frames: Frames) -> Result<u64, String> {
    let tree = site();
    let mut net = Net::across(frames, [conditions; 2], 3)?;
    let _server = net.serve(path(&tree), &[]);
    net.as_client(|| {
        thread::scope(|scope| {
            for _ in 0..5 {
                scope.spawn(|| check_response(ask(ASKED), &content(LARGE)));
            }
        });
    });
    Ok(net.stop()[1].overflowed)
}

/// Options by their kinds: window scale, selective acknowledgements permitted and told, timestamps.
const SCALE: u32 = 1 << 3;
const SACK: u32 = 1 << 4 | 1 << 5;
const TIMESTAMPS: u32 = 1 << 8;

#[test]
fn boxes_that_strip_options_change_no_byte() {
    for strips in [SCALE, SACK, TIMESTAMPS, SCALE | SACK | TIMESTAMPS, 1 << 5] {
        for frames in [Frames::Xdp, Frames::Packet] {
            eprintln!("strips: {strips:#b}, frames: {frames:?}");
            let delay = Duration::from_millis(2);
            let mtu = 1500;
            let path = Conditions { loss: 0.01, delay, mtu, strips, ..Conditions::default() };
            or_skip!(download(path, frames));
        }
    }
}

#[test]
fn a_path_with_a_short_queue_loses_frames_and_no_byte() {
    for frames in [Frames::Xdp, Frames::Packet] {
        eprintln!("frames: {frames:?}");
        let path = Conditions {
            rate: Some(3_000_000),
            queue_bytes: 20_000,
            delay: Duration::from_millis(5),
            mtu: 1500,
            ..Conditions::default()
        };
        assert!(or_skip!(download(path, frames)) > 0, "the queue was never full");
    }
}

fn url(file: &str) -> String {
    let address = SocketAddr::new(IpAddr::V4(V4.parse::<Ipv4Addr>().unwrap()), 80);
    format!("http://{address}/{file}")
}

/// Runs a program of the client's, and returns its output; the error says that it is not installed.
fn run(net: &Net, program: &str, arguments: &[&str]) -> Result<Vec<u8>, String> {
    let version = Command::new(program).arg("--version").output();
    version.map_err(|error| format!("{program}: {error}"))?;
    let output = net.at_client(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    Ok(output.stdout)
}

#[test]
fn curl_gets_files_ranges_and_heads_on_one_connection() {
    let tree = site();
    let test = |net: &Net| {
        let _server = net.serve(path(&tree), &[]);
        let curl = |arguments: &[&str]| run(net, "curl", &[&["-sS"], arguments].concat());
        content(LARGE).assert_is(&or_skip!(curl(&[&url("f5")])));
        let part = or_skip!(curl(&["-r", "70000-169999", &url("f5")]));
        assert!(part == content(LARGE).read(70_000, 100_000), "other bytes");
        let head = String::from_utf8(or_skip!(curl(&["-I", &url("f5")]))).unwrap();
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        assert!(head.to_lowercase().contains("content-length: 1000000\r\n"), "{head}");
        let connects = ["-w", "%{num_connects}", "-o", "/dev/null", "-o", "/dev/null"];
        let made = or_skip!(curl(&[&connects[..], &[&url("f3"), &url("f4")]].concat()));
        assert_eq!(made, b"10", "the second request was on the connection of the first");
    };
    on_all_ways_and_where_frames_are_lost(test);
    eprintln!("frames are lost, by AF_XDP");
    test(&or_skip!(Net::across(Frames::Xdp, [LOSSY; 2], SEED)));
}

#[test]
fn wrk_sees_no_error() {
    let tree = site();
    on_all_ways_and_where_frames_are_lost(|net| {
        let _server = net.serve(path(&tree), &[]);
        for file in ["f2", "f4"] {
            let output = or_skip!(run(net, "wrk", &["-t1", "-c20", "-d1", &url(file)]));
            let shown = String::from_utf8(output).unwrap();
            let is_wrong = shown.contains("Socket errors") || shown.contains("Non-2xx");
            assert!(shown.contains(" requests in ") && !is_wrong, "{shown}");
        }
    });
}

#[test]
fn h2load_sees_no_error() {
    let tree = site();
    on_all_ways_and_where_frames_are_lost(|net| {
        let _server = net.serve(path(&tree), &[]);
        for (file, requests) in [("f2", "2000"), ("f5", "100")] {
            let asked = ["--h1", "-n", requests, "-c", "20", "-t", "1", &url(file)];
            let shown = String::from_utf8(or_skip!(run(net, "h2load", &asked))).unwrap();
            let all = format!("{requests} succeeded, 0 failed, 0 errored, 0 timeout");
            assert!(shown.contains(&all), "{shown}");
            assert!(shown.contains(&format!("status codes: {requests} 2xx")), "{shown}");
        }
    });
}
