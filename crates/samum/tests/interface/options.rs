//! What options and rights promise: an address of samum's own, a gateway, a record of some peers, rights that go.

use core::net::{IpAddr, SocketAddr};
use std::fs;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use testkit::{Server, Tree, or_skip};

use crate::common::{SAMUM, SOON, request, wait_until};
use crate::net::{Frames, Net};
use crate::rude::{ask_on, check_response};
use crate::{addresses, connect, content, on_all_ways, path, site};

/// The rights that a reload, files of others and programs take (linux/capability.h): CHOWN, `DAC_OVERRIDE`, `DAC_READ_SEARCH`,
/// FOWNER, KILL, `NET_BIND_SERVICE` and `IPC_LOCK`. The others, such as `SYS_ADMIN`, `SYS_MODULE`, `SYS_PTRACE`, `NET_ADMIN`, `NET_RAW`
/// and BPF, go.
const KEPT: u64 = 1 | 1 << 1 | 1 << 2 | 1 << 3 | 1 << 5 | 1 << 10 | 1 << 14;

#[test]
fn threads_keep_only_the_rights_that_a_reload_takes() {
    let tree = site();
    on_all_ways(|net| {
        let server = net.serve(path(&tree), &[]);
        net.as_client(|| check(addresses()[0], 2));
        let mut threads = 0;
        for task in fs::read_dir(format!("/proc/{}/task", server.pid())).unwrap() {
            let status = fs::read_to_string(task.unwrap().path().join("status")).unwrap();
            threads += 1;
            for set in ["CapEff:", "CapPrm:", "CapInh:", "CapAmb:"] {
                let line = status.lines().find_map(|line| line.strip_prefix(set)).unwrap();
                let rights = u64::from_str_radix(line.trim(), 16).unwrap();
                assert_eq!(rights & !KEPT, 0, "{status}");
            }
        }
        assert!(threads > 1, "workers have threads");
    });
}

#[test]
fn a_user_keeps_the_rights_to_low_ports_and_to_locked_memory_only() {
    let tree = site();
    fs::set_permissions(tree.path(), fs::Permissions::from_mode(0o755)).unwrap();
    on_all_ways(|net| {
        let server = net.serve(path(&tree), &["--user", "nobody"]);
        net.as_client(|| check(addresses()[0], 2));
        for task in fs::read_dir(format!("/proc/{}/task", server.pid())).unwrap() {
            let status = fs::read_to_string(task.unwrap().path().join("status")).unwrap();
            let value = |name| {
                let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
                line.split_whitespace().collect::<Vec<_>>().join(" ")
            };
            assert_eq!(value("Uid:"), "65534 65534 65534 65534", "{status}");
            for set in ["CapEff:", "CapPrm:", "CapInh:", "CapAmb:", "CapBnd:"] {
                let rights = u64::from_str_radix(&value(set), 16).unwrap();
                assert_eq!(rights & !(1 << 10 | 1 << 14), 0, "{status}");
            }
        }
        assert!(server.wait_for_stderr("running as the user nobody", SOON).is_some());
    });
}

const ASKED: &str = "GET /f5\nConnection: close";

/// Asks for a file, and checks it.
fn check(address: SocketAddr, number: usize) {
    let stream = TcpStream::connect(address).unwrap();
    check_response(ask_on(stream, &format!("GET /f{number}\nConnection: close")), &content(number));
}

/// The addresses that only samum has.
const OWN: [&str; 2] = ["10.77.0.9", "fd77::9"];

fn own(number: usize) -> SocketAddr {
    SocketAddr::new(OWN[number].parse::<IpAddr>().unwrap(), 80)
}

/// Serves at addresses that the kernel does not have, although it has others on the interface.
fn serve_own(net: &Net, dir: &str, frames: Frames, options: &[&str]) -> Server {
    let mut command = net.at_server(SAMUM);
    command.args(["serve", dir, "--interface", "eth1", "--threads", "1"]);
    for (number, bits) in [(0, 24), (1, 64)] {
        command.args(["--address", &format!("{}/{bits}", OWN[number])]);
        command.args(["--listen", &own(number).to_string()]);
    }
    match frames {
        Frames::Xdp => command.args(["--frames", "xdp"]),
        Frames::Packet => command.args(["--frames", "packet"]),
        Frames::Auto | Frames::Tap => &mut command,
    };
    Server::spawn(command.args(options)).unwrap()
}

fn ping(net: &Net, address: &str) -> Result<bool, String> {
    let ping = net.at_client("ping").args(["-c", "1", "-W", "5", address]).output();
    ping.map(|output| output.status.success()).map_err(|error| format!("ping: {error}"))
}

#[test]
fn an_address_that_the_kernel_does_not_have_is_served() {
    let tree = site();
    for frames in [Frames::Auto, Frames::Xdp, Frames::Packet] {
        eprintln!("frames: {frames:?}");
        let net = or_skip!(Net::new(Frames::Packet));
        let mut server = serve_own(&net, path(&tree), frames, &[]);
        net.as_client(|| {
            for number in [0, 1] {
                check(own(number), 5);
            }
        });
        for address in OWN.into_iter().chain([crate::V4, crate::V6]) {
            assert!(or_skip!(ping(&net, address)), "{address}");
        }
        assert!(server.terminate().unwrap().success());
        assert!(!or_skip!(ping(&net, OWN[0])), "the kernel does not have the address");
    }
}

/// Runs a command of `ip` at the client's.
fn ip(net: &Net, arguments: &str) {
    let output = net.at_client("ip").args(arguments.split(' ')).output().unwrap();
    assert!(output.status.success(), "ip {arguments}: {output:?}");
}

/// Frames that AF_XDP has no room for, by the interface, in both directions. Without segments that a client may not send
/// longer than the room is, a long request would never come.
#[test]
fn requests_and_files_pass_over_an_interface_with_jumbo_frames() {
    let tree = site();
    for frames in [Frames::Auto, Frames::Xdp, Frames::Packet] {
        eprintln!("frames: {frames:?}");
        let net = or_skip!(Net::new(frames));
        let at_server = net.at_server("ip").args(["link", "set", "eth1", "mtu", "9000"]).status();
        assert!(at_server.unwrap().success());
        ip(&net, "link set cli mtu 9000");
        let mut server = net.serve(path(&tree), &[]);
        let long = format!("{ASKED}\nX-Long: {}", "x".repeat(7500));
        for address in addresses() {
            let stream = net.as_client(|| TcpStream::connect(address).unwrap());
            check_response(ask_on(stream, &long), &content(5));
        }
        assert!(server.terminate().unwrap().success());
    }
}

/// The link address of the router, which is not that of the client's interface.
const ROUTER: [u8; 6] = [2, 0x77, 0, 0, 2, 0x54];

/// Packets to another network go to another station of the client's than those from it come from: only the gateway
/// knows it.
#[test]
fn a_gateway_takes_the_answers_to_another_network() {
    let tree = site();
    let net = or_skip!(Net::new(Frames::Packet));
    let far = net.add_far();
    ip(&net, "link add router link cli address 02:77:00:00:02:54 type macvlan mode bridge");
    ip(&net, "address add 10.77.0.254/32 dev router");
    ip(&net, "address add fd77::254/128 dev router nodad");
    ip(&net, "link set router up");
    net.as_client(|| {
        // Each address is answered for by the interface that has it.
        for name in ["all", "cli", "router"] {
            fs::write(format!("/proc/sys/net/ipv4/conf/{name}/arp_ignore"), "1").unwrap();
            fs::write(format!("/proc/sys/net/ipv4/conf/{name}/rp_filter"), "0").unwrap();
        }
    });
    let directory = Tree::new();
    let record = format!("{}/record", path(&directory));
    let peers = far.join(",");
    let gateways = ["--gateway", "10.77.0.254", "--gateway", "fd77::254"];
    let options = [&gateways[..], &["--pcap", &record, "--pcap-peers", &peers]].concat();
    let mut server = serve_own(&net, path(&tree), Frames::Packet, &options);
    for (number, ip_header) in [(0, [8, 0, 0x45]), (1, [0x86, 0xdd, 0x60])] {
        net.as_far(|| {
            // The router's answer may come after the first request, and the new links need a moment.
            let comes_by_router = || {
                if TcpStream::connect(own(number)).is_err() {
                    return false;
                }
                check(own(number), 5);
                has_frame_to(&record, ROUTER, ip_header)
            };
            assert!(wait_until(SOON, comes_by_router), "no answer goes through the router");
        });
    }
    assert!(server.terminate().unwrap().success());
}

/// Whether a frame to a station was recorded, whose ethertype and first byte are these.
fn has_frame_to(record: &str, station: [u8; 6], ip_header: [u8; 3]) -> bool {
    let is_it = |part: &[u8]| part.starts_with(&station) && part.ends_with(&ip_header);
    let at = |bytes: &[u8]| bytes.windows(15).any(is_it);
    at(&fs::read(record).unwrap_or_default())
}

/// Without a gateway answers go back to the station that requests come from.
#[test]
fn another_network_is_served_through_the_router_of_its_requests() {
    let tree = site();
    on_all_ways(|net| {
        net.add_far();
        // The kernel's addresses need no route: samum takes no part in the kernel's routing.
        let _server = net.serve(path(&tree), &[]);
        net.as_far(|| {
            for address in addresses() {
                // The new links need a moment.
                assert!(wait_until(SOON, || TcpStream::connect(address).is_ok()), "{address}");
                let stream = TcpStream::connect(address).unwrap();
                check_response(ask_on(stream, ASKED), &content(5));
            }
        });
    });
}

#[test]
fn each_right_that_lacks_is_named() {
    let tree = site();
    let net = or_skip!(Net::new(Frames::Packet));
    for (right, name) in
        [("net_raw", "CAP_NET_RAW"), ("net_admin", "CAP_NET_ADMIN"), ("bpf", "CAP_BPF")]
    {
        let mut command = net.at_server("setpriv");
        command.args(["--bounding-set", &format!("-{right}"), SAMUM, "serve", path(&tree)]);
        command.args(["--interface", "eth1", "--listen", "10.77.0.1:80"]);
        let output = or_skip!(command.output().map_err(|error| format!("setpriv: {error}")));
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let error = String::from_utf8(output.stderr).unwrap();
        let lacks = format!("interface eth1: to take frames from it lacks {name}; ");
        assert!(error.contains(&lacks), "{error}");
        assert!(error.contains("setcap cap_net_raw,cap_net_admin,cap_bpf+ep"), "{error}");
        assert!(error.contains("ports below 1024 also need CAP_NET_BIND_SERVICE"), "{error}");
    }
}

/// A server that has only some rights, and may lock only so much memory.
fn with_rights(net: &Net, dir: &str, rights: &str, locked_kib_max: u64, port: u16) -> Command {
    let mut command = net.at_server("prlimit");
    command.args([&format!("--memlock={}", locked_kib_max * 1024), "setpriv"]);
    command.args([&format!("--bounding-set=-all,{rights}"), SAMUM, "serve", dir]);
    command.args(["--interface", "eth1", "--listen", &format!("10.77.0.1:{port}")]);
    command
}

/// The test's process has all rights, so that a right that is needed and not named shows only here. The kernel counts
/// the locked memory of all processes of a user, so that this is one test.
#[test]
fn the_rights_and_the_memory_that_are_named_suffice() {
    let tree = site();
    let rights = "+net_raw,+net_admin,+bpf";
    // By default a virtual cable has a queue for each processor, and uses one.
    let net = or_skip!(Net::new(Frames::Packet));
    for (rights, port) in [(rights.to_owned(), 8080), (format!("{rights},+net_bind_service"), 80)] {
        let command = &mut with_rights(&net, path(&tree), &rights, 5636, port);
        let _server = Server::spawn(command).unwrap();
        net.as_client(|| check(SocketAddr::new("10.77.0.1".parse().unwrap(), port), 5));
    }
    let fails = |net: &Net, locked_kib_max, port, expected: &str| {
        let output = with_rights(net, path(&tree), rights, locked_kib_max, port).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(error.contains(expected), "{error}");
    };
    fails(&net, 5636, 80, "ports below 1024 need CAP_NET_BIND_SERVICE");
    fails(&net, 5631, 8080, "its receive queues (1) need 5636 KiB of locked memory");
    let net = or_skip!(Net::with_queues(Frames::Packet, 3));
    fails(&net, 6000, 8080, "its receive queues (3) need 16900 KiB of locked memory");
}

#[test]
fn only_the_peers_that_were_asked_for_are_recorded() {
    let tree = site();
    let net = or_skip!(Net::new(Frames::Packet));
    for (peers, recorded) in [("10.77.0.2", 0), ("fd77::/16", 1), ("10.77.0.3,fd77::2", 1)] {
        let directory = Tree::new();
        let record = format!("{}/record", path(&directory));
        let mut server = net.serve(path(&tree), &["--pcap", &record, "--pcap-peers", peers]);
        net.as_client(|| {
            for (number, address) in addresses().into_iter().enumerate() {
                let mut client = connect(address);
                client.send(request(&format!("GET /f{number}"))).unwrap();
                content(number).assert_is(&client.response().unwrap().body);
            }
        });
        assert!(server.terminate().unwrap().success());
        let bytes = fs::read(Path::new(&record)).unwrap();
        let has = |asked: &str| bytes.windows(asked.len()).any(|part| part == asked.as_bytes());
        assert_eq!([has("GET /f0"), has("GET /f1")], [recorded == 0, recorded == 1], "{peers}");
    }
}

#[test]
fn a_gateway_without_a_network_is_refused() {
    let fails = |options: &[&str]| {
        let command = ["serve", "/tmp", "--interface", "eth1", "--listen", "10.77.0.9:80"];
        let output = Command::new(SAMUM).args(command).args(options).output().unwrap();
        assert!(!output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    let error = fails(&["--address", "10.77.0.9/24", "--gateway", "10.78.0.1"]);
    assert!(error.contains("gateway 10.78.0.1: it is in the network of no address"), "{error}");
    assert!(fails(&["--gateway", "10.77.0.1"]).contains("--address"));
}
