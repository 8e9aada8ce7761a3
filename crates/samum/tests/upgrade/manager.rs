//! What a service manager is told, and the sockets that it passes.

use std::os::unix::net::UnixDatagram;

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
    let mut command = Command::new("/usr/bin/python3");
    command.args(["-c", ACTIVATE]).arg(path).arg(port.to_string()).arg(program);
    command.args(["serve", "--config"]).arg(tree.path().join("samum.toml"));
    command
}

#[test]
fn its_sockets_are_those_of_the_listeners_with_their_addresses() {
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
    let tree = tree();
    let (port, path) = (free_port(), tree.path().join("local.sock"));
    let listen = format!("\"127.0.0.1:0\", \"unix:{}\"", text(&path));
    configure(&tree, "auto", "", &site(&tree, &listen));
    let output = activate(&tree, port, &path).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains(&format!("a socket for 127.0.0.1:{port} (web)")), "{error}");
    assert!(error.contains("listens on 127.0.0.1:0, unix:"), "{error}");
}
