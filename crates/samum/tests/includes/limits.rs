//! What the pages of one response may take.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixListener;
use std::sync::mpsc;
use std::thread;

use testkit::request;

use crate::common::{SOON, resident_bytes, wait_until};
use crate::includes::stage::{ERRMSG, Stage, on_both_drivers, serve, tree};

/// Bytes of memory that a response may take, with what the server itself begins to use.
const RESPONSE_BYTES_MAX: u64 = 8 * 1024 * 1024;

#[test]
fn variables_of_pages_within_one_another_have_a_bound() {
    on_both_drivers(|driver| {
        let tree = tree();
        for page in 0..8 {
            let mut text = format!("<!--#set var='w' value='{}'-->", "w".repeat(1024));
            for number in 0..97 {
                text += &format!("<!--#set var='v{number}' value='$w$w$w$w'-->");
            }
            text += &format!("<!--#include virtual='/{}.html'-->", page + 1).repeat(8);
            tree.write(format!("www/{page}.html"), text.as_str());
        }
        tree.write("www/last.html", "<!--#include virtual='/7.html'-->end");
        let stage = serve(driver, &tree);
        assert!(stage.page("/last.html").ends_with("end"));
        let before = resident_bytes(&stage.server);
        let shown = stage.page("/0.html");
        assert!(shown.contains(ERRMSG), "{shown}");
        stage.wait_for_log(
            ".html: line 1: the pages of the response have variables of more than 2 MiB",
        );
        let grown = resident_bytes(&stage.server).saturating_sub(before);
        assert!(grown <= RESPONSE_BYTES_MAX, "{grown} bytes");
    });
}

/// As many as a large page may have, of files and of pages.
#[test]
fn a_page_with_many_includes_is_whole() {
    on_both_drivers(|driver| {
        let tree = tree();
        let (mut files, mut pages, mut expected) = (String::new(), String::new(), String::new());
        for number in 0..200 {
            tree.write(format!("www/{number}.txt"), format!("part {number}").as_str());
            let page = format!("<!--#set var='n' value='{number}'-->part <!--#echo var='n'-->");
            tree.write(format!("www/{number}.html"), page.as_str());
            files += &format!("<!--#include virtual='/{number}.txt'-->,");
            pages += &format!("<!--#include virtual='/{number}.html'-->,");
            expected += &format!("part {number},");
        }
        tree.write("www/files.html", files.as_str());
        tree.write("www/pages.html", pages.as_str());
        let stage = serve(driver, &tree);
        for _ in 0..3 {
            assert_eq!(stage.page("/files.html"), expected);
            assert_eq!(stage.page("/pages.html"), expected);
        }
    });
}

/// Waits until the pages of all responses have begun all includes that they begin now; returns their number.
fn includes_begun(stage: &Stage) -> u64 {
    let count = || stage.count("samum_includes_total", &[("event", "begun")]);
    let mut last = count();
    wait_until(SOON, || core::mem::replace(&mut last, count()) == last);
    last
}

/// The parts of a page wait behind a part that does not come. The bodies that fill them are memory of the response, too.
#[test]
fn bodies_that_wait_for_their_turn_have_a_bound() {
    const TEXT_BYTES: usize = 64 * 1024;
    on_both_drivers(|driver| {
        let tree = tree();
        let listener = UnixListener::bind(tree.path().join("app.sock")).unwrap();
        let text = "x".repeat(TEXT_BYTES);
        let includes = "<!--#include virtual='/text'-->".repeat(250);
        let page = format!("<!--#include virtual='/server/late'-->{includes}");
        tree.write("www/page.html", page.as_str());
        tree.write("www/small.html", "<!--#include virtual='/text'-->");
        let root = tree.path().display();
        let config = format!(
            "[server]\nthreads = 1\ndriver = '{driver}'\n\
             [[site]]\nlisten = ['127.0.0.1:0']\nincludes = true\n\
             [[site.route]]\nfiles = '{root}/www'\n\
             [[site.route]]\npath = '/server/'\nproxy = 'unix:{root}/app.sock'\n\
             [[site.route]]\npath = '/text'\nstatus = {{ code = 200, text = '{text}' }}\n\
             [[site.route]]\npath = '/metrics'\nmetrics = true\n"
        );
        let stage = Stage::new(&tree, &config);
        assert_eq!(stage.page("/small.html"), text);
        let before = resident_bytes(&stage.server);
        let mut client = stage.connect();
        client.send(request("GET /page.html")).unwrap();
        let (mut late, _) = listener.accept().unwrap();
        let begun = includes_begun(&stage);
        let grown = resident_bytes(&stage.server).saturating_sub(before);
        assert!(grown <= RESPONSE_BYTES_MAX, "{grown} bytes after {begun} includes");
        let _ = late.read(&mut [0; 4096]).unwrap();
        late.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nlate").unwrap();
        let body = client.response().unwrap().body;
        assert!(body == format!("late{}", text.repeat(250)).as_bytes(), "{} bytes", body.len());
    });
}

/// Eight upstreams answer side by side. The response of each but the first waits in the upstream's socket.
#[test]
fn responses_of_upstreams_that_wait_for_their_turn_have_a_bound() {
    const BODY_BYTES: usize = 4 * 1024 * 1024;
    on_both_drivers(|driver| {
        let tree = tree();
        let listener = UnixListener::bind(tree.path().join("app.sock")).unwrap();
        let (accepted, all) = mpsc::channel();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let accepted = accepted.clone();
                thread::spawn(move || {
                    let mut head = [0; 4096];
                    let count = stream.read(&mut head).unwrap();
                    let is_late = head[..count].starts_with(b"GET /server/late");
                    accepted.send((is_late, stream.try_clone().unwrap())).unwrap();
                    if !is_late {
                        let head =
                            format!("HTTP/1.1 200 OK\r\nContent-Length: {BODY_BYTES}\r\n\r\n");
                        let _ =
                            stream.write_all(&[head.as_bytes(), &vec![b'x'; BODY_BYTES]].concat());
                    }
                });
            }
        });
        let includes = "<!--#include virtual='/server/large'-->".repeat(20);
        let page = format!("<!--#include virtual='/server/late'-->{includes}");
        tree.write("www/page.html", page.as_str());
        let stage = serve(driver, &tree);
        let before = resident_bytes(&stage.server);
        let mut client = stage.connect();
        client.send(request("GET /page.html")).unwrap();
        let first: Vec<_> = (0..8).map(|_| all.recv_timeout(SOON).unwrap()).collect();
        includes_begun(&stage);
        let check = |what: &str| {
            let grown = resident_bytes(&stage.server).saturating_sub(before);
            assert!(grown <= RESPONSE_BYTES_MAX, "{what}: {grown} bytes");
        };
        check("behind the late part");
        let (_, mut late) = first.into_iter().find(|(is_late, _)| *is_late).unwrap();
        late.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nlate").unwrap();
        // The client takes a part, and then nothing.
        client.read_exactly(1000).unwrap();
        includes_begun(&stage);
        check("of a client that takes nothing");
    });
}

/// The entries of a directory would take more memory than a response may have.
#[test]
fn a_listing_that_is_too_large_for_a_page_is_an_error() {
    const ENTRIES: usize = 25_000;
    on_both_drivers(|driver| {
        let tree = tree().directory("www/few").directory("www/many");
        let name = "n".repeat(230);
        for entry in 0..ENTRIES {
            tree.write(format!("www/many/{entry:05}{name}"), "");
        }
        tree.write("www/few/file", "");
        let includes = "<!--#include virtual='/few/'-->|\n<!--#include virtual='/many/'-->|";
        tree.write("www/page.html", includes);
        let root = tree.path().display();
        let config = format!(
            "[server]\nthreads = 1\ndriver = '{driver}'\n\
             [[site]]\nlisten = ['127.0.0.1:0']\nincludes = true\n\
             [[site.route]]\nfiles = '{root}/www'\nlisting = true\n\
             [[site.route]]\npath = '/metrics'\nmetrics = true\n"
        );
        let stage = Stage::new(&tree, &config);
        assert_eq!(stage.page("/many/").matches("<tr><td><a href=\"./").count(), ENTRIES);
        let shown = stage.page("/page.html");
        assert_eq!(shown.matches("<tr><td><a href=\"./").count(), 1, "{}", shown.len());
        assert!(shown.ends_with(&format!("|\n{ERRMSG}|")), "{}", shown.len());
        stage.wait_for_log(
            "/page.html: line 2: the include of /many/: its body has more bytes of memory than are \
             left of the 8 MiB of a response; include a smaller directory",
        );
    });
}
