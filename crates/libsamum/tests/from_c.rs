//! The library as C sees it: its header, its example and its errors.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal};
use testkit::{Address, Client, built, request, skip};

/// Where the parts of this crate are.
fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Returns whether there is a compiler with this name.
fn exists(compiler: &str) -> bool {
    Command::new(compiler).arg("--version").stdout(Stdio::null()).status().is_ok()
}

/// Compiles a program with the library, and returns its path and the directory where it finds that.
fn compile(source: &str, out: &Path) -> (PathBuf, PathBuf) {
    let library = built(&["--package", "libsamum", "--lib"]);
    let program = out.join("program");
    let mut cc = Command::new("cc");
    cc.args(["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-pthread", "-I"]);
    cc.arg(here("include")).arg(here(source)).arg("-L").arg(&library).args(["-lsamum", "-o"]);
    assert!(cc.arg(&program).status().expect("cc runs").success(), "{source} does not compile");
    // The name that the program asks for, as a package installs it.
    symlink(library.join("libsamum.so"), out.join("libsamum.so.0")).unwrap();
    (program, out.to_owned())
}

/// A program that is ended with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn content(len: usize) -> Vec<u8> {
    (0..len).map(|at| u8::try_from((at * 31 + at / 4096) % 251).unwrap()).collect()
}

fn evict(path: &Path) {
    let file = File::open(path).unwrap();
    file.sync_all().unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
}

#[test]
fn the_example_serves_cold_and_hot_files() {
    if !exists("cc") {
        skip!("no C compiler (cc)");
    }
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let (program, library) = compile("examples/serve.c", dir.path());
    let site = dir.path().join("site");
    fs::create_dir(&site).unwrap();
    let files = [("empty", 0), ("small", 10), ("page", 70_000), ("large", 9_000_001)];
    for (name, len) in files {
        fs::write(site.join(name), content(len)).unwrap();
    }
    let mut command = Command::new(program);
    command.arg(&site).arg("0").env("LD_LIBRARY_PATH", library).stdout(Stdio::piped());
    let mut server = Running(command.spawn().unwrap());
    let mut line = String::new();
    BufReader::new(server.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let address = line.trim().trim_start_matches("http://").trim_end_matches('/');
    let address = Address::Tcp(address.parse().expect("the server prints its address"));

    let mut clients: Vec<_> = (0..4).map(|_| Client::connect(&address).unwrap()).collect();
    for round in 0..3 {
        for (name, len) in files {
            if round != 1 {
                evict(&site.join(name));
            }
            // All at once, and then one after the other on the same connections.
            for client in &mut clients {
                client.send(request(&format!("GET /{name}"))).unwrap();
            }
            for client in &mut clients {
                let response = client.response().unwrap();
                assert_eq!(response.status, 200);
                assert!(response.body == content(len), "{name}: other bytes");
            }
        }
        for path in ["/nothing", "/", "/../site/small"] {
            clients[0].send(request(&format!("GET {path}"))).unwrap();
            assert_eq!(clients[0].response().unwrap().status, 404, "{path}");
        }
    }
    // Several requests in one packet; and a client that goes away in the midst of a response.
    clients[0].send(request("GET /small") + &request("GET /page")).unwrap();
    assert!(clients[0].response().unwrap().body == content(10));
    assert!(clients[0].response().unwrap().body == content(70_000));
    clients[1].send(request("GET /large")).unwrap();
    drop(clients.remove(1));
    clients[1].send(request("GET /large")).unwrap();
    assert!(clients[1].response().unwrap().body == content(9_000_001));
    // A signal ends it, in the midst of a response.
    clients[0].send(request("GET /large")).unwrap();
    let pid = Pid::from_child(&server.0);
    rustix::process::kill_process(pid, Signal::TERM).unwrap();
    assert!(server.0.wait().unwrap().success());
}

#[test]
fn mistakes_are_errors_as_the_header_says() {
    if !exists("cc") {
        skip!("no C compiler (cc)");
    }
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let (program, library) = compile("tests/misuse.c", dir.path());
    let mut command = Command::new(program);
    command.env("LD_LIBRARY_PATH", library).stderr(Stdio::piped());
    let mut running = Running(command.spawn().unwrap());
    let mut said = String::new();
    running.0.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    let status = running.0.wait().unwrap();
    assert!(status.success(), "{status} {said}");
}

#[test]
fn the_header_is_plain_c_and_cpp() {
    for (compiler, language, standard) in [("cc", "c", "c99"), ("c++", "c++", "c++11")] {
        if !exists(compiler) {
            skip!("no compiler ({compiler})");
        }
        let mut check = Command::new(compiler);
        check.args(["-fsyntax-only", "-pedantic", "-Wall", "-Wextra", "-Werror", "-x", language]);
        check.arg(format!("-std={standard}")).arg(here("include/samum.h"));
        assert!(check.status().unwrap().success(), "{compiler}");
    }
}

#[test]
fn the_header_declares_what_the_library_exports() {
    let header = fs::read_to_string(here("include/samum.h")).unwrap();
    let code = fs::read_to_string(here("src/abi.rs")).unwrap();
    let mut exported: Vec<_> = code
        .lines()
        .filter_map(|line| line.split_once("extern \"C\" fn "))
        .map(|(_, rest)| rest.split('(').next().expect("split yields one"))
        .collect();
    let mut declared: Vec<_> = header
        .lines()
        .filter_map(|line| line.strip_prefix("int "))
        .map(|rest| rest.split('(').next().expect("split yields one"))
        .collect();
    exported.sort_unstable();
    declared.sort_unstable();
    assert!(!declared.is_empty());
    assert_eq!(exported, declared);
    let calls_max = format!("#define SAMUM_CALLS_MAX {}\n", sendfile::CALLS_MAX);
    assert!(header.contains(&calls_max), "{calls_max}");
}
