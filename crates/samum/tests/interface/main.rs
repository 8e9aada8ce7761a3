//! samum's own TCP/IP stack against the kernel's, between two network namespaces.

mod beside;
mod browser;
#[path = "../common/mod.rs"]
mod common;
mod flood;
mod kernel;
mod net;
mod operation;
mod options;
mod paths;
mod queues;
mod rude;
mod tls;
mod watch;

use core::net::SocketAddr;
use core::time::Duration;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::thread;

use common::{SAMUM, SOON, request, wait_until};
use net::{Frames, Net, V4, V6};
use paths::{LOSSY, SEED};
use rustix::process::Signal;
use testkit::{Address, Client, Content, Tree, or_skip};
use watch::stack;

/// Both addresses of the server.
fn addresses() -> [SocketAddr; 2] {
    [format!("{V4}:80"), format!("[{V6}]:80")].map(|text| text.parse().unwrap())
}

fn connect(address: SocketAddr) -> Client {
    let mut client = Client::connect(&Address::Tcp(address)).expect("the server accepts");
    client.set_limit(Duration::from_secs(60));
    client
}

/// The sizes of the files `f0`, `f1` and so on.
const SIZES: [u64; 6] = [0, 1, 1000, 9000, 65_536, 1_000_000];

fn content(number: usize) -> Content {
    Content::pseudo_random(number as u64, SIZES[number])
}

fn site() -> Tree {
    (0..SIZES.len())
        .fold(Tree::new(), |tree, number| tree.file(format!("f{number}"), content(number)))
}

/// Runs a test with each way of the frames.
fn on_all_ways(test: impl Fn(&Net)) {
    for frames in Frames::ALL {
        eprintln!("frames: {frames:?}");
        test(&or_skip!(Net::new(frames)));
    }
}

/// Runs a test with each way of the frames, and over a path that loses 2 % of them.
fn on_all_ways_and_where_frames_are_lost(test: impl Fn(&Net)) {
    on_all_ways(&test);
    eprintln!("frames are lost");
    test(&or_skip!(Net::across(Frames::Packet, [LOSSY; 2], SEED)));
}

fn path(tree: &Tree) -> &str {
    common::text(tree.path())
}

#[test]
fn responses_are_those_of_any_server() {
    let tree = site();
    on_all_ways(|net| {
        let _server = net.serve(path(&tree), &[]);
        net.as_client(|| {
            for address in addresses() {
                let mut client = connect(address);
                for number in 0..SIZES.len() {
                    client.send(request(&format!("GET /f{number}"))).unwrap();
                    content(number).assert_is(&client.response().unwrap().body);
                }
                client.send(request("HEAD /f5")).unwrap();
                assert_eq!(client.head().unwrap().header("content-length"), Some("1000000"));
                client.send(request("GET /f5\nRange: bytes=1000-2999")).unwrap();
                let part = client.response().unwrap();
                assert_eq!(part.status, 206);
                assert_eq!(part.body, content(5).read(1000, 2000));
                client.send(request("GET /none")).unwrap();
                assert_eq!(client.response().unwrap().status, 404);
                // Many requests together, the last one closes.
                let mut all = request("GET /f2").repeat(50);
                all += &request("GET /f4\nConnection: close");
                client.send(all).unwrap();
                for _ in 0..50 {
                    content(2).assert_is(&client.response().unwrap().body);
                }
                content(4).assert_is(&client.response().unwrap().body);
                assert_eq!(client.read_to_end().unwrap(), b"");
            }
        });
    });
}

#[test]
fn a_large_file_arrives_whole() {
    let large = Content::pseudo_random(7, 100 * 1024 * 1024);
    let tree = Tree::new().file("large", large.clone());
    on_all_ways(|net| {
        let _server = net.serve(path(&tree), &[]);
        net.as_client(|| {
            let mut client = connect(addresses()[0]);
            client.send(request("GET /large\nConnection: close")).unwrap();
            large.assert_is(&client.response().unwrap().body);
        });
    });
}

/// Checks that both addresses answer ping; the error says why that is not possible here.
fn ping(net: &Net) -> Result<(), String> {
    net.as_client(|| {
        for address in [V4, V6] {
            let ping = Command::new("ping").args(["-c", "1", "-W", "5", address]).output();
            let ping = ping.map_err(|error| format!("ping: {error}"))?;
            assert!(ping.status.success(), "{ping:?}");
        }
        Ok(())
    })
}

#[test]
fn other_traffic_stays_with_the_kernel() {
    let tree = site();
    on_all_ways(|net| {
        let is_ours = net.frames() == Frames::Tap;
        if !is_ours {
            or_skip!(ping(net));
        }
        let server = net.serve(path(&tree), &[]);
        let other = (!is_ours).then(|| net.as_server(|| TcpListener::bind((V4, 22)).unwrap()));
        or_skip!(ping(net));
        net.as_client(|| {
            let Some(other) = other else { return };
            let mut client = TcpStream::connect((V4, 22)).unwrap();
            let (mut accepted, _) = other.accept().unwrap();
            accepted.write_all(b"SSH-2.0-test\r\n").unwrap();
            let mut line = [0; 14];
            client.read_exact(&mut line).unwrap();
            assert_eq!(&line, b"SSH-2.0-test\r\n");
        });
        drop(server);
        if !is_ours {
            or_skip!(ping(net));
        }
    });
}

#[test]
fn after_a_kill_connections_are_refused_and_others_go_on() {
    let tree = site();
    on_all_ways(|net| {
        if net.frames() == Frames::Tap {
            // Nothing has the address any more.
            return;
        }
        or_skip!(ping(net));
        // A connection of the kernel's goes on all the time.
        let listener = net.as_server(|| TcpListener::bind((V4, 22)).unwrap());
        let mut others = net.as_client(|| TcpStream::connect((V4, 22)).unwrap());
        let (mut accepted, _) = listener.accept().unwrap();
        let mut exchange = || {
            others.write_all(b"question").unwrap();
            accepted.read_exact(&mut [0; 8]).unwrap();
            accepted.write_all(b"answer").unwrap();
            others.read_exact(&mut [0; 6]).unwrap();
        };
        exchange();
        let mut server = net.serve(path(&tree), &[]);
        net.as_client(|| drop(connect(addresses()[0])));
        exchange();
        or_skip!(ping(net));
        server.signal(Signal::KILL).unwrap();
        exchange();
        server.wait(SOON).unwrap();
        exchange();
        or_skip!(ping(net));
        net.as_client(|| {
            let is_refused = || {
                let tried = TcpStream::connect_timeout(&addresses()[0], SOON);
                tried.is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionRefused)
            };
            // The kernel takes the program off the interface a moment after the process has ended.
            assert!(wait_until(SOON, is_refused));
        });
    });
}

/// Clock ticks of processor time that a process has used.
fn processor_ticks(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    // After the name, which is in parentheses: state is the 1st field, utime and stime the 12th and 13th.
    let fields: Vec<_> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

#[test]
fn an_interface_that_is_deleted_is_reported_once_and_keeps_no_processor_busy() {
    let tree = site();
    on_all_ways(|net| {
        let mut server = net.serve(path(&tree), &[]);
        net.as_client(|| {
            let mut client = connect(addresses()[0]);
            client.send(request("GET /f2")).unwrap();
            content(2).assert_is(&client.response().unwrap().body);
        });
        net.delete_interface();
        assert!(server.wait_for_stderr("interface eth1: it is gone; ", SOON).is_some());
        let before = processor_ticks(server.pid());
        thread::sleep(Duration::from_secs(1));
        let used = processor_ticks(server.pid()) - before;
        // A busy loop takes 100, or what other processes leave; a machine that is busy makes it fewer.
        assert!(used < 20, "{used} ticks");
        let told = server.stderr().iter().filter(|line| line.contains("it is gone")).count();
        assert_eq!(told, 1);
        assert!(server.terminate().unwrap().success());
    });
}

#[test]
fn a_thousand_downloads_at_once() {
    const CLIENTS: usize = 1000;
    let file = Content::pseudo_random(3, 200_000);
    let tree = Tree::new().file("f", file.clone());
    on_all_ways(|net| {
        let _server = net.serve(path(&tree), &[]);
        net.as_client(|| {
            let mut clients: Vec<_> = (0..CLIENTS).map(|_| connect(addresses()[0])).collect();
            for client in &mut clients {
                client.send(request("GET /f\nConnection: close")).unwrap();
            }
            for client in &mut clients {
                file.assert_is(&client.response().unwrap().body);
                assert_eq!(client.read_to_end().unwrap(), b"");
            }
        });
    });
}

/// Waits until the server has no connection. If some are left, both ends say what they know of them.
#[track_caller]
fn assert_empty(net: &Net, control: &str) {
    if wait_until(SOON, || stack(control, &[]).contains("connections: 0;")) {
        return;
    }
    let server = stack(control, &["--connections"]);
    let client = net.at_client("ss").args(["--tcp", "--all", "-noi"]).output().unwrap();
    panic!(
        "connections are left: {server}at the client: {}",
        String::from_utf8_lossy(&client.stdout)
    );
}

#[test]
fn slow_and_rude_clients_leave_nothing_behind() {
    let file = Content::pseudo_random(4, 3_000_000);
    let tree = Tree::new().file("f", file.clone());
    on_all_ways(|net| {
        let control = format!("{}/.control", path(&tree));
        let _server = net.serve(path(&tree), &["--control", &control]);
        net.as_client(|| {
            let ask = || {
                let mut client = TcpStream::connect(addresses()[0]).unwrap();
                client.write_all(request("GET /f\nConnection: close").as_bytes()).unwrap();
                client
            };
            // Its window is closed for a second, again and again for small parts.
            let mut slow = ask();
            thread::sleep(Duration::from_secs(1));
            let mut bytes = vec![0; 100_000];
            for part in bytes.chunks_mut(1000) {
                slow.read_exact(part).unwrap();
                thread::sleep(Duration::from_millis(2));
            }
            slow.read_to_end(&mut bytes).unwrap();
            assert!(bytes.ends_with(&file.read(file.len() - 1000, 1000)));
            // Bytes that are received and not read make the kernel send a reset.
            let mut rude = ask();
            rude.read_exact(&mut [0; 10]).unwrap();
            drop(rude);
        });
        assert_empty(net, &control);
    });
}

#[test]
fn errors_say_what_to_do() {
    let tree = site();
    let net = or_skip!(Net::new(Frames::Packet));
    let fails = |arguments: &[&str]| {
        let output =
            net.at_server(SAMUM).args(["serve", path(&tree)]).args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    for (arguments, expected) in [
        (&["--interface", "eth7"][..], "ip link"),
        (&["--interface", "eth1"], "add --listen 10.77.0.1:80"),
        (&["--interface", "eth1", "--listen", "10.77.0.1:0"], "name one"),
        (&["--interface", "eth1", "--listen", "10.77.0.1:80", "--frames", "tap"], "add --address"),
    ] {
        let error = fails(arguments);
        assert!(error.contains(expected), "{arguments:?}: {error}");
    }
}

/// More than a batch of recorded frames.
const BATCH_BYTES_MAX: u64 = 400 * 1024;

#[test]
fn frames_are_recorded() {
    let tree = site();
    let net = or_skip!(Net::new(Frames::Packet));
    let directory = Tree::new();
    let file = format!("{}/recorded.pcapng", path(&directory));
    let mut server =
        net.serve(path(&tree), &["--pcap", &file, "--pcap-size", "200k", "--pcap-files", "2"]);
    net.as_client(|| {
        let mut client = connect(addresses()[0]);
        for _ in 0..3 {
            client.send(request("GET /f5")).unwrap();
            content(5).assert_is(&client.response().unwrap().body);
        }
        client.send(request("GET /f2")).unwrap();
        content(2).assert_is(&client.response().unwrap().body);
    });
    // What was recorded is written with the next batch, or at the end of this one.
    let has_all = || {
        let (new, old) = (std::fs::read(&file), std::fs::read(format!("{file}.1")));
        let (Ok(new), Ok(old)) = (new, old) else { return false };
        // Each file begins with a section header, and is whole by itself.
        let files = [new, old];
        files.iter().all(|bytes| bytes.starts_with(&[0x0a, 0x0d, 0x0d, 0x0a]))
            && files.iter().any(|bytes| bytes.windows(7).any(|part| part == b"GET /f2"))
    };
    assert!(wait_until(SOON, has_all));
    assert!(server.terminate().unwrap().success());
    let all = std::fs::read_dir(directory.path()).unwrap().count();
    assert_eq!(all, 2, "files of the ring");
    for name in [file.clone(), format!("{file}.1")] {
        // It ends with the batch that makes it as long as it may be.
        let bytes = std::fs::metadata(&name).unwrap().len();
        assert!(bytes < 200 * 1024 + BATCH_BYTES_MAX, "{name} has {bytes} bytes");
        assert!(or_skip!(paths::frames(&name)) > 2, "{name}");
    }
}
