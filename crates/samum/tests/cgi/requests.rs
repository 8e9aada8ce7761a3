//! The way from a request to a program: the search for it, its environment, and its input.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use testkit::request;

use crate::cgi::stage::{Counts, Stage, on_both_drivers, script, serve, serve_with, text, tree};

#[test]
fn a_program_is_told_the_request() {
    on_both_drivers(|driver| {
        let tree = tree();
        script(&tree, "sub/env", "printf 'Content-Type: text/plain\\n\\n'; pwd; echo \"$#\"; env");
        let keys = "environment = { EXTRA = '1 2', PATH = '/usr/bin:/bin' }";
        let stage = serve_with(driver, &tree, keys);
        let response =
            stage.ask("GET /tool/sub/env/x%20y/?a=b&c+-d\nX-A: 1\nProxy: evil\nX_B: evil");
        let mut lines = text(&response).lines();
        let root = tree.path().canonicalize().unwrap();
        assert_eq!(
            lines.next(),
            Some(root.join("cgi/sub").to_str().unwrap()),
            "the working directory"
        );
        assert_eq!(lines.next(), Some("0"), "no arguments");
        let mut lines: Vec<_> = lines.filter(|line| !line.starts_with("PWD=")).collect();
        lines.sort_unstable();
        let version = format!("SERVER_SOFTWARE=samum/{}", env!("CARGO_PKG_VERSION"));
        let root = tree.path().display();
        let (documents, file) =
            (format!("DOCUMENT_ROOT={root}/www"), format!("SCRIPT_FILENAME={root}/cgi/sub/env"));
        let translated = format!("PATH_TRANSLATED={root}/www/x y/");
        let is_id = |line: &&&str| line.starts_with("HTTP_X_REQUEST_ID=") && line.len() == 18 + 32;
        assert_eq!(lines.iter().filter(is_id).count(), 1, "{lines:?}");
        lines.retain(|line| {
            ["_=", "OLDPWD=", "SHLVL=", "REMOTE_PORT=", "HTTP_X_REQUEST_ID="]
                .iter()
                .all(|name| !line.starts_with(name))
        });
        assert_eq!(
            lines,
            [
                "AUTH_TYPE=",
                &documents,
                "DOCUMENT_URI=/tool/sub/env/x y/",
                "EXTRA=1 2",
                "GATEWAY_INTERFACE=CGI/1.1",
                "HTTP_HOST=test",
                "HTTP_X_A=1",
                "PATH=/usr/bin:/bin",
                "PATH_INFO=/x y/",
                &translated,
                "QUERY_STRING=a=b&c+-d",
                "REDIRECT_STATUS=200",
                "REMOTE_ADDR=127.0.0.1",
                "REMOTE_HOST=127.0.0.1",
                "REQUEST_METHOD=GET",
                "REQUEST_SCHEME=http",
                "REQUEST_URI=/tool/sub/env/x%20y/?a=b&c+-d",
                &file,
                "SCRIPT_NAME=/tool/sub/env",
                "SERVER_ADDR=127.0.0.1",
                "SERVER_NAME=test",
                "SERVER_PORT=80",
                "SERVER_PROTOCOL=HTTP/1.1",
                &version,
            ]
        );
    });
}

/// A wildcard is no address, so the connection is asked.
#[test]
fn a_program_gets_the_address_at_which_the_client_has_connected() {
    on_both_drivers(|driver| {
        let tree = tree();
        script(&tree, "address", "printf 'Content-Type: a/b\\n\\n%s' \"$SERVER_ADDR\"");
        let root = tree.path().display();
        for listen in ["127.0.0.1:0", "0.0.0.0:0"] {
            let config = format!(
                "[server]\nthreads = 1\ndriver = '{driver}'\n\
                 [[site]]\nlisten = ['{listen}']\n\
                 [[site.route]]\npath = '/tool/'\ncgi = '{root}/cgi'\n"
            );
            let stage = Stage::new(&tree, &config);
            assert_eq!(text(&stage.ask("GET /tool/address")), "127.0.0.1", "{listen}");
        }
    });
}

#[test]
fn what_follows_a_program_is_for_the_program() {
    on_both_drivers(|driver| {
        let tree = tree();
        script(
            &tree,
            "show",
            "printf 'Content-Type: text/plain\\n\\n%s' \"$PATH_INFO $REQUEST_URI\"",
        );
        let stage = serve(driver, &tree);
        let raw = stage.ask("GET /tool/show/é?ü");
        assert_eq!((raw.status, text(&raw)), (200, "/é /tool/show/%C3%A9?%C3%BC"));
        let long = "n".repeat(300);
        for (path, info) in [
            ("/tool/show/group%2fproject.git/info", "/group/project.git/info"),
            ("/tool/show/%2F", "//"),
            ("/tool/show/%5C%0A\\", "/\\\n\\"),
            (&format!("/tool/show/{long}"), &format!("/{long}")),
        ] {
            let response = stage.ask(&format!("GET {path}"));
            assert_eq!((response.status, text(&response)), (200, &*format!("{info} {path}")));
        }
    });
}

#[test]
fn a_program_is_found_beneath_its_directory_or_not_at_all() {
    on_both_drivers(|driver| {
        let tree = tree().file("cgi/text", "#!/bin/sh\n").directory("cgi/empty");
        let tree = tree.symlink("cgi/inside", "sub/run").symlink("cgi/outside", "/bin/true");
        let tree = tree.symlink("cgi/up", "../www");
        let hello = "printf 'Content-Type: text/plain\\n\\n%s' \"$SCRIPT_NAME\"";
        for name in ["sub/run", ".hidden", "sub/.git/hooks/run", "a b"] {
            script(&tree, name, hello);
        }
        crate::common::make_fifo(&tree.path().join("cgi/fifo"));
        script(&tree, "lost", "");
        tree.write("cgi/lost", "#!/does/not/exist\n");
        tree.write("cgi/noexec", "\x7fELF nonsense");
        let executable = fs::Permissions::from_mode(0o755);
        fs::set_permissions(tree.path().join("cgi/noexec"), executable).unwrap();
        let stage = serve(driver, &tree);
        for (path, status) in [
            ("sub/run", 200),
            ("sub//run", 200),
            ("sub/../sub/./run", 200),
            ("sub/run/info", 200),
            ("a%20b", 200),
            ("inside", 200),
            ("", 404),
            ("sub", 404),
            ("sub/", 404),
            ("empty/", 404),
            ("missing", 404),
            ("sub/missing/x", 404),
            ("fifo", 404),
            (".hidden", 404),
            ("sub/.git/hooks/run", 404),
            ("../a.txt", 200),
            ("sub%2Frun", 404),
            ("sub/run/a%2Fb", 200),
            ("sub/run/..%2Fb", 404),
            ("sub/run/.hidden", 200),
            ("sub/run%00", 400),
            ("text", 403),
            ("outside", 403),
            ("up/a.txt", 403),
            ("lost", 502),
            ("noexec", 502),
        ] {
            assert_eq!(stage.ask(&format!("GET /tool/{path}")).status, status, "{path:?}");
        }
        assert_eq!(stage.ask("GET /tool").status, 301);
        assert_eq!(stage.ask("TRACE /tool/sub/run").status, 405);
        stage.wait_for_log("/tool/lost: it or its interpreter does not exist");
        stage.wait_for_log("/tool/noexec: it cannot be executed");
        assert_eq!(stage.counts().started, 8);
    });
}

#[test]
fn a_directory_that_is_replaced_is_seen() {
    on_both_drivers(|driver| {
        let tree = tree();
        script(&tree, "run", "printf 'Content-Type: text/plain\\n\\nold'");
        let stage = serve(driver, &tree);
        assert_eq!(text(&stage.ask("GET /tool/run")), "old");
        fs::rename(tree.path().join("cgi"), tree.path().join("away")).unwrap();
        assert_eq!(stage.ask("GET /tool/run").status, 503);
        stage.wait_for_log("cannot be opened");
        script(&tree, "run", "printf 'Content-Type: text/plain\\n\\nnew'");
        assert_eq!(text(&stage.ask("GET /tool/run")), "new");
    });
}

#[test]
fn a_body_is_given_to_the_program_while_it_comes() {
    on_both_drivers(|driver| {
        let tree = tree();
        script(
            &tree,
            "cat",
            "printf 'Content-Type: a/b\\n\\n%s:' \"$CONTENT_LENGTH:$CONTENT_TYPE\"; cat",
        );
        script(&tree, "head", "printf 'Content-Type: a/b\\n\\n'; head -c 3");
        script(&tree, "deaf", "exec <&-; printf 'Content-Type: a/b\\n\\ndeaf'");
        script(&tree, "idle", "sleep 0.3; printf 'Content-Type: a/b\\n\\nidle'");
        let stage = serve(driver, &tree);
        let body: Vec<u8> = (0..3_000_000_u32).map(|n| (n % 251) as u8).collect();
        // The response begins before the body has ended.
        let mut client = stage.connect();
        let head = format!("POST /tool/cat\nContent-Type: c/d\nContent-Length: {}", body.len());
        client.send(request(&head)).unwrap();
        let (sender, mut bytes) = (
            std::thread::spawn({
                let body = body.clone();
                move || {
                    client.send(&body).unwrap();
                    client
                }
            }),
            Vec::new(),
        );
        let mut client = sender.join().unwrap();
        let response = client.response().unwrap();
        bytes.extend_from_slice(b"3000000:c/d:");
        bytes.extend_from_slice(&body);
        assert!(response.body == bytes, "{} of {} bytes", response.body.len(), bytes.len());
        // Programs need not read it.
        for (name, expected) in [("head", &body[..3]), ("deaf", b"deaf"), ("idle", b"idle")] {
            for length in [10, 100_000, 900_000] {
                let response = stage.post(&format!("POST /tool/{name}"), &body[..length]);
                assert_eq!(
                    (response.status, &response.body[..]),
                    (200, expected),
                    "{name} {length}"
                );
            }
        }
        let response = stage.post("PUT /tool/cat", b"");
        assert_eq!(text(&response), "0::");
        assert_eq!(text(&stage.ask("GET /tool/cat")), "::");
    });
}

#[test]
fn a_body_that_fits_into_memory_is_collected_first() {
    on_both_drivers(|driver| {
        let tree = tree();
        script(&tree, "cat", "printf 'Content-Type: a/b\\n\\n%s:' \"$CONTENT_LENGTH\"; cat");
        let stage = serve(driver, &tree);
        let chunked = "POST /tool/cat\nTransfer-Encoding: chunked";
        let mut client = stage.connect();
        client.send(request(&format!("{chunked}\nExpect: 100-continue"))).unwrap();
        assert_eq!(client.response().unwrap().status, 100);
        client.send("5\r\nhello\r\n").unwrap();
        client.send("1\r\n!\r\n0\r\n\r\n").unwrap();
        assert_eq!(text(&client.response().unwrap()), "6:hello!");
        // The connection goes on.
        client.send(request(chunked) + "0\r\n\r\n").unwrap();
        assert_eq!(text(&client.response().unwrap()), "0:");
        let block = format!("10000\r\n{}\r\n", "x".repeat(0x10000));
        client.send(request(chunked)).unwrap();
        client.send(block.repeat(16) + "0\r\n\r\n").unwrap();
        assert_eq!(client.response().unwrap().body.len(), (1 << 20) + "1048576:".len());
        // Those that come slowly keep nobody out; if they take too much memory, they go to files.
        let mut clients: Vec<_> = (0..18).map(|_| stage.connect()).collect();
        for client in &mut clients {
            client.send(request(chunked) + "1\r\nx\r\n").unwrap();
        }
        std::thread::sleep(core::time::Duration::from_millis(300));
        let mut late = stage.connect();
        late.send(request(chunked) + "0\r\n\r\n").unwrap();
        assert_eq!(text(&late.response().unwrap()), "0:");
        for client in &mut clients {
            client.send(block.repeat(15)).unwrap();
        }
        for client in &mut clients {
            client.send("0\r\n\r\n").unwrap();
            assert!(text(&client.response().unwrap()).starts_with("983041:x"));
        }
        // A client that leaves within its body starts nothing.
        let mut client = stage.connect();
        client.send(request(chunked) + "1\r\nx\r\n").unwrap();
        drop(client);
        stage.expect(Counts { started: 22, ..Counts::default() });
    });
}

#[test]
fn a_program_is_not_started_for_a_body_that_is_longer_than_its_route_allows() {
    on_both_drivers(|driver| {
        let tree = tree();
        script(&tree, "cat", "printf 'Content-Type: a/b\\n\\n%s:' \"$CONTENT_LENGTH\"; cat");
        let stage = serve(driver, &tree);
        assert_eq!(text(&stage.post("POST /short/cat", b"hello")), "5:hello");
        assert_eq!(stage.post("POST /short/cat", b"hello!").status, 413);
        let chunked = "POST /short/cat\nTransfer-Encoding: chunked";
        let mut client = stage.connect();
        client.send(request(chunked) + "2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n").unwrap();
        assert_eq!(text(&client.response().unwrap()), "5:hello");
        client.send(request(chunked) + "2\r\nhe\r\n").unwrap();
        client.send("4\r\nllo!\r\n0\r\n\r\n").unwrap();
        let response = client.response().unwrap();
        assert_eq!((response.status, response.header("Connection")), (413, Some("close")));
        assert_eq!(client.read_to_end().unwrap(), b"");
        stage.expect(Counts { started: 2, ..Counts::default() });
    });
}

#[test]
fn the_body_of_a_request_that_is_refused_takes_no_place() {
    on_both_drivers(|driver| {
        let tree = tree();
        script(&tree, "cat", "printf 'Content-Type: a/b\\n\\n%s:' \"$CONTENT_LENGTH\"; cat");
        let stage = serve(driver, &tree);
        let begin = |path: &str| {
            let mut client = stage.connect();
            let head = request(&format!("POST {path}\nTransfer-Encoding: chunked"));
            client.send(head + "1\r\nx\r\n").unwrap();
            client
        };
        // Their bodies are skipped before the responses.
        let mut refused: Vec<_> = (0..20).map(|_| begin("/closed/cat")).collect();
        std::thread::sleep(core::time::Duration::from_millis(300));
        let mut client = begin("/tool/cat");
        client.send("0\r\n\r\n").unwrap();
        assert_eq!(text(&client.response().unwrap()), "1:x");
        for client in &mut refused {
            client.send("0\r\n\r\n").unwrap();
            assert_eq!(client.response().unwrap().status, 403);
        }
        stage.expect(Counts { started: 1, ..Counts::default() });
    });
}
