//! Devices at a virtual cable, with the kernel's TCP at the other end.

#![expect(clippy::cast_possible_truncation, reason = "numbers of tests are small")]

use core::net::SocketAddr;
use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use std::io::{self, Read as _, Write as _};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::process::{Command, Stdio};
use std::time::Instant;
use std::{env, thread};

use crate::net::{Namespace, Net, SEVERAL, enter, skip};
use netdev::{Counters, Device, Frames, HELD_MAX, Options, Protocol, Queue, Service};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};
use tcp::{ACK, FIN, RST, SYN, Segment, send};

#[path = "support/tcp.rs"]
mod tcp;

fn options(frames: Frames, locals: &[&str]) -> Options {
    let services = locals
        .iter()
        .map(|local| Service { protocol: Protocol::Tcp, local: local.parse().unwrap() });
    Options {
        interface: "srv".into(),
        frames,
        services: services.collect(),
        own_addresses: Vec::new(),
    }
}

/// Bytes that differ from their neighbours, and from the bytes one frame later.
fn body(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at % 251) as u8).collect()
}

/// Waits until frames have arrived, at most 20 ms.
fn wait(device: &Device) {
    let patience = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
    poll(&mut [PollFd::new(&device.fd(), PollFlags::IN)], Some(&patience)).unwrap();
}

/// Answers each data segment with `response`, until the stop flag is set. `see` sees each frame.
fn answer(
    device: &mut Device,
    response: &[u8],
    stop: &AtomicBool,
    mut see: impl FnMut(&[u8]),
) -> Counters {
    while !stop.load(Ordering::Relaxed) {
        wait(device);
        while let Some(frame) = device.receive() {
            see(&frame);
            answer_one(device, &frame, response);
        }
        assert!(device.flush());
    }
    device.counters()
}

fn answer_one(device: &mut Device, frame: &[u8], response: &[u8]) {
    use netstack::Transmit as _;

    let segment = Segment::parse(frame).expect("TCP only");
    let flags = segment.flags();
    let bytes_max = match device.limits() {
        limits if limits.cut_bytes_max == 0 => usize::from(limits.mtu) - 60,
        limits => limits.cut_bytes_max as usize,
    };
    if flags & RST != 0 {
    } else if flags & SYN != 0 {
        send(device, &segment.answer(0, SYN | ACK, 0), &[]).unwrap();
    } else if !segment.payload().is_empty() {
        let mut seq = segment.acknowledged();
        for part in response.chunks(bytes_max) {
            send(device, &segment.answer(seq, ACK, part.len()), part).unwrap();
            seq += part.len() as u32;
        }
    } else if flags & FIN != 0 {
        send(device, &segment.answer(segment.acknowledged(), FIN | ACK, 0), &[]).unwrap();
    }
}

/// Fetches the stack's response.
fn fetch(to: &str, bytes: usize) -> Vec<u8> {
    let mut stream = connect(to).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    stream.write_all(b"?").unwrap();
    let mut received = vec![0; bytes];
    stream.read_exact(&mut received).unwrap();
    received
}

fn connect(to: &str) -> io::Result<TcpStream> {
    TcpStream::connect_timeout(&to.parse::<SocketAddr>().unwrap(), Duration::from_secs(5))
}

/// Kernel services of the server: TCP on port 22 and UDP on port 53, which echo one message each.
struct Kernel {
    tcp: TcpListener,
    udp: UdpSocket,
}

impl Kernel {
    fn new(namespace: &Namespace) -> Self {
        namespace.enter(|| Self {
            tcp: TcpListener::bind("[::]:22").unwrap(),
            udp: UdpSocket::bind("[::]:53").unwrap(),
        })
    }

    /// Checks that the client reaches the services, and that the kernel answers ping.
    fn check(&self, client: &Namespace) {
        for host in ["10.9.0.1", "fd09::1"] {
            if client.run(&format!("ping -c 1 -W 5 {host}")).is_none() {
                skip("no ping");
            }
        }
        let mut buffer = [0; 5];
        for host in ["10.9.0.1", "[fd09::1]"] {
            let mut stream = client.enter(|| connect(&format!("{host}:22")).unwrap());
            stream.write_all(b"hello").unwrap();
            self.tcp.accept().unwrap().0.read_exact(&mut buffer).unwrap();
            let udp = client.enter(|| UdpSocket::bind("[::]:0").unwrap());
            let to = format!("{host}:53").replace("10.9.0.1", "[::ffff:10.9.0.1]");
            udp.send_to(b"hello", to).unwrap();
            self.udp.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
            assert_eq!(self.udp.recv(&mut buffer).unwrap(), 5);
            // A port without a service: the kernel refuses it.
            let refused = client.enter(|| connect(&format!("{host}:81")).unwrap_err());
            assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
        }
    }
}

/// Stops the stack's side when it is dropped, also by a panic.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs the stack's side and the client's side. Returns the device's counters.
fn with_device(
    net: &Net,
    options: &Options,
    response: &[u8],
    see: impl FnMut(&[u8]) + Send,
    client: impl FnOnce(),
) -> Counters {
    let stop = AtomicBool::new(false);
    let mut queues = net.server.enter(|| netdev::open(options).unwrap().queues);
    let queue = queues.remove(0);
    thread::scope(|scope| {
        let counters = scope.spawn(|| answer(&mut queue.start(), response, &stop, see));
        let stop = Stop(&stop);
        client();
        drop(stop);
        counters.join().unwrap()
    })
}

const LOCALS: [&str; 2] = ["10.9.0.1:80", "[fd09::1]:80"];

#[test]
fn the_stack_has_its_ports_and_the_kernel_all_others() {
    let Some(net) = Net::new() else { return };
    let kernel = Kernel::new(&net.server);
    kernel.check(&net.client);
    let response = body(60_000);
    for frames in [Frames::Auto, Frames::Xdp, Frames::Packet] {
        let counters = with_device(
            &net,
            &options(frames, &LOCALS),
            &response,
            |_| {},
            || {
                kernel.check(&net.client);
                for local in LOCALS {
                    for _ in 0..3 {
                        assert!(net.client.enter(|| fetch(local, response.len())) == response);
                    }
                }
                kernel.check(&net.client);
            },
        );
        assert_eq!((counters.lost, counters.refused, counters.copied), (0, 0, 0), "{frames:?}");
        // Six responses of 42 segments.
        match frames {
            Frames::Packet => assert!(counters.sent < 100, "{counters:?}"),
            Frames::Xdp => assert!(counters.sent > 6 * 42, "{counters:?}"),
            Frames::Auto | Frames::Tap => {}
        }
        for local in LOCALS {
            let refused = net.client.enter(|| connect(local).unwrap_err());
            assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused, "{frames:?}");
        }
        kernel.check(&net.client);
    }
}

/// Without offloads the client verifies the checksums of the sending side, and large frames are cut before they
/// reach the cable.
#[test]
fn checksums_and_segments_are_right_without_offloads() {
    let Some(net) = Net::new() else { return };
    let off = net.server.run("ethtool -K srv tx off tso off gso off");
    if off.and_then(|_| net.client.run("ethtool -K cli rx off tx off gro off tso off")).is_none() {
        return skip("no ethtool");
    }
    let response = body(60_000);
    for frames in [Frames::Auto, Frames::Xdp, Frames::Packet] {
        with_device(
            &net,
            &options(frames, &LOCALS),
            &response,
            |_| {},
            || {
                for local in LOCALS {
                    assert!(net.client.enter(|| fetch(local, response.len())) == response);
                }
            },
        );
    }
    let statistics = net.client.enter(|| std::fs::read_to_string("/proc/thread-self/net/snmp"));
    assert_eq!(tcp_statistic(&statistics.unwrap(), "InCsumErrors"), 0);
}

fn tcp_statistic(statistics: &str, name: &str) -> u64 {
    let mut lines = statistics.lines().filter(|line| line.starts_with("Tcp:"));
    let names = lines.next().unwrap().split(' ');
    let (_, value) = names.zip(lines.next().unwrap().split(' ')).find(|it| it.0 == name).unwrap();
    value.parse().unwrap()
}

#[test]
fn frames_longer_than_a_chunk_are_joined() {
    let Some(net) = Net::new() else { return };
    // No part of the upload occurs twice.
    let upload: Vec<_> = (0..25_000_u16).flat_map(u16::to_be_bytes).collect();
    let (mut end, mut longest) = (0, 0);
    let is_whole = AtomicBool::new(false);
    let see = |frame: &[u8]| {
        longest = longest.max(frame.len());
        let payload = Segment::parse(frame).unwrap().payload();
        if !payload.is_empty() {
            let at = upload.windows(payload.len()).position(|window| window == payload);
            let at = at.expect("a part of what was sent");
            assert!(at <= end, "{at} is behind {end}");
            end = end.max(at + payload.len());
            is_whole.store(end == upload.len(), Ordering::Relaxed);
        }
    };
    let counters = with_device(&net, &options(Frames::Auto, &LOCALS), b"!", see, || {
        net.client.enter(|| {
            let mut stream = connect(LOCALS[0]).unwrap();
            stream.write_all(&upload).unwrap();
            let end = Instant::now() + Duration::from_secs(10);
            while !is_whole.load(Ordering::Relaxed) {
                assert!(Instant::now() < end, "the end is missing");
                thread::sleep(Duration::from_millis(1));
            }
        });
    });
    assert!(longest > 4096, "{longest} bytes");
    assert!(counters.copied > 0, "{counters:?}");
}

/// The stack takes tagged frames, too, and its received and sent frames have the tag.
#[test]
fn frames_may_have_a_vlan_tag() {
    let Some(net) = Net::new() else { return };
    let service = Service { protocol: Protocol::Udp, local: "10.9.0.1:53".parse().unwrap() };
    for frames in [Frames::Auto, Frames::Xdp, Frames::Packet] {
        let server = Options { services: vec![service], ..options(frames, &[]) };
        let service = Service { local: "10.9.0.2:53".parse().unwrap(), ..service };
        let client =
            Options { interface: "cli".into(), services: vec![service], ..options(frames, &[]) };
        let mut queues = net.server.enter(|| netdev::open(&server).unwrap().queues);
        let mut server = queues.remove(0).start();
        let mut queues = net.client.enter(|| netdev::open(&client).unwrap().queues);
        let mut client = queues.remove(0).start();
        // The stack knows no other tag, so the kernel accepts frames with other tags.
        let other = &[0x88, 0xa8, 0, 5];
        let frame = datagram(server.mac(), client.mac(), other, [10, 9, 0, 2], [10, 9, 0, 1]);
        emit(&mut client, &frame);
        for tag in [&[][..], &[0x81, 0x00, 0, 5]] {
            let there = datagram(server.mac(), client.mac(), tag, [10, 9, 0, 2], [10, 9, 0, 1]);
            assert_eq!(pass(&mut client, &there, &mut server), there, "{tag:?}");
            let back = datagram(client.mac(), server.mac(), tag, [10, 9, 0, 1], [10, 9, 0, 2]);
            assert_eq!(pass(&mut server, &back, &mut client), back, "{tag:?}");
        }
    }
}

/// A datagram from and to port 53, without checksums.
fn datagram(to: [u8; 6], from: [u8; 6], tag: &[u8], source: [u8; 4], target: [u8; 4]) -> Vec<u8> {
    let ip = [0x45, 0, 0, 28 + 5, 0, 0, 0x40, 0, 64, 17, 0, 0];
    let udp = [0, 53, 0, 53, 0, 8 + 5, 0, 0];
    [&to[..], &from, tag, &[0x08, 0x00], &ip, &source, &target, &udp, b"hello"].concat()
}

/// Sends a frame from one device to the other.
fn pass(from: &mut Device, frame: &[u8], to: &mut Device) -> Vec<u8> {
    emit(from, frame);
    wait(to);
    to.receive().expect("a frame").to_vec()
}

fn emit(from: &mut Device, frame: &[u8]) {
    use netstack::{Frame, Transmit as _};

    let (head, payload) = frame.split_at(frame.len() - 5);
    let frame = Frame { head, parts: &[payload], segment_bytes: None, checksum: None };
    from.send(&frame).unwrap();
    assert!(from.flush());
}

/// With the kernel's address as an own address, the machine could no longer be reached: the stack takes all its
/// frames.
#[test]
fn own_addresses_that_the_kernel_has_are_refused() {
    let Some(net) = Net::new() else { return };
    net.server.ip("addr add 10.9.1.1/32 dev lo");
    net.server.ip("tuntap add tap0 mode tap vnet_hdr");
    net.server.ip("link set tap0 up");
    for (interface, frames) in [("srv", Frames::Auto), ("tap0", Frames::Tap)] {
        for own in ["10.9.0.1", "fd09::1", "10.9.1.1"] {
            let options = Options {
                interface: interface.into(),
                own_addresses: vec!["10.9.0.99".parse().unwrap(), own.parse().unwrap()],
                ..options(frames, &[])
            };
            let error = net.server.enter(|| netdev::open(&options).unwrap_err()).to_string();
            assert!(error.contains(&format!("the kernel has the address {own} itself")), "{error}");
        }
    }
}

/// The stack takes ARP and neighbour solicitations for an own address, and none for the kernel's address.
#[test]
fn own_addresses_are_asked_for() {
    let Some(net) = Net::new() else { return };
    let options = Options {
        own_addresses: vec!["10.9.0.99".parse().unwrap(), "fd09::99".parse().unwrap()],
        ..options(Frames::Auto, &[])
    };
    let mut queues = net.server.enter(|| netdev::open(&options).unwrap().queues);
    let mut device = queues.remove(0).start();
    let kernel = Kernel::new(&net.server);
    kernel.check(&net.client);
    net.client.enter(|| {
        let patience = Duration::from_millis(50);
        for address in ["10.9.0.99:80", "[fd09::99]:80"] {
            TcpStream::connect_timeout(&address.parse().unwrap(), patience).unwrap_err();
        }
    });
    let frames: Vec<_> = core::iter::from_fn(|| device.receive()).collect();
    let ends_with = |frame: &[u8], ethertype: [u8; 2], target: &[u8], at: usize| {
        frame[12..14] == ethertype && frame[at..at + target.len()] == *target
    };
    assert!(frames.iter().any(|it| ends_with(it, [0x08, 0x06], &[10, 9, 0, 99], 38)), "ARP");
    let target = [0xfd, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x99];
    assert!(frames.iter().any(|it| ends_with(it, [0x86, 0xdd], &target, 62)), "solicitation");
    assert!(frames.iter().all(|it| it[12..14] == [0x08, 0x06] || it[12..14] == [0x86, 0xdd]));
}

/// A device that takes datagrams for a port, and a socket that sends to it.
fn datagrams(net: &Net) -> (Device, UdpSocket) {
    let service = Service { protocol: Protocol::Udp, local: "10.9.0.1:53".parse().unwrap() };
    let options = Options { services: vec![service], ..options(Frames::Auto, &[]) };
    let mut queues = net.server.enter(|| netdev::open(&options).unwrap().queues);
    let device = queues.remove(0).start();
    (device, net.client.enter(|| UdpSocket::bind("10.9.0.2:0").unwrap()))
}

#[test]
fn frames_that_are_held_do_not_stop_the_others() {
    const FRAMES: usize = 4000;
    let Some(net) = Net::new() else { return };
    let (mut device, socket) = datagrams(&net);
    let mut held = Vec::new();
    for number in 0..FRAMES {
        socket.send_to(&(number as u32).to_be_bytes(), "10.9.0.1:53").unwrap();
        wait(&device);
        held.extend(core::iter::from_fn(|| device.receive()));
    }
    assert_eq!(held.len(), FRAMES);
    assert_eq!(device.counters().copied as usize, FRAMES - HELD_MAX);
    for (number, frame) in held.iter().enumerate() {
        assert_eq!(&*frame.part(42..46), (number as u32).to_be_bytes());
    }
    drop(held);
    socket.send_to(b"more", "10.9.0.1:53").unwrap();
    wait(&device);
    assert_eq!(&device.receive().unwrap()[42..], b"more");
    assert_eq!(device.counters().copied as usize, FRAMES - HELD_MAX);
}

#[test]
fn frames_that_come_while_too_many_wait_are_counted() {
    const FRAMES: u64 = 4000;
    let Some(net) = Net::new() else { return };
    let (mut device, socket) = datagrams(&net);
    assert_eq!(device.missed(), 0);
    for number in 0..FRAMES {
        socket.send_to(&number.to_be_bytes(), "10.9.0.1:53").unwrap();
    }
    let mut received = 0;
    let began = Instant::now();
    while received + device.missed() < FRAMES && began.elapsed() < Duration::from_secs(5) {
        wait(&device);
        received += core::iter::from_fn(|| device.receive()).count() as u64;
    }
    assert_eq!(received + device.missed(), FRAMES, "{received} received");
    assert!(device.missed() > 0);
}

const CHILD: &str = "NETDEV_CHILD_NAMESPACE";

/// Runs this test again as a process that is killed.
#[test]
fn the_kernel_has_the_ports_when_the_process_was_killed() {
    if let Ok(name) = env::var(CHILD) {
        enter(&name);
        let mut opened = netdev::open(&options(Frames::Auto, &LOCALS)).unwrap();
        answer(&mut opened.queues.remove(0).start(), b"alive", &AtomicBool::new(false), |_| {});
    }
    let Some(net) = Net::new() else { return };
    for _ in 0..3 {
        let mut child = Command::new(env::current_exe().unwrap())
            .args(["--exact", "device::the_kernel_has_the_ports_when_the_process_was_killed"])
            .env(CHILD, net.server.name())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        while net.client.enter(|| connect(LOCALS[0])).is_err() {
            assert!(child.try_wait().unwrap().is_none(), "the child has ended");
            thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(net.client.enter(|| fetch(LOCALS[1], 5)), b"alive");
        child.kill().unwrap();
        child.wait().unwrap();
        let refused = net.client.enter(|| connect(LOCALS[0]).unwrap_err());
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
        // The next process can take the ports at once.
    }
}

#[test]
fn each_receive_queue_in_use_has_a_device() {
    let Some(net) = Net::with_queues(SEVERAL) else { return };
    let open = |frames| {
        let opened = net.server.enter(|| netdev::open(&options(frames, &LOCALS)).unwrap());
        assert_eq!(opened.interface.rx_queues, SEVERAL);
        opened.queues
    };
    if net.server.run("ethtool -L srv rx 1 tx 1").is_none() {
        return skip("no ethtool");
    }
    for frames in [Frames::Auto, Frames::Xdp, Frames::Packet] {
        let queues = open(frames);
        assert_eq!(queues.len(), 1);
        serve(&net, queues);
    }
    net.server.run(&format!("ethtool -L srv rx {SEVERAL} tx {SEVERAL}"));
    let queues = open(Frames::Auto);
    assert_eq!(queues.len(), SEVERAL as usize);
    serve(&net, queues);
}

/// Serves on all queues while a client sends requests.
fn serve(net: &Net, queues: Vec<Queue>) {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for queue in queues {
            scope.spawn(|| answer(&mut queue.start(), b"hello", &stop, |_| {}));
        }
        let _stop = Stop(&stop);
        for _ in 0..20 {
            assert_eq!(net.client.enter(|| fetch(LOCALS[0], 5)), b"hello");
        }
    });
}

#[test]
fn a_watch_tells_once_that_its_interface_is_gone() {
    let Some(net) = Net::new() else { return };
    let mut opened = net.server.enter(|| netdev::open(&options(Frames::Auto, &LOCALS)).unwrap());
    let watch = &mut opened.watch;
    net.server.ip("link add other type veth");
    net.server.ip("link del other");
    assert_eq!(watch.handle_readable().unwrap(), [""; 0]);
    net.server.ip("link del srv");
    let patience = Timespec { tv_sec: 5, tv_nsec: 0 };
    poll(&mut [PollFd::new(watch, PollFlags::IN)], Some(&patience)).unwrap();
    let news = watch.handle_readable().unwrap();
    let wanted = "interface srv: it is gone; restart the server when it is there again";
    assert_eq!(news, [wanted]);
    assert!(watch.is_gone());
    assert_eq!(watch.handle_readable().unwrap(), [""; 0]);
}

#[test]
fn a_watch_tells_a_few_changes_in_a_row() {
    let Some(net) = Net::new() else { return };
    let mut opened = net.server.enter(|| netdev::open(&options(Frames::Auto, &LOCALS)).unwrap());
    let watch = &mut opened.watch;
    for mtu in 1401..=1412 {
        net.server.ip(&format!("link set srv mtu {mtu}"));
    }
    let news = watch.handle_readable().unwrap();
    let wanted = |mtu| {
        format!(
            "interface srv: its MTU is {mtu} now; the server goes on with 1500 until it is restarted"
        )
    };
    assert_eq!(news, (1401..=1410).map(wanted).collect::<Vec<_>>());
    net.server.ip("link set srv mtu 1500");
    assert_eq!(watch.handle_readable().unwrap(), [""; 0]);
    assert!(!watch.is_gone());
}

#[test]
fn a_tap_device_is_a_cable_to_the_stack() {
    let Some(net) = Net::new() else { return };
    net.server.ip("tuntap add tap0 mode tap");
    net.server.ip("addr add 10.9.7.2/24 dev tap0");
    net.server.ip("link set tap0 up");
    let options = Options { interface: "tap0".into(), ..options(Frames::Tap, &[]) };
    let mut opened = net.server.enter(|| netdev::open(&options).unwrap());
    let mut device = opened.queues.remove(0).start();
    let mac = device.mac().map(|byte| format!("{byte:02x}")).join(":");
    net.server.ip(&format!("neigh add 10.9.7.1 lladdr {mac} dev tap0"));
    let response = body(60_000);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let _stop = Stop(&stop);
            assert!(net.server.enter(|| fetch("10.9.7.1:80", response.len())) == response);
        });
        // The kernel sends more than TCP to its neighbour.
        while !stop.load(Ordering::Relaxed) {
            wait(&device);
            while let Some(frame) = device.receive() {
                if Segment::parse(&frame).is_some() {
                    answer_one(&mut device, &frame, &response);
                }
            }
        }
    });
    assert_eq!(device.counters().lost, 0);
}

/// The kernel releases a device some time after its process has died, if a ring still holds descriptors of the
/// device.
#[test]
fn a_tap_device_that_is_given_back_late_is_waited_for() {
    let Some(net) = Net::new() else { return };
    net.server.ip("tuntap add tap0 mode tap");
    net.server.ip("link set tap0 up");
    let options = Options { interface: "tap0".into(), ..options(Frames::Tap, &[]) };
    let open = || net.server.enter(|| netdev::open(&options));
    let first = open().unwrap();
    // The second server begins while the first one still has the device.
    thread::scope(|scope| {
        let second = scope.spawn(|| open().map(drop));
        thread::sleep(Duration::from_millis(300));
        assert!(!second.is_finished(), "it waits");
        drop(first);
        second.join().unwrap().unwrap();
    });
    let _third = open().unwrap();
    let error = open().expect_err("the device stays busy").to_string();
    assert!(error.ends_with("; another process has it"), "{error}");
}

#[test]
fn errors_say_what_to_do() {
    let Some(net) = Net::new() else { return };
    let fails = |options: &Options| {
        net.server.enter(|| netdev::open(options).expect_err("it fails").to_string())
    };
    let good = options(Frames::Auto, &LOCALS);
    let with = |interface: &str| Options { interface: interface.into(), ..good.clone() };
    assert_eq!(
        fails(&with("eth7")),
        "interface eth7: there is no such interface; `ip link` lists those of this network namespace"
    );
    assert_eq!(fails(&options(Frames::Auto, &[])), "interface srv: no service, and no own address");
    let without_rights = net.server.enter(|| {
        drop_rights();
        netdev::open(&good).expect_err("it fails").to_string()
    });
    assert!(
        without_rights.starts_with(
            "interface srv: to take frames from it lacks CAP_NET_RAW and CAP_NET_ADMIN and CAP_BPF; "
        ),
        "{without_rights}"
    );
    let tap = Options { frames: Frames::Tap, ..good.clone() };
    assert!(
        fails(&tap).starts_with("interface srv: attaching to the TAP device: "),
        "{}",
        fails(&tap)
    );
    let _opened = net.server.enter(|| netdev::open(&good).unwrap());
    assert_eq!(
        fails(&good),
        "interface srv: an AF_XDP socket for queue 0: Device or resource busy (os error 16); \
         another process has this queue"
    );
    net.server.ip("link set srv down");
    assert!(fails(&good).starts_with("interface srv: it is down; "), "{}", fails(&good));
}

/// Drops all capabilities of the calling thread.
fn drop_rights() {
    let none = CapabilitySet::empty();
    let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
    set_capabilities(None, sets).unwrap();
}
