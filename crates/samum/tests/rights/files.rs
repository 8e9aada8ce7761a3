//! The files that a confined server can use, and those that it cannot: each test shows that the same server without
//! confinement can.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};

use testkit::{Server, or_skip};

use super::{NOBODY, Place, WWW, page, point};
use crate::common::{SOON, ask, connect, on_both_drivers, request, wait_until};
use crate::fastcgi::application::{Act, application, end, output};

const CONFINED: &str = "user = 'nobody'\nconfine = 'required'";
const FREE: &str = "user = 'nobody'\nconfine = 'off'";

/// The status and the body of a response.
fn outcome(server: &Server, path: &str) -> (u16, String) {
    let response = ask(server, &format!("GET {path}"));
    (response.status, String::from_utf8_lossy(&response.body).into_owned())
}

#[test]
fn a_link_leads_to_no_file_outside_of_what_is_allowed() {
    on_both_drivers(|driver| {
        let place = or_skip!(Place::new());
        let link =
            |target: &str, name: &str| symlink(place.path(target), place.path(name)).unwrap();
        link("outside/secret", "site/www/file");
        link("outside", "site/www/directory");
        link("site/other", "site/www/beside");
        let routes = WWW.to_owned() + "symlinks = 'follow'\nlisting = true\n";
        let server = place.serve(driver, FREE, &routes);
        for path in ["/file", "/directory/secret"] {
            assert_eq!(outcome(&server, path), (200, "secret".to_owned()), "{path}");
        }
        assert_eq!(outcome(&server, "/directory/").0, 200);
        drop(server);
        let server = place.serve(driver, CONFINED, &routes);
        for path in ["/file", "/directory/secret", "/directory/"] {
            let (status, body) = outcome(&server, path);
            assert!(matches!(status, 403 | 404), "{path}: {status} {body}");
            assert!(!body.contains("secret"), "{path}: {body}");
        }
        assert_eq!(page(&server, "/a", 200), "a file");
        assert_eq!(page(&server, "/beside/a", 200), "another file", "it is around the root");
        drop(server);
        let named = WWW.to_owned() + "symlinks = { follow = ['ROOT/outside'] }\n";
        let server = place.serve(driver, CONFINED, &named);
        assert_eq!(page(&server, "/file", 200), "secret", "it is named");
    });
}

#[test]
fn an_application_hands_over_no_file_outside_of_what_is_allowed() {
    on_both_drivers(|driver| {
        let place = or_skip!(Place::new());
        symlink(place.path("outside/secret"), place.path("site/www/link")).unwrap();
        let routes = "[[site.route]]\npath = '/app/'\nfastcgi = { server = 'unix:ROOT/run/app', root = '/app' }\nbuffer = '4m'\nbuffer-dir = 'ROOT/buffers'\n\
                      [[site.route]]\npath = '/inner/'\nfiles = 'ROOT/site/www'\ninternal = true\nsymlinks = 'follow'\n";
        for (keys, status) in [(FREE, 200), (CONFINED, 403)] {
            let root = place.tree.path().display();
            let hand_over = |file: &str| {
                let head = format!("X-Sendfile: {root}/site/www/{file}\r\n\r\n");
                Act::Close([output(&head), end(0)].concat())
            };
            let socket = place.path("run/app");
            let _ = fs::remove_file(&socket);
            let _seen = application(&socket, vec![hand_over("a"), hand_over("link")]);
            fs::set_permissions(&socket, fs::Permissions::from_mode(0o777)).unwrap();
            let server = place.serve(driver, keys, routes);
            assert_eq!(page(&server, "/app/", 200), "a file");
            let (found, body) = outcome(&server, "/app/");
            let is_refused = status == 403 && matches!(found, 403 | 404 | 502);
            assert!(found == status || is_refused, "{keys}: {found} {body}");
            assert_eq!(body == "secret", status == 200, "{keys}: {body}");
        }
    });
}

#[test]
fn a_program_has_its_own_directory_and_what_the_configuration_says() {
    on_both_drivers(|driver| {
        let place = or_skip!(Place::new());
        place.script(
            "tell",
            "try() { if eval \"$2\" >/dev/null 2>&1; then echo \"$1: yes\"; else echo \"$1: no\"; fi; }\n\
             try outside 'cat ROOT/outside/secret'\n\
             try site 'cat ROOT/site/www/a'\n\
             try passwd 'cat /etc/passwd'\n\
             try extra 'cat ROOT/extra/text'\n\
             try write 'echo text >ROOT/state/book && cat ROOT/state/book && rm ROOT/state/book'\n\
             try directory 'mkdir ROOT/state/a && mv ROOT/state/a ROOT/state/b && rmdir ROOT/state/b'\n\
             try execute 'cp /bin/true ROOT/state/true && ROOT/state/true'\n\
             try own 'cat ./tell'\n\
             try change 'echo text >./new'\n\
             try process 'cat /proc/$PPID/status'\n\
             try signal 'kill -0 $PPID'\n\
             try null 'exec 3<>/dev/null'",
        );
        let routes = |more: &str| {
            WWW.to_owned()
                + "[[site.route]]\npath = '/tool/'\nbuffer-dir = 'ROOT/buffers'\n"
                + &format!("cgi = {{ directory = 'ROOT/cgi/programs'{more} }}\n")
        };
        let told = |keys, more| {
            let server = place.serve(driver, keys, &routes(more));
            let text = page(&server, "/tool/tell", 200);
            let _ = fs::remove_file(place.path("cgi/programs/new"));
            let _ = fs::remove_file(place.path("state/true"));
            let words = text.lines().filter_map(|line| line.strip_suffix(": yes"));
            words.map(str::to_owned).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(
            told(FREE, ""),
            "outside site passwd extra write directory execute own change process signal null"
        );
        assert_eq!(told(CONFINED, ""), "own null");
        let more = ", read = ['ROOT/extra'], write = ['ROOT/state']";
        assert_eq!(told(CONFINED, more), "extra write directory own null");
        let both = ", read = ['ROOT/state', '/etc/passwd'], write = ['ROOT/state']";
        assert_eq!(told(CONFINED, both), "passwd write directory execute own null");
    });
}

/// Programs are started, found among all processes and ended as without confinement.
#[test]
fn a_program_of_a_confined_server_is_ended_with_all_its_processes() {
    on_both_drivers(|driver| {
        let place = or_skip!(Place::new());
        place.script("slow", "setsid sleep 600 & echo $! >ROOT/state/pid; sleep 600");
        let routes = WWW.to_owned()
            + "[[site.route]]\npath = '/tool/'\nbuffer-dir = 'ROOT/buffers'\n"
            + "cgi = { directory = 'ROOT/cgi/programs', timeout = 0.3, write = ['ROOT/state'] }\n";
        let server = place.serve(driver, CONFINED, &routes);
        let mut client = connect(&server);
        client.send(request("GET /tool/slow")).unwrap();
        let pid = || fs::read_to_string(place.path("state/pid")).unwrap_or_default();
        assert!(wait_until(SOON, || pid().ends_with('\n')), "{:?}", server.stderr());
        let process = format!("/proc/{}", pid().trim());
        assert!(wait_until(SOON, || !fs::exists(&process).unwrap()), "{:?}", server.stderr());
    });
}

#[test]
fn a_route_on_the_root_directory_reads_what_the_user_may_read() {
    on_both_drivers(|driver| {
        let place = or_skip!(Place::new());
        let server = place.serve(driver, CONFINED, "[[site.route]]\nfiles = '/'\n");
        assert_eq!(outcome(&server, "/etc/shadow").0, 403);
        assert_eq!(outcome(&server, "/etc/passwd").0, 200);
        let said = server.wait_for_stderr("the root directory is served", SOON);
        assert!(said.is_some(), "{:?}", server.stderr());
    });
}

#[test]
fn deploys_are_seen() {
    on_both_drivers(|driver| {
        let place = or_skip!(Place::new());
        for release in ["1", "2", "3"] {
            place.tree.write(format!("site/releases/{release}/public/a"), release);
        }
        symlink("releases/1", place.path("site/current")).unwrap();
        symlink(place.path("site/current/public"), place.path("extra/live")).unwrap();
        let routes = "[[site.route]]\nfiles = 'ROOT/extra/live'\n\
                      [[site.route]]\npath = '/plain/'\nfiles = 'ROOT/site/www'\n";
        let server = place.serve(driver, CONFINED, routes);
        assert_eq!(page(&server, "/a", 200), "1");
        let is = |path: &str, text: &str| {
            let is_so = wait_until(SOON, || outcome(&server, path) == (200, text.to_owned()));
            assert!(is_so, "{path}: {:?}, {:?}", outcome(&server, path), server.stderr());
        };
        // A link in the middle of the path.
        point(&place.path("site/current"), "releases/2");
        is("/a", "2");
        // A release that did not exist when the server started.
        place.tree.write("site/releases/4/public/a", "4");
        point(&place.path("site/current"), "releases/4");
        is("/a", "4");
        // The link that the configuration names.
        point(&place.path("extra/live"), "../site/releases/3/public");
        is("/a", "3");
        // A directory in the place of another.
        fs::rename(place.path("site/www"), place.path("site/old")).unwrap();
        place.tree.write("site/www/a", "new");
        is("/plain/a", "new");
        // A deploy that leads out of what is allowed.
        place.tree.write("outside/a", "out");
        point(&place.path("extra/live"), "../outside");
        let said = server.wait_for_stderr("can no longer serve", SOON);
        assert!(
            said.is_some_and(|line| line.contains("`confine` must have allowed it")),
            "{:?}",
            server.stderr()
        );
        assert!(wait_until(SOON, || outcome(&server, "/a").0 == 503));
    });
}

#[test]
fn a_reload_may_use_what_the_start_allowed() {
    on_both_drivers(|driver| {
        let place = or_skip!(Place::new());
        let server = place.serve(driver, CONFINED, WWW);
        place.write(driver, CONFINED, "[[site.route]]\nfiles = 'ROOT/site/other'\n");
        let (is_loaded, said) = place.reload();
        assert!(is_loaded, "{said}");
        assert_eq!(page(&server, "/a", 200), "another file");
        for (routes, path) in [
            ("[[site.route]]\nfiles = 'ROOT/outside'\n".to_owned(), "outside"),
            (format!("log = {{ file = 'ROOT/outside/log' }}\n{WWW}"), "outside/log"),
        ] {
            let routes =
                format!("{WWW}\n[[site]]\nhosts = ['b']\nlisten = ['127.0.0.1:0']\n{routes}");
            place.write(driver, CONFINED, &routes);
            let (is_loaded, said) = place.reload();
            assert!(!is_loaded, "{said}");
            let path = place.path(path);
            for expected in
                [path.to_str().unwrap(), "(`confine`): restart the server", "samum.toml:"]
            {
                assert!(said.contains(expected), "{expected}: {said}");
            }
            assert_eq!(page(&server, "/a", 200), "another file");
        }
        let other = format!("{CONFINED}\n").replace("required", "off");
        place.write(driver, &other, WWW);
        let (is_loaded, said) = place.reload();
        assert!(is_loaded && said.contains("`confine`: takes effect after a restart"), "{said}");
    });
}

/// The names that certbot uses: links from a directory of live certificates to an archive.
#[test]
fn renewed_certificates_are_read() {
    let place = or_skip!(Place::new());
    let authority = crate::tls::Authority::new();
    let [first, second] = [(); 2].map(|()| authority.issue(&["a.example"]));
    for (number, issued) in [("1", &first), ("2", &second)] {
        issued.put(&place.tree, &format!("tls/archive/a{number}"));
        for end in ["pem", "key"] {
            let file = place.path(&format!("tls/archive/a{number}.{end}"));
            chown(file, Some(NOBODY), Some(NOBODY)).unwrap();
        }
    }
    fs::create_dir(place.path("tls/live")).unwrap();
    let renew = |number: &str| {
        for end in ["key", "pem"] {
            point(
                &place.path(&format!("tls/live/a.{end}")),
                &format!("../archive/a{number}.{end}"),
            );
        }
    };
    renew("1");
    let site = "[[site]]\nlisten = [{ address = '127.0.0.2:0', tls = true }]\nhosts = ['a.example']\n\
                tls = { certificate = 'ROOT/tls/live/a.pem', key = 'ROOT/tls/live/a.key' }\n\
                [[site.route]]\nfiles = 'ROOT/site/www'\n";
    let server = place.serve("auto", CONFINED, &format!("{WWW}\n{site}"));
    let line = server.wait_for_stderr("listening on https://", SOON).expect("a listener");
    let address = line.split("https://").nth(1).unwrap().trim_end_matches('/').parse().unwrap();
    assert_eq!(authority.seen(address, "a.example"), first.der);
    renew("2");
    let is_new = || authority.seen(address, "a.example") == second.der;
    assert!(wait_until(2 * SOON, is_new), "{:?}", server.stderr());
}

#[test]
fn names_of_servers_are_looked_up() {
    let place = or_skip!(Place::new());
    let origin = place.serve("auto", "", WWW);
    let port = crate::common::tcp_address(&origin).port();
    let inner = or_skip!(Place::new());
    let routes = format!("[[site.route]]\nproxy = 'http://localhost:{port}'\n");
    let server = inner.serve("auto", CONFINED, &routes);
    assert_eq!(page(&server, "/a", 200), "a file", "{:?}", server.stderr());
}
