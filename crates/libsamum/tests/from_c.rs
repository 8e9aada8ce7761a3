//! Tests of the library from C: its header, its example and its errors.

use core::net::SocketAddr;
use core::time::Duration;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal};
use testkit::{
    Address, Client, Op, SlowFs, assert_accepts_after_crowd, assert_unavailable_in_crowd, built,
    evict, forbid_io_uring, or_skip, request, skip, with_few_descriptors,
};

/// The path of a file of this crate.
fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// True if a compiler with this name is installed.
fn exists(compiler: &str) -> bool {
    Command::new(compiler).arg("--version").stdout(Stdio::null()).status().is_ok()
}

/// The programs in C.
const SERVE: &str = "examples/serve.c";
const SEND: &str = "examples/send.c";
const MISUSE: &str = "tests/misuse.c";
const EVENTS: &str = "tests/events.c";
const BRIEF: &str = "tests/brief.c";
const HUNG: &str = "tests/hung.c";
const DESCRIPTORS: &str = "tests/descriptors.c";
const RECEIVE: &str = "examples/receive.c";
const BINDING: &str = "examples/binding.py";
const NOCACHE: &str = "tests/nocache.c";

/// Builds the library with cargo, and returns its directory.
fn library() -> PathBuf {
    built(&["--package", "samum-ffi", "--lib"])
}

/// Compiles a program with these further arguments, and returns its path.
fn compile_with(source: &str, out: &Path, args: impl IntoIterator<Item = OsString>) -> PathBuf {
    let program = out.join("program");
    // The examples are plain C99; the tests assert when they are compiled.
    let standard = if source.starts_with("examples") { "-std=c99" } else { "-std=c11" };
    let mut cc = Command::new("cc");
    cc.args([standard, "-pedantic", "-O1", "-Wall", "-Wextra", "-Werror", "-pthread", "-o"]);
    cc.arg(&program).arg(here(source)).args(args);
    assert!(cc.status().expect("cc runs").success(), "{source} does not compile");
    program
}

/// Compiles a program with the library, and returns the paths of the program and of the library's
/// directory.
fn compile(source: &str, out: &Path) -> (PathBuf, PathBuf) {
    let library = library();
    let args = ["-I".into(), here("include").into(), "-L".into(), library.clone().into()];
    let program = compile_with(source, out, args.into_iter().chain(["-lsamum".into()]));
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

/// The address that the example prints.
fn address_of(server: &mut Running) -> SocketAddr {
    let mut line = String::new();
    BufReader::new(server.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let address = line.trim().trim_start_matches("http://").trim_end_matches('/');
    address.parse().expect("the server prints its address")
}

fn content(len: usize) -> Vec<u8> {
    (0..len).map(|at| u8::try_from((at * 31 + at / 4096) % 251).unwrap()).collect()
}

#[test]
fn the_example_serves_cold_and_hot_files() {
    if !exists("cc") {
        skip!("no C compiler (cc)");
    }
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let (program, library) = compile(SERVE, dir.path());
    let site = dir.path().join("site");
    fs::create_dir(&site).unwrap();
    fs::write(dir.path().join("secret"), "secret").unwrap();
    let files = [("empty", 0), ("small", 10), ("page", 70_000), ("large", 9_000_001)];
    for (name, len) in files {
        fs::write(site.join(name), content(len)).unwrap();
    }
    let mut command = Command::new(program);
    command.arg(&site).arg("0").env("LD_LIBRARY_PATH", library).stdout(Stdio::piped());
    let mut server = Running(command.spawn().unwrap());
    let address = Address::Tcp(address_of(&mut server));
    let mut clients: Vec<_> = (0..4).map(|_| Client::connect(&address).unwrap()).collect();
    for round in 0..3 {
        for (name, len) in files {
            if round != 1 {
                evict(site.join(name));
            }
            // All requests together, and then in turn on the same connections.
            for client in &mut clients {
                client.send(request(&format!("GET /{name}"))).unwrap();
            }
            for client in &mut clients {
                let response = client.response().unwrap();
                assert_eq!(response.status, 200);
                assert!(response.body == content(len), "{name}: other bytes");
            }
        }
        for path in ["/nothing", "/", "/../secret", "/small/../../secret", "//etc/passwd"] {
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
    // A signal ends the server in the midst of a response.
    clients[0].send(request("GET /large")).unwrap();
    let pid = Pid::from_child(&server.0);
    rustix::process::kill_process(pid, Signal::TERM).unwrap();
    assert!(server.0.wait().unwrap().success());
}

#[test]
fn the_example_without_a_loop_sends_a_cold_file() {
    if !exists("cc") {
        skip!("no C compiler (cc)");
    }
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let (program, library) = compile(SEND, dir.path());
    fs::write(dir.path().join("file"), content(3_000_001)).unwrap();
    evict(dir.path().join("file"));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let mut command = Command::new(program);
    command.arg(dir.path()).env("LD_LIBRARY_PATH", library).stdout(Stdio::null());
    let mut sender = Running(command.args(["file", &port]).spawn().unwrap());
    let all = std::thread::spawn(move || {
        let mut all = Vec::new();
        listener.accept().unwrap().0.read_to_end(&mut all).unwrap();
        all
    });
    assert!(sender.0.wait().unwrap().success());
    assert!(all.join().unwrap() == content(3_000_001), "other bytes");
}

#[test]
fn the_example_accepts_again_after_it_had_no_free_descriptor() {
    if !exists("cc") {
        skip!("no C compiler (cc)");
    }
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let (program, library) = compile(SERVE, dir.path());
    let mut command = with_few_descriptors(program);
    command.arg(dir.path()).arg("0").env("LD_LIBRARY_PATH", library).stdout(Stdio::piped());
    let mut server = Running(command.spawn().unwrap());
    assert_accepts_after_crowd(server.0.id(), address_of(&mut server));
}

#[test]
fn the_example_answers_503_while_it_has_no_free_descriptor() {
    if !exists("cc") {
        skip!("no C compiler (cc)");
    }
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    fs::write(dir.path().join("file"), "content").unwrap();
    let (program, library) = compile(SERVE, dir.path());
    let mut command = with_few_descriptors(program);
    command.arg(dir.path()).arg("0").env("LD_LIBRARY_PATH", library).stdout(Stdio::piped());
    let mut server = Running(command.spawn().unwrap());
    assert_unavailable_in_crowd(server.0.id(), address_of(&mut server), "/file");
}

/// Runs a program that ends by itself, without an error.
fn run(command: &mut Command) {
    let mut running = Running(command.stderr(Stdio::piped()).spawn().unwrap());
    let mut said = String::new();
    running.0.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    let status = running.0.wait().unwrap();
    assert!(status.success(), "{status} {said}");
}

#[test]
fn mistakes_are_errors_as_the_header_says() {
    if !exists("cc") {
        skip!("no C compiler (cc)");
    }
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let (program, library) = compile(MISUSE, dir.path());
    run(Command::new(program).env("LD_LIBRARY_PATH", library));
}

/// The file that the program about descriptors reads.
fn cold_file(dir: &Path) -> PathBuf {
    let cold = dir.join("cold");
    fs::write(&cold, (0..3_000_000_u32).map(|at| (at % 251) as u8).collect::<Vec<_>>()).unwrap();
    cold
}

#[test]
fn descriptors_and_wakers_are_as_the_header_says() {
    if !exists("cc") {
        skip!("no C compiler (cc)");
    }
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let (program, library) = compile(DESCRIPTORS, dir.path());
    let cold = cold_file(dir.path());
    for allows_uring in [true, false] {
        evict(&cold);
        let mut command = Command::new(&program);
        command.arg(dir.path()).env("LD_LIBRARY_PATH", &library);
        if !allows_uring {
            forbid_io_uring(&mut command);
        }
        run(&mut command);
    }
}

#[test]
fn the_example_stores_an_upload_that_is_complete_and_no_other() {
    if !exists("cc") {
        skip!("no C compiler (cc)");
    }
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let (program, library) = compile(RECEIVE, dir.path());
    let uploads = dir.path().join("uploads");
    fs::create_dir(&uploads).unwrap();
    let bytes = content(3_000_001);
    for is_complete in [false, true] {
        let mut command = Command::new(&program);
        command.arg(&uploads).arg("file").env("LD_LIBRARY_PATH", &library);
        let mut receiver =
            Running(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap());
        let mut said = BufReader::new(receiver.0.stdout.take().unwrap());
        let mut port = String::new();
        said.read_line(&mut port).unwrap();
        let mut peer =
            TcpStream::connect(("127.0.0.1", port.trim().parse::<u16>().unwrap())).unwrap();
        peer.write_all(&bytes).unwrap();
        // It stays open until the program has ended: its end would be something to read, too.
        let mut input = receiver.0.stdin.take().unwrap();
        if is_complete {
            drop(peer);
        } else {
            input.write_all(b"\n").unwrap();
        }
        assert!(receiver.0.wait().unwrap().success());
        let mut rest = String::new();
        said.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, if is_complete { "3000001 bytes\n" } else { "" });
    }
    assert!(fs::read(uploads.join("file")).unwrap() == bytes);
    assert_eq!(fs::read_dir(&uploads).unwrap().count(), 1);
}

#[test]
fn a_binding_for_python_uses_the_header_as_it_is() {
    let has_cffi =
        Command::new("python3").args(["-c", "import cffi"]).stderr(Stdio::null()).status();
    if !has_cffi.is_ok_and(|status| status.success()) {
        skip!("no python3 with cffi (python3-cffi)");
    }
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    fs::write(dir.path().join("file"), content(3_000_001)).unwrap();
    evict(dir.path().join("file"));
    let mut python = Command::new("python3");
    python.arg(here(BINDING)).arg(here("include/samum.h")).arg(library().join("libsamum.so"));
    let output = python.arg(dir.path()).arg("file").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "3000007 bytes sent\n");
}

/// A program that ends soon has no time to wait until its peer has acknowledged what it was sent.
#[test]
fn nothing_of_an_uncached_file_stays_behind_when_the_queue_is_freed() {
    // If a send is in flight when the queue is freed, the peer's socket refers to at most this many of its bytes.
    const IN_SOCKET: u64 = 1 << 20;
    // The kernel keeps pages that a processor has just filled: one now and then, and never many.
    const IN_USE: u64 = 256 << 10;
    if !exists("cc") {
        skip!("no C compiler (cc)");
    }
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let (program, library) = compile(NOCACHE, dir.path());
    let path = dir.path().join("file");
    let ways = [
        ("all", 50_000_000, IN_USE),
        ("blocking", 50_000_000, IN_USE),
        ("small", 10_000, 4096),
        ("cancel", 50_000_000, IN_USE),
        ("leaves", 50_000_000, IN_USE),
        ("free", 50_000_000, IN_SOCKET),
    ];
    for (way, size, most) in ways {
        fs::write(&path, content(size)).unwrap();
        for allows_uring in [true, false] {
            evict(&path);
            let mut command = Command::new(&program);
            command.arg(&path).arg(way).env("LD_LIBRARY_PATH", &library);
            if !allows_uring {
                forbid_io_uring(&mut command);
            }
            let output = command.output().unwrap();
            assert!(output.status.success(), "{way}: {output:?}");
            let stays: u64 = String::from_utf8_lossy(&output.stdout).trim().parse().unwrap();
            assert!(stays <= most, "{way}, io_uring {allows_uring}: {stays} of {size} bytes");
        }
    }
}

#[test]
fn files_directories_and_children_are_as_the_header_says() {
    if !exists("cc") {
        skip!("no C compiler (cc)");
    }
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let (program, library) = compile(EVENTS, dir.path());
    let empty = dir.path().join("empty");
    fs::create_dir(&empty).unwrap();
    run(Command::new(program).arg(empty).env("LD_LIBRARY_PATH", library));
}

#[test]
fn a_disk_that_does_not_answer_holds_up_nothing() {
    if !exists("cc") {
        skip!("no C compiler (cc)");
    }
    let files = ["data", "late"].map(|name| (name, content(300_000)));
    let [data, late] = files.clone();
    let slow = or_skip!(SlowFs::builder().file(data.0, data.1).file(late.0, late.1).mount());
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let (program, library) = compile(HUNG, dir.path());
    for allows_uring in [true, false] {
        slow.set_delay_of("data", Op::Read, Duration::MAX);
        slow.set_delay_of("late", Op::Open, Duration::MAX);
        let mut command = Command::new(&program);
        command.arg(slow.path()).env("LD_LIBRARY_PATH", &library).stdout(Stdio::piped());
        if !allows_uring {
            forbid_io_uring(&mut command);
        }
        let mut running = Running(command.spawn().unwrap());
        let mut line = String::new();
        BufReader::new(running.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "done\n", "the program has said why");
        // The kernel lets the process go when the disk answers.
        slow.set_delay_of("data", Op::Read, Duration::ZERO);
        slow.set_delay_of("late", Op::Open, Duration::ZERO);
        assert!(running.0.wait().unwrap().success());
    }
}

/// Returns the words that `pkg-config` prints about the library beneath a prefix.
fn pkg_config(prefix: &Path, args: &[&str]) -> Vec<OsString> {
    let mut command = Command::new("pkg-config");
    command.args(args).arg("samum").env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"));
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let words = String::from_utf8(output.stdout).unwrap();
    words.split_ascii_whitespace().map(OsString::from).collect()
}

/// Installs the library as `README.md` says.
fn install(prefix: &Path) {
    let library = library();
    for dir in ["include", "lib/pkgconfig"] {
        fs::create_dir_all(prefix.join(dir)).unwrap();
    }
    fs::copy(here("include/samum.h"), prefix.join("include/samum.h")).unwrap();
    fs::copy(here("samum.pc"), prefix.join("lib/pkgconfig/samum.pc")).unwrap();
    fs::copy(library.join("libsamum.a"), prefix.join("lib/libsamum.a")).unwrap();
    fs::copy(library.join("libsamum.so"), prefix.join("lib/libsamum.so.0")).unwrap();
    symlink("libsamum.so.0", prefix.join("lib/libsamum.so")).unwrap();
}

#[test]
fn an_installed_library_is_linked_dynamically_or_statically() {
    if !exists("cc") || !exists("pkg-config") {
        skip!("no C compiler (cc), or no pkg-config");
    }
    let prefix = tempfile::tempdir_in("/var/tmp").unwrap();
    let prefix = prefix.path();
    install(prefix);
    assert_eq!(pkg_config(prefix, &["--modversion"]), [env!("CARGO_PKG_VERSION")]);
    let program = compile_with(MISUSE, prefix, pkg_config(prefix, &["--cflags", "--libs"]));
    run(Command::new(program).env("LD_LIBRARY_PATH", prefix.join("lib")));
    // Everything that the archive needs. The program loads no library of this project at run time.
    let args = pkg_config(prefix, &["--static", "--cflags", "--libs"]);
    let args = args.into_iter().map(|word| match word.to_str() {
        Some("-lsamum") => "-l:libsamum.a".into(),
        _ => word,
    });
    run(&mut Command::new(compile_with(MISUSE, prefix, args)));
}

#[test]
fn the_header_is_plain_c_and_cpp() {
    let standards =
        [("cc", "c", "c99"), ("cc", "c", "c17"), ("c++", "c++", "c++11"), ("c++", "c++", "c++17")];
    for (compiler, language, standard) in standards {
        if !exists(compiler) {
            skip!("no compiler ({compiler})");
        }
        let mut check = Command::new(compiler);
        check.args(["-fsyntax-only", "-pedantic", "-Wall", "-Wextra", "-Werror", "-x", language]);
        check.arg(format!("-std={standard}")).arg(here("include/samum.h"));
        assert!(check.status().unwrap().success(), "{compiler} {standard}");
    }
}

#[test]
fn the_header_declares_what_the_library_exports_and_the_programs_use() {
    let read = |path| fs::read_to_string(here(path)).unwrap();
    let header = read("include/samum.h");
    let declared: BTreeSet<_> = header
        .lines()
        .filter_map(|line| line.strip_prefix("int ").or_else(|| line.strip_prefix("uint32_t ")))
        .map(|rest| rest.split('(').next().expect("split yields one"))
        .collect();
    assert!(declared.len() > 20, "{declared:?}");

    let programs = [SERVE, SEND, MISUSE, EVENTS, HUNG, DESCRIPTORS].map(read).concat();
    let unused = declared.iter().filter(|name| !programs.contains(&format!("{name}(")));
    assert_eq!(unused.collect::<Vec<_>>(), [] as [&&str; 0], "no program in C calls them");

    let lines = read(SERVE).lines().count();
    assert!(lines <= 100, "README.md says that the example has 100 lines, not {lines}");

    let calls_max = format!("#define SAMUM_CALLS_MAX {}\n", sendfile::CALLS_MAX);
    assert!(header.contains(&calls_max), "{calls_max}");

    if !exists("nm") {
        skip!("no nm");
    }
    let mut nm = Command::new("nm");
    nm.args(["--dynamic", "--defined-only", "--format=posix"]).arg(library().join("libsamum.so"));
    let symbols = String::from_utf8(nm.output().unwrap().stdout).unwrap();
    let exported: BTreeSet<_> =
        symbols.lines().filter_map(|line| line.split_ascii_whitespace().next()).collect();
    assert_eq!(exported, declared);
}

/// Valgrind has no vDSO, and writes its findings to standard error. It holds its lock in `io_uring_enter(2)` (3.19), so no
/// other thread runs while the program waits: a program with threads cannot be tried.
#[test]
fn a_program_runs_beneath_valgrind() {
    if !exists("cc") {
        skip!("no C compiler (cc)");
    }
    if !exists("valgrind") {
        skip!("valgrind is not installed");
    }
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let (program, library) = compile(BRIEF, dir.path());
    evict(cold_file(dir.path()));
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["-q", "--error-exitcode=99"]).arg(program).env("LD_LIBRARY_PATH", library);
    let output = valgrind.arg(dir.path()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
}
