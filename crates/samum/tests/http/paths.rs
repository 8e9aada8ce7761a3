//! Paths of URLs lead to files beneath the root, and to nothing else.

use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Instant;

use testkit::{Server, Tree, skip};

use crate::common::{
    as_nobody, ask, ask_on, connect, make_fifo, on_both_drivers, run, serve, text,
};

/// Links whose targets depend on the place of the directories; the table of cases has the others.
#[test]
fn absolute_links_and_links_to_a_sibling_are_not_followed() {
    on_both_drivers(|driver| {
        let outside = Tree::new().file("secret.txt", "secret").file("dir/secret.txt", "secret");
        let tree = Tree::new().file("a.txt", "inside");
        let link = |target: &Path, name: &str| symlink(target, tree.path().join(name)).unwrap();
        link(&tree.path().join("a.txt"), "absolute-inside.txt");
        link(outside.path(), "out");
        link(&Path::new("..").join(outside.path().file_name().unwrap()), "sibling");
        let server = serve(driver, tree.path(), &["--listing"]);
        for path in [
            "/absolute-inside.txt",
            "/out",
            "/out/",
            "/out/secret.txt",
            "/out/dir/secret.txt",
            "/sibling/secret.txt",
        ] {
            assert_eq!(ask(&server, &format!("GET {path}")).status, 404, "{path}");
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
fn special_files_are_refused_without_waiting() {
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

/// Opening it for reading would wake a writer that waits for a reader.
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
            // The shell sleeps in `wait_for_partner` of fs/pipe.c, or before it has opened the FIFO.
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
    // Each is requested once, so that none is answered from the cache.
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
fn a_file_without_read_permission_is_forbidden() {
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

#[test]
fn only_a_file_counts_as_a_sibling() {
    on_both_drivers(|driver| {
        let tree = Tree::new().file("a.css", "plain").directory("a.css.gz");
        // It leads out.
        let tree = tree.symlink("a.css.br", "/etc/passwd");
        make_fifo(&tree.path().join("a.css.zst"));
        let server = serve(driver, tree.path(), &[]);
        let response = ask(&server, "GET /a.css\nAccept-Encoding: gzip, br, zstd");
        assert_eq!(
            (response.header("Content-Encoding"), &response.body[..]),
            (None, &b"plain"[..])
        );
    });
}
