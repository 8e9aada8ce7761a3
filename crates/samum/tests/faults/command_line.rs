//! The command line: its output and its errors.

use std::process::Command;

use testkit::Tree;

use super::outcome;
use crate::common::{SAMUM, as_nobody, make_fifo, text};

fn samum(args: &[&str]) -> (Option<i32>, String, String) {
    outcome(Command::new(SAMUM).args(args))
}

#[test]
fn help_version_completions_and_man_page_are_printed() {
    let (code, help, _) = samum(&["--help"]);
    assert_eq!(code, Some(0));
    assert!(help.contains("serve") && help.contains("Exit codes"), "{help}");
    let (code, help, _) = samum(&["serve", "--help"]);
    assert_eq!(code, Some(0));
    for option in [
        "--listen",
        "--threads",
        "--driver",
        "--index",
        "--listing",
        "--cache",
        "--readahead",
        "--log",
        "--log-format",
        "--max-connections",
        "--timeout-idle",
        "--timeout-header",
        "--timeout-send",
        "--timeout-disk",
        "--rate-min",
    ] {
        assert!(help.contains(option), "{option} in {help}");
    }
    for default in ["127.0.0.1:8080", "[default: .]", "one per core", "[default: auto]"] {
        assert!(help.contains(default), "{default} in {help}");
    }
    let (code, version, _) = samum(&["--version"]);
    assert_eq!((code, version), (Some(0), format!("samum {}\n", env!("CARGO_PKG_VERSION"))));
    for shell in ["bash", "zsh", "fish"] {
        let (code, script, _) = samum(&["completions", shell]);
        assert_eq!(code, Some(0));
        assert!(script.contains("timeout-header"), "{shell}: {script}");
    }
    let (code, page, _) = samum(&["man"]);
    assert_eq!(code, Some(0));
    assert!(
        page.contains(".TH samum")
            && page.contains("SAMUM SERVE")
            && page.contains("SAMUM PRELOAD")
            && page.contains("rate\\-min")
            && page.contains("\nsamum serve\n")
            && page.matches("(1)").count() == 0,
        "{page}"
    );
    let (code, page, _) = samum(&["man", "samum.toml"]);
    assert_eq!(code, Some(0));
    assert!(page.starts_with(".TH samum.toml 5") && page.contains("rate\\-min"), "{page}");
}

#[test]
fn a_reader_that_stops_early_is_no_error() {
    for what in ["man", "completions bash", "serve --help"] {
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("{{ \"$0\" {what}; echo code $? >&2; }} | true"), SAMUM]);
        let (_, _, stderr) = outcome(&mut shell);
        assert_eq!(stderr, "code 0\n", "{what}");
    }
}

#[test]
fn a_wrong_command_line_exits_with_2_and_says_what_to_do() {
    for (args, advice) in [
        (&["serve", "--no-such-flag"][..], "--help"),
        (&["serve", "--listning"], "--listing"),
        (&["serve", "--driver", "kqueue"], "epoll"),
        (&["serve", "--listen", "nonsense"], "ADDRESS:PORT"),
        (&["serve", "--listen", "127.0.0.1:70000"], "ADDRESS:PORT"),
        (&["serve", "--listen", "[::ffff:127.0.0.1]:0"], "listen on 127.0.0.1:0"),
        (&["serve", "--listen", "unix:/s,mode=rw"], "such as 660"),
        (&["serve", "--listen", "unix:/s,user=me"], "mode= and owner="),
        (&["serve", "--threads", "0"], "a whole number from 1 to 1024"),
        (&["serve", "--threads", "many"], "a whole number from 1 to 1024"),
        (&["serve", "--readahead", "1x"], "a number of bytes"),
        (&["serve", "--readahead", "4g"], "at most 4294967295 bytes"),
        (&["serve", "--timeout-idle", "0"], "from 0.1 to 1000000000 seconds"),
        (&["serve", "--max-connections", "0"], "a whole number from 1 to 1048576"),
        (&["serve", "--index", "a/b"], "index.html"),
        (&["serve", "--log-format", "xml"], "combined"),
        (&["serve", "a", "b"], "unexpected argument"),
        (&["sreve"], "samum: there is no `sreve`: `samum serve DIR`"),
        (&["serv", "/x"], "samum: there is no `serv`: `samum serve /x`"),
        (&["chek", "/etc/a.toml"], "no `chek`: `samum check /etc/a.toml`"),
        (&["upgade"], "no `upgade`: `samum upgrade`"),
        (&["reload", "--contrl", "s"], "--control"),
        (&["help", "serv"], "no `serv`: `samum help serve`"),
        (&["-v"], "`samum --version`"),
        (&["version"], "`samum --version`"),
        (&["--port", "8000"], "no `--port`: `samum serve DIR --listen 127.0.0.1:8000`"),
        (&["serve", "--port", "8000"], "`samum serve DIR --listen 127.0.0.1:8000`"),
        (&["/"], "samum: a command is missing: `samum serve /`"),
        (&["--list"], "`samum serve DIR --listing`"),
        (&["-p", "80"], "`samum serve DIR --listen 127.0.0.1:80`"),
        (&["-l", "/"], "`samum serve / --listing`"),
        (&["serve", "-d", "/"], "no `-d`: `samum serve /`"),
        (&["-s", "reload"], "`samum reload`"),
        (&["-m", "http.server", "8000"], "`samum serve DIR --listen 127.0.0.1:8000`"),
        (&["--port", "\u{1b}[2J"], "samum serve DIR --listen '127.0.0.1:\\u{1b}[2J'"),
        (&["serve", "--treads", "3"], "no `--treads`: `samum serve DIR --threads 3`"),
        (&["serve", "--max-conections", "100"], "`samum serve DIR --max-connections 100`"),
        (&["serve", "--timeout-iddle", "5"], "`samum serve DIR --timeout-idle 5`"),
        (&["serve", "--worker", "2"], "`samum serve DIR --threads 2`"),
        (&["serve", "--lissten", "8080"], "`samum serve DIR --listen 8080`"),
        (&["serve", "--log-level", "3"], "no `--log-level`: `samum serve DIR`"),
        (&["serve", "--cache-size", "100"], "no `--cache-size`: `samum serve DIR`"),
        (&["serve", "--config", "F", "--treads", "3"], "`samum serve --config F --threads 3`"),
        (&["serve", "--access-log", "x"], "`samum serve DIR --log x`"),
        (&["serve", "--log", "off"], "without a log it is \"none\"; \"./off\" is a file"),
        (&["serve", "--charset", "off"], "without the name of an encoding it is \"none\""),
        (&["check", "--config", "F"], "no `--config`: `samum check F`"),
        (&["check", "-c", "F"], "no `-c`: `samum check F`"),
        (&["check", "-t", "F"], "no `-t`: `samum check F`"),
        (&["explain", "http://a/", "--from", "nobody"], "such as 192.0.2.7, or `unix`"),
        (&[], "Usage"),
    ] {
        let (code, _, stderr) = samum(args);
        assert_eq!(code, Some(2), "{args:?}: {stderr}");
        assert!(stderr.contains(advice), "{args:?}: {stderr}");
    }
}

#[test]
fn a_directory_that_cannot_be_served_exits_with_1_and_says_what_to_do() {
    let tree = Tree::new().file("file", "x").file("site.toml", "x").directory("closed");
    make_fifo(&tree.path().join("fifo"));
    let path = |name: &str| text(&tree.path().join(name)).to_owned();
    for (name, advice) in [
        ("missing", "there is no such directory"),
        ("file", "it is not a directory (serve the one that it is in)"),
        ("site.toml", "it is not a directory (if it is a configuration: samum serve --config "),
        ("fifo", "it is not a directory"),
        ("file/x", "it is not a directory"),
    ] {
        let (code, _, stderr) = samum(&["serve", &path(name), "--listen", "127.0.0.1:0"]);
        assert_eq!(code, Some(1), "{name}: {stderr}");
        assert!(stderr.contains(": cannot serve ") && stderr.contains(advice), "{name}: {stderr}");
    }
    // It is the port of another server, perhaps.
    let (code, _, stderr) = samum(&["serve", "8000"]);
    assert_eq!(code, Some(1), "{stderr}");
    assert!(stderr.contains("cannot serve 8000: there is no such directory"), "{stderr}");
    assert!(stderr.contains("(for the port: --listen 127.0.0.1:8000)"), "{stderr}");
    use std::os::unix::fs::PermissionsExt as _;
    let mode = |name: &str, mode| {
        std::fs::set_permissions(tree.path().join(name), std::fs::Permissions::from_mode(mode))
            .unwrap();
    };
    mode("", 0o755);
    mode("closed", 0);
    let mut command = Command::new(SAMUM);
    command.args(["serve", &path("closed"), "--listen", "127.0.0.1:0"]);
    let (code, _, stderr) = outcome(as_nobody(&mut command));
    mode("closed", 0o755);
    assert_eq!(code, Some(1), "{stderr}");
    assert!(stderr.contains("permission denied (this user must be able to read"), "{stderr}");
}

#[test]
fn too_many_workers_are_refused_and_many_give_a_warning() {
    let tree = Tree::new();
    let script = "ulimit -n \"$1\" && shift && exec \"$@\"";
    let mut shell = Command::new("sh");
    shell.args(["-c", script, "sh", "4096", SAMUM, "serve", text(tree.path())]);
    let (code, _, stderr) = outcome(shell.args(["--listen", "127.0.0.1:0", "--threads", "1000"]));
    assert_eq!(code, Some(1), "{stderr}");
    assert!(stderr.contains("cannot run 1000 workers: of the 4096 descriptors"), "{stderr}");
    let cores = std::thread::available_parallelism().unwrap().get();
    let threads = (4 * cores + 1).to_string();
    let server = crate::common::serve("auto", tree.path(), &["--threads", &threads]);
    let line = server.wait_for_stderr("MiB of memory", crate::common::SOON).expect("it is said");
    assert!(line.contains(&format!("{threads} workers for {cores} cores cost ")), "{line}");
}

#[test]
fn a_log_that_cannot_be_opened_exits_with_1() {
    let tree = Tree::new();
    let log = text(&tree.path().join("missing/access.log")).to_owned();
    let (code, _, stderr) =
        samum(&["serve", text(tree.path()), "--listen", "127.0.0.1:0", "--log", &log]);
    assert_eq!(code, Some(1), "{stderr}");
    assert!(stderr.contains(&format!("cannot log to {log}")), "{stderr}");
}

#[test]
fn a_command_that_cannot_be_preloaded_exits_with_1_and_the_reason() {
    use std::os::unix::fs::PermissionsExt as _;
    let tree = Tree::new().file("lib.so", "").file("plain", "x").file("static", elf(64));
    let path = |name: &str| text(&tree.path().join(name)).to_owned();
    let make = |name: &str, mode| {
        std::fs::set_permissions(path(name), std::fs::Permissions::from_mode(mode)).unwrap();
    };
    std::fs::copy("/bin/true", path("setuid")).unwrap();
    std::fs::write(path("foreign"), elf(32)).unwrap();
    // A program of another user, because setuid to the same user changes nothing. Only root can change
    // the owner.
    let is_others = std::os::unix::fs::chown(path("setuid"), Some(12_345), None).is_ok();
    make("setuid", 0o4755);
    for name in ["static", "foreign"] {
        make(name, 0o755);
    }
    let preload = |library: &str, command: &str| {
        let mut samum = Command::new(SAMUM);
        outcome(samum.args(["preload", "--", command, "-x"]).env("SAMUM_PRELOAD_LIB", library))
    };
    let library = path("lib.so");
    for (library, command, advice) in [
        (&path("missing.so"), "/bin/true".to_owned(), "there is no library"),
        (&library, "no-such-command".to_owned(), "there is no command no-such-command in PATH"),
        (&library, path("missing"), "no such file"),
        (&library, path("plain"), "not an executable file"),
        (&library, path("static"), "statically linked"),
        (&library, path("foreign"), "another machine"),
        (&library, path("setuid"), "setuid"),
    ] {
        if advice == "setuid" && !is_others {
            eprintln!("skipped: a setuid program of another user: needs root");
            continue;
        }
        let (code, _, stderr) = preload(library, &command);
        assert_eq!(code, Some(1), "{command}: {stderr}");
        assert!(stderr.starts_with("samum: ") && stderr.contains(advice), "{command}: {stderr}");
    }
    assert_eq!(samum(&["preload"]).0, Some(2));
}

#[test]
fn a_program_for_musl_and_its_scripts_are_refused_before_they_start() {
    use std::os::unix::fs::PermissionsExt as _;
    if Command::new("musl-gcc").arg("--version").output().is_err() {
        testkit::skip!("no compiler for musl (musl-gcc)");
    }
    let tree = Tree::new()
        .file("lib.so", "")
        .file("main.c", "#include <stdio.h>\nint main(void) { return puts(\"it runs\") < 0; }\n");
    let path = |name: &str| text(&tree.path().join(name)).to_owned();
    for (name, way) in [("musl", "-no-pie"), ("static", "-static")] {
        let mut compiler = Command::new("musl-gcc");
        compiler.args([way, "-o", &path(name), &path("main.c")]);
        assert!(compiler.status().unwrap().success(), "{way}");
    }
    for (script, interpreter) in
        [("of-musl", "musl"), ("of-static", "static"), ("nested", "of-musl")]
    {
        std::fs::write(path(script), format!("#! {} -x\n", path(interpreter))).unwrap();
        std::fs::set_permissions(path(script), std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    for (command, advice) in [
        ("musl", "it uses musl, and the library needs glibc"),
        ("static", "it is statically linked"),
        ("of-musl", "/musl: it uses musl"),
        ("of-static", "/static: it is statically linked"),
        ("nested", "/musl: it uses musl"),
    ] {
        let mut samum = Command::new(SAMUM);
        samum.args(["preload", "--", &path(command)]).env("SAMUM_PRELOAD_LIB", path("lib.so"));
        let (code, stdout, stderr) = outcome(&mut samum);
        assert!(code == Some(1) && stderr.contains(advice), "{command}: {stderr}");
        assert!(!stdout.contains("it runs"), "{command}");
    }
}

#[test]
fn what_the_preload_library_will_help_is_told_without_running_the_command() {
    let tree = Tree::beneath("/var/tmp").file("lib.so", "").file("static", elf(64));
    let path = |name: &str| text(&tree.path().join(name)).to_owned();
    std::fs::set_permissions(path("static"), std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .unwrap();
    let check = |command: &str| {
        let mut samum = Command::new(SAMUM);
        samum.current_dir(tree.path()).env("SAMUM_PRELOAD_LIB", path("lib.so"));
        outcome(samum.args(["preload", "--check", "--", command, "-c", "echo it runs"]))
    };
    // The loader cannot load an empty file.
    let (code, stdout, stderr) = check("/bin/bash");
    assert_eq!(code, Some(1), "{stdout}{stderr}");
    for line in ["yes: /bin/bash is loaded", "no: ", "yes: the file system of .", "`sendfile on`"] {
        assert!(stdout.contains(line), "{line}: {stdout}");
    }
    assert!(!stdout.contains("it runs") && stderr.contains("will not help"), "{stdout}{stderr}");
    let (code, stdout, _) = check(&path("static"));
    assert!(code == Some(1) && stdout.contains("statically linked"), "{stdout}");
}

#[test]
fn a_command_runs_with_the_library_and_its_report_options() {
    let tree = Tree::new().file("lib.so", "");
    let library = text(&tree.path().join("lib.so")).to_owned();
    let command = || {
        let mut samum = Command::new(SAMUM);
        samum.current_dir(tree.path()).env("SAMUM_PRELOAD_LIB", "lib.so").env("LD_PRELOAD", "");
        samum.arg("preload");
        samum
    };
    let mut samum = command();
    samum.args(["--stats", "st", "--log", "-", "--", "sh", "-c"]);
    samum
        .arg("echo $LD_PRELOAD $SAMUM_PRELOAD_STATS $SAMUM_PRELOAD_LOG $1; exit 7")
        .args(["sh", "--log"]);
    let (code, stdout, _) = outcome(&mut samum);
    let stats = text(&tree.path().join("st")).to_owned();
    assert_eq!((code, stdout), (Some(7), format!("{library} {stats} - --log\n")));
    // The flags come before the environment.
    let mut samum = command();
    samum.args(["--cache", "never", "--readahead", "2m", "--", "sh", "-c"]);
    samum.arg("echo $SAMUM_PRELOAD_CACHE $SAMUM_PRELOAD_READAHEAD");
    let (_, stdout, _) = outcome(samum.env("SAMUM_PRELOAD_CACHE", "popular"));
    assert_eq!(stdout, "never 2097152\n");
    for (arguments, exit, advice) in [
        (["--cache", "sometimes"], 2, "[possible values: always, never, popular]"),
        (["--readahead", "100k"], 2, "at least 256k"),
        (["--readahead", "4g"], 2, "at most 4294967295"),
        (["--readahead", "much"], 2, "such as 65536, 64k or 1m"),
        (["--readahead", "2m"], 1, "so --readahead would do nothing: unset SAMUM_PRELOAD"),
        (["--cache", "never"], 1, "so --cache would do nothing: unset SAMUM_PRELOAD"),
    ] {
        let mut samum = command();
        samum.args(arguments).args(["--", "true"]).env("SAMUM_PRELOAD", "off");
        let (code, _, stderr) = outcome(&mut samum);
        assert!(code == Some(exit) && stderr.contains(advice), "{arguments:?}: {stderr}");
    }
}

/// The header of a program that needs no loader: for this machine, or for 32 bits.
fn elf(bits: u8) -> Vec<u8> {
    let mut header = vec![0; 64];
    header[..5].copy_from_slice(&[0x7f, b'E', b'L', b'F', bits / 32]);
    header[18] = if cfg!(target_arch = "x86_64") { 62 } else { 183 };
    header
}
