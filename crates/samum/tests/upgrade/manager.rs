//! What a service manager is told, and the sockets that it passes.

use core::mem::MaybeUninit;
use std::io::IoSliceMut;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixDatagram;

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

use super::*;

/// The socket of a service manager.
struct Manager(UnixDatagram);

impl Manager {
    fn new(tree: &Tree) -> Self {
        let socket = UnixDatagram::bind(tree.path().join("notify.sock")).unwrap();
        socket.set_read_timeout(Some(SOON)).unwrap();
        Self(socket)
    }

    /// The next message that is no sign of life.
    #[track_caller]
    fn next(&self) -> String {
        loop {
            let text = self.any();
            if text != "WATCHDOG=1" {
                return text;
            }
        }
    }

    /// The next message.
    #[track_caller]
    fn any(&self) -> String {
        let mut bytes = [0; 4096];
        let count = self.0.recv(&mut bytes).expect("a message");
        String::from_utf8(bytes[..count].to_vec()).unwrap()
    }
}

#[test]
fn it_is_told_of_start_reload_upgrade_and_stop() {
    on_both_drivers(|driver| {
        let tree = tree();
        let manager = Manager::new(&tree);
        let socket = tree.path().join("notify.sock");
        let environment = [("NOTIFY_SOCKET", text(&socket)), ("WATCHDOG_USEC", "3000000")];
        let family =
            Family::start_with(driver, &tree, "", &site(&tree, "\"127.0.0.1:0\""), &environment);
        assert_eq!(manager.next(), "READY=1");
        for _ in 0..2 {
            assert_eq!(manager.any(), "WATCHDOG=1");
        }
        kill(family.pid(), Signal::HUP);
        let reload = manager.next();
        let time = reload.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").expect("a time");
        assert!(time.parse::<u64>().unwrap() > 0);
        assert_eq!(manager.next(), "READY=1");
        let next = family.upgrade();
        assert_eq!(manager.next(), format!("MAINPID={next}"));
        assert_eq!(manager.any(), "WATCHDOG=1");
        family.stop();
        assert_eq!(manager.next(), "STOPPING=1");
        family.assert_ends();
    });
}

/// Binds sockets, and becomes the server, as a service manager does.
const ACTIVATE: &str = "
import os, socket, sys
path, port, program = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
ip = socket.socket()
ip.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
ip.bind(('127.0.0.1', port))
ip.listen()
unix = socket.socket(socket.AF_UNIX)
unix.bind(path)
unix.listen()
ip, unix = (os.dup2(it.fileno(), fd) for it, fd in ((ip, 100), (unix, 101)))
for fd in range(3, 100):
    try: os.close(fd)
    except OSError: pass
os.dup2(ip, 3)
os.dup2(unix, 4)
os.closerange(100, 102)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS='2', LISTEN_FDNAMES='web:local')
os.execv(program[0], program)
";

/// A port of the loopback interface that was free a moment ago.
fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// The command that starts a server with sockets for a port and a path.
fn activate(tree: &Tree, port: u16, path: &Path) -> Command {
    let program = tree.path().join("program");
    symlink(SAMUM, &program).unwrap();
    let mut command = Command::new(python().expect("Python"));
    command.args(["-c", ACTIVATE]).arg(path).arg(port.to_string()).arg(program);
    command.args(["serve", "--config"]).arg(tree.path().join("samum.toml"));
    command
}

#[test]
fn its_sockets_are_those_of_the_listeners_with_their_addresses() {
    or_skip!(python());
    on_both_drivers(|driver| {
        let tree = tree();
        let (port, path) = (free_port(), tree.path().join("local.sock"));
        let listen = format!("\"127.0.0.1:{port}\", \"unix:{}\"", text(&path));
        configure(&tree, driver, "", &site(&tree, &listen));
        let server = Server::spawn(&mut activate(&tree, port, &path)).expect("the server starts");
        assert!(server.wait_for_stderr(" on ", SOON).is_some());
        assert!(wait_until(SOON, || server.addresses().len() == 2));
        let program = tree.path().join("program");
        let control = tree.path().join("control.sock");
        let family = Family { server, program, control, later: Mutex::default() };
        let addresses = [Address::Tcp(([127, 0, 0, 1], port).into()), Address::Unix(path.clone())];
        for _ in 0..2 {
            for address in &addresses {
                assert_eq!(testkit::get(address, "/a.txt").unwrap().body, b"hello");
            }
            family.upgrade();
        }
        family.stop();
        family.assert_ends();
        assert!(path.exists(), "the name is the manager's");
    });
}

#[test]
fn a_listener_can_name_its_socket() {
    or_skip!(python());
    let tree = tree();
    let (port, path) = (free_port(), tree.path().join("local.sock"));
    let sites =
        site(&tree, "{ address = \"systemd:web\", proxy-protocol = false }, \"systemd:local\"");
    configure(&tree, "auto", "", &sites);
    let server = Server::spawn(&mut activate(&tree, port, &path)).expect("the server starts");
    assert!(server.wait_for_stderr(" on ", SOON).is_some());
    let program = tree.path().join("program");
    let control = tree.path().join("control.sock");
    let family = Family { server, program, control, later: Mutex::default() };
    family.upgrade();
    let reload = Command::new(SAMUM).arg("reload").arg("--control").arg(&family.control).status();
    assert!(reload.unwrap().success());
    for address in [Address::Tcp(([127, 0, 0, 1], port).into()), Address::Unix(path)] {
        assert_eq!(testkit::get(&address, "/a.txt").unwrap().body, b"hello");
    }
    configure(&tree, "auto", "", &site(&tree, "\"systemd:other\""));
    let error = family.refused();
    assert!(error.contains("has passed a socket with the name `other`"), "{error}");
    family.stop();
    family.assert_ends();
}

#[test]
fn sockets_for_other_addresses_than_the_configuration_has_are_an_error_that_names_both() {
    or_skip!(python());
    on_both_drivers(|driver| {
        let port = free_port();
        // The second cannot be bound in addition to the socket that was handed over, but no other server is to blame.
        for ip in ["127.0.0.1:0".to_owned(), format!("0.0.0.0:{port}")] {
            let tree = tree();
            let path = tree.path().join("local.sock");
            let listen = format!("\"{ip}\", \"unix:{}\"", text(&path));
            configure(&tree, driver, "", &site(&tree, &listen));
            let output = activate(&tree, port, &path).output().unwrap();
            assert_eq!(output.status.code(), Some(1));
            let error = String::from_utf8_lossy(&output.stderr);
            let socket = format!("a socket for 127.0.0.1:{port} (web), and no `listen` has this");
            assert!(error.contains(&socket), "{error}");
            assert!(error.contains(&format!("(they have {ip}, unix:")), "{error}");
            assert!(error.contains("change `ListenStream=`"), "{error}");
            assert!(!error.contains("another server"), "{error}");
        }
    });
}

/// Becomes the server with the descriptors that stand in front of its arguments, as a service manager does. Their names are
/// those in the environment.
const PASS: &str = "
import os, sys
fds, program = sys.argv[1].split(','), sys.argv[2:]
for fd in fds: os.dup2(int(fd), 500 + fds.index(fd))
os.closerange(3, 500)
for number in range(len(fds)): os.dup2(500 + number, 3 + number)
os.closerange(500, 500 + len(fds))
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS=str(len(fds)))
os.execv(program[0], program)
";

/// The file descriptor store of a service manager: names with their sockets.
#[derive(Default)]
struct Store(Vec<(String, OwnedFd)>);

impl Store {
    /// Takes the messages of the server until one begins with this text.
    #[track_caller]
    fn take_until(&mut self, manager: &Manager, last: &str) {
        self.take_until_all(manager, &[last]);
    }

    /// Takes the messages of the server until one has begun with each of these texts. Two processes may send them in any
    /// order.
    #[track_caller]
    fn take_until_all(&mut self, manager: &Manager, awaited: &[&str]) {
        let mut awaited = awaited.to_vec();
        while !awaited.is_empty() {
            let (text, sockets) = receive_with_sockets(&manager.0);
            let name = text.split_once("FDNAME=").map(|(_, name)| name.to_owned());
            if text.starts_with("FDSTORE=1\n") {
                let name = name.expect("each message names its sockets");
                // As systemd does, it stores each socket once.
                let inode = |socket: &OwnedFd| rustix::fs::fstat(socket).unwrap().st_ino;
                for socket in sockets {
                    if self.0.iter().all(|(_, other)| inode(other) != inode(&socket)) {
                        self.0.push((name.clone(), socket));
                    }
                }
            } else if text.starts_with("FDSTOREREMOVE=1\n") {
                self.0.retain(|(other, _)| Some(other) != name.as_ref());
            }
            awaited.retain(|beginning| !text.starts_with(beginning));
        }
    }

    /// The command that starts the next server with what is stored.
    fn pass(&self, tree: &Tree) -> Command {
        let numbers: Vec<_> = self.0.iter().map(|(_, fd)| fd.as_raw_fd().to_string()).collect();
        let names: Vec<_> = self.0.iter().map(|(name, _)| &name[..]).collect();
        let mut command = Command::new(python().expect("Python"));
        command.args(["-c", PASS, &numbers.join(",")]).arg(tree.path().join("program"));
        command.args(["serve", "--config"]).arg(tree.path().join("samum.toml"));
        command.env("LISTEN_FDNAMES", names.join(":"));
        command
    }
}

/// Receives a message with its descriptors, which the next program inherits.
#[track_caller]
fn receive_with_sockets(manager: &UnixDatagram) -> (String, Vec<OwnedFd>) {
    let mut bytes = [0; 4096];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(128))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let into = &mut [IoSliceMut::new(&mut bytes)];
    let received = recvmsg(manager, into, &mut control, RecvFlags::empty()).expect("a message");
    let sockets = control.drain().flat_map(|message| match message {
        RecvAncillaryMessage::ScmRights(all) => all.collect::<Vec<_>>(),
        _ => Vec::new(),
    });
    let sockets = sockets.collect();
    (String::from_utf8(bytes[..received.bytes].to_vec()).unwrap(), sockets)
}

#[test]
fn it_keeps_the_listening_sockets_over_a_crash_and_a_restart() {
    or_skip!(python());
    on_both_drivers(|driver| {
        let tree = tree();
        let manager = Manager::new(&tree);
        let socket = tree.path().join("notify.sock");
        let environment = [("NOTIFY_SOCKET", text(&socket)), ("FDSTORE", "64")];
        let ports = [free_port(), free_port()];
        let both = format!("\"127.0.0.1:{}\", \"127.0.0.1:{}\"", ports[0], ports[1]);
        let family = Family::start_with(driver, &tree, "", &site(&tree, &both), &environment);
        let mut store = Store::default();
        // Each listener has a socket for each of two workers.
        store.take_until(&manager, "FDSTORE=1");
        store.take_until(&manager, "FDSTORE=1");
        let names: Vec<_> = store.0.iter().map(|(name, _)| &name[..]).collect();
        let expected = ports.map(|port| format!("samum-listener-127.0.0.1.{port}"));
        assert_eq!(names, [&expected[0], &expected[0], &expected[1], &expected[1]]);

        let addresses = ports.map(|port| Address::Tcp(([127, 0, 0, 1], port).into()));
        // A crash.
        kill(family.pid(), Signal::KILL);
        family.assert_ends();
        let mut waiting: Vec<_> = (0..8)
            .map(|number| {
                let mut client =
                    Client::connect(&addresses[number % 2]).expect("the socket is open");
                client.set_limit(SOON);
                client.send(request("GET /a.txt")).unwrap();
                client
            })
            .collect();
        let start = |store: &Store, sites: &str| {
            configure(&tree, driver, "", sites);
            let mut command = store.pass(&tree);
            command.envs(environment);
            let server = Server::spawn(&mut command).expect("the server starts");
            assert!(server.wait_for_stderr(" on ", SOON).is_some());
            let control = tree.path().join("control.sock");
            let program = tree.path().join("program");
            Family { server, program, control, later: Mutex::default() }
        };
        let family = start(&store, &site(&tree, &both));
        for client in &mut waiting {
            assert_eq!(client.response().unwrap().body, b"hello");
        }
        drop(waiting);

        // A reload and an upgrade without the second listener remove its sockets; a later restart has the rest.
        let one = format!("\"127.0.0.1:{}\"", ports[0]);
        configure(&tree, driver, "", &site(&tree, &one));
        kill(family.pid(), Signal::HUP);
        // The reload also stores what stays, so that the next message of this kind is of the next process.
        let removed = format!("FDSTOREREMOVE=1\nFDNAME={}", expected[1]);
        store.take_until(&manager, &removed);
        store.take_until(&manager, "FDSTORE=1");
        assert!(store.0.iter().all(|(name, _)| *name == expected[0]));
        assert!(wait_until(SOON, || Client::connect(&addresses[1]).is_err()));
        let next = family.upgrade();
        store.take_until_all(&manager, &[&format!("MAINPID={next}"), "FDSTORE=1"]);
        kill(next, Signal::TERM);
        store.take_until(&manager, "STOPPING=1");
        family.assert_ends();
        let mut client = Client::connect(&addresses[0]).expect("the socket is open");
        client.set_limit(SOON);
        client.send(request("GET /a.txt")).unwrap();

        // The configuration has another listener now: what is stored for the first one is removed.
        let family = start(&store, &site(&tree, &both));
        assert_eq!(client.response().unwrap().body, b"hello");
        assert_eq!(testkit::get(&addresses[1], "/a.txt").unwrap().body, b"hello");
        family.stop();
        family.assert_ends();
        let family = start(&store, &site(&tree, "\"127.0.0.1:0\""));
        store.take_until(&manager, &format!("FDSTOREREMOVE=1\nFDNAME={}", expected[0]));
        assert!(wait_until(SOON, || Client::connect(&addresses[0]).is_err()));
        family.stop();
        family.assert_ends();
    });
}

#[test]
fn it_keeps_a_unix_socket_as_long_as_its_file_is_at_the_path() {
    or_skip!(python());
    on_both_drivers(|driver| {
        let tree = tree();
        let manager = Manager::new(&tree);
        let notify = tree.path().join("notify.sock");
        let environment = [("NOTIFY_SOCKET", text(&notify)), ("FDSTORE", "64")];
        let path = tree.path().join("web.sock");
        let address = Address::Unix(path.clone());
        let listen = format!("\"unix:{}\"", text(&path));
        let sites = site(&tree, &listen);
        let family = Family::start_with(driver, &tree, "", &sites, &environment);
        let mut store = Store::default();
        store.take_until(&manager, "FDSTORE=1");
        let inode = fs::metadata(&path).unwrap().ino();
        let of_store =
            |store: &Store| store.0.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
        let names = of_store(&store);
        assert!(names.len() == 1 && names[0].starts_with("samum-listener-unix."), "{names:?}");
        let start = |store: &Store, sites: &str| {
            configure(&tree, driver, "", sites);
            let server = Server::spawn(store.pass(&tree).envs(environment));
            let server = server.expect("the server starts");
            assert!(server.wait_for_stderr(" on ", SOON).is_some());
            let control = tree.path().join("control.sock");
            let program = tree.path().join("program");
            Family { server, program, control, later: Mutex::default() }
        };
        let ask = || {
            let mut client = Client::connect(&address).expect("the socket is open");
            client.set_limit(SOON);
            client.send(request("GET /a.txt")).unwrap();
            client
        };
        // Clients wait over a crash, and over a stop.
        kill(family.pid(), Signal::KILL);
        family.assert_ends();
        let mut waiting = ask();
        let family = start(&store, &sites);
        assert_eq!(waiting.response().unwrap().body, b"hello");
        store.take_until(&manager, "FDSTORE=1");
        family.stop();
        family.assert_ends();
        assert_eq!(fs::metadata(&path).unwrap().ino(), inode, "its name stays");
        let mut waiting = ask();
        let family = start(&store, &sites);
        assert_eq!(waiting.response().unwrap().body, b"hello");
        store.take_until(&manager, "FDSTORE=1");
        assert_eq!(of_store(&store), names, "it is the same one");

        // After an upgrade the next process keeps it, and without a listener it is removed.
        let next = family.upgrade();
        store.take_until(&manager, &format!("MAINPID={next}"));
        store.take_until(&manager, "FDSTORE=1");
        assert_eq!(testkit::get(&address, "/a.txt").unwrap().body, b"hello");
        configure(&tree, driver, "", &site(&tree, "\"127.0.0.1:0\""));
        kill(next, Signal::HUP);
        store.take_until(&manager, &format!("FDSTOREREMOVE=1\nFDNAME={}", names[0]));
        assert!(wait_until(SOON, || !path.exists()), "its name is removed");
        configure(&tree, driver, "", &sites);
        kill(next, Signal::HUP);
        store.take_until(&manager, "FDSTORE=1\nFDNAME=samum-listener-unix.");
        let names = of_store(&store);

        // Another file has taken its place: clients of the path would not reach what is stored.
        kill(next, Signal::TERM);
        family.assert_ends();
        fs::rename(&path, tree.path().join("moved.sock")).unwrap();
        let family = start(&store, &sites);
        assert_eq!(testkit::get(&address, "/a.txt").unwrap().body, b"hello");
        store.take_until(&manager, &format!("FDSTOREREMOVE=1\nFDNAME={}", names[0]));
        family.stop();
        family.assert_ends();
    });
}

#[test]
fn a_manager_without_a_store_is_sent_no_sockets() {
    let tree = tree();
    let manager = Manager::new(&tree);
    let socket = tree.path().join("notify.sock");
    let environment = [("NOTIFY_SOCKET", text(&socket))];
    let listen = format!("\"127.0.0.1:{}\"", free_port());
    let family = Family::start_with("auto", &tree, "", &site(&tree, &listen), &environment);
    assert_eq!(manager.next(), "READY=1");
    family.stop();
    assert_eq!(manager.next(), "STOPPING=1");
    family.assert_ends();
}
