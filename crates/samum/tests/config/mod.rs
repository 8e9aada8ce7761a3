//! `samum check` and `samum serve --config`, with the binary.

use core::time::Duration;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::UNIX_EPOCH;

use testkit::{Server, Tree, skip};

use crate::common::as_nobody;
use crate::tls::Authority;

mod agreement;
mod examples;
mod explain;
mod from_nginx;

const SAMUM: &str = env!("CARGO_BIN_EXE_samum");

fn samum(directory: &Path, args: &[&str]) -> Output {
    Command::new(SAMUM).current_dir(directory).args(args).output().expect("it starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}

/// The texts beside the files are what an administrator sees. `SAMUM_WRITE=1` writes them.
#[test]
fn broken_files_are_explained() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/config/broken");
    let entries = fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> =
        entries.filter(|path| path.extension().is_some_and(|it| it == "toml")).collect();
    files.sort();
    assert!(files.len() >= 10, "{files:?}");
    for path in files {
        let name = path.file_name().unwrap().to_str().unwrap();
        let output = samum(&directory, &["check", name]);
        assert_eq!((output.status.code(), &output.stdout[..]), (Some(1), &b""[..]), "{name}");
        let shown = text(&output.stderr).replace(directory.to_str().unwrap(), "DIR");
        let kept = path.with_extension("txt");
        if std::env::var_os("SAMUM_WRITE").is_some() {
            fs::write(&kept, &shown).unwrap();
        }
        let kept = fs::read_to_string(&kept).unwrap_or_default();
        assert!(shown == kept, "{name}, if it is right, SAMUM_WRITE=1 keeps it:\n{shown}");
    }
}

fn site(directory: &Path, keys: &str) -> PathBuf {
    let file = directory.join("samum.toml");
    fs::write(&file, keys).unwrap();
    fs::create_dir_all(directory.join("www")).unwrap();
    file
}

#[test]
fn a_right_file_is_printed_with_all_defaults() {
    let directory = tempfile::tempdir().unwrap();
    let keys = "[[site]]\nlisten = ['127.0.0.1:0', 'unix:s']\nlog = 'access.log'\n\
                [[site.route]]\nfiles = 'www'\n[[site.route]]\nfiles = 'www'\n";
    let file = site(directory.path(), keys);
    let output = samum(directory.path(), &["check", "samum.toml"]);
    let (printed, warnings) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{warnings}");
    assert!(
        warnings.starts_with("samum.toml:6:1: warning: no request reaches this route"),
        "{warnings}"
    );
    let root = directory.path().join("www");
    assert!(printed.contains(&format!("files = \"{}\"", root.display())), "{printed}");
    assert!(printed.contains("timeout-idle = 75\n"), "{printed}");
    let made: Vec<_> = fs::read_dir(directory.path()).unwrap().collect();
    assert_eq!(made.len(), 2, "a check makes no log and no socket: {made:?}");
    // What is printed is the same configuration, wherever it is kept.
    let elsewhere = tempfile::tempdir().unwrap();
    fs::write(elsewhere.path().join("printed.toml"), &printed).unwrap();
    let again = samum(elsewhere.path(), &["check", "printed.toml"]);
    assert_eq!(text(&again.stdout), printed, "{}", text(&again.stderr));
    drop(file);
}

#[test]
fn the_tls_of_a_site_is_printed() {
    let directory = tempfile::tempdir().unwrap();
    let listen = "listen = ['127.0.0.1:0', { unix = 's', tls = true }]";
    let check = |keys: &str| {
        let keys = format!("[[site]]\n{listen}\n{keys}\n[[site.route]]\nfiles = 'www'\n");
        site(directory.path(), &keys);
        let output = samum(directory.path(), &["check", "samum.toml"]);
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    let (code, printed, warnings) = check("tls = 'self-signed'");
    assert_eq!((code, &warnings[..]), (Some(0), ""));
    for line in ["tls = \"self-signed\"", "https = \"allow\"", "hsts = \"none\""] {
        assert!(printed.contains(&format!("\n{line}\n")), "{printed}");
    }
    let socket = format!("{{ unix = \"{}\", tls = true }}", directory.path().join("s").display());
    assert!(printed.contains(&socket), "{printed}");
    let (code, _, errors) = check("");
    assert_eq!(code, Some(1));
    assert!(errors.contains("the site `default` has no certificate for unix:"), "{errors}");
}

#[test]
fn the_certificates_that_clients_see_are_printed() {
    let authority = Authority::new();
    let tree = Tree::new().directory("www");
    let soon = || {
        let left = Duration::from_secs(5 * 24 * 60 * 60 + 60);
        rcgen::date_time_ymd(1970, 1, 1) + UNIX_EPOCH.elapsed().unwrap() + left
    };
    let issued = authority.issue_with(&["a.example", "*.a.example"], |params| {
        params.not_after = soon();
    });
    issued.put(&tree, "a");
    let keys = |tls: &str| {
        format!(
            "[[site]]\nlisten = [{{ address = '127.0.0.1:0', tls = true }}]\n\
             hosts = ['a.example', 'b.example']\ntls = {tls}\n[[site.route]]\nfiles = 'www'\n"
        )
    };
    let files = "{ certificate = 'a.pem', key = 'a.key' }";
    tree.write("samum.toml", &*keys(files));
    let check = || samum(tree.path(), &["check", "samum.toml"]);
    let output = check();
    let (printed, warnings) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{warnings}");
    let line = printed.lines().next().unwrap();
    let expected = "# a.example shows a certificate for a.example, *.a.example: ECDSA P-256, issued by \
                    CN=Authority of tests, expires on ";
    assert!(line.starts_with(expected), "{line}");
    let fingerprint = line.rsplit("SHA-256 ").next().unwrap();
    assert_eq!((fingerprint.len(), fingerprint.matches(':').count()), (95, 31), "{line}");
    let path = tree.path().display();
    for expected in [
        format!(
            "samum.toml:4:23: warning: {path}/a.pem: the certificate expires in 5 days: renew it\n"
        ),
        "samum.toml:3:23: warning: no certificate of the site is valid for its host b.example: "
            .to_owned(),
    ] {
        assert!(warnings.contains(&expected), "{expected}: {warnings}");
    }
    assert_eq!(warnings.matches("warning:").count(), 2, "{warnings}");
    let mut secret = issued.key.lines().filter(|line| !line.starts_with("-----"));
    assert!(!secret.any(|line| printed.contains(line) || warnings.contains(line)));

    let key = tree.path().join("a.key");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
    let warnings = text(&check().stderr);
    let expected = format!(
        "samum.toml:4:38: warning: {0}: others may read or write the private key (mode 0644): run `chmod o-rw {0}`",
        key.display()
    );
    assert!(warnings.contains(&expected), "{expected}: {warnings}");

    tree.write("samum.toml", &*keys("'self-signed'"));
    let output = check();
    let (printed, warnings) = (text(&output.stdout), text(&output.stderr));
    let expected = "# a.example shows a self-signed certificate; the server makes it when it starts, and \
                    says its fingerprint\n\n[server]\n";
    assert!(printed.starts_with(expected), "{printed}");
    assert_eq!(warnings, "");
}

#[test]
fn a_key_that_the_user_cannot_read_is_an_error() {
    if !rustix::process::geteuid().is_root() {
        skip!("only root can make a file that another user may not read");
    }
    let tree = Tree::new().directory("www");
    Authority::new().issue(&["a.example"]).put(&tree, "a");
    for name in ["", "a.pem"] {
        let mode = fs::Permissions::from_mode(0o755);
        fs::set_permissions(tree.path().join(name), mode).unwrap();
    }
    let keys = "[[site]]\nlisten = [{ address = '127.0.0.1:0', tls = true }]\n\
                tls = { certificate = 'a.pem', key = 'a.key' }\n[[site.route]]\nfiles = 'www'\n";
    tree.write("samum.toml", keys);
    let mut command = Command::new(SAMUM);
    command.args(["check", "samum.toml"]).current_dir(tree.path());
    let output = as_nobody(&mut command).output().expect("it starts");
    let shown = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{shown}");
    let expected = format!(
        "samum.toml:3:38: error: cannot read {}/a.key: permission denied (the user of the server must be able to read it and to enter the directories above: \
         by its group, by `setfacl -m u:USER:r`, or by a copy that a deploy hook makes)",
        tree.path().display()
    );
    assert!(shown.contains(&expected), "{expected}: {shown}");
}

#[test]
fn a_route_whose_path_is_that_of_a_file_is_told_to_use_a_pattern() {
    let directory = tempfile::tempdir().unwrap();
    let check = |path: &str, key: &str| {
        let keys = format!(
            "[[site]]\nlisten = ['127.0.0.1:0']\n[[site.route]]\n{key} = '{path}'\nfiles = 'www'\n"
        );
        site(directory.path(), &keys);
        fs::create_dir_all(directory.path().join("www/sub")).unwrap();
        for name in ["wp-login.php", "LICENSE", "sub/a.php"] {
            fs::write(directory.path().join("www").join(name), "x").unwrap();
        }
        let output = samum(directory.path(), &["check", "samum.toml"]);
        assert_eq!(output.status.code(), Some(0), "{path}");
        text(&output.stderr)
    };
    for path in ["/wp-login.php", "/LICENSE", "/sub/a.php", "/blog/wp-login.php"] {
        let shown = check(path, "path");
        assert!(
            shown.starts_with("samum.toml:4:8: warning: the `path` of a route with"),
            "{shown}"
        );
        assert!(shown.contains(&format!("use `match = \"{path}\"`")), "{shown}");
        assert_eq!(check(path, "match"), "");
    }
    for path in ["/", "/sub", "/sub/", "/none.php", "/wp-login.php/"] {
        assert_eq!(check(path, "path"), "", "{path}");
    }
}

#[test]
fn directories_that_links_may_lead_into_are_looked_at() {
    let directory = tempfile::tempdir().unwrap();
    let check = |symlinks: &str| {
        let keys = format!(
            "[[site]]\nlisten = ['127.0.0.1:0']\n[[site.route]]\nfiles = 'www'\nsymlinks = {symlinks}\n"
        );
        site(directory.path(), &keys);
        let output = samum(directory.path(), &["check", "samum.toml"]);
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    fs::create_dir(directory.path().join("disk")).unwrap();
    let disk = directory.path().join("disk");
    let (code, printed, warnings) = check("{ follow = ['disk'] }");
    assert_eq!((code, &warnings[..]), (Some(0), ""));
    let line = format!("symlinks = {{ follow = [\"{}\"] }}\n", disk.display());
    assert!(printed.contains(&line), "{printed}");
    let (code, _, warnings) = check("{ follow = ['disk', 'later', 'samum.toml'] }");
    assert_eq!(
        (code, warnings.lines().filter(|line| line.contains("warning:")).count()),
        (Some(0), 2)
    );
    assert!(
        warnings.contains("samum.toml:5:1: warning: symbolic links cannot lead into"),
        "{warnings}"
    );
    assert!(warnings.contains("later yet: "), "{warnings}");
    assert!(warnings.contains("samum.toml: it is not a directory"), "{warnings}");
    let (code, printed, warnings) = check("'follow'");
    let is_root = rustix::process::geteuid().is_root();
    assert_eq!((code, warnings.contains("every file that root can read")), (Some(0), is_root));
    assert!(printed.contains("symlinks = \"follow\"\n"), "{printed}");
    for (wrong, why) in [
        ("{}", "`symlinks` needs the key `follow`"),
        ("{ follow = 'disk' }", "expected a list"),
        ("{ into = ['disk'] }", "unknown key `into`"),
        ("'all'", "expected `beneath`, `never` or `follow`"),
    ] {
        let (code, _, errors) = check(wrong);
        assert_eq!(code, Some(1), "{wrong}");
        assert!(errors.contains(why), "{wrong}: {errors}");
    }
}

#[test]
fn an_address_in_use_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = other.local_addr().unwrap();
    let keys = |more: &str| {
        format!("{more}[[site]]\nlisten = ['{address}']\n[[site.route]]\nfiles = 'www'\n")
    };
    site(directory.path(), &keys(""));
    let output = samum(directory.path(), &["check", "samum.toml"]);
    let shown = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{shown}");
    assert!(shown.starts_with("samum.toml:2:11: error: cannot listen on 127.0.0.1:"), "{shown}");
    // Something that listens at the control socket is probably the server.
    let control = std::os::unix::net::UnixListener::bind(directory.path().join("control")).unwrap();
    site(directory.path(), &keys("[server]\ncontrol = 'control'\n"));
    let output = samum(directory.path(), &["check", "samum.toml"]);
    let shown = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{shown}");
    assert!(
        shown.contains("warning: cannot listen") && shown.contains("the samum that runs"),
        "{shown}"
    );
    drop(control);
}

#[test]
fn a_server_that_could_not_start_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let long = "c".repeat(120);
    for (server, place, why) in [
        ("control = 'missing/c'", "2:11", "the directory DIR/missing must exist"),
        ("control = 'www/file'", "2:11", "the file is not a socket"),
        (&format!("control = '{long}'"), "2:11", "too long"),
        ("control = './s'", "2:11", "a listener is there"),
        ("interface = ['nope0']", "2:14", "there is no such interface"),
        ("interface = [{ name = 'nope0' }]", "2:14", "there is no such interface"),
        ("threads = 1024", "", "cannot run 1024 workers"),
    ] {
        let keys = format!(
            "[server]\n{server}\n[[site]]\nlisten = ['127.0.0.1:0', 'unix:s']\n\
             [[site.route]]\nfiles = 'www'\n"
        );
        site(directory.path(), &keys);
        fs::write(directory.path().join("www/file"), "").unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "ulimit -Hn 1024; exec \"$0\" check samum.toml", SAMUM]);
        let output = command.current_dir(directory.path()).output().unwrap();
        let shown = text(&output.stderr).replace(directory.path().to_str().unwrap(), "DIR");
        assert_eq!(output.status.code(), Some(1), "{server}: {shown}");
        assert!(shown.contains(why), "{server}: {shown}");
        let place =
            if place.is_empty() { "error:" } else { &format!("samum.toml:{place}: error:") };
        assert!(shown.contains(place), "{server}: {shown}");
    }
}

#[test]
fn flags_that_a_file_replaces_cannot_be_given_beside_it() {
    let directory = tempfile::tempdir().unwrap();
    for args in [
        &["serve", "--config", "x", "."][..],
        &["serve", "--config", "x", "--listen", ":80"],
        &["serve", "--config", "x", "--listing"],
        &["serve", "--config", "x", "--index", "a"],
        &["serve", "--config", "x", "--cache", "never"],
        &["serve", "--config", "x", "--etag", "hash"],
        &["serve", "--config", "x", "--readahead", "1m"],
    ] {
        let output = samum(directory.path(), args);
        let shown = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {shown}");
        assert!(shown.contains("cannot be used with") && shown.contains("--config"), "{shown}");
    }
    let output = samum(directory.path(), &["serve", "--config", "none.toml", "--threads", "1"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("cannot read none.toml: there is no such file"));
}

#[test]
fn the_reference_is_printed() {
    let output = samum(Path::new("/"), &["configuration-reference"]);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md");
    assert_eq!(text(&output.stdout), fs::read_to_string(path).unwrap());
}

#[test]
fn a_rate_below_that_of_slow_clients_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let keys = "[server]\nrate-min = '1m'\n[[site]]\nlisten = ['127.0.0.1:0']\n\
                limits = { bytes-per-connection = '1MiB/s' }\n[[site.route]]\nfiles = 'www'\n";
    site(directory.path(), keys);
    let output = samum(directory.path(), &["check", "samum.toml"]);
    let shown = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{shown}");
    assert!(
        shown.contains("samum.toml:5:35: error: ") && shown.contains("twice of `rate-min`"),
        "{shown}"
    );
}

#[test]
fn a_fifo_in_the_place_of_redirects_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let made = Command::new("mkfifo").arg(directory.path().join("moved")).status().unwrap();
    assert!(made.success());
    let keys = "[[site]]\nlisten = ['127.0.0.1:0']\n[[site.route]]\nredirects = 'moved'\n";
    site(directory.path(), keys);
    // Without the check, opening it waits for a writer.
    let mut command = Command::new("timeout");
    command.args(["20", env!("CARGO_BIN_EXE_samum"), "check", "samum.toml"]);
    let output = command.current_dir(directory.path()).output().unwrap();
    let shown = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{shown}");
    assert!(shown.contains("samum.toml:4:13: error: "), "{shown}");
    assert!(shown.contains("it is not a regular file"), "{shown}");
}

#[test]
fn the_mistakes_of_a_file_of_redirects_have_lines_and_columns() {
    let directory = tempfile::tempdir().unwrap();
    let moved = directory.path().join("moved");
    fs::write(&moved, "/a /b\n/x/*  y/:splat\n/c\n").unwrap();
    let keys = "[[site]]\nlisten = ['127.0.0.1:0']\n[[site.route]]\nredirects = 'moved'\n";
    site(directory.path(), keys);
    let of_serve = ["serve", "--config", "samum.toml"];
    let of_flag = ["serve", "--listen", "127.0.0.1:0", "--redirects", moved.to_str().unwrap()];
    for args in [&["check", "samum.toml"][..], &of_serve, &of_flag] {
        let output = samum(directory.path(), args);
        let shown = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{shown}");
        let file = moved.display();
        assert!(
            shown.contains(&format!("{file}:2:7: error: the target \"y/:splat\" is")),
            "{shown}"
        );
        assert!(shown.contains("  2 | /x/*  y/:splat\n"), "{shown}");
        assert!(
            shown.contains(&format!("{file}:3:1: error: expected a path, a target")),
            "{shown}"
        );
    }
}

#[test]
fn a_configuration_is_read_from_files_and_unnamed_pipes_alone() {
    let directory = tempfile::tempdir().unwrap();
    let made = Command::new("mkfifo").arg(directory.path().join("pipe")).status().unwrap();
    assert!(made.success());
    site(directory.path(), "[[site]]\nlisten = ['127.0.0.1:0']\n[[site.route]]\nfiles = 'www'\n");
    fs::write(directory.path().join("including"), "include = ['pipe']\n").unwrap();
    let check = |script: &str| {
        let mut command = Command::new("timeout");
        command.args(["20", "sh", "-c", script, SAMUM]);
        command.current_dir(directory.path()).output().unwrap()
    };
    for file in ["pipe", "including", "/dev/zero"] {
        let output = check(&format!("exec \"$0\" check {file}"));
        let shown = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{file}: {shown}");
        assert!(shown.contains("it is not a regular file"), "{file}: {shown}");
    }
    let output = check("(sleep 0.1; cat samum.toml) | \"$0\" check /dev/stdin");
    let shown = text(&output.stderr);
    assert!(shown.contains("/dev/stdin:4:9: error: cannot serve /dev/www"), "it was read: {shown}");
}

/// Pages may be written later, so a page that does not exist is no error.
#[test]
fn a_check_tells_of_pages_that_do_not_exist() {
    let directory = tempfile::tempdir().unwrap();
    let www = directory.path().join("www");
    fs::create_dir_all(www.join("dir")).unwrap();
    for name in ["index.html", "there.html", "dir/index.html"] {
        fs::write(www.join(name), name).unwrap();
    }
    let check = |routes: &str| {
        let keys = format!("[[site]]\nlisten = ['127.0.0.1:0']\n{routes}\n");
        fs::write(directory.path().join("samum.toml"), keys).unwrap();
        let output = samum(directory.path(), &["check", "samum.toml"]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        text(&output.stderr)
    };
    let root = www.display();
    for (routes, expected) in [
        (
            "errors = { 404 = '/gone.html', 500 = '/there.html' }\n[[site.route]]\nfiles = 'www'",
            format!(
                "samum.toml:3:18: warning: there is no file for `/gone.html`: until {root}/gone.html exists, the built-in \
                 page is sent"
            ),
        ),
        (
            "[[site.route]]\nfiles = 'www'\nfallback = '/app.html'",
            format!(
                "samum.toml:5:12: warning: there is no file for `/app.html`: until {root}/app.html exists, a path that \
                 leads to nothing is answered 404"
            ),
        ),
        // A directory is no file, and the route of the path counts.
        (
            "[[site.route]]\npath = '/x/'\nfiles = 'www'\nclean-urls = true\nerrors = { 503 = '/x/dir/dir' }",
            format!("until {root}/dir/dir or {root}/dir/dir.html exists"),
        ),
    ] {
        let warnings = check(routes);
        assert!(warnings.contains(&expected), "{warnings}");
        assert_eq!(warnings.matches("warning:").count(), 1, "{warnings}");
    }
    for routes in [
        "errors = { 404 = '/there.html' }\n[[site.route]]\nfiles = 'www'\nfallback = '/dir/'",
        "[[site.route]]\nfiles = 'www'\nclean-urls = true\nerrors = { 404 = '/there' }\nfallback = '/'",
    ] {
        assert_eq!(check(routes), "", "{routes}");
    }
}

#[test]
fn what_a_server_says_about_its_file_begins_with_its_name() {
    let directory = tempfile::tempdir().unwrap();
    let warned = "[[site]]\nlisten = ['127.0.0.1:0']\n[[site.route]]\nfiles = 'www'\n[[site.route]]\nfiles = 'www'\n";
    let file = site(directory.path(), warned);
    let mut command = Command::new(SAMUM);
    let server = Server::spawn(command.args(["serve", "--config"]).arg(&file)).unwrap();
    let said = server.stderr();
    assert!(said.iter().all(|line| line.starts_with("samum: ")), "{said:?}");
    assert!(said.iter().any(|line| line.contains("samum.toml:5:1: warning: ")), "{said:?}");
    // A check says only where the mistake is.
    let checked = samum(directory.path(), &["check", "samum.toml"]);
    assert!(text(&checked.stderr).starts_with("samum.toml:5:1: warning: "));
    fs::write(
        &file,
        "[[site]]\nlisten = ['127.0.0.1:0']\nerrors = { 404 = 'HTTPS://a.example/x' }\n",
    )
    .unwrap();
    let refused = samum(directory.path(), &["serve", "--config", "samum.toml"]);
    let said = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1), "{said}");
    assert!(said.lines().all(|line| line.starts_with("samum: ")), "{said}");
    assert!(said.contains("and no URL: the file is sent with the status of the error"), "{said}");
}
