//! Pages whose holes other servers and applications fill.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::thread;

use crate::application::{Act, application, end, output};
use crate::stage::{ERRMSG, Stage, on_both_drivers, tree};

/// A server that answers a request on each connection with these bytes, and closes it.
fn serve(path: &Path, answers: &'static [&str]) {
    let listener = UnixListener::bind(path).unwrap();
    thread::spawn(move || {
        for answer in answers {
            let (mut stream, _) = listener.accept().unwrap();
            let mut head = [0; 4096];
            let _ = stream.read(&mut head).unwrap();
            stream.write_all(answer.as_bytes()).unwrap();
        }
    });
}

#[test]
fn servers_and_applications_fill_holes() {
    on_both_drivers(|driver| {
        let tree = tree();
        serve(
            &tree.path().join("app.sock"),
            &[
                "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok",
                "garbage\r\n\r\n",
            ],
        );
        let header = "Content-Type: a/b\r\n\r\n";
        let acts = vec![
            Act::Close([output(&format!("{header}script")), end(0)].concat()),
            Act::Close(end(2)),
            Act::Close(output(&format!("{header}half"))),
        ];
        let _seen = application(&tree.path().join("php.sock"), acts);
        tree.write(
            "www/page.html",
            "1<!--#include virtual=\"/server/a\"-->2<!--#include virtual=\"/script/a.php\"-->3",
        );
        let stage = Stage::new(driver, &tree);
        assert_eq!(stage.page("/page.html"), "1ok2script3");
        assert_eq!(stage.page("/page.html"), format!("1{ERRMSG}2{ERRMSG}3"));
        stage.wait_for_log("php.sock: it has too much to do");
        let mut client = stage.connect();
        client.send(testkit::request("GET /page.html")).unwrap();
        client.response().expect_err("it is cut off");
        stage.wait_for_log("its response is cut off");
    });
}

#[test]
fn pages_beside_scripts_are_pages() {
    on_both_drivers(|driver| {
        let tree = tree();
        let text = "-".repeat(100_000);
        tree.write("www/page.html", "1<!--#include virtual=\"/mixed/a.php\"-->2");
        tree.write("www/page.html.gz", "compressed");
        // Not in memory.
        tree.write("www/long/index.html", format!("<!--#echo var=\"none\"-->{text}").as_str());
        tree.write("www/a.php", "<?php source");
        tree.write("www/plain.html", "<!-- no directive -->");
        let script = [output("Content-Type: a/b\r\n\r\nscript"), end(0)].concat();
        let _seen = application(&tree.path().join("php.sock"), vec![Act::Close(script); 5]);
        let stage = Stage::new(driver, &tree);
        for _ in 0..2 {
            let response = stage.ask("GET /mixed/page.html\nAccept-Encoding: gzip");
            assert_eq!((response.status, &response.body[..]), (200, &b"1script2"[..]));
            assert_eq!(response.header("Content-Encoding"), None);
            assert_eq!(response.header("ETag"), None);
            assert_eq!(stage.page("/back/none"), "1script2");
            assert_eq!(stage.page("/mixed/long/"), format!("(none){text}"));
        }
        assert_eq!(stage.page("/mixed/a.php"), "script");
        assert!(stage.ask("GET /mixed/plain.html").header("ETag").is_some());
        assert_eq!(stage.ask("POST /mixed/page.html").status, 405);
    });
}
