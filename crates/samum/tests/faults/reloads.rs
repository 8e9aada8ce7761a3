//! The configuration is replaced while the server runs: by SIGHUP, and by `samum reload`.

use core::net::Ipv4Addr;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use core::time::Duration;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use testkit::{Address, Client, Content, Server, Signal, Tree};

use crate::common::{
    SAMUM, SOON, ask, ask_on, connect, descriptors, on_both_drivers, request, run, text, wait_until,
};
use crate::faults::outcome;

/// A configuration file, the directories that it serves, and the server.
struct Stage {
    tree: Tree,
    server: Server,
}

/// The text of a configuration: options of the server, and the files of the first site at `/`.
fn config(options: &str, listen: &str, root: &str, more: &str) -> String {
    format!(
        "[server]\n{options}\ncontrol = \"control\"\n\n[[site]]\nlisten = [{listen}]\n\n\
         [[site.route]]\npath = \"/\"\nfiles = \"{root}\"\n\n{more}"
    )
}

const LISTEN: &str = "\"127.0.0.1:0\"";

impl Stage {
    fn new(driver: &str, tree: Tree, config: &str) -> Self {
        tree.write("samum.toml", config);
        let mut command = Command::new(SAMUM);
        command.args(["serve", "--driver", driver, "--config"]);
        command.arg(tree.path().join("samum.toml"));
        let server = Server::spawn(&mut command).expect("the server starts");
        Self { tree, server }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.tree.path().join(name)
    }

    /// Replaces the file by renaming another over it.
    fn write(&self, config: &str) {
        self.tree.write("next.toml", config);
        fs::rename(self.path("next.toml"), self.path("samum.toml")).unwrap();
    }

    /// Runs `samum reload`.
    fn reload(&self) -> (Option<i32>, String, String) {
        outcome(&mut reload(&self.path("control")))
    }

    /// The same, which must succeed. Returns what is printed.
    fn load(&self, config: &str) -> String {
        self.write(config);
        let (code, stdout, stderr) = self.reload();
        assert_eq!(code, Some(0), "{stderr}");
        assert!(stdout.starts_with("loaded the configuration "), "{stdout}");
        stdout
    }

    /// The same, which must fail with these texts.
    fn fail(&self, config: &str, texts: &[&str]) {
        self.write(config);
        let (code, stdout, stderr) = self.reload();
        assert_eq!((code, &stdout[..]), (Some(1), ""), "{stderr}");
        for expected in texts.iter().chain(&["the one before is still served"]) {
            assert!(stderr.contains(expected), "{expected}: {stderr}");
        }
        let said = self.server.wait_for_stderr("the one before is still served", SOON);
        assert!(said.is_some(), "{:?}", self.server.stderr());
    }

    fn body(&self, path: &str) -> Vec<u8> {
        ask(&self.server, &format!("GET {path}")).body
    }
}

fn reload(control: &Path) -> Command {
    let mut command = Command::new(SAMUM);
    command.arg("reload").arg("--control").arg(control);
    command
}

fn versions() -> Tree {
    Tree::new()
        .file("one/version.txt", "one")
        .file("two/version.txt", "two")
        .file("one/same.txt", "same")
        .file("two/same.txt", "same")
}

#[test]
fn no_request_is_lost_in_twenty_reloads() {
    const REQUESTS: usize = 10_000;
    const BIG: usize = 12 << 20;
    on_both_drivers(|driver| {
        let content = Content::pseudo_random(1, BIG as u64);
        let tree = versions().file("one/big.bin", content.clone());
        let configs: Vec<_> = (0..4)
            .map(|number| {
                // Routes, sites and listeners come and go. The root and the first listener stay.
                let route = ["one", "two"][number % 2];
                let more = format!(
                    "[[site.route]]\npath = \"/v/\"\nfiles = \"{route}\"\n\n[[site]]\nlisten = \
                     [{LISTEN}, {{ unix = \"socket-{}\" }}, \"127.0.0.2:0\"]\nhosts = \
                     [\"host-{number}.example\"]\n\n[[site.route]]\npath = \"/\"\nfiles = \"two\"\n",
                    number % 3
                );
                config("threads = 2", LISTEN, "one", &more)
            })
            .collect();
        let mut stage = Stage::new(driver, tree, &configs[0]);
        let (done, answered) = (AtomicBool::new(false), AtomicUsize::new(0));
        let address = stage.server.addresses().into_iter().next().expect("one");
        let before = descriptors(&stage.server);
        thread::scope(|scope| {
            let downloads: Vec<_> = (0..10)
                .map(|_| {
                    let mut client = Client::connect(&address).expect("a listener that stays");
                    client.set_limit(Duration::from_secs(60));
                    client.send(request("GET /big.bin")).unwrap();
                    assert_eq!(client.head().unwrap().status, 200);
                    let done = &done;
                    scope.spawn(move || {
                        let mut bytes = Vec::new();
                        while bytes.len() < BIG {
                            let count = (BIG - bytes.len()).min(64 << 10);
                            bytes.extend(client.read_exactly(count).unwrap());
                            if !done.load(Ordering::Relaxed) {
                                thread::sleep(Duration::from_millis(20));
                            }
                        }
                        bytes
                    })
                })
                .collect();
            let clients: Vec<_> = (0..4)
                .map(|number| {
                    let (done, answered, address) = (&done, &answered, &address);
                    scope.spawn(move || {
                        let mut client = Client::connect(address).unwrap();
                        let mut count = number;
                        while !done.load(Ordering::Relaxed)
                            || answered.load(Ordering::Relaxed) < REQUESTS
                        {
                            let path = ["/same.txt", "/v/version.txt", "/v/same.txt"][count % 3];
                            let response = ask_on(&mut client, &format!("GET {path}"));
                            assert_eq!(response.status, 200, "{path}");
                            let body = &response.body[..];
                            let fits = match path {
                                "/v/version.txt" => body == b"one" || body == b"two",
                                _ => body == b"same",
                            };
                            assert!(fits, "{path}: {body:?}");
                            count += 1;
                            answered.fetch_add(1, Ordering::Relaxed);
                        }
                    })
                })
                .collect();
            for number in 1..=20 {
                stage.write(&configs[number % 4]);
                if number % 2 == 0 {
                    let (code, _, stderr) = stage.reload();
                    assert_eq!(code, Some(0), "{stderr}");
                } else {
                    let loads = |server: &Server| {
                        let said = server.stderr();
                        said.iter().filter(|line| line.contains("loaded the configuration")).count()
                    };
                    let before = loads(&stage.server);
                    stage.server.signal(Signal::HUP).unwrap();
                    assert!(wait_until(SOON, || loads(&stage.server) > before));
                }
                let wait = answered.load(Ordering::Relaxed);
                wait_until(SOON, || answered.load(Ordering::Relaxed) > wait + REQUESTS / 40);
            }
            done.store(true, Ordering::Relaxed);
            clients.into_iter().for_each(|client| client.join().unwrap());
            for download in downloads {
                content.assert_is(&download.join().unwrap());
            }
        });
        assert!(answered.load(Ordering::Relaxed) >= REQUESTS);
        stage.load(&configs[0]);
        // Cached files and pooled pipes may be open.
        assert!(
            wait_until(SOON, || descriptors(&stage.server) <= before + 24),
            "{} descriptors, {before} before",
            descriptors(&stage.server)
        );
        let bad = stage.server.stderr();
        assert!(!bad.iter().any(|line| line.contains("panicked")), "{bad:?}");
    });
}

#[test]
fn a_configuration_with_an_error_leaves_the_one_before() {
    on_both_drivers(|driver| {
        let first = config("", LISTEN, "one", "");
        let stage = Stage::new(driver, versions(), &first);
        let check = |version: &[u8]| assert_eq!(stage.body("/version.txt"), version);
        check(b"one");
        stage.fail("[server]\nthreads = \"two\"\n", &["samum.toml:2", "threads"]);
        stage.fail(
            &config("", LISTEN, "missing", ""),
            &["samum.toml:", "missing", "there is no such directory"],
        );
        let log =
            "\n[[site]]\nlog = { file = \"nowhere/log\" }\n\n[[site.route]]\nfiles = \"one\"\n";
        stage.fail(
            &config("", LISTEN, "two", log),
            &["samum.toml:", "cannot log to", "nowhere/log"],
        );
        // Another process has the address meanwhile.
        let other = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let taken = format!("{LISTEN}, \"unix:new\", \"{}\"", other.local_addr().unwrap());
        stage.fail(&config("", &taken, "two", ""), &["in use", "another server has port"]);
        assert!(!stage.path("new").exists(), "what was opened is closed");
        check(b"one");
        drop(other);
        stage.load(&config("", &taken, "two", ""));
        check(b"two");
        assert!(stage.path("new").exists());
        // Without the file, with an empty one, and as it was.
        fs::remove_file(stage.path("samum.toml")).unwrap();
        assert_eq!(stage.reload().0, Some(1));
        check(b"two");
        stage.load(&first);
        check(b"one");
        assert!(!stage.path("new").exists(), "the socket of a removed listener");
    });
}

#[test]
fn requests_for_reloads_that_come_at_once_are_all_answered() {
    on_both_drivers(|driver| {
        let mut stage = Stage::new(driver, versions(), &config("", LISTEN, "one", ""));
        stage.write(&config("", LISTEN, "two", ""));
        let control = stage.path("control");
        thread::scope(|scope| {
            let all: Vec<_> =
                (0..10).map(|_| scope.spawn(|| outcome(&mut reload(&control)))).collect();
            for _ in 0..10 {
                stage.server.signal(Signal::HUP).unwrap();
            }
            for one in all {
                let (code, stdout, stderr) = one.join().unwrap();
                assert!(code == Some(0) && stdout.contains("loaded"), "{stdout}{stderr}");
            }
        });
        assert_eq!(stage.body("/version.txt"), b"two");
        // Clients that send nothing, garbage or nothing whole do not keep others out for long.
        let mut garbage = UnixStream::connect(&control).unwrap();
        garbage.write_all(&[0xff; 4096]).unwrap();
        let mut answer = String::new();
        garbage.read_to_string(&mut answer).unwrap_or_default();
        drop(UnixStream::connect(&control).unwrap());
        assert_eq!(stage.reload().0, Some(0));
    });
}

#[test]
fn the_control_socket_is_private_and_goes_with_the_server() {
    on_both_drivers(|driver| {
        let mut stage = Stage::new(driver, versions(), &config("", LISTEN, "one", ""));
        let control = stage.path("control");
        assert_eq!(fs::metadata(&control).unwrap().permissions().mode() & 0o777, 0o600);
        stage.server.terminate().unwrap();
        assert!(!control.exists());
        let (code, _, stderr) = outcome(&mut reload(&control));
        assert!(code == Some(1) && stderr.contains("no server listens"), "{stderr}");
        // A server that was killed has left it.
        let tree = Tree::new().file("a.txt", "a");
        let mut command = crate::common::command(driver, tree.path(), &[]);
        let mut server = Server::spawn(command.arg("--control").arg(&control)).unwrap();
        server.signal(Signal::KILL).unwrap();
        let _ = server.wait(SOON);
        assert!(control.exists());
        let (code, _, stderr) = outcome(&mut reload(&control));
        assert!(code == Some(1) && stderr.contains("no server listens"), "{stderr}");
        let mut command = crate::common::command(driver, tree.path(), &[]);
        let server = Server::spawn(command.arg("--control").arg(&control)).unwrap();
        let (code, _, stderr) = outcome(&mut reload(&control));
        assert!(code == Some(1) && stderr.contains("without a configuration file"), "{stderr}");
        drop(server);
    });
}

#[test]
fn settings_that_cannot_change_are_told_of() {
    let stage = Stage::new("auto", versions(), &config("threads = 1", LISTEN, "one", ""));
    let printed = stage.load(&config("threads = 2\nmax-connections = 50", LISTEN, "two", ""));
    for name in ["threads", "max-connections"] {
        let text = format!("`{name}`: takes effect after a restart");
        assert!(stage.server.wait_for_stderr(&text, SOON).is_some(), "{:?}", stage.server.stderr());
        assert!(printed.lines().any(|line| line.starts_with(&text)), "{printed}");
    }
    assert_eq!(stage.body("/version.txt"), b"two");
}

#[test]
fn a_unix_socket_gets_other_rights_and_stays_the_same() {
    on_both_drivers(|driver| {
        let listen = |mode: &str| format!("{LISTEN}, {{ unix = \"s\", mode = \"{mode}\" }}");
        let stage = Stage::new(driver, versions(), &config("", &listen("0600"), "one", ""));
        let socket = stage.path("s");
        let mode = || fs::metadata(&socket).unwrap().permissions().mode() & 0o777;
        let mut client = Client::connect(&Address::Unix(socket.clone())).unwrap();
        assert_eq!(
            (mode(), ask_on(&mut client, "GET /version.txt").body),
            (0o600, b"one".to_vec())
        );
        stage.load(&config("", &listen("0666"), "two", ""));
        assert_eq!(
            (mode(), ask_on(&mut client, "GET /version.txt").body),
            (0o666, b"two".to_vec())
        );
    });
}

#[test]
fn a_configuration_with_an_error_leaves_the_rights_of_sockets() {
    on_both_drivers(|driver| {
        let listen = |one: &str, two: &str| {
            format!("{LISTEN}, {{ unix = \"s\", {one} }}, {{ unix = \"t\", {two} }}")
        };
        let private = "mode = \"600\"";
        let first = config("", &listen(private, private), "one", "");
        let stage = Stage::new(driver, versions(), &first);
        let mode = |name| fs::metadata(stage.path(name)).unwrap().permissions().mode() & 0o777;
        let public = "mode = \"666\"";
        let unknown = format!("{public}, owner = \"no-such-user\"");
        stage.fail(&config("", &listen(public, &unknown), "one", ""), &["no-such-user"]);
        assert_eq!((mode("s"), mode("t")), (0o600, 0o600));
        // The second one has gone.
        fs::rename(stage.path("t"), stage.path("u")).unwrap();
        let next = config("", &listen(public, public), "one", "");
        stage.fail(&next, &["cannot change the rights", "No such file"]);
        assert_eq!(mode("s"), 0o600);
        fs::rename(stage.path("u"), stage.path("t")).unwrap();
        stage.load(&next);
        assert_eq!((mode("s"), mode("t")), (0o666, 0o666));
    });
}

/// Whoever may write to the directory of a socket can put something else at its path.
#[test]
fn only_the_socket_that_was_made_gets_other_rights() {
    on_both_drivers(|driver| {
        let listen = |mode: &str| format!("{LISTEN}, {{ unix = \"s\", mode = \"{mode}\" }}");
        let tree = versions().file("secret", "data");
        fs::set_permissions(tree.path().join("secret"), fs::Permissions::from_mode(0o600)).unwrap();
        let mut stage = Stage::new(driver, tree, &config("", &listen("0600"), "one", ""));
        let mode = |name| fs::metadata(stage.path(name)).unwrap().permissions().mode() & 0o777;
        let [socket, made] = ["s", "made"].map(|name| stage.path(name));
        fs::rename(&socket, &made).unwrap();
        let stranger = std::os::unix::net::UnixListener::bind(stage.path("stranger")).unwrap();
        fs::set_permissions(stage.path("stranger"), fs::Permissions::from_mode(0o600)).unwrap();
        let next = config("", &listen("0666"), "two", "");
        let swaps: [(&str, &dyn Fn()); 4] = [
            ("secret", &|| std::os::unix::fs::symlink("secret", &socket).unwrap()),
            ("made", &|| std::os::unix::fs::symlink("made", &socket).unwrap()),
            ("secret", &|| fs::hard_link(stage.path("secret"), &socket).unwrap()),
            ("stranger", &|| fs::hard_link(stage.path("stranger"), &socket).unwrap()),
        ];
        for (target, swap) in swaps {
            swap();
            let why = "another file has taken its place (remove that, and restart the server)";
            stage.fail(&next, &["cannot change the rights of unix:", why]);
            assert_eq!(mode(target), 0o600, "{target}");
            fs::remove_file(&socket).unwrap();
        }
        drop(stranger);
        // Nor is the stranger's name removed at the end.
        fs::rename(stage.path("stranger"), &socket).unwrap();
        assert_eq!(stage.server.terminate().unwrap().code(), Some(0));
        assert!(socket.exists() && made.exists());
    });
}

#[test]
fn a_socket_without_an_owner_is_the_servers_again() {
    let own = fs::metadata("/proc/self").unwrap().uid();
    if own != 0 {
        return eprintln!("skipped: a socket of another user: needs root");
    }
    on_both_drivers(|driver| {
        let with = |owner: &str| {
            let listen = format!("{LISTEN}, {{ unix = \"s\", mode = \"600\"{owner} }}");
            config("", &listen, "one", "")
        };
        let stage = Stage::new(driver, versions(), &with(""));
        let owner = || {
            let found = fs::metadata(stage.path("s")).unwrap();
            (found.uid(), found.gid())
        };
        let before = owner();
        stage.load(&with(", owner = \"12345:23456\""));
        assert_eq!(owner(), (12345, 23456));
        stage.load(&with(", owner = \":23456\""));
        assert_eq!(owner(), (before.0, 23456));
        stage.load(&with(""));
        assert_eq!(owner(), before);
    });
}

/// A bind mount changes what is at a path without changing anything in the directory around it.
#[test]
fn a_file_that_is_mounted_over_is_read() {
    let stage = Stage::new("auto", versions(), &config("", LISTEN, "one", ""));
    let (file, other) = (stage.path("samum.toml"), stage.path("other.toml"));
    stage.tree.write("other.toml", &config("", LISTEN, "two", "")[..]);
    let mounted = run("mount", &["--bind".as_ref(), other.as_os_str(), file.as_os_str()]);
    if let Err(error) = mounted {
        eprintln!("skipped: {error}");
        return;
    }
    let (code, _, stderr) = stage.reload();
    let version = stage.body("/version.txt");
    run("umount", &[file.as_os_str()]).unwrap();
    assert_eq!((code, &version[..]), (Some(0), &b"two"[..]), "{stderr}");
    assert!(!text(&file).is_empty());
}

#[test]
fn logs_come_and_go_with_their_sites() {
    on_both_drivers(|driver| {
        let with = |log: &str| {
            config("", LISTEN, "one", "")
                .replace("listen = [", &format!("log = {{ file = \"{log}\" }}\nlisten = ["))
        };
        let stage = Stage::new(driver, versions(), &with("first.log"));
        let lines =
            |name: &str| fs::read_to_string(stage.path(name)).unwrap_or_default().lines().count();
        let mut client = connect(&stage.server);
        ask_on(&mut client, "GET /version.txt");
        stage.load(&with("second.log"));
        ask_on(&mut client, "GET /version.txt");
        ask_on(&mut client, "GET /version.txt");
        assert!(wait_until(SOON, || lines("second.log") == 2 && lines("first.log") == 1));
        stage.load(&config("", LISTEN, "one", ""));
        ask_on(&mut client, "GET /version.txt");
        assert_eq!(lines("second.log"), 2);
    });
}

#[test]
fn a_limit_of_connections_counts_those_that_are_open() {
    on_both_drivers(|driver| {
        let stage = Stage::new(driver, versions(), &config("threads = 2", LISTEN, "one", ""));
        let mut clients: Vec<_> = (0..3).map(|_| connect(&stage.server)).collect();
        let statuses = |clients: &mut Vec<Client>| {
            let ask = |client| ask_on(client, "GET /version.txt").status;
            clients.iter_mut().map(ask).collect::<Vec<_>>()
        };
        assert_eq!(statuses(&mut clients), [200; 3]);
        let limits = "limits = { connections-per-ip = 2 }\n";
        stage.load(&config("threads = 2", LISTEN, "one", limits));
        assert_eq!(ask(&stage.server, "GET /version.txt").status, 429, "it is the fourth");
        let mut statuses = statuses(&mut clients);
        statuses.sort_unstable();
        assert_eq!(statuses, [200, 200, 429]);
    });
}
