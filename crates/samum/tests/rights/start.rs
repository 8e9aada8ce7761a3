//! The start: the user, the rights that are left, and the errors.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::process::Command;

use rustix::io::Errno;
use testkit::{Signal, forbid_landlock, or_skip};

use super::{NOBODY, Place, WWW, page, statuses};
use crate::common::{SAMUM, SOON, as_nobody, on_both_drivers, text, wait_until};

const USER: &str = "user = 'nobody'";

#[test]
fn each_thread_has_the_user_and_no_right_but_that_to_low_ports() {
    on_both_drivers(|driver| {
        let place = or_skip!(Place::new());
        place.script("a", "echo text");
        let routes =
            WWW.to_owned() + "[[site.route]]\npath = '/tool/'\ncgi = 'ROOT/cgi/programs'\n";
        let server = place.serve(driver, USER, &routes);
        assert_eq!(page(&server, "/a", 200), "a file");
        assert_eq!(page(&server, "/tool/a", 200), "text\n");
        let low_ports = format!("{:016x}", 1 << 10);
        let expected = [
            format!("Uid: {NOBODY} {NOBODY} {NOBODY} {NOBODY}"),
            format!("Gid: {NOBODY} {NOBODY} {NOBODY} {NOBODY}"),
            "Groups:".to_owned(),
            format!("CapInh: {:016x}", 0),
            format!("CapPrm: {low_ports}"),
            format!("CapEff: {low_ports}"),
            format!("CapBnd: {low_ports}"),
            format!("CapAmb: {:016x}", 0),
            "NoNewPrivs: 1".to_owned(),
        ];
        let words = ["Uid:", "Gid:", "Groups:", "Cap", "NoNewPrivs:"];
        let threads = statuses(&server, &words);
        assert!(threads.len() > 4, "workers and others: {threads:?}");
        threads.iter().for_each(|found| assert_eq!(found, &expected));
        let said = server.wait_for_stderr("running as the user nobody", SOON);
        assert!(said.is_some(), "{:?}", server.stderr());
        for name in ["log/access", "run/control"] {
            assert_eq!(fs::metadata(place.path(name)).unwrap().uid(), NOBODY, "{name}");
        }
    });
}

#[test]
fn a_reload_opens_a_low_port_and_logs_are_opened_again() {
    on_both_drivers(|driver| {
        let place = or_skip!(Place::new());
        let mut server = place.serve(driver, USER, WWW);
        let more = "\n[[site]]\nlisten = ['127.77.66.55:681']\n[[site.route]]\nfiles = 'ROOT/site/other'\n";
        place.write(driver, USER, &(WWW.to_owned() + more));
        let (is_loaded, said) = place.reload();
        assert!(is_loaded, "{said}");
        let low = testkit::Address::Tcp("127.77.66.55:681".parse().unwrap());
        assert_eq!(testkit::get(&low, "/a").unwrap().body, b"another file");
        fs::rename(place.path("log/access"), place.path("log/access.1")).unwrap();
        server.signal(Signal::USR1).unwrap();
        assert!(server.wait_for_stderr("reopened", SOON).is_some(), "{:?}", server.stderr());
        page(&server, "/a", 200);
        let has_line =
            || fs::read_to_string(place.path("log/access")).is_ok_and(|log| log.contains("GET /a"));
        assert!(wait_until(SOON, has_line));
        // Whether root could do it is another matter: the name of the socket is in the user's directory.
        assert!(server.terminate().unwrap().success(), "{:?}", server.stderr());
        assert!(!place.path("run/control").exists());
    });
}

#[test]
fn a_unix_socket_without_an_owner_belongs_to_the_user() {
    let place = or_skip!(Place::new());
    let more = "\n[[site]]\nlisten = [{ unix = 'ROOT/etc/sock', mode = '600' }]\n[[site.route]]\nfiles = 'ROOT/site/www'\n";
    let server = place.serve("auto", USER, &(WWW.to_owned() + more));
    let found = fs::metadata(place.path("etc/sock")).unwrap();
    assert_eq!((found.uid(), found.gid(), found.mode() & 0o777), (NOBODY, NOBODY, 0o600));
    // The directory is root's.
    let said = server.wait_for_stderr("stays when the server ends", SOON);
    assert!(said.is_some(), "{:?}", server.stderr());
}

/// The exit code and the messages of a server that does not start.
#[track_caller]
fn refusal(command: &mut Command) -> String {
    let output = command.output().expect("it starts");
    let shown = text_of(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{shown}");
    shown
}

fn text_of(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn what_the_user_cannot_open_is_an_error_with_its_remedy() {
    let place = or_skip!(Place::new());
    let for_root = |name: &str| {
        fs::set_permissions(place.path(name), fs::Permissions::from_mode(0o700)).unwrap();
        chown(place.path(name), Some(0), Some(0)).unwrap();
    };
    let for_all = |name: &str| {
        fs::set_permissions(place.path(name), fs::Permissions::from_mode(0o755)).unwrap();
        chown(place.path(name), Some(NOBODY), Some(NOBODY)).unwrap();
    };
    let redirects =
        WWW.to_owned() + "[[site.route]]\npath = '/old/'\nredirects = 'ROOT/extra/text'\n";
    place.tree.write("extra/text", "/old/a /a\n");
    let routes = [WWW, WWW, WWW, &redirects];
    for ((name, why), routes) in [
        ("site/www", "this user must be able to read and enter it"),
        ("log", "the user of the server must be able to write to it"),
        ("etc/samum.toml", "`setfacl -m u:nobody:r"),
        ("extra/text", "cannot read"),
    ]
    .into_iter()
    .zip(routes)
    {
        place.write("auto", USER, routes);
        assert_eq!(checked(&place), (Some(0), String::new()), "{name}");
        for_root(name);
        let said = refusal(&mut place.command());
        assert!(said.contains("permission denied") && said.contains(why), "{name}: {said}");
        assert!(said.contains(text(&place.path(name))), "{name}: {said}");
        assert_foretold(&place, &said, text(&place.path(name)));
        for_all(name);
    }

    let key = "[[site.route]]\nfiles = 'ROOT/site/www'\n\n[[site]]\n\
               listen = [{ address = '127.0.0.2:0', tls = true }]\nhosts = ['a.example']\n\
               tls = { certificate = 'ROOT/extra/a.pem', key = 'ROOT/extra/a.key' }\n\
               [[site.route]]\nfiles = 'ROOT/site/www'\n";
    crate::tls::Authority::new().issue(&["a.example"]).put(&place.tree, "extra/a");
    place.write("auto", USER, key);
    for_all("extra/a.pem");
    for_root("extra/a.key");
    let said = refusal(&mut place.command());
    for expected in ["extra/a.key", "permission denied", "by its group", "setfacl", "deploy hook"] {
        assert!(said.contains(expected), "{expected}: {said}");
    }
    assert_foretold(&place, &said, "extra/a.key");
}

/// A daemon of the system's log that does not run is named by the check and by the start.
#[test]
fn a_socket_of_a_log_that_is_missing_or_closed_to_the_user_is_an_error_of_the_check() {
    let place = or_skip!(Place::new());
    let path = place.path("log/daemon");
    for target in ["syslog", "journald"] {
        let to = if target == "syslog" { "unix:ROOT/log/daemon" } else { "ROOT/log/daemon" };
        let routes = format!("{WWW}log = {{ {target} = '{to}' }}\n");
        place.write("auto", USER, &routes);
        let said = refusal(&mut place.command());
        assert!(said.contains(&format!("cannot log to {}: ", text(&path))), "{said}");
        assert!(said.contains("(a daemon must listen there)"), "{said}");
        assert_foretold(&place, &said, "cannot log to");

        let _daemon = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        assert_eq!(checked(&place), (Some(0), String::new()), "{target}");
        // Root could write to it.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        let said = refusal(&mut place.command());
        assert!(said.contains("permission denied"), "{said}");
        assert_foretold(&place, &said, "cannot log to");
        fs::remove_file(&path).unwrap();
    }
}

/// The exit code and the messages of a check.
fn checked(place: &Place) -> (Option<i32>, String) {
    let mut check = Command::new(SAMUM);
    let output = check.args(["check", "--quiet"]).arg(place.path("etc/samum.toml")).output();
    let output = output.expect("it starts");
    (output.status.code(), text_of(&output.stderr))
}

/// Expects that a check has an error in the same words as a start, which has said `said`.
#[track_caller]
fn assert_foretold(place: &Place, said: &str, part: &str) {
    let (code, shown) = checked(place);
    let words = |text: &str| {
        let line = text.lines().find(|line| line.contains(part) && line.contains("cannot "));
        let line = line.unwrap_or_else(|| panic!("{part}: {text}"));
        let line = &line[line.find("cannot ").expect("it has been found")..];
        // Only the server is confined.
        line.replace(", and `confine` must have allowed it at the start", "")
    };
    assert_eq!((code, words(&shown)), (Some(1), words(said)));
}

#[test]
fn a_user_that_does_not_exist_or_cannot_be_become_is_an_error() {
    let place = or_skip!(Place::new());
    place.write("auto", "user = 'no-such-user'", WWW);
    let said = refusal(&mut place.command());
    assert!(said.contains("there is no user no-such-user in /etc/passwd"), "{said}");
    let mut check = Command::new(SAMUM);
    let said = refusal(check.arg("check").arg(place.path("etc/samum.toml")));
    assert!(said.contains("samum.toml:5:"), "{said}");
    assert!(said.contains("there is no user no-such-user"), "{said}");

    place.write("auto", "user = 'root'", WWW);
    let said = refusal(as_nobody(&mut place.command()));
    assert!(said.contains("cannot become the user root: only root can"), "{said}");

    // The user that it has already needs no right to be become.
    place.write("auto", USER, WWW);
    let mut command = place.command();
    let server = testkit::Server::spawn(as_nobody(&mut command)).expect("the server starts");
    assert_eq!(page(&server, "/a", 200), "a file");
    assert!(server.wait_for_stderr("confined by Landlock", SOON).is_some());
}

#[test]
fn what_a_confined_server_must_find_at_its_start_is_warned_of() {
    let place = or_skip!(Place::new());
    let routes = "[[site.route]]\nfiles = 'ROOT/site/www'\nsymlinks = { follow = ['ROOT/later'] }\n\
                  [[site.route]]\npath = '/tool/'\ncgi = { directory = 'ROOT/cgi/programs', read = ['ROOT/none'] }\n";
    let server = place.serve("auto", USER, routes);
    for name in ["later", "none"] {
        let is_it = |line: &String| {
            line.contains(text(&place.path(name))) && line.contains("must find it when it starts")
        };
        assert!(server.stderr().iter().any(is_it), "{name}: {:?}", server.stderr());
    }
}

#[test]
fn without_landlock_a_server_says_what_is_missing_and_does_not_start_if_it_is_required() {
    for error in [Errno::NOSYS, Errno::PERM] {
        let place = or_skip!(Place::new());
        place.write("auto", "user = 'nobody'\nconfine = 'required'", WWW);
        let said = refusal(forbid_landlock(&mut place.command(), error));
        let why =
            "cannot be confined as `confine = \"required\"` demands: this kernel has no Landlock";
        assert!(said.contains(why), "{error}: {said}");

        place.write("auto", USER, WWW);
        let mut command = place.command();
        let server = testkit::Server::spawn(forbid_landlock(&mut command, error)).expect("a start");
        let why = "the server is not wholly confined: this kernel has no Landlock";
        assert!(server.wait_for_stderr(why, SOON).is_some(), "{error}: {:?}", server.stderr());
        assert_eq!(page(&server, "/a", 200), "a file");
    }
}

#[test]
fn a_start_as_root_without_a_user_says_how_to_do_better() {
    let place = or_skip!(Place::new());
    let server = place.serve("auto", "", WWW);
    let said = server.wait_for_stderr("running as root", SOON).expect("a warning");
    assert!(said.contains("`user = \"samum\"` in [server]"), "{said}");
    assert!(!server.stderr().iter().any(|line| line.contains("confined by")));
}
