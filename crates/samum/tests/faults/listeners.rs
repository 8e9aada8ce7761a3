//! Listeners: addresses that are in use, forbidden, or of another family.

use core::net::Ipv6Addr;
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;
use std::process::{Command, Stdio};

use testkit::{
    Address, Content, Server, Signal, Tree, forbid_io_uring, forbid_use_of_io_uring, get, skip,
    tether,
};

use super::outcome;
use crate::common::{
    SAMUM, SOON, as_nobody, ask, command, connect, joined, on_both_drivers, request, serve,
    serve_config, wait_until,
};

fn tree() -> Tree {
    let tree = Tree::new().file("a.txt", "hello");
    fs::set_permissions(tree.path(), fs::Permissions::from_mode(0o755)).unwrap();
    tree
}

#[test]
fn an_address_in_use_is_an_error_with_advice() {
    on_both_drivers(|driver| {
        let tree = tree();
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap();
        for threads in ["1", "2"] {
            let listen = address.to_string();
            let options = ["--listen", &listen, "--threads", threads];
            let (code, _, stderr) = outcome(&mut command(driver, tree.path(), &options));
            assert_eq!(code, Some(1), "{stderr}");
            assert!(
                stderr.contains(&format!("cannot listen on {address}: address already in use")),
                "{stderr}"
            );
            assert!(
                stderr.contains(&format!("ss -ltnp 'sport = :{}'", address.port())),
                "{stderr}"
            );
        }
    });
}

#[test]
fn two_servers_do_not_share_an_address() {
    on_both_drivers(|driver| {
        let tree = tree();
        let first = serve(driver, tree.path(), &["--threads", "2"]);
        let Address::Tcp(address) = first.address() else { unreachable!("it listens on TCP") };
        let listen = address.to_string();
        let options = ["--listen", &listen, "--threads", "2"];
        let (code, _, stderr) = outcome(&mut command(driver, tree.path(), &options));
        assert_eq!(code, Some(1), "{stderr}");
        assert!(stderr.contains("address already in use"), "{stderr}");
    });
}

#[test]
fn a_low_port_without_the_privilege_is_an_error_with_advice() {
    let lowest = fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start");
    let lowest: u16 = lowest.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(1024);
    if lowest <= 81 {
        skip!("ports from {lowest} on need no privilege here");
    }
    on_both_drivers(|driver| {
        let tree = tree();
        let (code, _, stderr) =
            outcome(as_nobody(&mut command(driver, tree.path(), &["--listen", "127.0.0.1:81"])));
        assert_eq!(code, Some(1), "{stderr}");
        assert!(stderr.contains("cannot listen on 127.0.0.1:81: permission denied"), "{stderr}");
        assert!(stderr.contains("CAP_NET_BIND_SERVICE; try --listen 127.0.0.1:8080"), "{stderr}");
    });
}

#[test]
fn an_address_of_another_machine_is_an_error() {
    on_both_drivers(|driver| {
        let tree = tree();
        // TEST-NET-1, which no machine has.
        let (code, _, stderr) =
            outcome(&mut command(driver, tree.path(), &["--listen", "192.0.2.1:8080"]));
        assert_eq!(code, Some(1), "{stderr}");
        assert!(stderr.contains("no interface of this machine has that address"), "{stderr}");
    });
}

#[test]
fn several_addresses_are_served_and_each_is_announced() {
    on_both_drivers(|driver| {
        let tree = tree();
        let sockets = Tree::new();
        let unix = joined("unix:", &sockets.path().join("s"));
        let options = [
            "--listen",
            "127.0.0.1:0",
            "--listen",
            "127.0.0.2:0",
            "--listen",
            &unix,
            "--threads",
            "2",
        ];
        let server = serve(driver, tree.path(), &options);
        assert!(server.wait_for_stderr("serving", SOON).is_some());
        let addresses = server.addresses();
        assert_eq!(addresses.len(), 3, "{:?}", server.stderr());
        for address in addresses {
            for _ in 0..4 {
                assert_eq!(get(&address, "/a.txt").unwrap().body, b"hello");
            }
        }
        let stderr = server.stderr();
        // The others depend on the place of the test.
        let others = ["running as root", "reachable from outside"];
        let is_other = |line: &&String| others.iter().any(|other| line.contains(other));
        let said = stderr.iter().filter(|line| !is_other(line)).count();
        assert_eq!(said, 4, "a line for each and one for the driver: {stderr:?}");
    });
}

#[test]
fn ipv6_is_served() {
    if let Err(reason) = TcpListener::bind((Ipv6Addr::LOCALHOST, 0)) {
        skip!("no IPv6: {reason}");
    }
    on_both_drivers(|driver| {
        let tree = tree();
        let server = serve(driver, tree.path(), &["--listen", "[::1]:0"]);
        assert_eq!(ask(&server, "GET /a.txt").body, b"hello");
        assert!(server.stderr()[0].contains("listening on http://[::1]:"), "{:?}", server.stderr());
    });
}

#[test]
fn a_unix_socket_is_made_replaced_if_stale_and_removed() {
    on_both_drivers(|driver| {
        let tree = tree();
        let sockets = Tree::new();
        let path = sockets.path().join("s");
        let listen = joined("unix:", &path);
        // A stale socket: its server has ended.
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        let mut server = serve(driver, tree.path(), &["--listen", &listen]);
        assert_eq!(ask(&server, "GET /a.txt").body, b"hello");
        // As long as this server runs, another cannot take the name.
        let (code, _, stderr) = outcome(&mut command(driver, tree.path(), &["--listen", &listen]));
        assert_eq!(code, Some(1), "{stderr}");
        assert!(stderr.contains("another server listens there"), "{stderr}");
        assert_eq!(ask(&server, "GET /a.txt").body, b"hello");
        assert_eq!(server.terminate().unwrap().code(), Some(0));
        assert!(!path.exists(), "removed at the end");
    });
}

#[test]
fn access_rules_hold_for_clients_on_unix_sockets() {
    on_both_drivers(|driver| {
        let tree = tree();
        let sockets = Tree::new();
        let root = tree.path().display();
        let route = |path: &str, rule: &str| {
            format!("[[site.route]]\npath = '{path}'\nfiles = '{root}'\n{rule}\n")
        };
        let config = format!(
            "[server]\ntrusted-proxies = ['unix']\n[[site]]\nlisten = ['unix:{}']\n{}{}{}{}",
            sockets.path().join("s").display(),
            route("/", ""),
            route("/some/", "allow = ['192.0.2.1']"),
            route("/unix/", "allow = ['192.0.2.1', 'unix']"),
            route("/none/", "deny = ['0.0.0.0/0', '::/0']"),
        );
        sockets.write("samum.toml", config.as_str());
        let mut command = Command::new(SAMUM);
        command.args(["serve", "--driver", driver, "--config"]);
        command.arg(sockets.path().join("samum.toml"));
        let server = Server::spawn(&mut command).expect("the server starts");
        let named = "X-Forwarded-For: 192.0.2.1";
        for (path, field, status) in [
            ("/a.txt", "Accept: */*", 200),
            ("/some/a.txt", "Accept: */*", 403),
            ("/some/a.txt", "X-Forwarded-For: unknown", 403),
            ("/some/a.txt", named, 200),
            ("/unix/a.txt", "Accept: */*", 200),
            ("/none/a.txt", "Accept: */*", 403),
            ("/none/a.txt", named, 403),
        ] {
            let found = ask(&server, &format!("GET {path}\n{field}")).status;
            assert_eq!(found, status, "{path} {field}");
        }
    });
}

/// An application that got such a request would take it for one of the proxy itself.
#[test]
fn a_request_whose_fields_name_different_clients_is_refused_whatever_its_route_does() {
    on_both_drivers(|driver| {
        let tree = Tree::new()
            .file("www/a.txt", "a")
            .file("cgi/env", "#!/bin/sh\necho Content-Type: text/plain\necho\necho $REMOTE_ADDR\n");
        let program = tree.path().join("cgi/env");
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let text = format!(
            "[server]\ndriver = \"{driver}\"\nthreads = 1\ntrusted-proxies = [\"127.0.0.1\"]\n\
             [[site]]\nlisten = [\"127.0.0.1:0\"]\n\
             [[site.route]]\nfiles = \"www\"\n\
             [[site.route]]\npath = \"/cgi/\"\ncgi = \"cgi\"\n\
             [[site.route]]\npath = \"/old/\"\nredirect = \"/new/\"\n\
             [[site.route]]\npath = \"/up/\"\nproxy = [\"http://127.0.0.1:1\"]\n"
        );
        let server = serve_config(&tree, &text);
        let agreed = "Forwarded: for=192.0.2.1\nX-Forwarded-For: 192.0.2.1";
        let forged = "Forwarded: for=192.0.2.9\nX-Forwarded-For: 192.0.2.1";
        for (path, status) in
            [("/a.txt", 200), ("/none", 404), ("/cgi/env", 200), ("/old/x", 308), ("/up/x", 502)]
        {
            assert_eq!(ask(&server, &format!("GET {path}\n{agreed}")).status, status, "{path}");
            assert_eq!(ask(&server, &format!("GET {path}\n{forged}")).status, 400, "{path}");
        }
        assert_eq!(ask(&server, &format!("GET /cgi/env\n{agreed}")).body, b"192.0.2.1\n");
    });
}

#[test]
fn a_server_that_ends_leaves_the_socket_of_its_successor() {
    on_both_drivers(|driver| {
        let tree = tree().file("big.bin", Content::pseudo_random(1, 20 << 20));
        let sockets = Tree::new();
        let path = sockets.path().join("s");
        let listen = joined("unix:", &path);
        let mut first = serve(driver, tree.path(), &["--listen", &listen]);
        // A download keeps the server from ending.
        let mut client = connect(&first);
        client.send(request("GET /big.bin")).unwrap();
        client.head().unwrap();
        first.signal(Signal::TERM).unwrap();
        assert!(first.wait_for_stderr("shutting down", SOON).is_some());
        assert!(
            wait_until(SOON, || !path.exists()),
            "it gives its name up when it stops accepting"
        );
        let second = serve(driver, tree.path(), &["--listen", &listen]);
        drop(client);
        assert_eq!(first.wait(SOON).unwrap().code(), Some(0));
        assert_eq!(ask(&second, "GET /a.txt").body, b"hello");
        // A successor that does not check whether a server listens.
        fs::remove_file(&path).unwrap();
        let other = UnixListener::bind(&path).unwrap();
        let mut second = second;
        assert_eq!(second.terminate().unwrap().code(), Some(0));
        assert!(path.exists());
        drop(other);
    });
}

#[test]
fn one_of_many_servers_that_start_at_once_gets_a_stale_socket() {
    on_both_drivers(|driver| {
        let tree = tree();
        let sockets = Tree::new();
        let path = sockets.path().join("s");
        let listen = joined("unix:", &path);
        drop(UnixListener::bind(&path).unwrap());
        let mut all: Vec<_> = (0..6)
            .map(|_| {
                let mut command = command(driver, tree.path(), &["--listen", &listen]);
                tether(command.stderr(Stdio::null())).spawn().unwrap()
            })
            .collect();
        let lost = || all.iter_mut().filter_map(|child| child.try_wait().unwrap()).count();
        assert!(
            wait_until(SOON, {
                let mut lost = lost;
                move || lost() == 5
            }),
            "five find it taken"
        );
        let served = get(&Address::Unix(path.clone()), "/a.txt").unwrap();
        assert_eq!(served.body, b"hello");
        for child in &mut all {
            let _ = child.kill();
            child.wait().unwrap();
        }
    });
}

#[test]
fn a_unix_socket_has_the_mode_and_the_owner_of_its_options() {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
    let is_root = fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0);
    on_both_drivers(|driver| {
        let tree = tree();
        let sockets = Tree::new();
        let path = sockets.path().join("s");
        let listen = joined("unix:", &path);
        for mode in [0o660, 0o777, 0o600] {
            let server =
                serve(driver, tree.path(), &["--listen", &format!("{listen},mode={mode:o}")]);
            let found = fs::metadata(&path).unwrap().permissions().mode() & 0o7777;
            assert_eq!(found, mode, "{found:o}");
            assert_eq!(ask(&server, "GET /a.txt").body, b"hello");
        }
        if !is_root {
            return eprintln!("skipped: a socket of another user: needs root");
        }
        fs::remove_file(&path).unwrap();
        for (owner, uid, gid) in [("12345:23456", 12345, 23456), ("nobody", 65534, 0), (":1", 0, 1)]
        {
            let listen = format!("{listen},owner={owner},mode=660");
            let mut server = serve(driver, tree.path(), &["--listen", &listen]);
            let found = fs::metadata(&path).unwrap();
            assert_eq!((found.uid(), found.gid()), (uid, gid), "{owner}");
            assert_eq!(ask(&server, "GET /a.txt").body, b"hello");
            assert_eq!(server.terminate().unwrap().code(), Some(0));
        }
        let refused = |mut command: Command, advice: &str| {
            let (code, _, stderr) = outcome(&mut command);
            assert_eq!(code, Some(1), "{stderr}");
            assert!(stderr.contains(advice), "{stderr}");
            assert!(!path.exists(), "nothing is left behind");
        };
        let unknown = format!("{listen},owner=no-such-user");
        let unknown = command(driver, tree.path(), &["--listen", &unknown]);
        refused(unknown, "there is no user no-such-user in /etc/passwd");
        fs::set_permissions(sockets.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let mut foreign =
            command(driver, tree.path(), &["--listen", &format!("{listen},owner=root")]);
        as_nobody(&mut foreign);
        refused(foreign, "only root can change the owner to another user");
    });
}

#[test]
fn a_server_that_runs_as_root_says_so() {
    use std::os::unix::fs::MetadataExt as _;
    if fs::metadata("/proc/self").is_ok_and(|process| process.uid() != 0) {
        skip!("needs root");
    }
    let tree = tree();
    let server = serve("epoll", tree.path(), &[]);
    assert!(server.wait_for_stderr("running as root", SOON).is_some());
    let mut nobody = command("epoll", tree.path(), &[]);
    let mut server = Server::spawn(as_nobody(&mut nobody)).unwrap();
    assert_eq!(ask(&server, "GET /a.txt").body, b"hello");
    assert_eq!(server.terminate().unwrap().code(), Some(0));
    assert!(!server.stderr().iter().any(|line| line.contains("root")), "{:?}", server.stderr());
}

#[test]
fn a_file_that_is_no_socket_is_not_replaced() {
    on_both_drivers(|driver| {
        let tree = tree();
        let files = Tree::new().file("precious", "data");
        for (path, advice) in
            [("precious", "the file is not a socket"), ("missing/s", "must exist")]
        {
            let listen = joined("unix:", &files.path().join(path));
            let (code, _, stderr) =
                outcome(&mut command(driver, tree.path(), &["--listen", &listen]));
            assert_eq!(code, Some(1), "{stderr}");
            assert!(stderr.contains(advice), "{stderr}");
        }
        assert_eq!(fs::read(files.path().join("precious")).unwrap(), b"data");
        // A link to a stale socket is none, and a file does not get the rights of one.
        let stale = files.path().join("stale");
        drop(UnixListener::bind(&stale).unwrap());
        for target in ["stale", "precious", "missing"] {
            let link = files.path().join("link");
            std::os::unix::fs::symlink(target, &link).unwrap();
            let listen = format!("{},mode=600", joined("unix:", &link));
            let (code, _, stderr) =
                outcome(&mut command(driver, tree.path(), &["--listen", &listen]));
            assert!(code == Some(1) && stderr.contains("not a socket"), "{stderr}");
            fs::remove_file(link).unwrap();
        }
        assert!(stale.exists() && !files.path().join("missing").exists());
    });
}

#[test]
fn without_io_uring_auto_falls_back_and_says_why() {
    let tree = tree();
    let mut auto = command("auto", tree.path(), &[]);
    let server = Server::spawn(forbid_io_uring(&mut auto)).unwrap();
    assert_eq!(ask(&server, "GET /a.txt").body, b"hello");
    let line = server.wait_for_stderr("serving", SOON).expect("it is said");
    assert!(line.contains("on epoll") && line.contains("io_uring"), "{line}");
    let mut strict = command("uring", tree.path(), &[]);
    let (code, _, stderr) = outcome(forbid_io_uring(&mut strict));
    assert_eq!(code, Some(1), "{stderr}");
    assert!(stderr.contains("--driver auto falls back to epoll"), "{stderr}");
}

/// Some filters forbid the use of a ring alone, and not to make one.
#[test]
fn without_the_use_of_io_uring_auto_falls_back() {
    let tree = tree();
    let mut auto = command("auto", tree.path(), &[]);
    let server = Server::spawn(forbid_use_of_io_uring(&mut auto)).unwrap();
    assert_eq!(ask(&server, "GET /a.txt").body, b"hello");
    let line = server.wait_for_stderr("serving", SOON).expect("it is said");
    assert!(line.contains("on epoll") && line.contains("io_uring"), "{line}");
}

/// With epoll it would fail as well.
#[test]
fn a_want_of_descriptors_is_no_reason_for_another_driver() {
    let tree = tree();
    for driver in ["auto", "uring"] {
        let mut server = Command::new("sh");
        let script = "ulimit -n 9; exec \"$0\" serve \"$1\" --driver \"$2\" --listen 127.0.0.1:0";
        server.args(["-c", script, SAMUM]).arg(tree.path()).arg(driver);
        let (code, _, stderr) = outcome(&mut server);
        assert_eq!(code, Some(1), "{driver}: {stderr}");
        assert!(stderr.contains("cannot use io_uring"), "{driver}: {stderr}");
        assert!(!stderr.contains("--driver auto"), "{driver}: {stderr}");
    }
}

#[test]
fn the_driver_that_runs_is_named() {
    on_both_drivers(|driver| {
        let tree = tree();
        let server = serve(driver, tree.path(), &[]);
        let line = server.wait_for_stderr("serving", SOON).expect("it is said");
        let name = if driver == "uring" { "io_uring" } else { "epoll" };
        assert!(line.contains(&format!("with 1 worker on {name}")), "{line}");
    });
}

#[test]
fn a_check_finds_an_owner_to_whom_a_socket_cannot_be_given() {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

    let tree = Tree::new().directory("www").file("samum.toml", "");
    fs::set_permissions(tree.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let (root, config) = (tree.path().display(), tree.path().join("samum.toml"));
    // As root, the check is made as `nobody`.
    let own = match fs::metadata("/proc/self").unwrap().uid() {
        0 => "65534".to_owned(),
        own => own.to_string(),
    };
    for (owner, code) in [("root", 1), (&own, 0)] {
        let listen = format!("listen = [{{ unix = '{root}/s', owner = '{owner}' }}]");
        let text = format!("[[site]]\n{listen}\n[[site.route]]\nfiles = '{root}/www'\n");
        fs::write(&config, text).unwrap();
        let mut check = Command::new(SAMUM);
        let (found, _, stderr) = outcome(as_nobody(check.arg("check").arg(&config)));
        assert_eq!(found, Some(code), "{owner}: {stderr}");
        let is_told = stderr.contains("only root can change the owner to another user");
        assert!(is_told == (code == 1), "{owner}: {stderr}");
    }
}
