//! Several receive queues and several interfaces: each has a stack of its own.

use core::net::SocketAddr;
use std::net::TcpStream;

use testkit::{Address, Client, Tree, or_skip};

use crate::common::{SOON, request, wait_until};
use crate::net::{Frames, Net, SECOND};
use crate::watch::stack;
use crate::{SIZES, addresses, connect, content, path, site};

const CLIENTS: usize = 64;

/// Asks for all files on a connection that stays open.
fn ask_for_all(client: &mut Client) {
    for number in 0..SIZES.len() {
        client.send(request(&format!("GET /f{number}"))).unwrap();
        content(number).assert_is(&client.response().unwrap().body);
    }
}

/// The connections of each stack, by its name.
fn connections(shown: &str) -> Vec<(&str, usize)> {
    let parts = shown.split("interface ").skip(1);
    let count = |part: &str| {
        let behind = part.split_once("connections: ").unwrap().1;
        behind.split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap()
    };
    parts.map(|part| (part.lines().next().unwrap(), count(part))).collect()
}

/// With XDP in generic mode, a frame of a veth's transmit queue n comes by the peer's receive queue n - 1 (of queue 0 by 0):
/// nothing turns the mark of the one into that of the other. So the third queue has no frames.
const QUEUES: u32 = 3;

#[test]
fn a_connection_has_one_queue_and_its_worker() {
    let tree = site();
    let net = or_skip!(Net::with_queues(Frames::Auto, QUEUES));
    let control = format!("{}/.control", path(&tree));
    let records = Tree::new();
    let record = format!("{}/all.pcapng", path(&records));
    let mut server = net.serve(path(&tree), &["--control", &control, "--pcap", &record]);
    net.as_client(|| {
        let mut clients: Vec<_> = (0..CLIENTS).map(|_| connect(addresses()[0])).collect();
        // In turns, so that frames of all connections come between those of each.
        for _ in 0..3 {
            clients.iter_mut().for_each(ask_for_all);
        }
        let shown = stack(&control, &[]);
        let [(_, first), (name, second), (_, none)] = connections(&shown)[..] else {
            panic!("not three stacks: {shown}")
        };
        assert_eq!((name, none), ("eth1, queue 1", 0));
        assert_eq!(first + second, CLIENTS, "{shown}");
        assert!(first > 0 && second > 0, "only one queue was tried: {shown}");
        assert!(!shown.contains("of no connection"), "segments met another stack: {shown}");
    });
    assert!(server.terminate().unwrap().success());
    for queue in 0..2 {
        let recorded = std::fs::read(records.path().join(format!("all-eth1-{queue}.pcapng")));
        let recorded = recorded.unwrap();
        assert!(recorded.windows(7).any(|part| part == b"GET /f2"), "queue {queue}");
    }
}

/// Links of all tunnels are wider, and both versions of IP believe it.
const NARROW_MTU: u16 = 1300;

/// The kernel chooses one queue for all reports of the router to an address, and two for the connections of its clients.
#[test]
fn a_narrow_path_is_learned_from_reports_that_come_to_any_queue() {
    let tree = site();
    let net = or_skip!(Net::with_queues(Frames::Auto, QUEUES));
    net.add_far();
    net.narrow_far(NARROW_MTU);
    let control = format!("{}/.control", path(&tree));
    let _server = net.serve(path(&tree), &["--control", &control]);
    net.as_far(|| {
        let mut clients = Vec::new();
        for address in addresses() {
            // The new links need a moment.
            assert!(wait_until(SOON, || TcpStream::connect(address).is_ok()), "{address}");
            clients.extend((0..CLIENTS / 4).map(|_| connect(address)));
        }
        clients.iter_mut().for_each(ask_for_all);
        let shown = stack(&control, &[]);
        let counts: Vec<_> = connections(&shown).iter().map(|(_, count)| *count).collect();
        assert!(counts[0] > 0 && counts[1] > 0, "only one queue was tried: {shown}");
    });
}

#[test]
fn two_interfaces_serve_the_same_site() {
    let tree = site();
    let net = or_skip!(Net::new(Frames::Auto));
    net.add_wire();
    let control = format!("{}/.control", path(&tree));
    let second: SocketAddr = format!("{SECOND}:80").parse().unwrap();
    let options = ["--control", &control, "--interface", "eth2", "--listen", &second.to_string()];
    let _server = net.serve(path(&tree), &options);
    net.as_client(|| {
        let mut clients = [connect(addresses()[0]), connect(second)];
        clients.iter_mut().for_each(ask_for_all);
        let said = stack(&control, &[]);
        assert_eq!(connections(&said), [("eth1, queue 0", 1), ("eth2, queue 0", 1)], "{said}");
        drop(clients);
        let is_empty = || connections(&stack(&control, &[])).iter().all(|(_, count)| *count == 0);
        assert!(wait_until(SOON, is_empty), "connections are left");
    });
    // The first one goes, and the second one serves on.
    net.delete_interface();
    net.as_client(|| {
        let mut client = Client::connect(&Address::Tcp(second)).unwrap();
        ask_for_all(&mut client);
    });
}
