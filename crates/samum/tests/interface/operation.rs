//! The operation of a server at an interface: reloads, its end, epoll, and the log.

use core::time::Duration;
use std::fs;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use rustix::process::Signal;
use testkit::{Address, Client, Content, Server, Tree, or_skip};

use crate::common::{SAMUM, SOON, request, wait_until};
use crate::net::{Frames, Net, V4, V6};
use crate::{SIZES, addresses, connect, content, on_all_ways, path, site};

/// Asks for all files on one connection to each address.
fn check_all() {
    for address in addresses() {
        let mut client = connect(address);
        for number in 0..SIZES.len() {
            client.send(request(&format!("GET /f{number}"))).unwrap();
            content(number).assert_is(&client.response().unwrap().body);
        }
    }
}

#[test]
fn epoll_serves_an_interface() {
    let tree = site();
    on_all_ways(|net| {
        let server = net.serve(path(&tree), &["--driver", "epoll"]);
        assert!(server.wait_for_stderr(" on epoll", SOON).is_some(), "{:?}", server.stderr());
        net.as_client(check_all);
    });
}

/// The same as with the kernel's TCP: what has begun is completed, and nothing new begins.
#[test]
fn a_download_outlives_sigterm() {
    let large = Content::pseudo_random(8, 20 * 1024 * 1024);
    let tree = Tree::new().file("large", large.clone());
    for driver in ["uring", "epoll"] {
        on_all_ways(|net| {
            let mut server = net.serve(path(&tree), &["--driver", driver]);
            net.as_client(|| {
                let mut client = connect(addresses()[0]);
                client.send(request("GET /large")).unwrap();
                let head = client.head().unwrap();
                server.signal(Signal::TERM).unwrap();
                assert!(server.wait_for_stderr("shutting down", SOON).is_some());
                let is_refused =
                    || TcpStream::connect_timeout(&addresses()[0], Duration::from_secs(1)).is_err();
                assert!(wait_until(SOON, is_refused), "new connections");
                assert_eq!(head.status, 200);
                large.assert_is(&client.read_exactly(20 * 1024 * 1024).unwrap());
                assert_eq!(client.read_to_end().unwrap(), b"");
            });
            assert_eq!(server.wait(SOON).unwrap().code(), Some(0), "{:?}", server.stderr());
        });
    }
}

#[test]
fn a_server_at_an_interface_has_to_be_restarted_instead_of_upgraded() {
    let tree = Tree::new().file("site/f", Content::pseudo_random(9, 1000));
    let net = or_skip!(Net::new(Frames::Packet));
    let control = format!("{}/.control", path(&tree));
    let config = format!("{}/samum.toml", path(&tree));
    let text = format!(
        "[server]\nthreads = 1\ncontrol = '{control}'\ninterface = ['eth1']\nframes = 'packet'\n\
         [[site]]\nlisten = ['{V4}:80', '[{V6}]:80']\n[[site.route]]\nfiles = 'site'\n"
    );
    fs::write(&config, text).unwrap();
    let mut command = net.at_server(SAMUM);
    let server = Server::spawn(command.args(["serve", "--config", &config])).unwrap();
    assert!(server.wait_for_stderr(" on ", SOON).is_some());
    let output = Command::new(SAMUM).args(["upgrade", "--control", &control]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    let expected = "the TCP/IP stack of an interface ends with its process: restart the server";
    assert!(said.lines().count() == 1 && said.contains(expected), "{said}");
    net.as_client(|| {
        let mut client = connect(addresses()[0]);
        client.send(request("GET /f")).unwrap();
        assert_eq!(client.response().unwrap().status, 200);
    });
}

#[test]
fn a_reload_says_what_takes_effect_after_a_restart() {
    let tree = Tree::new().file("site/f", Content::pseudo_random(9, 1000));
    let net = or_skip!(Net::new(Frames::Packet));
    let control = format!("{}/.control", path(&tree));
    let config = format!("{}/samum.toml", path(&tree));
    let write = |server: &str, listen: &str| {
        let text = format!(
            "[server]\nthreads = 1\ncontrol = '{control}'\n{server}\n\
             [[site]]\nlisten = [{listen}]\n[[site.route]]\nfiles = 'site'\n"
        );
        fs::write(&config, text).unwrap();
    };
    let listen = format!("'{V4}:80', '[{V6}]:80'");
    write("interface = ['eth1']\nframes = 'packet'", &listen);
    let mut command = net.at_server(SAMUM);
    let server = Server::spawn(command.args(["serve", "--config", &config])).unwrap();
    let reload = || {
        let output = Command::new(SAMUM).args(["reload", "--control", &control]).output().unwrap();
        let [out, error] = [output.stdout, output.stderr].map(|it| String::from_utf8(it).unwrap());
        (output.status.code(), out + &error)
    };
    let keys = "interface = [{ name = 'eth1', addresses = ['10.77.0.9/24'] }]\nframes = 'xdp'\n\
                congestion = 'bbr'\npcap = '/dev/null'";
    write(keys, &listen);
    let (code, said) = reload();
    assert_eq!(code, Some(0), "{said}");
    for key in ["interface", "frames", "congestion", "pcap"] {
        let expected = format!("`{key}`: takes effect after a restart");
        assert!(said.contains(&expected), "{expected}: {said}");
    }
    write("interface = ['eth1']\nframes = 'packet'", &format!("{listen}, '{V4}:81'"));
    let (code, said) = reload();
    assert_eq!(code, Some(1), "{said}");
    let refused = said;
    // What it had at the start can go, and come back.
    write("interface = ['eth1']\nframes = 'packet'", &format!("'[{V6}]:80'"));
    let (code, said) = reload();
    assert_eq!(code, Some(0), "{said}");
    let kept =
        "no longer listening on 10.77.0.1:80; the interface eth1 keeps the port until a restart";
    assert!(server.wait_for_stderr(kept, SOON).is_some(), "{:?}", server.stderr());
    net.as_client(|| {
        // The stack has the port, and resets what is accepted there.
        let Ok(mut stream) = TcpStream::connect(addresses()[0]) else { return };
        let _ = stream.write_all(request("GET /f").as_bytes());
        assert!(!matches!(stream.read(&mut [0]), Ok(1)));
    });
    write("interface = ['eth1']\nframes = 'packet'", &listen);
    let (code, said) = reload();
    assert_eq!(code, Some(0), "{said}");
    let said = refused;
    let expected =
        format!("{V4}:81: it is an address of the interface eth1, which takes new listeners");
    assert!(said.contains(&expected), "{said}");
    net.as_client(|| {
        let mut client = connect(addresses()[0]);
        client.send(request("GET /f")).unwrap();
        assert_eq!(client.response().unwrap().status, 200);
    });
}

/// The first listener is the interface's alone, so those of the kernel do not begin with the number 0.
#[test]
fn listeners_of_the_kernel_keep_their_sites_beside_those_of_an_interface() {
    let names = ["frames", "first", "second"];
    let tree = names.iter().fold(Tree::new(), |tree, name| tree.file(format!("{name}/f"), *name));
    let net = or_skip!(Net::new(Frames::Packet));
    let (dir, config) = (path(&tree), format!("{}/samum.toml", path(&tree)));
    let site = |name: &str, listen: String| {
        format!("[[site]]\nlisten = ['{listen}']\n[[site.route]]\nfiles = '{name}'\n")
    };
    let unix = |name: &str| format!("unix:{dir}/{name}.sock");
    let text = "[server]\nthreads = 1\ninterface = ['eth1']\nframes = 'packet'\n".to_owned()
        + &site(names[0], format!("{V4}:80"))
        + &site(names[1], unix(names[1]))
        + &site(names[2], unix(names[2]));
    fs::write(&config, text).unwrap();
    let mut command = net.at_server(SAMUM);
    let _server = Server::spawn(command.args(["serve", "--config", &config])).unwrap();
    let ask = |mut client: Client| {
        client.send(request("GET /f")).unwrap();
        client.response().unwrap().body
    };
    assert_eq!(net.as_client(|| ask(connect(addresses()[0]))), b"frames");
    for name in &names[1..] {
        let address = Address::Unix(format!("{dir}/{name}.sock").into());
        assert_eq!(ask(Client::connect(&address).unwrap()), name.as_bytes());
    }
}

/// Of the address twice, and of a listener of all addresses beside, no two sockets are in each other's way.
#[test]
fn no_other_server_gets_the_port_of_an_interface() {
    let tree = site();
    let net = or_skip!(Net::new(Frames::Packet));
    let again = ["address", "add", &format!("{V4}/32"), "dev", "eth1"];
    assert!(net.at_server("ip").args(again).status().unwrap().success());
    // An end of an old connection is at the port.
    net.as_server(|| {
        let listener = TcpListener::bind((V4, 80)).unwrap();
        let client = net.as_client(|| TcpStream::connect((V4, 80)).unwrap());
        drop(listener.accept().unwrap());
        drop(client);
    });
    // The last one begins while nothing of the kernel's is left at the port.
    for others in [&[][..], &["--listen", "0.0.0.0:80"], &[]] {
        let server = net.serve(path(&tree), others);
        // It asks for SO_REUSEADDR, as nearly all servers do.
        let error = net.as_server(|| TcpListener::bind((V4, 80)).unwrap_err());
        assert_eq!(error.kind(), ErrorKind::AddrInUse);
        net.as_client(check_all);
        drop(server);
    }
}

/// What samum does not use may change: a TAP device has a MAC and addresses at the other end of its cable.
#[test]
fn changes_of_the_interface_are_told_once() {
    const OTHER_MAC: &str = "02:77:00:00:00:99";
    let tree = site();
    for frames in [Frames::Auto, Frames::Tap] {
        eprintln!("frames: {frames:?}");
        let net = or_skip!(Net::new(frames));
        let server = net.serve(path(&tree), &[]);
        let change = |arguments: &str| {
            let output = net.at_server("ip").args(arguments.split(' ')).output().unwrap();
            assert!(output.status.success(), "ip {arguments}: {output:?}");
        };
        change("address add 10.79.0.1/24 dev eth1");
        change("address delete 10.79.0.1/24 dev eth1");
        change(&format!("link set eth1 address {OTHER_MAC}"));
        // It is the last one of each round.
        change("link set eth1 mtu 1400");
        let expected = "its MTU is 1400 now; the server goes on with 1500 until it is restarted";
        assert!(server.wait_for_stderr(expected, SOON).is_some(), "{:?}", server.stderr());
        change("link set eth1 mtu 1400");
        change(&format!("link set eth1 address {OTHER_MAC}"));
        change("link set eth1 mtu 1500");
        assert!(server.wait_for_stderr("its MTU is 1500 again", SOON).is_some());
        let told = |part: &str| server.stderr().iter().filter(|line| line.contains(part)).count();
        assert_eq!(told(expected), 1, "{:?}", server.stderr());
        let is_used = usize::from(frames != Frames::Tap);
        let mac = format!("interface eth1: its MAC address is {OTHER_MAC} now; the server goes on");
        assert_eq!(told(&mac), is_used, "{:?}", server.stderr());
        assert_eq!(told("the address 10.79.0.1/24 was added; "), is_used, "{:?}", server.stderr());
        assert_eq!(told("10.79.0.1/24 was removed"), 0, "{:?}", server.stderr());
    }
}

/// Each size has its way and both costs: `AF_XDP (1.5 µs, by packet socket 2.0)`, or the other way round.
#[test]
fn the_log_says_what_auto_has_chosen_and_why() {
    let tree = site();
    let net = or_skip!(Net::new(Frames::Auto));
    let server = net.serve(path(&tree), &[]);
    let line = server.wait_for_stderr("frames leave by", SOON).expect("a line about the choice");
    let text = line.split_once("interface eth1: XDP in generic mode; small frames leave by ");
    let (small, large) = text.unwrap().1.split_once(", large data by ").unwrap();
    for (choice, is_large) in [(small, false), (large, true)] {
        let (way, costs) = choice.split_once(" (").unwrap();
        let other = if way == "AF_XDP" { "packet socket" } else { "AF_XDP" };
        assert!(["AF_XDP", "packet socket"].contains(&way), "{line}");
        let (cost, more) = costs.split_once(&format!(" µs, by {other} ")).unwrap();
        let [cost, more] = [cost, more.trim_end_matches(')')].map(|it| it.parse::<f64>().unwrap());
        // Small frames go by AF_XDP, too, if large ones do.
        let may_cost_more = !is_large && way == "AF_XDP";
        assert!(0.0 < cost && (cost <= more || may_cost_more), "{line}");
    }
}

/// A program has more rights than the server, which gives its own up: its environment and its descriptors are not shown.
#[test]
fn programs_at_an_interface_cannot_escape_their_end() {
    let tree = Tree::new().directory("cgi");
    let dir = path(&tree);
    let deaf =
        |name: &str| format!("sh -c 'trap \"\" TERM; echo $$ >{dir}/{name}; exec sleep 1000'");
    let head = "printf 'Content-Type: a/b\\n\\n'";
    let lost = format!("(env -i setsid {} </dev/null >/dev/null 2>&1 &); sleep 1000", deaf("lost"));
    for (name, text) in
        [("lost", lost), ("silent", format!("{head}; (setsid {} &)", deaf("silent")))]
    {
        let name = format!("cgi/{name}");
        tree.write(&name, format!("#!/bin/sh\n{text}\n").as_str());
        fs::set_permissions(tree.path().join(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
    let net = or_skip!(Net::new(Frames::Packet));
    let config = format!("{dir}/samum.toml");
    let text = format!(
        "[server]\nthreads = 1\ninterface = ['eth1']\nframes = 'packet'\n[[site]]\nlisten = ['{V4}:80']\n\
         [[site.route]]\npath = '/tool/'\ncgi = {{ directory = 'cgi', timeout = 3 }}\n"
    );
    fs::write(&config, text).unwrap();
    let mut command = net.at_server(SAMUM);
    let server = Server::spawn(command.args(["serve", "--config", &config])).unwrap();
    net.as_client(|| {
        for (name, status) in [("lost", 504), ("silent", 200)] {
            let mut client = connect(addresses()[0]);
            client.send(request(&format!("GET /tool/{name}"))).unwrap();
            assert_eq!(client.response().unwrap().status, status, "{name}");
        }
    });
    for name in ["lost", "silent"] {
        let pid = fs::read_to_string(tree.path().join(name)).unwrap();
        let process = format!("/proc/{}", pid.trim());
        let has_ended = wait_until(SOON, || !fs::exists(&process).unwrap());
        assert!(has_ended, "{name} is left: {:?}", server.stderr());
    }
}
