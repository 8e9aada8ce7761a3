//! Pages with many holes, and holes that take their time.

use core::fmt::Write as _;
use core::time::Duration;
use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::mpsc;
use std::thread;

use testkit::{Content, request};

use crate::common::{SOON, wait_until};
use crate::fastcgi::application::{end, output};
use crate::includes::stage::{ERRMSG, on_both_drivers, script, serve, serve_with, tree};

/// A page with holes of all sizes between texts, and what it comes to.
fn large_page(tree: &testkit::Tree) -> Vec<u8> {
    let (mut page, mut expected) = (Vec::new(), Vec::new());
    for hole in 0..20_u64 {
        let text = Content::pseudo_random(hole, 50_000).read(0, 50_000);
        // Random bytes may begin a directive, but not in this many years.
        page.extend_from_slice(&text);
        write!(Text(&mut page), "<!--#include virtual=\"/hole{hole}\" -->").unwrap();
        let length = if hole % 4 == 3 { 100_000 } else { 100 * hole };
        let bytes = usize::try_from(length).unwrap();
        let body = Content::pseudo_random(100 + hole, length).read(0, bytes);
        fs::write(tree.path().join(format!("www/hole{hole}")), &body).unwrap();
        expected.extend_from_slice(&text);
        expected.extend_from_slice(&body);
    }
    fs::write(tree.path().join("www/page.html"), page).unwrap();
    expected
}

struct Text<'a>(&'a mut Vec<u8>);

impl core::fmt::Write for Text<'_> {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        self.0.extend_from_slice(text.as_bytes());
        Ok(())
    }
}

#[test]
fn holes_are_filled_in_order() {
    on_both_drivers(|driver| {
        let tree = tree();
        let expected = large_page(&tree);
        let stage = serve(driver, &tree);
        for _ in 0..3 {
            let response = stage.ask("GET /page.html");
            assert!(response.status == 200 && response.body == expected);
        }
        // Several on one connection, at the same time.
        let mut client = stage.connect();
        client.send(request("GET /page.html").repeat(4)).unwrap();
        for _ in 0..4 {
            assert!(client.response().unwrap().body == expected);
        }
        let count = stage.count("samum_includes_total", &[("event", "begun")]);
        assert_eq!(count, 7 * 20);
        // One whose end is that of the connection.
        let mut client = stage.connect();
        client.send("GET /page.html HTTP/1.0\r\n\r\n").unwrap();
        assert!(client.read_to_end().unwrap().ends_with(&expected));
    });
}

#[test]
fn holes_are_looked_for_side_by_side() {
    on_both_drivers(|driver| {
        let tree = tree();
        let root = tree.path().display().to_string();
        // The first waits until the last has begun.
        script(
            &tree,
            "first",
            &format!(
                "while ! [ -e {root}/begun ]; do sleep 0.01; done; printf 'Content-Type: text/plain\\n\\nfirst'"
            ),
        );
        script(
            &tree,
            "last",
            &format!("touch {root}/begun; printf 'Content-Type: text/plain\\n\\nlast'"),
        );
        script(&tree, "failed", "printf 'Status: 503\\n\\nno'");
        tree.write("www/a.txt", "text");
        tree.write(
            "www/page.html",
            "1<!--#include virtual=\"/tool/first\"-->2<!--#include virtual=\"/a.txt\"-->3\
             <!--#include virtual=\"/tool/failed\"-->4<!--#include virtual=\"/tool/last?x\"-->5",
        );
        tree.write("www/outer.html", "<<!--#include virtual=\"page.html\"-->>");
        let stage = serve(driver, &tree);
        let expected = format!("1first2text3{ERRMSG}4last5");
        assert_eq!(stage.page("/page.html"), expected);
        fs::remove_file(tree.path().join("begun")).unwrap();
        assert_eq!(stage.page("/outer.html"), format!("<{expected}>"));
    });
}

#[test]
fn a_program_fills_a_hole_with_more_than_is_kept_for_a_client() {
    on_both_drivers(|driver| {
        let tree = tree();
        script(
            &tree,
            "much",
            "printf 'Content-Type: text/plain\\n\\n'; head -c 3000000 /dev/zero | tr '\\0' x",
        );
        tree.write(
            "www/page.html",
            "<!--#include virtual=\"/tool/much?1\"-->a<!--#include virtual=\"/tool/much?2\"-->b",
        );
        let stage = serve(driver, &tree);
        let body = stage.page("/page.html");
        assert_eq!(body.len(), 6_000_002);
        assert!(body.as_bytes()[3_000_000] == b'a' && body.ends_with("xb"));
    });
}

#[test]
fn a_client_that_leaves_ends_what_its_page_includes() {
    on_both_drivers(|driver| {
        let tree = tree();
        script(&tree, "endless", "printf 'Content-Type: text/plain\\n\\nx'; exec sleep 1000");
        script(&tree, "silent", "exec sleep 1000");
        tree.write("www/inner.html", "<!--#include virtual=\"/tool/silent\"-->");
        tree.write(
            "www/page.html",
            "begin<!--#include virtual=\"/tool/endless\"--><!--#include virtual=\"/inner.html\"-->",
        );
        // A client that has closed its side may still want its response, but not for long.
        let stage = serve_with(driver, &tree, tree.path(), "timeout-send = 1");
        let started = || stage.count("samum_cgi_programs_total", &[("event", "started")]);
        let killed = || stage.count("samum_cgi_programs_total", &[("event", "killed")]);
        let mut client = stage.connect();
        client.send(request("GET /page.html")).unwrap();
        assert!(wait_until(SOON, || started() == 2));
        client.read_exactly(100).unwrap();
        drop(client);
        assert!(wait_until(SOON, || killed() == 2), "{}", killed());
    });
}

/// As many holes as are looked for side by side wait when the page ends.
#[test]
fn an_if_without_endif_is_told_while_holes_wait() {
    on_both_drivers(|driver| {
        let tree = tree();
        script(&tree, "silent", "exec sleep 1000");
        let holes = "<!--#include virtual=\"/tool/silent\"-->".repeat(8);
        tree.write("www/page.html", format!("<!--#if expr=\"a\"-->{holes}").as_str());
        let stage = serve(driver, &tree);
        let mut client = stage.connect();
        client.send(request("GET /page.html")).unwrap();
        stage.wait_for_log("/page.html: line 1: an if has no endif");
        drop(client);
    });
}

#[test]
fn a_program_that_dies_in_a_page_cuts_it() {
    on_both_drivers(|driver| {
        let tree = tree();
        script(
            &tree,
            "dies",
            "printf 'Content-Type: text/plain\\nContent-Length: 10\\n\\nx'; exit 1",
        );
        tree.write("www/page.html", "begin<!--#include virtual=\"/tool/dies\"-->end");
        let stage = serve(driver, &tree);
        let mut client = stage.connect();
        client.send(request("GET /page.html")).unwrap();
        let bytes = client.read_to_end().unwrap();
        let text = String::from_utf8_lossy(&bytes);
        assert!(text.contains("begin") && !text.contains("end"), "{text}");
        assert!(!text.ends_with("0\r\n\r\n"), "{text}");
    });
}

/// Holes of the pages of one response that are open at the same time.
const OPEN_MAX: u64 = 32;

#[test]
fn pages_that_wait_behind_a_slow_hole_leave_room_for_others() {
    on_both_drivers(|driver| {
        let tree = tree();
        script(&tree, "silent", "exec sleep 1000");
        let seven = |path: &str| format!("<!--#include virtual=\"{path}\"-->").repeat(7);
        tree.write(
            "www/outer.html",
            format!("<!--#include virtual=\"/tool/silent\"-->{}", seven("/a.html")).as_str(),
        );
        tree.write("www/a.html", seven("/b.html").as_str());
        tree.write("www/b.html", seven("/c.html").as_str());
        tree.write("www/c.html", "<!--#echo var=\"none\"-->");
        let stage = serve(driver, &tree);
        // Each has 400 pages. Those for which there is no place yet wait until the turn of theirs has come.
        let clients: Vec<_> = (0..12)
            .map(|_| {
                let mut client = stage.connect();
                client.send(request("GET /outer.html")).unwrap();
                client
            })
            .collect();
        let all = 12 * OPEN_MAX;
        let begun = || stage.count("samum_includes_total", &[("event", "begun")]);
        assert!(wait_until(SOON, || begun() == all), "{} of {all}", begun());
        assert_eq!(stage.page("/c.html"), "(none)");
        assert_eq!(stage.page("/b.html"), "(none)".repeat(7));
        assert_eq!(stage.count("samum_includes_total", &[("event", "failed")]), 0);
        drop(clients);
    });
}

/// A server of one connection that answers with these bytes; says when all of them have been taken.
fn serve_once(path: &Path, answer: Vec<u8>) -> mpsc::Receiver<()> {
    let listener = UnixListener::bind(path).unwrap();
    let (sender, has_sent) = mpsc::channel();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        assert!(stream.read(&mut [0; 4096]).unwrap() > 0);
        stream.write_all(&answer).unwrap();
        sender.send(()).unwrap();
    });
    has_sent
}

#[test]
fn the_content_of_a_hole_waits_at_its_server_until_its_turn() {
    /// More than sockets hold, and less than the buffer of a route has room for.
    const SIZE: usize = 900_000;
    let bytes = "x".repeat(SIZE);
    let head = "HTTP/1.1 200 OK\r\nConnection: close\r\n";
    let chunks = format!("{:x}\r\n{bytes}\r\n0\r\n\r\n", bytes.len());
    let records = |bytes: &str| {
        let all = bytes.as_bytes().chunks(30_000);
        all.flat_map(|part| output(str::from_utf8(part).unwrap())).collect::<Vec<u8>>()
    };
    let php = records(&format!("Content-Type: a/b\r\n\r\n{bytes}"));
    let answers = [
        ("app.sock", format!("{head}Content-Length: {SIZE}\r\n\r\n{bytes}").into_bytes()),
        ("app.sock", format!("{head}Transfer-Encoding: chunked\r\n\r\n{chunks}").into_bytes()),
        ("app.sock", format!("{head}\r\n{bytes}").into_bytes()),
        ("php.sock", [php, end(0)].concat()),
    ];
    on_both_drivers(|driver| {
        for (form, (socket, answer)) in answers.iter().enumerate() {
            let tree = tree();
            let root = tree.path().display().to_string();
            let first = "printf 'Content-Type: text/plain\\n\\nfirst'";
            let wait = format!("while ! [ -e {root}/go ]; do sleep 0.01; done; {first}");
            script(&tree, "first", &wait);
            let path = if *socket == "app.sock" { "/server/a" } else { "/script/a.php" };
            let page = format!(
                "<!--#include virtual=\"/tool/first\"--><!--#include virtual=\"{path}\"-->end"
            );
            tree.write("www/page.html", page.as_str());
            let has_sent = serve_once(&tree.path().join(socket), answer.clone());
            let stage = serve(driver, &tree);
            let mut client = stage.connect();
            client.send(request("GET /page.html")).unwrap();
            let early = has_sent.recv_timeout(Duration::from_millis(700));
            assert!(early.is_err(), "form {form}: all of it waits in memory");
            tree.write("go", "");
            let response = client.response().unwrap();
            assert!(response.body == format!("first{bytes}end").into_bytes(), "form {form}");
            has_sent.recv_timeout(SOON).expect("all of it was taken");
        }
    });
}
