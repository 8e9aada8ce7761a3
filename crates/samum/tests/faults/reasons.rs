//! The reasons for errors: in the access log and on standard error, and never in responses.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::Path;
use std::process::Command;

use testkit::{Server, Tree};

use crate::common::{SAMUM, SOON, as_nobody, ask, on_both_drivers, wait_until};

/// Serves sites of a configuration without privileges.
fn serve(dir: &Path, driver: &str, site: &str) -> Server {
    let config = dir.join("samum.toml");
    let control = dir.join("control.sock");
    let text = format!(
        "[server]\nthreads = 1\ndriver = \"{driver}\"\ncontrol = \"{}\"\n[[site]]\nlisten = [\"127.0.0.1:0\"]\n\
         log = {{ file = \"{}\", format = \"json\" }}\n{site}",
        control.display(),
        dir.join("log").display(),
    );
    fs::write(&config, text).unwrap();
    let mut command = Command::new(SAMUM);
    command.arg("serve").arg("--config").arg(&config);
    Server::spawn(as_nobody(&mut command)).unwrap()
}

/// The reason in the line of the access log for a path, once there is a line.
#[track_caller]
fn reason_of(dir: &Path, path: &str) -> Option<String> {
    let (mut line, name) = (None, format!("\"path\":\"{path}\""));
    let is_logged = wait_until(SOON, || {
        let log = fs::read_to_string(dir.join("log")).unwrap();
        line = log.lines().find(|line| line.contains(&name)).map(str::to_owned);
        line.is_some()
    });
    assert!(is_logged, "no line for {path}");
    let line = line.unwrap();
    let (_, rest) = line.split_once(",\"reason\":\"")?;
    let end = rest.find("\"}").or_else(|| rest.find("\",\"cut\"")).expect("it is near the end");
    Some(rest[..end].replace("\\\"", "\""))
}

/// A directory of the user that serves. Where the tests do not run as root, it is that user's already.
fn of_nobody(tree: Tree) -> Tree {
    const NOBODY: u32 = 65_534;
    drop(chown(tree.path(), Some(NOBODY), Some(NOBODY)));
    tree
}

#[test]
fn an_error_has_its_reason_in_the_log_and_on_standard_error_and_a_client_sees_nothing_of_it() {
    on_both_drivers(|driver| {
        let dir = of_nobody(Tree::new());
        let files = Tree::new()
            .file("index.html", "hello")
            .file("secret", "s3cret")
            .file("closed/a", "a")
            .file("a", "a")
            .directory("empty")
            .symlink("out", "/etc/passwd")
            .symlink("circle", "circle");
        fs::set_permissions(files.path(), Permissions::from_mode(0o755)).unwrap();
        let set_mode = |name: &str, mode| {
            fs::set_permissions(files.path().join(name), Permissions::from_mode(mode)).unwrap();
        };
        set_mode("secret", 0o600);
        set_mode("closed", 0o700);
        crate::common::make_fifo(&files.path().join("fifo"));
        let root = files.path().display();
        let site = format!(
            "[[site.route]]\nfiles = \"{root}\"\n[[site.route]]\npath = \"/never/\"\nfiles = \"{root}\"\n\
             symlinks = \"never\"\n[[site.route]]\npath = \"/private/\"\nfiles = \"{root}\"\nallow = [\"192.0.2.1\"]\n\
             [[site.route]]\npath = \"/gone/\"\nstatus = 410\n\
             [[site.route]]\npath = \"/down/\"\nproxy = \"http://127.0.0.1:1\"\n"
        );
        let server = serve(dir.path(), driver, &site);
        let denied =
            format!("cannot open {root}/secret: permission denied (mode 0600, owner root)");
        let unsearchable = format!(
            "cannot open {root}/closed/a: permission denied (a directory on the way may not be searched)"
        );
        let down =
            "http://127.0.0.1:1: cannot connect: no program listens there (connection refused)";
        let no_index = "no index in the directory (listing = false), or no such directory";
        let leaves = "leaves the directory by a symbolic link (symlinks = \"beneath\")";
        let cases = [
            ("/a", 200, None, false),
            ("/secret", 403, Some(&denied[..]), true),
            ("/closed/a", 403, Some(&unsearchable), true),
            ("/out", 404, Some(leaves), true),
            ("/out/", 404, Some(leaves), true),
            ("/circle", 404, Some("symbolic links lead in a circle"), true),
            ("/missing", 404, Some("no such file"), true),
            ("/a/b", 404, Some("a name on the way is one of a file"), true),
            ("/empty/", 404, Some(no_index), true),
            ("/fifo", 404, Some("neither a regular file nor a directory"), true),
            ("/.git", 404, Some("a name begins with a dot (dotfiles = false)"), true),
            ("/never/out", 404, Some("leads through a symbolic link (symlinks = \"never\")"), true),
            ("/private/a", 403, Some("`allow` and `deny` do not permit this client"), true),
            ("/gone/", 410, Some("the route has this status"), false),
            ("/down/", 502, Some(down), false),
        ];
        for (path, status, reason, has_line) in cases {
            let response = ask(&server, &format!("GET {path}"));
            assert_eq!(response.status, status, "{path}");
            let head = format!("{:?}", response.headers);
            let body = String::from_utf8_lossy(&response.body).into_owned();
            for text in
                [&root.to_string()[..], "symlinks", "permission denied", "os error", "dotfiles"]
            {
                assert!(!head.contains(text) && !body.contains(text), "{path}: {head} {body}");
            }
            assert_eq!(reason_of(dir.path(), path).as_deref(), reason, "{path}");
            if has_line {
                let line = format!("{status} for GET test{path}: {}", reason.unwrap());
                let found = server.wait_for_stderr(&line, SOON);
                assert!(found.is_some(), "{line}: {:?}", server.stderr());
            }
        }
        // An upstream's fault has its own line, and no second one.
        let about = |line: &&String| line.contains("127.0.0.1:1");
        assert_eq!(server.stderr().iter().filter(about).count(), 1, "{:?}", server.stderr());
    });
}

#[test]
fn a_flood_of_missing_files_has_few_lines_and_keeps_no_other_line_out() {
    on_both_drivers(|driver| {
        let dir = of_nobody(Tree::new());
        let files = Tree::new().file("a", "a");
        fs::set_permissions(files.path(), Permissions::from_mode(0o755)).unwrap();
        let site = format!(
            "[[site.route]]\nfiles = \"{}\"\n[[site.route]]\npath = \"/private/\"\nfiles = \"/srv\"\n\
             allow = [\"192.0.2.1\"]\n",
            files.path().display()
        );
        let site = site.replace("/srv", &files.path().display().to_string());
        let server = serve(dir.path(), driver, &site);
        let mut client = crate::common::connect(&server);
        for number in 0..300 {
            let response = crate::common::ask_on(&mut client, &format!("GET /missing-{number}"));
            assert_eq!(response.status, 404);
        }
        let response = crate::common::ask_on(&mut client, "GET /private/a");
        assert_eq!(response.status, 403);
        let line = "403 for GET test/private/a: `allow`";
        assert!(server.wait_for_stderr(line, SOON).is_some(), "{:?}", server.stderr());
        let lines = server.stderr().iter().filter(|line| line.contains("no such file")).count();
        // Ten without a pause, and one a second while the machine is slow.
        assert!((10..100).contains(&lines), "{lines}");
        let wait = || {
            crate::common::ask_on(&mut client, "GET /missing");
            server
                .stderr()
                .iter()
                .any(|line| line.contains("lines about responses with 404 were dropped"))
        };
        assert!(wait_until(SOON, wait), "{:?}", server.stderr());
    });
}

#[test]
fn what_clients_send_cannot_forge_a_line_about_a_reason() {
    on_both_drivers(|driver| {
        let dir = of_nobody(Tree::new());
        let files = Tree::new().file("a", "a");
        fs::set_permissions(files.path(), Permissions::from_mode(0o755)).unwrap();
        let site = format!("[[site.route]]\nfiles = \"{}\"\n", files.path().display());
        let server = serve(dir.path(), driver, &site);
        let response = ask(&server, "GET /%0asamum:%20forged%1b[2J\"<script>");
        assert_eq!(response.status, 404);
        let body = String::from_utf8_lossy(&response.body).into_owned();
        assert!(!body.contains("<script>") && !body.contains("forged"), "{body}");
        let line = "404 for GET test/%0asamum:%20forged%1b[2J\"<script>: no such file";
        assert!(server.wait_for_stderr(line, SOON).is_some(), "{:?}", server.stderr());
        // A byte that is no character, and a character that turns the text after it.
        let mut client = crate::common::connect(&server);
        client.send(b"GET /\xff\xe2\x80\xae HTTP/1.1\r\nHost: test\r\n\r\n").unwrap();
        assert_eq!(client.response().unwrap().status, 404);
        let line = "404 for GET test/%FF%E2%80%AE: no such file";
        assert!(server.wait_for_stderr(line, SOON).is_some(), "{:?}", server.stderr());
        assert!(server.stderr().iter().all(|line| !line.contains('\x1b')));
    });
}
