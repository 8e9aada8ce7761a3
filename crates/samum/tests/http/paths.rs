//! From the path of a URL to a file beneath the root, and never to anything else.

use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::net::UnixListener;
use std::process::Command;
use std::thread;
use std::time::Instant;

use testkit::{Server, Tree, skip};

use crate::common::{
    as_nobody, ask, ask_on, connect, make_fifo, on_both_drivers, run, serve, text,
};

#[test]
fn paths_are_decoded_once_and_normalized() {
    on_both_drivers(|driver| {
        let tree = Tree::new()
            .file("a b.txt", "space")
            .file("100%.txt", "percent")
            .file("%41.txt", "encoded")
            .file("A.txt", "letter")
            .file("grün/ä.txt", "umlaut")
            .file("back\\slash", "backslash")
            .file("d/e.txt", "below")
            .file(".hidden", "hidden")
            .file("...", "dots")
            .file("q?x#y&\"'<>", "signs");
        let server = serve(driver, tree.path(), &[]);
        for (path, expected) in [
            ("/a%20b.txt", Ok("space")),
            ("/a%20b%2Etxt", Ok("space")),
            ("/100%25.txt", Ok("percent")),
            ("/%41.txt", Ok("letter")),
            ("/%2541.txt", Ok("encoded")),
            ("/%252541.txt", Err(404)),
            ("/gr%C3%BCn/%c3%a4.txt", Ok("umlaut")),
            ("/back%5Cslash", Ok("backslash")),
            ("/back\\slash", Ok("backslash")),
            ("/d/e.txt", Ok("below")),
            ("/d//e.txt", Ok("below")),
            ("//d/e.txt", Ok("below")),
            ("/./d/./e.txt", Ok("below")),
            ("/d/../d/e.txt", Ok("below")),
            ("/d/x/%2e%2E/e.txt", Ok("below")),
            ("/d/e.txt?query=/../..", Ok("below")),
            ("/.hidden", Ok("hidden")),
            ("/...", Ok("dots")),
            ("/q%3Fx%23y%26%22'%3C%3E", Ok("signs")),
            ("/..", Err(400)),
            ("/../etc/passwd", Err(400)),
            ("/%2e%2e/etc/passwd", Err(400)),
            ("/d/../../etc/passwd", Err(400)),
            ("/d%2Fe.txt", Err(404)),
            ("/..%2Fetc%2Fpasswd", Err(404)),
            ("/..%5C..%5Cetc", Err(404)),
            ("/%252e%252e/etc/passwd", Err(404)),
            ("/a%00b", Err(400)),
            ("/d/e.txt%00.html", Err(400)),
            ("/%", Err(400)),
            ("/%4", Err(400)),
            ("/%zz", Err(400)),
            ("/d/e.txt/", Err(404)),
            ("/d/e.txt/x", Err(404)),
            ("/d/e.txt/..", Err(404)),
        ] {
            let response = ask(&server, &format!("GET {path}"));
            match expected {
                Ok(body) => assert_eq!(
                    (response.status, &response.body[..]),
                    (200, body.as_bytes()),
                    "{path}"
                ),
                Err(status) => assert_eq!(response.status, status, "{path}"),
            }
        }
    });
}

#[test]
fn names_that_cannot_be_are_not_found_or_too_long() {
    on_both_drivers(|driver| {
        let tree = Tree::new().file("x", "x");
        let server = serve(driver, tree.path(), &[]);
        let name = "n".repeat(255);
        tree.write(&name, "long");
        assert_eq!(ask(&server, &format!("GET /{name}")).body, b"long");
        assert_eq!(ask(&server, &format!("GET /{name}n")).status, 404, "a name of 256");
        let deep = "/d".repeat(2100);
        assert_eq!(ask(&server, &format!("GET {deep}")).status, 414, "4,200 bytes");
        for (depth, status) in [(127, 404), (128, 404), (129, 414), (2000, 414)] {
            let deep = "/d".repeat(depth);
            assert_eq!(ask(&server, &format!("GET {deep}")).status, status, "{depth} names");
        }
        let deepest = format!("{}f", "d/".repeat(127));
        tree.write(&deepest, "deep");
        assert_eq!(ask(&server, &format!("GET /{deepest}")).body, b"deep");
    });
}

#[test]
fn links_lead_anywhere_inside_and_nowhere_outside() {
    on_both_drivers(|driver| {
        let outside = Tree::new().file("secret.txt", "secret").file("dir/secret.txt", "secret");
        let tree = Tree::new()
            .file("a.txt", "inside")
            .file("d/b.txt", "below")
            .symlink("relative.txt", "a.txt")
            .symlink("d/up.txt", "../a.txt")
            .symlink("e", "d")
            .symlink("chain.txt", "relative.txt")
            .symlink("absolute.txt", "/etc/passwd")
            .symlink("absolute-inside.txt", "x")
            .symlink("parent", "..")
            .symlink("climb", "../../../../../../etc/passwd")
            .symlink("loop", "loop")
            .symlink("loop-a", "loop-b")
            .symlink("loop-b", "loop-a")
            .symlink("dangling", "nothing")
            .symlink("proc", "/proc/self/root/etc/passwd");
        let name = outside.path().file_name().unwrap();
        symlink(outside.path(), tree.path().join("out")).unwrap();
        symlink(std::path::Path::new("..").join(name), tree.path().join("sibling")).unwrap();
        fs::remove_file(tree.path().join("absolute-inside.txt")).unwrap();
        symlink(tree.path().join("a.txt"), tree.path().join("absolute-inside.txt")).unwrap();
        let server = serve(driver, tree.path(), &["--listing"]);
        for (path, body) in [
            ("/relative.txt", "inside"),
            ("/d/up.txt", "inside"),
            ("/chain.txt", "inside"),
            ("/e/b.txt", "below"),
            ("/e/up.txt", "inside"),
        ] {
            let response = ask(&server, &format!("GET {path}"));
            assert_eq!((response.status, &response.body[..]), (200, body.as_bytes()), "{path}");
        }
        for path in [
            "/absolute.txt",
            "/absolute-inside.txt",
            "/parent",
            "/parent/",
            "/climb",
            "/loop",
            "/loop/",
            "/loop/x",
            "/loop-a",
            "/dangling",
            "/proc",
            "/out",
            "/out/",
            "/out/secret.txt",
            "/out/dir/secret.txt",
            "/sibling/secret.txt",
        ] {
            let response = ask(&server, &format!("GET {path}"));
            assert_eq!(response.status, 404, "{path}");
        }
    });
}

#[test]
fn a_link_changed_while_requests_run_never_leads_outside() {
    on_both_drivers(|driver| {
        let outside = Tree::new().file("f.txt", "secret");
        let tree = Tree::new().file("in/f.txt", "inside").symlink("link", "in");
        let server = serve(driver, tree.path(), &[]);
        let link = tree.path().join("link");
        let other = tree.path().join("other");
        let until = Instant::now() + Duration::from_millis(300);
        let (mut found, mut refused) = (0, 0);
        let mut inward = false;
        while Instant::now() < until {
            let target = if inward { "in".as_ref() } else { outside.path() };
            inward = !inward;
            symlink(target, &other).unwrap();
            fs::rename(&other, &link).unwrap();
            let response = ask(&server, "GET /link/f.txt");
            match response.status {
                200 => {
                    assert_eq!(response.body, b"inside");
                    found += 1;
                }
                404 => refused += 1,
                status => panic!("{status}"),
            }
        }
        assert!(found > 0 || refused > 0);
    });
}

#[test]
fn what_is_no_file_is_refused_and_never_waited_for() {
    on_both_drivers(|driver| {
        let tree = Tree::new().file("a.txt", "a").directory("d");
        make_fifo(&tree.path().join("fifo"));
        make_fifo(&tree.path().join("d/index.html"));
        let _socket = UnixListener::bind(tree.path().join("socket")).unwrap();
        let server = serve(driver, tree.path(), &[]);
        let began = Instant::now();
        for path in ["/fifo", "/socket", "/d/", "/fifo/", "/fifo/x"] {
            let status = ask(&server, &format!("GET {path}")).status;
            assert!(matches!(status, 403 | 404), "{path}: {status}");
        }
        assert!(began.elapsed() < Duration::from_secs(5));
    });
}

/// To open it for reading would release a writer that waits for a reader.
#[test]
fn a_fifo_is_not_opened() {
    on_both_drivers(|driver| {
        let tree = Tree::new().file("a.txt", "a").directory("d");
        let server = serve(driver, tree.path(), &[]);
        for (name, path) in [("fifo", "/fifo"), ("d/index.html", "/d/"), ("a.txt.gz", "/a.txt")] {
            let fifo = tree.path().join(name);
            make_fifo(&fifo);
            let mut writer =
                Command::new("sh").args(["-c", ": > \"$0\"", text(&fifo)]).spawn().unwrap();
            // The shell has opened nothing yet when it is in `wait_for_partner` of fs/pipe.c, or
            // any other sleep.
            thread::sleep(Duration::from_millis(100));
            for _ in 0..5 {
                let status = ask(&server, &format!("GET {path}")).status;
                assert_eq!(status, if path == "/a.txt" { 200 } else { 404 }, "{path}");
            }
            thread::sleep(Duration::from_millis(100));
            assert!(writer.try_wait().unwrap().is_none(), "{path}: its writer was released");
            writer.kill().unwrap();
            writer.wait().unwrap();
        }
    });
}

#[test]
fn a_rename_elsewhere_does_not_disturb_a_link_with_dots() {
    // Each asked for once, so that none is answered from the cache.
    const LINKS: usize = 3000;
    on_both_drivers(|driver| {
        let tree = Tree::new().file("a.txt", "inside").directory("d");
        for number in 0..LINKS {
            symlink("../a.txt", tree.path().join(format!("d/{number}"))).unwrap();
        }
        let elsewhere = Tree::new().file("one", "");
        let server = serve(driver, tree.path(), &[]);
        let stop = AtomicBool::new(false);
        let failed = thread::scope(|scope| {
            scope.spawn(|| {
                let (one, two) = (elsewhere.path().join("one"), elsewhere.path().join("two"));
                while !stop.load(Ordering::Relaxed) {
                    fs::rename(&one, &two).unwrap();
                    fs::rename(&two, &one).unwrap();
                }
            });
            let mut client = connect(&server);
            let failed = (0..LINKS)
                .filter(|number| ask_on(&mut client, &format!("GET /d/{number}")).status != 200)
                .count();
            stop.store(true, Ordering::Relaxed);
            failed
        });
        assert_eq!(failed, 0, "of {LINKS}");
    });
}

#[test]
fn devices_are_refused() {
    let tree = Tree::new();
    let device = tree.path().join("zero");
    if let Err(reason) =
        run("mknod", &[device.as_os_str(), "c".as_ref(), "1".as_ref(), "5".as_ref()])
    {
        skip!("no device can be made: {reason}");
    }
    on_both_drivers(|driver| {
        let server = serve(driver, tree.path(), &[]);
        let status = ask(&server, "GET /zero").status;
        assert!(matches!(status, 403 | 404), "{status}");
    });
}

#[test]
fn what_may_not_be_read_is_forbidden() {
    let tree = Tree::new().file("a.txt", "a").file("secret.txt", "s").file("closed/a.txt", "a");
    let mode = |path: &str, mode| {
        fs::set_permissions(tree.path().join(path), fs::Permissions::from_mode(mode)).unwrap();
    };
    mode("", 0o755);
    mode("secret.txt", 0);
    mode("closed", 0);
    on_both_drivers(|driver| {
        let mut command = crate::common::command(driver, tree.path(), &[]);
        let server = Server::spawn(as_nobody(&mut command)).unwrap();
        assert_eq!(ask(&server, "GET /a.txt").status, 200);
        for path in ["/secret.txt", "/closed/a.txt", "/closed/"] {
            assert_eq!(ask(&server, &format!("GET {path}")).status, 403, "{path}");
        }
    });
    mode("closed", 0o755);
}
